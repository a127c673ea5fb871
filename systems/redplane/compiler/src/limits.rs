//! What a message of the state protocol is too small for, and calls that no message can carry.

use super::State;
use p4_ir::{ExternId, Location, Statement, StatementKind};
use std::collections::{BTreeMap, HashSet};
use xdp_backend::system::Generator;
use xdp_backend::walk;

/// XDP's headroom (256 bytes) less what the kernel keeps of it (`struct xdp_frame`).
const HEADROOM_BYTES: u32 = 216;
/// Headers of an UPDATE around key and value (systems/redplane/docs/state-protocol.md), which stand
/// before the packet.
const UPDATE_BYTES: u32 = 106;

/// LINEARIZABLE objects that a program may set, if a packet sets several: all records are written
/// while packets of other CPUs wait.
const MOST_TOGETHER: u32 = 4;

impl State {
    pub fn check_flow_calls(&self, generator: &mut Generator<'_>) {
        let mut calls = FlowCalls::default();
        walk::program(generator.program, &mut calls);
        let mut together = 0;
        for (index, instance) in generator.program.externs.iter().enumerate() {
            let Some(flow) = self.flows.iter().find(|flow| flow.c_name == instance.c_name) else {
                continue;
            };
            let consistency = flow.consistency;
            let bytes = flow.key_bytes + flow.value_bytes;
            let most = HEADROOM_BYTES - UPDATE_BYTES;
            if consistency.is_replicated() && bytes > most {
                let message = format!(
                    "FlowState {}: key and value of an object in the store may have {most} bytes together, not {bytes}",
                    instance.name
                );
                let help = "XDP leaves this much room before a packet for its message; drop or narrow fields";
                generator.error(instance.location, &message, Some(help));
            }
            let Some(set) = calls.set.get(&(index as u32)).copied() else { continue };
            if !calls.got.contains(&(index as u32)) {
                let message =
                    format!("FlowState {} is set, but the program never gets it", instance.name);
                let help = "`get` or `get_or_allocate` the flow before: this brings its lease and value to the switch";
                generator.error(set, &message, Some(help));
            }
            if !consistency.updates_wait() || !self.groups {
                continue;
            }
            together += 1;
            if together == MOST_TOGETHER + 1 {
                let message = format!(
                    "FlowState {} is set: it is one LINEARIZABLE object more than the {MOST_TOGETHER} that are set in a program whose packets set several",
                    instance.name
                );
                let help = "put the fields of two of them into one value";
                generator.error(set, &message, Some(help));
            }
        }
    }
}

/// Which FlowState objects are read, and where each is first set.
#[derive(Default)]
struct FlowCalls {
    got: HashSet<u32>,
    set: BTreeMap<u32, Location>,
}

impl walk::Visitor for FlowCalls {
    fn statement(&mut self, statement: &Statement) {
        let StatementKind::Extern { instance: Some(ExternId(id)), name, .. } = &statement.kind
        else {
            return;
        };
        if name == "set" {
            self.set.entry(*id).or_insert(statement.location);
        } else {
            self.got.insert(*id);
        }
    }
}
