//! Figure 8: round-trip times through a NAT.

use super::{Context, Experiment, Page};
use crate::controller::{ControlledNat, Place};
use crate::labs::{Running, Wanted};
use crate::probe::{Path, Probe, Shape, Times};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{quantile, ratio_summary, summary};
use crate::trace::{self, Played};
use anyhow::{Context as _, Result, anyhow, bail};
use lab::Topology;
use plot::{Axes, Line};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig08",
    plays_a_trace: true,
    run,
    page: Page {
        figure: "Figure 8",
        title: "round-trip times through a NAT, against other ways to build one",
        quick: "20 s",
        full: "3 min",
        shows: "\
            round trips through a NAT, also with an external controller, nftables, nftables + \
            conntrackd (FT-FW)",
        paper: "\
            RedPlane §7.1: 100,000 packets of data-centre traces (64 to 1500 bytes). RedPlane's \
            NAT has the same 50th and 90th percentile as the NAT without fault tolerance (7 and 8 \
            µs); its 99th is 142 µs beside 110 µs, as the first packet of a flow asks the store. \
            With an external controller, replicated to three, the 99th percentile is 185 µs. NATs \
            on servers have 7 to 14 times the median.",
        method: "\
            100,000 packets of a seeded trace: UDP, Zipf flow sizes, 64 to 1500 bytes, and 2,000 \
            flows that begin all along, so that the 99th percentile is that of first packets. Each \
            of these sends the stores, the router between and the switch's reply through the \
            caches that the packets after it find: they have the CPUs of the switch here, and of \
            themselves in the paper. So the median of packets that come long after is told, too. \
            (With --pcap the packets are a capture's instead, which a note names: its \
            conversations and lengths in its order.) All systems run in \
            systems/redplane/lab/nat.toml at the same time, on switch s1, and take turns of some \
            thousand packets. Packets enter at the router before the switch by a packet socket, \
            are sent back by an XDP program on the router behind it, and are timed in the kernel \
            when they are back (tools/bench/setups/probe.c), one at a time: no host's network \
            stack and no process that must wake up is in the figure, which holds two passes \
            through the switch.\n\n\
            The external controller is a simple honest one (tools/bench/src/controller.rs): \
            hand-written XDP whose first packets go up to an agent on the switch, which asks a \
            controller on another host; that one copies the binding to two more, in a chain, \
            before it answers. nftables runs in the same lab on the same links (same MTUs, no \
            flowtable, no XDP on the side where packets come in; on the other side a program that \
            lets all pass, as a veth needs one to take what XDP sends back). That every packet of \
            every system reached the far side with a source of the pool is checked. A packet \
            socket's frames must be copied for XDP on the first link, nftables' on the second: the \
            ratio between them understates XDP. nftables + conntrackd is the kernel's NAT with \
            FT-FW synchronisation to s2 (asynchronous: it holds no packet back).",
    },
};

/// Which packets are in the trace besides those of known flows: one in so many begins a flow.
const PACKETS_A_FLOW: u32 = 50;
/// A flow's first packet goes to the stores, which share this machine's caches with the switch. For
/// up to this many packets after it the switch is slower.
const SETTLED_AFTER: usize = 80;
/// The line that is measured: s1 between its two routers.
const PATH: Path = Path { near: "tor", switch: "s1", far: "core" };
const PERCENTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// What is added to the lab.
#[derive(Clone, Copy, PartialEq)]
enum Addition {
    Nothing,
    Controller,
    Conntrackd,
}

