//! Passes over agents in the caches, with a real PostgreSQL, and an API server that keeps Events and takes patches.

mod canary;
mod messages;

use std::collections::BTreeMap;
use std::sync::Mutex;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_api::{Agent, GuardrailPolicy, Team, ids, labels};
use slipway_cluster::{Guarded, Object};
use slipway_database::{Holder, Options, PodRun, Stage, Store, UsageMinute, ViolationMinute};
use slipway_peers::Postgres;

use super::*;
use crate::caches::ChildKind;
use crate::caches::child::Child;
use crate::database::DatabaseUrl;
use crate::metrics::BySeverity;
use crate::tenancy::Wanted;
use crate::testing::context_with;

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// What the API server has been told.
#[derive(Default)]
struct Cluster {
    /// By name: there is none twice.
    events: BTreeMap<String, Value>,
    patches: Vec<(String, Value)>,
    releases: Vec<Value>,
    /// Events are refused for a while, as by a manager that is killed before it could write them.
    is_deaf: bool,
}

impl Cluster {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        match (method, path) {
            (&Method::POST, path) if path.ends_with("/events") => {
                let name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if self.is_deaf {
                    return (StatusCode::FORBIDDEN, json!({"kind": "Status", "code": 403}));
                }
                if self.events.contains_key(&name) {
                    return (StatusCode::CONFLICT, json!({"kind": "Status", "code": 409}));
                }
                self.events.insert(name, sent.clone());
                (StatusCode::CREATED, sent)
            }
            (&Method::PATCH, path) => {
                self.patches.push((path.to_owned(), sent));
                let answer = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "helper"}, "spec": {"name": "H", "framework": "custom"}});
                (StatusCode::OK, answer)
            }
            (&Method::GET, path) if path.ends_with("/agentreleases") => (
                StatusCode::OK,
                json!({"apiVersion": "agents.slipway.dev/v1", "kind": "AgentReleaseList", "metadata": {}, "items": self.releases}),
            ),
            _ => (StatusCode::NOT_FOUND, json!({"kind": "Status", "code": 404})),
        }
    }
}

struct World {
    postgres: Option<Postgres>,
    cluster: Arc<Mutex<Cluster>>,
    governance: Governance,
    memory: Memory,
    now: Timestamp,
}

impl World {
    async fn new(with_database: bool) -> Self {
        let world = Self::of(with_database.then(Postgres::start));
        let context = &world.governance.context;
        context.caches.teams.insert(
            Key::new("", "a"),
            Guarded(Ok(object::<Team>(json!({"metadata": {"name": "a", "uid": "uid-of-a"}, "spec": {"name": "A"}})))),
        );
        let namespace: Object = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        context.caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        if let Some(tenancy) = &context.tenancy {
            tenancy.migrate().await.unwrap();
            tenancy.ensure(&tenancy.home("a", "uid-of-a", 0, None)).await;
        }
        world
    }

