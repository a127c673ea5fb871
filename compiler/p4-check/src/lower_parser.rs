//! Parser states; sub-parsers become states of their caller.

use std::rc::Rc;

use p4_ir as ir;
use p4_syntax::{Diagnostic, Span};

use crate::hir::{self, Callee, StateTarget, StmtKind, Transition};
use crate::lower::{Binding, Instance, Lowerer, MAX_INLINE_DEPTH};
use crate::lower_args::Args;
use crate::lower_stmt::uses_objects;
use crate::mutations::{Mutation, planted};
use crate::names::CNames;
use crate::stmt::is_atomic;

/// Most states after inlining.
const MAX_STATES: usize = 4096;

/// States as they are made, and where `accept` and `reject` of the parser being inlined go.
struct Graph {
    states: Vec<ir::State>,
    names: CNames,
}

impl Lowerer<'_> {
    /// The whole parser. Its parameters are bound already.
    pub fn parser(&mut self, instance: &Rc<Instance>) -> ir::Parser {
        let hir = self.hir;
        let def = &hir.blocks[instance.block.index()];
        let mut prologue = Vec::new();
        self.enter_instance(instance, &mut prologue);
        let mut graph = Graph { states: Vec::new(), names: CNames::default() };
        self.inline_states(def, "", ir::Target::Accept, &mut graph);
        let states = reachable(graph.states);
        ir::Parser { name: def.name.to_string(), prologue, states }
    }

    /// Makes the states of a parser; `accept` becomes `done`. Gives the place of its start state.
    fn inline_states(
        &mut self,
        def: &hir::BlockDef,
        prefix: &str,
        done: ir::Target,
        graph: &mut Graph,
    ) -> u32 {
        let first = graph.states.len() as u32;
        for s in &def.states {
            let name = graph.names.unique(&format!("{prefix}{}", s.name));
            let location = self.location(s.span);
            graph.states.push(ir::State {
                name,
                body: Vec::new(),
                transition: ir::Transition::To(ir::Target::Reject),
                continues: false,
                location,
            });
        }
        for (i, s) in def.states.iter().enumerate() {
            self.state(s, first, first + i as u32, done, graph);
        }
        if is_atomic(&def.annotations)
            && graph.states[first as usize..].iter().any(|s| uses_objects(&s.body))
        {
            self.report(
                Diagnostic::error(def.span, "an `@atomic` parser that uses extern objects is not supported")
                    .help("write `@atomic` before the states, or the blocks in them, that must happen at once"),
            );
        }
        first
    }

    fn state(
        &mut self,
        s: &hir::StateDef,
        first: u32,
        mut at: u32,
        done: ir::Target,
        graph: &mut Graph,
    ) {
        let mut body = Vec::new();
        self.state_statements(&s.body, &mut at, &mut body, s, graph);
        if self.stopped {
            return;
        }
        let target = |t: StateTarget| match t {
            StateTarget::Accept => done,
            StateTarget::Reject => ir::Target::Reject,
            StateTarget::State(i) => ir::Target::State(first + i as u32),
        };
        let transition = match &s.transition {
            Transition::To(t) => ir::Transition::To(target(*t)),
            Transition::Select { keys, cases } => {
                let refs: Vec<&hir::Expr> = keys.iter().collect();
                let keys = self.operands(&refs, &mut body);
                let mut lowered = Vec::new();
                for (matches, t, span) in cases {
                    let matches = matches.iter().map(|m| self.matching(m, *span)).collect();
                    let location = self.location(*span);
                    lowered.push((matches, target(*t), location));
                }
                ir::Transition::Select { keys, cases: lowered }
            }
        };
        let state = &mut graph.states[at as usize];
        state.body = body;
        state.transition = transition;
    }

    /// Appends statements to the state `at`, whose body so far is `body`; where a sub-parser is
    /// called the state ends and another goes on.
    fn state_statements(
        &mut self,
        list: &[hir::Stmt],
        at: &mut u32,
        body: &mut ir::Block,
        s: &hir::StateDef,
        graph: &mut Graph,
    ) {
        for statement in list {
            if graph.states.len() > MAX_STATES || self.stopped {
                self.error(
                    s.span,
                    format!("the parser has more than {MAX_STATES} states after inlining"),
                );
                self.stopped = true;
                return;
            }
            if let Some((instance, call)) = self.sub_parser(statement) {
                *at = self.call_parser(
                    &instance,
                    Args::of(call),
                    statement.span,
                    *at,
                    std::mem::take(body),
                    s,
                    graph,
                );
                continue;
            }
            match &statement.kind {
                StmtKind::Block(inner, atomic) if Self::calls_parser(inner) => {
                    if *atomic {
                        self.report(
                            Diagnostic::error(
                                statement.span,
                                "a parser cannot be applied in `@atomic` code",
                            )
                            .help("apply it in a state of its own, before or after"),
                        );
                    }
                    self.state_statements(inner, at, body, s, graph);
                }
                StmtKind::If(condition, then, otherwise)
                    if Self::calls_parser(then) || Self::calls_parser(otherwise) =>
                {
                    let key = self.expr(condition, body);
                    self.state_branch(
                        key,
                        [then.as_slice(), otherwise.as_slice()],
                        at,
                        body,
                        s,
                        graph,
                    );
                }
                _ => self.statement(statement, body),
            }
        }
    }

    /// An `if` with a sub-parser inside: a select between the states that its branches become.
    fn state_branch(
        &mut self,
        key: ir::Expr,
        branches: [&[hir::Stmt]; 2],
        at: &mut u32,
        body: &mut ir::Block,
        s: &hir::StateDef,
        graph: &mut Graph,
    ) {
        let location = self.location(s.span);
        let base = graph.states[*at as usize].name.clone();
        let [then, otherwise, join] = ["then", "else", "after"].map(|part| {
            let name = graph.names.unique(&format!("{base}_{part}"));
            let transition = ir::Transition::To(ir::Target::Reject);
            graph.states.push(ir::State {
                name,
                body: Vec::new(),
                transition,
                continues: true,
                location,
            });
            graph.states.len() as u32 - 1
        });
        let state = &mut graph.states[*at as usize];
        state.body = std::mem::take(body);
        state.transition = ir::Transition::Select {
            keys: vec![key],
            cases: vec![
                (vec![ir::Match::Value(1.into())], ir::Target::State(then), location),
                (vec![ir::Match::Any], ir::Target::State(otherwise), location),
            ],
        };
        for (mut place, list) in [then, otherwise].into_iter().zip(branches) {
            let mut branch = Vec::new();
            self.state_statements(list, &mut place, &mut branch, s, graph);
            let state = &mut graph.states[place as usize];
            state.body = branch;
            state.transition = ir::Transition::To(ir::Target::State(join));
        }
        *at = join;
    }

    /// Only parsers can be applied in a parser.
    fn calls_parser(list: &[hir::Stmt]) -> bool {
        list.iter().any(|statement| match &statement.kind {
            StmtKind::Block(inner, _) => Self::calls_parser(inner),
            StmtKind::If(_, then, otherwise) => {
                Self::calls_parser(then) || Self::calls_parser(otherwise)
            }
            StmtKind::Call(call) => match &call.kind {
                hir::ExprKind::Call(c) => matches!(c.callee, Callee::Block(_) | Callee::Direct(..)),
                _ => false,
            },
            _ => false,
        })
    }

    fn sub_parser<'s>(&mut self, s: &'s hir::Stmt) -> Option<(Rc<Instance>, &'s hir::Call)> {
        let StmtKind::Call(e) = &s.kind else { return None };
        let hir::ExprKind::Call(c) = &e.kind else { return None };
        match &c.callee {
            Callee::Block(object) => match self.object(object) {
                Some(Binding::Instance(i)) => Some((i, c)),
                _ => None,
            },
            Callee::Direct(construct, block) => {
                Some((self.direct_instance(construct, *block, s.span), c))
            }
            _ => None,
        }
    }

    /// Ends the state `at` with a jump into the sub-parser; gives the state that goes on after it.
    #[allow(clippy::too_many_arguments)]
    fn call_parser(
        &mut self,
        i: &Rc<Instance>,
        args: Args<'_>,
        span: Span,
        at: u32,
        mut body: ir::Block,
        caller: &hir::StateDef,
        graph: &mut Graph,
    ) -> u32 {
        if self.depth >= MAX_INLINE_DEPTH {
            self.error(span, format!("calls are nested more than {MAX_INLINE_DEPTH} deep"));
            self.stopped = true;
            return at;
        }
        let hir = self.hir;
        let def = &hir.blocks[i.block.index()];
        // Each call is a copy of the states, so its arguments can stand for the parameters there.
        let copies = self.bind_parameters(&def.params, args, &[], &[], None, span, &mut body);
        let (instance, prefix) =
            (self.instance, std::mem::replace(&mut self.prefix, i.prefix.clone()));
        self.instance = i.number;
        self.enter_instance(i, &mut body);
        let name = graph.names.unique(&format!("{}_after", graph.states[at as usize].name));
        let location = self.location(caller.span);
        let mut after = Vec::new();
        for (to, from) in copies.into_iter().filter(|_| !planted(Mutation::LostParserCopies)) {
            self.assign(to, from, span, &mut after);
        }
        graph.states.push(ir::State {
            name,
            body: Vec::new(),
            transition: ir::Transition::To(ir::Target::Reject),
            continues: true,
            location,
        });
        let resume = graph.states.len() as u32 - 1;
        let state_prefix = format!("{}_", i.prefix.trim_end_matches('.').replace('.', "_"));
        self.depth += 1;
        // What is copied out runs in a state of its own before the caller goes on.
        let done = if after.is_empty() {
            ir::Target::State(resume)
        } else {
            let name = graph.names.unique(&format!("{}_copy_out", graph.states[at as usize].name));
            let transition = ir::Transition::To(ir::Target::State(resume));
            graph.states.push(ir::State {
                name,
                body: after,
                transition,
                continues: true,
                location,
            });
            ir::Target::State(graph.states.len() as u32 - 1)
        };
        let start = self.inline_states(def, &state_prefix, done, graph);
        self.depth -= 1;
        self.instance = instance;
        self.prefix = prefix;
        let state = &mut graph.states[at as usize];
        state.body = body;
        state.transition = ir::Transition::To(ir::Target::State(start));
        resume
    }
}

