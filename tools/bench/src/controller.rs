//! A NAT with an external controller, as RedPlane compares with: the switch's program has no
//! bindings of its own making. The first packet of a flow goes up to an agent on the switch, which
//! asks a controller outside; that one picks the binding and copies it to two others (a chain of
//! three) before the answer; the agent writes it into the program's map and sends the packet again.
//!
//! Messages are datagrams: agent's IPv4 address and port, key, binding. Nothing is re-sent: a lost
//! one is a lost packet, and the flow's next packet asks again.

use crate::flows::{EXTERNAL, EXTERNAL_ADDRESSES, INSIDE, PORT_LOW};
use crate::frame::Mac;
use crate::kernel::{self, CObject};
use crate::labs::Running;
use crate::probe;
use anyhow::{Context, Result, anyhow};
use libbpf_rs::RingBufferBuilder;
use nix::net::if_::if_nametoindex;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 6_400;
const KEY_BYTES: usize = 13;
const BINDING_BYTES: usize = 6;
/// Address and port of the agent, key, binding.
const MESSAGE_BYTES: usize = 6 + KEY_BYTES + BINDING_BYTES;
/// How long a thread waits before it looks whether to stop, and the agent for an answer.
const PATIENCE: Duration = Duration::from_millis(100);
/// The switch's routing protocol must know the way to the controllers by then.
const ROUTED_WITHIN: Duration = Duration::from_secs(20);

type Key = [u8; KEY_BYTES];
type Binding = [u8; BINDING_BYTES];

/// Switch program, agent, and three controllers; ends when it goes out of scope.
pub struct ControlledNat {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for ControlledNat {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What it had to say it has said.
            let _ = thread.join();
        }
    }
}

/// The switch in its lab.
pub struct Place<'a> {
    /// The switch's node.
    pub switch: &'a str,
    /// Its interface to the inside.
    pub inside: &'a str,
    /// Its interface to the outside.
    pub outside: &'a str,
    /// The controllers' nodes, the first one head of the chain.
    pub controllers: [&'a str; 3],
}

/// Runs `work` in a thread in a node's namespace; reports what it fails with.
fn spawn(
    lab: &Running,
    node: &str,
    work: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<JoinHandle<()>> {
    let netns = lab.netns(node)?;
    let node = node.to_owned();
    Ok(std::thread::spawn(move || {
        if let Err(error) =
            netns.run(|| work().map_err(|e| std::io::Error::other(format!("{e:#}"))))
        {
            eprintln!("bench: controller at {node}: {error}");
        }
    }))
}

impl ControlledNat {
    /// Starts everything; `object` is nat_handwritten.c with -DWITH_CONTROLLER.
    ///
    /// # Errors
    /// A node is missing, or the program cannot be loaded.
    pub fn start(lab: &Running, object: &Path, place: &Place) -> Result<ControlledNat> {
        let stop = Arc::new(AtomicBool::new(false));
        let addresses =
            place.controllers.map(|node| lab.host_port(node).map(|(_, address)| address));
        let [head, middle, tail] = addresses;
        let (head, next) = (head?, [Some(middle?), Some(tail?), None]);
        let mut nat = ControlledNat { stop: Arc::clone(&stop), threads: Vec::new() };
        for (index, node) in place.controllers.iter().enumerate() {
            let (stop, next) = (Arc::clone(&stop), next[index]);
            nat.threads.push(spawn(lab, node, move || control(index == 0, next, &stop))?);
        }
        let own = own_addresses(lab, place.switch)?;
        let object = object.to_owned();
        let port = |interface: &str| -> Result<(String, Mac)> {
            Ok((interface.to_owned(), probe::mac_of(lab, place.switch, interface)?))
        };
        let ports = [port(place.inside)?, port(place.outside)?];
        let (sender, ready) = std::sync::mpsc::channel();
        let agent = move || {
            let sockets = Sockets::open(head)?;
            let switch = Switch::load(&object, &ports, &own)?;
            // The receiver waits until then.
            let _ = sender.send(());
            switch.serve(&sockets, &stop)
        };
        nat.threads.push(spawn(lab, place.switch, agent)?);
        ready.recv().context("the agent did not start; its reason is above")?;
        Ok(nat)
    }
}

fn own_addresses(lab: &Running, node: &str) -> Result<Vec<Ipv4Addr>> {
    let loopback =
        lab.node(node)?.loopback.as_ref().and_then(|l| l.split('/').next()?.parse().ok());
    let links = lab.topology().ports(node).filter_map(|(_, own, ..)| own.ip().parse().ok());
    Ok(links.chain(loopback).collect())
}

/// One controller: the head picks bindings, all keep them, the tail answers.
fn control(head: bool, next: Option<Ipv4Addr>, stop: &AtomicBool) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut bindings: HashMap<Key, Binding> = HashMap::new();
    let mut made = 0u32;
    let mut message = [0; MESSAGE_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let Ok((MESSAGE_BYTES, _)) = socket.recv_from(&mut message) else { continue };
        let (agent, rest) = message.split_at_mut(6);
        let (key, binding) = rest.split_at_mut(KEY_BYTES);
        let key: Key = key.try_into()?;
        if head {
            let picked = bindings.get(&key).copied().unwrap_or_else(|| {
                made += 1;
                pick(made - 1)
            });
            binding.copy_from_slice(&picked);
        }
        bindings.insert(key, (&*binding).try_into()?);
        let to = match next {
            Some(next) => SocketAddrV4::new(next, PORT),
            None => SocketAddrV4::new(
                Ipv4Addr::new(agent[0], agent[1], agent[2], agent[3]),
                u16::from_be_bytes([agent[4], agent[5]]),
            ),
        };
        // Lost, as on a network.
        let _ = socket.send_to(&message, to);
    }
    Ok(())
}

