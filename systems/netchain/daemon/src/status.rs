//! What tools are told: the cluster on one page (`Status`), and its groups, some at a time
//! (`Groups`).

use crate::rules::Switches;
use controller::shell::Kept;
use netchain_controller::{Stage, Standing, State};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Groups in an answer: each has up to 200 bytes.
const PAGE: usize = 64;
/// Silent peers of a switch that are told.
const MOST_SILENT: usize = 8;

/// How the controller and the cluster are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Whether this controller decides.
    pub leading: bool,
    /// Of the decision; 0: nothing is decided yet.
    pub version: u64,
    /// All chains are whole and serve, and all that report have the newest decision.
    pub settled: bool,
    /// Why it cannot decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_decide: Option<String>,
    /// For the next order of a tool.
    pub ticket: u64,
    /// How many groups there are.
    pub groups: usize,
    /// Those of them whose members do not answer, until all have the same view.
    pub paused: usize,
    /// That have no member with their keys.
    pub lost: usize,
    /// With fewer members than they should have, one that joins not counted.
    pub short: usize,
    /// That a member joins.
    pub joining: usize,
    /// For which a better switch serves than a member is: they will move.
    #[serde(default)]
    pub to_move: usize,
    /// Until the first of them may begin; none: an operator must order it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_in_ms: Option<u64>,
    /// In the order of their addresses.
    pub switches: Vec<SwitchStatus>,
    /// How many were left out, as the answer would be too long.
    #[serde(default)]
    pub switches_left_out: usize,
}

/// How a switch is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// Its NetChain address.
    pub address: Ipv4Addr,
    /// `serving` or `dead`; `absent`: it was never heard of.
    pub standing: String,
    /// It leaves its chains.
    #[serde(default)]
    pub draining: bool,
    /// Of its slots; 0: it was never heard of.
    pub incarnation: u32,
    /// The decision that it has confirmed.
    pub applied: u64,
    /// Time since its last report in ms; none: this controller has had none.
    pub report_ms: Option<u64>,
    /// Where its reports come from; it answers tools there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports_from: Option<SocketAddrV4>,
    /// Chains that it is a member of, and heads.
    pub chains: usize,
    /// See `chains`.
    pub heads: usize,
    /// Switches that it has not heard for `dead_ms` or longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<Silent>,
}

/// A switch that another one does not hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// Its address.
    pub switch: Ipv4Addr,
    /// For so long.
    pub ms: u64,
}

/// Question for [`Groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsWanted {
    /// The first group.
    pub from: usize,
}

/// Some groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Of the decision.
    pub version: u64,
    /// In order.
    pub groups: Vec<GroupStatus>,
    /// Where the next ones begin; none: these are the last.
    pub next: Option<usize>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its number.
    pub group: usize,
    /// Its view.
    pub view: u32,
    /// Its head's session.
    pub session: u16,
    /// `serving`, `paused` or `lost`.
    pub stage: String,
    /// Head first.
    pub chain: Vec<Ipv4Addr>,
    /// The member that slots are copied to.
    pub joining: Option<Ipv4Addr>,
    /// Tombstones of earlier sessions may be gone; 0: none are.
    pub floor: u16,
    /// Its tombstones are being collected.
    pub collecting: bool,
}

pub(crate) fn is_paused(stage: &Stage) -> bool {
    matches!(stage, Stage::Paused { .. })
}

/// The page.
pub(crate) fn status(rules: &Switches, kept: &Kept, now_ns: u64) -> Status {
    let state = rules.state();
    let groups = state.map_or(&[][..], |state| &state.groups);
    let members = rules.config.ring.founding().failures + 1;
    let count = |what: &dyn Fn(&netchain_controller::Group) -> bool| {
        groups.iter().filter(|group| what(group)).count()
    };
    let switches = state.map(|state| switches(rules, state, now_ns / 1_000_000));
    let switches = switches.unwrap_or_default();
    let (paused, lost) = (count(&|it| is_paused(&it.stage)), count(&|it| it.stage == Stage::Lost));
    let short = count(&|it| it.full().count() < members);
    let joining = count(&|it| it.joining.is_some());
    let version = state.map_or(0, |state| state.version);
    let moves = rules.core().map(|core| core.to_move(now_ns / 1_000_000));
    let (to_move, moves_in_ms) = moves.unwrap_or_default();
    let reports = |it: &&SwitchStatus| it.report_ms.is_some_and(|ms| ms < rules.config.dead_ms);
    let cannot_decide = kept.cannot_decide(now_ns, rules.behind()).map(str::to_owned);
    let settled = !groups.is_empty()
        && cannot_decide.is_none()
        && paused + lost + short + joining == 0
        && switches.iter().filter(reports).all(|it| it.applied == version);
    Status {
        leading: rules.leading,
        version,
        settled,
        cannot_decide,
        ticket: rules.orders.ticket(),
        groups: groups.len(),
        paused,
        lost,
        short,
        joining,
        to_move,
        moves_in_ms,
        switches,
        switches_left_out: 0,
    }
}

