//! A million flows of one switch: what keeps their leases (systems/redplane/docs/state-protocol.md,
//! "Sessions"), and what becomes of them when they are idle.

mod packets;
use packets::{Arrivals, Sender};

use super::{Context, Experiment, Page};
use crate::labs::{Running, Wanted};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, summary};
use anyhow::{Context as _, Result, bail, ensure};
use plot::{Axes, Line};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sessions",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "§5.3",
        title: "a million flows: what keeps their leases, and what an open flow costs",
        quick: "2 min",
        full: "5 min",
        shows: "\
            a million open flows in the switch: messages that keep them, and memory. Fewer flows \
            with the default `release_after_s`: given back when idle, messages then, and whether \
            all return with their counts",
        paper: "\
            RedPlane §5.3: a switch renews the lease of every flow that it has packets of, every \
            0.5 s, by itself: messages grow with the flows. (By that rule, a million flows that \
            are all in use take 2,000,000 renewals a second.)",
        method: "\
            systems/redplane/lab/flow_counter.toml, all traffic over s1, whose table holds \
            1,048,576 flows; a chain of three stores; leases of 250 ms. For the flows that the \
            switch keeps, `release_after_s` is 7200: with its default of 60 s, flows that have a \
            packet every 100 s are released and fetched again in between. Flows are opened by UDP \
            packets from `inside`, each sent again until its numbered packet has come out at \
            `outside`: then its count is on all three stores. Then the switch's own counters of \
            messages are read over a while of silence, and over one in which packets come for 1 % \
            of the flows each second (each is an update). Memory: the BPF map as the kernel \
            accounts it, and how the resident size of the head grew.\n\n\
            Then the same lab anew with the default `release_after_s`, and fewer flows: opened, \
            then silence until the switch has given every one back to the store (each takes one \
            message, once); messages over a while of silence more; and packets for 1 % of the \
            flows each second, each of a flow that must be fetched first. Each packet's number \
            shows whether the flow's count went on where it was.",
    },
};

const SWITCH: &str = "s1";
/// Flows are told apart by the sender's port and the receiver's.
const SENDERS: usize = 250;
const FIRST_SENDER: u16 = 20_000;
const FIRST_RECEIVER: u16 = 30_000;
/// Packets that are on their way at once while flows are opened.
const WINDOW: usize = 1_024;
/// What has not come through when nothing came for so long counts as lost.
const PATIENCE: Duration = Duration::from_millis(40);
/// Rounds over those that are not open yet.
const MOST_ROUNDS: usize = 200;
/// The time within which all flows without packets must be back at the store: `release_after_s`
/// (60 s), and the sweeps that release them.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(180);
/// The share of the flows that is updated each second.
const UPDATED: f64 = 0.01;
/// Messages that the switch sends, by its counters.
const SENT: [&str; 6] = ["heartbeats", "parked", "updates", "read_commits", "resent", "released"];

/// Opens the flows from `from` up to `to`: sends each flow's packet until it has come through.
/// Returns the number of packets sent.
fn open(sender: &Sender, arrivals: &Arrivals, from: usize, to: usize) -> Result<u64> {
    let mut sent = 0;
    for _ in 0..MOST_ROUNDS {
        let missing: Vec<usize> = (from..to).filter(|flow| !arrivals.has(*flow)).collect();
        if missing.is_empty() {
            return Ok(sent);
        }
        for some in missing.chunks(WINDOW) {
            for &flow in some {
                sender.send(flow)?;
                sent += 1;
            }
            let (mut came, mut progress) = (arrivals.count.load(Ordering::Relaxed), Instant::now());
            while some.iter().any(|flow| !arrivals.has(*flow)) && progress.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_micros(500));
                let now = arrivals.count.load(Ordering::Relaxed);
                if now != came {
                    (came, progress) = (now, Instant::now());
                }
            }
        }
        if lab::interrupt::requested() {
            bail!("interrupted");
        }
    }
    bail!(
        "after {MOST_ROUNDS} rounds {} of {} flows are not open",
        to - arrivals.count.load(Ordering::Relaxed),
        to
    )
}

