//! How fast a reader copies its slots to a member that joins, and a head collects tombstones: two
//! switches in network namespaces, linked by a veth pair, with real frames. The work of both is
//! done on one CPU, the generator's.
//!
//! ```
//! copy_speed [copy|collect|alone [KEYS [KEYS_PER_S]]]     # as root
//! ```
//!
//! `alone`: the head is the tail, and frees its slots without a message.

#[path = "common/fill.rs"]
mod fill;
#[path = "../tests/common/switch.rs"]
mod switch;

use dataplane::{AttachMode, Dataplane, Link};
use fill::fill;
use manifest::Manifest;
use netchain_protocol::message::NO_VALUE;
use netchain_switch::copies::{Copies, Job, Purpose};
use netns::Owned;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::{GROUP, JOINING, READER, Switch};
use switch_agent::system::now_ns;

/// Time from one look of the generator to the next.
const LOOK: Duration = Duration::from_millis(1);
/// The port of both switches.
const PORT: u32 = 1;
/// Of each key that is copied.
const VALUE_BYTES: u8 = 64;

/// In this namespace: a port with the program on it.
fn attach(switch: &Switch, interface: &str) -> (Link, u32) {
    let ifindex = nix::net::if_::if_nametoindex(interface).expect("interface");
    switch.dataplane.set_port(PORT, ifindex).expect("port");
    let link = switch.dataplane.attach("sp_main", ifindex, AttachMode::Native).expect("attached");
    (link, ifindex)
}

/// Loads a switch in a namespace, where writes to its device map belong.
fn start(
    namespace: &Owned,
    file: &Path,
    manifest: &Manifest,
    own: Ipv4Addr,
    interface: &str,
) -> (Switch, Link, u32) {
    let inside = || {
        let switch = Switch::load(file, manifest, own, false);
        let (link, ifindex) = attach(&switch, interface);
        (switch, link, ifindex)
    };
    namespace.inside(inside).expect("namespace")
}

/// CPU time of this process, with the softirqs that ran in it.
fn cpu() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock").into()
}

fn received(dataplane: &Dataplane) -> u64 {
    dataplane.port_stats(PORT).expect("counted").rx_packets
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "copy".into());
    let mut number =
        |usual: u64| arguments.next().map_or(usual, |text| text.parse().expect("a number"));
    let (keys, per_s) = (number(2_000_000) as u32, number(10_000_000));
    let folder = tempfile::tempdir().expect("folder");
    let (file, manifest) = switch::object(folder.path(), keys);
    let own = std::process::id();
    let a = Owned::create(&format!("copy-a-{own}")).expect("namespace");
    let b = Owned::create(&format!("copy-b-{own}")).expect("namespace");
    let (mac_a, mac_b) = ("02:00:00:00:00:0a", "02:00:00:00:00:0b");
    for namespace in [&a, &b] {
        namespace.inside(netns::forward).expect("namespace").expect("forwarding");
    }
    a.ip_batch(&[
        format!(
            "link add va address {mac_a} type veth peer name vb address {mac_b} netns {}",
            b.name()
        ),
        "addr add 192.0.2.1/24 dev va".into(),
        "link set va up".into(),
    ])
    .expect("links");
    b.ip_batch(&[
        "addr add 192.0.2.2/24 dev vb".to_owned(),
        "link set vb up".into(),
        format!("neigh add 192.0.2.1 lladdr {mac_a} dev vb nud permanent"),
        format!("route add {READER}/32 via 192.0.2.1"),
    ])
    .expect("links");
    a.ip_batch(&[
        format!("neigh add 192.0.2.2 lladdr {mac_b} dev va nud permanent"),
        format!("route add {JOINING}/32 via 192.0.2.2"),
    ])
    .expect("routes");
    let (reader, _link_a, ifindex) = start(&a, &file, &manifest, READER, "va");
    let (joining, _link_b, _) = start(&b, &file, &manifest, JOINING, "vb");
    let chain = [READER, JOINING];
    let job = match what.as_str() {
        "copy" => {
            joining.take_part(2, 2 | 8, 0, &chain);
            reader.take_part(2, 1 | 4, JOINING.into(), &chain);
            fill(&reader, keys, VALUE_BYTES);
            Job { group: GROUP, view: 2, purpose: Purpose::Copy, to: JOINING }
        }
        "collect" => {
            joining.take_part_in((GROUP, 2, 2), 2, 2 | 4 | 16, 0, &chain);
            reader.take_part_in((GROUP, 2, 2), 2, 1 | 16, JOINING.into(), &chain);
            [&reader, &joining].into_iter().for_each(|it| fill(it, keys, NO_VALUE));
            Job { group: GROUP, view: 2, purpose: Purpose::Collect, to: JOINING }
        }
        "alone" => {
            reader.take_part_in((GROUP, 2, 2), 2, 1 | 2 | 4 | 16, 0, &[READER]);
            fill(&reader, keys, NO_VALUE);
            Job { group: GROUP, view: 2, purpose: Purpose::Collect, to: Ipv4Addr::UNSPECIFIED }
        }
        other => panic!("{other}: copy, collect or alone"),
    };
    let copies = Copies::new(Arc::clone(&reader.dataplane), reader.slots.clone(), per_s);
    let copies = copies.expect("notes");
    let run = || {
        let _ready = reader.dataplane.keep_ready("sp_generator");
        copies.set(vec![job]);
        let (began, cpu_began) = (Instant::now(), cpu());
        let mut next = began;
        while copies.done().is_empty() {
            let due = copies.due(now_ns()) as u32;
            if due > 0 {
                let frame = [0; 256];
                let made = reader.dataplane.run_live("sp_generator", &frame, ifindex, due);
                made.expect("generated");
            }
            next = (next + LOOK).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            assert!(began.elapsed() < Duration::from_secs(300), "{:?}", copies.load());
        }
        (began.elapsed(), cpu() - cpu_began)
    };
    let (took, busy) = a.inside(run).expect("namespace");
    println!(
        "{keys} keys in {:.2} s: {:.0} keys/s, {:.0} for each CPU second; {} messages, {} came, {} \
         acknowledgements",
        took.as_secs_f64(),
        f64::from(keys) / took.as_secs_f64(),
        f64::from(keys) / busy.as_secs_f64(),
        copies.sent(),
        received(&joining.dataplane),
        received(&reader.dataplane),
    );
    let last = |switch: &Switch| switch.slot_of(&u128::from(keys - 1).to_be_bytes()).is_some();
    let there = (last(&reader), last(&joining));
    let expected = if job.purpose == Purpose::Copy { (true, true) } else { (false, false) };
    assert_eq!(there, expected, "the last key");
}
