//! State with SRO for real: three switches side by side in XDP, and hosts whose packets go out
//! through one of them and come back through another. Needs root. Waits for timers.

mod common;
#[path = "common/pairs.rs"]
mod pairs;

use common::{TestLab, json, must, skip, stateplane, tcp_echo_at, wait_for};
use pairs::{ADD, Prober, READ, Truth, Writer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

const TOPOLOGY: &str = "../../systems/swish/lab/paths.toml";
/// The load balancer's, as many as its entries have.
const DEFINE: &str = "define=LOAD_BALANCER_BUCKETS=3";
const SWITCHES: [&str; 3] = ["s1", "s2", "s3"];

/// The inside host's address to which packets come through switch `k`.
fn inside(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 7, 0, k as u8)
}

/// The outside host's address to which packets go through switch `k`.
fn outside(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 8, 0, k as u8)
}

/// An address that the switches rewrite (in `tables`), to which packets go through switch `k`.
fn virtual_address(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 6, 0, k as u8)
}

/// Each way out with each way back.
fn all_paths() -> impl Iterator<Item = (usize, usize)> {
    (1..=3).flat_map(|back| (1..=3).map(move |out| (back, out)))
}

/// The entries that systems/swish/docs/paths.md has the reader give `program`.
fn tables(program: &str) -> String {
    let path = format!("../../systems/swish/lab/tables/{program}.toml");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn up(test: &str, program: &str, tables: &str) -> TestLab {
    let (program, tables) = (format!("program={program}"), format!("tables={tables}"));
    let lab = TestLab::up(test, TOPOLOGY, &["--set", &program, "--set", &tables, "--set", DEFINE]);
    let (loop_inside, loop_outside) = ("ping -c1 -W1 10.1.", "ping -c1 -W1 10.3.");
    for (at, switch) in SWITCHES.iter().enumerate() {
        for begin in [loop_inside, loop_outside] {
            let ping = format!("{begin}{}.10", at + 1);
            wait_for(&format!("{switch} knows its neighbours"), || lab.run(switch, &ping).0);
        }
    }
    wait_for("all members have agreed to begin", || {
        SWITCHES.iter().all(|switch| chain(&lab, switch)["reads"] == true)
    });
    lab
}

/// What `stateplane shared status` says of a switch's chain.
fn chain(lab: &TestLab, switch: &str) -> Value {
    let output = stateplane(&["shared", "status", "--json"]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let name = format!("{}-{switch}", lab.name);
    let found = all.as_array().into_iter().flatten().find(|it| it["switch"] == name.as_str());
    found.map(|it| it["shared_chain"].clone()).unwrap_or_default()
}

/// A number of a switch's metrics.
fn metric(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// All switches have written the same batches, and drop nothing that they must not.
fn is_settled(lab: &TestLab) {
    wait_for("all switches have all batches", || {
        let all: Vec<String> = SWITCHES.iter().map(|switch| lab.metrics(switch)).collect();
        let count = |text: &String, what: &str| {
            metric(text, &format!("stateplane_switch_shared_chain_total{{what=\"{what}\"}}"))
        };
        let behind = "stateplane_switch_shared_chain_behind{group=\"main\"}";
        let decided = count(&all[0], "decided");
        all.iter().all(|text| metric(text, behind) == 0)
            && all[1..].iter().all(|text| count(text, "applied") == decided)
    });
    for switch in SWITCHES {
        let text = lab.metrics(switch);
        for reason in ["forged", "foreign", "faults", "malformed", "table_full", "too_many"] {
            let none = format!("stateplane_drops_total{{part=\"swish\",reason=\"{reason}\"}} 0");
            assert!(text.contains(&none), "{switch}: {text}");
        }
    }
}

/// Without controllers: one that does not answer is named. One that comes back without its state
/// is, too, and serves nobody; one whose agent restarts goes on.
#[test]
fn a_switch_that_restarts_without_its_state_stays_out() {
    if skip() {
        return;
    }
    let lab = up("sro-restart", "pairs", "");
    let shared = |switch: &str, words: &str| {
        let name = format!("{}-{switch}", lab.name);
        let words = ["shared"].into_iter().chain(words.split(' '));
        let output = stateplane(&words.chain(["--switch", &name]).collect::<Vec<_>>());
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let sets =
        |switch: &str, key: u32| shared(switch, &format!("set one key={key} value=7 copy=7"));
    let gets = |switch: &str| shared(switch, "get one key=1 --json");
    assert_eq!(sets("s2", 1).0, Some(0), "{:?}", sets("s2", 1));
    lab.kill_daemon("s2", "switch");
    lab.restart_daemon("s2", "switch");
    wait_for("the next agent goes on in the same life", || sets("s2", 2).0 == Some(0));

    lab.fail("s1");
    let (begun, late) = (std::time::Instant::now(), sets("s3", 3));
    assert!(late.0 == Some(1) && late.1.contains("shared status"), "{late:?}");
    wait_for("the others say who does not answer", || {
        ["s2", "s3"].iter().all(|it| chain(&lab, it)["silent"][0] == "10.9.0.1")
    });
    println!("s1 is named after {:?}", begun.elapsed());
    let status = stateplane(&["shared", "status"]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(1), "{text}");
    assert!(text.contains("10.9.0.1 does not answer: writes wait"), "{text}");

    lab.restore("s1");
    wait_for("all say who restarted without its state", || {
        SWITCHES.iter().all(|it| chain(&lab, it)["restarted"][0] == "10.9.0.1")
    });
    let status = stateplane(&["shared", "status"]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(1), "{text}");
    assert!(text.contains("10.9.0.1 restarted without its state: begin the group anew"), "{text}");
    for (code, text) in [gets("s1"), sets("s1", 4)] {
        assert!(code == Some(1) && text.contains("may not read or write"), "{code:?} {text}");
    }
    assert_eq!(prober(&lab, 1, Duration::from_millis(300)).ask(READ, 1, 0), None);
    for switch in ["s2", "s3"] {
        let (code, text) = gets(switch);
        assert!(code == Some(0) && text.contains('7'), "{switch}: {code:?} {text}");
        let drops = "stateplane_drops_total{part=\"swish\",reason=\"restarted\"}";
        assert!(metric(&lab.metrics(switch), drops) > 0);
    }
    let alerts = include_str!("../../../systems/swish/deploy/shared-alerts.yml");
    let words = alerts.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let measured = lab.metrics("s2");
    for name in words.filter(|it| it.starts_with("stateplane_switch_shared_chain_")) {
        assert!(measured.contains(&format!("# TYPE {name} ")), "{name}");
    }
    let restarted = "stateplane_switch_shared_chain_members{group=\"main\",state=\"restarted\"}";
    assert_eq!(metric(&measured, restarted), 1);
    assert_eq!(sets("s2", 5).0, Some(1), "not all members have it");

    // Anew: all switches without their state.
    for switch in ["s2", "s3"] {
        lab.fail(switch);
    }
    for switch in ["s2", "s3"] {
        lab.restore(switch);
    }
    wait_for("the group begins anew", || {
        SWITCHES.iter().all(|switch| chain(&lab, switch)["reads"] == true)
    });
    assert_eq!(sets("s1", 6).0, Some(0));
    lab.down();
}

// ---- pairs of keys ------------------------------------------------------------------------------

fn prober(lab: &TestLab, k: usize, timeout: Duration) -> Prober {
    // (The switch in front of that address answers.)
    Prober::new(lab, "inside", outside(k), timeout)
}

/// Three writers at once, each through a switch of its own.
#[test]
fn additions_at_three_switches_count_once() {
    if skip() {
        return;
    }
    const KEYS: u32 = 40;
    let lab = up("chain", "pairs", "");
    // (A packet that loses to others again and again is dropped.)
    let soon = Duration::from_millis(100);
    let begin = |k: usize| Writer::begin(prober(&lab, k, soon), k as u32, KEYS);
    let writers: Vec<Writer> = (1..=3).map(begin).collect();
    std::thread::sleep(Duration::from_secs(2));
    let mut truth = Truth::new();
    for writer in writers {
        let all = writer.end();
        assert!(all.iter().filter(|it| it.was.is_some()).count() > 20, "a writer makes progress");
        pairs::note(&mut truth, &all);
    }
    let total: usize = truth.values().map(|it| it.0.len()).sum();
    let unknown: u32 = truth.values().map(|it| it.1).sum();
    println!("{total} additions, and {unknown} without an answer");
    let probers: Vec<Prober> = (1..=3).map(|k| prober(&lab, k, Duration::from_secs(5))).collect();
    pairs::all_have(&probers, &truth);
    is_settled(&lab);
    lab.down();
}

/// SDW and EWO beside SRO: a packet is counted when it leaves, once, however often it ran.
#[test]
fn packets_that_wait_are_counted_once() {
    if skip() {
        return;
    }
    const KEYS: u32 = 8;
    let lab = up("tally", "tally", "");
    // (After so long without an answer a packet was dropped.)
    let patient = Duration::from_secs(5);
    let begin = |k: usize| Writer::begin(prober(&lab, k, patient), k as u32, KEYS);
    let writers: Vec<Writer> = (1..=3).map(begin).collect();
    std::thread::sleep(Duration::from_secs(2));
    let mut truth: BTreeMap<u32, u64> = BTreeMap::new();
    for writer in writers {
        for addition in writer.end().iter().filter(|it| it.was.is_some()) {
            *truth.entry(addition.key).or_default() += 1;
        }
    }
    is_settled(&lab);
    for counter in ["in_windows", "at_once"] {
        wait_for(&format!("all switches have counted {counter}: {truth:?}"), || {
            SWITCHES.iter().all(|switch| pairs::tally(&lab, switch, counter) == truth)
        });
    }
    let ran_again = |switch: &&str| {
        let name = "stateplane_switch_shared_chain_total{what=\"ran_again\"}";
        metric(&lab.metrics(switch), name)
    };
    let again: u64 = SWITCHES.iter().map(ran_again).sum();
    println!("{} packets, and {again} ran again", truth.values().sum::<u64>());
    assert!(again > 0);
    lab.down();
}

/// The exit code of a write that found its key.
const KEPT: i32 = 3;

/// Of writers of an absent key, by exit code, answer and error: one wins, and the others find the
/// key. (On a busy machine the chain's answer may come too late for any of them.)
fn one_wins(said: &[(Option<i32>, String, String)]) {
    let has = |wanted: i32| said.iter().filter(move |it| it.0 == Some(wanted));
    let (done, kept) = (has(0).count(), has(KEPT).filter(|it| json(&it.1)["kept"] == true).count());
    let late = has(1).filter(|it| it.2.contains("not all switches of the group have answered"));
    let late = late.count();
    assert_eq!(done + kept + late, said.len(), "{said:?}");
    assert!(done == 1 || done == 0 && late > 0, "{said:?}");
}

/// What operators say on one switch of three.
#[test]
fn an_operator_writes_through_the_chain() {
    if skip() {
        return;
    }
    let lab = up("chain-orders", "pairs", "");
    let shared = |switch: &str, words: &str| {
        let name = format!("{}-{switch}", lab.name);
        let words = ["shared"].into_iter().chain(words.split(' '));
        let output = stateplane(&words.chain(["--switch", &name]).collect::<Vec<_>>());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let done = |switch: &str, words: &str| {
        let (code, said, error) = shared(switch, words);
        assert_eq!(code, Some(0), "{switch}: {words}: {said}{error}");
        said
    };
    let both = |switch: &str, order: &str, fields: &str| {
        ["one", "other"].map(|table| done(switch, &format!("{order} {table} {fields}"))).concat()
    };
    let hosts: Vec<Prober> = (1..=3).map(|k| prober(&lab, k, Duration::from_secs(5))).collect();
    let all_read = |key: u32| hosts.iter().map(|it| it.ask(READ, key, 0)).collect::<Vec<_>>();

    // Set on the second one, read by packets of all; changed by a packet at the third one.
    both("s2", "set", "key=7 value=40 copy=40");
    assert_eq!(all_read(7), [Some(40); 3]);
    assert_eq!(hosts[2].ask(ADD, 7, 2), Some(40));
    for switch in SWITCHES {
        let read = json(&done(switch, "get one key=7 --json"));
        assert_eq!(read["entries"][0]["value"][0][1], "42", "{switch}: {read}");
    }
    // Deleted on the tail; packets may write it anew.
    both("s3", "delete", "key=7");
    assert_eq!(all_read(7), [Some(0); 3]);
    let (code, said, _) = shared("s1", "get one key=7");
    assert_eq!((code, said.trim()), (Some(1), "ProbeIngress.one: no such key"));
    assert_eq!(hosts[0].ask(ADD, 7, 1), Some(0));

    // If it is absent: of operators and packets, the first one wins, wherever it is.
    done("s1", "set one key=8 value=5 copy=5 --if-absent");
    let (code, said, error) = shared("s3", "set one key=8 value=6 copy=6 --if-absent");
    assert_eq!(code, Some(KEPT), "{said}{error}");
    assert!(said.contains("the key is there, and stays as it is"), "{said}");
    let kept = shared("s2", "set one key=8 value=7 copy=7 --if-absent --json");
    let kept = (kept.0, json(&kept.1));
    assert_eq!((kept.0, kept.1["kept"] == true), (Some(KEPT), true), "{kept:?}");
    assert_eq!(kept.1["entries"][0]["value"][0][1], "5", "{kept:?}");
    done("s2", "delete one key=8");
    done("s3", "set one key=8 value=9 copy=9 --if-absent");
    done("s1", "delete one key=8");
    let (code, _, error) = shared("s1", "get one key=8 --if-absent");
    assert_eq!(code, Some(2), "{error}");

    // While hosts write all the time, each order takes effect whole, and on all.
    let writers =
        |k: usize| Writer::begin(prober(&lab, k, Duration::from_millis(100)), k as u32, 8);
    let writers: Vec<Writer> = (1..=3).map(writers).collect();
    for round in 0..20 {
        let (at, key) = (SWITCHES[round % 3], 100 + round as u32);
        // (Three at once, and one wins.)
        let words = format!("set marks key={key} --if-absent --json");
        let said = std::thread::scope(|scope| {
            let each = SWITCHES.map(|it| scope.spawn(|| shared(it, &words)));
            each.map(|it| it.join().expect("an order"))
        });
        one_wins(&said);
        done(at, &format!("set marks key={key}"));
        SWITCHES.iter().for_each(|it| drop(done(it, &format!("get marks key={key}"))));
    }
    let mut truth = Truth::new();
    writers.into_iter().for_each(|it| pairs::note(&mut truth, &it.end()));
    let marks = json(&done("s1", "get marks --json"));
    assert_eq!(marks["entries"].as_array().map(Vec::len), Some(20), "{marks}");
    assert!(done("s2", "clear marks").contains("20 keys removed"));
    assert!(done("s3", "get marks").contains("0 of 256 keys"));

    // A key with a time is over without packets, and removed.
    for (key, more) in [(9, ""), (10, " --if-absent")] {
        both("s1", "set", &format!("key={key} value=1 copy=1 --idle-s 2{more}"));
        let get = format!("get one key={key}");
        assert!(done("s2", &get).contains("over after idle seconds"), "{key}");
        wait_for(&format!("key {key} is over"), || shared("s3", &get).0 == Some(1));
    }
    let (code, _, error) = shared("s1", "set marks key=1 --idle-s 2");
    assert_eq!(code, Some(1));
    assert!(error.contains("the program gives keys of this table no time"), "{error}");

    is_settled(&lab);
    // Without an answer of all it is an error, and says what may be.
    lab.fail("s3");
    let (code, _, error) = shared("s1", "set marks key=1");
    assert_eq!(code, Some(1));
    assert!(error.contains("It may still take effect"), "{error}");
    lab.down();
}

// ---- network functions --------------------------------------------------------------------------

/// A connection from an address of a host.
fn connect(
    lab: &TestLab,
    node: &str,
    from: Ipv4Addr,
    to: SocketAddr,
    timeout: Duration,
) -> std::io::Result<TcpStream> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, sockopt};
    use nix::sys::socket::{bind, connect, setsockopt, socket};
    use nix::sys::time::{TimeVal, TimeValLike};
    let SocketAddr::V4(to) = to else { panic!("{to}") };
    let open = || socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let socket = lab.netns(node).run(|| Ok(open()?))?;
    let timeout = TimeVal::milliseconds(timeout.as_millis() as i64);
    setsockopt(&socket, sockopt::SendTimeout, &timeout)?; // (connect waits no longer)
    bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(from, 0)))?;
    connect(socket.as_raw_fd(), &SockaddrIn::from(to))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(15)))?;
    Ok(stream)
}

