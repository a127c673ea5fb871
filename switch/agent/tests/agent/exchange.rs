//! Tables whose entries are exchanged as one, and hold for one incarnation of the switch.

use crate::bench::Bench;
use crate::fixture;
use dataplane::{ActionSpec, Dataplane, EntrySpec, KeySpec, TableVersion};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use switch_agent::client;
use switch_agent::control::{Reply, Request, TableListing};
use switch_agent::replace::TableContent;

/// Frames in one system call.
const BATCH: u32 = 64;

fn pair(group: u32, number: u64) -> EntrySpec {
    EntrySpec {
        keys: vec![KeySpec { name: None, text: group.to_string() }],
        priority: None,
        action: ActionSpec {
            name: "pair".into(),
            arguments: vec![(None, number.to_string()), (None, number.to_string())],
        },
    }
}

fn content(table: &str, number: u64) -> TableContent {
    let entries = (0..3).map(|group| pair(group, number)).collect();
    TableContent { table: table.into(), entries, version: None }
}

fn replace(
    bench: &Bench,
    tables: Vec<TableContent>,
    incarnation: Option<u32>,
) -> switch_agent::Result<TableVersion> {
    let reply =
        client::ask(&bench.run_directory(), &Request::TableReplace { tables, incarnation })?;
    match reply {
        Reply::Replaced { tables, .. } => Ok(tables[0].version),
        other => panic!("{other:?}"),
    }
}

fn refused(bench: &Bench, tables: Vec<TableContent>, incarnation: Option<u32>) -> String {
    replace(bench, tables, incarnation).unwrap_err().to_string()
}

fn listing(bench: &Bench, table: &str) -> TableListing {
    match bench.ask(Request::TableList { table: table.into() }) {
        Reply::Table(listing) => listing,
        other => panic!("{other:?}"),
    }
}

fn roles(bench: &Bench) -> TableListing {
    listing(bench, "roles")
}

/// The first argument of each entry.
fn numbers(bench: &Bench) -> Vec<u64> {
    let entries = roles(bench).entries;
    let number = |text: &str| dataplane::value::parse_value("first", text, 64).unwrap();
    entries.iter().map(|entry| number(&entry.arguments[0].1) as u64).collect()
}

/// The program and maps of a running switch.
fn of_running(bench: &Bench, generation: u32) -> Dataplane {
    let pins = bench.run_directory().path().join(format!("bpf/g{generation}"));
    Dataplane::open_pinned(&pins, fixture::manifest()).unwrap()
}

/// Frames of group 1, as they come in on the left port: pairs read, and those that were torn.
fn count(dataplane: &Dataplane) -> (u64, u64) {
    let register = dataplane.register("pairs").unwrap();
    let at = |index| dataplane.read_register(register, index).unwrap() as u64;
    (at(0), at(1))
}

fn send(dataplane: &Dataplane) {
    let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x10, 0x05];
    frame.extend(1u32.to_be_bytes());
    // Calls between the reads of a pair's halves.
    frame.extend(20u16.to_be_bytes());
    frame.resize(64, 0);
    let ifindex = nix::net::if_::if_nametoindex("pl").unwrap();
    dataplane.run_live("sp_main", &frame, ifindex, BATCH).unwrap();
}

