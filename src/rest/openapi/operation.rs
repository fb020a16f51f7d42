//! One route as an OpenAPI operation.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};
use slipway_api::integration::IntegrationType;
use slipway_http::{Method, StatusCode};

use super::{examples, parts};
use crate::fields::NAME;
use crate::permission::Permission;
use crate::route::{Parameter, Route};

const STREAM: &str = "text/event-stream";
/// Endpoints with several media types; the first has 200 for a replacement, too.
const IMPORT: &str = "/skills/import";
const INGEST: &str = "/knowledge-bases/{id}/ingest";
/// The collection that the latter adds to.
const JOBS: &str = "/knowledge-bases/{id}/jobs";
/// Endpoints that ask the team's worker: also `INGEST`, for an upload.
const CONTENT: [&str; 3] = ["/knowledge-bases/{id}/documents", "/knowledge-bases/{id}/documents/{doc}", "/knowledge-bases/{id}/search"];

/// Waits for the manager, which asks the team's worker.
const CONNECTION: &str = "/integrations/{id}/test";

/// Answers with an archive.
const SCAFFOLD: &str = "/scaffold";

/// Creates a release only if anything has changed.
const RELEASES: &str = "/agents/{id}/releases";

/// Reads one agent.
const AGENT: &str = "/agents/{id}";

/// Starts a canary, which is a change of the agent, too.
const CANARY: &str = "/agents/{id}/canary";

/// Reads two runs, which must have ended.
const COMPARISON: &str = "/agents/{id}/evaluations/compare";

/// Path parts of routes that read the release history.
const HISTORY: [&str; 2] = ["/releases", "/versions"];

/// Properties of an operation that are derived from its route.
#[expect(clippy::struct_excessive_bools, reason = "each is true or not whatever the others are")]
struct Facts {
    /// It is relayed to an agent.
    relayed: bool,
    /// The team's worker answers.
    content: bool,
    /// It may ask the team's worker.
    worker: bool,
    /// The manager may take too long, or be busy with the same.
    waits: bool,
    stream: bool,
    /// Its reply is a list.
    list: bool,
    paged: bool,
    /// Its reply may come from the cache.
    cached: bool,
    /// It reads the release history.
    history: bool,
    /// Its reply is an archive.
    archive: bool,
    /// It creates a resource.
    makes: bool,
    /// It changes or deletes a resource, and supports `If-Match`.
    changes: bool,
    body: bool,
}

impl Facts {
    fn of(route: &Route, response: &Value, body: bool) -> Self {
        let relayed = matches!(route.permission, Permission::Team(right) if right.subresource == Some("chat"));
        let ours = !relayed && !matches!(route.permission, Permission::Open | Permission::Callback | Permission::Gate | Permission::Known);
        let content = CONTENT.contains(&route.path);
        let makes = ours && matches!(route.status, StatusCode::CREATED | StatusCode::ACCEPTED);
        let history = ours && HISTORY.iter().any(|part| route.path.contains(part));
        // A membership is replaced rather than changed, the connection test changes nothing, and a sync changes many
        // things. A project is nothing in the cluster.
        let apart = ["/members", "/platform/config/test", "/platform/sync", SCAFFOLD].iter().any(|part| route.path.contains(part));
        Self {
            relayed,
            content,
            worker: content || route.path == INGEST,
            waits: route.path == CONNECTION,
            history,
            archive: route.path == SCAFFOLD,
            stream: route.media == STREAM,
            list: response["properties"]["data"]["type"] == "array",
            paged: !relayed && !content && !history && route.parameters.iter().any(|parameter| parameter.name == "cursor"),
            cached: route.method == Method::GET && route.path == AGENT,
            makes,
            changes: ours && (!makes || route.path == CANARY) && !apart && !content && route.method != Method::GET,
            body,
        }
    }

