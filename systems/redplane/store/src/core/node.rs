//! A server process: what the store has beside its replicas, and how it makes them.

use super::backends::{Backend, Backends, Health};
use super::{AllocatorSettings, Counters, Input, Outputs, Replica, Restored, Settings, Start};
use chain::{NodeSettings, System};
use fast_chain::Memory;
use state_protocol::{Kind, Message, MessageType};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use wire::{KeyRing, Malformed, Member, NotGenuine, Views};

/// What replicas are made from.
pub(super) struct Store {
    settings: Settings,
    start: Start,
    me: Member,
    /// By object: which backends the operator wants.
    backends: BTreeMap<u16, Arc<Backends>>,
    /// What it shares with the fast path's program.
    memory: Option<Arc<Memory>>,
    /// What was counted beside the replicas that there are.
    pub(super) counters: Counters,
}

impl System for Store {
    type Shard = Replica;

    fn begin(&mut self, now_ns: u64, shard: u16) -> Replica {
        let settings = Settings { shard, ..self.settings.clone() };
        let mut replica = Replica::new(settings, self.start, self.me, now_ns);
        for (object_id, backends) in &self.backends {
            replica.set_backends(*object_id, backends);
        }
        if let Some(memory) = &self.memory {
            replica.use_fast_path(memory);
        }
        replica
    }

    fn end(&mut self, replica: Replica) {
        self.counters.add(&replica.counters());
    }
}

