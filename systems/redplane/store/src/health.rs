//! Checks of backends' health: how they are configured, what a row of results means, and the
//! threads that make them.
//!
//! Every server of the store checks for itself, because each may become the head that picks
//! backends. A check sleeps nearly all of the time, so each has a small thread of its own, and the
//! store's thread only takes in what changed.

use crate::core::backends::{Backend, Health};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const MOST_PATH_BYTES: usize = 1_024;
const MOST_ANSWER_BYTES: usize = 256;
const STACK_BYTES: usize = 128 * 1_024;
/// So long at most goes on a check that is no longer wanted.
const LOOK: Duration = Duration::from_millis(100);

/// How the backends of an object are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// Of an HTTP GET, which must be answered by 200 to 399; none: that the port takes a TCP
    /// connection will do.
    pub path: Option<String>,
    /// Time between two checks.
    pub interval: Duration,
    /// After this, no answer is a bad one.
    pub timeout: Duration,
    /// So many good ones in a row bring a backend back.
    pub rise: u32,
    /// So many bad ones in a row take it out.
    pub fall: u32,
    /// What one that is out is: its conversations stay, or go.
    pub failed: Health,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HealthTable {
    check: Kind,
    path: Option<String>,
    #[serde(default = "interval_ms")]
    interval_ms: u32,
    timeout_ms: Option<u32>,
    #[serde(default = "rise")]
    rise: u32,
    #[serde(default = "fall")]
    fall: u32,
    #[serde(default)]
    on_failure: OnFailure,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Tcp,
    Http,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    #[default]
    Keep,
    Drop,
}

fn interval_ms() -> u32 {
    1_000
}

fn rise() -> u32 {
    2
}

fn fall() -> u32 {
    3
}

impl HealthTable {
    /// The check, or the field that is wrong and the remedy.
    pub(crate) fn check(&self, place: &str) -> Result<HealthCheck, daemon::config::Problem> {
        let wrong = |field: &str, remedy: String| Err((format!("{place}.{field}"), remedy));
        let path = match (self.check, &self.path) {
            (Kind::Tcp, Some(_)) => {
                return wrong("path", "belongs to check = \"http\"; remove it".to_owned());
            }
            (Kind::Tcp, None) => None,
            (Kind::Http, path) => Some(path.clone().unwrap_or_else(|| "/".to_owned())),
        };
        if let Some(path) = &path
            && (!path.starts_with('/')
                || path.len() > MOST_PATH_BYTES
                || !path.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return wrong("path", format!("{path:?} is not a path; write one such as \"/health\""));
        }
        if !(10..=3_600_000).contains(&self.interval_ms) {
            return wrong(
                "interval_ms",
                format!("{} is out of range; write 10 to 3600000 (default 1000)", self.interval_ms),
            );
        }
        let timeout_ms = self.timeout_ms.unwrap_or(self.interval_ms.min(1_000));
        if !(1..=60_000).contains(&timeout_ms) {
            return wrong("timeout_ms", format!("{timeout_ms} is out of range; write 1 to 60000"));
        }
        for (field, value) in [("rise", self.rise), ("fall", self.fall)] {
            if !(1..=100).contains(&value) {
                return wrong(field, format!("{value} is out of range; write 1 to 100"));
            }
        }
        Ok(HealthCheck {
            path,
            interval: Duration::from_millis(self.interval_ms.into()),
            timeout: Duration::from_millis(timeout_ms.into()),
            rise: self.rise,
            fall: self.fall,
            failed: match self.on_failure {
                OnFailure::Keep => Health::Down,
                OnFailure::Drop => Health::Gone,
            },
        })
    }
}

/// What a row of results means: up until it failed often enough, and again when it was good often
/// enough.
#[derive(Debug)]
struct Judge {
    up: bool,
    /// Results in a row that speak against it.
    against: u32,
}

impl Judge {
    /// Takes a result; whether it is up from now on, if that changes.
    fn take(&mut self, good: bool, check: &HealthCheck) -> Option<bool> {
        if good == self.up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        if self.against < if good { check.rise } else { check.fall } {
            return None;
        }
        (self.up, self.against) = (good, 0);
        Some(good)
    }
}

