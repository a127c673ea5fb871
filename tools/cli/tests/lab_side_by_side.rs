//! Several labs on one host do not disturb each other: a lab's traffic goes on without a lost
//! packet while another lab comes up, loses a switch and goes down, and while the demonstration
//! runs. Needs root. Waits for timers.

mod common;

use common::{Connections, INSIDE, TestLab, skip, tcp_echo, udp_echo};
use serde_json::Value;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A request and its answer every 5 ms; counts those without an answer within a second.
struct Stream {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(u64, u64)>,
}

impl Stream {
    fn start(lab: &TestLab) -> Self {
        let echo = udp_echo(lab, 9000);
        let socket = lab.netns("inside").run(|| UdpSocket::bind((INSIDE, 0))).expect("bind");
        socket.connect(echo).expect("connect");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut sent, mut lost) = (0_u64, 0);
            while !stopped.load(Ordering::Relaxed) {
                sent += 1;
                let mut answer = [0; 8];
                let good =
                    socket.send(&sent.to_be_bytes()).is_ok() && socket.recv(&mut answer).is_ok();
                lost += u64::from(!good || answer != sent.to_be_bytes());
                std::thread::sleep(Duration::from_millis(5));
            }
            (sent, lost)
        });
        Self { stop, thread }
    }

    /// How many were sent, and how many of them lost.
    fn finish(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the stream ends")
    }
}

/// The demonstration, ended with the test.
struct Demo {
    child: Child,
    out: PathBuf,
}

impl Demo {
    fn start() -> Self {
        let out = std::env::temp_dir().join(format!("stateplane-demo-{}", std::process::id()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
        command.args([
            "demo",
            "--seconds",
            "10",
            "--runs",
            "with,without",
            "--connections",
            "50",
            "--rate",
            "100",
        ]);
        command.arg("--topology").arg(common::topology("nat.toml")).arg("--out").arg(&out);
        Self {
            child: command.stdout(Stdio::null()).spawn().expect("the demonstration starts"),
            out,
        }
    }

    /// Its `failover.json`.
    fn finish(mut self) -> Value {
        let status = self.child.wait().expect("the demonstration ends");
        assert!(status.success(), "{status}");
        let figure = std::fs::read_to_string(self.out.join("failover.svg")).expect("figure");
        assert!(figure.contains("</svg>") && figure.contains("s1 fails"));
        let text = std::fs::read(self.out.join("failover.json")).expect("result");
        serde_json::from_slice(&text).expect("JSON")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // SIGTERM lets it take its lab down; it may have ended by itself.
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let _ = self.child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.out);
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|o| o.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// Of a stream of one each 5 ms: a tenth of a second.
const MOST_LOST: u64 = 20;

#[test]
fn labs_and_the_demonstration_run_side_by_side() {
    if skip() {
        return;
    }
    let (steady, other) = std::thread::scope(|scope| {
        let steady = scope.spawn(|| TestLab::up("steady", "nat.toml", &[]));
        let other = scope.spawn(|| TestLab::up("other", "nat.toml", &[]));
        (steady.join().expect("up"), other.join().expect("up"))
    });
    let mut connections = Connections::open(&steady, tcp_echo(&steady, 8000), 10);
    let mut others = Connections::open(&other, tcp_echo(&other, 8000), 10);
    let stream = Stream::start(&steady);

    other.fail("s1");
    others.all_answer("the other lab's s1 is dead");
    connections.all_answer("the other lab's s1 is dead");
    drop(others);
    other.down();
    connections.all_answer("the other lab is down");

    let demo = Demo::start();
    let demo_lab = format!("demo-{}", demo.child.id());
    let result = demo.finish();
    assert_eq!(common::leftovers(&demo_lab), Vec::<String>::new());
    connections.all_answer("the demonstration is over");
    let (sent, lost) = stream.finish();
    // What the other labs do to this one lasts as long as a failover: 40 datagrams and more. A
    // queue that runs over beside other tests loses one or two.
    assert!(sent > 1000 && lost < MOST_LOST, "{lost} of {sent} datagrams were lost");
    steady.down();

    assert_eq!(keys(&result), ["kernel", "lease_ms", "with", "without"]);
    let fields = [
        "connections",
        "connections_broken",
        "goodput_mbps",
        "recovery_fail_s",
        "recovery_return_s",
    ];
    for run in ["with", "without"] {
        assert_eq!(keys(&result[run]), fields);
        assert_eq!(result[run]["connections"], 54);
        assert_eq!(result[run]["goodput_mbps"].as_array().map(Vec::len), Some(100));
    }
    assert_eq!(result["with"]["connections_broken"], 0);
    assert_eq!(result["without"]["connections_broken"], 54);
    assert!(result["without"]["recovery_fail_s"].is_null());
    for recovery in ["recovery_fail_s", "recovery_return_s"] {
        let seconds = result["with"][recovery].as_f64().expect("a number");
        // (Beside other tests TCP may lose a segment twice, and waits longer each time.)
        assert!(seconds <= 3.0, "{recovery} = {seconds}");
    }
}
