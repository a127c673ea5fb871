//! All entries of a map, many in one system call.

use crate::error::{Error, Result};
use crate::sys;
use libbpf_rs::{MapCore, MapHandle};
use std::io::ErrorKind;
use std::os::fd::AsFd;

/// Entries fetched in one system call.
const BATCH: usize = 4_096;
/// A hash map's bucket is fetched whole; one with more entries than this is no map of ours.
const MOST_BATCH: usize = 1 << 20;

/// Shows `visit` every entry of a hash map, key and value, until it says `false`. Of entries that
/// come or go meanwhile some may be missed or seen twice.
///
/// libbpf-rs' own iterator takes a batch that is not full for the last. The kernel's are seldom
/// full: a bucket that has no room in one comes with the next.
///
/// # Errors
/// The kernel refuses.
pub fn for_each_entry(map: &MapHandle, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
    let (key_size, value_size) = (map.key_size() as usize, map.value_size() as usize);
    let mut batch = BATCH;
    let (mut keys, mut values) = (vec![0; batch * key_size], vec![0; batch * value_size]);
    // Where the kernel goes on: a bucket's number, in a place that is as long as a key.
    let (mut place, mut next) = (None, vec![0; key_size.max(4)]);
    loop {
        let fetched = sys::map_lookup_batch(
            map.as_fd(),
            place.as_deref(),
            &mut next,
            &mut keys,
            &mut values,
            batch,
        );
        let (count, end) = match fetched {
            Ok(fetched) => fetched,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && batch < MOST_BATCH => {
                batch *= 4;
                (keys, values) = (vec![0; batch * key_size], vec![0; batch * value_size]);
                continue;
            }
            Err(error) => {
                return Err(Error::kernel(
                    format!("read map {}", map.name().to_string_lossy()),
                    error,
                ));
            }
        };
        for (key, value) in
            keys.chunks_exact(key_size).zip(values.chunks_exact(value_size)).take(count)
        {
            if !visit(key, value) {
                return Ok(());
            }
        }
        if end {
            return Ok(());
        }
        place = Some(next.clone());
    }
}
