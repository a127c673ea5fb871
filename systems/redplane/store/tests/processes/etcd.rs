//! A real etcd of one member (Debian: etcd-server), as the controllers of a cluster speak to it:
//! plain, with TLS and client certificates, with user and password, and through proxies that can be
//! cut.

use crate::PATIENCE;
use crate::chain::{Chain, Plan};
use controller::shell::Status;
use etcd_client::{Client, DeleteOptions, Permission};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at a log.
const LOOK: Duration = Duration::from_millis(20);

/// How controllers speak to etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Etcd {
    None,
    Plain,
    /// Certificates on both sides; etcd's is for the name `localhost` only.
    Tls,
    /// The user may touch keys of its prefix only.
    User,
    /// Each controller through a proxy of its own, which is the second of two endpoints.
    Proxied,
}

const TLS_FILES: &str =
    "etcd_ca_file = \"ca.pem\"\netcd_cert_file = \"client.pem\"\netcd_key_file = \"client.key\"\n";

impl Etcd {
    /// The lines of a controller's configuration.
    pub fn config(self, client: SocketAddr) -> String {
        match self {
            Etcd::Tls => format!("etcd = [\"https://localhost:{}\"]\n{TLS_FILES}", client.port()),
            Etcd::User => {
                format!(
                    "etcd = [\"http://{client}\"]\netcd_user = \"sp\"\netcd_password_file = \"password\"\n"
                )
            }
            // Nobody listens at the first: the next is asked.
            Etcd::Proxied => format!("etcd = [\"http://127.0.0.1:1\", \"http://{client}\"]\n"),
            _ => format!("etcd = [\"http://{client}\"]\n"),
        }
    }
}

/// Starts it, with its data and log in this directory.
pub fn start(etcd: Etcd, directory: &Path, client: SocketAddr, peer: SocketAddr) -> Child {
    let log = std::fs::File::create(directory.join("log-etcd")).unwrap();
    let peer = format!("http://{peer}");
    let url = format!("{}://{client}", if etcd == Etcd::Tls { "https" } else { "http" });
    let mut command = Command::new("etcd");
    command.current_dir(directory).args(["--data-dir", "etcd", "--listen-client-urls", &url]);
    command.args(["--advertise-client-urls", &url, "--listen-peer-urls", &peer]);
    command.args([
        "--initial-advertise-peer-urls",
        &peer,
        "--initial-cluster",
        &format!("default={peer}"),
    ]);
    if etcd == Etcd::Tls {
        write_certificates(directory);
        command.args(["--cert-file", "server.pem", "--key-file", "server.key"]);
        command.args(["--client-cert-auth", "--trusted-ca-file", "ca.pem"]);
    }
    // Passwords are hashed with as little work as there can be.
    command.args(["--bcrypt-cost", "4"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::from(log)).spawn();
    let child = child.expect("etcd: scripts/setup.sh installs it");
    if etcd == Etcd::User {
        write(directory, "password", "sesame\n");
        block_on(add_users(&url));
    }
    child
}

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn write_certificates(directory: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    write(directory, "ca.pem", &ca.pem());
    for (name, names) in [("server", vec!["localhost".to_owned()]), ("client", Vec::new())] {
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        write(directory, &format!("{name}.pem"), &certificate.pem());
        write(directory, &format!("{name}.key"), &key.serialize_pem());
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn connected(url: &str) -> Client {
    let start = Instant::now();
    loop {
        let mut client = Client::connect([url], None).await.unwrap();
        match client.get("/", None).await {
            Ok(_) => return client,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    }
}

async fn add_users(url: &str) {
    let mut client = connected(url).await;
    client.role_add("root").await.unwrap();
    client.user_add("root", "of all", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.role_add("controllers").await.unwrap();
    let own = Permission::read_write("/stateplane/").with_prefix();
    client.role_grant_permission("controllers", own).await.unwrap();
    client.user_add("sp", "sesame", None).await.unwrap();
    client.user_grant_role("sp", "controllers").await.unwrap();
    client.auth_enable().await.unwrap();
}

/// Deletes all that there is.
pub fn delete_all(etcd: SocketAddr) {
    let deleted = block_on(async {
        let options = DeleteOptions::new().with_all_keys();
        connected(&format!("http://{etcd}"))
            .await
            .delete("", Some(options))
            .await
            .unwrap()
            .deleted()
    });
    assert!(deleted > 0);
}

/// TCP to another address and back, until it is cut: then whatever is sent is lost, and connections
/// are taken that nobody answers.
pub struct Proxy {
    pub address: SocketAddr,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    /// It ends with the process.
    pub fn start(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, cut) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let proxy = Proxy { address, cut: cut.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // While etcd is not up yet its clients are turned away.
                let Ok(server) = TcpStream::connect(to) else { continue };
                let (to_server, to_client) =
                    (server.try_clone().unwrap(), stream.try_clone().unwrap());
                for (from, to) in [(stream, to_server), (server, to_client)] {
                    let cut = cut.clone();
                    std::thread::spawn(move || carry(from, to, &cut));
                }
            }
        });
        proxy
    }

    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !cut.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn start_chain(etcd: Etcd) -> Chain {
    Chain::start_as(&Plan { servers: 3, running: 3, shards: 1, etcd, logs: false, workers: 1 })
}

/// Starts one more controller, with these lines in the place of those on etcd, and waits until its
/// log has a line with all these words.
fn another_says(chain: &mut Chain, name: &str, etcd: &str, words: &[&str]) {
    let listen = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let text = format!(
        "name = \"{name}\"\nlisten = \"{listen}\"\nsecrets = \"secrets.toml\"\nshards = 1\n{etcd}"
    );
    let config = chain.directory.path().join(format!("{name}.toml"));
    std::fs::write(&config, text).unwrap();
    let log = format!("log-{name}");
    let process = chain.run("control", &config, &log);
    chain.others.push(process);
    await_log(chain, &log, words);
}

pub fn await_log(chain: &Chain, log: &str, words: &[&str]) {
    let start = Instant::now();
    while lines_with(&chain.controller_log(log), words).is_empty() {
        assert!(
            start.elapsed() < PATIENCE,
            "{words:?} is not in {log}:\n{}",
            chain.controller_log(log)
        );
        std::thread::sleep(LOOK);
    }
}

pub fn lines_with<'a>(log: &'a str, words: &[&str]) -> Vec<&'a str> {
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).collect()
}

