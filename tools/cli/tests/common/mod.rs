//! A lab for tests of the real binary: up and down by its command line, sockets inside its
//! namespaces, and the check that nothing of it is left on the host.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod counting;

use lab::netns::Netns;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub const INSIDE: &str = "10.1.0.10";
pub const OUTSIDE: &str = "198.51.100.10";
/// Each store's node and address.
pub const STORES: [(&str, &str); 3] =
    [("store1", "10.2.1.10:5407"), ("store2", "10.2.2.10:5407"), ("store3", "10.2.3.10:5407")];

pub const CONTROLLER: &str = "10.2.9.10:5408";

/// A number that looks random: its upper bits.
pub fn scrambled(number: u64) -> u64 {
    let mut hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 32;
    hash.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Tests that need what this process may not do say so and pass.
pub fn skip() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: network namespaces and XDP need root");
    }
    !root
}

/// Labs that measure time do so one at a time within a test program.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A topology of the source tree: of the lab, of a system, or by its path from this crate.
pub fn topology(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if here.exists() {
        return here;
    }
    let shared = root.join("tools/lab/topologies").join(file);
    if shared.exists() {
        return shared;
    }
    let systems = std::fs::read_dir(root.join("systems")).expect("the systems");
    let of_systems = systems.map(|system| system.expect("a system").path().join("lab").join(file));
    let found: Vec<PathBuf> = of_systems.filter(|path| path.exists()).collect();
    assert!(found.len() == 1, "topologies {file}: {found:?}");
    found[0].clone()
}

/// Runs the binary.
pub fn stateplane(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stateplane"))
        .args(arguments)
        .output()
        .expect("the binary starts")
}

