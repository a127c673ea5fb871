//! How many frames without cells a switch sends when a window turns, to a member that the test
//! plays (`swish_sim::peers`). Needs root.

use swish_protocol::layouts::{CELLS, KEPT, MANY};
use swish_protocol::message::{Cells, Message};
use swish_sim::peers::{FIRST, Peers, Said};
use swish_sim::{Program, Switch};

/// Blocks of a variable. There are two, so all blocks are a large window's.
const BLOCKS: u32 = MANY / 2;
/// Changed cells of a block with which blocks are sent whole.
const WHOLE: u32 = 60;
/// Frames of each kind.
const FRAMES: usize = 20;

/// All blocks change, and are sent whole; or one cell of each variable changes.
fn change(peers: &mut Peers<'_>, all: bool) {
    let one = |cell| peers.packet(cell, 1).expect("a packet");
    match all {
        true => (1..WHOLE).chain((0..BLOCKS).map(|it| it * CELLS)).for_each(one),
        false => (0..1).for_each(one),
    }
}

/// A window, whose end the member does not know yet: how many of its frames the switch answers, of
/// those that lost their cells at the member, and of those that wait there. None brings cells.
fn window(peers: &mut Peers<'_>, all: bool) -> [usize; 2] {
    change(peers, all);
    let (window, _) = peers.word().expect("runs");
    peers.all_ready().expect("all are ready");
    let mut messages = 1;
    while peers.word().expect("runs").0 == window {
        let answer = peers.say(1, &Said::nothing(window)).expect("runs").expect("an answer");
        messages += u32::from(answer.cells != Cells::None);
    }
    assert_eq!(messages, if all { MANY } else { 1 });
    [1, 2].map(|hops| {
        let said = Said { hops, ..Said::nothing(window) };
        let answers = (0..FRAMES).filter_map(|_| peers.say(1, &said).expect("runs"));
        answers.inspect(|it: &Message| assert_eq!(it.cells, Cells::None)).count()
    })
}

/// What windows of a kind answer, from the third one on. (Two have to be timed.)
fn windows(all: bool, step_ns: u64) -> Vec<[usize; 2]> {
    let program = Program::compile_peers(BLOCKS * CELLS, 2, None).expect("compiles");
    let mut switch = Switch::load(&program).expect("loads");
    let mut peers = Peers::begin(&mut switch, 2, 0).expect("begins");
    peers.step_ns = step_ns;
    let answers: Vec<_> = (FIRST..FIRST + 6).map(|_| window(&mut peers, all)).collect();
    answers[2..].to_vec()
}

#[test]
fn a_few_frames_go_on_when_a_large_window_turns() {
    assert_eq!(windows(true, 500), [[KEPT as usize, FRAMES]; 4]);
}

#[test]
fn all_frames_of_a_slow_way_go_on() {
    assert_eq!(windows(true, 5_000), [[FRAMES; 2]; 4]);
}

#[test]
fn all_frames_of_small_windows_go_on() {
    assert_eq!(windows(false, 500), [[FRAMES; 2]; 4]);
}