/// The switch's counters of events.
fn events(lab: &Running) -> Result<BTreeMap<String, u64>> {
    let text = lab.netns(SWITCH)?.run(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9100")?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    })?;
    let event = |line: &str| {
        let (name, value) =
            line.strip_prefix("stateplane_flow_events_total{event=\"")?.split_once("\"} ")?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    let mut found: BTreeMap<String, u64> = text.lines().filter_map(event).collect();
    let flows = text
        .lines()
        .find_map(|line| line.strip_prefix("stateplane_flows{")?.rsplit(' ').next()?.parse().ok());
    found.insert("flows".to_owned(), flows.context("no stateplane_flows in the switch's metrics")?);
    Ok(found)
}

/// Resident memory of the head, in bytes.
fn store_bytes(lab: &Running) -> Result<u64> {
    let daemons = lab.daemons("store1");
    let (_, identity) =
        daemons.iter().find(|(name, _)| name == "store").context("store1 has no store")?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", identity.pid))?;
    let kib = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    Ok(kib.context("no VmRSS")? << 10)
}

/// Runs `work`, which returns the number of its packets. Returns the messages a second meanwhile,
/// by kind, and the packets a second.
fn rates(
    lab: &Running,
    work: impl FnOnce() -> Result<u64>,
) -> Result<(BTreeMap<&'static str, f64>, f64)> {
    let before = events(lab)?;
    let start = Instant::now();
    let packets = work()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = events(lab)?;
    let rate = |name: &&'static str| (*name, (after[*name] - before[*name]) as f64 / seconds);
    Ok((SENT.iter().map(rate).collect(), packets as f64 / seconds))
}

struct Measured {
    flows: usize,
    open_s: f64,
    packets: u64,
    idle: BTreeMap<&'static str, f64>,
    busy: BTreeMap<&'static str, f64>,
    busy_packets: f64,
    held: u64,
    store_bytes: u64,
}

/// Has `work` done while arrivals are noted, of so many flows at the most.
fn with_arrivals<T>(
    lab: &Running,
    most: usize,
    work: impl FnOnce(&Sender, &Arrivals) -> Result<T>,
) -> Result<T> {
    let ((_, inside), (interface, outside)) = (lab.host_port("inside")?, lab.host_port("outside")?);
    // What arrives is read from the interface; nobody listens, and nothing is answered.
    lab.run("outside", &["nft", "add table ip sink; add chain ip sink in { type filter hook prerouting priority -300; }; add rule ip sink in udp dport >= 30000 drop"])?;
    let arrivals = Arrivals::new(most);
    let space = lab.netns("outside")?;
    let sender = lab.netns("inside")?.run(|| Sender::open(inside, outside))?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| space.run(|| arrivals.receive(&interface)));
        let result = work(&sender, &arrivals);
        arrivals.stop.store(true, Ordering::Relaxed);
        receiver
            .join()
            .map_err(|_| anyhow::anyhow!("the receiver panicked"))?
            .context("receiver")?;
        result
    })
}

/// Nothing is sent for so long.
fn silence(time: Duration) -> Result<u64> {
    std::thread::sleep(time);
    Ok(0)
}

fn measure(
    context: &Context,
    lab: &Running,
    counts: &[usize],
    time: Duration,
) -> Result<Vec<Measured>> {
    with_arrivals(lab, counts.last().copied().unwrap_or(0), |sender, arrivals| {
        let (mut measured, mut opened) = (Vec::new(), 0);
        for &flows in counts {
            let start = Instant::now();
            let packets = open(sender, arrivals, opened, flows)?;
            let open_s = start.elapsed().as_secs_f64();
            context.say(&format!(
                "{flows} flows: {} opened in {open_s:.1} s by {packets} packets",
                flows - opened
            ));
            let (idle, _) = rates(lab, || silence(time))?;
            let (busy, busy_packets) =
                rates(lab, || Ok(sender.send_evenly(flows, flows as f64 * UPDATED, time)?))?;
            let held = events(lab)?["flows"];
            ensure!(held >= flows as u64, "the switch holds {held} of {flows} flows");
            context.say(&format!("{flows} flows: idle {idle:.1?}, 1 % a second {busy:.1?}"));
            opened = flows;
            let store_bytes = store_bytes(lab)?;
            measured.push(Measured {
                flows,
                open_s,
                packets,
                idle,
                busy,
                busy_packets,
                held,
                store_bytes,
            });
        }
        Ok(measured)
    })
}

