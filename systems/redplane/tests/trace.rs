//! `stateplane trace`: files made with the codec, and a real store listened to. Needs root.
//! Waits for timers, and for the host's ports.

use state_protocol::{Flags, Message, MessageType, Owner};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use wire::KeyRing;

const STATEPLANE: &str = env!("CARGO_BIN_EXE_stateplane");
const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 255, 0, 1), 5407);
const STORE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 2, 1, 10), 5407);

fn stateplane(arguments: &[&str]) -> Output {
    Command::new(STATEPLANE).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of secrets, made by the command.
fn secrets(folder: &Path) -> (PathBuf, KeyRing) {
    let path = folder.join("secrets.toml");
    let output = stateplane(&["keys", "generate", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ring = secrets::SecretsFile::load(&path).unwrap().ring().clone();
    (path, ring)
}

fn framed(payload: &[u8], from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((28 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.ip().octets());
    frame.extend(to.ip().octets());
    for half in [from.port(), to.port(), 8 + payload.len() as u16, 0] {
        frame.extend(half.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

/// A request, its re-sending, a forged one, and one that is cut off.
fn capture(folder: &Path, ring: &KeyRing) -> PathBuf {
    let update = Message {
        message_type: MessageType::Update,
        object_id: 1,
        flags: Flags::NONE,
        sender: Owner { switch_id: 7, incarnation: 1 },
        request_ns: 1_000,
        epoch: 3,
        seq: 5,
        lease_us: 0,
        port: 1,
        session: 2,
        shard: 0,
        key: &[10, 1, 0, 10, 198, 51, 100, 10, 0x9c, 0x40, 0, 80, 6],
        value: &[203, 0, 113, 1, 0x9c, 0x40],
        packet: &[],
    };
    let signed = |message: &Message<'_>| {
        let mut bytes = vec![];
        message.append_to(&mut bytes).unwrap();
        assert!(ring.sign(&mut bytes, *SWITCH.ip(), *STORE.ip()));
        bytes
    };
    let first = signed(&update);
    let again = signed(&Message { request_ns: 6_000, ..update });
    let mut forged = signed(&Message { seq: 6, ..update });
    forged[70] ^= 1;
    let short = again[..again.len() - 3].to_vec();
    let path = folder.join("fabric.pcap");
    let mut writer = capture::Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
    for (at, payload) in [first, again, forged, short].iter().enumerate() {
        writer.write(at as u64 * 1_000_000, &framed(payload, SWITCH, STORE)).unwrap();
    }
    let (client, server) =
        (SocketAddrV4::new(*SWITCH.ip(), 40_000), SocketAddrV4::new(*STORE.ip(), 53));
    writer.write(9_000_000, &framed(b"another port", client, server)).unwrap();
    writer.finish().unwrap();
    path
}

#[test]
fn files_are_told_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let (secrets_path, ring) = secrets(folder.path());
    let path = capture(folder.path(), &ring);
    let nat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/redplane/p4/nat/nat.p4");
    let object = folder.path().join("nat.o");
    let compiled =
        Command::new(STATEPLANE).arg("compile").arg(nat).arg("-o").arg(&object).output().unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let manifest = object.with_extension("json");
    let common = [
        "trace",
        path.to_str().unwrap(),
        "--manifest",
        manifest.to_str().unwrap(),
        "--secrets",
        secrets_path.to_str().unwrap(),
    ];

    let output = stateplane(&common);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(
        lines[0].starts_with("00:00:00.000000  10.255.0.1:5407 > 10.2.1.10:5407"),
        "{lines:#?}"
    );
    assert!(lines[0].contains("UPDATE") && lines[0].contains("NatIngress.bindings"), "{lines:#?}");
    assert!(!lines[0].contains("TAG") && lines[1].ends_with("(sent again)"), "{lines:#?}");
    assert!(lines[2].contains("WRONG TAG"), "{lines:#?}");
    assert!(
        lines[3].contains("MALFORMED") && lines[3].contains("lengths do not add up"),
        "{lines:#?}"
    );
    let summary = lines[4..].join("\n");
    for part in ["4 messages", "1 sent again", "length_mismatch", "2 wrong tags"] {
        assert!(summary.contains(part), "{part}: {summary}");
    }

    let output =
        stateplane(&[&common[..], &["--json", "--type", "update", "--key", "10.1.0.10"]].concat());
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert_eq!(
        (&lines[0]["tag"], &lines[1]["repeat"]),
        (&"good".into(), &"retransmission".into()),
        "{lines:#?}"
    );
    assert_eq!(lines[0]["value_fields"][1]["value"], "40000", "{lines:#?}");
    assert_eq!(
        (&lines[2]["tag"], &lines[3]["summary"]["types"]["UPDATE"]),
        (&"wrong".into(), &3.into()),
        "{lines:#?}"
    );
    let output = stateplane(&[&common[..], &["--quiet", "--key", "sauce=1"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("\"sauce\"") && said.contains("source") && said.contains("destination"),
        "{said}"
    );
    let output = stateplane(&[&common[..], &["--json", "--switch-id", "8"]].concat());
    assert_eq!(text(&output.stdout).lines().count(), 1, "only the summary");
}

#[test]
fn faults_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (_, ring) = secrets(folder.path());
    let path = capture(folder.path(), &ring);
    let bytes = std::fs::read(&path).unwrap();
    let cut = folder.path().join("cut.pcap");
    std::fs::write(&cut, &bytes[..bytes.len() - 5]).unwrap();
    let output = stateplane(&["trace", cut.to_str().unwrap(), "--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("4 messages"),
        "what is whole is counted: {}",
        text(&output.stdout)
    );
    assert!(
        text(&output.stderr).contains("ends in the middle of frame 5"),
        "{}",
        text(&output.stderr)
    );
    for (arguments, part) in [
        (&["trace", "/etc/passwd"][..], "neither pcap nor pcapng"),
        (&["trace", path.to_str().unwrap(), "--key", "source=10.1.0.10"], "--manifest"),
        (&["trace", path.to_str().unwrap(), "--key", "10.1.0.10"], "--manifest"),
        (&["trace", "--interface", "no-such-if"], "no-such-if: there is no such interface"),
    ] {
        let output = stateplane(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {}", text(&output.stderr));
    }
    assert_eq!(stateplane(&["trace"]).status.code(), Some(2));
    let output = stateplane(&["trace", path.to_str().unwrap(), "--type", "renewal"]);
    assert_eq!(output.status.code(), Some(2), "wrong usage");
    assert!(text(&output.stderr).contains("\"renewal\" is not a type"), "{}", text(&output.stderr));
    // Digits that a key begins with need no manifest.
    assert_eq!(
        stateplane(&["trace", path.to_str().unwrap(), "--key", "0a01"]).status.code(),
        Some(0)
    );
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A real store in a network of its own, asked for its status while the tracer listens.
#[test]
fn a_living_store_is_listened_to() {
    netns::unshare_thread().unwrap_or_else(|error| panic!("{error}"));
    netns::ip_batch(&["link set lo up"]).unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().unwrap();
    let (secrets_path, _) = secrets(folder.path());
    let secrets_path = secrets_path.to_str().unwrap();
    let config = folder.path().join("store.toml");
    let page = include_str!("../docs/store.example.toml");
    let config_text: String = page
        .lines()
        .filter(|line| !line.starts_with("metrics"))
        .map(|line| match line {
            line if line.starts_with("listen") => "listen = \"127.0.0.1:5407\"\n".to_owned(),
            line if line.starts_with("controllers") => {
                "controllers = [\"127.0.0.1:5408\"]\n".to_owned()
            }
            line if line.starts_with("secrets") => format!("secrets = {secrets_path:?}\n"),
            line => format!("{line}\n"),
        })
        .collect();
    std::fs::write(&config, config_text).unwrap();
    let mut store =
        Daemon(Command::new(STATEPLANE).args(["store", "--config"]).arg(&config).spawn().unwrap());
    let arguments =
        ["trace", "--interface", "lo", "--secrets", secrets_path, "--json", "--count", "6"];
    // It also reports to a controller, which is not there.
    let types = ["--type", "status-request", "--type", "status-reply"];
    let tracer = Command::new(STATEPLANE)
        .args(arguments)
        .args(types)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut tracer = Daemon(tracer);
    // Ask until the tracer has seen enough.
    while tracer.0.try_wait().unwrap().is_none() {
        assert!(store.0.try_wait().unwrap().is_none(), "the store ended");
        stateplane(&["store", "status", "--address", "127.0.0.1:5407", "--secrets", secrets_path]);
    }
    let mut said = String::new();
    std::io::Read::read_to_string(tracer.0.stdout.as_mut().unwrap(), &mut said).unwrap();
    let events: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 7, "{said}");
    for event in &events[..6] {
        assert!(event["type"] == "STATUS_REQUEST" || event["type"] == "STATUS_REPLY", "{event}");
        assert_eq!(event["tag"], "good", "{event}");
    }
    assert_eq!(events[6]["not_captured"], 0, "{said}");
}
