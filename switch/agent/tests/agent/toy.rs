//! A system that counts: each place of `switch_agent::system` is called, and in which order.

use crate::bench::{Bench, run, wait_for};
use crate::fixture;
use daemon::metrics::Text;
use dataplane::Result as DataplaneResult;
use manifest::{Home, Layout, Manifest, StateObject};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use secrets::SecretsFile;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use switch_agent::config::Config;
use switch_agent::control::{Reply, Request};
use switch_agent::load::ViewsKnown;
use switch_agent::system::{Holds, ObjectLoad};
use switch_agent::{Context, Result, Running, System, client};
use wire::{Control, KeyRing, Member, ShardView, SwitchLoad, Views};

/// Frames that it wants at each look of the generator.
const DUE: u64 = 3;
/// What it needs beside a packet in a message.
const MESSAGE_BYTES: u32 = 100;
/// The switch's address, and the controller's.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// Where a switch with this configuration writes its calls, one a line. It does not run the toy if
/// there is no such file.
fn journal(config: &Path) -> PathBuf {
    config.with_file_name("toy.journal")
}

fn note(config: &Config, line: &str) {
    // Whole lines, also from several threads.
    if let Ok(mut file) = File::options().append(true).open(journal(&config.file)) {
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Its part of `switch.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    toy_number: u32,
}

/// Before an object is loaded.
pub struct Toy;

impl System for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn fields(&self) -> &'static [&'static str] {
        &["toy_number"]
    }

    fn check(&self, config: &Config, _manifest: &Manifest) -> Result<()> {
        note(config, "check");
        match config.part::<Fields>(self.fields())?.toy_number {
            13 => config.fault("toy_number", "13 is no number for a toy"),
            _ => Ok(()),
        }
    }

    fn message_bytes(&self, _manifest: &Manifest) -> u32 {
        MESSAGE_BYTES
    }

    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>> {
        note(&context.config, "begin");
        let toy = Counting { context: context.clone(), has_views: AtomicBool::new(false) };
        Ok(journal(&context.config.file).is_file().then(|| Box::new(toy) as Box<dyn Running>))
    }
}

/// At work.
struct Counting {
    context: Context,
    has_views: AtomicBool,
}

impl Counting {
    fn note(&self, line: &str) {
        note(&self.context.config, line);
    }
}

impl Running for Counting {
    fn interval(&self) -> Option<Duration> {
        self.note("interval");
        Some(Duration::from_millis(1))
    }

    fn configure(&self, interval: Duration) -> Result<()> {
        let read: DataplaneResult<Vec<u8>> = self.context.dataplane.read_array("r_seen", 0);
        self.note(&format!(
            "configure {} us, {} bytes of a map",
            interval.as_micros(),
            read?.len()
        ));
        Ok(())
    }

    fn secrets(&self, ring: &KeyRing) -> Result<()> {
        self.note(&format!("secrets {}", ring.secret(ring.sending()).is_some()));
        Ok(())
    }

    fn views(&self, views: &Views) -> Result<()> {
        self.note(&format!("views {}", views.version));
        self.has_views.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn has_views(&self) -> Option<bool> {
        self.note("has_views");
        Some(self.has_views.load(Ordering::Relaxed))
    }

    fn due(&self, now_ns: u64) -> u64 {
        self.note(if now_ns > 0 { "due" } else { "due without a clock" });
        DUE
    }

    fn sweep(&self, until: Instant) -> Result<()> {
        self.note(if until > Instant::now() { "sweep" } else { "sweep without time" });
        Ok(())
    }

    fn look(&self) {
        self.note("look");
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        let (name, consistency) = ("ingress.toy".to_owned(), "gossip".to_owned());
        vec![ObjectLoad { name, consistency, flows: 2, owned: 1, limit: 8, holds: Holds::Flows }]
    }

    fn status(&self) -> Map<String, Value> {
        Map::from_iter([("toy_incarnation".to_owned(), self.context.incarnation.into())])
    }

    fn metrics(&self, text: &mut Text) {
        text.single("stateplane_toy", daemon::metrics::Kind::Gauge, "A toy", 5);
    }

    fn request(&self, op: &str, request: &Value) -> Option<Result<Value>> {
        (op == "toy").then(|| Ok(json!({ "reply": "toy", "word": request["word"] })))
    }

    fn report(&self, load: &mut SwitchLoad) {
        self.note("report");
        load.owned += 7;
    }
}

/// The calls of a switch's journal, from its line `from` on.
fn calls(bench: &Bench, from: usize) -> Vec<String> {
    let text = std::fs::read_to_string(journal(&bench.config())).unwrap();
    text.lines().skip(from).map(str::to_owned).collect()
}

/// The first call of each kind, in order, up to the first that `end` says.
fn first_of_each(calls: &[String], end: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for call in calls {
        if !found.contains(call) {
            found.push(call.clone());
        }
        if call == end {
            break;
        }
    }
    found
}

/// A controller that answers with views, once it has some; what switches report to it is kept.
fn control(
    socket: &UdpSocket,
    keys: &KeyRing,
    views: &Mutex<Option<Views>>,
    heard: &Mutex<Option<SwitchLoad>>,
) {
    let mut buffer = [0; 65_536];
    let Ok((count, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) else { return };
    keys.verify(&buffer[..count], *from.ip(), OWN).unwrap();
    let Ok(Control::Report { report, .. }) = Control::decode(&buffer[..count]) else {
        panic!("no report")
    };
    *heard.lock().unwrap() = report.load;
    if let Some(views) = views.lock().unwrap().clone() {
        let mut bytes = Control::Views(views).encode().unwrap();
        keys.sign(&mut bytes, OWN, *from.ip());
        socket.send_to(&bytes, from).unwrap();
    }
}

/// A switch with a controller, and the toy on it.
fn bench() -> (Bench, KeyRing) {
    let bench = Bench::new(&["-DWITH_GENERATOR"]);
    run(&format!("ip -n {}s link set lo up", bench.name));
    run(&format!("ip -n {}s address add {OWN}/32 dev lo", bench.name));
    let secrets = SecretsFile::generate(&bench.folder.path().join("fabric.secrets")).unwrap();
    bench.configure(&format!(
        "switch_id = 7\nprotocol_address = \"{OWN}\"\ncontrollers = [\"{OWN}:5408\"]\n\
         secrets = \"fabric.secrets\"\nmetrics = \"{OWN}:9100\"\ngenerator_interval_us = 4000"
    ));
    File::create(journal(&bench.config())).unwrap();
    (bench, secrets.ring().clone())
}

const BEFORE_PACKETS: [&str; 6] = [
    "check",
    "begin",
    "interval",
    "configure 1000 us, 8 bytes of a map",
    "secrets true",
    "has_views",
];

#[test]
fn a_system_is_called_at_each_place_in_order() {
    let (bench, keys) = bench();
    let socket = bench.within("s", || UdpSocket::bind((OWN, 5408)).unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (views, heard, stop) = (Mutex::new(None), Mutex::new(None), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                control(&socket, &keys, &views, &heard);
            }
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            follow(&bench, &views, &heard)
        }));
        stop.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
}

#[test]
fn the_generator_goes_on_while_any_port_is_up() {
    let (bench, _) = bench();
    bench.start(false);
    let goes_on = |when: &str| {
        let frames = || match bench.ask(Request::Status) {
            Reply::Status(status) => status.generated_frames,
            other => panic!("{other:?}"),
        };
        let before = frames();
        wait_for(when, || (frames() > before + 10 * DUE).then_some(()));
    };
    goes_on("all ports are up");
    for (down, up) in [("pl", "pr"), ("pr", "pl")] {
        run(&format!("ip -n {}s link set {up} up", bench.name));
        run(&format!("ip -n {}s link set {down} down", bench.name));
        goes_on(&format!("frames while {down} is down"));
    }
}

fn follow(bench: &Bench, views: &Mutex<Option<Views>>, heard: &Mutex<Option<SwitchLoad>>) {
    let count = |call: &str| calls(bench, 0).iter().filter(|it| *it == call).count();
    bench.start(false);
    wait_for("the generator's look", || (count("due") > 0).then_some(()));
    let first = first_of_each(&calls(bench, 0), "due");
    assert_eq!(first[..6], BEFORE_PACKETS, "no views are known yet: {first:?}");

    let member = Member { address: "10.99.0.9:5407".parse().unwrap(), incarnation: 1 };
    let shard = ShardView { number: 1, founded: 1, members: vec![member], ..ShardView::default() };
    *views.lock().unwrap() = Some(Views { version: 3, shards: vec![shard] });
    wait_for("the controller's views", || (count("views 3") == 1).then_some(()));

    wait_for("a sweep", || (count("sweep") > 0).then_some(()));
    let load = wait_for("a report after it", || heard.lock().unwrap().clone());
    assert_eq!((load.owned, load.name.as_str()), (7, bench.name.as_str()));
    let swept: Vec<String> =
        calls(bench, 0).into_iter().filter(|it| it == "sweep" || it == "report").collect();
    assert_eq!(swept[..2], ["sweep", "report"]);

    let looks = count("look");
    run(&format!("ip -n {}s address add 10.99.0.2/32 dev lo", bench.name));
    wait_for("a look after news", || (count("look") > looks).then_some(()));
    let pid = bench.agent.borrow().as_ref().unwrap().id();
    kill(Pid::from_raw(pid as i32), Signal::SIGHUP).unwrap();
    wait_for("the secrets, again", || (count("secrets true") == 2).then_some(()));

    answers(bench);
    assert!(!calls(bench, 0).iter().any(|it| it.contains("without")), "clock and time are there");

    // The next agent has the views that this one left, before the first packet.
    *views.lock().unwrap() = None;
    bench.signal(Signal::SIGKILL);
    let before = calls(bench, 0).len();
    assert_eq!(bench.start(false).how, "took over");
    wait_for("the generator's look", || {
        calls(bench, before).contains(&"due".to_owned()).then_some(())
    });
    let again = first_of_each(&calls(bench, before), "due");
    assert_eq!((&again[..6], again[6].as_str()), (&first[..6], "views 3"));
}

/// What is told of the toy to whoever asks.
fn answers(bench: &Bench) {
    let Reply::Status(status) = bench.ask(Request::Status) else { panic!() };
    assert!(
        status.generated_frames > 0 && status.generated_frames.is_multiple_of(DUE),
        "{status:?}"
    );
    let Reply::Load(load) = bench.ask(Request::Load) else { panic!() };
    assert_eq!((load.objects[0].name.as_str(), load.objects.len()), ("ingress.toy", 1));
    assert_eq!(load.systems["toy_incarnation"], status.incarnation);
    assert_eq!((load.views, load.views_version), (Some(ViewsKnown::Told), 3));
    assert_eq!(load.narrow_ports[0].leaves, 1_500 - MESSAGE_BYTES);

    let run = bench.run_directory();
    let answer: Value = client::ask_system(&run, &json!({ "op": "toy", "word": "hello" })).unwrap();
    assert_eq!(answer, json!({ "reply": "toy", "word": "hello" }));
    let none =
        client::ask_system::<Value>(&run, &json!({ "op": "nobodys" })).unwrap_err().to_string();
    assert!(none.starts_with("not a request: unknown variant `nobodys`"), "{none}");

    let text = bench.within("s", || {
        let mut stream = TcpStream::connect((OWN, 9100)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut text = vec![];
        // The server may keep the connection.
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    });
    let flows = "stateplane_flows{object=\"ingress.toy\",consistency=\"gossip\"} 2\n";
    assert!(text.contains("\nstateplane_toy 5\n") && text.contains(flows), "{text}");
}

#[test]
fn a_program_needs_its_system_and_a_system_may_refuse_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let object = fixture::build(folder.path(), &[]);
    let mut manifest = fixture::manifest();
    manifest.state_objects.push(StateObject {
        id: 1,
        name: "ingress.toy".into(),
        system: "toy".into(),
        kind: "GossipCounter".into(),
        map: "r_seen".into(),
        slots_map: None,
        capacity: 4,
        home: Home::Peers,
        key: vec![],
        key_bytes: 0,
        value: Layout::Slots { count: 1, width: 64, slot_bytes: 8, map_slot_bytes: 8, offset: 0 },
        settings: Default::default(),
    });
    std::fs::write(Manifest::path_for(&object), manifest.to_json()).unwrap();
    let parse = |number: &str, systems: &[&dyn System]| {
        let port = "[[port]]\ninterface = \"nope0\"\nport = 1\n";
        let text = format!("name = \"spt-toy\"\nobject = \"fixture.o\"\n{number}\n{port}");
        Config::parse(&folder.path().join("switch.toml"), &text, systems)
    };
    let check = |number: &str, systems: &[&dyn System]| {
        let checked =
            parse(number, systems).and_then(|config| switch_agent::check(&config, systems));
        checked.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(check("toy_number = 1", &[&Toy]), Ok(()));
    let refused = check("toy_number = 13", &[&Toy]).unwrap_err();
    assert!(
        refused.ends_with("switch.toml: line 3: toy_number: 13 is no number for a toy"),
        "{refused}"
    );
    let negative = check("\ntoy_number = -1", &[&Toy]).unwrap_err();
    assert!(negative.contains("line 4, column 14"), "{negative}");
    let nobodys = check("toy_number = 1", &[]).unwrap_err();
    assert!(
        nobodys.contains("line 3") && nobodys.contains("unknown field `toy_number`"),
        "{nobodys}"
    );
    let unknown = check("", &[]).unwrap_err();
    assert!(
        unknown
            .contains("object: the program's GossipCounter ingress.toy needs the system \"toy\""),
        "{unknown}"
    );
}
