//! Elaboration: from `V1Switch(...) main` to the IR. State and helpers; the rest is in the
//! `lower_*` modules.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use num_bigint::BigInt;
use p4_ir as ir;
use p4_syntax::{Diagnostic, SourceMap, Span, ast};

use crate::hir::{self, Hir, LocalId};
use crate::names::{self, CNames};
use crate::ty::{Substitution, Ty};

/// Most statements that inlining may make. A C compiler's time grows with the square of a
/// function's length: clang 14 takes some 10 s for as many, 20 s for 24,000 and minutes for 65,000.
/// The largest application has some 1,000.
const MAX_STATEMENTS: usize = 16_384;
/// Deepest inlining.
pub const MAX_INLINE_DEPTH: usize = 40;

/// An instance of a parser or control.
#[derive(Debug)]
pub struct Instance {
    pub number: u32,
    pub block: hir::BlockId,
    /// The control plane's prefix of what is inside, with a closing dot.
    pub prefix: String,
    pub constructor: Vec<(LocalId, Binding)>,
    /// What its locals stand for, once it was first applied.
    pub locals: RefCell<Option<Vec<(LocalId, Binding)>>>,
    /// Storage of its parameters, if it is applied in several places.
    pub storage: RefCell<HashMap<LocalId, ir::VariableId>>,
    /// Applied in one place only: arguments can stand for parameters.
    pub single_site: bool,
}

/// What a local name stands for at this point of elaboration.
#[derive(Clone, Debug)]
pub enum Binding {
    /// Storage, or a constant.
    Place(ir::Expr),
    /// A constructor argument.
    Const(Rc<hir::Expr>),
    Extern(ir::ExternId),
    Instance(Rc<Instance>),
    Packet,
}

/// What `return` does here.
#[derive(Clone, Debug)]
pub enum ReturnMode {
    /// Of the outermost control or a table's action.
    Return,
    /// Leaves an inlined body; the result goes to the place.
    Leave(ir::LabelId, Option<ir::Expr>),
}

pub struct Lowerer<'a> {
    pub hir: &'a Hir,
    pub sources: &'a SourceMap,
    pub diagnostics: Vec<Diagnostic>,
    reported: HashSet<(Option<Span>, String)>,
    pub files: Vec<String>,
    locations: HashMap<u32, ir::Location>,
    pub header_types: Vec<ir::Record>,
    pub struct_types: Vec<ir::Record>,
    pub union_types: Vec<ir::Record>,
    pub enum_types: Vec<ir::EnumType>,
    pub types: HashMap<Ty, ir::Type>,
    pub enum_ids: HashMap<hir::EnumId, ir::EnumTypeId>,
    pub serializable_enums: Vec<ir::SerializableEnum>,
    pub serializable_ids: HashMap<hir::EnumId, ir::SerializableEnumId>,
    pub type_names: CNames,
    pub names: CNames,
    pub variable_names: CNames,
    pub variables: Vec<ir::Variable>,
    pub actions: Vec<ir::Action>,
    pub tables: Vec<ir::Table>,
    pub externs: Vec<ir::ExternInstance>,
    pub env: HashMap<LocalId, Binding>,
    pub generics: Substitution,
    pub scope: ir::Scope,
    pub instance: u32,
    pub prefix: String,
    /// The body being lowered is lowered once only.
    pub in_single: bool,
    pub direct: HashMap<(u32, u32), Rc<Instance>>,
    pub next_instance: u32,
    pub table_ids: HashMap<(u32, hir::TableDefId), ir::TableId>,
    pub key_variables: HashMap<ir::TableId, Vec<Option<ir::VariableId>>>,
    pub action_ids: HashMap<(u32, hir::ActionDefId), ir::ActionId>,
    /// By instance: set by an action that exits where arguments are owed to callers.
    pub exit_flags: HashMap<u32, ir::VariableId>,
    /// The flag that is looked at after a table was applied.
    pub table_exit: HashMap<ir::TableId, ir::VariableId>,
    pub returns: Vec<ReturnMode>,
    /// Copies that are owed to the callers when the bodies being inlined end: (target, from).
    pub copy_outs: Vec<Vec<(ir::Expr, ir::Expr)>>,
    pub depth: usize,
    /// The call, by the program's own text, that is being inlined, and what it calls.
    pub outermost: Option<(Span, String)>,
    pub next_label: u32,
    statements: usize,
    /// Too large: stop.
    pub stopped: bool,
    /// An argument that is a list of fields is being evaluated: it matters which of their headers
    /// are valid.
    pub in_field_list: bool,
}

