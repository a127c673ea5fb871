//! Requests a second on this machine: UPDATE through chains of one and three servers in one process
//! (the core alone, no sockets, one core for all servers), and over loopback UDP with one process a
//! server; and the same updates in batches, in one process.
//!
//! `cargo run --release -p state-store --example throughput`; with `serve FILE` it is a server, with
//! `batches` it measures only batches.

use nix::time::{ClockId, clock_gettime};
use secrets::SecretsFile;
use state_protocol::{Flags, Message, MessageType, Owner};
use state_store::config::Config;
use state_store::core::{Input, Node, Outputs, Start};
use state_store::shell;
use std::collections::VecDeque;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use wal::Directory;
use wire::{Batch, BatchHead, BatchRecord, RecordFlags};
use wire::{Control, KeyRing, Member, SECRET_BYTES, Secret, ShardView, Views};

const FLOWS: u32 = 10_000;
const IN_PROCESS_REQUESTS: u32 = 1_000_000;
/// Objects with keys of 13 and of 8 bytes.
const LONG: u16 = 1;
const SHORT: u16 = 2;
const WINDOW: u64 = 256;
const MOST_BATCHES: u64 = 200_000;
/// Batches under way: one of each stream of a large switch.
const BATCH_WINDOW: u64 = 32;
const LOOPBACK_TIME: Duration = Duration::from_secs(3);
const UNDER_WAY: usize = 256;
const SWITCH: Owner = Owner { switch_id: 1, incarnation: 1 };

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file] = arguments.as_slice()
        && word == "serve"
    {
        return Ok(shell::run(Config::load(Path::new(file))?)?);
    }
    for length in [1, 3] {
        for records in [1, 8, 16, 35] {
            let batch_ns = in_process_batches(length, records)?;
            println!(
                "in process, chain of {length}, batches of {records:2}: {batch_ns:6.0} ns a batch, \
                 {:5.0} ns a record, {:9.0} updates/s on one core",
                batch_ns / f64::from(records),
                f64::from(records) / batch_ns * 1e9
            );
        }
    }
    if arguments == ["batches"] {
        return Ok(());
    }
    for (length, packet) in [(1, 0), (3, 0), (1, 1_000), (3, 1_000)] {
        let rate = in_process(length, packet)?;
        println!(
            "in process, chain of {length}, {packet:4} B packet: {rate:9.0} updates/s on one core"
        );
    }
    for (length, packet) in [(1, 0), (3, 0), (3, 1_000)] {
        let (rate, mean_us) = loopback(length, packet)?;
        println!(
            "loopback,   chain of {length}, {packet:4} B packet: {rate:9.0} updates/s, mean {mean_us:.0} us with {UNDER_WAY} under way"
        );
    }
    for under_way in [UNDER_WAY, 4_096] {
        let (rate, mean_us) = loopback_with(3, 0, under_way, true)?;
        println!(
            "loopback,   chain of 3 with logs, 0 B packet: {rate:9.0} updates/s, mean {mean_us:.0} us with {under_way} under way"
        );
    }
    for length in [1, 3] {
        let (rate, mean_us) = loopback_with(length, 0, 1, false)?;
        println!(
            "loopback,   chain of {length},    0 B packet: {rate:9.0} updates/s, mean {mean_us:.0} us with 1 under way"
        );
    }
    Ok(())
}

fn addresses(length: usize) -> Result<Vec<SocketAddrV4>, Box<dyn Error>> {
    let sockets: Vec<_> =
        (0..length).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let address = |socket: &UdpSocket| {
        Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr()?.port()))
    };
    sockets.iter().map(address).collect()
}

fn config_text(chain: &[SocketAddrV4], at: usize) -> String {
    // This program plays the controller; nobody listens to the reports.
    format!(
        "name = \"s{at}\"\nlisten = \"{}\"\ncontrollers = [\"127.0.0.1:9\"]\nshards = 1\n\
         chain_datagram_bytes = 8000\nsecrets = \"secrets.toml\"\n\
         [[object]]\nname = \"bench\"\nid = 1\nkey_bytes = 13\nvalue_bytes = 8\nallocator = \"zero\"\n\
         [[object]]\nname = \"short\"\nid = 2\nkey_bytes = 8\nvalue_bytes = 8\nallocator = \"zero\"\n",
        chain[at],
    )
}

