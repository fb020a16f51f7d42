//! What an integration gives to what names it: a Tool, a source or an agent's models. Pure; the operator, the release controller and
//! tests all ask here.

use super::{Integration, IntegrationType, Use};
use crate::agent::ModelType;
use crate::ingestion::{LocalSource, Source};
use crate::tool::{HeaderScheme, Method, SecretHeader, ToolSpec, ToolType};

/// The version of Anthropic's protocol that requests of Tools bear.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Why something cannot name this integration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeFault {
    /// The field at fault of what names the integration, within its spec.
    pub field: &'static str,
    pub message: String,
}

/// What names an integration, with what that gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged<T> {
    /// As if it had been written without the integration.
    pub spec: T,
    /// The Secret with the login that it uses. It needs no label, as the integration opens it.
    pub secret: Option<String>,
}

/// The server of an agent's models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEndpoint {
    /// None: the provider's own.
    pub base_url: Option<String>,
    /// The Secret with the key.
    pub secret: String,
    /// The key within the Secret.
    pub key: &'static str,
    /// Whether there has to be one.
    pub needs_key: bool,
}

impl Integration {
    /// A Tool that names this integration, whose Secret has these keys.
    pub fn tool(&self, tool: &ToolSpec, keys: &[String]) -> Result<Merged<ToolSpec>, MergeFault> {
        let kind = self.used_as(Use::Tools, "a Tool")?;
        let server = self.spec.server().ok_or_else(|| self.incomplete())?;
        let mut spec = ToolSpec { integration: None, ..tool.clone() };
        match (tool.type_, kind) {
            (ToolType::Mcp, IntegrationType::Mcp) => spec.mcp_endpoint = Some(server),
            (ToolType::Http, of) if of != IntegrationType::Mcp => spec.endpoint = Some(self.below(of, &server, tool)?),
            (ToolType::Mcp, _) => return Err(self.wrong("a Tool of type mcp", "one of type mcp")),
            _ => return Err(self.wrong("a Tool of type http", "one of another type")),
        }
        if kind == IntegrationType::Anthropic && !spec.headers.keys().any(|name| name.eq_ignore_ascii_case(ANTHROPIC_VERSION.0)) {
            spec.headers.insert(ANTHROPIC_VERSION.0.to_owned(), ANTHROPIC_VERSION.1.to_owned());
        }
        let login = self.login(kind, keys);
        let secret = login.as_ref().map(|login| login.secret.clone());
        if let Some(login) = login {
            let is_it = |name: &str| name.eq_ignore_ascii_case(&login.name);
            if spec.headers.keys().any(|name| is_it(name)) || spec.headers_from.iter().any(|header| is_it(&header.name)) {
                let message = format!("integration {} gives the header {}; leave it out", self.id(), login.name);
                return Err(MergeFault { field: "headersFrom", message });
            }
            spec.headers_from.push(login);
        }
        Ok(Merged { spec, secret })
    }

    /// A source that names this integration.
    pub fn source(&self, source: &Source) -> Result<Merged<Source>, MergeFault> {
        let kind = self.used_as(Use::Knowledge, "a source")?;
        let of = &self.spec;
        let secret = of.secret(self.metadata.name.as_deref().unwrap_or_default());
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
            _ => {}
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
        let (of, wanted) = match provider {
            ModelType::Openai => (&self.spec.openai, IntegrationType::Openai),
            ModelType::Anthropic => (&self.spec.anthropic, IntegrationType::Anthropic),
            _ => {
                let message = format!("modelType {} takes no integration; openai and anthropic do", provider.as_str());
                return Err(MergeFault { field: "modelIntegration", message });
            }
        };
        let wrong = || {
            let word = wanted.as_str();
            let fault = self.wrong(&format!("modelType {word}"), &format!("one of type {word}"));
            MergeFault { field: "modelIntegration", ..fault }
        };
        let of = of.as_ref().filter(|_| self.spec.kind() == Some(wanted)).ok_or_else(wrong)?;
        let secret = self.spec.secret(self.metadata.name.as_deref().unwrap_or_default()).unwrap_or_default();
        let needs_key = wanted.info().needs_login();
        Ok(ModelEndpoint { base_url: of.base_url.clone(), secret, key: "api_key", needs_key })
    }

    /// The type, if something like this may name it.
    fn used_as(&self, wanted: Use, who: &str) -> Result<IntegrationType, MergeFault> {
        let kind = self.spec.kind().ok_or_else(|| self.incomplete())?;
        if kind.info().uses.contains(&wanted) {
            return Ok(kind);
        }
        let able = super::TYPES.iter().filter(|of| of.uses.contains(&wanted)).map(|of| of.kind.as_str());
        let able = able.collect::<Vec<_>>().join(", ");
        let message = format!("{} is of type {}, which {who} cannot name; these can be: {able}", self.id(), kind.as_str());
        Err(MergeFault { field: "integration", message })
    }

    fn incomplete(&self) -> MergeFault {
        MergeFault { field: "integration", message: format!("{} does not say what it is", self.id()) }
    }

    fn wrong(&self, who: &str, wanted: &str) -> MergeFault {
        let kind = self.spec.kind().map(IntegrationType::as_str).unwrap_or_default();
        MergeFault { field: "integration", message: format!("{} is of type {kind}; {who} takes {wanted}", self.id()) }
    }

    /// The URL of an http tool: its path, beneath the server's URL.
    fn below(&self, kind: IntegrationType, server: &str, tool: &ToolSpec) -> Result<String, MergeFault> {
        if kind == IntegrationType::Webhook && tool.method != Some(Method::Post) {
            return Err(MergeFault { field: "method", message: format!("{} is of type webhook, which takes POST alone", self.id()) });
        }
        let path = tool.endpoint.as_deref().unwrap_or_default();
        if !path.starts_with('/') {
            let message = format!("with integration {} it is the path there, and begins with a slash", self.id());
            return Err(MergeFault { field: "endpoint", message });
        }
        if server.contains('?') {
            let message = format!("the URL of {} has a query, so that there is no path beneath it", self.id());
            return Err(MergeFault { field: "integration", message });
        }
        Ok(format!("{}{path}", server.trim_end_matches('/')))
    }

    /// The header that carries the login, as far as the Secret's keys make one.
    fn login(&self, kind: IntegrationType, keys: &[String]) -> Option<SecretHeader> {
        let info = kind.info();
        let secret = self.spec.secret(self.metadata.name.as_deref().unwrap_or_default())?;
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
            return Some(header("x-api-key", "api_key", None, None));
        }
        if let Some(name) = self.spec.mcp.as_ref().and_then(|mcp| mcp.header.as_deref()) {
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
