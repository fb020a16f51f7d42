//! Agents by REST: that it is the same resource as kubectl's, that no write is lost or done twice, and who owns it.

mod gitops;
mod many;
mod once;
mod replicas;

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, Team, kubectl, poll};

#[test]
fn every_endpoint_answers_as_written_down() {
    let team = Team::new("api-golden");
    let api = Api::of(&team);
    team.skill("filing", &json!({}));
    // Whether there is a release yet is the state role's matter.
    let mut golden = Golden::of("api_agents/golden.json").uncertain(&["active_release"]);
    let create = json!({
        "name": "Travel Helper", "framework": "custom", "model_type": "stub", "model_id": "stub-echo",
        "system_prompt": "Be brief.", "strategy": "simple", "channel": "rest", "description": "Plans trips.", "version": "1.2",
        "storage": "memory", "governance": {"guards": ["pii-detection"]},
    });
    let made = api.call("POST", "/agents").json(&create).send();
    golden.keep("POST /agents", &made);
    let id = made.json()["data"]["id"].as_str().unwrap_or_default().to_owned();
    let agent = slipway_e2e::Agent { team: &team, name: "travel-helper".to_owned() };
    // A list is as new as the version that it is asked for.
    let list = |path: &str, seen: &Value| {
        let version = seen["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        api.call("GET", path).header("X-Resource-Version", version).send()
    };
    let seen = agent.until("looked at", 30, |agent| agent["status"]["phase"] == "Terminated");
    golden.keep("GET /agents", &list("/agents", &seen));
    golden.keep("GET /agents/{id}", &api.call("GET", &format!("/agents/{id}")).send());
    let on = |method: &str, path: &str| api.call(method, &format!("/agents/{id}{path}"));
    let config = json!({"name": "Trips", "description": null, "governance": {"guards": ["secrets-scanner"]}, "replicas": 1});
    golden.keep("PATCH /agents/{id}/config", &on("PATCH", "/config").json(&config).send());
    golden.keep("PUT /agents/{id}/skills", &on("PUT", "/skills").json(&json!({"skills": ["sk_filing"]})).send());
    golden.keep("POST /agents/{id}/deploy", &on("POST", "/deploy").send());
    agent.ready();
    golden.keep("GET /agents/{id} once it is ready", &on("GET", "").send());
    golden.keep("POST /agents/{id}/restart", &on("POST", "/restart").send());
    golden.keep("POST /agents/{id}/stop", &on("POST", "/stop").send());
    agent.until("stopped", 60, |agent| agent["status"]["phase"] == "Terminated" && agent["status"]["replicas"] == 0);
    golden.keep("GET /agents/{id} once it is stopped", &on("GET", "").send());
    golden.keep("PATCH /agents/{id}/status", &on("PATCH", "/status").json(&json!({"status": "archived"})).send());
    golden.keep("GET /admin/agents", &list("/admin/agents?limit=500&search=travel+helper", &team.get("agent/travel-helper")));
    golden.keep("DELETE /agents/{id}", &on("DELETE", "").send());
    golden.keep("GET /agents/{id} after that", &on("GET", "").send());
    assert_eq!(team.kubectl("get agent/travel-helper --ignore-not-found -o name").ok(), "", "it is gone from the cluster");
    golden.compare();
}

#[test]
fn rest_and_kubectl_make_the_same_agent() {
    let team = Team::new("api-same");
    let api = Api::of(&team);
    // One in each spelling, and one with half of it in `config`.
    let spec = json!({"name": "Same", "framework": "custom", "modelType": "openai", "modelId": "gpt-5", "systemPrompt": "Hi.",
        "governance": {"guards": ["spend-limit"], "limits": {"dailyCostUsd": "2.50"}}, "podTemplate": {"labels": {"myTeam": "a_b"}}, "suspend": true});
    let snake = json!({"name": "Same", "slug": "snake", "framework": "custom", "model_type": "openai", "model_id": "gpt-5", "system_prompt": "Hi.",
        "governance": {"guards": ["spend-limit"], "limits": {"daily_cost_usd": "2.50"}}, "pod_template": {"labels": {"myTeam": "a_b"}}, "tools": null});
    let mut camel = spec.clone();
    camel["slug"] = json!("camel");
    let config = json!({"name": "Same", "slug": "config", "config": {"framework": "custom", "modelType": "openai", "model_id": "gpt-5",
        "system_prompt": "Hi.", "governance": spec["governance"], "pod_template": spec["podTemplate"]}});
    for body in [&snake, &camel, &config] {
        let made = api.call("POST", "/agents").json(body).expect(201);
        assert_eq!(made["data"]["status"], "created", "{made}");
        assert_eq!(made["data"]["config"]["governance"]["limits"]["daily_cost_usd"], "2.50", "{made}");
    }
    team.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "applied"}, "spec": spec}));
    let applied = team.get("agent/applied");
    for slug in ["snake", "camel", "config"] {
        let made = team.get(&format!("agent/{slug}"));
        assert_eq!(made["spec"], applied["spec"], "{slug}");
        assert_eq!(made["metadata"]["labels"], Value::Null, "{slug}");
        assert_eq!(made["metadata"]["annotations"], json!({"agents.slipway.dev/changed-by": "anonymous"}), "{slug}");
    }
    // What kubectl made is there for REST, by id and by slug, and in the list once the list has heard of it.
    let seen = slipway_e2e::Agent { team: &team, name: "applied".to_owned() };
    seen.until("looked at", 30, |agent| agent["status"]["phase"] == "Terminated");
    let by_slug = api.call("GET", "/agents/applied").expect(200);
    let id = by_slug["data"]["id"].as_str().unwrap_or_default();
    assert!(id.starts_with("ag_") && id.len() == 23, "{by_slug}");
    // Its status may still be added to.
    poll(30, || {
        let (by_id, by_slug) = (api.call("GET", &format!("/agents/{id}")).expect(200), api.call("GET", "/agents/applied").expect(200));
        if by_id == by_slug { Ok(()) } else { Err(format!("{by_id} by id, {by_slug} by slug")) }
    });
    let version = applied["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let list = api.call("GET", "/agents").header("X-Resource-Version", version).expect(200);
    assert!(list["data"].as_array().is_some_and(|list| list.iter().any(|agent| agent["id"] == id)), "{list}");
}

