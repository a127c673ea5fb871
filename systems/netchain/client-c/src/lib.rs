//! The client for C: what `include/netchain.h` declares. The header's comments are its page.
//!
//! It owns: C's types and pointers. It must not know: rules of clients and recipes.

mod layout;
mod listing;
mod recipes;

pub use layout::*;
pub use listing::*;
pub use recipes::*;

use netchain_client::{Key, Operation, Pipeline, Request, Ticket};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// `nc_client`.
pub struct Client {
    pipeline: Pipeline,
    /// Answers to others that came while `nc_ask` waited.
    aside: VecDeque<Answer>,
}

impl Client {
    /// Begins a request: its ticket, or 0 and the outcome.
    fn submit(&mut self, request: Request) -> (u64, u32) {
        match self.pipeline.submit(request) {
            Ok(ticket) => (ticket.number(), outcome::DONE),
            Err(failed) => (0, Answer::failed(&failed).outcome),
        }
    }
}

/// Runs what must not unwind into C.
fn guarded<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(otherwise)
}

/// A name that C gave. None: no pointer, or no UTF-8.
///
/// # Safety
/// `name` is null, or bytes that end with a zero and stay as they are while the result is used.
unsafe fn name<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}

/// Bytes that C gave. None: no pointer, though there should be bytes.
///
/// # Safety
/// `bytes` is null, or points to so many bytes that stay as they are while the result is used.
unsafe fn bytes<'a>(bytes: *const c_void, length: usize) -> Option<&'a [u8]> {
    match (bytes.is_null(), length) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: the caller says so.
        (false, _) => Some(unsafe { std::slice::from_raw_parts(bytes.cast(), length) }),
    }
}

fn operation(number: u32) -> Option<Operation> {
    Some(match number {
        1 => Operation::Read,
        2 => Operation::Put,
        3 => Operation::Insert,
        4 => Operation::CompareVersion,
        5 => Operation::CompareOwner,
        6 => Operation::Add,
        7 => Operation::Delete,
        _ => return None,
    })
}

/// # Safety
/// The request's value is null, or points to as many bytes as its length says.
unsafe fn request(asked: &RequestC) -> Option<Request> {
    let operation = operation(asked.operation)?;
    let writes = !matches!(operation, Operation::Read | Operation::Add | Operation::Delete);
    // SAFETY: the caller says so.
    let value = unsafe { bytes(asked.value.cast(), asked.length as usize) }?;
    let deadline = (asked.deadline_ms > 0).then(|| Duration::from_millis(asked.deadline_ms));
    let value = writes.then(|| value.to_vec());
    let (key, operand) = (Key(asked.key), asked.operand);
    Some(Request { operation, key, value, operand, group: None, deadline })
}

/// Opens a client.
///
/// # Safety
/// `file` is null or ends with a zero; `error` is null or has room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_open(
    file: *const c_char,
    error: *mut c_char,
    error_bytes: usize,
) -> *mut Client {
    // SAFETY: the caller says so.
    let file = unsafe { name(file) };
    let opened = guarded(Err("a bug in the client".to_owned()), || {
        let file = file.ok_or("no file is named")?;
        Pipeline::open(file.as_ref()).map_err(|error| error.to_string())
    });
    match opened {
        Ok(pipeline) => Box::into_raw(Box::new(Client { pipeline, aside: VecDeque::new() })),
        Err(said) => {
            if !error.is_null() && error_bytes > 0 {
                let count = said.len().min(error_bytes - 1);
                // SAFETY: there is room for `count` bytes and the zero; they do not overlap.
                unsafe {
                    std::ptr::copy_nonoverlapping(said.as_ptr().cast(), error, count);
                    *error.add(count) = 0;
                }
            }
            std::ptr::null_mut()
        }
    }
}

/// Closes a client.
///
/// # Safety
/// `client` is null, or of `nc_open`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_close(client: *mut Client) {
    if !client.is_null() {
        // SAFETY: it was made by Box::into_raw, and nobody else has it.
        let client = unsafe { Box::from_raw(client) };
        guarded((), || drop(client));
    }
}

/// An outcome in words.
#[unsafe(no_mangle)]
pub extern "C" fn nc_text(outcome: u32) -> *const c_char {
    OUTCOMES.get(outcome as usize).map_or(c"no such outcome", |(_, text)| *text).as_ptr()
}

