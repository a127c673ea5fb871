//! Registers, tables and sets with SRO as operators read and write them: as a packet does. The data
//! plane's program for orders (`stateplane_strong_order.h`) reads here, and puts writes into the
//! open batch; the head decides, and the tail answers.

use crate::group::has_consistency;
use crate::keyed::{Held, Keyed, is_keyed, refuse};
use crate::orders::{Done, How, Keys};
use crate::strong::settings_of;
use c_layout::CStruct;
use dataplane::{Dataplane, for_each_entry};
use manifest::Manifest;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use swish_protocol::objects::Consistency;
use swish_protocol::strong::{KEY_BYTES, OrderValue, VALUE_BYTES, flag, order, outcome};
use switch_agent::{Error, Result};

/// The data plane's program for operators.
const ORDER: &str = "sp_strong_order";
const XDP_PASS: u32 = 2;
/// An order waits no longer for room, or for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A command that removes many keys, for all of its waiting.
const PATIENCE_WITH_MANY: Duration = Duration::from_secs(20);
/// From one look for an answer to the next.
const LOOK: Duration = Duration::from_micros(200);
/// In a record's name: the CPU is from this bit on (`sp_commit_name`).
const CPU_SHIFT: u32 = 54;

/// A register, table or set.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What the program declares.
    pub keyed: Keyed,
    /// The object's number, as records have it.
    id: u16,
    /// The map from keys to places.
    map: String,
    /// Values end with the time of their key.
    timed: bool,
}

/// What is done while an answer has not come. `Break`: it takes too long.
pub type Wait<'a> = &'a dyn Fn() -> Result<ControlFlow<()>>;

/// A record that the chain is to answer.
pub type Pending = OrderValue;

