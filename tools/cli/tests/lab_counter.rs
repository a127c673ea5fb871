//! Linearizable `set` over a real network: every packet of a flow takes the next count, on two
//! switches that die and return, with and without lost messages; and the asynchronous counter,
//! whose packets do not wait. Needs root. Waits for timers.

mod common;

use common::counting::{FLOWS, Receiver, Sender, check, held, held_by, number};
use common::{TestLab, one_at_a_time, skip, wait_for};

/// How many counted packets the switches have sent on.
fn numbered(lab: &TestLab, switch: &str) -> u64 {
    lab.counter(switch, "numbered")
}

fn moves(lab: &TestLab, switch: &str, packets: u64) {
    let before = numbered(lab, switch);
    wait_for(&format!("{switch} counts {packets} packets"), || {
        numbered(lab, switch) >= before + packets
    });
}

/// `stateplane state`: each flow has the count that its owner holds, on any server.
fn the_store_has_what_the_switches_hold(lab: &TestLab) {
    let held = held(lab);
    let by_switch = ["s1", "s2"].map(|switch| held_by(lab, switch));
    for (n, port) in held.keys().enumerate() {
        let found = lab.state(n % 3, "flow_counter.json", &format!("get source_port={port}"));
        let one =
            found.as_array().filter(|all| all.len() == 1).unwrap_or_else(|| panic!("{found}"));
        let Some(owner) = one[0]["owner"].as_u64() else { continue };
        let stored = number(one[0]["value"]["packets"].as_str().expect("text"));
        assert_eq!(Some(&stored), by_switch[owner as usize - 1].get(port), "{found}");
    }
    let list = |arguments: &str| {
        lab.state(0, "flow_counter.json", arguments).as_array().expect("a list").len()
    };
    let (all, by_owner) =
        (list("list --limit 1000"), ["1", "2"].map(|id| list(&format!("list --owner {id}"))));
    assert!(
        all >= held.len() && by_owner.iter().sum::<usize>() <= all && by_owner[0] > 0,
        "{all}: {by_owner:?}"
    );
}

fn count_over_a_failover(lab: &TestLab) {
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let receiver = Receiver::start(lab);
    let sender = Sender::start(lab);
    moves(lab, "s1", 500);
    moves(lab, "s2", 500);
    lab.fail("s1");
    moves(lab, "s2", 1500);
    lab.restore("s1");
    moves(lab, "s1", 1000);
    let sent = sender.finish();
    // What still waits for a lease or an acknowledgement comes through or is given up.
    let records = lab.equal_stores();
    let seen = receiver.finish();
    the_store_has_what_the_switches_hold(lab);
    assert!(records >= FLOWS as u64, "{records} records");
    check(lab, &sent, &seen);
    for switch in ["s1", "s2"] {
        assert!(lab.event(switch, "updates") > 0);
    }
}

fn drop_some_messages(lab: &TestLab) {
    // Two of a hundred messages of the state protocol, in each direction and between the stores.
    lab.must_run("tor", "nft add table ip lossy");
    lab.must_run("tor", "nft add chain ip lossy forward { type filter hook forward priority 0; }");
    lab.must_run(
        "tor",
        "nft add rule ip lossy forward udp dport 5407 numgen random mod 100 < 2 counter drop",
    );
}

fn some_messages_were_dropped(lab: &TestLab) {
    let lost = lab.must_run("tor", "nft list table ip lossy");
    assert!(!lost.contains("packets 0 "), "{lost}");
}

#[test]
fn every_packet_takes_the_next_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("count", "flow_counter.toml", &[]);
    count_over_a_failover(&lab);
    for switch in ["s1", "s2"] {
        assert!(lab.event(switch, "acks") > 0);
    }
    lab.down();
}

