//! Types as written, and the declarations of types.

use std::rc::Rc;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};
use p4_syntax::{Diagnostic, Span, ast};

use crate::consts::MAX_WIDTH;
use crate::context::{Checker, Entity};
use crate::hir::*;
use crate::ty::Ty;

/// Most scalars in one type, counted through structs, stacks and tuples.
const MAX_TYPE_LEAVES: usize = 20_000;
/// Deepest nesting of types.
const MAX_TYPE_DEPTH: usize = 64;
/// Most elements of a header stack.
const MAX_STACK: u32 = 1024;

/// Makes a type of its arguments.
type MakeType = Box<dyn Fn(Rc<[Ty]>) -> Ty>;

impl Checker<'_> {
    /// The type that is written; reports and gives poison if there is none such.
    pub fn resolve_type(&mut self, ty: &ast::TypeRef) -> Ty {
        let resolved = self.resolve_unchecked(ty);
        self.bounded(resolved, ty.span)
    }

    /// A type of something that holds data: no void, no objects.
    pub fn resolve_data_type(&mut self, ty: &ast::TypeRef) -> Ty {
        let t = self.resolve_type(ty);
        if matches!(t, Ty::Void) || t.is_object() {
            let shown = self.show(&t);
            self.error(ty.span, format!("`{shown}` is not a type of values"));
            return Ty::Poison;
        }
        t
    }

    fn bounded(&mut self, ty: Ty, span: Span) -> Ty {
        let mut fuel = MAX_TYPE_LEAVES;
        if self.spend(&ty, &mut fuel, MAX_TYPE_DEPTH) {
            return ty;
        }
        self.error(
            span,
            format!(
                "type too large: more than {MAX_TYPE_LEAVES} fields or {MAX_TYPE_DEPTH} levels"
            ),
        );
        Ty::Poison
    }

    fn spend(&self, ty: &Ty, fuel: &mut usize, depth: usize) -> bool {
        if *fuel == 0 || depth == 0 {
            return false;
        }
        *fuel -= 1;
        match ty {
            Ty::Record(id, args) => {
                args.iter().all(|t| self.spend(t, fuel, depth - 1))
                    && self.hir.records[id.index()]
                        .fields
                        .iter()
                        .all(|f| self.spend(&f.ty, fuel, depth - 1))
            }
            Ty::Tuple(list)
            | Ty::Extern(_, list)
            | Ty::BlockType(_, list)
            | Ty::Package(_, list) => list.iter().all(|t| self.spend(t, fuel, depth - 1)),
            Ty::Stack(elem, n) => (0..*n).all(|_| self.spend(elem, fuel, depth - 1)),
            Ty::List(elem) => self.spend(elem, fuel, depth - 1),
            _ => true,
        }
    }

    fn resolve_unchecked(&mut self, ty: &ast::TypeRef) -> Ty {
        match &ty.kind {
            ast::TypeKind::Bool => Ty::Bool,
            ast::TypeKind::Error => Ty::Error,
            ast::TypeKind::MatchKind => Ty::MatchKind,
            ast::TypeKind::String => Ty::Str,
            ast::TypeKind::Void => Ty::Void,
            ast::TypeKind::Integer => Ty::Int,
            ast::TypeKind::Bit(None) => Ty::Bit(1),
            ast::TypeKind::Bit(Some(w)) => self.width(w, 1).map_or(Ty::Poison, Ty::Bit),
            ast::TypeKind::Int(w) => self.width(w, 1).map_or(Ty::Poison, Ty::Signed),
            ast::TypeKind::Varbit(w) => self.width(w, 1).map_or(Ty::Poison, Ty::Varbit),
            ast::TypeKind::Named(path) => self.named_type(path, &[], false),
            ast::TypeKind::Specialized { base, args } => {
                let args: Vec<Ty> = args.iter().map(|a| self.resolve_type(a)).collect();
                self.named_type(base, &args, true)
            }
            ast::TypeKind::Stack { elem, size } => self.stack_type(elem, size),
            ast::TypeKind::Tuple(parts) => {
                Ty::Tuple(parts.iter().map(|p| self.resolve_data_type(p)).collect())
            }
            ast::TypeKind::List(elem) => Ty::List(Rc::new(self.resolve_data_type(elem))),
            ast::TypeKind::DontCare => self.fresh_type(),
        }
    }

    fn stack_type(&mut self, elem: &ast::TypeRef, size: &ast::Expr) -> Ty {
        let e = self.resolve_type(elem);
        let n = self.const_size(size, "the size of a header stack");
        if e.is_poison() {
            return e;
        }
        if !matches!(self.record_kind(&e), Some(RecordKind::Header | RecordKind::Union)) {
            let shown = self.show(&e);
            self.error(elem.span, format!("a stack holds headers or header unions, not `{shown}`"));
            return Ty::Poison;
        }
        match n.and_then(|n| u32::try_from(n).ok()) {
            Some(n) if (1..=MAX_STACK).contains(&n) => Ty::Stack(Rc::new(e), n),
            Some(n) => {
                self.error(
                    size.span,
                    format!("a stack of {n} elements; it must have 1 to {MAX_STACK}"),
                );
                Ty::Poison
            }
            None => Ty::Poison,
        }
    }

    /// A width in bits, from `least` to the largest supported.
    fn width(&mut self, e: &ast::Expr, least: u32) -> Option<u32> {
        let n = self.const_size(e, "a width")?;
        match u32::try_from(n) {
            Ok(w) if (least..=MAX_WIDTH).contains(&w) => Some(w),
            _ => {
                self.error(
                    e.span,
                    format!("width {n} is not supported: {least} to {MAX_WIDTH} bits"),
                );
                None
            }
        }
    }

    /// A constant that must be known now and not negative.
    pub fn const_size(&mut self, e: &ast::Expr, what: &str) -> Option<u64> {
        let value = self.check_expr(e, None);
        if value.is_poison() {
            return None;
        }
        match value.as_int() {
            Some(v) if value.ty.is_number() && !v.is_negative() => match v.to_u64() {
                Some(n) => Some(n),
                None => {
                    self.error(e.span, format!("{what} of {v} is too large"));
                    None
                }
            },
            Some(v) if value.ty.is_number() => {
                self.error(e.span, format!("{what} cannot be negative: {v}"));
                None
            }
            _ => {
                self.error(
                    e.span,
                    format!("{what} must be a constant number, known at compile time"),
                );
                None
            }
        }
    }

    pub fn record_kind(&self, ty: &Ty) -> Option<RecordKind> {
        match ty {
            Ty::Record(id, _) => Some(self.hir.records[id.index()].kind),
            _ => None,
        }
    }

    /// Fields of a record type with its type arguments put in.
    pub fn fields_of(&self, id: RecordId, args: &[Ty]) -> Vec<(Rc<str>, Ty)> {
        self.hir.fields_of(id, args)
    }

    /// The type a name stands for, with arguments; `explicit` if `<...>` was written.
    pub fn named_type(&mut self, path: &ast::Path, args: &[Ty], explicit: bool) -> Ty {
        let Some(entry) = self.lookup(path) else { return Ty::Poison };
        let (expected, make): (usize, MakeType) = match entry.entity {
            Entity::Type(t) => (0, Box::new(move |_| t.clone())),
            Entity::Record(id) => (
                self.hir.records[id.index()].type_params.len(),
                Box::new(move |a| Ty::Record(id, a)),
            ),
            Entity::Extern(id) => (
                self.hir.externs[id.index()].type_params.len(),
                Box::new(move |a| Ty::Extern(id, a)),
            ),
            Entity::BlockType(id) => (
                self.hir.block_types[id.index()].type_params.len(),
                Box::new(move |a| Ty::BlockType(id, a)),
            ),
            Entity::Package(id) => (
                self.hir.packages[id.index()].type_params.len(),
                Box::new(move |a| Ty::Package(id, a)),
            ),
            Entity::Block(id) => (0, Box::new(move |_| Ty::Block(id))),
            Entity::Poison => return Ty::Poison,
            other => {
                self.report(
                    Diagnostic::error(
                        path.span,
                        format!("`{}` is {}, not a type", path.name, other.describe()),
                    )
                    .note_at(entry.span, "declared here"),
                );
                return Ty::Poison;
            }
        };
        if args.is_empty() && !explicit && expected > 0 {
            self.report(
                Diagnostic::error(
                    path.span,
                    format!("`{}` needs {expected} type argument(s)", path.name),
                )
                .note_at(entry.span, "declared here"),
            );
            return Ty::Poison;
        }
        if args.len() != expected {
            self.report(
                Diagnostic::error(
                    path.span,
                    format!(
                        "`{}` takes {expected} type argument(s), not {}",
                        path.name,
                        args.len()
                    ),
                )
                .note_at(entry.span, "declared here"),
            );
            return Ty::Poison;
        }
        if args.iter().any(Ty::is_poison) {
            return Ty::Poison;
        }
        make(args.into())
    }

    pub fn declare_struct(&mut self, d: &ast::StructDecl) -> Entity {
        let kind = match d.kind {
            ast::StructKind::Struct => RecordKind::Struct,
            ast::StructKind::Header => RecordKind::Header,
            ast::StructKind::HeaderUnion => RecordKind::Union,
        };
        self.push_scope();
        let type_params = self.declare_type_params(&d.type_params);
        let mut fields: Vec<FieldDef> = Vec::new();
        for f in &d.fields {
            let mut ty = self.resolve_data_type(&f.ty);
            if !ty.is_poison() && !self.allowed_field(kind, &ty) {
                let shown = self.show(&ty);
                self.error(
                    f.ty.span,
                    format!("a {} cannot have a field of type `{shown}`", d.kind.as_str()),
                );
                ty = Ty::Poison;
            }
            if kind == RecordKind::Header
                && matches!(fields.last().map(|l| &l.ty), Some(Ty::Varbit(_)))
                && !ty.is_poison()
            {
                self.error(f.span, "fields after a varbit are not supported yet: the varbit must be the last field");
            }
            if let Some(old) = fields.iter().find(|o| &*o.name == f.name.as_str()) {
                let d =
                    Diagnostic::error(f.name.span, format!("field `{}` is declared twice", f.name))
                        .note_at(old.span, "first declared here");
                self.report(d);
                continue;
            }
            fields.push(FieldDef {
                name: Rc::from(f.name.as_str()),
                ty,
                annotations: f.annotations.clone(),
                span: f.name.span,
            });
        }
        self.pop_scope();
        let id = RecordId(self.hir.records.len() as u32);
        self.hir.records.push(RecordDef {
            kind,
            name: Rc::from(d.name.as_str()),
            type_params,
            fields,
            annotations: d.annotations.clone(),
            span: d.name.span,
        });
        let whole = Ty::Record(id, Rc::from([]));
        if self.bounded(whole, d.name.span).is_poison() {
            return Entity::Poison;
        }
        Entity::Record(id)
    }

    fn allowed_field(&self, kind: RecordKind, ty: &Ty) -> bool {
        match kind {
            RecordKind::Struct => {
                !matches!(ty, Ty::MatchKind | Ty::Int | Ty::Str | Ty::Void | Ty::List(_))
            }
            RecordKind::Union => self.record_kind(ty) == Some(RecordKind::Header),
            RecordKind::Header => match ty {
                Ty::Bit(_)
                | Ty::Signed(_)
                | Ty::Bool
                | Ty::Varbit(_)
                | Ty::Param(_)
                | Ty::Poison => true,
                Ty::Enum(id) => self.hir.enums[id.index()].underlying.is_some(),
                Ty::New(_) => self.allowed_field(kind, &self.underlying(ty)),
                Ty::Record(id, args) => {
                    self.hir.records[id.index()].kind == RecordKind::Struct
                        && self.fields_of(*id, args).iter().all(|(_, t)| {
                            !matches!(t, Ty::Varbit(_)) && self.allowed_field(kind, t)
                        })
                }
                _ => false,
            },
        }
    }

    pub fn declare_enum(&mut self, d: &ast::EnumDecl) -> Entity {
        let mut underlying = None;
        if let Some(t) = &d.underlying {
            let ty = self.resolve_type(t);
            if !ty.is_fixed_bits() && !ty.is_poison() {
                let shown = self.show(&ty);
                self.error(
                    t.span,
                    format!(
                        "the underlying type of an enum must be bit<N> or int<N>, not `{shown}`"
                    ),
                );
            }
            underlying = Some(if ty.is_fixed_bits() { ty } else { Ty::Bit(MAX_WIDTH) });
        }
        let mut members: Vec<(Rc<str>, BigInt)> = Vec::new();
        for (index, m) in d.members.iter().enumerate() {
            if members.iter().any(|(n, _)| &**n == m.name.as_str()) {
                self.error(m.name.span, format!("enum member `{}` is declared twice", m.name));
                continue;
            }
            let mut value = BigInt::from(index);
            match (&underlying, &m.value) {
                (Some(ty), Some(v)) => {
                    let e = self.check_expr(v, Some(ty));
                    if let (Ty::Int, Some(n), Some((w, signed))) = (&e.ty, e.as_int(), ty.bits())
                        && !crate::consts::fits(n, w, signed)
                    {
                        let (n, shown) = (n.clone(), self.show(ty));
                        let d = Diagnostic::error(v.span, format!("{n} does not fit in `{shown}`"))
                            .help(format!(
                                "give `{}` a value that the enum's type can hold",
                                m.name
                            ));
                        self.report(d);
                        continue;
                    }
                    let e = self.coerce(e, ty);
                    match e.as_int() {
                        Some(v) => value = v.clone(),
                        None if e.is_poison() => {}
                        None => {
                            self.error(v.span, "the value of an enum member must be a constant")
                        }
                    }
                }
                (Some(_), None) => {
                    self.error(
                        m.span,
                        format!("member `{}` of a serializable enum needs a value", m.name),
                    );
                }
                (None, Some(v)) => {
                    self.error(
                        v.span,
                        "an enum without an underlying type has no values; write `enum bit<N> ...`",
                    );
                }
                (None, None) => {}
            }
            members.push((Rc::from(m.name.as_str()), value));
        }
        let id = EnumId(self.hir.enums.len() as u32);
        self.hir.enums.push(EnumDef {
            name: Rc::from(d.name.as_str()),
            underlying,
            members,
            span: d.name.span,
        });
        Entity::Type(Ty::Enum(id))
    }

    pub fn declare_typedef(&mut self, d: &ast::TypedefDecl) -> Entity {
        let ty = match &d.target {
            ast::TypedefTarget::Type(t) => {
                if let ast::TypeKind::Named(path) = &t.kind {
                    // A generic type keeps its parameters under the new name.
                    if let Some(e) = self.find(path)
                        && !d.is_new_type
                        && matches!(e.entity, Entity::Record(_) | Entity::Extern(_))
                    {
                        return e.entity;
                    }
                }
                self.resolve_type(t)
            }
            ast::TypedefTarget::Struct(s) => {
                let e = self.declare_struct(s);
                self.declare(&s.name, e.clone());
                return e;
            }
            ast::TypedefTarget::Enum(s) => {
                let e = self.declare_enum(s);
                self.declare(&s.name, e.clone());
                return e;
            }
        };
        if !d.is_new_type || ty.is_poison() {
            return if ty.is_poison() { Entity::Poison } else { Entity::Type(ty) };
        }
        let allowed = match &ty {
            Ty::Bit(_) | Ty::Signed(_) | Ty::Bool | Ty::New(_) => true,
            Ty::Enum(id) => self.hir.enums[id.index()].underlying.is_some(),
            _ => false,
        };
        if !allowed {
            let shown = self.show(&ty);
            self.error(
                d.span,
                format!("`type` makes new types of bit<N>, int<N> and bool, not of `{shown}`"),
            );
            return Entity::Poison;
        }
        let id = NewTypeId(self.hir.new_types.len() as u32);
        self.hir.new_types.push(NewTypeDef { name: Rc::from(d.name.as_str()), target: ty });
        Entity::Type(Ty::New(id))
    }

    /// The bits or bool beneath serializable enums and new types.
    pub fn underlying(&self, ty: &Ty) -> Ty {
        self.hir.underlying(ty)
    }
}

impl Hir {
    /// The bits or bool beneath serializable enums and new types.
    pub fn underlying(&self, ty: &Ty) -> Ty {
        let mut ty = ty;
        loop {
            ty = match ty {
                Ty::New(id) => &self.new_types[id.index()].target,
                Ty::Enum(id) => match &self.enums[id.index()].underlying {
                    Some(t) => t,
                    None => return ty.clone(),
                },
                _ => return ty.clone(),
            }
        }
    }
}
