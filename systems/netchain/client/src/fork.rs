//! Whether this process is a child of the one that made a client.
//!
//! A page that the kernel wipes in the child of a fork (madvise(2), MADV_WIPEONFORK) tells it
//! without a system call, whatever made the child.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Of the process: never 0 once it was asked for.
static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();

/// The page. None: the kernel has no such pages (Linux before 4.14).
fn page() -> Option<&'static AtomicU32> {
    const BYTES: usize = 4096;
    // SAFETY: a new private mapping is asked for, at no given place; nothing else is touched.
    let page = unsafe {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), BYTES, access, kind, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping was made above, has this length, and nobody else knows it.
    if unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    // SAFETY: the mapping is aligned to a page, zeroed, and never unmapped; an AtomicU32 may be
    // zero, and all access is through it.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

/// A number of this process: another one than its parent's.
pub(crate) fn process() -> u32 {
    let own = std::process::id;
    let Some(page) = PAGE.get_or_init(page) else { return own() };
    let known = page.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    page.store(own(), Ordering::Relaxed); // (all threads would store the same)
    own()
}
