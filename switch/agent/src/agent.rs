//! The agent's life: start, serve, end.

use crate::addresses::{self, Watch};
use crate::config::Config;
use crate::control::{PortStatus, Reply, Request, Status};
use crate::error::{Error, Result};
use crate::flow_state;
use crate::gateway::{self, Gateway};
use crate::generator::{self, Generator};
use crate::load::{Counted, ViewsKnown};
use crate::run_dir::{RunDirectory, State};
use crate::start::{self, Started};
use crate::sweep;
use dataplane::Dataplane;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Netlink may lose news; so look at addresses and ports this often anyway.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// After news, more news usually follows: wait for it.
const SETTLE: Duration = Duration::from_millis(20);
/// A control request that is longer is refused.
const REQUEST_BYTES: u64 = 1 << 20;

/// A running switch.
pub(crate) struct Agent {
    pub config: Config,
    pub dataplane: Arc<Dataplane>,
    pub run: RunDirectory,
    pub state: Mutex<State>,
    /// Held while something is changed.
    pub changes: Mutex<()>,
    pub generator: Arc<Generator>,
    pub gateway: Arc<Gateway>,
    /// Flows, as last counted.
    pub counted: Counted,
    /// Leases are too short for the margin, and the log has it.
    told_short_lease: AtomicBool,
    /// Idle flows removed so far.
    pub swept: AtomicU64,
    /// From controllers, or who pretends to be one.
    pub refused_views: crate::views::Refused,
    /// Of the last views that a controller sent to this agent; 0: none yet.
    pub views_version: AtomicU64,
    pub started: Instant,
    how: &'static str,
}

/// Checks a configuration against its object, and changes nothing.
pub fn check(config: &Config) -> Result<()> {
    start::check(config).map(drop)
}

/// Runs a switch until it is told to end. `fresh` discards what a dead agent of this name left.
pub fn run(config: Config, fresh: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| Error::System { action: "start the runtime".into(), source })?;
    runtime.block_on(serve(config, fresh))
}

