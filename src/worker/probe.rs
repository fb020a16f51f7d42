//! `slipway-worker probe`: looks at the folder of an integration of type `local`, as a Job with the team's volume. What came of it is
//! the pod's termination message, as JSON; the process has done its work whatever that is.

use std::path::Path;

use anyhow::Context;
use slipway_api::contract;
use slipway_api::worker::ProbeRequest;
use slipway_http::termination;
use slipway_integrations::probe_local;

use crate::embedders::variable;
use crate::settings::{Refusal, Settings};

pub(crate) async fn main(_settings: Settings) -> anyhow::Result<()> {
    let refused = |why: &str| Refusal(vec![format!("{} {why}", contract::PROBE)]);
    let text = variable(contract::PROBE).ok_or_else(|| refused("is missing; it says what is to be looked at"))?;
    let request: ProbeRequest = serde_json::from_str(&text).map_err(|_| refused("cannot be read"))?;
    let reply = probe_local(&request, Path::new(contract::LOCAL_FOLDER)).await;
    termination::write(termination::LOG, &serde_json::to_string(&reply).context("the reply cannot be written")?);
    Ok(())
}
