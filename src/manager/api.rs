//! The role `rest`: settings and server of the REST API.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use kube::Client;
use slipway_cluster::Tasks;
use slipway_http::memory::{self, for_clients};
use slipway_http::token::{RELAY_LIFE, Signer};
use slipway_http::{Network, Proxies, ServerLimits, listen, serve as serve_http};
use slipway_operator::database::DatabaseUrl;
use slipway_rest::{Authentication, Context, Issuer, Oidc, PlatformSettings, Rest, RestSettings, Sign, StateSettings};
use url::Url;

use crate::arguments::{Arguments, ProcessRole};
use crate::keys::relay::KeyFile;
use crate::run::namespaces;

/// Each streaming client holds a connection. Memory usually allows fewer.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// The part of the container's memory limit that import subprocesses may take.
const IMPORT_BYTES: u64 = slipway_import::TOTAL_MEBIBYTES as u64 * memory::MIB;
/// The state role's Service, and its port.
const STATE_SERVICE: &str = "slipway-state";
const STATE_PORT: u16 = 8091;

/// `relay` is the key for calls of agents, if this process has the role operator; otherwise it is read from its file.
pub(crate) fn open(arguments: &Arguments, client: Client, relay: Option<Signer>, tasks: &Tasks) -> anyhow::Result<Rest> {
    let in_cluster = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let authentication = authentication(arguments, in_cluster)?;
    if matches!(authentication, Authentication::Off) {
        tracing::warn!(
            "AUTH_ENABLED=false: every client that reaches {} may do everything in {}",
            arguments.api_listen,
            arguments.default_namespace
        );
    }
    let default_team = arguments.default_namespace.strip_prefix("team-").context("SLIPWAY_DEFAULT_NAMESPACE must begin with team-")?;
    let settings = RestSettings {
        platform_namespace: arguments.platform_namespace.clone(),
        watch_namespaces: namespaces(arguments),
        cluster_domain: arguments.cluster_domain.clone(),
        default_team: default_team.to_owned(),
        in_cluster,
        agent_address: agent_address(arguments)?,
        chat_time: Duration::from_secs(arguments.chat_seconds),
        limits: arguments.limits,
        impersonate: arguments.impersonate,
        gate_fail_closed: arguments.gate_fail_closed.clone(),
        sign: Some(sign(arguments, relay)),
        importer: importer(arguments)?,
        state: StateSettings { url: state_url(arguments, in_cluster)?, token_file: Some(arguments.state_token_file.clone()) },
        scaffold: arguments.scaffold.clone(),
        platform: PlatformSettings::new(
            Arguments::public_url(arguments.mlflow_uri.as_ref()).map_err(anyhow::Error::msg).context("SLIPWAY_MLFLOW_URI")?,
            arguments.database().context("SLIPWAY_DATABASE_URL")?.as_ref().map(DatabaseUrl::complete),
        )
        .with_mlflow_login(arguments.mlflow_login()?)
        .with_prometheus_url(
            Arguments::public_url(arguments.prometheus_url.as_ref()).map_err(anyhow::Error::msg).context("SLIPWAY_PROMETHEUS_URL")?,
        ),
    };
    Ok(Rest::open(Context::new(client, settings, authentication).context("SLIPWAY_DATABASE_URL")?, tasks))
}

/// Within a cluster one switch alone does not let everybody in.
fn authentication(arguments: &Arguments, in_cluster: bool) -> anyhow::Result<Authentication> {
    if arguments.auth_enabled {
        return Ok(Authentication::On(issuer(arguments)?.map(Box::new)));
    }
    if in_cluster && !arguments.allow_unauthenticated {
        bail!("AUTH_ENABLED=false lets every client do everything; within a cluster it takes --allow-unauthenticated as well");
    }
    Ok(Authentication::Off)
}

fn sign(arguments: &Arguments, relay: Option<Signer>) -> Sign {
    if let Some(signer) = relay {
        return Sign::new(move |agent| signer.token(agent, RELAY_LIFE, SystemTime::now()));
    }
    let file = KeyFile::new(arguments.relay_key_file.clone());
    Sign::new(move |agent| file.token(agent))
}

/// The command of import subprocesses: this program, even if its file was replaced, with the settings of imports only.
fn importer(arguments: &Arguments) -> anyhow::Result<Vec<OsString>> {
    // Reports an invalid list at startup instead of at the first import.
    arguments.import_allow()?;
    let log_format = arguments.log_format.to_possible_value().map(|format| format.get_name().to_owned()).unwrap_or_default();
    let settings = [
        format!("--import-allow={}", arguments.import_allow.join(",")),
        format!("--log={}", arguments.log),
        format!("--log-format={log_format}"),
    ];
    Ok(["/proc/self/exe".to_owned()].into_iter().chain(settings).map(OsString::from).collect())
}

