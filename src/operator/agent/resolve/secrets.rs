//! The Secrets that an Agent uses: whether they exist, whether it may use them, and a hash that changes when they do.

use slipway_api::agent::RUNTIME_SECRET;
use slipway_api::agent::{AGENT_ENV, AgentSpec};
use slipway_api::{contract, labels};

use super::{Stop, Variable, fault};
use crate::agent::gather::Seen;
use crate::caches::secret::keyed_hash;
use crate::settings::Settings;

/// Checks that each Secret the Agent names exists and may be read by agents.
pub(super) fn secrets(spec: &AgentSpec, seen: &Seen) -> Result<Vec<Variable>, Stop> {
    let named = spec.env_secrets.iter().filter(|name| *name != AGENT_ENV).map(|name| (name, "envSecrets"));
    let credential = spec.credential_secret.iter().map(|name| (name, "credentialSecret"));
    let database = spec.database_credentials_secret.iter().map(|name| (name, "databaseCredentialsSecret"));
    for (name, field) in named.chain(credential).chain(database) {
        readable(seen, name, &format!("spec.{field}"))?;
    }
    let mut env = Vec::new();
    if let Some(name) = &spec.credential_secret {
        let key = seen.secrets.get(name).and_then(|secret| secret.keys.first());
        let key = key.ok_or_else(|| fault("SecretKeyMissing", format!("spec.credentialSecret: Secret {name} holds no file")))?;
        env.push(Variable::Plain {
            name: contract::GOOGLE_APPLICATION_CREDENTIALS.to_owned(),
            value: format!("{}/{key}", contract::CREDENTIALS),
        });
    }
    if let Some(name) = &spec.database_credentials_secret {
        for (variable, key) in [("PGUSER", "username"), ("PGPASSWORD", "password")] {
            key_of(seen, name, key, "spec.databaseCredentialsSecret")?;
            env.push(Variable::secret(variable, name, key));
        }
    }
    Ok(env)
}

pub(super) fn readable(seen: &Seen, name: &str, field: &str) -> Result<(), Stop> {
    match seen.secrets.get(name) {
        None => Err(fault("SecretMissing", format!("{field}: Secret {name} does not exist in this namespace"))),
        Some(secret) if !secret.readable => {
            let message =
                format!("{field}: Secret {name} lacks the label {}=true, without which agents cannot use it", labels::AGENT_READABLE);
            Err(fault("SecretNotAllowed", message))
        }
        Some(_) => Ok(()),
    }
}

pub(super) fn key_of(seen: &Seen, name: &str, key: &str, field: &str) -> Result<(), Stop> {
    let has = seen.secrets.get(name).is_some_and(|secret| secret.keys.iter().any(|has| has == key));
    if has { Ok(()) } else { Err(fault("SecretKeyMissing", format!("{field}: Secret {name} has no key {key}"))) }
}

/// A keyed hash over the Secrets that the pod uses, so that a change of one rolls the pods.
pub(super) fn secrets_hash(spec: &AgentSpec, seen: &Seen, settings: &Settings) -> Option<String> {
    let mut used: Vec<(&[u8], &[u8])> = Vec::new();
    for (name, secret) in &seen.secrets {
        // The team's runtime Secret counts only for agents that get something from it.
        if name != RUNTIME_SECRET || (settings.database.is_some() && spec.database_url.is_none()) {
            used.push((name.as_bytes(), &secret.hash));
        }
    }
    (!used.is_empty()).then(|| hex::encode(keyed_hash(&settings.secrets_hash_key, used.into_iter())))
}