/// A server process.
pub struct Node {
    pub(super) process: chain::Node<Store>,
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
        let me = Member { address: listen, incarnation: start.incarnation };
        let process = NodeSettings { shards: settings.shards, me, now_ns: start.now_ns };
        let (backends, counters) = (BTreeMap::new(), Counters::default());
        let store = Store { settings, start, me, backends, memory: None, counters };
        Node { process: chain::Node::new(store, process, keys, controllers) }
    }

    /// Writes down everything that matters from here on, and goes on with what was written down
    /// before; the incarnation must be the one that wrote it. To be called before any input.
    pub fn keep_journal(&mut self, now_ns: u64, restored: Option<Restored>, out: &mut Outputs) {
        self.process.keep_journal(now_ns, restored, out);
        // What was restored knows of none.
        for (object_id, backends) in self.store().backends.clone() {
            self.share_backends(object_id, backends);
        }
    }

    /// Shares its records with the fast path's program on this host, whose memory this is
    /// ([`Settings::fast_path`]). To be called before any input.
    pub fn use_fast_path(&mut self, memory: Arc<Memory>) {
        memory.set_keys(self.process.keys());
        self.process.system_mut().memory = Some(memory);
    }

    /// Takes over what the program changed: the records are the newest then.
    pub fn take_changes(&mut self) {
        self.process.enter_all();
        self.process.leave_all();
    }

    /// Everything up to `ticket` is durable.
    pub fn durable(&mut self, ticket: u64, out: &mut Outputs) {
        self.process.durable(ticket, out);
    }

    /// Entries that are applied here and not yet durable.
    pub fn not_durable(&self) -> u64 {
        self.process.not_durable()
    }

    /// Writes down the views anew: what was written of them before can go.
    pub fn checkpoint_views(&mut self, out: &mut Outputs) {
        self.process.checkpoint_views(out);
    }

    /// Writes down a shard's replica anew: what was written of it before can go.
    pub fn checkpoint(&mut self, shard: u16) {
        self.process.checkpoint(shard);
    }

    /// Takes one input at `now_ns`, which must be read after the datagram was received: leases
    /// count from it. What it causes is in `out`, complete after the next `flush`.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>, out: &mut Outputs) {
        match input {
            Input::Datagram { from, bytes } => self.datagram(now_ns, from, bytes, out),
            Input::Timer => self.process.timer(now_ns, out),
        }
    }

    fn datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        match self.process.admit(now_ns, from, bytes) {
            Ok(()) => {}
            Err(NotGenuine::NoTag) => {
                let reason = state_protocol::kind(bytes).err().unwrap_or(Malformed::TooShort);
                return self.count().count_malformed(reason);
            }
            Err(_) => {
                self.count().bad_tag += 1;
                return;
            }
        }
        match state_protocol::kind(bytes) {
            Ok(Kind::Message(MessageType::StatusRequest)) => {
                self.answer_status(now_ns, from, bytes, out)
            }
            Ok(Kind::Message(MessageType::StateRequest)) => self.answer_state(from, bytes, out),
            Ok(_) => self.process.datagram(now_ns, from, bytes, out),
            Err(reason) => self.count().count_malformed(reason),
        }
    }

    /// Ends a batch of inputs: entries for successors and acknowledgements for predecessors are
    /// gathered until here, and all that goes out is signed.
    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) {
        self.process.flush(now_ns, out);
    }

    /// What this server dies with, as controllers are told from now on: no chain gets two servers
    /// of one machine.
    pub fn set_machine(&mut self, machine: String) {
        self.process.set_machine(machine);
    }

    /// Other secrets from now on.
    pub fn set_keys(&mut self, keys: KeyRing) {
        if let Some(memory) = &self.store().memory {
            memory.set_keys(&keys);
        }
        self.process.set_keys(keys);
    }

    /// When `Input::Timer` is due, in ns; `None`: not before another input.
    pub fn next_deadline(&self) -> Option<u64> {
        self.process.next_deadline()
    }

    /// Takes the controller's views, if they are newer: creates replicas, changes their places,
    /// drops those of chains that this server left.
    pub fn adopt(&mut self, now_ns: u64, views: &Views, out: &mut Outputs) {
        self.process.adopt(now_ns, views, out);
    }

    /// The backends of the object with that number from now on, in all shards; `false`: it is no
    /// object with backends. Every server is to be told: heads choose, and each may become one.
    /// What is known of their health stays.
    pub fn set_backends(&mut self, object_id: u16, mut backends: Vec<Backend>) -> bool {
        let policy =
            self.store().settings.objects.iter().find_map(|object| match &object.allocator {
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
        self.share_backends(object_id, Arc::new(Backends::new(policy, backends)));
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
            let Some(known) =
                self.store().backends.get(&object_id).filter(|known| known.list() != list)
            else {
                continue;
            };
            let backends = Backends::new(known.policy(), list);
            self.share_backends(object_id, Arc::new(backends));
        }
    }

    fn share_backends(&mut self, object_id: u16, backends: Arc<Backends>) {
        for shard in 0..self.store().settings.shards {
            if let Some(replica) = self.process.replica_mut(shard) {
                replica.set_backends(object_id, &backends);
            }
        }
        self.process.system_mut().backends.insert(object_id, backends);
    }

    /// The backends of an object, as they were last set.
    pub(super) fn backends(&self, object_id: u16) -> &[Backend] {
        self.store().backends.get(&object_id).map_or(&[], |backends| backends.list())
    }

    /// This life of this server.
    pub fn me(&self) -> Member {
        self.process.me()
    }

    /// The newest views.
    pub fn views(&self) -> &Views {
        self.process.views()
    }

    /// The replica of a shard, if this server is in its chain.
    pub fn replica(&self, shard: u16) -> Option<&Replica> {
        self.process.replica(shard)
    }

    /// All replicas.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.process.replicas()
    }

    /// What this server counted, all shards together.
    pub fn counters(&self) -> Counters {
        let mut sum = self.store().counters.clone();
        sum.add_node(self.process.counters());
        self.replicas().for_each(|replica| sum.add(&replica.counters()));
        sum
    }

    fn store(&self) -> &Store {
        self.process.system()
    }

    /// What is counted beside the replicas.
    pub(super) fn count(&mut self) -> &mut Counters {
        &mut self.process.system_mut().counters
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.store().settings
    }

    pub(super) fn started_ns(&self) -> u64 {
        self.store().start.now_ns
    }

    fn answer_status(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let request = match Message::decode(bytes) {
            Ok(request) => request,
            Err(reason) => return self.count().count_malformed(reason),
        };
        self.count().status_requests += 1;
        let json = self.status(now_ns).into_json();
        let reply = Message { message_type: MessageType::StatusReply, packet: &json, ..request };
        let mut encoded = Vec::new();
        // Cannot fail: what it carries beside the JSON was decoded, and the JSON is within bounds.
        if reply.append_to(&mut encoded).is_ok() {
            out.push(from, &encoded);
        }
    }
}