fn answers(stream: &mut TcpStream, say: &str) {
    stream.write_all(say.as_bytes()).unwrap_or_else(|e| panic!("{say}: {e}"));
    let mut answer = vec![0; say.len()];
    stream.read_exact(&mut answer).unwrap_or_else(|e| panic!("{say}: {e}"));
    assert_eq!(answer, say.as_bytes());
}

/// The sum of a counter of the switches.
fn counted(lab: &TestLab, counter: &str) -> u64 {
    SWITCHES.iter().map(|switch| lab.counter(switch, counter)).sum()
}

/// A connection goes out through one switch, and its answers come in through another one, which
/// lets in nothing else.
#[test]
fn a_firewall_is_one_on_asymmetric_paths() {
    if skip() {
        return;
    }
    let lab = up("sro-firewall", "firewall", &tables("firewall"));
    let mut streams = vec![];
    for k in 1..=3 {
        tcp_echo_at(&lab, "outside", &outside(k).to_string(), 8000);
        tcp_echo_at(&lab, "inside", &inside(k).to_string(), 8000);
    }
    for (back, out) in all_paths() {
        let to = SocketAddr::from((outside(out), 8000));
        let stream = connect(&lab, "inside", inside(back), to, Duration::from_secs(10));
        streams.push(stream.unwrap_or_else(|e| panic!("out by s{out}, back by s{back}: {e}")));
    }
    for round in 0..10 {
        streams.iter_mut().for_each(|it| answers(it, &format!("round {round}")));
    }
    // Nobody opens from outside, whichever way it goes.
    let before = counted(&lab, "no_connection");
    for (way, k) in all_paths() {
        let to = SocketAddr::from((inside(way), 8000));
        let error = connect(&lab, "outside", outside(k), to, Duration::from_millis(300));
        let error = error.expect_err("it must not get through");
        assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EINPROGRESS as i32), "{error}");
    }
    assert!(counted(&lab, "no_connection") >= before + 9);
    // Opened, and answered: two writes for each connection.
    assert_eq!(counted(&lab, "steps"), 18);
    drop(streams);
    // (A step that loses to the other end's is made again.)
    wait_for("each connection makes its last two steps", || counted(&lab, "steps") >= 36);
    // An operator cuts all connections on one switch: none of them lets in any of their packets.
    let mut cut =
        connect(&lab, "inside", inside(2), (outside(1), 8000).into(), Duration::from_secs(10));
    let cut = cut.as_mut().expect("it opens");
    answers(cut, "before");
    let shared = |order: &str, at: &str| {
        must(&["shared", order, "connections", "--switch", &format!("{}-{at}", lab.name)])
    };
    let cleared = shared("clear", "s3");
    assert!(!cleared.contains(": 0 keys removed"), "{cleared}");
    assert!(shared("get", "s1").contains("0 of 131072 keys"));
    let before = counted(&lab, "no_connection");
    cut.write_all(b"behind").expect("the kernel takes it");
    wait_for("what is cut off is dropped", || counted(&lab, "no_connection") > before);
    is_settled(&lab);
    lab.down();
}

