//! The agent on veth pairs between two network namespaces: forwards, survives SIGKILL, is taken
//! over and replaced without loss, detaches. Needs root. Waits for timers.
//!
//! The agent runs as this very test binary (see [`agent_process`]), in a namespace of its own.

mod bench;
mod exchange;
#[path = "../../../dataplane/tests/fixture/mod.rs"]
mod fixture;
mod toy;

use bench::{Bench, CONFIG_VARIABLE, run, wait_for};
use dataplane::{ActionSpec, EntrySpec, KeySpec};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use switch_agent::config::Config;
use switch_agent::control::{Reply, Request};
use switch_agent::origin::Origin;
use switch_agent::{RunDirectory, client};

/// Not a test by itself: the process that the tests below start and kill.
#[test]
fn agent_process() {
    let Ok(config) = std::env::var(CONFIG_VARIABLE) else { return };
    let fresh = std::env::var("SP_AGENT_TEST_FRESH").is_ok();
    let result = Config::read(Path::new(&config), &[&toy::Toy])
        .and_then(|config| switch_agent::run(config, fresh, &[&toy::Toy]));
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

fn exact(port: &str, key: &str) -> EntrySpec {
    EntrySpec {
        keys: vec![
            KeySpec { name: Some("dst_addr".into()), text: key.into() },
            KeySpec { name: Some("ingress_port".into()), text: "1".into() },
        ],
        priority: None,
        action: ActionSpec { name: "forward".into(), arguments: vec![(None, port.into())] },
    }
}

fn entries(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Table(listing) => {
            listing.entries.iter().map(|entry| entry.keys[0].1.clone()).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn forwards_and_survives_its_agent() {
    let bench = Bench::new(&[]);
    bench.configure("detach = true");
    let first = bench.start(false);
    assert_eq!(first.how, "started");
    assert!(bench.passes());
    run(&format!("ip netns exec {}l ping -c 3 -i 0.05 -W 2 10.77.0.2", bench.name));
    bench.ask(Request::TableAdd {
        table: "exact".into(),
        entry: exact("2", "02:00:00:00:00:07"),
        replace: false,
        incarnation: None,
    });

    // SIGKILL: forwarding goes on; the next agent takes over; nothing is lost meanwhile.
    let (sent, lost) = bench.lost_during(|| {
        bench.signal(Signal::SIGKILL);
        assert!(bench.passes(), "forwards without an agent");
        assert!(client::ask(&bench.run_directory(), &Request::Status).is_err());
        let second = bench.start(false);
        assert_eq!((second.how.as_str(), second.incarnation), ("took over", first.incarnation));
    });
    assert_eq!(lost, 0, "of {sent}");
    let listed = bench.ask(Request::TableList { table: "exact".into() });
    assert_eq!(
        entries(&listed),
        ["02:00:00:00:00:07"],
        "what was added at run time is still there"
    );
    let Reply::Ports { ports } = bench.ask(Request::Ports) else { panic!() };
    assert!(ports[0].stats.rx_packets >= u64::from(sent), "{ports:?}");

    // SIGTERM detaches, as configured, and leaves nothing.
    bench.signal(Signal::SIGTERM);
    assert!(!bench.passes());
    assert!(!bench.run_directory().path().exists());
    let links =
        Command::new("ip").args(["-n", &format!("{}s", bench.name), "link"]).output().unwrap();
    assert!(
        !String::from_utf8_lossy(&links.stdout).contains("xdp"),
        "no program is left on a port"
    );
}

#[test]
fn another_user_and_a_wrong_name_are_told() {
    let bench = Bench::new(&[]);
    bench.start(false);
    // The file system's user ID is each thread's own.
    let run = bench.run_directory();
    let as_nobody = move || {
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
        (client::ask(&run, &Request::Status), switch_agent::running())
    };
    let (asked, running) = std::thread::spawn(as_nobody).join().unwrap();
    let message = asked.unwrap_err().to_string();
    assert!(message.contains("permission denied: run as root"), "{message}");
    assert!(running.contains(&bench.name), "it runs, whoever asks");

    let other = RunDirectory::of("spt-nobody").unwrap();
    let message = client::ask(&other, &Request::Status).unwrap_err().to_string();
    let (_, running) = message.split_once("switches that run: ").expect("names");
    assert!(running.split(", ").any(|name| name == bench.name), "{message}");
}

#[test]
fn an_orderly_end_goes_on_forwarding() {
    let bench = Bench::new(&[]);
    let first = bench.start(false);
    let (sent, lost) = bench.lost_during(|| {
        bench.signal(Signal::SIGTERM);
        assert!(bench.passes(), "forwards without an agent");
        let second = bench.start(false);
        assert_eq!((second.how.as_str(), second.incarnation), ("took over", first.incarnation));
    });
    assert_eq!(lost, 0, "of {sent}");
}

#[test]
fn an_interface_that_is_away_keeps_no_agent_from_the_others() {
    let bench = Bench::new(&[]);
    bench.start(false);
    bench.signal(Signal::SIGKILL);
    run(&format!("ip -n {0}s link delete pr", bench.name));
    assert_eq!(bench.start(false).how, "took over");
    let attached = || {
        let Reply::Ports { ports } = bench.ask(Request::Ports) else { panic!() };
        ports.iter().map(|port| port.attached).collect::<Vec<_>>()
    };
    assert_eq!(attached(), [true, false]);
    run(&format!("ip link add eth0 netns {0}r type veth peer name pr netns {0}s", bench.name));
    run(&format!("ip -n {0}s link set pr up", bench.name));
    wait_for("the port is served again", || (attached() == [true, true]).then_some(()));
    // Without a program that runs it is taken for a mistake.
    bench.signal(Signal::SIGKILL);
    run(&format!("ip -n {0}s link delete pr", bench.name));
    let output = bench.spawn(true).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("port[1].interface: there is no interface \"pr\""), "{said}");
}

/// Connects until nobody more can.
fn fill_queue(path: &Path) -> Vec<std::os::fd::OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    use std::os::fd::AsRawFd;
    let address = UnixAddr::new(path).unwrap();
    let mut connected = vec![];
    loop {
        let socket =
            socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
        match connect(socket.as_raw_fd(), &address) {
            Ok(()) => connected.push(socket),
            Err(nix::errno::Errno::EAGAIN) => return connected,
            // This process has no more descriptors to give: rather no test than a wrong one.
            Err(error) => panic!("{} connections: {error}", connected.len()),
        }
    }
}

/// All threads of a process stand still.
fn has_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    })
}

