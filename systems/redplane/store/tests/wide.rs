//! Keys and values of 256 bytes, the longest: on a chain in one process, in a log, and beside a
//! fast path, which has no room for them.

mod common;

use common::*;
use fast_chain::{Count, Memory, Verdict};
use state_protocol::MessageType::{LeaseGrant, ReleaseAck, UpdateAck};
use state_protocol::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Message, MessageType, Owner};
use state_store::core::{Input, Outputs, Settings};
use wire::{Batch, BatchRecord, EncodeError, HEADER_BYTES, Malformed, RecordFlags};

const ONE: Owner = Owner { switch_id: 1, incarnation: 1 };
const TWO: Owner = Owner { switch_id: 2, incarnation: 1 };

/// Counters of the longest keys and values.
fn wide(settings: &mut Settings) {
    let counter = settings.objects.iter_mut().find(|object| object.id == COUNTER).unwrap();
    (counter.key_bytes, counter.value_bytes) = (MAX_KEY_BYTES, MAX_VALUE_BYTES);
}

/// Keys differ in their last byte only, so that nothing may cut them off.
fn key(last: u8) -> Vec<u8> {
    let mut key = vec![b'k'; MAX_KEY_BYTES];
    key[MAX_KEY_BYTES - 1] = last;
    key
}

fn value(number: u8) -> Vec<u8> {
    (0..MAX_VALUE_BYTES).map(|at| number ^ at as u8).collect()
}

fn record(key: &[u8], epoch: u32, seq: u64, value: &[u8], bytes: &mut Vec<u8>) {
    let flags = RecordFlags::NONE;
    let record = BatchRecord { object_id: COUNTER, flags, epoch, place: 0, seq, content: &[] };
    record.append_to(key, value, bytes).unwrap();
}

fn granted(chain: &mut Chain, sender: Owner, key: &[u8]) -> (u32, u64, Vec<u8>) {
    let grant = chain.ask(&lease(COUNTER, sender, key));
    assert_eq!(grant.kind(), LeaseGrant);
    let grant = grant.message();
    (grant.epoch, grant.seq, grant.value.to_vec())
}

#[test]
fn updates_alone_and_in_batches_are_on_every_server_and_go_to_the_next_switch() {
    let mut chain = Chain::with(3, wide);
    let (a, b) = (key(1), key(2));
    let (epoch, seq, zeros) = granted(&mut chain, ONE, &a);
    assert_eq!((seq, zeros), (0, vec![0; MAX_VALUE_BYTES]));
    let (other_epoch, ..) = granted(&mut chain, ONE, &b);
    let ack = chain.ask(&update(ONE, &a, epoch, 1, &value(1)));
    assert_eq!((ack.kind(), ack.message().seq), (UpdateAck, 1));
    let mut records = Vec::new();
    record(&a, epoch, 2, &value(2), &mut records);
    record(&b, other_epoch, 1, &value(3), &mut records);
    let ack = chain.batch(ONE, &records).unwrap();
    assert_eq!((ack.count, ack.refused), (2, 0));
    chain.assert_alike();
    for (key, number) in [(&a, 2), (&b, 3)] {
        assert_eq!(chain.record(key).value.as_slice(), value(number));
    }
    let release = Message {
        seq: 3,
        epoch,
        value: &value(4),
        ..message(MessageType::Release, COUNTER, ONE, &a)
    };
    assert_eq!(chain.ask(&release).kind(), ReleaseAck);
    let (_, seq, last) = granted(&mut chain, TWO, &a);
    assert_eq!((seq, last), (3, value(4)));
    chain.assert_alike();
}

