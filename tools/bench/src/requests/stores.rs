//! RedPlane's stores: one server, or a chain. This process plays the controller and a switch.

use super::{BATCH, KEYS, Load, Servers, UNDER_WAY, key, wait_for};
use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use secrets::SecretsFile;
use state_protocol::{Flags, Message, MessageType, Owner};
use state_store::shell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use wire::{Batch, BatchAck, BatchHead, BatchRecord, RecordFlags};
use wire::{Control, KeyRing, Member, ShardView, Views};

/// The switch: a server answers batches at its address and [`wire::PORT`].
const SWITCH_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
const SWITCH: Owner = Owner { switch_id: 1, incarnation: 1 };
const OBJECT: u16 = 1;
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// How long an answer may take before the load is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// A chain whose flows are the switch's.
pub struct Stores {
    servers: Servers,
    keys: KeyRing,
    socket: UdpSocket,
    head: SocketAddrV4,
    epochs: Vec<u32>,
    /// Of each flow, the last update's number.
    seqs: Vec<u64>,
    next: u64,
    started: Instant,
    /// The number of each stream's last batch.
    batches: Vec<u64>,
}

fn config_text(name: usize, listen: SocketAddrV4) -> String {
    // Nobody listens to the reports.
    format!(
        "name = \"s{name}\"\nlisten = \"{listen}\"\ncontrollers = [\"127.0.0.1:9\"]\nshards = 1\n\
         secrets = \"secrets.toml\"\n\
         [[object]]\nname = \"bench\"\nid = {OBJECT}\nkey_bytes = 13\nvalue_bytes = 8\n\
         allocator = \"zero\"\n"
    )
}

