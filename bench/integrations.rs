//! Integrations: what a test through REST adds to asking the server itself, how many alerts a second reach a receiver that answers at
//! once, what a scaffold takes, and what Tools that name an Integration cost the operator beside Tools that do not.

mod deliveries;
mod probes;
mod receiver;
mod scaffold;
mod tools;

use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use slipway_api::contract::{CONTROL_PUBLIC_KEY, EGRESS_ALLOW};
use slipway_api::integration::IntegrationPhase;
use slipway_api::{Integration, Tool, ids, worker};
use tokio::time::sleep;

use crate::cluster::{Cluster, OPERATED, TEAM};
use crate::manager::Manager;
use crate::start::{Process, command, cores};
use crate::{runtime, table};

/// What the operator's and the worker's rules have to let through: the servers are on this machine.
const LOOPBACK: &str = "127.0.0.0/8";
const ALLOWING: [&str; 2] = ["--egress-allow", LOOPBACK];
const TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) async fn measure(cluster: &Cluster, runs: u32) -> anyhow::Result<()> {
    let (core, _) = cores()?;
    cluster.clear().await?;
    forget(cluster).await?;
    scaffold::measure(&core).await?;
    tools::measure(cluster, runs).await?;
    forget(cluster).await?;
    let bench = Integrations(cluster);
    // The team has a worker from its first Integration on.
    bench.apply("first", &json!({"prometheus": {"url": "http://127.0.0.1:9"}}), None).await?;
    let manager = Manager::ready_with(&ALLOWING).await?;
    let key = control_key(cluster).await?;
    let _worker = start_worker(&key)?;
    report_ready(cluster).await?;
    probes::measure(&bench, &core).await?;
    deliveries::measure(&bench, manager).await?;
    forget(cluster).await
}

/// Takes away what is not the operator's, and what an interrupted run has left.
async fn forget(cluster: &Cluster) -> anyhow::Result<()> {
    let (delete, all) = (DeleteParams::default(), ListParams::default());
    Api::<Tool>::namespaced(cluster.client(), OPERATED).delete_collection(&delete, &all).await?;
    Api::<Integration>::namespaced(cluster.client(), OPERATED).delete_collection(&delete, &all).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), OPERATED);
    for name in secrets.list_metadata(&all).await?.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("in-")) {
        secrets.delete(&name, &delete).await?;
    }
    Ok(())
}

/// The Integrations of the team.
struct Integrations<'a>(&'a Cluster);

impl Integrations<'_> {
    fn api(&self) -> Api<Integration> {
        Api::namespaced(self.0.client(), OPERATED)
    }

    /// One whose spec has `what`, with a login of one key.
    async fn apply(&self, name: &str, what: &Value, login: Option<(&str, &str)>) -> anyhow::Result<()> {
        let mut spec = what.clone();
        spec["name"] = json!(name);
        let object = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "metadata": {"name": name}, "spec": spec});
        self.0.apply_one(&self.api(), name, &object).await?;
        let Some((key, value)) = login else { return Ok(()) };
        let secret = format!("in-{name}");
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": {key: value}});
        self.0.apply_one(&Api::<Secret>::namespaced(self.0.client(), OPERATED), &secret, &object).await
    }

    /// The UIDs of these, once each was reached.
    async fn connected(&self, names: &[String]) -> anyhow::Result<Vec<String>> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let mut uids = Vec::new();
            let mut missing = None;
            for integration in self.api().list(&ListParams::default()).await?.items {
                if !names.contains(&integration.name_any()) {
                    continue;
                }
                let status = integration.status.as_ref();
                if status.is_some_and(|status| status.phase == Some(IntegrationPhase::Connected)) {
                    uids.extend(integration.uid());
                } else {
                    missing = Some(status.and_then(|status| status.last_test.as_ref()).map(|test| test.message.clone()));
                }
            }
            if uids.len() == names.len() {
                return Ok(uids);
            }
            if Instant::now() > deadline {
                bail!("{} of {} integrations are connected; one says {missing:?}", uids.len(), names.len());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The key by which the team's worker knows the operator, as its Deployment has it.
async fn control_key(cluster: &Cluster) -> anyhow::Result<String> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), OPERATED);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let found = deployments.get_opt(worker::NAME).await?;
        let variables = found.and_then(|found| found.spec?.template.spec?.containers.into_iter().next()?.env);
        let key = variables.into_iter().flatten().find(|variable| variable.name == CONTROL_PUBLIC_KEY).and_then(|variable| variable.value);
        if let Some(key) = key {
            return Ok(key);
        }
        if Instant::now() > deadline {
            bail!("the team gets no worker that knows the operator");
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Says of the worker's Deployment what no controller is here to say, and the operator waits for: that its pod is ready.
async fn report_ready(cluster: &Cluster) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), OPERATED);
    let status = json!({"status": {"replicas": 1, "readyReplicas": 1}});
    deployments.patch_status(worker::NAME, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// The team's worker, at the port of its Service, whose address is this machine's.
fn start_worker(key: &str) -> anyhow::Result<Process> {
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, worker::PORT));
    drop(taken.with_context(|| format!("port {} is a worker's, and must be free", worker::PORT))?);
    let mut command = command("slipway-worker")?;
    let (team, port) = (ids::team(TEAM), worker::PORT.to_string());
    let variables = [("RUNTIME_TEAM", team.as_str()), ("RUNTIME_PORT", port.as_str()), ("RUNTIME_LOG_LEVEL", "error")];
    command.arg("serve").envs(variables).env(CONTROL_PUBLIC_KEY, key).env(EGRESS_ALLOW, LOOPBACK).stderr(Stdio::null());
    let process = Process::spawn(&mut command)?;
    runtime::wait(worker::PORT, Instant::now())?;
    Ok(process)
}

fn beside(what: &str, measured: f64, floor: f64, goal: &str) {
    table::beside(what, (&table::milliseconds(measured), measured), (&table::milliseconds(floor), floor), goal);
}
