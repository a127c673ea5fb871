//! `docs/deploy.md`, walked as a stranger would: its machines are namespaces, its configurations
//! and its commands are taken out of the page and run in its order, and then its "Does it work?" is
//! asked. A command that is new on the page is unknown here, and fails; so does a `birdc` command
//! in the text that BIRD does not know. Needs root, BIRD and etcd.
//!
//! What differs from the page: files lie in a folder for each machine, units are started by their
//! `ExecStart` (and those with `Type=notify` waited for, as systemd waits), and there are no users
//! and no network cards' settings.

mod common;
mod page;

use common::{skip, wait_for};
use lab::netns::{self, Netns};
use page::{blocks, read, repository, texts};
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const STATEPLANE: &str = env!("CARGO_BIN_EXE_stateplane");
const STORES: [&str; 3] = ["st1", "st2", "st3"];
const SWITCHES: [&str; 2] = ["sw1", "sw2"];
const FIVE: [&str; 5] = ["sw1", "sw2", "st1", "st2", "st3"];

/// One end of a link: machine, interface, address.
type End = (&'static str, &'static str, &'static str);

/// The page's picture; the interfaces of core and leaf are called after who is there.
const LINKS: [(End, End); 8] = [
    (("sw1", "eth1", "10.0.1.2/30"), ("core", "sw1", "10.0.1.1/30")),
    (("sw2", "eth1", "10.0.2.2/30"), ("core", "sw2", "10.0.2.1/30")),
    (("sw1", "eth2", "10.0.3.1/30"), ("leaf", "sw1", "10.0.3.2/30")),
    (("sw2", "eth2", "10.0.4.1/30"), ("leaf", "sw2", "10.0.4.2/30")),
    (("st1", "eth1", "10.2.1.10/24"), ("leaf", "st1", "10.2.1.1/24")),
    (("st2", "eth1", "10.2.2.10/24"), ("leaf", "st2", "10.2.2.1/24")),
    (("st3", "eth1", "10.2.3.10/24"), ("leaf", "st3", "10.2.3.1/24")),
    (("host", "eth1", "10.1.0.10/16"), ("leaf", "host", "10.1.0.1/16")),
];
const INTERNET: (End, End) =
    (("server", "eth1", "198.51.100.10/24"), ("core", "server", "198.51.100.1/24"));
const SERVER: &str = "198.51.100.10:80";

/// The routers that the page leaves to others.
fn router(name: &str) -> String {
    let (asn, links, own) = match name {
        "core" => (65000, [("10.0.1.2", 65011), ("10.0.2.2", 65012)], "\"server\""),
        _ => (65001, [("10.0.3.1", 65011), ("10.0.4.1", 65012)], "\"st*\", \"host\""),
    };
    let id = links[0].0;
    let mut text = format!(
        "router id {id};\nprotocol device {{ scan time 1; }}\nprotocol direct {{ ipv4; interface {own}; }}\n\
         protocol kernel {{ merge paths on; ipv4 {{ export filter {{ if source = RTS_BGP then accept; reject; }}; }}; }}\n\
         protocol bfd {{ interface \"sw*\" {{ interval 50 ms; multiplier 3; }}; }}\n"
    );
    for (neighbour, other) in links {
        text += &format!(
            "protocol bgp {{ local as {asn}; neighbor {neighbour} as {other}; direct; bfd on; connect delay time 1; connect retry time 1; error wait time 1, 2; \
             graceful restart off; ipv4 {{ next hop self; import all; export all; }}; }}\n"
        );
    }
    text
}

/// A machine: a namespace, and a folder in which its files lie.
struct Machine {
    name: &'static str,
    netns: Netns,
    root: PathBuf,
}

/// The whole site; all of it goes away with the test.
struct Site {
    machines: Vec<Machine>,
    daemons: RefCell<Vec<(&'static str, String, Child)>>,
    folder: tempfile::TempDir,
    /// Switches' names are the host's, not a namespace's.
    unique: String,
}

impl Site {
    fn build() -> Site {
        let folder = tempfile::tempdir().expect("a folder");
        let unique = format!("deploy-{}", std::process::id());
        let mut site = Site { machines: vec![], daemons: RefCell::default(), folder, unique };
        for name in ["core", "leaf", "host", "server"].into_iter().chain(FIVE) {
            let root = site.folder.path().join(name);
            std::fs::create_dir_all(root.join("etc/stateplane")).expect("a folder");
            std::fs::create_dir_all(root.join("etc/bird")).expect("a folder");
            std::fs::create_dir_all(root.join("var/lib/stateplane")).expect("a folder");
            let netns =
                Netns::create(&format!("{}-{name}", site.unique)).unwrap_or_else(|e| panic!("{e}"));
            site.machines.push(Machine { name, netns, root });
        }
        for (a, b) in LINKS.into_iter().chain([INTERNET]) {
            site.link(a, b);
        }
        site.must("host", "ip route add default via 10.1.0.1");
        site.must("server", "ip route add 203.0.113.0/29 via 198.51.100.1");
        site
    }

    fn link(&self, a: End, b: End) {
        let netns = |name| format!("{}-{name}", self.unique);
        // Ours begin as a network card does: what the page does not change stays so.
        let make = format!(
            "ip link add {} mtu 1500 netns {} type veth peer name {} mtu 3000 netns {}",
            a.1,
            netns(a.0),
            b.1,
            netns(b.0)
        );
        self.must("core", &make.replace("ip link", &format!("ip -n {} link", netns(a.0))));
        for (machine, interface, address) in [a, b] {
            self.must(machine, "ip link set lo up");
            self.must(
                machine,
                &format!("ip address add {address} dev {interface} && ip link set {interface} up"),
            );
            self.must(machine, &format!("ethtool -K {interface} tx off tso off gso off"));
        }
        // The page, §1, of veth: the peers of a switch's ports must take redirected frames. GRO
        // does that, when it changes while both ends are up.
        self.must(b.0, &format!("ethtool -K {} gro off && ethtool -K {} gro on", b.1, b.1));
    }

    fn machine(&self, name: &str) -> &Machine {
        self.machines
            .iter()
            .find(|machine| machine.name == name)
            .unwrap_or_else(|| panic!("no machine {name}"))
    }

    /// What the page says, with this machine's paths and names.
    fn own(&self, machine: &str, text: &str) -> String {
        let root = self.machine(machine).root.display().to_string();
        let text = match machine {
            "sw2" => text.replace("s1", "s2").replace("10.255.0.1", "10.255.0.2"),
            "st2" | "st3" => text.replace("via 10.2.1.1", &format!("via 10.2.{}.1", &machine[2..])),
            _ => text.to_owned(),
        };
        text.replace("/usr/bin/stateplane", STATEPLANE)
            .replace("/etc/", &format!("{root}/etc/"))
            .replace("/var/lib/", &format!("{root}/var/lib/"))
            .replace("birdc ", &format!("birdc -s {root}/bird.ctl "))
    }

    /// Runs a line in a machine's shell: whether it succeeded, and what it said.
    fn run(&self, machine: &str, line: &str) -> (bool, String) {
        let Machine { netns, root, .. } = self.machine(machine);
        let mut command = netns.command("sh").unwrap_or_else(|e| panic!("{e}"));
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = Path::new(STATEPLANE).parent().expect("a folder").display();
        command
            .args(["-c", line])
            .current_dir(root)
            .env("PATH", format!("{bin}:{path}:/usr/sbin:/sbin"));
        let output = command.output().expect("sh");
        let said = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .concat();
        (output.status.success(), said)
    }

    fn must(&self, machine: &str, line: &str) -> String {
        let (good, said) = self.run(machine, line);
        assert!(good, "{machine}: {line}: {said}");
        said
    }

    /// Until a line of the page succeeds.
    fn comes_true(&self, machine: &str, line: &str) -> String {
        let mut last = String::new();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let (good, said) = self.run(machine, line);
            if good {
                return said;
            }
            if said != last {
                last = said;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "{machine}: {line}: {last}\n{}",
                self.logs(machine)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self, machine: &str) -> String {
        let files = std::fs::read_dir(&self.machine(machine).root).into_iter().flatten().flatten();
        let logs = files
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
        logs.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
    }

    /// Starts a daemon on a machine, which tells `notify` that it is ready.
    fn start(&self, machine: &'static str, name: &str, line: &str, notify: Option<&Path>) {
        let Machine { netns, root, .. } = self.machine(machine);
        let log = std::fs::File::create(root.join(format!("{name}.log"))).expect("a log");
        let mut words = line.split_whitespace();
        let mut command =
            netns.command(words.next().expect("a program")).unwrap_or_else(|e| panic!("{e}"));
        command.args(words).current_dir(root).stdin(Stdio::null());
        command.envs(notify.map(|path| ("NOTIFY_SOCKET", path)));
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{machine}: {line}: {error}"));
        self.daemons.borrow_mut().push((machine, name.to_owned(), child));
    }

    /// `systemctl enable --now UNIT`, by the unit's own lines.
    fn enable(&self, machine: &'static str, unit: &str) {
        let (name, instance) = unit.split_once('@').unwrap_or((unit, ""));
        let file = if instance.is_empty() {
            format!("{name}.service")
        } else {
            format!("{name}@.service")
        };
        let text = read(&format!("deploy/systemd/{file}")).replace("%i", instance);
        // What begins with a sign is done by the system's manager, as root.
        for line in text.lines().filter_map(|line| line.strip_prefix("ExecStartPre=/")) {
            self.must(machine, &self.own(machine, &format!("/{line}")));
        }
        let start =
            text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart");
        let start = self.own(machine, start);
        if text.lines().any(|line| line == "Type=notify") {
            self.start_and_wait(machine, unit, &start);
        } else {
            self.start(machine, unit, &start, None);
        }
    }

    /// As systemd starts a unit with `Type=notify`: until it says that it is ready (sd_notify(3)).
    fn start_and_wait(&self, machine: &'static str, unit: &str, line: &str) {
        let path = self.machine(machine).root.join(format!("{unit}.notify"));
        let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        self.start(machine, unit, line, Some(&path));
        let mut buffer = [0; 4_096];
        loop {
            let count = socket.recv(&mut buffer).unwrap_or_else(|error| {
                panic!("{machine}: {unit} is not ready: {error}: {}", self.logs(machine))
            });
            let said = String::from_utf8_lossy(&buffer[..count]);
            println!("{machine}: {unit}: {}", said.trim_end().replace('\n', ", "));
            if said.lines().any(|line| line == "READY=1") {
                return;
            }
        }
    }

    /// `systemctl reload`, of those units that the section names, wherever they run.
    fn reload_named(&self, section: &str) {
        let words = section.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let units: HashSet<&str> = words.filter(|word| word.starts_with("stateplane-")).collect();
        let is_named =
            |unit: &str| unit.split(['@', '.']).next().is_some_and(|unit| units.contains(unit));
        for (_, _, child) in self.daemons.borrow().iter().filter(|(_, unit, _)| is_named(unit)) {
            let pid = nix::unistd::Pid::from_raw(child.id() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).expect("SIGHUP");
        }
    }

    fn write(&self, machine: &str, path: &str, text: &str) {
        let path = self.own(machine, path);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// The same file on all five machines.
    fn copy_to_all(&self, file: &Path) {
        for machine in FIVE {
            let to = self
                .machine(machine)
                .root
                .join("etc/stateplane")
                .join(file.file_name().expect("a name"));
            if to != file {
                std::fs::copy(file, to).expect("a copy"); // with its permissions
            }
        }
    }

    /// What the page calls s1 and s2.
    fn switch_name(&self, machine: &str) -> String {
        format!("{}-{}", self.unique, machine.replace("sw", "s"))
    }

    /// The page's configurations on the machines that they are for.
    fn configure(&self, page: &str) {
        let all = || blocks(page, "toml").into_iter().chain(blocks(page, "bird"));
        let find = |name: &str| {
            all().find(|(path, _)| path.ends_with(name)).unwrap_or_else(|| panic!("no {name}"))
        };
        for (number, machine) in (1..).zip(STORES) {
            for name in ["store.toml", "controller.toml"] {
                let (path, text) = find(name);
                // "On st2 and st3 only `name`, `listen` and `metrics` differ."
                let own = |line: &str| match line.split(' ').next() {
                    Some("listen" | "metrics") => {
                        line.replace("10.2.1.10", &format!("10.2.{number}.10"))
                    }
                    Some("name") => line
                        .replace("st1", machine)
                        .replace("controller1", &format!("controller{number}")),
                    _ => line.to_owned(),
                };
                let text: Vec<_> = text.lines().map(own).collect();
                let text = self.own(machine, &text.join("\n"));
                self.write(machine, &path.display().to_string(), &text);
            }
        }
        for machine in SWITCHES {
            let (path, text) = find("switch-s1.toml");
            let text = self
                .own(machine, &text)
                .replace("switch_id = 1", &format!("switch_id = {}", &machine[2..]));
            let name = |line: &str| {
                if line.starts_with("name = \"s") {
                    format!("name = \"{}\"", self.switch_name(machine))
                } else {
                    line.to_owned()
                }
            };
            let text: Vec<_> = text.lines().map(name).collect();
            self.write(machine, &path.display().to_string(), &text.join("\n"));
            let (path, text) = find("bird.conf");
            let mut text = self.own(machine, &text);
            if machine == "sw2" {
                // "Its own router id, AS, addresses and neighbours."
                text = text
                    .replace("65011", "65012")
                    .replace("10.0.1.1", "10.0.2.1")
                    .replace("10.0.3.2", "10.0.4.2");
            }
            self.write(machine, &path.display().to_string(), &text);
        }
    }

    /// The page's commands of a section, in its order.
    fn walk(&self, number: u32, section: &str) {
        let mut later = vec![];
        for (block, line) in texts(section, "sh")
            .into_iter()
            .flat_map(|block| block.lines().map(move |line| (block, line)))
        {
            let bare = line.split(" # ").next().unwrap_or_default().trim();
            let words: Vec<&str> = bare.split_whitespace().collect();
            println!("§{number}: {bare}");
            match (number, words.as_slice()) {
                (_, []) => {}
                // Of the whole machine's, which namespaces cannot change.
                (
                    1,
                    ["sysctl", "-w", "net.core.rmem_max=16777216", "net.core.wmem_max=16777216"],
                ) => {}
                (1, ["ip", ..]) if block.contains("via 10.2.1.1") => STORES
                    .iter()
                    .for_each(|machine| drop(self.must(machine, &self.own(machine, bare)))),
                (1, ["ip", ..]) => self.on_switches(&["eth1", "eth2"], bare),
                // Network cards' settings, which veth has not.
                (1, ["ethtool", ..]) => {}
                (2, ["stateplane", "compile" | "keys", ..]) if !bare.contains("/etc/") => {
                    drop(self.must("st1", bare))
                }
                (2, ["scp", files @ .., _]) => {
                    let files = files.iter().filter(|word| !word.starts_with('-'));
                    files.for_each(|file| self.copy_to_all(&self.machine("st1").root.join(file)));
                }
                (2, ["chown", ..]) => {}
                (2, ["stateplane", "keys", "show", ..]) => {
                    let shown = FIVE.map(|machine| self.must(machine, &self.own(machine, bare)));
                    let prints = shown.map(|text| {
                        text.split_whitespace()
                            .map(str::to_owned)
                            .filter(|word| word.len() == 16)
                            .collect::<Vec<_>>()
                    });
                    assert!(
                        prints.iter().all(|print| !print.is_empty() && *print == prints[0]),
                        "the same fingerprint everywhere: {prints:?}"
                    );
                }
                (3, ["systemctl", "enable", "--now", unit]) => {
                    STORES.iter().for_each(|machine| self.enable(machine, unit))
                }
                (3, ["stateplane", "store" | "controller", "status", ..]) => later.push(bare),
                (3, ["stateplane", ..]) => STORES
                    .iter()
                    .for_each(|machine| drop(self.must(machine, &self.own(machine, bare)))),
                (4 | 5, ["sysctl" | "ip", ..]) => self.on_switches(&["eth1"], bare),
                (4, ["systemctl", "enable", "--now", _]) => SWITCHES.iter().for_each(|machine| {
                    let unit = self.own(machine, words[3]);
                    self.enable(machine, &unit);
                    // "Returns when the program is on all ports."
                    let ports = self.must(
                        machine,
                        &format!("{STATEPLANE} ports --switch {}", self.switch_name(machine)),
                    );
                    assert!(
                        ports.contains("eth1") && ports.contains("eth2") && !ports.contains("away"),
                        "{ports}"
                    );
                }),
                (4, ["stateplane", ..]) => SWITCHES.iter().for_each(|machine| {
                    let said = self.must(machine, &self.own_switch(machine, bare));
                    println!("{machine}: {bare}\n{said}");
                }),
                (5, ["systemctl", "daemon-reload"]) => {}
                (5, ["systemctl", "restart", "bird"]) => SWITCHES.iter().for_each(|machine| {
                    let (_, unit) = blocks(section, "ini").into_iter().next().expect("BIRD's unit");
                    for line in unit.lines().filter_map(|line| line.strip_prefix("ExecStartPre=")) {
                        self.must(machine, &self.own_switch(machine, line));
                    }
                    self.bird(machine);
                }),
                (5, ["birdc", ..]) => SWITCHES
                    .iter()
                    .for_each(|machine| drop(self.comes_true(machine, &self.own(machine, bare)))),
                (8, ["stateplane", "keys", ..]) => {
                    let said = self.must("st1", &self.own("st1", bare));
                    println!("{said}");
                    self.copy_to_all(
                        &self.machine("st1").root.join("etc/stateplane/fabric.secrets"),
                    );
                    self.reload_named(section);
                }
                _ => panic!(
                    "docs/deploy.md, section {number}, has a command that this test does not know: {bare}"
                ),
            }
        }
        if number == 3 {
            self.etcd();
        }
        for line in later {
            STORES
                .iter()
                .for_each(|machine| drop(self.comes_true(machine, &self.own(machine, line))));
        }
    }

    /// A command that names the switch, or that asks all of this host's: other labs may have
    /// switches that are not well.
    fn own_switch(&self, machine: &str, line: &str) -> String {
        let own = self.own(machine, line);
        let (short, name) = (machine.replace("sw", "s"), self.switch_name(machine));
        let own = own.replace(&format!("--switch {short}"), &format!("--switch {name}"));
        own.replace(&format!("switch status {short}"), "switch status")
            .replace("switch status", &format!("switch status {name}"))
    }

    /// Each `birdc` command of a text, on a machine, once; BIRD must say what it did.
    fn birdc(&self, machine: &str, text: &str) {
        for line in birdc_commands(text) {
            let said = self.must(machine, &self.own(machine, &line));
            println!("{machine}: {line}: {said}");
            let verb = line.split(' ').nth(1).expect("a verb");
            assert!(
                verb == "show" || said.contains(&format!("{verb}d")),
                "{machine}: {line}: {said}"
            );
        }
    }

    fn on_switches(&self, interfaces: &[&str], line: &str) {
        for machine in SWITCHES {
            for interface in interfaces {
                self.must(machine, &self.own(machine, &line.replace("eth1", interface)));
            }
        }
    }

    fn bird(&self, machine: &'static str) {
        let root = self.machine(machine).root.display();
        self.start(
            machine,
            "bird",
            &format!("bird -f -c {root}/etc/bird/bird.conf -s {root}/bird.ctl"),
            None,
        );
    }

    /// Three members, "by its own manual".
    fn etcd(&self) {
        let peers: Vec<_> =
            (1..).zip(STORES).map(|(n, name)| format!("{name}=http://10.2.{n}.10:2380")).collect();
        for (n, name) in (1..).zip(STORES) {
            let (client, peer) =
                (format!("http://10.2.{n}.10:2379"), format!("http://10.2.{n}.10:2380"));
            let line = format!(
                "etcd --name {name} --data-dir etcd --listen-client-urls {client} --advertise-client-urls {client} --listen-peer-urls {peer} \
                 --initial-advertise-peer-urls {peer} --initial-cluster {} --initial-cluster-state new",
                peers.join(",")
            );
            self.start(name, "etcd", &line, None);
        }
    }

    /// The switch that owns the host's flow from this port, as the store has it (the page, §7).
    fn owner(&self, port: u16) -> Option<&'static str> {
        let command = "--store 10.2.1.10:5407 --secrets /etc/stateplane/fabric.secrets --manifest /etc/stateplane/nat.json --owner";
        let command = self.own("st1", &format!("{STATEPLANE} state list {command}"));
        let port = port.to_string();
        SWITCHES.into_iter().find(|machine| {
            let said = self.must("st1", &format!("{command} {}", &machine[2..]));
            let is_ours = |line: &str| {
                line.contains("10.1.0.10") && line.split([' ', '=', ',']).any(|word| word == port)
            };
            said.lines().any(is_ours)
        })
    }

    /// The switch that has flows now, by `stateplane switch flows`.
    fn with_flows(&self) -> Vec<&'static str> {
        let has = |machine: &&str| {
            let said = self.must(
                machine,
                &format!("{STATEPLANE} switch flows --switch {}", self.switch_name(machine)),
            );
            !said.contains(": 0 flows")
        };
        SWITCHES.into_iter().filter(has).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            FIVE.iter().for_each(|machine| eprintln!("{machine}:\n{}", self.logs(machine)));
        }
        for (_, _, child) in self.daemons.borrow_mut().iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for machine in SWITCHES {
            let _ = self
                .run(machine, &format!("{STATEPLANE} switch detach {}", self.switch_name(machine)));
        }
        for machine in &self.machines {
            let _ = netns::remove(machine.netns.name());
        }
    }
}

/// The `birdc` commands in a text, each once, in their order.
fn birdc_commands(text: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for rest in text.split("birdc ").skip(1) {
        let command = format!(
            "birdc {}",
            rest.split(['`', ';', '"', '&', '\n']).next().unwrap_or_default().trim()
        );
        if !found.contains(&command) {
            found.push(command);
        }
    }
    found
}

/// Answers every line with itself.
fn serve(site: &Site) {
    let listener =
        site.machine("server").netns.run(|| TcpListener::bind(SERVER)).expect("the server");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 1_024];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

fn answers(stream: &mut TcpStream, when: &str) {
    let mut answer = vec![0; when.len()];
    let exchange = stream.write_all(when.as_bytes()).and_then(|()| stream.read_exact(&mut answer));
    exchange.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(answer, when.as_bytes());
}

#[test]
fn the_page_works() {
    if skip() {
        return;
    }
    let page = read("docs/deploy.md");
    let site = Site::build();
    for name in ["core", "leaf"] {
        site.must(
            name,
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1 net.ipv4.conf.all.rp_filter=0",
        );
        site.write(name, "/etc/bird/bird.conf", &router(name));
        site.bird(name);
    }
    std::os::unix::fs::symlink(
        repository().join("systems"),
        site.machine("st1").root.join("systems"),
    )
    .expect("the programs");
    site.configure(&page);
    let sections: Vec<&str> = page.split("\n## ").collect();
    for (number, section) in (1..=5).zip(&sections[1..]) {
        site.walk(number, section);
    }

    // §6: from a host, through the translation, to a server.
    serve(&site);
    let server: SocketAddr = SERVER.parse().expect("an address");
    let mut stream = None;
    wait_for("a connection through the NAT", || {
        let connect = || TcpStream::connect_timeout(&server, Duration::from_millis(500));
        stream = site.machine("host").netns.run(connect).ok();
        stream.is_some()
    });
    let mut stream = stream.expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    answers(&mut stream, "hello");
    let with = site.with_flows();
    assert!(!with.is_empty(), "a switch has the flow");
    site.must("sw1", "ping -c 1 -W 2 -M do -s 2972 -I 10.255.0.1 10.2.1.10"); // §1, MTU
    let secrets =
        site.own("st1", "--secrets /etc/stateplane/fabric.secrets --store 10.2.1.10:5407");
    let said = site.run("st1", &format!("{STATEPLANE} status --json {secrets}")).1;
    let status: serde_json::Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert!(
        status["stores"][0]["state"] == "ready"
            && status["stores"][0]["records"].as_u64() >= Some(2),
        "{said}"
    );

    // The plug is pulled, and put in again.
    let victim = with[0];
    site.must(victim, "ip link set eth1 down && ip link set eth2 down");
    answers(&mut stream, "the switch is gone");
    site.must(victim, "ip link set eth1 up && ip link set eth2 up");
    for (_, (machine, interface, _)) in LINKS.iter().filter(|(end, _)| end.0 == victim) {
        site.must(
            machine,
            &format!("ethtool -K {interface} gro off && ethtool -K {interface} gro on"),
        );
    }
    answers(&mut stream, "the switch is back");

    // The flow moves away from a living switch; then all that the page and the alerts say to BIRD,
    // on the other one.
    let port = stream.local_addr().expect("an address").port();
    let mover = site.owner(port).expect("somebody owns the flow");
    let text = format!("{}{}", sections[6], read("deploy/prometheus/alerts.yml"));
    assert!(
        birdc_commands(&text).iter().any(|command| command == "birdc enable leaf"),
        "{:?}",
        birdc_commands(&text)
    );
    for command in birdc_commands(&text) {
        if command == "birdc enable core" {
            wait_for("the flow moves", || {
                answers(&mut stream, "moved");
                site.owner(port).is_some_and(|machine| machine != mover)
            });
        }
        site.birdc(mover, &command);
    }
    wait_for("BIRD is back", || {
        site.run(mover, &site.own(mover, "birdc show route for 10.2.1.10")).1.contains("via")
    });
    let other = SWITCHES.into_iter().find(|machine| *machine != mover).expect("two switches");
    site.birdc(other, &page);
    answers(&mut stream, "moved again");

    // §7 and §8: what the store has, and new secrets while the connection is in use.
    let manifest = site.own("st1", "--manifest /etc/stateplane/nat.json");
    let listed = site.must("st1", &format!("{STATEPLANE} state list {secrets} {manifest}"));
    assert!(listed.contains("10.1.0.10"), "{listed}");
    site.walk(8, sections[8]);
    answers(&mut stream, "new secrets");
    let shown =
        site.must("st1", &site.own("st1", "stateplane keys show /etc/stateplane/fabric.secrets"));
    println!("{shown}");
    for line in texts(sections[3], "sh")
        .into_iter()
        .flat_map(str::lines)
        .filter(|line| line.contains(" status "))
    {
        let bare = line.split(" # ").next().unwrap_or_default();
        STORES.iter().for_each(|machine| drop(site.comes_true(machine, &site.own(machine, bare))));
    }
}
