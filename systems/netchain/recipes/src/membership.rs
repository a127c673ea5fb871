//! Membership: each member has a place, which is a key that it writes again before its lease is
//! over. (Switches cannot list keys yet, so places have numbers.)
//!
//! The value: letter M, three zeros, the lease in milliseconds (4 bytes), the member's number at
//! random (8; 0: it left), what it tells (up to 112).

use crate::cell::{Error, Pauses, Seen, Swapped, read, seen, swap};
use crate::mutation::{Mutation, planted};
use crate::{Store, judged_us, names};
use netchain_client::{Key, Request};
use std::collections::HashMap;
use std::time::Duration;

const HEAD_BYTES: usize = 16;
const TOLD_BYTES: usize = 128 - HEAD_BYTES;
const LEASE_MS: std::ops::RangeInclusive<u128> = 10..=24 * 3600 * 1000;

struct Post {
    lease_us: u64,
    owner: u64,
    told: Vec<u8>,
}

fn decode(value: Option<&[u8]>) -> Result<Option<Post>, Error> {
    let Some(value) = value else { return Ok(None) };
    let Some((head, told)) = value.split_first_chunk::<HEAD_BYTES>() else {
        return Err(Error::NotOurs("the key has a value of another kind".into()));
    };
    let head = u128::from_be_bytes(*head);
    if head >> 96 != u128::from(b'M') << 24 {
        return Err(Error::NotOurs("the key has a value of another kind".into()));
    }
    let (lease_us, owner) = ((head >> 64) as u64 & 0xffff_ffff, head as u64);
    let post = Post { lease_us: lease_us * 1000, owner, told: told.to_vec() };
    Ok((owner != 0).then_some(post))
}

/// When a place's present version was first seen, by the clock of who looks.
#[derive(Default)]
struct Watch(HashMap<u16, (u64, u64)>);

impl Watch {
    /// A place has this version, as was heard at one time: was the lease of its member over at
    /// another one?
    fn is_over(&mut self, at: u16, version: u64, post: &Post, heard_us: u64, now_us: u64) -> bool {
        let known = self.0.entry(at).or_insert((version, heard_us));
        if known.0 != version {
            *known = (version, heard_us);
        }
        let judged_us = match planted(Mutation::MemberMissed) {
            true => post.lease_us / 2,
            false => judged_us(post.lease_us),
        };
        now_us.saturating_sub(known.1) >= judged_us
    }
}

/// A group of members.
pub struct Membership<S> {
    store: S,
    name: String,
    places: u16,
}

impl<S: Store + Clone> Membership<S> {
    /// A group with a name of at most 13 bytes, and so many places. All its users must have the
    /// same number of places.
    ///
    /// # Errors
    /// The name is too long, or there are no places.
    pub fn new(store: S, name: &str, places: u16) -> Result<Membership<S>, Error> {
        if places == 0 || places == u16::MAX {
            return Err(Error::Parameter(format!("{places} places; write 1 to 65534")));
        }
        names::place(name, 0)?;
        Ok(Membership { store, name: name.to_owned(), places })
    }

    fn key(&self, at: u16) -> Result<Key, Error> {
        names::place(&self.name, at)
    }

    /// Takes a place, for at most about `patience`: one that is free, or whose member's lease is
    /// over. `told`: at most 112 bytes, for all to see. None: all places were taken for so long.
    ///
    /// # Errors
    /// The client cannot ask, a key's group was lost, `told` is too long, or a key is of another
    /// kind.
    pub async fn join(
        &self,
        told: &[u8],
        lease: Duration,
        patience: Option<Duration>,
    ) -> Result<Option<Member<S>>, Error> {
        if told.len() > TOLD_BYTES {
            let bytes = told.len();
            return Err(Error::Name(format!("{bytes} bytes; a member tells {TOLD_BYTES}")));
        }
        if !LEASE_MS.contains(&lease.as_millis()) {
            return Err(Error::Parameter(format!(
                "the lease must be {} to {} ms",
                LEASE_MS.start(),
                LEASE_MS.end()
            )));
        }
        let lease_ms = lease.as_millis() as u32;
        let began_us = self.store.now_us();
        let mut watch = Watch::default();
        let mut pauses = Pauses::new();
        loop {
            for at in 0..self.places {
                let now_us = self.store.now_us();
                let waited_us = now_us.saturating_sub(began_us);
                if patience.is_some_and(|it| waited_us > it.as_micros() as u64) {
                    return Ok(None);
                }
                let key = self.key(at)?;
                let Some(Seen { version, value }) = read(&self.store, &key).await? else {
                    continue;
                };
                let now_us = self.store.now_us();
                let post = decode(value.as_deref())?;
                if post.is_some_and(|post| !watch.is_over(at, version, &post, now_us, now_us)) {
                    continue;
                }
                // Each try has a number of its own, so one whose outcome is unknown is nobody's.
                let owner = self.store.random().max(1);
                let mut member = Member {
                    store: self.store.clone(),
                    key,
                    place: at,
                    lease_ms,
                    owner,
                    value: encode(lease_ms, owner, told),
                    version,
                    known_us: None,
                };
                member.write().await?;
                if member.is_member() {
                    return Ok(Some(member));
                }
            }
            pauses.pause(&self.store).await;
        }
    }

