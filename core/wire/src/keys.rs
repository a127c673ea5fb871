//! Tags: who signs with which secret, and what is genuine. `state-protocol.md`, "Tags".

use crate::siphash::SipHash;
use crate::{BatchType, DIGEST_BYTES, HEADER_BYTES, MAGIC};
use siphasher::sip::SipHasher24;
use std::fmt;
use std::net::Ipv4Addr;
use thiserror::Error;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;
/// How many secrets a machine can know at once; they are numbered from 0.
pub const MOST_SECRETS: usize = 4;
const TYPE_AT: usize = 3;
const KEY_ID_AT: usize = 54;
const BODY_KEY_ID_AT: usize = 55;
const TAG_AT: usize = 56;
const TAG_BYTES: usize = 8;

/// A shared secret. It is never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_BYTES]);

impl Secret {
    /// As SipHash takes it: two little-endian words.
    pub fn words(&self) -> [u64; 2] {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| self.0[at + byte]));
        [word(0), word(SECRET_BYTES / 2)]
    }

    /// The secret with these [`Secret::words`].
    pub fn from_words([low, high]: [u64; 2]) -> Secret {
        Secret((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
    }

    /// A number that tells secrets apart and gives nothing away about them: SipHash of a fixed text
    /// under the secret.
    pub fn fingerprint(&self) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(b"stateplane secret fingerprint")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:016x})", self.fingerprint())
    }
}

/// Why a datagram is not taken for genuine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotGenuine {
    /// Too short to have a tag, or no message of this protocol at all.
    #[error("not a message of this protocol")]
    NoTag,
    /// The secret that it names is unknown here.
    #[error("signed with secret number {0}, which is unknown here")]
    UnknownSecret(u8),
    /// Its tag is not what the secret makes of it.
    #[error("wrong tag")]
    WrongTag,
}

/// The secrets that a machine accepts, and the one that it sends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRing {
    secrets: [Option<Secret>; MOST_SECRETS],
    send: u8,
}

impl KeyRing {
    /// A ring with one secret, which it sends with. `None`: `id` is above 3.
    pub fn new(id: u8, secret: Secret) -> Option<KeyRing> {
        let mut ring = KeyRing { secrets: [None; MOST_SECRETS], send: id };
        ring.accept(id, secret).then_some(ring)
    }

    /// Also accepts `secret`, in the place of what had that number. `false`: `id` is above 3, and
    /// nothing changed.
    #[must_use]
    pub fn accept(&mut self, id: u8, secret: Secret) -> bool {
        match self.secrets.get_mut(usize::from(id)) {
            Some(place) => {
                *place = Some(secret);
                true
            }
            None => false,
        }
    }

    /// Sends with the secret `id` from now on. `false`: it is unknown, and nothing changed.
    #[must_use]
    pub fn send_with(&mut self, id: u8) -> bool {
        let known = self.secret(id).is_some();
        if known {
            self.send = id;
        }
        known
    }

    /// The number of the secret that it sends with.
    pub fn sending(&self) -> u8 {
        self.send
    }

    /// The secret with that number.
    pub fn secret(&self, id: u8) -> Option<&Secret> {
        self.secrets.get(usize::from(id))?.as_ref()
    }

    /// Writes `key_id` and the tag into a whole encoded message, and the digest of the records into
    /// a batch. `false`: it is shorter than a header (a batch: than header and digest), and nothing
    /// changed.
    pub fn sign(&self, datagram: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        let Some(secret) = self.secret(self.send).filter(|_| datagram.len() >= HEADER_BYTES) else {
            return false;
        };
        let Some((signed, records)) = split_body(datagram) else { return false };
        if let Some(records) = records {
            let digest = digest(secret, records).to_be_bytes();
            datagram[BODY_KEY_ID_AT] = self.send;
            datagram[HEADER_BYTES..signed].copy_from_slice(&digest);
        }
        datagram[KEY_ID_AT] = self.send;
        let tag = tag(secret, &datagram[..signed], source, destination).to_be_bytes();
        datagram[TAG_AT..TAG_AT + TAG_BYTES].copy_from_slice(&tag);
        true
    }

