//! Body bytes on their way to the client, cut from a block a thread: a piece of a few events allocates nothing.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// A block. It is used again once the pieces cut from it are gone; for HTTP/1.1 clients that is at once.
const BLOCK_BYTES: usize = 16 * 1024;
/// The largest piece cut from a block. A piece keeps its whole block alive, so a larger one gets its own memory.
const PIECE_BYTES_MAX: usize = 4 * 1024;

thread_local! {
    static BLOCK: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// What `fill` appends, at most `most` bytes, as a piece; and what `fill` gives.
pub fn cut<T>(most: usize, fill: impl FnOnce(&mut BytesMut) -> T) -> (Bytes, T) {
    if most > PIECE_BYTES_MAX {
        let mut own = BytesMut::with_capacity(most);
        let given = fill(&mut own);
        return (own.freeze(), given);
    }
    BLOCK.with_borrow_mut(|block| {
        if block.capacity() < most {
            block.reserve(BLOCK_BYTES);
        }
        let given = fill(block);
        (block.split().freeze(), given)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(data: &[u8]) -> Bytes {
        cut(data.len(), |into| into.extend_from_slice(data)).0
    }

    #[test]
    fn pieces_hold_what_was_put_in_while_others_are_cut() {
        let data = |n: usize| vec![(n % 251) as u8; 1 + n * 37 % 5000];
        let held: Vec<Bytes> = (0..500).map(|n| piece(&data(n))).collect();
        for (n, piece) in held.iter().enumerate() {
            assert_eq!(piece, &data(n));
        }
    }

    #[test]
    fn a_block_is_used_again_once_its_pieces_are_gone() {
        drop(piece(&[0; 300]));
        let block = BLOCK.with_borrow(|block| block.as_ptr() as usize + block.capacity());
        for _ in 0..1000 {
            let piece = piece(&[1; 300]);
            let within = block - BLOCK_BYTES..block;
            assert!(within.contains(&(piece.as_ptr() as usize)));
        }
    }
}
