//! Histories of translated flows, recorded at the hosts: what each packet left one host as, and
//! what it arrived at the other as.
//!
//! A flow of the inside has one outside address and port for as long as it lives, whichever
//! switches its packets go through: a register that is written once. Every packet uses it: on the
//! way out the far end sees its value as the packet's source; on the way back a packet *to* that
//! value must arrive at this flow. So each packet is an operation that began when it left one host
//! and ended when it arrived at the other, and gave the register's value; and each flow's
//! operations must be linearizable ([`history::linearizable::Binding`]). Lost packets say nothing.
//! And no two flows have one value at the same time.
//!
//! Of a load balancer's flow the value is its server: on the way out the packet's destination when
//! it arrives, on the way back the source that it left a server with; and many flows have one.

use crate::Judge;
use crate::ends::Ends;
use crate::record::{Recorder, wait_for_times, wall_ns};
use capture::Interface;
use history::linearizable::{self, Binding, Operation};
use lab::error::{Error, Result};
use lab::instance::Lab;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// (Protocol, payload bytes) of the test messages: TCP, UDP, answers over UDP. The first eight
/// bytes identify the message.
const MESSAGE_BYTES: [(u8, usize); 3] = [(TCP, 24), (UDP, 8), (UDP, 14)];

/// A packet at a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passing {
    ns: u64,
    /// At the client's host; otherwise at a server's.
    inside: bool,
    outgoing: bool,
    protocol: u8,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A connection begins: TCP's first sequence number.
    Begins(u32),
    /// A message, by its first bytes.
    Message(u64),
}

/// What was judged.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// Flows that were seen.
    pub flows: u64,
    /// Histories, one for each flow and round in which it had packets.
    pub histories: u64,
    /// Operations in them: packets that arrived.
    pub operations: u64,
    /// Time that the judgement took, in milliseconds.
    pub checked_ms: u64,
}

/// A flow of the inside: protocol, address and port, and which of the connections that had these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Flow {
    protocol: u8,
    inside: SocketAddrV4,
    life: u32,
}

/// A line of the history's file.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    flow: Flow,
    binding: SocketAddrV4,
    invoked_ns: u64,
    returned_ns: u64,
}

/// Threads that record at both hosts; they end with this value.
pub struct Bindings {
    recorder: Recorder<Passing>,
    /// What passed after the last judgement's end.
    later: Vec<Passing>,
    zero_ns: u64,
    register: Register,
    judge: Arc<Judge>,
    file: BufWriter<File>,
    path: PathBuf,
    lost: u64,
}

impl Bindings {
    /// Begins to record; the history goes to `path`.
    ///
    /// # Errors
    /// A packet socket or the file cannot be opened.
    pub fn start(lab: &Lab, ends: &Ends, path: &Path, judge: &Arc<Judge>) -> Result<Self> {
        let file = BufWriter::new(File::create(path).map_err(Error::io(path))?);
        let zero_ns = wall_ns();
        let mut bindings = Self {
            recorder: Recorder::new(),
            later: Vec::new(),
            zero_ns,
            register: Register { server_is_bound: ends.server_is_bound, ..Register::default() },
            judge: Arc::clone(judge),
            file,
            path: path.to_path_buf(),
            lost: 0,
        };
        let servers = ends.servers.iter().map(|(node, _)| (node.as_str(), false));
        for (host, inside) in std::iter::once((ends.client.as_str(), true)).chain(servers) {
            let devices: Vec<String> =
                lab.topology().ports(host).map(|(device, ..)| device.to_string()).collect();
            for device in devices {
                let interface = lab
                    .netns(host)?
                    .run(|| Interface::open_all(&device))
                    .map_err(Error::system(format!("listening at {host}'s interface {device}")))?;
                wait_for_times(&lab.netns(host)?)?;
                bindings.recorder.listen(interface, move |frame, seen, found| {
                    let ns = frame.time_ns.saturating_sub(zero_ns);
                    let passing = |it| Passing { ns, inside, outgoing: seen.outgoing, ..it };
                    found.extend(parse(frame.bytes).map(passing));
                });
            }
        }
        Ok(bindings)
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        self.register.figures
    }

