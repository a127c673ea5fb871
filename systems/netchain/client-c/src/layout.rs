//! The types of the header, and its numbers.

use netchain_client::{Done, Failed, Failure, NotBegun, Outcome, Refused, Shown, Ticket};
use netchain_recipes::Error;
use std::ffi::CStr;

/// The numbers of `enum nc_outcome`.
#[allow(missing_docs, reason = "the header says it")]
pub mod outcome {
    pub const DONE: u32 = 0;
    pub const REFUSED: u32 = 1;
    pub const UNKNOWN: u32 = 2;
    pub const FULL: u32 = 3;
    pub const NO_CHAIN: u32 = 4;
    pub const LOST: u32 = 5;
    pub const TOO_LONG: u32 = 6;
    pub const DENIED: u32 = 7;
    pub const TOO_MANY: u32 = 8;
    pub const WRONG_RING: u32 = 9;
    pub const WRONG_FORMAT: u32 = 10;
    pub const BUSY: u32 = 11;
    pub const FORKED: u32 = 12;
    pub const BAD_ARGUMENT: u32 = 13;
    pub const SYSTEM: u32 = 14;
    pub const NOT_OURS: u32 = 15;
    pub const OTHERS: u32 = 16;
}

/// Outcomes in their order: the header's names, and words.
pub const OUTCOMES: [(&str, &CStr); 17] = [
    ("NC_DONE", c"done"),
    ("NC_REFUSED", c"refused: its condition did not hold"),
    ("NC_UNKNOWN", c"unknown: it may have happened, or may still happen"),
    ("NC_FULL", c"the switches have no slot for another key"),
    ("NC_NO_CHAIN", c"no switch answers for the key"),
    ("NC_LOST", c"all switches of the key's group were lost, and its keys with them"),
    ("NC_TOO_LONG", c"a value has at most 128 bytes"),
    ("NC_DENIED", c"the client's key may not do that"),
    ("NC_TOO_MANY", c"the switch has no room for another client"),
    ("NC_WRONG_RING", c"client and switches have different founding files"),
    ("NC_WRONG_FORMAT", c"client and switches are of different versions"),
    ("NC_BUSY", c"too many requests are under way"),
    ("NC_FORKED", c"the client is the parent process's: open one in the child"),
    ("NC_BAD_ARGUMENT", c"an invalid argument; a name has at most 16 bytes"),
    ("NC_SYSTEM", c"the socket fails, or a file cannot be read"),
    ("NC_NOT_OURS", c"the key has a value of another kind, lease or number"),
    ("NC_OTHERS", c"others held the lock for the whole waiting time"),
];

/// Operations: the header's names and numbers.
pub const OPERATIONS: [(&str, u32); 7] = [
    ("NC_GET", 1),
    ("NC_PUT", 2),
    ("NC_INSERT", 3),
    ("NC_COMPARE_VERSION", 4),
    ("NC_COMPARE_OWNER", 5),
    ("NC_ADD", 6),
    ("NC_DELETE", 7),
];

/// The key has a value.
pub const HAS_VALUE: u32 = 1;
/// `own` is known.
pub const HAS_OWN: u32 = 2;
/// Version and value are later ones than the outcome's.
pub const MOVED: u32 = 4;

/// `nc_request`.
#[repr(C)]
#[allow(missing_docs, reason = "the header says it")]
pub struct RequestC {
    pub operation: u32,
    pub length: u32,
    pub operand: u64,
    pub deadline_ms: u64,
    pub key: [u8; 16],
    pub value: *const u8,
}

/// `nc_answer`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "the header says it")]
pub struct Answer {
    pub ticket: u64,
    pub own: u64,
    pub version: u64,
    pub outcome: u32,
    pub flags: u32,
    pub length: u32,
    pub value: [u8; 128],
}

impl Answer {
    /// Nothing but an outcome.
    pub fn with(outcome: u32) -> Answer {
        let (ticket, own, version, flags, length) = (0, 0, 0, 0, 0);
        Answer { ticket, own, version, outcome, flags, length, value: [0; 128] }
    }

    fn show(&mut self, now: &Shown) {
        self.version = now.version;
        if let Some(value) = &now.value {
            let count = value.len().min(self.value.len());
            self.value[..count].copy_from_slice(&value[..count]);
            self.length = count as u32;
            self.flags |= HAS_VALUE;
        }
    }

    pub(crate) fn of(ticket: Ticket, answer: netchain_client::Answer) -> Answer {
        let mut told = match answer {
            Ok(Outcome::Done(Done { own, now })) => {
                let mut told = Answer::with(outcome::DONE);
                told.show(&now);
                if let Some(own) = own {
                    (told.own, told.flags) = (own, told.flags | HAS_OWN);
                    told.flags |= if own == now.version { 0 } else { MOVED };
                }
                told
            }
            Ok(Outcome::Refused(Refused { now, moved })) => {
                let mut told = Answer::with(outcome::REFUSED);
                told.show(&now);
                told.flags |= if moved { MOVED } else { 0 };
                told
            }
            Ok(Outcome::Listed(page)) => Answer::of_page(&page),
            Ok(Outcome::Unknown) => Answer::with(outcome::UNKNOWN),
            Ok(Outcome::Full) => Answer::with(outcome::FULL),
            Ok(Outcome::NoChain) => Answer::with(outcome::NO_CHAIN),
            Ok(Outcome::Lost) => Answer::with(outcome::LOST),
            Ok(Outcome::TooLong(_)) => Answer::with(outcome::TOO_LONG),
            Err(failure) => Answer::with(of_failure(&failure)),
        };
        told.ticket = ticket.number();
        told
    }

    pub(crate) fn failed(failed: &Failed) -> Answer {
        Answer::with(of_failed(failed))
    }
}

fn of_failure(failure: &Failure) -> u32 {
    match failure {
        Failure::Denied => outcome::DENIED,
        Failure::TooMany => outcome::TOO_MANY,
        Failure::WrongRing { .. } => outcome::WRONG_RING,
        Failure::NoSuchOperation | Failure::Format(_) => outcome::WRONG_FORMAT,
    }
}

fn of_failed(failed: &Failed) -> u32 {
    match failed {
        Failed::Refused(failure) => of_failure(failure),
        Failed::NotBegun(NotBegun::Busy) => outcome::BUSY,
        Failed::NotBegun(NotBegun::TooLong(_)) => outcome::TOO_LONG,
        Failed::Forked => outcome::FORKED,
        Failed::Config(_) | Failed::Socket(_) | Failed::Closed => outcome::SYSTEM,
    }
}

pub(crate) fn of_error(error: &Error) -> u32 {
    match error {
        Error::Client(failed) => of_failed(failed),
        Error::Lost => outcome::LOST,
        Error::Full => outcome::FULL,
        Error::Name(_) | Error::Parameter(_) => outcome::BAD_ARGUMENT,
        Error::NotOurs(_) => outcome::NOT_OURS,
        Error::LockLost { .. } => outcome::UNKNOWN,
    }
}
