//! The traffic of a run: iperf3's long flows and the idle connections, each in its host's
//! namespace.

use crate::error::{Error, Result};
use crate::instance::Lab;
use crate::interrupt;
use crate::peer::Exchange;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Port of iperf3's server.
const IPERF_PORT: &str = "5201";
/// Port of the echo server.
const ECHO_PORT: &str = "7000";
/// How long a server may take to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

/// A child that is killed when it goes out of scope.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(command: &mut Command, what: &str) -> Result<Guard> {
    command
        .spawn()
        .map(Guard)
        .map_err(|e| Error::Command { command: what.to_string(), reason: e.to_string() })
}

/// Waits until something listens on a TCP port of a node.
fn wait_listening(lab: &Lab, node: &str, port: &str) -> Result<()> {
    let number: u16 = port.parse().unwrap_or(0);
    let wanted = format!(":{number:04X} 00000000:0000 0A");
    let netns = lab.netns(node)?;
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    loop {
        let listening = netns.run(|| {
            let v4 = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
            let v6 = std::fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
            // The same columns, with longer addresses.
            let any_v6 = format!(":{number:04X} 00000000000000000000000000000000:0000 0A");
            Ok(v4.contains(&wanted) || v6.contains(&any_v6))
        });
        if listening.map_err(Error::system(format!("looking for port {port} in {node}")))? {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::Timeout {
                what: format!("{node}: nothing listens on TCP port {port}"),
                seconds: LISTEN_TIMEOUT.as_secs(),
                hint: "is another server on that port?".to_string(),
            });
        }
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// iperf3's flows from one host to another.
pub struct LongFlows {
    client: Guard,
    _server: Guard,
    count: usize,
}

/// How the long flows went.
pub struct LongOutcome {
    /// Flows that were started.
    pub flows: usize,
    /// Flows that broke. iperf3 ends all of them when one breaks, so it is none or all.
    pub broken: usize,
    /// What iperf3 said if they broke.
    pub reason: String,
}

impl LongFlows {
    /// Starts `count` flows that send for `seconds`, at `rate_mbps` in all (0: as fast as they
    /// can).
    ///
    /// # Errors
    /// iperf3 cannot be started.
    pub fn start(
        lab: &Lab,
        ends: (&str, &str, &str),
        count: usize,
        seconds: f64,
        rate_mbps: u32,
    ) -> Result<Self> {
        let (from, to, address) = ends;
        let mut server = lab.netns(to)?.command("iperf3")?;
        server.args(["-s", "-1", "-p", IPERF_PORT]).stdin(Stdio::null());
        let server = spawn(server.stdout(Stdio::null()).stderr(Stdio::null()), "iperf3 -s")?;
        wait_listening(lab, to, IPERF_PORT)?;
        let mut client = lab.netns(from)?.command("iperf3")?;
        client.args(["-c", address, "-p", IPERF_PORT, "-J", "-C", "cubic"]);
        // A second more, so that their end is not taken for a disruption.
        client.args(["-P", &count.to_string(), "-t", &format!("{:.0}", seconds.ceil() + 1.0)]);
        if rate_mbps > 0 {
            // Not --fq-rate: it has TCP pace by its smoothed round trip, in which packets that
            // waited for a lease count for up to a second. -b makes up for an outage by a burst
            // above the rate, which `analysis` does not count. Small blocks, so that the rate is
            // even.
            client.args(["-l", "16K"]);
            client.args(["-b", &format!("{}M", rate_mbps as usize / count.max(1))]);
        }
        client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Self { client: spawn(&mut client, "iperf3 -c")?, _server: server, count })
    }

    /// Whether the flows still go on.
    pub fn running(&mut self) -> bool {
        matches!(self.client.0.try_wait(), Ok(None))
    }

    /// Waits for the flows' end, at most `limit`, and tells how they went.
    pub fn finish(mut self, limit: Duration) -> LongOutcome {
        let deadline = Instant::now() + limit;
        // Read while it runs: its report may be longer than a pipe holds.
        let out = self.client.0.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut out) = out {
                // What came before an error is looked at as it is.
                let _ = std::io::Read::read_to_string(&mut out, &mut text);
            }
            text
        });
        while self.running() && Instant::now() < deadline && !interrupt::requested() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let timed_out = self.running();
        let _ = self.client.0.kill();
        let good = self.client.0.wait().is_ok_and(|s| s.success());
        let text = reader.join().unwrap_or_default();
        let said = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|v| v.get("error")?.as_str().map(str::to_string));
        let reason = match (timed_out, said) {
            (true, _) => "no end of the test: the control connection is dead".to_string(),
            (false, Some(said)) => said,
            (false, None) if good => String::new(),
            (false, None) => "iperf3 failed".to_string(),
        };
        let broken = if reason.is_empty() { 0 } else { self.count };
        LongOutcome { flows: self.count, broken, reason }
    }
}