#[test]
fn no_packet_sees_half_of_a_replacement() {
    const EXCHANGES: u64 = 2_000;
    let bench = Bench::new(&[]);
    let incarnation = Some(bench.start(false).incarnation);
    replace(&bench, vec![content("roles", 0)], incarnation).unwrap();
    let dataplane = of_running(&bench, 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (switch, dataplane, stop) = (bench.namespace("s"), &dataplane, &stop);
            scope.spawn(move || {
                let flood = || {
                    let mut set = nix::sched::CpuSet::new();
                    set.set(cpu).unwrap();
                    // A machine with one CPU runs both there.
                    let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
                    while !stop.load(Ordering::Relaxed) {
                        send(dataplane);
                    }
                };
                switch.inside(flood).unwrap();
            });
        }
        for number in 1..=EXCHANGES {
            replace(&bench, vec![content("roles", number)], incarnation).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (read, torn) = count(&dataplane);
    println!("{EXCHANGES} exchanges, {read} pairs read, {torn} torn");
    assert!(read > EXCHANGES, "{read} pairs read");
    assert_eq!(torn, 0, "of {read}");
    assert_eq!(numbers(&bench), [EXCHANGES; 3]);
}

#[test]
fn a_replacement_is_whole_or_changes_nothing() {
    let bench = Bench::new(&[]);
    let own = bench.start(false).incarnation;
    let version = replace(&bench, vec![content("roles", 1)], Some(own)).unwrap();
    assert_eq!(roles(&bench).version, Some(version));

    let mut twice = content("roles", 2);
    twice.entries.push(pair(0, 3));
    let mut wrong = content("roles", 2);
    wrong.entries[2].action.arguments.pop();
    let mut full = content("roles", 2);
    full.entries = (0..17).map(|group| pair(group, 2)).collect();
    let mut stale = content("roles", 2);
    stale.version = Some(TableVersion(version.0 + 1_000_000));
    let both = format!("version {version}, not {}", version.0 + 1_000_000);
    let other = own - 1;
    for (tables, incarnation, part) in [
        (vec![twice], Some(own), "two of the entries match the same"),
        (vec![wrong], Some(own), "argument second is missing"),
        (vec![full], Some(own), "it is full: its size is 16"),
        (vec![stale], Some(own), &both[..]),
        // The first table fits.
        (vec![content("roles", 2), content("plain", 2)], Some(own), "stateplane_exchange"),
        (vec![content("roles", 2), content("ingress.roles", 2)], Some(own), "given twice"),
        (vec![content("roles", 2)], None, "say which they are for"),
        (vec![content("roles", 2)], Some(other), "nothing is changed"),
    ] {
        let said = refused(&bench, tables, incarnation);
        assert!(said.contains(part), "{said}");
        assert_eq!((numbers(&bench), roles(&bench).version), (vec![1; 3], Some(version)), "{said}");
    }
    let said = refused(&bench, vec![content("roles", 2)], Some(other));
    let names = |number: u32| said.contains(&format!("incarnation {number:#010x}"));
    assert!(names(own) && names(other), "{said}");

    let add = Request::TableAdd {
        table: "roles".into(),
        entry: pair(9, 9),
        replace: false,
        incarnation: None,
    };
    let said = client::ask(&bench.run_directory(), &add).unwrap_err().to_string();
    assert!(said.contains("say which they are for"), "{said}");
    let add = |incarnation| {
        let incarnation = Some(incarnation);
        let (table, entry) = ("roles".into(), pair(9, 1));
        let add = Request::TableAdd { table, entry, replace: false, incarnation };
        client::ask(&bench.run_directory(), &add)
    };
    let said = add(other).unwrap_err().to_string();
    assert!(names(own) && names(other) && said.contains("nothing is changed"), "{said}");
    add(own).unwrap();
    assert_eq!(numbers(&bench), [1; 4]);
    let keys = pair(1, 0).keys;
    bench.ask(Request::TableDelete { table: "roles".into(), keys });
    assert_eq!(numbers(&bench).len(), 3, "taking a role away needs no incarnation");

    let mut expecting = content("roles", 4);
    expecting.version = roles(&bench).version;
    replace(&bench, vec![expecting], Some(own)).unwrap();
    assert_eq!(numbers(&bench), [4; 3]);
    let Reply::Tables { tables } = bench.ask(Request::Tables) else { panic!() };
    let listed = tables.iter().find(|table| table.name == "ingress.roles").unwrap();
    assert!(listed.per_incarnation && listed.version == roles(&bench).version);
}

/// The switch's next start finds another program.
fn another_program(bench: &Bench) {
    let mut manifest = fixture::manifest();
    manifest.program = "second.p4".into();
    std::fs::write(bench.folder.path().join("fixture.json"), manifest.to_json()).unwrap();
}

#[test]
fn entries_hold_for_the_life_of_the_maps() {
    let bench = Bench::new(&[]);
    let first = bench.start(false);
    let version = replace(&bench, vec![content("roles", 1)], Some(first.incarnation)).unwrap();
    let reads = |dataplane: &Dataplane| {
        let before = count(dataplane).0;
        bench.within("s", || send(dataplane));
        count(dataplane).0 - before
    };

    // A new agent takes living maps over, with the entries in them.
    bench.signal(Signal::SIGKILL);
    let second = bench.start(false);
    assert_eq!((&second.how[..], second.incarnation), ("took over", first.incarnation));
    assert_eq!((numbers(&bench), roles(&bench).version), (vec![1; 3], Some(version)));
    assert_eq!(reads(&of_running(&bench, 1)), u64::from(BATCH));
    replace(&bench, vec![content("roles", 2)], Some(first.incarnation)).unwrap();

    // Another program has maps of its own: nothing comes along.
    bench.signal(Signal::SIGKILL);
    another_program(&bench);
    let third = bench.start(false);
    assert_eq!(third.how, "replaced");
    assert_eq!(numbers(&bench), [0u64; 0]);
    assert_eq!(reads(&of_running(&bench, 2)), 0, "packets miss");
    let said = refused(&bench, vec![content("roles", 3)], Some(first.incarnation));
    assert!(said.contains("the switch has lost the state of the other incarnation"), "{said}");
    assert_eq!(numbers(&bench), [0u64; 0]);
    replace(&bench, vec![content("roles", 3)], Some(third.incarnation)).unwrap();
    assert_eq!(reads(&of_running(&bench, 2)), u64::from(BATCH));

    // Nor after `--fresh`; and a configuration cannot bring any.
    bench.signal(Signal::SIGKILL);
    assert!(bench.start(true).incarnation > third.incarnation);
    assert_eq!(numbers(&bench), [0u64; 0]);
    bench.signal(Signal::SIGKILL);
    let text = std::fs::read_to_string(bench.config()).unwrap();
    let role = "[[table]]\nname = \"roles\"\n[[table.entry]]\nkey = { \"hdr.pair.group\" = 1 }\naction = \"pair\"\narguments = { first = 1, second = 1 }\n";
    std::fs::write(bench.config(), text + role).unwrap();
    let output = bench.spawn(false).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("table[1].entry: table ingress.roles: its entries hold for one"),
        "{said}"
    );
}

