//! The evaluation controller: carries out each EvaluationRun in a pod of its agent, and judges what that reports.
//!
//! `plan` decides on the next step, `cases` reads the dataset, `pod` calls the pod, `outcome` judges, `kept` writes the results of
//! runs that decide to the database, `status` makes the status of each step, `retention` deletes old runs, and `delivery`, a
//! controller of its own, sends results to MLflow. `callback` makes the token with which the pod reports the end; results are
//! fetched from the pod. All that a run needs lies in its status and in the pod: memory only holds which pod to ask first, and
//! since when nothing has happened.
//!
//! Of an agent with an image of its own the pod is another one, which `evaluator` makes for the run.

mod callback;
mod cases;
mod delivery;
mod evaluator;
mod kept;
mod outcome;
mod plan;
mod pod;
mod retention;
mod status;
#[cfg(test)]
mod tests;
mod under_way;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::condition::{self, READY, RECONCILING, STALLED};
use slipway_api::evaluation_run::{EvaluationPhase, EvaluationRunStatus};
use slipway_api::{Agent, AgentRelease, EvaluationRun, Track, ids, labels};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::{Key, Object, write};
use slipway_evaluation::wire::{self, Report};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::caches::ChildKind;
use crate::context::Context;
use crate::control_port::{Sign, address};
use crate::metrics::ByOutcome;
use crate::registry::{Change, Maker, Registered};
use cases::Cases;
pub(crate) use delivery::Delivery;
use evaluator::Asked;
use outcome::Judged;
use plan::{Cause, NO_POD_TIMEOUT, NO_PROGRESS_TIMEOUT, Obstacle, Said, Setup, Step, repeats};
use pod::{Accepted, Ports};
use status::{Begun, RunEvent, Steps};
use under_way::{RunPlace, UnderWay};

const MAKER: Maker =
    Maker { kind: "EvaluationRun", label: labels::EVALUATION, manager: MANAGER, children: &[ChildKind::Job], is_namespaced: true };
/// The field manager of what this controller writes.
const MANAGER: &str = slipway_release::gate::JUDGE;
/// How many runs are looked at once.
const CONCURRENCY: usize = 16;
/// How often a pod is asked how far a run is, and how much longer is waited for each case that it tells of.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const POLL_PER_CASE: Duration = Duration::from_millis(2);
/// How often a run that waits looks again, and a pod that does not answer is asked.
const WAITING_INTERVAL: Duration = Duration::from_secs(2);
const SILENT_INTERVAL: Duration = Duration::from_secs(5);
/// How often progress is written at most.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// How long a run waits for another one of the same pod. That ends by itself.
const BUSY_TIMEOUT: Duration = Duration::from_hours(24);

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    /// How agents are asked something; nobody is, without it.
    sign: Option<Arc<Sign>>,
    under_way: Mutex<HashMap<Key, UnderWay>>,
    /// Held while the results of a run are in memory, which may be many bytes.
    reports: Semaphore,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>, sign: Option<Arc<Sign>>) -> Self {
        Self { context, requests: Requests::default(), sign, under_way: Mutex::default(), reports: Semaphore::new(1) }
    }

    /// What is remembered of a run, changed by `change`.
    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut UnderWay) -> T) -> T {
        let mut all = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(key.clone()).or_default())
    }

    fn forget(&self, key: &Key) -> Option<UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    fn ports(&self, agent: &Key, of_evaluator: bool) -> Option<Ports> {
        Some(Ports::of(self.sign.clone()?, ids::agent(&agent.namespace, &agent.name), of_evaluator))
    }

    /// Ends a run that is gone in the pod that has it, if that is known. An evaluator goes with the run.
    async fn abandon(&self, key: &Key) {
        let Some(UnderWay { place: Some(place), .. }) = self.forget(key) else { return };
        if let Some(ports) = self.ports(&place.agent, false).filter(|_| !place.is_evaluator) {
            ports.cancel(place.address, &place.run_id).await;
        }
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<EvaluationRun>() {
            self.requests.add(key.clone());
        } else if let Change::Child("EvaluationRun", key) = change {
            self.requests.add(key.clone());
        }
    }

    fn maker(&self) -> Option<&'static Maker> {
        Some(&MAKER)
    }

    /// What a Job runs cannot be changed, so that there is nothing to compare.
    fn desired(&self, _: &Key, _: ChildKind, _: &Object) -> Option<Value> {
        None
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        // Another process may have led meanwhile.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<EvaluationRun, _>(phase, ("evaluation", CONCURRENCY, &requests), move |key| {
            let controller = self.clone();
            async move { reconcile(&controller, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.evaluation_runs.keys());
    }
}

