//! The tool controller: says of each Tool whether it can be used.
//!
//! What a schema can see, the API server has refused already. What is left are Tools older than a rule.

use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use slipway_api::condition::{self, Finding, READY};
use slipway_api::tool::{ToolPhase, ToolSpec, ToolType};
use slipway_api::{Tool, ToolStatus};

use crate::event::Happening;
use crate::queue::Key;
use crate::world::World;
use crate::write;

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
        _ => None,
    }
}

fn endpoint_fault(endpoint: &str, spec: &ToolSpec) -> Option<Fault> {
    let wrong = |message: String| Some(Fault { reason: "FieldInvalid", message: format!("spec.endpoint: {message}") });
    let Some((scheme, rest)) = endpoint.split_once("://") else { return wrong("must begin with http:// or https://".to_owned()) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if scheme.contains('{') || authority.contains('{') {
        return wrong("must have no placeholder in scheme or host".to_owned());
    }
    let mut pieces = rest.split('{');
    if pieces.next().is_some_and(|before| before.contains('}')) {
        return wrong("must open every placeholder that it closes".to_owned());
    }
    for piece in pieces {
        let Some((name, after)) = piece.split_once('}') else { return wrong("must close every placeholder".to_owned()) };
        if after.contains('}') {
            return wrong("must open every placeholder that it closes".to_owned());
        }
        if !spec.parameters.iter().any(|parameter| parameter.name == name) {
            return wrong(format!("placeholder {{{name}}} must be declared in spec.parameters"));
        }
    }
    None
}

pub(crate) async fn reconcile(world: &World, key: &Key) -> Result<Option<Duration>, write::Error> {
    let Some(object) = world.tools.get(key) else { return Ok(None) };
    let (generation, before, fault) = match &object.0 {
        Ok(tool) => (tool.meta().generation, tool.status.clone().unwrap_or_default(), fault(&tool.spec)),
        Err(invalid) => {
            let Some(message) = world.first_word_on::<Tool>(key, invalid).await else { return Ok(Some(crate::agent::RESYNC)) };
            (invalid.metadata.generation, ToolStatus::default(), Some(Fault { reason: "Malformed", message }))
        }
    };
    let status = status(fault.as_ref(), &before, generation, Timestamp::now());
    if status != before {
        write::status::<Tool>(&world.client, key, &status, MANAGER).await?;
        if let (Some(fault), Ok(tool)) = (fault, &object.0) {
            let happening = Happening { warning: true, reason: fault.reason.to_owned(), action: "Validate", note: fault.message };
            world.events.publish(&tool.object_ref(&()), happening).await;
        }
    }
    Ok(Some(crate::agent::RESYNC))
}

fn status(fault: Option<&Fault>, before: &ToolStatus, generation: Option<i64>, now: Timestamp) -> ToolStatus {
    let finding = match fault {
        Some(fault) => Finding::new(READY, false, fault.reason, &*fault.message),
        None => Finding::new(READY, true, "Valid", "agents can use this tool"),
    };
    ToolStatus {
        phase: Some(if fault.is_some() { ToolPhase::Error } else { ToolPhase::Available }),
        observed_generation: generation,
        conditions: condition::conditions(vec![finding], &before.conditions, generation, now),
    }
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
            ("{name: t, type: http, endpoint: 'https://a.example/{c}/}{', parameters: [{name: c, type: string}]}", Some("open")),
            ("{name: t, type: http, endpoint: 'https://a.example/{c', parameters: [{name: c, type: string}]}", Some("close")),
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
