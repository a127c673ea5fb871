//! The fixture object in the kernel: every kind of table is filled, and frames show what the data
//! path finds. Needs root.

mod fixture;

use dataplane::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A directory that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("sp-dataplane-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load() -> Dataplane {
    load_with(fixture::manifest())
}

fn load_with(manifest: manifest::Manifest) -> Dataplane {
    let scratch = Scratch::new();
    let path = fixture::build(&scratch.0, &[]);
    let mut object = Object::open(&path, manifest).unwrap();
    object.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true }).unwrap();
    object.load().unwrap()
}

fn spec(
    keys: &[(&str, &str)],
    priority: Option<u32>,
    action: &str,
    arguments: &[&str],
) -> EntrySpec {
    EntrySpec {
        keys: keys
            .iter()
            .map(|(name, text)| KeySpec { name: Some((*name).into()), text: (*text).into() })
            .collect(),
        priority,
        action: ActionSpec {
            name: action.into(),
            arguments: arguments.iter().map(|text| (None, (*text).to_owned())).collect(),
        },
    }
}

fn add(dataplane: &Dataplane, table: &str, spec: EntrySpec) -> Result<()> {
    let table = dataplane.table(table)?;
    table.write(&table.resolve(&spec)?, Write::Add)
}

fn delete(dataplane: &Dataplane, table: &str, keys: &[(&str, &str)]) -> Result<()> {
    let table = dataplane.table(table)?;
    table.delete(&table.resolve_keys(&spec(keys, None, "drop", &[]).keys)?)
}

fn frame(kind: u16, address: [u8; 4], port: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0x11, 0x22, 0x33, 0x44, 0x55, 2, 0, 0, 0, 0, 1];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(address);
    bytes.extend(port.to_be_bytes());
    bytes.resize(64, 0xaa);
    bytes
}

/// The port that a frame goes out of; none: dropped.
fn out(dataplane: &Dataplane, frame: &[u8], port: u32) -> Option<u32> {
    match dataplane.run(frame, port, 0).unwrap().verdict {
        Verdict::Forward { port } => Some(port),
        Verdict::Drop => None,
        Verdict::ToHost => Some(999),
    }
}

#[test]
fn exact_tables() {
    let dataplane = load();
    let wire = frame(0x0800, [0; 4], 0);
    assert_eq!(out(&dataplane, &wire, 7), Some(8), "initial entries of the manifest");
    let mac = frame(0x1001, [0; 4], 0);
    let keys = [("hdr.ethernet.dst_addr", "00:11:22:33:44:55"), ("ingress_port", "3")];
    assert_eq!(out(&dataplane, &mac, 3), None);
    add(&dataplane, "exact", spec(&keys, None, "forward", &["5"])).unwrap();
    assert_eq!(out(&dataplane, &mac, 3), Some(5));
    assert_eq!(out(&dataplane, &mac, 4), None);
    let again = add(&dataplane, "exact", spec(&keys, None, "forward", &["6"])).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");

    let table = dataplane.table("ingress.exact").unwrap();
    table
        .write(&table.resolve(&spec(&keys, None, "forward", &["6"])).unwrap(), Write::Modify)
        .unwrap();
    assert_eq!(out(&dataplane, &mac, 3), Some(6));
    let listed = table.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].counter, Some((2, 128)), "a modified entry counts on");
    let described = table.describe(&listed[0]);
    assert_eq!(described.keys[0], ("hdr.ethernet.dst_addr".into(), "00:11:22:33:44:55".into()));
    assert_eq!(
        (described.action.as_str(), described.arguments[0].1.as_str()),
        ("ingress.forward", "6")
    );
    assert_eq!(table.resolve(&described.to_spec()).unwrap(), listed[0].entry);

    for port in 10..13 {
        let keys = [("dst_addr", "1"), ("ingress_port", &port.to_string()[..])];
        add(&dataplane, "exact", spec(&keys, None, "drop", &[])).unwrap();
    }
    let keys_of_fifth = [("dst_addr", "1"), ("ingress_port", "20")];
    let full = add(&dataplane, "exact", spec(&keys_of_fifth, None, "drop", &[])).unwrap_err();
    assert!(full.to_string().contains("full"), "{full}");
    delete(&dataplane, "exact", &keys).unwrap();
    assert_eq!(out(&dataplane, &mac, 3), None);
    assert!(delete(&dataplane, "exact", &keys).unwrap_err().to_string().contains("no such entry"));
}

