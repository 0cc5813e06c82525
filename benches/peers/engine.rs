//! A null engine: answers every request with paced SSE events and does nothing else.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// How an answer is paced.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// events of output
    pub events: usize,
    /// time to the first event
    pub first: Duration,
    /// time between events; zero writes them as fast as the socket takes them
    pub gap: Duration,
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// Listens on a port of the kernel's choice, on its own thread, until the process ends.
pub fn start(pace: Pace) -> std::io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).expect("listener");
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream, pace));
            }
        });
    });
    Ok(addr)
}

async fn serve(mut stream: TcpStream, pace: Pace) -> Option<()> {
    let event = chunk(&event());
    let done = [chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        read_request(&mut stream, &mut buffer).await?;
        let start = Instant::now();
        stream.write_all(HEAD).await.ok()?;
        for n in 0..pace.events {
            let due = pace.first + pace.gap * u32::try_from(n).ok()?;
            if !due.is_zero() {
                tokio::time::sleep_until(start + due).await;
            }
            stream.write_all(&event).await.ok()?;
        }
        stream.write_all(&done).await.ok()?;
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<()> {
    let mut filled = 0;
    loop {
        filled += stream
            .read(&mut buffer[filled..])
            .await
            .ok()
            .filter(|n| *n > 0)?;
        let seen = &buffer[..filled];
        let Some(head_end) = seen.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&seen[..head_end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| {
            line.strip_prefix("content-length:")?
                .trim()
                .parse::<usize>()
                .ok()
        });
        if filled >= head_end + 4 + length.unwrap_or(0) {
            return Some(());
        }
    }
}

/// A vLLM-shaped event of about 250 bytes.
fn event() -> Vec<u8> {
    let text = "abcd";
    let json = format!(
        r#"{{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1796189111,"model":"null-engine-model","choices":[{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":null,"token_ids":null}}]}}"#
    );
    format!("data: {json}\n\n").into_bytes()
}

fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}
