//! The functions that `@merge("NAME")` of declarations names.

use std::rc::Rc;

use p4_ir as ir;
use p4_syntax::{Diagnostic, Span};

use crate::hir::{self, Direction};
use crate::lower::{Binding, Lowerer, ReturnMode};
use crate::lower_call::leaves;
use crate::names;
use crate::ty::Ty;

const HELP: &str = "write it beside the controls, as `bit<32> NAME(in bit<32> a, in bit<32> b)`";

impl Lowerer<'_> {
    /// What the declaration's `@merge` names.
    pub fn merge_of(&mut self, def: &hir::LocalDef) -> Option<ir::Merge> {
        let annotation = def.annotations.iter().find(|it| it.name.as_str() == "merge")?;
        let name = names::text(annotation);
        let Some(function) = function_named(self.hir, &name) else {
            let text = format!("@merge({name:?}) names no function of the program");
            self.report(Diagnostic::error(def.span, text).help(HELP));
            return None;
        };
        let function = &self.hir.functions[function.index()];
        let body = function.body.as_ref()?;
        let ty = match (&*function.params, &function.ret) {
            ([a, b], Ty::Bit(width))
                if [a, b].iter().all(|it| {
                    it.ty == function.ret && matches!(it.direction, Direction::None | Direction::In)
                }) && function.type_params.is_empty()
                    && *width > 0 =>
            {
                self.ty(&function.ret)
            }
            _ => {
                let text = format!("@merge({name:?}): the function does not make one value of two");
                let found = Diagnostic::error(def.span, text)
                    .note_at(
                        function.span,
                        "two `in` parameters and the result have one type bit<W>",
                    )
                    .help(HELP);
                self.report(found);
                return None;
            }
        };
        let merge = self.alone(function, body, ty);
        let scalar = |it: &ir::Variable| matches!(it.ty, ir::Type::Bits { .. } | ir::Type::Bool);
        let effect = merge.first_effect().map(|it| it.location);
        let other = merge.variables.iter().find(|it| !scalar(it)).map(|it| it.location);
        if let Some(place) = effect.or(other) {
            let text = format!(
                "@merge({name:?}): line {} of the function does more than compute with numbers",
                place.line
            );
            let help = "use bit<W>, int<W>, bool, conditions and assignments: each switch must \
                        make the same of two values, whenever it does";
            let found =
                Diagnostic::error(def.span, text).note_at(function.span, "the function").help(help);
            self.report(found);
            return None;
        }
        Some(merge)
    }

    /// The function with storage and labels of its own.
    fn alone(&mut self, f: &hir::FunctionDef, body: &Rc<hir::Block>, ty: ir::Type) -> ir::Merge {
        let variables = std::mem::take(&mut self.variables);
        let variable_names = std::mem::take(&mut self.variable_names);
        let scope = std::mem::replace(&mut self.scope, ir::Scope::Merge);
        let generics = std::mem::take(&mut self.generics);
        let next_label = std::mem::take(&mut self.next_label);
        let outermost = self.outermost.replace((f.span, format!("function {}", f.name)));
        let storage =
            |lowerer: &mut Self, name: &str, span: Span| lowerer.variable(name, ty.clone(), span);
        let [a, b] = [0, 1].map(|at| {
            let param = &f.params[at];
            let place = storage(self, &param.name, param.span);
            let read = self.read(place, param.span);
            self.env.insert(param.local, Binding::Place(read));
            place
        });
        let result = storage(self, "result", f.span);
        let to = self.read(result, f.span);
        let label = self.label();
        self.returns.push(ReturnMode::Leave(label, Some(to)));
        self.copy_outs.push(vec![]);
        let mut statements = ir::Block::new();
        self.block(body, &mut statements);
        self.copy_outs.pop();
        self.returns.pop();
        // (A jump to the end as the last statement is no jump.)
        let last = statements.last().map(|it| &it.kind);
        if matches!(last, Some(ir::StatementKind::Leave(it)) if *it == label) {
            statements.pop();
        }
        let location = self.location(f.span);
        let kind = ir::StatementKind::Block {
            label: leaves(&statements, label).then_some(label),
            body: statements,
            comment: None,
            atomic: false,
        };
        self.outermost = outermost;
        self.next_label = next_label;
        self.generics = generics;
        self.scope = scope;
        self.variable_names = variable_names;
        ir::Merge {
            name: f.name.to_string(),
            variables: std::mem::replace(&mut self.variables, variables),
            parameters: [a, b],
            result,
            body: vec![ir::Statement { kind, location }],
            location,
        }
    }
}

/// A function with a body. (P4 tells functions of one name apart by how many parameters they
/// have.)
pub fn function_named(hir: &hir::Hir, name: &str) -> Option<hir::FunctionId> {
    let fits = |it: &hir::FunctionDef| &*it.name == name && it.body.is_some();
    let found = |two: bool| {
        let mut all = hir.functions.iter();
        all.position(|it| fits(it) && (!two || it.params.len() == 2))
    };
    found(true).or_else(|| found(false)).map(|at| hir::FunctionId(at as u32))
}