/// One shard with this chain.
fn views(members: Vec<Member>) -> Views {
    Views {
        version: 1,
        shards: vec![ShardView { number: 1, founded: 1, members, joining: None, draining: false }],
    }
}

fn key(flow: u32) -> [u8; 13] {
    let mut key = [7; 13];
    key[..4].copy_from_slice(&flow.to_be_bytes());
    key
}

/// A request for `flow`; an UPDATE when `epoch` is known.
#[allow(clippy::too_many_arguments)]
fn request(
    keys: &KeyRing,
    bytes: &mut Vec<u8>,
    object_id: u16,
    flow: u32,
    epoch: u32,
    seq: u64,
    packet: &[u8],
    now_ns: u64,
) {
    let update = epoch > 0;
    let (key, value) = (key(flow), seq.to_be_bytes());
    let message = Message {
        message_type: if update { MessageType::Update } else { MessageType::LeaseRequest },
        object_id,
        flags: Flags::ALLOCATE,
        sender: SWITCH,
        request_ns: now_ns,
        epoch,
        seq,
        lease_us: 0,
        port: 0,
        session: 0,
        shard: 0,
        key: if object_id == SHORT { &key[..8] } else { &key },
        value: if update { &value } else { &[] },
        packet: if update { packet } else { &[] },
    };
    bytes.clear();
    message.append_to(bytes).expect("within the protocol's bounds");
    keys.sign(bytes, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
}

/// All servers in this thread; datagrams are handed over in batches as the sockets would.
struct InProcess {
    servers: Vec<Node>,
    chain: Vec<SocketAddrV4>,
    inbox: Vec<VecDeque<Vec<u8>>>,
    senders: Vec<VecDeque<SocketAddrV4>>,
    spare: Vec<Vec<u8>>,
    out: Outputs,
    replies: u64,
    last_epoch: u32,
    started: Instant,
}

impl InProcess {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn post(&mut self, to: usize, from: SocketAddrV4, bytes: &[u8]) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.inbox[to].push_back(buffer);
        self.senders[to].push_back(from);
    }

    /// One batch at each server.
    fn turn(&mut self) {
        for at in 0..self.servers.len() {
            let now = self.now_ns();
            for _ in 0..256 {
                let (Some(bytes), Some(from)) =
                    (self.inbox[at].pop_front(), self.senders[at].pop_front())
                else {
                    break;
                };
                self.servers[at].handle(
                    now,
                    Input::Datagram { from, bytes: &bytes },
                    &mut self.out,
                );
                self.spare.push(bytes);
            }
            if self.servers[at].next_deadline().is_some_and(|deadline| deadline <= now) {
                self.servers[at].handle(now, Input::Timer, &mut self.out);
            }
            self.servers[at].flush(now, &mut self.out);
            let out = std::mem::take(&mut self.out);
            for (to, bytes) in out.datagrams() {
                match self.chain.iter().position(|address| *address == to) {
                    Some(place) => self.post(place, self.chain[at], bytes),
                    None => {
                        self.replies += 1;
                        self.last_epoch =
                            u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
                    }
                }
            }
            self.out = out;
            self.out.clear();
            self.out.events.clear();
        }
    }
}

/// A chain that serves.
fn serving(length: usize, keys: &KeyRing) -> Result<InProcess, Box<dyn Error>> {
    let chain = addresses(length)?;
    let server = |at: usize| -> Result<Node, Box<dyn Error>> {
        let config = Config::parse(Path::new("bench.toml"), &config_text(&chain, at))?;
        let start = Start { incarnation: at as u64 + 1, epoch_base: 100, seed: 1, now_ns: 0 };
        Ok(Node::new(config.settings, start, keys.clone(), chain[at], Vec::new()))
    };
    let mut bench = InProcess {
        servers: (0..length).map(server).collect::<Result<_, _>>()?,
        inbox: vec![VecDeque::new(); length],
        senders: vec![VecDeque::new(); length],
        chain,
        spare: Vec::new(),
        out: Outputs::new(),
        replies: 0,
        last_epoch: 0,
        started: Instant::now(),
    };
    let views = views(bench.servers.iter().map(Node::me).collect());
    for server in &mut bench.servers {
        let mut out = Outputs::new();
        server.adopt(0, &views, &mut out);
        server.flush(0, &mut out); // HELLOs that are lost: they are sent again
    }
    while !bench.servers[0]
        .replicas()
        .any(|replica| replica.is_serving(bench.now_ns()) && replica.is_ready())
    {
        bench.turn();
    }
    Ok(bench)
}

