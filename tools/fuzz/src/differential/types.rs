//! Types, literals and conversions of generated programs.

pub(super) use fuzz_door::{MAX_WIDTH, Ty, scalar, width};
use rand::Rng;
use rand::rngs::StdRng;

/// A variable, field or parameter.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub path: String,
    pub ty: Ty,
}

/// A header type: fields without a path.
#[derive(Clone, Debug)]
pub(super) struct HeaderType {
    pub name: String,
    pub fields: Vec<(String, Ty)>,
    /// Bits of a field `w` behind these: more than the target computes with.
    pub wide: Option<u32>,
    /// The widest that its varbit field, its last, can be.
    pub varbit: Option<u32>,
}

/// A struct type: scalars, then structs.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub name: String,
    pub fields: Vec<(String, Ty)>,
    /// (name, index of the type)
    pub inner: Vec<(String, usize)>,
}

/// The scalars of a struct at this path.
pub(super) fn record_leaves(records: &[Record], path: &str, kind: usize) -> Vec<Named> {
    let own = records[kind]
        .fields
        .iter()
        .map(|(name, ty)| Named { path: format!("{path}.{name}"), ty: *ty });
    let inner = records[kind].inner.iter();
    own.chain(
        inner.flat_map(|(name, kind)| record_leaves(records, &format!("{path}.{name}"), *kind)),
    )
    .collect()
}

/// The structs at this path and below: (path, index of the type).
pub(super) fn record_paths(records: &[Record], path: &str, kind: usize) -> Vec<(String, usize)> {
    let inner = records[kind].inner.iter();
    let below =
        inner.flat_map(|(name, kind)| record_paths(records, &format!("{path}.{name}"), *kind));
    std::iter::once((path.to_owned(), kind)).chain(below).collect()
}

/// A number of this many bits, with a liking for the ends.
pub(super) fn number(width: u32, random: &mut StdRng) -> u128 {
    let all = u128::MAX >> (MAX_WIDTH - width);
    match random.random_range(0..8) {
        0 => 0,
        1 => 1,
        2 => all,
        3 => all >> 1,
        4 => (all >> 1).wrapping_add(1) & all,
        5 => u128::from(random.random_range(0..20u8)) & all,
        _ => random.random::<u128>() & all,
    }
}

/// A constant as P4 writes it.
pub(super) fn literal(ty: Ty, random: &mut StdRng) -> String {
    match ty {
        Ty::Bool => if random.random() { "true" } else { "false" }.into(),
        Ty::Bits { width, signed: false } => format!("{width}w{}", number(width, random)),
        Ty::Bits { width, signed: true } => {
            let value = number(width - 1, random);
            // (0 and -0 would be two writings of one table entry.)
            let negative = random.random() && value != 0;
            if negative { format!("(-{width}s{value})") } else { format!("{width}s{value}") }
        }
    }
}

/// The expression, of type `from`, as one of type `to`.
pub(super) fn convert(text: &str, from: Ty, to: Ty) -> String {
    match (from, to) {
        (Ty::Bool, Ty::Bool) => text.into(),
        (Ty::Bool, Ty::Bits { signed, .. }) => {
            let prefix = if signed { "s" } else { "w" };
            let width = to.width();
            if width == 1 && !signed {
                format!("((bit<1>){text})")
            } else {
                format!("({text} ? {width}{prefix}1 : {width}{prefix}0)")
            }
        }
        (Ty::Bits { width: 1, signed: false }, Ty::Bool) => format!("((bool){text})"),
        (Ty::Bits { width, signed }, Ty::Bool) => {
            format!("({text} != {width}{}0)", if signed { "s" } else { "w" })
        }
        (Ty::Bits { width: a, signed: s }, Ty::Bits { width: b, signed: t }) => {
            let sized = if a == b {
                text.to_owned()
            } else {
                format!("(({}){text})", Ty::Bits { width: b, signed: s }.name())
            };
            if s == t { sized } else { format!("(({}){sized})", to.name()) }
        }
    }
}

/// Fields that fill whole bytes: groups of at most 64 bits between byte boundaries, now and then
/// 128.
pub(super) fn header_fields(random: &mut StdRng) -> Vec<(String, Ty)> {
    let mut fields = Vec::new();
    for _ in 0..random.random_range(1..4) {
        let mut left = match random.random_range(0..12) {
            0 => 128,
            1 => random.random_range(9..=16) * 8,
            _ => random.random_range(1..=8) * 8,
        };
        while left > 0 {
            let width = if random.random_bool(0.3) { left } else { random.random_range(1..=left) };
            left -= width;
            let ty = match random.random_range(0..8) {
                0 | 1 if width > 1 => Ty::Bits { width, signed: true },
                2..5 if width == 1 => Ty::Bool,
                _ => Ty::bits(width),
            };
            fields.push((format!("f{}", fields.len()), ty));
        }
    }
    fields
}
