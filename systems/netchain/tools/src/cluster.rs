//! `stateplane kv controller`, `status`, `drain`, `refound`, `collect`, `rebalance`: the cluster's
//! controller, and what operators ask and order of it.

use clap::Args;
use command_line::{daemon as commands, outln, print_table};
use controller::config::Keep;
use netchain_daemon::{
    Answer, Config, GroupStatus, Groups, GroupsWanted, Order, Request, Status, SwitchStatus,
};
use secrets::SecretsFile;
use serde_json::json;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;
use wire::ToolType;

const CONTROLLER_EXAMPLES: &str = "Examples:
  stateplane kv controller --config controller.toml --check   check the configuration
  stateplane kv controller --config controller.toml           run; SIGHUP: read the secrets again
  stateplane kv status --address 10.2.1.10:5411 --secrets fabric.secrets

systems/netchain/docs/controller.example.toml is a commented configuration.";

/// Words after `kv controller`.
#[derive(Args, Debug)]
#[command(after_help = CONTROLLER_EXAMPLES)]
pub struct ControllerArgs {
    /// The controller's configuration.
    #[arg(long = "config", id = "controller_config", value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration: exit code 0 if it is good, 1 with the reason if not.
    #[arg(long)]
    check: bool,
}

/// Whom to ask.
#[derive(Args, Debug)]
pub struct Controller {
    /// The controller's address.
    #[arg(long, value_name = "IP:PORT")]
    address: SocketAddrV4,
    /// The fabric's shared secrets (`stateplane keys`); the controller answers only with them.
    #[arg(long, value_name = "FILE")]
    secrets: PathBuf,
    /// How long to wait for an answer.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout_ms: u64,
}

/// Words after `kv status`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 all chains are whole and serve; 1 they do not; 2 there is no \
                        answer."
)]
pub struct StatusArgs {
    #[command(flatten)]
    controller: Controller,
    /// Also print all groups: chain, view, stage.
    #[arg(long)]
    groups: bool,
}

/// Words after `kv drain`.
#[derive(Args, Debug)]
pub struct DrainArgs {
    /// NetChain address of the switch.
    switch: Ipv4Addr,
    /// Take a drain back: the switch may be a member of chains again.
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    controller: Controller,
}

/// Words after `kv refound`.
#[derive(Args, Debug)]
pub struct RefoundArgs {
    /// The group's number, as `kv status --groups` has it.
    #[arg(required_unless_present = "all")]
    group: Option<u16>,
    /// All groups that are lost.
    #[arg(long, conflicts_with = "group")]
    all: bool,
    #[command(flatten)]
    controller: Controller,
}

const COLLECT_EXAMPLES: &str = "Examples:
  stateplane kv collect --address 10.2.1.10:5411 --secrets fabric.secrets
  stateplane kv collect --group 7 --address 10.2.1.10:5411 --secrets fabric.secrets

A deleted key keeps its slot until it is collected. The controller does that by itself when
`collect_percent` of a switch's slots have keys. Groups are collected one after the other; each is
not served for some 60 ms. `kv status --groups` shows which one is collected now, and the floor of
each: its tombstones below that session are gone.";

/// Words after `kv collect`.
#[derive(Args, Debug)]
#[command(after_help = COLLECT_EXAMPLES)]
pub struct CollectArgs {
    /// Only this group, by its number in `kv status --groups`.
    #[arg(long)]
    group: Option<u16>,
    #[command(flatten)]
    controller: Controller,
}

const REBALANCE_EXAMPLES: &str = "Examples:
  stateplane kv rebalance --address 10.2.1.10:5411 --secrets fabric.secrets

A switch that is back serves no chain at first: others have taken its place. The controller gives
its groups back when it has served for `rebalance_after_s`; this order, at once. Groups move one
after the other; each is not served for some 60 ms, twice to six times. `kv status` shows how many
are to move.";

/// Words after `kv rebalance`.
#[derive(Args, Debug)]
#[command(after_help = REBALANCE_EXAMPLES)]
pub struct RebalanceArgs {
    #[command(flatten)]
    controller: Controller,
}

pub(crate) type Said<T> = Result<T, Box<dyn Error>>;

/// Runs or checks a controller; the exit code.
pub fn controller(args: &ControllerArgs) -> Said<u8> {
    let config = Config::load(&args.config)?;
    if args.check {
        if let Keep::Database(file) = &config.shell.keep {
            commands::can_keep_database(&args.config, file)?;
        }
        config.shell.keys()?;
        outln!("{}: good", args.config.display());
        return Ok(0);
    }
    commands::log();
    netchain_daemon::run(&config)?;
    Ok(0)
}

impl Controller {
    fn ask<T: serde::de::DeserializeOwned>(&self, question: ToolType, json: &[u8]) -> Said<T> {
        self.ask_at(self.address, question, json)
    }

    /// Asks a switch of the fabric, or the controller itself.
    pub(crate) fn ask_at<T: serde::de::DeserializeOwned>(
        &self,
        address: SocketAddrV4,
        question: ToolType,
        json: &[u8],
    ) -> Said<T> {
        let secrets = SecretsFile::load(&self.secrets)?;
        let timeout = Duration::from_millis(self.timeout_ms);
        Ok(daemon::ask::ask(question, json, address, secrets.ring(), timeout)?)
    }

    pub(crate) fn status(&self) -> Said<Status> {
        self.ask(ToolType::StatusRequest, &[])
    }

