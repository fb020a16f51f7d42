//! The callbacks of runtimes, which report that an evaluation has ended. REST holds no key for their tokens: it passes a call on to
//! the state role, and tells what that says.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use slipway_evaluation::wire::{Callback, CallbackCall, CallbackToken, Heard};
use slipway_http::{Error, Request};

use crate::answer::Data;
use crate::call::{Body, Call};
use crate::{BASE, access};

const MAX_BODY_BYTES: usize = 64 * 1024;

/// How an evaluation has ended in a runtime. Scores and verdict are computed by the platform from the results of the cases.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EvaluationResult")]
struct EvaluationResult {
    /// The run, as the runtime was told.
    #[schemars(length(min = 1, max = 128))]
    run_id: String,
    #[schemars(extend("enum" = ["completed", "failed", "cancelled"]))]
    status: String,
    /// The means by scorer: `safety/mean` and so on, each from 0 to 1.
    scores: BTreeMap<String, f64>,
    passed: bool,
    #[schemars(length(max = 4096))]
    verdict: String,
}

/// The body of a callback, and the address it came from.
pub(crate) struct Report {
    address: IpAddr,
    result: EvaluationResult,
}

impl Body for Report {
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<EvaluationResult>()))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        Ok(Self { address: request.address(), result: request.json_up_to(MAX_BODY_BYTES).await? })
    }
}

/// The run at this moment. It ends once the platform has read and judged its results.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EvaluationHeard")]
pub(crate) struct RunHeard {
    run_id: String,
    #[schemars(extend("enum" = ["pending", "running"]))]
    status: String,
}

/// Of the run that decides on a release.
pub(crate) async fn of_release(call: Call<Report>) -> Result<Data<RunHeard>, Error> {
    let path = format!("{BASE}/agents/{}/releases/{}/eval-result", call.path.part("id"), call.path.part("version"));
    pass_on(call, path).await
}

/// Of a run that belongs to no release.
pub(crate) async fn of_run(call: Call<Report>) -> Result<Data<RunHeard>, Error> {
    let path = format!("{BASE}/agents/{}/evaluations/{}/result", call.path.part("id"), call.path.part("run_id"));
    pass_on(call, path).await
}

async fn pass_on(call: Call<Report>, path: String) -> Result<Data<RunHeard>, Error> {
    let Report { address, result } = call.body;
    let EvaluationResult { run_id, status, scores, passed, verdict } = result;
    let token = CallbackToken(access::callback_token(&call.headers)?.to_owned());
    let body = Callback { run_id: run_id.clone(), status, scores, passed, verdict };
    let heard = call.context.state.callback(&CallbackCall { path, token, body }).await;
    if !matches!(heard, Ok(Heard::NotValid)) {
        call.context.access.callback_succeeded(address);
    }
    match heard? {
        Heard::NotValid => Err(access::invalid_callback()),
        Heard::Noted { status } => Ok(Data::new(RunHeard { run_id, status })),
    }
}
