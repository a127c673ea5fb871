//! What hosts saw of a run: packets that went in and, some of them, came out. Judged by `history`'s
//! checker of linearizability.

use crate::bindings::BindingChecker;
use history::linearizable::{Binding, Counter, Operation, check};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Packet {
    flow: u32,
    read: bool,
    /// When it came in and when it left: in order of events.
    invoked: u64,
    returned: Option<(u64, u64)>,
}

/// All packets of a run.
#[derive(Default)]
pub struct Operations {
    packets: BTreeMap<u32, Packet>,
    events: u64,
}

impl Operations {
    /// A packet comes in.
    pub(crate) fn input(&mut self, flow: u32, packet: u32, read: bool) {
        self.events += 1;
        self.packets.insert(packet, Packet { flow, read, invoked: self.events, returned: None });
    }

    /// It leaves with this count; `false`: it did before, or never came in.
    pub(crate) fn output(&mut self, packet: u32, count: u64) -> bool {
        self.events += 1;
        let Some(known) = self.packets.get_mut(&packet) else { return false };
        let leaves = known.returned.is_none();
        if leaves {
            known.returned = Some((self.events, count));
        }
        leaves
    }

    /// Has this packet left?
    pub fn went_out(&self, packet: u32) -> bool {
        self.packets.get(&packet).is_some_and(|packet| packet.returned.is_some())
    }

    /// Packets that came in, and that left.
    pub fn counts(&self) -> (u64, u64) {
        let out = self.packets.values().filter(|packet| packet.returned.is_some()).count();
        (self.packets.len() as u64, out as u64)
    }

    /// Is the history of every flow linearizable? Flows share nothing, so each can be judged by
    /// itself (P-compositionality). `reads`: also what packets read.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, reads: bool) -> Result<(), String> {
        let mut flows: BTreeMap<u32, Vec<Operation<Counter>>> = BTreeMap::new();
        for packet in self.packets.values().filter(|packet| reads || !packet.read) {
            let input = if packet.read { Counter::Read } else { Counter::Increment };
            let Packet { flow, invoked, returned, .. } = *packet;
            flows.entry(flow).or_default().push(Operation { input, invoked, returned });
        }
        for (flow, operations) in flows {
            if let Err(stuck) = check(&operations) {
                return Err(format!("flow {flow}: {stuck}"));
            }
        }
        Ok(())
    }

    /// The same of what a store gives: of each flow, from when it was given something until it may
    /// have lost it, a register that is written once. (A packet that did not get out says nothing
    /// of what it would have written.)
    ///
    /// # Errors
    /// It is not linearizable.
    pub(crate) fn check_bindings(&self, bindings: &BindingChecker) -> Result<(), String> {
        let mut registers: BTreeMap<(u32, u32), Vec<Operation<Binding>>> = BTreeMap::new();
        for (number, packet) in &self.packets {
            let Packet { flow, invoked, returned, .. } = *packet;
            let (Some((_, allocated)), Some(term)) = (returned, bindings.term(*number)) else {
                continue;
            };
            let operation = Operation { input: Binding { allocated }, invoked, returned };
            registers.entry((flow, term)).or_default().push(operation);
        }
        registers.into_iter().try_for_each(|((flow, _), operations)| {
            check(&operations).map_err(|stuck| format!("flow {flow}: {stuck}"))
        })
    }
}
