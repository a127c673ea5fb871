//! A simulated member of a chain: the loaded object in test mode, on a clock of its own.

use super::View;
use super::access::Op;
use super::counted::Counted;
use crate::model::{Checked, violated};
use crate::program::{Program, enter};
use dataplane::{Dataplane, Object, Outcome, SecretSet, Settings, Verdict, copies_by_loop};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use swish_protocol::strong::COUNTED;
use swish_switch::lives::{Lives, Others};
use swish_switch::strong::{Chain, ChainView, STATS};
use swish_switch::strong_keys::Table;
use wire::{KeyRing, SECRET_BYTES, Secret};

pub(super) const CPUS: u32 = 3;
const FABRIC: u32 = 1;
const HOSTS: u32 = 2;
/// What leaves a switch.
pub(super) enum Left {
    Message { to: usize, frame: Vec<u8> },
    Packet { id: usize, answer: Answer },
}

/// What a packet brought back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    found: [u8; 2],
    was: [u32; 3],
    reads: bool,
    /// Of the register, where 0 counts as absent.
    is_number: bool,
}

impl Answer {
    /// What it read, if that is of one moment.
    pub(super) fn checked(self) -> Result<Option<u32>, String> {
        let [was, too, copy] = self.was;
        if self.reads && (self.found[0] != self.found[1] || was != too || was != copy) {
            return Err(format!("half of another packet's writes: {self:?}"));
        }
        let found = if self.is_number { was != 0 } else { self.found[0] == 1 };
        Ok(found.then_some(was))
    }
}

pub(super) struct Member {
    pub(super) dataplane: Dataplane,
    pub(super) tables: Vec<Table>,
    chain: Chain,
    place: usize,
    life: u32,
    pub(super) offset_ns: u64,
    counted: Option<Counted>,
    ring: KeyRing,
    /// Without controllers.
    lives: Option<Lives>,
}

pub(super) fn harness<T, E: std::fmt::Display>(result: Result<T, E>) -> Checked<T> {
    result.or_else(|error| violated("harness", error.to_string()))
}

pub(super) fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, place as u8 + 1)
}

