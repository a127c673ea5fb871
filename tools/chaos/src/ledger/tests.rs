//! The account finds what it is for: each test seeds one mistake into a flow that is right without
//! it.

use super::*;
use crate::plan;

const TOR: Node = 0;
const S1: Node = 1;
const S2: Node = 2;
const STORE: Node = 3;
const CORE: Node = 4;
const OUTSIDE: Node = 5;
const FLOW: u32 = 3;

/// A flow, told sighting by sighting, a microsecond each.
struct Story {
    ledger: Ledger,
    ns: u64,
}

impl Story {
    fn new() -> Self {
        let node = |name: &str, role| (name.to_string(), role);
        let nodes = vec![
            node("tor", Role::Router),
            node("s1", Role::Switch),
            node("s2", Role::Switch),
            node("store1", Role::Store),
            node("core", Role::Router),
            node("outside", Role::Host),
        ];
        let mut story = Self {
            ledger: Ledger::new(nodes, BTreeMap::from([(1, S1), (2, S2)])),
            ns: 10_000_000_000,
        };
        story.grant(5, 0, 1);
        story
    }

    fn see(&mut self, router: Node, peer: Node, outgoing: bool, what: What) -> &mut Self {
        self.ns += 1_000;
        self.ledger.flows.entry(FLOW).or_default();
        let to = match what {
            What::Packet { form: Form::Plain(_), .. } => OUTSIDE,
            What::Packet { form: Form::Update { .. } | Form::Asked { .. }, .. } => STORE,
            _ => S1,
        };
        self.ledger.see(Sighting {
            ns: self.ns,
            router,
            peer,
            outgoing,
            to: Some(to),
            flow: FLOW,
            what,
        });
        self
    }

    fn grant(&mut self, epoch: u32, number: u64, switch_id: u32) -> &mut Self {
        self.see(TOR, STORE, false, What::Granted { epoch, number, switch_id })
    }

    /// A packet is sent and goes to a switch.
    fn enters(&mut self, packet: u32, switch: Node) -> &mut Self {
        self.ledger.sent(FLOW, packet);
        self.see(TOR, switch, true, What::Packet { packet, form: Form::Plain(0) })
    }

    /// The switch numbers it, and its update goes to the store.
    fn numbered(&mut self, packet: u32, switch: Node, epoch: u32, number: u64) -> &mut Self {
        let what = What::Packet { packet, form: Form::Update { epoch, number, shard: 7 } };
        self.see(TOR, switch, false, what).see(TOR, STORE, true, what)
    }

    /// The update is acknowledged, and the answer goes to the switch.
    fn acknowledged(&mut self, packet: u32, switch: Node) -> &mut Self {
        let what = What::Packet { packet, form: Form::Acknowledged };
        self.see(TOR, STORE, false, what).see(TOR, switch, true, what)
    }

    fn out(&mut self, packet: u32, switch: Node, number: u64) -> &mut Self {
        let what = What::Packet { packet, form: Form::Plain(number) };
        self.see(CORE, switch, false, what).see(CORE, OUTSIDE, true, what);
        self.ledger.got_out(FLOW, packet, number);
        self
    }

    /// All of that.
    fn counted(&mut self, packet: u32, switch: Node, epoch: u32, number: u64) -> &mut Self {
        self.enters(packet, switch).numbered(packet, switch, epoch, number);
        self.acknowledged(packet, switch).out(packet, switch, number)
    }

    /// A fault from now on for a second.
    fn broken(&mut self, fault: Fault) -> &mut Self {
        let broken = Broken::Fault(fault);
        self.ledger.outage(Outage { broken, from_ns: self.ns, until_ns: self.ns + 1_000_000_000 });
        self
    }

    fn account(&self, counter: u64) -> Account {
        self.ledger.account(FLOW, counter)
    }

    fn problems(&self, counter: u64) -> String {
        self.account(counter).problems.join("; ")
    }
}

fn s1_dead() -> Fault {
    plan::power("s1")
}

