//! Expressions (P4-16 §8): from left to right, effects as they come.

use super::value::{Place, Value, bits};
use super::{Run, Tree, broken, undefined};
use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};
use p4_check::hir::{self, BinaryOp, Callee, Expr, ExprKind, RecordKind, UnaryOp};
use p4_check::ty::Ty;

/// Whether it names a place.
fn is_path(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Local(_) => true,
        ExprKind::Field(b, _) | ExprKind::Index(b, _) | ExprKind::StackNext(b) | ExprKind::StackLast(b) => is_path(b),
        _ => false,
    }
}

impl<'h> Tree<'h> {
    /// The value of an expression.
    pub(crate) fn eval(&mut self, e: &Expr) -> Run<Value> {
        if is_path(e) && !e.has_effects() {
            let place = self.place(e)?;
            return self.load(&place);
        }
        Ok(match &e.kind {
            ExprKind::Const(hir::Value::Int(v)) => Value::Number(v.clone()),
            ExprKind::Const(hir::Value::Str(s)) => Value::Str(s.to_string()),
            ExprKind::Field(base, index) => self.eval(base)?.field(*index)?,
            ExprKind::Index(base, index) => {
                let Value::Stack { elements, .. } = self.eval(base)? else { return broken("an index into no stack") };
                let index = self.number(index)?;
                match index.to_usize().and_then(|index| elements.into_iter().nth(index)) {
                    Some(element) => element,
                    None => self.initial(&e.ty, true)?,
                }
            }
            ExprKind::StackLastIndex(base) => {
                let Value::Stack { next, .. } = self.eval(base)? else { return broken("lastIndex of no stack") };
                Value::Number(bits(&(BigInt::from(next) - 1), 32))
            }
            ExprKind::Slice(base, high, low) => {
                let (width, _) = self.scalar(&base.ty).unwrap_or((high + 1, false));
                let value = self.number(base)?;
                Value::Number(bits(&(bits(&value, width) >> *low), high - low + 1))
            }
            ExprKind::Unary(op, a) => {
                let v = self.number(a)?;
                let raw = match op {
                    UnaryOp::Not => BigInt::from(u8::from(v.is_zero())),
                    UnaryOp::BitNot => -v - 1,
                    UnaryOp::Neg => -v,
                    UnaryOp::Plus => v,
                };
                Value::Number(self.fit(&raw, &e.ty))
            }
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, &e.ty)?,
            ExprKind::Cast(a) => {
                let value = self.eval(a)?;
                if value == Value::Undefined {
                    return undefined("something that was never written is cast");
                }
                self.cast(value, &e.ty)
            }
            ExprKind::Conditional(c, a, b) => {
                let taken = if self.truth(c)? { a } else { b };
                self.eval(taken)?
            }
            ExprKind::Aggregate(parts, order) => {
                let mut values = vec![Value::Undefined; parts.len()];
                for at in order.places(parts.len()) {
                    values[at] = self.eval(&parts[at])?;
                }
                self.aggregate(values, &e.ty)
            }
            ExprKind::InvalidHeader => self.initial(&e.ty, true)?,
            ExprKind::Call(call) => match &call.callee {
                Callee::IsValid(h) => {
                    let valid = match self.eval(h)? {
                        Value::Header { valid, .. } => valid,
                        Value::Union(members) => {
                            members.iter().any(|member| matches!(member, Value::Header { valid: true, .. }))
                        }
                        _ => return broken("isValid of what is no header"),
                    };
                    Value::Number(BigInt::from(u8::from(valid)))
                }
                _ => match self.call(call, e.span)? {
                    Some(value) => value,
                    None => Value::Undefined,
                },
            },
            ExprKind::Apply(table, part) => self.apply_part(*table, *part)?,
            other => return broken(format!("no value: {other:?}")),
        })
    }

    /// The value of a scalar expression.
    pub(crate) fn number(&mut self, e: &Expr) -> Run<BigInt> {
        match self.eval(e)? {
            Value::Number(number) => Ok(number),
            Value::Undefined => undefined("something that was never written is read"),
            other => broken(format!("a number was expected, not {other:?}")),
        }
    }

    pub(crate) fn truth(&mut self, e: &Expr) -> Run<bool> {
        Ok(!self.number(e)?.is_zero())
    }

    /// The place of an l-value; its indices are evaluated now.
    pub(crate) fn place(&mut self, e: &Expr) -> Run<Place> {
        match &e.kind {
            ExprKind::Local(local) => {
                let ty = e.ty.clone();
                Ok(Place { local: *local, steps: Vec::new(), ty, slice: None, outside: false })
            }
            ExprKind::Field(base, index) => {
                let base = self.place(base)?;
                Ok(step(base, *index as usize, &e.ty))
            }
            ExprKind::Index(base, index) => {
                let base = self.place(base)?;
                let index = self.number(index)?;
                let Value::Stack { elements, .. } = self.load(&base)? else { return broken("an index into no stack") };
                match index.to_usize().filter(|index| *index < elements.len()) {
                    Some(index) => Ok(step(base, index, &e.ty)),
                    None => Ok(Place { outside: true, ..step(base, 0, &e.ty) }),
                }
            }
            ExprKind::StackNext(base) | ExprKind::StackLast(base) => {
                let base = self.place(base)?;
                let Value::Stack { elements, next } = self.load(&base)? else { return broken("next of no stack") };
                let index = match e.kind {
                    ExprKind::StackNext(_) => Some(next).filter(|next| *next < elements.len()),
                    _ => next.checked_sub(1),
                };
                match index {
                    Some(index) => Ok(step(base, index, &e.ty)),
                    None => self.reject("StackOutOfBounds"),
                }
            }
            ExprKind::Slice(base, high, low) => {
                let mut place = self.place(base)?;
                let under = place.slice.map_or(0, |(_, low)| low);
                place.slice = Some((high + under, low + under));
                Ok(place)
            }
            other => broken(format!("no l-value: {other:?}")),
        }
    }

    fn cast(&self, value: Value, to: &Ty) -> Value {
        match value {
            Value::Number(number) => Value::Number(self.fit(&number, to)),
            Value::Struct(values) => self.aggregate(values, to),
            other => other,
        }
    }

    /// Values as a struct, header or stack.
    pub(crate) fn aggregate(&self, values: Vec<Value>, ty: &Ty) -> Value {
        match self.hir.underlying(&ty.substitute(&self.generics)) {
            Ty::Record(id, _) if self.hir.records[id.index()].kind == RecordKind::Header => {
                Value::Header { valid: true, fields: values }
            }
            Ty::Stack(..) => Value::Stack { elements: values, next: 0 },
            _ => Value::Struct(values),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, ty: &Ty) -> Run<Value> {
        let yes = |truth: bool| Ok(Value::Number(BigInt::from(u8::from(truth))));
        match op {
            BinaryOp::And => return if self.truth(a)? { yes(self.truth(b)?) } else { yes(false) },
            BinaryOp::Or => return if self.truth(a)? { yes(true) } else { yes(self.truth(b)?) },
            BinaryOp::Eq | BinaryOp::Ne => {
                let (x, y) = (self.eval(a)?, self.eval(b)?);
                return yes(same(&x, &y)? == (op == BinaryOp::Eq));
            }
            _ => {}
        }
        let (x, y) = (self.number(a)?, self.number(b)?);
        let shift = || y.to_usize().unwrap_or(usize::MAX).min(1 << 13);
        let raw = match op {
            BinaryOp::Lt => return yes(x < y),
            BinaryOp::Le => return yes(x <= y),
            BinaryOp::Gt => return yes(x > y),
            BinaryOp::Ge => return yes(x >= y),
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div | BinaryOp::Mod if y.is_zero() => return undefined("a division by zero"),
            BinaryOp::Div => x / y,
            BinaryOp::Mod => x % y,
            BinaryOp::BitAnd => x & y,
            BinaryOp::BitOr => x | y,
            BinaryOp::BitXor => x ^ y,
            // §8.5: beyond the width 0 is left, or the sign.
            BinaryOp::Shl => x << shift(),
            BinaryOp::Shr => x >> shift(),
            BinaryOp::SatAdd | BinaryOp::SatSub => {
                let (width, signed) = self.scalar(ty).unwrap_or((1, false));
                let (low, high) = if signed {
                    let half = BigInt::one() << (width - 1);
                    (-half.clone(), half - 1)
                } else {
                    (BigInt::zero(), (BigInt::one() << width) - 1)
                };
                (if op == BinaryOp::SatAdd { x + y } else { x - y }).clamp(low, high)
            }
            BinaryOp::Concat => {
                let width = |e: &Expr| self.scalar(&e.ty).map_or(0, |(width, _)| width);
                (bits(&x, width(a)) << width(b)) + bits(&y, width(b))
            }
            _ => return broken("an operator of truth values"),
        };
        Ok(Value::Number(self.fit(&raw, ty)))
    }
}

fn step(mut place: Place, index: usize, ty: &Ty) -> Place {
    place.steps.push(index);
    place.ty = ty.clone();
    place
}

/// P4-16 §8.16 to §8.20: two invalid headers are equal whatever their fields.
fn same(a: &Value, b: &Value) -> Run<bool> {
    let all = |x: &[Value], y: &[Value]| -> Run<bool> {
        for (x, y) in x.iter().zip(y) {
            if !same(x, y)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match (a, b) {
        (Value::Undefined, _) | (_, Value::Undefined) => undefined("something that was never written is compared"),
        (Value::Header { valid: v, fields: x }, Value::Header { valid: w, fields: y }) => {
            Ok(v == w && (!v || all(x, y)?))
        }
        (Value::Struct(x), Value::Struct(y)) | (Value::Union(x), Value::Union(y)) => all(x, y),
        (Value::Stack { elements: x, .. }, Value::Stack { elements: y, .. }) => all(x, y),
        (x, y) => Ok(x == y),
    }
}
