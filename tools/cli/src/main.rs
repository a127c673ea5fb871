//! The `stateplane` command: one binary, one subcommand a noun or verb.
//!
//! Exit codes everywhere: 0 good, 1 the input (or what it describes) is at fault, 2 wrong usage, or
//! what was asked for could not be written, 3 another switch runs under this `switch_id`.

mod commands;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Fault-tolerant, shared state for P4 programs that run as XDP in the Linux kernel.
#[derive(Parser, Debug)]
#[command(name = "stateplane", version, about, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Check a P4-16 program: names, types, directions, constants.
    Check(commands::check::Args),
    /// Compile a P4-16 program to an XDP object and its manifest.
    Compile(commands::compile::Args),
    /// Run STF packet tests through the compiled object in the kernel.
    Test(commands::test::Args),
    /// Run the switch agent: load an object on ports, fill tables, own the packet generator.
    Switch(commands::switch::Args),
    /// Show the state of switches and stores on one page.
    Status(commands::status::Args),
    /// Read the state store: flows by key or owner, snapshots, and sums of snapshots over keys.
    State(commands::state::Args),
    /// Add, list and delete table entries of a running switch.
    Table(commands::table::Args),
    /// Read and write registers of a running switch.
    Register(commands::register::Args),
    /// Read counters of a running switch.
    Counter(commands::counter::Args),
    /// Show a running switch's ports and their packet counts.
    Ports(commands::ports::Args),
    /// Run a store: one machine's replicas in the shards' chains.
    Store(commands::store::Args),
    /// Run a controller of the state store: it decides which stores form each shard's chain.
    Controller(commands::controller::Args),
    /// Make, rotate and show the shared secrets that sign the state protocol.
    Keys(commands::keys::Args),
    /// Build, inspect and tear down a lab network in namespaces.
    Lab(commands::lab::Args),
    /// Show the state protocol's messages in a capture or on an interface.
    Trace(commands::trace::Args),
    /// Write synthetic traffic to a pcap file, or describe a capture.
    Traffic(commands::traffic::Args),
    /// Run the failover demonstration and write its figures.
    Demo(commands::demo::Args),
    /// Simulate switches, store and controller on a faulty network, and check the invariants.
    Sim(commands::sim::Args),
}

/// The command line. `help --help` is a plea for help, too: clap would take the flag for the name
/// of a subcommand.
fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

fn main() -> ExitCode {
    let code = match CommandLine::parse_from(words(std::env::args_os())).command {
        Command::Check(args) => commands::check::run(args),
        Command::Compile(args) => commands::compile::run(args),
        Command::Test(args) => commands::test::run(args),
        Command::Switch(args) => commands::switch::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::State(args) => commands::state::run(args),
        Command::Table(args) => commands::table::run(args),
        Command::Register(args) => commands::register::run(args),
        Command::Counter(args) => commands::counter::run(args),
        Command::Ports(args) => commands::ports::run(args),
        Command::Store(args) => commands::store::run(args),
        Command::Controller(args) => commands::controller::run(args),
        Command::Keys(args) => commands::keys::run(args),
        Command::Lab(args) => commands::lab::run(args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Traffic(args) => commands::traffic::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Sim(args) => commands::sim::run(args),
    };
    match commands::written() {
        Ok(()) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: standard output: {error}");
            ExitCode::from(if code == 0 { 2 } else { code })
        }
    }
}
