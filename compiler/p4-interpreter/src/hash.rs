//! The hash functions of v1model, bit by bit from their definitions.

/// CRC-32 (ISO-HDLC): reflected polynomial 0x04c11db7, all ones before and after.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// CRC-16/ARC: reflected polynomial 0x8005, from 0.
pub(crate) fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 };
        }
    }
    crc
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
}

/// The Internet checksum (RFC 1071).
pub(crate) fn csum16(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for word in words(bytes) {
        sum += u32::from(word);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// All 16-bit words, exclusive-or.
pub(crate) fn xor16(bytes: &[u8]) -> u16 {
    words(bytes).fold(0, |mix, word| mix ^ word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_the_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc16(b"123456789"), 0xbb3d);
        // RFC 1071 §3.
        assert_eq!(csum16(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(xor16(&[1, 2, 3, 4, 5]), 0x0102 ^ 0x0304 ^ 0x0500);
    }
}
