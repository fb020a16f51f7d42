//! A change for whose candidate the team's quota has no room: it waits and says why, for as long as that lasts.

use serde_json::{Value, json};
use slipway_e2e::condition;
use slipway_e2e::fault::{Ground, Home};

use super::{AGENT, APPS, CANDIDATE, OURS, PASSED, Scene, agent};

impl Scene<'_> {
    /// Gives the team a quota of so many pods, of which one is in use.
    #[track_caller]
    fn may_have(&mut self, most: u32) {
        let hard = json!({"pods": most.to_string()});
        self.trial.home.limit(&hard);
        self.trial.until("a quota", |trial| trial.home.count(&hard, &json!({"pods": "1"})));
        self.trial.until("a quota in force", |trial| trial.home.has_room() == (most > 1));
    }
}

fn said(home: &Home) -> String {
    condition(&agent(home), "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_change_waits_for_room_in_a_full_quota_and_passes_then() {
    let ground = Ground::without_pods("crowded");
    let mut scene = Scene::new(&ground, false);
    scene.begins(&json!({}));
    let served = scene.node.pods();
    scene.may_have(1);
    scene.trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    scene.trial.until("word of the quota", |trial| said(&trial.home).contains("exceeded quota: slipway"));
    // The candidate's Deployment has given up, which has any other one evaluated and rejected.
    let deployment = scene.trial.home.get(APPS, "deployments", CANDIDATE);
    assert_eq!(deployment["status"]["conditions"][0]["reason"], "ProgressDeadlineExceeded", "{deployment:#}");
    for _ in 0..3 {
        scene.trial.rests(AGENT, "PendingEvaluation", "a full quota");
        let (found, message) = (agent(&scene.trial.home), said(&scene.trial.home));
        for words in ["release v2 waits", "QuotaExceeded", "limited: pods=1", "raise the quota (spec.quota of the Team"] {
            assert!(message.contains(words), "{words:?} should be in {message:?}");
        }
        let status = ["Ready", "Reconciling", "Stalled", "Available"].map(|kind| condition(&found, kind)["status"].clone());
        assert_eq!(status, ["True", "True", "False", "True"].map(Value::from), "{found:#}");
        assert_eq!((&found["status"]["activeRelease"], &found["status"]["pendingRelease"]), (&json!(1), &json!(2)), "{found:#}");
        assert_eq!((&found["spec"]["systemPrompt"], condition(&found, "Approved")["status"].as_str()), (&json!("second"), Some("Unknown")));
        assert_eq!(scene.trial.home.releases(AGENT)["releases"], json!([[1, "active"], [2, "pending_eval"]]));
        let runs = scene.trial.home.list(OURS, "evaluationruns");
        assert_eq!(runs.len(), 1, "the second release has none: {runs:#?}");
        assert_eq!(scene.node.pods(), served, "what serves is not touched");
    }
    scene.may_have(100);
    scene.comes_to(PASSED, "room in the quota");
    let message = said(&scene.trial.home);
    assert!(!message.contains("quota"), "{message}");
}