#[test]
fn without_loss_the_counter_is_the_packets_that_got_out() {
    let mut story = Story::new();
    story.counted(1, S1, 5, 1).counted(2, S1, 5, 2).grant(6, 2, 2).counted(3, S2, 6, 3);
    let account = story.account(3);
    assert_eq!((account.out, account.lost, account.problems), (3, vec![], vec![]));
    assert!(
        story.problems(4).contains("number 4 was given to no packet"),
        "counted once too often"
    );
    assert!(story.problems(2).contains("got out as 3, and the counter is 2"), "a lost update");
}

#[test]
fn a_lost_packet_is_named_with_its_number_place_and_cause() {
    let mut story = Story::new();
    story
        .counted(1, S1, 5, 1)
        .enters(2, S1)
        .numbered(2, S1, 5, 2)
        .acknowledged(2, S1)
        .broken(s1_dead());
    story.grant(6, 2, 2).counted(3, S2, 6, 3);
    let account = story.account(3);
    let cause = "s1 dead".to_string();
    let lost = Lost {
        flow: FLOW,
        packet: 2,
        number: Some(2),
        place: "UPDATE_ACK from tor at s1".to_string(),
        cause,
    };
    assert_eq!((account.out, account.lost, account.problems), (2, vec![lost], vec![]));
}

#[test]
fn a_loss_while_nothing_was_broken_is_found() {
    let mut story = Story::new();
    story
        .counted(1, S1, 5, 1)
        .enters(2, S1)
        .numbered(2, S1, 5, 2)
        .acknowledged(2, S1)
        .counted(3, S1, 5, 3);
    assert!(
        story.problems(3).contains("packet 2 got lost as UPDATE_ACK from tor at s1"),
        "{}",
        story.problems(3)
    );
    // Nor does it help that something else was.
    story.broken(plan::link("s2", "core", simnet::Direction::Both));
    assert!(story.problems(3).contains("packet 2 got lost"), "{}", story.problems(3));
}

#[test]
fn what_a_router_did_not_send_on_needs_a_fault_on_its_way() {
    let mut story = Story::new();
    let what = What::Packet { packet: 2, form: Form::Update { epoch: 5, number: 2, shard: 7 } };
    let s2_dead = plan::power("s2");
    story
        .counted(1, S1, 5, 1)
        .broken(s2_dead)
        .enters(2, S1)
        .see(TOR, S1, false, what)
        .counted(3, S1, 5, 3);
    assert!(story.problems(3).contains("UPDATE from s1 to store1 in tor"), "{}", story.problems(3));
    story.broken(plan::LOSS);
    let account = story.account(3);
    assert_eq!(account.problems, Vec::<String>::new());
    assert_eq!(account.lost[0].number, Some(2));
}

#[test]
fn routing_that_goes_down_by_itself_is_named() {
    let mut story = Story::new();
    let what = What::Packet { packet: 2, form: Form::Plain(0) };
    story.counted(1, S1, 5, 1).see(TOR, OUTSIDE, false, what).counted(3, S1, 5, 2);
    assert!(story.problems(2).contains("packet 2 got lost"), "{}", story.problems(2));
    let broken = Broken::Routing("tor".to_string(), "s1".to_string());
    story.ledger.outage(Outage { broken, from_ns: 0, until_ns: story.ns });
    let account = story.account(2);
    assert_eq!(account.problems, Vec::<String>::new());
    assert_eq!(account.lost[0].cause, "routing between tor and s1 went down by itself");
}

#[test]
fn a_head_that_hands_over_drops_requests() {
    let mut story = Story::new();
    story.counted(1, S1, 5, 1).enters(2, S1).numbered(2, S1, 5, 2).counted(3, S1, 5, 3);
    story.see(TOR, STORE, false, What::View { shard: 6, view: 12 });
    assert!(
        story.problems(3).contains("packet 2 got lost as UPDATE from tor at store1"),
        "{}",
        story.problems(3)
    );
    story.see(TOR, STORE, false, What::View { shard: 7, view: 12 });
    let account = story.account(3);
    assert_eq!(account.problems, Vec::<String>::new());
    assert_eq!(account.lost[0].cause, "the chain of shard 7 changed to view 12");
}

