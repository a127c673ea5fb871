//! Controllers with a service manager: what they tell it, and when.

use crate::chain::{Chain, Plan, command};
use crate::etcd::Etcd;
use crate::{PATIENCE, scrape};
use controller::shell::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use secrets::SecretsFile;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Child;

/// A controller that was started as systemd starts one with `Type=notify` (sd_notify(3)).
struct Managed {
    process: Child,
    told: UnixDatagram,
    listen: SocketAddrV4,
    metrics: SocketAddr,
}

impl Managed {
    /// `keep`: the lines of its configuration on where decisions are kept.
    fn start(directory: &Path, name: &str, keep: &str) -> Managed {
        let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, {
            let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            free.local_addr().unwrap().port()
        });
        let metrics = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        Managed::start_on(directory, name, keep, listen, metrics)
    }

    fn start_on(
        directory: &Path,
        name: &str,
        keep: &str,
        listen: SocketAddrV4,
        metrics: SocketAddr,
    ) -> Managed {
        let config = directory.join(format!("{name}.toml"));
        let text = format!(
            "name = \"{name}\"\nlisten = \"{listen}\"\nmetrics = \"{metrics}\"\nsecrets = \"secrets.toml\"\nshards = 1\n{keep}\n"
        );
        std::fs::write(&config, text).unwrap();
        let path = directory.join(format!("{name}.notify"));
        let told = UnixDatagram::bind(&path).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut start = command("control", &config, &directory.join(format!("log-{name}")));
        let process = start.env("NOTIFY_SOCKET", path).spawn().unwrap();
        Managed { process, told, listen, metrics }
    }

    /// The next thing that it tells.
    fn tells(&self) -> String {
        let mut buffer = [0; 4_096];
        let count = self.told.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap().trim_end().to_owned()
    }

    /// It is ready: both sockets answer, at once.
    fn status(&self, directory: &Path) -> Status {
        assert_eq!(self.tells(), "READY=1");
        assert!(scrape(self.metrics, "/metrics").contains("stateplane_controller_leading"));
        let keys = SecretsFile::load(&directory.join("secrets.toml")).unwrap();
        daemon::ask::query(self.listen, keys.ring(), PATIENCE).unwrap()
    }

    fn stop(mut self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM).unwrap();
        assert_eq!(self.tells(), "STOPPING=1");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn a_controller_tells_its_service_manager() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    SecretsFile::generate(&directory.join("secrets.toml")).unwrap();
    let alone = Managed::start(directory, "alone", "database = \"controller.redb\"");
    assert!(alone.status(directory).leading);
    // Who cannot be one ends, and never says that it is ready.
    for (name, listen, metrics, why) in [
        ("no-port", alone.listen, "127.0.0.1:0".parse().unwrap(), "Bind"),
        ("no-metrics", "127.0.0.1:1".parse().unwrap(), alone.metrics, "Bind"),
        ("no-database", "127.0.0.1:1".parse().unwrap(), "127.0.0.1:0".parse().unwrap(), "Database"),
    ] {
        let mut other =
            Managed::start_on(directory, name, "database = \"controller.redb\"", listen, metrics);
        assert!(!other.process.wait().unwrap().success(), "{name}");
        let log = std::fs::read_to_string(directory.join(format!("log-{name}"))).unwrap();
        assert!(log.contains(why), "{name}: {log}");
        other.told.set_nonblocking(true).unwrap();
        assert!(other.told.recv(&mut [0]).is_err(), "{name} told something");
    }
    alone.stop();

    // etcd is not there yet: the controller runs, and says in its log what it misses.
    let early = Managed::start(directory, "early", "etcd = [\"http://127.0.0.1:1\"]");
    assert!(!early.status(directory).leading);
    early.stop();

    // Another one decides: it waits for its turn.
    let chain = Chain::start_as(&Plan {
        servers: 3,
        running: 3,
        shards: 1,
        etcd: Etcd::Plain,
        logs: false,
        workers: 1,
    });
    let (etcd, _) = chain.etcd.unwrap();
    let standby = Managed::start(chain.directory.path(), "standby", &Etcd::Plain.config(etcd));
    assert!(!standby.status(chain.directory.path()).leading);
    standby.stop();
    chain.stop();
}
