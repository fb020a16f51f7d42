//! The references of a Tool, and what the platform has and allows: a Tool may be well written and yet unusable without these.

use std::collections::BTreeMap;
use std::sync::Arc;

use slipway_api::contract::tools::{With, builtin, builtin_names};
use slipway_api::labels;
use slipway_api::tool::{ToolSpec, ToolType};
use slipway_cluster::Key;
use slipway_egress::Egress;
use url::Url;

use crate::caches::secret::SecretState;
use crate::context::Context;
use crate::fault::ConditionFault;
use crate::integrations;
use crate::tool_rules::egress;

pub(super) struct References {
    /// Those that the Tool names, as far as they are there.
    pub secrets: BTreeMap<String, Arc<SecretState>>,
    pub secrets_known: bool,
    /// The Secret of its integration, which needs no label.
    pub opened: Option<String>,
    pub egress: Egress,
    pub has_search: bool,
}

impl References {
    pub(super) fn of(context: &Context, key: &Key, spec: &ToolSpec) -> Self {
        let secret = |name: &String| Some((name.clone(), context.caches.secrets.get(&Key::new(&key.namespace, name))?));
        Self {
            secrets: spec.headers_from.iter().filter_map(|header| secret(&header.secret)).collect(),
            secrets_known: context.caches.knows_secrets_of(&key.namespace),
            opened: integrations::opened(&context.caches, &key.namespace, spec),
            egress: egress(&context.settings),
            has_search: context.settings.platform.search_url.is_some(),
        }
    }

    /// The first thing that keeps agents from using a Tool which is well written.
    pub(super) fn fault(&self, spec: &ToolSpec) -> Option<ConditionFault> {
        self.builtin(spec).or_else(|| self.address(spec)).or_else(|| self.secrets(spec))
    }

    fn builtin(&self, spec: &ToolSpec) -> Option<ConditionFault> {
        let name = &spec.name;
        match (spec.type_ == ToolType::Builtin).then(|| builtin(name))? {
            None => {
                let known = builtin_names().join(", ");
                let message = format!(
                    "spec.name: the platform's image has no builtin {name}; there are {known}. Agents with an image of their own can use one \
                     that their image brings"
                );
                Some(ConditionFault { reason: "BuiltinUnknown", message })
            }
            Some(With::Search) if !self.has_search => {
                let message =
                    format!("spec.name: {name} needs a search server, and the platform names none (chart value agents.searchUrl)");
                Some(ConditionFault { reason: "SearchNotConfigured", message })
            }
            Some(_) => None,
        }
    }

    fn address(&self, spec: &ToolSpec) -> Option<ConditionFault> {
        let (field, text) = match spec.type_ {
            ToolType::Http => ("endpoint", spec.endpoint.as_deref()?),
            ToolType::Mcp => ("mcpEndpoint", spec.mcp_endpoint.as_deref()?),
            ToolType::Cli | ToolType::Builtin => return None,
        };
        let blocked = self.egress.check(&Url::parse(text).ok()?).err()?;
        Some(ConditionFault { reason: "AddressNotAllowed", message: format!("spec.{field}: {blocked}") })
    }

    fn secrets(&self, spec: &ToolSpec) -> Option<ConditionFault> {
        if !self.secrets_known {
            return None;
        }
        spec.headers_from.iter().find_map(|header| {
            let (name, key) = (&header.secret, &header.key);
            let (reason, message) = match self.secrets.get(name) {
                None => ("SecretMissing", format!("Secret {name} does not exist in this namespace")),
                Some(secret) if !secret.readable && self.opened.as_ref() != Some(name) => (
                    "SecretNotAllowed",
                    format!("Secret {name} lacks the label {}=true, without which agents cannot use it", labels::AGENT_READABLE),
                ),
                Some(secret) => {
                    let key = [Some(key), header.username_key.as_ref()].into_iter().flatten().find(|key| !secret.keys.contains(key))?;
                    ("SecretKeyMissing", format!("Secret {name} has no key {key}"))
                }
            };
            Some(ConditionFault { reason, message: format!("spec.headersFrom {}: {message}", header.name) })
        })
    }

    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        let settings = crate::testing::settings(None);
        Self { secrets: BTreeMap::new(), secrets_known: true, opened: None, egress: egress(&settings), has_search: false }
    }
}

