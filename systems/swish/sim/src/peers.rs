//! One real switch, and the other members of its group, which a test plays: what they send is made
//! here, tagged with the group's secret. So a group may have as many members as the data plane has
//! room for.

use crate::model::{Checked, violated};
use crate::switch::{CPUS, FABRIC, HOSTS, MESSAGE_AT, Switch, harness, probe_frame, ring};
use dataplane::Verdict;
use std::net::Ipv4Addr;
use swish_protocol::PORT;
use swish_protocol::control::Member;
use swish_protocol::layouts::{NOTHING, NodeValue, SecretValue, phase};
use swish_protocol::message::{Cells, Message};
use swish_protocol::tag::{About, secret_value};
use swish_switch::group::{Caps, Open, View};

/// The group that is played: the program's first one.
const GROUP: usize = 0;
/// The window that it begins in.
pub const FIRST: u64 = 1;

/// What a member says, beside its number.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its window.
    pub window: u64,
    /// What it does in it (`layouts::phase`).
    pub phase: u64,
    /// Cells and total are of the window before.
    pub previous: bool,
    /// The number of the message among those of its window.
    pub number: u16,
    /// How many there are.
    pub total: u16,
    /// The number of a message that it lacks, or NOTHING.
    pub want: u16,
    /// What it brings.
    pub cells: Cells,
    /// Hops that its frame has made without cells, before it leaves.
    pub hops: u8,
}

impl Said {
    /// That it is ready for the window.
    pub fn ready(window: u64) -> Said {
        Said {
            window,
            phase: phase::READY,
            previous: false,
            number: NOTHING,
            total: NOTHING,
            want: NOTHING,
            cells: Cells::None,
            hops: 0,
        }
    }

    /// A message of so many that it sends in the window.
    pub fn message(window: u64, number: u16, total: u16, cells: Cells) -> Said {
        Said { phase: phase::SENDING, number, total, cells, ..Said::ready(window) }
    }

    /// That it sends none in the window.
    pub fn nothing(window: u64) -> Said {
        Said { total: 0, phase: phase::SENDING, ..Said::ready(window) }
    }
}

/// See the file.
pub struct Peers<'a> {
    switch: &'a Switch,
    view: View,
    secret: SecretValue,
    now_ns: u64,
    /// The last member that is ready is answered with the first message.
    early: Option<(u32, Cells)>,
    /// How long the data plane's program has run for messages.
    pub spent_ns: u64,
    /// Virtual time from one packet or frame to the next.
    pub step_ns: u64,
}

/// The address of the member with this number.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + number)
}

