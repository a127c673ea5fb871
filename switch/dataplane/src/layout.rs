//! Keys and values as they lie in maps (see the manifest crate's documentation).

use manifest::{Key, Parameter, Table, TableKind};

use crate::value::{Match, all_ones, prefix_mask};

/// Writes a host-order integer of `bytes` bytes; 16-byte ones included.
pub(crate) fn put(target: &mut [u8], offset: u32, bytes: u32, value: u128) {
    let from = offset as usize;
    let length = (bytes as usize).min(16);
    if let Some(place) = target.get_mut(from..from + length) {
        place.copy_from_slice(&value.to_le_bytes()[..length]);
    }
}

/// Reads what [`put`] wrote.
pub(crate) fn get(source: &[u8], offset: u32, bytes: u32) -> u128 {
    let from = offset as usize;
    let length = (bytes as usize).min(16);
    let mut raw = [0u8; 16];
    if let Some(place) = source.get(from..from + length) {
        raw[..length].copy_from_slice(place);
    }
    u128::from_le_bytes(raw)
}

/// A host-order u32; zero past the end.
pub(crate) fn u32_at(source: &[u8], offset: usize) -> u32 {
    source
        .get(offset..offset + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_ne_bytes)
}

/// A host-order u64; zero past the end.
pub(crate) fn u64_at(source: &[u8], offset: usize) -> u64 {
    source
        .get(offset..offset + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_ne_bytes)
}

/// The key struct of an exact or ternary table.
pub(crate) fn key_struct(keys: &[Key], size: u32, of: impl Fn(usize) -> u128) -> Vec<u8> {
    let mut bytes = vec![0u8; size as usize];
    for (index, key) in keys.iter().enumerate() {
        put(&mut bytes, key.offset, key.bytes, of(index));
    }
    bytes
}

/// Back from the key struct.
pub(crate) fn read_key_struct(keys: &[Key], bytes: &[u8]) -> Vec<u128> {
    keys.iter().map(|key| get(bytes, key.offset, key.bytes) & all_ones(key.width)).collect()
}

/// A map value: the action's index, then its arguments; direct counters zero.
pub(crate) fn value(
    table: &Table,
    action: usize,
    parameters: &[Parameter],
    arguments: &[u128],
) -> Vec<u8> {
    let mut bytes = vec![0u8; table.value_bytes as usize];
    put(&mut bytes, 0, 4, action as u128);
    for (parameter, argument) in parameters.iter().zip(arguments) {
        put(&mut bytes, parameter.offset, parameter.bytes, *argument);
    }
    bytes
}

/// Where each key of an LPM table lies in the packed key: `(key's index, offset, bytes)`, exact
/// ones first, the LPM key last.
fn lpm_fields(table: &Table) -> Vec<(usize, usize, usize)> {
    let mut offset = 4;
    let exact = table.keys.iter().enumerate().filter(|(_, key)| key.match_kind != "lpm");
    let longest = table.keys.iter().enumerate().filter(|(_, key)| key.match_kind == "lpm");
    exact
        .chain(longest)
        .map(|(index, key)| {
            // Wider keys do not get past the compiler.
            let bytes = (key.width.div_ceil(8) as usize).min(16);
            offset += bytes;
            (index, offset - bytes, bytes)
        })
        .collect()
}

