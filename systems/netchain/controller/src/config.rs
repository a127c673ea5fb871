//! What a switch is told: a part of the decision, whole each time.

use crate::state::{Group, Stage, Standing, State};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What one switch has to do. A higher version replaces a lower one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Of the decision.
    pub version: u64,
    /// The life of the switch that it is for; another life takes nothing of it.
    pub incarnation: u32,
    /// Of all groups: a switch that is no member tells the group's chain to clients that ask it.
    pub roles: Vec<Role>,
    /// NetChain's messages from these switches are dropped, and chain messages to them too. A
    /// request to one is answered with its group's chain.
    pub dead: Vec<Ipv4Addr>,
}

/// A switch's part in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// The group's.
    pub view: u32,
    /// The head's.
    pub session: u16,
    /// What the switch does.
    pub part: Part,
    /// Where a member sends what it has applied.
    pub next: Option<Ipv4Addr>,
    /// Where a reader copies its slots.
    pub copies_to: Option<Ipv4Addr>,
    /// What clients are told.
    pub chain: Vec<Ipv4Addr>,
}

/// What a switch does for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// It tells the chain.
    None,
    /// A member for the time being: it refuses all requests and all writes.
    Paused,
    /// A member.
    Member {
        /// It decides.
        head: bool,
        /// It answers reads.
        reader: bool,
        /// It answers writes.
        tail: bool,
        /// It takes copies.
        joining: bool,
    },
    /// The group has no member that has its keys.
    Lost,
}

impl State {
    /// What this switch has to do; None: it is none of the cluster's.
    pub fn config_of(&self, switch: Ipv4Addr) -> Option<Config> {
        let incarnation = self.switches.get(&switch)?.incarnation;
        let dead = self
            .switches
            .iter()
            .filter(|(address, it)| it.standing != Standing::Serving && **address != switch);
        Some(Config {
            version: self.version,
            incarnation,
            roles: self.groups.iter().map(|group| role_of(group, switch)).collect(),
            dead: dead.map(|(address, _)| *address).collect(),
        })
    }
}

fn role_of(group: &Group, switch: Ipv4Addr) -> Role {
    let at = group.chain.iter().position(|member| *member == switch);
    let part = match (group.stage, at) {
        (Stage::Lost, _) => Part::Lost,
        (_, None) => Part::None,
        (Stage::Paused { .. }, Some(_)) => Part::Paused,
        (Stage::Serving, Some(at)) => Part::Member {
            head: group.head() == Some(switch),
            reader: group.reader() == Some(switch),
            tail: at + 1 == group.chain.len(),
            joining: group.joining == Some(switch),
        },
    };
    let next = at.and_then(|at| group.chain.get(at + 1)).copied();
    let reads = matches!(part, Part::Member { reader: true, .. });
    Role {
        view: group.view,
        session: group.session,
        part,
        next,
        copies_to: group.joining.filter(|_| reads),
        chain: group.chain.clone(),
    }
}
