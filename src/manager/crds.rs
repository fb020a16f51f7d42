//! The command `crds`: prints the CRDs of this version, or applies them, as the chart's upgrade does.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use tokio::time::{Instant, sleep};

const ESTABLISH_TIMEOUT: Duration = Duration::from_mins(2);

#[expect(clippy::print_stdout, reason = "printing is what this is for")]
pub(crate) fn print() -> anyhow::Result<()> {
    for crd in slipway_api::crd::all() {
        print!("---\n{}", serde_yaml::to_string(&crd)?);
    }
    Ok(())
}

pub(crate) async fn apply(client: Client) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let params = PatchParams::apply("slipway/crds").force();
    for crd in slipway_api::crd::all() {
        let name = crd.name_any();
        api.patch(&name, &params, &Patch::Apply(&crd)).await.with_context(|| format!("CRD {name} could not be applied"))?;
        wait(&api, &name).await?;
        tracing::info!(crd = name, "applied");
    }
    Ok(())
}

/// Polls until the CRD is established: a watch would take one more permission.
async fn wait(api: &Api<CustomResourceDefinition>, name: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + ESTABLISH_TIMEOUT;
    while Instant::now() < deadline {
        let crd = api.get(name).await.with_context(|| format!("CRD {name} could not be read"))?;
        let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
        sleep(Duration::from_millis(250)).await;
    }
    bail!("CRD {name} was applied, but the API server does not serve it after {ESTABLISH_TIMEOUT:?}")
}
