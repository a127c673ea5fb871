//! A server process: a replica of each shard in whose chain it is, the newest views, and the
//! reports to the controllers.

use crate::door::Door;
use crate::journal::{Item, Restored, RestoredReplica};
use crate::{Event, Outputs, Replica, StateMachine};
use std::net::SocketAddrV4;
use wire::{
    Control, KeyRing, Kind, Malformed, Member, NotGenuine, Report, Reporter, ShardView, Views,
};

/// How often controllers hear from a server.
const REPORT_NS: u64 = 50_000_000;
/// A controller that answered not longer ago than this is running.
const CONTROLLER_RUNS_NS: u64 = 2_000_000_000;
/// Where messages name their shard.
const SHARD_AT: usize = 52;

/// What a server keeps of one shard: a replica, and the system's rules around it.
pub trait Shard {
    /// What the shard's chain replicates.
    type State: StateMachine;

    /// The replica.
    fn chain(&self) -> &Replica<Self::State>;

    /// The same.
    fn chain_mut(&mut self) -> &mut Replica<Self::State>;

    /// Takes a newer view of the shard. The caller has seen that this server is in it.
    fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs);

    /// Takes a genuine message that is neither a chain's nor a controller's.
    fn request(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs);

    /// `next_deadline` has passed.
    fn timer(&mut self, now_ns: u64, out: &mut Outputs);

    /// When `timer` is due, in ns; `None`: not before another input.
    fn next_deadline(&self) -> Option<u64>;

    /// The node is about to use the shard, if it has not done so since `leave`. What others may
    /// have changed meanwhile is to be taken over.
    fn enter(&mut self) {}

    /// The node has ended a batch of inputs.
    fn leave(&mut self) {}
}

/// What makes a server's shards, and what stays of them.
pub trait System {
    /// A shard of the system.
    type Shard: Shard;

    /// A shard whose replica has no state and is in no view.
    fn begin(&mut self, now_ns: u64, shard: u16) -> Self::Shard;

    /// The server left the shard's chain, or that is lost: its state is of no use any more.
    fn end(&mut self, shard: Self::Shard);
}

/// What a server counts beside its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeCounters {
    /// Messages dropped because this server has no replica of their shard.
    pub no_replica: u64,
    /// Messages of controllers dropped because their type does not belong here.
    pub wrong_direction: u64,
    /// Views dropped because they are no newer than those that are here.
    pub views_old: u64,
    /// Times a controller wanted the views and did not get them, because another controller runs.
    pub views_kept: u64,
    /// Messages dropped as malformed, by reason, in the order of `Malformed::ALL`.
    pub malformed: [u64; Malformed::ALL.len()],
}

/// What `Node` is built from.
#[derive(Debug, Clone, Copy)]
pub struct NodeSettings {
    /// How many shards the cluster has.
    pub shards: u16,
    /// Where this server receives and sends, and which life of it this is.
    pub me: Member,
    /// The clock at start, in ns.
    pub now_ns: u64,
}

/// A server process.
pub struct Node<Y: System> {
    system: Y,
    me: Member,
    door: Door,
    controllers: Vec<SocketAddrV4>,
    /// When each of them last answered a report or sent views; 0: never.
    controllers_heard_ns: Vec<u64>,
    /// What it tells controllers that it dies with.
    machine: String,
    views: Views,
    replicas: Vec<Option<Box<Y::Shard>>>,
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
    restored: Vec<Option<RestoredReplica<<Y::Shard as Shard>::State>>>,
    /// When anybody was last heard of.
    heard_ns: u64,
    counters: NodeCounters,
}

