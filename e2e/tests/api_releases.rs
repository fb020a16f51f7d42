//! Releases over REST: asked for, listed, compared and brought back, and the repositories read by Git itself.
//!
//! `deployed` goes from an agent's creation to its first release, `sync` brings cluster and repositories to the same.

mod deployed;
mod sync;

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Call, Golden, State, Team, fresh, git, poll};

use crate::api_contract::assert_error;

/// A state role and a REST that knows it.
struct Ground {
    api: Api,
    _state: State,
    _folder: tempfile::TempDir,
}

impl Ground {
    #[track_caller]
    fn new(team: &Team, more: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = State::of(team, folder.path());
        let api = Api::start(&[&state.environment(), more].concat());
        Self { api, _state: state, _folder: folder }
    }

    /// One that asks nobody who they are.
    #[track_caller]
    fn open(team: &Team) -> Self {
        Self::new(team, &[("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", &team.namespace)])
    }

    /// Makes an agent and deploys it, and waits for its first release.
    #[track_caller]
    fn deployed(&self, name: &str, prompt: &str) {
        let body = json!({"name": name, "framework": "custom", "system_prompt": prompt, "storage": "memory"});
        self.api.call("POST", "/agents").json(&body).expect(201);
        self.api.call("POST", &format!("/agents/{name}/deploy")).expect(200);
        self.runs(name, 1);
    }

    /// Waits until this version of the agent is active.
    #[track_caller]
    fn runs(&self, name: &str, version: u64) {
        poll(60, || match self.api.call("GET", &format!("/agents/{name}")).expect(200)["data"]["active_release"].clone() {
            active if active == version => Ok(()),
            active => Err(format!("v{version} of {name} should run, and {active} does")),
        });
    }
}

#[test]
fn every_endpoint_answers_as_written_down() {
    let team = Team::new("api-releases");
    let ground = Ground::open(&team);
    let api = &ground.api;
    let mut golden = Golden::of("api_releases/golden.json").hiding(&["checksum", "commit", "image", "reason"]);
    let agent = Agent { team: &team, name: fresh("helper") };
    ground.deployed(&agent.name, "Be brief.");
    let id = agent.ready()["status"]["id"].as_str().unwrap_or_default().to_owned();
    golden.name(id, "<agent>");
    golden.name(&agent.name, "helper");
    let on = |method: &str, path: &str| api.call(method, &format!("/agents/{}{path}", agent.name));
    let needless = on("POST", "/releases").json(&json!({"changelog": "As it is."})).expect(200);
    assert_eq!(needless["data"]["metadata"]["version"], 1, "nothing has changed: {needless}");
    // While it is stopped a change is not recorded by itself.
    on("POST", "/stop").expect(200);
    on("PATCH", "/config").json(&json!({"system_prompt": "Be short."})).expect(200);
    // Without pods nobody knows the image's digest, and the release has none.
    agent.until("stopped", 60, |agent| agent["status"]["phase"] == "Terminated" && agent["status"]["replicas"] == 0);
    let asked = on("POST", "/releases").json(&json!({"changelog": "As it is."})).send();
    golden.keep("POST /agents/{id}/releases", &asked);
    on("POST", "/deploy").expect(200);
    agent.ready();
    on("PATCH", "/config").json(&json!({"system_prompt": "Be kind.", "environment": "staging"})).expect(200);
    ground.runs(&agent.name, 3);
    golden.keep("GET /agents/{id}/releases", &on("GET", "/releases").send());
    golden.keep("GET /agents/{id}/releases?limit=1", &on("GET", "/releases?limit=1").send());
    golden.keep("GET /agents/{id}/releases?limit=1&cursor=3", &on("GET", "/releases?limit=1&cursor=3").send());
    golden.keep("GET /agents/{id}/releases?search=as+it", &on("GET", "/releases?search=as+it").send());
    golden.keep("GET /agents/{id}/releases/{version}", &on("GET", "/releases/1").send());
    golden.keep("GET /agents/{id}/releases/diff", &on("GET", "/releases/diff?from=1&to=3").send());
    golden.keep("GET /agents/{id}/releases/diff of nothing", &on("GET", "/releases/diff?from=1&to=1").send());
    golden.keep("GET /agents/{id}/versions", &on("GET", "/versions").send());

    let mut events = on("GET", "/events").stream();
    let reply = on("POST", "/releases/1/deploy").send();
    // The pods are on their way meanwhile.
    let rolling = ["status", "reason", "message", "ready_replicas", "active_release"];
    golden.keep_but("POST /agents/{id}/releases/{version}/deploy", &reply, &rolling);
    let deployed = reply.json();
    let data = &deployed["data"];
    assert_eq!(
        (&deployed["action"], &data["active_release"], &data["config"]["system_prompt"], &data["config"]["environment"]),
        (&json!("deployed"), &json!(1), &json!("Be brief."), &Value::Null),
        "{deployed}"
    );
    let told = std::iter::from_fn(|| events.event(20)).map(|event| serde_json::from_str::<Value>(&event.data).unwrap());
    let told = told.into_iter().find(|event| event["reason"] == "ReleaseDeployed").unwrap();
    assert_eq!((&told["type"], &told["payload"]["version"]), (&json!("Normal"), &json!(1)), "{told}");
    golden.keep("GET /agents/{id}/releases after a rollback", &on("GET", "/releases").send());
    golden.compare();
}

