//! What an operator meets: agents that start while no controller answers, or that hang; labs whose
//! daemons do not start. Needs root. Waits for timers.

mod common;

use common::{Connections, TestLab, skip, stateplane, tcp_echo, topology, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::Instant;

/// A signal to s1's agent.
fn signal(lab: &TestLab, signal: Signal) {
    let pid = lab.switch("s1").expect("the agent answers")["pid"].as_i64().expect("pid");
    kill(Pid::from_raw(pid as i32), signal).expect("signal");
}

/// Ends s1's agent in an orderly way, and waits until it is gone.
fn end(lab: &TestLab) {
    let pid = lab.switch("s1").expect("the agent answers")["pid"].to_string();
    signal(lab, Signal::SIGTERM);
    wait_for("the agent ends", || {
        // One that this process started is its own to collect.
        let own = Pid::from_raw(pid.parse().expect("number"));
        let _ = nix::sys::wait::waitpid(own, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
        !std::path::Path::new("/proc").join(&pid).exists()
    });
}

/// Starts s1's agent with empty maps, as `--fresh` does.
fn start_fresh(lab: &TestLab) {
    let opened = lab::Lab::open(&lab.name).expect("lab");
    let folder = opened.dir().join("nodes/s1");
    let words = [env!("CARGO_BIN_EXE_stateplane"), "switch", "--config", "", "--fresh"];
    let mut words = words.map(str::to_owned);
    words[3] = folder.join("switch.toml").display().to_string();
    lab::process::spawn(&lab.netns("s1"), &words, &folder.join("switch.log")).expect("starts");
    wait_for("the agent answers", || {
        lab.switch("s1").is_some_and(|status| status["how"] == "started")
    });
}

/// What `stateplane status` says of s1, its exit code, and its page.
fn status(lab: &TestLab) -> (Value, Option<i32>, String) {
    let output = stateplane(&["status", "--json", "--timeout-ms", "500"]);
    let page: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name = format!("{}-s1", lab.name);
    // Other tests of this machine may have switches of their own.
    let ours = page["switches"]
        .as_array()
        .expect("switches")
        .iter()
        .find(|found| found["name"] == name.as_str());
    let text = stateplane(&["status", "--timeout-ms", "500"]).stdout;
    let ours = ours.unwrap_or_else(|| panic!("no {name}: {page}")).clone();
    (ours, output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// The line of the page that begins with s1.
fn row<'a>(lab: &TestLab, page: &'a str) -> &'a str {
    let name = format!("{}-s1 ", lab.name);
    page.lines()
        .find(|line| line.starts_with(&name))
        .unwrap_or_else(|| panic!("no {name}in {page}"))
}

/// `counter`, `register` and `table` without a name list what there is.
fn what_there_is_is_listed(lab: &TestLab) {
    let switch = format!("{}-s1", lab.name);
    let list = |words: &[&str]| common::must(&[words, &["--switch", &switch]].concat());
    for words in [&["counter"][..], &["counter", "read"]] {
        let listed = list(words);
        assert!(
            listed.starts_with("counter ") && listed.contains("NatIngress.translated_out "),
            "{listed}"
        );
    }
    let counters: Value = serde_json::from_str(&list(&["counter", "--json"])).expect("JSON");
    let found = counters
        .as_array()
        .expect("a list")
        .iter()
        .find(|it| it["name"] == "NatIngress.translated_out");
    assert!(found.is_some_and(|it| it["size"].as_u64() >= Some(1)), "{counters}");
    assert!(list(&["register"]).starts_with("register "));
    assert_eq!(list(&["table"]), list(&["table", "list"]));
    // A change says how long it lasts.
    let entry = ["inside", "10.99.0.0/16"];
    let said = list(&["table", "add", entry[0], entry[1], "-a", "mark_inside"]);
    assert!(said.contains("stays until") && said.contains("table.entry"), "{said}");
    let said = list(&["table", "delete", entry[0], entry[1]]);
    assert!(said.contains("the next start of the agent adds it again"), "{said}");
}

/// A state message on the inside is dropped, and `status` says why and what to do.
fn what_was_dropped_is_told(lab: &TestLab) {
    let sent = lab.netns("core").run(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.send_to(&[0x53, 0x50, 2, 1], "10.255.0.1:5407")
    });
    sent.expect("sent");
    let drops = || status(lab).0["load"]["drops"].as_array().expect("drops").clone();
    let dropped = |drops: &[Value]| {
        let some = drops.iter().filter(|it| it["count"].as_u64() > Some(0)).cloned();
        some.collect::<Vec<_>>()
    };
    wait_for("it is counted", || !dropped(&drops()).is_empty());
    let drops = drops();
    assert!(drops.len() > 20, "all reasons: {drops:?}");
    let found = &dropped(&drops)[0];
    let (_, _, page) = status(lab);
    let remedy = found["remedy"].as_str().expect("text");
    let line = page.lines().find(|line| line.contains(remedy)).unwrap_or_else(|| panic!("{page}"));
    let word = |name: &str| found[name].as_str().expect("text").to_owned();
    assert!(line.contains(&format!("{} {}", word("part"), word("reason"))));
}

/// Takes s2's switch down, and has its configuration changed.
fn another_s2(lab: &TestLab, from: &str, to: &str) -> (std::path::PathBuf, String) {
    let name = format!("{}-s2", lab.name);
    // Not there the second time.
    let _ = stateplane(&["switch", "detach", &name]);
    let opened = lab::Lab::open(&lab.name).expect("lab");
    let folder = opened.node_dir("s2");
    let text = std::fs::read_to_string(folder.join("switch.toml")).expect("configuration");
    assert!(text.contains(from), "{text}");
    let path = folder.join("another.toml");
    std::fs::write(&path, text.replace(from, to)).expect("written");
    (path, name)
}

/// Wrong secrets do not look like a controller that does not run.
fn a_switch_with_other_secrets_is_told(lab: &TestLab) {
    let folder = lab::Lab::open(&lab.name).expect("lab").dir().to_path_buf();
    let other = folder.join("other.secrets");
    common::must(&["keys", "generate", other.to_str().expect("UTF-8")]);
    let (path, name) = another_s2(lab, "fabric.secrets", "other.secrets");
    let path = path.display().to_string();
    let binary = env!("CARGO_BIN_EXE_stateplane");
    let mut check = lab.netns("s2").command(binary).expect("command");
    let output = check.args(["switch", "--config", &path, "--check"]).output().expect("checked");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("controllers[0]: ") && said.contains("runs with different secrets"),
        "{said}"
    );

    let words = [binary, "switch", "--config", &path].map(str::to_owned);
    lab::process::spawn(&lab.netns("s2"), &words, &folder.join("other.log")).expect("starts");
    let told = || {
        let page =
            common::json(&String::from_utf8_lossy(&stateplane(&["status", "--json"]).stdout));
        let found = page["switches"].as_array()?.iter().find(|it| it["name"] == name.as_str())?;
        found["load"]["other_secrets"][0].as_str().map(str::to_owned)
    };
    wait_for("it is told", || told().is_some());
    assert_eq!(told().as_deref(), Some(common::CONTROLLER));
    let page = String::from_utf8_lossy(&stateplane(&["status"]).stdout).into_owned();
    assert!(page.contains("runs and has other secrets"), "{page}");
    common::must(&["switch", "detach", &name]);
}

