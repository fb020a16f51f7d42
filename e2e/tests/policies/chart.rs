//! Admission policies of the chart with other values than the installed ones, beside these for as long as a test needs them.

use std::process::Command;

use serde_json::{Value, json};
use slipway_e2e::{ROOT, kubectl};

/// Policies rendered by Helm (`$HELM`, else the one in the path) as a release of that name in the namespace `default`, so
/// that their names and the accounts that they speak of are no other's.
pub(super) struct Policies {
    objects: Vec<Value>,
}

impl Policies {
    /// `settings` as for `--set`. Those whose names end so are applied, with `within` for one namespace's objects alone.
    #[track_caller]
    pub(super) fn apply(release: &str, settings: &[&str], endings: &[&str], within: Option<&str>) -> Self {
        let mut objects = render(release, settings);
        objects.retain(|object| object["metadata"]["name"].as_str().is_some_and(|name| endings.iter().any(|end| name.ends_with(end))));
        assert_eq!(objects.len(), 2 * endings.len(), "a policy and a binding for each of {endings:?}");
        if let Some(namespace) = within {
            let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
            for binding in objects.iter_mut().filter(|object| object["kind"] == "ValidatingAdmissionPolicyBinding") {
                binding["spec"]["matchResources"] = json!({"namespaceSelector": selector});
            }
        }
        let policies = Self { objects };
        kubectl("apply --server-side --force-conflicts -f -").input(policies.list()).ok();
        policies
    }

    fn list(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "List", "items": self.objects})
    }
}

impl Drop for Policies {
    fn drop(&mut self) {
        kubectl("delete --ignore-not-found --wait=false -f -").input(self.list()).run();
    }
}

#[track_caller]
fn render(release: &str, settings: &[&str]) -> Vec<Value> {
    let helm = std::env::var_os("HELM").unwrap_or_else(|| "helm".into());
    let mut command = Command::new(&helm);
    command.args(["template", release, ROOT, "--namespace", "default", "--kube-version", "1.35.0"]);
    command.args(["--show-only", "templates/policies.yaml"]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let output = command.output().unwrap_or_else(|e| panic!("{} cannot be run: {e}", helm.display()));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let documents = text.split("\n---\n").map(serde_yaml::from_str);
    let documents: Result<Vec<Value>, _> = documents.collect();
    documents.unwrap_or_else(|e| panic!("Helm should render YAML: {e}\n{text}")).into_iter().filter(Value::is_object).collect()
}
