//! Scores of sampled answers: a budget that all pods share, means over time, and their end.

use futures::future::join_all;
use jiff::Timestamp;
use slipway_database::{AgentKey, Options, PodRun, Reader, RunScore, SampledScore, SampledTurn, Store};

use crate::{Database, options};

const JUDGE: &str = "openai:/gpt-4o";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn sample(trace: &str, second: i64, judge: &str, scores: &[(&str, Option<f64>)]) -> SampledTurn {
    let score = |(scorer, value): &(&str, Option<f64>)| SampledScore { scorer: (*scorer).to_owned(), value: *value, judge_tokens: 10 };
    SampledTurn { trace_id: trace.to_owned(), at: at(second), judge: judge.to_owned(), scores: scores.iter().map(score).collect() }
}

#[tokio::test]
async fn a_days_budget_holds_for_all_pods_together() {
    let database = Database::migrated().await;
    let pods = [database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await];
    let claims = join_all((0..40).map(|n| pods[n % 2].claim_sample(15))).await;
    let claimed = claims.into_iter().filter(|claim| claim.clone().unwrap()).count();
    assert_eq!(claimed, 15);
    assert_eq!(pods[0].claim_sample(16).await, Ok(true), "a greater budget leaves room");
    assert_eq!(pods[1].claim_sample(15).await, Ok(false));
    let other = database.tenant("a", "ag_2").await;
    assert_eq!((other.claim_sample(0).await, other.claim_sample(1).await), (Ok(false), Ok(true)), "another agent's budget is its own");
    // Another day, another budget.
    let mut admin = database.raw(&database.url).await;
    admin.ask("update slipway.sampled_days set day = day - 1").await.unwrap();
    assert_eq!(pods[0].claim_sample(1).await, Ok(true));
}

