//! The flows of an object, for people: the control socket's request `flows`.

use dataplane::Dataplane;
use manifest::{Layout, StateObject, WireField};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use state_protocol::objects::objects;
use switch_agent::{Error, Result};

/// A request of the control socket: a FlowState's flows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename = "flows")]
pub struct FlowsRequest {
    /// Object; none: the only one.
    pub object: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// The answer to a [`FlowsRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename = "flows")]
pub struct Flows {
    /// Full name of the object.
    pub object: String,
    /// How many flows there are.
    pub count: usize,
    /// The first of them.
    pub flows: Vec<Flow>,
}

/// A flow's key and value, field by field.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// `(field, value)`.
    pub key: Vec<(String, String)>,
    /// `(field, value)`.
    pub value: Vec<(String, String)>,
    /// `(field, member)`: of the key's fields whose value an enum names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_names: Vec<(String, String)>,
    /// The same of the value's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value_names: Vec<(String, String)>,
}

/// The flows of a FlowState object, at most `limit`, and how many there are.
fn list(dataplane: &Dataplane, object: &StateObject, limit: usize) -> Result<(Vec<Flow>, usize)> {
    let Some(map) = dataplane.map(&object.map) else { return Ok((vec![], 0)) };
    let (mut flows, mut count) = (vec![], 0);
    dataplane::for_each_entry(map, |key, value| {
        count += 1;
        if flows.len() < limit {
            let wire_value = value.get(object.value.offset() as usize..).unwrap_or_default();
            flows.push(Flow {
                key: fields(&object.key, key),
                value: fields(object.value.fields(), wire_value),
                key_names: members(&object.key, key),
                value_names: members(object.value.fields(), wire_value),
            });
        }
        true
    })?;
    Ok((flows, count))
}

/// A field in wire form, which is big-endian.
fn number(field: &WireField, bytes: &[u8]) -> u128 {
    let range = field.offset as usize..(field.offset + field.bytes) as usize;
    let bytes = bytes.get(range).unwrap_or_default();
    bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// The members of enums that name fields' values.
fn members(fields: &[WireField], bytes: &[u8]) -> Vec<(String, String)> {
    let member = |field: &WireField| {
        let member = field.enumeration.as_ref()?.member(number(field, bytes))?;
        Some((field.name.clone(), member.to_owned()))
    };
    fields.iter().filter_map(member).collect()
}

/// Wire form to text.
fn fields(fields: &[WireField], bytes: &[u8]) -> Vec<(String, String)> {
    let text = |field: &WireField| {
        dataplane::value::format_value(number(field, bytes), field.width, &field.name)
    };
    fields.iter().map(|field| (field.name.clone(), text(field))).collect()
}

/// Answers a request of the control socket. `None`: it is no request for flows.
pub(crate) fn request(dataplane: &Dataplane, op: &str, request: &Value) -> Option<Result<Value>> {
    let other = |error: serde_json::Error| Error::Other(format!("not a request: {error}"));
    let answer = |request: FlowsRequest| {
        let flows = flows(dataplane, request.object.as_deref(), request.limit)?;
        serde_json::to_value(flows).map_err(other)
    };
    (op == "flows").then(|| FlowsRequest::deserialize(request).map_err(other).and_then(answer))
}

fn flows(dataplane: &Dataplane, object: Option<&str>, limit: usize) -> Result<Flows> {
    let has_fields = |state: &&StateObject| matches!(state.value, Layout::Fields { .. });
    let known: Vec<_> = objects(dataplane.manifest()).filter(has_fields).collect();
    let found = match object {
        Some(name) => known.iter().find(|state| state.is_named(name)),
        None => known.first().filter(|_| known.len() == 1),
    };
    let Some(found) = found else {
        let names: Vec<&str> = known.iter().map(|state| state.name.as_str()).collect();
        return Err(Error::Other(format!(
            "name one of the program's FlowState objects: {}",
            names.join(", ")
        )));
    };
    let (flows, count) = list(dataplane, found, limit)?;
    Ok(Flows { object: found.name.clone(), count, flows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Scripts speak this over the control socket, and read it from `stateplane switch flows
    /// --json`.
    #[test]
    fn the_form_of_request_and_answer_stays() {
        let asked = FlowsRequest { object: None, limit: 5 };
        assert_eq!(
            serde_json::to_value(asked).unwrap(),
            json!({ "op": "flows", "object": null, "limit": 5 })
        );
        let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let (key, value) = (pair("source", "10.0.0.5"), pair("count", "7"));
        let flow = Flow { key, value, key_names: vec![], value_names: vec![] };
        let flows = Flows { object: "ingress.counts".into(), count: 9, flows: vec![flow] };
        let text = json!({
            "reply": "flows", "object": "ingress.counts", "count": 9,
            "flows": [{ "key": [["source", "10.0.0.5"]], "value": [["count", "7"]] }]
        });
        assert_eq!(serde_json::to_value(flows).unwrap(), text);
        assert_eq!(serde_json::from_value::<Flows>(text).unwrap().flows.len(), 1);
    }
}
