//! Tags of messages (systems/netchain/docs/design.md, "Tags").

use std::net::Ipv4Addr;
use wire::{Secret, tag_of_words};

/// Where the number of the client's key stands in a message.
const KEY_ID_AT: usize = 6;
/// Where the tag stands.
const TAG_AT: usize = 8;
const TAG_BYTES: usize = 8;

/// Keys that a switch can know. They are numbered from 1 on.
pub const KEYS_MAX: u16 = 1024;

/// The tag of a client's message, or of a reply to it. 0: it is too short to have one.
pub fn client_tag(secret: &Secret, message: &[u8]) -> u64 {
    if message.len() < TAG_AT + TAG_BYTES { 0 } else { tag_of_words(secret, None, message, TAG_AT) }
}

/// The tag of a member's message to another one. It covers the packet's addresses before the
/// message, so that a recorded one is no use at another member. 0: it is too short to have one.
pub fn member_tag(secret: &Secret, message: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> u64 {
    if message.len() < TAG_AT + TAG_BYTES {
        return 0;
    }
    let [source, destination] =
        [source, destination].map(|address| u64::from(address.to_bits().swap_bytes()));
    tag_of_words(secret, Some(source | destination << 32), message, TAG_AT)
}

/// The tag that stands in a message. 0: none.
pub fn tag_in(message: &[u8]) -> u64 {
    let bytes = message.get(TAG_AT..TAG_AT + TAG_BYTES).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

/// Writes a tag into a message that has room for one.
pub fn put_tag(message: &mut [u8], tag: u64) {
    if let Some(place) = message.get_mut(TAG_AT..TAG_AT + TAG_BYTES) {
        place.copy_from_slice(&tag.to_be_bytes());
    }
}

/// A client's key, as its identity file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientKey {
    /// 1 to [`KEYS_MAX`].
    pub id: u16,
    /// What tags are made with.
    pub secret: Secret,
}

impl ClientKey {
    /// Gives a whole encoded message the key's number and its tag.
    pub fn sign(&self, message: &mut [u8]) {
        if let Some(place) = message.get_mut(KEY_ID_AT..KEY_ID_AT + 2) {
            place.copy_from_slice(&self.id.to_be_bytes());
        }
        put_tag(message, client_tag(&self.secret, message));
    }

    /// Whether a switch made this reply, for this client.
    pub fn verify(&self, message: &[u8]) -> bool {
        let claimed = tag_in(message);
        message.get(KEY_ID_AT..KEY_ID_AT + 2) == Some(&self.id.to_be_bytes())
            && claimed != 0
            && claimed == client_tag(&self.secret, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ClientKey =
        ClientKey { id: 3, secret: Secret([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]) };

    fn message() -> Vec<u8> {
        (0..172).map(|at| at as u8 ^ 0x5a).collect()
    }

    #[test]
    fn every_changed_bit_shows() {
        let mut bytes = message();
        KEY.sign(&mut bytes);
        assert!(KEY.verify(&bytes));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!KEY.verify(&bytes), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!KEY.verify(&bytes[..168]) && !KEY.verify(&bytes[..15]) && !KEY.verify(&[]));
        let other = ClientKey { id: 3, secret: Secret([7; 16]) };
        assert!(!other.verify(&bytes));
    }

    /// A member's tag is of its packet's addresses alone, and no client's tag under the same
    /// secret.
    #[test]
    fn a_members_tag_is_for_one_member() {
        let [first, second] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
        let tag = |from, to| member_tag(&KEY.secret, &message(), from, to);
        assert_ne!(tag(first, first), tag(first, second));
        assert_ne!(tag(first, second), tag(second, second));
        let none = Ipv4Addr::UNSPECIFIED;
        assert_ne!(tag(none, none), client_tag(&KEY.secret, &message()));
    }
}
