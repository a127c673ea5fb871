//! `stateplane status`: one page about switches and stores, and whatever else reports ([`sections`]).

use secrets::SecretsFile;
use serde::{Deserialize, Serialize};
use state_store::core::NodeStatus as StoreStatus;
use state_store::shell;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;
use switch_agent::control::{Reply, Request, Status as SwitchStatus};
use switch_agent::load::Load;
use switch_agent::{RunDirectory, client};

const EXAMPLES: &str = "Examples:
  stateplane status                                          the switches on this machine
  stateplane status --secrets fabric.secrets --store 10.2.1.10:5407 --store 10.2.2.10:5407
  stateplane status --config /etc/stateplane/status.toml --watch

The configuration names what is asked everywhere:
  stores = [\"10.2.1.10:5407\", \"10.2.2.10:5407\", \"10.2.3.10:5407\"]
  secrets = \"fabric.secrets\"

Exit code 0: all that was asked is up and ready; 1: something is not.";

/// Between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(1);
/// Moves to the top left, and clears what is there.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Command line of `stateplane status`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A server of the state store (may be repeated).
    #[arg(long, value_name = "IP:PORT")]
    store: Vec<SocketAddrV4>,
    /// The fabric's shared secrets (`stateplane keys`): servers answer nobody without them.
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// Whom to ask (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Again every second, until Ctrl-C.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// How long to wait for a server's answer.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    timeout_ms: u64,
}

/// The configuration's file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    stores: Vec<SocketAddrV4>,
    /// Relative to this file.
    secrets: Option<PathBuf>,
}

/// A switch of this machine.
#[derive(Debug, Serialize)]
struct Switch {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    status: Option<SwitchStatus>,
    load: Option<Load>,
}

