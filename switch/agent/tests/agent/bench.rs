//! A switch between two hosts, each in a network namespace of its own.

use crate::fixture;
use netns::Netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::io::Read;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use switch_agent::control::{Reply, Request, Status};
use switch_agent::{RunDirectory, client};

/// The environment's variable with the configuration of the agent's process.
pub const CONFIG_VARIABLE: &str = "SP_AGENT_TEST_CONFIG";
/// Datagrams sent around a change, at least.
const LEAST_SENT: u32 = 500;
/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(line: &str) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until `check` gives something.
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Three namespaces: left (10.77.0.1) — switch — right (10.77.0.2), and the switch's configuration.
pub struct Bench {
    pub name: String,
    pub folder: tempfile::TempDir,
    pub agent: RefCell<Option<Child>>,
}

impl Bench {
    pub fn new(definitions: &[&str]) -> Bench {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("spt{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let bench = Bench {
            name: name.clone(),
            folder: tempfile::tempdir().unwrap(),
            agent: RefCell::new(None),
        };
        fixture::build(bench.folder.path(), definitions);
        for side in ["l", "s", "r"] {
            Netns::create(&format!("{name}{side}")).unwrap();
        }
        for (side, address) in [("l", 1), ("r", 2)] {
            let (near, far) = (format!("{name}{side}"), format!("{name}s"));
            run(&format!("ip link add eth0 netns {near} type veth peer name p{side} netns {far}"));
            // Redirected frames have no checksum offload; and a veth takes them only if it polls
            // (GRO).
            run(&format!("ip netns exec {near} ethtool -K eth0 tx off gro on"));
            run(&format!("ip -n {near} address add 10.77.0.{address}/24 dev eth0"));
            run(&format!("ip -n {near} link set eth0 up"));
            run(&format!("ip -n {near} link set lo up"));
            run(&format!("ip -n {far} link set p{side} up"));
        }
        let (left, right) = (bench.mac("l"), bench.mac("r"));
        run(&format!("ip -n {name}l neigh replace 10.77.0.2 lladdr {right} dev eth0"));
        run(&format!("ip -n {name}r neigh replace 10.77.0.1 lladdr {left} dev eth0"));
        bench.configure("");
        bench
    }

    fn mac(&self, side: &str) -> String {
        let output = Command::new("ip")
            .args(["-n", &format!("{}{side}", self.name), "-o", "link", "show", "eth0"])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned()
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("switch.toml")
    }

    /// Wires port 1 to port 2 and back, with `more` configuration.
    pub fn configure(&self, more: &str) {
        let text = format!(
            "name = \"{}\"\nobject = \"fixture.o\"\n{more}\n\
             [[port]]\ninterface = \"pl\"\nport = 1\n[[port]]\ninterface = \"pr\"\nport = 2\nfabric = true\n\
             [[table]]\nname = \"wire\"\n\
             [[table.entry]]\nkey = {{ \"standard_metadata.ingress_port\" = 1 }}\naction = \"forward\"\narguments = {{ port = 2 }}\n\
             [[table.entry]]\nkey = {{ \"standard_metadata.ingress_port\" = 2 }}\naction = \"forward\"\narguments = {{ port = 1 }}\n",
            self.name
        );
        std::fs::write(self.config(), text).unwrap();
    }

    pub fn namespace(&self, side: &str) -> Netns {
        Netns::open(&format!("{}{side}", self.name)).unwrap()
    }

    /// Runs `body` on a thread inside a namespace.
    pub fn within<T: Send>(&self, side: &str, body: impl FnOnce() -> T + Send) -> T {
        self.namespace(side).inside(body).unwrap()
    }

    pub fn run_directory(&self) -> RunDirectory {
        RunDirectory::of(&self.name).unwrap()
    }

    pub fn spawn(&self, fresh: bool) -> Child {
        let mut command = self.namespace("s").command(std::env::current_exe().unwrap()).unwrap();
        command
            .args(["agent_process", "--exact", "--nocapture"])
            .env(CONFIG_VARIABLE, self.config());
        if fresh {
            command.env("SP_AGENT_TEST_FRESH", "1");
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Starts the agent and waits until it answers.
    pub fn start(&self, fresh: bool) -> Status {
        let mut child = self.spawn(fresh);
        let run = self.run_directory();
        let pid = child.id();
        let status = wait_for("the agent's answer", || {
            if let Some(code) = child.try_wait().unwrap() {
                let mut text = String::new();
                child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
                panic!("the agent ended with {code}: {text}");
            }
            match client::ask(&run, &Request::Status) {
                // An agent that was just killed leaves a socket that nobody answers.
                Ok(Reply::Status(status)) if status.pid == pid => Some(status),
                _ => None,
            }
        });
        *self.agent.borrow_mut() = Some(child);
        status
    }

    pub fn signal(&self, signal: Signal) {
        let mut child = self.agent.take().unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        child.wait().unwrap();
    }

    pub fn ask(&self, request: Request) -> Reply {
        client::ask(&self.run_directory(), &request).unwrap()
    }

    fn socket(&self, side: &str, port: u16) -> UdpSocket {
        self.within(side, || {
            let address = if side == "l" { "10.77.0.1" } else { "10.77.0.2" };
            let socket = UdpSocket::bind((address, port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            socket
        })
    }

    /// Does a datagram get through, from left to right?
    pub fn passes(&self) -> bool {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (left, right) = (self.socket("l", 0), self.socket("r", 0));
        right.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let tag = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        left.send_to(&tag, right.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 16];
        right.recv(&mut buffer).is_ok_and(|length| buffer[..length] == tag)
    }

    /// Sends numbered datagrams at an even pace while `body` runs; returns how many were sent and
    /// how many never arrived.
    pub fn lost_during(&self, body: impl FnOnce()) -> (u32, u32) {
        let (left, right) = (self.socket("l", 0), self.socket("r", 0));
        let to = right.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut sent = 0u32;
                // And a while longer: a change may bite late.
                while !stop.load(Ordering::Relaxed) || sent < LEAST_SENT {
                    left.send_to(&sent.to_be_bytes(), to).unwrap();
                    sent += 1;
                    std::thread::sleep(Duration::from_micros(100));
                }
                sent
            });
            let receiver = scope.spawn(|| {
                let (mut received, mut buffer) = (0u32, [0; 16]);
                while right.recv(&mut buffer).is_ok() {
                    received += 1;
                }
                received
            });
            body();
            stop.store(true, Ordering::Relaxed);
            let sent = sender.join().unwrap();
            (sent, sent - receiver.join().unwrap())
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut child) = self.agent.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Ok(run) = RunDirectory::of(&self.name) {
            let _ = switch_agent::detach(&run);
        }
        for side in ["l", "s", "r"] {
            let _ = netns::remove(&format!("{}{side}", self.name));
        }
    }
}
