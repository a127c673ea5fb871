//! What the controllers say: who is in which shard's chain. A thread reports to them, takes their
//! views and hands them to the systems. Without any controller the views stay as they were told
//! last, and the data plane goes on; the last views are kept for an agent that starts meanwhile
//! (`kept_views.rs`).

use crate::agent::Agent;
use crate::config::Config;
use crate::error::Error;
use crate::kept_views;
use nix::time::{ClockId, clock_gettime};
use secrets::SecretsFile;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wire::{Control, ControlType, KeyRing, Kind, Report, Reporter, Views, kind};

const REPORT_EVERY: Duration = Duration::from_millis(50);
/// Until views are here: what comes on the routes that bring a controller's answer may be lost
/// until then. 200 small datagrams a second, as long as no controller lives.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// After an error that will not go away by itself.
const PAUSE: Duration = Duration::from_secs(1);
/// For so long after a controller's first answer: it sends views at most every 20 ms, and the first
/// may have been lost where there was no route yet.
const FIRST_VIEWS: Duration = Duration::from_secs(1);
/// A switch that controllers have answered for this long owns its number. A later refusal then
/// concerns another switch with the same number.
const ACCEPTED_AFTER: Duration = Duration::from_secs(1);
const MOST_BYTES: usize = 65_536;

/// Starts the thread, if the configuration names controllers. It ends with the process.
/// `refused` is told when a controller says that another switch has this one's number.
pub(crate) fn start(agent: Arc<Agent>, refused: mpsc::Sender<Error>) {
    let Some(own) = agent.config.protocol_address.filter(|_| !agent.config.controllers.is_empty())
    else {
        return;
    };
    std::thread::spawn(move || {
        let mut told = String::new();
        while !agent.generator.stop.load(Ordering::Relaxed) {
            if let Err(problem) = follow(&agent, own, &refused)
                && problem != told
            {
                tracing::error!("controllers: {problem}");
                told = problem;
            }
            std::thread::sleep(PAUSE);
        }
    });
}

/// Messages from controllers, or from somebody who would like to be one, that changed nothing.
#[derive(Default)]
pub(crate) struct Refused {
    /// Not genuine.
    pub bad_tag: AtomicU64,
    /// No views.
    pub malformed: AtomicU64,
    /// No newer views than those that are here.
    pub old: AtomicU64,
    /// Controllers that say that they have other secrets, until they answer.
    pub other_secrets: Mutex<BTreeSet<SocketAddrV4>>,
}

impl Refused {
    /// Controllers that run and have other secrets.
    pub fn with_other_secrets(&self) -> Vec<SocketAddrV4> {
        self.secrets().iter().copied().collect()
    }

    fn not_genuine(&self, agent: &Agent, from: SocketAddrV4, bytes: &[u8]) {
        self.bad_tag.fetch_add(1, Ordering::Relaxed);
        let hint = matches!(kind(bytes), Ok(Kind::Control(ControlType::OtherSecrets)));
        if hint && agent.config.controllers.contains(&from) && self.secrets().insert(from) {
            let file = agent.config.secrets.as_deref().unwrap_or(std::path::Path::new(""));
            tracing::error!("{}", other_secrets(from, file));
        }
    }