impl Member {
    /// Loads the object.
    pub(super) fn load(program: &Program) -> Result<Member, String> {
        let link = enter()?;
        let text = |error: dataplane::Error| error.to_string();
        let mut object = Object::open(&program.object, program.manifest.clone()).map_err(text)?;
        object
            .set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })
            .map_err(text)?;
        object.wait_in_switch(CPUS).map_err(text)?;
        let dataplane = object.load().map_err(text)?;
        dataplane.set_port(FABRIC, link).map_err(text)?;
        dataplane.set_fabric_port(FABRIC, true).map_err(text)?;
        let chain = Chain::of(&program.manifest).map_err(text)?.ok_or("no chain")?;
        let ring = KeyRing::new(0, Secret([7; SECRET_BYTES])).ok_or("no secret")?;
        dataplane.set_secrets(&SecretSet::from(&ring)).map_err(text)?;
        let counted = Counted::of(&program.manifest).map_err(text)?;
        let tables = Table::all(&program.manifest).map_err(text)?;
        Ok(Member {
            dataplane,
            tables,
            chain,
            place: 0,
            life: 0,
            offset_ns: 0,
            counted,
            ring,
            lives: None,
        })
    }

    /// Begins a run, with nothing in it.
    pub(super) fn begin(&mut self, place: usize, offset_ns: u64) -> Checked {
        (self.place, self.offset_ns) = (place, offset_ns);
        (self.life, self.lives) = (0, None);
        if let Some(counted) = &mut self.counted {
            counted.begin(&self.dataplane, &self.ring, offset_ns)?;
        }
        self.empty()
    }

    /// In runs that begin later it counts so many packets of a rotation, at the most.
    pub(super) fn bound(&mut self, bound: u64) {
        self.counted.iter_mut().for_each(|it| it.bound = bound);
    }

    /// The switch has nothing of the group any more.
    pub(super) fn empty(&self) -> Checked {
        harness(self.chain.empty(&self.dataplane))
    }

    /// The switch takes this view; `life` as it begins, 0 in the same life.
    pub(super) fn take(&mut self, number: u64, life: u32, view: &View) -> Checked {
        if life > 0 {
            self.life = life;
        }
        let view = ChainView {
            number,
            own: self.place as u32,
            incarnation: self.life,
            members: view.chain.iter().map(|place| (*place as u32, address(*place))).collect(),
            joins: view.joins.iter().map(|place| *place as u32).collect(),
            lease_ns: Some(view.lease_ns),
            wait_ns: view.wait_ns,
        };
        harness(self.chain.take(&self.dataplane, &view))
    }

    /// The switch has nothing, and begins a new life among so many, without controllers.
    pub(super) fn meets(&mut self, count: usize) -> Checked {
        self.empty()?;
        self.life += 1;
        let view = ChainView {
            number: 1,
            own: self.place as u32,
            incarnation: self.life,
            members: (0..count).map(|place| (place as u32, address(place))).collect(),
            joins: vec![],
            lease_ns: None,
            wait_ns: 0,
        };
        let lives = Lives::new(self.chain.clone(), view);
        if !harness(lives.begin(&self.dataplane))? {
            return violated("harness", "the data plane has another group".to_owned());
        }
        self.lives = Some(lives);
        Ok(())
    }

    /// What it knows of the others, without controllers.
    pub(super) fn others(&self, now_ns: u64) -> Checked<Others> {
        let now_ns = self.offset_ns + now_ns;
        let others = self.lives.as_ref().map(|it| it.others(&self.dataplane, now_ns));
        Ok(harness(others.transpose())?.unwrap_or_default())
    }

    /// All that the others have is here.
    pub(super) fn is_whole(&self) -> bool {
        self.chain.node(&self.dataplane).is_ok_and(|node| node.whole == 1)
    }

    pub(super) fn node(&self) -> String {
        self.chain.node(&self.dataplane).map_or_else(
            |error| error.to_string(),
            |node| {
                format!(
                    "view {} applied {} committed {} round {} part {} whole {}",
                    node.view, node.applied, node.committed, node.round, node.part, node.whole
                )
            },
        )
    }

    /// Keys of the first table.
    pub(super) fn keys(&self) -> Checked<u32> {
        let bytes = harness(self.dataplane.read_array("sp_strong_tables", 0))?;
        Ok(bytes.first_chunk().copied().map_or(0, u32::from_ne_bytes))
    }

    /// Removed keys that it has put on its list so far.
    pub(super) fn removed(&self) -> Checked<u64> {
        Ok(harness(self.chain.node(&self.dataplane))?.tombs)
    }

    pub(super) fn counts(&self) -> Vec<u64> {
        let count = |at| self.dataplane.read_count(STATS, at).unwrap_or_default();
        (0..).take(COUNTED.len()).map(count).collect()
    }

    /// How many packets waited for their turn.
    pub(super) fn deferred(&self) -> Checked<u64> {
        Ok(harness(self.dataplane.commit_count("deferred"))?.unwrap_or_default())
    }

    pub(super) fn packet(&self, cpu: u32, id: usize, op: Op, now_ns: u64) -> Checked<Vec<Left>> {
        self.dataplane.set_test_cpu(cpu);
        let now_ns = self.offset_ns + now_ns;
        let outcome = harness(self.dataplane.run(&probe(id, op), HOSTS, now_ns))?;
        self.follow(outcome, now_ns)
    }

    pub(super) fn receive(&self, cpu: u32, frame: &[u8], now_ns: u64) -> Checked<Vec<Left>> {
        self.dataplane.set_test_cpu(cpu);
        let now_ns = self.offset_ns + now_ns;
        let outcome = harness(self.dataplane.run(frame, FABRIC, now_ns))?;
        self.follow(outcome, now_ns)
    }

    /// What it counted of the packets of a cell, with SDW and with EWO. `None`: it counts nothing.
    pub(super) fn counted(&self, cell: u32) -> Checked<Option<[u64; 2]>> {
        self.counted.as_ref().map(|it| it.read(&self.dataplane, cell)).transpose()
    }

    pub(super) fn tick(&mut self, cpu: u32, now_ns: u64) -> Checked<Vec<Left>> {
        let now_ns = self.offset_ns + now_ns;
        let mut left = vec![];
        // (As the agent does it.)
        let windows = self.counted.as_mut().map(|it| it.queue(&self.dataplane, now_ns));
        let windows = windows.transpose()?.unwrap_or_default();
        let frames = match &self.lives {
            Some(lives) => lives.due(&self.dataplane, now_ns),
            None => self.chain.frames(&self.dataplane),
        };
        for _ in 0..windows + harness(frames)? {
            self.dataplane.set_test_cpu(cpu);
            let outcome = harness(self.dataplane.run_generated(now_ns))?;
            left.extend(self.follow(outcome, now_ns)?);
        }
        Ok(left)
    }

    /// Copies that go by the loop come in again, until nothing does.
    fn follow(&self, outcome: Outcome, now_ns: u64) -> Checked<Vec<Left>> {
        let (mut left, mut waiting) = (vec![], VecDeque::from([outcome]));
        while let Some(Outcome { verdict, frame, .. }) = waiting.pop_front() {
            let port = match verdict {
                Verdict::Forward { port } => port,
                Verdict::Drop => continue,
                Verdict::ToHost => return violated("harness", "a frame goes to the host"),
            };
            match (port, copies_by_loop(port)) {
                (_, Some(copies)) => {
                    for _ in 0..copies {
                        waiting.push_back(harness(self.dataplane.run_looped(&frame, now_ns))?);
                    }
                }
                (FABRIC, None) => match frame.get(30..34) {
                    Some([10, 0, 0, to]) if *to > 0 => {
                        left.push(Left::Message { to: usize::from(*to) - 1, frame });
                    }
                    other => return violated("message", format!("a message goes to {other:?}")),
                },
                (HOSTS, None) => left.push(answer(&frame)?),
                other => return violated("harness", format!("a frame goes to {other:?}")),
            }
        }
        Ok(left)
    }
}