#[test]
fn an_agent_that_hangs_is_not_waited_for() {
    let bench = Bench::new(&[]);
    let status = bench.start(false);
    let agent = Pid::from_raw(status.pid as i32);
    kill(agent, Signal::SIGSTOP).unwrap();
    // The signal is only sent by now.
    wait_for("it has stopped", || has_stopped(status.pid).then_some(()));
    let ask =
        || client::ask_within(&bench.run_directory(), &Request::Status, Duration::from_millis(50));
    let error = ask().unwrap_err().to_string();
    assert!(error.contains("no answer within 50 ms") && error.contains(&bench.name), "{error}");
    // Also when its queue has room for no more connections: then connecting itself would wait.
    let full = fill_queue(&bench.run_directory().socket());
    assert!(ask().unwrap_err().to_string().contains("no answer"));
    assert!(switch_agent::running().contains(&bench.name), "it lives");
    drop(full);
    kill(agent, Signal::SIGCONT).unwrap();
    wait_for("it goes on", || ask().ok());
}

#[test]
fn a_new_object_replaces_the_old_one_without_loss() {
    let bench = Bench::new(&[]);
    bench.start(false);
    bench.ask(Request::TableAdd {
        table: "exact".into(),
        entry: exact("2", "02:00:00:00:00:07"),
        replace: false,
        incarnation: None,
    });
    let forward = ActionSpec { name: "forward".into(), arguments: vec![(None, "2".into())] };
    bench.ask(Request::TableSetDefault { table: "exact".into(), action: Some(forward) });
    bench.signal(Signal::SIGKILL);
    fixture::build(bench.folder.path(), &["-DANOTHER_OBJECT"]);
    std::fs::write(bench.folder.path().join("fixture.json"), {
        let mut manifest = fixture::manifest();
        manifest.program = "second.p4".into();
        manifest.to_json()
    })
    .unwrap();
    let (sent, lost) = bench.lost_during(|| {
        let second = bench.start(false);
        assert_eq!((second.how.as_str(), second.program.as_str()), ("replaced", "second.p4"));
    });
    assert_eq!(lost, 0, "of {sent}");
    let listed = bench.ask(Request::TableList { table: "exact".into() });
    assert_eq!(entries(&listed), ["02:00:00:00:00:07"], "migrated");
    let Reply::Table(listed) = listed else { panic!() };
    assert_eq!(listed.default_action, "ingress.forward", "migrated, too");
    assert_eq!(
        (&listed.origins[..], listed.default_origin),
        (&[Origin::RunTime][..], Some(Origin::RunTime))
    );
    let Reply::Table(wire) = bench.ask(Request::TableList { table: "wire".into() }) else {
        panic!()
    };
    assert_eq!(entries(&Reply::Table(wire.clone())), ["1", "2", "7"]);
    let brought = [Origin::Configuration, Origin::Configuration, Origin::Program];
    assert_eq!((wire.origins, wire.default_origin), (brought.to_vec(), Some(Origin::Program)));
    let Reply::Tables { tables } = bench.ask(Request::Tables) else { panic!() };
    let at_run_time: usize = tables.iter().map(|table| table.at_run_time).sum();
    assert_eq!(at_run_time, 1);

    // A fresh start forgets.
    bench.signal(Signal::SIGKILL);
    assert_eq!(bench.start(true).how, "started");
    let Reply::Table(listed) = bench.ask(Request::TableList { table: "exact".into() }) else {
        panic!()
    };
    assert_eq!((listed.entries.len(), listed.default_origin), (0, Some(Origin::Program)));
    assert!(bench.passes());

    // And the agent's end may leave the program.
    bench.ask(Request::Stop { detach: false });
    bench.agent.take().unwrap().wait().unwrap();
    assert!(bench.passes());
    switch_agent::detach(&bench.run_directory()).unwrap();
    assert!(!bench.passes());
}

