//! What the switch and its controllers tell each other: reports every few milliseconds, decisions.
//! Without any controller the parts stay as they are, and the data plane goes on.
//!
//! One thread reports and listens; another one takes decisions, because exchanging tables waits for
//! all CPUs, and a switch that does not report meanwhile looks dead. A third one answers tools.

use crate::announce::Announced;
use crate::copies::{Copies, Job};
use crate::empties::Empties;
use crate::fill::Fill;
use crate::peers::Peers;
use crate::roles::Tables;
use netchain_protocol::control::{CONFIG, Decided, Parts, Report, Reported, Role};
use secrets::SecretsFile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use switch_agent::system::now_ns;
use switch_agent::{Error, Result};
use wire::{Control, ControlType, KeyRing, Kind, ToolType, kind};

const REPORT_EVERY: Duration = Duration::from_millis(10);
/// After an error that will not go away by itself; secrets are read again as often.
const PAUSE: Duration = Duration::from_secs(1);
/// A controller answers a switch now and then. One that has not for so long is not there.
const ABSENT: Duration = Duration::from_secs(2);
/// The longest time that a peer which has answered a moment ago may have been silent, in ms:
/// shorter ones are not told.
const LEAST_SILENT_MS: u64 = 20;
const MOST_BYTES: usize = 65_536;
/// Questions of tools that wait at the most. A tool without an answer asks again.
const QUESTIONS: usize = 4;

/// As the configuration says.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// This switch's NetChain address.
    pub own: Ipv4Addr,
    /// Fingerprint of the founding.
    pub ring: u32,
    /// Of the slots.
    pub incarnation: u32,
    /// Where reports come from.
    pub protocol_address: Ipv4Addr,
    pub controllers: Vec<SocketAddrV4>,
    pub secrets: PathBuf,
    /// Where dead switches' addresses are announced; None: nowhere.
    pub announce_on: Option<String>,
}

/// What `stateplane status` is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlledLoad {
    /// The decision that all CPUs have; 0: none.
    pub version: u64,
    /// Controllers that answer.
    pub controllers: usize,
    /// Those of the configuration.
    pub configured: usize,
    /// Why the newest decision is not taken.
    pub fault: Option<String>,
    /// Dead switches that this one answers for.
    pub stands_in: Vec<Ipv4Addr>,
}

/// Messages from controllers, or from who would like to be one, that changed nothing.
pub(crate) const REFUSED: [(&str, &str); 3] = [
    (
        "controller_bad_tag",
        "messages that no controller of this fabric made: give all machines the same secrets",
    ),
    (
        "controller_malformed",
        "messages of another version, or from a machine that poses as a controller",
    ),
    ("controller_foreign", "decisions for another life of the switch, or for another cluster"),
];
const BAD_TAG: usize = 0;
const MALFORMED: usize = 1;
const FOREIGN: usize = 2;

/// A switch that has controllers.
pub(crate) struct Controlled {
    settings: Settings,
    tables: Tables,
    peers: Arc<Peers>,
    copies: Option<Arc<Copies>>,
    empties: Empties,
    fills: Vec<Arc<Fill>>,
    announced: Option<Announced>,
    applied: AtomicU64,
    /// The decision's content is not known: it is an earlier agent's.
    asks: AtomicBool,
    /// Decisions taken, and the time that it took.
    taken: AtomicU64,
    taking_us: AtomicU64,
    refused: [AtomicU64; REFUSED.len()],
    told: Mutex<Told>,
    running: AtomicBool,
}

#[derive(Default)]
struct Told {
    fault: Option<String>,
    heard: BTreeMap<SocketAddrV4, Instant>,
    /// All switches of the cluster, as the newest decision names them.
    switches: Vec<Ipv4Addr>,
    dead: Vec<Ipv4Addr>,
}

/// Other threads' work.
struct Work {
    decisions: Sender<Decided>,
    questions: SyncSender<(SocketAddrV4, Vec<u8>)>,
}

