//! What the switch and the controllers of its groups tell each other: a socket and a clock around
//! `membership`. Without any controller the members stay as they are, and windows go on.

use crate::chain_member::ChainMember;
use crate::eventual_member::EventualMember;
use crate::membership::{Member, Outgoing};
use daemon::metrics::{Kind, Text};
use dataplane::Dataplane;
use secrets::SecretsFile;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use swish_protocol::control::{Message, name_hash};
use switch_agent::drops::Drops;
use switch_agent::system::now_ns;
use switch_agent::{Context, Error, Result};
use wire::{Control, KeyRing, kind};

/// After an error that will not go away by itself; secrets are read again as often.
const PAUSE: Duration = Duration::from_secs(1);
/// A controller that has not answered for so long is absent.
const ABSENT: Duration = Duration::from_secs(2);
const MOST_BYTES: usize = 65_536;

/// Messages from controllers, or from machines that pose as one, that changed nothing.
const REFUSED: [(&str, &str); 2] = [
    (
        "controller_bad_tag",
        "messages that no controller of this fabric made: give all machines the same secrets",
    ),
    (
        "controller_malformed",
        "messages of another version, or from a machine that poses as a controller",
    ),
];
const BAD_TAG: usize = 0;
const MALFORMED: usize = 1;

/// What a switch does as a member of a group that has controllers. It has one socket for all.
pub(crate) enum Following {
    /// Variables with SDW.
    Windows(Box<Member>),
    /// With EWO.
    Eventual(Box<EventualMember>),
    /// With SRO.
    Chain(Box<ChainMember>),
}

impl Following {
    /// Of a group with SDW.
    pub fn windows(&mut self) -> Option<&mut Member> {
        match self {
            Following::Windows(member) => Some(member),
            _ => None,
        }
    }

    /// Of a group with EWO.
    pub fn eventual(&mut self) -> Option<&mut EventualMember> {
        match self {
            Following::Eventual(member) => Some(member),
            _ => None,
        }
    }

    /// Of a group with SRO.
    pub fn chain(&mut self) -> Option<&mut ChainMember> {
        match self {
            Following::Chain(member) => Some(member),
            _ => None,
        }
    }

    /// The switch leaves the group, or comes back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave(&mut self, dataplane: &Dataplane, leaves: bool) -> dataplane::Result<()> {
        match self {
            Following::Windows(member) => {
                member.leave(leaves);
                Ok(())
            }
            Following::Eventual(member) => member.leave(dataplane, leaves),
            Following::Chain(member) => member.leave(dataplane, leaves),
        }
    }

    /// Time has passed. What there is to say, and when this is wanted again.
    fn tick(
        &mut self,
        dataplane: &Dataplane,
        now_ns: u64,
    ) -> (dataplane::Result<Vec<Outgoing>>, u64) {
        match self {
            Following::Windows(member) => {
                let out = member.tick(dataplane, now_ns);
                (out, member.next_ns(now_ns))
            }
            Following::Eventual(member) => {
                let out = member.tick(dataplane, now_ns);
                (out, member.next_ns())
            }
            Following::Chain(member) => {
                let out = member.tick(dataplane, now_ns);
                (out, member.next_ns())
            }
        }
    }

    /// A message of a controller came.
    fn message(
        &mut self,
        dataplane: &Dataplane,
        now_ns: u64,
        from: SocketAddrV4,
        message: Message,
    ) -> dataplane::Result<Vec<Outgoing>> {
        match self {
            Following::Windows(member) => member.message(dataplane, now_ns, from, message),
            Following::Eventual(member) => member.message(dataplane, now_ns, message),
            Following::Chain(member) => member.message(dataplane, now_ns, message),
        }
    }
}

/// A group that has controllers.
pub(crate) struct Group {
    pub name: String,
    /// What controllers call its variables of one consistency (`control::part_name`).
    pub part: String,
    pub controllers: Vec<SocketAddrV4>,
    pub member: Mutex<Following>,
}

/// The group with this name, by its consistencies; or all groups.
///
/// # Errors
/// There is no such group.
pub(crate) fn named<'a>(
    controlled: Option<&'a Controlled>,
    name: Option<&str>,
) -> Result<Vec<&'a Group>> {
    let known = || controlled.iter().flat_map(|it| &it.groups);
    let found: Vec<&Group> = known().filter(|it| name.is_none_or(|name| it.name == name)).collect();
    if found.is_empty() {
        let mut names: Vec<&str> = known().map(|it| it.name.as_str()).collect();
        // (A group has a part for each consistency.)
        names.sort_unstable();
        names.dedup();
        return Err(Error::Other(format!(
            "no such group with controllers on this switch; it has: {}",
            if names.is_empty() { "none".into() } else { names.join(", ") }
        )));
    }
    Ok(found)
}

