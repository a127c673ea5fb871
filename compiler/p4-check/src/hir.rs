//! The checked program: names resolved, types known, constants folded, arguments in the order of
//! parameters.
//!
//! Still as declared: not instantiated, not inlined. `check` makes it, `lower` elaborates it into
//! the IR, and p4-interpreter's `tree` runs it as it is, to hold `lower` against.

mod table;

use std::rc::Rc;

use num_bigint::BigInt;
use p4_syntax::Span;
pub use p4_syntax::ast::{Annotations, BinaryOp, Direction, UnaryOp};

use crate::ty::Ty;
pub use table::*;

macro_rules! ids {
    ($($name:ident)*) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            pub fn index(self) -> usize { self.0 as usize }
        }
    )* };
}
ids!(RecordId EnumId NewTypeId ExternDefId BlockId BlockTypeId PackageId TableDefId TypeParamId FunctionId ActionDefId LocalId);

/// Struct, header or header union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Struct,
    Header,
    Union,
}

#[derive(Debug)]
pub struct FieldDef {
    pub name: Rc<str>,
    pub ty: Ty,
    pub annotations: Annotations,
    pub span: Span,
}

#[derive(Debug)]
pub struct RecordDef {
    pub kind: RecordKind,
    pub name: Rc<str>,
    pub type_params: Vec<TypeParamId>,
    pub fields: Vec<FieldDef>,
    pub annotations: Annotations,
    pub span: Span,
}

#[derive(Debug)]
pub struct EnumDef {
    pub name: Rc<str>,
    /// Set for serializable enums.
    pub underlying: Option<Ty>,
    pub members: Vec<(Rc<str>, BigInt)>,
    pub span: Span,
}

#[derive(Debug)]
pub struct NewTypeDef {
    pub name: Rc<str>,
    pub target: Ty,
}

#[derive(Clone, Debug)]
pub struct ParamDef {
    pub name: Rc<str>,
    pub direction: Direction,
    pub ty: Ty,
    /// What the name stands for in the body.
    pub local: LocalId,
    pub default: Option<Rc<Expr>>,
    pub optional: bool,
    pub span: Span,
}

/// A function, extern function or method of an extern.
#[derive(Debug)]
pub struct FunctionDef {
    pub name: Rc<str>,
    pub type_params: Vec<TypeParamId>,
    pub params: Rc<[ParamDef]>,
    pub ret: Ty,
    /// None: extern.
    pub body: Option<Rc<Block>>,
    pub span: Span,
}

#[derive(Debug)]
pub struct ExternDef {
    pub name: Rc<str>,
    pub type_params: Vec<TypeParamId>,
    pub constructors: Vec<Rc<[ParamDef]>>,
    pub methods: Vec<FunctionId>,
    pub span: Span,
}

#[derive(Debug)]
pub struct ActionDef {
    pub name: Rc<str>,
    pub params: Rc<[ParamDef]>,
    pub body: Rc<Block>,
    pub annotations: Annotations,
    /// Declared outside of controls.
    pub global: bool,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Parser,
    Control,
}

impl BlockKind {
    pub fn as_str(self) -> &'static str {
        match self {
            BlockKind::Parser => "parser",
            BlockKind::Control => "control",
        }
    }
}

/// A parser or control with a body.
#[derive(Debug)]
pub struct BlockDef {
    pub kind: BlockKind,
    pub name: Rc<str>,
    pub params: Rc<[ParamDef]>,
    pub constructor_params: Rc<[ParamDef]>,
    /// Variables, instances, value sets, in order.
    pub locals: Rc<Block>,
    /// Controls.
    pub body: Rc<Block>,
    /// Parsers; `start` first.
    pub states: Vec<StateDef>,
    pub annotations: Annotations,
    pub span: Span,
}

/// `parser P<H>(...);` or `control C<H>(...);`
#[derive(Debug)]
pub struct BlockTypeDef {
    pub kind: BlockKind,
    pub name: Rc<str>,
    pub type_params: Vec<TypeParamId>,
    pub params: Rc<[ParamDef]>,
}