/// The same, while packets wait in the switches and lost messages cost no packets.
#[test]
fn packets_that_wait_in_the_switch_take_the_next_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("wait", "flow_counter.toml", &["--set", "commit=batch"]);
    the_loop_comes_back(&lab, "s2");
    drop_some_messages(&lab);
    count_over_a_failover(&lab);
    some_messages_were_dropped(&lab);
    for switch in ["s1", "s2"] {
        let [parked, batches, acked] =
            ["parked", "batches", "batches_acked"].map(|event| lab.commit_event(switch, event));
        assert!(parked > 0 && acked > 0 && acked <= batches, "{parked} {acked} {batches}");
    }
    let resent = |switch: &&str| lab.commit_event(switch, "batches_resent") > 0;
    assert!(["s1", "s2"].iter().any(resent), "no batch was sent again");
    lab.down();
}

/// What the programs of all stores have counted.
fn fast(lab: &TestLab, what: &str) -> u64 {
    let head = format!("stateplane_store_fast_path_total{{what=\"{what}\"}} ");
    let of = |store: &str| -> u64 {
        let text = lab.metrics(store);
        let value = text.lines().find_map(|line| line.strip_prefix(&head));
        value.unwrap_or_else(|| panic!("no {what} in {text}")).parse().expect("number")
    };
    ["store1", "store2", "store3"].into_iter().map(of).sum()
}

/// The same, where updates go through the chain in XDP on the stores.
#[test]
fn packets_that_wait_for_stores_in_xdp_take_the_next_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let settings = ["--set", "commit=batch", "--set", "fast_off="];
    let lab = TestLab::up("fast", "flow_counter.toml", &settings);
    drop_some_messages(&lab);
    count_over_a_failover(&lab);
    some_messages_were_dropped(&lab);
    let [answered, forwarded, records] =
        ["answered", "forwarded", "records"].map(|what| fast(&lab, what));
    println!("batches answered in XDP: {answered}, forwarded: {forwarded}; records: {records}");
    assert!(answered > 100 && forwarded >= answered && records >= answered + forwarded);
    lab.down();
}

/// Somebody removes the veth pair by which copies of frames come in: the agent makes it again.
fn the_loop_comes_back(lab: &TestLab, switch: &str) {
    let loops = || -> Vec<(String, u64)> {
        let text = lab.must_run(switch, "ip -json link show type veth");
        let links: serde_json::Value = serde_json::from_str(&text).expect("ip -json");
        let links = links.as_array().expect("links").iter().map(|link| {
            let name = link["ifname"].as_str().expect("a name").to_owned();
            (name, link["ifindex"].as_u64().expect("a number"))
        });
        // (The lab's own have a node's name.)
        links.filter(|(name, _)| name.len() == 13 && name.starts_with("sp")).collect()
    };
    let before = loops();
    assert_eq!(before.len(), 2, "the loop's ends");
    lab.must_run(switch, &format!("ip link delete {}", before[0].0));
    wait_for("the loop is there again", || {
        let now = loops();
        now.len() == 2 && now.iter().all(|it| !before.contains(it))
    });
}

/// The same, while each packet waits in a message of its own.
#[test]
fn lost_messages_cost_packets_but_no_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("loss", "flow_counter.toml", &["--set", "commit=wrap"]);
    drop_some_messages(&lab);
    count_over_a_failover(&lab);
    some_messages_were_dropped(&lab);
    assert!(["s1", "s2"].iter().any(|s| lab.event(s, "resent") > 0), "nothing was re-sent");
    lab.down();
}

/// More flows than a switch has room for, one packet each: what found no room does not stay its own
/// in the store.
#[test]
fn flows_that_found_no_room_are_nobodys_in_the_end() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up(
        "full",
        "flow_counter.toml",
        &["--set", "flows=16", "--set", "release_after_s=1"],
    );
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let socket =
        lab.netns("inside").run(|| std::net::UdpSocket::bind((common::INSIDE, 0))).expect("bind");
    for port in 20_000..20_200u16 {
        socket.send_to(&[0; 16], (common::OUTSIDE, port)).expect("send");
    }
    wait_for("the tables are full", || {
        ["s1", "s2"].iter().all(|switch| lab.event(switch, "flows_full") > 0)
    });
    let owned = || {
        let list =
            |id| lab.state(0, "flow_counter.json", &format!("list --limit 1000 --owner {id}"));
        ["1", "2"].iter().map(|id| list(id).as_array().expect("a list").len()).sum::<usize>()
    };
    let at_first = owned();
    assert!(at_first > 32, "{at_first} records for 32 places");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(40);
    while owned() > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "{} of {at_first} are somebody's still",
            owned()
        );
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    lab.down();
}

