//! A message sequence chart of a run, in text: a column for each machine, time downwards.

use crate::scenario::{Machine, SERVERS, SWITCHES};
use state_protocol::{Control, Message, MessageType};
use std::fmt::Write;

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
}

fn column(machine: Machine) -> usize {
    match machine {
        Machine::Switch(at) => at,
        Machine::Server(at) => SWITCHES + at,
        Machine::Controller => SWITCHES + SERVERS,
    }
}

/// What a message of the state protocol says, in a few words; `None`: what a chart leaves out (heartbeats, chain upkeep, reports).
pub(crate) fn describe(bytes: &[u8]) -> Option<String> {
    if let Ok(message) = Message::decode(bytes) {
        if matches!(message.message_type, MessageType::Heartbeat | MessageType::HeartbeatAck) {
            return None;
        }
        let flow = message.key.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        let flow = flow.map_or_else(String::new, |flow| format!(" flow {flow}"));
        let lease = if message.lease_us > 0 { format!(" lease {} ms", message.lease_us / 1000) } else { String::new() };
        let packet = if message.packet.is_empty() { "" } else { " +packet" };
        let (epoch, seq, session) = (message.epoch, message.seq, message.session);
        return Some(format!("{:?}{flow} e{epoch} q{seq} s{session}{lease}{packet}", message.message_type));
    }
    if let Ok(Control::Views(views)) = Control::decode(bytes) {
        return Some(format!("Views {}", views.version));
    }
    None
}

impl Chart {
    pub(crate) fn message(&mut self, ns: u64, from: Machine, to: Machine, text: &str) {
        self.lines.push(Line { ns, from, to: Some(to), lost: false, text: text.to_owned() });
    }

    pub(crate) fn lost(&mut self, ns: u64, from: Machine, to: Machine, text: &str) {
        self.lines.push(Line { ns, from, to: Some(to), lost: true, text: text.to_owned() });
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
            let _ = writeln!(out, "{:>12.3} {} {}", line.ns as f64 / 1e6, line.picture(columns), line.text);
        }
        out
    }
}

impl Line {
    fn picture(&self, columns: usize) -> String {
        let mut cells: Vec<char> = (0..columns * COLUMN).map(|at| if at % COLUMN == 0 { '|' } else { ' ' }).collect();
        let start = column(self.from) * COLUMN;
        let Some(to) = self.to else {
            cells[start] = '*';
            return cells.into_iter().collect();
        };
        let end = column(to) * COLUMN;
        let (low, high) = (start.min(end), start.max(end));
        cells[low + 1..high].fill('-');
        let head = if end > start { (end - 1, '>') } else { (end + 1, '<') };
        if self.lost {
            cells[(low + high) / 2] = 'X';
        } else if low != high {
            cells[head.0] = head.1;
        }
        cells.into_iter().collect()
    }
}
