//! What a server writes down so that it is the same server after a power cut, and how that is read
//! again. The README names the page with the rules.
//!
//! Items are appended to `Outputs::journal`; the caller makes them durable, in order, and says so
//! with `Replica::became_durable`. Reading them back, up to any item that was durable, gives the
//! state that this server may go on with.

use crate::{DoesNotApply, Entries, Entry, NOBODY, StateMachine};
use std::collections::VecDeque;
use thiserror::Error;
use wire::{Control, Views};

const ITEM_HEADER_BYTES: usize = 8;

/// One item. Numbers are big-endian; an item is kind (1 byte), 0, shard (2), length of the rest
/// (4), the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// The newest views: a control message.
    Views(&'a [u8]),
    /// A replica begins: without state as a founding member (`since` 0), or as one that joins since
    /// view `since`.
    Begin {
        /// The shard.
        shard: u16,
        /// The founding that its state is of.
        founded: u64,
        /// The view in which the joining began, or 0.
        since: u64,
    },
    /// A joining replica took an effect of the copy; the bytes are an entry's, without reply.
    Copied {
        /// The shard.
        shard: u16,
        /// The effect.
        entry: &'a [u8],
    },
    /// A joining replica has the whole copy, and so everything up to `index`.
    Whole {
        /// The shard.
        shard: u16,
        /// The last entry that the copy has the effect of.
        index: u64,
    },
    /// An entry was applied; `committed` was at the tail.
    Entry {
        /// The shard.
        shard: u16,
        /// Its number.
        index: u64,
        /// The last entry known to be at the tail.
        committed: u64,
        /// Its effect.
        entry: &'a [u8],
    },
    /// This server is in the shard's chain no more.
    Left {
        /// The shard.
        shard: u16,
    },
    /// From here to `Checkpointed`, `Copied` and `Kept` describe the replica anew: what is before
    /// does not matter any more.
    Checkpoint {
        /// The shard.
        shard: u16,
        /// The founding that its state is of.
        founded: u64,
        /// The view in which the joining began, or 0.
        since: u64,
        /// It has everything that was ever acknowledged.
        synced: bool,
        /// The last entry applied.
        index: u64,
    },
    /// An entry that the tail has not confirmed; its effect is in the description.
    Kept {
        /// The shard.
        shard: u16,
        /// Its number.
        index: u64,
        /// Its effect.
        entry: &'a [u8],
    },
    /// The description is complete.
    Checkpointed {
        /// The shard.
        shard: u16,
    },
}

