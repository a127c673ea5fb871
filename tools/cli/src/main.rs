//! The `stateplane` command: one binary, one subcommand a noun or verb.
//!
//! Exit codes everywhere: 0 good, 1 the input (or what it describes) is at fault, 2 wrong usage, or
//! what was asked for could not be written, 3 a case of the command's own, as its help says
//! (`switch`: another switch runs under this `switch_id`).

mod commands;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use command_line::Plug;
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
    /// Run a switch: load a compiled program on its ports, fill its tables, answer commands.
    Switch(commands::switch::Args),
    /// Show the state of switches and stores on one page.
    Status(commands::status::Args),
    /// Read the state that the stores have: flows by key or owner, snapshots, sums of snapshots.
    State(commands::state::Args),
    /// List, add, replace and delete table entries of a running switch.
    Table(commands::table::Args),
    /// Read and write registers of a running switch.
    Register(commands::register::Args),
    /// Read counters of a running switch.
    Counter(commands::counter::Args),
    /// Show a running switch's ports and their packet counts.
    Ports(commands::ports::Args),
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
    /// Kill a NAT switch under traffic, with fault tolerance and without, and draw what happens.
    Demo(commands::demo::Args),
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

/// The commands, those of systems included.
fn with_plugs(plugs: &[Plug]) -> clap::Command {
    plugs.iter().fold(CommandLine::command(), |all, plug| match plug.under {
        Some(parent) => all.mut_subcommand(parent, |it| it.subcommand(plug.command.clone())),
        None => all.subcommand(plug.command.clone()),
    })
}

/// The command of a system that is meant, and its arguments.
fn plugged<'a>(plugs: &'a [Plug], given: &'a ArgMatches) -> Option<(&'a Plug, &'a ArgMatches)> {
    plugs.iter().find_map(|plug| {
        let (name, arguments) = match (plug.under, given.subcommand()?) {
            (Some(parent), (name, inner)) if name == parent => inner.subcommand()?,
            (Some(_), _) => return None,
            (None, given) => given,
        };
        (name == plug.command.get_name()).then_some((plug, arguments))
    })
}

fn run(plugs: &[Plug]) -> u8 {
    let given = with_plugs(plugs).get_matches_from(words(std::env::args_os()));
    if let Some((plug, arguments)) = plugged(plugs, &given) {
        return (plug.run)(arguments);
    }
    let line = CommandLine::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    match line.command {
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
        Command::Controller(args) => commands::controller::run(args),
        Command::Keys(args) => commands::keys::run(args),
        Command::Lab(args) => commands::lab::run(args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Traffic(args) => commands::traffic::run(args),
        Command::Demo(args) => commands::demo::run(args),
    }
}

/// What systems add, and demonstrations that put several systems side by side.
fn plugs() -> Vec<Plug> {
    let systems = systems::command_line().iter().flat_map(|system| system.commands());
    systems.chain([bench::kv::demo::plug(), bench::shared::demo::plug()]).collect()
}

fn main() -> ExitCode {
    let code = run(&plugs());
    match command_line::written() {
        Ok(()) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: standard output: {error}");
            ExitCode::from(if code == 0 { 2 } else { code })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_adds_commands_and_words_of_commands() {
        let plug = |under, name: &'static str| Plug {
            under,
            command: clap::Command::new(name).arg(clap::arg!(<COUNT>)),
            run: |arguments| arguments.get_one::<String>("COUNT").map_or(0, |it| it.len() as u8),
        };
        let plugs = [plug(None, "toy"), plug(Some("switch"), "toy-flows")];
        with_plugs(&plugs).debug_assert();
        let meant = |line: &[&str]| {
            let given = with_plugs(&plugs).try_get_matches_from(line).expect("a command");
            plugged(&plugs, &given).map(|(plug, arguments)| {
                (plug.command.get_name().to_owned(), (plug.run)(arguments))
            })
        };
        assert_eq!(meant(&["stateplane", "toy", "abc"]), Some(("toy".into(), 3)));
        let flows = meant(&["stateplane", "switch", "toy-flows", "ab"]);
        assert_eq!(flows, Some(("toy-flows".into(), 2)));
        assert_eq!(meant(&["stateplane", "switch", "status"]), None);
        assert_eq!(meant(&["stateplane", "table", "list", "toy"]), None);
    }

    /// No two commands have one name: clap would panic.
    #[test]
    fn the_systems_commands_fit_beside_the_others() {
        with_plugs(&plugs()).debug_assert();
    }
}
