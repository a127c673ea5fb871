//! Which fault explains a loss.

use super::*;

impl Ledger {
    /// The first packet that may have got this number: it went to the switch that gave the number,
    /// while that switch had the flow, and never came out.
    pub(super) fn unseen(&self, flow: &Flow, number: u64, taken: &BTreeSet<u32>) -> Option<u32> {
        let (epoch, grant) = grant_of(flow, number)?;
        let switch = self.switches.get(&grant.switch_id)?;
        let next = flow.grants.range(epoch + 1..).next().map_or(u64::MAX, |(_, next)| next.ns);
        let fits = |(node, ns): &(Node, u64)| {
            node == switch
                && *ns >= grant.ns.saturating_sub(SLACK_NS)
                && *ns <= next.saturating_add(SLACK_NS)
        };
        // A switch asks before it counts.
        let asked = |last: Sighting| match last.what {
            What::Packet { form: Form::Asked { .. }, .. } => true,
            What::Packet { form: Form::Returned, .. } => !last.outgoing,
            _ => false,
        };
        let candidates = flow.packets.iter().filter(|(packet, seen)| {
            seen.numbered.is_empty()
                && !seen.last.is_some_and(asked)
                && seen.out.is_none()
                && !taken.contains(packet)
                && seen.entered.iter().any(fits)
        });
        candidates
            .min_by_key(|(_, seen)| {
                seen.entered.iter().find(|entry| fits(entry)).map(|(_, ns)| *ns)
            })
            .map(|(packet, _)| *packet)
    }

    /// Where a packet was lost, and what was broken there then; or, if nothing was, only where.
    pub(super) fn explain(
        &self,
        flow: &Flow,
        answers: &Answers,
        seen: &Packet,
    ) -> Result<(String, String), String> {
        let Some(last) = seen.last else { return Err("before the first router".to_string()) };
        let (router, peer) = (self.name(last.router), self.name(last.peer));
        let form = match last.what {
            What::Packet { form, .. } => form,
            _ => return Err("nowhere".to_string()),
        };
        if let Form::Update { epoch, .. } = form
            && flow.refused.contains(&epoch)
        {
            return Ok((
                format!(
                    "UPDATE, {}",
                    if last.outgoing {
                        format!("from {router} at {peer}")
                    } else {
                        format!("in {router}")
                    }
                ),
                "refused: the grant was over".to_string(),
            ));
        }
        let what = match form {
            Form::Plain(_) => "packet",
            Form::Asked { .. } => "LEASE_REQUEST",
            Form::Returned => "LEASE_GRANT",
            Form::Update { .. } => "UPDATE",
            Form::Acknowledged => "UPDATE_ACK",
        };
        let place = match last.outgoing {
            true => format!("{what} from {router} at {peer}"),
            false => format!(
                "{what} from {peer} to {} in {router}",
                last.to.map_or("?", |to| self.name(to))
            ),
        };
        let late = seen.asked_ns.is_some_and(|asked| last.ns.saturating_sub(asked) >= HELD_NS);
        let cause = match self.role(last.peer) {
            // What a cut link still brings, a router does not take.
            _ if !last.outgoing => self.broken(last.ns, SLACK_NS, |it| {
                it.touches(peer) || self.breaks_way(it, form, last.to)
            }),
            Some(Role::Switch) if late && matches!(form, Form::Acknowledged | Form::Returned) => {
                Some("too late".to_string())
            }
            Some(Role::Switch) => self
                .broken(last.ns, SLACK_NS, |it| it.touches(peer) || self.takes_route(it))
                .or_else(|| self.window_full(flow, last.peer, form, last.ns))
                .or_else(|| self.lost_waiting(flow, answers, last.peer, last.ns)),
            Some(Role::Store) => self.lost_in_store(form, last.ns),
            _ => None,
        };
        match cause {
            Some(cause) => Ok((place, cause)),
            None => Err(format!(
                "as {place} at {} ms while nothing was broken there",
                last.ns / 1_000_000
            )),
        }
    }

