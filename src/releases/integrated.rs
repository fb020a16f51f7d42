//! What Tools that name an integration stand for: their specs with what it gives, as agents have them. A changed host is a changed
//! Tool, and so is another way to log in.

use std::sync::{Mutex, PoisonError};

use kube::api::ObjectMeta;
use slipway_api::{Integration, ToolSpec, ids};
use slipway_cluster::{Cache, Key};

use super::references::{self, ReferenceState};

/// The Tools that name an integration, and all integrations.
#[derive(Default)]
pub(super) struct Integrated {
    tools: Cache<ToolSpec>,
    integrations: Cache<Integration>,
    /// Two watches write what a Tool stands for; each does so by what is known then.
    writing: Mutex<()>,
}

impl Integrated {
    /// What a Tool stands for, of which a watch has told.
    pub(super) fn tool(&self, key: &Key, spec: &ToolSpec) -> ReferenceState {
        if spec.integration.is_some() {
            self.tools.insert(key.clone(), spec.clone());
        } else {
            self.tools.remove(key);
        }
        self.found(&key.namespace, spec)
    }

    /// Takes note of an integration, of which a watch has told that it is there or gone.
    pub(super) fn note(&self, key: &Key, integration: Option<&Integration>) {
        match integration {
            Some(integration) => {
                // Of the rest nothing is asked, and annotations may be larger than all else.
                let named = ObjectMeta { name: Some(key.name.clone()), namespace: Some(key.namespace.clone()), ..ObjectMeta::default() };
                let kept = Integration { metadata: named, spec: integration.spec.clone(), status: integration.status.clone() };
                self.integrations.insert(key.clone(), kept);
            }
            None => {
                self.integrations.remove(key);
            }
        }
    }

    pub(super) fn forget(&self, tool: &Key) {
        self.tools.remove(tool);
    }

    /// The Tools that name this integration.
    pub(super) fn users(&self, integration: &Key) -> Vec<Key> {
        let names_it = |spec: &ToolSpec| spec.integration.as_ref().is_some_and(|name| ids::integration_name(name) == integration.name);
        let tools = self.tools.in_namespace(&integration.namespace).into_iter();
        tools.filter(|(_, spec)| names_it(spec)).map(|(key, _)| key).collect()
    }

    /// Writes what a Tool with an integration stands for now, by `write`; says what that says. False of other Tools.
    pub(super) fn again(&self, tool: &Key, write: impl FnOnce(ReferenceState) -> bool) -> bool {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.tools.get(tool).is_some_and(|spec| write(self.found(&tool.namespace, &spec)))
    }

    fn found(&self, namespace: &str, spec: &ToolSpec) -> ReferenceState {
        if !spec.enabled {
            return ReferenceState::Off;
        }
        let Some(reference) = &spec.integration else { return ReferenceState::Digest(references::digest(spec)) };
        let integration = self.integrations.get(&Key::new(namespace, ids::integration_name(reference)));
        let merged = integration.and_then(|integration| integration.tool(spec).ok());
        merged.map_or(ReferenceState::Missing, |merged| ReferenceState::Digest(references::digest(&merged.spec)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn integration(url: &str, alerts: bool) -> Integration {
        let mut spec = json!({"name": "Hook", "webhook": {"url": url}});
        if alerts {
            spec["alerts"] = json!({});
        }
        let origin = slipway_api::integration::origin_of(url);
        let status = json!({"observedGeneration": 1, "credentialKeys": ["signing_secret", "token"], "origin": origin});
        serde_json::from_value(json!({"metadata": {"name": "hook", "namespace": "team-a"}, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_changed_host_is_a_changed_tool() {
        let integrated = Integrated::default();
        let (tool, hook) = (Key::new("team-a", "send"), Key::new("team-a", "hook"));
        let spec: ToolSpec =
            serde_json::from_value(json!({"name": "send", "type": "http", "method": "POST", "endpoint": "/x", "integration": "in_hook"}))
                .unwrap();
        let now = || {
            let mut now = ReferenceState::Off;
            let is_integrated = integrated.again(&tool, |found| {
                now = found;
                true
            });
            is_integrated.then_some(now)
        };
        assert_eq!((now(), integrated.tool(&tool, &spec)), (None, ReferenceState::Missing));
        assert_eq!(integrated.users(&hook), std::slice::from_ref(&tool));
        assert!(integrated.users(&Key::new("team-b", "hook")).is_empty());
        integrated.note(&hook, Some(&integration("https://w.example", false)));
        let first = now();
        assert!(matches!(first, Some(ReferenceState::Digest(_))));
        assert_eq!(now(), Some(integrated.tool(&tool, &spec)), "whichever watch tells of it last");
        integrated.note(&hook, Some(&integration("https://w.example", true)));
        assert_eq!(now(), first, "alerts are no part of it");
        integrated.note(&hook, Some(&integration("https://other.example", false)));
        assert!(now() != first && matches!(now(), Some(ReferenceState::Digest(_))));
        integrated.note(&hook, None);
        assert_eq!(now(), Some(ReferenceState::Missing));
        assert_eq!(integrated.tool(&tool, &ToolSpec { enabled: false, ..spec.clone() }), ReferenceState::Off);
        integrated.forget(&tool);
        assert_eq!(now(), None);
    }
}
