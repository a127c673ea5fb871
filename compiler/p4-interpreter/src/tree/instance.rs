//! Instances: what `V1Switch(...) main` makes (spec §18, the static evaluation of programs).

use p4_check::hir::{
    BlockId, BlockKind, Callee, Construct, Constructed, Expr, ExprKind, LocalId, Stmt, StmtKind,
    TableDefId,
};
use p4_check::names::control_plane;
use p4_check::walk;
use std::collections::HashMap;
use std::rc::Rc;

use super::data::{Data, Object};
use super::externs::External;
use super::parser::{self, Paths};
use super::{Frame, Run, Tree, broken, unsupported};

/// An instance of a parser or control.
#[derive(Debug)]
pub(crate) struct Instance {
    pub number: usize,
    pub block: BlockId,
    /// Constructor parameters and the instances that it declares.
    pub values: HashMap<LocalId, Data>,
    /// Instances without a name (`C.apply(...)`), by the address of what makes them.
    pub direct: HashMap<usize, Rc<Instance>>,
    /// Of a parser: for each state, where the paths from it may lead.
    pub paths: Vec<Paths>,
}

/// The programmable blocks of v1model.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub parser: Rc<Instance>,
    pub verify: Rc<Instance>,
    pub ingress: Rc<Instance>,
    pub egress: Rc<Instance>,
    pub compute: Rc<Instance>,
    pub deparser: Rc<Instance>,
}

/// What tells apart the constructions of instances without a name.
pub(crate) fn address(construct: &Construct) -> usize {
    std::ptr::from_ref(construct).addr()
}

impl<'h> Tree<'h> {
    /// Makes the top-level instances and all that is in them.
    pub(crate) fn instantiate_main(&mut self) -> Run<Pipeline> {
        let hir = self.hir;
        let mut pipeline = None;
        for (local, expr) in &hir.instances {
            let ExprKind::Construct(made) = &expr.kind else {
                return broken("an instance that is not constructed");
            };
            let def = &hir.locals[local.index()];
            if let Constructed::Package(package) = &made.what {
                let name = &hir.packages[package.index()].name;
                if &*def.name != "main" {
                    return unsupported(format!("a package besides main ({name})"));
                }
                if &**name != "V1Switch" {
                    return unsupported(format!("the package {name}"));
                }
                pipeline = Some(self.pipeline_of(made)?);
            } else {
                let name = control_plane("", &def.name, &def.annotations);
                let data = self.construct(made, &name)?;
                self.name_merge(&data, &def.annotations);
                self.globals.insert(*local, data);
            }
        }
        match pipeline {
            Some(pipeline) => Ok(pipeline),
            None => unsupported("a program without main"),
        }
    }

    fn pipeline_of(&mut self, made: &'h Construct) -> Run<Pipeline> {
        let mut blocks = Vec::new();
        for argument in &made.args {
            match argument.as_ref().map(|argument| &argument.kind) {
                Some(ExprKind::Construct(block)) => match self.construct(block, "")? {
                    Data::Object(Object::Block(instance)) => blocks.push(instance),
                    _ => return broken("an argument of V1Switch that is not a parser or control"),
                },
                _ => return broken("an argument of V1Switch that is not constructed"),
            }
        }
        match <[Rc<Instance>; 6]>::try_from(blocks) {
            Ok([parser, verify, ingress, egress, compute, deparser]) => {
                Ok(Pipeline { parser, verify, ingress, egress, compute, deparser })
            }
            Err(_) => broken("V1Switch without six arguments"),
        }
    }

    /// An instance whose control-plane name is `name`; of V1Switch's blocks, which have none, the
    /// type's name is used.
    fn construct(&mut self, made: &'h Construct, name: &str) -> Run<Data> {
        let mut values = Vec::new();
        for (argument, param) in made.args.iter().zip(made.params.iter()) {
            values.push(match argument {
                Some(argument) => self.constant(argument, &format!("{name}.{}", param.name))?,
                None => {
                    return unsupported("an optional argument of a constructor that is left out");
                }
            });
        }
        match &made.what {
            Constructed::Extern(id, types) => {
                let external = External::new(self, *id, types, name, &values)?;
                self.externals.push(external);
                Ok(Data::Object(Object::Extern(self.externals.len() - 1)))
            }
            Constructed::Block(id) => {
                let name = if name.is_empty() { &self.hir.blocks[id.index()].name } else { name };
                Ok(Data::Object(Object::Block(self.instance(*id, values, name)?)))
            }
            Constructed::Package(_) => unsupported("a package in a package"),
        }
    }

