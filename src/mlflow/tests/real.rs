//! What is written to a real MLflow server, read back by MLflow's own client.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use slipway_mlflow::{Assessment, Facts, Fault, Input, Login, Mark, Mlflow, RunStatus, Scored, Source, trace_id};
use slipway_peers::Server;

const TRACE: &str = "tr_01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn read(server: &Server, experiment: &str) -> Value {
    let script = slipway_peers::repository().join("src/mlflow/tests/read.py");
    let output = slipway_peers::python(&script, &[server.url(), experiment], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn post(server: &Server, path: &str, experiment: &str, body: &Value) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let request = reqwest::Client::new().post(format!("{}/{path}", server.url())).header("content-type", "application/json");
    let answer = request.header("x-mlflow-experiment-id", experiment).body(body.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
}

/// A span, as an agent's pod sends it.
async fn span(server: &Server, experiment: &str) {
    let span = json!({"traceId": trace_id(TRACE).unwrap().trim_start_matches("tr-"), "spanId": "00f067aa0ba902b7", "name": "invoke_agent",
        "kind": 1, "startTimeUnixNano": "1795625611000000000", "endTimeUnixNano": "1795625612000000000",
        "attributes": [{"key": "mlflow.traceTag.slipway.agent_id", "value": {"stringValue": "ag_1"}}]});
    post(server, "v1/traces", experiment, &json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})).await;
}

fn facts() -> Facts {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Facts {
        params: vec![pair("dataset", "golden"), pair("long", &"ä".repeat(9000))],
        metrics: vec![("safety/mean".to_owned(), 0.75), ("score".to_owned(), 75.0)],
        tags: vec![pair("slipway.verdict", "PASSED \"so\" `it` 'is'")],
        at: 7000,
    }
}

fn assessment(run: &str, name: &str, value: Result<f64, String>) -> Assessment {
    let source = if value.is_ok() { Source::Judge("stub:/echo".to_owned()) } else { Source::Code("slipway".to_owned()) };
    let (trace, rationale) = (trace_id(TRACE).unwrap(), "because <b>\u{1f600}".to_owned());
    Assessment { id: format!("a-{name}"), trace, name: name.to_owned(), value, rationale, source, run: run.to_owned() }
}

/// Everything that a caller writes, as often as it is called.
async fn write(mlflow: &Mlflow, records: &[Value]) -> Result<String, Fault> {
    let experiment = mlflow.experiment("helper é & co").await?;
    let run = mlflow.run(&experiment, "uid-1", "first", 1000).await?;
    mlflow.log(&run, &facts()).await?;
    let source = json!({"kind": "Dataset", "name": "golden"});
    mlflow.log_input(&run, &Input { name: "golden".to_owned(), digest: "d".repeat(36), source }).await?;
    let tags = Map::from_iter([("slipway.dataset".to_owned(), json!("golden"))]);
    mlflow.dataset(&experiment, "team-a/golden@0123", &tags, records).await?;
    let (trace, absent) = (trace_id(TRACE).unwrap(), trace_id("tr_01ARZ3NDEKTSV4RRFFQ69G5FAW").unwrap());
    let found = mlflow.traces(&[trace.clone(), absent], "ag_1").await?;
    assert_eq!(found.keys().collect::<Vec<_>>(), [&trace], "only the trace that is there");
    assert!(mlflow.traces(std::slice::from_ref(&trace), "ag_2").await?.is_empty(), "another agent's trace");
    mlflow.link(&run, &[trace]).await?;
    let known: BTreeSet<String> = found.into_values().flatten().collect();
    for (name, value) in [("safety", Ok(0.5)), ("fluency", Err("the judge is away".to_owned()))] {
        let assessment = assessment(&run, name, value);
        if !known.contains(&assessment.id) {
            mlflow.assess(&assessment).await?;
        }
    }
    mlflow.end(&run, RunStatus::Finished, 9000).await?;
    Ok(run)
}

