//! `stateplane store`: runs a state store server, checks its configuration, asks a running one how
//! it is.

use command_line::daemon::{self, StatusArgs};
use command_line::outln;
use state_store::config::{Config, MOST_HOLD_MS, WalSettings};
use state_store::core::{NodeStatus, Settings};
use state_store::shell;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use wal::{Directory, WalError};

/// With less, most of a lease would be margin.
const LEAST_LEASE_MS: u64 = 50;

const EXAMPLES: &str = "Examples:
  stateplane store --config store.toml --check   check the configuration
  stateplane store --config store.toml           run; SIGHUP: read secrets and backends again
  stateplane store status --address 10.2.1.10:5407 --secrets fabric.secrets
  stateplane state list --store 10.2.1.10:5407 --secrets fabric.secrets      its records

systems/redplane/docs/store.example.toml is a commented configuration.";

/// Run a store: one machine's replicas in the shards' chains.
#[derive(clap::Parser, Debug)]
#[command(
    name = "store",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
pub struct Args {
    /// Configuration file.
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Only check the configuration, and its write-ahead log unless a running store uses it. Exit
    /// code 0: both are good; 1: one is not, with the reason.
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the state of a running store. Exit code 0: it is ready (the head: serving); 1: it is
    /// not, or there is no answer.
    Status(StatusArgs),
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match (args.command, args.config) {
        (Some(Command::Status(args)), _) => status(&args),
        (None, Some(config)) => serve(&config, args.check),
        (None, None) => 2, // clap demands --config without a subcommand
    }
}

fn serve(path: &Path, check: bool) -> u8 {
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => return fault(&error),
    };
    if let Err(error) = config.keys() {
        return fault(&error);
    }
    if let Err(reason) = sensible(&config) {
        eprintln!("stateplane store: {}: {reason}", path.display());
        return 1;
    }
    if check {
        for wal in (0..config.workers).filter_map(|number| config.worker(number).wal) {
            if let Err(reason) = daemon::can_write(&wal.directory, true) {
                eprintln!("stateplane store: {}: wal.directory: {reason}", path.display());
                return 1;
            }
            if let Err(error) = check_log(&wal, &config.settings) {
                return fault(&error);
            }
        }
        outln!("{}: good", path.display());
        return 0;
    }
    daemon::log();
    match shell::run(config) {
        Ok(()) => 0,
        Err(error) => fault(&error),
    }
}

