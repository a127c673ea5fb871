//! The shell around the core: UDP socket, clock, timers, metrics. One thread a server
//! ([`workers`]).

mod durability;
mod fast;
mod query;
mod render;
mod udp;
mod workers;

pub use query::{QueryError, query, query_state, query_status};
pub use workers::run;

use crate::config::Config;
use crate::core::{EPOCH_TICK_NS, Event, Input, Node, Outputs, Start};
use crate::health::{Change, Checks};
use durability::{Durability, OpenLog};
use fast::FastPath;
use nix::sys::signal::Signal;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use secrets::SecretsError;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;
use thiserror::Error;
use udp::BatchSocket;
use wal::WalError;

/// Batches between two looks at signals and metrics under full load.
const BATCHES_PER_LOOK: u32 = 64;
const MOST_SLEEP: Duration = Duration::from_secs(1);
const REPEAT_EVENT_NS: u64 = 5_000_000_000;
const UNIX_2025_S: u64 = 1_735_689_600;

/// Why a server cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// An address cannot be used.
    #[error(
        "{address}: cannot listen: {source}; is another server running there, and is the address this host's?"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The write-ahead log cannot be used.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The shared secrets cannot be used.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The fast path's program cannot be used.
    #[error(transparent)]
    FastPath(#[from] fast_chain::LoadError),
    /// There is no such interface.
    #[error("fast_path.interfaces: {name}: {source}; `ip link` lists the interfaces of this host")]
    Interface {
        /// Its name.
        name: String,
        /// What the system says.
        source: std::io::Error,
    },
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

/// The time in ns that leases count in: since boot, suspension included, from when this process
/// started by the wall clock. So it goes on where the server's last life ended (controllers take no
/// report that is older than one that they have), also over a boot, and setting the wall clock
/// changes nothing.
fn now_ns() -> u64 {
    static OFFSET_NS: OnceLock<u64> = OnceLock::new();
    let offset_ns = OFFSET_NS.get_or_init(|| {
        let since_1970 =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX).saturating_sub(since_boot_ns())
    });
    since_boot_ns().saturating_add(*offset_ns)
}

fn since_boot_ns() -> u64 {
    let time =
        clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    let time = Duration::from(time.unwrap_or(TimeSpec::new(0, 0)));
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn random_u64() -> Result<u64, RunError> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|source| RunError::System { what: "/dev/urandom", source })?;
    Ok(u64::from_be_bytes(bytes))
}

/// Ticks of 250 ms since 2025-01-01, good until 2059: above every epoch of earlier chains. A chain
/// that granted anything had waited out a tick first, and a flow changes hands at most once a
/// lease, so epochs grow no faster than this (with leases of 250 ms or more; with shorter ones, as
/// long as no flow changes hands more than four times a second on average).
fn epoch_base() -> u32 {
    let since_1970 =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let since_2025 = since_1970.saturating_sub(Duration::from_secs(UNIX_2025_S));
    u32::try_from(since_2025.as_nanos() / u128::from(EPOCH_TICK_NS)).unwrap_or(u32::MAX / 2)
}

/// Runs a server until it is ordered to stop: all but signals, which the process's first thread
/// takes. `started` is called when it listens and has read its log.
fn work(config: &Config, orders: UnixStream, started: impl FnOnce()) -> Result<(), RunError> {
    let keys = config.keys()?;
    let listen = config.listen;
    let socket = BatchSocket::bind(listen)
        .map_err(|source| RunError::Bind { address: SocketAddr::V4(listen), source })?;
    for (what, bytes, limit) in socket.small_buffers() {
        tracing::warn!(
            name = config.name,
            bytes,
            wanted = udp::SOCKET_BUFFER_BYTES,
            "the socket's {what} buffer is smaller than wanted: bursts of requests will be dropped; `sysctl -w {limit}={}` (docs/deploy.md, section 1), then start again",
            udp::SOCKET_BUFFER_BYTES
        );
    }
    let metrics = match config.metrics {
        Some(address) => Some(
            daemon::metrics::Server::bind(address)
                .map_err(|source| RunError::Bind { address, source })?,
        ),
        None => None,
    };
    let log = match &config.wal {
        Some(wal) => Some(OpenLog::open(wal, &config.settings, listen)?),
        None => None,
    };
    let before = log.as_ref().and_then(OpenLog::incarnation);
    let start = Start {
        incarnation: before.map_or_else(random_u64, Ok)?.max(1),
        epoch_base: epoch_base(),
        seed: config.seed.map_or_else(random_u64, Ok)?,
        now_ns: now_ns(),
    };
    let mut server =
        Node::new(config.settings.clone(), start, keys, listen, config.controllers.clone());
    server.set_machine(config.machine.clone());
    for (object_id, backends) in &config.backends {
        server.set_backends(*object_id, backends.clone());
    }
    let fast_path = FastPath::start(config, &mut server)?;
    let mut out = Outputs::new();
    let durability = log
        .map(|log| Durability::start(log, &config.settings, &mut server, now_ns(), &mut out))
        .transpose()?;
    let mut checks = Checks::default();
    checks.set(&config.backends, &config.health).map_err(|source| RunError::System {
        what: "starting a check of a backend's health",
        source,
    })?;
    tracing::info!(name = config.name, %listen, incarnation = start.incarnation, seed = start.seed, "state store started");
    started();
    Loop {
        server,
        socket,
        orders,
        metrics,
        durability,
        fast_path,
        checks,
        out,
        last_events: Vec::new(),
        polled: Vec::new(),
    }
    .run(config)
}

