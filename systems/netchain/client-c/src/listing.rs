//! Listings: all keys that begin with a prefix.

use crate::{Answer, Client, ask, bytes, guarded, outcome};
use netchain_client::{Key, ListFailed, Listing, Outcome, Page};
use std::ffi::{c_int, c_void};

/// In the place of a next cursor: there are no more keys.
const END: u64 = u32::MAX as u64;

/// The page in an answer; what else it says.
fn outcome_of(answer: &Answer) -> Outcome {
    if answer.outcome == outcome::LOST {
        return Outcome::Lost;
    }
    if answer.outcome != outcome::DONE {
        return Outcome::NoChain;
    }
    let held = &answer.value[..(answer.length as usize).min(answer.value.len())];
    let keys = held.chunks_exact(16).filter_map(|key| Some(Key(key.try_into().ok()?))).collect();
    let next = u32::try_from(answer.own).ok().filter(|_| answer.own != END);
    Outcome::Listed(Page { view: answer.version as u32, keys, next })
}

impl Answer {
    /// A page: its keys as the value, the view as the version, the next cursor as its own version.
    pub(crate) fn of_page(page: &Page) -> Answer {
        let mut told = Answer::with(outcome::DONE);
        for (key, place) in page.keys.iter().zip(told.value.chunks_exact_mut(16)) {
            place.copy_from_slice(&key.0);
            told.length += 16;
        }
        (told.version, told.own) = (page.view.into(), page.next.map_or(END, u64::from));
        told
    }
}

/// Takes an answer to the last request; the outcome.
fn take(listing: &mut Listing, answer: &Answer) -> u32 {
    // (The client cannot ask: no other group's keys will come.)
    if answer.outcome >= outcome::DENIED {
        listing.stop();
        return answer.outcome;
    }
    match listing.take(outcome_of(answer)) {
        Ok(()) => outcome::DONE,
        Err(ListFailed::Lost(_)) => outcome::LOST,
        Err(_) => outcome::NO_CHAIN,
    }
}

/// Begins a listing.
///
/// # Safety
/// `client` is null or of `nc_open`; `prefix` is null or points to so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_list(
    client: *const Client,
    prefix: *const c_void,
    prefix_bytes: usize,
) -> *mut Listing {
    // SAFETY: the caller says so.
    let (client, prefix) = unsafe { (client.as_ref(), bytes(prefix, prefix_bytes)) };
    let listing = client
        .zip(prefix)
        .and_then(|(client, prefix)| guarded(None, || client.pipeline.listing(prefix).ok()));
    listing.map_or(std::ptr::null_mut(), |listing| Box::into_raw(Box::new(listing)))
}

/// The next key, for which the client asks if it has none.
///
/// # Safety
/// `client` is null or of `nc_open`, `listing` null or of `nc_list`; `key` is null or has room for
/// 16 bytes, `why` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_list_next(
    client: *mut Client,
    listing: *mut Listing,
    key: *mut [u8; 16],
    why: *mut u32,
) -> c_int {
    // SAFETY: the caller says so.
    let (client, listing) = unsafe { (client.as_mut(), listing.as_mut()) };
    let (result, outcome) = match (client, listing) {
        (Some(client), Some(listing)) if !key.is_null() => {
            guarded((Err(()), outcome::SYSTEM), || {
                loop {
                    if let Some(found) = listing.key() {
                        return (Ok(Some(found)), outcome::DONE);
                    }
                    let Some(request) = listing.request() else {
                        return (Ok(None), outcome::DONE);
                    };
                    let answer = ask(client, request);
                    match take(listing, &answer) {
                        outcome::DONE => {}
                        failed => return (Err(()), failed),
                    }
                }
            })
        }
        _ => (Err(()), outcome::BAD_ARGUMENT),
    };
    if !why.is_null() {
        // SAFETY: the caller says so.
        unsafe { *why = outcome };
    }
    match result {
        Ok(Some(found)) => {
            // SAFETY: it is not null, or there was no key; the caller says the rest.
            unsafe { *key = found.0 };
            1
        }
        Ok(None) => 0,
        Err(()) => -1,
    }
}

/// Begins the next request.
///
/// # Safety
/// As for `nc_list_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_list_submit(
    client: *mut Client,
    listing: *mut Listing,
    why: *mut u32,
) -> u64 {
    // SAFETY: the caller says so.
    let (client, listing) = unsafe { (client.as_mut(), listing.as_mut()) };
    let (ticket, outcome) = match (client, listing) {
        (Some(client), Some(listing)) => guarded((0, outcome::SYSTEM), || {
            listing.request().map_or((0, outcome::DONE), |request| client.submit(request))
        }),
        _ => (0, outcome::BAD_ARGUMENT),
    };
    if !why.is_null() {
        // SAFETY: the caller says so.
        unsafe { *why = outcome };
    }
    ticket
}

/// Takes the answer to the last request.
///
/// # Safety
/// `listing` is null or of `nc_list`; `answer` is null or an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_list_take(listing: *mut Listing, answer: *const Answer) -> u32 {
    // SAFETY: the caller says so.
    match unsafe { (listing.as_mut(), answer.as_ref()) } {
        (Some(listing), Some(answer)) => guarded(outcome::SYSTEM, || take(listing, answer)),
        _ => outcome::BAD_ARGUMENT,
    }
}

/// A key that came.
///
/// # Safety
/// `listing` is null or of `nc_list`; `key` is null or has room for 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_list_key(listing: *mut Listing, key: *mut [u8; 16]) -> c_int {
    // SAFETY: the caller says so.
    let found = unsafe { listing.as_mut() }.and_then(|listing| guarded(None, || listing.key()));
    match found {
        Some(found) if !key.is_null() => {
            // SAFETY: the caller says so.
            unsafe { *key = found.0 };
            1
        }
        _ => 0,
    }
}

/// Frees a listing.
///
/// # Safety
/// `listing` is null, or of `nc_list`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_list_end(listing: *mut Listing) {
    if !listing.is_null() {
        // SAFETY: it was made by Box::into_raw, and nobody else has it.
        let listing = unsafe { Box::from_raw(listing) };
        guarded((), || drop(listing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_through_an_answer() {
        let keys = vec![Key([1; 16]), Key([0; 16])];
        for next in [None, Some(0), Some(u32::MAX - 1)] {
            let page = Page { view: 7, keys: keys.clone(), next };
            let answer = Answer::of_page(&page);
            assert_eq!(outcome_of(&answer), Outcome::Listed(page));
        }
        assert_eq!(outcome_of(&Answer::with(outcome::LOST)), Outcome::Lost);
        assert_eq!(outcome_of(&Answer::with(outcome::UNKNOWN)), Outcome::NoChain);
    }
}
