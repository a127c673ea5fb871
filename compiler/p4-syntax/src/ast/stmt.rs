//! Statements.

use super::{Annotations, BinaryOp, Declaration, Expr, Span, VariableDecl};

/// `{ statements }`
#[derive(Clone, Debug)]
pub struct Block {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Statements and declarations.
    pub statements: Vec<Statement>,
    /// The whole block with its braces.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Which.
    pub kind: StatementKind,
    /// The whole statement.
    pub span: Span,
}

/// The statements.
#[derive(Clone, Debug)]
pub enum StatementKind {
    /// `;`
    Empty,
    /// A local variable, constant or instance.
    Declaration(Box<Declaration>),
    /// `l = e;`, or with `op`: `l += e;` and its kin.
    Assign {
        /// Left-hand side; whether it can be written is for the checker.
        target: Expr,
        /// The operator of a compound assignment; its place is `op_span`.
        op: Option<BinaryOp>,
        /// Place of `=` or `+=`.
        op_span: Span,
        /// Right-hand side.
        value: Expr,
    },
    /// `f(x);`, `t.apply();`: always an [`ExprKind::Call`](super::ExprKind::Call).
    Call(Expr),
    /// `if (c) s else s`
    If {
        /// Condition.
        condition: Expr,
        /// Taken when true.
        then_branch: Box<Statement>,
        /// Taken when false.
        else_branch: Option<Box<Statement>>,
    },
    /// `{ ... }`
    Block(Block),
    /// `switch (e) { ... }`
    Switch {
        /// What is switched on; `t.apply().action_run` or any expression.
        subject: Expr,
        /// Cases in order.
        cases: Vec<SwitchCase>,
    },
    /// `for (init; condition; update) body`
    For {
        /// Annotations before it.
        annotations: Annotations,
        /// Declarations, assignments and calls.
        init: Vec<Statement>,
        /// Condition.
        condition: Expr,
        /// Assignments and calls.
        update: Vec<Statement>,
        /// Body.
        body: Box<Statement>,
    },
    /// `for (T x in collection) body`
    ForIn {
        /// Annotations before it.
        annotations: Annotations,
        /// The loop variable; never has an initial value.
        variable: Box<VariableDecl>,
        /// What it runs over.
        collection: ForCollection,
        /// Body.
        body: Box<Statement>,
    },
    /// `break;`
    Break,
    /// `continue;`
    Continue,
    /// `return;` or `return e;`
    Return(Option<Expr>),
    /// `exit;`
    Exit,
}

/// What a `for ... in` loop runs over.
#[derive(Clone, Debug)]
pub enum ForCollection {
    /// A header stack or list.
    Expr(Expr),
    /// `low .. high`, both included.
    Range {
        /// First value.
        low: Expr,
        /// Last value.
        high: Expr,
    },
}

/// One `label:` of a switch, with the block that follows it.
#[derive(Clone, Debug)]
pub struct SwitchCase {
    /// The label.
    pub label: SwitchLabel,
    /// `None` falls through to the next case that has a block.
    pub block: Option<Block>,
    /// The whole case.
    pub span: Span,
}

/// A switch label.
#[derive(Clone, Debug)]
pub enum SwitchLabel {
    /// `default`
    Default(Span),
    /// An action's name or a constant expression.
    Expr(Expr),
}
