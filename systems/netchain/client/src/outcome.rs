//! What becomes of a request.

use netchain_protocol::Key;

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The key's version. 0: the key was never written.
    pub version: u64,
    /// The value; None: there is none.
    pub value: Option<Vec<u8>>,
}

/// A request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The version that the request itself made: a lock's fencing token. None: it was a read, or
    /// later writes came so fast that nobody knows the version any more.
    pub own: Option<u64>,
    /// What the key has now: another version if later writes came before the reply.
    pub now: Shown,
}

/// A request whose condition did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the key has.
    pub now: Shown,
    /// It was refused before, and this is what the key has since: the condition may hold by now.
    pub moved: bool,
}

/// Some of a group's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The group's view. A cursor means something in its view only.
    pub view: u32,
    /// Up to eight keys. There may be none on a page before the last one.
    pub keys: Vec<Key>,
    /// Where to go on; None: there are no more keys.
    pub next: Option<u32>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Done(Done),
    /// Of a listing: some of the keys.
    Listed(Page),
    /// It was not, for its condition did not hold.
    Refused(Refused),
    /// It may have been carried out, or may still be: nobody can say.
    Unknown,
    /// It was not: no slot is left for another key.
    Full,
    /// It was not: no switch serves the key's group.
    NoChain,
    /// All members of the key's group were lost, and its keys with them.
    Lost,
    /// It was not: the value has so many bytes, more than a message has room for.
    TooLong(usize),
}

impl Outcome {
    /// What a request came to that was carried out.
    pub fn done(self) -> Option<Done> {
        match self {
            Outcome::Done(done) => Some(done),
            _ => None,
        }
    }
}

/// Why switches do not carry a client's requests out, whichever they are.
///
/// No copy of the request is known to be carried out. One that the network doubled may still be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The client's key does not allow it.
    #[error("the client's key may not do that")]
    Denied,
    /// The head of the group remembers as many clients as it can.
    #[error("the switch has no room for another client: compile its program for more clients")]
    TooMany,
    /// Client and switch have different founding files.
    #[error(
        "the switches were founded as {theirs:08x}, and this client's founding file is {ours:08x}: \
         give all clients and switches the same file"
    )]
    WrongRing {
        /// Fingerprint of the client's ring.
        ours: u32,
        /// Of the switch's.
        theirs: u32,
    },
    /// The switches' program is older than the request.
    #[error("the switches' program has no such operation: update the switches")]
    NoSuchOperation,
    /// The switch speaks another version of the protocol.
    #[error("the switches speak format {0}: use the client that came with their program")]
    Format(u8),
}

/// Why a request cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// Too many requests are under way: 4096, or 255 numbers lie between the oldest write that is
    /// not over and this one, in each of the client's identities.
    #[error("busy: wait until the oldest request is over")]
    Busy,
    /// The value is longer than a message has room for.
    #[error("the value has {0} bytes; a value has at most 128")]
    TooLong(usize),
}