#[test]
fn const_entries_in_a_map_are_there_for_good() {
    let mut manifest = fixture::manifest();
    manifest.tables[0].const_entries = std::mem::take(&mut manifest.tables[0].initial_entries);
    let dataplane = load_with(manifest);
    let some = frame(0x1234, [1, 2, 3, 4], 5);
    assert_eq!(out(&dataplane, &some, 7), Some(8));

    let port = "standard_metadata.ingress_port";
    let changes = [
        add(&dataplane, "wire", spec(&[(port, "9")], None, "forward", &["8"])),
        delete(&dataplane, "wire", &[(port, "7")]),
    ];
    for change in changes {
        assert!(change.unwrap_err().to_string().contains("its entries are const"));
    }
    assert_eq!(out(&dataplane, &some, 7), Some(8));
    let listed = dataplane.table("wire").unwrap().list().unwrap();
    assert!(listed.len() == 1 && listed[0].constant);
}

#[test]
fn const_entries_with_ranges_are_listed() {
    let mut manifest = fixture::manifest();
    let table = &mut manifest.tables[0];
    table.kind = manifest::TableKind::Const;
    let range = manifest::KeyMatch::Range { low: "3".into(), high: "7".into() };
    table.initial_entries[0].matches = vec![range];
    table.const_entries = std::mem::take(&mut table.initial_entries);
    let dataplane = load_with(manifest);
    let table = dataplane.table("wire").unwrap();
    let listed = table.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(table.describe(&listed[0]).keys[0].1, "3..7");
}

