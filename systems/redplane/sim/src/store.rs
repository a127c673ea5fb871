//! The store in the world: the real servers (`state_store::core::Node`) under the real controller
//! (`controller::core::Controller`), with clocks and lives of their own.

use crate::bindings::{EXTERNAL, IDLE_NS, NAT_PORTS, backends};
use crate::fast::FastPaths;
use crate::faults::Faults;
use crate::network::{Datagram, Event};
use crate::program::Program;
use crate::scenario::{Machine, SERVERS};
use crate::world::{MS, SHARDS, World, ring};
use controller::core::{
    Controller, Event as Decision, Input as ControllerInput, Outputs as ControllerOutputs, Why,
};
use rand::Rng;
use rand::rngs::StdRng;
use simnet::Clock;
use state_protocol::SNAPSHOT_VALUE_BYTES;
use state_protocol::objects::{Allocator, FlowState, SnapshotState};
use state_store::core::{
    AllocatorSettings, BackendPolicy, BackendSettings, IdleNs, Input, Limits, MergeSettings,
    NatSettings,
};
use state_store::core::{Node, ObjectSettings, Outputs, Replica, Settings, Start};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Control, KeyRing, Member, Report, ShardReport, Views};

pub(crate) const LEASE_US: u32 = 60_000;
/// A server whose newest report is older than this may be about to be taken out: reports come every
/// 50 ms, and take up to 30.
const HEARD_NS: u64 = 65 * MS;
/// The controller takes a server out that is silent for this time.
pub(crate) const DEAD_NS: u64 = 150 * MS;

pub(crate) fn server_address(at: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 2, 0, at as u8 + 1), wire::PORT)
}

pub(crate) fn controller_address() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 5408)
}

/// A server's clock: starts anywhere, runs fast or slow.
fn draw_clock(rng: &mut StdRng, drift_ppm: i64) -> Clock {
    let drift_ppm = rng.random_range(-drift_ppm..=drift_ppm);
    Clock::new(rng.random_range(1_000 * MS..100_000 * MS), drift_ppm)
}

/// All servers and the controller.
pub(crate) struct Store {
    settings: Settings,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) rings: Vec<KeyRing>,
    pub(crate) frozen_until_ns: Vec<u64>,
    /// When each server's timer is due, in the world's time.
    due_ns: Vec<u64>,
    pub(crate) controller: Option<Controller>,
    pub(crate) controller_ring: KeyRing,
    /// What the controller's database has.
    pub(crate) database: Views,
    deciding: Option<(u64, Views)>,
    decisions: u64,
    pub(crate) fast: FastPaths,
}

impl Store {
    pub(crate) fn new(program: &Program, rng: &mut StdRng, faults: &Faults) -> Store {
        let drift_ppm = faults.drift_ppm;
        let fast = program.kind.batches() && rng.random_bool(0.5);
        Store {
            settings: server_settings(program, faults),
            nodes: (0..SERVERS).map(|_| None).collect(),
            clocks: (0..SERVERS).map(|_| draw_clock(rng, drift_ppm)).collect(),
            rings: vec![ring(0); SERVERS],
            frozen_until_ns: vec![0; SERVERS],
            due_ns: vec![u64::MAX; SERVERS],
            controller: None,
            controller_ring: ring(0),
            database: Views::default(),
            deciding: None,
            decisions: 0,
            fast: FastPaths::new(fast, SERVERS),
        }
    }

    /// What the database has, and what is about to be in it.
    fn views(&self) -> impl Iterator<Item = &Views> {
        std::iter::once(&self.database).chain(self.deciding.iter().map(|(_, views)| views))
    }

    /// The replicas that the controller counts on: of each shard, those of its chain's members that
    /// live.
    pub(crate) fn members(&self, shard: u16) -> impl Iterator<Item = &Replica> {
        let view = self.database.shards.get(usize::from(shard));
        let members = view.map_or(&[][..], |view| &view.members).iter();
        members.filter_map(move |member| {
            self.nodes
                .iter()
                .flatten()
                .find(|node| node.me() == *member)
                .and_then(|node| node.replica(shard))
        })
    }

    /// Every replica of every server.
    pub(crate) fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.nodes.iter().flatten().flat_map(Node::replicas)
    }

    /// When a server's or the controller's timer is due.
    pub(crate) fn next_timer_ns(&self, now_ns: u64) -> u64 {
        let nodes =
            self.due_ns.iter().zip(&self.frozen_until_ns).map(|(due, frozen)| *due.max(frozen));
        let controller = self.controller.as_ref().map(Controller::next_deadline);
        nodes.chain(controller).min().unwrap_or(u64::MAX).max(now_ns + 1)
    }
}

