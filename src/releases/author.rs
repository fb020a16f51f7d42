//! Who made a change: by REST's word, if REST made it, else by the API server's book of who wrote which field. Never a
//! guess. What is our own word comes first, and what people write of themselves after it, without what is not seen.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use slipway_api::labels::{self, REST};
use slipway_release::plain_name;

/// What the name of a program begins with, where no person is known.
pub(super) const MANAGER: &str = "manager:";
/// The most bytes of a name.
const LONGEST: usize = 320;
/// Where nobody else can be named.
pub(super) const PLATFORM: &str = "slipway";

/// Who wrote last to a part of the object, given as a JSON pointer into the notation of managed fields.
pub(super) fn of(meta: &ObjectMeta, field: &str) -> String {
    match manager(meta, field) {
        Some(REST) => changed_by(meta).unwrap_or_else(|| named(REST)),
        Some(manager) => named(manager),
        None => PLATFORM.to_owned(),
    }
}

/// Who wrote last to the spec.
pub(super) fn of_spec(meta: &ObjectMeta) -> String {
    of(meta, "/f:spec")
}

/// Who put the annotation there.
pub(super) fn of_annotation(meta: &ObjectMeta, annotation: &str) -> String {
    of(meta, &pointer(annotation))
}

/// When that was.
pub(super) fn time_of_annotation(meta: &ObjectMeta, annotation: &str) -> Option<Timestamp> {
    entry(meta, &pointer(annotation))?.time.as_ref().map(|time| time.0)
}

fn pointer(annotation: &str) -> String {
    format!("/f:metadata/f:annotations/f:{}", annotation.replace('~', "~0").replace('/', "~1"))
}

/// Who asked for a release: REST's caller, or the manager of the object, with the name that they gave beside.
pub(super) fn of_request(meta: &ObjectMeta, given: Option<&str>) -> String {
    match (manager(meta, "/f:spec"), given) {
        (Some(REST), _) => of_spec(meta),
        (_, Some(given)) => match plain_name(given, LONGEST) {
            given if given.is_empty() => of_spec(meta),
            given => format!("{} (as {given})", of_spec(meta)),
        },
        _ => of_spec(meta),
    }
}

fn named(manager: &str) -> String {
    format!("{MANAGER}{}", plain_name(manager, LONGEST))
}

fn changed_by(meta: &ObjectMeta) -> Option<String> {
    meta.annotations.as_ref()?.get(labels::CHANGED_BY).map(|by| plain_name(by, LONGEST)).filter(|by| !by.is_empty())
}

fn manager<'a>(meta: &'a ObjectMeta, field: &str) -> Option<&'a str> {
    entry(meta, field).and_then(|entry| entry.manager.as_deref())
}

fn entry<'a>(meta: &'a ObjectMeta, field: &str) -> Option<&'a ManagedFieldsEntry> {
    let wrote = |entry: &&ManagedFieldsEntry| {
        entry.subresource.as_deref().is_none_or(str::is_empty)
            && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(field).is_some())
    };
    let entries = meta.managed_fields.iter().flatten().filter(wrote);
    entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta(entries: &[(&str, u32, Value)], by: Option<&str>) -> ObjectMeta {
        let entry = |(manager, second, fields): &(&str, u32, Value)| json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:00:{second:02}Z"), "fieldsV1": fields});
        let entries: Vec<Value> = entries.iter().map(entry).collect();
        let annotations = by.map(|by| json!({labels::CHANGED_BY: by})).unwrap_or_default();
        serde_json::from_value(json!({"managedFields": entries, "annotations": annotations})).unwrap()
    }

    #[test]
    fn the_last_to_write_is_the_author_and_rest_tells_for_whom_it_wrote() {
        let spec = || json!({"f:spec": {"f:modelId": {}}});
        let labelled = || json!({"f:metadata": {"f:labels": {}}});
        for (entries, by, expected) in [
            (vec![], None, "slipway"),
            (vec![("kubectl-edit", 3, spec())], None, "manager:kubectl-edit"),
            (vec![("slipway-rest", 3, spec())], Some("ann@example.com"), "ann@example.com"),
            (vec![("slipway-rest", 3, spec())], None, "manager:slipway-rest"),
            (vec![("slipway-rest", 3, spec()), ("kubectl-edit", 5, spec())], Some("ann@example.com"), "manager:kubectl-edit"),
            (vec![("kubectl-edit", 5, spec()), ("slipway-rest", 3, spec())], Some("ann@example.com"), "manager:kubectl-edit"),
            (vec![("slipway-rest", 3, spec()), ("kubectl-label", 5, labelled())], Some("ann@example.com"), "ann@example.com"),
        ] {
            assert_eq!(of_spec(&meta(&entries, by)), expected, "{entries:?}");
        }
    }

    #[test]
    fn a_person_may_sign_a_release_and_the_manager_stands_beside() {
        let spec = || json!({"f:spec": {"f:agent": {}}});
        let kubectl = meta(&[("kubectl-create", 1, spec())], Some("forged@example.com"));
        assert_eq!(of_request(&kubectl, None), "manager:kubectl-create");
        assert_eq!(of_request(&kubectl, Some("Ann")), "manager:kubectl-create (as Ann)");
        // Our own word cannot be pushed out of sight, nor be read from the other end.
        let forged = format!("ann@example.com{}\u{202e}", "\u{3164}\u{200b}".repeat(40));
        assert_eq!(of_request(&kubectl, Some(&forged)), "manager:kubectl-create (as ann@example.com)");
        assert_eq!(of_request(&kubectl, Some("\u{200b}")), "manager:kubectl-create");
        let rest = meta(&[("slipway-rest", 1, spec())], Some("ann@example.com"));
        assert_eq!(of_request(&rest, Some("Bob")), "ann@example.com");
    }

    #[test]
    fn who_asked_for_a_rollback_is_who_wrote_the_annotation() {
        let annotation = json!({"f:metadata": {"f:annotations": {"f:agents.slipway.dev/deploy-release": {}}}});
        let meta = meta(&[("kubectl-edit", 9, json!({"f:spec": {}})), ("slipway-rest", 5, annotation)], Some("ann@example.com"));
        assert_eq!(of_annotation(&meta, labels::DEPLOY_RELEASE), "ann@example.com");
        assert_eq!(time_of_annotation(&meta, labels::DEPLOY_RELEASE), "2026-01-01T00:00:05Z".parse().ok());
    }
}