    /// Whether a datagram that came from `source` to `destination` is genuine.
    pub fn verify(
        &self,
        datagram: &[u8],
        source: Ipv4Addr,
        destination: Ipv4Addr,
    ) -> Result<(), NotGenuine> {
        if datagram.len() < HEADER_BYTES || datagram[..2] != MAGIC.to_be_bytes() {
            return Err(NotGenuine::NoTag);
        }
        let known = |id: u8| self.secret(id).ok_or(NotGenuine::UnknownSecret(id));
        let secret = known(datagram[KEY_ID_AT])?;
        let (signed, records) = split_body(datagram).ok_or(NotGenuine::NoTag)?;
        let tag = tag(secret, &datagram[..signed], source, destination).to_be_bytes();
        if datagram[TAG_AT..TAG_AT + TAG_BYTES] != tag {
            return Err(NotGenuine::WrongTag);
        }
        // Last: a forged batch costs one hash of 80 bytes.
        let Some(records) = records else { return Ok(()) };
        let digest = digest(known(datagram[BODY_KEY_ID_AT])?, records).to_be_bytes();
        if datagram[HEADER_BYTES..signed] == digest { Ok(()) } else { Err(NotGenuine::WrongTag) }
    }
}

/// The tag that stands in a message; 0 for what is too short to have one.
pub fn tag_of(datagram: &[u8]) -> u64 {
    let tag = datagram.get(TAG_AT..TAG_AT + TAG_BYTES).and_then(|bytes| bytes.try_into().ok());
    tag.map_or(0, u64::from_be_bytes)
}

/// How many bytes of a datagram the tag covers; and a batch's records, which its digest covers.
/// The datagram is at least a header long. `None`: a batch without a digest.
fn split_body(datagram: &[u8]) -> Option<(usize, Option<&[u8]>)> {
    if datagram[TYPE_AT] != BatchType::Batch as u8 {
        return Some((datagram.len(), None));
    }
    let signed = HEADER_BYTES + DIGEST_BYTES;
    Some((signed, Some(datagram.get(signed..)?)))
}

/// SipHash-2-4 of a batch's records. No address and no header is in it: it stays as it is from hop
/// to hop.
fn digest(secret: &Secret, records: &[u8]) -> u64 {
    let mut hash = SipHash::new(secret);
    let tail = hash.words(records);
    hash.finish(tail, records.len())
}

