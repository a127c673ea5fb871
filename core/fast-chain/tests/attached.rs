//! The program on a real interface: a batch in, an answer or the next member's batch out. Needs
//! root.

mod fixture;

use fast_chain::{
    Count, Entry, Link, LoadError, Mode, ObjectShape, Program, Shape, ShardMirror, Standing,
};
use fixture::{MEMBER, OTHERS, SWITCHES};
use netns::Owned;
use nix::net::if_::if_nametoindex;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;
use wire::{Batch, BatchAck, BatchHead, BatchRecord, KeyRing, RecordFlags, Secret};

const KEY: [u8; 4] = [1, 2, 3, 4];
/// The first runs of a network take longer.
const PATIENCE: Duration = Duration::from_secs(5);

fn keys() -> KeyRing {
    KeyRing::new(0, Secret([7; 16])).unwrap()
}

fn shape() -> Shape {
    let objects = vec![ObjectShape { id: 1, key_bytes: 4, value_bytes: 8 }];
    Shape { shards: 1, records: 100, address: MEMBER, objects, seed: 9 }
}

/// A record of the first switch, under its grant 3.
fn entry() -> Entry<'static> {
    Entry {
        slot: 77,
        object_id: 1,
        epoch: 3,
        seq: 1,
        owner: (1, 1),
        session: 5,
        flags: 0,
        key: &KEY,
        value: &[0; 8],
    }
}

/// A batch with one update.
fn batch(view: u64, from: SocketAddrV4, seq: u64, value: [u8; 8]) -> Vec<u8> {
    let head = BatchHead {
        flags: 0,
        switch_id: 1,
        incarnation: 1,
        request_ns: 6,
        number: seq,
        view,
        session: 5,
        stream: 0,
        client: *SWITCHES[0].ip(),
        shard: 0,
    };
    let flags = RecordFlags(4);
    let record = BatchRecord { object_id: 1, flags, epoch: 3, place: 0, seq, content: &[] };
    let (mut records, mut datagram) = (Vec::new(), Vec::new());
    record.append_to(&KEY, &value, &mut records).unwrap();
    Batch::new(head, &records).unwrap().append_to(&mut datagram);
    assert!(keys().sign(&mut datagram, *from.ip(), *MEMBER.ip()));
    datagram
}

/// A member's namespace and that of all others, with a cable between them.
struct Network {
    member: Owned,
    others: Owned,
}

impl Network {
    fn new(name: &str) -> Network {
        let named = |of: &str| format!("fast-{name}-{of}-{}", std::process::id());
        let member = Owned::create(&named("member")).unwrap();
        let others = Owned::create(&named("others")).unwrap();
        let cable = format!("link add cable type veth peer name cable netns {}", others.name());
        let address = format!("address add {}/24 dev cable", MEMBER.ip());
        member.ip_batch(&["link set lo up", &cable, &address, "link set cable up"]).unwrap();
        let mut lines = vec!["link set lo up".to_owned(), "link set cable up".to_owned()];
        let addresses = OTHERS.iter().chain(&SWITCHES);
        lines.extend(addresses.map(|it| format!("address add {}/24 dev cable", it.ip())));
        others.ip_batch(&lines).unwrap();
        Network { member, others }
    }

