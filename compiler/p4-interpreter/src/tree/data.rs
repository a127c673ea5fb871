//! Values: what a variable of each type holds, how it begins, is assigned and compared.

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Zero};
use p4_check::hir::{Hir, RecordKind};
use p4_check::ty::Ty;
use std::rc::Rc;

use super::instance::Instance;

/// An instance that a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// The packet as the parser reads it.
    PacketIn,
    /// The packet as the deparser writes it.
    PacketOut,
    /// An extern object: an index into the switch's list.
    Extern(usize),
    /// A parser or control.
    Block(Rc<Instance>),
}

/// What a variable holds.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// A scalar that was never written, or depends on one (spec §8.25).
    Undefined,
    /// A scalar in the range of its type; bool as 0 and 1, errors and enum members as in the tree.
    Number(BigInt),
    /// A varbit: its bits as a number, and how many they are.
    Varbit(BigInt, u32),
    /// The fields of a struct or tuple, or a list's elements.
    Struct(Vec<Data>),
    /// A header: whether it is valid, and its fields.
    Header(bool, Vec<Data>),
    /// The headers of a union.
    Union(Vec<Data>),
    /// A stack: its `nextIndex` and elements.
    Stack(u32, Vec<Data>),
    /// A string literal.
    Text,
    /// An instance.
    Object(Object),
}

/// A step from a value to a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A field of a struct, tuple, header or union.
    Field(usize),
    /// An element of a stack.
    Element(usize),
}

/// Reduces modulo 2^width, into the range of `bit<width>` or `int<width>` (spec §8.6, §8.7).
pub(crate) fn wrap(value: &BigInt, width: u32, signed: bool) -> BigInt {
    let modulus = BigInt::one() << width;
    let low = value.mod_floor(&modulus);
    if signed && width > 0 && low.bit(u64::from(width) - 1) { low - modulus } else { low }
}

/// Width and signedness of a scalar as the packet has it: bool is one bit.
pub(crate) fn scalar_bits(hir: &Hir, ty: &Ty) -> Option<(u32, bool)> {
    match hir.underlying(ty) {
        Ty::Bit(width) => Some((width, false)),
        Ty::Signed(width) => Some((width, true)),
        Ty::Bool => Some((1, false)),
        _ => None,
    }
}

/// A variable as it begins: headers invalid with fields of 0 (p4-support.md: a header that was
/// never valid), scalars undefined, or 0 if `zero` (metadata; simple_switch.md).
pub(crate) fn initial(hir: &Hir, ty: &Ty, zero: bool) -> Data {
    let scalar = || if zero { Data::Number(BigInt::zero()) } else { Data::Undefined };
    match ty {
        Ty::Varbit(_) => Data::Varbit(BigInt::zero(), 0),
        Ty::Record(id, args) => {
            let fields = hir.fields_of(*id, args);
            let kind = hir.records[id.index()].kind;
            let all = |zero| fields.iter().map(|(_, ty)| initial(hir, ty, zero)).collect();
            match kind {
                RecordKind::Struct => Data::Struct(all(zero)),
                RecordKind::Header => Data::Header(false, all(true)),
                RecordKind::Union => Data::Union(all(true)),
            }
        }
        Ty::Tuple(parts) => Data::Struct(parts.iter().map(|ty| initial(hir, ty, zero)).collect()),
        Ty::Stack(element, size) => {
            Data::Stack(0, vec![initial(hir, element, true); *size as usize])
        }
        _ => scalar(),
    }
}

impl Data {
    pub fn bool(value: bool) -> Data {
        Data::Number(BigInt::from(u8::from(value)))
    }

    /// Whether it is a valid header, or a union with a valid member.
    pub fn is_valid(&self) -> bool {
        match self {
            Data::Header(valid, _) => *valid,
            Data::Union(members) => members.iter().any(Data::is_valid),
            _ => false,
        }
    }

    /// `setValid`, `setInvalid`. The specification has a header's fields undefined from then on
    /// (§8.17, §8.25). By p4-support.md, those of an invalid header that becomes valid are 0, and
    /// setValid changes nothing of a valid one. Those of one that becomes invalid stay. `fresh`:
    /// such a header as it begins.
    pub fn set_valid(&mut self, to: bool, fresh: &Data) {
        if let (Data::Header(valid, fields), Data::Header(_, zeros)) = (self, fresh) {
            if to && !*valid {
                fields.clone_from(zeros);
            }
            *valid = to;
        }
    }

    /// What is not 0 is undefined.
    fn forget(&mut self) {
        match self {
            Data::Struct(parts) => parts.iter_mut().for_each(Data::forget),
            Data::Number(value) if value.is_zero() => {}
            Data::Varbit(_, 0) => {}
            other => *other = Data::Undefined,
        }
    }

    /// What it holds is not known any more.
    pub fn lose(&mut self) {
        match self {
            Data::Struct(parts) => parts.iter_mut().for_each(Data::lose),
            other => *other = Data::Undefined,
        }
    }

    /// Of the headers in it, the fields are not known any more.
    pub fn lose_headers(&mut self) {
        match self {
            Data::Header(_, fields) => fields.iter_mut().for_each(Data::lose),
            Data::Struct(parts) | Data::Union(parts) | Data::Stack(_, parts) => {
                parts.iter_mut().for_each(Data::lose_headers);
            }
            _ => {}
        }
    }

