//! Table 2: what fault tolerance adds to programs.

use super::{Context, Experiment, Page};
use crate::apps::{ALL, App, REPLICATED};
use crate::kernel::CObject;
use crate::results::{Figure, Outcome, Row};
use crate::sides;
use crate::xdp_time::information;
use anyhow::{Context as _, Result};
use libbpf_rs::{MapCore, MapHandle};
use manifest::Manifest;
use plot::{Axes, Group};
use serde::Serialize;
use serde_json::{Value, json};
use state_protocol::objects::flow_states;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "table2",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Table 2",
        title: "\
            what fault tolerance adds to programs: maps, memory, instructions, for 100,000 flows",
        quick: "15 s",
        full: "15 s",
        shows: "instructions, maps and memory that fault tolerance adds, at 100,000 flows",
        paper: "\
            RedPlane §7.4 and appendix E: for 100,000 flows, fault tolerance takes 3.7 to 13.2 % \
            more of the switch's resources, SRAM the most (13.2 %), which holds lease, sequence \
            number and last acknowledged number of each flow.",
        method: "\
            Each application is compiled with fault tolerance and without, with room for 100,000 \
            flows, and loaded. The kernel tells how many instructions its verifier kept \
            (translated) and how many bytes its compiler made of them, and what memory each map \
            takes (fdinfo's memlock). On a switch ASIC, resources are a share of the chip; here \
            they are memory and code: what compares is what a flow costs more.\n\n\
            The variant without fault tolerance keeps the layout of its entries, so its maps are \
            as large; what a flow's lease, sequence numbers and epoch take is shown on a line of \
            its own, as if it could be left out.",
    },
};

/// As in the paper.
const FLOWS: u32 = 100_000;

/// What an object takes once loaded.
#[derive(Clone, Debug, Default, Serialize)]
struct Usage {
    programs: usize,
    /// Instructions that the verifier kept, all programs together.
    instructions: u64,
    /// Bytes of machine code.
    machine_code_bytes: u64,
    maps: usize,
    map_bytes: u64,
    /// Bytes of a FlowState's entry that are not its value.
    entry_head_bytes: u64,
    /// Each map: name, type, entries, bytes.
    each_map: Vec<(String, String, u32, u64)>,
}

/// What the kernel charges for a map, in bytes.
fn memory(map: &MapHandle) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    line.and_then(|bytes| bytes.trim().parse().ok())
        .with_context(|| format!("{path} has no memlock"))
}

fn program_sizes(program: BorrowedFd<'_>) -> Result<(u64, u64)> {
    let information = information(program)?;
    // An instruction is eight bytes.
    Ok((u64::from(information.xlated_prog_len) / 8, u64::from(information.jited_prog_len)))
}

fn usage(object: &CObject) -> Result<Usage> {
    let mut usage = Usage::default();
    for program in object.object().progs() {
        let (instructions, bytes) = program_sizes(program.as_fd())?;
        usage.programs += 1;
        usage.instructions += instructions;
        usage.machine_code_bytes += bytes;
    }
    for map in object.object().maps() {
        let handle = MapHandle::try_from(&map)?;
        let bytes = memory(&handle)?;
        usage.maps += 1;
        usage.map_bytes += bytes;
        let (name, kind) =
            (map.name().to_string_lossy().into_owned(), format!("{:?}", map.map_type()));
        usage.each_map.push((name, kind, map.max_entries(), bytes));
    }
    usage.each_map.sort_by_key(|map| std::cmp::Reverse(map.3));
    Ok(usage)
}