/// Tables whose entries hold for any incarnation follow the rule of all tables: each start brings
/// what the configuration has, and what was added at run time stays.
#[test]
fn exchanged_entries_of_the_configuration_and_of_run_time() {
    let bench = Bench::new(&[]);
    let without = std::fs::read_to_string(bench.config()).unwrap();
    let configured = "[[table]]\nname = \"others\"\n[[table.entry]]\nkey = { \"hdr.pair.group\" = 1 }\naction = \"pair\"\narguments = { first = 5, second = 5 }\n";
    std::fs::write(bench.config(), without.clone() + configured).unwrap();
    let own = bench.start(false).incarnation;
    let others = || {
        let listing = listing(&bench, "others");
        let entry = |entry: &dataplane::ListedEntry| {
            (entry.keys[0].1.clone(), entry.arguments[0].1.clone())
        };
        (listing.entries.iter().map(entry).collect::<Vec<_>>(), listing.version)
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    };
    assert_eq!(others().0, pairs(&[("1", "0x5")]));

    // Two tables at once, in the order given.
    let tables = vec![content("others", 1), content("roles", 2)];
    let replace = Request::TableReplace { tables, incarnation: Some(own) };
    let Reply::Replaced { incarnation, tables } = bench.ask(replace) else { panic!() };
    let names: Vec<&str> = tables.iter().map(|it| &it.table[..]).collect();
    assert_eq!((incarnation, &names[..]), (own, &["ingress.others", "ingress.roles"][..]));
    assert_eq!(
        others(),
        (pairs(&[("0", "0x1"), ("1", "0x1"), ("2", "0x1")]), Some(tables[0].version))
    );
    assert_eq!((numbers(&bench), roles(&bench).version), (vec![2; 3], Some(tables[1].version)));

    let restart = || {
        bench.signal(Signal::SIGKILL);
        bench.start(false).how
    };
    assert_eq!(restart(), "took over");
    let (found, version) = others();
    assert_eq!(found, pairs(&[("0", "0x1"), ("1", "0x5"), ("2", "0x1")]), "as configured again");
    assert_eq!(restart(), "took over");
    assert_eq!(others(), (found, version), "nothing to change: nothing is exchanged");
    std::fs::write(bench.config(), without).unwrap();
    assert_eq!(restart(), "took over");
    assert_eq!(others().0, pairs(&[("0", "0x1"), ("2", "0x1")]));
    assert_eq!(numbers(&bench), [2; 3]);

    // Into another program's maps goes what was added at run time, but for one incarnation.
    another_program(&bench);
    assert_eq!(restart(), "replaced");
    assert_eq!(others().0, pairs(&[("0", "0x1"), ("2", "0x1")]));
    assert_eq!(numbers(&bench), [0u64; 0]);
}
