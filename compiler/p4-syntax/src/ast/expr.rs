//! Expressions and key sets.

use std::fmt;

use num_bigint::BigInt;

use super::{Ident, Path, Span, TypeRef};

/// Number of an expression, unique in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExprId(pub u32);

impl ExprId {
    /// As an index into a side table of [`Program::expr_count`](super::Program::expr_count)
    /// entries.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An expression. Parentheses leave no node; the span of what they hold does not include them.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Its number.
    pub id: ExprId,
    /// Which.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

/// The expressions.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// `5`, `8w0xff`, `4s7`
    Int(IntLiteral),
    /// `true`, `false`
    Bool(bool),
    /// `"text"`, escapes resolved.
    Str(String),
    /// `name`, `.name`: a value, a type (`E` of `E.A`, `C` of `C.apply()`) or a function.
    Path(Path),
    /// `T<A>` where an expression stands: the base of `T<A>.apply(...)`. Without type arguments it
    /// is a [`ExprKind::Path`].
    Type(TypeRef),
    /// `error.Name`
    ErrorMember(Ident),
    /// `this`
    This,
    /// `...`: the default value, alone or as the last element of [`ExprKind::List`].
    Dots,
    /// `base.member`, also of a type: `E.A`
    Member {
        /// What has the member.
        base: Box<Expr>,
        /// Its name.
        member: Ident,
    },
    /// `base[index]`
    Index {
        /// Stack, tuple or list.
        base: Box<Expr>,
        /// Position.
        index: Box<Expr>,
    },
    /// `base[high:low]`
    Slice {
        /// What is sliced.
        base: Box<Expr>,
        /// Leftmost bit.
        high: Box<Expr>,
        /// Rightmost bit.
        low: Box<Expr>,
    },
    /// `base[low+:width]`: `width` bits from `low` up.
    PartSelect {
        /// What is sliced.
        base: Box<Expr>,
        /// Rightmost bit.
        low: Box<Expr>,
        /// How many bits.
        width: Box<Expr>,
    },
    /// `f(x)`, `f<T>(x)`, `o.m(x)`, `t.apply()`, `C<T>(x)` as a constructor.
    Call {
        /// What is called or constructed.
        callee: Box<Expr>,
        /// Type arguments; empty if none are written.
        type_args: Vec<TypeRef>,
        /// Arguments.
        args: Vec<Argument>,
    },
    /// `(T) e`
    Cast {
        /// To.
        ty: Box<TypeRef>,
        /// What.
        expr: Box<Expr>,
    },
    /// `!e`, `~e`, `-e`, `+e`
    Unary {
        /// Operator.
        op: UnaryOp,
        /// Place of the operator.
        op_span: Span,
        /// Operand.
        expr: Box<Expr>,
    },
    /// `a + b`
    Binary {
        /// Operator.
        op: BinaryOp,
        /// Place of the operator.
        op_span: Span,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// `c ? a : b`
    Conditional {
        /// Condition.
        condition: Box<Expr>,
        /// Value when true.
        then_value: Box<Expr>,
        /// Value when false.
        else_value: Box<Expr>,
    },
    /// `{a, b}` and `{a, ...}`
    List(Vec<Expr>),
    /// `{x = a, y = b}` and `{x = a, ...}`
    Struct {
        /// Fields as written.
        fields: Vec<NamedValue>,
        /// Place of a closing `...`: the other fields have their default values.
        dots: Option<Span>,
    },
    /// `{#}`: an invalid header or header union.
    Invalid,
}

/// An integer literal (spec §6.4.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntLiteral {
    /// The value. If the one written needs more bits than `width` the parser has warned and this is
    /// its low bits, read as two's complement if `signed`: only then can it be negative (`1s1` is
    /// -1).
    pub value: BigInt,
    /// `8w...` and `8s...` say how many bits; else the type is the arbitrary-precision `int`.
    pub width: Option<u32>,
    /// `s`: `int<width>`; only with a width.
    pub signed: bool,
}

/// `name = value`, in a struct expression or structured annotation.
#[derive(Clone, Debug)]
pub struct NamedValue {
    /// Name.
    pub name: Ident,
    /// Value.
    pub value: Expr,
    /// Both.
    pub span: Span,
}

/// An argument of a call or an instantiation.
#[derive(Clone, Debug)]
pub struct Argument {
    /// `name = ...`
    pub name: Option<Ident>,
    /// The value; `None` is the don't-care `_` (for an `out` parameter, or a type to infer).
    pub value: Option<Expr>,
    /// The whole argument.
    pub span: Span,
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `!`
    Not,
    /// `~`
    BitNot,
    /// `-`
    Neg,
    /// `+`
    Plus,
}

impl UnaryOp {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Not => "!",
            Self::BitNot => "~",
            Self::Neg => "-",
            Self::Plus => "+",
        }
    }
}

impl fmt::Display for UnaryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Infix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Mod,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `|+|`
    SatAdd,
    /// `|-|`
    SatSub,
    /// `++`
    Concat,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `&`
    BitAnd,
    /// `^`
    BitXor,
    /// `|`
    BitOr,
    /// `&&`
    And,
    /// `||`
    Or,
}

impl BinaryOp {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mul => "*",
            Self::Div => "/",
            Self::Mod => "%",
            Self::Add => "+",
            Self::Sub => "-",
            Self::SatAdd => "|+|",
            Self::SatSub => "|-|",
            Self::Concat => "++",
            Self::Shl => "<<",
            Self::Shr => ">>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::BitAnd => "&",
            Self::BitXor => "^",
            Self::BitOr => "|",
            Self::And => "&&",
            Self::Or => "||",
        }
    }
}

impl fmt::Display for BinaryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a select case or a table entry matches.
#[derive(Clone, Debug)]
pub struct Keyset {
    /// Which.
    pub kind: KeysetKind,
    /// Where it stands.
    pub span: Span,
}

/// The forms of a key set.
#[derive(Clone, Debug)]
pub enum KeysetKind {
    /// `default`
    Default,
    /// `_`
    DontCare,
    /// One value, or a value set's name.
    Expr(Expr),
    /// `value &&& mask`
    Mask {
        /// Value.
        value: Expr,
        /// Mask: bits that matter are 1.
        mask: Expr,
    },
    /// `low .. high`, both included.
    Range {
        /// First value.
        low: Expr,
        /// Last value.
        high: Expr,
    },
    /// `(k1, k2, ...)`: one for each selector. Never nested. A lone `(k)` is `k` itself.
    Tuple(Vec<Keyset>),
}
