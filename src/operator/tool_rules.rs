//! Rules for the spec of a Tool alone. Rules that a schema can express are enforced by the API server; these are the others, and
//! also hold for Tools that are older than a rule.

use std::fmt::Display;
use std::path::Path;

use slipway_api::contract::command;
use slipway_api::contract::endpoint::Endpoint;
use slipway_api::contract::tools::{CONNECTION_HEADERS, PROTOCOL_HEADERS, SHELLS};
use slipway_api::tool::{Protocol, ToolSpec, ToolType};
use slipway_egress::{Egress, EgressProfile};
use url::Url;

use crate::fault::ConditionFault;
use crate::settings::Settings;

/// The first thing that is wrong with a Tool.
pub(crate) fn fault(spec: &ToolSpec) -> Option<ConditionFault> {
    let missing = |field: &str, kind: &str| ConditionFault {
        reason: "FieldMissing",
        message: format!("spec.{field}: is required for a tool of type {kind}"),
    };
    match spec.type_ {
        ToolType::Http if spec.endpoint.is_none() => Some(missing("endpoint", "http")),
        ToolType::Cli if spec.binary.is_none() => Some(missing("binary", "cli")),
        ToolType::Mcp if spec.mcp_endpoint.is_none() => Some(missing("mcpEndpoint", "mcp")),
        ToolType::Http => spec.endpoint.as_deref().and_then(|endpoint| endpoint_fault(endpoint, spec)),
        ToolType::Cli => program_fault(spec),
        ToolType::Mcp => spec.mcp_endpoint.as_deref().and_then(|endpoint| url_fault("mcpEndpoint", endpoint)),
        ToolType::Builtin => None,
    }
    .or_else(|| header_fault(spec))
}

/// The way out as agents have it, of which only the rules are asked.
pub(crate) fn egress(settings: &Settings) -> Egress {
    egress_of(settings, "tools")
}

/// The same for others, who are named in the plural.
pub(crate) fn egress_of(settings: &Settings, name: &'static str) -> Egress {
    let profile = EgressProfile { name, setting: "the chart value agents.egressAllow", user_agent: "" };
    // What cannot be read was refused when the manager started.
    let allow: Vec<_> = settings.platform.egress_allow.iter().filter_map(|item| item.parse().ok()).collect();
    Egress::new(profile, &allow, None)
}

fn invalid(field: &str, message: impl Display) -> ConditionFault {
    ConditionFault { reason: "FieldInvalid", message: format!("spec.{field}: {message}") }
}

fn url_fault(field: &str, text: &str) -> Option<ConditionFault> {
    Url::parse(text).err().map(|error| invalid(field, format!("is not a URL: {error}")))
}

/// What can be said of a program without its image: the file itself, only an agent's pod can see.
fn program_fault(spec: &ToolSpec) -> Option<ConditionFault> {
    let binary = spec.binary.as_deref().unwrap_or_default();
    let parts: Vec<&str> = binary.split('/').collect();
    if parts.contains(&"..") {
        return Some(invalid("binary", "must be an absolute path without .., as in /usr/bin/git"));
    }
    if let Some(shell) = parts.last().filter(|name| SHELLS.contains(name)) {
        let message =
            format!("{shell} runs whatever it is told, which no list of commands can limit; name the program itself, or a script");
        return Some(invalid("binary", message));
    }
    let entries = spec.allowed_commands.as_deref().unwrap_or_default();
    let program = Path::new(binary).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let judged = match spec.protocol {
        Some(Protocol::Mcp) => command::fixed(entries, program, &spec.parameters).map(drop),
        _ => command::commands(entries, program, &spec.parameters).map(drop),
    };
    let (field, message) = judged.err()?.into_iter().next()?;
    let reason = if field == "allowedCommands" && entries.is_empty() { "FieldMissing" } else { "FieldInvalid" };
    Some(ConditionFault { reason, message: format!("spec.{field}: {message}") })
}

fn header_fault(spec: &ToolSpec) -> Option<ConditionFault> {
    let literal = spec.headers.keys().map(|name| ("headers", name));
    let secret = spec.headers_from.iter().map(|header| ("headersFrom", &header.name));
    let is_twice = |name: &str| spec.headers_from.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count() > 1;
    literal.chain(secret).find_map(|(field, name)| {
        let lower = name.to_ascii_lowercase();
        if CONNECTION_HEADERS.contains(&&*lower) {
            Some(invalid(field, format!("{name} belongs to the connection and cannot be set")))
        } else if spec.type_ == ToolType::Mcp && PROTOCOL_HEADERS.contains(&&*lower) {
            Some(invalid(field, format!("{name} belongs to the protocol and cannot be set")))
        } else if field == "headersFrom" && is_twice(name) {
            Some(invalid(field, format!("{name} is there twice; in headers capitals make no difference")))
        } else if field == "headers" && spec.headers[name].bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            Some(invalid(field, format!("{name}: the value must be printable text on one line")))
        } else {
            None
        }
    })
}

