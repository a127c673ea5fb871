//! Bits of packets and byte strings: loads and stores of fields at any alignment.

use crate::expr::{mask_text, shift_left, shift_right, truncate};
use crate::layout::c_type;

/// A C expression for `width` (at most 128) bits at `bit` from `pointer`; `limit` bytes there may
/// be read.
pub(crate) fn load_bits(pointer: &str, bit: u32, width: u32, limit: u32) -> String {
    let first = bit / 8;
    let last = (bit + width - 1) / 8;
    let bytes = last - first + 1;
    let ty = c_type(width);
    if bytes <= 8 {
        // One load if the header leaves room for it, before or after the field.
        let size = bytes.next_power_of_two();
        let start = if first + size <= limit { Some(first) } else { limit.checked_sub(size) };
        if let Some(start) = start {
            let shift = (start + size) * 8 - (bit + width);
            let load = format!("sp_get{}({pointer} + {start})", size * 8);
            let shifted = if shift == 0 { load } else { format!("({load} >> {shift})") };
            return if width == size * 8 {
                shifted
            } else if shift + width == size * 8 {
                format!("({ty}){shifted}")
            } else {
                format!("({ty})({shifted} & {})", mask_text(width))
            };
        }
    }
    let shift = (last + 1) * 8 - (bit + width);
    if bytes <= 16 {
        let whole = load_bytes(pointer, first, bytes);
        let shifted = shift_right(&whole, shift, bytes * 8);
        return if width == bytes * 8 {
            shifted
        } else {
            format!("({ty})({shifted} & {})", mask_text(width))
        };
    }
    // 17 bytes: the top bits of the first byte fall out of the shift.
    let whole = load_bytes(pointer, first, 16);
    let text = format!(
        "{} | (sp_get8({pointer} + {}) >> {shift})",
        shift_left(&whole, 8 - shift, 128),
        first + 16
    );
    if width == 128 {
        format!("({text})")
    } else {
        format!("({ty})(({text}) & {})", mask_text(width))
    }
}

/// A big-endian integer of up to 16 bytes.
fn load_bytes(pointer: &str, first: u32, bytes: u32) -> String {
    let wide = if bytes > 8 { "sp_u128" } else { "__u64" };
    let mut parts = Vec::new();
    let mut done = 0;
    while done < bytes {
        let size = piece(bytes - done);
        let left = (bytes - done - size) * 8;
        let load = format!("({wide})sp_get{}({pointer} + {})", size * 8, first + done);
        parts.push(shift_left(&load, left, bytes * 8));
        done += size;
    }
    format!("({})", parts.join(" | "))
}

/// The greatest of 8, 4, 2, 1 that fits.
fn piece(bytes: u32) -> u32 {
    match bytes {
        8.. => 8,
        4..=7 => 4,
        2..=3 => 2,
        _ => 1,
    }
}

/// A value of so many bits.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    /// C; below 2^width.
    pub value: String,
    /// At most 128, or a struct of bytes.
    pub width: u32,
}

/// Consecutive values that together fill whole bytes.
pub(crate) struct Run {
    /// Byte offset.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
    /// C of the whole, big-endian; a wide value's name if `wide`.
    pub value: String,
    /// A `struct sp_wide` to copy byte by byte.
    pub wide: bool,
    /// Which values it is made of.
    pub members: std::ops::Range<usize>,
}

/// Groups values into runs of whole bytes, of at most 128 bits unless one wide value is all of it.
pub(crate) fn runs(values: &[Bits]) -> Vec<Run> {
    let mut found = Vec::new();
    let mut offset = 0;
    let mut begin = 0;
    while begin < values.len() {
        let mut total = 0;
        let mut end = begin;
        while end < values.len() && (total == 0 || total % 8 != 0) {
            total += values[end].width;
            end += 1;
        }
        let members = &values[begin..end];
        if members.len() == 1 && total > 128 && total % 8 == 0 {
            let value = members[0].value.clone();
            found.push(Run { offset, bytes: total / 8, value, wide: true, members: begin..end });
            offset += total / 8;
        } else {
            for part in pieces(members, begin) {
                let run = run(&part, offset);
                offset += run.bytes;
                found.push(run);
            }
        }
        begin = end;
    }
    found
}

/// Parts of values that fill 128 bits each, but for the last; each with the number of its value.
fn pieces(members: &[Bits], first: usize) -> Vec<Vec<(usize, Bits)>> {
    let mut found = vec![Vec::new()];
    let mut room = 128;
    let mut add = |index: usize, mut part: Bits| {
        if part.width > room {
            let (high, low) = (room, part.width - room);
            if high > 0 {
                let value =
                    format!("({})({})", c_type(high), shift_right(&part.value, low, part.width));
                found.last_mut().into_iter().for_each(|piece: &mut Vec<_>| {
                    piece.push((index, Bits { value: value.clone(), width: high }));
                });
            }
            part = Bits { value: truncate(&part.value, low), width: low };
            found.push(Vec::new());
            room = 128;
        }
        room -= part.width;
        found.last_mut().into_iter().for_each(|piece| piece.push((index, part.clone())));
    };
    for (index, member) in members.iter().enumerate() {
        if member.width <= 128 {
            add(first + index, member.clone());
            continue;
        }
        for (at, width) in wide_bytes(member.width) {
            add(first + index, Bits { value: format!("{}.byte[{at}]", member.value), width });
        }
    }
    found
}

