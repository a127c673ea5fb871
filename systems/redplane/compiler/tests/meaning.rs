//! What the interpreters say of state objects on one switch, against the compiled object: the same
//! random accesses, packet by packet. Needs root.

use dataplane::{Dataplane, Object, Settings};
use p4_interpreter::object::Objects;
use p4_interpreter::tree::Tree;
use p4_interpreter::{Interpreter, Verdict};
use redplane_compiler::{ALONE, Meaning};
use redplane_switch::FlowRuntime;
use std::net::{Ipv4Addr, SocketAddrV4};
use xdp_backend::Options;

const OBJECTS: Objects = Objects(&[&Meaning]);
const SLOTS: u32 = 5;
const PACKETS: u32 = 3_000;

/// Operations by number; the packet comes back with what was read.
fn snapshots(width: u32) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
header h_t {{ bit<8> op; bit<8> key; bit<32> index; bit<64> value; bit<64> sum; bit<64> other; bit<8> result; }}
struct hs {{ h_t h; }}
struct m_t {{ }}
struct k_t {{ bit<8> k; }}
struct pair_t {{ bit<{width}> a; bit<{width}> b; }}
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {{
    state start {{ p.extract(hdr.h); transition accept; }}
}}
control V(inout hs hdr, inout m_t m) {{ apply {{ }} }}
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{
    SnapshotState<k_t, bit<{width}>>(3, {SLOTS}, 0, 0, Overdue.CONTINUE) o;
    apply {{
        s.egress_spec = 1;
        k_t key = {{ hdr.h.key }};
        bit<{width}> value = (bit<{width}>)hdr.h.value;
        bit<{width}> sum = 0;
        pair_t sums = {{ 0, 0 }};
        StateResult result = StateResult.MISS;
        if (hdr.h.op == 0) {{
            result = o.read(key, hdr.h.index, sum);
        }} else if (hdr.h.op == 1) {{
            result = o.write(key, hdr.h.index, value);
        }} else if (hdr.h.op == 2) {{
            result = o.add(key, hdr.h.index, value, sum);
        }} else if (hdr.h.op == 3) {{
            result = o.add_each(key, {{ hdr.h.index, 32w1 }}, value, sums);
            sum = sums.a;
        }} else if (hdr.h.op == 4) {{
            result = o.begin(key, value);
        }} else if (!o.is_overdue(key)) {{
            result = StateResult.HIT;
        }}
        if (result == StateResult.HIT) {{
            hdr.h.result = 1;
            hdr.h.sum = (bit<64>)sum;
            if (hdr.h.op == 3) {{ hdr.h.other = (bit<64>)sums.b; }}
        }}
    }}
}}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control D(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"
    )
}

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// One access: most in range, some deltas large, windows that mostly go on.
fn frame(random: &mut Random, window: &mut u64, mask: u64) -> Vec<u8> {
    let op = [0, 1, 2, 2, 3, 3, 3, 4, 5][random.below(9) as usize];
    let value = match op {
        4 => {
            *window = (*window + random.below(3)) & mask;
            window.wrapping_sub(random.below(2)).max(1) & mask
        }
        _ if random.below(4) == 0 => random.below(u64::MAX),
        _ => random.below(9),
    };
    let mut frame = vec![op, random.below(5) as u8];
    frame.extend((random.below(u64::from(SLOTS) + 1) as u32).to_be_bytes());
    frame.extend(value.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn load(source: &str, program: &p4_ir::Program) -> Dataplane {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("meaning.o");
    let made = xdp_backend::compile(program, &Options::new(ALONE), &object);
    let made = made.unwrap_or_else(|error| panic!("{error}\n{source}"));
    let mut opened = Object::open(&object, made.generated.manifest).unwrap();
    opened.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true }).unwrap();
    opened.load().unwrap()
}

