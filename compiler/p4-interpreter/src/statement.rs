//! Statements: P4-16 §12.

use crate::value::{Place, Value};
use crate::{Interpreter, Interrupt, Run, broken};
use num_bigint::BigInt;
use p4_ir::{Expr, ExprKind, Statement, StatementKind, Type};

impl Interpreter<'_> {
    pub(crate) fn block(&mut self, block: &[Statement]) -> Run<()> {
        block.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Statement) -> Run<()> {
        match &statement.kind {
            // `{#}`: the fields' values stay, as with setInvalid (nobody may ask for them; bmv2
            // keeps them too).
            StatementKind::Assign(
                target,
                Expr { kind: ExprKind::InvalidHeader, ty: Type::Header(_), .. },
            ) => {
                let place = self.place(target)?;
                self.set_valid(&place, false)
            }
            StatementKind::Assign(target, value) => {
                let value = self.eval(value)?;
                let place = self.place(target)?;
                self.store(&place, value)
            }
            StatementKind::If { condition, then, otherwise } => {
                if self.condition(condition)? {
                    self.block(then)
                } else {
                    self.block(otherwise)
                }
            }
            StatementKind::Switch { on, cases, default } => {
                let on = self.number(on)?;
                match cases.iter().find(|(values, _)| values.contains(&on)) {
                    Some((_, body)) => self.block(body),
                    None => self.block(default),
                }
            }
            StatementKind::Block { label, body, .. } => match (self.block(body), label) {
                (Err(Interrupt::Leave(to)), Some(label)) if to == *label => Ok(()),
                (other, _) => other,
            },
            StatementKind::Leave(label) => Err(Interrupt::Leave(*label)),
            StatementKind::Exit => Err(Interrupt::Exit),
            StatementKind::Return => Err(Interrupt::Return),
            StatementKind::SetValid(header, valid) => {
                let place = self.place(header)?;
                self.set_valid(&place, *valid)
            }
            StatementKind::PushFront(stack, count) => self.push_pop(stack, *count as usize, true),
            StatementKind::PopFront(stack, count) => self.push_pop(stack, *count as usize, false),
            StatementKind::Apply { table, hit, action_run } => {
                self.apply(*table, *hit, *action_run)
            }
            StatementKind::Extern { instance, name, arguments, result, .. } => {
                self.call(*instance, name, arguments, result.as_ref())
            }
            StatementKind::Extract { header, varbit_bits } => {
                self.extract(header, varbit_bits.as_ref())
            }
            StatementKind::Skip(bits) => self.advance(&BigInt::from(*bits)),
            StatementKind::Advance(bits) => {
                let bits = self.number(bits)?;
                self.advance(&bits)
            }
            StatementKind::Verify(condition, error) => {
                if self.condition(condition)? {
                    return Ok(());
                }
                let error = self.number(error)?;
                Err(Interrupt::ParserError(u32::try_from(&error).unwrap_or(0)))
            }
            StatementKind::Emit(value) => {
                let emitted = self.eval(value)?;
                self.emit(&emitted, &value.ty)
            }
        }
    }

    /// P4-16 §8.18: elements move up or down, those that come in are invalid; the next index
    /// follows, within the stack.
    fn push_pop(&mut self, stack: &Expr, count: usize, push: bool) -> Run<()> {
        let (place, next, size) = self.stack(stack)?;
        let size = size as usize;
        let count = count.min(size);
        let Value::Stack { mut elements, .. } = self.load(&place)? else {
            return broken("a stack was expected");
        };
        let before = elements.clone();
        let vacated = if push {
            elements.rotate_right(count);
            0..count
        } else {
            elements.rotate_left(count);
            size - count..size
        };
        let next = if push {
            (next as usize + count).min(size)
        } else {
            (next as usize).saturating_sub(count)
        };
        for element in &mut elements[vacated] {
            if let Value::Header { valid, fields } = element {
                *valid = false;
                // What is the same in all elements stays (0, if the stack was never used); else
                // nobody says.
                for (index, field) in fields.iter_mut().enumerate() {
                    let same = |one: &Value| matches!(one, Value::Header { fields, .. } if fields.get(index) == Some(&*field));
                    if matches!(field, Value::Scalar(_)) && !before.iter().all(same) {
                        *field = Value::Undefined;
                    }
                }
            }
        }
        *self.at_mut(&place)? = Value::Stack { elements, next: next as u32 };
        Ok(())
    }

    /// Sets a scalar variable.
    pub(crate) fn set_variable(&mut self, id: p4_ir::VariableId, value: BigInt) {
        self.storage[id.index()] = Value::Scalar(value);
    }

    /// Stores a number, cut to the target's width.
    pub(crate) fn store_number(&mut self, target: &Expr, value: &BigInt) -> Run<()> {
        let place: Place = self.place(target)?;
        let ty: &Type = &target.ty;
        self.store(&place, Value::Scalar(crate::value::wrap(value, ty)))
    }
}
