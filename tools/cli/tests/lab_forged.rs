//! Forged, replayed, truncated and random protocol messages from ordinary hosts: they change
//! nothing, and each is counted under its name. Needs root. Waits for timers.

mod common;
#[path = "lab_forged/mod.rs"]
mod forged;

use common::{Connections, INSIDE, OUTSIDE, STORES, TestLab, skip, tcp_echo, wait_for};
use forged::fabric::{FLOWS, Message5407, Numbered, Raw, Wire};
use forged::messages::{
    Random, flipped, from_address, of_another_secret, random_messages, some_of_each, truncated,
};
use secrets::SecretsFile;
use serde_json::Value;
use state_protocol::MessageType;
use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use wire::{BatchType, KeyRing, Secret};

const SWITCHES: [(&str, Ipv4Addr); 2] =
    [("s1", Ipv4Addr::new(10, 255, 0, 1)), ("s2", Ipv4Addr::new(10, 255, 0, 2))];
/// A switch removes what it released two seconds later, and looks every two seconds: what is the
/// same for so long stays.
const SETTLED: Duration = Duration::from_secs(6);
/// What counts something that changed state at a shard's head. (Not the sessions that ended: those
/// in which no flow is left do, by themselves, after ten seconds.)
const CHANGES: [&str; 9] = [
    "grants",
    "regrants",
    "sessions_begun",
    "recalls",
    "releases",
    "updates",
    "read_commits",
    "allocated",
    "freed",
];

/// What must stay as it is while nobody sends: the switches' flows, the stores' records, and what
/// counts changes.
#[derive(Debug, PartialEq)]
struct State {
    flows: Vec<Vec<String>>,
    records: Vec<Value>,
    changes: Vec<(&'static str, u64)>,
}

impl State {
    fn now(lab: &TestLab) -> State {
        let flows = |(switch, _): &(&str, Ipv4Addr)| {
            let name = format!("{}-{switch}", lab.name);
            let text =
                common::must(&["switch", "flows", "--switch", &name, "--json", "--limit", "10000"]);
            let reply: Value = serde_json::from_str(&text).expect("JSON");
            let mut flows: Vec<_> =
                reply["flows"].as_array().expect("flows").iter().map(Value::to_string).collect();
            flows.sort_unstable();
            flows
        };
        let stores = lab.stores();
        State {
            flows: SWITCHES.iter().map(flows).collect(),
            records: stores
                .iter()
                .flat_map(|store| [store["records"].clone(), store["objects"].clone()])
                .collect(),
            changes: CHANGES
                .into_iter()
                .map(|name| {
                    (name, STORES.iter().map(|(store, _)| lab.store_counter(store, name)).sum())
                })
                .collect(),
        }
    }

