//! What goes on and should not, and when it is logged; and what is wrong with keeping decisions.

const SECOND_NS: u64 = 1_000_000_000;
/// What passes by itself within this time nobody needs to hear of.
const PASSES_NS: u64 = SECOND_NS;
/// What goes on is logged again after this time.
const TELL_AGAIN_NS: u64 = 10 * SECOND_NS;
/// After a decision was refused the next is tried after this time, then twice as long each time, up
/// to the longest.
const FIRST_PAUSE_NS: u64 = 100_000_000;
const LONGEST_PAUSE_NS: u64 = SECOND_NS;

/// Something that goes on, since when, and when it was logged last.
#[derive(Debug, Clone)]
pub struct Trouble {
    since_ns: u64,
    told_ns: Option<u64>,
    /// What it is: a sentence without its full stop.
    pub what: String,
}

impl Trouble {
    /// It begins.
    pub fn since(now_ns: u64) -> Trouble {
        Trouble { since_ns: now_ns, told_ns: None, what: String::new() }
    }

    /// Whether it has not passed by itself.
    pub fn lasts(&self, now_ns: u64) -> bool {
        now_ns >= self.since_ns + PASSES_NS
    }

    /// Whether it is to be logged now.
    pub fn is_to_be_told(&mut self, now_ns: u64) -> bool {
        let due = self.told_ns.is_none_or(|told| now_ns >= told + TELL_AGAIN_NS);
        self.told_ns = if due { Some(now_ns) } else { self.told_ns };
        due
    }

    /// Whether it was ever logged.
    #[cfg(test)]
    pub fn was_told(&self) -> bool {
        self.told_ns.is_some()
    }
}

/// How the keeping of decisions goes.
#[derive(Debug, Default)]
pub struct Kept {
    /// Decisions that were refused one after the other, and how many.
    refused: Option<(Trouble, u32)>,
    /// The database has no decision any more.
    missing: Option<Trouble>,
    /// When the database was last read, if it is one that others write, too.
    pub read_ns: Option<u64>,
    /// Decisions that the database did not take.
    pub decisions_refused: u64,
    /// Time that writing decisions to a file took.
    pub writing_ns: u64,
}

impl Kept {
    /// A decision was not made persistent: the time after which the next may be tried.
    pub(super) fn refused(&mut self, now_ns: u64, name: &str, why: String) -> u64 {
        self.decisions_refused += 1;
        let (trouble, times) = self.refused.get_or_insert_with(|| (Trouble::since(now_ns), 0));
        trouble.what = why;
        let pause_ns = (FIRST_PAUSE_NS << (*times).min(8)).min(LONGEST_PAUSE_NS);
        *times = times.saturating_add(1);
        if trouble.is_to_be_told(now_ns) {
            tracing::error!(
                name,
                times,
                why = trouble.what,
                "the database refuses a decision, so the decision is not made"
            );
        }
        now_ns + pause_ns
    }

    /// A decision was made persistent, or there are newer ones of another controller to go on from.
    pub(super) fn goes_on(&mut self) {
        self.refused = None;
    }

    /// The database was read just now.
    pub(super) fn read(&mut self, now_ns: u64, found: bool) {
        self.read_ns = Some(now_ns);
        if found {
            self.missing = None;
        }
    }

    /// The database had a decision, and has it no more.
    pub(super) fn missing(&mut self, now_ns: u64, what: String) {
        self.missing.get_or_insert_with(|| Trouble { what, ..Trouble::since(now_ns) });
    }

    /// Logs what goes on, now and then.
    pub(super) fn look(&mut self, now_ns: u64, name: &str) {
        if let Some(missing) = &mut self.missing
            && missing.is_to_be_told(now_ns)
        {
            tracing::error!(name, problem = missing.what, "the database is lost");
        }
    }

    /// Why nothing can be decided, if it could not for a second. `other`: what else may be why.
    pub fn cannot_decide<'a>(&'a self, now_ns: u64, other: Option<&'a Trouble>) -> Option<&'a str> {
        let refused = self.refused.as_ref().map(|(trouble, _)| trouble);
        let troubles = [self.missing.as_ref(), refused, other];
        troubles
            .into_iter()
            .flatten()
            .find(|trouble| trouble.lasts(now_ns))
            .map(|trouble| trouble.what.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_decisions_come_at_most_once_a_second() {
        let mut kept = Kept::default();
        let mut now_ns = 0;
        for _ in 0..10 {
            assert_eq!(kept.cannot_decide(now_ns, None).is_some(), now_ns >= PASSES_NS);
            let next_ns = kept.refused(now_ns, "c", "no room".to_owned());
            assert!(next_ns >= now_ns + FIRST_PAUSE_NS && next_ns <= now_ns + LONGEST_PAUSE_NS);
            now_ns = next_ns;
        }
        assert!(now_ns > 6 * SECOND_NS && kept.decisions_refused == 10);
        kept.goes_on();
        assert_eq!(kept.cannot_decide(now_ns, None), None);
    }
}
