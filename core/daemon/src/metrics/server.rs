//! The smallest HTTP server that gives out metrics. It never blocks the thread that it lives on:
//! few connections, short requests, one answer each.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

const MOST_CONNECTIONS: usize = 16;
const MOST_REQUEST_BYTES: usize = 8_192;
const MOST_CONNECTION_NS: u64 = 5_000_000_000;

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// What is still to be sent. Empty: the request is not complete.
    answer: Vec<u8>,
    since_ns: u64,
}

/// Answers GET /metrics; anything else gets 404.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    connections: Vec<Connection>,
}

impl Server {
    /// Listens at `address`.
    pub fn bind(address: SocketAddr) -> std::io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Server { listener, connections: Vec::new() })
    }

    /// What to poll: for writing if `true`, else for reading.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let connections = self.connections.iter();
        let connections = connections
            .map(|connection| (connection.stream.as_fd(), !connection.answer.is_empty()));
        std::iter::once((self.listener.as_fd(), false)).chain(connections)
    }

    /// Whether somebody is connected: then `serve` is to be called now and then, to give up who
    /// says nothing.
    pub fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Takes new connections, and answers those whose request is complete. `now_ns` is of any clock
    /// that never goes back; `body` is made only when it is asked for.
    pub fn serve(&mut self, now_ns: u64, body: impl Fn() -> String) {
        self.connections.retain(|connection| now_ns < connection.since_ns + MOST_CONNECTION_NS);
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                // Whoever has said nothing for longest goes first: idle connections must not keep
                // Prometheus out.
                let too_many = (self.connections.len() + 1).saturating_sub(MOST_CONNECTIONS);
                self.connections.drain(..too_many);
                self.connections.push(Connection {
                    stream,
                    request: vec![],
                    answer: vec![],
                    since_ns: now_ns,
                });
            }
        }
        self.connections.retain_mut(|connection| advance(connection, &body));
    }
}

/// Whether the connection is to be kept.
fn advance(connection: &mut Connection, body: &impl Fn() -> String) -> bool {
    if !connection.answer.is_empty() {
        return send(connection);
    }
    let mut buffer = [0; 1_024];
    let mut more = true;
    while more {
        match connection.stream.read(&mut buffer) {
            // A client may be done with sending, and wait for its answer.
            Ok(0) => more = false,
            Ok(count) => connection.request.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return false,
        }
        if connection.request.len() > MOST_REQUEST_BYTES {
            return false;
        }
    }
    if !connection.request.windows(4).any(|window| window == b"\r\n\r\n") {
        return more;
    }
    let found = connection.request.starts_with(b"GET /metrics ");
    let (code, text) =
        if found { ("200 OK", body()) } else { ("404 Not Found", "GET /metrics\n".to_owned()) };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    connection.answer = (head + &text).into_bytes();
    send(connection)
}

/// Sends as much of the answer as the socket takes: a page may be longer than its buffer. Whether
/// there is more.
fn send(connection: &mut Connection) -> bool {
    loop {
        match connection.stream.write(&connection.answer) {
            Ok(sent) => drop(connection.answer.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        if connection.answer.is_empty() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client gets for what it sends.
    fn ask(server: &mut Server, request: &str) -> String {
        let mut client = TcpStream::connect(server.listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        // The client is done once the server closed: its request may take several looks to come
        // through.
        client.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        loop {
            server.serve(0, || "a 1\n".to_owned());
            match client.read_to_end(&mut answer) {
                Ok(_) => return String::from_utf8(answer).unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    #[test]
    fn metrics_are_found_and_nothing_else_is() {
        let mut server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let answer = ask(&mut server, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na 1\n"),
            "{answer}"
        );
        assert!(ask(&mut server, "GET /secrets HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert_eq!(ask(&mut server, "GET /metrics"), "", "half a request is no request");
        assert_eq!(ask(&mut server, &"x".repeat(MOST_REQUEST_BYTES + 1)), "");
        assert!(!server.has_connections());
    }

    #[test]
    fn an_answer_that_no_socket_buffer_holds_comes_whole() {
        let mut server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let text = "a 1\n".repeat(8 << 20);
        let mut client = TcpStream::connect(server.listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        // One that never reads what it asked for is given up after a while, like one that says
        // nothing.
        let mut lazy = TcpStream::connect(server.listener.local_addr().unwrap()).unwrap();
        lazy.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        loop {
            server.serve(0, || text.clone());
            match client.read_to_end(&mut answer) {
                Ok(_) => break,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(answer.ends_with(text.as_bytes()), "{} bytes", answer.len());
        assert!(server.descriptors().any(|(_, writes)| writes));
        server.serve(MOST_CONNECTION_NS, String::new);
        assert!(!server.has_connections());
    }

    #[test]
    fn connections_that_say_nothing_are_bounded_in_number_and_time() {
        let mut server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.listener.local_addr().unwrap();
        let idle: Vec<_> =
            (0..MOST_CONNECTIONS + 3).map(|_| TcpStream::connect(address).unwrap()).collect();
        server.serve(0, String::new);
        assert_eq!(server.descriptors().count(), 1 + MOST_CONNECTIONS);
        let answer = ask(&mut server, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "the oldest made room: {answer}");
        server.serve(MOST_CONNECTION_NS, String::new);
        assert!(!server.has_connections());
        drop(idle);
    }
}
