//! A reference interpreter of the checked tree: the program as it is written, before elaboration, inlining, and
//! copying in and out.
//!
//! It owns: the meaning of `p4_check::hir` as the P4-16 specification (1.2.5) and simple_switch.md have it. Elaboration
//! makes the typed IR of the same tree; running both and comparing shows what elaboration does wrong. It must not
//! know: the IR's statements and expressions, C, BPF.

mod call;
mod expr;
mod externs;
mod parser;
mod statement;
mod table;
mod value;

use crate::{Count, DROP_PORT, Stop, Verdict};
use num_bigint::BigInt;
use num_traits::{ToPrimitive, Zero};
use p4_check::hir::{BlockId, Callee, Construct, Constructed, ExprKind, Hir, LocalId, StmtKind, TableDefId};
use p4_check::ty::{Substitution, Ty};
use p4_check::{names, walk};
use std::collections::HashMap;
use table::TableState;
use value::Value;

/// Steps that one packet may take.
const MAX_STEPS: u32 = 1_000_000;

/// What ends a list of statements early.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Return(Option<Value>),
    Exit,
    /// The parser rejects, with this error if there is one.
    Reject(Option<u32>),
    ToHost,
    Stop(Stop),
}

/// A result inside: what ends the statements travels as an error.
pub(crate) type Run<T> = Result<T, Ended>;

pub(crate) fn broken<T>(what: impl Into<String>) -> Run<T> {
    Err(Stop::Broken(what.into()).into())
}

pub(crate) fn undefined<T>(what: impl Into<String>) -> Run<T> {
    Err(Stop::Undefined(what.into()).into())
}

fn unsupported<T>(what: impl Into<String>) -> Run<T> {
    Err(Stop::Unsupported(what.into()).into())
}

/// What the name of an object stands for, in an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Object {
    Packet,
    Extern(usize),
    Instance(usize),
}

/// A parser or control that was made.
#[derive(Debug)]
pub(crate) struct Instance {
    pub block: BlockId,
    constructor: Vec<(LocalId, Value)>,
    objects: HashMap<LocalId, Object>,
    /// Instances of `T.apply()`, by the place of the call.
    direct: HashMap<u32, usize>,
    prefix: String,
}

/// An object of an extern type.
#[derive(Debug)]
pub(crate) struct Extern {
    kind: String,
    name: String,
    element: Ty,
    numbers: Vec<BigInt>,
    counts: Vec<Count>,
}

/// The packet under way.
#[derive(Default)]
pub(crate) struct Packet {
    bytes: Vec<u8>,
    /// Bits that the parser has taken.
    cursor: usize,
    emitted: Vec<u8>,
    truncate: Option<usize>,
    /// How often the parser entered a state on a cycle.
    rounds: u32,
    /// The parser is in such a state, or in a sub-parser of one.
    in_loop: bool,
    /// The table and entry whose action runs.
    matched: Option<(usize, Option<usize>)>,
    steps: u32,
}

/// A switch that runs a checked program: registers, counters and tables live from packet to packet.
pub struct Tree<'h> {
    pub(crate) hir: &'h Hir,
    /// What names of values stand for. No parser, control, action or function can be active twice at a time, so
    /// each name has one value.
    pub(crate) locals: Vec<Option<Value>>,
    pub(crate) objects: Vec<Option<Object>>,
    pub(crate) generics: Substitution,
    pub(crate) instances: Vec<Instance>,
    pub(crate) externs: Vec<Extern>,
    pub(crate) tables: Vec<TableState>,
    table_ids: HashMap<(usize, TableDefId), usize>,
    /// The instance that runs.
    pub(crate) current: usize,
    pub(crate) packet: Packet,
    /// For each block, whether each of its parser states lies on a cycle.
    on_cycles: Vec<Vec<bool>>,
    /// Parser, verifyChecksum, ingress, egress, computeChecksum, deparser.
    blocks: Vec<usize>,
    headers: Value,
    metadata: Value,
    standard: Value,
    standard_fields: Vec<String>,
}

fn stopped(ended: Ended) -> Stop {
    match ended {
        Ended::Stop(stop) => stop,
        other => Stop::Broken(format!("{other:?} outside of what it ends")),
    }
}

