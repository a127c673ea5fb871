//! How a switch starts: anew, by taking over what runs, or by replacing it.

use crate::admission;
use crate::commit;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gateway::{Gateway, Worker};
use crate::incarnation;
use crate::kept_views;
use crate::preflight;
use crate::replace::{not_configured, warn_of_empty};
use crate::run_dir::{Hold, RunDirectory, State};
use crate::start_tables::{apply_tables, config_defaults, config_entries, migrate};
use crate::system::{self, Context, System, Systems};
use dataplane::layouts::core::MAX_IFINDEX;
use dataplane::{AttachMode, Dataplane, Link, Object, Settings};
use manifest::Manifest;
use secrets::{SecretsError, SecretsFile};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Member, ShardView, Views};

/// Controllers that can be reached answer within this time.
const ASK_AT_LEAST: Duration = Duration::from_millis(100);

/// A started switch.
pub(crate) struct Started {
    pub dataplane: Arc<Dataplane>,
    pub systems: Arc<Systems>,
    /// The packet generator's.
    pub interval: Duration,
    pub run: RunDirectory,
    pub state: State,
    /// Next hops and the slow path; its thread does not run yet.
    pub gateway: Arc<Gateway>,
    pub worker: Worker,
    /// How it started, in a word or two.
    pub how: &'static str,
}

/// What a configuration was checked against.
pub(crate) struct Checked {
    pub manifest: Manifest,
    /// The file of secrets, of a program that needs one. It may be another machine's, or another
    /// user's: that it cannot be read is an error only where it is used.
    secrets: Option<Result<SecretsFile, SecretsError>>,
}

/// Reads the manifest, the object and the secrets, and checks the configuration against them;
/// touches nothing.
pub(crate) fn check(config: &Config, systems: &[&dyn System]) -> Result<Checked> {
    if !config.object.is_file() {
        return config.fault("object", format!("there is no file {}", config.object.display()));
    }
    let manifest = Manifest::read(&Manifest::path_for(&config.object))?;
    // As the agent will open it; only the kernel's verifier, which needs privileges, says more.
    Object::open(&config.object, manifest.clone())
        .and_then(|mut object| object.set(settings(config)))
        .or_else(|error| config.fault("object", error.to_string()))?;
    let description = Dataplane::description_only(manifest.clone());
    for (index, table) in config.table.iter().enumerate() {
        let field = format!("table[{index}]");
        let known = description
            .table(&table.name)
            .or_else(|error| config.fault(format!("{field}.name"), error.to_string()))?;
        if let Some(why) = not_configured(&known).filter(|_| !table.entry.is_empty()) {
            return config.fault(format!("{field}.entry"), why);
        }
        for (number, entry) in table.entry.iter().enumerate() {
            known.resolve(&entry.spec()).and_then(|entry| known.check(&entry)).or_else(
                |error| config.fault(format!("{field}.entry[{number}]"), error.to_string()),
            )?;
        }
        if let Some(default) = &table.default {
            known
                .resolve_action(&default.spec())
                .and_then(|call| known.check_default(&call))
                .or_else(|error| config.fault(format!("{field}.default"), error.to_string()))?;
        }
    }
    system::check(systems, config, &manifest)?;
    for (index, port) in config.port.iter().enumerate() {
        if port.port >= manifest.max_ports {
            let reason = format!(
                "{} is not below {}, the program's number of ports",
                port.port, manifest.max_ports
            );
            return config.fault(format!("port[{index}].port"), reason);
        }
    }
    let path = config.secrets.as_deref().filter(|_| !manifest.state_objects.is_empty());
    let secrets = path.map(SecretsFile::load);
    match &secrets {
        None | Some(Ok(_) | Err(SecretsError::Read { .. })) => Ok(Checked { manifest, secrets }),
        Some(Err(error)) => config.fault("secrets", error.to_string()),
    }
}

