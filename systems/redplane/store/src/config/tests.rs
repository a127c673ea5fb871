//! The example file is good, and every fault in one is named with its remedy.

use super::objects::NS_PER_S;
use super::*;
use crate::core::MergeSettings;
use state_protocol::objects::Merge;

const GOOD: &str = include_str!("../../../docs/store.example.toml");

fn problem(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the example has no `{from}`");
    Config::parse(Path::new("store.toml"), &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn the_example_is_good() {
    let config = Config::parse(Path::new("store.toml"), GOOD).unwrap();
    assert_eq!((config.settings.shards, config.controllers.len()), (8, 1));
    assert_eq!(config.settings.hold_ns, 500_000_000);
    assert_eq!(config.secrets, Path::new("secrets.toml"));
    assert!(
        config.keys().unwrap_err().to_string().contains("keys generate"),
        "relative to the file, and not there"
    );
}

#[test]
fn backends_are_read_and_checked() {
    let config = Config::parse(Path::new("store.toml"), GOOD).unwrap();
    let [(3, backends)] = &config.backends[..] else { panic!("{:?}", config.backends) };
    let seen: Vec<_> =
        backends.iter().map(|b| (b.address.to_string(), b.weight, b.drained)).collect();
    assert_eq!(
        seen,
        [("10.0.4.1:8080".to_owned(), 2, false), ("10.0.4.2:8080".to_owned(), 1, true)]
    );
    assert_eq!(config.file, Path::new("store.toml"));
    // Which backends there are is not part of what a chain must agree on: it changes while they
    // run.
    let other =
        Config::parse(Path::new("store.toml"), &GOOD.replace("10.0.4.2", "10.0.4.3")).unwrap();
    assert_eq!(other.settings.digest(), config.settings.digest());
    let other = Config::parse(Path::new("store.toml"), &GOOD.replace("\"weighted\"", "\"maglev\""))
        .unwrap();
    assert_ne!(other.settings.digest(), config.settings.digest());
    for (from, to, part) in [
        ("10.0.4.2", "10.0.4.1", "listed twice"),
        ("weight = 2 ", "weight = 0 ", "state = \"drained\""),
        ("\"drained\"", "\"gone\"", "gone"),
        ("\"weighted\"", "\"fair\"", "fair"),
        ("\"10.0.4.1\"", "\"0.0.0.0\"", "not a backend's address"),
        ("policy = \"weighted\"", "idle_s = 5", "belongs to"),
        ("policy = \"weighted\"", "ports = \"1-2\"", "nat_ports"),
        ("allocator = \"backends\"", "allocator = \"zero\"", "belongs to allocator = \"backends\""),
    ] {
        let problem = problem(from, to);
        assert!(problem.contains(part), "{from} → {to}: {problem}");
    }
}

#[test]
fn objects_come_from_the_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let field = r#"{"name": "f", "width": 32, "offset": 0, "bytes": 4}"#;
    let flow = |name: &str, id: u16, consistency: &str| {
        format!(
            r#"{{"id": {id}, "name": "{name}", "system": "redplane", "kind": "FlowState", "map": "m", "capacity": 9,
            "home": "store", "key": [{field}], "key_bytes": 4,
            "value": {{"fields": {{"fields": [{field}], "bytes": 4, "offset": 0}}}},
            "settings": {{"consistency": "{consistency}", "allocator": "zero"}}}}"#
        )
    };
    let flows: Vec<serde_json::Value> =
        [flow("a", 1, "linearizable"), flow("b", 2, "local"), flow("c", 3, "asynchronous")]
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
    let json = serde_json::json!({
        "version": manifest::VERSION, "program": "p", "tables": [], "actions": [], "registers": [], "counters": [],
        "state_objects": flows, "errors": [], "max_ports": 1, "drop_port": 511, "headroom_bytes": 0
    });
    std::fs::write(directory.path().join("p.json"), json.to_string()).unwrap();
    let path = directory.path().join("store.toml");
    let top = "name = \"s\"\nlisten = \"10.0.0.1:1\"\ncontrollers = [\"10.0.0.1:2\"]\nsecrets = \"s\"\nmanifest = \"p.json\"\n";
    let config =
        Config::parse(&path, &format!("{top}[[object]]\nname = \"c\"\nidle_s = 5\n")).unwrap();
    let found: Vec<_> =
        config.settings.objects.iter().map(|o| (o.name.as_str(), o.id, o.key_bytes)).collect();
    assert_eq!(found, [("c", 3, 4), ("a", 1, 4)]);
    assert_eq!(config.settings.objects[0].idle_ns(&[0; 4]), Some(5 * NS_PER_S));
    let error = Config::parse(&path, &format!("{top}[[object]]\nname = \"c\"\nid = 8\n"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"c\".id: 8, but the manifest says 3"), "{error}");
    let error = Config::parse(&path, &format!("{top}[[object]]\nname = \"d\"\nidle_s = 5\n"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("object[0].name: the manifest has no object \"d\"")
            && error.contains("it has \"a\", \"c\""),
        "{error}"
    );
}