/// Writes a name into a key.
///
/// # Safety
/// `named` is null or ends with a zero; `key` is null or has room for 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_key(named: *const c_char, key: *mut [u8; 16]) -> u32 {
    // SAFETY: the caller says so.
    let named = unsafe { name(named) }.and_then(|name| Key::from_name(name).ok());
    match named {
        Some(named) if !key.is_null() => {
            // SAFETY: the caller says so.
            unsafe { *key = named.0 };
            outcome::DONE
        }
        _ => outcome::BAD_ARGUMENT,
    }
}

/// Does a request, and waits for its answer; others go aside.
fn ask(client: &mut Client, request: Request) -> Answer {
    let ticket = match client.pipeline.submit(request) {
        Ok(ticket) => ticket,
        Err(failed) => return Answer::failed(&failed),
    };
    loop {
        match client.pipeline.next(None) {
            Ok(Some((answered, answer))) => {
                let answer = Answer::of(answered, answer);
                if answered == ticket {
                    return answer;
                }
                client.aside.push_back(answer);
            }
            Ok(None) => return Answer::with(outcome::UNKNOWN), // (each request has an answer)
            Err(failed) => {
                client.pipeline.cancel(ticket);
                return Answer::failed(&failed);
            }
        }
    }
}

/// Gives an answer to C.
///
/// # Safety
/// `to` is null or has room for an answer.
unsafe fn give(to: *mut Answer, answer: Answer) -> u32 {
    let outcome = answer.outcome;
    if !to.is_null() {
        // SAFETY: the caller says so.
        unsafe { to.write(answer) };
    }
    outcome
}

/// One request.
///
/// # Safety
/// Pointers are null, or of this library, or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_ask(
    client: *mut Client,
    asked: *const RequestC,
    answer: *mut Answer,
) -> u32 {
    // SAFETY: the caller says so.
    let (client, asked) = unsafe { (client.as_mut(), asked.as_ref()) };
    // SAFETY: the caller says so.
    let asked = asked.and_then(|asked| unsafe { request(asked) });
    let answered = match (client, asked) {
        (Some(client), Some(asked)) => {
            guarded(Answer::with(outcome::SYSTEM), || ask(client, asked))
        }
        _ => Answer::with(outcome::BAD_ARGUMENT),
    };
    // SAFETY: the caller says so.
    unsafe { give(answer, answered) }
}

/// A request on a name.
///
/// # Safety
/// As for `nc_ask`.
unsafe fn by_name(
    client: *mut Client,
    named: *const c_char,
    answer: *mut Answer,
    make: impl FnOnce(&Key) -> Option<Request>,
) -> u32 {
    // SAFETY: the caller says so.
    let key = unsafe { name(named) }.and_then(|name| Key::from_name(name).ok());
    let asked = key.and_then(|key| make(&key));
    // SAFETY: the caller says so.
    let answered = match (unsafe { client.as_mut() }, asked) {
        (Some(client), Some(asked)) => {
            guarded(Answer::with(outcome::SYSTEM), || ask(client, asked))
        }
        _ => Answer::with(outcome::BAD_ARGUMENT),
    };
    // SAFETY: the caller says so.
    unsafe { give(answer, answered) }
}

/// The key's value.
///
/// # Safety
/// As for `nc_ask`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_get(
    client: *mut Client,
    name: *const c_char,
    answer: *mut Answer,
) -> u32 {
    // SAFETY: the caller says so.
    unsafe { by_name(client, name, answer, |key| Some(Request::get(key))) }
}

/// Writes a value.
///
/// # Safety
/// As for `nc_ask`; `value` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_put(
    client: *mut Client,
    name: *const c_char,
    value: *const c_void,
    length: usize,
    answer: *mut Answer,
) -> u32 {
    // SAFETY: the caller says so.
    unsafe { by_name(client, name, answer, |key| Some(Request::put(key, bytes(value, length)?))) }
}

/// Writes a value if the key has none.
///
/// # Safety
/// As for `nc_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_insert(
    client: *mut Client,
    name: *const c_char,
    value: *const c_void,
    length: usize,
    answer: *mut Answer,
) -> u32 {
    // SAFETY: the caller says so.
    unsafe {
        by_name(client, name, answer, |key| Some(Request::insert(key, bytes(value, length)?)))
    }
}

/// Writes a value if the key has this version.
///
/// # Safety
/// As for `nc_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_compare_and_set(
    client: *mut Client,
    name: *const c_char,
    version: u64,
    value: *const c_void,
    length: usize,
    answer: *mut Answer,
) -> u32 {
    // SAFETY: the caller says so.
    unsafe {
        by_name(client, name, answer, |key| {
            Some(Request::compare_and_set(key, version, bytes(value, length)?))
        })
    }
}