impl World {
    /// Timers that are due go off.
    pub(crate) fn store_timers(&mut self) {
        for at in 0..SERVERS {
            let due = self.store.due_ns[at] <= self.now_ns;
            if due && self.now_ns >= self.store.frozen_until_ns[at] {
                self.serve(at, None);
            }
        }
        if self
            .store
            .controller
            .as_ref()
            .is_some_and(|controller| controller.next_deadline() <= self.now_ns)
        {
            self.decide(ControllerInput::Timer);
        }
    }

    /// A server's next life begins, without state.
    pub(crate) fn start_server(&mut self, at: usize) {
        if self.store.nodes[at].is_some() {
            return;
        }
        let now_ns = self.store.clocks[at].local(self.now_ns);
        // Ticks of the wall clock, which goes on while a server is down.
        let epoch_base = 1_000 + (self.now_ns / (250 * MS)) as u32;
        let start = Start {
            incarnation: self.rng.random::<u64>() | 1,
            epoch_base,
            seed: self.rng.random(),
            now_ns,
        };
        let controllers = vec![controller_address()];
        let keys = self.store.rings[at].clone();
        let mut node =
            Node::new(self.store.settings.clone(), start, keys, server_address(at), controllers);
        for object in &self.store.settings.objects {
            if matches!(object.allocator, AllocatorSettings::Backends(_)) {
                node.set_backends(object.id, backends());
            }
        }
        let (store, seed) = (&mut self.store, start.seed);
        store.fast.begin(at, &store.settings, seed, &mut node);
        store.nodes[at] = Some(node);
        self.store.frozen_until_ns[at] = 0;
        self.serve(at, None);
    }

    /// Kills a server, unless some shard's state would be gone with it: up to f servers of a chain
    /// may be lost, not all.
    pub(crate) fn kill_server(&mut self, at: usize, down_ns: u64) {
        if self.is_spare(at) {
            self.note(Machine::Server(at), "dies");
            self.store.nodes[at] = None;
            self.store.fast.end(at);
            self.store.due_ns[at] = u64::MAX;
            self.network.push(self.now_ns + down_ns, Event::Restart(at));
        }
    }

    /// Whether every shard has another member that is well.
    pub(crate) fn is_spare(&self, at: usize) -> bool {
        self.store.nodes[at].is_some() && self.survives_without(&[at])
    }

    /// Whether every shard has a member that is well beside these servers.
    pub(crate) fn survives_without(&self, lost: &[usize]) -> bool {
        let is_lost = |member: &Member| lost.iter().any(|at| server_address(*at) == member.address);
        let survives = |member: &Member| !is_lost(member) && self.is_well(member);
        self.store.views().all(|views| {
            views
                .shards
                .iter()
                .all(|shard| shard.members.is_empty() || shard.members.iter().any(survives))
        })
    }

    /// Whether all members of all chains are well.
    pub(crate) fn all_well(&self) -> bool {
        let mut members = self.store.database.shards.iter().flat_map(|view| &view.members);
        members.all(|member| self.is_well(member))
    }

    /// One that cannot be heard, or whose last reports got lost, may be about to lose its places,
    /// and its state with them ("The controller", 10: it counts as failed).
    fn is_well(&self, member: &Member) -> bool {
        let lives =
            |at: &usize| self.store.nodes[*at].as_ref().is_some_and(|node| node.me() == *member);
        (0..SERVERS).find(lives).is_some_and(|at| {
            let machine = Machine::Server(at);
            let touched = self.network.touches(machine, self.now_ns);
            !touched
                && self.is_heard(member)
                && self.now_ns >= self.store.frozen_until_ns[at]
                && !self.is_missed(member)
        })
    }

    /// Whether the controller, if it lives, has a report of this life of a server that is not
    /// older, and in which it hears others. What came and was overtaken by newer ones does not
    /// count.
    fn is_heard(&self, member: &Member) -> bool {
        let Some(controller) = &self.store.controller else { return true };
        controller.peers().any(|(address, seen)| {
            let heard = self.now_ns <= seen.heard_ns + HEARD_NS
                && seen.heard_ns <= seen.hearing_ns + HEARD_NS;
            *address == member.address && seen.incarnation == member.incarnation && heard
        })
    }