    /// Frames that XDP redirects go into a veth whose peer has GRO.
    fn let_others_receive(&self) {
        let mut ethtool = self.others.command("ethtool").unwrap();
        let output = ethtool.args(["-K", "cable", "gro", "on"]).output().expect("ethtool runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn socket(&self, of: &Owned, address: SocketAddrV4) -> UdpSocket {
        let socket = of.run(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // Both sides learn their MAC addresses: the program does not ask for them.
        let ping = |from: &Owned, to: SocketAddrV4| {
            let mut ping = from.command("ping").unwrap();
            let output = ping.args(["-c", "1", "-W", "5", &to.ip().to_string()]).output();
            assert!(output.expect("ping runs").status.success(), "ping {to}");
        };
        if address != MEMBER {
            ping(&self.member, address);
        }
        socket
    }

    fn index(&self) -> u32 {
        let index = self.member.run(|| if_nametoindex("cable").map_err(io::Error::from));
        index.unwrap()
    }

    fn attach(&self, program: &Program, mode: Mode) -> Result<Link, LoadError> {
        let index = self.index();
        self.member.inside(|| program.attach(index, mode)).unwrap()
    }
}

/// Sends, and gives what comes back.
fn exchange(socket: &UdpSocket, receiver: &UdpSocket, datagram: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 2048];
    socket.send_to(datagram, MEMBER).unwrap();
    let (bytes, from) = receiver.recv_from(&mut buffer).expect("something comes back");
    assert_eq!(from, MEMBER.into());
    buffer[..bytes].to_vec()
}

fn counted(program: &Program, what: Count) -> u64 {
    program.counts().unwrap().iter().find(|(count, _)| *count == what).unwrap().1
}

/// A chain of one answers; the mirror tells what changed.
fn a_tail_answers(name: &str, mode: Mode) {
    let network = Network::new(name);
    network.let_others_receive();
    let program = Program::load(shape()).unwrap();
    program.memory().set_keys(&keys());
    let mut mirror = ShardMirror::new(program.memory().clone(), 0);
    let socket = network.socket(&network.others, SWITCHES[0]);
    let link = network.attach(&program, mode).unwrap();
    mirror.enter(|_| {});
    assert!(mirror.put(None, &entry()).is_some());
    let standing = Standing { view: 4, previous: None, next: None };
    mirror.leave(Some(&standing));

    for seq in 2..20 {
        let bytes = exchange(&socket, &socket, &batch(0, SWITCHES[0], seq, [seq as u8; 8]));
        keys().verify(&bytes, *MEMBER.ip(), *SWITCHES[0].ip()).unwrap();
        let ack = BatchAck::decode(&bytes).unwrap();
        assert_eq!((ack.head.number, ack.count, ack.refused), (seq, 1, 0));
    }
    let mut changes = Vec::new();
    mirror.enter(|it| changes.push((it.slot, it.seq, it.flags, it.value.to_vec())));
    assert_eq!(changes, [(77, 19, 4, vec![19; 8])]);
    mirror.leave(Some(&standing));
    assert_eq!((counted(&program, Count::Answered), counted(&program, Count::Records)), (18, 18));

    // Without the program user space gets the batch.
    let own = network.socket(&network.member, MEMBER);
    drop(link);
    socket.send_to(&batch(0, SWITCHES[0], 20, [0; 8]), MEMBER).unwrap();
    assert_eq!(own.recv(&mut [0; 2048]).unwrap(), 72 + 24 + 16);
}

#[test]
fn a_tail_answers_in_the_driver() {
    a_tail_answers("native", Mode::Native);
}

#[test]
fn a_tail_answers_by_the_generic_mode() {
    a_tail_answers("generic", Mode::Generic);
}

#[test]
fn a_member_in_the_middle_sends_on() {
    let network = Network::new("middle");
    network.let_others_receive();
    let program = Program::load(shape()).unwrap();
    program.memory().set_keys(&keys());
    let mut mirror = ShardMirror::new(program.memory().clone(), 0);
    let [previous, next] = OTHERS.map(|it| network.socket(&network.others, it));
    let _link = network.attach(&program, Mode::Best).unwrap();
    mirror.enter(|_| {});
    assert!(mirror.put(None, &entry()).is_some());
    mirror.leave(Some(&Standing { view: 4, previous: Some(OTHERS[0]), next: Some(OTHERS[1]) }));

    let sent = batch(4, OTHERS[0], 2, [8; 8]);
    let bytes = exchange(&previous, &next, &sent);
    keys().verify(&bytes, *MEMBER.ip(), *OTHERS[1].ip()).unwrap();
    let (sent, got) = (Batch::decode(&sent).unwrap(), Batch::decode(&bytes).unwrap());
    assert_eq!(got, sent, "as it came, but for the tag");
    assert_eq!(counted(&program, Count::Forwarded), 1);

    // The mirror's end turns the shard off: user space gets the batch.
    drop(mirror);
    let own = network.socket(&network.member, MEMBER);
    previous.send_to(&batch(4, OTHERS[0], 3, [9; 8]), MEMBER).unwrap();
    assert_eq!(own.recv(&mut [0; 2048]).unwrap(), 72 + 24 + 16);
    assert_eq!(counted(&program, Count::Off), 1);
}

/// Answers into a veth whose peer has neither GRO nor a program would be lost without a word.
#[test]
fn a_driver_that_cannot_send_is_not_taken() {
    let network = Network::new("deaf");
    let program = Program::load(shape()).unwrap();
    let error = network.attach(&program, Mode::Native).unwrap_err().to_string();
    assert!(error.contains("use the generic mode"), "{error}");
    let _link = network.attach(&program, Mode::Best).unwrap();
    let error = network.attach(&program, Mode::Best).unwrap_err().to_string();
    assert!(error.contains("another XDP program"), "{error}");
}