fn measure(context: &Context, app: &App) -> Result<[Usage; 2]> {
    let size = app.size.map(|(name, entries)| format!("{name}={}", entries * FLOWS));
    let compile = |name: &str, local: Option<&str>| -> Result<Usage> {
        let defines: Vec<&str> = size.as_deref().into_iter().chain(local).collect();
        let object = context.places.compile_p4(
            app.folder,
            &format!("table2_{}_{name}", app.folder),
            &defines,
        )?;
        let mut usage = usage(&CObject::load(&object, &[])?)?;
        let manifest = Manifest::read(&Manifest::path_for(&object))?;
        usage.entry_head_bytes =
            flow_states(&manifest)?.iter().map(|state| u64::from(state.value_offset)).sum();
        Ok(usage)
    };
    let (with, without) =
        sides::at_once(|| compile("with", None), || compile("without", Some(app.local)));
    Ok([with?, without?])
}

fn rows(app: &App, with: &Usage, without: &Usage) -> Vec<Row> {
    let added = |with: u64, without: u64| -> String {
        let share = 100.0 * (with as f64 / without.max(1) as f64 - 1.0);
        format!("+{} ({share:+.0} % of {without})", with.saturating_sub(without))
    };
    let memory = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let mut rows = vec![
        Row::text(
            format!("{}: map memory", app.name),
            "",
            format!(
                "{} beside {}, {:+.0} %",
                memory(with.map_bytes),
                memory(without.map_bytes),
                100.0 * (with.map_bytes as f64 / without.map_bytes.max(1) as f64 - 1.0)
            ),
        ),
        Row::text(
            format!("{}: instructions", app.name),
            "VLIW +5.5 %",
            added(with.instructions, without.instructions),
        ),
        Row::text(
            format!("{}: machine code, bytes", app.name),
            "",
            added(with.machine_code_bytes, without.machine_code_bytes),
        ),
        Row::text(
            format!("{}: maps; programs", app.name),
            "",
            format!(
                "{} beside {}; {} beside {}",
                with.maps, without.maps, with.programs, without.programs
            ),
        ),
    ];
    if let Some((_, entries)) = app.size {
        let bytes = u64::from(entries) * with.entry_head_bytes;
        let share = 100.0 * (bytes * u64::from(FLOWS)) as f64 / with.map_bytes.max(1) as f64;
        let text = format!("{bytes}, of 100,000 flows {share:.0} % of all map memory");
        rows.insert(
            1,
            Row::text(
                format!("{}: bytes a flow for lease, numbers, key", app.name),
                "SRAM +13.2 %",
                text,
            ),
        );
    }
    rows
}

/// Runs it.
///
/// # Errors
/// A figure cannot be drawn; an application that does not compile or load is named in a note.
fn run(context: &Context) -> Result<Outcome> {
    let root = &context.places.root;
    // A program once: its other modes take the same maps.
    let once = |app: &&App| {
        app.mode == REPLICATED && root.join("systems/redplane/p4").join(app.folder).is_dir()
    };
    let apps: Vec<&App> = ALL.iter().filter(once).collect();
    let (mut rows_, mut notes, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    let mut data = serde_json::Map::new();
    for (number, app) in apps.iter().enumerate() {
        match measure(context, app) {
            Ok([with, without]) => {
                rows_.extend(rows(app, &with, &without));
                let bar = |usage: &Usage| {
                    let mega = usage.map_bytes as f64 / 1e6;
                    Some((mega, mega, mega))
                };
                groups.push(Group {
                    name: app.folder.to_owned(),
                    bars: vec![bar(&with), bar(&without)],
                });
                data.insert(app.folder.to_owned(), json!({ "with": with, "without": without }));
            }
            Err(error) => notes.push(format!("{}: not measured: {error:#}", app.name)),
        }
        context.progress("applications", number as u32 + 1, apps.len() as u32);
    }
    let axes = Axes {
        title: "Memory of all maps, room for 100,000 flows".into(),
        y: "MB".into(),
        ..Axes::default()
    };
    let svg = plot::bars(&axes, &["with fault tolerance", "without"], &groups)?;
    let figures = vec![Figure { name: "table2".into(), svg }];
    Ok(Outcome { rows: rows_, notes, figures, data: Value::Object(data) })
}
