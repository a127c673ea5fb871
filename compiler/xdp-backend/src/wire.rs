//! Keys and values of state objects in their wire form: each field in whole bytes, right-aligned,
//! in network byte order, one behind the other.

use crate::generator::Generator;
use crate::layout::{Place, scalar_width};
use crate::packet::{Bits, load_bits, runs, store_run};
use crate::table::round_up;
use num_bigint::BigInt;
use p4_ir::{Expr, ExternInstance, Location, Program, SerializableEnum, SerializableEnumId, Type};
use std::cmp::Ordering;

/// Bits of the widest field of a key or value.
const MAX_WIDTH: u32 = 128;

/// The names of a scalar's values, for the manifest.
pub(crate) fn manifest_enumeration(
    program: &Program,
    ty: &Type,
    declared: Option<SerializableEnumId>,
) -> Option<manifest::Enumeration> {
    let bits = scalar_width(ty).filter(|width| *width <= MAX_WIDTH)?;
    let unsigned = |value: &BigInt| ((BigInt::from(1) << bits) + value) % (BigInt::from(1) << bits);
    let SerializableEnum { name, members } = program.enumeration(ty, declared)?;
    let member = |(name, value): (String, BigInt)| manifest::EnumMember {
        name,
        value: unsigned(&value).to_string(),
    };
    Some(manifest::Enumeration { name, members: members.into_iter().map(member).collect() })
}

impl Generator<'_> {
    /// The fields of a state object's struct; `needs` says what the object wants if it is none.
    pub fn wire_fields(
        &mut self,
        ty: Option<&Type>,
        instance: &ExternInstance,
        needs: &str,
    ) -> Vec<manifest::WireField> {
        let Some(Type::Struct(id)) = ty else {
            let message = format!("{} needs {needs}", instance.extern_type);
            self.error(
                instance.location,
                &message,
                Some("declare a struct, also around a single field"),
            );
            return Vec::new();
        };
        let mut offset = 0;
        let mut fields = Vec::new();
        for field in &self.program.struct_types[id.index()].fields {
            let width = scalar_width(&field.ty);
            let Some(width) = width.filter(|width| *width <= MAX_WIDTH) else {
                let what =
                    width.map_or("is not a scalar".into(), |width| format!("has {width} bits"));
                let message = format!(
                    "{} {}: field {} {what}",
                    instance.extern_type, instance.name, field.name
                );
                self.error(
                    instance.location,
                    &message,
                    Some("use bit<W>, int<W>, bool and enums, at most 128 bits each"),
                );
                continue;
            };
            let bytes = width.div_ceil(8);
            let (name, ty) = (field.name.clone(), &field.ty);
            let enumeration = manifest_enumeration(self.program, ty, field.enumeration);
            fields.push(manifest::WireField { name, width, offset, bytes, enumeration });
            offset += bytes;
        }
        fields
    }

    /// Key and value of an object, as [`Generator::wire_struct`] has them.
    pub fn wire_key_and_value(
        &mut self,
        instance: &ExternInstance,
        most: [u32; 2],
    ) -> [(Vec<manifest::WireField>, u32); 2] {
        let needs = "structs as key and value";
        let key = self.wire_struct(instance, 0, "key", needs, most[0]);
        [key, self.wire_struct(instance, 1, "value", needs, most[1])]
    }

    /// The struct that is an object's type argument `at`, `what` by name: its fields, and the sum
    /// of their bytes, which is 1 to `most`. `needs` says what the object wants if it is none.
    pub fn wire_struct(
        &mut self,
        instance: &ExternInstance,
        at: usize,
        what: &str,
        needs: &str,
        most: u32,
    ) -> (Vec<manifest::WireField>, u32) {
        let ty = instance.type_arguments.get(at);
        let fields = self.wire_fields(ty, instance, needs);
        let bytes = fields.iter().map(|field| field.bytes).sum();
        // (What is no struct was told.)
        if matches!(ty, Some(Type::Struct(_))) && (bytes == 0 || bytes > most) {
            let message = format!(
                "{} {}: the {what} has {bytes} bytes, not 1 to {most}",
                instance.extern_type, instance.name
            );
            let help =
                format!("drop or narrow fields of the {what}'s struct; each takes whole bytes");
            self.error(instance.location, &message, Some(&help));
        }
        (fields, bytes)
    }

    /// A buffer on the stack, zero-padded to a multiple of 8, with a struct in wire form.
    pub fn wire_buffer(&mut self, name: &str, bytes: u32, value: Option<&Expr>) {
        let size = round_up(bytes.max(1), 8);
        let fields: Option<Vec<(String, u32)>> = value.map(|value| self.list_values(value));
        let words = fields.filter(|all| all.iter().all(|(_, width)| *width <= 64));
        let initial = if words.is_some() { "" } else { " = {}" };
        self.out.line(format!("__u8 {name}[{size}] __attribute__((aligned(8))){initial};"));
        match (words, value) {
            (Some(fields), _) => {
                for (number, word) in in_words(&fields).iter().enumerate() {
                    self.out.line(format!("sp_put64({name} + {}, {word});", 8 * number));
                }
            }
            (None, Some(value)) => self.wire_store(name, value),
            (None, None) => {}
        }
    }

    /// Stores a struct in wire form where the C pointer `name` points to, aligned to 8 bytes.
    pub fn wire_store(&mut self, name: &str, value: &Expr) {
        let values: Vec<Bits> = self
            .fields_of(value)
            .into_iter()
            .map(|field| Bits { value: field.bits.value, width: round_up(field.bits.width, 8) })
            .collect();
        for run in &runs(&values) {
            for line in store_run(name, run, true) {
                self.out.line(line);
            }
        }
    }

    /// Stores what the buffer `sp_value` has in wire form to a struct.
    pub fn read_wire(&mut self, target: &Expr, value_bytes: u32, location: Location) {
        let Some(Place::Struct(_, fields)) = self.place(target) else {
            self.internal(location, "the value of a state object is not a struct");
            return;
        };
        let mut offset = 0;
        for field in fields {
            // Wider ones were refused where the object is declared.
            let Place::Scalar(scalar) = field else { continue };
            if scalar.width > MAX_WIDTH {
                continue;
            }
            let bytes = scalar.width.div_ceil(8);
            let bit = (offset + bytes) * 8 - scalar.width;
            // Byte by byte where the stack's alignment forbids more; the buffer is padded to 8.
            let value = aligned_load("sp_value", bit, scalar.width, round_up(value_bytes, 8));
            self.out.line(format!("{} = {value};", scalar.c));
            offset += bytes;
        }
    }

    /// The C values, and widths, of the scalars of a struct or list.
    pub fn list_values(&mut self, list: &Expr) -> Vec<(String, u32)> {
        self.fields_of(list).into_iter().map(|field| (field.bits.value, field.bits.width)).collect()
    }

    /// The C variables of the scalar fields of a struct. None: no struct.
    pub fn struct_variables(&mut self, target: &Expr) -> Option<Vec<String>> {
        let Some(Place::Struct(_, fields)) = self.place(target) else { return None };
        let variable = |field| match field {
            Place::Scalar(scalar) => Some(scalar.c),
            _ => None,
        };
        Some(fields.into_iter().filter_map(variable).collect())
    }
}

