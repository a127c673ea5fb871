//! What operators read and write of tables with SRO, in a loaded object. Needs root.

use dataplane::{Dataplane, Object, SecretSet, Settings};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::path::Path;
use swish_switch::strong::{Chain, ChainView};
use swish_switch::strong_keys::Table;
use wire::{KeyRing, SECRET_BYTES, Secret};
use xdp_backend::Options;

const KEYS: u8 = 4;

/// A switch with pairs.p4's tables.
struct Switch {
    dataplane: Dataplane,
    chain: Chain,
    clock_ns: Cell<u64>,
}

impl Switch {
    fn load(folder: &Path) -> Switch {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../swish/p4/pairs/pairs.p4");
        let defines = vec![format!("KEYS={KEYS}")];
        let options = p4_syntax::Options { defines, ..Default::default() };
        let outcome = p4_check::check_file(source.as_ref(), &options);
        let program = outcome.program.as_ref();
        let program = program.unwrap_or_else(|| panic!("{}", outcome.render(false)));
        let options =
            Options { program_name: "pairs.p4".into(), ..Options::new(systems::compiler()) };
        let path = folder.join("pairs.o");
        let generated = xdp_backend::compile(program, &options, &path).expect("compiles").generated;
        let chain = Chain::of(&generated.manifest).expect("a manifest").expect("a chain");
        let mut object = Object::open(&path, generated.manifest).expect("opens");
        let settings = Settings { test_mode: true, virtual_clock: true, ..Settings::default() };
        object.set(settings).expect("set");
        object.wait_in_switch(1).expect("one CPU");
        let dataplane = object.load().expect("the verifier accepts it");
        let ring = KeyRing::new(0, Secret([1; SECRET_BYTES])).expect("a secret");
        dataplane.set_secrets(&SecretSet::from(&ring)).expect("secrets");
        Switch { dataplane, chain, clock_ns: Cell::new(1_000_000_000) }
    }

    /// The switch is the head of a chain of so many.
    fn take(&self, number: u64, members: u8, incarnation: u32, lease_ns: Option<u64>) {
        let address = |member: u8| (u32::from(member), Ipv4Addr::new(10, 0, 0, member + 1));
        let members = (0..members).map(address).collect();
        let view =
            ChainView { number, own: 0, incarnation, members, joins: vec![], lease_ns, wait_ns: 0 };
        self.chain.take(&self.dataplane, &view).expect("a view");
    }

    fn table(&self, name: &str) -> Table {
        let tables = Table::all(self.dataplane.manifest()).expect("a manifest");
        tables.into_iter().find(|it| it.keyed.name == name).expect("the table")
    }

    /// Frames are generated, so many times.
    fn waits(&self, times: u32) -> impl Fn() -> switch_agent::Result<ControlFlow<()>> + '_ {
        let left = Cell::new(times);
        move || {
            self.clock_ns.set(self.clock_ns.get() + 1_000_000);
            self.dataplane.run_generated(self.clock_ns.get())?;
            left.set(left.get() - 1);
            Ok(if left.get() > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        }
    }

    fn set(&self, table: &Table, key: u8, value: u8) -> Result<(), String> {
        let (key, value) = ([0, 0, 0, key], [0, 0, 0, value, 0, 0, 0, value]);
        let done = table.set(&self.dataplane, &key, &value, 0, &self.waits(100));
        done.map_err(|error| error.to_string())
    }

    fn get(&self, table: &Table, key: u8) -> Result<Option<u8>, String> {
        let found = table.get(&self.dataplane, &[0, 0, 0, key], &self.waits(100));
        Ok(found.map_err(|error| error.to_string())?.map(|held| held.value[3]))
    }

    fn delete(&self, table: &Table, keys: &[u8]) -> Result<(), String> {
        let keys: Vec<[u8; 4]> = keys.iter().map(|it| [0, 0, 0, *it]).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        let waits = || Box::new(self.waits(100)) as Box<dyn Fn() -> _>;
        table.delete(&self.dataplane, &keys, &waits).map_err(|error| error.to_string())
    }
}