/// A server of the store.
#[derive(Debug, Serialize)]
struct Store {
    address: SocketAddrV4,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    status: Option<StoreStatus>,
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Overview {
    switches: Vec<Switch>,
    stores: Vec<Store>,
}

/// A table of the page.
struct Section {
    head: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// Below the table: what is wrong, and what to do.
    notes: Vec<String>,
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
    let mut stores = config.stores;
    stores.extend(args.store.iter().copied().filter(|address| !stores.contains(address)).collect::<Vec<_>>());
    let secrets = match read_secrets(args.secrets.or(config.secrets).as_deref(), &stores) {
        Ok(secrets) => secrets,
        Err(reason) => {
            eprintln!("stateplane status: {reason}");
            return 1;
        }
    };
    let stores = Stores { addresses: stores, secrets };
    let timeout = Duration::from_millis(args.timeout_ms);
    if !args.watch {
        let overview = gather(&stores, timeout);
        if args.json {
            outln!("{}", super::table::json(&overview));
        } else {
            print(&overview);
        }
        return u8::from(!overview.is_good());
    }
    lab::interrupt::install();
    let mut good = true;
    while !lab::interrupt::requested() {
        let overview = gather(&stores, timeout);
        good = overview.is_good();
        out!("{CLEAR}");
        print(&overview);
        // A signal ends the sleep early only if it comes to this thread: look often.
        for _ in 0..10 {
            if !lab::interrupt::requested() {
                std::thread::sleep(WATCH / 10);
            }
        }
    }
    u8::from(!good)
}

fn read(path: &Path) -> Result<Config, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut config: Config =
        toml::from_str(&text).map_err(|error| format!("{}: {}", path.display(), error.to_string().trim_end()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    config.secrets = config.secrets.map(|secrets| folder.join(secrets));
    Ok(config)
}

/// The servers to ask, and what they believe.
struct Stores {
    addresses: Vec<SocketAddrV4>,
    secrets: Option<SecretsFile>,
}

fn read_secrets(file: Option<&Path>, stores: &[SocketAddrV4]) -> Result<Option<SecretsFile>, String> {
    match file {
        _ if stores.is_empty() => Ok(None),
        Some(file) => SecretsFile::load(file).map(Some).map_err(|error| error.to_string()),
        None => {
            Err("asking a store needs the fabric's secrets: --secrets FILE, or `secrets` in the configuration".into())
        }
    }
}

fn gather(stores: &Stores, timeout: Duration) -> Overview {
    // All at once: those that are dead take the whole timeout.
    let stores = std::thread::scope(|scope| {
        let ask = |address: SocketAddrV4| {
            stores.secrets.as_ref().map(|secrets| shell::query_status(address, secrets.ring(), timeout))
        };
        let asked: Vec<_> =
            stores.addresses.iter().map(|address| (*address, scope.spawn(move || ask(*address)))).collect();
        let answered = asked.into_iter().map(|(address, thread)| match thread.join() {
            Ok(Some(Ok(status))) => Store { address, error: None, status: Some(status) },
            Ok(Some(Err(error))) => Store { address, error: Some(error.to_string()), status: None },
            Ok(None) | Err(_) => Store { address, error: Some(format!("{address}: asking it failed")), status: None },
        });
        answered.collect()
    });
    Overview { switches: switch_agent::running().into_iter().map(switch).collect(), stores }
}

fn switch(name: String) -> Switch {
    let ask = |request| client::ask(&RunDirectory::of(&name)?, &request);
    let (status, error) = match ask(Request::Status) {
        Ok(Reply::Status(status)) => (Some(status), None),
        Ok(_) => (None, Some(format!("{name}: the agent is of another version: restart it"))),
        Err(error) => (None, Some(error.to_string())),
    };
    let load = match ask(Request::Load) {
        Ok(Reply::Load(load)) => Some(load),
        _ => None,
    };
    Switch { name, error, status, load }
}

impl Overview {
    fn is_good(&self) -> bool {
        let ready = |store: &Store| store.status.as_ref().is_some_and(|status| status.state == "ready");
        self.switches.iter().all(Switch::is_good) && self.stores.iter().all(ready)
    }
}

impl Switch {
    fn is_good(&self) -> bool {
        self.error.is_none() && self.load.as_ref().is_none_or(|load| load.ports_attached == load.ports)
    }
}

/// The page, from top to bottom: a further kind of daemon adds its section here.
fn sections(overview: &Overview) -> Vec<Section> {
    vec![switches(&overview.switches), stores(&overview.stores)]
}

fn print(overview: &Overview) {
    let sections = sections(overview);
    if sections.iter().all(|section| section.rows.is_empty()) {
        outln!("no switch runs on this machine; --store ADDRESS asks servers of the state store");
    }
    for section in sections.iter().filter(|section| !section.rows.is_empty()) {
        super::table::print(section.head, section.rows.clone());
        for note in &section.notes {
            outln!("  {note}");
        }
        outln!("");
    }
}

fn switches(found: &[Switch]) -> Section {
    let mut notes = vec![];
    let row = |switch: &Switch| {
        let id = switch.status.as_ref().map_or("-".to_owned(), |status| status.switch_id.to_string());
        let program = switch.status.as_ref().map_or("-".to_owned(), |status| status.program.clone());
        let state = if switch.is_good() { "up" } else { "not well" };
        let mut row = vec![switch.name.clone(), id, program, state.to_owned()];
        let Some(load) = &switch.load else {
            row.extend(["-", "-", "-", "-", "-"].map(str::to_owned));
            return row;
        };
        let held: u64 = load.objects.iter().map(|object| object.flows).sum();
        let lag = load.generator_lag_us.map_or("-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1_000.0));
        row.extend([
            format!("{} of {}", load.ports_attached, load.ports),
            format!("{} of {}", load.sessions.iter().filter(|session| session.left_ms > 0).count(), load.shards),
            held.to_string(),
            load.pending.to_string(),
            lag,
        ]);
        row
    };
    let rows = found.iter().map(row).collect();
    for switch in found {
        notes.extend(switch.error.clone());
        let Some(load) = &switch.load else {
            notes.push(format!("{}: its agent is of an earlier version and tells no more", switch.name));
            continue;
        };
        for object in &load.objects {
            notes.push(format!(
                "{}: {} ({}): {} flows of {}",
                switch.name, object.name, object.consistency, object.flows, object.limit
            ));
        }
        if load.ports_attached < load.ports {
            notes.push(format!(
                "{}: a port is not attached: see `stateplane ports --switch {}`",
                switch.name, switch.name
            ));
        }
    }
    Section {
        head: &["switch", "id", "program", "state", "ports", "sessions", "flows", "pending", "generator lag"],
        rows,
        notes,
    }
}

fn stores(found: &[Store]) -> Section {
    let mut notes = vec![];
    let row = |store: &Store| {
        let Some(status) = &store.status else {
            let mut row = vec![store.address.to_string(), "-".to_owned(), "no answer".to_owned()];
            row.extend(["-", "-", "-", "-", "-", "-"].map(str::to_owned));
            return row;
        };
        vec![
            store.address.to_string(),
            format!(
                "{} of {}",
                status.replicas.iter().filter(|r| matches!(r.role.as_str(), "head" | "single")).count(),
                status.replicas.len()
            ),
            status.state.clone(),
            status.records.to_string(),
            status.sessions.to_string(),
            status.recalls.to_string(),
            status.held.to_string(),
            status.unacked.to_string(),
            format!("{} ms", status.replicas.iter().map(|replica| replica.stalled_ms).max().unwrap_or(0)),
        ]
    };
    let rows = found.iter().map(row).collect();
    for store in found {
        notes.extend(store.error.clone());
        let Some(status) = &store.status else { continue };
        for replica in &status.replicas {
            let shard = replica.shard;
            let broken = |reason: &String| format!("{}: shard {shard} is broken: {reason}", store.address);
            notes.extend(replica.reason.as_ref().map(broken));
        }
        if status.malformed > 0 {
            notes.push(format!("{}: {} malformed datagrams", store.address, status.malformed));
        }
    }
    Section {
        head: &["store", "head of shards", "state", "records", "sessions", "recalls", "held", "unacked", "lag"],
        rows,
        notes,
    }
}