    fn of(postgres: Option<Postgres>) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        let governance = Self::manager(postgres.as_ref(), &cluster);
        Self { postgres, cluster, governance, memory: Memory::default(), now: Timestamp::now() }
    }

    fn manager(postgres: Option<&Postgres>, cluster: &Arc<Mutex<Cluster>>) -> Governance {
        let told = cluster.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let told = told.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, answer) = told.lock().unwrap().answer(&head.method, head.uri.path(), &body);
                Ok::<_, std::convert::Infallible>(
                    Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap(),
                )
            }
        });
        let url = postgres.map(|postgres| DatabaseUrl::parse(&postgres.url()).unwrap());
        let tenancy = url.map(|url| Tenancy::open(&url, Wanted::Shared, b"a key").unwrap());
        Governance::new(context_with(Client::new(server, "default"), tenancy))
    }

    fn caches(&self) -> &crate::caches::Caches {
        &self.governance.context.caches
    }

    /// An Agent with a Deployment of one replica, and rows of its own.
    async fn agent(&self, name: &str, more: &Value) {
        let mut whole = json!({"metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-of-{name}"), "resourceVersion": "7"},
            "spec": {"name": "H", "framework": "custom"}});
        for (part, value) in more.as_object().into_iter().flatten() {
            match whole[part].as_object_mut() {
                Some(known) => known.extend(value.as_object().cloned().unwrap()),
                None => whole[part] = value.clone(),
            }
        }
        self.caches().agents.insert(Key::new("team-a", name), Guarded(Ok(object::<Agent>(whole))).into());
        self.replicas(name, 1, 1);
        if let Some(tenancy) = &self.governance.context.tenancy {
            let home = tenancy.home("a", "uid-of-a", 0, None);
            let (agent_id, uid) = (ids::agent("team-a", name), format!("uid-of-{name}"));
            tenancy.admit(&home, &Holder { agent_id, uid, created: 0, adopts: None, alone: true }).await.unwrap();
        }
    }

    fn replicas(&self, name: &str, wanted: i32, available: i32) {
        let deployment: Object =
            object(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "team-a",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Agent", "name": name, "uid": format!("uid-of-{name}"), "controller": true}]},
            "spec": {"replicas": wanted}, "status": {"availableReplicas": available}}));
        self.caches().children(ChildKind::Deployment).insert(Key::new("team-a", name), Child::look(&deployment, None, || None, ""));
    }

    fn policy(&self, name: &str, spec: &Value) {
        let whole = json!({"metadata": {"name": name, "namespace": "team-a", "uid": name}, "spec": spec});
        let policy: GuardrailPolicy = object(whole);
        self.caches().guardrail_policies.insert(Key::new("team-a", name), Guarded(Ok(policy)).into());
    }

    /// A pass, this number of minutes after the one before.
    async fn pass(&mut self, minutes: i64) {
        self.try_pass(minutes).await.unwrap();
    }

    async fn try_pass(&mut self, minutes: i64) -> Result<(), String> {
        self.now += SignedDuration::from_mins(minutes);
        (self.memory.next_violations, self.memory.next_rollback) = (None, None);
        self.governance.pass(&mut self.memory, self.now).await
    }

    /// Another manager takes over: it remembers nothing, and its caches hold the same.
    fn takes_over(&mut self) {
        self.memory = Memory::default();
        self.caches().alerting.forget();
    }

    /// The reasons of Events, and what they say.
    fn events(&self) -> Vec<String> {
        let cluster = self.cluster.lock().unwrap();
        let mut said: Vec<_> = cluster
            .events
            .values()
            .map(|event| format!("{} {}", event["reason"].as_str().unwrap(), event["note"].as_str().unwrap()))
            .collect();
        said.sort();
        said
    }

    fn sql(&self, sql: &str) -> String {
        self.postgres.as_ref().unwrap().psql(sql).trim().to_owned()
    }

    fn alerts(&self) -> String {
        self.sql("SELECT string_agg(metric || ' ' || severity || ' ' || (resolved_at IS NULL), ', ' ORDER BY created_at, metric) FROM slipway.alerts")
    }

    /// The agent's runtime, on the stable track with a release.
    fn runtime(&self, name: &str, hash: &str) -> Store {
        self.runtime_on(name, "stable", hash)
    }

    fn runtime_on(&self, name: &str, track: &str, hash: &str) -> Store {
        let (url, team, agent_id) = (self.postgres.as_ref().unwrap().url(), ids::team("a"), ids::agent("team-a", name));
        let run = PodRun { track: track.to_owned(), hash: hash.to_owned() };
        Store::open(&Options { url, password: None, sslmode: None, team, agent_id, migrate: false, prepared_statements: false, run })
            .unwrap()
    }

    async fn used(&self, name: &str, hash: &str, change: impl Fn(&mut UsageMinute)) {
        self.used_on(name, "stable", hash, change).await;
    }

    async fn used_on(&self, name: &str, track: &str, hash: &str, change: impl Fn(&mut UsageMinute)) {
        let mut minute = UsageMinute::empty(Timestamp::now(), "stub", "stub-echo");
        change(&mut minute);
        self.runtime_on(name, track, hash).record_usage(&[minute]).await.unwrap();
    }

    #[expect(clippy::option_option, reason = "nobody has looked, nothing was found, and what was found")]
    fn alerting(&self, name: &str) -> Option<Option<String>> {
        self.caches().alerting.of(&Key::new("team-a", name)).map(|found| found.map(|found| found.message))
    }
}

