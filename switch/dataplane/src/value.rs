//! Values as people write them: numbers, addresses, prefixes, masks; and back.
//!
//! Numbers are unsigned, at most 128 bits wide.

use crate::error::{Error, Result};
use manifest::Enumeration;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The widest value that a map scalar holds, in bits.
pub const MAX_WIDTH: u32 = 128;

/// How an entry matches one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// Everything.
    Any,
    /// Equal.
    Exact(u128),
    /// The first `length` bits.
    Prefix {
        /// Bits past `length` are zero.
        value: u128,
        /// In bits.
        length: u32,
    },
    /// Where the mask has ones.
    Mask {
        /// Zero where the mask is.
        value: u128,
        /// Ones count.
        mask: u128,
    },
    /// From `low` to `high`, both included. Only const entries have ranges: no map can hold them.
    Range {
        /// The least value.
        low: u128,
        /// The greatest.
        high: u128,
    },
}

/// All ones in `width` bits.
pub fn all_ones(width: u32) -> u128 {
    match width {
        0 => 0,
        1..=127 => (1 << width) - 1,
        _ => u128::MAX,
    }
}

/// The mask of a prefix of `length` bits in a value of `width` bits.
pub fn prefix_mask(width: u32, length: u32) -> u128 {
    all_ones(width) & !all_ones(width.saturating_sub(length))
}

impl Match {
    /// The mask that this puts on a key of `width` bits; all ones for a range, which has none.
    pub fn mask(&self, width: u32) -> u128 {
        match *self {
            Match::Any => 0,
            Match::Exact(_) | Match::Range { .. } => all_ones(width),
            Match::Prefix { length, .. } => prefix_mask(width, length),
            Match::Mask { mask, .. } => mask,
        }
    }

    /// The value; zero for [`Match::Any`], the low end of a range.
    pub fn value(&self) -> u128 {
        match *self {
            Match::Any => 0,
            Match::Exact(value) | Match::Prefix { value, .. } | Match::Mask { value, .. } => value,
            Match::Range { low, .. } => low,
        }
    }

    /// The simplest match with this value and mask.
    pub fn from_mask(value: u128, mask: u128, width: u32) -> Match {
        let ones = mask.count_ones();
        if mask == 0 {
            Match::Any
        } else if mask == all_ones(width) {
            Match::Exact(value)
        } else if mask == prefix_mask(width, ones) {
            Match::Prefix { value: value & mask, length: ones }
        } else {
            Match::Mask { value: value & mask, mask }
        }
    }
}

fn refuse<T>(what: &str, text: &str, reason: impl Into<String>) -> Result<T> {
    Err(Error::Value { what: what.to_owned(), text: text.to_owned(), reason: reason.into() })
}

/// Reads a number of at most `width` bits: decimal, `0x`, `0o`, `0b` (with `_` between digits),
/// `-1` (two's complement), `true`, `false`, an IPv4 address (32 bits), a MAC address (48 bits) or
/// an IPv6 address (128 bits). `what` names it in errors.
pub fn parse_value(what: &str, text: &str, width: u32) -> Result<u128> {
    if width > MAX_WIDTH {
        return refuse(
            what,
            text,
            format!("is {width} bits wide; the runtime handles {MAX_WIDTH}"),
        );
    }
    let trimmed = text.trim();
    let value = match address(trimmed) {
        Some((value, bits)) if bits == width => value,
        Some((_, bits)) => {
            return refuse(
                what,
                text,
                format!("an address of {bits} bits, but the field has {width}"),
            );
        }
        None => match number(trimmed, width) {
            Some(value) => value,
            None => {
                return refuse(
                    what,
                    text,
                    "not a number (decimal, 0x, 0o, 0b) or an address (IPv4, IPv6, MAC) that fits 128 bits",
                );
            }
        },
    };
    if value > all_ones(width) {
        return refuse(
            what,
            text,
            format!("does not fit {width} bits (at most {})", all_ones(width)),
        );
    }
    Ok(value)
}

