//! `systems/redplane/docs/state-protocol.md`, "Rules of the store", 11: batches, on a chain in one
//! process with a clock that the test sets.

mod common;

use common::*;
use state_protocol::MessageType::{LeaseGrant, Recall, ReleaseAck, UpdateAck};
use state_protocol::{Flags, Message, Owner, record_flags_of};
use state_store::core::{AllocatorSettings, Input, Outputs};
use wire::{BatchAck, BatchHead, BatchRecord, Malformed, RecordFlags};

const ONE: Owner = Owner { switch_id: 1, incarnation: 1 };
const TWO: Owner = Owner { switch_id: 2, incarnation: 1 };

/// A counter's update: key, epoch, seq, value.
type Update<'a> = (&'a [u8], u32, u64, &'a [u8]);

fn records(updates: &[Update<'_>], flags: impl Fn(usize) -> RecordFlags) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, (key, epoch, seq, value)) in updates.iter().enumerate() {
        let (flags, seq) = (flags(at), *seq);
        let record =
            BatchRecord { object_id: COUNTER, flags, epoch: *epoch, place: 0, seq, content: &[] };
        record.append_to(key, value, &mut bytes).unwrap();
    }
    bytes
}

/// Sends a batch of records that stand alone, and takes its answer: which were refused.
fn send(chain: &mut Chain, sender: Owner, updates: &[Update<'_>]) -> Option<u64> {
    chain.batch(sender, &records(updates, |_| RecordFlags::NONE)).map(|ack| ack.refused)
}

/// The same of records that are one packet's.
fn send_group(chain: &mut Chain, sender: Owner, updates: &[Update<'_>]) -> Option<u64> {
    let last = updates.len() - 1;
    let group = |at| if at == last { RecordFlags::NONE } else { RecordFlags::GROUP };
    chain.batch(sender, &records(updates, group)).map(|ack| ack.refused)
}

fn granted(chain: &mut Chain, sender: Owner, key: &[u8]) -> u32 {
    let grant = chain.ask(&lease(COUNTER, sender, key));
    assert_eq!(grant.kind(), LeaseGrant);
    grant.epoch()
}

/// The record at each server: epoch, seq, value.
fn recorded(chain: &Chain, key: &[u8]) -> (u32, u64, Vec<u8>) {
    chain.assert_alike();
    let record = chain.record(key);
    (record.epoch, record.seq, record.value.as_slice().to_vec())
}

#[test]
fn one_answer_of_the_tail_means_that_all_is_on_every_server() {
    for length in 1..=4 {
        let mut chain = Chain::new(length);
        let (a, b) = (granted(&mut chain, ONE, b"aaaa"), granted(&mut chain, ONE, b"bbbb"));
        let index = chain.head().status(chain.now).index;
        let two = records(&[(b"aaaa", a, 1, b"11111111"), (b"bbbb", b, 4, b"44444444")], |_| {
            RecordFlags::NONE
        });
        let ack = chain.batch(ONE, &two).unwrap();
        assert_eq!((ack.count, ack.refused), (2, 0));
        assert_eq!(chain.last_reply_from, server_address(length - 1), "the tail answers");
        assert_eq!(chain.head().status(chain.now).index, index + 1, "one effect");
        assert_eq!(recorded(&chain, b"aaaa"), (a, 1, b"11111111".to_vec()));
        assert_eq!(recorded(&chain, b"bbbb"), (b, 4, b"44444444".to_vec()));
        let counters = chain.head().counters();
        assert_eq!((counters.batches, counters.updates, counters.refused), (1, 2, 0));
    }
}

#[test]
fn the_answer_has_the_switchs_own_numbers_and_its_session() {
    let mut chain = Chain::new(3);
    let grant = chain.ask(&lease(COUNTER, ONE, b"aaaa"));
    let (epoch, session) = (grant.epoch(), grant.session());
    let one = records(&[(b"aaaa", epoch, 1, b"11111111")], |_| RecordFlags::NONE);
    let head = BatchHead { number: 77, stream: 5, session: 3, flags: 0, ..chain.batch_head(ONE) };
    let ack = chain.batch_with(head, &one).unwrap();
    let expected = BatchHead { session, request_ns: ack.head.request_ns, ..head };
    assert_eq!(ack, BatchAck { head: expected, count: 1, refused: 0 });
}

#[test]
fn a_batch_that_comes_again_changes_nothing_and_is_answered_again() {
    let mut chain = Chain::new(3);
    let epoch = granted(&mut chain, ONE, b"aaaa");
    let update: &[Update<'_>] = &[(b"aaaa", epoch, 2, b"22222222")];
    assert_eq!(send(&mut chain, ONE, update), Some(0));
    let digest = chain.head().records().shared_digest();
    assert_eq!(send(&mut chain, ONE, update), Some(0));
    assert_eq!(send(&mut chain, ONE, &[(b"aaaa", epoch, 1, b"11111111")]), Some(0), "overtaken");
    assert_eq!(chain.head().records().shared_digest(), digest);
    let counters = chain.head().counters();
    assert_eq!((counters.batches, counters.updates, counters.updates_stale), (3, 1, 2));
    // The very same bytes are a copy that the network made: they are not answered.
    let head = BatchHead { request_ns: chain.now + 1, ..chain.batch_head(ONE) };
    let bytes = records(update, |_| RecordFlags::NONE);
    assert!(chain.batch_with(head, &bytes).is_some());
    assert!(chain.batch_with(head, &bytes).is_none());
    assert_eq!(chain.head().counters().replayed, 1);
}

#[test]
fn refused_are_those_that_an_update_would_be() {
    let mut chain = Chain::new(3);
    let (mine, others) = (granted(&mut chain, ONE, b"mine"), granted(&mut chain, TWO, b"his!"));
    let refused = send(
        &mut chain,
        ONE,
        &[
            (b"his!", others, 9, b"stale!!!"),
            (b"mine", mine, 1, b"11111111"),
            (b"mine", mine + 1, 9, b"stale!!!"),
            (b"mine", mine - 1, 9, b"stale!!!"),
            (b"none", mine, 9, b"stale!!!"),
        ],
    );
    assert_eq!(refused, Some(0b11101));
    assert_eq!(recorded(&chain, b"mine"), (mine, 1, b"11111111".to_vec()));
    assert_eq!(recorded(&chain, b"his!"), (others, 0, vec![0; 8]));
    assert!(chain.head().records().find(0, b"none").is_none(), "a batch creates nothing");
    let counters = chain.head().counters();
    assert_eq!((counters.updates, counters.refused), (1, 4));
}

/// All of it was refused: the answer travels down the chain all the same.
#[test]
fn a_deposed_head_refuses_nothing() {
    let mut chain = Chain::new(3);
    granted(&mut chain, ONE, b"aaaa");
    chain.adopt(2, &[(1, 2), (2, 3)], &[1, 2]);
    assert_eq!(send(&mut chain, ONE, &[(b"none", 1, 1, b"11111111")]), None);
}

#[test]
fn two_updates_of_a_key_count_by_their_numbers() {
    for order in [[2, 3], [3, 2]] {
        let mut chain = Chain::new(3);
        let epoch = granted(&mut chain, ONE, b"aaaa");
        let values: [&[u8]; 2] =
            if order[0] == 2 { [b"22222222", b"33333333"] } else { [b"33333333", b"22222222"] };
        let updates: Vec<Update<'_>> = order
            .iter()
            .zip(values)
            .map(|(seq, value)| (&b"aaaa"[..], epoch, *seq, value))
            .collect();
        assert_eq!(send(&mut chain, ONE, &updates), Some(0));
        assert_eq!(recorded(&chain, b"aaaa"), (epoch, 3, b"33333333".to_vec()));
    }
}

#[test]
fn a_group_counts_whole_or_not_at_all() {
    let mut chain = Chain::new(3);
    let (a, b) = (granted(&mut chain, ONE, b"aaaa"), granted(&mut chain, ONE, b"bbbb"));
    let his = granted(&mut chain, TWO, b"his!");
    let both: &[Update<'_>] = &[(b"aaaa", a, 1, b"11111111"), (b"bbbb", b, 1, b"11111111")];
    assert_eq!(send_group(&mut chain, ONE, both), Some(0));
    for at in 0..3 {
        let mut group: Vec<Update<'_>> =
            vec![(b"aaaa", a, 2, b"22222222"), (b"bbbb", b, 2, b"22222222")];
        group.insert(at, (b"his!", his, 9, b"stale!!!"));
        assert_eq!(send_group(&mut chain, ONE, &group), Some(0b111));
        for (key, epoch) in [(b"aaaa", a), (b"bbbb", b)] {
            assert_eq!(recorded(&chain, key), (epoch, 1, b"11111111".to_vec()));
        }
    }
}

/// What is refused only for its group must not come by a later batch, nor by a release.
#[test]
fn a_grant_ends_with_its_refused_group() {
    let mut chain = Chain::with(3, |settings| settings.tenure_ns = 0);
    let (a, his) = (granted(&mut chain, ONE, b"aaaa"), granted(&mut chain, TWO, b"his!"));
    chain.send(&lease(COUNTER, TWO, b"aaaa"));
    assert_eq!(chain.sent(), [(1, Recall)]);
    let group: &[Update<'_>] = &[(b"aaaa", a, 1, b"11111111"), (b"his!", his, 9, b"stale!!!")];
    assert_eq!(send_group(&mut chain, ONE, group), Some(0b11));
    assert_eq!(chain.sent(), [(2, LeaseGrant)], "who waited for it has it");
    assert_eq!(recorded(&chain, b"aaaa").1, 0);
    let later: &[Update<'_>] = &[(b"aaaa", a, 2, b"22222222")];
    assert_eq!(send(&mut chain, ONE, later), Some(1));
    chain.ask(&release(ONE, b"aaaa", a, 2, b"22222222"));
    assert_eq!(recorded(&chain, b"aaaa").2, vec![0; 8]);
    assert_eq!(chain.head().counters().grants_ended, 1);
}

/// A copy of a batch that was taken: what is recorded came with its whole group, and its owner may
/// show it.
#[test]
fn what_is_recorded_of_a_group_is_not_refused() {
    let mut chain = Chain::with(3, |settings| settings.tenure_ns = 0);
    let (a, b) = (granted(&mut chain, ONE, b"aaaa"), granted(&mut chain, ONE, b"bbbb"));
    let group: &[Update<'_>] = &[(b"aaaa", a, 1, b"11111111"), (b"bbbb", b, 1, b"11111111")];
    assert_eq!(send_group(&mut chain, ONE, group), Some(0));
    for _ in 0..2 {
        // By the second time nobody knows how this grant ended.
        let b = chain.record(b"bbbb").epoch;
        let owner = chain.record(b"bbbb").owner.unwrap();
        chain.ask(&release(owner, b"bbbb", b, 1, b"11111111"));
        granted(&mut chain, TWO, b"bbbb");
    }
    assert_eq!(send_group(&mut chain, ONE, group), Some(0b10));
    assert_eq!(chain.record(b"aaaa").owner, Some(ONE));
    assert_eq!(recorded(&chain, b"aaaa"), (a, 1, b"11111111".to_vec()));
}

/// What was computed from a refused value is refused too, as far as the batch shows it.
#[test]
fn what_builds_on_a_refused_group_is_refused() {
    let mut chain = Chain::new(3);
    let (a, b) = (granted(&mut chain, ONE, b"aaaa"), granted(&mut chain, ONE, b"bbbb"));
    let (c, his) = (granted(&mut chain, ONE, b"cccc"), granted(&mut chain, TWO, b"his!"));
    let updates: &[Update<'_>] = &[
        (b"aaaa", a, 1, b"11111111"), // group: refused, as the next is
        (b"his!", his, 9, b"stale!!!"),
        (b"aaaa", a, 2, b"22222222"), // group: builds on the first
        (b"bbbb", b, 1, b"11111111"),
        (b"bbbb", b, 2, b"22222222"), // builds on the one before
        (b"cccc", c, 1, b"11111111"), // builds on nothing
    ];
    let group = |at| if at == 0 || at == 2 { RecordFlags::GROUP } else { RecordFlags::NONE };
    let ack = chain.batch(ONE, &records(updates, group)).unwrap();
    assert_eq!(ack.refused, 0b011111);
    for (key, epoch, seq) in [(b"aaaa", a, 0), (b"bbbb", b, 0), (b"cccc", c, 1)] {
        let (now, newest, _) = recorded(&chain, key);
        assert_eq!((now, newest), (epoch, seq));
    }
}

/// RECALL and RELEASE while a batch is under way: what the release brought is there.
#[test]
fn a_batch_behind_a_release_is_acknowledged_as_far_as_its_content_is_there() {
    let mut chain = Chain::new(3);
    let epoch = granted(&mut chain, ONE, b"aaaa");
    chain.ask(&release(ONE, b"aaaa", epoch, 3, b"33333333"));
    let later: &[Update<'_>] =
        &[(b"aaaa", epoch, 3, b"33333333"), (b"aaaa", epoch, 4, b"44444444")];
    assert_eq!(send(&mut chain, ONE, later), Some(0b10), "what comes after a release is refused");
    assert!(chain.record(b"aaaa").owner.is_none(), "the batch does not make it its own again");
    let next = granted(&mut chain, TWO, b"aaaa");
    assert_eq!(send(&mut chain, ONE, later), Some(0b10), "the next owner began with the first");
    assert_eq!(recorded(&chain, b"aaaa"), (next, 3, b"33333333".to_vec()));
    assert!(chain.record(b"aaaa").owner.is_some(), "and keeps it");
    // A release without value brings nothing: what the store did not have is refused.
    let unknown = release(TWO, b"aaaa", next, 0, b"");
    chain.ask(&Message { flags: Flags::UNKNOWN, ..unknown });
    granted(&mut chain, ONE, b"aaaa");
    let never: &[Update<'_>] = &[(b"aaaa", next, 3, b"33333333"), (b"aaaa", next, 4, b"44444444")];
    assert_eq!(send(&mut chain, TWO, never), Some(0b10));
    assert_eq!(send(&mut chain, ONE, &later[..1]), Some(1), "of an earlier release nobody knows");
}

#[test]
fn a_recall_is_answered_while_batches_go_on() {
    let mut chain = Chain::with(3, |settings| settings.tenure_ns = 0);
    let epoch = granted(&mut chain, ONE, b"aaaa");
    chain.send(&lease(COUNTER, TWO, b"aaaa"));
    assert_eq!(chain.sent(), [(1, Recall)]);
    assert_eq!(send(&mut chain, ONE, &[(b"aaaa", epoch, 1, b"11111111")]), Some(0), "its own yet");
    chain.send(&release(ONE, b"aaaa", epoch, 2, b"22222222"));
    assert_eq!(chain.sent(), [(1, ReleaseAck), (2, LeaseGrant)]);
    assert_eq!(send(&mut chain, ONE, &[(b"aaaa", epoch, 2, b"22222222")]), Some(0), "released");
    assert_eq!(send(&mut chain, ONE, &[(b"aaaa", epoch, 3, b"33333333")]), Some(1));
}

#[test]
fn read_commits_wait_for_batches() {
    let mut chain = Chain::new(3);
    let epoch = granted(&mut chain, ONE, b"aaaa");
    chain.send(&read_commit(ONE, b"aaaa", epoch, 2));
    assert_eq!(chain.sent(), []);
    assert_eq!(send(&mut chain, ONE, &[(b"aaaa", epoch, 2, b"22222222")]), Some(0));
    assert_eq!(chain.sent(), [(1, UpdateAck)]);
}

#[test]
fn an_owner_whose_session_ended_goes_on_in_its_new_one() {
    for seq in [1, 0] {
        let mut chain = Chain::new(3);
        let (epoch, other) = (granted(&mut chain, ONE, b"aaaa"), granted(&mut chain, ONE, b"bbbb"));
        chain.advance(STORE_LEASE);
        // Takes one flow, and so ends the session of the first switch.
        granted(&mut chain, TWO, b"bbbb");
        let before = chain.record(b"aaaa").session;
        let updates: &[Update<'_>] =
            &[(b"aaaa", epoch, seq, b"11111111"), (b"bbbb", other, 1, b"11111111")];
        assert_eq!(send(&mut chain, ONE, updates), Some(0b10));
        let record = chain.record(b"aaaa");
        assert!(record.session > before && record.owner == Some(ONE));
        assert_eq!(record.value.as_slice(), if seq == 1 { b"11111111" } else { &[0; 8] });
        chain.assert_alike();
    }
}

#[test]
fn phases_are_recorded() {
    let mut chain = Chain::new(3);
    let epoch = granted(&mut chain, ONE, b"aaaa");
    for phase in [Flags::HALF_OPEN, Flags::CLOSED.with(Flags::HALF_CLOSED), Flags::NONE] {
        let seq = chain.record(b"aaaa").seq + 1;
        let updates: &[Update<'_>] = &[(b"aaaa", epoch, seq, b"11111111")];
        let flags = record_flags_of(phase);
        assert!(chain.batch(ONE, &records(updates, |_| flags)).is_some());
        assert_eq!(chain.record(b"aaaa").phase, phase);
    }
}

/// A record that no batch may have is refused, and the others of its batch count: without an
/// answer the stream would send it again for ever.
#[test]
fn what_no_batch_may_have_is_counted_and_refused() {
    let snapshot =
        AllocatorSettings::Snapshot { slots: 4, slot_bytes: 4, idle_ns: None, merge: None };
    let mut chain = Chain::with(3, |settings| {
        let mut object = settings.objects[0].clone();
        (object.id, object.name) = (9, "sketch".to_owned());
        object.allocator = snapshot.clone();
        settings.objects.push(object);
    });
    let epoch = granted(&mut chain, ONE, b"aaaa");
    let good = records(&[(b"aaaa", epoch, 1, b"11111111")], |_| RecordFlags::NONE);
    let with = |object_id: u16, key: &[u8], value: &[u8]| {
        let mut bytes = good.clone();
        let flags = RecordFlags::NONE;
        let record = BatchRecord { object_id, flags, epoch, place: 0, seq: 1, content: &[] };
        record.append_to(key, value, &mut bytes).unwrap();
        bytes
    };
    for bytes in [
        with(77, b"bbbb", b"11111111"),
        with(COUNTER, b"bbbbb", b"11111111"), // a longer key, in what would be padding
        with(COUNTER, b"bbbbbbbbb", b"11111111"),
        with(COUNTER, b"bbbb", b"111111111"),
        with(COUNTER, b"bbbb", b""),
        with(9, b"bbbb", b"11111111"),
    ] {
        assert_eq!(chain.batch(ONE, &bytes).expect("an answer").refused, 0b10);
    }
    let counters = chain.head().counters();
    assert_eq!((counters.dropped_unknown_object, counters.dropped_wrong_size), (1, 5));
    assert!(chain.batch(ONE, &good).is_some());
}

#[test]
fn only_a_switchs_own_batches_are_taken() {
    let mut chain = Chain::new(3);
    let epoch = granted(&mut chain, ONE, b"aaaa");
    let good = records(&[(b"aaaa", epoch, 1, b"11111111")], |_| RecordFlags::NONE);
    let digest = chain.head().digest();
    let head = chain.batch_head(ONE);
    let others = [
        BatchHead { view: 1, ..head },
        BatchHead { client: *switch_address(2).ip(), ..head },
        BatchHead { shard: 1, ..head },
    ];
    for head in others {
        assert!(chain.batch_with(head, &good).is_none());
    }
    // Nor does anybody but the head take one, nor anybody an acknowledgement.
    let from = switch_address(1);
    let signed = |at: usize, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        assert!(keys().sign(&mut bytes, *from.ip(), *server_address(at).ip()));
        bytes
    };
    let mut bytes = Vec::new();
    wire::Batch::new(head, &good).unwrap().append_to(&mut bytes);
    chain.handle(1, Input::Datagram { from, bytes: &signed(1, &bytes) });
    let mut ack = Vec::new();
    BatchAck { head, count: 1, refused: 0 }.append_to(&mut ack);
    chain.handle(0, Input::Datagram { from, bytes: &signed(0, &ack) });
    assert!(chain.reply().is_none() && chain.head().digest() == digest);
    let [head, middle] = [0, 1].map(|at| chain.servers[at].counters());
    assert_eq!((head.dropped_wrong_direction, head.dropped_not_head), (2, 1));
    // Nobody is before the head in the chain.
    assert_eq!(head.passed_batches_dropped, 1);
    assert_eq!(middle.dropped_not_head, 1);
}

/// Forged and malformed ones cost no session and no effect.
#[test]
fn what_is_not_good_is_counted_by_its_reason() {
    let mut chain = Chain::new(1);
    let from = switch_address(1);
    let bytes = records(&[(b"aaaa", 1, 1, b"11111111")], |_| RecordFlags::NONE);
    let mut good = Vec::new();
    wire::Batch::new(chain.batch_head(ONE), &bytes).unwrap().append_to(&mut good);
    let (digest, mut out) = (chain.head().digest(), Outputs::new());
    let mut take = |bytes: &[u8]| {
        chain.servers[0].handle(chain.now, Input::Datagram { from, bytes }, &mut out);
        assert!(out.is_empty() && chain.head().digest() == digest);
        chain.head().counters()
    };
    assert!(keys().sign(&mut good, *from.ip(), *server_address(0).ip()));
    let last = good.len() - 1;
    for at in [3, 20, 60, 66, last] {
        let mut forged = good.clone();
        forged[at] ^= 0x40;
        let counters = take(&forged);
        assert!(counters.bad_tag > 0 && counters.malformed_total() == 0, "{counters:?}");
    }
    let mut malformed = good.clone();
    malformed[7] = 2;
    assert!(keys().sign(&mut malformed, *from.ip(), *server_address(0).ip()));
    let counters = take(&malformed);
    let at = Malformed::ALL.iter().position(|reason| *reason == Malformed::Records).unwrap();
    assert_eq!((counters.malformed[at], counters.malformed_total()), (1, 1));
    assert_eq!((counters.requests, counters.sessions_begun), (0, 0));
}

#[test]
fn batches_wait_while_the_chain_does_not_keep_up() {
    let mut chain = Chain::new(3);
    let epoch = granted(&mut chain, ONE, b"aaaa");
    chain.advance(5 * MS); // until the head knows that the tail has it
    chain.down = vec![1];
    for seq in 1..=100 {
        let key: &[u8] = b"aaaa";
        assert_eq!(send(&mut chain, ONE, &[(key, epoch, seq, b"11111111")]), None);
    }
    let dropped = chain.head().counters().dropped_back_pressure;
    assert_eq!((chain.record(b"aaaa").seq, dropped), (64, 36), "as many entries as may wait");
    chain.down.clear();
    chain.advance(SECOND);
    let answered: Vec<u64> = chain.replies.iter().filter_map(number).collect();
    assert_eq!(answered.len(), 64, "each once");
    let update = Message { packet: b"", ..update(ONE, b"aaaa", epoch, 101, b"11111111") };
    chain.replies.clear();
    assert_eq!(chain.ask(&update).kind(), UpdateAck, "messages of both kinds go on");
}

fn number(reply: &Datagram) -> Option<u64> {
    BatchAck::decode(&reply.bytes).ok().map(|ack| ack.head.number)
}
