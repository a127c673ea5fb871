//! What a daemon tells the service manager that started it (systemd's `Type=notify`; sd_notify(3)).
//! A daemon that nobody manages has no `NOTIFY_SOCKET`,
//! and tells nobody.
//!
//! Owns how it is told; when a daemon is ready is its own to know.

use sd_notify::NotifyState;

/// It does what it is for, or will without anybody's help: what is ordered behind it begins.
/// `status` is a line for people, in `systemctl status`.
pub fn tell_ready(status: Option<&str>) {
    let status = status.map(NotifyState::Status);
    tell(&[NotifyState::Ready].into_iter().chain(status).collect::<Vec<_>>());
}

/// It is about to end, on purpose.
pub fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// A manager that does not listen is its own affair: the daemon goes on.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager's NOTIFY_SOCKET");
    }
}