/// s2 is started with s1's number: it ends with an error, and leaves nothing.
fn a_second_switch_with_the_number_is_refused(lab: &TestLab) {
    let (path, name) = another_s2(lab, "switch_id = 2", "switch_id = 1");
    let mut command = lab.netns("s2").command(env!("CARGO_BIN_EXE_stateplane")).expect("command");
    let output = command.args(["switch", "--config"]).arg(&path).output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let expected = format!(
        "another.toml: switch_id: 1 is the number of switch \"{}-s1\", which runs at 10.255.0.1",
        lab.name
    );
    assert!(said.contains(&expected) && said.contains("write another switch_id here"), "{said}");
    assert!(!lab.must_run("s2", "ip link").contains("prog/xdp"), "the program is on no port");
    assert!(!switch_agent::known().contains(&name));
    let s1 = lab.switch("s1").expect("s1 runs");
    assert_eq!(s1["switch_id"], 1);
}

#[test]
fn a_switch_starts_without_a_controller_and_traffic_goes_on() {
    if skip() {
        return;
    }
    // All by way of s1, so that all connections meet what happens to it.
    let lab = TestLab::up("operations", "nat.toml", &["--prefer", "s1"]);
    let echo = tcp_echo(&lab, 8000);
    let mut connections = Connections::open(&lab, echo, 10);
    assert_eq!(status(&lab).0["load"]["views"], "told");
    the_controller_tells_of_it(&lab);
    what_there_is_is_listed(&lab);
    what_was_dropped_is_told(&lab);
    a_switch_with_other_secrets_is_told(&lab);
    a_second_switch_with_the_number_is_refused(&lab);
    connections.all_answer("a second s1 was refused");
    lab.restart_daemon("s2", "switch");
    lab.kill_daemon("controller", "controller");

    // An orderly end: the program goes on forwarding, and the next agent takes it over.
    end(&lab);
    connections.all_answer("no agent");
    lab.restart_daemon("s1", "switch");
    let (s1, _, page) = status(&lab);
    assert_eq!((&s1["how"], &s1["load"]["views"]), (&"took over".into(), &"kept".into()), "{s1}");
    assert!(row(&lab, &page).contains(" up "), "{page}");
    connections.all_answer("taken over");
    connections.add(Connections::open(&lab, echo, 5));

    // Empty maps: where the store is stands in the last views only.
    end(&lab);
    start_fresh(&lab);
    let (s1, _, page) = status(&lab);
    assert_eq!((&s1["how"], &s1["load"]["views"]), (&"started".into(), &"kept".into()), "{s1}");
    assert!(
        row(&lab, &page).contains(" up ") && page.contains("no controller has answered since"),
        "{page}"
    );
    connections.all_answer("fresh");
    connections.add(Connections::open(&lab, echo, 5));
    // Both directions of 20 connections; counted every 5 s.
    let owned = || status(&lab).0["load"]["objects"][0]["owned"].as_u64().unwrap_or(0);
    wait_for("its flows are counted", || owned() == 40);

    // Not even those: nothing is forwarded as if it were well, and whoever asks is told.
    end(&lab);
    let opened = lab::Lab::open(&lab.name).expect("lab");
    let kept = opened.node_dir("s1").join(format!("{}-s1.views.json", lab.name));
    std::fs::remove_file(kept).expect("the last views");
    start_fresh(&lab);
    let (s1, code, page) = status(&lab);
    assert_eq!((&s1["load"]["views"], code), (&"none".into(), Some(1)), "{s1}");
    assert!(row(&lab, &page).contains("no views"), "{page}");
    assert!(lab.metrics("s1").contains("\nstateplane_switch_without_views 1\n"));
    let log = std::fs::read_to_string(opened.log("s1", "switch")).expect("log");
    assert!(log.contains("no views"), "{log}");
    lab.restart_daemon("controller", "controller");
    wait_for("the controller tells it", || status(&lab).0["load"]["views"] == "told");
    connections.all_answer("told");

    // An agent that hangs is not waited for.
    let pid = lab.switch("s1").expect("the agent answers")["pid"].as_i64().expect("pid") as i32;
    signal(&lab, Signal::SIGSTOP);
    wait_for("it has stopped", || status(&lab).0["error"].is_string());
    let (s1, code, page) = status(&lab);
    assert!(
        s1["error"].as_str().is_some_and(|error| error.contains("no answer within 500 ms")),
        "{s1}"
    );
    assert!(code == Some(1) && row(&lab, &page).contains("no answer"), "{page}");
    connections.all_answer("its agent hangs");
    an_agent_that_is_dead_is_told(&lab, pid);
    lab.down();
}

