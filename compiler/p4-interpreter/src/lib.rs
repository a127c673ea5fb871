//! What a program means: a reference interpreter of the typed IR, to hold the compiler against.
//!
//! It owns: the meaning of the IR as the P4-16 specification (1.2.5) has it, with what
//! `docs/p4-support.md` promises where that leaves it open: fields of a header that was never valid
//! are 0, registers out of range read as 0, a parser's loops end after 128 rounds. It is written
//! from these two and from bmv2's simple_switch.md, not from the C back end: integers are big
//! integers, nothing is optimised, the packet is a list of bytes that is taken apart and put
//! together.
//! It must not know: C, BPF, files, clocks.
//!
//! What the specification leaves open and the page does not settle is [`Stop::Undefined`]: nobody
//! can be held against it.

#![forbid(unsafe_code)]

mod expr;
mod externs;
mod gateway;
mod hash;
pub mod laws;
mod merge;
pub mod object;
mod parser;
mod state_object;
mod statement;
mod table;
pub mod tree;
mod value;

use num_bigint::BigInt;
use num_traits::{ToPrimitive, Zero};
use p4_ir::{ActionCall, ConstArgument, ExternId, LabelId, Program, TableId, Type};
use std::collections::BTreeMap;
use value::Value;

pub use gateway::network;
pub use merge::Evaluator;
pub use table::{KeyMatch, RuntimeEntry};

/// `egress_spec` of a packet that is dropped.
pub const DROP_PORT: u32 = 511;

/// Fields of standard_metadata that are 0 when egress begins: of a packet that is no copy, and of
/// queues that there are none of.
const QUEUED: [&str; 5] =
    ["instance_type", "enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"];

/// Why a packet has no defined outcome here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The program's behaviour is open: it reads what was never written, divides by zero.
    #[error("undefined: {0}")]
    Undefined(String),
    /// Something that this interpreter does not have, or was not given (routes, a seed of random
    /// numbers).
    #[error("not interpreted: {0}")]
    Unsupported(String),
    /// The IR breaks a promise of its own.
    #[error("broken IR: {0}")]
    Broken(String),
}

/// Where a packet goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nowhere.
    Drop,
    /// Out of a port.
    Forward {
        /// P4 port.
        port: u32,
        /// The packet as it leaves.
        frame: Vec<u8>,
    },
    /// Up to the kernel, as it came in.
    ToHost,
}

/// A counter's element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets counted.
    pub packets: u64,
    /// Bytes of them, as they came in.
    pub bytes: u64,
}

/// What ends a list of statements early.
#[derive(Clone, Debug)]
pub(crate) enum Interrupt {
    Leave(LabelId),
    Exit,
    Return,
    /// Index into the program's errors: the parser rejects.
    ParserError(u32),
    ToHost,
    /// An extern has decided.
    Ended(Verdict),
    Stop(Stop),
}

impl From<Stop> for Interrupt {
    fn from(stop: Stop) -> Interrupt {
        Interrupt::Stop(stop)
    }
}

/// A result inside: an [`Interrupt`] travels as an error.
pub(crate) type Run<T> = Result<T, Interrupt>;

pub(crate) fn broken<T>(what: impl Into<String>) -> Run<T> {
    Err(Interrupt::Stop(Stop::Broken(what.into())))
}

pub(crate) fn undefined<T>(what: impl Into<String>) -> Run<T> {
    Err(Interrupt::Stop(Stop::Undefined(what.into())))
}

/// The packet under way.
#[derive(Clone, Default)]
pub(crate) struct Packet {
    /// As it came in.
    pub bytes: Vec<u8>,
    /// Bits that the parser has taken.
    pub cursor: usize,
    /// What the deparser has emitted.
    pub emitted: Vec<u8>,
    /// What `truncate` asked for.
    pub truncate: Option<u64>,
    /// The table and entry whose action runs: for direct counters.
    pub matched: Option<(TableId, Option<usize>)>,
}