    /// Once what is on its way has arrived, and what was released is gone from the switches.
    fn settled(lab: &TestLab) -> State {
        let (mut before, mut since) = (State::now(lab), Instant::now());
        let deadline = Instant::now() + 10 * SETTLED;
        while since.elapsed() < SETTLED {
            assert!(Instant::now() < deadline, "it changes all the time: {before:?}");
            std::thread::sleep(Duration::from_millis(100));
            let now = State::now(lab);
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        before
    }
}

/// How often each node dropped something for each of some reasons.
fn refusals(lab: &TestLab, reasons: &[&str]) -> BTreeMap<String, u64> {
    let switches = SWITCHES.iter().map(|(switch, _)| {
        let known = reasons.iter().filter(|reason| **reason != "old_incarnation");
        let count = |reason: &&str| match *reason {
            "stale_acks" => lab.commit_event(switch, reason),
            reason => lab.event(switch, reason),
        };
        (switch.to_string(), known.map(count).sum())
    });
    let stores = STORES.iter().map(|(store, _)| {
        let of_switches = ["late", "other_incarnation", "stale_acks"];
        let known = reasons.iter().filter(|reason| !of_switches.contains(reason));
        (store.to_string(), known.map(|reason| lab.store_counter(store, reason)).sum())
    });
    switches.chain(stores).collect()
}

/// Sends the messages; every node must then have refused just as many more, for the given reasons,
/// as were sent to it.
fn all_are_counted(
    lab: &TestLab,
    what: &str,
    from: &Raw,
    messages: &[Message5407],
    reasons: &[&str],
) {
    all_sent_are_counted(lab, what, messages, reasons, || from.send_all(messages));
}

fn all_sent_are_counted(
    lab: &TestLab,
    what: &str,
    messages: &[Message5407],
    reasons: &[&str],
    send: impl FnOnce(),
) {
    let before = refusals(lab, reasons);
    let mut expected = before.clone();
    for message in messages {
        let node = node_of(*message.destination.ip());
        *expected.get_mut(&node).unwrap_or_else(|| panic!("{}", message.destination)) += 1;
    }
    send();
    let mut now = before.clone();
    let deadline = Instant::now() + Duration::from_secs(10);
    while now != expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        now = refusals(lab, reasons);
    }
    let sent: BTreeMap<_, _> =
        expected.iter().map(|(node, count)| (node, count - before[node])).collect();
    assert_eq!(now, expected, "{what}: {reasons:?}: sent {sent:?}, before {before:?}");
    println!("{what}: {} messages, counted as {}: {sent:?}", messages.len(), reasons.join(" or "));
}

fn node_of(address: Ipv4Addr) -> String {
    let store =
        |(node, at): (&str, &str)| at.starts_with(&format!("{address}:")).then(|| node.to_string());
    let switch = |(node, at): (&str, Ipv4Addr)| (at == address).then(|| node.to_string());
    STORES
        .into_iter()
        .find_map(store)
        .or_else(|| SWITCHES.into_iter().find_map(switch))
        .unwrap_or_default()
}

fn is_switch(address: Ipv4Addr) -> bool {
    SWITCHES.iter().any(|(_, switch)| *switch == address)
}

/// A switch's records on their way to a head.
fn is_first_batch(message: &Message5407) -> bool {
    message.batch_type() == Some(BatchType::Batch) && is_switch(*message.source.ip())
}

fn is_batch_ack(message: &Message5407) -> bool {
    message.batch_type() == Some(BatchType::BatchAck)
}

/// Everything that a host can make up or has seen, but not the secret, from `host` to all
/// `targets`.
fn forge(
    lab: &TestLab,
    random: &mut Random,
    host: &str,
    genuine: &[Message5407],
    targets: &[Ipv4Addr],
) {
    let own: Ipv4Addr = if host == "inside" { INSIDE } else { OUTSIDE }.parse().expect("address");
    let raw = Raw::open(lab, host);
    let known =
        SecretsFile::load(&lab::Lab::open(&lab.name).expect("lab").dir().join("fabric.secrets"))
            .expect("secrets");
    let genuine: Vec<_> =
        genuine.iter().filter(|it| targets.contains(it.destination.ip())).cloned().collect();
    let of_all = some_of_each(&genuine, 40);
    // From outside a packet comes by a switch, which drops what says that it is from itself
    // (`martian_source`). Which switch that is, ECMP says.
    let may_come = |it: &Message5407| host == "inside" || !is_switch(*it.source.ip());
    let genuine: Vec<_> = genuine.into_iter().filter(may_come).collect();
    let some = some_of_each(&genuine, 40);
    let not_genuine = ["malformed", "bad_tag"];
    all_are_counted(
        lab,
        &format!("{host}: random"),
        &raw,
        &random_messages(random, own, targets, 300),
        &not_genuine,
    );
    all_are_counted(
        lab,
        &format!("{host}: truncated"),
        &raw,
        &truncated(random, &some),
        &not_genuine,
    );
    all_are_counted(
        lab,
        &format!("{host}: a bit flipped"),
        &raw,
        &flipped(random, &some),
        &not_genuine,
    );
    let other = of_another_secret(random, &some, known.ring());
    all_are_counted(lab, &format!("{host}: another secret"), &raw, &other, &["bad_tag"]);
    all_are_counted(
        lab,
        &format!("{host}: replayed from its own address"),
        &raw,
        &from_address(&of_all, own),
        &["bad_tag"],
    );
    let replies: Vec<_> = genuine.iter().filter(|it| it.is_reply()).cloned().collect();
    all_are_counted(
        lab,
        &format!("{host}: late replies"),
        &raw,
        &some_of_each(&replies, 100),
        &["late"],
    );
    // Genuine as they are, but no message has options: fresh ones would be refused, too. (A store's
    // kernel takes options off before the store sees the message.)
    let (what, with_options) = (format!("{host}: with IPv4 options"), some_of_each(&replies, 10));
    let send = || with_options.iter().for_each(|message| raw.send_with(message, &[1, 1, 1, 0]));
    all_sent_are_counted(lab, &what, &with_options, &["malformed"], send);
    let acks: Vec<_> = genuine.iter().filter(|it| is_batch_ack(it)).cloned().collect();
    if !acks.is_empty() {
        let (what, some) = (format!("{host}: late answers to batches"), some_of_each(&acks, 100));
        all_are_counted(lab, &what, &raw, &some, &["stale_acks"]);
    }
    let requests = |it: &&Message5407| it.is_request() || is_first_batch(it);
    let requests: Vec<_> = genuine.iter().filter(requests).cloned().collect();
    all_are_counted(
        lab,
        &format!("{host}: late requests"),
        &raw,
        &some_of_each(&requests, 100),
        &["replayed"],
    );
    // What the stores say to each other repeats itself anyway: each says again and again what it
    // has. It is counted (`chain_duplicates` and others), but not one by one.
    let chain: Vec<_> = genuine
        .iter()
        .filter(|it| it.message_type().is_none() && !it.is_control() && !is_batch_ack(it))
        .filter(|it| !is_first_batch(it))
        .cloned()
        .collect();
    raw.send_all(&some_of_each(&chain, 100));
}

const CONTROLLER: SocketAddrV4 =
    SocketAddrV4::new(Ipv4Addr::new(10, 2, 9, 10), wire::CONTROLLER_PORT);

/// What the controller counted under some names, all together.
fn controller_counts(lab: &TestLab, names: &[&str]) -> u64 {
    let text = lab.metrics("controller");
    let count = |name: &&str| {
        let head = format!("stateplane_controller_{name}_total ");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(&head))
            .unwrap_or_else(|| panic!("{name}: {text}"));
        value.parse::<u64>().expect("a number")
    };
    names.iter().map(count).sum()
}

