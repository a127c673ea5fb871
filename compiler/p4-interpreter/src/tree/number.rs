//! Arithmetic of scalars (spec §8.6 to §8.9).

use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};
use p4_check::hir::{BinaryOp, UnaryOp};

use super::data::wrap;
use super::{Run, broken, undefined, unsupported};

/// Width and signedness; None: `int`, or a type without bits.
pub(crate) type Shape = Option<(u32, bool)>;

/// The bits of a number, as an unsigned one.
pub(crate) fn pattern(value: &BigInt, width: u32) -> BigInt {
    wrap(value, width, false)
}

/// Bits `high..=low`.
pub(crate) fn slice(value: &BigInt, high: u32, low: u32) -> BigInt {
    wrap(&(value >> low), high - low + 1, false)
}

/// The number with bits `high..=low` replaced (spec §8.6: slices as l-values).
pub(crate) fn with_slice(
    whole: &BigInt,
    (high, low): (u32, u32),
    part: &BigInt,
    (width, signed): (u32, bool),
) -> BigInt {
    let bits = pattern(whole, width);
    let old = slice(&bits, high, low);
    wrap(&(bits - (old << low) + (pattern(part, high - low + 1) << low)), width, signed)
}

fn reduce(value: BigInt, shape: Shape) -> BigInt {
    match shape {
        Some((width, signed)) => wrap(&value, width, signed),
        None => value,
    }
}

pub(crate) fn truth(value: bool) -> BigInt {
    BigInt::from(u8::from(value))
}

pub(crate) fn unary(op: UnaryOp, value: &BigInt, shape: Shape) -> BigInt {
    match op {
        UnaryOp::Not => truth(value.is_zero()),
        UnaryOp::BitNot => reduce(-value - 1, shape),
        UnaryOp::Neg => reduce(-value, shape),
        UnaryOp::Plus => value.clone(),
    }
}

/// `left` and `right` are the shapes of the operands.
pub(crate) fn binary(
    op: BinaryOp,
    a: &BigInt,
    b: &BigInt,
    left: Shape,
    right: Shape,
) -> Run<BigInt> {
    Ok(match op {
        BinaryOp::Eq => truth(a == b),
        BinaryOp::Ne => truth(a != b),
        BinaryOp::Lt => truth(a < b),
        BinaryOp::Le => truth(a <= b),
        BinaryOp::Gt => truth(a > b),
        BinaryOp::Ge => truth(a >= b),
        BinaryOp::And => truth(!a.is_zero() && !b.is_zero()),
        BinaryOp::Or => truth(!a.is_zero() || !b.is_zero()),
        BinaryOp::Add => reduce(a + b, left),
        BinaryOp::Sub => reduce(a - b, left),
        BinaryOp::Mul => reduce(a * b, left),
        BinaryOp::BitAnd => reduce(a & b, left),
        BinaryOp::BitOr => reduce(a | b, left),
        BinaryOp::BitXor => reduce(a ^ b, left),
        BinaryOp::SatAdd => saturate(a + b, left)?,
        BinaryOp::SatSub => saturate(a - b, left)?,
        BinaryOp::Div | BinaryOp::Mod if b.is_zero() => return undefined("division by zero"),
        BinaryOp::Div | BinaryOp::Mod if a.is_negative() || b.is_negative() => {
            return undefined("division of negative numbers");
        }
        BinaryOp::Div => reduce(a / b, left),
        BinaryOp::Mod => reduce(a % b, left),
        BinaryOp::Shl | BinaryOp::Shr => shift(op, a, b, left)?,
        BinaryOp::Concat => match (left, right) {
            (Some((wa, signed)), Some((wb, _))) => {
                wrap(&((pattern(a, wa) << wb) + pattern(b, wb)), wa + wb, signed)
            }
            _ => return broken("`++` of something without a width"),
        },
    })
}

/// Spec §8.6: to the nearest value of the type.
fn saturate(value: BigInt, shape: Shape) -> Run<BigInt> {
    let Some((width, signed)) = shape else {
        return broken("saturating arithmetic without a width");
    };
    let (low, high) = match signed {
        true => (-(BigInt::one() << (width - 1)), (BigInt::one() << (width - 1)) - 1),
        false => (BigInt::zero(), (BigInt::one() << width) - 1),
    };
    Ok(value.clamp(low, high))
}

/// Spec §8.6, §8.7: `>>` of a signed number keeps its sign; by the width or more, nothing is left
/// but the sign.
fn shift(op: BinaryOp, a: &BigInt, b: &BigInt, shape: Shape) -> Run<BigInt> {
    if b.is_negative() {
        return undefined("a shift by a negative amount");
    }
    let limit = shape.map_or(8192, |(width, _)| width);
    let amount = b.to_u32().unwrap_or(u32::MAX);
    Ok(match (op, amount > limit) {
        (BinaryOp::Shr, _) => a >> amount.min(limit),
        (_, false) => reduce(a << amount, shape),
        (_, true) if shape.is_none() => return unsupported("a shift of int by so much"),
        (_, true) => BigInt::zero(),
    })
}
