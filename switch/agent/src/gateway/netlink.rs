//! rtnetlink sockets: one that listens, one that asks.

use super::message::{self, Hop, Neighbour, News};
use nix::sys::socket::sockopt::{RcvBuf, ReceiveTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Room for what comes while the agent is busy; more is lost, and everything read anew.
const RECEIVE_BYTES: usize = 4 << 20;
/// The kernel makes no message of a dump longer.
const MESSAGE_BYTES: usize = 32 << 10;
/// The kernel answers at once; a wait means that the answer was lost.
const PATIENCE_MS: i64 = 1_000;

/// RTNLGRP_* beside those that have names in libc.
const RTNLGRP_IPV4_RULE: u32 = 8;
const RTNLGRP_IPV6_RULE: u32 = 19;

fn open() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let protocol = SockProtocol::NetlinkRoute;
    Ok(socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?)
}

/// What the kernel says by itself.
pub(crate) struct Events {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Events {
    /// Subscribes to links, addresses, routes, nexthop objects, rules and neighbours.
    pub fn new() -> io::Result<Events> {
        let descriptor = open()?;
        let groups = [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_NEIGH,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_IPV6_IFADDR,
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV6_ROUTE,
            libc::RTNLGRP_NEXTHOP,
            RTNLGRP_IPV4_RULE,
            RTNLGRP_IPV6_RULE,
        ];
        let set = groups.into_iter().fold(0, |set, group| set | 1 << (group - 1));
        bind(descriptor.as_raw_fd(), &NetlinkAddr::new(0, set))?;
        // More than the system's limit takes CAP_NET_ADMIN in its first namespace.
        if setsockopt(&descriptor, nix::sys::socket::sockopt::RcvBufForce, &RECEIVE_BYTES).is_err()
        {
            setsockopt(&descriptor, RcvBuf, &RECEIVE_BYTES)?;
        }
        Ok(Events { socket: descriptor, buffer: vec![0; MESSAGE_BYTES] })
    }

    /// What has come by now, as far as one read goes; none: nothing.
    ///
    /// # Errors
    /// ENOBUFS: something was lost.
    pub fn read(&mut self) -> io::Result<Option<Vec<News>>> {
        match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => {
                let messages = message::messages(&self.buffer[..length]);
                Ok(Some(messages.filter_map(|message| message::news(&message)).collect()))
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the kernel is asked.
pub(crate) struct Requests {
    socket: OwnedFd,
    sequence: u32,
}

impl Requests {
    pub fn new() -> io::Result<Requests> {
        let socket = open()?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::milliseconds(PATIENCE_MS))?;
        Ok(Requests { socket, sequence: 0 })
    }

    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends a request, and hands on what is answered until `done` or an error. An answer to an
    /// earlier one that came too late is passed over.
    fn ask(&mut self, request: &[u8], one: bool, mut take: impl FnMut(News)) -> io::Result<()> {
        send(self.socket.as_raw_fd(), request, MsgFlags::empty())?;
        let mut buffer = vec![0; MESSAGE_BYTES];
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(nix::errno::Errno::EINTR) => continue,
                other => other?,
            };
            for message in message::messages(&buffer[..length]) {
                if message.sequence != self.sequence {
                    continue;
                }
                match i32::from(message.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        // `struct nlmsgerr` begins with a negative errno; 0 acknowledges.
                        let code = message.body.get(..4).and_then(|code| code.try_into().ok());
                        return match code.map_or(0, i32::from_ne_bytes) {
                            0 => Ok(()),
                            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                        };
                    }
                    _ => {
                        message::news(&message).into_iter().for_each(&mut take);
                        if one {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Everything of a kind: `RTM_GET*`.
    pub fn list(&mut self, kind: u16, take: impl FnMut(News)) -> io::Result<()> {
        let sequence = self.next();
        self.ask(&message::dump_request(kind, sequence), false, take)
    }

    /// The neighbour table's entry of an address; none: it has none.
    pub fn neighbour(&mut self, hop: Hop) -> io::Result<Option<Neighbour>> {
        let mut found = None;
        let sequence = self.next();
        let result = self.ask(&message::neighbour_request(hop, sequence), true, |news| {
            if let News::Neighbour(neighbour) = news {
                found = Some(neighbour);
            }
        });
        match result {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            other => other.map(|()| found),
        }
    }

    /// Changes an entry of the neighbour table.
    pub fn change(&mut self, hop: Hop, change: message::Change) -> io::Result<()> {
        let sequence = self.next();
        self.ask(&message::change_request(hop, change, sequence), false, |_| ())
    }
}