/// The same to the controller: reports that would have it take a server for dead, or for alive.
fn forge_reports(lab: &TestLab, random: &mut Random, genuine: &[Message5407]) {
    let own: Ipv4Addr = INSIDE.parse().expect("address");
    let raw = Raw::open(lab, "inside");
    let reports: Vec<_> =
        genuine.iter().filter(|it| it.destination == CONTROLLER).take(60).cloned().collect();
    assert!(reports.len() == 60, "{} reports", reports.len());
    let chains = || {
        let (binary, dir) = (
            env!("CARGO_BIN_EXE_stateplane"),
            lab::Lab::open(&lab.name).expect("lab").dir().to_owned(),
        );
        let secrets = dir.join("fabric.secrets");
        let command = format!(
            "{binary} controller status --address {CONTROLLER} --secrets {} --json",
            secrets.display()
        );
        let status: Value =
            serde_json::from_str(&lab.must_run("controller", &command)).expect("JSON");
        let chain =
            |shard: &Value| (shard["shard"].clone(), shard["view"].clone(), shard["chain"].clone());
        let chains: Vec<_> =
            status["shards"].as_array().expect("shards").iter().map(chain).collect();
        (status["version"].clone(), chains)
    };
    let before = chains();
    let to_controller = |message: Message5407| Message5407 { destination: CONTROLLER, ..message };
    let random_ones = random_messages(random, own, &[*CONTROLLER.ip()], 300)
        .into_iter()
        .map(to_controller)
        .collect();
    let mut strange = reports.clone();
    for (n, report) in strange.iter_mut().enumerate() {
        let secret = Secret(std::array::from_fn(|_| random.next() as u8));
        let ring = KeyRing::new((n % 4) as u8, secret).expect("an id below 4");
        assert!(ring.sign(&mut report.payload, *report.source.ip(), *report.destination.ip()));
    }
    let not_genuine: &[&str] = &["malformed", "bad_tag"];
    let attempts: [(&str, Vec<Message5407>, &[&str]); 6] = [
        ("random", random_ones, not_genuine),
        ("truncated", truncated(random, &reports), not_genuine),
        ("a bit flipped", flipped(random, &reports), not_genuine),
        ("another secret", strange, &["bad_tag"]),
        ("replayed from its own address", from_address(&reports, own), &["bad_tag"]),
        ("replayed", reports, &["reports_old"]),
    ];
    for (what, messages, names) in attempts {
        let expected = controller_counts(lab, names) + messages.len() as u64;
        raw.send_all(&messages);
        wait_for(&format!("the controller counts {what}"), || {
            controller_counts(lab, names) >= expected
        });
        assert_eq!(controller_counts(lab, names), expected, "{what}: {names:?}");
        println!(
            "controller: {what}: {} messages, counted as {}",
            messages.len(),
            names.join(" or ")
        );
    }
    assert_eq!(chains(), before, "the chains changed");
}

/// How many answers to batches a switch got, and how many it found stale. (Answers to what was sent
/// again are so without a forger's help.)
fn answers_to_batches(lab: &TestLab, genuine: &[Message5407], node: &str) -> (u64, u64) {
    let to = |it: &&Message5407| is_batch_ack(it) && node_of(*it.destination.ip()) == node;
    match genuine.iter().filter(to).count() as u64 {
        0 => (0, 0),
        acks => (acks, acks.min(refusals(lab, &["stale_acks"])[node])),
    }
}

