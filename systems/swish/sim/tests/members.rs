//! Groups of 2 to 4,096 members: one real switch completes windows against members that the test
//! plays (`swish_sim::peers`). Needs root.

use std::collections::BTreeMap;
use swish_protocol::layouts::{CELLS, phase};
use swish_protocol::message::{Cells, Message};
use swish_sim::peers::{FIRST, Peers, Said};
use swish_sim::{Program, Switch, Violation, seeded};

/// The group's variables: a counter is added to, a set grows.
const COUNTERS: usize = 0;
const SETS: usize = 1;
/// Cells that a member changes in a block, of messages with single cells.
const FEW: u32 = 5;

/// Updates of a rotation: by variable, which is also its block, and cell.
type Updates = BTreeMap<(usize, u32), u32>;

fn merge(variable: usize, into: &mut u32, by: u32) {
    *into = if variable == SETS { *into | by } else { into.wrapping_add(by) };
}

/// A number that differs for each member, window and cell.
fn amount(member: u32, window: u64, cell: u32) -> u32 {
    let mixed = (member * 361 + cell).wrapping_mul(0x9e37_79b1) ^ (window as u32) << 7;
    mixed.rotate_left(member % 31)
}

fn whole(variable: usize, member: u32, window: u64) -> Cells {
    let cells = (0..CELLS).map(|cell| amount(member, window, cell)).collect();
    Cells::Block { block: variable as u16, cells }
}

/// What a member sends: nothing, single cells of both blocks, both blocks whole, or many single
/// cells.
fn sends(member: u32, window: u64) -> Vec<Cells> {
    let single = |variable: usize, each: u8, count: u32| {
        let cell = |at: u32| (member * 7 + at * 3) % CELLS;
        let cells = (0..count).map(|at| (cell(at) as u16, amount(member, window, cell(at))));
        (variable as u16, cells.collect(), each)
    };
    match (u64::from(member) + window) % 4 {
        0 => vec![],
        1 => {
            let entries = [COUNTERS, SETS].map(|it| single(it, 32, FEW));
            let entries = entries.map(|(block, cells, _)| (block, cells)).to_vec();
            vec![Cells::Single { each: 32, entries }]
        }
        2 => vec![whole(SETS, member, window), whole(COUNTERS, member, window)],
        _ => {
            let (block, cells, each) = single(COUNTERS, 4, 59);
            vec![Cells::Single { each, entries: vec![(block, cells)] }]
        }
    }
}

/// What messages bring.
fn updates(messages: &[Cells]) -> Vec<((usize, u32), u32)> {
    let of = |cells: &Cells| -> Vec<((usize, u32), u32)> {
        match cells {
            Cells::None => vec![],
            Cells::Block { block, cells } => {
                (0..).zip(cells).map(|(cell, by)| ((usize::from(*block), cell), *by)).collect()
            }
            Cells::Single { entries, .. } => {
                let entry = |(block, cells): &(u16, Vec<(u16, u32)>)| {
                    let block = usize::from(*block);
                    cells.iter().map(|(at, by)| ((block, u32::from(*at)), *by)).collect::<Vec<_>>()
                };
                entries.iter().flat_map(entry).collect()
            }
        }
    };
    messages.iter().flat_map(of).collect()
}

fn same(peers: &Peers<'_>, expected: &Updates) -> Result<(), String> {
    for variable in [COUNTERS, SETS] {
        for (cell, is) in (0..).zip(peers.cells(variable).map_err(text)?) {
            let must = expected.get(&(variable, cell)).copied().unwrap_or(0);
            if is != must {
                return Err(format!("variable {variable}, cell {cell}: {is:#x}, not {must:#x}"));
            }
        }
    }
    Ok(())
}

fn text(violation: Violation) -> String {
    violation.to_string()
}

/// Some windows of a group of so many, with packets at the switch, too.
fn windows(members: u32, own: u32, count: u64) {
    let program = Program::compile_peers(CELLS, members, None).expect("compiles");
    let mut switch = Switch::load(&program).expect("loads");
    let mut peers = Peers::begin(&mut switch, members, own).expect("begins");
    let mut expected = Updates::new();
    for window in FIRST..FIRST + count {
        let mut own = Updates::new();
        for index in [3, 3, 9 + window as u32] {
            peers.packet(index, 1 << index).expect("a packet");
            for variable in [COUNTERS, SETS] {
                merge(variable, own.entry((variable, index)).or_default(), 1 << index);
            }
        }
        peers.all_ready().expect("all are ready");
        same(&peers, &expected).expect("values do not change in a window");
        let sent = peers.all_send(|member| sends(member, window)).expect("the window ends");
        assert_eq!(updates(&sent).into_iter().collect::<Updates>(), own, "what the switch sends");
        let all = peers.others().flat_map(|member| updates(&sends(member, window)));
        for (place, by) in all.chain(own) {
            merge(place.0, expected.entry(place).or_default(), by);
        }
        same(&peers, &expected).unwrap_or_else(|why| panic!("{members}, window {window}: {why}"));
    }
    println!("{members} members: {count} windows, {} ns of the program", peers.spent_ns);
}

#[test]
fn two() {
    windows(2, 0, 20);
    windows(2, 1, 20);
}

#[test]
fn thirty_two() {
    windows(32, 17, 9);
    windows(32, 31, 3);
}

#[test]
fn thirty_three_and_more() {
    windows(33, 32, 5);
    windows(100, 0, 5);
}

#[test]
fn four_thousand_and_ninety_six() {
    windows(4096, 2000, 4);
}

