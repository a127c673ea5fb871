//! The layout: systems plug in from above, every page names files that are there, and files and
//! lines are no longer than a reader wants.
//!
//! A system is `systems/X`, `bpf/X` and its include file; nothing else names it, and no crate below
//! the systems depends on one (ARCHITECTURE.md, "The dependency rule"). RedPlane came first and its
//! names stand in every layer, so two lists say where they still do: `layout/names.txt` (files) and
//! `layout/dependencies.txt` (arrows that point the wrong way). The lists are the debt that the
//! platform's seams remove. They only get shorter: what is not listed fails, and so does a line
//! that is no longer true. `tools/bench`, `tools/lab` and `tools/chaos` put systems together to
//! compare and to break them, and pages link to them; all may name them.

mod page;

use page::{markdown, read, repository, tree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Folders and files in which a system may be named.
const MAY_NAME: [&str; 12] = [
    "systems/registry/",
    // The registry for P4 programs: it includes each system's file.
    "p4/include/stateplane.p4",
    "systems/README.md",
    "bpf/README.md",
    "tools/bench/",
    "tools/lab/",
    "tools/chaos/",
    "tools/fuzz-targets/fuzz/corpus/",
    "tools/cli/tests/layout",
    // Tests of the whole product.
    "tools/cli/tests/lab_",
    // The lists of the workspace's crates.
    "Cargo.toml",
    "Cargo.lock",
];

/// The systems, by the names of their folders, and their names as code has them. (`RedPlane §5.2`
/// cites the paper, and is none.)
const SYSTEMS: [(&str, &[&str]); 3] = [
    (
        "redplane",
        &[
            "redplane",
            "FlowState",
            "SnapshotState",
            "flow_state",
            "snapshot_state",
            "state_store",
            "state_protocol",
        ],
    ),
    ("netchain", &["netchain", "SlotState", "slot_state", "MessageTag", "message_tag"]),
    ("swish", &["swish", "SharedCounter", "SharedSketch", "shared_counter", "shared_sketch"]),
];

/// Whether a file is part of this system: its folders and its include file.
fn is_part_of(path: &str, system: &str) -> bool {
    let folders = [format!("systems/{system}/"), format!("bpf/{system}/")];
    folders.iter().any(|folder| path.starts_with(folder))
        || path == format!("p4/include/stateplane/{system}.p4")
}

/// Which layers the crates of a layer may depend on.
const MAY_USE: [(&str, &[&str]); 5] = [
    ("compiler", &["compiler", "switch/manifest", "core/seeded-bugs"]),
    ("core", &["core"]),
    ("switch", &["switch", "core"]),
    ("systems", &["systems", "switch", "core", "compiler"]),
    ("tools", &["tools", "systems", "switch", "core", "compiler"]),
];

/// What a system's parts for the tools, and the registry, may use beside that: the tools' libraries
/// with a seam. They know no system.
const TOOLS_WITH_A_SEAM: [&str; 4] =
    ["tools/command-line", "tools/fuzz-door", "tools/packet-test", "tools/trace"];

/// The lines of a list; what follows `#` is a comment.
fn list(path: &str) -> BTreeSet<String> {
    let text = read(path);
    let lines: Vec<_> =
        text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).collect();
    lines.into_iter().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A list that only gets shorter.
fn ratchet(path: &str, found: &BTreeMap<String, String>) {
    let listed = list(path);
    let more: Vec<_> = found.iter().filter(|(name, _)| !listed.contains(*name)).collect();
    let more: String = more.into_iter().map(|(name, what)| format!("{name} # {what}\n")).collect();
    assert!(
        more.is_empty(),
        "a system is named or used, and {path} does not list it; use a seam:\n{more}"
    );
    let gone: Vec<_> = listed.iter().filter(|name| !found.contains_key(*name)).collect();
    assert!(gone.is_empty(), "no longer true; remove from {path}: {gone:#?}");
}

#[test]
fn nothing_outside_of_a_system_names_it() {
    let mut found = BTreeMap::new();
    for path in tree() {
        // What a crate uses: `dependencies_point_down`.
        let elsewhere = [".md", "/Cargo.toml", "/Cargo.lock"].iter().any(|end| path.ends_with(end));
        if elsewhere || MAY_NAME.iter().any(|prefix| path.starts_with(prefix)) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(repository().join(&path)) else { continue };
        let others = SYSTEMS.iter().filter(|(system, _)| !is_part_of(&path, system));
        let names: Vec<&str> = others.flat_map(|(_, names)| names.iter().copied()).collect();
        let count =
            text.lines().filter(|line| names.iter().any(|name| line.contains(name))).count();
        if count > 0 {
            found.insert(path, format!("lines: {count}"));
        }
    }
    ratchet("tools/cli/tests/layout/names.txt", &found);
}

/// What a Cargo.toml says about its crate.
struct Crate {
    folder: String,
    name: String,
    /// Each with whether only tests need it.
    uses: Vec<(String, bool)>,
}

fn crates() -> Vec<Crate> {
    let mut found = vec![];
    for path in tree() {
        let Some(folder) =
            path.strip_suffix("/Cargo.toml").filter(|folder| !folder.ends_with("/fuzz"))
        else {
            continue;
        };
        let table: toml::Table =
            toml::from_str(&read(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let name = table["package"]["name"].as_str().unwrap().to_owned();
        let mut uses = vec![];
        for (section, for_tests) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let names = table
                .get(section)
                .and_then(toml::Value::as_table)
                .into_iter()
                .flat_map(toml::Table::keys);
            uses.extend(names.map(|name| (name.clone(), for_tests)));
        }
        found.push(Crate { folder: folder.to_owned(), name, uses });
    }
    assert!(found.len() > 20, "crates: {}", found.len());
    found
}

/// Tests may use a tool or a lower layer's fixture, but no system.
#[test]
fn dependencies_point_down() {
    let crates = crates();
    let folders: BTreeMap<&str, &str> =
        crates.iter().map(|one| (one.name.as_str(), one.folder.as_str())).collect();
    let mut found = BTreeMap::new();
    for one in &crates {
        let layer = one.folder.split('/').next().unwrap();
        let (_, allowed) = MAY_USE.iter().find(|(name, _)| *name == layer).unwrap_or_else(|| {
            panic!("{}: a crate belongs in one of {:?}", one.folder, MAY_USE.map(|(name, _)| name));
        });
        for (used, for_tests) in &one.uses {
            let Some(folder) = folders.get(used.as_str()) else { continue };
            let plugs = layer == "systems"
                && ["/tools", "/fuzz", "/registry"].iter().any(|end| one.folder.ends_with(end));
            let down = allowed.iter().any(|layer| Path::new(folder).starts_with(layer))
                || plugs && TOOLS_WITH_A_SEAM.contains(folder);
            if !down && (!for_tests || folder.starts_with("systems/")) {
                let kind = if *for_tests { " (tests)" } else { "" };
                found.insert(format!("{} -> {folder}{kind}", one.folder), used.clone());
            }
        }
    }
    ratchet("tools/cli/tests/layout/dependencies.txt", &found);
}

/// Whether a dependency, or a feature beside `mutations` itself, turns on a crate's seeded bugs. (A
/// test may need them: `required-features` turns nothing on.)
fn turns_on_bugs(value: &toml::Value) -> bool {
    let of_tests =
        |key: &str| ["dev-dependencies", "mutations", "required-features"].contains(&key);
    match value {
        toml::Value::String(name) => name == "mutations" || name.ends_with("/mutations"),
        toml::Value::Array(all) => all.iter().any(turns_on_bugs),
        toml::Value::Table(all) => all.iter().any(|(key, it)| !of_tests(key) && turns_on_bugs(it)),
        _ => false,
    }
}

/// What `cargo build` makes has no seeded bugs: only dev-dependencies turn them on.
#[test]
fn only_tests_have_seeded_bugs() {
    for path in tree().into_iter().filter(|path| path.ends_with("Cargo.toml")) {
        let table: toml::Value = toml::from_str(&read(&path)).unwrap();
        assert!(!turns_on_bugs(&table), "{path}: only dev-dependencies may have `mutations`");
    }
    let one = |text: &str| turns_on_bugs(&toml::from_str(text).unwrap());
    assert!(one("[dependencies]\nchain = { path = \"x\", features = [\"mutations\"] }"));
    assert!(one("[features]\ndefault = [\"mutations\"]"));
    assert!(one("[features]\nfast = [\"chain/mutations\"]"));
    assert!(!one("[dev-dependencies]\nchain = { path = \"x\", features = [\"mutations\"] }"));
    assert!(!one("[features]\nmutations = [\"chain/mutations\"]"));
}

/// A path without `.` and `..`; nothing if it leaves the repository.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !plain.pop() => return None,
            Component::Normal(name) => plain.push(name),
            _ => {}
        }
    }
    Some(plain)
}