/// Runs the binary, which must succeed, and returns its standard output.
pub fn must(arguments: &[&str]) -> String {
    let output = stateplane(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "stateplane {}: {said}", arguments.join(" "));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A lab that goes down with the test, also when the test fails.
pub struct TestLab {
    pub name: String,
    killed: std::cell::RefCell<Vec<i32>>,
}

impl TestLab {
    /// `stateplane lab up` under a name of this test's own.
    pub fn up(test: &str, file: &str, more: &[&str]) -> Self {
        let lab =
            Self { name: format!("t-{test}-{}", std::process::id()), killed: Default::default() };
        let file = topology(file);
        let file = file.to_str().expect("UTF-8 path");
        must(&[&["lab", "up", file, "--name", &lab.name], more].concat());
        lab
    }

    pub fn netns(&self, node: &str) -> Netns {
        Netns::open(&format!("sp-{}-{node}", self.name)).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Runs a command in a node: whether it succeeded, and what it said.
    pub fn run(&self, node: &str, command: &str) -> (bool, String) {
        let words: Vec<String> = command.split(' ').map(str::to_string).collect();
        lab::process::run(Some(&self.netns(node)), &words).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Runs a command in a node; it must succeed.
    pub fn must_run(&self, node: &str, command: &str) -> String {
        let (good, said) = self.run(node, command);
        assert!(good, "{node}: {command}: {said}");
        said
    }

    pub fn fail(&self, node: &str) {
        must(&["lab", "fail", "--name", &self.name, node]);
    }

    pub fn restore(&self, node: &str) {
        must(&["lab", "restore", "--name", &self.name, node]);
    }

    pub fn link(&self, state: &str, a: &str, b: &str) {
        must(&["lab", "link", "--name", &self.name, state, a, b]);
    }

    /// All links of a switch to these nodes.
    pub fn links(&self, state: &str, of: &str, nodes: &[&str]) {
        nodes.iter().filter(|it| **it != of).for_each(|other| self.link(state, of, other));
    }

    /// These switches have dropped nothing in this part for these reasons.
    pub fn is_clean(&self, part: &str, switches: &[&str], reasons: &[&str]) {
        for switch in switches {
            let text = self.metrics(switch);
            for reason in reasons {
                let name =
                    format!("stateplane_drops_total{{part=\"{part}\",reason=\"{reason}\"}} ");
                let count = text.lines().find_map(|line| line.strip_prefix(&name));
                assert_eq!(count, Some("0"), "{switch}: {reason}");
            }
        }
    }

    /// A counter of a switch, by `stateplane counter read`: packets at index 0.
    pub fn counter(&self, switch: &str, counter: &str) -> u64 {
        let name = format!("{}-{switch}", self.name);
        let reply = json(&must(&["counter", "read", counter, "--switch", &name, "--json"]));
        let elements = reply["elements"].as_array().unwrap_or_else(|| panic!("{reply}"));
        elements
            .first()
            .map_or(0, |e| e[1]["packets"].as_u64().unwrap_or_else(|| panic!("{reply}")))
    }

    /// The metrics of a switch or store.
    pub fn metrics(&self, node: &str) -> String {
        let mut stream = self
            .netns(node)
            .run(|| TcpStream::connect("127.0.0.1:9100"))
            .expect("the metrics port answers");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answer");
        text
    }

    /// The sum of a store's counter over all its labels.
    pub fn store_counter(&self, store: &str, counter: &str) -> u64 {
        let text = self.metrics(store);
        let name = format!("stateplane_store_{counter}_total");
        let value = |line: &str| {
            let rest = line.strip_prefix(&name)?;
            rest.starts_with(['{', ' '])
                .then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())
                .flatten()
        };
        let values: Vec<u64> = text.lines().filter_map(value).collect();
        assert!(!values.is_empty(), "no {name} in {text}");
        values.iter().sum()
    }

    /// An event of a switch's runtime of replicated state, from its metrics.
    pub fn event(&self, switch: &str, event: &str) -> u64 {
        self.event_of(switch, "flow", event)
    }

    /// What a switch's output commit has counted.
    pub fn commit_event(&self, switch: &str, event: &str) -> u64 {
        self.event_of(switch, "commit", event)
    }

    fn event_of(&self, switch: &str, part: &str, event: &str) -> u64 {
        let text = self.metrics(switch);
        let head = format!("stateplane_{part}_events_total{{event=\"{event}\"}} ");
        let value = text
            .lines()
            .find_map(|l| l.strip_prefix(&head))
            .unwrap_or_else(|| panic!("no {event} in {text}"));
        value.parse().expect("number")
    }

    /// The status of each store server.
    pub fn stores(&self) -> Vec<Value> {
        let lab = lab::Lab::open(&self.name).expect("lab");
        let secrets = lab.dir().join("fabric.secrets").display().to_string();
        let binary = env!("CARGO_BIN_EXE_stateplane");
        let ask = |(node, address)| {
            let ask =
                format!("{binary} store status --secrets {secrets} --address {address} --json");
            // Its exit code says whether it serves: one that was late for the controller joins
            // again.
            json(&self.run(node, &ask).1)
        };
        STORES.into_iter().map(ask).collect()
    }

    /// What `stateplane state` says, asked of one of the stores with the manifest of the lab. A
    /// store that was late for the controller joins again first.
    pub fn state(&self, store: usize, manifest: &str, arguments: &str) -> Value {
        let lab = lab::Lab::open(&self.name).expect("lab");
        let (node, address) = STORES[store];
        let (binary, dir) = (env!("CARGO_BIN_EXE_stateplane"), lab.dir().display());
        let command = format!(
            "{binary} state {arguments} --store {address} --secrets {dir}/fabric.secrets --manifest {dir}/{manifest} --json"
        );
        let mut answer = String::new();
        wait_for(&format!("{node} has all shards"), || {
            let (good, said) = self.run(node, &command);
            let joins = said.contains("no given store has all of shard");
            assert!(good || joins, "{node}: {command}: {said}");
            answer = said;
            good
        });
        json(&answer)
    }

    /// Waits until all three servers hold the same, and returns how many records that is.
    pub fn equal_stores(&self) -> u64 {
        let (mut records, mut before) = (0, BTreeMap::new());
        wait_for("the stores agree", || {
            let all = self.stores();
            let same = |field: &str| all.iter().all(|s| s[field] == all[0][field]);
            assert!(all.iter().all(|s| s["malformed"] == 0 && s["state"] != "broken"), "{all:?}");
            records = all[0]["records"].as_u64().expect("records");
            // Heartbeats go down the chains all the time: everyone has by now what anyone had when
            // they were asked before.
            let mut now: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for replica in
                all.iter().flat_map(|store| store["replicas"].as_array().expect("replicas"))
            {
                let number = |field: &str| replica[field].as_u64().expect("number");
                now.entry(number("shard")).or_default().push(number("index"));
            }
            let arrived = now.iter().all(|(shard, indexes)| {
                indexes.len() == all.len()
                    && indexes.iter().min() >= before.get(shard).or(Some(&u64::MAX))
            });
            before = now
                .into_iter()
                .map(|(shard, indexes)| (shard, indexes.into_iter().max().unwrap_or(0)))
                .collect();
            same("records") && same("sessions") && same("objects") && arrived
        });
        records
    }

    /// SIGKILL to a daemon of a node.
    pub fn kill_daemon(&self, node: &str, daemon: &str) {
        lab::Lab::open(&self.name)
            .and_then(|lab| lab.kill_daemon(node, daemon))
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// SIGKILL to all processes of a node, and no wait until they are collected.
    pub fn kill_now(&self, node: &str) {
        for pid in self.netns(node).processes() {
            nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid),
                nix::sys::signal::Signal::SIGKILL,
            )
            .expect("SIGKILL");
            self.killed.borrow_mut().push(pid);
        }
    }

    /// Starts a daemon again that was killed.
    pub fn restart_daemon(&self, node: &str, daemon: &str) {
        let gone = |pid: &i32| {
            // Those that this process started itself are its own to collect; the others are
            // somebody else's.
            let own = nix::unistd::Pid::from_raw(*pid);
            let _ = nix::sys::wait::waitpid(own, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
            !Path::new("/proc").join(pid.to_string()).exists()
        };
        wait_for("what was killed is gone", || self.killed.borrow().iter().all(gone));
        lab::Lab::open(&self.name)
            .and_then(|lab| lab.restart_daemon(node, daemon))
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// What the controller says of the cluster; `None`: it does not answer.
    pub fn controller(&self) -> Option<Value> {
        let lab = lab::Lab::open(&self.name).expect("lab");
        let secrets = lab.dir().join("fabric.secrets").display().to_string();
        let binary = env!("CARGO_BIN_EXE_stateplane");
        // Its exit code says whether it is settled.
        let ask =
            format!("{binary} controller status --secrets {secrets} --address {CONTROLLER} --json");
        serde_json::from_str(&self.run("controller", &ask).1).ok()
    }

    /// The nodes of a shard's chain, head first.
    pub fn chain(&self, shard: usize) -> Vec<&'static str> {
        let status = self.controller().expect("the controller answers");
        let chain = status["shards"][shard]["chain"]
            .as_array()
            .unwrap_or_else(|| panic!("{status}"))
            .clone();
        let node = |address: &Value| {
            STORES.into_iter().find(|(_, at)| address == at).map(|(node, _)| node)
        };
        chain.iter().map(|address| node(address).unwrap_or_else(|| panic!("{status}"))).collect()
    }

    /// The status of a switch, by `stateplane switch status`; `None` if its agent does not answer.
    pub fn switch(&self, switch: &str) -> Option<Value> {
        let output =
            stateplane(&["switch", "status", &format!("{}-{switch}", self.name), "--json"]);
        output.status.success().then(|| json(&String::from_utf8_lossy(&output.stdout))[0].clone())
    }

    /// Whether `core` and `tor` route by way of both switches.
    pub fn both_used(&self, core_prefix: &str) -> bool {
        let both = |node: &str, prefix: &str| {
            self.must_run(node, &format!("ip route show {prefix}")).matches("nexthop").count() == 2
        };
        both("core", core_prefix) && both("tor", "198.51.100.0/24")
    }

    /// Takes the lab down, and looks whether anything of it is left.
    pub fn down(self) {
        must(&["lab", "down", "--name", &self.name]);
        assert_eq!(leftovers(&self.name), Vec::<String>::new());
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if Path::new(lab::instance::LABS_DIR).join(&self.name).exists() {
            stateplane(&["lab", "down", "--name", &self.name]);
        }
        if !std::thread::panicking() {
            assert_eq!(leftovers(&self.name), Vec::<String>::new());
        }
    }
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// What of a lab is on the host: namespaces, run directories, mounts (bpffs too), processes.
pub fn leftovers(name: &str) -> Vec<String> {
    let mut left = Vec::new();
    for folder in ["/run/netns", "/run/stateplane", "/run/stateplane/labs"] {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|n| n.contains(name)).map(|n| format!("{folder}/{n}")));
    }
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    left.extend(mounts.lines().filter(|l| l.contains(name)).map(str::to_string));
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let command = std::fs::read_to_string(entry.path().join("cmdline"))
            .unwrap_or_default()
            .replace('\0', " ");
        if command.contains(name) {
            left.push(format!("process {}: {command}", entry.file_name().to_string_lossy()));
        }
    }
    left
}

