//! Where headers are in the packet, and whether it leaves with the layout that it came with.

use super::*;

/// A static offset: none seen, one, or several.
#[derive(Clone, Copy, PartialEq)]
enum Offset {
    At(u32),
    Varies,
}

impl Offset {
    fn join(self, other: Offset) -> Offset {
        if self == other { self } else { Offset::Varies }
    }
    fn plus(self, bytes: Option<u32>) -> Offset {
        match (self, bytes) {
            (Offset::At(at), Some(bytes)) => Offset::At(at + bytes),
            _ => Offset::Varies,
        }
    }
}

/// Runs the extractions of a block over the cursor.
fn run_block(
    program: &Program,
    body: &Block,
    mut at: Offset,
    seen: &mut HashMap<String, Offset>,
) -> Offset {
    for statement in body {
        match &statement.kind {
            StatementKind::Extract { header, .. } => {
                let Type::Header(id) = header.ty else { continue };
                if let Some(name) = key(header) {
                    // Elements of a stack share a key: never static.
                    let here =
                        if matches!(header.kind, ExprKind::StackNext(_) | ExprKind::Index(..)) {
                            Offset::Varies
                        } else {
                            at
                        };
                    let joined = seen.get(&name).map_or(here, |before| before.join(here));
                    seen.insert(name, joined);
                }
                let (fixed, varbit) = header_bits(program, id);
                at = at.plus(varbit.is_none().then_some(fixed / 8));
            }
            StatementKind::Skip(bits) => at = at.plus(Some(bits / 8)),
            StatementKind::Advance(_) => at = Offset::Varies,
            StatementKind::Block { body, .. } => at = run_block(program, body, at, seen),
            StatementKind::If { then, otherwise, .. } => {
                let one = run_block(program, then, at, seen);
                at = run_block(program, otherwise, at, seen).join(one);
            }
            StatementKind::Switch { cases, default, .. } => {
                let mut joined = run_block(program, default, at, seen);
                for (_, body) in cases {
                    joined = joined.join(run_block(program, body, at, seen));
                }
                at = joined;
            }
            _ => {}
        }
    }
    at
}

pub(super) fn find_offsets(program: &Program, facts: &mut Facts) {
    let states = &program.parser.states;
    let mut entry: HashMap<u32, Offset> = HashMap::new();
    let mut seen = HashMap::new();
    let mut work = Vec::new();
    let start = run_block(program, &program.parser.prologue, Offset::At(0), &mut seen);
    if !states.is_empty() {
        entry.insert(0, start);
        work.push(0u32);
    }
    // Each state's entry can only go unseen → one → varies, so this ends.
    while let Some(state) = work.pop() {
        let at = entry.get(&state).copied().unwrap_or(Offset::Varies);
        let after = run_block(program, &states[state as usize].body, at, &mut seen);
        for next in states[state as usize].transition.states() {
            let joined = entry.get(&next).map_or(after, |before| before.join(after));
            if entry.get(&next) != Some(&joined) {
                entry.insert(next, joined);
                work.push(next);
            }
        }
    }
    for (name, offset) in seen {
        if let Offset::At(bytes) = offset {
            facts.offsets.insert(name, bytes);
        }
    }
}

/// The headers that the deparser emits, by key, if it is a plain list of them.
fn emitted(program: &Program, body: &Block, keys: &mut Vec<String>) -> bool {
    body.iter().all(|statement| match &statement.kind {
        StatementKind::Emit(header) => match (key(header), &header.ty) {
            (Some(name), Type::Union(id)) => {
                keys.extend(
                    (0..program.union_types[id.index()].fields.len())
                        .map(|index| format!("{name}.{index}")),
                );
                true
            }
            (Some(name), _) => {
                keys.push(name);
                !matches!(header.kind, ExprKind::Index(..))
            }
            (None, _) => false,
        },
        StatementKind::Block { body, label: None, .. } => emitted(program, body, keys),
        StatementKind::Assign(..) => true,
        _ => false,
    })
}

