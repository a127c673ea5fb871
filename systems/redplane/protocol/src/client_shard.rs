//! The shard of a conversation's keys: `systems/redplane/docs/state-protocol.md`, "BACKENDS".
//! Switches compute the same in C.

use crate::MAX_KEY_BYTES;
use wire::shard_of;

/// The shard of a BACKENDS object's `key`, { client 4, server 4, client port 2, server port 2,
/// protocol 1 }: only the client decides. The two keys of a conversation name one client and two
/// servers, the virtual address and the backend. So both are in one shard, whichever backend it is.
pub fn client_shard_of(key: &[u8], shards: u16) -> u16 {
    let mut client = [0; MAX_KEY_BYTES];
    let bytes = key.len().min(MAX_KEY_BYTES);
    client[..bytes].copy_from_slice(&key[..bytes]);
    client[4..8].fill(0);
    client[10..12].fill(0);
    shard_of(&client[..bytes], shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_has_no_say_in_the_shard_of_a_client() {
        let key = [198, 51, 100, 10, 203, 0, 113, 10, 156, 64, 0, 80, 6];
        let client = [198, 51, 100, 10, 0, 0, 0, 0, 156, 64, 0, 0, 6];
        assert_eq!(client_shard_of(&key, 256), shard_of(&client, 256));
        for (at, byte) in key.iter().enumerate() {
            let mut other = key;
            other[at] = !byte;
            let of_server = (4..8).contains(&at) || (10..12).contains(&at);
            assert_eq!(
                client_shard_of(&other, 256) == client_shard_of(&key, 256),
                of_server,
                "byte {at}"
            );
        }
        assert_eq!(client_shard_of(&key[..2], 256), shard_of(&key[..2], 256));
    }
}
