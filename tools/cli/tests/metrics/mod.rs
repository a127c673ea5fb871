//! The guide's daemons run: what they measure has the names and the form that dashboard, alerts and
//! pages expect.

use crate::page::{blocks, guide, read, repository};
use crate::{STATEPLANE, is_there, keys, nat, said};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

/// A daemon with this test as its service manager; it is ended at the latest when the test ends.
struct Daemon {
    command: &'static str,
    process: std::process::Child,
    /// Where it tells how it is (sd_notify(3)).
    told: UnixDatagram,
}

impl Daemon {
    /// Starts it as systemd does with `Type=notify`: returns when it says that it is ready.
    fn start(command: &'static str, config: &Path) -> Daemon {
        let path = config.with_extension("notify");
        let told = UnixDatagram::bind(&path).unwrap();
        told.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        let mut start = Command::new(STATEPLANE);
        start.args([command, "--config"]).arg(config).env("NOTIFY_SOCKET", path);
        let daemon = Daemon { command, process: start.spawn().unwrap(), told };
        daemon.tells("READY=1");
        daemon
    }

    fn tells(&self, wanted: &str) {
        let mut buffer = [0; 4_096];
        let count = self.told.recv(&mut buffer);
        let count =
            count.unwrap_or_else(|error| panic!("{} did not tell {wanted}: {error}", self.command));
        let said = String::from_utf8_lossy(&buffer[..count]);
        assert!(said.lines().any(|line| line == wanted), "{}: {said}, not {wanted}", self.command);
    }

    /// Politely, so that a switch takes its program off.
    fn terminate(&self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    }

    /// `systemctl stop`.
    fn stop(mut self) {
        self.terminate();
        self.tells("STOPPING=1");
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{}: {status}", self.command);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            self.terminate();
            let _ = self.process.wait();
        }
    }
}

/// The metrics of a daemon: whoever says that it is ready answers.
fn scrape(address: &str) -> String {
    use std::io::{Read, Write};
    let mut stream =
        std::net::TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// Checks a scrape against the format and the conventions; the families' names.
fn families(text: &str) -> BTreeSet<String> {
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.trim().is_empty() && helped.insert(name), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none(), "twice: {line}");
            assert!(name.starts_with("stateplane_"), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(
                family_of(name, |name| types.contains_key(name)).is_some(),
                "no TYPE before {line}"
            );
            line.rsplit(' ')
                .next()
                .unwrap()
                .parse::<f64>()
                .unwrap_or_else(|_| panic!("no number: {line}"));
        }
    }
    assert_eq!(helped, types.keys().copied().collect(), "HELP and TYPE come together");
    types.into_keys().map(str::to_owned).collect()
}

/// The family that a sample is of: a histogram's samples have suffixes.
fn family_of(name: &str, known: impl Fn(&str) -> bool) -> Option<&str> {
    let bare = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
    std::iter::once(name).chain(bare).find(|name| known(name))
}

/// What a switch, a store and a controller print, in a network of their own.
fn running() -> String {
    netns::unshare_thread().unwrap_or_else(|error| panic!("{error}"));
    let links = [
        "link set lo up",
        "link add p1 type veth peer name p2",
        "link set p1 up",
        "link set p2 up",
    ];
    netns::ip_batch(&links).unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().unwrap();
    let program = nat();
    let object = folder.path().join("nat.o");
    let compiled = Command::new(STATEPLANE)
        .arg("compile")
        .arg(program)
        .arg("-o")
        .arg(object)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", said(&compiled));
    let secrets = keys(folder.path());
    let mut found = String::new();
    let mut daemons = vec![];
    let name = format!("deploy-test-{}", std::process::id());
    for (command, path, metrics) in [
        ("switch", "switch-s1.toml", "127.0.0.1:9102"),
        ("store", "store.toml", "127.0.0.1:9101"),
        ("controller", "controller.toml", "127.0.0.1:9103"),
    ] {
        let page = guide();
        let (_, text) = blocks(&page, "toml")
            .into_iter()
            .find(|(known, _)| known.file_name().unwrap() == path)
            .unwrap();
        // The page's configuration, on this machine's addresses.
        let text = text
            .replace("\"s1\"", &format!("\"{name}\""))
            .replace("detach = false", "detach = true")
            .replace("\"eth1\"", "\"p1\"")
            .replace("\"eth2\"", "\"p2\"")
            .replace("\"/var/lib/stateplane/wal\"", &format!("{:?}", folder.path().join("wal")))
            .replace("\"/var/lib/stateplane-switch\"", &format!("{:?}", folder.path().join("switch")))
            .replace("0.0.0.0:9102", metrics)
            .replace("10.2.1.10:9101", metrics)
            .replace("10.2.1.10:9103", metrics)
            .replace("\"10.2.1.10:5408\", \"10.2.2.10:5408\", \"10.2.3.10:5408\"", "\"127.0.0.1:5408\"")
            .replace("listen = \"10.2.1.10:5408\"", "listen = \"127.0.0.1:5408\"")
            .replace(
                "etcd = [\"http://10.2.1.10:2379\", \"http://10.2.2.10:2379\", \"http://10.2.3.10:2379\"]",
                &format!("database = {:?}", folder.path().join("controller.redb")),
            )
            .replace("listen = \"10.2.1.10:5407\"", "listen = \"127.0.0.1:5407\"");
        let config = folder.path().join(path);
        std::fs::write(&config, text).unwrap();
        daemons.push(Daemon::start(command, &config));
        let text = scrape(metrics);
        promtool(&["check", "metrics"], &text);
        found.push_str(&text);
    }
    the_status_page_has_them(&name, &secrets);
    daemons.into_iter().rev().for_each(Daemon::stop);
    found
}

