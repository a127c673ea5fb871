//! Transactions by two-phase locking.

use crate::cell::{Error, Pauses, Seen, Swapped, read, swap};
use crate::lock::Lock;
use crate::mutation::{Mutation, planted};
use crate::{Seat, Store, names};
use netchain_client::Key;
use std::collections::BTreeMap;
use std::time::Duration;

/// Values by the names of keys. None: the key has no value.
pub type Values = BTreeMap<String, Option<Vec<u8>>>;

/// A transaction on some keys: it locks them all, in the order of their names, reads them, writes
/// them, and gives the locks back.
///
/// **It gives isolation, and no more.** No other transaction on one of these keys sees or makes a
/// change between its first read and its last write. Who reads a key without a transaction may see
/// some of the writes before the others. If the client dies between two writes, some are done and
/// the others are not, for good: there is no log and no undo. Writes compare versions, so a
/// transaction that lost its locks writes nothing over what came after.
pub struct Transaction<S> {
    store: S,
    names: Vec<String>,
    lease: Duration,
}

impl<S: Store + Clone> Transaction<S> {
    /// On the keys with these names, of at most 14 bytes each. `lease`: of the locks, the same for
    /// all users; the transaction must be done in it.
    ///
    /// # Errors
    /// A name is too long.
    pub fn new(store: S, names: &[&str], lease: Duration) -> Result<Transaction<S>, Error> {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        names.dedup();
        for name in &names {
            names::guarded(name)?;
        }
        Ok(Transaction { store, names, lease })
    }

    /// Runs it: `change` gets the keys' values, and returns those that it changes. None: the locks
    /// could not be had for about `patience`, and nothing was done.
    ///
    /// # Errors
    /// [`Error::LockLost`]: with the number of writes that were done. Else the client cannot ask, a
    /// key's group was lost, or `change` names a key that the transaction did not lock.
    pub async fn run(
        &self,
        patience: Option<Duration>,
        change: impl FnOnce(&Values) -> Values,
    ) -> Result<Option<Values>, Error> {
        let early = match planted(Mutation::ReadBeforeLocks) {
            true => Some(self.read_all().await?),
            false => None,
        };
        let mut seats: Vec<Seat<S>> = vec![];
        for name in &self.names {
            let seat = Lock::guard(self.store.clone(), name, self.lease)?.take(patience).await?;
            let Some(seat) = seat else {
                release(seats).await?;
                return Ok(None);
            };
            seats.push(seat);
        }
        let done = self.locked(&mut seats, early, change).await;
        release(seats).await?;
        done.map(Some)
    }

    async fn read_all(&self) -> Result<BTreeMap<String, Seen>, Error> {
        let mut all = BTreeMap::new();
        for name in &self.names {
            let key = names::guarded(name)?;
            let mut pauses = Pauses::new();
            let seen = loop {
                match read(&self.store, &key).await? {
                    Some(seen) => break seen,
                    None => pauses.pause(&self.store).await,
                }
            };
            all.insert(name.clone(), seen);
        }
        Ok(all)
    }

    async fn locked(
        &self,
        seats: &mut [Seat<S>],
        early: Option<BTreeMap<String, Seen>>,
        change: impl FnOnce(&Values) -> Values,
    ) -> Result<Values, Error> {
        let read = match early {
            Some(read) => read,
            None => self.read_all().await?,
        };
        let values: Values =
            read.iter().map(|(name, seen)| (name.clone(), seen.value.clone())).collect();
        let writes = change(&values);
        // (A key that has no value stays without one: a delete would be a write of its own.)
        for (name, value) in &writes {
            if !read.contains_key(name) || value.is_none() {
                let said =
                    format!("the transaction cannot write {name:?}: not locked, or no value");
                return Err(Error::Parameter(said));
            }
        }
        for seat in seats.iter_mut() {
            if !seat.refresh().await? {
                return Err(Error::LockLost { written: 0 });
            }
        }
        for (written, (name, value)) in writes.iter().enumerate() {
            let (key, seen) = (names::guarded(name)?, &read[name]);
            let value = value.as_deref().unwrap_or_default();
            let held = seats.iter().all(Seat::is_held);
            if !held || !self.write(&key, seen, value, seats).await? {
                return Err(Error::LockLost { written });
            }
        }
        Ok(writes)
    }

    /// Writes a key that nobody else writes as long as the locks are held.
    async fn write(
        &self,
        key: &Key,
        seen: &Seen,
        value: &[u8],
        seats: &[Seat<S>],
    ) -> Result<bool, Error> {
        let mut pauses = Pauses::new();
        let compared = match planted(Mutation::ReadBeforeLocks) {
            true => read(&self.store, key).await?.map_or(seen.version, |now| now.version),
            false => seen.version,
        };
        let mut asked_before = false;
        while seats.iter().all(Seat::is_held) {
            match swap(&self.store, key, compared, value).await? {
                Swapped::Done { .. } => return Ok(true),
                // The version has moved by one write, and only this transaction writes.
                Swapped::Not(now) => {
                    return Ok(asked_before && now.value.as_deref() == Some(value));
                }
                Swapped::Unknown => {
                    asked_before = true;
                    pauses.pause(&self.store).await;
                }
            }
        }
        Ok(false)
    }
}

async fn release<S: Store + Clone>(seats: Vec<Seat<S>>) -> Result<(), Error> {
    for seat in seats {
        seat.release().await?;
    }
    Ok(())
}
