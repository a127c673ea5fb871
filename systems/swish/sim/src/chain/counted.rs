//! What packets are counted by beside their chain (tally.p4): each switch counts alone, with SDW
//! and with EWO.

use crate::model::{Checked, violated};
use c_layout::CStruct;
use dataplane::Dataplane;
use manifest::Manifest;
use std::net::Ipv4Addr;
use swish_protocol::control;
use swish_protocol::eventual::CellValue;
use swish_switch::eventual::EventualGroup;
use swish_switch::group::{Caps, Group, Looks, Open, View};
use wire::KeyRing;

use super::switch::CPUS;

/// Cells of each counter: packets with the same lowest bits of the key are counted together.
pub(super) const CELLS: u32 = 64;
const PERIOD_NS: u64 = 1_000_000;
const INCARNATION: u32 = 1;
/// What a switch has counted.
const MAPS: [&str; 21] = [
    "sp_shared_blocks",
    "sp_shared_dirty_blocks",
    "sp_shared_nodes",
    "sp_shared_cpus",
    "sp_shared_members",
    "sp_shared_got",
    "sp_shared_due",
    "sp_eventual_cells",
    "sp_eventual_slots",
    "sp_eventual_columns",
    "sp_eventual_nodes",
    "sp_eventual_ends",
    "sp_eventual_list",
    "sp_eventual_members",
    "sp_eventual_due",
    "sp_lww_records",
    "sp_lww_counts",
    "sp_lww_nodes",
    "sp_lww_terms",
    "sp_lww_list",
    "sp_lww_index",
];

/// The counters of a loaded object.
pub(super) struct Counted {
    windows: Group,
    looks: Looks,
    at_once: EventualGroup,
    /// B: packets of a rotation.
    pub(super) bound: u64,
}

impl Counted {
    /// `None`: the program counts nothing.
    pub(super) fn of(manifest: &Manifest) -> Result<Option<Counted>, dataplane::Error> {
        let windows = Group::all(manifest)?.into_iter().next();
        let at_once = EventualGroup::all(manifest)?.into_iter().next();
        let both = windows.zip(at_once);
        let (looks, bound) = (Looks::default(), 1 << 32);
        Ok(both.map(|(windows, at_once)| Counted { windows, looks, at_once, bound }))
    }

    /// Nothing is counted yet.
    pub(super) fn begin(&mut self, switch: &Dataplane, ring: &KeyRing, now_ns: u64) -> Checked {
        self.looks = Looks::default();
        let view = View {
            number: 1,
            own: 0,
            members: vec![control::Member {
                number: 0,
                address: Ipv4Addr::LOCALHOST,
                incarnation: INCARNATION,
            }],
            caps: Caps::default(),
            period_ns: PERIOD_NS,
            bound: self.bound,
            window: 1,
            begins_ns: now_ns,
            turns_ns: now_ns + PERIOD_NS,
            fan_out: 0,
        };
        let begun = || {
            MAPS.iter().try_for_each(|map| switch.empty(map))?;
            self.windows.begin(switch, &view, CPUS, ring, Open::default())?;
            self.at_once.begin(switch, &view, INCARNATION, ring)
        };
        begun().or_else(|error: dataplane::Error| violated("harness", error.to_string()))
    }

    /// How many generated frames the windows need now.
    pub(super) fn queue(&mut self, switch: &Dataplane, now_ns: u64) -> Checked<u64> {
        let queued = self.windows.queue(switch, &mut self.looks, now_ns);
        queued.or_else(|error| violated("harness", error.to_string()))
    }

    /// A cell with SDW, as packets read it, and with EWO.
    pub(super) fn read(&self, switch: &Dataplane, cell: u32) -> Checked<[u64; 2]> {
        let read = || {
            let in_windows = self.windows.cell(switch, self.windows.described.first, cell)?;
            let bytes = switch.read_array("sp_eventual_cells", cell)?;
            Ok([in_windows.into(), CellValue::from_bytes(&bytes).value])
        };
        read().or_else(|error: dataplane::Error| violated("harness", error.to_string()))
    }
}