#[test]
fn one_byte_more_or_less_is_refused() {
    let mut chain = Chain::with(2, wide);
    let key_of_257 = vec![b'k'; MAX_KEY_BYTES + 1];
    let sent = |message: &Message<'_>| message.append_to(&mut Vec::new());
    assert_eq!(sent(&lease(COUNTER, ONE, &key_of_257)), Err(EncodeError::FieldTooLong));
    let value_of_257 = vec![0; MAX_VALUE_BYTES + 1];
    let long = update(ONE, b"k", 1, 1, &value_of_257);
    assert_eq!(sent(&long), Err(EncodeError::FieldTooLong));
    // By hand: a byte more, and the length that says so.
    for (at, reason) in [(28, Malformed::KeyLength), (30, Malformed::ValueLength)] {
        let mut bytes = Vec::new();
        update(ONE, &key(1), 1, 1, &value(1)).append_to(&mut bytes).unwrap();
        bytes.insert(HEADER_BYTES, b'x');
        bytes[at..at + 2].copy_from_slice(&257u16.to_be_bytes());
        assert_eq!(Message::decode(&bytes), Err(reason));
    }
    let (epoch, ..) = granted(&mut chain, ONE, &key(1));
    chain.send(&update(ONE, &key(1), epoch, 1, &value(1)[1..]));
    chain.send(&lease(COUNTER, ONE, &key(1)[1..]));
    assert!(chain.reply().is_none());
    assert_eq!(chain.head().counters().dropped_wrong_size, 2);
    let mut records = Vec::new();
    record(&key(1)[8..], epoch, 1, &value(1), &mut records);
    assert_eq!(chain.batch(ONE, &records).unwrap().refused, 1);
}

#[test]
fn a_log_has_them() {
    let mut settings = settings();
    wide(&mut settings);
    let (mut server, mut journal) =
        Server::founding_with_journal(settings.clone(), start(1, 0), 0, 1);
    let mut now = SECOND;
    let mut handle = |message: &Message<'_>| {
        now += MS;
        let message = Message { request_ns: now, ..*message };
        let (from, mut out) = (switch_address(1), Outputs::new());
        let bytes = signed(&message, from, server_address(0));
        server.handle(now, Input::Datagram { from, bytes: &bytes }, &mut out);
        server.flush(now, &mut out);
        journal.extend(&out.journal);
        let records = server.records();
        let found = records.find(0, message.key).map(|slot| records.get(slot));
        found.map_or((0, 0), |record| (record.epoch, record.seq))
    };
    let (epoch, _) = handle(&lease(COUNTER, ONE, &key(1)));
    assert_eq!(handle(&update(ONE, &key(1), epoch, 1, &value(7))), (epoch, 1));
    let mut restored = settings.nothing_restored();
    restored.read(&journal).unwrap();
    let (_, replica) = restored.replicas().next().unwrap();
    let records = replica.state();
    let record = records.get(records.find(0, &key(1)).unwrap());
    assert_eq!((record.epoch, record.seq), (epoch, 1));
    assert_eq!(record.value.as_slice(), value(7));
}

/// The program on the store's host leaves a batch with such a record to user space, whole.
#[test]
fn a_fast_path_leaves_them_to_user_space() {
    let mut settings = settings();
    wide(&mut settings);
    let memory = Memory::own(settings.fast_path(64, server_address(0), 5));
    memory.set_keys(&keys());
    let mut server = Server::founding_with(settings, start(1, 0), 0, 1, Some(memory));
    let (from, now, key) = (switch_address(1), SECOND, key(1));
    let mut handle = |bytes: &[u8], now: u64| {
        let mut out = Outputs::new();
        let verdict = server.program(from, bytes);
        server.handle(now, Input::Datagram { from, bytes }, &mut out);
        server.flush(now, &mut out);
        let records = server.records();
        let record = records.find(0, &key).map(|slot| records.get(slot));
        (verdict, record.map(|record| (record.epoch, record.value.as_slice().to_vec())))
    };
    let asked = Message { request_ns: now, ..lease(COUNTER, ONE, &key) };
    let (verdict, known) = handle(&signed(&asked, from, server_address(0)), now);
    assert_eq!(verdict, Verdict::Other);
    let (epoch, _) = known.unwrap();
    let (mut records, mut bytes) = (Vec::new(), Vec::new());
    record(&key, epoch, 1, &value(9), &mut records);
    let head = wire::BatchHead {
        flags: 0,
        switch_id: ONE.switch_id,
        incarnation: ONE.incarnation,
        request_ns: now + MS,
        number: 1,
        view: 0,
        session: 0,
        stream: 0,
        client: *from.ip(),
        shard: 0,
    };
    Batch::new(head, &records).unwrap().append_to(&mut bytes);
    assert!(keys().sign(&mut bytes, *from.ip(), *server_address(0).ip()));
    let (verdict, known) = handle(&bytes, now + MS);
    assert_eq!(verdict, Verdict::Pass(Count::Absent));
    assert_eq!(known, Some((epoch, value(9))));
}
