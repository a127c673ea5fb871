//! Metrics over HTTP, in Prometheus' text format.

use crate::agent::Agent;
use crate::load::ViewsKnown;
use daemon::metrics::Kind::{Counter, Gauge};
use daemon::metrics::Text;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Of a P4 counter, the first so many.
const MOST_ELEMENTS: u32 = 4_096;
/// How often it is looked who has said nothing for too long.
const LOOK_MS: u16 = 1_000;

/// Serves as long as the process lives, on a thread of its own: reading maps takes its time.
pub(crate) fn serve(agent: Arc<Agent>, mut server: daemon::metrics::Server) -> std::io::Result<()> {
    let serve = move || loop {
        let flags = |writes| if writes { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let mut polled: Vec<_> =
            server.descriptors().map(|(fd, writes)| PollFd::new(fd, flags(writes))).collect();
        if poll(&mut polled, PollTimeout::from(LOOK_MS))
            .is_err_and(|error| error != nix::errno::Errno::EINTR)
        {
            // No memory: the next look is not to come at once.
            std::thread::sleep(std::time::Duration::from_millis(LOOK_MS.into()));
        }
        let now_ns = u64::try_from(agent.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        server.serve(now_ns, || text(&agent));
    };
    std::thread::Builder::new().name("metrics".into()).spawn(serve).map(drop)
}

/// Everything, in Prometheus' text format.
fn text(agent: &Agent) -> String {
    let mut text = Text::default();
    about(agent, &mut text);
    views(agent, &mut text);
    ports(agent, &mut text);
    objects(agent, &mut text);
    agent.systems.metrics(&mut text);
    generator(agent, &mut text);
    gateway(agent, &mut text);
    commit(agent, &mut text);
    drops(agent, &mut text);
    tables(agent, &mut text);
    counters(agent, &mut text);
    text.finish()
}

fn about(agent: &Agent, text: &mut Text) {
    let status = agent.status();
    let mut info =
        text.family("stateplane_switch_info", Gauge, "The switch, by its labels; always 1");
    let incarnation = format!("{:08x}", status.incarnation);
    info.sample(
        &[
            ("name", &status.name),
            ("switch_id", &status.switch_id),
            ("program", &status.program),
            ("incarnation", &incarnation),
            ("version", &env!("CARGO_PKG_VERSION")),
        ],
        1,
    );
    let uptime = agent.started.elapsed().as_secs_f64();
    text.single(
        "stateplane_switch_agent_uptime_seconds",
        Gauge,
        "Time since this agent started",
        uptime,
    );
}

fn views(agent: &Agent, text: &mut Text) {
    let without = agent.views_known() == Some(ViewsKnown::None);
    let help =
        "1: no controller has said where the store is, and packets that need its state are dropped";
    text.single("stateplane_switch_without_views", Gauge, help, u8::from(without));
    let version = agent.views_version.load(Ordering::Relaxed);
    let help = "Version of the last views that a controller sent to this agent; 0: none yet";
    text.single("stateplane_switch_views_version", Gauge, help, version);
    let help = "Messages for the controllers' views that changed nothing, by reason";
    let mut family = text.family("stateplane_switch_views_refused_total", Counter, help);
    let refused = &agent.refused_views;
    for (reason, count) in
        [("bad_tag", &refused.bad_tag), ("malformed", &refused.malformed), ("old", &refused.old)]
    {
        family.sample(&[("reason", &reason)], count.load(Ordering::Relaxed));
    }
}

fn ports(agent: &Agent, text: &mut Text) {
    let ports = agent.ports().unwrap_or_default();
    type Get = fn(&dataplane::PortStats) -> u64;
    let families: [(&str, &str, Get); 6] = [
        ("stateplane_port_rx_packets_total", "Frames in", |stats| stats.rx_packets),
        ("stateplane_port_rx_bytes_total", "Bytes in", |stats| stats.rx_bytes),
        ("stateplane_port_tx_packets_total", "Frames out", |stats| stats.tx_packets),
        ("stateplane_port_tx_bytes_total", "Bytes out", |stats| stats.tx_bytes),
        ("stateplane_port_dropped_packets_total", "Frames dropped by the program", |stats| {
            stats.dropped
        }),
        ("stateplane_port_host_packets_total", "Frames passed to the kernel", |stats| {
            stats.to_host
        }),
    ];
    for (name, help, get) in families {
        let mut family = text.family(name, Counter, help);
        for port in &ports {
            family
                .sample(&[("port", &port.port), ("interface", &port.interface)], get(&port.stats));
        }
    }
    let mut attached =
        text.family("stateplane_port_attached", Gauge, "1: the program is on the port");
    for port in &ports {
        attached.sample(
            &[("port", &port.port), ("interface", &port.interface)],
            u8::from(port.attached),
        );
    }
}

fn objects(agent: &Agent, text: &mut Text) {
    let objects = agent.systems.objects();
    let mut flows = text.family(
        "stateplane_flows",
        Gauge,
        "Entries in the tables of this switch, by state object",
    );
    for object in &objects {
        flows.sample(
            &[("object", &object.name), ("consistency", &object.consistency)],
            object.flows,
        );
    }
    let help = "Flows on which this switch has a lease now, by state object";
    let mut owned = text.family("stateplane_flows_owned", Gauge, help);
    for object in &objects {
        owned.sample(
            &[("object", &object.name), ("consistency", &object.consistency)],
            object.owned,
        );
    }
    let mut limits =
        text.family("stateplane_flows_limit", Gauge, "Entries that fit, by state object");
    for object in &objects {
        limits.sample(
            &[("object", &object.name), ("consistency", &object.consistency)],
            object.limit,
        );
    }
}

fn generator(agent: &Agent, text: &mut Text) {
    let generator = &agent.generator;
    let frames = generator.frames.load(Ordering::Relaxed);
    text.single(
        "stateplane_generator_frames_total",
        Counter,
        "Frames that the packet generator made",
        frames,
    );
    let errors = generator.errors.load(Ordering::Relaxed);
    text.single(
        "stateplane_generator_errors_total",
        Counter,
        "Generator runs that the kernel refused",
        errors,
    );
    text.histogram(
        "stateplane_generator_run_seconds",
        "Time of a generator run",
        &generator.run_ns,
    );
    text.histogram(
        "stateplane_generator_batch_frames",
        "Frames of a generator run",
        &generator.batch,
    );
    let lag = generator.lag_us.load(Ordering::Relaxed) as f64 / 1e6;
    let help = "How much later than its interval the generator last looked for work";
    text.single("stateplane_generator_lag_seconds", Gauge, help, lag);
}

/// A program whose packets do not wait in the switch has none of it.
fn commit(agent: &Agent, text: &mut Text) {
    let counts = agent.commit_load();
    if counts.is_empty() {
        return;
    }
    let help = "Output commit: packets that wait in the switch, their records, batches and \
                acknowledgements, by event";
    let mut events = text.family("stateplane_commit_events_total", Counter, help);
    for (event, count) in &counts {
        events.sample(&[("event", event)], count);
    }
}

fn gateway(agent: &Agent, text: &mut Text) {
    let load = agent.gateway_load();
    let help = "Routers behind ports that routes name, by whether the kernel knows their MAC";
    let mut hops = text.family("stateplane_next_hops", Gauge, help);
    hops.sample(&[("state", &"resolved")], load.next_hops.saturating_sub(load.unresolved.len()));
    hops.sample(&[("state", &"unresolved")], load.unresolved.len());
    let help = "Other events of a gateway's program: ICMP errors, the slow path, fragments";
    let mut events = text.family("stateplane_gateway_events_total", Counter, help);
    for (event, count) in &load.events {
        events.sample(&[("event", event)], count);
    }
    let help = "What the agent did for the program, by result: packets sent by the kernel, fragments \
                held, next hops asked";
    let mut results = text.family("stateplane_gateway_agent_total", Counter, help);
    for (result, count) in &load.agent {
        results.sample(&[("result", result)], count);
    }
    let help = "Fragments that wait for the first of their packet";
    text.single("stateplane_gateway_fragments_held", Gauge, help, load.held);
    let narrow = agent.narrow_ports();
    let help = "1: the MTU of this fabric port is too small for the hosts' longest packets inside \
                messages; such packets are dropped (too_big)";
    let mut ports = text.family("stateplane_port_mtu_too_small", Gauge, help);
    for port in agent.config.port.iter().filter(|port| port.fabric) {
        let is_narrow = narrow.iter().any(|it| it.port == port.port);
        let labels: &[(&str, &dyn std::fmt::Display)] =
            &[("port", &port.port), ("interface", &port.interface)];
        ports.sample(labels, u8::from(is_narrow));
    }
}

/// `stateplane status` shows the same, with rates and remedies.
fn drops(agent: &Agent, text: &mut Text) {
    let help = "Packets, messages and updates that the switch dropped, by reason";
    let mut family = text.family("stateplane_drops_total", Counter, help);
    for (part, drops) in agent.drop_counts() {
        family.sample(&[("part", &part), ("reason", &drops.reason)], drops.count);
    }
}

fn tables(agent: &Agent, text: &mut Text) {
    let manifest = agent.dataplane.manifest();
    let mut family = text.family("stateplane_table_entries", Gauge, "Entries of a P4 table");
    for table in &manifest.tables {
        let entries = agent.dataplane.table(&table.name).and_then(|table| table.list());
        if let Ok(entries) = entries {
            family.sample(&[("table", &table.name)], entries.len());
        }
    }
}

/// Elements that are not zero, of every indirect counter.
fn counters(agent: &Agent, text: &mut Text) {
    type Get = fn(&dataplane::CounterValue) -> u64;
    let families: [(&str, &str, &str, Get); 2] = [
        (
            "packets",
            "stateplane_counter_packets_total",
            "Packets that a P4 counter's element counted",
            |it| it.packets,
        ),
        (
            "bytes",
            "stateplane_counter_bytes_total",
            "Bytes that a P4 counter's element counted",
            |it| it.bytes,
        ),
    ];
    for (unit, name, help, get) in families {
        let mut family = text.family(name, Counter, help);
        for counter in
            agent.dataplane.manifest().counters.iter().filter(|counter| counter.unit.contains(unit))
        {
            for index in 0..counter.size.min(MOST_ELEMENTS) {
                match agent.dataplane.read_counter(counter, index).map(|value| get(&value)) {
                    Ok(value) if value != 0 => {
                        family.sample(&[("counter", &counter.name), ("index", &index)], value);
                    }
                    _ => {}
                }
            }
        }
    }
}
