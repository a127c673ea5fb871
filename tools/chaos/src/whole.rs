//! When a lab is whole again: everything is as it was before the first fault.

use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::process;
use lab::topology::{Daemon, in_mode};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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
        let nodes =
            names.map(|name| Ok((name.clone(), look(lab, name)?))).collect::<Result<_>>()?;
        Ok(Self { nodes })
    }

    /// Waits until the lab is whole: daemons ready, BGP and BFD up, the same routes, processes and
    /// pinned objects as in the beginning, every chain of its full length and known to everybody,
    /// the topology's probes good.
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
        wait_status(lab, "controller", "the chains are not whole", |all| {
            // Where no controller decides, chains never change. Of several, one decides.
            all.is_empty()
                || all.iter().any(|status| status["leading"] == true && status["settled"] == true)
        })?;
        lab.wait_probes(&|_| {})
    }

    /// Waits until all store servers have the same. While packets change the state they have not.
    ///
    /// # Errors
    /// As [`Whole::wait`].
    pub fn wait_stores(&self, lab: &Lab) -> Result<()> {
        let mut before = BTreeMap::new();
        wait_status(lab, "store", "the stores do not agree", |all| agree(&mut before, all))
    }
}

/// Waits until all daemons whose name begins so answer, and their answers will do.
fn wait_status(
    lab: &Lab,
    daemon: &str,
    what: &str,
    mut good: impl FnMut(&[Value]) -> bool,
) -> Result<()> {
    let mut all: Vec<Value> = Vec::new();
    let result = lab.wait(WHOLE_TIMEOUT_S, what, || {
        all.clear();
        for (node, spec) in &lab.topology().node {
            for daemon in spec
                .daemon
                .iter()
                .filter(|d| d.name.starts_with(daemon) && in_mode(&d.modes, lab.mode()))
            {
                let Some(status) = status_of(lab, node, daemon)? else { return Ok(false) };
                all.push(status);
            }
        }
        Ok(good(&all))
    });
    result.map_err(|error| in_detail(error, &Value::from(all).to_string()))
}

/// Whether all servers of each chain have what any of them had when they were asked before, and
/// those that have come as far as each other the same number of records. (Heartbeats go down the
/// chains all the time, so that the servers hardly ever answer the same when they are asked one
/// after the other.)
fn agree(before: &mut BTreeMap<u64, u64>, servers: &[Value]) -> bool {
    let mut shards: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut records: BTreeMap<Vec<(u64, u64)>, BTreeSet<String>> = BTreeMap::new();
    for server in servers {
        // A server of one chain only tells of that one at the top.
        let whole = [server.clone()];
        let replicas = server["replicas"].as_array().map_or(&whole[..], Vec::as_slice);
        let places: Vec<(u64, u64)> = replicas
            .iter()
            .map(|replica| {
                (replica["shard"].as_u64().unwrap_or(0), replica["index"].as_u64().unwrap_or(0))
            })
            .collect();
        for (shard, index) in &places {
            shards.entry(*shard).or_default().push(*index);
        }
        records
            .entry(places)
            .or_default()
            .insert(format!("{} {}", server["records"], server["objects"]));
    }
    let arrived = |(shard, indices): (&u64, &Vec<u64>)| {
        indices.iter().min() >= before.get(shard).or(Some(&u64::MAX))
    };
    let all_arrived = shards.iter().all(arrived);
    *before = shards
        .into_iter()
        .map(|(shard, indices)| (shard, indices.into_iter().max().unwrap_or(0)))
        .collect();
    all_arrived && records.values().all(|different| different.len() == 1)
}

/// An error with more about it; being told to stop stays that.
fn in_detail(error: Error, detail: &str) -> Error {
    match error {
        Error::Interrupted => error,
        other => Error::Run(format!("{other}; {detail}")),
    }
}

/// What a daemon says of itself: its `ready` command knows whom and how to ask.
fn status_of(lab: &Lab, node: &str, daemon: &Daemon) -> Result<Option<Value>> {
    let mut command = lab.expand_all(
        &format!("node.{node}.daemon.{}.ready", daemon.name),
        &daemon.ready,
        &lab.variables(node),
    )?;
    command.push("--json".to_string());
    let (good, said) = process::run(Some(&lab.netns(node)?), &command)?;
    Ok(if good { serde_json::from_str(&said).ok() } else { None })
}

fn look(lab: &Lab, name: &str) -> Result<Node> {
    let netns = lab.netns(name)?;
    let command = ["ip", "route", "show"].map(str::to_string);
    let mut routes: Vec<String> = process::run(Some(&netns), &command)?
        .1
        .lines()
        .map(|line| line.trim().to_string())
        .collect();
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

#[cfg(test)]
mod tests {
    use super::agree;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    #[test]
    fn servers_agree_when_all_have_what_one_had_before() {
        let replica = |shard: u64, index: u64| json!({"shard": shard, "index": index});
        let server = |replicas: Vec<Value>, records: u64| json!({ "replicas": replicas, "records": records });
        let mut before = BTreeMap::new();
        let first = [server(vec![replica(0, 3), replica(1, 4)], 2), server(vec![replica(1, 5)], 1)];
        assert!(!agree(&mut before, &first), "asked once");
        assert!(!agree(&mut before, &first), "shard 1 has not arrived");
        let arrived =
            [server(vec![replica(0, 3), replica(1, 5)], 2), server(vec![replica(1, 6)], 1)];
        assert!(agree(&mut before, &arrived));
        let mut before = BTreeMap::new();
        let single = |index: u64, records: u64| json!({"index": index, "records": records});
        assert!(!agree(&mut before, &[single(7, 1), single(7, 2)]));
        assert!(!agree(&mut before, &[single(7, 1), single(7, 2)]), "not as many records");
        assert!(agree(&mut before, &[single(7, 2), single(7, 2)]));
        assert!(agree(&mut before, &[single(7, 2), single(8, 3)]), "one is ahead");
        assert!(agree(&mut before, &[single(8, 3), single(8, 3)]));
        assert!(!agree(&mut before, &[single(8, 3), single(7, 2)]), "one has fallen back");
        assert!(agree(&mut BTreeMap::new(), &[]), "no stores");
    }
}