impl Status {
    /// As a message carries it: what is well is left out until it fits.
    pub(crate) fn into_json(self) -> Vec<u8> {
        let all = self.switches.len();
        wire::json_that_fits(self, |status, step| {
            if status.switches.is_empty() {
                return false;
            }
            match step {
                0 => status.switches.retain(|it| it.standing != "serving" || !it.silent.is_empty()),
                _ => status.switches.truncate(status.switches.len() / 2),
            }
            status.switches_left_out = all - status.switches.len();
            true
        })
    }
}

fn switches(rules: &Switches, state: &State, now_ms: u64) -> Vec<SwitchStatus> {
    let seen = |address| {
        rules.core().and_then(|core| core.seen().find(|(report, _)| report.switch == address))
    };
    let one = |(address, switch): (&Ipv4Addr, &netchain_controller::Switch)| {
        let seen = seen(*address);
        let silent = seen.iter().flat_map(|(report, _)| &report.silent_ms);
        let silent = silent.filter(|(_, ms)| *ms >= rules.config.dead_ms).take(MOST_SILENT);
        let standing = match (switch.incarnation, switch.standing) {
            (_, Standing::Dead { .. }) => "dead",
            (0, _) => "absent",
            _ => "serving",
        };
        SwitchStatus {
            address: *address,
            standing: standing.to_owned(),
            draining: switch.draining,
            incarnation: switch.incarnation,
            applied: seen.as_ref().map_or(0, |(report, _)| report.applied),
            reports_from: rules.reports.address(address),
            report_ms: seen.as_ref().map(|(_, at_ms)| now_ms.saturating_sub(*at_ms)),
            chains: state.groups.iter().filter(|it| it.chain.contains(address)).count(),
            heads: state.groups.iter().filter(|it| it.head() == Some(*address)).count(),
            silent: silent.map(|(switch, ms)| Silent { switch: *switch, ms: *ms }).collect(),
        }
    };
    state.switches.iter().map(one).collect()
}

/// Groups from one on.
pub(crate) fn groups(state: Option<&State>, wanted: GroupsWanted) -> Groups {
    let all = state.map_or(&[][..], |state| &state.groups);
    let some = all.iter().enumerate().skip(wanted.from).take(PAGE);
    let groups: Vec<GroupStatus> = some
        .map(|(group, it)| GroupStatus {
            group,
            view: it.view,
            session: it.session,
            stage: match it.stage {
                Stage::Serving => "serving",
                Stage::Paused { .. } => "paused",
                Stage::Lost => "lost",
            }
            .to_owned(),
            chain: it.chain.clone(),
            joining: it.joining,
            floor: it.floor,
            collecting: it.collecting,
        })
        .collect();
    let end = wanted.from.saturating_add(groups.len());
    let version = state.map_or(0, |state| state.version);
    Groups { version, groups, next: (end < all.len()).then_some(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_groups_fits_into_a_message() {
        let switches: Vec<Ipv4Addr> =
            (101..=104).map(|at| Ipv4Addr::new(210, 129, 200, at)).collect();
        let mut state = State::found(&switches, vec![switches.clone(); 300]);
        for group in &mut state.groups {
            (group.view, group.session, group.joining) = (u32::MAX, u16::MAX, Some(switches[3]));
        }
        let (mut from, mut found) = (0, 0);
        loop {
            let page = groups(Some(&state), GroupsWanted { from });
            assert!(serde_json::to_vec(&page).unwrap().len() <= wire::MAX_PACKET_BYTES);
            found += page.groups.len();
            let Some(next) = page.next else { break };
            from = next;
        }
        assert_eq!(found, 300);
    }
}