struct System {
    name: &'static str,
    mode: &'static str,
    addition: Addition,
    /// The paper's counterpart, and its percentiles in microseconds.
    paper: [&'static str; 3],
}

const SYSTEMS: [System; 5] = [
    System {
        name: "stateplane",
        mode: "replicated",
        addition: Addition::Nothing,
        paper: ["7 µs", "8 µs", "142 µs"],
    },
    System {
        name: "P4, no fault tolerance",
        mode: "plain",
        addition: Addition::Nothing,
        paper: ["7 µs", "8 µs", "110 µs"],
    },
    System {
        name: "external controller",
        mode: "nftables",
        addition: Addition::Controller,
        paper: ["", "", "185 µs"],
    },
    System {
        name: "nftables",
        mode: "nftables",
        addition: Addition::Nothing,
        paper: ["7–14 times", "", ""],
    },
    System {
        name: "nftables + conntrackd",
        mode: "nftables",
        addition: Addition::Conntrackd,
        paper: ["7–14 times", "", ""],
    },
];

/// Their places in [`SYSTEMS`].
const STATEPLANE: usize = 0;
const CONTROLLER: usize = 2;

/// A system that is up. Fields end in the order in which they stand.
struct Up {
    probe: Probe,
    _controller: Option<ControlledNat>,
    _lab: Running,
}

/// Starts conntrackd on both switches, with the configuration of
/// tools/bench/setups/conntrackd.toml, over the fabric.
fn start_conntrackd(context: &Context, lab: &Running) -> Result<()> {
    let topology = Topology::read(&context.places.root.join("tools/bench/setups/conntrackd.toml"))?;
    for (node, other) in [("s1", "s2"), ("s2", "s1")] {
        let daemons = topology.node.get(node).map_or(&[][..], |n| &n.daemon);
        let config =
            daemons.iter().find(|d| d.name == "conntrackd").and_then(|d| d.config.as_ref());
        let address = |node: &str| -> Result<String> {
            let loopback = lab
                .node(node)?
                .loopback
                .as_deref()
                .context("a switch without a loopback address")?;
            Ok(loopback.trim_end_matches("/32").to_owned())
        };
        let directory = lab.node_dir(node);
        let vars = [
            ("sync_own", address(node)?),
            ("sync_other", address(other)?),
            ("other", "tor".to_owned()),
            ("node_dir", directory.display().to_string()),
        ];
        let vars = vars.map(|(name, value)| (name.to_owned(), value)).into();
        let text = lab::template::expand(
            config.context("tools/bench/setups/conntrackd.toml has no conntrackd")?,
            &vars,
        )
        .map_err(anyhow::Error::msg)?;
        let path = directory.join("conntrackd.toml");
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        let command = ["conntrackd".to_owned(), "-C".to_owned(), path.display().to_string()];
        lab::process::spawn(&lab.netns(node)?, &command, &lab.log(node, "conntrackd"))?;
    }
    Ok(())
}

fn bring_up(context: &Context, system: &System) -> Result<Up> {
    let lab = Running::up(
        context,
        Wanted {
            file: "systems/redplane/lab/nat.toml",
            mode: system.mode,
            prefer: Some("s1"),
            vars: &[],
        },
    )?;
    let mut controller = None;
    match system.addition {
        Addition::Nothing => {}
        Addition::Conntrackd => start_conntrackd(context, &lab)?,
        Addition::Controller => {
            let object = context.places.compile_c_as(
                "nat_handwritten",
                "nat_controller",
                &["WITH_CONTROLLER=1".to_owned()],
            )?;
            let place = Place {
                switch: "s1",
                inside: "tor",
                outside: "core",
                controllers: ["store1", "store2", "store3"],
            };
            controller = Some(ControlledNat::start(&lab, &object, &place)?);
        }
    }
    let probe = Probe::new(&context.places, &lab, PATH, Shape::UDP)?;
    Ok(Up { probe, _controller: controller, _lab: lab })
}

/// Which packets come long after the last one that began a flow.
fn settled(frames: &[Vec<u8>]) -> Vec<bool> {
    let (mut known, mut since) = (HashSet::new(), 0);
    let mut settled = |frame: &Vec<u8>| {
        // IPv4 addresses and ports.
        since = if known.insert(frame.get(26..38).map(<[u8]>::to_vec)) { 0 } else { since + 1 };
        since > SETTLED_AFTER
    };
    frames.iter().map(&mut settled).collect()
}

fn rows(times: &[Vec<Times>], settled: &[bool], slice_packets: usize) -> Vec<Row> {
    let percentiles = |system: usize, fraction: f64| -> Vec<f64> {
        times[system].iter().map(|slice| quantile(&slice.sorted(), fraction)).collect()
    };
    let settled_medians = |system: usize| -> Vec<f64> {
        let slices = times[system].iter().zip(settled.chunks(slice_packets));
        slices
            .filter_map(|(slice, settled)| {
                let us = slice
                    .us
                    .iter()
                    .zip(settled)
                    .filter_map(|(us, settled)| us.filter(|_| *settled));
                let us: Vec<f64> = us.collect();
                (!us.is_empty()).then(|| summary(&us).median)
            })
            .collect()
    };
    let mut rows = Vec::new();
    for (fraction, paper) in [(0.5, "1"), (0.9, "1"), (0.99, "1.29")] {
        let ratio = ratio_summary(&percentiles(0, fraction), &percentiles(1, fraction));
        let what = format!(
            "stateplane / P4 without fault tolerance, {:.0}th percentile",
            fraction * 100.0
        );
        let row = Row::value(what, paper, ratio, 3, "");
        rows.push(if fraction == 0.5 { row.with_goal(Goal::AtMost(1.03)) } else { row });
        if fraction == 0.5 {
            let ratio = ratio_summary(&settled_medians(0), &settled_medians(1));
            let what =
                format!("the same, packets more than {SETTLED_AFTER} after one that began a flow");
            rows.push(Row::value(what, "", ratio, 3, ""));
        }
    }
    let ratio = ratio_summary(&percentiles(STATEPLANE, 0.99), &percentiles(CONTROLLER, 0.99));
    let what = "stateplane / external controller, 99th percentile: first packets";
    rows.push(Row::value(what, "0.77", ratio, 3, "").with_goal(Goal::AtMost(1.0)));
    for (index, system) in SYSTEMS.iter().enumerate() {
        for (fraction, paper) in PERCENTILES.into_iter().zip(system.paper) {
            let what = format!("{}, {:.0}th percentile", system.name, fraction * 100.0);
            rows.push(Row::value(what, paper, summary(&percentiles(index, fraction)), 1, "µs"));
        }
    }
    rows
}

fn pooled(slices: &[Times]) -> Vec<f64> {
    let mut all: Vec<f64> =
        slices.iter().flat_map(|slice| slice.us.iter().flatten().copied()).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn figure(times: &[Vec<Times>]) -> Result<Figure> {
    let lines: Vec<Line> = SYSTEMS
        .iter()
        .zip(times)
        .map(|(system, slices)| Line::new(system.name, plot::distribution(&pooled(slices))))
        .collect();
    let axes = Axes {
        title: "Round trip through the NAT, twice through the switch".into(),
        x: "µs".into(),
        y: "share of packets".into(),
        x_log: true,
        ..Axes::default()
    };
    Ok(Figure { name: "fig08".into(), svg: plot::lines(&axes, &lines)? })
}

/// Runs it.
///
/// # Errors
/// A lab does not come up, or packets do not come back.
fn run(context: &Context) -> Result<Outcome> {
    lab::instance::require_program("conntrackd", "conntrackd")?;
    let (slices, slice_packets) = context.pick((5, 1_000), (20, 5_000));
    // What is wrong with a capture is said before anything is brought up.
    let packets = slices * slice_packets;
    let Played { frames, capture } = trace::play(context, packets, packets / PACKETS_A_FLOW)?;
    let packets = frames.len();
    let slice_packets = packets.div_ceil(slices as usize);
    // All at once: labs mostly wait while they come up.
    let mut ups = std::thread::scope(|scope| {
        let starting = SYSTEMS
            .each_ref()
            .map(|system| scope.spawn(|| bring_up(context, system).with_context(|| system.name)));
        let up = starting
            .map(|up| up.join().unwrap_or_else(|_| Err(anyhow!("bringing up a lab panicked"))));
        up.into_iter().collect::<Result<Vec<Up>>>()
    })?;
    let mut times: Vec<Vec<Times>> = SYSTEMS.iter().map(|_| Vec::new()).collect();
    for (slice, frames) in frames.chunks(slice_packets).enumerate() {
        for position in 0..SYSTEMS.len() {
            let index = (position + slice) % SYSTEMS.len();
            let sent = ups[index].probe.send_all(&mut frames.to_vec());
            times[index].push(sent.with_context(|| SYSTEMS[index].name)?);
        }
        context.progress("turns of all systems", slice as u32 + 1, slices);
    }
    for (system, up) in SYSTEMS.iter().zip(&ups) {
        let (all, translated) = up.probe.reflected()?;
        if all == 0 || translated != all {
            bail!("{}: {} of {all} packets came out untranslated", system.name, all - translated);
        }
    }
    let mut notes = Vec::new();
    let mut data = serde_json::Map::new();
    if let Some((note, described)) = capture {
        notes.push(note);
        data.insert("pcap".to_owned(), described);
    }
    for (system, slices) in SYSTEMS.iter().zip(&times) {
        let (all, lost) = (pooled(slices), slices.iter().map(Times::lost).sum::<usize>());
        if lost > 0 {
            notes.push(format!(
                "{}: {lost} of {packets} packets did not come back within 200 ms.",
                system.name
            ));
        }
        let points = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0];
        let described: Vec<Value> = points.iter().map(|p| json!([p, quantile(&all, *p)])).collect();
        data.insert(
            system.name.to_owned(),
            json!({ "packets": packets, "lost": lost, "percentiles_us": described }),
        );
    }
    let rows = rows(&times, &settled(&frames), slice_packets);
    Ok(Outcome { rows, notes, figures: vec![figure(&times)?], data: Value::Object(data) })
}
