//! A short byte string: keys and values, most of which fit in place.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

const INLINE_BYTES: usize = 22;

/// Up to 22 bytes in place, longer ones on the heap: 24 bytes a key instead of 24 and an
/// allocation.
#[derive(Clone)]
pub enum Blob {
    /// Length and bytes.
    Inline(u8, [u8; INLINE_BYTES]),
    /// Longer than fits in place.
    Heap(Box<[u8]>),
}

impl Blob {
    /// Copies `bytes`.
    pub fn new(bytes: &[u8]) -> Blob {
        let mut inline = [0; INLINE_BYTES];
        match inline.get_mut(..bytes.len()) {
            Some(front) => {
                front.copy_from_slice(bytes);
                Blob::Inline(bytes.len() as u8, inline) // at most INLINE_BYTES
            }
            None => Blob::Heap(bytes.into()),
        }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Blob::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Blob::Heap(bytes) => bytes,
        }
    }

    /// Replaces the bytes, in place where the length allows it.
    pub fn set(&mut self, bytes: &[u8]) {
        match self {
            Blob::Heap(own) if own.len() == bytes.len() => own.copy_from_slice(bytes),
            _ => *self = Blob::new(bytes),
        }
    }
}

impl Borrow<[u8]> for Blob {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

// As `Borrow` demands, hash and equality are the slice's.
impl Hash for Blob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Blob) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Blob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_come_back() {
        for length in [0, 1, 13, 22, 23, 64] {
            let bytes: Vec<u8> = (0..length).collect();
            let mut blob = Blob::new(&bytes);
            assert_eq!(blob.as_slice(), bytes);
            blob.set(b"short");
            assert_eq!(blob.as_slice(), b"short");
            blob.set(&bytes);
            assert_eq!(blob.as_slice(), bytes);
        }
        assert_eq!(std::mem::size_of::<Blob>(), 24);
    }
}
