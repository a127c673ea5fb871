//! What hosts saw of a run: packets that went in and, some of them, came out. Judged by `history`'s checker of linearizability.

use history::linearizable::{Counter, Operation, check};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
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
        match self.packets.get_mut(&packet) {
            Some(known) if known.returned.is_none() => {
                known.returned = Some((self.events, count));
                true
            }
            _ => false,
        }
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

    /// Is the history of every flow linearizable? Flows share nothing, so each can be judged by itself (P-compositionality). `reads`: also what packets read.
    pub(crate) fn check(&self, reads: bool) -> Result<(), String> {
        let mut flows: BTreeMap<u32, Vec<Operation<Counter>>> = BTreeMap::new();
        for packet in self.packets.values().filter(|packet| reads || !packet.read) {
            let input = if packet.read { Counter::Read } else { Counter::Increment };
            let operation = Operation { input, invoked: packet.invoked, returned: packet.returned };
            flows.entry(packet.flow).or_default().push(operation);
        }
        for (flow, operations) in flows {
            if let Err(stuck) = check(&operations) {
                return Err(format!("flow {flow}: {stuck}"));
            }
        }
        Ok(())
    }
}
