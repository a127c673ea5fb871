//! Expressions (spec §8): operands left to right, each saved before the next is evaluated.

use num_bigint::BigInt;
use p4_check::hir::{ApplyPart, BinaryOp, Expr, ExprKind, RecordKind, Value};
use p4_check::ty::Ty;

use super::data::{Data, Step, initial, scalar_bits, wrap};
use super::number::{self, Shape, slice};
use super::{Run, Tree, broken, undefined};

impl<'h> Tree<'h> {
    /// The value of an expression.
    pub(crate) fn eval(&mut self, expr: &'h Expr) -> Run<Data> {
        self.deeper(|tree| tree.eval_now(expr))
    }

    /// The number that something depends on; `what` says what.
    pub(crate) fn number(&mut self, expr: &'h Expr, what: &str) -> Run<BigInt> {
        match self.eval(expr)? {
            Data::Number(value) => Ok(value),
            Data::Undefined => undefined(format!("{what} that was never written")),
            _ => broken(format!("{what} that is not a number")),
        }
    }

    /// The bool that something depends on.
    pub(crate) fn truth(&mut self, expr: &'h Expr, what: &str) -> Run<bool> {
        Ok(self.number(expr, what)? != BigInt::ZERO)
    }

    pub(crate) fn shape(&self, ty: &Ty) -> Shape {
        match scalar_bits(self.hir, &self.ty(ty)) {
            Some(shape) if self.hir.underlying(&self.ty(ty)) != Ty::Bool => Some(shape),
            _ => None,
        }
    }

    fn eval_now(&mut self, expr: &'h Expr) -> Run<Data> {
        match &expr.kind {
            ExprKind::Poison => broken("an expression that has no value"),
            ExprKind::Const(Value::Int(value)) => Ok(Data::Number(value.clone())),
            ExprKind::Const(Value::Str(_)) => Ok(Data::Text),
            ExprKind::Local(local) => self.named(*local),
            ExprKind::Field(base, _)
            | ExprKind::Index(base, _)
            | ExprKind::StackNext(base)
            | ExprKind::StackLast(base)
                if Self::is_lvalue(base) && self.is_variable(base) =>
            {
                let place = self.place(expr)?;
                let ty = self.ty(&expr.ty);
                self.read(&place, &ty)
            }
            ExprKind::Field(base, field) => {
                let base = self.eval(base)?;
                part(&base, Step::Field(*field as usize))
            }
            ExprKind::Index(base, index) => self.element(expr, base, index),
            ExprKind::StackNext(_) | ExprKind::StackLast(_) => {
                broken("next or last of a value that is not a variable")
            }
            ExprKind::StackLastIndex(base) => match self.eval(base)? {
                // Spec §8.18: of an empty stack, undefined.
                Data::Stack(0, _) => Ok(Data::Undefined),
                Data::Stack(next, _) => Ok(Data::Number(BigInt::from(next - 1))),
                _ => broken("lastIndex of a value that is not a stack"),
            },
            ExprKind::Slice(base, high, low) => match self.eval(base)? {
                Data::Number(value) => Ok(Data::Number(slice(&value, *high, *low))),
                _ => Ok(Data::Undefined),
            },
            ExprKind::Unary(op, operand) => {
                let shape = self.shape(&operand.ty);
                match self.eval(operand)? {
                    Data::Number(value) => Ok(Data::Number(number::unary(*op, &value, shape))),
                    _ => Ok(Data::Undefined),
                }
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right),
            ExprKind::Cast(inner) => self.cast(expr, inner),
            // Spec §8.5.1: only one of the two is evaluated.
            ExprKind::Conditional(condition, then, otherwise) => {
                let chosen = self.truth(condition, "a condition")?;
                self.eval(if chosen { then } else { otherwise })
            }
            ExprKind::Aggregate(parts, order) => {
                let mut values: Vec<Data> = vec![Data::Undefined; parts.len()];
                for place in order.places(parts.len()) {
                    values[place] = self.eval(&parts[place])?;
                }
                Ok(self.compound(&expr.ty, values))
            }
            ExprKind::InvalidHeader => Ok(initial(self.hir, &self.ty(&expr.ty), false)),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::Apply(table, part) => self.apply_part(*table, *part),
            ExprKind::Construct(_) => broken("an instance made at run time"),
        }
    }