/// Drops the states that cannot be reached and numbers the others anew.
fn reachable(states: Vec<ir::State>) -> Vec<ir::State> {
    let mut number: Vec<Option<u32>> = vec![None; states.len()];
    let mut order = Vec::new();
    let mut work = vec![0usize];
    while let Some(i) = work.pop() {
        if i >= states.len() || number[i].is_some() {
            continue;
        }
        number[i] = Some(order.len() as u32);
        order.push(i);
        let mut next: Vec<usize> = Vec::new();
        let mut see = |t: &ir::Target| {
            if let ir::Target::State(n) = t {
                next.push(*n as usize);
            }
        };
        match &states[i].transition {
            ir::Transition::To(t) => see(t),
            ir::Transition::Select { cases, .. } => cases.iter().for_each(|(_, t, _)| see(t)),
        }
        work.extend(next.into_iter().rev());
    }
    let renumber = |t: ir::Target| match t {
        ir::Target::State(n) => {
            number.get(n as usize).copied().flatten().map_or(ir::Target::Reject, ir::Target::State)
        }
        t => t,
    };
    let mut slots: Vec<Option<ir::State>> = states.into_iter().map(Some).collect();
    let mut out = Vec::new();
    for i in order {
        let Some(mut s) = slots[i].take() else { continue };
        match &mut s.transition {
            ir::Transition::To(t) => *t = renumber(*t),
            ir::Transition::Select { cases, .. } => {
                cases.iter_mut().for_each(|(_, t, _)| *t = renumber(*t))
            }
        }
        out.push(s);
    }
    out
}
