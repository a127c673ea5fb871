//! Random bytes, and small changes of texts. (Of bytes: `fuzz_door::mutate`.)

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// What P4 programs are made of, for putting where it does not belong.
const EXTRA: &[&str] = &[
    "bit<8>",
    "int<8>",
    "bit<0>",
    "bit<1>",
    "bit<2048>",
    "varbit<8>",
    "bool",
    "0",
    "1",
    "-1",
    "4294967296",
    "99999999999999999999999",
    "8w255",
    "4s7",
    "true",
    "false",
    "error",
    "apply",
    "hdr",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ";",
    ",",
    ".",
    "exit",
    "return",
    "transition",
    "accept",
    "reject",
    "state",
    "const",
    "in",
    "out",
    "inout",
    "<<",
    ">>",
    "++",
    "|+|",
    "|-|",
    "/",
    "%",
    "[3:0]",
    "[0:3]",
    "&&&",
    "..",
    "{...}",
    "{#}",
    "_",
    "default",
    "isValid()",
    "setInvalid()",
    "next",
    "last",
    "lastIndex",
    "struct",
    "header",
    "header_union",
    "extern",
    "parser",
    "control",
    "table",
    "action",
    "key",
    "actions",
    "size",
    "lpm",
    "ternary",
    "exact",
    "switch",
    "if",
    "else",
    "typedef",
    "tuple<bit<8>, bit<8>>",
    "(bit<8>)",
    "\"\"",
    "@name(\"x\")",
    "this",
    "packet",
    "std",
    "value_set<bit<8>>(4)",
    "for",
    "break",
];

/// Bytes, some of them P4's own punctuation so that the parser gets further.
pub fn noise(random: &mut StdRng) -> Vec<u8> {
    let length = random.random_range(0..300);
    let byte = |random: &mut StdRng| match random.random_range(0..3) {
        0 => random.random(),
        1 => *b"{}()<>;:,.=+-*/&|^~!@#\"\\ \n".choose(random).unwrap_or(&b' '),
        _ => random.random_range(b'a'..=b'z'),
    };
    (0..length).map(|_| byte(random)).collect()
}

/// Words, numbers and single other characters.
pub fn words(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let end =
            if word(c) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { c.len_utf8() };
        out.push(&rest[..end]);
        rest = &rest[end..];
    }
    out
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// One token, sometimes up to four, from number `keep` on replaced, dropped, doubled or swapped.
/// `others` are the tokens of some other program.
pub fn tokens(words: &[&str], keep: usize, others: &[&str], random: &mut StdRng) -> String {
    let mut list: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    // Single changes often still type-check, and reach the back end.
    let changes = if random.random() { 1 } else { random.random_range(1..=4) };
    for _ in 0..changes {
        if list.len() <= keep {
            break;
        }
        let at = random.random_range(keep..list.len());
        match random.random_range(0..8) {
            0 => list[at] = pick(EXTRA, random),
            1 => list[at] = pick(words, random),
            2 => drop(list.remove(at)),
            3 => list.insert(at, pick(EXTRA, random)),
            4 => {
                let other = random.random_range(keep..list.len());
                list.swap(at, other);
            }
            5 => list[at] = pick(others, random),
            // A name for a name, a number for a number: these often still type-check.
            6 => {
                let same: Vec<&&str> = words[keep..]
                    .iter()
                    .filter(|word| is_word(word) && is_word(&list[at]))
                    .collect();
                if let Some(word) = same.choose(random) {
                    list[at] = (**word).to_owned();
                }
            }
            _ => {
                let number = (at..list.len()).find(|index| list[*index].parse::<u64>().is_ok());
                if let Some(index) = number {
                    let below = [2u64, 10, 70, 70_000][random.random_range(0..4)];
                    list[index] = random.random_range(0..below).to_string();
                }
            }
        }
    }
    list.concat()
}

fn pick(list: &[&str], random: &mut StdRng) -> String {
    list.choose(random).map_or_else(String::new, |word| (*word).to_owned())
}