impl Table {
    /// All of a program.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn all(manifest: &Manifest) -> dataplane::Result<Vec<Table>> {
        let all = manifest.state_objects.iter();
        let all = all.filter(|it| is_keyed(it) && has_consistency(it, Consistency::Sro));
        all.map(|it| {
            let (keyed, map, timed) = (Keyed::of(it), it.map.clone(), settings_of(it)?.timed);
            Ok(Table { keyed, id: it.id, map, timed })
        })
        .collect()
    }

    fn run(
        &self,
        dataplane: &Dataplane,
        order: OrderValue,
        key: &[u8],
        value: &[u8],
    ) -> Result<(OrderValue, Vec<u8>)> {
        let mut request = order.to_bytes().to_vec();
        let mut part = |bytes: &[u8], size: u32| {
            let end = request.len() + size as usize;
            request.extend(bytes);
            request.resize(end, 0);
        };
        part(key, KEY_BYTES);
        part(value, VALUE_BYTES);
        let (verdict, answer) = dataplane.run_question(ORDER, &request)?;
        let value = answer.get(request.len() - VALUE_BYTES as usize..).map(<[u8]>::to_vec);
        match value {
            Some(value) if verdict == XDP_PASS => Ok((OrderValue::from_bytes(&answer), value)),
            _ => refuse(&self.keyed, "the data plane does not know it: it is of another program"),
        }
    }

    /// An order, again and again while it finds no room.
    fn order(
        &self,
        dataplane: &Dataplane,
        order: OrderValue,
        key: &[u8],
        value: &[u8],
        wait: Wait<'_>,
    ) -> Result<(OrderValue, Vec<u8>)> {
        let order = OrderValue { object: self.id.into(), ..order };
        loop {
            let (done, value) = self.run(dataplane, order, key, value)?;
            let reason = match done.status {
                outcome::BUSY if wait()?.is_continue() => continue,
                outcome::BUSY => {
                    "the switch's open batch has no room: a switch of the group does not answer \
                     (`stateplane shared status`), or packets write all the time. Nothing is \
                     written; try again"
                }
                outcome::NO_LEASE => {
                    "packets may not read or write here now: the switch is no member of the group, \
                     does not have all values yet, or a member does not answer; `stateplane shared \
                     status` says which. Run the command on another switch"
                }
                outcome::DONE | outcome::WAITS => return Ok((done, value)),
                _ => "the data plane met a state that it must not: report it",
            };
            return refuse(&self.keyed, reason);
        }
    }

    /// What has become of a record (`swish_protocol::strong::outcome`).
    ///
    /// # Errors
    /// The data plane is of another program.
    pub fn status(&self, dataplane: &Dataplane, record: Pending) -> Result<u32> {
        let ask = OrderValue { what: order::ASK, ..record };
        Ok(self.run(dataplane, ask, &[], &[])?.0.status)
    }

    /// Until all members have the record.
    fn answered(&self, dataplane: &Dataplane, record: Pending, wait: Wait<'_>) -> Result<()> {
        const LATE: &str = "not all switches of the group have answered. It may still take effect: \
                            `stateplane shared get` tells, once `stateplane shared status` says \
                            that all is well";
        self.answered_or(dataplane, record, LATE, wait).map(drop)
    }

    /// The same; `late`: what to say if it takes too long. False: the record asked that the key is
    /// absent, and it is there.
    fn answered_or(
        &self,
        dataplane: &Dataplane,
        record: Pending,
        late: &str,
        wait: Wait<'_>,
    ) -> Result<bool> {
        let is_insert = record.flags == u32::from(flag::ABSENT);
        loop {
            let reason = match self.status(dataplane, record)? {
                outcome::DONE => return Ok(true),
                outcome::REFUSED if is_insert => return Ok(false),
                outcome::WAITS if wait()?.is_continue() => continue,
                outcome::WAITS => late,
                outcome::FULL => {
                    let reason = format!(
                        "it is full: {} keys; delete some, or compile the program with a larger \
                         table",
                        self.keyed.size
                    );
                    return refuse(&self.keyed, &reason);
                }
                outcome::REFUSED => "a packet wrote the key in between: try again",
                outcome::FORGOTTEN => {
                    "the switch was removed from the group meanwhile, and does not know whether it \
                     took effect: `stateplane shared get` on another switch tells"
                }
                _ => "the data plane met a state that it must not: report it",
            };
            return refuse(&self.keyed, reason);
        }
    }

    /// A record joins the open batch. `flags`: `swish_protocol::strong::flag`.
    ///
    /// # Errors
    /// Nothing is written.
    pub fn write(
        &self,
        dataplane: &Dataplane,
        (key, value): (&[u8], &[u8]),
        flags: u8,
        idle_s: u16,
        wait: Wait<'_>,
    ) -> Result<Pending> {
        let flags = flags.into();
        let order =
            OrderValue { what: order::WRITE, flags, idle_s: idle_s.into(), ..Default::default() };
        Ok(self.order(dataplane, order, key, value, wait)?.0)
    }

    /// Writes a value in wire form, and waits until all members have it.
    ///
    /// # Errors
    /// The write is not made, or its outcome is unknown; the error says which.
    pub fn set(
        &self,
        dataplane: &Dataplane,
        key: &[u8],
        value: &[u8],
        idle_s: u16,
        wait: Wait<'_>,
    ) -> Result<()> {
        let record = self.write(dataplane, (key, value), 0, idle_s, wait)?;
        self.answered(dataplane, record, wait)
    }

    /// The same if the key is absent, which the head of the chain decides. False: it is there, and
    /// stays as it is.
    ///
    /// # Errors
    /// As [`Table::set`].
    pub fn insert(
        &self,
        dataplane: &Dataplane,
        key: &[u8],
        value: &[u8],
        idle_s: u16,
        wait: Wait<'_>,
    ) -> Result<bool> {
        const LATE: &str = "not all switches of the group have answered. It may still take effect: \
                            `stateplane shared get` tells, once `stateplane shared status` says \
                            that all is well. A repetition may find this write, and says then \
                            that the key is there: compare the value";
        let record = self.write(dataplane, (key, value), flag::ABSENT, idle_s, wait)?;
        self.answered_or(dataplane, record, LATE, wait)
    }

    /// A key, as a packet reads it; and whether a packet would wait before it leaves.
    ///
    /// # Errors
    /// Packets may not read here.
    pub fn look(
        &self,
        dataplane: &Dataplane,
        key: &[u8],
        wait: Wait<'_>,
    ) -> Result<(Option<Held>, bool)> {
        let order = OrderValue { what: order::LOOK, ..OrderValue::default() };
        let (found, mut value) = self.order(dataplane, order, key, &[], wait)?;
        let bytes = self.keyed.value_bytes as usize;
        let time = value.get(bytes.next_multiple_of(8)..).and_then(|it| it.first_chunk());
        let idle_s = time.filter(|_| self.timed).map(|it| u16::from_be_bytes(*it));
        value.truncate(bytes);
        let held = Held { key: key.to_vec(), value, idle_s: idle_s.filter(|it| *it > 0) };
        Ok(((found.found != 0).then_some(held), found.status == outcome::WAITS))
    }

    /// What is written by now is at all members. A record that writes nothing goes through the
    /// chain: its answer says that all before it is at the tail.
    fn settle(&self, dataplane: &Dataplane, wait: Wait<'_>) -> Result<()> {
        const LATE: &str = "a packet's write is under way, and not all switches of the group have \
                            answered it: until then nothing can be read. `stateplane shared \
                            status` says which switch does not answer";
        let record = self.write(dataplane, (&[], &[]), flag::READ, 0, wait)?;
        self.answered_or(dataplane, record, LATE, wait).map(drop)
    }

    /// A key that all members have, if it is there.
    ///
    /// # Errors
    /// Packets may not read here, or not all members have answered.
    pub fn get(&self, dataplane: &Dataplane, key: &[u8], wait: Wait<'_>) -> Result<Option<Held>> {
        let (found, waits) = self.look(dataplane, key, wait)?;
        if waits {
            self.settle(dataplane, wait)?;
        }
        Ok(found)
    }

    /// Removes keys; values of a register become zero. `patience` says how long each order waits.
    ///
    /// # Errors
    /// As [`Table::set`]; then some of them may be removed.
    pub fn delete<'a>(
        &self,
        dataplane: &Dataplane,
        keys: &[&[u8]],
        patience: &dyn Fn() -> Box<dyn Fn() -> Result<ControlFlow<()>> + 'a>,
    ) -> Result<()> {
        let flags = if self.keyed.is_register() { 0 } else { flag::REMOVE };
        // Of each CPU's stream the last one: the tail answers them in their order.
        let mut last: Vec<Pending> = vec![];
        for (number, key) in keys.iter().enumerate() {
            let record = self.write(dataplane, (key, &[]), flags, 0, &*patience());
            let record = record.map_err(|error| match number {
                0 => error,
                _ => Error::Other(format!(
                    "{number} of {} removals were sent, and may take effect: {error}",
                    keys.len()
                )),
            })?;
            if last.iter().any(|it| it.incarnation != record.incarnation) {
                let reason = "the switch was removed from the group meanwhile, and does not know \
                              which keys it removed: `stateplane shared get` on another switch \
                              tells";
                return refuse(&self.keyed, reason);
            }
            last.retain(|it| it.name >> CPU_SHIFT != record.name >> CPU_SHIFT);
            last.push(record);
        }
        last.into_iter().try_for_each(|it| self.answered(dataplane, it, &*patience()))
    }
}