/// A socket, and with what it signs.
struct Voice {
    socket: UdpSocket,
    keys: Mutex<KeyRing>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring_of(path: &Path) -> std::result::Result<KeyRing, String> {
    Ok(SecretsFile::load(path).map_err(|error| error.to_string())?.ring().clone())
}

impl Controlled {
    /// With the parts that an earlier agent of this incarnation has left; without any the switch
    /// begins with none, and with version 0.
    ///
    /// # Errors
    /// The program has no such tables, or the kernel refuses.
    pub fn begin(
        settings: Settings,
        tables: Tables,
        peers: Arc<Peers>,
        (copies, empties, fills): (Option<Arc<Copies>>, Empties, Vec<Arc<Fill>>),
        switches: &[Ipv4Addr],
    ) -> Result<Controlled> {
        let applied = tables.applied()?;
        if applied.is_none() {
            tables.begin()?;
        }
        // What this configuration says may be longer than what the controller waits for.
        peers.keep_lease()?;
        peers.set(settings.own, settings.ring, switches)?;
        let announced = settings.announce_on.clone().map(Announced::on);
        let mut told = Told { switches: switches.to_vec(), ..Told::default() };
        let others: Vec<Ipv4Addr> =
            switches.iter().copied().filter(|it| *it != settings.own).collect();
        told.dead = announced.iter().flat_map(|it| it.present(&others)).collect();
        Ok(Controlled {
            settings,
            tables,
            peers,
            copies,
            empties,
            fills,
            announced,
            applied: AtomicU64::new(applied.unwrap_or(0)),
            asks: AtomicBool::new(applied.is_some_and(|version| version > 0)),
            taken: AtomicU64::new(0),
            taking_us: AtomicU64::new(0),
            refused: Default::default(),
            told: Mutex::new(told),
            running: AtomicBool::new(true),
        })
    }

