//! Slots that are given back, by agents that end at any moment (systems/swish/docs/slots.md). Needs
//! root.

use dataplane::{Dataplane, MappedWords, Object, Settings};
use std::net::Ipv4Addr;
use swish_protocol::base::{Base, Before};
use swish_protocol::eventual::{base_life, life_of};
use swish_sim::Program;
use swish_switch::eventual::EventualGroup;
use swish_switch::fold::Steps;
use swish_switch::mutation::{self, Mutation};

/// Each switch has had so many lives.
const LIVES: u32 = 6;
const SWITCHES: u8 = 4;

/// A switch with a slot of each life, as many as there is room for.
struct Rig {
    dataplane: Dataplane,
    group: EventualGroup,
    slots: MappedWords,
    lives: Vec<u64>,
}

fn address(switch: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, switch)
}

/// The first base, and a later one.
fn bases() -> [Base; 2] {
    let base = |number: u32, incarnation: u32| Base {
        number,
        before: (0..SWITCHES).map(|it| (address(it), incarnation)).collect::<Before>(),
    };
    [base(7, 3), base(9, LIVES - 1)]
}

impl Rig {
    fn load(program: &Program) -> Rig {
        let mut object = Object::open(&program.object, program.manifest.clone()).expect("object");
        object
            .set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })
            .expect("settings");
        let dataplane = object.load().expect("it loads");
        let groups = EventualGroup::all(&program.manifest).expect("groups");
        let group = groups.into_iter().find(|it| it.room() > 0).expect("a group with slots");
        assert_eq!(group.room(), u32::from(SWITCHES) * LIVES, "no slot is left");
        let slots = dataplane.map_words_writable("sp_eventual_slots").expect("slots");
        // This switch is the first, in its last life.
        let own = life_of(address(0), LIVES - 1);
        let all = (0..LIVES).flat_map(|it| (0..SWITCHES).map(move |at| life_of(address(at), it)));
        let others = all.filter(|it| *it != own);
        let lives = [own].into_iter().chain(others).chain([base_life(3)]).collect();
        Rig { dataplane, group, slots, lives }
    }

    fn name(&self, column: usize, life: u64) {
        let at = self.group.described.number * self.group.columns + column as u32;
        self.dataplane.write_array("sp_eventual_columns", at, &life.to_ne_bytes()).expect("a name");
    }

    fn place(&self, column: usize, cell: usize) -> usize {
        let stride = (self.slots.len() - 1) / self.group.columns as usize;
        column * stride + self.group.described.first_slotted as usize + cell
    }

    fn cells(&self) -> usize {
        self.group.described.slotted as usize
    }

    fn value(column: usize, cell: usize) -> u64 {
        (1 << column) | (cell as u64) << 40
    }

    fn fill(&self) {
        for column in 0..self.group.columns as usize {
            let life = self.lives.get(column).copied().unwrap_or(0);
            self.name(column, life);
            for cell in 0..self.cells() {
                let value = if life == 0 { 0 } else { Rig::value(column, cell) };
                self.slots.set(self.place(column, cell), value);
            }
        }
    }

    fn fold(&self, base: &Base, steps: Steps) -> bool {
        self.group.fold(&self.dataplane, base, steps).expect("the kernel takes it")
    }

    /// All that is over is in this base, once, and all else is as it was.
    fn check(&self, base: &Base) -> Result<(), String> {
        let found = self.group.lives(&self.dataplane).expect("lives");
        let is_over = |life: u64| base.before.has(life) || life == base_life(3);
        let mut wanted: Vec<u64> = self.lives.iter().copied().filter(|it| !is_over(*it)).collect();
        wanted.push(base_life(base.number));
        let mut sorted = found.clone();
        sorted.sort_unstable();
        wanted.sort_unstable();
        if found[0] != self.lives[0] || sorted != wanted {
            return Err(format!("lives {found:x?}"));
        }
        for cell in 0..self.cells() {
            for column in 0..self.group.columns as usize {
                let life = found.get(column).copied().unwrap_or(0);
                let was = |of: &dyn Fn(u64) -> bool| -> u64 {
                    let of = self.lives.iter().enumerate().filter(|(_, it)| of(**it));
                    of.map(|(column, _)| Rig::value(column, cell)).sum()
                };
                let wanted = if life == base_life(base.number) {
                    was(&is_over)
                } else {
                    was(&|it| it == life)
                };
                let slot = self.slots.get(self.place(column, cell));
                if slot != wanted {
                    return Err(format!("column {column}, cell {cell}: {slot:x}, not {wanted:x}"));
                }
            }
        }
        Ok(())
    }

    /// An agent ends after so many words; the next one takes the same view, or a later one.
    fn ends_after(&self, steps: u64) -> Result<bool, String> {
        let [first, second] = bases();
        let mut whole = true;
        for next in [&first, &second] {
            self.fill();
            whole = self.fold(&first, Steps::new(steps));
            assert!(self.fold(next, Steps::ALL));
            self.check(next).map_err(|error| format!("after {steps} words: {error}"))?;
        }
        Ok(whole)
    }

    /// At each moment.
    fn ends_anywhere(&self) -> Result<u64, String> {
        let mut steps = 0;
        while !self.ends_after(steps)? {
            // (All that gives a column a name; not each cell.)
            steps += if steps % 97 < 30 { 1 } else { 11 };
        }
        Ok(steps)
    }
}

fn is_permitted() -> bool {
    let permitted = dataplane::check_permitted().is_ok();
    if !permitted {
        eprintln!("skipped: BPF needs root");
    }
    permitted
}

#[test]
fn an_agent_may_end_at_any_moment() {
    if !is_permitted() {
        return;
    }
    let program = Program::compile_eventual(None).expect("it compiles");
    let rig = Rig::load(&program);
    let steps = rig.ends_anywhere().unwrap_or_else(|error| panic!("{error}"));
    println!("{steps} words of {} cells", rig.cells());
    // What was folded is folded, and a number of it is the same however it came about.
    let [first, second] = bases();
    rig.fill();
    assert!(rig.fold(&first, Steps::ALL) && rig.fold(&second, Steps::ALL));
    assert_eq!(rig.check(&second), Ok(()));
    let sum = |before: &Before| rig.group.digest(&rig.dataplane, before).expect("a sum");
    assert_eq!(sum(&second.before).lives, 0, "nothing is left to fold");
    let mut later = second.before.clone();
    later.add(address(1), LIVES);
    let one = sum(&later);
    assert_eq!((one.lives, one.oldest), (1, Some(life_of(address(1), LIVES - 1))));
    rig.slots.set(rig.place(1, 5), 1 + rig.slots.get(rig.place(1, 5)));
    let changed = (0..rig.group.columns as usize).any(|column| {
        let place = rig.place(column, 5);
        let before = rig.slots.get(place);
        rig.slots.set(place, before + 1);
        let differs = sum(&later) != one;
        rig.slots.set(place, before);
        differs
    });
    assert!(changed, "a slot that differs is seen");
}

#[test]
fn bugs_of_agents_that_end_are_caught() {
    if !is_permitted() {
        return;
    }
    let program = Program::compile_eventual(None).expect("it compiles");
    let rig = Rig::load(&program);
    for bug in [Mutation::CountedTwice, Mutation::NamedEarly] {
        mutation::plant(Some(bug));
        let found = rig.ends_anywhere();
        mutation::plant(None);
        println!("{bug:?}: {found:?}");
        assert!(found.is_err(), "{bug:?} is not caught");
    }
}