    fn refusals(&self, route: &Route) -> Vec<StatusCode> {
        // Its one refusal is an answer of its own.
        if route.permission == Permission::Gate {
            return Vec::new();
        }
        let (open, known) = (route.permission == Permission::Open, route.permission == Permission::Known);
        let callback = route.permission == Permission::Callback;
        let team = matches!(route.permission, Permission::Team(_) | Permission::TeamOrNamed(_) | Permission::TeamOrAll(_));
        let write = route.method != Method::GET;
        let all = [
            (StatusCode::BAD_REQUEST, true),
            (StatusCode::UNAUTHORIZED, !open),
            (StatusCode::FORBIDDEN, !open && !callback && !known),
            (StatusCode::NOT_FOUND, !callback && (team || route.path.contains('{'))),
            (StatusCode::REQUEST_TIMEOUT, self.body),
            // Another turn of the conversation may be running.
            (StatusCode::CONFLICT, write || route.path == COMPARISON),
            (StatusCode::PAYLOAD_TOO_LARGE, self.body),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, self.body),
            (StatusCode::TOO_MANY_REQUESTS, self.relayed || self.worker || self.waits || self.stream || callback),
            (StatusCode::INTERNAL_SERVER_ERROR, true),
            (StatusCode::BAD_GATEWAY, self.relayed || self.worker || self.history),
            (StatusCode::SERVICE_UNAVAILABLE, !open),
            (StatusCode::GATEWAY_TIMEOUT, self.relayed || self.worker || self.waits),
        ];
        all.into_iter().filter(|(_, comes)| *comes).map(|(status, _)| status).collect()
    }

    fn headers(&self) -> &'static [&'static str] {
        match () {
            () if self.relayed
                || self.content
                || self.waits
                || self.stream
                || self.archive
                || (self.list && !self.paged)
                || (self.history && !self.changes) =>
            {
                &[]
            }
            () if self.list => &["X-Resource-Version"],
            () => &["X-Resource-Version", "ETag"],
        }
    }
}

pub(super) fn of(route: &Route, routes: &[Route], generator: &mut SchemaGenerator) -> Value {
    let schema = (route.response)(generator).to_value();
    let body = (route.request)(generator);
    let facts = Facts::of(route, &schema, body.is_some());
    let id = id(route);
    let mut content = json!({"schema": schema});
    if facts.stream {
        examples::stream(route.method == Method::GET, &mut content);
    }
    let mut responses = Map::new();
    let mut answer = json!({
        "description": route.status.canonical_reason().unwrap_or_default(),
        "headers": parts::headers_of(if route.permission.authenticates() { facts.headers() } else { &[] }),
        "content": {route.media: content},
    });
    if facts.makes {
        answer["links"] = links(route, routes, &answer["content"][route.media]["schema"], generator);
    }
    let stands = match route.path {
        // A replacement is not new.
        IMPORT => Some("It has taken another's place."),
        RELEASES if route.method == Method::POST => Some("Nothing has changed since this release, which stands; none was made."),
        _ => None,
    };
    if let Some(why) = stands {
        let mut replaced = answer.clone();
        replaced["description"] = json!(why);
        responses.insert("200".to_owned(), replaced);
    }
    if route.permission == Permission::Gate {
        let mut shut = answer.clone();
        shut["description"] =
            json!("The rollout does not go on: the score is too low, there is none yet, or the credential is not the namespace's.");
        responses.insert(StatusCode::PRECONDITION_FAILED.as_str().to_owned(), shut);
    }
    responses.insert(route.status.as_str().to_owned(), answer);
    for status in facts.refusals(route) {
        responses.insert(status.as_str().to_owned(), parts::refusal(status));
    }
    let mut operation = json!({
        "operationId": id,
        "tags": [route.path.split('/').nth(1).unwrap_or_default()],
        "summary": route.about,
        "description": format!("Takes: {}.", route.permission),
        "x-permission": route.permission.form(),
        "responses": responses,
    });
    let parameters = parameters(route, &facts);
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some((media, schema)) = body {
        let mut content = json!({"schema": schema});
        if let Some(example) = examples::of(&id) {
            content["example"] = example;
        }
        operation["requestBody"] = json!({"required": route.body_required, "content": {media: content}});
        if route.path == IMPORT {
            examples::archives(&mut operation["requestBody"]["content"]);
        }
        if route.path == INGEST {
            examples::documents(&mut operation["requestBody"]["content"]);
        }
    }
    match route.permission {
        // The credential is no scheme of its own: it stands in the URL.
        Permission::Open | Permission::Gate => operation["security"] = json!([]),
        Permission::Callback => operation["security"] = json!([{"callback": []}]),
        _ => {}
    }
    operation
}