    pub(crate) fn groups(&self) -> Said<Vec<GroupStatus>> {
        let (mut groups, mut from) = (vec![], 0);
        loop {
            let wanted = serde_json::to_vec(&GroupsWanted { from })?;
            let page: Groups = self.ask(ToolType::StateRequest, &wanted)?;
            groups.extend(page.groups);
            match page.next.filter(|next| *next > from) {
                Some(next) => from = next,
                None => return Ok(groups),
            }
        }
    }

    fn order(&self, order: Order) -> Said<()> {
        let ticket = self.status()?.ticket;
        let request = serde_json::to_vec(&Request { ticket, order })?;
        match self.ask(ToolType::OrderRequest, &request)? {
            Answer::Taken => Ok(()),
            Answer::Refused(why) => Err(why.into()),
        }
    }
}

/// Prints the cluster; the exit code.
pub fn status(args: &StatusArgs, as_json: bool) -> Said<u8> {
    let status = args.controller.status()?;
    let groups = if args.groups || as_json { args.controller.groups()? } else { vec![] };
    let code = u8::from(!status.settled);
    if as_json {
        outln!("{}", json!({ "status": status, "groups": groups }));
        return Ok(code);
    }
    print(&status);
    if args.groups {
        outln!("");
        print_groups(&groups);
    }
    Ok(code)
}

fn print(status: &Status) {
    let settled = if status.settled { "settled" } else { "changing" };
    let leads = if status.leading { "leading" } else { "waiting for its turn" };
    outln!("{leads}  decision {}  {settled}", status.version);
    if let Some(why) = &status.cannot_decide {
        outln!("  the controller cannot decide: {why}");
    }
    let Status { groups, paused, lost, short, joining, .. } = status;
    outln!(
        "{groups} groups: {paused} paused, {short} with too few members, {joining} with a joining \
         member, {lost} lost"
    );
    match status.moves_in_ms {
        _ if status.to_move == 0 => {}
        Some(ms) if ms > 0 => {
            outln!("{} groups to move, in {} s", status.to_move, ms.div_ceil(1_000))
        }
        Some(_) => outln!("{} groups to move", status.to_move),
        None => outln!("{} groups to move: `kv rebalance` orders it", status.to_move),
    }
    outln!("");
    let row = |it: &SwitchStatus| {
        let report = it.report_ms.map_or("never".to_owned(), |ms| format!("{ms} ms ago"));
        let silent: Vec<String> =
            it.silent.iter().map(|it| format!("{} ({} ms)", it.switch, it.ms)).collect();
        let standing = it.standing.clone() + if it.draining { ", leaves" } else { "" };
        vec![
            it.address.to_string(),
            standing,
            it.chains.to_string(),
            it.heads.to_string(),
            it.applied.to_string(),
            report,
            silent.join(", "),
        ]
    };
    print_table(
        &["switch", "standing", "chains", "heads", "decision", "reported", "does not hear"],
        status.switches.iter().map(row).collect(),
    );
    if status.switches_left_out > 0 {
        outln!("and {} more", status.switches_left_out);
    }
}

fn print_groups(groups: &[GroupStatus]) {
    let row = |it: &GroupStatus| {
        let chain: Vec<String> = it
            .chain
            .iter()
            .map(|member| match it.joining == Some(*member) {
                true => format!("({member} joins)"),
                false => member.to_string(),
            })
            .collect();
        vec![
            it.group.to_string(),
            it.stage.clone(),
            it.view.to_string(),
            it.session.to_string(),
            match it.collecting {
                true => format!("{}, collecting", it.floor),
                false => it.floor.to_string(),
            },
            chain.join(" "),
        ]
    };
    let rows = groups.iter().map(row).collect();
    print_table(&["group", "stage", "view", "session", "floor", "chain, head first"], rows);
}

/// Orders that a switch leaves its chains, or may be in some again.
pub fn drain(args: &DrainArgs) -> Said<u8> {
    let order = if args.undo { Order::Undrain(args.switch) } else { Order::Drain(args.switch) };
    args.controller.order(order)?;
    if args.undo {
        outln!("{} may be a member of chains again", args.switch);
    } else {
        outln!("{} leaves its chains: `kv status` shows when it is in none", args.switch);
    }
    Ok(0)
}

/// Orders that a lost group begins anew, or all that are lost.
pub fn refound(args: &RefoundArgs) -> Said<u8> {
    let lost = || -> Said<Vec<u16>> {
        let groups = args.controller.groups()?;
        let lost = groups.iter().filter(|it| it.stage == "lost");
        Ok(lost.filter_map(|it| u16::try_from(it.group).ok()).collect())
    };
    let groups = args.group.map_or_else(lost, |group| Ok(vec![group]))?;
    for group in &groups {
        args.controller.order(Order::Refound(*group))?;
        outln!("group {group} begins anew, empty");
    }
    if groups.is_empty() {
        outln!("no group is lost");
    }
    Ok(0)
}

/// Orders that the slots of deleted keys are freed.
pub fn collect(args: &CollectArgs) -> Said<u8> {
    args.controller.order(Order::Collect(args.group))?;
    match args.group {
        Some(group) => outln!("the slots of group {group}'s deleted keys will be freed"),
        None => outln!("the slots of all groups' deleted keys will be freed, group by group"),
    }
    Ok(0)
}

/// Orders that chains move to their best switches.
pub fn rebalance(args: &RebalanceArgs) -> Said<u8> {
    args.controller.order(Order::Rebalance)?;
    match args.controller.status()?.to_move {
        0 => outln!("no group is to move"),
        groups => outln!("{groups} groups will move, one after the other: `kv status` counts them"),
    }
    Ok(0)
}
