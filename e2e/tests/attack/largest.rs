//! The largest objects that schema and quota let a team make, and what they cost the platform.

use std::thread;

use serde_json::{Value, json};
use slipway_e2e::attack::{Installation, MEMORY};
use slipway_e2e::{Api, poll};
use slipway_peers::{Cgroup, peak_memory};
use tempfile::TempDir;

use crate::memory;

/// For how many teams the chart's limits are meant, see docs/limits.md.
const TEAMS: u64 = 3;
/// How many EvaluationRuns a team has here, of the 3,000 that its quota allows: enough for their guidelines, 48 KiB each, to be seen if
/// the manager kept them.
const RUNS: usize = 300;
/// How many of the other kinds.
const OBJECTS: usize = 50;
/// How many do it here. Two show what each takes: what an API server does with more takes many times as long as all else.
const FULL: u64 = 2;
const KIB: usize = 1024;

/// A user who may write in several teams makes all that their quotas allow, each as large as it can be, and asks for lists of it.
/// Manager and REST stay within the chart's limits while that happens, and when they begin anew with all of it there, and REST
/// when it is attacked besides; so does the history. All that is more than an empty platform takes is reckoned as what the teams
/// cost, and counted for as many as the limits are meant for. Nothing is taken away in the end, which would take long: `hack/test`
/// tries this by itself, and its API server ends with it.
#[test]
fn teams_full_of_the_largest_objects_do_not_end_the_platform() {
    let slipway = Installation::shared();
    let namespaces: Vec<String> = (0..FULL).map(|at| slipway.team(&format!("largest-{at}"))).collect();
    let member = slipway.member("largest-member", "slipway-developer", &namespaces[0]);
    let (managers, apis) = (Cgroup::with_memory(MEMORY), Cgroup::with_memory(MEMORY));
    let rest = slipway.rest_within(&apis, &[]);
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let history = slipway.state(folders[0].path());
    let empty = [slipway.operator(), rest.id(), history.id()].map(peak_memory);
    drop(history);
    // Else somebody else's objects are there, and what the teams cost would be counted as nobody's.
    assert!(empty.iter().all(|peak| *peak < MEMORY / 4), "without teams there are {empty:?} bytes");
    let cluster = Api::kubernetes(Some(slipway.kubeconfig()));
    thread::scope(|scope| {
        for namespace in &namespaces {
            let (slipway, cluster) = (&slipway, &cluster);
            scope.spawn(move || fill(slipway, cluster, namespace));
        }
    });
    // One more is refused, by the quota, in words that say so; on a busy machine it may be a moment behind.
    poll(120, || match slipway.agents_counted(&namespaces[0]) {
        fifty if fifty == "50" => Ok(()),
        other => Err(format!("the quota should count fifty agents, not {other}")),
    });
    let more = kind("Agent", "one-more", &json!({"name": "N", "framework": "custom"}));
    let refused = slipway.kubectl(format!("create -n {} -f -", namespaces[0])).input(more).refused();
    assert!(refused.contains("exceeded quota: slipway"), "{refused}");
    // Everything is laid out, so the operator has seen all of it.
    for namespace in &namespaces {
        poll(240, || {
            let found = slipway.kubectl(format!("get configmaps -n {namespace} -o name")).ok();
            let made = found.lines().filter(|name| name.ends_with("-config") || name.ends_with("-skill")).count();
            if made >= 150 { Ok(()) } else { Err(format!("{made} ConfigMaps of agents, canaries and skills are in {namespace}")) }
        });
    }
    let listed = lists(&rest, &member.token);
    assert!(listed < 4 * 1024 * KIB, "a list of agents has {listed} bytes");
    let [manager, api, releases] = empty;
    within("the manager", slipway.operator(), manager);
    within("REST", rest.id(), api);
    drop(rest);
    let (operator, rest) = (slipway.operator_within(&managers), slipway.rest_within(&apis, &[]));
    lists(&rest, &member.token);
    within("the manager after a restart", operator.id(), manager);
    within("REST after a restart", rest.id(), api);
    drop(rest);
    // With all of it there, REST is attacked as in `memory`.
    memory::a_crowd("largest-crowd");
    within("the history after its start", slipway.state(folders[1].path()).id(), releases);
}

#[track_caller]
#[expect(clippy::print_stderr, reason = "the figures are what one wants to know")]
fn within(what: &str, process: u32, empty: u64) {
    let peak = peak_memory(process);
    let reckoned = empty + peak.saturating_sub(empty) * TEAMS / FULL;
    let [empty, mib, all] = [empty, peak, reckoned].map(|bytes| bytes / 1024 / 1024);
    let told = format!("{what}: {empty} MiB without teams, {mib} MiB with {FULL}, which makes {all} MiB with {TEAMS}");
    eprintln!("{told}");
    assert!(reckoned < MEMORY, "{told}");
}

