//! Do windows keep within the caps? The one on bandwidth by a switch's own account, looked at
//! whenever a window begins. The one on CPU time by an account of the simulator's, with an object
//! in whose program virtual time passes (`seeded::TIME_PASSES`): in all others it stands still.

use crate::model::{Checked, violated};
use swish_protocol::layouts::NodeValue;

/// What the windows of a group on a switch have cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// When the newest window's frames began to move.
    moved_ns: u64,
    /// What had been sent then.
    sent_bytes: u64,
}

impl Spent {
    /// A window has begun. `began_ns`: when the group did.
    pub(crate) fn look(&mut self, node: &NodeValue, began_ns: u64) -> Checked {
        if node.moved_ns != self.moved_ns {
            // What had been sent when the window before began to move is paid for since then.
            let cost_ns = (u128::from(self.sent_bytes) * u128::from(node.byte_time)) >> 16;
            let took_ns = node.moved_ns.saturating_sub(began_ns);
            // (Each window's part of a nanosecond is left out.)
            if cost_ns > u128::from(took_ns) + u128::from(node.word >> 3) {
                let sent = self.sent_bytes;
                return violated("bandwidth", format!("{sent} bytes in {took_ns} ns: {node:?}"));
            }
            (self.moved_ns, self.sent_bytes) = (node.moved_ns, node.sent_bytes);
        }
        Ok(())
    }
}

/// What the frames of a group took of a switch's CPUs so far, by the simulator's account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worked {
    /// All of them.
    total_ns: u64,
    /// When the newest window's frames began to move.
    moved_ns: u64,
    /// What `total_ns` was then.
    noted_ns: u64,
    /// The next window's frames move no earlier.
    due_ns: u64,
}

impl Worked {
    /// A frame has been through the program, and took so long. `percent`: the cap, whatever the
    /// switch knows of it.
    pub(crate) fn frame(&mut self, node: &NodeValue, took_ns: u64, percent: u32) -> Checked {
        if node.moved_ns != self.moved_ns {
            let Worked { total_ns, due_ns, .. } = *self;
            if node.moved_ns < due_ns {
                let early = due_ns - node.moved_ns;
                return violated("cpu", format!("a window begins {early} ns early: {node:?}"));
            }
            // (The frame that begins the window counts in this one.)
            if node.busy_ns != total_ns {
                let counts = node.busy_ns;
                return violated("cpu", format!("{total_ns} ns of work; it counts {counts} ns"));
            }
            let pause_ns = (total_ns - self.noted_ns) * 100 / u64::from(percent.max(1));
            self.due_ns = node.moved_ns + pause_ns;
            (self.moved_ns, self.noted_ns) = (node.moved_ns, total_ns);
        }
        self.total_ns += took_ns;
        Ok(())
    }
}
