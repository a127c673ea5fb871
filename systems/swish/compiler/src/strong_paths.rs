//! How much a packet may write with SRO: the most of all its ways through ingress and egress. Which
//! branches exclude each other is not known beyond that: two `if`s one after the other count both.

use p4_ir::{Block, LabelId, Program, StatementKind};
use std::collections::HashMap;

/// The most that was written where a way goes on, leaves a block, or ends; none: no way does.
#[derive(Default)]
struct Ways {
    on: Option<u32>,
    left: HashMap<LabelId, u32>,
    ended: Option<u32>,
}

impl Ways {
    fn on(written: u32) -> Ways {
        Ways { on: Some(written), ..Ways::default() }
    }

    /// Either these ways or the others.
    fn or(mut self, other: Ways) -> Ways {
        self.on = self.on.max(other.on);
        self.ended = self.ended.max(other.ended);
        for (label, written) in other.left {
            let most = self.left.entry(label).or_default();
            *most = written.max(*most);
        }
        self
    }
}

/// The most that a packet writes, by what each call of an object (its place among the program's,
/// and the method) writes at the most.
pub(crate) fn most(program: &Program, of: &impl Fn(usize, &str) -> u32) -> u32 {
    let control = |block| {
        let ways = block_ways(program, of, block, 0);
        ways.on.max(ways.ended).unwrap_or(0)
    };
    control(&program.ingress.body).saturating_add(control(&program.egress.body))
}

fn block_ways(
    program: &Program,
    of: &impl Fn(usize, &str) -> u32,
    block: &Block,
    before: u32,
) -> Ways {
    let mut ways = Ways::on(before);
    for statement in block {
        let Some(written) = ways.on.take() else { break };
        let inside = |block| block_ways(program, of, block, written);
        let next = match &statement.kind {
            StatementKind::If { then, otherwise, .. } => inside(then).or(inside(otherwise)),
            StatementKind::Switch { cases, default, .. } => {
                cases.iter().fold(inside(default), |all, (_, block)| all.or(inside(block)))
            }
            StatementKind::Block { label, body, .. } => {
                let mut ways = inside(body);
                let left = label.as_ref().and_then(|label| ways.left.remove(label));
                ways.on = ways.on.max(left);
                ways
            }
            StatementKind::Leave(label) => {
                Ways { left: HashMap::from([(*label, written)]), ..Ways::default() }
            }
            StatementKind::Exit | StatementKind::Return => {
                Ways { ended: Some(written), ..Ways::default() }
            }
            StatementKind::Apply { table, .. } => {
                let actions = program.tables.get(table.index()).map(|it| &it.actions);
                let actions = actions.into_iter().flatten();
                let bodies = actions.filter_map(|it| program.actions.get(it.action.index()));
                bodies.fold(Ways::on(written), |all, action| {
                    let mut ways = inside(&action.body);
                    // (`return` in an action, unlike `exit`, goes on behind the table.)
                    ways.on = ways.on.max(ways.ended);
                    all.or(ways)
                })
            }
            StatementKind::Extern { instance: Some(object), name, .. } => {
                Ways::on(written.saturating_add(of(object.index(), name)))
            }
            _ => Ways::on(written),
        };
        ways = ways.or(next);
    }
    ways
}
