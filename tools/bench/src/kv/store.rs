//! RedPlane's store as a key-value service: its application `key_value` on a switch. A switch
//! answers reads of keys that it has the lease of; each write waits for the chain of three stores.

use crate::kv::failure::{Live, Plan, Recorded};
use crate::kv::labs::{Network, Site};
use crate::kv::lockers::Lockers;
use crate::kv::workload::{Measured, Workload};
use crate::kv::{Service, System};
use anyhow::{Result, bail, ensure};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The service's address (systems/redplane/lab/key_value.toml).
const SERVICE: (&str, u16) = ("10.99.0.1", 5409);
/// Of a message (systems/redplane/docs/apps/key_value.md).
const BYTES: usize = 64;
const READ: u8 = 1;
const UPDATE: u8 = 2;
const DONE: u8 = 1;
/// A request without a reply is sent again after this time.
const RETRY: Duration = Duration::from_millis(20);

/// See the module.
pub struct Store {
    network: Network,
    socket: UdpSocket,
    requests: u32,
}

/// A request under way.
#[derive(Clone)]
struct Under {
    began: Instant,
    sent: Instant,
    message: [u8; BYTES],
}

impl Under {
    fn new(request: u32, write: bool, key: usize) -> Under {
        let mut message = [0; BYTES];
        message[..3].copy_from_slice(&[b'K', b'V', if write { UPDATE } else { READ }]);
        message[4..8].copy_from_slice(&request.to_be_bytes());
        message[8..24].copy_from_slice(&(key as u128).to_be_bytes());
        let now = Instant::now();
        Under { began: now, sent: now, message }
    }

    fn is_write(&self) -> bool {
        self.message[2] == UPDATE
    }
}

impl Store {
    /// Brings the application's lab up.
    ///
    /// # Errors
    /// It does not come up.
    pub fn up(site: &Site) -> Result<Store> {
        let folder = "../../../systems/redplane/lab/key_value.toml";
        let network = Network::up(site, folder, Some("replicated"), &[])?;
        let socket = network.inside("inside", || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(SERVICE)?;
            Ok(socket)
        })?;
        socket.set_read_timeout(Some(RETRY))?;
        Ok(Store { network, socket, requests: 0 })
    }

    fn send(&self, under: &Under) {
        // (What the kernel does not take is sent again in its time.)
        let _ = self.socket.send(&under.message);
    }

    /// Requests until the time is over, and no longer than it takes for all to be answered.
    fn requests(
        &mut self,
        outstanding: usize,
        mut next: impl FnMut() -> Option<(bool, usize)>,
        into: &mut Measured,
    ) -> Result<()> {
        let mut places: Vec<Option<Under>> = vec![None; outstanding];
        let (mut free, mut ended) = ((0..outstanding).collect::<Vec<_>>(), false);
        let (mut reply, mut looked) = ([0; BYTES], Instant::now());
        loop {
            while !ended && let Some(place) = free.pop() {
                let Some((write, key)) = next() else {
                    (ended, _) = (true, free.push(place));
                    break;
                };
                // The place is found by the number that comes back.
                self.requests = self.requests.wrapping_add(1);
                let request = (self.requests << 12) | place as u32;
                let under = Under::new(request, write, key);
                self.send(&under);
                places[place] = Some(under);
            }
            if ended && free.len() == outstanding {
                return Ok(());
            }
            if self.socket.recv(&mut reply).is_ok_and(|bytes| bytes == BYTES) {
                let place = usize::from(u16::from_be_bytes([reply[6], reply[7]]) & 0xfff);
                let of = places.get(place).and_then(Option::as_ref);
                if of.is_some_and(|under| under.message[4..8] == reply[4..8])
                    && let Some(under) = places[place].take()
                {
                    free.push(place);
                    match reply[3] {
                        DONE => into.answered(under.is_write(), under.began.elapsed()),
                        _ => into.failed += 1,
                    }
                }
            }
            if looked.elapsed() > RETRY {
                looked = Instant::now();
                for under in places.iter_mut().flatten().filter(|it| it.sent.elapsed() > RETRY) {
                    under.sent = looked;
                    // (`self.send` would borrow all of it.)
                    let _ = self.socket.send(&under.message);
                }
                ensure!(!lab::interrupt::requested(), "interrupted");
            }
        }
    }
}

impl Service for Store {
    fn system(&self) -> System {
        System::Store
    }

    fn network(&self) -> &Network {
        &self.network
    }

    fn fill(&mut self, keys: usize, _value_bytes: usize) -> Result<()> {
        let mut measured = Measured::default();
        let mut rest = 0..keys;
        self.requests(64, || rest.next().map(|key| (true, key)), &mut measured)?;
        ensure!(measured.failed == 0, "{} keys cannot be written", measured.failed);
        Ok(())
    }

    /// Values have 32 bytes, whatever the load says.
    fn run(&mut self, load: &Workload) -> Result<Measured> {
        Measured::timed(&self.network.processes(), || {
            let (until, mut draw) = (Instant::now() + load.length, load.draw());
            let next = || (Instant::now() < until).then(|| draw.request());
            let mut measured = Measured::default();
            self.requests(load.outstanding.min(4096), next, &mut measured)?;
            Ok(measured)
        })
    }

    fn lockers(&self) -> Result<Lockers> {
        bail!("no locks are measured on RedPlane's store")
    }

    fn fail(&mut self, _plan: &Plan, _live: &Arc<Live>) -> Result<Recorded> {
        bail!("no failure is measured on RedPlane's store: Figure 14 does")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_applications_form() {
        let under = Under::new(7, true, 9);
        assert!(under.is_write());
        assert_eq!(&under.message[..9], &[b'K', b'V', UPDATE, 0, 0, 0, 0, 7, 0]);
        assert_eq!(under.message[23], 9);
    }
}