/// `stateplane status`, while a switch and a store run and a second store does not.
fn the_status_page_has_them(switch: &str, secrets: &Path) {
    let ask = |more: &[&str]| {
        let mut command = Command::new(STATEPLANE);
        command
            .args(["status", "--store", "127.0.0.1:5407", "--timeout-ms", "300", "--secrets"])
            .arg(secrets);
        command.args(more).output().unwrap()
    };
    let output = ask(&["--json", "--store", "127.0.0.1:5999"]);
    assert_eq!(output.status.code(), Some(1), "a store does not answer: {}", said(&output));
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Other tests of this machine may have switches of their own.
    let ours =
        page["switches"].as_array().unwrap().iter().find(|found| found["name"] == switch).unwrap();
    assert_eq!(ours["load"]["ports_attached"], 2, "{ours}");
    assert_eq!(ours["load"]["objects"][0]["name"], "NatIngress.bindings", "{ours}");
    assert_eq!(
        (&ours["load"]["pending"], &ours["load"]["objects"][0]["flows"]),
        (&0.into(), &0.into()),
        "{ours}"
    );
    assert!(page["stores"][0]["error"].is_null() && page["stores"][0]["records"] == 0, "{page}");
    assert!(
        page["stores"][1]["error"]
            .as_str()
            .unwrap()
            .contains("127.0.0.1:5999: nothing listens there"),
        "{page}"
    );
    // The controller decides, but one server of three is too few to begin a cluster: not all is
    // well, and the page says so.
    let output = ask(&["--json", "--controller", "127.0.0.1:5408"]);
    assert_eq!(output.status.code(), Some(1), "no cluster yet: {}", said(&output));
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let controller = &page["controllers"][0];
    assert!(
        controller["error"].is_null()
            && controller["leading"] == true
            && controller["settled"] == false,
        "{page}"
    );
    assert!(
        !controller["peers"].as_array().unwrap().is_empty(),
        "the server reports to it: {page}"
    );
    let text = said(&ask(&["--controller", "127.0.0.1:5408"]));
    assert!(
        text.contains("decides")
            && text.contains("127.0.0.1:5407")
            && text.contains("generator lag"),
        "{text}"
    );
    println!("{text}");
}

/// What Prometheus' own tool says, where it is.
fn promtool(arguments: &[&str], input: &str) {
    use std::io::Write;
    if !is_there("promtool") {
        return;
    }
    let command = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = command.unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    // 3: well-formed, but it would name something otherwise.
    assert!(
        matches!(output.status.code(), Some(0 | 3)),
        "promtool {arguments:?}: {}",
        said(&output)
    );
}

/// The metrics of ours that a query names.
fn named_in(query: &str) -> Vec<String> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("stateplane_")).map(str::to_owned).collect()
}

/// Events of a switch's runtime that are no loss. A person decides on an event that is neither here
/// nor in the panel of refused and dropped packets.
const NO_LOSS: [&str; 19] = [
    "parked",
    "grants",
    "absent",
    "updates",
    "read_commits",
    "acks",
    "refused",
    "resent",
    "conflicts",
    "commit_conflicts",
    "ignored_grants",
    "recalled",
    "recalled_unknown",
    "released",
    "release_acks",
    "heartbeats",
    "snapshots",
    "snapshot_parts",
    "snapshot_parts_resent",
];

/// Losses that nobody is told of: they belong to a failover or a restart, and where they go on
/// another alert has the cause.
const NO_ALERT: [&str; 4] = ["late", "other_incarnation", "window_lost", "snapshot_without_lease"];

