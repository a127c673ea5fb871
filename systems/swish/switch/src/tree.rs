//! A group's aggregation tree: neighbours of a switch, messages for each of them in each phase, and
//! members that a window waits for (`bpf/swish/stateplane_shared_tree.h`).

use crate::group::View;
use swish_protocol::control::Member;
use swish_protocol::layouts::{MemberValue, NOT_KNOWN, NodeValue, phase, tree};

impl View {
    /// This switch's place in the aggregation tree, and the members that its data plane has, this
    /// switch too: all, or its neighbours in the tree. The member at place *p*, in the order of
    /// numbers, has its parent at (*p* − 1) / fan-out.
    pub fn neighbours(&self) -> (u32, Vec<Member>) {
        let mut all = self.members.clone();
        all.sort_by_key(|it| it.number);
        let fan_out = self.fan_out as usize;
        let own = all.iter().position(|it| it.number == self.own);
        let Some(own) = own.filter(|_| fan_out > 0 && all.len() > 1) else {
            return (tree::NONE, all);
        };
        let parent = own.checked_sub(1).map(|it| it / fan_out);
        let children = own * fan_out + 1..=own * fan_out + fan_out;
        let is_near = |at: usize| at == own || Some(at) == parent || children.contains(&at);
        let near = all.into_iter().enumerate().filter(|(at, _)| is_near(*at));
        let place = if parent.is_some() { tree::BELOW } else { tree::ROOT };
        (place, near.map(|(_, member)| member).collect())
    }
}

/// In this phase: whether a member may be sending messages of this window, and how many messages it
/// is still to be sent for the first time.
pub(crate) fn exchanged(
    node: &NodeValue,
    own_total: u32,
    member: u32,
    record: &MemberValue,
) -> (bool, u32) {
    let (window, now) = (node.word >> 3, node.word & 7);
    let unsent = |total: u32, window: u64| match total {
        NOT_KNOWN => 0,
        total => total.saturating_sub(sent(record, (window & 1) as usize)),
    };
    let sending = now == phase::SENDING;
    if member == node.own || node.word == 0 {
        return (sending, 0);
    }
    if node.tree == tree::NONE || member < node.own {
        return (sending, if sending { unsent(own_total, window) } else { 0 });
    }
    let total = |window: u64| node.totals[(window & 1) as usize];
    let to_send = match now {
        phase::SENDING if node.tree == tree::ROOT => unsent(total(window), window),
        phase::ADVANCED | phase::RESETTING | phase::READY if record.ready < window => {
            unsent(total(window - 1), window - 1)
        }
        _ => 0,
    };
    (now == phase::GATHERING, to_send)
}

/// Messages that a member was sent, of the window with this lowest bit.
fn sent(record: &MemberValue, side: usize) -> u32 {
    let [first, last] = [record.next[side] as u32, (record.next[side] >> 32) as u32];
    first.saturating_add(last)
}

