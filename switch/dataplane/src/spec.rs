//! Entries as people write them, by names, and how they resolve to a table's own numbers. What
//! configuration files, the control socket and packet tests share.

use crate::error::{Error, Result};
use crate::table::{ActionCall, Entry, Listed, TableRef};
use crate::value::{Match, format_match, format_value, parse_match_of, parse_member};
use manifest::Table;
use serde::{Deserialize, Serialize};

/// A key's match by name; without a name, by position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySpec {
    /// Control-plane name of the key.
    pub name: Option<String>,
    /// See [`parse_match`].
    pub text: String,
}

/// An action by name with arguments by name or position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionSpec {
    /// Control-plane name of the action.
    pub name: String,
    /// `(parameter, value)`.
    pub arguments: Vec<(Option<String>, String)>,
}

/// A table entry. Keys that are not named match everything (which an exact key cannot).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntrySpec {
    /// Keys.
    pub keys: Vec<KeySpec>,
    /// Higher wins, or smaller if the table says so (`largest_priority_wins = false`); ternary
    /// tables only. Without one an entry yields to all others.
    #[serde(default)]
    pub priority: Option<u32>,
    /// What it runs.
    pub action: ActionSpec,
}

/// An entry for people and JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    /// `(key, match)`.
    pub keys: Vec<(String, String)>,
    /// `(key, member)`: of keys that match one value of an enum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_names: Vec<(String, String)>,
    /// Of ternary tables.
    pub priority: Option<u32>,
    /// Action's name.
    pub action: String,
    /// `(parameter, value)`.
    pub arguments: Vec<(String, String)>,
    /// `(parameter, member)`: of those whose value is an enum's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argument_names: Vec<(String, String)>,
    /// Packets and bytes, if the table counts.
    pub counter: Option<(u64, u64)>,
    /// Part of the program.
    pub constant: bool,
}

/// A name in one form, whoever wrote it: `hdr.vlan[0].isValid()`, `hdr.vlan$0.$valid$` and
/// `.hdr.vlan[0].$valid$` are the same.
fn plain(name: &str) -> String {
    let name = name.trim().trim_start_matches('.');
    name.replace("isValid()", "$valid$").replace('[', "$").replace(']', "")
}

/// An entry's matches, for messages.
pub(crate) fn keys_text(table: &Table, entry: &Entry) -> String {
    let keys = table.keys.iter().zip(&entry.matches);
    let texts = keys
        .map(|(key, what)| format!("{}={}", key.name, format_match(what, key.width, &key.name)));
    texts.collect::<Vec<_>>().join(", ")
}

/// Finds a name among `known`: as it is, or as the last parts of exactly one.
pub(crate) fn find<'a>(
    kind: &'static str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Result<usize> {
    let known: Vec<&str> = known.collect();
    let wanted = plain(name);
    if let Some(index) = known.iter().position(|candidate| plain(candidate) == wanted) {
        return Ok(index);
    }
    let ends = |candidate: &str, end: &str| {
        candidate.strip_suffix(end).is_some_and(|before| before.ends_with('.'))
    };
    // `routes` for `ingress.routes`; and `my_ingress.routes` for `routes`, when a program hides the
    // control's name.
    let fits: Vec<usize> = (0..known.len())
        .filter(|index| {
            ends(&plain(known[*index]), &wanted) || ends(&wanted, &plain(known[*index]))
        })
        .collect();
    match fits[..] {
        [index] => Ok(index),
        [] => Err(Error::Unknown {
            kind,
            name: name.to_owned(),
            known: known.into_iter().map(str::to_owned).collect(),
        }),
        _ => Err(Error::Ambiguous {
            kind,
            name: name.to_owned(),
            known: fits.into_iter().map(|index| known[index].to_owned()).collect(),
        }),
    }
}

