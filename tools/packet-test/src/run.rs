//! Runs a case through a loaded object.

use crate::network::{self, NetworkError};
use crate::report::{CaseReport, Failure, diff, difference, dump};
use crate::setup::{DEFAULT_ICMP_RATE_PER_S, PortLink};
use crate::stf::{Case, Command, Pattern, Port};
use crate::system::{Arrival, Backing, Fault, Identity, Outcome, Systems, copies};
use dataplane::{
    Dataplane, EntrySpec, GatewayPort, GatewaySettings, Verdict, Write, copies_by_loop,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Runs a case, in a network of its own if it has `# port:` lines: `load` gives a freshly loaded
/// object (in test mode, with the virtual clock), or says why there is none. It is called where the
/// case runs, on another thread perhaps, and again for each switch that takes over.
pub fn run_case(
    case: &Case,
    systems: Systems,
    load: impl Fn() -> Result<Dataplane, String> + Sync,
) -> CaseReport {
    let run = || match load() {
        Ok(dataplane) => Runner::new(dataplane, &load, case, systems).run(),
        Err(reason) => CaseReport::failed(&case.path, 0, reason),
    };
    if case.setup.ports.is_empty() {
        return run();
    }
    match network::inside(&case.setup, run) {
        Ok(report) => report,
        Err(NetworkError { line, reason }) => CaseReport::failed(&case.path, line, reason),
    }
}

/// Runs one case, in the network where it is.
struct Runner<'a> {
    dataplane: Dataplane,
    load: &'a dyn Fn() -> Result<Dataplane, String>,
    case: &'a Case,
    systems: Systems,
    /// What stands behind the switch.
    backings: Vec<Box<dyn Backing>>,
    identity: Identity,
    clock_ns: u64,
    adds: u32,
    sent: BTreeMap<Port, Vec<Sent>>,
    expected: BTreeMap<Port, Vec<(u32, Option<&'a Pattern>)>>,
    report: CaseReport,
}

/// A packet that came out.
struct Sent {
    /// The line of the packet that went in.
    line: u32,
    frame: Vec<u8>,
}

/// Where the clock starts: not 0, so that a program can't take "never" for "now".
const CLOCK_START_NS: u64 = 1_000_000_000;
/// Entries of equal priority: the first one wins, as it does in the reference switch. Priorities
/// are scaled to leave room for that.
const ORDERS: u32 = 4096;
/// Frames that one packet, or one step of the clock, may bring in: packets do not go round for
/// ever.
const MOST_ARRIVALS: usize = 10_000;

/// A priority with room for the order of the entries that have it.
fn scaled(priority: u32, order: u32) -> dataplane::Result<u32> {
    priority.checked_mul(ORDERS).and_then(|scaled| scaled.checked_add(order)).ok_or_else(|| {
        dataplane::Error::Value {
            what: "priority".to_owned(),
            text: priority.to_string(),
            reason: format!("must be below {}", u32::MAX / ORDERS),
        }
    })
}

impl<'a> Runner<'a> {
    fn new(
        dataplane: Dataplane,
        load: &'a dyn Fn() -> Result<Dataplane, String>,
        case: &'a Case,
        systems: Systems,
    ) -> Runner<'a> {
        let report =
            CaseReport { case: case.path.clone(), packets: 0, matched: 0, failures: vec![] };
        Runner {
            dataplane,
            load,
            case,
            systems,
            backings: vec![],
            identity: Identity { switch_id: 1, incarnation: 1 },
            clock_ns: CLOCK_START_NS,
            adds: 0,
            sent: BTreeMap::new(),
            expected: BTreeMap::new(),
            report,
        }
    }

    /// Runs all commands and compares. A command that cannot be carried out (an unknown table, say)
    /// is a failure too, and the rest still runs.
    fn run(mut self) -> CaseReport {
        let case = self.case;
        let lines = &case.setup.systems;
        for system in self.systems.0 {
            match system.begin(lines, self.dataplane.manifest()) {
                Ok(backing) => self.backings.extend(backing),
                Err(fault) => self.blame(fault),
            }
        }
        self.prepare();
        for (line, command) in &case.commands {
            if let Err(error) = self.step(*line, command) {
                self.fail(*line, error.to_string(), None);
            }
        }
        self.compare();
        self.report
    }

    fn blame(&mut self, fault: Fault) {
        self.fail(fault.line, fault.reason, None);
    }

    fn fail(&mut self, line: u32, reason: String, diff: Option<String>) {
        self.report.failures.push(Failure {
            file: self.case.path.clone(),
            line,
            column: None,
            reason,
            diff,
        });
    }

    /// Tells the program of the network around it.
    fn prepare(&mut self) {
        let case = self.case;
        for (line, link) in &case.setup.ports {
            let name = network::link_name(link.port);
            let made = nix::net::if_::if_nametoindex(name.as_str())
                .map_err(|error| format!("interface {name}: {error}"))
                .and_then(|ifindex| {
                    self.set_port(link, ifindex).map_err(|error| error.to_string())
                });
            if let Err(reason) = made {
                self.fail(*line, reason, None);
            }
        }
        if !case.setup.ports.is_empty()
            && let Err(error) = self.set_gateway()
        {
            self.fail(case.setup.gateway.map_or(0, |(line, _)| line), error.to_string(), None);
        }
        self.begin_switch();
        if let Err(error) = self.scale_initial_entries() {
            self.fail(1, error.to_string(), None);
        }
    }

    /// The machines behind the switch hear of it.
    fn begin_switch(&mut self) {
        for index in 0..self.backings.len() {
            let backing = &mut self.backings[index];
            let begun = backing.begin_switch(&self.dataplane, self.identity, self.clock_ns);
            if let Err(fault) = begun.and_then(|()| self.tick(index, 0)) {
                self.blame(fault);
            }
        }
    }

    /// Gives the program's own entries priorities that compare with those of `add` lines.
    fn scale_initial_entries(&self) -> dataplane::Result<()> {
        if !self.case.commands.iter().any(|(_, command)| matches!(command, Command::Add { .. })) {
            return Ok(());
        }
        for described in &self.dataplane.manifest().tables {
            if !matches!(described.kind, manifest::TableKind::Ternary { .. }) {
                continue;
            }
            let table = self.dataplane.table(&described.name)?;
            for mut entry in table.initial_entries()? {
                entry.priority = scaled(entry.priority, described.rank(ORDERS - 1) % ORDERS)?;
                table.write(&entry, Write::Set)?;
            }
        }
        Ok(())
    }

    fn set_port(&self, link: &PortLink, ifindex: u32) -> dataplane::Result<()> {
        self.dataplane.set_port(link.port, ifindex)?;
        let addresses = || link.addresses.iter().map(|prefix| prefix.address);
        let port = GatewayPort {
            mac: link.mac.0,
            siblings: link.siblings.iter().fold(0, |bits, sibling| bits | 1 << sibling),
            ipv4: addresses()
                .find_map(|address| if let IpAddr::V4(it) = address { Some(it) } else { None }),
            ipv6: addresses()
                .find_map(|address| if let IpAddr::V6(it) = address { Some(it) } else { None }),
            ifindex,
            mtu: link.mtu,
            any_mac: !link.own_mac,
            reverse_path: link.reverse_path,
            ..GatewayPort::default()
        };
        self.dataplane.set_gateway_port(link.port, &port)
    }

    /// Settings, and which addresses are the host's own.
    fn set_gateway(&self) -> dataplane::Result<()> {
        let setup = &self.case.setup;
        let settings = match &setup.gateway {
            Some((_, settings)) => *settings,
            None => GatewaySettings {
                icmp_rate_per_s: DEFAULT_ICMP_RATE_PER_S,
                ..GatewaySettings::default()
            },
        };
        self.dataplane.set_gateway_settings(&settings)?;
        let (mut ipv4, mut ipv6) = (vec![], vec![]);
        for prefix in setup.ports.iter().flat_map(|(_, link)| &link.addresses) {
            match prefix.address {
                IpAddr::V4(address) => {
                    ipv4.push(address);
                    ipv4.extend(dataplane::broadcast_of(address, u32::from(prefix.length)));
                }
                IpAddr::V6(address) => ipv6.push(address),
            }
        }
        self.dataplane.set_local_addresses(&ipv4, &ipv6).map(drop)
    }

    fn step(&mut self, line: u32, command: &'a Command) -> dataplane::Result<()> {
        match command {
            Command::Packet { port, bytes } => self.packet(line, *port, bytes)?,
            Command::Expect { port, pattern } => {
                self.expected.entry(*port).or_default().push((line, pattern.as_ref()));
            }
            Command::Add { table, entry } => self.add(table, entry)?,
            Command::SetDefault { table, action } => {
                let table = self.dataplane.table(table)?;
                table.set_default(&table.resolve_action(action)?)?;
            }
            Command::NoPacket => self.no_packet(line),
            Command::Wait => {}
            Command::CheckCounter { counter, index, bytes, comparison, value } => {
                let counter = self.dataplane.counter(counter)?;
                let found = self.dataplane.read_counter(counter, *index)?;
                let (found, unit) =
                    if *bytes { (found.bytes, "bytes") } else { (found.packets, "packets") };
                if !comparison.holds(found, *value) {
                    let name = &counter.name;
                    let reason = format!(
                        "counter {name}({index}) has {found} {unit}, {comparison}{value} expected"
                    );
                    self.fail(line, reason, None);
                }
            }
            Command::CheckRegister { register, index, comparison, value } => {
                let register = self.dataplane.register(register)?;
                let found = self.dataplane.read_register(register, *index)?;
                if !comparison.holds(found, *value) {
                    let name = &register.name;
                    let reason = format!(
                        "register {name}({index}) is {found:#x}, {comparison}{value:#x} expected"
                    );
                    self.fail(line, reason, None);
                }
            }
            Command::CheckGateway { name, comparison, value } => {
                match self.dataplane.gateway_count(name)? {
                    Some(found) if comparison.holds(found, *value) => {}
                    Some(found) => self.fail(
                        line,
                        format!("{name} is {found}, {comparison}{value} expected"),
                        None,
                    ),
                    None => self.fail(
                        line,
                        format!("the program has no counter {name}: it does not need one"),
                        None,
                    ),
                }
            }
            Command::Clock { nanoseconds } => self.pass(line, *nanoseconds),
            Command::TakesOver { same } => self.take_over(line, *same)?,
        }
        Ok(())
    }

    fn packet(&mut self, line: u32, port: u32, bytes: &[u8]) -> dataplane::Result<()> {
        self.report.packets += 1;
        self.arrive(line, vec![(port, bytes.to_vec())])
    }

    /// Frames come in, and what comes back of what they cause.
    fn arrive(&mut self, line: u32, frames: Vec<Arrival>) -> dataplane::Result<()> {
        let mut waiting = VecDeque::from(frames);
        for _ in 0..MOST_ARRIVALS {
            let Some((port, frame)) = waiting.pop_front() else { return Ok(()) };
            let outcome = match copies_by_loop(port) {
                Some(_) => self.dataplane.run_looped(&frame, self.clock_ns)?,
                None => self.dataplane.run(&frame, port, self.clock_ns)?,
            };
            let to = match outcome.verdict {
                Verdict::Drop => continue,
                Verdict::Forward { port } => port,
                Verdict::ToHost => {
                    let sent = Sent { line, frame: outcome.frame };
                    self.sent.entry(Port::Host).or_default().push(sent);
                    continue;
                }
            };
            if let Some(copies) = copies(to, &outcome.frame) {
                waiting.extend(copies);
                continue;
            }
            let now_ns = self.clock_ns;
            let taken =
                self.backings.iter_mut().find_map(|it| it.departs(to, &outcome.frame, now_ns));
            match taken {
                Some(back) => waiting.extend(back),
                None => {
                    let sent = Sent { line, frame: outcome.frame };
                    self.sent.entry(to.into()).or_default().push(sent);
                }
            }
        }
        let reason = format!("over {MOST_ARRIVALS} frames came in because of this line");
        self.fail(line, reason, None);
        Ok(())
    }

    /// What one of the machines does now.
    fn tick(&mut self, backing: usize, line: u32) -> Outcome<()> {
        let frames = self.backings[backing].tick(&self.dataplane, self.clock_ns)?;
        self.arrive(line, frames).map_err(|error| Fault { line, reason: error.to_string() })
    }

    /// Time passes, for the machines too.
    fn pass(&mut self, line: u32, nanoseconds: u64) {
        let end_ns = self.clock_ns.saturating_add(nanoseconds);
        loop {
            let (switch, now_ns) = (&self.dataplane, self.clock_ns);
            let due = self.backings.iter().enumerate().filter_map(|(index, backing)| {
                Some((backing.next_ns(switch, now_ns)?.max(now_ns + 1), index))
            });
            let next = due.min();
            let Some((at_ns, index)) = next.filter(|(at_ns, _)| *at_ns <= end_ns) else { break };
            self.clock_ns = at_ns;
            if let Err(fault) = self.tick(index, line) {
                self.clock_ns = end_ns;
                return self.blame(Fault { line, ..fault });
            }
        }
        self.clock_ns = end_ns;
    }

    /// The switch dies; one with empty state and the entries of the lines so far takes its place.
    fn take_over(&mut self, line: u32, same: bool) -> dataplane::Result<()> {
        match (self.load)() {
            Ok(dataplane) => self.dataplane = dataplane,
            Err(reason) => {
                self.fail(line, reason, None);
                return Ok(());
            }
        }
        self.identity.incarnation += 1;
        self.identity.switch_id += u32::from(!same);
        self.adds = 0;
        self.prepare();
        let case = self.case;
        for (_, command) in case.commands.iter().take_while(|(number, _)| *number < line) {
            match command {
                Command::Add { table, entry } => self.add(table, entry)?,
                Command::SetDefault { table, action } => {
                    let table = self.dataplane.table(table)?;
                    table.set_default(&table.resolve_action(action)?)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, table: &str, spec: &EntrySpec) -> dataplane::Result<()> {
        let table = self.dataplane.table(table)?;
        let ternary = matches!(table.description().kind, manifest::TableKind::Ternary { .. });
        if !ternary {
            // A priority where none can matter is harmless.
            let spec = EntrySpec { priority: None, ..spec.clone() };
            return table.write(&table.resolve(&spec)?, Write::Add);
        }
        // (ORDERS - 1 is for the program's own entries.)
        let order = table.description().rank((ORDERS - 2).saturating_sub(self.adds)) % ORDERS;
        self.adds += 1;
        let priority = scaled(spec.priority.unwrap_or(1), order)?;
        table.write(
            &table.resolve(&EntrySpec { priority: Some(priority), ..spec.clone() })?,
            Write::Add,
        )
    }

    /// More packets have come out than were expected so far.
    fn no_packet(&mut self, line: u32) {
        let mut surplus = vec![];
        for (port, sent) in &self.sent {
            let expected = self.expected.get(port).map_or(0, Vec::len);
            if let Some(first) = sent.get(expected) {
                surplus.push(format!(
                    "port {port}: no packet expected, but one came out (from line {})",
                    first.line
                ));
            }
        }
        for reason in surplus {
            self.fail(line, reason, None);
        }
    }

    fn compare(&mut self) {
        let (sent, expected) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.expected));
        // Said once: it explains all packets that are missing.
        let (lines, manifest) = (&self.case.setup.systems, self.dataplane.manifest());
        let mut why = self.systems.0.iter().find_map(|it| it.why_missing(lines, manifest));
        for (port, wanted) in &expected {
            let came = sent.get(port).map_or(&[][..], |came| came);
            for (index, (line, pattern)) in wanted.iter().enumerate() {
                match (came.get(index), pattern) {
                    (None, _) => {
                        let why = why.take().map(|why| format!(" ({why})")).unwrap_or_default();
                        self.fail(
                            *line,
                            format!("port {port}: a packet was expected, and none came out{why}"),
                            None,
                        );
                    }
                    (Some(packet), Some(pattern)) if !pattern.fits(&packet.frame) => self.fail(
                        *line,
                        difference(pattern, &packet.frame, *port, packet.line),
                        Some(diff(pattern, &packet.frame)),
                    ),
                    _ => self.report.matched += 1,
                }
            }
        }
        for (port, came) in &sent {
            let wanted = expected.get(port).map_or(&[][..], |wanted| wanted);
            // `expect PORT` without data takes any number.
            if !wanted.is_empty() && wanted.iter().all(|(_, pattern)| pattern.is_none()) {
                continue;
            }
            for packet in came.iter().skip(wanted.len()) {
                let reason = format!("port {port}: a packet came out that was not expected");
                self.fail(packet.line, reason, Some(dump(&packet.frame)));
            }
        }
        self.report.failures.sort_by_key(|failure| failure.line);
    }
}
