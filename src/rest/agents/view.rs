//! An agent as REST shows it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use slipway_api::agent::Storage;
use slipway_api::canary::CanaryPhase;
use slipway_api::{Agent, AgentSpec, CanaryStatus, condition, ids};
use slipway_evaluation::{Profile, threshold};
use slipway_http::Error;

use crate::fields::{self, AGENT};
use crate::list_cache::{self, ListEntry, OmittedFields};

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub(crate) struct View {
    pub id: String,
    pub name: String,
    pub slug: String,
    pub status: Status,
    /// Why the status is what it is, and what is under way while the agent serves, where there is more to say: in a word, as of
    /// the pods or the condition Ready.
    pub reason: Option<String>,
    /// The same in a sentence.
    pub message: Option<String>,
    pub replicas: i32,
    pub ready_replicas: i32,
    pub team_id: Option<String>,
    pub description: Option<String>,
    pub framework: &'static str,
    pub model_type: &'static str,
    pub model_id: String,
    pub endpoint: Option<String>,
    /// The author's label.
    pub version: Option<String>,
    /// The number of the active release.
    pub active_release: Option<i64>,
    /// The number of the release that waits for its evaluation, if one does.
    pub pending_release: Option<i64>,
    /// All that was written down about the agent. Lists leave out its prompt, and of what is longer than 16 KiB together the
    /// largest fields.
    #[schemars(schema_with = "config")]
    pub config: Value,
    pub resource_version: Option<String>,
    pub created_at: String,
    pub deployed_at: Option<String>,
}

fn config(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<fields::AgentFields>()
}

/// Where an agent is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AgentStatus")]
pub(crate) enum Status {
    Created,
    Deploying,
    Deployed,
    DeployFailed,
    // A release waits for its evaluation. What was active before serves.
    Evaluating,
    // The newest release was rejected by its evaluation. What was active before serves.
    EvalFailed,
    Stopped,
    Archived,
}

impl Status {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Deploying => "deploying",
            Self::Deployed => "deployed",
            Self::DeployFailed => "deploy_failed",
            Self::Evaluating => "evaluating",
            Self::EvalFailed => "eval_failed",
            Self::Stopped => "stopped",
            Self::Archived => "archived",
        }
    }

    pub(crate) fn of(agent: &Agent) -> Self {
        let deployed_once = agent.status.as_ref().is_some_and(|status| status.first_deployed_at.is_some());
        if agent.is_archived() {
            return Self::Archived;
        }
        if agent.stopped_by().is_some() || agent.spec.replicas == 0 {
            return if deployed_once { Self::Stopped } else { Self::Created };
        }
        let rejected = approval(agent).is_some_and(|approved| approved.status == "False");
        let stalled = current(agent, condition::STALLED).is_some_and(|condition| condition.status == "True" && !is_rejection(condition));
        if !stalled && agent.status.as_ref().is_some_and(|status| status.pending_release.is_some()) {
            return Self::Evaluating;
        }
        if !stalled && rejected {
            return Self::EvalFailed;
        }
        // An agent with a ready pod is deployed, whatever is in progress. That holds for a status of an earlier generation,
        // too.
        match (stalled, serves(agent)) {
            (true, _) => Self::DeployFailed,
            (false, true) => Self::Deployed,
            (false, false) => Self::Deploying,
        }
    }
}

/// What calls to an agent read of its list entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentState {
    /// The display name.
    pub name: Box<str>,
    pub uid: Box<str>,
    pub status: Status,
    pub message: Option<Box<str>>,
    pub replicas: i32,
    pub storage: ConversationStorage,
    /// What new pods run; none before the operator has looked at it.
    pub run_hash: Option<Box<str>>,
    /// What its canary runs; none without one.
    pub canary_run: Option<Box<CanaryRun>>,
    /// Whether its Service has a ready pod, and since when; none before the operator has looked at it.
    pub serves: Option<(bool, Timestamp)>,
    /// What its condition says of alerts, if there are some.
    pub alerting: Option<Box<Alerting>>,
    /// The pods that are ready; none before the operator has looked at it.
    pub ready_replicas: Option<i32>,
    /// The score that its risk profile asks for, 0 to 100.
    pub min_score: f64,
    /// The same of safety alone, 0 to 1.
    pub safety_floor: Option<f64>,
}

/// What is wrong with an agent, as its condition says it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alerting {
    pub is_critical: bool,
    pub message: Box<str>,
    pub since: Timestamp,
}

/// What an agent's canary runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CanaryRun {
    pub run_hash: Option<Box<str>>,
    pub version: Option<Box<str>>,
    pub stable_version: Option<Box<str>>,
    /// The percentage of conversations that go to it.
    pub share: u8,
    /// When it began, in seconds since 1970: the Services of tracks come and go with it.
    pub began: i64,
}