/// The OIDC issuer. Empty variables count as unset, because charts set them so.
fn issuer(arguments: &Arguments) -> anyhow::Result<Option<Issuer>> {
    let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let Some(issuer) = given(&arguments.oidc_issuer) else { return Ok(None) };
    let oidc = Oidc {
        issuer,
        audience: given(&arguments.oidc_audience).unwrap_or_default(),
        username_claim: given(&Some(arguments.oidc_username_claim.clone())).unwrap_or_else(|| "sub".to_owned()),
        username_prefix: given(&arguments.oidc_username_prefix),
        groups_claim: given(&arguments.oidc_groups_claim),
        groups_prefix: arguments.oidc_groups_prefix.clone(),
    };
    Issuer::new(oidc).map(Some).map_err(anyhow::Error::msg).context("SLIPWAY_OIDC_ISSUER")
}

/// The configured address of agents.
fn agent_address(arguments: &Arguments) -> anyhow::Result<Option<String>> {
    let Some(address) = arguments.agent_address.clone().filter(|address| !address.is_empty()) else { return Ok(None) };
    let sample = address.replace("{name}", "name").replace("{namespace}", "namespace");
    match Url::parse(&sample) {
        Ok(url) if url.scheme() == "http" && url.has_host() && url.query().is_none() && url.fragment().is_none() => Ok(Some(address)),
        _ => bail!("SLIPWAY_AGENT_ADDRESS must look like http://{{name}}.{{namespace}}.example.com:8000"),
    }
}

/// The URL of the state role, if it is configured or can be derived.
fn state_url(arguments: &Arguments, in_cluster: bool) -> anyhow::Result<Option<String>> {
    let Some(given) = arguments.state_url.clone().filter(|url| !url.is_empty()) else {
        if arguments.roles.contains(&ProcessRole::State) {
            return Ok(Some(format!("http://127.0.0.1:{}", arguments.state_listen.port())));
        }
        let Arguments { platform_namespace, cluster_domain, .. } = arguments;
        return Ok(in_cluster
            .then(|| format!("http://{STATE_SERVICE}.{platform_namespace}.svc.{}:{STATE_PORT}", cluster_domain.trim_matches('.'))));
    };
    match Url::parse(&given) {
        Ok(url) if url.scheme() == "http" && url.has_host() && url.path() == "/" && url.query().is_none() && url.username().is_empty() => {
            Ok(Some(given))
        }
        _ => bail!("SLIPWAY_STATE_URL must look like http://slipway-state.slipway-system.svc.cluster.local:8091"),
    }
}

/// Listens, and returns the server's future, which ends after `until`.
pub(crate) fn serve(
    api: Rest,
    address: SocketAddr,
    proxies: Vec<Network>,
    until: impl Future<Output = ()> + Send,
) -> anyhow::Result<impl Future<Output = ()> + Send> {
    let listener = listen(address).with_context(|| format!("cannot listen on {address}"))?;
    let limit = memory::limit();
    let limits = ServerLimits {
        memory: for_clients(limit, IMPORT_BYTES),
        connections: MAX_CONNECTIONS,
        requires_authentication: true,
        proxies: Proxies::new(proxies),
        secret_paths: slipway_rest::SECRET_PATHS,
        ..ServerLimits::default()
    };
    tracing::info!(limit, clients = limits.memory, "the API's clients share this much memory");
    let handler = move |request| {
        let api = api.clone();
        async move { api.answer(request).await }
    };
    Ok(async move {
        let drained = serve_http(listener, limits, handler, until).await;
        if drained.cut > 0 {
            tracing::warn!(cut = drained.cut, "requests were cut off at the end of the grace period");
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn within_a_cluster_it_takes_two_switches_to_let_everybody_in() {
        const OFF: &str = "--auth-enabled=false";
        const BOTH: [&str; 2] = [OFF, "--allow-unauthenticated"];
        for (flags, in_cluster, expected) in [
            (&[OFF][..], false, Ok("off")),
            (&[OFF], true, Err("--allow-unauthenticated")),
            (&BOTH, true, Ok("off")),
            (&["--auth-enabled=true"], true, Ok("on")),
            (&[BOTH[1]], true, Ok("on")),
            (&[], true, Ok("on")),
        ] {
            let arguments = Arguments::try_parse_from(["slipway-manager"].iter().chain(flags)).unwrap();
            match (authentication(&arguments, in_cluster), expected) {
                (Ok(Authentication::On(None)), Ok("on")) | (Ok(Authentication::Off), Ok("off")) => {}
                (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{flags:?}: {error}"),
                (found, expected) => panic!("{flags:?}, in a cluster: {in_cluster}: {expected:?} expected, got {:?}", found.err()),
            }
        }
    }
}
