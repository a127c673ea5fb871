//! What a switch is told: a part of the decision, whole each time.

use crate::state::{Group, Stage, Standing, State};
use netchain_protocol::control::{Config, Part, Role};
use std::net::Ipv4Addr;

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
            switches: self.switches.keys().copied().collect(),
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
            collecting: group.collecting,
        },
    };
    let next = at.and_then(|at| group.chain.get(at + 1)).copied();
    let reads = matches!(part, Part::Member { reader: true, .. });
    Role {
        view: group.view,
        head_since: group.head_since.min(group.view),
        session: group.session,
        floor: group.floor,
        part,
        next,
        copies_to: group.joining.filter(|_| reads),
        chain: group.chain.clone(),
    }
}