#[test]
fn longest_prefix_tables() {
    let dataplane = load();
    let to = |address| out(&dataplane, &frame(0x1002, address, 5), 1);
    for (prefix, vrf, port) in [
        ("10.0.0.0/8", "5", "1"),
        ("10.1.0.0/16", "5", "2"),
        ("10.1.2.3", "5", "3"),
        ("0.0.0.0/0", "6", "4"),
    ] {
        add(
            &dataplane,
            "lpm",
            spec(&[("dst_addr", prefix), ("vrf", vrf)], None, "forward", &[port]),
        )
        .unwrap();
    }
    assert_eq!(to([10, 9, 9, 9]), Some(1));
    assert_eq!(to([10, 1, 9, 9]), Some(2));
    assert_eq!(to([10, 1, 2, 3]), Some(3));
    assert_eq!(to([11, 0, 0, 0]), None);
    assert_eq!(
        out(&dataplane, &frame(0x1002, [11, 0, 0, 0], 6), 1),
        Some(4),
        "the default route of the other VRF"
    );
    let table = dataplane.table("lpm").unwrap();
    let texts: Vec<String> =
        table.list().unwrap().iter().map(|entry| table.describe(entry).keys[0].1.clone()).collect();
    assert_eq!(texts, ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32"]);
    delete(&dataplane, "lpm", &[("dst_addr", "10.1.0.0/16"), ("vrf", "5")]).unwrap();
    assert_eq!(to([10, 1, 9, 9]), Some(1));
    let error =
        add(&dataplane, "lpm", spec(&[("dst_addr", "1&&&5"), ("vrf", "1")], None, "drop", &[]))
            .unwrap_err();
    assert!(error.to_string().contains("prefix"), "{error}");
}

#[test]
fn ternary_priorities_whatever_the_order_of_insertion() {
    // Every order of adding these must give the same answers: the masks' order follows insertion,
    // the priorities must not.
    let entries = [
        (("10.0.0.0/8", "*"), 10, "1"),
        (("10.1.0.0/16", "53"), 30, "2"),
        (("*", "53"), 20, "3"),
        (("*", "*"), 1, "4"),
    ];
    let expect = |dataplane: &Dataplane| {
        let to = |address, port| out(dataplane, &frame(0x1003, address, port), 1);
        assert_eq!(to([10, 9, 9, 9], 80), Some(1));
        assert_eq!(to([10, 1, 9, 9], 53), Some(2));
        assert_eq!(to([10, 9, 9, 9], 53), Some(3));
        assert_eq!(to([11, 1, 1, 1], 80), Some(4));
    };
    let dataplane = load();
    let key =
        |(address, port): (&'static str, &'static str)| [("src_addr", address), ("dst_port", port)];
    for rotation in 0..24 {
        // The permutation with this number in the factorial number system.
        let (mut left, mut order, mut number): (Vec<usize>, Vec<usize>, usize) =
            ((0..4).collect(), vec![], rotation);
        for size in (1..=4).rev() {
            order.push(left.remove(number % size));
            number /= size;
        }
        for index in &order {
            let (keys, priority, port) = entries[*index];
            add(&dataplane, "ternary", spec(&key(keys), Some(priority), "forward", &[port]))
                .unwrap();
        }
        expect(&dataplane);
        let table = dataplane.table("ternary").unwrap();
        let listed = table.list().unwrap();
        let priorities: Vec<u32> = listed.iter().map(|entry| entry.entry.priority).collect();
        assert_eq!(priorities, [30, 20, 10, 1]);
        assert_eq!(table.describe(&listed[0]).keys[0].1, "10.1.0.0/16");
        // Taking one away leaves the others as they are.
        delete(&dataplane, "ternary", &key(entries[1].0)).unwrap();
        assert_eq!(out(&dataplane, &frame(0x1003, [10, 1, 9, 9], 53), 1), Some(3));
        for index in [0, 2, 3] {
            delete(&dataplane, "ternary", &key(entries[index].0)).unwrap();
        }
        assert_eq!(out(&dataplane, &frame(0x1003, [10, 1, 9, 9], 53), 1), None);
        assert!(table.list().unwrap().is_empty());
    }
}

#[test]
fn ternary_masks_run_out_and_come_back() {
    let dataplane = load();
    for length in 1..=8 {
        let text = format!("128.0.0.0/{length}");
        add(&dataplane, "ternary", spec(&[("src_addr", &text)], Some(length), "forward", &["1"]))
            .unwrap();
    }
    let ninth = spec(&[("dst_port", "9")], Some(100), "forward", &["9"]);
    let error = add(&dataplane, "ternary", ninth.clone()).unwrap_err();
    assert!(error.to_string().contains("masks"), "{error}");
    assert_eq!(out(&dataplane, &frame(0x1003, [1, 1, 1, 1], 9), 1), None);
    delete(&dataplane, "ternary", &[("src_addr", "128.0.0.0/4")]).unwrap();
    add(&dataplane, "ternary", ninth).unwrap();
    assert_eq!(out(&dataplane, &frame(0x1003, [1, 1, 1, 1], 9), 1), Some(9));
    assert_eq!(out(&dataplane, &frame(0x1003, [128, 1, 1, 1], 9), 1), Some(9));
    assert_eq!(out(&dataplane, &frame(0x1003, [192, 1, 1, 1], 8), 1), Some(1));
}

#[test]
fn entries_never_vanish_while_others_come_and_go() {
    let dataplane = load();
    add(&dataplane, "ternary", spec(&[("src_addr", "10.0.0.0/8")], Some(5), "forward", &["1"]))
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut runs = 0u32;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(
                    out(&dataplane, &frame(0x1003, [10, 0, 0, 1], 7), 1),
                    Some(1),
                    "after {runs} runs"
                );
                runs += 1;
            }
            runs
        });
        for round in 0..200u32 {
            let ports: Vec<String> = (0..6)
                .map(|bit| format!("{:#x}&&&{:#x}", 1 << (bit + 8), 1 << (bit + 8)))
                .collect();
            for (index, port) in ports.iter().enumerate() {
                let priority = (round * 7 + index as u32 * 3) % 11;
                add(
                    &dataplane,
                    "ternary",
                    spec(&[("dst_port", port)], Some(priority), "drop", &[]),
                )
                .unwrap();
            }
            for port in &ports {
                delete(&dataplane, "ternary", &[("dst_port", port)]).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn defaults_registers_counters_and_growth() {
    let dataplane = load();
    let table = dataplane.table("keyless").unwrap();
    let call =
        ActionSpec { name: "forward".into(), arguments: vec![(Some("port".into()), "300".into())] };
    table.set_default(&table.resolve_action(&call).unwrap()).unwrap();
    let sent = frame(0x1004, [0; 4], 0);
    let outcome = dataplane.run(&sent, 2, 0).unwrap();
    assert_eq!(outcome.verdict, Verdict::Forward { port: 300 });
    assert_eq!(outcome.frame.len(), sent.len() + 64);
    assert_eq!((outcome.frame[0], &outcome.frame[64..]), (300u32 as u8, &sent[..]));
    assert!(
        table
            .write(
                &Entry {
                    matches: vec![],
                    priority: 0,
                    action: ActionCall { action: 0, arguments: vec![] }
                },
                Write::Add
            )
            .is_err()
    );

    let seen = dataplane.register("seen").unwrap();
    assert_eq!(dataplane.read_register(seen, 0).unwrap(), 1);
    dataplane.write_register(seen, 3, 77).unwrap();
    assert_eq!(dataplane.read_register(seen, 3).unwrap(), 77);
    assert!(dataplane.read_register(seen, 4).is_err());
    let ports = dataplane.counter("ingress.ports").unwrap();
    assert_eq!(dataplane.read_counter(ports, 2).unwrap(), CounterValue { packets: 1, bytes: 64 });
    assert_eq!(dataplane.port_stats(300).unwrap().tx_packets, 1);
    let big = vec![0x55; 9000];
    let too_big = dataplane.run(&big, 7, 0).unwrap();
    assert_eq!((too_big.verdict, too_big.frame), (Verdict::Forward { port: 8 }, big));
}

#[test]
fn frames_shorter_than_ethernet_run() {
    let dataplane = load();
    // The fixture does not skip the padding, and reads type 0 there: the wire table.
    for length in 0..14 {
        let sent: Vec<u8> = (0..length).collect();
        let outcome = dataplane.run(&sent, 7, 0).unwrap();
        assert_eq!((outcome.verdict, outcome.frame), (Verdict::Forward { port: 8 }, sent));
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let dataplane = load();
    for (table, entry, part) in [
        ("exact", spec(&[("dst_addr", "1")], None, "drop", &[]), "ingress_port is missing"),
        ("exact", spec(&[("dst_addr", "1"), ("ingress_port", "512")], None, "drop", &[]), "9 bits"),
        ("exact", spec(&[("nope", "1")], None, "drop", &[]), "no key \"nope\""),
        ("wire", spec(&[("ingress_port", "1")], None, "forward", &[]), "argument port is missing"),
        ("wire", spec(&[("ingress_port", "1")], None, "forward", &["1", "2"]), "takes 1 arguments"),
        ("wire", spec(&[("ingress_port", "1")], None, "forward", &["512"]), "9 bits"),
        ("wire", spec(&[("ingress_port", "1")], None, "teleport", &[]), "no action"),
        ("wire", spec(&[("ingress_port", "1")], Some(3), "drop", &[]), "no priorities"),
        ("wire", spec(&[("ingress_port", "1/3")], None, "drop", &[]), "exactly"),
        ("nope", spec(&[], None, "drop", &[]), "no table"),
    ] {
        let error = add(&dataplane, table, entry).unwrap_err().to_string();
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn says_what_is_wrong_with_an_object() {
    let scratch = Scratch::new();
    let not_an_object = scratch.0.join("x.o");
    std::fs::write(&not_an_object, "hello").unwrap();
    let error = Object::open(&not_an_object, fixture::manifest()).err().unwrap().to_string();
    assert!(error.contains("x.o") && error.contains("stateplane compile"), "{error}");
    let error =
        Object::open(Path::new("/nonexistent.o"), fixture::manifest()).err().unwrap().to_string();
    assert!(error.contains("/nonexistent.o"), "{error}");
}

#[test]
fn a_rejected_program_comes_with_the_verifiers_log() {
    let scratch = Scratch::new();
    let source = scratch.0.join("bad.c");
    std::fs::write(
        &source,
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nSEC(\"xdp\") int sp_main(struct xdp_md *c) {\n\
         return *(int *)(long)c->data;\n}\nchar l[] SEC(\"license\") = \"GPL\";\n",
    )
    .unwrap();
    let object = scratch.0.join("bad.o");
    let status = std::process::Command::new("clang")
        .args([
            "-target",
            "bpf",
            "-O2",
            "-g",
            "-I/usr/include/x86_64-linux-gnu",
            "-I/usr/include/aarch64-linux-gnu",
            "-c",
        ])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status()
        .unwrap();
    assert!(status.success());
    let error = Object::open(&object, fixture::manifest()).unwrap().load().err().unwrap();
    let log = error.verifier_log().expect("a verifier log");
    let lines = verifier_source_lines(log);
    assert_eq!(lines.last().map(|line| line.1), Some(4), "{log}");
    assert!(error.to_string().contains("program sp_main"), "{error}");
}

#[test]
fn generated_frames_run_live_and_pins_bring_everything_back() {
    let (built, scratch) = (Scratch::new(), Scratch::new());
    let path = fixture::build(&built.0, &[]);
    // A namespace and a bpffs that end with this thread.
    std::thread::spawn(move || {
        use nix::mount::{MsFlags, mount};
        netns::unshare_thread().unwrap();
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .unwrap();
        mount(Some("bpf"), &scratch.0, Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
        let links =
            ["link add name near type veth peer name far", "link set near up", "link set far up"];
        netns::ip_batch(&links).unwrap();
        let ifindex = nix::net::if_::if_nametoindex("near").unwrap();
        let mut object = Object::open(&path, fixture::manifest()).unwrap();
        object.set(Settings::default()).unwrap();
        let dataplane = object.load().unwrap();
        dataplane.set_port(1, ifindex).unwrap();
        let link = dataplane.attach("sp_main", ifindex, AttachMode::Native).unwrap();
        dataplane.pin(&scratch.0.join("g1")).unwrap();
        link.pin(&scratch.0.join("link")).unwrap();
        let ready = dataplane.keep_ready("sp_main").unwrap();
        assert_eq!(
            nix::net::if_::if_nametoindex("near"),
            Ok(ifindex),
            "this thread's namespace is still its own"
        );
        assert!(dataplane.keep_ready("no_such_program").is_err());
        dataplane.run_live("sp_main", &frame(0x0800, [0; 4], 0), ifindex, 1000).unwrap();
        drop((dataplane, link, ready));

        let again = Dataplane::open_pinned(&scratch.0.join("g1"), fixture::manifest()).unwrap();
        let stats = again.port_stats(1).unwrap();
        assert!(stats.rx_packets >= 1000 && stats.dropped >= 1000, "{stats:?}");
        add(&again, "wire", spec(&[("ingress_port", "1")], None, "drop", &[])).unwrap();
        let link = Link::open(&scratch.0.join("link")).unwrap();
        assert_eq!(link.ifindex().unwrap(), Some(ifindex));
        link.detach().unwrap();
        assert_eq!(link.ifindex().unwrap(), None);
        assert!(Dataplane::open_pinned(&scratch.0.join("g2"), fixture::manifest()).is_err());
        nix::mount::umount(&scratch.0).unwrap();
    })
    .join()
    .unwrap();
}
