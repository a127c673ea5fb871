//! What fuzzers feed bytes to: messages between switches and controllers, orders and answers of
//! tools, files. (Messages of clients come in by the door of all datagrams.)

use crate::NetChain;
use fuzz_door::{Door, Doors, json_again, told};
use netchain_client::Ring;
use netchain_daemon::{Answer, Config, Groups, GroupsWanted, Request, Status};
use netchain_keys::{ClientKeys, Identity};
use netchain_protocol::Message;
use netchain_protocol::control::{Parts, Reported};
use netchain_switch::{ControlledLoad, Held, HeldWanted, KeysLoad};
use std::path::Path;

/// A file in a folder that is not there: what an input names beside it is not there either.
const NOWHERE: &str = "/nonexistent/stateplane-fuzz/input.toml";

impl Doors for NetChain {
    fn doors(&self) -> &'static [Door] {
        &[
            Door { name: "kv_control", run: control, text: false, smoke: 20_000 },
            Door { name: "kv_json", run: json, text: true, smoke: 4000 },
            Door { name: "kv_files", run: files, text: true, smoke: 2000 },
        ]
    }

    /// What is decoded and encoded again is decoded to the same.
    fn datagram(&self, data: &[u8]) {
        match Message::decode(data) {
            Ok(message) => {
                let again = message.encode().expect("what was decoded fits");
                assert_eq!(Message::decode(&again), Ok(message));
            }
            Err(error) => told(&error),
        }
    }
}

