//! What a gateway's program hands to the agent (stateplane_gateway_slow.h): packets that the kernel
//! is to send, and fragments that wait for their first.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::layouts::net::{
    FRAGMENT_LIFE_NS, FragmentKeyValue, FragmentValue, RELEASED, RecordHead, SLOW_HOLD, SLOW_SEND,
};
use crate::sys;
use c_layout::{CStruct, Member};
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};

/// Bytes in front of a frame.
const RECORD_BYTES: usize = RecordHead::BYTES;
const KEY_BYTES: usize = FragmentKeyValue::BYTES;

/// The clock of the program's records (`bpf_ktime_get_ns`).
fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| {
        u64::try_from(std::time::Duration::from(now).as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Which fragments are parts of one packet: the bytes of a [`FragmentKeyValue`].
pub type FragmentKey = [u8; KEY_BYTES];

/// What the program hands to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlowRecord {
    /// A packet that the kernel is to send as it is; with its Ethernet header.
    Send(Vec<u8>),
    /// A fragment as it came in, whose first has not come.
    Hold {
        /// The P4 port.
        port: u32,
        /// Which others it belongs to.
        key: FragmentKey,
        /// From its Ethernet header on.
        frame: Vec<u8>,
    },
}

impl SlowRecord {
    /// Reads `struct sp_slow_record` and the frame behind it; none: it makes no sense.
    pub fn parse(record: &[u8]) -> Option<SlowRecord> {
        let head = RecordHead::read(record.get(..RECORD_BYTES)?);
        let length = head.length as usize;
        let frame = record.get(RECORD_BYTES..RECORD_BYTES.checked_add(length)?)?.to_vec();
        match head.kind {
            SLOW_SEND => Some(SlowRecord::Send(frame)),
            SLOW_HOLD => {
                let key = head.key.to_bytes().try_into().ok()?;
                Some(SlowRecord::Hold { port: head.port, key, frame })
            }
            _ => None,
        }
    }
}

impl Dataplane {
    /// Whether the ports of these fragments are known, to the program too: it goes by no record
    /// that is older than [`FRAGMENT_LIFE_NS`].
    pub fn knows_fragment(&self, key: &FragmentKey) -> bool {
        let found = self.map("sp_fragments").map(|map| map.lookup(key, MapFlags::ANY));
        let Some(Ok(Some(value))) = found else { return false };
        let seen_ns = FragmentValue::from_bytes(&value).seen_ns;
        now_ns().saturating_sub(seen_ns) < FRAGMENT_LIFE_NS
    }

    /// The ring by which the program hands packets to the agent; none: it never does. `take` gets
    /// the records, and none for one that makes no sense.
    pub fn slow_path<'a>(
        &self,
        mut take: impl FnMut(Option<SlowRecord>) + 'a,
    ) -> Result<Option<RingBuffer<'a>>> {
        let Some(map) = self.map("sp_slow") else { return Ok(None) };
        let failed = |error| Error::libbpf("open the ring sp_slow", error);
        let mut builder = RingBufferBuilder::new();
        let callback = move |record: &[u8]| {
            take(SlowRecord::parse(record));
            0
        };
        builder.add(map, callback).map_err(failed)?;
        builder.build().map(Some).map_err(failed)
    }

    /// Runs a fragment that was held through the program, as if it came in on the interface now.
    pub fn run_released(&self, frame: &[u8], ifindex: u32) -> Result<()> {
        let program = self.program("sp_main").ok_or_else(|| Error::NoMap {
            map: "sp_main".to_owned(),
            owner: "programs".to_owned(),
        })?;
        sys::test_run_once_live(program, &RELEASED.to_ne_bytes(), frame, ifindex)
            .map_err(|error| Error::kernel("run a fragment that was held", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_what_makes_no_sense_is_not() {
        let mut record = vec![0; RECORD_BYTES + 3];
        record[..12].copy_from_slice(&[1u32, 5, 3].map(u32::to_ne_bytes).concat());
        record[16..].fill(7);
        assert_eq!(SlowRecord::parse(&record), Some(SlowRecord::Send(vec![7; 3])));
        record[0] = 2;
        let held = SlowRecord::Hold { port: 5, key: [7; KEY_BYTES], frame: vec![7; 3] };
        assert_eq!(SlowRecord::parse(&record), Some(held));
        record[8] = 4;
        assert_eq!(SlowRecord::parse(&record), None, "longer than it is");
        record[8..12].fill(0xff);
        record[0] = 3;
        assert_eq!((SlowRecord::parse(&record), SlowRecord::parse(&[])), (None, None));
    }
}
