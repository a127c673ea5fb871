//! Asking a running daemon how it is, and what it has.

use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};
use thiserror::Error;
use wire::{
    ControlType, HEADER_BYTES, KeyRing, Kind, MAX_PACKET_BYTES, NotGenuine, ToolType, kind,
};

/// Why there is no status.
#[derive(Debug, Error)]
pub enum QueryError {
    /// No answer in time.
    #[error(
        "{address}: no answer within {waited_ms} ms: its host cannot be reached, \
         or it has other secrets (compare the files; its metric bad_tag counts refused messages)"
    )]
    NoAnswer {
        /// Who was asked.
        address: SocketAddrV4,
        /// How long.
        waited_ms: u128,
    },
    /// The host says that nothing listens there.
    #[error("{address}: nothing listens there: start the daemon, or correct the address")]
    Refused {
        /// Who was asked.
        address: SocketAddrV4,
    },
    /// An answer that is no status.
    #[error(
        "{address}: the answer is not a status: {problem}; is a state store of this version running there?"
    )]
    BadAnswer {
        /// Who was asked.
        address: SocketAddrV4,
        /// What is wrong.
        problem: String,
    },
    /// A controller says so.
    #[error(
        "{address}: runs with different secrets: copy the fabric's secrets file, then compare \
         `stateplane keys show` on both machines"
    )]
    OtherSecrets {
        /// Who was asked.
        address: SocketAddrV4,
    },
    /// The answer's tag is not made with our secrets.
    #[error("{address}: the answer is not genuine: {problem}; are the secrets the same there?")]
    NotGenuine {
        /// Who was asked.
        address: SocketAddrV4,
        /// What is wrong.
        problem: NotGenuine,
    },
    /// The operating system refused.
    #[error("{address}: {source}")]
    System {
        /// Who was asked.
        address: SocketAddrV4,
        /// What the system says.
        source: std::io::Error,
    },
}

const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Asks the daemon at `address` how it is.
///
/// # Errors
/// There is no answer in time, or it does not parse as `T`.
pub fn query<T: DeserializeOwned>(
    address: SocketAddrV4,
    keys: &KeyRing,
    timeout: Duration,
) -> Result<T, QueryError> {
    ask(ToolType::StatusRequest, &[], address, keys, timeout)
}

/// Sends a JSON request every 100 ms until an answer arrives or `timeout` passes. It is signed
/// with `keys`: daemons ignore other requests.
///
/// # Errors
/// There is no answer in time, or it does not parse as `T`.
pub fn ask<T: DeserializeOwned>(
    question_type: ToolType,
    question: &[u8],
    address: SocketAddrV4,
    keys: &KeyRing,
    timeout: Duration,
) -> Result<T, QueryError> {
    let system = |source| QueryError::System { address, source };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(system)?;
    socket.connect(address).map_err(system)?;
    let bad = |problem: String| QueryError::BadAnswer { address, problem };
    let mut bytes = wire::question(question_type, question)
        .ok_or_else(|| bad(format!("the question has over {MAX_PACKET_BYTES} bytes")))?;
    let own = match socket.local_addr().map_err(system)? {
        SocketAddr::V4(own) => *own.ip(),
        SocketAddr::V6(own) => {
            return Err(bad(format!(
                "the socket has the address {own}, which is \
                                                       not IPv4"
            )));
        } // it was bound to an IPv4 address
    };
    keys.sign(&mut bytes, own, *address.ip());
    let mut buffer = vec![0; HEADER_BYTES + MAX_PACKET_BYTES];
    let start = Instant::now();
    let mut refused = false;
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() && refused {
            return Err(QueryError::Refused { address });
        }
        if left.is_zero() {
            return Err(QueryError::NoAnswer { address, waited_ms: timeout.as_millis() });
        }
        // A refused datagram (nobody listens there yet) shows as an error of a later call: not the
        // end.
        let sent = socket.send(&bytes);
        socket.set_read_timeout(Some(left.min(ASK_AGAIN))).map_err(system)?;
        let count = match sent.and_then(|_| socket.recv(&mut buffer)) {
            Ok(count) => count,
            Err(error) => {
                refused = error.kind() == ErrorKind::ConnectionRefused;
                std::thread::sleep(left.min(Duration::from_millis(5)));
                continue;
            }
        };
        keys.verify(&buffer[..count], *address.ip(), own).map_err(|problem| {
            match kind(&buffer[..count]) {
                Ok(Kind::Control(ControlType::OtherSecrets)) => {
                    QueryError::OtherSecrets { address }
                }
                _ => QueryError::NotGenuine { address, problem },
            }
        })?;
        let json = wire::answer(&buffer[..count]).map_err(|reason| bad(reason.to_string()))?;
        return serde_json::from_slice(json).map_err(|error| bad(error.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{SECRET_BYTES, Secret};

    /// Other secrets must not look like a daemon that does not run.
    #[test]
    fn silence_and_absence_are_told_apart() {
        let keys = KeyRing::new(1, Secret([1; SECRET_BYTES])).expect("a ring");
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let Ok(SocketAddr::V4(address)) = silent.local_addr() else { panic!("an IPv4 socket") };
        let ask = || {
            query::<serde_json::Value>(address, &keys, Duration::from_millis(250))
                .expect_err("nobody answers")
        };
        let message = ask().to_string();
        assert!(
            message.contains("no answer within 250 ms") && message.contains("other secrets"),
            "{message}"
        );
        drop(silent);
        let message = ask().to_string();
        assert!(
            message.contains("nothing listens there") && !message.contains("secrets"),
            "{message}"
        );
    }
}
