//! The NAT in P4 and the one in C, written apart, on the same mutated frames: the same verdict and
//! the same bytes, or one of them is wrong. Needs root.
//!
//! `STATEPLANE_FRAMES` sets how many frames (default 200,000), `STATEPLANE_SEED` replays a run.

use anyhow::{Context, Result, ensure};
use bench::flows::{Flow, flow};
use bench::frame::{Mac, TCP, UDP};
use bench::kernel;
use bench::network::Network;
use bench::systems::System;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const ICMP: u8 = 1;
const FLOWS: u32 = 64;
const XDP_PASS: u32 = 2;
const LONGEST_FRAME: usize = 160;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compile(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let local = folder.join("nat.o");
    let options =
        p4_syntax::Options { defines: vec!["NAT_LOCAL".to_owned()], ..Default::default() };
    let outcome = p4_check::check_file(&root().join("systems/redplane/p4/nat/nat.p4"), &options);
    let program = outcome.program.as_ref().with_context(|| outcome.render(false))?;
    let options = xdp_backend::Options {
        program_name: "nat.p4".to_owned(),
        ..xdp_backend::Options::new(systems::compiler())
    };
    let compiled = xdp_backend::compile(program, &options, &local)?;
    std::fs::write(manifest::Manifest::path_for(&local), compiled.generated.manifest.to_json())?;
    let places = bench::build::Places {
        root: root(),
        stateplane: PathBuf::new(),
        output: folder.to_owned(),
    };
    Ok((local, places.compile_c("nat_handwritten")?))
}

/// Conversations of all three protocols; ICMP's port is the identifier, the other side's 0.
fn flows() -> Vec<Flow> {
    let conversation = |number| {
        let protocol = [TCP, UDP, ICMP][number as usize % 3];
        let mut flow = flow(number, protocol);
        if protocol == ICMP {
            flow.remote.1 = 0;
        }
        flow
    };
    (0..FLOWS).map(conversation).collect()
}

/// IPv4 header and the first bytes of what it carries. Transport checksums as they come: nobody
/// verifies them, both update them.
fn packet(random: &mut StdRng, flow: &Flow, outbound: bool) -> Vec<u8> {
    let (source, destination) =
        if outbound { (flow.inside, flow.remote) } else { (flow.remote, flow.external) };
    let mut bytes =
        vec![0x45, 0, 0, 0, random.random(), random.random(), 0x40, 0, 64, flow.protocol, 0, 0];
    bytes.extend_from_slice(&source.0.octets());
    bytes.extend_from_slice(&destination.0.octets());
    if flow.protocol == ICMP {
        let id = if outbound { source.1 } else { destination.1 };
        bytes.extend_from_slice(&[
            if outbound { 8 } else { 0 },
            0,
            random.random(),
            random.random(),
        ]);
        bytes.extend_from_slice(&id.to_be_bytes());
    } else {
        bytes.extend_from_slice(&source.1.to_be_bytes());
        bytes.extend_from_slice(&destination.1.to_be_bytes());
    }
    bytes.extend((0..20).map(|_| random.random::<u8>()));
    match flow.protocol {
        TCP => bytes[32] = 0x50,
        UDP => {
            let length = bytes.len() as u16 - 20;
            bytes[24..26].copy_from_slice(&length.to_be_bytes());
            if random.random_bool(0.2) {
                bytes[26..28].fill(0);
            }
        }
        _ => {}
    }
    finish(&mut bytes);
    bytes
}

/// Length and checksum of an IPv4 packet without options.
fn finish(packet: &mut [u8]) {
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    mend_checksum(packet);
}

