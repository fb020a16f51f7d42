//! What an integration gives to what names it: a Tool, a source or an agent's models. Pure; the operator and the release controller
//! both ask here, so that a release has what pods run.
//!
//! Which keys the login has and which host it is for stands in the status, which the operator alone writes: a login that was
//! written for one host goes to no other.

use serde::{Deserialize, Serialize};

use super::{Integration, IntegrationType, Use};
use crate::model_type::ModelType;
use crate::source::{LocalSource, Source};
use crate::tool::{HeaderScheme, Method, SecretHeader, ToolSpec, ToolType};

/// The key of the Secret that models are asked with.
const MODEL_KEY: &str = "api_key";
/// The version of Anthropic's protocol that requests of Tools bear.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Why something cannot name this integration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeFault {
    /// In one word, as conditions have it.
    pub reason: &'static str,
    /// The field at fault of what names the integration, within its spec.
    pub field: &'static str,
    pub message: String,
}

/// The reasons of faults.
pub const INVALID: &str = "IntegrationInvalid";
pub const NOT_SEEN: &str = "IntegrationNotSeen";
pub const NO_LOGIN: &str = "SecretMissing";
pub const ANOTHER_HOST: &str = "CredentialsForAnotherHost";

/// What names an integration, with what that gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged<T> {
    /// As if it had been written without the integration. A Tool keeps the name of it, by which its Secret is opened: beside a URL,
    /// which nobody can write together with it.
    pub spec: T,
    /// The Secret with the login that it uses. It needs no label, as the integration opens it.
    pub secret: Option<String>,
}

/// The server of an agent's models. A release has the digest of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEndpoint {
    pub base_url: String,
    /// The Secret and the key within it. None: the server is asked without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<(String, String)>,
}

impl Integration {
    /// A Tool that names this integration.
    pub fn tool(&self, tool: &ToolSpec) -> Result<Merged<ToolSpec>, MergeFault> {
        let kind = self.used_as(Use::Tools, "a Tool")?;
        let server = self.spec.server().ok_or_else(|| self.invalid("integration", "does not say where its server is"))?;
        let mut spec = tool.clone();
        match (tool.type_, kind) {
            (ToolType::Mcp, IntegrationType::Mcp) => spec.mcp_endpoint = Some(server),
            (ToolType::Http, of) if of != IntegrationType::Mcp => spec.endpoint = Some(self.below(of, &server, tool)?),
            (ToolType::Mcp, _) => return Err(self.wrong("a Tool of type mcp", "one of type mcp")),
            _ => return Err(self.wrong("a Tool of type http", "one of another type")),
        }
        if kind == IntegrationType::Anthropic && !spec.headers.keys().any(|name| name.eq_ignore_ascii_case(ANTHROPIC_VERSION.0)) {
            spec.headers.insert(ANTHROPIC_VERSION.0.to_owned(), ANTHROPIC_VERSION.1.to_owned());
        }
        let login = self.login(kind);
        let secret = login.as_ref().map(|login| login.secret.clone());
        if let Some(login) = login {
            let is_it = |name: &str| name.eq_ignore_ascii_case(&login.name);
            if spec.headers.keys().any(|name| is_it(name)) || spec.headers_from.iter().any(|header| is_it(&header.name)) {
                return Err(self.invalid("headersFrom", &format!("gives the header {}; leave it out", login.name)));
            }
            spec.headers_from.push(login);
        }
        Ok(Merged { spec, secret })
    }

    /// A source that names this integration.
    pub fn source(&self, source: &Source) -> Result<Merged<Source>, MergeFault> {
        let kind = self.used_as(Use::Knowledge, "a source")?;
        let of = &self.spec;
        let secret = of.secret(self.name());
        let mut spec = Source { integration: None, credentials_secret: secret.clone(), ..source.clone() };
        match kind {
            IntegrationType::Local => {
                if let (Some(local), Some(root)) = (&mut spec.local, of.local.as_ref().and_then(|of| of.path.as_deref())) {
                    *local = LocalSource { path: beneath(root, &local.path) };
                }
            }
            IntegrationType::GoogleDrive => {
                if let (Some(drive), Some(of)) = (&mut spec.google_drive, &of.google_drive) {
                    drive.endpoint.clone_from(&of.endpoint);
                }
            }
            IntegrationType::S3 => {
                if let (Some(s3), Some(of)) = (&mut spec.s3, &of.s3) {
                    s3.endpoint.clone_from(&of.endpoint);
                    s3.region.clone_from(&of.region);
                }
            }
            IntegrationType::Confluence => {
                if let (Some(confluence), Some(of)) = (&mut spec.confluence, &of.confluence) {
                    confluence.base_url = Some(of.base_url.clone());
                }
            }
            IntegrationType::Jira => {
                if let (Some(jira), Some(of)) = (&mut spec.jira, &of.jira) {
                    jira.base_url = Some(of.base_url.clone());
                }
            }
            IntegrationType::Databricks => {
                if let (Some(databricks), Some(of)) = (&mut spec.databricks, &of.databricks) {
                    databricks.host = Some(of.host.clone());
                    databricks.warehouse_id = databricks.warehouse_id.take().or_else(|| of.warehouse_id.clone());
                }
            }
            // No source can name one of these.
            IntegrationType::Mlflow
            | IntegrationType::Prometheus
            | IntegrationType::Webhook
            | IntegrationType::Slack
            | IntegrationType::Openai
            | IntegrationType::Anthropic
            | IntegrationType::Mcp => {}
        }
        match source.kind() {
            Some(asked) if asked == kind.as_str() => Ok(Merged { spec, secret }),
            asked => {
                let asked = asked.unwrap_or_default();
                Err(self.wrong(&format!("a source of type {asked}"), &format!("one of type {asked}")))
            }
        }
    }

