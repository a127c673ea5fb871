//! A key that recipes read and change by compare-and-set.

use crate::{Answer, Store};
use netchain_client::{Done, Failed, Key, Outcome, Refused, Request, Shown};

/// The shortest and the longest pause between two looks at a key, in microseconds.
const PAUSE_US: (u64, u64) = (500, 10_000);

/// Why a recipe stops.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client cannot ask.
    #[error(transparent)]
    Client(#[from] Failed),
    /// All switches of the key's group were lost, and the key with them.
    #[error("all switches of the key's group were lost, and its keys with them")]
    Lost,
    /// The switches have no slot for another key.
    #[error("the switches have no slot for another key")]
    Full,
    /// A name that makes no key.
    #[error("{0}")]
    Name(String),
    /// What is at the key is of another kind, or was made with other numbers.
    #[error("{0}")]
    NotOurs(String),
    /// A parameter that cannot be.
    #[error("{0}")]
    Parameter(String),
    /// A transaction lost a lock before its writes; so many of them were done.
    #[error("a lock was lost: {written} of the transaction's writes were done")]
    LockLost {
        /// Writes that were done.
        written: usize,
    },
}

/// What a key has.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub version: u64,
    pub value: Option<Vec<u8>>,
}

impl From<Shown> for Seen {
    fn from(shown: Shown) -> Seen {
        Seen { version: shown.version, value: shown.value }
    }
}

/// What a compare-and-set came to.
pub(crate) enum Swapped {
    /// Done, in its own version if that is known.
    Done { own: Option<u64>, now: Seen },
    /// Not done: the key had another version.
    Not(Seen),
    /// Nobody knows; it may still be.
    Unknown,
}

fn outcome(answer: Answer) -> Result<Outcome, Error> {
    match answer? {
        Outcome::Lost => Err(Error::Lost),
        Outcome::Full => Err(Error::Full),
        Outcome::TooLong(bytes) => {
            Err(Error::NotOurs(format!("the key has a value of {bytes} bytes")))
        }
        other => Ok(other),
    }
}

/// Of a read. None: no switch answered now.
pub(crate) fn seen(answer: Answer) -> Result<Option<Seen>, Error> {
    Ok(match outcome(answer)? {
        Outcome::Done(Done { now, .. }) | Outcome::Refused(Refused { now, .. }) => Some(now.into()),
        _ => None,
    })
}

/// Reads a key. None: no switch answered now.
pub(crate) async fn read(store: &impl Store, key: &Key) -> Result<Option<Seen>, Error> {
    seen(store.ask(Request::get(key)).await)
}

/// Of a compare-and-set.
pub(crate) fn swapped(answer: Answer) -> Result<Swapped, Error> {
    Ok(match outcome(answer)? {
        Outcome::Done(Done { own, now }) => Swapped::Done { own, now: now.into() },
        Outcome::Refused(Refused { now, .. }) => Swapped::Not(now.into()),
        _ => Swapped::Unknown,
    })
}

/// Writes a value if the key has this version.
pub(crate) async fn swap(
    store: &impl Store,
    key: &Key,
    version: u64,
    value: &[u8],
) -> Result<Swapped, Error> {
    swapped(store.ask(Request::compare_and_set(key, version, value)).await)
}

/// Pauses that grow, with chance in them so that those who wait do not come together.
pub(crate) struct Pauses(u64);

impl Pauses {
    pub(crate) fn new() -> Pauses {
        Pauses(PAUSE_US.0)
    }

    pub(crate) async fn pause(&mut self, store: &impl Store) {
        let us = self.0;
        self.0 = (us * 2).min(PAUSE_US.1);
        store.sleep(us / 2 + store.random() % (us / 2 + 1)).await;
    }
}
