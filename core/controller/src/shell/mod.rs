//! The shell around any rules ([`Rules`]): UDP socket, clock, signals, database, metrics. The rules
//! for chains of servers are in `views`; a system may bring its own.

mod database;
mod etcd;
mod rules;
mod trouble;
mod views;

pub use database::DatabaseError;
pub use rules::{Decision, Input, Outputs, Rules};
pub use trouble::{Kept, Trouble};
pub use views::{PeerStatus, RebuildError, ShardStatus, Status, rebuild, run};

use crate::config::{EtcdConfig, Keep, ShellConfig};
use database::DecisionFile;
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
use wire::{Control, KeyRing, Kind, ToolType, kind, reply, status_reply};

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
    #[error("{0}")]
    OtherCluster(String),
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
enum Keeper<D> {
    File(DecisionFile<D>),
    Etcd(EtcdThread<D>),
}

/// Runs a controller until SIGTERM or SIGINT; SIGHUP has it read its secrets again. `begin` makes
/// the rules: from the decision that the database has, whether this controller decides already, and
/// the time. Whoever waits for it (`Type=notify`) hears that it is ready when its sockets are bound
/// and its database is open; with etcd, when it has begun to ask: one that waits for its turn runs,
/// too, and so does one whose etcd is not up yet. Must be called before the process starts other
/// threads: it blocks those signals.
///
/// # Errors
/// An address, the secrets or the database cannot be used, or the rules have a fault.
pub fn serve<R: Rules>(
    config: &ShellConfig,
    begin: impl FnOnce(R::Decision, bool, u64) -> R,
) -> Result<(), RunError> {
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
    let (keeper, decision) = keeper::<R::Decision>(config)?;
    let leading = matches!(keeper, Keeper::File(_));
    let version = decision.version();
    tracing::info!(name = config.name, listen = %config.listen, version, "controller started");
    let rules = begin(decision, leading, now_ns());
    daemon::service::tell_ready(None);
    let mut controller = Loop {
        rules,
        socket,
        signal_fd,
        keys,
        keeper,
        metrics,
        bad_tag: 0,
        told_bad_tag: None,
        answered_bad_tag: None,
        kept: Kept::default(),
        again: None,
    };
    let ended = controller.run(config);
    daemon::service::tell_stopping();
    if let Keeper::Etcd(thread) = controller.keeper {
        thread.stop();
    }
    ended
}

fn keeper<D: Decision>(config: &ShellConfig) -> Result<(Keeper<D>, D), RunError> {
    match &config.keep {
        Keep::Database(path) => {
            let (file, decision) = DecisionFile::open(path)?;
            Ok((Keeper::File(file), decision))
        }
        Keep::Etcd(kept) => {
            let etcd = etcd_client(
                kept,
                format!("{} {} {}", config.name, config.listen, std::process::id()),
            )?;
            let thread = EtcdThread::start(etcd);
            let thread = thread
                .map_err(|source| RunError::System { what: "starting the etcd thread", source })?;
            Ok((Keeper::Etcd(thread), D::default()))
        }
    }
}

fn etcd_client<D: Decision>(config: &EtcdConfig, me: String) -> Result<Etcd<D>, RunError> {
    Etcd::new(config, me)
        .map_err(|source| RunError::System { what: "starting the etcd client", source })
}

struct Loop<R: Rules> {
    rules: R,
    socket: UdpSocket,
    signal_fd: SignalFd,
    keys: KeyRing,
    keeper: Keeper<R::Decision>,
    metrics: Option<daemon::metrics::Server>,
    bad_tag: u64,
    told_bad_tag: Option<Instant>,
    answered_bad_tag: Option<Instant>,
    kept: Kept,
    /// A decision was refused, and what the database had: the rules hear of it, and decide again,
    /// at this time.
    again: Option<(u64, Option<R::Decision>)>,
}

