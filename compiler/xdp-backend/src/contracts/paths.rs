//! The ways of a packet through ingress and egress, as far as one question needs them.
//!
//! A question remembers few calls (`Seen`), so most ways are alike; those that are alike are one
//! [`Path`]. A way is *certain* if some packet takes it, provided that every branch is taken by
//! some packet that reaches it. Where several different ways reach a branch, its condition may tell
//! them apart (`if (found) …` behind a look-up), so none of them is certain inside. What is
//! refused: what breaks a rule on a certain way, or on all ways that lead to it; of some rules on
//! any way that the conditions on it do not exclude (`assumed`).

use super::assumed::{Assumed, equals};
use super::values::{Key, Storage, Value, Values};
use super::{Rule, Witness};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_ir::effects;
use p4_ir::{
    Argument, Block, Control, Expr, ExprKind, ExternId, LabelId, Location, Program, Statement,
    StatementKind, Table, TableId, VariableId,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Statements that one question may look at, counted anew on each way. With more, only what is
/// certain is told.
const MAX_STEPS: u32 = 200_000;
/// Ways that differ, at any place.
const MAX_PATHS: usize = 64;
/// `egress_spec` of a packet that is dropped.
const DROP_PORT: u32 = 511;

/// A call of a state object.
pub struct Call<'a> {
    /// Whose.
    pub object: ExternId,
    /// Its name.
    pub method: &'a str,
    /// The first argument, as it is written.
    pub(crate) expr: &'a Expr,
    /// What it is worth.
    pub key: Key,
    /// What was known when it was called.
    pub(crate) values: Values,
    /// Where.
    pub location: Location,
}

/// A call that a question remembers.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Whose method it was.
    pub object: ExternId,
    /// What the first argument was worth.
    pub key: Key,
    /// What was known then.
    pub(crate) values: Values,
    /// Where.
    pub location: Location,
}

/// What a question has to say of a call behind those that it has seen.
pub trait Question {
    /// The rules that the call can break, and if it does so: with the call that it collides with.
    fn judge(&self, storage: &Storage, seen: &[Seen], call: &Call)
    -> Vec<(&'static Rule, Verdict)>;
    /// Is the call to be remembered?
    fn remembers(&self, seen: &[Seen], call: &Call) -> bool;
}

/// Of a call on one way.
pub enum Verdict {
    /// It keeps the rule.
    Good,
    /// And the place of the earlier call, if there is one.
    Broken(Option<Location>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dropped {
    No,
    Maybe,
    Yes,
}

#[derive(Clone)]
struct Path {
    seen: Vec<Seen>,
    values: Values,
    /// What the conditions on the way say.
    assumed: Assumed,
    dropped: Dropped,
    certain: bool,
    /// The variable that has the action that the last table ran, and which it may have been.
    ran: Option<(VariableId, BTreeSet<usize>)>,
}

impl Path {
    /// The way on which a condition is true, or false.
    fn assuming(&self, condition: &Value, is: bool) -> Path {
        let mut path = self.clone();
        path.assumed.add(condition, is);
        path
    }
}

/// Where a way may leave to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Exit {
    Label(LabelId),
    Action,
    Control,
}

/// What is known of a rule at one call.
struct Observed {
    rule: &'static Rule,
    object: ExternId,
    location: Location,
    certain: bool,
    always: bool,
    sometimes: bool,
    earlier: Option<Location>,
}

/// Follows a packet's ways for one question.
pub struct Walk<'a, 'q> {
    program: &'a Program,
    question: &'q dyn Question,
    storage: &'q mut Storage<'a>,
    /// By place, so that errors come in order, and by rule.
    observed: BTreeMap<(u32, u32, u32, usize, &'static str), Observed>,
    left: HashMap<Exit, Vec<Path>>,
    /// How often ways have left what is being walked.
    escapes: HashMap<Option<Exit>, u32>,
    in_action: bool,
    steps: u32,
    too_many: bool,
}

impl<'a, 'q> Walk<'a, 'q> {
    /// What the program does wrong, as the question sees it.
    pub fn run(
        program: &'a Program,
        storage: &'q mut Storage<'a>,
        question: &'q dyn Question,
    ) -> Vec<Witness> {
        Self::explore(program, storage, question).0
    }

