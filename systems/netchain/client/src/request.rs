//! What a client asks for.

use netchain_protocol::{Key, Operation};
use std::time::Duration;

/// A request that has not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub operation: Operation,
    /// Of this key.
    pub key: Key,
    /// For the operations that write one.
    pub value: Option<Vec<u8>>,
    /// The version or owner to compare with, or what to add.
    pub operand: u64,
    /// Of a listing: the group. None: the key's.
    pub group: Option<u16>,
    /// After so long its outcome is unknown. None: as the configuration says.
    pub deadline: Option<Duration>,
}

impl Request {
    fn new(operation: Operation, key: &Key, value: Option<&[u8]>, operand: u64) -> Request {
        let value = value.map(<[u8]>::to_vec);
        Request { operation, key: *key, value, operand, group: None, deadline: None }
    }

    /// The key's value.
    pub fn get(key: &Key) -> Request {
        Request::new(Operation::Read, key, None, 0)
    }

    /// Writes a value.
    pub fn put(key: &Key, value: &[u8]) -> Request {
        Request::new(Operation::Put, key, Some(value), 0)
    }

    /// Writes a value if the key has none.
    pub fn insert(key: &Key, value: &[u8]) -> Request {
        Request::new(Operation::Insert, key, Some(value), 0)
    }

    /// Writes a value if the key's version is this one. (0: it was never written.)
    pub fn compare_and_set(key: &Key, version: u64, value: &[u8]) -> Request {
        Request::new(Operation::CompareVersion, key, Some(value), version)
    }

    /// Writes a value if the first eight bytes of the present one are these.
    pub fn compare_owner(key: &Key, owner: [u8; 8], value: &[u8]) -> Request {
        Request::new(Operation::CompareOwner, key, Some(value), u64::from_be_bytes(owner))
    }

    /// Adds to the number that the value's first eight bytes are, modulo 2^64.
    pub fn add(key: &Key, delta: u64) -> Request {
        Request::new(Operation::Add, key, None, delta)
    }

    /// Removes the value, if the key's version is this one; 0: in any case.
    pub fn delete(key: &Key, version: u64) -> Request {
        Request::new(Operation::Delete, key, None, version)
    }

    /// The next keys of a group, from a cursor on (at first 0): those that have the bits of `key`
    /// that `mask` names. [`crate::Listing`] makes such requests.
    pub fn list(group: u16, key: &Key, mask: &[u8; 16], cursor: u32) -> Request {
        let request = Request::new(Operation::List, key, Some(mask), cursor.into());
        Request { group: Some(group), ..request }
    }

    /// With a deadline of its own, of at most 30 s: switches forget who is silent for 60 s.
    pub fn within(self, deadline: Duration) -> Request {
        Request { deadline: Some(deadline), ..self }
    }
}
