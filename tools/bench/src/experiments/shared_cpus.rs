//! SDW on switches of several CPUs: one node a switch, whose CPUs share deltas and values, or one
//! node a CPU (systems/swish/docs/cpus.md).

use super::{Context, Experiment, Page};
use crate::per_packet::{self, Effort, Measured};
use crate::results::{Outcome, Row};
use crate::shared::cells::{Cells, Counted, Variable};
use crate::shared::live::{self, Function, Live};
use crate::statistics::{Summary, quantile, summary};
use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use swish_sim::Program;

/// Its place on the page, and how it runs.
pub const OF_PACKETS: Experiment = Experiment {
    name: "shared-cpus-packets",
    plays_a_trace: false,
    run: run_packets,
    page: Page {
        figure: "SwiSh, packets by CPU",
        title: "what a packet costs, if a switch is one node, and if each CPU is one",
        quick: "2 min",
        full: "6 min",
        shows: "\
            CPU time of a packet with pins and atomic additions, and with neither, as each CPU \
            could do if it were a node of its own",
        paper: PAPER,
        method: "\
            Packets as in `shared-packets`, of switches in labs with windows of 10 ms, on one CPU, \
            and on one while the other handles the same packets of the same users. \"A node a \
            CPU\" is a seeded change of the data plane's headers: each CPU has deltas of its own, \
            there are no pins, and cells are changed by plain loads and stores. It is right for \
            what a packet costs only: both CPUs read one copy of the values, and only the first \
            one's updates are sent.",
    },
};

/// The same of windows.
pub const OF_WINDOWS: Experiment = Experiment {
    name: "shared-cpus",
    plays_a_trace: false,
    run: run_windows,
    page: Page {
        figure: "SwiSh, windows by CPU",
        title: "windows, if a switch is one node, and if each CPU is one",
        quick: "5 min",
        full: "20 min",
        shows: "\
            windows of two switches with two CPUs each as two nodes and as four: time, messages, \
            bytes",
        paper: PAPER,
        method: "\
            Windows as in `shared-sizes`. All nodes share this machine's two CPUs. Of two nodes, \
            each has both. Of four nodes each has one: its agent is bound to it, and so are the \
            kernel's threads that poll its links. Messages between CPUs wake such a thread; a \
            network card would choose the CPU. So there is a third form, four nodes whose frames \
            stay on the CPU that sent them. (These nodes would need pins.) Nodes of one CPU still \
            look at the pins of others, and lock blocks: what they would save is not taken off. \
            Labs come up by turns, one at a time. User space fills the deltas; contents are \
            verified afterwards. \"A node changes half\": the variable has half the cells, as a \
            window takes as long as if the CPUs of a switch changed different halves of it.",
    },
};

const PAPER: &str = "\
    SwiSh has no CPUs: a packet is atomic in a pipe, and each pipe is a node (§9.2 has figures \
    with two pipes and four).";

const PERIOD_US: u32 = 10_000;

/// A network function in its three forms.
struct Packets {
    program: &'static str,
    source: &'static str,
    shared: &'static str,
    local: &'static str,
}

const PACKETS: [Packets; 2] = [
    Packets {
        program: "limiter",
        source: include_str!("../../../../systems/swish/p4/limiter/limiter.p4"),
        shared: "LIMITER_SDW",
        local: "LIMITER_LOCAL",
    },
    Packets {
        program: "detector",
        source: include_str!("../../../../systems/swish/p4/detector/detector.p4"),
        shared: "DETECTOR_SDW",
        local: "DETECTOR_LOCAL",
    },
];

/// The last one is what the others are compared with.
const WAYS: [&str; 3] = ["one node a switch", "a node a CPU", "local"];

fn packets(context: &Context, it: &Packets, rows: &mut Vec<Row>) -> Result<Value> {
    let places = &context.places;
    let traffic = places.compile_c("traffic")?;
    let Packets { program, shared, local, .. } = *it;
    let function =
        |name, define, mode| Function { name, program, define, mode, period_us: PERIOD_US };
    let plain = Program::compile_node_a_cpu(
        &format!("{program}.p4"),
        it.source,
        vec![it.shared.to_owned()],
    )
    .map_err(|why| anyhow!("{program} of a node a CPU: {why}"))?;
    let stateplane = &places.stateplane;
    let all = [
        Live::up(stateplane, &traffic, function(WAYS[0], shared, "shared"))?,
        Live::up_compiled(stateplane, &traffic, function(WAYS[1], shared, "shared"), &plain)?,
        Live::up(stateplane, &traffic, function(WAYS[2], local, "alone"))?,
    ];
    let effort = Effort { rounds: context.pick(7, 21), packets: context.pick(300_000, 1_000_000) };
    let at = |what: &str, round| {
        context.progress(&format!("{program}, {what}, round"), round, effort.rounds);
    };
    let one = live::measure(&all, effort, |round| at("one CPU", round))?;
    let two = live::measure_beside(&all, effort, |round| at("two CPUs", round))?;
    let mut data = vec![];
    for (cpus, measured) in [("one CPU", &one), ("two CPUs", &two)] {
        let [gate, plain, local] = &measured[..] else { unreachable!("three ways") };
        for way in measured {
            let what = format!("{program}, {cpus}, {}: a packet", way.system);
            rows.push(Row::value(what, "", way.ns, 0, "ns"));
            data.push(json!({ "program": program, "cpus": cpus, "way": way.system,
                              "ns": way.samples }));
        }
        let mut ratio = |what: &str, above: &Measured, below: &Measured| {
            let what = format!("{program}, {cpus}: {what}");
            rows.push(Row::value(what, "", per_packet::ratio(above, below), 3, ""));
        };
        ratio("one node a switch / a node a CPU", gate, plain);
        ratio("one node a switch / local", gate, local);
        ratio("a node a CPU / local", plain, local);
    }
    Ok(json!(data))
}

