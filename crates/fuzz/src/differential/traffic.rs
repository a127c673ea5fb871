//! What is done to a program: packets, and entries that these hit.

use super::sides::NewEntry;
use super::types::number;
use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive;
use p4_interpreter::Tree;
use p4_ir::{Match, Program, Table, Type};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The clock that all sides see, in microseconds.
pub(super) const NOW_US: u64 = 1_234_567;
/// Most entries that a table gets.
const MAX_ENTRIES: u32 = 6;

/// A packet and the port that it comes in on.
pub(super) type Frame = (u32, Vec<u8>);

/// Packets for the programs of ports 0, 1, …
pub(super) fn frames(programs: u32, count: usize, seed: u64) -> Vec<Frame> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x7ac_e75);
    (0..programs).flat_map(|port| traffic(port, count, &mut random)).collect()
}

/// Packets for one program: random ones of all lengths, and the same again, cut or with a bit changed.
fn traffic(port: u32, count: usize, random: &mut StdRng) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for _ in 0..count {
        let again = random.random_range(0..frames.len().max(1));
        let frame = match (random.random_range(0..8), frames.get(again)) {
            (0, Some((_, old))) if !old.is_empty() => old[..random.random_range(0..old.len())].to_vec(),
            (1 | 2, Some((_, old))) if !old.is_empty() => {
                let mut frame = old.clone();
                let bit = random.random_range(0..frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
                frame
            }
            (kind, _) => {
                let length = if kind == 7 { random.random_range(0..24) } else { random.random_range(30..160) };
                bytes(length, random)
            }
        };
        frames.push((port, frame));
    }
    frames
}

/// Any bytes; now and then mostly dull ones.
fn bytes(length: usize, random: &mut StdRng) -> Vec<u8> {
    let dull = random.random_bool(0.2);
    (0..length)
        .map(|_| {
            if dull && random.random_bool(0.7) {
                [0, 0xff, 1, 0x80][random.random_range(0..4)]
            } else {
                random.random()
            }
        })
        .collect()
}

/// Entries for the tables that can be changed: of keys that some packets look them up with, masked.
pub(super) fn entries(program: &Program, scout: &Tree<'_>, seed: u64) -> Vec<NewEntry> {
    let mut random = StdRng::seed_from_u64(seed ^ 0xe47_71e5);
    let mut found = Vec::new();
    for (index, table) in program.tables.iter().enumerate() {
        let seen = scout.keys_seen(&table.name);
        let actions: Vec<usize> =
            (0..table.actions.len()).filter(|index| !table.actions[*index].default_only).collect();
        if table.const_entries || table.keys.is_empty() || actions.is_empty() || seen.is_empty() {
            continue;
        }
        let mut known: Vec<Vec<(u128, u128)>> =
            table.entries.iter().map(|entry| masked(table, &entry.matches)).collect();
        for rank in 0..random.random_range(0..MAX_ENTRIES) {
            let action = actions[random.random_range(0..actions.len())];
            let one = entry(program, index, &seen[random.random_range(0..seen.len())], (rank, action), &mut random);
            let matches: Vec<(u128, u128)> = one.matches.iter().map(|(value, mask, _)| (*value, *mask)).collect();
            if !known.contains(&matches) {
                known.push(matches);
                found.push(one);
            }
        }
    }
    found
}

fn entry(
    program: &Program,
    index: usize,
    seen: &[BigInt],
    (rank, action): (u32, usize),
    random: &mut StdRng,
) -> NewEntry {
    let table = &program.tables[index];
    let parameters = &program.actions[table.actions[action].action.index()].parameters;
    let arguments =
        parameters.iter().map(|parameter| number(width(&program.variables[parameter.index()].ty), random)).collect();
    let mut matches = Vec::new();
    for (value, key) in seen.iter().zip(&table.keys) {
        let width = width(&key.expr.ty);
        let mask = entry_mask(&key.match_kind, width, random);
        matches.push((value.to_u128().unwrap_or(0) & mask, mask, width));
    }
    let ranked = table.keys.iter().any(|key| ["ternary", "range", "optional"].contains(&key.match_kind.as_str()));
    // Above those of the source's entries.
    let priority = if ranked { 1000 + rank * 7 } else { 0 };
    NewEntry { table: index, name: table.name.clone(), matches, priority, action, arguments }
}

/// What an entry of the source compares, as far as it is a value and a mask.
fn masked(table: &Table, matches: &[Match]) -> Vec<(u128, u128)> {
    let one = |(matched, width): (&Match, u32)| {
        let all = ones(width);
        let bits = |number: &BigInt| {
            let bits = match number.sign() {
                Sign::Minus => number + (BigInt::from(1) << width),
                _ => number.clone(),
            };
            bits.to_u128().unwrap_or(0) & all
        };
        match matched {
            Match::Value(value) => (bits(value), all),
            Match::Mask { value, mask } => (bits(value) & bits(mask), bits(mask)),
            _ => (0, 0),
        }
    };
    matches.iter().zip(table.keys.iter().map(|key| width(&key.expr.ty))).map(one).collect()
}

/// Bits of a scalar, at most 128.
pub(super) fn width(ty: &Type) -> u32 {
    match ty {
        Type::Bits { width, .. } => (*width).min(128),
        Type::Bool => 1,
        _ => 32,
    }
}

fn ones(width: u32) -> u128 {
    if width == 0 { 0 } else { u128::MAX >> (128 - width) }
}

fn entry_mask(kind: &str, width: u32, random: &mut StdRng) -> u128 {
    let all = ones(width);
    match kind {
        "lpm" => match random.random_range(0..=width) {
            0 => 0,
            length => (all >> (width - length)) << (width - length),
        },
        "ternary" => number(width, random),
        "optional" if random.random_bool(0.3) => 0,
        _ => all,
    }
}