#[test]
fn what_cannot_be_answered_says_why() {
    let team = Team::new(&fresh("api-releases-faults"));
    let ground = Ground::open(&team);
    let call = |method: &str, path: &str| ground.api.call(method, path);
    call("POST", "/agents").json(&json!({"name": "resting", "framework": "custom"})).expect(201);
    ground.deployed("helper", "Be brief.");
    assert_eq!(call("GET", "/agents/resting/releases").expect(200), json!({"data": []}), "there is an agent, and no release yet");
    let cases: Vec<(&str, &str, u16, &str)> = vec![
        ("GET", "/agents/nobody/releases", 404, "there is no agent nobody"),
        ("GET", "/agents/nobody/versions", 404, "there is no agent nobody"),
        ("GET", "/agents/nobody/releases/1", 404, ""),
        ("GET", "/agents/helper/releases/9", 404, "9"),
        ("GET", "/agents/helper/releases/0", 404, "numbered from 1"),
        ("GET", "/agents/helper/releases/v1", 404, "numbered from 1"),
        ("GET", "/agents/helper/releases?limit=0", 400, "1 to 500"),
        ("GET", "/agents/helper/releases?cursor=x", 400, "next_cursor"),
        ("GET", "/agents/helper/releases?colour=1", 400, "`colour`"),
        ("GET", "/agents/helper/releases/diff", 400, "`from` is required"),
        ("GET", "/agents/helper/releases/diff?from=1", 400, "`to` is required"),
        ("GET", "/agents/helper/releases/diff?from=1&to=two", 400, "`to` must be the number"),
        ("GET", "/agents/helper/releases/diff?from=-1&to=1", 400, "`from` must be the number"),
        ("GET", "/agents/helper/releases/diff?from=1&to=9", 404, "9"),
        ("POST", "/agents/helper/releases/9/deploy", 404, "9"),
        ("POST", "/agents/nobody/releases/1/deploy", 404, "there is no agent nobody"),
        ("POST", "/agents/nobody/releases", 404, "there is no agent nobody"),
        ("POST", "/agents/resting/releases", 409, "was never deployed"),
        ("DELETE", "/agents/helper/releases/1", 405, "GET"),
    ];
    for (method, path, status, says) in cases {
        assert_error(&format!("{method} {path}"), &format!("/api/v1{path}"), &call(method, path).send(), status, says);
    }
    let wrong = |body: Value| call("POST", "/agents/helper/releases").json(&body);
    for (body, says) in [
        (json!({"change": "x"}), "unknown field `change`"),
        (json!({"changelog": 5}), "invalid type"),
        (json!({"changelog": "x".repeat(5000)}), "4096"),
    ] {
        assert_error(&body.to_string(), "/api/v1/agents/helper/releases", &wrong(body).send(), 400, says);
    }
    call("PATCH", "/agents/helper/status").json(&json!({"status": "archived"})).expect(200);
    let archived = call("POST", "/agents/helper/releases/1/deploy").send();
    assert_error("of an archived agent", "/api/v1/agents/helper/releases/1/deploy", &archived, 409, "is archived");
}

