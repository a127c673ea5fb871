//! The topology systems/swish/lab/failures.toml, with another number of switches, and its
//! controller.

use crate::common::{TestLab, wait_for};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn joined(count: u32, of: impl Fn(u32) -> String) -> String {
    (1..=count).map(of).collect::<Vec<_>>().join(", ")
}

/// A file with so many switches, each linked to each other one and to the controller.
pub fn topology(folder: &Path, count: u32) -> PathBuf {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join(super::TOPOLOGY);
    let text = std::fs::read_to_string(&original).expect("the topology");
    let (head, _) = text.split_once("[node.h1]").expect("hosts behind all templates");
    let (before, rest) = head.split_once("routes = [").expect("the controller's routes");
    let (_, rest) = rest.split_once(']').expect("their end");
    let routes =
        joined(count, |it| format!("\"10.9.0.{it} via 10.0.{}.2 src 10.2.9.10\"", 90 + it));
    let mut made = format!("{before}routes = [{routes}]{rest}");
    let switches = joined(4, |it| format!("\"10.9.0.{it}\""));
    assert_eq!(made.matches(&switches).count(), 2, "lists of switches");
    made = made.replace(&switches, &joined(count, |it| format!("\"10.9.0.{it}\"")));
    let lab = original.parent().expect("a folder").display().to_string();
    made = made.replace("${topology_dir}", &lab);
    for one in 1..=count {
        node(&mut made, one, count);
    }
    let file = folder.join("mesh.toml");
    std::fs::write(&file, made).expect("written");
    file
}

/// Such a file whose program has these groups. Lines of each group's configuration on a switch.
#[allow(dead_code, reason = "not each test program has other groups")]
pub fn with_groups(folder: &Path, count: u32, names: &[&str], lines: &str) -> PathBuf {
    let file = topology(folder, count);
    let text = std::fs::read_to_string(&file).expect("the topology");
    let (before, rest) = text.split_once("[group.main]").expect("groups of the controller");
    let (_, middle) = rest.split_once("[group.other]").expect("the second one");
    let (switches, rest) = middle.split_once("\n'''").expect("the list of switches");
    let (middle, rest) = rest.split_once("[shared.main]").expect("groups of a switch");
    let (_, after) = rest.split_once("[[port]]").expect("ports");
    let groups: String = names.iter().map(|name| format!("[group.{name}]{switches}\n\n")).collect();
    let group = |name: &&str| {
        format!(
            "[shared.{name}]\ncontrollers = [\"10.2.9.10:5412\"]\nown = \"10.9.0.${{number}}\"\n\
             {lines}\n"
        )
    };
    let shared: String = names.iter().map(group).collect();
    let made = format!("{before}{groups}'''{middle}{shared}[[port]]{after}");
    std::fs::write(&file, made).expect("written");
    file
}

fn node(text: &mut String, one: u32, count: u32) {
    let others = || (1..=count).filter(move |it| *it != one);
    let to = |other: u32| {
        let (low, high) = (one.min(other), one.max(other));
        format!("\"10.9.0.{other} via 10.0.{low}{high}.{}\"", if one < other { 2 } else { 1 })
    };
    let routes = others().map(to).collect::<Vec<_>>().join(", ");
    let controller = format!("10.0.{}", 90 + one);
    let mut ports = String::new();
    for (port, other) in (1..).zip(others()) {
        let _ = writeln!(ports, "[[port]]\ninterface = \"s{other}\"\nport = {port}\nfabric = true");
    }
    let _ = write!(
        text,
        "
[node.h{one}]
role = \"host\"
routes = [\"default via 10.1.{one}.1\"]

[node.s{one}]
template = \"switch\"
loopback = \"10.9.0.{one}/32\"
routes = [\"10.2.9.10 via {controller}.1 src 10.9.0.{one}\", {routes}]
[node.s{one}.vars]
number = \"{one}\"
ports = '''
{ports}[[port]]
interface = \"controller\"
port = 9
'''

[[link]]
a = {{ node = \"h{one}\", address = \"10.1.{one}.10/24\" }}
b = {{ node = \"s{one}\", address = \"10.1.{one}.1/24\" }}

[[link]]
a = {{ node = \"controller\", address = \"{controller}.1/30\" }}
b = {{ node = \"s{one}\", address = \"{controller}.2/30\" }}
"
    );
    for other in others().filter(|it| one < *it) {
        let _ = write!(
            text,
            "
[[link]]
a = {{ node = \"s{one}\", address = \"10.0.{one}{other}.1/30\" }}
b = {{ node = \"s{other}\", address = \"10.0.{one}{other}.2/30\" }}
"
        );
    }
}

/// What the controller says of its groups; null: it does not answer.
pub fn status(lab: &TestLab) -> Value {
    let dir = lab::Lab::open(&lab.name).expect("a lab").dir().display().to_string();
    let ask = format!(
        "{} shared status --address 10.2.9.10:5412 --secrets {dir}/fabric.secrets --json",
        env!("CARGO_BIN_EXE_stateplane")
    );
    let (_, said) = lab.run("controller", &ask);
    serde_json::from_str(&said).unwrap_or(Value::Null)
}

/// Waits until each switch knows the hosts behind it. (A packet that writes cannot wait for that.)
#[allow(dead_code, reason = "not each test program sends packets that wait")]
pub fn wait_for_hosts(lab: &TestLab, count: u32) {
    for number in 1..=count {
        let ping = format!("ping -c1 -W1 10.1.{number}.1");
        wait_for(&format!("s{number} knows h{number}"), || lab.run(&format!("h{number}"), &ping).0);
    }
}