#[test]
fn an_order_is_done_once_the_tail_has_answered_it() {
    let folder = tempfile::tempdir().expect("folder");
    let switch = Switch::load(folder.path());
    let (one, numbers) = (switch.table("ProbeIngress.one"), switch.table("ProbeIngress.numbers"));

    // Before it is a member, packets may not read.
    let refused = switch.get(&one, 1).expect_err("no member");
    assert!(refused.contains("no member of the group"), "{refused}");
    let refused = switch.set(&one, 1, 11).expect_err("no member");
    assert!(refused.contains("no member of the group"), "{refused}");

    switch.take(1, 1, 1, None);
    assert_eq!(switch.get(&one, 1), Ok(None));
    assert_eq!(switch.set(&one, 1, 11), Ok(()));
    assert_eq!(switch.get(&one, 1), Ok(Some(11)));
    assert_eq!(switch.set(&one, 1, 12), Ok(()));
    assert_eq!(switch.get(&one, 1), Ok(Some(12)));
    assert_eq!(switch.get(&switch.table("ProbeIngress.other"), 1), Ok(None));

    // A full table takes a key once another one is deleted.
    (2..=KEYS).for_each(|key| assert_eq!(switch.set(&one, key, key), Ok(())));
    let full = switch.set(&one, KEYS + 1, 1).expect_err("it is full");
    assert!(full.contains("it is full: 4 keys; delete some"), "{full}");
    assert_eq!(switch.get(&one, KEYS + 1), Ok(None));
    assert_eq!(switch.set(&one, KEYS, 9), Ok(()), "a key that is there");
    assert_eq!(switch.delete(&one, &[2, 3, 77]), Ok(()));
    assert_eq!((switch.get(&one, 2), switch.get(&one, 3)), (Ok(None), Ok(None)));
    assert_eq!(switch.set(&one, KEYS + 1, 1), Ok(()));

    assert_eq!(switch.set(&numbers, 63, 5), Ok(()));
    assert_eq!(switch.delete(&numbers, &[63]), Ok(()));
    assert_eq!(switch.get(&numbers, 63), Ok(Some(0)), "a register's value becomes zero");
}

#[test]
fn an_order_that_is_not_answered_is_an_error_and_may_take_effect() {
    let folder = tempfile::tempdir().expect("folder");
    let switch = Switch::load(folder.path());
    let one = switch.table("ProbeIngress.one");
    switch.take(1, 1, 1, None);
    assert_eq!(switch.set(&one, 1, 11), Ok(()));

    // Nobody answers for the second member.
    switch.take(2, 2, 1, None);
    let late = switch.set(&one, 1, 12).expect_err("no answer");
    assert!(late.contains("It may still take effect"), "{late}");
    // (The head has it: a read waits for the others.)
    let late = switch.get(&one, 1).expect_err("no answer");
    assert!(late.contains("not all switches of the group have answered"), "{late}");
    let late = switch.delete(&one, &[1]).expect_err("no answer");
    assert!(late.contains("not all switches of the group have answered"), "{late}");

    // It is removed: what waited goes to the members that are left.
    switch.take(3, 1, 1, None);
    assert_eq!(switch.set(&one, 2, 2), Ok(()));
    assert_eq!(switch.get(&one, 1), Ok(None), "the deletion came last");

    // The switch itself is removed, and begins anew, while an order waits.
    switch.take(4, 2, 1, None);
    let begins_anew = Cell::new(false);
    let wait = || {
        if !begins_anew.replace(true) {
            switch.chain.empty(&switch.dataplane)?;
            switch.take(5, 1, 5, None);
        }
        switch.waits(2)()
    };
    let value = [0, 0, 0, 7, 0, 0, 0, 7];
    let forgotten = one.set(&switch.dataplane, &[0, 0, 0, 3], &value, 0, &wait);
    let forgotten = forgotten.expect_err("forgotten").to_string();
    assert!(forgotten.contains("does not know whether it took effect"), "{forgotten}");
    assert_eq!(switch.get(&one, 3), Ok(None));
}