impl<'a> Item<'a> {
    /// Appends it to a journal.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let none = [].as_slice();
        let (kind, shard, numbers, rest): (u8, u16, &[u64], &[u8]) = match self {
            Item::Views(views) => (1, 0, &[], views),
            Item::Begin { shard, founded, since } => (2, *shard, &[*founded, *since], none),
            Item::Copied { shard, entry } => (3, *shard, &[], entry),
            Item::Whole { shard, index } => (4, *shard, &[*index], none),
            Item::Entry { shard, index, committed, entry } => {
                (5, *shard, &[*index, *committed], entry)
            }
            Item::Left { shard } => (6, *shard, &[], none),
            Item::Checkpoint { shard, founded, since, synced, index } => {
                (7, *shard, &[*founded, *since, u64::from(*synced), *index], none)
            }
            Item::Kept { shard, index, entry } => (8, *shard, &[*index], entry),
            Item::Checkpointed { shard } => (9, *shard, &[], none),
        };
        let length = numbers.len() * 8 + rest.len();
        bytes.extend_from_slice(&[kind, 0]);
        bytes.extend_from_slice(&shard.to_be_bytes());
        bytes.extend_from_slice(&(length as u32).to_be_bytes()); // views and entries are a few KiB
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
        bytes.extend_from_slice(rest);
    }

    /// Takes an item off the front of `bytes`; `None`: there is none, or nothing of this kind.
    fn take(bytes: &mut &'a [u8]) -> Option<Item<'a>> {
        let (head, rest) = bytes.split_first_chunk::<ITEM_HEADER_BYTES>()?;
        let (kind, shard) = (head[0], u16::from_be_bytes([head[2], head[3]]));
        let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let (mut body, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let mut number = || {
            let (number, rest) = body.split_first_chunk::<8>()?;
            body = rest;
            Some(u64::from_be_bytes(*number))
        };
        let item = match kind {
            1 => Item::Views(body),
            2 => Item::Begin { shard, founded: number()?, since: number()? },
            3 => Item::Copied { shard, entry: body },
            4 => Item::Whole { shard, index: number()? },
            5 => {
                let (index, committed) = (number()?, number()?);
                Item::Entry { shard, index, committed, entry: body }
            }
            6 => Item::Left { shard },
            7 => Item::Checkpoint {
                shard,
                founded: number()?,
                since: number()?,
                synced: number()? != 0,
                index: number()?,
            },
            8 => {
                let index = number()?;
                Item::Kept { shard, index, entry: body }
            }
            9 => Item::Checkpointed { shard },
            _ => return None,
        };
        *bytes = rest;
        Some(item)
    }
}

/// Appends an effect as the bytes of an entry without client or reply.
pub(crate) fn effect_bytes<S: StateMachine>(effect: S::Effect<'_>, bytes: &mut Vec<u8>) {
    bytes.clear();
    let entry: Entry<'_, S> = wire::Entry { effect, client: NOBODY, reply: &[] };
    // Fails only for what was too long to be taken.
    let _ = entry.append_to(bytes);
}

/// Why items cannot be what this server wrote.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadJournal {
    /// Bytes that are no item.
    #[error("an item of the log cannot be read")]
    Item,
    /// Views that cannot be read.
    #[error("views in the log cannot be read")]
    Views,
    /// An effect that does not fit the state before it.
    #[error("shard {0}: the log has an effect that cannot follow the state before it")]
    Effect(u16),
    /// An entry is missing.
    #[error("shard {shard}: entry {found} follows entry {index}: entries are missing or repeated")]
    Gap {
        /// The shard.
        shard: u16,
        /// The last entry.
        index: u64,
        /// The next one.
        found: u64,
    },
    /// A shard that the configuration does not have.
    #[error("shard {0} is in the log, but not in the configuration")]
    Shard(u16),
}

/// A replica as it was.
pub struct RestoredReplica<S> {
    /// The founding that its state is of.
    pub founded: u64,
    /// The view since which it was joining; 0: it was there from the founding on.
    pub since: u64,
    /// It had everything that was ever acknowledged.
    pub synced: bool,
    /// The last entry applied.
    pub index: u64,
    pub(crate) committed: u64,
    pub(crate) state: S,
    /// Entries that the tail may not have, up to `index`.
    pub(crate) kept: VecDeque<(u64, Vec<u8>)>,
}

impl<S> RestoredReplica<S> {
    /// Its state.
    pub fn state(&self) -> &S {
        &self.state
    }
}

/// A server's state, read from its journal item by item.
pub struct Restored<S> {
    empty: S,
    views: Views,
    replicas: Vec<Option<RestoredReplica<S>>>,
    /// Replicas of which a description has begun and not ended.
    describing: Vec<Option<RestoredReplica<S>>>,
}

impl<S: StateMachine> Restored<S> {
    /// Nothing yet; `empty` is the state that a replica begins with.
    pub fn new(empty: S, shards: u16) -> Restored<S> {
        let none = || (0..shards).map(|_| None).collect();
        Restored { empty, views: Views::default(), replicas: none(), describing: none() }
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.replicas.len() as u16 // as `new` was told
    }

