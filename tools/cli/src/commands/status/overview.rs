//! What was found: switches, stores, controllers, and whether all is well with them.

use command_line::{StoreView, SwitchView, System};
use controller::shell::{PeerStatus, Status as ControllerStatus};
use serde::Serialize;
use serde_json::{Map, Value};
use std::net::SocketAddrV4;
use switch_agent::control::Status as SwitchStatus;
use switch_agent::load::{Load as AgentLoad, ViewsKnown};
use wire::{Reporter, SwitchLoad};

/// How much a switch of this machine holds and has to do.
#[derive(Debug, Serialize)]
pub struct Load {
    #[serde(flatten)]
    pub agent: AgentLoad,
    /// What the systems tell.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
    #[serde(skip)]
    pub view: SwitchView,
}

impl Load {
    /// Takes apart what the agent tells of its systems.
    pub fn of(mut agent: AgentLoad, systems: &[&dyn System]) -> Result<Load, serde_json::Error> {
        let told = std::mem::take(&mut agent.systems);
        let mut view = SwitchView::of_all(systems, &told)?;
        Ok(Load { agent, fields: std::mem::take(&mut view.fields), view })
    }
}

/// A switch of this machine.
#[derive(Debug, Serialize)]
pub struct Switch {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub status: Option<SwitchStatus>,
    pub load: Option<Load>,
}

/// A server of the store.
#[derive(Debug, Serialize)]
pub struct Store {
    pub address: SocketAddrV4,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub status: Option<Value>,
    /// What its system shows of it.
    #[serde(skip)]
    pub view: Option<StoreView>,
}

/// A controller.
#[derive(Debug, Serialize)]
pub struct Controller {
    pub address: SocketAddrV4,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub status: Option<ControllerStatus>,
}

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Overview {
    pub switches: Vec<Switch>,
    pub stores: Vec<Store>,
    pub controllers: Vec<Controller>,
}

impl Switch {
    pub fn is_good(&self) -> bool {
        self.state() == "up"
    }

    /// In a word or two.
    pub fn state(&self) -> &'static str {
        match &self.load {
            _ if self.status.is_none() => "no answer",
            Some(load) if load.agent.views == Some(ViewsKnown::None) => "no views",
            Some(Load { view: SwitchView { fault: Some(fault), .. }, .. }) => fault,
            Some(load) if self.error.is_none() && load.agent.ports_attached == load.agent.ports => {
                "up"
            }
            _ => "not well",
        }
    }
}

impl Overview {
    pub fn is_good(&self) -> bool {
        let ready = |store: &Store| store.view.as_ref().is_some_and(|view| view.ready);
        let well = |controller: &Controller| {
            let well = |status: &ControllerStatus| {
                (status.settled || !status.leading) && status.warnings.is_empty()
            };
            controller.status.as_ref().is_some_and(well)
        };
        let forwards = |(_, load): &(&PeerStatus, &SwitchLoad)| load.ports_attached == load.ports;
        self.switches.iter().all(Switch::is_good)
            && self.reported_switches().iter().all(forwards)
            && self.stores.iter().all(ready)
            && self.controllers.iter().all(well)
            && (self.controllers.is_empty() || self.leaders() == 1)
            && self.leading().is_none_or(|status| silent(status).next().is_none())
    }

    /// Switches of other machines, as the controller that decides has heard of them.
    pub fn reported_switches(&self) -> Vec<(&PeerStatus, &SwitchLoad)> {
        let here = |id: u32| {
            self.switches.iter().any(|it| it.status.as_ref().is_some_and(|it| it.switch_id == id))
        };
        let elsewhere = |peer: &&PeerStatus| match peer.reporter {
            Reporter::Switch { switch_id } => !here(switch_id),
            Reporter::Server => false,
        };
        let peers = self.leading().into_iter().flat_map(daemons).filter(elsewhere);
        let mut found: Vec<_> =
            peers.filter_map(|peer| Some((peer, peer.load.as_ref()?))).collect();
        found.sort_by(|one, other| one.1.name.cmp(&other.1.name));
        found
    }

    /// Shards of the store, as far as the controller that decides lists them.
    pub fn shards(&self) -> usize {
        self.leading().map_or(0, |status| status.shards.len() + status.shards_left_out)
    }

    /// Controllers that decide, or believe so.
    pub fn leaders(&self) -> usize {
        let leads = |controller: &&Controller| {
            controller.status.as_ref().is_some_and(|status| status.leading)
        };
        self.controllers.iter().filter(leads).count()
    }

    /// The controller that decides; the newest, should two believe that for a moment.
    pub fn leading(&self) -> Option<&ControllerStatus> {
        let all = self.controllers.iter().filter_map(|controller| controller.status.as_ref());
        all.filter(|status| status.leading).max_by_key(|status| status.version)
    }
}

/// Servers and switches that the controller knows, without earlier lives of switches that report
/// again: a switch reports from another port in each.
pub fn daemons(status: &ControllerStatus) -> impl Iterator<Item = &PeerStatus> {
    status.peers.iter().filter(|peer| !is_earlier_life(peer, &status.peers))
}

/// Does it stand for a switch that is heard from elsewhere?
fn is_earlier_life(peer: &PeerStatus, peers: &[PeerStatus]) -> bool {
    let again = |other: &PeerStatus| other.alive && other.reporter == peer.reporter;
    !peer.alive && peer.reporter != Reporter::Server && peers.iter().any(again)
}

/// Those of them that it does not hear any more.
pub fn silent(status: &ControllerStatus) -> impl Iterator<Item = &PeerStatus> {
    daemons(status).filter(|peer| !peer.alive)
}
