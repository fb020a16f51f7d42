//! Errors of the API server in the terms of REST's callers: fields as REST spells them, kinds as REST names them.

use kube::core::Status;
use kube::core::response::StatusCause;
use slipway_http::{Error, HeaderValue, StatusCode, header};

use crate::fields;

/// An error may quote the refused value; it is truncated.
const MESSAGE_BYTES_MAX: usize = 600;
/// The API server adds this when another violation kept it from evaluating a rule.
const RULES_NOT_CHECKED: &str = "some validation rules were not checked";

/// `what` names the object in the caller's terms: `agent helper`.
pub(crate) fn from_kube(error: kube::Error, what: &str) -> Error {
    match error {
        kube::Error::Api(status) => from_status(&status, what),
        error => unavailable().because(error),
    }
}

/// The same for a write that was made as `caller`, whose right may have been revoked since it was checked.
pub(crate) fn from_write(error: kube::Error, what: &str, caller: Option<&str>) -> Error {
    match (error, caller) {
        (kube::Error::Api(status), Some(caller))
            if status.code == 403 && status.message.contains(&format!("User \"{caller}\" cannot ")) =>
        {
            Error::new(StatusCode::FORBIDDEN, message(&status, what))
        }
        (error, _) => from_kube(error, what),
    }
}

/// 503: the API server does not answer.
pub(crate) fn unavailable() -> Error {
    Error::unavailable("the cluster does not answer").with_header(header::RETRY_AFTER, HeaderValue::from_static("5"))
}

/// Whether an object of the name exists already.
pub(crate) fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

fn from_status(status: &Status, what: &str) -> Error {
    let conflict = |message: String| Error::new(StatusCode::CONFLICT, message);
    let caused = |reason: &str| status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason);
    match status.code {
        // The 404 of an object, or of its namespace.
        404 if status.details.as_ref().is_some_and(|details| details.kind == "namespaces") => {
            Error::not_found("the team has no namespace; it is being made, or is going")
        }
        404 => Error::not_found(format!("there is no {what}")),
        409 if status.reason == "AlreadyExists" && status.message.contains("object is being deleted") => {
            conflict(format!("{what} is still being deleted; try again in a moment"))
        }
        409 if status.reason == "AlreadyExists" => conflict(format!("there is already {} {what}", article(what))),
        403 if caused("NamespaceTerminating") => conflict("the team is being deleted".to_owned()),
        409 => conflict(format!("{what} was changed by somebody else at the same time: {}", message(status, what))),
        400 | 422 => Error::bad_request(message(status, what)),
        // The caller's right was checked before, so that REST's own account lacks one. Policies and quotas use other
        // messages.
        403 if !status.message.contains(" cannot ") => Error::new(StatusCode::FORBIDDEN, message(status, what)),
        413 => Error::new(StatusCode::PAYLOAD_TOO_LARGE, message(status, what)),
        429 | 500..=599 => unavailable().because(status.message.clone()),
        _ => Error::internal(status.message.clone()),
    }
}

fn article(what: &str) -> &'static str {
    if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// The API server's message, without resource names that REST's callers never use.
fn message(status: &Status, what: &str) -> String {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let mut messages: Vec<String> = Vec::new();
    // Rules that were not evaluated are covered by the other violation.
    for cause in causes.iter().filter(|cause| !cause.message.contains(RULES_NOT_CHECKED) && !cause.field.starts_with('.')) {
        let text = truncate(cause_message(cause));
        if !text.is_empty() && !messages.contains(&text) {
            messages.push(text);
        }
    }
    let text = if messages.is_empty() { truncate(fields::spelled(&status.message)) } else { messages.join("; ") };
    replace_kind(&text, what)
}

/// `spec.modelType` with `Unsupported value: …` becomes `model_type: Unsupported value: …`.
fn cause_message(cause: &StatusCause) -> String {
    let message = cause.message.strip_prefix("Invalid value: ").and_then(|rest| {
        // The caller knows the refused value; the rule follows it.
        let (_, right) = rest.split_once(&format!(": {} in body ", cause.field))?;
        Some(right)
    });
    let message = message.unwrap_or(&cause.message);
    let message = match message.strip_prefix("Invalid value: ") {
        // For objects and lists the API server shows only their type, or nothing.
        Some(rest) if !rest.starts_with('"') => rest,
        Some(rest) => ["object", "array"].iter().find_map(|kind| rest.strip_prefix(&format!("\"{kind}\": "))).unwrap_or(message),
        None => message,
    };
    let message = fields::spelled(message);
    match cause.field.as_str() {
        // Rules over several fields name them in their message.
        "" | "<nil>" | "spec" => message,
        // A rule over the fields of a list or object.
        field if message.split_once(": ").is_some_and(|(inner, _)| !inner.contains(char::is_whitespace)) => {
            format!("{}.{message}", fields::spelled(field))
        }
        field => format!("{}: {message}", fields::spelled(field)),
    }
}

/// Replaces `Agent.agents.slipway.dev "helper"` by `agent helper`.
fn replace_kind(text: &str, what: &str) -> String {
    let group = format!(".{}", slipway_api::GROUP);
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(&group) {
        let before = rest[..at].trim_end_matches(|letter: char| letter.is_ascii_alphanumeric());
        let after = &rest[at + group.len()..];
        if before.len() == at || after.starts_with(['/', '.']) {
            plain.push_str(&rest[..at + group.len()]);
            rest = after;
            continue;
        }
        plain.push_str(before);
        plain.push_str(what);
        rest = after.strip_prefix(" \"").and_then(|named| named.split_once('"')).map_or(after, |(_, after)| after);
    }
    plain + rest
}

