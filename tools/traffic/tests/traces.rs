//! What a profile promises, checked on the trace.

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use traffic::{Profile, Source, Trace, describe};

fn small() -> impl Strategy<Value = Profile> {
    (any::<u64>(), 1u32..300, 0u64..3_000, 0.0f64..2.0, 0.0f64..=1.0, 1.0f64..1e6, 0u64..10_000)
        .prop_map(
            |(seed, flows, more, zipf_exponent, tcp_share, new_flows_per_s, packet_gap_us)| {
                Profile {
                    seed,
                    flows,
                    packets: u64::from(flows) + more,
                    zipf_exponent,
                    tcp_share,
                    new_flows_per_s,
                    packet_gap_us,
                    ..Profile::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn a_seed_is_a_trace(profile in small()) {
        let packets: Vec<_> = Trace::new(profile.clone()).unwrap().collect();
        prop_assert!(Trace::new(profile.clone()).unwrap().eq(packets.iter().cloned()));
        let other = Profile { seed: profile.seed ^ 1, ..profile.clone() };
        // A few packets may well come out alike.
        let same = Trace::new(other).unwrap().eq(packets.iter().cloned());
        prop_assert!(!same || packets.len() < 30, "another seed, another trace");
        prop_assert_eq!(packets.len() as u64, profile.packets);
        prop_assert!(packets.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns), "in the order of time");
        prop_assert!(packets.iter().all(|packet| (64..=1500).contains(&packet.frame.len())));
    }

    #[test]
    fn each_flow_has_one_key_and_begins_and_ends(profile in small()) {
        let mut flows: HashMap<u32, Vec<Vec<u8>>> = HashMap::new();
        for packet in Trace::new(profile.clone()).unwrap() {
            flows.entry(packet.flow).or_default().push(packet.frame);
        }
        prop_assert_eq!(flows.len() as u32, profile.flows);
        let keys: HashSet<Vec<u8>> = flows.values().map(|frames| frames[0][23..38].to_vec()).collect();
        prop_assert!(keys.len() as u32 <= profile.flows);
        let sources: HashSet<Vec<u8>> = flows.values().map(|f| [&f[0][26..30], &f[0][34..36]].concat()).collect();
        prop_assert_eq!(sources.len() as u32, profile.flows, "each source is one flow's");
        for frames in flows.values() {
            prop_assert!(frames.iter().all(|frame| frame[26..38] == frames[0][26..38] && frame[23] == frames[0][23]));
            if frames[0][23] == 6 {
                prop_assert_eq!(frames[0][47], 0x02, "SYN first, and only there");
                prop_assert!(frames[1..].iter().all(|frame| frame[47] & 0x02 == 0));
                prop_assert!(frames.len() < 2 || frames[frames.len() - 1][47] == 0x11, "FIN last");
            }
        }
    }
}

fn described(profile: &Profile) -> traffic::Description {
    let mut source = Source::synthetic(profile.clone()).unwrap();
    describe::<capture::Error>(&mut source, |_, _| Ok(())).unwrap()
}

#[test]
fn flow_sizes_are_zipf() {
    for exponent in [0.8, 1.0, 1.2] {
        let profile = Profile {
            zipf_exponent: exponent,
            flows: 5_000,
            packets: 400_000,
            ..Profile::default()
        };
        let found = described(&profile);
        assert_eq!((found.packets, found.flows), (400_000, 5_000));
        let fitted = found.zipf_exponent.unwrap();
        assert!((fitted - exponent).abs() < 0.05, "{exponent}: fitted {fitted}");
    }
    let flat = described(&Profile {
        zipf_exponent: 0.0,
        flows: 1_000,
        packets: 100_000,
        ..Profile::default()
    });
    assert!(
        flat.zipf_exponent.unwrap().abs() < 0.01 && flat.largest_flow_share < 0.0011,
        "{flat:?}"
    );
}

#[test]
fn rates_shares_and_sizes_are_the_profiles() {
    let profile =
        Profile { flows: 20_000, packets: 300_000, new_flows_per_s: 5_000.0, ..Profile::default() };
    let found = described(&profile);
    assert!((found.new_flows_per_s / 5_000.0 - 1.0).abs() < 0.1, "{found:?}");
    assert!((found.tcp_share - 0.8).abs() < 0.02, "{found:?}");
    let (small, all) = (found.sizes[0] as f64, found.packets as f64);
    assert!((0.4..0.6).contains(&(small / all)) && found.sizes[6] == 0, "{found:?}");
    assert!(found.sizes[1..6].iter().all(|count| *count > 1_000), "{found:?}");
}

/// What a seed means may not change unnoticed: figures of earlier runs would no longer compare.
/// Change this only together with what draws.
#[test]
fn the_trace_of_seed_7_stays() {
    let profile = Profile { seed: 7, flows: 100, packets: 1_000, ..Profile::default() };
    let mut hash = 0xcbf2_9ce4_8422_2325u64; // FNV-1a
    for packet in Trace::new(profile).unwrap() {
        for byte in packet.frame {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!(hash, 0x57dc_6e5c_df18_c5d8, "{hash:#x}");
}

#[test]
fn a_capture_is_a_source_too() {
    let profile = Profile { flows: 50, packets: 2_000, ..Profile::default() };
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = capture::Writer::new(file.reopen().unwrap()).unwrap();
    let mut source = Source::synthetic(profile.clone()).unwrap();
    let made = describe::<capture::Error>(&mut source, |time_ns, frame| {
        writer.write(time_ns, frame).unwrap();
        Ok(())
    })
    .unwrap();
    writer.finish().unwrap();
    let mut source = Source::capture(file.path()).unwrap();
    let read = describe::<capture::Error>(&mut source, |_, _| Ok(())).unwrap();
    assert_eq!(made, read);
}

/// A pcap file of one frame, whatever its link layer is.
fn pcap(link: u32, frame: &[u8], original_bytes: u32) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let header =
        [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link, 1, 0, frame.len() as u32, original_bytes];
    let bytes: Vec<u8> =
        header.iter().flat_map(|word| word.to_le_bytes()).chain(frame.iter().copied()).collect();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn captures_of_any_interface_are_read_and_of_none_are_refused() {
    let mut source =
        Source::synthetic(Profile { flows: 1, packets: 10, ..Profile::default() }).unwrap();
    let mut frame = vec![];
    source.next_into(&mut frame).unwrap().unwrap();
    let packet = &frame[14..];
    let describe = |file: &tempfile::NamedTempFile| {
        describe::<capture::Error>(&mut Source::capture(file.path()).unwrap(), |_, _| Ok(()))
    };
    // `tcpdump -i any`, by `-y LINUX_SLL` and as it is since 1.10; raw IP.
    let cooked = [[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0].as_slice(), packet].concat();
    let cooked2 = [[8, 0].as_slice(), &[0; 18], packet].concat();
    for (link, bytes) in [(1, &frame[..]), (113, &cooked), (276, &cooked2), (101, packet)] {
        let found = describe(&pcap(link, bytes, bytes.len() as u32)).unwrap();
        assert_eq!(
            (found.packets, found.flows, found.other_packets, found.bytes),
            (1, 1, 0, frame.len() as u64)
        );
    }
    let error = describe(&pcap(105, packet, packet.len() as u32)).unwrap_err().to_string();
    assert!(error.contains("link type 105"), "{error}");
    let error = describe(&pcap(1, &frame, 9_000)).unwrap_err().to_string();
    assert!(error.contains("none of its 1 frames") && error.contains("tcpdump -s 0"), "{error}");
}

#[test]
fn faults_name_their_field() {
    let base = Profile::default;
    for (profile, part) in [
        (Profile { flows: 0, ..base() }, "flows: 0"),
        (
            Profile { flows: 64_513, inside: "10.0.0.1/32".parse().unwrap(), ..base() },
            "flows: 64513",
        ),
        (Profile { packets: 9_999, ..base() }, "packets: 9999"),
        (Profile { zipf_exponent: f64::NAN, ..base() }, "zipf_exponent"),
        (Profile { new_flows_per_s: 0.0, ..base() }, "new_flows_per_s"),
        (Profile { tcp_share: 1.5, ..base() }, "tcp_share"),
    ] {
        let message = Trace::new(profile).err().unwrap().to_string();
        assert!(message.starts_with(part), "{message}");
    }
    assert!(
        "10.0.0.0".parse::<traffic::Subnet>().is_err()
            && "10.0.0.0/33".parse::<traffic::Subnet>().is_err()
    );
}

/// A capture's conversations and lengths, whatever else is in it: tags, ARP, fragments, frames of
/// which only the headers are there.
#[test]
fn a_captures_shape_is_replayed() {
    use traffic::{Replay, Replayed};
    let packet =
        |from: [u8; 4], from_port: u16, to: [u8; 4], to_port: u16, protocol: u8, bytes: usize| {
            let mut frame = vec![0; bytes];
            frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
            frame[23] = protocol;
            frame[26..30].copy_from_slice(&from);
            frame[30..34].copy_from_slice(&to);
            frame[34..36].copy_from_slice(&from_port.to_be_bytes());
            frame[36..38].copy_from_slice(&to_port.to_be_bytes());
            frame
        };
    let (a, b) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let request = packet(a, 1_000, b, 443, 6, 64);
    let answer = packet(b, 443, a, 1_000, 6, 1_500);
    let datagram = packet(a, 1_000, b, 443, 17, 100);
    let mut tagged = request.clone();
    tagged.splice(12..12, [0x81, 0x00, 0, 5]);
    let mut fragment = datagram.clone();
    fragment[20] = 0x20;
    let arp = [&[0; 12][..], &[0x08, 0x06], &[0; 46]].concat();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = capture::Writer::new(file.reopen().unwrap()).unwrap();
    for (n, frame) in
        [&request, &arp, &answer, &datagram, &fragment, &tagged, &request].into_iter().enumerate()
    {
        writer.write(n as u64, frame).unwrap();
    }
    writer.finish().unwrap();
    let replay = Replay::read(file.path(), 100).unwrap();
    let expected = [(0, 64), (0, 1_500), (1, 100), (0, 64), (0, 64)];
    assert_eq!(
        replay.packets,
        expected.map(|(conversation, frame_bytes)| Replayed { conversation, frame_bytes })
    );
    assert_eq!((replay.conversations, replay.left_out, replay.more), (2, 2, false));
    let first = Replay::read(file.path(), 2).unwrap();
    assert_eq!((first.packets.len(), first.conversations, first.more), (2, 1, true));

    // The same as a capture of raw IP, cut after 40 bytes.
    let mut bytes = std::fs::read(file.path()).unwrap();
    bytes.truncate(20);
    bytes.extend_from_slice(&101u32.to_le_bytes());
    for frame in [&request, &answer] {
        for word in [0, 0, 40, frame.len() as u32 - 14] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&frame[14..54]);
    }
    std::fs::write(file.path(), bytes).unwrap();
    let cut = Replay::read(file.path(), 100).unwrap();
    assert_eq!(cut.packets.iter().map(|p| p.frame_bytes).collect::<Vec<_>>(), [64, 1_500]);
}