impl<Y: System> Node<Y> {
    /// A server without state and without views.
    pub fn new(
        system: Y,
        settings: NodeSettings,
        keys: KeyRing,
        controllers: Vec<SocketAddrV4>,
    ) -> Node<Y> {
        let NodeSettings { shards, me, now_ns } = settings;
        let shards = usize::from(shards);
        Node {
            system,
            me,
            door: Door::new(keys, *me.address.ip()),
            controllers_heard_ns: vec![0; controllers.len()],
            controllers,
            machine: String::new(),
            views: Views::default(),
            replicas: (0..shards).map(|_| None).collect(),
            deadlines: vec![u64::MAX; shards],
            touched: Vec::new(),
            report_at_ns: now_ns,
            journaling: false,
            ticket: 0,
            restored: Vec::new(),
            heard_ns: now_ns,
            counters: NodeCounters::default(),
        }
    }

    /// Writes down everything that matters from here on, and goes on with what was written down
    /// before; the incarnation must be the one that wrote it. To be called before any input.
    pub fn keep_journal(
        &mut self,
        now_ns: u64,
        restored: Option<Restored<<Y::Shard as Shard>::State>>,
        out: &mut Outputs,
    ) {
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
        for shard in 0..self.shards() {
            let replica = &mut self.replicas[usize::from(shard)];
            if replica
                .as_mut()
                .is_some_and(|replica| replica.chain_mut().became_durable(ticket, out))
            {
                self.touch(shard);
            }
        }
    }

    /// Entries that are applied here and not yet durable.
    pub fn not_durable(&self) -> u64 {
        self.replicas().map(|replica| replica.chain().not_durable()).sum()
    }

    /// Writes down the views anew: what was written of them before can go.
    pub fn checkpoint_views(&mut self, out: &mut Outputs) {
        self.journal_views(out);
    }

    /// Writes down a shard's replica anew: what was written of it before can go.
    pub fn checkpoint(&mut self, shard: u16) {
        if let Some(replica) = self.replica_mut(shard) {
            replica.chain_mut().checkpoint();
        }
    }

    fn journal_views(&self, out: &mut Outputs) {
        // Fits, as in the controller that sent them.
        if let Ok(bytes) = Control::Views(self.views.clone()).encode() {
            Item::Views(&bytes).append_to(&mut out.journal);
        }
    }

    /// Whether a datagram is genuine: then its sender was heard of. Nothing else is to be taken.
    pub fn admit(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        bytes: &[u8],
    ) -> Result<(), NotGenuine> {
        self.door.check(from, bytes)?;
        self.heard_ns = now_ns;
        Ok(())
    }