/// Of both switches together: nodes, and how their frames get to CPUs.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    nodes: usize,
    one_cpu: bool,
    /// Whether the CPUs of a switch change different halves.
    halves: bool,
}

const FORMS: [Form; 4] = [
    Form { name: "2 nodes of 2 CPUs", nodes: 2, one_cpu: false, halves: false },
    Form { name: "4 nodes of one CPU", nodes: 4, one_cpu: true, halves: false },
    Form { name: "4 nodes, any CPU", nodes: 4, one_cpu: false, halves: false },
    Form { name: "4 nodes of one CPU, a node changes half", nodes: 4, one_cpu: true, halves: true },
];

/// A variable.
struct Size {
    name: &'static str,
    cells: u32,
}

const SIZES: [Size; 3] = [
    Size { name: "one counter", cells: 1 },
    Size { name: "3 × 4,096", cells: 3 * 4_096 },
    Size { name: "3 × 65,536", cells: 3 * 65_536 },
];

/// Of the first windows: generated frames find their way.
const SETTLED: u64 = 100;

/// Windows in a lab of this form, alone.
fn count(context: &Context, form: Form, size: &Size) -> Result<Counted> {
    let cells = if form.halves { size.cells / 2 } else { size.cells };
    let variable = Variable { cells, bits: false, changed: 360.min(cells) };
    let lab = match form.one_cpu {
        true => Cells::one_cpu(&context.places, form.nodes, variable),
        false => Cells::up(&context.places, form.nodes, variable),
    }?;
    lab.wait_for_windows(SETTLED)?;
    let windows =
        if size.cells > 20_000 { context.pick(300, 2_000) } else { context.pick(2_000, 10_000) };
    let counted = lab.count(windows)?;
    lab.verify()?;
    Ok(counted)
}

fn windows(context: &Context, size: &Size, rows: &mut Vec<Row>) -> Result<Value> {
    let forms: Vec<Form> =
        FORMS.into_iter().filter(|form| !form.halves || size.cells > 1).collect();
    let rounds: u32 = context.pick(2, 9);
    let mut counted: Vec<Vec<Counted>> = vec![vec![]; forms.len()];
    for round in 0..rounds {
        for position in 0..forms.len() {
            // Another one is first each time.
            let at = (position + round as usize) % forms.len();
            counted[at].push(count(context, forms[at], size).context(forms[at].name)?);
        }
        context.progress(&format!("{}, round", size.name), round + 1, rounds);
    }
    let mut data = vec![];
    for (form, counted) in forms.iter().zip(&counted) {
        rows.extend(rows_of(size, form, counted));
        let rounds = counted.iter().map(|it| {
            let at = |fraction| quantile(&it.window_us, fraction);
            json!({ "windows": it.windows, "p50_us": at(0.5), "p99_us": at(0.99),
                    "messages": it.group_messages, "bytes": it.group_bytes })
        });
        let rounds: Vec<_> = rounds.collect();
        data.push(json!({ "size": size.name, "form": form.name, "rounds": rounds }));
    }
    let gate = &counted[0];
    for (form, counted) in forms.iter().zip(&counted).skip(1) {
        let ratios = counted.iter().zip(gate).map(|(of, gate)| middle(of) / middle(gate));
        let what = format!("{}: a window of {} / of {}", size.name, form.name, forms[0].name);
        let ratios = summary(&ratios.collect::<Vec<_>>());
        rows.push(Row::value(what, "", ratios, 2, ""));
    }
    Ok(json!(data))
}

fn middle(counted: &Counted) -> f64 {
    quantile(&counted.window_us, 0.5)
}

fn rows_of(size: &Size, form: &Form, counted: &[Counted]) -> [Row; 4] {
    let of = |value: &dyn Fn(&Counted) -> f64| -> Summary {
        summary(&counted.iter().map(value).collect::<Vec<_>>())
    };
    let row = |what: &str, summary, decimals, unit| {
        Row::value(format!("{}, {}: {what}", size.name, form.name), "", summary, decimals, unit)
    };
    [
        row("median", of(&middle), 1, "µs"),
        row("99th percentile", of(&|it| quantile(&it.window_us, 0.99)), 1, "µs"),
        row("messages of a window", of(&|it| it.group_messages), 1, ""),
        row("bytes of a window", of(&|it| it.group_bytes / 1000.0), 1, "kB"),
    ]
}

fn run_packets(context: &Context) -> Result<Outcome> {
    ensure_two_cpus()?;
    let mut outcome = Outcome::default();
    let data = PACKETS.iter().map(|it| packets(context, it, &mut outcome.rows));
    outcome.data = json!(data.collect::<Result<Vec<_>>>()?);
    Ok(outcome)
}

fn run_windows(context: &Context) -> Result<Outcome> {
    ensure_two_cpus()?;
    let mut outcome = Outcome::default();
    let data = SIZES.iter().map(|size| windows(context, size, &mut outcome.rows));
    outcome.data = json!(data.collect::<Result<Vec<_>>>()?);
    Ok(outcome)
}

fn ensure_two_cpus() -> Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "this machine has one CPU; the experiment needs two");
    Ok(())
}
