//! Metrics in Prometheus' text format, given out by a thread of its own.

use crate::core::Controller;
use state_protocol::Reporter;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The controller's metrics in Prometheus' text format.
pub fn render(core: &Controller, now_ns: u64, bad_tag: u64) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
        let name = format!("stateplane_controller_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    let counters = core.counters();
    let (mut servers, mut switches, mut behind) = (0, 0, 0);
    for (_, seen) in core.peers().filter(|(_, seen)| core.is_alive(now_ns, seen)) {
        match seen.reporter {
            Reporter::Server => servers += 1,
            Reporter::Switch { .. } => switches += 1,
        }
        behind += u64::from(seen.version < core.views().version);
    }
    let shards = &core.views().shards;
    let joining = shards.iter().filter(|view| view.joining.is_some()).count() as u64;
    let shortest = shards.iter().map(|view| view.members.len()).min().unwrap_or(0) as u64;
    metric("leading", "gauge", "Whether this controller decides.", u64::from(core.is_leading()));
    metric("views_version", "gauge", "Version of the views; 0: the cluster has not begun.", core.views().version);
    metric("servers", "gauge", "Servers that report.", servers);
    metric("switches", "gauge", "Switches that report.", switches);
    metric("behind", "gauge", "Servers and switches that do not have the newest views yet.", behind);
    metric("shards", "gauge", "Shards.", shards.len() as u64);
    metric("shards_joining", "gauge", "Shards with a server that catches up.", joining);
    metric("shortest_chain", "gauge", "Servers in the shortest chain.", shortest);
    metric("reports_total", "counter", "Reports taken.", counters.reports);
    metric("reports_old_total", "counter", "Reports older than one that was taken.", counters.reports_old);
    metric("malformed_total", "counter", "Datagrams that are no reports.", counters.malformed);
    metric("bad_tag_total", "counter", "Datagrams that are not genuine.", bad_tag);
    metric("decisions_total", "counter", "Decisions made persistent.", counters.decisions);
    metric("views_sent_total", "counter", "Views sent.", counters.views_sent);
    text
}

/// Answers everybody who connects with the newest text, one after the other.
pub fn serve(listener: TcpListener, text: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let timeouts = stream.set_read_timeout(Some(TIMEOUT)).and(stream.set_write_timeout(Some(TIMEOUT)));
            let mut request = [0; 1024];
            let (Ok(()), Ok(count)) = (timeouts, stream.read(&mut request)) else { continue };
            let found = request[..count].starts_with(b"GET /metrics ");
            let body = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (code, body) = if found { ("200 OK", body) } else { ("404 Not Found", "GET /metrics\n".to_owned()) };
            let head = format!(
                "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // A client that went away needs no answer.
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
}
