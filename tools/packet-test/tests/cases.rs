//! Cases against the hand-written fixture object. Needs root.

#[path = "../../../switch/dataplane/tests/fixture/mod.rs"]
mod fixture;

use dataplane::{Dataplane, Object, Settings};
use packet_test::stf::Wrong;
use packet_test::{Arrival, Backing, Case, CaseReport, Identity, Line, Outcome, System, Systems};
use packet_test::{Fault, run_case};
use std::sync::Mutex;

fn load() -> Dataplane {
    let directory = tempfile::tempdir().unwrap();
    let mut object =
        Object::open(&fixture::build(directory.path(), &[]), fixture::manifest()).unwrap();
    object.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true }).unwrap();
    object.load().unwrap()
}

fn run(text: &str) -> CaseReport {
    let case = Case::parse("case.stf", text, Systems::NONE).unwrap();
    run_case(&case, Systems::NONE, || Ok(load()))
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

/// A toy: frames that leave by the port of its line come back at port 3, 5 ms later.
struct Toy;

/// Which switches began, and when.
static BEGUN: Mutex<Vec<(Identity, u64)>> = Mutex::new(vec![]);

impl System for Toy {
    fn keywords(&self) -> &'static [&'static str] {
        &["toy"]
    }

    fn check(&self, line: &Line, before: &[Line]) -> Result<(), Wrong> {
        line.read(|words| words.parsed::<u32>("a port"))?;
        line.once(before, "a case has one toy")
    }

    fn begin(
        &self,
        lines: &[Line],
        _manifest: &manifest::Manifest,
    ) -> Outcome<Option<Box<dyn Backing>>> {
        let Some(line) = lines.iter().find(|line| line.keyword == "toy") else { return Ok(None) };
        let port = line.read(|words| words.parsed("a port").map(|(_, port)| port));
        let port = port.map_err(|(_, reason)| line.fault(reason))?;
        if port == 13 {
            return Err(line.fault("13 is no port for a toy"));
        }
        Ok(Some(Box::new(Mirror { port, waiting: vec![] })))
    }

    fn why_missing(&self, lines: &[Line], _manifest: &manifest::Manifest) -> Option<String> {
        lines.is_empty().then(|| "the toy says: write `# toy:`".to_owned())
    }
}

struct Mirror {
    port: u32,
    waiting: Vec<(u64, Vec<u8>)>,
}

impl Backing for Mirror {
    fn begin_switch(
        &mut self,
        _switch: &Dataplane,
        identity: Identity,
        now_ns: u64,
    ) -> Outcome<()> {
        BEGUN.lock().unwrap().push((identity, now_ns));
        Ok(())
    }

    fn departs(&mut self, port: u32, frame: &[u8], now_ns: u64) -> Option<Vec<Arrival>> {
        (port == self.port).then(|| {
            self.waiting.push((now_ns + 5_000_000, frame.to_vec()));
            vec![]
        })
    }

    fn next_ns(&self, _switch: &Dataplane, _now_ns: u64) -> Option<u64> {
        self.waiting.iter().map(|(at_ns, _)| *at_ns).min()
    }

    fn tick(&mut self, _switch: &Dataplane, now_ns: u64) -> Result<Vec<Arrival>, Fault> {
        let due = self.waiting.extract_if(.., |(at_ns, _)| *at_ns <= now_ns);
        Ok(due.map(|(_, frame)| (3, frame)).collect())
    }
}

fn run_toy(text: &str) -> Result<CaseReport, String> {
    let systems = Systems(&[&Toy]);
    let case = Case::parse("case.stf", text, systems).map_err(|errors| errors[0].to_string())?;
    Ok(run_case(&case, systems, || Ok(load())))
}

#[test]
fn a_system_stands_behind_the_switch_and_time_passes_for_both() {
    let report = run_toy(
        "# toy: 8\nadd wire ingress_port:3 forward(port:4)\npacket 7 0001\nclock 4ms\nno_packet\nclock 1ms\nexpect 4 0001$\n\
         # takes_over: another switch\npacket 7 0002\n# takes_over: the same switch\n\
         clock 1s\nexpect 4 0002$\n",
    );
    let report = report.unwrap();
    assert!(report.passed() && report.matched == 2, "{:?}", report.failures);
    let begun: Vec<_> = BEGUN.lock().unwrap().drain(..).collect();
    let lives = begun.iter().map(|(it, _)| (it.switch_id, it.incarnation)).collect::<Vec<_>>();
    assert_eq!(lives, [(1, 1), (2, 2), (2, 3)]);
    assert_eq!(begun[1].1 - begun[0].1, 5_000_000);

    let (missing, found) = ("packet 7 0001\nexpect 4\n", "(the toy says: write `# toy:`)");
    let told = run_toy(missing).unwrap().failures;
    assert!(told.iter().any(|told| told.reason.ends_with(found)), "{told:?}");
    let refused = run_toy("# toy: 13\n").unwrap().failures[0].to_string();
    assert_eq!(refused, "case.stf:1: 13 is no port for a toy");
    assert_eq!(
        run_toy("# toy: 8\n# toy: 9").unwrap_err(),
        "case.stf:2:7: a case has one toy, and line 1 gives it"
    );
    assert!(run_toy("# toy: x").unwrap_err().starts_with("case.stf:1:8: \"x\" is not a port"));
}

/// A switch that takes over has the entries so far, and nothing else.
#[test]
fn entries_stay_and_state_goes_when_a_switch_takes_over() {
    let report = run("add ternary 5 hdr.ip.src_addr:0x0a****** forward(1)\n\
         packet 0 000000000000 000000000000 1003 0a000001 0035\nexpect 1\n\
         check_counter ingress.ports(0) packets == 1\n\
         # takes_over: another switch\n\
         check_counter ingress.ports(0) packets == 0\n\
         packet 0 000000000000 000000000000 1003 0a000001 0035\nexpect 1\n");
    assert!(report.passed() && report.matched == 2, "{:?}", report.failures);
}