/// Reads a write-ahead log, and says what is in it.
fn check_log(wal: &WalSettings, settings: &Settings) -> Result<(), WalError> {
    let directory = wal.directory.display();
    if !wal.directory.exists() {
        outln!("{directory}: no log yet");
        return Ok(());
    }
    let log = match Directory::open(&wal.directory) {
        Ok(opened) => opened.read(settings.digest(), settings.nothing_restored())?,
        Err(WalError::InUse(_)) => {
            outln!("{directory}: in use by a running store: not read");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let Some(log) = log else {
        outln!("{directory}: no log yet");
        return Ok(());
    };
    let (files, batches, bytes) = (log.files.len(), log.batches, log.bytes);
    outln!(
        "{directory}: good: {batches} batches in {files} files, {bytes} bytes; views {}",
        log.restored.views().version
    );
    if let Some((offset, bytes)) = log.torn {
        outln!(
            "  the last file's {bytes} bytes from {offset} on were being written when power was lost; the store cuts them off"
        );
    }
    for (shard, replica) in log.restored.replicas() {
        let (index, records) = (replica.index, replica.state().len());
        let whole = if replica.synced { "" } else { "; it was being copied here" };
        outln!("  shard {shard}: entry {index}, {records} records{whole}");
    }
    Ok(())
}

/// Ports that the workers take and that a controller has, as far as this configuration tells: one
/// of its `controllers` is on this machine's address.
fn free_ports(config: &Config) -> Result<(), String> {
    for number in 0..config.workers {
        let listen = config.worker(number).listen;
        if config.controllers.contains(&listen) {
            return Err(format!(
                "listen: worker {} of {} would be on {listen}, the port of a controller in `controllers`: the workers' ports count up from that of `listen`; \
                 give `listen` another port",
                number + 1,
                config.workers
            ));
        }
    }
    Ok(())
}

/// Values that the store could run with, and switches not.
fn sensible(config: &Config) -> Result<(), String> {
    free_ports(config)?;
    let (lease_ms, hold_ms) =
        (u64::from(config.settings.lease_us) / 1_000, config.settings.hold_ns / 1_000_000);
    if lease_ms < LEAST_LEASE_MS {
        return Err(format!(
            "lease_ms: {lease_ms} is too short: switches end leases some 12 ms early, and renew them before that; write {LEAST_LEASE_MS} or more (default 250)"
        ));
    }
    let least_hold_ms = lease_ms.min(u64::from(MOST_HOLD_MS));
    if hold_ms < least_hold_ms {
        return Err(format!(
            "hold_ms: {hold_ms} is less than lease_ms ({lease_ms}): requests for a dead switch's flows would be dropped before its leases end; \
             write {least_hold_ms} or more (default: twice lease_ms, but no more than {MOST_HOLD_MS})"
        ));
    }
    Ok(())
}

fn status(args: &StatusArgs) -> u8 {
    match args.ask(|status| print_status(args.address, status)) {
        Ok(status) => u8::from(status.state != "ready"),
        Err(error) => fault(&*error),
    }
}

fn print_status(address: SocketAddrV4, status: &NodeStatus) {
    outln!("{address}  {}  views {}  up {} ms", status.state, status.version, status.uptime_ms);
    if status.version == 0 {
        outln!(
            "  no controller has sent this server a view yet: check that a controller runs, and \
             check `controllers` and the secrets"
        );
    }
    for replica in &status.replicas {
        let (shard, role, state, view) =
            (replica.shard, &replica.role, &replica.state, replica.view);
        let reason =
            replica.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let (index, committed) = (replica.index, replica.committed);
        outln!(
            "  shard {shard}: {role}, {state}{reason}; view {view}; entries: {index} applied, {committed} at the tail"
        );
    }
    if status.replicas_left_out > 0 {
        outln!(
            "  {} more shards of {} ({} heads in all) do not fit into the message; healthy ones are left out first",
            status.replicas_left_out,
            status.shards,
            status.heads
        );
    }
    outln!("  entries that wait for the tail: {}", status.unacked);
    outln!("  sessions: {}   recalls out: {}", status.sessions, status.recalls);
    outln!("  requests held: {}   malformed datagrams: {}", status.held, status.malformed);
    for object in &status.objects {
        let ports = object
            .ports_in_use
            .map(|count| format!(", {count} external ports"))
            .unwrap_or_default();
        outln!("  object {} \"{}\": {} records{ports}", object.id, object.name, object.records);
        for backend in &object.backends {
            let (address, weight, conversations) =
                (backend.address, backend.weight, backend.conversations);
            outln!(
                "    backend {address}  {}  weight {weight}  {conversations} conversations",
                backend.state
            );
        }
    }
}

fn fault(error: &dyn std::error::Error) -> u8 {
    eprintln!("stateplane store: {error}");
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_on_the_port_of_a_controller_are_refused() {
        let page = include_str!("../../../../../docs/deploy.md");
        let example = include_str!("../../../docs/store.example.toml")
            .replace("listen = \"10.0.3.1:5407\"\n", "")
            .replace("controllers = [\"10.0.3.1:5408\"]", "controllers = [\"10.2.1.10:5408\"]");
        let check = |more: &str, listen: &str| {
            let text = format!("listen = {listen}\n{more}{example}");
            sensible(&Config::parse(Path::new("s.toml"), &text).expect("parses"))
        };
        assert_eq!(check("", "\"10.2.1.10:5407\""), Ok(()));
        let error =
            check("workers = 4\n", "\"10.2.1.10:5407\"").expect_err("5408 is the controller's");
        assert!(error.starts_with("listen: worker 2 of 4 would be on 10.2.1.10:5408"), "{error}");
        // As the page says.
        assert!(page.contains("`listen = \"10.2.1.10:5411\"`"));
        assert_eq!(check("workers = 4\n", "\"10.2.1.10:5411\""), Ok(()));
    }

    #[test]
    fn leases_that_switches_cannot_use_are_refused() {
        let example =
            include_str!("../../../docs/store.example.toml").replace("\nhold_ms", "\n# hold_ms");
        assert!(example.contains("lease_ms = 250\n"));
        for (text, part) in [
            ("lease_ms = 250\n", None),
            ("lease_ms = 50\n", None),
            ("lease_ms = 49\n", Some("lease_ms: 49")),
            ("lease_ms = 250\nhold_ms = 249\n", Some("hold_ms: 249")),
            ("lease_ms = 1000\n", None),
        ] {
            let config =
                Config::parse(Path::new("s.toml"), &example.replace("lease_ms = 250\n", text))
                    .expect("parses");
            match (sensible(&config), part) {
                (Ok(()), None) => {}
                (Err(reason), Some(part)) => assert!(reason.contains(part), "{reason}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
