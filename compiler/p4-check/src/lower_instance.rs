//! Instances of controls and parsers: their locals, and applying a control.

use std::rc::Rc;

use p4_ir as ir;
use p4_syntax::Span;

use crate::hir::{self, Direction};
use crate::lower::{Binding, Instance, Lowerer};
use crate::lower_args::Args;
use crate::mutations::{Mutation, planted};

impl Lowerer<'_> {
    /// Enters an instance: its constructor parameters and locals get their meaning. The first time
    /// they are made.
    pub fn enter_instance(&mut self, i: &Rc<Instance>, out: &mut ir::Block) {
        let hir = self.hir;
        let def = &hir.blocks[i.block.index()];
        for (id, b) in &i.constructor {
            self.env.insert(*id, b.clone());
        }
        let known = i.locals.borrow().clone();
        if let Some(list) = known {
            for (id, b) in list {
                self.env.insert(id, b);
            }
            for s in def.locals.iter() {
                let hir::StmtKind::Variable(id, init) = &s.kind else { continue };
                let Some(Binding::Place(p)) = self.env.get(id).cloned() else { continue };
                match init {
                    Some(init) => self.assign_hir(p, init, s.span, out),
                    // Locals are new at each application: headers are invalid again (spec §10.2,
                    // §12.10).
                    None if !planted(Mutation::SurvivingLocals) => self.invalidate(&p, s.span, out),
                    None => {}
                }
            }
            return;
        }
        let mut made = Vec::new();
        for s in def.locals.iter() {
            let id = match &s.kind {
                hir::StmtKind::Object(id, e) => {
                    let sites = crate::walk::applications(def, *id);
                    self.declare_object(*id, e, sites <= 1);
                    *id
                }
                hir::StmtKind::Variable(id, _) | hir::StmtKind::ValueSet(id, _) => {
                    self.statement(s, out);
                    *id
                }
                _ => continue,
            };
            if let Some(b) = self.env.get(&id) {
                made.push((id, b.clone()));
            }
        }
        *i.locals.borrow_mut() = Some(made);
    }

    /// `instance.apply(...)` of a control.
    pub fn apply_instance(
        &mut self,
        i: &Rc<Instance>,
        args: Args<'_>,
        span: Span,
        out: &mut ir::Block,
    ) {
        if self.too_deep(span) {
            return;
        }
        let hir = self.hir;
        let def = &hir.blocks[i.block.index()];
        if def.kind == hir::BlockKind::Parser {
            self.error(
                span,
                "a sub-parser can be applied as a statement of a state only, not inside of other statements",
            );
            return;
        }
        let mut inner = Vec::new();
        let copies = if i.single_site {
            self.bind_parameters(&def.params, args, &[], &[], None, span, &mut inner)
        } else {
            self.bind_stored(i, &def.params, args, span, &mut inner)
        };
        let (instance, prefix) =
            (self.instance, std::mem::replace(&mut self.prefix, i.prefix.clone()));
        self.instance = i.number;
        let single = std::mem::replace(&mut self.in_single, i.single_site);
        self.copy_outs.push(Vec::new());
        self.enter_instance(i, &mut inner);
        self.copy_outs.pop();
        self.inline_body(
            &def.body,
            None,
            copies,
            &format!("control {}", def.name),
            span,
            inner,
            out,
        );
        self.in_single = single;
        self.instance = instance;
        self.prefix = prefix;
    }

    /// The instance of a `T.apply(...)`: one for each place and enclosing instance.
    pub fn direct_instance(
        &mut self,
        c: &hir::Construct,
        block: hir::BlockId,
        span: Span,
    ) -> Rc<Instance> {
        let key = (self.instance, span.start);
        if let Some(i) = self.direct.get(&key) {
            return i.clone();
        }
        let name = self.hir.blocks[block.index()].name.clone();
        let i = self.make_instance(c, block, &name, &[], true);
        self.direct.insert(key, i.clone());
        i
    }

    /// Parameters of an instance that is applied in several places: always in the same variables,
    /// which its tables use.
    fn bind_stored(
        &mut self,
        i: &Rc<Instance>,
        params: &[hir::ParamDef],
        args: Args<'_>,
        span: Span,
        out: &mut ir::Block,
    ) -> Vec<(ir::Expr, ir::Expr)> {
        let mut copies = Vec::new();
        let mut bindings = Vec::new();
        for n in args.order.places(args.list.len()) {
            let (Some(p), a) = (params.get(n), &args.list[n]) else { continue };
            if p.ty.is_object() {
                if let Some(b) = a.as_ref().and_then(|a| self.object(a)) {
                    bindings.push((p.local, b));
                }
                continue;
            }
            let value = a.as_ref().map(|a| match p.direction {
                Direction::Out | Direction::InOut => self.place(a, out),
                _ => self.expr(a, out),
            });
            let value = value.map(|v| self.pin(v, span, out));
            let known = i.storage.borrow().get(&p.local).copied();
            let v = match known {
                Some(v) => v,
                None => {
                    let ty = self.ty(&p.ty);
                    let v = self.variable(&p.name, ty, p.span);
                    i.storage.borrow_mut().insert(p.local, v);
                    v
                }
            };
            let place = self.read(v, span);
            match (p.direction, value) {
                (Direction::Out, v) => {
                    self.invalidate(&place, span, out);
                    copies.extend(v.map(|v| (v, place.clone())));
                }
                (Direction::InOut, Some(v)) => {
                    self.push(out, ir::StatementKind::Assign(place.clone(), v.clone()), span);
                    copies.push((v, place.clone()));
                }
                (_, Some(v)) => self.assign(place.clone(), v, span, out),
                _ => {}
            }
            bindings.push((p.local, Binding::Place(place)));
        }
        for (id, b) in bindings {
            self.env.insert(id, b);
        }
        copies
    }
}