    /// The server of the models of an agent whose `modelType` is this one.
    pub fn model(&self, provider: ModelType) -> Result<ModelEndpoint, MergeFault> {
        let field = "modelIntegration";
        let wanted = match provider {
            ModelType::Openai => IntegrationType::Openai,
            ModelType::Anthropic => IntegrationType::Anthropic,
            _ => {
                let message = format!("modelType {} takes no integration; openai and anthropic do", provider.as_str());
                return Err(MergeFault { reason: INVALID, field, message });
            }
        };
        if self.spec.kind() != Some(wanted) {
            let word = wanted.as_str();
            let fault = self.wrong(&format!("modelType {word}"), &format!("one of type {word}"));
            return Err(MergeFault { field, ..fault });
        }
        self.settled().map_err(|fault| MergeFault { field, ..fault })?;
        let base_url = self.spec.server().unwrap_or_default();
        let is_there = wanted.info().needs_login() || self.keys().iter().any(|key| key == MODEL_KEY);
        let secret = self.spec.secret(self.name()).filter(|_| is_there);
        Ok(ModelEndpoint { base_url, key: secret.map(|secret| (secret, MODEL_KEY.to_owned())) })
    }

    /// The same for agents of the provider whose server it is.
    pub fn endpoint(&self) -> Result<ModelEndpoint, MergeFault> {
        let is_anthropic = self.spec.kind() == Some(IntegrationType::Anthropic);
        self.model(if is_anthropic { ModelType::Anthropic } else { ModelType::Openai })
    }

    /// Whether alerts can be sent to it: it is of such a type, and its login is for the server that it names.
    pub fn receiver(&self) -> Result<(), MergeFault> {
        self.used_as(Use::Alerts, "a subscription to alerts").map(drop)
    }

    /// Whether the login of this integration may be sent to a URL. It may be sent nowhere but to the host that it was written for.
    pub fn opens_for(&self, url: &str) -> bool {
        let pinned = self.status.as_ref().and_then(|status| status.origin.as_ref());
        pinned.is_some() && super::origin_of(url).as_ref() == pinned
    }

    /// What is wrong where its own Secret says which host the login in it was given for: that the spec names another one.
    pub fn given_for(&self, origin: &str) -> Result<(), MergeFault> {
        if !self.uses_own_secret() || self.spec.origin().as_deref() == Some(origin) { Ok(()) } else { Err(self.elsewhere(origin)) }
    }

    /// Whether the spec's login is in the integration's own Secret.
    pub fn uses_own_secret(&self) -> bool {
        self.spec.secret(self.name()).is_some_and(|secret| self.owns(&secret))
    }

    /// Whether this Secret is the integration's own, which needs no label.
    pub fn owns(&self, secret: &str) -> bool {
        secret == super::secret_name(self.name())
    }

    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The keys that the Secret has.
    fn keys(&self) -> &[String] {
        self.status.as_ref().map(|status| status.credential_keys.as_slice()).unwrap_or_default()
    }