/// A number from the environment.
pub fn env_number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Waits for long: beside other work, a machine of two cores may take many times its usual time.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A TCP echo server in `outside`, a thread a connection; it ends with the test.
pub fn tcp_echo(lab: &TestLab, port: u16) -> SocketAddr {
    tcp_echo_at(lab, "outside", OUTSIDE, port)
}

/// The same in a node, at one of its addresses.
pub fn tcp_echo_at(lab: &TestLab, node: &str, address: &str, port: u16) -> SocketAddr {
    let address: IpAddr = address.parse().expect("address");
    let listener = lab.netns(node).run(|| TcpListener::bind((address, port))).expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(n) = stream.read(&mut buffer) {
                    if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// A UDP echo server in `outside`.
pub fn udp_echo(lab: &TestLab, port: u16) -> SocketAddr {
    let socket = lab.netns("outside").run(|| UdpSocket::bind((OUTSIDE, port))).expect("bind");
    roomy(&socket);
    let address = socket.local_addr().expect("address");
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        // An error is the ICMP answer to an earlier echo: it says nothing about the next.
        loop {
            if let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..n], from);
            }
        }
    });
    address
}

/// Room for what arrives while no CPU is free for the socket's thread: some seconds of a test's
/// traffic.
pub fn roomy(socket: &UdpSocket) {
    nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20))
        .expect("SO_RCVBUFFORCE");
}

