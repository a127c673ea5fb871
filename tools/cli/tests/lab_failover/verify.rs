//! `stateplane kv verify` finds a slot that somebody changed, and nothing else.

use crate::cluster::{Cluster, key_of, node};
use netchain_client::Outcome;
use serde_json::Value;
use std::path::PathBuf;

/// Of the program.
const SLOTS: &str = "p4_NetChainIngress_slots";

/// What it says, and whether all members agree.
fn verify(cluster: &Cluster, words: &str) -> (bool, Value) {
    let (good, said) = cluster.kv(&format!("--json verify{words}"));
    (good, serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}")))
}

/// All members agree; how many keys there are.
pub fn agrees(cluster: &Cluster) -> u64 {
    let (good, told) = verify(cluster, "");
    assert!(good && told["groups"] == 40, "{told}");
    told["keys"].as_u64().expect("a number")
}

/// The tail's slot of a key loses a bit.
pub fn finds_a_changed_slot(cluster: &Cluster) {
    let key = key_of(&cluster.ring, 7, 0);
    let mut client = cluster.client();
    assert!(matches!(client.put(&key, b"as it was"), Ok(Outcome::Done(_))));
    let chain = cluster.groups()[7].chain.clone();
    let (tail, before) = (chain[chain.len() - 1], chain[chain.len() - 2]);
    let maps = maps(cluster, node(tail));
    let tool = |words: &str| cluster.lab.must_run(node(tail), &format!("bpftool -j map {words}"));
    let digits = |bytes: &[u8]| -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    let (numbers, slots) = (maps.join(SLOTS), maps.join(format!("{SLOTS}_slots")));
    let (numbers, slots) = (numbers.display(), slots.display());
    let number = tool(&format!("lookup pinned {numbers} key hex {}", digits(&key.0)));
    let number = bytes(&number);
    let slot = tool(&format!("lookup pinned {slots} key hex {}", digits(&number)));
    let mut slot = bytes(&slot);
    // (Lock, generation, key and version stand in front of the value.)
    slot[32] ^= 1;
    tool(&format!("update pinned {slots} key hex {} value hex {}", digits(&number), digits(&slot)));
    let (good, told) = verify(cluster, " --group 7");
    let found = &told["differences"][0];
    assert!(!good && told["different"] == 1, "{told}");
    assert_eq!(found["what"], "two values", "{told}");
    assert_eq!(found["successor"], tail.to_string(), "{told}");
    assert_eq!(found["switch"], before.to_string(), "{told}");
    let name = String::from_utf8_lossy(&key.0);
    assert_eq!(found["key"], name.trim_end_matches('\0'), "{told}");
    assert!(matches!(client.put(&key, b"again"), Ok(Outcome::Done(_))));
    assert!(verify(cluster, " --group 7").0, "a write mends it");
    let (good, said) = cluster.kv("verify --group 40");
    assert!(!good && said.contains("no group 40"), "{said}");
}

/// Where a switch's maps are pinned.
fn maps(cluster: &Cluster, switch: &str) -> PathBuf {
    let root = format!("/run/stateplane/{}-{switch}/bpf", cluster.lab.name);
    let pins = std::fs::read_dir(&root).expect("pins").flatten();
    let mut maps = pins.map(|entry| entry.path().join("maps")).filter(|path| path.exists());
    maps.next().expect("a generation")
}

/// The value that bpftool found.
fn bytes(text: &str) -> Vec<u8> {
    let told: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
    let value = told["value"].as_array().unwrap_or_else(|| panic!("{text}"));
    let byte = |it: &Value| u8::from_str_radix(it.as_str()?.trim_start_matches("0x"), 16).ok();
    value.iter().map(|it| byte(it).expect("a byte")).collect()
}