    /// Judges what has passed since the last time.
    ///
    /// # Errors
    /// The recording is behind, the history cannot be written, or the process is to stop.
    pub fn end_round(&mut self) -> Result<()> {
        let until_ns = self.recorder.catch_up()?.saturating_sub(self.zero_ns);
        let mut passings = std::mem::take(&mut self.later);
        passings.extend(self.recorder.take());
        // Of what passed since then one host's thread may tell, and the other's not yet.
        (passings, self.later) = passings.into_iter().partition(|passing| passing.ns <= until_ns);
        let lost = self.recorder.lost();
        if lost > self.lost {
            self.judge.violation(format!(
                "{} frames were lost because capturing was too slow: the round cannot be judged",
                lost - self.lost
            ));
            self.lost = lost;
        }
        let (uses, problems) = self.register.judge(passings);
        for what in problems {
            self.judge.violation(format!("{what} (history in {})", self.path.display()));
        }
        let write = |file: &mut BufWriter<File>| -> std::io::Result<()> {
            for line in uses {
                serde_json::to_writer(&mut *file, &line)?;
                file.write_all(b"\n")?;
            }
            file.flush()
        };
        write(&mut self.file).map_err(Error::io(&self.path))
    }
}

/// The beginning of a connection, or a message, in an Ethernet frame.
fn parse(frame: &[u8]) -> Option<Passing> {
    let word =
        |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let ip = (word(frame, 12)? == 0x0800).then(|| frame.get(14..)).flatten()?;
    let header_bytes = usize::from(ip.first()? & 15) * 4;
    // Ethernet pads short frames.
    let ip = ip.get(..usize::from(word(ip, 2)?))?;
    let protocol = *ip.get(9)?;
    let upper = ip.get(header_bytes..)?;
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
    let source = SocketAddrV4::new(address(12)?, word(upper, 0)?);
    let destination = SocketAddrV4::new(address(16)?, word(upper, 2)?);
    let (payload, begins) = match protocol {
        TCP => {
            let begins = upper.get(13)? & 0x12 == 2;
            let first = u32::from_be_bytes(upper.get(4..8)?.try_into().ok()?);
            (upper.get(usize::from(upper.get(12)? >> 4) * 4..)?, begins.then_some(first))
        }
        UDP => (upper.get(8..)?, None),
        _ => return None,
    };
    let what = match begins {
        Some(first) => What::Begins(first),
        None if MESSAGE_BYTES.contains(&(protocol, payload.len())) => {
            What::Message(u64::from_be_bytes(payload.get(..8)?.try_into().ok()?))
        }
        None => return None,
    };
    Some(Passing { ns: 0, inside: false, outgoing: false, protocol, source, destination, what })
}

/// All flows and their bindings.
#[derive(Default)]
struct Register {
    /// (protocol, inside address): the connection's first sequence number, and which of those with
    /// this address it is.
    lives: HashMap<(u8, SocketAddrV4), (u32, u32)>,
    /// What each flow's binding was when it was last judged.
    known: BTreeMap<Flow, u64>,
    /// Messages on their way, by protocol, direction and name: when, whose, and to whom. Also those
    /// of the round before, as what was sent at its very end arrives in this one.
    sent: [HashMap<(u8, bool, u64), Sent>; 2],
    /// [`Ends::server_is_bound`]
    server_is_bound: bool,
    figures: Figures,
}

#[derive(Clone, Copy)]
struct Sent {
    ns: u64,
    /// Of a message of the client whose it is; of one to the client by which binding.
    said: SocketAddrV4,
}

/// A binding as a number.
fn number(address: SocketAddrV4) -> u64 {
    u64::from(u32::from(*address.ip())) << 16 | u64::from(address.port())
}

fn address(number: u64) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from((number >> 16) as u32), number as u16)
}

