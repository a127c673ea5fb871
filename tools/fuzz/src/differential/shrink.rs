//! Makes a failing program short: leaves out blocks and lines, and parts of expressions, as long as
//! it fails in the same way.

use super::Generated;
use super::plan::Summary;
use super::program::generate;
use super::run::{Finding, test};
use std::time::{Duration, Instant};

/// Shrinking may take this time.
const PATIENCE: Duration = Duration::from_secs(180);

struct Shrinker<'a> {
    /// The story, if a text fails in the same way.
    test: &'a dyn Fn(String) -> Option<String>,
    until: Instant,
}

impl Shrinker<'_> {
    /// The story, if these lines fail in the same way.
    fn fails(&self, lines: &[String]) -> Option<String> {
        if Instant::now() > self.until {
            return None;
        }
        (self.test)(lines.join("\n") + "\n")
    }

    /// The shortest text found.
    fn shortest(&self, mut lines: Vec<String>) -> Vec<String> {
        loop {
            let before = lines.join("\n");
            self.lines(&mut lines);
            self.expressions(&mut lines);
            if lines.join("\n") == before || Instant::now() > self.until {
                return lines;
            }
        }
    }

    fn try_without(&self, lines: &mut Vec<String>, remove: &[usize]) -> bool {
        let shorter: Vec<String> = lines
            .iter()
            .enumerate()
            .filter(|(index, _)| !remove.contains(index))
            .map(|(_, line)| line.clone())
            .collect();
        let good = self.fails(&shorter).is_some();
        if good {
            *lines = shorter;
        }
        good
    }

    /// Blocks, whole or only their first and last line; then lines.
    fn lines(&self, lines: &mut Vec<String>) {
        let mut index = lines.len();
        while index > 0 {
            index -= 1;
            if index >= lines.len() {
                continue;
            }
            if lines[index].trim_end().ends_with('{') {
                let Some(end) = block_end(lines, index) else { continue };
                let whole: Vec<usize> = (index..=end).collect();
                if !self.try_without(lines, &whole)
                    && !lines[end].trim_start().starts_with("} else")
                {
                    self.try_without(lines, &[index, end]);
                }
            } else if !lines[index].trim_start().starts_with('}') {
                self.try_without(lines, &[index]);
            }
        }
    }

    /// In each line: a part in parentheses becomes one of its operands.
    fn expressions(&self, lines: &mut [String]) {
        for index in 0..lines.len() {
            let mut from = 0;
            while let Some(open) = lines[index][from..].find('(').map(|at| at + from) {
                from = open + 1;
                let Some(close) = matching(&lines[index], open) else { continue };
                for operand in operands(&lines[index][open + 1..close]) {
                    let line =
                        format!("{}{operand}{}", &lines[index][..open], &lines[index][close + 1..]);
                    let mut shorter = lines.to_vec();
                    shorter[index] = line;
                    if self.fails(&shorter).is_some() {
                        lines.clone_from_slice(&shorter);
                        from = open;
                        break;
                    }
                }
            }
        }
    }
}

fn block_end(lines: &[String], start: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (index, line) in lines.iter().enumerate().skip(start) {
        let line = line.trim();
        if index > start && line.starts_with('}') {
            depth -= 1;
            if depth == 0 {
                return Some(index);
            }
        }
        if line.ends_with('{') {
            depth += 1;
        }
    }
    None
}

fn matching(line: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in line.char_indices().skip_while(|(at, _)| *at < open) {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// What stands between the operators of the outermost level.
fn operands(text: &str) -> Vec<String> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            ' ' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
        .iter()
        .filter(|part| part.chars().any(char::is_alphanumeric))
        .map(|part| (*part).to_owned())
        .collect()
}

fn split(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// A text that fails a test, as short as it is found, and the story that the test tells of it.
pub(super) fn shorten(text: &str, test: &dyn Fn(String) -> Option<String>) -> String {
    let lines = Shrinker { test, until: Instant::now() + PATIENCE }.shortest(split(text));
    let shortest = lines.join("\n") + "\n";
    let story = test(shortest.clone()).unwrap_or_else(|| "(it does not fail again)".into());
    format!("{shortest}{story}")
}

/// The shortest program found, and what it does.
pub(super) fn report(
    prelude: &str,
    seeds: &[u64],
    packets: usize,
    kind: &'static str,
    generated: &Generated,
) -> String {
    let on_two_cpus = generated.on_two_cpus;
    let fails = |text: String, seed: u64, programs: u32| {
        let generated = Generated { text, programs, on_two_cpus };
        match test(prelude, &generated, seed, packets, &mut Summary::default()) {
            Err(Finding::Wrong { kind: other, story }) if kind == other => Some(story),
            _ => None,
        }
    };
    // One of the programs alone, if that is enough.
    let mut seeds_alone = seeds.iter().filter(|_| !on_two_cpus);
    let alone = seeds_alone.find_map(|seed| {
        let text = generate(&[*seed]).text;
        fails(text.clone(), *seed, 1).map(|_| (*seed, 1, text))
    });
    let (seed, programs, text) =
        alone.unwrap_or_else(|| (seeds[0], generated.programs, generated.text.clone()));
    format!(
        "shortened, packets of seed {seed}:\n{}",
        shorten(&text, &|text| fails(text, seed, programs))
    )
}