#[test]
fn one_key_makes_one_release_and_a_body_is_not_needed() {
    let team = Team::new(&fresh("api-releases-once"));
    let ground = Ground::open(&team);
    ground.deployed("helper", "Be brief.");
    let ask = || ground.api.call("POST", "/agents/helper/releases");
    let version = |call: Call| call.expect(201)["data"]["metadata"]["version"].clone();
    let stands = |call: Call| call.expect(200)["data"]["metadata"]["version"].clone();
    assert_eq!(stands(ask()), 1, "nothing has changed");
    assert_eq!(stands(ask().header("Idempotency-Key", "none")), 1);
    assert_eq!(stands(ask().header("Idempotency-Key", "none")), 1);
    let change = |prompt: &str| {
        ground.api.call("POST", "/agents/helper/stop").expect(200);
        ground.api.call("PATCH", "/agents/helper/config").json(&json!({"system_prompt": prompt})).expect(200);
    };
    change("Be kind.");
    assert_eq!(version(ask().header("Idempotency-Key", "one")), 2);
    assert_eq!(version(ask().header("Idempotency-Key", "one")), 2);
    let other = ask().header("Idempotency-Key", "one").json(&json!({"changelog": "Another."})).send();
    assert_error("another body", "/api/v1/agents/helper/releases", &other, 409, "another body");
    change("Be both.");
    assert_eq!(version(ask().header("Idempotency-Key", "two")), 3);
    let release = ground.api.call("GET", "/agents/helper/releases/3").expect(200);
    assert_eq!(release["data"]["metadata"]["author"], "anonymous", "{release}");
}

#[test]
fn a_caller_is_the_author_and_a_spec_that_gitops_owns_stays_as_it_is() {
    let team = Team::new(&fresh("api-releases-gitops"));
    let ground = Ground::new(&team, &[]);
    let (developer, viewer) = (team.token("developer"), team.token("viewer"));
    let call = |method: &str, path: &str, token: &str| {
        ground.api.call(method, &format!("/agents/helper{path}")).token(token).header("X-Team", &*team.slug)
    };
    let runs = |version: u64| {
        poll(60, || match call("GET", "", &viewer).expect(200)["data"]["active_release"].clone() {
            active if active == version => Ok(()),
            active => Err(format!("v{version} should run, and {active} does")),
        });
    };
    let agent = team.agent("helper", &json!({"systemPrompt": "Be brief.", "storage": "memory"}));
    runs(1);
    call("PATCH", "/config", &developer).json(&json!({"system_prompt": "Be kind.", "tools": []})).expect(200);
    runs(2);
    let who = format!("system:serviceaccount:{}:e2e-developer", team.namespace);
    assert_eq!(call("GET", "/releases", &viewer).expect(200)["data"][0]["author"], *who);
    assert_eq!(call("POST", "/releases", &developer).expect(200)["data"]["metadata"]["version"], 2, "nothing has changed");
    // While it is stopped a change is not recorded by itself.
    call("POST", "/stop", &developer).expect(200);
    call("PATCH", "/config", &developer).json(&json!({"system_prompt": "Be short."})).expect(200);
    let asked = call("POST", "/releases", &developer).expect(201);
    assert_eq!((&asked["data"]["metadata"]["version"], &asked["data"]["metadata"]["author"]), (&json!(3), &json!(who)));
    call("POST", "/deploy", &developer).expect(200);
    for (method, path) in [("POST", "/releases"), ("POST", "/releases/1/deploy")] {
        assert_eq!(call(method, path, &viewer).send().status, 403, "{method} {path}");
    }

    team.kubectl("label agent helper kustomize.toolkit.fluxcd.io/name=apps").ok();
    let deployed = call("POST", "/releases/1/deploy", &developer).expect(200);
    assert_eq!(
        (&deployed["data"]["active_release"], &deployed["data"]["config"]["system_prompt"]),
        (&json!(1), &json!("Be short.")),
        "{deployed}"
    );
    let pinned = agent.get();
    assert!(pinned["metadata"]["annotations"].get("agents.slipway.dev/deploy-release").is_none(), "{pinned:#}");
    assert_eq!(slipway_e2e::condition(&pinned, "Pinned")["status"], "True", "{pinned:#}");
    assert_eq!(call("GET", "/releases?limit=1", &viewer).expect(200)["data"][0]["version"], 3, "a rollback makes no version");
}

