//! An array map that user space has in its memory, without a system call for each element.

use crate::dataplane::Dataplane;
use crate::error::{Error, Result};
use libbpf_rs::MapCore;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// The elements of an array map made with BPF_F_MMAPABLE, as words of eight bytes. The kernel keeps
/// the map as long as this lives.
pub struct MappedWords {
    at: NonNull<AtomicU64>,
    words: usize,
    writable: bool,
}

// SAFETY: the memory is read and written as atomic words, and stays mapped as long as the value
// lives.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    fn map(map: &impl AsFd, words: usize, writable: bool) -> io::Result<MappedWords> {
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new shared mapping at a place that the kernel chooses, which the value owns.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * WORD_BYTES,
                access,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(MappedWords { at, words, writable })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// A word as it is now; 0 behind the end.
    pub fn get(&self, index: usize) -> u64 {
        if index >= self.words {
            return 0;
        }
        // SAFETY: the index is below the length of the mapping, whose start lies at a page; the
        // mapping lives as long as `self`.
        unsafe { self.at.add(index).as_ref() }.load(Ordering::Relaxed)
    }

    /// Changes a word, after all that this thread wrote before; behind the end it does nothing.
    ///
    /// # Panics
    /// This was mapped to be read only.
    pub fn set(&self, index: usize, value: u64) {
        assert!(self.writable, "the map is mapped to be read only");
        if index < self.words {
            // SAFETY: as in `get`; the mapping may be written.
            unsafe { self.at.add(index).as_ref() }.store(value, Ordering::Release);
        }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, of the length that it was made with.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * WORD_BYTES) };
    }
}

impl Dataplane {
    /// Maps an array of the runtime, to be read. Each element begins with a new word.
    ///
    /// # Errors
    /// There is no such map, or the kernel refuses.
    pub fn map_words(&self, map: &str) -> Result<MappedWords> {
        self.map_array(map, false)
    }

    /// The same, to be read and written.
    ///
    /// # Errors
    /// As `map_words`.
    pub fn map_words_writable(&self, map: &str) -> Result<MappedWords> {
        self.map_array(map, true)
    }

    fn map_array(&self, map: &str, writable: bool) -> Result<MappedWords> {
        let handle = self
            .map(map)
            .ok_or_else(|| Error::NoMap { map: map.to_owned(), owner: "runtime".to_owned() })?;
        let words =
            handle.max_entries() as usize * (handle.value_size() as usize).div_ceil(WORD_BYTES);
        MappedWords::map(handle, words, writable)
            .map_err(|error| Error::kernel(format!("map {map} into memory"), error))
    }
}
