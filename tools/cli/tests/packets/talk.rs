//! Cases in lockstep: each is a thread that sends and waits; when all wait, and nothing comes any
//! more, all go on. So a hundred cases take as long as the longest of them.

use super::super::common::TestLab;
use super::cases::Case;
use super::packet::{Body, Packet, TCP_ACK, TCP_SYN, fragments, in_tunnel};
use super::system::{App, System, VIRTUAL};
use super::verdict::{Ground, Name, Sent, number, verdict};
use super::view::View;
use super::wire::{ENDS, Mac, Place, Seen, Wires};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nothing has come for so long: nothing more comes.
const QUIET: Duration = Duration::from_millis(250);
/// Something always comes: a flood that does not end is a failure.
const NEVER_QUIET: Duration = Duration::from_secs(10);

/// Of so many conversations a balancer gives each of two servers some.
pub const MANY: usize = 32;

/// How a packet is sent, if not as it is.
#[derive(Default)]
pub struct How {
    pub to_mac: Option<Mac>,
    pub vlan: Option<u16>,
    /// Bytes behind the packet's end.
    pub padding: usize,
    /// Changes the packet's bytes.
    pub change: Option<fn(&mut Vec<u8>)>,
    /// In fragments: which bytes of the payload each has.
    pub pieces: Vec<(usize, usize)>,
}

/// A conversation that has begun.
#[derive(Clone, Debug)]
pub struct Flow {
    pub client_place: Place,
    pub client: (IpAddr, u16),
    pub service: (IpAddr, u16),
    pub server_place: Place,
    /// The client as the server sees it, and the server's own address.
    pub peer: (IpAddr, u16),
    pub server: (IpAddr, u16),
}

impl Flow {
    /// The conversation that a packet from `client_place` began, which came out at `server_place`
    /// as `seen` there.
    pub fn begun(client_place: Place, packet: &Packet, server_place: Place, seen: &View) -> Flow {
        let (from, to) = seen.ports();
        Flow {
            client_place,
            client: (packet.source, packet.source_port),
            service: (packet.destination, packet.destination_port),
            server_place,
            peer: (seen.source, from.unwrap_or(0)),
            server: (seen.destination, to.unwrap_or(0)),
        }
    }
}

/// A part of what a case has to say.
enum Said {
    Text(String),
    State(u8, u16),
}

#[derive(Default)]
struct Turn {
    alive: usize,
    waiting: usize,
    round: u64,
}

/// Where all cases play.
pub struct Stage {
    pub system: System,
    lab: Mutex<TestLab>,
    pub wires: Wires,
    ids: AtomicU16,
    ports: AtomicU16,
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl Stage {
    pub fn new(system: System, lab: TestLab) -> Stage {
        let wires = Wires::open(&lab);
        let (ids, ports) = (AtomicU16::new(1000), AtomicU16::new(20_000));
        Stage {
            system,
            lab: Mutex::new(lab),
            wires,
            ids,
            ports,
            turn: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The lab, for what only its nodes can do.
    pub fn lab(&self) -> MutexGuard<'_, TestLab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grounds(&self) -> [Ground; 3] {
        let ground = |place: Place| {
            let (mac, far) = self.wires.macs(place);
            let mtu = match place {
                Place::In2 => 1300,
                Place::Router => 1400,
                _ => 1500,
            };
            Ground { place, mtu, mac, far }
        };
        ENDS.map(ground)
    }

    /// Takes the lab down; nothing of it may be left.
    pub fn end(self) {
        drop(self.wires);
        self.lab.into_inner().unwrap_or_else(PoisonError::into_inner).down();
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays cases to their ends: those that can, at once; then each of the others. What each says.
    pub fn play(&self, cases: &[Case]) -> Vec<(String, String)> {
        let (alone, together): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.alone);
        let mut said = self.play_together(&together);
        for case in alone {
            said.extend(self.play_together(&[case]));
        }
        let state: BTreeSet<(u8, u16)> = self.system.state(&self.lab()).into_iter().collect();
        let text = |said: Vec<Said>| {
            let part = |said| match said {
                Said::Text(text) => text,
                Said::State(protocol, port) if state.contains(&(protocol, port)) => {
                    "state".to_string()
                }
                Said::State(..) => "no state".to_string(),
            };
            said.into_iter().map(part).collect::<Vec<_>>().join("; ")
        };
        said.into_iter().map(|(case, said)| (case, text(said))).collect()
    }

    fn play_together(&self, cases: &[&Case]) -> Vec<(String, Vec<Said>)> {
        self.turn().alive = cases.len();
        std::thread::scope(|scope| {
            let play = |case: &&Case| {
                let (name, run) = (case.name.clone(), Arc::clone(&case.run));
                scope.spawn(move || {
                    let mut talk = Talk { stage: self, said: vec![], _leaves: Leaves(self) };
                    run(&mut talk);
                    (name, std::mem::take(&mut talk.said))
                })
            };
            let threads: Vec<_> = cases.iter().map(play).collect();
            self.conduct();
            threads.into_iter().map(|thread| thread.join().expect("the case ends")).collect()
        })
    }

    /// Lets all that wait go on whenever nobody does anything else and nothing comes.
    fn conduct(&self) {
        loop {
            let mut turn = self.turn();
            while turn.waiting < turn.alive {
                turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
            }
            if turn.alive == 0 {
                return;
            }
            drop(turn);
            self.settle();
            let mut turn = self.turn();
            turn.waiting = 0;
            turn.round += 1;
            self.changed.notify_all();
        }
    }

    /// Waits until no packet of the suite has come for a while.
    fn settle(&self) {
        let begin = Instant::now();
        let (mut seen, mut last) = (self.wires.since(0).len(), Instant::now());
        while last.elapsed() < QUIET {
            assert!(begin.elapsed() < NEVER_QUIET, "packets come without end");
            std::thread::sleep(Duration::from_millis(10));
            let new = self.wires.since(seen);
            seen += new.len();
            let own = |seen: &Seen| number(&seen.frame).is_some_and(|id| id >= 1000);
            if new.iter().any(own) {
                last = Instant::now();
            }
        }
    }
}

/// Whoever is through, or panics, is waited for no more.
struct Leaves<'a>(&'a Stage);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.turn().alive -= 1;
        self.0.changed.notify_all();
    }
}

