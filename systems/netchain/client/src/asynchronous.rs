//! The client for tokio: many requests at a time, from any tasks.
//!
//! One task of the caller's runtime drives the socket, not a thread: on a runtime of one thread no
//! reply costs a wake-up of another. Requests of all tasks that ran since the task's last turn go
//! out in one sendmmsg(2).

use crate::{
    Answer, AsyncKeys, Config, Failed, NotBegun, Outcome, Pipeline, Request, Ticket, fork,
};
use netchain_protocol::Key;
use std::collections::HashMap;
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What a request's future waits for.
enum Waiting {
    For(Waker),
    Over(Answer),
}

struct State {
    pipeline: Pipeline,
    waiting: HashMap<Ticket, Waiting>,
    /// Futures whose requests cannot begin: too many are under way.
    blocked: Vec<Waker>,
    /// No more requests begin.
    closed: bool,
}

impl State {
    fn wake_blocked(&mut self) {
        self.blocked.drain(..).for_each(Waker::wake);
    }

    /// Nobody answers any more.
    fn stop(&mut self) {
        self.closed = true;
        self.wake_blocked();
        self.waiting.retain(|_, waiting| match waiting {
            Waiting::For(waker) => {
                waker.wake_by_ref();
                false
            }
            Waiting::Over(_) => true,
        });
    }

    /// A turn of the socket's work. After how long the next one must be.
    fn turn(&mut self) -> Result<Option<Duration>, Failed> {
        self.pipeline.turn()?;
        let mut freed = false;
        while let Some((ticket, answer)) = self.pipeline.answer() {
            freed = true;
            if let Some(waiting) = self.waiting.get_mut(&ticket)
                && let Waiting::For(waker) = std::mem::replace(waiting, Waiting::Over(answer))
            {
                waker.wake();
            }
        }
        if freed {
            self.wake_blocked();
        }
        Ok(self.pipeline.next_wait())
    }
}

struct Shared {
    /// The process that made it.
    process: u32,
    state: Mutex<State>,
    /// The driver has something to do.
    work: Notify,
    /// A request is over, or the driver has ended.
    over: Notify,
}

impl Shared {
    /// This is a child of the process that made the client. Another thread of the parent may have
    /// held the lock: nobody in the child may wait for it.
    fn is_forked(&self) -> bool {
        fork::process() != self.process
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last one ends the driver.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.is_forked() {
            self.0.state().closed = true;
            self.0.work.notify_one();
        }
    }
}

/// A client for tokio. Clones are the same client; all methods may be called at once.
///
/// A future that is dropped gives its request up: it may have been carried out, or may still be.
/// In a child of the process that made the client, all calls fail ([`Failed::Forked`]).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use netchain_client::{AsyncClient, Key};
/// let client = AsyncClient::open("kv.toml".as_ref())?;
/// let (a, b) = (Key::from_name("a")?, Key::from_name("b")?);
/// let (first, second) = tokio::join!(client.get(&a), client.put(&b, b"hello"));
/// println!("{:?} {:?}", first?, second?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncClient {
    handle: Arc<Handle>,
}

impl AsyncClient {
    /// With a configuration file, in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// The file, or no socket.
    pub fn open(file: &Path) -> Result<AsyncClient, Failed> {
        AsyncClient::new(Config::read(file).map_err(Failed::Config)?)
    }

    /// With a configuration, in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// The client's key, or no socket.
    pub fn new(config: Config) -> Result<AsyncClient, Failed> {
        let pipeline = Pipeline::new(config)?;
        let socket = register(pipeline.as_fd().try_clone_to_owned()?)?;
        let (waiting, blocked) = (HashMap::new(), vec![]);
        let state = Mutex::new(State { pipeline, waiting, blocked, closed: false });
        let (work, over) = (Notify::new(), Notify::new());
        let shared = Arc::new(Shared { process: fork::process(), state, work, over });
        let driver = Driver { shared: shared.clone(), socket: Some(socket) };
        tokio::spawn(driver.run());
        Ok(AsyncClient { handle: Arc::new(Handle(shared)) })
    }

    /// Does a request. Nothing is sent before the future is polled.
    pub fn ask(&self, request: Request) -> Asking {
        Asking { handle: self.handle.clone(), request: Some(request), ticket: None }
    }

    /// The key's value.
    pub fn get(&self, key: &Key) -> Asking {
        self.ask(Request::get(key))
    }

    /// Writes a value.
    pub fn put(&self, key: &Key, value: &[u8]) -> Asking {
        self.ask(Request::put(key, value))
    }

    /// Writes a value if the key has none.
    pub fn insert(&self, key: &Key, value: &[u8]) -> Asking {
        self.ask(Request::insert(key, value))
    }

    /// Writes a value if the key's version is this one. (0: it was never written.)
    pub fn compare_and_set(&self, key: &Key, version: u64, value: &[u8]) -> Asking {
        self.ask(Request::compare_and_set(key, version, value))
    }

    /// Adds to the number that the value's first eight bytes are, modulo 2^64.
    pub fn add(&self, key: &Key, delta: u64) -> Asking {
        self.ask(Request::add(key, delta))
    }

    /// The keys that begin with these bytes, page by page. It is no snapshot.
    ///
    /// # Errors
    /// The prefix has more than 16 bytes; [`Failed::Forked`].
    pub fn list(&self, prefix: &[u8]) -> Result<AsyncKeys, Failed> {
        let shared = &self.handle.0;
        if shared.is_forked() {
            return Err(Failed::Forked);
        }
        let listing = shared.state().pipeline.listing(prefix);
        let listing = listing.map_err(|wrong| Failed::Config(wrong.to_string()))?;
        Ok(AsyncKeys::new(self.clone(), listing))
    }

