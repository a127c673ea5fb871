//! Finding a token of a preprocessed line on the original line.
//!
//! Equal tokens are matched by a longest common subsequence. A token that has no counterpart came
//! out of a macro: its place is the original text between the nearest tokens that have one, which
//! is the macro's use.

/// A token as the preprocessor sees it: a word, a string or one other character.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawToken {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Splits `text`; white space, comments and joined lines belong to no token.
pub(crate) fn raw_tokens(text: &str) -> Vec<RawToken> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    while i < bytes.len() {
        let start = i;
        match bytes[i] {
            b'/' if bytes.get(i + 1) == Some(&b'/') => {
                i = line_end(bytes, i);
                continue;
            }
            b'/' if bytes.get(i + 1) == Some(&b'*') => {
                i = text[i + 2..].find("*/").map_or(bytes.len(), |n| i + 2 + n + 2);
                continue;
            }
            b if b.is_ascii_whitespace() => {
                i += 1;
                continue;
            }
            b'\\' if matches!(bytes.get(i + 1), Some(b'\n' | b'\r')) => {
                i += 1;
                continue;
            }
            b'"' => i = string_end(bytes, i),
            b if is_word(b) => {
                while i < bytes.len() && is_word(bytes[i]) {
                    i += 1;
                }
            }
            _ => i += 1,
        }
        out.push(RawToken { start, end: i });
    }
    out
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| from + n)
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut i = from + 1;
    while i < bytes.len() && bytes[i] != b'\n' {
        match bytes[i] {
            b'"' => return i + 1,
            b'\\' if i + 1 < bytes.len() && bytes[i + 1] != b'\n' => i += 2,
            _ => i += 1,
        }
    }
    i
}

/// The original byte range for the byte `at` of the preprocessed line `pp_text`: from that byte's
/// counterpart to just after it if its token is unchanged, else the place of the macro. `point`:
/// `at` is a place between bytes, so just after a token belongs to that token. `None` if the
/// original line has no tokens.
pub(crate) fn locate(
    pp_text: &str,
    pp: &[RawToken],
    original: &str,
    originals: &[RawToken],
    at: usize,
    point: bool,
) -> Option<(usize, usize)> {
    let (first, last) = (originals.first()?, originals.last()?);
    let contains = |t: &RawToken| t.start <= at && (at < t.end || (point && at == t.end));
    let Some(index) = pp.iter().position(contains).or_else(|| pp.iter().position(|t| t.start > at))
    else {
        return Some((last.end, last.end));
    };
    let token = pp[index];
    let matched = align(pp_text, pp, original, originals);
    if let Some(o) = matched[index] {
        let o = originals[o];
        let within = at.clamp(token.start, token.end) - token.start;
        return Some((o.start + within, (o.start + within + 1).min(o.end).max(o.start)));
    }
    let before = matched[..index].iter().rev().find_map(|m| *m);
    let after = matched[index..].iter().find_map(|m| *m);
    let low = before.map_or(0, |b| b + 1);
    let high = after.unwrap_or(originals.len());
    match originals.get(low..high) {
        Some([a, .., b]) => Some((a.start, b.end)),
        Some([a]) => Some((a.start, a.end)),
        _ => before
            .map(|b| (originals[b].start, originals[b].end))
            .or(Some((first.start, first.end))),
    }
}

/// For each token of `pp`, its counterpart in `originals`.
fn align(
    pp_text: &str,
    pp: &[RawToken],
    original: &str,
    originals: &[RawToken],
) -> Vec<Option<usize>> {
    let same = |a: usize, b: usize| {
        pp_text[pp[a].start..pp[a].end] == original[originals[b].start..originals[b].end]
    };
    let (n, m) = (pp.len(), originals.len());
    let mut out = vec![None; n];
    let mut head = 0;
    while head < n && head < m && same(head, head) {
        out[head] = Some(head);
        head += 1;
    }
    let mut tail = 0;
    while tail < n - head && tail < m - head && same(n - 1 - tail, m - 1 - tail) {
        tail += 1;
        out[n - tail] = Some(m - tail);
    }
    longest_common(head..n - tail, head..m - tail, &same, &mut out);
    out
}

fn longest_common(
    a: std::ops::Range<usize>,
    b: std::ops::Range<usize>,
    same: &impl Fn(usize, usize) -> bool,
    out: &mut [Option<usize>],
) {
    const MOST_CELLS: usize = 250_000;
    let (n, m) = (a.len(), b.len());
    if n == 0 || m == 0 || n.saturating_mul(m) > MOST_CELLS {
        return;
    }
    let width = m + 1;
    let mut length = vec![0u32; (n + 1) * width];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            length[i * width + j] = if same(a.start + i, b.start + j) {
                length[(i + 1) * width + j + 1] + 1
            } else {
                length[(i + 1) * width + j].max(length[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < n && j < m {
        if same(a.start + i, b.start + j) {
            out[a.start + i] = Some(b.start + j);
            (i, j) = (i + 1, j + 1);
        } else if length[(i + 1) * width + j] >= length[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
}