#[tokio::test]
async fn what_is_written_twice_is_read_once_by_mlflows_client() {
    let server = slipway_peers::mlflow();
    let mlflow = Mlflow::new(server.url(), None).unwrap();
    let experiment = mlflow.experiment("helper é & co").await.unwrap();
    span(&server, &experiment).await;
    let records: Vec<Value> =
        (0..450).map(|at| json!({"inputs": {"input": format!("{at} {}", "x".repeat(3000))}, "expectations": {"expected_response": "y"}, "tags": {"case": at.to_string()}})).collect();
    let run = write(&mlflow, &records).await.unwrap();
    assert_eq!(write(&mlflow, &records).await.unwrap(), run);

    let seen = read(&server, "helper é & co");
    let [only] = seen["runs"].as_array().unwrap().as_slice() else { panic!("{seen:#}") };
    let told = ["id", "name", "status", "start", "end"].map(|key| only[key].clone());
    assert_eq!(told, [json!(run), json!("first"), json!("FINISHED"), json!(1000), json!(9000)]);
    assert_eq!(only["metrics"], json!({"safety/mean": 0.75, "score": 75.0}));
    assert_eq!(only["history"], json!({"safety/mean": 1, "score": 1}), "a metric that is sent again is the same");
    assert_eq!((&only["params"]["dataset"], only["params"]["long"].as_str().unwrap().chars().count()), (&json!("golden"), 5000));
    assert_eq!(only["tags"]["slipway.verdict"], "PASSED \"so\" `it` 'is'");
    assert_eq!(only["inputs"], json!([["golden", "d".repeat(36)]]));
    let trace = trace_id(TRACE).unwrap();
    assert_eq!(only["traces"], json!([trace]));
    let rationale = "because <b>\u{1f600}";
    let assessments = json!([
        {"name": "fluency", "value": null, "error": "the judge is away", "rationale": rationale, "source": ["CODE", "slipway"], "run": run, "own": {}},
        {"name": "safety", "value": 0.5, "error": null, "rationale": rationale, "source": ["LLM_JUDGE", "stub:/echo"], "run": run, "own": {}},
    ]);
    assert_eq!(seen["traces"], json!({trace: assessments}));
    let [dataset] = seen["datasets"].as_array().unwrap().as_slice() else { panic!("{}", seen["datasets"]) };
    assert_eq!((&dataset["name"], &dataset["tags"]["slipway.dataset"]), (&json!("team-a/golden@0123"), &json!("golden")));
    let read_records = dataset["records"].as_array().unwrap();
    assert_eq!(read_records.len(), 450);
    for record in &records {
        assert!(read_records.contains(record), "{record}");
    }

    two_that_began_at_once_leave_one_run(&server, &mlflow, &experiment).await;
    scores_are_those_of_the_last_run_that_counts(&mlflow).await;
    faults_say_what_is_wrong(&server, &mlflow, &experiment).await;
}

/// An experiment of its own: runs of two agents of one name.
async fn scores_are_those_of_the_last_run_that_counts(mlflow: &Mlflow) {
    let experiment = mlflow.experiment("gated").await.unwrap();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let of = |agent_id, run_hash| Some(Scored { agent_id, run_hash, not_by: &["mock", "heuristic"] });
    assert_eq!(mlflow.scores("gated", of("ag_1", "h1")).await.unwrap(), None, "no run");
    for (key, agent, hash, provider, status, score, at) in [
        ("first", "ag_1", "h1", "slipway", RunStatus::Finished, 0.5, 1000),
        ("last", "ag_1", "h1", "slipway", RunStatus::Finished, 0.75, 2000),
        ("words", "ag_1", "h1", "heuristic", RunStatus::Finished, 1.0, 3000),
        ("failed", "ag_1", "h1", "slipway", RunStatus::Failed, 1.0, 4000),
        ("other content", "ag_1", "h2", "slipway", RunStatus::Finished, 0.25, 5000),
        ("other team", "ag_2", "h1", "slipway", RunStatus::Finished, 0.125, 6000),
    ] {
        let run = mlflow.run(&experiment, key, key, at).await.unwrap();
        let metrics = vec![("safety/mean".to_owned(), score), ("score".to_owned(), 100.0)];
        let params = vec![pair("run_hash", hash), pair("provider", provider)];
        let facts = Facts { params, metrics, tags: vec![pair("slipway.agent_id", agent)], at };
        mlflow.log(&run, &facts).await.unwrap();
        mlflow.end(&run, status, at).await.unwrap();
    }
    for (agent, hash, score) in [("ag_1", "h1", Some(0.75)), ("ag_1", "h2", Some(0.25)), ("ag_2", "h1", Some(0.125)), ("ag_2", "h2", None)]
    {
        let found = mlflow.scores("gated", of(agent, hash)).await.unwrap();
        assert_eq!(found, score.map(|score| [("safety/mean".to_owned(), score)].into()), "{agent} {hash}");
    }
    let words = Scored { agent_id: "ag_1", run_hash: "h1", not_by: &["mock"] };
    assert_eq!(mlflow.scores("gated", Some(words)).await.unwrap(), Some([("safety/mean".to_owned(), 1.0)].into()));
    assert_eq!(mlflow.scores("gated", None).await.unwrap(), None);
    assert_eq!(mlflow.scores("no such experiment", of("ag_1", "h1")).await.unwrap(), None);
    assert!(matches!(mlflow.scores("gated", of("ag_1", "it's")).await, Err(Fault::NotMlflow(_))), "it is no filter of its own");
}

async fn two_that_began_at_once_leave_one_run(server: &Server, mlflow: &Mlflow, experiment: &str) {
    for _ in 0..2 {
        let tags = json!([{"key": "slipway.key", "value": "uid-2"}]);
        let body = json!({"experiment_id": experiment, "run_name": "second", "tags": tags});
        post(server, "api/2.0/mlflow/runs/create", experiment, &body).await;
    }
    let kept = mlflow.run(experiment, "uid-2", "second", 1000).await.unwrap();
    let seen = read(server, "helper é & co");
    let second: Vec<&Value> = seen["runs"].as_array().unwrap().iter().filter(|run| run["name"] == "second").collect();
    assert_eq!(second.iter().map(|run| &run["id"]).collect::<Vec<_>>(), [&json!(kept)]);
}

