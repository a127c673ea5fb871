//! A simulated client's listings: the real rules, one page at a time, as lazily as a caller is who
//! does something with each page's keys.

use crate::history::listings::HeardPage;
use crate::seeded::clients as bugs;
use netchain_client::core::{Core, Pending};
use netchain_client::{Failure, Listing, NotBegun, Outcome};
use netchain_protocol::Ring;

/// A listing under way.
pub(super) struct Lists {
    /// In the history.
    pub(super) number: usize,
    listing: Listing,
    pause_ns: u64,
    /// When it asks for its next page. None: it has asked.
    asks_ns: Option<u64>,
    /// The page that it has asked for: its group, and when.
    asked: (u16, u64),
}

impl Lists {
    /// `prefix`: at most 16 bytes.
    pub(super) fn new(
        ring: &Ring,
        number: usize,
        prefix: &[u8],
        (pause_ns, now_ns): (u64, u64),
    ) -> Option<Lists> {
        let listing = Listing::new(ring, prefix).ok()?;
        Some(Lists { number, listing, pause_ns, asks_ns: Some(now_ns), asked: (0, 0) })
    }

    /// When it asks for its next page.
    pub(super) fn asks_ns(&self) -> Option<u64> {
        self.asks_ns
    }

    /// Its client does nothing else any more.
    pub(super) fn hurry(&mut self, now_ns: u64) {
        self.pause_ns = 0;
        self.asks_ns = self.asks_ns.map(|at_ns| at_ns.min(now_ns));
    }

    /// Asks for the next page, if that is due.
    pub(super) fn ask(
        &mut self,
        core: &mut Core,
        (now_ns, now_us): (u64, u64),
    ) -> Result<Option<Pending>, NotBegun> {
        if self.asks_ns.is_none_or(|at_ns| now_ns < at_ns) {
            return Ok(None);
        }
        bugs::pass_by(&mut self.listing);
        self.asks_ns = None;
        let Some(request) = self.listing.request() else { return Ok(None) };
        let (key, value, operand) = (request.key, request.value, request.operand);
        let mut pending = core.begin(request.operation, key, value, operand, now_us)?;
        if let Some(group) = request.group {
            pending.set_group(group);
            self.asked = (group, now_ns);
        }
        Ok(Some(pending))
    }

    /// What came for the page, after so many messages.
    pub(super) fn take(
        &mut self,
        result: Result<Outcome, Failure>,
        messages: u32,
        now_ns: u64,
    ) -> Result<HeardPage, Failure> {
        let outcome = bugs::instead(result?, messages);
        let on_page = match &outcome {
            Outcome::Listed(page) => page.keys.clone(),
            _ => vec![],
        };
        let incomplete = self.listing.take(outcome).is_err();
        let told = std::iter::from_fn(|| self.listing.key()).collect();
        let (group, asked_ns) = self.asked;
        let mut page = HeardPage { group, asked_ns, heard_ns: now_ns, told, incomplete };
        bugs::tell(&mut page, on_page);
        self.asks_ns = Some(now_ns + self.pause_ns);
        Ok(page)
    }

    /// All groups are through.
    pub(super) fn is_over(&self) -> bool {
        let (group, groups) = self.listing.groups();
        group >= groups
    }
}
