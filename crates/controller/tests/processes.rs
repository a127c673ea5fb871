//! Real server processes and a real controller on loopback, real UDP, and a small client: grants, updates and acknowledgements through the chain, status,
//! metrics, and SIGKILL to each of them while updates are on their way.
//!
//! This file has its own `main`: run with `serve FILE` it is a server, with `control FILE` a controller.

use controller::shell::Status;
use secrets::SecretsFile;
use state_protocol::{Flags, KeyRing, Message, MessageType, Owner};
use state_store::core::NodeStatus;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file] = arguments.as_slice() {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
        let file = Path::new(file);
        match word.as_str() {
            "serve" => state_store::shell::run(state_store::config::Config::load(file).unwrap()).unwrap(),
            "control" => controller::shell::run(&controller::config::Config::load(file).unwrap()).unwrap(),
            _ => return ExitCode::from(2),
        }
        return ExitCode::SUCCESS;
    }
    for (name, test) in [
        ("chain_answers_from_the_tail", chain_answers_from_the_tail as fn()),
        ("secrets_change_while_running", secrets_change_while_running),
        ("leases_move_between_switches", leases_move_between_switches),
        ("servers_die_and_come_back_and_nothing_is_lost", servers_die_and_come_back_and_nothing_is_lost),
        ("the_chain_goes_on_without_a_controller", the_chain_goes_on_without_a_controller),
        ("when_all_are_gone_the_shard_begins_anew", when_all_are_gone_the_shard_begins_anew),
        ("all_lose_power_and_nothing_acknowledged_is_lost", all_lose_power_and_nothing_acknowledged_is_lost),
        ("two_controllers_elect_through_etcd", two_controllers_elect_through_etcd),
    ] {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

struct Chain {
    directory: tempfile::TempDir,
    /// The servers write logs.
    logs: bool,
    keys: KeyRing,
    controller_address: SocketAddrV4,
    controller: Option<Child>,
    /// With etcd: its client address, and the second controller's.
    etcd: Option<(SocketAddr, SocketAddrV4)>,
    others: Vec<Child>,
    addresses: Vec<SocketAddrV4>,
    metrics: Vec<SocketAddr>,
    servers: Vec<Child>,
}

impl Chain {
    /// Starts a controller and `servers` servers of one shard with a chain of three, and waits until all is settled and the head serves.
    fn start(servers: usize) -> Chain {
        Chain::start_with(servers, false, false)
    }

    fn start_with(servers: usize, etcd: bool, logs: bool) -> Chain {
        // Held together, so that all differ; released just before the servers bind them.
        let sockets: Vec<_> = (0..servers + 2).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let listeners: Vec<_> =
            (0..servers + 2).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let v4 = |address: SocketAddr| SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port());
        let mut addresses: Vec<_> = sockets.iter().map(|socket| v4(socket.local_addr().unwrap())).collect();
        let mut metrics: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        drop((sockets, listeners));
        let directory = tempfile::tempdir().unwrap();
        let keys = SecretsFile::generate(&directory.path().join("secrets.toml")).unwrap().ring().clone();
        let (controller_address, second) = (addresses.pop().unwrap(), addresses.pop().unwrap());
        let (client, peer) = (metrics.pop().unwrap(), metrics.pop().unwrap());
        let mut chain = Chain {
            directory,
            logs,
            keys,
            controller_address,
            controller: None,
            etcd: etcd.then_some((client, second)),
            others: Vec::new(),
            addresses,
            metrics,
            servers: Vec::new(),
        };
        if etcd {
            let etcd = chain.start_etcd(client, peer);
            chain.others.push(etcd);
            let config = chain.controller_config("second", second);
            let other = chain.run("control", &config, "log-second");
            chain.others.push(other);
        }
        chain.start_controller();
        for at in 0..servers {
            let server = chain.spawn(at);
            chain.servers.push(server);
        }
        chain.settle();
        let head = chain.place_of(0);
        chain.await_status(head, |status| status.replicas[0].state == "serving");
        chain
    }

    fn start_controller(&mut self) {
        let config = self.controller_config("first", self.controller_address);
        self.controller = Some(self.run("control", &config, "log-controller"));
    }

    fn controller_config(&self, name: &str, listen: SocketAddrV4) -> PathBuf {
        let keep = match self.etcd {
            Some((client, _)) => format!("etcd = [\"http://{client}\"]"),
            None => "database = \"controller.redb\"".to_owned(),
        };
        let text =
            format!("name = \"{name}\"\nlisten = \"{listen}\"\nsecrets = \"secrets.toml\"\nshards = 1\n{keep}\n");
        let path = self.directory.path().join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A real etcd of one member (Debian: etcd-server).
    fn start_etcd(&self, client: SocketAddr, peer: SocketAddr) -> Child {
        let log = std::fs::File::create(self.directory.path().join("log-etcd")).unwrap();
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.directory.path().join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        command.stdout(Stdio::null()).stderr(Stdio::from(log)).spawn().expect("etcd: scripts/setup.sh installs it")
    }

    fn run(&self, word: &str, config: &Path, log: &str) -> Child {
        let log = self.directory.path().join(log);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(word).arg(config).stderr(Stdio::from(log)).spawn().unwrap()
    }

    fn config(&self, at: usize) -> PathBuf {
        let second = self.etcd.map(|(_, second)| format!(", \"{second}\"")).unwrap_or_default();
        let log = if self.logs { format!("[wal]\ndirectory = \"wal{at}\"\n") } else { String::new() };
        let text = format!(
            "name = \"s{at}\"\nlisten = \"{}\"\ncontrollers = [\"{}\"{second}]\nshards = 1\nlease_ms = 100\nsecrets = \"secrets.toml\"\n\
             metrics = \"{}\"\n{log}\
             [[object]]\nname = \"counter\"\nid = 1\nkey_bytes = 4\nvalue_bytes = 8\nallocator = \"zero\"\n\
             [[object]]\nname = \"nat\"\nid = 2\nkey_bytes = 13\nvalue_bytes = 6\nallocator = \"nat_ports\"\nexternal = [\"203.0.113.1\"]\n",
            self.addresses[at], self.controller_address, self.metrics[at]
        );
        let path = self.directory.path().join(format!("store{at}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn spawn(&self, at: usize) -> Child {
        self.run("serve", &self.config(at), &format!("log{at}"))
    }

    fn log(&self, at: usize) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("log{at}"))).unwrap()
    }

    fn status(&self, at: usize) -> NodeStatus {
        state_store::shell::query_status(self.addresses[at], &self.keys, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log(at)))
    }

    fn await_status(&self, at: usize, wanted: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
        let start = Instant::now();
        loop {
            let status = self.status(at);
            if wanted(&status) {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "server {at} stays {status:?}\n{}", self.log(at));
        }
    }

    fn control(&self) -> Status {
        state_store::shell::query(self.controller_address, &self.keys, PATIENCE).unwrap()
    }

    /// Waits until the chain has three servers and everybody knows.
    fn settle(&self) -> Status {
        self.await_control(|status| status.settled)
    }

    fn await_control(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let start = Instant::now();
        loop {
            let status = self.control();
            if wanted(&status) {
                return status;
            }
            let log = std::fs::read_to_string(self.directory.path().join("log-controller")).unwrap();
            assert!(start.elapsed() < PATIENCE, "{status:?}\n{log}");
        }
    }

    /// Which server has that place in the chain; from the end: `usize::MAX`.
    fn place_of(&self, place: usize) -> usize {
        let chain = self.control().shards[0].chain.clone();
        let address = chain[place.min(chain.len() - 1)];
        self.addresses.iter().position(|own| *own == address).unwrap()
    }

    fn kill(&mut self, at: usize) {
        self.servers[at].kill().unwrap();
        self.servers[at].wait().unwrap();
    }

    fn kill_controller(&mut self) {
        let mut controller = self.controller.take().unwrap();
        controller.kill().unwrap();
        controller.wait().unwrap();
    }

    /// SIGTERM to all; they must end with exit code 0.
    fn stop(mut self) {
        for process in self.servers.iter_mut().chain(&mut self.controller) {
            let pid = nix::unistd::Pid::from_raw(process.id() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        }
        for at in 0..self.servers.len() {
            assert!(self.servers[at].wait().unwrap().success(), "{}", self.log(at));
            assert!(self.log(at).contains("state store stopped"));
        }
        if let Some(controller) = &mut self.controller {
            assert!(controller.wait().unwrap().success());
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for process in self.servers.iter_mut().chain(&mut self.controller).chain(&mut self.others) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A switch, as far as the store can tell.
struct Switch {
    socket: UdpSocket,
    keys: KeyRing,
    clock: std::cell::Cell<u64>,
    owner: Owner,
    head: SocketAddrV4,
    tail: SocketAddrV4,
}

/// An answer that owns its bytes.
struct Answer(Vec<u8>);

impl Answer {
    fn message(&self) -> Message<'_> {
        Message::decode(&self.0).unwrap()
    }
}

impl Switch {
    fn new(chain: &Chain, switch_id: u32) -> Switch {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (head, tail) = (chain.addresses[chain.place_of(0)], chain.addresses[chain.place_of(usize::MAX)]);
        let (keys, clock) = (chain.keys.clone(), std::cell::Cell::new(1));
        Switch { socket, keys, clock, owner: Owner { switch_id, incarnation: 1 }, head, tail }
    }

    fn request<'a>(&self, message_type: MessageType, object_id: u16, key: &'a [u8]) -> Message<'a> {
        Message {
            message_type,
            object_id,
            flags: Flags::ALLOCATE,
            sender: self.owner,
            request_ns: 0,
            epoch: 0,
            seq: 0,
            lease_us: 0,
            port: 3,
            session: 0,
            shard: 0,
            key,
            value: &[],
            packet: &[],
        }
    }

    fn send(&self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        self.clock.set(self.clock.get() + 1_000_000);
        Message { request_ns: self.clock.get(), ..*message }.append_to(&mut bytes).unwrap();
        assert!(self.keys.sign(&mut bytes, Ipv4Addr::LOCALHOST, *self.head.ip()));
        self.socket.send_to(&bytes, self.head).unwrap();
    }

    fn receive(&self) -> (Answer, SocketAddr) {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = vec![0; 65_536];
        let (count, from) = self.socket.recv_from(&mut buffer).expect("no answer");
        buffer.truncate(count);
        assert_eq!(self.keys.verify(&buffer, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST), Ok(()));
        (Answer(buffer), from)
    }

    fn ask(&self, message: &Message<'_>) -> Answer {
        self.send(message);
        // What an earlier request was answered with may come twice: from a server that became the tail, too.
        let (answer, from) = loop {
            let (answer, from) = self.receive();
            if answer.message().request_ns >= self.clock.get() {
                break (answer, from);
            }
        };
        let reply = answer.message();
        assert_eq!(
            (reply.sender, reply.key, reply.request_ns, reply.port),
            (self.owner, message.key, self.clock.get(), 3)
        );
        assert_eq!(from, SocketAddr::V4(self.tail), "the tail answers");
        answer
    }
}

