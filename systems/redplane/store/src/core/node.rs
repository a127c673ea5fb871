//! A server process: a replica of each shard in whose chain it is, the newest views, and the
//! reports to the controllers.

use super::backends::{Backend, Backends, Health};
use super::door::Door;
use super::{
    AllocatorSettings, Event, Input, Outputs, Records, Replica, Restored, Settings, Start,
};
use chain::{Item, RestoredReplica};
use state_protocol::{Kind, Message, MessageType};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use wire::{Control, KeyRing, Malformed, Member, NotGenuine, Report, Reporter, ShardView, Views};

/// How often controllers hear from a server.
const REPORT_NS: u64 = 50_000_000;
/// A controller that answered not longer ago than this is running.
const CONTROLLER_RUNS_NS: u64 = 2_000_000_000;
const SHARD_AT: usize = 52;

/// A server process.
pub struct Node {
    settings: Settings,
    start: Start,
    me: Member,
    door: Door,
    controllers: Vec<SocketAddrV4>,
    /// When each of them last answered a report or sent views; 0: never.
    controllers_heard_ns: Vec<u64>,
    /// What it tells controllers that it dies with.
    machine: String,
    views: Views,
    pub(super) replicas: Vec<Option<Box<Replica>>>,
    /// By object: which backends the operator wants, for replicas that are yet to come too.
    backends: BTreeMap<u16, Arc<Backends>>,
    /// By shard: when its timer is due; `u64::MAX`: not at all.
    deadlines: Vec<u64>,
    /// Shards that had input since the last `flush`.
    touched: Vec<u16>,
    report_at_ns: u64,
    /// Everything that matters is written down.
    journaling: bool,
    /// How often something was given to be made durable.
    ticket: u64,
    /// What was read from the journal and is in no view yet.
    restored: Vec<Option<RestoredReplica<Records>>>,
    /// When anybody was last heard of.
    heard_ns: u64,
    pub(super) counters: super::Counters,
}

impl Node {
    /// A server at `listen` without state and without views.
    pub fn new(
        settings: Settings,
        start: Start,
        keys: KeyRing,
        listen: SocketAddrV4,
        controllers: Vec<SocketAddrV4>,
    ) -> Node {
        let shards = usize::from(settings.shards);
        Node {
            me: Member { address: listen, incarnation: start.incarnation },
            door: Door::new(keys, *listen.ip()),
            controllers_heard_ns: vec![0; controllers.len()],
            controllers,
            machine: String::new(),
            views: Views::default(),
            replicas: (0..shards).map(|_| None).collect(),
            backends: BTreeMap::new(),
            deadlines: vec![u64::MAX; shards],
            touched: Vec::new(),
            report_at_ns: start.now_ns,
            journaling: false,
            ticket: 0,
            restored: Vec::new(),
            heard_ns: start.now_ns,
            counters: super::Counters::default(),
            settings,
            start,
        }
    }

    /// Writes down everything that matters from here on, and goes on with what was written down
    /// before; the incarnation must be the one that wrote it. To be called before any input.
    pub fn keep_journal(&mut self, now_ns: u64, restored: Option<Restored>, out: &mut Outputs) {
        self.journaling = true;
        if let Some(restored) = restored {
            let (views, replicas) = restored.into_parts();
            self.restored = replicas;
            self.adopt(now_ns, &views, out);
            // Those of shards that it had left.
            self.restored = Vec::new();
        }
    }

    /// Everything up to `ticket` is durable.
    pub fn durable(&mut self, ticket: u64, out: &mut Outputs) {
        for shard in 0..self.settings.shards {
            let replica = &mut self.replicas[usize::from(shard)];
            if replica.as_mut().is_some_and(|replica| replica.chain.became_durable(ticket, out)) {
                self.touch(shard);
            }
        }
    }

    /// Entries that are applied here and not yet durable.
    pub fn not_durable(&self) -> u64 {
        self.replicas().map(|replica| replica.chain.not_durable()).sum()
    }

    /// Writes down the views anew: what was written of them before can go.
    pub fn checkpoint_views(&mut self, out: &mut Outputs) {
        self.journal_views(out);
    }

    /// Writes down a shard's replica anew: what was written of it before can go.
    pub fn checkpoint(&mut self, shard: u16) {
        if let Some(Some(replica)) = self.replicas.get_mut(usize::from(shard)) {
            replica.chain.checkpoint();
            self.touch(shard);
        }
    }

