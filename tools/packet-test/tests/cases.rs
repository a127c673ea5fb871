//! Cases against the hand-written fixture object. Needs root.

#[path = "../../../switch/dataplane/tests/fixture/mod.rs"]
mod fixture;

use dataplane::{Dataplane, Object, Settings};
use packet_test::{Case, CaseReport, Runner};

fn load() -> Dataplane {
    let directory = tempfile::tempdir().unwrap();
    let mut object =
        Object::open(&fixture::build(directory.path(), &[]), fixture::manifest()).unwrap();
    object.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true }).unwrap();
    object.load().unwrap()
}

fn run(text: &str) -> CaseReport {
    let case = Case::parse("case.stf", text).unwrap();
    Runner::new(&load(), &case).run()
}

const GOOD: &str = "
# two MAC entries, one default
add ingress.exact hdr.ethernet.dst_addr:0x001122334455 standard_metadata.ingress_port:1 ingress.forward(port:2)
setdefault exact forward(3)
packet 1 001122334455 020000000001 1001 000000000000
expect 2 0011223344** 020000000001 1001 000000000000 $
packet 2 001122334455 020000000001 1001 000000000000 ffff
expect 3 0011
wait
no_packet
# equal priorities: the first one wins; higher ones win
add ternary 5 hdr.ip.src_addr:0x0a****** forward(1)
add ternary 5 hdr.udp.dst_port:53 forward(2)
add ternary 6 hdr.udp.dst_port:54 forward(3)
packet 0 000000000000 000000000000 1003 0a000001 0035
expect 1
packet 0 000000000000 000000000000 1003 0a000001 0036
expect 3 000000000000 000000000000 1003 0a000001 0036 $
packet 0 000000000000 000000000000 1003 0b000001 0037
check_counter ingress.ports(0) packets == 3
check_counter ports(1) bytes == 20
check_register seen(0) == 5
clock 5ms
";

#[test]
fn a_good_case_passes() {
    let report = run(GOOD);
    assert!(report.passed(), "{:#?}", report.failures);
    assert_eq!((report.packets, report.matched), (5, 4));
}

/// `(line, part of the message)` of each failure.
fn failures(text: &str) -> Vec<(u32, String)> {
    run(text).failures.into_iter().map(|failure| (failure.line, failure.to_string())).collect()
}

#[test]
fn every_kind_of_failure_is_told_with_its_line() {
    let send = "packet 7 000102030405060708090a0b 0800 aabb";
    for (text, line, part) in [
        (format!("{send}\nexpect 8 000102030405060708090a0b 0800 aabc"), 2, "first at byte 15"),
        (format!("{send}\nexpect 8 0001$"), 2, "it has 16 bytes, 2 expected"),
        (
            format!("{send}\nexpect 8 000102030405060708090a0b 0800 aabb cc"),
            2,
            "16 bytes, 17 or more expected",
        ),
        (format!("{send}\nexpect 9 00"), 2, "none came out"),
        (send.to_owned(), 1, "not expected"),
        (format!("{send}\nno_packet\nexpect 8"), 2, "no packet expected"),
        ("check_counter ports(1) == 3".to_owned(), 1, "has 0 packets, 3 expected"),
        ("check_counter ports(1) > 0".to_owned(), 1, "has 0 packets, > 0 expected"),
        ("check_register seen(9) == 3".to_owned(), 1, "past the end"),
        ("add nope k:1 drop()".to_owned(), 1, "no table \"nope\""),
        ("add wire ingress_port:1 fly()".to_owned(), 1, "no action \"fly\""),
        ("add wire ingress_port:512 drop()".to_owned(), 1, "9 bits"),
    ] {
        let found = failures(&text);
        assert!(
            found.iter().any(|(at, message)| *at == line && message.contains(part)),
            "{text}\ngave {found:?}\nwithout {part:?} at line {line}"
        );
    }
}

#[test]
fn a_difference_is_shown_byte_by_byte() {
    let report = run(
        "packet 7 000102030405060708090a0b 0800 aabb\nexpect 8 000102030405060708090a0b 0800 aabc",
    );
    let text = report.failures[0].to_string();
    assert!(text.starts_with("case.stf:2: port 8: "), "{text}");
    assert!(
        text.contains("expected  00 01 02") && text.lines().last().unwrap().trim() == "^",
        "{text}"
    );
}