    /// Begins to report.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn serve(self: &Arc<Controlled>) -> Result<()> {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("controllers".into()).spawn(move || {
            // A switch whose reports are late looks dead.
            dataplane::before_others();
            let mut told = String::new();
            while this.is_running() {
                if let Err(problem) = this.follow()
                    && problem != told
                {
                    tracing::error!("controllers: {problem}");
                    told = problem;
                }
                std::thread::sleep(PAUSE);
            }
        });
        let failed =
            |source| Error::System { action: "start a thread for controllers".into(), source };
        thread.map(drop).map_err(failed)
    }

    /// Ends the threads, soon.
    pub fn stop(&self) {
        self.running.store(false, Ordering::Relaxed);
    }

    fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// All addresses of switches: the program decides what becomes of packets to them.
    pub fn own_addresses(&self) -> Vec<Ipv4Addr> {
        let told = lock(&self.told);
        told.switches.iter().chain(&told.dead).copied().chain([self.settings.own]).collect()
    }

    pub fn load(&self) -> ControlledLoad {
        let told = lock(&self.told);
        let controllers = told.heard.values().filter(|at| at.elapsed() < ABSENT).count();
        ControlledLoad {
            version: self.applied.load(Ordering::Relaxed),
            controllers,
            configured: self.settings.controllers.len(),
            fault: told.fault.clone(),
            stands_in: told.dead.clone(),
        }
    }

    /// Decisions that this agent took, and the microseconds that it took.
    pub fn taken(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Relaxed), self.taking_us.load(Ordering::Relaxed))
    }

    pub fn refused(&self, at: usize) -> u64 {
        self.refused.get(at).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn refuse(&self, at: usize) {
        self.refused[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Reports and listens until something fails.
    fn follow(self: &Arc<Controlled>) -> std::result::Result<(), String> {
        let Some(socket) = self.bind()? else { return Ok(()) };
        let keys = ring_of(&self.settings.secrets)?;
        let voice = Arc::new(Voice { socket, keys: Mutex::new(keys) });
        let (decisions, taken) = channel();
        let taker = (Arc::clone(self), Arc::clone(&voice));
        std::thread::Builder::new()
            .name("decisions".into())
            .spawn(move || taker.0.take_decisions(&taker.1, &taken))
            .map_err(|error| error.to_string())?;
        let (questions, asked) = sync_channel(QUESTIONS);
        let teller = (Arc::clone(self), Arc::clone(&voice));
        std::thread::Builder::new()
            .name("tools".into())
            .spawn(move || teller.0.answer_tools(&teller.1, &asked))
            .map_err(|error| error.to_string())?;
        let work = Work { decisions, questions };
        let mut parts = Parts::default();
        let mut buffer = vec![0; MOST_BYTES];
        let (mut report_at, mut read_at) = (Instant::now(), Instant::now());
        while self.is_running() {
            if report_at <= Instant::now() {
                if read_at.elapsed() >= PAUSE {
                    // A file that is being changed can be unreadable.
                    if let Ok(newer) = ring_of(&self.settings.secrets) {
                        *lock(&voice.keys) = newer;
                    }
                    read_at = Instant::now();
                }
                self.report(&voice);
                report_at = Instant::now() + REPORT_EVERY;
            }
            let left = report_at.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            voice.socket.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            // Nothing in time, or the answer of a controller that is not running.
            let Ok((count, SocketAddr::V4(from))) = voice.socket.recv_from(&mut buffer) else {
                continue;
            };
            self.datagram(&voice, from, &buffer[..count], &mut parts, &work);
        }
        Ok(())
    }

    /// A socket with a port of the kernel's choice. The address may come after the agent has
    /// started: that is waited for. `None`: the agent stops.
    fn bind(&self) -> std::result::Result<Option<UdpSocket>, String> {
        let own = self.settings.protocol_address;
        let mut told = false;
        while self.is_running() {
            match UdpSocket::bind((own, 0)) {
                Ok(socket) => return Ok(Some(socket)),
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(
                            "controllers: protocol_address {own} is not this host's yet: waiting \
                             for it"
                        );
                    }
                    std::thread::sleep(REPORT_EVERY);
                }
                Err(error) => return Err(format!("protocol_address {own}: {error}")),
            }
        }
        Ok(None)
    }

    fn report(&self, voice: &Voice) {
        // Held while it is sent: a report is never older than the one before.
        let keys = lock(&voice.keys);
        let report = Report {
            switch: self.settings.own,
            incarnation: self.settings.incarnation,
            applied: self.applied.load(Ordering::Acquire),
            asks: self.asks.load(Ordering::Relaxed),
            silent_ms: self.peers.silent_ms(LEAST_SILENT_MS),
            copied: self.copies.as_ref().map(|copies| copies.done()).unwrap_or_default(),
            used_percent: self.fills.iter().map(|it| it.percent()).max().unwrap_or(0),
        };
        let reported = Reported { sent_ns: now_ns(), ring: self.settings.ring, report };
        let mut bytes = reported.encode();
        for controller in &self.settings.controllers {
            keys.sign(&mut bytes, self.settings.protocol_address, *controller.ip());
            // What cannot be sent now is sent again soon.
            let _ = voice.socket.send_to(&bytes, controller);
        }
    }

    fn datagram(
        &self,
        voice: &Voice,
        from: SocketAddrV4,
        bytes: &[u8],
        parts: &mut Parts,
        work: &Work,
    ) {
        let genuine = lock(&voice.keys).verify(bytes, *from.ip(), self.settings.protocol_address);
        if genuine.is_ok() && kind(bytes) == Ok(Kind::Tool(ToolType::StateRequest)) {
            drop(work.questions.try_send((from, bytes.to_vec())));
            return;
        }
        let known = self.settings.controllers.contains(&from);
        if genuine.is_err() || !known {
            self.refuse(BAD_TAG);
            if known && matches!(kind(bytes), Ok(Kind::Control(ControlType::OtherSecrets))) {
                let file = self.settings.secrets.display();
                self.fault(Some(format!("controller {from} has other secrets than {file}")));
            }
            return;
        }
        lock(&self.told).heard.insert(from, Instant::now());
        if kind(bytes) != Ok(Kind::System(CONFIG)) {
            if Control::decode(bytes) != Ok(Control::Heard) {
                self.refuse(MALFORMED);
            }
            return;
        }
        let applied = self.applied.load(Ordering::Relaxed);
        let newest = applied.saturating_sub(u64::from(self.asks.load(Ordering::Relaxed)));
        match parts.take(bytes, newest) {
            Ok(Some(decided)) => drop(work.decisions.send(decided)),
            Ok(None) => {}
            Err(_) => self.refuse(MALFORMED),
        }
    }

    /// Tells tools what the switch holds.
    fn answer_tools(&self, voice: &Voice, asked: &Receiver<(SocketAddrV4, Vec<u8>)>) {
        // (While a decision is being taken there is no answer: tools ask again.)
        while let Ok((from, question)) = asked.recv() {
            let wanted = wire::asked(&question).ok().map(serde_json::from_slice);
            let Some(Ok(wanted)) = wanted else {
                self.refuse(MALFORMED);
                continue;
            };
            let Ok(Some(held)) = self.empties.held(wanted) else { continue };
            let json = serde_json::to_vec(&held).unwrap_or_default();
            let Some(mut reply) = wire::reply(&question, &json) else { continue };
            lock(&voice.keys).sign(&mut reply, self.settings.protocol_address, *from.ip());
            let _ = voice.socket.send_to(&reply, from);
        }
    }

    fn fault(&self, fault: Option<String>) {
        let mut told = lock(&self.told);
        if let Some(why) = fault.as_ref().filter(|_| told.fault != fault) {
            tracing::error!("controllers: {why}");
        }
        told.fault = fault;
    }

    /// Takes decisions, the newest if several have come.
    fn take_decisions(&self, voice: &Voice, decisions: &Receiver<Decided>) {
        // Probes and reports wait for locks that this thread holds, and clients for decisions.
        dataplane::before_others();
        while let Ok(mut decided) = decisions.recv() {
            while let Ok(newer) = decisions.try_recv() {
                decided = newer;
            }
            let Decided { ring, config, .. } = &decided;
            let (own, incarnation) = (self.settings.ring, self.settings.incarnation);
            if *ring != own || config.incarnation != incarnation {
                self.refuse(FOREIGN);
                continue;
            }
            let applied = self.applied.load(Ordering::Relaxed);
            let asks = self.asks.load(Ordering::Relaxed);
            if config.version < applied || (config.version == applied && !asks) {
                continue;
            }
            let began = Instant::now();
            let outcome = self.take(&decided);
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.taken.fetch_add(1, Ordering::Relaxed);
            self.taking_us.fetch_add(took_us, Ordering::Relaxed);
            tracing::debug!(version = decided.config.version, took_us, "decision");
            let failed = outcome.is_err();
            self.fault(outcome.err().map(|error| error.to_string()));
            if !failed {
                self.report(voice);
                self.announce();
            }
        }
    }

    fn take(&self, decided: &Decided) -> Result<()> {
        let Decided { lease_ms, config, .. } = decided;
        self.peers.lease_no_longer_than(u64::from(*lease_ms))?;
        self.peers.set(self.settings.own, self.settings.ring, &config.switches)?;
        let pause = |roles: &[Role]| self.tables.exchange_roles(roles, &self.peers);
        self.empties.before(&config.roles, pause)?;
        self.tables.apply(config, &self.peers)?;
        self.empties.after(&config.roles)?;
        if let Some(copies) = &self.copies {
            copies.set((0..).zip(&config.roles).filter_map(Job::of).collect());
        }
        let mut told = lock(&self.told);
        (told.switches, told.dead) = (config.switches.clone(), config.dead.clone());
        drop(told);
        self.asks.store(false, Ordering::Relaxed);
        self.applied.store(config.version, Ordering::Release);
        Ok(())
    }

    /// Announces the dead switches' addresses.
    fn announce(&self) {
        let Some(announced) = &self.announced else { return };
        let (dead, mut others) = {
            let told = lock(&self.told);
            (told.dead.clone(), told.switches.clone())
        };
        others.retain(|it| *it != self.settings.own);
        if let Err(error) = announced.set(&dead, &others) {
            tracing::warn!("announcing dead switches' addresses: {error}");
        }
    }
}
