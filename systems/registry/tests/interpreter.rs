//! The interpreter against the packet tests of `p4/tests` and of the applications, whose
//! expectations people worked out: a wrong interpreter would call a right compiler wrong. The
//! network of a case is given to the interpreter, not made.
//!
//! Names of tables, keys and actions are resolved as the packet tests' runner does it, by the
//! manifest.

use dataplane::{Dataplane, TableRef};
use num_bigint::BigInt;
use p4_interpreter::network::{self, Network, ReversePath};
use p4_interpreter::tree::Tree;
use p4_interpreter::{Interpreter, KeyMatch, RuntimeEntry, Stop, Verdict};
use p4_ir::{ActionCall, ExternId, Program, TableId};
use packet_test::setup::{DEFAULT_ICMP_RATE_PER_S, Mac, Setup, Way};
use packet_test::stf::Port;
use packet_test::{Case, Command};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn cases(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            cases(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "stf") {
            found.push(path);
        }
    }
}

/// The program of a case: the one that is named like it, or the only one beside it.
fn program_of(case: &Path) -> PathBuf {
    let own = case.with_extension("p4");
    if own.exists() {
        return own;
    }
    let beside = std::fs::read_dir(case.parent().unwrap()).unwrap().flatten();
    let mut programs: Vec<PathBuf> = beside
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "p4"))
        .collect();
    assert_eq!(programs.len(), 1, "{}: {programs:?}", case.display());
    programs.remove(0)
}

fn mac(Mac(bytes): Mac) -> u64 {
    bytes.iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte))
}

/// None: the case has no network.
fn network(setup: &Setup) -> Option<Network> {
    if setup.ports.is_empty() {
        return None;
    }
    let settings = setup.gateway.map(|(_, settings)| settings);
    let mut network = Network {
        icmp_rate_per_s: settings
            .map_or(DEFAULT_ICMP_RATE_PER_S, |settings| settings.icmp_rate_per_s),
        clamp_mss: settings.is_some_and(|settings| settings.clamp_mss),
        hold_fragments: settings.is_some_and(|settings| settings.hold_fragments),
        ..Network::default()
    };
    for (_, link) in &setup.ports {
        let port = network::Port {
            mac: mac(link.mac),
            own_mac: link.own_mac,
            reverse_path: match link.reverse_path {
                dataplane::ReversePath::Off => ReversePath::Off,
                dataplane::ReversePath::Loose => ReversePath::Loose,
                dataplane::ReversePath::Strict => ReversePath::Strict,
            },
            siblings: link.siblings.iter().fold(0, |bits, sibling| bits | 1 << sibling),
            addresses: link
                .addresses
                .iter()
                .map(|prefix| (prefix.address, prefix.length))
                .collect(),
            mtu: link.mtu,
        };
        network.ports.insert(link.port, port);
    }
    let neighbors = setup.neighbors.iter().map(|(_, one)| ((one.port, one.address), mac(one.mac)));
    network.neighbors = neighbors.collect();
    for (_, route) in &setup.routes {
        let way = match route.way {
            Way::Via { gateway, port } => network::Way::Via { gateway, port },
            Way::Nowhere(_) => network::Way::Nowhere,
        };
        network.routes.push((route.prefix.address, route.prefix.length, way));
    }
    Some(network)
}

fn table_id(program: &Program, table: &TableRef<'_>) -> TableId {
    let index =
        program.tables.iter().position(|known| known.name == table.description().name).unwrap();
    TableId(index as u32)
}

fn action_call(call: &dataplane::ActionCall) -> ActionCall {
    let arguments = call.arguments.iter().map(|value| BigInt::from(*value)).collect();
    ActionCall { action: call.action as u32, arguments }
}

/// A switch, and what has come out of it.
struct Run<'a> {
    program: &'a Program,
    names: &'a Dataplane,
    switch: Interpreter<'a>,
    /// The same program as it is written; None if it has something that the tree's interpreter has
    /// not.
    tree: Option<Tree<'a>>,
    sent: BTreeMap<Port, Vec<Vec<u8>>>,
    expected: BTreeMap<Port, Vec<(u32, Option<&'a packet_test::Pattern>)>>,
    adds: u32,
    now_us: u64,
    network: Option<Network>,
}