/// Collects (before, after) pairs of headers that are extracted one after the other.
fn follow(
    body: &Block,
    mut last: HashSet<String>,
    pairs: &mut HashSet<(String, String)>,
    plain: &mut bool,
) -> HashSet<String> {
    for statement in body {
        match &statement.kind {
            StatementKind::Extract { header, .. } => {
                let Some(name) = key(header) else {
                    *plain = false;
                    continue;
                };
                let next = matches!(header.kind, ExprKind::StackNext(_));
                *plain &= !matches!(header.kind, ExprKind::Index(..) | ExprKind::StackLast(_));
                for before in &last {
                    // Elements of a stack come in order by themselves.
                    if !(next && *before == name) {
                        pairs.insert((before.clone(), name.clone()));
                    }
                }
                last = HashSet::from([name]);
            }
            StatementKind::Skip(_) | StatementKind::Advance(_) => *plain = false,
            StatementKind::Block { body, .. } => last = follow(body, last, pairs, plain),
            StatementKind::If { then, otherwise, .. } => {
                let mut both = follow(then, last.clone(), pairs, plain);
                both.extend(follow(otherwise, last, pairs, plain));
                last = both;
            }
            StatementKind::Switch { cases, default, .. } => {
                let mut all = follow(default, last.clone(), pairs, plain);
                for (_, body) in cases {
                    all.extend(follow(body, last.clone(), pairs, plain));
                }
                last = all;
            }
            _ => {}
        }
    }
    last
}

/// Is every packet emitted with the headers that were parsed, in the order in which they were
/// parsed?
pub(super) fn same_layout(program: &Program, facts: &Facts) -> bool {
    let mut order = Vec::new();
    if !emitted(program, &program.deparser.body, &mut order) {
        return false;
    }
    let position: HashMap<&str, usize> =
        order.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    if position.len() != order.len() || order.iter().any(|name| facts.is_moved(name)) {
        return false;
    }
    let mut pairs = HashSet::new();
    let mut plain = true;
    let states = &program.parser.states;
    let mut entry: Vec<HashSet<String>> = vec![HashSet::new(); states.len()];
    let mut visited = vec![false; states.len()];
    let first = follow(&program.parser.prologue, HashSet::new(), &mut pairs, &mut plain);
    let mut extracted: HashSet<String> = first.clone();
    let mut work = Vec::new();
    if !states.is_empty() {
        entry[0] = first;
        work.push(0usize);
    }
    while let Some(state) = work.pop() {
        visited[state] = true;
        let after = follow(&states[state].body, entry[state].clone(), &mut pairs, &mut plain);
        extracted.extend(after.iter().cloned());
        for next in states[state].transition.states() {
            let next = next as usize;
            let before = entry[next].len();
            entry[next].extend(after.iter().cloned());
            if !visited[next] || entry[next].len() > before {
                work.push(next);
            }
        }
    }
    for (before, after) in &pairs {
        extracted.insert(before.clone());
        extracted.insert(after.clone());
    }
    plain
        && !ousts(program, &pairs)
        && extracted.iter().all(|name| position.contains_key(name.as_str()))
        && pairs.iter().all(|(before, after)| {
            match (position.get(before.as_str()), position.get(after.as_str())) {
                (Some(first), Some(second)) => first < second,
                _ => false,
            }
        })
}

/// May a way through the parser extract two members of one header union? The second ousts the
/// first, which is then not emitted.
fn ousts(program: &Program, pairs: &HashSet<(String, String)>) -> bool {
    let mut unions = UnionMembers::default();
    walk::program(program, &mut unions);
    unions.members.iter().any(|(member, union)| {
        let (mut reached, mut work) = (HashSet::new(), vec![member.as_str()]);
        while let Some(from) = work.pop() {
            let next =
                pairs.iter().filter(|(before, _)| before == from).map(|(_, after)| after.as_str());
            work.extend(next.filter(|after| reached.insert(*after)));
        }
        reached.iter().any(|name| unions.members.get(*name) == Some(union))
    })
}

/// Members of header unions that are extracted, and their unions.
#[derive(Default)]
struct UnionMembers {
    members: HashMap<String, String>,
}

impl Visitor for UnionMembers {
    fn statement(&mut self, statement: &Statement) {
        if let StatementKind::Extract { header, .. } = &statement.kind
            && let ExprKind::Field(base, _) = &header.kind
            && matches!(base.ty, Type::Union(_))
            && let (Some(member), Some(union)) = (key(header), key(base))
        {
            self.members.insert(member, union);
        }
    }
}
