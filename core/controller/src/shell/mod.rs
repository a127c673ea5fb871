//! The shell around the core: UDP socket, clock, signals, database, metrics.

mod database;
mod etcd;
mod rebuild;
mod render;
mod status;
mod watch;

pub use database::DatabaseError;
pub use rebuild::{RebuildError, rebuild};
pub use status::{PeerStatus, ShardStatus, Status};

use crate::config::{Config, EtcdConfig, Keep};
use crate::core::{Controller, Event, Input, Outputs, Why};
use database::ViewsFile;
use etcd::{Etcd, EtcdThread, Told};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::time::{ClockId, clock_gettime};
use secrets::SecretsError;
use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thiserror::Error;
use watch::Watch;
use wire::{Control, ControlType, KeyRing, Kind, Refusal, ToolType, Views, kind, status_reply};

const MOST_DATAGRAMS: usize = 256;
/// A sender with other secrets asks 200 times a second.
const TELL_BAD_TAG_EVERY: Duration = Duration::from_secs(10);
/// Not more often are senders told that they have other secrets: whoever sends in another's name
/// makes nobody busy.
const ANSWER_BAD_TAG_EVERY: Duration = Duration::from_millis(20);

/// Why a controller cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// An address cannot be used.
    #[error(
        "{address}: cannot listen: {source}; is another controller running there, and is the address this host's?"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The cluster is another one than this is configured for.
    #[error(
        "the cluster has {cluster} shards, as its database says: write `shards = {cluster}` instead of {configured}"
    )]
    Shards {
        /// By its views.
        cluster: usize,
        /// By the configuration.
        configured: u16,
    },
    /// The shared secrets cannot be used.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The operating system refused something basic.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
}

fn system(what: &'static str) -> impl Fn(nix::Error) -> RunError {
    move |error| RunError::System { what, source: error.into() }
}