/// What `stateplane status` is told of controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllersLoad {
    /// Groups none of whose controllers answers.
    pub groups: Vec<String>,
    /// Controllers that do not answer.
    pub silent: Vec<SocketAddrV4>,
}

impl ControllersLoad {
    /// Of groups with their controllers.
    fn of<'a>(
        groups: impl Iterator<Item = (&'a str, &'a [SocketAddrV4])>,
        answers: impl Fn(&SocketAddrV4) -> bool,
    ) -> ControllersLoad {
        let (mut lost, mut silent) = (BTreeSet::new(), BTreeSet::new());
        for (group, controllers) in groups {
            if !controllers.iter().any(&answers) {
                lost.insert(group.to_owned());
            }
            silent.extend(controllers.iter().copied().filter(|it| !answers(it)));
        }
        // (A group has a part for each consistency.)
        ControllersLoad { groups: lost.into_iter().collect(), silent: silent.into_iter().collect() }
    }
}

/// All groups with controllers, on one socket.
pub(crate) struct Controlled {
    pub groups: Vec<Group>,
    dataplane: Arc<Dataplane>,
    /// This switch's address, for controllers.
    own: Ipv4Addr,
    secrets: PathBuf,
    refused: [AtomicU64; REFUSED.len()],
    heard: Mutex<BTreeMap<SocketAddrV4, Instant>>,
    fault: Mutex<Option<String>>,
    running: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controlled {
    /// None: no group has controllers.
    pub fn of(
        context: &Context,
        own: Option<Ipv4Addr>,
        groups: Vec<Group>,
    ) -> Option<Arc<Controlled>> {
        let (own, secrets) = (own?, context.config.secrets.clone()?);
        Some(Arc::new(Controlled {
            groups,
            dataplane: Arc::clone(&context.dataplane),
            own,
            secrets,
            refused: Default::default(),
            heard: Mutex::default(),
            fault: Mutex::default(),
            running: AtomicBool::new(true),
        }))
    }

    /// Messages that changed nothing.
    pub fn drops(&self) -> impl Iterator<Item = Drops> {
        let refused = REFUSED.into_iter().zip(&self.refused);
        refused.map(|((reason, remedy), count)| Drops {
            reason,
            remedy,
            count: count.load(Ordering::Relaxed),
        })
    }

    pub fn member(&self, part: &str) -> Option<&Mutex<Following>> {
        self.groups.iter().find(|it| it.part == part).map(|it| &it.member)
    }

    fn refuse(&self, at: usize) {
        self.refused[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Controllers that answer.
    pub fn answering(&self) -> usize {
        lock(&self.heard).values().filter(|at| at.elapsed() < ABSENT).count()
    }

    /// Who answers, for operators.
    pub fn controllers(&self) -> ControllersLoad {
        let heard = lock(&self.heard);
        let answers = |it: &SocketAddrV4| heard.get(it).is_some_and(|at| at.elapsed() < ABSENT);
        let all = self.groups.iter().map(|it| (it.name.as_str(), it.controllers.as_slice()));
        ControllersLoad::of(all, answers)
    }

    /// Why the newest decision is not taken.
    pub fn fault(&self) -> Option<String> {
        lock(&self.fault).clone()
    }

    pub fn metrics(&self, text: &mut Text) {
        let help = "Controllers of groups of shared variables that answer.";
        text.single(
            "stateplane_switch_shared_controllers",
            Kind::Gauge,
            help,
            self.answering() as u64,
        );
    }

    /// Ends the thread, soon.
    pub fn stop(&self) {
        self.running.store(false, Ordering::Relaxed);
    }

    fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// Begins to report.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn serve(self: &Arc<Controlled>) -> Result<()> {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("shared".into()).spawn(move || {
            // A switch whose reports are late looks dead.
            dataplane::before_others();
            let mut told = String::new();
            while this.is_running() {
                if let Err(problem) = this.follow()
                    && problem != told
                {
                    tracing::error!("controllers of shared variables: {problem}");
                    told = problem;
                }
                std::thread::sleep(PAUSE);
            }
        });
        let failed =
            |source| Error::System { action: "start a thread for controllers".into(), source };
        thread.map(drop).map_err(failed)
    }