impl Register {
    /// Judges a round, of which all that passed is there; what was used when, and what is wrong.
    fn judge(&mut self, mut passings: Vec<Passing>) -> (Vec<Line>, Vec<String>) {
        let began = Instant::now();
        passings.sort_by_key(|passing| (passing.ns, !passing.outgoing));
        let mut flows: BTreeMap<Flow, Vec<Operation<Binding>>> = BTreeMap::new();
        let mut problems = Vec::new();
        self.sent.swap(0, 1);
        self.sent[0].clear();
        for passing in &passings {
            match self.pass(passing) {
                Ok(operation) => operation
                    .into_iter()
                    .for_each(|(flow, it)| flows.entry(flow).or_default().push(it)),
                Err(problem) => problems.push(problem),
            }
        }
        let mut lines = Vec::new();
        for (flow, operations) in &flows {
            for operation in operations {
                let Some((returned_ns, binding)) = operation.returned else { continue };
                let binding = address(binding);
                lines.push(Line {
                    flow: *flow,
                    binding,
                    invoked_ns: operation.invoked,
                    returned_ns,
                });
            }
        }
        problems.extend(self.one_value_each(&flows));
        problems.extend(self.one_flow_each(&flows));
        self.figures.checked_ms += u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        (lines, problems)
    }

    /// A packet that arrives is an operation.
    fn pass(
        &mut self,
        passing: &Passing,
    ) -> std::result::Result<Option<(Flow, Operation<Binding>)>, String> {
        let outward = passing.inside == passing.outgoing;
        let (protocol, name) = match passing.what {
            What::Begins(first) if passing.inside && passing.outgoing => {
                let life = self.lives.entry((TCP, passing.source)).or_insert((first, 0));
                if life.0 != first {
                    *life = (first, life.1 + 1);
                }
                return Ok(None);
            }
            What::Begins(_) => return Ok(None),
            What::Message(name) => (passing.protocol, name),
        };
        if passing.outgoing {
            let said =
                if outward || self.server_is_bound { passing.source } else { passing.destination };
            let sent = Sent { ns: passing.ns, said };
            // Sent again, it was on its way before.
            self.sent[0].entry((protocol, outward, name)).or_insert(sent);
            return Ok(None);
        }
        let known = self
            .sent
            .iter()
            .filter_map(|sent| sent.get(&(protocol, outward, name)))
            .min_by_key(|sent| sent.ns);
        let Some(sent) = known else {
            return Err(format!(
                "a message from {} arrived at {} after {:.3} ms, but nobody had sent it before",
                passing.source,
                passing.destination,
                passing.ns as f64 / 1e6
            ));
        };
        let (inside, binding) = match outward {
            true if self.server_is_bound => (sent.said, passing.destination),
            true => (sent.said, passing.source),
            false => (passing.destination, sent.said),
        };
        let life = self.lives.get(&(protocol, inside)).map_or(0, |(_, life)| *life);
        let binding = number(binding);
        let returned = Some((passing.ns, binding));
        let operation =
            Operation { input: Binding { allocated: binding }, invoked: sent.ns, returned };
        Ok(Some((Flow { protocol, inside, life }, operation)))
    }

    /// Each flow's history must be linearizable, beginning with the binding that it had.
    fn one_value_each(&mut self, flows: &BTreeMap<Flow, Vec<Operation<Binding>>>) -> Vec<String> {
        let mut problems = Vec::new();
        for (flow, operations) in flows {
            let known = self.known.get(flow).copied();
            self.figures.flows += u64::from(known.is_none());
            self.figures.histories += 1;
            self.figures.operations += operations.len() as u64;
            let before = known.map(|binding| Operation {
                input: Binding { allocated: binding },
                invoked: 0,
                returned: Some((0, binding)),
            });
            let history: Vec<_> = before.into_iter().chain(operations.iter().copied()).collect();
            if let Err(violation) = linearizable::check(&history) {
                let mut seen: Vec<SocketAddrV4> =
                    history.iter().filter_map(|it| Some(address(it.returned?.1))).collect();
                seen.dedup();
                problems.push(format!(
                    "{flow:?} had the bindings {seen:?}: not linearizable: {violation}"
                ));
            }
            if let Some((_, binding)) = operations.last().and_then(|operation| operation.returned) {
                self.known.insert(*flow, binding);
            }
        }
        // Of connections that are over nothing more is to be heard.
        self.known.retain(|flow, _| flow.protocol != TCP || flows.contains_key(flow));
        problems
    }

