//! Every field of every kind, as `crds/` has them, is given every value that could surprise somebody, and then its own again.
//! The API server refuses it and names the field, or the status speaks of it; afterwards all is as it was before, the operator
//! has not ended, and nobody else was touched.
//!
//! It happens on a cluster of its own, where nothing runs: what is looked at is what the operator decides.

mod bases;
mod exceptions;
mod field;
mod judgement;
mod schema;
mod values;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bases::{BASES, Base};
use field::FieldOutcome;
use schema::Kind;
use serde_json::{Map, Value, json};
use slipway_e2e::{Apart, condition, poll};

/// How many fields are mutated at once, each in a team of its own.
const WORKERS: usize = 3;
/// The number of faults after which nothing more is tried: each may take its time.
const ENOUGH: usize = 20;
/// Seconds within which the operator has made what it is told to make.
const MADE: u64 = 30;
const GROUP: &str = "/apis/agents.slipway.dev/v1";
/// The kinds of children, and where they are.
const CHILDREN: [&str; 11] = [
    "/api/v1/configmaps",
    "/api/v1/limitranges",
    "/api/v1/namespaces",
    "/api/v1/resourcequotas",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/apps/v1/deployments",
    "/apis/batch/v1/jobs",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
];
/// The team that nobody touches, and the agent in every team that nobody touches.
const BYSTANDER: &str = "bystander";

