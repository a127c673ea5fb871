//! Figure 12: throughput of each application, with and without fault tolerance.

use super::{Context, Experiment, Page};
use crate::apps::{App, SWITCH};
use crate::contention::process_cpu_ns;
use crate::labs::Running;
use crate::line::{Delivered, Line};
use crate::messages::Messages;
use crate::report::Goal;
use crate::results::{Outcome, Row};
use crate::sides::{self, Aim, Missing};
use crate::statistics::{ratio_summary, summary};
use crate::trace::{self, Played};
use crate::xdp_time::{Counting, Programs};
use anyhow::{Context as _, Result};
use plot::Axes;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig12",
    plays_a_trace: true,
    run,
    page: Page {
        figure: "Figure 12",
        title: "throughput of each application, with and without fault tolerance",
        quick: "60 s",
        full: "6 min",
        shows: "throughput of each application with and without fault tolerance",
        paper: "\
            RedPlane §7.2, 64-byte packets: read-centric applications and the heavy-hitter \
            detector reach the throughput that they have without fault tolerance; the EPC gateway \
            a little less; the synchronous counter about half, bound by the store.",
        method: "\
            Each application's lab is up twice at the same time, with and without fault tolerance, \
            and both take turns. The kernel makes 64-byte packets of 1,024 known flows (the \
            gateway's: one signalling packet for every 17) on the router before the switch, and \
            XDP counts what comes out. Generator and switch share one CPU. (With --pcap, \
            applications that take any packets get a capture's, with its lengths; a note names \
            it.)\n\n\
            Read-centric applications and the sketches, whose packets wait for nobody, get as many \
            packets as can be made, in many short turns: the next when the last are through, as \
            more would only be dropped before the switch, and BFD's packets with them; what \
            compares is packets for each second in which generator and switch had their CPU, so \
            that other processes do not matter much. Flows are warm, as in the paper's steady \
            state: \"messages for each packet\" says that no set-up is in the figures. The others \
            get several rates, the last without a limit, and the most that comes through by the \
            clock on the wall counts; the router behind the switch handles their packets on the \
            other CPU (RPS). What the stores cannot follow the switch drops before it \
            costs anything (systems/redplane/docs/state-protocol.md, \"Window\"), so more than the \
            capacity gives the capacity; \"messages for each packet\" is 2 then, as it is below \
            it.\n\n\
            The counter's ratio is bound by this machine, not by the protocol's order: its switch \
            makes millions of packets a second on one core, and three store servers, the router \
            between (which forwards six messages for each update in the kernel, partly on the \
            switch's core) and the counting rules share the two. In the paper stores are three \
            machines with kernel bypass, and the switch is held at its link's rate. So the CPU \
            time of each part is measured too (the switch's XDP program with all its messages; the \
            busiest store; at four fifths of what comes through), and the model tells what the \
            ratio is with a core for the switch and each store, and with so many store servers \
            that the switch is the bound: an update is several runs of XDP programs, two messages \
            and their tags beside one run without, where the paper's pipeline takes each packet in \
            one clock.",
    },
};

const FLOWS: u32 = 1_024;
/// Packets of a capture that are played, round and round.
const CAPTURED: u32 = 4_096;
/// The controller's node and daemon in the labs.
const CONTROLLER: &str = "controller";
/// Packets a second at which CPU time is taken, where more would come through without waiting.
const COST_RATE: f64 = 30_000.0;
/// Where packets wait for the stores: at this share of what comes through, so that servers handle
/// messages in batches, as they do when it matters.
const COST_SHARE: f64 = 0.8;

/// Turns of each side: many short ones, as what else the machine does comes and goes.
#[derive(Clone, Copy)]
struct Amount {
    rounds: usize,
    window: Duration,
    /// For applications whose packets wait for stores: some deliver less when they are offered too
    /// much.
    rates: &'static [Option<f64>],
    rated_rounds: usize,
}

/// What one turn of one side gave.
#[derive(Serialize)]
struct Turn {
    #[serde(flatten)]
    delivered: Delivered,
    /// Views that the controller decided on meanwhile: a chain that loses a server serves nobody
    /// until then. Without fault tolerance there is no controller.
    view_changes: Option<u64>,
}