fn now_ns() -> u64 {
    let time =
        clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    let time = time.map(Duration::from).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Where decisions go.
enum Keeper {
    File(ViewsFile),
    Etcd(EtcdThread),
}

/// Runs a controller until SIGTERM or SIGINT; SIGHUP has it read its secrets again. Whoever waits
/// for it (`Type=notify`) hears that it is ready when its sockets are bound and its database is
/// open; with etcd, when it has begun to ask: one that waits for its turn runs, too, and so does
/// one whose etcd is not up yet. Must be called before the process starts other threads: it blocks
/// those signals.
pub fn run(config: &Config) -> Result<(), RunError> {
    let mut signals = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .for_each(|signal| signals.add(signal));
    signals.thread_block().map_err(system("blocking signals"))?;
    let signal_fd = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(system("opening a signal descriptor"))?;
    let keys = config.keys()?;
    let bind = |source| RunError::Bind { address: SocketAddr::V4(config.listen), source };
    let socket = UdpSocket::bind(config.listen).map_err(bind)?;
    socket
        .set_nonblocking(true)
        .map_err(|source| RunError::System { what: "the socket", source })?;
    let metrics = match config.metrics {
        Some(address) => Some(
            daemon::metrics::Server::bind(address)
                .map_err(|source| RunError::Bind { address, source })?,
        ),
        None => None,
    };
    let (keeper, views) = keeper(config)?;
    let leading = matches!(keeper, Keeper::File(_));
    tracing::info!(name = config.name, listen = %config.listen, version = views.version, "controller started");
    let core = Controller::new(config.settings.clone(), views, leading, now_ns());
    let (watch, undecided, again) = (Watch::default(), Vec::new(), None);
    daemon::service::tell_ready(None);
    let mut controller = Loop {
        core,
        socket,
        signal_fd,
        keys,
        keeper,
        metrics,
        bad_tag: 0,
        told_bad_tag: None,
        answered_bad_tag: None,
        watch,
        undecided,
        again,
    };
    let ended = controller.run(config);
    daemon::service::tell_stopping();
    if let Keeper::Etcd(thread) = controller.keeper {
        thread.stop();
    }
    ended
}

fn keeper(config: &Config) -> Result<(Keeper, Views), RunError> {
    match &config.keep {
        Keep::Database(path) => {
            let (file, views) = ViewsFile::open(path)?;
            Ok((Keeper::File(file), views))
        }
        Keep::Etcd(kept) => {
            let etcd = etcd_client(
                kept,
                format!("{} {} {}", config.name, config.listen, std::process::id()),
            )?;
            let thread = EtcdThread::start(etcd);
            let thread = thread
                .map_err(|source| RunError::System { what: "starting the etcd thread", source })?;
            Ok((Keeper::Etcd(thread), Views::default()))
        }
    }
}

fn etcd_client(config: &EtcdConfig, me: String) -> Result<Etcd, RunError> {
    Etcd::new(config, me)
        .map_err(|source| RunError::System { what: "starting the etcd client", source })
}

struct Loop {
    core: Controller,
    socket: UdpSocket,
    signal_fd: SignalFd,
    keys: KeyRing,
    keeper: Keeper,
    metrics: Option<daemon::metrics::Server>,
    bad_tag: u64,
    told_bad_tag: Option<Instant>,
    answered_bad_tag: Option<Instant>,
    watch: Watch,
    /// What the decision that is being written is about: told when it is written.
    undecided: Vec<Event>,
    /// A decision was refused, and what the database had: the core hears of it, and decides again,
    /// at this time.
    again: Option<(u64, Option<Views>)>,
}

impl Loop {
    fn run(&mut self, config: &Config) -> Result<(), RunError> {
        let mut buffer = vec![0; 65_536];
        loop {
            if self.core.is_of_other_shards() {
                let cluster = self.core.views().shards.len();
                return Err(RunError::Shards { cluster, configured: config.settings.shards });
            }
            self.wait()?;
            for _ in 0..MOST_DATAGRAMS {
                match self.socket.recv_from(&mut buffer) {
                    Ok((count, SocketAddr::V4(from))) => {
                        self.datagram(config, from, &buffer[..count])
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // Such as "connection refused": an earlier datagram's answer from a peer that
                    // is gone.
                    Err(_) => {}
                }
            }
            let told = match &self.keeper {
                Keeper::Etcd(thread) => thread.told(),
                Keeper::File(_) => Vec::new(),
            };
            told.into_iter().for_each(|told| self.told(config, told));
            if let Some((_, found)) = self.again.take_if(|(at, _)| *at <= now_ns()) {
                self.step(config, Input::Refused(found));
            }
            if self.core.next_deadline() <= now_ns() {
                self.step(config, Input::Timer);
            }
            self.watch.look(now_ns(), &config.name, &self.core);
            if let Some(metrics) = &mut self.metrics {
                let now = now_ns();
                metrics.serve(now, || render::render(&self.core, &self.watch, now, self.bad_tag));
            }
            if let Ok(Some(signal)) = self.signal_fd.read_signal() {
                if signal.ssi_signo == Signal::SIGHUP as u32 {
                    self.read_secrets(config);
                } else {
                    tracing::info!(
                        name = config.name,
                        version = self.core.views().version,
                        "controller stopped"
                    );
                    return Ok(());
                }
            }
        }
    }

    fn wait(&self) -> Result<(), RunError> {
        let ms = self.core.next_deadline().saturating_sub(now_ns()).div_ceil(1_000_000).min(10);
        let own = [self.socket.as_fd(), self.signal_fd.as_fd()].into_iter().map(|fd| (fd, false));
        let descriptors =
            own.chain(self.metrics.iter().flat_map(daemon::metrics::Server::descriptors));
        let flags = |writes| if writes { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let mut polled: Vec<_> =
            descriptors.map(|(fd, writes)| PollFd::new(fd, flags(writes))).collect();
        match poll(&mut polled, PollTimeout::from(ms as u8)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(system("waiting for datagrams")(error)),
        }
    }

    fn datagram(&mut self, config: &Config, from: SocketAddrV4, bytes: &[u8]) {
        if let Err(problem) = self.keys.verify(bytes, *from.ip(), *config.listen.ip()) {
            self.refuse(config, from, bytes, problem);
            return;
        }
        self.lead_no_longer_than_etcd_lets(config);
        match kind(bytes) {
            Ok(Kind::Tool(ToolType::StatusRequest)) => self.answer_status(config, from, bytes),
            _ => self.step(config, Input::Datagram { from, bytes }),
        }
    }

    /// Counts a message that is not genuine, and tells of one now and then, its sender too: to whom
    /// this controller would look absent.
    fn refuse(
        &mut self,
        config: &Config,
        from: SocketAddrV4,
        bytes: &[u8],
        problem: wire::NotGenuine,
    ) {
        self.bad_tag += 1;
        // Only to who waits for an answer, which is no longer than what came.
        let waits = matches!(
            kind(bytes),
            Ok(Kind::Control(ControlType::Report) | Kind::Tool(ToolType::StatusRequest))
        );
        if waits && self.answered_bad_tag.is_none_or(|at| at.elapsed() >= ANSWER_BAD_TAG_EVERY) {
            self.answered_bad_tag = Some(Instant::now());
            Control::OtherSecrets.encode().into_iter().for_each(|it| self.send(config, from, it));
        }
        if self.told_bad_tag.is_none_or(|at| at.elapsed() >= TELL_BAD_TAG_EVERY) {
            self.told_bad_tag = Some(Instant::now());
            let so_far = self.bad_tag;
            let what = "a message that is not genuine";
            tracing::warn!(%from, so_far, "{what} ({problem}): are the secrets the same there?");
        }
    }

    fn answer_status(&self, config: &Config, from: SocketAddrV4, bytes: &[u8]) {
        let json = status::status(&self.core, &self.watch, now_ns()).into_json();
        if let Some(reply) = status_reply(bytes, &json) {
            self.send(config, from, reply);
        }
    }

    fn send(&self, config: &Config, to: SocketAddrV4, mut bytes: Vec<u8>) {
        self.keys.sign(&mut bytes, *config.listen.ip(), *to.ip());
        // What the kernel refuses is as good as lost on the way: it is sent again.
        let _ = self.socket.send_to(&bytes, to);
    }

    fn told(&mut self, config: &Config, told: Told) {
        match told {
            // It was elected, and that is over by now; the etcd thread finds out, too.
            Told::Input(Input::Leading(true)) if !self.may_lead() => {}
            Told::Input(input) => self.step(config, input),
            Told::Read { found } => self.watch.read(now_ns(), found),
            Told::Missing(what) => self.watch.missing(now_ns(), what),
            Told::Refused { found, why } => self.refused(config, found, why),
        }
    }

    /// A decision was not written. If another controller's was, the core goes on from that; if not,
    /// it may try again after a while.
    fn refused(&mut self, config: &Config, found: Option<Views>, why: String) {
        self.undecided.clear();
        if found.as_ref().is_some_and(|views| views.version > self.core.views().version) {
            self.watch.goes_on();
            return self.step(config, Input::Refused(found));
        }
        let at = self.watch.refused(now_ns(), &config.name, why);
        self.again = Some((at, found));
    }

    /// etcd lets another lead when the leader's lease is over: also when this process stood still,
    /// or the etcd thread waits for an answer.
    fn may_lead(&self) -> bool {
        match &self.keeper {
            Keeper::File(_) => true,
            Keeper::Etcd(thread) => thread.may_lead(),
        }
    }

    fn lead_no_longer_than_etcd_lets(&mut self, config: &Config) {
        if self.core.is_leading() && !self.may_lead() {
            tracing::warn!(
                name = config.name,
                "stops leading: etcd did not confirm its lead in time, or denied it"
            );
            self.core.handle(now_ns(), Input::Leading(false), &mut Outputs::default());
        }
    }

    /// Gives the core an input and does what it wants done; a decision is written before anything
    /// else is.
    fn step(&mut self, config: &Config, input: Input<'_>) {
        self.lead_no_longer_than_etcd_lets(config);
        if matches!(input, Input::Persisted) {
            self.watch.goes_on();
            for event in std::mem::take(&mut self.undecided) {
                self.watch.decided(&event);
                log_event(&event, &config.name);
            }
        }
        let mut out = Outputs::default();
        self.core.handle(now_ns(), input, &mut out);
        for event in out.events {
            match event {
                Event::Decided { .. } => self.undecided.push(event),
                event => log_event(&event, &config.name),
            }
        }
        for (to, bytes) in out.datagrams {
            self.send(config, to, bytes);
        }
        let Some(views) = out.persist else { return };
        match &mut self.keeper {
            Keeper::File(file) => match file.write(&views) {
                Ok(()) => self.step(config, Input::Persisted),
                Err(error) => self.refused(config, None, error.to_string()),
            },
            Keeper::Etcd(thread) => thread.write(views),
        }
    }

    fn read_secrets(&mut self, config: &Config) {
        match config.keys() {
            Ok(keys) => {
                tracing::info!(name = config.name, sending = keys.sending(), "secrets read again");
                self.keys = keys;
            }
            Err(error) => {
                tracing::error!(name = config.name, %error, "the secrets before stay in use")
            }
        }
    }
}

fn log_event(event: &Event, name: &str) {
    match event {
        Event::Decided { shard, view, why } => {
            let chain: Vec<_> =
                view.members.iter().map(|member| member.address.to_string()).collect();
            let joining =
                view.joining.map(|joining| joining.member.address.to_string()).unwrap_or_default();
            let (chain, view) = (chain.join(" "), view.number);
            if *why == Why::StateLost {
                tracing::error!(
                    name,
                    shard,
                    view,
                    ?why,
                    chain,
                    joining,
                    "decided: all servers of the shard's chain died, and their state is LOST: the shard begins anew, empty"
                );
            } else {
                tracing::info!(name, shard, view, ?why, chain, joining, "decided");
            }
        }
        Event::Appeared(address, reporter) => tracing::info!(name, %address, ?reporter, "reports"),
        Event::Deaf(address) => {
            tracing::warn!(name, %address, "it reports, but receives no message from any machine: it counts as dead; look for a link that is broken one way");
        }
        Event::Silent(address, reporter) => {
            tracing::warn!(name, %address, ?reporter, "reports are missing")
        }
        Event::ShardsMismatch(address, shards) => {
            tracing::error!(name, %address, "configured for another number of shards; write shards = {shards} there");
        }
        Event::Refused(address, Refusal { switch_id, address: other, name: called }) => {
            tracing::error!(
                name,
                %address,
                "switch_id = {switch_id} is that of switch {called:?} at {other}: refused; write another switch_id there"
            );
        }
        // Told by `Watch`, if it lasts.
        Event::Behind(..) => {}
    }
}
