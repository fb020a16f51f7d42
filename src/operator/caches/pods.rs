//! An agent's pods: what keeps each from being ready, in the messages of kubelet and scheduler; and the addresses of those that
//! are ready.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use slipway_api::{Track, labels};
use slipway_cluster::Key;

/// Why a pod is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub reason: String,
    pub message: String,
    /// Whether waiting alone will not help.
    pub fatal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodState {
    pub created: i64,
    pub problem: Option<Problem>,
    pub ready: Option<Ready>,
    /// The uid of a pod that a node has taken and that has no sandbox yet.
    pub starts: Option<String>,
    /// Whether it is of Flagger's copy of the agent's Deployment.
    pub is_primary: bool,
}

/// A pod that a node has taken and that has not come as far as a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Starting {
    pub name: String,
    pub uid: String,
    pub created: i64,
}

/// A pod that takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    pub address: IpAddr,
    /// Of its configuration; see [`config`].
    pub config: u64,
    /// The same of all that it runs.
    pub run: u64,
}

/// Pods by the workload that they belong to: [`Track::workload`], in the agent's namespace.
#[derive(Default)]
pub(crate) struct Pods {
    by_workload: RwLock<HashMap<Key, BTreeMap<String, PodState>>>,
}

impl Pods {
    /// Notes a pod; says which agent it belongs to, if that changes anything for the agent.
    pub(crate) fn seen(&self, pod: &Pod) -> Option<Key> {
        let workload = workload_of(pod)?;
        let stays = pod.metadata.deletion_timestamp.is_none();
        let state = PodState {
            created: pod.creation_timestamp().map_or(0, |time| time.0.as_second()),
            problem: if stays { problem(pod) } else { None },
            ready: if stays { ready(pod) } else { None },
            starts: if stays { starts(pod) } else { None },
            is_primary: is_primary(pod),
        };
        let mut pods = self.by_workload.write().unwrap_or_else(PoisonError::into_inner);
        let before = pods.entry(workload.clone()).or_default().insert(pod.name_any(), state.clone());
        // That it is ready, an agent hears from its Deployment, where that is its own.
        let told =
            |state: &PodState| (state.created, state.problem.clone(), state.starts.clone(), state.is_primary && state.ready.is_some());
        (before.as_ref().map(told) != Some(told(&state))).then(|| agent_of(&workload))
    }

    /// Forgets a pod; says which agent it belonged to.
    pub(crate) fn gone(&self, pod: &Pod) -> Option<Key> {
        let workload = workload_of(pod)?;
        let mut by_workload = self.by_workload.write().unwrap_or_else(PoisonError::into_inner);
        let pods = by_workload.get_mut(&workload)?;
        pods.remove(&pod.name_any());
        if pods.is_empty() {
            by_workload.remove(&workload);
        }
        Some(agent_of(&workload))
    }

    /// Forgets what a new list of `scope` did not hold; says which agents have lost pods.
    pub(crate) fn retain(&self, scope: Option<&str>, listed: &HashSet<Key>) -> BTreeSet<Key> {
        let mut pods = self.by_workload.write().unwrap_or_else(PoisonError::into_inner);
        let mut touched = BTreeSet::new();
        for (workload, pods) in pods.iter_mut().filter(|(workload, _)| scope.is_none_or(|namespace| workload.namespace == namespace)) {
            let before = pods.len();
            pods.retain(|name, _| listed.contains(&Key::new(&workload.namespace, name)));
            if pods.len() != before {
                touched.insert(agent_of(workload));
            }
        }
        pods.retain(|_, pods| !pods.is_empty());
        touched
    }

    /// The agents of a namespace that have pods on any track, whatever has become of the Agents themselves.
    pub(crate) fn agents_in(&self, namespace: &str) -> BTreeSet<Key> {
        let pods = self.by_workload.read().unwrap_or_else(PoisonError::into_inner);
        pods.keys().filter(|workload| workload.namespace == namespace).map(agent_of).collect()
    }

    /// Whether an agent has pods on any track.
    pub(crate) fn has(&self, agent: &Key) -> bool {
        let pods = self.by_workload.read().unwrap_or_else(PoisonError::into_inner);
        workloads_of(agent).any(|workload| pods.contains_key(&workload))
    }

    /// When the oldest pod of an agent was created, in seconds.
    pub(crate) fn oldest(&self, agent: &Key) -> Option<i64> {
        let pods = self.by_workload.read().unwrap_or_else(PoisonError::into_inner);
        workloads_of(agent).filter_map(|workload| pods.get(&workload)).flat_map(BTreeMap::values).map(|pod| pod.created).min()
    }

