//! Makes a failing program short: leaves out blocks and lines, and parts of expressions, as long as it fails in the same way.

use super::Generated;
use super::program::generate;
use super::run::{Finding, Summary, test};
use std::time::{Duration, Instant};

/// Shrinking may take so long.
const PATIENCE: Duration = Duration::from_secs(180);

struct Shrinker<'a> {
    prelude: &'a str,
    seed: u64,
    packets: usize,
    kind: &'static str,
    programs: u32,
    on_two_cpus: bool,
    until: Instant,
}

impl Shrinker<'_> {
    /// The story, if these lines fail in the same way.
    fn fails(&self, lines: &[String]) -> Option<String> {
        if Instant::now() > self.until {
            return None;
        }
        let (programs, on_two_cpus) = (self.programs, self.on_two_cpus);
        let generated = Generated { text: lines.join("\n") + "\n", programs, on_two_cpus };
        match test(self.prelude, &generated, self.seed, self.packets, &mut Summary::default()) {
            Err(Finding::Wrong { kind, story }) if kind == self.kind => Some(story),
            _ => None,
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
                if !self.try_without(lines, &whole) && !lines[end].trim_start().starts_with("} else") {
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
                    let line = format!("{}{operand}{}", &lines[index][..open], &lines[index][close + 1..]);
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
    found.iter().filter(|part| part.chars().any(char::is_alphanumeric)).map(|part| (*part).to_owned()).collect()
}

/// The shortest program found, and what it does.
pub(super) fn report(
    prelude: &str,
    seeds: &[u64],
    packets: usize,
    kind: &'static str,
    generated: &Generated,
) -> String {
    let until = Instant::now() + PATIENCE;
    let on_two_cpus = generated.on_two_cpus;
    let shrinker = |seed: u64, programs: u32| Shrinker { prelude, seed, packets, kind, programs, on_two_cpus, until };
    let split = |generated: &Generated| generated.text.lines().map(str::to_owned).collect::<Vec<String>>();
    // One of the programs alone, if that is enough.
    let alone = seeds.iter().filter(|_| !on_two_cpus).find_map(|seed| {
        let lines = split(&generate(&[*seed]));
        shrinker(*seed, 1).fails(&lines).map(|_| (shrinker(*seed, 1), lines))
    });
    let (shrinker, mut lines) = alone.unwrap_or_else(|| (shrinker(seeds[0], generated.programs), split(generated)));
    loop {
        let before = lines.join("\n");
        shrinker.lines(&mut lines);
        shrinker.expressions(&mut lines);
        if lines.join("\n") == before || Instant::now() > until {
            break;
        }
    }
    let last = Shrinker { until: Instant::now() + PATIENCE, ..shrinker };
    let story = last.fails(&lines).unwrap_or_else(|| "(it does not fail again)".into());
    format!("shortened, packets of seed {}:\n{}\n{story}", last.seed, lines.join("\n"))
}
