//! Liveness: after the faults have stopped, whoever keeps asking is answered, within a bound; and
//! in the end all is quiet, and nothing is missing.

use crate::frames::key_of;
use crate::scenario::SWITCHES;
use crate::sketch::SketchChecker;
use crate::world::{MS, World};
use rand::Rng;

/// A host that is not answered sends again after this time.
const AGAIN_NS: u64 = 20 * MS;
/// Longest wait while the store finds together again: the controller's patience twice, a head's
/// wait for leases, and what was cut off.
const FIRST_NS: u64 = 4_000 * MS;
/// And once it is.
const LATER_NS: u64 = 1_000 * MS;
/// The quickest of so many flows that move takes no longer than this; a lease is 60 ms.
const RECALLS: usize = 4;
const RECALL_MOST_NS: u64 = 30 * MS;
/// By then what nobody asks for any more is released, and what waits at a head is given up.
const QUIET_NS: u64 = 250 * MS;
/// Until nothing is taken that nobody uses: a dead switch's session is ended after 10 s, then
/// records are idle, and looked at. By the servers' clocks.
const GIVEN_BACK_NS: u64 = 13_000 * MS;
/// Until all chains are whole again: a join that failed is not tried again for 5 s.
const WHOLE_NS: u64 = 15_000 * MS;

impl World {
    /// Checks all of that. `at_switch`: where each flow's packets went last.
    pub fn check_alive(&mut self, flows: u32, at_switch: &[usize]) -> dataplane::Result<()> {
        self.heal();
        // Some messages are late by more than it takes to find together again.
        let stragglers_until_ns = self.network.events.last_ns().unwrap_or(0);
        // Half of the time what was acknowledged is looked for before anybody writes again.
        if self.rng.random_bool(0.5) {
            self.whole_again()?;
            self.check_kept();
        }
        // Half of the time what was given out is given back without another packet: also where the
        // grant was lost, with no packet behind it.
        if self.bindings.is_some() && self.rng.random_bool(0.5) {
            self.whole_again()?;
            self.check_given_back()?;
        }
        // Reads come first: nothing but the runtime itself brings an update to an end that got
        // lost.
        for flow in 0..flows {
            let switch = at_switch.get(flow as usize).copied().unwrap_or(0);
            self.insist(switch, flow, true, FIRST_NS)?;
        }
        let mut moves_ns = Vec::new();
        for (switch, read, moves) in
            [(0, false, false), (1, true, true), (1, false, false), (0, true, true)]
        {
            for flow in 0..flows {
                let took_ns = self.hand_over(switch, flow, read)?;
                moves_ns.extend(took_ns.filter(|_| moves));
            }
        }
        self.check_recalls(&moves_ns);
        if self.grouped.is_some() {
            self.check_kept_flows(flows)?;
        }
        self.contend(flows)?;
        self.settle(flows, stragglers_until_ns)
    }

    /// A flow's packets now come to this switch: how long until one gets out, if no chain changed
    /// or was incomplete meanwhile.
    fn hand_over(
        &mut self,
        switch: usize,
        flow: u32,
        read: bool,
    ) -> dataplane::Result<Option<u64>> {
        let (whole, version, from_ns) = (self.is_whole(), self.store.database.version, self.now_ns);
        self.insist(switch, flow, read, LATER_NS)?;
        let undisturbed = whole && self.is_whole() && self.store.database.version == version;
        Ok(undisturbed.then(|| self.now_ns - from_ns))
    }

    /// Whoever has a flow lives, and is asked for it when its packets come elsewhere: that takes
    /// round trips, not the rest of a lease. Single ones take longer, as messages wait to be sent
    /// again; never all of a run.
    fn check_recalls(&mut self, took_ns: &[u64]) {
        let shortest = took_ns.iter().min().copied().unwrap_or(0);
        if self.sketch.is_none() && took_ns.len() >= RECALLS && shortest > RECALL_MOST_NS {
            let (moves, ms) = (took_ns.len(), shortest / MS);
            self.violated(
                "recall",
                format!("the quickest of {moves} flows that moved took {ms} ms"),
            );
        }
    }

    /// A flow that was granted and not set stays a moment for the others of its group (groups.md,
    /// decision 7). Then it goes where its packets come to: no later than from a switch that has
    /// set it. One flow after the other: a session that ends frees all of its flows.
    fn check_kept_flows(&mut self, flows: u32) -> dataplane::Result<()> {
        let mut moves_ns = Vec::new();
        for flow in 0..flows {
            self.insist(0, flow, true, LATER_NS)?;
            for switch in [1, 0] {
                moves_ns.extend(self.hand_over(switch, flow, true)?);
            }
        }
        self.check_recalls(&moves_ns);
        Ok(())
    }

