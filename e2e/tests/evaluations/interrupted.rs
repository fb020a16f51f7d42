//! Runs whose manager, pod or database is killed in the middle.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_e2e::{Team, alone, kubectl, platform};

use super::{dataset, ended, has_each_case_once, needs_database, run, run_until};

const CASES: u64 = 24;

fn begun(team: &Team) {
    let agent = team.agent("helper", &json!({"modelId": "stub-script", "storage": "postgresql"}));
    agent.ready();
    let slow: Vec<Value> = (0..CASES).map(|at| json!({"input": format!("sleep 1000\ntext {at}")})).collect();
    dataset(team, "slow", &json!(slow));
    run(team, "first", "helper", &json!({"dataset": "slow", "scorers": ["safety", "relevance_to_query"], "minQualityScore": 1}));
    run_until(team, "first", "in the middle", 40, |run| run["status"]["finishedCases"].as_u64().is_some_and(|cases| cases > 0));
}

#[test]
fn a_run_outlives_its_pod() {
    let team = Team::new("eval-pod");
    if !needs_database() {
        return;
    }
    begun(&team);
    team.kubectl("delete pod -l agents.slipway.dev/agent=helper --force --grace-period=0").ok();
    let found = ended(&team, "first", 120);
    assert_eq!(found["status"]["phase"], "Completed", "{found:#}");
    assert!(found["status"]["attempt"].as_u64().is_some_and(|attempt| attempt > 1), "{found:#}");
    has_each_case_once(&found["status"], CASES);
}

/// When the database was given each case's result, by the case's place.
pub(super) fn kept(team: &Team) -> BTreeMap<u64, String> {
    let agent = &team.get("agent/helper")["status"]["id"];
    let agent = agent.as_str().unwrap();
    let query = format!("SELECT place, created_at FROM slipway.evaluation_results WHERE agent_id = '{agent}'");
    let script = "read -r PGPASSWORD </run/secrets/postgres/password; export PGPASSWORD; exec psql -h /tmp -U postgres -Atc \"$0\"";
    let rows = kubectl(format!("exec -n {} {DATABASE} -- sh -c", platform::NAMESPACE)).arg(script).arg(query).ok();
    let row = |row: &str| row.split_once('|').map(|(place, when)| (place.parse().unwrap(), when.to_owned()));
    let kept: BTreeMap<u64, String> = rows.lines().filter_map(row).collect();
    assert_eq!(kept.len(), rows.lines().count(), "each case has one result");
    kept
}

const DATABASE: &str = "postgres-0";
const MANY: u64 = 1000;

#[test]
fn a_thousand_cases_are_scored_once_whatever_is_killed() {
    let team = Team::within(alone("kills the leading manager and the platform's database"), "eval-thousand", &json!({}));
    if !needs_database() {
        return;
    }
    let agent = team.agent("helper", &json!({"modelId": "stub-script", "storage": "postgresql"}));
    agent.ready();
    let cases: Vec<Value> = (0..MANY).map(|at| json!({"input": format!("sleep 120\ntext {at}")})).collect();
    dataset(&team, "many", &json!(cases));
    run(&team, "first", "helper", &json!({"dataset": "many", "scorers": ["safety", "relevance_to_query"], "minQualityScore": 1}));
    let of = |namespace: &str, pods: &str| format!("delete pod {pods} -n {namespace} --grace-period=0 --force");
    let kills = [
        (50, of(platform::NAMESPACE, &platform::leader())),
        (300, of(&team.namespace, "-l agents.slipway.dev/agent=helper")),
        (550, of(platform::NAMESPACE, DATABASE)),
    ];
    let mut before = BTreeMap::new();
    for (finished, kill) in kills {
        let so_far = run_until(&team, "first", "in the middle", 120, |run| run["status"]["finishedCases"].as_u64() >= Some(finished));
        // The next leader goes on with the same attempt; a pod that is gone costs one.
        assert_eq!(so_far["status"]["attempt"] == 1, finished <= 300, "{so_far:#}");
        let found = kept(&team);
        assert!((1..MANY).contains(&(found.len() as u64)), "{} of {MANY} cases are in the database", found.len());
        same(&before, &found);
        before = found;
        kubectl(kill).ok();
    }
    let found = ended(&team, "first", 240);
    assert_eq!(found["status"]["phase"], "Completed", "{found:#}");
    has_each_case_once(&found["status"], MANY);
    let after = kept(&team);
    assert_eq!(after.keys().copied().collect::<Vec<_>>(), (0..MANY).collect::<Vec<_>>());
    same(&before, &after);
}

/// What was scored before something was killed is not scored again.
#[track_caller]
fn same(before: &BTreeMap<u64, String>, after: &BTreeMap<u64, String>) {
    for (place, when) in before {
        assert_eq!(after.get(place), Some(when), "case {place}");
    }
}
