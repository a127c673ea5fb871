//! The bytes of a log's files: a header, then batches. Pure functions on bytes.
//!
//! A file begins with 48 bytes: `SPWAL 1\n`, incarnation (8), digest of the configuration (4),
//! shards (2), 0 (2), number of the first batch (8), 0 (8), check (8). A batch is: `SPWB` (4),
//! length of its items (4), number (8), check (8), items. A check is SipHash-1-3 without a key of
//! what is before it and, in a batch, of the items; it finds accidents, not forgers.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Bytes of a file's header.
pub const FILE_HEADER_BYTES: usize = 48;
/// Bytes of a batch's header.
pub const BATCH_HEADER_BYTES: usize = 24;
const FILE_MAGIC: &[u8; 8] = b"SPWAL 1\n";
const BATCH_MAGIC: &[u8; 4] = b"SPWB";

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Who writes.
    pub incarnation: u64,
    /// Of `Settings::digest`.
    pub config_digest: u32,
    /// Shards of the cluster.
    pub shards: u16,
    /// The number of the file's first batch; batches are numbered through all files.
    pub first_batch: u64,
}

fn check(parts: [&[u8]; 2]) -> u64 {
    let mut hasher = SipHasher13::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl FileHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..8].copy_from_slice(FILE_MAGIC);
        bytes[8..16].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.config_digest.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.shards.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.first_batch.to_be_bytes());
        let check = check([&bytes[..40], &[]]);
        bytes[40..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// `None`: not a log's header, or not whole.
    pub fn decode(bytes: &[u8]) -> Option<FileHeader> {
        let bytes = bytes.get(..FILE_HEADER_BYTES)?;
        if bytes[..8] != *FILE_MAGIC || number(bytes, 40)? != check([&bytes[..40], &[]]) {
            return None;
        }
        Some(FileHeader {
            incarnation: number(bytes, 8)?,
            config_digest: u32::from_be_bytes(bytes[16..20].try_into().ok()?),
            shards: u16::from_be_bytes(bytes[20..22].try_into().ok()?),
            first_batch: number(bytes, 24)?,
        })
    }
}

/// The header of a batch of `items`.
pub fn batch_header(batch: u64, items: &[u8]) -> [u8; BATCH_HEADER_BYTES] {
    let mut bytes = [0; BATCH_HEADER_BYTES];
    bytes[..4].copy_from_slice(BATCH_MAGIC);
    // The writer keeps batches below 1 GiB.
    bytes[4..8].copy_from_slice(&(items.len() as u32).to_be_bytes());
    bytes[8..16].copy_from_slice(&batch.to_be_bytes());
    let check = check([&bytes[..16], items]);
    bytes[16..].copy_from_slice(&check.to_be_bytes());
    bytes
}

/// The batch at the front of `bytes`: its number and items. `None`: there is no whole one.
fn batch_at(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let header = bytes.get(..BATCH_HEADER_BYTES)?;
    if header[..4] != *BATCH_MAGIC {
        return None;
    }
    let length = usize::try_from(u32::from_be_bytes(header[4..8].try_into().ok()?)).ok()?;
    let items = bytes[BATCH_HEADER_BYTES..].get(..length)?;
    (number(header, 16)? == check([&header[..16], items])).then_some((number(header, 8)?, items))
}

/// What is behind the last good batch of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing.
    Clean,
    /// Bytes from this offset on that are no whole batch, and none follows: what was being written
    /// when power was lost.
    Torn(usize),
    /// A batch at this offset is damaged or missing, and good ones follow.
    Corrupt(usize),
}

/// Gives `take` the items of each batch after a file's header, with the batch's number and offset;
/// the first is to have the number `next`, which is counted on.
pub fn read_batches<E>(
    file: &[u8],
    next: &mut u64,
    mut take: impl FnMut(usize, &[u8]) -> Result<(), E>,
) -> Result<End, E> {
    let mut at = FILE_HEADER_BYTES;
    while at < file.len() {
        match batch_at(&file[at..]) {
            Some((batch, items)) if batch == *next => {
                take(at, items)?;
                at += BATCH_HEADER_BYTES + items.len();
                *next += 1;
            }
            _ => {
                return Ok(if later_batch(&file[at..], *next) {
                    End::Corrupt(at)
                } else {
                    End::Torn(at)
                });
            }
        }
    }
    Ok(End::Clean)
}

/// Whether a good batch with a higher number is anywhere in `bytes`. A batch is durable before the
/// next is written, so then this is no torn end.
fn later_batch(bytes: &[u8], next: u64) -> bool {
    let candidates = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(BATCH_MAGIC));
    candidates.filter_map(|at| batch_at(&bytes[at..])).any(|(batch, _)| batch > next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: [&[u8]; 3] = [b"one", b"", b"three"];

    fn file() -> Vec<u8> {
        let header = FileHeader { incarnation: 7, config_digest: 8, shards: 9, first_batch: 10 };
        let mut bytes = header.encode().to_vec();
        assert_eq!(FileHeader::decode(&bytes), Some(header));
        for (batch, items) in (10..).zip(ITEMS) {
            bytes.extend_from_slice(&batch_header(batch, items));
            bytes.extend_from_slice(items);
        }
        bytes
    }

    /// How many batches are read, and what is behind them.
    fn read(file: &[u8]) -> (usize, End) {
        let (mut found, mut next) = (vec![], 10);
        let end = read_batches(file, &mut next, |_, items| {
            found.push(items.to_vec());
            Ok::<(), ()>(())
        });
        assert_eq!(found, ITEMS[..found.len()]);
        assert_eq!(next, 10 + found.len() as u64);
        (found.len(), end.unwrap())
    }

    /// Where batches begin, and where the last ends.
    fn bounds() -> Vec<usize> {
        let mut at = FILE_HEADER_BYTES;
        let ends = ITEMS.map(|items| {
            at += BATCH_HEADER_BYTES + items.len();
            at
        });
        [FILE_HEADER_BYTES].into_iter().chain(ends).collect()
    }

    #[test]
    fn a_file_that_ends_anywhere_is_read_up_to_its_last_whole_batch() {
        let (file, bounds) = (file(), bounds());
        for length in FILE_HEADER_BYTES..=file.len() {
            let whole = bounds.iter().rposition(|bound| *bound <= length).unwrap();
            let end = if bounds[whole] == length { End::Clean } else { End::Torn(bounds[whole]) };
            assert_eq!(read(&file[..length]), (whole, end), "{length} bytes");
        }
    }

    #[test]
    fn damage_before_a_good_batch_is_no_torn_end() {
        let (file, bounds) = (file(), bounds());
        for at in FILE_HEADER_BYTES..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            let batch = bounds.iter().rposition(|bound| *bound <= at).unwrap();
            let last = batch + 1 == ITEMS.len();
            let end = if last { End::Torn(bounds[batch]) } else { End::Corrupt(bounds[batch]) };
            assert_eq!(read(&damaged), (batch, end), "byte {at}");
        }
        for at in 0..FILE_HEADER_BYTES {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(FileHeader::decode(&damaged), None, "byte {at}");
        }
    }
}
