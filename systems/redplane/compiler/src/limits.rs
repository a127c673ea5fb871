//! Calls that no message of the state protocol can carry.

use super::State;
use p4_ir::{ExternId, Location, Statement, StatementKind};
use std::collections::{BTreeMap, HashSet};
use xdp_backend::system::Generator;
use xdp_backend::walk;

impl State {
    pub fn check_flow_calls(&self, generator: &mut Generator<'_>) {
        let mut calls = FlowCalls::default();
        walk::program(generator.program, &mut calls);
        let mut sends_updates: Option<String> = None;
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
            if !consistency.updates_wait() {
                continue;
            }
            if let Some(first) = &sends_updates {
                let message = format!(
                    "a second {} FlowState is set: {} beside {first}",
                    consistency.p4_name(),
                    instance.name
                );
                let help = "a packet waits in one message, which carries one object's update: put the fields of both into one value";
                generator.error(set, &message, Some(help));
            }
            sends_updates.get_or_insert_with(|| instance.name.clone());
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
