//! The tool controller: says of each Tool whether it can be used.
//!
//! `crate::tool_rules` judges the spec alone, `references` what it names and the platform has or allows. `poll` learns from
//! agents' pods what servers offer, and `approval` judges whether that is what was approved.

mod approval;
pub mod poll;
mod references;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use slipway_api::condition::{self, Finding, READY};
use slipway_api::tool::{ToolPhase, ToolSpec};
use slipway_api::{Integration, Tool, ToolStatus};
use slipway_cluster::controller::{self, Next, Phase, RESYNC, Requests};
use slipway_cluster::event::EventSpec;
use slipway_cluster::{Guarded, Key, write};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::context::Context;
use crate::control_port::Sign;
use crate::integrations;
use crate::registry::{Change, Registered};
use crate::tool_rules::fault;
use approval::{Judgement, Reports};
use references::References;

const MANAGER: &str = "slipway/tool";
/// How many Tools are reconciled at once.
const CONCURRENCY: usize = 2;

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    /// How agents are asked something; nobody is, without it.
    sign: Option<Arc<Sign>>,
    reports: Reports,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>, sign: Option<Arc<Sign>>) -> Self {
        Self { context, requests: Requests::default(), sign, reports: Reports::default() }
    }

    /// Requests the Tools that name an integration.
    fn request_integrated(&self, integration: &Key) {
        let is_it = |reference: &String| integrations::key(&integration.namespace, reference) == *integration;
        let names_it = |tool: &Guarded<Tool>| tool.0.as_ref().is_ok_and(|tool| tool.spec.integration.as_ref().is_some_and(is_it));
        let tools = self.context.caches.tools.in_namespace(&integration.namespace).into_iter();
        self.requests.add_all(tools.filter(|(_, tool)| names_it(tool)).map(|(key, _)| key));
    }

    /// Requests the Tools of a namespace with a header from a Secret of such a name. Of those whose login is an integration's, the
    /// Integration tells.
    fn request_users(&self, namespace: &str, is_meant: impl Fn(&str) -> bool) {
        let names_one =
            |tool: &Guarded<Tool>| tool.0.as_ref().is_ok_and(|tool| tool.spec.headers_from.iter().any(|header| is_meant(&header.secret)));
        let tools = self.context.caches.tools.in_namespace(namespace).into_iter();
        self.requests.add_all(tools.filter(|(_, tool)| names_one(tool)).map(|(key, _)| key));
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<Tool>() {
            self.requests.add(key.clone());
        } else if let Some(secret) = change.of::<Secret>() {
            self.request_users(&secret.namespace, |name| name == secret.name);
        } else if let Some(integration) = change.of::<Integration>() {
            self.request_integrated(integration);
        } else if let Change::SecretsRead(namespace) = change {
            self.request_users(namespace, |_| true);
        }
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let (context, requests, polling) = (self.context.clone(), self.requests.clone(), self.clone());
        let mut tasks = vec![context.start::<Tool, _>(phase, ("tool", CONCURRENCY, &requests), {
            move |key| {
                let controller = self.clone();
                async move { reconcile(&controller, &key).await }
            }
        })];
        if polling.sign.is_some() {
            let poll = async move { poll::run(&polling).await };
            tasks.push(controller::start_beside(&context.tasks, "poll of agents' tools", phase.subscribe(), poll));
        }
        tasks
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.tools.keys());
    }
}