    /// Whether its predecessor in some chain misses it, or a report of that is on its way or is the
    /// newest that the controller has of one that it takes for alive: the end of a cut is not yet
    /// the end of the failure that it was.
    fn is_missed(&self, member: &Member) -> bool {
        let missed = (0..SERVERS).any(|at| self.missed_by(at).contains(member));
        missed
            || self
                .under_way()
                .any(|(from, report)| self.says_missed(&from, &report.replicas, member))
            || {
                let peers = self.store.controller.iter().flat_map(Controller::peers);
                let mut alive = peers.filter(|(_, seen)| self.now_ns <= seen.heard_ns + DEAD_NS);
                alive.any(|(address, seen)| {
                    self.says_missed(&seen.member(*address), seen.replicas.values(), member)
                })
            }
    }

    /// Servers' reports that the controller has not got yet.
    fn under_way(&self) -> impl Iterator<Item = (Member, Report)> {
        let reports =
            self.network.under_way().filter(|datagram| datagram.to == controller_address());
        reports.filter_map(|datagram| match Control::decode(&datagram.bytes) {
            Ok(Control::Report { incarnation, report, .. }) => {
                Some((Member { address: datagram.from, incarnation }, report))
            }
            _ => None,
        })
    }

    /// Whether a server says that it misses this one behind it in some chain.
    fn says_missed<'a>(
        &self,
        from: &Member,
        replicas: impl IntoIterator<Item = &'a ShardReport>,
        missed: &Member,
    ) -> bool {
        let follows = |shard: u16| {
            let mut views =
                self.store.views().filter_map(|views| views.shards.get(usize::from(shard)));
            views.any(|view| view.members.windows(2).any(|pair| pair == [*from, *missed]))
        };
        replicas.into_iter().any(|report| misses(report) && follows(report.shard))
    }

    /// Whom a server, if it lives, misses in its chains.
    fn missed_by(&self, at: usize) -> Vec<Member> {
        let Some(node) = &self.store.nodes[at] else { return Vec::new() };
        let now_ns = self.store.clocks[at].local(self.now_ns);
        let missed = node.replicas().filter_map(|replica| {
            let pair = replica.view().members.windows(2).find(|pair| pair[0] == node.me())?;
            misses(&replica.report(now_ns)).then_some(pair[1])
        });
        missed.collect()
    }

    /// The controller's next life begins with what its database has.
    pub(crate) fn start_controller(&mut self) {
        if self.store.controller.is_some() {
            return;
        }
        let settings = controller::core::Settings {
            shards: SHARDS,
            chain_length: 3,
            founding_servers: 3,
            dead_ns: DEAD_NS,
            join_timeout_ns: 1_000 * MS,
            most_joins: 2,
            reorder_after_ns: 300 * MS,
        };
        self.store.controller =
            Some(Controller::new(settings, self.store.database.clone(), true, self.now_ns));
        self.decide(ControllerInput::Timer);
    }

    pub(crate) fn kill_controller(&mut self, down_ns: u64) {
        if self.store.controller.take().is_none() {
            return;
        }
        self.note(Machine::Controller, "dies");
        // The write under way happens or not.
        let happens = self.rng.random_bool(0.5);
        if let Some((_, views)) = self.store.deciding.take().filter(|_| happens) {
            self.store.database = views;
        }
        self.network.push(self.now_ns + down_ns, Event::RestartController);
    }

    /// The controller's database has written a decision.
    pub(crate) fn written(&mut self, number: u64) {
        if self.store.deciding.as_ref().is_some_and(|(deciding, _)| *deciding == number)
            && let Some((_, views)) = self.store.deciding.take()
        {
            self.store.database = views;
            self.check_kept();
            self.decide(ControllerInput::Persisted);
        }
    }

    /// The controller takes an input.
    pub(crate) fn decide(&mut self, input: ControllerInput<'_>) {
        let Some(controller) = &mut self.store.controller else { return };
        let mut out = ControllerOutputs::default();
        controller.handle(self.now_ns, input, &mut out);
        for event in out.events {
            if let Decision::Decided { shard, view, why } = event {
                let places: Vec<String> =
                    view.members.iter().map(|member| server_name(member.address)).collect();
                let joining = view
                    .joining
                    .map(|joining| format!(" + {}", server_name(joining.member.address)));
                let joining = joining.unwrap_or_default();
                let (number, places) = (view.number, places.join(" "));
                self.note(
                    Machine::Controller,
                    &format!("{why:?}: shard {shard} view {number}: {places}{joining}"),
                );
                if why == Why::StateLost {
                    self.violated(
                        "durability",
                        format!("shard {shard} is founded anew, with members alive"),
                    );
                }
            }
        }
        if let Some(views) = out.persist {
            self.store.decisions += 1;
            self.store.deciding = Some((self.store.decisions, views));
            let delay_ns = self.rng.random_range(0..20 * MS);
            self.network.push(self.now_ns + delay_ns, Event::Written(self.store.decisions));
        }
        let from = controller_address();
        for (to, mut bytes) in out.datagrams {
            self.store.controller_ring.sign(&mut bytes, *from.ip(), *to.ip());
            self.send(Machine::Controller, Datagram { from, to, bytes });
        }
    }

    /// A server takes a datagram, or its timer goes off.
    pub(crate) fn serve(&mut self, at: usize, datagram: Option<(SocketAddrV4, Vec<u8>)>) {
        let local = self.store.clocks[at].local(self.now_ns);
        let Some(node) = &mut self.store.nodes[at] else { return };
        let mut out = Outputs::new();
        match &datagram {
            Some((from, bytes)) => {
                node.handle(local, Input::Datagram { from: *from, bytes }, &mut out)
            }
            None => node.handle(local, Input::Timer, &mut out),
        }
        node.flush(local, &mut out);
        let due = node.next_deadline();
        self.store.due_ns[at] = due.map_or(u64::MAX, |due| self.store.clocks[at].time(due));
        for event in &out.events {
            if let state_store::core::Event::Broken(reason) = event {
                self.violated("chain", format!("server {at}: {}", reason.describe()));
            }
        }
        let from = server_address(at);
        let sent: Vec<Datagram> = out
            .datagrams()
            .map(|(to, bytes)| Datagram { from, to, bytes: bytes.to_vec() })
            .collect();
        if !sent.is_empty() {
            self.store.take_changes();
        }
        for datagram in sent {
            self.check_reply(at, &datagram.bytes);
            self.send(Machine::Server(at), datagram);
        }
    }
}

