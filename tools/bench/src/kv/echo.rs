//! An echo with tags over the hops of a read or a write (`setups/kv_echo.c`), and its client.

use crate::kv::labs::{Network, Site};
use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use wire::{Secret, tag_of_words};

/// Where switches listen.
const PORT: u16 = 5499;
/// Nobody listens there.
const DISCARD: u16 = 9;
const TAG_AT: usize = 8;
/// Of the messages of a read and a write (systems/netchain/docs/design.md), in whole words.
const READ_BYTES: usize = 19 * 8;
const WRITE_BYTES: usize = 30 * 8;
const SECRET: Secret = Secret([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
/// The switch that is asked first.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
/// Each next hop, as the one before it is linked to it; the last one is the client.
const READ: [Ipv4Addr; 1] = [Ipv4Addr::new(10, 0, 1, 1)];
const WRITE: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 0, 12, 2), Ipv4Addr::new(10, 0, 23, 2), Ipv4Addr::new(10, 0, 3, 1)];

/// The network, and a socket in it.
pub struct Echo {
    socket: UdpSocket,
    _network: Network,
}

fn message(write: bool, port: u16) -> Vec<u8> {
    let (bytes, hops) = if write { (WRITE_BYTES, &WRITE[..]) } else { (READ_BYTES, &READ[..]) };
    let mut message = vec![0; bytes];
    message[16..20].copy_from_slice(&(hops.len() as u32).to_be_bytes());
    message[20..24].copy_from_slice(&u32::from(port).to_be_bytes());
    for (at, hop) in hops.iter().enumerate() {
        message[24 + at * 4..28 + at * 4].copy_from_slice(&hop.octets());
    }
    message
}

fn sign(message: &mut [u8]) {
    let tag = tag_of_words(&SECRET, None, message, TAG_AT).to_be_bytes();
    message[TAG_AT..TAG_AT + 8].copy_from_slice(&tag);
}

impl Echo {
    /// Brings it up.
    ///
    /// # Errors
    /// The lab does not come up, or nothing comes back.
    pub fn up(site: &Site) -> Result<Echo> {
        let network = Network::up(site, "kv_echo.toml", None, &[])?;
        let socket = network.inside("client", || Ok(UdpSocket::bind("0.0.0.0:0")?))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        // (XDP's look-up finds no neighbour that the kernel has not spoken to.)
        for (switch, next) in ["s1", "s2", "s3"].into_iter().zip(WRITE) {
            network.inside(switch, || {
                Ok(UdpSocket::bind("0.0.0.0:0")?.send_to(&[0], (next, DISCARD))?)
            })?;
        }
        let echo = Echo { socket, _network: network };
        for write in [false, true] {
            // (The first ones come before the neighbours' addresses.)
            let back = (0..20).any(|_| echo.once(write, 0).is_ok());
            ensure!(back, "the echo does not come back");
        }
        Ok(echo)
    }

    /// A datagram there and back; how long that took.
    fn once(&self, write: bool, number: u64) -> Result<Duration> {
        let mut message = message(write, self.socket.local_addr()?.port());
        let began = Instant::now();
        message[..8].copy_from_slice(&number.to_be_bytes());
        sign(&mut message);
        self.socket.send_to(&message, (FIRST, PORT))?;
        let mut reply = [0; 512];
        loop {
            let bytes = self.socket.recv(&mut reply).context("no echo")?;
            let reply = &reply[..bytes];
            let tag = tag_of_words(&SECRET, None, reply, TAG_AT).to_be_bytes();
            // (One that came late is an older one's.)
            if reply[TAG_AT..TAG_AT + 8] == tag && reply[..8] == number.to_be_bytes() {
                return Ok(began.elapsed());
            }
        }
    }

    /// Round trips for so long, in microseconds.
    ///
    /// # Errors
    /// The socket.
    pub fn run(&self, write: bool, length: Duration) -> Result<Vec<f32>> {
        let (until, mut times, mut number) = (Instant::now() + length, vec![], 1);
        while Instant::now() < until {
            if let Ok(took) = self.once(write, number) {
                times.push(took.as_nanos() as f32 / 1000.0);
            }
            number += 1;
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_bytes_and_the_way_of_a_write() {
        let mut message = message(true, 4660);
        sign(&mut message);
        assert_eq!(
            (message.len(), &message[16..28]),
            (240, &[0, 0, 0, 3, 0, 0, 18, 52, 10, 0, 12, 2][..])
        );
        assert_ne!(message[8..16], [0; 8]);
    }
}
