//! Example bodies, path parameters and streams.

use serde_json::{Value, json};

/// An example body for each operation with one of ours.
pub(super) fn all() -> Vec<(&'static str, Value)> {
    vec![
        (
            "postAgents",
            json!({"name": "Helper", "framework": "custom", "strategy": "agent-react", "model_type": "stub", "model_id": "stub-echo", "system_prompt": "You are a friendly assistant."}),
        ),
        ("patchAgentsIdConfig", json!({"system_prompt": "You are a patient assistant.", "replicas": 2, "description": null})),
        ("putAgentsIdSkills", json!({"skills": []})),
        ("patchAgentsIdStatus", json!({"status": "archived"})),
        ("postAgentsIdCanary", json!({"config": {"system_prompt": "You are a brief assistant.", "version": "brief", "weight": 10}})),
        ("patchAgentsIdCanary", json!({"weight": 25})),
        ("postAgentsIdReleases", json!({"changelog": "It is kinder now."})),
        (
            "postAgentsIdReleasesVersionEvalResult",
            json!({"run_id": "ev_01jd8z7q3v5x9m2k4n6p8r0s1t", "status": "completed", "scores": {"safety/mean": 1.0}, "passed": true, "verdict": "PASSED (avg=100.0 >= 75)"}),
        ),
        (
            "postAgentsIdEvaluationsRunIdResult",
            json!({"run_id": "ev_01jd8z7q3v5x9m2k4n6p8r0s1t", "status": "failed", "scores": {}, "passed": false, "verdict": "the judge could not be reached"}),
        ),
        ("postAgentsIdEvaluations", json!({"risk_profile": "standard", "min_quality_score": 80})),
        (
            "postAgentsIdDatasets",
            json!({"name": "hard-cases", "description": "Questions that went wrong before.", "cases": [{"input": "What is 17 times 3?", "expected_output": "51"}]}),
        ),
        (
            "putAgentsIdDatasetsName",
            json!({"guidelines": ["Answers are friendly."], "cases": [{"input": "What is 17 times 3?", "expected_output": "51", "metadata": {"topic": "numbers"}}]}),
        ),
        ("postAgentsIdChat", json!({"message": "Hello!"})),
        ("postAgentsIdChatStream", json!({"message": "Hello!"})),
        ("postAgentsIdMemory", json!({"content": "Ada likes short answers.", "category": "preference"})),
        ("postAgentsIdMemorySearch", json!({"query": "answers", "top_k": 5})),
        (
            "postFeedback",
            json!({"agent_id": "helper", "trace_id": "tr_01JD8Z7Q3V5X9M2K4N6P8R0S1T", "name": "helpful", "value": 0, "source": "human", "comment": "It did not answer."}),
        ),
        (
            "postKnowledgeBases",
            json!({"name": "Product Docs", "description": "Manuals of all products.", "sources": [{"name": "manuals", "schedule": "0 3 * * *", "type": "s3", "bucket": "product-docs", "prefix": "manuals/", "credentials_secret": "product-docs"}]}),
        ),
        (
            "postIntegrations",
            json!({"name": "Metrics", "type": "prometheus", "config": {"url": "https://prometheus.example.com"}, "credentials": {"username": "slipway", "password": "the-password"}}),
        ),
        (
            "putIntegrationsId",
            json!({"name": "Metrics", "description": "How our servers are.", "type": "prometheus", "config": {"url": "https://prometheus.example.com/api"}}),
        ),
        (
            "postScaffold",
            json!({"name": "Weather Helper", "description": "Tells people how the weather is.", "framework": "langchain", "capabilities": ["streaming", "guardrails", "evaluation", "ci"]}),
        ),
        (
            "postGovernancePolicies",
            json!({"name": "No Medical Advice", "severity": "critical", "rules": [{"type": "blocked_topics", "operator": "contains", "value": "diagnosis, dosage"}]}),
        ),
        (
            "putGovernancePoliciesId",
            json!({"name": "Token Limit", "severity": "warning", "enabled": true, "rules": [{"type": "max_tokens", "operator": "lt", "value": "2048"}]}),
        ),
        ("putKnowledgeBasesId", json!({"name": "Product Docs", "description": "Manuals of all products, and their notes."})),
        ("postKnowledgeBasesIdIngest", json!({"source": {"type": "s3", "bucket": "product-docs", "prefix": "manuals/"}})),
        ("postKnowledgeBasesIdSearch", json!({"query": "How is the filter changed?", "top_k": 5})),
        (
            "postWebhooksCanaryGate",
            json!({"name": "helper", "namespace": "team-research", "phase": "Progressing", "checksum": "85d557f47b", "metadata": {"hook": "rollout"}}),
        ),
        ("postWebhooksCanaryGateCredential", json!({"name": "helper", "namespace": "team-research", "phase": "Progressing"})),
        (
            "postPlatformConfigTest",
            json!({"mlflow_uri": "https://mlflow.example.com", "state_repo": "https://git.example.com/agents/{team}.git"}),
        ),
        ("postTeams", json!({"name": "Research", "description": "Those who find things out."})),
        ("postTeamsTeamMembers", json!({"email": "ada@example.com", "role": "developer"})),
        ("patchTeamsTeamMembersUser", json!({"role": "viewer"})),
        (
            "postTools",
            json!({"name": "weather", "type": "http", "description": "The weather of a city.", "endpoint": "https://wttr.in/{city}", "method": "GET", "parameters": [{"name": "city", "type": "string", "description": "The city's name.", "required": true}]}),
        ),
        ("putToolsName", json!({"name": "clock", "type": "builtin", "description": "Tells the time."})),
        (
            "postSkills",
            json!({"name": "greeting", "description": "How to greet people. Use it when somebody says hello.", "instructions": "Say hello back, by name."}),
        ),
        (
            "putSkillsId",
            json!({"name": "greeting", "description": "How to greet people. Use it when somebody says hello.", "instructions": "Say hello back, warmly."}),
        ),
    ]
}

