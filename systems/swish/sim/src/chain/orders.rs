//! What operators read and write of a chain while packets do: by the agent's own steps, between
//! which messages come and go.

use super::access::{Access, MARKS, NUMBERS, Op};
use super::switch::{CPUS, Member, harness};
use super::{Event, World};
use crate::model::{Checked, violated};
use c_layout::CStruct;
use dataplane::layouts::core::TestValue;
use history::linearizable::Operation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::ControlFlow;
use swish_protocol::strong::{flag, outcome};
use swish_switch::strong_keys::{Pending, Table};

/// An order that waits for the chain's answer.
pub(super) struct Order {
    /// Its place in the history.
    id: usize,
    cpu: u32,
    key: u32,
    record: Pending,
    /// What it found.
    found: Option<u32>,
}

/// How far an order came at its begin.
enum Begun {
    /// Nothing is written, and nothing known.
    Not,
    Read(Option<u32>),
    Waits(Pending, Option<u32>),
}

/// An order does not wait here: it is tried again by nobody.
fn at_once() -> switch_agent::Result<ControlFlow<()>> {
    Ok(ControlFlow::Break(()))
}

impl Member {
    fn table(&self, key: u32) -> Checked<&Table> {
        let name = if key >= MARKS { "marks" } else { "numbers" };
        match self.tables.iter().find(|it| it.keyed.name.ends_with(name)) {
            Some(table) => Ok(table),
            None => violated("harness", format!("no table {name}")),
        }
    }

    /// The data plane runs on this CPU, at this time.
    fn stand(&self, cpu: u32, now_ns: u64) -> Checked {
        let test = TestValue { cpu, clock_ns: self.offset_ns + now_ns, ..TestValue::default() };
        harness(self.dataplane.write_array("sp_test", 0, &test.to_bytes()))
    }

    fn begin_order(&self, cpu: u32, op: Op, now_ns: u64) -> Checked<Begun> {
        self.stand(cpu, now_ns)?;
        let (table, dataplane) = (self.table(op.key)?, &self.dataplane);
        let key = op.index().to_be_bytes();
        let write = |flags: u8, value: u32, found: Option<u32>| {
            let value = [value.to_be_bytes(), value.to_be_bytes()].concat();
            let is_read = flags == flag::READ;
            let (key, value) = if is_read { (&[][..], &[][..]) } else { (&key[..], &value[..]) };
            let value = if op.key >= MARKS { &[] } else { value };
            match table.write(dataplane, (key, value), flags, 0, &at_once) {
                Ok(record) => Ok(Begun::Waits(record, found)),
                Err(error) => not_begun(&error.to_string()),
            }
        };
        match op.access {
            Access::Set(value) => write(0, value, None),
            Access::Insert(value) => write(flag::ABSENT, value, None),
            // (Of a register, delete writes zero.)
            Access::Remove if op.key < MARKS => write(0, 0, None),
            Access::Remove => write(flag::REMOVE, 0, None),
            _ => match table.look(dataplane, &key, &at_once) {
                Err(error) => not_begun(&error.to_string()),
                Ok((held, waits)) => {
                    let found = held.map(|it| number(&it.value)).transpose()?.flatten();
                    let found = if op.key >= MARKS { found } else { found.filter(|it| *it > 0) };
                    if waits { write(flag::READ, 0, found) } else { Ok(Begun::Read(found)) }
                }
            },
        }
    }

    /// An operator writes a key of the first table, for so many seconds.
    pub(super) fn lend(&self, key: u32, flags: u8, idle_s: u16, now_ns: u64) -> Checked<Pending> {
        self.stand(0, now_ns)?;
        let (key, value) = (key.to_be_bytes(), [1u8; 8]);
        let first = self.first_table()?;
        harness(first.write(&self.dataplane, (&key, &value), flags, idle_s, &at_once))
    }

    fn first_table(&self) -> Checked<&Table> {
        match self.tables.iter().find(|it| it.keyed.name.ends_with(".one")) {
            Some(table) => Ok(table),
            None => violated("harness", "no table one"),
        }
    }

    /// What became of it (`strong::outcome`).
    pub(super) fn lent(&self, record: Pending, now_ns: u64) -> Checked<u32> {
        self.stand(0, now_ns)?;
        harness(self.first_table()?.status(&self.dataplane, record))
    }

