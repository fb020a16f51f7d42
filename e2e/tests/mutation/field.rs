//! One field of one object: all values are asked about first, without effect; those that would be accepted are then set, one
//! after the other, and in the end the field gets its own value back.

use serde_json::{Value, json};
use slipway_e2e::{Apart, Objects, Place};

use super::bases::Base;
use super::exceptions::{MADE_ONCE, MAY_CHANGE, UNSEEN};
use super::schema::{Field, Kind};
use super::values::values;
use super::{GROUP, judgement};

/// The number of values that are set, of those that would be accepted: the strangest.
const APPLIED: usize = 3;
/// Seconds until a status must speak of a change, and all be as before: a canary that ends goes ten seconds after its users.
const TOLD: u64 = 30;

/// What is tried where the schema is one that has been met.
const ONCE_MORE: [&str; 6] = ["absent", "0", "a letter more", "an empty list", "the least object", "nothing but huge"];

pub(super) type State = Vec<(Place, Value)>;

pub(super) struct FieldOutcome {
    pub field: String,
    pub refused: usize,
    /// Values other than the field's own that would be accepted.
    pub accepted: usize,
    pub applied: usize,
    pub faults: Vec<String>,
    /// Not everything is back, so that there is nothing to compare the next field with.
    pub lost: bool,
}

/// The path of one object, or of all of its kind in the team.
pub(super) fn path(kind: &Kind, team: &str, name: Option<&str>) -> String {
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    if kind.namespaced { format!("{GROUP}/namespaces/team-{team}/{}{name}", kind.plural) } else { format!("{GROUP}/{}{name}", kind.plural) }
}

pub(super) fn object(base: &Base, team: &str) -> Value {
    let name = if base.name.is_empty() { team } else { base.name };
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": base.kind, "metadata": {"name": name}, "spec": base.spec()})
}

fn namespace(team: &str) -> String {
    format!("team-{team}")
}

/// The object whose field is mutated.
struct Patient<'a> {
    apart: &'a Apart,
    kind: &'a Kind,
    team: &'a str,
    name: String,
    field: &'a Field,
}

/// All that there is in a team.
pub(super) fn state(apart: &Apart, team: &str) -> State {
    apart.until(0, |objects| Ok(judgement::state(objects, &namespace(team)))).unwrap_or_default()
}

/// In a team that is, and in the end has to be, as it was before anything in it was mutated.
pub(super) fn mutate(apart: &Apart, kind: &Kind, base: &Base, team: &str, field: &Field, before: &State) -> FieldOutcome {
    let name = if base.name.is_empty() { team } else { base.name };
    let patient = Patient { apart, kind, team, name: name.to_owned(), field };
    let mut outcome = FieldOutcome { field: field.to_string(), refused: 0, accepted: 0, applied: 0, faults: Vec::new(), lost: false };
    // What an earlier field has brought about may have been put back where it was, and still be on its way elsewhere.
    let whole = match patient.is_back(before).and_then(|()| patient.settled()) {
        Ok(whole) => whole,
        Err(fault) => {
            outcome.faults.push(format!("{field} of {name}: {fault}"));
            return FieldOutcome { lost: true, ..outcome };
        }
    };
    let part = field.part();
    let own = json!({part: whole[part]});
    let mut accepted: Vec<(String, Value)> = Vec::new();
    let mut tried = values(field.schema(), field.of(&own));
    if field.repeated {
        // The same schema has met all of it elsewhere; here it is enough that it is in force.
        tried.retain(|(what, _)| ONCE_MORE.contains(&what.as_str()));
    }
    for (what, change) in tried {
        let wanted = field.changed(&own, &change);
        if wanted == own {
            continue;
        }
        match judgement::answer(field, &patient.ask(&wanted)) {
            Ok(None) => outcome.refused += 1,
            // What differs from another in words alone has been seen.
            Ok(Some(found)) if found[part] == own[part] || accepted.iter().any(|(_, known)| known[part] == found[part]) => {}
            // A null stands for nothing.
            Ok(Some(found)) if MADE_ONCE.contains(&kind.name.as_str()) && without_nulls(&found[part]) == without_nulls(&own[part]) => {}
            Ok(Some(found)) => accepted.push((what, json!({part: found[part]}))),
            Err(fault) => outcome.faults.push(format!("{field} of {name} with {what} {fault}")),
        }
    }
    outcome.accepted = accepted.len();
    if MAY_CHANGE.contains(&outcome.field.as_str()) {
        // Setting it would leave a trace.
    } else if MADE_ONCE.contains(&kind.name.as_str()) {
        let faults = accepted.iter().filter_map(|(what, wanted)| patient.stays(what, wanted));
        outcome.faults.extend(faults);
    } else if !field.repeated && !accepted.is_empty() {
        for (what, wanted) in accepted.iter().take(APPLIED) {
            outcome.applied += 1;
            outcome.faults.extend(patient.set(wanted).err().map(|fault| format!("{field} of {name} with {what}: {fault}")));
        }
        if let Err(fault) = patient.set(&own).and_then(|()| patient.is_back(before)) {
            outcome.faults.push(format!("{field} of {name} has its own value back: {fault}"));
            outcome.lost = true;
        }
    }
    outcome
}