async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(object) = context.caches.tools.get(key) else {
        context.untroubled("Tool", key);
        return Ok(None);
    };
    let tool = match &object.0 {
        Ok(tool) => tool,
        Err(invalid) => {
            context.malformed::<Tool>(key, invalid, ToolPhase::Error, &[(READY, false)]).await?;
            return Ok(Some(RESYNC));
        }
    };
    let mut before = tool.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    let merged = integrations::tool(&context.caches, &key.namespace, &tool.spec);
    let spec = merged.as_ref().unwrap_or(&tool.spec);
    let judgement = approval::judge(key, spec, &before, &controller.reports.of(key));
    let standing = match &merged {
        Ok(spec) => standing(spec, &judgement, &References::of(context, key, spec)),
        Err(fault) => (ToolPhase::Error, Finding::new(READY, false, fault.reason, format!("spec.{}", fault.message))),
    };
    let status = status(standing, &judgement, &before, tool.meta().generation, Timestamp::now());
    let about = tool.object_ref(&());
    if status != before {
        context.write_status(tool, &status, MANAGER).await?;
        for event in events(&before, &status) {
            context.events.publish(&about, event).await;
        }
    }
    let (trouble, is_news) = trouble(&before, &status);
    let due = context.warn("Tool", key, &about, trouble, is_news).await;
    Ok(Some(due.map_or(RESYNC, |due| due.min(RESYNC))))
}

/// Whether agents can use a Tool now, and why not.
fn standing(spec: &ToolSpec, judgement: &Judgement, references: &References) -> (ToolPhase, Finding) {
    let error = |reason: &str, message: &str| (ToolPhase::Error, Finding::new(READY, false, reason, message));
    let unknown = |reason: &str, message: &str| (ToolPhase::Unknown, Finding::unknown(READY, reason, message));
    if let Some(fault) = fault(spec) {
        return error(fault.reason, &fault.message);
    }
    if !spec.enabled {
        return (ToolPhase::Disabled, Finding::new(READY, false, "Disabled", "spec.enabled is false; no agent has this tool"));
    }
    if let Some(fault) = references.fault(spec) {
        return error(fault.reason, &fault.message);
    }
    if judgement.observed.is_some() {
        return error(approval::CHANGED, &judgement.message);
    }
    if !references.secrets_known && !spec.headers_from.is_empty() {
        return unknown("SecretsUnread", "the Secrets of the namespace have not been read yet");
    }
    if spec.server().is_some() {
        return if judgement.answered {
            (ToolPhase::Available, Finding::new(READY, true, approval::ANSWERED, "the server has answered; agents can use this tool"))
        } else {
            let message = "no pod of an agent that names this tool has had an answer from the server yet";
            unknown(approval::NOT_ANSWERED, message)
        };
    }
    (ToolPhase::Available, Finding::new(READY, true, "Valid", "agents can use this tool"))
}

fn status(
    (phase, finding): (ToolPhase, Finding),
    judgement: &Judgement,
    before: &ToolStatus,
    generation: Option<i64>,
    now: Timestamp,
) -> ToolStatus {
    let Judgement { server, approved, observed, .. } = judgement.clone();
    ToolStatus {
        phase: Some(phase),
        tools_digest: approved,
        tools_server: server,
        observed_digest: observed,
        observed_generation: generation,
        conditions: condition::conditions(vec![finding], &before.conditions, generation, now),
    }
}

/// What is wrong with the Tool, as a Warning, and whether it is something else than before. A changed list is told apart.
fn trouble(before: &ToolStatus, now: &ToolStatus) -> (Option<EventSpec>, bool) {
    let of = |status: &ToolStatus| status.conditions.iter().find(|condition| condition.type_ == READY).cloned();
    let Some(ready) = of(now).filter(|ready| now.phase == Some(ToolPhase::Error) && ready.reason != approval::CHANGED) else {
        return (None, false);
    };
    let is_news = of(before).is_none_or(|old| (old.reason, old.message) != (ready.reason.clone(), ready.message.clone()));
    (Some(EventSpec { warning: true, reason: ready.reason, action: "Validate", note: ready.message }), is_news)
}

