//! Frames that nobody made, as no port was up, and what comes after them. Needs root.

use dataplane::{Dataplane, Object, Settings};
use std::net::Ipv4Addr;
use swish_protocol::control::Member;
use swish_protocol::eventual::{DUE, life_of};
use swish_sim::Program;
use swish_switch::eventual::EventualGroup;
use swish_switch::gossip::{Pace, Terms};
use swish_switch::group::View;
use wire::{KeyRing, SECRET_BYTES, Secret};

const TERMS: Terms = Terms {
    bytes_per_s: 1_000_000_000,
    mirror_ns: 1_000_000,
    gossip_ns: 1_000_000,
    tombstone_ns: 1_000_000_000,
};
const LOOK_NS: u64 = 100_000;

fn view() -> View {
    let member = |number: u32| {
        let address = Ipv4Addr::new(10, 9, 0, number as u8);
        Member { number, address, incarnation: 0 }
    };
    View {
        number: 1,
        own: 1,
        members: vec![member(1), member(2)],
        bound: 1,
        window: 1,
        ..View::default()
    }
}

fn load(program: &Program) -> (Dataplane, EventualGroup) {
    let mut object = Object::open(&program.object, program.manifest.clone()).expect("object");
    let settings = Settings { test_mode: true, host_traffic: false, virtual_clock: true };
    object.set(settings).expect("settings");
    let dataplane = object.load().expect("it loads");
    let groups = EventualGroup::all(&program.manifest).expect("groups");
    let group = groups.into_iter().find(|it| it.room() > 0).expect("a group with slots");
    let ring = KeyRing::new(0, Secret([7; SECRET_BYTES])).expect("a ring");
    let own = Ipv4Addr::new(10, 9, 0, 1);
    group.begin_alone(&dataplane, life_of(own, 0), own).expect("it begins");
    group.take(&dataplane, &view(), None, &ring).expect("it takes the view");
    (dataplane, group)
}

#[test]
fn gossip_goes_on_after_frames_that_nobody_made() {
    let program = Program::compile_eventual(None).expect("eventual.p4");
    let (dataplane, group) = load(&program);
    let mut pace = Pace::new(1);
    let mut now_ns = 0;
    let mut look = |pace: &mut Pace| {
        now_ns += LOOK_NS;
        group.queue(&dataplane, pace, TERMS, now_ns).expect("a look")
    };
    // No port is up.
    let queued: u64 = (0..5000).map(|_| look(&mut pace)).sum();
    assert!(queued >= u64::from(DUE), "{queued} frames do not fill the queue");
    let round = pace.round();
    let more: u64 = (0..100).map(|_| look(&mut pace)).sum();
    assert!(more > 0, "nothing is to be made, though the queue is full");
    assert_eq!(pace.round(), round, "rounds went on, and nobody was sent anything");
    // One is, for this agent or the next one.
    let mut pace = Pace::new(1);
    let mut made = 0;
    for _ in 0..100 {
        let due = look(&mut pace);
        (0..due).for_each(|_| drop(dataplane.run_generated(LOOK_NS).expect("a run")));
        made += due;
    }
    assert!(made > u64::from(DUE), "only {made} frames are to be made");
    assert!(pace.round() > 0, "gossip goes round again");
}