pub(super) fn of(id: &str) -> Option<Value> {
    all().into_iter().find_map(|(known, example)| (known == id).then_some(example))
}

/// The description and an example of a path parameter.
pub(super) fn part(kind: &str, name: &str) -> (&'static str, &'static str) {
    match (kind, name) {
        ("agents", "id") | (_, "agent_id") => ("The agent, by id (ag_…) or slug.", "helper"),
        ("skills", "id") => ("The skill, by id (sk_…) or name.", "greeting"),
        ("knowledge-bases", "id") => ("The knowledge base, by id (kb_…) or slug.", "product-docs"),
        ("integrations", "id") => ("The integration, by id (in_…) or slug.", "metrics"),
        ("governance", "id") => ("The policy, by id (gp_…) or resource name.", "default-tokens"),
        ("webhooks", "credential") => (
            "The credential of the namespace: `credential` of its Secret slipway-canary-gate.",
            "the-credential-of-team-research-0123456789a",
        ),
        (_, "doc") => ("The document's id (doc_…).", "doc_01JD8Z7Q3V5X9M2K4N6P8R0S1T"),
        (_, "job_id") => ("The job's id.", "ing-01jd8z7q3v5x9m2k4n6p8r0s1t"),
        ("agents", "name") => ("The dataset, by id (ds_…) or name.", "hard-cases"),
        ("tools", "name") => ("The tool, by its slug.", "weather"),
        (_, "team") => ("The team, by id (tk_…) or slug.", "research"),
        (_, "user") => ("The member, by id (user_…).", "user_90f8a9b1c3d5e7f2"),
        (_, "version") => ("The release's number.", "1"),
        (_, "run_id") => ("The evaluation's id (ev_…).", "ev_01jd8z7q3v5x9m2k4n6p8r0s1t"),
        (_, "cid") => ("The conversation's id (conv_…).", "conv_01JD8Z7Q3V5X9M2K4N6P8R0S1T"),
        (_, "mid") => ("The memory's id (mem_…).", "mem_01JD8Z7Q3V5X9M2K4N6P8R0S1T"),
        _ => ("Which one.", "one"),
    }
}

/// The bodies with a zip archive, as a whole or in a form.
pub(super) fn archives(content: &mut Value) {
    let archive = json!({"type": "string", "contentMediaType": "application/zip", "description": "The archive, of at most 100 MiB."});
    content["application/zip"] = json!({"schema": archive});
    let form = json!({"type": "object", "properties": {"file": archive}, "required": ["file"], "additionalProperties": false});
    content["multipart/form-data"] = json!({ "schema": form });
}

/// The body with a file.
pub(super) fn documents(content: &mut Value) {
    let file = json!({"type": "string", "minLength": 1, "contentMediaType": "application/octet-stream", "description": "The file, of at most 100 MiB: .pdf, .docx, .html or .csv."});
    let form = json!({"type": "object", "properties": {"file": file}, "required": ["file"], "additionalProperties": false});
    content["multipart/form-data"] = json!({ "schema": form });
}

const HAPPENS: &str = "Server-sent events: first the last 50, or those after Last-Event-ID, then each as it comes. A comment every 15 s \
    keeps the connection open. A client passes over fields that it does not know.";
const HAPPENED: &str = "event: Normal\nid: 4711\ndata: {\"type\":\"Normal\",\"reason\":\"DeploymentReady\",\"message\":\"1 of 1 pods are ready\",\
    \"object\":{\"kind\":\"Agent\",\"name\":\"helper\"},\"agent_id\":\"ag_9f0c2d4e6a8b1c3d5e7f\",\"timestamp\":\"2026-11-21T12:00:00Z\",\"payload\":null}\n\n";
const SAYS: &str = "Server-sent events: `token` with the next piece of the answer in `content`, at the end `done` with all of it, or `error`. Between \
    them may come `tool_start`, `tool_end`, `sources`, `suggestions`, `guard`. A client passes over types that it does not know.";
const SAID: &str = "data: {\"type\":\"token\",\"content\":\"Hello\"}\n\ndata: {\"type\":\"done\",\"content\":\"Hello\",\"conversation_id\":\"conv_01JD8Z7Q3V5X9M2K4N6P8R0S1T\"}\n\n";

/// Describes an event stream, of an agent's events or of a chat.
pub(super) fn stream(happens: bool, content: &mut Value) {
    let (about, example) = if happens { (HAPPENS, HAPPENED) } else { (SAYS, SAID) };
    let text = json!({"type": "string"});
    let data = if happens {
        json!({
            "type": "object",
            "properties": {
                "type": {"enum": ["Normal", "Warning"]},
                "reason": text,
                "message": text,
                "object": {"type": "object", "properties": {"kind": text, "name": text}, "required": ["kind", "name"]},
                "agent_id": text,
                "timestamp": {"type": ["string", "null"]},
                "payload": {},
            },
            "required": ["type", "reason", "message", "object", "agent_id"],
        })
    } else {
        json!({
            "type": "object",
            "properties": {
                "type": text,
                "content": {"type": ["string", "null"]},
                "conversation_id": {"type": ["string", "null"]},
                "trace_id": {"type": ["string", "null"]},
                "usage": {"type": ["object", "null"], "properties": {"input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}}},
            },
            "required": ["type"],
        })
    };
    content["schema"] = json!({
        "type": "object",
        "description": about,
        "properties": {
            "event": text,
            "id": text,
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
        },
        "required": ["data"],
    });
    content["example"] = json!(example);
}