fn attack(test: &str, file: &str, settings: &[&str], outside_to_stores: bool) {
    if skip() {
        return;
    }
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(u64::from(std::process::id()));
    println!("SEED={seed}");
    let mut random = Random(seed);
    let lab = TestLab::up(test, file, settings);
    let prefix = if test == "forged-nat" { "203.0.113.0/28" } else { "10.1.0.0/24" };
    wait_for("both switches are used", || lab.both_used(prefix));

    // Each message is replayed at once, while flows begin, go on, and move to and fro.
    let before = refusals(&lab, &["replayed", "late"]);
    let wire = Wire::start(&lab);
    let mut connections = Connections::open(&lab, tcp_echo(&lab, 8000), 20);
    let mut numbered = Numbered::open(&lab);
    let came = numbered.send(50);
    assert_eq!(came, 50 * FLOWS, "lost although nothing failed");
    for state in ["down", "up"] {
        let recalled = |lab: &TestLab| {
            SWITCHES.iter().map(|(switch, _)| lab.event(switch, "recalled")).sum::<u64>()
        };
        let recalled_before = recalled(&lab);
        lab.link(state, "core", "s1");
        wait_for("flows are recalled", || {
            numbered.send(5);
            recalled(&lab) > recalled_before
        });
        connections.all_answer("flows moved");
    }
    wait_for("both switches are used again", || lab.both_used(prefix));
    connections.all_answer("all over");
    assert!(numbered.send(20) > 0);
    numbered.none_came_twice();
    let state = State::settled(&lab);
    let genuine = wire.finish();
    let types: HashSet<_> = genuine.iter().filter_map(Message5407::message_type).collect();
    println!("{} messages of the types {types:?}", genuine.len());
    use MessageType::{
        Heartbeat, HeartbeatAck, LeaseGrant, LeaseRequest, Recall, Release, ReleaseAck, Update,
        UpdateAck,
    };
    for needed in [LeaseRequest, Heartbeat, Release, LeaseGrant, HeartbeatAck, Recall, ReleaseAck] {
        assert!(types.contains(&needed), "no {needed:?} was seen");
    }
    if test == "forged-counter" {
        assert!(types.contains(&Update) && types.contains(&UpdateAck), "no update was seen");
    }
    if test == "forged-batch" {
        for needed in [BatchType::Batch, BatchType::BatchAck] {
            let seen = genuine.iter().any(|it| it.batch_type() == Some(needed));
            assert!(seen, "no {needed:?} was seen");
        }
    }
    let after = refusals(&lab, &["replayed", "late"]);
    let replayed = |node: &str| after[node] - before[node];
    let to = |node: &str| {
        genuine
            .iter()
            .filter(|it| it.message_type().is_some() || is_first_batch(it))
            .filter(|it| node_of(*it.destination.ip()) == node)
            .count()
    };
    for node in SWITCHES.iter().map(|(node, _)| *node).chain(STORES.iter().map(|(node, _)| *node)) {
        println!("replayed at once: {} to {node}, {} refused there", to(node), replayed(node));
        // One of the two is refused, whichever comes first; unless one of them got lost while the
        // link was cut.
        let refused = replayed(node);
        assert!(refused <= to(node) as u64, "{node}");
        let (acks, stale) = answers_to_batches(&lab, &genuine, node);
        println!("and {acks} answers to batches, {stale} refused there");
        assert!((refused + stale) * 50 >= (to(node) as u64 + acks) * 49, "{node}");
    }

    // Nobody sends: from here on nothing may change.
    let quiet = Instant::now();
    wait_for("what was captured is older than a second", || {
        quiet.elapsed() > Duration::from_millis(1_100)
    });
    let mut targets: Vec<Ipv4Addr> = SWITCHES.iter().map(|(_, address)| *address).collect();
    targets.extend(
        STORES.iter().map(|(_, at)| at.parse::<SocketAddrV4>().expect("address").ip().to_owned()),
    );
    forge(&lab, &mut random, "inside", &genuine, &targets);
    forge_reports(&lab, &mut random, &genuine);
    if outside_to_stores {
        // The core router keeps the outside away from these; the switches and stores must not count
        // on it.
        lab.must_run("core", "ip rule del iif outside to 10.0.0.0/8 prohibit");
        lab.must_run("outside", "ip route add 10.0.0.0/8 via 198.51.100.1");
        forge(&lab, &mut random, "outside", &genuine, &targets);
    } else {
        // Towards the stores they would be packets of a flow like any other, and counted by the
        // program.
        forge(&lab, &mut random, "outside", &genuine, &targets[..2]);
    }
    assert_eq!(State::settled(&lab), state);
    connections.all_answer("the forger was here");
    assert_eq!(numbered.send(20), 20 * FLOWS);
    numbered.none_came_twice();

    earlier_life(&lab, &genuine, &mut numbered);
    connections.all_answer("the forger was here twice");
    assert_eq!(numbered.send(20), 20 * FLOWS);
    numbered.none_came_twice();
    lab.down();
}