/// A dead agent's switch is on the page until somebody takes its program off, and then the
/// controller misses it.
fn an_agent_that_is_dead_is_told(lab: &TestLab, pid: i32) {
    // Not the one that the lab started: it was started anew meanwhile.
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("SIGKILL");
    wait_for("its switch is told to have no agent", || {
        status(lab).0["error"].as_str().is_some_and(|error| error.contains("no agent runs"))
    });
    let (s1, code, page) = status(lab);
    assert!(s1["error"].as_str().is_some_and(|error| error.contains("no agent runs")), "{s1}");
    assert!(code == Some(1) && row(lab, &page).contains("no answer"), "{page}");
    let name = format!("{}-s1", lab.name);
    assert!(stateplane(&["switch", "detach", &name]).status.success());
    let page = String::from_utf8_lossy(&stateplane(&["status", "--timeout-ms", "500"]).stdout)
        .into_owned();
    assert!(!page.contains(&name), "taken off, and forgotten: {page}");
    let binary = env!("CARGO_BIN_EXE_stateplane");
    let secrets = format!("/run/stateplane/labs/{}/fabric.secrets", lab.name);
    let ask = format!("{binary} status --controller {} --secrets {secrets}", common::CONTROLLER);
    let (good, page) = lab.run("controller", &ask);
    assert!(
        !good && page.contains("switch 1 (") && page.contains("the controller has not heard it"),
        "{page}"
    );
}

