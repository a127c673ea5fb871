//! Types and type declarations.

use super::{Annotations, Expr, Ident, Path, Span};

/// A type as written.
#[derive(Clone, Debug)]
pub struct TypeRef {
    /// Which.
    pub kind: TypeKind,
    /// Where it stands.
    pub span: Span,
}

/// The forms a type can be written in.
#[derive(Clone, Debug)]
pub enum TypeKind {
    /// `bool`
    Bool,
    /// `error`
    Error,
    /// `match_kind`
    MatchKind,
    /// `string`
    String,
    /// `void`
    Void,
    /// `int`: arbitrary precision.
    Integer,
    /// `bit<n>`; plain `bit` (that is `bit<1>`) has no width.
    Bit(Option<Box<Expr>>),
    /// `int<n>`
    Int(Box<Expr>),
    /// `varbit<n>`
    Varbit(Box<Expr>),
    /// `T` or `.T`: a declared type or a type variable.
    Named(Path),
    /// `T<A, B>`
    Specialized {
        /// The generic type.
        base: Path,
        /// Its arguments.
        args: Vec<TypeRef>,
    },
    /// `T[n]`: a header stack, or an array of a named or specialised type.
    Stack {
        /// Element type.
        elem: Box<TypeRef>,
        /// How many.
        size: Box<Expr>,
    },
    /// `tuple<A, B>`
    Tuple(Vec<TypeRef>),
    /// `list<T>`
    List(Box<TypeRef>),
    /// `_` as a type argument.
    DontCare,
}

/// `header H<T> { ... }`, `header_union` and `struct`.
#[derive(Clone, Debug)]
pub struct StructDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Which of the three.
    pub kind: StructKind,
    /// Declared name.
    pub name: Ident,
    /// Type parameters.
    pub type_params: Vec<Ident>,
    /// Fields in order.
    pub fields: Vec<StructField>,
    /// The whole declaration.
    pub span: Span,
}

/// What a [`StructDecl`] declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StructKind {
    /// `struct`
    Struct,
    /// `header`
    Header,
    /// `header_union`
    HeaderUnion,
}

impl StructKind {
    /// The keyword.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Struct => "struct",
            Self::Header => "header",
            Self::HeaderUnion => "header_union",
        }
    }
}

/// `T name;` in a struct, header or union.
#[derive(Clone, Debug)]
pub struct StructField {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Type.
    pub ty: TypeRef,
    /// Name.
    pub name: Ident,
    /// The whole field.
    pub span: Span,
}

/// `enum E { A }` or `enum bit<8> E { A = 1 }`
#[derive(Clone, Debug)]
pub struct EnumDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// The type beneath, of a serializable enum.
    pub underlying: Option<TypeRef>,
    /// Declared name.
    pub name: Ident,
    /// Members in order.
    pub members: Vec<EnumMember>,
    /// The whole declaration.
    pub span: Span,
}

/// A member of an enum.
#[derive(Clone, Debug)]
pub struct EnumMember {
    /// Its name.
    pub name: Ident,
    /// Its value; written for every member of a serializable enum, for none of a plain one.
    pub value: Option<Expr>,
    /// The whole member.
    pub span: Span,
}

/// The members of an `error` or `match_kind` declaration.
#[derive(Clone, Debug)]
pub struct MemberListDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Members in order.
    pub members: Vec<Ident>,
    /// The whole declaration.
    pub span: Span,
}

/// `typedef T N;` (another name) or `type T N;` (a new type).
#[derive(Clone, Debug)]
pub struct TypedefDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// `type`: a distinct type, not an alias.
    pub is_new_type: bool,
    /// What it stands for.
    pub target: TypedefTarget,
    /// Declared name.
    pub name: Ident,
    /// The whole declaration.
    pub span: Span,
}

/// What a typedef names.
#[derive(Clone, Debug)]
pub enum TypedefTarget {
    /// An existing type.
    Type(TypeRef),
    /// `typedef struct S { ... } N;`: declares `S`, too.
    Struct(Box<StructDecl>),
    /// `typedef enum E { ... } N;`: declares `E`, too.
    Enum(Box<EnumDecl>),
}
