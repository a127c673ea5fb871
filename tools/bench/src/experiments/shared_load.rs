//! Switches that share state under as much traffic as the CPUs carry: what the windows cost the
//! traffic, and what the traffic costs the windows (SwiSh §9.2, full load).

use super::{Context, Experiment, Page};
use crate::frame::FRAME_BYTES;
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::shared::cells::{Cells, Counted, Variable};
use crate::shared::live;
use crate::shared::load::{Lane, under_load};
use crate::shared::network::Network;
use crate::statistics::{Summary, quantile, ratio_summary, summary};
use anyhow::{Context as _, Result, ensure};
use plot::{Axes, Group};
use serde_json::json;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-load",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, full load",
        title: "windows and traffic under full load",
        quick: "2 min",
        full: "6 min",
        shows: "\
            packets that detector and limiter forward with windows of 10 ms, for each CPU second, \
            over those of the same programs with state of their own; how long windows without a \
            pause take under full load and without traffic, and what is forwarded with and \
            without them",
        paper: "\
            SwiSh §9.2: 486 µs for a window of 3 × 64 K counters at 1.8 Gpps, 3.2 µs for one \
            counter at 2.1 Gpps: no influence on windows could be measured, and packets are \
            processed at line rate.",
        method: "\
            64-byte packets. On each of two CPUs a generator, a switch and a sink; each CPU does \
            all steps of its packets, and its part of the windows. Functions: two of the four \
            switches of a lab get traffic. CPU seconds are those of generators, switches and \
            sinks, and of these two switches' agents; with windows also what the other two \
            switches' messages take on these CPUs. Labs come up by turns, one at a time, so that \
            the windows of one are not in the other's figures. Packets of the detector are of 64 \
            sources and four destinations each, which it knows: they read. Those of the limiter \
            update. Windows: two switches, windows without a pause. In the first row user space \
            changes all cells, as in `shared-windows`, which verifies the contents, and packets \
            read a random cell. In the others each packet adds to one of 4,096 random cells, or \
            of all. It goes back. The paper's switches have hardware of their own for both; here \
            windows without a pause take the CPU from packets, and the other way round.",
    },
};

const CPUS: usize = 2;
const PERIOD_US: u32 = 10_000;
const COUNTED: Duration = Duration::from_millis(1000);
/// Different updates.
const UPDATES: u32 = 4096;

/// A program of systems/swish/p4: shared and local.
const FUNCTIONS: [(&str, [&str; 2]); 2] = [
    ("detector", ["DETECTOR_SDW", "DETECTOR_LOCAL"]),
    ("limiter", ["LIMITER_SDW", "LIMITER_LOCAL"]),
];

/// Windows and packets beside each other.
#[derive(Clone, Copy)]
struct Beside {
    what: &'static str,
    paper: &'static str,
    /// Counters of a row, of three rows.
    row: u32,
    /// User space changes all cells, and packets read; otherwise packets change cells.
    filled: bool,
}

const BESIDE: [Beside; 3] = [
    Beside { what: "3 × 65,536, all changed", paper: "486 µs", row: 65_536, filled: true },
    Beside { what: "3 × 65,536, some changed", paper: "", row: 65_536, filled: false },
    Beside { what: "3 × 1", paper: "3.2 µs", row: 1, filled: false },
];

/// Packets that a lab of its own forwards for each CPU second.
fn forwarded(
    context: &Context,
    traffic: &Path,
    program: &str,
    define: &str,
    mode: &str,
) -> Result<f64> {
    let vars = [
        ("program", program.to_owned()),
        ("define", define.to_owned()),
        ("period_us", PERIOD_US.to_string()),
    ];
    let network = Network::up(&context.places.stateplane, mode, &vars)?;
    let lane = |switch: usize| {
        if program == "limiter" {
            live::set_limits(&network.dataplane(switch)?)?;
        }
        let ends = [network.netns('a', switch)?, network.netns('v', switch)?];
        Lane::new(traffic, switch, ends, &format!("s{}", switch + 1), &live::frames())
    };
    let lanes = (0..CPUS).map(lane).collect::<Result<Vec<_>>>()?;
    let agents = (0..CPUS).map(|switch| network.agent(switch)).collect::<Result<Vec<_>>>()?;
    let ((), carried) = under_load(&lanes, &agents, || {
        sleep(COUNTED);
        Ok(())
    })?;
    Ok(carried.per_cpu_s)
}

/// `update_t` of setups/shared_cells.p4, at random cells.
fn packets(cells: u32, amount: u32) -> Vec<Vec<u8>> {
    let frame = |number: u32| {
        let mut frame = vec![0; FRAME_BYTES];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
        let cell = number.wrapping_mul(0x9e37_79b1) % cells;
        frame[14..18].copy_from_slice(&cell.to_be_bytes());
        frame[18..22].copy_from_slice(&amount.to_be_bytes());
        frame
    };
    (0..UPDATES).map(frame).collect()
}

