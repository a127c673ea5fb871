//! Do windows keep within the cap on bandwidth? By a switch's own account, looked at whenever a
//! window begins. (Virtual time stands still in a program, so CPU time costs nothing here.)

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
