//! SwiSh's part of `switch.toml`.

use crate::group::{Group, View};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use swish_protocol::layouts::MEMBERS;
use switch_agent::Result;
use switch_agent::config::Config;

pub(crate) const FIELDS: [&str; 1] = ["shared"];

/// Of a window, if the configuration does not say.
const USUAL_PERIOD_US: u64 = 10_000;
/// Updates of a rotation, if it does not say.
const USUAL_BOUND: u64 = 1 << 32;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    #[serde(default)]
    shared: BTreeMap<String, Shared>,
}

/// `[shared.GROUP]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    /// Addresses of the switches that share the group; their numbers as members are their places.
    members: Vec<Ipv4Addr>,
    /// Which of them this switch is.
    own: Ipv4Addr,
    /// From one window to the next, at the least.
    period_us: Option<u64>,
    /// B: updates of this switch between two windows.
    bound: Option<u64>,
}

/// The view of each group, as the configuration says. A group that it does not name is this
/// switch's alone.
///
/// # Errors
/// A field is out of range, or names no group of the program.
pub(crate) fn views(config: &Config, groups: &[Group]) -> Result<Vec<View>> {
    let own: Own = config.part(&FIELDS)?;
    for name in own.shared.keys() {
        if !groups.iter().any(|group| group.described.name == *name) {
            let known: Vec<&str> = groups.iter().map(|it| it.described.name.as_str()).collect();
            let reason = format!(
                "the program has no such group of shared variables; it has: {}",
                if known.is_empty() { "none".into() } else { known.join(", ") }
            );
            return config.fault(format!("shared.{name}"), reason);
        }
    }
    groups.iter().map(|group| view(config, group, own.shared.get(&group.described.name))).collect()
}

fn view(config: &Config, group: &Group, shared: Option<&Shared>) -> Result<View> {
    let field = |name: &str| format!("shared.{}.{name}", group.described.name);
    let Some(shared) = shared else {
        return Ok(View {
            number: 1,
            own: 0,
            members: vec![(0, Ipv4Addr::LOCALHOST)],
            period_ns: USUAL_PERIOD_US * 1000,
            bound: USUAL_BOUND,
            window: 1,
            begins_ns: 0,
            turns_ns: 0,
        });
    };
    if shared.members.len() > MEMBERS as usize {
        return config.fault(field("members"), format!("more than {MEMBERS} switches"));
    }
    for (at, member) in shared.members.iter().enumerate() {
        if shared.members[..at].contains(member) {
            return config.fault(field("members"), format!("{member} is given twice"));
        }
    }
    let Some(own) = shared.members.iter().position(|member| *member == shared.own) else {
        return config.fault(field("own"), format!("{} is none of `members`", shared.own));
    };
    let period_us = shared.period_us.unwrap_or(USUAL_PERIOD_US);
    if period_us > 60_000_000 {
        return config.fault(field("period_us"), format!("{period_us}: must be at most 60000000"));
    }
    let bound = shared.bound.unwrap_or(USUAL_BOUND);
    if bound == 0 {
        return config.fault(field("bound"), "0: must be at least 1 update");
    }
    Ok(View {
        number: 1,
        own: own as u32,
        members: (0..).zip(shared.members.iter().copied()).collect(),
        period_ns: period_us * 1000,
        bound,
        window: 1,
        begins_ns: 0,
        turns_ns: 0,
    })
}