#[tokio::test]
async fn means_are_of_what_ran_and_of_who_judged_and_nothing_counts_twice() {
    let database = Database::migrated().await;
    let login = database.login("a").await;
    let pod = |hash: &str| {
        let run = PodRun { track: "stable".to_owned(), hash: hash.to_owned() };
        Store::open(&Options { run, ..options(&database.url_of(&login), "a", "ag_1") }).unwrap()
    };
    let (one, two) = (pod("one"), pod("two"));
    for _ in 0..2 {
        one.keep_sample(&sample("tr_1", 0, JUDGE, &[("safety", Some(1.0)), ("fluency", None)])).await.unwrap();
    }
    one.keep_sample(&sample("tr_2", 3599, JUDGE, &[("safety", Some(0.5))])).await.unwrap();
    one.keep_sample(&sample("tr_3", 1, "", &[("safety", Some(0.25))])).await.unwrap();
    one.keep_sample(&sample("tr_4", 3600, JUDGE, &[("safety", Some(0.0))])).await.unwrap();
    two.keep_sample(&sample("tr_5", 2, JUDGE, &[("safety", Some(0.75))])).await.unwrap();
    let worthless = one.keep_sample(&sample("tr_6", 2, JUDGE, &[("safety", Some(1.0)), ("fluency", Some(7.0))])).await;
    assert!(worthless.is_err(), "no score is out of range");

    let score = |hash: &str, judge: &str, mean, scored| RunScore {
        agent: 0,
        track: "stable".to_owned(),
        run_hash: hash.to_owned(),
        judge: judge.to_owned(),
        scorer: "safety".to_owned(),
        mean,
        scored,
    };
    let tenants = database.tenants();
    let means = async |team: &str, agent: &str, since| {
        let key = AgentKey { team: team.to_owned(), agent_id: agent.to_owned(), uid: "uid".to_owned() };
        tenants.readings().sampled_by_run(&[key], since).await.unwrap()
    };
    // (1 + 0.5 + 0) / 3, as the first was written twice and counts once.
    let expected = [score("one", "", 0.25, 1), score("one", JUDGE, 0.5, 3), score("two", JUDGE, 0.75, 1)];
    assert_eq!(means("a", "ag_1", at(0)).await, expected);
    assert_eq!(means("a", "ag_1", at(3600)).await, [score("one", JUDGE, 0.0, 1)]);
    assert_eq!((means("a", "ag_2", at(0)).await, means("b", "ag_1", at(0)).await), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn tracks_are_told_apart_by_what_they_run_and_who_judged() {
    let database = Database::migrated().await;
    let login = database.login("a").await;
    let pod = |track: &str, hash: &str| {
        let run = PodRun { track: track.to_owned(), hash: hash.to_owned() };
        Store::open(&Options { run, ..options(&database.url_of(&login), "a", "ag_1") }).unwrap()
    };
    let (stable, canary) = (pod("stable", "one"), pod("canary", "two"));
    stable.keep_sample(&sample("tr_1", 0, JUDGE, &[("safety", Some(1.0)), ("fluency", None)])).await.unwrap();
    stable.keep_sample(&sample("tr_2", 60, JUDGE, &[("safety", Some(0.5))])).await.unwrap();
    stable.keep_sample(&sample("tr_3", 60, "", &[("safety", Some(0.25))])).await.unwrap();
    canary.keep_sample(&sample("tr_4", 60, JUDGE, &[("safety", Some(0.125)), ("fluency", Some(0.75))])).await.unwrap();
    pod("canary", "one").keep_sample(&sample("tr_5", 60, JUDGE, &[("safety", Some(0.0))])).await.unwrap();
    let score = |agent, track: &str, hash: &str, judge: &str, scorer: &str, mean, scored| RunScore {
        agent,
        track: track.to_owned(),
        run_hash: hash.to_owned(),
        judge: judge.to_owned(),
        scorer: scorer.to_owned(),
        mean,
        scored,
    };
    let expected = |agent| {
        [
            score(agent, "canary", "one", JUDGE, "safety", 0.0, 1),
            score(agent, "canary", "two", JUDGE, "fluency", 0.75, 1),
            score(agent, "canary", "two", JUDGE, "safety", 0.125, 1),
            score(agent, "stable", "one", "", "safety", 0.25, 1),
            score(agent, "stable", "one", JUDGE, "safety", 0.75, 2),
        ]
    };
    let key = |team: &str, agent: &str| AgentKey { team: team.to_owned(), agent_id: agent.to_owned(), uid: "uid".to_owned() };
    let reader = Reader::open(&database.url, None, None).unwrap();
    let keys = [key("a", "ag_0"), key("a", "ag_1"), key("b", "ag_1")];
    assert_eq!(reader.readings().sampled_by_run(&keys, at(0)).await.unwrap(), expected(1));
    assert_eq!(database.tenants().readings().sampled_by_run(&keys[1..], at(0)).await.unwrap(), expected(0));
    let late = reader.readings().sampled_by_run(&keys, at(1)).await.unwrap();
    assert_eq!(late.last(), Some(&score(1, "stable", "one", JUDGE, "safety", 0.5, 1)));
    // Of many scores the newest count.
    let mut admin = database.raw(&database.url).await;
    let many = "insert into slipway.sampled_scores select 'a', 'ag_1', to_timestamp(1800001000 + n), 'tr_m' || n, 'safety', 'stable', 'one', '', 1, 0
                from generate_series(1, 998) n";
    admin.ask(many).await.unwrap();
    let read = reader.readings().sampled_by_run(&keys, at(0)).await.unwrap();
    assert_eq!(read.iter().map(|score| score.scored).sum::<i64>(), 1_000);
    // Another Agent of the name has none of it.
    admin.ask("insert into slipway.owners (team, agent_id, uid, team_uid) values ('a', 'ag_1', 'another', 'team')").await.unwrap();
    assert_eq!(reader.readings().sampled_by_run(&keys, at(0)).await.unwrap(), []);
}

#[tokio::test]
async fn scores_and_counts_go_after_a_month() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let now = Timestamp::now();
    for (trace, days) in [("tr_1", 29), ("tr_2", 31)] {
        let at = Timestamp::from_second(now.as_second() - days * 86_400).unwrap();
        store.keep_sample(&SampledTurn { at, ..sample(trace, 0, "", &[("safety", Some(1.0)), ("fluency", Some(1.0))]) }).await.unwrap();
        store.claim_sample(10).await.unwrap();
        let mut admin = database.raw(&database.url).await;
        admin.ask(&format!("update slipway.sampled_days set day = current_date - {days} where day = current_date")).await.unwrap();
    }
    assert_eq!(database.tenants().delete_old_samples().await, Ok(3));
    let key = AgentKey { team: "a".to_owned(), agent_id: "ag_1".to_owned(), uid: "uid".to_owned() };
    let left = database.tenants().readings().sampled_by_run(&[key], Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|score| score.scored).sum::<i64>(), 2);
}
