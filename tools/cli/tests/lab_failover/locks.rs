//! Processes that lock, are stopped and killed. Each writes down when it believed to hold the lock:
//! never do two at the same time, and nobody waits for longer than a lease and a failover.

use crate::cluster::{CLUSTER, Cluster};
use netchain_client::{Client, Config, read_ring};
use netchain_recipes::{Blocking, Lock, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_millis(500);
/// Clients of one lock; a queue has room for 15.
const OF_A_LOCK: usize = 10;
/// Times that a holder looks at its lease, in the time that it works.
const LOOKS: u32 = 5;
/// A lock that nobody gets for so long is stuck, on a busy machine, too. Usually it is some leases
/// (of each that was stopped or killed, and of its place in the queue), and a failover.
const STUCK: Duration = Duration::from_secs(30);

/// CLOCK_MONOTONIC in microseconds: all processes have the same.
fn now_us() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1_000
}

/// Not a test: what the processes run, which know it by LOCK_NAME.
#[test]
#[ignore = "a part of the others"]
fn process() {
    let Ok(name) = std::env::var("LOCK_NAME") else { return };
    let file = std::env::var("LOCK_LOG").expect("a file");
    let identity = Some(std::env::var("LOCK_KEY").expect("a client's key").into());
    let config = Config { identity, ..Config::new(read_ring(Path::new(CLUSTER)).expect("ring")) };
    let store = Blocking::new(Client::new(config).expect("a client"));
    let lock = Lock::new(&store, &name, LEASE).expect("a lock");
    let mut log = std::fs::File::create(file).expect("a file");
    loop {
        let Ok(Some(mut seat)) = wait(lock.take(Some(Duration::from_secs(2)))) else { continue };
        let mut text = String::new();
        for look in 0..LOOKS {
            // First the time: a process that is stopped after it may believe no more.
            let at = now_us();
            if !seat.is_held() {
                break;
            }
            writeln!(text, "{} {at}", seat.token()).expect("text");
            std::thread::sleep(Duration::from_millis(4));
            if look == LOOKS / 2 {
                drop(wait(seat.refresh()));
            }
        }
        log.write_all(text.as_bytes()).expect("written");
        drop(wait(seat.release()));
    }
}

/// Processes at work.
pub struct Locks {
    folder: tempfile::TempDir,
    children: RefCell<Vec<Child>>,
    began_us: u64,
}

impl Drop for Locks {
    fn drop(&mut self) {
        for child in self.children.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Locks {
    pub fn start(cluster: &Cluster, clients: usize) -> Locks {
        let (began_us, folder) = (now_us(), tempfile::tempdir().expect("a folder"));
        let program = std::env::current_exe().expect("this program");
        let start = |at: usize| {
            let mut command = cluster.command(&program);
            command
                .args(["--ignored", "--exact", "locks::process"])
                .env("LOCK_NAME", format!("lock-{}", at / OF_A_LOCK))
                .env("LOCK_LOG", folder.path().join(format!("{}-{at}", at / OF_A_LOCK)))
                .env("LOCK_KEY", cluster.identity())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().expect("a process")
        };
        let children = RefCell::new((0..clients).map(start).collect());
        Locks { folder, children, began_us }
    }

    /// Stops and kills some of them, for so long; a third may die.
    pub fn harm(&self, seed: u64, time: Duration) {
        let mut random = StdRng::seed_from_u64(seed);
        let began = Instant::now();
        while began.elapsed() < time {
            let mut children = self.children.borrow_mut();
            let at = random.random_range(0..children.len());
            let pid = Pid::from_raw(children[at].id() as i32);
            let may_die = at % 3 == 0;
            if may_die && random.random_bool(0.1) {
                let _ = children[at].kill();
            } else {
                // (One that is dead cannot be stopped.)
                let _ = kill(pid, Signal::SIGSTOP);
                drop(children);
                // Longer than a lease.
                std::thread::sleep(Duration::from_millis(random.random_range(50..900)));
                let _ = kill(pid, Signal::SIGCONT);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Judges what they wrote down.
    pub fn end(mut self) -> String {
        for child in self.children.get_mut() {
            child.kill().expect("SIGKILL");
            child.wait().expect("it ends");
        }
        let ended_us = now_us();
        // By lock: when, with which token.
        let mut looks: std::collections::BTreeMap<String, Vec<(u64, u64)>> = Default::default();
        for entry in std::fs::read_dir(self.folder.path()).expect("a folder") {
            let entry = entry.expect("a file");
            let name = entry.file_name().into_string().expect("a name");
            let lock = name.split('-').next().expect("a lock").to_owned();
            let text = std::fs::read_to_string(entry.path()).expect("text");
            let look = |line: &str| {
                let (token, at) = line.split_once(' ')?;
                Some((at.parse().ok()?, token.parse().ok()?))
            };
            looks.entry(lock).or_default().extend(text.lines().filter_map(look));
        }
        let (mut held, mut longest) = (0, 0);
        for (lock, looks) in &mut looks {
            looks.sort_unstable();
            let mut newest = 0;
            let mut before = self.began_us;
            for (at, token) in looks.iter() {
                assert!(*token >= newest, "lock {lock}: two believe to hold it at {at}");
                held += u64::from(*token > newest);
                newest = *token;
                longest = longest.max(at - before);
                before = *at;
            }
            longest = longest.max(ended_us.saturating_sub(before));
        }
        let stuck = Duration::from_micros(longest);
        assert!(stuck < STUCK, "a lock was stuck for {stuck:?}");
        format!("{} locks held {held} times, never for at most {stuck:?}", looks.len())
    }
}
