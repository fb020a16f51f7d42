//! Runs of agents with an image of their own: a Job with a pod of the platform's runtime, the evaluator, puts the cases to the agent's
//! pods and scores the answers. It is asked and judged as a pod of an agent is that has the platform's image. The Job is there from when
//! the agent's pods are ready until the run has ended, and goes with the run.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use sha2::{Digest, Sha256};
use slipway_api::agent::Storage;
use slipway_api::evaluation_run::EvaluationPhase;
use slipway_api::{Agent, EvaluationRun, contract, ids, labels};
use slipway_cluster::controller::Next;
use slipway_cluster::{Key, write};
use slipway_evaluation::wire::Progress;

use super::plan::{self, ABSENT_TIMEOUT, Cause, Obstacle, Said};
use super::pod::Ports;
use super::under_way::RunPlace;
use super::{BUSY_TIMEOUT, Controller, MANAGER, Work};
use crate::admission;
use crate::agent::{EVALUATOR, Foreign, foreign};
use crate::caches::ChildKind;
use crate::caches::child::{Child, JobOutcome};
use crate::caches::pods::ready;
use crate::children::{self, Outcome, QUOTA_EXCEEDED, reason_of_refusal};
use crate::control_port::address;
use crate::job::{self, JobPlan, JobTrouble};
use crate::settings::Settings;
use crate::worker::{EVALUATION, EVALUATOR_NAME};

/// How long a run waits for its evaluator.
const START_TIMEOUT: Duration = Duration::from_mins(10);
/// How often a pod that failed is replaced, and how long one may run.
const RETRIES: i32 = 6;
const DEADLINE_SECONDS: i64 = 24 * 3600;
/// How long a Job stays that has ended by itself, for its log.
const JOB_TTL_SECONDS: i32 = 3600;
/// The longest name of a Job, whose pods bear it as a label.
const NAME_MAX: usize = 63;
const STARTING: &str = "EvaluatorStarting";
/// The reason of a Job that has failed because it took longer than its deadline.
const OVERDUE: &str = "DeadlineExceeded";

/// The agent's pods, as an evaluator is told them.
pub(super) struct Asked {
    pub run_hash: String,
    /// Those that run it, and none of before or after.
    pub targets: Vec<SocketAddr>,
}

impl Asked {
    /// The one that a run begins with, as a URL. Runs of one agent begin with different ones.
    pub(super) fn target(&self, run: &str) -> Option<SocketAddr> {
        let first = usize::from(run.bytes().fold(0, u8::wrapping_add));
        self.targets.get(first.checked_rem(self.targets.len())?).copied()
    }
}

pub(super) fn url(target: SocketAddr) -> String {
    format!("http://{target}")
}

fn name(run: &str) -> String {
    let name = format!("evaluate-{run}");
    if name.len() <= NAME_MAX { name } else { format!("evaluate-{}", &hex::encode(Sha256::digest(run))[..20]) }
}

fn key_of(run: &Key) -> Key {
    Key::new(&run.namespace, name(&run.name))
}

/// The Job of a run, if it is the run's own.
fn job_of(controller: &Controller, key: &Key, run: &EvaluationRun) -> Option<std::sync::Arc<Child>> {
    controller.context.caches.children(ChildKind::Job).get(&key_of(key)).filter(|child| child.owner == run.uid())
}

/// Of a run that has ended. Its pod goes with it.
pub(super) async fn remove(controller: &Controller, key: &Key, run: &EvaluationRun) -> Result<(), write::Error> {
    if job_of(controller, key, run).is_some_and(|child| !child.deleting) {
        children::delete(&controller.context, ChildKind::Job, &key_of(key)).await?;
    }
    Ok(())
}

/// Without the agent's own labels, by which its Services and policies select.
fn build(run: &EvaluationRun, pod: PodSpec, settings: &Settings) -> Job {
    let plan = JobPlan {
        name: name(&run.name_any()),
        component: [EVALUATOR_NAME, EVALUATION],
        owner_label: labels::EVALUATION,
        retries: RETRIES,
        failure_policy: Some(job::failure_policy(EVALUATOR)),
        deadline_seconds: DEADLINE_SECONDS,
        ttl_seconds: JOB_TTL_SECONDS,
        pod,
    };
    job::build(settings, run, plan)
}

