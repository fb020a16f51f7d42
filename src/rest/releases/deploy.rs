//! Bringing a release back: the Agent is told by an annotation which version is to run, and the state role does the rest,
//! also where GitOps owns the spec.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};
use slipway_api::{Agent, labels};
use slipway_http::{Error, StatusCode};
use slipway_release::lifecycle::{Event, next};

use super::{version, wait};
use crate::agents;
use crate::agents::run::Done;
use crate::call::Call;

const PATIENCE: Duration = Duration::from_secs(15);
/// What was asked for is taken away a moment before it is told what became of it.
const SECOND_LOOK: Duration = Duration::from_secs(3);
/// The condition that tells why a release does not run.
const RELEASED: &str = "Released";

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
    let mut seen = wait::until(&api, &name, PATIENCE, done).await?;
    if seen.as_ref().is_some_and(|agent| done(agent) && !runs(agent)) {
        seen = wait::until(&api, &name, SECOND_LOOK, runs).await?;
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

/// The patch by which a version is asked for.
pub(crate) fn wish(version: u64) -> Value {
    json!({"metadata": {"annotations": {labels::DEPLOY_RELEASE: version.to_string()}}})
}

pub(crate) fn active(agent: &Agent) -> Option<u64> {
    agent.status.as_ref()?.active_release.and_then(|version| u64::try_from(version).ok())
}

fn refused(agent: &Agent, version: u64, what: &str) -> String {
    let conditions = agent.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.into_iter().find(|found| found.type_ == RELEASED && found.status == "False").map(|found| found.message.as_str());
    let runs = active(agent).map_or_else(|| "no release runs".to_owned(), |active| format!("v{active} runs"));
    match told.filter(|message| !message.is_empty()) {
        Some(message) => format!("release v{version} of {what} was not deployed: {message}"),
        None => format!("release v{version} of {what} was not deployed, or something else was asked for meanwhile: {runs}"),
    }
}
