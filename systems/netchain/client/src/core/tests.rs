use super::*;
use netchain_protocol::{Founding, Member};

mod list;

const RETRY_US: u64 = 1_000;
const DEADLINE_US: u64 = 50_000;

fn address(i: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, i)
}

fn core() -> Core {
    let member = (1..=3).map(|i| Member { address: address(i), rack: format!("r{i}") }).collect();
    let cluster = "0123456789abcdef".into();
    let founding = Founding { cluster, groups: 30, virtual_nodes: 10, failures: 2, member };
    Core::new(Ring::found(founding).unwrap(), 77, RETRY_US, DEADLINE_US)
}

fn foo() -> Key {
    Key::from_name("foo").unwrap()
}

fn chain(core: &Core) -> Vec<Ipv4Addr> {
    core.ring.chain_of(core.ring.group_of(&foo())).unwrap()
}

/// A client that knows the chain of `foo`, in view 1.
fn knowing() -> Core {
    let mut core = core();
    let (group, members) = (core.ring.group_of(&foo()), chain(&core));
    let chain = Chain { view: 1, members, floor: 0, head_since: 1, joining: 0 };
    assert!(core.learn_chain(group, chain));
    core
}

fn begin(core: &mut Core, operation: Operation, value: Option<&[u8]>) -> Pending {
    core.begin(operation, foo(), value.map(<[u8]>::to_vec), 0, 0).unwrap()
}

fn put(core: &mut Core) -> Pending {
    begin(core, Operation::Put, Some(b"x"))
}

fn sent(step: Step) -> (Ipv4Addr, Message) {
    let Step::Send(send) = step else { panic!("{step:?}") };
    (send.to, Message::decode(&send.payload).unwrap())
}

fn answered(mut message: Message, status: Status, change: impl FnOnce(&mut Message)) -> Vec<u8> {
    message.flags |= REPLY;
    message.status = status;
    message.chain = vec![];
    change(&mut message);
    message.encode().unwrap()
}

fn reply(message: &Message, status: Status) -> Vec<u8> {
    answered(message.clone(), status, |_| {})
}

fn outcome(step: Step) -> Outcome {
    let Step::Over(Ok(outcome)) = step else { panic!("{step:?}") };
    outcome
}

#[test]
fn a_write_goes_to_the_head_and_a_read_to_the_tail() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (head, write) = sent(core.time(&mut write, 0));
    let mut read = begin(&mut core, Operation::Read, None);
    let (tail, read) = sent(core.time(&mut read, 0));
    let chain = chain(&core);
    assert_eq!((head, tail), (chain[0], chain[2]));
    assert_eq!(write.chain, chain[1..]);
    assert_eq!(read.chain, [chain[1], chain[0]]);
    assert_eq!((write.view, write.ring), (1, core.ring.fingerprint()));
}

/// A guess of the view could be carried out, and what follows would then have to be a retry.
#[test]
fn the_first_request_of_a_group_asks_for_its_chain() {
    let mut core = core();
    let mut write = put(&mut core);
    for i in 0..4 {
        let (to, probe) = sent(core.time(&mut write, i * 20_000 / 3));
        assert_eq!((to, probe.view), (chain(&core)[i as usize % 3], 0));
        assert_eq!((probe.operation, probe.flags), (Operation::Read, 0));
        if i == 3 {
            let told = answered(probe, Status::OldView, |told| {
                (told.view, told.chain) = (4, vec![address(2), address(9)]);
            });
            let (to, copy) = sent(core.receive(&mut write, &told, 21_000));
            assert_eq!((to, copy.operation, copy.flags), (address(2), Operation::Put, 0));
            assert_eq!((copy.view, copy.chain), (4, vec![address(9)]));
        }
    }
    // Nothing but probes: nothing can have happened.
    let mut core = self::core();
    let mut write = put(&mut core);
    sent(core.time(&mut write, 0));
    assert_eq!(outcome(core.time(&mut write, DEADLINE_US)), Outcome::NoChain);
}