    /// Somebody who looks who the members are.
    pub fn observer(&self) -> Observer<S> {
        let (store, name, places) = (self.store.clone(), self.name.clone(), self.places);
        Observer { of: Membership { store, name, places }, watch: Watch::default() }
    }
}

fn encode(lease_ms: u32, owner: u64, told: &[u8]) -> Vec<u8> {
    let mut value = vec![b'M', 0, 0, 0];
    value.extend(lease_ms.to_be_bytes());
    value.extend(owner.to_be_bytes());
    value.extend(told);
    value
}

/// A member.
pub struct Member<S> {
    store: S,
    key: Key,
    place: u16,
    lease_ms: u32,
    owner: u64,
    value: Vec<u8>,
    version: u64,
    /// When the newest write was sent that is known to be done.
    known_us: Option<u64>,
}

impl<S: Store + Clone> Member<S> {
    /// The number of its place. It is no other living member's.
    pub fn place(&self) -> u16 {
        self.place
    }

    /// It is a member, as far as its own clock can tell.
    pub fn is_member(&self) -> bool {
        !self.left().is_zero()
    }

    /// So long it is a member without a refresh.
    pub fn left(&self) -> Duration {
        let Some(known_us) = self.known_us else { return Duration::ZERO };
        let until_us = known_us + u64::from(self.lease_ms) * 1000;
        Duration::from_micros(until_us.saturating_sub(self.store.now_us()))
    }

    /// True if its outcome is known.
    async fn write(&mut self) -> Result<bool, Error> {
        let sent_us = self.store.now_us();
        match swap(&self.store, &self.key, self.version, &self.value).await? {
            Swapped::Done { own: Some(own), now } if now.version == own => {
                (self.known_us, self.version) = (Some(sent_us), own);
            }
            // (Somebody else wrote the place since.)
            Swapped::Done { .. } => self.known_us = None,
            Swapped::Not(now) => match decode(now.value.as_deref())? {
                Some(post) if post.owner == self.owner => self.version = now.version,
                _ => self.known_us = None,
            },
            Swapped::Unknown => return Ok(false),
        }
        Ok(true)
    }

    /// Renews the lease. False: it is lost, or no switch could be asked in its time. Call it when a
    /// third of the lease is over.
    ///
    /// # Errors
    /// The client cannot ask, or the key's group was lost.
    pub async fn refresh(&mut self) -> Result<bool, Error> {
        let before = self.known_us;
        let mut pauses = Pauses::new();
        while self.is_member() {
            if !self.write().await? {
                pauses.pause(&self.store).await;
            } else if self.known_us > before {
                return Ok(self.is_member());
            }
        }
        Ok(false)
    }

    /// Leaves: others need not wait for the lease's end.
    ///
    /// # Errors
    /// The client cannot ask, or the key's group was lost.
    pub async fn leave(mut self) -> Result<(), Error> {
        self.known_us = None;
        self.value = encode(self.lease_ms, 0, b"");
        for _ in 0..3 {
            let version = self.version;
            if self.write().await? && self.version == version {
                break; // (else the place was its own, in another version)
            }
        }
        Ok(())
    }
}

/// Looks who the members are, again and again. It tells a member that died after a lease, counted
/// from when it first saw that member's last refresh.
pub struct Observer<S> {
    of: Membership<S>,
    watch: Watch,
}

impl<S: Store + Clone> Observer<S> {
    /// The members: places, and what they tell. None: not all places could be read now.
    ///
    /// # Errors
    /// The client cannot ask, a key's group was lost, or a key is of another kind.
    pub async fn look(&mut self) -> Result<Option<Vec<(u16, Vec<u8>)>>, Error> {
        let keys = (0..self.of.places).map(|at| self.of.key(at));
        let keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
        // The lease may end while the answers are on their way: before, it had not.
        let asked_us = self.of.store.now_us();
        let answers = self.of.store.ask_all(keys.iter().map(Request::get).collect()).await;
        let mut members = vec![];
        for (at, answer) in (0..self.of.places).zip(answers) {
            let Some(Seen { version, value }) = seen(answer)? else { return Ok(None) };
            let heard_us = self.of.store.now_us();
            let Some(post) = decode(value.as_deref())? else { continue };
            if !self.watch.is_over(at, version, &post, heard_us, asked_us) {
                members.push((at, post.told));
            }
        }
        Ok(Some(members))
    }
}