    /// The pods of a workload that take requests, by name.
    pub(crate) fn ready(&self, workload: &Key) -> Vec<(String, Ready)> {
        let pods = self.by_workload.read().unwrap_or_else(PoisonError::into_inner);
        pods.get(workload).into_iter().flatten().filter_map(|(name, pod)| Some((name.clone(), pod.ready?))).collect()
    }

    /// Whether a pod of Flagger's copy of an agent's Deployment takes requests.
    pub(crate) fn has_ready_primary(&self, agent: &Key) -> bool {
        let pods = self.by_workload.read().unwrap_or_else(PoisonError::into_inner);
        pods.get(agent).is_some_and(|pods| pods.values().any(|pod| pod.is_primary && pod.ready.is_some()))
    }

    /// The problem of the newest pod of a workload that has one.
    pub(crate) fn problem(&self, workload: &Key) -> Option<Problem> {
        let pods = self.by_workload.read().unwrap_or_else(PoisonError::into_inner);
        let troubled = pods.get(workload)?.values().filter(|pod| pod.problem.is_some());
        troubled.max_by_key(|pod| pod.created).and_then(|pod| pod.problem.clone())
    }

    /// The newest pod of a workload that is about to start.
    pub(crate) fn starting(&self, workload: &Key) -> Option<Starting> {
        let pods = self.by_workload.read().unwrap_or_else(PoisonError::into_inner);
        let starting = pods.get(workload)?.iter().filter_map(|(name, pod)| Some((name, pod.created, pod.starts.as_ref()?)));
        let (name, created, uid) = starting.max_by_key(|(_, created, _)| *created)?;
        Some(Starting { name: name.clone(), uid: uid.clone(), created })
    }
}

/// Whether kubelet has the pod and says that it has no sandbox.
fn starts(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let waits = |condition: &k8s_openapi::api::core::v1::PodCondition| {
        condition.type_ == "PodReadyToStartContainers" && condition.status == "False"
    };
    let pending = status.phase.as_deref() == Some("Pending");
    (pending && status.conditions.iter().flatten().any(waits)).then(|| pod.uid()).flatten()
}

/// A pod without a track that we know belongs to the stable one.
fn workload_of(pod: &Pod) -> Option<Key> {
    let agent = pod.labels().get(labels::AGENT)?;
    let track = pod.labels().get(labels::TRACK).and_then(|track| Track::named(track)).unwrap_or(Track::Stable);
    Some(Key::new(pod.namespace().unwrap_or_default(), track.workload(agent)))
}

/// Flagger copies the labels of pods, and gives them another name.
fn is_primary(pod: &Pod) -> bool {
    let agent = pod.labels().get(labels::AGENT);
    agent.is_some_and(|agent| pod.labels().get(labels::NAME).is_some_and(|name| *name == Track::primary(agent)))
}

fn agent_of(workload: &Key) -> Key {
    Key::new(&workload.namespace, Track::of_workload(&workload.name).0)
}

fn workloads_of(agent: &Key) -> impl Iterator<Item = Key> {
    Track::ALL.into_iter().map(move |track| Key::new(&agent.namespace, track.workload(&agent.name)))
}

/// Where a pod that takes requests is.
pub(crate) fn ready(pod: &Pod) -> Option<Ready> {
    let status = pod.status.as_ref()?;
    let is_ready = status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let address = status.pod_ip.as_ref()?.parse().ok()?;
    let annotations = pod.annotations();
    is_ready.then(|| Ready {
        address,
        config: config(annotations.get(labels::CONFIG_HASH)),
        run: config(annotations.get(labels::RUN_HASH)),
    })
}

/// A config-hash, or a run-hash, in the little room that there is for it beside each pod.
pub(crate) fn config(hash: Option<&String>) -> u64 {
    hash.and_then(|hash| u64::from_str_radix(hash.get(..16)?, 16).ok()).unwrap_or_default()
}

/// What keeps a pod from running, if something does.
pub(crate) fn problem(pod: &Pod) -> Option<Problem> {
    let status = pod.status.as_ref()?;
    let unschedulable = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False").map(|c| Problem {
        reason: c.reason.clone().unwrap_or_else(|| "Unschedulable".to_owned()),
        message: c.message.clone().unwrap_or_default(),
        fatal: false,
    });
    let failed = |reason: &str| {
        (status.phase.as_deref() == Some("Failed")).then(|| Problem {
            reason: reason.to_owned(),
            message: status.message.clone().unwrap_or_default(),
            fatal: false,
        })
    };
    let evicted = status.reason.as_deref().and_then(failed);
    let mut containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    unschedulable.or(evicted).or_else(|| containers.find_map(container_problem)).or_else(|| failed("PodFailed"))
}