fn parameters(route: &Route, facts: &Facts) -> Vec<Value> {
    let kind = route.path.split('/').nth(1).unwrap_or_default();
    let path = variables(route.path).map(|name| {
        let (about, example) = examples::part(kind, name);
        json!({"name": name, "in": "path", "required": true, "description": about, "schema": {"type": "string", "minLength": 1}, "example": example})
    });
    let query = route.parameters.iter().map(query);
    let own_team = matches!(route.permission, Permission::Team(_) | Permission::TeamOrAll(_)) && !route.path.contains("{team}");
    let headers = [
        ("Team", own_team),
        ("TeamId", own_team),
        ("ResourceVersion", facts.paged || facts.cached),
        ("IfMatch", facts.changes),
        ("IdempotencyKey", facts.makes),
        ("LastEventId", facts.stream && route.method == Method::GET),
    ];
    let headers = headers.into_iter().filter(|(_, taken)| *taken).map(|(name, _)| parts::parameter(name));
    path.chain(query).chain(headers).collect()
}

fn query(parameter: &Parameter) -> Value {
    let schema = match (parameter.name, parameter.kind) {
        ("limit", _) => json!({"type": "integer", "minimum": 1, "maximum": 500, "default": 100}),
        (_, "boolean") => json!({"type": "boolean"}),
        // An empty one counts as none.
        ("scope", _) => json!({"type": "string", "enum": ["team", "all", ""], "default": "team"}),
        ("type", "integration_type") => {
            let words: Vec<&str> = IntegrationType::ALL.iter().map(|kind| kind.as_str()).chain([""]).collect();
            json!({"type": "string", "enum": words})
        }
        ("status", "integration_status") => json!({"type": "string", "enum": ["connected", "error", "disconnected", ""]}),
        ("status", _) => json!({"type": "string", "enum": ["pending", "running", "completed", "failed", "cancelled", ""]}),
        (_, kind) => json!({"type": kind}),
    };
    // The two versions of a comparison.
    if ["from", "to"].contains(&parameter.name) {
        let schema = json!({"type": "integer", "minimum": 1, "maximum": i64::MAX});
        return json!({"name": parameter.name, "in": "query", "required": true, "description": parameter.about, "schema": schema, "example": 1});
    }
    if parameter.kind == "source" {
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": NAME});
        let (name, about) = (parameter.name, parameter.about);
        return json!({"name": name, "in": "query", "required": true, "description": about, "schema": schema, "example": "manuals"});
    }
    // The two runs of a comparison.
    if ["a", "b"].contains(&parameter.name) {
        let schema = json!({"type": "string", "minLength": 1});
        let example = "ev_01jd8z7q3v5x9m2k4n6p8r0s1t";
        return json!({"name": parameter.name, "in": "query", "required": true, "description": parameter.about, "schema": schema, "example": example});
    }
    json!({"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema})
}

/// The operations that need only the id of the created object.
fn links(route: &Route, routes: &[Route], answer: &Value, generator: &SchemaGenerator) -> Value {
    let collection = format!("{}/{{", if route.path == INGEST { JOBS } else { route.path.trim_end_matches("/import") });
    let made =
        answer["properties"]["data"]["$ref"].as_str().and_then(|reference| generator.definitions().get(reference.rsplit('/').next()?));
    let has = |name: &str| made.is_none_or(|made| made["properties"].get(name).is_some());
    let named = [("id", "id"), ("metadata", "metadata/version"), ("job_id", "job_id")]
        .into_iter()
        .find(|(field, _)| has(field))
        .map_or("slug", |(_, named)| named);
    let known: Vec<&str> = variables(route.path).collect();
    let mut links = Map::new();
    // Callbacks are not addressed to the creator of the object.
    let targets = routes.iter().filter(|target| target.path.starts_with(&collection) && target.permission != Permission::Callback);
    for target in targets {
        let missing: Vec<&str> = variables(target.path).filter(|name| !known.contains(name)).collect();
        let [own] = missing.as_slice() else { continue };
        let mut parameters = json!({*own: format!("$response.body#/data/{named}")});
        for name in &known {
            parameters[*name] = json!(format!("$request.path.{name}"));
        }
        links.insert(id(target), json!({"operationId": id(target), "parameters": parameters}));
    }
    Value::Object(links)
}

fn variables(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// For example `getAgentsIdConfig` for `GET /agents/{id}/config`.
pub(super) fn id(route: &Route) -> String {
    let mut id = route.method.as_str().to_lowercase();
    for word in route.path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(1);
        id.push_str(&first.to_uppercase());
        id.push_str(rest);
    }
    id
}
