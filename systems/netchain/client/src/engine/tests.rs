use super::*;
use netchain_protocol::message::REPLY;
use netchain_protocol::{Founding, Key, Member, Message, Ring, Status};

const DEADLINE_US: u64 = 1_000_000;

fn engine() -> Engine {
    let member = (1..=3).map(|at| Member { address: [10, 9, 0, at].into(), rack: at.to_string() });
    let founding = Founding {
        cluster: "0123456789abcdef".into(),
        groups: 1,
        virtual_nodes: 10,
        failures: 2,
        member: member.collect(),
    };
    Engine::new(Core::new(Ring::found(founding).unwrap(), 7, 1_000, DEADLINE_US))
}

fn key() -> Key {
    Key::from_name("foo").unwrap()
}

fn sent(engine: &mut Engine) -> Vec<Message> {
    let mut sends = vec![];
    engine.take_sends(&mut sends);
    sends.iter().map(|send| Message::decode(&send.payload).unwrap()).collect()
}

fn reply(mut message: Message, status: Status, view: u32) -> Vec<u8> {
    (message.flags, message.status, message.view) = (REPLY, status, view);
    message.chain = if status == Status::OldView { vec![[10, 9, 0, 1].into()] } else { Vec::new() };
    message.encode().unwrap()
}

/// An engine that knows the chain.
fn knowing() -> Engine {
    let mut engine = engine();
    let first = engine.submit(Request::get(&key()), 0).unwrap();
    let probe = sent(&mut engine).remove(0);
    engine.receive(&reply(probe, Status::OldView, 1), 1);
    engine.cancel(first);
    assert!(sent(&mut engine).is_empty(), "what nobody waits for is not sent");
    engine
}

#[test]
fn replies_in_any_order_find_their_requests() {
    let mut engine = knowing();
    let tickets: Vec<Ticket> = (0..100)
        .map(|at| {
            let value = [at; 8];
            let one = if at % 2 == 0 { Request::put(&key(), &value) } else { Request::get(&key()) };
            engine.submit(one, 10).unwrap()
        })
        .collect();
    let mut messages: Vec<(usize, Message)> = sent(&mut engine).into_iter().enumerate().collect();
    messages.reverse();
    for (at, mut message) in messages {
        message.version = at as u64 + 1;
        engine.receive(&reply(message, Status::Done, 1), 20);
    }
    let mut answered: Vec<_> = std::iter::from_fn(|| engine.answer()).collect();
    answered.sort_by_key(|(ticket, _)| *ticket);
    for ((at, ticket), (answered, answer)) in tickets.iter().enumerate().zip(answered) {
        assert_eq!(*ticket, answered);
        assert_eq!(answer.unwrap().done().unwrap().now.version, at as u64 + 1);
    }
    assert_eq!((engine.outstanding(), engine.next_us()), (0, None));
}

#[test]
fn what_gets_no_reply_goes_again_and_is_over_at_its_deadline() {
    let mut engine = knowing();
    let short = Request::put(&key(), b"x").within(Duration::from_millis(5));
    let tickets = [short, Request::put(&key(), b"y")].map(|it| engine.submit(it, 0).unwrap());
    let mut copies = sent(&mut engine).len();
    let mut over = vec![];
    while let Some(next_us) = engine.next_us() {
        engine.time(next_us);
        copies += sent(&mut engine).len();
        while let Some((ticket, answer)) = engine.answer() {
            assert_eq!(answer, Ok(Outcome::Unknown));
            over.push((ticket, next_us));
        }
    }
    assert_eq!(over, [(tickets[0], 5_000), (tickets[1], DEADLINE_US)]);
    assert!(copies > 10, "{copies}");
}

