//! Tables whose entries are exchanged as one, under packets on two CPUs. Needs root.

mod fixture;

use dataplane::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs of a frame in one system call, which an exchange has to wait for.
const RUNS: u32 = 100;
/// Fewer pairs that were read show nothing.
const LEAST_READ: u64 = 1_000_000;
/// Calls between the reads of a pair's halves: the longer a packet takes, the more it may see.
const CALLS: u16 = 100;

fn load() -> Dataplane {
    let folder = tempfile::tempdir().unwrap();
    let path = fixture::build(folder.path(), &[]);
    let mut object = Object::open(&path, fixture::manifest()).unwrap();
    object.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true }).unwrap();
    object.load().unwrap()
}

fn entry(table: TableRef<'_>, group: u32, number: u64) -> Entry {
    let keys = vec![KeySpec { name: None, text: group.to_string() }];
    let arguments = vec![(None, number.to_string()), (None, number.to_string())];
    let action = ActionSpec { name: "pair".into(), arguments };
    table.resolve(&EntrySpec { keys, priority: None, action }).unwrap()
}

fn entries(table: TableRef<'_>, groups: std::ops::Range<u32>, number: u64) -> Vec<Entry> {
    groups.map(|group| entry(table, group, number)).collect()
}

fn listed(table: TableRef<'_>) -> Vec<Entry> {
    table.list().unwrap().into_iter().map(|it| it.entry).collect()
}

/// A frame of a group; the EtherType picks the table.
fn frame(kind: u16, group: u32, calls: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0x11, 0x22, 0x33, 0x44, 0x55, 2, 0, 0, 0, 0, 1];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(group.to_be_bytes());
    bytes.extend(calls.to_be_bytes());
    bytes.resize(64, 0xaa);
    bytes
}

const ROLES: u16 = 0x1005;
const PLAIN: u16 = 0x1006;

fn out(dataplane: &Dataplane, group: u32) -> Verdict {
    dataplane.run(&frame(ROLES, group, 0), 1, 0).unwrap().verdict
}

#[test]
fn entries_are_exchanged_as_one() {
    let dataplane = load();
    let table = dataplane.table("roles").unwrap();
    assert_eq!(out(&dataplane, 3), Verdict::Drop, "a table without entries misses");
    let first = table.version().unwrap();
    let second = table.replace(&entries(table, 0..3, 7)).unwrap();
    assert_ne!(first, second);
    assert_eq!(table.version().unwrap(), second);
    assert_eq!(out(&dataplane, 2), Verdict::Forward { port: 1 });
    assert_eq!(out(&dataplane, 3), Verdict::Drop);
    table.replace(&entries(table, 2..5, 8)).unwrap();
    assert_eq!(listed(table), entries(table, 2..5, 8));
    assert_eq!(
        (out(&dataplane, 1), out(&dataplane, 4)),
        (Verdict::Drop, Verdict::Forward { port: 1 })
    );

    // One entry alone.
    table.write(&entry(table, 9, 9), Write::Add).unwrap();
    let said = |result: Result<()>| result.unwrap_err().to_string();
    assert!(said(table.write(&entry(table, 9, 9), Write::Add)).contains("already"));
    assert!(said(table.write(&entry(table, 8, 9), Write::Modify)).contains("no such entry"));
    table.write(&entry(table, 9, 10), Write::Modify).unwrap();
    table.write(&entry(table, 2, 11), Write::Set).unwrap();
    table.delete(&entry(table, 3, 0).matches).unwrap();
    assert!(said(table.delete(&entry(table, 3, 0).matches)).contains("no such entry"));
    let mut wanted = vec![entry(table, 2, 11), entry(table, 4, 8), entry(table, 9, 10)];
    assert_eq!(listed(table), wanted);
    assert_eq!(
        (out(&dataplane, 3), out(&dataplane, 9)),
        (Verdict::Drop, Verdict::Forward { port: 1 })
    );
    table.replace(&[]).unwrap();
    wanted.clear();
    assert_eq!((listed(table), out(&dataplane, 9)), (wanted, Verdict::Drop));

    let plain = dataplane.table("plain").unwrap();
    let error = plain.replace(&[]).unwrap_err().to_string();
    assert!(error.contains("stateplane_exchange"), "{error}");
}