/// One case's view of the stage.
pub struct Talk<'a> {
    pub stage: &'a Stage,
    said: Vec<Said>,
    _leaves: Leaves<'a>,
}

impl Talk<'_> {
    pub fn system(&self) -> System {
        self.stage.system
    }

    pub fn id(&self) -> u16 {
        self.stage.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub fn port(&self) -> u16 {
        self.stage.ports.fetch_add(1, Ordering::Relaxed)
    }

    /// A packet that begins a conversation, from a port of its own; from `place`, if clients can be
    /// there.
    pub fn opener(&self, place: Place, body: Body) -> Packet {
        let service = self.system().service();
        Packet::new((self.system().client(place), self.port()), service, body)
    }

    /// The same from where clients usually are.
    pub fn open(&self, body: Body) -> (Place, Packet) {
        let place = self.system().client_place();
        (place, self.opener(place, body))
    }

    /// Sends a packet as it is.
    pub fn send(&mut self, from: Place, packet: &Packet) -> Sent {
        self.send_so(from, packet, &How::default())
    }

    pub fn send_so(&mut self, from: Place, packet: &Packet, how: &How) -> Sent {
        let name = if packet.destination == IpAddr::V4(VIRTUAL) { "service" } else { "server" };
        let names = vec![
            Name { address: packet.source, port: Some(packet.source_port), name: "client" },
            Name { address: packet.destination, port: Some(packet.destination_port), name },
        ];
        self.send_named(from, packet, how, names)
    }

    /// Sends a packet of a conversation that has begun.
    pub fn send_in(&mut self, flow: &Flow, from: Place, packet: &Packet, how: &How) -> Sent {
        let name = |(address, port): (IpAddr, u16), name| Name { address, port: Some(port), name };
        let names = vec![
            name(flow.client, "client"),
            name(flow.server, "server"),
            name(flow.service, "service"),
        ];
        self.send_named(from, packet, how, names)
    }

    fn send_named(&mut self, from: Place, packet: &Packet, how: &How, own: Vec<Name>) -> Sent {
        let mut packet = packet.clone();
        packet.id = self.id();
        let mut ip = packet.bytes();
        let pieces =
            if how.pieces.is_empty() { vec![] } else { fragments(&ip, &how.pieces, packet.id) };
        if let Some(change) = how.change {
            change(&mut ip);
        }
        let pieces = if pieces.is_empty() { vec![ip.clone()] } else { pieces };
        for piece in pieces {
            let piece = match self.system().tunnel(from, packet.source) {
                Some((station, gateway, teid)) => in_tunnel(&piece, station, gateway, teid),
                None => piece,
            };
            self.stage.wires.send(from, &self.frame(from, &piece, how));
        }
        // Statics with ports first: a backend is `server`, whoever asks.
        let mut names = own;
        names.extend(self.system().names());
        Sent {
            id: packet.id,
            from,
            ip,
            anywhere: self.system().app == App::Balancer,
            tagged: how.vlan.is_some(),
            names,
        }
    }

    fn frame(&self, from: Place, ip: &[u8], how: &How) -> Vec<u8> {
        let (own, far) = self.stage.wires.macs(from);
        let mut frame = how.to_mac.unwrap_or(far).to_vec();
        frame.extend(own);
        if let Some(vlan) = how.vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(vlan.to_be_bytes());
        }
        frame.extend(if ip.first().is_some_and(|byte| byte >> 4 == 6) {
            [0x86, 0xdd]
        } else {
            [0x08, 0x00]
        });
        frame.extend(ip);
        frame.extend(std::iter::repeat_n(0x55, how.padding));
        frame
    }

    /// Waits until nothing comes any more.
    pub fn wait(&mut self) {
        let stage = self.stage;
        let mut turn = stage.turn();
        let round = turn.round;
        turn.waiting += 1;
        stage.changed.notify_all();
        while turn.round == round {
            turn = stage.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What became of a packet, into the table.
    pub fn tell(&mut self, label: &str, sent: &Sent) {
        let text = verdict(sent, &self.stage.wires.since(0), &self.stage.grounds());
        self.say(if label.is_empty() { text } else { format!("{label}: {text}") });
    }

    pub fn say(&mut self, text: impl Into<String>) {
        self.said.push(Said::Text(text.into()));
    }

    /// Whether there is state for a client's port, into the table.
    pub fn tell_state(&mut self, protocol: u8, port: u16) {
        if self.system().app != App::Gateway {
            self.said.push(Said::State(protocol, port));
        }
    }

    /// The same for what is no client's: a balancer tracks only those.
    pub fn tell_state_of_any(&mut self, protocol: u8, port: u16) {
        if self.system().app != App::Balancer {
            self.tell_state(protocol, port);
        }
    }

    /// Where a packet came out, and what it was then.
    pub fn came_out(&self, sent: &Sent) -> Option<(Place, View)> {
        let seen = self.stage.wires.since(0);
        let forwarded = |seen: &Seen| {
            let packet = seen.frame.get(14..)?;
            let view = View::of(super::packet::out_of_tunnel(packet).unwrap_or(packet))?;
            let itself = view.id == sent.id
                && view.error().is_none()
                && number(&seen.frame) == Some(sent.id);
            (itself && seen.place != Place::Kernel && seen.place != sent.from)
                .then_some((seen.place, view))
        };
        seen.iter().find_map(forwarded)
    }

    /// Begins a conversation; TCP with a whole handshake. Its server is at `server`, if that is
    /// asked for.
    pub fn establish(&mut self, place: Place, body: Body, server: Option<Place>) -> Option<Flow> {
        // Several at once: a balancer picks the server.
        let tries = if server.is_some() && self.system().app == App::Balancer { MANY } else { 1 };
        let packets: Vec<Packet> = (0..tries).map(|_| self.opener(place, body.clone())).collect();
        let sent: Vec<Sent> = packets.iter().map(|packet| self.send(place, packet)).collect();
        self.wait();
        let mut found = None;
        for (packet, sent) in packets.iter().zip(&sent) {
            let Some((at, view)) = self.came_out(sent) else { continue };
            if found.is_some() || server.is_some_and(|server| server != at) {
                continue;
            }
            found = Some(Flow::begun(place, packet, at, &view));
        }
        let Some(flow) = found else {
            self.say("no conversation");
            return None;
        };
        if matches!(body, Body::Tcp { .. }) {
            let answer = self.reply(&flow, Body::Tcp { flags: TCP_SYN | TCP_ACK, options: vec![] });
            self.send_in(&flow, flow.server_place, &answer, &How::default());
            self.wait();
            let last = self.onward(&flow, Body::Tcp { flags: TCP_ACK, options: vec![] });
            self.send_in(&flow, place, &last, &How::default());
            self.wait();
        }
        Some(flow)
    }

    /// A packet of a conversation, from its client.
    pub fn onward(&self, flow: &Flow, body: Body) -> Packet {
        Packet::new(flow.client, flow.service, body)
    }

    /// A packet of a conversation, from its server.
    pub fn reply(&self, flow: &Flow, body: Body) -> Packet {
        Packet::new(flow.server, flow.peer, body)
    }
}
