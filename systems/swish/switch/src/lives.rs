//! The lives of members in a chain without controllers (README, "SRO", 13). A member that lost its
//! state is empty, and no controller removes it. So members tell each other their lives. A member
//! serves only once all members have agreed to the same lives, and agrees to no other lives later.
//! A member that restarts without its state therefore stays out.

use crate::strong::{Chain, ChainView};
use dataplane::{Dataplane, Result};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use swish_protocol::layouts::MEMBERS;
use swish_protocol::strong::{LifeValue, ViewValue, offer, standing};

/// The time between two frames for hellos, once all members have agreed.
const TELL_NS: u64 = 20_000_000;
/// A member whose last hello is older does not answer. (Of 32 members, each sends every other one a
/// hello in 0.7 s.)
const SILENT_NS: u64 = 3_000_000_000;

/// See the module.
pub struct Lives {
    chain: Chain,
    view: ChainView,
    /// When the next frame for a hello is due; 0 until all members have agreed.
    next_ns: AtomicU64,
}

/// What is known of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// All members have agreed on their lives, and this one is on.
    pub agreed: bool,
    /// Members that were not heard of for long.
    pub silent: Vec<Ipv4Addr>,
    /// Members that restarted without their state; this one may be among them.
    pub restarted: Vec<Ipv4Addr>,
    /// The first member of the chain that lacks batches which another one has.
    pub lacks: Option<Ipv4Addr>,
}

impl Lives {
    /// Of the members of this view, in the life of this switch that it names.
    pub fn new(chain: Chain, view: ChainView) -> Lives {
        Lives { chain, view, next_ns: AtomicU64::new(0) }
    }

    /// The members, from head to tail.
    pub fn members(&self) -> &[(u32, Ipv4Addr)] {
        &self.view.members
    }

    /// The member begins to meet the others, or goes on in the life of an earlier agent. False: the
    /// data plane has another group.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(&self, dataplane: &Dataplane) -> Result<bool> {
        let mut life = [0; MEMBERS as usize];
        if let Some(own) = life.get_mut(self.view.own as usize) {
            *own = self.view.incarnation;
        }
        let meets = ViewValue { standing: standing::MEETS, life, ..self.chain.value(&self.view) };
        let Some(found) = self.chain.wanted(dataplane)? else {
            self.chain.write(dataplane, &meets)?;
            return Ok(true);
        };
        let ViewValue { number, incarnation, standing, offer, life, .. } = found;
        Ok(found == ViewValue { number, incarnation, standing, offer, life, ..meets }
            && standing & standing::MEETS != 0)
    }

    /// How many frames the packet generator makes at this look.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn due(&self, dataplane: &Dataplane, now_ns: u64) -> Result<u64> {
        let frames = self.chain.frames(dataplane)?;
        // (Only once all have agreed is there a time: looks are frequent, and a view is long.)
        if now_ns < self.next_ns.load(Ordering::Relaxed) {
            return Ok(frames);
        }
        let Some(view) = self.chain.wanted(dataplane)? else { return Ok(frames) };
        if !is_on(&view) {
            self.agree(dataplane, view)?;
            return Ok(frames.max(1));
        }
        self.next_ns.store(now_ns + TELL_NS, Ordering::Relaxed);
        Ok(frames.max(1))
    }

    /// Agrees to what was heard, and is on once all others have.
    fn agree(&self, dataplane: &Dataplane, view: ViewValue) -> Result<()> {
        let heard = self.chain.lives(dataplane, &self.view.members)?;
        let mut lives = [0; MEMBERS as usize];
        for (member, it) in &heard {
            let life = if *member == view.own { view.incarnation } else { it.life };
            match lives.get_mut(*member as usize) {
                Some(place) if life != 0 => *place = life,
                _ => return Ok(()),
            }
        }
        let own = offer(&lives);
        if own != view.offer {
            return self.chain.write(dataplane, &ViewValue { offer: own, life: lives, ..view });
        }
        if !heard.iter().all(|(member, it)| *member == view.own || it.offer == own) {
            return Ok(());
        }
        // (The view's number in messages: who has agreed to other lives is in another view.)
        let number = 1 << u32::BITS | u64::from(own as u32);
        let standing = self.chain.value(&self.view).standing | standing::MEETS;
        self.chain.begins(dataplane, &ViewValue { number, standing, ..view })
    }

    /// What is known of the others.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn others(&self, dataplane: &Dataplane, now_ns: u64) -> Result<Others> {
        let Some(view) = self.chain.wanted(dataplane)? else { return Ok(Others::default()) };
        let applied = self.chain.node(dataplane)?.applied;
        let heard = self.chain.lives(dataplane, &self.view.members)?;
        Ok(judged(&view, applied, &self.view.members, &heard, now_ns))
    }
}

