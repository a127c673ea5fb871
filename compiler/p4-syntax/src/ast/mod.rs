//! The syntax tree of P4-16 1.2.5, as written: no name is resolved, no type is known, nothing is
//! folded.
//!
//! Every node carries the [`Span`] it was read from and every expression an [`ExprId`] that is
//! unique in its program, so that later passes keep what they learn in side tables. Names are kept
//! as written; whether `f<T>(x)` is a call, a method call or a constructor is for the checker to
//! decide, so all are [`ExprKind::Call`].

mod expr;
mod stmt;
mod table;
mod types;

pub use expr::*;
pub use stmt::*;
pub use table::*;
pub use types::*;

use std::fmt;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
pub use crate::span::Span;

/// A name as written in the program, with its place.
#[derive(Clone, Debug)]
pub struct Ident {
    /// The text of the name.
    pub name: Arc<str>,
    /// Where it stands.
    pub span: Span,
}

impl Ident {
    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A reference by name, looked up from the inner scope outwards, or in the outermost scope only
/// (`.name`).
#[derive(Clone, Debug)]
pub struct Path {
    /// Written with a leading dot: only top-level declarations are considered (spec §6.8).
    pub absolute: bool,
    /// The name.
    pub name: Ident,
    /// The whole reference, with its dot.
    pub span: Span,
}

/// A whole program: core.p4, the architecture's declarations and the user's own, in the order of
/// the text.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Top-level declarations.
    pub declarations: Vec<Declaration>,
    /// How many expression ids were given out; ids are `0..expr_count`.
    pub expr_count: u32,
    /// What the preprocessor, the lexer and the parser warn of.
    pub warnings: Vec<Diagnostic>,
}

/// `@name`, `@name(...)` or `@name[...]` (spec §20). Also `@pragma name ...` to the end of its
/// line.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// Name without `@`.
    pub name: Ident,
    /// What follows the name.
    pub body: AnnotationBody,
    /// From `@` to the end.
    pub span: Span,
}

/// The three forms of an annotation.
#[derive(Clone, Debug)]
pub enum AnnotationBody {
    /// `@name`
    Empty,
    /// `@name(tokens)`: uninterpreted tokens, without the outer parentheses.
    Unstructured(Vec<AnnotationToken>),
    /// `@name[e1, e2]`
    Expressions(Vec<Expr>),
    /// `@name[k=v, ...]`
    KeyValues(Vec<NamedValue>),
}

/// One token of an unstructured annotation body.
#[derive(Clone, Debug)]
pub struct AnnotationToken {
    /// The token as written; for a string literal its value, without quotes and with escapes
    /// resolved.
    pub text: Arc<str>,
    /// What kind of token it is.
    pub kind: AnnotationTokenKind,
    /// Where it stands.
    pub span: Span,
}

/// The kinds of token that users of annotations tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationTokenKind {
    /// A string literal.
    Str,
    /// An integer literal (as written).
    Int,
    /// A name or a keyword.
    Word,
    /// Everything else.
    Punct,
}

/// The annotations of one node, in order.
pub type Annotations = Vec<Annotation>;

/// A declaration at the top level, or inside a parser, control or block.
#[derive(Clone, Debug)]
pub enum Declaration {
    /// `const T x = e;`
    Constant(ConstantDecl),
    /// `extern E<T> { ... }`
    ExternObject(ExternObjectDecl),
    /// `extern R f<T>(...);`
    ExternFunction(FunctionPrototype),
    /// `R f<T>(...) { ... }`
    Function(FunctionDecl),
    /// `action a(...) { ... }`
    Action(ActionDecl),
    /// `parser P(...)(...) { ... }`
    Parser(ParserDecl),
    /// `parser P<T>(...);`
    ParserType(ApplyTypeDecl),
    /// `control C(...)(...) { ... apply { ... } }`
    Control(ControlDecl),
    /// `control C<T>(...);`
    ControlType(ApplyTypeDecl),
    /// `package P<T>(...);`
    Package(PackageDecl),
    /// `T(args) name;`
    Instantiation(Instantiation),
    /// `header`, `header_union` or `struct`
    Struct(StructDecl),
    /// `enum E { A, B }` and `enum bit<8> E { A = 1 }`
    Enum(EnumDecl),
    /// `error { A, B }`
    Error(MemberListDecl),
    /// `match_kind { exact, ... }`
    MatchKind(MemberListDecl),
    /// `typedef T N;` and `type T N;`
    Typedef(TypedefDecl),
    /// `T x;` and `T x = e;` (local only)
    Variable(VariableDecl),
    /// `value_set<T>(n) s;` (parsers only)
    ValueSet(ValueSetDecl),
    /// `table t { ... }` (controls only)
    Table(TableDecl),
}