/// The 64-bit words of fields in wire form, of at most 64 bits each; the last one ends with zeros.
///
/// Whole words, as look-ups read keys in words right after they are stored: a load that spans
/// several stores waits until these have left the CPU's store buffer. (Measured on the NAT: 22 of
/// 170 ns.)
fn in_words(fields: &[(String, u32)]) -> Vec<String> {
    let mut words: Vec<Vec<String>> = Vec::new();
    let mut begin = 0;
    for (value, width) in fields {
        let end = begin + round_up(*width, 8);
        for word in begin / 64..end.div_ceil(64) {
            if words.len() <= word as usize {
                words.push(Vec::new());
            }
            let word_end = 64 * (word + 1);
            let part = format!("(__u64)({value})");
            // (What a word before has of the field is shifted out at the left.)
            words[word as usize].push(match end.cmp(&word_end) {
                Ordering::Less => format!("{part} << {}", word_end - end),
                Ordering::Equal => part,
                Ordering::Greater => format!("{part} >> {}", end - word_end),
            });
        }
        begin = end;
    }
    words.into_iter().map(|parts| parts.join(" | ")).collect()
}

/// Loads a right-aligned field from the stack with aligned accesses.
fn aligned_load(pointer: &str, bit: u32, width: u32, limit: u32) -> String {
    let first = bit / 8;
    let bytes = width.div_ceil(8);
    let size = bytes.next_power_of_two();
    if size == bytes && size <= 8 && first.is_multiple_of(size) {
        return load_bits(pointer, bit, width, limit);
    }
    let wide = if width > 64 {
        "sp_u128"
    } else if width > 32 {
        "__u64"
    } else {
        "__u32"
    };
    let mut parts = Vec::new();
    let mut done = 0;
    while done < bytes {
        let mut size = (bytes - done).min(8);
        size = if size.is_power_of_two() { size } else { size.next_power_of_two() / 2 };
        while !(first + done).is_multiple_of(size) {
            size /= 2;
        }
        let left = (bytes - done - size) * 8;
        let part = format!("({wide})sp_get{}({pointer} + {})", size * 8, first + done);
        parts.push(crate::expr::shift_left(&part, left, bytes * 8));
        done += size;
    }
    crate::expr::truncate(&parts.join(" | "), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_put_in_words() {
        let fields = [("a", 32), ("b", 8), ("c", 48), ("d", 1), ("e", 64)];
        let fields = fields.map(|(name, width)| (name.to_owned(), width));
        let wanted = [
            "(__u64)(a) << 32 | (__u64)(b) << 24 | (__u64)(c) >> 24",
            "(__u64)(c) << 40 | (__u64)(d) << 32 | (__u64)(e) >> 32",
            "(__u64)(e) << 32",
        ];
        assert_eq!(in_words(&fields), wanted);
    }
}
