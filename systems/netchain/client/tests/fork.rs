//! A child of a fork is another client, or none.

use netchain_client::{
    AsyncClient, Client, Config, Failed, Founding, Key, Member, Outcome, Pipeline, Request, Ring,
};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

/// Identities and addresses of the clients whose writes came.
type Seen = Arc<Mutex<Vec<(u64, SocketAddr)>>>;

/// A switch that answers all requests.
fn switch(at: Ipv4Addr) -> (Config, Seen) {
    let socket = UdpSocket::bind((at, 5410)).unwrap();
    let seen = Seen::default();
    let notes = seen.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let view = u32::from_be_bytes(bytes[20..24].try_into().unwrap());
            let client = u64::from_be_bytes(bytes[32..40].try_into().unwrap());
            if view != 0 {
                notes.lock().unwrap().push((client, from));
            }
            // A reply: DONE, or OLD_VIEW with view 1 and this switch as its chain.
            bytes[2..6].copy_from_slice(&[if view == 0 { 5 } else { 1 }, 1, 0x80, 0]);
            bytes[20..24].copy_from_slice(&1u32.to_be_bytes());
            bytes[72..76].copy_from_slice(&at.octets());
            socket.send_to(&bytes[..length], from).unwrap();
        }
    });
    let founding = Founding {
        cluster: "0123456789abcdef".into(),
        groups: 1,
        virtual_nodes: 1,
        failures: 0,
        member: vec![Member { address: at, rack: "a".into() }],
    };
    (Config::new(Ring::found(founding).unwrap()), seen)
}

/// Runs `check` in a child; what it returned.
fn in_a_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls nothing but `check` and _exit; no other thread of this test holds a
    // lock that `check` takes (the switch's thread has its own).
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or(false);
        // SAFETY: it ends the child without running what the parent's threads left behind.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is an int that lives until the call returns.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

#[test]
fn a_child_never_has_the_parents_numbers() {
    let (config, seen) = switch([127, 54, 2, 1].into());
    let key = Key::from_name("foo").unwrap();
    let done = |outcome: Result<Outcome, Failed>| outcome.unwrap().done().is_some();
    let mut client = Client::new(config.clone()).unwrap();
    assert!(done(client.put(&key, b"x")));
    assert!(in_a_child(|| done(client.put(&key, b"y"))));
    assert!(done(client.put(&key, b"z")), "the parent goes on");
    let identities = seen.lock().unwrap().clone();
    let [first, child, again] = identities[..] else { panic!("{identities:?}") };
    assert!(first == again && first.0 != child.0 && first.1 != child.1, "{identities:?}");

    let mut pipeline = Pipeline::new(config.clone()).unwrap();
    pipeline.submit(Request::put(&key, b"x")).unwrap();
    let refuses = |pipeline: &mut Pipeline| {
        let begun = pipeline.submit(Request::get(&key));
        matches!(begun, Err(Failed::Forked))
            && matches!(pipeline.next(None), Err(Failed::Forked))
            && matches!(pipeline.turn(), Err(Failed::Forked))
            && pipeline.renew().unwrap().submit(Request::get(&key)).is_ok()
    };
    assert!(in_a_child(|| refuses(&mut pipeline)));
    assert!(pipeline.next(None).unwrap().unwrap().1.unwrap().done().is_some());

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async { AsyncClient::new(config).unwrap() });
    let ask = || {
        let waker = std::task::Waker::noop();
        let asking = std::pin::pin!(client.put(&key, b"x"));
        asking.poll(&mut std::task::Context::from_waker(waker))
    };
    assert!(in_a_child(|| matches!(ask(), std::task::Poll::Ready(Err(Failed::Forked)))));
    assert!(done(runtime.block_on(client.put(&key, b"x"))));
}
