//! Writes the small inputs that the fuzzers begin with: `cargo run -p fuzz-targets --example seeds`
//! in the repository's folder.
//!
//! They come from what is there already (programs, packet tests, examples of configurations) and
//! from messages of every kind.

use etherparse::PacketBuilder;
use redplane_tools::{OBJECTS, SHARDS};
use state_protocol::{Flags, Kind, Message, Owner, kind};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use wire::{Batch, BatchAck, BatchHead, BatchRecord, RecordFlags};
use wire::{ChainFlags, ChainHeader, Control, Member, Refusal, ShardView, Views};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What is longer makes a fuzzer slow.
const MOST_BYTES: usize = 8 << 10;

/// A controller's configuration with all that there is for etcd.
const ETCD: &[u8] = b"name = \"c\"\nlisten = \"10.0.0.1:5408\"\nsecrets = \"s\"\netcd = [\"https://e1.example.net:2379/\", \"https://[::1]:2379\"]\netcd_prefix = \"/p/\"\netcd_ca_file = \"ca\"\netcd_cert_file = \"c\"\netcd_key_file = \"k\"\netcd_user = \"u\"\netcd_password_file = \"p\"\n";

fn put(target: &str, name: &str, bytes: &[u8]) -> Outcome {
    let folder = Path::new("tools/fuzz-targets/fuzz/corpus").join(target);
    fs::create_dir_all(&folder)?;
    if bytes.len() <= MOST_BYTES {
        fs::File::create(folder.join(name))?.write_all(bytes)?;
    }
    Ok(())
}

fn files(folder: &str, ending: &str) -> Result<Vec<PathBuf>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn copy(target: &str, folder: &str, ending: &str, most: usize) -> Outcome {
    for path in files(folder, ending)?.iter().take(most) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        put(target, &name, &fs::read(path)?)?;
    }
    Ok(())
}

