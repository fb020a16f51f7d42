//! The operator's settings for all tools of an agent: egress exceptions, the search endpoint, the output limit, and the
//! approved tool lists of MCP servers.

use std::collections::BTreeMap;
use std::fmt;

use slipway_api::contract::{EGRESS_ALLOW, EGRESS_PROXY, SEARCH_URL, TOOL_DIGESTS};
use slipway_egress::{Allowed, Egress, EgressProfile, redacted};
use url::Url;

/// 32 KiB, some 8,000 tokens.
pub const OUTPUT_LIMIT: usize = 32 * 1024;

#[derive(Clone)]
pub struct ToolSettings {
    /// Networks and hosts that http and mcp tools may reach although they are not public. `RUNTIME_EGRESS_ALLOW`.
    pub allow: Vec<Allowed>,
    /// The bytes of a call's output that the model gets.
    pub output_limit: usize,
    /// The search page of a SearXNG-compatible server, for the builtin `search`. `RUNTIME_SEARCH_URL`.
    pub search: Option<Url>,
    /// An HTTP proxy for all requests. `HTTPS_PROXY` and the like are ignored. `RUNTIME_EGRESS_PROXY`.
    pub proxy: Option<Url>,
    /// The digests of the approved tool lists of MCP servers, by tool. For a server that is not in it, the first list that it
    /// offers is approved. `None`: servers may change their tools. `RUNTIME_TOOL_DIGESTS`.
    pub approved: Option<BTreeMap<String, String>>,
}

/// Shows scheme, host and port of URLs only, because they may hold passwords.
impl fmt::Debug for ToolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSettings")
            .field("allow", &self.allow)
            .field("output_limit", &self.output_limit)
            .field("search", &self.search.as_ref().map(redacted))
            .field("proxy", &self.proxy.as_ref().map(redacted))
            .field("approved", &self.approved)
            .finish()
    }
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self { allow: Vec::new(), output_limit: OUTPUT_LIMIT, search: None, proxy: None, approved: None }
    }
}

impl ToolSettings {
    /// The egress client of all tools.
    pub(crate) fn egress(&self) -> Egress {
        let profile =
            EgressProfile { name: "tools", setting: EGRESS_ALLOW, user_agent: concat!("slipway-runtime/", env!("CARGO_PKG_VERSION")) };
        Egress::new(profile, &self.allow, self.proxy.clone())
    }

    /// Reads the environment. The error has a line for every invalid variable.
    pub fn read(variables: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let mut settings = Self::default();
        let mut faults = Vec::new();
        let set = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        for entry in Allowed::entries(&set(EGRESS_ALLOW).unwrap_or_default()) {
            match entry {
                Ok(allowed) => settings.allow.push(allowed),
                Err(fault) => faults.push(format!("{EGRESS_ALLOW}: {fault}")),
            }
        }
        for (name, url) in [(SEARCH_URL, &mut settings.search), (EGRESS_PROXY, &mut settings.proxy)] {
            let Some(value) = set(name) else { continue };
            match Url::parse(value.trim()) {
                Ok(value) if matches!(value.scheme(), "http" | "https") && value.host().is_some() => *url = Some(value),
                // The value is not quoted, because it may hold a password.
                _ => faults.push(format!("{name}: must be an http or https URL, as in http://search.internal:8080/search")),
            }
        }
        if let Some(value) = set(TOOL_DIGESTS) {
            match serde_json::from_str(&value) {
                Ok(approved) => settings.approved = Some(approved),
                Err(error) => faults.push(format!(r#"{TOOL_DIGESTS}: must be a JSON object such as {{"tool": "sha256:…"}}: {error}"#)),
            }
        }
        if faults.is_empty() { Ok(settings) } else { Err(faults) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_faulty_variable_is_named_and_no_password_is_quoted() {
        let faults = ToolSettings::read(&|name| match name {
            EGRESS_ALLOW => Some("10.0.0.0/8, nonsense, wiki.internal:443".into()),
            SEARCH_URL => Some("user:hunter2@search".into()),
            TOOL_DIGESTS => Some("[]".into()),
            _ => None,
        })
        .unwrap_err();
        assert_eq!(faults.len(), 3);
        assert!(faults[2].starts_with("RUNTIME_TOOL_DIGESTS: must be a JSON object"), "{faults:?}");
        assert!(faults[0].starts_with("RUNTIME_EGRESS_ALLOW: 'nonsense'"), "{faults:?}");
        assert!(faults[1].starts_with("RUNTIME_SEARCH_URL: ") && !faults[1].contains("hunter2"), "{faults:?}");
        let proxied = ToolSettings::read(&|name| (name == EGRESS_PROXY).then(|| "http://me:hunter2@proxy:3128".into())).unwrap();
        assert!(format!("{proxied:?}").contains("http://proxy:3128") && !format!("{proxied:?}").contains("hunter2"));
        assert_eq!(ToolSettings::read(&|_| Some(" ".into())).unwrap().output_limit, 32 * 1024);
    }
}