/// Conversations of all switches take ports of the same pool, and no two have the same.
#[test]
fn a_nat_is_one_on_asymmetric_paths() {
    if skip() {
        return;
    }
    let lab = up("sro-nat", "nat", &tables("nat"));
    for k in 1..=3 {
        tcp_echo_at(&lab, "outside", &outside(k).to_string(), 8000);
    }
    let mut streams = vec![];
    for round in 0..3 {
        for (back, out) in all_paths() {
            let to = SocketAddr::from((outside(out), 8000));
            let stream = connect(&lab, "inside", inside(back), to, Duration::from_secs(10));
            streams.push(
                stream.unwrap_or_else(|e| {
                    panic!("round {round}, out by s{out}, back by s{back}: {e}")
                }),
            );
        }
    }
    for round in 0..10 {
        streams.iter_mut().for_each(|it| answers(it, &format!("round {round}")));
    }
    // What the outside host sees: the pool's addresses, and each port once.
    let seen = lab.must_run("outside", "ss -Htn state established sport = :8000");
    let peers: Vec<&str> = seen.lines().filter_map(|line| line.split_whitespace().nth(3)).collect();
    assert_eq!(peers.len(), streams.len(), "{seen}");
    assert!(peers.iter().all(|peer| peer.starts_with("10.6.0.")), "{seen}");
    assert_eq!(counted(&lab, "no_binding"), 0);
    is_settled(&lab);
    lab.down();
}

/// A client's connection comes to one switch, the backend's answers to another one.
#[test]
fn a_load_balancer_is_one_on_asymmetric_paths() {
    if skip() {
        return;
    }
    let lab = up("sro-balancer", "load_balancer", &tables("load_balancer"));
    for k in 1..=3 {
        tcp_echo_at(&lab, "outside", &outside(k).to_string(), 8000);
    }
    let mut streams = vec![];
    for _ in 0..3 {
        for (back, out) in all_paths() {
            let to = SocketAddr::from((virtual_address(out), 80));
            let stream = connect(&lab, "inside", inside(back), to, Duration::from_secs(10));
            streams.push(stream.unwrap_or_else(|e| panic!("out by s{out}, back by s{back}: {e}")));
        }
    }
    for round in 0..10 {
        streams.iter_mut().for_each(|it| answers(it, &format!("round {round}")));
    }
    assert_eq!(counted(&lab, "no_backend"), 0);
    is_settled(&lab);
    lab.down();
}
