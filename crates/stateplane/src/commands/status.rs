//! `stateplane status`: one page about switches, stores and controllers ([`sections`]).

use controller::shell::{PeerStatus, Status as ControllerStatus};
use secrets::SecretsFile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use state_protocol::{Reporter, SwitchLoad};
use state_store::core::NodeStatus as StoreStatus;
use state_store::shell;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;
use switch_agent::control::{Reply, Request, Status as SwitchStatus};
use switch_agent::load::{Load, SessionLoad, ViewsKnown};
use switch_agent::{RunDirectory, client};

const EXAMPLES: &str = "Examples:
  stateplane status                                          the switches on this machine
  stateplane status --secrets fabric.secrets --store 10.2.1.10:5407 --store 10.2.2.10:5407
  stateplane status --secrets fabric.secrets --controller 10.2.1.10:5408
  stateplane status --config /etc/stateplane/status.toml --watch

The configuration names what is asked everywhere:
  stores = [\"10.2.1.10:5407\", \"10.2.2.10:5407\", \"10.2.3.10:5407\"]
  controllers = [\"10.2.1.10:5408\"]
  secrets = \"fabric.secrets\"

Of other machines' switches it shows what they report to the deciding controller, some seconds old.

A switch of this machine counts from its start until `stateplane switch detach`; one whose agent is dead gives no answer. A server or switch that the deciding
controller has not heard counts for a minute, until the controller forgets it.

Exit code 0: all that was asked is up and ready, and the deciding controller hears everybody; 1: something is not.";

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
    /// A controller of the state store: tells of the chains (may be repeated).
    #[arg(long, value_name = "IP:PORT")]
    controller: Vec<SocketAddrV4>,
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

/// A controller.
#[derive(Debug, Serialize)]
struct Controller {
    address: SocketAddrV4,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    status: Option<ControllerStatus>,
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Overview {
    switches: Vec<Switch>,
    stores: Vec<Store>,
    controllers: Vec<Controller>,
}

/// A table of the page.
pub struct Section {
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
    let stores = together(config.stores, &args.store);
    let controllers = together(config.controllers, &args.controller);
    let secrets =
        match read_secrets(args.secrets.or(config.secrets).as_deref(), stores.is_empty() && controllers.is_empty()) {
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
            outln!("{}", super::table::json(&overview));
        } else {
            print(&overview);
        }
        return u8::from(!overview.is_good());
    }
    lab::interrupt::install();
    let mut good = true;
    while !lab::interrupt::requested() {
        let overview = gather(&asked, timeout);
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
        stores: stores.into_iter().map(|(address, status, error)| Store { address, error, status }).collect(),
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
        let ask = |address: SocketAddrV4| shell::query::<S>(address, secrets.ring(), timeout);
        let asked: Vec<_> = addresses.iter().map(|address| (*address, scope.spawn(move || ask(*address)))).collect();
        let answered = asked.into_iter().map(|(address, thread)| match thread.join() {
            Ok(Ok(status)) => (address, Some(status), None),
            Ok(Err(error)) => (address, None, Some(error.to_string())),
            Err(_) => (address, None, Some(format!("{address}: asking it failed"))),
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
            let error = Some(format!("{name}: asking it failed"));
            Switch { name, error, status: None, load: None }
        };
        asked.into_iter().map(|(name, thread)| thread.join().unwrap_or_else(|_| failed(name))).collect()
    })
}

fn switch(name: String, timeout: Duration) -> Switch {
    let ask = |request| client::ask_within(&RunDirectory::of(&name)?, &request, timeout);
    let (status, error) = match ask(Request::Status) {
        Ok(Reply::Status(status)) => (Some(status), None),
        Ok(_) => (None, Some(format!("{name}: the agent is of another version: restart it"))),
        Err(error) => (None, Some(error.to_string())),
    };
    if error.is_some() {
        return Switch { name, error, status, load: None };
    }
    let (load, error) = match ask(Request::Load) {
        Ok(Reply::Load(load)) => (Some(load), None),
        Ok(_) => (None, Some(format!("{name}: the agent is of another version: restart it"))),
        Err(error) => (None, Some(error.to_string())),
    };
    Switch { name, error, status, load }
}

impl Overview {
    fn is_good(&self) -> bool {
        let ready = |store: &Store| store.status.as_ref().is_some_and(|status| status.state == "ready");
        let well = |controller: &Controller| {
            let well = |status: &ControllerStatus| (status.settled || !status.leading) && status.warnings.is_empty();
            controller.status.as_ref().is_some_and(well)
        };
        let forwards = |(_, load): &(&PeerStatus, &SwitchLoad)| load.ports_attached == load.ports;
        self.switches.iter().all(Switch::is_good)
            && self.reported_switches().iter().all(forwards)
            && self.stores.iter().all(ready)
            && self.controllers.iter().all(well)
            && (self.controllers.is_empty() || self.leaders() == 1)
            && self.leading().is_none_or(|status| silent(status).next().is_none())
    }

    /// Switches of other machines, as the controller that decides has heard of them.
    fn reported_switches(&self) -> Vec<(&PeerStatus, &SwitchLoad)> {
        let here = |id: u32| self.switches.iter().any(|it| it.status.as_ref().is_some_and(|it| it.switch_id == id));
        let elsewhere = |peer: &&PeerStatus| match peer.reporter {
            Reporter::Switch { switch_id } => !here(switch_id),
            Reporter::Server => false,
        };
        let peers = self.leading().into_iter().flat_map(daemons).filter(elsewhere);
        let mut found: Vec<_> = peers.filter_map(|peer| Some((peer, peer.load.as_ref()?))).collect();
        found.sort_by(|one, other| one.1.name.cmp(&other.1.name));
        found
    }

    /// Shards of the store, as far as the controller that decides lists them.
    fn shards(&self) -> usize {
        self.leading().map_or(0, |status| status.shards.len() + status.shards_left_out)
    }

    /// Controllers that decide, or believe so.
    fn leaders(&self) -> usize {
        let leads = |controller: &&Controller| controller.status.as_ref().is_some_and(|status| status.leading);
        self.controllers.iter().filter(leads).count()
    }

    /// The controller that decides; the newest, should two believe that for a moment.
    fn leading(&self) -> Option<&ControllerStatus> {
        let all = self.controllers.iter().filter_map(|controller| controller.status.as_ref());
        all.filter(|status| status.leading).max_by_key(|status| status.version)
    }
}

/// Servers and switches that the controller knows, without earlier lives of switches that report again: a switch reports from another port in each.
pub fn daemons(status: &ControllerStatus) -> impl Iterator<Item = &PeerStatus> {
    status.peers.iter().filter(|peer| !is_earlier_life(peer, &status.peers))
}

/// Does it stand for a switch that is heard from elsewhere?
fn is_earlier_life(peer: &PeerStatus, peers: &[PeerStatus]) -> bool {
    let again = |other: &PeerStatus| other.alive && other.reporter == peer.reporter;
    !peer.alive && peer.reporter != Reporter::Server && peers.iter().any(again)
}

/// Those of them that it does not hear any more.
fn silent(status: &ControllerStatus) -> impl Iterator<Item = &PeerStatus> {
    daemons(status).filter(|peer| !peer.alive)
}

/// In words.
pub fn reporter(reporter: Reporter) -> String {
    match reporter {
        Reporter::Server => "server".to_owned(),
        Reporter::Switch { switch_id } => format!("switch {switch_id}"),
    }
}

impl Switch {
    fn is_good(&self) -> bool {
        self.state() == "up"
    }

    /// In a word or two.
    fn state(&self) -> &'static str {
        match &self.load {
            _ if self.status.is_none() => "no answer",
            Some(load) if load.views == Some(ViewsKnown::None) => "no views",
            Some(load) if load.short_lease_us.is_some() => "no leases",
            Some(load) if self.error.is_none() && load.ports_attached == load.ports => "up",
            _ => "not well",
        }
    }
}

/// The page, from top to bottom: a further kind of daemon adds its section here.
fn sections(overview: &Overview) -> Vec<Section> {
    vec![
        switches(&overview.switches, &overview.reported_switches(), overview.shards()),
        stores(&overview.stores),
        controllers(overview),
        overview.leading().map_or(Section { head: &[], rows: vec![], notes: vec![] }, chains),
    ]
}

fn print(overview: &Overview) {
    let sections = sections(overview);
    if sections.iter().all(|section| section.rows.is_empty()) {
        outln!("no switch runs on this machine; --store and --controller ask the state store's daemons");
    }
    for section in sections.into_iter().filter(|section| !section.rows.is_empty()) {
        section.print();
        outln!("");
    }
}

impl Section {
    /// Prints the table and its notes.
    pub fn print(self) {
        super::table::print(self.head, self.rows);
        for note in &self.notes {
            outln!("  {note}");
        }
    }
}

/// How long the store takes for this switch's requests: of the slowest shard.
fn round_trips(name: &str, sessions: &[SessionLoad]) -> Option<String> {
    let slowest = sessions.iter().filter(|it| it.round_trip_us > 0).max_by_key(|it| it.round_trip_us)?;
    let outstanding: u64 = sessions.iter().map(|session| session.outstanding).sum();
    Some(format!(
        "{name}: round trip to the store {:.2} ms, sent again after {:.1} ms (shard {}, the slowest); {outstanding} requests not answered",
        slowest.round_trip_us as f64 / 1e3,
        slowest.resend_timeout_us as f64 / 1e3,
        slowest.shard
    ))
}

/// How late the generator is, in words.
fn lag(generator_lag_us: Option<u64>) -> String {
    generator_lag_us.map_or("-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1_000.0))
}

/// The row of a switch of another machine.
fn reported(peer: &PeerStatus, load: &SwitchLoad, shards: usize) -> Vec<String> {
    let id = match peer.reporter {
        Reporter::Switch { switch_id } => switch_id.to_string(),
        Reporter::Server => "-".to_owned(),
    };
    let state = match peer.alive {
        true if load.ports_attached < load.ports => "not well",
        true => "up",
        false => "not heard",
    };
    vec![
        load.name.clone(),
        id,
        load.program.clone(),
        state.to_owned(),
        format!("{} of {}", load.ports_attached, load.ports),
        format!("{} of {shards}", load.sessions),
        load.owned.to_string(),
        load.pending.to_string(),
        lag(load.generator_lag_us),
    ]
}

fn switches(found: &[Switch], elsewhere: &[(&PeerStatus, &SwitchLoad)], shards: usize) -> Section {
    let mut notes = vec![];
    let row = |switch: &Switch| {
        let id = switch.status.as_ref().map_or("-".to_owned(), |status| status.switch_id.to_string());
        let program = switch.status.as_ref().map_or("-".to_owned(), |status| status.program.clone());
        let mut row = vec![switch.name.clone(), id, program, switch.state().to_owned()];
        let Some(load) = &switch.load else {
            row.extend(["-", "-", "-", "-", "-"].map(str::to_owned));
            return row;
        };
        let owned: u64 = load.objects.iter().map(|object| object.owned).sum();
        row.extend([
            format!("{} of {}", load.ports_attached, load.ports),
            format!("{} of {}", load.sessions.iter().filter(|session| session.left_ms > 0).count(), load.shards),
            owned.to_string(),
            load.pending.to_string(),
            lag(load.generator_lag_us),
        ]);
        row
    };
    let there = elsewhere.iter().map(|(peer, load)| reported(peer, load, shards));
    let rows = found.iter().map(row).chain(there).collect();
    for (peer, load) in elsewhere.iter().filter(|(_, load)| load.ports_attached < load.ports) {
        notes.push(format!(
            "{}: a port is not attached: see `stateplane status` on its machine ({})",
            load.name,
            peer.address.ip()
        ));
    }
    for switch in found {
        notes.extend(switch.error.clone());
        let Some(load) = &switch.load else { continue };
        match load.views {
            Some(ViewsKnown::None) => notes.push(format!(
                "{}: no views: no controller has said where the store is, and packets that need its state are dropped; do the controllers run, and is there a route to them?",
                switch.name
            )),
            Some(ViewsKnown::Kept) => notes.push(format!(
                "{}: no controller has answered since the agent started: it goes by the views that an earlier one left",
                switch.name
            )),
            Some(ViewsKnown::Told) | None => {}
        }
        if let Some(lease_us) = load.short_lease_us {
            notes.push(format!(
                "{}: lease_margin_us is no less than the store's lease of {lease_us} us: no lease ever begins, and packets that need one are dropped; write less, or a longer lease_ms at the store",
                switch.name
            ));
        }
        for object in &load.objects {
            notes.push(format!(
                "{}: {} ({}): {} flows owned; {} of {} entries used",
                switch.name, object.name, object.consistency, object.owned, object.flows, object.limit
            ));
        }
        notes.extend(round_trips(&switch.name, &load.sessions));
        if load.ports_attached < load.ports {
            notes.push(format!(
                "{}: a port is not attached: see `stateplane ports --switch {}`",
                switch.name, switch.name
            ));
        }
    }
    Section {
        head: &["switch", "id", "program", "state", "ports", "sessions", "flows owned", "pending", "generator lag"],
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
            format!("{} of {}", status.heads, status.shards),
            status.state.clone(),
            status.records.to_string(),
            status.sessions.to_string(),
            status.recalls.to_string(),
            status.held.to_string(),
            status.unacked.to_string(),
            format!("{} ms", status.stalled_ms),
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

fn controllers(overview: &Overview) -> Section {
    let row = |controller: &Controller| {
        let Some(status) = &controller.status else {
            return vec![
                controller.address.to_string(),
                "no answer".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
            ];
        };
        let (alive, known) = (daemons(status).filter(|peer| peer.alive).count(), daemons(status).count());
        vec![
            controller.address.to_string(),
            controller_state(status).to_owned(),
            status.version.to_string(),
            format!("{alive} of {known}"),
            if status.settled { "yes" } else { "no" }.to_owned(),
        ]
    };
    let mut notes: Vec<_> = overview.controllers.iter().filter_map(|controller| controller.error.clone()).collect();
    if !overview.controllers.is_empty() && overview.leading().is_none() {
        notes.push("no controller decides: chains go on as they are, but are not repaired".to_owned());
    }
    if overview.leaders() > 1 {
        notes.push(
            "more than one controller decides: has each a database of its own? They decide against each other: stop all but the one with the newest views, or give them one etcd"
                .to_owned(),
        );
    }
    for controller in &overview.controllers {
        let of = |note: String| format!("{}: {note}", controller.address);
        notes.extend(controller.status.as_ref().map(controller_notes).unwrap_or_default().into_iter().map(of));
    }
    for peer in overview.leading().into_iter().flat_map(silent) {
        let (what, address, silent_ms) = (reporter(peer.reporter), peer.address, peer.silent_ms);
        notes.push(format!("{what} ({address}): the controller has not heard it for {silent_ms} ms"));
    }
    Section {
        head: &["controller", "state", "views", "daemons heard", "settled"],
        rows: overview.controllers.iter().map(row).collect(),
        notes,
    }
}

/// In a word or two.
pub fn controller_state(status: &ControllerStatus) -> &'static str {
    match (status.leading, &status.cannot_decide) {
        (true, None) => "decides",
        (true, Some(_)) => "cannot decide",
        (false, _) => "stands by",
    }
}

/// What is wrong, and what was lost.
pub fn controller_notes(status: &ControllerStatus) -> Vec<String> {
    let mut notes: Vec<String> = status.cannot_decide.iter().map(|why| format!("cannot decide: {why}")).collect();
    notes.extend(status.warnings.iter().cloned());
    if status.peers_left_out > 0 {
        notes.push(format!("{} daemons are not listed: the answer would not fit a message", status.peers_left_out));
    }
    if !status.state_lost.is_empty() {
        let shards: Vec<_> = status.state_lost.iter().map(ToString::to_string).collect();
        notes.push(format!(
            "STATE WAS LOST in shards {}: all servers of their chains died, and they began anew, empty (its log says when)",
            shards.join(" ")
        ));
    }
    notes
}

/// The chains as the deciding controller has them: head first.
pub fn chains(status: &ControllerStatus) -> Section {
    let row = |shard: &controller::shell::ShardStatus| {
        let chain: Vec<_> = shard.chain.iter().map(ToString::to_string).collect();
        vec![
            shard.shard.to_string(),
            shard.view.to_string(),
            chain.join(" "),
            shard.joining.map_or("-".to_owned(), |address| address.to_string()),
            format!("{} entries", shard.lag),
        ]
    };
    let left_out = status.shards_left_out;
    let note = format!(
        "{left_out} more chains are not listed: their answer would not fit a message; whole ones are left out first"
    );
    Section {
        head: &["shard", "view", "chain, head first", "joins", "lag"],
        rows: status.shards.iter().map(row).collect(),
        notes: if left_out > 0 { vec![note] } else { vec![] },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A controller's page with these `(address, reporter, heard)`.
    fn overview(peers: &[(&str, Reporter, bool)]) -> Overview {
        let peer = |(address, reporter, alive): &(&str, Reporter, bool)| PeerStatus {
            address: address.parse().expect("address"),
            reporter: *reporter,
            machine: String::new(),
            alive: *alive,
            version: 1,
            silent_ms: 7,
            load: None,
        };
        let peers = peers.iter().map(peer).collect();
        let status = ControllerStatus {
            leading: true,
            version: 1,
            settled: true,
            peers,
            shards: vec![],
            shards_left_out: 0,
            peers_left_out: 0,
            cannot_decide: None,
            state_lost: Vec::new(),
            warnings: Vec::new(),
        };
        let address = "10.0.0.9:5408".parse().expect("address");
        let controllers = vec![Controller { address, error: None, status: Some(status) }];
        Overview { switches: vec![], stores: vec![], controllers }
    }

    #[test]
    fn switches_of_other_machines_are_told_as_the_controller_heard_of_them() {
        let reporter = Reporter::Switch { switch_id: 7 };
        let mut overview = overview(&[("10.0.0.2:1000", reporter, true), ("10.0.0.2:900", reporter, false)]);
        let load = SwitchLoad {
            name: "leaf-7".to_owned(),
            program: "nat.p4".to_owned(),
            ports_attached: 2,
            ports: 2,
            sessions: 8,
            owned: 1_234,
            pending: 5,
            generator_lag_us: Some(1_500),
        };
        let row = |overview: &Overview| switches(&overview.switches, &overview.reported_switches(), 8).rows;
        assert!(row(&overview).is_empty() && overview.is_good(), "it has told nothing yet");
        let peers = |overview: &mut Overview, load: &SwitchLoad| {
            let status = overview.controllers[0].status.as_mut().expect("a status");
            status.peers.iter_mut().for_each(|peer| peer.load = Some(load.clone()));
        };
        peers(&mut overview, &load);
        let expected = ["leaf-7", "7", "nat.p4", "up", "2 of 2", "8 of 8", "1234", "5", "1.5 ms"].map(str::to_owned);
        assert_eq!((row(&overview), overview.is_good()), (vec![expected.to_vec()], true));
        peers(&mut overview, &SwitchLoad { ports_attached: 1, ..load });
        assert_eq!((row(&overview)[0][3].as_str(), overview.is_good()), ("not well", false));
    }

    #[test]
    fn whoever_the_controller_does_not_hear_is_told_but_for_earlier_lives() {
        let switch = |switch_id| Reporter::Switch { switch_id };
        let (store, first, again) = ("10.0.0.1:5407", "10.0.0.2:1000", "10.0.0.2:2000");
        for (peers, heard, note) in [
            (&[(store, Reporter::Server, true), (first, switch(1), true)][..], "2 of 2", None),
            (&[(store, Reporter::Server, true), (first, switch(1), false)], "1 of 2", Some("switch 1 (10.0.0.2:1000)")),
            (&[(store, Reporter::Server, false), (first, switch(1), true)], "1 of 2", Some("server (10.0.0.1:5407)")),
            (&[(first, switch(1), false), (again, switch(1), true)], "1 of 1", None),
            (&[(first, switch(1), false), (again, switch(2), true)], "1 of 2", Some("switch 1 (")),
        ] {
            let overview = overview(peers);
            let section = controllers(&overview);
            assert_eq!((overview.is_good(), section.rows[0][3].as_str()), (note.is_none(), heard), "{peers:?}");
            let told = section.notes.iter().any(|told| note.is_some_and(|note| told.starts_with(note)));
            assert_eq!((told, section.notes.is_empty()), (note.is_some(), note.is_none()), "{:?}", section.notes);
        }
    }
}
