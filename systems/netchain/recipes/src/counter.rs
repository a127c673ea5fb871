//! A counter: the value is the number.

use crate::cell::Error;
use crate::mutation::{Mutation, planted};
use crate::{Store, names};
use netchain_client::{Done, Key, Outcome, Request};

/// What an addition came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It was done once; the counter has this number now. (Others may have added since.)
    Done(u64),
    /// It was done once, not at all, or may still be.
    Unknown,
    /// It was not done: no switch answered.
    NotDone,
}

/// A counter modulo 2^64. An addition is done at most once, whatever the network repeats.
pub struct Counter<S> {
    store: S,
    key: Key,
}

fn number(value: Option<&[u8]>) -> Result<u64, Error> {
    let Some(value) = value else { return Ok(0) };
    let first = value.first_chunk();
    let first = first.ok_or_else(|| Error::NotOurs("the key has no number".into()))?;
    Ok(u64::from_be_bytes(*first))
}

impl<S: Store + Clone> Counter<S> {
    /// A counter with a name of at most 16 bytes.
    ///
    /// # Errors
    /// The name is too long.
    pub fn new(store: S, name: &str) -> Result<Counter<S>, Error> {
        Ok(Counter { store, key: names::key(name)? })
    }

    /// The number. None: no switch answered now.
    ///
    /// # Errors
    /// The client cannot ask, the key's group was lost, or the key has no number.
    pub async fn get(&self) -> Result<Option<u64>, Error> {
        let seen = crate::cell::read(&self.store, &self.key).await?;
        seen.map(|seen| number(seen.value.as_deref())).transpose()
    }

    /// Adds.
    ///
    /// # Errors
    /// The client cannot ask, the key's group was lost, or the switches have no slot for the key.
    pub async fn add(&self, delta: u64) -> Result<Counted, Error> {
        loop {
            return match self.store.ask(Request::add(&self.key, delta)).await? {
                Outcome::Done(Done { now, .. }) => Ok(Counted::Done(number(now.value.as_deref())?)),
                Outcome::NoChain => Ok(Counted::NotDone),
                Outcome::Lost => Err(Error::Lost),
                Outcome::Full => Err(Error::Full),
                _ if planted(Mutation::AddedAgain) => continue,
                _ => Ok(Counted::Unknown),
            };
        }
    }

    /// A number that nobody else got or gets from this counter. Numbers are skipped where outcomes
    /// are unknown. None: no switch answered now.
    ///
    /// # Errors
    /// See [`Counter::add`].
    pub async fn unique(&self) -> Result<Option<u64>, Error> {
        for _ in 0..8 {
            match self.store.ask(Request::add(&self.key, 1)).await? {
                // What others added since would be in the number.
                Outcome::Done(Done { own: Some(own), now }) if own == now.version => {
                    return Ok(Some(number(now.value.as_deref())?));
                }
                Outcome::Lost => return Err(Error::Lost),
                Outcome::Full => return Err(Error::Full),
                _ => {}
            }
        }
        Ok(None)
    }
}