    /// The same, and whether every way through the program was walked: with too many ways, what is
    /// not found may be there all the same.
    pub fn explore(
        program: &'a Program,
        storage: &'q mut Storage<'a>,
        question: &'q dyn Question,
    ) -> (Vec<Witness>, bool) {
        let mut walk = Walk {
            program,
            question,
            storage,
            observed: BTreeMap::new(),
            left: HashMap::new(),
            escapes: HashMap::new(),
            in_action: false,
            steps: 0,
            too_many: false,
        };
        let start = Path {
            seen: Vec::new(),
            values: Values::default(),
            assumed: Assumed::default(),
            dropped: Dropped::No,
            certain: true,
            ran: None,
        };
        let after = walk.control(&program.ingress, vec![start]);
        let several = after.len() > 1;
        // Which packets get to egress may depend on what they did in ingress.
        let mut sent: Vec<Path> =
            after.into_iter().filter(|path| path.dropped != Dropped::Yes).collect();
        for path in &mut sent {
            path.certain &= !several || path.dropped == Dropped::No;
        }
        walk.control(&program.egress, sent);
        let complete = !walk.too_many;
        let broken = walk.observed.into_values().filter(|it| {
            it.certain || (it.always && complete) || (it.sometimes && it.rule.on_any_path)
        });
        let witness = |it: Observed| Witness {
            rule: it.rule,
            object: it.object,
            location: it.location,
            earlier: it.earlier,
        };
        (broken.map(witness).collect(), complete)
    }

    fn control(&mut self, control: &'a Control, paths: Vec<Path>) -> Vec<Path> {
        self.until(&[Exit::Control], &control.body, paths)
    }

    fn block(&mut self, body: &'a Block, mut paths: Vec<Path>) -> Vec<Path> {
        for statement in body {
            self.steps += 1;
            self.too_many |= self.steps > MAX_STEPS || paths.len() > MAX_PATHS;
            if paths.is_empty() || self.too_many {
                return Vec::new();
            }
            paths = self.statement(statement, paths);
        }
        paths
    }

    fn statement(&mut self, statement: &'a Statement, mut paths: Vec<Path>) -> Vec<Path> {
        match &statement.kind {
            StatementKind::If { condition, then, otherwise } => {
                return self.split(paths, |walk, path| {
                    let value = walk.storage.value(&path.values, condition);
                    let mut after = Vec::new();
                    for (body, is) in [(then, true), (otherwise, false)] {
                        if path.assumed.decide(&value).is_none_or(|known| known == is) {
                            after.extend(walk.block(body, vec![path.assuming(&value, is)]));
                        }
                    }
                    after
                });
            }
            StatementKind::Switch { on, cases, default } => {
                let (decided, open): (Vec<Path>, Vec<Path>) = paths.into_iter().partition(
                    |path| matches!(&path.ran, Some((id, _)) if on.kind == ExprKind::Var(*id)),
                );
                let mut after =
                    self.split(open, |walk, path| walk.switch(on, cases, default, path));
                for path in decided {
                    after.extend(self.switch_on_action(cases, default, path));
                }
                return self.merge(after);
            }
            StatementKind::Block { label: None, body, .. } => return self.block(body, paths),
            StatementKind::Block { label: Some(label), body, .. } => {
                return self.until(&[Exit::Label(*label)], body, paths);
            }
            StatementKind::Leave(label) => return self.leave(Some(Exit::Label(*label)), paths),
            StatementKind::Exit => return self.leave(Some(Exit::Control), paths),
            StatementKind::Return => {
                let exit = if self.in_action { Exit::Action } else { Exit::Control };
                return self.leave(Some(exit), paths);
            }
            StatementKind::Apply { table, hit, action_run } => {
                return self.split(paths, |walk, path| walk.apply(*table, *hit, *action_run, path));
            }
            StatementKind::Extern { instance: None, name, .. } if effects::is_to_host(name) => {
                return self.leave(None, paths);
            }
            StatementKind::Extern { instance, name, arguments, result, .. }
                if self.is_call(statement, arguments) =>
            {
                let (Some(object), Some(Argument::In(expr))) = (instance, arguments.first()) else {
                    return paths;
                };
                for path in &mut paths {
                    let key = self.storage.key(&path.values, expr);
                    let (values, location) = (path.values.clone(), statement.location);
                    let call = Call { object: *object, method: name, expr, key, values, location };
                    self.call(statement, path, call);
                    self.outputs(path, arguments, result.as_ref());
                }
                return self.merge(paths);
            }
            _ => {}
        }
        paths.iter_mut().for_each(|path| self.effect(statement, path));
        paths
    }

    /// A switch on a value: the cases that it may have.
    fn switch(
        &mut self,
        on: &Expr,
        cases: &'a [(Vec<BigInt>, Block)],
        default: &'a Block,
        path: Path,
    ) -> Vec<Path> {
        let value = self.storage.value(&path.values, on);
        let mut after = Vec::new();
        let mut rest = Some(path);
        for (labels, body) in cases {
            let Some(path) = rest.take() else { break };
            let tests: Vec<Value> = labels.iter().map(|label| equals(&value, label)).collect();
            let known: Vec<Option<bool>> =
                tests.iter().map(|test| path.assumed.decide(test)).collect();
            if known.contains(&None) || known.contains(&Some(true)) {
                let inside = match &tests[..] {
                    [only] => path.assuming(only, true),
                    _ => path.clone(),
                };
                after.extend(self.block(body, vec![inside]));
            }
            if !known.contains(&Some(true)) {
                rest = Some(tests.iter().fold(path, |path, test| path.assuming(test, false)));
            }
        }
        if let Some(path) = rest {
            after.extend(self.block(default, vec![path]));
        }
        after
    }

