//! Each application with fault tolerance and without: both up at the same time, measured by turns.

use crate::apps::{ALL, App, Traffic};
use crate::experiments::Context;
use crate::labs::Running;
use crate::report::Goal;
use crate::results::{Figure, Row};
use crate::statistics::Summary;
use crate::trace::Played;
use anyhow::{Result, anyhow};
use plot::{Axes, Group};

/// One of the two, ready for `T` to measure it. Fields end in the order in which they stand.
pub struct Side<T> {
    /// What measures it.
    pub tool: T,
    /// Its lab.
    pub lab: Running,
}

/// Brings both up, with fault tolerance first.
///
/// # Errors
/// A lab does not come up, or `make` fails.
pub fn both<T>(
    context: &Context,
    app: &App,
    flows: u32,
    captured: Option<&Played>,
    make: impl Fn(&Running, Traffic) -> Result<T>,
) -> Result<[Side<T>; 2]> {
    let up = |fault_tolerant| app.bring_up(context, app.lab(fault_tolerant), flows, captured);
    let (with, without) = at_once(|| up(true), || up(false));
    let side = |(lab, traffic): (Running, Traffic)| -> Result<Side<T>> {
        Ok(Side { tool: make(&lab, traffic)?, lab })
    };
    Ok([side(with?)?, side(without?)?])
}

/// Does two things at the same time: labs mostly wait while they come up, and compilers use one
/// core each.
pub fn at_once<T: Send>(
    one: impl FnOnce() -> Result<T>,
    other: impl FnOnce() -> Result<T> + Send,
) -> (Result<T>, Result<T>) {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        (one, other.join().unwrap_or_else(|_| Err(anyhow!("bringing up a lab panicked"))))
    })
}

/// Measures both in each round, by turns the one and the other first; all samples, with fault
/// tolerance first.
///
/// # Errors
/// Those of `measure`.
pub fn by_turns<T, S>(
    sides: &mut [Side<T>; 2],
    rounds: usize,
    mut measure: impl FnMut(&mut T, usize) -> Result<S>,
) -> Result<[Vec<S>; 2]> {
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for position in 0..2 {
            let index = (position + round) % 2;
            samples[index].push(measure(&mut sides[index].tool, round)?);
        }
    }
    Ok(samples)
}

/// A goal that an application is to reach: the row's name, the paper's figure, and the bound.
pub type Aim = (String, &'static str, Goal);

/// What could not be measured.
#[derive(Debug, Default)]
pub struct Missing {
    /// Why.
    pub notes: Vec<String>,
    /// The goals of what failed, each missed: one that is absent would look as if it did not exist.
    pub rows: Vec<Row>,
}

impl Missing {
    fn add(&mut self, app: &App, why: &str, aims: Vec<Aim>) {
        self.notes.push(format!("{}: not measured: {why}", app.name));
        self.rows.extend(
            aims.into_iter().map(|(what, paper, goal)| Row::not_measured(what, paper, goal)),
        );
    }
}

/// Runs something for each chosen application, and these more; those that are missing or failed,
/// with the goals that they then miss.
pub fn each_app(
    context: &Context,
    more: &'static [App],
    chosen: impl Fn(&App) -> bool,
    aims: impl Fn(&App) -> Vec<Aim>,
    mut work: impl FnMut(&'static App) -> Result<()>,
) -> Missing {
    let asked = |app: &App| {
        context.apps.is_empty() || context.apps.iter().any(|folder| folder == app.folder)
    };
    let apps: Vec<&App> = ALL.iter().chain(more).filter(|app| chosen(app) && asked(app)).collect();
    let mut missing = Missing::default();
    for (done, app) in apps.iter().enumerate() {
        let result = match app.there(&context.places.root) {
            true => work(app),
            false => Err(anyhow!("there is no {}", app.lab)),
        };
        if let Err(error) = result {
            context.say(&format!("{}: not measured: {error:#}", app.name));
            missing.add(app, &format!("{error:#}"), aims(app));
        }
        if lab::interrupt::requested() {
            break;
        }
        context.progress("applications", done as u32 + 1, apps.len() as u32);
    }
    missing
}

/// An application's two bars.
pub fn group(app: &App, with: Summary, without: Summary) -> Group {
    let bar = |s: Summary| Some((s.median, s.low, s.high));
    Group { name: app.name.to_owned(), bars: vec![bar(with), bar(without)] }
}

/// The bars of all applications.
///
/// # Errors
/// The drawing library refuses.
pub fn figure(name: &str, axes: &Axes, groups: &[Group]) -> Result<Figure> {
    Ok(Figure {
        name: name.into(),
        svg: plot::bars(axes, &["with fault tolerance", "without"], groups)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_that_fails_misses_its_goals() {
        let mut missing = Missing::default();
        missing.add(&ALL[0], "no lab", vec![("NAT: ratio".into(), "1", Goal::AtLeast(0.97))]);
        assert_eq!(missing.notes, ["NAT: not measured: no lab"]);
        let row = &missing.rows[0];
        assert_eq!((row.what.as_str(), row.reached), ("NAT: ratio", Some(false)));
    }
}