async fn faults_say_what_is_wrong(server: &Server, mlflow: &Mlflow, experiment: &str) {
    let refused = mlflow.log("no-such-run", &facts()).await.unwrap_err();
    assert_eq!(refused.reason(), "Refused");
    assert!(refused.to_string().contains("no-such-run"), "{refused}");
    assert!(mlflow.run(experiment, "a' OR name = 'b", "x", 0).await.is_err(), "a key cannot end the filter");
    post(server, "api/2.0/mlflow/experiments/delete", experiment, &json!({"experiment_id": experiment})).await;
    assert_eq!(mlflow.experiment("helper é & co").await.unwrap_err().reason(), "ExperimentDeleted");
}

fn mark(agent_id: &str, trace: &str, user: &str) -> Mark {
    let [team, agent_id, trace, user, name] = ["tk_a", agent_id, trace, user, "helpful é \"so\""].map(str::to_owned);
    let [source, comment] = ["human", "Too <b>vague."].map(|text| Some(text.to_owned()));
    Mark { team, agent_id, trace, user, name, value: 2.0, scale: 5, source, comment }
}

#[tokio::test]
async fn a_mark_of_a_human_that_is_sent_twice_or_changed_is_one_assessment() {
    let server = slipway_peers::mlflow();
    let mlflow = Mlflow::new(server.url(), None).unwrap();
    let experiment = mlflow.experiment("marked").await.unwrap();
    let first = mark("ag_1", TRACE, "user_1");
    assert_eq!(mlflow.mark(&first).await, Ok(false), "the trace is not there yet");
    span(&server, &experiment).await;
    for (agent_id, trace) in [("ag_2", TRACE), ("ag_1", "tr_01ARZ3NDEKTSV4RRFFQ69G5FAW"), ("ag_1", "tr_1/../../x")] {
        assert_eq!(mlflow.mark(&mark(agent_id, trace, "user_1")).await, Ok(false), "{agent_id} {trace}");
    }
    for _ in 0..2 {
        assert_eq!(mlflow.mark(&first).await, Ok(true));
    }
    let of_marks = |seen: &Value| seen["traces"][trace_id(TRACE).unwrap()].clone();
    let told = |value: f64, rationale: Value, user: &str, scale: &str, source: &str| {
        let own = json!({"slipway.scale": scale, "slipway.source": source});
        json!({"name": first.name, "value": value, "error": null, "rationale": rationale, "source": ["HUMAN", user], "run": null, "own": own})
    };
    let own = told(2.0, json!("Too <b>vague."), "user_1", "5", "human");
    assert_eq!(of_marks(&read(&server, "marked")), json!([own]));

    let changed = Mark { value: 1.0, scale: 1, source: None, comment: None, ..first.clone() };
    assert_eq!(mlflow.mark(&changed).await, Ok(true));
    assert_eq!(mlflow.mark(&mark("ag_1", TRACE, "user_2")).await, Ok(true));
    let mut seen = of_marks(&read(&server, "marked")).as_array().cloned().unwrap();
    seen.sort_by_key(|one| one["source"][1].to_string());
    for one in &mut seen {
        one["rationale"] = json!(one["rationale"].as_str().unwrap_or_default());
    }
    assert_eq!(seen, [told(1.0, json!(""), "user_1", "1", ""), told(2.0, json!("Too <b>vague."), "user_2", "5", "human")]);
}

#[tokio::test]
async fn a_server_that_is_away_or_another_is_told_without_the_login() {
    let login = || Login::new(Some("me"), Some("hunter2"), None).unwrap();
    let nobody = format!("http://127.0.0.1:{}", slipway_peers::free_port());
    let other = slipway_peers::mock_llm("{}");
    for (uri, reason) in [
        (nobody.as_str(), "Unreachable"),
        (other.url(), "NotMlflow"),
        ("http://169.254.169.254", "AddressRefused"),
        ("http://me:hunter2@127.0.0.1", "AddressRefused"),
    ] {
        let fault = Mlflow::new(uri, login()).unwrap().experiment("helper").await.unwrap_err();
        assert_eq!(fault.reason(), reason, "{uri}: {fault}");
        assert!(!fault.to_string().contains("hunter2") && !fault.to_string().contains("bWU6"), "{fault}");
    }
    assert!(!Mlflow::new("me:hunter2", None).err().map(|fault| fault.to_string()).unwrap_or_default().contains("hunter2"));
}

#[tokio::test]
async fn a_probe_tells_the_version_to_who_has_the_login() {
    let server = slipway_peers::mlflow_with_login("hunter2-is-right");
    let probe = async |password: Option<&str>| {
        let login = Login::new(password.map(|_| "admin"), password, None).unwrap();
        Mlflow::new(server.url(), login).unwrap().probe().await
    };
    let version = probe(Some("hunter2-is-right")).await.unwrap();
    assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
    for wrong in [None, Some("hunter2-is-wrong")] {
        let fault = probe(wrong).await.unwrap_err();
        assert!(matches!(fault, Fault::Unauthorized { .. }) && !fault.to_string().contains("hunter2"), "{wrong:?}: {fault}");
    }
}
