//! Table 1: what a packet costs a switch.

use super::{Context, KEYS, site};
use crate::experiments::{Experiment, Page};
use crate::kv::Service;
use crate::kv::labs::Network;
use crate::kv::switches::Switches;
use crate::kv::workload::Workload;
use crate::results::{Outcome, Row};
use crate::statistics::summary;
use crate::xdp_time::Counting;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "kv-packets",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "NetChain Table 1",
        title: "what a packet costs a switch: routed, read, written",
        quick: "40 s",
        full: "2 min",
        shows: "nanoseconds of a switch's program for a packet that it routes, a read, and a write \
                at head, middle and tail, with clients' tags and without",
        paper: "\
            NetChain §2, Table 1: a server processes 30 million packets a second with 10 to 100 µs \
            of delay, a switch a few billion with less than 1 µs.",
        method: "\
            The lab of setups/kv_switches.toml with one group. The kernel counts the runs of the \
            program and their time (BPF_ENABLE_STATS, which adds two looks at the clock to each) on \
            the port where the packets of one kind come in, while a client has 64 requests of this \
            kind under way. Routed are requests to a reader that go by the switch that is not in \
            the chain. Without tags: a client without a key, whom the switches let in (open_to_all); what switches \
            tell each other has tags in any case.",
    },
};

const SWITCHES: [&str; 4] = ["s1", "s2", "s3", "s4"];

/// Of one kind of packet.
pub(super) struct Cost {
    what: String,
    pub ns: Vec<f64>,
    packets: u64,
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Links of a node, as `ip -json link` shows them.
fn links(network: &Network, node: &str, which: &str) -> Result<Value> {
    let netns = network.lab().netns(node)?;
    let (_, text) = lab::process::run(Some(&netns), &words(&format!("ip -json link show{which}")))?;
    serde_json::from_str(&text).context("ip -json link")
}

/// Runs of a program so far, and their time in ns.
fn runs_of(id: u64) -> Result<(u64, u64)> {
    let (_, text) = lab::process::run(None, &words(&format!("bpftool -j prog show id {id}")))?;
    let told: Value = serde_json::from_str(&text).context("bpftool")?;
    let number = |name: &str| told[name].as_u64().with_context(|| format!("bpftool: no {name}"));
    Ok((number("run_cnt")?, number("run_time_ns")?))
}

/// The same of a port's program.
fn runs(network: &Network, node: &str, port: &str) -> Result<(u64, u64)> {
    let links = links(network, node, &format!(" dev {port}"))?;
    let id = links[0]["xdp"]["prog"]["id"].as_u64();
    runs_of(id.with_context(|| format!("{node}: no program on {port}"))?)
}

/// The same of each program on a switch's ports.
pub(super) fn programs(network: &Network, node: &str) -> Result<Vec<(u64, u64)>> {
    let links = links(network, node, "")?;
    let all = links.as_array().into_iter().flatten();
    let ids: BTreeSet<u64> = all.filter_map(|link| link["xdp"]["prog"]["id"].as_u64()).collect();
    ensure!(!ids.is_empty(), "{node}: no programs");
    ids.into_iter().map(runs_of).collect()
}

/// Time of a run while `work` is done, and how many there were.
fn during(
    service: &mut Switches,
    node: &str,
    port: &str,
    work: &mut dyn FnMut(&mut Switches) -> Result<()>,
) -> Result<(f64, u64)> {
    let before = runs(service.network(), node, port)?;
    work(service)?;
    let after = runs(service.network(), node, port)?;
    let packets = after.0 - before.0;
    ensure!(packets > 100, "{node}: {packets} packets on {port}");
    Ok(((after.1 - before.1) as f64 / packets as f64, packets))
}

/// The client's requests to `switch` go by another one, which routes them; `with`: `replace` or
/// `del`.
fn detour(service: &Switches, with: &str, switch: &str, by: &str) -> Result<()> {
    let (to, by) = (&switch[1..], &by[1..]);
    let route = vec![format!("route {with} 10.9.0.{to}/32 via 10.0.{by}.2")];
    Ok(service.network().lab().netns("client")?.ip_batch(&route)?)
}

/// In this order: routed, read, written at head, middle and tail. The kernel must count.
pub(super) fn measure(context: &Context, tags: bool) -> Result<Vec<Cost>> {
    let mut service = Switches::up_with(&site(context), 1, tags)?;
    service.fill(KEYS, 64)?;
    let chain = service.chain_of(0)?;
    let [head, middle, tail] = &chain[..] else { anyhow::bail!("a chain of {}", chain.len()) };
    let length = Duration::from_secs_f64(context.pick(0.5, 2.0));
    let load = Workload { outstanding: 64, ..Workload::one_at_a_time(false, KEYS, length) };
    let writes = Workload { writes_share: 1.0, ..load };
    let mut read = |service: &mut Switches| service.run(&load).map(drop);
    let mut write = |service: &mut Switches| service.run(&writes).map(drop);
    type Work<'a> = &'a mut dyn FnMut(&mut Switches) -> Result<()>;
    let mut costs = vec![];
    let with = if tags { "with tags" } else { "without clients' tags" };
    let mut take = |service: &mut Switches, what: &str, node: &str, port: &str, work: Work| {
        let (mut ns, mut packets) = (vec![], 0);
        for _ in 0..context.pick(3, 7) {
            let (each, count) = during(service, node, port, work)?;
            ns.push(each);
            packets += count;
        }
        costs.push(Cost { what: format!("{what}, {with}"), ns, packets });
        Ok::<_, anyhow::Error>(())
    };
    let other = SWITCHES.iter().find(|it| chain.iter().all(|member| member != *it));
    let other = other.context("all switches are in the chain")?;
    detour(&service, "replace", tail, other)?;
    take(&mut service, "routed", other, "client", &mut read)?;
    detour(&service, "del", tail, other)?;
    take(&mut service, "read", tail, "client", &mut read)?;
    for (what, node, port) in [
        ("write at the head", head, "client"),
        ("write in the middle", middle, head.as_str()),
        ("write at the tail", tail, middle.as_str()),
    ] {
        take(&mut service, what, node, port, &mut write)?;
    }
    Ok(costs)
}

fn run(context: &Context) -> Result<Outcome> {
    let _counting = Counting::begin()?;
    let mut costs = vec![];
    for tags in [true, false] {
        costs.extend(measure(context, tags)?);
        context.progress("with and without tags", if tags { 1 } else { 2 }, 2);
    }
    let row =
        |cost: &Cost| Row::value(cost.what.clone(), "less than 1 µs", summary(&cost.ns), 0, "ns");
    let describe =
        |cost: &Cost| json!({ "what": cost.what, "ns": cost.ns, "packets": cost.packets });
    Ok(Outcome {
        rows: costs.iter().map(row).collect(),
        notes: vec![],
        figures: vec![],
        data: json!(costs.iter().map(describe).collect::<Vec<_>>()),
    })
}
