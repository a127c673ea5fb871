//! The NAT's packet path: P4 with linearizable bindings, P4 with local ones, hand-written C,
//! nftables.

use super::{Context, Experiment, Page};
use crate::build::Places;
use crate::network::Network;
use crate::per_packet::{self, Effort};
use crate::report::{Goal, PerPacket, Ratio, Report, Traffic};
use crate::results::{Figure, Outcome, Row};
use crate::statistics::Summary;
use crate::systems::System;
use crate::{kernel, traffic};
use anyhow::Result;
use plot::{Axes, Group};
use std::path::PathBuf;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "nat",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Packet path",
        title: "\
            the NAT in P4 against itself without fault tolerance, against hand-written C, and \
            against nftables",
        quick: "40 s",
        full: "4 min",
        shows: "\
            the NAT's CPU time per packet: state in the store, state in the switch, hand-written \
            C; packets per second beside nftables",
        paper: "\
            RedPlane §7.2: read-centric applications reach the same throughput with fault \
            tolerance as without. (The paper has no software to compare with: its switches are \
            ASICs.)",
        method: "\
            Established flows only: bindings are written into the maps before, with leases of an \
            hour. (a) and (b) are CPU time a packet by BPF_PROG_RUN: a program writes the next \
            frame of a list (every flow, out and in by turns) over the last and tail-calls the \
            translator; the same with a program that does nothing is subtracted. Systems take \
            turns of 25,000 packets; before timing, frames of each are compared byte by byte with \
            what they must become. (c) is packets a second through veth links and a namespace on \
            one CPU, generator and sink included, so its ratios understate the difference.",
    },
};

/// The least throughput that fault tolerance may leave.
const LINEARIZABLE_GOAL: Goal = Goal::AtLeast(0.97);
/// The most time that compiled P4 may take beside hand-written C.
const HAND_WRITTEN_GOAL: Goal = Goal::AtMost(1.3);
/// Both directions of the most conversations.
const BINDINGS: u32 = 262_144;
/// Milliseconds that traffic is counted for, a round and system.
const TRAFFIC_MS: u64 = 200;

/// How much is measured.
struct Amount {
    effort: Effort,
    flows: &'static [u32],
    traffic_rounds: u32,
    traffic_flows: &'static [u32],
}

struct Objects {
    linearizable: PathBuf,
    local: PathBuf,
    hand_written: PathBuf,
    traffic: PathBuf,
}

fn build(places: &Places) -> Result<Objects> {
    let entries = format!("NAT_ENTRIES={BINDINGS}");
    Ok(Objects {
        linearizable: places.compile_p4("nat", "nat_linearizable", &[&entries])?,
        local: places.compile_p4("nat", "nat_local", &["NAT_LOCAL", &entries])?,
        hand_written: places.compile_c("nat_handwritten")?,
        traffic: places.compile_c("traffic")?,
    })
}

fn systems(objects: &Objects, network: &Network) -> Result<Vec<System>> {
    Ok(vec![
        System::p4("P4, linearizable", &objects.linearizable, network)?,
        System::p4("P4, local", &objects.local, network)?,
        System::hand_written(&objects.hand_written, BINDINGS, network)?,
    ])
}

fn measure_per_packet(
    context: &Context,
    amount: &Amount,
    objects: &Objects,
    report: &mut Report,
) -> Result<()> {
    for &flows in amount.flows {
        let network = Network::create()?;
        let measured = network.translator.inside(|| {
            kernel::pin_to_cpu(0)?;
            let mut systems = systems(objects, &network)?;
            // A veth has receive queues that frames can be said to come from only while it runs a
            // program.
            let _attached = systems[0].attach(&network)?;
            per_packet::measure(
                &systems,
                &objects.traffic,
                &network,
                flows,
                amount.effort,
                |round| {
                    context.progress(
                        &format!("ns a packet, {flows} flows, round"),
                        round,
                        amount.effort.rounds,
                    );
                },
            )
        })??;
        let [linearizable, local, hand_written] = &measured[..] else {
            unreachable!("systems() makes three")
        };
        report.ratios.push(Ratio::new(
            "(a) P4 linearizable / P4 local, throughput",
            flows,
            per_packet::ratio(local, linearizable),
            Some(LINEARIZABLE_GOAL),
        ));
        report.ratios.push(Ratio::new(
            "(b) P4 local / hand-written C, time",
            flows,
            per_packet::ratio(local, hand_written),
            Some(HAND_WRITTEN_GOAL),
        ));
        report.per_packet.push(PerPacket { flows, systems: measured });
    }
    Ok(())
}

