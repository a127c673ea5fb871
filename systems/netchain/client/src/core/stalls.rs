//! Groups that do not answer for now. While a switch is dead or a view does not serve, all requests
//! of a group would go again every few milliseconds: thousands of copies, which take the CPU time
//! that the failover needs. So one request of the group goes again, and the others wait for it.

use foldhash::fast::RandomState;
use std::collections::{BTreeSet, HashMap};

/// A request that has not asked for so long is over, or its thread stands still: another one asks.
const GONE_US: u64 = 50_000;

/// A request: its identity and number.
type Name = (u64, u32);

/// See the module.
#[derive(Default)]
pub struct Stalls {
    /// By group: the request that asks for all, and when it last did.
    asking: HashMap<u16, (Name, u64), RandomState>,
    /// Groups that have answered since.
    freed: BTreeSet<u16>,
}

impl Stalls {
    /// Whether this request of a group goes again; else it waits for another one.
    pub fn may_ask(&mut self, group: u16, name: Name, now_us: u64) -> bool {
        let (asks, asked_us) = self.asking.entry(group).or_insert((name, now_us));
        if *asks != name && now_us < asked_us.saturating_add(GONE_US) {
            return false;
        }
        (*asks, *asked_us) = (name, now_us);
        true
    }

    /// A group has answered a request, or a switch has told its new chain.
    pub fn news(&mut self, group: u16) {
        if self.asking.remove(&group).is_some() {
            self.freed.insert(group);
        }
    }

    /// A request is over.
    pub fn end(&mut self, group: u16, name: Name) {
        if self.asking.get(&group).is_some_and(|(asks, _)| *asks == name) {
            self.news(group);
        }
    }

    /// The next group whose requests wait no longer.
    pub fn freed(&mut self) -> Option<u16> {
        self.freed.pop_first()
    }
}