/// Reads a value of an enum: a member's name, or all that [`parse_value`] reads. `None`: the value
/// is of no enum.
pub fn parse_member(
    what: &str,
    text: &str,
    width: u32,
    enumeration: Option<&Enumeration>,
) -> Result<u128> {
    let Some(enumeration) = enumeration else { return parse_value(what, text, width) };
    let trimmed = text.trim();
    match enumeration.value(trimmed) {
        Some(value) => Ok(value),
        None if trimmed.starts_with(|first: char| first.is_alphabetic() || first == '_') => {
            let names = enumeration.members.iter().map(|member| member.name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            parse_value(what, text, width).or_else(|_| {
                refuse(
                    what,
                    text,
                    format!("neither a number nor a member of {}: {names}", enumeration.name),
                )
            })
        }
        None => parse_value(what, text, width),
    }
}

/// An address and its width in bits.
fn address(text: &str) -> Option<(u128, u32)> {
    if let Ok(ipv4) = text.parse::<Ipv4Addr>() {
        return Some((u128::from(u32::from(ipv4)), 32));
    }
    if let Some(mac) = mac(text) {
        return Some((mac, 48));
    }
    text.parse::<Ipv6Addr>().ok().map(|ipv6| (u128::from(ipv6), 128))
}

fn mac(text: &str) -> Option<u128> {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    if parts.len() != 6 {
        return None;
    }
    parts.iter().try_fold(0, |sum, part| match part.len() {
        1 | 2 if part.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(sum << 8 | u128::from_str_radix(part, 16).ok()?)
        }
        _ => None,
    })
}

fn number(text: &str, width: u32) -> Option<u128> {
    match text {
        "true" => return Some(1),
        "false" => return Some(0),
        _ => {}
    }
    if let Some(rest) = text.strip_prefix('-') {
        let magnitude = digits(rest)?;
        // Two's complement: -2^(W-1) is the least that W bits hold.
        return (magnitude <= all_ones(width) / 2 + 1)
            .then(|| magnitude.wrapping_neg() & all_ones(width));
    }
    digits(text)
}

fn digits(text: &str) -> Option<u128> {
    let (radix, rest) = match text.get(..2) {
        Some("0x" | "0X") => (16, &text[2..]),
        Some("0o" | "0O") => (8, &text[2..]),
        Some("0b" | "0B") => (2, &text[2..]),
        _ => (10, text),
    };
    if !rest.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let plain: String = rest.chars().filter(|digit| *digit != '_').collect();
    u128::from_str_radix(&plain, radix).ok()
}

/// Reads a match on a key of `width` bits: a value, `value/length`, `value&&&mask`, `*` or `_` for
/// anything, and `0x0a**`, `0b1*0` with don't-care digits. Bits that do not count are cleared.
pub fn parse_match(what: &str, text: &str, width: u32) -> Result<Match> {
    let trimmed = text.trim();
    if matches!(trimmed, "*" | "_" | "default") {
        return Ok(Match::Any);
    }
    if let Some((value, mask)) = trimmed.split_once("&&&") {
        let value = parse_value(what, value, width)?;
        let mask = parse_value(what, mask, width)?;
        return Ok(Match::Mask { value: value & mask, mask });
    }
    if let Some((value, length)) = trimmed.split_once('/') {
        let value = parse_value(what, value, width)?;
        let length = match length.trim().parse::<u32>() {
            Ok(length) if length <= width => length,
            _ => return refuse(what, text, format!("the prefix length must be 0 to {width}")),
        };
        return Ok(Match::Prefix { value: value & prefix_mask(width, length), length });
    }
    if trimmed.contains('*') {
        return wildcard(what, trimmed, width);
    }
    Ok(Match::Exact(parse_value(what, trimmed, width)?))
}

/// Reads a match on a key that may be of an enum: a member's name, or all that [`parse_match`]
/// reads.
pub fn parse_match_of(
    what: &str,
    text: &str,
    width: u32,
    enumeration: Option<&Enumeration>,
) -> Result<Match> {
    let Some(enumeration) = enumeration else { return parse_match(what, text, width) };
    match enumeration.value(text.trim()) {
        Some(value) => Ok(Match::Exact(value)),
        None => parse_match(what, text, width)
            .or_else(|_| parse_member(what, text, width, Some(enumeration)).map(Match::Exact)),
    }
}

