//! The Internet checksum, by whole sums: the oracles never update incrementally, so that they share
//! no mistake with what they judge.

/// The one's complement sum of big-endian words; an odd last byte counts as the upper half of a
/// word.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}

/// What a checksum over `bytes` (its own field zero) must be.
pub(crate) fn of(sum: u64) -> u16 {
    !(sum % 0xffff) as u16
}

/// The checksum after the words that it covers summed up to `before` and now sum up to `after`:
/// right if it was right, and wrong by the same difference if it was wrong (RFC 1624, section 3). A
/// sum of zero is written as 0xffff, as RFC 1624's equation 3 has it.
pub(crate) fn kept(checksum: u16, before: u64, after: u64) -> u16 {
    let complement = (u64::from(!checksum) + after + 0xffff - before % 0xffff) % 0xffff;
    !(if complement == 0 { 0xffff } else { complement as u16 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1624_section_4() {
        // Its example: HC = 0xDD2F, a word goes from 0x5555 to 0x3285; the answer is 0x0000, not
        // 0xFFFF.
        assert_eq!(kept(0xdd2f, 0x5555, 0x3285), 0x0000);
    }
}