/// Members that the window waits for, of the others that the data plane has. In a tree those are
/// neighbours: switches in a subtree tell which one of them holds it up.
pub(crate) fn lacks(node: &NodeValue, others: &[(u32, MemberValue)]) -> Vec<u32> {
    let (window, now) = (node.word >> 3, node.word & 7);
    let lack = |is_parent: bool, waits: &dyn Fn(&MemberValue) -> bool| {
        let of = others.iter().filter(|(number, it)| {
            (node.tree == tree::NONE || (*number < node.own) == is_parent) && waits(it)
        });
        of.map(|(number, _)| *number).collect::<Vec<u32>>()
    };
    match now {
        phase::READY => {
            let found = lack(false, &|it| it.ready < window);
            // (All below are ready: it waits for the others, of which the parent tells.)
            if found.is_empty() { lack(true, &|_| node.tree == tree::BELOW) } else { found }
        }
        phase::GATHERING => lack(false, &|it| it.complete == 0),
        phase::SENDING => match node.tree {
            // (The root merges its own messages when it sends them.)
            tree::ROOT => {
                let side = (window & 1) as usize;
                lack(false, &|it| sent(it, side) < node.totals[side])
            }
            _ => lack(true, &|it| it.complete == 0),
        },
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c_layout::CStruct;
    use std::net::Ipv4Addr;

    fn near(own: u32, members: u32, fan_out: u32) -> (u32, Vec<u32>) {
        let fixed = |number| Member {
            number,
            address: Ipv4Addr::from_bits(0x0a00_0000 + number),
            incarnation: 0,
        };
        let view = View {
            number: 1,
            own,
            members: (0..members).map(fixed).collect(),
            bound: 1,
            window: 1,
            fan_out,
            ..View::default()
        };
        let (place, near) = view.neighbours();
        (place, near.iter().map(|it| it.number).collect())
    }

    #[test]
    fn neighbours_follow_from_places() {
        assert_eq!(near(0, 7, 2), (tree::ROOT, vec![0, 1, 2]));
        assert_eq!(near(1, 7, 2), (tree::BELOW, vec![0, 1, 3, 4]));
        assert_eq!(near(6, 7, 2), (tree::BELOW, vec![2, 6]));
        assert_eq!(near(1, 6, 4), (tree::BELOW, vec![0, 1, 5]));
        assert_eq!(near(2, 4, 0), (tree::NONE, vec![0, 1, 2, 3]));
        assert_eq!(near(0, 1, 2), (tree::NONE, vec![0]));
    }

    #[test]
    fn each_neighbour_has_the_other() {
        for (members, fan_out) in [(2, 2), (7, 2), (16, 4), (100, 3), (9, 4096)] {
            let all: Vec<Vec<u32>> =
                (0..members).map(|own| near(own, members, fan_out).1).collect();
            let links: usize = all.iter().map(|it| it.len() - 1).sum();
            assert_eq!(links as u32, 2 * (members - 1));
            for (own, near) in (0..).zip(&all) {
                assert!(near.iter().all(|it| all[*it as usize].contains(&own)));
            }
        }
    }

    fn node(phase: u64, tree: u32) -> NodeValue {
        let mut node = NodeValue::from_bytes(&[0; size_of::<NodeValue>()]);
        (node.word, node.own, node.tree, node.totals) = (5 << 3 | phase, 4, tree, [9, 7]);
        node
    }

    fn record() -> MemberValue {
        MemberValue::from_bytes(&[0; size_of::<MemberValue>()])
    }

    #[test]
    fn what_is_sent_depends_on_where_the_member_is() {
        let record = MemberValue { next: [1, 2], ready: 4, ..record() };
        let of = |now, place, member| exchanged(&node(now, place), 5, member, &record);
        // Without a tree, each sends the other what it has.
        assert_eq!(of(phase::SENDING, tree::NONE, 3), (true, 3));
        assert_eq!(of(phase::READY, tree::NONE, 3), (false, 0));
        // Up to the parent, and from the children.
        assert_eq!(of(phase::SENDING, tree::BELOW, 3), (true, 3));
        assert_eq!(of(phase::GATHERING, tree::BELOW, 9), (true, 0));
        assert_eq!(of(phase::GATHERING, tree::BELOW, 3), (false, 0));
        // Down: from the root at once, from others when the window is over.
        assert_eq!(of(phase::SENDING, tree::ROOT, 9), (false, 5));
        assert_eq!(of(phase::SENDING, tree::BELOW, 9), (false, 0));
        assert_eq!(of(phase::ADVANCED, tree::BELOW, 9), (false, 8));
        assert_eq!(of(phase::ADVANCED, tree::BELOW, 3), (false, 0));
        assert_eq!(of(phase::ROTATED, tree::BELOW, 9), (false, 0));
        let has_all = MemberValue { ready: 5, ..record };
        assert_eq!(exchanged(&node(phase::READY, tree::BELOW), 5, 9, &has_all), (false, 0));
    }

    #[test]
    fn a_window_waits_for_neighbours() {
        let all = |child: MemberValue| [(1, record()), (9, child), (10, child)];
        let ready = MemberValue { ready: 5, complete: 1, ..record() };
        let waits = |now, place, child| lacks(&node(now, place), &all(child));
        assert_eq!(waits(phase::READY, tree::NONE, ready), [1]);
        assert_eq!(waits(phase::READY, tree::BELOW, record()), [9, 10]);
        assert_eq!(waits(phase::READY, tree::BELOW, ready), [1], "all below are ready");
        assert_eq!(waits(phase::GATHERING, tree::BELOW, record()), [9, 10]);
        assert_eq!(waits(phase::SENDING, tree::BELOW, ready), [1]);
        assert_eq!(waits(phase::SENDING, tree::NONE, ready), [1]);
        assert!(waits(phase::TURNING, tree::BELOW, record()).is_empty());
    }
}