impl<'h> Tree<'h> {
    /// A switch as it starts. The error says what of the program is not interpreted.
    pub fn new(hir: &'h Hir) -> Result<Tree<'h>, Stop> {
        let mut tree = Tree {
            hir,
            locals: vec![None; hir.locals.len()],
            objects: vec![None; hir.locals.len()],
            generics: Substitution::new(),
            instances: Vec::new(),
            externs: Vec::new(),
            tables: Vec::new(),
            table_ids: HashMap::new(),
            current: 0,
            packet: Packet::default(),
            on_cycles: hir.blocks.iter().map(parser::states_on_cycles).collect(),
            blocks: Vec::new(),
            headers: Value::Undefined,
            metadata: Value::Undefined,
            standard: Value::Undefined,
            standard_fields: Vec::new(),
        };
        tree.instantiate().map_err(stopped)?;
        Ok(tree)
    }

    fn instantiate(&mut self) -> Run<()> {
        let hir = self.hir;
        let mut main = None;
        for (local, e) in &hir.instances {
            let ExprKind::Construct(c) = &e.kind else { continue };
            match &c.what {
                Constructed::Package(_) => main = Some(c),
                _ => {
                    let object = self.make(c, *local, "")?;
                    self.objects[local.index()] = Some(object);
                }
            }
        }
        let Some(main) = main else { return broken("a program without main") };
        for argument in main.args.iter().flatten() {
            let ExprKind::Construct(c) = &argument.kind else { return broken("main's blocks are not made in place") };
            let Constructed::Block(block) = c.what else { return broken("main's blocks are no blocks") };
            let def = &hir.blocks[block.index()];
            let prefix = format!("{}.", names::control_plane("", &def.name, &def.annotations));
            let made = self.instance(c, block, prefix)?;
            self.blocks.push(made);
        }
        let Some(ingress) = self.blocks.get(2) else { return broken("main has fewer than three blocks") };
        let def = &hir.blocks[self.instances[*ingress].block.index()];
        let Some(Ty::Record(id, _)) = def.params.get(2).map(|p| &p.ty) else { return broken("no standard metadata") };
        self.standard_fields = hir.records[id.index()].fields.iter().map(|f| f.name.to_string()).collect();
        Ok(())
    }

    /// An extern object, parser or control.
    fn make(&mut self, c: &Construct, local: LocalId, prefix: &str) -> Run<Object> {
        let hir = self.hir;
        let def = &hir.locals[local.index()];
        let name = names::control_plane(prefix, &def.name, &def.annotations);
        match &c.what {
            Constructed::Extern(id, types) => {
                let kind = hir.externs[id.index()].name.to_string();
                let element = types.first().cloned().unwrap_or(Ty::Void);
                let size = match c.args.first().and_then(Option::as_ref) {
                    Some(e) => self.number(e)?.to_usize().unwrap_or(usize::MAX),
                    None => 0,
                };
                let (mut numbers, mut counts) = (Vec::new(), Vec::new());
                match kind.as_str() {
                    "register" | "counter" if size > 1 << 20 => return unsupported(format!("{size} elements")),
                    "register" => numbers = vec![BigInt::zero(); size],
                    "counter" => counts = vec![Count::default(); size],
                    "direct_counter" => {}
                    other => return unsupported(format!("extern {other}")),
                }
                self.externs.push(Extern { kind, name, element, numbers, counts });
                Ok(Object::Extern(self.externs.len() - 1))
            }
            Constructed::Block(block) => Ok(Object::Instance(self.instance(c, *block, format!("{name}."))?)),
            Constructed::Package(_) => broken("a package inside of a program"),
        }
    }

    /// A parser or control with what it declares; its tables have their entries.
    fn instance(&mut self, c: &Construct, block: BlockId, prefix: String) -> Run<usize> {
        let hir = self.hir;
        let def = &hir.blocks[block.index()];
        let (mut constructor, mut objects) = (Vec::new(), HashMap::new());
        for (p, a) in c.params.iter().zip(&c.args) {
            let Some(a) = a else { continue };
            match &a.kind {
                ExprKind::Local(id) if self.objects[id.index()].is_some() => {
                    objects.extend(self.objects[id.index()].map(|object| (p.local, object)));
                }
                _ => constructor.push((p.local, self.eval(a)?)),
            }
        }
        for (local, value) in &constructor {
            self.locals[local.index()] = Some(value.clone());
        }
        for (local, object) in &objects {
            self.objects[local.index()] = Some(*object);
        }
        for s in def.locals.iter() {
            match &s.kind {
                StmtKind::Object(local, e) => {
                    let ExprKind::Construct(c) = &e.kind else { return broken("an object that is not made") };
                    let object = self.make(c, *local, &prefix)?;
                    objects.insert(*local, object);
                    self.objects[local.index()] = Some(object);
                }
                StmtKind::ValueSet(..) => return unsupported("value sets"),
                _ => {}
            }
        }
        self.instances.push(Instance { block, constructor, objects, direct: HashMap::new(), prefix });
        let made = self.instances.len() - 1;
        self.enter(made);
        for id in table::applied(&def.body) {
            self.make_table(made, id)?;
        }
        // `T.apply()` makes an instance for each place; the control plane knows its tables from the start.
        let mut direct = Vec::new();
        let mut see = |e: &p4_check::hir::Expr| {
            if let ExprKind::Call(c) = &e.kind
                && let Callee::Direct(construct, block) = &c.callee
            {
                direct.push((e.span.start, construct.clone(), *block));
            }
        };
        walk::block(&def.body, &mut see);
        def.states.iter().for_each(|state| walk::block(&state.body, &mut see));
        for (place, construct, block) in direct {
            let name = &hir.blocks[block.index()].name;
            let prefix = format!("{}.", names::control_plane(&self.instances[made].prefix, name, &[]));
            let inner = self.instance(&construct, block, prefix)?;
            self.instances[made].direct.insert(place, inner);
            self.enter(made);
        }
        Ok(made)
    }

    /// The names of an instance's objects and constructor parameters get their meaning.
    pub(crate) fn enter(&mut self, instance: usize) {
        self.current = instance;
        let Some(i) = self.instances.get(instance) else { return };
        for (local, value) in &i.constructor {
            self.locals[local.index()] = Some(value.clone());
        }
        for (local, object) in &i.objects {
            self.objects[local.index()] = Some(*object);
        }
    }

    pub(crate) fn spend(&mut self) -> Run<()> {
        self.packet.steps += 1;
        if self.packet.steps > MAX_STEPS { unsupported("a packet that takes too many steps") } else { Ok(()) }
    }

    /// One packet, at `now_us` microseconds of the switch's clock.
    pub fn run(&mut self, frame: &[u8], ingress_port: u32, now_us: u64) -> Result<Verdict, Stop> {
        self.packet = Packet { bytes: frame.to_vec(), ..Packet::default() };
        match self.pipeline(ingress_port, now_us) {
            Ok(verdict) => Ok(verdict),
            Err(Ended::ToHost) => Ok(Verdict::ToHost),
            Err(ended) => Err(stopped(ended)),
        }
    }

    fn pipeline(&mut self, ingress_port: u32, now_us: u64) -> Run<Verdict> {
        let def = &self.hir.blocks[self.instances[self.blocks[0]].block.index()];
        let [_, headers, metadata, standard] = &*def.params else { return broken("a parser of another form") };
        self.headers = self.initial(&headers.ty, true)?;
        self.metadata = self.initial(&metadata.ty, true)?;
        self.standard = self.initial(&standard.ty, true)?;
        self.set_standard("ingress_port", u64::from(ingress_port))?;
        self.set_standard("packet_length", self.packet.bytes.len() as u64)?;
        self.set_standard("ingress_global_timestamp", now_us & 0xffff_ffff_ffff)?;
        self.parse_packet()?;
        self.stage(1)?;
        self.stage(2)?;
        // simple_switch.md, after ingress.
        let port = self.standard("egress_spec")?;
        if port == u64::from(DROP_PORT) {
            return Ok(Verdict::Drop);
        }
        self.set_standard("egress_port", port)?;
        self.set_standard("egress_spec", 0)?;
        self.set_standard("egress_global_timestamp", now_us & 0xffff_ffff_ffff)?;
        self.stage(3)?;
        if self.standard("egress_spec")? == u64::from(DROP_PORT) {
            return Ok(Verdict::Drop);
        }
        self.stage(4)?;
        self.stage(5)?;
        let mut frame = std::mem::take(&mut self.packet.emitted);
        frame.extend_from_slice(self.packet.bytes.get(self.packet.cursor / 8..).unwrap_or_default());
        if let Some(length) = self.packet.truncate {
            frame.truncate(length);
        }
        Ok(Verdict::Forward { port: self.standard("egress_port")? as u32, frame })
    }

    /// Gives the shared structs to a block of `main`, runs `body` and takes them back.
    fn with_shared(&mut self, block: usize, body: impl FnOnce(&mut Self) -> Run<()>) -> Run<()> {
        let hir = self.hir;
        let def = &hir.blocks[self.instances[block].block.index()];
        let packet = def.params.first().is_some_and(|p| p.ty.is_object());
        let shared = [&mut self.headers, &mut self.metadata, &mut self.standard];
        let params = def.params.iter().skip(usize::from(packet));
        for (p, value) in params.clone().zip(shared) {
            self.locals[p.local.index()] = Some(std::mem::replace(value, Value::Undefined));
        }
        if let Some(p) = def.params.first().filter(|_| packet) {
            self.objects[p.local.index()] = Some(Object::Packet);
        }
        self.enter(block);
        let result = body(self);
        let shared = [&mut self.headers, &mut self.metadata, &mut self.standard];
        for (p, value) in params.zip(shared) {
            *value = self.locals[p.local.index()].take().unwrap_or(Value::Undefined);
        }
        result
    }

    fn stage(&mut self, index: usize) -> Run<()> {
        let Some(block) = self.blocks.get(index).copied() else { return broken("main has too few blocks") };
        let hir = self.hir;
        let def = &hir.blocks[self.instances[block].block.index()];
        let result = self.with_shared(block, |tree| {
            tree.block(&def.locals)?;
            tree.block(&def.body)
        });
        match result {
            Err(Ended::Exit | Ended::Return(_)) => Ok(()),
            other => other,
        }
    }

    fn standard_field(&self, name: &str) -> Run<usize> {
        match self.standard_fields.iter().position(|field| field == name) {
            Some(index) => Ok(index),
            None => broken(format!("no standard_metadata.{name}")),
        }
    }

    fn standard(&self, name: &str) -> Run<u64> {
        match &self.standard {
            Value::Struct(fields) => match &fields[self.standard_field(name)?] {
                Value::Number(number) => Ok(number.to_u64().unwrap_or(u64::MAX)),
                _ => undefined(format!("standard_metadata.{name}")),
            },
            _ => broken("standard metadata is no struct"),
        }
    }

    fn set_standard(&mut self, name: &str, number: u64) -> Run<()> {
        let index = self.standard_field(name)?;
        match &mut self.standard {
            Value::Struct(fields) => fields[index] = Value::Number(BigInt::from(number)),
            _ => return broken("standard metadata is no struct"),
        }
        Ok(())
    }

    pub(crate) fn reject<T>(&self, error: &str) -> Run<T> {
        Err(Ended::Reject(self.hir.errors.iter().position(|known| &**known == error).map(|index| index as u32)))
    }

    fn object_named(&self, kind: &str, name: &str) -> Option<&Extern> {
        self.externs.iter().find(|known| known.kind == kind && known.name == name)
    }

    /// A register's elements, as their bits (not negative).
    pub fn register(&self, name: &str) -> Option<Vec<u128>> {
        let register = self.object_named("register", name)?;
        let (width, _) = self.scalar(&register.element)?;
        Some(register.numbers.iter().map(|v| value::bits(v, width).to_u128().unwrap_or(u128::MAX)).collect())
    }

    /// A counter's elements.
    pub fn counter(&self, name: &str) -> Option<&[Count]> {
        self.object_named("counter", name).map(|counter| counter.counts.as_slice())
    }
}