    /// Why a store may have lost a request that came to it then.
    pub(super) fn lost_in_store(&self, form: Form, ns: u64) -> Option<String> {
        let asked = matches!(form, Form::Asked { .. });
        let broken = self.broken(ns, HELD_NS, |it| match it {
            Broken::Fault(fault) => {
                // Requests for flows of a switch that died wait, and not for ever.
                let role = fault.machine().and_then(|node| self.role_of(node));
                role == Some(Role::Store) || role == Some(Role::Switch) && asked
            }
            // Nor do those for flows of one that cannot be reached.
            Broken::Routing(..) => asked,
        });
        // A head that is to hand over drops requests, and who is no head any more does
        // (core/chain/docs/protocol.md, "Rules of the chain", 9).
        let changed = || match form {
            Form::Asked { shard } | Form::Update { shard, .. } => {
                let views = self.views.get(&shard)?;
                let (_, view) = views.iter().find(|(when, _)| when.abs_diff(ns) <= HELD_NS)?;
                Some(format!("the chain of shard {shard} changed to view {view}"))
            }
            _ => None,
        };
        broken.or_else(changed)
    }

    /// Whether a switch may have dropped what would have been a request too many, as a store that
    /// is away answers none of them. At least half of a window are seen to have been lost then: the
    /// rest are heartbeats and messages that were sent again, which have no packet.
    pub(super) fn window_full(
        &self,
        flow: &Flow,
        switch: Node,
        form: Form,
        ns: u64,
    ) -> Option<String> {
        let shard = flow.shard.filter(|_| matches!(form, Form::Plain(_) | Form::Returned))?;
        let cause = self.lost_in_store(Form::Asked { shard }, ns)?;
        let unanswered = |packet: &&Packet| {
            let lost =
                packet.last.filter(|last| last.ns < ns && last.outgoing && packet.out.is_none());
            let asks = |what| {
                matches!(what, What::Packet { form: Form::Asked { .. } | Form::Update { .. }, .. })
            };
            let came_from = |node: &(Node, u64)| node.0 == switch;
            lost.is_some_and(|last| asks(last.what)) && packet.entered.last().is_some_and(came_from)
        };
        let flows = self.flows.values().filter(|other| other.shard == Some(shard));
        let count = flows.flat_map(|other| other.packets.values()).filter(unanswered).count();
        (count >= WINDOW / 2).then(|| format!("{cause}: the window of shard {shard} is full"))
    }

    /// Does it keep a router from sending this on to a node?
    pub(super) fn breaks_way(&self, broken: &Broken, form: Form, to: Option<Node>) -> bool {
        let Broken::Fault(fault) = broken else { return true };
        let Some(node) = fault.machine() else { return !matches!(form, Form::Plain(_)) };
        match to.map(|to| (self.name(to), self.role(to))) {
            // From host to host the way is through a switch.
            Some((_, Some(Role::Host))) => self.role_of(node) == Some(Role::Switch),
            Some((name, _)) => name == node,
            None => true,
        }
    }

    /// Without a store's link there is no route to it, and switches drop what is for it.
    pub(super) fn takes_route(&self, broken: &Broken) -> bool {
        let Broken::Fault(Fault::Cut(cut)) = broken else { return false };
        cut.direction == simnet::Direction::Carrier
            && self.role_of(&cut.machine) == Some(Role::Store)
    }

    pub(super) fn role_of(&self, name: &str) -> Option<Role> {
        self.nodes.iter().find(|(node, _)| node == name).map(|(_, role)| *role)
    }

    /// What was broken in the time from then on.
    pub(super) fn broken(
        &self,
        ns: u64,
        during_ns: u64,
        concerns: impl Fn(&Broken) -> bool,
    ) -> Option<String> {
        let then = |outage: &&Outage| {
            outage.from_ns <= ns.saturating_add(during_ns)
                && ns <= outage.until_ns.saturating_add(SLACK_NS)
                && concerns(&outage.broken)
        };
        let outages = self.outages.iter().chain(self.routing.values());
        let all: Vec<String> =
            outages.filter(then).map(|outage| outage.broken.to_string()).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}
