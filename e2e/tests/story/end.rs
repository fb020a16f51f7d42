//! Steps 33 to 35: all of the platform's pods are killed and nothing is lost; then agents and teams are deleted, what is to stay of
//! them stays, and nothing else. Before that no secret of the story is found anywhere but where it belongs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_e2e::{kubectl, platform};

use crate::history::{pulled, releases};
use crate::model::KEY;
use crate::outside::STATE_TOKEN;
use crate::project::read;
use crate::stage::{BROKER, GUIDE, Stage, until};
use crate::sums::agent_id;

/// All that can be read but Secrets.
const KINDS: &str = "agents,agentreleases,tools,teams,knowledgebases,ingestions,integrations,skills,datasets,evaluationruns,guardrailpolicies,deployments,jobs,replicasets,pods,services,configmaps,serviceaccounts,rolebindings,namespaces,events,events.events.k8s.io";

/// What must not change by itself.
#[track_caller]
fn standing(stage: &Stage) -> Value {
    let agent = |person: &str, team: &str, name: &str| {
        let shown = stage.get(person, team, &format!("/agents/{name}"));
        json!([shown["id"], shown["status"], shown["active_release"], releases(stage, team, person, name)])
    };
    let pods = kubectl("get pods -A -l agents.slipway.dev/agent").json();
    let pod = |pod: &Value| json!([pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]]);
    let mut pods: Vec<Value> = pods["items"].as_array().into_iter().flatten().map(pod).collect();
    pods.sort_by_key(ToString::to_string);
    json!({
        "guide": agent("vic", "harbor", GUIDE),
        "broker": agent("bob", "depot", BROKER),
        "own": agent("bob", "depot", "own-guide"),
        "pods": pods,
        "alerts": stage.get("bob", "depot", "/radar/alerts"),
        "integrations": stage.get("bob", "depot", "/integrations").as_array().map(Vec::len),
    })
}

pub(crate) fn everything_is_killed(stage: &mut Stage) {
    let before = standing(stage);
    stage.play("Everything is killed");
    until("REST answers again", 120, || {
        let reply = stage.call("vic", "harbor", "GET", &format!("/agents/{GUIDE}/releases")).try_send();
        match reply {
            Ok(reply) if reply.status == 200 => Ok(()),
            Ok(reply) => Err(json!(reply.body)),
            Err(error) => Err(json!(error.to_string())),
        }
    });
    until("everything is as it was", 120, || {
        let now = standing(stage);
        if now == before { Ok(()) } else { Err(json!({"before": before, "now": now})) }
    });
    let chat = stage.call("dev", "harbor", "POST", &format!("/agents/{GUIDE}/chat")).json(&json!({"message": "Still there?"}));
    assert_eq!(chat.expect(200)["data"]["output"], "Harbor: Still there?");
}

/// Looks for all secrets of the story in all that can be read.
#[track_caller]
fn no_secret_is_anywhere(stage: &Stage) {
    let of = |name: &str| stage.fact(name).as_str().unwrap_or_default().to_owned();
    let secrets = [KEY.to_owned(), STATE_TOKEN.to_owned(), of("secret of harbor"), of("secret of depot")];
    let log = |line: &str| kubectl(line).ok();
    let mut places = vec![
        ("objects".to_owned(), kubectl(format!("get {KINDS} -A -o json")).ok()),
        (
            "the platform's logs".to_owned(),
            log("logs -n slipway-system -l app.kubernetes.io/instance=slipway --all-containers --tail=-1 --prefix"),
        ),
    ];
    for namespace in ["team-harbor", "team-depot"] {
        let pods = kubectl(format!("get pods -n {namespace} -o name")).ok();
        for pod in pods.lines() {
            places
                .push((format!("the log of {pod}"), kubectl(format!("logs -n {namespace} {pod} --all-containers --tail=-1")).run().stdout));
        }
    }
    for pod in platform::pods() {
        places.push((format!("metrics of {pod}"), platform::ask(&pod, "/metrics").stdout));
    }
    for (place, text) in &places {
        for secret in &secrets {
            assert!(secret.len() > 12, "a secret should be known");
            for form in [secret.clone(), STANDARD.encode(secret), hex::encode(secret)] {
                let at = text.find(&form).map(|at| text.get(at.saturating_sub(200)..at).unwrap_or_default().to_owned());
                assert!(at.is_none(), "a secret is in {place}, after: {}", at.unwrap_or_default());
            }
        }
    }
}

