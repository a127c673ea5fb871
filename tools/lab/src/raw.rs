//! Raw sockets: what ordinary ones do not show. They are opened in the namespace of the calling
//! thread.

use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt,
};
use std::net::UdpSocket;
use std::time::Duration;

/// A read that finds nothing returns after this, so that whoever reads can look whether it is to
/// end.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// Room for what arrives while whoever reads waits for a processor: after an outage hundreds of
/// packets come at once, and the default holds 277 small ones.
const BUFFER_BYTES: usize = 8 << 20;

/// UDP datagrams to any port, each with its IPv4 header.
///
/// # Errors
/// The process is not root, or out of descriptors.
pub fn udp_with_headers() -> std::io::Result<UdpSocket> {
    open(AddressFamily::Inet, SockType::Raw, SockProtocol::Udp)
}

/// All packets of all interfaces, in and out, each from its network header on.
///
/// # Errors
/// The process is not root, or out of descriptors.
pub fn all_packets() -> std::io::Result<UdpSocket> {
    open(AddressFamily::Packet, SockType::Datagram, SockProtocol::EthAll)
}

fn open(
    family: AddressFamily,
    kind: SockType,
    protocol: SockProtocol,
) -> std::io::Result<UdpSocket> {
    // A plain read with a time-out works on any socket.
    let socket = UdpSocket::from(socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?);
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    Ok(socket)
}
