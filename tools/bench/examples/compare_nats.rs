//! Compares compiled NATs: nanoseconds a packet of each, by turns in one run, and the ratio to the
//! first.
//!
//! `cargo run --release -p bench --example compare_nats -- FLOWS ROUNDS FIRST.o SECOND.o…`, as
//! root. Manifests are beside the objects; one without a manifest is the hand-written NAT
//! (`setups/nat_handwritten.c`), with room for 262,144 bindings. Compile the others with
//! `-DNAT_ENTRIES=262144`: a larger table costs cache misses.

use anyhow::{Context, Result, bail};
use bench::build::Places;
use bench::network::Network;
use bench::per_packet::{self, Effort};
use bench::{kernel, systems::System};
use manifest::Manifest;
use std::path::{Path, PathBuf};

/// Packets a round and object.
const PACKETS: u32 = 500_000;
/// Of the hand-written NAT.
const BINDINGS: u32 = 262_144;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flows, rounds, objects @ ..] = &arguments[..] else {
        bail!("usage: compare_nats FLOWS ROUNDS FIRST.o SECOND.o…");
    };
    let flows: u32 = flows.parse().context("FLOWS is no number")?;
    let effort =
        Effort { rounds: rounds.parse().context("ROUNDS is no number")?, packets: PACKETS };
    let folder = std::env::temp_dir();
    let places = Places {
        root: PathBuf::from("."),
        stateplane: PathBuf::from("target/release/stateplane"),
        output: folder,
    };
    let traffic = places.compile_c("traffic")?;
    let network = Network::create()?;
    let measured = network.translator.inside(|| {
        kernel::pin_to_cpu(0)?;
        let load = |object: &String| {
            let object = Path::new(object);
            if Manifest::path_for(object).exists() {
                System::p4("P4", object, &network)
            } else {
                System::hand_written(object, BINDINGS, &network)
            }
        };
        let loaded: Result<Vec<System>> = objects.iter().map(load).collect();
        let mut systems = loaded?;
        let Some(first) = systems.first_mut() else { bail!("no objects: nothing to compare") };
        let _attached = first.attach(&network)?;
        per_packet::measure(&systems, &traffic, &network, flows, effort, |_| {})
    })??;
    for (object, measured_one) in objects.iter().zip(&measured) {
        let ratio = per_packet::ratio(measured_one, &measured[0]);
        println!(
            "{object}: {:.1} ns a packet ({:.1} to {:.1}), ratio {:.3} ({:.3} to {:.3})",
            measured_one.ns.median,
            measured_one.ns.low,
            measured_one.ns.high,
            ratio.median,
            ratio.low,
            ratio.high
        );
    }
    Ok(())
}