#[test]
fn a_switch_drops_what_its_window_has_no_room_for() {
    let lost_behind = |unanswered: u32, store_dies: bool| {
        let mut story = Story::new();
        for packet in 1..=unanswered {
            story.enters(packet, S1).numbered(packet, S1, 5, u64::from(packet));
        }
        if store_dies {
            story.broken(plan::process("store1", "store"));
        }
        // One that goes in, and one that comes back: neither becomes an update.
        story.enters(200, S1).enters(201, S1);
        story.see(TOR, S1, true, What::Packet { packet: 201, form: Form::Returned });
        story
    };
    let account = lost_behind(128, true).account(128);
    assert!(account.problems.is_empty(), "{:?}", account.problems);
    let ends = |packet: u32| {
        account.lost.iter().find(|lost| lost.packet == packet).map(|lost| lost.cause.clone())
    };
    for packet in [200, 201] {
        assert_eq!(
            ends(packet).as_deref(),
            Some("store1's store killed: the window of shard 7 is full")
        );
    }
    // A window that is hardly used explains nothing, nor does a full one while no store is away.
    assert!(
        lost_behind(20, true).problems(20).contains("packet 200 got lost as packet from tor at s1")
    );
    assert!(
        lost_behind(128, false)
            .problems(128)
            .contains("packet 200 got lost as packet from tor at s1")
    );
}

#[test]
fn an_update_that_no_router_saw_is_the_packets_that_went_there() {
    let mut story = Story::new();
    // s1 sends nothing any more: it numbers packets 2 and 3; then the number arrives alone.
    story
        .counted(1, S1, 5, 1)
        .broken(s1_dead())
        .enters(2, S1)
        .enters(3, S1)
        .grant(6, 3, 2)
        .counted(4, S2, 6, 4);
    let account = story.account(4);
    let numbers: Vec<_> = account.lost.iter().map(|lost| (lost.packet, lost.number)).collect();
    assert_eq!((numbers, account.problems), (vec![(2, Some(2)), (3, Some(3))], vec![]));
    // Not one for whose flow the switch asked.
    story.ledger.sent(FLOW, 5);
    story.enters(5, S2);
    story.see(TOR, STORE, true, What::Packet { packet: 5, form: Form::Asked { shard: 7 } });
    assert!(story.problems(5).contains("number 5 was given to no packet"), "{}", story.problems(5));
    // A third number has no packet.
    let mut story = Story::new();
    story.counted(1, S1, 5, 1).broken(s1_dead()).enters(2, S1).grant(6, 3, 2).counted(4, S2, 6, 4);
    assert!(story.problems(4).contains("number 3 was given to no packet"), "{}", story.problems(4));
}

#[test]
fn a_packet_that_passes_both_switches_is_found() {
    let mut story = Story::new();
    // s1 counts packet 2 and sends it back to tor, which sends it to s2.
    story.counted(1, S1, 5, 1).enters(2, S1).numbered(2, S1, 5, 2).acknowledged(2, S1);
    story.grant(6, 2, 2).enters(2, S2).numbered(2, S2, 6, 3).acknowledged(2, S2).out(2, S2, 3);
    assert!(
        story.problems(3).contains("packet 2 was counted twice, as 2 and as 3"),
        "{}",
        story.problems(3)
    );
    // Even if another packet got lost uncounted, so that the sums agree.
    story.broken(s1_dead()).enters(3, S1);
    assert!(story.problems(3).contains("counted twice"), "{}", story.problems(3));
}

#[test]
fn an_acknowledged_update_that_is_lost_is_found() {
    let mut story = Story::new();
    story.counted(1, S1, 5, 1).counted(2, S1, 5, 2);
    // The store goes on from 1.
    story.grant(6, 1, 2).counted(3, S2, 6, 2);
    assert!(
        story.problems(2).contains("packet 2 got out as 2, which is packet 3's number"),
        "{}",
        story.problems(2)
    );
}

