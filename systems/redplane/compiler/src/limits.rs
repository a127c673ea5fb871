//! Calls that no message of the state protocol can carry.

use super::State;
use p4_ir::{ExternId, Location, Statement, StatementKind};
use state_protocol::objects::{MOST_GROUP_WORDS, record_words};
use std::collections::{BTreeMap, HashSet};
use xdp_backend::system::Generator;
use xdp_backend::walk;

/// LINEARIZABLE objects that a program may set, if a packet sets several: all records are written
/// while packets of other CPUs wait.
const MOST_TOGETHER: u32 = 4;

impl State {
    pub fn check_flow_calls(&self, generator: &mut Generator<'_>) {
        let mut calls = FlowCalls::default();
        walk::program(generator.program, &mut calls);
        let (mut together, mut words) = (0, 0);
        for (index, instance) in generator.program.externs.iter().enumerate() {
            let Some(flow) = self.flows.iter().find(|flow| flow.c_name == instance.c_name) else {
                continue;
            };
            let consistency = flow.consistency;
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
            words += record_words(flow.key_bytes, flow.value_bytes);
            if together == MOST_TOGETHER + 1 {
                let message = format!(
                    "FlowState {} is set: it is one LINEARIZABLE object more than the \
                     {MOST_TOGETHER} that are set in a program whose packets set several",
                    instance.name
                );
                let help = "put the fields of two of them into one value";
                generator.error(set, &message, Some(help));
            } else if words > MOST_GROUP_WORDS {
                let message = format!(
                    "FlowState {} is set: records of the LINEARIZABLE objects that are set have {} \
                     bytes with it, and a batch has room for {}",
                    instance.name,
                    8 * words,
                    8 * MOST_GROUP_WORDS
                );
                let help = "make keys and values of objects that are set together shorter";
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