async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(object) = context.caches.evaluation_runs.get(key) else {
        controller.abandon(key).await;
        return Ok(None);
    };
    let run = match &object.0 {
        Ok(run) => run,
        Err(invalid) => {
            let conditions = [(READY, false), (RECONCILING, false), (STALLED, true)];
            context.malformed::<EvaluationRun>(key, invalid, EvaluationPhase::Failed, &conditions).await?;
            return Ok(Some(RESYNC));
        }
    };
    if run.meta().deletion_timestamp.is_some() || controller.remember(key, |under_way| under_way.is_of_another(run)) {
        controller.abandon(key).await;
    }
    if run.meta().deletion_timestamp.is_some() {
        return Ok(None);
    }
    let mut before = run.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    // The state role writes it. That it came is why the pod is asked now; what it says is not believed.
    before.callback = None;
    // The cache may not have heard of the last write yet, and nobody else writes.
    let before = controller.remember(key, |under_way| {
        under_way.uid = run.uid();
        under_way.written.clone().unwrap_or(before)
    });
    if before.phase.is_some_and(EvaluationPhase::is_final) {
        if run.status.as_ref().and_then(|status| status.phase).is_some_and(EvaluationPhase::is_final) {
            controller.forget(key);
            evaluator::remove(controller, key, run).await?;
            return retention::keep(context, key, run).await;
        }
        return Ok(Some(WAITING_INTERVAL));
    }
    Work { controller, key, run, before }.step().await
}

/// The pods that may carry a run out.
struct Carriers {
    places: Vec<RunPlace>,
    /// The agent's, where these only ask them.
    asked: Option<Asked>,
}

/// A run that has not ended, and its status.
struct Work<'a> {
    controller: &'a Controller,
    key: &'a Key,
    run: &'a EvaluationRun,
    before: EvaluationRunStatus,
}