#[test]
fn what_a_fenced_switch_counts_does_not_count() {
    let mut story = Story::new();
    // s1 does not know yet that the flow is s2's.
    story
        .counted(1, S1, 5, 1)
        .grant(6, 1, 2)
        .counted(2, S2, 6, 2)
        .enters(3, S1)
        .numbered(3, S1, 5, 2);
    story.see(TOR, STORE, false, What::Refused { epoch: 5 });
    let account = story.account(2);
    assert_eq!(account.problems, Vec::<String>::new());
    assert_eq!(
        (account.lost[0].number, account.lost[0].cause.as_str()),
        (None, "refused: the grant was over")
    );
    // If such a packet gets out nevertheless, that is a lost update.
    story.acknowledged(3, S1).out(3, S1, 2);
    assert!(
        story.problems(2).contains("packet 3 got out as 2, which is packet 2's number"),
        "{}",
        story.problems(2)
    );
}

#[test]
fn packets_that_get_out_uncounted_or_under_one_number_are_found() {
    let mut story = Story::new();
    story.counted(1, S1, 5, 1).enters(2, S1).out(2, S1, 0);
    assert!(story.problems(1).contains("packet 2 got out uncounted"), "{}", story.problems(1));
    let mut story = Story::new();
    story.counted(1, S1, 5, 1).counted(2, S1, 5, 1);
    assert!(
        story.problems(1).contains("both counted as 1 under one grant"),
        "{}",
        story.problems(1)
    );
}

#[test]
fn no_output_before_the_stores_answer_to_its_update() {
    let mut story = Story::new();
    // No update of packet 2 was seen anywhere.
    story.counted(1, S1, 5, 1).enters(2, S1).out(2, S1, 2).counted(3, S1, 5, 3);
    assert!(
        story.problems(3).contains("packet 2 got out as 2, which no grant (5 from 0) gave"),
        "{}",
        story.problems(3)
    );
}

#[test]
fn without_a_store_numbers_are_what_switches_write() {
    let mut story = Story::new();
    story.ledger.forget(FLOW);
    for packet in 1..=3 {
        story.ledger.sent(FLOW, packet);
        story.enters(packet, S1).out(packet, S1, packet.into());
    }
    assert_eq!(story.account(3).problems, Vec::<String>::new());
    // s2 begins anew.
    story.enters(4, S2).out(4, S2, 1);
    assert!(story.problems(3).contains("both counted as 1"), "{}", story.problems(3));
}

/// Packets that wait in the switch.
impl Story {
    /// The first batch of this number with the flow's newest number, on its way to the store.
    fn batch(&mut self, switch_id: u32, batch: u64, epoch: u32, number: u64) -> &mut Self {
        let record = Record { place: 0, epoch, number };
        let what = What::Recorded { batch: batch_id(switch_id, batch), record };
        let switch = if switch_id == 1 { S1 } else { S2 };
        self.see(TOR, switch, false, what).see(TOR, STORE, true, what)
    }

    fn answer(&mut self, switch_id: u32, batch: u64, refused: u64) -> &mut Self {
        let what = What::Answered { batch: batch_id(switch_id, batch), refused };
        self.see(TOR, STORE, false, what)
    }

    /// A packet on its way through s1, in a batch of its own.
    fn batched(&mut self, packet: u32, epoch: u32, number: u64) -> &mut Self {
        self.enters(packet, S1).batch(1, number, epoch, number).answer(1, number, 0);
        self.out(packet, S1, number)
    }

    fn later(&mut self, ms: u64) -> &mut Self {
        self.ns += ms * 1_000_000;
        self
    }

    fn causes(&self, counter: u64) -> Vec<(u32, Option<u64>, String)> {
        let account = self.account(counter);
        assert_eq!(account.problems, Vec::<String>::new());
        account.lost.into_iter().map(|it| (it.packet, it.number, it.cause)).collect()
    }
}

fn batch_id(switch_id: u32, number: u64) -> BatchId {
    BatchId { switch_id, incarnation: 1, stream: 0, shard: 7, number }
}