fn container_problem(status: &ContainerStatus) -> Option<Problem> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.clone().unwrap_or_default();
        if matches!(reason.as_str(), "" | "ContainerCreating" | "PodInitializing") {
            return None;
        }
        let fatal = matches!(
            reason.as_str(),
            "ImagePullBackOff"
                | "ErrImageNeverPull"
                | "InvalidImageName"
                | "CrashLoopBackOff"
                | "CreateContainerConfigError"
                | "CreateContainerError"
                | "RunContainerError"
        );
        let message = match last_exit(status) {
            Some(exit) if reason == "CrashLoopBackOff" => exit,
            _ => waiting.message.clone().unwrap_or_default(),
        };
        return Some(Problem { reason, message, fatal });
    }
    let stopped = state.terminated.as_ref()?;
    let reason = stopped.reason.clone().unwrap_or_else(|| "Error".to_owned());
    Some(Problem { reason, message: exit_message(stopped.exit_code, stopped.message.as_deref()), fatal: false })
}

fn last_exit(status: &ContainerStatus) -> Option<String> {
    let last = status.last_state.as_ref()?.terminated.as_ref()?;
    let reason = last.reason.as_deref().filter(|reason| *reason == "OOMKilled").map(|_| " (out of memory)").unwrap_or_default();
    Some(format!(
        "restarted {} times; the last time it {}{reason}",
        status.restart_count,
        exit_message(last.exit_code, last.message.as_deref())
    ))
}