/// Looks once: whether the backend is as it should be.
fn look(address: SocketAddrV4, check: &HealthCheck) -> bool {
    let until = Instant::now() + check.timeout;
    let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddr::V4(address), check.timeout) else {
        return false;
    };
    let Some(path) = &check.path else { return true };
    let left = |stream: &TcpStream| {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).and(stream.set_write_timeout(Some(left)))
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: stateplane\r\nConnection: close\r\n\r\n"
    );
    if left(&stream).and_then(|()| stream.write_all(request.as_bytes())).is_err() {
        return false;
    }
    let mut answer = Vec::new();
    let mut buffer = [0; MOST_ANSWER_BYTES];
    while Instant::now() < until && answer.len() < MOST_ANSWER_BYTES {
        if let Some(good) = status(&answer) {
            return good;
        }
        match left(&stream).and_then(|()| stream.read(&mut buffer)) {
            Ok(count) if count > 0 => answer.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    status(&answer).unwrap_or(false)
}

/// Whether an HTTP answer begins as a good one does; none: more of it is needed.
fn status(answer: &[u8]) -> Option<bool> {
    // HTTP/1.1 200 (RFC 9112 §4)
    let line = answer.get(..12)?;
    let code = std::str::from_utf8(&line[9..]).ok().and_then(|code| code.parse::<u16>().ok());
    Some(
        line.starts_with(b"HTTP/1.")
            && line[8] == b' '
            && code.is_some_and(|code| (200..400).contains(&code)),
    )
}

/// Something that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The object's number.
    pub object_id: u16,
    /// Whose health.
    pub address: SocketAddrV4,
    /// It, from now on.
    pub health: Health,
}

struct Running {
    check: HealthCheck,
    /// Which one it is of all checks that ever began.
    number: u64,
    stop: Arc<AtomicBool>,
}

/// All checks that are going on.
pub struct Checks {
    running: BTreeMap<(u16, SocketAddrV4), Running>,
    begun: u64,
    /// Backends that are up as their check was ended.
    ended: Vec<Change>,
    /// What a check says, with its number: one that is being ended may still say something.
    tell: Sender<(u64, Change)>,
    told: Receiver<(u64, Change)>,
}

impl Default for Checks {
    fn default() -> Checks {
        let (tell, told) = channel();
        Checks { running: BTreeMap::new(), begun: 0, ended: Vec::new(), tell, told }
    }
}

impl Checks {
    /// Checks these backends from now on, and no others. Those whose check was ended are taken for
    /// up, which is among the changes.
    pub fn set(
        &mut self,
        backends: &[(u16, Vec<Backend>)],
        checks: &[(u16, HealthCheck)],
    ) -> std::io::Result<()> {
        let check_of =
            |object_id: u16| checks.iter().find(|(id, _)| *id == object_id).map(|(_, check)| check);
        let wanted: BTreeMap<(u16, SocketAddrV4), &HealthCheck> = backends
            .iter()
            .filter_map(|(object_id, list)| Some((*object_id, list, check_of(*object_id)?)))
            .flat_map(|(object_id, list, check)| {
                list.iter().map(move |it| ((object_id, it.address), check))
            })
            .collect();
        let ended = &mut self.ended;
        self.running.retain(|(object_id, address), running| {
            let stays = wanted.get(&(*object_id, *address)) == Some(&&running.check);
            if !stays {
                running.stop.store(true, Ordering::Relaxed);
                ended.push(Change { object_id: *object_id, address: *address, health: Health::Up });
            }
            stays
        });
        for ((object_id, address), check) in wanted {
            if !self.running.contains_key(&(object_id, address)) {
                let stop = Arc::new(AtomicBool::new(false));
                self.begun += 1;
                let number = self.begun;
                let tell = self.tell.clone();
                let tell = move |health| {
                    tell.send((number, Change { object_id, address, health })).is_ok()
                };
                start(address, check.clone(), Arc::clone(&stop), tell)?;
                self.running
                    .insert((object_id, address), Running { check: check.clone(), number, stop });
            }
        }
        Ok(())
    }

    /// What changed since the last call, oldest first for each backend. Never waits.
    pub fn changes(&mut self) -> impl Iterator<Item = Change> {
        let running = &self.running;
        // What an ended check says late would stay true for good: the next one takes its backend
        // for up, and says only what changes.
        let told = self.told.try_iter().filter_map(|(number, change)| {
            let check = running.get(&(change.object_id, change.address))?;
            (check.number == number).then_some(change)
        });
        // Whatever a check that still runs says came after the end of the one before.
        self.ended.drain(..).chain(told)
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.stop.store(true, Ordering::Relaxed));
    }
}

