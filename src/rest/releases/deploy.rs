//! Deploys an earlier release: an annotation of the Agent requests it, and the state role does the rest, also under GitOps.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};
use slipway_api::{Agent, condition, labels};
use slipway_http::{Error, StatusCode};
use slipway_release::lifecycle::{Event, next};

use super::{version, wait};
use crate::agents;
use crate::agents::run::Done;
use crate::call::Call;

const DEPLOY_TIMEOUT: Duration = Duration::from_secs(15);
/// The annotation is removed shortly before the status is updated.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn deploy(call: Call) -> Result<Done, Error> {
    let version = version(&call)?;
    let (agent, what) = agents::find(&call).await?;
    let name = agent.name_any();
    let release = call.context.state.release(&call.namespace(), &name, version).await?;
    next(release.entry.status, Event::Deployed)
        .map_err(|refused| Error::new(StatusCode::CONFLICT, format!("release v{version} of {what}: {refused}")))?;
    let asked = agents::write(&call, |agent, what| {
        agents::run::active(agent, what)?;
        Ok(wish(version))
    });
    asked.await?;

    let api = agents::api(&call);
    let done = |agent: &Agent| !agent.annotations().contains_key(labels::DEPLOY_RELEASE);
    let runs = |agent: &Agent| active(agent) == Some(version);
    let mut seen = wait::until(&api, &name, DEPLOY_TIMEOUT, done).await?;
    if seen.as_ref().is_some_and(|agent| done(agent) && !runs(agent)) {
        seen = wait::until(&api, &name, SETTLE_TIMEOUT, runs).await?;
    }
    let Some(agent) = seen else { return Err(Error::not_found(format!("there is no {what} any more"))) };
    match (done(&agent), runs(&agent)) {
        (true, true) => Done::of(&agent, "deployed"),
        (true, false) => Err(Error::new(StatusCode::CONFLICT, refused(&agent, version, &what))),
        (false, _) => Err(wait::later(format!(
            "the state role has not come to it yet; the wish to run release v{version} stays with {what} and is granted later"
        ))),
    }
}

/// The patch that requests a version.
pub(crate) fn wish(version: u64) -> Value {
    json!({"metadata": {"annotations": {labels::DEPLOY_RELEASE: version.to_string()}}})
}

pub(crate) fn active(agent: &Agent) -> Option<u64> {
    agent.status.as_ref()?.active_release.and_then(|version| u64::try_from(version).ok())
}

fn refused(agent: &Agent, version: u64, what: &str) -> String {
    let conditions = agent.status.iter().flat_map(|status| &status.conditions);
    let told = conditions
        .into_iter()
        .find(|found| found.type_ == condition::RELEASED && found.status == "False")
        .map(|found| found.message.as_str());
    let runs = active(agent).map_or_else(|| "no release is active".to_owned(), |active| format!("v{active} is active"));
    match told.filter(|message| !message.is_empty()) {
        Some(message) => format!("release v{version} of {what} was not deployed: {message}"),
        None => format!(
            "release v{version} of {what} was not deployed: it was refused, as the agent's event ReleaseRefused says, or something else was \
             asked for meanwhile; {runs}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_deployed_says_why_or_where_to_look() {
        let agent = |status: Value| -> Agent {
            let metadata = json!({"name": "helper"});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"name": "H", "framework": "custom"}, "status": status})).unwrap()
        };
        let released = |status: &str| {
            json!([{"type": "Released", "status": status, "reason": "StateUnavailable", "message": "the disk is full",
                "lastTransitionTime": "2026-11-21T12:00:00Z"}])
        };
        for (status, says) in [
            (json!({"activeRelease": 2, "conditions": released("False")}), "was not deployed: the disk is full"),
            (json!({"activeRelease": 2, "conditions": released("True")}), "ReleaseRefused"),
            (json!({"activeRelease": 2}), "; v2 is active"),
            (json!({}), "; no release is active"),
        ] {
            let told = refused(&agent(status.clone()), 1, "agent helper");
            assert!(told.starts_with("release v1 of agent helper was not deployed") && told.contains(says), "{status}: {told}");
        }
    }
}