fn requests(count: i64, errors: i64, milliseconds: i64) -> impl Fn(&mut UsageMinute) {
    move |minute| {
        (minute.requests, minute.errors) = (count, errors);
        minute.latency_histogram[UsageMinute::bucket(milliseconds)] = count;
    }
}

#[tokio::test]
async fn an_agent_that_is_down_has_one_alert_until_it_is_up() {
    let mut world = World::new(true).await;
    world.agent("helper", &json!({})).await;
    world.agent("rests", &json!({})).await;
    world.replicas("rests", 0, 0);
    world.pass(0).await;
    assert_eq!((world.alerts().as_str(), world.alerting("helper")), ("", Some(None)));
    world.replicas("helper", 1, 0);
    for _ in 0..4 {
        world.pass(1).await;
    }
    assert_eq!(world.alerts(), "minutes_down critical true");
    assert_eq!(world.alerting("helper"), Some(Some("minutes_down from 2 on (critical)".to_owned())));
    assert_eq!(world.alerting("rests"), Some(None), "nobody wants it to run");
    let gauge = || world.governance.context.metrics.alerts.get_or_create(&BySeverity { severity: "critical" }).get();
    assert_eq!(gauge(), 1);
    world.replicas("helper", 1, 1);
    world.pass(1).await;
    assert_eq!(world.alerts(), "minutes_down critical true", "it may fall over again");
    world.pass(6).await;
    assert_eq!((world.alerts().as_str(), world.alerting("helper")), ("minutes_down critical false", Some(None)));
    let [raised, resolved] = &world.events()[..] else { panic!("{:#?}", world.events()) };
    assert!(raised.starts_with("AlertRaised critical alert: no replica has taken requests for 2 minutes"), "{raised}");
    assert!(resolved.starts_with("AlertResolved"), "{resolved}");
    let samples = world.sql("SELECT sum(samples) || ' ' || sum(ready) FROM slipway.readiness_hours");
    assert_eq!(samples, "1 1", "all passes were in one minute of the database's clock, and the agent that rests has no samples");
}

#[tokio::test]
async fn a_manager_that_is_killed_anywhere_doubles_nothing() {
    let mut world = World::new(true).await;
    world.agent("helper", &json!({})).await;
    world.replicas("helper", 1, 0);
    // Killed between the row and its Event.
    world.cluster.lock().unwrap().is_deaf = true;
    for _ in 0..3 {
        world.pass(1).await;
    }
    assert_eq!((world.alerts().as_str(), world.events().len()), ("minutes_down critical true", 0));
    world.cluster.lock().unwrap().is_deaf = false;
    for _ in 0..3 {
        world.takes_over();
        world.pass(1).await;
    }
    assert_eq!((world.alerts().as_str(), world.events().len()), ("minutes_down critical true", 1), "announced after all, and once");
    // Killed between the Event of its end and the row.
    world.replicas("helper", 1, 1);
    world.pass(6).await;
    assert_eq!((world.alerts().as_str(), world.events().len()), ("minutes_down critical false", 2));
    world.sql("UPDATE slipway.alerts SET resolved_at = NULL");
    world.takes_over();
    world.pass(6).await;
    assert_eq!((world.alerts().as_str(), world.events().len()), ("minutes_down critical false", 2));
}