/// What the controller has heard of s1, as somebody on another machine would see it.
fn the_controller_tells_of_it(lab: &TestLab) {
    let (binary, secrets) = (
        env!("CARGO_BIN_EXE_stateplane"),
        format!("/run/stateplane/labs/{}/fabric.secrets", lab.name),
    );
    let ask =
        format!("{binary} status --json --controller {} --secrets {secrets}", common::CONTROLLER);
    wait_for("the controller tells of its flows", || {
        let (_, page) = lab.run("controller", &ask);
        let page: serde_json::Value = serde_json::from_str(&page).unwrap_or_default();
        let peers = page["controllers"][0]["peers"].as_array().cloned().unwrap_or_default();
        let is_s1 = |peer: &&serde_json::Value| {
            peer["reporter"]["switch"]["switch_id"] == 1 && peer["alive"] == true
        };
        let load =
            peers.iter().find(is_s1).map_or(serde_json::Value::Null, |peer| peer["load"].clone());
        let some = |field: &str| load[field].as_u64().is_some_and(|count| count > 0);
        load["name"] == format!("{}-s1", lab.name)
            && some("owned")
            && some("sessions")
            && load["ports_attached"] == 2
    });
}

#[test]
fn a_lab_whose_store_does_not_start_says_so_at_once() {
    if skip() {
        return;
    }
    let name = format!("t-broken-{}", std::process::id());
    let file = topology("nat.toml");
    let began = Instant::now();
    let output = stateplane(&[
        "lab",
        "up",
        file.to_str().expect("UTF-8"),
        "--name",
        &name,
        "--set",
        "lease_ms=10",
    ]);
    let (said, took) = (String::from_utf8_lossy(&output.stderr).into_owned(), began.elapsed());
    println!("after {took:?}: {said}");
    assert_eq!(output.status.code(), Some(1));
    let error = said.lines().find(|line| line.starts_with("stateplane lab: ")).unwrap_or_default();
    assert!(error.starts_with("stateplane lab: store"), "the store is named: {said}");
    assert!(said.contains("lease_ms: 10 is too short"), "what it said: {said}");
    assert!(!said.contains("within 15 s"), "not after the whole wait: {said}");
    let (_, logs) = said.trim_end().rsplit_once(" are in ").unwrap_or_else(|| panic!("{said}"));
    assert!(std::path::Path::new(logs).join("store1/store.log").exists(), "{said}");
    std::fs::remove_dir_all(logs).expect("remove the logs");
    assert_eq!(common::leftovers(&name), Vec::<String>::new());
}
