//! How long the program takes for a batch, by BPF_PROG_TEST_RUN. Needs root.
//!
//! `cargo run --release -p fast-chain --example time`. The member is in the middle of its chain,
//! and its next member is itself: so a frame that went on can come in again. *New*: each batch has
//! other records of 10,000, and all are newer; a run for itself, the median. *Again*: the same
//! batch, of which nothing is newer, many times.

use fast_chain::{Entry, Memory, Mode, ObjectShape, Program, Shape, ShardMirror, Standing};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use wire::{Batch, BatchHead, BatchRecord, KeyRing, PORT, RecordFlags, Secret};

const RECORDS: u32 = 10_000;
const RUNS: usize = 2_001;
const REPEAT: u32 = 100_000;
/// Not one of the namespace's own: a route goes there.
const MEMBER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), PORT);

fn keys() -> Result<KeyRing, Box<dyn Error>> {
    Ok(KeyRing::new(0, Secret([7; 16])).ok_or("the number of the secret")?)
}

fn key(number: u32) -> [u8; 13] {
    let mut key = [0; 13];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

/// Fills the shard, and turns it on.
fn fill(memory: &Arc<Memory>) -> ShardMirror {
    let mut mirror = ShardMirror::new(memory.clone(), 0);
    mirror.enter(|_| {});
    let here = (0..RECORDS).filter(|number| {
        let entry = Entry {
            slot: *number,
            object_id: 1,
            epoch: 1,
            seq: 1,
            owner: (1, 1),
            session: 1,
            flags: 0,
            key: &key(*number),
            value: &[0; 8],
        };
        mirror.put(None, &entry).is_some()
    });
    println!("{} of {RECORDS} records are here", here.count());
    mirror.leave(Some(&Standing { view: 1, previous: Some(MEMBER), next: Some(MEMBER) }));
    mirror
}

/// A frame with updates of these records.
fn frame(numbers: &[u32], seq: u64) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut records = Vec::new();
    for number in numbers {
        let flags = RecordFlags::NONE;
        let record = BatchRecord { object_id: 1, flags, epoch: 1, place: 0, seq, content: &[] };
        record.append_to(&key(*number), &seq.to_be_bytes(), &mut records)?;
    }
    let head = BatchHead {
        flags: 0,
        switch_id: 1,
        incarnation: 1,
        request_ns: 0,
        number: seq,
        view: 1,
        session: 1,
        stream: 0,
        client: *MEMBER.ip(),
        shard: 0,
    };
    let mut datagram = Vec::new();
    Batch::new(head, &records)?.append_to(&mut datagram);
    keys()?.sign(&mut datagram, *MEMBER.ip(), *MEMBER.ip());
    let bytes = datagram.len() as u16;
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((bytes + 28).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([MEMBER.ip().octets(), MEMBER.ip().octets()].concat());
    for number in [PORT, PORT, bytes + 8, 0] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(datagram);
    Ok(frame)
}

fn measure(program: &mut Program, records: usize) -> Result<(), Box<dyn Error>> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut numbers = |_| rng.random_range(0..RECORDS);
    let mut times = Vec::new();
    for run in 0..RUNS {
        let numbers: Vec<u32> = (0..records).map(&mut numbers).collect();
        let seq = (records * RUNS + run) as u64;
        let run = program.run(&frame(&numbers, seq)?, 1)?;
        // A record that had no room makes its batch user space's.
        if run.action == 4 {
            times.push(run.ns);
        }
    }
    times.sort_unstable();
    let new = *times.get(times.len() / 2).ok_or("no batch went on")?;
    let numbers: Vec<u32> = (0..records).map(|at| at as u32).collect();
    let again = program.run(&frame(&numbers, 2)?, REPEAT)?;
    if again.action != 4 {
        return Err("the same batch did not go on".into());
    }
    let each = |ns: u64| ns / records as u64;
    println!("{records:7} | {new:9} | {:9} | {:9} | {:9}", each(new), again.ns, each(again.ns));
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    netns::forward()?;
    netns::ip_batch(&[
        "link add out type veth peer name peer",
        "address add 10.9.0.1/24 dev out",
        "link set out up",
        "link set peer up",
        "neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev out nud permanent",
    ])?;
    let objects = vec![ObjectShape { id: 1, key_bytes: 13, value_bytes: 8 }];
    let shape = Shape { shards: 1, records: RECORDS, address: MEMBER, objects, seed: 5 };
    let mut program = Program::load(shape)?;
    // The setting for routes.
    let _link = program.attach(1, Mode::Generic)?;
    program.memory().set_keys(&keys()?);
    let _mirror = fill(program.memory());
    println!("{:7} | {:21} | {:21}", "", "new: ns", "again: ns");
    println!("{0:>7} | {1:>9} | {2:>9} | {1:>9} | {2:>9}", "records", "a message", "a record");
    [1, 8, 16, 29].into_iter().try_for_each(|records| measure(&mut program, records))
}

fn main() -> Result<(), Box<dyn Error>> {
    netns::inside_new(|| run().map_err(|error| error.to_string()))??;
    Ok(())
}
