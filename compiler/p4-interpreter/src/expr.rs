//! Expressions: P4-16 §8.

use crate::value::{Value, pattern, slice, width, wrap};
use crate::{Interpreter, Run, broken, undefined};
use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};
use p4_ir::{BinaryOp, Expr, ExprKind, Type, UnaryOp};

fn truth(value: bool) -> Value {
    Value::Scalar(BigInt::from(u8::from(value)))
}

impl Interpreter<'_> {
    /// A scalar that has a value.
    pub(crate) fn number(&mut self, expr: &Expr) -> Run<BigInt> {
        match self.eval(expr)? {
            Value::Scalar(number) => Ok(number),
            Value::Undefined => {
                undefined(format!("{} reads what was never written", self.place_text(expr)))
            }
            other => broken(format!("a scalar was expected, not {other:?}")),
        }
    }

    /// A scalar; None: it has no value.
    pub(crate) fn known(&mut self, expr: &Expr) -> Run<Option<BigInt>> {
        match self.eval(expr)? {
            Value::Scalar(number) => Ok(Some(number)),
            Value::Undefined => Ok(None),
            other => broken(format!("a scalar was expected, not {other:?}")),
        }
    }

    pub(crate) fn place_text(&self, expr: &Expr) -> String {
        self.program.place(expr.location)
    }

    pub(crate) fn condition(&mut self, expr: &Expr) -> Run<bool> {
        Ok(!self.number(expr)?.is_zero())
    }

    /// What a variable, or a field of one, holds. (Evaluating its header to pick one field would
    /// copy all of it.)
    fn held(&self, expr: &Expr) -> Option<&Value> {
        match &expr.kind {
            ExprKind::Var(id) => self.storage.get(id.index()),
            ExprKind::Field(base, index) => match self.held(base)? {
                Value::Header { fields, .. } | Value::Struct(fields) | Value::Union(fields) => {
                    fields.get(*index as usize)
                }
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn eval(&mut self, expr: &Expr) -> Run<Value> {
        if let Some(value) = self.held(expr) {
            return Ok(value.clone());
        }
        match &expr.kind {
            ExprKind::Const(value) => Ok(Value::Scalar(value.clone())),
            ExprKind::Var(_)
            | ExprKind::Index(..)
            | ExprKind::StackNext(_)
            | ExprKind::StackLast(_) => {
                let place = self.place(expr)?;
                self.load(&place)
            }
            ExprKind::Field(base, index) => self.field(base, *index),
            ExprKind::StackLastIndex(stack) => {
                let (_, next, _) = self.stack(stack)?;
                Ok(Value::Scalar(wrap(&(BigInt::from(next) - 1), &expr.ty)))
            }
            ExprKind::IsValid(header) => {
                if let Some(Value::Header { valid, .. }) = self.held(header) {
                    return Ok(truth(*valid));
                }
                let valid = match self.eval(header)? {
                    Value::Header { valid, .. } => valid,
                    Value::Union(members) => members
                        .iter()
                        .any(|member| matches!(member, Value::Header { valid: true, .. })),
                    other => return broken(format!("isValid of {other:?}")),
                };
                Ok(truth(valid))
            }
            ExprKind::Slice { base, high, low } => {
                let Some(number) = self.known(base)? else { return Ok(Value::Undefined) };
                let Some(width) = width(&base.ty) else {
                    return broken("a slice of a value that is not a scalar");
                };
                Ok(Value::Scalar(slice(&number, width, *high, *low)))
            }
            ExprKind::Unary(op, operand) => {
                let Some(number) = self.known(operand)? else { return Ok(Value::Undefined) };
                Ok(Value::Scalar(match op {
                    UnaryOp::Negate => wrap(&-number, &expr.ty),
                    // ~x is -x - 1 in two's complement.
                    UnaryOp::Complement => wrap(&(-number - 1), &expr.ty),
                    UnaryOp::Not => BigInt::from(u8::from(number.is_zero())),
                }))
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right, &expr.ty),
            ExprKind::Cast(operand) => {
                let Some(number) = self.known(operand)? else { return Ok(Value::Undefined) };
                Ok(Value::Scalar(wrap(&number, &expr.ty)))
            }
            ExprKind::Ternary(condition, then, otherwise) => {
                if self.condition(condition)? {
                    self.eval(then)
                } else {
                    self.eval(otherwise)
                }
            }
            ExprKind::StructValue(fields) => {
                Ok(Value::Struct(fields.iter().map(|field| self.eval(field)).collect::<Run<_>>()?))
            }
            ExprKind::HeaderValue(fields) => {
                let fields = fields.iter().map(|field| self.eval(field)).collect::<Run<_>>()?;
                Ok(Value::Header { valid: true, fields })
            }
            ExprKind::InvalidHeader => match crate::value::initial(self.program, &expr.ty, true) {
                Ok(value) => Ok(value),
                Err(stop) => Err(stop.into()),
            },
            ExprKind::Lookahead => self.lookahead(&expr.ty),
            ExprKind::Str(_) => broken("a string in an expression"),
        }
    }

    fn field(&mut self, base: &Expr, index: u32) -> Run<Value> {
        match self.eval(base)? {
            Value::Header { mut fields, .. }
            | Value::Struct(mut fields)
            | Value::Union(mut fields)
                if (index as usize) < fields.len() =>
            {
                Ok(fields.swap_remove(index as usize))
            }
            other => broken(format!("field {index} of {other:?}")),
        }
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr, ty: &Type) -> Run<Value> {
        if matches!(op, BinaryOp::And | BinaryOp::Or) {
            // Whether the right side is evaluated depends on it.
            let first = self.condition(left)?;
            return if first == (op == BinaryOp::Or) { Ok(truth(first)) } else { self.eval(right) };
        }
        let (Some(a), Some(b)) = (self.known(left)?, self.known(right)?) else {
            return Ok(Value::Undefined);
        };
        let Some(width_a) = width(&left.ty) else {
            return broken("an operand that is not a scalar");
        };
        Ok(match op {
            BinaryOp::Eq => truth(a == b),
            BinaryOp::Ne => truth(a != b),
            BinaryOp::Lt => truth(a < b),
            BinaryOp::Le => truth(a <= b),
            BinaryOp::Gt => truth(a > b),
            BinaryOp::Ge => truth(a >= b),
            BinaryOp::Div | BinaryOp::Mod if b.is_zero() => {
                return undefined(format!("{}: division by zero", self.place_text(left)));
            }
            _ => Value::Scalar(match op {
                BinaryOp::Add => wrap(&(a + b), ty),
                BinaryOp::Sub => wrap(&(a - b), ty),
                BinaryOp::Mul => wrap(&(a * b), ty),
                BinaryOp::Div => wrap(&(a / b), ty),
                BinaryOp::Mod => wrap(&(a % b), ty),
                BinaryOp::SaturatingAdd => saturate(a + b, ty),
                BinaryOp::SaturatingSub => saturate(a - b, ty),
                BinaryOp::ShiftLeft => wrap(&shift_left(a, &b, width_a), ty),
                // Of a negative number the bits that come in are its sign: division that rounds
                // down.
                BinaryOp::ShiftRight => a >> b.to_u32().unwrap_or(u32::MAX).min(width_a),
                BinaryOp::BitAnd => wrap(&(a & b), ty),
                BinaryOp::BitOr => wrap(&(a | b), ty),
                BinaryOp::BitXor => wrap(&(a ^ b), ty),
                BinaryOp::Concat => {
                    let Some(width_b) = width(&right.ty) else {
                        return broken("an operand that is not a scalar");
                    };
                    wrap(&((pattern(&a, width_a) << width_b) + pattern(&b, width_b)), ty)
                }
                _ => return broken("an operator without meaning"),
            }),
        })
    }
}

fn shift_left(value: BigInt, by: &BigInt, width: u32) -> BigInt {
    match by.to_u32().filter(|by| *by < width) {
        Some(by) => value << by,
        None => BigInt::zero(),
    }
}

/// The nearest value of the type.
fn saturate(value: BigInt, ty: &Type) -> BigInt {
    let Type::Bits { width, signed } = ty else { return value };
    let (low, high) = if *signed {
        let half = BigInt::one() << (width - 1);
        (-half.clone(), half - 1)
    } else {
        (BigInt::zero(), (BigInt::one() << width) - 1)
    };
    value.clamp(low, high)
}