    /// The newest views.
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// The replicas by shard.
    pub fn replicas(&self) -> impl Iterator<Item = (u16, &RestoredReplica<S>)> {
        (0..).zip(&self.replicas).filter_map(|(shard, replica)| Some((shard, replica.as_ref()?)))
    }

    /// The newest views, and the replicas by shard.
    pub fn into_parts(self) -> (Views, Vec<Option<RestoredReplica<S>>>) {
        (self.views, self.replicas)
    }

    /// Reads all items of `bytes`, which continue what was read before.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), BadJournal> {
        while !bytes.is_empty() {
            let item = Item::take(&mut bytes).ok_or(BadJournal::Item)?;
            self.take(item)?;
        }
        Ok(())
    }

    fn empty(&self, founded: u64, since: u64, synced: bool, index: u64) -> RestoredReplica<S> {
        let state = self.empty.empty();
        RestoredReplica {
            founded,
            since,
            synced,
            index,
            committed: 0,
            state,
            kept: VecDeque::new(),
        }
    }

    fn take(&mut self, item: Item<'_>) -> Result<(), BadJournal> {
        let (Item::Begin { shard, .. }
        | Item::Copied { shard, .. }
        | Item::Whole { shard, .. }
        | Item::Entry { shard, .. }
        | Item::Left { shard }
        | Item::Checkpoint { shard, .. }
        | Item::Kept { shard, .. }
        | Item::Checkpointed { shard }) = item
        else {
            let Item::Views(views) = item else { return Err(BadJournal::Item) };
            let Ok(Control::Views(views)) = Control::decode(views) else {
                return Err(BadJournal::Views);
            };
            self.views = views;
            return Ok(());
        };
        let at = usize::from(shard);
        if at >= self.replicas.len() {
            return Err(BadJournal::Shard(shard));
        }
        match item {
            Item::Begin { founded, since, .. } => {
                (self.replicas[at], self.describing[at]) =
                    (Some(self.empty(founded, since, since == 0, 0)), None);
            }
            Item::Left { .. } => (self.replicas[at], self.describing[at]) = (None, None),
            Item::Checkpoint { founded, since, synced, index, .. } => {
                self.describing[at] = Some(self.empty(founded, since, synced, index));
            }
            Item::Checkpointed { .. } => {
                self.replicas[at] = Some(self.describing[at].take().ok_or(BadJournal::Item)?);
            }
            _ => {
                // What a segment that is no longer there began is described again further on: until
                // then it does not matter.
                let Some(replica) = self.describing[at].as_mut().or(self.replicas[at].as_mut())
                else {
                    return Ok(());
                };
                replica.take(shard, item)?;
            }
        }
        Ok(())
    }
}

impl<S: StateMachine> RestoredReplica<S> {
    fn take(&mut self, shard: u16, item: Item<'_>) -> Result<(), BadJournal> {
        match item {
            Item::Copied { entry, .. } => self.apply(shard, entry)?,
            Item::Whole { index, .. } => {
                (self.synced, self.index, self.committed) = (true, index, index)
            }
            Item::Kept { index, entry, .. } => self.kept.push_back((index, entry.to_vec())),
            Item::Entry { index, committed, entry, .. } => {
                if index != self.index + 1 {
                    return Err(BadJournal::Gap { shard, index: self.index, found: index });
                }
                self.apply(shard, entry)?;
                (self.index, self.committed) = (index, committed);
                self.kept.push_back((index, entry.to_vec()));
                while self.kept.front().is_some_and(|(index, _)| *index <= committed) {
                    self.kept.pop_front();
                }
            }
            _ => return Err(BadJournal::Item),
        }
        Ok(())
    }

    fn apply(&mut self, shard: u16, entry: &[u8]) -> Result<(), BadJournal> {
        let entry = Entries::<S>::one(entry).map_err(|_| BadJournal::Item)?;
        self.state.apply(&entry.effect).map_err(|DoesNotApply| BadJournal::Effect(shard))?;
        Ok(())
    }
}