    /// Reports and listens until something fails.
    fn follow(&self) -> std::result::Result<(), String> {
        let Some(socket) = self.bind()? else { return Ok(()) };
        let mut keys = self.keys()?;
        let mut read_at = Instant::now();
        let mut buffer = vec![0; MOST_BYTES];
        while self.is_running() {
            if read_at.elapsed() >= PAUSE {
                // (A file that is being changed can be unreadable.)
                keys = self.keys().unwrap_or(keys);
                read_at = Instant::now();
            }
            let now = now_ns();
            let mut next = now + 10_000_000;
            for group in &self.groups {
                let (out, wanted_ns) = lock(&group.member).tick(&self.dataplane, now);
                next = next.min(wanted_ns);
                self.send(&socket, &keys, group, out);
            }
            let left = Duration::from_nanos(next.saturating_sub(now_ns()).max(100_000));
            socket.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            // (Nothing in time, or the answer of a controller that is not running.)
            if let Ok((count, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) {
                self.datagram(&socket, &keys, from, &buffer[..count]);
            }
        }
        Ok(())
    }

    fn keys(&self) -> std::result::Result<KeyRing, String> {
        let file = SecretsFile::load(&self.secrets);
        Ok(file.map_err(|error| error.to_string())?.ring().clone())
    }

    /// A socket with a port of the kernel's choice. The address may come after the agent has
    /// started. `None`: the agent stops.
    fn bind(&self) -> std::result::Result<Option<UdpSocket>, String> {
        while self.is_running() {
            match UdpSocket::bind((self.own, 0)) {
                Ok(socket) => return Ok(Some(socket)),
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(format!("{}: {error}", self.own)),
            }
        }
        Ok(None)
    }

    fn send(
        &self,
        socket: &UdpSocket,
        keys: &KeyRing,
        group: &Group,
        out: dataplane::Result<Vec<Outgoing>>,
    ) {
        let fault = out.as_ref().err().map(ToString::to_string);
        let mut known = lock(&self.fault);
        if let Some(why) = fault.as_ref().filter(|_| *known != fault) {
            tracing::error!("the group {} of shared variables: {why}", group.part);
        }
        if fault.is_some() {
            *known = fault;
        }
        drop(known);
        for (to, message) in out.unwrap_or_default() {
            let mut bytes = message.encode();
            let one = to.as_slice();
            for controller in if one.is_empty() { &group.controllers } else { one } {
                keys.sign(&mut bytes, self.own, *controller.ip());
                // (What cannot be sent now is sent again soon.)
                let _ = socket.send_to(&bytes, controller);
            }
        }
    }

    fn datagram(&self, socket: &UdpSocket, keys: &KeyRing, from: SocketAddrV4, bytes: &[u8]) {
        let known = self.groups.iter().any(|group| group.controllers.contains(&from));
        if keys.verify(bytes, *from.ip(), self.own).is_err() || !known {
            self.refuse(BAD_TAG);
            if known && matches!(kind(bytes), Ok(wire::Kind::Control(_))) {
                *lock(&self.fault) = Some(format!(
                    "controller {from} has other secrets than {}",
                    self.secrets.display()
                ));
            }
            return;
        }
        lock(&self.heard).insert(from, Instant::now());
        let Ok(message) = Message::decode(bytes) else {
            if Control::decode(bytes) != Ok(Control::Heard) {
                self.refuse(MALFORMED);
            }
            return;
        };
        let wanted = |group: &&Group| match &message {
            Message::Order(order) => order.group == group.part,
            Message::Ask(which, ..) | Message::Part(which, _) => {
                which.group == name_hash(&group.part)
            }
            Message::Report(_) => false,
        };
        let Some(group) = self.groups.iter().find(wanted) else { return self.refuse(MALFORMED) };
        if !group.controllers.contains(&from) {
            return self.refuse(BAD_TAG);
        }
        let out = lock(&group.member).message(&self.dataplane, now_ns(), from, message);
        self.send(socket, keys, group, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_lost_when_none_of_its_controllers_answers() {
        let at = |last| SocketAddrV4::new(Ipv4Addr::new(10, 2, 9, last), 5412);
        let (both, one) = ([at(1), at(2)], [at(2)]);
        let groups = || [("main", &both[..]), ("other", &one[..]), ("other", &one[..])].into_iter();
        let load = ControllersLoad::of(groups(), |it| *it == at(1));
        assert_eq!((load.groups, load.silent), (vec!["other".to_owned()], vec![at(2)]));
        let load = ControllersLoad::of(groups(), |it| *it == at(2));
        assert_eq!((load.groups, load.silent), (vec![], vec![at(1)]));
    }
}