impl CanaryRun {
    /// None of one that was rolled back, which has no pods.
    fn of(status: &CanaryStatus) -> Option<Self> {
        let has_ended = status.phase == CanaryPhase::RolledBack;
        (!has_ended).then(|| Self {
            run_hash: status.run_hash.as_deref().map(Into::into),
            version: status.version.as_deref().map(Into::into),
            stable_version: status.stable_version.as_deref().map(Into::into),
            share: status.share(),
            began: status.started_at.as_ref().map_or(0, |started| started.0.as_second()),
        })
    }
}

impl AgentState {
    /// The percentage of conversations that its canary has, if it has some.
    pub(crate) fn canary_share(&self) -> Option<u8> {
        self.canary_run.as_ref().map(|run| run.share).filter(|share| *share > 0)
    }

    fn of(agent: &Agent, view: &View) -> Self {
        let governance = agent.spec.governance.as_ref();
        let profile = Profile::of(governance.and_then(|governance| governance.risk_profile).unwrap_or_default());
        let status = agent.status.as_ref();
        let condition = |kind: &str| status.and_then(|status| status.conditions.iter().find(|found| found.type_ == kind));
        let available = condition(condition::AVAILABLE);
        let alerting = condition(condition::ALERTING).filter(|found| found.status == "True").map(|found| Alerting {
            is_critical: found.reason == condition::CRITICAL_ALERTS,
            message: list_cache::truncate(Some(found.message.clone())).unwrap_or_default().into(),
            since: found.last_transition_time.0,
        });
        Self {
            name: view.name.as_str().into(),
            uid: agent.uid().unwrap_or_default().into(),
            status: view.status,
            message: view.message.as_deref().map(Into::into),
            replicas: view.replicas,
            storage: ConversationStorage::of(&agent.spec),
            run_hash: status.and_then(|status| status.run_hash.as_deref()).map(Into::into),
            canary_run: agent.canary_status().and_then(CanaryRun::of).map(Box::new),
            serves: available.map(|found| (found.status == "True", found.last_transition_time.0)),
            alerting: alerting.map(Box::new),
            ready_replicas: status.map(|status| status.replicas),
            min_score: threshold(&profile, governance.and_then(|governance| governance.min_quality_score), None),
            safety_floor: profile.safety_floor,
        }
    }
}

/// Where an agent stores its conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConversationStorage {
    /// In the platform's database.
    Platform,
    /// In the memory of its pods.
    Memory,
    /// In a database of its own.
    OwnDatabase,
}

impl ConversationStorage {
    pub(crate) fn of(spec: &AgentSpec) -> Self {
        match (spec.storage, &spec.database_url) {
            (Some(Storage::Memory), _) => Self::Memory,
            (_, Some(_)) => Self::OwnDatabase,
            (_, None) => Self::Platform,
        }
    }
}

/// Whether the agent's Service has a ready pod, as of the last status.
fn serves(agent: &Agent) -> bool {
    let conditions = agent.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == condition::AVAILABLE && condition.status == "True")
}

/// What is said of a change that an evaluation gate holds.
fn approval(agent: &Agent) -> Option<&Condition> {
    agent.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == condition::APPROVED)
}

fn is_rejection(condition: &Condition) -> bool {
    condition.reason == condition::RELEASE_REJECTED
}

/// The condition of that type, if it is about the current generation and the last restart.
fn current<'a>(agent: &'a Agent, kind: &str) -> Option<&'a Condition> {
    let status = agent.status.as_ref()?;
    let current = status.observed_generation == agent.metadata.generation && status.restarted_at.as_deref() == agent.restarted_at();
    status.conditions.iter().find(|condition| condition.type_ == kind).filter(|_| current)
}

impl View {
    pub(crate) fn of(agent: &Agent) -> Result<Self, Error> {
        let (namespace, slug) = (agent.namespace().unwrap_or_default(), agent.name_any());
        let status = agent.status.clone().unwrap_or_default();
        let standing = Status::of(agent);
        let moves = current(agent, condition::RECONCILING).is_some_and(|condition| condition.status == "True");
        let trouble = current(agent, condition::READY)
            .filter(|ready| ready.status != "True" || moves)
            .filter(|_| matches!(standing, Status::Deploying | Status::Deployed | Status::DeployFailed));
        let held = approval(agent).filter(|_| matches!(standing, Status::Evaluating | Status::EvalFailed));
        let trouble = held.or(trouble);
        let spec = serde_json::to_value(&agent.spec).map_err(Error::internal)?;
        Ok(Self {
            id: ids::agent(&namespace, &slug),
            name: agent.spec.name.clone(),
            description: agent.spec.description.clone(),
            framework: agent.spec.framework.as_str(),
            model_type: agent.spec.model_type.as_str(),
            model_id: agent.spec.model_id.clone(),
            status: standing,
            reason: trouble.map(|trouble| trouble.reason.clone()),
            message: trouble.map(|trouble| respelled(&trouble.message)).filter(|message| !message.is_empty()),
            team_id: namespace.strip_prefix("team-").map(ids::team),
            replicas: agent.spec.replicas,
            ready_replicas: status.replicas,
            endpoint: status.endpoint,
            version: agent.spec.version.clone(),
            active_release: status.active_release,
            pending_release: status.pending_release,
            config: fields::to_callers(&AGENT, spec)?,
            resource_version: agent.resource_version(),
            created_at: time(agent.creation_timestamp().map(|time| time.0)),
            deployed_at: status.first_deployed_at.map(|time| time.0.to_string()),
            slug,
        })
    }
}

