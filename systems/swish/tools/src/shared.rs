//! `stateplane shared`: the controller of shared variables, and what operators ask of it.

use clap::{Args, Parser, Subcommand};
use command_line::{daemon as commands, outln, print_table};
use controller::config::Keep;
use secrets::SecretsFile;
use std::error::Error;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;
use swish_daemon::{Config, GroupStatus, Status, SwitchStatus};
use wire::ToolType;

const EXAMPLES: &str = "Examples:
  stateplane shared controller --config controller.toml --check
  stateplane shared controller --config controller.toml
  stateplane shared status --address 10.2.1.10:5412 --secrets fabric.secrets

systems/swish/docs/controller.example.toml is a commented configuration of a controller.";

/// Variables that switches share: their controller, and how they are
#[derive(Parser, Debug)]
#[command(name = "shared", after_help = EXAMPLES)]
pub struct Command {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand, Debug)]
enum Word {
    /// Run a controller: it decides which switches share each group
    Controller(ControllerArgs),
    /// Ask a controller how groups and switches are
    Status(StatusArgs),
}

/// Words after `shared controller`.
#[derive(Args, Debug)]
struct ControllerArgs {
    /// The controller's configuration.
    #[arg(long = "config", id = "controller_config", value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration: exit code 0 if it is good, 1 with the reason if not.
    #[arg(long)]
    check: bool,
}

/// Words after `shared status`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 all switches share their groups; 1 they do not; 2 there is no \
                        answer."
)]
struct StatusArgs {
    /// The controller's address.
    #[arg(long, value_name = "IP:PORT")]
    address: SocketAddrV4,
    /// The fabric's shared secrets (`stateplane keys`); the controller answers only with them.
    #[arg(long, value_name = "FILE")]
    secrets: PathBuf,
    /// How long to wait for an answer.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout_ms: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

type Said<T> = Result<T, Box<dyn Error>>;

/// Runs a command; the exit code.
pub fn run(command: &Command) -> u8 {
    let (done, failed) = match &command.word {
        Word::Controller(args) => (controller(args), 1),
        Word::Status(args) => (status(args), 2),
    };
    done.unwrap_or_else(|error| {
        eprintln!("stateplane shared: {error}");
        failed
    })
}

/// Runs or checks a controller.
fn controller(args: &ControllerArgs) -> Said<u8> {
    let config = Config::load(&args.config)?;
    if args.check {
        if let Keep::Database(file) = &config.shell.keep {
            commands::can_keep_database(&args.config, file)?;
        }
        config.shell.keys()?;
        outln!("{}: good", args.config.display());
        return Ok(0);
    }
    commands::log();
    swish_daemon::run(&config)?;
    Ok(0)
}

/// Prints groups and switches.
fn status(args: &StatusArgs) -> Said<u8> {
    let secrets = SecretsFile::load(&args.secrets)?;
    let timeout = Duration::from_millis(args.timeout_ms);
    let status: Status =
        daemon::ask::ask(ToolType::StatusRequest, &[], args.address, secrets.ring(), timeout)?;
    let code = u8::from(!status.settled);
    if args.json {
        outln!("{}", command_line::json(&status));
        return Ok(code);
    }
    let settled = if status.settled { "settled" } else { "changing" };
    let leads = if status.leading { "leading" } else { "waiting for its turn" };
    outln!("{leads}  decision {}  {settled}", status.version);
    if let Some(why) = &status.cannot_decide {
        outln!("  the controller cannot decide: {why}");
    }
    status.groups.iter().for_each(print);
    Ok(code)
}

fn print(group: &GroupStatus) {
    let GroupStatus { group: name, view, stage, window, still_ms, .. } = group;
    outln!("");
    outln!("group {name}: view {view}, {stage}, window {window}, for {still_ms} ms");
    for (one, other) in &group.held_up {
        outln!("  held up: {one} lacks what {other} should bring");
    }
    let row = |it: &SwitchStatus| {
        let report = it.report_ms.map_or("never".to_owned(), |ms| format!("{ms} ms ago"));
        let (number, view) = (it.number.to_string(), it.view.to_string());
        let address = it.address.to_string();
        vec![number, address, it.standing.clone(), view, it.window.to_string(), report]
    };
    print_table(
        &["", "switch", "standing", "view", "window", "reported"],
        group.switches.iter().map(row).collect(),
    );
}