#[test]
fn slots_of_one_switch() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    for (width, seed) in [(32, 1), (64, 2), (7, 3)] {
        let source = snapshots(width);
        let outcome = p4_check::check_source("meaning.p4", &source, &p4_syntax::Options::default());
        let program =
            outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
        let dataplane = load(&source, program);
        let mut lowered = Interpreter::new(program, OBJECTS).unwrap();
        let mut written = Tree::new(outcome.checked.as_ref().unwrap(), OBJECTS).unwrap();
        // Of snapshots the program sees nothing, but for packets without room.
        let taken = source.replace(", 0, 0, Overdue", ", 1000, 100000, Overdue");
        let taken = p4_check::check_source("meaning.p4", &taken, &p4_syntax::Options::default());
        let taken_program =
            taken.program.as_ref().unwrap_or_else(|| panic!("{}", taken.render(false)));
        let mut taken_lowered = Interpreter::new(taken_program, OBJECTS).unwrap();
        let mut taken_written = Tree::new(taken.checked.as_ref().unwrap(), OBJECTS).unwrap();
        let (mut random, mut window) = (Random(seed), 1);
        let (mut sums, mut begun, mut without_room) = (0, 0, 0);
        for number in 0..PACKETS {
            let frame = frame(&mut random, &mut window, u64::MAX >> (64 - width));
            let came = dataplane.run(&frame, 0, 0).unwrap();
            let expected = Ok(Verdict::Forward { port: 1, frame: came.frame.clone() });
            assert_eq!(
                lowered.run(&frame, 0, 0),
                expected,
                "seed {seed}, packet {number}: {frame:02x?}"
            );
            assert_eq!(
                written.run(&frame, 0, 0),
                expected,
                "seed {seed}, packet {number}: {frame:02x?}"
            );
            let expected = if came.frame[30] == 0 { Ok(Verdict::Drop) } else { expected };
            assert_eq!(
                taken_lowered.run(&frame, 0, 0),
                expected,
                "seed {seed}, packet {number}: {frame:02x?}"
            );
            assert_eq!(
                taken_written.run(&frame, 0, 0),
                expected,
                "seed {seed}, packet {number}: {frame:02x?}"
            );
            sums += u32::from(came.frame[14..30].iter().any(|byte| *byte != 0));
            begun += u32::from(frame[0] == 4);
            without_room += u32::from(came.frame[30] == 0);
        }
        assert!(sums > PACKETS / 8 && begun > PACKETS / 20, "{sums} sums, {begun} windows");
        assert!(without_room > PACKETS / 8, "{without_room} without room");
    }
}

/// Operations by number; the packet comes back with what was read.
fn flows(consistency: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
header h_t {{ bit<8> op; bit<8> key; bit<8> other; bit<32> value; bit<8> result; }}
struct hs {{ h_t h; }}
struct m_t {{ }}
struct k_t {{ bit<8> k; }}
struct v_t {{ bit<32> v; }}
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {{
    state start {{ p.extract(hdr.h); transition accept; }}
}}
control V(inout hs hdr, inout m_t m) {{ apply {{ }} }}
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{
    FlowState<k_t, v_t>(4, Consistency.{consistency}, Allocator.ZERO) o;
    apply {{
        s.egress_spec = 1;
        k_t key = {{ hdr.h.key }};
        v_t value;
        StateResult result;
        if (hdr.h.op == 0) {{
            result = o.get(key, value);
        }} else {{
            result = o.get_or_allocate(key, value);
        }}
        if (result == StateResult.HIT) {{
            hdr.h.result = 1;
            if (hdr.h.op == 2) {{
                v_t next = {{ value.v + hdr.h.value }};
                o.set(key, next);
            }}
            if (hdr.h.op == 3) {{
                o.phase(key, FlowPhase.CLOSED);
            }}
            hdr.h.value = value.v;
        }}
    }}
}}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control D(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"
    )
}

/// With a store that is always there, all consistency modes mean what a switch alone does, but for
/// flows without room.
#[test]
fn flows_of_one_switch() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let options = p4_syntax::Options::default();
    let local = p4_check::check_source("meaning.p4", &flows("LOCAL"), &options);
    let program = local.program.as_ref().unwrap_or_else(|| panic!("{}", local.render(false)));
    for (consistency, seed) in [("LOCAL", 1), ("LINEARIZABLE", 2), ("ASYNCHRONOUS", 3)] {
        let dataplane = load(&flows("LOCAL"), program);
        let outcome = p4_check::check_source("meaning.p4", &flows(consistency), &options);
        let program =
            outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
        let mut lowered = Interpreter::new(program, OBJECTS).unwrap();
        let mut written = Tree::new(outcome.checked.as_ref().unwrap(), OBJECTS).unwrap();
        let (mut random, mut without_room, mut sums) = (Random(seed), 0, 0);
        for number in 0..PACKETS {
            let mut frame = vec![random.below(4) as u8, random.below(6) as u8, 0];
            frame.extend((random.below(9) as u32).to_be_bytes());
            frame.resize(60, 0);
            let came = dataplane.run(&frame, 0, 0).unwrap();
            let has_no_room = frame[0] != 0 && came.frame[7] == 0;
            let expected = match has_no_room && consistency != "LOCAL" {
                true => Verdict::Drop,
                false => Verdict::Forward { port: 1, frame: came.frame.clone() },
            };
            let what = format!("{consistency}, seed {seed}, packet {number}: {frame:02x?}");
            assert_eq!(lowered.run(&frame, 0, 0), Ok(expected.clone()), "{what}");
            assert_eq!(written.run(&frame, 0, 0), Ok(expected), "{what}");
            without_room += u32::from(has_no_room);
            sums += u32::from(came.frame[3..7] > [0, 0, 0, 9][..]);
        }
        assert!(without_room > 100 && sums > 100, "{without_room} without room, {sums} sums");
    }
}

