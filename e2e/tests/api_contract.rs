//! What REST promises every caller, whatever is sent: the specification's error for all that is wrong, HEAD and
//! OPTIONS, and answers that are as its own document says.
//!
//! `gone` takes the cluster away, `schema` compares what an agent answers with the document, `walk` does what docs/rest.md
//! tells.

mod gone;
mod schema;
mod walk;

use serde_json::{Value, json};
use slipway_e2e::{Api, Call, Reply, Team};

/// An answer that is an error as the specification forms it, with this status and, somewhere, these words.
#[track_caller]
pub(crate) fn assert_error(what: &str, path: &str, reply: &Reply, status: u16, says: &str) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert_eq!(reply.header("content-type"), "application/json", "{what}");
    assert!(!reply.header("x-request-id").is_empty(), "{what}: {reply:?}");
    let body = reply.json();
    let fields: Vec<&str> = body.as_object().map(|fields| fields.keys().map(String::as_str).collect()).unwrap_or_default();
    assert_eq!(fields, ["error", "message", "path"], "{what}: {body}");
    assert_eq!(body["error"], reason(status), "{what}");
    assert_eq!(body["path"], path.split('?').next().unwrap_or_default(), "{what}");
    let message = body["message"].as_str().unwrap_or_default();
    assert!(message.contains(says), "{what}: {message:?} should say {says:?}");
    assert!(message.len() < 1000, "{what}: {message}");
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        other => panic!("{other} has no words here"),
    }
}

