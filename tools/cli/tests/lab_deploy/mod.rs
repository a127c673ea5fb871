//! The machines of `docs/deploy.md` as namespaces: links, a folder of files for each machine, its
//! daemons, and commands with its own paths and names.

use crate::page::read;
use lab::netns::{self, Netns};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

pub const STATEPLANE: &str = env!("CARGO_BIN_EXE_stateplane");
pub const STORES: [&str; 3] = ["st1", "st2", "st3"];
pub const SWITCHES: [&str; 2] = ["sw1", "sw2"];
pub const FIVE: [&str; 5] = ["sw1", "sw2", "st1", "st2", "st3"];

/// One end of a link: machine, interface, address.
pub type End = (&'static str, &'static str, &'static str);

/// The page's picture; the interfaces of core and leaf are called after who is there.
pub const LINKS: [(End, End); 8] = [
    (("sw1", "eth1", "10.0.1.2/30"), ("core", "sw1", "10.0.1.1/30")),
    (("sw2", "eth1", "10.0.2.2/30"), ("core", "sw2", "10.0.2.1/30")),
    (("sw1", "eth2", "10.0.3.1/30"), ("leaf", "sw1", "10.0.3.2/30")),
    (("sw2", "eth2", "10.0.4.1/30"), ("leaf", "sw2", "10.0.4.2/30")),
    (("st1", "eth1", "10.2.1.10/24"), ("leaf", "st1", "10.2.1.1/24")),
    (("st2", "eth1", "10.2.2.10/24"), ("leaf", "st2", "10.2.2.1/24")),
    (("st3", "eth1", "10.2.3.10/24"), ("leaf", "st3", "10.2.3.1/24")),
    (("host", "eth1", "10.1.0.10/16"), ("leaf", "host", "10.1.0.1/16")),
];
pub const INTERNET: (End, End) =
    (("server", "eth1", "198.51.100.10/24"), ("core", "server", "198.51.100.1/24"));
pub const SERVER: &str = "198.51.100.10:80";

/// The routers that the page leaves to others.
pub fn router(name: &str) -> String {
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
pub struct Machine {
    pub name: &'static str,
    pub netns: Netns,
    pub root: PathBuf,
}

/// The whole site; all of it goes away with the test.
pub struct Site {
    pub machines: Vec<Machine>,
    pub daemons: RefCell<Vec<(&'static str, String, Child)>>,
    pub folder: tempfile::TempDir,
    /// Switches' names are the host's, not a namespace's.
    pub unique: String,
}

impl Site {
    pub fn build() -> Site {
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

    pub fn link(&self, a: End, b: End) {
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

    pub fn machine(&self, name: &str) -> &Machine {
        self.machines
            .iter()
            .find(|machine| machine.name == name)
            .unwrap_or_else(|| panic!("no machine {name}"))
    }

    /// What the page says, with this machine's paths and names.
    pub fn own(&self, machine: &str, text: &str) -> String {
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
    pub fn run(&self, machine: &str, line: &str) -> (bool, String) {
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

    pub fn must(&self, machine: &str, line: &str) -> String {
        let (good, said) = self.run(machine, line);
        assert!(good, "{machine}: {line}: {said}");
        said
    }

    /// Until a line of the page succeeds.
    pub fn comes_true(&self, machine: &str, line: &str) -> String {
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

    pub fn logs(&self, machine: &str) -> String {
        let files = std::fs::read_dir(&self.machine(machine).root).into_iter().flatten().flatten();
        let logs = files
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
        logs.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
    }

    /// Starts a daemon on a machine, which tells `notify` that it is ready.
    pub fn start(&self, machine: &'static str, name: &str, line: &str, notify: Option<&Path>) {
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
    pub fn enable(&self, machine: &'static str, unit: &str) {
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
    pub fn start_and_wait(&self, machine: &'static str, unit: &str, line: &str) {
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
    pub fn reload_named(&self, section: &str) {
        let words = section.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let units: HashSet<&str> = words.filter(|word| word.starts_with("stateplane-")).collect();
        let is_named =
            |unit: &str| unit.split(['@', '.']).next().is_some_and(|unit| units.contains(unit));
        for (_, _, child) in self.daemons.borrow().iter().filter(|(_, unit, _)| is_named(unit)) {
            let pid = nix::unistd::Pid::from_raw(child.id() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).expect("SIGHUP");
        }
    }

    pub fn write(&self, machine: &str, path: &str, text: &str) {
        let path = self.own(machine, path);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// The same file on all five machines.
    pub fn copy_to_all(&self, file: &Path) {
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
    pub fn switch_name(&self, machine: &str) -> String {
        format!("{}-{}", self.unique, machine.replace("sw", "s"))
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
