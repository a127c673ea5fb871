//! When a lab is whole again: everything is as it was before the first fault.

use crate::error::{Error, Result};
use crate::instance::Lab;
use crate::process;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// How long it may take after the repairs, in seconds.
const WHOLE_TIMEOUT_S: u64 = 20;

/// What a node has that faults take away, or leave behind.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Node {
    /// Lines of `ip route show`, in order.
    routes: Vec<String>,
    /// Processes in it.
    processes: usize,
    /// Files of its daemons' state: pinned BPF objects, sockets.
    state: usize,
}

/// A lab without faults.
pub struct Whole {
    nodes: BTreeMap<String, Node>,
}

impl Whole {
    /// The lab as it is now: call it when it has just come up.
    ///
    /// # Errors
    /// A namespace is gone.
    pub fn of(lab: &Lab) -> Result<Self> {
        let names = lab.topology().node.keys();
        let nodes = names.map(|name| Ok((name.clone(), look(lab, name)?))).collect::<Result<_>>()?;
        Ok(Self { nodes })
    }

    /// Waits until the lab is whole: daemons ready, BGP and BFD up, the same routes, processes and pinned objects as in the beginning, the topology's
    /// probes good.
    ///
    /// # Errors
    /// It is not in time, and what is missing; or the process is to stop.
    pub fn wait(&self, lab: &Lab) -> Result<()> {
        let names: Vec<&String> = lab.topology().node.keys().collect();
        for name in &names {
            lab.wait_daemons_ready(name)?;
        }
        lab.wait_converged(&names)?;
        for (name, before) in &self.nodes {
            let mut now = before.clone();
            let same = lab.wait(WHOLE_TIMEOUT_S, &format!("{name} is not as before"), || {
                now = look(lab, name)?;
                Ok(now == *before)
            });
            same.map_err(|error| in_detail(error, &format!("before {before:?}; now {now:?}")))?;
        }
        lab.wait_probes(&|_| {})
    }

    /// Waits until all store servers have the same. While packets change the state they have not.
    ///
    /// # Errors
    /// As [`Whole::wait`].
    pub fn wait_stores(&self, lab: &Lab) -> Result<()> {
        let stores: Vec<(&String, String)> = lab
            .topology()
            .node
            .iter()
            .filter(|(name, _)| lab.daemons(name).iter().any(|(daemon, _)| daemon == "store"))
            .filter_map(|(name, _)| Some((name, lab.variables(name).get("address")?.clone())))
            .collect();
        let mut all: Vec<Value> = Vec::new();
        let agreed = lab.wait(WHOLE_TIMEOUT_S, "the stores do not agree", || {
            all.clear();
            for (node, address) in &stores {
                let Some(status) = store_status(lab, node, address)? else { return Ok(false) };
                all.push(status);
            }
            let same = |field: &str| all.iter().all(|status| status[field] == all[0][field]);
            // Heartbeats go down the chain all the time. The servers are asked from the head on: what it had then, all have by now.
            let arrived = all.iter().all(|status| status["index"].as_u64() >= all[0]["index"].as_u64());
            Ok(["records", "sessions", "objects"].into_iter().all(same) && arrived)
        });
        agreed.map_err(|error| in_detail(error, &format!("{all:?}")))
    }
}

/// An error with more about it; being told to stop stays that.
fn in_detail(error: Error, detail: &str) -> Error {
    match error {
        Error::Interrupted => error,
        other => Error::Chaos(format!("{other}; {detail}")),
    }
}

fn store_status(lab: &Lab, node: &str, address: &str) -> Result<Option<Value>> {
    let binary = lab.variables(node).get("stateplane").cloned().unwrap_or_default();
    let port = format!("{address}:5407");
    let secrets = lab.dir().join("fabric.secrets").display().to_string();
    let command = [&binary, "store", "status", "--secrets", &secrets, "--address", &port, "--json"].map(str::to_string);
    let (good, said) = process::run(Some(&lab.netns(node)?), &command)?;
    Ok(if good { serde_json::from_str(&said).ok() } else { None })
}

fn look(lab: &Lab, name: &str) -> Result<Node> {
    let netns = lab.netns(name)?;
    let command = ["ip", "route", "show"].map(str::to_string);
    let mut routes: Vec<String> =
        process::run(Some(&netns), &command)?.1.lines().map(|line| line.trim().to_string()).collect();
    // The kernel lists next hops in the order in which they came.
    routes.sort();
    Ok(Node {
        routes,
        processes: netns.processes().len(),
        state: lab.state_of(name).iter().map(|dir| files(dir)).sum(),
    })
}

/// How many files there are in a directory, also below it.
fn files(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}