#[test]
fn workers_have_their_own_ports_and_logs_and_die_together() {
    let log = "[wal]\ndirectory = \"log\"\n\n[limits]";
    let text = GOOD.replace("shards = 8", "shards = 8\nworkers = 3").replace("[limits]", log);
    let config = Config::parse(Path::new("/etc/store.toml"), &text).unwrap();
    let last = config.worker(2);
    assert_eq!((config.worker(0).listen.port(), last.listen.port()), (5407, 5409));
    assert_eq!((last.name.as_str(), last.metrics.unwrap().port()), ("store-1-2", 9103));
    assert_eq!(config.worker(0).wal.unwrap().directory, Path::new("/etc/log"));
    assert_eq!(last.wal.unwrap().directory, Path::new("/etc/log/worker-2"));
    assert_eq!(
        (config.worker(0).machine.as_str(), last.machine.as_str()),
        ("10.0.3.1:5407", "10.0.3.1:5407")
    );
    assert_eq!(last.settings.digest(), config.settings.digest());
    let alone = Config::parse(Path::new("store.toml"), GOOD).unwrap();
    assert_eq!((alone.workers, alone.machine.as_str()), (1, ""));
    let named = GOOD.replace("shards = 8", "shards = 8\nmachine = \"rack 1\"");
    assert_eq!(Config::parse(Path::new("store.toml"), &named).unwrap().machine, "rack 1");
}

#[test]
fn the_fast_path_is_read_and_checked() {
    let with = |table: &str, from: &str, to: &str| {
        let text = GOOD.replace(from, to).replace("[limits]", &format!("{table}\n\n[limits]"));
        Config::parse(Path::new("store.toml"), &text)
    };
    let table = "[fast_path]\ninterfaces = [\"eth0\"]";
    let config = with(table, "", "").unwrap();
    let expected = FastPathSettings { interfaces: vec!["eth0".to_owned()], records: 65_536 };
    assert_eq!(config.fast_path, Some(expected));
    let wal = format!("{table}\n[wal]\ndirectory = \"log\"");
    for (table, from, to, part) in [
        ("[fast_path]\ninterfaces = []", "", "", "such as [\"eth0\"]"),
        ("[fast_path]\ninterfaces = [\"a\", \"a\"]", "", "", "is given twice"),
        (&format!("{table}\nrecords = 0"), "", "", "1 to 4194304"),
        (&wal, "", "", "leave one of them out"),
        (table, "shards = 8", "shards = 8\nworkers = 2", "one worker"),
    ] {
        let problem = with(table, from, to).unwrap_err().to_string();
        assert!(problem.contains("fast_path") && problem.contains(part), "{table}: {problem}");
    }
}

#[test]
fn every_fault_names_its_field_and_remedy() {
    for (from, to, field, remedy) in [
        ("listen = \"10.0.3.1:5407\"", "listen = \"0.0.0.0:5407\"", "listen", "own address"),
        ("controllers = [\"10.0.3.1:5408\"]", "controllers = []", "controllers", "10.2.1.10:5408"),
        (
            "[\"10.0.3.1:5408\"]",
            "[\"10.0.3.1:5408\", \"10.0.3.1:5408\"]",
            "controllers",
            "is given twice",
        ),
        ("shards = 8", "shards = 0", "shards", "1 to 256"),
        ("shards = 8", "shards = 8\nworkers = 0", "workers", "1 to 64"),
        ("shards = 8", "shards = 8\nworkers = 64\nmachine = \"\"", "machine", "leave it out"),
        (
            "listen = \"10.0.3.1:5407\"",
            "workers = 2\nlisten = \"10.0.3.1:65535\"",
            "listen",
            "a lower port",
        ),
        ("lease_ms = 250", "lease_ms = 0", "lease_ms", "50 to 60000"),
        ("key_bytes = 13", "key_bytes = 12", "key_bytes", "needs 13"),
        ("value_bytes = 6", "value_bytes = 257", "value_bytes", "1 to 256"),
        ("ports = \"1024-65535\"", "ports = \"9-8\"", "ports", "lowest-highest"),
        (
            "external = [\"203.0.113.1\", \"203.0.113.2\"]",
            "external = []",
            "external",
            "at least one",
        ),
        ("\"203.0.113.2\"]", "\"203.0.113.1\"]", "external", "203.0.113.1 is given twice"),
        ("id = 1", "id = 2", "object[1]", "its own"),
        ("lease_ms", "lease_mss", "lease_mss", "7:1"),
        ("udp_s = 300", "udp_s = 0", "idle.udp_s", "1 or more"),
        ("hold_ms = 500", "hold_ms = 901", "hold_ms", "1 to 900"),
        ("closed_s = 240", "closed_s = 0", "closed_s", "1 or more"),
        ("half_open_s = 240", "half_open_s = 0", "half_open_s", "1 or more"),
        ("idle_s = 600", "shard_bytes = 14", "shard_bytes", "1 to 13"),
        ("idle_s = 600", "shard_bytes = 0", "shard_bytes", "1 to 13"),
        ("half_open_s = 240", "shard_bytes = 4", "shard_bytes", "belongs to allocator = \"zero\""),
        ("secrets = \"secrets.toml\"", "", "secrets", ""),
    ] {
        let text = problem(from, to);
        assert!(text.starts_with("store.toml: ") && text.contains(field), "{from}: {text}");
        assert!(
            text.contains(remedy) || field == "lease_mss" || remedy.is_empty(),
            "{from}: {text}"
        );
    }
}

