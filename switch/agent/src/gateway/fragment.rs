//! Cuts an IPv4 packet into fragments (RFC 791, 2.3 and 3.2): the kernel does not do it for packets
//! whose header somebody else has made.

/// Bytes of a header without options.
const HEADER_BYTES: usize = 20;
const MORE_FRAGMENTS: u16 = 0x2000;
const DO_NOT_FRAGMENT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;
/// Fragments begin at multiples of so many bytes.
const UNIT_BYTES: usize = 8;
/// Of an option's type: it stands in every fragment.
const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// An IPv4 packet: its header's and its whole length agree with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes what a frame carries; what is behind the packet's end is padding.
    pub fn new(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let first = *bytes.first()?;
        let header_bytes = usize::from(first & 15) * 4;
        let total = usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
        if first >> 4 != 4 || header_bytes < HEADER_BYTES {
            return None;
        }
        let payload = bytes.get(header_bytes..total)?;
        Some(Packet { header: &bytes[..header_bytes], payload })
    }

    fn flags_and_offset(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// It must not be fragmented.
    pub fn is_whole(&self) -> bool {
        self.flags_and_offset() & DO_NOT_FRAGMENT != 0
    }

    /// Where it comes from, and where it goes.
    pub fn addresses(&self) -> ([u8; 4], [u8; 4]) {
        let at = |at: usize| std::array::from_fn(|byte| self.header[at + byte]);
        (at(12), at(16))
    }

    /// The packet as the kernel is to send it. The kernel replaces an identification of 0, in each
    /// fragment by another one: a fragment gets one that all of its packet get alike.
    pub fn bytes(&self) -> Vec<u8> {
        let mut header = self.header.to_vec();
        if self.is_fragment() {
            self.identify(&mut header, 0);
        }
        seal(&mut header, self.payload.len());
        [&header, self.payload].concat()
    }

    fn is_fragment(&self) -> bool {
        self.flags_and_offset() & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Replaces an identification of 0. A whole packet gets `fresh`: a receiver must tell it from
    /// those before it (RFC 6864, 4.3). Of fragments that came in with 0, those of one packet must
    /// stay together, and no more than their addresses tell where they belong.
    fn identify(&self, header: &mut [u8], fresh: u16) {
        if header[4..6] != [0, 0] {
            return;
        }
        let (source, destination) = self.addresses();
        let of_addresses = || {
            let bytes = source.iter().chain(&destination);
            bytes.fold(u16::from(header[9]), |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u16::from(*byte))
            })
        };
        let identification = if self.is_fragment() { of_addresses() | 1 } else { fresh };
        header[4..6].copy_from_slice(&identification.to_be_bytes());
    }

    /// Fragments of at most `mtu` bytes; none: not even eight bytes of it fit. `fresh` is an
    /// identification that no packet has had lately, for a packet without one.
    pub fn fragments(&self, mtu: usize, fresh: u16) -> Option<Vec<Vec<u8>>> {
        let flags_and_offset = self.flags_and_offset();
        let last_has_more = flags_and_offset & MORE_FRAGMENTS;
        let mut header = self.header.to_vec();
        self.identify(&mut header, fresh);
        let mut fragments = vec![];
        let mut done = 0;
        while done < self.payload.len() {
            let room = mtu.checked_sub(header.len())?;
            let left = self.payload.len() - done;
            let taken = if left <= room { left } else { room / UNIT_BYTES * UNIT_BYTES };
            if taken == 0 {
                return None;
            }
            let more = if taken < left { MORE_FRAGMENTS } else { last_has_more };
            // An offset that does not fit is of a packet longer than IPv4 has: nobody can use it.
            let units = u16::try_from(done / UNIT_BYTES).ok()?;
            let offset =
                (flags_and_offset & OFFSET).checked_add(units).filter(|it| *it <= OFFSET)?;
            header[6..8].copy_from_slice(&(more | offset).to_be_bytes());
            seal(&mut header, taken);
            fragments.push([&header, &self.payload[done..done + taken]].concat());
            if done == 0 {
                header = without_first_options(&header);
            }
            done += taken;
        }
        Some(fragments)
    }
}

/// The header with those options only that stand in every fragment.
fn without_first_options(header: &[u8]) -> Vec<u8> {
    let mut kept = header[..HEADER_BYTES].to_vec();
    let mut options = &header[HEADER_BYTES..];
    while let [kind, rest @ ..] = options {
        let length = match *kind {
            END_OF_OPTIONS => break,
            NO_OPERATION => 1,
            _ => rest.first().map_or(0, |length| usize::from(*length)),
        };
        // One that makes no sense, or goes on beyond the header, ends them.
        let Some(option) = options.get(..length).filter(|option| !option.is_empty()) else { break };
        if kind & COPIED != 0 {
            kept.extend(option);
        }
        options = &options[length..];
    }
    kept.resize(kept.len().next_multiple_of(4), END_OF_OPTIONS);
    kept[0] = 0x40 | (kept.len() / 4) as u8;
    kept
}