pub fn with_tls_and_client_certificates() {
    // Three servers form a chain: decisions are elected for, written and read.
    let mut chain = start_chain(Etcd::Tls);
    let (client, _) = chain.etcd.unwrap();
    let endpoint = format!("https://localhost:{}", client.port());
    let without = format!("etcd = [\"{endpoint}\"]\netcd_ca_file = \"ca.pem\"\n");
    another_says(&mut chain, "without-certificate", &without, &["ERROR", &endpoint, "ertificate"]);
    let stranger = format!("etcd = [\"{endpoint}\"]\netcd_ca_file = \"client.pem\"\n");
    another_says(
        &mut chain,
        "of-another-ca",
        &stranger,
        &["ERROR", &endpoint, "invalid peer certificate"],
    );
    // The certificate is for the name.
    let by_address = format!("etcd = [\"https://{client}\"]\n{TLS_FILES}");
    another_says(
        &mut chain,
        "by-address",
        &by_address,
        &["ERROR", "https://127.0.0.1", "invalid peer certificate"],
    );
    let plain = format!("etcd = [\"http://{client}\", \"http://localhost:{}\"]\n", client.port());
    another_says(
        &mut chain,
        "without-tls",
        &plain,
        &["ERROR", "http://127.0.0.1", "; http://localhost"],
    );
    assert!(chain.control().settled);
    chain.stop();
}

pub fn with_user_and_password() {
    let mut chain = start_chain(Etcd::User);
    let (client, _) = chain.etcd.unwrap();
    let endpoint = format!("http://{client}");
    another_says(
        &mut chain,
        "nobody",
        &format!("etcd = [\"{endpoint}\"]\n"),
        &["ERROR", &endpoint, "user name is empty"],
    );
    write(chain.directory.path(), "wrong", "open\n");
    let config =
        format!("etcd = [\"{endpoint}\"]\netcd_user = \"sp\"\netcd_password_file = \"wrong\"\n");
    let failed = ["ERROR", &endpoint, "authentication failed"];
    another_says(&mut chain, "liar", &config, &failed);
    // The file is read again; what went on was logged once.
    write(chain.directory.path(), "wrong", "sesame\n");
    await_log(&chain, "log-liar", &["INFO", "etcd answers again"]);
    let log = chain.controller_log("log-liar");
    assert_eq!(lines_with(&log, &failed).len(), 1, "{log}");
    // Other keys are not its own.
    let elsewhere = format!("{}etcd_prefix = \"/elsewhere/\"\n", Etcd::User.config(client));
    another_says(&mut chain, "elsewhere", &elsewhere, &["ERROR", &endpoint, "permission denied"]);
    chain.stop();
}

fn leads(chain: &Chain, address: SocketAddrV4) -> bool {
    daemon::ask::query::<Status>(address, &chain.keys, PATIENCE).unwrap().leading
}

fn await_leading(chain: &Chain, address: SocketAddrV4) {
    let start = Instant::now();
    while !leads(chain, address) {
        assert!(start.elapsed() < PATIENCE, "{address} does not lead");
    }
}

/// When (RFC 3339, UTC) the last line with these words was logged.
fn logged_at(log: &str, words: &[&str]) -> String {
    let line = lines_with(log, words).pop().unwrap_or_else(|| panic!("no {words:?} in:\n{log}"));
    line.split_whitespace().next().unwrap().to_owned()
}