/// What is worth an Event at once in the step from one status to the next.
fn events(before: &ToolStatus, now: &ToolStatus) -> Vec<EventSpec> {
    let event = |warning, reason: &str, action, note| EventSpec { warning, reason: reason.to_owned(), action, note };
    let mut all = Vec::new();
    if let Some(digest) = now.tools_digest.as_ref().filter(|_| now.tools_digest != before.tools_digest) {
        all.push(event(false, "ToolsApproved", "Approve", format!("the list of tools with digest {digest} is the approved one")));
    } else if before.observed_digest.is_some() && now.observed_digest.is_none() && now.tools_digest.is_some() {
        all.push(event(false, "ToolsRestored", "Compare", "the server offers the approved list of tools again".to_owned()));
    }
    if now.observed_digest.is_some() && now.observed_digest != before.observed_digest {
        let condition = now.conditions.iter().find(|condition| condition.reason == approval::CHANGED);
        all.extend(condition.map(|condition| event(true, approval::CHANGED, "Compare", condition.message.clone())));
    }
    all
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use slipway_cluster::references::Kind;

    use super::*;
    use crate::testing::context;

    #[tokio::test]
    async fn a_changed_integration_reaches_the_tools_that_name_it() {
        let controller = Controller::new(context(), None);
        for (namespace, name, integration) in [
            ("team-a", "by-name", "metrics"),
            ("team-a", "by-id", "in_metrics"),
            ("team-a", "of-other", "other"),
            ("team-b", "there", "metrics"),
        ] {
            let yaml = format!("{{metadata: {{name: {name}}}, spec: {{name: t, type: http, endpoint: /x, integration: {integration}}}}}");
            controller.context.caches.tools.insert(Key::new(namespace, name), Guarded(Ok(serde_yaml::from_str(&yaml).unwrap())));
        }
        let requested = controller.requests.open();
        controller.changed(&Change::Object(Kind::of::<Integration>(), Key::new("team-a", "metrics")));
        let mut heard: Vec<_> = requested.take(controller.requests.depth()).map(|key| key.to_string()).collect().await;
        heard.sort();
        assert_eq!(heard, ["team-a/by-id", "team-a/by-name"]);
    }

    #[test]
    fn each_turn_of_an_approval_is_one_event() {
        let of = |approved: Option<&str>, observed: Option<&str>| {
            let judgement = Judgement {
                server: approved.map(|_| "https://m".to_owned()),
                approved: approved.map(str::to_owned),
                observed: observed.map(str::to_owned),
                answered: approved.is_some(),
                message: "other tools".to_owned(),
            };
            let spec = serde_yaml::from_str("{name: t, type: mcp, mcpEndpoint: 'https://m.example/mcp'}").unwrap();
            let standing = standing(&spec, &judgement, &References::nothing());
            status(standing, &judgement, &ToolStatus::default(), Some(1), Timestamp::UNIX_EPOCH)
        };
        let (fresh, seen, changed) = (of(None, None), of(Some("a"), None), of(Some("a"), Some("b")));
        assert_eq!(
            (fresh.phase, seen.phase, changed.phase),
            (Some(ToolPhase::Unknown), Some(ToolPhase::Available), Some(ToolPhase::Error))
        );
        assert_eq!((fresh.conditions[0].status.as_str(), fresh.conditions[0].reason.as_str()), ("Unknown", "NotAnswered"));
        assert_eq!((changed.conditions[0].reason.as_str(), changed.conditions[0].message.as_str()), ("ToolsChanged", "other tools"));
        for (before, now, expected) in [
            (&fresh, &fresh, &[][..]),
            (&fresh, &seen, &["ToolsApproved"]),
            (&seen, &changed, &["ToolsChanged"]),
            (&changed, &changed, &[]),
            (&changed, &of(Some("a"), Some("c")), &["ToolsChanged"]),
            (&changed, &seen, &["ToolsRestored"]),
            (&changed, &of(Some("b"), None), &["ToolsApproved"]),
            (&changed, &of(Some("b"), Some("c")), &["ToolsApproved", "ToolsChanged"]),
            (&changed, &fresh, &[]),
        ] {
            let reasons: Vec<_> = events(before, now).into_iter().map(|event| event.reason).collect();
            assert_eq!(reasons, expected, "{before:?} {now:?}");
        }
    }
}
