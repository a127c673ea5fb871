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
            });
        }
        true
    })?;
    Ok((flows, count))
}

/// Wire form to text: each field is big-endian.
fn fields(fields: &[WireField], bytes: &[u8]) -> Vec<(String, String)> {
    let text = |field: &WireField| {
        let range = field.offset as usize..(field.offset + field.bytes) as usize;
        let value = bytes
            .get(range)
            .unwrap_or_default()
            .iter()
            .fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
        dataplane::value::format_value(value, field.width, &field.name)
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
        let flow = Flow { key: pair("source", "10.0.0.5"), value: pair("count", "7") };
        let flows = Flows { object: "ingress.counts".into(), count: 9, flows: vec![flow] };
        let text = json!({
            "reply": "flows", "object": "ingress.counts", "count": 9,
            "flows": [{ "key": [["source", "10.0.0.5"]], "value": [["count", "7"]] }]
        });
        assert_eq!(serde_json::to_value(flows).unwrap(), text);
        assert_eq!(serde_json::from_value::<Flows>(text).unwrap().flows.len(), 1);
    }
}