fn probe(id: usize, op: Op) -> Vec<u8> {
    let (number, value) = op.numbers();
    let mut frame = vec![2, 0, 0, 0, 0, 6, 2, 0, 0, 0, 0, 5, 8, 0];
    frame.extend([0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 1, 5, 10, 0, 1, 6]);
    frame.extend((id as u16).to_be_bytes());
    frame.extend([0x0f, 0xa0, 0, 44, 0, 0]);
    frame.extend([number, 0, 0, 0]);
    frame.extend(op.index().to_be_bytes());
    frame.extend(value.to_be_bytes());
    // (What it reads comes here; of tally.p4 more.)
    frame.extend([0; 24]);
    frame
}

fn answer(frame: &[u8]) -> Checked<Left> {
    let word = |at: usize| frame.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let (Some(&[high, low]), Some(&[op, first, second]), Some(was), Some(too), Some(copy)) = (
        frame.get(36..).and_then(<[u8]>::first_chunk),
        frame.get(42..).and_then(<[u8]>::first_chunk),
        word(54),
        word(58),
        word(62),
    ) else {
        return violated("harness", "a packet came back short");
    };
    let answer = Answer {
        found: [first, second],
        was: [was, too, copy],
        reads: matches!(op, 0 | 1 | 3 | 5 | 6),
        is_number: matches!(op, 5 | 6),
    };
    Ok(Left::Packet { id: usize::from(u16::from_be_bytes([high, low])), answer })
}