fn measure_traffic(
    context: &Context,
    amount: &Amount,
    objects: &Objects,
    report: &mut Report,
) -> Result<()> {
    for &flows in amount.traffic_flows {
        let network = Network::create()?;
        let carried = network.translator.inside(|| {
            let mut systems = systems(objects, &network)?;
            systems.push(System::nftables(&objects.traffic, &network)?);
            let rounds = amount.traffic_rounds;
            let offered = traffic::Offered {
                flows,
                rounds,
                window: Duration::from_millis(TRAFFIC_MS),
                cpus: &[traffic::Cpus::ONE],
            };
            traffic::measure(&mut systems, &objects.traffic, &network, offered, |round| {
                context.progress(&format!("packets a second, {flows} flows, round"), round, rounds);
            })
        })??;
        let carried = carried.into_iter().next().unwrap_or_default();
        let [linearizable, local, hand_written, nftables] = &carried[..] else {
            unreachable!("four systems")
        };
        for (what, above, below) in [
            ("(c) P4 linearizable / nftables, traffic", linearizable, nftables),
            ("(c) P4 local / nftables, traffic", local, nftables),
            ("P4 linearizable / P4 local, traffic", linearizable, local),
            ("P4 local / hand-written C, traffic", local, hand_written),
        ] {
            report.ratios.push(Ratio::new(what, flows, traffic::ratio(above, below), None));
        }
        report.traffic.push(Traffic { flows, systems: carried });
    }
    Ok(())
}

fn rows(report: &Report) -> Vec<Row> {
    let mut rows = Vec::new();
    for ratio in &report.ratios {
        let paper = if ratio.what.starts_with("(a)") { "1 (RedPlane §7.2)" } else { "" };
        let what = format!("{}, {} flows", ratio.what, ratio.flows);
        let row = Row::value(what, paper, ratio.ratio, 3, "");
        rows.push(match ratio.goal {
            Some(goal) => row.with_goal(goal),
            None => row,
        });
    }
    for PerPacket { flows, systems } in &report.per_packet {
        for system in systems {
            rows.push(Row::value(
                format!("{}, {flows} flows, CPU time a packet", system.system),
                "",
                system.ns,
                1,
                "ns",
            ));
        }
    }
    for Traffic { flows, systems } in &report.traffic {
        for system in systems {
            let rate = system.packets_per_second;
            let mega =
                Summary { low: rate.low / 1e6, median: rate.median / 1e6, high: rate.high / 1e6 };
            rows.push(Row::value(
                format!("{}, {flows} flows, traffic", system.system),
                "",
                mega,
                3,
                "M packets/s",
            ));
        }
    }
    rows
}

fn figure(report: &Report) -> Result<Figure> {
    let names: Vec<&str> = report
        .per_packet
        .first()
        .map_or(Vec::new(), |p| p.systems.iter().map(|s| s.system.as_str()).collect());
    let bar = |s: Summary| Some((s.median, s.low, s.high));
    let groups: Vec<Group> = report
        .per_packet
        .iter()
        .map(|p| Group {
            name: format!("{} flows", p.flows),
            bars: p.systems.iter().map(|s| bar(s.ns)).collect(),
        })
        .collect();
    let axes = Axes {
        title: "CPU time of a packet in the NAT".into(),
        y: "ns a packet".into(),
        ..Axes::default()
    };
    Ok(Figure { name: "nat".into(), svg: plot::bars(&axes, &names, &groups)? })
}

/// Runs it.
///
/// # Errors
/// Something does not compile, load or translate as it should.
fn run(context: &Context) -> Result<Outcome> {
    let amount = Amount {
        effort: Effort { rounds: context.pick(7, 21), packets: context.pick(300_000, 1_000_000) },
        flows: context.pick(&[1024][..], &[1, 1024, 65_536][..]),
        traffic_rounds: context.pick(9, 25),
        traffic_flows: context.pick(&[1024][..], &[1024, 16_384][..]),
    };
    let objects = build(&context.places)?;
    let Effort { rounds, packets } = amount.effort;
    let mut report =
        Report { rounds, packets, per_packet: Vec::new(), traffic: Vec::new(), ratios: Vec::new() };
    measure_per_packet(context, &amount, &objects, &mut report)?;
    measure_traffic(context, &amount, &objects, &mut report)?;
    let figures = vec![figure(&report)?];
    Ok(Outcome {
        rows: rows(&report),
        notes: Vec::new(),
        figures,
        data: serde_json::to_value(&report)?,
    })
}
