//! Seeded bugs of a client's listings. The simulated client makes them between the client's core
//! and its [`netchain_client::Listing`], whose own text has none.

use crate::history::listings::HeardPage;
use netchain_client::{Listing, Outcome, Page};
use netchain_protocol::Key;

seeded_bugs::seeded_bugs! {
    /// A bug of a client's listings.
    pub enum ClientBug {
        /// A cursor is used in another view than its own.
        CursorKept,
        /// The page that came for a repeated request is passed by.
        LatePageSkipped,
        /// The last group is not asked.
        LastGroupLeftOut,
        /// A group that does not answer, or is lost, is taken for an empty one.
        SilentIsEmpty,
        /// Keys are told as pages have them: again after a view has changed.
        ToldAgain,
    }
}

/// No more keys.
fn nothing() -> Outcome {
    Outcome::Listed(Page { view: 1, keys: vec![], next: None })
}

/// A listing passes by groups that it should ask.
pub(crate) fn pass_by(listing: &mut Listing) {
    let (group, groups) = listing.groups();
    if planted(ClientBug::LastGroupLeftOut) && group > 0 && group + 1 == groups {
        // (An empty page is no error.)
        let _ = listing.take(nothing());
    }
}

/// What a listing takes in the place of an outcome, which came after so many messages.
pub(crate) fn instead(mut outcome: Outcome, messages: u32) -> Outcome {
    if planted(ClientBug::SilentIsEmpty) && !matches!(outcome, Outcome::Listed(_)) {
        return nothing();
    }
    if let Outcome::Listed(page) = &mut outcome {
        if planted(ClientBug::CursorKept) {
            page.view = 1;
        }
        if planted(ClientBug::LatePageSkipped) && messages > 2 {
            page.keys.clear();
        }
    }
    outcome
}

/// What a client tells of a page that had these keys.
pub(crate) fn tell(page: &mut HeardPage, keys: Vec<Key>) {
    if planted(ClientBug::ToldAgain) {
        page.told = keys;
    }
}