#[tokio::test]
async fn errors_latency_and_spending_raise_alerts_with_values() {
    let mut world = World::new(true).await;
    let rule = |type_: &str, value: &str| json!({"type": type_, "operator": "lt", "value": value});
    world.policy("default-latency", &json!({"name": "L", "severity": "critical", "rules": [rule("max_latency", "2000")]}));
    world.policy("default-cost", &json!({"name": "C", "severity": "warning", "rules": [rule("max_cost_per_day", "10.00")]}));
    world.policy("default-tokens", &json!({"name": "T", "severity": "warning", "enabled": false, "rules": [rule("max_tokens", "1")]}));
    world.agent("helper", &json!({})).await;
    world.agent("quiet", &json!({})).await;
    world.used("quiet", "h", requests(19, 19, 60_000)).await;
    world.used("helper", "h", requests(100, 10, 4_000)).await;
    world.used("helper", "h", |minute| minute.last_failed_trace = Some("tr_failed".to_owned())).await;
    world.used_on("helper", "canary", "h2", |minute| minute.last_failed_trace = Some("tr_failed_too".to_owned())).await;
    world.used("helper", "h", |minute| minute.cost_micros = 8_500_000).await;
    let trace = Some("tr_slow".to_owned());
    let slow = ViolationMinute {
        minute: Timestamp::now(),
        policy: "gp_default_latency".to_owned(),
        rule: "max_latency".to_owned(),
        stage: Stage::Limit,
        blocked: false,
        count: 90,
        conversations: vec![1],
        last_trace: trace,
    };
    world.runtime("helper", "h").record_violations(&[slow]).await.unwrap();
    for _ in 0..3 {
        world.pass(1).await;
    }
    assert_eq!(world.alerts(), "daily_cost_usd warning true, error_rate_pct warning true");
    let traces = "SELECT string_agg(trace, ' ' ORDER BY trace) FROM slipway.alerts, unnest(traces) trace WHERE metric = 'error_rate_pct'";
    assert_eq!(world.sql(traces), "tr_failed tr_failed_too");
    for _ in 0..3 {
        world.pass(1).await;
    }
    assert_eq!(world.alerts(), "daily_cost_usd warning true, error_rate_pct warning true, p95_latency_ms critical true");
    assert_eq!(
        world.sql(
            "SELECT policy || ' ' || value || ' ' || threshold || ' ' || traces[1] FROM slipway.alerts WHERE metric = 'p95_latency_ms'"
        ),
        "gp_default_latency 4900 2000 tr_slow"
    );
    assert_eq!(world.alerting("quiet"), Some(None), "nineteen requests are no rate");
    // Spent: the alert says so, and is the same one.
    world.used("helper", "h", |minute| minute.cost_micros = 2_000_000).await;
    world.pass(1).await;
    let cost = world.sql("SELECT message FROM slipway.alerts WHERE metric = 'daily_cost_usd'");
    assert_eq!(cost, "today has cost 10.5 USD; 10 USD a day are allowed (policy gp_default_cost)");
    // Switched off, a policy alerts nobody.
    world
        .policy("default-latency", &json!({"name": "L", "severity": "critical", "enabled": false, "rules": [rule("max_latency", "2000")]}));
    world.pass(1).await;
    assert_eq!(world.sql("SELECT count(*) FROM slipway.alerts WHERE resolved_at IS NULL"), "2");
}

#[tokio::test]
async fn policies_are_told_of_their_violations() {
    let mut world = World::new(true).await;
    world.policy(
        "no-guns",
        &json!({"name": "G", "severity": "critical", "rules": [{"type": "blocked_topics", "operator": "contains", "value": "guns"}]}),
    );
    world.agent("helper", &json!({"spec": {"governance": {"policies": ["no-guns"]}}})).await;
    world.pass(0).await;
    let key = Key::new("team-a", "no-guns");
    assert_eq!(world.caches().violations.of(&key), Some(None), "somebody has looked, and there are none");
    let broken = |blocked, count, trace: &str| ViolationMinute {
        minute: Timestamp::now(),
        policy: "gp_no_guns".to_owned(),
        rule: "blocked_topics".to_owned(),
        stage: Stage::Input,
        blocked,
        count,
        conversations: vec![1],
        last_trace: Some(trace.to_owned()),
    };
    world.runtime("helper", "h").record_violations(&[broken(true, 4, "tr_1"), broken(false, 1, "tr_2")]).await.unwrap();
    world.pass(1).await;
    let found = world.caches().violations.of(&key).unwrap().unwrap();
    assert_eq!((found.total.total, found.total.blocked, found.violators.len(), &*found.violators[0].agent), (5, 4, 1, "helper"));
    assert_eq!(world.alerts(), "policy_violation_count critical true");
    assert!(world.sql("SELECT traces[1] FROM slipway.alerts").starts_with("tr_"), "the alert shows where");
}

