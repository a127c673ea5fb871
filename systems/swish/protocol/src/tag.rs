//! With what messages of a group are tagged (`bpf/swish/stateplane_shared_frame.h`).

use crate::control::Member;
use crate::layouts::{CELLS, SecretValue};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use wire::Secret;

/// What members of a group must agree on: with another one, they have other tags.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The group's name.
    pub group: &'a str,
    /// How its variables lie in blocks, and how they merge (`objects::Group::layout`).
    pub layout: u64,
    /// The number of the view.
    pub view: u32,
    /// All members. (What a member sent in an earlier life is of another incarnation.)
    pub members: &'a [Member],
    /// Of the aggregation tree; 0: there is none.
    pub fan_out: u32,
}

/// A number made of the fabric's secret, which is another one for each place.
fn derived(secret: &Secret, about: &About<'_>, place: u32) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&secret.0);
    hasher.write(b"swish");
    hasher.write(&place.to_be_bytes());
    hasher.write(&about.view.to_be_bytes());
    hasher.write(&about.layout.to_be_bytes());
    for Member { number, address, incarnation } in about.members {
        hasher.write(&number.to_be_bytes());
        hasher.write(&address.octets());
        hasher.write(&incarnation.to_be_bytes());
    }
    hasher.write(about.group.as_bytes());
    // (No group's name has the byte: groups without a tree are tagged as before there were trees.)
    if about.fan_out > 0 {
        hasher.write(&[0xff]);
        hasher.write(&about.fan_out.to_be_bytes());
    }
    hasher.finish()
}

/// What the data plane tags messages of a group with. A message of another view has another tag, so
/// views may have the same low 16 bits.
pub fn secret_value(secret: Option<&Secret>, about: &About<'_>) -> SecretValue {
    let mut value = SecretValue { sip: [0; 2], hash: [0; CELLS as usize], present: 0 };
    let Some(secret) = secret else { return value };
    value.present = 1;
    for (place, word) in (0..).zip(&mut value.sip) {
        *word = derived(secret, about, place);
    }
    for (place, word) in (2..).zip(&mut value.hash) {
        *word = derived(secret, about, place) as u32;
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
    fn who_disagrees_has_another_secret() {
        let secret = Secret([7; wire::SECRET_BYTES]);
        let member = |number, last| Member {
            number,
            address: std::net::Ipv4Addr::new(10, 9, 0, last),
            incarnation: 5,
        };
        let members = [member(0, 1), member(1, 2)];
        let swapped = [member(0, 2), member(1, 1)];
        let later = [members[0], Member { incarnation: 6, ..members[1] }];
        let about = About { group: "main", layout: 5, view: 1, members: &members, fan_out: 0 };
        let of = |about| secret_value(Some(&secret), &about);
        let one = of(about);
        assert_eq!(one, of(about));
        assert_ne!(one, of(About { group: "other", ..about }));
        assert_ne!(one, of(About { view: 65_537, ..about }));
        assert_ne!(one, of(About { layout: 6, ..about }));
        assert_ne!(one, of(About { members: &swapped, ..about }));
        assert_ne!(one, of(About { members: &later, ..about }));
        assert_ne!(one, of(About { fan_out: 2, ..about }));
        assert_ne!(of(About { fan_out: 3, ..about }), of(About { fan_out: 2, ..about }));
        assert_eq!(secret_value(None, &about).present, 0);
    }

    #[test]
    fn every_byte_counts() {
        let about = About { group: "main", layout: 5, view: 1, members: &[], fan_out: 0 };
        let secret = secret_value(Some(&Secret([7; wire::SECRET_BYTES])), &about);
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
