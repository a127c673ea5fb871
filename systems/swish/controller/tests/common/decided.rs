//! A view that controllers of these tests have decided.

use crate::settings::address;
use std::collections::BTreeMap;
use swish_controller::{Decided, GroupState};
use swish_protocol::control::{Lease, Member, Turn};

pub fn member(number: u32) -> Member {
    Member { number, address: address(number), incarnation: 7 }
}

/// View 4 with these members in this order, which began in window 1. `lease`: of a chain.
pub fn decided(members: &[u32], lease: Option<Lease>) -> GroupState {
    let decided = Decided {
        number: 4,
        members: members.iter().copied().map(member).collect(),
        joins: vec![],
        lacks: vec![],
        turn: Turn::Go,
        window: 1,
        extra: vec![],
        counted: BTreeMap::new(),
        lease,
        away: vec![],
        base: None,
    };
    GroupState { views: vec![decided] }
}