impl<'a> Lowerer<'a> {
    pub fn new(hir: &'a Hir, sources: &'a SourceMap) -> Lowerer<'a> {
        Lowerer {
            hir,
            sources,
            diagnostics: Vec::new(),
            reported: HashSet::new(),
            files: sources.file_names().map(str::to_string).collect(),
            locations: HashMap::new(),
            header_types: Vec::new(),
            struct_types: Vec::new(),
            union_types: Vec::new(),
            enum_types: Vec::new(),
            serializable_enums: Vec::new(),
            serializable_ids: HashMap::new(),
            types: HashMap::new(),
            enum_ids: HashMap::new(),
            type_names: CNames::default(),
            names: CNames::objects(),
            variable_names: CNames::default(),
            variables: Vec::new(),
            actions: Vec::new(),
            tables: Vec::new(),
            externs: Vec::new(),
            env: HashMap::new(),
            generics: Substitution::new(),
            scope: ir::Scope::Pipeline,
            instance: 0,
            prefix: String::new(),
            in_single: true,
            direct: HashMap::new(),
            next_instance: 1,
            table_ids: HashMap::new(),
            key_variables: HashMap::new(),
            action_ids: HashMap::new(),
            exit_flags: HashMap::new(),
            table_exit: HashMap::new(),
            returns: Vec::new(),
            copy_outs: Vec::new(),
            depth: 0,
            outermost: None,
            next_label: 0,
            statements: 0,
            stopped: false,
            in_field_list: false,
        }
    }

    pub fn report(&mut self, d: Diagnostic) {
        if self.reported.insert((d.span, d.message.clone())) {
            self.diagnostics.push(d);
        }
    }

    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(span, message));
    }

    /// File, line and column of a span.
    pub fn location(&mut self, span: Span) -> ir::Location {
        if let Some(l) = self.locations.get(&span.start) {
            return *l;
        }
        let at = self.sources.resolve(span.at_start());
        let file = match self.files.iter().position(|f| *f == *at.file_name) {
            Some(i) => i,
            None => {
                self.files.push(at.file_name.to_string());
                self.files.len() - 1
            }
        };
        let l = ir::Location { file: file as u32, line: at.line, column: at.column };
        self.locations.insert(span.start, l);
        l
    }

    pub fn push(&mut self, out: &mut ir::Block, kind: ir::StatementKind, span: Span) {
        self.statements += 1;
        if self.statements > MAX_STATEMENTS {
            if !self.stopped {
                let help = "each call copies the called function, so nested calls multiply: call less often, \
                            keep the result in a variable, or let a table's action do it";
                let (at, with) = match &self.outermost {
                    Some((call, called)) => (*call, format!("with this call of {called}, ")),
                    None => (span, String::new()),
                };
                let text = format!(
                    "the program is too large: {with}inlining makes more than {MAX_STATEMENTS} statements"
                );
                self.report(Diagnostic::error(at, text).help(help));
            }
            self.stopped = true;
            return;
        }
        let location = self.location(span);
        out.push(ir::Statement { kind, location });
    }

    pub fn label(&mut self) -> ir::LabelId {
        self.next_label += 1;
        ir::LabelId(self.next_label - 1)
    }

    /// New storage with a name like `wanted`.
    pub fn variable(&mut self, wanted: &str, ty: ir::Type, span: Span) -> ir::VariableId {
        let location = self.location(span);
        let name = self.variable_names.unique(wanted);
        self.variables.push(ir::Variable { name, ty, scope: self.scope, location });
        ir::VariableId(self.variables.len() as u32 - 1)
    }

    pub fn read(&mut self, v: ir::VariableId, span: Span) -> ir::Expr {
        let ty = self.variables[v.index()].ty.clone();
        ir::Expr { kind: ir::ExprKind::Var(v), ty, location: self.location(span) }
    }

    /// A new variable as an expression.
    pub fn temporary(&mut self, wanted: &str, ty: ir::Type, span: Span) -> ir::Expr {
        let v = self.variable(wanted, ty, span);
        self.read(v, span)
    }

    pub fn constant(&mut self, value: BigInt, ty: ir::Type, span: Span) -> ir::Expr {
        ir::Expr { kind: ir::ExprKind::Const(value), ty, location: self.location(span) }
    }

    pub fn annotations(&self, list: &[ast::Annotation]) -> Vec<ir::Annotation> {
        list.iter()
            .map(|a| ir::Annotation { name: a.name.to_string(), body: names::text(a) })
            .collect()
    }

    /// A parser or control instance for a constructor call.
    pub fn make_instance(
        &mut self,
        construct: &hir::Construct,
        block: hir::BlockId,
        name: &str,
        annotations: &[ast::Annotation],
        single_site: bool,
    ) -> Rc<Instance> {
        let number = self.next_instance;
        self.next_instance += 1;
        let mut constructor = Vec::new();
        for (p, a) in construct.params.iter().zip(&construct.args) {
            if let Some(a) = a
                && let Some(b) = self.constructor_argument(a)
            {
                constructor.push((p.local, b));
            }
        }
        let prefix = format!("{}.", names::control_plane(&self.prefix, name, annotations));
        Rc::new(Instance {
            number,
            block,
            prefix,
            constructor,
            locals: RefCell::new(None),
            storage: RefCell::new(HashMap::new()),
            single_site: single_site && self.in_single,
        })
    }

    fn constructor_argument(&mut self, a: &hir::Expr) -> Option<Binding> {
        match &a.kind {
            hir::ExprKind::Local(id) => self.env.get(id).cloned(),
            hir::ExprKind::Construct(_) => {
                self.error(a.span, "instances as arguments of constructors are not supported yet: declare the instance first");
                None
            }
            _ => match self.const_eval(a) {
                Some(v) => Some(Binding::Const(Rc::new(hir::Expr::int(v, a.ty.clone(), a.span)))),
                None => Some(Binding::Const(Rc::new(a.clone()))),
            },
        }
    }

    /// An extern instance for a constructor call.
    pub fn make_extern(
        &mut self,
        construct: &hir::Construct,
        def: hir::ExternDefId,
        type_args: &[Ty],
        local: LocalId,
    ) -> ir::ExternId {
        let l = &self.hir.locals[local.index()];
        let name = names::control_plane(&self.prefix, &l.name, &l.annotations);
        let c_name = self.names.unique(&name);
        let mut arguments = Vec::new();
        for (a, p) in construct.args.iter().zip(construct.params.iter()) {
            let Some(a) = a else { continue };
            if let hir::ExprKind::Const(hir::Value::Str(s)) = &a.kind {
                arguments.push(ir::ConstArgument::Str(s.to_string()));
                continue;
            }
            match self.const_eval(a) {
                Some(v) => {
                    let ty = self.ty(&p.ty);
                    arguments.push(ir::ConstArgument::Value(v, ty));
                }
                None => self.error(a.span, "the argument of this constructor cannot be evaluated"),
            }
        }
        let type_arguments = type_args.iter().map(|t| self.ty(t)).collect();
        let type_enumerations = type_args.iter().map(|t| self.enumeration(t)).collect();
        let location = self.location(l.span);
        let merge = self.merge_of(l);
        self.externs.push(ir::ExternInstance {
            extern_type: self.hir.externs[def.index()].name.to_string(),
            name,
            c_name,
            type_arguments,
            type_enumerations,
            arguments,
            annotations: self.annotations(&l.annotations),
            merge,
            location,
        });
        ir::ExternId(self.externs.len() as u32 - 1)
    }
}