impl Declaration {
    /// The whole declaration's place.
    pub fn span(&self) -> Span {
        match self {
            Self::Constant(d) => d.span,
            Self::ExternObject(d) => d.span,
            Self::ExternFunction(d) => d.span,
            Self::Function(d) => d.span,
            Self::Action(d) => d.span,
            Self::Parser(d) => d.span,
            Self::ParserType(d) | Self::ControlType(d) => d.span,
            Self::Control(d) => d.span,
            Self::Package(d) => d.span,
            Self::Instantiation(d) => d.span,
            Self::Struct(d) => d.span,
            Self::Enum(d) => d.span,
            Self::Error(d) | Self::MatchKind(d) => d.span,
            Self::Typedef(d) => d.span,
            Self::Variable(d) => d.span,
            Self::ValueSet(d) => d.span,
            Self::Table(d) => d.span,
        }
    }

    /// The declared name; `error` and `match_kind` declare members only.
    pub fn name(&self) -> Option<&Ident> {
        Some(match self {
            Self::Constant(d) => &d.name,
            Self::ExternObject(d) => &d.name,
            Self::ExternFunction(d) => &d.name,
            Self::Function(d) => &d.prototype.name,
            Self::Action(d) => &d.name,
            Self::Parser(d) => &d.ty.name,
            Self::ParserType(d) | Self::ControlType(d) => &d.name,
            Self::Control(d) => &d.ty.name,
            Self::Package(d) => &d.name,
            Self::Instantiation(d) => &d.name,
            Self::Struct(d) => &d.name,
            Self::Enum(d) => &d.name,
            Self::Error(_) | Self::MatchKind(_) => return None,
            Self::Typedef(d) => &d.name,
            Self::Variable(d) => &d.name,
            Self::ValueSet(d) => &d.name,
            Self::Table(d) => &d.name,
        })
    }
}

/// `const T x = e;`
#[derive(Clone, Debug)]
pub struct ConstantDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Declared type.
    pub ty: TypeRef,
    /// Declared name.
    pub name: Ident,
    /// Value; a compile-time constant.
    pub value: Expr,
    /// The whole declaration.
    pub span: Span,
}

/// `T x;` or `T x = e;`
#[derive(Clone, Debug)]
pub struct VariableDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Declared type.
    pub ty: TypeRef,
    /// Declared name.
    pub name: Ident,
    /// Initial value, if one is written.
    pub init: Option<Expr>,
    /// The whole declaration.
    pub span: Span,
}

/// `T<A>(args) name;` or `T<A>(args) name = { abstract methods };`
#[derive(Clone, Debug)]
pub struct Instantiation {
    /// Annotations before it.
    pub annotations: Annotations,
    /// What is instantiated: a named or specialised type.
    pub ty: TypeRef,
    /// Constructor arguments.
    pub args: Vec<Argument>,
    /// Name of the instance.
    pub name: Ident,
    /// Functions and instances that give an extern's abstract methods their bodies.
    pub initializer: Option<Vec<Declaration>>,
    /// The whole declaration.
    pub span: Span,
}

/// `extern E<T> { constructors and methods }`
#[derive(Clone, Debug)]
pub struct ExternObjectDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Declared name.
    pub name: Ident,
    /// Type parameters.
    pub type_params: Vec<Ident>,
    /// Constructors: the entries whose name is the extern's own.
    pub constructors: Vec<ConstructorDecl>,
    /// Methods.
    pub methods: Vec<FunctionPrototype>,
    /// The whole declaration.
    pub span: Span,
}

/// A constructor of an extern object.
#[derive(Clone, Debug)]
pub struct ConstructorDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// The extern's name, again.
    pub name: Ident,
    /// Constructor parameters.
    pub params: Vec<Parameter>,
    /// The whole declaration.
    pub span: Span,
}

/// A function's or method's signature.
#[derive(Clone, Debug)]
pub struct FunctionPrototype {
    /// Annotations before it.
    pub annotations: Annotations,
    /// `abstract` method: the instance supplies the body.
    pub is_abstract: bool,
    /// Return type; may be [`TypeKind::Void`].
    pub return_type: TypeRef,
    /// Declared name.
    pub name: Ident,
    /// Type parameters.
    pub type_params: Vec<Ident>,
    /// Parameters.
    pub params: Vec<Parameter>,
    /// The whole signature.
    pub span: Span,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub struct FunctionDecl {
    /// Its signature.
    pub prototype: FunctionPrototype,
    /// Its body.
    pub body: Block,
    /// The whole declaration.
    pub span: Span,
}

/// `action a(params) { ... }`
#[derive(Clone, Debug)]
pub struct ActionDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Declared name.
    pub name: Ident,
    /// Parameters: those with a direction come from the caller, those without from the control
    /// plane.
    pub params: Vec<Parameter>,
    /// Its body.
    pub body: Block,
    /// The whole declaration.
    pub span: Span,
}

