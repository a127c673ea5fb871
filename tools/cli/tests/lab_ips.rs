//! Intrusion prevention for real: the compiled program on four switches. An operator writes a
//! signature on one of them, and all drop its packets; matches at all switches together block a
//! source everywhere; a switch that is killed and comes back has all of it again. Truth is what the
//! hosts received. Needs root. Waits for timers.

mod common;

use common::{TestLab, json, must, skip, stateplane, wait_for};
use serde_json::Value;
use std::net::UdpSocket;
use std::time::Duration;

/// What the signature is of: the first eight bytes, and the port.
const ATTACK: &[u8] = b"\xde\xad\xbe\xef\0\0\0\x01 and the rest";
const HARMLESS: &[u8] = b"\xde\xad\xbe\xef\0\0\0\x02 and the rest";
const PORT: u16 = 5353;

/// Hosts on both sides of a switch.
struct Pair {
    from: UdpSocket,
    to: UdpSocket,
    address: String,
}

/// The switch between the two hosts is none that they know of.
fn routes(lab: &TestLab, number: usize) {
    let route = |node: &str, to: u32| {
        let command = format!("ip route replace 10.{to}.{number}.0/24 dev s{number}");
        lab.must_run(&format!("{node}{number}"), &command);
    };
    route("a", 3);
    route("v", 1);
    // (ARP goes up to the switch's kernel.)
    let link = lab.must_run(&format!("v{number}"), &format!("ip -br link show s{number}"));
    let mac = link.split_whitespace().nth(2).expect("name, state, address");
    let to = format!("10.3.{number}.10");
    let command = format!("ip neigh replace {to} lladdr {mac} dev s{number} nud permanent");
    lab.must_run(&format!("a{number}"), &command);
}

impl Pair {
    fn of(lab: &TestLab, number: usize) -> Pair {
        let socket = |node: String, port: u16| {
            lab.netns(&node).run(|| UdpSocket::bind(("0.0.0.0", port))).expect("a socket")
        };
        let to = socket(format!("v{number}"), PORT);
        to.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        routes(lab, number);
        Pair {
            from: socket(format!("a{number}"), 0),
            to,
            address: format!("10.3.{number}.10:{PORT}"),
        }
    }

    /// Does a packet with this payload come through?
    fn passes(&self, payload: &[u8]) -> bool {
        self.to.set_nonblocking(true).expect("no wait");
        let mut bytes = [0; 64];
        while self.to.recv(&mut bytes).is_ok() {}
        self.to.set_nonblocking(false).expect("a wait");
        self.from.send_to(payload, &self.address).expect("sent");
        self.to.recv(&mut bytes).is_ok_and(|length| &bytes[..length] == payload)
    }
}

fn shared(lab: &TestLab, switch: usize, words: &[&str]) -> Value {
    let name = format!("{}-s{switch}", lab.name);
    json(&must(&[&["shared"], words, &["--switch", &name, "--json"]].concat()))
}

fn keys(lab: &TestLab, switch: usize, object: &str) -> usize {
    shared(lab, switch, &["get", object])["entries"].as_array().expect("entries").len()
}

#[test]
fn signatures_and_blocks_are_everywhere() {
    if skip() {
        return;
    }
    let vars = ["--set", "program=ips", "--set", "define=LAB"];
    let lab = TestLab::up("ips", "functions.toml", &vars);
    let pairs: Vec<Pair> = (1..=4).map(|number| Pair::of(&lab, number)).collect();
    for pair in &pairs {
        wait_for("a packet comes through", || pair.passes(HARMLESS));
        assert!(pair.passes(ATTACK), "nobody has said what an attack is");
    }

    // A signature that only drops, written at one switch.
    let signature = ["port=5353", "payload=0xdeadbeef00000001"];
    let write = [&["set", "signatures"][..], &signature, &["id=7", "weight=0"]].concat();
    assert_eq!(shared(&lab, 1, &write)["entries"][0]["value"][0][1], "7");
    for (at, pair) in pairs.iter().enumerate() {
        wait_for("a switch has the signature", || !pair.passes(ATTACK));
        assert!(pair.passes(HARMLESS), "s{} drops other packets", at + 1);
    }

    // One with a weight, at another switch: three matches at any switches block a source.
    let write = [&["set", "signatures"][..], &signature, &["id=8", "weight=100"]].concat();
    shared(&lab, 3, &write);
    for switch in 1..=4 {
        let read = [&["get", "signatures"][..], &signature].concat();
        wait_for("the last writer wins", || {
            shared(&lab, switch, &read)["entries"][0]["value"][0][1] == "8"
        });
    }
    for _ in 0..3 {
        assert!(!pairs[1].passes(ATTACK));
        std::thread::sleep(Duration::from_millis(50));
    }
    for switch in 1..=4 {
        wait_for("the source is blocked", || keys(&lab, switch, "blocks") == 1);
    }
    assert!(!pairs[1].passes(HARMLESS), "a blocked source sends nothing");
    assert!(pairs[0].passes(HARMLESS), "others do");

    // The weights of three matches are in one cell, on a switch that saw none of them.
    let cells = shared(&lab, 4, &["get", "matches"])["entries"].clone();
    let [cell] = cells.as_array().expect("entries").as_slice() else { panic!("{cells}") };
    assert_eq!(cell["value"][0][1], "300", "{cells}");
    let index = format!("index={}", cell["key"][0][1].as_str().expect("a number"));
    assert_eq!(shared(&lab, 1, &["get", "matches", &index])["entries"], cells);

    // A switch dies, and comes back empty: gossip gives it all that there is.
    lab.fail("s2");
    shared(&lab, 4, &["set", "signatures", "port=9", "payload=1", "id=9", "weight=0"]);
    lab.restore("s2");
    routes(&lab, 2);
    wait_for("it has signatures and blocks", || {
        keys(&lab, 2, "signatures") == 2 && keys(&lab, 2, "blocks") == 1
    });
    wait_for("it blocks", || !pairs[1].passes(HARMLESS));

    // The operator lets the source in again, at a switch that never saw it.
    shared(&lab, 4, &["clear", "blocks"]);
    wait_for("it is let in", || pairs[1].passes(HARMLESS));
    shared(&lab, 1, &["delete", "signatures", "port=5353", "payload=0xdeadbeef00000001"]);
    for pair in &pairs {
        wait_for("the signature is gone", || pair.passes(ATTACK));
    }

    // Mistakes have remedies.
    let switch = format!("{}-s1", lab.name);
    let refused = |words: &[&str], says: &str| {
        let output = stateplane(&[&["shared"], words, &["--switch", &switch]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(says), "{words:?}: {said}");
    };
    refused(&["get", "nothing"], "signatures");
    refused(&["set", "signatures", "port=9"], "payload");
    refused(&["clear", "matches"], "packets change it");
    refused(&["get", "matches", "index=65536"], "0 to 65535");
    for switch in 1..=4 {
        let text = lab.metrics(&format!("s{switch}"));
        for reason in ["forged", "foreign", "faults", "malformed", "table_full", "cell_stuck"] {
            let none = format!("stateplane_drops_total{{part=\"swish\",reason=\"{reason}\"}} 0");
            assert!(text.contains(&none), "s{switch}: {text}");
        }
        let name =
            "stateplane_switch_shared_keys{object=\"IpsIngress.signatures\",state=\"there\"} 1";
        assert!(text.contains(name), "s{switch}: {text}");
    }
    lab.down();
}