#[derive(Debug)]
pub struct PackageDef {
    pub name: Rc<str>,
    pub type_params: Vec<TypeParamId>,
    pub params: Rc<[ParamDef]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateTarget {
    Accept,
    Reject,
    State(usize),
}

#[derive(Debug)]
pub struct StateDef {
    pub name: Rc<str>,
    pub body: Block,
    pub transition: Transition,
    pub span: Span,
}

#[derive(Debug)]
pub enum Transition {
    To(StateTarget),
    Select { keys: Vec<Expr>, cases: Vec<(Vec<Match>, StateTarget, Span)> },
}

/// How a case or entry matches one key. Expressions are compile-time constants (maybe of
/// constructor parameters).
#[derive(Clone, Debug)]
pub enum Match {
    Any,
    Value(Expr),
    Mask(Expr, Expr),
    Range(Expr, Expr),
    ValueSet(LocalId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalKind {
    Variable,
    /// A parameter at run time.
    Parameter(Direction),
    /// A constructor parameter: known when instantiated.
    Constructor,
    /// An instance.
    Object,
    /// A parser value set.
    ValueSet,
    /// Bound by what the control plane or caller gives, read-only: an action's parameter without
    /// direction.
    ActionData,
}

#[derive(Debug)]
pub struct LocalDef {
    pub name: Rc<str>,
    pub ty: Ty,
    pub kind: LocalKind,
    pub annotations: Annotations,
    pub span: Span,
}

pub type Block = Vec<Stmt>;

#[derive(Clone, Debug)]
pub struct Stmt {
    pub kind: StmtKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum StmtKind {
    Variable(LocalId, Option<Expr>),
    /// An instance and the expression that makes it.
    Object(LocalId, Expr),
    /// A value set and its size.
    ValueSet(LocalId, Expr),
    Assign(Expr, Expr),
    Call(Expr),
    If(Expr, Block, Block),
    /// The statements, and whether they are `@atomic`.
    Block(Block, bool),
    Switch {
        subject: Expr,
        cases: Vec<(Vec<Expr>, Block)>,
        default: Block,
    },
    /// On the action that a table ran; cases are indices into the table's actions.
    ActionSwitch {
        table: TableDefId,
        cases: Vec<(Vec<usize>, Block)>,
        default: Block,
    },
    Return(Option<Expr>),
    Exit,
}

/// A compile-time value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Numbers (serializable enums too: their value), bool as 0 and 1, errors and enum members as
    /// indices.
    Int(BigInt),
    Str(Rc<str>),
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub ty: Ty,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Already reported.
    Poison,
    Const(Value),
    Local(LocalId),
    Field(Box<Expr>, u32),
    Index(Box<Expr>, Box<Expr>),
    StackNext(Box<Expr>),
    StackLast(Box<Expr>),
    StackLastIndex(Box<Expr>),
    Slice(Box<Expr>, u32, u32),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Cast(Box<Expr>),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Fields of a struct, header or tuple, elements of a stack or list, as declared; and how they
    /// are evaluated.
    Aggregate(Vec<Expr>, Order),
    InvalidHeader,
    Call(Box<Call>),
    /// `t.apply()` with the part of the result that is used.
    Apply(TableDefId, ApplyPart),
    /// A constructor call.
    Construct(Box<Construct>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyPart {
    All,
    Hit,
    Miss,
    ActionRun,
}

#[derive(Clone, Debug)]
pub enum Callee {
    Function(FunctionId),
    /// The method of the object that the expression (a local) names.
    Method(Expr, FunctionId),
    Action(ActionDefId),
    /// `apply` of a parser or control instance.
    Block(Expr),
    /// `T.apply(...)`: an instance with no name of its own.
    Direct(Construct, BlockId),
    IsValid(Expr),
    SetValid(Expr, bool),
    PushFront(Expr),
    PopFront(Expr),
}

#[derive(Clone, Debug)]
pub struct Call {
    pub callee: Callee,
    pub type_args: Vec<Ty>,
    /// `packet.lookahead<T>()`: reads and changes nothing.
    pub lookahead: bool,
    /// By parameter; None: `_` or left out.
    pub args: Vec<Option<Expr>>,
    /// In which order the arguments are evaluated.
    pub order: Order,
}

impl Call {
    /// Whether two calls are written alike.
    fn same_as(&self, other: &Call) -> bool {
        let callee = match (&self.callee, &other.callee) {
            (Callee::Function(a), Callee::Function(b)) => a == b,
            (Callee::Method(a, f), Callee::Method(b, g)) => f == g && a.same_as(b),
            (Callee::IsValid(a), Callee::IsValid(b)) => a.same_as(b),
            _ => false,
        };
        let given = |a: &Option<Expr>, b: &Option<Expr>| match (a, b) {
            (Some(a), Some(b)) => a.same_as(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        callee
            && self.type_args == other.type_args
            && self.order.0 == other.order.0
            && self.args.len() == other.args.len()
            && self.args.iter().zip(&other.args).all(|(a, b)| given(a, b))
    }
}

/// The order in which arguments or fields are evaluated: as written (spec §6.8). With names that
/// can differ from the order of the declaration, in which the list itself stands.
#[derive(Clone, Debug, Default)]
pub struct Order(Option<Rc<[usize]>>);

impl Order {
    /// Places in the list, as written. What is not among them (defaults) comes after.
    pub fn written(places: Vec<usize>) -> Order {
        if places.is_sorted() { Order(None) } else { Order(Some(places.into())) }
    }

    /// All places of a list of `count`, in the order of evaluation.
    pub fn places(&self, count: usize) -> Vec<usize> {
        let first: &[usize] = self.0.as_deref().unwrap_or_default();
        first.iter().copied().chain((0..count).filter(|i| !first.contains(i))).collect()
    }
}

#[derive(Clone, Debug)]
pub enum Constructed {
    Extern(ExternDefId, Vec<Ty>),
    Block(BlockId),
    Package(PackageId),
}

#[derive(Clone, Debug)]
pub struct Construct {
    pub what: Constructed,
    pub args: Vec<Option<Expr>>,
    pub params: Rc<[ParamDef]>,
}

/// All that was declared.
#[derive(Debug, Default)]
pub struct Hir {
    pub records: Vec<RecordDef>,
    pub enums: Vec<EnumDef>,
    pub new_types: Vec<NewTypeDef>,
    pub externs: Vec<ExternDef>,
    pub functions: Vec<FunctionDef>,
    pub actions: Vec<ActionDef>,
    pub blocks: Vec<BlockDef>,
    pub block_types: Vec<BlockTypeDef>,
    pub packages: Vec<PackageDef>,
    /// None while it is being checked.
    pub tables: Vec<Option<TableDef>>,
    pub locals: Vec<LocalDef>,
    pub type_params: Vec<Rc<str>>,
    pub errors: Vec<Rc<str>>,
    pub match_kinds: Vec<Rc<str>>,
    /// Top-level instances in order.
    pub instances: Vec<(LocalId, Expr)>,
    /// `NoAction` of core.p4.
    pub no_action: Option<ActionDefId>,
}

impl Expr {
    pub fn poison(span: Span) -> Expr {
        Expr { kind: ExprKind::Poison, ty: Ty::Poison, span }
    }

    pub fn is_poison(&self) -> bool {
        self.ty.is_poison()
    }

    pub fn int(value: BigInt, ty: Ty, span: Span) -> Expr {
        Expr { kind: ExprKind::Const(Value::Int(value)), ty, span }
    }

    pub fn bool(value: bool, span: Span) -> Expr {
        Expr::int(BigInt::from(value as u8), Ty::Bool, span)
    }

    /// The number, if it is a constant that is known now.
    pub fn as_int(&self) -> Option<&BigInt> {
        match &self.kind {
            ExprKind::Const(Value::Int(v)) => Some(v),
            _ => None,
        }
    }

    /// Whether two expressions are written alike. A call of a parser or control is like no other.
    pub fn same_as(&self, other: &Expr) -> bool {
        self.ty == other.ty
            && match (&self.kind, &other.kind) {
                (ExprKind::Const(a), ExprKind::Const(b)) => a == b,
                (ExprKind::Local(a), ExprKind::Local(b)) => a == b,
                (ExprKind::InvalidHeader, ExprKind::InvalidHeader) => true,
                (ExprKind::Field(a, i), ExprKind::Field(b, j)) => i == j && a.same_as(b),
                (ExprKind::Slice(a, i, k), ExprKind::Slice(b, j, l)) => {
                    i == j && k == l && a.same_as(b)
                }
                (ExprKind::Cast(a), ExprKind::Cast(b))
                | (ExprKind::StackNext(a), ExprKind::StackNext(b))
                | (ExprKind::StackLast(a), ExprKind::StackLast(b))
                | (ExprKind::StackLastIndex(a), ExprKind::StackLastIndex(b)) => a.same_as(b),
                (ExprKind::Call(a), ExprKind::Call(b)) => a.same_as(b),
                (ExprKind::Unary(o, a), ExprKind::Unary(p, b)) => o == p && a.same_as(b),
                (ExprKind::Index(a, i), ExprKind::Index(b, j)) => a.same_as(b) && i.same_as(j),
                (ExprKind::Binary(o, a, i), ExprKind::Binary(p, b, j)) => {
                    o == p && a.same_as(b) && i.same_as(j)
                }
                (ExprKind::Conditional(a, i, k), ExprKind::Conditional(b, j, l)) => {
                    a.same_as(b) && i.same_as(j) && k.same_as(l)
                }
                (ExprKind::Aggregate(a, o), ExprKind::Aggregate(b, p)) => {
                    o.0 == p.0 && a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_as(b))
                }
                _ => false,
            }
    }

    /// Whether evaluating it can change something.
    pub fn has_effects(&self) -> bool {
        self.calls(false)
    }

    /// Whether evaluating it reads the packet ahead, which fails if the packet is too short.
    pub fn looks_ahead(&self) -> bool {
        self.calls(true)
    }

    /// Whether it has a call: of `lookahead`, or of anything else.
    fn calls(&self, lookahead: bool) -> bool {
        match &self.kind {
            ExprKind::Call(call) => match &call.callee {
                Callee::IsValid(e) => e.calls(lookahead),
                _ => call.lookahead == lookahead,
            },
            ExprKind::Apply(..) | ExprKind::Construct(_) => !lookahead,
            ExprKind::Field(e, _)
            | ExprKind::StackNext(e)
            | ExprKind::StackLast(e)
            | ExprKind::StackLastIndex(e)
            | ExprKind::Slice(e, ..)
            | ExprKind::Unary(_, e)
            | ExprKind::Cast(e) => e.calls(lookahead),
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => {
                a.calls(lookahead) || b.calls(lookahead)
            }
            ExprKind::Conditional(a, b, c) => [a, b, c].iter().any(|e| e.calls(lookahead)),
            ExprKind::Aggregate(list, _) => list.iter().any(|e| e.calls(lookahead)),
            _ => false,
        }
    }

    /// Whether it is small enough to be repeated wherever a constant's name stands.
    pub fn is_modest(&self, fuel: &mut usize, depth: usize) -> bool {
        if *fuel == 0 || depth == 0 {
            return false;
        }
        *fuel -= 1;
        match &self.kind {
            ExprKind::Field(e, _)
            | ExprKind::Slice(e, ..)
            | ExprKind::Unary(_, e)
            | ExprKind::Cast(e) => e.is_modest(fuel, depth - 1),
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => {
                a.is_modest(fuel, depth - 1) && b.is_modest(fuel, depth - 1)
            }
            ExprKind::Conditional(a, b, c) => {
                [a, b, c].iter().all(|e| e.is_modest(fuel, depth - 1))
            }
            ExprKind::Aggregate(list, _) => list.iter().all(|e| e.is_modest(fuel, depth - 1)),
            _ => true,
        }
    }

    /// Whether its value is fixed when the program is instantiated.
    pub fn is_compile_time(&self, locals: &[LocalDef]) -> bool {
        match &self.kind {
            ExprKind::Poison
            | ExprKind::Const(_)
            | ExprKind::InvalidHeader
            | ExprKind::Construct(_) => true,
            ExprKind::Local(id) => {
                matches!(locals[id.index()].kind, LocalKind::Constructor | LocalKind::Object)
            }
            ExprKind::Field(e, _)
            | ExprKind::Slice(e, ..)
            | ExprKind::Unary(_, e)
            | ExprKind::Cast(e) => e.is_compile_time(locals),
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => {
                a.is_compile_time(locals) && b.is_compile_time(locals)
            }
            ExprKind::Conditional(a, b, c) => {
                a.is_compile_time(locals) && b.is_compile_time(locals) && c.is_compile_time(locals)
            }
            ExprKind::Aggregate(list, _) => list.iter().all(|e| e.is_compile_time(locals)),
            _ => false,
        }
    }
}