/// First the leader's connection to etcd is cut, without a word to either side; then the new leader
/// stands still (SIGSTOP) until another leads.
pub fn a_leader_without_etcd_stops_before_another_leads() {
    let chain = start_chain(Etcd::Proxied);
    let addresses = [chain.controller_address, chain.etcd.unwrap().1];
    let logs = ["log-controller", "log-second"];
    let old = usize::from(!leads(&chain, addresses[0]));
    let new = 1 - old;
    chain.proxies[old].cut(true);
    let cut = Instant::now();
    await_leading(&chain, addresses[new]);
    println!("leader cut from etcd: another leads after {} ms", cut.elapsed().as_millis());
    assert!(!leads(&chain, addresses[old]));
    let stopped = logged_at(&chain.controller_log(logs[old]), &["stops leading"]);
    let led = logged_at(&chain.controller_log(logs[new]), &["election", "leading=true"]);
    assert!(stopped < led, "stopped {stopped}, another led {led}");
    let endpoint = format!("http://{}", chain.proxies[old].address);
    let log = chain.controller_log(logs[old]);
    // The same may have been logged while etcd started.
    let since = log.rsplit("etcd answers again").next().unwrap();
    let words = ["ERROR", "http://127.0.0.1:1: ", "refused", &endpoint, "no answer within 500 ms"];
    assert_eq!(lines_with(since, &words).len(), 1, "{log}");
    chain.proxies[old].cut(false);
    await_log(&chain, logs[old], &["etcd answers again"]);

    // `others`: etcd, the second controller.
    let process = if new == 0 { chain.controller.as_ref().unwrap() } else { &chain.others[1] };
    let pid = Pid::from_raw(process.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let (asked, keys) = (addresses[new], chain.keys.clone());
    // It finds the question when it goes on, and must know by then.
    let question = std::thread::spawn(move || {
        daemon::ask::query::<Status>(asked, &keys, 3 * PATIENCE).unwrap()
    });
    await_leading(&chain, addresses[old]);
    kill(pid, Signal::SIGCONT).unwrap();
    assert!(!question.join().unwrap().leading, "another leads");
    assert!(leads(&chain, addresses[old]) && !leads(&chain, addresses[new]));
    chain.stop();
}

/// The lease of the controller that leads, as etcd has it.
fn leader_lease(etcd: SocketAddr) -> i64 {
    let key = "/stateplane/leader";
    let found = block_on(async {
        connected(&format!("http://{etcd}")).await.get(key, None).await.unwrap()
    });
    found.kvs().first().expect("one leads").lease()
}

fn leases(etcd: SocketAddr) -> Vec<i64> {
    let found =
        block_on(async { connected(&format!("http://{etcd}")).await.leases().await.unwrap() });
    found.leases().iter().map(|lease| lease.id()).collect()
}

/// SIGTERM; it must end well.
fn terminate(process: &mut Child) {
    kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM).unwrap();
    assert!(process.wait().unwrap().success());
}

/// A leader that is stopped, with etcd answering, and with etcd that does not.
pub fn a_leader_that_stops_gives_its_lease_back() {
    let mut chain = start_chain(Etcd::Plain);
    let (etcd, second) = chain.etcd.unwrap();
    if leads(&chain, second) {
        // The first of both is to lead.
        terminate(&mut chain.others[1]);
        await_leading(&chain, chain.controller_address);
        let config = chain.controller_config("second", second);
        chain.others[1] = chain.run("control", &config, "log-second");
    }
    let lease = leader_lease(etcd);
    assert!(leases(etcd).contains(&lease));
    terminate(chain.controller.as_mut().unwrap());
    assert!(!leases(etcd).contains(&lease), "the lease is gone with the controller");
    assert!(chain.controller_log("log-controller").contains("gave its lease back"));
    await_leading(&chain, second);

    // Now one whose members of etcd all take what it says, and answer nothing.
    let proxies = [Proxy::start(etcd), Proxy::start(etcd)];
    let endpoints =
        format!("etcd = [\"http://{}\", \"http://{}\"]\n", proxies[0].address, proxies[1].address);
    another_says(&mut chain, "third", &endpoints, &["controller started"]);
    // One that does not lead has nothing to give back when it stops.
    terminate(&mut chain.others[2]);
    let third = chain.controller_log("log-third");
    assert!(third.contains("controller stopped") && !third.contains("lease"), "{third}");
    chain.others.pop();
    another_says(&mut chain, "third", &endpoints, &["controller started"]);
    terminate(&mut chain.others[1]);
    await_log(&chain, "log-third", &["election", "leading=true"]);
    proxies.iter().for_each(|proxy| proxy.cut(true));
    terminate(&mut chain.others[2]);
    let third = chain.controller_log("log-third");
    assert_eq!(
        lines_with(&third, &["WARN", "could not give its lease back", "no answer within 800 ms"])
            .len(),
        1,
        "{third}"
    );
    chain.controller = None;
    chain.stop();
}