/// A switch that runs one program: its registers, counters and tables live from packet to packet.
#[derive(Clone)]
pub struct Interpreter<'p> {
    pub(crate) program: &'p Program,
    pub(crate) storage: Vec<Value>,
    pub(crate) registers: BTreeMap<ExternId, Vec<BigInt>>,
    pub(crate) counters: BTreeMap<ExternId, Vec<Count>>,
    pub(crate) direct: BTreeMap<(TableId, Option<usize>), Count>,
    /// Of systems.
    pub(crate) objects: BTreeMap<ExternId, Box<dyn object::Object>>,
    pub(crate) entries: Vec<Vec<RuntimeEntry>>,
    pub(crate) defaults: Vec<ActionCall>,
    pub(crate) packet: Packet,
    pub(crate) gateway: gateway::Gateway,
    /// Whether each parser state lies on a cycle.
    pub(crate) on_cycles: Vec<bool>,
    /// The keys with which each table was looked up, for who wants entries that are hit.
    pub(crate) seen: Vec<Vec<Vec<BigInt>>>,
}

/// Keys remembered for a table.
const MAX_SEEN: usize = 64;

impl<'p> Interpreter<'p> {
    /// A switch as it starts: all state zero, the source's entries in the tables. `kinds`: of state
    /// objects that the program may have. The error says what of the program is not interpreted.
    pub fn new(program: &'p Program, kinds: object::Objects) -> Result<Interpreter<'p>, Stop> {
        let (mut registers, mut counters, mut objects) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (index, instance) in program.externs.iter().enumerate() {
            let id = ExternId(index as u32);
            let size = match instance.arguments.first() {
                Some(ConstArgument::Value(size, _)) => size.to_usize().unwrap_or(0),
                _ => 0,
            };
            match instance.extern_type.as_str() {
                "register" | "counter" if size > 1 << 20 => {
                    return Err(Stop::Unsupported(format!(
                        "{} with {size} elements",
                        instance.name
                    )));
                }
                "register" => drop(registers.insert(id, vec![BigInt::zero(); size])),
                "counter" => drop(counters.insert(id, vec![Count::default(); size])),
                "direct_counter" => {}
                _ => drop(objects.insert(id, state_object::declare(kinds, program, instance)?)),
            }
        }
        let mut entries = Vec::new();
        for table in &program.tables {
            entries.push(table::source_entries(table)?);
        }
        Ok(Interpreter {
            program,
            on_cycles: program.parser.states_on_cycles(),
            storage: Vec::new(),
            registers,
            counters,
            direct: BTreeMap::new(),
            objects,
            seen: vec![Vec::new(); entries.len()],
            defaults: program.tables.iter().map(|table| table.default_action.clone()).collect(),
            entries,
            packet: Packet::default(),
            gateway: gateway::Gateway::default(),
        })
    }

    /// A register's elements, as their bits (not negative).
    pub fn register(&self, id: ExternId) -> Option<Vec<u128>> {
        let width =
            self.program.externs.get(id.index())?.type_arguments.first().and_then(value::width)?;
        let bits = |value: &BigInt| value::pattern(value, width).to_u128().unwrap_or(u128::MAX);
        Some(self.registers.get(&id)?.iter().map(bits).collect())
    }

    /// A counter's elements.
    pub fn counter(&self, id: ExternId) -> Option<&[Count]> {
        self.counters.get(&id).map(Vec::as_slice)
    }

    /// What a table's direct counter has counted: for the entries, in the order in which they came
    /// (the source's first), and for the default action.
    pub fn direct_counters(&self, table: TableId) -> (Vec<Count>, Count) {
        let count =
            |entry: Option<usize>| self.direct.get(&(table, entry)).copied().unwrap_or_default();
        let entries = self.entries.get(table.index()).map_or(0, Vec::len);
        ((0..entries).map(|entry| count(Some(entry))).collect(), count(None))
    }

    /// The keys, as bits, that a table was looked up with: the first few different ones.
    pub fn keys_seen(&self, table: TableId) -> &[Vec<BigInt>] {
        self.seen.get(table.index()).map_or(&[], Vec::as_slice)
    }

    /// Tells the switch of the network around it. Without it there are no routes.
    pub fn set_network(&mut self, network: network::Network) {
        self.gateway.network = Some(network);
    }

    /// Where random numbers begin; the same in both interpreters. Without it there are none.
    pub fn set_seed(&mut self, seed: u64) {
        self.gateway.random = Some(seed);
    }

    /// One of the gateway's counts (`dataplane::GATEWAY_DROPS`, `GATEWAY_EVENTS`).
    pub fn gateway_count(&self, name: &str) -> u64 {
        self.gateway.counted(name)
    }

    /// Gives a state object what it draws from (its system says what that is), by its name or a
    /// last part of it.
    ///
    /// # Errors
    /// There is no such object, or it takes no such thing.
    pub fn supply(&mut self, object: &str, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        let name = |id: &ExternId| {
            self.program.externs.get(id.index()).map_or("", |one| one.name.as_str())
        };
        match self.objects.iter_mut().find(|(id, _)| object::is_named(name(id), object)) {
            Some((_, found)) => found.supply(what, numbers),
            None => Err(Stop::Broken(format!("there is no object {object}"))),
        }
    }

    /// Adds an entry to a table that can be changed.
    pub fn add_entry(&mut self, table: TableId, entry: RuntimeEntry) {
        if let Some(entries) = self.entries.get_mut(table.index()) {
            entries.push(entry);
        }
    }

    /// A table has these entries of the control plane and no others.
    pub fn replace_entries(&mut self, table: TableId, entries: Vec<RuntimeEntry>) {
        if let Some(held) = self.entries.get_mut(table.index()) {
            held.retain(RuntimeEntry::is_of_the_source);
            held.extend(entries);
        }
    }

    /// A state object, by its name or a last part of it, for who looks at its state from outside.
    pub fn object(&mut self, name: &str) -> Option<&mut dyn object::Object> {
        let called = |id: &ExternId| {
            self.program.externs.get(id.index()).is_some_and(|it| object::is_named(&it.name, name))
        };
        let (_, found) = self.objects.iter_mut().find(|(id, _)| called(id))?;
        Some(&mut **found)
    }

    /// Changes a table's default action.
    pub fn set_default(&mut self, table: TableId, action: ActionCall) {
        if let Some(default) = self.defaults.get_mut(table.index()) {
            *default = action;
        }
    }

    /// One packet, at `now_us` microseconds of the switch's clock.
    pub fn run(&mut self, frame: &[u8], ingress_port: u32, now_us: u64) -> Result<Verdict, Stop> {
        self.packet = Packet { bytes: frame.to_vec(), ..Packet::default() };
        self.gateway.begin_packet(ingress_port, now_us);
        state_object::begin_packet(&mut self.objects, self.program, frame, now_us)?;
        self.storage = self.fresh_storage()?;
        match self.pipeline(ingress_port, now_us) {
            Ok(verdict) => Ok(verdict),
            Err(Interrupt::ToHost) => Ok(Verdict::ToHost),
            Err(Interrupt::Ended(verdict)) => Ok(verdict),
            Err(Interrupt::Stop(stop)) => Err(stop),
            Err(other) => Err(Stop::Broken(format!("{other:?} outside of what it ends"))),
        }
    }

    /// Headers invalid, their fields and all metadata 0 (simple_switch.md); locals without a value.
    fn fresh_storage(&self) -> Result<Vec<Value>, Stop> {
        let program = self.program;
        let shared = [program.headers, program.metadata, program.standard_metadata];
        let value = |(index, variable): (usize, &p4_ir::Variable)| {
            let zero = shared.iter().any(|id| id.index() == index);
            value::initial(program, &variable.ty, zero)
        };
        program.variables.iter().enumerate().map(value).collect()
    }

    fn pipeline(&mut self, ingress_port: u32, now_us: u64) -> Run<Verdict> {
        let program = self.program;
        let length = self.packet.bytes.len() as u64;
        self.set_standard("ingress_port", u64::from(ingress_port))?;
        self.set_standard("packet_length", length)?;
        self.set_standard("ingress_global_timestamp", now_us & 0xffff_ffff_ffff)?;
        self.parse()?;
        self.control(&program.verify_checksum.body)?;
        self.control(&program.ingress.body)?;
        // simple_switch.md, after ingress: 511 drops, else the packet goes to egress with its port.
        let port = self.standard("egress_spec")?;
        if port == u64::from(DROP_PORT) {
            return Ok(Verdict::Drop);
        }
        self.set_standard("egress_port", port)?;
        self.set_standard("egress_spec", 0)?;
        self.set_standard("packet_length", length)?;
        for name in QUEUED {
            self.set_standard(name, 0)?;
        }
        self.set_standard("egress_global_timestamp", now_us & 0xffff_ffff_ffff)?;
        self.control(&program.egress.body)?;
        if self.standard("egress_spec")? == u64::from(DROP_PORT) {
            return Ok(Verdict::Drop);
        }
        self.control(&program.compute_checksum.body)?;
        self.control(&program.deparser.body)?;
        let mut frame = std::mem::take(&mut self.packet.emitted);
        frame
            .extend_from_slice(self.packet.bytes.get(self.packet.cursor / 8..).unwrap_or_default());
        if let Some(limit) = self.packet.truncate {
            frame.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        self.gateway.finish_packet(&mut frame);
        if !self.objects.values_mut().all(|object| object.finish_packet(&mut frame)) {
            return Ok(Verdict::Drop);
        }
        // What the program wrote to egress_port changes nothing: the packet stands at its port.
        Ok(Verdict::Forward { port: port as u32, frame })
    }

    fn control(&mut self, body: &p4_ir::Block) -> Run<()> {
        match self.block(body) {
            Ok(()) | Err(Interrupt::Exit | Interrupt::Return) => Ok(()),
            Err(other) => Err(other),
        }
    }

    pub(crate) fn standard_field(&self, name: &str) -> Run<usize> {
        let variable = &self.program.variables[self.program.standard_metadata.index()];
        let Type::Struct(id) = variable.ty else {
            return broken("standard metadata is not a struct");
        };
        let fields = &self.program.struct_types[id.index()].fields;
        match fields.iter().position(|field| field.name == name) {
            Some(index) => Ok(index),
            None => broken(format!("no standard_metadata.{name}")),
        }
    }

    pub(crate) fn set_standard(&mut self, name: &str, number: u64) -> Run<()> {
        let index = self.standard_field(name)?;
        match &mut self.storage[self.program.standard_metadata.index()] {
            Value::Struct(fields) => fields[index] = Value::Scalar(BigInt::from(number)),
            _ => return broken("standard metadata is not a struct"),
        }
        Ok(())
    }

    fn standard(&self, name: &str) -> Run<u64> {
        let index = self.standard_field(name)?;
        match &self.storage[self.program.standard_metadata.index()] {
            Value::Struct(fields) => match &fields[index] {
                Value::Scalar(value) => Ok(value.to_u64().unwrap_or(u64::MAX)),
                _ => undefined(format!("standard_metadata.{name}")),
            },
            _ => broken("standard metadata is not a struct"),
        }
    }

    pub(crate) fn error_index(&self, name: &str) -> u32 {
        self.program.errors.iter().position(|error| error == name).unwrap_or(0) as u32
    }

    pub(crate) fn see(&mut self, table: TableId, keys: &[BigInt]) {
        if let Some(seen) = self.seen.get_mut(table.index())
            && seen.len() < MAX_SEEN
            && !seen.iter().any(|known| known == keys)
        {
            seen.push(keys.to_vec());
        }
    }
}