#[test]
fn without_the_state_role_releases_are_away_and_all_else_is_there() {
    let team = Team::new(&fresh("api-releases-away"));
    let api = Api::start(&[
        ("AUTH_ENABLED", "false"),
        ("SLIPWAY_DEFAULT_NAMESPACE", &team.namespace),
        ("SLIPWAY_STATE_URL", &format!("http://127.0.0.1:{}", slipway_peers::free_port())),
    ]);
    api.call("POST", "/agents").json(&json!({"name": "helper", "framework": "custom"})).expect(201);
    for (method, path) in [
        ("GET", "/api/v1/agents/helper/releases"),
        ("GET", "/api/v1/agents/helper/releases/1"),
        ("GET", "/api/v1/agents/helper/releases/diff?from=1&to=2"),
        ("GET", "/api/v1/agents/helper/versions"),
        ("POST", "/api/v1/agents/helper/releases/1/deploy"),
        ("POST", "/api/v1/platform/sync"),
    ] {
        let reply = api.whole(method, path).send();
        assert_error(path, path, &reply, 503, "the state role");
        assert!(!reply.header("retry-after").is_empty(), "{path}: {reply:?}");
    }
    api.call("GET", "/agents/helper").expect(200);
}

#[test]
fn git_clones_a_teams_repository_with_a_token_and_pushes_nothing() {
    let team = Team::new(&fresh("api-releases-git"));
    let stranger = team.beside("api-releases-foreign");
    let ground = Ground::new(&team, &[]);
    let (viewer, foreign) = (team.token("viewer"), stranger.token("admin"));
    team.agent("helper", &json!({"systemPrompt": "Be brief."}));
    let releases = || ground.api.call("GET", "/agents/helper/releases").token(&viewer).header("X-Team", &*team.slug);
    poll(60, || match releases().send() {
        reply if reply.status == 200 && reply.json()["data"][0]["version"] == 1 => Ok(()),
        reply => Err(format!("the first release should be there: {reply:?}")),
    });
    let folder = tempfile::tempdir().unwrap();
    let at = |login: &str, name: &str| format!("{}/state/{name}.git", ground.api.url().replace("http://", &format!("http://{login}")));
    for (at_name, into) in [(team.slug.clone(), "slug"), (format!("tk_{}", team.slug), "id"), (team.namespace.clone(), "namespace")] {
        let cloned = git(folder.path(), &["clone", "--quiet", &at(&format!("git:{viewer}@"), &at_name), into]);
        assert!(cloned.status.success(), "{}", String::from_utf8_lossy(&cloned.stderr).replace(&viewer, "TOKEN"));
        let read = |path: &str| std::fs::read_to_string(folder.path().join(into).join(path)).unwrap();
        assert!(read("agents/helper/releases/v1.yaml").contains("Be brief."));
        assert_eq!(read("agents/helper/releases/v1.yaml"), read("agents/helper/current.yaml"));
        assert!(read("deploy/helper.yaml").contains("kind: Agent"));
    }
    let header = format!("http.extraHeader=Authorization: Bearer {viewer}");
    let bearing = git(folder.path(), &["-c", &header, "ls-remote", &at("", &team.slug)]);
    assert!(bearing.status.success() && !bearing.stdout.is_empty(), "{}", String::from_utf8_lossy(&bearing.stderr));

    for (login, name, says) in [
        ("", &team.slug, "could not read Username"),
        ("git:nonsense@", &team.slug, "Authentication failed"),
        (&*format!("git:{foreign}@"), &team.slug, "403"),
        (&*format!("git:{viewer}@"), &stranger.slug, "403"),
        (&*format!("git:{viewer}@"), &"nowhere".to_owned(), "403"),
    ] {
        let refused = git(folder.path(), &["ls-remote", &at(login, name)]);
        let told = String::from_utf8_lossy(&refused.stderr).replace(&viewer, "TOKEN").replace(&foreign, "TOKEN");
        assert!(!refused.status.success() && told.contains(says), "{name}: {told}");
    }
    let pushed = git(&folder.path().join("slug"), &["push", "--quiet", "origin", "HEAD:refs/heads/other"]);
    let told = String::from_utf8_lossy(&pushed.stderr).replace(&viewer, "TOKEN");
    assert!(!pushed.status.success() && told.contains("403"), "{told}");
    let challenge = ground.api.whole("GET", &format!("/state/{}.git/info/refs?service=git-upload-pack", team.slug)).send();
    assert_eq!((challenge.status, challenge.header("www-authenticate")), (401, "Basic realm=\"Slipway\", charset=\"UTF-8\""));
    assert!(!ground.api.log().contains(&viewer), "{}", ground.api.log().replace(&viewer, "TOKEN"));
}