    /// Whether the l-value's variable is one, not a constant of the instance.
    fn is_variable(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Local(local) => {
                use p4_check::hir::LocalKind::{ActionData, Parameter, Variable};
                matches!(self.hir.locals[local.index()].kind, Variable | Parameter(_) | ActionData)
            }
            ExprKind::Field(base, _)
            | ExprKind::Index(base, _)
            | ExprKind::StackNext(base)
            | ExprKind::StackLast(base)
            | ExprKind::Slice(base, ..) => self.is_variable(base),
            _ => false,
        }
    }

    fn element(&mut self, expr: &'h Expr, base: &'h Expr, index: &'h Expr) -> Run<Data> {
        let stack = self.eval(base)?;
        let index = self.number(index, "an index")?;
        let index = usize::try_from(&index).unwrap_or(usize::MAX);
        match stack.at(&[Step::Element(index)]) {
            Some(data) => Ok(data.clone()),
            None => Ok(initial(self.hir, &self.ty(&expr.ty), true)),
        }
    }

    fn binary(&mut self, op: BinaryOp, left: &'h Expr, right: &'h Expr) -> Run<Data> {
        // Spec §8.5: the right side only if the left does not decide.
        if matches!(op, BinaryOp::And | BinaryOp::Or) {
            let first = self.truth(left, "an operand of && or ||")?;
            return match (op, first) {
                (BinaryOp::And, false) | (BinaryOp::Or, true) => Ok(Data::bool(first)),
                _ => self.eval(right),
            };
        }
        let (a, b) = (self.eval(left)?, self.eval(right)?);
        if matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            return Ok(match a.equal(&b) {
                Some(equal) => Data::bool(equal == (op == BinaryOp::Eq)),
                None => Data::Undefined,
            });
        }
        match (a, b) {
            (Data::Number(a), Data::Number(b)) => {
                let (left, right) = (self.shape(&left.ty), self.shape(&right.ty));
                Ok(Data::Number(number::binary(op, &a, &b, left, right)?))
            }
            _ => Ok(Data::Undefined),
        }
    }

    /// Spec §8.11: bits are cut or added in front (zeros, or the sign of a signed number), or taken
    /// as they are.
    fn cast(&mut self, expr: &'h Expr, inner: &'h Expr) -> Run<Data> {
        Ok(match (self.eval(inner)?, scalar_bits(self.hir, &self.ty(&expr.ty))) {
            (Data::Number(value), Some((width, signed))) => {
                Data::Number(wrap(&value, width, signed))
            }
            // Of a tuple to a struct, header or stack.
            (Data::Struct(values), None) => self.compound(&expr.ty, values),
            (other, _) => other,
        })
    }

    fn compound(&self, ty: &Ty, values: Vec<Data>) -> Data {
        match self.ty(ty) {
            Ty::Stack(..) => Data::Stack(0, values),
            // Spec §8.17: an initialised header is valid.
            Ty::Record(id, _) if self.hir.records[id.index()].kind == RecordKind::Header => {
                Data::Header(true, values)
            }
            _ => Data::Struct(values),
        }
    }

    fn apply_part(&mut self, table: p4_check::hir::TableDefId, part: ApplyPart) -> Run<Data> {
        let ran = self.apply_table(table)?;
        Ok(match part {
            ApplyPart::All => Data::Undefined,
            ApplyPart::Hit => Data::bool(ran.hit),
            ApplyPart::Miss => Data::bool(!ran.hit),
            ApplyPart::ActionRun => {
                ran.action.map_or(Data::Undefined, |index| Data::Number(BigInt::from(index)))
            }
        })
    }
}

fn part(base: &Data, step: Step) -> Run<Data> {
    match base.at(&[step]) {
        Some(data) => Ok(data.clone()),
        None => broken("a part that is not there"),
    }
}
