//! Three real server processes on loopback, real UDP, and a small client: grants, updates and acknowledgements through the chain, status,
//! metrics, and what happens when one process is restarted alone.
//!
//! This file has its own `main`: run with `serve FILE` it is a server.

use secrets::SecretsFile;
use state_protocol::{Flags, KeyRing, Message, MessageType, Owner};
use state_store::config::Config;
use state_store::core::Status;
use state_store::shell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file] = arguments.as_slice()
        && word == "serve"
    {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
        shell::run(Config::load(Path::new(file)).unwrap()).unwrap();
        return ExitCode::SUCCESS;
    }
    for (name, test) in [
        ("chain_answers_from_the_tail", chain_answers_from_the_tail as fn()),
        ("secrets_change_while_running", secrets_change_while_running),
        ("leases_move_between_switches", leases_move_between_switches),
        ("a_server_restarted_alone_stops_the_chain", a_server_restarted_alone_stops_the_chain),
    ] {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

struct Chain {
    directory: tempfile::TempDir,
    keys: KeyRing,
    addresses: Vec<SocketAddrV4>,
    metrics: Vec<SocketAddr>,
    servers: Vec<Child>,
}

impl Chain {
    /// Starts `length` servers and waits until the head serves.
    fn start(length: usize) -> Chain {
        // Held together, so that all differ; released just before the servers bind them.
        let sockets: Vec<_> = (0..length).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let listeners: Vec<_> = (0..length).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let v4 = |address: SocketAddr| SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port());
        let addresses = sockets.iter().map(|socket| v4(socket.local_addr().unwrap())).collect();
        let metrics = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        drop((sockets, listeners));
        let directory = tempfile::tempdir().unwrap();
        let keys = SecretsFile::generate(&directory.path().join("secrets.toml")).unwrap().ring().clone();
        let mut chain = Chain { directory, keys, addresses, metrics, servers: Vec::new() };
        for at in 0..length {
            let server = chain.spawn(at);
            chain.servers.push(server);
        }
        chain.await_state(0, "serving");
        chain
    }

    fn config(&self, at: usize) -> PathBuf {
        let chain: Vec<_> = self.addresses.iter().map(|address| format!("\"{address}\"")).collect();
        let text = format!(
            "name = \"s{at}\"\nlisten = \"{}\"\nchain = [{}]\nlease_ms = 100\ntenure_ms = 2000\nsecrets = \"secrets.toml\"\nmetrics = \"{}\"\n\
             [[object]]\nname = \"counter\"\nid = 1\nkey_bytes = 4\nvalue_bytes = 8\nallocator = \"zero\"\n\
             [[object]]\nname = \"nat\"\nid = 2\nkey_bytes = 13\nvalue_bytes = 6\nallocator = \"nat_ports\"\nexternal = [\"203.0.113.1\"]\n",
            self.addresses[at],
            chain.join(", "),
            self.metrics[at]
        );
        let path = self.directory.path().join(format!("store{at}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn spawn(&self, at: usize) -> Child {
        let log = std::fs::File::create(self.directory.path().join(format!("log{at}"))).unwrap();
        Command::new(std::env::current_exe().unwrap())
            .arg("serve")
            .arg(self.config(at))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap()
    }

    fn log(&self, at: usize) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("log{at}"))).unwrap()
    }

    fn status(&self, at: usize) -> Status {
        shell::query_status(self.addresses[at], &self.keys, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log(at)))
    }

    fn await_state(&self, at: usize, state: &str) {
        self.await_status(at, |status| status.state == state);
    }

    fn await_status(&self, at: usize, wanted: impl Fn(&Status) -> bool) -> Status {
        let start = Instant::now();
        loop {
            let status = self.status(at);
            if wanted(&status) {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "server {at} stays {status:?}\n{}", self.log(at));
        }
    }

    fn kill(&mut self, at: usize) {
        self.servers[at].kill().unwrap();
        self.servers[at].wait().unwrap();
    }

    /// SIGTERM to all; they must end with exit code 0.
    fn stop(mut self) {
        for server in &mut self.servers {
            let pid = nix::unistd::Pid::from_raw(server.id() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        }
        for at in 0..self.servers.len() {
            assert!(self.servers[at].wait().unwrap().success(), "{}", self.log(at));
            assert!(self.log(at).contains("state store stopped"));
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
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
        let (head, tail) = (chain.addresses[0], *chain.addresses.last().unwrap());
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
        let (answer, from) = self.receive();
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

    for (at, role) in ["head", "middle", "tail"].into_iter().enumerate() {
        let status = chain.await_status(at, |status| status.committed == status.index);
        assert_eq!((status.role.as_str(), status.records, status.index), (role, 3, 206));
        let text = scrape(chain.metrics[at], "/metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("stateplane_store_records{object=\"nat\"} 2\n"), "{text}");
    }
    assert!(scrape(chain.metrics[0], "/").starts_with("HTTP/1.1 404 "));
    switch.socket.send_to(b"SP\x02\x03 too short", switch.head).unwrap();
    chain.await_status(0, |status| status.malformed == 1);
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

fn a_server_restarted_alone_stops_the_chain() {
    for victim in 0..3 {
        let mut chain = Chain::start(3);
        let switch = Switch::new(&chain, 1);
        let answer = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow"));
        assert_eq!(answer.message().message_type, MessageType::LeaseGrant);
        chain.await_status(0, |status| status.committed == 2);
        chain.kill(victim);
        chain.servers[victim] = chain.spawn(victim);
        for at in (0..3).filter(|at| *at != victim) {
            chain.await_state(at, "broken");
            assert!(chain.log(at).contains("CHAIN BROKEN"));
        }
        assert_eq!(chain.status(victim).state, "forming");
        // The others, one after the other: served again only when all are new.
        for at in (0..3).filter(|at| *at != victim) {
            assert_ne!(chain.status(0).state, "serving");
            chain.kill(at);
            chain.servers[at] = chain.spawn(at);
        }
        chain.await_state(0, "serving");
        let again = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow"));
        assert_eq!(again.message().message_type, MessageType::LeaseGrant);
        assert!(again.message().epoch > answer.message().epoch, "epochs of the lost chain are not given again");
        chain.stop();
    }
}
