//! A switch as a member of a group that controllers decide on (README, "Membership"): seal, report,
//! take. Rules over a loaded object, without sockets and clocks: `controlled` gives them both.

use crate::exclusion::{ExcludedLoad, Exclusions};
use crate::group::{Caps, Group, Open, View};
use crate::load::Traffic;
use crate::maps::{Held, Maps};
use crate::mutation::{Mutation, planted};
use dataplane::{Dataplane, Result};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_protocol::bulk::{self, Piece, Pull};
use swish_protocol::control::{
    self, Load, Message, Order, Report, Task, Turn, What, Which, name_hash,
};
use swish_protocol::layouts::phase;
use wire::KeyRing;

/// What does not change while the switch runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This switch's address.
    pub own: Ipv4Addr,
    /// Of its life.
    pub incarnation: u32,
    /// Of a window, at the least.
    pub period_ns: u64,
    /// What windows may cost.
    pub caps: Caps,
    /// Updates of a rotation.
    pub bound: u64,
    /// CPUs that may have packets.
    pub cpus: u32,
    /// See there.
    pub pace: Pace,
}

/// Times, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From one report to the next, at the most.
    pub report_ns: u64,
    /// A seal ends if no controller speaks of it for so long: then the old view goes on.
    pub seal_ns: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { report_ns: 10_000_000, seal_ns: 250_000_000 }
    }
}

/// To one controller, or to all.
pub type Outgoing = (Option<SocketAddrV4>, Message);

struct Seal {
    number: u32,
    until_ns: u64,
    /// No CPU works on a frame.
    done: bool,
}

/// A decision whose state is still under way.
struct Taking {
    from: SocketAddrV4,
    view: control::View,
    value: Option<Pull>,
    extra: Option<Pull>,
}

/// See the module.
pub struct Member {
    group: Group,
    maps: Maps,
    settings: Settings,
    /// None: not known yet, and nothing is taken.
    ring: Option<KeyRing>,
    /// The newest decision that the data plane has. None: it has none, or an earlier agent took it.
    view: Option<View>,
    seal: Option<Seal>,
    known: u32,
    /// Of this seal.
    images: BTreeMap<(Which, u64), Vec<u8>>,
    taking: Option<Taking>,
    giving_up: bool,
    /// Updates of an earlier time as a member, which the next decision may want; its last view.
    held: (u32, Vec<Held>),
    moved: ((u64, u64), u64),
    report_ns: u64,
    leaves: bool,
    /// All that packets updated counts when this window begins. None: they still update.
    counts_in: Option<u64>,
    traffic: Traffic,
    exclusions: Exclusions,
    /// Decisions taken.
    pub taken: u64,
}

impl Member {
    /// With what an earlier agent left in the object.
    ///
    /// # Errors
    /// The object has no such maps.
    pub fn new(dataplane: &Dataplane, group: Group, settings: Settings) -> Result<Member> {
        let maps = Maps::of(dataplane, &group)?;
        // (An earlier agent ended in the middle.)
        if maps.is_half_written() || maps.word().0 == 0 {
            maps.stop();
            maps.empty();
        }
        maps.unseal();
        maps.close(false);
        let known = maps.view();
        Ok(Member {
            group,
            maps,
            settings,
            ring: None,
            view: None,
            seal: None,
            known,
            images: BTreeMap::new(),
            taking: None,
            giving_up: false,
            held: (0, vec![]),
            moved: ((0, 0), 0),
            report_ns: 0,
            leaves: false,
            counts_in: None,
            traffic: Traffic::default(),
            exclusions: Exclusions::default(),
            taken: 0,
        })
    }

    /// The members of the view, if this agent knows them.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Switches that controllers keep out.
    pub fn excluded(&self, now_ns: u64) -> ExcludedLoad {
        self.exclusions.load(now_ns)
    }

    /// The switch is to leave the group, or to come back.
    pub fn leave(&mut self, leaves: bool) {
        self.leaves = leaves;
        self.counts_in = None;
        self.maps.close(leaves);
        self.report_ns = 0;
    }

    /// Whether it is to leave.
    pub fn leaves(&self) -> bool {
        self.leaves
    }

    /// Nothing is left here of what its packets updated.
    pub fn is_empty(&self) -> bool {
        let window = self.maps.word().0;
        !self.has_state() || self.counts_in.is_some_and(|counts_in| window >= counts_in)
    }

    /// What operators are told.
    pub fn load(&self, now_ns: u64) -> Load {
        Load {
            bound: self.settings.bound,
            period_us: self.settings.period_ns / 1000,
            memory_bytes: self.group.memory_bytes(),
            bytes_per_s: self.traffic.per_s(),
            age_ms: self.maps.age_ns(now_ns) / 1_000_000,
        }
    }

