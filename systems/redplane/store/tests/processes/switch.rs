//! A client that talks like a switch.

use crate::PATIENCE;
use crate::chain::Chain;
use state_protocol::{Flags, Message, MessageType, Owner};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use wire::KeyRing;

/// A switch, as far as the store can tell.
pub struct Switch {
    pub socket: UdpSocket,
    pub keys: KeyRing,
    pub clock: std::cell::Cell<u64>,
    pub owner: Owner,
    pub head: SocketAddrV4,
    pub tail: SocketAddrV4,
}

/// An answer that owns its bytes.
pub struct Answer(pub Vec<u8>);

impl Answer {
    pub fn message(&self) -> Message<'_> {
        Message::decode(&self.0).unwrap()
    }
}

impl Switch {
    pub fn new(chain: &Chain, switch_id: u32) -> Switch {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (head, tail) =
            (chain.addresses[chain.place_of(0)], chain.addresses[chain.place_of(usize::MAX)]);
        let (keys, clock) = (chain.keys.clone(), std::cell::Cell::new(1));
        Switch { socket, keys, clock, owner: Owner { switch_id, incarnation: 1 }, head, tail }
    }

    pub fn request<'a>(
        &self,
        message_type: MessageType,
        object_id: u16,
        key: &'a [u8],
    ) -> Message<'a> {
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

    pub fn send(&self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        self.clock.set(self.clock.get() + 1_000_000);
        Message { request_ns: self.clock.get(), ..*message }.append_to(&mut bytes).unwrap();
        assert!(self.keys.sign(&mut bytes, Ipv4Addr::LOCALHOST, *self.head.ip()));
        self.socket.send_to(&bytes, self.head).unwrap();
    }

    pub fn receive(&self) -> (Answer, SocketAddr) {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = vec![0; 65_536];
        let (count, from) = self.socket.recv_from(&mut buffer).expect("no answer");
        buffer.truncate(count);
        assert_eq!(self.keys.verify(&buffer, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST), Ok(()));
        (Answer(buffer), from)
    }

    pub fn ask(&self, message: &Message<'_>) -> Answer {
        self.send(message);
        // What an earlier request was answered with may come twice: from a server that became the
        // tail, too.
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