impl<'a> Run<'a> {
    fn command(&mut self, line: u32, command: &'a Command) -> Result<(), Stop> {
        match command {
            Command::Packet { port, bytes } => {
                let verdict = self.switch.run(bytes, *port, self.now_us)?;
                if let Some(tree) = &mut self.tree {
                    let written = tree.run(bytes, *port, self.now_us);
                    let open = matches!(written, Err(Stop::Undefined(_)));
                    assert!(
                        open || written == Ok(verdict.clone()),
                        "line {line}: as written {written:02x?}, not {verdict:02x?}"
                    );
                }
                let (port, frame) = match verdict {
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
                let ternary =
                    matches!(table.description().kind, manifest::TableKind::Ternary { .. });
                // As written, to compare with the program's own entries; the earlier one wins among
                // those without.
                let priority = if ternary { entry.priority.unwrap_or(4095 - self.adds) } else { 0 };
                self.adds += u32::from(ternary);
                self.tell_own(&table, entry);
                let entry = table
                    .resolve(&dataplane::EntrySpec { priority: None, ..entry.clone() })
                    .unwrap();
                let keys = entry.matches.iter().zip(&table.description().keys);
                let matches = keys
                    .map(|(matched, key)| KeyMatch {
                        value: BigInt::from(matched.value()),
                        mask: BigInt::from(matched.mask(key.width)),
                    })
                    .collect();
                let entry = RuntimeEntry::new(matches, priority, action_call(&entry.action));
                if let Some(tree) = &mut self.tree {
                    tree.add_entry(&table.description().name, &entry)?;
                }
                self.switch.add_entry(table_id(self.program, &table), entry);
            }
            Command::SetDefault { table, action } => {
                let table = self.names.table(table).unwrap();
                let action = action_call(&table.resolve_action(action).unwrap());
                if let Some(tree) = &mut self.tree {
                    tree.set_default(&table.description().name, &action)?;
                }
                self.switch.set_default(table_id(self.program, &table), action);
            }
            Command::CheckCounter { counter, index, bytes, comparison, value } => {
                let name = &self.names.counter(counter).unwrap().name;
                let count =
                    self.switch.counter(self.object("counter", name)).unwrap()[*index as usize];
                let found = if *bytes { count.bytes } else { count.packets };
                assert!(
                    comparison.holds(found, *value),
                    "line {line}: counter {name}[{index}] is {found}"
                );
                let written = self.tree.as_ref().and_then(|tree| tree.counter(name));
                assert!(
                    written.is_none_or(|written| written[*index as usize] == count),
                    "line {line}"
                );
            }
            Command::CheckRegister { register, index, comparison, value } => {
                let name = &self.names.register(register).unwrap().name;
                let found =
                    self.switch.register(self.object("register", name)).unwrap()[*index as usize];
                assert!(
                    comparison.holds(found, *value),
                    "line {line}: register {name}[{index}] is {found}"
                );
                let written = self.tree.as_ref().and_then(|tree| tree.register(name));
                assert!(
                    written.is_none_or(|written| written[*index as usize] == found),
                    "line {line}"
                );
            }
            Command::CheckGateway { name, comparison, value } => {
                let found = self.switch.gateway_count(name);
                assert!(comparison.holds(found, *value), "line {line}: {name} is {found}");
                let written = self.tree.as_ref().map(|tree| tree.gateway_count(name));
                assert!(
                    written.is_none_or(|written| written == found),
                    "line {line}: as written {written:?}"
                );
            }
            Command::Clock { nanoseconds } => self.now_us += nanoseconds / 1000,
            // What a program means does not depend on which switch runs it. (It does where the
            // store merges what switches count: COUNTS_BY_SWITCH.)
            Command::TakesOver { .. } => {}
            Command::NoPacket | Command::Wait => {}
        }
        Ok(())
    }

    /// The network has destinations that only it has (`@own_destination`), as entries of this
    /// table.
    fn tell_own(&mut self, table: &TableRef<'_>, entry: &dataplane::EntrySpec) {
        let (described, actions) = (table.description(), &self.names.manifest().actions);
        let is_own =
            |listed: &manifest::TableAction| actions[listed.action as usize].own_destination;
        if !described.actions.iter().any(is_own) {
            return;
        }
        let entry =
            table.resolve(&dataplane::EntrySpec { priority: None, ..entry.clone() }).unwrap();
        let (matched, own) = (&entry.matches[0], is_own(&described.actions[entry.action.action]));
        let length = matched.mask(32).count_ones() as u8;
        let network = self.network.get_or_insert_default();
        network.own_destinations.push((
            std::net::Ipv4Addr::from(matched.value() as u32).into(),
            length,
            own,
        ));
        self.tree.iter_mut().for_each(|tree| tree.set_network(network.clone()));
        self.switch.set_network(network.clone());
    }

    fn object(&self, kind: &str, name: &str) -> ExternId {
        let externs = &self.program.externs;
        ExternId(
            externs.iter().position(|one| one.extern_type == kind && one.name == name).unwrap()
                as u32,
        )
    }

    fn compare(&self, case: &str) {
        for (port, wanted) in &self.expected {
            let came = self.sent.get(port).map_or(&[][..], |came| came);
            let any = wanted.iter().all(|(_, pattern)| pattern.is_none());
            assert!(
                any || came.len() == wanted.len(),
                "{case}: port {port}: {} packets came out",
                came.len()
            );
            for ((line, pattern), frame) in wanted.iter().zip(came) {
                assert!(
                    pattern.is_none_or(|pattern| pattern.fits(frame)),
                    "{case}:{line}: {frame:02x?}"
                );
            }
        }
        for port in self.sent.keys() {
            assert!(
                self.expected.contains_key(port),
                "{case}: a packet for port {port}, where none is expected"
            );
        }
    }
}

/// Packets, and whether the program as written ran too. None: the program has something that is not
/// interpreted.
fn run(path: &Path) -> Option<(usize, bool)> {
    let text = std::fs::read_to_string(path).unwrap();
    let case = Case::parse(&path.display().to_string(), &text, systems::packet_tests()).unwrap();
    let defines = case.setup.defines.iter().map(|(_, define)| define.clone()).collect();
    let options = p4_syntax::Options { defines, ..Default::default() };
    let outcome = p4_check::check_file(&program_of(path), &options);
    let program = outcome.program.as_ref();
    let program =
        program.unwrap_or_else(|| panic!("{}: {}", path.display(), outcome.render(false)));
    let generated =
        xdp_backend::generate(program, &xdp_backend::Options::new(systems::compiler())).unwrap();
    let names = Dataplane::description_only(generated.manifest);
    let mut switch = Interpreter::new(program, systems::interpreter()).ok()?;
    let (sent, expected) = (BTreeMap::new(), BTreeMap::new());
    let mut tree = match Tree::new(outcome.checked.as_ref().unwrap(), systems::interpreter()) {
        Ok(tree) => Some(tree),
        Err(Stop::Unsupported(_)) => None,
        Err(stop) => panic!("{}: {stop}", path.display()),
    };
    // What random numbers are is not expected by any case.
    switch.set_seed(1);
    tree.iter_mut().for_each(|tree| tree.set_seed(1));
    for given in systems::packet_tests().supplies(&case.setup.systems) {
        switch.supply(&given.object, given.what, &given.numbers).unwrap();
        tree.iter_mut()
            .for_each(|tree| tree.supply(&given.object, given.what, &given.numbers).unwrap());
    }
    let network = network(&case.setup);
    if let Some(network) = &network {
        tree.iter_mut().for_each(|tree| tree.set_network(network.clone()));
        switch.set_network(network.clone());
    }
    let mut run = Run {
        program,
        names: &names,
        switch,
        tree,
        sent,
        expected,
        adds: 0,
        now_us: 1_000_000,
        network,
    };
    let mut packets = 0;
    for (line, command) in &case.commands {
        packets += usize::from(matches!(command, Command::Packet { .. }));
        match run.command(*line, command) {
            Ok(()) => {}
            Err(Stop::Unsupported(_)) => return None,
            Err(stop) => panic!("{}:{line}: {stop}", path.display()),
        }
    }
    run.compare(&path.display().to_string());
    Some((packets, run.tree.is_some()))
}

/// Each switch has counts of its own here, so an interpreter, which is one switch, cannot run it.
const COUNTS_BY_SWITCH: &str = "heavy_hitter/merged.stf";

#[test]
fn packet_tests() {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    cases(&root.join("p4"), &mut found);
    for system in std::fs::read_dir(root.join("systems")).unwrap().flatten() {
        let programs = system.path().join("p4");
        if programs.is_dir() {
            cases(&programs, &mut found);
        }
    }
    found.sort();
    let (mut interpreted, mut trees, mut packets, mut skipped) = (0, 0, 0, Vec::new());
    let by_switch = |path: &PathBuf| path.ends_with(COUNTS_BY_SWITCH);
    assert_eq!(found.iter().filter(|path| by_switch(path)).count(), 1, "{COUNTS_BY_SWITCH}");
    found.retain(|path| !by_switch(path));
    for path in &found {
        match run(path) {
            Some((count, tree)) => {
                (interpreted, packets, trees) =
                    (interpreted + 1, packets + count, trees + usize::from(tree));
            }
            None => skipped.push(path.file_name().unwrap()),
        }
    }
    println!(
        "{interpreted} cases with {packets} packets, {trees} also as written; not interpreted: {skipped:?}"
    );
    assert!(
        skipped.is_empty() && trees == interpreted,
        "{trees} of {interpreted} as written, skipped {skipped:?}"
    );
    assert!(interpreted >= 130 && packets >= 2170, "{interpreted} cases, {packets} packets");
}
