//! What a MessageTag means: stateplane_tags.h, for one CPU.

use super::{answer, number};
use netchain_protocol::tag::{client_tag, member_tag, put_tag, tag_in};
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Object};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use wire::Secret;

/// What a MessageTag draws from.
pub mod supply {
    use wire::Secret;

    /// A client's key.
    pub const CLIENT_KEY: &str = "client_key";
    /// A secret of members, as [`Secret::words`]; the first one is sent with.
    pub const SECRET: &str = "secret";

    /// A client's key as it is supplied.
    #[derive(Clone, Copy, Debug)]
    pub struct ClientKey {
        /// 0: of clients without one.
        pub id: u16,
        /// What tags are made with.
        pub secret: Secret,
        /// The first bits of the keys that it may name, and how many of them count.
        pub prefix: (u128, u32),
        /// It may read (1), write (2).
        pub rights: u64,
        /// Between two messages, on average; 0: any rate.
        pub interval_ns: u64,
        /// So far it may be ahead of that.
        pub ahead_ns: u64,
    }

    impl ClientKey {
        /// The numbers.
        pub fn numbers(&self) -> Vec<u64> {
            let (prefix, bits) = self.prefix;
            let [low, high] = self.secret.words();
            vec![
                self.id.into(),
                low,
                high,
                (prefix >> 64) as u64,
                prefix as u64,
                bits.into(),
                self.rights,
                self.interval_ns,
                self.ahead_ns,
            ]
        }
    }
}

/// TagResult, by position.
const GENUINE: u32 = 0;
const FORGED: u32 = 1;
const UNKNOWN_KEY: u32 = 2;
const OVER_RATE: u32 = 3;

/// Ethernet, IPv4, UDP.
const MESSAGE_AT: usize = 42;
/// Source and destination address in a frame.
const ADDRESSES_AT: [usize; 2] = [26, 30];
const READ: u64 = 1;
const WRITE: u64 = 2;
/// The longest message.
const MOST_BYTES: usize = 320;

#[derive(Clone)]
struct ClientKey {
    secret: Secret,
    prefix: u128,
    mask: u128,
    rights: u64,
    interval_ns: u64,
    ahead_ns: u64,
    /// When what was taken from the rate so far is paid.
    paid_ns: u64,
}

/// With what the packet leaves.
#[derive(Clone, Copy)]
enum Signer {
    Client(u16),
    Member,
}

#[derive(Clone, Default)]
pub(super) struct Tags {
    keys: BTreeMap<u16, ClientKey>,
    secrets: Vec<Secret>,
    /// The packet, as it came in, and when.
    frame: Vec<u8>,
    now_ns: u64,
    signs: Option<(Signer, usize)>,
}

/// The message of that length in a frame, if all of it is there.
fn message(frame: &[u8], bytes: usize) -> Option<&[u8]> {
    let fits = (16..=MOST_BYTES).contains(&bytes) && bytes.is_multiple_of(4);
    frame.get(MESSAGE_AT..MESSAGE_AT + bytes).filter(|_| fits)
}

/// The tag of a member's message in a frame that has one.
fn member_tag_in(secret: &Secret, frame: &[u8], message: &[u8]) -> u64 {
    let [source, destination] = ADDRESSES_AT.map(|at| {
        let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map_or(Ipv4Addr::UNSPECIFIED, |bytes| Ipv4Addr::from(*bytes))
    });
    member_tag(secret, message, source, destination)
}

impl Tags {
    fn key(&self, id: u16) -> Option<&ClientKey> {
        self.keys.get(&id).filter(|key| key.rights != 0)
    }

    fn verify(&mut self, id: u16, bytes: usize) -> u32 {
        let Some(key) = self.key(id) else { return UNKNOWN_KEY };
        let genuine = |message: &[u8]| {
            let claimed = tag_in(message);
            claimed != 0 && claimed == client_tag(&key.secret, message)
        };
        if id != 0 && !message(&self.frame, bytes).is_some_and(genuine) {
            return FORGED;
        }
        let now = self.now_ns;
        if let Some(key) = self.keys.get_mut(&id).filter(|key| key.interval_ns != 0) {
            let from = key.paid_ns.max(now);
            if from - now > key.ahead_ns {
                return OVER_RATE;
            }
            key.paid_ns = from + key.interval_ns;
        }
        GENUINE
    }

    fn verify_member(&self, bytes: usize) -> u32 {
        let genuine = message(&self.frame, bytes).is_some_and(|message| {
            let claimed = tag_in(message);
            let made = |secret| member_tag_in(secret, &self.frame, message);
            claimed != 0 && self.secrets.iter().any(|secret| claimed == made(secret))
        });
        if genuine { GENUINE } else { FORGED }
    }

    fn permits(&self, id: u16, named: u128, right: u64) -> bool {
        self.key(id)
            .is_some_and(|key| key.rights & right != 0 && (named ^ key.prefix) & key.mask == 0)
    }
}

impl Object for Tags {
    fn begin_packet(&mut self, frame: &[u8], now_us: u64) {
        self.frame = frame.to_vec();
        self.now_ns = now_us * 1000;
        self.signs = None;
    }

    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        let numbers: Vec<u128> = call.arguments.iter().map(number).collect::<Result<_, _>>()?;
        match (call.method, &numbers[..]) {
            ("verify", [id, bytes]) => answer(self.verify(*id as u16, *bytes as usize)),
            ("verify_member", [bytes]) => answer(self.verify_member(*bytes as usize)),
            ("permits", [id, named, writes]) => {
                let right = if *writes != 0 { WRITE } else { READ };
                answer(self.permits(*id as u16, *named, right).into())
            }
            ("sign", [id, bytes]) => {
                self.signs = Some((Signer::Client(*id as u16), *bytes as usize));
                answer(0)
            }
            ("sign_member", [bytes]) => {
                self.signs = Some((Signer::Member, *bytes as usize));
                answer(0)
            }
            (other, _) => Err(Stop::Unsupported(format!("MessageTag.{other}"))),
        }
    }

    fn finish_packet(&mut self, frame: &mut Vec<u8>) -> bool {
        let Some((signer, bytes)) = self.signs.take() else { return true };
        let Some(message) = message(frame, bytes) else { return false };
        let tag = match signer {
            Signer::Client(id) => match self.key(id) {
                Some(_) if id == 0 => 0,
                Some(key) => client_tag(&key.secret, message),
                None => return false,
            },
            Signer::Member => match self.secrets.first() {
                Some(secret) => member_tag_in(secret, frame, message),
                None => return false,
            },
        };
        if let Some(message) = frame.get_mut(MESSAGE_AT..) {
            put_tag(message, tag);
        }
        true
    }

    fn supply(&mut self, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        match (what, numbers) {
            (supply::SECRET, [low, high]) => {
                self.secrets.push(Secret::from_words([*low, *high]));
            }
            (
                supply::CLIENT_KEY,
                [id, low, high, first, second, bits, rights, interval_ns, ahead_ns],
            ) => {
                let mask = match bits {
                    0 => 0,
                    bits => u128::MAX << 128u64.saturating_sub(*bits),
                };
                let key = ClientKey {
                    secret: Secret::from_words([*low, *high]),
                    prefix: u128::from(*first) << 64 | u128::from(*second),
                    mask,
                    rights: *rights,
                    interval_ns: *interval_ns,
                    ahead_ns: *ahead_ns,
                    paid_ns: 0,
                };
                self.keys.insert(*id as u16, key);
            }
            _ => return Err(Stop::Unsupported(format!("{what} for a MessageTag"))),
        }
        Ok(())
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
