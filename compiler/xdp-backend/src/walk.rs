//! Visits every statement and expression of a program.

use p4_ir::{Argument, Block, Expr, ExprKind, Program, Statement, StatementKind, Transition};

/// What a walk calls.
pub trait Visitor {
    /// Each statement, before what is inside it.
    fn statement(&mut self, _statement: &Statement) {}
    /// Each expression that is read, before its operands.
    fn read(&mut self, _expr: &Expr) {}
    /// Each l-value that is written.
    fn write(&mut self, _target: &Expr, _value: Option<&Expr>) {}
}

/// Walks all of a program.
pub fn program(program: &Program, visitor: &mut impl Visitor) {
    block(&program.parser.prologue, visitor);
    for state in &program.parser.states {
        block(&state.body, visitor);
        if let Transition::Select { keys, .. } = &state.transition {
            keys.iter().for_each(|key| expr(key, visitor));
        }
    }
    for action in &program.actions {
        block(&action.body, visitor);
    }
    for table in &program.tables {
        table.keys.iter().for_each(|key| expr(&key.expr, visitor));
    }
    let controls = [
        &program.verify_checksum,
        &program.ingress,
        &program.egress,
        &program.compute_checksum,
        &program.deparser,
    ];
    for control in controls {
        block(&control.body, visitor);
    }
}

/// Walks a block.
pub fn block(body: &Block, visitor: &mut impl Visitor) {
    body.iter().for_each(|inner| statement(inner, visitor));
}

/// Walks a statement.
pub fn statement(statement: &Statement, visitor: &mut impl Visitor) {
    visitor.statement(statement);
    match &statement.kind {
        StatementKind::Assign(target, value) => {
            expr(value, visitor);
            indices(target, visitor);
            visitor.write(target, Some(value));
        }
        StatementKind::If { condition, then, otherwise } => {
            expr(condition, visitor);
            block(then, visitor);
            block(otherwise, visitor);
        }
        StatementKind::Switch { on, cases, default } => {
            expr(on, visitor);
            cases.iter().for_each(|(_, body)| block(body, visitor));
            block(default, visitor);
        }
        StatementKind::Block { body, .. } => block(body, visitor),
        StatementKind::Extern { arguments, result, .. } => {
            for argument in arguments {
                match argument {
                    Argument::In(value) => expr(value, visitor),
                    Argument::Out(target) => {
                        indices(target, visitor);
                        visitor.write(target, None);
                    }
                    Argument::InOut(target) => {
                        expr(target, visitor);
                        visitor.write(target, None);
                    }
                    Argument::DontCare => {}
                }
            }
            if let Some(target) = result {
                indices(target, visitor);
                visitor.write(target, None);
            }
        }
        StatementKind::Extract { header, varbit_bits } => {
            indices(header, visitor);
            varbit_bits.iter().for_each(|bits| expr(bits, visitor));
        }
        StatementKind::Advance(bits) => expr(bits, visitor),
        StatementKind::Verify(condition, error) => {
            expr(condition, visitor);
            expr(error, visitor);
        }
        StatementKind::Emit(header) => expr(header, visitor),
        _ => {}
    }
}

/// The l-value that a slice is a part of; any other as it is.
pub(crate) fn unsliced(mut target: &Expr) -> &Expr {
    while let ExprKind::Slice { base, .. } = &target.kind {
        target = base;
    }
    target
}

/// What an l-value reads to find its place.
fn indices(target: &Expr, visitor: &mut impl Visitor) {
    match &target.kind {
        ExprKind::Field(base, _) | ExprKind::Slice { base, .. } => indices(base, visitor),
        ExprKind::Index(base, index) => {
            indices(base, visitor);
            expr(index, visitor);
        }
        _ => {}
    }
}

/// Walks an expression.
pub(crate) fn expr(value: &Expr, visitor: &mut impl Visitor) {
    visitor.read(value);
    match &value.kind {
        ExprKind::Field(base, _)
        | ExprKind::StackNext(base)
        | ExprKind::StackLast(base)
        | ExprKind::StackLastIndex(base)
        | ExprKind::IsValid(base)
        | ExprKind::Unary(_, base)
        | ExprKind::Cast(base)
        | ExprKind::Slice { base, .. } => expr(base, visitor),
        ExprKind::Index(left, right) | ExprKind::Binary(_, left, right) => {
            expr(left, visitor);
            expr(right, visitor);
        }
        ExprKind::Ternary(condition, then, otherwise) => {
            expr(condition, visitor);
            expr(then, visitor);
            expr(otherwise, visitor);
        }
        ExprKind::StructValue(fields) | ExprKind::HeaderValue(fields) => {
            fields.iter().for_each(|field| expr(field, visitor));
        }
        ExprKind::Const(_)
        | ExprKind::Str(_)
        | ExprKind::Var(_)
        | ExprKind::InvalidHeader
        | ExprKind::Lookahead => {}
    }
}