    /// A switch on the action that a table ran: only the cases of those that this way may have run.
    fn switch_on_action(
        &mut self,
        cases: &'a [(Vec<BigInt>, Block)],
        default: &'a Block,
        path: Path,
    ) -> Vec<Path> {
        let Some((variable, mut rest)) = path.ran.clone() else { return vec![path] };
        let mut after = Vec::new();
        for (labels, body) in cases {
            let (taken, others): (BTreeSet<usize>, BTreeSet<usize>) =
                rest.into_iter().partition(|action| labels.contains(&BigInt::from(*action)));
            rest = others;
            if !taken.is_empty() {
                after.extend(
                    self.block(body, vec![Path { ran: Some((variable, taken)), ..path.clone() }]),
                );
            }
        }
        if !rest.is_empty() {
            after.extend(self.block(default, vec![Path { ran: Some((variable, rest)), ..path }]));
        }
        after
    }

    fn is_call(&self, statement: &Statement, arguments: &[Argument]) -> bool {
        self.storage.is_call(statement) && matches!(arguments.first(), Some(Argument::In(_)))
    }

    /// Statements that lead nowhere else.
    fn effect(&mut self, statement: &Statement, path: &mut Path) {
        match &statement.kind {
            StatementKind::Assign(target, value) => {
                if self.is_egress_spec(target) {
                    path.dropped = match &value.kind {
                        ExprKind::Const(port) if port.to_u32() == Some(DROP_PORT) => Dropped::Yes,
                        ExprKind::Const(_) => Dropped::No,
                        _ => Dropped::Maybe,
                    };
                }
                self.storage.assign(&mut path.values, target, value);
            }
            StatementKind::Extern { name, arguments, result, .. } => {
                if effects::marks_to_drop(name) {
                    path.dropped = Dropped::Yes;
                }
                self.outputs(path, arguments, result.as_ref());
            }
            StatementKind::SetValid(target, _)
            | StatementKind::PushFront(target, _)
            | StatementKind::PopFront(target, _) => self.storage.forget(&mut path.values, target),
            _ => {}
        }
    }

    fn outputs(&mut self, path: &mut Path, arguments: &[Argument], result: Option<&Expr>) {
        let outputs = arguments.iter().filter_map(|argument| match argument {
            Argument::Out(target) | Argument::InOut(target) => Some(target),
            _ => None,
        });
        for target in outputs.chain(result) {
            self.storage.forget(&mut path.values, target);
            if self.is_egress_spec(target) && path.dropped == Dropped::Yes {
                path.dropped = Dropped::Maybe;
            }
        }
    }

    fn is_egress_spec(&self, target: &Expr) -> bool {
        let ExprKind::Field(base, index) = &target.kind else { return false };
        let (ExprKind::Var(id), p4_ir::Type::Struct(ty)) = (&base.kind, &base.ty) else {
            return false;
        };
        *id == self.program.standard_metadata
            && self.program.struct_types[ty.index()]
                .fields
                .get(*index as usize)
                .is_some_and(|it| it.name == "egress_spec")
    }

    fn call(&mut self, statement: &Statement, path: &mut Path, call: Call) {
        let site = std::ptr::from_ref(statement) as usize;
        let at = call.location;
        for (rule, verdict) in self.question.judge(self.storage, &path.seen, &call) {
            let observed = self
                .observed
                .entry((at.file, at.line, at.column, site, rule.id))
                .or_insert(Observed {
                    rule,
                    object: call.object,
                    location: at,
                    certain: false,
                    always: true,
                    sometimes: false,
                    earlier: None,
                });
            match verdict {
                Verdict::Good => observed.always = false,
                Verdict::Broken(earlier) => {
                    if !observed.certain && (path.certain || observed.earlier.is_none()) {
                        observed.earlier = earlier;
                    }
                    observed.certain |= path.certain;
                    observed.sometimes = true;
                }
            }
        }
        if self.question.remembers(&path.seen, &call) {
            path.seen.push(Seen {
                object: call.object,
                key: call.key,
                values: call.values,
                location: call.location,
            });
        }
    }