impl TableRef<'_> {
    /// Resolves an entry's names and reads its values.
    pub fn resolve(&self, spec: &EntrySpec) -> Result<Entry> {
        let matches = self.resolve_keys(&spec.keys)?;
        let ternary = matches!(self.table.kind, manifest::TableKind::Ternary { .. });
        if spec.priority.is_some_and(|priority| priority != 0) && !ternary {
            return self
                .fail("it has no priorities: its keys are matched exactly or by longest prefix");
        }
        let priority = spec.priority.unwrap_or(if ternary { self.table.rank(0) } else { 0 });
        Ok(Entry { matches, priority, action: self.resolve_action(&spec.action)? })
    }

    /// Resolves the keys of an entry.
    pub fn resolve_keys(&self, keys: &[KeySpec]) -> Result<Vec<Match>> {
        let mut matches: Vec<Option<Match>> = vec![None; self.table.keys.len()];
        for (position, given) in keys.iter().enumerate() {
            let index = match &given.name {
                Some(name) => {
                    find("key", name, self.table.keys.iter().map(|key| key.name.as_str()))?
                }
                None => position,
            };
            let Some(key) = self.table.keys.get(index) else {
                return self.fail(format!(
                    "{} keys given, it has {}",
                    keys.len(),
                    self.table.keys.len()
                ));
            };
            if matches[index].is_some() {
                return self.fail(format!("key {} is given twice", key.name));
            }
            let what = format!("key {}", key.name);
            let names = key.enumeration.as_ref();
            matches[index] = Some(parse_match_of(&what, &given.text, key.width, names)?);
        }
        let complete = matches.into_iter().zip(&self.table.keys).map(|(found, key)| match found {
            Some(found) => Ok(found),
            None if key.match_kind == "exact" => self.fail(format!("key {} is missing", key.name)),
            None => Ok(Match::Any),
        });
        complete.collect()
    }

    /// Resolves an action and its arguments.
    pub fn resolve_action(&self, spec: &ActionSpec) -> Result<ActionCall> {
        let names = (0..self.table.actions.len()).map(|index| self.action_name(index));
        let action = find("action", &spec.name, names)?;
        let name = self.action_name(action);
        let parameters = self.parameters(action);
        let mut arguments: Vec<Option<u128>> = vec![None; parameters.len()];
        for (position, (given, text)) in spec.arguments.iter().enumerate() {
            let index = match given {
                Some(given) => find(
                    "parameter",
                    given,
                    parameters.iter().map(|parameter| parameter.name.as_str()),
                )?,
                None => position,
            };
            let Some(parameter) = parameters.get(index) else {
                return self.fail(format!(
                    "action {name} takes {} arguments, {} given",
                    parameters.len(),
                    spec.arguments.len()
                ));
            };
            if arguments[index].is_some() {
                return self
                    .fail(format!("action {name}: argument {} is given twice", parameter.name));
            }
            let what = format!("argument {} of action {name}", parameter.name);
            let names = parameter.enumeration.as_ref();
            arguments[index] = Some(parse_member(&what, text, parameter.width, names)?);
        }
        let complete =
            arguments.into_iter().zip(parameters).map(|(found, parameter)| match found {
                Some(found) => Ok(found),
                None => self.fail(format!("action {name}: argument {} is missing", parameter.name)),
            });
        Ok(ActionCall { action, arguments: complete.collect::<Result<_>>()? })
    }

    /// An entry in words.
    pub fn describe(&self, listed: &Listed) -> ListedEntry {
        let keys = self.table.keys.iter().zip(&listed.entry.matches);
        let (action, arguments) = self.describe_action(&listed.entry.action);
        let key_name = |(key, what): (&manifest::Key, &Match)| {
            let Match::Exact(value) = what else { return None };
            let member = key.enumeration.as_ref()?.member(*value)?;
            Some((key.name.clone(), member.to_owned()))
        };
        let ternary = matches!(self.table.kind, manifest::TableKind::Ternary { .. });
        ListedEntry {
            key_names: keys.clone().filter_map(key_name).collect(),
            keys: keys
                .map(|(key, what)| (key.name.clone(), format_match(what, key.width, &key.name)))
                .collect(),
            priority: ternary.then_some(listed.entry.priority),
            action,
            arguments,
            argument_names: self.argument_names(&listed.entry.action),
            counter: listed.counter,
            constant: listed.constant,
        }
    }

    /// An action in words: its name, and its arguments by parameter.
    pub fn describe_action(&self, call: &ActionCall) -> (String, Vec<(String, String)>) {
        let parameters = self.parameters(call.action).iter().zip(&call.arguments);
        let arguments = parameters
            .map(|(parameter, value)| {
                (parameter.name.clone(), format_value(*value, parameter.width, &parameter.name))
            })
            .collect();
        (self.action_name(call.action).to_owned(), arguments)
    }
}

impl TableRef<'_> {
    /// `(parameter, member)`: the action's arguments that an enum names.
    pub fn argument_names(&self, call: &ActionCall) -> Vec<(String, String)> {
        let parameters = self.parameters(call.action).iter().zip(&call.arguments);
        let named = parameters.filter_map(|(parameter, value)| {
            let member = parameter.enumeration.as_ref()?.member(*value)?;
            Some((parameter.name.clone(), member.to_owned()))
        });
        named.collect()
    }
}

impl ListedEntry {
    /// As it would be written to be added again.
    pub fn to_spec(&self) -> EntrySpec {
        EntrySpec {
            keys: self
                .keys
                .iter()
                .map(|(name, text)| KeySpec { name: Some(name.clone()), text: text.clone() })
                .collect(),
            priority: self.priority,
            action: ActionSpec {
                name: self.action.clone(),
                arguments: self
                    .arguments
                    .iter()
                    .map(|(name, text)| (Some(name.clone()), text.clone()))
                    .collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_as_people_write_them() {
        let known = ["ingress.routes", "ingress.acl", "egress.acl", "hdr.vlan[0].isValid()"];
        let look = |name| find("table", name, known.into_iter());
        assert_eq!(look("ingress.routes").ok(), Some(0));
        assert_eq!(look("routes").ok(), Some(0));
        assert_eq!(look(".routes").ok(), Some(0));
        assert_eq!(look("hdr.vlan$0.$valid$").ok(), Some(3));
        assert!(matches!(look("acl"), Err(Error::Ambiguous { .. })));
        assert!(matches!(look("oute"), Err(Error::Unknown { .. })));
        assert!(matches!(look(""), Err(Error::Unknown { .. })));
    }
}