#[test]
fn without_a_reply_it_goes_again_and_is_unknown_in_the_end() {
    let mut core = knowing();
    let mut write = put(&mut core);
    assert_eq!(sent(core.time(&mut write, 0)).1.flags, 0);
    assert_eq!(core.time(&mut write, 999), Step::Wait);
    // (In one view the head knows which copies it had.)
    assert_eq!(sent(core.time(&mut write, 1_000)).1.flags, 0);
    assert_eq!(core.time(&mut write, 2_999), Step::Wait);
    assert_eq!(sent(core.time(&mut write, 3_000)).1.number, 1);
    // A chain that keeps silent may be another one by now: the other members are asked.
    let (to, probe) = sent(core.time(&mut write, 7_000));
    assert_eq!((to, probe.view, probe.operation), (chain(&core)[1], 0, Operation::Read));
    assert_eq!(sent(core.time(&mut write, 15_000)).1.operation, Operation::Put);
    assert_eq!(outcome(core.time(&mut write, DEADLINE_US)), Outcome::Unknown);
    let mut read = begin(&mut core, Operation::Read, None);
    sent(core.time(&mut read, 0));
    assert_eq!(outcome(core.time(&mut read, DEADLINE_US)), Outcome::NoChain);
}

/// A switch that did not carry a copy out says nothing of the others, which the network may have
/// made, too.
#[test]
fn a_copy_that_was_not_carried_out_says_nothing_of_others() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, message) = sent(core.time(&mut write, 0));
    assert_eq!(core.receive(&mut write, &reply(&message, Status::NoGroup), 1), Step::Wait);
    assert_eq!(outcome(core.time(&mut write, DEADLINE_US)), Outcome::Unknown);
}

/// The state that a repeated refusal shows is no reason for it.
#[test]
fn a_refusal_that_is_said_again_is_marked() {
    for (flags, moved) in [(0, false), (MOVED, true)] {
        let mut core = knowing();
        let mut write = begin(&mut core, Operation::Insert, Some(b"x"));
        let (_, message) = sent(core.time(&mut write, 0));
        let refused = answered(message, Status::Refused, |it| it.flags |= flags);
        let now = Shown { version: 0, value: Some(b"x".to_vec()) };
        let expected = Outcome::Refused(Refused { now, moved });
        assert_eq!(outcome(core.receive(&mut write, &refused, 1)), expected);
    }
}

#[test]
fn an_old_view_teaches_the_chain() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, first) = sent(core.time(&mut write, 0));
    let told = answered(first, Status::OldView, |told| {
        (told.view, told.chain) = (2, vec![address(3)]);
    });
    let (to, second) = sent(core.receive(&mut write, &told, 10));
    assert_eq!((to, second.view, second.flags), (address(3), 2, AGAIN));
    let done = core.receive(&mut write, &reply(&second, Status::Done), 20);
    assert!(matches!(outcome(done), Outcome::Done(_)));
    // The next request of the group knows.
    let mut read = begin(&mut core, Operation::Read, None);
    assert_eq!(sent(core.time(&mut read, 30)).0, address(3));
    // An older view teaches nothing.
    assert_eq!(core.receive(&mut read, &told, 40), Step::Wait);
}

/// A copy says which version its client knew before the first one: a later head's records may go
/// back to there. What the client hears meanwhile says nothing of the first copy.
#[test]
fn all_copies_name_the_version_that_was_known_before_the_first() {
    let mut core = knowing();
    let mut first = put(&mut core);
    let (_, copy) = sent(core.time(&mut first, 0));
    assert_eq!(copy.version, 0);
    let mut second = put(&mut core);
    core.receive(&mut first, &answered(copy, Status::Done, |it| it.version = 7), 1);
    let (_, copy) = sent(core.time(&mut second, 2));
    assert_eq!(copy.version, 7, "what is known when it is sent");
    let mut read = begin(&mut core, Operation::Read, None);
    let (_, asked) = sent(core.time(&mut read, 3));
    core.receive(&mut read, &answered(asked, Status::Done, |it| it.version = 9), 4);
    let told = answered(copy, Status::OldView, |it| (it.view, it.chain) = (2, vec![address(3)]));
    let (_, copy) = sent(core.receive(&mut second, &told, 5));
    assert_eq!((copy.flags, copy.version), (AGAIN, 7));
    let mut third = put(&mut core);
    assert_eq!(sent(core.time(&mut third, 6)).1.version, 9);
}

