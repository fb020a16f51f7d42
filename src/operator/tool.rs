//! The tool controller: says of each Tool whether it can be used.
//!
//! What a schema can see, the API server has refused already. What is left are Tools older than a rule, what a Tool names and
//! the platform has or allows (`around`), and servers that do not offer the tools that were approved (`approval`).

mod around;

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use slipway_api::condition::{self, Finding, READY};
use slipway_api::contract::command;
use slipway_api::contract::endpoint::Endpoint;
use slipway_api::contract::tools::{CONNECTION_HEADERS, PROTOCOL_HEADERS, SHELLS};
use slipway_api::tool::{Protocol, ToolPhase, ToolSpec, ToolType};
use slipway_api::{Tool, ToolStatus};
use slipway_egress::{Egress, Whose};
use url::Url;

use crate::approval::{self, Judgement};
use crate::event::Happening;
use crate::settings::Settings;
use crate::world::World;
use crate::write;
use around::Around;
use slipway_cluster::Key;
use slipway_cluster::controller::RESYNC;

const MANAGER: &str = "slipway/tool";

/// What is wrong with a Tool, and in which field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub reason: &'static str,
    pub message: String,
}

/// The first thing that is wrong with a Tool.
pub(crate) fn fault(spec: &ToolSpec) -> Option<Fault> {
    let missing =
        |field: &str, kind: &str| Fault { reason: "FieldMissing", message: format!("spec.{field}: is required for a tool of type {kind}") };
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
    let whose = Whose { name: "tools", setting: "the chart value agents.egressAllow", user_agent: "" };
    // What cannot be read was refused when the manager started.
    let allow: Vec<_> = settings.platform.egress_allow.iter().filter_map(|item| item.parse().ok()).collect();
    Egress::new(whose, &allow, None)
}

fn invalid(field: &str, message: impl Display) -> Fault {
    Fault { reason: "FieldInvalid", message: format!("spec.{field}: {message}") }
}

fn url_fault(field: &str, text: &str) -> Option<Fault> {
    Url::parse(text).err().map(|error| invalid(field, format!("is not a URL: {error}")))
}

/// What can be said of a program without its image: the file itself, only an agent's pod can see.
fn program_fault(spec: &ToolSpec) -> Option<Fault> {
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
    Some(Fault { reason, message: format!("spec.{field}: {message}") })
}