fn without_nulls(value: &Value) -> Value {
    let Some(fields) = value.as_object() else { return value.clone() };
    fields.iter().filter(|(_, inner)| !inner.is_null()).map(|(name, inner)| (name.clone(), without_nulls(inner))).collect()
}

impl Patient<'_> {
    /// What would come of this: of a kind that does not change, for another object of it.
    fn ask(&self, wanted: &Value) -> slipway_e2e::Reply {
        if MADE_ONCE.contains(&self.kind.name.as_str()) {
            let mut other = json!({"apiVersion": "agents.slipway.dev/v1", "kind": self.kind.name, "metadata": {"name": "another"}});
            if let Some(spec) = wanted.get("spec") {
                other["spec"] = spec.clone();
            }
            let path = format!("{}?dryRun=All", path(self.kind, self.team, None));
            return self.apart.call("POST", &path, "application/json", &other);
        }
        self.patch(wanted, "?dryRun=All")
    }

    fn patch(&self, wanted: &Value, query: &str) -> slipway_e2e::Reply {
        let part = self.field.part();
        let step = match wanted.get(part) {
            Some(value) => json!([{"op": "replace", "path": format!("/{part}"), "value": value}]),
            None => json!([{"op": "remove", "path": format!("/{part}")}]),
        };
        let path = format!("{}{query}", path(self.kind, self.team, Some(&self.name)));
        self.apart.call("PATCH", &path, "application/json-patch+json", &step)
    }

    /// Sets what would be accepted.
    fn put(&self, wanted: &Value) -> Result<slipway_e2e::Reply, String> {
        let reply = self.patch(wanted, "");
        if reply.status == 200 {
            return Ok(reply);
        }
        Err(format!("it would be accepted, and is answered with {}: {}", reply.status, judgement::short(&reply.body)))
    }

    /// Sets the spec and waits until the status speaks of it.
    fn set(&self, wanted: &Value) -> Result<(), String> {
        let reply = self.put(wanted)?;
        let generation = reply.json()["metadata"]["generation"].as_i64();
        self.apart.until(TOLD, |objects| {
            let found = self.of(objects).filter(|found| found["metadata"]["generation"].as_i64() >= generation);
            let found = found.ok_or("the change should be heard of")?;
            if UNSEEN.contains(&self.kind.name.as_str()) { Ok(()) } else { judgement::told(self.field, found) }
        })
    }

    /// All is as it was.
    fn is_back(&self, before: &State) -> Result<(), String> {
        self.apart
            .until(TOLD, |objects| judgement::difference(before, &judgement::state(objects, &namespace(self.team))).map_or(Ok(()), Err))
    }

    /// What a kind that does not change says to a change.
    fn stays(&self, what: &str, wanted: &Value) -> Option<String> {
        let reply = self.patch(wanted, "");
        let refused = reply.status == 422 && reply.body.contains("does not change");
        (!refused).then(|| format!("{} of {} changes to {what}: {}", self.field, self.name, judgement::short(&reply.body)))
    }

    fn of<'a>(&self, objects: &'a Objects) -> Option<&'a Value> {
        let namespace = if self.kind.namespaced { namespace(self.team) } else { String::new() };
        objects.get(&(self.kind.plural.clone(), namespace, self.name.clone()))
    }

    /// The object, with conditions if it has any: of what an earlier field has brought about, some is not seen in
    /// [`judgement::state`], and is mended in two steps.
    fn settled(&self) -> Result<Value, String> {
        self.apart.until(TOLD, |objects| {
            let found = self.of(objects).ok_or("it is gone")?;
            let has_status = !UNSEEN.contains(&self.kind.name.as_str()) && !MADE_ONCE.contains(&self.kind.name.as_str());
            let is_settled = !has_status || found["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
            if is_settled { Ok(found.clone()) } else { Err(format!("it should have conditions: {}", found["status"])) }
        })
    }
}