/// The tag of a datagram that is at least a header long: SipHash of its addresses and all of it,
/// its tag taken as zero.
fn tag(secret: &Secret, datagram: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> u64 {
    let addresses = u64::from(source.to_bits().swap_bytes())
        | u64::from(destination.to_bits().swap_bytes()) << 32;
    tag_of_words(secret, Some(addresses), datagram, TAG_AT)
}

/// SipHash-2-4 under a secret of a word in little-endian order, if there is one, and a datagram
/// behind it, with the eight bytes at `tag_at` taken as zero. `tag_at` is a multiple of eight and
/// lies in the datagram. It is hashed word by word: several times as fast as by a hasher that takes
/// bytes as they come, and tags are most of what a server does.
///
/// # Panics
/// The datagram is shorter than `tag_at`.
pub fn tag_of_words(secret: &Secret, before: Option<u64>, datagram: &[u8], tag_at: usize) -> u64 {
    let (front, rest) = datagram.split_at(tag_at);
    let mut hash = SipHash::new(secret);
    if let Some(word) = before {
        hash.word(word);
    }
    hash.words(front);
    hash.word(0);
    let tail = hash.words(rest.get(TAG_BYTES..).unwrap_or_default());
    hash.finish(tail, datagram.len() + if before.is_some() { 8 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    const KEY: Secret = Secret([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

    /// Any message, with ten bytes after the header.
    fn datagram() -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..HEADER_BYTES as u8 + 10).collect();
        bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes
    }

    /// Aumasson and Bernstein, "SipHash: a fast short-input PRF", appendix A; and the first vectors
    /// of their reference code.
    #[test]
    fn the_hash_is_the_papers() {
        let input: Vec<u8> = (0..15).collect();
        let hash = |length: usize| SipHasher24::new_with_key(&KEY.0).hash(&input[..length]);
        assert_eq!(hash(15), 0xa129_ca61_49be_45e5);
        assert_eq!(hash(0).to_le_bytes(), [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]);
        assert_eq!(hash(1).to_le_bytes(), [0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74]);
        assert_eq!(hash(8).to_le_bytes(), [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]);
    }

    /// The tag as the document describes it, by the other implementation, for all lengths of the
    /// last word.
    #[test]
    fn the_tag_is_that_of_the_bytes_in_a_row() {
        for length in HEADER_BYTES..HEADER_BYTES + 40 {
            let datagram: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
            let mut row = SOURCE.octets().to_vec();
            row.extend_from_slice(&DESTINATION.octets());
            row.extend_from_slice(&datagram);
            row[8 + TAG_AT..8 + TAG_AT + TAG_BYTES].fill(0);
            assert_eq!(
                tag(&KEY, &datagram, SOURCE, DESTINATION),
                SipHasher24::new_with_key(&KEY.0).hash(&row),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn every_changed_bit_and_address_shows() {
        let mut bytes = datagram();
        let ring = KeyRing::new(0, KEY).unwrap();
        assert!(ring.sign(&mut bytes, SOURCE, DESTINATION));
        assert_eq!(ring.verify(&bytes, SOURCE, DESTINATION), Ok(()));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ring.verify(&bytes, SOURCE, DESTINATION).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(ring.verify(&bytes, DESTINATION, DESTINATION), Err(NotGenuine::WrongTag));
        assert_eq!(ring.verify(&bytes, SOURCE, SOURCE), Err(NotGenuine::WrongTag));
        assert_eq!(ring.verify(&bytes[..63], SOURCE, DESTINATION), Err(NotGenuine::NoTag));
        assert_eq!(ring.verify(&bytes[..70], SOURCE, DESTINATION), Err(NotGenuine::WrongTag));
        assert!(!ring.sign(&mut bytes[..63], SOURCE, DESTINATION));
    }

    #[test]
    fn secrets_rotate_without_a_gap() {
        let new = Secret([7; SECRET_BYTES]);
        let (mut one, mut two) = (KeyRing::new(0, KEY).unwrap(), KeyRing::new(0, KEY).unwrap());
        let passes = |from: &KeyRing, to: &KeyRing| {
            let mut bytes = datagram();
            assert!(from.sign(&mut bytes, SOURCE, DESTINATION));
            to.verify(&bytes, SOURCE, DESTINATION)
        };
        assert!(!one.send_with(1), "not known yet");
        assert!(one.accept(1, new) && !one.accept(4, new));
        assert_eq!((passes(&one, &two), passes(&two, &one)), (Ok(()), Ok(())));
        assert!(two.accept(1, new) && one.send_with(1));
        assert_eq!((passes(&one, &two), passes(&two, &one)), (Ok(()), Ok(())));
        assert_eq!(passes(&one, &KeyRing::new(0, KEY).unwrap()), Err(NotGenuine::UnknownSecret(1)));
        assert_eq!(passes(&one, &KeyRing::new(1, KEY).unwrap()), Err(NotGenuine::WrongTag));
        assert!(KeyRing::new(4, KEY).is_none());
    }

    #[test]
    fn secrets_are_not_printed() {
        let text = format!("{:?}", KeyRing::new(0, Secret([0xab; 16])).unwrap());
        assert!(!text.contains("171") && !text.contains("abab"), "{text}");
    }
}
