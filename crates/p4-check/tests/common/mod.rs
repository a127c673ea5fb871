//! Programs around what a test is about, and random changes of them.
#![allow(dead_code)]

/// A whole v1model program: `top` before the blocks, `locals` in ingress, `apply` in its apply block.
pub fn program(top: &str, locals: &str, apply: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
header h_t {{ bit<8> a; bit<16> b; int<8> c; bit<1> d; }}
struct headers_t {{ h_t h; h_t g; h_t[4] s; }}
struct meta_t {{ bit<8> x; bit<16> y; bool z; }}
{top}
parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    state start {{ packet.extract(hdr.h); transition accept; }}
}}
control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
{locals}
    apply {{
{apply}
    }}
}}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{ apply {{ }} }}
control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control D(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"
    )
}

/// xorshift64*: good enough to break programs, and the same everywhere for a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Bytes as text, some of them P4's own punctuation so that the parser gets further.
pub fn noise(random: &mut Random) -> String {
    let length = random.below(300);
    let bytes: Vec<u8> = (0..length)
        .map(|_| match random.below(3) {
            0 => random.below(256) as u8,
            1 => b"{}()<>;:,.=+-*/&|^~!@#\"\\ \n"[random.below(26)],
            _ => b'a' + random.below(26) as u8,
        })
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Words, numbers and single other characters.
pub fn words(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let end = if word(c) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { c.len_utf8() };
        out.push(&rest[..end]);
        rest = &rest[end..];
    }
    out
}

/// One to four words of the program's part after `keep` words replaced, dropped, doubled or swapped.
pub fn mutate(words: &[&str], keep: usize, random: &mut Random) -> String {
    const EXTRA: &[&str] = &[
        "bit<8>",
        "int<8>",
        "bool",
        "0",
        "1",
        "-1",
        "4294967296",
        "99999999999999999999999",
        "8w255",
        "true",
        "error",
        "apply",
        "hdr",
        "{",
        "}",
        "(",
        ")",
        ";",
        "exit",
        "return",
        "transition",
        "state",
        "const",
        "in",
        "out",
        "<<",
        "++",
        "[3:0]",
        "&&&",
        "..",
        "{...}",
        "{#}",
        "_",
        "default",
        "isValid()",
        "next",
        "struct",
        "header",
        "tuple<bit<8>, bit<8>>",
    ];
    let mut list: Vec<&str> = words.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = keep + random.below(list.len() - keep);
        match random.below(5) {
            0 => list[at] = EXTRA[random.below(EXTRA.len())],
            1 => list[at] = words[random.below(words.len())],
            2 => {
                list.remove(at);
            }
            3 => list.insert(at, EXTRA[random.below(EXTRA.len())]),
            _ => {
                let other = keep + random.below(list.len() - keep);
                list.swap(at, other);
            }
        }
    }
    list.concat()
}

/// Runs `count` texts of each kind through the checker; panics, with the seed, if one takes longer than 5 s.
pub fn fuzz(seed: u64, count: usize) {
    println!("seed {seed}");
    let mut random = Random(seed | 1);
    let nat = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/nat.p4");
    let whole = p4_check::check_file(nat.as_ref(), &Default::default());
    assert!(!whole.has_errors(), "{}", whole.render(false));
    let lines = whole.source_map.text().lines().filter(|l| !l.starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n");
    let all = words(&text);
    let prelude = text.find("TYPE_IPV4").map_or(0, |at| words(&text[..at]).len());
    let mut good = 0;
    for i in 0..count {
        for text in [noise(&mut random), mutate(&all, prelude, &mut random)] {
            let started = std::time::Instant::now();
            let checked = std::panic::catch_unwind(|| {
                let outcome = p4_check::check_preprocessed("fuzz.p4", &text);
                let shown = outcome.render(false).len();
                let ir = outcome.program.as_ref().map(|p| p.to_string().len());
                (shown, ir)
            });
            let slow = started.elapsed().as_secs() >= 5;
            if checked.is_err() || slow {
                let file = std::env::temp_dir().join(format!("p4-check-fuzz-{seed}-{i}.p4"));
                let _ = std::fs::write(&file, &text);
                panic!("seed {seed}, input {i}: {} ({})", if slow { "too slow" } else { "panic" }, file.display());
            }
            good += usize::from(checked.is_ok_and(|(_, ir)| ir.is_some()));
        }
    }
    println!("{count} random texts and {count} mutated programs: no panic; {good} were good programs");
}
