//! A run is sent to a real MLflow server, and read back by MLflow's own client.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use slipway_cluster::Guarded;
use slipway_mlflow::trace_id;
use slipway_peers::Postgres;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::*;
use crate::evaluation_run::tests::{FakePod, Home, ID, RUN, object, report, sign, tenancy};
use crate::testing::send_spans;

const TRACES: [&str; 2] = ["tr_01ARZ3NDEKTSV4RRFFQ69G5FAV", "tr_01ARZ3NDEKTSV4RRFFQ69G5FAW"];

fn result(case: usize, value: f64) -> Value {
    let scores =
        ["safety", "relevance_to_query"].map(|scorer| json!({"scorer": scorer, "state": "scored", "value": value, "reason": "so"}));
    json!({"case": case, "output": "an answer", "scores": scores, "trace_id": TRACES[case]})
}

/// Another manager, which remembers nothing.
fn delivery(home: &Home) -> Delivery {
    Delivery::new(home.controller.context.clone(), Some(Arc::new(sign())))
}

fn delivered(home: &Home) -> Value {
    let conditions = home.status()["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == DELIVERED).unwrap_or_default()
}

/// The run has decided on a release, and its pod has gone since. MLflow has the traces.
async fn decided(home: &mut Home, pod: &FakePod, address: &str, url: &str) {
    let id = ids::evaluation_results("", "u", false);
    home.reconcile().await;
    pod.say(&id, report(&id, "completed", &[result(0, 1.0), result(1, 0.5)]));
    home.reconcile().await;
    assert_eq!(home.status()["phase"], "Completed");
    home.apply(&json!({}));
    home.context().caches.pods.gone(&home.agent_pod(address));
    let data = Some([("mlflow_uri".to_owned(), url.to_owned())].into());
    home.context().caches.platform.note(Some(&ConfigMap { data, ..ConfigMap::default() }));
    let experiment = Mlflow::new(url, None).unwrap().experiment("helper").await.unwrap();
    let server = url.trim_start_matches("http://").trim_end_matches('/');
    send_spans(server, &experiment, &ids::agent("team-a", "helper"), &TRACES).await;
}

/// What MLflow's own client reads back.
fn read_back(url: &str) -> Value {
    let script = slipway_peers::repository().join("src/mlflow/tests/read.py");
    let output = slipway_peers::python(&script, &[url, "helper"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The names and values of the assessments of a trace.
fn assessments(seen: &Value, own: &str) -> Vec<(Value, Value)> {
    let found = seen["traces"][trace_id(own).unwrap()].as_array().cloned().unwrap_or_default();
    found.into_iter().map(|one| (one["name"].clone(), one["value"].clone())).collect()
}

#[tokio::test]
async fn a_run_that_decided_is_sent_whole_though_its_candidate_has_gone() {
    let (postgres, server) = (Postgres::start(), slipway_peers::mlflow());
    let pod = FakePod::open("127.77.19.42").await;
    let mut home = Home::within("127.77.19.42", &json!({"release": "helper-v2"}), Some(tenancy(&postgres).await));
    decided(&mut home, &pod, "127.77.19.42", server.url()).await;
    assert_eq!(reconcile(&delivery(&home), &home.key).await.unwrap(), None);
    let condition = delivered(&home);
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Delivered")), "{condition:#}");
    assert!(condition["message"].as_str().unwrap().ends_with("4 assessments on the traces of 2 of 2 cases"), "{condition:#}");
    let seen = read_back(server.url());
    for (own, value) in TRACES.into_iter().zip([1.0, 0.5]) {
        let expected = ["relevance_to_query", "safety"].map(|name| (json!(name), json!(value)));
        assert_eq!(assessments(&seen, own), expected, "{seen:#}");
    }
}

#[tokio::test]
async fn a_run_whose_results_are_nowhere_says_so_and_is_not_called_delivered() {
    let server = slipway_peers::mlflow();
    let pod = FakePod::open("127.77.19.43").await;
    let mut home = Home::new("127.77.19.43", &json!({"release": "helper-v2"}));
    decided(&mut home, &pod, "127.77.19.43", server.url()).await;
    let completed = home.status();
    assert_eq!(reconcile(&delivery(&home), &home.key).await.unwrap(), None, "another attempt would find no more");
    let condition = delivered(&home);
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("ResultsMissing")), "{condition:#}");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("the results of 2 of 2 cases are missing") && message.contains("has no database"), "{message}");
    assert!(!message.contains("sent again"), "{message}");
    let seen = read_back(server.url());
    assert_eq!((&seen["runs"][0]["status"], &seen["runs"][0]["metrics"]["score"]), (&json!("FINISHED"), &json!(75.0)), "{seen:#}");
    assert!(TRACES.iter().all(|own| assessments(&seen, own).is_empty()), "{seen:#}");

    is_not_sent_again(home, completed, condition).await;
}

/// A run whose delivery ended with this condition is left alone.
async fn is_not_sent_again(mut home: Home, completed: Value, condition: Value) {
    home.run["status"] = completed;
    home.run["status"]["conditions"].as_array_mut().unwrap().push(condition);
    home.context().caches.evaluation_runs.insert(home.key.clone(), Guarded(Ok(object(home.run.clone()))));
    let writes = home.writes();
    assert_eq!(reconcile(&delivery(&home), &home.key).await.unwrap(), None);
    assert_eq!(home.writes(), writes);
}

/// Lets MLflow be reached at another port.
async fn relay(port: u16, to: String) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let mut to = TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut from, &mut to).await.ok() });
        }
    });
}

