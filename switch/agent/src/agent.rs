//! The agent's life: start, serve, end.

use crate::addresses::{self, Watch};
use crate::commit::{self, Waiting};
use crate::config::{CommitMode, Config};
use crate::control::{PortStatus, Reply, Request, Status};
use crate::drops::Rates;
use crate::error::{Error, Result};
use crate::gateway::{self, Gateway};
use crate::generator::{self, Generator};
use crate::load::ViewsKnown;
use crate::run_dir::{RunDirectory, State};
use crate::start::{self, Started};
use crate::system::{SWEEP_EVERY, System, Systems};
use dataplane::Dataplane;
use manifest::Manifest;
use secrets::SecretsFile;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use wire::{SwitchLoad, Views};

/// Netlink may lose news; so look at addresses and ports this often anyway.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// After news, more news usually follows: wait for it.
const SETTLE: Duration = Duration::from_millis(20);
/// A control request that is longer is refused. Thousands of entries fit (`table replace`).
const REQUEST_BYTES: u64 = 1 << 24;

/// A running switch.
pub(crate) struct Agent {
    pub config: Arc<Config>,
    pub dataplane: Arc<Dataplane>,
    pub run: RunDirectory,
    pub state: Mutex<State>,
    /// Held while something is changed.
    pub changes: Mutex<()>,
    pub generator: Arc<Generator>,
    pub gateway: Arc<Gateway>,
    /// The systems with state in the object.
    pub systems: Arc<Systems>,
    /// What controllers are told, as it was after the last sweep: reporting waits for nothing.
    pub reported: Mutex<Option<SwitchLoad>>,
    /// From controllers, or who pretends to be one.
    pub refused_views: crate::views::Refused,
    /// Of the last views that a controller sent to this agent; 0: none yet.
    pub views_version: AtomicU64,
    pub started: Instant,
    /// What messages have beside the packet in them, at the most.
    pub message_bytes: u32,
    /// Where packets wait; none: no packet of the program does.
    pub waiting: Option<Waiting>,
    /// For the rates of what is dropped.
    pub drop_rates: Rates,
    how: &'static str,
}

/// Checks a configuration against its object, and changes nothing. What of this host does not fit
/// the configuration, or may not: one problem each. They are no errors: the configuration may be
/// another machine's.
pub fn check(config: &Config, systems: &[&dyn System]) -> Result<Vec<String>> {
    let checked = start::check(config, systems)?;
    let mut problems = start::problems(config, systems, &checked)?;
    // The program may refuse the mode that `commit = "auto"` comes to on this host.
    if config.commit == CommitMode::Auto {
        let mut settled = config.clone();
        let waiting = commit::settle(&mut settled)?;
        if let Err(error) = start::check(&settled, systems) {
            problems.push(format!("{waiting}. {error}"));
        }
    }
    Ok(problems)
}

/// What settings of a checked configuration come to with its program, a line each.
///
/// # Errors
/// As [`check`].
pub fn figures(config: &Config, systems: &[&dyn System]) -> Result<Vec<String>> {
    let manifest = Manifest::read(&Manifest::path_for(&config.object))?;
    let all = systems.iter().map(|system| system.figures(config, &manifest));
    let all: Vec<_> = all.collect::<Result<_>>()?;
    Ok(all.into_iter().flatten().map(|(field, told)| format!("{field}: {told}")).collect())
}

/// Runs a switch until it is told to end. `fresh` discards what a dead agent of this name left.
/// `systems`: those that programs may have state of.
pub fn run(mut config: Config, fresh: bool, systems: &[&dyn System]) -> Result<()> {
    let waiting = commit::settle(&mut config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| Error::System { action: "start the runtime".into(), source })?;
    runtime.block_on(serve(Arc::new(config), waiting, fresh, systems))
}