    fn order_status(&self, order: &Order, now_ns: u64) -> Checked<u32> {
        self.stand(order.cpu, now_ns)?;
        harness(self.table(order.key)?.status(&self.dataplane, order.record))
    }
}

fn not_begun(error: &str) -> Checked<Begun> {
    match error.contains("report it") {
        true => violated("order", error.to_owned()),
        false => Ok(Begun::Not),
    }
}

/// A value, both of whose fields are the same. (A key of a set has none: 0.)
fn number(value: &[u8]) -> Checked<Option<u32>> {
    let word = |at: usize| value.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    match (word(0), word(4)) {
        (Some(one), Some(other)) if one != other => {
            violated("group", format!("an operator reads half of a value: {value:?}"))
        }
        (one, _) => Ok(Some(one.unwrap_or(0))),
    }
}

impl World<'_> {
    /// Orders of this seed, and packets that write the same keys.
    pub(super) fn add_orders(&mut self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x0bde);
        for number in 0..rng.random_range(20..100) {
            let (switch, by_operator) = (rng.random_range(0..self.members.len()), number % 2 == 0);
            let (op, at) =
                (Op::draw_ordered(&mut rng, by_operator), rng.random_range(0..self.busy_ns));
            let event =
                if by_operator { Event::Order(switch, op) } else { Event::Packet(switch, op) };
            self.events.push(at, event);
            // Others look while it is on its way down the chain.
            let access = if op.key >= MARKS { Access::Ask } else { Access::Read };
            for _ in 0..rng.random_range(0..6) {
                let (switch, after) =
                    (rng.random_range(0..self.members.len()), rng.random_range(0..1_000_000));
                let read = Event::Order(switch, Op { access, key: op.key });
                self.events.push(at + after, read);
            }
        }
    }

    /// An operator asks a switch. It takes one order after the other.
    pub(super) fn order(&mut self, place: usize, op: Op) -> Checked {
        if self.is_dead(place) || self.told[place] == 0 || self.orders[place].is_some() {
            return Ok(());
        }
        let cpu = self.rng.random_range(0..CPUS);
        let begun = self.members[place].begin_order(cpu, op, self.now_ns)?;
        let id = self.history.len();
        let mut operation =
            Operation { input: op.access, invoked: self.now_ns * 2, returned: None };
        self.note(format!("order {id} at {place}: {op:?}"));
        match begun {
            Begun::Not => return Ok(()),
            Begun::Read(found) => {
                operation.returned = Some((self.now_ns * 2 + 1, op.access.answer(found)));
            }
            Begun::Waits(record, found) => {
                self.orders[place] = Some(Order { id, cpu, key: op.key, record, found });
            }
        }
        self.history.push((op.key, operation));
        Ok(())
    }

    /// Has the chain answered the order of a switch?
    pub(super) fn look_at_order(&mut self, place: usize) -> Checked {
        let Some(order) = self.orders[place].take() else { return Ok(()) };
        let operation = &mut self.history[order.id].1;
        let found = match (self.members[place].order_status(&order, self.now_ns)?, operation.input)
        {
            (outcome::WAITS, _) => {
                self.orders[place] = Some(order);
                return Ok(());
            }
            // (It may take effect, or not.)
            (outcome::FORGOTTEN, _) => return Ok(()),
            (outcome::DONE, _) => order.found,
            (outcome::REFUSED, Access::Insert(value)) => Some(value),
            (other, input) => return violated("order", format!("{input:?} ends with {other}")),
        };
        operation.returned = Some((self.now_ns * 2 + 1, operation.input.answer(found)));
        self.note(format!("order {} at {place} is answered: {found:?}", order.id));
        Ok(())
    }

    /// The keys that operators write, too.
    pub(super) fn ordered_keys() -> impl Iterator<Item = u32> {
        let of = |first: u32| first..first + super::access::ORDERED;
        of(NUMBERS).chain(of(MARKS))
    }

    /// After the faults no order of a member waits.
    pub(super) fn check_orders(&self) -> Checked {
        let waits = |place: &&usize| self.orders[**place].is_some();
        match self.newest().chain.iter().find(waits) {
            Some(place) => violated("progress", format!("an order at {place} is not answered")),
            None => Ok(()),
        }
    }
}