    /// Before it leaves, its packets update nothing any more; then what they updated counts, in
    /// this rotation or the next one.
    fn empty(&mut self) {
        if self.leaves && self.maps.word().0 > 0 {
            self.maps.close(true);
            if self.counts_in.is_none() && self.maps.packets_are_done() {
                self.counts_in = Some(self.maps.word().0 + 2);
            }
        }
    }

    /// Other secrets tag messages from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn secrets(&mut self, dataplane: &Dataplane, ring: &KeyRing) -> Result<()> {
        self.ring = Some(ring.clone());
        self.view.as_ref().map_or(Ok(()), |view| self.group.secrets(dataplane, view, ring))
    }

    /// How long the window has stood still. (In a pause of this switch it does not: the others
    /// wait, and no member is slow.)
    pub fn still_ms(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.moved.1.max(self.maps.pauses_until_ns())) / 1_000_000
    }

    /// A bit for each member that holds the window up.
    pub fn lacks(&self) -> u64 {
        self.maps.lacks()
    }

    /// When [`Member::tick`] is wanted.
    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let waits = self.seal.as_ref().is_some_and(|seal| !seal.done);
        let soon = if waits || self.giving_up {
            200_000
        } else if self.taking.is_some() {
            1_000_000
        } else {
            u64::MAX / 2
        };
        self.report_ns.min(now_ns + soon)
    }

    /// A message of a controller came. What there is to say.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn message(
        &mut self,
        dataplane: &Dataplane,
        now_ns: u64,
        from: SocketAddrV4,
        message: Message,
    ) -> Result<Vec<Outgoing>> {
        match message {
            Message::Order(Order { incarnation, task, .. })
                if incarnation == self.settings.incarnation =>
            {
                self.order(dataplane, now_ns, from, task)?;
            }
            Message::Ask(which, offset, since) => {
                let part = self.part(dataplane, which, offset, since)?;
                return Ok(part.into_iter().map(|it| (Some(from), it)).collect());
            }
            Message::Part(which, part) => {
                if let Some(taking) = &mut self.taking
                    && taking.view.number == which.number
                {
                    let pull = match which.what {
                        What::Value => taking.value.as_mut(),
                        What::Extra => taking.extra.as_mut(),
                        _ => None,
                    };
                    pull.into_iter().for_each(|pull| pull.take(part.clone()));
                }
            }
            _ => {}
        }
        self.tick(dataplane, now_ns)
    }

    /// Time has passed. What there is to say.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tick(&mut self, dataplane: &Dataplane, now_ns: u64) -> Result<Vec<Outgoing>> {
        let progress = self.maps.progress();
        if self.moved.0 != progress {
            self.moved = (progress, now_ns);
        }
        if self.seal.as_ref().is_some_and(|seal| now_ns >= seal.until_ns) {
            self.end_seal();
            self.maps.unseal();
            self.taking = None;
            self.report_ns = now_ns;
        }
        if let Some(seal) = self.seal.as_mut().filter(|seal| !seal.done)
            && self.maps.frames_are_done()
        {
            seal.done = true;
            self.report_ns = now_ns;
        }
        if self.giving_up && self.maps.packets_are_done() && self.maps.frames_are_done() {
            self.giving_up = false;
            self.held = (self.maps.view(), self.maps.empty());
            self.view = None;
            self.report_ns = now_ns;
        }
        self.empty();
        if self.traffic.is_due(now_ns) {
            let bytes = crate::load::bytes(dataplane, &self.group)?;
            self.traffic.update(now_ns, bytes);
        }
        let mut out = self.go_on_taking(dataplane, now_ns)?;
        if now_ns >= self.report_ns {
            self.report_ns = now_ns + self.settings.pace.report_ns;
            out.push((None, Message::Report(self.report(now_ns))));
        }
        Ok(out)
    }

    fn end_seal(&mut self) {
        self.seal = None;
        self.images.clear();
    }

    fn has_state(&self) -> bool {
        self.maps.word().0 > 0 || self.giving_up
    }

    /// What controllers are told.
    pub fn report(&self, now_ns: u64) -> Report {
        let (window, phase) = self.maps.word();
        Report {
            group: self.group.described.name.clone(),
            switch: self.settings.own,
            incarnation: self.settings.incarnation,
            sent_ns: now_ns,
            layout: self.group.described.layout,
            sums: self.group.sums(),
            view: if self.has_state() { self.maps.view() } else { 0 },
            window,
            phase,
            sealed: self.seal.as_ref().filter(|seal| seal.done).map_or(0, |seal| seal.number),
            known: self.known,
            asks: window > 0 && self.view.is_none(),
            whole: self.maps.whole(),
            lacks: self.maps.lacks(),
            still_ms: self.still_ms(now_ns),
            leaves: self.leaves,
            empty: self.leaves && self.is_empty(),
            load: self.load(now_ns),
            chain: None,
            eventual: None,
        }
    }

    fn order(
        &mut self,
        dataplane: &Dataplane,
        now_ns: u64,
        from: SocketAddrV4,
        task: Task,
    ) -> Result<()> {
        match task {
            Task::Heard | Task::Sum { .. } => {}
            Task::Seal { number } => self.seal(now_ns, number),
            Task::Take(view) => self.take(dataplane, now_ns, from, view)?,
            Task::Removed { number, why } => {
                self.exclusions.removed(now_ns, &self.group.described.name, number, why);
                self.known = self.known.max(number);
                if number > self.maps.view() && self.maps.word().0 > 0 {
                    // Frames are refused from now on, also after the seal's end.
                    self.end_seal();
                    self.taking = None;
                    self.maps.seal(number);
                    self.maps.stop();
                    self.giving_up = true;
                }
            }
        }
        Ok(())
    }

    fn seal(&mut self, now_ns: u64, number: u32) {
        let until_ns = now_ns + self.settings.pace.seal_ns;
        match &mut self.seal {
            Some(seal) if seal.number == number => seal.until_ns = until_ns,
            _ if number > self.known && self.maps.word().0 > 0 => {
                self.known = number;
                self.images.clear();
                self.taking = None;
                self.maps.seal(number);
                self.seal = Some(Seal { number, until_ns, done: false });
            }
            _ => {}
        }
    }

    /// Under the seal of that decision, or not at all: after it the old view has gone on.
    fn take(
        &mut self,
        dataplane: &Dataplane,
        now_ns: u64,
        from: SocketAddrV4,
        view: control::View,
    ) -> Result<()> {
        let Some(ring) = &self.ring else { return Ok(()) };
        let own = view.members.iter().any(|it| {
            it.address == self.settings.own && it.incarnation == self.settings.incarnation
        });
        let begun = self.maps.word().0 > 0;
        if !own || self.giving_up {
            return Ok(());
        }
        if begun && view.number == self.maps.view() {
            if self.view.is_none() {
                let own = self.view_of(&view, now_ns);
                self.group.secrets(dataplane, &own, ring)?;
                self.view = Some(own);
            }
            self.exclusions.taken(view.number, &view.excluded);
            return Ok(());
        }
        let sealed = self.seal.as_mut().filter(|it| it.done && it.number == view.number);
        match sealed {
            Some(seal) => seal.until_ns = now_ns + self.settings.pace.seal_ns,
            None if !begun && view.number >= self.known => self.known = view.number,
            None => return Ok(()),
        }
        if self.taking.as_ref().is_some_and(|it| it.view == view && it.from == from) {
            return Ok(());
        }
        let (value, extra) = (view.value.then(Pull::default), view.extra.then(Pull::default));
        self.taking = Some(Taking { from, view, value, extra });
        Ok(())
    }

    fn view_of(&self, view: &control::View, now_ns: u64) -> View {
        let own = view.members.iter().find(|it| it.address == self.settings.own);
        View {
            number: view.number,
            own: own.map_or(0, |it| it.number),
            members: view.members.clone(),
            period_ns: self.settings.period_ns,
            caps: self.settings.caps,
            bound: self.settings.bound,
            window: view.window,
            begins_ns: now_ns,
            turns_ns: now_ns,
            fan_out: 0,
        }
    }

    /// Asks for what a decision needs; takes it when all of that is there.
    fn go_on_taking(&mut self, dataplane: &Dataplane, now_ns: u64) -> Result<Vec<Outgoing>> {
        let Some(mut taking) = self.taking.take() else { return Ok(vec![]) };
        let window = self.maps.word().0;
        let (group, number) = (name_hash(&self.group.described.name), taking.view.number);
        let mut out = vec![];
        for (what, pull) in [(What::Value, &mut taking.value), (What::Extra, &mut taking.extra)] {
            let which = Which { group, number, what };
            for offset in pull.iter_mut().flat_map(|pull| pull.asks(now_ns)) {
                out.push((Some(taking.from), Message::Ask(which, offset, window)));
            }
        }
        let pieces = |pull: &Option<Pull>| match pull {
            None => Some(vec![]),
            Some(pull) => pull.whole().and_then(bulk::unpack),
        };
        match (pieces(&taking.value), pieces(&taking.extra)) {
            (Some(value), Some(extra)) => {
                self.write(dataplane, now_ns, &taking.view, &value, &extra)?;
                self.report_ns = now_ns;
            }
            _ => self.taking = Some(taking),
        }
        Ok(out)
    }

    fn write(
        &mut self,
        dataplane: &Dataplane,
        now_ns: u64,
        decided: &control::View,
        value: &[Piece],
        extra: &[Piece],
    ) -> Result<()> {
        let view = self.view_of(decided, now_ns);
        let Some(ring) = self.ring.clone() else { return Ok(()) };
        if self.maps.word().0 == 0 {
            self.begin(dataplane, &ring, (decided, &view), value, extra)?;
        } else {
            self.maps.begin_writing();
            self.turn(decided, &view, now_ns, value, extra);
            self.group.secrets(dataplane, &view, &ring)?;
        }
        self.end_seal();
        self.maps.unseal();
        // (Members of the new view had no time yet to hold it up.)
        self.moved = (self.maps.progress(), now_ns);
        self.exclusions.taken(decided.number, &decided.excluded);
        self.view = Some(view);
        self.taken += 1;
        Ok(())
    }

    /// The switch joins.
    fn begin(
        &mut self,
        dataplane: &Dataplane,
        ring: &KeyRing,
        (decided, view): (&control::View, &View),
        value: &[Piece],
        extra: &[Piece],
    ) -> Result<()> {
        self.maps.seal(view.number);
        self.maps.begin_writing();
        self.counts_in = None;
        self.maps.fill(value);
        self.maps.add_extra(view.window, extra);
        let (last, held) = std::mem::take(&mut self.held);
        let mut open = Open::default();
        // (What no decision speaks of may have counted.)
        let counted = decided.counted.iter().filter(|(view, _)| *view >= last).min();
        if let Some((_, counted)) = counted.copied() {
            let all = planted(Mutation::CountedHandedIn);
            let uncounted = held.into_iter().filter(|it| all || it.rotation > counted);
            let pieces = self.together(uncounted.flat_map(|it| it.pieces))?;
            (open.blocks, open.most_cells) = self.maps.hand_in(dataplane, view.window, &pieces)?;
        }
        self.group.begin(dataplane, view, self.settings.cpus, ring, open)
    }

    /// A member takes the decision.
    fn turn(
        &self,
        decided: &control::View,
        view: &View,
        now_ns: u64,
        value: &[Piece],
        extra: &[Piece],
    ) {
        let (window, now) = self.maps.word();
        let goes = decided.turn == Turn::Go && window < decided.window;
        let redo = decided.turn == Turn::Redo && window == decided.window;
        // (A member that goes on and lacks no value has merged all of the window.)
        if goes && decided.value || redo && !planted(Mutation::AttemptKept) {
            self.maps.take_back(window);
        }
        if goes && decided.value {
            self.maps.copy(window, value);
        }
        if redo {
            self.maps.add_extra(window, extra);
        }
        let is_ready = !goes && now >= phase::READY;
        for member in &view.members {
            let own = is_ready && member.number == view.own;
            let address = u32::from_ne_bytes(member.address.octets());
            self.maps.reset_member(member.number, address, if own { window } else { 0 });
        }
        self.maps.set_view(view, is_ready);
        if goes {
            self.maps.advance(decided.window, now_ns);
        }
        self.maps.send_again();
    }

    /// State that a controller asks for, under its seal.
    fn part(
        &mut self,
        dataplane: &Dataplane,
        which: Which,
        offset: u32,
        since: u64,
    ) -> Result<Option<Message>> {
        let seal = self.seal.as_ref().filter(|seal| seal.done && seal.number == which.number);
        if seal.is_none() {
            return Ok(None);
        }
        if !self.images.contains_key(&(which, since)) {
            let pieces = match which.what {
                What::Value => {
                    // (A member that has merged all of the window is about to read it.)
                    let (window, now) = self.maps.word();
                    let done = now == phase::SENDING && self.maps.lacks() == 0;
                    self.maps.value(window + u64::from(done), since)
                }
                What::Half => self.maps.half(),
                What::Source => {
                    self.maps.source(dataplane, self.group.node(dataplane)?.message_blocks)?
                }
                What::Extra => return Ok(None),
            };
            self.images.insert((which, since), bulk::pack(&pieces));
        }
        let image = self.images.get(&(which, since));
        Ok(image.map(|bytes| Message::Part(which, bulk::part(bytes, offset))))
    }

    /// Pieces of the same block become one.
    fn together(&self, pieces: impl Iterator<Item = Piece>) -> Result<Vec<Piece>> {
        let mut all: BTreeMap<u32, Piece> = BTreeMap::new();
        for piece in pieces {
            match all.get_mut(&piece.block) {
                None => drop(all.insert(piece.block, piece)),
                Some(sum) => self.group.merge(piece.block, &mut sum.cells, &piece.cells)?,
            }
        }
        Ok(all.into_values().collect())
    }
}
