//! `stateplane controller`: runs a controller of the state store, checks its configuration, asks a running one how it is.

use controller::config::Config;
use controller::shell::{self, Status};
use secrets::SecretsFile;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  stateplane controller --config controller.toml --check   say what is wrong with the configuration
  stateplane controller --config controller.toml           run, until SIGTERM; SIGHUP has it read its secrets again
  stateplane controller status --address 10.2.1.10:5408 --secrets fabric.secrets

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
    /// Ask a running controller how it and the cluster are: exit code 0 if every chain is complete, 1 if not or if there is no answer.
    Status {
        /// The controller's address.
        #[arg(long, value_name = "IP:PORT")]
        address: SocketAddrV4,
        /// The fabric's shared secrets (`stateplane keys`): controllers answer nobody without them.
        #[arg(long, value_name = "FILE")]
        secrets: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// How long to wait for an answer.
        #[arg(long, value_name = "MS", default_value_t = 1000)]
        timeout_ms: u64,
    },
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match (args.command, args.config) {
        (Some(Command::Status { address, secrets, json, timeout_ms }), _) => {
            status(address, &secrets, json, Duration::from_millis(timeout_ms))
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
        outln!("{}: good", path.display());
        return 0;
    }
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A second subscriber in one process is refused, and not needed.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    match shell::run(&config) {
        Ok(()) => 0,
        Err(error) => fault(&error),
    }
}

fn status(address: SocketAddrV4, secrets: &Path, json: bool, timeout: Duration) -> u8 {
    let secrets = match SecretsFile::load(secrets) {
        Ok(secrets) => secrets,
        Err(error) => return fault(&error),
    };
    let status: Status = match state_store::shell::query(address, secrets.ring(), timeout) {
        Ok(status) => status,
        Err(error) => return fault(&error),
    };
    if json {
        outln!("{}", super::table::json(&status));
    } else {
        print(&status);
    }
    u8::from(!status.settled)
}

fn print(status: &Status) {
    let (decides, settled) =
        (if status.leading { "decides" } else { "stands by" }, if status.settled { "settled" } else { "changing" });
    outln!("{decides}  views {}  {settled}", status.version);
    let peer = |peer: &controller::shell::PeerStatus| {
        let state = if peer.alive { "up".to_owned() } else { format!("silent for {} ms", peer.silent_ms) };
        vec![peer.address.to_string(), format!("{:?}", peer.reporter), state, peer.version.to_string()]
    };
    super::table::print(&["address", "what", "state", "views"], status.peers.iter().map(peer).collect());
    outln!("");
    let shard = |shard: &controller::shell::ShardStatus| {
        let chain: Vec<_> = shard.chain.iter().map(ToString::to_string).collect();
        let joining = shard.joining.map_or("-".to_owned(), |address| address.to_string());
        vec![shard.shard.to_string(), shard.view.to_string(), chain.join(" "), joining, shard.lag.to_string()]
    };
    super::table::print(&["shard", "view", "chain", "joins", "lag"], status.shards.iter().map(shard).collect());
}

fn fault(error: &dyn std::error::Error) -> u8 {
    eprintln!("stateplane controller: {error}");
    1
}