/// The bytes of a value wider than 128 bits, with the bits that each has: the first may have fewer.
pub(crate) fn wide_bytes(width: u32) -> impl Iterator<Item = (u32, u32)> {
    let bytes = width.div_ceil(8);
    (0..bytes).map(move |at| (at, if at == 0 { width - (bytes - 1) * 8 } else { 8 }))
}

/// Joins parts of at most 128 bits.
fn run(parts: &[(usize, Bits)], offset: u32) -> Run {
    let total: u32 = parts.iter().map(|(_, part)| part.width).sum();
    let bytes = total.div_ceil(8);
    let ty = if total > 64 {
        // (x << 100 | x is a product to clang: stateplane_xdp.h.)
        "sp_opaque128"
    } else if total > 32 {
        "(__u64)"
    } else {
        "(__u32)"
    };
    let value = match parts {
        [(_, part)] if total.is_multiple_of(8) => part.value.clone(),
        _ => {
            let mut left = bytes * 8;
            let shifted: Vec<String> = parts
                .iter()
                .map(|(_, part)| {
                    left -= part.width;
                    shift_left(&format!("{ty}({})", part.value), left, bytes * 8)
                })
                .collect();
            format!("({})", shifted.join(" | "))
        }
    };
    let first = parts.first().map_or(0, |(index, _)| *index);
    let last = parts.last().map_or(0, |(index, _)| *index + 1);
    Run { offset, bytes, value, wide: false, members: first..last }
}

/// C statements that store a run at `pointer`; on the stack each access must be aligned.
pub(crate) fn store_run(pointer: &str, run: &Run, aligned: bool) -> Vec<String> {
    if run.wide {
        return (0..run.bytes)
            .map(|i| format!("sp_put8({pointer} + {}, {}.byte[{i}]);", run.offset + i, run.value))
            .collect();
    }
    let mut lines = Vec::new();
    let mut done = 0;
    while done < run.bytes {
        let mut size = piece(run.bytes - done);
        while aligned && !(run.offset + done).is_multiple_of(size) {
            size /= 2;
        }
        let left = (run.bytes - done - size) * 8;
        let part = shift_right(&run.value, left, run.bytes * 8);
        lines.push(format!("sp_put{}({pointer} + {}, {part});", size * 8, run.offset + done));
        done += size;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_load_for_a_field_that_crosses_bytes() {
        assert_eq!(load_bits("p", 3, 13, 20), "(__u16)(sp_get16(p + 0) & 0x1fffU)");
        assert_eq!(load_bits("p", 0, 48, 14), "(__u64)(sp_get64(p + 0) >> 16)");
        // The last six bytes of 14: the load starts two bytes before the field.
        assert_eq!(load_bits("p", 64, 48, 14), "(__u64)(sp_get64(p + 6) & 0xffffffffffffULL)");
    }

    #[test]
    fn runs_join_bits_to_bytes() {
        let bits = |value: &str, width| Bits { value: value.into(), width };
        let found = runs(&[bits("a", 4), bits("b", 4), bits("c", 16), bits("d", 3), bits("e", 13)]);
        let shape: Vec<(u32, u32)> = found.iter().map(|run| (run.offset, run.bytes)).collect();
        assert_eq!(shape, [(0, 1), (1, 2), (3, 2)]);
        assert_eq!(found[2].value, "(((__u32)(d) << 13) | (__u32)(e))");
        assert_eq!(
            store_run("p", &found[1], true),
            ["sp_put8(p + 1, (c >> 8));", "sp_put8(p + 2, c);"]
        );
    }
    #[test]
    fn more_than_128_bits_between_byte_boundaries() {
        let bits = |value: &str, width| Bits { value: value.into(), width };
        let found = runs(&[bits("a", 4), bits("b", 128), bits("w", 130), bits("c", 2)]);
        let shape: Vec<_> =
            found.iter().map(|run| (run.offset, run.bytes, run.members.clone())).collect();
        assert_eq!(shape, [(0, 16, 0..2), (16, 16, 1..3), (32, 1, 2..4)]);
        assert!(
            found[1].value.starts_with("(sp_shl128(sp_opaque128((__u8)((b) & 0xfU)), 124)"),
            "{}",
            found[1].value
        );
        assert!(found[1].value.contains("w.byte[0]"), "{}", found[1].value);
        assert_eq!(found[2].value, "(((__u32)((__u8)((w.byte[16]) & 0x3fU)) << 2) | (__u32)(c))");
    }
}
