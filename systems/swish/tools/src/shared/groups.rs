//! What an agent tells of its groups, and what there is to say of it.

use serde::{Deserialize, Serialize};
use swish_switch::load::{GroupLoad, is_late};
use swish_switch::{ChainLoad, ControllersLoad, EventualLoad};

/// What an agent answers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Groups {
    #[serde(default)]
    pub shared: Vec<GroupLoad>,
    #[serde(default)]
    pub shared_eventual: Vec<EventualLoad>,
    #[serde(default)]
    pub shared_chain: Option<ChainLoad>,
    /// None: no group has controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_controllers: Option<ControllersLoad>,
}

impl Groups {
    /// Whether the switch shares all of its groups.
    pub fn are_well(&self) -> bool {
        let well = |it: &GroupLoad| it.fault.is_none() && (it.leaves || !is_late(it));
        let chain = |it: &ChainLoad| it.notes().is_empty();
        self.shared.iter().all(well)
            && self.shared_chain.iter().all(chain)
            && self.shared_eventual.iter().all(EventualLoad::is_well)
            && self.shared_controllers.iter().all(|it| it.groups.is_empty())
    }

    /// Of groups with SDW and EWO, and of controllers, for people.
    pub fn notes(&self) -> Vec<String> {
        let mut found = vec![];
        for load in &self.shared_eventual {
            let notes = load.notes().into_iter().chain(load.fault.clone());
            found.extend(notes.map(|note| format!("group {}: {note}", load.group)));
        }
        for load in &self.shared {
            let notes = load.notes().into_iter().chain(load.fault.clone());
            found.extend(notes.map(|note| format!("group {}: {note}", load.group)));
        }
        if let Some(ControllersLoad { groups, silent }) = &self.shared_controllers {
            let silent: Vec<String> = silent.iter().map(ToString::to_string).collect();
            let silent = silent.join(", ");
            found.extend(groups.iter().map(|group| {
                format!(
                    "group {group}: no controller answers ({silent}). Members go on as they are, \
                     and nobody joins, leaves or is removed: start it"
                )
            }));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_controller_is_named() {
        let text = r#"{"shared_controllers": {"groups": ["main"], "silent": ["10.2.9.10:5412"]}}"#;
        let groups: Groups = serde_json::from_str(text).expect("an answer");
        assert!(!groups.are_well());
        let notes = groups.notes();
        assert!(notes[0].starts_with("group main: no controller answers (10.2.9.10:5412)"));
        let text = r#"{"shared_controllers": {"groups": [], "silent": ["10.2.9.10:5412"]}}"#;
        let groups: Groups = serde_json::from_str(text).expect("an answer");
        assert!(groups.are_well() && groups.notes().is_empty(), "another one answers");
    }

    #[test]
    fn a_member_that_is_not_heard_is_named() {
        let text = r#"{"shared_eventual": [{"group": "main", "members": ["10.9.0.1", "10.9.0.2"],
            "view": 1, "cells": 1, "slots": 8, "lives": 1, "waiting": 0, "bandwidth_mbps": 100,
            "round_ms": 200, "age_ms": 5200, "held_up": ["10.9.0.2"]}]}"#;
        let groups: Groups = serde_json::from_str(text).expect("an answer");
        assert!(!groups.are_well());
        let notes = groups.notes();
        assert!(notes[0].starts_with("group main: nothing comes from 10.9.0.2"), "{notes:?}");
    }
}
