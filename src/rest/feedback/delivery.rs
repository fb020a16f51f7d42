//! Sends a mark to MLflow while its caller waits. What MLflow has not taken by then the operator sends later, so that nothing fails
//! here: there is a metric, and a line in the log when it begins to go wrong and when it is well again.

use std::time::Duration;

use slipway_database::{Feedback, Records};
use slipway_mlflow::{Fault, Mark};
use tokio::time::{Instant, timeout_at};

use crate::call::Call;
use crate::platform;

/// How long the caller waits for MLflow, the platform's configuration included.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A word for the log, and what is wrong.
type Failure = (&'static str, String);

/// Whether MLflow has taken the mark, which has been recorded.
pub(super) async fn deliver(call: &Call, records: &Records, mark: &Mark, feedback: &Feedback) -> bool {
    let context = &call.context;
    let deadline = Instant::now() + TIMEOUT;
    let (outcome, failure) = match timeout_at(deadline, send(call, mark)).await {
        Ok(Ok(None)) => return false,
        Ok(Ok(Some(true))) => ("delivered", None),
        Ok(Ok(Some(false))) => ("no_trace", None),
        Ok(Err(failure)) => ("failed", Some(failure)),
        Err(_) => ("failed", Some(("Slow", format!("MLflow has not answered within {} s", TIMEOUT.as_secs())))),
    };
    context.metrics.delivery(outcome);
    if context.delivering.has_changed(failure.as_ref().map(|(reason, _)| *reason)) {
        if let Some((reason, message)) = failure {
            tracing::warn!(reason, message, "marks do not reach MLflow at once; the operator sends them later");
        } else {
            tracing::info!("marks reach MLflow at once again");
        }
    }
    let is_delivered = outcome == "delivered";
    if is_delivered {
        // Otherwise the operator sends it again, which changes nothing in MLflow.
        match timeout_at(deadline, records.feedback_delivered(&mark.trace, feedback)).await {
            Ok(Ok(true)) => {}
            noted => tracing::debug!(?noted, "it could not be noted that MLflow has a mark"),
        }
    }
    is_delivered
}

/// None without an MLflow server; else whether it has the trace, and with it the mark now.
async fn send(call: &Call, mark: &Mark) -> Result<Option<bool>, Failure> {
    let uri = platform::mlflow_uri(call).await.map_err(|error| ("ConfigurationUnavailable", error.message().to_owned()))?;
    let Some(uri) = uri else { return Ok(None) };
    let told = |fault: Fault| (fault.reason(), fault.to_string());
    let server = call.context.mlflow.at(&uri).map_err(told)?;
    server.mark(mark).await.map(Some).map_err(told)
}