/// One side: its line, and how its controller is asked.
struct Meter {
    line: Line,
    controller: Option<(lab::netns::Netns, Vec<String>)>,
}

impl Meter {
    fn new(context: &Context, lab: &Running, line: Line) -> Result<Meter> {
        if lab.daemons_named(CONTROLLER).is_empty() {
            return Ok(Meter { line, controller: None });
        }
        let (_, address) = lab.host_port(CONTROLLER)?;
        let secrets = lab.dir().join("fabric.secrets");
        let words = [
            "controller",
            "status",
            "--json",
            "--address",
            &format!("{address}:5408"),
            "--secrets",
        ];
        let mut command = vec![context.places.stateplane.display().to_string()];
        command.extend(words.map(str::to_owned));
        command.push(secrets.display().to_string());
        Ok(Meter { line, controller: Some((lab.netns(CONTROLLER)?, command)) })
    }

    /// The version of the views.
    fn version(&self) -> Result<Option<u64>> {
        let Some((netns, command)) = &self.controller else { return Ok(None) };
        // It fails when a chain is not complete, and says so in the same form.
        let (_, said) = lab::process::run(Some(netns), command)?;
        let status: Value = serde_json::from_str(&said)
            .with_context(|| format!("the controller's status: {said}"))?;
        Ok(status["version"].as_u64())
    }

    fn turn(&self, rates: &[Option<f64>], window: Duration) -> Result<Turn> {
        let before = self.version()?;
        let delivered = self.line.most(rates, window)?.0;
        let view_changes =
            before.zip(self.version()?).map(|(before, after)| after.saturating_sub(before));
        Ok(Turn { delivered, view_changes })
    }
}

/// One application's samples, with fault tolerance first.
#[derive(Serialize)]
struct Measured {
    samples: [Vec<Turn>; 2],
    /// Messages of the state protocol for each packet that came out with fault tolerance.
    messages_a_packet: f64,
    costs: Costs,
}

/// CPU time of the parts for each packet that comes out, at a rate that all can follow, in ns.
#[derive(Clone, Copy, Default, Serialize)]
struct Costs {
    /// The switch's XDP program, with fault tolerance and without; messages are in it.
    switch: [f64; 2],
    /// The busiest store server, with its XDP program.
    store: f64,
    /// Packets a second at which this was taken.
    rate: f64,
}

impl Costs {
    /// Throughput with fault tolerance over that without, if the switch and each store had a core
    /// of their own and the fabric cost nothing.
    fn ratio_alone(&self) -> f64 {
        self.switch[1] / self.switch[0].max(self.store)
    }

    /// The same with more store servers than the switch can use.
    fn ratio_of_switch(&self) -> f64 {
        self.switch[1] / self.switch[0]
    }

    /// So many store servers, each with a core, in chains of three over all shards, until the
    /// switch is the bound.
    fn servers_for_switch(&self) -> f64 {
        (3.0 * self.store / self.switch[0]).ceil().max(3.0)
    }
}

/// A store server: its process, and the program of its fast path, if it has one.
struct Server {
    process: i32,
    program: Option<Programs>,
}

impl Server {
    fn cpu_ns(&self) -> Result<u64> {
        let program_ns = self.program.as_ref().map_or(Ok(0), Programs::run_ns)?;
        Ok(process_cpu_ns(self.process)? + program_ns)
    }
}

fn stores(lab: &Running) -> Vec<Server> {
    let of_node = |node: &String| {
        let (_, identity) = lab.daemons(node).into_iter().find(|(daemon, _)| daemon == "store")?;
        Some(Server { process: identity.pid, program: Programs::of(lab, node).ok() })
    };
    lab.topology().node.keys().filter_map(of_node).collect()
}

fn costs(sides: &mut [sides::Side<Meter>; 2], rate: f64, window: Duration) -> Result<Costs> {
    let _counting = Counting::begin()?;
    let mut costs = Costs { rate, ..Costs::default() };
    for (index, side) in sides.iter_mut().enumerate() {
        let programs = Programs::of(&side.lab, SWITCH)?;
        side.tool.line.refresh()?;
        let servers = stores(&side.lab);
        let stores = || servers.iter().map(Server::cpu_ns).collect::<Result<Vec<u64>>>();
        let before = (programs.run_ns()?, stores()?, side.tool.line.counted()?.0);
        side.tool.line.offer(Some(rate), window)?;
        let packets = (side.tool.line.counted()?.0 - before.2).max(1) as f64;
        costs.switch[index] = (programs.run_ns()? - before.0) as f64 / packets;
        if index == 0 {
            let busiest =
                stores()?.iter().zip(&before.1).map(|(after, before)| after - before).max();
            costs.store = busiest.unwrap_or(0) as f64 / packets;
        }
    }
    Ok(costs)
}