fn texts() -> Outcome {
    copy("p4", "p4/tests", ".p4", 40)?;
    for (name, text) in [
        ("action", "action a(inout bit<8> x, bit<8> y) { x = x |+| y; }"),
        ("function", "bit<16> f(in bit<8> a) { return a ++ 8w1; }"),
        (
            "types",
            "typedef bit<9> p_t; enum bit<2> E { A = 0, B = 1 } struct s_t { p_t p; E e; } const s_t S = { 1, E.A };",
        ),
        ("numbers", "const int a = 1 << 100; const bit<8> b = 8w0xff &&& 3;"),
    ] {
        put("p4", name, text.as_bytes())?;
    }
    copy("stf", "p4/tests", ".stf", 12)?;
    put("stf", "setup", b"# define: A=1\n# port: 0 mac 02:00:00:00:00:a0 address 10.0.0.1/24\n# route: 0.0.0.0/0 via 10.0.0.5 port 0\nadd t k:0x10/8 a(1)\nsetdefault t a(x:1)\nwait\nclock 5\ncheck_counter c(1) packets >= 3\ncheck_register r(0) == 7\nno_packet\n")?;
    copy("store_config", "systems/redplane/docs", "store.example.toml", 1)?;
    copy("controller_config", "docs", "controller.example.toml", 1)?;
    put("controller_config", "etcd", ETCD)?;
    copy("switch_config", "docs", "switch.example.toml", 1)?;
    copy("lab_topology", "systems/redplane/lab", ".toml", 8)?;
    put("secrets_file", "two", b"send = 1\n[[secret]]\nid = 0\nhex = \"000102030405060708090a0b0c0d0e0f\"\n[[secret]]\nid = 1\nhex = \"101112131415161718191a1b1c1d1e1f\"\n")?;
    put("manifest", "small", br#"{"version":2,"program":"p.p4","tables":[{"name":"i.t","keys":[{"name":"k","match_kind":"exact","width":8,"offset":0,"bytes":1}],"actions":[{"action":0,"default_only":false,"table_only":false}],"kind":"exact","map":"i_t","key_bytes":4,"default_map":null,"default_action":{"action":0,"arguments":["1"]},"const_default":true,"initial_entries":[{"matches":[{"match":"exact","value":"7"}],"action":{"action":0,"arguments":["1"]},"priority":1}],"const_entries":[],"size":1024,"value_bytes":8,"direct_counter":null,"location":"p.p4:1:1"}],"actions":[{"name":"i.a","parameters":[{"name":"p","width":8,"offset":8,"bytes":1}]}],"registers":[],"counters":[],"state_objects":[{"id":1,"name":"i.s","system":"redplane","kind":"FlowState","map":"i_s","capacity":8,"home":"store","key":[{"name":"k","width":8,"offset":0,"bytes":1}],"key_bytes":1,"value":{"slots":{"count":2,"width":32,"slot_bytes":4,"map_slot_bytes":12,"offset":64}},"settings":{"consistency":"linearizable","period_us":0.5}}],"errors":["NoError"],"max_ports":512,"drop_port":511,"headroom_bytes":0}"#)?;
    Ok(())
}

/// A question, its answer, and how a server and a controller are.
const MESSAGE_JSON: [(&str, &str); 4] = [
    ("query", r#"{"object":0,"owner":2,"key":"0a000001","from":[1,77],"slots_from":6144}"#),
    (
        "answer",
        r#"{"records":[{"shard":1,"object":0,"key":"0a","value":"ff","epoch":3,"seq":9,"owner":2,"incarnation":7,"session":4,"phase":"open","snapshot":{"epoch":3,"seq":2,"slot_bytes":4,"bytes":768}}],"next":[1,5],"slots":{"snapshot":{"epoch":3,"seq":2,"slot_bytes":4,"bytes":8},"bytes":"0001"},"shards":[0,1],"all_shards":2}"#,
    ),
    (
        "server",
        r#"{"state":"ready","incarnation":1,"uptime_ms":2,"version":3,"held":0,"recalls":0,"sessions":2,"records":9,"unacked":1,"objects":[{"name":"i.f","id":0,"records":9,"ports_in_use":4,"backends":[]}],"malformed":0,"shards":1,"heads":1,"stalled_ms":5,"replicas":[{"shard":0,"role":"head","state":"serving","reason":null,"view":1,"index":8,"committed":7,"unacked":1,"held":0,"recalls":0,"sessions":2,"stalled_ms":5}],"replicas_left_out":0}"#,
    ),
    (
        "controller",
        r#"{"leading":true,"version":4,"settled":false,"cannot_decide":"no database","warnings":["one"],"state_lost":[1],"peers":[{"address":"10.0.0.1:5407","reporter":"server","machine":"a","alive":true,"version":4,"silent_ms":10}],"shards":[{"shard":0,"view":2,"chain":["10.0.0.1:5407"],"joining":null,"draining":false,"lag":3}],"shards_left_out":0,"peers_left_out":0}"#,
    ),
];

fn some_views() -> Views {
    let member = |last: u8| Member {
        address: std::net::SocketAddrV4::new([10, 0, 0, last].into(), 5407),
        incarnation: u64::from(last),
    };
    let shard = |number: u64, members: &[u8]| ShardView {
        number,
        founded: 1,
        members: members.iter().map(|last| member(*last)).collect(),
        joining: None,
        draining: false,
    };
    Views { version: 3, shards: vec![shard(2, &[1, 2, 3]), shard(3, &[2, 3])] }
}

/// Ethernet, IPv4 and UDP around a datagram of the state protocol.
fn frame(payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(5407, 5407);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("a datagram that fits, into memory");
    frame
}

/// How a message of the type with this number begins.
fn start(number: u8) -> [u8; 4] {
    let [high, low] = wire::MAGIC.to_be_bytes();
    [high, low, wire::VERSION, number]
}

fn datagrams() -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    let (key, value, packet) = ([7u8; 13], [9u8; 6], [0x55u8; 40]);
    for number in 0..=u8::MAX {
        let Ok(Kind::Message(message_type)) = kind(&start(number)) else { continue };
        for long in [false, true] {
            let message = Message {
                message_type,
                object_id: OBJECTS[0].0,
                flags: Flags(0),
                sender: Owner { switch_id: 1, incarnation: 2 },
                request_ns: 3,
                epoch: 4,
                seq: 5,
                lease_us: 6,
                port: 7,
                session: 8,
                shard: 1,
                key: if long { &key } else { &[] },
                value: if long { &value } else { &[] },
                packet: if long { &packet } else { &[] },
            };
            let mut bytes = Vec::new();
            if message.append_to(&mut bytes).is_ok() {
                found.push(bytes);
            }
        }
    }
    for number in 0..=u8::MAX {
        let Ok(Kind::Chain(chain_type)) = kind(&start(number)) else { continue };
        let header = ChainHeader {
            chain_type,
            flags: ChainFlags(0),
            count: 0,
            shard: 1,
            view: 2,
            sender: 3,
            receiver: 4,
            index: 5,
            committed: 4,
            config_digest: 6,
        };
        found.push(header.encode().to_vec());
    }
    found.push(Control::Views(some_views()).encode()?);
    found.push(Control::Heard.encode()?);
    let address = "10.0.0.2:40000".parse()?;
    let refusal = Refusal { switch_id: 1, address, name: "s1".to_owned() };
    found.push(Control::Refused { sent_ns: 1, incarnation: 2, refusal }.encode()?);
    found.extend(batches()?);
    Ok(found)
}

/// A batch of one packet's two records and another's one, and its acknowledgement.
fn batches() -> Result<[Vec<u8>; 2], Box<dyn std::error::Error>> {
    let head = BatchHead {
        flags: 0,
        switch_id: 1,
        incarnation: 2,
        request_ns: 3,
        number: 4,
        view: 0,
        session: 5,
        stream: 1,
        client: "10.0.0.2".parse()?,
        shard: 1,
    };
    let mut records = Vec::new();
    for (seq, flags) in [RecordFlags::GROUP, RecordFlags(4), RecordFlags::NONE].iter().enumerate() {
        let (object_id, key_bytes, value_bytes) = OBJECTS[seq % 2];
        let record = BatchRecord {
            object_id,
            flags: *flags,
            epoch: 6,
            place: 0,
            seq: seq as u64,
            content: &[],
        };
        record.append_to(&vec![7; key_bytes], &vec![9; value_bytes], &mut records)?;
    }
    let mut found = [Vec::new(), Vec::new()];
    Batch::new(head, &records)?.append_to(&mut found[0]);
    BatchAck { head, count: 3, refused: 0b011 }.append_to(&mut found[1]);
    Ok(found)
}

fn main() -> Outcome {
    texts()?;
    let json = some_views().to_json();
    put("views", "two_shards", &json)?;
    for (name, json) in MESSAGE_JSON {
        let door = if name == "controller" { "message_json" } else { "store_json" };
        put(door, name, json.as_bytes())?;
    }
    let all = datagrams()?;
    let mut capture = capture::Writer::new(Vec::new())?;
    for (number, datagram) in all.iter().enumerate() {
        put("datagram", &format!("message{number:02}"), datagram)?;
        let frame = frame(datagram);
        capture.write(number as u64 * 1000, &frame)?;
        let mut with_link = vec![0];
        with_link.extend(&frame);
        put("trace", &format!("frame{number:02}"), &with_link)?;
    }
    put("capture", "messages.pcap", &capture.finish()?)?;
    logs()
}

/// The items of a log, as core/chain/src/journal.rs has them: kind, 0, shard (2),
/// length (4), the rest.
fn item(kind: u8, shard: u16, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0];
    bytes.extend(shard.to_be_bytes());
    bytes.extend(((numbers.len() * 8 + rest.len()) as u32).to_be_bytes());
    numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes.extend(rest);
    bytes
}

fn logs() -> Outcome {
    use wal::frame::{FileHeader, batch_header};
    let views = Control::Views(some_views()).encode()?;
    let mut items = item(1, 0, &[], &views);
    items.extend(item(2, 1, &[1, 0], &[]));
    items.extend(item(4, 1, &[0], &[]));
    items.extend(item(7, 1, &[1, 0, 1, 3], &[]));
    items.extend(item(9, 1, &[], &[]));
    items.extend(item(6, 0, &[], &[]));
    put("journal", "items", &items)?;
    for (name, kind, numbers) in
        [("entry", 5, &[1u64, 0][..]), ("copied", 3, &[]), ("kept", 8, &[1])]
    {
        let mut begun = item(2, 0, &[1, 0], &[]);
        begun.extend(item(kind, 0, numbers, &[0; 24]));
        put("journal", name, &begun)?;
    }
    let header = FileHeader { incarnation: 7, config_digest: 8, shards: SHARDS, first_batch: 1 };
    let mut file = header.encode().to_vec();
    for number in 1..3 {
        file.extend(batch_header(number, &items));
        file.extend(&items);
    }
    put("wal", "two_batches", &file)?;
    file.truncate(file.len() - 3);
    put("wal", "torn", &file)
}