#[tokio::test]
async fn a_run_reaches_mlflow_once_whatever_is_away_or_killed() {
    let server = slipway_peers::mlflow();
    let address = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let pod = FakePod::open("127.77.19.40").await;
    let mut home = Home::new("127.77.19.40", &json!({}));
    home.reconcile().await;
    pod.say(ID, report(ID, "completed", &[result(0, 1.0), result(1, 0.5)]));
    home.reconcile().await;
    home.apply(&json!({}));
    let completed = home.status();
    assert_eq!(completed["phase"], "Completed");

    // Nobody waits for a server that there is not.
    assert_eq!(reconcile(&delivery(&home), &home.key).await.unwrap(), None);
    assert_eq!(home.status(), completed);

    // It is away: what was found stays.
    let port = slipway_peers::free_port();
    let data = Some([("mlflow_uri".to_owned(), format!("http://127.0.0.1:{port}"))].into());
    home.context().caches.platform.note(Some(&ConfigMap { data, ..ConfigMap::default() }));
    let first = delivery(&home);
    let retry = reconcile(&first, &home.key).await.unwrap().unwrap();
    let condition = delivered(&home);
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Unreachable")), "{condition:#}");
    assert!(condition["message"].as_str().unwrap().ends_with("the results stay here, and are sent again"), "{condition:#}");
    assert_eq!(home.status().as_object().unwrap().keys().collect::<Vec<_>>(), ["conditions"], "nothing else is written");
    assert!(retry <= RETRY_MIN, "{retry:?}");
    let writes = home.writes();
    assert!(reconcile(&first, &home.key).await.unwrap().is_some_and(|left| left <= RETRY_MIN));
    assert_eq!(home.writes(), writes, "it is not asked again at once");

    // It is back, and the traces are not there yet.
    relay(port, address.clone()).await;
    assert_eq!(reconcile(&delivery(&home), &home.key).await.unwrap(), Some(TRACES_INTERVAL));
    assert_eq!(home.writes(), writes);
    let experiment = Mlflow::new(server.url(), None).unwrap().experiment("helper").await.unwrap();
    send_spans(&address, &experiment, &ids::agent("team-a", "helper"), &TRACES).await;

    // Managers are killed at every point of it.
    for milliseconds in [15, 40, 80, 120, 180, 260, 360] {
        drop(timeout(Duration::from_millis(milliseconds), reconcile(&delivery(&home), &home.key)).await);
        sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(reconcile(&delivery(&home), &home.key).await.unwrap(), None);
    let condition = delivered(&home);
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Delivered")), "{condition:#}");
    assert!(condition["message"].as_str().unwrap().ends_with("4 assessments on the traces of 2 of 2 cases"), "{condition:#}");

    let seen = read_back(server.url());
    let [run] = seen["runs"].as_array().unwrap().as_slice() else { panic!("{seen:#}") };
    assert_eq!((&run["name"], &run["status"], &run["tags"]["slipway.team"]), (&json!(RUN), &json!("FINISHED"), &json!("tk_a")), "{run:#}");
    assert_eq!((&run["metrics"]["safety/mean"], &run["metrics"]["score"]), (&json!(0.75), &json!(75.0)));
    assert_eq!((&run["params"]["dataset"], &run["inputs"][0][0]), (&json!("golden"), &json!("golden")));
    assert_eq!(run["traces"], json!(TRACES.map(|own| trace_id(own).unwrap())));
    for (own, value) in TRACES.into_iter().zip([1.0, 0.5]) {
        let assessments = seen["traces"][trace_id(own).unwrap()].as_array().unwrap().iter();
        let told: Vec<_> = assessments.map(|one| (&one["name"], &one["value"], &one["source"], &one["run"])).collect();
        let (source, value) = (json!(["CODE", "slipway"]), json!(value));
        let names = [json!("relevance_to_query"), json!("safety")];
        assert_eq!(told, names.iter().map(|name| (name, &value, &source, &run["id"])).collect::<Vec<_>>());
    }
    let [dataset] = seen["datasets"].as_array().unwrap().as_slice() else { panic!("{seen:#}") };
    let inputs: Vec<_> = dataset["records"].as_array().unwrap().iter().map(|record| record["inputs"]["input"].as_str().unwrap()).collect();
    assert_eq!((inputs.len(), inputs.contains(&"one"), inputs.contains(&"two")), (2, true, true), "{inputs:?}");

    is_not_sent_again(home, completed, condition).await;
}
