//! The thread that speaks to etcd, as the one that decides has it.

use super::{Etcd, Leadership, Told};
use crate::shell::now_ns;
use crate::shell::rules::Decision;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a controller that ends waits for this thread, which gives up a little earlier
/// ([`super::RESIGN`]).
const STOP: Duration = Duration::from_secs(1);

/// A running thread. It ends when this is dropped.
pub struct EtcdThread<D> {
    /// Hangs up when the thread is to leave what it does.
    stop: oneshot::Sender<()>,
    decisions: Sender<D>,
    told: Receiver<Told<D>>,
    leadership: Arc<Leadership>,
}

impl<D: Decision> EtcdThread<D> {
    /// Fails if the system has no threads left.
    pub fn start(etcd: Etcd<D>) -> std::io::Result<EtcdThread<D>> {
        let leadership = etcd.leadership();
        let (stop, stopped) = oneshot::channel();
        let (decisions, to_write) = channel();
        let (tell, told) = channel();
        std::thread::Builder::new()
            .name("etcd".to_owned())
            .spawn(move || etcd.run(&to_write, &tell, stopped))?;
        Ok(EtcdThread { stop, decisions, told, leadership })
    }

    /// Has a decision written; what came of it is told later.
    pub fn write(&self, decision: D) {
        // The thread lives as long as this one.
        let _ = self.decisions.send(decision);
    }

    /// What it has told since.
    pub fn told(&self) -> Vec<Told<D>> {
        self.told.try_iter().collect()
    }

    /// Whether etcd lets no other lead now.
    pub fn may_lead(&self) -> bool {
        self.leadership.holds(now_ns())
    }

    /// Has it give the lead back, so that another takes over at once and not when the lease is
    /// over; returns when that is done, or after [`STOP`]: then the lease runs out.
    pub fn stop(self) {
        let EtcdThread { stop, decisions, told, .. } = self;
        drop((stop, decisions));
        let until = Instant::now() + STOP;
        // What it tells is nobody's news any more; it hangs up when it has ended.
        while told.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    }
}
