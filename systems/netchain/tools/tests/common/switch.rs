//! A switch in the kernel, as tests of several switches set it up.

use dataplane::{ActionSpec, Dataplane, EntrySpec, KeySpec, Object, SecretSet, Settings, Write};
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Manifest, StateObject};
use netchain_keys::Grant;
use netchain_protocol::ClientKey;
use netchain_switch::{Keys, peers};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{KeyRing, Secret};
use xdp_backend::Options;

pub const READER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const JOINING: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub const RING: u32 = 77;
pub const GROUP: u16 = 7;
pub const KEY: ClientKey = ClientKey { id: 3, secret: Secret([5; 16]) };
/// With which switches tag their messages to each other.
pub const FABRIC: Secret = Secret([9; 16]);
const NOBODY: u32 = u32::MAX;

/// The switch program, with slots for so many keys, compiled into a folder.
pub fn object(into: &Path, keys: u32) -> (PathBuf, Manifest) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/netchain.p4");
    let defines = vec![format!("NETCHAIN_KEYS={keys}")];
    let options = p4_syntax::Options { defines, ..Default::default() };
    let program = p4_check::check_file(&source, &options).program.expect("program");
    let object = into.join("netchain.o");
    let systems = xdp_backend::Systems(&[&netchain_compiler::NetChain]);
    let made = xdp_backend::compile(&program, &Options::new(systems), &object);
    (object, made.unwrap_or_else(|error| panic!("{error}")).generated.manifest)
}

/// A switch in the kernel.
pub struct Switch {
    pub dataplane: Arc<Dataplane>,
    pub slots: StateObject,
}

impl Switch {
    /// `test`: single frames run through it, at times that the test says.
    pub fn load(object: &Path, manifest: &Manifest, own: Ipv4Addr, test: bool) -> Switch {
        let mut opened = Object::open(object, manifest.clone()).expect("object");
        let settings = Settings { test_mode: test, virtual_clock: test, host_traffic: false };
        opened.set(settings).expect("settings");
        let dataplane = Arc::new(opened.load().expect("the verifier takes it"));
        let slots = manifest.state_objects.iter().find(|it| it.kind == "SlotState");
        let switch = Switch { dataplane, slots: slots.expect("slots").clone() };
        Keys::exchange(&switch.dataplane, &[(KEY.id, Some(&KEY.secret), &Grant::ALL)])
            .expect("keys");
        let ring = KeyRing::new(0, FABRIC).expect("ring");
        switch.dataplane.set_secrets(&SecretSet::from(&ring)).expect("secrets");
        peers::write_settings(&switch.dataplane, own, RING, 0, 0).expect("settings");
        let served = [("ring", RING.to_string()), ("version", "1".into())];
        switch.set("destinations", &u32::from(own).to_string(), "serve", &served);
        switch
    }

    fn set(&self, table: &str, key: &str, action: &str, arguments: &[(&str, String)]) {
        let named = |(name, value): &(&str, String)| (Some((*name).to_owned()), value.clone());
        let spec = EntrySpec {
            keys: vec![KeySpec { name: None, text: key.into() }],
            priority: None,
            action: ActionSpec {
                name: format!("NetChainIngress.{action}"),
                arguments: arguments.iter().map(named).collect(),
            },
        };
        let table = self.dataplane.table(table).expect("table");
        let entry = table.resolve(&spec).expect("entry");
        table.write(&entry, Write::Set).expect("written");
    }

    /// Its part in the group.
    pub fn take_part(&self, view: u32, position: u8, next: u32, chain: &[Ipv4Addr]) {
        self.take_part_in((GROUP, 1, 0), view, position, next, chain);
    }

    /// Its part in any group, with this session and floor.
    pub fn take_part_in(
        &self,
        (group, session, floor): (u16, u16, u16),
        view: u32,
        position: u8,
        next: u32,
        chain: &[Ipv4Addr],
    ) {
        let mut arguments = vec![
            ("view", view.to_string()),
            ("head_since", "1".into()),
            ("session", session.to_string()),
            ("floor", floor.to_string()),
            ("position", position.to_string()),
            ("next", next.to_string()),
            ("members", chain.len().to_string()),
        ];
        for (at, name) in ["member0", "member1", "member2", "member3"].into_iter().enumerate() {
            let member = chain.get(at).map_or(0, |it| u32::from(*it));
            arguments.push((name, member.to_string()));
        }
        arguments.push(("peers", NOBODY.to_string()));
        self.set("roles", &group.to_string(), "take_part", &arguments);
    }

    /// The slot with this number, without what changes with each write to it.
    pub fn slot(&self, number: u32) -> Vec<u8> {
        let map = self.slots.slots_map.as_deref().expect("a map of slots");
        self.dataplane.read_array(map, number).expect("slot").split_off(8)
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &[u8]) -> Option<Vec<u8>> {
        let index = self.dataplane.map(&self.slots.map).expect("index");
        let number = index.lookup(key, MapFlags::ANY).expect("lookup")?;
        Some(self.slot(u32::from_ne_bytes(*number.first_chunk().expect("a number"))))
    }
}