    fn secrets(&self) -> MutexGuard<'_, BTreeSet<SocketAddrV4>> {
        self.other_secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a controller means that takes no message for genuine.
pub(crate) fn other_secrets(controller: SocketAddrV4, file: &std::path::Path) -> String {
    format!(
        "controllers: {controller} runs and has other secrets than {}: copy the fabric's file; \
         `stateplane keys show` prints the same fingerprint on both machines then",
        file.display()
    )
}

pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reports and listens until something fails.
fn follow(agent: &Agent, own: Ipv4Addr, refused: &mpsc::Sender<Error>) -> Result<(), String> {
    let path = agent.config.secrets.as_ref().ok_or("no `secrets`")?;
    let Some(socket) = bind(agent, own)? else { return Ok(()) };
    let mut buffer = vec![0; MOST_BYTES];
    // Not the kept ones: a cluster that was begun anew counts from 1 again, and the first views
    // that a controller sends to a new agent count, whatever their number.
    let mut views = Views::default();
    let mut answered_at: Option<Instant> = None;
    let mut keys = ring(path)?;
    let mut read_at = Instant::now();
    let mut report_at = Instant::now();
    let began_ns = now_ns();
    while !agent.generator.stop.load(Ordering::Relaxed) {
        if report_at <= Instant::now() {
            if read_at.elapsed() >= PAUSE {
                // Secrets change while the agent runs; a file that is being changed can be
                // unreadable.
                keys = ring(path).unwrap_or(keys);
                read_at = Instant::now();
            }
            report(agent, &socket, own, &keys, &views);
            report_at = Instant::now() + pause(views.version, answered_at.map(|at| at.elapsed()));
        }
        let left =
            report_at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        // Nothing in time, or the answer of a controller that is not running.
        let Ok((count, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) else { continue };
        let bytes = &buffer[..count];
        if keys.verify(bytes, *from.ip(), own).is_err() {
            agent.refused_views.not_genuine(agent, from, bytes);
            continue;
        }
        agent.refused_views.secrets().remove(&from);
        match Control::decode(bytes) {
            Ok(Control::Views(newer)) if newer.version > views.version => {
                take(agent, &newer)?;
                views = newer;
            }
            Ok(Control::Views(_)) => drop(agent.refused_views.old.fetch_add(1, Ordering::Relaxed)),
            Ok(Control::Heard) => {}
            Ok(Control::Refused { sent_ns, incarnation, refusal })
                if incarnation == process() && sent_ns >= began_ns =>
            {
                if !agent.is_accepted() {
                    let file = agent.config.file.display().to_string();
                    // The agent ends; it is full if that is so already.
                    let _ = refused.try_send(Error::SwitchIdTaken { file, refusal });
                }
                continue;
            }
            Ok(
                Control::Report { .. }
                | Control::ViewsWanted
                | Control::Refused { .. }
                | Control::OtherSecrets,
            )
            | Err(_) => {
                agent.refused_views.malformed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        }
        if answered_at.get_or_insert_with(Instant::now).elapsed() >= ACCEPTED_AFTER {
            agent.accept();
        }
    }
    Ok(())
}

/// From a report to the next, with these views, so long after a controller's first answer. (A
/// cluster that has not begun has no views: it answers.)
fn pause(version: u64, since_answer: Option<Duration>) -> Duration {
    let asks = version == 0 && since_answer.is_none_or(|since| since < FIRST_VIEWS);
    if asks { ASK_EVERY } else { REPORT_EVERY }
}

/// A socket with a port of the kernel's choice: the data plane takes what comes to the protocol's
/// own port. Whatever brings up the loopback interface may give it the protocol address after the
/// agent started: that is waited for. `None`: the agent stops.
fn bind(agent: &Agent, own: Ipv4Addr) -> Result<Option<UdpSocket>, String> {
    let mut told = false;
    while !agent.generator.stop.load(Ordering::Relaxed) {
        match UdpSocket::bind((own, 0)) {
            Ok(socket) => return Ok(Some(socket)),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        "controllers: protocol_address {own} is not this host's yet: waiting for it"
                    );
                }
                std::thread::sleep(REPORT_EVERY);
            }
            Err(error) => return Err(format!("protocol_address {own}: {error}")),
        }
    }
    Ok(None)
}

fn ring(path: &std::path::Path) -> Result<KeyRing, String> {
    Ok(SecretsFile::load(path).map_err(|error| error.to_string())?.ring().clone())
}

fn report(agent: &Agent, socket: &UdpSocket, own: Ipv4Addr, keys: &KeyRing, views: &Views) {
    let load = agent.reported.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let shards = views.shards.len() as u16;
    let report = Report {
        version: views.version,
        shards,
        accepted: agent.is_accepted(),
        load,
        ..newcomer(&agent.config)
    };
    send(&agent.config, socket, own, keys, report);
}

/// The report of a switch that no controller has answered yet.
pub(crate) fn newcomer(config: &Config) -> Report {
    Report {
        reporter: Reporter::Switch { switch_id: config.switch_id },
        version: 0,
        shards: 0,
        heard_ms: 0,
        accepted: false,
        machine: String::new(),
        replicas: Vec::new(),
        load: None,
    }
}

/// The incarnation of reports is the process: what another one reported before is older, whatever
/// its clock was.
pub(crate) fn process() -> u64 {
    u64::from(std::process::id()) << 32 | 1
}

/// Sends a report to all controllers.
pub(crate) fn send(
    config: &Config,
    socket: &UdpSocket,
    own: Ipv4Addr,
    keys: &KeyRing,
    report: Report,
) {
    let control = Control::Report { sent_ns: now_ns(), incarnation: process(), report };
    let Ok(mut bytes) = control.encode() else { return };
    for controller in &config.controllers {
        keys.sign(&mut bytes, own, *controller.ip());
        // What cannot be sent now is sent again soon.
        let _ = socket.send_to(&bytes, controller);
    }
}

/// Tells the systems; a cluster that has not begun has no heads yet.
fn take(agent: &Agent, views: &Views) -> Result<(), String> {
    if !kept_views::have_heads(views) {
        return Ok(());
    }
    agent.take_views(views).map_err(|error| error.to_string())?;
    agent.views_version.store(views.version, Ordering::Relaxed);
    tracing::info!("controllers: views {}", views.version);
    // The switch does without: only one that starts misses them, until a controller answers.
    if let Err(error) = kept_views::write(
        &kept_views::path(&agent.config, &agent.run),
        &agent.config.controllers,
        views,
    ) {
        tracing::warn!("{error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_often_until_views_come_but_not_a_cluster_that_has_not_begun() {
        let after = |ms| Some(Duration::from_millis(ms));
        assert_eq!([pause(0, None), pause(0, after(1)), pause(0, after(999))], [ASK_EVERY; 3]);
        assert_eq!([pause(0, after(1_000)), pause(7, None), pause(7, after(1))], [REPORT_EVERY; 3]);
    }
}