/// What a request makes is above the floor that was known when its first copy was sent.
#[test]
fn the_floor_of_a_chain_is_a_version_that_was_known() {
    let mut core = knowing();
    let (floor, mut early, mut write) = (3 << 48, put(&mut core), put(&mut core));
    let (_, copy) = sent(core.time(&mut early, 0));
    let (_, other) = sent(core.time(&mut write, 0));
    // The head is the same one since `since`; flag TOLD: it says so.
    let old_view = |copy, since: u64, flags: u16| {
        answered(copy, Status::OldView, |it| {
            (it.view, it.chain, it.version) = (2, vec![address(3)], floor);
            (it.operand, it.flags) = (since, it.flags | flags);
        })
    };
    let (_, again) = sent(core.receive(&mut early, &old_view(copy, 2, TOLD), 1));
    assert_eq!((again.flags, again.version), (AGAIN, 0), "its first copy was sent before");
    let mut later = put(&mut core);
    assert_eq!(sent(core.time(&mut later, 2)).1.version, floor);
    core.receive(&mut write, &answered(other, Status::Done, |it| it.version = floor | 9), 3);
    let mut newer = put(&mut core);
    assert_eq!(sent(core.time(&mut newer, 4)).1.version, floor | 9);
    // The head is the one that the first copy went to: it knows what became of that.
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, copy) = sent(core.time(&mut write, 0));
    let (_, next) = sent(core.receive(&mut write, &old_view(copy, 1, TOLD), 1));
    assert_eq!(next.flags, 0);
    // A switch from before floors has the request's own numbers there.
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, copy) = sent(core.time(&mut write, 0));
    let (_, next) = sent(core.receive(&mut write, &old_view(copy, 1, 0), 1));
    assert_eq!(next.flags, AGAIN);
    let mut later = put(&mut core);
    assert_eq!(sent(core.time(&mut later, 2)).1.version, 0, "no floor");
}

/// Else client and switch would send each other messages without end.
#[test]
fn a_switch_that_is_behind_is_asked_again_later() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, first) = sent(core.time(&mut write, 0));
    let behind = reply(&first, Status::WrongSwitch);
    assert_eq!(core.receive(&mut write, &behind, 10), Step::Wait);
    sent(core.time(&mut write, 1_000));
}

#[test]
fn what_is_no_reply_to_the_request_changes_nothing() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, message) = sent(core.time(&mut write, 0));
    let changes: [fn(&mut Message); 6] = [
        |it| it.client += 1,
        |it| it.number += 1,
        |it| it.key.0[0] += 1,
        |it| it.group += 1,
        |it| it.operation = Operation::Read,
        |it| it.flags = 0,
    ];
    for change in changes {
        let other = answered(message.clone(), Status::Done, change);
        assert_eq!(core.receive(&mut write, &other, 1), Step::Wait);
    }
    assert_eq!(core.receive(&mut write, b"no message", 1), Step::Wait);
    core.receive(&mut write, &reply(&message, Status::Done), 1);
}

/// Copy 1 is refused in view 1, and its reply is slow; copy 2 is carried out in view 2.
#[test]
fn a_refusal_is_final_only_in_the_last_copys_view() {
    for (status, expected) in [
        (
            Status::Refused,
            Outcome::Refused(Refused {
                now: Shown { version: 0, value: Some(b"x".to_vec()) },
                moved: false,
            }),
        ),
        (Status::Full, Outcome::Full),
    ] {
        let mut core = knowing();
        let mut write = begin(&mut core, Operation::Insert, Some(b"x"));
        let (_, first) = sent(core.time(&mut write, 0));
        let told = answered(first.clone(), Status::OldView, |told| {
            (told.view, told.chain) = (2, vec![address(3)]);
        });
        let (_, second) = sent(core.receive(&mut write, &told, 10));
        assert_eq!(core.receive(&mut write, &reply(&first, status), 20), Step::Wait);
        let last = core.receive(&mut write, &reply(&second, status), 30);
        assert_eq!(outcome(last), expected);
    }
    // DONE is final whenever it comes.
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, first) = sent(core.time(&mut write, 0));
    let told = answered(first.clone(), Status::OldView, |told| {
        (told.view, told.chain) = (2, vec![address(3)]);
    });
    core.receive(&mut write, &told, 10);
    let done = core.receive(&mut write, &reply(&first, Status::Done), 20);
    assert!(matches!(outcome(done), Outcome::Done(_)));
}