/// Answers that broke a policy, in this number of conversations, over two minutes.
async fn broke(world: &World, hash: &str, conversations: std::ops::Range<i64>) {
    broke_before(world, hash, conversations, SignedDuration::ZERO).await;
}

/// The same, so long ago.
async fn broke_before(world: &World, hash: &str, conversations: std::ops::Range<i64>, ago: SignedDuration) {
    let all: Vec<i64> = conversations.collect();
    let rows = |(place, some): (usize, &[i64])| ViolationMinute {
        minute: Timestamp::now() - ago - SignedDuration::from_mins(i64::try_from(place).unwrap()),
        policy: "gp_no_guns".to_owned(),
        rule: "blocked_topics".to_owned(),
        stage: Stage::Output,
        blocked: true,
        count: i64::try_from(some.len()).unwrap(),
        conversations: some.to_vec(),
        last_trace: None,
    };
    let rows: Vec<_> = all.chunks(20).enumerate().map(rows).collect();
    world.runtime("helper", hash).record_violations(&rows).await.unwrap();
}

fn release(version: i64, phase: &str) -> Value {
    json!({"metadata": {"name": format!("v{version}"), "namespace": "team-a"}, "spec": {"agent": "helper"},
        "status": {"version": version, "previous": version - 1, "phase": phase, "runHash": format!("h{version}")}})
}

/// A policy that no answer may break, and the agent that is held to it; releases 1 and 2, of which both were asked alike.
async fn two_releases(world: &World) {
    let rule = json!({"type": "blocked_topics", "operator": "contains", "value": "guns"});
    world.policy("no-guns", &json!({"name": "G", "severity": "critical", "rollback": true, "rules": [rule]}));
    let status = json!({"activeRelease": 2, "runHash": "h2"});
    world.agent("helper", &json!({"spec": {"governance": {"policies": ["no-guns"]}}, "status": status})).await;
    world.cluster.lock().unwrap().releases = vec![release(2, "active"), release(1, "archived")];
    world.used("helper", "h1", requests(200, 0, 50)).await;
    world.used("helper", "h2", requests(200, 0, 50)).await;
}

#[tokio::test]
async fn a_release_that_is_worse_is_rolled_back_once() {
    let mut world = World::new(true).await;
    let policy = |rollback| json!({"name": "G", "severity": "critical", "rollback": rollback, "rules": [{"type": "blocked_topics", "operator": "contains", "value": "guns"}]});
    world.policy("no-guns", &policy(false));
    let agent = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"governance": {"policies": ["no-guns"]}}, "status": {"activeRelease": 5, "runHash": "h5"}});
    world.agent("helper", &agent(json!({}))).await;
    world.cluster.lock().unwrap().releases =
        vec![release(5, "active"), release(4, "rejected"), release(3, "archived"), release(2, "archived")];
    world.used("helper", "h3", requests(1000, 0, 50)).await;
    world.used("helper", "h5", requests(200, 0, 50)).await;
    broke(&world, "h3", 0..3).await;
    broke(&world, "h5", 100..125).await;
    let patches = |world: &World| world.cluster.lock().unwrap().patches.clone();
    world.policy("no-guns", &policy(true));
    world.pass(1).await;
    assert_eq!(patches(&world).len(), 0, "five and twenty conversations may be one person's");
    broke(&world, "h5", 125..140).await;
    world.policy("no-guns", &policy(false));
    world.pass(1).await;
    assert_eq!(patches(&world).len(), 0, "the policy does not ask for it");
    world.policy("no-guns", &policy(true));
    world.pass(1).await;
    let [(path, asked)] = &patches(&world)[..] else { panic!("{:#?}", patches(&world)) };
    assert_eq!(path, "/apis/agents.slipway.dev/v1/namespaces/team-a/agents/helper");
    assert_eq!(
        asked["metadata"]["annotations"],
        json!({labels::DEPLOY_RELEASE: "3", labels::ROLLED_BACK: "5"}),
        "v4 was rejected and has never run"
    );
    assert_eq!(asked["metadata"]["resourceVersion"], "7");
    let why = world.events().into_iter().find(|event| event.starts_with("RollbackRequested")).unwrap();
    assert!(why.contains("40 conversations of 200 requests, those of v3 3 times in 1000 requests (Fisher's exact test"), "{why}");
    // A user who deploys v5 again means it; and what is asked for is not asked for again.
    for annotations in [json!({labels::ROLLED_BACK: "5"}), json!({labels::DEPLOY_RELEASE: "3"})] {
        world.agent("helper", &agent(annotations)).await;
        world.pass(1).await;
        assert_eq!(patches(&world).len(), 1);
    }
}

