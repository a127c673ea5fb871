//! `docs/deploy.md` and `docs/operate.md`, walked as a stranger would: its machines are namespaces,
//! its configurations and its commands are taken out of the page and run in its order, and then its
//! "Does it work?" is asked. A command that is new on the page is unknown here, and fails; so does
//! a `birdc` command in the text that BIRD does not know. Needs root, BIRD and etcd. Waits
//! for timers.
//!
//! What differs from the page: files lie in a folder for each machine, units are started by their
//! `ExecStart` (and those with `Type=notify` waited for, as systemd waits), and there are no users
//! and no network cards' settings.

mod common;
mod page;
#[path = "lab_deploy/mod.rs"]
mod site;

use common::{skip, wait_for};
use page::{blocks, guide, read, repository, texts};
use site::{FIVE, LINKS, SERVER, STATEPLANE, STORES, SWITCHES, Site, router};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

impl Site {
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
                _ => panic!("section {number} has a command that this test does not know: {bare}"),
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
    let page = guide();
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