/// What follows from what was heard.
fn judged(
    view: &ViewValue,
    applied: u64,
    members: &[(u32, Ipv4Addr)],
    heard: &[(u32, LifeValue)],
    now_ns: u64,
) -> Others {
    let agreed = is_on(view);
    let mut refused = heard
        .iter()
        .filter(|(member, _)| *member != view.own)
        .fold(0, |all, (_, it)| all | it.refuses);
    let (mut silent, mut lags, mut most) = (vec![], vec![], applied);
    for (member, it) in heard {
        if *member == view.own {
            lags.push((*member, applied));
            continue;
        }
        let known = view.life.get(*member as usize).copied().unwrap_or_default();
        let is_new = now_ns.saturating_sub(it.other_ns) < SILENT_NS;
        if it.other != 0 && (is_new || agreed && it.other > known) {
            refused |= 1 << (member & 31);
        }
        if it.heard_ns == 0 || now_ns.saturating_sub(it.heard_ns) >= SILENT_NS {
            silent.push(*member);
        }
        lags.push((*member, it.applied));
        most = most.max(it.applied);
    }
    let address = |number: &u32| members.iter().find(|it| it.0 == *number).map(|it| it.1);
    let restarted: Vec<u32> =
        heard.iter().map(|it| it.0).filter(|it| refused >> (it & 31) & 1 == 1).collect();
    silent.retain(|it| !restarted.contains(it));
    let lacks = lags.iter().find(|(_, applied)| *applied < most).filter(|_| agreed);
    Others {
        agreed,
        silent: silent.iter().filter_map(address).collect(),
        restarted: restarted.iter().filter_map(address).collect(),
        lacks: lacks.and_then(|(member, _)| address(member)),
    }
}

fn is_on(view: &ViewValue) -> bool {
    view.standing & standing::ON != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const S_NS: u64 = 1_000_000_000;

    fn address(place: u32) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, place as u8 + 1)
    }

    /// Of the second one of three, which have agreed; the third one was last heard of after 1 s.
    fn at(now_ns: u64, change: impl Fn(&mut [(u32, LifeValue)])) -> Others {
        let members: Vec<(u32, Ipv4Addr)> = (0..3).map(|place| (place, address(place))).collect();
        let mut view = ViewValue {
            standing: standing::ON | standing::MEETS,
            own: 1,
            incarnation: 7,
            ..ViewValue::default()
        };
        view.life[..3].copy_from_slice(&[5, 7, 9]);
        let heard = |life, heard_ns| LifeValue { life, heard_ns, applied: 4, ..Default::default() };
        let mut heard = [
            (0, heard(5, now_ns)),
            (1, LifeValue { heard_ns: now_ns, turn: 2, ..LifeValue::default() }),
            (2, heard(9, S_NS)),
        ];
        change(&mut heard);
        judged(&view, 4, &members, &heard, now_ns)
    }

    #[test]
    fn all_is_well_while_all_are_heard() {
        assert_eq!(at(2 * S_NS, |_| {}), Others { agreed: true, ..Others::default() });
    }

    #[test]
    fn who_does_not_answer_is_named_and_who_lacks_batches() {
        let others = at(9 * S_NS, |heard| heard[2].1.applied = 3);
        assert_eq!((others.silent, others.lacks), (vec![address(2)], Some(address(2))));
    }

    #[test]
    fn who_restarts_is_named_by_those_that_hear_it_and_by_others() {
        let own = at(20 * S_NS, |heard| (heard[2].1.other, heard[2].1.other_ns) = (10, S_NS));
        assert_eq!((own.restarted, own.silent), (vec![address(2)], vec![]));
        let told = at(2 * S_NS, |heard| heard[0].1.refuses = 0b100);
        assert_eq!(told.restarted, [address(2)]);
        // An earlier life's message that came late is forgotten.
        let late = |heard: &mut [(u32, LifeValue)]| {
            (heard[2].1.other, heard[2].1.other_ns) = (8, S_NS);
            heard[2].1.heard_ns = 8 * S_NS;
        };
        assert_eq!(at(2 * S_NS, late).restarted, [address(2)]);
        assert_eq!(at(9 * S_NS, late).restarted, [] as [Ipv4Addr; 0]);
    }

    #[test]
    fn a_number_of_lives_is_of_their_order_too() {
        assert_ne!(offer(&[1, 2]), offer(&[2, 1]));
        assert_ne!(offer(&[1, 2]) as u32, 0);
    }
}