/// Checks until it is told to stop, or `tell` says that nobody listens.
fn start(
    address: SocketAddrV4,
    check: HealthCheck,
    stop: Arc<AtomicBool>,
    tell: impl Fn(Health) -> bool + Send + 'static,
) -> std::io::Result<()> {
    let run = move || {
        let mut judge = Judge { up: true, against: 0 };
        loop {
            let next = Instant::now() + check.interval;
            let changed = judge.take(look(address, &check), &check);
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if let Some(up) = changed {
                let health = if up { Health::Up } else { check.failed };
                if !tell(health) {
                    return;
                }
            }
            while Instant::now() < next {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(next.saturating_duration_since(Instant::now()).min(LOOK));
            }
        }
    };
    std::thread::Builder::new()
        .name(format!("check {address}"))
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn check(path: Option<&str>) -> HealthCheck {
        HealthCheck {
            path: path.map(str::to_owned),
            interval: Duration::from_millis(10),
            timeout: Duration::from_secs(5),
            rise: 2,
            fall: 3,
            failed: Health::Down,
        }
    }

    #[test]
    fn rise_and_fall_are_counted_in_a_row() {
        let mut judge = Judge { up: true, against: 0 };
        let check = check(None);
        let mut take = |results: &str| -> Vec<Option<bool>> {
            results.chars().map(|result| judge.take(result == '+', &check)).collect()
        };
        assert_eq!(take("--+--"), [None; 5], "never three in a row");
        assert_eq!(take("-"), [Some(false)]);
        assert_eq!(take("-+-+"), [None; 4]);
        assert_eq!(take("+--"), [Some(true), None, None]);
    }

    #[test]
    fn a_status_line_says_whether_it_is_good() {
        for (answer, expected) in [
            (&b"HTTP/1.1 20"[..], None),
            (b"HTTP/1.1 200", Some(true)),
            (b"HTTP/1.0 302 Found\r\n", Some(true)),
            (b"HTTP/1.1 503 Service Unavailable", Some(false)),
            (b"HTTP/1.1 +99 ", Some(false)),
            (b"SSH-2.0-OpenSSH_9.2", Some(false)),
        ] {
            assert_eq!(status(answer), expected, "{}", String::from_utf8_lossy(answer));
        }
    }

    /// A server that is closed, opened and closed again; the checks say so.
    #[test]
    fn a_real_server_goes_and_comes() {
        let answers = |code: u16| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
            let address = listener.local_addr().expect("address");
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let _ = stream.read(&mut [0; 1_024]);
                    let _ = stream.write_all(format!("HTTP/1.1 {code} x\r\n\r\n").as_bytes());
                }
            });
            let SocketAddr::V4(address) = address else { panic!("{address}") };
            address
        };
        let (good, bad) = (answers(204), answers(500));
        let closed: SocketAddrV4 = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
            listener.local_addr().expect("address").to_string().parse().expect("IPv4")
        };
        assert!(look(good, &check(None)) && look(good, &check(Some("/"))));
        assert!(look(bad, &check(None)) && !look(bad, &check(Some("/"))));
        assert!(!look(closed, &check(None)));

        let backend = |address| Backend { address, weight: 1, drained: false, health: Health::Up };
        let mut checks = Checks::default();
        let list = [(3, vec![backend(good), backend(bad)])];
        checks.set(&list, &[(3, check(Some("/")))]).expect("threads");
        let until = Instant::now() + Duration::from_secs(20);
        let mut change = None;
        while change.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            change = checks.changes().next();
        }
        assert_eq!(change, Some(Change { object_id: 3, address: bad, health: Health::Down }));
        // No longer checked: up.
        checks.set(&list, &[]).expect("threads");
        let mut up: Vec<_> =
            checks.changes().map(|change| (change.address, change.health)).collect();
        up.sort_by_key(|(address, _)| *address != good);
        assert_eq!(up, [(good, Health::Up), (bad, Health::Up)]);
    }

    /// A check that is ended while it is about to say something: the backend does not stay down
    /// when the next check, or none, takes it for up.
    #[test]
    fn what_an_ended_check_says_late_does_not_count() {
        let address = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 9);
        let list = [(3, vec![Backend { address, weight: 1, drained: false, health: Health::Up }])];
        let with = |rise| [(3, HealthCheck { rise, fall: u32::MAX, ..check(None) })];
        let change = |health| Change { object_id: 3, address, health };
        let mut checks = Checks::default();
        checks.set(&list, &with(2)).expect("threads");
        let late = checks.tell.clone();
        late.send((1, change(Health::Down))).expect("it listens");
        assert_eq!(checks.changes().collect::<Vec<_>>(), [change(Health::Down)]);
        for again in [&with(1)[..], &[]] {
            checks.set(&list, again).expect("threads");
            late.send((1, change(Health::Gone))).expect("it listens");
            assert_eq!(checks.changes().collect::<Vec<_>>(), [change(Health::Up)]);
        }
    }
}