/// A replacement that failed half-way: one port has its program, the state still names the one
/// before. Taking that over would leave the port with maps that nobody reaches.
#[test]
fn ports_with_different_programs_are_not_taken_over() {
    let bench = Bench::new(&[]);
    let first = bench.start(false);
    bench.signal(Signal::SIGKILL);
    let object = bench.folder.path().join("fixture.o");
    let other = dataplane::Object::open(&object, fixture::manifest()).unwrap().load().unwrap();
    let links = bench.run_directory().path().join("bpf/links");
    let port = std::fs::read_dir(links).unwrap().next().unwrap().unwrap().path();
    other.replace("sp_main", &dataplane::Link::open(&port).unwrap()).unwrap();
    let second = bench.start(false);
    assert_eq!(second.how, "replaced");
    assert_ne!(second.incarnation, first.incarnation);
    assert!(bench.passes());
    bench.signal(Signal::SIGKILL);
    assert_eq!(bench.start(false).how, "took over");
    let generations = std::fs::read_dir(bench.run_directory().path().join("bpf")).unwrap();
    let generations = generations
        .filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().starts_with('g'));
    assert_eq!(generations.count(), 1);
}

#[test]
fn changed_configuration_and_addresses_arrive() {
    let bench = Bench::new(&[]);
    bench.configure("metrics = \"0.0.0.0:9100\"");
    bench.start(false);
    // One agent at a time; the second says so, and not that the metrics' address is in use.
    let mut second = bench.spawn(false);
    let mut text = String::new();
    second.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!second.wait().unwrap().success() && text.contains("running already"), "{text}");

    // An address of the host's own: ARP and ping go to the kernel.
    run(&format!("ip -n {}s address add 10.77.0.9/24 dev pl", bench.name));
    let ping = format!("netns exec {}l ping -c 1 -W 1 10.77.0.9", bench.name);
    wait_for("an answer of the host", || {
        Command::new("ip")
            .args(ping.split(' '))
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
            .then_some(())
    });

    // An entry leaves the configuration: it leaves the table at the next start, and what was added
    // at run time stays.
    let wire = |port: &str| EntrySpec {
        keys: vec![KeySpec { name: None, text: port.into() }],
        priority: None,
        action: ActionSpec { name: "drop".into(), arguments: vec![] },
    };
    bench.ask(Request::TableAdd {
        table: "wire".into(),
        entry: wire("5"),
        replace: false,
        incarnation: None,
    });
    bench.signal(Signal::SIGKILL);
    let text = std::fs::read_to_string(bench.config()).unwrap();
    let cut = text.rfind("[[table.entry]]").unwrap();
    std::fs::write(bench.config(), &text[..cut]).unwrap();
    assert_eq!(bench.start(false).how, "took over");
    assert_eq!(entries(&bench.ask(Request::TableList { table: "wire".into() })), ["1", "5", "7"]);
    assert!(
        client::ask(&bench.run_directory(), &Request::TableList { table: "nope".into() }).is_err()
    );
    let reply = bench.ask(Request::RegisterWrite {
        register: "seen".into(),
        index: 3,
        value: "0x10".into(),
    });
    assert!(matches!(reply, Reply::Done));
    let Reply::Register { elements, .. } =
        bench.ask(Request::RegisterRead { register: "seen".into(), index: Some(3) })
    else {
        panic!()
    };
    assert_eq!(elements[0].0, 3);
    assert!(elements[0].1 == "16" || elements[0].1 == "0x10");
    bench.signal(Signal::SIGTERM);
}