    /// No binding is two flows' at the same time.
    fn one_flow_each(&self, flows: &BTreeMap<Flow, Vec<Operation<Binding>>>) -> Vec<String> {
        // By protocol and binding: from when until when, and whose.
        type Uses = Vec<(u64, u64, Flow)>;
        let mut users: BTreeMap<(u8, u64), Uses> = BTreeMap::new();
        if self.server_is_bound {
            return Vec::new();
        }
        for (flow, operations) in flows {
            let from = operations.iter().map(|operation| operation.invoked).min().unwrap_or(0);
            let until = operations
                .iter()
                .filter_map(|operation| Some(operation.returned?.0))
                .max()
                .unwrap_or(0);
            for binding in operations.iter().filter_map(|operation| Some(operation.returned?.1)) {
                let users = users.entry((flow.protocol, binding)).or_default();
                if users.last() != Some(&(from, until, *flow)) {
                    users.push((from, until, *flow));
                }
            }
        }
        let mut problems = Vec::new();
        for ((_, binding), mut users) in users {
            users.sort_unstable();
            for pair in users.windows(2) {
                if pair[1].0 < pair[0].1 && pair[0].2 != pair[1].2 {
                    let binding = address(binding);
                    problems.push(format!(
                        "{binding} is {:?}'s and {:?}'s at the same time",
                        pair[0].2, pair[1].2
                    ));
                }
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, last), port)
    }