/// Makes length and checksum right.
fn seal(header: &mut [u8], payload_bytes: usize) {
    let total = (header.len() + payload_bytes) as u16;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[10..12].fill(0);
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(options: &[u8], flags_and_offset: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45 + (options.len() / 4) as u8, 0];
        bytes.extend(((HEADER_BYTES + options.len() + payload.len()) as u16).to_be_bytes());
        bytes.extend(7u16.to_be_bytes());
        bytes.extend(flags_and_offset.to_be_bytes());
        bytes.extend([64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
        bytes.extend(options);
        bytes.extend(payload);
        bytes
    }

    fn number(bytes: &[u8], at: usize) -> u16 {
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    fn sum(header: &[u8]) -> u32 {
        let words = header.chunks_exact(2).map(|it| u32::from(number(it, 0)));
        words.fold(0, |sum, word| (sum + word) % 0xffff)
    }

    /// What a receiver makes of the fragments: each must be right by itself.
    fn whole(fragments: &[Vec<u8>], mtu: usize) -> Vec<u8> {
        let mut payload = vec![];
        for (index, fragment) in fragments.iter().enumerate() {
            let header = usize::from(fragment[0] & 15) * 4;
            assert!(fragment.len() <= mtu && usize::from(number(fragment, 2)) == fragment.len());
            assert_eq!(sum(&fragment[..header]), 0, "checksum of {index}");
            let at = usize::from(number(fragment, 6) & OFFSET) * UNIT_BYTES;
            assert_eq!(at, payload.len(), "{index} begins where the one before it ends");
            let more = number(fragment, 6) & MORE_FRAGMENTS != 0;
            assert_eq!(more, index + 1 < fragments.len(), "more after {index}");
            payload.extend(&fragment[header..]);
        }
        payload
    }

    #[test]
    fn the_pieces_are_the_packet_for_every_mtu() {
        let payload: Vec<u8> = (0..400u16).map(|it| it as u8).collect();
        for options in [vec![], vec![0x94, 4, 0, 0], vec![7, 7, 4, 0, 0, 0, 0, 0]] {
            let bytes = packet(&options, 0, &payload);
            let least = HEADER_BYTES + options.len() + UNIT_BYTES;
            assert!(Packet::new(&bytes).unwrap().fragments(least - 1, 1).is_none());
            for mtu in least..500 {
                let fragments = Packet::new(&bytes).unwrap().fragments(mtu, 1).unwrap();
                assert_eq!(whole(&fragments, mtu), payload, "mtu {mtu}");
            }
        }
    }

    #[test]
    fn only_options_that_are_to_be_copied_are_in_later_fragments() {
        // Record route (not copied), no operation, router alert (copied).
        let options = [7, 7, 4, 0, 0, 0, 0, 1, 0x94, 4, 0, 0];
        let bytes = packet(&options, 0, &[9; 64]);
        let fragments = Packet::new(&bytes).unwrap().fragments(60, 1).unwrap();
        assert_eq!(fragments[0][20..32], options);
        assert_eq!((fragments[1][0], &fragments[1][20..24]), (0x46, &[0x94, 4, 0, 0][..]));
    }

    #[test]
    fn a_fragment_is_cut_further_and_one_in_the_middle_stays_one() {
        let bytes = packet(&[], MORE_FRAGMENTS | 100, &[9; 32]);
        let fragments = Packet::new(&bytes).unwrap().fragments(36, 1).unwrap();
        let flags: Vec<u16> = fragments.iter().map(|it| number(it, 6)).collect();
        assert_eq!(flags, [MORE_FRAGMENTS | 100, MORE_FRAGMENTS | 102]);
        let last = packet(&[], OFFSET, &[9; 32]);
        assert!(Packet::new(&last).unwrap().fragments(36, 1).is_none(), "beyond what IPv4 has");
    }

    #[test]
    fn fragments_of_identification_0_get_one_and_the_same() {
        let identification = |flags, payload: &[u8]| {
            let mut bytes = packet(&[], flags, payload);
            bytes[4..6].fill(0);
            number(&Packet::new(&bytes).unwrap().bytes(), 4)
        };
        let first = identification(MORE_FRAGMENTS, &[1; 8]);
        assert_eq!((first, first == 0), (identification(5, &[2; 16]), false));
        assert_eq!(identification(0, &[1; 8]), 0, "whole: the kernel picks one");
    }

    #[test]
    fn packets_of_identification_0_are_cut_into_fragments_of_their_own() {
        let cut = |flags, fresh| {
            let mut bytes = packet(&[], flags, &[1; 32]);
            bytes[4..6].fill(0);
            let fragments = Packet::new(&bytes).unwrap().fragments(36, fresh).unwrap();
            fragments.iter().map(|fragment| number(fragment, 4)).collect::<Vec<_>>()
        };
        assert_eq!((cut(0, 8), cut(0, 9)), (vec![8; 2], vec![9; 2]));
        assert_eq!(
            cut(MORE_FRAGMENTS, 8),
            cut(MORE_FRAGMENTS, 9),
            "they stay with the rest of their packet"
        );
    }

    #[test]
    fn what_is_no_packet_is_none_and_padding_is_cut_off() {
        let bytes = packet(&[], 0, &[9; 3]);
        for length in 0..bytes.len() {
            assert!(Packet::new(&bytes[..length]).is_none(), "{length}");
        }
        let padded = [&bytes[..], &[0; 30]].concat();
        assert_eq!(Packet::new(&padded).unwrap().bytes().len(), bytes.len());
        for (at, value) in [(0, 0x44), (0, 0x65), (3, 19)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(Packet::new(&wrong).is_none(), "byte {at} is {value}");
        }
    }
}