    /// Takes a datagram that was admitted at `now_ns`, which must be read after it was received:
    /// leases count from it. What it causes is in `out`, complete after the next `flush`.
    pub fn datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let kind = match wire::kind(bytes) {
            Ok(Kind::Control(_)) => return self.control(now_ns, from, bytes, out),
            Ok(kind) => kind,
            Err(reason) => return self.count_malformed(reason),
        };
        let shard = bytes.get(SHARD_AT..SHARD_AT + 2).and_then(|bytes| bytes.try_into().ok());
        let shard = u16::from_be_bytes(shard.unwrap_or([0xff; 2]));
        let Some(replica) = self.replica_mut(shard) else {
            self.counters.no_replica += 1;
            return;
        };
        match kind {
            Kind::Chain(_) => replica.chain_mut().message(now_ns, from, bytes, out),
            _ => replica.request(now_ns, from, bytes, out),
        }
    }

    fn count_malformed(&mut self, reason: Malformed) {
        if let Some(at) = Malformed::ALL.iter().position(|candidate| *candidate == reason) {
            self.counters.malformed[at] += 1;
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
                None => self.counters.wrong_direction += 1,
            },
            Ok(Control::Report { .. } | Control::Refused { .. } | Control::OtherSecrets) => {
                self.counters.wrong_direction += 1
            }
            Err(reason) => self.count_malformed(reason),
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

    /// `next_deadline` has passed.
    pub fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        for shard in 0..self.shards() {
            if self.deadlines[usize::from(shard)] <= now_ns {
                match self.replica_mut(shard) {
                    Some(replica) => replica.timer(now_ns, out),
                    None => self.touch(shard),
                }
            }
        }
        if self.report_at_ns <= now_ns {
            self.report(now_ns, out);
        }
    }

    /// Something happened to a shard from outside: it is looked at by the next `flush`.
    pub fn touch(&mut self, shard: u16) {
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
                    replica.chain_mut().flush(now_ns, out);
                    replica.chain_mut().drain_journal(ticket, out);
                    replica.leave();
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

    /// The secrets.
    pub fn keys(&self) -> &KeyRing {
        self.door.keys()
    }

    /// Other secrets from now on.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.door.set_keys(keys);
    }

    /// When `timer` is due, in ns; `None`: not before another input.
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
            out.events
                .push(Event::ShardsMismatch { views: views.shards.len(), own: self.shards() });
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
                self.system.end(*left);
                if self.journaling {
                    Item::Left { shard }.append_to(&mut out.journal);
                }
                out.events.push(Event::Left { shard });
                self.touch(shard);
            }
            return;
        }
        // Its state is of a chain that is lost.
        let lost = place.take_if(|replica| replica.chain().view().founded != view.founded);
        if let Some(lost) = lost {
            self.system.end(*lost);
        }
        let restored = self.restored.get_mut(usize::from(shard)).and_then(Option::take);
        let restored = restored.filter(|restored| restored.founded == view.founded);
        let since = view.joining.map(|joining| joining.since).filter(|_| joining == Some(self.me));
        let cut_short = restored
            .as_ref()
            .is_some_and(|restored| !restored.synced && since == Some(restored.since));
        let replica = place.get_or_insert_with(|| {
            let mut replica = Box::new(self.system.begin(now_ns, shard));
            if self.journaling {
                replica.chain_mut().keep_journal();
            }
            if let Some(restored) = restored.filter(|restored| restored.synced) {
                replica.chain_mut().restore(restored);
            }
            replica
        });
        replica.enter();
        replica.adopt(now_ns, view, out);
        if cut_short {
            replica.chain_mut().give_up_joining();
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
            self.replicas.iter().flatten().map(|replica| replica.chain().report(now_ns)).collect();
        let (version, shards) = (self.views.version, self.shards());
        let heard_ms =
            u32::try_from(now_ns.saturating_sub(self.heard_ns) / 1_000_000).unwrap_or(u32::MAX);
        let machine = self.machine.clone();
        let report = Report {
            reporter: Reporter::Server,
            version,
            shards,
            heard_ms,
            accepted: false,
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
    pub fn replica(&self, shard: u16) -> Option<&Y::Shard> {
        self.replicas.get(usize::from(shard))?.as_deref()
    }

    /// All replicas.
    pub fn replicas(&self) -> impl Iterator<Item = &Y::Shard> {
        self.replicas.iter().filter_map(Option::as_deref)
    }

    /// The same, to change it: the next `flush` looks at it.
    pub fn replica_mut(&mut self, shard: u16) -> Option<&mut Y::Shard> {
        self.replicas.get(usize::from(shard))?.as_ref()?;
        self.touch(shard);
        let replica = self.replicas.get_mut(usize::from(shard))?.as_deref_mut()?;
        replica.enter();
        Some(replica)
    }

    /// Takes over what others changed in all replicas: what is read then, before the next `flush`
    /// or `leave_all`, is the newest.
    pub fn enter_all(&mut self) {
        (0..self.shards()).for_each(|shard| {
            self.replica_mut(shard);
        });
    }

    /// Ends what `enter_all` began.
    pub fn leave_all(&mut self) {
        self.replicas.iter_mut().flatten().for_each(|replica| replica.leave());
    }

    /// The system.
    pub fn system(&self) -> &Y {
        &self.system
    }

    /// The same, to change what the operator decides.
    pub fn system_mut(&mut self) -> &mut Y {
        &mut self.system
    }

    /// What this server counted beside its replicas.
    pub fn counters(&self) -> &NodeCounters {
        &self.counters
    }

    fn shards(&self) -> u16 {
        self.replicas.len() as u16 // as `new` was told
    }
}
