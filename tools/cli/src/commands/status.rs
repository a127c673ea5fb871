//! `stateplane status`: asks switches, stores and controllers ([`overview`]), and shows them on one
//! page ([`page`]).

mod drops;
mod overview;
mod page;

pub use overview::daemons;
pub use page::{chains, controller_notes, controller_state, reporter};

use command_line::{out, outln};
use overview::{Controller, Load, Overview, Store, Switch};
use secrets::SecretsFile;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;
use switch_agent::control::{Reply, Request};
use switch_agent::{RunDirectory, client};

const EXAMPLES: &str = "Examples:
  stateplane status                                          the switches on this machine
  stateplane status --secrets fabric.secrets --store 10.2.1.10:5407 --store 10.2.2.10:5407
  stateplane status --secrets fabric.secrets --controller 10.2.1.10:5408
  stateplane status --config /etc/stateplane/status.toml --watch

The configuration lists the daemons to ask:
  stores = [\"10.2.1.10:5407\", \"10.2.2.10:5407\", \"10.2.3.10:5407\"]
  controllers = [\"10.2.1.10:5408\"]
  secrets = \"fabric.secrets\"

Switches of other machines are shown as they report to the deciding controller, some seconds old.

A switch of this machine counts from its start until `stateplane switch detach`. A switch with a
dead agent gives no answer. A store or switch that the deciding controller no longer hears counts
for a minute; then the controller forgets it.

Exit code 0: all daemons that were asked are up and ready, and the deciding controller hears every
store and switch; 1: one is not, or is not heard.";

/// Between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(1);
/// Moves to the top left, and clears what is there.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Command line of `stateplane status`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A store (may be repeated).
    #[arg(long, value_name = "IP:PORT")]
    store: Vec<SocketAddrV4>,
    /// A controller; it shows the chains (may be repeated).
    #[arg(long, value_name = "IP:PORT")]
    controller: Vec<SocketAddrV4>,
    /// The fabric's shared secrets (`stateplane keys`); stores and controllers answer only with
    /// them.
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// Configuration: the daemons to ask (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show the page again every second, until Ctrl-C.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// How long to wait for a daemon's answer.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: u64,
}

/// The configuration's file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    stores: Vec<SocketAddrV4>,
    controllers: Vec<SocketAddrV4>,
    /// Relative to this file.
    secrets: Option<PathBuf>,
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    let config = match args.config.as_deref().map_or(Ok(Config::default()), read) {
        Ok(config) => config,
        Err(reason) => {
            eprintln!("stateplane status: {reason}");
            return 1;
        }
    };
    let stores = together(config.stores, &args.store);
    let controllers = together(config.controllers, &args.controller);
    let secrets = match read_secrets(
        args.secrets.or(config.secrets).as_deref(),
        stores.is_empty() && controllers.is_empty(),
    ) {
        Ok(secrets) => secrets,
        Err(reason) => {
            eprintln!("stateplane status: {reason}");
            return 1;
        }
    };
    let asked = Asked { stores, controllers, secrets };
    let timeout = Duration::from_millis(args.timeout_ms);
    if !args.watch {
        let overview = gather(&asked, timeout);
        if args.json {
            outln!("{}", command_line::json(&overview));
        } else {
            page::print(&overview);
        }
        return u8::from(!overview.is_good());
    }
    command_line::interrupt::install();
    let mut good = true;
    while !command_line::interrupt::requested() {
        let overview = gather(&asked, timeout);
        good = overview.is_good();
        out!("{CLEAR}");
        page::print(&overview);
        // A signal ends the sleep early only if it comes to this thread: look often.
        for _ in 0..10 {
            if !command_line::interrupt::requested() {
                std::thread::sleep(WATCH / 10);
            }
        }
    }
    u8::from(!good)
}

