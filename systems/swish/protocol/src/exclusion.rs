//! Switches that controllers keep out of a group, as messages between them and members do not come:
//! which ones, why, and what an operator does about it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Two members: the first lacks messages of the second.
pub type Pair = (Ipv4Addr, Ipv4Addr);

/// Pairs that are told of a switch.
pub const MOST_PAIRS: usize = 4;
/// Excluded switches that members are told of.
pub const MOST_TOLD: usize = 4;

/// A switch that is kept out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excluded {
    /// Its address.
    pub switch: Ipv4Addr,
    /// The first view without it; 0: it is not decided yet.
    pub view: u32,
    /// Pairs that it was in when all waited: [`MOST_PAIRS`] at the most.
    pub pairs: Vec<Pair>,
}

/// What an excluded switch is told, and operators are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// See there.
    #[serde(flatten)]
    pub excluded: Excluded,
    /// For so long.
    pub since_ms: u64,
    /// It does not join for so long from now on.
    pub left_ms: u64,
}

/// Of these pairs, those that are told of the switch: first those of which both lack messages.
pub fn pairs_of(switch: Ipv4Addr, pairs: &[Pair]) -> Vec<Pair> {
    let own = pairs.iter().filter(|(one, other)| [one, other].contains(&&switch));
    let mut own: Vec<Pair> = own.copied().collect();
    // (Both directions of a link stay beside each other: what is told of it is all or nothing.)
    own.sort_by_key(|(one, other)| {
        let peer = if *one == switch { other } else { one };
        (!pairs.contains(&(*other, *one)), *peer)
    });
    own.truncate(MOST_PAIRS);
    own
}

impl Excluded {
    /// Which switch, since when and why.
    pub fn text(&self) -> String {
        let Excluded { switch, view, .. } = self;
        let since = if *view == 0 { String::new() } else { format!(" from view {view} on") };
        format!("{switch} is excluded{since}: {}", self.reason())
    }

    fn reason(&self) -> String {
        let (mut lacks, mut rounds) = (vec![], false);
        for (one, other) in &self.pairs {
            if one == other {
                rounds = true;
            } else {
                lacks.push(format!("{one} lacked messages of {other}"));
            }
        }
        match (lacks.is_empty(), rounds) {
            (false, _) => lacks.join(", "),
            (true, true) => "as the head of the chain it began no round".to_owned(),
            (true, false) => "all waited for it".to_owned(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        let switch = self.switch;
        let others = self.pairs.iter().flat_map(|(one, other)| [*one, *other]);
        let mut others: BTreeSet<Ipv4Addr> = others.filter(|it| *it != switch).collect();
        // (Others may wait for the switch only as it waits for one: with that one both lack.)
        let both =
            |it: &Ipv4Addr| [(switch, *it), (*it, switch)].iter().all(|it| self.pairs.contains(it));
        if others.iter().any(both) {
            others = others.into_iter().filter(both).collect();
        }
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        match &others[..] {
            [] => format!("look at the load and the log of {switch}"),
            [other] => format!("mend the link between {switch} and {other}"),
            _ => format!("look at the load of {switch}, and at its links to {}", others.join(", ")),
        }
    }
}

impl Why {
    /// For operators.
    pub fn text(&self) -> String {
        let Why { excluded, since_ms, left_ms } = self;
        let (text, remedy, s) = (excluded.text(), excluded.remedy(), since_ms / 1000);
        let joins = match left_ms.div_ceil(1000) {
            0 => "now".to_owned(),
            left_s => format!("in {left_s} s"),
        };
        format!("{text} ({s} s ago). Remedy: {remedy}. It joins by itself, the next time {joins}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, last)
    }

    fn excluded(switch: u8, pairs: &[(u8, u8)]) -> Excluded {
        let pairs: Vec<Pair> = pairs.iter().map(|it| (address(it.0), address(it.1))).collect();
        let switch = address(switch);
        Excluded { switch, view: 7, pairs: pairs_of(switch, &pairs) }
    }

    #[test]
    fn a_broken_link_is_named() {
        let excluded = excluded(4, &[(2, 4), (4, 2), (1, 3)]);
        let why = Why { excluded, since_ms: 2_300, left_ms: 17_700 };
        assert_eq!(
            why.text(),
            "10.9.0.4 is excluded from view 7 on: 10.9.0.2 lacked messages of 10.9.0.4, 10.9.0.4 \
             lacked messages of 10.9.0.2 (2 s ago). Remedy: mend the link between 10.9.0.4 and \
             10.9.0.2. It joins by itself, the next time in 18 s"
        );
        assert!(Why { left_ms: 0, ..why }.text().ends_with("the next time now"));
    }

    #[test]
    fn a_slow_switch_is_named() {
        let slow = excluded(4, &[(1, 4), (2, 4), (3, 4)]);
        assert!(slow.remedy().ends_with("its links to 10.9.0.1, 10.9.0.2, 10.9.0.3"));
        let waits = excluded(2, &[(1, 2), (2, 4), (3, 2), (4, 2)]);
        assert_eq!(waits.remedy(), "mend the link between 10.9.0.2 and 10.9.0.4");
        let cut_off = excluded(4, &[(1, 4), (2, 4), (3, 4), (4, 1), (4, 2), (4, 3)]);
        assert!(cut_off.remedy().ends_with("its links to 10.9.0.1, 10.9.0.2"));
        let head = excluded(1, &[(1, 1)]);
        assert!(head.text().ends_with("as the head of the chain it began no round"));
        assert!(head.remedy().ends_with("the log of 10.9.0.1"));
    }
}
