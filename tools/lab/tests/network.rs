//! The lab for real: namespaces, BIRD, traffic, a switch's death and return. Needs root. Waits for
//! timers.

use lab::instance::LABS_DIR;
use lab::{Error, Lab, Options, Topology, netns, process, registry, status};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ROUTED: &str = include_str!("routed.toml");

/// Tests that need what this process may not do say so and pass.
fn skip() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: making network namespaces needs root");
    }
    !root
}

/// A lab that is taken down at the end of the test, also when the test fails.
struct Scoped(Lab);

impl Drop for Scoped {
    fn drop(&mut self) {
        if Path::new(LABS_DIR).join(self.0.name()).exists() {
            let _ = self.0.down();
        }
    }
}

fn up(test: &str, text: &str, prefer: &str) -> lab::Result<Scoped> {
    let topology = Topology::parse(text, Path::new("routed.toml"))?;
    let options = Options {
        name: Some(format!("test-{test}-{}", std::process::id())),
        prefer: Some(prefer.to_string()),
        ..Options::default()
    };
    Lab::up(topology, Path::new("."), options, &|_| {}).map(Scoped)
}

fn run(lab: &Lab, node: &str, command: &str) -> (bool, String) {
    let words: Vec<String> = command.split(' ').map(str::to_string).collect();
    process::run(Some(&lab.netns(node).expect("namespace")), &words).expect("the command starts")
}

fn leftovers(name: &str) -> Vec<String> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir("/run/netns").expect("/run/netns").flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.starts_with(&format!("sp-{name}-")) {
            left.push(file);
        }
    }
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    left.extend(mounts.lines().filter(|l| l.contains(name)).map(str::to_string));
    if Path::new(LABS_DIR).join(name).exists() {
        left.push(format!("{LABS_DIR}/{name}"));
    }
    left
}

/// A datagram every 5 ms from inside to outside and back; the longest silence between two answers.
struct Stream {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    sender: std::thread::JoinHandle<Vec<Instant>>,
}

fn echo_server(lab: &Lab) -> std::net::SocketAddr {
    let socket = lab
        .netns("outside")
        .expect("namespace")
        .run(|| UdpSocket::bind("198.51.100.10:9000"))
        .expect("bind");
    let address = socket.local_addr().expect("address");
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            if socket.send_to(&buffer[..n], from).is_err() {
                break;
            }
        }
    });
    address
}