async fn serve(
    config: Arc<Config>,
    waiting: Waiting,
    fresh: bool,
    known: &[&dyn System],
) -> Result<()> {
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
        Some(address) => match daemon::metrics::Server::bind(address) {
            Ok(server) => Some(server),
            Err(error) => return config.fault("metrics", format!("{address}: {error}")),
        },
        None => None,
    };
    let watch = Watch::new()?;
    let (started, hold) = start::start(&config, fresh, known)?;
    let Started { dataplane, systems, interval, run, state, gateway, worker, how } = started;
    let message_bytes = crate::system::message_bytes(known, dataplane.manifest());
    let waiting = commit::some_wait(&dataplane).then_some(waiting);
    let agent = Arc::new(Agent {
        dataplane,
        run,
        state: Mutex::new(state),
        changes: Mutex::new(()),
        generator: Arc::new(Generator::default()),
        gateway,
        systems,
        reported: Mutex::new(None),
        refused_views: crate::views::Refused::default(),
        views_version: AtomicU64::new(0),
        started: Instant::now(),
        message_bytes,
        waiting,
        drop_rates: Rates::default(),
        how,
        config,
    });
    if let Some(waiting) = &agent.waiting {
        tracing::info!("{waiting}");
    }
    agent.follow_ports();
    let thread = generator::start(
        agent.dataplane.clone(),
        interval,
        agent.systems.clone(),
        agent.generator.clone(),
    );
    let next_hops = worker.start()?;
    let (stop, mut stopped) = mpsc::channel(1);
    sweep(agent.clone());
    let (refuse, mut refused) = mpsc::channel(1);
    if crate::system::have_controllers(known, agent.dataplane.manifest()) {
        // (The switch cannot be refused then: nobody hears from the channel's other end.)
        drop(refuse);
    } else {
        crate::views::start(agent.clone(), refuse);
    }
    agent.systems.serve()?;
    tokio::spawn(control(agent.clone(), listen(&agent.run)?, stop));
    if let Some(server) = metrics {
        crate::metrics::serve(agent.clone(), server)
            .map_err(system("start the thread for metrics"))?;
    }
    if agent.views_known() == Some(ViewsKnown::None) {
        tracing::warn!(
            "no views: no controller has said yet where the store is, so packets that need its \
             state are dropped; do the `controllers` in {} run?",
            agent.config.file.display()
        );
    }
    tracing::info!("switch {}: {how} {}", agent.config.name, agent.dataplane.manifest().program);
    let mut told_ready = false;
    let mut failed = None;
    let detach = loop {
        // With Type=notify routing may begin now. Views are not waited for: without them the
        // program drops what needs them, and a switch that boots while no controller answers must
        // not be taken for one that failed.
        if !told_ready && agent.is_on_all_ports() {
            told_ready = true;
            daemon::service::tell_ready(Some(&agent.summary()));
        }
        tokio::select! {
            _ = terminate.recv() => break agent.config.detach,
            _ = interrupt.recv() => break agent.config.detach,
            _ = hangup.recv() => agent.read_secrets(),
            Some(detach) = stopped.recv() => break detach,
            Some(error) = refused.recv() => {
                failed = Some(error);
                break true;
            }
            () = watch.changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        agent.look();
    };
    daemon::service::tell_stopping();
    agent.generator.stop.store(true, Ordering::Relaxed);
    if let Some(thread) = thread {
        // It ends within an interval; if it panicked, there is nothing left to wait for.
        let _ = thread.join();
    }
    agent.gateway.stop();
    let _ = next_hops.join();
    let _ = std::fs::remove_file(agent.run.socket());
    if detach {
        let ports = agent.state.lock().unwrap_or_else(PoisonError::into_inner).ports.clone();
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
    failed.map_or(Ok(()), Err)
}

/// Has the systems go through their entries now and then, until the runtime ends.
fn sweep(agent: Arc<Agent>) {
    if agent.systems.is_empty() {
        return;
    }
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let agent = agent.clone();
            // A panic or cancellation there costs one sweep.
            let _ = tokio::task::spawn_blocking(move || {
                agent.systems.sweep(Instant::now() + SWEEP_EVERY);
                let load = agent.short_load();
                *agent.reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(load);
            })
            .await;
        }
    });
}

/// The control socket; one that a dead agent left is replaced (the run directory's lock says that
/// it is dead).
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

async fn converse(
    agent: Arc<Agent>,
    stream: UnixStream,
    stop: mpsc::Sender<bool>,
) -> std::io::Result<()> {
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
        let (line, agent) = (line.clone(), agent.clone());
        let reply = tokio::task::spawn_blocking(move || match request {
            Ok(request) => serde_json::to_string(&agent.answer(request)),
            Err(error) => agent.answer_for_systems(&line, &error),
        });
        let reply = reply.await.map_err(std::io::Error::other)?.map_err(std::io::Error::other)?;
        let text = reply + "\n";
        writer.write_all(text.as_bytes()).await?;
        if let Some(detach) = stopping {
            let _ = stop.send(detach).await;
        }
    }
}