#[tokio::test]
async fn what_ran_before_is_as_bad_and_stays() {
    let mut world = World::new(true).await;
    two_releases(&world).await;
    broke(&world, "h1", 0..40).await;
    broke(&world, "h2", 100..145).await;
    world.pass(1).await;
    assert_eq!(world.cluster.lock().unwrap().patches.len(), 0);
}

#[tokio::test]
async fn a_rule_that_is_broken_each_minute_hides_nothing_of_the_release_before() {
    let mut world = World::new(true).await;
    two_releases(&world).await;
    broke_before(&world, "h1", 0..40, SignedDuration::from_hours(72)).await;
    broke(&world, "h2", 100..145).await;
    // For the two days since, each answer was too slow as well.
    let (team, agent) = (ids::team("a"), ids::agent("team-a", "helper"));
    world.sql(&format!(
        "INSERT INTO slipway.policy_violations (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked, count, conversations)
         SELECT '{team}', '{agent}', date_trunc('minute', now()) - m * interval '1 minute', 'stable', 'h2', 'gp_default_latency', 'max_latency',
                'output', false, 1, '{{1}}' FROM generate_series(1, 2880) m;
         INSERT INTO slipway.violation_hours (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked, count, last_minute)
         SELECT team, agent_id, date_trunc('hour', minute, 'UTC'), track, run_hash, policy, rule, stage, blocked, sum(count), max(minute)
         FROM slipway.policy_violations WHERE rule = 'max_latency' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9"
    ));
    world.pass(1).await;
    assert_eq!(world.cluster.lock().unwrap().patches.len(), 0);
    // Without its violations the release before was better.
    world.sql("DELETE FROM slipway.violation_hours WHERE run_hash = 'h1'");
    world.pass(1).await;
    assert_eq!(world.cluster.lock().unwrap().patches.len(), 1);
}

#[tokio::test]
async fn more_violations_than_are_read_are_no_verdict_and_told() {
    let mut world = World::new(true).await;
    two_releases(&world).await;
    broke(&world, "h2", 100..145).await;
    let (team, agent) = (ids::team("a"), ids::agent("team-a", "helper"));
    world.sql(&format!(
        "INSERT INTO slipway.violation_hours (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked, count, last_minute)
         SELECT '{team}', '{agent}', date_trunc('hour', now(), 'UTC') - h * interval '1 hour', 'stable', 'h2', 'gp_many', 'rule ' || r, 'input', false,
                1, now() FROM generate_series(0, 160) h, generate_series(1, 70) r"
    ));
    for _ in 0..2 {
        world.pass(1).await;
    }
    assert_eq!(world.cluster.lock().unwrap().patches.len(), 0);
    let told: Vec<_> = world.events().into_iter().filter(|event| event.starts_with("RollbackUndecided")).collect();
    let [told] = &told[..] else { panic!("{told:#?}") };
    assert!(told.contains("release v2") && told.contains("of v1") && told.contains("more violations"), "{told}");
}

