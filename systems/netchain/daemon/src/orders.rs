//! What operators order by a tool. A ticket that the status tells is good for one order, so an
//! order that somebody recorded is none.

use netchain_controller::{Input, Stage, State};
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The switch leaves its chains, and gets into no other.
    Drain(Ipv4Addr),
    /// It may be a member again.
    Undrain(Ipv4Addr),
    /// A lost group begins anew, empty.
    Refound(u16),
    /// The tombstones of a group, or of all, are collected.
    Collect(Option<u16>),
    /// Chains move to their best switches now.
    Rebalance,
}

/// An order, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// As the status told it.
    pub ticket: u64,
    /// What is wanted.
    pub order: Order,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is in the next decision.
    Taken,
    /// It is not, and why.
    Refused(String),
}

/// The ticket for the next order, and what became of the last one: an answer can be lost, and is
/// asked for again.
pub(crate) struct Orders {
    ticket: u64,
    last: Option<(Request, Answer)>,
}

fn ticket() -> u64 {
    // (A system without random numbers has orders whose tickets can be guessed.)
    OsRng.try_next_u64().unwrap_or(1)
}

impl Orders {
    pub fn new() -> Orders {
        Orders { ticket: ticket(), last: None }
    }

    /// For the next order.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Takes a request: the answer, and what the rules are to do.
    pub fn take(&mut self, request: Request, state: Option<&State>) -> (Answer, Option<Input>) {
        if let Some((last, answer)) = &self.last
            && *last == request
        {
            return (answer.clone(), None);
        }
        if request.ticket != self.ticket {
            let why = "its ticket is not the newest: another order came first; try again";
            return (Answer::Refused(why.to_owned()), None);
        }
        let (answer, input) = match judge(&request.order, state) {
            Ok(input) => (Answer::Taken, Some(input)),
            Err(why) => (Answer::Refused(why), None),
        };
        self.ticket = ticket();
        self.last = Some((request, answer.clone()));
        (answer, input)
    }
}

fn judge(order: &Order, state: Option<&State>) -> Result<Input, String> {
    let state = state.ok_or("this controller does not decide: ask the one that leads")?;
    match *order {
        Order::Drain(switch) | Order::Undrain(switch) => {
            if !state.switches.contains_key(&switch) {
                return Err(format!("{switch} is not a switch of the cluster"));
            }
            Ok(Input::Drain(switch, matches!(order, Order::Drain(_))))
        }
        Order::Refound(number) => match state.groups.get(usize::from(number)) {
            None => Err(format!("there are {} groups, from 0 on", state.groups.len())),
            Some(group) if group.stage != Stage::Lost => {
                Err(format!("group {number} is not lost: it has its keys"))
            }
            Some(_) => Ok(Input::Refound(number)),
        },
        Order::Collect(Some(number)) if usize::from(number) >= state.groups.len() => {
            Err(format!("there are {} groups, from 0 on", state.groups.len()))
        }
        Order::Collect(wanted) => Ok(Input::Collect(wanted)),
        Order::Rebalance => Ok(Input::Rebalance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_one_order() {
        let switch = Ipv4Addr::new(10, 9, 0, 1);
        let state = State::found(&[switch], vec![vec![switch]]);
        let mut orders = Orders::new();
        let drain = Request { ticket: orders.ticket(), order: Order::Drain(switch) };
        let (answer, input) = orders.take(drain.clone(), Some(&state));
        assert!(answer == Answer::Taken && matches!(input, Some(Input::Drain(_, true))));
        // The answer was lost.
        let (answer, input) = orders.take(drain.clone(), Some(&state));
        assert!(answer == Answer::Taken && input.is_none());
        let undrain = Request { ticket: orders.ticket(), order: Order::Undrain(switch) };
        assert_eq!(orders.take(undrain, Some(&state)).0, Answer::Taken);
        // Somebody has recorded it.
        let (answer, input) = orders.take(drain, Some(&state));
        assert!(matches!(answer, Answer::Refused(_)) && input.is_none());
        let mut refused = |order| {
            let request = Request { ticket: orders.ticket(), order };
            match orders.take(request, Some(&state)).0 {
                Answer::Refused(why) => why,
                Answer::Taken => panic!("taken"),
            }
        };
        assert!(refused(Order::Refound(0)).contains("not lost"));
        assert!(refused(Order::Refound(1)).contains("1 groups"));
        assert!(refused(Order::Collect(Some(1))).contains("1 groups"));
        assert!(refused(Order::Drain(Ipv4Addr::LOCALHOST)).contains("not a switch of the cluster"));
    }
}
