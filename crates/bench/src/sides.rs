//! Each application with fault tolerance and without: both up at the same time, measured by turns.

use crate::apps::{App, Traffic};
use crate::experiments::Context;
use crate::labs::Running;
use crate::plot::{self, Axes, Group};
use crate::results::Figure;
use crate::statistics::Summary;
use anyhow::{Result, anyhow};

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
    make: impl Fn(&Running, Traffic) -> Result<T>,
) -> Result<[Side<T>; 2]> {
    let up = |fault_tolerant| app.bring_up(context, app.lab(fault_tolerant), flows);
    let (with, without) = at_once(|| up(true), || up(false));
    let side = |(lab, traffic): (Running, Traffic)| -> Result<Side<T>> { Ok(Side { tool: make(&lab, traffic)?, lab }) };
    Ok([side(with?)?, side(without?)?])
}

/// Does two things at the same time: labs mostly wait while they come up, and compilers use one core each.
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

/// Measures both in each round, by turns the one and the other first; all samples, with fault tolerance first.
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

/// Runs something for each chosen application that is there; notes on those that are missing or failed.
pub fn each_app(
    context: &Context,
    chosen: impl Fn(&App) -> bool,
    mut work: impl FnMut(&'static App) -> Result<()>,
) -> Vec<String> {
    let (apps, mut notes) = App::present(&context.places.root);
    let asked = |app: &App| context.apps.is_empty() || context.apps.iter().any(|folder| folder == app.folder);
    let apps: Vec<&App> = apps.into_iter().filter(|app| chosen(app) && asked(app)).collect();
    for (done, app) in apps.iter().enumerate() {
        if let Err(error) = work(app) {
            let note = format!("{}: not measured: {error:#}", app.name);
            context.say(&note);
            notes.push(note);
        }
        if lab::interrupt::requested() {
            break;
        }
        context.progress("applications", done as u32 + 1, apps.len() as u32);
    }
    notes
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
pub fn figure(name: &str, title: &str, y: &str, groups: &[Group]) -> Result<Figure> {
    let axes = Axes { title: title.into(), y: y.into(), ..Axes::default() };
    Ok(Figure { name: name.into(), svg: plot::bars(&axes, &["with fault tolerance", "without"], groups)? })
}