#[test]
fn faults_are_told_in_the_callers_words() {
    let team = Team::new("api-faults");
    let api = Api::of(&team);
    let post = |body: &Value| api.call("POST", "/agents").json(body).send();
    let with = |field: &str, value: Value| {
        let mut body = json!({"name": "helper", "framework": "custom"});
        body[field] = value;
        body
    };
    for (body, says) in [
        (json!({"framework": "custom"}), "name: is required"),
        (json!({"name": "helper"}), "framework: Required value"),
        (with("model_type", json!("gpt")), "model_type: Unsupported value: \"gpt\""),
        (with("modelType", json!("gpt")), "model_type: Unsupported value: \"gpt\""),
        (with("model_type", json!("openai")), "model_id: must name a model of the provider in model_type"),
        (with("replicas", json!("three")), "replicas: must be of type integer: \"string\""),
        (with("replicas", json!(11)), "replicas: should be less than or equal to 10"),
        (with("tools", json!(["a", "a"])), "tools[1]: Duplicate value: \"a\""),
        (with("colour", json!(1)), "`colour`"),
        (with("governance", json!({"limits": {"per_day": 1}})), "`governance.limits.per_day`"),
        (
            with("governance", json!({"limits": {"daily_cost_usd": 1}})),
            "governance.limits.daily_cost_usd: has an effect only with spend-limit",
        ),
        (with("pod_template", json!({"labels": {"version": "x"}})), "pod_template.labels: must not set version"),
        (with("database_url", json!("postgres://me:secret@db/x")), "database_credentials_secret"),
        (with("slug", json!("Not a slug")), "slug: "),
        (with("slug", json!("a-canary")), "slug: "),
        (with("config", json!({"framework": "adk"})), "`framework` is there twice"),
        (with("config", json!([])), "config: must be an object"),
    ] {
        let reply = post(&body);
        let message = reply.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((reply.status, message.contains(says)), (400, true), "{body}: {reply:?} should say {says}");
        assert_eq!(reply.json()["path"], "/api/v1/agents");
        for never in [".agents.slipway.dev", "spec.", "modelType", "dailyCostUsd"] {
            assert!(!message.contains(never), "{body}: {message}");
        }
    }
    assert_eq!(team.kubectl("get agents -o name").ok(), "", "nothing was made");

    post(&json!({"name": "helper", "framework": "custom"}));
    let again = post(&json!({"name": "Helper", "framework": "adk"}));
    assert_eq!((again.status, again.json()["message"].as_str()), (409, Some("there is already an agent helper")), "{again:?}");
    for (method, path, body, status, says) in [
        ("PATCH", "/agents/helper/config", json!({"replicas": 11}), 400, "replicas: should be less than or equal to 10"),
        ("PATCH", "/agents/helper/config", json!({"name": null}), 400, "name: Required value"),
        ("PATCH", "/agents/helper/config", json!({"governance": {"limits": {"perDay": 1}}}), 400, "`governance.limits.perDay`"),
        ("PATCH", "/agents/helper/config", json!({"slug": "other"}), 400, "slug: cannot be changed"),
        ("PATCH", "/agents/helper/config", json!([]), 400, "the body does not fit"),
        ("PUT", "/agents/helper/skills", json!({"skills": "one"}), 400, "the body does not fit"),
        ("PUT", "/agents/helper/skills", json!({"skills": [], "more": 1}), 400, "unknown field `more`"),
        ("PATCH", "/agents/helper/status", json!({"status": "deployed"}), 400, "`archived`"),
        ("PATCH", "/agents/nobody/config", json!({"replicas": 1}), 404, "there is no agent nobody"),
        ("POST", "/agents/nobody/deploy", json!({}), 404, "there is no agent nobody"),
        ("POST", "/agents/ag_00000000000000000000/stop", json!({}), 404, "there is no agent ag_0"),
        ("GET", "/agents/Not%20a%20name", json!({}), 404, "there is no agent Not a name"),
        ("DELETE", "/agents/nobody", json!({}), 404, "there is no agent nobody"),
        ("POST", "/agents/helper/restart", json!({}), 409, "deploy starts it"),
    ] {
        let reply = api.call(method, path).json(&body).send();
        let message = reply.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((reply.status, message.contains(says)), (status, true), "{method} {path} {body}: {reply:?} should say {says}");
    }
}