/// The count that the store has of a flow, 0 if it does not know it.
fn stored(lab: &TestLab, port: u16) -> u64 {
    let found = lab.state(0, "flow_counter.json", &format!("get source_port={port}"));
    let one = found.as_array().and_then(|all| all.first()).unwrap_or(&serde_json::Value::Null);
    one["value"]["packets"].as_str().map_or(0, number)
}

/// The generator sends an asynchronous object's updates: until none waits.
fn nothing_pending(lab: &TestLab, switches: &[&str]) {
    wait_for("no update waits", || {
        switches.iter().all(|switch| {
            let text = lab.metrics(switch);
            let pending =
                text.lines().find_map(|line| line.strip_prefix("stateplane_updates_pending "));
            pending.unwrap_or_else(|| panic!("no stateplane_updates_pending in {text}")) == "0"
        })
    });
}

/// RedPlane's Async-Counter: packets do not wait for their updates. A flow that moves between
/// living switches goes on exactly where it was; after a death no count that was stored is lost,
/// and those that were not may be given again.
#[test]
fn asynchronous_counts_move_exactly_and_survive_as_far_as_they_were_stored() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("async", "flow_counter.toml", &["--mode", "asynchronous"]);
    let directory = lab::Lab::open(&lab.name).expect("lab").dir().to_owned();
    let manifest = std::fs::read_to_string(directory.join("flow_counter.json")).expect("manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    assert_eq!(manifest["state_objects"][0]["settings"]["consistency"], "asynchronous");
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));

    let (receiver, sender) = (Receiver::start(&lab), Sender::start(&lab));
    moves(&lab, "s1", 500);
    moves(&lab, "s2", 500);
    let recalled = || lab.event("s1", "recalled") + lab.event("s2", "recalled");
    let before = recalled();
    lab.link("down", "core", "s1");
    moves(&lab, "s2", 1000);
    assert!(recalled() > before, "no flow was handed over");
    lab.link("up", "core", "s1");
    moves(&lab, "s1", 500);
    let sent = sender.finish();
    nothing_pending(&lab, &["s1", "s2"]);
    lab.equal_stores();
    let seen = receiver.finish();
    check(&lab, &sent, &seen);
    the_store_has_what_the_switches_hold(&lab);
    for switch in ["s1", "s2"] {
        let [updates, acks] = ["updates", "acks"].map(|event| lab.event(switch, event));
        assert!(
            updates == 0 && acks > 0,
            "{switch}: {updates} packets waited inside updates; {acks} acknowledged"
        );
    }

    let (receiver, sender) = (Receiver::start(&lab), Sender::start(&lab));
    moves(&lab, "s1", 500);
    moves(&lab, "s2", 500);
    let stored: Vec<(u16, u64)> =
        held(&lab).into_keys().map(|port| (port, stored(&lab, port))).collect();
    let failed_at = std::time::Instant::now();
    lab.fail("s1");
    moves(&lab, "s2", 1500);
    let sent = sender.finish();
    nothing_pending(&lab, &["s2"]);
    lab.equal_stores();
    let seen = receiver.finish();
    let of_these: Vec<&(u16, u64)> =
        stored.iter().filter(|(port, _)| sent.of_flow.contains_key(port)).collect();
    assert!(
        of_these.len() == FLOWS && of_these.iter().all(|(_, count)| *count > 0),
        "{of_these:?}"
    );
    for (port, stored) in of_these {
        let after: Vec<u64> = seen[port]
            .iter()
            .filter(|a| sent.at[a.number] > failed_at)
            .map(|a| u64::from(a.count))
            .collect();
        assert!(!after.is_empty(), "flow {port} did not go on");
        assert!(
            after.iter().all(|count| count > stored),
            "flow {port}: {stored} were stored, then {after:?}"
        );
    }
    lab.down();
}