/// `0x0a**` and `0b1*0`.
fn wildcard(what: &str, text: &str, width: u32) -> Result<Match> {
    let (bits, rest) = match text.get(..2) {
        Some("0x" | "0X") => (4, &text[2..]),
        Some("0b" | "0B") => (1, &text[2..]),
        _ => return refuse(what, text, "don't-care digits need 0x or 0b before them"),
    };
    let (mut value, mut mask) = (0u128, 0u128);
    for digit in rest.chars().filter(|digit| *digit != '_') {
        if value >> (128 - bits) != 0 || mask >> (128 - bits) != 0 {
            return refuse(what, text, "more than 128 bits");
        }
        let (digit_value, digit_mask) = match digit {
            '*' => (0, 0),
            _ => match digit.to_digit(1 << bits) {
                Some(number) => (u128::from(number), all_ones(bits)),
                None => return refuse(what, text, format!("{digit:?} is not a digit")),
            },
        };
        value = value << bits | digit_value;
        mask = mask << bits | digit_mask;
    }
    if value > all_ones(width) {
        return refuse(what, text, format!("does not fit {width} bits"));
    }
    // Digits that are not written are zero, and they count, as in `0x0a` for a 32-bit field.
    let written =
        u32::try_from(rest.chars().filter(|digit| *digit != '_').count()).unwrap_or(u32::MAX);
    let above = all_ones(width) & !all_ones(written.saturating_mul(bits).min(width));
    Ok(Match::Mask { value, mask: (mask & all_ones(width)) | above })
}