#[test]
fn every_field_of_every_kind() {
    let kinds = schema::kinds();
    let based: BTreeSet<_> = BASES.iter().map(|base| base.kind).collect();
    let known: BTreeSet<_> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(based, known, "each kind of crds/ has a base in e2e/tests/mutation/bases.rs");
    let paths = kinds.iter().map(|kind| format!("{GROUP}/{}", kind.plural)).chain(CHILDREN.map(str::to_owned));
    let apart = Apart::start(&paths.collect::<Vec<_>>());
    let teams: Vec<String> = (0..WORKERS).map(|at| format!("mutated-{at}")).collect();
    for team in teams.iter().map(String::as_str).chain([BYSTANDER]) {
        furnish(&apart, &kinds, team);
    }
    let bystanders = || {
        apart
            .until(0, |objects| {
                Ok(judgement::versions(objects, |(_, namespace, name)| namespace.ends_with(BYSTANDER) || name.starts_with(BYSTANDER)))
            })
            .unwrap()
    };
    // Statuses follow those of others.
    let before = poll(MADE, || {
        let before = bystanders();
        thread::sleep(Duration::from_secs(2));
        if bystanders() == before { Ok(before) } else { Err("somebody should stand by in peace".to_owned()) }
    });
    assert!(before.len() >= 12, "somebody should stand by: {before:#?}");

    let fields = |base: &Base| kind(&kinds, base.kind).fields("spec");
    let tasks: Vec<_> = BASES.iter().flat_map(|base| fields(base).into_iter().map(move |field| (base, field))).collect();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for team in &teams {
            let (tasks, next, outcomes, apart, kinds) = (&tasks, &next, &outcomes, &apart, &kinds);
            scope.spawn(move || {
                let before = field::state(apart, team);
                while let Some((base, field)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = field::mutate(apart, kind(kinds, base.kind), base, team, field, &before);
                    let lost = outcome.lost;
                    let mut outcomes = outcomes.lock().unwrap();
                    outcomes.push(outcome);
                    if lost || outcomes.iter().map(|outcome: &FieldOutcome| outcome.faults.len()).sum::<usize>() > ENOUGH {
                        break;
                    }
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    assert!(apart.manager_runs(), "the operator has ended:\n{}", apart.log());
    assert!(!apart.log().contains("panicked"), "the operator has panicked:\n{}", apart.log());
    report(&outcomes);
    assert_eq!(bystanders(), before, "what nobody touched has changed");
}

/// What went wrong, all of it; and whether each field had a value of which something could be seen.
#[expect(clippy::print_stderr, reason = "how much was tried is worth a line")]
fn report(outcomes: &[FieldOutcome]) {
    let mut faults: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.faults.clone()).collect();
    // Of a spec as a whole there is nothing to see that is not one of its parts.
    let parts = outcomes.iter().map(|outcome| outcome.field.as_str()).filter(|field| field.matches('.').count() > 1);
    let fields: BTreeSet<_> = parts.collect();
    let accepted: BTreeSet<_> = outcomes.iter().filter(|outcome| outcome.accepted > 0).map(|outcome| outcome.field.as_str()).collect();
    if faults.len() <= ENOUGH {
        faults.extend(exceptions::judge(&fields, &accepted));
    }
    let count = |of: fn(&FieldOutcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    eprintln!(
        "{} fields: {} values were refused, {} accepted, {} of these applied",
        fields.len(),
        count(|outcome| outcome.refused),
        count(|outcome| outcome.accepted),
        count(|outcome| outcome.applied)
    );
    assert!(faults.is_empty(), "{} faults:\n  {}", faults.len(), faults.join("\n  "));
}

fn kind<'a>(kinds: &'a [Kind], name: &str) -> &'a Kind {
    kinds.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("crds/ has no {name}"))
}

/// A team with one of each base and a bystander, all settled.
fn furnish(apart: &Apart, kinds: &[Kind], team: &str) {
    let namespace = format!("team-{team}");
    for base in BASES {
        let made = apart.call("POST", &field::path(kind(kinds, base.kind), team, None), "application/json", &field::object(base, team));
        assert_eq!(made.status, 201, "{} {}: {}", base.kind, base.name, made.body);
        if base.kind == "Team" {
            let ready = |team: &Value| condition(team, "Ready")["status"] == "True";
            apart
                .until(MADE, |objects| match objects.get(&("teams".to_owned(), String::new(), team.to_owned())) {
                    Some(found) if ready(found) => Ok(()),
                    found => Err(format!("Team {team} should be ready: {found:?}")),
                })
                .unwrap();
            let labels = json!({"agents.slipway.dev/agent-readable": "true"});
            for name in bases::SECRETS {
                let data: Map<String, Value> = bases::SECRET_KEYS.iter().map(|key| ((*key).to_owned(), json!("value"))).collect();
                let secret =
                    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "stringData": data});
                let path = format!("/api/v1/namespaces/{namespace}/secrets");
                assert_eq!(apart.call("POST", &path, "application/json", &secret).status, 201);
            }
            let cases =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cases"}, "data": {"golden.yaml": "- input: a\n"}});
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            assert_eq!(apart.call("POST", &path, "application/json", &cases).status, 201);
        }
    }
    let bystander = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": BYSTANDER},
        "spec": {"name": "Bystander", "framework": "custom", "suspend": true},
    });
    assert_eq!(apart.call("POST", &field::path(kind(kinds, "Agent"), team, None), "application/json", &bystander).status, 201);
    apart
        .until(MADE, |objects| {
            for agent in ["full", BYSTANDER] {
                let at = |resource: &str| objects.get(&(resource.to_owned(), namespace.clone(), agent.to_owned())).unwrap_or(&Value::Null);
                // Of its pods it speaks once there is all that it needs.
                let said = condition(at("agents"), "Ready")["message"].as_str().unwrap_or_default();
                if at("deployments").is_null() || !said.contains("pods are stopping") {
                    return Err(format!("{agent} in {namespace} should be settled: {:#}", at("agents")["status"]));
                }
            }
            let mut spoken_of = objects.iter().filter(|((resource, place, _), _)| {
                *place == namespace
                    && [
                        "tools",
                        "skills",
                        "knowledgebases",
                        "ingestions",
                        "integrations",
                        "datasets",
                        "evaluationruns",
                        "guardrailpolicies",
                    ]
                    .contains(&resource.as_str())
            });
            if let Some((place, object)) = spoken_of.find(|(_, object)| object["status"]["conditions"].is_null()) {
                return Err(format!("{place:?} should have its status: {object:#}"));
            }
            let counted = &objects.get(&("teams".to_owned(), String::new(), team.to_owned())).unwrap_or(&Value::Null)["status"]["agents"];
            if counted == 2 { Ok(()) } else { Err(format!("Team {team} should have 2 agents, and has {counted}")) }
        })
        .unwrap();
}
