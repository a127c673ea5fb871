//! The chart of a run: what its messages say, in a few words.

use crate::scenario::{Machine, SERVERS, SWITCHES};
use state_protocol::{Effect, Entries, Message, MessageType};
use wire::{ChainHeader, ChainType, Control};

/// What happened, in order.
#[derive(Clone, Debug)]
pub struct Chart {
    lines: simnet::Chart<Machine>,
    /// Keys and their names. Both keys of a pair have the name of its flow.
    names: Vec<(Vec<u8>, String)>,
    others: usize,
}

impl Default for Chart {
    fn default() -> Chart {
        let switches = (0..SWITCHES).map(|at| (Machine::Switch(at), format!("s{}", at + 1)));
        let servers = (0..SERVERS).map(|at| (Machine::Server(at), format!("n{}", at + 1)));
        let columns = switches.chain(servers).chain([(Machine::Controller, "ctl".to_owned())]);
        Chart { lines: simnet::Chart::new(columns.collect()), names: Vec::new(), others: 0 }
    }
}

impl Chart {
    /// What a message of the state protocol says, in a few words; `None`: what a chart leaves out
    /// (heartbeats, the chain's upkeep, reports).
    fn describe(&mut self, bytes: &[u8]) -> Option<String> {
        if let Ok(message) = Message::decode(bytes) {
            return self.describe_message(&message);
        }
        if let Ok(header) = ChainHeader::decode(bytes) {
            return self.describe_chain(&header, bytes);
        }
        match Control::decode(bytes) {
            Ok(Control::Views(views)) => Some(format!("Views {}", views.version)),
            _ => None,
        }
    }

    fn describe_message(&mut self, message: &Message<'_>) -> Option<String> {
        if matches!(message.message_type, MessageType::Heartbeat | MessageType::HeartbeatAck) {
            return None;
        }
        let flow = self.flow(message.key);
        let lease = if message.lease_us > 0 {
            format!(" lease {} ms", message.lease_us / 1000)
        } else {
            String::new()
        };
        let packet = if message.packet.is_empty() { "" } else { " +packet" };
        let (epoch, seq, session) = (message.epoch, message.seq, message.session);
        Some(format!("{:?}{flow} e{epoch} q{seq} s{session}{lease}{packet}", message.message_type))
    }

    /// Entries and their acknowledgements; copies of records; of the rest nothing.
    fn describe_chain(&mut self, header: &ChainHeader, bytes: &[u8]) -> Option<String> {
        let place = format!("shard {} v{} i{}", header.shard, header.view, header.index);
        match header.chain_type {
            ChainType::Data => {
                let entries = Entries::decode(header, bytes).ok()?;
                let effects: Vec<String> =
                    entries.map(|(entry, _)| self.describe_effect(&entry.effect)).collect();
                Some(format!("DATA {place}: {}", effects.join(", ")))
            }
            ChainType::Ack => Some(format!("ACK {place}, the tail has {}", header.committed)),
            ChainType::Copy => Some(format!("COPY {place}: {} items", header.count)),
            ChainType::CopyAck | ChainType::Hello => None,
        }
    }

    fn describe_effect(&mut self, effect: &Effect<'_>) -> String {
        match effect {
            Effect::None => "reply".to_owned(),
            Effect::Write(record) => {
                format!("write{} e{} q{}", self.flow(record.key), record.epoch, record.seq)
            }
            Effect::Pair { first, second } => {
                let name = self.flow(first.key);
                if self.names.iter().all(|(key, _)| key != second.key) {
                    self.names.push((second.key.to_vec(), name.clone()));
                }
                format!("pair{name} e{} q{}", first.epoch, first.seq)
            }
            Effect::Free { key, .. } => format!("free{}", self.flow(key)),
            Effect::SessionBegin { session, owner, .. } => {
                format!("session {session} of s{} begins", owner.switch_id)
            }
            Effect::SessionEnd { session } => format!("session {session} ends"),
            Effect::Floor { floor } => format!("floor {floor}"),
            Effect::Snapshot(part) => format!("snapshot{}", self.flow(part.key)),
            Effect::Batch(batch) => format!("batch of {}", batch.records.count_left()),
        }
    }

    /// A name for a key.
    fn flow(&mut self, key: &[u8]) -> String {
        if key.is_empty() {
            return String::new();
        }
        if let Some((_, name)) = self.names.iter().find(|(known, _)| known == key) {
            return name.clone();
        }
        // None of the program's flows, as far as a chart can tell: the other side's key of a pair
        // that nobody made yet.
        self.others += 1;
        let name = format!(" key {}", self.others);
        self.names.push((key.to_vec(), name.clone()));
        name
    }

    /// A message arrives, or (`lost`) never will.
    pub(crate) fn message(
        &mut self,
        ns: u64,
        from: Machine,
        to: Machine,
        bytes: &[u8],
        lost: bool,
    ) {
        if let Some(text) = self.describe(bytes) {
            self.lines.message(ns, from, to, text, lost);
        }
    }

    /// The packets of the program's flow with this number have this key.
    pub(crate) fn call(&mut self, key: &[u8], number: u32) {
        self.names.push((key.to_vec(), format!(" flow {number}")));
    }

    pub(crate) fn note(&mut self, ns: u64, machine: Machine, text: &str) {
        self.lines.note(ns, machine, text);
    }

    /// The last `most` lines as text.
    pub fn render(&self, most: usize) -> String {
        self.lines.render(most)
    }
}