/// Eight lists of all agents at once; the length of one.
#[track_caller]
fn lists(rest: &Api, token: &str) -> usize {
    let list = || {
        let reply = rest.call("GET", "/agents?limit=500").token(token).header("X-Team", "largest-0").send();
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert!(!reply.body.contains("\"system_prompt\""), "lists have no prompts");
        reply.body.len()
    };
    thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(list)).collect();
        asked.into_iter().map(|list| list.join().unwrap_or_else(|_| panic!("a list was not answered"))).max().unwrap_or_default()
    })
}

/// Makes all that the chart's quota allows of what the operator and REST keep.
#[track_caller]
fn fill(slipway: &Installation, cluster: &Api, namespace: &str) {
    slipway.agents_counted(namespace);
    let (prompt, suggestions) = ("\u{e9}".repeat(60 * KIB), format!("[\"{}\"]", "\u{20ac}".repeat(16_380)));
    let annotations: Value = (0..60).map(|at| (format!("example.com/a{at}"), json!("x".repeat(4 * KIB)))).collect();
    // Agents come last: each is looked at every 30 s, and while an API server is behind, each look writes its status once more.
    let made = [
        (
            "GuardrailPolicy",
            "guardrailpolicies",
            json!({"name": "\u{20ac}".repeat(128), "description": "\u{20ac}".repeat(341), "severity": "critical",
            "rules": vec![json!({"type": "blocked_topics", "operator": "contains", "value": format!("a{}", "\"".repeat(2047))}); 16]}),
        ),
        (
            "Tool",
            "tools",
            json!({"name": "n", "type": "http", "endpoint": "https://example.com", "description": "\u{20ac}".repeat(4096),
            "headers": (0..30).map(|at| (format!("X-{at}"), json!("\u{e9}".repeat(2047)))).collect::<Value>(),
            "parameters": (0..64).map(|at| json!({"name": format!("p{at}"), "type": "string", "description": "\u{20ac}".repeat(600)})).collect::<Vec<_>>()}),
        ),
        (
            "Skill",
            "skills",
            json!({"name": "n", "description": "\u{20ac}".repeat(1024), "instructions": "\u{e9}".repeat(32 * KIB),
            "files": {"a": "\u{e9}".repeat(64 * KIB), "b": "\u{e9}".repeat(64 * KIB)}}),
        ),
        ("KnowledgeBase", "knowledgebases", json!({"name": "N", "description": "\u{20ac}".repeat(2048)})),
        (
            "Integration",
            "integrations",
            json!({"name": "\u{20ac}".repeat(128), "description": "\u{20ac}".repeat(341),
            "webhook": {"url": format!("https://example.com/{}", "a".repeat(1000)),
                "headers": (0..32).map(|at| (format!("X-{at}"), json!("\u{e9}".repeat(250)))).collect::<Value>()},
            "alerts": {"agents": (0..50).map(|at| format!("a{at:02}{}", "a".repeat(49))).collect::<Vec<_>>(),
                "metrics": (0..16).map(|at| format!("m{at:02}{}", "a".repeat(60))).collect::<Vec<_>>()}}),
        ),
        // They end at once.
        ("EvaluationRun", "evaluationruns", json!({"agent": "a", "cancel": true, "guidelines": vec!["\u{20ac}".repeat(1024); 16]})),
        (
            "Agent",
            "agents",
            json!({"name": "N", "framework": "custom", "systemPrompt": prompt, "description": "\u{20ac}".repeat(2048),
            "suggestionsProvider": "static", "suggestions": suggestions, "suspend": true,
            "canary": {"enabled": true, "weight": 100, "systemPrompt": prompt, "overrides": {"suggestions": suggestions}}}),
        ),
    ];
    for (of, plural, spec) in &made {
        let are_runs = *of == "EvaluationRun";
        for at in 0..if are_runs { RUNS } else { OBJECTS } {
            let mut object = kind(of, &format!("{}-{at}", of.to_lowercase()), spec);
            if are_runs {
                // Fifty of one agent would be kept.
                object["spec"]["agent"] = json!(format!("a-{}", at % OBJECTS));
            } else {
                object["metadata"]["annotations"] = annotations.clone();
            }
            let path = format!("/apis/agents.slipway.dev/v1/namespaces/{namespace}/{plural}");
            let create = cluster.whole("POST", &path).json(&object);
            // So much at once may take an API server longer than it lets itself take, and then some of it is there all the same.
            poll(120, || match create.try_send() {
                Ok(reply) if reply.status == 201 || reply.body.contains("AlreadyExists") => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
    }
}

fn kind(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}
