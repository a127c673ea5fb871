//! Both interpreters against the packet tests below `p4/`, whose expectations people worked out: a wrong interpreter
//! would call a right compiler wrong.
//!
//! Names of tables, keys and actions are resolved as the packet tests' runner does it, by the manifest.

use dataplane::{Dataplane, TableRef};
use num_bigint::BigInt;
use p4_interpreter::{Count, Interpreter, KeyMatch, RuntimeEntry, Stop, Tree, Verdict};
use p4_ir::{ActionCall, ExternId, Program, TableId};
use packet_test::stf::Port;
use packet_test::{Case, Command};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn cases(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            cases(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "stf") && path.with_extension("p4").exists() {
            found.push(path);
        }
    }
}

fn table_id(program: &Program, table: &TableRef<'_>) -> TableId {
    let index = program.tables.iter().position(|known| known.name == table.description().name).unwrap();
    TableId(index as u32)
}

fn action_call(call: &dataplane::ActionCall) -> ActionCall {
    let arguments = call.arguments.iter().map(|value| BigInt::from(*value)).collect();
    ActionCall { action: call.action as u32, arguments }
}

/// An interpreter: of the lowered program, or of the checked tree.
enum Switch<'a> {
    Lowered(&'a Program, Box<Interpreter<'a>>),
    Tree(Box<Tree<'a>>),
}

impl Switch<'_> {
    fn run(&mut self, frame: &[u8], port: u32, now_us: u64) -> Result<Verdict, Stop> {
        match self {
            Switch::Lowered(_, switch) => switch.run(frame, port, now_us),
            Switch::Tree(switch) => switch.run(frame, port, now_us),
        }
    }

    fn add_entry(&mut self, table: &TableRef<'_>, entry: RuntimeEntry) {
        match self {
            Switch::Lowered(program, switch) => switch.add_entry(table_id(program, table), entry),
            Switch::Tree(switch) => switch.add_entry(&table.description().name, entry).unwrap(),
        }
    }

    fn set_default(&mut self, table: &TableRef<'_>, action: ActionCall) {
        match self {
            Switch::Lowered(program, switch) => switch.set_default(table_id(program, table), action),
            Switch::Tree(switch) => switch.set_default(&table.description().name, action).unwrap(),
        }
    }

    fn count(&self, name: &str, index: usize) -> Count {
        match self {
            Switch::Lowered(program, switch) => switch.counter(object(program, "counter", name)).unwrap()[index],
            Switch::Tree(switch) => switch.counter(name).unwrap()[index],
        }
    }

    fn element(&self, name: &str, index: usize) -> u128 {
        match self {
            Switch::Lowered(program, switch) => switch.register(object(program, "register", name)).unwrap()[index],
            Switch::Tree(switch) => switch.register(name).unwrap()[index],
        }
    }
}

fn object(program: &Program, kind: &str, name: &str) -> ExternId {
    let externs = &program.externs;
    ExternId(externs.iter().position(|one| one.extern_type == kind && one.name == name).unwrap() as u32)
}

/// A switch, and what has come out of it.
struct Run<'a> {
    names: &'a Dataplane,
    switch: Switch<'a>,
    sent: BTreeMap<Port, Vec<Vec<u8>>>,
    expected: BTreeMap<Port, Vec<(u32, Option<&'a packet_test::Pattern>)>>,
    adds: u32,
    now_us: u64,
}

