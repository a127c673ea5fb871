//! With a switch that is a socket: port 5410 of an address of this test's own on the loopback.

use super::*;
use netchain_protocol::message::REPLY;
use netchain_protocol::{Founding, Member, Message, PORT, Ring, Status};
use std::net::{Ipv4Addr, UdpSocket};

/// A switch that answers each request `wait` later; writes of the key `silent` never.
fn switch(at: Ipv4Addr, wait: Duration) -> Config {
    let socket = UdpSocket::bind((at, PORT)).unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let mut message = Message::decode(&bytes[..length]).unwrap();
            message.flags = REPLY;
            message.status = match message.view {
                0 => Status::OldView,
                _ => Status::Done,
            };
            (message.view, message.chain) = (1, vec![at]);
            if message.status == Status::Done && message.key == Key::from_name("silent").unwrap() {
                continue;
            }
            std::thread::sleep(wait);
            socket.send_to(&message.encode().unwrap(), from).unwrap();
        }
    });
    let founding = Founding {
        cluster: "0123456789abcdef".into(),
        groups: 1,
        virtual_nodes: 1,
        failures: 0,
        member: vec![Member { address: at, rack: "a".into() }],
    };
    Config { deadline_ms: 10_000, ..Config::new(Ring::found(founding).unwrap()) }
}

fn key(name: &str) -> Key {
    Key::from_name(name).unwrap()
}

fn local<T>(run: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run)
}

#[test]
fn many_tasks_share_a_client() {
    let config = switch([127, 54, 1, 1].into(), Duration::ZERO);
    local(async {
        let client = AsyncClient::new(config).unwrap();
        let tasks: Vec<_> = (0..1_000u32)
            .map(|at| {
                let client = client.clone();
                tokio::spawn(async move {
                    let value = at.to_be_bytes();
                    client.put(&key("a"), &value).await.unwrap().done().unwrap().now.value
                })
            })
            .collect();
        for (at, task) in (0u32..).zip(tasks) {
            assert_eq!(task.await.unwrap(), Some(at.to_be_bytes().to_vec()));
        }
        client.close().await;
        assert!(matches!(client.get(&key("a")).await, Err(Failed::Closed)));
    });
}

/// Dropped futures give their numbers back at once, so others do not wait for them.
#[test]
fn dropped_futures_leave_the_window() {
    let config = Config { identities: 1, ..switch([127, 54, 1, 2].into(), Duration::ZERO) };
    local(async {
        let client = AsyncClient::new(config).unwrap();
        client.get(&key("a")).await.unwrap();
        for _ in 0..600 {
            let mut dropped = Box::pin(client.put(&key("silent"), b"x"));
            assert!(futures_pending(dropped.as_mut()).await);
        }
        assert_eq!(client.outstanding(), 0);
        assert!(client.put(&key("a"), b"x").await.unwrap().done().is_some());
    });
}

/// Polls once.
async fn futures_pending(mut future: Pin<&mut Asking>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

/// More writes than a window holds wait for their turn.
#[test]
fn writes_wait_for_the_window() {
    let config = Config { identities: 1, ..switch([127, 54, 1, 3].into(), Duration::ZERO) };
    local(async {
        let client = AsyncClient::new(config).unwrap();
        let asked = (0..700).map(|_| client.put(&key("a"), b"x")).map(tokio::spawn);
        for task in asked.collect::<Vec<_>>() {
            assert!(task.await.unwrap().unwrap().done().is_some());
        }
    });
}

#[test]
fn close_waits_for_what_is_under_way() {
    let config = switch([127, 54, 1, 4].into(), Duration::from_millis(20));
    local(async {
        let client = AsyncClient::new(config).unwrap();
        let asked = tokio::spawn(client.put(&key("a"), b"x"));
        tokio::task::yield_now().await;
        client.close().await;
        assert!(asked.await.unwrap().unwrap().done().is_some());
    });
}

#[test]
fn a_deadline_of_its_own() {
    let config = switch([127, 54, 1, 5].into(), Duration::ZERO);
    local(async {
        let client = AsyncClient::new(config).unwrap();
        client.get(&key("a")).await.unwrap();
        let asked = client.put(&key("silent"), b"x").within(Duration::from_millis(5));
        assert_eq!(asked.await.unwrap(), Outcome::Unknown);
    });
}

/// A runtime that ends takes the driver with it.
#[test]
fn without_its_runtime_a_client_is_closed() {
    let config = switch([127, 54, 1, 6].into(), Duration::ZERO);
    let client = local(async { AsyncClient::new(config).unwrap() });
    let failed = local(async move { client.get(&key("a")).await });
    assert!(matches!(failed, Err(Failed::Closed)));
}