/// What is compared: applications whose packets wait for nobody by what their CPU did, others by
/// the clock on the wall.
fn rate_of(app: &App, delivered: &Delivered) -> f64 {
    if !app.waits() { delivered.per_cpu_s.unwrap_or_default() } else { delivered.delivered }
}

/// The router behind the switch handles what comes in on CPU 1, where stores and counting rules
/// are, too (RPS). By default it does so on the CPU that sent it, the switch's.
fn hand_on(lab: &Running) -> Result<()> {
    const ROUTER: &str = "tor";
    let script = "for mask in /sys/class/net/*/queues/rx-*/rps_cpus; do echo 2 > $mask; done";
    let netns = lab.netns(ROUTER)?;
    // `ip netns exec` shows the namespace's own /sys.
    let words = ["ip", "netns", "exec", netns.name(), "sh", "-c", script];
    let (good, said) = lab::process::run(None, &words.map(str::to_owned))?;
    anyhow::ensure!(good, "{ROUTER}: receive packet steering: {said}");
    Ok(())
}

fn measure(
    context: &Context,
    app: &App,
    captured: Option<&Played>,
    amount: Amount,
) -> Result<Measured> {
    let mut sides = sides::both(context, app, FLOWS, captured, |lab, traffic| {
        // Every flow has its lease before anything is counted.
        app.prepare(context, lab, &traffic.frames)?;
        Meter::new(context, lab, app.line(context, lab, &traffic.frames)?)
    })?;
    if app.waits() {
        sides.iter().try_for_each(|side| hand_on(&side.lab))?;
    }
    let (rates, rounds): (&[Option<f64>], _) =
        if !app.waits() { (&[None], amount.rounds) } else { (amount.rates, amount.rated_rounds) };
    let messages = Messages::count(&sides[0].lab)?;
    let before = sides[0].tool.line.counted()?.0;
    let samples = sides::by_turns(&mut sides, rounds, |meter, _| meter.turn(rates, amount.window))?;
    let packets = sides[0].tool.line.counted()?.0 - before;
    let messages_a_packet = messages.seen()?.packets as f64 / packets.max(1) as f64;
    let rate = if app.waits() {
        COST_SHARE
            * summary(&samples[0].iter().map(|turn| turn.delivered.delivered).collect::<Vec<f64>>())
                .median
    } else {
        COST_RATE
    };
    let costs = costs(&mut sides, rate, 2 * amount.window)?;
    Ok(Measured { samples, messages_a_packet, costs })
}

fn goal(app: &App) -> Option<Goal> {
    match (app.read_centric, app.folder) {
        (true, _) => Some(Goal::AtLeast(0.97)),
        (false, "flow_counter") if app.waits() => Some(Goal::AtLeast(0.25)),
        _ => None,
    }
}

fn ratio_name(app: &App) -> String {
    format!("{}: with / without", app.name)
}

fn aims(app: &App) -> Vec<Aim> {
    goal(app).map(|goal| (ratio_name(app), app.paper[2], goal)).into_iter().collect()
}

