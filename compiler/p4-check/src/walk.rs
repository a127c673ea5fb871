//! Walks over checked bodies.

use crate::hir::*;

/// Visits every expression of a block.
pub fn block<'e>(b: &'e [Stmt], visit: &mut dyn FnMut(&'e Expr)) {
    for s in b {
        match &s.kind {
            StmtKind::Variable(_, init) => init.iter().for_each(|e| expr(e, visit)),
            StmtKind::Object(_, e) | StmtKind::ValueSet(_, e) | StmtKind::Call(e) => expr(e, visit),
            StmtKind::Assign(a, b) => {
                expr(a, visit);
                expr(b, visit);
            }
            StmtKind::If(c, x, y) => {
                expr(c, visit);
                block(x, visit);
                block(y, visit);
            }
            StmtKind::Block(b, _) => block(b, visit),
            StmtKind::Switch { subject, cases, default } => {
                expr(subject, visit);
                cases.iter().for_each(|(_, b)| block(b, visit));
                block(default, visit);
            }
            StmtKind::ActionSwitch { cases, default, .. } => {
                cases.iter().for_each(|(_, b)| block(b, visit));
                block(default, visit);
            }
            StmtKind::Return(v) => v.iter().for_each(|e| expr(e, visit)),
            StmtKind::Exit => {}
        }
    }
}

/// Visits an expression and its parts.
pub fn expr<'e>(e: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    visit(e);
    match &e.kind {
        ExprKind::Field(b, _)
        | ExprKind::StackNext(b)
        | ExprKind::StackLast(b)
        | ExprKind::StackLastIndex(b)
        | ExprKind::Slice(b, ..)
        | ExprKind::Unary(_, b)
        | ExprKind::Cast(b) => expr(b, visit),
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => {
            expr(a, visit);
            expr(b, visit);
        }
        ExprKind::Conditional(a, b, c) => {
            expr(a, visit);
            expr(b, visit);
            expr(c, visit);
        }
        ExprKind::Aggregate(list, _) => list.iter().for_each(|e| expr(e, visit)),
        ExprKind::Call(c) => {
            match &c.callee {
                Callee::Method(o, _)
                | Callee::Block(o)
                | Callee::IsValid(o)
                | Callee::SetValid(o, _)
                | Callee::PushFront(o)
                | Callee::PopFront(o) => expr(o, visit),
                _ => {}
            }
            c.args.iter().flatten().for_each(|e| expr(e, visit));
        }
        ExprKind::Construct(c) => c.args.iter().flatten().for_each(|e| expr(e, visit)),
        _ => {}
    }
}

/// In how many places of a parser or control the instance is applied (or handed on).
pub fn applications(def: &BlockDef, instance: LocalId) -> usize {
    let mut count = 0;
    let mut see = |e: &Expr| {
        if matches!(e.kind, ExprKind::Local(id) if id == instance) {
            count += 1;
        }
    };
    block(&def.body, &mut see);
    for s in &def.states {
        block(&s.body, &mut see);
    }
    block(&def.locals, &mut see);
    count
}