fn read(path: &Path) -> Result<Config, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut config: Config = toml::from_str(&text)
        .map_err(|error| format!("{}: {}", path.display(), error.to_string().trim_end()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    config.secrets = config.secrets.map(|secrets| folder.join(secrets));
    Ok(config)
}

/// The configuration's addresses and the command line's, each once.
fn together(mut addresses: Vec<SocketAddrV4>, more: &[SocketAddrV4]) -> Vec<SocketAddrV4> {
    for address in more {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    addresses
}

/// Whom to ask, and what they believe.
struct Asked {
    stores: Vec<SocketAddrV4>,
    controllers: Vec<SocketAddrV4>,
    secrets: Option<SecretsFile>,
}

fn read_secrets(file: Option<&Path>, nobody: bool) -> Result<Option<SecretsFile>, String> {
    match file {
        _ if nobody => Ok(None),
        Some(file) => SecretsFile::load(file).map(Some).map_err(|error| error.to_string()),
        None => Err("asking a store or controller needs the fabric's secrets: --secrets FILE, or `secrets` in the \
                     configuration"
            .into()),
    }
}

fn gather(asked: &Asked, timeout: Duration) -> Overview {
    let (stores, controllers) = match &asked.secrets {
        Some(secrets) => std::thread::scope(|scope| {
            let stores = scope.spawn(|| ask_all(&asked.stores, secrets, timeout));
            let controllers = ask_all(&asked.controllers, secrets, timeout);
            (stores.join().unwrap_or_default(), controllers)
        }),
        None => (vec![], vec![]),
    };
    Overview {
        switches: switches_of_this_machine(timeout),
        stores: stores
            .into_iter()
            .map(|(address, status, error): (_, Option<Value>, _)| {
                let view = status.as_ref().and_then(|status| {
                    systems::command_line().iter().find_map(|system| system.store(status))
                });
                Store { address, error, status, view }
            })
            .collect(),
        controllers: controllers
            .into_iter()
            .map(|(address, status, error)| Controller { address, error, status })
            .collect(),
    }
}

/// All at once: those that are dead take the whole timeout.
fn ask_all<S: DeserializeOwned + Send>(
    addresses: &[SocketAddrV4],
    secrets: &SecretsFile,
    timeout: Duration,
) -> Vec<(SocketAddrV4, Option<S>, Option<String>)> {
    std::thread::scope(|scope| {
        let ask = |address: SocketAddrV4| daemon::ask::query::<S>(address, secrets.ring(), timeout);
        let asked: Vec<_> = addresses
            .iter()
            .map(|address| (*address, scope.spawn(move || ask(*address))))
            .collect();
        let answered = asked.into_iter().map(|(address, thread)| match thread.join() {
            Ok(Ok(status)) => (address, Some(status), None),
            Ok(Err(error)) => (address, None, Some(error.to_string())),
            Err(_) => (address, None, Some(format!("{address}: could not be asked"))),
        });
        answered.collect()
    })
}

/// All at once, too: an agent that hangs takes the whole timeout.
fn switches_of_this_machine(timeout: Duration) -> Vec<Switch> {
    std::thread::scope(|scope| {
        let ask = |name: String| (name.clone(), scope.spawn(move || switch(name, timeout)));
        let asked: Vec<_> = switch_agent::known().into_iter().map(ask).collect();
        let failed = |name: String| {
            let error = Some(format!("{name}: could not be asked"));
            Switch { name, error, status: None, load: None }
        };
        asked
            .into_iter()
            .map(|(name, thread)| thread.join().unwrap_or_else(|_| failed(name)))
            .collect()
    })
}

fn switch(name: String, timeout: Duration) -> Switch {
    let ask = |request| client::ask_within(&RunDirectory::of(&name)?, &request, timeout);
    let (status, error) = match ask(Request::Status) {
        Ok(Reply::Status(status)) => (Some(status), None),
        Ok(_) => (None, Some(format!("{name}: the agent has another version: restart it"))),
        Err(error) => (None, Some(error.to_string())),
    };
    if error.is_some() {
        return Switch { name, error, status, load: None };
    }
    let (load, error) = match ask(Request::Load) {
        Ok(Reply::Load(load)) => match Load::of(load, systems::command_line()) {
            Ok(load) => (Some(load), None),
            Err(error) => {
                (None, Some(format!("{name}: {error}: the agent has another version: restart it")))
            }
        },
        Ok(_) => (None, Some(format!("{name}: the agent has another version: restart it"))),
        Err(error) => (None, Some(error.to_string())),
    };
    Switch { name, error, status, load }
}
