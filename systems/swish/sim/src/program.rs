//! The program of each switch, compiled by the real compiler; routes that its messages take.

use crate::seeded::{A_NODE_A_CPU, FEW_TOMBS, SeededBug, TIME_PASSES, WITHOUT_READY, systems_with};
use manifest::Manifest;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use swish_compiler::SwiSh;
use xdp_backend::{Placement, Systems};

/// Cells of the counter and of the set: 68 blocks together, so that a member's messages of a window
/// take more than one word of bits.
pub const CELLS: u32 = 34 * 360;
/// Windows after which the counter `recent` begins anew.
pub const PERIOD: u32 = 3;

/// Cells of the large variables of eventual.p4: more than a message with a run of them has.
pub const EVENTUAL_CELLS: u32 = 200;
/// Their slots: eight switches may restart now and then.
pub const EVENTUAL_SLOTS: u32 = 24;

/// Keys of last.p4: more than a message has.
pub const LAST_KEYS: u32 = 40;

/// Keys of each table of pairs.p4.
pub const PAIRS_KEYS: u32 = 64;

/// A program, compiled.
pub struct Program {
    /// The object file.
    pub object: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    _folder: tempfile::TempDir,
}

impl Program {
    /// Compiles it, with a mistake in the data plane or none.
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile(bug: Option<&SeededBug>) -> Result<Program, String> {
        let text = include_str!("../../p4/probe/probe.p4");
        let mut defines = vec![format!("CELLS={CELLS}"), format!("PERIOD={PERIOD}")];
        defines.extend(bug.filter(|it| it.needs_own_merge()).map(|_| "SATURATED".to_owned()));
        Program::compile_file("probe.p4", text, defines, bug)
    }

    /// The same, and virtual time passes in the program.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn compile_busy(bug: Option<&SeededBug>) -> Result<Program, String> {
        let text = include_str!("../../p4/probe/probe.p4");
        let defines = vec![format!("CELLS={CELLS}"), format!("PERIOD={PERIOD}")];
        let changes: Vec<SeededBug> = bug.copied().into_iter().chain([TIME_PASSES]).collect();
        Program::compile_with("probe.p4", text, defines, &changes)
    }

    /// The same; the small sketch merges by a function of the program.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn compile_own() -> Result<Program, String> {
        let text = include_str!("../../p4/probe/probe.p4");
        let defines =
            vec![format!("CELLS={CELLS}"), "SATURATED".into(), format!("PERIOD={PERIOD}")];
        Program::compile_file("probe.p4", text, defines, None)
    }

    /// The same, with each of the two large variables in a group of its own: those of the counter
    /// only add, so that what the dead brought can be told apart. The small sketch takes the
    /// largest value, or merges by a function of the program. With a mistake in the data plane or
    /// none.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn compile_apart(own_merge: bool, bug: Option<&SeededBug>) -> Result<Program, String> {
        let text = include_str!("../../p4/probe/probe.p4");
        let mut defines =
            vec![format!("CELLS={CELLS}"), "APART".to_owned(), format!("PERIOD={PERIOD}")];
        defines.extend(own_merge.then(|| "SATURATED".to_owned()));
        Program::compile_file("probe.p4", text, defines, bug)
    }

    /// The two large variables in one group, and both add: windows may have many messages
    /// (`layouts::MANY`), and what the dead brought can be told apart.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn compile_sums() -> Result<Program, String> {
        let text = include_str!("../../p4/probe/probe.p4");
        let defines = vec![format!("CELLS={CELLS}"), "SUMS".into(), format!("PERIOD={PERIOD}")];
        Program::compile_file("probe.p4", text, defines, None)
    }

    /// The same with room for so many switches.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn compile_room(members: u32) -> Result<Program, String> {
        let text = include_str!("../../p4/probe/probe.p4");
        let defines = vec![
            format!("CELLS={CELLS}"),
            format!("PERIOD={PERIOD}"),
            format!("MEMBERS={members}"),
        ];
        Program::compile_file("probe.p4", text, defines, None)
    }

    /// A counter and a set of so many cells, with room for so many switches, and a mistake in the
    /// data plane or none.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn compile_peers(
        cells: u32,
        members: u32,
        bug: Option<&SeededBug>,
    ) -> Result<Program, String> {
        let text = include_str!("../../p4/probe/probe.p4");
        let defines = vec![format!("CELLS={cells}"), format!("MEMBERS={members}")];
        Program::compile_file("probe.p4", text, defines, bug)
    }

    /// The same of eventual.p4.
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile_eventual(bug: Option<&SeededBug>) -> Result<Program, String> {
        let text = include_str!("../../p4/eventual/eventual.p4");
        let defines = vec![format!("CELLS={EVENTUAL_CELLS}"), format!("SLOTS={EVENTUAL_SLOTS}")];
        Program::compile_file("eventual.p4", text, defines, bug)
    }

    /// The same of last.p4: a table, a set and a register of which the last writer wins.
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile_last(bug: Option<&SeededBug>) -> Result<Program, String> {
        let text = include_str!("../../p4/last/last.p4");
        let defines = vec![format!("KEYS={LAST_KEYS}"), format!("NUMBERS={LAST_KEYS}")];
        Program::compile_file("last.p4", text, defines, bug)
    }

    /// The same of pairs.p4: tables and a register with SRO, with few removed keys.
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile_pairs(bug: Option<&SeededBug>) -> Result<Program, String> {
        let text = include_str!("../../p4/pairs/pairs.p4");
        let defines = vec![format!("KEYS={PAIRS_KEYS}")];
        let changes: Vec<SeededBug> = [FEW_TOMBS].into_iter().chain(bug.copied()).collect();
        Program::compile_with("pairs.p4", text, defines, &changes)
    }

    /// The same, and each packet is counted with SDW and with EWO: tally.p4.
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile_tally(bug: Option<&SeededBug>) -> Result<Program, String> {
        let text = include_str!("../../p4/pairs/pairs.p4");
        let defines = vec!["KEYS=64".into(), "COUNTED".into()];
        Program::compile_file("tally.p4", text, defines, bug)
    }

    /// A program of the caller's, without the ready phase: see [`WITHOUT_READY`].
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile_without_ready(
        name: &str,
        text: &str,
        defines: Vec<String>,
    ) -> Result<Program, String> {
        Program::compile_with(name, text, defines, WITHOUT_READY)
    }

    /// The same with packets that are those of a node a CPU: see [`A_NODE_A_CPU`].
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile_node_a_cpu(
        name: &str,
        text: &str,
        defines: Vec<String>,
    ) -> Result<Program, String> {
        Program::compile_with(name, text, defines, A_NODE_A_CPU)
    }

    fn compile_file(
        name: &str,
        text: &str,
        defines: Vec<String>,
        bug: Option<&SeededBug>,
    ) -> Result<Program, String> {
        Program::compile_with(name, text, defines, bug.map_or(&[], std::slice::from_ref))
    }

    fn compile_with(
        name: &str,
        text: &str,
        defines: Vec<String>,
        bugs: &[SeededBug],
    ) -> Result<Program, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
        let source = folder.path().join(name);
        std::fs::write(&source, text).map_err(|error| format!("{}: {error}", source.display()))?;
        let options = p4_syntax::Options { defines: defines.clone(), ..Default::default() };
        let outcome = p4_check::check_file(&source, &options);
        let program = outcome.program.as_ref().ok_or_else(|| outcome.render(false))?;
        let object = folder.path().join("program.o");
        let systems = if bugs.is_empty() { Systems(&[&SwiSh]) } else { systems_with(bugs)? };
        let options = xdp_backend::Options {
            program_name: name.to_owned(),
            placement: placement_of(text, &defines).unwrap_or_default(),
            ..xdp_backend::Options::new(systems)
        };
        let compiled =
            xdp_backend::compile(program, &options, &object).map_err(|error| error.to_string())?;
        remember_placement(text, defines, compiled.placement);
        Ok(Program { object, manifest: compiled.generated.manifest, _folder: folder })
    }
}