#[cfg(test)]
mod tests {
    use slipway_api::tool::ToolPhase;

    use super::*;
    use crate::tool::approval::Judgement;
    use crate::tool::standing;

    #[test]
    fn a_tool_is_available_when_agents_can_use_it() {
        use ToolPhase::{Available, Disabled, Error, Unknown};
        let secret = |readable, keys: &[&str]| {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            Arc::new(SecretState { readable, keys, origin: None, hash: [0; 32] })
        };
        let mut references = References::nothing();
        references.secrets.insert("good".to_owned(), secret(true, &["key"]));
        references.secrets.insert("closed".to_owned(), secret(false, &["key"]));
        let asks = |name: &str| format!("type: http, endpoint: 'https://a.example/', headersFrom: [{{name: X, secret: {name}, key: key}}]");
        let other_key = "type: http, endpoint: 'https://a.example/', headersFrom: [{name: X, secret: good, key: other}]";
        for (spec, phase, reason, says) in [
            ("name: calculator, type: builtin".to_owned(), Available, "Valid", ""),
            ("name: clock, type: builtin".to_owned(), Error, "BuiltinUnknown", "calculator"),
            ("name: remember, type: builtin".to_owned(), Available, "Valid", ""),
            ("name: search, type: builtin".to_owned(), Error, "SearchNotConfigured", "agents.searchUrl"),
            ("name: calculator, type: builtin, enabled: false".to_owned(), Disabled, "Disabled", "spec.enabled"),
            ("name: t, type: http".to_owned(), Error, "FieldMissing", "spec.endpoint"),
            ("name: t, type: http, enabled: false".to_owned(), Error, "FieldMissing", "spec.endpoint"),
            (
                "name: t, type: http, endpoint: 'https://a.example/{c}', parameters: [{name: c, type: string}]".to_owned(),
                Available,
                "Valid",
                "",
            ),
            ("name: t, type: http, endpoint: 'http://10.0.0.1/'".to_owned(), Error, "AddressNotAllowed", "spec.endpoint"),
            (
                "name: t, type: http, endpoint: 'http://metadata.google.internal/{c}', parameters: [{name: c, type: string}]".to_owned(),
                Error,
                "AddressNotAllowed",
                "spec.endpoint",
            ),
            ("name: t, type: mcp, mcpEndpoint: 'http://localhost:8080/mcp'".to_owned(), Error, "AddressNotAllowed", "spec.mcpEndpoint"),
            ("name: t, type: mcp, mcpEndpoint: 'https://a.example/mcp'".to_owned(), Unknown, "NotAnswered", "server"),
            ("name: t, type: cli, binary: /opt/server, protocol: mcp".to_owned(), Unknown, "NotAnswered", "server"),
            ("name: t, type: cli, binary: /bin/df, allowedCommands: [-h]".to_owned(), Available, "Valid", ""),
            (format!("name: t, {}", asks("good")), Available, "Valid", ""),
            (format!("name: t, {}", asks("nowhere")), Error, "SecretMissing", "Secret nowhere"),
            (format!("name: t, {}", asks("closed")), Error, "SecretNotAllowed", labels::AGENT_READABLE),
            (format!("name: t, {other_key}"), Error, "SecretKeyMissing", "no key other"),
        ] {
            let (found, finding) = standing(&serde_yaml::from_str(&format!("{{{spec}}}")).unwrap(), &Judgement::default(), &references);
            assert_eq!((found, &*finding.reason), (phase, reason), "{spec}: {}", finding.message);
            assert!(finding.message.contains(says), "{spec}: {}", finding.message);
            let ready = match phase {
                Available => Some(true),
                Unknown => None,
                Error | Disabled => Some(false),
            };
            assert_eq!(finding.holds, ready, "{spec}");
        }
        references.secrets_known = false;
        let spec = serde_yaml::from_str(&format!("{{name: t, {}}}", asks("nowhere"))).unwrap();
        assert_eq!(standing(&spec, &Judgement::default(), &references).0, Unknown, "a Secret may be there that has not been read yet");
    }
}