#[test]
fn a_partial_change_changes_what_it_names() {
    let team = Team::new("api-partial");
    let api = Api::of(&team);
    api.call("POST", "/agents")
        .json(&json!({"name": "Helper", "framework": "custom", "description": "d", "replicas": 2, "env_secrets": ["agent-env", "a"],
            "pod_template": {"labels": {"a": "1", "b": "2"}, "node_selector": {"disk": "ssd"}}, "system_prompt": "p"}))
        .expect(201);
    let config = |body: Value| api.call("PATCH", "/agents/helper/config").json(&body).expect(200)["data"].clone();
    let changed =
        config(json!({"name": "Other", "replicas": null, "envSecrets": ["b"], "pod_template": {"labels": {"a": null, "c": "3"}}}));
    assert_eq!((&changed["name"], &changed["slug"]), (&json!("Other"), &json!("helper")), "only the name for people changes");
    let now = &changed["config"];
    assert_eq!((&now["replicas"], &now["env_secrets"]), (&json!(1), &json!(["b"])), "null means the default, lists are replaced");
    assert_eq!(now["pod_template"], json!({"labels": {"b": "2", "c": "3"}, "node_selector": {"disk": "ssd"}}));
    assert_eq!((&now["description"], &now["system_prompt"]), (&json!("d"), &json!("p")), "the rest stays");
    assert_eq!(config(json!({"description": null}))["description"], Value::Null);
    assert_eq!(config(json!({"config": {"model_type": "ollama", "model_id": "llama3"}}))["model_type"], "ollama");
    let spec = team.get("agent/helper");
    assert_eq!(spec["metadata"]["annotations"]["agents.slipway.dev/changed-by"], "anonymous");
    let managers: Vec<_> = spec["metadata"]["managedFields"].as_array().into_iter().flatten().collect();
    assert!(managers.is_empty() || managers.iter().any(|entry| entry["manager"] == "slipway-rest"), "{managers:?}");
}