fn truncate(mut text: String) -> String {
    if text.len() > MESSAGE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(status: Value) -> (u16, String) {
        let error = from_status(&serde_json::from_value(status).unwrap(), "agent helper");
        (error.status().as_u16(), error.message().to_owned())
    }

    fn invalid(field: &str, message: &str) -> Value {
        let whole = format!("Agent.agents.slipway.dev \"helper\" is invalid: {field}: {message}");
        let causes = json!([
            {"field": field, "message": message, "reason": "FieldValueInvalid"},
            {"field": ".replicas", "message": "Invalid value: 0: .replicas accessor error: three is of the type string, expected int64"},
            {"field": "<nil>", "message": "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"},
        ]);
        json!({"code": 422, "reason": "Invalid", "message": whole, "details": {"causes": causes}})
    }

    #[test]
    fn faults_name_fields_as_callers_do() {
        for (field, message, expected) in [
            (
                "spec.modelType",
                "Unsupported value: \"gpt\": supported values: \"stub\", \"ollama\"",
                "model_type: Unsupported value: \"gpt\": supported values: \"stub\", \"ollama\"",
            ),
            (
                "spec.replicas",
                "Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
                "replicas: must be of type integer: \"string\"",
            ),
            (
                "spec.replicas",
                "Invalid value: 11: spec.replicas in body should be less than or equal to 10",
                "replicas: should be less than or equal to 10",
            ),
            (
                "spec",
                "Invalid value: \"object\": modelId: must name a model of the provider in modelType; stub-echo belongs to modelType stub",
                "model_id: must name a model of the provider in model_type; stub-echo belongs to model_type stub",
            ),
            ("spec.name", "Required value", "name: Required value"),
            ("spec.envSecrets[1]", "Duplicate value: \"modelType\"", "env_secrets[1]: Duplicate value: \"modelType\""),
            (
                "spec.governance",
                "Invalid value: \"object\": limits.dailyCostUsd: has an effect only with spend-limit in guards",
                "governance.limits.daily_cost_usd: has an effect only with spend-limit in guards",
            ),
            (
                "spec.governance",
                "Invalid value: limits.dailyCostUsd: has an effect only with spend-limit in guards",
                "governance.limits.daily_cost_usd: has an effect only with spend-limit in guards",
            ),
            ("spec.podTemplate.labels", "Invalid value: \"object\": must not set version", "pod_template.labels: must not set version"),
        ] {
            assert_eq!(told(invalid(field, message)), (400, expected.to_owned()));
        }
    }

    #[test]
    fn nothing_is_called_what_callers_never_called_it() {
        for (status, code, message) in [
            (
                json!({"code": 409, "reason": "AlreadyExists", "message": "agents.agents.slipway.dev \"helper\" already exists"}),
                409,
                "there is already an agent helper",
            ),
            (
                json!({"code": 409, "reason": "AlreadyExists", "message": "object is being deleted: agents.agents.slipway.dev \"helper\" already exists"}),
                409,
                "agent helper is still being deleted; try again in a moment",
            ),
            (
                json!({"code": 404, "reason": "NotFound", "message": "agents.agents.slipway.dev \"helper\" not found"}),
                404,
                "there is no agent helper",
            ),
            (
                json!({"code": 422, "reason": "Invalid", "message": "agents.agents.slipway.dev \"helper\" is forbidden: ValidatingAdmissionPolicy 'images' denied request: see agents.slipway.dev/images"}),
                400,
                "agent helper is forbidden: ValidatingAdmissionPolicy 'images' denied request: see agents.slipway.dev/images",
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "message": "agents.agents.slipway.dev \"x\" is forbidden: exceeded quota: q"}),
                403,
                "agent helper is forbidden: exceeded quota: q",
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "message": "forbidden: gone", "details": {"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]}}),
                409,
                "the team is being deleted",
            ),
            (json!({"code": 500, "reason": "InternalError", "message": "etcdserver: leader changed"}), 503, "the cluster does not answer"),
        ] {
            assert_eq!(told(status), (code, message.to_owned()));
        }
        let (code, message) = told(json!({"code": 403, "message": "User \"x\" cannot patch resource \"agents\""}));
        assert_eq!(code, 500);
        assert!(!message.contains("cannot"), "{message}");
    }

    #[test]
    fn a_right_that_the_caller_lost_is_not_our_own_fault() {
        let refused = |user: &str, verb: &str| {
            let message = format!("agents.agents.slipway.dev \"helper\" is forbidden: User \"{user}\" cannot {verb} resource \"agents\"");
            kube::Error::Api(Box::new(serde_json::from_value(json!({"code": 403, "reason": "Forbidden", "message": message})).unwrap()))
        };
        for (user, caller, status) in [
            ("ada@example.com", Some("ada@example.com"), 403),
            ("ada@example.com", None, 500),
            ("system:serviceaccount:slipway-system:slipway-rest", Some("ada@example.com"), 500),
        ] {
            assert_eq!(from_write(refused(user, "patch"), "agent helper", caller).status().as_u16(), status, "{user} for {caller:?}");
        }
    }

    #[test]
    fn a_long_quote_is_cut() {
        let (_, message) = told(invalid("spec.image", &format!("Unsupported value: \"{}\"", "é".repeat(5000))));
        assert!(message.len() < 700 && message.starts_with("image: "), "{message}");
    }
}