#[test]
fn a_fill_that_fails_and_a_version_that_is_gone_change_nothing() {
    let dataplane = load();
    let table = dataplane.table("roles").unwrap();
    let version = table.replace(&entries(table, 0..16, 1)).unwrap();
    let unchanged = || {
        assert_eq!(table.version().unwrap(), version);
        assert_eq!(listed(table), entries(table, 0..16, 1));
        assert_eq!(out(&dataplane, 15), Verdict::Forward { port: 1 });
    };
    let said = |result: Result<TableVersion>| result.unwrap_err().to_string();
    let full = said(table.replace(&entries(table, 0..17, 2)));
    assert!(full.contains("it is full: its size is 16"), "{full}");
    unchanged();
    let twice = [entry(table, 4, 2), entry(table, 5, 2), entry(table, 4, 3)];
    let twice = said(table.replace(&twice));
    assert!(twice.contains("two of the entries match the same: hdr.pair.group=4"), "{twice}");
    unchanged();
    let mut wrong = entry(table, 1, 2);
    wrong.action.arguments.pop();
    assert!(said(table.replace(&[entry(table, 0, 2), wrong])).contains("takes 2 arguments"));
    unchanged();
    assert!(
        table.write(&entry(table, 16, 2), Write::Add).unwrap_err().to_string().contains("full")
    );
    unchanged();
    // A fill that is dropped.
    drop(table.fill(&entries(table, 0..2, 2)).unwrap());
    unchanged();

    let late = table.fill(&entries(table, 0..2, 3)).unwrap().expecting(Some(version));
    let newer = table.replace(&entries(table, 0..2, 2)).unwrap();
    let error = said(late.exchange());
    let both = format!("version {newer}, not {version}");
    assert!(error.contains(&both), "{error}");
    assert_eq!(listed(table), entries(table, 0..2, 2));
    let filled = table.fill(&entries(table, 0..2, 3)).unwrap().expecting(Some(newer));
    filled.exchange().unwrap();
    assert_eq!(listed(table), entries(table, 0..2, 3));
}

/// A bpffs of the test's own.
struct Pins(tempfile::TempDir);

impl Pins {
    fn new() -> Pins {
        let folder = tempfile::tempdir().unwrap();
        let none = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("bpf"), folder.path(), Some("bpf"), none, None::<&str>).unwrap();
        Pins(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn of_roles(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.path().join("g/entries/t_roles")).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn another_process_finds_the_entries_whenever_the_last_one_died() {
    let pins = Pins::new();
    let directory = pins.path().join("g");
    let dataplane = load();
    let table = dataplane.table("roles").unwrap();
    table.replace(&entries(table, 0..2, 1)).unwrap();
    dataplane.pin(&directory).unwrap();
    let pinned = table.replace(&entries(table, 0..3, 2)).unwrap();
    assert_eq!(pins.of_roles(), [pinned.to_string()], "one pin, of the map that packets use");

    let other = Dataplane::open_pinned(&directory, fixture::manifest()).unwrap();
    let of_other = other.table("roles").unwrap();
    assert_eq!(of_other.version().unwrap(), pinned);
    assert_eq!(listed(of_other), entries(table, 0..3, 2));
    let newer = of_other.replace(&entries(table, 1..4, 3)).unwrap();
    assert_eq!(pins.of_roles(), [newer.to_string()]);
    assert_eq!(out(&dataplane, 3), Verdict::Forward { port: 1 }, "packets go by the new entries");

    // It died before an exchange, with the next map pinned already; or after it, with the last map
    // still pinned. Both look like this: a pin that is not of the map in the array.
    let stray = dataplane.table("roles").unwrap().fill(&[]).unwrap();
    drop(stray);
    let unused = load();
    let map = unused.map("t_plain").unwrap();
    let path = directory.join("entries/t_roles/4000000000");
    let mut map = libbpf_rs::MapHandle::try_from(map).unwrap();
    map.pin(&path).unwrap();
    assert_eq!(pins.of_roles().len(), 2);
    let third = Dataplane::open_pinned(&directory, fixture::manifest()).unwrap();
    assert_eq!(third.table("roles").unwrap().version().unwrap(), newer);
    assert_eq!(pins.of_roles(), [newer.to_string()], "the other one is gone");
    std::fs::remove_file(directory.join("entries/t_roles").join(newer.to_string())).unwrap();
    let error = Dataplane::open_pinned(&directory, fixture::manifest()).err().unwrap();
    assert!(error.to_string().contains("open pin"), "{error}");
}

/// Runs frames of a table on two CPUs while `change` is called, over and over, until `enough` says
/// so of the calls and the torn pairs, and `least_read` pairs were read. Pairs read, and those of
/// them that were torn.
fn under_packets(
    dataplane: &Dataplane,
    kind: u16,
    mut change: impl FnMut(u64),
    enough: impl Fn(u64, u64) -> bool,
    least_read: u64,
) -> (u64, u64) {
    let pairs = dataplane.register("pairs").unwrap();
    let at = if kind == ROLES { 0 } else { 2 };
    let count = |index| dataplane.read_register(pairs, index).unwrap() as u64;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                let mut set = nix::sched::CpuSet::new();
                set.set(cpu).unwrap();
                // A machine with one CPU runs both there.
                let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
                let frame = frame(kind, 1, CALLS);
                while !stop.load(Ordering::Relaxed) {
                    dataplane.time(&frame, 1, RUNS).unwrap();
                }
            });
        }
        let mut calls = 0;
        while !enough(calls, count(at + 1)) || count(at) < least_read {
            calls += 1;
            change(calls);
        }
        stop.store(true, Ordering::Relaxed);
    });
    (count(at), count(at + 1))
}