#[test]
fn bad_configurations_name_file_and_field() {
    // In a namespace without interfaces, on a thread that ends with this test.
    let folder = tempfile::tempdir().unwrap();
    fixture::build(folder.path(), &[]);
    let path = folder.path().join("switch.toml");
    let base =
        "name = \"spt-bad\"\nobject = \"fixture.o\"\n[[port]]\ninterface = \"nope0\"\nport = 1\n";
    let table = "[[table]]\nname = \"wire\"\n";
    let entry = "[[table.entry]]\nkey = { ingress_port = 1 }\n";
    for (text, part) in [
        (base.to_owned(), "port[0].interface: there is no interface \"nope0\""),
        (base.replace("fixture.o", "other.o"), "object: there is no file"),
        (format!("{base}[[table]]\nname = \"nope\"\n"), "table[0].name: no table \"nope\""),
        (format!("{base}{table}{entry}action = \"fly\"\n"), "table[0].entry[0]: no action \"fly\""),
        (
            format!("{base}{table}{entry}action = \"forward\"\n"),
            "table[0].entry[0]: table ingress.wire: action ingress.forward: argument port is missing",
        ),
        (format!("{base}{table}default = {{ action = \"forward\" }}\n"), "table[0].default: "),
        (base.replace("port = 1", "port = 1\nbandwidth = 3"), "unknown field `bandwidth`"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let result = std::thread::spawn({
            let path = path.clone();
            move || {
                netns::unshare_thread().unwrap();
                Config::read(&path, &[]).and_then(|config| switch_agent::run(config, true, &[]))
            }
        });
        let message = result.join().unwrap().unwrap_err().to_string();
        assert!(
            message.contains("switch.toml: ") && message.contains(part),
            "{text}\ngave {message}"
        );
    }
    // No program ever ran: nothing is left that forwards, or that a status should tell of.
    assert!(!switch_agent::known().contains(&"spt-bad".to_owned()));
    assert!(!RunDirectory::of("spt-bad").unwrap().path().exists());
}

/// The second port has another XDP program on it.
#[test]
fn a_first_start_that_fails_on_a_port_leaves_nothing_on_the_others() {
    let bench = Bench::new(&[]);
    let object = bench.folder.path().join("fixture.o");
    let other = dataplane::Object::open(&object, fixture::manifest()).unwrap().load().unwrap();
    let link = bench.within("s", || {
        let index = nix::net::if_::if_nametoindex("pr").unwrap();
        other.attach("sp_main", index, dataplane::AttachMode::Native).unwrap()
    });
    let output = bench.spawn(false).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("port[1].interface: no XDP on \"pr\""), "{said}");
    assert!(!switch_agent::known().contains(&bench.name));
    assert!(!bench.run_directory().path().exists());
    let ports = Command::new("ip").args(["-n", &format!("{}s", bench.name), "link"]).output();
    let ports = String::from_utf8(ports.unwrap().stdout).unwrap();
    assert_eq!(ports.matches("prog/xdp").count(), 1, "only the other program's: {ports}");
    // Once that is gone the same command works.
    drop(link);
    assert_eq!(bench.start(false).how, "started");
}

#[test]
fn an_object_that_is_none_is_told_by_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let object = fixture::build(folder.path(), &[]);
    let path = folder.path().join("switch.toml");
    let text = "name = \"spt-object\"\nobject = \"fixture.o\"\n[[port]]\ninterface = \"nope0\"\nport = 1\n";
    std::fs::write(&path, text).unwrap();
    let check = || Config::read(&path, &[]).and_then(|config| switch_agent::check(&config, &[]));
    check().unwrap();
    let whole = std::fs::read(&object).unwrap();
    let cut = [0, 1, 63, 64, 5_000, whole.len() / 2, whole.len() - 1]
        .map(|length| whole[..length].to_vec());
    for bad in cut.into_iter().chain([b"x\n".to_vec(), vec![0; whole.len()]]) {
        std::fs::write(&object, &bad).unwrap();
        let message = check().unwrap_err().to_string();
        let said = message.contains("switch.toml: line ")
            && message.contains(": object: ")
            && message.contains("fixture.o");
        assert!(said && message.contains("stateplane compile"), "{} bytes: {message}", bad.len());
    }
}
