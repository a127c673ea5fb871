//! The firewall lab for real: two switches, the replicated store, connections of both IP families,
//! and failures. Needs root. Waits for timers.

mod common;

use common::{INSIDE, OUTSIDE, TestLab, one_at_a_time, skip, tcp_echo_at, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const INSIDE6: &str = "2001:db8:1::10";
const OUTSIDE6: &str = "2001:db8:2::10";
const EACH: usize = 12;

fn connect(
    lab: &TestLab,
    node: &str,
    to: SocketAddr,
    timeout: Duration,
) -> std::io::Result<TcpStream> {
    let stream = lab.netns(node).run(|| TcpStream::connect_timeout(&to, timeout))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(15)))?;
    Ok(stream)
}

fn open(lab: &TestLab, node: &str, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let one = |_| {
        connect(lab, node, to, Duration::from_secs(10))
            .unwrap_or_else(|e| panic!("{node} to {to}: {e}"))
    };
    (0..count).map(one).collect()
}

/// One exchange on each connection; all must answer.
fn all_answer(streams: &mut [TcpStream], when: &str) {
    for stream in streams.iter_mut() {
        stream
            .write_all(when.as_bytes())
            .unwrap_or_else(|e| panic!("{when}: {:?}: {e}", stream.peer_addr()));
    }
    for stream in streams {
        let mut answer = vec![0; when.len()];
        stream
            .read_exact(&mut answer)
            .unwrap_or_else(|e| panic!("{when}: {:?}: {e}", stream.peer_addr()));
        assert_eq!(answer, when.as_bytes());
    }
}

/// What both switches have counted.
fn both(lab: &TestLab, counter: &str) -> u64 {
    lab.counter("s1", counter) + lab.counter("s2", counter)
}

/// A connection that the firewall does not let through: dropped without an answer.
fn is_refused(lab: &TestLab, node: &str, to: SocketAddr) {
    let before = both(lab, "no_connection");
    let error =
        connect(lab, node, to, Duration::from_millis(300)).expect_err("must not get through");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    wait_for("the firewall counts it", || both(lab, "no_connection") > before);
}

#[test]
fn connections_outlive_a_switch_in_both_families_and_outside_opens_only_services() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("firewall", "firewall.toml", &[]);
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let (web, web6) =
        (tcp_echo_at(&lab, "outside", OUTSIDE, 8000), tcp_echo_at(&lab, "outside", OUTSIDE6, 8000));
    let (service, service6) =
        (tcp_echo_at(&lab, "inside", INSIDE, 80), tcp_echo_at(&lab, "inside", INSIDE6, 80));
    let (closed, closed6) =
        (tcp_echo_at(&lab, "inside", INSIDE, 81), tcp_echo_at(&lab, "inside", INSIDE6, 81));

    // Who may open what.
    let mut streams = open(&lab, "inside", web, EACH);
    streams.extend(open(&lab, "inside", web6, EACH));
    streams.extend(open(&lab, "outside", service, EACH));
    streams.extend(open(&lab, "outside", service6, EACH));
    all_answer(&mut streams, "opened");
    is_refused(&lab, "outside", closed);
    is_refused(&lab, "outside", closed6);
    both_are_used(&lab);

    // Both directions of a connection take one switch: each record was granted once, and not handed
    // to and fro.
    let connections = 4 * EACH as u64;
    let parked = lab.event("s1", "parked") + lab.event("s2", "parked");
    println!(
        "{connections} connections and 2 refused: {parked} packets waited at the store for a record"
    );
    assert!(
        parked < 3 * connections,
        "{parked} packets waited for records of {connections} connections"
    );

    // The data phase changes nothing in any record: read-centric.
    let steps = both(&lab, "steps");
    assert!(steps >= 2 * connections, "SYN and SYN+ACK of each connection, {steps} steps");
    for round in 0..50 {
        all_answer(&mut streams, &format!("round {round}"));
    }
    assert_eq!(
        both(&lab, "steps"),
        steps,
        "steps of {connections} connections while they carried data"
    );

    udp_and_icmp(&lab);

    // Switches die and come back, one after the other.
    for switch in ["s1", "s2"] {
        lab.fail(switch);
        all_answer(&mut streams, &format!("{switch} is dead"));
        streams.extend(open(&lab, "inside", web, 2));
        streams.extend(open(&lab, "inside", web6, 2));
        is_refused_by_the_other(&lab, switch, closed);
        lab.restore(switch);
        wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
        all_answer(&mut streams, &format!("{switch} is back"));
    }

    // Connections end: FIN from both ends.
    let before = both(&lab, "steps");
    let ended = streams.len() as u64;
    drop(streams);
    wait_for("each connection makes its last two steps", || {
        both(&lab, "steps") >= before + 2 * ended
    });
    let records = lab.equal_stores();
    assert!(records >= ended, "{records} records of {ended} connections");
    lab.down();
}

fn both_are_used(lab: &TestLab) {
    for switch in ["s1", "s2"] {
        for counter in ["passed_out", "passed_in"] {
            assert!(lab.counter(switch, counter) > 0, "{switch} {counter}");
        }
    }
}

fn is_refused_by_the_other(lab: &TestLab, dead: &str, to: SocketAddr) {
    let alive = if dead == "s1" { "s2" } else { "s1" };
    let before = lab.counter(alive, "no_connection");
    connect(lab, "outside", to, Duration::from_millis(300)).expect_err("must not get through");
    wait_for("the firewall counts it", || lab.counter(alive, "no_connection") > before);
}

/// Answers to UDP come in, and so does the ICMP error when nobody is there; pings go out, not in.
fn udp_and_icmp(lab: &TestLab) {
    for (inside, outside) in [(INSIDE, OUTSIDE), (INSIDE6, OUTSIDE6)] {
        let server = lab.netns("outside").run(|| UdpSocket::bind((outside, 9000))).expect("bind");
        let client = lab.netns("inside").run(|| UdpSocket::bind((inside, 0))).expect("bind");
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
        }
        let mut buffer = [0; 64];
        client.send_to(b"question", (outside, 9000)).expect("send");
        let (_, from) = server.recv_from(&mut buffer).expect("the question arrives");
        server.send_to(b"answer", from).expect("send");
        assert_eq!(client.recv_from(&mut buffer).expect("the answer arrives").0, 6);

        client.connect((outside, 9001)).expect("connect");
        client.set_read_timeout(Some(Duration::from_millis(500))).expect("timeout");
        // An ICMP error's own header may bring it to the other switch, which gets the record only
        // when this one has had it for `tenure_ms`.
        wait_for("the ICMP error comes in", || {
            let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
            client.send(b"anybody?").is_err_and(refused)
                || client.recv(&mut buffer).is_err_and(refused)
        });

        lab.must_run("inside", &format!("ping -c1 -W5 {outside}"));
        let (answered, said) = lab.run("outside", &format!("ping -c1 -W1 {inside}"));
        assert!(!answered, "{said}");
    }
}
