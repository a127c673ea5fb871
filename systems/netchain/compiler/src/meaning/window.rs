//! What a RequestWindow means on one node. No client is forgotten here: that takes a clock.

use super::{answer, size_of};
use num_bigint::BigInt;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Object, Shape};
use std::collections::BTreeMap;

/// WindowState, by position.
const FRESH: u32 = 0;
const RUNNING: u32 = 1;
const OLD: u32 = 4;
const FULL: u32 = 5;

/// SP_WINDOW_CELLS in bpf/netchain/stateplane_window.h.
const CELLS: u32 = 256;

/// A client, by the bits of its key.
type Client = Vec<BigInt>;

#[derive(Clone)]
pub(super) struct Windows {
    client: Shape,
    size: usize,
    /// The newest number of each cell, and its verdict; FRESH: it was given back.
    held: BTreeMap<Client, BTreeMap<u32, (u32, u32)>>,
    /// What the packet has claimed.
    claimed: Option<(Client, u32)>,
}

impl Windows {
    pub(super) fn declare(declaration: &Declaration<'_>) -> Result<Windows, Stop> {
        let [client] = &declaration.types[..] else {
            return Err(Stop::Broken("a RequestWindow without a type".into()));
        };
        let size = size_of(declaration)?;
        Ok(Windows { client: client.clone(), size, held: BTreeMap::new(), claimed: None })
    }

    fn claim(&mut self, client: Client, number: u32) -> u32 {
        if self.claimed.is_some() {
            return FRESH;
        }
        if !self.held.contains_key(&client) && self.held.len() >= self.size {
            return FULL;
        }
        let cells = self.held.entry(client.clone()).or_default();
        match cells.get(&(number % CELLS)) {
            Some((newest, _)) if *newest > number => OLD,
            Some((newest, verdict)) if *newest == number && *verdict != FRESH => *verdict,
            _ => {
                cells.insert(number % CELLS, (number, RUNNING));
                self.claimed = Some((client, number));
                FRESH
            }
        }
    }

    fn settle(&mut self, verdict: u32) {
        let Some((client, number)) = self.claimed.take() else { return };
        if let Some(cells) = self.held.get_mut(&client) {
            cells.insert(number % CELLS, (number, verdict));
        }
    }
}

/// An argument that is a scalar of 32 bits or fewer.
fn small(datum: &Datum) -> Result<u32, Stop> {
    let bits = Shape::Scalar(32).bits(datum)?;
    bits.first()
        .and_then(|bits| u32::try_from(bits).ok())
        .ok_or_else(|| Stop::Broken("an argument that is no number of 32 bits".into()))
}

impl Object for Windows {
    fn begin_packet(&mut self) {
        self.claimed = None;
    }

    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        match (call.method, call.arguments) {
            ("claim", [client, number]) => {
                let state = self.claim(self.client.bits(client)?, small(number)?);
                answer(state)
            }
            ("settle", [verdict]) => {
                self.settle(small(verdict)?);
                answer(0)
            }
            (other, _) => Err(Stop::Unsupported(format!("RequestWindow.{other}"))),
        }
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
