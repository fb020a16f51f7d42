//! The manager is killed at each of its writes, once before and once after it: the next one, which remembers nothing, comes to the same
//! end.

use tokio::select;

use super::*;

/// More steps than a run takes.
const MAX_STEPS: usize = 12;

impl Home {
    /// One step; false if the manager is killed in it, so that another one leads.
    async fn survives(&mut self) -> bool {
        let survives = select! {
            done = reconcile(&self.controller, &self.key) => {
                done.unwrap();
                true
            }
            () = self.cluster.killed.notified() => false,
        };
        if !survives {
            self.take_over();
        }
        survives
    }

    /// Takes the run to its end, and says whether the manager was killed meanwhile. The pod has scored one case more at each step.
    async fn run_to_its_end(&mut self, pod: &FakePod) -> bool {
        let (first, second) = (result(0, "scored", Some(1.0)), result(1, "scored", Some(0.5)));
        let one = report(ID, "running", std::slice::from_ref(&first));
        let mut reports = [one, report(ID, "completed", &[first, second])].into_iter();
        let mut was_killed = false;
        for _ in 0..MAX_STEPS {
            was_killed |= !self.survives().await;
            if pod.asked("post") > 0
                && let Some(report) = reports.next()
            {
                pod.say(ID, report);
            }
            self.apply(&json!({}));
            if !self.cluster.deleted.lock().unwrap().is_empty() {
                break;
            }
        }
        was_killed
    }
}

#[tokio::test]
async fn wherever_its_manager_is_killed_a_run_comes_to_the_same_end() {
    let pod = FakePod::open("127.77.19.14").await;
    for when in [When::Before, When::After] {
        for write in 1.. {
            pod.restart();
            pod.asked.lock().unwrap().clear();
            let mut home = Home::new("127.77.19.14", &json!({"ttlSecondsAfterFinished": 0}));
            *home.cluster.fate.lock().unwrap() = Some((write, when));
            let was_killed = home.run_to_its_end(&pod).await;
            let (at, last) = (format!("killed {when:?} write {write}"), home.status());
            assert_eq!(
                (&last["phase"], &last["score"], &last["passed"], &last["attempt"]),
                (&json!("Completed"), &json!(75.0), &json!(true), &json!(1)),
                "{at}: {last:#}"
            );
            assert_eq!(pod.asked("post"), 1, "{at}: the pod is sent the run once");
            let statuses = home.cluster.statuses.lock().unwrap().clone();
            assert!(statuses.iter().all(|status| status["startedAt"] == last["startedAt"]), "{at}: it begins once: {statuses:#?}");
            let told = home.cluster.events.lock().unwrap().clone();
            let count = |reason: &str| told.iter().filter(|told| *told == reason).count();
            assert_eq!(["EvaluationStarted", "EvaluationCompleted"].map(count), [1, 1], "{at}: {told:?}");
            assert!(count("EvaluationProgressed") <= 1 && told.len() <= 3, "{at}: {told:?}");
            assert_eq!(*home.cluster.deleted.lock().unwrap(), [format!("evaluationruns/{RUN}")], "{at}");
            if !was_killed {
                assert!(write > 5, "a run takes more than {write} writes");
                break;
            }
        }
    }
}
