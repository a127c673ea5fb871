//! Packets for generated programs, and what entries of their tables are made from.

use num_bigint::BigInt;
use p4_ir::Program;
use rand::Rng;
use rand::rngs::StdRng;

/// Packets for one program: random ones of all lengths, and the same again, cut or with a bit
/// changed.
pub(super) fn traffic(port: u32, count: usize, random: &mut StdRng) -> Vec<(u32, Vec<u8>)> {
    let mut frames: Vec<(u32, Vec<u8>)> = Vec::new();
    for _ in 0..count {
        let again = random.random_range(0..frames.len().max(1));
        let frame = match (random.random_range(0..8), frames.get(again)) {
            (0, Some((_, old))) if !old.is_empty() => {
                old[..random.random_range(0..old.len())].to_vec()
            }
            (1 | 2, Some((_, old))) if !old.is_empty() => {
                let mut frame = old.clone();
                let bit = random.random_range(0..frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
                frame
            }
            (kind, _) => {
                let length = if kind == 7 {
                    random.random_range(0..24)
                } else {
                    random.random_range(30..160)
                };
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
        };
        frames.push((port, frame));
    }
    frames
}

pub(super) fn scalar_width(_program: &Program, ty: &p4_ir::Type) -> u32 {
    match ty {
        p4_ir::Type::Bits { width, .. } => *width,
        p4_ir::Type::Bool => 1,
        _ => 32,
    }
}

/// The keys to make a table's next entry of: often those of the entry before it, so that a packet
/// matches both, and which of them wins shows.
pub(super) fn next_keys<'s>(
    before: &'s Vec<BigInt>,
    seen: &'s [Vec<BigInt>],
    random: &mut StdRng,
) -> &'s Vec<BigInt> {
    if random.random_bool(0.5) { before } else { &seen[random.random_range(0..seen.len())] }
}

/// The priority of the entry with this number: above those of the source's entries, or between
/// those that are written and those that are not (table.rs), and no other's. Entries do not come in
/// the order of their priorities, nor do their masks.
pub(super) fn entry_priority(rank: u32, random: &mut StdRng) -> u32 {
    let base = if random.random() {
        1000 + 8 * random.random_range(0..100)
    } else {
        100 + 8 * random.random_range(0..15)
    };
    base + rank
}

pub(super) fn entry_mask(kind: &str, width: u32, random: &mut StdRng) -> u128 {
    let all = u128::MAX >> (128 - width);
    match kind {
        "lpm" => {
            let length = random.random_range(0..=width);
            if length == 0 { 0 } else { (all >> (width - length)) << (width - length) }
        }
        "ternary" => super::types::number(width, random),
        _ => all,
    }
}
