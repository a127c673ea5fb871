//! The judgement of a round's counts: owners, accounts, histories, silence.

use super::*;

impl Counts {
    /// A switch that owns a flow has what the store has; or a flow of which that is not so.
    pub(super) fn owners_agree(&self, held: &Held) -> Option<String> {
        lock(&self.shared.flows).iter().find_map(|flow| {
            let (recorded, owner) = *held.recorded.get(&flow.port)?;
            let owner = owner?;
            let own = held.switches.get(&owner)?.get(&flow.port).copied();
            (own != Some(recorded)).then(|| {
                format!(
                    "flow {}: its owner, switch {owner}, has {own:?}, and the store {recorded}",
                    flow.number
                )
            })
        })
    }

    /// Every number is a packet's that got out, or that was lost where something was broken.
    pub(super) fn judge_accounts(
        &mut self,
        accounts: &BTreeMap<u32, Account>,
        held: &Held,
        closing: &BTreeMap<u32, u64>,
    ) {
        let lost = self.tap.lost();
        if lost > self.tap_lost {
            self.judge.violation(format!(
                "{} frames were lost because capturing was too slow: the round cannot be judged",
                lost - self.tap_lost
            ));
            self.tap_lost = lost;
        }
        self.owners_agree(held).into_iter().for_each(|what| self.judge.violation(what));
        for (flow, account) in accounts {
            // A flow that is stuck is reported already.
            if closing.contains_key(flow) {
                self.figures.counters += 1;
                let counted = account.lost.iter().any(|lost| lost.number.is_some());
                self.figures.equal += u64::from(account.problems.is_empty() && !counted);
            }
            account.problems.iter().for_each(|problem| self.judge.violation(problem.clone()));
        }
    }

    /// Each flow's history, with the counter as it was read, must be linearizable.
    pub(super) fn judge_histories(&mut self, held: &Held, read: (u64, u64)) {
        let began = Instant::now();
        let ports: BTreeMap<u32, u16> =
            lock(&self.shared.flows).iter().map(|flow| (flow.number, flow.port)).collect();
        let mut problems = Vec::new();
        for (flow, mut history) in operations(&self.events) {
            let counter = ports
                .get(&flow)
                .and_then(|port| held.recorded.get(port))
                .map_or(0, |(count, _)| *count);
            let returned = Some((read.1, counter));
            history.push(linearizable::Operation {
                input: Counter::Read,
                invoked: read.0,
                returned,
            });
            self.figures.histories += 1;
            self.figures.operations += history.len() as u64;
            if let Err(violation) = linearizable::check(&history) {
                problems.push(format!("flow {flow} is not linearizable: {violation}"));
            }
        }
        if let Err(violation) = History::of(self.events.clone()).check() {
            problems.push(format!("{violation:?}"));
        }
        self.figures.checked_ms += u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for problem in problems {
            self.judge.violation(format!("{problem} (history in {})", self.path.display()));
        }
    }

    /// How long nothing got out.
    pub(super) fn judge_silence(&mut self, repaired_ns: u64) {
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        for timed in self.events.iter().filter(|timed| timed.ns >= self.round_ns) {
            match timed.event {
                Event::Input { .. } => sent.push(timed.ns),
                Event::Output { .. } => out.push(timed.ns),
            }
        }
        let mut went_in: Vec<u64> =
            self.seen.iter().filter(|it| self.ledger.goes_in(it)).map(|it| it.ns).collect();
        [&mut sent, &mut out, &mut went_in].into_iter().for_each(|times| times.sort_unstable());
        let silent = |from_ns, sent: &[u64]| {
            let (from, until) = outage::longest(from_ns, sent, &out);
            (from / 1_000_000, (until - from) / 1_000_000)
        };
        let (from_ms, unserved_ms) = silent(repaired_ns, &went_in);
        if unserved_ms > OUTAGE_LIMIT_MS {
            self.judge.violation(format!(
                "nothing got out for {unserved_ms} ms from {from_ms} ms on, while packets were handed to the switches and all faults were repaired"
            ));
        }
        let figures = &mut self.figures;
        figures.unserved_after_repairs_ms = unserved_ms.max(figures.unserved_after_repairs_ms);
        figures.silent_after_repairs_ms =
            silent(repaired_ns, &sent).1.max(figures.silent_after_repairs_ms);
        figures.silent_ms = silent(self.round_ns, &sent).1.max(figures.silent_ms);
        self.round_ns = self.shared.ns();
    }

    pub(super) fn note(&mut self, lost: &Lost) -> std::io::Result<()> {
        match lost.number {
            Some(_) => self.figures.counted_and_lost += 1,
            None => self.figures.lost += 1,
        }
        *self.figures.losses.entry(format!("{}: {}", lost.place, lost.cause)).or_default() += 1;
        serde_json::to_writer(&mut self.losses, lost)?;
        self.losses.write_all(b"\n")
    }
}