/// The signature that parsers, controls, parser types and control types share.
#[derive(Clone, Debug)]
pub struct ApplyTypeDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Declared name.
    pub name: Ident,
    /// Type parameters (only types may have them; the checker refuses them on a parser or control
    /// with a body).
    pub type_params: Vec<Ident>,
    /// Parameters of `apply`.
    pub params: Vec<Parameter>,
    /// The whole signature.
    pub span: Span,
}

/// A parser with a body.
#[derive(Clone, Debug)]
pub struct ParserDecl {
    /// Its signature.
    pub ty: ApplyTypeDecl,
    /// Constructor parameters; `None` if none are written.
    pub constructor_params: Option<Vec<Parameter>>,
    /// Constants, variables, instances and value sets before the states.
    pub locals: Vec<Declaration>,
    /// States in the order written.
    pub states: Vec<ParserState>,
    /// The whole declaration.
    pub span: Span,
}

/// `state s { statements transition ...; }`
#[derive(Clone, Debug)]
pub struct ParserState {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Its name.
    pub name: Ident,
    /// Statements before the transition.
    pub statements: Vec<Statement>,
    /// Where it goes; without one the state goes to `reject` (spec §13.5).
    pub transition: Option<Transition>,
    /// The whole state.
    pub span: Span,
}

/// `transition ...`
#[derive(Clone, Debug)]
pub struct Transition {
    /// Where to.
    pub kind: TransitionKind,
    /// The whole statement.
    pub span: Span,
}

/// Direct or by `select`.
#[derive(Clone, Debug)]
pub enum TransitionKind {
    /// `transition s;`
    Direct(Ident),
    /// `transition select(e, ...) { ... }`
    Select {
        /// The selectors.
        exprs: Vec<Expr>,
        /// The cases, tried in order.
        cases: Vec<SelectCase>,
    },
}

/// `keyset: state;`
#[derive(Clone, Debug)]
pub struct SelectCase {
    /// What it matches.
    pub keyset: Keyset,
    /// Name of the next state.
    pub state: Ident,
    /// The whole case.
    pub span: Span,
}

/// A control with a body.
#[derive(Clone, Debug)]
pub struct ControlDecl {
    /// Its signature.
    pub ty: ApplyTypeDecl,
    /// Constructor parameters; `None` if none are written.
    pub constructor_params: Option<Vec<Parameter>>,
    /// Constants, actions, tables, instances and variables.
    pub locals: Vec<Declaration>,
    /// The `apply` block.
    pub body: Block,
    /// The whole declaration.
    pub span: Span,
}

/// `package P<T>(params);`
#[derive(Clone, Debug)]
pub struct PackageDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Declared name.
    pub name: Ident,
    /// Type parameters.
    pub type_params: Vec<Ident>,
    /// Constructor parameters.
    pub params: Vec<Parameter>,
    /// The whole declaration.
    pub span: Span,
}

/// `value_set<T>(size) name;`
#[derive(Clone, Debug)]
pub struct ValueSetDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Element type.
    pub elem: TypeRef,
    /// Size.
    pub size: Expr,
    /// Declared name.
    pub name: Ident,
    /// The whole declaration.
    pub span: Span,
}

/// A parameter of an action, function, method, parser, control, package or constructor.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Annotations before it; `@optional` makes it optional.
    pub annotations: Annotations,
    /// Direction.
    pub direction: Direction,
    /// Type.
    pub ty: TypeRef,
    /// Name.
    pub name: Ident,
    /// Default value.
    pub default: Option<Expr>,
    /// The whole parameter.
    pub span: Span,
}

impl Parameter {
    /// Whether it is marked `@optional` (spec §6.7): callers may leave it out.
    pub fn is_optional(&self) -> bool {
        self.annotations.iter().any(|a| a.name.as_str() == "optional")
    }
}

/// A parameter's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// None written.
    None,
    /// `in`
    In,
    /// `out`
    Out,
    /// `inout`
    InOut,
}

impl Direction {
    /// As written in a program; empty for [`Direction::None`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::In => "in",
            Self::Out => "out",
            Self::InOut => "inout",
        }
    }
}