fn rows(app: &App, measured: &Measured, rows: &mut Vec<Row>) {
    let rates = |side: usize| -> Vec<f64> {
        measured.samples[side].iter().map(|turn| rate_of(app, &turn.delivered) / 1e6).collect()
    };
    let (with, without) = (rates(0), rates(1));
    let unit = if !app.waits() { "M packets a CPU second" } else { "M packets/s" };
    let ratio = Row::value(ratio_name(app), app.paper[2], ratio_summary(&with, &without), 3, "");
    rows.push(match goal(app) {
        Some(goal) => ratio.with_goal(goal),
        None => ratio,
    });
    rows.push(Row::value(format!("{}: with", app.name), "", summary(&with), 3, unit));
    let turns = || measured.samples.iter().flatten();
    let nothing = turns().filter(|turn| turn.delivered.delivered == 0.0).count();
    if nothing > 0 {
        rows.push(Row::text(
            format!("{}: turns in which nothing came through", app.name),
            "",
            nothing.to_string(),
        ));
    }
    let changed =
        turns().filter(|turn| turn.view_changes.is_some_and(|changes| changes > 0)).count();
    if changed > 0 {
        rows.push(Row::text(
            format!("{}: turns in which a chain changed", app.name),
            "",
            changed.to_string(),
        ));
    }
    let taken: Vec<f64> = turns().filter_map(|turn| turn.delivered.taken_percent).collect();
    let mut said = format!("{:.4} messages", measured.messages_a_packet);
    if !taken.is_empty() {
        said += &format!(", others had the CPU for {:.1} %", summary(&taken).median);
    }
    rows.push(Row::text(format!("{}: for each packet", app.name), "", said));
    let Costs { switch: [with, without], store, rate } = measured.costs;
    let what = format!("{}: CPU time for each packet at {:.0}k packets/s", app.name, rate / 1e3);
    rows.push(Row::text(
        what,
        "",
        format!("switch {with:.0} ns (without: {without:.0}), busiest store {store:.0} ns"),
    ));
    if app.folder == "flow_counter" && app.waits() {
        let model = |what: &str, ratio: f64| {
            let what = format!("{}: with / without, {what} (model)", app.name);
            Row::value(what, "about a half", summary(&[ratio]), 3, "")
        };
        let alone = model("a core each for switch and stores", measured.costs.ratio_alone());
        rows.push(alone.with_goal(Goal::AtLeast(0.4)));
        let servers = measured.costs.servers_for_switch();
        let what = format!("a core each for switch and {servers:.0} store servers");
        rows.push(model(&what, measured.costs.ratio_of_switch()));
    }
}

/// Runs it.
///
/// # Errors
/// A figure cannot be drawn; an application that cannot be measured is named in a note, and misses
/// its goals.
fn run(context: &Context) -> Result<Outcome> {
    let amount = context.pick(
        Amount {
            rounds: 30,
            window: Duration::from_millis(60),
            rates: &[Some(150e3), Some(240e3), Some(320e3), Some(400e3), Some(480e3), None],
            rated_rounds: 2,
        },
        Amount {
            rounds: 150,
            window: Duration::from_millis(100),
            rates: &[
                Some(60e3),
                Some(120e3),
                Some(180e3),
                Some(240e3),
                Some(300e3),
                Some(360e3),
                Some(420e3),
                Some(480e3),
                None,
            ],
            rated_rounds: 7,
        },
    );
    // What is wrong with a capture is said before anything is brought up.
    let captured = trace::captured(context, CAPTURED)?;
    let (mut all, mut groups, mut data) = (Vec::new(), Vec::new(), serde_json::Map::new());
    let Missing { mut notes, rows: missed } = sides::each_app(
        context,
        &[],
        |_| true,
        aims,
        |app| {
            let measured = measure(context, app, captured.as_ref(), amount)?;
            rows(app, &measured, &mut all);
            let side = |side: usize| {
                summary(
                    &measured.samples[side]
                        .iter()
                        .map(|turn| rate_of(app, &turn.delivered) / 1e6)
                        .collect::<Vec<f64>>(),
                )
            };
            groups.push(sides::group(app, side(0), side(1)));
            data.insert(app.name.to_owned(), serde_json::to_value(&measured)?);
            Ok(())
        },
    );
    all.extend(missed);
    let packets = if captured.is_some() { "a capture's packets" } else { "64-byte packets" };
    if let Some((note, described)) = captured.and_then(|played| played.capture) {
        notes.push(format!(
            "{note} Applications that take only packets of their own have these, of 64 bytes."
        ));
        data.insert("pcap".to_owned(), described);
    }
    let axes = Axes {
        title: format!("Throughput of each application, {packets}"),
        y: "M packets/s".into(),
        ..Axes::default()
    };
    let figure = sides::figure("fig12", &axes, &groups)?;
    Ok(Outcome { rows: all, notes, figures: vec![figure], data: Value::Object(data) })
}