/// How long a run waits for its evaluator's pod. A quota without room rejects no release and ends no canary, which the end of their run
/// would do.
fn patience(run: &EvaluationRun, reason: &str) -> Duration {
    if reason == QUOTA_EXCEEDED && plan::decides(run) { Duration::MAX } else { START_TIMEOUT }
}

fn starting() -> Obstacle {
    Obstacle::Waits(Cause::new(STARTING, "the pod that evaluates the agent is not ready yet"), START_TIMEOUT)
}

/// Where the pod of a Job is asked, if it is one: anybody's pod may bear its labels.
fn place(pod: &Pod, job: &str, image: &str) -> Option<SocketAddr> {
    let is_of_it = pod.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == job);
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let is_ours = !containers.is_empty() && containers.iter().all(|container| container.image.as_deref() == Some(image));
    let stays = pod.metadata.deletion_timestamp.is_none();
    ready(pod).filter(|_| is_of_it && is_ours && stays).map(|ready| address(ready.address))
}

impl Work<'_> {
    /// A step of a run whose agent has an image of its own. `own` is the Agent as it is, `agent` as it is on the track.
    pub(super) async fn step_of_foreign(&self, own: &Agent, agent: &Agent) -> Next<write::Error> {
        let (context, track) = (&*self.controller.context, plan::track(self.run));
        let Some(ports) = self.controller.ports(&Key::new(&self.key.namespace, &self.run.spec.agent), true) else {
            return Ok(Some(super::WAITING_INTERVAL));
        };
        let Some(foreign) = foreign(context, own, track) else {
            return self.obstacle(plan::no_pod(self.run, None), &ports).await;
        };
        // The agent's pods are others, and may have answered already.
        if let Some(changed) = plan::agent_changed(&self.before, &foreign.run_hash) {
            return self.fail(&changed, &ports).await;
        }
        let asked = Asked { targets: self.targets(&foreign), run_hash: foreign.run_hash.clone() };
        if asked.targets.is_empty() {
            let why = if track == slipway_api::Track::Stable { None } else { crate::agent::given_up(agent, track, context) };
            return self.obstacle(plan::no_pod(self.run, why.as_deref()), &ports).await;
        }
        let places = match self.evaluator(agent, &foreign).await? {
            Ok(places) => places,
            Err(obstacle) => return self.obstacle(obstacle, &ports).await,
        };
        let (said, places) = self.ask(&ports, &places).await;
        match said.as_slice() {
            [Said::Report(report)] if report.status == Progress::Running => self.aim(&ports, &places, &asked).await,
            // It may be another pod by now.
            [Said::Nothing(_)] => self.controller.remember(self.key, |under_way| under_way.place = None),
            _ => {}
        }
        self.proceed(&ports, agent, &super::Carriers { places, asked: Some(asked) }, said).await
    }

    /// Whether the run has an evaluator.
    pub(super) fn has_evaluator(&self) -> bool {
        job_of(self.controller, self.key, self.run).is_some()
    }

    /// The agent's pods on the track that take requests and run what the track is.
    fn targets(&self, foreign: &Foreign) -> Vec<SocketAddr> {
        let (run, port) = (foreign.run(), u16::try_from(contract::PORT).unwrap_or_default());
        let workload = Key::new(&self.key.namespace, plan::track(self.run).workload(&self.run.spec.agent));
        let ready = self.controller.context.caches.pods.ready(&workload).into_iter();
        ready.filter(|(_, ready)| ready.run == run).map(|(_, ready)| SocketAddr::new(ready.address, port)).collect()
    }

    /// Sees to it that the evaluator asks a pod that there is.
    async fn aim(&self, ports: &Ports, places: &[RunPlace], asked: &Asked) {
        let known = self.controller.remember(self.key, |under_way| under_way.target);
        let (Some(place), Some(target)) = (places.first(), asked.target(&self.key.name)) else { return };
        if known.is_none_or(|known| !asked.targets.contains(&known)) && ports.turn(place.address, &place.run_id, &url(target)).await {
            self.controller.remember(self.key, |under_way| under_way.target = Some(target));
        }
    }

    /// The evaluator's pod once it is ready, and until then what keeps it from that.
    async fn evaluator(&self, agent: &Agent, foreign: &Foreign) -> Result<Result<Vec<RunPlace>, Obstacle>, write::Error> {
        let (context, key) = (&*self.controller.context, key_of(self.key));
        let Some(child) = job_of(self.controller, self.key, self.run) else { return self.make(agent, foreign).await.map(Err) };
        let outcome = child.job.as_deref().and_then(|job| job.outcome.as_ref());
        match outcome {
            _ if child.deleting => return Ok(Err(starting())),
            // Its pod was told to end, and has; the run has not.
            Some(JobOutcome::Complete) => {
                children::delete(context, ChildKind::Job, &key).await?;
                return Ok(Err(starting()));
            }
            Some(JobOutcome::Failed { reason, message }) => {
                let obstacle = self.failed(reason, message).await;
                // Its time is up, and it never had a pod.
                if matches!(obstacle, Obstacle::Waits(..)) {
                    children::delete(context, ChildKind::Job, &key).await?;
                }
                return Ok(Err(obstacle));
            }
            None => {}
        }
        if let Some(place) = self.controller.remember(self.key, |under_way| under_way.place.clone()) {
            return Ok(Ok(vec![place]));
        }
        let Ok(pods) = job::pods(context, &key.namespace, &self.label()).await else { return Ok(Err(starting())) };
        let of_ours = |pod: &Pod| {
            let address = place(pod, &child.uid, &context.settings.runtime_image)?;
            let agent = Key::new(&self.key.namespace, &self.run.spec.agent);
            Some(RunPlace { agent, pod: pod.name_any(), address, run_id: self.run_id(), is_evaluator: true })
        };
        let places: Vec<RunPlace> = pods.iter().filter_map(of_ours).collect();
        if !places.is_empty() {
            return Ok(Ok(places));
        }
        let trouble = if pods.is_empty() { job::refusal(context, &key.namespace, &key.name).await } else { job::of_pods(&pods) };
        Ok(Err(trouble.map_or_else(starting, |trouble| self.waits_for(&trouble))))
    }

    fn waits_for(&self, trouble: &JobTrouble) -> Obstacle {
        let message = format!("the pod that evaluates the agent: {}", trouble.message);
        Obstacle::Waits(Cause::new(trouble.reason, message), patience(self.run, trouble.reason))
    }

    fn label(&self) -> String {
        format!("{}={}", labels::EVALUATION, self.key.name)
    }

    async fn failed(&self, reason: &str, message: &str) -> Obstacle {
        let (context, key) = (&*self.controller.context, key_of(self.key));
        let trouble = job::trouble(context, &key.namespace, &self.label(), &key.name).await;
        let is_without_room = |trouble: &&JobTrouble| reason == OVERDUE && trouble.reason == QUOTA_EXCEEDED && plan::decides(self.run);
        if let Some(trouble) = trouble.as_ref().filter(is_without_room) {
            return self.waits_for(trouble);
        }
        let why = trouble.map_or_else(|| format!("{reason}: {message}"), |trouble| trouble.message);
        Obstacle::Final(Cause::new("EvaluatorFailed", format!("the pod that evaluates the agent has failed: {why}")))
    }

    /// Makes the Job, unless another run of the track has one: agents are asked by one at a time.
    async fn make(&self, agent: &Agent, foreign: &Foreign) -> Result<Obstacle, write::Error> {
        let context = &*self.controller.context;
        let waits = |reason, message, timeout| Ok(Obstacle::Waits(Cause::new(reason, message), timeout));
        if let Some(other) = self.other() {
            return waits("Busy", format!("the run waits for another one: the evaluation {other} is under way"), BUSY_TIMEOUT);
        }
        // Rows are the Agent's that the database knows.
        if foreign.persists
            && let Some(why) = admission::waits(context, agent, plan::track(self.run), Storage::Postgresql).await
        {
            return waits("DatabaseUnavailable", why, ABSENT_TIMEOUT);
        }
        let job = build(self.run, foreign.evaluator(context), &context.settings);
        let owner = self.run.uid().unwrap_or_default();
        match children::apply(context, ChildKind::Job, &owner, &write::value(&job)?, MANAGER).await? {
            Outcome::Taken => {
                let message = format!("a Job {} exists in the namespace and does not belong to this run; delete it", job.name_any());
                waits("NameTaken", message, ABSENT_TIMEOUT)
            }
            Outcome::Refused(why) => {
                let (reason, message) =
                    (reason_of_refusal(&why), format!("the API server refused the Job that evaluates the agent: {why}"));
                waits(reason, message, patience(self.run, reason))
            }
            // That of an earlier run of this name has yet to go.
            Outcome::Left | Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Repaired => Ok(starting()),
        }
    }

    /// Another run of the track that has an evaluator.
    fn other(&self) -> Option<String> {
        let spec = &self.run.spec;
        let all = self.controller.context.caches.evaluation_runs.in_namespace(&self.key.namespace);
        all.into_iter().filter(|(key, _)| key != self.key).find_map(|(key, other)| {
            let other = other.0.as_ref().ok()?;
            let has_ended = other.status.as_ref().and_then(|status| status.phase).is_some_and(EvaluationPhase::is_final);
            let is_of_it = other.spec.agent == spec.agent && other.spec.track == spec.track && !has_ended;
            (is_of_it && job_of(self.controller, &key, other).is_some()).then(|| ids::evaluation_run(&key.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_is_called_after_its_run_as_far_as_that_fits() {
        assert_eq!(name("ev-01jabcdefghjkmnpqrstvwxyz0"), "evaluate-ev-01jabcdefghjkmnpqrstvwxyz0");
        let (long, other) = ("a".repeat(63), format!("{}b", "a".repeat(62)));
        assert!(name(&"a".repeat(54)).len() == 63 && name(&long).len() <= 63);
        assert_ne!(name(&long), name(&other));
    }

    #[test]
    fn only_a_pod_of_the_job_with_the_platforms_image_is_asked() {
        let pod = |owner: &str, image: &str, ready: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner, "controller": true}]},
                "spec": {"containers": [{"name": "evaluator", "image": image}]},
                "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let found = |pod: &Pod| place(pod, "j1", "runtime:1");
        assert_eq!(found(&pod("j1", "runtime:1", "True")), Some(SocketAddr::from(([10, 0, 0, 7], 8001))));
        for other in [pod("j2", "runtime:1", "True"), pod("j1", "example.com/liar:1", "True"), pod("j1", "runtime:1", "False")] {
            assert_eq!(found(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_run_that_decides_waits_for_room_in_a_quota_without_end() {
        let run = |spec: serde_json::Value| -> EvaluationRun {
            serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": spec})).unwrap()
        };
        let plain = run(json!({"agent": "helper"}));
        for deciding in [run(json!({"agent": "helper", "release": "helper-v2"})), run(json!({"agent": "helper", "content": "00"}))] {
            assert_eq!(patience(&deciding, QUOTA_EXCEEDED), Duration::MAX);
            assert_eq!(patience(&deciding, "Unschedulable"), START_TIMEOUT);
        }
        assert_eq!(patience(&plain, QUOTA_EXCEEDED), START_TIMEOUT, "nobody waits for it");
    }

    #[test]
    fn runs_begin_with_different_pods_of_those_that_there_are() {
        let asked =
            |count: u8| Asked { run_hash: String::new(), targets: (0..count).map(|at| SocketAddr::from(([10, 0, 0, at], 8000))).collect() };
        assert_eq!(asked(0).target("ev-1"), None);
        assert_ne!(asked(2).target("ev-1"), asked(2).target("ev-2"));
        assert_eq!(url(asked(1).target("ev-1").unwrap()), "http://10.0.0.0:8000");
        assert_eq!(url("[fd00::7]:8000".parse().unwrap()), "http://[fd00::7]:8000");
    }
}