/// Numbers of FlowStates have gaps where other objects are declared before them. The verifier finds
/// what lies beside its place.
#[test]
fn a_flow_that_is_declared_behind_an_array() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let first = "SnapshotState<k_t, bit<32>>(9, 4, 1000, 100000, Overdue.CONTINUE) first;";
    let use_of_it = "bit<32> sum; first.add(key, 0, 1, sum); hdr.h.other = sum[7:0];";
    let source = flows("LOCAL")
        .replace("FlowState<", &format!("{first}\n    FlowState<"))
        .replace("value.v;\n        }\n", &format!("value.v;\n        }}\n        {use_of_it}\n"));
    let outcome = p4_check::check_source("meaning.p4", &source, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    load(&source, program);
}

/// Conversations of a NAT or load balancer; the packet comes back with what was allocated.
fn conversations(allocator: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
header h_t {{
    bit<32> source; bit<32> destination; bit<16> from; bit<16> to; bit<8> protocol; bit<8> allocates;
    bit<32> address; bit<16> port; bit<8> result;
}}
struct hs {{ h_t h; }}
struct m_t {{ }}
struct k_t {{ bit<32> source; bit<32> destination; bit<16> from; bit<16> to; bit<8> protocol; }}
struct v_t {{ bit<32> address; bit<16> port; }}
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {{
    state start {{ p.extract(hdr.h); transition accept; }}
}}
control V(inout hs hdr, inout m_t m) {{ apply {{ }} }}
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{
    FlowState<k_t, v_t>(400, Consistency.LOCAL, Allocator.{allocator}) o;
    apply {{
        s.egress_spec = 1;
        k_t key = {{ hdr.h.source, hdr.h.destination, hdr.h.from, hdr.h.to, hdr.h.protocol }};
        v_t value;
        StateResult result;
        if (hdr.h.allocates == 0) {{
            result = o.get(key, value);
        }} else {{
            result = o.get_or_allocate(key, value);
        }}
        if (result == StateResult.HIT) {{
            hdr.h.result = 1;
            hdr.h.address = value.address;
            hdr.h.port = value.port;
        }}
    }}
}}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control D(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"
    )
}

/// A packet of a few hosts, or one that returns to what was allocated for an earlier one.
fn conversation(random: &mut Random, earlier: &[Vec<u8>], allocator: &str) -> Vec<u8> {
    let mut frame = vec![10, 0, 0, random.below(6) as u8, 203, 0, 113, random.below(3) as u8];
    frame.extend((1000 + random.below(12) as u16).to_be_bytes());
    frame.extend((80 + random.below(3) as u16).to_be_bytes());
    frame.extend([6, random.below(4).min(1) as u8]);
    if random.below(3) == 0 && !earlier.is_empty() {
        let came = &earlier[random.below(earlier.len() as u64) as usize];
        let returning =
            [&came[4..8], &came[14..18], &came[10..12], &came[18..20], &came[12..13], &[0]];
        let backend =
            [&came[0..4], &came[14..18], &came[8..10], &came[18..20], &came[12..13], &[0]];
        frame = if allocator == "NAT_PORTS" { returning.concat() } else { backend.concat() };
    }
    frame.resize(60, 0);
    frame
}

/// Nothing in a choice is random: what is allocated is compared byte by byte, also where pool and
/// table are exhausted.
#[test]
fn allocators_of_one_switch() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let pool =
        [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 9)];
    let backends =
        [(10, 8080, 1), (11, 8081, 3), (12, 8080, 0), (1, 80, 2)].map(|(last, port, weight)| {
            (SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, last), port), weight)
        });
    for (allocator, seed) in [("NAT_PORTS", 1), ("BACKENDS", 2)] {
        let source = conversations(allocator);
        let outcome = p4_check::check_source("meaning.p4", &source, &p4_syntax::Options::default());
        let program =
            outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
        let dataplane = load(&source, program);
        let mut lowered = Interpreter::new(program, OBJECTS).unwrap();
        let mut written = Tree::new(outcome.checked.as_ref().unwrap(), OBJECTS).unwrap();
        let (what, numbers) = match allocator {
            "NAT_PORTS" => ("nat_pool", redplane_compiler::nat_pool(&pool, 1004, 1009)),
            _ => ("backends", redplane_compiler::backends(&backends)),
        };
        dataplane.set_nat_pool(&pool, 1004, 1009).unwrap();
        dataplane.set_backends(&backends).unwrap();
        lowered.supply("o", what, &numbers).unwrap();
        written.supply("o", what, &numbers).unwrap();
        let (mut random, mut earlier, mut misses) = (Random(seed), Vec::new(), 0);
        for number in 0..PACKETS {
            let frame = conversation(&mut random, &earlier, allocator);
            let came = dataplane.run(&frame, 0, 0).unwrap().frame;
            let expected = Ok(Verdict::Forward { port: 1, frame: came.clone() });
            assert_eq!(
                lowered.run(&frame, 0, 0),
                expected,
                "{allocator}, packet {number}: {frame:02x?}"
            );
            assert_eq!(
                written.run(&frame, 0, 0),
                expected,
                "{allocator}, packet {number}: {frame:02x?}"
            );
            misses += u32::from(frame[13] == 1 && came[20] == 0);
            if came[20] == 1 {
                earlier.push(came);
            }
        }
        assert!(
            earlier.len() > 1000 && misses > 100,
            "{allocator}: {} hits, {misses} misses",
            earlier.len()
        );
    }
}

