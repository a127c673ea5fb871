//! Windows of many messages in a run without faults: each message is sent once to each member,
//! nobody has to ask for one, and all CPUs have frames (systems/swish/README.md, "Frames and
//! CPUs").

use crate::model::{Checked, violated};
use crate::switch::CPUS;
use std::collections::{BTreeMap, BTreeSet};
use swish_protocol::layouts::{MANY, NOTHING};
use swish_protocol::message::{Cells, Message};

/// Messages of large windows of which each CPU must have sent a part: those of some windows.
const ENOUGH: u64 = 6 * MANY as u64;
/// A CPU without frames has some so long after the first large window.
const IDLE_NS: u64 = 11_000_000;
/// A CPU's part, at the least: one in so many of the messages of its switch.
const PART: u64 = 10;

/// What switches have sent so far.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Sender, receiver, group, window, number.
    sent: BTreeSet<(usize, usize, u8, u64, u16)>,
    /// CPUs have frames from then on: there was a large window long before.
    begins_ns: Option<u64>,
    /// Messages of large windows since then, by switch and CPU.
    large: BTreeMap<(usize, u32), u64>,
}

/// Does the message bring cells of a window with many of them?
pub(crate) fn is_large(message: &Message) -> bool {
    message.cells != Cells::None && message.knows_total() && u32::from(message.total) >= MANY
}

impl Shares {
    /// A CPU of a switch sends a message.
    pub(crate) fn sent(
        &mut self,
        from: usize,
        to: usize,
        cpu: u32,
        message: &Message,
        now_ns: u64,
    ) -> Checked {
        if message.want != NOTHING {
            let want = message.want;
            return violated("once", format!("{from} has to ask {to} for its message {want}"));
        }
        if message.cells == Cells::None {
            return Ok(());
        }
        let window = message.window - u64::from(message.previous);
        if !self.sent.insert((from, to, message.group, window, message.number)) {
            let number = message.number;
            return violated("once", format!("{from} sends {to} the message {number} again"));
        }
        if is_large(message) && now_ns >= *self.begins_ns.get_or_insert(now_ns + IDLE_NS) {
            *self.large.entry((from, cpu)).or_default() += 1;
        }
        Ok(())
    }

    /// At the end of the run.
    pub(crate) fn end(&self) -> Checked {
        let of = |switch, cpu| self.large.get(&(switch, cpu)).copied().unwrap_or_default();
        let switches: BTreeSet<usize> = self.large.keys().map(|(switch, _)| *switch).collect();
        for switch in switches {
            let sent: Vec<u64> = (0..CPUS).map(|cpu| of(switch, cpu)).collect();
            let all: u64 = sent.iter().sum();
            if all >= ENOUGH && sent.iter().any(|it| it * PART < all) {
                return violated("shares", format!("CPUs of {switch} sent {sent:?} messages"));
            }
        }
        Ok(())
    }
}