    /// A host sends a flow's packets until one of them gets out.
    fn insist(
        &mut self,
        switch: usize,
        flow: u32,
        read: bool,
        most_ns: u64,
    ) -> dataplane::Result<()> {
        let until_ns = self.now_ns + most_ns;
        let mut sent = Vec::new();
        let updates = self.sketch.as_ref().map(|sketch| sketch.updates_of(flow as u16));
        while self.violation.is_none() {
            if self.now_ns >= until_ns {
                let known = self.switches[switch].describe(&self.key(flow));
                let (packets, ms) = (sent.len(), most_ns / MS);
                let detail = format!(
                    "flow {flow} at switch {switch}: none of {packets} packets within {ms} ms ({known})"
                );
                self.violated("liveness", detail);
                break;
            }
            sent.push(self.input(switch, flow, read)?);
            // Looks often: a packet that got out is the end of it.
            for _ in 0..AGAIN_NS / MS {
                self.advance(MS)?;
                let out = match &self.sketch {
                    Some(sketch) => Some(sketch.updates_of(flow as u16)) > updates,
                    None => sent.iter().any(|packet| self.operations.went_out(*packet)),
                };
                if out {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A flow's key in the switch.
    pub(crate) fn key(&self, flow: u32) -> Vec<u8> {
        match (&self.sketch, &self.bindings) {
            (Some(_), _) => (flow as u16).to_be_bytes().to_vec(),
            (None, Some(bindings)) => bindings.key(flow),
            (None, None) => key_of(flow, self.key_bytes),
        }
    }

    /// Both switches get packets of the same flow all the time: both go on.
    fn contend(&mut self, flows: u32) -> dataplane::Result<()> {
        if self.sketch.is_some() {
            return Ok(());
        }
        for flow in 0..flows.min(2) {
            let until_ns = self.now_ns + LATER_NS;
            let mut sent = [(); SWITCHES].map(|()| Vec::new());
            loop {
                for (switch, sent) in sent.iter_mut().enumerate() {
                    sent.push(self.input(switch, flow, false)?);
                    self.advance(3 * MS)?;
                }
                let went_out = |packets: &Vec<u32>| {
                    packets.iter().any(|packet| self.operations.went_out(*packet))
                };
                if sent.iter().all(went_out) || self.violation.is_some() {
                    break;
                }
                if self.now_ns >= until_ns {
                    let out = sent.iter().map(|sent| {
                        sent.iter().filter(|packet| self.operations.went_out(**packet)).count()
                    });
                    let out: Vec<usize> = out.collect();
                    self.violated(
                        "liveness",
                        format!(
                            "flow {flow} at both switches: {out:?} packets of {} get out",
                            sent[0].len()
                        ),
                    );
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until all chains are whole.
    fn whole_again(&mut self) -> dataplane::Result<()> {
        let until_ns = self.now_ns + WHOLE_NS;
        while self.violation.is_none() && !self.is_whole() {
            if self.now_ns >= until_ns {
                let views = format!("{:?}", self.store.database.shards);
                self.violated("liveness", format!("the chains are not whole again: {views}"));
            }
            self.advance(20 * MS)?;
        }
        Ok(())
    }

    /// Waits until the newest state of each tenant is stored: a packet that went from one switch to
    /// the other with the flow may have got out a moment ago.
    fn wait_stored(&mut self) -> dataplane::Result<()> {
        let until_ns = self.now_ns + LATER_NS;
        while self.violation.is_none() {
            let stored = self
                .sketch
                .as_ref()
                .map_or(Ok(()), |sketch: &SketchChecker| sketch.all_stored(&self.store));
            match stored {
                Ok(()) => break,
                Err(detail) if self.now_ns >= until_ns => self.violated("snapshots", detail),
                Err(_) => self.advance(5 * MS)?,
            }
        }
        Ok(())
    }

    /// In the end the chains are whole, nothing waits to be sent again, and nothing is missing.
    fn settle(&mut self, flows: u32, stragglers_until_ns: u64) -> dataplane::Result<()> {
        self.whole_again()?;
        self.advance(stragglers_until_ns.saturating_sub(self.now_ns) + QUIET_NS)?;
        for switch in 0..SWITCHES {
            // A release of an idle flow may be on its way at any moment: what matters is that each
            // gets its answer.
            let until_ns = self.now_ns + LATER_NS;
            while self.violation.is_none() && self.switches[switch].queued()? > 0 {
                if self.now_ns >= until_ns {
                    let queued = self.switches[switch].queued()?;
                    let known: Vec<String> = (0..flows)
                        .map(|flow| self.switches[switch].describe(&self.key(flow)))
                        .collect();
                    self.violated(
                        "liveness",
                        format!(
                            "switch {switch}: {queued} flows are never acknowledged: {known:?}"
                        ),
                    );
                }
                self.advance(5 * MS)?;
            }
            // Now, as packets that come back from the head may make new updates meanwhile.
            self.check_sent(switch, flows);
        }
        self.check_stored();
        self.wait_stored()?;
        // What is idle is removed at any moment: such an effect may be on its way down a chain.
        let until_ns = self.now_ns + LATER_NS;
        while self.violation.is_none() && self.now_ns < until_ns && !self.members_are_alike() {
            self.advance(5 * MS)?;
        }
        self.check_durable();
        self.check_given_back()
    }

    /// What the store gave out is what its records say; and once nobody uses it, it is free again.
    fn check_given_back(&mut self) -> dataplane::Result<()> {
        let slow_ppm = u64::try_from(self.faults.drift_ppm).unwrap_or(0);
        let until_ns = self.now_ns + GIVEN_BACK_NS * 1_000_000 / (1_000_000 - slow_ppm);
        while self.violation.is_none() {
            match self.bindings.as_ref().map(|bindings| bindings.taken(&self.store)) {
                None | Some(Ok(0)) => break,
                Some(Ok(taken)) if self.now_ns >= until_ns => {
                    self.violated(
                        "port pool",
                        format!("{taken} are still taken, and no flow uses them"),
                    );
                }
                Some(Ok(_)) => self.advance(50 * MS)?,
                Some(Err(detail)) => self.violated("port pool", detail),
            }
        }
        Ok(())
    }

    /// Every shard has all members that it should have, in the newest view, with all links up.
    fn is_whole(&self) -> bool {
        self.store.database.shards.iter().zip(0..).all(|(view, shard)| {
            let ready = |replica: &state_store::core::Replica| {
                replica.is_ready() && replica.view().number == view.number
            };
            view.members.len() == 3
                && view.joining.is_none()
                && self.store.members(shard).filter(|it| ready(it)).count() == 3
        })
    }
}
