//! What `stateplane check` tells of a program's memory is what the kernel has for its maps, and
//! what switches tell of groups with EWO. Needs root.

use dataplane::Object;
use libbpf_rs::{MapCore, MapHandle};
use manifest::Manifest;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use swish_protocol::memory::{Form, Map, Memory};
use swish_protocol::objects::Consistency;
use swish_switch::eventual::EventualGroup;
use xdp_backend::{Options, Systems};

/// One of each consistency and kind of variable at the least.
const PROGRAMS: [&str; 7] = ["detector", "eventual", "firewall", "last", "own", "pairs", "tally"];
/// Of the kernel's bytes, that may be unlike.
const PART: f64 = 0.03;
/// Beside that, for each map: its head, and the rest of a page.
const HEAD_BYTES: f64 = 4096.0;

/// Bytes that the kernel has for a map.
fn memory(map: &MapHandle) -> u64 {
    let file = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(file).expect("what the kernel says of the map");
    let found = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    found.and_then(|bytes| bytes.trim().parse().ok()).expect("bytes")
}

/// Is it one of the system's own?
fn is_own(name: &str) -> bool {
    let own = ["sp_shared_", "sp_eventual_", "sp_lww_", "sp_strong_", "sp_swish_"];
    own.iter().any(|it| name.starts_with(it))
}

fn assert_like(told: &Map, map: &MapHandle, program: &str) {
    let name = &told.name;
    assert_eq!(told.entries, map.max_entries(), "{program}: entries of {name}");
    let value = map.value_size();
    // (How many writes a packet notes at the most is not known: there is room for as many as may.)
    if told.name == "sp_lww_scratches" {
        assert!(value <= told.value_bytes, "{program}: {name}: {value} of {}", told.value_bytes);
    } else {
        assert_eq!(told.value_bytes, value, "{program}: a value of {name}");
    }
    if told.form == Form::Hash {
        assert_eq!(told.key_bytes, map.key_size(), "{program}: a key of {name}");
    }
}

/// Of variables with EWO.
fn eventual(manifest: &Manifest) -> u64 {
    let variables = swish_tools::variables(manifest).expect("a manifest");
    let of = Memory::of(&variables).of_variables;
    let all = variables.iter().zip(of);
    all.filter(|(it, _)| it.consistency() == Consistency::Ewo).map(|(_, bytes)| bytes).sum()
}

/// The same, as a switch tells it of its groups.
fn in_groups(manifest: &Manifest) -> u64 {
    let groups = EventualGroup::all(manifest).expect("a manifest");
    groups.iter().map(|it| it.memory_bytes).sum()
}

#[test]
fn the_maps_are_as_large_as_it_was_told() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let cpus = libbpf_rs::num_possible_cpus().expect("how many CPUs there may be") as u64;
    for program in PROGRAMS {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../p4/{program}/{program}.p4"));
        let options = p4_syntax::Options::default();
        let checked = p4_check::check_file(&source, &options).program.expect("a program");
        let file = folder.path().join(format!("{program}.o"));
        let options = Options::new(Systems(&[&swish_compiler::SwiSh]));
        let made = xdp_backend::compile(&checked, &options, &file);
        let manifest = made.unwrap_or_else(|error| panic!("{error}")).generated.manifest;
        let told = Memory::of(&swish_tools::variables(&manifest).expect("a manifest"));
        assert_eq!(eventual(&manifest), in_groups(&manifest), "{program}: what switches tell");
        let loaded = Object::open(&file, manifest).and_then(Object::load).expect("it loads");

        let mut bytes = 0;
        for map in &told.maps {
            // (C names of what the program declares begin with more.)
            let named = |(name, _): &(&str, _)| name.ends_with(map.name.as_str());
            let found = loaded.map(&map.name).or_else(|| loaded.maps().find(named).map(|it| it.1));
            let found = found.unwrap_or_else(|| panic!("{program}: no map {}", map.name));
            assert_like(map, found, program);
            bytes += memory(found);
        }
        let count = told.maps.len() as f64;
        let known = |name: &str| told.maps.iter().any(|it| it.name == name);
        let forgotten: Vec<&str> = loaded.maps().map(|(name, _)| name).collect();
        let forgotten = forgotten.into_iter().filter(|it| is_own(it) && !known(it));
        assert_eq!(forgotten.collect::<Vec<_>>(), [""; 0], "{program}: maps that are not told");
        let (told, kernel) = (told.total(cpus) as f64, bytes as f64);
        println!("{program}: told {told}, in the kernel {kernel}");
        assert!(
            (told - kernel).abs() < PART * kernel + HEAD_BYTES * count,
            "{program}: told {told}, not {kernel}"
        );
    }
}