impl Agent {
    /// Reads the shared secrets again; if the file is at fault, the earlier ones stay.
    fn read_secrets(&self) {
        let Some(path) = self.config.secrets.as_ref().filter(|_| !self.systems.is_empty()) else {
            return;
        };
        match read_secrets(path).and_then(|file| self.systems.secrets(&self.dataplane, file.ring()))
        {
            Ok(()) => tracing::info!("secrets: read {}", path.display()),
            Err(error) => tracing::error!("secrets: {error}; the secrets read before stay in use"),
        }
    }

    /// Hands views in which every shard has a head to the systems.
    pub(crate) fn take_views(&self, views: &Views) -> Result<()> {
        let _one_at_a_time = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.systems.views(views)
    }

    /// Answers a request that the agent itself does not know.
    fn answer_for_systems(
        &self,
        line: &str,
        error: &serde_json::Error,
    ) -> serde_json::Result<String> {
        let answer =
            serde_json::from_str(line).ok().and_then(|request| self.systems.request(&request));
        let error = match answer {
            Some(Ok(reply)) => return serde_json::to_string(&reply),
            Some(Err(error)) => error.to_string(),
            None if self.systems.is_empty() => {
                format!(
                    "not a request ({error}); the program also has no state of a system that could answer it"
                )
            }
            None => format!("not a request: {error}"),
        };
        serde_json::to_string(&Reply::Error { error })
    }

    /// Brings the data plane in line with the host's addresses and interfaces.
    fn look(&self) {
        let result = addresses::local()
            .and_then(|(four, six)| {
                let four = self.systems.without_own(four);
                Ok(self.dataplane.set_local_addresses(&four, &six)?)
            })
            .and_then(|_| {
                let _one_at_a_time = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if start::sync_ports(&self.dataplane, &self.run, &self.config, &mut state, false)? {
                    self.run.write_state(&state)?;
                }
                Ok(())
            });
        let kept = commit::keep(&self.dataplane, &self.config, &self.run);
        for error in [result.err(), kept.err()].into_iter().flatten() {
            tracing::warn!("{error}");
        }
        self.follow_ports();
        self.systems.look();
        // A sample, so that there is a rate when somebody asks.
        self.drops();
    }

    /// The number of this switch's life.
    pub(crate) fn incarnation(&self) -> u32 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).incarnation
    }

    /// Whether a controller has answered this life of the switch for a while.
    pub(crate) fn is_accepted(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).accepted
    }

    /// From now on, and after the agent's next start, no other switch takes this one's number.
    pub(crate) fn accept(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut state.accepted, true)
            && let Err(error) = self.run.write_state(&state)
        {
            tracing::warn!("{error}");
        }
    }

    /// Whether the program is on every port of the configuration.
    fn is_on_all_ports(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.config
            .port
            .iter()
            .all(|port| state.ports.iter().any(|(number, _)| *number == port.port))
    }

    /// What `systemctl status` shows.
    fn summary(&self) -> String {
        let views = match self.views_known() {
            Some(ViewsKnown::None) => "; no views yet",
            _ => "",
        };
        format!(
            "{} {} on {} ports{views}",
            self.how,
            self.dataplane.manifest().program,
            self.config.port.len()
        )
    }

    /// The generator's frames seem to come from the first port that is there, up or down: the
    /// kernel makes and forwards them in both cases.
    fn follow_ports(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = state.ports.first().map_or(0, |(_, ifindex)| *ifindex);
        self.generator.ifindex.store(first, Ordering::Relaxed);
        self.gateway.set_ports(&state.ports);
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Reads the file of shared secrets.
fn read_secrets(path: &Path) -> Result<SecretsFile> {
    SecretsFile::load(path).map_err(|error| Error::Other(error.to_string()))
}

/// Takes a switch off its ports whose agent is dead. A live agent must be asked instead
/// ([`Request::Stop`]).
pub fn detach(run: &RunDirectory) -> Result<()> {
    if !run.path().is_dir() {
        return Err(Error::Other(format!(
            "there is no switch {}: its directory {} is missing",
            run.name(),
            run.path().display()
        )));
    }
    let _hold = run.lock()?;
    let ports = run.state().map(|state| state.ports).unwrap_or_default();
    gateway::release(&ports.iter().map(|(_, ifindex)| *ifindex).collect::<Vec<_>>());
    run.discard()?;
    run.remove()
}
