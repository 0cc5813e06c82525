//! Writes the malformed requests that the tests know into a folder, a file each: `seeds FOLDER`.

use std::path::Path;

#[allow(dead_code)]
#[path = "../e2e/malformed/table.rs"]
mod table;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).expect("a folder");
    let cases = [
        table::framing(),
        table::chunks(),
        table::heads(),
        table::meanings(),
    ]
    .concat();
    for (number, (_, wire, _)) in cases.iter().enumerate() {
        std::fs::write(Path::new(&folder).join(format!("malformed-{number}")), wire)?;
    }
    Ok(())
}
