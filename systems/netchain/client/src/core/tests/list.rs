//! Pages of a listing: lost, late, from another view, from another member, the last one.

use super::*;
use crate::Listing;

fn group(core: &Core) -> u16 {
    core.ring.group_of(&foo())
}

/// Asks for the page at a cursor of `foo`'s group. (The prefix is empty: its own group is no
/// matter.)
fn list(core: &mut Core, cursor: u32) -> Pending {
    let mask = Some(vec![0; 16]);
    let mut pending = core.begin(Operation::List, Key([0; 16]), mask, cursor.into(), 0).unwrap();
    pending.set_group(group(core));
    pending
}

/// Asks for a listing's next page.
fn ask(core: &mut Core, listing: &mut Listing) -> Pending {
    let asked = listing.request().unwrap();
    let pending = core.begin(asked.operation, asked.key, asked.value, asked.operand, 0);
    let mut pending = pending.unwrap();
    pending.set_group(asked.group.unwrap());
    pending
}

fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| Key::from_name(name).unwrap()).collect()
}

/// A switch's page.
fn paged(message: &Message, names: &[&str], next: u32) -> Vec<u8> {
    answered(message.clone(), Status::Done, |page| {
        page.version = (1 << names.len()) - 1;
        page.operand = next.into();
        page.value = Some(keys(names).iter().flat_map(|key| key.0).collect());
    })
}

fn page_of(step: Step) -> Page {
    let Outcome::Listed(page) = outcome(step) else { panic!("no page") };
    page
}

#[test]
fn a_page_is_asked_of_the_groups_reader() {
    let mut core = knowing();
    let mut pending = list(&mut core, 9);
    let (to, message) = sent(core.time(&mut pending, 0));
    assert_eq!(to, chain(&core)[2]);
    assert_eq!((message.group, message.view), (group(&core), 1));
    assert_eq!((message.operation, message.operand), (Operation::List, 9));
    assert_eq!((message.room, message.value.as_deref()), (Room::Large, Some(&[0; 16][..])));
    let page = page_of(core.receive(&mut pending, &paged(&message, &["a", "b"], 30), 1));
    assert_eq!(page, Page { view: 1, keys: keys(&["a", "b"]), next: Some(30) });
}

/// A page changes nothing, so it is never unknown whether it happened.
#[test]
fn a_lost_page_is_asked_again_at_its_cursor() {
    let mut core = knowing();
    let mut pending = list(&mut core, 9);
    let (_, first) = sent(core.time(&mut pending, 0));
    let (_, second) = sent(core.time(&mut pending, RETRY_US));
    assert_eq!(first, second);
    let page = page_of(core.receive(&mut pending, &paged(&second, &["a"], 30), RETRY_US + 1));
    assert_eq!(page.next, Some(30));
    let mut silent = list(&mut core, 30);
    sent(core.time(&mut silent, 0));
    assert_eq!(outcome(core.time(&mut silent, DEADLINE_US)), Outcome::NoChain);
}

#[test]
fn a_late_page_is_that_of_its_own_request_only() {
    let mut core = knowing();
    let mut pending = list(&mut core, 0);
    let (_, first) = sent(core.time(&mut pending, 0));
    sent(core.time(&mut pending, RETRY_US));
    // The first copy's page is as good as the second's.
    let late = paged(&first, &["a"], 9);
    assert_eq!(page_of(core.receive(&mut pending, &late, RETRY_US + 1)).next, Some(9));
    // The second's comes when the next page is wanted: it would be told twice.
    let mut next = list(&mut core, 9);
    let (_, asked) = sent(core.time(&mut next, 0));
    assert_eq!(core.receive(&mut next, &late, 1), Step::Wait);
    assert_eq!(page_of(core.receive(&mut next, &paged(&asked, &["b"], 30), 2)).next, Some(30));
}

/// A cursor is a slot of one member: elsewhere it would skip keys.
#[test]
fn a_moved_chain_begins_the_groups_listing_again() {
    let mut core = knowing();
    let mut listing = Listing::new(&core.ring, &foo().0).unwrap();
    let mut first = ask(&mut core, &mut listing);
    let (_, message) = sent(core.time(&mut first, 0));
    let page = core.receive(&mut first, &paged(&message, &["foo"], 9), 1);
    listing.take(outcome(page)).unwrap();
    assert_eq!(listing.key(), Some(foo()));

    let mut second = ask(&mut core, &mut listing);
    let (_, message) = sent(core.time(&mut second, 2));
    let told = answered(message, Status::OldView, |told| {
        (told.view, told.chain) = (2, vec![address(1), address(9)]);
    });
    let (to, message) = sent(core.receive(&mut second, &told, 3));
    assert_eq!((to, message.view, message.operand), (address(9), 2, 9));
    let page = core.receive(&mut second, &paged(&message, &["skipped"], LIST_END), 4);
    listing.take(outcome(page)).unwrap();
    assert_eq!(listing.key(), None, "a page from the middle of other slots");

    let mut third = ask(&mut core, &mut listing);
    let (to, message) = sent(core.time(&mut third, 5));
    assert_eq!((to, message.view, message.operand), (address(9), 2, 0));
    let page = core.receive(&mut third, &paged(&message, &["foo", "skipped"], LIST_END), 6);
    listing.take(outcome(page)).unwrap();
    let told: Vec<_> = std::iter::from_fn(|| listing.key()).collect();
    assert_eq!(told, keys(&["skipped"]), "what was told is not told again");
    assert_eq!(listing.request(), None);
}

