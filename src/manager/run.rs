//! Starts the roles of the process, and stops them in order.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use kube::{Api, Client};
use slipway_cluster::event::Events;
use slipway_cluster::{Metrics, Tasks};
use slipway_http::callback::CallbackKey;
use slipway_http::token::{CONTROL_LIFE, Signer};
use slipway_http::{ServerLimits, listen, serve};
use slipway_operator::settings::{PlatformInfo, Settings};
use slipway_operator::tenancy::Tenancy;
use slipway_operator::{Context as Operator, Sign};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::arguments::{AgentId, Arguments, Command, CrdAction, ProcessRole};
use crate::health::HealthPort;
use crate::keys::Keys;
use crate::state::{self, StateReadiness};
use crate::{api, client, crds, keys, lease, preflight};

const LEASE_NAME: &str = "slipway-manager";
/// The timeout for releasing the lease at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout for sending Events at shutdown.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // The one crypto provider of the process, for all TLS connections.
    drop(rustls::crypto::ring::default_provider().install_default());
    let metrics = Metrics::default();
    match &arguments.command {
        Some(Command::Crds { action: None }) => return crds::print(),
        Some(Command::Crds { action: Some(CrdAction::Apply) }) => return crds::apply(client::connect(&metrics).await?).await,
        Some(Command::Skill { source }) => {
            print(&slipway_import::find_skill(&arguments.import_allow()?, source).await?);
            return Ok(());
        }
        Some(Command::Archive { start, length, path }) => {
            print(&slipway_import::unpack_skill(*start, *length, path)?);
            return Ok(());
        }
        Some(Command::Token { agent }) => return token(&arguments, agent, client::connect(&metrics).await?).await,
        None => {}
    }
    let listener = listen(arguments.listen).with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let client = client::connect(&metrics).await?;
    preflight::check(&client, &namespaces(&arguments), &arguments.roles).await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), namespace = arguments.platform_namespace, roles = ?arguments.roles, "starting");

    let (stopper, stop) = watch::channel(false);
    let stopper = Arc::new(stopper);
    let signalled = stopper.clone();
    tokio::spawn(async move {
        wait_for_signal().await;
        signalled.send_replace(true);
    });
    let tasks = Tasks::default();
    let (failing, watched) = (stopper.clone(), tasks.clone());
    tokio::spawn(async move {
        watched.failed().await;
        failing.send_replace(true);
    });
    let ending = stopper.clone();
    let has = |role| arguments.roles.contains(&role);
    let opened = if has(ProcessRole::Operator) { Some(operator(&arguments, client.clone(), &metrics, &tasks).await?) } else { None };
    let (operator, keys) = opened.unzip();
    let (relay, callback) = keys.unzip();
    let api = if has(ProcessRole::Rest) { Some(api::open(&arguments, client.clone(), relay, &tasks)?) } else { None };

    let state = has(ProcessRole::State).then(StateReadiness::default);
    let history = match &state {
        Some(ready) => {
            let settings = state::StateRoleSettings::read(&arguments, callback)?;
            let work = state::run(settings, client.clone(), metrics.clone(), tasks.clone(), ready.clone(), stop.clone());
            Some(tokio::spawn(async move {
                let ended = work.await;
                // A process that has lost one of its roles stops.
                stopper.send_replace(true);
                ended
            }))
        }
        None => None,
    };

    let health = HealthPort { metrics, tasks: tasks.clone(), operator: operator.clone(), api: api.clone(), state };
    // The API listens before health says that it is ready.
    let answering = match api {
        Some(api) => {
            let proxies = arguments.trusted_proxies()?;
            Some(tokio::spawn(api::serve(api, arguments.api_listen, proxies, stopped(stop.clone()))?))
        }
        None => None,
    };
    let handler = move |request| std::future::ready(health.answer(&request));
    let serving = tokio::spawn(serve(listener, ServerLimits::small(), handler, stopped(stop.clone())));
    let publisher = operator.clone();
    match operator {
        Some(operator) if arguments.leader_election => lead(&arguments, client, operator, stop).await?,
        Some(operator) => {
            let (_always, leads) = watch::channel(true);
            slipway_operator::run(operator, leads, stop).await;
        }
        None => stopped(stop).await,
    }
    if let Some(operator) = publisher
        && timeout(EVENTS_TIMEOUT, operator.events_sent()).await.is_err()
    {
        tracing::warn!("the API server took too long for the last Events; they are lost");
    }
    // A process that has lost the lease stops all roles and is restarted.
    ending.send_replace(true);
    if let Some(history) = history {
        history.await.context("the release history ended early")??;
    }
    if let Some(answering) = answering {
        drop(answering.await);
    }
    serving.abort();
    // After a failed task the process exits with an error, so that it is restarted.
    tasks.failure().map_or(Ok(()), |failure| Err(anyhow::anyhow!(failure)))
}

pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Starts the watches that fill the controllers' caches. Returns the operator, and the keys that other roles of this process use:
/// for calls of agents, and of callbacks.
async fn operator(
    arguments: &Arguments,
    client: Client,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<(Arc<Operator>, (Signer, CallbackKey))> {
    let keys = keys::open(client.clone(), &arguments.platform_namespace).await?;
    let relay = keys::relay::open(client.clone(), &arguments.platform_namespace).await?;
    let settings = settings(arguments, &keys, &relay)?;
    tracing::info!(database = ?settings.database, "the controllers start");
    let events = Events::new(client.clone(), Some(arguments.name.clone()));
    let open = |url| Tenancy::open(url, arguments.database_isolation, &settings.secrets_hash_key);
    let tenancy = settings.database.as_ref().map(open).transpose().context("SLIPWAY_DATABASE_URL")?;
    let metrics = slipway_operator::metrics::Metrics::new(metrics);
    let operator = Arc::new(Operator::new(client, settings, tenancy, metrics, events, tasks.clone()));
    let callback = keys.callback.clone();
    let sign: Sign = Box::new(move |agent| keys.signer.token(agent, CONTROL_LIFE, SystemTime::now()));
    slipway_operator::open(&operator, Some(sign));
    Ok((operator, (relay, callback)))
}

/// The namespaces that are watched; none means all.
pub(crate) fn namespaces(arguments: &Arguments) -> Vec<String> {
    arguments.watch_namespaces.iter().filter(|name| !name.is_empty()).cloned().collect()
}

async fn lead(arguments: &Arguments, client: Client, operator: Arc<Operator>, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    let leases = Api::namespaced(client, &arguments.platform_namespace);
    let (leads, task) = lease::campaign(leases, LEASE_NAME, &arguments.name).await?;
    slipway_operator::run(operator, leads, stop).await;
    // The task releases the lease once its receiver is dropped, so that another replica need not wait until it expires.
    if timeout(SHUTDOWN_TIMEOUT, task).await.is_err() {
        tracing::warn!("the lease was not released in time and will expire");
    }
    Ok(())
}

fn settings(arguments: &Arguments, keys: &Keys, relay: &Signer) -> anyhow::Result<Settings> {
    let database = arguments.database().context("SLIPWAY_DATABASE_URL")?;
    let public = |name: &'static str, url| Arguments::public_url(url).map_err(anyhow::Error::msg).context(name);
    let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    Ok(Settings {
        platform_namespace: arguments.platform_namespace.clone(),
        service_account: arguments.service_account.clone(),
        rest_account: given(&arguments.rest_account),
        cluster_domain: arguments.cluster_domain.clone(),
        watch_namespaces: namespaces(arguments),
        runtime_image: arguments.runtime_image.clone(),
        agent_defaults: arguments.agent_defaults.clone(),
        team_network: arguments.team_network.clone(),
        worker: arguments.worker.clone(),
        allowed_pod_settings: arguments.allowed_pod_settings.clone(),
        team_quota: arguments.team_quota.clone(),
        database,
        feedback_days: arguments.feedback_days,
        integration_test_interval: (arguments.integration_test_minutes > 0)
            .then(|| Duration::from_mins(arguments.integration_test_minutes.into())),
        retention: arguments.retention_days,
        // Agents do not start with an invalid URL, and everybody in the team can read it.
        ollama_base_url: public("OLLAMA_BASE_URL", arguments.ollama_base_url.as_ref())?,
        platform: PlatformInfo {
            url: public("SLIPWAY_PLATFORM_URL", arguments.platform_url.as_ref())?,
            control_public_key: Some(keys.control_public()),
            access_public_key: Some(relay.public_key()),
            embedding_model: given(&arguments.embedding_model),
            egress_allow: arguments.egress_allow()?,
            egress_proxy: public("SLIPWAY_EGRESS_PROXY", arguments.egress_proxy.as_ref())?,
            search_url: public("SLIPWAY_SEARCH_URL", arguments.search_url.as_ref())?,
            eval_samples_per_day: arguments.eval_samples_per_day,
            otlp_endpoint: public("SLIPWAY_OTLP_ENDPOINT", arguments.otlp_endpoint.as_ref())?,
            mlflow_uri: public("SLIPWAY_MLFLOW_URI", arguments.mlflow_uri.as_ref())?,
            prepared_statements: arguments.database_prepared_statements,
        },
        mlflow_login: arguments.mlflow_login()?,
        max_concurrent_reconciles: arguments.max_concurrent_reconciles,
        max_concurrent_rollouts: arguments.max_concurrent_rollouts,
        allow_heuristic_gate: arguments.allow_heuristic_gate,
        secrets_hash_key: keys.secrets_hash.clone(),
        callback_key: Some(keys.callback.clone()),
        gateway: arguments.gateway.0.clone(),
    })
}

/// Prints a token for one agent's control port.
#[expect(clippy::print_stdout, reason = "printing is what this is for")]
async fn token(arguments: &Arguments, agent: &AgentId, client: Client) -> anyhow::Result<()> {
    let keys = keys::open(client, &arguments.platform_namespace).await?;
    println!(
        "{}",
        keys.signer.token(&agent.0, CONTROL_LIFE, SystemTime::now()).context("there is no randomness, or the clock is before 1970")?
    );
    Ok(())
}

#[expect(clippy::print_stdout, reason = "printing is what this is for")]
fn print(answer: &str) {
    println!("{answer}");
}

async fn wait_for_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
