use netchain_protocol::*;
use num_bigint::BigInt;
use p4_interpreter::{Interpreter, KeyMatch, RuntimeEntry, object::Objects};
use p4_ir::*;
use std::net::Ipv4Addr;
fn main() {
    let t = std::time::Instant::now();
    let program = netchain_sim::compile(None).unwrap();
    println!("compile {:?}", t.elapsed());
    for t in &program.tables {
        println!(
            "{} {:?}",
            t.name,
            t.actions
                .iter()
                .map(|a| program.actions[a.action.index()].name.clone())
                .collect::<Vec<_>>()
        );
    }
    for t in &program.externs {
        println!("{} {}", t.name, t.extern_type);
    }
    static S: &[&dyn p4_interpreter::object::ObjectKinds] = &[&netchain_compiler::Meaning];
    let mut i = Interpreter::new(&program, Objects(S)).unwrap();
    use p4_interpreter::network as n;
    let mut net = n::Network::default();
    net.ports.insert(1, n::Port { mac: 2, ..Default::default() });
    net.routes.push((
        Ipv4Addr::new(0, 0, 0, 0).into(),
        0,
        n::Way::Via { gateway: Ipv4Addr::new(10, 0, 0, 1).into(), port: 1 },
    ));
    net.neighbors.insert((1, Ipv4Addr::new(10, 0, 0, 1).into()), 77);
    i.set_network(net);
    let me = Ipv4Addr::new(10, 9, 0, 1);
    let m = |v: u128, w: u32| KeyMatch { value: v.into(), mask: (BigInt::from(1) << w) - 1 };
    let tid =
        |s: &str| TableId(program.tables.iter().position(|t| t.name.ends_with(s)).unwrap() as u32);
    let call = |t: &str, a: &str, args: Vec<u64>| {
        let t = &program.tables[tid(t).index()];
        ActionCall {
            action: t
                .actions
                .iter()
                .position(|x| program.actions[x.action.index()].name.ends_with(a))
                .unwrap() as u32,
            arguments: args.into_iter().map(BigInt::from).collect(),
        }
    };
    i.add_entry(
        tid("destinations"),
        RuntimeEntry::new(
            vec![m(me.to_bits().into(), 32)],
            0,
            call("destinations", "serve", vec![7]),
        ),
    );
    i.add_entry(
        tid("roles"),
        RuntimeEntry::new(
            vec![m(0, 16)],
            0,
            call("roles", "take_part", vec![1, 1, 3, 0, 1, me.to_bits().into(), 0, 0, 0]),
        ),
    );
    let k = netchain_compiler::supply::ClientKey {
        id: 0,
        secret: wire::Secret([0; 16]),
        prefix: (0, 0),
        rights: 3,
        interval_ns: 0,
        ahead_ns: 0,
    };
    i.supply("tags", "client_key", &k.numbers()).unwrap();
    let msg = |op, value: Option<Vec<u8>>, number| Message {
        operation: op,
        status: Status::Request,
        flags: 0,
        key_id: 0,
        tag: 0,
        ring: 7,
        view: 1,
        group: 0,
        client: 5,
        number,
        version: 0,
        operand: 0,
        key: Key([3; 16]),
        chain: vec![],
        records: Default::default(),
        room: Room::Small,
        value,
    };
    let frame = |m: &Message| {
        let p = m.encode().unwrap();
        let mut f = vec![0u8; 12];
        f.extend([8, 0]);
        f.extend([0x45, 0]);
        f.extend(((28 + p.len()) as u16).to_be_bytes());
        f.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        f.extend(Ipv4Addr::new(10, 1, 0, 1).octets());
        f.extend(me.octets());
        f.extend(4000u16.to_be_bytes());
        f.extend(5410u16.to_be_bytes());
        f.extend(((8 + p.len()) as u16).to_be_bytes());
        f.extend([0, 0]);
        f.extend(p);
        f
    };
    for (name, op) in [("put", Operation::Put), ("read", Operation::Read)] {
        let t = std::time::Instant::now();
        let mut last = None;
        for n in 0..2000 {
            let value = (op == Operation::Put).then(|| vec![1; 8]);
            last = Some(i.run(&frame(&msg(op, value, n + 1)), 1, 1000).unwrap());
        }
        println!(
            "{name} {:?} each; {:?}",
            t.elapsed() / 2000,
            match last {
                Some(p4_interpreter::Verdict::Forward { frame, .. }) =>
                    Message::decode(&frame[42..]).map(|m| m.status).map_err(|e| e.to_string()),
                o => Err(format!("{o:?}")),
            }
        );
    }
}
