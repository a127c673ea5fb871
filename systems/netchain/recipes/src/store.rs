//! What recipes need: a client, a clock, sleep.

use netchain_client::{Client, Config, Failed, Outcome, Request};
use nix::time::{ClockId, clock_gettime};
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::cell::RefCell;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a request came to.
pub type Answer = Result<Outcome, Failed>;

/// A client, a clock and sleep. Recipes know nothing else of the world, so a simulation can run
/// them.
pub trait Store {
    /// Does a request.
    fn ask(&self, request: Request) -> impl Future<Output = Answer>;

    /// Does requests at once; answers in their order.
    fn ask_all(&self, requests: Vec<Request>) -> impl Future<Output = Vec<Answer>> {
        async move {
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                answers.push(self.ask(request).await);
            }
            answers
        }
    }

    /// A clock, in microseconds. It never goes back, and goes on while the machine sleeps.
    fn now_us(&self) -> u64;

    /// Returns not before so many microseconds have passed.
    fn sleep(&self, us: u64) -> impl Future<Output = ()>;

    /// A number that nobody else draws.
    fn random(&self) -> u64;
}

/// A pointer to a store is one, too.
macro_rules! pointers_are_stores {
    ($($pointer:ty),+) => {$(
        impl<T: Store> Store for $pointer {
            fn ask(&self, request: Request) -> impl Future<Output = Answer> {
                T::ask(self, request)
            }

            fn ask_all(&self, requests: Vec<Request>) -> impl Future<Output = Vec<Answer>> {
                T::ask_all(self, requests)
            }

            fn now_us(&self) -> u64 {
                T::now_us(self)
            }

            fn sleep(&self, us: u64) -> impl Future<Output = ()> {
                T::sleep(self, us)
            }

            fn random(&self) -> u64 {
                T::random(self)
            }
        }
    )+};
}

pointers_are_stores!(&T, Rc<T>);

/// CLOCK_BOOTTIME: CLOCK_MONOTONIC stands still while the machine is suspended, and leases do not.
fn boot_us() -> u64 {
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return 0 };
    Duration::from(now).as_micros() as u64
}

/// From the kernel: a generator in the process gives both sides of a fork the same numbers.
fn from_kernel() -> u64 {
    OsRng.try_next_u64().unwrap_or_else(|_| rand::random())
}

/// A store over the blocking client: its futures are ready when they are polled first, which
/// [`wait`] does.
pub struct Blocking(RefCell<Client>);

impl Blocking {
    /// With a client.
    pub fn new(client: Client) -> Blocking {
        Blocking(RefCell::new(client))
    }

    /// With the client's configuration file.
    ///
    /// # Errors
    /// The file, or no socket.
    pub fn open(file: &Path) -> Result<Blocking, Failed> {
        Ok(Blocking::new(Client::new(Config::read(file).map_err(Failed::Config)?)?))
    }
}

impl Store for Blocking {
    async fn ask(&self, request: Request) -> Answer {
        self.0.borrow_mut().ask(request)
    }

    fn now_us(&self) -> u64 {
        boot_us()
    }

    async fn sleep(&self, us: u64) {
        std::thread::sleep(Duration::from_micros(us));
    }

    fn random(&self) -> u64 {
        from_kernel()
    }
}

/// Waits for a recipe over [`Blocking`].
///
/// (A future over another store is polled without end: give it to its runtime.)
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        std::thread::yield_now();
    }
}

#[cfg(feature = "tokio")]
impl Store for netchain_client::AsyncClient {
    async fn ask(&self, request: Request) -> Answer {
        netchain_client::AsyncClient::ask(self, request).await
    }

    async fn ask_all(&self, requests: Vec<Request>) -> Vec<Answer> {
        let mut asking = Vec::with_capacity(requests.len());
        for request in requests {
            let mut one = Box::pin(netchain_client::AsyncClient::ask(self, request));
            // The first poll begins it.
            let first = std::future::poll_fn(|context| Poll::Ready(one.as_mut().poll(context)));
            let first = first.await;
            asking.push((one, first));
        }
        let mut answers = Vec::with_capacity(asking.len());
        for (one, first) in asking {
            answers.push(match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => one.await,
            });
        }
        answers
    }

    fn now_us(&self) -> u64 {
        boot_us()
    }

    async fn sleep(&self, us: u64) {
        tokio::time::sleep(Duration::from_micros(us)).await;
    }

    fn random(&self) -> u64 {
        from_kernel()
    }
}
