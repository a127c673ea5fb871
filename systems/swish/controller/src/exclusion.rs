//! Which switch a group goes on without when messages between members do not come: one rule for its
//! windows (SDW) and its chain (SRO), so that both exclude the same end of a broken link
//! (README, "Membership").
//!
//! Windows name all pairs of which one lacks messages of the other; a chain names one. A pair is
//! broken if either names it. Each consistency excludes only a switch that itself waits for: a
//! chain does not use all links, and drops packets of a switch that is no member.

use crate::controller::{Event, Outputs, Settings};
use crate::group::Group;
use crate::state::{GroupState, State};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use swish_protocol::exclusion::Pair;

/// An excluded switch stays out for so many times as long as it may hold its group up.
const OUT_TIMES: u64 = 10;

/// A switch that is kept out.
#[derive(Clone, Debug)]
pub(crate) struct Excluded {
    pub since_ns: u64,
    pub until_ns: u64,
    /// Pairs that it was in.
    pub pairs: Vec<Pair>,
    /// The first view of this consistency without it; 0: it has none.
    pub view: u32,
    /// This consistency waited for it. (Operators were told so once.)
    pub waited_for: bool,
}

/// What the members of one consistency report when nothing moves.
pub(crate) struct Stands {
    /// For how long, of the member with the shortest time.
    pub still_ns: u64,
    pub pairs: Vec<Pair>,
}

/// Judges the consistencies of one group.
pub(crate) fn judge(
    now_ns: u64,
    settings: &Settings,
    state: &State,
    parts: &mut [(&String, &mut Group)],
    out: &mut Outputs,
) {
    for (_, part) in parts.iter_mut() {
        part.waits_for = None;
        part.excluded.retain(|_, it| now_ns < it.until_ns);
    }
    if settings.slow_ns == 0 {
        return;
    }
    let empty = GroupState::default();
    let known = |name: &String| state.groups.get(name).unwrap_or(&empty);
    let stands = |(name, part): &(&String, &mut Group)| part.stands(now_ns, settings, known(name));
    let stands: Vec<Option<Stands>> = parts.iter().map(stands).collect();
    // (Windows and rounds do not stop in the same moment.)
    let counts = |it: &&Stands| it.still_ns >= settings.slow_ns / 2;
    let broken: BTreeSet<Pair> =
        stands.iter().flatten().filter(counts).flat_map(|it| it.pairs.clone()).collect();
    let chain = parts.iter().find_map(|(name, part)| {
        let newest = known(name).newest().filter(|it| it.is_chain())?;
        Some((newest, part.only_whole(now_ns, settings, newest)))
    });
    let keeps = chain.and_then(|(_, whole)| whole);
    let chain: Vec<Ipv4Addr> =
        chain.iter().flat_map(|(it, _)| &it.members).map(|it| it.address).collect();
    for (at, stands) in stands.iter().enumerate() {
        let Some(stands) = stands.as_ref().filter(|it| it.still_ns >= settings.slow_ns) else {
            continue;
        };
        let (_, part) = &parts[at];
        let Some(switch) = worst(part, &stands.pairs, &broken, &chain, keeps) else { continue };
        parts[at].1.waits_for = Some(switch);
        let until_ns = now_ns + OUT_TIMES * settings.slow_ns;
        let pairs: Vec<Pair> = broken.iter().copied().collect();
        // (With EWO nobody waits, and nobody is excluded.)
        let others = parts.iter_mut().filter(|(_, it)| !it.is_eventual(settings, now_ns));
        for (_, part) in others {
            let pairs = pairs.clone();
            let new = Excluded { since_ns: now_ns, until_ns, pairs, view: 0, waited_for: false };
            part.excluded.entry(switch).or_insert(new).until_ns = until_ns;
        }
        let (name, part) = &mut parts[at];
        if let Some(excluded) = part.excluded.get_mut(&switch)
            && !std::mem::replace(&mut excluded.waited_for, true)
        {
            out.events.push(Event::Slow((*name).clone(), switch, pairs));
        }
    }
}

/// Of the switches in the part's own pairs, the one in most broken pairs; of several, one that is
/// excluded already; of several, the last one of the chain; else the one with the highest number.
/// `keeps`: the only one that has the chain's values goes on with those that reach it.
fn worst(
    part: &Group,
    own: &[Pair],
    broken: &BTreeSet<Pair>,
    chain: &[Ipv4Addr],
    keeps: Option<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let rank = |switch: &Ipv4Addr| {
        let pairs = broken.iter().filter(|(one, other)| one == switch || other == switch).count();
        // (A switch that is no member of the chain costs least.)
        let place = chain.iter().position(|it| it == switch).unwrap_or(usize::MAX);
        (pairs, part.excluded.contains_key(switch), place, part.number_of(*switch))
    };
    let ends = own.iter().flat_map(|(one, other)| [*one, *other]);
    ends.filter(|it| Some(*it) != keeps).max_by_key(rank)
}
