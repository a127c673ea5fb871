//! The load balancer for real: curl to web servers behind two switches; a switch dies meanwhile,
//! backends are added and drained. Needs root. Waits for timers.

mod common;

use common::{STORES, TestLab, skip, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

const URL: &str = "http://203.0.113.10";
const LARGE_BYTES: usize = 3_000_000;

fn curl(lab: &TestLab, arguments: &[&str]) -> Command {
    let mut command = lab.netns("outside").command("curl").expect("curl");
    command.args(["--silent", "--show-error", "--fail", "--max-time", "60"]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// So many requests, each on a connection of its own; how many each backend answered. Each must be
/// answered.
fn requests(lab: &TestLab, count: usize) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..count {
        let output = curl(lab, &[&format!("{URL}/name")]).output().expect("curl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        *answers.entry(String::from_utf8_lossy(&output.stdout).trim().to_owned()).or_default() += 1;
    }
    answers
}

/// Downloads that take some ten seconds each.
fn downloads(lab: &TestLab, count: usize) -> Vec<Child> {
    let url = format!("{URL}/large");
    (0..count)
        .map(|_| curl(lab, &["--limit-rate", "300k", &url]).spawn().expect("curl starts"))
        .collect()
}

fn all_complete(downloads: Vec<Child>) {
    for download in downloads {
        let output = download.wait_with_output().expect("curl ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout.len(), LARGE_BYTES);
    }
}

/// What the stores say of the backends, each of which is in all chains: state (`not agreed` while
/// they differ) and conversations, by address.
fn backends(lab: &TestLab) -> BTreeMap<String, (String, u64)> {
    let mut all: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for status in lab.stores() {
        let list =
            status["objects"][0]["backends"].as_array().unwrap_or_else(|| panic!("{status}"));
        for backend in list {
            let text = |field: &str| backend[field].as_str().expect("text").to_owned();
            let count = backend["conversations"].as_u64().expect("number");
            let known = all.entry(text("address")).or_insert((text("state"), count));
            if known.0 != text("state") {
                known.0 = "not agreed".to_owned();
            }
            known.1 = known.1.max(count);
        }
    }
    all
}

/// Changes the configuration of every store server, and has it read again.
fn reconfigure(lab: &TestLab, change: impl Fn(&str) -> String) {
    let opened = lab::Lab::open(&lab.name).expect("lab");
    for (store, _) in STORES {
        let file = opened.node_dir(store).join("store.toml");
        let text = std::fs::read_to_string(&file).expect("store.toml");
        let changed = change(&text);
        assert_ne!(changed, text);
        std::fs::write(&file, changed).expect("store.toml");
        let running = lab.netns(store).processes();
        assert!(!running.is_empty());
        for pid in running {
            kill(Pid::from_raw(pid), Signal::SIGHUP).expect("SIGHUP");
        }
    }
}

fn wait_for_state(lab: &TestLab, backend: &str, state: &str) {
    wait_for(&format!("{backend} is {state}"), || {
        backends(lab).get(&format!("{backend}:8080")).is_some_and(|(now, _)| now == state)
    });
}

#[test]
fn no_connection_breaks_when_a_switch_dies_and_backends_come_and_go() {
    if skip() {
        return;
    }
    let lab = TestLab::up("balancer", "load_balancer.toml", &[]);
    wait_for("both switches are used", || lab.both_used("203.0.113.10"));

    // Two backends at first. Each request has another port, so all shards take part, and any may
    // choose either backend.
    let answers = requests(&lab, 40);
    println!("{answers:?}");
    assert!(answers.len() == 2 && answers.values().all(|count| *count >= 10), "{answers:?}");

    // A switch dies under downloads, and new requests are answered meanwhile.
    let first = downloads(&lab, 8);
    wait_for("the downloads run", || {
        backends(&lab).values().map(|(_, count)| count).sum::<u64>() >= 8
    });
    lab.fail("s1");
    let answers = requests(&lab, 10);
    assert!(!answers.contains_key("b3"), "{answers:?}");

    // Another backend: in each shard it gets the next one, until it has as many as the others.
    reconfigure(&lab, |text| {
        format!(
            "{text}\n[[object.backend]]\naddress = \"10.3.3.10\"\nport = 8080\nstate = \"active\"\n"
        )
    });
    wait_for_state(&lab, "10.3.3.10", "active");
    let answers = requests(&lab, 6);
    assert!(answers.get("b3") >= Some(&3), "{answers:?}");

    // One is drained while it has downloads: they go on, and no request gets there.
    let address = "address = \"10.3.1.10\"\nport = 8080\nstate = ";
    reconfigure(&lab, |text| {
        text.replace(&format!("{address}\"active\""), &format!("{address}\"drained\""))
    });
    wait_for_state(&lab, "10.3.1.10", "drained");
    let second = downloads(&lab, 3);
    let answers = requests(&lab, 20);
    assert!(!answers.contains_key("b1"), "{answers:?}");

    lab.restore("s1");
    wait_for("both switches are used", || lab.both_used("203.0.113.10"));
    let answers = requests(&lab, 10);
    assert!(!answers.contains_key("b1"), "{answers:?}");
    all_complete(first);
    all_complete(second);

    // Drained and without conversations, once those that ended are forgotten: it can be taken away.
    println!("{:?}", backends(&lab));
    wait_for_long("the drained backend is free", || backends(&lab)["10.3.1.10:8080"].1 == 0);
    for switch in ["s1", "s2"] {
        assert!(
            lab.counter(switch, "to_backend") > 0 && lab.counter(switch, "to_client") > 0,
            "{switch} is used"
        );
    }
    lab.equal_stores();
    lab.down();
}

/// A real server loses its power: once the stores saw it, all new requests go to the other; what
/// they had there stays or is taken away.
fn a_backend_dies(test: &str, on_failure: &str, shards: u32) {
    if skip() {
        return;
    }
    let set = [&format!("on_failure={on_failure}"), &format!("shards={shards}")];
    let lab = TestLab::up(test, "load_balancer.toml", &["--set", set[0], "--set", set[1]]);
    wait_for("both switches are used", || lab.both_used("203.0.113.10"));
    if shards == 1 {
        let answers = requests(&lab, 20);
        assert!(
            answers.len() == 2 && answers.values().all(|count| (9..=11).contains(count)),
            "{answers:?}"
        );
        wait_for_long("these are forgotten", || {
            backends(&lab).values().all(|(_, count)| *count == 0)
        });
    }
    let running = downloads(&lab, 8);
    wait_for("the downloads run, at both", || {
        backends(&lab).values().all(|(_, count)| *count >= 2)
    });
    // Some of what is counted may be conversations that ended just now.
    let at_b1 = backends(&lab)["10.3.1.10:8080"].1 as usize;
    assert!(at_b1 < running.len(), "{at_b1}");

    lab.fail("b1");
    wait_for_state(&lab, "10.3.1.10", "down");
    // Every server finds out by itself; the heads of the chains pick.
    let answers = requests(&lab, 20);
    assert_eq!(answers, BTreeMap::from([("b2".to_owned(), 20)]));
    let metrics = lab.metrics("store1");
    let state = r#"backend_state{object="BalancerIngress.bindings",backend="10.3.1.10:8080",state="down"} 1"#;
    assert!(metrics.contains(state), "{metrics}");
    if on_failure == "drop" {
        wait_for("its conversations are taken away", || backends(&lab)["10.3.1.10:8080"].1 == 0);
        let dropped: u64 =
            STORES.iter().map(|(store, _)| lab.store_counter(store, "conversations_dropped")).sum();
        assert!(dropped > 0);
    } else {
        assert!(backends(&lab)["10.3.1.10:8080"].1 > 0);
    }

    lab.restore("b1");
    wait_for_state(&lab, "10.3.1.10", "active");
    wait_for("new requests go there again", || requests(&lab, 2).contains_key("b1"));
    // Those of the other backend were not touched.
    let ended: Vec<_> =
        running.into_iter().map(|download| std::thread::spawn(|| ends_well(download))).collect();
    let ended: Vec<bool> = ended.into_iter().map(|it| it.join().expect("it ends")).collect();
    let well = ended.iter().filter(|well| **well).count();
    assert!(well + at_b1 >= ended.len(), "{ended:?}, of which {at_b1} at the dead backend");
    lab.down();
}

/// Whether a download gets to its end; one from a dead server does not, and is given up.
fn ends_well(download: Child) -> bool {
    let pid = Pid::from_raw(download.id() as i32);
    let reader = std::thread::spawn(move || download.wait_with_output().expect("curl ends"));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !reader.is_finished() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    if !reader.is_finished() {
        let _ = kill(pid, Signal::SIGKILL);
    }
    let output = reader.join().expect("the reader ends");
    output.status.success() && output.stdout.len() == LARGE_BYTES
}

#[test]
fn new_requests_go_on_when_a_backend_dies() {
    a_backend_dies("dead-backend", "keep", 1);
}

#[test]
fn the_conversations_of_a_dead_backend_can_be_taken_away() {
    a_backend_dies("gone-backend", "drop", 8);
}

/// Closed conversations are kept for `closed_s`, released a few seconds after their end; those of
/// the dead switch end with its session and `idle.tcp_s`.
fn wait_for_long(what: &str, done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "not within 60 s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