/// A put has no condition: REFUSED is what the head repeats of a FULL.
#[test]
fn a_refused_put_is_one_without_a_slot() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, message) = sent(core.time(&mut write, 0));
    let refused = core.receive(&mut write, &reply(&message, Status::Refused), 1);
    assert_eq!(outcome(refused), Outcome::Full);
}

#[test]
fn no_room_is_asked_again_with_all_of_it() {
    let mut core = knowing();
    let mut write = begin(&mut core, Operation::CompareOwner, Some(b"x"));
    let (_, first) = sent(core.time(&mut write, 0));
    assert_eq!(first.room, Room::Small);
    let no_room = reply(&first, Status::NoRoom);
    let (_, second) = sent(core.receive(&mut write, &no_room, 1));
    assert_eq!((second.room, second.number, second.flags), (Room::Large, first.number, 0));
    assert_eq!(core.receive(&mut write, &no_room, 2), Step::Wait);
    let done = core.receive(&mut write, &reply(&second, Status::Done), 3);
    assert!(matches!(outcome(done), Outcome::Done(_)));
    let mut read = begin(&mut core, Operation::Read, None);
    assert_eq!(sent(core.time(&mut read, 0)).1.room, Room::Large);
}

/// Nobody takes a later write's version for a fencing token.
#[test]
fn own_and_current_version_are_apart() {
    for (flags, operand, own) in [(0, 5, Some(9)), (MOVED, 7, Some(7)), (MOVED, 0, None)] {
        let mut core = knowing();
        let mut write = put(&mut core);
        let (_, message) = sent(core.time(&mut write, 0));
        let done = answered(message, Status::Done, |done| {
            done.flags |= flags;
            (done.version, done.operand) = (9, operand);
        });
        let now = Shown { version: 9, value: Some(b"x".to_vec()) };
        let expected = Outcome::Done(Done { own, now });
        assert_eq!(outcome(core.receive(&mut write, &done, 1)), expected);
    }
}

#[test]
fn a_lost_group_is_an_outcome_of_its_own() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, message) = sent(core.time(&mut write, 0));
    let lost = |view| answered(message.clone(), Status::Lost, |lost| lost.view = view);
    // (From before the chain that the client knows.)
    assert_eq!(core.receive(&mut write, &lost(0), 1), Step::Wait);
    assert_eq!(outcome(core.receive(&mut write, &lost(2), 1)), Outcome::Lost);
    // A probe is enough.
    let mut core = self::core();
    let mut write = put(&mut core);
    let (_, probe) = sent(core.time(&mut write, 0));
    let lost = answered(probe, Status::Lost, |lost| lost.view = 2);
    assert_eq!(outcome(core.receive(&mut write, &lost, 1)), Outcome::Lost);
}

#[test]
fn failures_are_said_unless_a_copy_may_have_been_carried_out() {
    let ours = core().ring.fingerprint();
    for (status, failure) in [
        (Status::Denied, Failure::Denied),
        (Status::TooMany, Failure::TooMany),
        (Status::WrongRing, Failure::WrongRing { ours, theirs: 5 }),
    ] {
        for copies in 1..=2 {
            let mut core = knowing();
            let mut write = put(&mut core);
            let (_, message) = sent(core.time(&mut write, 0));
            if copies == 2 {
                sent(core.time(&mut write, 1_000));
            }
            let answer = answered(message, status, |it| it.ring = 5);
            let step = core.receive(&mut write, &answer, 1_001);
            if copies == 1 {
                assert_eq!(step, Step::Over(Err(failure)));
            } else {
                assert_eq!(step, Step::Wait);
                assert_eq!(outcome(core.time(&mut write, DEADLINE_US)), Outcome::Unknown);
            }
        }
    }
}