impl<'a> Run<'a> {
    fn command(&mut self, line: u32, command: &'a Command) -> Result<(), Stop> {
        match command {
            Command::Packet { port, bytes } => {
                let (port, frame) = match self.switch.run(bytes, *port, self.now_us)? {
                    Verdict::Drop => return Ok(()),
                    Verdict::ToHost => (Port::Host, bytes.clone()),
                    Verdict::Forward { port, frame } => (port.into(), frame),
                };
                self.sent.entry(port).or_default().push(frame);
            }
            Command::Expect { port, pattern } => {
                self.expected.entry(*port).or_default().push((line, pattern.as_ref()));
            }
            Command::Add { table, entry } => {
                let table = self.names.table(table).unwrap();
                let ternary = matches!(table.description().kind, manifest::TableKind::Ternary { .. });
                let priority = if ternary { entry.priority.unwrap_or(1) * 4096 + 4095 - self.adds } else { 0 };
                self.adds += u32::from(ternary);
                let entry = table.resolve(&dataplane::EntrySpec { priority: None, ..entry.clone() }).unwrap();
                let keys = entry.matches.iter().zip(&table.description().keys);
                let matches = keys
                    .map(|(matched, key)| KeyMatch {
                        value: BigInt::from(matched.value()),
                        mask: BigInt::from(matched.mask(key.width)),
                    })
                    .collect();
                let entry = RuntimeEntry::new(matches, priority, action_call(&entry.action));
                self.switch.add_entry(&table, entry);
            }
            Command::SetDefault { table, action } => {
                let table = self.names.table(table).unwrap();
                let action = action_call(&table.resolve_action(action).unwrap());
                self.switch.set_default(&table, action);
            }
            Command::CheckCounter { counter, index, bytes, comparison, value } => {
                let name = &self.names.counter(counter).unwrap().name;
                let count = self.switch.count(name, *index as usize);
                let found = if *bytes { count.bytes } else { count.packets };
                assert!(comparison.holds(found, *value), "line {line}: counter {name}[{index}] is {found}");
            }
            Command::CheckRegister { register, index, comparison, value } => {
                let name = &self.names.register(register).unwrap().name;
                let found = self.switch.element(name, *index as usize);
                assert!(comparison.holds(found, *value), "line {line}: register {name}[{index}] is {found}");
            }
            Command::Clock { nanoseconds } => self.now_us += nanoseconds / 1000,
            Command::NoPacket | Command::Wait => {}
        }
        Ok(())
    }

    fn compare(&self, case: &str) {
        for (port, wanted) in &self.expected {
            let came = self.sent.get(port).map_or(&[][..], |came| came);
            let any = wanted.iter().all(|(_, pattern)| pattern.is_none());
            assert!(any || came.len() == wanted.len(), "{case}: port {port}: {} packets came out", came.len());
            for ((line, pattern), frame) in wanted.iter().zip(came) {
                assert!(pattern.is_none_or(|pattern| pattern.fits(frame)), "{case}:{line}: {frame:02x?}");
            }
        }
        for port in self.sent.keys() {
            assert!(self.expected.contains_key(port), "{case}: a packet for port {port}, where none is expected");
        }
    }
}

/// Packets run; the error says what is not interpreted.
fn run(path: &Path, on_tree: bool) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).unwrap();
    let case = Case::parse(&path.display().to_string(), &text).unwrap();
    if !case.setup.ports.is_empty() {
        return Err("it needs the kernel's routes".into());
    }
    let defines = case.setup.defines.iter().map(|(_, define)| define.clone()).collect();
    let options = p4_syntax::Options { defines, ..Default::default() };
    let outcome = p4_check::check_file(&path.with_extension("p4"), &options);
    let program = outcome.program.as_ref().unwrap();
    let generated = xdp_backend::generate(program, &xdp_backend::Options::default()).unwrap();
    let names = Dataplane::description_only(generated.manifest);
    let switch = match on_tree {
        true => Tree::new(outcome.checked.as_ref().unwrap()).map(|tree| Switch::Tree(tree.into())),
        false => Interpreter::new(program).map(|switch| Switch::Lowered(program, switch.into())),
    };
    let switch = switch.map_err(|stop| stop.to_string())?;
    let (sent, expected) = (BTreeMap::new(), BTreeMap::new());
    let mut run = Run { names: &names, switch, sent, expected, adds: 0, now_us: 1_000_000 };
    let mut packets = 0;
    for (line, command) in &case.commands {
        packets += usize::from(matches!(command, Command::Packet { .. }));
        match run.command(*line, command) {
            Ok(()) => {}
            Err(Stop::Unsupported(what)) => return Err(what),
            Err(stop) => panic!("{}:{line}: {stop}", path.display()),
        }
    }
    run.compare(&path.display().to_string());
    Ok(packets)
}

fn all(on_tree: bool) {
    let mut found = Vec::new();
    cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4"), &mut found);
    found.sort();
    let (mut interpreted, mut packets) = (0, 0);
    for path in &found {
        match run(path, on_tree) {
            Ok(count) => (interpreted, packets) = (interpreted + 1, packets + count),
            Err(why) => println!("not interpreted: {}: {why}", path.file_name().unwrap().display()),
        }
    }
    println!("{interpreted} cases with {packets} packets");
    assert!(interpreted >= 20 && packets > 200, "{interpreted} cases, {packets} packets");
}

#[test]
fn packet_tests() {
    all(false);
}

#[test]
fn packet_tests_on_the_tree() {
    all(true);
}
