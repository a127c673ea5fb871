//! Strings of bits: what is emitted, summed and hashed.

use num_bigint::BigInt;
use p4_check::hir::Hir;
use p4_check::ty::Ty;

use super::data::{Data, scalar_bits};
use super::number::pattern;
use super::{Run, broken, undefined, unsupported};

/// Bits, the first of a byte its highest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    bytes: Vec<u8>,
    /// How many bits.
    count: usize,
}

impl Bits {
    /// Puts the lowest `width` bits of a number behind those that are there.
    pub fn push(&mut self, value: &BigInt, width: u32) {
        let value = pattern(value, width);
        for place in (0..u64::from(width)).rev() {
            self.push_bit(value.bit(place));
        }
    }

    fn push_bit(&mut self, bit: bool) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if bit && let Some(last) = self.bytes.last_mut() {
            *last |= 0x80 >> (self.count % 8);
        }
        self.count += 1;
    }

    pub fn append(&mut self, other: &Bits) {
        for index in 0..other.count {
            self.push_bit(other.bytes[index / 8] & (0x80 >> (index % 8)) != 0);
        }
    }

    /// The last byte filled up with zeros.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// `width` bits from the bit at `from`; None: beyond the end.
pub(crate) fn read(bytes: &[u8], from: usize, width: usize) -> Option<BigInt> {
    if from + width > bytes.len() * 8 {
        return None;
    }
    let mut value = BigInt::ZERO;
    for index in from..from + width {
        let bit = bytes[index / 8] >> (7 - index % 8) & 1;
        value = (value << 1) + bit;
    }
    Some(value)
}

/// Appends the bits of all valid headers in a value, and of its scalars.
pub(crate) fn of_value(hir: &Hir, data: &Data, ty: &Ty, out: &mut Bits) -> Run<()> {
    match (data, ty) {
        (Data::Undefined, _) => undefined("a field that was never written"),
        (Data::Varbit(value, width), _) => {
            out.push(value, *width);
            Ok(())
        }
        (Data::Number(value), ty) => match scalar_bits(hir, ty) {
            Some((width, _)) => {
                out.push(value, width);
                Ok(())
            }
            None => unsupported("the bits of an enum or error"),
        },
        (Data::Header(false, _), _) => Ok(()),
        (
            Data::Header(_, parts) | Data::Struct(parts) | Data::Union(parts),
            Ty::Record(id, args),
        ) => {
            let fields = hir.fields_of(*id, args);
            parts.iter().zip(&fields).try_for_each(|(part, (_, ty))| of_value(hir, part, ty, out))
        }
        (Data::Struct(parts), Ty::Tuple(types)) => {
            parts.iter().zip(types.iter()).try_for_each(|(part, ty)| of_value(hir, part, ty, out))
        }
        (Data::Stack(_, parts), Ty::Stack(element, _)) => {
            parts.iter().try_for_each(|part| of_value(hir, part, element, out))
        }
        _ => broken("the bits of a value that is not a data"),
    }
}
