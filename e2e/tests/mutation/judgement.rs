//! What a mutation is held against: a refusal that names the field, or a status that speaks of the new generation; and
//! afterwards, all that there was before.

use serde_json::{Value, json};
use slipway_e2e::{Objects, Place, Reply, condition, essence};

use super::schema::Field;

/// The object as it would be or is, nothing when it was refused as it should be, or what is wrong.
pub(super) fn answer(field: &Field, reply: &Reply) -> Result<Option<Value>, String> {
    let status: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    match reply.status {
        200 | 201 => Ok(Some(status)),
        400 | 422 if names(message, field) => Ok(None),
        400 | 422 => Err(format!("is refused without a word of the field: {}", short(message))),
        other => Err(format!("is answered with {other}: {}", short(&reply.body))),
    }
}

/// Whether a refusal has the field's own name. A rule over several fields may begin with another of them, and one over the
/// whole spec has the name of what the field is a part of.
fn names(message: &str, field: &Field) -> bool {
    let whole = message.contains(": spec: ") && field.names().any(|name| name != "spec" && has_word(message, name));
    // Of parts of which there may be one, that one is named.
    let one_of =
        message.contains("exactly one of") && field.names().any(|name| !["spec", "sources"].contains(&name) && has_word(message, name));
    // Of an object without what it must have, that part is named.
    let part = message.contains(": is required without an integration");
    whole
        || one_of
        || part
        || field.names().next_back().is_some_and(|name| has_word(message, name))
        || field.siblings().any(|name| message.contains(&format!(": {name}: ")))
}

fn has_word(text: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(word).any(|(at, _)| !part(text[..at].chars().next_back()) && !part(text[at + word.len()..].chars().next()))
}

/// A status speaks of the present spec, and when that cannot be, says so of the field.
pub(super) fn told(field: &Field, object: &Value) -> Result<(), String> {
    let (generation, status) = (&object["metadata"]["generation"], &object["status"]);
    if status["observedGeneration"] != *generation {
        return Err(format!("generation {generation} should be observed, and is not: {}", short(&status.to_string())));
    }
    let ready = condition(object, "Ready");
    let said = |name: &str| ready[name].as_str().is_some_and(|text| !text.is_empty());
    // Of a server that nobody has asked, nobody can say whether its Tool is of use.
    let known = ["True", "False", "Unknown"].iter().any(|status| ready["status"] == *status);
    if !known || !said("reason") || !said("message") {
        return Err(format!("Ready should say how it is and why: {ready}"));
    }
    let faulty = condition(object, "Stalled")["status"] == "True" || status["phase"] == "Error";
    let message = ready["message"].as_str().unwrap_or_default().to_lowercase();
    let on_the_way = field.names().any(|name| name != "spec" && message.contains(&name.to_lowercase()));
    // What cannot be read at all, and what the platform lacks, has no place that could be named; what one field asks of another is
    // told at either.
    if faulty
        && ready["reason"] != "Malformed"
        && ready["reason"] != "DatabaseRequired"
        && !on_the_way
        && !field.neighbours().any(|name| message.contains(&format!("spec.{}", name.to_lowercase())))
    {
        return Err(format!("the fault should name the field: {}", short(&message)));
    }
    Ok(())
}

/// All that is decided in one namespace and about it: specs, data, labels; and what our kinds say of themselves, without
/// times and generations.
pub(super) fn state(objects: &Objects, namespace: &str) -> Vec<(Place, Value)> {
    let here =
        |(resource, of, name): &Place| of == namespace || (of.is_empty() && namespace == format!("team-{name}") && resource == "teams");
    let its_own = |(resource, of, name): &Place| of.is_empty() && resource == "namespaces" && name == namespace;
    let chosen = objects.iter().filter(|(place, _)| here(place) || its_own(place));
    chosen.map(|(place, object)| (place.clone(), settled(object))).collect()
}

/// An object of ours without times and generations, of another's without what it says of itself.
pub(super) fn settled(object: &Value) -> Value {
    // A Job that was made anew selects its pods by another id.
    let own = object["metadata"]["uid"].as_str().filter(|_| object["kind"] == "Job");
    let renamed = own.and_then(|uid| serde_json::from_str(&object.to_string().replace(uid, "its own")).ok());
    let mut object = essence(renamed.as_ref().unwrap_or(object));
    let ours = object["apiVersion"].as_str().is_some_and(|version| version.starts_with("agents.slipway.dev/"));
    if !ours {
        object["status"] = Value::Null;
        return object;
    }
    if let Some(status) = object["status"].as_object_mut() {
        status.remove("observedGeneration");
        // Which of many has ended last is a matter of moments.
        status.remove("lastIngestion");
        // A test has a time and a latency, whatever came of it.
        status.remove("lastTest");
        // Another canary begins anew, and so does the one before.
        if let Some(canary) = status.get_mut("canary").and_then(Value::as_object_mut) {
            canary.retain(|field, _| field != "startedAt" && field != "stepStartedAt");
        }
        for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            condition["lastTransitionTime"] = Value::Null;
            condition["observedGeneration"] = Value::Null;
        }
    }
    object
}

/// How what is there differs from what was.
pub(super) fn difference(before: &[(Place, Value)], now: &[(Place, Value)]) -> Option<String> {
    let other = |(place, value): &(Place, Value), among: &[(Place, Value)]| {
        let found = among.iter().find(|(of, _)| of == place).map_or(&Value::Null, |(_, value)| value);
        (found != value).then(|| (place.clone(), found.clone(), value.clone()))
    };
    let changed = before.iter().filter_map(|entry| other(entry, now));
    let more = now
        .iter()
        .filter(|(place, _)| before.iter().all(|(of, _)| of != place))
        .map(|(place, value)| (place.clone(), value.clone(), json!(null)));
    let all: Vec<_> = changed
        .chain(more)
        .map(|(place, now, was)| format!("{}/{} was {}, is {}", place.0, place.2, part(&was, &now), part(&now, &was)))
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The innermost part in which a value differs from another.
fn part(value: &Value, other: &Value) -> String {
    if let (Some(map), Some(others)) = (value.as_object(), other.as_object()) {
        let mut differing = map.iter().filter(|(key, value)| others.get(*key) != Some(value));
        if let (Some((key, value)), None) = (differing.next(), differing.next()) {
            return format!("{key}.{}", part(value, &others.get(key).cloned().unwrap_or_default()));
        }
    }
    short(&value.to_string())
}

/// What others have who were not touched: the versions of their objects.
pub(super) fn versions(objects: &Objects, ours: impl Fn(&Place) -> bool) -> Vec<(Place, Value)> {
    let chosen = objects.iter().filter(|(place, _)| ours(place));
    chosen
        .map(|(place, object)| {
            // The status of a knowledge base follows its ingestions, which end a moment after all else is there.
            let version = if place.0 == "knowledgebases" { &Value::Null } else { &object["metadata"]["resourceVersion"] };
            (place.clone(), json!([version, object["metadata"]["generation"]]))
        })
        .collect()
}

/// A text that fits a line of a report.
pub(super) fn short(text: &str) -> String {
    let mut short: String = text.chars().take(400).collect();
    if short.len() < text.len() {
        short += " …";
    }
    short
}