#[tokio::test]
async fn a_release_that_was_rolled_back_is_not_gone_back_to() {
    let mut world = World::new(true).await;
    two_releases(&world).await;
    // v5 was bad, and v3 was brought back; then came v6, which is bad, too.
    let status = json!({"activeRelease": 6, "runHash": "h6"});
    let metadata = json!({"annotations": {labels::ROLLED_BACK: "5"}});
    world.agent("helper", &json!({"metadata": metadata, "spec": {"governance": {"policies": ["no-guns"]}}, "status": status})).await;
    world.cluster.lock().unwrap().releases =
        vec![release(6, "active"), release(5, "archived"), release(4, "rejected"), release(3, "archived"), release(2, "archived")];
    for hash in ["h3", "h5", "h6"] {
        world.used("helper", hash, requests(200, 0, 50)).await;
    }
    broke(&world, "h5", 0..60).await;
    broke(&world, "h6", 100..160).await;
    world.pass(1).await;
    let patches = world.cluster.lock().unwrap().patches.clone();
    let [(_, asked)] = &patches[..] else { panic!("{patches:#?}") };
    assert_eq!(asked["metadata"]["annotations"], json!({labels::DEPLOY_RELEASE: "3", labels::ROLLED_BACK: "5,6"}));
}

#[tokio::test]
async fn a_database_that_is_away_ends_no_alert() {
    let mut world = World::new(true).await;
    world.agent("helper", &json!({})).await;
    world.replicas("helper", 1, 0);
    for _ in 0..3 {
        world.pass(1).await;
    }
    let told = world.alerting("helper");
    assert!(told.clone().flatten().is_some());
    world.postgres.as_ref().unwrap().stop();
    world.replicas("helper", 1, 1);
    assert!(world.try_pass(10).await.is_err());
    assert_eq!((world.alerting("helper"), world.events().len()), (told, 1));
    world.postgres.as_ref().unwrap().restart();
    tokio::time::sleep(crate::tenancy::UNAVAILABLE_TTL).await;
    world.pass(1).await;
    assert_eq!((world.alerting("helper"), world.events().len()), (Some(None), 2));
}

#[tokio::test]
async fn without_a_database_readiness_alone_is_alerted_about() {
    let mut world = World::new(false).await;
    world.agent("helper", &json!({})).await;
    world.replicas("helper", 1, 0);
    for _ in 0..4 {
        world.pass(1).await;
    }
    assert_eq!(world.alerting("helper"), Some(Some("minutes_down from 2 on (critical)".to_owned())));
    assert_eq!(world.events().len(), 1);
    assert_eq!(world.caches().violations.of(&Key::new("team-a", "p")), None, "nobody has counted");
    // A new leader knows the alert by the condition.
    let condition = json!({"type": "Alerting", "status": "True", "reason": "CriticalAlerts", "message": "m", "lastTransitionTime": world.now.to_string()});
    world.agent("helper", &json!({"status": {"conditions": [condition]}})).await;
    world.replicas("helper", 1, 0);
    world.takes_over();
    world.pass(1).await;
    assert!(world.alerting("helper").flatten().is_some());
    assert_eq!(world.events().len(), 1, "it goes on");
    world.replicas("helper", 1, 1);
    world.pass(1).await;
    world.pass(6).await;
    assert_eq!(world.alerting("helper"), Some(None));
    assert_eq!(world.events().len(), 2, "{:#?}", world.events());
}

#[tokio::test]
async fn a_thousand_agents_are_one_pass_of_few_statements() {
    let mut world = World::new(true).await;
    let rule = json!({"type": "max_latency", "operator": "lt", "value": "2000"});
    world.policy("default-latency", &json!({"name": "L", "severity": "critical", "rules": [rule]}));
    for number in 0..1000 {
        world.agent(&format!("a{number}"), &json!({})).await;
    }
    world.replicas("a7", 1, 0);
    let begun = Instant::now();
    world.pass(1).await;
    let first = begun.elapsed();
    let begun = Instant::now();
    world.pass(2).await;
    println!("a pass over 1000 agents: {first:?}, then {:?}", begun.elapsed());
    assert_eq!(world.alerts(), "minutes_down critical true");
    assert_eq!(world.sql("SELECT count(*) FROM slipway.readiness_hours"), "1000");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn passes_begin_at_the_same_second_of_each_minute() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    for (now, offset, expected) in [(0, 0, 60), (1, 0, 59), (59, 0, 1), (60, 17, 17), (77, 17, 60), (78, 17, 59), (-1, 0, 1)] {
        assert_eq!(until_next(at(now), offset), Duration::from_secs(expected), "{now} {offset}");
    }
    assert!(offset() < 60);
}
