//! Types as the checker sees them, before they become IR types.

use std::collections::HashMap;
use std::rc::Rc;

use crate::hir::{
    BlockId, BlockTypeId, EnumId, ExternDefId, NewTypeId, PackageId, RecordId, TableDefId,
    TypeParamId,
};

/// A checked type. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// The type of what is already reported: fits everything, so that one fault gives one message.
    Poison,
    Void,
    Bool,
    Error,
    MatchKind,
    Str,
    /// `int`: arbitrary precision, constants only.
    Int,
    Bit(u32),
    Signed(u32),
    Varbit(u32),
    /// A type parameter of a generic declaration.
    Param(TypeParamId),
    /// A type to be inferred, an index into the checker's solutions.
    Infer(u32),
    /// A struct, header or header union with its type arguments.
    Record(RecordId, Rc<[Ty]>),
    Enum(EnumId),
    /// `type T N;`
    New(NewTypeId),
    Stack(Rc<Ty>, u32),
    Tuple(Rc<[Ty]>),
    List(Rc<Ty>),
    /// `{#}` before its type is known.
    Invalid,
    Extern(ExternDefId, Rc<[Ty]>),
    /// An instance of a declared parser or control.
    Block(BlockId),
    /// A parser or control type, such as `Parser<H, M>`.
    BlockType(BlockTypeId, Rc<[Ty]>),
    Package(PackageId, Rc<[Ty]>),
    /// What `t.apply()` gives.
    ApplyResult(TableDefId),
    /// What `t.apply().action_run` gives.
    ActionRun(TableDefId),
}

/// Type arguments by type parameter.
pub type Substitution = HashMap<TypeParamId, Ty>;

impl Ty {
    pub fn is_poison(&self) -> bool {
        matches!(self, Ty::Poison)
    }

    /// `bit<N>` or `int<N>`.
    pub fn is_fixed_bits(&self) -> bool {
        matches!(self, Ty::Bit(_) | Ty::Signed(_))
    }

    /// `bit<N>`, `int<N>` or `int`.
    pub fn is_number(&self) -> bool {
        matches!(self, Ty::Bit(_) | Ty::Signed(_) | Ty::Int)
    }

    /// Width and signedness of fixed-width numbers.
    pub fn bits(&self) -> Option<(u32, bool)> {
        match self {
            Ty::Bit(w) => Some((*w, false)),
            Ty::Signed(w) => Some((*w, true)),
            _ => None,
        }
    }

    /// Instances: extern objects, parsers, controls, packages, tables.
    pub fn is_object(&self) -> bool {
        matches!(self, Ty::Extern(..) | Ty::Block(_) | Ty::BlockType(..) | Ty::Package(..))
    }

    /// Replaces type parameters.
    pub fn substitute(&self, map: &Substitution) -> Ty {
        if map.is_empty() {
            return self.clone();
        }
        self.rewrite(&|t| match t {
            Ty::Param(p) => map.get(p).cloned(),
            _ => None,
        })
    }

    /// Replaces the parts for which `leaf` gives something else.
    pub fn rewrite(&self, leaf: &dyn Fn(&Ty) -> Option<Ty>) -> Ty {
        if let Some(new) = leaf(self) {
            return new;
        }
        let all = |list: &Rc<[Ty]>| -> Rc<[Ty]> { list.iter().map(|t| t.rewrite(leaf)).collect() };
        match self {
            Ty::Record(id, args) if !args.is_empty() => Ty::Record(*id, all(args)),
            Ty::Stack(elem, n) => Ty::Stack(Rc::new(elem.rewrite(leaf)), *n),
            Ty::Tuple(parts) => Ty::Tuple(all(parts)),
            Ty::List(elem) => Ty::List(Rc::new(elem.rewrite(leaf))),
            Ty::Extern(id, args) if !args.is_empty() => Ty::Extern(*id, all(args)),
            Ty::BlockType(id, args) if !args.is_empty() => Ty::BlockType(*id, all(args)),
            Ty::Package(id, args) if !args.is_empty() => Ty::Package(*id, all(args)),
            _ => self.clone(),
        }
    }

    /// Whether `test` holds for some part.
    pub fn any(&self, test: &dyn Fn(&Ty) -> bool) -> bool {
        test(self)
            || match self {
                Ty::Record(_, list)
                | Ty::Tuple(list)
                | Ty::Extern(_, list)
                | Ty::BlockType(_, list)
                | Ty::Package(_, list) => list.iter().any(|t| t.any(test)),
                Ty::Stack(elem, _) | Ty::List(elem) => elem.any(test),
                _ => false,
            }
    }
}
