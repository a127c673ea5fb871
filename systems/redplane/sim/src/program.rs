//! The programs that runs are made with, compiled by the real compiler.

use crate::seeded::{SeededBug, systems_with};
use manifest::Manifest;
use state_protocol::objects::{FlowState, SnapshotState, flow_states, snapshot_states};
use std::path::PathBuf;

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// counter.p4 with a linearizable object: updates and reads.
    Linearizable,
    /// The same, and packets wait in the switch (`docs/output-commit.md`).
    Batched,
    /// The same, with room for so little that many packets go in messages (`when_full`).
    Overflowing,
    /// Packets wait in the switch, and each sets its flow and a total of all flows, as a group
    /// (`systems/redplane/docs/groups.md`).
    Grouped,
    /// counter.p4 with an asynchronous object.
    Asynchronous,
    /// The same, and updates share messages, with room for one in each.
    Gathered,
    /// sketch.p4: snapshots.
    Snapshots,
    /// nat.p4: the store gives ports.
    Nat,
    /// load_balancer.p4: the store gives backends.
    Balancer,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::Linearizable,
        Kind::Batched,
        Kind::Overflowing,
        Kind::Grouped,
        Kind::Asynchronous,
        Kind::Gathered,
        Kind::Snapshots,
        Kind::Nat,
        Kind::Balancer,
    ];

    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Linearizable => "linearizable",
            Kind::Batched => "batched",
            Kind::Overflowing => "overflowing",
            Kind::Grouped => "grouped",
            Kind::Asynchronous => "asynchronous",
            Kind::Gathered => "gathered",
            Kind::Snapshots => "snapshots",
            Kind::Nat => "nat",
            Kind::Balancer => "load_balancer",
        }
    }

    /// Updates share messages, and their packets, if any wait, do so in the switch.
    pub(crate) fn batches(self) -> bool {
        matches!(self, Kind::Batched | Kind::Overflowing | Kind::Grouped | Kind::Gathered)
    }

    /// counter.p4 with linearizable objects.
    pub(crate) fn is_linearizable(self) -> bool {
        matches!(self, Kind::Linearizable | Kind::Batched | Kind::Overflowing | Kind::Grouped)
    }

    pub(crate) fn is_asynchronous(self) -> bool {
        matches!(self, Kind::Asynchronous | Kind::Gathered)
    }
}

/// A compiled program.
pub struct Program {
    /// What it is.
    pub kind: Kind,
    /// The object file.
    pub object: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its state objects of one kind.
    pub flows: Vec<FlowState>,
    /// Those of the other.
    pub snapshots: Vec<SnapshotState>,
    _folder: tempfile::TempDir,
}

impl Program {
    /// Compiles a program. `p4_defines`: macros of the P4 source; `bug`: a mistake in the data
    /// plane.
    ///
    /// # Errors
    /// What the compiler says, for people.
    pub fn compile(
        kind: Kind,
        p4_defines: &[&str],
        bug: Option<&SeededBug>,
    ) -> Result<Program, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
        let (name, text) = match kind {
            Kind::Snapshots => ("sketch.p4", include_str!("../tests/sketch.p4")),
            Kind::Nat => ("nat.p4", include_str!("../../p4/nat/nat.p4")),
            Kind::Balancer => {
                ("load_balancer.p4", include_str!("../../p4/load_balancer/load_balancer.p4"))
            }
            _ => ("counter.p4", include_str!("../tests/counter.p4")),
        };
        let source = folder.path().join(name);
        std::fs::write(&source, text).map_err(|error| format!("{}: {error}", source.display()))?;
        let mut defines: Vec<String> = p4_defines.iter().map(ToString::to_string).collect();
        match kind {
            Kind::Asynchronous | Kind::Gathered => defines.push("ASYNC".to_owned()),
            Kind::Grouped => defines.push("GROUPED".to_owned()),
            // Small tables: loading them costs less.
            Kind::Nat => defines.push("NAT_ENTRIES=1024".to_owned()),
            Kind::Balancer => defines.push("LOAD_BALANCER_ENTRIES=1024".to_owned()),
            Kind::Linearizable | Kind::Batched | Kind::Overflowing | Kind::Snapshots => {}
        }
        let outcome =
            p4_check::check_file(&source, &p4_syntax::Options { defines, ..Default::default() });
        let program = outcome.program.as_ref().ok_or_else(|| outcome.render(false))?;
        let object = folder.path().join("program.o");
        let systems = bug.map_or(Ok(redplane_compiler::ALONE), systems_with)?;
        let options = xdp_backend::Options {
            program_name: name.to_owned(),
            ..xdp_backend::Options::new(systems)
        };
        let compiled =
            xdp_backend::compile(program, &options, &object).map_err(|error| error.to_string())?;
        let manifest = compiled.generated.manifest;
        let flows = flow_states(&manifest).map_err(|error| error.to_string())?;
        let snapshots = snapshot_states(&manifest).map_err(|error| error.to_string())?;
        Ok(Program { kind, object, manifest, flows, snapshots, _folder: folder })
    }

    pub(crate) fn is_linearizable(&self) -> bool {
        self.kind.is_linearizable()
    }
}