impl Work<'_> {
    async fn step(&self) -> Next<write::Error> {
        let context = &*self.controller.context;
        let agent_key = Key::new(&self.key.namespace, &self.run.spec.agent);
        let Some(ports) = self.controller.ports(&agent_key, false) else {
            let message = "the platform has no key by which agents know its calls; the run waits for it";
            return self.wait(&Cause::new("ControlKeyMissing", message), BUSY_TIMEOUT).await;
        };
        if self.run.spec.cancel {
            self.cancel_in_pods(&ports).await;
            return self.write(self.steps().cancelled()).await;
        }
        let own = context.caches.agents.get(&agent_key).and_then(|cached| cached.agent().ok());
        let (on_track, current) = own.as_ref().and_then(|agent| crate::agent::on_track(context, agent, plan::track(self.run))).unzip();
        let effective = on_track.as_ref().or(own.as_ref());
        let obstacle = plan::obstacle(self.run, effective);
        let of_canary = own.as_ref().and_then(|agent| self.canary_content(agent));
        if let Some(obstacle) = obstacle.or_else(|| plan::content_changed(self.run, of_canary.as_deref())) {
            return self.obstacle(obstacle, &ports).await;
        }
        let Some(agent) = effective else { return Ok(Some(WAITING_INTERVAL)) };
        let track = plan::track(self.run);
        // What the spec says is not what a candidate or a canary is, nor are pods that cannot be told from those of another one.
        if track != Track::Stable && on_track.is_none() {
            return self.obstacle(plan::no_pod(self.run, None), &ports).await;
        }
        if let Some(own) = own.as_ref().filter(|_| plan::has_own_image(agent, &context.settings.runtime_image)) {
            return Box::pin(self.step_of_foreign(own, agent)).await;
        }
        let ready = self.ready(current);
        let (said, places) = self.ask(&ports, &ready).await;
        if places.is_empty() {
            let why = if track == Track::Stable { None } else { crate::agent::given_up(agent, track, context) };
            return self.obstacle(plan::no_pod(self.run, why.as_deref()), &ports).await;
        }
        self.proceed(&ports, agent, &Carriers { places, asked: None }, said).await
    }

    /// The next step, by what the pods have said.
    async fn proceed(&self, ports: &Ports, agent: &Agent, carriers: &Carriers, said: Vec<Said>) -> Next<write::Error> {
        let total = self.before.total_cases.and_then(|total| usize::try_from(total).ok());
        let idle = self.controller.remember(self.key, UnderWay::idle);
        let is_silent = said.iter().all(|said| matches!(said, Said::Nothing(_)));
        let reported = said.iter().find_map(|said| if let Said::Report(report) = said { Some(report.total) } else { None });
        let setup = Setup::of(self.run, &self.before, agent);
        match plan::next(&self.run_id(), total, &self.before, said, idle) {
            Step::Begin => self.begin(ports, &setup, agent, carriers).await,
            // A manager that was killed may have begun it, and not said so.
            _ if let Some(total) = reported.filter(|_| self.before.started_at.is_none()) => {
                self.note_begun(ports, &setup, agent, carriers, total).await
            }
            Step::Watch { finished: Some(finished) } => self.progress(finished).await,
            Step::Watch { finished: None } if self.before.phase == Some(EvaluationPhase::Running) => {
                Ok(Some(if is_silent { SILENT_INTERVAL } else { WAITING_INTERVAL }))
            }
            Step::Watch { finished: None } => {
                let message = format!("a pod of Agent {} that is ready does not answer on its control port", self.run.spec.agent);
                self.obstacle(Obstacle::Waits(Cause::new("Unreachable", message), NO_POD_TIMEOUT), ports).await
            }
            Step::Finish => self.finish(ports, &setup, agent, idle).await,
            Step::Fail(cause) => self.fail(&cause, ports).await,
        }
    }

    /// What the canary is on which the run decides, as a hash. None where it decides on none, and while that cannot be said.
    fn canary_content(&self, agent: &Agent) -> Option<String> {
        let artifact = plan::decides_on_canary(self.run).then(|| crate::agent::canary_artifact(agent, &self.controller.context))??;
        Some(slipway_release::gate::content_key(&artifact))
    }

    fn steps(&self) -> Steps<'_> {
        Steps { run: self.run, before: &self.before, now: Timestamp::now() }
    }

    fn run_id(&self) -> String {
        plan::results_id(self.run, repeats(&self.before))
    }

    /// The pods that can be asked: those that are ready, with the present configuration if that is known.
    fn ready(&self, current: Option<u64>) -> Vec<RunPlace> {
        let (agent, run_id) = (&self.run.spec.agent, self.run_id());
        let workload = Key::new(&self.key.namespace, plan::track(self.run).workload(agent));
        let ready = self.controller.context.caches.pods.ready(&workload).into_iter();
        let place = |(pod, of): (String, crate::caches::pods::Ready)| RunPlace {
            agent: Key::new(&self.key.namespace, agent),
            pod,
            address: address(of.address),
            run_id: run_id.clone(),
            is_evaluator: false,
        };
        ready.filter(|(_, ready)| current.is_none_or(|current| ready.config == current)).map(place).collect()
    }

    /// Asks the pod that has the run, if it is known, else all of them. Returns what was said, and the pods that there are.
    async fn ask(&self, ports: &Ports, ready: &[RunPlace]) -> (Vec<Said>, Vec<RunPlace>) {
        let known = self.controller.remember(self.key, |under_way| under_way.place.clone());
        let run_id = self.run_id();
        let mut said = Vec::new();
        if let Some(place) = known.as_ref() {
            let answer = ports.ask(place.address, &run_id).await;
            let is_ready = ready.iter().any(|other| other.pod == place.pod && other.address == place.address);
            match answer {
                Said::Report(_) => return (vec![answer], vec![place.clone()]),
                Said::Nothing(_) if is_ready => return (vec![answer], ready.to_vec()),
                // It has restarted, or is gone.
                Said::Unknown | Said::Nothing(_) => self.controller.remember(self.key, |under_way| under_way.place = None),
            }
        }
        for place in ready {
            let answer = ports.ask(place.address, &run_id).await;
            if matches!(answer, Said::Report(_)) {
                self.controller.remember(self.key, |under_way| under_way.place = Some(place.clone()));
                return (vec![answer], ready.to_vec());
            }
            said.push(answer);
        }
        (said, ready.to_vec())
    }

    /// What the pod that has the run found.
    async fn results(&self, ports: &Ports) -> Result<Report, String> {
        let Some(place) = self.controller.remember(self.key, |under_way| under_way.place.clone()) else {
            return Err("no pod has it".to_owned());
        };
        match ports.results(place.address, &place.run_id).await {
            Said::Report(report) if report.run_id == place.run_id => Ok(report),
            Said::Report(_) | Said::Unknown => Err(format!("pod {} does not know it", place.pod)),
            Said::Nothing(why) => Err(why),
        }
    }

    async fn cancel_in_pods(&self, ports: &Ports) {
        // An evaluator goes with its Job once the run has ended, and the agent's pods know nothing. No token of its own is shown to them.
        if ports.are_evaluators() || self.has_evaluator() {
            return;
        }
        for place in self.ready(None) {
            ports.cancel(place.address, &place.run_id).await;
        }
    }

    /// Sends the run to a pod.
    async fn begin(&self, ports: &Ports, setup: &Setup, agent: &Agent, carriers: &Carriers) -> Next<write::Error> {
        let Carriers { places, asked } = carriers;
        let cases = match self.cases(agent, None).await? {
            Ok(cases) => cases,
            Err(obstacle) => return self.obstacle(obstacle, ports).await,
        };
        let begun = match self.begun(carriers, agent, &cases).await? {
            Ok(begun) => begun,
            Err(cause) => return self.fail(&cause, ports).await,
        };
        let target = asked.as_ref().and_then(|asked| asked.target(&self.key.name));
        let run_id = self.run_id();
        let (callback_url, callback_token) =
            callback::of(&self.controller.context.settings, self.run, &run_id, &self.before, begun.version).unzip();
        let request = wire::RunRequest {
            run_id,
            agent: ports.agent.clone(),
            version: begun.version.map(|version| version.to_string()).unwrap_or_default(),
            dataset: cases.dataset,
            risk_profile: setup.profile.id.trim_start_matches("rp_").to_owned(),
            scorers: setup.scorers.clone(),
            judge_model: setup.judge_model.clone(),
            min_quality_score: setup.threshold,
            callback_url,
            callback_token,
            target: target.map(evaluator::url),
            begins_anew: plan::begins_anew(self.run),
        };
        let mut why = Cause::new("Unreachable", "no pod of the agent answers on its control port");
        // Runs of one agent begin with different pods.
        let first = usize::from(self.key.name.bytes().fold(0, u8::wrapping_add)) % places.len().max(1);
        for place in places.iter().cycle().skip(first).take(places.len()) {
            match ports.begin(place.address, &request).await {
                Accepted::Yes => {
                    self.controller.remember(self.key, |under_way| under_way.begin(place.clone(), target));
                    self.write(self.steps().began(setup, &begun)).await?;
                    return Ok(Some(POLL_INTERVAL));
                }
                Accepted::Busy(words) => why = Cause::new("Busy", format!("the run waits for another one: {words}")),
                Accepted::Never(cause) => return self.fail(&cause, ports).await,
                Accepted::Nothing(words) if why.reason == "Unreachable" => {
                    why.message = format!("pod {} does not take the run: {words}", place.pod);
                }
                Accepted::Nothing(_) => {}
            }
        }
        let timeout = if why.reason == "Busy" { BUSY_TIMEOUT } else { NO_POD_TIMEOUT };
        self.obstacle(Obstacle::Waits(why, timeout), ports).await
    }

    /// Writes down that a run of `total` cases is under way which somebody began before.
    async fn note_begun(&self, ports: &Ports, setup: &Setup, agent: &Agent, carriers: &Carriers, total: usize) -> Next<write::Error> {
        let cases = match self.cases(agent, Some(total)).await? {
            Ok(cases) => cases,
            Err(obstacle) => return self.obstacle(obstacle, ports).await,
        };
        match self.begun(carriers, agent, &cases).await? {
            Ok(begun) => {
                self.write(self.steps().began(setup, &begun)).await?;
                Ok(Some(POLL_INTERVAL))
            }
            Err(cause) => self.fail(&cause, ports).await,
        }
    }

    /// The cases, which may not have changed since the run began: scores belong to them by their place. A pod that has been sent
    /// them, `sent` many, needs those that feedback has appended no more, so that they may be gone.
    async fn cases(&self, agent: &Agent, sent: Option<usize>) -> Result<Result<Cases, Obstacle>, write::Error> {
        let read = cases::read(&self.controller.context, self.run, &self.before, agent, sent).await?;
        Ok(read.and_then(|cases| {
            let changed =
                |what: String| Err(Obstacle::Final(Cause::new("DatasetChanged", format!("{what} since the run began; make another run"))));
            let begun = self.before.total_cases.and_then(|total| usize::try_from(total).ok());
            if self.before.dataset_digest.as_ref().is_some_and(|digest| *digest != cases.digest) {
                changed(format!("Dataset {} has changed", cases.dataset.name))
            } else if begun.is_some_and(|total| total != cases.dataset.cases.len()) {
                changed("cases that feedback had appended were deleted".to_owned())
            } else {
                Ok(cases)
            }
        }))
    }

    /// What it is that a run begins with, or why it cannot go on with it.
    async fn begun(&self, carriers: &Carriers, agent: &Agent, cases: &Cases) -> Result<Result<Begun, Cause>, write::Error> {
        let (client, namespace) = (&self.controller.context.client, &self.key.namespace);
        let mut run_hash = carriers.asked.as_ref().map(|asked| asked.run_hash.clone());
        if let (None, Some(place)) = (&run_hash, carriers.places.first()) {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let pod: Option<PartialObjectMeta<Pod>> = pods.get_metadata_opt(&place.pod).await?;
            run_hash = pod.and_then(|pod| pod.annotations().get(labels::RUN_HASH).cloned()).filter(|hash| hash.len() <= 64);
        }
        if self.before.run_hash.is_some() && run_hash.is_some() && self.before.run_hash != run_hash {
            let message = "the agent has changed while it was evaluated; make another run";
            return Ok(Err(Cause::new("AgentChanged", message)));
        }
        let version = match &self.run.spec.release {
            None if plan::track(self.run) == slipway_api::Track::Stable => agent.status.as_ref().and_then(|status| status.active_release),
            None => None,
            Some(release) => {
                let releases: Api<AgentRelease> = Api::namespaced(client.clone(), namespace);
                releases.get_opt(release).await?.and_then(|release| release.status).and_then(|status| status.version)
            }
        };
        let Cases { dataset, digest, feedback, feedback_digest } = cases;
        let (total, dataset) = (dataset.cases.len(), dataset.name.clone());
        let (digest, feedback_digest) = (digest.clone(), feedback_digest.clone());
        Ok(Ok(Begun { dataset, digest, total, feedback: *feedback, feedback_digest, run_hash, version }))
    }

    async fn progress(&self, finished: usize) -> Next<write::Error> {
        let is_due = self.controller.remember(self.key, |under_way| under_way.progress(finished, PROGRESS_INTERVAL));
        let told = self.before.finished_cases.and_then(|told| usize::try_from(told).ok());
        let reasons_stale = self.before.conditions.iter().any(|condition| condition.type_ == READY && condition.reason != "Running");
        if is_due && told != Some(finished) || reasons_stale && !repeats(&self.before) {
            self.write(self.steps().progressed(finished)).await?;
        }
        Ok(Some(spread(self.key, POLL_INTERVAL + POLL_PER_CASE.saturating_mul(u32::try_from(finished).unwrap_or(u32::MAX)))))
    }

    async fn finish(&self, ports: &Ports, setup: &Setup, agent: &Agent, idle: Duration) -> Next<write::Error> {
        let total = self.before.total_cases.and_then(|total| usize::try_from(total).ok());
        let cases = match self.cases(agent, total).await? {
            Ok(cases) => cases,
            Err(obstacle) => return self.obstacle(obstacle, ports).await,
        };
        // One at a time has its results in memory.
        let Ok(_turn) = self.controller.reports.acquire().await else { return Ok(Some(WAITING_INTERVAL)) };
        let mut report = match self.results(ports).await {
            Ok(report) => report,
            Err(why) if idle >= NO_PROGRESS_TIMEOUT => {
                let message = format!("a pod calls the run complete, and what it found cannot be read: {why}");
                return self.fail(&Cause::new("Incomplete", message), ports).await;
            }
            Err(_) => return Ok(Some(SILENT_INTERVAL)),
        };
        report.results = outcome::usable(&setup.scorers, cases.dataset.cases.len(), report.results);
        // The pod may go with the verdict.
        if let Some(pause) = Box::pin(self.keep(ports, &report.results)).await {
            return Ok(Some(pause));
        }
        match outcome::judge(setup, &cases.dataset.cases, report) {
            Judged::Decided(found) => self.write(self.steps().completed(found)).await,
            Judged::Undecided(mut unscored) if repeats(&self.before) => {
                let words = &unscored.cause.message;
                unscored.cause.message = format!("the judge failed in too many cases, also when the run was repeated: {words}");
                self.write(self.steps().unscored(unscored)).await
            }
            Judged::Undecided(unscored) => {
                self.controller.remember(self.key, UnderWay::repeat);
                self.write(self.steps().repeating(&unscored.cause.message)).await?;
                Ok(Some(POLL_INTERVAL))
            }
            // The pod has ended the run already.
            Judged::Failed(unscored) => self.write(self.steps().unscored(unscored)).await,
        }
    }

    async fn obstacle(&self, obstacle: Obstacle, ports: &Ports) -> Next<write::Error> {
        match obstacle {
            Obstacle::Final(cause) => self.fail(&cause, ports).await,
            Obstacle::Waits(cause, timeout) => self.wait(&cause, timeout).await,
        }
    }

    /// Waits, and fails after `timeout`.
    async fn wait(&self, cause: &Cause, timeout: Duration) -> Next<write::Error> {
        if self.controller.remember(self.key, |under_way| under_way.wait(cause.reason)) >= timeout {
            return self.write(self.steps().failed(cause)).await;
        }
        self.write(self.steps().waiting(cause)).await?;
        Ok(Some(spread(self.key, WAITING_INTERVAL)))
    }

    async fn fail(&self, cause: &Cause, ports: &Ports) -> Next<write::Error> {
        if self.before.started_at.is_some() {
            self.cancel_in_pods(ports).await;
        }
        self.write(self.steps().failed(cause)).await
    }

    /// Writes a status that differs, with its Event.
    async fn write(&self, status: EvaluationRunStatus) -> Next<write::Error> {
        if status == self.before {
            return Ok(Some(WAITING_INTERVAL));
        }
        let context = &*self.controller.context;
        // Before the status, so that a manager that is killed in between takes no Event along: the next one finds it there, or makes it.
        if let Some(RunEvent { spec, payload, which }) = status::event(&self.before, &status) {
            context.events.publish_once(&self.run.object_ref(&()), spec, &payload, &[&which]).await;
        }
        context.write_status(self.run, &status, MANAGER).await?;
        if let Some(outcome) = status::outcome(&self.before, &status) {
            context.metrics.evaluation_runs.get_or_create(&ByOutcome { outcome }).inc();
        }
        if let (Some(from), Some(to)) = (&status.started_at, &status.completed_at) {
            context.metrics.evaluation_durations.observe(to.0.duration_since(from.0).as_secs_f64());
        }
        self.controller.remember(self.key, |under_way| under_way.written = Some(status));
        Ok(Some(WAITING_INTERVAL))
    }
}

/// An interval that differs by a tenth between runs, so that they do not all ask at once.
fn spread(key: &Key, interval: Duration) -> Duration {
    let share = key.name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % 100;
    interval.mul_f64(0.95 + f64::from(share) / 1000.0)
}
