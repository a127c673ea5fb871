//! `stateplane controller`: runs a controller of the state store, checks its configuration, asks a
//! running one how it is.

use command_line::daemon::StatusArgs;
use command_line::outln;
use controller::config::{Config, Keep};
use controller::shell::{self, Status};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  stateplane controller --config controller.toml --check   check the configuration
  stateplane controller --config controller.toml           run; SIGHUP: read the secrets again
  stateplane controller status --address 10.2.1.10:5408 --secrets fabric.secrets
  stateplane controller rebuild --config controller.toml   make a lost database anew

docs/controller.example.toml is a commented configuration.";

/// Command line of `stateplane controller`.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
pub struct Args {
    /// Configuration file.
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Only check the configuration: exit code 0 if it is good, 1 with the reason if not.
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a lost database anew from the stores' views. No controller may run meanwhile. All
    /// stores of the newest chains must answer.
    Rebuild {
        /// Configuration file of the controller.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// A store that is gone for good; the state that only it had is lost (may be repeated).
        #[arg(long, value_name = "IP:PORT")]
        without: Vec<SocketAddrV4>,
        /// How long to wait for the stores.
        #[arg(long, value_name = "MS", default_value_t = 5000)]
        wait_ms: u64,
    },
    /// Show the state of a running controller and of its cluster. Exit code 0: every chain is
    /// complete; 1: a chain is not, or there is no answer.
    Status(StatusArgs),
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match (args.command, args.config) {
        (Some(Command::Status(args)), _) => status(&args),
        (Some(Command::Rebuild { config, without, wait_ms }), _) => {
            rebuild(&config, &without, Duration::from_millis(wait_ms))
        }
        (None, Some(config)) => serve(&config, args.check),
        (None, None) => 2, // clap demands --config without a subcommand
    }
}

fn serve(path: &Path, check: bool) -> u8 {
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => return fault(&error),
    };
    if check {
        if let Keep::Database(file) = &config.shell.keep
            && let Err(reason) = command_line::daemon::can_keep_database(path, file)
        {
            eprintln!("stateplane controller: {reason}");
            return 1;
        }
        if let Err(error) = config.keys() {
            return fault(&error);
        }
        outln!("{}: good", path.display());
        return 0;
    }
    command_line::daemon::log();
    match shell::run(&config) {
        Ok(()) => 0,
        Err(error) => fault(&error),
    }
}

fn rebuild(path: &Path, without: &[SocketAddrV4], patience: Duration) -> u8 {
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => return fault(&error),
    };
    command_line::daemon::log();
    match shell::rebuild(&config, without, patience) {
        Ok(views) => {
            outln!(
                "views {} of {} shards: start the controller",
                views.version,
                views.shards.len()
            );
            0
        }
        Err(error) => fault(&error),
    }
}

fn status(args: &StatusArgs) -> u8 {
    match args.ask(print) {
        Ok(status) => u8::from(!status.settled || !status.warnings.is_empty()),
        Err(error) => fault(&*error),
    }
}

fn print(status: &Status) {
    let settled = match (status.settled, &status.cannot_decide) {
        (true, _) => "settled",
        (false, None) => "changing",
        (false, Some(_)) => "not settled",
    };
    outln!("{}  views {}  {settled}", super::status::controller_state(status), status.version);
    for note in super::status::controller_notes(status) {
        outln!("  {note}");
    }
    let peer = |peer: &controller::shell::PeerStatus| {
        let state =
            if peer.alive { "up".to_owned() } else { format!("silent for {} ms", peer.silent_ms) };
        vec![
            peer.address.to_string(),
            super::status::reporter(peer.reporter),
            state,
            peer.version.to_string(),
        ]
    };
    command_line::print_table(
        &["address", "what", "state", "views"],
        super::status::daemons(status).map(peer).collect(),
    );
    outln!("");
    super::status::chains(status).print();
}

fn fault(error: &dyn std::error::Error) -> u8 {
    eprintln!("stateplane controller: {error}");
    1
}