/// Many connections that are opened once and used now and then.
pub struct IdleConnections {
    stdin: ChildStdin,
    answers: Receiver<Exchange>,
    _client: Guard,
    _server: Guard,
}

impl IdleConnections {
    /// Opens the connections and makes a first exchange on each.
    ///
    /// # Errors
    /// A connection cannot be opened.
    pub fn open(lab: &Lab, ends: (&str, &str, &str), count: usize) -> Result<(Self, Exchange)> {
        let (from, to, address) = ends;
        let exe = std::env::current_exe().map_err(Error::system("finding this program's path"))?;
        let exe = exe.display().to_string();
        let mut server = lab.netns(to)?.command(&exe)?;
        server.args(["lab", "peer", "serve", &format!("0.0.0.0:{ECHO_PORT}")]);
        let server = spawn(server.stdin(Stdio::null()).stdout(Stdio::null()), "echo server")?;
        wait_listening(lab, to, ECHO_PORT)?;
        let mut client = lab.netns(from)?.command(&exe)?;
        client.args(["lab", "peer", "connect", &format!("{address}:{ECHO_PORT}")]);
        client.args(["--count", &count.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = spawn(&mut client, "echo client")?;
        let (Some(stdin), Some(stdout)) = (client.0.stdin.take(), client.0.stdout.take()) else {
            return Err(Error::Run("the echo client has no pipes".to_string()));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                let Ok(exchange) = serde_json::from_str(&line) else { break };
                if sender.send(exchange).is_err() {
                    break;
                }
            }
        });
        let idle = Self { stdin, answers, _client: client, _server: server };
        let opened = idle.wait(Duration::from_secs(20))?;
        Ok((idle, opened))
    }

    /// Has every connection used; the outcome comes later.
    ///
    /// # Errors
    /// The client has died.
    pub fn check(&mut self, label: &str, timeout: Duration) -> Result<()> {
        writeln!(self.stdin, "check {label} {}", timeout.as_millis())
            .and_then(|()| self.stdin.flush())
            .map_err(Error::system("asking the echo client for an exchange"))
    }

    /// An outcome, if one has come.
    pub fn poll(&self) -> Option<Exchange> {
        self.answers.try_recv().ok()
    }

    /// Waits for an outcome.
    ///
    /// # Errors
    /// None comes in time, the client has died, or the process is to stop.
    pub fn wait(&self, limit: Duration) -> Result<Exchange> {
        let deadline = Instant::now() + limit;
        loop {
            match self.answers.recv_timeout(Duration::from_millis(50)) {
                Ok(exchange) => return Ok(exchange),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Run(
                        "the client of the idle connections has died; its reason is above"
                            .to_string(),
                    ));
                }
                Err(RecvTimeoutError::Timeout) if interrupt::requested() => {
                    return Err(Error::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    return Err(Error::Run(format!(
                        "the idle connections gave no outcome within {} s",
                        limit.as_secs()
                    )));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