    /// Each action that the table may run.
    fn apply(
        &mut self,
        table: TableId,
        hit: Option<VariableId>,
        action_run: Option<VariableId>,
        path: Path,
    ) -> Vec<Path> {
        let program = self.program;
        let table = &program.tables[table.index()];
        let mut after = Vec::new();
        for (index, is_default, of_entry) in possible_actions(table) {
            let Some(listed) = table.actions.get(index) else { continue };
            let action = &program.actions[listed.action.index()];
            let mut path = path.clone();
            path.ran = action_run.map(|variable| (variable, BTreeSet::from([index])));
            for parameter in &action.parameters {
                self.forget_variable(&mut path, *parameter);
            }
            let outside = std::mem::replace(&mut self.in_action, true);
            let mut ran = self.until(&[Exit::Action], &action.body, vec![path]);
            self.in_action = outside;
            for path in &mut ran {
                action_run.into_iter().for_each(|variable| self.forget_variable(path, variable));
                match hit {
                    Some(hit) if is_default != of_entry => {
                        Storage::know(&mut path.values, hit, of_entry)
                    }
                    Some(hit) => self.forget_variable(path, hit),
                    None => {}
                }
            }
            after.extend(ran);
        }
        after
    }

    fn forget_variable(&mut self, path: &mut Path, id: VariableId) {
        let ty = self.program.variables[id.index()].ty.clone();
        let variable = Expr { kind: ExprKind::Var(id), ty, location: Location::default() };
        self.storage.forget(&mut path.values, &variable);
    }

    /// Walks a block to its end, or to one of these exits of it.
    fn until(&mut self, exits: &[Exit], body: &'a Block, paths: Vec<Path>) -> Vec<Path> {
        let outer: Vec<_> = exits
            .iter()
            .map(|exit| (self.left.remove(exit), self.escapes.remove(&Some(*exit))))
            .collect();
        let mut after = self.block(body, paths);
        for (exit, (left, escapes)) in exits.iter().zip(outer) {
            after.extend(self.left.remove(exit).unwrap_or_default());
            self.escapes.remove(&Some(*exit));
            left.map(|left| self.left.insert(*exit, left));
            escapes.map(|escapes| self.escapes.insert(Some(*exit), escapes));
        }
        self.merge(after)
    }

    /// None: the packet goes to the kernel at once.
    fn leave(&mut self, exit: Option<Exit>, paths: Vec<Path>) -> Vec<Path> {
        *self.escapes.entry(exit).or_default() += 1;
        if let Some(exit) = exit {
            self.left.entry(exit).or_default().extend(paths);
        }
        Vec::new()
    }

    fn escaped(&self) -> u32 {
        self.escapes.values().sum()
    }

    /// Each way through alternatives, which a condition decides between.
    fn split(
        &mut self,
        paths: Vec<Path>,
        mut through: impl FnMut(&mut Self, Path) -> Vec<Path>,
    ) -> Vec<Path> {
        let several = paths.len() > 1;
        let mut all = Vec::new();
        for mut path in paths {
            let certain = path.certain;
            path.certain &= !several;
            let escapes = self.escaped();
            let after = through(self, path);
            let mut after = self.merge(after);
            // Whatever the condition was: it came out here.
            if let [only] = after.as_mut_slice()
                && escapes == self.escaped()
            {
                only.certain |= certain;
            }
            all.extend(after);
        }
        self.merge(all)
    }

    /// Makes one of ways that are alike.
    fn merge(&mut self, paths: Vec<Path>) -> Vec<Path> {
        let mut merged: Vec<Path> = Vec::new();
        for path in paths {
            let alike = |other: &Path| {
                path.seen.len() == other.seen.len()
                    && path.seen.iter().zip(&other.seen).all(|(a, b)| a.key == b.key)
            };
            let Some(same) = merged.iter().position(alike) else {
                merged.push(path);
                continue;
            };
            let same = &mut merged[same];
            self.storage.join(&mut same.values, &path.values);
            same.assumed.join(&path.assumed);
            same.ran = match (same.ran.take(), path.ran) {
                (Some((variable, mut one)), Some((other, two)))
                    if variable == other && same.certain == path.certain =>
                {
                    one.extend(two);
                    Some((variable, one))
                }
                _ => None,
            };
            same.certain |= path.certain;
            if same.dropped != path.dropped {
                same.dropped = Dropped::Maybe;
            }
        }
        merged
    }
}

/// Indices into the table's actions of those that the default or an entry can run, and which of the
/// two.
fn possible_actions(table: &Table) -> Vec<(usize, bool, bool)> {
    let mut found = Vec::new();
    for (index, action) in table.actions.iter().enumerate() {
        let is_default = match table.const_default {
            true => table.default_action.action as usize == index,
            false => !action.table_only,
        };
        let of_entry = match (table.keys.is_empty(), table.const_entries) {
            (true, _) => false,
            (_, true) => table.entries.iter().any(|entry| entry.action.action as usize == index),
            (_, false) => !action.default_only,
        };
        if is_default || of_entry {
            found.push((index, is_default, of_entry));
        }
    }
    found
}
