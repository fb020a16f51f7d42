//! The exporter against servers: one that behaves as a test tells it to, and real ones.

mod delivery;
mod mlflow;
mod receiver;
mod recording;

use std::time::Duration;

use tokio::time::Instant;

use super::{Identity, Settings, Telemetry};

/// Telemetry of an agent named `helper` that has these variables, without waiting for batches.
fn telemetry(variables: &[(&str, &str)]) -> Telemetry {
    rustls::crypto::ring::default_provider().install_default().ok();
    let identity = Identity {
        agent_id: "ag_1".into(),
        agent_name: "helper".into(),
        agent_version: "7".into(),
        team: "blue".into(),
        track: "canary".into(),
    };
    let lookup = |name: &str| {
        let given = variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        given.or_else(|| (name == "OTEL_BSP_SCHEDULE_DELAY").then(|| "50".into()))
    };
    Telemetry::start(Settings::read(identity, &lookup).unwrap()).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}