fn free_address() -> Result<SocketAddrV4> {
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

impl Stores {
    /// Starts a chain of so many servers on one CPU, and takes all flows.
    ///
    /// # Errors
    /// A server does not start or answer.
    pub fn start(stateplane: &Path, length: usize, cpu: usize, directory: &Path) -> Result<Stores> {
        let path = directory.join("secrets.toml");
        let keys = SecretsFile::generate(&path).map_err(|error| anyhow!("{error}"))?.ring().clone();
        let mut servers = Servers::default();
        let mut members = Vec::new();
        for number in 0..length {
            let (file, address) = (directory.join(format!("s{number}.toml")), free_address()?);
            std::fs::write(&file, config_text(number, address))?;
            let mut server = Command::new(stateplane);
            server.arg("store").arg("--config").arg(&file).stderr(std::process::Stdio::null());
            servers.start(&mut server, cpu)?;
            let mut status = None;
            wait_for("a store", || {
                status = shell::query_status(address, &keys, Duration::from_millis(200)).ok();
                status.is_some()
            })?;
            let incarnation = status.context("a store has no status")?.incarnation;
            members.push(Member { address, incarnation });
        }
        let head = members[0].address;
        let socket = UdpSocket::bind((SWITCH_ADDRESS, wire::PORT))
            .with_context(|| format!("{SWITCH_ADDRESS}:{}", wire::PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // Answers to all that is under way: each takes more of it than its bytes.
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
        let mut stores = Stores {
            servers,
            keys,
            socket,
            head,
            epochs: Vec::new(),
            seqs: vec![0; KEYS as usize],
            next: 0,
            started: Instant::now(),
            batches: vec![0; UNDER_WAY.div_ceil(BATCH)],
        };
        stores.tell(members)?;
        stores.take_flows()?;
        Ok(stores)
    }

    /// The view: what the controller says.
    fn tell(&self, members: Vec<Member>) -> Result<()> {
        let addresses: Vec<SocketAddrV4> = members.iter().map(|member| member.address).collect();
        let shard = ShardView { number: 1, founded: 1, members, joining: None, draining: false };
        let views = Control::Views(Views { version: 1, shards: vec![shard] });
        let mut told = views.encode().map_err(|error| anyhow!("views: {error:?}"))?;
        self.keys.sign(&mut told, SWITCH_ADDRESS, Ipv4Addr::LOCALHOST);
        for address in addresses {
            self.socket.send_to(&told, address)?;
        }
        wait_for("the chain", || {
            shell::query_status(self.head, &self.keys, Duration::from_millis(200)).is_ok_and(
                |status| status.replicas.first().is_some_and(|replica| replica.state == "serving"),
            )
        })
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64 + 1
    }

    /// Sends LEASE_REQUEST, or UPDATE if the flow's epoch is known.
    fn request(&mut self, flow: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let epoch = self.epochs.get(flow).copied().filter(|epoch| *epoch > 0);
        self.seqs[flow] += u64::from(epoch.is_some());
        let (name, value) = (key(flow as u32), self.seqs[flow].to_be_bytes());
        let message = Message {
            message_type: epoch.map_or(MessageType::LeaseRequest, |_| MessageType::Update),
            object_id: OBJECT,
            flags: Flags::ALLOCATE,
            sender: SWITCH,
            request_ns: self.now_ns(),
            epoch: epoch.unwrap_or(0),
            seq: self.seqs[flow],
            lease_us: 0,
            port: 0,
            session: 0,
            shard: 0,
            key: &name,
            value: if epoch.is_some() { &value } else { &[] },
            packet: &[],
        };
        bytes.clear();
        message.append_to(bytes).map_err(|error| anyhow!("a request: {error:?}"))?;
        self.keys.sign(bytes, SWITCH_ADDRESS, Ipv4Addr::LOCALHOST);
        self.socket.send_to(bytes, self.head)?;
        Ok(())
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
        let bytes = self.socket.recv(buffer).context("a store does not answer")?;
        Ok(&buffer[..bytes])
    }

    fn take_flows(&mut self) -> Result<()> {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65_536]);
        let numbers: HashMap<[u8; 13], u32> = (0..KEYS).map(|flow| (key(flow), flow)).collect();
        let mut epochs = vec![0; KEYS as usize];
        for first in (0..KEYS as usize).step_by(UNDER_WAY) {
            let flows = first..(first + UNDER_WAY).min(KEYS as usize);
            for flow in flows.clone() {
                self.request(flow, &mut bytes)?;
            }
            for _ in flows {
                let reply = self.receive(&mut buffer)?;
                let grant = Message::decode(reply).map_err(|error| anyhow!("{error:?}"))?;
                let flow = numbers.get(grant.key).context("a grant of another key")?;
                ensure!(
                    grant.message_type == MessageType::LeaseGrant,
                    "{:?} in place of a grant",
                    grant.message_type
                );
                epochs[*flow as usize] = grant.epoch;
            }
        }
        self.epochs = epochs;
        Ok(())
    }

    /// Updates in messages of their own, [`UNDER_WAY`] under way.
    ///
    /// # Errors
    /// A store refuses one, or does not answer.
    pub fn updates(&mut self, time: Duration) -> Result<Load> {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65_536]);
        let servers = std::mem::take(&mut self.servers);
        let mut under_way = 0;
        let load = Load::measure(&servers, time, || {
            while under_way < UNDER_WAY {
                let flow = (self.next % u64::from(KEYS)) as usize;
                self.next += 1;
                under_way += 1;
                self.request(flow, &mut bytes)?;
            }
            let reply = Message::decode(self.receive(&mut buffer)?);
            let reply = reply.map_err(|error| anyhow!("{error:?}"))?.message_type;
            ensure!(reply == MessageType::UpdateAck, "{reply:?} in place of an acknowledgement");
            under_way -= 1;
            Ok(1)
        });
        while under_way > 0 {
            self.receive(&mut buffer)?;
            under_way -= 1;
        }
        self.servers = servers;
        load
    }

    /// A batch of the next flows, as the engine in the switch sends it.
    fn batch(&mut self, stream: usize, records: &mut Vec<u8>, bytes: &mut Vec<u8>) -> Result<()> {
        records.clear();
        for _ in 0..BATCH {
            let flow = (self.next % u64::from(KEYS)) as usize;
            self.next += 1;
            self.seqs[flow] += 1;
            let seq = self.seqs[flow];
            let record = BatchRecord {
                object_id: OBJECT,
                flags: RecordFlags::NONE,
                epoch: self.epochs[flow],
                place: 0,
                seq,
                content: &[],
            };
            let added = record.append_to(&key(flow as u32), &seq.to_be_bytes(), records);
            added.map_err(|error| anyhow!("a record: {error:?}"))?;
        }
        self.batches[stream] += 1;
        let head = BatchHead {
            flags: 0,
            switch_id: SWITCH.switch_id,
            incarnation: SWITCH.incarnation,
            request_ns: self.now_ns(),
            number: self.batches[stream],
            view: 0,
            session: 0,
            stream: stream as u16,
            client: SWITCH_ADDRESS,
            shard: 0,
        };
        bytes.clear();
        Batch::new(head, records).map_err(|error| anyhow!("{error:?}"))?.append_to(bytes);
        self.keys.sign(bytes, SWITCH_ADDRESS, Ipv4Addr::LOCALHOST);
        self.socket.send_to(bytes, self.head)?;
        Ok(())
    }

    /// Updates in batches of [`BATCH`]; each stream has one under way, and there are so many
    /// streams that [`UNDER_WAY`] updates are.
    ///
    /// # Errors
    /// A store refuses one, or does not answer.
    pub fn batches(&mut self, time: Duration) -> Result<Load> {
        let (mut records, mut bytes, mut buffer) = (Vec::new(), Vec::new(), vec![0; 65_536]);
        let servers = std::mem::take(&mut self.servers);
        let streams = self.batches.len();
        for stream in 0..streams {
            self.batch(stream, &mut records, &mut bytes)?;
        }
        let load = Load::measure(&servers, time, || {
            let ack = BatchAck::decode(self.receive(&mut buffer)?);
            let ack = ack.map_err(|error| anyhow!("{error:?}"))?;
            ensure!(ack.refused == 0, "a store refuses updates of a batch");
            let stream = usize::from(ack.head.stream);
            ensure!(stream < streams, "an answer to stream {stream}, which is not there");
            self.batch(stream, &mut records, &mut bytes)?;
            Ok(BATCH as u64)
        });
        for _ in 0..streams {
            self.receive(&mut buffer)?;
        }
        self.servers = servers;
        load
    }
}
