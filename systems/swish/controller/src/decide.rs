//! What becomes of the members' window (README, "Membership"; `Decide` in the model of recovery).

use crate::mutation::{Mutation, planted};
use crate::state::{Counted, Decided, GroupState, bits};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use swish_protocol::bulk::{Piece, pack, unpack};
use swish_protocol::control::{Member, Report, Turn};
use swish_protocol::layouts::{CELLS, phase};

/// Pieces from this number on are bitmaps of merged messages: the member's number is added.
const BITMAP: u32 = 1 << 31;

/// What is known once all members are sealed.
pub struct Plan {
    /// What becomes of the window.
    pub turn: Turn,
    /// See there.
    pub window: u64,
    /// The member that has the value that packets read in that window.
    pub donor: Ipv4Addr,
    /// Members that lack this value.
    pub lacks: Vec<Ipv4Addr>,
    /// The member whose blocks tell the sources of the dead; none: these do not count, or no member
    /// died.
    pub witness: Option<Ipv4Addr>,
    /// What the decision before said that the dead had brought in the same window.
    pub kept: Vec<u8>,
    /// Members of the view before that are none any more.
    pub dead: u64,
    /// The view that the window is of.
    old: u32,
    /// See `Decided`, but for what the witness makes of the dead.
    counted: BTreeMap<Ipv4Addr, Vec<Counted>>,
}

fn is_complete(report: &Report, view: &Decided) -> bool {
    report.phase == phase::SENDING && report.whole & view.bits() == view.bits()
}

/// The decision's shape, from the reports of all members that stay, by address. `None`: a report is
/// of a view that is not known.
pub fn plan(
    state: &GroupState,
    stays: &[Member],
    joins: &[Member],
    reports: &BTreeMap<Ipv4Addr, Report>,
) -> Option<Plan> {
    let of = |member: &Member| reports.get(&member.address);
    let all: Vec<&Report> = stays.iter().map(of).collect::<Option<_>>()?;
    let window = all.iter().map(|report| report.window).max()?;
    let view_of = |report: &Report| state.numbered(report.view);
    let ahead: Vec<&Report> = all.iter().copied().filter(|it| it.window == window).collect();
    let complete = ahead.iter().find(|it| view_of(it).is_some_and(|view| is_complete(it, view)));
    let go = |donor: &Report, window: u64| {
        let old = view_of(donor)?;
        let has = |report: &Report| {
            report.window == window
                || report.view == donor.view
                    && report.window == donor.window
                    && is_complete(report, old)
        };
        let lacks = all.iter().filter(|report| !has(report)).map(|report| report.switch);
        Some(Plan {
            turn: Turn::Go,
            window,
            donor: donor.switch,
            lacks: lacks.chain(joins.iter().map(|it| it.address)).collect(),
            witness: None,
            kept: vec![],
            dead: old.bits() & !bits(stays),
            old: old.number,
            counted: old.counted_after(stays, |_| counted(window - 1)),
        })
    };
    if ahead.len() < all.len() {
        return go(ahead.first()?, window);
    }
    if let Some(donor) = complete {
        return go(donor, window + 1);
    }
    let last = all.iter().map(|report| report.view).max()?;
    let old = state.numbered(last)?;
    let dead = old.bits() & !bits(stays);
    let kept = old.turn == Turn::Redo && old.window == window && !planted(Mutation::KeptForgotten);
    let has_dead = |report: &&&Report| {
        let some = planted(Mutation::DeadInPart);
        report.view == last && (report.whole & dead == dead || some)
    };
    let witness = all.iter().find(has_dead).filter(|_| dead != 0);
    let witness = witness.filter(|_| all.iter().all(|report| report.sums));
    let counts = witness.is_some();
    Some(Plan {
        turn: Turn::Redo,
        window,
        donor: all.first()?.switch,
        lacks: joins.iter().map(|it| it.address).collect(),
        witness: witness.map(|report| report.switch),
        kept: if kept { old.extra.clone() } else { vec![] },
        dead,
        old: old.number,
        counted: old.counted_after(stays, |_| counted(window - u64::from(!counts))),
    })
}

fn counted(rotation: u64) -> u64 {
    if planted(Mutation::CountedForgotten) { 0 } else { rotation }
}

/// What the dead brought: what the witness merged, less what it had merged of the living. `None`:
/// the bytes are none.
pub fn brought(half: &[u8], sources: &BTreeMap<u32, Vec<u8>>) -> Option<Vec<u8>> {
    let half = unpack(half)?;
    let mut bitmaps: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut sums: BTreeMap<u32, Piece> = BTreeMap::new();
    for piece in half {
        match piece.block.checked_sub(BITMAP) {
            Some(number) => bitmaps.entry(number).or_default().extend(piece.cells),
            None => drop(sums.insert(piece.block, piece)),
        }
    }
    for (number, source) in sources {
        let bitmap = bitmaps.get(number);
        for piece in unpack(source)? {
            let word = bitmap.and_then(|it| it.get((piece.tag / 32) as usize));
            if word.is_none_or(|word| word >> (piece.tag % 32) & 1 == 0) {
                continue;
            }
            let sum = sums.entry(piece.block).or_insert_with(|| Piece {
                block: piece.block,
                tag: 0,
                cells: vec![0; CELLS as usize],
            });
            let cells = sum.cells.iter_mut().zip(&piece.cells);
            cells.for_each(|(sum, by)| *sum = sum.wrapping_sub(*by));
        }
    }
    let some = |piece: &Piece| piece.cells.iter().any(|cell| *cell != 0);
    let pieces: Vec<Piece> = sums.into_values().filter(some).collect();
    Some(pack(&pieces))
}

impl Plan {
    /// The decision. `extra`: what the dead brought, if there is a witness.
    pub fn decided(
        &self,
        number: u32,
        stays: &[Member],
        joins: &[Member],
        extra: Option<Vec<u8>>,
    ) -> Decided {
        let mut members: Vec<Member> = stays.to_vec();
        members.extend(joins);
        // (A member that is gone may have taken a view between that one and this one.)
        let mut counted = self.counted.clone();
        for last in counted.values_mut().filter_map(|of| of.last_mut()) {
            if last.view == self.old {
                last.view = number - 1;
            }
        }
        Decided {
            number,
            members,
            joins: joins.iter().map(|it| it.number).collect(),
            lacks: self.lacks.clone(),
            turn: self.turn,
            window: self.window,
            extra: extra.unwrap_or_else(|| self.kept.clone()),
            counted,
            lease: None,
            away: vec![],
            base: None,
        }
    }
}
