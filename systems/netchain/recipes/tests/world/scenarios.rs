//! One scenario for each recipe: what it runs, and what must hold.

use super::{SimStore, Trouble, World, run};
use netchain_client::Key;
use netchain_recipes::{
    Barrier, Counted, Counter, Election, Error, Lock, Membership, RwLock, Seat, Semaphore, Store,
    Transaction,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(200);
const LEASE_US: u64 = 200_000;
const HARD: Trouble = Trouble { pause_us: 500_000, kills: true };
const SOFT: Trouble = Trouble { pause_us: 300_000, kills: false };

pub type Scenario = fn(u64) -> Rc<RefCell<World>>;

/// By name.
pub const ALL: [(&str, Scenario); 9] = [
    ("lock", lock),
    ("rwlock", rwlock),
    ("semaphore", semaphore),
    ("election", election),
    ("membership", membership),
    ("counter", counter),
    ("unique", unique),
    ("barrier", barrier),
    ("transaction", transaction),
];

/// Works with a seat: refreshes it in time, late or never; says all the time what it believes.
async fn work(store: &SimStore, seat: Seat<&SimStore>, writes: bool, most: usize) {
    let mut seat = seat;
    store.holds("it", seat.left(), writes, most);
    for _ in 0..store.random_below(6) {
        let every_us = [LEASE_US / 4, LEASE_US / 2, LEASE_US * 2][store.random_below(3) as usize];
        store.sleep(every_us).await;
        if !seat.refresh().await.unwrap() {
            break;
        }
        store.holds("it", seat.left(), writes, most);
    }
    store.gives_up("it");
    if store.random_below(10) > 0 {
        seat.release().await.unwrap();
    } else {
        store.abandons();
    }
}

fn lock(seed: u64) -> Rc<RefCell<World>> {
    run(seed, 5, HARD, LEASE_US, |store| {
        Box::pin(async move {
            for _ in 0..5 {
                let lock = Lock::new(&store, "a", LEASE).unwrap();
                store.waits("it");
                let patience = (store.random_below(4) == 0).then_some(LEASE);
                if let Some(seat) = lock.take(patience).await.unwrap() {
                    store.token("it", seat.token());
                    work(&store, seat, true, 1).await;
                } else {
                    store.gives_up("it");
                }
            }
        })
    })
}

fn rwlock(seed: u64) -> Rc<RefCell<World>> {
    run(seed, 5, HARD, LEASE_US, |store| {
        Box::pin(async move {
            for _ in 0..5 {
                let lock = RwLock::new(&store, "a", LEASE).unwrap();
                let writes = store.random_below(3) == 0;
                store.waits("it");
                let seat = match writes {
                    true => lock.write(None).await,
                    false => lock.read(None).await,
                };
                work(&store, seat.unwrap().unwrap(), writes, usize::MAX).await;
            }
        })
    })
}

fn semaphore(seed: u64) -> Rc<RefCell<World>> {
    run(seed, 6, HARD, LEASE_US, |store| {
        Box::pin(async move {
            for _ in 0..5 {
                let semaphore = Semaphore::new(&store, "a", 2, LEASE).unwrap();
                store.waits("it");
                let seat = semaphore.take(None).await.unwrap().unwrap();
                work(&store, seat, false, 2).await;
            }
        })
    })
}

fn election(seed: u64) -> Rc<RefCell<World>> {
    run(seed, 4, HARD, LEASE_US, |store| {
        Box::pin(async move {
            for _ in 0..5 {
                let election = Election::new(&store, "a", LEASE).unwrap();
                store.waits("it");
                let mut leader = election.campaign(b"name", None).await.unwrap().unwrap();
                store.token("it", leader.token());
                store.holds("it", leader.left(), true, 1);
                for _ in 0..store.random_below(6) {
                    let every_us = [LEASE_US / 4, LEASE_US * 2][store.random_below(2) as usize];
                    store.sleep(every_us).await;
                    if !leader.refresh().await.unwrap() {
                        break;
                    }
                    store.holds("it", leader.left(), true, 1);
                }
                store.gives_up("it");
                if store.random_below(10) > 0 {
                    leader.resign().await.unwrap();
                } else {
                    store.abandons();
                }
            }
        })
    })
}

/// Members with places, and observers who must see all of them that believe to be.
fn membership(seed: u64) -> Rc<RefCell<World>> {
    const PLACES: u16 = 4;
    let object = |place: u16| format!("place {place}");
    run(seed, 6, HARD, u64::MAX / 1000, move |store| {
        Box::pin(async move {
            let group = Membership::new(&store, "a", PLACES).unwrap();
            if store.client < 2 {
                let mut observer = group.observer();
                for _ in 0..60 {
                    let places: Vec<_> =
                        (0..PLACES).map(|it| store.believers(&object(it))).collect();
                    if let Some(seen) = observer.look().await.unwrap() {
                        store.count("looks", 1);
                        for (place, members) in (0..PLACES).zip(places) {
                            let is_seen = seen.iter().any(|(at, _)| *at == place);
                            // (One that left meanwhile may be missing.)
                            let after = store.believers(&object(place));
                            let stayed = members.iter().any(|member| after.contains(member));
                            assert!(is_seen || !stayed, "place {place}: {members:?} not seen");
                        }
                    }
                    store.sleep(LEASE_US / 5).await;
                }
                return;
            }
            for _ in 0..4 {
                let mut member = group.join(b"told", LEASE, None).await.unwrap().unwrap();
                let place = object(member.place());
                store.holds(&place, member.left(), true, 1);
                for _ in 0..store.random_below(8) {
                    store.sleep(LEASE_US * (2 + store.random_below(3)) / 5).await;
                    if !member.refresh().await.unwrap() {
                        break;
                    }
                    store.holds(&place, member.left(), true, 1);
                }
                store.gives_up(&place);
                if store.random_below(3) > 0 {
                    member.leave().await.unwrap();
                }
            }
        })
    })
}

fn counter(seed: u64) -> Rc<RefCell<World>> {
    let world = run(seed, 4, SOFT, LEASE_US, |store| {
        Box::pin(async move {
            let counter = Counter::new(&store, "a").unwrap();
            for _ in 0..50 {
                match counter.add(1).await.unwrap() {
                    Counted::Done(_) => store.count("added", 1),
                    Counted::Unknown => store.count("unknown", 1),
                    Counted::NotDone => {}
                }
            }
        })
    });
    {
        let world = world.borrow();
        let value = world.keys[&Key::from_name("a").unwrap()].1.clone().unwrap();
        let total = u64::from_be_bytes(value.try_into().unwrap());
        let of = |what| world.counts.get(what).copied().unwrap_or_default();
        let (added, unknown) = (of("added"), of("unknown"));
        assert!((added..=added + unknown).contains(&total), "{added} + {unknown}?: {total}");
    }
    world
}

fn unique(seed: u64) -> Rc<RefCell<World>> {
    let all: Rc<RefCell<BTreeSet<u64>>> = Rc::default();
    run(seed, 4, SOFT, LEASE_US, move |store| {
        let all = all.clone();
        Box::pin(async move {
            let counter = Counter::new(&store, "a").unwrap();
            for _ in 0..30 {
                if let Some(number) = counter.unique().await.unwrap() {
                    assert!(all.borrow_mut().insert(number), "{number} twice");
                }
            }
        })
    })
}

fn barrier(seed: u64) -> Rc<RefCell<World>> {
    let there: Rc<RefCell<[u16; 6]>> = Rc::default();
    run(seed, 4, SOFT, LEASE_US, move |store| {
        let there = there.clone();
        Box::pin(async move {
            let mut barrier = Barrier::new(&store, "a", 4, store.client as u16).unwrap();
            for round in 0..6 {
                store.sleep(store.random_below(LEASE_US)).await;
                there.borrow_mut()[round] += 1;
                while !barrier.wait(Some(LEASE)).await.unwrap() {}
                assert_eq!(there.borrow()[round], 4, "round {round} is open");
            }
        })
    })
}

/// Accounts, between which money moves: the sum stays, and whoever reads them all sees it.
fn transaction(seed: u64) -> Rc<RefCell<World>> {
    const ACCOUNTS: [&str; 3] = ["a", "b", "c"];
    let lease = Duration::from_secs(3);
    let broken: Rc<RefCell<bool>> = Rc::default();
    run(seed, 3, SOFT, u64::MAX / 1000, move |store| {
        let broken = broken.clone();
        Box::pin(async move {
            let amount = |value: &Option<Vec<u8>>| {
                value.as_deref().map_or(100, |it| u64::from_be_bytes(it.try_into().unwrap()))
            };
            for _ in 0..8 {
                let from = store.random_below(3) as usize;
                let to = (from + 1 + store.random_below(2) as usize) % 3;
                let all = store.random_below(3) == 0;
                let names: &[&str] = if all { &ACCOUNTS } else { &[ACCOUNTS[from], ACCOUNTS[to]] };
                let transaction = Transaction::new(&store, names, lease).unwrap();
                let done = transaction.run(None, |values| {
                    if all {
                        let sum: u64 = values.values().map(amount).sum();
                        assert!(sum == 300 || *broken.borrow(), "the sum is {sum}");
                        return values
                            .iter()
                            .map(|(k, v)| (k.clone(), Some(amount(v))))
                            .map(bytes)
                            .collect();
                    }
                    let moved = amount(&values[ACCOUNTS[from]]).min(7);
                    let after = [
                        (ACCOUNTS[from].to_owned(), amount(&values[ACCOUNTS[from]]) - moved),
                        (ACCOUNTS[to].to_owned(), amount(&values[ACCOUNTS[to]]) + moved),
                    ];
                    after.map(|(name, amount)| bytes((name, Some(amount)))).into_iter().collect()
                });
                match done.await {
                    Ok(done) => store.count("transactions", u64::from(done.is_some())),
                    // (Isolation, and no more: some of its writes stay.)
                    Err(Error::LockLost { .. }) => {
                        store.count("locks lost", 1);
                        *broken.borrow_mut() = true;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
    })
}

fn bytes((name, amount): (String, Option<u64>)) -> (String, Option<Vec<u8>>) {
    (name, amount.map(|amount| amount.to_be_bytes().to_vec()))
}