/// What may keep a good configuration from working as it says, on this host or with this program:
/// file, field, reason and remedy of each.
pub(crate) fn problems(
    config: &Config,
    systems: &[&dyn System],
    checked: &Checked,
) -> Result<Vec<String>> {
    let Checked { manifest, secrets } = checked;
    let mut found = preflight::problems(config, system::message_bytes(systems, manifest));
    found.extend(system::doubts(systems, config, manifest)?);
    if let Some(Err(error)) = secrets {
        found.push(format!("{}: secrets: {error}", config.place("secrets")));
    }
    Ok(found)
}

/// What the object's constants are.
fn settings(config: &Config) -> Settings {
    Settings { test_mode: false, host_traffic: config.host_traffic, virtual_clock: false }
}

/// FNV-1a's usual start.
pub(crate) const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, from this start.
pub(crate) fn fnv_1a(start: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A hash of all that makes a loaded object what it is: tells "the same again" from "another".
fn fingerprint(config: &Config, manifest: &Manifest) -> Result<String> {
    let mut bytes = std::fs::read(&config.object)
        .map_err(|error| Error::path("read", &config.object, error))?;
    bytes.extend(manifest.to_json().into_bytes());
    bytes.push(u8::from(config.host_traffic));
    bytes.push(config.commit as u8);
    bytes.push(config.when_full as u8);
    bytes.extend(config.commit_hold_ms.to_ne_bytes());
    // (A fabric port with a smaller MTU takes no batch as long as before.)
    bytes.extend(commit::batch_words(config)?.to_ne_bytes());
    Ok(format!(
        "{:016x}{:016x}-{}",
        fnv_1a(FNV_OFFSET, &bytes),
        fnv_1a(0x6c62_272e_07bb_0142, &bytes),
        bytes.len()
    ))
}

/// Starts the switch. With `fresh`, whatever an earlier agent left is discarded first. A first
/// start that fails leaves nothing: no program on a port, no run directory.
pub(crate) fn start(
    config: &Arc<Config>,
    fresh: bool,
    systems: &[&dyn System],
) -> Result<(Started, Hold)> {
    let checked = check(config, systems)?;
    let hash = fingerprint(config, &checked.manifest)?;
    let run = RunDirectory::of(&config.name)?;
    let hold = run.open()?;
    for problem in problems(config, systems, &checked)? {
        tracing::warn!("{problem}");
    }
    match begin(config, checked, hash, fresh, systems, &run) {
        Ok(started) => Ok((started, hold)),
        Err(error) => {
            let taken = matches!(error, Error::SwitchIdTaken { .. });
            if taken || run.state().is_none() {
                let ports = config.port.iter().filter_map(|port| ifindex(&port.interface));
                crate::gateway::release(&ports.collect::<Vec<_>>());
                // The first error is the one to report.
                let _ = run.discard().and_then(|()| run.remove());
            }
            Err(error)
        }
    }
}

fn begin(
    config: &Arc<Config>,
    checked: Checked,
    hash: String,
    fresh: bool,
    systems: &[&dyn System],
    run: &RunDirectory,
) -> Result<Started> {
    let Checked { manifest, secrets } = checked;
    let previous = run.state();
    let last_incarnation = previous.as_ref().map_or(0, |state| state.incarnation);
    let previous = previous.filter(|_| !fresh);
    interfaces(config, previous.is_some())?;
    let (dataplane, state, how) = match previous {
        None => {
            // Pins of a start that never got as far as a state, or of a state that cannot be read.
            run.discard()?;
            let (dataplane, state) = load(config, run, manifest, hash, 1, last_incarnation)?;
            apply_tables(&dataplane, config, None)?;
            (dataplane, state, "started")
        }
        Some(state) if state.hash == hash => {
            match take_over(config, run, manifest.clone(), &state) {
                Ok(dataplane) => (dataplane, state, "took over"),
                Err(error) => {
                    tracing::warn!(
                        "the running program cannot be taken over ({error}); replacing it"
                    );
                    replace(config, run, manifest, hash, &state)?
                }
            }
        }
        Some(state) => replace(config, run, manifest, hash, &state)?,
    };
    let mut state =
        State { entries: config_entries(config), defaults: config_defaults(config), ..state };
    if how != "took over" {
        let now_ms = incarnation::ms_since_1970();
        let rest = incarnation::rest_of_first_tick(state.incarnation, now_ms);
        let asked = Instant::now();
        if !system::have_controllers(systems, dataplane.manifest()) {
            admission::ask(config, rest.max(ASK_AT_LEAST))?;
        }
        std::thread::sleep(rest.saturating_sub(asked.elapsed()));
        warn_of_empty(&dataplane, state.incarnation)?;
    }
    let dataplane = Arc::new(dataplane);
    let context = Context {
        config: config.clone(),
        dataplane: dataplane.clone(),
        incarnation: state.incarnation,
    };
    let systems = Arc::new(Systems::begin(systems, &context)?);
    let interval = systems.interval(Duration::from_micros(config.generator_interval_us));
    configure(&dataplane, &systems, config, interval, secrets)?;
    last_views(&systems, config, run)?;
    let (four, six) = crate::addresses::local()?;
    dataplane.set_local_addresses(&systems.without_own(four), &six)?;
    // The program knows its ports, and next hops are being resolved, before the first packet comes.
    let new =
        Gateway::new().map_err(|source| Error::System { action: "make an eventfd".into(), source });
    let gateway = Arc::new(new?);
    let known = |port: &crate::config::Port| Some((port.port, ifindex(&port.interface)?));
    let ports: Vec<(u32, u32)> = config.port.iter().filter_map(known).collect();
    let worker = Worker::begin(dataplane.clone(), gateway.clone(), config, &ports)?;
    // From here on a dead agent's successor finds what it needs.
    let other_generations: Vec<u32> =
        run.generations().into_iter().filter(|it| *it != state.generation).collect();
    commit::begin(&dataplane, config, run)?;
    sync_ports(&dataplane, run, config, &mut state, how == "replaced")?;
    run.write_state(&state)?;
    for generation in other_generations {
        run.remove_generation(generation)?;
    }
    let run = run.clone();
    Ok(Started { dataplane, systems, interval, run, state, gateway, worker, how })
}

/// Tells the systems all but the controllers' views, and the program its fabric ports.
fn configure(
    dataplane: &Dataplane,
    systems: &Systems,
    config: &Config,
    interval: Duration,
    secrets: Option<Result<SecretsFile, SecretsError>>,
) -> Result<()> {
    systems.configure(interval)?;
    if let Some(path) = config.secrets.as_ref().filter(|_| !systems.is_empty()) {
        // (A system may have no state object.)
        let file = secrets.unwrap_or_else(|| SecretsFile::load(path));
        systems.secrets(dataplane, file.map_err(|it| Error::Other(it.to_string()))?.ring())?;
    }
    if let Some(store) = config.store {
        // One shard, of which nobody says who else is in its chain.
        let members = vec![Member { address: store, incarnation: 0 }];
        systems.views(&Views {
            version: 0,
            shards: vec![ShardView { members, ..ShardView::default() }],
        })?;
    }
    for port in 0..dataplane.manifest().max_ports {
        let fabric = config.port.iter().any(|known| known.port == port && known.fabric);
        dataplane.set_fabric_port(port, fabric)?;
    }
    Ok(())
}

/// Maps without views get those that the controllers sent last, until one answers.
fn last_views(systems: &Systems, config: &Config, run: &RunDirectory) -> Result<()> {
    if config.controllers.is_empty() || systems.have_views() != Some(false) {
        return Ok(());
    }
    match kept_views::read(&kept_views::path(config, run), &config.controllers) {
        Ok(Some(views)) => {
            systems.views(&views)?;
            tracing::info!(
                "views {} of an earlier agent, until a controller answers",
                views.version
            );
        }
        Ok(None) => {}
        // Whatever is in it: the controllers will say.
        Err(error) => tracing::warn!("{error}"),
    }
    Ok(())
}

/// Are all interfaces there? At a first start one that is not is taken for a mistake. When the
/// program runs already, the others' traffic must not go without its agent, and so without
/// heartbeats, for one that is away: it is served when it comes back.
fn interfaces(config: &Config, runs: bool) -> Result<()> {
    for position in 0..config.port.len() {
        if port_index(config, position)?.is_none() {
            let interface = &config.port[position].interface;
            let reason = format!("there is no interface {interface:?} in this network namespace");
            if !runs {
                return config.fault(format!("port[{position}].interface"), reason);
            }
            tracing::warn!(
                "port[{position}].interface: {reason}; the others go on without it until it is back"
            );
        }
    }
    Ok(())
}

/// The index of a configured port's interface, if that is there.
fn port_index(config: &Config, position: usize) -> Result<Option<u32>> {
    let interface = &config.port[position].interface;
    let index = ifindex(interface);
    if let Some(index) = index.filter(|index| *index >= MAX_IFINDEX) {
        let reason = format!(
            "{interface:?} has the index {index}, but the program knows only indexes below {MAX_IFINDEX}; make the interface in a network namespace of its own, or anew after a restart: indexes grow with each one that is made"
        );
        return config.fault(format!("port[{position}].interface"), reason);
    }
    Ok(index)
}

pub(crate) fn ifindex(interface: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(interface).ok()
}

fn load(
    config: &Config,
    run: &RunDirectory,
    manifest: Manifest,
    hash: String,
    generation: u32,
    last_incarnation: u32,
) -> Result<(Dataplane, State)> {
    let batch_words = commit::batch_words(config)?;
    let set = |object: &mut Object| {
        object.set(settings(config))?;
        commit::prepare(object, config, batch_words)
    };
    let dataplane = Object::open_and_load(&config.object, manifest, set)?;
    run.remove_generation(generation)?;
    dataplane.pin(&run.generation(generation))?;
    let path = run.manifest(generation);
    std::fs::write(&path, dataplane.manifest().to_json())
        .map_err(|error| Error::path("write", &path, error))?;
    let incarnation = incarnation::next(config, last_incarnation)?;
    let state = State {
        generation,
        hash,
        incarnation,
        accepted: false,
        ports: vec![],
        entries: vec![],
        defaults: vec![],
    };
    Ok((dataplane, state))
}

fn take_over(
    config: &Config,
    run: &RunDirectory,
    manifest: Manifest,
    state: &State,
) -> Result<Dataplane> {
    let dataplane = Dataplane::open_pinned(&run.generation(state.generation), manifest)?;
    // A replacement that failed half-way, or whose agent died, may have left another generation's
    // program on some.
    for port in run.linked_ports() {
        if !dataplane.is_on("sp_main", &Link::open(&run.link(port))?)? {
            return Err(Error::Other(format!("port {port} has the program of another generation")));
        }
    }
    apply_tables(&dataplane, config, Some(state))?;
    Ok(dataplane)
}

/// Loads the new object beside the old one, and moves over the entries that were added at run time.
/// The ports follow in [`sync_ports`].
fn replace(
    config: &Config,
    run: &RunDirectory,
    manifest: Manifest,
    hash: String,
    old: &State,
) -> Result<(Dataplane, State, &'static str)> {
    // What a replacement before this one left when it failed must not pile up: its maps take as
    // much memory as the running ones. (Where its program is on a port, it stays there until this
    // one comes.)
    for left in run.generations().into_iter().filter(|generation| *generation != old.generation) {
        run.remove_generation(left)?;
    }
    let generation = old.generation + 1;
    let (dataplane, mut state) = load(config, run, manifest, hash, generation, old.incarnation)?;
    let before =
        Manifest::read(&run.manifest(old.generation)).map_err(Error::from).and_then(|manifest| {
            Ok(Dataplane::open_pinned(&run.generation(old.generation), manifest)?)
        });
    match before {
        Ok(before) => migrate(&before, old, &dataplane)?,
        Err(error) => tracing::warn!("entries of the old program are lost: {error}"),
    }
    apply_tables(&dataplane, config, None)?;
    state.ports.clone_from(&old.ports);
    // It was no newcomer before, and goes on.
    state.accepted = old.accepted;
    Ok((dataplane, state, "replaced"))
}

/// Puts the program on the configured ports, and takes it off others. Ports that have it already
/// are not touched, unless `replace` says that the program is another one now. Interfaces that are
/// not there are skipped: they may come back.
pub(crate) fn sync_ports(
    dataplane: &Dataplane,
    run: &RunDirectory,
    config: &Config,
    state: &mut State,
    replace: bool,
) -> Result<bool> {
    let before = state.ports.clone();
    let mut ports = vec![];
    // One that cannot be had does not keep the program off the others.
    let mut refused = None;
    for (position, port) in config.port.iter().enumerate() {
        let index = port_index(config, position).unwrap_or_else(|error| {
            refused.get_or_insert(error);
            None
        });
        let Some(index) = index else { continue };
        ports.push((port.port, index));
        if !before.contains(&(port.port, index))
            || replace
            || linked_to(&run.link(port.port)) != Some(index)
        {
            dataplane.set_port(port.port, index)?;
        }
    }
    // All ports are known before the first packet comes in.
    for (number, index) in &ports {
        let path = run.link(*number);
        match (linked_to(&path), replace) {
            (Some(found), false) if found == *index => {}
            (Some(found), true) if found == *index => {
                dataplane.replace("sp_main", &Link::open(&path)?)?
            }
            _ => {
                if path.exists() {
                    run.remove_link(*number)?;
                }
                refused = refused.or(attach(dataplane, config, *number, *index, &path).err());
            }
        }
    }
    if let Some(error) = refused {
        return Err(error);
    }
    for number in run
        .linked_ports()
        .into_iter()
        .filter(|number| !config.port.iter().any(|port| port.port == *number))
    {
        run.remove_link(number)?;
    }
    for (number, index) in before.iter().filter(|port| !ports.contains(port)) {
        // Not a port any more; but the number or the interface may serve another by now.
        if !ports.iter().any(|(other, other_index)| other == number || other_index == index) {
            dataplane.clear_port(*number, *index)?;
        } else if !ports.iter().any(|(_, other_index)| other_index == index) {
            dataplane.write_array("sp_port_by_ifindex", *index, &0u32.to_ne_bytes())?;
        }
    }
    state.ports = ports;
    Ok(state.ports != before)
}

/// The interface that a pinned link is on.
fn linked_to(path: &Path) -> Option<u32> {
    if !path.exists() {
        return None;
    }
    Link::open(path).and_then(|link| link.ifindex()).ok().flatten()
}

fn attach(
    dataplane: &Dataplane,
    config: &Config,
    port: u32,
    ifindex: u32,
    pin: &Path,
) -> Result<()> {
    let position = config.port.iter().position(|known| known.port == port).unwrap_or(0);
    let interface = &config.port[position].interface;
    let link = match dataplane.attach("sp_main", ifindex, AttachMode::Native) {
        Ok(link) => link,
        Err(native) => match dataplane.attach("sp_main", ifindex, AttachMode::Generic) {
            Ok(link) => {
                tracing::warn!(
                    "port {port} ({interface}): no native XDP ({native}); generic XDP is slower"
                );
                link
            }
            Err(generic) => {
                let reason = format!(
                    "no XDP on {interface:?}: {generic} (native: {native}); is another XDP program on it? see `ip link show {interface}`"
                );
                return config.fault(format!("port[{position}].interface"), reason);
            }
        },
    };
    Ok(link.pin(pin)?)
}
