//! The six blocks of a v1model switch.

use std::rc::Rc;

use p4_ir as ir;
use p4_syntax::Diagnostic;

use crate::hir::{self, Constructed, ExprKind};
use crate::lower::{Binding, Instance, Lowerer};
use crate::ty::Ty;

impl Lowerer<'_> {
    /// Elaborates `main`. None if something was reported.
    pub fn program(mut self) -> (Option<ir::Program>, Vec<Diagnostic>) {
        let made = self.elaborate();
        let failed = self.diagnostics.iter().any(Diagnostic::is_error);
        (made.filter(|_| !failed), self.diagnostics)
    }

    fn main_package(&mut self) -> Option<&hir::Construct> {
        let hir = self.hir;
        let mut main = None;
        for (id, e) in &hir.instances {
            let ExprKind::Construct(c) = &e.kind else { continue };
            match &c.what {
                Constructed::Package(p) if &*hir.locals[id.index()].name == "main" => {
                    let def = &hir.packages[p.index()];
                    if &*def.name != "V1Switch" {
                        let text = format!(
                            "`main` is a `{}`; only v1model's `V1Switch` is supported",
                            def.name
                        );
                        self.error(e.span, text);
                        return None;
                    }
                    main = Some(&**c);
                }
                Constructed::Package(_) => {}
                _ => self.declare_object(*id, e, false),
            }
        }
        if main.is_none() {
            self.report(
                Diagnostic::global("the program has no `main`")
                    .help("end it with `V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;`"),
            );
        }
        main
    }

    fn elaborate(&mut self) -> Option<ir::Program> {
        let hir = self.hir;
        let main = self.main_package()?;
        let main_args = main.args.clone();
        let mut blocks: Vec<Rc<Instance>> = Vec::new();
        for a in &main_args {
            blocks.push(self.top_block(a.as_ref()?)?);
        }
        let [parser, verify, ingress, egress, compute, deparser] = blocks.as_slice() else {
            self.report(Diagnostic::global(
                "V1Switch needs six blocks; use stateplane's own v1model.p4",
            ));
            return None;
        };
        let parser_def = &hir.blocks[parser.block.index()];
        let [_, h, m, s] = &*parser_def.params else { return None };
        for (p, what) in [(h, "headers"), (m, "metadata")] {
            if !matches!(&p.ty, Ty::Record(id, _) if hir.records[id.index()].kind == hir::RecordKind::Struct)
            {
                self.error(p.span, format!("the {what} of a v1model program must be a struct"));
                return None;
            }
        }
        let shared: Vec<ir::VariableId> = [(h, "hdr"), (m, "meta"), (s, "standard_metadata")]
            .into_iter()
            .map(|(p, name)| {
                let ty = self.ty(&p.ty);
                self.variable(name, ty, p.span)
            })
            .collect();
        let [headers, metadata, standard] = shared.as_slice() else { return None };

        self.scope = ir::Scope::Parser;
        self.bind_block(parser, &[None, Some(*headers), Some(*metadata), Some(*standard)]);
        self.enter(parser);
        let ir_parser = self.parser(parser);
        let two = [Some(*headers), Some(*metadata)];
        let three = [Some(*headers), Some(*metadata), Some(*standard)];
        let verify_checksum = self.top_control(verify, &two, ir::Scope::VerifyChecksum);
        let ingress = self.top_control(ingress, &three, ir::Scope::Ingress);
        let egress = self.top_control(egress, &three, ir::Scope::Egress);
        let compute_checksum = self.top_control(compute, &two, ir::Scope::ComputeChecksum);
        let deparser = self.top_control(deparser, &[None, Some(*headers)], ir::Scope::Deparser);
        self.check_unique_names();
        Some(ir::Program {
            files: std::mem::take(&mut self.files),
            header_types: std::mem::take(&mut self.header_types),
            struct_types: std::mem::take(&mut self.struct_types),
            union_types: std::mem::take(&mut self.union_types),
            enum_types: std::mem::take(&mut self.enum_types),
            serializable_enums: std::mem::take(&mut self.serializable_enums),
            errors: hir.errors.iter().map(|e| e.to_string()).collect(),
            variables: std::mem::take(&mut self.variables),
            headers: *headers,
            metadata: *metadata,
            standard_metadata: *standard,
            actions: std::mem::take(&mut self.actions),
            tables: std::mem::take(&mut self.tables),
            externs: std::mem::take(&mut self.externs),
            parser: ir_parser,
            verify_checksum,
            ingress,
            egress,
            compute_checksum,
            deparser,
        })
    }

    fn top_block(&mut self, e: &hir::Expr) -> Option<Rc<Instance>> {
        let ExprKind::Construct(c) = &e.kind else {
            self.error(
                e.span,
                "this must be the construction of a parser or control, such as `MyIngress()`",
            );
            return None;
        };
        let Constructed::Block(block) = &c.what else { return None };
        // The control plane knows the top-level blocks by the names of their types.
        let def = &self.hir.blocks[block.index()];
        let (name, annotations) = (def.name.clone(), def.annotations.clone());
        Some(self.make_instance(c, *block, &name, &annotations, true))
    }

    fn bind_block(&mut self, i: &Rc<Instance>, variables: &[Option<ir::VariableId>]) {
        let hir = self.hir;
        let params = &hir.blocks[i.block.index()].params;
        for (p, v) in params.iter().zip(variables) {
            let binding = match v {
                Some(v) => Binding::Place(self.read(*v, p.span)),
                None => Binding::Packet,
            };
            self.env.insert(p.local, binding);
        }
    }

    fn enter(&mut self, i: &Rc<Instance>) {
        self.instance = i.number;
        self.prefix = i.prefix.clone();
    }

    fn top_control(
        &mut self,
        i: &Rc<Instance>,
        variables: &[Option<ir::VariableId>],
        scope: ir::Scope,
    ) -> ir::Control {
        let hir = self.hir;
        let def = &hir.blocks[i.block.index()];
        self.scope = scope;
        self.bind_block(i, variables);
        self.enter(i);
        let mut body = Vec::new();
        self.enter_instance(i, &mut body);
        self.block(&def.body, &mut body);
        ir::Control { name: def.name.to_string(), body }
    }

    /// Two tables (or externs) of one name cannot be told apart by the control plane.
    fn check_unique_names(&mut self) {
        let mut seen = std::collections::HashMap::new();
        let tables = self.tables.iter().map(|t| (format!("table {}", t.name), t.location));
        let externs =
            self.externs.iter().map(|e| (format!("{} {}", e.extern_type, e.name), e.location));
        let mut double = Vec::new();
        for (name, location) in tables.chain(externs) {
            if let Some(first) = seen.insert(name.clone(), location) {
                double.push((name, first, location));
            }
        }
        for (name, first, second) in double {
            let at = |l: ir::Location| {
                format!(
                    "{}:{}:{}",
                    self.files.get(l.file as usize).map_or("?", String::as_str),
                    l.line,
                    l.column
                )
            };
            let text = format!(
                "two objects have the control-plane name `{name}`: at {} and at {}",
                at(first),
                at(second)
            );
            self.report(
                Diagnostic::global(text)
                    .help("give one of them another name with `@name(\"...\")`"),
            );
        }
    }
}