#[test]
fn what_is_wrong_with_a_body_is_told_where_it_is() {
    let team = Team::new("contract-bodies");
    let api = Api::of(&team);
    let post = |path: &str, body: &str| api.call("POST", path).body("application/json", body);
    let agent = |more: Value| {
        let mut body = json!({"name": "Helper", "framework": "custom"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        post("/agents", &body.to_string())
    };
    let cases: Vec<(&str, &str, Call, u16, &str)> = vec![
        ("bad JSON", "/agents", post("/agents", "{\n  \"name\": }"), 400, "line 2 column 11"),
        ("no body", "/agents", post("/agents", ""), 400, "line 1 column 0"),
        ("a list", "/agents", post("/agents", "[]"), 400, "the body does not fit"),
        ("nested without end", "/agents", post("/agents", &format!("{{\"config\": {}", "[".repeat(10_000))), 400, "recursion limit"),
        ("not UTF-8", "/agents", api.call("POST", "/agents").body("application/json", *b"{\"name\": \"\xff\"}"), 400, "line 1"),
        ("nothing in it", "/agents", post("/agents", "{}"), 400, "name: is required"),
        ("an unknown field", "/agents", agent(json!({"colour": 1})), 400, "`colour`"),
        (
            "an unknown field within",
            "/agents",
            agent(json!({"governance": {"limits": {"per_day": 1}}})),
            400,
            "`governance.limits.per_day`",
        ),
        ("one field in two spellings", "/agents", agent(json!({"model_id": "a", "modelId": "a"})), 400, "two spellings"),
        ("a value of another kind", "/agents", agent(json!({"replicas": "two"})), 400, "replicas: must be of type integer"),
        ("a value out of range", "/agents", agent(json!({"replicas": 11})), 400, "replicas"),
        ("a rule of the cluster", "/agents", agent(json!({"model_type": "openai"})), 400, "model_id"),
        ("a name without letters", "/agents", post("/agents", r#"{"name": "!!", "framework": "custom"}"#), 400, "name: "),
        ("an unknown field of a team", "/teams", post("/teams", r#"{"name": "x", "colour": 1}"#), 400, "unknown field `colour`"),
        ("no type", "/agents", api.call("POST", "/agents"), 415, "application/json"),
        ("another type", "/agents", api.call("POST", "/agents").body("text/plain", "{}"), 415, "application/json"),
        ("over 1 MiB", "/agents", post("/agents", &format!("{{\"name\": \"{}\"}}", "a".repeat(1 << 20))), 413, "1048576 bytes"),
        ("a key with spaces", "/agents", agent(json!({})).header("Idempotency-Key", "a b"), 400, "Idempotency-Key"),
    ];
    for (what, path, call, status, says) in cases {
        assert_error(what, &format!("/api/v1{path}"), &call.send(), status, says);
    }
    assert_eq!(api.call("GET", "/agents").expect(200)["data"], json!([]), "nothing was made of all this");
}

#[test]
fn what_is_wrong_with_a_path_a_query_or_a_header_is_told() {
    let team = Team::new("contract-paths");
    let api = Api::of(&team);
    let (url, header) = ("a".repeat(9000), "b".repeat(33_000));
    for (method, path, status, says) in [
        ("GET", "/", 404, "/api/v1"),
        ("GET", "/api", 404, "/api/v1"),
        ("GET", "/api/v1", 404, "/api/v1"),
        ("GET", "/api/v2/agents", 404, "/api/v1"),
        ("GET", "/api/v1agents", 404, "/api/v1"),
        ("GET", "/api/v1/", 404, "no such endpoint"),
        ("GET", "/api/v1/nothing", 404, "no such endpoint"),
        ("GET", "/api/v1/agents/", 404, "no such endpoint"),
        ("GET", "/api/v1//agents", 404, "no such endpoint"),
        ("GET", "/api/v1/agents//conversations", 404, "no such endpoint"),
        ("GET", "/api/v1/agents/../../../healthz", 404, "no such endpoint"),
        ("GET", "/api/v1/agents/%ff", 400, "UTF-8"),
        ("GET", "/api/v1/agents/a%2fb", 404, "agent a/b"),
        ("GET", "/api/v1/agents/%00", 404, "agent "),
        ("GET", "/api/v1/agents/nobody", 404, "there is no agent nobody"),
        ("GET", "/api/v1/agents/ag_00000000000000000000", 404, "there is no agent ag_"),
        ("GET", "/api/v1/teams/%2e%2e", 403, "no role"),
        ("GET", "/api/v1/tools/Nothing", 404, "tool Nothing"),
        ("GET", "/api/v1/agents?colour=1", 400, "`colour`"),
        ("GET", "/api/v1/agents/nobody?limit=1", 400, "`limit`"),
        ("GET", "/api/v1/agents?limit=0", 400, "1 to 500"),
        ("GET", "/api/v1/agents?limit=501", 400, "1 to 500"),
        ("GET", "/api/v1/agents?limit=-1", 400, "1 to 500"),
        ("GET", "/api/v1/agents?limit=many", 400, "1 to 500"),
        ("GET", "/api/v1/agents?limit=1&limit=2", 400, "twice"),
        ("GET", "/api/v1/agents?cursor=1", 400, "next_cursor"),
        ("GET", "/api/v1/agents?search=%ff", 400, "UTF-8"),
        ("DELETE", "/api/v1/teams/nobody?force=yes", 400, "true or false"),
        ("PUT", "/api/v1/agents", 405, "GET, POST"),
        ("DELETE", "/api/v1/health", 405, "GET"),
        ("TRACE", "/api/v1/agents", 405, "GET, POST"),
        ("BREW", "/api/v1/agents/x", 405, "GET"),
        ("HEAD", "/api/v1/agents/x/deploy", 405, ""),
    ] {
        let what = format!("{method} {path}");
        let reply = api.whole(method, path).send();
        if method == "HEAD" {
            assert_eq!((reply.status, reply.body.as_str()), (status, ""), "{what}");
        } else {
            assert_error(&what, path, &reply, status, says);
        }
        let allowed = reply.header("allow").contains("OPTIONS");
        assert_eq!(allowed, status == 405, "{what}: {reply:?}");
    }
    let long = format!("/api/v1/agents/{url}");
    assert_error("a URL without end", &long, &api.whole("GET", &long).send(), 414, "8192");
    let agents = "/api/v1/agents";
    for (name, value, status, says) in [
        ("X-Filler", header.as_str(), 431, "32768"),
        ("X-Resource-Version", "new", 400, "X-Resource-Version"),
        ("X-Resource-Version", "-1", 400, "X-Resource-Version"),
        ("X-Resource-Version", "\u{e9}", 400, "X-Resource-Version"),
    ] {
        assert_error(name, agents, &api.whole("GET", agents).header(name, value).send(), status, says);
        let one = "/api/v1/agents/nobody";
        assert_error(name, one, &api.whole("GET", one).header(name, value).send(), status, says);
    }
    let made = api.call("POST", "/agents").json(&json!({"name": "Helper", "framework": "custom"})).expect(201);
    let config = format!("/api/v1/agents/{}/config", made["data"]["id"].as_str().unwrap_or_default());
    for (tag, status, says) in [("\"", 400, "If-Match"), ("\"1\"", 409, "If-Match")] {
        let patch = api.whole("PATCH", &config).header("If-Match", tag).json(&json!({"description": "x"}));
        assert_error(tag, &config, &patch.send(), status, says);
    }
}

#[test]
fn every_path_of_the_document_answers_head_and_options() {
    let team = Team::new("contract-methods");
    let api = Api::of(&team);
    team.agent("helper", &json!({"suspend": true}));
    let document = api.call("GET", "/openapi.json").expect(200);
    for (path, operations) in document["paths"].as_object().unwrap() {
        let methods: Vec<String> = operations.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        let options = api.call("OPTIONS", path).send();
        assert_eq!((options.status, options.body.as_str()), (204, ""), "OPTIONS {path}: {options:?}");
        let allowed: Vec<&str> = options.header("allow").split(", ").collect();
        assert!(methods.iter().all(|method| allowed.contains(&method.as_str())), "{path}: {methods:?}, {allowed:?}");
        assert_eq!(allowed.contains(&"HEAD"), allowed.contains(&"GET"), "{path}: {allowed:?}");
        if !methods.contains(&"GET".to_owned()) || (path.contains('{') && !path.starts_with("/agents/{id}")) {
            continue;
        }
        let path = path.replace("{id}", "helper").replace("{cid}", "conv_1");
        let head = api.call("HEAD", &path).send();
        assert_eq!(head.body, "", "HEAD {path}");
        if path.ends_with("/events") {
            assert_eq!((head.status, head.header("content-type")), (200, "text/event-stream"), "{head:?}");
            continue;
        }
        let get = api.call("GET", &path).send();
        assert_eq!((head.status, head.header("content-type")), (get.status, get.header("content-type")), "HEAD {path}");
        assert_ne!(get.body, "", "GET {path}");
    }
}

#[test]
fn a_request_keeps_its_id() {
    let team = Team::new("contract-ids");
    let api = Api::of(&team);
    let with = |id: &str| api.call("GET", "/agents").header("X-Request-Id", id).send().header("x-request-id").to_owned();
    assert_eq!(with("run-17/3"), "run-17/3");
    for unfit in ["two words", &"x".repeat(129), "<script>"] {
        assert!(with(unfit).starts_with("req_"), "{unfit}");
    }
    assert_ne!(with("<"), with("<"));
}