/// TCP connections from `inside`, opened before something happens and used after it.
pub struct Connections(Vec<TcpStream>);

impl Connections {
    pub fn open(lab: &TestLab, to: SocketAddr, count: usize) -> Self {
        let open = || {
            (0..count).map(|_| TcpStream::connect_timeout(&to, Duration::from_secs(5))).collect()
        };
        let streams: std::io::Result<Vec<TcpStream>> = lab.netns("inside").run(open);
        let mut connections = Self(streams.unwrap_or_else(|e| panic!("connections to {to}: {e}")));
        for stream in &connections.0 {
            stream.set_nodelay(true).expect("nodelay");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        }
        connections.all_answer("opened");
        connections
    }

    /// Takes others in.
    pub fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// One exchange on each; all must answer.
    pub fn all_answer(&mut self, when: &str) {
        for (n, stream) in self.0.iter_mut().enumerate() {
            stream
                .write_all(when.as_bytes())
                .unwrap_or_else(|e| panic!("{when}: connection {n}: {e}"));
        }
        for (n, stream) in self.0.iter_mut().enumerate() {
            let mut answer = vec![0; when.len()];
            stream
                .read_exact(&mut answer)
                .unwrap_or_else(|e| panic!("{when}: connection {n}: {e}"));
            assert_eq!(answer, when.as_bytes());
        }
    }
}