/// Several sets and look-ups of a flow, by the bits of `op`; the packet comes back with what the
/// last one read. Each operation that a packet goes through changes what the next one sees.
fn several_sets() -> String {
    let text = flows("LOCAL");
    let begin = text.find("        if (result == StateResult.HIT)").expect("what a hit does");
    let end = text.find("control E(").expect("the egress");
    let several = "
        if (result != StateResult.HIT) { return; }
        hdr.h.result = 1;
        v_t next = { value.v + hdr.h.value };
        o.set(key, next);
        if (hdr.h.op[1:1] == 1) {
            o.get({ hdr.h.other }, value);
            next.v = next.v ^ 0x55;
            o.get(key, value);
            value.v = value.v + next.v;
            o.set(key, value);
        }
        if (hdr.h.op[2:2] == 1) {
            // The compiler cannot tell the keys apart.
            o.set({ hdr.h.other ^ 0 }, { 7 });
            hdr.h.result = 2;
        }
        o.get(key, value);
        hdr.h.value = value.v;
        if (hdr.h.op[3:3] == 1) { mark_to_drop(s); }
        if (hdr.h.op[4:4] == 1) { to_host(); }
    }
}
";
    [&text[..begin], several, &text[end..]].concat()
}

/// What a packet sets it reads back; to others all of it happens, or nothing.
#[test]
fn several_sets_of_one_switch() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let source = several_sets();
    let outcome = p4_check::check_source("meaning.p4", &source, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let dataplane = load(&source, program);
    let mut lowered = Interpreter::new(program, OBJECTS).unwrap();
    let mut written = Tree::new(outcome.checked.as_ref().unwrap(), OBJECTS).unwrap();
    let seed = 1;
    let (mut random, mut conflicts, mut sums) = (Random(seed), 0, 0);
    for number in 0..PACKETS {
        let op = [1, 3, 3, 5, 7, 11, 19][random.below(7) as usize];
        let mut frame = vec![op, random.below(6) as u8, random.below(6) as u8];
        frame.extend((random.below(9) as u32).to_be_bytes());
        frame.resize(60, 0);
        let came = dataplane.run(&frame, 0, 0).unwrap();
        let expected = match came.verdict {
            dataplane::Verdict::Forward { port } => {
                Verdict::Forward { port, frame: came.frame.clone() }
            }
            dataplane::Verdict::Drop => Verdict::Drop,
            dataplane::Verdict::ToHost => Verdict::ToHost,
        };
        let what = format!("seed {seed}, packet {number}: {frame:02x?}");
        assert_eq!(lowered.run(&frame, 0, 0), Ok(expected.clone()), "{what}");
        assert_eq!(written.run(&frame, 0, 0), Ok(expected.clone()), "{what}");
        conflicts += u32::from(expected == Verdict::Drop && op & 8 == 0);
        sums += u32::from(came.frame[7] == 1 && came.frame[3..7] > [0, 0, 0, 99][..]);
    }
    assert!(conflicts > 100 && sums > 100, "{conflicts} conflicts, {sums} sums");
}

/// A packet that another CPU's packet gets ahead of enters the program again. It must not have set
/// anything by then.
#[test]
fn several_sets_on_two_cpus() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let source = several_sets().replace("next.v ^ 0x55", "0").replace("next.v;", "3;");
    let outcome = p4_check::check_source("meaning.p4", &source, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let dataplane = load(&source, program);
    let frame = |value: u8| {
        let mut frame = vec![3, 1, 2, 0, 0, 0, value];
        frame.resize(60, 0);
        frame
    };
    dataplane.run(&frame(0), 0, 0).unwrap();
    let threads = 4;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..PACKETS {
                    dataplane.run(&frame(1), 0, 0).unwrap();
                }
            });
        }
    });
    let came = dataplane.run(&frame(0), 0, 0).unwrap().frame;
    let sum = u32::from_be_bytes(came[3..7].try_into().unwrap());
    assert_eq!(sum, 3 + threads * PACKETS * 4 + 3);
}
