//! Bugs planted in the switch program: each must fail the packet test that is there for it. A place
//! that the text no longer has is an error, so no bug goes missing. Needs root.

use dataplane::{Dataplane, Object, Settings};
use manifest::Manifest;
use netchain_tools::NetChain;
use packet_test::{Case, CaseReport, Systems, run_case};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use xdp_backend::{Options, Placement};

const SYSTEMS: Systems = Systems(&[&NetChain]);

/// A mistake in the text of the program.
struct Seeded {
    name: &'static str,
    right: &'static str,
    wrong: &'static str,
    case: &'static str,
}

const ALL: [Seeded; 7] = [
    Seeded {
        name: "answers without a lease",
        right: "!leases.hold(meta.peers)",
        wrong: "false",
        case: "leases",
    },
    Seeded {
        name: "a version above the own one renews a lease",
        right: "&& hdr.netchain.version <= meta.version",
        wrong: "",
        case: "leases_version",
    },
    Seeded {
        name: "version 0 renews a lease",
        right: "hdr.netchain.version != 0\n                                    && ",
        wrong: "",
        case: "leases_version",
    },
    Seeded {
        name: "an older copy is applied",
        right: "bool applies = hdr.netchain.version > slot.version",
        wrong: "bool applies = (is_copy || hdr.netchain.version > slot.version)",
        case: "copies",
    },
    Seeded {
        name: "a copy of another view is applied",
        right: "in_view && (is_down || is_copy || is_tombstone)",
        wrong: "(is_copy || in_view && is_down)",
        case: "copies",
    },
    Seeded {
        name: "a member that does not join takes copies",
        right: "meta.position & JOINING != 0\n                                   && hdr",
        wrong: "hdr",
        case: "copies_member",
    },
    Seeded {
        name: "a copy without a slot is acknowledged",
        right: "no_slot.count(0);\n                                drop();",
        wrong: "no_slot.count(0);",
        case: "copies_full",
    },
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4")
}

/// The program with this text, compiled into a folder. `placement` is the first that is tried; the
/// one that it became is the third result.
fn compile(
    text: &str,
    defines: Vec<String>,
    placement: Placement,
    into: &Path,
) -> (PathBuf, Manifest, Placement) {
    let source = into.join("netchain.p4");
    std::fs::write(&source, text).expect("source");
    let include_dirs = vec![folder()];
    let options = p4_syntax::Options { include_dirs, defines, ..Default::default() };
    let outcome = p4_check::check_file(&source, &options);
    let said = outcome.render(false);
    let program = outcome.program.unwrap_or_else(|| panic!("{said}"));
    let object = into.join("netchain.o");
    let systems = xdp_backend::Systems(&[&netchain_compiler::NetChain]);
    let options = Options { placement, ..Options::new(systems) };
    let made = xdp_backend::compile(&program, &options, &object);
    let made = made.unwrap_or_else(|error| panic!("{error}"));
    (object, made.generated.manifest, made.placement)
}

fn load(object: &Path, manifest: &Manifest) -> Result<Dataplane, String> {
    let mut opened = Object::open(object, manifest.clone()).map_err(|error| error.to_string())?;
    let settings = Settings { test_mode: true, virtual_clock: true, host_traffic: false };
    opened.set(settings).and_then(|()| opened.load()).map_err(|error| error.to_string())
}

/// A case, through the program with this text, compiled with this placement or a later one.
fn run(name: &str, text: &str, placement: Placement) -> (CaseReport, Placement) {
    let path = folder().join(format!("{name}.stf"));
    let lines = std::fs::read_to_string(&path).expect("case");
    let case = Case::parse(name, &lines, SYSTEMS).unwrap_or_else(|errors| panic!("{errors:?}"));
    let into = tempfile::tempdir().expect("folder");
    let defines = case.setup.defines.iter().map(|(_, define)| define.clone()).collect();
    let (object, manifest, placement) = compile(text, defines, placement, into.path());
    (run_case(&case, SYSTEMS, || load(&object, &manifest)), placement)
}

#[test]
fn each_planted_bug_is_caught() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let right = std::fs::read_to_string(folder().join("netchain.p4")).expect("program");
    let cases: BTreeSet<&str> = ALL.iter().map(|bug| bug.case).collect();
    // A bug changes little of what the program needs: its storage goes where the right one's is.
    let mut placement = Options::new(xdp_backend::Systems(&[])).placement;
    for case in cases {
        let (report, became) = run(case, &right, placement);
        placement = became;
        assert!(report.failures.is_empty(), "{case}: {:?}", report.failures);
    }
    for bug in &ALL {
        assert_eq!(right.matches(bug.right).count(), 1, "{}: the program has changed", bug.name);
        let (report, _) = run(bug.case, &right.replace(bug.right, bug.wrong), placement);
        let caught = report.failures.iter().any(|failure| failure.line > 0);
        assert!(caught, "{}: {}.stf does not see it ({:?})", bug.name, bug.case, report.failures);
    }
}