    fn constant(&mut self, expr: &'h Expr, name: &str) -> Run<Data> {
        match &expr.kind {
            ExprKind::Construct(made) => self.construct(made, name),
            _ => self.eval(expr),
        }
    }

    fn instance(&mut self, id: BlockId, arguments: Vec<Data>, name: &str) -> Run<Rc<Instance>> {
        let def = &self.hir.blocks[id.index()];
        let number = self.instances;
        self.instances += 1;
        let values = def
            .constructor_params
            .iter()
            .zip(arguments)
            .map(|(param, value)| (param.local, value))
            .collect();
        // While it is made, its constants are looked up as those of what runs.
        self.frames.push(Frame { values, ..Frame::default() });
        let prefix = format!("{name}.");
        for statement in def.locals.iter() {
            if let StmtKind::Object(local, expr) = &statement.kind {
                let ExprKind::Construct(made) = &expr.kind else {
                    return broken("an instance that is not a construction");
                };
                let object = &self.hir.locals[local.index()];
                let data = self
                    .construct(made, &control_plane(&prefix, &object.name, &object.annotations))?;
                self.name_merge(&data, &object.annotations);
                if let Some(frame) = self.frames.last_mut() {
                    frame.values.insert(*local, data);
                }
            }
        }
        let direct = self.unnamed_instances(id, &prefix)?;
        if def.kind == BlockKind::Control {
            for table in self.tables_of(id) {
                self.make_table(number, table, &prefix)?;
            }
        }
        let values = self.frames.pop().map(|frame| frame.values).unwrap_or_default();
        Ok(Rc::new(Instance {
            number,
            block: id,
            values,
            direct,
            paths: parser::paths(&def.states),
        }))
    }

    /// Those that `C.apply(...)` makes, one for each place where it stands (spec §15.1, direct type
    /// invocation).
    fn unnamed_instances(
        &mut self,
        id: BlockId,
        prefix: &str,
    ) -> Run<HashMap<usize, Rc<Instance>>> {
        let def = &self.hir.blocks[id.index()];
        let mut found: Vec<(&'h Construct, BlockId)> = Vec::new();
        let mut instantiates = false;
        let bodies = std::iter::once(&*def.body).chain(def.states.iter().map(|state| &state.body));
        for body in bodies {
            walk::block(body, &mut |expr| {
                if let ExprKind::Call(call) = &expr.kind
                    && let Callee::Direct(made, block) = &call.callee
                {
                    found.push((made, *block));
                }
            });
            instantiates |= has_objects(body);
        }
        if instantiates {
            return unsupported("an instance that is declared in a body");
        }
        let mut made = HashMap::new();
        for (construct, block) in found {
            let type_name = &self.hir.blocks[block.index()].name;
            match self.construct(construct, &format!("{prefix}{type_name}"))? {
                Data::Object(Object::Block(instance)) => {
                    drop(made.insert(address(construct), instance))
                }
                _ => return broken("apply of a value that is not a parser or control"),
            }
        }
        Ok(made)
    }

    /// The tables that a control declares: those in the text from its name on, up to the next
    /// control's.
    fn tables_of(&self, id: BlockId) -> Vec<TableDefId> {
        let owner = |start: u32| {
            let blocks =
                self.hir.blocks.iter().enumerate().filter(|(_, block)| block.span.start < start);
            blocks.max_by_key(|(_, block)| block.span.start).map(|(index, _)| index)
        };
        let tables = self.hir.tables.iter().enumerate();
        let own = tables.filter(|(_, table)| {
            table.as_ref().is_some_and(|table| owner(table.span.start) == Some(id.index()))
        });
        own.map(|(index, _)| TableDefId(index as u32)).collect()
    }
}

fn has_objects(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match &statement.kind {
        StmtKind::Object(..) => true,
        StmtKind::If(_, then, otherwise) => has_objects(then) || has_objects(otherwise),
        StmtKind::Block(body, _) => has_objects(body),
        StmtKind::Switch { cases, default, .. } => {
            has_objects(default) || cases.iter().any(|(_, body)| has_objects(body))
        }
        StmtKind::ActionSwitch { cases, default, .. } => {
            has_objects(default) || cases.iter().any(|(_, body)| has_objects(body))
        }
        _ => false,
    })
}