/// Adds to a number.
///
/// # Safety
/// As for `nc_ask`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_add(
    client: *mut Client,
    name: *const c_char,
    delta: u64,
    answer: *mut Answer,
) -> u32 {
    // SAFETY: the caller says so.
    unsafe { by_name(client, name, answer, |key| Some(Request::add(key, delta))) }
}

/// Removes a value.
///
/// # Safety
/// As for `nc_ask`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_delete(
    client: *mut Client,
    name: *const c_char,
    version: u64,
    answer: *mut Answer,
) -> u32 {
    // SAFETY: the caller says so.
    unsafe { by_name(client, name, answer, |key| Some(Request::delete(key, version))) }
}

/// Begins a request.
///
/// # Safety
/// As for `nc_ask`; `why` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_submit(
    client: *mut Client,
    asked: *const RequestC,
    why: *mut u32,
) -> u64 {
    // SAFETY: the caller says so.
    let (client, asked) = unsafe { (client.as_mut(), asked.as_ref()) };
    // SAFETY: the caller says so.
    let asked = asked.and_then(|asked| unsafe { request(asked) });
    let (ticket, outcome) = match (client, asked) {
        (Some(client), Some(asked)) => guarded((0, outcome::SYSTEM), || client.submit(asked)),
        _ => (0, outcome::BAD_ARGUMENT),
    };
    if !why.is_null() {
        // SAFETY: the caller says so.
        unsafe { *why = outcome };
    }
    ticket
}

/// The next answer.
///
/// # Safety
/// As for `nc_ask`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_next(client: *mut Client, wait_us: i64, answer: *mut Answer) -> c_int {
    // SAFETY: the caller says so.
    let Some(client) = (unsafe { client.as_mut() }) else { return -1 };
    let wait = u64::try_from(wait_us).ok().map(Duration::from_micros);
    let (result, answered) = guarded((-1, Answer::with(outcome::SYSTEM)), || {
        if let Some(answer) = client.aside.pop_front() {
            return (1, answer);
        }
        match client.pipeline.next(wait) {
            Ok(Some((ticket, answer))) => (1, Answer::of(ticket, answer)),
            Ok(None) => (0, Answer::with(outcome::UNKNOWN)),
            Err(failed) => (-1, Answer::failed(&failed)),
        }
    });
    // SAFETY: the caller says so.
    unsafe { give(answer, answered) };
    result
}

/// Nobody waits for a request any more.
///
/// # Safety
/// `client` is null or of `nc_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_cancel(client: *mut Client, ticket: u64) {
    // SAFETY: the caller says so.
    if let Some(client) = unsafe { client.as_mut() } {
        guarded((), || client.pipeline.cancel(Ticket::from_number(ticket)));
    }
}

/// The socket.
///
/// # Safety
/// `client` is null or of `nc_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_fd(client: *const Client) -> c_int {
    // SAFETY: the caller says so.
    unsafe { client.as_ref() }.map_or(-1, |client| client.pipeline.as_fd().as_raw_fd())
}

/// Sends and receives without waiting.
///
/// # Safety
/// `client` is null or of `nc_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_turn(client: *mut Client) -> u32 {
    // SAFETY: the caller says so.
    let Some(client) = (unsafe { client.as_mut() }) else { return outcome::BAD_ARGUMENT };
    guarded(outcome::SYSTEM, || match client.pipeline.turn() {
        Ok(()) => outcome::DONE,
        Err(failed) => Answer::failed(&failed).outcome,
    })
}

/// An answer that is there.
///
/// # Safety
/// As for `nc_ask`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_take_answer(client: *mut Client, answer: *mut Answer) -> c_int {
    // SAFETY: the caller says so.
    let Some(client) = (unsafe { client.as_mut() }) else { return 0 };
    let found = guarded(None, || {
        let aside = client.aside.pop_front();
        aside.or_else(|| client.pipeline.answer().map(|(ticket, it)| Answer::of(ticket, it)))
    });
    let Some(found) = found else { return 0 };
    // SAFETY: the caller says so.
    unsafe { give(answer, found) };
    1
}

/// After so long `nc_turn` must be called.
///
/// # Safety
/// `client` is null or of `nc_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_wait_us(client: *mut Client) -> i64 {
    // SAFETY: the caller says so.
    let Some(client) = (unsafe { client.as_mut() }) else { return -1 };
    let wait = guarded(None, || client.pipeline.next_wait());
    wait.map_or(-1, |wait| i64::try_from(wait.as_micros()).unwrap_or(i64::MAX))
}