    fn journal_views(&self, out: &mut Outputs) {
        // Fits, as in the controller that sent them.
        if let Ok(bytes) = Control::Views(self.views.clone()).encode() {
            Item::Views(&bytes).append_to(&mut out.journal);
        }
    }

    /// Takes one input at `now_ns`, which must be read after the datagram was received: leases
    /// count from it. What it causes is in `out`, complete after the next `flush`.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>, out: &mut Outputs) {
        match input {
            Input::Datagram { from, bytes } => self.datagram(now_ns, from, bytes, out),
            Input::Timer => self.timer(now_ns, out),
        }
    }

    fn datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        match self.door.check(from, bytes) {
            Ok(()) => self.heard_ns = now_ns,
            Err(NotGenuine::NoTag) => {
                let reason = state_protocol::kind(bytes).err().unwrap_or(Malformed::TooShort);
                return self.counters.count_malformed(reason);
            }
            Err(_) => {
                self.counters.bad_tag += 1;
                return;
            }
        }
        match state_protocol::kind(bytes) {
            Ok(Kind::Message(MessageType::StatusRequest)) => {
                self.answer_status(now_ns, from, bytes, out)
            }
            Ok(Kind::Message(MessageType::StateRequest)) => self.answer_state(from, bytes, out),
            Ok(Kind::Control(_)) => self.control(now_ns, from, bytes, out),
            Ok(Kind::Message(_) | Kind::Chain(_)) => {
                let shard =
                    bytes.get(SHARD_AT..SHARD_AT + 2).and_then(|bytes| bytes.try_into().ok());
                let shard = u16::from_be_bytes(shard.unwrap_or([0xff; 2]));
                match self.replicas.get_mut(usize::from(shard)).and_then(Option::as_mut) {
                    Some(replica) => {
                        replica.handle(now_ns, Input::Datagram { from, bytes }, out);
                        self.touch(shard);
                    }
                    None => self.counters.dropped_not_head += 1,
                }
            }
            Err(reason) => self.counters.count_malformed(reason),
        }
    }

    fn control(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let controller = self.controllers.iter().position(|known| *known == from);
        let control = Control::decode(bytes);
        if let (Some(at), Ok(Control::Heard | Control::Views(_))) = (controller, &control) {
            self.controllers_heard_ns[at] = now_ns;
        }
        match control {
            Ok(Control::Views(views)) if views.version <= self.views.version => {
                self.counters.views_old += 1
            }
            Ok(Control::Views(views)) => self.adopt(now_ns, &views, out),
            Ok(Control::Heard) => {}
            Ok(Control::ViewsWanted) => match controller {
                Some(at) => self.give_views(now_ns, at, out),
                None => self.counters.dropped_wrong_direction += 1,
            },
            Ok(Control::Report { .. }) => self.counters.dropped_wrong_direction += 1,
            Err(reason) => self.counters.count_malformed(reason),
        }
    }

    /// Gives the newest views to a controller that lost its own. Not while another one runs: with
    /// its views a second one would decide beside it.
    fn give_views(&mut self, now_ns: u64, to: usize, out: &mut Outputs) {
        let runs = |(at, heard_ns): (usize, &u64)| {
            at != to && *heard_ns != 0 && now_ns < heard_ns + CONTROLLER_RUNS_NS
        };
        if self.controllers_heard_ns.iter().enumerate().any(runs) {
            self.counters.views_kept += 1;
            return;
        }
        // Fits, as in the controller that sent them.
        if let Ok(bytes) = Control::Views(self.views.clone()).encode() {
            out.push(self.controllers[to], &bytes);
        }
    }

    fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        for shard in 0..self.settings.shards {
            if self.deadlines[usize::from(shard)] <= now_ns {
                if let Some(replica) = &mut self.replicas[usize::from(shard)] {
                    replica.handle(now_ns, Input::Timer, out);
                }
                self.touch(shard);
            }
        }
        if self.report_at_ns <= now_ns {
            self.report(now_ns, out);
        }
    }

    fn touch(&mut self, shard: u16) {
        if self.touched.last() != Some(&shard) {
            self.touched.push(shard);
        }
    }

    /// Ends a batch of inputs: entries for successors and acknowledgements for predecessors are
    /// gathered until here, and all that goes out is signed.
    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) {
        self.touched.sort_unstable();
        self.touched.dedup();
        let ticket = self.ticket + 1;
        for shard in self.touched.drain(..) {
            let replica = &mut self.replicas[usize::from(shard)];
            self.deadlines[usize::from(shard)] = match replica {
                Some(replica) => {
                    replica.flush(now_ns, out);
                    replica.chain.drain_journal(ticket, out);
                    replica.next_deadline().unwrap_or(u64::MAX)
                }
                None => u64::MAX,
            };
        }
        if !out.journal.is_empty() {
            (self.ticket, out.ticket) = (ticket, ticket);
        }
        self.door.seal(out);
    }

    /// What this server dies with, as controllers are told from now on: no chain gets two servers
    /// of one machine.
    pub fn set_machine(&mut self, machine: String) {
        self.machine = machine;
    }

    /// Other secrets from now on.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.door.set_keys(keys);
    }

    /// The backends of the object with that number from now on, in all shards; `false`: it is no
    /// object with backends. Every server is to be told: heads choose, and each may become one.
    /// What is known of their health stays.
    pub fn set_backends(&mut self, object_id: u16, mut backends: Vec<Backend>) -> bool {
        let policy = self.settings.objects.iter().find_map(|object| match &object.allocator {
            AllocatorSettings::Backends(settings) if object.id == object_id => {
                Some(settings.policy)
            }
            _ => None,
        });
        let Some(policy) = policy else { return false };
        for backend in &mut backends {
            let known =
                self.backends(object_id).iter().find(|known| known.address == backend.address);
            backend.health = known.map_or(backend.health, |known| known.health);
        }
        self.share_backends(object_id, Backends::new(policy, backends));
        true
    }

    /// What checks say of backends' health from now on: object, backend and health, oldest first.
    /// Whatever is known is to be given at once: each call makes the tables of the objects that it
    /// changes anew, and a rack that fails takes many backends with it.
    pub fn set_health(&mut self, changes: impl IntoIterator<Item = (u16, SocketAddrV4, Health)>) {
        let mut changed: BTreeMap<u16, Vec<Backend>> = BTreeMap::new();
        for (object_id, address, health) in changes {
            let list =
                changed.entry(object_id).or_insert_with(|| self.backends(object_id).to_vec());
            if let Some(backend) = list.iter_mut().find(|backend| backend.address == address) {
                backend.health = health;
            }
        }
        for (object_id, list) in changed {
            let Some(known) = self.backends.get(&object_id).filter(|known| known.list() != list)
            else {
                continue;
            };
            let backends = Backends::new(known.policy(), list);
            self.share_backends(object_id, backends);
        }
    }

    fn share_backends(&mut self, object_id: u16, backends: Backends) {
        let backends = Arc::new(backends);
        for shard in 0..self.settings.shards {
            let replica = self.replicas[usize::from(shard)].as_mut();
            if replica.is_some_and(|replica| replica.set_backends(object_id, &backends)) {
                self.touch(shard);
            }
        }
        self.backends.insert(object_id, backends);
    }

    /// The backends of an object, as they were last set.
    pub(super) fn backends(&self, object_id: u16) -> &[Backend] {
        self.backends.get(&object_id).map_or(&[], |backends| backends.list())
    }

    /// When `Input::Timer` is due, in ns; `None`: not before another input.
    pub fn next_deadline(&self) -> Option<u64> {
        let report = if self.controllers.is_empty() { u64::MAX } else { self.report_at_ns };
        self.deadlines.iter().copied().min().map(|at| at.min(report)).filter(|at| *at != u64::MAX)
    }

    /// Takes the controller's views, if they are newer: creates replicas, changes their places,
    /// drops those of chains that this server left.
    pub fn adopt(&mut self, now_ns: u64, views: &Views, out: &mut Outputs) {
        if views.version <= self.views.version {
            return;
        }
        if views.shards.len() != self.replicas.len() {
            out.events.push(Event::ShardsMismatch {
                views: views.shards.len(),
                own: self.settings.shards,
            });
            return;
        }
        self.views = views.clone();
        if self.journaling {
            // Durable before anything is done in them: after a power cut this server is in no
            // earlier views.
            self.journal_views(out);
            out.barrier = true;
        }
        for (shard, view) in (0u16..).zip(&views.shards) {
            self.adopt_shard(now_ns, shard, view, out);
        }
        // The controller waits for it.
        self.report_at_ns = now_ns;
    }

    fn adopt_shard(&mut self, now_ns: u64, shard: u16, view: &ShardView, out: &mut Outputs) {
        let place = &mut self.replicas[usize::from(shard)];
        let joining = view.joining.map(|joining| joining.member);
        if !view.members.contains(&self.me) && joining != Some(self.me) {
            if let Some(left) = place.take() {
                self.counters.add(&left.counters());
                if self.journaling {
                    Item::Left { shard }.append_to(&mut out.journal);
                }
                out.events.push(Event::Left { shard });
                self.touch(shard);
            }
            return;
        }
        if place.as_ref().is_some_and(|replica| replica.view().founded != view.founded) {
            // Its state is of a chain that is lost.
            if let Some(lost) = place.take() {
                self.counters.add(&lost.counters());
            }
        }
        let restored = self.restored.get_mut(usize::from(shard)).and_then(Option::take);
        let restored = restored.filter(|restored| restored.founded == view.founded);
        let since = view.joining.map(|joining| joining.since).filter(|_| joining == Some(self.me));
        let cut_short = restored
            .as_ref()
            .is_some_and(|restored| !restored.whole && since == Some(restored.since));
        let replica = place.get_or_insert_with(|| {
            let settings = Settings { shard, ..self.settings.clone() };
            let mut replica = Box::new(Replica::new(settings, self.start, self.me, now_ns));
            if self.journaling {
                replica.chain.keep_journal();
            }
            if let Some(restored) = restored.filter(|restored| restored.whole) {
                replica.chain.restore(restored);
            }
            for (object_id, backends) in &self.backends {
                replica.set_backends(*object_id, backends);
            }
            replica
        });
        replica.adopt(now_ns, view, out);
        if cut_short {
            replica.chain.give_up_joining();
        }
        self.touch(shard);
    }

    /// Tells all controllers how this server is.
    fn report(&mut self, now_ns: u64, out: &mut Outputs) {
        self.report_at_ns = now_ns + REPORT_NS;
        if self.controllers.is_empty() {
            return;
        }
        let replicas =
            self.replicas.iter().flatten().map(|replica| replica.report(now_ns)).collect();
        let (version, shards) = (self.views.version, self.settings.shards);
        let heard_ms =
            u32::try_from(now_ns.saturating_sub(self.heard_ns) / 1_000_000).unwrap_or(u32::MAX);
        let machine = self.machine.clone();
        let report = Report {
            reporter: Reporter::Server,
            version,
            shards,
            heard_ms,
            machine,
            replicas,
            load: None,
        };
        let control = Control::Report { sent_ns: now_ns, incarnation: self.me.incarnation, report };
        // Always fits: a row has less than 100 characters, and there are 256 at most.
        if let Ok(bytes) = control.encode() {
            for controller in &self.controllers {
                out.push(*controller, &bytes);
            }
        }
    }

    /// This life of this server.
    pub fn me(&self) -> Member {
        self.me
    }

    /// The newest views.
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// The replica of a shard, if this server is in its chain.
    pub fn replica(&self, shard: u16) -> Option<&Replica> {
        self.replicas.get(usize::from(shard))?.as_deref()
    }

    /// All replicas.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.iter().filter_map(Option::as_deref)
    }

    /// What this server counted, all shards together.
    pub fn counters(&self) -> super::Counters {
        let mut sum = self.counters.clone();
        self.replicas().for_each(|replica| sum.add(&replica.counters()));
        sum
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn started_ns(&self) -> u64 {
        self.start.now_ns
    }

    fn answer_status(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let request = match Message::decode(bytes) {
            Ok(request) => request,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        self.counters.status_requests += 1;
        let json = self.status(now_ns).into_json();
        let reply = Message { message_type: MessageType::StatusReply, packet: &json, ..request };
        let mut encoded = Vec::new();
        // Cannot fail: what it carries beside the JSON was decoded, and the JSON is within bounds.
        if reply.append_to(&mut encoded).is_ok() {
            out.push(from, &encoded);
        }
    }
}
