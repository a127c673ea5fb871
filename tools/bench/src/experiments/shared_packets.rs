//! What a packet costs in a program whose state is shared, over the same program with state of its
//! own (SwiSh §9.1: no overhead for packets that read).

use super::{Context, Experiment, Page};
use crate::flows::{Flow, flow};
use crate::frame::UDP;
use crate::kernel;
use crate::network::Network;
use crate::per_packet::{self, Effort, Measured};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::shared::live::{self, Function, Live};
use crate::systems::System;
use anyhow::Result;
use plot::{Axes, Group};
use serde_json::json;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-packets",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, packet path",
        title: "what a packet costs when its state is shared",
        quick: "1 min",
        full: "6 min",
        shows: "\
            CPU time of a packet in a firewall, a rate limiter and a detector whose state is \
            shared, over that in the same programs with state of their own",
        paper: "\
            SwiSh §9.1: packets that read replicated state cost the same as without replication, \
            and so do updates with EWO and SDW: all is done at line rate.",
        method: "\
            CPU time by BPF_PROG_RUN, as in the NAT's experiment: the programs take turns of \
            25,000 packets, the replay's own part is taken off, and ratios are of one round. The \
            firewall's connections are written before (SRO: settled, so reads are local); its \
            local form has them in a FlowState without fault tolerance. Limiter and detector run \
            in the switches of labs that are up, with windows of 10 ms or with mirroring and \
            gossip, and with registers of their own. All packets of the limiter update two \
            counters and read them. Packets of the detector read five cells, and write only new \
            destinations.",
    },
};

const READ: Goal = Goal::AtMost(1.05);
const UPDATE: Goal = Goal::AtMost(1.2);
const CONNECTIONS: u32 = 1024;
const PERIOD_US: u32 = 10_000;

const fn shared(name: &'static str, program: &'static str, define: &'static str) -> Function {
    Function { name, program, define, mode: "shared", period_us: PERIOD_US }
}

const fn alone(name: &'static str, program: &'static str, define: &'static str) -> Function {
    Function { mode: "alone", ..shared(name, program, define) }
}

/// The last one of each is local.
const FUNCTIONS: [&[Function]; 2] = [
    &[
        shared("limiter, EWO", "limiter", "LIMITER_EWO"),
        shared("limiter, SDW", "limiter", "LIMITER_SDW"),
        alone("limiter, local", "limiter", "LIMITER_LOCAL"),
    ],
    &[
        shared("detector, SDW", "detector", "DETECTOR_SDW"),
        alone("detector, local", "detector", "DETECTOR_LOCAL"),
    ],
];

fn firewalls(context: &Context, effort: Effort) -> Result<Vec<Measured>> {
    let places = &context.places;
    let compile =
        |system, name, defines: &[&str]| places.compile_p4_of(system, "firewall", name, defines);
    let shared = compile("swish", "firewall_shared", &[])?;
    let local = compile("redplane", "firewall_local", &["FIREWALL_LOCAL"])?;
    let traffic = places.compile_c("traffic")?;
    // (Nothing is translated.)
    let same = |number| {
        let flow = flow(number, UDP);
        Flow { external: flow.inside, ..flow }
    };
    let flows: Vec<Flow> = (0..CONNECTIONS).map(same).collect();
    let network = Network::create()?;
    network.translator.inside(|| {
        kernel::pin_to_cpu(0)?;
        let mut systems = vec![
            System::firewall("firewall, SRO", &shared, &network)?,
            System::firewall("firewall, local", &local, &network)?,
        ];
        // A veth has receive queues that frames can be said to come from only while it runs a
        // program.
        let _attached = systems[0].attach(&network)?;
        per_packet::measure_flows(&systems, &traffic, &network, &flows, effort, |round| {
            context.progress("firewall, round", round, effort.rounds);
        })
    })?
}

fn functions(context: &Context, functions: &[Function], effort: Effort) -> Result<Vec<Measured>> {
    let places = &context.places;
    let traffic = places.compile_c("traffic")?;
    let up = |function: &Function| Live::up(&places.stateplane, &traffic, *function);
    let all: Vec<Live> = functions.iter().map(up).collect::<Result<_>>()?;
    let what = format!("{}, round", functions[0].program);
    live::measure(&all, effort, |round| context.progress(&what, round, effort.rounds))
}

fn run(context: &Context) -> Result<Outcome> {
    let effort = Effort { rounds: context.pick(7, 21), packets: context.pick(300_000, 1_000_000) };
    let mut all = vec![(firewalls(context, effort)?, READ, "settled reads")];
    for each in FUNCTIONS {
        all.push((functions(context, each, effort)?, UPDATE, "updates"));
    }
    let mut outcome = Outcome::default();
    for (measured, goal, what) in &all {
        let Some((local, shared)) = measured.split_last() else { continue };
        for shared in shared {
            let ratio = per_packet::ratio(shared, local);
            let what = format!("{} / local, {what}", shared.system);
            outcome.rows.push(Row::value(what, "1", ratio, 3, "").with_goal(*goal));
        }
    }
    for measured in all.iter().flat_map(|(measured, ..)| measured) {
        outcome.rows.push(Row::value(&measured.system, "", measured.ns, 0, "ns"));
    }
    outcome.figures.push(figure(all.iter().flat_map(|(measured, ..)| measured))?);
    let data = all.iter().flat_map(|(measured, ..)| measured);
    outcome.data =
        json!(data.map(|it| json!({ "system": it.system, "ns": it.samples })).collect::<Vec<_>>());
    Ok(outcome)
}

fn figure<'a>(measured: impl Iterator<Item = &'a Measured>) -> Result<Figure> {
    let group = |it: &Measured| Group {
        name: it.system.clone(),
        bars: vec![Some((it.ns.median, it.ns.low, it.ns.high))],
    };
    let groups: Vec<Group> = measured.map(group).collect();
    let axes = Axes {
        title: "CPU time of a packet, state shared and local".into(),
        y: "ns a packet".into(),
        ..Axes::default()
    };
    Ok(Figure { name: "shared-packets".into(), svg: plot::bars(&axes, &["packet"], &groups)? })
}