    /// Removes the value, if the key's version is this one; 0: in any case.
    pub fn delete(&self, key: &Key, version: u64) -> Asking {
        self.ask(Request::delete(key, version))
    }

    /// No more requests begin; returns when those under way are over, at the latest at their
    /// deadlines.
    pub async fn close(&self) {
        let shared = &self.handle.0;
        while !shared.is_forked() {
            let over = shared.over.notified();
            let mut over = pin!(over);
            over.as_mut().enable();
            {
                let mut state = shared.state();
                state.closed = true;
                state.wake_blocked();
                if state.pipeline.outstanding() == 0 {
                    break;
                }
            }
            over.await;
        }
        shared.work.notify_one();
    }

    /// Requests that are not over.
    pub fn outstanding(&self) -> usize {
        let shared = &self.handle.0;
        if shared.is_forked() { 0 } else { shared.state().pipeline.outstanding() }
    }

    /// Replies that no switch made for this client: they changed nothing.
    pub fn forged(&self) -> u64 {
        let shared = &self.handle.0;
        if shared.is_forked() { 0 } else { shared.state().pipeline.forged() }
    }
}

/// A request of an [`AsyncClient`].
#[must_use = "nothing is sent before it is polled"]
pub struct Asking {
    handle: Arc<Handle>,
    request: Option<Request>,
    ticket: Option<Ticket>,
}

impl Asking {
    /// With a deadline of its own: see [`Request::within`].
    pub fn within(mut self, deadline: Duration) -> Asking {
        self.request = self.request.take().map(|request| request.within(deadline));
        self
    }

    fn begin(&mut self, state: &mut State, context: &Context<'_>) -> Poll<Result<Outcome, Failed>> {
        if state.closed {
            return Poll::Ready(Err(Failed::Closed));
        }
        let Some(request) = self.request.take() else { return Poll::Ready(Err(Failed::Closed)) };
        let again = request.clone();
        match state.pipeline.submit(request) {
            Ok(ticket) => {
                self.ticket = Some(ticket);
                state.waiting.insert(ticket, Waiting::For(context.waker().clone()));
                self.handle.0.work.notify_one();
                Poll::Pending
            }
            Err(Failed::NotBegun(NotBegun::Busy)) => {
                self.request = Some(again);
                state.blocked.push(context.waker().clone());
                Poll::Pending
            }
            Err(Failed::NotBegun(NotBegun::TooLong(bytes))) => {
                Poll::Ready(Ok(Outcome::TooLong(bytes)))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Future for Asking {
    type Output = Result<Outcome, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = self.handle.clone();
        if handle.0.is_forked() {
            return Poll::Ready(Err(Failed::Forked));
        }
        let mut state = handle.0.state();
        let Some(ticket) = self.ticket else { return self.begin(&mut state, context) };
        match state.waiting.get_mut(&ticket) {
            Some(Waiting::For(waker)) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            Some(Waiting::Over(_)) => match state.waiting.remove(&ticket) {
                Some(Waiting::Over(answer)) => Poll::Ready(answer.map_err(Failed::from)),
                _ => Poll::Pending,
            },
            // The driver has ended: whether the request was carried out, nobody heard.
            None => Poll::Ready(Err(Failed::Closed)),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if self.handle.0.is_forked() {
            return;
        }
        let mut state = self.handle.0.state();
        if state.waiting.remove(&ticket).is_some() {
            state.pipeline.cancel(ticket);
            state.wake_blocked();
            self.handle.0.over.notify_waiters();
        }
    }
}

/// Gives a socket to the runtime.
#[allow(unsafe_code)]
fn register(socket: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open, and the same, as long as it lives; the AsyncFd owns it.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

/// The task that does the socket's work.
struct Driver {
    shared: Arc<Shared>,
    /// None only while it ends.
    socket: Option<AsyncFd<OwnedFd>>,
}

impl Driver {
    async fn run(self) {
        let Some(socket) = &self.socket else { return };
        let far = Duration::from_secs(3600);
        let mut sleep = pin!(sleep_until(Instant::now() + far));
        loop {
            let wait = {
                let mut state = self.shared.state();
                let turn = state.turn();
                let done = state.closed && state.pipeline.outstanding() == 0;
                match turn {
                    Ok(wait) if !done => wait,
                    _ => return,
                }
            };
            self.shared.over.notify_waiters();
            // (Mostly the reply comes first: a timer that is early costs less than setting
            // another.)
            let wake = Instant::now() + wait.unwrap_or(far);
            if wake < sleep.deadline() || sleep.is_elapsed() {
                sleep.as_mut().reset(wake);
            }
            tokio::select! {
                biased;
                () = self.shared.work.notified() => {}
                ready = socket.readable() => {
                    let Ok(mut ready) = ready else { return };
                    // What comes behind the last message of this turn makes it ready again.
                    if self.shared.state().turn().is_err() {
                        return;
                    }
                    ready.clear_ready();
                }
                () = sleep.as_mut() => {}
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // The runtime's epoll(7) is shared with the parent, and would forget the parent's
            // socket.
            std::mem::forget(self.socket.take());
            return;
        }
        self.shared.state().stop();
        self.shared.over.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
