//! Locks and semaphores: rules over a queue ([`crate::seats`]).

use crate::seats::{ENTRIES, Rule, Seats};
use crate::{Error, Seat, Store, names};
use std::time::Duration;

/// An exclusive lock with a fair queue: who came first holds it first. 15 hold or wait in the
/// queue; more than that come again until they find a place, without an order.
pub struct Lock<S>(Seats<S>);

impl<S: Store + Clone> Lock<S> {
    /// A lock with a name of at most 16 bytes. All its users must have the same lease.
    ///
    /// # Errors
    /// The name is too long, or the lease too short or too long.
    pub fn new(store: S, name: &str, lease: Duration) -> Result<Lock<S>, Error> {
        Ok(Lock(Seats::new(store, names::key(name)?, Rule::Exclusive, lease)?))
    }

    pub(crate) fn guard(store: S, name: &str, lease: Duration) -> Result<Lock<S>, Error> {
        Ok(Lock(Seats::new(store, names::guard(name)?, Rule::Exclusive, lease)?))
    }

    /// Waits for the lock, for at most about `patience`. None: others had it for so long.
    ///
    /// A future that is dropped leaves its place in the queue to be judged: a lease.
    ///
    /// # Errors
    /// The client cannot ask, the key's group was lost, or the key is of another kind.
    pub async fn take(&self, patience: Option<Duration>) -> Result<Option<Seat<S>>, Error> {
        self.0.take(true, patience).await
    }
}

/// A lock that one writer or many readers hold. Who came first holds it first, so readers do not
/// pass a writer that waits. 15 hold or wait, as for [`Lock`].
pub struct RwLock<S>(Seats<S>);

impl<S: Store + Clone> RwLock<S> {
    /// A lock with a name of at most 16 bytes. All its users must have the same lease.
    ///
    /// # Errors
    /// The name is too long, or the lease too short or too long.
    pub fn new(store: S, name: &str, lease: Duration) -> Result<RwLock<S>, Error> {
        Ok(RwLock(Seats::new(store, names::key(name)?, Rule::ReadersWriter, lease)?))
    }

    /// Waits to read, for at most about `patience`.
    ///
    /// # Errors
    /// See [`Lock::take`].
    pub async fn read(&self, patience: Option<Duration>) -> Result<Option<Seat<S>>, Error> {
        self.0.take(false, patience).await
    }

    /// Waits to write, for at most about `patience`.
    ///
    /// # Errors
    /// See [`Lock::take`].
    pub async fn write(&self, patience: Option<Duration>) -> Result<Option<Seat<S>>, Error> {
        self.0.take(true, patience).await
    }
}

/// A semaphore: so many hold it at a time. 15 hold or wait, as for [`Lock`].
pub struct Semaphore<S>(Seats<S>);

impl<S: Store + Clone> Semaphore<S> {
    /// A semaphore with a name of at most 16 bytes. All its users must have the same permits and
    /// lease.
    ///
    /// # Errors
    /// The name is too long, the lease too short or too long, or permits are not 1 to 15.
    pub fn new(store: S, name: &str, permits: u8, lease: Duration) -> Result<Semaphore<S>, Error> {
        if permits == 0 || usize::from(permits) > ENTRIES {
            return Err(Error::Parameter(format!("{permits} permits; write 1 to {ENTRIES}")));
        }
        Ok(Semaphore(Seats::new(store, names::key(name)?, Rule::Permits(permits), lease)?))
    }

    /// Waits for a permit, for at most about `patience`.
    ///
    /// # Errors
    /// See [`Lock::take`].
    pub async fn take(&self, patience: Option<Duration>) -> Result<Option<Seat<S>>, Error> {
        self.0.take(false, patience).await
    }
}
