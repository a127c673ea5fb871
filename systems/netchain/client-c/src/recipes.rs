//! Locks and elections for C.

use crate::layout::{of_error, outcome};
use crate::{Client, bytes, guarded, name};
use netchain_recipes::{Blocking, Election, Error, Leader, Lock, RwLock, Seat, Semaphore, wait};
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use std::time::Duration;

/// Each object has a client of its own, so it may go to another thread as a whole.
type Own = Rc<Blocking>;

/// `nc_seat`.
pub struct SeatC(Seat<Own>);

/// `nc_leader`.
pub struct LeaderC(Leader<Own>);

fn own(client: Option<&Client>) -> Result<Own, Error> {
    let client = client.ok_or(Error::Parameter("no client".into()))?;
    Ok(Rc::new(Blocking::new(client.pipeline.renew()?.into())))
}

fn patience(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Gives what was taken to C, or says why there is none.
///
/// # Safety
/// `why` is null or has room for a number.
unsafe fn give<T>(why: *mut u32, taken: Result<Option<T>, Error>) -> *mut T {
    let (pointer, outcome) = match taken {
        Ok(Some(taken)) => (Box::into_raw(Box::new(taken)), outcome::DONE),
        Ok(None) => (std::ptr::null_mut(), outcome::OTHERS),
        Err(error) => (std::ptr::null_mut(), of_error(&error)),
    };
    if !why.is_null() {
        // SAFETY: the caller says so.
        unsafe { *why = outcome };
    }
    pointer
}

fn bug<T>() -> Result<Option<T>, Error> {
    Err(Error::Parameter("a bug in the client".into()))
}

fn no_name() -> Error {
    Error::Name("no name".into())
}

/// Waits for a lock.
///
/// # Safety
/// `client` is null or of `nc_open`; `named` is null or ends with a zero; `why` is null or has room
/// for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_lock_take(
    client: *const Client,
    named: *const c_char,
    lease_ms: u64,
    patience_ms: i64,
    why: *mut u32,
) -> *mut SeatC {
    // SAFETY: the caller says so.
    let (client, named) = unsafe { (client.as_ref(), name(named)) };
    let taken = guarded(bug(), || {
        let named = named.ok_or_else(no_name)?;
        let lock = Lock::new(own(client)?, named, Duration::from_millis(lease_ms))?;
        wait(lock.take(patience(patience_ms)))
    });
    // SAFETY: the caller says so.
    unsafe { give(why, taken.map(|seat| seat.map(SeatC))) }
}

/// Waits for a reader-writer lock.
///
/// # Safety
/// As for `nc_lock_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_rwlock_take(
    client: *const Client,
    named: *const c_char,
    writes: c_int,
    lease_ms: u64,
    patience_ms: i64,
    why: *mut u32,
) -> *mut SeatC {
    // SAFETY: the caller says so.
    let (client, named) = unsafe { (client.as_ref(), name(named)) };
    let taken = guarded(bug(), || {
        let named = named.ok_or_else(no_name)?;
        let lock = RwLock::new(own(client)?, named, Duration::from_millis(lease_ms))?;
        let patience = patience(patience_ms);
        if writes == 0 { wait(lock.read(patience)) } else { wait(lock.write(patience)) }
    });
    // SAFETY: the caller says so.
    unsafe { give(why, taken.map(|seat| seat.map(SeatC))) }
}

/// Waits for a permit.
///
/// # Safety
/// As for `nc_lock_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_semaphore_take(
    client: *const Client,
    named: *const c_char,
    permits: u8,
    lease_ms: u64,
    patience_ms: i64,
    why: *mut u32,
) -> *mut SeatC {
    // SAFETY: the caller says so.
    let (client, named) = unsafe { (client.as_ref(), name(named)) };
    let taken = guarded(bug(), || {
        let named = named.ok_or_else(no_name)?;
        let lease = Duration::from_millis(lease_ms);
        wait(Semaphore::new(own(client)?, named, permits, lease)?.take(patience(patience_ms)))
    });
    // SAFETY: the caller says so.
    unsafe { give(why, taken.map(|seat| seat.map(SeatC))) }
}

/// Waits until it leads.
///
/// # Safety
/// As for `nc_lock_take`; `told` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nc_campaign(
    client: *const Client,
    named: *const c_char,
    told: *const c_void,
    told_bytes: usize,
    lease_ms: u64,
    patience_ms: i64,
    why: *mut u32,
) -> *mut LeaderC {
    // SAFETY: the caller says so.
    let (client, named, told) = unsafe { (client.as_ref(), name(named), bytes(told, told_bytes)) };
    let taken = guarded(bug(), || {
        let named = named.ok_or_else(no_name)?;
        let told = told.ok_or_else(no_name)?;
        let election = Election::new(own(client)?, named, Duration::from_millis(lease_ms))?;
        wait(election.campaign(told, patience(patience_ms)))
    });
    // SAFETY: the caller says so.
    unsafe { give(why, taken.map(|leader| leader.map(LeaderC))) }
}

/// What C does with something that it holds.
macro_rules! held {
    ($held:ty, $token:ident, $left_us:ident, $refresh:ident, $end:ident by $method:ident) => {
        /// The fencing token.
        ///
        /// # Safety
        /// `held` is null or of this library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $token(held: *const $held) -> u64 {
            // SAFETY: the caller says so.
            unsafe { held.as_ref() }.map_or(0, |held| held.0.token())
        }

        /// For so long it is held still.
        ///
        /// # Safety
        /// `held` is null or of this library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $left_us(held: *const $held) -> u64 {
            // SAFETY: the caller says so.
            unsafe { held.as_ref() }.map_or(0, |held| held.0.left().as_micros() as u64)
        }

        /// Renews the lease.
        ///
        /// # Safety
        /// `held` is null or of this library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $refresh(held: *mut $held) -> c_int {
            // SAFETY: the caller says so.
            let Some(held) = (unsafe { held.as_mut() }) else { return 0 };
            guarded(0, || c_int::from(wait(held.0.refresh()).unwrap_or(false)))
        }

        /// Gives it back.
        ///
        /// # Safety
        /// `held` is null, or of this library and not used any more.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $end(held: *mut $held) {
            if !held.is_null() {
                // SAFETY: it was made by Box::into_raw, and nobody else has it.
                let held = unsafe { Box::from_raw(held) };
                // (If no switch can be asked, its lease ends by itself.)
                guarded((), || drop(wait(held.0.$method())));
            }
        }
    };
}

held!(SeatC, nc_seat_token, nc_seat_left_us, nc_seat_refresh, nc_seat_release by release);
held!(LeaderC, nc_leader_token, nc_leader_left_us, nc_leader_refresh, nc_leader_resign by resign);