fn header_fault(spec: &ToolSpec) -> Option<Fault> {
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

fn endpoint_fault(endpoint: &str, spec: &ToolSpec) -> Option<Fault> {
    let endpoint = match Endpoint::parse(endpoint) {
        Ok(endpoint) => endpoint,
        Err(wrong) => return Some(invalid("endpoint", wrong)),
    };
    let declared = |name: &str| spec.parameters.iter().any(|parameter| parameter.name == *name);
    let stray = endpoint.placeholders().into_iter().find(|name| !declared(name))?;
    Some(invalid("endpoint", format!("placeholder {{{stray}}} must be declared in spec.parameters")))
}

pub(crate) async fn reconcile(world: &World, key: &Key) -> Result<Option<Duration>, write::Error> {
    let Some(object) = world.tools.get(key) else {
        world.untroubled("Tool", key);
        return Ok(None);
    };
    let tool = match &object.0 {
        Ok(tool) => tool,
        Err(invalid) => {
            world.malformed::<Tool>(key, invalid, ToolPhase::Error, &[(READY, false)]).await?;
            return Ok(Some(RESYNC));
        }
    };
    let mut before = tool.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    let judgement = approval::judge(key, &tool.spec, &before, &world.reports.of(key));
    let standing = standing(&tool.spec, &judgement, &Around::of(world, key, &tool.spec));
    let status = status(standing, &judgement, &before, tool.meta().generation, Timestamp::now());
    let about = tool.object_ref(&());
    if status != before {
        write::status::<Tool>(&world.client, key, &status, MANAGER).await?;
        for happening in happenings(&before, &status) {
            world.events.publish(&about, happening).await;
        }
    }
    let (trouble, is_news) = trouble(&before, &status);
    let due = world.warn("Tool", key, &about, trouble, is_news).await;
    Ok(Some(due.map_or(RESYNC, |due| due.min(RESYNC))))
}

/// Whether agents can use a Tool now, and why not.
fn standing(spec: &ToolSpec, judgement: &Judgement, around: &Around) -> (ToolPhase, Finding) {
    let error = |reason: &str, message: &str| (ToolPhase::Error, Finding::new(READY, false, reason, message));
    let unknown = |reason: &str, message: &str| (ToolPhase::Unknown, Finding::unknown(READY, reason, message));
    if let Some(fault) = fault(spec) {
        return error(fault.reason, &fault.message);
    }
    if !spec.enabled {
        return (ToolPhase::Disabled, Finding::new(READY, false, "Disabled", "spec.enabled is false; no agent has this tool"));
    }
    if let Some(fault) = around.fault(spec) {
        return error(fault.reason, &fault.message);
    }
    if judgement.observed.is_some() {
        return error(approval::CHANGED, &judgement.message);
    }
    if !around.secrets_known && !spec.headers_from.is_empty() {
        return unknown("SecretsUnread", "the Secrets of the namespace have not been read yet");
    }
    if spec.server().is_some() {
        return if judgement.answered {
            (ToolPhase::Available, Finding::new(READY, true, approval::ANSWERED, "the server has answered; agents can use this tool"))
        } else {
            let message = "no pod of an agent that names this tool has had an answer from the server yet";
            unknown(approval::NOT_ANSWERED, message)
        };
    }
    (ToolPhase::Available, Finding::new(READY, true, "Valid", "agents can use this tool"))
}

fn status(
    (phase, finding): (ToolPhase, Finding),
    judgement: &Judgement,
    before: &ToolStatus,
    generation: Option<i64>,
    now: Timestamp,
) -> ToolStatus {
    let Judgement { server, approved, observed, .. } = judgement.clone();
    ToolStatus {
        phase: Some(phase),
        tools_digest: approved,
        tools_server: server,
        observed_digest: observed,
        observed_generation: generation,
        conditions: condition::conditions(vec![finding], &before.conditions, generation, now),
    }
}

/// What is wrong with the Tool, as a Warning, and whether it is something else than before. A changed list is told apart.
fn trouble(before: &ToolStatus, now: &ToolStatus) -> (Option<Happening>, bool) {
    let of = |status: &ToolStatus| status.conditions.iter().find(|condition| condition.type_ == READY).cloned();
    let Some(ready) = of(now).filter(|ready| now.phase == Some(ToolPhase::Error) && ready.reason != approval::CHANGED) else {
        return (None, false);
    };
    let is_news = of(before).is_none_or(|old| (old.reason, old.message) != (ready.reason.clone(), ready.message.clone()));
    (Some(Happening { warning: true, reason: ready.reason, action: "Validate", note: ready.message }), is_news)
}

/// What is worth an Event at once in the step from one status to the next.
fn happenings(before: &ToolStatus, now: &ToolStatus) -> Vec<Happening> {
    let happening = |warning, reason: &str, action, note| Happening { warning, reason: reason.to_owned(), action, note };
    let mut all = Vec::new();
    if let Some(digest) = now.tools_digest.as_ref().filter(|_| now.tools_digest != before.tools_digest) {
        all.push(happening(false, "ToolsApproved", "Approve", format!("the list of tools with digest {digest} is the approved one")));
    } else if before.observed_digest.is_some() && now.observed_digest.is_none() && now.tools_digest.is_some() {
        all.push(happening(false, "ToolsRestored", "Compare", "the server offers the approved list of tools again".to_owned()));
    }
    if now.observed_digest.is_some() && now.observed_digest != before.observed_digest {
        let condition = now.conditions.iter().find(|condition| condition.reason == approval::CHANGED);
        all.extend(condition.map(|condition| happening(true, approval::CHANGED, "Compare", condition.message.clone())));
    }
    all
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

    #[test]
    fn each_turn_of_an_approval_is_one_event() {
        let of = |approved: Option<&str>, observed: Option<&str>| {
            let judgement = Judgement {
                server: approved.map(|_| "https://m".to_owned()),
                approved: approved.map(str::to_owned),
                observed: observed.map(str::to_owned),
                answered: approved.is_some(),
                message: "other tools".to_owned(),
            };
            let spec = serde_yaml::from_str("{name: t, type: mcp, mcpEndpoint: 'https://m.example/mcp'}").unwrap();
            let standing = standing(&spec, &judgement, &Around::nothing());
            status(standing, &judgement, &ToolStatus::default(), Some(1), Timestamp::UNIX_EPOCH)
        };
        let (fresh, seen, changed) = (of(None, None), of(Some("a"), None), of(Some("a"), Some("b")));
        assert_eq!(
            (fresh.phase, seen.phase, changed.phase),
            (Some(ToolPhase::Unknown), Some(ToolPhase::Available), Some(ToolPhase::Error))
        );
        assert_eq!((fresh.conditions[0].status.as_str(), fresh.conditions[0].reason.as_str()), ("Unknown", "NotAnswered"));
        assert_eq!((changed.conditions[0].reason.as_str(), changed.conditions[0].message.as_str()), ("ToolsChanged", "other tools"));
        for (before, now, expected) in [
            (&fresh, &fresh, &[][..]),
            (&fresh, &seen, &["ToolsApproved"]),
            (&seen, &changed, &["ToolsChanged"]),
            (&changed, &changed, &[]),
            (&changed, &of(Some("a"), Some("c")), &["ToolsChanged"]),
            (&changed, &seen, &["ToolsRestored"]),
            (&changed, &of(Some("b"), None), &["ToolsApproved"]),
            (&changed, &of(Some("b"), Some("c")), &["ToolsApproved", "ToolsChanged"]),
            (&changed, &fresh, &[]),
        ] {
            let reasons: Vec<_> = happenings(before, now).into_iter().map(|happening| happening.reason).collect();
            assert_eq!(reasons, expected, "{before:?} {now:?}");
        }
    }
}
