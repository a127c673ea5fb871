//! Forwarding on one CPU and on two: what programs that share their state lose.

use super::{Context, Experiment, Page};
use crate::network::Network;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, summary};
use crate::systems::System;
use crate::traffic::{self, Carried, Cpus, Offered};
use anyhow::{Result, ensure};
use plot::{Axes, Group};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cores",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Many cores",
        title: "packets a second on one CPU and on two",
        quick: "40 s",
        full: "2 min",
        shows: "\
            packets a second on two CPUs over twice those on one: NAT, hand-written NAT, a counter \
            that each packet updates, a sketch that all packets share",
        paper: "\
            The papers' switches have no cores: each pipeline stage changes its registers in order.",
        method: "\
            Generator, program and sink run on each CPU, through veth links with a queue for each \
            CPU (64-byte UDP packets of 1,024 flows). One CPU, two that have half of the flows \
            each, and two that both have all flows, take turns; \"scaling\" is packets a second of \
            two over twice those of one, so 1 is linear. State is kept in the switch: bindings \
            that are only read (NAT), a flow's entry that each packet changes under its lock \
            (counter), and the sketches of one tenant, which all packets change under one lock \
            (heavy hitter). Hand-written C shows what links, routes and the machine's memory allow: \
            two CPUs of a virtual machine may be two threads of one core.",
    },
};

const FLOWS: u32 = 1_024;
/// Both directions of the most conversations.
const ENTRIES: u32 = 65_536;
const WINDOW: Duration = Duration::from_millis(200);
const CPUS: [Cpus; 3] =
    [Cpus::ONE, Cpus { count: 2, own_flows: true }, Cpus { count: 2, own_flows: false }];
const WAYS: [&str; 3] =
    ["one CPU", "two CPUs, half of the flows each", "two CPUs, all flows on both"];

struct Objects {
    nat: PathBuf,
    linearizable: PathBuf,
    hand_written: PathBuf,
    counter: PathBuf,
    sketch: PathBuf,
    traffic: PathBuf,
}

fn build(context: &Context) -> Result<Objects> {
    let places = &context.places;
    let entries = format!("NAT_ENTRIES={ENTRIES}");
    Ok(Objects {
        nat: places.compile_p4("nat", "cores_nat", &["NAT_LOCAL", &entries])?,
        linearizable: places.compile_p4("nat", "cores_nat_linearizable", &[&entries])?,
        hand_written: places.compile_c("nat_handwritten")?,
        counter: places.compile_p4("flow_counter", "cores_counter", &["COUNTER_LOCAL"])?,
        sketch: places.compile_p4("heavy_hitter", "cores_sketch", &["HEAVY_HITTER_LOCAL"])?,
        traffic: places.compile_c("traffic")?,
    })
}

fn systems(objects: &Objects, network: &Network) -> Result<Vec<System>> {
    Ok(vec![
        System::hand_written(&objects.hand_written, ENTRIES, network)?,
        System::p4("NAT", &objects.nat, network)?,
        System::p4("NAT, linearizable", &objects.linearizable, network)?,
        System::plain("counter", &objects.counter, network)?,
        System::plain("heavy hitter, one tenant", &objects.sketch, network)?,
    ])
}

fn scaling(two: &Carried, one: &Carried) -> Summary {
    let pairs = two.samples.iter().zip(&one.samples);
    summary(&pairs.map(|(two, one)| two / (2.0 * one)).collect::<Vec<_>>())
}

fn run(context: &Context) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "cores: this machine has one CPU; the experiment needs two");
    let objects = build(context)?;
    let rounds = context.pick(5, 15);
    let network = Network::with_queues(2)?;
    let carried = network.translator.inside(|| {
        let mut systems = systems(&objects, &network)?;
        let offered = Offered { flows: FLOWS, rounds, window: WINDOW, cpus: &CPUS };
        traffic::measure(&mut systems, &objects.traffic, &network, offered, |round| {
            context.progress("packets a second, round", round, rounds);
        })
    })??;
    let [one, own, shared] = &carried[..] else { unreachable!("three ways") };
    let mut outcome = Outcome::default();
    let mut groups = Vec::new();
    for (number, alone) in one.iter().enumerate() {
        let ways = [(WAYS[1], &own[number]), (WAYS[2], &shared[number])];
        for (way, two) in ways {
            let what = format!("{}: scaling, {way}", alone.system);
            outcome.rows.push(Row::value(what, "", scaling(two, alone), 3, ""));
        }
        let bars = [alone, &own[number], &shared[number]].map(|it| {
            let Summary { low, median, high } = it.packets_per_second;
            Some((median / 1e6, low / 1e6, high / 1e6))
        });
        groups.push(Group { name: alone.system.clone(), bars: bars.to_vec() });
        let Summary { low, median, high } = alone.packets_per_second;
        let mega = Summary { low: low / 1e6, median: median / 1e6, high: high / 1e6 };
        let what = format!("{}: one CPU", alone.system);
        outcome.rows.push(Row::value(what, "", mega, 3, "M packets/s"));
    }
    let axes = Axes {
        title: "Forwarding on one CPU and on two".into(),
        y: "M packets a second".into(),
        ..Axes::default()
    };
    let svg = plot::bars(&axes, &WAYS, &groups)?;
    outcome.figures = vec![Figure { name: "cores".into(), svg }];
    outcome.data = json!({ "rounds": rounds, "flows": FLOWS, "ways": WAYS, "carried": carried });
    Ok(outcome)
}
