//! Two operators, the first of which leads while the candidate of a change becomes ready: it is killed while that is evaluated, or cannot
//! renew its lease when it is about to make the run. The second one goes on, and the change is promoted once.

use serde_json::json;
use slipway_e2e::fault::{Ground, Manager};

use super::{AGENT, OURS, PASSED, SLOW, Scene};

impl Scene<'_> {
    /// Another operator, which stands by.
    #[track_caller]
    fn another(&mut self, name: &str) {
        self.trial.until("a leader", |trial| trial.home.leader() == "one");
        let mut other = Manager::start(&self.trial.home, name, true);
        other.ready();
        self.trial.managers.push(other);
    }

    #[track_caller]
    fn another_leads(&mut self, name: &str) {
        self.trial.until("another leader", |trial| trial.home.leader() == name);
    }
}

#[test]
fn the_next_leader_goes_on_with_a_run_that_is_under_way() {
    let ground = Ground::without_pods("bequeathed");
    let mut scene = Scene::new(&ground, true);
    scene.another("two");
    // Its model plays what it is asked. A lease holds for less.
    let case = json!({"input": SLOW, "expectedOutput": "Paris is the capital of France"});
    scene.trial.home.dataset("slow", &json!([case]));
    let governance = json!({"minQualityScore": 1, "riskProfile": "low", "evalDataset": "slow"});
    scene.begins(&json!({"modelId": "stub-script", "governance": governance}));
    scene.trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    scene.trial.until("a run that is under way", |trial| {
        trial.home.list(OURS, "evaluationruns").iter().any(|run| run["status"]["phase"] == "Running")
    });
    // It stays away.
    scene.trial.managers.remove(0);
    scene.another_leads("two");
    scene.comes_to(PASSED, "the end of a leader whose run was under way");
}

#[test]
fn a_run_that_an_old_leader_makes_too_late_is_no_second_one() {
    let ground = Ground::without_pods("lapsed");
    let mut scene = Scene::new(&ground, true);
    scene.another("two");
    scene.begins(&json!({}));
    let old = scene.trial.managers[0].door().clone();
    old.hold("evaluationruns");
    scene.trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    scene.trial.until("a run that is held back", |_| old.is_holding());
    scene.another_leads("two");
    assert_eq!(scene.trial.managers[0].ends(), 1, "an operator that cannot renew the lease ends before");
    scene.trial.until("what the next leader makes of the change", |trial| PASSED.is_over(&trial.home));
    assert_eq!(old.let_go(), 409, "there is a run of that name");
    // The old one hears of all that it has missed, and that it does not lead.
    old.reopen();
    scene.comes_to(PASSED, "a run that came too late");
    assert_eq!(scene.trial.home.leader(), "two");
}
