//! With what messages of a group are tagged (`bpf/swish/stateplane_shared_frame.h`).

use crate::layouts::{CELLS, SecretValue};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use wire::Secret;

/// A number made of the fabric's secret, which is another one for each place.
fn derived(secret: &Secret, group: u32, view: u32, place: u32) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&secret.0);
    hasher.write(b"swish");
    for number in [group, view, place] {
        hasher.write(&number.to_be_bytes());
    }
    hasher.finish()
}

/// What the data plane tags messages of this group in this view with. A message of another view has
/// another tag, so views may have the same low 16 bits.
pub fn secret_value(secret: Option<&Secret>, group: u32, view: u32) -> SecretValue {
    let mut value = SecretValue { sip: [0; 2], hash: [0; CELLS as usize], present: 0 };
    let Some(secret) = secret else { return value };
    value.present = 1;
    for (place, word) in (0..).zip(&mut value.sip) {
        *word = derived(secret, group, view, place);
    }
    for (place, word) in (2..).zip(&mut value.hash) {
        *word = derived(secret, group, view, place) as u32;
    }
    value
}

/// The tag of a message: its header without the tag, and its cells if it has any.
pub fn tag(secret: &SecretValue, header: &[u8; 24], cells: Option<&[u32; CELLS as usize]>) -> u64 {
    let mut sum = 0u64;
    for (cells, words) in
        cells.iter().flat_map(|it| it.chunks_exact(2)).zip(secret.hash.chunks_exact(2))
    {
        let [first, second] = [0, 1].map(|at| u64::from(cells[at].wrapping_add(words[at])));
        sum = sum.wrapping_add(first.wrapping_mul(second));
    }
    let mut hasher = SipHasher24::new_with_keys(secret.sip[0], secret.sip[1]);
    hasher.write(header);
    hasher.write(&sum.to_le_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_and_group_has_another_secret() {
        let secret = Secret([7; wire::SECRET_BYTES]);
        let one = secret_value(Some(&secret), 0, 1);
        assert_ne!(one, secret_value(Some(&secret), 1, 1));
        assert_ne!(one, secret_value(Some(&secret), 0, 65_537));
        assert_eq!(secret_value(None, 0, 1).present, 0);
    }

    #[test]
    fn every_byte_counts() {
        let secret = secret_value(Some(&Secret([7; wire::SECRET_BYTES])), 0, 1);
        let (mut header, mut cells) = ([3; 24], [9; CELLS as usize]);
        let first = tag(&secret, &header, Some(&cells));
        assert_ne!(first, tag(&secret, &header, None));
        cells[359] ^= 1;
        assert_ne!(first, tag(&secret, &header, Some(&cells)));
        cells[359] ^= 1;
        header[23] ^= 1;
        assert_ne!(first, tag(&secret, &header, Some(&cells)));
    }
}
