//! Statements (spec §12).

use num_bigint::BigInt;
use p4_check::hir::{Expr, Stmt, StmtKind};

use super::data::{Data, initial};
use super::{Run, Tree, broken, undefined};

/// How a statement ends, if nothing halts.
pub(crate) enum Next {
    /// The next statement follows.
    Go,
    /// `return`, with its value.
    Return(Option<Data>),
}

impl<'h> Tree<'h> {
    pub(crate) fn block(&mut self, body: &'h [Stmt]) -> Run<Next> {
        for statement in body {
            if let done @ Next::Return(_) = self.deeper(|tree| tree.statement(statement))? {
                return Ok(done);
            }
        }
        Ok(Next::Go)
    }

    fn statement(&mut self, statement: &'h Stmt) -> Run<Next> {
        match &statement.kind {
            StmtKind::Variable(local, init) => {
                // Spec §11.2: new at each execution, its initialiser evaluated then.
                let data = match init {
                    Some(init) => self.eval(init)?.copied(),
                    None => {
                        let data =
                            initial(self.hir, &self.ty(&self.hir.locals[local.index()].ty), false);
                        self.declared(*local, data)
                    }
                };
                match self.frames.last_mut() {
                    Some(frame) => drop(frame.values.insert(*local, data)),
                    None => return broken("a variable outside of everything"),
                }
            }
            // Made when the program was instantiated.
            StmtKind::Object(..) | StmtKind::ValueSet(..) => {}
            StmtKind::Assign(target, value) => {
                // Spec §12.1: the left side to an l-value, then the right side, then the copy.
                let place = self.place(target)?;
                let value = self.eval(value)?;
                self.write(&place, value)?;
            }
            StmtKind::Call(call) => drop(self.eval(call)?),
            StmtKind::If(condition, then, otherwise) => {
                let chosen = self.truth(condition, "a condition")?;
                return self.block(if chosen { then } else { otherwise });
            }
            // Spec §18.4.1: one packet is under way at a time, so that `@atomic` is no question
            // here.
            StmtKind::Block(body, _) => return self.block(body),
            StmtKind::Switch { subject, cases, default } => {
                return self.switch(subject, cases, default);
            }
            StmtKind::ActionSwitch { table, cases, default } => {
                let ran = self.apply_table(*table)?;
                let chosen = cases
                    .iter()
                    .find(|(labels, _)| ran.action.is_some_and(|ran| labels.contains(&ran)));
                return self.block(chosen.map_or(default, |(_, body)| body));
            }
            StmtKind::Return(None) => return Ok(Next::Return(None)),
            StmtKind::Return(Some(value)) => return Ok(Next::Return(Some(self.eval(value)?))),
            StmtKind::Exit => return Err(super::Halt::Exit),
        }
        Ok(Next::Go)
    }

    fn switch(
        &mut self,
        subject: &'h Expr,
        cases: &'h [(Vec<Expr>, Vec<Stmt>)],
        default: &'h [Stmt],
    ) -> Run<Next> {
        let subject: BigInt = match self.eval(subject)? {
            Data::Number(subject) => subject,
            Data::Undefined => return undefined("a switch on what was never written"),
            _ => return broken("a switch on a value that is not a number"),
        };
        for (labels, body) in cases {
            for label in labels {
                if self.number(label, "a label")? == subject {
                    return self.block(body);
                }
            }
        }
        self.block(default)
    }
}