#[test]
fn another_format_is_said_if_nothing_else_comes() {
    let mut core = core();
    let mut write = put(&mut core);
    sent(core.time(&mut write, 0));
    assert_eq!(core.receive(&mut write, &[2, 0, 14, 0, 0x80, 0], 1), Step::Wait);
    let over = core.time(&mut write, DEADLINE_US);
    assert_eq!(over, Step::Over(Err(Failure::Format(2))));
}

#[test]
fn undecided_is_unknown() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, message) = sent(core.time(&mut write, 0));
    let undecided = reply(&message, Status::Undecided);
    assert_eq!(outcome(core.receive(&mut write, &undecided, 1)), Outcome::Unknown);
}

/// The head remembers 256 numbers of a client.
#[test]
fn at_most_255_numbers_lie_behind_the_oldest_request() {
    let mut core = knowing();
    let oldest = put(&mut core);
    for _ in 0..WINDOW {
        let pending = put(&mut core);
        core.abandon(&pending);
    }
    let refused = core.begin(Operation::Put, foo(), Some(vec![]), 0, 0);
    assert_eq!(refused.unwrap_err(), NotBegun::Busy);
    core.abandon(&oldest);
    put(&mut core);
}

#[test]
fn what_is_over_leaves_the_window() {
    let mut core = knowing();
    for i in 0..600 {
        let mut write = put(&mut core);
        let (_, message) = sent(core.time(&mut write, 0));
        match i % 3 {
            0 => drop(core.receive(&mut write, &reply(&message, Status::Done), 1)),
            1 => drop(core.receive(&mut write, &reply(&message, Status::Denied), 1)),
            _ => drop(core.time(&mut write, DEADLINE_US)),
        }
    }
    assert!(core.lanes.is_idle());
}

#[test]
fn a_value_of_129_bytes_is_too_long() {
    let begun = core().begin(Operation::Put, foo(), Some(vec![0; 129]), 0, 0);
    assert_eq!(begun.unwrap_err(), NotBegun::TooLong(129));
}

#[test]
fn a_reply_that_no_switch_signed_changes_nothing() {
    let key = ClientKey { id: 3, secret: wire::Secret([7; 16]) };
    let mut core = knowing().with_key(Some(key));
    let mut request = put(&mut core);
    let Step::Send(send) = core.time(&mut request, 0) else { panic!("not sent") };
    assert!(key.verify(&send.payload), "signed");
    let message = Message::decode(&send.payload).unwrap();
    let unsigned = reply(&message, Status::Done);
    let mut of_another = unsigned.clone();
    ClientKey { id: 4, ..key }.sign(&mut of_another);
    let mut forged = unsigned.clone();
    ClientKey { secret: wire::Secret([8; 16]), ..key }.sign(&mut forged);
    let mut other_format = unsigned.clone();
    other_format[0] = FORMAT + 1;
    for bytes in [&unsigned, &of_another, &forged, &other_format] {
        assert_eq!(core.receive(&mut request, bytes, 1), Step::Wait);
    }
    assert_eq!((core.forged(), request.failure), (4, None));
    let mut genuine = unsigned;
    key.sign(&mut genuine);
    assert!(outcome(core.receive(&mut request, &genuine, 1)).done().is_some());
    assert_eq!(core.forged(), 4);
}

/// A failover is over after some hundred milliseconds at the most: nobody waits longer than that
/// for the next copy.
#[test]
fn the_wait_between_copies_ends_at_16_ms() {
    let mut core = knowing();
    let mut write = core.begin(Operation::Put, foo(), Some(vec![]), 0, 0).unwrap();
    let (mut now, mut longest) = (0, 0);
    while now + 16_000 < DEADLINE_US {
        sent(core.time(&mut write, now));
        longest = longest.max(write.next_us() - now);
        now = write.next_us();
    }
    assert_eq!(longest, 16_000);
}

