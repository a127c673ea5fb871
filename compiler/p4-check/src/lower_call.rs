//! Calls: built-in methods, packet operations, externs, and inlining with copy-in and copy-out
//! (spec §6.8).

mod inline;

pub(crate) use inline::leaves;

use std::collections::HashSet;
use std::rc::Rc;

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_ir as ir;
use p4_syntax::{Diagnostic, Span};

use crate::hir::{self, Callee, Direction, LocalId};
use crate::lower::{Binding, Lowerer, MAX_INLINE_DEPTH, ReturnMode};
use crate::lower_args::{Args, as_written, disjoint, in_union, is_plain};
use crate::lower_stmt::{mentions, root_of};
use crate::mutations::{Mutation, planted};
use crate::ty::Ty;

impl Lowerer<'_> {
    /// Lowers a call; its value, if it has one. Externs write their result to `target` if there is
    /// one.
    pub fn call(
        &mut self,
        c: &hir::Call,
        target: Option<ir::Expr>,
        span: Span,
        out: &mut ir::Block,
    ) -> Option<ir::Expr> {
        match &c.callee {
            Callee::Function(id) => {
                let hir = self.hir;
                let f = &hir.functions[id.index()];
                match &f.body {
                    None => self.extern_call(None, *id, c, target, span, out),
                    Some(body) => self.inline_function(f, body, c, span, out),
                }
            }
            Callee::Method(object, id) => match self.object(object) {
                Some(Binding::Packet) => self.packet_call(*id, c, span, out),
                Some(Binding::Extern(e)) => self.extern_call(Some(e), *id, c, target, span, out),
                _ => {
                    self.error(span, "this object is not known here");
                    None
                }
            },
            Callee::Action(id) => {
                self.inline_action(*id, Args::of(c), span, out);
                None
            }
            Callee::Block(object) => {
                match self.object(object) {
                    Some(Binding::Instance(i)) => self.apply_instance(&i, Args::of(c), span, out),
                    _ => self.error(span, "this instance is not known here"),
                }
                None
            }
            Callee::Direct(construct, block) => {
                let i = self.direct_instance(construct, *block, span);
                self.apply_instance(&i, Args::of(c), span, out);
                None
            }
            Callee::IsValid(_) => None,
            Callee::SetValid(h, valid) => {
                let h = self.place(h, out);
                self.push(out, ir::StatementKind::SetValid(h, *valid), span);
                None
            }
            Callee::PushFront(s) | Callee::PopFront(s) => {
                let n = c.args.first().and_then(|a| a.as_ref()).and_then(|a| self.const_eval(a));
                let n = n.and_then(|n| n.to_u32()).unwrap_or(0);
                let s = self.place(s, out);
                let kind = match &c.callee {
                    Callee::PushFront(_) => ir::StatementKind::PushFront(s, n),
                    _ => ir::StatementKind::PopFront(s, n),
                };
                self.push(out, kind, span);
                None
            }
        }
    }

    /// What an expression that names an instance stands for.
    pub fn object(&self, e: &hir::Expr) -> Option<Binding> {
        match &e.kind {
            hir::ExprKind::Local(id) => self.env.get(id).cloned(),
            _ => None,
        }
    }

    fn packet_call(
        &mut self,
        id: hir::FunctionId,
        c: &hir::Call,
        span: Span,
        out: &mut ir::Block,
    ) -> Option<ir::Expr> {
        let name = self.hir.functions[id.index()].name.clone();
        let arg = |i: usize| c.args.get(i).and_then(|a| a.as_ref());
        match &*name {
            "extract" => {
                let ty =
                    c.type_args.first().map(|t| t.substitute(&self.generics)).unwrap_or(Ty::Poison);
                let header = matches!(&ty, Ty::Record(id, _) if self.hir.records[id.index()].kind == hir::RecordKind::Header);
                if !header {
                    self.error(arg(0).map_or(span, |a| a.span), "extract needs a header");
                    return None;
                }
                let ir_ty = self.ty(&ty);
                let varbit =
                    self.ir_fields(&ir_ty).iter().any(|t| matches!(t, ir::Type::Varbit { .. }));
                if varbit != (c.args.len() == 2) {
                    let text = if varbit {
                        "a header with a varbit field needs `extract(header, bits)`"
                    } else {
                        "`extract(header, bits)` needs a header with a varbit field"
                    };
                    self.error(span, text);
                    return None;
                }
                let Some(h) = arg(0) else {
                    let bits = self.width_of(&ir_ty);
                    self.push(out, ir::StatementKind::Skip(bits), span);
                    return None;
                };
                // Both as written: what one changes, the other sees (spec §6.8).
                let bits_first = c.order.places(c.args.len()).first() == Some(&1);
                let mut varbit_bits = None;
                if bits_first && let Some(b) = arg(1) {
                    let v = self.expr(b, out);
                    varbit_bits = Some(if h.has_effects() { self.keep(v, b.span, out) } else { v });
                }
                let mut header = self.place(h, out);
                if !bits_first && let Some(b) = arg(1) {
                    // (`next` stays what it is: the stack moves on with it.)
                    if b.has_effects() && !matches!(header.kind, ir::ExprKind::StackNext(_)) {
                        header = self.pin(header, h.span, out);
                    }
                    varbit_bits = Some(self.expr(b, out));
                }
                self.push(out, ir::StatementKind::Extract { header, varbit_bits }, span);
                None
            }
            "lookahead" => {
                let ty =
                    c.type_args.first().map(|t| t.substitute(&self.generics)).unwrap_or(Ty::Poison);
                let ir_ty = self.ty(&ty);
                if !self.has_fixed_width(&ir_ty) {
                    self.error(
                        span,
                        "lookahead needs a type of fixed width: bits, bool, a header or a struct of these",
                    );
                    return None;
                }
                Some(ir::Expr {
                    kind: ir::ExprKind::Lookahead,
                    ty: ir_ty,
                    location: self.location(span),
                })
            }
            "advance" => {
                let bits = arg(0).map(|a| self.expr(a, out))?;
                self.push(out, ir::StatementKind::Advance(bits), span);
                None
            }
            "emit" => {
                let e = arg(0)?;
                let v = self.expr(e, out);
                self.emit(v, e.span, out);
                None
            }
            other => {
                self.error(
                    span,
                    format!("`{other}` of a packet is not supported: v1model does not define it"),
                );
                None
            }
        }
    }

    fn emit(&mut self, v: ir::Expr, span: Span, out: &mut ir::Block) {
        match &v.ty {
            ir::Type::Header(_) | ir::Type::Stack { .. } | ir::Type::Union(_) => {
                // Back ends write headers at the deparser's end: what can change until then is
                // emitted as it is now.
                let fixed = root_of(&v)
                    .is_some_and(|r| self.variables[r.index()].scope == ir::Scope::Pipeline);
                let v = if fixed {
                    v
                } else {
                    let header = self.temporary("emitted", v.ty.clone(), span);
                    self.assign(header.clone(), v, span, out);
                    header
                };
                self.push(out, ir::StatementKind::Emit(v), span);
            }
            ir::Type::Struct(_) => {
                let v = if root_of(&v).is_some() { v } else { self.keep(v, span, out) };
                for i in 0..self.ir_fields(&v.ty).len() {
                    let f = self.ir_field(v.clone(), i as u32, span);
                    self.emit(f, span, out);
                }
            }
            _ => self.error(
                span,
                "emit needs a header, a header stack, a header union, or a struct of these",
            ),
        }
    }

    fn width_of(&self, ty: &ir::Type) -> u32 {
        match ty {
            ir::Type::Bits { width, .. } => *width,
            ir::Type::Bool => 1,
            ir::Type::Header(_) | ir::Type::Struct(_) => {
                self.ir_fields(ty).iter().map(|t| self.width_of(t)).fold(0, u32::saturating_add)
            }
            _ => 0,
        }
    }

    fn has_fixed_width(&self, ty: &ir::Type) -> bool {
        match ty {
            ir::Type::Bits { .. } | ir::Type::Bool => true,
            ir::Type::Header(_) | ir::Type::Struct(_) => {
                self.ir_fields(ty).iter().all(|t| self.has_fixed_width(t))
            }
            _ => false,
        }
    }

    fn extern_call(
        &mut self,
        instance: Option<ir::ExternId>,
        id: hir::FunctionId,
        c: &hir::Call,
        target: Option<ir::Expr>,
        span: Span,
        out: &mut ir::Block,
    ) -> Option<ir::Expr> {
        let hir = self.hir;
        let f = &hir.functions[id.index()];
        if &*f.name == "verify" && instance.is_none() && c.args.len() == 2 {
            if self.scope != ir::Scope::Parser {
                let d = Diagnostic::error(
                    span,
                    "`verify` can be called in parsers only: it ends parsing",
                );
                self.report(d.help("use `if`"));
                return None;
            }
            let refs: Vec<&hir::Expr> = c.args.iter().flatten().collect();
            let mut both = self.operands_in(&refs, &c.order, out);
            let (Some(error), Some(condition)) = (both.pop(), both.pop()) else { return None };
            self.push(out, ir::StatementKind::Verify(condition, error), span);
            return None;
        }
        if &*f.name == "static_assert" && instance.is_none() {
            return self.static_assert(c, span);
        }
        let mut arguments = vec![ir::Argument::DontCare; c.args.len()];
        let mut after = Vec::new();
        let mut written = HashSet::new();
        let places = c.order.places(c.args.len());
        for (n, i) in places.iter().enumerate() {
            let (Some(a), Some(p)) = (&c.args[*i], f.params.get(*i)) else { continue };
            let later = places[n + 1..]
                .iter()
                .any(|j| c.args[*j].as_ref().is_some_and(hir::Expr::has_effects))
                && !planted(Mutation::UnsavedExternArguments);
            arguments[*i] = match p.direction {
                Direction::Out | Direction::InOut => {
                    let place = self.place(a, out);
                    let place = self.pin(place, a.span, out);
                    written.extend(root_of(&place));
                    let place =
                        self.simple_place(place, p.direction, later, a.span, out, &mut after);
                    match p.direction {
                        Direction::Out => ir::Argument::Out(place),
                        _ => ir::Argument::InOut(place),
                    }
                }
                _ => {
                    let list = matches!(a.kind, hir::ExprKind::Aggregate(..));
                    let outer = std::mem::replace(&mut self.in_field_list, list);
                    let v = self.expr(a, out);
                    let v = if later { self.keep(v, a.span, out) } else { v };
                    self.in_field_list = outer;
                    ir::Argument::In(v)
                }
            };
        }
        // The result is assigned after the arguments are copied out: it cannot go straight into one
        // of them.
        let target = target.filter(|t| root_of(t).is_none_or(|root| !written.contains(&root)));
        let ret = f.ret.substitute(&self.method_types(instance, c, f));
        let result = match ret {
            Ty::Void => None,
            t => {
                let ty = self.ty(&t);
                Some(match target {
                    Some(place) if place.ty == ty => place,
                    _ => self.temporary(&format!("{}_result", f.name), ty, span),
                })
            }
        };
        let type_arguments = c.type_args.iter().map(|t| self.ty(t)).collect();
        let kind = ir::StatementKind::Extern {
            instance,
            name: f.name.to_string(),
            type_arguments,
            arguments,
            result: result.clone(),
        };
        self.push(out, kind, span);
        for (to, from) in after {
            self.assign(to, from, span, out);
        }
        result
    }

    /// Type arguments of the extern and the method, for the result's type.
    fn method_types(
        &self,
        instance: Option<ir::ExternId>,
        c: &hir::Call,
        f: &hir::FunctionDef,
    ) -> crate::ty::Substitution {
        let mut map: crate::ty::Substitution = f
            .type_params
            .iter()
            .copied()
            .zip(c.type_args.iter().map(|t| t.substitute(&self.generics)))
            .collect();
        if let (Some(_), Callee::Method(object, _)) = (instance, &c.callee)
            && let Ty::Extern(id, args) = &object.ty
        {
            let def = &self.hir.externs[id.index()];
            map.extend(def.type_params.iter().copied().zip(args.iter().cloned()));
        }
        map
    }

    fn static_assert(&mut self, c: &hir::Call, span: Span) -> Option<ir::Expr> {
        let holds = c.args.first().and_then(|a| a.as_ref()).and_then(|a| self.const_eval(a));
        match holds {
            Some(v) if v == BigInt::ZERO => {
                let text = match c.args.get(1).and_then(|a| a.as_ref()).map(|a| &a.kind) {
                    Some(hir::ExprKind::Const(hir::Value::Str(s))) => {
                        format!("static_assert failed: {s}")
                    }
                    _ => "static_assert failed".into(),
                };
                self.error(span, text);
            }
            Some(_) => {}
            None => self.error(span, "the condition of static_assert is not known at compile time"),
        }
        Some(self.constant(BigInt::from(1), ir::Type::Bool, span))
    }

    /// Back ends get whole variables and fields as out arguments; slices and taken-apart structs go
    /// by a temporary, and so does what is copied in before another argument's effects (`later`).
    fn simple_place(
        &mut self,
        place: ir::Expr,
        direction: Direction,
        later: bool,
        span: Span,
        out: &mut ir::Block,
        after: &mut Vec<(ir::Expr, ir::Expr)>,
    ) -> ir::Expr {
        let save = later && direction == Direction::InOut;
        if !save && !matches!(place.kind, ir::ExprKind::Slice { .. } | ir::ExprKind::StructValue(_))
        {
            return place;
        }
        let t = self.temporary("tmp", place.ty.clone(), span);
        if direction == Direction::InOut {
            self.push(out, ir::StatementKind::Assign(t.clone(), place.clone()), span);
        }
        if !planted(Mutation::LostSlices) {
            after.push((place, t.clone()));
        }
        t
    }
}
