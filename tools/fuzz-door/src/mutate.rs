//! Small changes of bytes.

use rand::Rng;
use rand::rngs::StdRng;

/// One to four changes of single bytes, ranges or the end, from byte `keep` on.
pub fn bytes(input: &[u8], keep: usize, random: &mut StdRng) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..random.random_range(1..=4) {
        if out.len() <= keep {
            break;
        }
        let at = random.random_range(keep..out.len());
        let end = (at + random.random_range(1..20)).min(out.len());
        match random.random_range(0..6) {
            0 => out[at] = random.random(),
            1 => out[at] ^= 1 << random.random_range(0..8),
            2 => drop(out.drain(at..end)),
            3 => out.insert(at, random.random()),
            4 => {
                let piece = out[at..end].to_vec();
                let to = random.random_range(keep..out.len());
                out.splice(to..to, piece);
            }
            // Rarely, as little is left.
            _ if random.random_bool(0.3) => out.truncate(at),
            _ => out[at] = out[at].wrapping_add(1),
        }
    }
    out
}