async fn serve(config: Config, fresh: bool) -> Result<()> {
    // Before anything is attached: a signal from here on is not lost.
    let system = |action: &str| {
        let action = action.to_owned();
        move |source: std::io::Error| Error::System { action, source }
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("watch SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("watch SIGINT"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(system("watch SIGHUP"))?;
    // Before the metrics' address, which the agent that runs already has too.
    let earlier = RunDirectory::of(&config.name)?;
    if earlier.path().is_dir() {
        earlier.lock().map(drop)?;
    }
    let metrics = match config.metrics {
        Some(address) => match metrics::Server::bind(address) {
            Ok(server) => Some(server),
            Err(error) => return config.fault("metrics", format!("{address}: {error}")),
        },
        None => None,
    };
    let watch = Watch::new()?;
    let Started { dataplane, run, hold, state, gateway, worker, how } = start::start(&config, fresh)?;
    let agent = Arc::new(Agent {
        dataplane,
        run,
        state: Mutex::new(state),
        changes: Mutex::new(()),
        generator: Arc::new(Generator::default()),
        gateway,
        counted: Counted::default(),
        told_short_lease: AtomicBool::new(false),
        swept: AtomicU64::new(0),
        refused_views: crate::views::Refused::default(),
        views_version: AtomicU64::new(0),
        started: Instant::now(),
        how,
        config,
    });
    agent.follow_ports();
    let interval = generator::interval(&agent.dataplane, agent.config.generator_interval_us);
    let settings = flow_state::settings(&agent.dataplane, &agent.config, 0, 0);
    let thread = generator::start(agent.dataplane.clone(), interval, settings, agent.generator.clone());
    let next_hops = worker.start()?;
    let (stop, mut stopped) = mpsc::channel(1);
    sweep::start(agent.clone());
    crate::views::start(agent.clone());
    tokio::spawn(control(agent.clone(), listen(&agent.run)?, stop));
    if let Some(server) = metrics {
        crate::metrics::serve(agent.clone(), server).map_err(system("start the thread for metrics"))?;
    }
    if agent.views_known() == Some(ViewsKnown::None) {
        tracing::warn!(
            "no views: no controller has said yet where the store is, so packets that need its state are dropped; `controllers` in {}: do they run?",
            agent.config.file.display()
        );
    }
    tracing::info!("switch {}: {how} {}", agent.config.name, agent.dataplane.manifest().program);
    let mut told_ready = false;
    let detach = loop {
        // With Type=notify routing may begin now. Views are not waited for: without them the program drops what needs them, and a switch that boots while no
        // controller answers must not be taken for one that failed.
        if !told_ready && agent.is_on_all_ports() {
            told_ready = true;
            service::tell_ready(Some(&agent.summary()));
        }
        tokio::select! {
            _ = terminate.recv() => break agent.config.detach,
            _ = interrupt.recv() => break agent.config.detach,
            _ = hangup.recv() => agent.read_secrets(),
            Some(detach) = stopped.recv() => break detach,
            () = watch.changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        agent.look();
    };
    service::tell_stopping();
    agent.generator.stop.store(true, Ordering::Relaxed);
    if let Some(thread) = thread {
        // It ends within an interval; if it panicked, there is nothing left to wait for.
        let _ = thread.join();
    }
    agent.gateway.stop();
    let _ = next_hops.join();
    let _ = std::fs::remove_file(agent.run.socket());
    if detach {
        let ports = agent.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).ports.clone();
        gateway::release(&ports.iter().map(|(_, ifindex)| *ifindex).collect::<Vec<_>>());
        agent.run.discard()?;
        agent.run.remove()?;
    }
    tracing::info!(
        "switch {}: ended{}",
        agent.config.name,
        if detach { ", detached" } else { "; it goes on forwarding" }
    );
    drop(hold);
    Ok(())
}

/// The control socket; one that a dead agent left is replaced (the run directory's lock says that it is dead).
fn listen(run: &RunDirectory) -> Result<UnixListener> {
    let path = run.socket();
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(&path).map_err(|error| Error::path("listen on", &path, error))
}

async fn control(agent: Arc<Agent>, listener: UnixListener, stop: mpsc::Sender<bool>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (agent, stop) = (agent.clone(), stop.clone());
                tokio::spawn(async move {
                    // A client that hangs up is its own affair.
                    let _ = converse(agent, stream, stop).await;
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(agent: Arc<Agent>, stream: UnixStream, stop: mpsc::Sender<bool>) -> std::io::Result<()> {
    use tokio::io::AsyncReadExt;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader).take(REQUEST_BYTES);
    let mut line = String::new();
    loop {
        line.clear();
        reader.set_limit(REQUEST_BYTES);
        if reader.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let request: Result<Request, _> = serde_json::from_str(&line);
        let stopping = match &request {
            Ok(Request::Stop { detach }) => Some(*detach),
            _ => None,
        };
        let reply = match request {
            Ok(request) => {
                let agent = agent.clone();
                tokio::task::spawn_blocking(move || agent.answer(request)).await.map_err(std::io::Error::other)?
            }
            Err(error) => Reply::Error { error: format!("not a request: {error}") },
        };
        let text = serde_json::to_string(&reply).map_err(std::io::Error::other)? + "\n";
        writer.write_all(text.as_bytes()).await?;
        if let Some(detach) = stopping {
            let _ = stop.send(detach).await;
        }
    }
}

impl Agent {
    /// Reads the shared secrets again; if the file is at fault, the earlier ones stay.
    fn read_secrets(&self) {
        let Some(path) = self.config.secrets.as_ref().filter(|_| self.dataplane.has_flow_runtime()) else { return };
        let result = flow_state::read_secrets(path).and_then(|set| Ok(self.dataplane.set_secrets(&set)?));
        match result {
            Ok(()) => tracing::info!("secrets: read {}", path.display()),
            Err(error) => tracing::error!("secrets: {error}; the ones read before stay"),
        }
    }

    /// Makes the store's cluster have these shards, the head of each shard's chain in their order: what a view says, or a configuration with `store`.
    pub(crate) fn set_shards(&self, heads: Vec<SocketAddrV4>) -> Result<()> {
        let _one_at_a_time = self.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let incarnation = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).incarnation;
        flow_state::set_shards(&self.dataplane, &self.config, incarnation, &heads)
    }

    /// Brings the data plane in line with the host's addresses and interfaces.
    fn look(&self) {
        let result = addresses::local()
            .and_then(|(four, six)| Ok(self.dataplane.set_local_addresses(&four, &six)?))
            .and_then(|_| {
                let _one_at_a_time = self.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if start::sync_ports(&self.dataplane, &self.run, &self.config, &mut state, false)? {
                    self.run.write_state(&state)?;
                }
                Ok(())
            });
        if let Err(error) = result {
            tracing::warn!("{error}");
        }
        self.follow_ports();
        self.look_at_leases();
    }

    /// Says it, once, when the store's leases are too short for the configuration's margin; only answers tell how long they are.
    fn look_at_leases(&self) {
        let short = self.short_lease_us(&self.sessions().1);
        if let Some(lease_us) = short.filter(|_| !self.told_short_lease.load(Ordering::Relaxed)) {
            tracing::error!(
                "{}: lease_margin_us: {} leaves nothing of the store's lease of {lease_us} us: packets that need its state are dropped; write less, or a longer \
                 lease_ms in the store's configuration",
                self.config.file.display(),
                self.config.lease_margin_us
            );
        }
        self.told_short_lease.store(short.is_some(), Ordering::Relaxed);
    }

    /// Whether the program is on every port of the configuration.
    fn is_on_all_ports(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.config.port.iter().all(|port| state.ports.iter().any(|(number, _)| *number == port.port))
    }

    /// What `systemctl status` shows.
    fn summary(&self) -> String {
        let views = match self.views_known() {
            Some(ViewsKnown::None) => "; no views yet",
            _ => "",
        };
        format!("{} {} on {} ports{views}", self.how, self.dataplane.manifest().program, self.config.port.len())
    }

    /// The generator's frames seem to come from the first port that is there.
    fn follow_ports(&self) {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let first = state.ports.first().map_or(0, |(_, ifindex)| *ifindex);
        self.generator.ifindex.store(first, Ordering::Relaxed);
        self.gateway.set_ports(&state.ports);
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Status {
            name: self.config.name.clone(),
            program: self.dataplane.manifest().program.clone(),
            how: self.how.to_owned(),
            switch_id: self.config.switch_id,
            incarnation: state.incarnation,
            pid: std::process::id(),
            generated_frames: self.generator.frames.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn ports(&self) -> Result<Vec<PortStatus>> {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let ports = self.config.port.iter().map(|port| {
            Ok(PortStatus {
                port: port.port,
                interface: port.interface.clone(),
                attached: state.ports.iter().any(|(number, _)| *number == port.port),
                fabric: port.fabric,
                stats: self.dataplane.port_stats(port.port)?,
            })
        });
        ports.collect()
    }
}

/// Takes a switch off its ports whose agent is dead. A live agent must be asked instead ([`Request::Stop`]).
pub fn detach(run: &RunDirectory) -> Result<()> {
    if !run.path().is_dir() {
        return Err(Error::Other(format!("there is no switch {}: no {}", run.name(), run.path().display())));
    }
    let _hold = run.lock()?;
    let ports = run.state().map(|state| state.ports).unwrap_or_default();
    gateway::release(&ports.iter().map(|(_, ifindex)| *ifindex).collect::<Vec<_>>());
    run.discard()?;
    run.remove()
}