fn endpoint_fault(endpoint: &str, spec: &ToolSpec) -> Option<ConditionFault> {
    let endpoint = match Endpoint::parse(endpoint) {
        Ok(endpoint) => endpoint,
        Err(wrong) => return Some(invalid("endpoint", wrong)),
    };
    let declared = |name: &str| spec.parameters.iter().any(|parameter| parameter.name == *name);
    let stray = endpoint.placeholders().into_iter().find(|name| !declared(name))?;
    Some(invalid("endpoint", format!("placeholder {{{stray}}} must be declared in spec.parameters")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_the_field() {
        let cases = [
            ("{name: t, type: http}", Some("spec.endpoint")),
            ("{name: t, type: cli}", Some("spec.binary")),
            ("{name: t, type: mcp}", Some("spec.mcpEndpoint")),
            ("{name: t, type: builtin}", None),
            ("{name: t, type: http, endpoint: 'https://a.example/{c}'}", Some("{c}")),
            ("{name: t, type: http, endpoint: 'https://{c}.example/', parameters: [{name: c, type: string}]}", Some("host")),
            ("{name: t, type: http, endpoint: 'https://a.example/{c}', parameters: [{name: c, type: string}]}", None),
            ("{name: t, type: http, endpoint: 'https://a.example/{c}/}{', parameters: [{name: c, type: string}]}", Some("is not closed")),
            ("{name: t, type: http, endpoint: 'https://a.example/{c', parameters: [{name: c, type: string}]}", Some("is not closed")),
            ("{name: t, type: http, endpoint: 'https://a.example:99999/'}", Some("is not a URL: invalid port")),
            ("{name: t, type: http, endpoint: 'https://a.example/x/%2E%2e/y'}", Some("spec.endpoint: the path must not hold . or ..")),
            ("{name: t, type: http, endpoint: 'https://a.example/x?up=..'}", None),
            ("{name: t, type: http, endpoint: 'https://a.example/', headers: {Host: b}}", Some("spec.headers: Host")),
            ("{name: t, type: http, endpoint: 'https://a.example/', headers: {Accept: text/plain}}", None),
            ("{name: t, type: mcp, mcpEndpoint: 'https://a.example:99999/'}", Some("spec.mcpEndpoint: is not a URL")),
            ("{name: t, type: mcp, mcpEndpoint: 'https://a.example/', headers: {Accept: text/plain}}", Some("spec.headers: Accept")),
            (
                "{name: t, type: mcp, mcpEndpoint: 'https://a.example/', headersFrom: [{name: TE, secret: s, key: k}]}",
                Some("spec.headersFrom: TE"),
            ),
            ("{name: t, type: cli, binary: /opt/../bin/df, allowedCommands: [-h]}", Some("spec.binary: must be an absolute path")),
            ("{name: t, type: cli, binary: /bin/bash, allowedCommands: [-c]}", Some("spec.binary: bash")),
            ("{name: t, type: cli, binary: /bin/df}", Some("spec.allowedCommands: must name")),
            ("{name: t, type: cli, binary: /bin/df, allowedCommands: []}", Some("spec.allowedCommands: must name")),
            ("{name: t, type: cli, binary: /bin/df, allowedCommands: [-h]}", None),
            ("{name: t, type: cli, binary: /opt/server, protocol: mcp}", None),
            (
                "{name: t, type: cli, binary: /opt/server, protocol: mcp, allowedCommands: ['serve \"a b\"']}",
                Some("quotes have no meaning"),
            ),
            ("{name: t, type: cli, binary: /bin/df, allowedCommands: ['-h {disk}']}", Some("{disk} is not declared")),
            ("{name: t, type: cli, binary: /bin/df, allowedCommands: [-h, -h]}", Some("twice")),
            (
                "{name: t, type: cli, binary: /bin/df, allowedCommands: [-h], parameters: [{name: disk, type: string}]}",
                Some("spec.parameters: 'disk' is used by no command"),
            ),
            ("{name: t, type: http, endpoint: 'https://a\\b.example/'}", Some("spec.endpoint")),
            ("{name: t, type: http, endpoint: 'https://a.example/x\\'}", Some("nor backslashes")),
            (
                "{name: t, type: http, endpoint: 'https://a.example/', headers: {X: \"a\\x7Fb\"}}",
                Some("spec.headers: X: the value must be printable"),
            ),
            (
                "{name: t, type: http, endpoint: 'https://a.example/', headersFrom: [{name: X-A, secret: s, key: k}, {name: x-a, secret: t, key: k}]}",
                Some("spec.headersFrom: X-A is there twice"),
            ),
        ];
        for (yaml, expected) in cases {
            let found = fault(&serde_yaml::from_str(yaml).unwrap()).map(|fault| fault.message);
            match expected {
                Some(part) => assert!(found.as_ref().is_some_and(|message| message.contains(part)), "{yaml}: {found:?}"),
                None => assert_eq!(found, None, "{yaml}"),
            }
        }
    }
}
