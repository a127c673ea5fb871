//! An attempt at a decision: seal the members that stay, hear them, get the state that the decision
//! needs.

use crate::decide::{Plan, brought};
use crate::state::Decided;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use swish_protocol::bulk::Pull;
use swish_protocol::control::{Member, What};

/// See the module.
pub(crate) struct Attempt {
    /// New for ever.
    pub number: u32,
    /// Members with state that are to stay.
    pub stays: Vec<Member>,
    /// Switches without state that are to become members.
    pub joins: Vec<Member>,
    /// Members that leave, as an operator wants it.
    pub leaves: Vec<Member>,
    /// Members are none of these: they are dead, or slow.
    pub without_some: bool,
    pub began_ns: u64,
    /// Orders went out then.
    pub told_ns: u64,
    pub gather: Option<Gather>,
    /// The decision is being made persistent.
    pub deciding: bool,
}

/// State that a decision needs.
pub(crate) struct Gather {
    pub plan: Plan,
    pub value: Option<Pull>,
    half: Option<Pull>,
    /// By the members' numbers.
    sources: BTreeMap<u32, (Ipv4Addr, Pull)>,
}

impl Gather {
    pub fn new(plan: Plan, stays: &[Member]) -> Gather {
        let value = (!plan.lacks.is_empty()).then(Pull::default);
        let half = plan.witness.map(|_| Pull::default());
        let sources = stays.iter().filter(|_| half.is_some());
        let sources = sources.map(|it| (it.number, (it.address, Pull::default()))).collect();
        Gather { plan, value, half, sources }
    }

    /// The state that comes from this switch.
    pub fn pull(&mut self, from: Ipv4Addr, what: What) -> Option<&mut Pull> {
        match what {
            What::Value => self.value.as_mut().filter(|_| from == self.plan.donor),
            What::Half => self.half.as_mut().filter(|_| self.plan.witness == Some(from)),
            What::Source => {
                let source = self.sources.values_mut().find(|(address, _)| *address == from);
                source.map(|(_, pull)| pull)
            }
            What::Extra => None,
        }
    }

    /// Requests that are due: to which switch, for which state, from which byte on.
    pub fn asks(&mut self, now_ns: u64) -> Vec<(Ipv4Addr, What, u32)> {
        let mut asks = vec![];
        let mut ask = |of: Ipv4Addr, what: What, pull: &mut Pull| {
            asks.extend(pull.asks(now_ns).into_iter().map(|offset| (of, what, offset)));
        };
        if let Some(pull) = &mut self.value {
            ask(self.plan.donor, What::Value, pull);
        }
        if let (Some(pull), Some(witness)) = (&mut self.half, self.plan.witness) {
            ask(witness, What::Half, pull);
        }
        for (address, pull) in self.sources.values_mut() {
            ask(*address, What::Source, pull);
        }
        asks
    }

    /// All of it is here: what the dead brought.
    pub fn is_done(&self) -> Option<Option<Vec<u8>>> {
        if self.value.as_ref().is_some_and(|pull| pull.whole().is_none()) {
            return None;
        }
        let Some(half) = &self.half else { return Some(None) };
        let sources =
            self.sources.iter().map(|(number, (_, pull))| Some((*number, pull.whole()?.to_vec())));
        let sources: BTreeMap<u32, Vec<u8>> = sources.collect::<Option<_>>()?;
        // (Bytes that are no state are of a switch of another version.)
        Some(Some(brought(half.whole()?, &sources).unwrap_or_default()))
    }
}

impl Attempt {
    /// An attempt that begins now; no member has answered.
    pub fn begun(number: u32, now_ns: u64) -> Attempt {
        let (stays, joins, leaves) = (vec![], vec![], vec![]);
        Attempt {
            number,
            stays,
            joins,
            leaves,
            without_some: false,
            began_ns: now_ns,
            told_ns: 0,
            gather: None,
            deciding: false,
        }
    }

    /// It says what becomes of the member.
    pub fn has(&self, member: &Member) -> bool {
        [&self.stays, &self.joins, &self.leaves].into_iter().any(|all| all.contains(member))
    }

    /// The decision, once all is here that it needs.
    pub fn decided(&self) -> Option<Decided> {
        let gather = self.gather.as_ref()?;
        let extra = gather.is_done()?;
        Some(gather.plan.decided(self.number, &self.stays, &self.joins, extra))
    }
}
