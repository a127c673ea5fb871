//! Leader election: who leads writes a key again before its lease is over.
//!
//! The value: letter E, three zeros, the lease in milliseconds (4 bytes), the leader's number at
//! random (8; 0: nobody leads), the leader's name (up to 112). Nobody but the leader writes the key
//! while it leads, so its version says whether it still does.

use crate::cell::{Error, Pauses, Seen, Swapped, read, swap};
use crate::mutation::{Mutation, planted};
use crate::{Store, judged_us, names};
use netchain_client::{Key, Request};
use std::time::Duration;

const HEAD_BYTES: usize = 16;
const NAME_BYTES: usize = 128 - HEAD_BYTES;
const LEASE_MS: std::ops::RangeInclusive<u128> = 10..=24 * 3600 * 1000;

/// What the key says.
struct Post {
    lease_us: u64,
    owner: u64,
    name: Vec<u8>,
}

fn decode(value: Option<&[u8]>) -> Result<Option<Post>, Error> {
    let Some(value) = value else { return Ok(None) };
    let number = |at: usize| value.get(at..at + 8).and_then(|it| it.try_into().ok());
    let (Some(head), Some(owner)) = (number(0), number(8)) else {
        return Err(Error::NotOurs("the key has a value of another kind".into()));
    };
    let (head, owner) = (u64::from_be_bytes(head), u64::from_be_bytes(owner));
    if head >> 32 != u64::from(b'E') << 24 {
        return Err(Error::NotOurs("the key has a value of another kind".into()));
    }
    let lease_us = (head & 0xffff_ffff) * 1000;
    let name = value.get(HEAD_BYTES..).unwrap_or_default().to_vec();
    Ok((owner != 0).then_some(Post { lease_us, owner, name }))
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leads {
    /// The name that it gave.
    pub name: Vec<u8>,
    /// The key's version: it grows with each refresh and each new leader.
    pub version: u64,
    /// The lease that others wait for.
    pub lease: Duration,
}

/// An election.
#[derive(Clone)]
pub struct Election<S> {
    store: S,
    key: Key,
    lease_ms: u32,
}

impl<S: Store + Clone> Election<S> {
    /// An election with a name of at most 16 bytes. `lease`: of this candidate, should it lead.
    ///
    /// # Errors
    /// The name is too long, or the lease too short or too long.
    pub fn new(store: S, name: &str, lease: Duration) -> Result<Election<S>, Error> {
        if !LEASE_MS.contains(&lease.as_millis()) {
            return Err(Error::Parameter(format!(
                "the lease must be {} to {} ms",
                LEASE_MS.start(),
                LEASE_MS.end()
            )));
        }
        Ok(Election { store, key: names::key(name)?, lease_ms: lease.as_millis() as u32 })
    }

    /// What the key says of the leader. (It may have died: only who waits for a lease knows.) None:
    /// nobody leads, or no switch answers now.
    ///
    /// # Errors
    /// The client cannot ask, the key's group was lost, or the key is of another kind.
    pub async fn leader(&self) -> Result<Option<Leads>, Error> {
        let Some(Seen { version, value }) = read(&self.store, &self.key).await? else {
            return Ok(None);
        };
        let post = decode(value.as_deref())?;
        Ok(post.map(|Post { lease_us, name, .. }| Leads {
            name,
            version,
            lease: Duration::from_micros(lease_us),
        }))
    }

    fn encode(&self, owner: u64, name: &[u8]) -> Vec<u8> {
        let mut value = vec![b'E', 0, 0, 0];
        value.extend(self.lease_ms.to_be_bytes());
        value.extend(owner.to_be_bytes());
        value.extend(name);
        value
    }

    /// Waits until this candidate leads, for at most about `patience`. `name`: of at most 112
    /// bytes, for all to see. None: another one led for so long.
    ///
    /// # Errors
    /// The client cannot ask, the key's group was lost, the name is too long, or the key is of
    /// another kind.
    pub async fn campaign(
        &self,
        name: &[u8],
        patience: Option<Duration>,
    ) -> Result<Option<Leader<S>>, Error> {
        if name.len() > NAME_BYTES {
            let bytes = name.len();
            return Err(Error::Name(format!(
                "a name of {bytes} bytes; a leader's has {NAME_BYTES}"
            )));
        }
        let election = self.clone();
        let owner = self.store.random().max(1);
        let mut leader = Leader {
            election,
            owner,
            value: self.encode(owner, name),
            token: 0,
            version: 0,
            known_us: None,
        };
        let began_us = self.store.now_us();
        let mut pauses = Pauses::new();
        let mut watched: Option<(u64, u64)> = None;
        let mut seen = None;
        loop {
            let now_us = self.store.now_us();
            if patience.is_some_and(|it| now_us.saturating_sub(began_us) > it.as_micros() as u64) {
                return Ok(None);
            }
            let Some(Seen { version, value }) = (match seen.take() {
                Some(seen) => Some(seen),
                None => read(&self.store, &self.key).await?,
            }) else {
                pauses.pause(&self.store).await;
                continue;
            };
            let post = decode(value.as_deref())?;
            let now_us = self.store.now_us();
            if watched.is_none_or(|(watched, _)| watched != version) {
                watched = Some((version, now_us));
            }
            let since_us = watched.map_or(now_us, |(_, since_us)| since_us);
            let over = |post: &Post| now_us - since_us >= judged_us(post.lease_us);
            let free = post.as_ref().is_none_or(|post| post.owner == owner || over(post));
            if !free && !planted(Mutation::ElectedByPut) {
                pauses.pause(&self.store).await;
                continue;
            }
            seen = leader.write(version).await?;
            if leader.is_leader() {
                return Ok(Some(leader));
            }
            if seen.is_none() {
                pauses.pause(&self.store).await;
            }
        }
    }
}

/// A candidate that leads.
pub struct Leader<S> {
    election: Election<S>,
    owner: u64,
    value: Vec<u8>,
    token: u64,
    version: u64,
    /// When the newest write was sent that is known to be done.
    known_us: Option<u64>,
}

impl<S: Store + Clone> Leader<S> {
    /// The fencing token: larger than those of all earlier leaders.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// It leads, as far as its own clock can tell.
    pub fn is_leader(&self) -> bool {
        !self.left().is_zero()
    }

    /// So long it leads without a refresh.
    pub fn left(&self) -> Duration {
        let Some(known_us) = self.known_us else { return Duration::ZERO };
        let until_us = known_us + u64::from(self.election.lease_ms) * 1000;
        Duration::from_micros(until_us.saturating_sub(self.election.store.now_us()))
    }

    /// Writes the key in its own name. What the key has then; None: nobody knows.
    async fn write(&mut self, version: u64) -> Result<Option<Seen>, Error> {
        let (store, key) = (self.election.store.clone(), &self.election.key);
        let sent_us = store.now_us();
        let swapped = if planted(Mutation::ElectedByPut) {
            crate::cell::swapped(store.ask(Request::put(key, &self.value)).await)?
        } else {
            swap(&store, key, version, &self.value).await?
        };
        Ok(match swapped {
            Swapped::Done { own, now } => {
                let owns = decode(now.value.as_deref())?.is_some_and(|it| it.owner == self.owner);
                // (Its own version is not known if others wrote since: then it leads no more.)
                if let Some(own) = own
                    && owns
                {
                    // (While it did not lead, another one may have.)
                    self.token = if self.is_leader() { self.token } else { own };
                    self.known_us = Some(sent_us);
                    self.version = own;
                }
                Some(now)
            }
            Swapped::Not(now) => Some(now),
            Swapped::Unknown => None,
        })
    }

    /// Renews the lease. False: it is lost, or no switch could be asked in its time. Call it when a
    /// third of the lease is over.
    ///
    /// # Errors
    /// The client cannot ask, or the key's group was lost.
    pub async fn refresh(&mut self) -> Result<bool, Error> {
        let mut pauses = Pauses::new();
        let before = self.known_us;
        let mut version = Some(self.version);
        while self.is_leader() {
            let Some(at) = version.take() else {
                // The last write's outcome is unknown: the key tells.
                let Some(seen) = read(&self.election.store, &self.election.key).await? else {
                    pauses.pause(&self.election.store).await;
                    continue;
                };
                version = self.still(&seen)?;
                if version.is_none() {
                    self.known_us = None;
                }
                continue;
            };
            let Some(seen) = self.write(at).await? else { continue };
            if self.known_us > before {
                return Ok(self.is_leader());
            }
            version = self.still(&seen)?;
            if version.is_none() {
                self.known_us = None;
            }
        }
        Ok(false)
    }

    /// The key's version, if it has this leader's value.
    fn still(&self, seen: &Seen) -> Result<Option<u64>, Error> {
        let owns = decode(seen.value.as_deref())?.is_some_and(|post| post.owner == self.owner);
        Ok(owns.then_some(seen.version))
    }

    /// Leads no more, so that others need not wait for the lease's end.
    ///
    /// # Errors
    /// The client cannot ask, or the key's group was lost.
    pub async fn resign(mut self) -> Result<(), Error> {
        self.known_us = None;
        self.value = self.election.encode(0, b"");
        let mut version = self.version;
        for _ in 0..3 {
            match self.write(version).await? {
                Some(_) => return Ok(()), // done, or another one leads
                None => {
                    let seen = read(&self.election.store, &self.election.key).await?;
                    let Some(seen) = seen else { continue };
                    let Some(still) = self.still(&seen)? else { return Ok(()) };
                    version = still;
                }
            }
        }
        Ok(())
    }
}