/// What two switches do with traffic, without windows, and with both.
#[derive(Default)]
struct Loaded {
    idle: Vec<Counted>,
    loaded: Vec<Counted>,
    /// Packets a second without windows, and with them.
    alone: Vec<f64>,
    beside: Vec<f64>,
}

fn load(context: &Context, traffic: &Path, it: Beside, rounds: u32) -> Result<Loaded> {
    let changed = if it.filled { 360.min(3 * it.row) } else { 0 };
    let variable = Variable { cells: 3 * it.row, bits: false, changed };
    let cells = Cells::with_hosts(&context.places, CPUS, variable)?;
    cells.wait_for_windows(100)?;
    let frames = packets(variable.cells, u32::from(!it.filled));
    let lane = |switch: usize| {
        let interface = format!("s{}", switch + 1);
        Lane::new(traffic, switch, [cells.host(switch)?, cells.host(switch)?], &interface, &frames)
    };
    let lanes = (0..CPUS).map(lane).collect::<Result<Vec<_>>>()?;
    let windows =
        if it.row > 1000 { context.pick(300, 2_000) } else { context.pick(1_000, 10_000) };
    let mut all = Loaded::default();
    for round in 0..rounds {
        all.idle.push(cells.count(windows).context("without traffic")?);
        let (counted, carried) =
            under_load(&lanes, &[], || cells.count(windows).context("under load"))?;
        all.loaded.push(counted);
        all.beside.push(carried.per_s);
        cells.stop_windows(true);
        let ((), carried) = under_load(&lanes, &[], || {
            sleep(COUNTED);
            Ok(())
        })?;
        all.alone.push(carried.per_s);
        cells.stop_windows(false);
        context.progress(&format!("{}, round", it.what), round + 1, rounds);
    }
    Ok(all)
}

fn of(counted: &[Counted], share: f64) -> Summary {
    summary(&counted.iter().map(|it| quantile(&it.window_us, share)).collect::<Vec<_>>())
}

fn mega(rates: &[f64]) -> Summary {
    summary(&rates.iter().map(|rate| rate / 1e6).collect::<Vec<_>>())
}

fn run(context: &Context) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= CPUS, "shared-load: this machine has one CPU; the experiment needs two");
    let traffic = context.places.compile_c("traffic")?;
    let rounds = context.pick(3, 9);
    let mut outcome = Outcome::default();
    let (mut data, mut groups) = (vec![], vec![]);
    for (program, defines) in FUNCTIONS {
        let mut rates = [vec![], vec![]];
        for round in 0..rounds {
            for turn in 0..2 {
                let at = ((turn + round) % 2) as usize;
                let mode = ["shared", "alone"][at];
                rates[at].push(forwarded(context, &traffic, program, defines[at], mode)?);
            }
            context.progress(&format!("{program}, round"), round + 1, rounds);
        }
        let [shared, local] = &rates;
        let what = format!("{program}: packets for a CPU second, shared / local");
        let row = Row::value(what, "1", ratio_summary(shared, local), 3, "");
        let judged = program == "detector";
        outcome.rows.push(if judged { row.with_goal(Goal::AtLeast(0.9)) } else { row });
        for (name, rates) in ["shared", "local"].into_iter().zip(&rates) {
            let rate = mega(rates);
            let what = format!("{program}, {name}");
            outcome.rows.push(Row::value(&what, "", rate, 3, "M packets/CPU s"));
            groups.push(Group { name: what, bars: vec![Some((rate.median, rate.low, rate.high))] });
        }
        data.push(json!({ "program": program, "shared": shared, "local": local }));
    }
    for beside in BESIDE {
        let it = load(context, &traffic, beside, rounds)?;
        let name = beside.what;
        for (what, counted) in [("no traffic", &it.idle), ("full load", &it.loaded)] {
            let row = Row::value(format!("{name}, {what}: median"), "", of(counted, 0.5), 1, "µs");
            outcome.rows.push(row);
            let what = format!("{name}, {what}: 99th percentile");
            outcome.rows.push(Row::value(what, beside.paper, of(counted, 0.99), 1, "µs"));
        }
        let what = format!("{name}: packets a second / without windows");
        outcome.rows.push(Row::value(what, "1", ratio_summary(&it.beside, &it.alone), 3, ""));
        let what = format!("{name}: without windows");
        outcome.rows.push(Row::value(what, "", mega(&it.alone), 3, "M packets/s"));
        let median = |all: &[Counted]| all.iter().map(|it| quantile(&it.window_us, 0.5)).collect();
        let (idle, loaded): (Vec<f64>, Vec<f64>) = (median(&it.idle), median(&it.loaded));
        data.push(json!({ "what": name, "alone": it.alone, "beside": it.beside,
                          "idle_p50_us": idle, "loaded_p50_us": loaded }));
    }
    let axes = Axes {
        title: "Forwarding with state shared and local".into(),
        y: "M packets for a CPU second".into(),
        ..Axes::default()
    };
    let svg = plot::bars(&axes, &["packets"], &groups)?;
    outcome.figures.push(Figure { name: "shared-load".into(), svg });
    outcome.data = json!(data);
    Ok(outcome)
}
