//! Functions that declarations name with `@merge`, as C functions of their own: a system's runtime
//! calls them wherever it merges, also for messages, where no packet is in the pipeline.

use crate::emit::Writer;
use crate::generator::Generator;
use crate::layout::{Layout, Place, Scalar, c_type, scalar_width};
use p4_ir::Merge;

impl Generator<'_> {
    /// The C function with this name. It uses no map and no packet, so a system may call it under
    /// a lock.
    pub fn merge_function(&mut self, merge: &Merge, c_name: &str) -> Writer {
        let layout = Layout::of_merge(merge);
        let declarations: Vec<(String, String)> = merge
            .variables
            .iter()
            .map(|it| c_type(scalar_width(&it.ty).unwrap_or(32)))
            .zip(layout.c_names(merge))
            .collect();
        let outer = std::mem::replace(&mut self.layout, layout);
        let out = std::mem::take(&mut self.out);
        // (A function has no scratch map whose values must be read anew.)
        let forgets = std::mem::replace(&mut self.forgets, false);
        let declared = |at: usize| declarations.get(at).cloned().unwrap_or_default();
        let [a, b, result] =
            [merge.parameters[0], merge.parameters[1], merge.result].map(|it| declared(it.index()));
        self.out.at(merge.location);
        self.out.line(format!("SP_INLINE {} {c_name}({} {}, {} {})", result.0, a.0, a.1, b.0, b.1));
        self.out.line("{");
        for (index, (ty, name)) in declarations.iter().enumerate() {
            if merge.parameters.iter().all(|it| it.index() != index) {
                self.out.line(format!("{ty} {name} = 0;"));
            }
        }
        self.block(&merge.body);
        self.out.at(merge.location);
        self.out.line(format!("return {};", result.1));
        self.out.line("}");
        self.out.nowhere();
        self.out.line("");
        self.forgets = forgets;
        self.layout = outer;
        std::mem::replace(&mut self.out, out)
    }
}

impl Layout {
    /// Of the function's storage, all of it C variables.
    fn of_merge(merge: &Merge) -> Layout {
        let mut layout = Layout::empty();
        for (index, variable) in merge.variables.iter().enumerate() {
            let width = scalar_width(&variable.ty).unwrap_or(32);
            let c = format!("v_{}", variable.name);
            let place = Place::Scalar(Scalar { c, width, guard: None });
            layout.variables.insert(p4_ir::VariableId(index as u32), place);
        }
        layout
    }

    fn c_names(&self, merge: &Merge) -> Vec<String> {
        let name = |index: usize| match self.variables.get(&p4_ir::VariableId(index as u32)) {
            Some(Place::Scalar(scalar)) => scalar.c.clone(),
            _ => String::new(),
        };
        (0..merge.variables.len()).map(name).collect()
    }
}