struct Loop {
    server: Node,
    socket: BatchSocket,
    /// Signals, one byte each.
    orders: UnixStream,
    metrics: Option<daemon::metrics::Server>,
    durability: Option<Durability>,
    fast_path: Option<FastPath>,
    checks: Checks,
    out: Outputs,
    last_events: Vec<(Event, u64)>,
    polled: Vec<libc::pollfd>,
}

/// What `wait` found ready beside the socket.
struct Ready {
    order: bool,
    metrics: bool,
}

impl Loop {
    fn run(mut self, config: &Config) -> Result<(), RunError> {
        let mut batches = 0;
        loop {
            let count = self
                .socket
                .receive()
                .map_err(|source| RunError::System { what: "receiving", source })?;
            // Read after receiving: a lease must not count from before its request was sent.
            let now = now_ns();
            for (from, bytes) in self.socket.received(count) {
                self.server.handle(now, Input::Datagram { from, bytes }, &mut self.out);
            }
            self.server.set_health(self.checks.changes().map(|Change { object_id, address, health }| {
                tracing::warn!(name = config.name, object_id, %address, ?health, "a backend's health changed");
                (object_id, address, health)
            }));
            if self.server.next_deadline().is_some_and(|at| at <= now) {
                self.server.handle(now, Input::Timer, &mut self.out);
            }
            let checkpointing = self.make_durable(now)?;
            // Logged first: whoever sees a new state answered can find its reason in the log.
            self.log_events(now, config);
            self.socket.send(&self.out);
            self.out.clear();
            batches += 1;
            let more = count == BatchSocket::FULL || checkpointing;
            if more && batches < BATCHES_PER_LOOK {
                continue;
            }
            batches = 0;
            let ready = self.wait(if more { Duration::ZERO } else { self.time_to_deadline() })?;
            match ready.order.then(|| self.order()).flatten() {
                Some(Signal::SIGHUP) => {
                    self.read_secrets(config);
                    self.read_backends(config);
                    continue;
                }
                Some(signal) => {
                    self.summarise(signal, config);
                    return Ok(());
                }
                None => {}
            }
            let (server, send_errors) = (&self.server, self.socket.send_errors);
            let log = self.durability.as_ref().map(Durability::stats);
            let fast_path = self.fast_path.as_ref();
            if let Some(metrics) = self.metrics.as_mut().filter(|_| ready.metrics) {
                let now = now_ns();
                metrics.serve(now, || render::render(server, now, send_errors, log, fast_path));
            }
        }
    }

    /// The signal that came; SIGTERM when the thread that takes signals is gone.
    fn order(&mut self) -> Option<Signal> {
        let mut order = [0];
        match self.orders.read(&mut order) {
            Ok(0) => Some(Signal::SIGTERM),
            Ok(_) => Signal::try_from(i32::from(order[0])).ok(),
            Err(_) => None,
        }
    }

    /// Ends a batch: what is to be written is given to the log, and what became durable takes its
    /// effect. Whether a checkpoint has more to write.
    fn make_durable(&mut self, now: u64) -> Result<bool, RunError> {
        let Some(durability) = &mut self.durability else {
            self.server.flush(now, &mut self.out);
            return Ok(false);
        };
        durability.turn(now, &mut self.server, &mut self.out)?;
        Ok(durability.is_checkpointing())
    }

    /// Takes the secrets as they are now; if they cannot be used, those before stay.
    fn read_secrets(&mut self, config: &Config) {
        match config.keys() {
            Ok(keys) => {
                let sending = keys.sending();
                self.server.set_keys(keys);
                tracing::info!(name = config.name, sending, "secrets read again");
            }
            Err(error) => {
                tracing::error!(name = config.name, %error, "the secrets before stay in use")
            }
        }
    }

