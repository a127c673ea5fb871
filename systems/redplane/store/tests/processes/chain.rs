//! Server and controller processes on loopback.

use crate::PATIENCE;
use crate::etcd::{self, Etcd, Proxy};
use controller::shell::Status;
use secrets::SecretsFile;
use state_store::core::NodeStatus;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use wire::KeyRing;

pub struct Chain {
    /// The servers write logs.
    pub logs: bool,
    pub directory: tempfile::TempDir,
    pub keys: KeyRing,
    pub controller_address: SocketAddrV4,
    pub controller: Option<Child>,
    /// With etcd: its client address, and the second controller's.
    pub etcd: Option<(SocketAddr, SocketAddrV4)>,
    /// How it is spoken to.
    pub plan: Etcd,
    /// Between the controllers, the first and the second, and etcd.
    pub proxies: Vec<Proxy>,
    pub others: Vec<Child>,
    pub addresses: Vec<SocketAddrV4>,
    pub metrics: Vec<SocketAddr>,
    pub servers: Vec<Child>,
    pub shards: u16,
    pub workers: u16,
}

/// What to start.
pub struct Plan {
    /// Servers that there are to be in the end.
    pub servers: usize,
    /// Servers that are started at once.
    pub running: usize,
    pub shards: u16,
    /// With etcd and a second controller.
    pub etcd: Etcd,
    /// Servers with a write-ahead log.
    pub logs: bool,
    /// Workers of each server process.
    pub workers: u16,
}

impl Chain {
    /// Starts a controller and `servers` servers of one shard with a chain of three, and waits
    /// until all is settled and the head serves.
    pub fn start(servers: usize) -> Chain {
        Chain::start_as(&Plan {
            servers,
            running: servers,
            shards: 1,
            etcd: Etcd::None,
            logs: false,
            workers: 1,
        })
    }

