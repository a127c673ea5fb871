//! Datagrams to an echo server, and which of them the network lost.

use crate::common::TestLab;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What a datagram waits for its answer before the next one goes.
pub const ANSWER: Duration = Duration::from_millis(500);
/// More than that, and the network is not there.
const MOST_UNANSWERED: usize = 60;

/// Datagrams from `node`, each of a conversation of its own.
pub struct Datagrams<'a> {
    pub lab: &'a TestLab,
    pub node: &'a str,
    /// `0.0.0.0`: the node's own.
    pub from: Ipv4Addr,
    pub to: SocketAddr,
    pub bytes: usize,
}

impl Datagrams<'_> {
    /// Sends them until `wanted` have been answered; how many got no answer. One that comes late is
    /// not lost: the machine may be slow, and a neighbour that is being resolved has packets wait.
    pub fn lost(&self, wanted: u32) -> usize {
        let (mut unanswered, mut answered): (Vec<UdpSocket>, u32) = (vec![], 0);
        while answered < wanted {
            let from = self.from;
            let socket =
                self.lab.netns(self.node).run(|| UdpSocket::bind((from, 0))).expect("bind");
            may_be_fragmented(&socket);
            socket.set_read_timeout(Some(ANSWER)).expect("timeout");
            socket.send_to(&vec![7; self.bytes], self.to).expect("send");
            match self.is_answered(&socket) {
                true => answered += 1,
                false => unanswered.push(socket),
            }
            unanswered.retain(|socket| {
                socket.set_nonblocking(true).expect("a socket that does not wait");
                !self.is_answered(socket)
            });
            let lost = unanswered.len();
            assert!(
                lost < MOST_UNANSWERED,
                "{}: {lost} of {} lost",
                self.node,
                lost + answered as usize
            );
        }
        unanswered.len()
    }

    fn is_answered(&self, socket: &UdpSocket) -> bool {
        let mut back = vec![0; self.bytes + 1];
        let received = socket.recv_from(&mut back);
        received.is_ok_and(|(length, _)| {
            assert_eq!(length, self.bytes, "{}: an answer of another length", self.node);
            true
        })
    }
}

fn may_be_fragmented(socket: &UdpSocket) {
    let value = libc::IP_PMTUDISC_DONT;
    // SAFETY: the descriptor is open, and the value is an int that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