/// Datagrams between switches and a controller, each behind its length in two bytes: reports, and
/// decisions in parts, which come together.
fn control(mut data: &[u8]) {
    let mut parts = Parts::default();
    while let Some((length, rest)) = data.split_first_chunk() {
        let (datagram, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
        report(datagram);
        match parts.take(datagram, 0) {
            Ok(None) => {}
            Ok(Some(decided)) => {
                let Some(again) = decided.encode() else { return };
                let mut parts = Parts::default();
                let taken = again.iter().map(|part| parts.take(part, 0)).last();
                assert_eq!(taken, Some(Ok(Some(decided))));
            }
            Err(error) => told(&error),
        }
        data = rest;
    }
}

fn report(datagram: &[u8]) {
    match Reported::decode(datagram) {
        Ok(reported) => {
            // (One that is longer than what switches send is cut.)
            let again = Reported::decode(&reported.encode()).expect("what was encoded");
            if again.report.silent_ms.len() == reported.report.silent_ms.len()
                && again.report.copied.len() == reported.report.copied.len()
            {
                assert_eq!(again, reported);
            }
        }
        Err(error) => told(&error),
    }
}

/// What tools and daemons tell each other. Read and written again it is the same.
fn json(data: &[u8]) {
    json_again::<Request>(data);
    json_again::<Answer>(data);
    json_again::<Status>(data);
    json_again::<GroupsWanted>(data);
    json_again::<Groups>(data);
    json_again::<HeldWanted>(data);
    json_again::<Held>(data);
    json_again::<ControlledLoad>(data);
    json_again::<KeysLoad>(data);
}

/// Clients' keys, a client's own key, a founding file, a controller's configuration.
fn files(data: &[u8]) {
    let (text, nowhere) = (String::from_utf8_lossy(data), Path::new(NOWHERE));
    if let Err(error) = ClientKeys::parse(nowhere, &text) {
        told(&error);
    }
    match Identity::parse(nowhere, &text) {
        Ok(identity) => {
            let again = Identity::parse(nowhere, &identity.text()).expect("what was written");
            assert_eq!(again.key(), identity.key());
        }
        Err(error) => told(&error),
    }
    match Ring::from_toml(&text) {
        Ok(ring) => {
            let again = Ring::from_toml(&ring.to_toml().expect("TOML")).expect("what was written");
            assert_eq!(again, ring);
        }
        Err(error) => told(&error),
    }
    if let Err(error) = Config::parse(nowhere, &text) {
        told(&error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchain_protocol::control::{self, Decided, Part, Report, Role};
    use netchain_protocol::{Key, Operation, Room, Status};
    use std::net::Ipv4Addr;

    const CORPORA: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tools/fuzz-targets/fuzz/corpus");

    fn switch(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, number)
    }

    fn with_lengths(datagrams: &[Vec<u8>]) -> Vec<u8> {
        let one = |it: &Vec<u8>| [&(it.len() as u16).to_be_bytes()[..], it].concat();
        datagrams.iter().flat_map(one).collect()
    }

    fn reported() -> Vec<u8> {
        let report = Report {
            switch: switch(3),
            incarnation: 7,
            applied: 9,
            asks: false,
            silent_ms: vec![(switch(1), 250)],
            copied: vec![(3, 9)],
            used_percent: 0,
        };
        Reported { sent_ns: 5, ring: 1, report }.encode()
    }

    fn decided(groups: u32) -> Vec<Vec<u8>> {
        let role = |view| Role {
            view,
            session: 1,
            part: Part::Member {
                head: true,
                reader: true,
                tail: false,
                joining: false,
                collecting: true,
            },
            head_since: 1,
            floor: 2,
            next: Some(switch(2)),
            copies_to: Some(switch(2)),
            chain: vec![switch(1), switch(2)],
        };
        let config = control::Config {
            version: 9,
            incarnation: 7,
            switches: (1..=3).map(switch).collect(),
            roles: (1..=groups).map(role).collect(),
            dead: vec![switch(3)],
        };
        Decided { ring: 1, lease_ms: 60, config }.encode().expect("a decision")
    }

    fn request() -> Vec<u8> {
        let message = Message {
            operation: Operation::Put,
            status: Status::Request,
            flags: 0,
            key_id: 1,
            tag: 2,
            ring: 3,
            view: 4,
            group: 5,
            client: 6,
            number: 7,
            version: 8,
            operand: 0,
            key: Key::from_name("key").expect("a short name"),
            chain: vec![switch(1), switch(2)],
            records: Default::default(),
            room: Room::Small,
            value: Some(b"value".to_vec()),
        };
        message.encode().expect("a message")
    }

    /// Name of the door and of the file, and what is in it.
    fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
        let text = |text: &str| text.as_bytes().to_vec();
        vec![
            ("datagram", "kv_request", request()),
            ("datagram", "kv_report", reported()),
            ("kv_control", "report", with_lengths(&[reported()])),
            ("kv_control", "decision", with_lengths(&decided(2))),
            ("kv_control", "in_parts", with_lengths(&decided(100))),
            ("kv_json", "drain", text(r#"{"ticket":7,"order":{"drain":"10.9.0.1"}}"#)),
            ("kv_json", "refound", text(r#"{"ticket":7,"order":{"refound":3}}"#)),
            ("kv_json", "collect", text(r#"{"ticket":8,"order":{"collect":null}}"#)),
            ("kv_json", "refused", text(r#"{"refused":"why"}"#)),
            ("kv_json", "wanted", text(r#"{"from":64}"#)),
            ("kv_json", "held_wanted", text(r#"{"group":7,"from":0}"#)),
            (
                "kv_json",
                "held",
                text(
                    r#"{"view":3,"keys":[{"key":"61","version":281474976710657,"digest":5,"deleted":false}],"next":9}"#,
                ),
            ),
            (
                "kv_json",
                "groups",
                text(
                    r#"{"version":2,"groups":[{"group":0,"view":3,"session":1,"stage":"serving","chain":["10.9.0.1"],"joining":null,"floor":1,"collecting":false}],"next":1}"#,
                ),
            ),
            (
                "kv_json",
                "status",
                text(
                    r#"{"leading":true,"version":2,"settled":false,"cannot_decide":"lost","ticket":7,"groups":1,"paused":1,"lost":0,"short":0,"joining":0,"switches":[{"address":"10.9.0.1","standing":"dead","draining":true,"incarnation":7,"applied":1,"report_ms":5,"chains":1,"heads":1,"silent":[{"switch":"10.9.0.2","ms":200}]}],"switches_left_out":0}"#,
                ),
            ),
            ("kv_files", "founding", text(include_str!("../../lab/cluster.toml"))),
            ("kv_files", "controller", text(include_str!("../../docs/controller.example.toml"))),
            (
                "kv_files",
                "keys",
                text(
                    "[anonymous]\nrights = \"read\"\n[[key]]\nid = 3\nname = \"a\"\nstate = \
                     \"active\"\nhex = \"000102030405060708090a0b0c0d0e0f\"\nrights = \
                     \"read-write\"\nprefix = \"a/\"\nrate_per_s = 10\nburst = 3\n",
                ),
            ),
            ("kv_files", "identity", text("id = 3\nhex = \"000102030405060708090a0b0c0d0e0f\"\n")),
        ]
    }

    /// `UPDATE=1` writes them.
    #[test]
    fn the_corpora_have_these_seeds() {
        for (door, name, bytes) in seeds() {
            let folder = Path::new(CORPORA).join(door);
            let file = folder.join(name);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&file, &bytes).unwrap();
            }
            assert_eq!(std::fs::read(&file).unwrap(), bytes, "{}: UPDATE=1", file.display());
        }
    }

    /// Else a fuzzer begins with what nobody reads.
    #[test]
    fn each_seed_is_read() {
        let of = |wanted: &str| {
            let found = seeds().into_iter().find(|(_, name, _)| *name == wanted);
            found.expect("a seed").2
        };
        assert!(Message::decode(&of("kv_request")).is_ok());
        assert!(Reported::decode(&of("report")[2..]).is_ok());
        assert!(decided(100).len() > 1);
        assert!(serde_json::from_slice::<Request>(&of("drain")).is_ok());
        assert!(serde_json::from_slice::<Request>(&of("refound")).is_ok());
        assert!(serde_json::from_slice::<Answer>(&of("refused")).is_ok());
        assert!(serde_json::from_slice::<GroupsWanted>(&of("wanted")).is_ok());
        assert!(serde_json::from_slice::<HeldWanted>(&of("held_wanted")).is_ok());
        assert!(serde_json::from_slice::<Held>(&of("held")).is_ok());
        assert!(serde_json::from_slice::<Groups>(&of("groups")).is_ok());
        assert!(serde_json::from_slice::<netchain_daemon::Status>(&of("status")).is_ok());
        let text = |name: &str| String::from_utf8(of(name)).expect("a text");
        assert!(Ring::from_toml(&text("founding")).is_ok());
        assert!(ClientKeys::parse(Path::new(NOWHERE), &text("keys")).is_ok());
        assert!(Identity::parse(Path::new(NOWHERE), &text("identity")).is_ok());
    }
}
