//! Store servers die, at each place of the chain, under traffic; so does the controller. No
//! connection breaks, no count is lost. Needs root. Waits for timers.

mod common;

use common::counting::{FLOWS, Receiver, Sender, check};
use common::{Connections, TestLab, one_at_a_time, skip, tcp_echo, wait_for};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections that are in use all the time.
struct Talk {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    thread: JoinHandle<Connections>,
}

impl Talk {
    fn start(mut connections: Connections) -> Talk {
        let (stop, exchanges) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, done) = (Arc::clone(&stop), Arc::clone(&exchanges));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                connections.all_answer("while servers die");
                done.fetch_add(1, Ordering::Relaxed);
                // About a hundred exchanges a second on each: traffic, not a load test.
                std::thread::sleep(Duration::from_millis(10));
            }
            connections
        });
        Talk { stop, exchanges, thread }
    }

    /// Waits until everybody has been answered `count` times more.
    fn goes_on(&self, count: u64) {
        let before = self.exchanges.load(Ordering::Relaxed);
        wait_for("the connections go on", || {
            self.thread.is_finished() || self.exchanges.load(Ordering::Relaxed) >= before + count
        });
    }

    fn finish(self) -> Connections {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no connection breaks")
    }
}

/// How long after `since` the first new connection that worked at once was begun. (One that meets
/// the gap loses its SYN, which TCP repeats after a second.)
fn new_connections_work(lab: &TestLab, to: SocketAddr, since: Instant) -> Duration {
    let patience = Duration::from_secs(10);
    loop {
        let begun = Instant::now();
        let soon = Duration::from_millis(200);
        let connected = lab.netns("inside").run(|| std::net::TcpStream::connect_timeout(&to, soon));
        match connected {
            Ok(_) => return begun - since,
            Err(error) => {
                assert!(since.elapsed() < patience, "no new connection for {patience:?}: {error}")
            }
        }
    }
}

fn settled(lab: &TestLab) {
    wait_for("the chain is complete", || {
        lab.controller().is_some_and(|status| status["settled"] == true)
    });
}

#[test]
fn no_connection_breaks_when_servers_and_the_controller_die() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    // One shard, so that every flow is in the chain that is hurt.
    let lab = TestLab::up("stores", "nat.toml", &["--set", "shards=1"]);
    wait_for("both switches are used", || lab.both_used("203.0.113.0/28"));
    settled(&lab);
    let echo = tcp_echo(&lab, 8000);
    let talk = Talk::start(Connections::open(&lab, echo, 20));
    let mut later = Vec::new();
    for (place, name) in ["head", "middle", "tail"].into_iter().enumerate() {
        talk.goes_on(20);
        let victim = lab.chain(0)[place];
        let killed = Instant::now();
        lab.kill_now(victim);
        let gap = new_connections_work(&lab, echo, killed);
        println!("{name} ({victim}) killed: new connections work after {} ms", gap.as_millis());
        later.push(Connections::open(&lab, echo, 5));
        talk.goes_on(20);
        let two = lab.chain(0);
        assert!(two.len() == 2 && !two.contains(&victim), "{victim} killed: {two:?}");
        lab.restart_daemon(victim, "store");
        settled(&lab);
        println!("{victim} is back: {:?}", lab.chain(0));
    }
    // Without its controller the chain goes on; with it, it is repaired again.
    lab.kill_daemon("controller", "controller");
    talk.goes_on(50);
    later.push(Connections::open(&lab, echo, 5));
    lab.restart_daemon("controller", "controller");
    settled(&lab);
    let victim = lab.chain(0)[0];
    let killed = Instant::now();
    lab.kill_now(victim);
    let gap = new_connections_work(&lab, echo, killed);
    println!(
        "head ({victim}) killed after the controller's return: new connections work after {} ms",
        gap.as_millis()
    );
    lab.restart_daemon(victim, "store");
    settled(&lab);
    // Both at once: repaired when the controller is back.
    let victim = lab.chain(0)[0];
    lab.kill_daemon("controller", "controller");
    lab.kill_daemon(victim, "store");
    lab.restart_daemon("controller", "controller");
    talk.goes_on(20);
    lab.restart_daemon(victim, "store");
    settled(&lab);
    a_lost_database_is_made_anew(&lab, &talk);
    println!("{} exchanges on each of 20 connections", talk.exchanges.load(Ordering::Relaxed));
    talk.finish().all_answer("all over");
    later.iter_mut().for_each(|connections| connections.all_answer("all over"));
    let records = lab.equal_stores();
    assert!(records >= 2 * 40, "{records} records");
    lab.down();
}

/// The controller's database is deleted with the controller dead: rebuilt from what the servers
/// have, it goes on above all that there was, and repairs chains.
fn a_lost_database_is_made_anew(lab: &TestLab, talk: &Talk) {
    let before =
        lab.controller().expect("the controller answers")["version"].as_u64().expect("a number");
    let dir = lab::Lab::open(&lab.name).expect("lab").dir().display().to_string();
    let rebuild = format!(
        "{} controller rebuild --config {dir}/nodes/controller/controller.toml",
        env!("CARGO_BIN_EXE_stateplane")
    );
    let (good, said) = lab.run("controller", &rebuild);
    assert!(
        !good && said.contains("is another controller running"),
        "beside a running one: {said}"
    );
    lab.kill_daemon("controller", "controller");
    std::fs::remove_file(format!("{dir}/controller.redb")).expect("the database");
    let said = lab.must_run("controller", &rebuild);
    assert!(said.contains("start the controller"), "{said}");
    lab.restart_daemon("controller", "controller");
    settled(lab);
    let after =
        lab.controller().expect("the controller answers")["version"].as_u64().expect("a number");
    assert!(after > before, "{before}, then {after}");
    let victim = lab.chain(0)[0];
    lab.kill_now(victim);
    talk.goes_on(20);
    lab.restart_daemon(victim, "store");
    settled(lab);
    println!(
        "database lost: views {before}, then {after}; head ({victim}) killed, and all goes on"
    );
}

#[test]
fn no_count_is_lost_or_given_twice_when_servers_die() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("store-counts", "flow_counter.toml", &["--set", "shards=1"]);
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    settled(&lab);
    let receiver = Receiver::start(&lab);
    let sender = Sender::start(&lab);
    let counted = || ["s1", "s2"].iter().map(|switch| lab.counter(switch, "numbered")).sum::<u64>();
    let goes_on = |packets: u64| {
        let before = counted();
        wait_for("packets are counted", || counted() >= before + packets);
    };
    for place in 0..3 {
        goes_on(2_000);
        let victim = lab.chain(0)[place];
        lab.kill_daemon(victim, "store");
        goes_on(2_000);
        lab.restart_daemon(victim, "store");
        settled(&lab);
    }
    goes_on(1_000);
    let sent = sender.finish();
    let records = lab.equal_stores();
    let seen = receiver.finish();
    assert!(records >= FLOWS as u64, "{records} records");
    check(&lab, &sent, &seen);
    lab.down();
}
