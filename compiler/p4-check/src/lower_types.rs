//! Checked types to IR types; constants of constructor parameters.

use num_bigint::BigInt;
use p4_ir as ir;
use p4_syntax::Span;

use crate::consts;
use crate::hir::{self, RecordKind};
use crate::lower::{Binding, Lowerer};
use crate::ty::{Substitution, Ty};

const UNION_STACKS: &str = "stacks of header unions are not supported yet";

impl Lowerer<'_> {
    /// The IR's type of a value.
    pub fn ty(&mut self, ty: &Ty) -> ir::Type {
        let ty = ty.substitute(&self.generics);
        if let Some(t) = self.types.get(&ty) {
            return t.clone();
        }
        let made = match self.hir.underlying(&ty) {
            Ty::Bit(w) => ir::Type::bits(w),
            Ty::Signed(w) => ir::Type::Bits { width: w, signed: true },
            Ty::Bool => ir::Type::Bool,
            Ty::Error => ir::Type::Error,
            Ty::Str => ir::Type::String,
            Ty::Varbit(w) => ir::Type::Varbit { max_width: w },
            Ty::Enum(id) => ir::Type::Enum(self.enum_type(id)),
            Ty::Stack(elem, n) => match self.ty(&elem) {
                ir::Type::Header(header) => ir::Type::Stack { header, size: n },
                _ => {
                    // A struct's field has been told of with its place.
                    if !self.diagnostics.iter().any(|d| d.message.ends_with(UNION_STACKS)) {
                        self.report(p4_syntax::Diagnostic::global(UNION_STACKS));
                    }
                    ir::Type::bits(1)
                }
            },
            Ty::Tuple(parts) => {
                let fields = parts
                    .iter()
                    .enumerate()
                    .map(|(i, t)| ir::Field {
                        name: format!("f{i}"),
                        ty: self.ty(t),
                        enumeration: self.enumeration(t),
                        annotations: Vec::new(),
                    })
                    .collect();
                let name = self.type_names.unique(&format!("tuple_{}", parts.len()));
                self.record(RecordKind::Struct, name, fields, Vec::new(), Span::default())
            }
            Ty::Record(id, args) => self.record_type(id, &args),
            // Objects and compile-time types do not become values.
            _ => ir::Type::bits(32),
        };
        self.types.insert(ty, made.clone());
        made
    }

    fn enum_type(&mut self, id: hir::EnumId) -> ir::EnumTypeId {
        if let Some(e) = self.enum_ids.get(&id) {
            return *e;
        }
        let def = &self.hir.enums[id.index()];
        let name = self.type_names.unique(&def.name);
        let members = def.members.iter().map(|(n, _)| n.to_string()).collect();
        self.enum_types.push(ir::EnumType { name, members });
        let e = ir::EnumTypeId(self.enum_types.len() as u32 - 1);
        self.enum_ids.insert(id, e);
        e
    }

    /// The serializable enum that a type is, also by another name (`type`).
    pub fn enumeration(&mut self, ty: &Ty) -> Option<ir::SerializableEnumId> {
        let mut ty = ty.substitute(&self.generics);
        while let Ty::New(id) = ty {
            ty = self.hir.new_types[id.index()].target.clone();
        }
        let Ty::Enum(id) = ty else { return None };
        let def = &self.hir.enums[id.index()];
        def.underlying.as_ref()?;
        if let Some(known) = self.serializable_ids.get(&id) {
            return Some(*known);
        }
        let members = def.members.iter().map(|(name, value)| (name.to_string(), value.clone()));
        let (name, members) = (def.name.to_string(), members.collect());
        let made = ir::SerializableEnumId(self.serializable_enums.len() as u32);
        self.serializable_enums.push(ir::SerializableEnum { name, members });
        self.serializable_ids.insert(id, made);
        Some(made)
    }

    fn record_type(&mut self, id: hir::RecordId, args: &[Ty]) -> ir::Type {
        let def = &self.hir.records[id.index()];
        let map: Substitution = def.type_params.iter().copied().zip(args.iter().cloned()).collect();
        let mut fields = Vec::new();
        for f in &def.fields {
            let ty = f.ty.substitute(&map);
            if let Ty::Stack(element, _) = &ty
                && !matches!(self.ty(element), ir::Type::Header(_))
            {
                let message =
                    format!("`{}`: stacks of header unions are not supported yet", f.name);
                self.report(
                    p4_syntax::Diagnostic::error(f.span, message)
                        .help("use a struct of single unions"),
                );
                // Not once more without a place.
                self.diagnostics.retain(|d| d.message != UNION_STACKS);
                fields.push(ir::Field {
                    name: f.name.to_string(),
                    ty: ir::Type::bits(1),
                    enumeration: None,
                    annotations: Vec::new(),
                });
                continue;
            }
            let annotations = self.annotations(&f.annotations);
            self.flatten(def.kind, &f.name, &ty, annotations, &mut fields);
        }
        let name = self.type_names.unique(&def.name);
        let annotations = self.annotations(&def.annotations);
        self.record(def.kind, name, fields, annotations, def.span)
    }

    /// Structs in headers become fields `outer_inner`.
    fn flatten(
        &mut self,
        kind: RecordKind,
        name: &str,
        ty: &Ty,
        annotations: Vec<ir::Annotation>,
        out: &mut Vec<ir::Field>,
    ) {
        if kind == RecordKind::Header
            && let Ty::Record(id, args) = ty
        {
            for (inner, t) in self.hir.fields_of(*id, args) {
                self.flatten(kind, &format!("{name}_{inner}"), &t, annotations.clone(), out);
            }
            return;
        }
        let enumeration = self.enumeration(ty);
        out.push(ir::Field { name: name.to_string(), ty: self.ty(ty), enumeration, annotations });
    }

    fn record(
        &mut self,
        kind: RecordKind,
        name: String,
        fields: Vec<ir::Field>,
        annotations: Vec<ir::Annotation>,
        span: Span,
    ) -> ir::Type {
        let location = self.location(span);
        let record = ir::Record { name, fields, annotations, location };
        let list = match kind {
            RecordKind::Struct => &mut self.struct_types,
            RecordKind::Header => &mut self.header_types,
            RecordKind::Union => &mut self.union_types,
        };
        list.push(record);
        let n = list.len() as u32 - 1;
        match kind {
            RecordKind::Struct => ir::Type::Struct(ir::StructTypeId(n)),
            RecordKind::Header => ir::Type::Header(ir::HeaderTypeId(n)),
            RecordKind::Union => ir::Type::Union(ir::UnionTypeId(n)),
        }
    }

    /// How many fields a header's field makes after flattening.
    pub fn leaves(&self, ty: &Ty) -> u32 {
        match ty {
            Ty::Record(id, args) if self.hir.records[id.index()].kind == RecordKind::Struct => {
                self.hir.fields_of(*id, args).iter().map(|(_, t)| self.leaves(t)).sum()
            }
            _ => 1,
        }
    }

    /// Fields of an IR record.
    pub fn ir_fields(&self, ty: &ir::Type) -> Vec<ir::Type> {
        let record = match ty {
            ir::Type::Header(id) => &self.header_types[id.index()],
            ir::Type::Struct(id) => &self.struct_types[id.index()],
            ir::Type::Union(id) => &self.union_types[id.index()],
            _ => return Vec::new(),
        };
        record.fields.iter().map(|f| f.ty.clone()).collect()
    }

    /// The number that an expression is at compile time, with constructor arguments put in.
    pub fn const_eval(&self, e: &hir::Expr) -> Option<BigInt> {
        let ty = e.ty.substitute(&self.generics);
        match &e.kind {
            hir::ExprKind::Const(hir::Value::Int(v)) => Some(v.clone()),
            hir::ExprKind::Local(id) => match self.env.get(id)? {
                Binding::Const(e) => self.const_eval(&e.clone()),
                Binding::Place(ir::Expr { kind: ir::ExprKind::Const(v), .. }) => Some(v.clone()),
                _ => None,
            },
            hir::ExprKind::Unary(op, a) => {
                let v = self.const_eval(a)?;
                consts::unary(*op, &v, &self.hir.underlying(&a.ty)).ok()
            }
            hir::ExprKind::Binary(op, a, b) => {
                if !a.ty.is_number()
                    && a.ty != Ty::Bool
                    && !matches!(a.ty, Ty::Enum(_) | Ty::Error | Ty::New(_))
                {
                    return None;
                }
                let (x, y) = (self.const_eval(a)?, self.const_eval(b)?);
                consts::binary(
                    *op,
                    &x,
                    &y,
                    &self.hir.underlying(&a.ty),
                    &self.hir.underlying(&b.ty),
                )
                .ok()
            }
            hir::ExprKind::Cast(a) => {
                let v = self.const_eval(a)?;
                Some(match self.hir.underlying(&ty).bits() {
                    Some((w, s)) => consts::wrap(&v, w, s),
                    None => v,
                })
            }
            hir::ExprKind::Slice(a, h, l) => Some(consts::slice(&self.const_eval(a)?, *h, *l)),
            hir::ExprKind::Conditional(c, a, b) => {
                let c = self.const_eval(c)?;
                self.const_eval(if c == BigInt::ZERO { b } else { a })
            }
            hir::ExprKind::Field(base, i) => match &base.kind {
                hir::ExprKind::Aggregate(parts, _) if !base.has_effects() => {
                    self.const_eval(parts.get(*i as usize)?)
                }
                hir::ExprKind::Local(id) => match self.env.get(id)? {
                    Binding::Const(e) => match &e.kind {
                        hir::ExprKind::Aggregate(parts, _) => {
                            self.const_eval(parts.get(*i as usize)?)
                        }
                        _ => None,
                    },
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }
}

impl hir::Hir {
    /// Fields of a record type with its type arguments put in.
    pub fn fields_of(&self, id: hir::RecordId, args: &[Ty]) -> Vec<(std::rc::Rc<str>, Ty)> {
        let def = &self.records[id.index()];
        let map: Substitution = def.type_params.iter().copied().zip(args.iter().cloned()).collect();
        def.fields.iter().map(|f| (f.name.clone(), f.ty.substitute(&map))).collect()
    }
}