/// The client's address in one process.
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);

fn secret() -> Result<KeyRing, Box<dyn Error>> {
    Ok(KeyRing::new(0, Secret([7; SECRET_BYTES])).ok_or("no such secret")?)
}

impl InProcess {
    /// Takes the flows of an object; returns their epoch.
    fn take_flows(&mut self, keys: &KeyRing, object_id: u16) -> u32 {
        let mut bytes = Vec::new();
        for flow in 0..FLOWS {
            let now_ns = self.now_ns();
            request(keys, &mut bytes, object_id, flow, 0, 0, &[], now_ns);
            self.post(0, CLIENT, &bytes);
            self.turn();
        }
        while self.replies < u64::from(FLOWS) {
            self.turn();
        }
        self.replies = 0;
        self.last_epoch
    }
}

/// Of the object with short keys: all in one message, signed.
struct Batches {
    keys: KeyRing,
    records: Vec<u8>,
    bytes: Vec<u8>,
    epoch: u32,
}

impl Batches {
    fn build(&mut self, number: u64, count: u32, now_ns: u64) {
        self.records.clear();
        for at in 0..count {
            let update = number * u64::from(count) + u64::from(at);
            let (flow, seq) = (update % u64::from(FLOWS), update / u64::from(FLOWS) + 1);
            let record = BatchRecord {
                object_id: SHORT,
                flags: RecordFlags::NONE,
                epoch: self.epoch,
                place: 0,
                seq,
                content: &[],
            };
            let key = &key(flow as u32)[..8];
            record
                .append_to(key, &seq.to_be_bytes(), &mut self.records)
                .expect("within the protocol's bounds");
        }
        let head = BatchHead {
            flags: 0,
            switch_id: SWITCH.switch_id,
            incarnation: SWITCH.incarnation,
            request_ns: now_ns,
            number: number + 1,
            view: 0,
            session: 0,
            stream: 0,
            client: *CLIENT.ip(),
            shard: 0,
        };
        self.bytes.clear();
        let batch = Batch::new(head, &self.records).expect("within the protocol's bounds");
        batch.append_to(&mut self.bytes);
        self.keys.sign(&mut self.bytes, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    }
}

/// Nanoseconds of CPU for a batch of so many records, at all servers together. What it costs to
/// build it is not in it.
fn in_process_batches(length: usize, records: u32) -> Result<f64, Box<dyn Error>> {
    let keys = secret()?;
    let mut bench = serving(length, &keys)?;
    let epoch = bench.take_flows(&keys, SHORT);
    let mut batches = Batches { keys, records: Vec::new(), bytes: Vec::new(), epoch };
    let all = u64::from(IN_PROCESS_REQUESTS / records).min(MOST_BATCHES);
    let start = cpu_time()?;
    for sent in 0..all {
        let now_ns = bench.now_ns();
        batches.build(sent, records, now_ns);
        bench.post(0, CLIENT, &batches.bytes);
        while sent - bench.replies.min(sent) >= BATCH_WINDOW {
            bench.turn();
        }
    }
    while bench.replies < all {
        bench.turn();
    }
    let with_building = cpu_time()? - start;
    let written = bench.servers[0].counters();
    if (written.batches, written.updates) != (all, all * u64::from(records)) {
        return Err(format!("{written:?} of {all} batches").into());
    }
    let start = cpu_time()?;
    for sent in 0..all {
        let now_ns = bench.now_ns();
        batches.build(all + sent, records, now_ns);
    }
    let building = cpu_time()? - start;
    Ok((with_building.saturating_sub(building)).as_nanos() as f64 / all as f64)
}

fn in_process(length: usize, packet_bytes: usize) -> Result<f64, Box<dyn Error>> {
    let keys = secret()?;
    let mut bench = serving(length, &keys)?;
    let epoch = bench.take_flows(&keys, LONG);
    let (mut bytes, packet) = (Vec::new(), vec![0xab; packet_bytes]);
    let start = cpu_time()?;
    for sent in 0..IN_PROCESS_REQUESTS {
        request(
            &keys,
            &mut bytes,
            LONG,
            sent % FLOWS,
            epoch,
            u64::from(sent / FLOWS) + 1,
            &packet,
            bench.now_ns(),
        );
        bench.post(0, CLIENT, &bytes);
        // A window, as a switch's network has one: without it the head would be offered more than
        // it can take, and drop.
        while u64::from(sent) - bench.replies.min(u64::from(sent)) >= WINDOW {
            bench.turn();
        }
    }
    while bench.replies < u64::from(IN_PROCESS_REQUESTS) {
        bench.turn();
    }
    Ok(f64::from(IN_PROCESS_REQUESTS) / (cpu_time()? - start).as_secs_f64())
}

/// This thread's time on a core: what others do on the machine does not count.
fn cpu_time() -> nix::Result<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from)
}

struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn loopback(length: usize, packet_bytes: usize) -> Result<(f64, f64), Box<dyn Error>> {
    loopback_with(length, packet_bytes, UNDER_WAY, false)
}

fn loopback_with(
    length: usize,
    packet_bytes: usize,
    under_way: usize,
    logs: bool,
) -> Result<(f64, f64), Box<dyn Error>> {
    let chain = addresses(length)?;
    let directory = tempfile::tempdir()?;
    let keys = SecretsFile::generate(&directory.path().join("secrets.toml"))?.ring().clone();
    let mut servers = Servers(Vec::new());
    for at in 0..length {
        let path = directory.path().join(format!("{at}.toml"));
        let wal = if logs {
            format!("[wal]\ndirectory = \"wal{at}\"\ncheckpoint_mib = 4\n")
        } else {
            String::new()
        };
        std::fs::write(&path, config_text(&chain, at) + &wal)?;
        servers.0.push(Command::new(std::env::current_exe()?).arg("serve").arg(&path).spawn()?);
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let status = |address| shell::query_status(address, &keys, Duration::from_secs(5));
    let mut members = Vec::new();
    for address in &chain {
        members.push(Member { address: *address, incarnation: status(*address)?.incarnation });
    }
    let mut told = Control::Views(views(members)).encode()?;
    keys.sign(&mut told, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    for address in &chain {
        socket.send_to(&told, address)?;
    }
    while status(chain[0])?.replicas.first().is_none_or(|replica| replica.state != "serving") {}
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut bytes, mut answer, packet) = (Vec::new(), vec![0; 65_536], vec![0xab; packet_bytes]);
    request(&keys, &mut bytes, LONG, 0, 0, 0, &[], 1);
    socket.send_to(&bytes, chain[0])?;
    let count = socket.recv(&mut answer)?;
    let epoch = Message::decode(&answer[..count])?.epoch;
    let start = Instant::now();
    let (mut sent, mut received, mut total_ns) = (0u64, 0u64, 0u128);
    while start.elapsed() < LOOPBACK_TIME {
        while sent - received < under_way as u64 {
            sent += 1;
            let now_ns = start.elapsed().as_nanos() as u64;
            request(&keys, &mut bytes, LONG, 0, epoch, sent, &packet, now_ns);
            socket.send_to(&bytes, chain[0])?;
        }
        let count = socket.recv(&mut answer)?;
        let reply = Message::decode(&answer[..count])?;
        total_ns += start.elapsed().as_nanos() - u128::from(reply.request_ns);
        received += 1;
    }
    let elapsed = start.elapsed();
    if logs {
        // What is on the disk can be read, and has what was acknowledged.
        drop(servers);
        let config = Config::load(&directory.path().join("0.toml"))?;
        let log = Directory::open(&directory.path().join("wal0"))?
            .read(config.settings.digest(), config.settings.nothing_restored())?
            .ok_or("no log")?;
        let (_, replica) = log.restored.replicas().next().ok_or("no replica")?;
        let newest = replica.state().iter().map(|record| record.seq).max().unwrap_or(0);
        println!(
            "            the log has {} bytes in {} files; update {newest}, {received} acknowledged",
            log.bytes,
            log.files.len()
        );
        if newest < received {
            return Err("acknowledged, and not in the log".into());
        }
    }
    Ok((received as f64 / elapsed.as_secs_f64(), total_ns as f64 / received as f64 / 1_000.0))
}