/// The header's checksum becomes right, if there is a header.
fn mend_checksum(packet: &mut [u8]) {
    let header = usize::from(packet.first().copied().unwrap_or(0) & 15) * 4;
    if header < 20 || packet.len() < header {
        return;
    }
    packet[10..12].fill(0);
    let words = packet[..header]
        .chunks_exact(2)
        .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
    let checksum = !((words.sum::<u64>() % 0xffff) as u16);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// An ICMP error about a translated packet, as it comes back.
fn error(random: &mut StdRng, flow: &Flow, outbound: bool) -> Vec<u8> {
    // About a packet of the other direction, as its receiver saw it.
    let mut about = *flow;
    if outbound {
        about.external = flow.inside;
    } else {
        about.inside = flow.external;
    }
    let embedded = packet(random, &about, !outbound);
    let (source, destination) =
        if outbound { (flow.inside.0, flow.remote.0) } else { (flow.remote.0, flow.external.0) };
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, ICMP, 0, 0];
    bytes.extend_from_slice(&source.octets());
    bytes.extend_from_slice(&destination.octets());
    bytes.extend_from_slice(&[[3, 11, 12][random.random_range(0..3)], 0, 0x56, 0x78, 0, 0, 0, 0]);
    bytes.extend_from_slice(&embedded);
    finish(&mut bytes);
    bytes
}

fn frame(random: &mut StdRng, flows: &[Flow], macs: [Mac; 2]) -> Vec<u8> {
    let flow = flows[random.random_range(0..flows.len())];
    let outbound = random.random();
    let mut frame = macs.concat();
    frame.extend_from_slice(&[8, 0]);
    frame.extend(if random.random_bool(0.4) {
        error(random, &flow, outbound)
    } else {
        packet(random, &flow, outbound)
    });
    for _ in 0..[0, 0, 1, 1, 2, 4][random.random_range(0..6)] {
        // Mostly in the headers, where it matters.
        let at = random.random_range(12..frame.len());
        frame[at] = if random.random() {
            random.random()
        } else {
            frame[at] ^ (1 << random.random_range(0..8))
        };
    }
    // Else nothing that is changed in the header would get further than to the check of its
    // checksum.
    if random.random_bool(0.8) {
        mend_checksum(&mut frame[14..]);
    }
    if random.random_bool(0.15) {
        let length = random.random_range(14..LONGEST_FRAME);
        frame.resize(length, 0x5a);
    }
    frame
}

/// nat.p4 remembers the ports of first fragments for them, the NAT in C drops them all.
fn is_later_fragment(frame: &[u8]) -> bool {
    let (Some([8, 0]), Some([high, low])) = (frame.get(12..14), frame.get(20..22)) else {
        return false;
    };
    (high & 0x1f, *low) != (0, 0)
}

#[test]
fn p4_and_c_agree_on_mutated_frames() -> Result<()> {
    let seed = match std::env::var("STATEPLANE_SEED") {
        Ok(text) => text.parse()?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
    };
    let count: u32 = std::env::var("STATEPLANE_FRAMES").map_or(Ok(200_000), |text| text.parse())?;
    println!("STATEPLANE_SEED={seed}");
    let folder = tempfile::tempdir()?;
    let (local, hand_written) = compile(folder.path())?;
    let network = Network::create()?;
    let translated = network.translator.inside(|| {
        let p4 = System::p4("P4", &local, &network)?;
        let c = System::hand_written(&hand_written, 4096, &network)?;
        let flows = flows();
        for system in [&p4, &c] {
            // Otherwise each would pick ports of its own.
            system.close_pool()?;
            system.establish(&flows)?;
        }
        let mut random = StdRng::seed_from_u64(seed);
        let mut translated = 0u32;
        for number in 0..count {
            let input =
                frame(&mut random, &flows, [network.macs.inside_port, network.macs.inside_hop]);
            if is_later_fragment(&input) {
                continue;
            }
            let one = p4.with_program(|program| kernel::run(program, &input, network.inside, 1))?;
            let other =
                c.with_program(|program| kernel::run(program, &input, network.inside, 1))?;
            let told = || {
                format!(
                    "seed {seed}, frame {number}: {input:02x?}\nP4: {} {:02x?}\nC:  {} {:02x?}",
                    one.verdict, one.frame, other.verdict, other.frame
                )
            };
            ensure!(one.verdict == other.verdict, "different verdicts: {}", told());
            if one.verdict == kernel::XDP_REDIRECT {
                ensure!(one.frame == other.frame, "different frames: {}", told());
                translated += 1;
            } else if one.verdict == XDP_PASS {
                ensure!(one.frame == input, "changed on the way to the kernel: {}", told());
            }
        }
        Ok(translated)
    })??;
    // Else the frames are not what they should be, and nothing was compared.
    ensure!(translated > count / 4, "only {translated} of {count} frames went through");
    Ok(())
}
