//! Arithmetic of compile-time constants, with P4's rules and bounds on size.

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use p4_syntax::ast::{BinaryOp, UnaryOp};

use crate::ty::Ty;

/// Widest `bit<N>` and `int<N>`.
pub const MAX_WIDTH: u32 = 2048;
/// Most bits of an arbitrary-precision constant.
pub const MAX_CONST_BITS: u64 = 8192;

/// Largest value of `bit<width>`: all ones.
pub fn all_ones(width: u32) -> BigInt {
    (BigInt::one() << width) - 1
}

/// Reduces modulo 2^width into the range of the type.
pub fn wrap(value: &BigInt, width: u32, signed: bool) -> BigInt {
    let modulus = BigInt::one() << width;
    let low = value.mod_floor(&modulus);
    if signed && width > 0 && low.bit(u64::from(width) - 1) { low - modulus } else { low }
}

/// Whether the value is in the range of the type.
pub fn fits(value: &BigInt, width: u32, signed: bool) -> bool {
    wrap(value, width, signed) == *value
}

fn clamp(value: BigInt, width: u32, signed: bool) -> BigInt {
    let (low, high) = if signed {
        let half = BigInt::one() << (width - 1);
        (-half.clone(), half - 1)
    } else {
        (BigInt::zero(), all_ones(width))
    };
    value.clamp(low, high)
}

/// Folds a unary operator on a number or bool of type `ty`.
pub fn unary(op: UnaryOp, value: &BigInt, ty: &Ty) -> Result<BigInt, String> {
    let raw = match op {
        UnaryOp::Not => return Ok(if value.is_zero() { BigInt::one() } else { BigInt::zero() }),
        UnaryOp::BitNot => !value,
        UnaryOp::Neg => -value,
        UnaryOp::Plus => value.clone(),
    };
    Ok(match ty.bits() {
        Some((w, s)) => wrap(&raw, w, s),
        None => raw,
    })
}

/// Folds a binary operator. `ty` is the type of the left operand; the result is in the range of the
/// result's type.
pub fn binary(op: BinaryOp, a: &BigInt, b: &BigInt, ty: &Ty, right: &Ty) -> Result<BigInt, String> {
    let bits = ty.bits();
    let raw = match op {
        BinaryOp::Eq => return Ok(truth(a == b)),
        BinaryOp::Ne => return Ok(truth(a != b)),
        BinaryOp::Lt => return Ok(truth(a < b)),
        BinaryOp::Le => return Ok(truth(a <= b)),
        BinaryOp::Gt => return Ok(truth(a > b)),
        BinaryOp::Ge => return Ok(truth(a >= b)),
        BinaryOp::And => return Ok(truth(!a.is_zero() && !b.is_zero())),
        BinaryOp::Or => return Ok(truth(!a.is_zero() || !b.is_zero())),
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::BitAnd => a & b,
        BinaryOp::BitOr => a | b,
        BinaryOp::BitXor => a ^ b,
        BinaryOp::SatAdd | BinaryOp::SatSub => {
            let raw = if op == BinaryOp::SatAdd { a + b } else { a - b };
            let Some((w, s)) = bits else {
                return Err("saturating arithmetic needs a width".into());
            };
            return Ok(clamp(raw, w, s));
        }
        BinaryOp::Div | BinaryOp::Mod => {
            if b.is_zero() {
                return Err("division by zero".into());
            }
            if a.is_negative() || b.is_negative() {
                return Err("division of negative numbers is not defined".into());
            }
            if op == BinaryOp::Div { a / b } else { a % b }
        }
        BinaryOp::Shl | BinaryOp::Shr => shift(op, a, b, bits)?,
        BinaryOp::Concat => {
            let (Some((wa, sa)), Some((wb, _))) = (bits, right.bits()) else {
                return Err("`++` needs operands with a width".into());
            };
            let raw = (a << wb) | wrap(b, wb, false);
            return Ok(wrap(&raw, wa + wb, sa));
        }
    };
    match bits {
        Some((w, s)) => Ok(wrap(&raw, w, s)),
        None if raw.bits() > MAX_CONST_BITS => {
            Err(format!("the constant needs more than {MAX_CONST_BITS} bits"))
        }
        None => Ok(raw),
    }
}

fn shift(
    op: BinaryOp,
    a: &BigInt,
    b: &BigInt,
    bits: Option<(u32, bool)>,
) -> Result<BigInt, String> {
    if b.sign() == Sign::Minus {
        return Err("negative shift amount".into());
    }
    let amount = b.to_u64().unwrap_or(u64::MAX);
    if op == BinaryOp::Shr {
        return Ok(match amount {
            n if n > MAX_CONST_BITS => {
                if a.is_negative() {
                    -BigInt::one()
                } else {
                    BigInt::zero()
                }
            }
            n => a >> n,
        });
    }
    match bits {
        Some((w, _)) if amount >= u64::from(w) => Ok(BigInt::zero()),
        None if amount.saturating_add(a.bits()) > MAX_CONST_BITS && !a.is_zero() => {
            Err(format!("the constant needs more than {MAX_CONST_BITS} bits"))
        }
        _ if a.is_zero() => Ok(BigInt::zero()),
        _ => Ok(a << amount),
    }
}

fn truth(b: bool) -> BigInt {
    BigInt::from(u8::from(b))
}

/// Bits `high..=low` of the number.
pub fn slice(value: &BigInt, high: u32, low: u32) -> BigInt {
    wrap(&(value >> low), high - low + 1, false)
}