/// What becomes of flows that go back to the store for want of packets, as they do by default.
struct GivenBack {
    flows: usize,
    /// From the last packet until the switch had none of them any more, in seconds.
    gone_s: f64,
    /// Releases that it took.
    released: u64,
    /// Messages a second when they were gone, and when packets came for 1 % of them each second.
    silent: BTreeMap<&'static str, f64>,
    busy: BTreeMap<&'static str, f64>,
    /// Packets then, a second; in all; of these, how many came out; of these, how many had another
    /// number than the flow's next.
    busy_packets: f64,
    sent: u64,
    came: u64,
    anew: u64,
}

fn give_back(context: &Context, flows: usize, time: Duration) -> Result<GivenBack> {
    // (`release_after_s` of this lab is the product's default.)
    let vars = &[("flows", "1048576")];
    let wanted = Wanted {
        file: "systems/redplane/lab/flow_counter.toml",
        mode: "replicated",
        prefer: Some(SWITCH),
        vars,
    };
    let lab = Running::up(context, wanted)?;
    lab.fail("s2")?;
    with_arrivals(&lab, flows, |sender, arrivals| {
        open(sender, arrivals, 0, flows)?;
        let (start, before) = (Instant::now(), events(&lab)?["released"]);
        context.say(&format!("{flows} flows opened; silent until the switch has given all back"));
        while events(&lab)?["flows"] > 0 {
            ensure!(
                start.elapsed() < GIVEN_BACK_WITHIN,
                "the switch still has {} flows",
                events(&lab)?["flows"]
            );
            if lab::interrupt::requested() {
                bail!("interrupted");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let gone_s = start.elapsed().as_secs_f64();
        let released = events(&lab)?["released"] - before;
        let (silent, _) = rates(&lab, || silence(time))?;
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (came, backwards, mut sent) = (count(&arrivals.packets), count(&arrivals.backwards), 0);
        let (busy, busy_packets) = rates(&lab, || {
            sent = sender.send_evenly(flows, flows as f64 * UPDATED, time)?;
            // The last ones' round trips.
            std::thread::sleep(PATIENCE);
            Ok(sent)
        })?;
        let (came, anew) =
            (count(&arrivals.packets) - came, count(&arrivals.backwards) - backwards);
        context.say(&format!("{flows} flows given back within {gone_s:.0} s: silent {silent:.1?}, 1 % a second {busy:.1?}; {came} of {sent} came"));
        Ok(GivenBack { flows, gone_s, released, silent, busy, busy_packets, sent, came, anew })
    })
}

/// What the kernel accounts for the switch's flow table, in bytes.
fn table_bytes(lab: &Running, flows: u64) -> Result<u64> {
    let maps: Value = serde_json::from_str(&lab.run(SWITCH, &["bpftool", "-j", "map", "list"])?)?;
    let maps = maps.as_array().context("bpftool lists no maps")?;
    let sizes = maps.iter().filter(|map| map["type"] == "hash" && map["max_entries"] == flows);
    sizes
        .filter_map(|map| map["bytes_memlock"].as_u64())
        .max()
        .context("no map has as many entries as the flow table")
}

/// Runs it.
///
/// # Errors
/// The lab does not come up, or flows cannot be opened.
fn run(context: &Context) -> Result<Outcome> {
    const TABLE: u64 = 1 << 20;
    let counts: &[usize] = context.pick(&[1_000, 10_000, 100_000], &[1_000, 100_000, 1_000_000]);
    let time = Duration::from_secs(context.pick(3, 10));
    let wanted = Wanted {
        file: "systems/redplane/lab/flow_counter.toml",
        mode: "replicated",
        prefer: Some(SWITCH),
        vars: &[("flows", "1048576"), ("release_after_s", "7200")],
    };
    let lab = Running::up(context, wanted)?;
    // On a busy machine BFD may take s1 for dead for a moment: its flows shall not go elsewhere
    // then.
    lab.fail("s2")?;
    let empty_store = store_bytes(&lab)?;
    let table = table_bytes(&lab, TABLE)?;
    let measured = measure(context, &lab, counts, time)?;
    drop(lab);
    let given_back = give_back(context, context.pick(10_000, 100_000), time)?;
    outcome(&measured, &given_back, table as f64 / TABLE as f64, empty_store)
}

/// `few`: heartbeats a second of few flows.
fn given_back_rows(given: &GivenBack, few: f64) -> Vec<Row> {
    let flows = given.flows;
    let others = |of: &BTreeMap<&str, f64>| {
        of.iter().filter(|(name, _)| **name != "heartbeats").map(|(_, rate)| rate).sum::<f64>()
    };
    let one = |value: f64| Summary { low: value, median: value, high: value };
    let text = format!("{} released, within {:.0} s", given.released, given.gone_s);
    let silent = format!(
        "{:.1} heartbeats/s, {:.1} others/s",
        given.silent["heartbeats"],
        others(&given.silent)
    );
    let busy = format!(
        "{:.1} heartbeats/s, {:.0} fetched/s, {:.0} updates/s, {:.1} others/s for {:.0} packets/s",
        given.busy["heartbeats"],
        given.busy["parked"],
        given.busy["updates"],
        others(&given.busy) - given.busy["parked"] - given.busy["updates"],
        given.busy_packets
    );
    let messages = (given.silent["heartbeats"] + others(&given.silent)) / few;
    let came = given.came as f64 / given.sent.max(1) as f64;
    vec![
        Row::text(format!("{flows} flows, default release_after_s, idle: given back"), "", text),
        Row::text(format!("{flows} flows, given back"), "", silent),
        Row::text(format!("{flows} flows, given back, then 1 % used a second"), "", busy),
        Row::value(
            format!("all messages of {flows} flows given back / heartbeats of few"),
            "",
            one(messages),
            2,
            "",
        )
        .with_goal(Goal::AtMost(1.1)),
        Row::value(
            format!("of {} packets of flows given back: came out", given.sent),
            "",
            one(came),
            3,
            "",
        )
        .with_goal(Goal::AtLeast(0.99)),
        Row::value("of these: count did not go on", "", one(given.anew as f64), 0, "")
            .with_goal(Goal::AtMost(0.0)),
    ]
}

fn outcome(
    measured: &[Measured],
    given_back: &GivenBack,
    table_bytes_per_flow: f64,
    empty_store: u64,
) -> Result<Outcome> {
    let mut rows = Vec::new();
    for m in measured {
        let others: f64 =
            m.idle.iter().filter(|(name, _)| **name != "heartbeats").map(|(_, rate)| rate).sum();
        let renewals = 2.0 * m.flows as f64;
        let text = format!("{:.1} heartbeats/s, {others:.1} others/s", m.idle["heartbeats"]);
        rows.push(Row::text(
            format!("{} flows, idle, kept by the switch", m.flows),
            format!("{renewals:.0} renewals/s, if in use"),
            text,
        ));
        let text = format!(
            "{:.1} heartbeats/s, {:.0} updates/s, {:.1} sent again/s, {:.1} others/s for {:.0} packets/s",
            m.busy["heartbeats"],
            m.busy["updates"],
            m.busy["resent"],
            m.busy["parked"] + m.busy["released"] + m.busy["read_commits"],
            m.busy_packets
        );
        rows.push(Row::text(format!("{} flows, kept, 1 % updated a second", m.flows), "", text));
    }
    let (Some(few), Some(many)) = (measured.first(), measured.last()) else {
        bail!("nothing was measured")
    };
    let beats = |of: &BTreeMap<&str, f64>| of["heartbeats"];
    let ratio =
        summary(&[beats(&many.idle) / beats(&few.idle), beats(&many.busy) / beats(&few.idle)]);
    let what =
        format!("heartbeats of {} flows that the switch keeps / of {}", many.flows, few.flows);
    rows.push(Row::value(what, "grows with the flows", ratio, 2, "").with_goal(Goal::AtMost(1.1)));
    rows.extend(given_back_rows(given_back, beats(&few.idle)));
    let per_flow = (many.store_bytes.saturating_sub(empty_store)) as f64 / many.flows as f64;
    rows.push(Row::text(
        "memory of a flow at the switch",
        "",
        format!("{table_bytes_per_flow:.0} bytes"),
    ));
    rows.push(Row::text("memory of a flow at each store", "", format!("{per_flow:.0} bytes")));
    let line = |name: &str, of: fn(&Measured) -> f64| {
        Line::new(name, measured.iter().map(|m| (m.flows as f64, of(m))).collect())
    };
    let axes = Axes {
        title: "Messages a second that keep leases".into(),
        x: "flows".into(),
        y: "messages a second".into(),
        x_log: true,
        y_log: true,
        ..Axes::default()
    };
    let lines = [
        line("heartbeats, idle", |m| m.idle["heartbeats"].max(0.1)),
        line("heartbeats, 1 % updated a second", |m| m.busy["heartbeats"].max(0.1)),
        line("updates, 1 % updated a second", |m| m.busy["updates"].max(0.1)),
        line("RedPlane's rule: each flow in use, each 0.5 s", |m| 2.0 * m.flows as f64),
    ];
    let svg = plot::lines(&axes, &lines)?;
    let data = measured.iter().map(|m| {
        json!({
            "flows": m.flows, "open_s": m.open_s, "open_packets": m.packets, "idle_per_s": m.idle, "busy_per_s": m.busy,
            "busy_packets_per_s": m.busy_packets, "held": m.held, "store_bytes": m.store_bytes,
        })
    });
    let data = json!({
        "measured": data.collect::<Vec<_>>(),
        "given_back": {
            "flows": given_back.flows, "gone_s": given_back.gone_s, "released": given_back.released, "silent_per_s": given_back.silent,
            "busy_per_s": given_back.busy, "busy_packets_per_s": given_back.busy_packets, "sent": given_back.sent, "came": given_back.came,
            "count_did_not_go_on": given_back.anew,
        },
        "switch_bytes_per_flow": table_bytes_per_flow, "store_bytes_per_flow": per_flow,
    });
    let opened: Vec<String> = measured
        .iter()
        .map(|m| format!("{} flows after another {:.1} s", m.flows, m.open_s))
        .collect();
    let notes = vec![format!(
        "Opened: {}; at most {WINDOW} packets on their way at once.",
        opened.join(", ")
    )];
    Ok(Outcome { rows, notes, figures: vec![Figure { name: "sessions".into(), svg }], data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_begins_anew_is_seen() {
        let arrivals = Arrivals::new(100);
        for (flow, number) in [(7, 1), (7, 2), (8, 1), (8, 1), (7, 1), (100, 1)] {
            arrivals.note(flow, number);
        }
        assert!(arrivals.has(7) && arrivals.has(8) && !arrivals.has(9));
        assert_eq!(arrivals.count.load(Ordering::Relaxed), 2);
        assert_eq!(
            (arrivals.packets.load(Ordering::Relaxed), arrivals.backwards.load(Ordering::Relaxed)),
            (5, 2)
        );
    }

    #[test]
    fn flows_given_back_reach_their_goals_only_if_they_cost_nothing_and_come_back_whole() {
        let reached = |parked: f64, came: u64, anew: u64| -> Vec<Option<bool>> {
            let rates = |parked: f64| {
                SENT.map(|name| {
                    (
                        name,
                        match name {
                            "heartbeats" => 10.0,
                            "parked" => parked,
                            _ => 0.0,
                        },
                    )
                })
                .into()
            };
            let given = GivenBack {
                flows: 10_000,
                gone_s: 64.0,
                released: 10_000,
                silent: rates(parked),
                busy: rates(100.0),
                busy_packets: 100.0,
                sent: 300,
                came,
                anew,
            };
            given_back_rows(&given, 10.0)[3..].iter().map(|row| row.reached).collect()
        };
        assert_eq!(reached(0.0, 300, 0), [Some(true); 3]);
        assert_eq!(reached(5.0, 290, 1), [Some(false); 3]);
    }
}