    pub fn start_as(plan: &Plan) -> Chain {
        let Plan { servers, running, shards, etcd, logs, workers } = *plan;
        // Held together, so that all differ; released just before the servers bind them.
        let sockets: Vec<_> =
            (0..servers + 2).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let listeners: Vec<_> = (0..servers + 2)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
            .collect();
        let v4 = |address: SocketAddr| SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port());
        let mut addresses: Vec<_> =
            sockets.iter().map(|socket| v4(socket.local_addr().unwrap())).collect();
        let mut metrics: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        drop((sockets, listeners));
        if workers > 1 {
            // Each process on an address of its own, where the ports from the first on are free.
            for at in 0..servers {
                let host = Ipv4Addr::new(127, 0, 7, at as u8 + 1);
                (addresses[at], metrics[at]) =
                    (SocketAddrV4::new(host, 5407), SocketAddr::from((host, 9101)));
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let keys =
            SecretsFile::generate(&directory.path().join("secrets.toml")).unwrap().ring().clone();
        let (controller_address, second) = (addresses.pop().unwrap(), addresses.pop().unwrap());
        let (client, peer) = (metrics.pop().unwrap(), metrics.pop().unwrap());
        let mut chain = Chain {
            directory,
            keys,
            controller_address,
            controller: None,
            etcd: (etcd != Etcd::None).then_some((client, second)),
            plan: etcd,
            proxies: Vec::new(),
            others: Vec::new(),
            addresses,
            metrics,
            servers: Vec::new(),
            shards,
            logs,
            workers,
        };
        if etcd != Etcd::None {
            let process = etcd::start(etcd, chain.directory.path(), client, peer);
            chain.others.push(process);
            if etcd == Etcd::Proxied {
                chain.proxies = vec![Proxy::start(client), Proxy::start(client)];
            }
            let config = chain.controller_config("second", second);
            let other = chain.run("control", &config, "log-second");
            chain.others.push(other);
        }
        chain.start_controller();
        for at in 0..running {
            let server = chain.spawn(at);
            chain.servers.push(server);
        }
        chain.settle();
        if workers == 1 {
            let head = chain.place_of(0);
            chain.await_status(head, |status| status.replicas[0].state == "serving");
        }
        chain
    }

    pub fn start_controller(&mut self) {
        let config = self.controller_config("first", self.controller_address);
        self.controller = Some(self.run("control", &config, "log-controller"));
    }

    pub fn controller_config(&self, name: &str, listen: SocketAddrV4) -> PathBuf {
        let keep = match self.etcd {
            Some((client, _)) => {
                let proxy = self.proxies.get(usize::from(name == "second"));
                self.plan.config(proxy.map_or(client, |proxy| proxy.address))
            }
            None => "database = \"controller.redb\"".to_owned(),
        };
        let text = format!(
            "name = \"{name}\"\nlisten = \"{listen}\"\nsecrets = \"secrets.toml\"\nshards = {}\nreorder_after_ms = 300\n{keep}\n",
            self.shards
        );
        let path = self.directory.path().join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn run(&self, word: &str, config: &Path, log: &str) -> Child {
        command(word, config, &self.directory.path().join(log)).spawn().unwrap()
    }

    pub fn config(&self, at: usize) -> PathBuf {
        let second = self.etcd.map(|(_, second)| format!(", \"{second}\"")).unwrap_or_default();
        let log =
            if self.logs { format!("[wal]\ndirectory = \"wal{at}\"\n") } else { String::new() };
        let text = format!(
            "name = \"s{at}\"\nlisten = \"{}\"\ncontrollers = [\"{}\"{second}]\nshards = {}\nworkers = {}\nlease_ms = 100\nsecrets = \"secrets.toml\"\n\
             metrics = \"{}\"\n{log}\
             [[object]]\nname = \"counter\"\nid = 1\nkey_bytes = 4\nvalue_bytes = 8\nallocator = \"zero\"\n\
             [[object]]\nname = \"nat\"\nid = 2\nkey_bytes = 13\nvalue_bytes = 6\nallocator = \"nat_ports\"\nexternal = [\"203.0.113.1\"]\n",
            self.addresses[at],
            self.controller_address,
            self.shards,
            self.workers,
            self.metrics[at]
        );
        let path = self.directory.path().join(format!("store{at}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn spawn(&self, at: usize) -> Child {
        self.run("serve", &self.config(at), &format!("log{at}"))
    }

    pub fn log(&self, at: usize) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("log{at}"))).unwrap()
    }

    /// What a controller logged.
    pub fn controller_log(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    pub fn status(&self, at: usize) -> NodeStatus {
        state_store::shell::query_status(self.addresses[at], &self.keys, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log(at)))
    }

    pub fn await_status(&self, at: usize, wanted: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
        let start = Instant::now();
        loop {
            let status = self.status(at);
            if wanted(&status) {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "server {at} stays {status:?}\n{}", self.log(at));
        }
    }

    pub fn control(&self) -> Status {
        state_store::shell::query(self.controller_address, &self.keys, PATIENCE).unwrap()
    }

    /// Waits until the chain has three servers and everybody knows.
    pub fn settle(&self) -> Status {
        self.await_control(|status| status.settled)
    }

    pub fn await_control(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let start = Instant::now();
        loop {
            let status = self.control();
            if wanted(&status) {
                return status;
            }
            let log =
                std::fs::read_to_string(self.directory.path().join("log-controller")).unwrap();
            assert!(start.elapsed() < PATIENCE, "{status:?}\n{log}");
        }
    }

    /// Which server has that place in the chain; from the end: `usize::MAX`.
    pub fn place_of(&self, place: usize) -> usize {
        self.place_by(&self.control(), place)
    }

    /// The same, by what a controller said.
    pub fn place_by(&self, status: &Status, place: usize) -> usize {
        let chain = &status.shards[0].chain;
        let address = chain[place.min(chain.len() - 1)];
        (0..self.addresses.len()).find(|at| self.workers_of(*at).any(|own| own == address)).unwrap()
    }

    /// Where the workers of a server process listen.
    pub fn workers_of(&self, at: usize) -> impl Iterator<Item = SocketAddrV4> {
        let first = self.addresses[at];
        (0..self.workers).map(move |number| SocketAddrV4::new(*first.ip(), first.port() + number))
    }

    pub fn kill(&mut self, at: usize) {
        self.servers[at].kill().unwrap();
        self.servers[at].wait().unwrap();
    }

    pub fn kill_controller(&mut self) {
        let mut controller = self.controller.take().unwrap();
        controller.kill().unwrap();
        controller.wait().unwrap();
    }

    /// SIGTERM to all; they must end with exit code 0.
    pub fn stop(mut self) {
        for process in self.servers.iter_mut().chain(&mut self.controller) {
            let pid = nix::unistd::Pid::from_raw(process.id() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        }
        for at in 0..self.servers.len() {
            assert!(self.servers[at].wait().unwrap().success(), "{}", self.log(at));
            assert!(self.log(at).contains("state store stopped"));
        }
        if let Some(controller) = &mut self.controller {
            assert!(controller.wait().unwrap().success());
        }
    }
}

/// This program as a server (`serve`) or a controller (`control`), which adds to that log.
pub fn command(word: &str, config: &Path, log: &Path) -> Command {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(word).arg(config).stderr(Stdio::from(log));
    command
}

impl Drop for Chain {
    fn drop(&mut self) {
        for process in self.servers.iter_mut().chain(&mut self.controller).chain(&mut self.others) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