#[test]
fn a_view_that_does_not_serve_yet_is_asked_again_soon() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (_, copy) = sent(core.time(&mut write, 0));
    let others = [address(7), address(8)];
    let told = answered(copy, Status::Paused, |it| (it.view, it.chain) = (2, others.to_vec()));
    let mut now = 0;
    for _ in 1..PAUSES_OF_ONE {
        assert_eq!(core.receive(&mut write, &told, now), Step::Wait);
        assert_eq!(write.next_us(), now + 2_000);
        now += 2_000;
        let (to, copy) = sent(core.time(&mut write, now));
        assert_eq!((to, copy.view, copy.flags), (others[0], 2, AGAIN));
    }
    // An older view's word delays nothing.
    let next = write.next_us();
    let (_, old) = sent(core.time(&mut write, next));
    let next = write.next_us();
    let old = answered(old, Status::Paused, |it| it.view = 1);
    assert_eq!(core.receive(&mut write, &old, now), Step::Wait);
    assert_eq!(write.next_us(), next);
    let last = core.time(&mut write, DEADLINE_US);
    assert_eq!(outcome(last), Outcome::Unknown);
}

/// A reader without an agent has no lease, and never hears of the view that it is not in any more.
#[test]
fn other_members_are_asked_while_one_only_says_paused() {
    let mut core = knowing();
    let mut read = begin(&mut core, Operation::Read, None);
    let (mute, copy) = sent(core.time(&mut read, 0));
    let paused = reply(&copy, Status::Paused);
    let mut now = 0;
    let mut others = vec![];
    while now < 45_000 {
        core.receive(&mut read, &paused, now);
        now = read.next_us();
        let (to, asked) = sent(core.time(&mut read, now));
        if to != mute {
            assert_eq!(asked.view, 0, "a probe");
            others.push(to);
        }
    }
    others.dedup();
    assert!(others.len() >= 2, "{others:?}");
}

/// The other one knows nothing new: the next copy goes where it belongs, as the pause may be over.
#[test]
fn one_probe_follows_a_long_pause() {
    let mut core = knowing();
    let mut write = put(&mut core);
    let (head, copy) = sent(core.time(&mut write, 0));
    let paused = reply(&copy, Status::Paused);
    for _ in 0..PAUSES_OF_ONE {
        core.receive(&mut write, &paused, 0);
    }
    let next = write.next_us();
    let (_, probe) = sent(core.time(&mut write, next));
    assert_eq!(probe.view, 0);
    let told = answered(probe, Status::OldView, |it| (it.view, it.chain) = (1, vec![head]));
    assert_eq!(core.receive(&mut write, &told, next), Step::Wait);
    let next = write.next_us();
    let (to, copy) = sent(core.time(&mut write, next));
    assert_eq!((to, copy.view, copy.operation), (head, 1, Operation::Put));
}

/// A member that joins behind the only other one is the tail, and reads nothing yet.
#[test]
fn a_read_passes_a_member_by_that_joins() {
    let mut core = knowing();
    let chain = chain(&core);
    let told = chain.clone();
    let wrong = |copy: Message| answered(copy, Status::WrongSwitch, |it| it.chain = told.clone());
    let mut read = begin(&mut core, Operation::Read, None);
    let (tail, copy) = sent(core.time(&mut read, 0));
    assert_eq!(tail, chain[2]);
    let (reader, copy) = sent(core.receive(&mut read, &wrong(copy), 10));
    assert_eq!((reader, &copy.chain[..]), (chain[1], &chain[..1]));
    assert_eq!(copy.flags, 0);
    // The next read knows.
    let mut next = begin(&mut core, Operation::Read, None);
    let (reader, _) = sent(core.time(&mut next, 20));
    assert_eq!(reader, chain[1]);
    // All have refused: the timer goes on.
    let (head, copy) = sent(core.receive(&mut read, &wrong(copy), 30));
    assert_eq!(head, chain[0]);
    assert_eq!(core.receive(&mut read, &wrong(copy), 40), Step::Wait);
    // A new view begins anew.
    let newer = answered(
        Message { view: 2, ..sent(core.time(&mut next, 60_000 - 20_000)).1 },
        Status::OldView,
        |it| it.chain = chain.clone(),
    );
    let (tail, _) = sent(core.receive(&mut next, &newer, 41_000));
    assert_eq!(tail, chain[2]);
}
