//! Functions that make one value of two, as `@merge("NAME")` of a declaration names them.

use crate::{
    Block, Control, Location, Parser, Program, State, Statement, StatementKind, Target, Transition,
    Type, Variable, VariableId,
};
use serde::{Deserialize, Serialize};

/// Such a function, by itself: its variables and labels are numbered from 0, and all of its
/// storage is scalars. Its body computes, and does nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// As written.
    pub name: String,
    /// Its storage.
    pub variables: Vec<Variable>,
    /// The two values.
    pub parameters: [VariableId; 2],
    /// Where the body leaves what it makes of them.
    pub result: VariableId,
    /// What it does.
    pub body: Block,
    /// Where declared.
    pub location: Location,
}

impl Merge {
    /// The type of the two values and of what they become.
    pub fn ty(&self) -> Option<&Type> {
        Some(&self.variables.get(self.result.index())?.ty)
    }

    /// A program with this function's storage and nothing else, for an interpreter.
    pub fn alone(&self) -> Program {
        let empty = |name: &str| Control { name: name.into(), body: vec![] };
        let start = State {
            name: "start".into(),
            body: vec![],
            transition: Transition::To(Target::Accept),
            continues: false,
            location: self.location,
        };
        Program {
            files: vec![],
            header_types: vec![],
            struct_types: vec![],
            union_types: vec![],
            enum_types: vec![],
            serializable_enums: vec![],
            errors: vec!["NoError".into()],
            variables: self.variables.clone(),
            headers: self.result,
            metadata: self.result,
            standard_metadata: self.result,
            actions: vec![],
            tables: vec![],
            externs: vec![],
            parser: Parser { name: self.name.clone(), prologue: vec![], states: vec![start] },
            verify_checksum: empty("verify"),
            ingress: empty("ingress"),
            egress: empty("egress"),
            compute_checksum: empty("compute"),
            deparser: empty("deparser"),
        }
    }

    /// The first statement that does more than compute, or `None`.
    pub fn first_effect(&self) -> Option<&Statement> {
        effect(&self.body)
    }
}

fn effect(body: &[Statement]) -> Option<&Statement> {
    body.iter().find_map(|statement| match &statement.kind {
        StatementKind::Assign(..) | StatementKind::Leave(_) => None,
        StatementKind::If { then, otherwise, .. } => effect(then).or_else(|| effect(otherwise)),
        StatementKind::Switch { cases, default, .. } => {
            cases.iter().find_map(|(_, body)| effect(body)).or_else(|| effect(default))
        }
        StatementKind::Block { body, .. } => effect(body),
        _ => Some(statement),
    })
}