pub(crate) fn two_agents_go(stage: &mut Stage) {
    no_secret_is_anywhere(stage);
    let children = |team: &str, agent: &str| {
        format!("get deployment/{agent} service/{agent} configmap/{agent}-config -n team-{team} --ignore-not-found -o name")
    };
    assert_eq!(kubectl(children("depot", BROKER)).ok().lines().count(), 3);
    stage.play("Two agents go");
    for (team, person, agent, versions) in [("harbor", "vic", GUIDE, 7), ("depot", "bob", BROKER, 3)] {
        until(&format!("all releases of {agent} are deleted"), 120, || {
            let found = releases(stage, team, person, agent);
            let is_so = found.len() == versions && found.iter().all(|(_, status)| status == "deleted");
            if is_so { Ok(()) } else { Err(json!(found)) }
        });
        until(&format!("nothing of {agent} runs"), 120, || {
            let left = kubectl(children(team, agent)).ok();
            if left.is_empty() { Ok(()) } else { Err(json!(left)) }
        });
        until(&format!("no table has a row of {agent}"), 180, || {
            let left = rows(&agent_id(&format!("team-{team}"), agent));
            if left.is_empty() { Ok(()) } else { Err(json!(left)) }
        });
        assert_eq!(stage.call(person, team, "GET", &format!("/agents/{agent}")).send().status, 404);
    }
    let clone = pulled(stage);
    let tombstone: Value = serde_yaml::from_str(&read(&clone, "current.yaml")).unwrap();
    let metadata = &tombstone["metadata"];
    assert_eq!((&metadata["name"], &metadata["status"]), (&json!(GUIDE), &json!("deleted")), "{tombstone:#}");
    assert!(metadata["deleted_at"].is_string(), "{tombstone:#}");
    assert!(metadata["changelog"].as_str().is_some_and(|words| words.starts_with("[DELETED] ")), "{tombstone:#}");
    for version in 1..=7 {
        assert!(!read(&clone, &format!("releases/v{version}.yaml")).is_empty(), "the files of releases stay");
    }
}

/// The tables that have rows of an agent.
#[track_caller]
fn rows(agent_id: &str) -> Vec<String> {
    let columns = platform::row(
        "SELECT coalesce(json_agg(c.table_name ORDER BY c.table_name), '[]') FROM information_schema.columns c \
         JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name \
         WHERE c.table_schema = 'slipway' AND c.column_name = 'agent_id' AND t.table_type = 'BASE TABLE'",
    );
    let tables: Vec<&str> = columns.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(tables.len() > 10, "the tables should be found: {columns}");
    let counts: Vec<String> = tables
        .iter()
        .map(|table| format!("SELECT '{table}' AS place, count(*) AS count FROM slipway.\"{table}\" WHERE agent_id = '{agent_id}'"))
        .collect();
    let all = counts.join(" UNION ALL ");
    let found = platform::row(&format!("SELECT coalesce(json_agg(place), '[]') FROM ({all}) counts WHERE count > 0"));
    found.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

pub(crate) fn the_end(stage: &mut Stage) {
    // It ends before what it would make again.
    stage.follower = None;
    stage.play("The end");
    for slug in ["harbor", "depot"] {
        until(&format!("nothing is left of team {slug}"), 180, || {
            let left = kubectl(format!("get team/{slug} namespace/team-{slug} --ignore-not-found -o name")).ok();
            if left.is_empty() { Ok(()) } else { Err(json!(left)) }
        });
    }
    stage.ends();
}