/// Binding number `made`: the addresses by turns, each port once.
fn pick(made: u32) -> Binding {
    let usable = EXTERNAL_ADDRESSES - 2;
    let address = Ipv4Addr::from(u32::from(EXTERNAL.0) + 1 + made % usable);
    let port = PORT_LOW.wrapping_add((made / usable) as u16);
    let mut binding = [0; BINDING_BYTES];
    binding[..4].copy_from_slice(&address.octets());
    binding[4..].copy_from_slice(&port.to_be_bytes());
    binding
}

/// The program on the switch and its agent.
struct Switch {
    object: CObject,
    _links: Vec<libbpf_rs::Link>,
    inside: u32,
}

/// The agent's: questions leave by the one, answers come to the other, as the tail answers and not
/// the head.
struct Sockets {
    questions: UdpSocket,
    answers: UdpSocket,
    /// Where answers go.
    own: SocketAddrV4,
}

impl Sockets {
    /// Waits for the way to the head, which a routing protocol may still have to learn.
    fn open(head: Ipv4Addr) -> Result<Sockets> {
        let questions = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let start = Instant::now();
        while let Err(error) = questions.connect((head, PORT)) {
            if error.raw_os_error() != Some(libc::ENETUNREACH) || start.elapsed() > ROUTED_WITHIN {
                return Err(error).context("the way to the controllers");
            }
            std::thread::sleep(PATIENCE);
        }
        let address = |socket: &UdpSocket| match socket.local_addr() {
            Ok(SocketAddr::V4(address)) => Ok(address),
            _ => Err(anyhow!("a socket has no IPv4 address")),
        };
        let answers = UdpSocket::bind((*address(&questions)?.ip(), 0))?;
        answers.set_read_timeout(Some(PATIENCE))?;
        let own = address(&answers)?;
        Ok(Sockets { questions, answers, own })
    }
}

