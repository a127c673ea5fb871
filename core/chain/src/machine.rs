//! What a chain replicates.

use crate::Touched;
use std::hash::Hash;

/// An effect that does not fit the state: it did not come from a head with the same history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoesNotApply;

/// The state of one replica, and how ordered effects change it.
///
/// An effect describes what is to be, completely: applied once more it changes nothing. Replicas
/// that applied the same effects in the same order have the same state. So effects are decided at
/// the head, where clocks, random numbers and requests are, and carry the decision. What only the
/// head knows, such as how long a lease runs, may lie beside the replicated state; it is no part of
/// `digest` or of the effects that describe the state.
///
/// A copy to a joining replica is a stream of effects while others go on being ordered. The state
/// is described in three parts:
///
/// - *slots*, numbered, which a sweep visits once each, in order;
/// - *pieces*, the parts that effects touch: what is touched is described again;
/// - the *rest*, which is small, and described in the last instant, all at once.
pub trait StateMachine {
    /// What an entry does. It borrows from the datagram, so that nothing is copied.
    type Effect<'a>: wire::Effect<'a> + Copy;

    /// What the head learns from an effect that it ordered, such as the place of what was written.
    type Written;

    /// Names a part of the state that an effect can touch.
    type Piece: Clone + Eq + Hash;

    /// The same state machine without replicated state; what the operator decided stays.
    fn empty(&self) -> Self;

    /// Carries out an effect. On error nothing has changed.
    fn apply(&mut self, effect: &Self::Effect<'_>) -> Result<Self::Written, DoesNotApply>;

    /// How many slots there are, used or not. What is created later may lie in a lower one, and is
    /// touched then.
    fn slots(&self) -> u32;

    /// Effects that bring an empty state machine to what is in a slot. None for an unused slot, or
    /// one that another slot's effects describe.
    fn slot_effects(&self, slot: u32) -> impl Iterator<Item = Self::Effect<'_>>;

    /// Notes which pieces `effect` is about to touch; `self` is the state before it. What changes
    /// in a slot that the sweep has not passed may be left out; what is removed may not, as the
    /// copy can have it. The rest is not noted.
    fn note_touched(&self, effect: &Self::Effect<'_>, touched: &mut Touched<Self::Piece>);

    /// Effects that bring whatever a copy has of this piece to what it is now, or is no more.
    fn piece_effects<'a>(
        &'a self,
        piece: &'a Self::Piece,
    ) -> impl Iterator<Item = Self::Effect<'a>>;

    /// Effects that describe what is in no slot.
    fn rest_effects(&self) -> impl Iterator<Item = Self::Effect<'_>>;

    /// Effects that bring an empty state machine to the whole state.
    fn effects(&self) -> impl Iterator<Item = Self::Effect<'_>> {
        self.rest_effects().chain((0..self.slots()).flat_map(|slot| self.slot_effects(slot)))
    }

    /// How many records there are, as controllers are told.
    fn records(&self) -> u64;

    /// Digest of the replicated state: equal histories give equal digests.
    fn digest(&self) -> u64;
}
