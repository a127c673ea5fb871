//! RedPlane's fuzzing campaigns, and its state in generated programs: what `systems/registry` hands
//! to `tools/fuzz`.
//!
//! It owns: random frames and state messages for the compiled NAT, generated programs that set
//! several objects, models of what must come out, and making failures short. It must not know: how
//! the compiler or the emitted code work inside. The model of the NAT follows
//! systems/redplane/p4/nat/nat.p4's comments, systems/redplane/docs/state-protocol.md and the RFCs.
//!
//! Every run prints its seed and is repeated by it.

#![forbid(unsafe_code)]

pub mod campaign;
mod checksum;
mod entries;
mod flow;
mod frames;
pub mod groups;
mod nat;
mod network;
pub mod rig;
mod shrink;

use anyhow::Result;
use fuzz_door::{Campaign, Campaigns, StateKind};
use rig::{Counts, Mode};

/// What the registry lists.
pub struct RedPlane;

impl Campaigns for RedPlane {
    fn campaigns(&self) -> &'static [Campaign] {
        &[
            Campaign {
                name: "frames",
                about: "Random and mutated frames through both NATs, against an oracle. Needs root",
                counts: "Frames through each of the two",
                count: 1_000_000,
                run: frames,
            },
            Campaign {
                name: "messages",
                about: "Random and mutated state messages through the linearizable NAT, against a model of its state. Needs root",
                counts: "Steps; four in five are messages",
                count: 300_000,
                run: |seed, count| {
                    tell("messages", campaign::messages(seed, count)?);
                    Ok(())
                },
            },
            Campaign {
                name: "groups",
                about: "Generated programs whose packets set up to three LINEARIZABLE objects and \
                        wait in the switch or in messages, against a model. Needs root",
                counts: "Programs",
                count: 300,
                run: |seed, count| {
                    println!("groups: {}", groups::run(seed, count)?);
                    Ok(())
                },
            },
        ]
    }

    fn state(&self) -> &'static [&'static dyn StateKind] {
        &[&flow::Flows]
    }
}

fn frames(seed: u64, count: u64) -> Result<()> {
    for (name, mode) in
        [("frames, local", Mode::Local), ("frames, linearizable", Mode::Linearizable)]
    {
        tell(name, campaign::frames(seed, count, mode)?);
    }
    Ok(())
}

fn tell(name: &str, counts: Counts) {
    println!(
        "{name}: {} frames: {} translated, {} routed, {} to the host, {} dropped; {} bindings made, {} packets waited at the store, {} heartbeats; {} messages took effect, {} refused",
        counts.frames,
        counts.translated,
        counts.routed,
        counts.to_host,
        counts.dropped,
        counts.bindings,
        counts.parked,
        counts.renewed,
        counts.taken,
        counts.refused
    );
}