impl Stream {
    fn start(lab: &Lab) -> Self {
        let address = echo_server(lab);
        let socket = lab
            .netns("inside")
            .expect("namespace")
            .run(|| UdpSocket::bind("10.1.0.10:0"))
            .expect("bind");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&answered));
        let sender = std::thread::spawn(move || {
            let mut answers = Vec::new();
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                // While a route is away, sending fails.
                let _ = socket.send_to(b"x", address);
                if socket.recv(&mut buffer).is_ok() {
                    answers.push(Instant::now());
                    counter.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            answers
        });
        Self { stop, answered, sender }
    }

    /// Waits until 30 more datagrams have come back.
    fn wait_for_more(&self) {
        let wanted = self.answered.load(Ordering::Relaxed) + 30;
        wait_for("datagrams come back", || self.answered.load(Ordering::Relaxed) >= wanted);
    }

    fn finish(self) -> Vec<Instant> {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().expect("the sender ends")
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn longest_gap(answers: &[Instant]) -> Duration {
    answers.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(Duration::MAX)
}

fn uses(lab: &Lab, switch: &str) -> bool {
    let (_, route) = run(lab, "core", "ip route show 203.0.113.0/28");
    let (_, back) = run(lab, "tor", "ip route show 198.51.100.0/24");
    let only = |text: &str| text.contains(&format!("dev {switch} ")) && !text.contains("nexthop");
    only(&route) && only(&back)
}

#[test]
fn a_switch_dies_and_returns() {
    if skip() {
        return;
    }
    let lab = up("fail", ROUTED, "s1").unwrap_or_else(|e| panic!("{e}"));
    let lab = &lab.0;
    wait_for("s1 is preferred", || uses(lab, "s1"));
    let stream = Stream::start(lab);
    let old = status::status(lab).expect("status");
    assert!(old.nodes.iter().all(|n| n.daemons.iter().all(|d| d.alive)), "{old:?}");
    stream.wait_for_more();

    // What the agent of a switch leaves: a bpffs in its run directory.
    let state = Path::new("/run/stateplane").join(format!("{}-s1", lab.name()));
    let bpffs = state.join("bpf");
    std::fs::create_dir_all(&bpffs).expect("mkdir");
    nix::mount::mount(Some("bpf"), &bpffs, Some("bpf"), nix::mount::MsFlags::empty(), None::<&str>)
        .expect("mount");
    std::fs::create_dir(bpffs.join("links")).expect("mkdir");

    lab.fail("s1").expect("fail");
    wait_for("s2 is used", || uses(lab, "s2"));
    stream.wait_for_more();
    let now = status::status(lab).expect("status");
    let s1 = now.nodes.iter().find(|n| n.node == "s1").expect("s1");
    assert!(s1.failed && s1.daemons.len() == 2 && s1.daemons.iter().all(|d| !d.alive), "{s1:?}");
    assert_eq!(s1.ports_down, ["core", "tor"]);
    assert!(lab.netns("s1").expect("namespace").processes().is_empty());
    assert!(!state.exists(), "a dead switch keeps no state");

    lab.restore("s1").expect("restore");
    lab.wait_converged(&["s1"]).expect("converge");
    wait_for("s1 is used again", || uses(lab, "s1"));
    let config = std::fs::read_to_string(lab.node_dir("s1").join("sleeper.toml")).expect("config");
    assert_eq!(config, format!("node = \"s1\" # in {}\n", lab.name()));
    stream.wait_for_more();
    let answers = stream.finish();
    assert!(answers.len() > 100, "{} answers", answers.len());
    let gap = longest_gap(&answers);
    assert!(gap < Duration::from_millis(500), "traffic was away for {gap:?}");

    lab.down().expect("down");
    assert_eq!(leftovers(lab.name()), Vec::<String>::new());
}

#[test]
fn one_daemon_is_killed_and_started_and_no_second_lab_comes_unasked() {
    if skip() {
        return;
    }
    let lab = up("daemon", ROUTED, "s1").unwrap_or_else(|e| panic!("{e}"));
    let lab = &lab.0;
    let lives =
        |daemon: &str| lab.daemons("s1").iter().any(|(name, id)| name == daemon && id.alive());
    for (daemon, other) in [("sleeper", "bird"), ("bird", "sleeper")] {
        lab.kill_daemon("s1", daemon).expect("kill");
        assert!(!lives(daemon) && lives(other), "{daemon}");
        let error = lab.kill_daemon("s1", daemon).expect_err("killed twice").to_string();
        assert!(error.contains("does not run"), "{error}");
        lab.restart_daemon("s1", daemon).unwrap_or_else(|e| panic!("{e}"));
        assert!(lives(daemon) && lives(other), "{daemon}");
        let error = lab.restart_daemon("s1", daemon).expect_err("started twice").to_string();
        assert!(error.contains("runs already"), "{error}");
    }
    let error = lab.restart_daemon("s1", "sleepr").expect_err("no such daemon").to_string();
    assert!(error.contains("s1 sleeper, s1 bird"), "{error}");

    let error = registry::check_none_up().expect_err("a lab is up").to_string();
    assert!(error.contains(lab.name()) && error.contains("stateplane lab down --name"), "{error}");
}

#[test]
fn equal_paths_share_the_flows_and_a_link_fails_alone() {
    if skip() {
        return;
    }
    let lab = up("ecmp", ROUTED, "").unwrap_or_else(|e| panic!("{e}"));
    let lab = &lab.0;
    let address = echo_server(lab);
    let frames = |dev: &str| -> u64 {
        let (_, text) = run(lab, "tor", "cat /proc/thread-self/net/dev");
        let line = text
            .lines()
            .find_map(|l| l.trim().strip_prefix(&format!("{dev}:")).map(str::to_string));
        let line = line.unwrap_or_else(|| panic!("no {dev} in {text}"));
        line.split_whitespace().nth(9).and_then(|n| n.parse().ok()).expect("sent frames")
    };
    let before = [frames("s1"), frames("s2")];
    const FLOWS: u64 = 400;
    lab.netns("inside")
        .expect("namespace")
        .run(|| {
            for _ in 0..FLOWS {
                UdpSocket::bind("10.1.0.10:0")?.send_to(b"x", address)?;
            }
            Ok(())
        })
        .expect("send");
    // BGP and BFD send some frames too: fewer than a quarter of the flows in this time.
    wait_for("both switches are used", || {
        frames("s1") - before[0] > FLOWS / 4 && frames("s2") - before[1] > FLOWS / 4
    });

    lab.set_link("s1", "core", false).expect("link down");
    wait_for("core uses s2 only", || {
        let (_, route) = run(lab, "core", "ip route show 203.0.113.0/28");
        route.contains("dev s2 ") && !route.contains("nexthop")
    });
    // s1 still stands: it reaches the outside the long way.
    wait_for("s1 reaches core by way of tor and s2", || {
        run(lab, "s1", "ping -c1 -W1 -I 10.255.0.1 198.51.100.1").0
    });
    lab.set_link("core", "s1", true).expect("link up");
    wait_for("core uses both", || {
        run(lab, "core", "ip route show 203.0.113.0/28").1.matches("nexthop").count() == 2
    });
    match lab.set_link("s1", "s2", false) {
        Err(Error::Unknown { kind, known, .. }) => {
            assert!(kind == "link" && known.contains("core s1"))
        }
        other => panic!("{other:?}"),
    }
}

/// BIRD has a real-time priority, if this process may give it.
fn assert_bird_goes_first(lab: &Lab) {
    let words = ["chrt", "-f", "1", "true"].map(str::to_string);
    let first = if process::run(None, &words).expect("chrt").0 {
        libc::SCHED_FIFO
    } else {
        libc::SCHED_OTHER
    };
    let (_, bird) = lab.daemons("s1").pop().expect("BIRD");
    // SAFETY: a system call that only reads.
    assert_eq!(unsafe { libc::sched_getscheduler(bird.pid) }, first);
}

#[test]
fn down_works_from_the_directory_after_a_crash() {
    if skip() {
        return;
    }
    let lab = up("crash", ROUTED, "s1").unwrap_or_else(|e| panic!("{e}"));
    assert_bird_goes_first(&lab.0);
    let name = lab.0.name().to_string();
    // A crash in the middle of things: BIRD dead, a stranger in a namespace, state on disk, a
    // namespace gone.
    lab.0.fail("s2").expect("fail");
    let state = Path::new("/run/stateplane").join(format!("{name}-s1"));
    std::fs::create_dir_all(state.join("bpf")).expect("mkdir");
    let inside = lab.0.netns("inside").expect("namespace");
    let words = ["sleep", "1000"].map(str::to_string);
    let stranger = process::spawn(&inside, &words, Path::new("/dev/null")).expect("sleep");
    drop(inside);
    netns::remove(&format!("sp-{name}-s2")).expect("remove");
    // The next user of labs finds it by its owner, which is gone.
    let path = lab.0.dir().join("lab.json");
    let text = std::fs::read_to_string(&path).expect("record");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("json");
    record["owner"] = serde_json::json!({ "pid": std::process::id(), "start_ticks": 1 });
    std::fs::write(&path, record.to_string()).expect("write");
    let neighbour = up("beside", ROUTED, "s1").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(leftovers(&name), Vec::<String>::new());
    assert!(!stranger.alive() && !state.exists());
    assert!(
        run(&neighbour.0, "inside", "ping -c1 -W2 198.51.100.10").0,
        "the other lab is untouched"
    );
    // A directory without a record, from a crash at the very start.
    let empty = format!("test-empty-{}", std::process::id());
    std::fs::create_dir(Path::new(LABS_DIR).join(&empty)).expect("mkdir");
    registry::down(&empty).expect("down");
    assert_eq!(leftovers(&empty), Vec::<String>::new());
}

#[test]
fn a_lab_that_does_not_come_up_says_why_and_leaves_nothing() {
    if skip() {
        return;
    }
    // One of the two switches' daemons fails; that the other is waited for, in vain too, must not
    // hide it, whichever is waited for first.
    for broken in ["s1", "s2"] {
        let script = "[ ${node} = BROKEN ] || exec sleep 1000; echo no such port >&2; exit 3"
            .replace("BROKEN", broken);
        let command = format!("command = [\"sh\", \"-c\", \"{script}\"]");
        let text = ROUTED.replace("command = [\"sleep\", \"${seconds}\"]", &command);
        let text = text.replace("ready = [\"test\", \"-s\", \"${config}\"]", "ready = [\"false\"]");
        let error = up("broken", &text, "s1").err().expect("it does not come up").to_string();
        assert!(
            error.contains(&format!("{broken}: sleeper")) && error.contains("no such port"),
            "{error}"
        );
        let (_, logs) = error.rsplit_once(" are in ").unwrap_or_else(|| panic!("{error}"));
        let log = std::fs::read_to_string(Path::new(logs).join(broken).join("sleeper.log"));
        assert!(log.is_ok_and(|log| log.contains("no such port")), "{error}");
        assert!(!error.contains(LABS_DIR), "names what is gone: {error}");
        std::fs::remove_dir_all(logs).expect("remove the logs");
        assert_eq!(leftovers(&format!("test-broken-{}", std::process::id())), Vec::<String>::new());
    }

    let text = ROUTED.replace("${seconds}", "${secnods}");
    let error = up("unknown", &text, "s1").err().expect("it does not come up").to_string();
    assert!(
        error.contains("node.s1.daemon.sleeper.command") && error.contains("${secnods}"),
        "{error}"
    );
    assert_eq!(leftovers(&format!("test-unknown-{}", std::process::id())), Vec::<String>::new());

    let topology = Topology::parse(ROUTED, Path::new("routed.toml")).expect("good");
    let options = Options {
        name: Some(format!("test-mode-{}", std::process::id())),
        mode: Some("fast".to_string()),
        vars: BTreeMap::new(),
        ..Options::default()
    };
    let error = Lab::up(topology, Path::new("."), options, &|_| {}).expect_err("unknown mode");
    assert!(error.to_string().contains("routed, lossy"), "{error}");
}
