//! The threads of a process. Each worker is a whole server, with its own socket, shards, log and
//! metrics, and shares nothing with the others; they live and die together. The first thread only
//! takes signals, and passes them on.

use super::{RunError, system, work};
use crate::config::Config;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;

/// A worker's thread, and where its orders go.
struct Worker {
    /// Hangs up when the worker ends.
    orders: UnixStream,
    thread: JoinHandle<Result<(), RunError>>,
}

/// Runs a server until SIGTERM or SIGINT; SIGHUP has it read its secrets and backends again. Must
/// be called before the process starts other threads: it blocks those signals. When one worker
/// cannot go on, all end.
pub fn run(config: Config) -> Result<(), RunError> {
    let mut signals = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .for_each(|signal| signals.add(signal));
    signals.thread_block().map_err(system("blocking signals"))?;
    let signal_fd = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(system("opening a signal descriptor"))?;
    let starting = Arc::new(AtomicU16::new(config.workers));
    let mut workers = Vec::new();
    for number in 0..config.workers {
        workers.push(start(config.worker(number), number, Arc::clone(&starting))?);
    }
    let mut running = true;
    while running {
        running = pass_on(&signal_fd, &mut workers)?;
    }
    daemon::service::tell_stopping();
    let stop = |worker: Worker| {
        // One that has ended takes no orders.
        let _ = (&worker.orders).write_all(&[Signal::SIGTERM as u8]);
        worker.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    let ends: Vec<_> = workers.into_iter().map(stop).collect();
    ends.into_iter().collect()
}

/// `starting`: how many workers have not opened their sockets and read their logs yet; the last one
/// to do so says that the process is ready.
fn start(config: Config, number: u16, starting: Arc<AtomicU16>) -> Result<Worker, RunError> {
    let failed = |source| RunError::System { what: "starting a worker", source };
    let (orders, taken) = UnixStream::pair().map_err(failed)?;
    taken.set_nonblocking(true).map_err(failed)?;
    let builder = std::thread::Builder::new().name(format!("worker-{number}"));
    let started = move || {
        if starting.fetch_sub(1, Ordering::Relaxed) == 1 {
            daemon::service::tell_ready(None);
        }
    };
    let thread = builder.spawn(move || work(&config, taken, started)).map_err(failed)?;
    Ok(Worker { orders, thread })
}

/// Waits for a signal and gives it to all; whether all go on.
fn pass_on(signal_fd: &SignalFd, workers: &mut [Worker]) -> Result<bool, RunError> {
    let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
    let mut polled = vec![PollFd::new(signal_fd.as_fd(), PollFlags::POLLIN)];
    // Nobody sends anything here: only hanging up is waited for.
    polled.extend(
        workers.iter().map(|worker| PollFd::new(worker.orders.as_fd(), PollFlags::empty())),
    );
    match poll(&mut polled, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(system("waiting for signals")(error)),
    }
    if polled[1..]
        .iter()
        .any(|worker| worker.revents().is_some_and(|events| events.intersects(ended)))
    {
        return Ok(false);
    }
    let Ok(Some(signal)) = signal_fd.read_signal() else { return Ok(true) };
    let Ok(order) = u8::try_from(signal.ssi_signo) else { return Ok(true) };
    for worker in workers {
        // One that ends just now hangs up.
        let _ = worker.orders.write_all(&[order]);
    }
    Ok(signal.ssi_signo == Signal::SIGHUP as u32)
}
