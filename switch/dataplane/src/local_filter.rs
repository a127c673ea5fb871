//! The bitmap in front of the host's own addresses (`sp_local_filter`): a packet for an address
//! whose bit is not set costs the program no look-up.

use crate::Dataplane;
use crate::error::Result;
use crate::layouts::core::{
    LOCAL_FILTER_BITS, LOCAL_FILTER_FACTOR, LOCAL_FILTER_WORDS, LocalFilterValue,
};
use c_layout::CStruct;
use std::net::{Ipv4Addr, Ipv6Addr};

const MAP: &str = "sp_local_filter";

/// A bit for each address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalFilter([u64; LOCAL_FILTER_WORDS]);

impl LocalFilter {
    /// Of these addresses.
    pub fn new(ipv4: &[Ipv4Addr], ipv6: &[Ipv6Addr]) -> LocalFilter {
        let mut filter = LocalFilter([0; LOCAL_FILTER_WORDS]);
        let words = |address: &Ipv6Addr| {
            let bits = address.to_bits();
            [96, 64, 32, 0].iter().fold(0, |folded, shift| folded ^ (bits >> shift) as u32)
        };
        for folded in ipv4.iter().map(|address| address.to_bits()).chain(ipv6.iter().map(words)) {
            // sp_may_be_local in stateplane_xdp.h.
            let bit = folded.wrapping_mul(LOCAL_FILTER_FACTOR) >> (32 - LOCAL_FILTER_BITS);
            filter.0[bit as usize / 64] |= 1 << (bit % 64);
        }
        filter
    }

    /// Adds what the program has now, so that no address that it still knows is missed.
    pub fn add_present(&mut self, dataplane: &Dataplane) -> Result<()> {
        if dataplane.has_map(MAP) {
            let present = LocalFilterValue::from_bytes(&dataplane.read_array(MAP, 0)?);
            for (word, present) in self.0.iter_mut().zip(present.word) {
                *word |= present;
            }
        }
        Ok(())
    }

    /// Gives it to the program. Objects of earlier versions have none.
    pub fn write(&self, dataplane: &Dataplane) -> Result<()> {
        if !dataplane.has_map(MAP) {
            return Ok(());
        }
        dataplane.write_array(MAP, 0, &LocalFilterValue { word: self.0 }.to_bytes())
    }
}