/// Members that say the same twice, or late, or what is not theirs.
fn wrong(switch: &mut Switch) -> Result<(), String> {
    let mut peers = Peers::begin(switch, 6, 2).map_err(text)?;
    for window in FIRST..FIRST + 2 {
        peers.all_ready().map_err(text)?;
        peers.all_send(|member| sends(member, window)).map_err(text)?;
    }
    let before = [COUNTERS, SETS].into_iter().map(|it| peers.cells(it));
    let before: Vec<Vec<u32>> = before.collect::<Result<_, _>>().map_err(text)?;
    let (window, _) = peers.word().map_err(text)?;
    let is = |peers: &mut Peers<'_>, wanted: (u64, u64), why: &str| {
        let word = peers.word().map_err(text)?;
        if word == wanted { Ok(()) } else { Err(format!("{why}: {word:?}, not {wanted:?}")) }
    };

    // Four of five are ready, some of them again and again; the fifth one was ready for the window
    // before.
    for member in [0, 0, 1, 3, 4, 0, 4, 4, 1] {
        peers.say(member, &Said::ready(window)).map_err(text)?;
    }
    is(&mut peers, (window, phase::READY), "one is not ready")?;
    peers.say(5, &Said::ready(window - 1)).map_err(text)?;
    peers.say(5, &Said::message(window - 1, 0, 1, whole(COUNTERS, 5, 0))).map_err(text)?;
    is(&mut peers, (window, phase::READY), "who was ready for the window before")?;
    let mut forged = peers.frame(5, &Said::ready(window));
    forged[42 + 31] ^= 1;
    let mut of_another = peers.frame(5, &Said::ready(window));
    of_another[29] ^= 1;
    let no_member = peers.frame(6, &Said::ready(window));
    for frame in [forged, of_another, no_member] {
        if peers.arrives(&frame).map_err(text)?.is_some() {
            return Err("a message that is not genuine is answered".into());
        }
    }
    is(&mut peers, (window, phase::READY), "who is no member")?;
    peers.say(5, &Said::ready(window)).map_err(text)?;
    is(&mut peers, (window, phase::SENDING), "all are ready")?;

    // 0 sends one of its two messages several times: it is merged once; the other one is missed.
    let message = |number| Said::message(window, number, 2, whole(number.into(), 0, window));
    for _ in 0..3 {
        peers.say(0, &message(0)).map_err(text)?;
    }
    for member in [1, 3, 4] {
        peers.say(member, &Said::nothing(window)).map_err(text)?;
    }
    // 1 and 4 are ready for the next window, as they have got all; the switch has not. (They say it
    // twice.)
    for member in [1, 4, 1, 4] {
        let said = Said { previous: true, total: 0, ..Said::ready(window + 1) };
        peers.say(member, &said).map_err(text)?;
    }
    peers.say(5, &Said::nothing(window)).map_err(text)?;
    is(&mut peers, (window, phase::SENDING), "a message of 0 is missing")?;
    peers.say(0, &message(1)).map_err(text)?;
    is(&mut peers, (window + 1, phase::READY), "all is sent")?;
    for (variable, before) in before.iter().enumerate() {
        for ((cell, is), before) in (0..).zip(peers.cells(variable).map_err(text)?).zip(before) {
            let mut must = *before;
            merge(variable, &mut must, amount(0, window, cell));
            if is != must {
                return Err(format!("variable {variable}, cell {cell}: {is:#x}, not {must:#x}"));
            }
        }
    }
    // They count in it, and do not have to say it again.
    for member in [0, 3] {
        peers.say(member, &Said::ready(window + 1)).map_err(text)?;
        is(&mut peers, (window + 1, phase::READY), "5 is not ready")?;
    }
    peers.say(5, &Said::ready(window + 1)).map_err(text)?;
    is(&mut peers, (window + 1, phase::SENDING), "all are ready, two since the window before")?;
    peers.all_send(|member| sends(member, window + 1)).map_err(text)?;
    Ok(())
}

#[test]
fn what_is_said_twice_or_late_counts_once_or_not_at_all() {
    let program = Program::compile_peers(CELLS, 6, None).expect("compiles");
    let mut switch = Switch::load(&program).expect("loads");
    wrong(&mut switch).expect("nothing wrong counts");
}

/// The checks above can fail.
#[test]
fn mistakes_of_the_data_plane_are_found() {
    for name in ["MergedTwice", "ReadyCountedTwice", "ReadyKept", "OldWindowAsNew"] {
        let bug = seeded::ALL.iter().find(|it| it.name == name).expect("a bug of this name");
        let program = Program::compile_peers(CELLS, 6, Some(bug)).expect("compiles");
        let mut switch = Switch::load(&program).expect("loads");
        let found = wrong(&mut switch).expect_err(name);
        println!("{name}: {found}");
    }
}

/// What a member asks for by its number it gets, though others have got all.
#[test]
fn what_a_member_lacks_it_gets_again() {
    let program = Program::compile_peers(CELLS, 4096, None).expect("compiles");
    let mut switch = Switch::load(&program).expect("loads");
    let mut peers = Peers::begin(&mut switch, 40, 39).expect("begins");
    peers.packet(3, 7).expect("a packet");
    peers.all_ready().expect("all are ready");
    let sent = peers.all_send(|_| vec![]).expect("the window ends");
    assert_eq!(sent.len(), 1);
    let asks = Said { want: 0, ..Said::nothing(FIRST) };
    let Some(Message { cells, previous: true, .. }) = peers.say(38, &asks).expect("runs") else {
        panic!("no answer, or not of the window before");
    };
    assert_eq!(cells, sent[0]);
}