impl Peers<'_> {
    /// Begins a group of members 0 to `members` - 1 at a switch, which is `own` of them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(switch: &mut Switch, members: u32, own: u32) -> Checked<Peers<'_>> {
        switch.empty(0)?;
        switch.drain();
        let Some(ring) = ring() else { return violated("harness", "no secret") };
        let fixed = |number| Member { number, address: address(number), incarnation: 0 };
        let view = View {
            number: 0x1_0005,
            own,
            members: (0..members).map(fixed).collect(),
            period_ns: 0,
            caps: Caps::default(),
            bound: 1 << 32,
            window: FIRST,
            begins_ns: 0,
            turns_ns: 0,
            fan_out: 0,
        };
        let group = switch.group(GROUP);
        harness(group.begin(switch.dataplane(), &view, CPUS, &ring, Open::default()))?;
        let about = About {
            group: &group.described.name,
            layout: group.described.layout,
            view: view.number,
            members: &view.members,
            fan_out: 0,
        };
        let secret = secret_value(ring.secret(0), &about);
        Ok(Peers { switch, view, secret, now_ns: 1_000, early: None, spent_ns: 0, step_ns: 1_000 })
    }

    /// A message that adds to one cell of the group's first block.
    pub fn one_cell(cell: u16, by: u32) -> Cells {
        Cells::Single { each: 32, entries: vec![(0, vec![(cell, by)])] }
    }

    /// The members that are played.
    pub fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.view.own;
        (0..self.view.members.len() as u32).filter(move |number| *number != own)
    }

    /// Window and phase of the switch.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn word(&self) -> Checked<(u64, u64)> {
        let NodeValue { word, .. } = self.switch.node(GROUP)?;
        Ok((word >> 3, word & 7))
    }

    /// All cells of a variable of the group, as packets read them now.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn cells(&self, variable: usize) -> Checked<Vec<u32>> {
        self.switch.cells(&self.switch.shared[variable], self.word()?.0)
    }

    /// A packet at the switch updates a cell of each variable.
    ///
    /// # Errors
    /// The kernel refuses, or the packet is dropped.
    pub fn packet(&mut self, index: u32, amount: u32) -> Checked {
        self.now_ns += self.step_ns;
        let run = self.switch.dataplane().run(&probe_frame(index, amount), HOSTS, self.now_ns);
        match harness(run)?.verdict {
            Verdict::Forward { port: HOSTS } => Ok(()),
            other => violated("dropped", format!("a packet goes to {other:?}")),
        }
    }

    /// The frame in which this member says it to the switch.
    pub fn frame(&self, member: u32, said: &Said) -> Vec<u8> {
        let message = Message {
            group: GROUP as u8,
            hops: said.hops,
            view: self.view.number as u16,
            sender: member as u16,
            receiver: self.view.own as u16,
            window: said.window,
            phase: said.phase as u8,
            secret: 0,
            previous: said.previous,
            number: said.number,
            total: said.total,
            want: said.want,
            tag: 0,
            cells: said.cells.clone(),
        };
        let payload = message.encode(&self.secret);
        let [ip_bytes, udp_bytes] = [28, 8].map(|it| (payload.len() as u16 + it).to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend(ip_bytes);
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(address(member).octets());
        frame.extend(address(self.view.own).octets());
        frame.extend(49_152u16.to_be_bytes());
        frame.extend(PORT.to_be_bytes());
        frame.extend(udp_bytes);
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }

    /// The frame comes in; the answer, if there is one.
    ///
    /// # Errors
    /// The kernel refuses, or the answer is none that members understand.
    pub fn arrives(&mut self, frame: &[u8]) -> Checked<Option<Message>> {
        self.now_ns += self.step_ns;
        let outcome = harness(self.switch.dataplane().run(frame, FABRIC, self.now_ns))?;
        self.spent_ns += u64::from(outcome.duration_ns);
        match outcome.verdict {
            Verdict::Drop => Ok(None),
            Verdict::Forward { port: FABRIC } => self.read(&outcome.frame).map(Some),
            other => violated("message", format!("an answer goes to {other:?}")),
        }
    }

    fn read(&self, frame: &[u8]) -> Checked<Message> {
        let bytes = frame.get(MESSAGE_AT..).unwrap_or_default();
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(wrong) => return violated("message", wrong.to_string()),
        };
        if message.encode(&self.secret) != bytes {
            return violated("message", format!("another tag or form: {message:?}"));
        }
        Ok(message)
    }

    /// This member says it to the switch; the answer, if there is one.
    ///
    /// # Errors
    /// As `arrives`.
    pub fn say(&mut self, member: u32, said: &Said) -> Checked<Option<Message>> {
        let frame = self.frame(member, said);
        self.arrives(&frame)
    }

    /// All members say that they are ready for the switch's window, one after another. It goes on
    /// at the last one, and not before.
    ///
    /// # Errors
    /// It does not.
    pub fn all_ready(&mut self) -> Checked {
        let (window, _) = self.word()?;
        for member in self.others() {
            if self.word()?.1 > phase::READY {
                return violated("ready", format!("it does not wait for {member}"));
            }
            let answer = self.say(member, &Said::ready(window))?;
            let cells = answer.map(|it| it.cells).filter(|it| *it != Cells::None);
            self.early = cells.map(|cells| (member, cells));
        }
        match self.word()? {
            (now, phase::SENDING) if now == window => Ok(()),
            other => violated("ready", format!("all are, and the switch is in {other:?}")),
        }
    }

    /// All members send these messages in the switch's window, and get what it sends each of them.
    /// It ends with the last one, and not before. What it sent.
    ///
    /// # Errors
    /// It does not, or sends members something else.
    pub fn all_send(&mut self, sends: impl Fn(u32) -> Vec<Cells>) -> Checked<Vec<Cells>> {
        let (window, _) = self.word()?;
        let mut sent: Option<Vec<Cells>> = None;
        let others: Vec<u32> = self.others().collect();
        for member in &others {
            if self.word()?.0 != window {
                return violated("complete", format!("it does not wait for {member}"));
            }
            let got = self.exchange(*member, window, &sends(*member))?;
            match &sent {
                None => sent = Some(got),
                // (The window ends with the last message: what the switch still had for its sender
                // follows when that asks again, as it is not ready yet.)
                Some(sent) if others.last() == Some(member) || *sent == got => {}
                Some(_) => {
                    return violated("message", format!("{member} gets others, not {got:?}"));
                }
            }
        }
        match self.word()? {
            (now, _) if now == window + 1 => Ok(sent.unwrap_or_default()),
            other => violated("complete", format!("all is sent, and the switch is in {other:?}")),
        }
    }

    /// A member sends its messages, and gets the switch's.
    fn exchange(&mut self, member: u32, window: u64, sends: &[Cells]) -> Checked<Vec<Cells>> {
        let total = sends.len() as u16;
        let early = self.early.take_if(|(to, _)| *to == member);
        let mut got: Vec<Cells> = early.into_iter().map(|(_, cells)| cells).collect();
        let mut of_switch = 0;
        let messages = sends
            .iter()
            .zip(0..)
            .map(|(cells, number)| Said::message(window, number, total, cells.clone()));
        let nothing = std::iter::repeat(Said { total, ..Said::nothing(window) });
        for (at, said) in messages.chain(nothing).enumerate() {
            if at >= sends.len().max(1) && got.len() >= of_switch {
                break;
            }
            if at > sends.len() + of_switch {
                return violated("message", format!("{member} does not get all"));
            }
            let Some(answer) = self.say(member, &said)? else { continue };
            if answer.knows_total() {
                of_switch = usize::from(answer.total);
            }
            if answer.cells != Cells::None {
                got.push(answer.cells);
            }
        }
        Ok(got)
    }
}
