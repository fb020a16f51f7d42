//! What is measured of canaries.

use super::*;
use crate::caches::canary::Reading;
use crate::governance::canary::MAX_PER_PASS;

/// Hears which agents' canaries are said to be measured otherwise.
#[derive(Default)]
struct Ear(Mutex<Vec<String>>);

impl Registered for Ear {
    fn changed(&self, change: &Change) {
        if let Change::CanaryMeasured(key) = change {
            self.0.lock().unwrap().push(key.name.clone());
        }
    }

    fn start(self: Arc<Self>, _: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        Vec::new()
    }
}

impl World {
    /// Somebody who hears of changes from now on.
    fn ear(&self) -> Arc<Ear> {
        let ear = Arc::new(Ear::default());
        let all: Vec<Arc<dyn Registered>> = vec![ear.clone()];
        self.governance.context.registry.set(all);
        ear
    }

    /// A status with a canary that began ten minutes ago.
    fn canary(&self, phase: &str) -> Value {
        let started = (self.now - SignedDuration::from_mins(10)).to_string();
        json!({"runHash": "h1", "canary": {"phase": phase, "weight": 10, "startedAt": started, "runHash": "c1", "evaluation": "own"}})
    }

    fn reading(&self, name: &str) -> Option<Reading> {
        self.caches().canary_measured.of(&Key::new("team-a", name)).flatten()
    }

    /// A run of the agent that has ended with a score.
    fn run(&self, name: &str, track: &str, hash: &str, score: f64, second: u32) {
        let status = json!({"phase": "Completed", "provider": "slipway", "runHash": hash, "score": score, "completedAt": format!("2027-01-01T00:00:{second:02}Z")});
        let whole =
            json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {"agent": "helper", "track": track}, "status": status});
        let run: slipway_api::EvaluationRun = object(whole);
        self.caches().evaluation_runs.insert(Key::new("team-a", name), Guarded(Ok(run)));
    }
}

fn heard(ear: &Ear) -> Vec<String> {
    std::mem::take(&mut *ear.0.lock().unwrap())
}

#[tokio::test]
async fn what_is_measured_of_a_canary_is_told_once() {
    let mut world = World::new(true).await;
    let ear = world.ear();
    world.agent("helper", &json!({"status": world.canary("Serving")})).await;
    world.agent("other", &json!({"status": {"runHash": "h1"}})).await;
    world.used("helper", "h1", requests(200, 2, 50)).await;
    world.used_on("helper", "canary", "c1", requests(100, 10, 1_500)).await;
    world.used_on("helper", "canary", "c1", |minute| (minute.requests, minute.cancelled) = (4, 4)).await;
    // What ran before, other agents and what is rehearsed is no part of it.
    world.used("helper", "h0", requests(70, 70, 50)).await;
    world.used_on("helper", "canary", "c0", requests(70, 70, 50)).await;
    world.used_on("helper", "candidate", "c1", requests(70, 70, 50)).await;
    world.used_on("other", "canary", "c1", requests(70, 70, 50)).await;
    world.run("own", "canary", "c1", 83.5, 1);
    world.run("newer", "canary", "c1", 99.0, 9);
    world.run("old", "stable", "h1", 71.0, 2);
    world.run("new", "stable", "h1", 72.0, 3);
    world.run("newest", "stable", "h0", 73.0, 4);
    world.pass(1).await;
    assert_eq!(heard(&ear), ["helper"]);
    let reading = world.reading("helper").unwrap();
    assert_eq!((reading.run_hash.as_deref(), reading.stable_run_hash.as_deref()), (Some("c1"), Some("h1")));
    let (new, former) = (&reading.canary, &reading.stable);
    assert_eq!((new.requests, new.evidence.ended, new.evidence.errors, new.evidence.score), (104, 100, 10, Some(83.5)));
    assert_eq!((former.requests, former.evidence.ended, former.evidence.errors, former.evidence.score), (200, 200, 2, Some(72.0)));
    let (slow, quick) = (UsageMinute::bucket(1_500), UsageMinute::bucket(50));
    assert_eq!((new.evidence.latency[slow], former.evidence.latency[quick], new.is_partial), (100, 200, false));
    assert_eq!(world.reading("other"), None);
    // The same again is told to nobody, and is known to be of now.
    world.pass(1).await;
    assert_eq!((heard(&ear).len(), world.reading("helper").unwrap().read_at), (0, world.now));
    world.used_on("helper", "canary", "c1", requests(1, 0, 50)).await;
    world.pass(1).await;
    assert_eq!((heard(&ear), world.reading("helper").unwrap().canary.requests), (vec!["helper".to_owned()], 105));
    // What the database does not answer leaves what was read.
    world.postgres.as_ref().unwrap().stop();
    assert!(world.try_pass(1).await.is_err());
    assert_eq!(world.reading("helper").unwrap().read_at, world.now - SignedDuration::from_mins(1));
    world.postgres.as_ref().unwrap().restart();
    tokio::time::sleep(crate::tenancy::UNAVAILABLE_TTL).await;
    world.pass(0).await;
    assert!(heard(&ear).is_empty());
    // Another canary has nothing of this one.
    world.agent("helper", &json!({"status": {"runHash": "h1", "canary": {"startedAt": world.now.to_string(), "runHash": "c2"}}})).await;
    world.pass(0).await;
    assert_eq!((heard(&ear), world.reading("helper").unwrap().canary.requests), (vec!["helper".to_owned()], 0));
    world.agent("helper", &json!({"status": {"runHash": "h1"}})).await;
    world.pass(1).await;
    assert_eq!((heard(&ear), world.reading("helper")), (vec!["helper".to_owned()], None));
}

