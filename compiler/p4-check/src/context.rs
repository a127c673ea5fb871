//! The checker's state: what is declared, what names mean here, what was reported.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use p4_syntax::{Diagnostic, Span, ast};

use crate::hir::*;
use crate::ty::{Substitution, Ty};

/// What a name stands for.
#[derive(Clone, Debug)]
pub enum Entity {
    /// A type that needs no arguments.
    Type(Ty),
    Record(RecordId),
    Extern(ExternDefId),
    BlockType(BlockTypeId),
    Block(BlockId),
    Package(PackageId),
    Const(Rc<Expr>),
    Local(LocalId),
    Table(TableDefId),
    Action(ActionDefId),
    Functions(Vec<FunctionId>),
    State,
    /// Its declaration is faulty and reported.
    Poison,
}

impl Entity {
    /// For messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Entity::Type(_) | Entity::Record(_) => "a type",
            Entity::Extern(_) => "an extern type",
            Entity::BlockType(_) => "a parser or control type",
            Entity::Block(_) => "a parser or control",
            Entity::Package(_) => "a package type",
            Entity::Const(_) => "a constant",
            Entity::Local(_) => "a variable",
            Entity::Table(_) => "a table",
            Entity::Action(_) => "an action",
            Entity::Functions(_) => "a function",
            Entity::State => "a parser state",
            Entity::Poison => "a faulty declaration",
        }
    }
}

/// A name's meaning and where it was declared.
#[derive(Clone, Debug)]
pub struct Entry {
    pub entity: Entity,
    pub span: Span,
}

/// What kind of body is being checked; decides which statements and calls are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    None,
    Function,
    Action,
    Control,
    ParserState,
}

/// Most errors reported in one run.
pub const MAX_ERRORS: usize = 200;

pub struct Checker<'a> {
    pub hir: Hir,
    pub diagnostics: Vec<Diagnostic>,
    reported: HashSet<(Option<Span>, String)>,
    errors: usize,
    pub scopes: Vec<HashMap<Rc<str>, Entry>>,
    /// All top-level names, to say that something is declared later.
    pub later: HashMap<&'a str, Span>,
    pub solutions: Vec<Option<Ty>>,
    pub body: Body,
    /// Return type of the function being checked.
    pub returns: Ty,
}

impl<'a> Checker<'a> {
    pub fn new(program: &'a ast::Program) -> Checker<'a> {
        let mut later = HashMap::new();
        for d in &program.declarations {
            if let Some(name) = d.name() {
                later.entry(name.as_str()).or_insert(name.span);
            }
        }
        Checker {
            hir: Hir::default(),
            diagnostics: Vec::new(),
            reported: HashSet::new(),
            errors: 0,
            scopes: vec![HashMap::new()],
            later,
            solutions: Vec::new(),
            body: Body::None,
            returns: Ty::Void,
        }
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    pub fn report(&mut self, d: Diagnostic) {
        if d.is_error() {
            self.errors += 1;
            if self.errors > MAX_ERRORS {
                return;
            }
        }
        if self.reported.insert((d.span, d.message.clone())) {
            self.diagnostics.push(d);
        }
    }

    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(span, message));
    }

