//! A message sequence chart of a run, in text: a column for each machine, time downwards.

use crate::scenario::{Machine, SERVERS, SWITCHES};
use state_protocol::{Effect, Entries, Message, MessageType};
use std::fmt::Write;
use wire::{ChainHeader, ChainType, Control};

const COLUMN: usize = 7;

#[derive(Clone, Debug)]
struct Line {
    ns: u64,
    from: Machine,
    /// `None`: something that happens at a machine.
    to: Option<Machine>,
    lost: bool,
    text: String,
}

/// What happened, in order.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    lines: Vec<Line>,
    /// Keys and their names. Both keys of a pair have the name of its flow.
    names: Vec<(Vec<u8>, String)>,
    others: usize,
}

fn column(machine: Machine) -> usize {
    match machine {
        Machine::Switch(at) => at,
        Machine::Server(at) => SWITCHES + at,
        Machine::Controller => SWITCHES + SERVERS,
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
            self.lines.push(Line { ns, from, to: Some(to), lost, text });
        }
    }

    /// The packets of the program's flow with this number have this key.
    pub(crate) fn call(&mut self, key: &[u8], number: u32) {
        self.names.push((key.to_vec(), format!(" flow {number}")));
    }

    pub(crate) fn note(&mut self, ns: u64, machine: Machine, text: &str) {
        self.lines.push(Line { ns, from: machine, to: None, lost: false, text: text.to_owned() });
    }

    /// The last `most` lines as text.
    pub fn render(&self, most: usize) -> String {
        let columns = SWITCHES + SERVERS + 1;
        let mut out = format!("{:>12} ", "ms");
        for at in 0..columns {
            let name = match at {
                at if at < SWITCHES => format!("s{}", at + 1),
                at if at < SWITCHES + SERVERS => format!("n{}", at - SWITCHES + 1),
                _ => "ctl".to_owned(),
            };
            let _ = write!(out, "{name:<COLUMN$}");
        }
        out.push('\n');
        for line in &self.lines[self.lines.len().saturating_sub(most)..] {
            let _ = writeln!(
                out,
                "{:>12.3} {} {}",
                line.ns as f64 / 1e6,
                line.picture(columns),
                line.text
            );
        }
        out
    }
}

impl Line {
    fn picture(&self, columns: usize) -> String {
        let mut cells: Vec<char> =
            (0..columns * COLUMN).map(|at| if at % COLUMN == 0 { '|' } else { ' ' }).collect();
        let start = column(self.from) * COLUMN;
        let Some(to) = self.to else {
            cells[start] = '*';
            return cells.into_iter().collect();
        };
        let end = column(to) * COLUMN;
        let (low, high) = (start.min(end), start.max(end));
        cells[low + 1..high].fill('-');
        let head = if end > start { (end - 1, '>') } else { (end + 1, '<') };
        if low != high {
            cells[head.0] = head.1;
        }
        if self.lost {
            cells[(low + high) / 2] = 'X';
        }
        cells.into_iter().collect()
    }
}
