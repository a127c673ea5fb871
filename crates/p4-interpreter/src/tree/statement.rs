//! Statements (P4-16 §12).

use super::value::Value;
use super::{Ended, Run, Tree, broken, undefined};
use p4_check::hir::{Block, Expr, ExprKind, Stmt, StmtKind};
use p4_check::ty::Ty;

impl<'h> Tree<'h> {
    pub(crate) fn block(&mut self, block: &Block) -> Run<()> {
        block.iter().try_for_each(|s| self.statement(s))
    }

    /// Runs one statement. A declaration makes its variable anew each time it is come to.
    pub(crate) fn statement(&mut self, s: &Stmt) -> Run<()> {
        self.spend()?;
        match &s.kind {
            StmtKind::Variable(local, init) => {
                let ty = self.hir.locals[local.index()].ty.clone();
                let value = match init {
                    Some(e) => self.eval(e)?,
                    None => self.initial(&ty, false)?,
                };
                self.locals[local.index()] = Some(value);
            }
            // Made when the program was loaded.
            StmtKind::Object(..) | StmtKind::ValueSet(..) => {}
            StmtKind::Assign(target, value) => {
                let place = self.place(target)?;
                // `{#}` takes the validity away; the fields stay, as with setInvalid.
                if matches!((&value.kind, &target.ty), (ExprKind::InvalidHeader, Ty::Record(..))) {
                    return self.set_valid(&place, false);
                }
                let value = self.eval(value)?;
                self.store(&place, value)?;
            }
            StmtKind::Call(e) => {
                self.eval(e)?;
            }
            StmtKind::If(condition, then, otherwise) => {
                let taken = if self.truth(condition)? { then } else { otherwise };
                self.block(taken)?;
            }
            StmtKind::Block(inner, _) => self.block(inner)?,
            StmtKind::Switch { subject, cases, default } => self.switch(subject, cases, default)?,
            StmtKind::ActionSwitch { table, cases, default } => {
                let ran = self.apply_table(*table)?.1;
                let taken = cases.iter().find(|(labels, _)| labels.contains(&ran)).map_or(default, |(_, b)| b);
                self.block(taken)?;
            }
            StmtKind::Return(value) => {
                let value = match value {
                    Some(e) => Some(self.eval(e)?),
                    None => None,
                };
                return Err(Ended::Return(value));
            }
            StmtKind::Exit => return Err(Ended::Exit),
        }
        Ok(())
    }

    fn switch(&mut self, subject: &Expr, cases: &[(Vec<Expr>, Block)], default: &Block) -> Run<()> {
        let on = match self.eval(subject)? {
            Value::Number(on) => on,
            Value::Undefined => return undefined("a switch on something that was never written"),
            _ => return broken("a switch on what is no scalar"),
        };
        for (labels, body) in cases {
            for label in labels {
                if self.number(label)? == on {
                    return self.block(body);
                }
            }
        }
        self.block(default)
    }
}
