//! `stateplane test`: setup lines for RedPlane's objects, and a store behind the switch.

mod lines;
mod store;

use crate::RedPlane;
use dataplane::Dataplane;
use lines::{Backends, NatPool, StoreLine};
use manifest::Manifest;
use packet_test::stf::Wrong;
use packet_test::{Backing, Fault, Identity, Line, Outcome, Supply, System};
use redplane_switch::FlowRuntime;
use state_protocol::objects::{Allocator, FlowState, flow_states};
use store::Store;

/// `# store: …`
const STORE: &str = "store";
/// `# nat_pool: …`
const NAT_POOL: &str = "nat_pool";
/// `# backends: …`
const BACKENDS: &str = "backends";

impl System for RedPlane {
    fn keywords(&self) -> &'static [&'static str] {
        &[STORE, NAT_POOL, BACKENDS]
    }

    fn check(&self, line: &Line, before: &[Line]) -> Result<(), Wrong> {
        match line.keyword {
            STORE => {
                line.read(StoreLine::parse)?;
                line.once(before, "a case has one store")
            }
            NAT_POOL => {
                line.read(NatPool::parse)?;
                line.once(before, "an object has one NAT pool")
            }
            _ => {
                line.read(Backends::parse)?;
                line.once(before, "an object has one list of backends")
            }
        }
    }

    fn begin(&self, lines: &[Line], manifest: &Manifest) -> Outcome<Option<Box<dyn Backing>>> {
        let lines = Lines::of(lines)?;
        lines.check(manifest)?;
        Ok(match &lines.store {
            Some((line, store)) => {
                Some(Box::new(Store::new(line, *store, &lines, manifest)?) as Box<dyn Backing>)
            }
            None if lines.nat_pool.is_some() || lines.backends.is_some() => {
                Some(Box::new(Local(lines)))
            }
            None => None,
        })
    }

    fn must_wait(&self, manifest: &Manifest) -> bool {
        flow_states(manifest).is_ok_and(|flows| flows.iter().any(|flow| flow.settings.grouped))
    }

    fn supplies(&self, lines: &[Line]) -> Vec<Supply> {
        let Ok(lines) = Lines::of(lines) else { return vec![] };
        let pool = lines.nat_pool.map(|(_, pool)| Supply {
            numbers: redplane_compiler::nat_pool(&pool.addresses, pool.port_low, pool.port_high),
            object: pool.flow_state,
            what: NAT_POOL,
        });
        let backends = lines.backends.map(|(_, given)| Supply {
            numbers: redplane_compiler::backends(&given.backends),
            object: given.flow_state,
            what: BACKENDS,
        });
        pool.into_iter().chain(backends).collect()
    }

    fn why_missing(&self, lines: &[Line], manifest: &Manifest) -> Option<String> {
        if lines.iter().any(|line| line.keyword == STORE) {
            return None;
        }
        let states = flow_states(manifest).ok()?;
        let replicated = states.iter().find(|it| it.settings.consistency.is_replicated())?;
        let consistency = replicated.settings.consistency.p4_name();
        Some(format!(
            "FlowState {} is {consistency}, so its packets need a lease from a store, \
             and this case has no store: write a line `# store:` before the first packet; \
             docs/packet-tests.md shows how",
            replicated.object.name
        ))
    }
}

/// A case's lines of RedPlane.
struct Lines {
    store: Option<(Line, StoreLine)>,
    nat_pool: Option<(Line, NatPool)>,
    backends: Option<(Line, Backends)>,
}

impl Lines {
    fn of(lines: &[Line]) -> Outcome<Lines> {
        let mut found = Lines { store: None, nat_pool: None, backends: None };
        for line in lines {
            let wrong = |(_, reason): Wrong| line.fault(reason);
            let own = line.clone();
            match line.keyword {
                STORE => found.store = Some((own, line.read(StoreLine::parse).map_err(wrong)?)),
                NAT_POOL => {
                    found.nat_pool = Some((own, line.read(NatPool::parse).map_err(wrong)?));
                }
                BACKENDS => {
                    found.backends = Some((own, line.read(Backends::parse).map_err(wrong)?));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// What the lines name must be there.
    fn check(&self, manifest: &Manifest) -> Outcome<()> {
        if let Some((line, pool)) = &self.nat_pool {
            must_allocate(line, manifest, &pool.flow_state, Allocator::NatPorts, "NAT ports")?;
        }
        if let Some((line, given)) = &self.backends {
            must_allocate(line, manifest, &given.flow_state, Allocator::Backends, "backends")?;
        }
        Ok(())
    }
}

/// There must be a FlowState of that name with that allocator.
fn must_allocate(
    line: &Line,
    manifest: &Manifest,
    flow_state: &str,
    allocator: Allocator,
    what: &str,
) -> Outcome<()> {
    let states = flow_states(manifest).map_err(|error| line.fault(error))?;
    let allocates =
        |it: &FlowState| it.object.is_named(flow_state) && it.settings.allocator == allocator;
    if states.iter().any(allocates) {
        return Ok(());
    }
    let names: Vec<&str> = states.iter().map(|state| state.object.name.as_str()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(line.fault(format!(
        "no FlowState {flow_state} that allocates {what} (the program's FlowStates: {known})"
    )))
}

/// No store: local objects draw from what the lines give.
struct Local(Lines);

impl Backing for Local {
    fn begin_switch(&mut self, switch: &Dataplane, _: Identity, _: u64) -> Outcome<()> {
        if let Some((line, pool)) = &self.0.nat_pool {
            switch
                .set_nat_pool(&pool.addresses, pool.port_low, pool.port_high)
                .map_err(|error| line.fault(error))?;
        }
        if let Some((line, given)) = &self.0.backends {
            switch.set_backends(&given.backends).map_err(|error| line.fault(error))?;
        }
        Ok(())
    }

    fn departs(&mut self, _: u32, _: &[u8], _: u64) -> Option<Vec<packet_test::Arrival>> {
        None
    }

    fn next_ns(&self, _: &Dataplane, _: u64) -> Option<u64> {
        None
    }

    fn tick(&mut self, _: &Dataplane, _: u64) -> Result<Vec<packet_test::Arrival>, Fault> {
        Ok(vec![])
    }
}
