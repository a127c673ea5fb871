//! A barrier: all of its participants wait until the last one is there, again and again.
//!
//! The value: letter B, a zero, the number of participants (2 bytes), the round (4), a bit for each
//! participant that is there. To be there twice changes nothing, so a write whose outcome is
//! unknown is made again.

use crate::cell::{Error, Pauses, Seen, Swapped, read, swap};
use crate::mutation::{Mutation, planted};
use crate::{Store, names};
use netchain_client::Key;
use std::time::Duration;

const HEAD_BYTES: usize = 8;
/// Participants at the most: bits of a value.
const MOST: u16 = (128 - HEAD_BYTES as u16) * 8;

/// A barrier for participants with numbers. A participant that dies holds up all others: there is
/// no lease, as nobody could be there in its place.
pub struct Barrier<S> {
    store: S,
    key: Key,
    count: u16,
    own: u16,
    /// The round that this participant waits for next. None: as the key says.
    round: Option<u32>,
}

struct State {
    round: u32,
    bits: Vec<u8>,
}

impl<S: Store + Clone> Barrier<S> {
    /// A barrier with a name of at most 16 bytes, for `count` participants (1 to 960), of whom this
    /// is number `own`, from 0 on. No two may have one number.
    ///
    /// # Errors
    /// The name is too long, or there is no such number.
    pub fn new(store: S, name: &str, count: u16, own: u16) -> Result<Barrier<S>, Error> {
        if count == 0 || count > MOST || own >= count {
            let said = format!("participant {own} of {count}; write 1 to {MOST} participants");
            return Err(Error::Parameter(said));
        }
        Ok(Barrier { store, key: names::key(name)?, count, own, round: None })
    }

    fn decode(&self, value: Option<&[u8]>) -> Result<State, Error> {
        let bytes = usize::from(self.count).div_ceil(8);
        let Some(value) = value else { return Ok(State { round: 0, bits: vec![0; bytes] }) };
        let [count_high, count_low] = self.count.to_be_bytes();
        match value.split_first_chunk::<HEAD_BYTES>() {
            Some(([b'B', 0, high, low, round @ ..], bits))
                if [*high, *low] == [count_high, count_low] && bits.len() == bytes =>
            {
                Ok(State { round: u32::from_be_bytes(*round), bits: bits.to_vec() })
            }
            _ => {
                let said =
                    "the key has a value of another kind, or of another number of participants";
                Err(Error::NotOurs(said.into()))
            }
        }
    }

    fn encode(&self, state: &State) -> Vec<u8> {
        let mut value = vec![b'B', 0];
        value.extend(self.count.to_be_bytes());
        value.extend(state.round.to_be_bytes());
        value.extend(&state.bits);
        value
    }

    /// Waits until all participants have called it, for at most about `patience`. False: not all
    /// did for so long. This one is still there then, and goes on to wait when it calls again.
    ///
    /// # Errors
    /// The client cannot ask, the key's group was lost, or the key is of another kind.
    pub async fn wait(&mut self, patience: Option<Duration>) -> Result<bool, Error> {
        let began_us = self.store.now_us();
        let mut pauses = Pauses::new();
        let mut seen = None;
        loop {
            let waited_us = self.store.now_us().saturating_sub(began_us);
            if patience.is_some_and(|it| waited_us > it.as_micros() as u64) {
                return Ok(false);
            }
            let Some(Seen { version, value }) = (match seen.take() {
                Some(seen) => Some(seen),
                None => read(&self.store, &self.key).await?,
            }) else {
                pauses.pause(&self.store).await;
                continue;
            };
            let mut state = self.decode(value.as_deref())?;
            let round = *self.round.get_or_insert(state.round);
            if state.round != round {
                self.round = Some(state.round);
                return Ok(true);
            }
            let (byte, bit) = (usize::from(self.own / 8), 1 << (self.own % 8));
            if state.bits[byte] & bit != 0 {
                pauses.pause(&self.store).await;
                continue;
            }
            state.bits[byte] |= bit;
            let there: u32 = state.bits.iter().map(|bits| bits.count_ones()).sum();
            let early = u32::from(planted(Mutation::BarrierOpensEarly) && self.count > 1);
            if there + early >= u32::from(self.count) {
                state = State { round: round.wrapping_add(1), bits: vec![0; state.bits.len()] };
            }
            match swap(&self.store, &self.key, version, &self.encode(&state)).await? {
                Swapped::Done { now, .. } | Swapped::Not(now) => seen = Some(now),
                Swapped::Unknown => pauses.pause(&self.store).await,
            }
        }
    }
}
