//! `RUNTIME_TOOLS`: the Tools that an Agent names, in its order, without the disabled ones; and `RUNTIME_TOOL_DIGESTS`, the lists
//! of tools that servers were first seen to offer, for pods that start later.

use std::collections::BTreeMap;

use slipway_api::Track;
use slipway_api::contract::{self, HeaderAuth, ToolConfig};
use slipway_api::tool::{Protocol, ToolSpec};

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
    if let Some(changed) = seen.differs.as_ref().filter(|_| track == Track::Candidate).and_then(Differs::fault) {
        return Err(Stop::Fault(changed));
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
        if let Some(why) = seen.tool_faults.get(name) {
            return Err(fault(why.reason, format!("{field}: Tool {name}: spec.{}", why.message)));
        }
        if let Some(error) = crate::tool_rules::fault(spec) {
            return Err(fault("ToolInvalid", format!("{field}: Tool {name}: {}", error.message)));
        }
        let (headers_from, auth) = headers(&field, name, spec, seen, env)?;
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
            auth,
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

/// Header → the variable with its value, and how the others' values are made of variables.
type SecretHeaders = (BTreeMap<String, String>, BTreeMap<String, HeaderAuth>);

/// The variables of secret headers, and of those that are made of them.
fn headers(field: &str, name: &str, spec: &ToolSpec, seen: &Seen, env: &mut Vec<Variable>) -> Result<SecretHeaders, Stop> {
    let (mut plain, mut auth) = (BTreeMap::new(), BTreeMap::new());
    for header in &spec.headers_from {
        let field = format!("{field}: Tool {name}, headersFrom {}", header.name);
        if !seen.opened.contains(&(name.to_owned(), header.secret.clone())) {
            readable(seen, &header.secret, &field)?;
        }
        let mut variable = |end: &str, key: &str| {
            key_of(seen, &header.secret, key, &field)?;
            let mut variable = format!("RUNTIME_TOOL_HEADER_{}_{}{end}", word(name), word(&header.name));
            // `X-Key` of a Tool `a-b` is not `B-X-Key` of a Tool `a`, though they are spelled alike here.
            while env.iter().any(|known| known.name() == variable) {
                variable.push('_');
            }
            env.push(Variable::secret(&variable, &header.secret, key));
            Ok::<_, Stop>(variable)
        };
        let secret = variable("", &header.key)?;
        match header.scheme {
            None => drop(plain.insert(header.name.clone(), secret)),
            Some(scheme) => {
                let user = header.username_key.as_deref().map(|key| variable("_USER", key)).transpose()?;
                auth.insert(header.name.clone(), HeaderAuth { scheme, secret, user });
            }
        }
    }
    Ok((plain, auth))
}

/// `Authorization` → `AUTHORIZATION`, `get-weather` → `GET_WEATHER`.
fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