#[test]
fn an_archived_agent_is_put_away_and_taken_back_as_it_was() {
    let team = Team::new("api-archived");
    let api = Api::of(&team);
    api.call("POST", "/agents").json(&json!({"name": "helper", "framework": "custom", "suspend": false, "replicas": 0})).expect(201);
    let status = |wanted: &str| api.call("PATCH", "/agents/helper/status").json(&json!({"status": wanted})).send();
    let before = team.get("agent/helper")["spec"].clone();
    assert_eq!(status("archived").json()["data"]["status"], "archived");
    assert_eq!(team.get("agent/helper")["metadata"]["annotations"]["agents.slipway.dev/archived"], "true");
    for action in ["deploy", "restart"] {
        let refused = api.call("POST", &format!("/agents/helper/{action}")).send();
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.body.contains("active"), "it says what to do: {refused:?}");
    }
    assert_eq!(status("archived").json()["data"]["status"], "archived", "once more does no harm");
    assert_ne!(status("active").json()["data"]["status"], "archived");
    let after = team.get("agent/helper");
    assert_eq!(after["spec"], before);
    assert_eq!(after["metadata"]["annotations"]["agents.slipway.dev/archived"], Value::Null);
}

#[test]
fn another_teams_agents_are_not_there() {
    let ours = Team::new("api-ours");
    let theirs = ours.beside("api-theirs");
    let api = Api::start(&[]);
    theirs.agent("secret", &json!({"suspend": true}));
    let token = ours.token("admin");
    let id =
        theirs.agent("secret", &json!({"suspend": true})).until("known", 20, |agent| agent["status"]["id"].is_string())["status"]["id"]
            .clone();
    for named in [id.as_str().unwrap_or_default(), "secret"] {
        for (method, path, body) in [
            ("GET", "", json!({})),
            ("DELETE", "", json!({})),
            ("PATCH", "/config", json!({"name": "x"})),
            ("PATCH", "/status", json!({"status": "archived"})),
            ("PUT", "/skills", json!({"skills": []})),
            ("POST", "/deploy", json!({})),
            ("POST", "/stop", json!({})),
            ("POST", "/restart", json!({})),
        ] {
            let reply = api.call(method, &format!("/agents/{named}{path}")).token(&token).json(&body).send();
            assert_eq!(
                (reply.status, reply.json()["message"].as_str()),
                (404, Some(format!("there is no agent {named}").as_str())),
                "{reply:?}"
            );
        }
    }
    api.call("GET", "/agents/secret").token(&token).header("X-Team", theirs.slug.as_str()).expect(403);
    api.call("GET", "/admin/agents").token(&token).expect(403);
    assert_eq!(api.call("GET", "/agents").token(&token).expect(200)["data"], json!([]));
}

#[test]
fn all_teams_agents_are_listed_page_by_page() {
    let one = Team::new("api-all-one");
    let two = one.beside("api-all-two");
    for name in ["a", "b", "c"] {
        one.agent(name, &json!({"suspend": true, "description": "pagewise"}));
        two.agent(name, &json!({"suspend": true, "description": "pagewise"}));
    }
    let version = kubectl(format!("get agent c -n {} -o jsonpath={{.metadata.resourceVersion}}", two.namespace)).ok();
    let api = Api::of(&one);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api
            .call("GET", &format!("/admin/agents?limit=2&search=pagewise{cursor}"))
            .header("X-Resource-Version", version.trim())
            .expect(200);
        let data = page["data"].as_array().cloned().unwrap_or_default();
        assert!(data.len() <= 2, "{page}");
        seen.extend(
            data.iter()
                .map(|agent| format!("{}/{}", agent["team_id"].as_str().unwrap_or_default(), agent["slug"].as_str().unwrap_or_default())),
        );
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    seen.sort();
    let expected: Vec<String> =
        ["tk_e2e-api-all-one", "tk_e2e-api-all-two"].iter().flat_map(|team| ["a", "b", "c"].map(|name| format!("{team}/{name}"))).collect();
    assert_eq!(seen, expected, "each once");
}
