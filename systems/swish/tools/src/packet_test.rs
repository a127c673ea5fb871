//! `stateplane test`: the switch of a packet test shares its variables with nobody. Its windows
//! begin at fixed times, as interpreters have it.

use crate::SwiSh;
use dataplane::{Dataplane, SecretSet, Verdict};
use manifest::{Manifest, WireField};
use packet_test::stf::{Wrong, wrong};
use packet_test::{Arrival, Backing, Fault, Identity, Line, Outcome, Supply, System, Words};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use swish_compiler::supply;
use swish_protocol::TEST_PERIOD_US;
use swish_protocol::control::Member;
use swish_protocol::objects::SYSTEM;
use swish_switch::eventual::EventualGroup;
use swish_switch::group::{Caps, Group, Looks, Open, View};
use swish_switch::keyed::Keyed;
use swish_switch::records::Object;
use swish_switch::strong::{Chain, ChainView};
use swish_switch::strong_keys::Table;
use wire::{KeyRing, SECRET_BYTES, Secret};

/// `# shared_period_us: OBJECT N`
const PERIOD: &str = "shared_period_us";
/// `# shared_entry: OBJECT N...`: numbers of the key's fields, then of the value's.
const ENTRY: &str = "shared_entry";
/// Looks of the packet generator that a window takes at the most; each merges many messages.
const LOOKS: u32 = 4096;
/// Updates of a window.
const BOUND: u64 = 1 << 32;

fn period_line(words: &mut Words<'_, '_>) -> Result<(String, u64), Wrong> {
    let (_, object) = words.next("a shared variable's name")?;
    let object = object.to_owned();
    match words.parsed("microseconds")? {
        (at, 0) => wrong(at, "a window takes at least 1 µs"),
        (_, period_us) => Ok((object, period_us)),
    }
}

fn entry_line(words: &mut Words<'_, '_>) -> Result<(String, Vec<u64>), Wrong> {
    let (_, object) = words.next("a table's or set's name")?;
    let object = object.to_owned();
    let mut numbers = vec![words.parsed("a number")?.1];
    while words.peek().is_some() {
        numbers.push(words.parsed("a number")?.1);
    }
    Ok((object, numbers))
}

fn entries(lines: &[Line]) -> Outcome<Vec<(String, Vec<u64>)>> {
    let own = lines.iter().filter(|line| line.keyword == ENTRY);
    own.map(|line| line.read(entry_line).map_err(|(_, reason)| line.fault(reason))).collect()
}

/// Where an entry goes.
enum Holder {
    LastWriter(Object),
    Strong(Table),
}

impl Holder {
    fn keyed(&self) -> &Keyed {
        match self {
            Holder::LastWriter(object) => &object.keyed,
            Holder::Strong(table) => &table.keyed,
        }
    }
}

/// A key and its value, in wire form.
type Entry = (Holder, Vec<u8>, Vec<u8>);

/// What tables and sets have from the beginning.
fn filled(lines: &[Line], manifest: &Manifest) -> Outcome<Vec<Entry>> {
    let filled = |(name, numbers): (String, Vec<u64>)| {
        let last = Object::all(manifest).map_err(Fault::of_case)?.into_iter();
        let strong = Table::all(manifest).map_err(Fault::of_case)?.into_iter();
        let mut all = last.map(Holder::LastWriter).chain(strong.map(Holder::Strong));
        let holder = all.find(|it| it.keyed().name == name && !it.keyed().is_register());
        let Some(holder) = holder else {
            let reason = format!("the program has no table or set {name} with Shared.EWO or SRO");
            return Err(Fault::of_case(reason));
        };
        let object = holder.keyed();
        let wanted = object.key.len() + object.value.len();
        if numbers.len() != wanted {
            return Err(Fault::of_case(format!("{name} has {wanted} fields of key and value")));
        }
        let wire = |fields: &[WireField], bytes: u32, numbers: &[u64]| {
            let mut found = vec![0; bytes as usize];
            for (field, number) in fields.iter().zip(numbers) {
                let last = (field.offset + field.bytes) as usize;
                let places = found.iter_mut().take(last).skip(field.offset as usize).rev();
                places.zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
            }
            found
        };
        let (key, value) = numbers.split_at(object.key.len());
        let key = wire(&object.key, object.key_bytes, key);
        let value = wire(&object.value, object.value_bytes, value);
        Ok((holder, key, value))
    };
    entries(lines)?.into_iter().map(filled).collect()
}

fn periods(lines: &[Line]) -> Outcome<Vec<(String, u64)>> {
    let own = lines.iter().filter(|line| line.keyword == PERIOD);
    own.map(|line| line.read(period_line).map_err(|(_, reason)| line.fault(reason))).collect()
}

