//! The floor: a process that copies bytes from socket to socket and looks at none.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of each direction's buffer.
const BUFFER: usize = 4096;

/// Copies between clients of `addr` and each of `to` in turn until the process is killed.
pub fn run(addr: SocketAddr, to: Vec<SocketAddr>) -> anyhow::Result<()> {
    ensure!(!to.is_empty(), "--splice needs --to");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(addr)
            .await
            .with_context(|| format!("cannot listen on {addr}"))?;
        for upstream in to.into_iter().cycle() {
            let (client, _) = listener.accept().await?;
            tokio::spawn(copy(client, upstream));
        }
        Ok(())
    })
}

async fn copy(mut client: TcpStream, upstream: SocketAddr) -> std::io::Result<()> {
    let mut engine = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    engine.set_nodelay(true)?;
    tokio::io::copy_bidirectional_with_sizes(&mut client, &mut engine, BUFFER, BUFFER).await?;
    Ok(())
}