#[test]
fn packets_that_wait_in_a_switch_show_their_numbers_when_they_leave() {
    let mut story = Story::new();
    // One record for two packets; the answer's copy changes nothing.
    story.enters(1, S1).enters(2, S1).batch(1, 1, 5, 2).answer(1, 1, 0).answer(1, 1, 0);
    story.out(1, S1, 1).out(2, S1, 2);
    assert_eq!(story.causes(2), []);
    assert!(story.problems(3).contains("number 3 was given to no packet"));
    story.enters(3, S1).batch(1, 2, 5, 3).answer(1, 2, 0).out(3, S1, 2);
    assert!(story.problems(3).contains("packets 2 and 3 were both counted as 2"));
}

#[test]
fn a_packet_that_leaves_before_its_answer_is_found() {
    let mut story = Story::new();
    story.batched(1, 5, 1).enters(2, S1).batch(1, 2, 5, 2).out(2, S1, 2);
    let early = "packet 2 got out as 2, which no grant (5 from 0) gave, or no answer had come for";
    assert!(story.problems(2).contains(early), "{}", story.problems(2));
    story.later(20).answer(1, 2, 0);
    assert!(story.problems(2).contains(early), "an answer that comes afterwards");
}

#[test]
fn what_was_refused_does_not_count_and_must_not_leave() {
    let mut story = Story::new();
    story.batched(1, 5, 1).grant(6, 1, 2).enters(2, S1).batch(1, 2, 5, 2).answer(1, 2, 1);
    story.enters(3, S2).batch(2, 1, 6, 2).answer(2, 1, 0).out(3, S2, 2);
    assert_eq!(story.causes(2), [(2, None, "refused: the grant was over".to_string())]);
    story.out(2, S1, 2);
    assert!(
        story.problems(2).contains("packets 2 and 3 were both counted as 2")
            || story.problems(2).contains("packet 2 got out as 2, which is packet 3's number"),
        "{}",
        story.problems(2)
    );
}

#[test]
fn a_packet_waits_as_long_as_its_switch_lives_and_its_chain_answers() {
    // Packet 2 waits, and is lost.
    let waits = |fault: Option<Fault>, silent_ms: u64| {
        let mut story = Story::new();
        story.batched(1, 5, 1).enters(2, S1).later(60);
        if let Some(fault) = fault {
            story.broken(fault);
        }
        story.later(silent_ms).enters(3, S1).batch(1, 3, 5, 3).answer(1, 3, 0).out(3, S1, 3);
        story
    };
    let lost = |cause: &str| vec![(2, Some(2), cause.to_string())];
    assert_eq!(waits(Some(s1_dead()), 0).causes(3), lost("s1 dead"));
    let store = || Some(plan::process("store1", "store"));
    assert_eq!(waits(store(), 1_100).causes(3), lost("store1's store killed: waited too long"));
    // Answered soon, it was not dropped for its age; nor without a fault, however long it takes.
    for story in [waits(store(), 300), waits(None, 0), waits(None, 1_100)] {
        let said = story.problems(3);
        assert!(said.contains("packet 2 got lost as packet from tor at s1"), "{said}");
    }
    // Nor does it help that the switch died when the packet should have left long ago.
    let mut story = waits(None, 0);
    story.later(300).broken(s1_dead());
    let said = story.problems(3);
    assert!(said.contains("packet 2 got lost as packet from tor at s1"), "{said}");
}

/// What one CPU's batch was answered says nothing of a packet that waits on another one.
#[test]
fn a_packet_may_wait_on_the_cpu_that_is_not_answered() {
    let mut story = Story::new();
    story.batched(1, 5, 1);
    let record = Record { place: 0, epoch: 5, number: 1 };
    let batch = BatchId { stream: 1, ..batch_id(1, 1) };
    story.see(TOR, S1, false, What::Recorded { batch, record });
    story.enters(2, S1).later(60).broken(plan::process("store1", "store"));
    story.later(300).enters(3, S1).batch(1, 3, 5, 3).answer(1, 3, 0).out(3, S1, 3);
    let cause = "store1's store killed: waited too long".to_string();
    assert_eq!(story.causes(3), vec![(2, Some(2), cause)]);
}