    const FAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 10), 7_000);

    /// A message goes out from an inside port by a binding, and is answered.
    fn exchange(ns: u64, inside: SocketAddrV4, binding: SocketAddrV4, name: u64) -> Vec<Passing> {
        let passing = |ns, inside, outgoing, source, destination| Passing {
            ns,
            inside,
            outgoing,
            protocol: UDP,
            source,
            destination,
            what: What::Message(name),
        };
        vec![
            passing(ns, true, true, inside, FAR),
            passing(ns + 1, false, false, binding, FAR),
            passing(ns + 2, false, true, FAR, binding),
            passing(ns + 3, true, false, FAR, inside),
        ]
    }

    fn problems(register: &mut Register, exchanges: &[Vec<Passing>]) -> String {
        register.judge(exchanges.concat()).1.join("; ")
    }

    #[test]
    fn a_flow_has_one_binding_also_over_rounds() {
        let mut register = Register::default();
        let (inside, binding) = (at(1, 5_000), at(9, 1_025));
        assert_eq!(
            problems(
                &mut register,
                &[exchange(10, inside, binding, 1), exchange(20, inside, binding, 2)]
            ),
            ""
        );
        assert_eq!(problems(&mut register, &[exchange(30, inside, binding, 3)]), "");
        let other = problems(&mut register, &[exchange(40, inside, at(9, 1_026), 4)]);
        assert!(other.contains("not linearizable"), "{other}");
        let figures = register.figures;
        assert_eq!((figures.flows, figures.histories, figures.operations), (1, 3, 8));
    }

    #[test]
    fn a_binding_has_one_flow_at_a_time() {
        let (one, other, binding) = (at(1, 5_000), at(1, 5_001), at(9, 1_025));
        let apart = [exchange(10, one, binding, 1), exchange(20, other, binding, 2)];
        assert_eq!(problems(&mut Register::default(), &apart), "");
        let overlap = [apart[0].clone(), apart[1].clone(), exchange(30, one, binding, 3)];
        let found = problems(&mut Register::default(), &overlap);
        assert!(found.contains("at the same time"), "{found}");
    }

    #[test]
    fn a_balancer_s_flow_has_one_server_and_a_server_many_flows() {
        let service = at(10, 80);
        let exchange = |ns, client, server, name| {
            let mut all = exchange(ns, client, client, name);
            (all[0].destination, all[1].destination) = (service, server);
            (all[2].source, all[3].source) = (server, service);
            all
        };
        let (one, other, server) = (at(1, 5_000), at(1, 5_001), at(21, 8_080));
        let mut register = Register { server_is_bound: true, ..Register::default() };
        let shared = [
            exchange(10, one, server, 1),
            exchange(11, other, server, 2),
            exchange(12, one, server, 3),
        ];
        assert_eq!(problems(&mut register, &shared), "");
        let moved = problems(&mut register, &[exchange(20, one, at(22, 8_080), 4)]);
        assert!(moved.contains("not linearizable"), "{moved}");
    }

    #[test]
    fn an_answer_that_arrives_at_another_flow_is_found() {
        let mut astray = exchange(10, at(1, 5_000), at(9, 1_025), 1);
        astray[3].destination = at(1, 5_001);
        let found = problems(
            &mut Register::default(),
            &[astray, exchange(9, at(1, 5_001), at(9, 1_030), 2)],
        );
        assert!(found.contains("not linearizable") && found.contains("5001"), "{found}");
    }

    #[test]
    fn what_was_never_sent_is_found() {
        let mut register = Register::default();
        let exchange = exchange(10, at(1, 5_000), at(9, 1_025), 1);
        // Sent at the end of a round, it arrives in the next.
        assert_eq!(problems(&mut register, &[exchange[..1].to_vec()]), "");
        assert_eq!(problems(&mut register, &[exchange[1..2].to_vec()]), "");
        assert_eq!(register.figures.operations, 1);
        let strange = Passing { what: What::Message(9), ..exchange[1] };
        let found = problems(&mut register, &[vec![strange]]);
        assert!(found.contains("nobody had sent it"), "{found}");
    }

    #[test]
    fn what_arrives_before_it_is_sent_is_found() {
        let mut backwards = exchange(10, at(1, 5_000), at(9, 1_025), 1);
        backwards[2].ns = 20;
        let found = problems(&mut Register::default(), &[backwards]);
        assert!(found.contains("nobody had sent it"), "{found}");
    }

    #[test]
    fn a_port_that_is_used_again_is_another_flow() {
        let mut register = Register::default();
        let inside = at(1, 5_000);
        let tcp = |ns, first, binding, name| {
            let mut all = exchange(ns + 1, inside, binding, name);
            all.iter_mut().for_each(|passing| passing.protocol = TCP);
            all.insert(0, Passing { ns, what: What::Begins(first), ..all[0] });
            all
        };
        let found =
            problems(&mut register, &[tcp(10, 1, at(9, 1_025), 1), tcp(20, 2, at(9, 1_026), 2)]);
        assert_eq!((found.as_str(), register.figures.flows), ("", 2));
        let found = problems(&mut register, &[tcp(30, 2, at(9, 1_027), 3)]);
        assert!(found.contains("not linearizable"), "{found}");
    }

    #[test]
    fn frames_are_parsed() {
        let mut frame = vec![0; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 36, 1, 2, 0x40, 0, 62, UDP, 0, 0, 203, 0, 113, 9, 198, 51, 100, 10,
        ]);
        frame.extend([1_025_u16, 7_000, 16, 0].iter().flat_map(|word| word.to_be_bytes()));
        frame.extend([0, 0, 0, 3, 0, 0, 0, 9]);
        let parsed = parse(&frame).expect("a message");
        assert_eq!((parsed.source, parsed.destination), (at(9, 1_025), FAR));
        assert_eq!(parsed.what, What::Message(3 << 32 | 9));
        for cut in 0..frame.len() {
            assert_eq!(parse(&frame[..cut]), None);
        }
        let mut syn = vec![0; 12];
        syn.extend([
            8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0, 203, 0, 113, 9, 198, 51, 100, 10,
        ]);
        syn.extend([4, 1, 27, 88, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse(&syn).map(|passing| passing.what), Some(What::Begins(7)));
    }
}