/// Where the storage of a program that was compiled before went, by its text and macros. Clang runs
/// up to four times to find that. (A mistake in the headers hardly changes what the stack has to
/// hold, and what fits stays fitting in a later placement.)
type Placements = BTreeMap<(String, Vec<String>), Placement>;
static PLACEMENTS: Mutex<Placements> = Mutex::new(BTreeMap::new());

fn placement_of(text: &str, defines: &[String]) -> Option<Placement> {
    let known = PLACEMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    known.get(&(text.to_owned(), defines.to_vec())).copied()
}

fn remember_placement(text: &str, defines: Vec<String>, placement: Placement) {
    let mut known = PLACEMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    known.insert((text.to_owned(), defines), placement);
}

/// All messages leave by one link to one neighbour: the simulator delivers them by the number of
/// their receiver.
const COMMANDS: [&str; 7] = [
    "link set lo up",
    "link add fabric address 02:00:00:00:00:03 type veth peer name fabricpeer",
    "link set fabricpeer up",
    "link set fabric up",
    "address add 192.0.2.1/24 dev fabric",
    "neighbor replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev fabric nud permanent",
    "route add default via 192.0.2.2 dev fabric",
];

thread_local! {
    /// The index of that link, once this thread has its namespace.
    static ENTERED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Moves the calling thread to a network namespace of its own, unless it is there already; the
/// index of the link. The kernel removes the namespace with the thread.
pub(crate) fn enter() -> Result<u32, String> {
    if let Some(index) = ENTERED.get() {
        return Ok(index);
    }
    netns::unshare_thread().map_err(|error| error.to_string())?;
    netns::forward().map_err(|error| error.to_string())?;
    netns::ip_batch(&COMMANDS).map_err(|error| error.to_string())?;
    let index = nix::net::if_::if_nametoindex("fabric").map_err(|error| error.to_string())?;
    ENTERED.set(Some(index));
    Ok(index)
}
