//! Results of runs that decide, in a real PostgreSQL.

use super::*;

const ADDRESS: [&str; 3] = ["127.77.19.15", "127.77.19.16", "127.77.19.17"];

fn id() -> String {
    ids::evaluation_results("", "u", false)
}

/// The places of a run's rows with the beginnings of the answers.
fn rows(postgres: &Postgres, id: &str) -> String {
    let told = "string_agg(place || ' ' || coalesce(result->>'output', 'nothing'), ', ' order by place)";
    postgres.psql(&format!("select coalesce({told}, '') from slipway.evaluation_results where run = '{id}'")).trim().to_owned()
}

fn completed(id: &str) -> Value {
    report(id, "completed", &[result(0, "scored", Some(1.0)), result(1, "scored", Some(0.5)), result(7, "scored", Some(1.0))])
}

#[tokio::test]
async fn a_run_that_decides_has_its_rows_before_its_verdict() {
    let postgres = Postgres::start();
    let pod = FakePod::open(ADDRESS[0]).await;
    let mut home = Home::within(ADDRESS[0], &json!({"release": "helper-v2"}), Some(tenancy(&postgres).await));
    home.reconcile().await;
    // A pod of the team has written among the run's rows, and beside them.
    for (run, place) in [(id(), 1), (id(), 7), ("ev_another".to_owned(), 1)] {
        postgres.psql(&format!(
            "insert into slipway.evaluation_results (team, agent_id, run, place, digest, result)
             values ('{}', '{}', '{run}', {place}, '', '{{\"output\": \"forged\"}}')",
            ids::team("a"),
            ids::agent("team-a", "helper")
        ));
    }
    pod.say(&id(), completed(&id()));
    // The manager is killed at the write of the verdict: the rows are there, and the next one writes them again.
    home.dies(false).await;
    assert_eq!((home.status()["phase"].as_str(), rows(&postgres, &id()).as_str()), (Some("Running"), "0 an answer, 1 an answer"));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], &home.status()["score"]), (&json!("Completed"), &json!(75.0)));
    assert_eq!(rows(&postgres, &id()), "0 an answer, 1 an answer", "those that were scored, and each once");
    assert_eq!(rows(&postgres, "ev_another"), "1 forged", "another run's stay");
    let owner = postgres.psql("select uid from slipway.owners where agent_id <> ''");
    assert_eq!(owner.trim(), "a", "the rows are this Agent's");
}

#[tokio::test]
async fn what_runs_write_themselves_is_left_to_them() {
    let postgres = Postgres::start();
    let pod = FakePod::open(ADDRESS[1]).await;
    for (spec, agent, id) in [
        (json!({}), json!({}), ID.to_owned()),
        (json!({"release": "helper-v2"}), json!({"databaseUrl": "postgresql://own@elsewhere:5432/own", "storage": "memory"}), id()),
    ] {
        pod.restart();
        let home = Home::within(ADDRESS[1], &spec, Some(tenancy(&postgres).await));
        home.agent(&agent);
        home.pod(ADDRESS[1], "h1");
        home.reconcile().await;
        pod.say(&id, completed(&id));
        home.reconcile().await;
        assert_eq!((&home.status()["phase"], rows(&postgres, &id).as_str()), (&json!("Completed"), ""), "{spec} {agent}");
    }
}

#[tokio::test]
async fn a_verdict_waits_for_a_database_that_is_away_and_not_for_ever() {
    let postgres = Postgres::start();
    let pod = FakePod::open(ADDRESS[2]).await;
    let home = Home::within(ADDRESS[2], &json!({"release": "helper-v2"}), Some(tenancy(&postgres).await));
    home.reconcile().await;
    pod.say(&id(), completed(&id()));
    postgres.stop();
    for _ in 0..2 {
        home.reconcile().await;
        assert_eq!(home.status()["phase"], "Running");
    }
    home.controller.remember(&home.key, |under_way| under_way.waits_since(Duration::from_mins(1)));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], &home.status()["score"]), (&json!("Completed"), &json!(75.0)), "the gate does not depend on it");
}