/// Before this version of Linux, a packet may interrupt BPF_PROG_RUN on its CPU, in the middle of
/// an order, and use its memory (commit af2d0d09eabe).
const LINUX: (u32, u32) = (6, 3);

/// The first two numbers of `uname -r`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn check_linux(keyed: &Keyed) -> Result<()> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match version(&release) {
        Some(is) if is < LINUX => refuse(
            keyed,
            &format!(
                "with SRO, `get`, `set`, `delete` and `clear` need Linux {}.{} or later; this is \
                 {}",
                LINUX.0,
                LINUX.1,
                release.trim()
            ),
        ),
        _ => Ok(()),
    }
}

/// A table as operators use it while packets do.
pub(crate) struct StrongKeys<'a> {
    pub dataplane: &'a Dataplane,
    pub table: &'a Table,
    /// The data plane notes of one order at a time that it was refused.
    pub turn: &'a Mutex<()>,
}

/// Looks again after a while, for some time.
fn patient() -> impl Fn() -> Result<ControlFlow<()>> {
    patient_until(Instant::now() + PATIENCE)
}

fn patient_until(until: Instant) -> impl Fn() -> Result<ControlFlow<()>> {
    move || {
        std::thread::sleep(LOOK);
        let late = Instant::now() >= until;
        Ok(if late { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

impl Keys for StrongKeys<'_> {
    fn keyed(&self) -> &Keyed {
        &self.table.keyed
    }

    fn all(&self) -> Result<Vec<Held>> {
        let StrongKeys { dataplane, table, .. } = self;
        check_linux(&table.keyed)?;
        let Some(map) = dataplane.map(&table.map) else {
            return refuse(&table.keyed, "the data plane has no such map: report it");
        };
        let mut keys: Vec<Vec<u8>> = vec![];
        let bytes = table.keyed.key_bytes as usize;
        for_each_entry(map, |key, _| {
            keys.extend(key.get(..bytes).map(<[u8]>::to_vec));
            true
        })?;
        let (mut all, mut any_waits) = (vec![], false);
        for key in keys {
            let (found, waits) = table.look(dataplane, &key, &patient())?;
            all.extend(found);
            any_waits |= waits;
        }
        if any_waits {
            table.settle(dataplane, &patient())?;
        }
        all.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(all)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Held>> {
        check_linux(self.keyed())?;
        self.table.get(self.dataplane, key, &patient())
    }

    fn set(&self, key: &[u8], value: &[u8], how: How) -> Result<Done> {
        const OVER: &str = "the key was there, and is not there any more. Nothing is written. If \
                            it was removed meanwhile, try again at once; if it has expired, its \
                            removal takes some seconds";
        let StrongKeys { dataplane, table, .. } = self;
        check_linux(self.keyed())?;
        if how.idle_s.is_some() && !table.timed {
            let reason = "the program gives keys of this table no time, so switches keep none: \
                          leave --idle-s out, and delete the key later";
            return refuse(self.keyed(), reason);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let idle_s = how.idle_s.unwrap_or(0);
        if !how.if_absent {
            table.set(dataplane, key, value, idle_s, &patient())?;
        } else if !table.insert(dataplane, key, value, idle_s, &patient())? {
            return match table.get(dataplane, key, &patient())? {
                Some(held) => Ok(Done::Kept(held)),
                None => refuse(self.keyed(), OVER),
            };
        }
        let written = Held { key: key.to_vec(), value: value.to_vec(), idle_s: how.idle_s };
        Ok(Done::Set(Some(written)))
    }

    fn delete(&self, keys: &[&[u8]]) -> Result<()> {
        check_linux(self.keyed())?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + PATIENCE_WITH_MANY;
        let patience = || patient_until(end.min(Instant::now() + PATIENCE));
        self.table.delete(self.dataplane, keys, &|| Box::new(patience()))
    }

    fn removed(&self) -> Result<u64> {
        // (Removed keys have room of their own.)
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{LINUX, version};

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("6.1.0-31-amd64").is_some_and(|it| it < LINUX));
        assert!(version("5.15.0\n").is_some_and(|it| it < LINUX));
        assert_eq!(version("6.12.9"), Some((6, 12)));
        assert!(version("6.12.9").is_some_and(|it| it > LINUX));
        assert_eq!(version(""), None);
    }
}