/// Whether a member has not heard from the one behind it for long, or waits for its confirmation.
fn misses(report: &ShardReport) -> bool {
    u64::from(report.unreachable_ms.max(report.stalled_ms)) * MS >= HEARD_NS
}

/// As charts call it.
pub(crate) fn server_name(address: SocketAddrV4) -> String {
    format!("n{}", address.ip().octets()[3])
}

fn objects(program: &Program) -> Vec<ObjectSettings> {
    let settings = |flow: &FlowState| ObjectSettings {
        name: flow.object.name.clone(),
        id: flow.object.id,
        key_bytes: flow.object.key_bytes as usize,
        value_bytes: flow.value_bytes as usize,
        allocator: allocator(flow.settings.allocator),
        closed_ns: 10_000 * MS,
        half_open_ns: 10_000 * MS,
        shard_bytes: flow.settings.shard_bytes.map(|bytes| bytes as usize),
    };
    let snapshots = |snapshot: &SnapshotState| ObjectSettings {
        name: snapshot.object.name.clone(),
        id: snapshot.object.id,
        key_bytes: snapshot.object.key_bytes as usize,
        value_bytes: SNAPSHOT_VALUE_BYTES,
        allocator: AllocatorSettings::Snapshot {
            slots: snapshot.slots as usize,
            slot_bytes: snapshot.slot_bytes as usize,
            idle_ns: None,
            merge: MergeSettings::of(snapshot),
        },
        closed_ns: 10_000 * MS,
        half_open_ns: 10_000 * MS,
        shard_bytes: None,
    };
    program.flows.iter().map(settings).chain(program.snapshots.iter().map(snapshots)).collect()
}

/// What gives an object's first values.
fn allocator(allocator: Allocator) -> AllocatorSettings {
    let idle_ns = IdleNs { tcp: IDLE_NS, udp: IDLE_NS, icmp: IDLE_NS, other: IDLE_NS };
    match allocator {
        Allocator::NatPorts => AllocatorSettings::NatPorts(NatSettings {
            external: vec![EXTERNAL],
            ports: NAT_PORTS,
            idle_ns,
        }),
        Allocator::Backends => AllocatorSettings::Backends(BackendSettings {
            policy: BackendPolicy::LeastConnections,
            idle_ns,
        }),
        Allocator::Zero => AllocatorSettings::Zero { idle_ns: None },
    }
}

fn server_settings(program: &Program, faults: &Faults) -> Settings {
    Settings {
        shard: 0,
        shards: SHARDS,
        lease_us: LEASE_US,
        clock_drift_ppm: faults.drift_bound_ppm,
        lease_margin_us: (faults.margin_ns / 1000) as u32,
        hold_ns: 200 * MS,
        tenure_ns: 4 * MS,
        recall_resend_ns: 5 * MS,
        resend_ns: 4 * MS,
        chain_datagram_bytes: 1400,
        limits: Limits {
            records: 10_000,
            sessions: 64,
            held: 1000,
            held_per_flow: 64,
            held_bytes: 1 << 20,
            unacked: 10_000,
            unacked_bytes: 16 << 20,
        },
        objects: objects(program),
    }
}
