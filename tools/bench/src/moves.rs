//! A steady stream of datagrams through a lab, and how long it is silent while something happens.

use crate::labs::Running;
use anyhow::{Context, Result, bail};
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One datagram in so long.
const PERIOD: Duration = Duration::from_millis(1);
/// Sender and receivers look this often whether they are to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The stream runs for so long before something happens, and after it: routes that change, and
/// packets that wait, are over by then.
const AROUND: Duration = Duration::from_millis(1_500);

/// Echoes datagrams until told to stop.
fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    let mut datagram = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..length], from); // a route may be away
        }
    }
}

/// When answers came, from `start` on, in seconds.
fn answers(socket: &UdpSocket, start: Instant, stop: &AtomicBool) -> Vec<f64> {
    let (mut datagram, mut times) = ([0; 64], Vec::new());
    while !stop.load(Ordering::Relaxed) {
        if socket.recv(&mut datagram).is_ok() {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times
}

fn send(socket: &UdpSocket, stop: &AtomicBool) {
    let start = Instant::now();
    let mut sent: u32 = 0;
    while !stop.load(Ordering::Relaxed) {
        let _ = socket.send(&sent.to_be_bytes());
        sent = sent.wrapping_add(1);
        std::thread::sleep((PERIOD * sent).saturating_sub(start.elapsed()));
    }
}

/// The longest time without an answer between two moments, of which the first and the last are no
/// answers.
pub fn longest_silence(answers: &[f64], from: f64, to: f64) -> f64 {
    let mut last = from;
    let mut longest: f64 = 0.0;
    for answer in answers.iter().copied().filter(|at| (from..=to).contains(at)) {
        longest = longest.max(answer - last);
        last = answer;
    }
    longest.max(to - last)
}

/// Runs a stream from `inside` to an echo server on `outside`, does something in its middle, and
/// says for how long at most nothing came back from then on, in seconds.
///
/// # Errors
/// There is no stream before it, or the event fails.
pub fn silence(lab: &Running, port: u16, event: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (_, server) = lab.host_port("outside")?;
    let open = |node: &str, port: u16| -> Result<UdpSocket> {
        let (_, address) = lab.host_port(node)?;
        let socket = lab
            .netns(node)?
            .run(|| UdpSocket::bind((address, port)))
            .with_context(|| format!("{node}: UDP"))?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(socket)
    };
    let (far, near) = (open("outside", port)?, open("inside", 0)?);
    near.connect(SocketAddrV4::new(server, port))?;
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let echoing = scope.spawn(|| echo(&far, &stop));
        let receiving = scope.spawn(|| answers(&near, start, &stop));
        let sending = scope.spawn(|| send(&near, &stop));
        std::thread::sleep(AROUND);
        let at = start.elapsed().as_secs_f64();
        let happened = event();
        std::thread::sleep(AROUND);
        let end = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let answers = receiving.join();
        if echoing.join().is_err() || sending.join().is_err() {
            bail!("the stream panicked");
        }
        let Ok(answers) = answers else { bail!("the stream's receiver panicked") };
        happened?;
        if !answers.iter().any(|answer| *answer < at) {
            bail!("no datagram came back before the event");
        }
        Ok(longest_silence(&answers, at, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_also_counts_at_the_ends() {
        let answers = [0.1, 0.9, 1.0, 1.25, 1.3];
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(longest_silence(&answers, 0.95, 1.35), 0.25));
        assert!(close(longest_silence(&answers, 1.25, 2.0), 0.7), "never again");
        assert!(close(longest_silence(&[], 1.0, 3.0), 2.0));
    }
}
