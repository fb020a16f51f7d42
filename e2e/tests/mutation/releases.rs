//! What anybody writes into the status of an AgentRelease is put back as it was: recorded or not, Git has the word. It happens
//! where the history is kept.

use serde_json::{Value, json};
use slipway_e2e::{Api, State, Team, condition, fresh, poll};

use super::judgement::settled;
use super::schema;
use super::values::values;

/// Of the values that are accepted, so many are set, the strangest.
const APPLIED: usize = 3;

#[test]
fn every_field_of_what_releases_say() {
    let (team, folder) = (Team::new(&fresh("mutated-releases")), tempfile::tempdir().unwrap());
    let _state = State::of(&team, folder.path());
    let cluster = Api::kubernetes(None);
    let path = format!("{}/namespaces/{}/agentreleases", super::GROUP, team.namespace);
    let agent = team.agent("helper", &json!({"replicas": 0, "storage": "memory", "systemPrompt": "one"}));
    let runs = |version: u64| agent.until(&format!("at v{version}"), 60, |agent| agent["status"]["activeRelease"] == version);
    runs(1);
    agent.patch(&json!({"systemPrompt": "two"}));
    runs(2);
    team.apply(&json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "AgentRelease", "metadata": {"name": "waits"},
        "spec": {"agent": "nobody", "author": "a"},
    }));
    let mut said: Vec<(String, Value)> = Vec::new();
    poll(30, || {
        let list = team.kubectl("get agentreleases").json();
        let items = list["items"].as_array().into_iter().flatten();
        said = items.map(|item| (item["metadata"]["name"].as_str().unwrap_or_default().to_owned(), item["status"].clone())).collect();
        let told = said.iter().filter(|(_, status)| !condition(&json!({"status": status}), "Ready").is_null());
        let mut phases: Vec<_> = told.map(|(_, status)| status["phase"].as_str().unwrap_or("none")).collect();
        phases.sort_unstable();
        // What its pods run, the active one says a moment after it is active.
        let is_whole = said.iter().all(|(_, status)| status["phase"] != "active" || status["runHash"].is_string());
        if phases == ["active", "archived", "none"] && is_whole {
            Ok(())
        } else {
            Err(format!("three releases should say what they are: {said:?}"))
        }
    });
    let kinds = schema::kinds();
    let fields = super::kind(&kinds, "AgentRelease").fields("status");
    for (name, before) in &said {
        // Since when it waits is nowhere else.
        let is_unrecorded = before["phase"].is_null();
        // What an archived one ran is nowhere else either: it is said as it was or not at all.
        let without_hash = |status: &Value| {
            let mut status = status.clone();
            if let Some(fields) = status.as_object_mut() {
                fields.remove("runHash");
            }
            status
        };
        let is_back = |now: &Value| {
            now == before
                || is_unrecorded && without_times(now) == without_times(before)
                || before["phase"] == "archived" && *now == without_hash(before)
        };
        // What is no time is read as none, which is what one that waits has.
        for field in fields.iter().filter(|field| !is_unrecorded || field.names().next_back() != Some("timestamp")) {
            let own = json!({"status": before});
            let wanted = values(field.schema(), field.of(&own)).into_iter().map(|(what, change)| (what, field.changed(&own, &change)));
            let set = wanted.filter(|(_, wanted)| *wanted != own).filter(|(what, wanted)| {
                let step = json!([{"op": "replace", "path": "/status", "value": wanted.get("status").unwrap_or(&json!({}))}]);
                let set = cluster.whole("PATCH", &format!("{path}/{name}/status")).body("application/json-patch+json", step.to_string());
                let reply = set.send();
                assert!([200, 400, 422].contains(&reply.status), "{field} of {name} with {what}: {reply:?}");
                let accepted = reply.status == 200;
                if accepted {
                    poll(20, || match told(&cluster.whole("GET", &format!("{path}/{name}")).expect(200)) {
                        now if is_back(&now) => Ok(()),
                        now => Err(format!("{field} of {name} with {what} should be put back to {before:#}, and is {now:#}")),
                    });
                }
                accepted
            });
            assert!(set.take(APPLIED).count() > 0, "{field} of {name} takes no value but its own");
        }
    }
    assert_eq!(agent.get()["status"]["activeRelease"], 2);
}

/// What a release says of itself. A null says nothing.
fn told(release: &Value) -> Value {
    release["status"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, part)| !part.is_null())
        .map(|(name, part)| (name.clone(), part.clone()))
        .collect()
}

fn without_times(status: &Value) -> Value {
    settled(&json!({"apiVersion": "agents.slipway.dev/v1", "status": status}))["status"].take()
}