    /// What an `out` parameter begins with, of what is where it is copied to (spec §6.8): headers
    /// are invalid, and all else says nothing. Only fields that are 0 there are 0 here: of headers
    /// that were never valid.
    pub fn emptied(mut self) -> Data {
        fn empty(data: &mut Data) {
            match data {
                Data::Header(valid, fields) => {
                    *valid = false;
                    fields.iter_mut().for_each(Data::forget);
                }
                Data::Stack(next, parts) => {
                    *next = 0;
                    parts.iter_mut().for_each(empty);
                }
                Data::Struct(parts) | Data::Union(parts) => parts.iter_mut().for_each(empty),
                other => other.lose(),
            }
        }
        empty(&mut self);
        self
    }

    /// What is not the same in another value is undefined.
    pub fn forget_unlike(&mut self, other: &Data) {
        match (self, other) {
            (Data::Struct(parts), Data::Struct(others)) => {
                parts.iter_mut().zip(others).for_each(|(part, other)| part.forget_unlike(other));
            }
            (one, other) if one.equal(other) != Some(true) => *one = Data::Undefined,
            _ => {}
        }
    }

    /// The value as a new variable gets it: fields of invalid headers are not copied.
    pub fn copied(mut self) -> Data {
        fn copy(data: &mut Data) {
            match data {
                Data::Header(false, fields) => fields.iter_mut().for_each(Data::forget),
                Data::Struct(parts) | Data::Union(parts) | Data::Stack(_, parts) => {
                    parts.iter_mut().for_each(copy)
                }
                _ => {}
            }
        }
        copy(&mut self);
        self
    }

    /// Copies a value into a variable of the same type (spec §12.1).
    pub fn assign(&mut self, value: Data) {
        match (self, value) {
            (Data::Struct(to), Data::Struct(from)) => {
                to.iter_mut().zip(from).for_each(|(to, from)| to.assign(from));
            }
            // Of an invalid header no fields are copied in bmv2; the specification leaves them
            // open.
            (Data::Header(valid, to), Data::Header(false, from)) => {
                *valid = false;
                to.iter_mut().zip(&from).for_each(|(to, from)| to.forget_unlike(from));
            }
            // Spec §8.19: the full state of the union. Members that are invalid have no known
            // fields.
            (Data::Union(to), Data::Union(from)) => {
                to.iter_mut().zip(from).for_each(|(to, from)| to.assign(from));
            }
            (Data::Stack(next, to), Data::Stack(from_next, from)) => {
                *next = from_next;
                to.iter_mut().zip(from).for_each(|(to, from)| to.assign(from));
            }
            (to, from) => *to = from,
        }
    }

    /// Equality (spec §8.4 and those of the compound types); None: depends on what is not known.
    pub fn equal(&self, other: &Data) -> Option<bool> {
        let all = |a: &[Data], b: &[Data]| {
            let mut known = Some(true);
            for (a, b) in a.iter().zip(b) {
                match a.equal(b) {
                    Some(true) => {}
                    Some(false) => return Some(false),
                    None => known = None,
                }
            }
            known
        };
        match (self, other) {
            (Data::Number(a), Data::Number(b)) => Some(a == b),
            // Spec §8.10: of the same length, and the bits too.
            (Data::Varbit(a, n), Data::Varbit(b, m)) => Some(n == m && a == b),
            (Data::Struct(a), Data::Struct(b)) => all(a, b),
            // Spec §8.17: both invalid, or both valid with equal fields.
            (Data::Header(v, a), Data::Header(w, b)) => match (v, w) {
                (false, false) => Some(true),
                (true, true) => all(a, b),
                _ => Some(false),
            },
            (Data::Union(a), Data::Union(b)) | (Data::Stack(_, a), Data::Stack(_, b)) => all(a, b),
            _ => None,
        }
    }

    /// The part that the steps lead to.
    pub fn at(&self, path: &[Step]) -> Option<&Data> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        let part = match (self, first) {
            (
                Data::Struct(parts) | Data::Header(_, parts) | Data::Union(parts),
                Step::Field(index),
            ) => parts.get(*index),
            (Data::Stack(_, parts), Step::Element(index)) => parts.get(*index),
            _ => None,
        };
        part.and_then(|part| part.at(rest))
    }

    /// The same, to be changed.
    pub fn at_mut(&mut self, path: &[Step]) -> Option<&mut Data> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        let part = match (self, first) {
            (
                Data::Struct(parts) | Data::Header(_, parts) | Data::Union(parts),
                Step::Field(index),
            ) => parts.get_mut(*index),
            (Data::Stack(_, parts), Step::Element(index)) => parts.get_mut(*index),
            _ => None,
        };
        part.and_then(|part| part.at_mut(rest))
    }

    /// Writes the part that the steps lead to; None if there is none.
    pub fn write(&mut self, path: &[Step], value: Data) -> Option<()> {
        let part = self.at_mut(path)?;
        let valid = matches!(&value, Data::Header(true, _));
        part.assign(value);
        if valid {
            self.only_member(path);
        }
        Some(())
    }

    /// Makes the header valid that the steps lead to, or invalid. `fresh`: such a header as it
    /// begins.
    pub fn write_validity(&mut self, path: &[Step], valid: bool, fresh: &Data) -> Option<()> {
        self.at_mut(path)?.set_valid(valid, fresh);
        if valid {
            self.only_member(path);
        }
        Some(())
    }

    /// If the header that became valid is a union's, the union's others become invalid (spec
    /// §8.19).
    pub fn only_member(&mut self, path: &[Step]) {
        if let Some((Step::Field(valid), outer)) = path.split_last()
            && let Some(Data::Union(members)) = self.at_mut(outer)
        {
            for (index, member) in members.iter_mut().enumerate() {
                if let (true, Data::Header(valid, _)) = (index != *valid, member) {
                    *valid = false;
                }
            }
        }
    }
}