/// How a value is best read, going by its width and its field's name: addresses as addresses, the
/// rest in decimal or hexadecimal.
pub fn format_value(value: u128, width: u32, name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let looks_like_address = [
        "addr",
        "ip",
        "dst",
        "src",
        "hop",
        "gateway",
        "prefix",
        "external",
        "internal",
        "source",
        "destination",
    ]
    .iter()
    .any(|part| name.contains(part));
    match width {
        32 if looks_like_address => {
            Ipv4Addr::from(u32::try_from(value).unwrap_or(u32::MAX)).to_string()
        }
        48 => {
            let bytes = value.to_be_bytes();
            bytes[10..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        }
        128 if looks_like_address
            || ["inside", "outside", "remote", "peer", "client", "server"]
                .iter()
                .any(|part| name.contains(part)) =>
        {
            Ipv6Addr::from(value).to_string()
        }
        0..=32 => value.to_string(),
        _ => format!("{value:#x}"),
    }
}

/// As [`format_value`]; a negative number of type int<W> with its sign, as [`parse_value`] takes
/// it.
pub fn format_number(value: u128, width: u32, signed: bool, name: &str) -> String {
    let negative = signed && (1..=MAX_WIDTH).contains(&width) && value >> (width - 1) & 1 == 1;
    if negative {
        format!("-{}", value.wrapping_neg() & all_ones(width))
    } else {
        format_value(value, width, name)
    }
}

/// Masks read best in hexadecimal.
pub fn format_match(what: &Match, width: u32, name: &str) -> String {
    match *what {
        Match::Any => "*".to_owned(),
        Match::Exact(value) => format_value(value, width, name),
        Match::Prefix { value, length } => format!("{}/{length}", format_value(value, width, name)),
        Match::Mask { value, mask } => {
            let text = format_value(value, width, name);
            // An address with an address, a number with a number.
            if text.contains(['.', ':']) {
                return format!("{text}&&&{}", format_value(mask, width, name));
            }
            format!("{value:#x}&&&{mask:#x}")
        }
        Match::Range { low, high } => {
            format!("{}..{}", format_value(low, width, name), format_value(high, width, name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, width: u32) -> Option<u128> {
        parse_value("key", text, width).ok()
    }

    #[test]
    fn members_of_an_enum_are_read_by_name() {
        let member = |name: &str, value: &str| manifest::EnumMember {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let members = vec![member("TCP", "6"), member("UDP", "17")];
        let protocol = Enumeration { name: "Protocol".to_owned(), members };
        let read = |text| parse_member("key", text, 8, Some(&protocol)).ok();
        assert_eq!(
            (read("TCP"), read("Protocol.UDP"), read("0x11")),
            (Some(6), Some(17), Some(17))
        );
        assert_eq!((read("Other.UDP"), read("SCTP"), read("256")), (None, None, None));
        let refused = parse_member("key", "SCTP", 8, Some(&protocol)).unwrap_err().to_string();
        assert!(refused.contains("member of Protocol: TCP, UDP"), "{refused}");
        assert_eq!(parse_member("key", "TCP", 8, None).ok(), None);
        let matched = |text| parse_match_of("key", text, 8, Some(&protocol)).ok();
        assert_eq!(matched("UDP"), Some(Match::Exact(17)));
        assert_eq!(matched("6&&&7"), Some(Match::Mask { value: 6, mask: 7 }));
        assert_eq!((matched("*"), matched("SCTP")), (Some(Match::Any), None));
        assert_eq!((protocol.member(17), protocol.member(18)), (Some("UDP"), None));
    }

    #[test]
    fn masks_are_written_as_their_values_and_read_again() {
        let mask = |value, mask, width, name| {
            let what = Match::Mask { value, mask };
            let text = format_match(&what, width, name);
            assert_eq!(parse_match(name, &text, width).ok(), Some(what), "{text}");
            text
        };
        assert_eq!(
            mask(0x0a00_0000, 0xff00_ff00, 32, "hdr.ipv4.dstAddr"),
            "10.0.0.0&&&255.0.255.0"
        );
        assert_eq!(mask(6, 7, 8, "hdr.ipv4.protocol"), "0x6&&&0x7");
    }

    #[test]
    fn reads_numbers_and_addresses() {
        assert_eq!(value("17", 8), Some(17));
        assert_eq!(value("0xFF", 8), Some(255));
        assert_eq!(value("0b1_01", 8), Some(5));
        assert_eq!(value("-1", 8), Some(255));
        assert_eq!(value("-128", 8), Some(128));
        assert_eq!(value("-129", 8), None);
        assert_eq!(value("true", 1), Some(1));
        assert_eq!(value("10.0.0.1", 32), Some(0x0a00_0001));
        assert_eq!(value("00:11:22:33:44:55", 48), Some(0x0011_2233_4455));
        assert_eq!(value("2001:db8::1", 128), Some(0x2001_0db8_0000_0000_0000_0000_0000_0001));
        assert_eq!(value("0xffffffffffffffffffffffffffffffff", 128), Some(u128::MAX));
    }

    #[test]
    fn refuses_what_does_not_fit() {
        for (text, width) in [
            ("256", 8),
            ("2", 1),
            ("10.0.0.1", 16),
            ("", 8),
            ("0x", 8),
            ("x", 8),
            ("+1", 8),
            ("0x1ffffffffffffffffffffffffffffffff", 128),
            ("1", 129),
            ("é1", 8),
        ] {
            assert_eq!(value(text, width), None, "{text} in {width} bits");
        }
    }

    #[test]
    fn reads_matches() {
        let read = |text, width| parse_match("key", text, width).ok();
        assert_eq!(read("10.1.2.3/8", 32), Some(Match::Prefix { value: 0x0a00_0000, length: 8 }));
        assert_eq!(read("0.0.0.0/0", 32), Some(Match::Prefix { value: 0, length: 0 }));
        assert_eq!(read("1/33", 32), None);
        assert_eq!(read("0x12&&&0xf0", 8), Some(Match::Mask { value: 0x10, mask: 0xf0 }));
        assert_eq!(read("*", 8), Some(Match::Any));
        assert_eq!(read("0x1*", 8), Some(Match::Mask { value: 0x10, mask: 0xf0 }));
        assert_eq!(read("0x1*", 16), Some(Match::Mask { value: 0x10, mask: 0xfff0 }));
        assert_eq!(read("0b1*0", 3), Some(Match::Mask { value: 0b100, mask: 0b101 }));
        assert_eq!(read("0b2*", 8), None);
        assert_eq!(read("12*", 16), None);
        assert_eq!(read("0x***", 9), Some(Match::Mask { value: 0, mask: 0 }));
    }

    #[test]
    fn signed_numbers_keep_their_sign() {
        for (width, text) in
            [(8, "-1"), (8, "-128"), (9, "-2"), (64, "-9223372036854775808"), (128, "-5")]
        {
            let read = value(text, width).unwrap();
            assert_eq!(format_number(read, width, true, "x"), text, "in {width} bits");
            assert!(!format_number(read, width, false, "x").starts_with('-'));
        }
        assert_eq!(format_number(127, 8, true, "x"), "127");
    }

    #[test]
    fn writes_what_it_reads() {
        for (text, width, name) in [
            ("10.0.0.1", 32, "hdr.ipv4.dst_addr"),
            ("7", 32, "port"),
            ("00:11:22:33:44:55", 48, "mac"),
            ("2001:db8::1", 128, "ip6"),
            ("::ffff:10.1.0.10", 128, "inside"),
            ("0x123456789012345678901234567890", 128, "key"),
            ("0x1234567890", 64, "x"),
        ] {
            let number = parse_value(name, text, width).unwrap();
            assert_eq!(format_value(number, width, name), text);
        }
        assert_eq!(
            format_match(&Match::Prefix { value: 0x0a00_0000, length: 8 }, 32, "dst"),
            "10.0.0.0/8"
        );
        assert_eq!(
            Match::from_mask(0x0a00_0001, 0xff00_0000, 32),
            Match::Prefix { value: 0x0a00_0000, length: 8 }
        );
    }
}
