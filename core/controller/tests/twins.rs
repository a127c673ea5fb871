//! Two switches with one `switch_id`: the newcomer is refused, and a restarted switch is not.

use controller::core::{Controller, Event, Input, Outputs, Settings};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Control, Refusal, Report, Reporter, SwitchLoad, Views};

const MS: u64 = 1_000_000;

fn controller(now_ns: u64) -> Controller {
    let settings = Settings {
        shards: 1,
        chain_length: 1,
        founding_servers: 1,
        dead_ns: 250 * MS,
        join_timeout_ns: 1_000 * MS,
        most_joins: 1,
        reorder_after_ns: 1_000 * MS,
    };
    Controller::new(settings, Views::default(), true, now_ns)
}

/// Machine `host`'s socket.
fn address(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 255, 0, host), port)
}

/// Switch 7 reports from there: what the controller answers, and what it tells.
fn report(
    controller: &mut Controller,
    now_ms: u64,
    from: SocketAddrV4,
    accepted: bool,
) -> (Vec<Control>, Vec<Event>) {
    let load = SwitchLoad {
        name: format!("on {}", from.ip()),
        program: "nat.p4".to_owned(),
        ports_attached: 2,
        ports: 2,
        sessions: 0,
        owned: 0,
        pending: 0,
        generator_lag_us: None,
    };
    let report = Report {
        reporter: Reporter::Switch { switch_id: 7 },
        version: 0,
        shards: 0,
        heard_ms: 0,
        accepted,
        machine: String::new(),
        replicas: vec![],
        load: Some(load),
    };
    let (sent_ns, incarnation) = (now_ms * MS + 1, u64::from(from.port()));
    let bytes = Control::Report { sent_ns, incarnation, report }.encode().expect("fits");
    let mut out = Outputs::default();
    controller.handle(now_ms * MS, Input::Datagram { from, bytes: &bytes }, &mut out);
    assert!(out.datagrams.iter().all(|(to, _)| *to == from));
    let answers = out.datagrams.iter().map(|(_, bytes)| Control::decode(bytes).expect("one"));
    (answers.collect(), out.events)
}

fn heard(answer: (Vec<Control>, Vec<Event>)) {
    assert_eq!(answer.0, [Control::Heard]);
}

fn refused(
    answer: &(Vec<Control>, Vec<Event>),
    now_ms: u64,
    newcomer: SocketAddrV4,
    by: SocketAddrV4,
) {
    let refusal = Refusal { switch_id: 7, address: by, name: format!("on {}", by.ip()) };
    let (sent_ns, incarnation) = (now_ms * MS + 1, u64::from(newcomer.port()));
    assert_eq!(answer.0, [Control::Refused { sent_ns, incarnation, refusal }]);
}

#[test]
fn a_newcomer_with_the_number_of_a_living_switch_is_refused() {
    let (first, second) = (address(1, 1_000), address(2, 2_000));
    let mut controller = controller(0);
    heard(report(&mut controller, 0, first, false));
    for now_ms in (50..2_000).step_by(50) {
        heard(report(&mut controller, now_ms, first, now_ms > 1_000));
        let answer = report(&mut controller, now_ms + 1, second, false);
        refused(&answer, now_ms + 1, second, first);
        let told = answer.1.iter().filter(|it| matches!(it, Event::Refused(..))).count();
        assert_eq!(told, usize::from(now_ms == 50), "told once");
    }
    assert_eq!(controller.peers().count(), 1, "nothing of it is taken");
    assert_eq!(controller.counters().switches_refused, 39);
    // Another agent on the first one's machine is the same switch, started again: at once.
    let again = address(1, 1_001);
    heard(report(&mut controller, 2_001, again, false));
    refused(&report(&mut controller, 2_002, second, false), 2_002, second, again);
    // The first is gone: the other may have its number.
    heard(report(&mut controller, 2_001 + 250, second, false));
    refused(&report(&mut controller, 2_300, again, false), 2_300, again, second);
}

/// A controller that was started again knows nobody: whoever comes first is not the switch that has
/// run for long, of which it hears a moment later.
#[test]
fn a_switch_that_runs_loses_its_number_to_no_newcomer() {
    let (runs, newcomer) = (address(1, 1_000), address(2, 2_000));
    let mut controller = controller(0);
    heard(report(&mut controller, 0, newcomer, false));
    heard(report(&mut controller, 40, runs, true));
    refused(&report(&mut controller, 45, newcomer, false), 45, newcomer, runs);
    heard(report(&mut controller, 90, runs, true));
    // Two that both run for long are no newcomers: people are told (`Watch`), and decide.
    heard(report(&mut controller, 95, newcomer, true));
    heard(report(&mut controller, 140, runs, true));
}

#[test]
fn other_numbers_and_servers_are_no_twins() {
    let mut controller = controller(0);
    heard(report(&mut controller, 0, address(1, 1), false));
    let mut answers = |host: u8, reporter: Reporter| {
        let report = Report {
            reporter,
            version: 0,
            shards: 1,
            heard_ms: 0,
            accepted: false,
            machine: String::new(),
            replicas: vec![],
            load: None,
        };
        let bytes = Control::Report { sent_ns: MS, incarnation: 1, report }.encode().unwrap();
        let mut out = Outputs::default();
        let input = Input::Datagram { from: address(host, 1), bytes: &bytes };
        controller.handle(MS, input, &mut out);
        Control::decode(&out.datagrams[0].1).unwrap()
    };
    assert_eq!(answers(2, Reporter::Switch { switch_id: 8 }), Control::Heard);
    assert_eq!(answers(3, Reporter::Server), Control::Heard);
}
