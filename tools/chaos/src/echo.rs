//! The far end of the connections: answers every byte with itself, and every datagram with itself
//! and the address that it came from. A store that checks a backend's health by HTTP is told that
//! it is well.

use lab::error::{Error, Result};
use lab::netns::Netns;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// How often the thread looks whether it is to stop, in milliseconds.
const LOOK_MS: u8 = 50;
/// TCP_RTO_MAX_MS of `linux/tcp.h` (Linux 6.15).
const TCP_RTO_MAX_MS: i32 = 44;

/// The longest time between two retransmissions becomes a second (by default two minutes): after an
/// outage a connection is not silent for as long again. Kernels that do not know the option leave
/// it at that.
pub fn limit_backoff(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let milliseconds: libc::c_int = 1_000;
    // SAFETY: the descriptor is open, and the value is an int that lives through the call.
    unsafe {
        let value = (&raw const milliseconds).cast();
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            value,
            size_of::<libc::c_int>() as u32,
        );
    }
}

/// A server in a thread of its own; it ends with this value.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Listens on a port of an address in a namespace, for TCP and for UDP.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(netns: &Netns, address: SocketAddrV4) -> Result<Self> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let socket = UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok((listener, socket))
        };
        let (listener, socket) = netns
            .run(bind)
            .map_err(Error::system(format!("listening on {address} in {}", netns.name())))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(&listener, &socket, &stopped));
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, socket: &UdpSocket, stopped: &AtomicBool) {
    let mut streams: Vec<TcpStream> = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        let mut polled = vec![
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
        ];
        polled.extend(streams.iter().map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN)));
        if poll(&mut polled, PollTimeout::from(LOOK_MS)).is_err() {
            continue;
        }
        let ready: Vec<bool> =
            polled.iter().map(|p| p.revents().is_some_and(|r| !r.is_empty())).collect();
        drop(polled);
        let mut ready_streams = ready.iter().skip(2);
        streams.retain_mut(|stream| {
            !ready_streams.next().is_some_and(|ready| *ready) || answer(stream)
        });
        if ready.get(1) == Some(&true) {
            answer_datagrams(socket);
        }
        while let Ok((stream, _)) = listener.accept() {
            limit_backoff(&stream);
            if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                streams.push(stream);
            }
        }
    }
}

/// Answers what has come; whether the connection goes on. One that ends here is reported by its
/// other end.
fn answer(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => false,
        // The messages of the connections are numbers, none of which begins like this.
        Ok(length) if buffer[..length].starts_with(b"GET /") => {
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
            false
        }
        // A client has one short message on its way at a time: there is always room for it.
        Ok(length) => stream.write_all(&buffer[..length]).is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

fn answer_datagrams(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    // An error is the ICMP answer to an earlier datagram, or that there are no more.
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let SocketAddr::V4(source) = from else { continue };
        let mut reply = buffer[..length].to_vec();
        reply.extend(source.ip().octets());
        reply.extend(source.port().to_be_bytes());
        let _ = socket.send_to(&reply, from);
    }
}