/// Lets 100 ms go by in which each message gets this status or no reply; how many there were.
fn stall(engine: &mut Engine, status: Option<Status>) -> usize {
    let mut messages = 0;
    for now_us in (10..100_000).step_by(500) {
        engine.time(now_us);
        let copies = sent(engine);
        messages += copies.len();
        for copy in copies.into_iter().filter(|_| status.is_some()) {
            engine.receive(&reply(copy, status.unwrap_or(Status::Paused), 1), now_us);
        }
    }
    messages
}

#[test]
fn one_request_of_a_group_that_does_not_answer_asks_for_all() {
    for status in [None, Some(Status::Paused)] {
        let mut engine = knowing();
        let tickets: Vec<Ticket> =
            (0..1_000).map(|_| engine.submit(Request::get(&key()), 0).unwrap()).collect();
        let messages = stall(&mut engine, status);
        // Copies before it is clear that the group does not answer; a round each 64 ms; one that
        // asks. If all went again each 2 or 16 ms, it would be 50,000 or 9,000.
        assert!((1_000..6_000).contains(&messages), "{status:?}: {messages}");
        engine.time(101_000);
        let asks = loop {
            let next_us = engine.next_us().unwrap();
            engine.time(next_us);
            if let Some(asks) = sent(&mut engine).into_iter().find(|it| it.view == 1) {
                break asks;
            }
        };
        engine.receive(&reply(asks, Status::Done, 1), 160_000);
        let copies = sent(&mut engine);
        assert!(copies.len() > tickets.len() / 2, "{status:?}: {} go again at once", copies.len());
        for copy in copies {
            engine.receive(&reply(Message { view: 1, ..copy }, Status::Done, 1), 161_000);
        }
    }
}

/// A request whose chain keeps silent, and 10,000 that were dropped, are in nobody's way.
#[test]
fn dropped_requests_do_not_fill_the_window() {
    let mut engine = knowing();
    for _ in 0..10_000 {
        let ticket = engine.submit(Request::put(&key(), b"x"), 0).unwrap();
        sent(&mut engine);
        engine.cancel(ticket);
    }
    assert_eq!((engine.outstanding(), engine.next_us()), (0, None));
    let _silent = engine.submit(Request::put(&key(), b"x"), 0).unwrap();
    let begun = (0..1_000).filter(|_| {
        let begun = engine.submit(Request::put(&key(), b"x"), 0);
        begun.map(|ticket| engine.cancel(ticket)).is_ok()
    });
    assert_eq!(begun.count(), 255, "one identity, one window");
    engine.core = Core::with_identities(engine.core, 2);
    engine.submit(Request::put(&key(), b"x"), 0).unwrap();
}

#[test]
fn a_reply_that_comes_after_its_request_was_dropped_changes_nothing() {
    let mut engine = knowing();
    let ticket = engine.submit(Request::put(&key(), b"x"), 0).unwrap();
    let message = sent(&mut engine).remove(0);
    engine.cancel(ticket);
    engine.receive(&reply(message, Status::Done, 1), 1);
    engine.receive(b"short", 1);
    assert_eq!(engine.answer(), None);
}

/// A switch of another format says so without a number.
#[test]
fn another_format_is_told_to_all() {
    let mut engine = engine();
    for _ in 0..2 {
        engine.submit(Request::get(&key()), 0).unwrap();
    }
    engine.receive(&[2, 0, 14, 0, 0x80, 0], 1);
    engine.time(DEADLINE_US);
    for _ in 0..2 {
        assert_eq!(engine.answer().unwrap().1, Err(Failure::Format(2)));
    }
}

#[test]
fn so_many_are_under_way_and_no_more() {
    let mut engine = knowing();
    let first = engine.submit(Request::get(&key()), 0).unwrap();
    for _ in 1..OUTSTANDING_MAX {
        engine.submit(Request::get(&key()), 0).unwrap();
    }
    assert_eq!(engine.submit(Request::get(&key()), 0), Err(NotBegun::Busy));
    engine.cancel(first);
    assert!(engine.submit(Request::get(&key()), 0).is_ok());
}