#[tokio::test]
async fn a_canary_whose_usage_lies_elsewhere_is_not_measured() {
    let mut world = World::new(true).await;
    let elsewhere = json!({"databaseUrl": "postgres://db.example.com/agents"});
    for (name, spec) in [
        ("forgets", json!({"storage": "memory"})),
        ("stores", elsewhere.clone()),
        ("tries", json!({"canary": {"enabled": true, "weight": 10, "overrides": elsewhere}})),
        ("counts", json!({"canary": {"enabled": true, "weight": 10}})),
    ] {
        world.agent(name, &json!({"spec": spec, "status": world.canary("Serving")})).await;
    }
    world.pass(1).await;
    let measured = ["forgets", "stores", "tries", "counts"].map(|name| world.reading(name).is_some());
    assert_eq!(measured, [false, false, false, true]);
}

#[tokio::test]
async fn many_canaries_are_read_in_turn() {
    let mut world = World::new(true).await;
    let names: Vec<String> = (0..MAX_PER_PASS + 44).map(|number| format!("a{number:03}")).collect();
    for name in &names {
        world.agent(name, &json!({"status": world.canary("Serving")})).await;
    }
    let read_at = |world: &World| -> Vec<_> { names.iter().map(|name| world.reading(name).map(|reading| reading.read_at)).collect() };
    world.pass(1).await;
    let first = world.now;
    assert_eq!(read_at(&world).iter().filter(|read| read.is_some()).count(), MAX_PER_PASS);
    world.pass(1).await;
    let all = read_at(&world);
    assert!(all.iter().all(|read| read.is_some_and(|read| read >= first)), "{all:?}");
    assert_eq!((all[MAX_PER_PASS], all[0], all[299]), (Some(world.now), Some(world.now), Some(world.now)));
    assert_eq!(all[255], Some(first), "those after the turn keep what was read of them");
}

#[tokio::test]
async fn a_canary_that_cannot_be_read_keeps_no_other_from_it() {
    let mut world = World::new(true).await;
    for name in ["a", "b", "c"] {
        world.agent(name, &json!({"status": world.canary("Serving")})).await;
    }
    let of_b =
        format!("IF by_run AND agents = ARRAY[''{}''] THEN RAISE EXCEPTION ''too much''; ELSIF by_run THEN", ids::agent("team-a", "b"));
    world.sql(&format!(
        "DO $$ BEGIN EXECUTE replace(pg_get_functiondef('slipway.usage_since(text[], text[], text[], timestamptz, boolean)'::regprocedure),
            'IF by_run THEN', '{of_b}'); END $$"
    ));
    let read_at = |world: &World| ["a", "b", "c"].map(|name| world.reading(name).map(|reading| reading.read_at));
    assert!(world.try_pass(1).await.is_err());
    assert_eq!(read_at(&world), [Some(world.now), None, None]);
    assert!(world.try_pass(1).await.is_err());
    assert_eq!(read_at(&world), [Some(world.now), None, Some(world.now)], "the next pass begins after it");
}

#[tokio::test]
async fn canaries_are_counted_by_phase_while_this_process_leads() {
    let mut world = World::new(false).await;
    for (name, phase) in [("a", "Serving"), ("b", "Serving"), ("c", "Draining")] {
        world.agent(name, &json!({"status": world.canary(phase)})).await;
    }
    world.agent("d", &json!({})).await;
    world.pass(1).await;
    let metrics = world.governance.context.metrics.clone();
    let page = metrics.text();
    for line in [
        r#"slipway_canaries{phase="Serving"} 2"#,
        r#"slipway_canaries{phase="Draining"} 1"#,
        r#"slipway_canaries{phase="Promoting"} 0"#,
        r#"slipway_canary_weight{agent_namespace="team-a",agent="a"} 10"#,
        r#"slipway_canary_weight{agent_namespace="team-a",agent="c"} 0"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
    assert!(!page.contains(r#"agent="d""#), "{page}");
    assert_eq!(world.caches().canary_measured.of(&Key::new("team-a", "a")), None, "nobody can measure it");
    world.agent("a", &json!({})).await;
    world.pass(1).await;
    let page = metrics.text();
    assert!(page.contains(r#"slipway_canaries{phase="Serving"} 1"#) && !page.contains(r#"agent="a""#), "{page}");
    drop(Counts(&metrics));
    let page = metrics.text();
    assert!(!page.contains("slipway_canaries{") && !page.contains("slipway_canary_weight{"), "{page}");
}
