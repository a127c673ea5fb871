//! `stateplane-bench`: prints the ratios that say what fault tolerance and compiled P4 cost. `make bench` runs it.

use anyhow::{Context, Result};
use bench::build::Places;
use bench::network::Network;
use bench::per_packet::{self, Effort};
use bench::report::{Goal, PerPacket, Ratio, Report, Traffic};
use bench::statistics::Summary;
use bench::systems::System;
use bench::{kernel, traffic};
use clap::Parser;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The least throughput that fault tolerance may leave.
const LINEARIZABLE_GOAL: Goal = Goal::AtLeast(0.97);
/// The most time that compiled P4 may take beside hand-written C.
const HAND_WRITTEN_GOAL: Goal = Goal::AtMost(1.3);

/// Measures the NAT in P4 against itself without fault tolerance, against a NAT written by hand in C, and against nftables.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    /// The repository
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// The compiler [default: beside this program, then target/release/stateplane]
    #[arg(long)]
    stateplane: Option<PathBuf>,
    /// Where nat.json and the objects go [default: out/bench in the repository]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Rounds of the per-packet measurement; every round runs every system
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Packets a round and system
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    packets: u32,
    /// Conversations, per-packet measurement
    #[arg(long, value_delimiter = ',', default_value = "1,1024,65536", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    flows: Vec<u32>,
    /// Rounds of the traffic measurement
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    traffic_rounds: u32,
    /// Milliseconds that traffic is counted for, a round and system
    #[arg(long, default_value_t = 600)]
    traffic_ms: u64,
    /// Conversations, traffic measurement
    #[arg(long, value_delimiter = ',', default_value = "1024,16384", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    traffic_flows: Vec<u32>,
}

/// Both directions of the most conversations.
const BINDINGS: u32 = 262_144;

struct Objects {
    linearizable: PathBuf,
    local: PathBuf,
    hand_written: PathBuf,
    traffic: PathBuf,
}

fn build(places: &Places) -> Result<Objects> {
    eprintln!("bench: compiling");
    let entries = format!("NAT_ENTRIES={BINDINGS}");
    Ok(Objects {
        linearizable: places.compile_p4("nat_linearizable", &[&entries])?,
        local: places.compile_p4("nat_local", &["NAT_LOCAL", &entries])?,
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

fn places(arguments: &Arguments) -> Result<Places> {
    let root = arguments.root.canonicalize().with_context(|| arguments.root.display().to_string())?;
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("stateplane")));
    let stateplane = match &arguments.stateplane {
        Some(path) => path.clone(),
        None => beside.filter(|path| path.exists()).unwrap_or_else(|| root.join("target/release/stateplane")),
    };
    let output = arguments.output.clone().unwrap_or_else(|| root.join("out/bench"));
    std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    Ok(Places { root, stateplane, output })
}

fn measure_per_packet(arguments: &Arguments, objects: &Objects, report: &mut Report) -> Result<()> {
    let effort = Effort { rounds: arguments.rounds, packets: arguments.packets };
    for &flows in &arguments.flows {
        let network = Network::create()?;
        let measured = network.translator.enter(|| {
            kernel::pin_to_cpu(0)?;
            let mut systems = systems(objects, &network)?;
            // A veth has receive queues that frames can be said to come from only while it runs a program.
            let _attached = systems[0].attach(&network)?;
            per_packet::measure(&systems, &objects.traffic, &network, flows, effort, |round| {
                progress(&format!("ns a packet, {flows} flows"), round, effort.rounds);
            })
        })?;
        let [linearizable, local, hand_written] = &measured[..] else { unreachable!("systems() makes three") };
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

fn measure_traffic(arguments: &Arguments, objects: &Objects, report: &mut Report) -> Result<()> {
    for &flows in &arguments.traffic_flows {
        let network = Network::create()?;
        let carried = network.translator.enter(|| {
            let mut systems = systems(objects, &network)?;
            systems.push(System::nftables(&objects.traffic, &network)?);
            let window = Duration::from_millis(arguments.traffic_ms);
            let rounds = arguments.traffic_rounds;
            traffic::measure(&mut systems, &objects.traffic, &network, flows, rounds, window, |round| {
                progress(&format!("packets a second, {flows} flows"), round, rounds);
            })
        })?;
        let [linearizable, local, hand_written, nftables] = &carried[..] else { unreachable!("four systems") };
        for (what, above, below) in [
            ("(c) P4 linearizable / nftables, traffic", linearizable, nftables),
            ("(c) P4 local / nftables, traffic", local, nftables),
            ("    P4 linearizable / P4 local, traffic", linearizable, local),
            ("    P4 local / hand-written C, traffic", local, hand_written),
        ] {
            report.ratios.push(Ratio::new(what, flows, traffic::ratio(above, below), None));
        }
        report.traffic.push(Traffic { flows, systems: carried });
    }
    Ok(())
}

/// One line that counts up in a terminal, and one a measurement elsewhere.
fn progress(what: &str, round: u32, rounds: u32) {
    let end = round == rounds;
    if std::io::stderr().is_terminal() {
        eprint!("\rbench: {what}: round {round} of {rounds}{}", if end { "\n" } else { "  " });
    } else if end {
        eprintln!("bench: {what}: {rounds} rounds");
    }
}

fn print(report: &Report) {
    println!("\nNAT, kernel {}, {}", report.kernel, report.cpu);
    println!(
        "\nCPU time a packet, 64-byte TCP, both directions (BPF_PROG_RUN; {} rounds of {} packets):",
        report.rounds, report.packets
    );
    for PerPacket { flows, systems } in &report.per_packet {
        for system in systems {
            let Summary { low, median, high } = system.ns;
            println!("  {:<52} {flows:>6} flows  {median:>7.1} ns  ({low:.1} to {high:.1})", system.system);
        }
    }
    println!("\nTraffic, 64-byte UDP through veth links, generator and sink included, on one CPU:");
    for Traffic { flows, systems } in &report.traffic {
        for system in systems {
            let Summary { low, median, high } = system.packets_per_second;
            let mega = |rate: f64| rate / 1e6;
            println!(
                "  {:<52} {flows:>6} flows  {:>7.3} M/s  ({:.3} to {:.3})",
                system.system,
                mega(median),
                mega(low),
                mega(high)
            );
        }
    }
    println!("\nRatios (median of the rounds, middle half):");
    for ratio in &report.ratios {
        println!("{}", ratio.line());
    }
}

fn machine() -> (String, String) {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name"));
    (kernel, model.map_or("unknown processor", |text| text.trim_start_matches([' ', '\t', ':'])).to_owned())
}

fn write(report: &Report, directory: &Path) -> Result<()> {
    let path = directory.join("nat.json");
    let text = serde_json::to_string_pretty(report)?;
    std::fs::write(&path, text + "\n").with_context(|| path.display().to_string())?;
    println!("\nwritten: {}", path.display());
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    let places = places(arguments)?;
    let objects = build(&places)?;
    let (kernel, cpu) = machine();
    let (rounds, packets) = (arguments.rounds, arguments.packets);
    let mut report =
        Report { kernel, cpu, rounds, packets, per_packet: Vec::new(), traffic: Vec::new(), ratios: Vec::new() };
    measure_per_packet(arguments, &objects, &mut report)?;
    measure_traffic(arguments, &objects, &mut report)?;
    print(&report);
    write(&report, &places.output)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stateplane-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
