//! The dataset of a gate that names none.

use serde_json::json;
use slipway_e2e::fault::Ground;

use super::{AGENT, OURS, Scene};

#[test]
fn an_older_dataset_takes_no_place_of_a_protected_one() {
    let ground = Ground::without_pods("examined");
    let mut scene = Scene::new(&ground, false);
    let cases = |count: usize| json!((0..count).map(|case| json!({"input": format!("Question {case}?")})).collect::<Vec<_>>());
    let home = &scene.trial.home;
    home.dataset("easy", &cases(1));
    home.dataset_of(AGENT, "hard", true, &cases(3));
    // Who may write what is not protected gives the agent one that was there before.
    home.dataset_of(AGENT, "easy", false, &cases(1));
    let dataset = |name: &str| scene.trial.home.get(OURS, "datasets", name);
    let made = |name: &str| dataset(name)["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    assert!(made("easy") <= made("hard") && dataset("easy")["spec"]["agent"] == AGENT, "{:#}", dataset("easy"));
    scene.begins(&json!({}));
    let runs = scene.trial.home.list(OURS, "evaluationruns");
    let [run] = &*runs else { panic!("the first release has one run: {runs:#?}") };
    assert_eq!((&run["status"]["dataset"], &run["status"]["totalCases"]), (&json!("hard"), &json!(3)), "{run:#}");
    assert!(scene.trial.home.get(OURS, "datasets", "helper-seed").is_null(), "it has a dataset");
}
