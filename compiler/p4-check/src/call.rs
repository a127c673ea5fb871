//! Calls: functions, extern functions and methods, actions, `apply`, built-in methods,
//! constructors.

mod arguments;
mod builtin;

pub use arguments::Bound;
use arguments::takes;

use std::rc::Rc;

use p4_syntax::{Diagnostic, Span, ast};

use crate::context::{Body, Checker, Entity};
use crate::hir::*;
use crate::ty::{Substitution, Ty};

impl Checker<'_> {
    pub fn check_call(
        &mut self,
        callee: &ast::Expr,
        type_args: &[ast::TypeRef],
        args: &[ast::Argument],
        expected: Option<&Ty>,
        span: Span,
    ) -> Expr {
        match &callee.kind {
            ast::ExprKind::Path(path) => self.call_path(path, type_args, args, expected, span),
            ast::ExprKind::Type(ty) => {
                let t = self.resolve_type(ty);
                self.construct_type(&t, args, expected, span)
            }
            ast::ExprKind::Member { base, member } => {
                self.call_member(base, member, type_args, args, span)
            }
            _ => {
                self.check_expr(callee, None);
                self.check_args_only(args);
                self.fault(callee.span, "this cannot be called")
            }
        }
    }

    /// Checks arguments of a call that is faulty itself.
    fn check_args_only(&mut self, args: &[ast::Argument]) {
        for a in args {
            if let Some(v) = &a.value {
                self.check_expr(v, Some(&Ty::Poison));
            }
        }
    }

    fn call_path(
        &mut self,
        path: &ast::Path,
        type_args: &[ast::TypeRef],
        args: &[ast::Argument],
        expected: Option<&Ty>,
        span: Span,
    ) -> Expr {
        let Some(entry) = self.lookup(path) else {
            self.check_args_only(args);
            return Expr::poison(span);
        };
        match entry.entity {
            Entity::Functions(list) => {
                let Some(id) = self.overload(path.name.as_str(), &list, args, span) else {
                    self.check_args_only(args);
                    return Expr::poison(span);
                };
                if self.body == Body::None {
                    self.error(
                        span,
                        "a function cannot be called here: this must be known at compile time",
                    );
                }
                self.call_function(
                    Callee::Function(id),
                    id,
                    Substitution::new(),
                    type_args,
                    args,
                    span,
                )
            }
            Entity::Action(id) => {
                if !matches!(self.body, Body::Action | Body::Control) {
                    self.error(span, "actions can be called in controls and actions only");
                }
                let params = self.hir.actions[id.index()].params.clone();
                let args =
                    self.bind_args(path.name.as_str(), &params, args, &Substitution::new(), span);
                self.finish_call(Callee::Action(id), Vec::new(), args, Ty::Void, span)
            }
            Entity::Extern(_)
            | Entity::Block(_)
            | Entity::Package(_)
            | Entity::Type(Ty::Extern(..)) => {
                let t = match &entry.entity {
                    Entity::Extern(id) if type_args.is_empty() => {
                        let params = self.hir.externs[id.index()].type_params.clone();
                        let fresh: Rc<[Ty]> = params.iter().map(|_| self.fresh_type()).collect();
                        Ty::Extern(*id, fresh)
                    }
                    Entity::Package(id) if type_args.is_empty() => {
                        let params = self.hir.packages[id.index()].type_params.clone();
                        let fresh: Rc<[Ty]> = params.iter().map(|_| self.fresh_type()).collect();
                        Ty::Package(*id, fresh)
                    }
                    _ => {
                        let given: Vec<Ty> =
                            type_args.iter().map(|t| self.resolve_type(t)).collect();
                        self.named_type(path, &given, !type_args.is_empty())
                    }
                };
                self.construct_type(&t, args, expected, span)
            }
            Entity::Poison => {
                self.check_args_only(args);
                Expr::poison(span)
            }
            other => {
                self.check_args_only(args);
                let text = format!("`{}` is {} and cannot be called", path.name, other.describe());
                self.report(
                    Diagnostic::error(path.span, text).note_at(entry.span, "declared here"),
                );
                Expr::poison(span)
            }
        }
    }

    fn call_member(
        &mut self,
        base: &ast::Expr,
        member: &ast::Ident,
        type_args: &[ast::TypeRef],
        args: &[ast::Argument],
        span: Span,
    ) -> Expr {
        if let ast::ExprKind::Path(path) = &base.kind {
            match self.find(path).map(|e| e.entity) {
                Some(Entity::Table(id)) => return self.call_table(id, member, args, span),
                Some(Entity::Block(id)) if member.as_str() == "apply" => {
                    return self.apply_direct(id, args, span);
                }
                Some(Entity::Record(id)) if self.hir.records[id.index()].type_params.is_empty() => {
                    let ty = Ty::Record(id, Rc::from([]));
                    return self.size_method(&ty, member, span);
                }
                Some(Entity::Type(ty)) => return self.size_method(&ty, member, span),
                _ => {}
            }
        }
        if let ast::ExprKind::Type(t) = &base.kind {
            let ty = self.resolve_type(t);
            return self.size_method(&ty, member, span);
        }
        let object = self.check_expr(base, None);
        match self.solved(&object.ty) {
            Ty::Poison => {
                self.check_args_only(args);
                Expr::poison(span)
            }
            Ty::Extern(id, targs) => {
                let def = &self.hir.externs[id.index()];
                let map: Substitution =
                    def.type_params.iter().copied().zip(targs.iter().cloned()).collect();
                let hir = &self.hir;
                let name = member.as_str();
                let list: Vec<FunctionId> = def
                    .methods
                    .iter()
                    .copied()
                    .filter(|m| &*hir.functions[m.index()].name == name)
                    .collect();
                if list.is_empty() {
                    let (text, at) =
                        (format!("extern `{}` has no method `{name}`", def.name), def.span);
                    self.report(Diagnostic::error(member.span, text).note_at(at, "declared here"));
                    self.check_args_only(args);
                    return Expr::poison(span);
                }
                let Some(method) = self.overload(name, &list, args, span) else {
                    self.check_args_only(args);
                    return Expr::poison(span);
                };
                self.call_function(
                    Callee::Method(object, method),
                    method,
                    map,
                    type_args,
                    args,
                    span,
                )
            }
            Ty::Block(id) => {
                if member.as_str() != "apply" {
                    self.check_args_only(args);
                    return self.fault(
                        member.span,
                        format!("a parser or control has `apply` only, not `{member}`"),
                    );
                }
                self.check_apply_context(id, span);
                let (params, name) = (self.hir.blocks[id.index()].params.clone(), member.as_str());
                let args = self.bind_args(name, &params, args, &Substitution::new(), span);
                self.check_directionless(
                    name,
                    &params,
                    args.as_ref().map_or(&[], |bound| &bound.args),
                );
                self.finish_call(Callee::Block(object), Vec::new(), args, Ty::Void, span)
            }
            Ty::BlockType(..) => self.fault(
                span,
                "constructor parameters that are parsers or controls are not supported yet",
            ),
            other => self.builtin_method(object, &other, member, args, span),
        }
    }

    fn check_apply_context(&mut self, id: BlockId, span: Span) {
        let want = match self.hir.blocks[id.index()].kind {
            BlockKind::Parser => Body::ParserState,
            BlockKind::Control => Body::Control,
        };
        if self.body != want {
            let text = match want {
                Body::ParserState => "a parser can be applied in the states of parsers only",
                _ => "a control can be applied in the apply block of controls only",
            };
            self.error(span, text);
        }
    }

    fn call_table(
        &mut self,
        id: TableDefId,
        member: &ast::Ident,
        args: &[ast::Argument],
        span: Span,
    ) -> Expr {
        if member.as_str() != "apply" {
            return self.fault(member.span, format!("a table has `apply` only, not `{member}`"));
        }
        if self.body != Body::Control {
            return self
                .fault(span, "a table can be applied in the apply block of its control only");
        }
        if let Some(a) = args.first() {
            return self.fault(a.span, "apply() of a table takes no arguments");
        }
        Expr { kind: ExprKind::Apply(id, ApplyPart::All), ty: Ty::ApplyResult(id), span }
    }

    fn apply_direct(&mut self, id: BlockId, args: &[ast::Argument], span: Span) -> Expr {
        self.check_apply_context(id, span);
        let made = self.construct_type(&Ty::Block(id), &[], None, span);
        let params = self.hir.blocks[id.index()].params.clone();
        let args = self.bind_args("apply", &params, args, &Substitution::new(), span);
        self.check_directionless("apply", &params, args.as_ref().map_or(&[], |bound| &bound.args));
        let ExprKind::Construct(c) = made.kind else { return Expr::poison(span) };
        self.finish_call(Callee::Direct(*c, id), Vec::new(), args, Ty::Void, span)
    }

    fn finish_call(
        &mut self,
        callee: Callee,
        type_args: Vec<Ty>,
        bound: Option<Bound>,
        ret: Ty,
        span: Span,
    ) -> Expr {
        let lookahead = match &callee {
            Callee::Method(object, m) => {
                let of = matches!(&object.ty, Ty::Extern(id, _) if &*self.hir.externs[id.index()].name == "packet_in");
                of && &*self.hir.functions[m.index()].name == "lookahead"
            }
            _ => false,
        };
        let Some(Bound { args, order }) = bound else { return Expr::poison(span) };
        Expr {
            kind: ExprKind::Call(Box::new(Call { callee, type_args, lookahead, args, order })),
            ty: ret,
            span,
        }
    }

    /// Picks the function by the number and names of arguments (spec §6.7.1).
    fn overload(
        &mut self,
        name: &str,
        list: &[FunctionId],
        args: &[ast::Argument],
        span: Span,
    ) -> Option<FunctionId> {
        if let [only] = list {
            return Some(*only);
        }
        let fitting: Vec<FunctionId> = list
            .iter()
            .copied()
            .filter(|f| takes(&self.hir.functions[f.index()].params, args))
            .collect();
        match fitting.as_slice() {
            [one] => Some(*one),
            [] => {
                let mut d = Diagnostic::error(
                    span,
                    format!("no `{name}` takes these {} argument(s)", args.len()),
                );
                for f in list {
                    let f = &self.hir.functions[f.index()];
                    d = d.note_at(f.span, format!("this one takes {}", f.params.len()));
                }
                self.report(d);
                None
            }
            several => {
                let mut d = Diagnostic::error(span, format!("this call of `{name}` is ambiguous"));
                for f in several {
                    d = d.note_at(self.hir.functions[f.index()].span, "fits");
                }
                self.report(d);
                None
            }
        }
    }

    fn call_function(
        &mut self,
        callee: Callee,
        id: FunctionId,
        mut map: Substitution,
        type_args: &[ast::TypeRef],
        args: &[ast::Argument],
        span: Span,
    ) -> Expr {
        let def = &self.hir.functions[id.index()];
        let (params, ret, own, name) =
            (def.params.clone(), def.ret.clone(), def.type_params.clone(), def.name.clone());
        if !type_args.is_empty() && type_args.len() != own.len() {
            self.error(
                span,
                format!("`{name}` takes {} type argument(s), not {}", own.len(), type_args.len()),
            );
        }
        let fresh = self.fresh(&own);
        if type_args.len() == own.len() {
            for (p, t) in own.iter().zip(type_args) {
                let t = self.resolve_type(t);
                let f = fresh[p].clone();
                self.unify(&f, &t);
            }
        }
        map.extend(fresh);
        let Some(bound) = self.bind_args(&name, &params, args, &map, span) else {
            let ret = self.solved(&ret.substitute(&map));
            let unknown = ret.any(&|t| matches!(t, Ty::Infer(_)));
            // The type is known all the same: go on checking what surrounds the call.
            return if unknown || ret == Ty::Void {
                Expr::poison(span)
            } else {
                Expr { kind: ExprKind::Poison, ty: ret, span }
            };
        };
        let mut inferred = Vec::new();
        for p in &own {
            let t = self.solved(&map[p]);
            if t.any(&|t| matches!(t, Ty::Infer(_))) {
                let param = self.hir.type_params[p.index()].clone();
                return self.fault(
                    span,
                    format!("type argument `{param}` of `{name}` cannot be inferred: write `{name}<...>`"),
                );
            }
            if t == Ty::Int || matches!(&t, Ty::Tuple(l) if l.contains(&Ty::Int)) {
                let bad =
                    bound.args.iter().flatten().find(|a| a.ty == t).map_or(span, |a| {
                        match &a.kind {
                            ExprKind::Aggregate(parts, _) => {
                                parts.iter().find(|p| p.ty == Ty::Int).map_or(a.span, |p| p.span)
                            }
                            _ => a.span,
                        }
                    });
                self.report(
                    Diagnostic::error(bad, "the width of this constant is not known")
                        .help("write the width, as in `16w5`, or cast it"),
                );
                return Expr::poison(span);
            }
            inferred.push(t);
        }
        self.check_directionless(&name, &params, &bound.args);
        let ret = self.solved(&ret.substitute(&map));
        self.finish_call(callee, inferred, Some(bound), ret, span)
    }

    /// Constructor calls. `ty` may have type arguments that are to be inferred.
    pub fn construct_type(
        &mut self,
        ty: &Ty,
        args: &[ast::Argument],
        expected: Option<&Ty>,
        span: Span,
    ) -> Expr {
        let (name, candidates, map, what): (
            Rc<str>,
            Vec<Rc<[ParamDef]>>,
            Substitution,
            Constructed,
        ) = match ty {
            Ty::Extern(id, targs) => {
                let d = &self.hir.externs[id.index()];
                let map = d.type_params.iter().copied().zip(targs.iter().cloned()).collect();
                (d.name.clone(), d.constructors.clone(), map, Constructed::Extern(*id, Vec::new()))
            }
            Ty::Block(id) => {
                let d = &self.hir.blocks[id.index()];
                (
                    d.name.clone(),
                    vec![d.constructor_params.clone()],
                    Substitution::new(),
                    Constructed::Block(*id),
                )
            }
            Ty::Package(id, targs) => {
                let d = &self.hir.packages[id.index()];
                let map = d.type_params.iter().copied().zip(targs.iter().cloned()).collect();
                (d.name.clone(), vec![d.params.clone()], map, Constructed::Package(*id))
            }
            Ty::Poison => {
                self.check_args_only(args);
                return Expr::poison(span);
            }
            other => {
                self.check_args_only(args);
                let shown = self.show(other);
                return self.fault(span, format!("`{shown}` has no constructor"));
            }
        };
        if self.body == Body::Action || self.body == Body::Function {
            self.error(span, "instances cannot be made in actions and functions");
        }
        let fitting: Vec<&Rc<[ParamDef]>> = candidates.iter().filter(|c| takes(c, args)).collect();
        let params = match (fitting.as_slice(), candidates.as_slice()) {
            ([one], _) => (*one).clone(),
            ([], [only]) => only.clone(),
            ([], []) => {
                self.check_args_only(args);
                return self.fault(
                    span,
                    format!("`{name}` has no constructor: programs cannot make instances of it"),
                );
            }
            _ => {
                self.check_args_only(args);
                return self.fault(
                    span,
                    format!(
                        "no single constructor of `{name}` takes these {} arguments",
                        args.len()
                    ),
                );
            }
        };
        if let Some(t) = expected {
            let t = self.solved(t);
            if matches!((&t, ty), (Ty::Extern(a, _), Ty::Extern(b, _)) if a == b) {
                self.unify(&t, ty);
            }
        }
        let Some(bound) = self.bind_args(&name, &params, args, &map, span) else {
            return Expr::poison(span);
        };
        for (a, p) in bound.args.iter().zip(params.iter()) {
            if let Some(a) = a
                && !a.is_compile_time(&self.hir.locals)
            {
                return self.fault(
                    a.span,
                    format!("constructor argument `{}` must be known at compile time", p.name),
                );
            }
        }
        let ty = self.solved(ty);
        if ty.any(&|t| matches!(t, Ty::Infer(_))) && !matches!(ty, Ty::Package(..)) {
            return self.fault(
                span,
                format!("type arguments of `{name}` cannot be inferred: write `{name}<...>`"),
            );
        }
        let what = match (what, &ty) {
            (Constructed::Extern(id, _), Ty::Extern(_, targs)) => {
                Constructed::Extern(id, targs.to_vec())
            }
            (what, _) => what,
        };
        Expr {
            kind: ExprKind::Construct(Box::new(Construct { what, args: bound.args, params })),
            ty,
            span,
        }
    }
}