fn exit_message(code: i32, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("exited with code {code}: {message}"),
        None => format!("exited with code {code}; see the pod's log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &str) -> Pod {
        let yaml = format!("metadata: {{name: p, namespace: team-a, labels: {{agents.slipway.dev/agent: helper}}}}\nstatus:\n{status}");
        serde_yaml::from_str(&yaml).unwrap()
    }

    #[test]
    fn problems_in_the_words_of_kubelet_and_scheduler() {
        let cases = [
            (
                "  containerStatuses: [{name: agent, image: x, imageID: '', ready: false, restartCount: 0, state: {waiting: {reason: ImagePullBackOff, message: not found}}}]",
                Some(("ImagePullBackOff", "not found", true)),
            ),
            (
                "  containerStatuses: [{name: agent, image: x, imageID: '', ready: false, restartCount: 0, state: {waiting: {reason: ContainerCreating}}}]",
                None,
            ),
            (
                "  containerStatuses: [{name: agent, image: x, imageID: '', ready: false, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}, lastState: {terminated: {exitCode: 2, message: 'RUNTIME_STRATEGY: no'}}}]",
                Some(("CrashLoopBackOff", "restarted 3 times; the last time it exited with code 2: RUNTIME_STRATEGY: no", true)),
            ),
            (
                "  conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: 0/1 nodes}]",
                Some(("Unschedulable", "0/1 nodes", false)),
            ),
            ("  phase: Running", None),
            ("  phase: Failed\n  reason: Evicted\n  message: low on memory", Some(("Evicted", "low on memory", false))),
            (
                "  phase: Failed\n  containerStatuses: [{name: ingestion, image: x, imageID: '', ready: false, restartCount: 0, state: {terminated: {exitCode: 1, message: no bucket}}}]",
                Some(("Error", "exited with code 1: no bucket", false)),
            ),
            ("  phase: Failed", Some(("PodFailed", "", false))),
        ];
        for (status, expected) in cases {
            let found = problem(&pod(status)).map(|p| (p.reason, p.message, p.fatal));
            assert_eq!(found, expected.map(|(r, m, f)| (r.to_owned(), m.to_owned(), f)), "{status}");
        }
    }

    #[test]
    fn a_pod_without_a_sandbox_is_about_to_start() {
        let pods = Pods::default();
        let agent = Key::new("team-a", "helper");
        let mut young = pod(
            "  phase: Pending\n  conditions: [{type: PodReadyToStartContainers, status: 'False'}, {type: PodScheduled, status: 'True'}]\n  containerStatuses: [{name: agent, image: x, imageID: '', ready: false, restartCount: 0, state: {waiting: {reason: ContainerCreating}}}]",
        );
        young.metadata.uid = Some("u".to_owned());
        assert_eq!(pods.seen(&young), Some(agent.clone()));
        assert_eq!(
            (pods.problem(&agent), pods.starting(&agent).map(|pod| (pod.name, pod.uid))),
            (None, Some(("p".to_owned(), "u".to_owned())))
        );
        young.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "True".to_owned();
        assert_eq!(pods.seen(&young), Some(agent.clone()), "what was said of its start is said no more");
        assert_eq!(pods.starting(&agent), None);
    }

    #[test]
    fn an_agent_hears_of_its_pods_only_when_something_changed() {
        let pods = Pods::default();
        let agent = Key::new("team-a", "helper");
        let sick = pod(
            "  containerStatuses: [{name: agent, image: x, imageID: '', ready: false, restartCount: 0, state: {waiting: {reason: ErrImagePull}}}]",
        );
        assert_eq!(pods.seen(&sick), Some(agent.clone()));
        assert_eq!(pods.seen(&sick), None);
        assert_eq!(pods.problem(&agent).unwrap().reason, "ErrImagePull");
        assert!(pods.has(&agent) && pods.agents_in("team-a") == [agent.clone()].into() && pods.agents_in("team-b").is_empty());
        assert_eq!(pods.gone(&sick), Some(agent.clone()));
        assert!(!pods.has(&agent));
        assert_eq!(pods.problem(&agent), None);
    }

    #[test]
    fn pods_of_two_tracks_belong_to_one_agent_and_to_two_workloads() {
        let (pods, agent) = (Pods::default(), Key::new("team-a", "helper"));
        let on = |track: &str, name: &str, created: &str| {
            let mut pod = pod("  conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]");
            pod.labels_mut().insert(labels::TRACK.to_owned(), track.to_owned());
            pod.metadata.name = Some(name.to_owned());
            pod.metadata.creation_timestamp = Some(serde_json::from_value(created.into()).unwrap());
            pod
        };
        let (stable, candidate) = (on("stable", "s", "1970-01-01T00:00:09Z"), on("candidate", "c", "1970-01-01T00:00:05Z"));
        assert_eq!(pods.seen(&candidate), Some(agent.clone()));
        assert!(pods.has(&agent) && pods.problem(&agent).is_none(), "the stable track has no pod, and no problem");
        assert!(pods.problem(&Key::new("team-a", "helper-candidate")).is_some());
        assert_eq!(pods.seen(&stable), Some(agent.clone()));
        assert_eq!((pods.oldest(&agent), pods.agents_in("team-a")), (Some(5), [agent.clone()].into()));
        assert_eq!(pods.retain(None, &[Key::new("team-a", "s")].into()), [agent.clone()].into());
        assert_eq!((pods.oldest(&agent), pods.has(&agent)), (Some(9), true));
        pods.gone(&stable);
        assert!(!pods.has(&agent));
    }

    #[test]
    fn an_agent_hears_that_a_pod_of_flaggers_is_ready_or_no_longer() {
        let (pods, agent) = (Pods::default(), Key::new("team-a", "helper"));
        let mut primary = pod("  podIP: 10.0.0.8\n  conditions: [{type: Ready, status: 'False'}]");
        primary.labels_mut().insert(labels::NAME.to_owned(), "helper-primary".to_owned());
        let turn = |pod: &mut Pod, word: &str| {
            pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = word.to_owned();
            (pods.seen(pod).is_some(), pods.has_ready_primary(&agent))
        };
        assert_eq!(turn(&mut primary, "False"), (true, false), "it is new");
        assert_eq!(turn(&mut primary, "True"), (true, true));
        assert_eq!(turn(&mut primary, "True"), (false, true), "nothing has changed");
        assert_eq!(turn(&mut primary, "False"), (true, false));
        assert_eq!(turn(&mut primary, "True"), (true, true));
        pods.gone(&primary);
        assert!(!pods.has_ready_primary(&agent));
        let mut own = primary.clone();
        own.labels_mut().insert(labels::NAME.to_owned(), "helper".to_owned());
        assert_eq!(turn(&mut own, "True"), (true, false), "the agent's own pod is new, and none of Flagger's");
    }

    #[test]
    fn a_pod_is_asked_where_it_is_ready_and_as_what() {
        let pods = Pods::default();
        let agent = Key::new("team-a", "helper");
        let mut running = pod("  podIP: 10.0.0.7\n  conditions: [{type: Ready, status: 'False'}]");
        running.annotations_mut().insert(labels::CONFIG_HASH.to_owned(), format!("00000000000000ff{}", "7".repeat(48)));
        running.annotations_mut().insert(labels::RUN_HASH.to_owned(), format!("0000000000000010{}", "7".repeat(48)));
        pods.seen(&running);
        assert_eq!(pods.ready(&agent), []);
        running.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "True".to_owned();
        assert_eq!(pods.seen(&running), None, "no news for the agent");
        assert_eq!(pods.ready(&agent), [("p".to_owned(), Ready { address: [10, 0, 0, 7].into(), config: 255, run: 16 })]);
        running.metadata.deletion_timestamp =
            running.metadata.creation_timestamp.clone().or(Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap()));
        pods.seen(&running);
        assert_eq!(pods.ready(&agent), []);
    }
}
