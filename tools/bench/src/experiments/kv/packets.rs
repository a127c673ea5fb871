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
use std::net::UdpSocket;
use std::time::{Duration, Instant};

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
            kind under way, or sends datagrams that the first switch routes to another. Without \
            tags: a client without a key, whom the switches let in (open_to_all); what switches \
            tell each other has tags in any case.",
    },
};

/// Of one kind of packet.
struct Cost {
    what: String,
    ns: Vec<f64>,
    packets: u64,
}

/// Runs of a port's program so far, and their time in ns.
fn runs(network: &Network, node: &str, port: &str) -> Result<(u64, u64)> {
    let netns = network.lab().netns(node)?;
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let show = words(&format!("ip -json link show dev {port}"));
    let (_, text) = lab::process::run(Some(&netns), &show)?;
    let links: Value = serde_json::from_str(&text).context("ip -json link")?;
    let id = &links[0]["xdp"]["prog"]["id"];
    ensure!(id.is_u64(), "{node}: no program on {port}");
    let (_, text) = lab::process::run(None, &words(&format!("bpftool -j prog show id {id}")))?;
    let told: Value = serde_json::from_str(&text).context("bpftool")?;
    let number = |name: &str| told[name].as_u64().with_context(|| format!("bpftool: no {name}"));
    Ok((number("run_cnt")?, number("run_time_ns")?))
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

/// Datagrams to another switch, which the first one routes.
fn route(service: &mut Switches, length: Duration) -> Result<()> {
    let route = vec!["route replace 10.255.0.2/32 via 10.0.1.2".to_owned()];
    service.network().lab().netns("client")?.ip_batch(&route)?;
    service.network().inside("client", || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let until = Instant::now() + length;
        while Instant::now() < until {
            for _ in 0..64 {
                // (Refused: nobody listens there, and it says so now and then.)
                let _ = socket.send_to(&[0; 64], "10.255.0.2:9");
            }
        }
        Ok(())
    })
}

fn measure(context: &Context, tags: bool) -> Result<Vec<Cost>> {
    let mut service = Switches::up_with(&site(context), 1, tags)?;
    service.fill(KEYS, 64)?;
    let chain = service.chain_of(0)?;
    let [head, middle, tail] = &chain[..] else { anyhow::bail!("a chain of {}", chain.len()) };
    let length = Duration::from_secs_f64(context.pick(0.5, 2.0));
    let load = Workload { outstanding: 64, ..Workload::one_at_a_time(false, KEYS, length) };
    let writes = Workload { writes_share: 1.0, ..load };
    let mut read = |service: &mut Switches| service.run(&load).map(drop);
    let mut write = |service: &mut Switches| service.run(&writes).map(drop);
    let mut routed = |service: &mut Switches| route(service, length);
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
    take(&mut service, "routed", "s1", "client", &mut routed)?;
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
