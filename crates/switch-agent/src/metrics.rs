//! Metrics over HTTP, in Prometheus' text format.

use crate::agent::Agent;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request's head that is longer is not answered.
const HEAD_BYTES: usize = 8 << 10;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Serves for ever.
pub(crate) async fn serve(agent: Arc<Agent>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let agent = agent.clone();
                tokio::spawn(async move {
                    // A client that hangs up or dawdles is its own affair.
                    let _ = tokio::time::timeout(PATIENCE, answer(&agent, stream)).await;
                });
            }
            // Out of descriptors, most likely: let some close.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

async fn answer(agent: &Agent, mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = vec![];
    let mut part = [0u8; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 || head.len() > HEAD_BYTES {
            return Ok(());
        }
        head.extend_from_slice(&part[..read]);
    }
    let (status, body) = if head.starts_with(b"GET /metrics") || head.starts_with(b"GET / ") {
        ("200 OK", text(agent))
    } else {
        ("404 Not Found", "see /metrics\n".to_owned())
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// Writing to a string cannot fail, so the results of `write!` are dropped.
fn text(agent: &Agent) -> String {
    let mut text = String::new();
    let ports = agent.ports().unwrap_or_default();
    type Get = fn(&dataplane::PortStats) -> u64;
    let families: [(&str, &str, Get); 6] = [
        ("rx_packets", "Frames in", |stats| stats.rx_packets),
        ("rx_bytes", "Bytes in", |stats| stats.rx_bytes),
        ("tx_packets", "Frames out", |stats| stats.tx_packets),
        ("tx_bytes", "Bytes out", |stats| stats.tx_bytes),
        ("dropped_packets", "Frames dropped by the program", |stats| stats.dropped),
        ("host_packets", "Frames passed to the kernel", |stats| stats.to_host),
    ];
    for (name, help, get) in families {
        let _ = writeln!(text, "# HELP stateplane_port_{name}_total {help}");
        let _ = writeln!(text, "# TYPE stateplane_port_{name}_total counter");
        for port in &ports {
            let (number, interface, value) = (port.port, &port.interface, get(&port.stats));
            let _ = writeln!(text, "stateplane_port_{name}_total{{port=\"{number}\",interface={interface:?}}} {value}");
        }
    }
    let _ = writeln!(text, "# TYPE stateplane_port_attached gauge");
    for port in &ports {
        let (number, value) = (port.port, u8::from(port.attached));
        let _ = writeln!(text, "stateplane_port_attached{{port=\"{number}\"}} {value}");
    }
    let frames = agent.generator.frames.load(Ordering::Relaxed);
    let errors = agent.generator.errors.load(Ordering::Relaxed);
    let _ =
        writeln!(text, "# TYPE stateplane_generator_frames_total counter\nstateplane_generator_frames_total {frames}");
    let _ =
        writeln!(text, "# TYPE stateplane_generator_errors_total counter\nstateplane_generator_errors_total {errors}");
    let manifest = agent.dataplane.manifest();
    let _ = writeln!(text, "# TYPE stateplane_table_entries gauge");
    for table in &manifest.tables {
        let entries = agent.dataplane.table(&table.name).and_then(|table| table.list());
        if let Ok(entries) = entries {
            let _ = writeln!(text, "stateplane_table_entries{{table={:?}}} {}", table.name, entries.len());
        }
    }
    let swept = agent.swept.load(Ordering::Relaxed);
    let _ = writeln!(text, "# TYPE stateplane_flows_swept_total counter\nstateplane_flows_swept_total {swept}");
    if let Ok(events) = crate::flow_state::events(&agent.dataplane) {
        let _ = writeln!(text, "# HELP stateplane_flow_events_total What the FlowState runtime did, by event");
        let _ = writeln!(text, "# TYPE stateplane_flow_events_total counter");
        for (event, count) in events {
            let _ = writeln!(text, "stateplane_flow_events_total{{event=\"{event}\"}} {count}");
        }
    }
    counters(agent, &mut text);
    text
}

/// Elements that are not zero, of every indirect counter.
fn counters(agent: &Agent, text: &mut String) {
    for (unit, get) in
        [("packets", (|value| value.packets) as fn(&dataplane::CounterValue) -> u64), ("bytes", |value| value.bytes)]
    {
        let _ = writeln!(text, "# TYPE stateplane_counter_{unit}_total counter");
        for counter in agent.dataplane.manifest().counters.iter().filter(|counter| counter.unit.contains(unit)) {
            for index in 0..counter.size.min(4096) {
                match agent.dataplane.read_counter(counter, index).map(|value| get(&value)) {
                    Ok(value) if value != 0 => {
                        let name = &counter.name;
                        let _ = writeln!(
                            text,
                            "stateplane_counter_{unit}_total{{counter={name:?},index=\"{index}\"}} {value}"
                        );
                    }
                    _ => {}
                }
            }
        }
    }
}