impl System for SwiSh {
    fn keywords(&self) -> &'static [&'static str] {
        &[PERIOD, ENTRY]
    }

    fn check(&self, line: &Line, _: &[Line]) -> Result<(), Wrong> {
        if line.keyword == ENTRY {
            return line.read(entry_line).map(drop);
        }
        line.read(period_line).map(drop)
    }

    fn must_wait(&self, manifest: &Manifest) -> bool {
        matches!(Chain::of(manifest), Ok(Some(_)))
    }

    fn begin(&self, lines: &[Line], manifest: &Manifest) -> Outcome<Option<Box<dyn Backing>>> {
        let groups = Group::all(manifest).map_err(Fault::of_case)?;
        let periods = periods(lines)?;
        for (name, _) in &periods {
            let own =
                manifest.state_objects.iter().any(|it| it.system == SYSTEM && it.name == *name);
            if !own {
                let reason = format!("the program has no shared variable {name}");
                return Err(Fault::of_case(reason));
            }
        }
        let eventual = EventualGroup::all(manifest).map_err(Fault::of_case)?;
        let chain = Chain::of(manifest).map_err(Fault::of_case)?;
        if groups.is_empty() && eventual.is_empty() && chain.is_none() {
            return Ok(None);
        }
        // (All variables of a case have one period.)
        let period_us = periods.first().map_or(TEST_PERIOD_US, |(_, period_us)| *period_us);
        let period_ns = period_us * 1000;
        let filled = filled(lines, manifest)?;
        Ok(Some(Box::new(Alone { groups, eventual, filled, chain, period_ns, next_ns: 0 })))
    }

    fn supplies(&self, lines: &[Line]) -> Vec<Supply> {
        let periods = periods(lines).unwrap_or_default().into_iter();
        let supply = |(object, period_us)| Supply {
            object,
            what: supply::PERIOD_US,
            numbers: vec![period_us],
        };
        let entry = |(object, numbers)| Supply { object, what: supply::ENTRY, numbers };
        let entries = entries(lines).unwrap_or_default().into_iter().map(entry);
        periods.map(supply).chain(entries).collect()
    }
}

/// A switch alone in its groups.
struct Alone {
    groups: Vec<Group>,
    eventual: Vec<EventualGroup>,
    filled: Vec<Entry>,
    chain: Option<Chain>,
    period_ns: u64,
    next_ns: u64,
}

impl Alone {
    /// One window turns in each group.
    fn turn(&mut self, switch: &Dataplane, now_ns: u64) -> Outcome<()> {
        for group in &self.groups {
            let window = |group: &Group| group.node(switch).map(|node| node.word >> 3);
            let before = window(group).map_err(Fault::of_case)?;
            for _ in 0..LOOKS {
                // (Time stands still: each look is the first one.)
                let mut looks = Looks::default();
                let queued = group.queue(switch, &mut looks, now_ns).map_err(Fault::of_case)?;
                for _ in 0..queued {
                    let outcome = switch.run_generated(now_ns).map_err(Fault::of_case)?;
                    if matches!(outcome.verdict, Verdict::Forward { .. }) {
                        return Err(Fault::of_case("a switch alone in its group sends a message"));
                    }
                }
                if window(group).map_err(Fault::of_case)? > before {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Backing for Alone {
    fn begin_switch(&mut self, switch: &Dataplane, identity: Identity, now_ns: u64) -> Outcome<()> {
        let ring = KeyRing::new(0, Secret([1; SECRET_BYTES]));
        let ring = ring.ok_or_else(|| Fault::of_case("no secret"))?;
        self.next_ns = (now_ns / self.period_ns + 1) * self.period_ns;
        let view = View {
            number: 1,
            own: 0,
            members: vec![Member { number: 0, address: Ipv4Addr::LOCALHOST, incarnation: 0 }],
            period_ns: self.period_ns,
            caps: Caps::default(),
            bound: BOUND,
            window: self.next_ns / self.period_ns,
            begins_ns: self.next_ns - self.period_ns,
            turns_ns: self.next_ns,
            fan_out: 0,
        };
        for group in &self.groups {
            group.begin(switch, &view, 1, &ring, Open::default()).map_err(Fault::of_case)?;
        }
        for group in &self.eventual {
            group.begin(switch, &view, 1, &ring).map_err(Fault::of_case)?;
        }
        if let Some(chain) = &self.chain {
            // (A chain of one member: its messages to itself do not leave the switch.)
            switch.set_secrets(&SecretSet::from(&ring)).map_err(Fault::of_case)?;
            let members = vec![(0, Ipv4Addr::LOCALHOST)];
            let incarnation = identity.incarnation;
            let (joins, lease_ns) = (vec![], None);
            let view =
                ChainView { number: 1, own: 0, incarnation, members, joins, lease_ns, wait_ns: 0 };
            chain.take(switch, &view).map_err(Fault::of_case)?;
        }
        // (Generated frames bring what operators write to the chain.)
        let looks = Cell::new(0);
        let wait = || {
            looks.set(looks.get() + 1);
            switch.run_generated(now_ns)?;
            Ok(if looks.get() < LOOKS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        };
        for (holder, key, value) in &self.filled {
            match holder {
                Holder::LastWriter(object) => {
                    object.write(switch, key, value, 0).map_err(Fault::of_case)?;
                }
                Holder::Strong(table) => {
                    table.set(switch, key, value, 0, &wait).map_err(Fault::of_case)?;
                }
            }
        }
        Ok(())
    }

    fn departs(&mut self, _: u32, _: &[u8], _: u64) -> Option<Vec<Arrival>> {
        None
    }

    fn next_ns(&self, _: &Dataplane, _: u64) -> Option<u64> {
        (!self.groups.is_empty()).then_some(self.next_ns)
    }

    fn tick(&mut self, switch: &Dataplane, now_ns: u64) -> Outcome<Vec<Arrival>> {
        while self.next_ns <= now_ns {
            let at = self.next_ns;
            self.turn(switch, at)?;
            self.next_ns += self.period_ns;
        }
        Ok(vec![])
    }
}
