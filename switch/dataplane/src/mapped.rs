//! An array map that user space reads as memory, without a system call for each element.

use crate::dataplane::Dataplane;
use crate::error::{Error, Result};
use libbpf_rs::MapCore;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of an element.
const WORD_BYTES: usize = size_of::<u64>();

/// The elements of an array map made with BPF_F_MMAPABLE, each of eight bytes. The kernel keeps the
/// map as long as this lives.
pub struct MappedWords {
    at: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is only read, as atomic words, and stays mapped as long as the value lives.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    fn map(map: &impl AsFd, words: usize) -> io::Result<MappedWords> {
        // SAFETY: a new shared mapping at a place that the kernel chooses, which the value owns.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * WORD_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(MappedWords { at, words })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// An element as it is now; 0 behind the end.
    pub fn get(&self, index: usize) -> u64 {
        if index >= self.words {
            return 0;
        }
        // SAFETY: the index is below the length of the mapping, whose start lies at a page; the
        // mapping lives as long as `self`.
        unsafe { self.at.add(index).as_ref() }.load(Ordering::Relaxed)
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, of the length that it was made with.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * WORD_BYTES) };
    }
}

impl Dataplane {
    /// Maps an array of the runtime whose elements have eight bytes.
    ///
    /// # Errors
    /// There is no such map, its elements have another size, or the kernel refuses.
    pub fn map_words(&self, map: &str) -> Result<MappedWords> {
        let handle = self
            .map(map)
            .ok_or_else(|| Error::NoMap { map: map.to_owned(), owner: "runtime".to_owned() })?;
        if handle.value_size() as usize != WORD_BYTES {
            let wrong = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::kernel(format!("map {map} into memory"), wrong));
        }
        MappedWords::map(handle, handle.max_entries() as usize)
            .map_err(|error| Error::kernel(format!("map {map} into memory"), error))
    }
}