/// The packed key of an LPM table.
pub(crate) fn lpm_key(table: &Table, matches: &[Match]) -> Vec<u8> {
    let size = match table.kind {
        TableKind::Lpm { key_bytes, .. } => key_bytes as usize,
        _ => 0,
    };
    let mut packed = vec![0u8; size];
    let mut prefix_length = 0u32;
    for (index, offset, bytes) in lpm_fields(table) {
        let (key, what) = (&table.keys[index], &matches[index]);
        let mut value = what.value();
        if key.match_kind == "lpm" {
            prefix_length += match *what {
                Match::Prefix { length, .. } => length,
                Match::Any => 0,
                Match::Exact(_) | Match::Mask { .. } | Match::Range { .. } => key.width,
            };
            // The top bit comes first.
            value <<= (bytes as u32 * 8).saturating_sub(key.width);
        } else {
            prefix_length += bytes as u32 * 8;
        }
        if let Some(place) = packed.get_mut(offset..offset + bytes) {
            place.copy_from_slice(&value.to_be_bytes()[16 - bytes..]);
        }
    }
    if let Some(place) = packed.get_mut(..4) {
        place.copy_from_slice(&prefix_length.to_ne_bytes());
    }
    packed
}

/// Back from the packed key.
pub(crate) fn read_lpm_key(table: &Table, packed: &[u8]) -> Vec<Match> {
    let mut matches = vec![Match::Any; table.keys.len()];
    let mut left = u32_at(packed, 0);
    for (index, offset, bytes) in lpm_fields(table) {
        let key = &table.keys[index];
        let mut raw = [0u8; 16];
        if let Some(place) = packed.get(offset..offset + bytes) {
            raw[16 - bytes..].copy_from_slice(place);
        }
        let value = u128::from_be_bytes(raw);
        matches[index] = if key.match_kind == "lpm" {
            let shifted = value >> (bytes as u32 * 8).saturating_sub(key.width);
            Match::Prefix {
                value: shifted & prefix_mask(key.width, left),
                length: left.min(key.width),
            }
        } else {
            left = left.saturating_sub(bytes as u32 * 8);
            Match::Exact(value)
        };
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::ActionCall;

    fn key(name: &str, match_kind: &str, width: u32) -> Key {
        let bytes = manifest::scalar_bytes(width);
        Key {
            name: name.to_owned(),
            match_kind: match_kind.to_owned(),
            width,
            offset: 0,
            bytes,
            enumeration: None,
        }
    }

    fn lpm_table(keys: Vec<Key>, key_bytes: u32) -> Table {
        Table {
            name: "t".to_owned(),
            keys,
            actions: vec![],
            kind: TableKind::Lpm { map: "t".to_owned(), key_bytes },
            default_map: None,
            default_action: ActionCall { action: 0, arguments: vec![] },
            const_default: false,
            smallest_priority_wins: false,
            exchange: false,
            per_incarnation: false,
            initial_entries: vec![],
            const_entries: vec![],
            size: 16,
            value_bytes: 8,
            direct_counter: None,
            location: String::new(),
        }
    }

    #[test]
    fn lpm_keys_are_packed_with_the_prefix_last() {
        let table = lpm_table(vec![key("dst", "lpm", 32), key("vrf", "exact", 12)], 10);
        let matches = [Match::Prefix { value: 0x0a01_0000, length: 16 }, Match::Exact(0x123)];
        let packed = lpm_key(&table, &matches);
        assert_eq!(packed, [32, 0, 0, 0, 0x01, 0x23, 10, 1, 0, 0]);
        assert_eq!(read_lpm_key(&table, &packed), matches);
    }

    #[test]
    fn an_odd_prefix_field_is_shifted_to_the_top() {
        let table = lpm_table(vec![key("label", "lpm", 20)], 7);
        let matches = [Match::Prefix { value: 0xabc00, length: 12 }];
        let packed = lpm_key(&table, &matches);
        assert_eq!(packed, [12, 0, 0, 0, 0xab, 0xc0, 0x00]);
        assert_eq!(read_lpm_key(&table, &packed), matches);
    }

    #[test]
    fn scalars_go_both_ways() {
        let mut bytes = [0u8; 24];
        put(&mut bytes, 8, 16, 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        assert_eq!(bytes[8], 0x10);
        assert_eq!(get(&bytes, 8, 16), 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        put(&mut bytes, 20, 8, 1);
        assert_eq!(get(&bytes, 20, 8), 0, "past the end: nothing written, nothing read");
    }
}
