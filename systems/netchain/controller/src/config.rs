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
            collecting: group.collects_in == group.view,
        },
    };
    let next = at.and_then(|at| group.chain.get(at + 1)).copied();
    let reads = matches!(part, Part::Member { reader: true, .. });
    let collects = group.collecting && matches!(part, Part::Member { head: true, .. });
    // (The head of a chain of one sends nothing, and goes over its own slots.)
    let collected = collects.then(|| next.unwrap_or(switch));
    Role {
        view: group.view,
        head_since: group.head_since.min(group.view),
        session: group.session,
        floor: group.floor,
        part,
        next,
        copies_to: group.joining.filter(|_| reads).or(collected),
        chain: group.chain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a late tombstone, sent in this view by a head that has freed its slot since, is stored
    /// at a member for as long as the view lasts.
    #[test]
    fn members_collect_until_the_view_ends() {
        let chain: Vec<Ipv4Addr> = (1..=3).map(|at| Ipv4Addr::new(10, 9, 0, at)).collect();
        let mut state = State::found(&chain, vec![chain.clone()]);
        let parts = |state: &State| {
            let role = |it: &Ipv4Addr| state.config_of(*it).expect("a member").roles.remove(0);
            let roles: Vec<Role> = chain.iter().map(role).collect();
            let collect = |it: &Role| matches!(it.part, Part::Member { collecting: true, .. });
            (roles.iter().filter(|it| collect(it)).count(), roles[0].copies_to)
        };
        state.groups[0].collect(2);
        assert_eq!(parts(&state), (0, None), "it does not serve yet");
        state.groups[0].stage = Stage::Serving;
        assert_eq!(parts(&state), (3, Some(chain[1])));
        state.groups[0].collecting = false;
        assert_eq!(parts(&state), (3, None), "the head is done");
        state.groups[0].change(chain.clone(), None, 3);
        state.groups[0].stage = Stage::Serving;
        assert_eq!(parts(&state), (0, None), "another view");
    }
}
