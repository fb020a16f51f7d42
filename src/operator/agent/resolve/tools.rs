//! `RUNTIME_TOOLS`: the Tools that an Agent names, in its order, without the disabled ones; and what `RUNTIME_TOOL_DIGESTS`
//! tells whichever pod starts next, the lists of tools that servers were seen to offer first.

use std::collections::BTreeMap;

use slipway_api::Track;
use slipway_api::contract::{self, ToolConfig};
use slipway_api::tool::Protocol;

use super::secrets::{key_of, readable};
use super::{Stop, Variable, fault, json};
use crate::agent::gather::Seen;
use crate::agent::released_tools::Differs;

/// What came of each Tool that is in use, with words for the place that it comes from.
type Named = Vec<(String, ToolConfig)>;

/// The Tools in use; and the digests, where one of them speaks mcp.
pub(super) fn tools(
    track: Track,
    seen: &Seen,
    variables: &mut BTreeMap<&'static str, String>,
    env: &mut Vec<Variable>,
) -> Result<(Named, Option<String>), Stop> {
    let mut named = Vec::new();
    let changed = seen.differs.as_ref().filter(|differs| track == Track::Candidate && !differs.lost.is_empty());
    if let Some(Differs { version, lost, .. }) = changed {
        let message = format!(
            "spec.tools: {} changed since release v{version} was made; a release of what is there now is evaluated in its place",
            lost.join(", ")
        );
        return Err(fault("ToolChanged", message));
    }
    if seen.tools.is_empty() {
        return Ok((named, None));
    }
    let mut approved = BTreeMap::new();
    let mut speaks_mcp = false;
    for (at, (name, tool)) in seen.tools.iter().enumerate() {
        let field = format!("spec.tools[{at}]");
        let Some(tool) = tool else {
            return Err(fault("ToolNotFound", format!("{field}: there is no Tool {name} in this namespace")));
        };
        let tool =
            tool.0.as_ref().map_err(|invalid| fault("ToolInvalid", format!("{field}: Tool {name} cannot be read: {}", invalid.error)))?;
        let spec = &tool.spec;
        if !spec.enabled {
            continue;
        }
        if let Some(error) = crate::tool_rules::fault(spec) {
            return Err(fault("ToolInvalid", format!("{field}: Tool {name}: {}", error.message)));
        }
        let mut headers_from = BTreeMap::new();
        for header in &spec.headers_from {
            let field = format!("{field}: Tool {name}, headersFrom {}", header.name);
            readable(seen, &header.secret, &field)?;
            key_of(seen, &header.secret, &header.key, &field)?;
            let mut variable = format!("RUNTIME_TOOL_HEADER_{}_{}", word(name), word(&header.name));
            // `X-Key` of a Tool `a-b` is not `B-X-Key` of a Tool `a`, though they are spelled alike here.
            while env.iter().any(|known| known.name() == variable) {
                variable.push('_');
            }
            env.push(Variable::secret(&variable, &header.secret, &header.key));
            headers_from.insert(header.name.clone(), variable);
        }
        if let Some(server) = spec.server() {
            speaks_mcp = true;
            let status = tool.status.as_ref().filter(|status| status.tools_server.as_ref() == Some(&server));
            if let (None, Some(digest)) = (&spec.tools_digest, status.and_then(|status| status.tools_digest.as_ref())) {
                approved.insert(spec.name.clone(), digest.clone());
            }
        }
        let spec = spec.clone();
        let config = ToolConfig {
            name: spec.name,
            type_: spec.type_,
            category: spec.category,
            description: spec.description,
            endpoint: spec.endpoint,
            method: spec.method,
            headers: spec.headers,
            headers_from,
            parameters: spec.parameters,
            binary: spec.binary,
            allowed_commands: spec.allowed_commands,
            protocol: spec.protocol.filter(|protocol| *protocol != Protocol::Arguments),
            mcp_endpoint: spec.mcp_endpoint,
            tools_digest: spec.tools_digest,
            timeout: spec.timeout,
        };
        named.push((format!("{field}: Tool {name}"), config));
    }
    variables.insert(contract::TOOLS, json(&named.iter().map(|(_, config)| config).collect::<Vec<_>>()));
    Ok((named, speaks_mcp.then(|| json(&approved))))
}

/// `Authorization` → `AUTHORIZATION`, `get-weather` → `GET_WEATHER`.
fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
