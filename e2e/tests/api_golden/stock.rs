//! What agents are equipped with: tools and skills.

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, Reply, Team, until};
use slipway_peers::Git;

/// The object once it is available, as `kubectl get` shows it.
#[track_caller]
fn available(team: &Team, kind: &str, name: &str) -> Value {
    until(&format!("{kind} -n {} --field-selector metadata.name={name}", team.namespace), 30, |objects| {
        let current = |object: &&Value| {
            let status = &object["status"];
            status["phase"] == "Available" && status["observedGeneration"] == object["metadata"]["generation"]
        };
        objects.iter().find(current).cloned().ok_or_else(|| format!("{kind}/{name} should be available"))
    })
}

/// A list that is as new as this object.
#[track_caller]
fn list(api: &Api, path: &str, seen: &Value) -> Reply {
    let version = seen["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    api.call("GET", path).header("X-Resource-Version", version).send()
}

#[test]
fn tools_answer_as_written_down() {
    let team = Team::new("golden-tools");
    let api = Api::of(&team);
    let mut golden = Golden::of("api_golden/tools.json");
    let weather = json!({
        "name": "get_weather", "type": "http", "category": "data", "description": "The weather of a city.", "method": "GET",
        "endpoint": "https://api.example.com/{city}", "headers": {"Accept": "text/plain"}, "timeout": 7,
        "parameters": [{"name": "city", "type": "string", "description": "A city.", "required": true}],
    });
    golden.keep("POST /tools", &api.call("POST", "/tools").json(&weather).send());
    let seen = available(&team, "tools", "get-weather");
    golden.keep("GET /tools", &list(&api, "/tools", &seen));
    golden.keep("GET /tools/{name}", &api.call("GET", "/tools/get-weather").send());
    let clock = json!({"name": "datetime", "type": "builtin", "description": "What time it is."});
    golden.keep("PUT /tools/{name}", &api.call("PUT", "/tools/get-weather").json(&clock).send());
    golden.keep("DELETE /tools/{name}", &api.call("DELETE", "/tools/get-weather").send());
    assert_eq!(team.kubectl("get tool/get-weather --ignore-not-found -o name").ok(), "", "it is gone from the cluster");
    golden.compare();
}

#[test]
fn skills_answer_as_written_down() {
    let team = Team::new("golden-skills");
    let git = Git::start();
    let script = "mkdir -p s/brief/notes; printf -- '---\\nname: brief\\ndescription: Says less.\\nlicense: MIT\\nmetadata:\\n  version: 1\\n---\\nBe brief.' > s/brief/SKILL.md; echo n > s/brief/notes/n.md; commit 1; git tag v1";
    git.repository("skills", script);
    let environment =
        [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", team.namespace.as_str()), ("SLIPWAY_IMPORT_ALLOW", "127.0.0.0/8")];
    let api = Api::start(&environment);
    let mut golden = Golden::of("api_golden/skills.json");
    golden.name(git.url("skills"), "<repository>");
    let forms = json!({
        "name": "fill-forms", "description": "Fills forms.", "instructions": "Read a.md.", "files": {"references/a.md": "x"},
        "tools": ["Read"], "category": "office", "version": "1.0", "author": "Ada", "license": "MIT",
    });
    golden.keep("POST /skills", &api.call("POST", "/skills").json(&forms).send());
    let seen = available(&team, "skills", "fill-forms");
    golden.keep("GET /skills", &list(&api, "/skills", &seen));
    golden.keep("GET /skills/{id}", &api.call("GET", "/skills/sk_fill_forms").send());
    let other = json!({"name": "fill-forms", "description": "Fills other forms.", "instructions": "Fill them."});
    golden.keep("PUT /skills/{id}", &api.call("PUT", "/skills/sk_fill_forms").json(&other).send());
    golden.keep("DELETE /skills/{id}", &api.call("DELETE", "/skills/sk_fill_forms").send());
    assert_eq!(team.kubectl("get skill/fill-forms --ignore-not-found -o name").ok(), "", "it is gone from the cluster");

    let import = |query: &str, source: String| api.call("POST", &format!("/skills/import{query}")).json(&json!({"source": source})).send();
    let source = format!("{}//s/brief?ref=v1", git.url("skills"));
    golden.keep("POST /skills/import", &import("", source.clone()));
    // Where it came from, with the port, is among what its digest is of.
    golden.name(available(&team, "skills", "brief")["status"]["digest"].as_str().unwrap_or_default(), "<digest>");
    golden.keep("POST /skills/import?replace=true", &import("?replace=true", source));
    let project = api.call("POST", "/scaffold").json(&json!({"name": "Helper", "framework": "custom"})).send();
    golden.keep_as("POST /scaffold", &project, &json!(project.body.get(..2)));
    golden.compare();
}
