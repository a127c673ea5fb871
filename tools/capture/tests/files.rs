//! Captures of both formats, whole, cut and damaged.

use capture::{Error, Link, Reader, Writer};
use proptest::prelude::*;
use std::io::Cursor;
use std::path::Path;

/// Time, link, bytes, original length.
type Seen = (u64, Link, Vec<u8>, u32);

fn frames(bytes: Vec<u8>) -> (Vec<Seen>, Option<Error>) {
    let mut found = vec![];
    let mut reader = match Reader::new(Path::new("x.pcap"), Cursor::new(bytes)) {
        Ok(reader) => reader,
        Err(error) => return (found, Some(error)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                found.push((frame.time_ns, frame.link, frame.bytes.to_vec(), frame.original_bytes))
            }
            Ok(None) => return (found, None),
            Err(error) => {
                assert!(matches!(reader.next_frame(), Ok(None)), "after an error there is an end");
                return (found, Some(error));
            }
        }
    }
}

fn pcap(all: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(vec![]).unwrap();
    for (time_ns, frame) in all {
        writer.write(*time_ns, frame).unwrap();
    }
    writer.finish().unwrap()
}

/// A section header, an interface (link 276, microseconds unless an option says 10^-9), and one
/// enhanced packet.
fn pcapng(nanoseconds: bool) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes(), length.as_slice(), body, &length].concat()
    };
    let section = [&0x1a2b_3c4du32.to_le_bytes(), [1, 0, 0, 0].as_slice(), &[0xff; 8]].concat();
    let mut interface = [20u8, 1, 0, 0, 0, 0, 4, 0].to_vec(); // 276, snaplen 262144
    if nanoseconds {
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]); // if_tsresol = 9, end of options
    }
    let time = 1_700_000_000_000_001u64;
    let packet = [
        &0u32.to_le_bytes(),
        ((time >> 32) as u32).to_le_bytes().as_slice(),
        &(time as u32).to_le_bytes(),
        &3u32.to_le_bytes(),
        &77u32.to_le_bytes(),
        b"abc\0",
    ]
    .concat();
    [block(0x0a0d_0d0a, &section), block(1, &interface), block(6, &packet)].concat()
}

#[test]
fn what_is_written_is_read() {
    let all: Vec<(u64, Vec<u8>)> =
        (0..1_000u64).map(|n| (n * 1_000_000_007, vec![n as u8; n as usize * 3])).collect();
    let (found, error) = frames(pcap(&all));
    assert!(error.is_none(), "{error:?}");
    let expected: Vec<_> =
        all.into_iter().map(|(t, f)| (t, Link::Ethernet, f.clone(), f.len() as u32)).collect();
    assert!(found == expected);
}

#[test]
fn pcapng_in_both_resolutions() {
    let frame = |time| vec![(time, Link::LinuxCooked2, b"abc".to_vec(), 77)];
    assert_eq!(frames(pcapng(false)).0, frame(1_700_000_000_000_001_000));
    assert_eq!(frames(pcapng(true)).0, frame(1_700_000_000_000_001));
}

#[test]
fn faults_are_named() {
    let whole = pcap(&[(1, vec![1; 60]), (2, vec![2; 60])]);
    let (found, error) = frames(whole[..whole.len() - 1].to_vec());
    assert_eq!(found.len(), 1);
    assert_eq!(
        error.unwrap().to_string(),
        "x.pcap: ends in the middle of frame 2: the frames before it are whole"
    );
    let (found, error) = frames(b"#!/bin/sh\necho this is no capture at all".to_vec());
    assert!(found.is_empty() && error.unwrap().to_string().contains("neither pcap nor pcapng"));
    assert!(matches!(frames(vec![]).1, Some(Error::NotACapture { .. })));
    let mut long = whole;
    long[32..36].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    assert!(matches!(frames(long).1, Some(Error::Damaged { frame: 1, .. })));
    let mut other_interface = pcapng(false);
    let packet = other_interface.windows(4).rposition(|w| w == [6, 0, 0, 0]).unwrap();
    other_interface[packet + 8] = 9;
    let error = frames(other_interface).1.unwrap().to_string();
    assert!(error.contains("frame 1: an interface that the file does not describe"), "{error}");
}

proptest! {
    #[test]
    fn damaged_files_end_in_frames_or_an_error(
        nanoseconds in any::<bool>(),
        ng in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = if ng { pcapng(nanoseconds) } else { pcap(&[(1, vec![1; 60]), (2, vec![2; 9000])]) };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let (found, _) = frames(bytes);
        prop_assert!(found.len() <= 2);
    }
}
