//! Bodies of functions, actions and controls in the place of their calls.

use super::*;

impl Lowerer<'_> {
    pub fn too_deep(&mut self, span: Span) -> bool {
        if self.depth >= MAX_INLINE_DEPTH {
            self.error(span, format!("calls are nested more than {MAX_INLINE_DEPTH} deep"));
            self.stopped = true;
        }
        self.depth >= MAX_INLINE_DEPTH || self.stopped
    }

    pub(super) fn inline_function(
        &mut self,
        f: &hir::FunctionDef,
        body: &Rc<hir::Block>,
        c: &hir::Call,
        span: Span,
        out: &mut ir::Block,
    ) -> Option<ir::Expr> {
        if self.too_deep(span) {
            return Some(self.nothing(span));
        }
        let given: Vec<Ty> = c.type_args.iter().map(|t| t.substitute(&self.generics)).collect();
        let mut inner = Vec::new();
        let copies = self.bind_parameters(
            &f.params,
            Args::of(c),
            &f.type_params,
            &given,
            None,
            span,
            &mut inner,
        );
        let outer = std::mem::replace(
            &mut self.generics,
            f.type_params.iter().copied().zip(given).collect(),
        );
        let result = match &f.ret {
            Ty::Void => None,
            t => {
                let ty = self.ty(t);
                Some(self.temporary(&format!("{}_result", f.name), ty, span))
            }
        };
        self.inline_body(
            body,
            result.clone(),
            copies,
            &format!("function {}", f.name),
            span,
            inner,
            out,
        );
        self.generics = outer;
        result
    }

    /// An action called from a control or another action.
    pub(super) fn inline_action(
        &mut self,
        id: hir::ActionDefId,
        args: Args<'_>,
        span: Span,
        out: &mut ir::Block,
    ) {
        if self.too_deep(span) {
            return;
        }
        let hir = self.hir;
        let a = &hir.actions[id.index()];
        let reads = self.locals_of_action(id);
        let mut inner = Vec::new();
        let copies =
            self.bind_parameters(&a.params, args, &[], &[], Some(&reads), span, &mut inner);
        self.inline_body(&a.body, None, copies, &format!("action {}", a.name), span, inner, out);
    }

    /// The body in a labelled block, then the copies out.
    #[allow(clippy::too_many_arguments)]
    pub fn inline_body(
        &mut self,
        body: &Rc<hir::Block>,
        result: Option<ir::Expr>,
        copies: Vec<(ir::Expr, ir::Expr)>,
        comment: &str,
        span: Span,
        mut inner: ir::Block,
        out: &mut ir::Block,
    ) {
        let label = self.label();
        let is_outermost = self.outermost.is_none();
        self.outermost.get_or_insert_with(|| (span, comment.to_string()));
        out.append(&mut inner);
        self.returns.push(ReturnMode::Leave(label, result));
        self.copy_outs.push(copies);
        self.depth += 1;
        let mut statements = Vec::new();
        self.block(body, &mut statements);
        self.depth -= 1;
        self.outermost.take_if(|_| is_outermost);
        self.returns.pop();
        let copies = self.copy_outs.pop().unwrap_or_default();
        // A jump to the end as the last statement is no jump.
        if matches!(statements.last().map(|s| &s.kind), Some(ir::StatementKind::Leave(l)) if *l == label)
        {
            statements.pop();
        }
        let label = leaves(&statements, label).then_some(label);
        let kind = ir::StatementKind::Block {
            label,
            body: statements,
            comment: Some(comment.to_string()),
            atomic: false,
        };
        self.push(out, kind, span);
        for (to, from) in copies {
            self.assign(to, from, span, out);
        }
    }

    /// Lets parameters stand for arguments or copies of them; gives what must be copied out.
    ///
    /// An l-value argument stands for the parameter itself when the body cannot reach it by another
    /// way: then copying in and out makes no difference. `body_reads`: the outer locals that the
    /// body uses (actions; others use none).
    #[allow(clippy::too_many_arguments)]
    pub fn bind_parameters(
        &mut self,
        params: &[hir::ParamDef],
        args: Args<'_>,
        type_params: &[hir::TypeParamId],
        type_args: &[Ty],
        body_reads: Option<&HashSet<LocalId>>,
        span: Span,
        out: &mut ir::Block,
    ) -> Vec<(ir::Expr, ir::Expr)> {
        let map: crate::ty::Substitution =
            type_params.iter().copied().zip(type_args.iter().cloned()).collect();
        // Arguments are evaluated in the caller's terms, all before any parameter is bound.
        let mut values: Vec<Option<ir::Expr>> = vec![None; params.len()];
        // What an inout argument was when its turn came, if a later one can change it (spec §6.8).
        let mut saved: Vec<Option<ir::Expr>> = vec![None; params.len()];
        for (i, a, later) in args.in_order() {
            let Some(p) = params.get(i).filter(|_| !a.ty.is_object()) else { continue };
            values[i] = Some(match p.direction {
                Direction::Out | Direction::InOut => {
                    let place = self.place(a, out);
                    let place = self.pin(place, a.span, out);
                    if later
                        && p.direction == Direction::InOut
                        && !planted(Mutation::UnsavedArguments)
                    {
                        saved[i] = Some(self.keep(place.clone(), a.span, out));
                    }
                    place
                }
                _ => {
                    let v = self.expr(a, out);
                    if later { self.keep(v, a.span, out) } else { v }
                }
            });
        }
        let reads: HashSet<ir::VariableId> = body_reads
            .into_iter()
            .flatten()
            .filter_map(|id| match self.env.get(id) {
                Some(Binding::Place(e)) => root_of(e),
                _ => None,
            })
            .collect();
        let mut copies = Vec::new();
        let mut bindings = Vec::new();
        for (i, p) in params.iter().enumerate() {
            if p.ty.is_object() {
                if let Some(b) =
                    args.list.get(i).and_then(|a| a.as_ref()).and_then(|a| self.object(a))
                {
                    bindings.push((p.local, b));
                }
                continue;
            }
            let ty = p.ty.substitute(&map);
            let alone = saved[i].is_none()
                && values[i]
                    .as_ref()
                    .is_some_and(|v| self.stands_alone(v, i, params, &values, &reads));
            match values[i].clone() {
                Some(v) if alone => {
                    if p.direction == Direction::Out && !planted(Mutation::ValidOutHeaders) {
                        self.invalidate(&v, span, out);
                    }
                    bindings.push((p.local, Binding::Place(v)));
                }
                value => {
                    let ir_ty = self.ty(&ty);
                    let t = self.temporary(&p.name, ir_ty, span);
                    match (p.direction, value) {
                        (Direction::Out, v) => {
                            self.invalidate(&t, span, out);
                            copies.extend(v.map(|v| (i, v, t.clone())));
                        }
                        (Direction::InOut, Some(v)) => {
                            let value = saved[i].take().unwrap_or_else(|| v.clone());
                            self.push(out, ir::StatementKind::Assign(t.clone(), value), span);
                            copies.push((i, v, t.clone()));
                        }
                        (_, Some(v)) => self.assign(t.clone(), v, span, out),
                        _ => {}
                    }
                    bindings.push((p.local, Binding::Place(t)));
                }
            }
        }
        for (id, b) in bindings {
            self.env.insert(id, b);
        }
        as_written(copies, args)
    }

    /// Whether an argument can stand for its parameter.
    pub(super) fn stands_alone(
        &self,
        v: &ir::Expr,
        index: usize,
        params: &[hir::ParamDef],
        values: &[Option<ir::Expr>],
        body_reads: &HashSet<ir::VariableId>,
    ) -> bool {
        if matches!(v.kind, ir::ExprKind::Const(_)) {
            return params[index].direction != Direction::Out;
        }
        let written = |d: Direction| matches!(d, Direction::Out | Direction::InOut);
        // A member of a union that becomes valid inside must not oust the others before it is
        // copied out.
        let member = matches!(v.ty, ir::Type::Header(_)) && in_union(v);
        if !is_plain(v) || member && written(params[index].direction) {
            return false;
        }
        let Some(root) = root_of(v) else { return false };
        if planted(Mutation::AliasedArguments) {
            return true;
        }
        if body_reads.contains(&root) {
            return false;
        }
        values.iter().enumerate().filter(|(i, _)| *i != index).all(|(i, other)| {
            let conflict = written(params[index].direction) || written(params[i].direction);
            !conflict || other.as_ref().is_none_or(|o| !mentions(o, root) || disjoint(v, o))
        })
    }

    /// All locals that an action's body names, through the actions it calls.
    pub fn locals_of_action(&self, id: hir::ActionDefId) -> HashSet<LocalId> {
        let mut seen = HashSet::new();
        let mut found = HashSet::new();
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            if !seen.insert(id) {
                continue;
            }
            crate::walk::block(&self.hir.actions[id.index()].body, &mut |e| match &e.kind {
                hir::ExprKind::Local(l) => {
                    found.insert(*l);
                }
                hir::ExprKind::Call(c) => {
                    if let Callee::Action(a) = c.callee {
                        work.push(a);
                    }
                }
                _ => {}
            });
        }
        found
    }
}

/// Whether some statement leaves the block with this label.
pub(crate) fn leaves(block: &[ir::Statement], label: ir::LabelId) -> bool {
    block.iter().any(|s| match &s.kind {
        ir::StatementKind::Leave(l) => *l == label,
        ir::StatementKind::If { then, otherwise, .. } => {
            leaves(then, label) || leaves(otherwise, label)
        }
        ir::StatementKind::Block { body, .. } => leaves(body, label),
        ir::StatementKind::Switch { cases, default, .. } => {
            leaves(default, label) || cases.iter().any(|(_, b)| leaves(b, label))
        }
        _ => false,
    })
}
