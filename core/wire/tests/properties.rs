//! Whatever the bytes are: a signed message verifies until it is changed, and decoding never
//! panics. Failing cases print themselves and replay.

use proptest::collection::vec;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use wire::{ChainHeader, Control, KeyRing, SECRET_BYTES, Secret, kind, shard_of, status_reply};

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300), number in any::<u8>(), framed in any::<bool>()) {
        if framed && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[0x53, 0x50, 2, number]);
        }
        let _ = (kind(&bytes), ChainHeader::decode(&bytes), Control::decode(&bytes), status_reply(&bytes, b"{}"));
    }

    #[test]
    fn what_is_signed_verifies_and_what_is_changed_does_not(
        secret in any::<[u8; SECRET_BYTES]>(),
        id in 0..4u8,
        mut bytes in vec(any::<u8>(), 64..300),
        addresses in any::<(u32, u32)>(),
        change in any::<(usize, u8)>(),
    ) {
        let (source, destination) = (Ipv4Addr::from_bits(addresses.0), Ipv4Addr::from_bits(addresses.1));
        bytes[..2].copy_from_slice(b"SP");
        let ring = KeyRing::new(id, Secret(secret)).unwrap();
        prop_assert!(ring.sign(&mut bytes, source, destination));
        prop_assert_eq!(ring.verify(&bytes, source, destination), Ok(()));
        let at = change.0 % bytes.len();
        bytes[at] ^= change.1.max(1);
        prop_assert!(ring.verify(&bytes, source, destination).is_err());
    }

    #[test]
    fn shards_are_in_range(key in vec(any::<u8>(), 1..=64), shards in 1..=256u16) {
        prop_assert!(shard_of(&key, shards) < shards);
    }
}