    pub fn warning(&mut self, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::warning(span, message));
    }

    /// Reports and gives the expression that stands for the fault.
    pub fn fault(&mut self, span: Span, message: impl Into<String>) -> Expr {
        self.error(span, message);
        Expr::poison(span)
    }

    pub fn push_scope(&mut self) {
        self.scopes.push(HashMap::new());
    }

    pub fn pop_scope(&mut self) {
        self.scopes.pop();
    }

    /// Declares a name in the innermost scope; reports a duplicate.
    pub fn declare(&mut self, name: &ast::Ident, entity: Entity) {
        let rc: Rc<str> = Rc::from(name.as_str());
        let global = self.scopes.len() == 1;
        let Some(scope) = self.scopes.last_mut() else { return };
        if let Some(old) = scope.get_mut(&rc) {
            if let (Entity::Functions(list), Entity::Functions(new)) = (&mut old.entity, &entity) {
                list.extend(new);
                return;
            }
            let at = old.span;
            let what = if global { " at the top level" } else { " in this scope" };
            self.report(
                Diagnostic::error(name.span, format!("`{name}` is declared twice{what}"))
                    .note_at(at, "first declared here"),
            );
            return;
        }
        scope.insert(rc, Entry { entity, span: name.span });
    }

    /// Looks a name up without reporting.
    pub fn find(&self, path: &ast::Path) -> Option<Entry> {
        self.find_name(path.name.as_str(), path.absolute)
    }

    pub fn find_name(&self, name: &str, absolute: bool) -> Option<Entry> {
        if absolute {
            return self.scopes.first().and_then(|s| s.get(name)).cloned();
        }
        self.scopes.iter().rev().find_map(|s| s.get(name)).cloned()
    }

    /// Looks a name up; reports what is not there.
    pub fn lookup(&mut self, path: &ast::Path) -> Option<Entry> {
        if let Some(found) = self.find(path) {
            return Some(found);
        }
        let name = path.name.as_str();
        let mut d = Diagnostic::error(path.span, format!("`{name}` is not declared"));
        if let Some(&at) = self.later.get(name) {
            d = Diagnostic::error(path.span, format!("`{name}` is used before its declaration"))
                .note_at(at, "declared here")
                .help("P4 needs declarations before uses; recursion is not allowed");
        } else if let Some(near) = self.similar(name) {
            d = d.help(format!("did you mean `{near}`?"));
        } else if let Some(file) = p4_syntax::include_that_declares(name) {
            d = d.help(format!("add `#include <{file}>`"));
        }
        self.report(d);
        None
    }

    fn similar(&self, name: &str) -> Option<String> {
        if self.errors > MAX_ERRORS {
            return None;
        }
        // Of a letter or two nearly everything is near.
        let limit = [0, 0, 1, 1].get(name.len()).copied().unwrap_or(2);
        self.scopes
            .iter()
            .rev()
            .flat_map(|s| s.keys())
            .map(|k| (edit_distance(k, name, limit), k))
            .filter(|(d, _)| *d <= limit)
            .min()
            .map(|(_, k)| k.to_string())
    }

    pub fn new_local(
        &mut self,
        name: &ast::Ident,
        ty: Ty,
        kind: LocalKind,
        annotations: &[ast::Annotation],
    ) -> LocalId {
        let id = LocalId(self.hir.locals.len() as u32);
        self.hir.locals.push(LocalDef {
            name: Rc::from(name.as_str()),
            ty,
            kind,
            annotations: annotations.to_vec(),
            span: name.span,
        });
        id
    }

    /// Declares type parameters in the innermost scope.
    pub fn declare_type_params(&mut self, names: &[ast::Ident]) -> Vec<TypeParamId> {
        names
            .iter()
            .map(|n| {
                let id = TypeParamId(self.hir.type_params.len() as u32);
                self.hir.type_params.push(Rc::from(n.as_str()));
                self.declare(n, Entity::Type(Ty::Param(id)));
                id
            })
            .collect()
    }

    /// A fresh unknown for each type parameter.
    pub fn fresh(&mut self, params: &[TypeParamId]) -> Substitution {
        params.iter().map(|p| (*p, self.fresh_type())).collect()
    }

    pub fn fresh_type(&mut self) -> Ty {
        self.solutions.push(None);
        Ty::Infer(self.solutions.len() as u32 - 1)
    }

    /// Puts in what was inferred.
    pub fn solved(&self, ty: &Ty) -> Ty {
        match ty {
            Ty::Infer(i) => match self.solutions.get(*i as usize) {
                Some(Some(t)) => self.solved(t),
                _ => ty.clone(),
            },
            Ty::Record(..)
            | Ty::Stack(..)
            | Ty::Tuple(_)
            | Ty::List(_)
            | Ty::Extern(..)
            | Ty::BlockType(..)
            | Ty::Package(..) => ty.rewrite(&|t| match t {
                Ty::Infer(_) => Some(self.solved(t)),
                _ => None,
            }),
            _ => ty.clone(),
        }
    }

    /// The type in P4's words.
    pub fn show(&self, ty: &Ty) -> String {
        let ty = self.solved(ty);
        let list = |name: &str, args: &[Ty]| -> String {
            if args.is_empty() {
                return name.to_string();
            }
            let args: Vec<String> = args.iter().take(8).map(|t| self.show(t)).collect();
            format!("{name}<{}>", args.join(", "))
        };
        let hir = &self.hir;
        match &ty {
            Ty::Poison => "?".into(),
            Ty::Void => "void".into(),
            Ty::Bool => "bool".into(),
            Ty::Error => "error".into(),
            Ty::MatchKind => "match_kind".into(),
            Ty::Str => "string".into(),
            Ty::Int => "int".into(),
            Ty::Bit(w) => format!("bit<{w}>"),
            Ty::Signed(w) => format!("int<{w}>"),
            Ty::Varbit(w) => format!("varbit<{w}>"),
            Ty::Param(p) => hir.type_params[p.index()].to_string(),
            Ty::Infer(_) => "_".into(),
            Ty::Record(id, args) => list(&hir.records[id.index()].name, args),
            Ty::Enum(id) => hir.enums[id.index()].name.to_string(),
            Ty::New(id) => hir.new_types[id.index()].name.to_string(),
            Ty::Stack(elem, n) => format!("{}[{n}]", self.show(elem)),
            Ty::Tuple(parts) if parts.is_empty() => "tuple<>".into(),
            Ty::Tuple(parts) => list("tuple", parts),
            Ty::List(elem) => format!("list<{}>", self.show(elem)),
            Ty::Invalid => "{#}".into(),
            Ty::Extern(id, args) => list(&hir.externs[id.index()].name, args),
            Ty::Block(id) => hir.blocks[id.index()].name.to_string(),
            Ty::BlockType(id, args) => list(&hir.block_types[id.index()].name, args),
            Ty::Package(id, args) => list(&hir.packages[id.index()].name, args),
            Ty::ApplyResult(_) => "the result of apply()".into(),
            Ty::ActionRun(_) => "action_run".into(),
        }
    }
}

/// Levenshtein distance; more than `limit` may come out as anything above it.
fn edit_distance(a: &str, b: &str, limit: usize) -> usize {
    if a.len().abs_diff(b.len()) > limit || a.len() > 60 || b.len() > 60 {
        return limit + 1;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let replace = diagonal + usize::from(ca != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
