//! An array map as memory of this process.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The values of an array map made with BPF_F_MMAPABLE. The kernel keeps the map as long as this
/// lives.
pub(crate) struct Mapping {
    at: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is only accessed as atomic words, and stays mapped as long as the value lives.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `words` words of a map, which has no fewer.
    pub(crate) fn new(map: &impl AsFd, words: usize) -> io::Result<Mapping> {
        // SAFETY: a new shared mapping at a place that the kernel chooses, which the value owns.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * size_of::<u64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping { at, words })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, begins at a page, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, of the length that it was made with.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}