    /// Whether it is known which login it has, and that is for this host.
    fn settled(&self) -> Result<(), MergeFault> {
        let Some(status) = self.status.as_ref().filter(|status| status.observed_generation.is_some_and(|seen| seen > 0)) else {
            return Err(MergeFault { reason: NOT_SEEN, ..self.invalid("integration", "has not been looked at yet") });
        };
        // A type without an origin has its URL in the Secret.
        let origin = self.spec.origin();
        if !self.uses_own_secret() || status.origin == origin {
            return Ok(());
        }
        if let Some(pinned) = status.origin.as_deref().filter(|_| status.credentials.is_some()) {
            return Err(self.elsewhere(pinned));
        }
        // One that may have no login has none, as far as is known, and is asked without.
        if origin.is_some() && (!self.keys().is_empty() || self.spec.kind().is_some_and(|kind| kind.info().needs_login())) {
            let secret = super::secret_name(self.name());
            let message = format!("has no login that is known to be for its host; its Secret {secret} is not there, or not seen yet");
            return Err(MergeFault { reason: NO_LOGIN, ..self.invalid("integration", &message) });
        }
        Ok(())
    }

    /// The login is not for the host that the spec names.
    fn elsewhere(&self, host: &str) -> MergeFault {
        let message = format!("has a login that was written for {host}; write its Secret anew, or name that host again");
        MergeFault { reason: ANOTHER_HOST, ..self.invalid("integration", &message) }
    }

    /// The type, if something like this may name it.
    fn used_as(&self, wanted: Use, who: &str) -> Result<IntegrationType, MergeFault> {
        let kind = self.spec.kind().ok_or_else(|| self.invalid("integration", "does not say what it is"))?;
        if kind.info().uses.contains(&wanted) {
            return self.settled().map(|()| kind);
        }
        let able = super::TYPES.iter().filter(|of| of.uses.contains(&wanted)).map(|of| of.kind.as_str());
        let able = able.collect::<Vec<_>>().join(", ");
        Err(self.invalid("integration", &format!("is of type {}, which {who} cannot name; these can be: {able}", kind.as_str())))
    }

    fn invalid(&self, field: &'static str, what: &str) -> MergeFault {
        MergeFault { reason: INVALID, field, message: format!("{} {what}", self.id()) }
    }

    fn wrong(&self, who: &str, wanted: &str) -> MergeFault {
        let kind = self.spec.kind().map(IntegrationType::as_str).unwrap_or_default();
        self.invalid("integration", &format!("is of type {kind}; {who} takes {wanted}"))
    }

    /// The URL of an http tool: its path, beneath the server's URL.
    fn below(&self, kind: IntegrationType, server: &str, tool: &ToolSpec) -> Result<String, MergeFault> {
        if kind == IntegrationType::Webhook && tool.method != Some(Method::Post) {
            return Err(self.invalid("method", "is of type webhook, which takes POST alone"));
        }
        let path = tool.endpoint.as_deref().unwrap_or_default();
        if !path.starts_with('/') {
            return Err(self.invalid("endpoint", "gives the server, so that this is the path there, and begins with a slash"));
        }
        if server.contains('?') {
            return Err(self.invalid("integration", "has a URL with a query, so that there is no path beneath it"));
        }
        Ok(format!("{}{path}", server.trim_end_matches('/')))
    }

    /// The header that carries the login, as far as the Secret's keys make one.
    fn login(&self, kind: IntegrationType) -> Option<SecretHeader> {
        let (info, keys) = (kind.info(), self.keys());
        let secret = self.spec.secret(self.name())?;
        let has = |name: &str| keys.iter().any(|key| key == name);
        let header = |name: &str, key: &str, scheme: Option<HeaderScheme>, user: Option<&str>| SecretHeader {
            name: name.to_owned(),
            secret: secret.clone(),
            key: key.to_owned(),
            scheme,
            username_key: user.map(str::to_owned),
        };
        let bearer = |key: &str| header("Authorization", key, Some(HeaderScheme::Bearer), None);
        if kind == IntegrationType::Anthropic {
            return Some(header("x-api-key", MODEL_KEY, None, None));
        }
        if let Some(name) = self.spec.mcp.as_ref().and_then(|mcp| mcp.header.as_deref()).filter(|_| has("token")) {
            return Some(header(name, "token", None, None));
        }
        match info.choice(keys) {
            Some(&[user, password]) => return Some(header("Authorization", password, Some(HeaderScheme::Basic), Some(user))),
            Some(&[token]) => return Some(bearer(token)),
            Some(_) => return None,
            // What is missing is told where the Secret is looked up.
            None if !info.one_of.is_empty() => return Some(bearer("token")),
            None => {}
        }
        let field = info.credentials.iter().find(|field| matches!(field.name, "token" | "api_key"))?;
        (field.required || has(field.name)).then(|| bearer(field.name))
    }
}

/// A path beneath a folder of the volume. A slash alone is all of it.
fn beneath(root: &str, path: &str) -> String {
    let parts = [root, path].map(|part| part.trim_matches('/'));
    let joined = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    if joined.is_empty() { "/".to_owned() } else { joined }
}
