//! Bits of packets and byte strings: loads and stores of fields at any alignment.

use crate::expr::{mask_text, shift_left, shift_right};
use crate::layout::c_type;

/// A C expression for `width` (at most 128) bits at `bit` from `pointer`; `limit` bytes there may be read.
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
        return if width == bytes * 8 { shifted } else { format!("({ty})({shifted} & {})", mask_text(width)) };
    }
    // 17 bytes: the top bits of the first byte fall out of the shift.
    let whole = load_bytes(pointer, first, 16);
    let text = format!("{} | (sp_get8({pointer} + {}) >> {shift})", shift_left(&whole, 8 - shift, 128), first + 16);
    if width == 128 { format!("({text})") } else { format!("({ty})(({text}) & {})", mask_text(width)) }
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

/// Groups values into runs of whole bytes. Err: the index of a value that stands askew where that is not supported.
pub(crate) fn runs(values: &[Bits]) -> Result<Vec<Run>, usize> {
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
        let bytes = total.div_ceil(8);
        let wide = members.len() == 1 && members[0].width > 128;
        let askew = if wide { !total.is_multiple_of(8) } else { total > 128 };
        if askew {
            return Err(begin);
        }
        let ty = if total > 64 {
            // (x << 100 | x is a product to clang: stateplane_xdp.h.)
            "sp_opaque128"
        } else if total > 32 {
            "(__u64)"
        } else {
            "(__u32)"
        };
        let pad = bytes * 8 - total;
        let value = if members.len() == 1 && pad == 0 {
            members[0].value.clone()
        } else {
            let mut left = bytes * 8;
            let parts: Vec<String> = members
                .iter()
                .map(|member| {
                    left -= member.width;
                    shift_left(&format!("{ty}({})", member.value), left, bytes * 8)
                })
                .collect();
            format!("({})", parts.join(" | "))
        };
        found.push(Run { offset, bytes, value, wide, members: begin..end });
        offset += bytes;
        begin = end;
    }
    Ok(found)
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
        let found = runs(&[bits("a", 4), bits("b", 4), bits("c", 16), bits("d", 3), bits("e", 13)]).expect("runs");
        let shape: Vec<(u32, u32)> = found.iter().map(|run| (run.offset, run.bytes)).collect();
        assert_eq!(shape, [(0, 1), (1, 2), (3, 2)]);
        assert_eq!(found[2].value, "(((__u32)(d) << 13) | (__u32)(e))");
        assert_eq!(store_run("p", &found[1], true), ["sp_put8(p + 1, (c >> 8));", "sp_put8(p + 2, c);"]);
    }
}