impl<R: Rules> Loop<R> {
    fn run(&mut self, config: &ShellConfig) -> Result<(), RunError> {
        let mut buffer = vec![0; 65_536];
        loop {
            if let Some(fault) = self.rules.fault() {
                return Err(RunError::OtherCluster(fault));
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
            if self.rules.next_deadline() <= now_ns() {
                self.step(config, Input::Timer);
            }
            self.kept.look(now_ns(), &config.name);
            self.rules.look(now_ns(), &self.kept);
            if let Some(metrics) = &mut self.metrics {
                let now = now_ns();
                metrics.serve(now, || self.rules.metrics(now, &self.kept, self.bad_tag));
            }
            if let Ok(Some(signal)) = self.signal_fd.read_signal() {
                if signal.ssi_signo == Signal::SIGHUP as u32 {
                    self.read_secrets(config);
                } else {
                    tracing::info!(
                        name = config.name,
                        version = self.rules.version(),
                        "controller stopped"
                    );
                    return Ok(());
                }
            }
        }
    }

    fn wait(&self) -> Result<(), RunError> {
        let ms = self.rules.next_deadline().saturating_sub(now_ns()).div_ceil(1_000_000).min(10);
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

    fn datagram(&mut self, config: &ShellConfig, from: SocketAddrV4, bytes: &[u8]) {
        if let Err(problem) = self.keys.verify(bytes, *from.ip(), *config.listen.ip()) {
            self.refuse(config, from, bytes, problem);
            return;
        }
        self.lead_no_longer_than_etcd_lets(config);
        match kind(bytes) {
            Ok(Kind::Tool(ToolType::StatusRequest)) => self.answer_status(config, from, bytes),
            Ok(Kind::Tool(question)) => self.answer(config, from, question, bytes),
            _ => self.step(config, Input::Datagram { from, bytes }),
        }
    }

    /// Counts a message that is not genuine, and tells of one now and then, its sender too: to whom
    /// this controller would look absent.
    fn refuse(
        &mut self,
        config: &ShellConfig,
        from: SocketAddrV4,
        bytes: &[u8],
        problem: wire::NotGenuine,
    ) {
        self.bad_tag += 1;
        // Only to who waits for an answer, which is no longer than what came.
        let waits = kind(bytes).is_ok_and(R::waits);
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

    fn answer_status(&self, config: &ShellConfig, from: SocketAddrV4, bytes: &[u8]) {
        let json = self.rules.status(now_ns(), &self.kept);
        if let Some(reply) = status_reply(bytes, &json) {
            self.send(config, from, reply);
        }
    }

    fn answer(
        &mut self,
        config: &ShellConfig,
        from: SocketAddrV4,
        question: ToolType,
        bytes: &[u8],
    ) {
        let Ok(json) = wire::asked(bytes) else { return };
        if let Some(answer) = self.rules.question(now_ns(), question, json)
            && let Some(reply) = reply(bytes, &answer)
        {
            self.send(config, from, reply);
            self.step(config, Input::Timer);
        }
    }

    fn send(&self, config: &ShellConfig, to: SocketAddrV4, mut bytes: Vec<u8>) {
        self.keys.sign(&mut bytes, *config.listen.ip(), *to.ip());
        // What the kernel refuses is as good as lost on the way: it is sent again.
        let _ = self.socket.send_to(&bytes, to);
    }

    fn told(&mut self, config: &ShellConfig, told: Told<R::Decision>) {
        match told {
            // It was elected, and that is over by now; the etcd thread finds out, too.
            Told::Input(Input::Leading(true)) if !self.may_lead() => {}
            Told::Input(input) => self.step(config, input),
            Told::Read { found } => self.kept.read(now_ns(), found),
            Told::Missing(what) => self.kept.missing(now_ns(), what),
            Told::Refused { found, why } => self.refused(config, found, why),
        }
    }

    /// A decision was not written. If another controller's was, the rules go on from that; if not,
    /// they may try again after a while.
    fn refused(&mut self, config: &ShellConfig, found: Option<R::Decision>, why: String) {
        if found.as_ref().is_some_and(|found| found.version() > self.rules.version()) {
            self.kept.goes_on();
            return self.step(config, Input::Refused(found));
        }
        let at = self.kept.refused(now_ns(), &config.name, why);
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

    fn lead_no_longer_than_etcd_lets(&mut self, config: &ShellConfig) {
        if self.rules.is_leading() && !self.may_lead() {
            tracing::warn!(
                name = config.name,
                "stops leading: etcd did not confirm its lead in time, or denied it"
            );
            self.rules.handle(now_ns(), Input::Leading(false), &mut Outputs::default());
        }
    }

    /// Gives the rules an input and does what they want done; a decision is written before anything
    /// else is.
    fn step(&mut self, config: &ShellConfig, input: Input<'_, R::Decision>) {
        self.lead_no_longer_than_etcd_lets(config);
        if matches!(input, Input::Persisted) {
            self.kept.goes_on();
        }
        let mut out = Outputs::default();
        self.rules.handle(now_ns(), input, &mut out);
        for (to, bytes) in out.datagrams {
            self.send(config, to, bytes);
        }
        let Some(decision) = out.persist else { return };
        match &mut self.keeper {
            Keeper::File(file) => {
                let began_ns = now_ns();
                let written = file.write(&decision);
                self.kept.writing_ns += now_ns().saturating_sub(began_ns);
                match written {
                    Ok(()) => self.step(config, Input::Persisted),
                    Err(error) => self.refused(config, None, error.to_string()),
                }
            }
            Keeper::Etcd(thread) => thread.write(decision),
        }
    }

    fn read_secrets(&mut self, config: &ShellConfig) {
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
