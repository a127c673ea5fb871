//! Values of literals (spec §6.4.3).

use num_bigint::{BigInt, Sign};
use num_traits::{One, Zero};

use crate::ast::IntLiteral;

/// The widest `bit<N>` or `int<N>` that is supported, as in v1model's reference switch.
pub const MAX_WIDTH: u32 = 2048;

/// Most digits of a literal: enough for any supported width, and no time is lost on absurd ones.
const MAX_DIGITS: usize = 4 * MAX_WIDTH as usize;

/// What is wrong with a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiteralError {
    /// The literal cannot be used; what to say.
    Invalid(String),
    /// The value needs more bits than the width says; the literal is reduced to the width.
    Overflow {
        /// The literal with its value reduced.
        literal: IntLiteral,
        /// What to say.
        message: String,
    },
}

/// Reads `255`, `0xff`, `0b1010`, `0o17`, `0d10`, `8w255`, `4s0b0111`, each with `_` between
/// digits.
pub fn parse_int(text: &str) -> Result<IntLiteral, LiteralError> {
    let invalid = |m: String| Err(LiteralError::Invalid(m));
    let Some(split) = text.find(['w', 's']) else {
        return Ok(IntLiteral { value: parse_digits(text)?, width: None, signed: false });
    };
    let (width_text, rest) = text.split_at(split);
    let signed = rest.starts_with('s');
    if !width_text.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return invalid(format!(
            "`{}` is not a width: it must be a decimal number",
            shorten(width_text)
        ));
    }
    let width = match width_text.replace('_', "").parse::<u32>() {
        Ok(0) => return invalid("the width of a literal must be at least 1".into()),
        Ok(w) if w <= MAX_WIDTH => w,
        _ => return invalid(format!("the width of a literal can be at most {MAX_WIDTH} bits")),
    };
    let value = parse_digits(&rest[1..])?;
    fit(value, width, signed)
}

fn fit(value: BigInt, width: u32, signed: bool) -> Result<IntLiteral, LiteralError> {
    let modulus = BigInt::one() << width;
    let limit = if signed { &modulus >> 1 } else { modulus.clone() };
    if value < limit {
        return Ok(IntLiteral { value, width: Some(width), signed });
    }
    // Spec §6.4.3.2: `1w10` is 0 and `1s1` is -1, each with an overflow warning.
    let mut reduced = &value % &modulus;
    if signed && reduced >= limit {
        reduced -= modulus;
    }
    let ty = if signed { "int" } else { "bit" };
    let message = format!("the value does not fit {ty}<{width}> and becomes {reduced}");
    Err(LiteralError::Overflow {
        literal: IntLiteral { value: reduced, width: Some(width), signed },
        message,
    })
}

fn parse_digits(text: &str) -> Result<BigInt, LiteralError> {
    let (radix, digits, kind) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &text[2..], "a hexadecimal"),
        [b'0', b'b' | b'B', ..] => (2, &text[2..], "a binary"),
        [b'0', b'o' | b'O', ..] => (8, &text[2..], "an octal"),
        [b'0', b'd' | b'D', ..] => (10, &text[2..], "a decimal"),
        _ => (10, text, "a decimal"),
    };
    let mut values = Vec::with_capacity(digits.len());
    for c in digits.chars().filter(|c| *c != '_') {
        match c.to_digit(radix) {
            Some(d) => values.push(d as u8),
            None => return Err(LiteralError::Invalid(format!("`{c}` is not {kind} digit"))),
        }
    }
    if values.is_empty() {
        return Err(LiteralError::Invalid(format!("{kind} number needs at least one digit")));
    }
    if values.len() > MAX_DIGITS {
        return Err(LiteralError::Invalid(format!("the number has more than {MAX_DIGITS} digits")));
    }
    Ok(BigInt::from_radix_be(Sign::Plus, &values, radix).unwrap_or_else(BigInt::zero))
}

fn shorten(text: &str) -> &str {
    text.get(..20).unwrap_or(text)
}

/// The value of a string literal given with its quotes. `\"`, `\\`, `\n`, `\r` and `\t` are
/// resolved; any other backslash stands for itself, as the spec leaves escapes to whoever uses the
/// string.
pub fn string_value(literal: &str) -> String {
    let inner = literal.strip_prefix('"').unwrap_or(literal);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = match (c, chars.peek()) {
            ('\\', Some('"')) => '"',
            ('\\', Some('\\')) => '\\',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('t')) => '\t',
            _ => {
                out.push(c);
                continue;
            }
        };
        out.push(escaped);
        chars.next();
    }
    out
}