/// How switches' slots are merged is the program's to say, or written beside the sizes.
#[test]
fn what_is_merged_is_read_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.toml");
    let top =
        "name = \"s\"\nlisten = \"10.0.0.1:1\"\ncontrollers = [\"10.0.0.1:2\"]\nsecrets = \"s\"\n";
    let object = |more: &str| {
        format!(
            "[[object]]\nname = \"o\"\nid = 1\nkey_bytes = 4\nvalue_bytes = 4\nslots = 9\n\
             slot_bytes = 4\nallocator = \"snapshot\"\n{more}\n"
        )
    };
    let read = |text: &str| Config::parse(&path, &format!("{top}{text}"));
    let merge = |text: &str| read(text).unwrap().settings.objects[0].merge();
    let sum = MergeSettings { how: Merge::Sum, window_bits: Some(32) };
    assert_eq!(merge(&object("")), None);
    assert_eq!(merge(&object("merge = \"sum\"\nwindow_bits = 32")), Some(sum));
    let of_program = |merge: &str| {
        let field = r#"{"name": "f", "width": 32, "offset": 0, "bytes": 4}"#;
        let text = format!(
            r#"{{"id": 1, "name": "o", "system": "redplane", "kind": "SnapshotState", "map": "m", "capacity": 9,
            "home": "store", "key": [{field}], "key_bytes": 4,
            "value": {{"slots": {{"count": 9, "width": 32, "slot_bytes": 4, "map_slot_bytes": 12, "offset": 0}}}},
            "settings": {{"period_us": 1000, "epsilon_us": 9000, "overdue": "drop", "windows": true{merge}}}}}"#
        );
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        let json = serde_json::json!({
            "version": manifest::VERSION, "program": "p", "tables": [], "actions": [], "registers": [],
            "counters": [], "state_objects": [object], "errors": [], "max_ports": 1, "drop_port": 511,
            "headroom_bytes": 0
        });
        std::fs::write(directory.path().join("p.json"), json.to_string()).unwrap();
    };
    of_program(r#", "merge": "sum""#);
    assert_eq!(merge("manifest = \"p.json\""), Some(sum));
    let said = |text: &str| read(text).unwrap_err().to_string();
    let other = said("manifest = \"p.json\"\n[[object]]\nname = \"o\"\nmerge = \"max\"");
    assert!(other.contains("\"o\".merge: Max, but the manifest says Sum"), "{other}");
    of_program("");
    let none = said("manifest = \"p.json\"\n[[object]]\nname = \"o\"\nmerge = \"max\"");
    assert!(none.contains("declares no Merge; leave it out"), "{none}");
    for (more, part) in [
        ("window_bits = 32", "belongs to merge"),
        ("merge = \"least\"", "least"),
        ("merge = \"sum\"\nwindow_bits = 33", "write 32 to 32"),
        ("merge = \"sum\"\nwindow_bits = 16", "write 32 to 32"),
    ] {
        let said = said(&object(more));
        assert!(said.contains(part), "{more}: {said}");
    }
    let long = said(&object("merge = \"or\"").replace("key_bytes = 4", "key_bytes = 61"));
    assert!(long.contains("write 60 at most"), "{long}");
    let zero = said(&object("merge = \"or\"").replace("\"snapshot\"", "\"zero\""));
    assert!(zero.contains("belongs to allocator = \"snapshot\""), "{zero}");
}