    /// Takes the backends as the configuration file has them now (nothing else of it); if it cannot
    /// be used, those before stay.
    fn read_backends(&mut self, config: &Config) {
        match Config::load(&config.file) {
            Ok(fresh) => {
                if let Err(error) = self.checks.set(&fresh.backends, &fresh.health) {
                    tracing::error!(name = config.name, %error, "a check of a backend's health does not start");
                }
                for (object_id, backends) in fresh.backends {
                    let (count, drained) =
                        (backends.len(), backends.iter().filter(|backend| backend.drained).count());
                    if self.server.set_backends(object_id, backends) {
                        tracing::info!(
                            name = config.name,
                            object_id,
                            count,
                            drained,
                            "backends read again"
                        );
                    }
                }
            }
            Err(error) => {
                tracing::error!(name = config.name, %error, "the backends before stay in use")
            }
        }
    }

    fn time_to_deadline(&self) -> Duration {
        let until =
            self.server.next_deadline().map(|at| Duration::from_nanos(at.saturating_sub(now_ns())));
        until.unwrap_or(MOST_SLEEP).min(MOST_SLEEP)
    }

    /// Waits until the socket, a signal or a metrics connection is there, but no longer than
    /// `sleep`.
    fn wait(&mut self, sleep: Duration) -> Result<Ready, RunError> {
        // A pollfd with a negative descriptor is passed over: poll(2).
        let log = self.durability.as_ref().map_or(-1, Durability::descriptor);
        let own = [self.socket.as_raw_fd(), self.orders.as_raw_fd(), log]
            .into_iter()
            .map(|fd| (fd, libc::POLLIN));
        let metrics = self.metrics.iter().flat_map(daemon::metrics::Server::descriptors);
        let metrics = metrics.map(|(fd, writes)| {
            (fd.as_raw_fd(), if writes { libc::POLLOUT } else { libc::POLLIN })
        });
        self.polled.clear();
        self.polled.extend(own.chain(metrics).map(|(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        }));
        let time = TimeSpec::from_duration(sleep);
        // SAFETY: the array and the time live until the call returns; the array's length is given,
        // and no signal mask.
        let result = unsafe {
            libc::ppoll(
                self.polled.as_mut_ptr(),
                self.polled.len() as libc::nfds_t,
                time.as_ref(),
                std::ptr::null(),
            )
        };
        if result < 0 && nix::errno::Errno::last() != nix::errno::Errno::EINTR {
            return Err(system("waiting for datagrams")(nix::errno::Errno::last()));
        }
        let ready = |polled: &libc::pollfd| result > 0 && polled.revents != 0;
        let metrics = self.metrics.as_ref().is_some_and(daemon::metrics::Server::has_connections);
        Ok(Ready {
            order: self.polled.get(1).is_some_and(ready),
            metrics: metrics || self.polled.iter().skip(3).any(ready),
        })
    }

    /// Logs events; the same one again only after a while.
    fn log_events(&mut self, now: u64, config: &Config) {
        if self.out.events.is_empty() {
            return;
        }
        self.last_events.retain(|(_, at)| now < at + REPEAT_EVENT_NS);
        for event in std::mem::take(&mut self.out.events) {
            if self.last_events.iter().any(|(logged, _)| *logged == event) {
                continue;
            }
            self.last_events.push((event, now));
            log_event(event, &config.name);
        }
    }

    fn summarise(&self, signal: Signal, config: &Config) {
        let status = self.server.status(now_ns());
        let counters = self.server.counters();
        tracing::info!(
            name = config.name,
            %signal,
            state = status.state,
            shards = status.replicas.len(),
            uptime_ms = status.uptime_ms,
            records = status.records,
            requests = counters.requests,
            grants = counters.grants,
            updates = counters.updates,
            replies = counters.replies,
            refused = counters.refused,
            malformed = status.malformed,
            chain_resends = counters.chain_resends,
            "state store stopped"
        );
    }
}

fn log_event(event: Event, name: &str) {
    match event {
        Event::View { shard, number, role } => tracing::info!(name, shard, number, ?role, "view"),
        Event::Left { shard } => tracing::info!(name, shard, "left the shard's chain"),
        Event::SuccessorBound(address) => {
            tracing::debug!(name, %address, "link to the successor is up")
        }
        Event::Ready { shard } => tracing::debug!(name, shard, "all links to the tail are up"),
        Event::Broken(reason) => tracing::error!(
            name,
            reason = reason.describe(),
            "REPLICA BROKEN: this server leaves the shard's chain; please report this with the log"
        ),
        Event::ConfigMismatch(address) => tracing::error!(
            name,
            %address,
            "the neighbour has another configuration; give both the same shards, lease and objects"
        ),
        Event::ShardsMismatch { views, own } => tracing::error!(
            name,
            views,
            own,
            "the controller's cluster has another number of shards; write the controller's as `shards`"
        ),
    }
}
