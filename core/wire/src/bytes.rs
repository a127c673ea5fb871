//! Big-endian reading and writing over byte slices.

use crate::EncodeError;

/// Takes big-endian integers and runs of bytes off the front of a slice; `None` when too little is
/// left.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Begins at the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// The next two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// How many bytes are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

/// Puts big-endian integers and runs of bytes into a slice, front to back.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Begins at the front of `buffer`.
    #[inline]
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Writer { buffer, at: 0 }
    }

    /// All of `bytes`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let end = self.at + bytes.len();
        self.buffer
            .get_mut(self.at..end)
            .ok_or(EncodeError::BufferTooSmall)?
            .copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self, value: u8) -> Result<(), EncodeError> {
        self.put(&[value])
    }

    /// Two bytes.
    #[inline]
    pub fn u16(&mut self, value: u16) -> Result<(), EncodeError> {
        self.put(&value.to_be_bytes())
    }

    /// Four bytes.
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<(), EncodeError> {
        self.put(&value.to_be_bytes())
    }

    /// Eight bytes.
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<(), EncodeError> {
        self.put(&value.to_be_bytes())
    }

    /// How many bytes were put.
    #[inline]
    pub fn written(&self) -> usize {
        self.at
    }
}