/// The page of an earlier view comes when the client knows a later one: it says which view's it is.
#[test]
fn a_page_of_an_earlier_view_keeps_its_view() {
    let mut core = knowing();
    let mut pending = list(&mut core, 9);
    let (_, first) = sent(core.time(&mut pending, 0));
    let told = answered(first.clone(), Status::OldView, |told| {
        (told.view, told.chain) = (2, vec![address(9)]);
    });
    sent(core.receive(&mut pending, &told, 1));
    assert_eq!(page_of(core.receive(&mut pending, &paged(&first, &["a"], 30), 2)).view, 1);
}

#[test]
fn a_member_that_is_no_reader_passes_a_page_on_to_the_one_before() {
    let mut core = knowing();
    let members = chain(&core);
    let mut pending = list(&mut core, 0);
    let (to, message) = sent(core.time(&mut pending, 0));
    assert_eq!(to, members[2]);
    let no_reader = reply(&message, Status::WrongSwitch);
    let (to, message) = sent(core.receive(&mut pending, &no_reader, 1));
    assert_eq!(to, members[1]);
    page_of(core.receive(&mut pending, &paged(&message, &["a"], LIST_END), 2));
    // The next page goes there at once.
    let mut next = list(&mut core, 9);
    assert_eq!(sent(core.time(&mut next, 3)).0, members[1]);
}

#[test]
fn a_member_without_a_lease_is_asked_again_and_a_lost_group_has_no_pages() {
    let mut core = knowing();
    let mut pending = list(&mut core, 9);
    let (_, message) = sent(core.time(&mut pending, 0));
    assert_eq!(core.receive(&mut pending, &reply(&message, Status::Paused), 1), Step::Wait);
    let (_, again) = sent(core.time(&mut pending, 1 + PAUSED_WAIT_US));
    assert_eq!((again.operation, again.operand), (Operation::List, 9));
    let lost = reply(&again, Status::Lost);
    assert_eq!(outcome(core.receive(&mut pending, &lost, 3_000)), Outcome::Lost);
}

/// The answer to a probe, which is a read, is no page.
#[test]
fn only_a_listings_reply_is_a_page() {
    let mut core = knowing();
    let mut pending = list(&mut core, 0);
    let (_, message) = sent(core.time(&mut pending, 0));
    let mut read = paged(&message, &["a"], LIST_END);
    let decoded = Message::decode(&read).unwrap();
    read = Message { operation: Operation::Read, ..decoded }.encode().unwrap();
    assert_eq!(core.receive(&mut pending, &read, 1), Step::Wait);
}

#[test]
fn the_last_page_has_no_cursor_and_a_page_may_have_gaps() {
    let places: [(u64, &[&str]); 3] = [(0, &[]), (0b101, &["a", "c"]), (0b111, &["a", "b", "c"])];
    for (bits, names) in places {
        for (cursor, next) in [(LIST_END, None), (LIST_END - 1, Some(LIST_END - 1)), (0, Some(0))] {
            let mut core = knowing();
            let mut pending = list(&mut core, 0);
            let (_, message) = sent(core.time(&mut pending, 0));
            let page = Message::decode(&paged(&message, &["a", "b", "c"], cursor)).unwrap();
            let page = Message { version: bits, ..page }.encode().unwrap();
            let page = page_of(core.receive(&mut pending, &page, 1));
            assert_eq!(page, Page { view: 1, keys: keys(names), next });
        }
    }
}

/// Where a value's version is, a page says which of its places have keys.
#[test]
fn a_page_says_nothing_of_versions() {
    let mut core = knowing();
    let mut pending = list(&mut core, 0);
    let (_, message) = sent(core.time(&mut pending, 0));
    page_of(core.receive(&mut pending, &paged(&message, &["a", "b"], LIST_END), 1));
    assert_eq!(core.heard.of(&Key([0; 16])), 0);
}