#[test]
fn no_packet_sees_half_of_an_exchange() {
    const EXCHANGES: u64 = 1_000;
    let dataplane = load();
    let table = dataplane.table("roles").unwrap();
    table.replace(&entries(table, 0..2, 0)).unwrap();
    let change = |number| {
        // Whole replacements and single entries by turns.
        if number % 4 == 0 {
            table.write(&entry(table, 1, number), Write::Modify).unwrap();
        } else {
            table.replace(&entries(table, 0..2, number)).unwrap();
        }
    };
    let enough = |calls, _| calls >= EXCHANGES;
    let (read, torn) = under_packets(&dataplane, ROLES, change, enough, LEAST_READ);
    println!("{EXCHANGES} exchanges, {read} pairs read, {torn} torn");
    assert_eq!(torn, 0, "of {read}");
}

/// The reason for all this: an entry of a hash map is written again while a packet reads it.
#[test]
fn a_plain_table_shows_half_of_a_change() {
    const MOST_CHANGES: u64 = 20_000_000;
    let dataplane = load();
    let table = dataplane.table("plain").unwrap();
    table.write(&entry(table, 1, 0), Write::Add).unwrap();
    let of_number = entry(table, 1, 0);
    let change = |number| {
        let mut entry = of_number.clone();
        entry.action.arguments = vec![u128::from(number); 2];
        table.write(&entry, Write::Modify).unwrap();
    };
    let enough = |calls, torn| torn > 0 || calls == MOST_CHANGES;
    let (read, torn) = under_packets(&dataplane, PLAIN, change, enough, 0);
    println!("{read} pairs read, {torn} torn");
    assert!(torn > 0, "none of {read} pairs was torn: the other test can see nothing");
}

/// An element of a plain table that nobody can find any more is written again only after a wait:
/// then no packet reads it.
#[test]
fn a_wait_ends_after_the_programs_that_run() {
    const CHANGES: u64 = 500;
    let dataplane = load();
    let table = dataplane.table("plain").unwrap();
    table.write(&entry(table, 1, 0), Write::Add).unwrap();
    let change = |number| {
        table.write(&entry(table, 1, number), Write::Modify).unwrap();
        wait_for_packets().unwrap();
    };
    let enough = |calls, _| calls >= CHANGES;
    let (read, torn) = under_packets(&dataplane, PLAIN, change, enough, LEAST_READ);
    println!("{CHANGES} changes, {read} pairs read, {torn} torn");
    assert_eq!(torn, 0, "of {read}");
}

/// Not a check: what a lookup costs. `cargo test -p dataplane --test exchange -- --ignored
/// --nocapture`.
#[test]
#[ignore = "measures"]
fn what_a_lookup_costs() {
    const ROUNDS: usize = 41;
    let dataplane = load();
    for name in ["roles", "plain"] {
        let table = dataplane.table(name).unwrap();
        for entry in entries(table, 0..2, 1) {
            table.write(&entry, Write::Set).unwrap();
        }
    }
    let mut times = [vec![], vec![]];
    for _ in 0..ROUNDS {
        for (kind, times) in [ROLES, PLAIN].into_iter().zip(&mut times) {
            times.push(dataplane.time(&frame(kind, 1, 0), 1, 1_000_000).unwrap());
        }
    }
    for (name, times) in ["exchanged", "plain"].iter().zip(&mut times) {
        times.sort_unstable();
        println!(
            "{name}: {} ns a packet (median; {} to {})",
            times[ROUNDS / 2],
            times[ROUNDS / 10],
            times[ROUNDS * 9 / 10]
        );
    }
    let start = std::time::Instant::now();
    let table = dataplane.table("roles").unwrap();
    for number in 0..200 {
        table.replace(&entries(table, 0..2, number)).unwrap();
    }
    println!("an exchange: {:?}", start.elapsed() / 200);
}
