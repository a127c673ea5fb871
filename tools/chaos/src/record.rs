//! Threads that fetch the frames of packet sockets, and how far they have come.
//!
//! On a busy machine a thread may be behind by seconds: what is judged is what passed until a time
//! that *all* of them have gone past ([`Recorder::catch_up`]). And frames need the times at which
//! the kernel saw them: it is waited until it takes these.

use capture::{Frame, Interface, Seen};
use lab::error::{Error, Result};
use lab::interrupt;
use lab::netns::Netns;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a thread looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(20);
/// After this many looks for frames, the kernel is asked how many frames it had to drop.
const LOOKS_PER_COUNT: u32 = 64;
/// Two processors may stamp two frames and put them into a socket's queue the other way round, no
/// further apart than this.
const DISORDER_NS: u64 = 10_000_000;
/// A thread that is behind by more has died, or its machine is too busy to be judged.
const BEHIND_MOST: Duration = Duration::from_secs(30);

/// Nanoseconds since 1970.
pub fn wall_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

struct Shared<T> {
    stop: AtomicBool,
    lost: AtomicU64,
    found: Mutex<Vec<T>>,
    /// Of each thread: everything until then, in nanoseconds since 1970, is in `found`.
    reached_ns: Mutex<Vec<u64>>,
}

/// Threads that record frames, and a `T` for each frame in which they find one. Dropping this value
/// ends the threads.
pub struct Recorder<T> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
}

/// A thread that panicked with it leaves nothing half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + 'static> Recorder<T> {
    /// One without threads.
    pub fn new() -> Self {
        let shared = Shared {
            stop: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            found: Mutex::new(Vec::new()),
            reached_ns: Mutex::new(Vec::new()),
        };
        Self { shared: Arc::new(shared), threads: Vec::new() }
    }

    /// A thread more.
    pub fn listen(
        &mut self,
        interface: Interface,
        find: impl Fn(&Frame, Seen, &mut Vec<T>) + Send + 'static,
    ) {
        let number = self.threads.len();
        lock(&self.shared.reached_ns).push(0);
        let shared = Arc::clone(&self.shared);
        self.threads.push(std::thread::spawn(move || listen(interface, number, &find, &shared)));
    }

    /// Waits until everything that passed until now is recorded; when that was, in nanoseconds
    /// since 1970.
    ///
    /// # Errors
    /// A thread does not come as far, or the process is to stop.
    pub fn catch_up(&self) -> Result<u64> {
        let (now_ns, deadline) = (wall_ns(), Instant::now() + BEHIND_MOST);
        while lock(&self.shared.reached_ns).iter().any(|reached| *reached < now_ns) {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            if Instant::now() > deadline {
                let seconds = BEHIND_MOST.as_secs();
                return Err(Error::Run(format!(
                    "the recording of frames is behind by more than {seconds} s"
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(now_ns)
    }

    /// What was found since this was last asked.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.shared.found))
    }

    /// Frames that the threads were too slow for, so far: then a judgement is worth nothing.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Recorder<T> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn listen<T>(
    mut interface: Interface,
    number: usize,
    find: &impl Fn(&Frame, Seen, &mut Vec<T>),
    shared: &Shared<T>,
) {
    let mut looks = 0_u32;
    while !shared.stop.load(Ordering::Relaxed) {
        let asked_ns = wall_ns();
        // The socket outlives every interface: it fails no more than memory does.
        let Ok(frame) = interface.next_seen(PATIENCE) else { continue };
        let reached_ns = match &frame {
            Some((frame, seen)) => {
                find(frame, *seen, &mut lock(&shared.found));
                frame.time_ns.saturating_sub(DISORDER_NS)
            }
            None => asked_ns,
        };
        let idle = frame.is_none();
        looks = looks.wrapping_add(1);
        if idle || looks.is_multiple_of(LOOKS_PER_COUNT) {
            shared.lost.fetch_add(interface.statistics().lost.into(), Ordering::Relaxed);
        }
        if let Some(reached) = lock(&shared.reached_ns).get_mut(number) {
            *reached = reached_ns.max(*reached);
        }
    }
}

/// Waits until the kernel takes the times of frames when it sees them ([`capture::stamps_frames`]).
/// Sockets that want these must be open.
///
/// # Errors
/// It does not.
pub fn wait_for_times(netns: &Netns) -> Result<()> {
    let limit = Duration::from_secs(10);
    let stamps = netns
        .run(|| capture::stamps_frames(limit))
        .map_err(Error::system(format!("the loopback interface in {}", netns.name())))?;
    match stamps {
        true => Ok(()),
        false => Err(Error::Run(format!(
            "the kernel does not take the times of frames, {} s after it was asked to",
            limit.as_secs()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    const DATAGRAMS: u8 = 50;

    /// A thread that is behind: it is waited for, and it says of each frame when the frame came,
    /// not when it was fetched.
    #[test]
    fn a_thread_that_lags_is_waited_for_and_its_times_are_those_of_the_kernel() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = receiver.local_addr().expect("an address");
        let interface = Interface::open("lo", [address.port(); 2]).expect("a packet socket");
        assert!(capture::stamps_frames(Duration::from_secs(30)).expect("the loopback interface"));
        let gate = Arc::new(Mutex::new(()));
        let closed = lock(&gate);
        let mut recorder = Recorder::new();
        let passing = Arc::clone(&gate);
        recorder.listen(interface, move |frame, _, found| {
            drop(lock(&passing));
            found.push(frame.time_ns);
        });
        for number in 0..DATAGRAMS {
            receiver.send_to(&[number], address).expect("sent");
        }
        for _ in 0..DATAGRAMS {
            receiver.recv(&mut [0; 8]).expect("received");
        }
        let arrived_ns = wall_ns();
        assert_eq!(
            recorder.shared.reached_ns.lock().map(|all| all[0] < arrived_ns).ok(),
            Some(true)
        );
        drop(closed);
        assert!(recorder.catch_up().expect("in time") >= arrived_ns);
        let times = recorder.take();
        assert_eq!((times.len(), recorder.lost()), (DATAGRAMS.into(), 0));
        assert!(times.iter().all(|ns| *ns <= arrived_ns), "{times:?} {arrived_ns}");
    }
}