/// The files of the repository, and the folders that they are in.
struct Tree(BTreeSet<PathBuf>);

impl Tree {
    fn new() -> Tree {
        let files: Vec<PathBuf> = tree().into_iter().map(PathBuf::from).collect();
        Tree(files.iter().flat_map(|file| file.ancestors()).map(Path::to_owned).collect())
    }

    fn has(&self, path: &Path) -> bool {
        plain(path).is_some_and(|path| self.0.contains(&path))
    }

    /// Whether a file that `page` names is there: from the repository's root, from the page's
    /// folder, or somewhere in the page's own crate.
    fn resolves(&self, page: &Path, named: &str) -> bool {
        let own: PathBuf =
            page.components().take(if page.starts_with("systems") { 3 } else { 2 }).collect();
        self.has(Path::new(named))
            || self.has(&page.parent().unwrap().join(named))
            || self.0.iter().any(|path| path.starts_with(&own) && path.ends_with(named))
    }
}

#[test]
fn every_link_on_the_pages_leads_somewhere() {
    let tree = Tree::new();
    let (mut seen, mut broken) = (0, vec![]);
    for page in markdown() {
        for rest in read(&page).split("](").skip(1) {
            let link = rest.split([')', ' ', '\n']).next().unwrap();
            let target = link.split('#').next().unwrap();
            if target.is_empty() || link.contains("://") {
                continue;
            }
            seen += 1;
            if !tree.has(&Path::new(&page).parent().unwrap().join(target)) {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(seen > 40, "links: {seen}");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Endings of files that pages and comments name.
const ENDINGS: [&str; 12] =
    [".rs", ".md", ".toml", ".h", ".c", ".p4", ".stf", ".sh", ".py", ".tla", ".cfg", ".service"];

/// Folders at the root, today's and former ones, and those of a crate: what begins with one is a
/// path.
const ROOTS: [&str; 19] = [
    "compiler", "bpf", "core", "switch", "systems", "tools", "p4", "docs", "deploy", "spec",
    "scripts", "crates", "apps", "bench", "fuzz", "lab", "src", "tests", "examples",
];

/// Files of other projects that are cited: the page, and the file.
const ELSEWHERE: [(&str, &str); 1] = [("p4/include/v1model.p4", "docs/simple_switch.md")];

/// Whether a path has a part to be filled in, such as `NAME.toml`, `lab_APP.rs` or `systems/X`.
fn to_fill_in(path: &str) -> bool {
    path.split(['/', '.', '_']).any(|part| {
        part != "README"
            && part.starts_with(|first: char| first.is_ascii_uppercase())
            && part == part.to_uppercase()
    })
}

/// The files that a text names, such as `core/secrets/src/lib.rs`; without those whose name has a
/// part to be filled in (`NAME`, `*`, `<app>`).
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    let in_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./*<>{}$~:".contains(letter);
    text.split(move |letter: char| !in_path(letter))
        .map(|word| word.trim_end_matches(['.', ':']))
        .filter(|word| {
            let plain = word
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || b"_-./".contains(&letter));
            let (root, rest) = word.split_once('/').unwrap_or_default();
            plain
                && !to_fill_in(word)
                && !rest.is_empty()
                && ROOTS.contains(&root)
                && ENDINGS.iter().any(|end| word.ends_with(end))
        })
}

/// The paths that stand alone between backticks on a page, with or without an ending.
fn quoted_paths(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2).map(|text| text.trim_end_matches('/')).filter(|text| {
        let plain =
            text.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"_-./".contains(&letter));
        let made = ["out/", "target/"].iter().any(|folder| text.starts_with(folder));
        plain
            && !to_fill_in(text)
            && !made
            && text.contains('/')
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
    })
}

#[test]
fn every_path_in_backticks_on_the_pages_is_there() {
    let tree = Tree::new();
    let (mut seen, mut missing) = (0, BTreeSet::new());
    for page in markdown() {
        for path in quoted_paths(&read(&page)) {
            seen += 1;
            if !tree.resolves(Path::new(&page), path) {
                missing.insert(format!("{page}: {path}"));
            }
        }
    }
    assert!(seen > 100, "paths: {seen}");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// In pages, scripts, configurations, and comments (and texts) of code.
#[test]
fn every_file_that_is_named_is_there() {
    let tree = Tree::new();
    let (mut seen, mut missing) = (0, BTreeSet::new());
    for path in page::tree() {
        let known = ENDINGS.iter().any(|end| path.ends_with(end)) || path == "Makefile";
        // This file has names that are not there, to be found.
        if !known || path.contains("/corpus/") || path == "tools/cli/tests/layout.rs" {
            continue;
        }
        let text = read(&path);
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("#include <") {
                continue;
            }
            for named in named_files(line) {
                seen += 1;
                if !tree.resolves(Path::new(&path), named)
                    && !ELSEWHERE.contains(&(path.as_str(), named))
                {
                    missing.insert(format!("{path}:{}: {named}", number + 1));
                }
            }
        }
    }
    assert!(seen > 200, "files named: {seen}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_file_that_is_not_there_is_found() {
    let text = "see `crates/gone/src/lib.rs`, docs/lab.md. docs/NAME.md, docs/lab_APP.md and core/*/spec, no/path/of.ours";
    let found: Vec<&str> = named_files(text).collect();
    assert_eq!(found, ["crates/gone/src/lib.rs", "docs/lab.md"]);
    let tree = Tree::new();
    let page = Path::new("docs/deploy.md");
    assert!(tree.resolves(page, found[1]) && !tree.resolves(page, found[0]));
    assert!(tree.has(Path::new("docs/../core")) && !tree.has(Path::new("docs/../../core")));
}

/// Files end before this many lines: a longer one has more than one idea.
const MOST_LINES: usize = 600;

/// Comments and prose end at this column.
const MOST_COLUMNS: usize = 100;

/// Beginnings of paths whose comments may be wider, each with the reason.
const WIDER: [(&str, &str); 2] = [
    ("tools/fuzz-targets/fuzz/corpus/", "inputs, as they were found"),
    ("p4/tests/generate_gateway.py", "lines of the packet tests that it writes"),
];

fn has_ending(path: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| path.ends_with(ending))
}

#[test]
fn no_file_is_too_long() {
    let mut long = vec![];
    for path in tree() {
        let known = has_ending(&path, &[".rs", ".h", ".p4", ".c", ".py", ".md"]);
        if !known {
            continue;
        }
        let lines = read(&path).lines().count();
        if lines > MOST_LINES {
            long.push(format!("{path}: {lines} lines"));
        }
    }
    assert!(long.is_empty(), "over {MOST_LINES} lines; split them by idea: {long:#?}");
}

/// The lines of a page or of comments that are too wide, by their numbers. Tables, blocks of code
/// and what cannot be broken (a link, a command) may be wider.
fn wide_lines(path: &str, text: &str) -> Vec<usize> {
    let page = path.ends_with(".md");
    let (mut wide, mut block, mut comment) = (vec![], false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let bare = line.trim_start();
        let prose = if page {
            block ^= bare.starts_with("```");
            !block && !bare.starts_with('|')
        } else if has_ending(path, &[".c", ".h"]) {
            let inside = comment || bare.starts_with("/*");
            comment = inside && !bare.contains("*/");
            inside
        } else if has_ending(path, &[".rs", ".p4"]) {
            bare.starts_with("//") && !bare.contains("//! |") && !bare.contains("/// |")
        } else {
            bare.starts_with("# ")
        };
        let breaks = bare.split_whitespace().any(|word| word.chars().count() < MOST_COLUMNS / 2);
        if prose && breaks && line.chars().count() > MOST_COLUMNS {
            wide.push(number);
        }
    }
    wide
}

#[test]
fn no_comment_and_no_prose_is_too_wide() {
    let (mut seen, mut wide) = (0, vec![]);
    for path in tree() {
        let known =
            has_ending(&path, &[".rs", ".md", ".h", ".c", ".p4", ".py", ".sh", ".toml", ".yml"]);
        if !known || WIDER.iter().any(|(exception, _)| path.starts_with(exception)) {
            continue;
        }
        seen += 1;
        let text = read(&path);
        wide.extend(wide_lines(&path, &text).iter().map(|number| format!("{path}:{number}")));
    }
    assert!(seen > 400, "files: {seen}");
    assert!(wide.is_empty(), "over {MOST_COLUMNS} columns: {wide:#?}");
}

#[test]
fn a_wide_line_is_found() {
    let long = "word ".repeat(21);
    let page = format!("fine\n{long}\n| {long} |\n```\n{long}\n```\n{long}\n");
    assert_eq!(wide_lines("a.md", &page), [2, 7]);
    let code = format!("    // {long}\nlet it = \"{long}\";\n//! | {long} |\n");
    assert_eq!(wide_lines("a.rs", &code), [1]);
    let header = format!("/* fine\n * {long} */\nint it; /* {long} */\n");
    assert_eq!(wide_lines("a.h", &header), [2]);
    assert_eq!(wide_lines("a.toml", &format!("# {long}\nit = '{long}'\n")), [1]);
}