/// The events that the alerts' queries name.
fn events_with_an_alert(queries: &[&str]) -> BTreeSet<String> {
    let named = queries.iter().flat_map(|query| query.split("event=").skip(1));
    let lists =
        named.filter_map(|rest| rest.trim_start_matches('~').strip_prefix('"')?.split('"').next());
    lists.flat_map(|list| list.split('|')).map(str::to_owned).collect()
}

/// Whatever the daemons drop or refuse can be seen.
fn every_loss_is_on_the_dashboard(running: &str, shown: &[&str], alerts: &[&str]) {
    let events = |operator: &str| {
        let mark = format!("event{operator}\"malformed");
        let query = shown
            .iter()
            .find(|query| query.contains(&mark))
            .unwrap_or_else(|| panic!("no panel has {mark}"));
        let (_, list) = query.split_once(&format!("event{operator}\"")).unwrap();
        list.split_once('"').unwrap().0.split('|').collect::<BTreeSet<_>>()
    };
    let lost = events("=~");
    assert_eq!(lost, events("!~"), "what is not a loss is in the other panel");
    let head = "stateplane_flow_events_total{event=\"";
    let known: BTreeSet<&str> =
        running.lines().filter_map(|line| line.strip_prefix(head)?.split('"').next()).collect();
    let expected: BTreeSet<&str> =
        known.iter().copied().filter(|event| !NO_LOSS.contains(event)).collect();
    assert!(expected.len() > 10);
    assert_eq!(lost, expected, "the panel of what is refused and dropped");
    let told = events_with_an_alert(alerts);
    let untold: Vec<_> = expected.iter().filter(|event| !told.contains(**event)).collect();
    let mut quiet: Vec<_> = NO_ALERT.iter().collect();
    quiet.sort_by_key(|event| expected.iter().position(|known| known == *event));
    assert_eq!(untold, quiet, "losses without an alert");
    let named: BTreeSet<String> = shown.iter().flat_map(|query| named_in(query)).collect();
    let mut hidden = vec![];
    for line in running.lines() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let loss = ["drop", "refuse", "old", "not genuine", "would not"]
            .iter()
            .any(|word| help.contains(word));
        if name.ends_with("_total") && loss && !named.contains(name) {
            hidden.push(format!("{name}: {help}"));
        }
    }
    assert!(hidden.is_empty(), "not on the dashboard: {hidden:#?}");
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_that_exist() {
    let running = running();
    let known = families(&running);
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/stateplane.json")).unwrap();
    let mut queries = vec![];
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    let panels = queries.len();
    for line in read("deploy/prometheus/alerts.yml").lines() {
        if let Some(query) = line.trim().strip_prefix("expr: ") {
            queries.push(("alerts.yml".to_owned(), query.to_owned()));
        }
    }
    for line in guide().lines() {
        queries.push(("the guide".to_owned(), line.to_owned()));
    }
    assert!(panels >= 20 && queries.len() > panels + 10);
    let mut missing = vec![];
    for (place, query) in &queries {
        for name in named_in(query) {
            if family_of(&name, |name| known.contains(name)).is_none() {
                missing.push(format!("{place}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "no daemon has these: {missing:#?}\nthey have {known:#?}");
    let shown: Vec<&str> = queries[..panels].iter().map(|(_, query)| query.as_str()).collect();
    let alerts = queries[panels..].iter().filter(|(place, _)| place == "alerts.yml");
    every_loss_is_on_the_dashboard(
        &running,
        &shown,
        &alerts.map(|(_, query)| query.as_str()).collect::<Vec<_>>(),
    );
    for metric in ["stateplane_switch_lease_too_short", "stateplane_store_old_incarnation_total"] {
        assert!(read("deploy/prometheus/alerts.yml").contains(metric), "{metric} has no alert");
    }
    // Prometheus asks where the page has them.
    let scraped = read("deploy/prometheus/prometheus.yml");
    for (path, text) in blocks(&guide(), "toml") {
        let Some(at) =
            text.lines().find_map(|line| line.strip_prefix("metrics = \"")?.split('"').next())
        else {
            continue;
        };
        let at = at.replace("0.0.0.0", "sw1");
        assert!(scraped.contains(&format!("\"{at}\"")), "{}: {at} is not scraped", path.display());
    }
    if is_there("promtool") {
        let file = repository().join("deploy/prometheus/alerts.yml");
        let output = Command::new("promtool").args(["check", "rules"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let file = repository().join("deploy/prometheus/prometheus.yml");
        let output = Command::new("promtool").args(["check", "config"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
}
