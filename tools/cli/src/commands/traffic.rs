//! `stateplane traffic`: writes synthetic traces as pcap files, and says what a trace is like.

use command_line::outln;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use traffic::{Description, Profile, Source, Subnet, describe};

const EXAMPLES: &str = "Examples:
  stateplane traffic --seed 7 --flows 10000 --packets 1000000 --out trace.pcap
  stateplane traffic --flows 100000 --packets 2000000 --zipf 1.2     only describe the trace
  stateplane traffic --from isp.pcap                                 describe a capture

The same seed and options give the same file, byte by byte. Flows are directed (inside to outside), packets of a flow have 64 to 1500 bytes.";

/// Command line of `stateplane traffic`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Describe this capture (pcap or pcapng; - is standard input) instead of a synthetic trace.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Write the packets to a pcap file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the description as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    profile: ProfileArgs,
}

#[derive(clap::Args, Debug)]
struct ProfileArgs {
    /// Seed of all random choices.
    #[arg(long, default_value_t = Profile::default().seed)]
    seed: u64,
    /// Number of flows.
    #[arg(long, default_value_t = Profile::default().flows)]
    flows: u32,
    /// Number of packets of all flows together.
    #[arg(long, default_value_t = Profile::default().packets)]
    packets: u64,
    /// Exponent of the flows' sizes; 0: equal sizes.
    #[arg(long, value_name = "EXPONENT", default_value_t = Profile::default().zipf_exponent)]
    zipf: f64,
    /// New flows a second.
    #[arg(long, value_name = "RATE", default_value_t = Profile::default().new_flows_per_s)]
    new_flows_per_s: f64,
    /// Mean time between packets of a flow, in microseconds.
    #[arg(long, value_name = "US", default_value_t = Profile::default().packet_gap_us)]
    packet_gap_us: u64,
    /// Share of the flows that are TCP, 0 to 1; the rest is UDP.
    #[arg(long, value_name = "SHARE", default_value_t = Profile::default().tcp_share)]
    tcp_share: f64,
    /// Subnet of the flows' sources.
    #[arg(long, value_name = "SUBNET", default_value = "10.1.0.0/16")]
    inside: Subnet,
    /// Subnet of the flows' destinations.
    #[arg(long, value_name = "SUBNET", default_value = "198.51.100.0/24")]
    outside: Subnet,
    /// Ethernet source of the frames.
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:01", value_parser = mac)]
    source_mac: [u8; 6],
    /// Ethernet destination of the frames.
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:02", value_parser = mac)]
    destination_mac: [u8; 6],
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Result<Vec<u8>, _> =
        text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
    let fault = || format!("{text:?} is not an Ethernet address; write it as 02:00:00:00:00:01");
    bytes.map_err(|_| fault())?.try_into().map_err(|_| fault())
}

impl ProfileArgs {
    fn profile(&self) -> Profile {
        Profile {
            seed: self.seed,
            flows: self.flows,
            packets: self.packets,
            zipf_exponent: self.zipf,
            new_flows_per_s: self.new_flows_per_s,
            packet_gap_us: self.packet_gap_us,
            tcp_share: self.tcp_share,
            inside: self.inside,
            outside: self.outside,
            destination_mac: self.destination_mac,
            source_mac: self.source_mac,
            start_ns: 0,
        }
    }
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match carry_out(&args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("stateplane traffic: {error:#}");
            1
        }
    }
}

fn carry_out(args: &Args) -> anyhow::Result<()> {
    use anyhow::Context;
    let mut source = match &args.from {
        Some(path) => Source::capture(path)?,
        None => Source::synthetic(args.profile.profile())?,
    };
    let mut writer = match &args.out {
        Some(path) => {
            let file = File::create(path)
                .with_context(|| format!("{}: cannot be written", path.display()))?;
            Some(capture::Writer::new(BufWriter::new(file))?)
        }
        None => None,
    };
    let found = describe::<anyhow::Error>(&mut source, |time_ns, frame| match &mut writer {
        Some(writer) => Ok(writer.write(time_ns, frame)?),
        None => Ok(()),
    })?;
    if let Some(writer) = writer {
        writer.finish()?;
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print(&found);
    }
    Ok(())
}

fn print(found: &Description) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let rate =
        |count: u64| if found.duration_s > 0.0 { count as f64 / found.duration_s } else { 0.0 };
    outln!(
        "packets   {} in {:.3} s ({:.0} a second)",
        found.packets,
        found.duration_s,
        rate(found.packets)
    );
    outln!("bytes     {} ({:.1} Mbit/s)", found.bytes, rate(found.bytes) * 8.0 / 1e6);
    outln!(
        "flows     {} ({:.0} new ones a second), {} TCP",
        found.flows,
        found.new_flows_per_s,
        percent(found.tcp_share)
    );
    let exponent =
        found.zipf_exponent.map_or("too few flows".to_owned(), |exponent| format!("{exponent:.2}"));
    outln!(
        "shape     Zipf exponent {exponent}; the largest flow has {} of the packets, the largest hundredth {}",
        percent(found.largest_flow_share),
        percent(found.largest_percent_share)
    );
    let classes = ["≤ 64", "65-127", "128-255", "256-511", "512-1023", "1024-1500", "longer"];
    let sizes: Vec<String> = classes
        .iter()
        .zip(found.sizes)
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| format!("{class}: {}", percent(count as f64 / found.packets as f64)))
        .collect();
    outln!("frames    {}", sizes.join("   "));
    if found.other_packets > 0 {
        outln!("others    {} packets that are not TCP or UDP over IPv4", found.other_packets);
    }
    if found.packets_beyond > 0 {
        outln!(
            "beyond    {} packets of flows that were too many to tell apart",
            found.packets_beyond
        );
    }
}
