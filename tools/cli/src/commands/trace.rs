//! `stateplane trace`: what the systems' messages say, in a capture or as they pass an
//! interface.

use anyhow::Context;
use capture::{Frame, Interface, Reader};
use command_line::{out, outln};
use manifest::Manifest;
use secrets::SecretsFile;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trace::{Columns, Event, Filter, Objects, Repeat, Summary};
use wire::KeyRing;

const EXAMPLES: &str = "Examples:
  stateplane trace fabric.pcap --manifest nat.json
  stateplane trace --interface eth1 --secrets fabric.secrets --type update --type recall
  stateplane trace fabric.pcap --manifest nat.json --key source=10.1.0.10 --json | jq .
  tcpdump -i any -w - udp port 5407 | stateplane trace -
  stateplane trace --interface eth1 --type shared-report --type shared-order   agents, controllers
  stateplane trace fabric.pcap --type shared-delta --type shared-batch   shared variables

Live capture sees packets that reach the kernel: run it on a store's or a controller's machine, or a
router. The ports of a switch show nothing of what its XDP program sends and takes.";

/// How often the end of a live capture is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Command line of `stateplane trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A pcap or pcapng file; - is standard input.
    #[arg(
        value_name = "FILE",
        required_unless_present = "interface",
        conflicts_with = "interface"
    )]
    file: Option<PathBuf>,
    /// Listen to an interface, until Ctrl-C.
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
    /// Stop after this many seconds (live).
    #[arg(long, value_name = "SECONDS", requires = "interface")]
    seconds: Option<u64>,
    /// Stop after this many messages that pass the filters.
    #[arg(long, value_name = "MESSAGES")]
    count: Option<u64>,
    /// The program's manifest: names objects and the fields of keys and values.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The fabric's secrets; messages with wrong tags are marked.
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// Only messages of this type: update, lease-grant, chain-data, shared-batch, …, malformed (may
    /// be repeated).
    #[arg(long = "type", value_name = "TYPE", value_parser = type_named)]
    types: Vec<String>,
    /// Only messages with this key (may be repeated): its first hexadecimal digits, or with
    /// --manifest a field's value (10.1.0.10, or the name of an enum's member) or FIELD=VALUE.
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
    /// Only messages from or to this switch (may be repeated).
    #[arg(long, value_name = "NUMBER")]
    switch_id: Vec<u32>,
    /// Only messages of this shard (may be repeated).
    #[arg(long, value_name = "NUMBER")]
    shard: Vec<u16>,
    /// Print one JSON object per line; the last one is the summary.
    #[arg(long)]
    json: bool,
    /// Print only the summary.
    #[arg(long)]
    quiet: bool,
}

fn type_named(given: &str) -> Result<String, trace::Fault> {
    trace::type_named(given, systems::messages())
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match carry_out(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("stateplane trace: {error:#}");
            1
        }
    }
}

struct Tracer {
    objects: Objects,
    secrets: Option<KeyRing>,
    filter: Filter,
    columns: Columns,
    summary: Summary,
    shown: u64,
    args: Args,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<Repeat>,
}

#[derive(Serialize)]
struct Last<'a> {
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_captured: Option<u32>,
}

impl Tracer {
    fn new(args: Args) -> anyhow::Result<Tracer> {
        let objects = match &args.manifest {
            Some(path) => Objects::new(&Manifest::read(path)?),
            None => Objects::default(),
        };
        let secrets = match &args.secrets {
            Some(path) => Some(SecretsFile::load(path)?.ring().clone()),
            None => None,
        };
        let filter =
            Filter::new(systems::messages(), &args.types, &args.key, &args.switch_id, &args.shard)?;
        filter.check(&objects)?;
        Ok(Tracer {
            objects,
            secrets,
            filter,
            columns: Columns::default(),
            summary: Summary::default(),
            shown: 0,
            args,
        })
    }

    /// Whether there is to be more.
    fn frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<bool> {
        let decoded =
            trace::decode(frame, systems::messages(), &self.objects, self.secrets.as_ref());
        let Some(event) = decoded else { return Ok(true) };
        if !self.filter.passes(&event) {
            return Ok(true);
        }
        let repeat = self.summary.add(&event);
        if self.args.quiet {
        } else if self.args.json {
            outln!("{}", serde_json::to_string(&Line { event: &event, repeat })?);
        } else {
            outln!("{}", self.columns.line(&event, repeat));
        }
        self.shown += 1;
        Ok(self.args.count.is_none_or(|count| self.shown < count))
    }

    fn end(&self, not_captured: Option<u32>) -> anyhow::Result<()> {
        if self.args.json {
            outln!("{}", serde_json::to_string(&Last { summary: &self.summary, not_captured })?);
        } else {
            out!("{}{}", if self.args.quiet { "" } else { "\n" }, self.summary);
            if let Some(count) = not_captured.filter(|count| *count > 0) {
                outln!(
                    "{count} more came too fast to be captured: filter less, or `tcpdump -w` first"
                );
            }
        }
        Ok(())
    }
}

fn carry_out(args: Args) -> anyhow::Result<()> {
    match (args.interface.clone(), args.file.clone()) {
        (Some(interface), _) => live(Tracer::new(args)?, &interface),
        (None, Some(path)) => file(Tracer::new(args)?, &path),
        (None, None) => Ok(()), // clap demands one of them
    }
}

fn file(mut tracer: Tracer, path: &Path) -> anyhow::Result<()> {
    let mut reader = Reader::open(path)?;
    let result = loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                if !tracer.frame(&frame)? {
                    break Ok(());
                }
            }
            Ok(None) => break Ok(()),
            // What was read before is worth a summary.
            Err(error) => break Err(error),
        }
    };
    tracer.end(None)?;
    Ok(result?)
}

/// Whether `ip` says so; without `ip`, no.
fn has_xdp(interface: &str) -> bool {
    let output =
        std::process::Command::new("ip").args(["-j", "link", "show", "dev", interface]).output();
    let found = output
        .ok()
        .and_then(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).ok());
    found.is_some_and(|found| found.pointer("/0/xdp").is_some())
}

fn live(mut tracer: Tracer, name: &str) -> anyhow::Result<()> {
    let mut interface =
        Interface::open(name, systems::messages().ports()).context("cannot listen")?;
    if has_xdp(name) {
        eprintln!(
            "stateplane trace: {name} has an XDP program: messages that it takes or sends are not seen here; trace at the other end of the link"
        );
    }
    command_line::interrupt::install();
    let start = Instant::now();
    let over = |seconds: Option<u64>| {
        seconds.is_some_and(|seconds| start.elapsed() >= Duration::from_secs(seconds))
    };
    while !command_line::interrupt::requested() && !over(tracer.args.seconds) {
        if let Some(frame) =
            interface.next_frame(LOOK).with_context(|| format!("{name}: capture"))?
            && !tracer.frame(&frame)?
        {
            break;
        }
    }
    tracer.end(Some(interface.statistics().lost))
}