fn chain_answers_from_the_tail() {
    let chain = Chain::start(3);
    let switch = Switch::new(&chain, 1);
    let packet = vec![0xab; 1_514];
    let lease = Message { packet: &packet, ..switch.request(MessageType::LeaseRequest, 1, b"flow") };
    let answer = switch.ask(&lease);
    let grant = answer.message();
    assert_eq!((grant.message_type, grant.seq, grant.lease_us), (MessageType::LeaseGrant, 0, 100_000));
    assert_eq!((grant.value, grant.packet), (&[0; 8][..], &packet[..]));

    for seq in 1..=200u64 {
        let value = seq.to_be_bytes();
        let update = switch.request(MessageType::Update, 1, b"flow");
        let answer = switch.ask(&Message { epoch: grant.epoch, seq, value: &value, packet: b"out", ..update });
        let ack = answer.message();
        assert_eq!((ack.message_type, ack.seq, ack.packet), (MessageType::UpdateAck, seq, &b"out"[..]));
    }
    let read = switch.request(MessageType::ReadCommit, 1, b"flow");
    let answer = switch.ask(&Message { epoch: grant.epoch, seq: 200, packet: b"read", ..read });
    assert_eq!((answer.message().message_type, answer.message().seq), (MessageType::UpdateAck, 200));

    let key = [10, 0, 0, 1, 8, 8, 8, 8, 0x30, 0x39, 0, 53, 17];
    let answer = switch.ask(&switch.request(MessageType::LeaseRequest, 2, &key));
    assert_eq!(answer.message().value, [203, 0, 113, 1, 0x30, 0x39], "port preserved");
    let reverse = [8, 8, 8, 8, 203, 0, 113, 1, 0, 53, 0x30, 0x39, 17];
    let back = Message { flags: Flags::NONE, ..switch.request(MessageType::LeaseRequest, 2, &reverse) };
    assert_eq!(switch.ask(&back).message().value, [10, 0, 0, 1, 0x30, 0x39]);
    let unknown = Message { flags: Flags::NONE, ..switch.request(MessageType::LeaseRequest, 1, b"none") };
    assert_eq!(switch.ask(&unknown).message().message_type, MessageType::Absent);

    for (place, role) in ["head", "middle", "tail"].into_iter().enumerate() {
        let at = chain.place_of(place);
        let status = chain.await_status(at, |status| status.replicas[0].committed == status.replicas[0].index);
        assert_eq!((status.replicas[0].role.as_str(), status.records, status.replicas[0].index), (role, 3, 207));
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
    let heard =
        |switch: &Switch| switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().message_type;
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
    let update = Message { epoch: first.epoch, seq: 1, value: &value, ..one.request(MessageType::Update, 1, b"flow") };
    assert_eq!(one.ask(&update).message().message_type, MessageType::UpdateAck);

    let answer = two.ask(&Message { packet: b"parked", ..two.request(MessageType::LeaseRequest, 1, b"flow") });
    assert!(granted.elapsed() >= Duration::from_millis(100), "the lease is waited for");
    let second = answer.message();
    // The first switch neither sent heartbeats nor heard the recall (in its tenure there is none).
    assert_eq!((second.message_type, second.epoch, second.seq), (MessageType::LeaseGrant, first.epoch + 1, 1));
    assert_eq!((second.value, second.packet), (&value[..], &b"parked"[..]));

    let late = Message { seq: 2, ..update };
    let answer = one.ask(&late);
    assert_eq!((answer.message().message_type, answer.message().epoch), (MessageType::Refused, first.epoch));
    chain.stop();
}

/// Updates one flow until every update up to `until` is acknowledged, as the packet generator does: again and again, to whoever the controller says is
/// the head. Returns when an acknowledgement that was new came.
fn update_until(chain: &Chain, switch: &mut Switch, epoch: u32, from: u64, until: u64) -> Vec<Instant> {
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
        switch.send(&Message { epoch, seq, value: &value, ..switch.request(MessageType::Update, 1, b"flow") });
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

/// Takes the grant again and asserts that all `updates` are in it. (The flow is the switch's, so its epoch stays.)
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
        println!("{name} killed: served again after {} ms", acked[0].duration_since(killed).as_millis());
        chain.servers[victim] = chain.spawn(victim);
        // It catches up while updates go on.
        update_until(&chain, &mut switch, epoch, updates + 201, updates + 300);
        updates += 300;
        chain.settle();
        println!("returned, caught up and joined {} ms after the kill", killed.elapsed().as_millis());
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
    // What happened while it was away it sees to when it is back; the fourth server takes the dead one's place.
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
    chain.await_control(|status| status.shards[0].view > 1 && status.settled);
    let head = chain.place_of(0);
    chain.await_status(head, |status| status.replicas[0].state == "serving");
    let switch = Switch::new(&chain, 1);
    let again = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow"));
    assert!(again.message().epoch > epoch, "epochs of the lost chain are not given again");
    chain.stop();
}

/// SIGKILL to all servers and the controller at once, again and again, while updates are on their way; they start again with what is on their disks.
/// (What the kernel would lose with the power is what the log has not synchronised; the simulation in state-store loses that too.)
fn all_lose_power_and_nothing_acknowledged_is_lost() {
    let mut chain = Chain::start_with(3, false, true);
    let mut switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    let mut acked = 0;
    for round in 0..4u64 {
        update_until(&chain, &mut switch, epoch, acked + 1, acked + 100);
        acked += 100;
        for seq in acked + 1..=acked + 20 {
            let value = seq.to_be_bytes();
            switch.send(&Message { epoch, seq, value: &value, ..switch.request(MessageType::Update, 1, b"flow") });
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
        chain.await_control(|status| status.settled && (lost.is_none() || status.shards[0].view > before));
        let head = chain.place_of(0);
        chain.await_status(head, |status| status.replicas.first().is_some_and(|shard| shard.state == "serving"));
        println!("all killed: serving again after {} ms", killed.elapsed().as_millis());
        let mut buffer = vec![0; 65_536];
        switch.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        while switch.socket.recv_from(&mut buffer).is_ok() {} // answers from before
        (switch.head, switch.tail) = (chain.addresses[head], chain.addresses[chain.place_of(usize::MAX)]);
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
    let mut chain = Chain::start_with(3, true, false);
    let mut switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    update_until(&chain, &mut switch, epoch, 1, 100);
    let (_, second) = chain.etcd.unwrap();
    let ask = |address| state_store::shell::query::<Status>(address, &chain.keys, PATIENCE).unwrap();
    assert!(ask(second).leading != ask(chain.controller_address).leading, "one decides");
    // The first dies, whichever it is; then a server. The second, now alone, repairs the chain from what etcd has.
    let victim = chain.place_of(1);
    chain.kill_controller();
    chain.controller_address = second;
    chain.kill(victim);
    let died = Instant::now();
    chain.await_control(|status| status.leading && status.shards.first().is_some_and(|shard| shard.chain.len() == 2));
    println!(
        "controller and server killed: chain repaired by the other controller after {} ms",
        died.elapsed().as_millis()
    );
    update_until(&chain, &mut switch, epoch, 101, 200);
    assert_nothing_lost(&chain, &mut switch, epoch, 200);
}