/// A message about a field of the spec, in REST's spelling. Messages of pods stay as they are.
pub(super) fn respelled(message: &str) -> String {
    if message.starts_with("spec.") { fields::spelled(message) } else { message.to_owned() }
}

pub(crate) fn time(time: Option<jiff::Timestamp>) -> String {
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// The list entry of an agent: without its prompt and other large fields, which are kept apart if they are not too large.
/// None for an agent that is being deleted.
pub(crate) fn item(agent: &Agent) -> Option<ListEntry<AgentState>> {
    if agent.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut view = View::of(agent).ok()?;
    let fields = view.config.as_object_mut().map(|config| list_cache::omit_large(config, &["system_prompt"], &[]))?;
    let message = list_cache::truncate(view.message.clone());
    let is_message_whole = message == view.message;
    view.message = message;
    let json = serde_json::to_string(&view).ok()?;
    Some(ListEntry {
        omitted: OmittedFields::of(&json, "config", &fields).filter(|_| is_message_whole),
        created: agent.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {}", view.name, view.slug, view.description.as_deref().unwrap_or_default()).to_lowercase().into(),
        json: json.into(),
        data: AgentState::of(agent, &view),
        id: view.id,
        version: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(spec: &str, annotations: &str, status: &str) -> Agent {
        let metadata = format!("name: helper, namespace: team-a, generation: 4, annotations: {{{annotations}}}");
        serde_json::from_value(
            serde_yaml::from_str(&format!(
                "{{metadata: {{{metadata}}}, spec: {{name: H, framework: custom, {spec}}}, status: {{{status}}}}}"
            ))
            .unwrap(),
        )
        .unwrap()
    }

    /// A status with these conditions, for this reason.
    fn status(generation: u32, reason: &str, holding: &[&str]) -> String {
        let condition = |kind: &&str| {
            let holds = if holding.contains(kind) { "True" } else { "False" };
            format!(
                "{{type: {kind}, status: '{holds}', reason: {reason}, message: 'spec.envSecrets: why', lastTransitionTime: '2026-01-01T00:00:00Z'}}"
            )
        };
        let conditions: Vec<_> = ["Ready", "Reconciling", "Stalled", "Available"].iter().map(condition).collect();
        format!("observedGeneration: {generation}, conditions: [{}]", conditions.join(", "))
    }

    fn ready(generation: u32) -> String {
        status(generation, "DeploymentReady", &["Ready", "Available"])
    }

    /// A status with the condition that the newest release was rejected besides.
    fn rejected(status: &str) -> String {
        let approved = "type: Approved, status: 'False', reason: ReleaseRejected, message: low, lastTransitionTime: '2026-01-01T00:00:00Z'";
        status.replace("conditions: [", &format!("conditions: [{{{approved}}}, "))
    }

    #[test]
    fn where_an_agent_is_in_its_life() {
        let once = "firstDeployedAt: '2026-01-01T00:00:00Z'";
        let suspended = status(4, "Suspended", &["Ready"]);
        let restarted = "agents.slipway.dev/restarted-at: noon";
        for (spec, annotations, status, expected) in [
            ("suspend: true", "", String::new(), Status::Created),
            ("suspend: true", "", suspended.clone(), Status::Created),
            ("suspend: true", "", format!("{suspended}, {once}"), Status::Stopped),
            ("suspend: false", "agents.slipway.dev/suspend: 'true'", format!("{}, {once}", ready(4)), Status::Stopped),
            ("suspend: true", "agents.slipway.dev/suspend: 'false'", format!("{suspended}, {once}"), Status::Deploying),
            ("suspend: true", "agents.slipway.dev/suspend: 'false'", ready(4), Status::Deployed),
            ("replicas: 0", "", format!("{suspended}, {once}"), Status::Stopped),
            ("replicas: 1", "", String::new(), Status::Deploying),
            // A new generation that was not observed yet takes no pod away.
            ("replicas: 1", "", ready(3), Status::Deployed),
            ("replicas: 1", "", status(3, "ImagePullBackOff", &["Stalled"]), Status::Deploying),
            ("replicas: 1", "", status(3, "ImagePullBackOff", &["Stalled", "Available"]), Status::Deployed),
            ("replicas: 1", "", status(4, "Progressing", &["Reconciling"]), Status::Deploying),
            ("replicas: 1", "", status(4, "Progressing", &["Ready", "Reconciling", "Available"]), Status::Deployed),
            ("replicas: 1", "", ready(4), Status::Deployed),
            ("replicas: 1", restarted, ready(4), Status::Deployed),
            ("replicas: 1", restarted, format!("{}, restartedAt: noon", ready(4)), Status::Deployed),
            ("replicas: 1", "", status(4, "ImagePullBackOff", &["Stalled"]), Status::DeployFailed),
            ("replicas: 1", "", status(4, "ImagePullBackOff", &["Stalled", "Available"]), Status::DeployFailed),
            ("replicas: 1", "", format!("{}, pendingRelease: 2", ready(4)), Status::Evaluating),
            ("replicas: 1", "", rejected(&ready(4)), Status::EvalFailed),
            ("replicas: 1", "agents.slipway.dev/archived: 'true'", ready(4), Status::Archived),
            ("suspend: true", "agents.slipway.dev/archived: 'false'", String::new(), Status::Created),
        ] {
            assert_eq!(Status::of(&agent(spec, annotations, &status)), expected, "{spec} {annotations} {status}");
        }
    }

    #[test]
    fn a_list_has_no_prompts_and_little_of_what_is_large() {
        let agent =
            agent(&format!("systemPrompt: {}, suggestions: {}, suggestionsProvider: static", "p".repeat(5000), "s".repeat(17_000)), "", "");
        let listed: Value = serde_json::from_str(&item(&agent).unwrap().json).unwrap();
        let config = listed["config"].as_object().unwrap();
        assert!(!config.contains_key("system_prompt") && !config.contains_key("suggestions"), "{config:?}");
        assert_eq!(config["suggestions_provider"], "static");
        let single = View::of(&agent).unwrap();
        assert_eq!(
            (single.config["system_prompt"].as_str().map(str::len), single.config["suggestions"].as_str().map(str::len)),
            (Some(5000), Some(17_000))
        );
    }

    #[test]
    fn an_agent_by_itself_is_shown_whole_or_not_kept() {
        let spec = |prompt: usize| format!("systemPrompt: {}, description: '\"config\":{{', suggestions: s", "p".repeat(prompt));
        let (small, large) = (agent(&spec(5000), "", ""), agent(&spec(17_000), "", ""));
        let whole: Value = serde_json::from_str(&item(&small).unwrap().whole().unwrap()).unwrap();
        assert_eq!(whole, serde_json::to_value(View::of(&small).unwrap()).unwrap());
        assert_eq!(whole["config"]["system_prompt"].as_str().map(str::len), Some(5000));
        assert_eq!(item(&large).unwrap().whole(), None);
        let failed = |message: &str| status(4, "SecretMissing", &["Stalled"]).replace("spec.envSecrets: why", message);
        assert!(item(&agent("replicas: 1", "", &failed("why"))).unwrap().whole().is_some());
        assert_eq!(item(&agent("replicas: 1", "", &failed(&"why ".repeat(500)))).unwrap().whole(), None, "its message is cut");
    }

    #[test]
    fn a_canary_counts_while_it_has_a_share() {
        for (canary, share) in [
            ("", None),
            ("canary: {phase: Progressing, weight: 10}", None),
            ("canary: {phase: Serving, weight: 0}", None),
            ("canary: {phase: Serving, weight: 10}", Some(10)),
            ("canary: {phase: Promoting, weight: 100}", Some(100)),
            ("canary: {phase: Draining, weight: 10}", None),
        ] {
            assert_eq!(item(&agent("replicas: 1", "", canary)).unwrap().data.canary_share(), share, "{canary}");
        }
    }

    #[test]
    fn trouble_is_told_where_there_is_some() {
        let view = |spec: &str, status: &str| View::of(&agent(spec, "", status)).unwrap();
        let failed = view("replicas: 1", &status(4, "SecretMissing", &["Stalled"]));
        assert_eq!((failed.reason.as_deref(), failed.message.as_deref()), (Some("SecretMissing"), Some("env_secrets: why")));
        let rolls = view("replicas: 1", &status(4, "Progressing", &["Ready", "Reconciling", "Available"]));
        assert_eq!((rolls.status, rolls.reason.as_deref()), (Status::Deployed, Some("Progressing")), "who waits for the end can see it");
        for (spec, status) in [
            ("replicas: 1", ready(4)),
            ("replicas: 1", status(3, "SecretMissing", &["Stalled"])),
            ("suspend: true", status(4, "SecretMissing", &["Stalled"])),
        ] {
            assert_eq!(view(spec, &status).message, None, "{spec} {status}");
        }
    }
}