/// What a switch once sent and got brings nothing back after it was restarted, empty.
fn earlier_life(lab: &TestLab, genuine: &[Message5407], numbered: &mut Numbered) {
    lab.fail("s1");
    lab.restore("s1");
    wait_for("the new s1 has flows", || {
        numbered.send(2);
        lab.event("s1", "grants") > 0
    });
    let state = State::settled(lab);
    let raw = Raw::open(lab, "inside");
    let s1 = SWITCHES[0].1;
    let replies =
        |it: &&Message5407| (it.is_reply() || is_batch_ack(it)) && *it.destination.ip() == s1;
    let replies: Vec<_> = genuine.iter().filter(replies).cloned().collect();
    all_are_counted(
        lab,
        "replies to an earlier life",
        &raw,
        &some_of_each(&replies, 100),
        &["other_incarnation"],
    );
    let requests =
        |it: &&Message5407| (it.is_request() || is_first_batch(it)) && *it.source.ip() == s1;
    let requests: Vec<_> = genuine.iter().filter(requests).cloned().collect();
    let reasons = ["replayed", "old_incarnation"];
    all_are_counted(
        lab,
        "requests of an earlier life",
        &raw,
        &some_of_each(&requests, 100),
        &reasons,
    );
    assert_eq!(State::settled(lab), state);
}

/// A host behind a port that is not `fabric` replays the stores' answers at once, with good tags,
/// before the answers can be too late: none is taken.
#[test]
fn a_port_that_is_not_fabric_takes_no_message() {
    if skip() {
        return;
    }
    let lab = TestLab::up("forged-edge", "nat.toml", &["--set", "core_fabric=false"]);
    wait_for("both switches are used", || lab.both_used("203.0.113.0/28"));
    // The core router would keep the outside away: a switch must not count on it.
    lab.must_run("core", "ip rule del iif outside to 10.0.0.0/8 prohibit");
    lab.must_run("outside", "ip route add 10.0.0.0/8 via 198.51.100.1");
    let wire = Wire::start_from(&lab, "outside");
    let mut connections = Connections::open(&lab, tcp_echo(&lab, 8000), 20);
    let mut numbered = Numbered::open(&lab);
    assert_eq!(numbered.send(50), 50 * FLOWS, "lost although nothing failed");
    let counted =
        |name: &str| SWITCHES.iter().map(|(switch, _)| lab.event(switch, name)).sum::<u64>();
    let state = State::settled(&lab);
    let replies = wire.finish().into_iter().filter(Message5407::is_reply).count() as u64;
    assert!(replies > 0, "no answer passed");
    wait_for("every copy is counted", || counted("not_fabric") >= replies);
    println!("{replies} answers replayed at an edge port, not_fabric {}", counted("not_fabric"));
    assert_eq!((counted("not_fabric"), counted("replayed"), counted("bad_tag")), (replies, 0, 0));
    // Made up ones, too, are dropped before anything looks at them.
    let targets = SWITCHES.map(|(_, address)| address);
    let own = OUTSIDE.parse().expect("address");
    let random = random_messages(&mut Random(1), own, &targets, 100);
    Raw::open(&lab, "outside").send_all(&random);
    wait_for("those are counted", || counted("not_fabric") >= replies + 100);
    assert_eq!((counted("not_fabric"), counted("malformed")), (replies + 100, 0));
    assert_eq!(State::settled(&lab), state);
    connections.all_answer("the forger was here");
    numbered.none_came_twice();
    lab.down();
}

#[test]
fn a_nat_is_not_moved_by_forged_or_replayed_messages() {
    attack("forged-nat", "nat.toml", &[], true);
}

/// Where each packet waits in a message of its own.
#[test]
fn counts_are_not_moved_by_forged_or_replayed_messages() {
    attack("forged-counter", "flow_counter.toml", &["--set", "commit=wrap"], false);
}

/// Where packets wait in the switch.
#[test]
fn counts_are_not_moved_by_forged_or_replayed_batches() {
    attack("forged-batch", "flow_counter.toml", &["--set", "commit=batch"], false);
}