impl Switch {
    /// `ports`: inside and outside.
    fn load(object: &Path, ports: &[(String, Mac); 2], own: &[Ipv4Addr]) -> Result<Switch> {
        let mut object = CObject::load(object, &[("bindings", 262_144)])?;
        for (interface, mac) in ports {
            let ifindex = if_nametoindex(interface.as_str())?.to_ne_bytes();
            kernel::write(&object.map("ports")?, &ifindex, &ifindex)?;
            // Without it the program refuses what comes in there.
            let mac = mac.iter().fold(0u64, |mac, byte| mac << 8 | u64::from(*byte)) << 16;
            kernel::write(&object.map("gateway_ports")?, &ifindex, &mac.to_ne_bytes())?;
        }
        let [inside, outside] = ports.each_ref().map(|(interface, _)| interface.as_str());
        let (inside, outside) = (if_nametoindex(inside)?, if_nametoindex(outside)?);
        for address in own {
            kernel::write(&object.map("local_addresses")?, &address.octets(), &[1])?;
        }
        let tables = [("external", EXTERNAL, 1u32), ("external", INSIDE, 0), ("inside", INSIDE, 1)];
        for (map, (address, length), value) in tables {
            let mut key = length.to_ne_bytes().to_vec();
            key.extend_from_slice(&address.octets());
            kernel::write(&object.map(map)?, &key, &value.to_ne_bytes())?;
        }
        let links = vec![object.attach("nat", inside)?, object.attach("nat", outside)?];
        Ok(Switch { object, _links: links, inside })
    }

    fn serve(&self, sockets: &Sockets, stop: &AtomicBool) -> Result<()> {
        let misses = self.object.map("misses")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&misses, |miss| {
            if let Err(error) = self.miss(miss, sockets) {
                eprintln!("bench: agent: {error:#}");
            }
            0
        })?;
        let ring = builder.build()?;
        while !stop.load(Ordering::Relaxed) {
            ring.poll(PATIENCE)?;
        }
        Ok(())
    }

    /// One packet without a binding.
    fn miss(&self, miss: &[u8], sockets: &Sockets) -> Result<()> {
        let Sockets { questions, answers, own } = sockets;
        let bytes =
            miss.get(..4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes) as usize;
        let Some(frame) = miss.get(4..4 + bytes) else { return Ok(()) };
        let Some(key) = key_of(frame) else { return Ok(()) };
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&own.ip().octets());
        message[4..6].copy_from_slice(&own.port().to_be_bytes());
        message[6..6 + KEY_BYTES].copy_from_slice(&key);
        questions.send(&message)?;
        let mut answer = [0; MESSAGE_BYTES];
        // A late answer to an earlier packet has another key: it is skipped.
        while answer[6..6 + KEY_BYTES] != key {
            if !matches!(answers.recv(&mut answer), Ok(MESSAGE_BYTES)) {
                return Ok(());
            }
        }
        self.install(&key, &answer[6 + KEY_BYTES..])?;
        self.object.with_program("nat", |program| kernel::run_live(program, frame, self.inside, 1))
    }

    /// Both directions.
    fn install(&self, key: &Key, binding: &[u8]) -> Result<()> {
        let map = self.object.map("bindings")?;
        let mut forward = [0; 16];
        forward[..KEY_BYTES].copy_from_slice(key);
        let mut value = [0; 16];
        value[..BINDING_BYTES].copy_from_slice(binding);
        // Source and destination change places; the destination is the binding.
        let mut reverse = [0; 16];
        reverse[0..4].copy_from_slice(&key[4..8]);
        reverse[4..8].copy_from_slice(&binding[..4]);
        reverse[8..10].copy_from_slice(&key[10..12]);
        reverse[10..12].copy_from_slice(&binding[4..6]);
        reverse[12] = key[12];
        let mut back = [0; 16];
        back[..4].copy_from_slice(&key[..4]);
        back[4..6].copy_from_slice(&key[8..10]);
        kernel::write(&map, &reverse, &back)?;
        kernel::write(&map, &forward, &value)
    }
}

/// Addresses, ports, protocol of a UDP or TCP frame over IPv4 without options.
fn key_of(frame: &[u8]) -> Option<Key> {
    let (ip, ports) = (frame.get(14..34)?, frame.get(34..38)?);
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&ip[12..20]);
    key[8..12].copy_from_slice(ports);
    key[12] = ip[9];
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_binding_twice() {
        let picked: HashSet<Binding> = (0..100_000).map(pick).collect();
        assert_eq!(picked.len(), 100_000);
    }
}
