//! Real server processes and a real controller on loopback, real UDP, and a small client: grants,
//! updates and acknowledgements through the chain, status, metrics, and SIGKILL to each of them
//! while updates are on their way.
//!
//! Waits for timers.
//!
//! This file has its own `main`: run with a word it runs the tests that have it in their names, run
//! with `serve FILE` it is a server, with `control FILE` a controller.

mod chain;
mod etcd;
mod lost_database;
mod moves;
mod service;
mod switch;
mod workers;

use chain::{Chain, Plan};
use controller::shell::Status;
use etcd::Etcd;
use secrets::SecretsFile;
use state_protocol::{Flags, Message, MessageType};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use switch::Switch;

const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file] = arguments.as_slice() {
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
        let file = Path::new(file);
        match word.as_str() {
            "serve" => {
                state_store::shell::run(state_store::config::Config::load(file).unwrap()).unwrap()
            }
            "control" => {
                controller::shell::run(&controller::config::Config::load(file).unwrap()).unwrap()
            }
            _ => return ExitCode::from(2),
        }
        return ExitCode::SUCCESS;
    }
    for (name, test) in [
        ("chain_answers_from_the_tail", chain_answers_from_the_tail as fn()),
        ("secrets_change_while_running", secrets_change_while_running),
        ("leases_move_between_switches", leases_move_between_switches),
        (
            "servers_die_and_come_back_and_nothing_is_lost",
            servers_die_and_come_back_and_nothing_is_lost,
        ),
        ("the_chain_goes_on_without_a_controller", the_chain_goes_on_without_a_controller),
        ("when_all_are_gone_the_shard_begins_anew", when_all_are_gone_the_shard_begins_anew),
        (
            "all_lose_power_and_nothing_acknowledged_is_lost",
            all_lose_power_and_nothing_acknowledged_is_lost,
        ),
        ("servers_are_added_and_shards_move_while_they_are_updated", moves::servers_are_added),
        ("a_lost_database_is_made_anew", lost_database::a_lost_database_is_made_anew),
        (
            "workers_die_together_and_nothing_is_lost",
            workers::workers_die_together_and_nothing_is_lost,
        ),
        ("two_controllers_elect_through_etcd", two_controllers_elect_through_etcd),
        ("a_controller_tells_its_service_manager", service::a_controller_tells_its_service_manager),
        ("etcd_with_tls_and_client_certificates", etcd::with_tls_and_client_certificates),
        ("etcd_with_user_and_password", etcd::with_user_and_password),
        (
            "a_leader_without_etcd_stops_before_another_leads",
            etcd::a_leader_without_etcd_stops_before_another_leads,
        ),
        (
            "a_leader_that_stops_gives_its_lease_back_to_etcd",
            etcd::a_leader_that_stops_gives_its_lease_back,
        ),
    ] {
        // As with other tests: `cargo test --test processes -- etcd` runs those with that in their
        // names.
        if arguments
            .first()
            .is_some_and(|wanted| !wanted.starts_with('-') && !name.contains(wanted.as_str()))
        {
            continue;
        }
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn chain_answers_from_the_tail() {
    let chain = Chain::start(3);
    let switch = Switch::new(&chain, 1);
    let packet = vec![0xab; 1_514];
    let lease =
        Message { packet: &packet, ..switch.request(MessageType::LeaseRequest, 1, b"flow") };
    let answer = switch.ask(&lease);
    let grant = answer.message();
    assert_eq!(
        (grant.message_type, grant.seq, grant.lease_us),
        (MessageType::LeaseGrant, 0, 100_000)
    );
    assert_eq!((grant.value, grant.packet), (&[0; 8][..], &packet[..]));

    for seq in 1..=200u64 {
        let value = seq.to_be_bytes();
        let update = switch.request(MessageType::Update, 1, b"flow");
        let answer = switch.ask(&Message {
            epoch: grant.epoch,
            seq,
            value: &value,
            packet: b"out",
            ..update
        });
        let ack = answer.message();
        assert_eq!(
            (ack.message_type, ack.seq, ack.packet),
            (MessageType::UpdateAck, seq, &b"out"[..])
        );
    }
    let read = switch.request(MessageType::ReadCommit, 1, b"flow");
    let answer = switch.ask(&Message { epoch: grant.epoch, seq: 200, packet: b"read", ..read });
    assert_eq!(
        (answer.message().message_type, answer.message().seq),
        (MessageType::UpdateAck, 200)
    );

    let key = [10, 0, 0, 1, 8, 8, 8, 8, 0x30, 0x39, 0, 53, 17];
    let answer = switch.ask(&switch.request(MessageType::LeaseRequest, 2, &key));
    assert_eq!(answer.message().value, [203, 0, 113, 1, 0x30, 0x39], "port preserved");
    let reverse = [8, 8, 8, 8, 203, 0, 113, 1, 0, 53, 0x30, 0x39, 17];
    let back =
        Message { flags: Flags::NONE, ..switch.request(MessageType::LeaseRequest, 2, &reverse) };
    assert_eq!(switch.ask(&back).message().value, [10, 0, 0, 1, 0x30, 0x39]);
    let unknown =
        Message { flags: Flags::NONE, ..switch.request(MessageType::LeaseRequest, 1, b"none") };
    assert_eq!(switch.ask(&unknown).message().message_type, MessageType::Absent);

    for (place, role) in ["head", "middle", "tail"].into_iter().enumerate() {
        let at = chain.place_of(place);
        let status = chain
            .await_status(at, |status| status.replicas[0].committed == status.replicas[0].index);
        assert_eq!(
            (status.replicas[0].role.as_str(), status.records, status.replicas[0].index),
            (role, 3, 207)
        );
        let text = scrape(chain.metrics[at], "/metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("stateplane_store_records{object=\"nat\"} 2\n"), "{text}");
    }
    assert!(scrape(chain.metrics[0], "/").starts_with("HTTP/1.1 404 "));
    switch.socket.send_to(b"SP\x02\x03 too short", switch.head).unwrap();
    chain.await_status(chain.place_of(0), |status| status.malformed == 1);
    chain.stop();
}

fn scrape(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: store\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Other secrets do not look like an absent controller: neither to the one that asks nor in the
/// log.
fn a_stranger_is_told_of(chain: &Chain) {
    let strangers = wire::KeyRing::new(1, wire::Secret([9; wire::SECRET_BYTES])).unwrap();
    let wait = Duration::from_millis(300);
    let asked = state_store::shell::query::<controller::shell::Status>(
        chain.controller_address,
        &strangers,
        wait,
    );
    let message = asked.unwrap_err().to_string();
    assert!(message.contains("different secrets"), "{message}");
    // The answer may arrive before the line is in the file.
    etcd::await_log(chain, "log-controller", &["not genuine"]);
    let log = chain.controller_log("log-controller");
    let lines = etcd::lines_with(&log, &["not genuine"]);
    assert!(lines.len() == 1 && lines[0].contains("are the secrets the same there?"), "{log}");
    assert!(lines[0].contains("127.0.0.1"), "names the sender: {log}");
}

fn secrets_change_while_running() {
    let chain = Chain::start(3);
    let mut switch = Switch::new(&chain, 1);
    let path = chain.directory.path().join("secrets.toml");
    let mut file = SecretsFile::load(&path).unwrap();
    let tell = |logged: &str| {
        for (at, server) in chain.servers.iter().enumerate() {
            let times = chain.log(at).matches(logged).count();
            let pid = nix::unistd::Pid::from_raw(server.id() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
            // A server that is asked for its status turns to its signals too.
            chain.await_status(at, |_| chain.log(at).matches(logged).count() > times);
        }
    };
    a_stranger_is_told_of(&chain);
    let heard = |switch: &Switch| {
        switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().message_type
    };
    assert_eq!(heard(&switch), MessageType::LeaseGrant);
    let new = file.add().unwrap();
    file.save().unwrap();
    tell("secrets read again");
    switch.keys = file.ring().clone();
    assert!(switch.keys.send_with(new));
    assert_eq!(heard(&switch), MessageType::LeaseGrant, "the new one is accepted");
    // A file that cannot be used changes nothing.
    std::fs::write(&path, "send = 7").unwrap();
    tell("the secrets before stay in use");
    assert_eq!(heard(&switch), MessageType::LeaseGrant);
    chain.stop();
}

fn leases_move_between_switches() {
    let chain = Chain::start(3);
    let (one, two) = (Switch::new(&chain, 1), Switch::new(&chain, 2));
    let answer = one.ask(&one.request(MessageType::LeaseRequest, 1, b"flow"));
    let granted = Instant::now();
    let first = answer.message();
    let value = 5u64.to_be_bytes();
    let update = Message {
        epoch: first.epoch,
        seq: 1,
        value: &value,
        ..one.request(MessageType::Update, 1, b"flow")
    };
    assert_eq!(one.ask(&update).message().message_type, MessageType::UpdateAck);

    let answer = two
        .ask(&Message { packet: b"parked", ..two.request(MessageType::LeaseRequest, 1, b"flow") });
    assert!(granted.elapsed() >= Duration::from_millis(100), "the lease is waited for");
    let second = answer.message();
    // The first switch neither sent heartbeats nor heard the recall (in its tenure there is none).
    assert_eq!(
        (second.message_type, second.epoch, second.seq),
        (MessageType::LeaseGrant, first.epoch + 1, 1)
    );
    assert_eq!((second.value, second.packet), (&value[..], &b"parked"[..]));

    let late = Message { seq: 2, ..update };
    let answer = one.ask(&late);
    assert_eq!(
        (answer.message().message_type, answer.message().epoch),
        (MessageType::Refused, first.epoch)
    );
    chain.stop();
}

/// Updates one flow until every update up to `until` is acknowledged, as the packet generator does:
/// again and again, to whoever the controller says is the head. Returns when an acknowledgement
/// that was new came.
fn update_until(
    chain: &Chain,
    switch: &mut Switch,
    epoch: u32,
    from: u64,
    until: u64,
) -> Vec<Instant> {
    let mut acked = Vec::new();
    let start = Instant::now();
    let mut seq = from;
    switch.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut buffer = vec![0; 65_536];
    while seq <= until {
        assert!(start.elapsed() < PATIENCE, "update {seq} is never acknowledged");
        if chain.controller.is_some() {
            switch.head = chain.addresses[chain.place_of(0)];
        }
        let value = seq.to_be_bytes();
        switch.send(&Message {
            epoch,
            seq,
            value: &value,
            ..switch.request(MessageType::Update, 1, b"flow")
        });
        while let Ok((count, _)) = switch.socket.recv_from(&mut buffer) {
            let reply = Message::decode(&buffer[..count]).unwrap();
            assert_ne!(reply.message_type, MessageType::Refused, "the owner is refused");
            if reply.message_type == MessageType::UpdateAck && reply.seq >= seq {
                acked.push(Instant::now());
                seq = reply.seq + 1;
                break;
            }
        }
    }
    acked
}

/// Takes the grant again and asserts that all `updates` are in it. (The flow is the switch's, so
/// its epoch stays.)
fn assert_nothing_lost(chain: &Chain, switch: &mut Switch, epoch: u32, updates: u64) {
    switch.head = chain.addresses[chain.place_of(0)];
    switch.tail = chain.addresses[chain.place_of(usize::MAX)];
    switch.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = vec![0; 65_536];
    while switch.socket.recv_from(&mut buffer).is_ok() {} // answers that came twice
    let answer = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow"));
    let grant = answer.message();
    assert_eq!((grant.epoch, grant.seq, grant.value), (epoch, updates, &updates.to_be_bytes()[..]));
}

fn servers_die_and_come_back_and_nothing_is_lost() {
    let mut chain = Chain::start(3);
    let mut switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    let mut updates = 0;
    // Twice round: every server dies, at every place.
    for round in 0..6 {
        let (place, name) = [(0, "head"), (1, "middle"), (2, "tail")][round % 3];
        update_until(&chain, &mut switch, epoch, updates + 1, updates + 100);
        let victim = chain.place_of(place);
        chain.kill(victim);
        let killed = Instant::now();
        let acked = update_until(&chain, &mut switch, epoch, updates + 101, updates + 200);
        println!(
            "{name} killed: served again after {} ms",
            acked[0].duration_since(killed).as_millis()
        );
        chain.servers[victim] = chain.spawn(victim);
        // It catches up while updates go on.
        update_until(&chain, &mut switch, epoch, updates + 201, updates + 300);
        updates += 300;
        chain.settle();
        println!(
            "returned, caught up and joined {} ms after the kill",
            killed.elapsed().as_millis()
        );
        assert_nothing_lost(&chain, &mut switch, epoch, updates);
    }
    // Two of three at once.
    for place in [2, 0] {
        let victim = chain.place_of(place);
        chain.kill(victim);
    }
    update_until(&chain, &mut switch, epoch, updates + 1, updates + 100);
    assert_eq!(chain.control().shards[0].chain.len(), 1);
    assert_nothing_lost(&chain, &mut switch, epoch, updates + 100);
}

fn the_chain_goes_on_without_a_controller() {
    let mut chain = Chain::start(4);
    let mut switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    let victim = chain.place_of(1);
    chain.kill_controller();
    update_until(&chain, &mut switch, epoch, 1, 100);
    // What happened while it was away it sees to when it is back; the fourth server takes the dead
    // one's place.
    chain.kill(victim);
    chain.start_controller();
    update_until(&chain, &mut switch, epoch, 101, 200);
    let status = chain.settle();
    assert!(!status.shards[0].chain.contains(&chain.addresses[victim]));
    assert_nothing_lost(&chain, &mut switch, epoch, 200);
}

fn when_all_are_gone_the_shard_begins_anew() {
    let mut chain = Chain::start(3);
    let switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    for at in 0..3 {
        chain.kill(at);
    }
    for at in 0..3 {
        chain.servers[at] = chain.spawn(at);
    }
    let status = chain.await_control(|status| status.shards[0].view > 1 && status.settled);
    assert_eq!(status.state_lost, [0], "it is told");
    let log = chain.controller_log("log-controller");
    let told: Vec<_> = log.lines().filter(|line| line.contains("StateLost")).collect();
    assert!(told.len() == 1 && told[0].contains("ERROR") && told[0].contains("LOST"), "{told:?}");
    let head = chain.place_of(0);
    chain.await_status(head, |status| status.replicas[0].state == "serving");
    let switch = Switch::new(&chain, 1);
    let again = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow"));
    assert!(again.message().epoch > epoch, "epochs of the lost chain are not given again");
    chain.stop();
}

/// SIGKILL to all servers and the controller at once, again and again, while updates are on their
/// way; they start again with what is on their disks. (What the kernel would lose with the power is
/// what the log has not synchronised; the simulation in state-store loses that too.)
fn all_lose_power_and_nothing_acknowledged_is_lost() {
    let mut chain = Chain::start_as(&Plan {
        servers: 3,
        running: 3,
        shards: 1,
        etcd: Etcd::None,
        logs: true,
        workers: 1,
    });
    let mut switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    let mut acked = 0;
    for round in 0..4u64 {
        update_until(&chain, &mut switch, epoch, acked + 1, acked + 100);
        acked += 100;
        for seq in acked + 1..=acked + 20 {
            let value = seq.to_be_bytes();
            switch.send(&Message {
                epoch,
                seq,
                value: &value,
                ..switch.request(MessageType::Update, 1, b"flow")
            });
        }
        // In the last round one server's disk is gone too.
        let lost = (round == 3).then(|| chain.place_of(0));
        let before = chain.control().shards[0].view;
        (0..3).for_each(|at| chain.kill(at));
        chain.kill_controller();
        let killed = Instant::now();
        if let Some(lost) = lost {
            std::fs::remove_dir_all(chain.directory.path().join(format!("wal{lost}"))).unwrap();
        }
        chain.start_controller();
        for at in 0..3 {
            chain.servers[at] = chain.spawn(at);
        }
        // The server without a disk is another one: it loses its place, and joins.
        chain.await_control(|status| {
            status.settled && (lost.is_none() || status.shards[0].view > before)
        });
        let head = chain.place_of(0);
        chain.await_status(head, |status| {
            status.replicas.first().is_some_and(|shard| shard.state == "serving")
        });
        println!("all killed: serving again after {} ms", killed.elapsed().as_millis());
        let mut buffer = vec![0; 65_536];
        switch.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        while switch.socket.recv_from(&mut buffer).is_ok() {} // answers from before
        (switch.head, switch.tail) =
            (chain.addresses[head], chain.addresses[chain.place_of(usize::MAX)]);
        let answer = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow"));
        let grant = answer.message();
        assert_eq!(grant.epoch, epoch, "the flow is still the switch's");
        assert!(
            grant.seq >= acked && grant.value == grant.seq.to_be_bytes(),
            "{acked} acknowledged, {} there",
            grant.seq
        );
        acked = grant.seq;
    }
    chain.stop();
}

fn two_controllers_elect_through_etcd() {
    let mut chain = Chain::start_as(&Plan {
        servers: 3,
        running: 3,
        shards: 1,
        etcd: Etcd::Plain,
        logs: false,
        workers: 1,
    });
    let mut switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    update_until(&chain, &mut switch, epoch, 1, 100);
    let (_, second) = chain.etcd.unwrap();
    let ask =
        |address| state_store::shell::query::<Status>(address, &chain.keys, PATIENCE).unwrap();
    assert!(ask(second).leading != ask(chain.controller_address).leading, "one decides");
    // The first dies, whichever it is; then a server. The second, now alone, repairs the chain from
    // what etcd has.
    let victim = chain.place_of(1);
    chain.kill_controller();
    chain.controller_address = second;
    chain.kill(victim);
    let died = Instant::now();
    chain.await_control(|status| {
        status.leading && status.shards.first().is_some_and(|shard| shard.chain.len() == 2)
    });
    println!(
        "controller and server killed: chain repaired by the other controller after {} ms",
        died.elapsed().as_millis()
    );
    update_until(&chain, &mut switch, epoch, 101, 200);
    assert_nothing_lost(&chain, &mut switch, epoch, 200);
    for log in ["log-controller", "log-second"] {
        let log = chain.controller_log(log);
        assert!(!log.contains("newer views"), "nobody's database was old: {log}");
    }
    etcd_loses_its_data(&mut chain);
}

/// The views are deleted under a controller that decides: it says so, also while there is nothing
/// to decide, and does not say that it decided what it could not write.
fn etcd_loses_its_data(chain: &mut Chain) {
    let (etcd, _) = chain.etcd.unwrap();
    let decided = |chain: &Chain| chain.controller_log("log-second").matches("MembersLost").count();
    let before = decided(chain);
    etcd::delete_all(etcd);
    let told = chain.await_control(|status| status.cannot_decide.is_some());
    assert!(!told.settled && told.cannot_decide.unwrap().contains("stateplane controller rebuild"));
    let victim = chain.place_of(0);
    chain.kill(victim);
    // It wants to take the dead one out, and cannot.
    chain.await_control(|_| {
        chain.controller_log("log-second").contains("the database refuses a decision")
    });
    assert_eq!(decided(chain), before, "nothing was decided");
}
