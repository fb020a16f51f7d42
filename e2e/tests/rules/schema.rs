//! What the schema refuses without a rule: enumerations, ranges, lengths, doubles, unknown and missing fields.

use serde_json::json;

use super::{accepted, manifest, refused};

#[test]
fn agents() {
    let cases = [
        ("spec.framework", "{framework: homemade}"),
        ("spec.strategy", "{strategy: clever}"),
        ("spec.channel", "{channel: slack}"),
        ("spec.modelType", "{modelType: acme, modelId: m}"),
        ("spec.storage", "{storage: sqlite}"),
        ("spec.suggestionsProvider", "{suggestionsProvider: oracle}"),
        ("spec.replicas", "{replicas: 11}"),
        ("spec.replicas", "{replicas: -1}"),
        ("spec.replicas", "{replicas: two}"),
        ("spec.name", "{name: ''}"),
        ("spec.modelId", "{modelId: ''}"),
        ("spec.modelIntegration", "{modelType: openai, modelId: m, modelIntegration: ../llm}"),
        ("spec.version", "{version: 'one two'}"),
        ("spec.backgroundModel", "{backgroundModel: gpt-5}"),
        ("spec.databaseUrl", "{databaseUrl: 'mysql://db/slipway'}"),
        ("spec.databaseUrl", "{databaseUrl: 'db:5432'}"),
        ("spec.image", "{image: 'a b'}"),
        ("spec.gcpServiceAccount", "{gcpServiceAccount: nobody}"),
        ("spec.access", "{access: everybody}"),
        ("spec.tools[1]", "{tools: [a, a]}"),
        ("spec.knowledgeBases[1]", "{knowledgeBases: [a, a]}"),
        ("spec.envSecrets[1]", "{envSecrets: [a, a]}"),
        ("spec.resources.requests.cpu", "{resources: {requests: {cpu: much}}}"),
        ("spec.resources.limits.memory", "{resources: {limits: {memory: -1Mi}}}"),
        ("spec.canary.enabled", "{canary: {weight: 10}}"),
        ("spec.canary.weight", "{canary: {enabled: true}}"),
        ("spec.canary.weight", "{canary: {enabled: true, weight: 0}}"),
        ("spec.canary.weight", "{canary: {enabled: true, weight: 101}}"),
        ("spec.canary.replicas", "{canary: {enabled: true, weight: 10, replicas: 11}}"),
        ("spec.canary.tools[1]", "{canary: {enabled: true, weight: 10, tools: [a, a]}}"),
        ("spec.canary.overrides.replicas", "{canary: {enabled: true, weight: 10, overrides: {replicas: 1}}}"),
        ("spec.canary.overrides.suspend", "{canary: {enabled: true, weight: 10, overrides: {suspend: true}}}"),
        ("spec.canary.overrides.expose", "{canary: {enabled: true, weight: 10, overrides: {expose: gateway}}}"),
        ("spec.canary.overrides.canary", "{canary: {enabled: true, weight: 10, overrides: {canary: {enabled: true, weight: 1}}}}"),
        ("spec.canary.overrides.image", "{canary: {enabled: true, weight: 10, overrides: {image: example.com/mine:1}}}"),
        (
            "spec.canary.overrides.podTemplate.hostNetwork",
            "{canary: {enabled: true, weight: 10, overrides: {podTemplate: {hostNetwork: true}}}}",
        ),
        (
            "spec.canary.overrides.podTemplate.annotations",
            "{canary: {enabled: true, weight: 10, overrides: {podTemplate: {annotations: {agents.slipway.dev/config-hash: '0'}}}}}",
        ),
        (
            "spec.canary.overrides.databaseUrl",
            "{canary: {enabled: true, weight: 10, overrides: {databaseUrl: 'postgres://db/a?password=planted'}}}",
        ),
        (
            "spec.canary.overrides.databaseUrl",
            "{canary: {enabled: true, weight: 10, overrides: {databaseUrl: 'postgres://a:planted@db/a'}}}",
        ),
        (
            "spec.canary.overrides.governance.riskProfile",
            "{canary: {enabled: true, weight: 10, overrides: {governance: {riskProfile: reckless}}}}",
        ),
        ("spec.canary.analysis.steps[0]", "{canary: {enabled: true, weight: 10, analysis: {steps: [101]}}}"),
        ("spec.canary.analysis.steps[1]", "{canary: {enabled: true, weight: 10, analysis: {steps: [20, 20]}}}"),
        ("spec.canary.analysis.intervalSeconds", "{canary: {enabled: true, weight: 10, analysis: {intervalSeconds: 59}}}"),
        ("spec.canary.analysis.minimumRequests", "{canary: {enabled: true, weight: 10, analysis: {minimumRequests: 19}}}"),
        ("spec.canary.analysis.promotion", "{canary: {enabled: true, weight: 10, analysis: {promotion: soon}}}"),
        ("spec.canary.analysis.timeoutSeconds", "{canary: {enabled: true, weight: 10, analysis: {timeoutSeconds: 59}}}"),
        ("spec.canary.analysis.gates.score", "{canary: {enabled: true, weight: 10, analysis: {gates: {score: 101}}}}"),
        (
            "spec.canary.analysis.gates.errorRateIncrease",
            "{canary: {enabled: true, weight: 10, analysis: {gates: {errorRateIncrease: 101}}}}",
        ),
        ("spec.canary.analysis.gates.latencyRatio", "{canary: {enabled: true, weight: 10, analysis: {gates: {latencyRatio: 99}}}}"),
        ("spec.expose", "{expose: everywhere}"),
        ("spec.skills[1]", "{skills: [a, a]}"),
        ("spec.governance.guards[0]", "{governance: {guards: [good-behaviour]}}"),
        ("spec.governance.guards[1]", "{governance: {guards: [pii-detection, pii-detection]}}"),
        ("spec.governance.limits.requestsPerMinute", "{governance: {guards: [rate-limit], limits: {requestsPerMinute: 0}}}"),
        ("spec.governance.limits.dailyCostUsd", "{governance: {guards: [spend-limit], limits: {dailyCostUsd: '0.00'}}}"),
        ("spec.governance.limits.dailyCostUsd", "{governance: {guards: [spend-limit], limits: {dailyCostUsd: 0}}}"),
        ("spec.governance.limits.dailyCostUsd", "{governance: {guards: [spend-limit], limits: {dailyCostUsd: much}}}"),
        ("spec.governance.limits.blockedTopics[0]", "{governance: {guards: [blocked-topics], limits: {blockedTopics: [' ']}}}"),
        ("spec.governance.riskProfile", "{governance: {riskProfile: reckless}}"),
        ("spec.governance.minQualityScore", "{governance: {minQualityScore: -1}}"),
        ("spec.governance.minQualityScore", "{governance: {minQualityScore: 101}}"),
        ("spec.governance.policies[1]", "{governance: {policies: [a, a]}}"),
        ("spec.evalSampleRate", "{evalSampleRate: 101}"),
        ("spec.evalSampleRate", "{evalSampleRate: -1}"),
        ("spec.environment", "{environment: 'over there'}"),
        ("spec.podTemplate.hostNetwork", "{podTemplate: {hostNetwork: true}}"),
        ("spec.serviceAccountName", "{serviceAccountName: admin}"),
    ];
    for (field, spec) in cases {
        refused(&manifest("Agent", "faulty", spec), &[field]);
    }
}

#[test]
fn tools() {
    let http = |endpoint: &str| format!("{{type: http, endpoint: '{endpoint}', parameters: [{{name: host, type: string}}]}}");
    for endpoint in [
        "{host}://x/",
        "https://{host}/",
        "https://api.{host}.com/x",
        "https://user@host/",
        "https://user:pw@host/",
        "ftp://x/",
        "x/y",
        "https:///x",
    ] {
        refused(&manifest("Tool", "faulty", &http(endpoint)), &["spec.endpoint"]);
    }
    let cases = [
        ("spec.type", "{type: telepathy}"),
        ("spec.method", "{type: http, endpoint: 'http://x/', method: BREW}"),
        ("spec.timeout", "{timeout: 0}"),
        ("spec.timeout", "{timeout: 3601}"),
        ("spec.name", "{name: 'two words'}"),
        ("spec.binary", "{type: cli, binary: df}"),
        ("spec.mcpEndpoint", "{type: mcp, mcpEndpoint: 'http://user:pw@mcp/'}"),
        ("spec.mcpEndpoint", "{type: mcp, mcpEndpoint: 'http://{host}/'}"),
        ("spec.parameters[0].type", "{parameters: [{name: a, type: date}]}"),
        ("spec.parameters[0].name", "{parameters: [{name: 'a b', type: string}]}"),
        ("spec.parameters[1]", "{parameters: [{name: a, type: string}, {name: a, type: integer}]}"),
        (
            "spec.headersFrom[1]",
            "{type: http, endpoint: 'http://x/', headersFrom: [{name: A, secret: s, key: k}, {name: A, secret: t, key: k}]}",
        ),
        ("spec.integration", "{type: mcp, integration: ../other}"),
        ("spec.integration", "{type: mcp, integration: ''}"),
        ("spec.headersFrom[0].scheme", "{type: http, endpoint: 'http://x/', headersFrom: [{name: A, secret: s, key: k, scheme: digest}]}"),
        ("spec.enabled", "{enabled: sometimes}"),
        ("spec.command", "{type: cli, binary: /bin/sh, command: ls}"),
    ];
    for (field, spec) in cases {
        refused(&manifest("Tool", "faulty", spec), &[field]);
    }
}

#[test]
fn teams_knowledge_bases_and_releases() {
    let cases = [
        ("Team", "spec.name", "{name: ''}"),
        ("Team", "spec.quota.pods", "{quota: {pods: many}}"),
        ("Team", "spec.containerLimits.max.cpu", "{containerLimits: {max: {cpu: much}}}"),
        ("Team", "spec.gcpServiceAccounts[1]", "{gcpServiceAccounts: [a@b, a@b]}"),
        ("Team", "spec.members", "{members: []}"),
        ("KnowledgeBase", "spec.chunkSize", "{chunkSize: 15, chunkOverlap: 1}"),
        ("KnowledgeBase", "spec.chunkSize", "{chunkSize: 8193}"),
        ("KnowledgeBase", "spec.chunkOverlap", "{chunkOverlap: -1}"),
        ("KnowledgeBase", "spec.embeddingModel", "{embeddingModel: ''}"),
        ("KnowledgeBase", "spec.documents", "{documents: []}"),
        ("KnowledgeBase", "spec.sources[0].name", "{sources: [{name: A, local: {path: a}}]}"),
        ("KnowledgeBase", "spec.sources[0].schedule", "{sources: [{name: a, schedule: '@daily', local: {path: a}}]}"),
        ("KnowledgeBase", "spec.sources[0].schedule", "{sources: [{name: a, schedule: '0 3 * *', local: {path: a}}]}"),
        ("KnowledgeBase", "spec.sources[1]", "{sources: [{name: a, local: {path: a}}, {name: a, local: {path: b}}]}"),
        ("KnowledgeBase", "spec.sources[0].s3.bucket", "{sources: [{name: a, s3: {bucket: A}, credentialsSecret: s}]}"),
        ("KnowledgeBase", "spec.sources[0].ftp", "{sources: [{name: a, ftp: {host: x}}]}"),
        ("Team", "spec.knowledgeVolume", "{knowledgeVolume: ../files}"),
        ("Ingestion", "spec.knowledgeBase", "{knowledgeBase: ../docs, upload: up_1}"),
        ("Ingestion", "spec.upload", "{upload: up/1}"),
        ("Ingestion", "spec.source.s3.endpoint", "{source: {s3: {bucket: docs, endpoint: 'https://user:pw@s3'}, credentialsSecret: s}}"),
        ("Ingestion", "spec.source.confluence.baseUrl", "{source: {confluence: {baseUrl: 'ftp://c', spaceKey: K}, credentialsSecret: s}}"),
        ("Ingestion", "spec.source.googleDrive.folderId", "{source: {googleDrive: {folderId: a/b}, credentialsSecret: s}}"),
        ("Ingestion", "spec.source.databricks.host", "{source: {databricks: {host: 'a b', path: a.b.c}, credentialsSecret: s}}"),
        ("Ingestion", "spec.source.integration", "{source: {s3: {bucket: docs}, integration: a/b}}"),
        ("Ingestion", "spec.ttlSecondsAfterFinished", "{upload: up_1, ttlSecondsAfterFinished: -1}"),
        ("Team", "spec.requiredPolicies[1]", "{requiredPolicies: [a, a]}"),
        ("Team", "spec.requiredPolicies[0]", "{requiredPolicies: [../a]}"),
        ("GuardrailPolicy", "spec.severity", "{severity: fatal}"),
        ("GuardrailPolicy", "spec.enabled", "{enabled: sometimes}"),
        ("GuardrailPolicy", "spec.rules", "{rules: []}"),
        ("GuardrailPolicy", "spec.rules[0].type", "{rules: [{type: max_size, operator: lt, value: '1'}]}"),
        ("GuardrailPolicy", "spec.rules[0].operator", "{rules: [{type: max_tokens, operator: gt, value: '1'}]}"),
        ("GuardrailPolicy", "spec.rules[0].value", "{rules: [{type: max_tokens, operator: lt, value: 1}]}"),
        ("GuardrailPolicy", "spec.rules[0].value", "{rules: [{type: max_tokens, operator: lt}]}"),
        ("GuardrailPolicy", "spec.rules[0].unit", "{rules: [{type: max_tokens, operator: lt, value: '1', unit: k}]}"),
        ("GuardrailPolicy", "spec.agents", "{agents: [hello]}"),
        ("AgentRelease", "spec.agent", "{agent: null}"),
        ("AgentRelease", "spec.agent", "{agent: ../helper}"),
        ("AgentRelease", "spec.author", "{author: ''}"),
        ("AgentRelease", "spec.version", "{version: 3}"),
        ("Dataset", "spec.agent", "{agent: ../helper}"),
        ("Dataset", "spec.cases[0].input", "{cases: [{input: ''}]}"),
        ("Dataset", "spec.cases[0].input", "{cases: [{context: a}]}"),
        ("Dataset", "spec.cases[0].inputs", "{cases: [{input: a, inputs: b}]}"),
        ("Dataset", "spec.cases[0].metadata", "{cases: [{input: a, metadata: b}]}"),
        ("Dataset", "spec.guidelines[0]", "{guidelines: ['']}"),
        ("Dataset", "spec.casesFrom.configMap", "{cases: [], casesFrom: {configMap: ../cases}}"),
        ("Dataset", "spec.casesFrom.key", "{cases: [], casesFrom: {configMap: cases, key: a/b}}"),
        ("EvaluationRun", "spec.agent", "{agent: null}"),
        ("EvaluationRun", "spec.agent", "{agent: ../helper}"),
        ("EvaluationRun", "spec.dataset", "{dataset: ''}"),
        ("EvaluationRun", "spec.track", "{track: primary}"),
        ("EvaluationRun", "spec.content", "{track: canary, content: ABC}"),
        ("EvaluationRun", "spec.riskProfile", "{riskProfile: reckless}"),
        ("EvaluationRun", "spec.minQualityScore", "{minQualityScore: 0}"),
        ("EvaluationRun", "spec.minQualityScore", "{minQualityScore: 101}"),
        ("EvaluationRun", "spec.judgeModel", "{judgeModel: 'acme:/m'}"),
        ("EvaluationRun", "spec.scorers[0]", "{scorers: [beauty]}"),
        ("EvaluationRun", "spec.scorers[1]", "{scorers: [safety, safety]}"),
        ("EvaluationRun", "spec.guidelines[0]", "{guidelines: ['']}"),
        ("EvaluationRun", "spec.ttlSecondsAfterFinished", "{ttlSecondsAfterFinished: -1}"),
    ];
    for (kind, field, spec) in cases {
        refused(&manifest(kind, "faulty", spec), &[field]);
    }
}

#[test]
fn integrations() {
    let cases = [
        ("spec.name", "{name: '', slack: {}}"),
        ("spec.colour", "{slack: {}, colour: red}"),
        ("spec.slack.webhookUrl", "{slack: {webhookUrl: 'https://hooks.example/planted'}}"),
        ("spec.credentialsSecret", "{slack: {}, credentialsSecret: ../other}"),
        ("spec.alerts.severities[0]", "{slack: {}, alerts: {severities: [info]}}"),
        ("spec.alerts.severities[1]", "{slack: {}, alerts: {severities: [warning, warning]}}"),
        ("spec.alerts.agents[1]", "{slack: {}, alerts: {agents: [a, a]}}"),
        ("spec.alerts.metrics[0]", "{slack: {}, alerts: {metrics: [Errors]}}"),
        ("spec.local.path", "{local: {path: ''}}"),
        ("spec.googleDrive.endpoint", "{googleDrive: {endpoint: 'https://d/path'}}"),
        ("spec.s3.endpoint", "{s3: {endpoint: 'https://user:pw@s3'}}"),
        ("spec.s3.region", "{s3: {region: 'a/b'}}"),
        ("spec.s3.bucket", "{s3: {bucket: A}}"),
        ("spec.confluence.baseUrl", "{confluence: {}}"),
        ("spec.confluence.baseUrl", "{confluence: {baseUrl: 'ftp://c'}}"),
        ("spec.jira.baseUrl", "{jira: {baseUrl: 'https://j?a=b'}}"),
        ("spec.databricks.host", "{databricks: {host: 'a b'}}"),
        ("spec.databricks.host", "{databricks: {warehouseId: w}}"),
        ("spec.mlflow.url", "{mlflow: {}}"),
        ("spec.prometheus.url", "{prometheus: {url: 'https://user:pw@p'}}"),
        ("spec.prometheus.url", "{prometheus: {url: 'https://p/?a=b'}}"),
        ("spec.webhook.url", "{webhook: {url: 'https://w#a'}}"),
        ("spec.webhook.url", "{webhook: {url: '/in'}}"),
        ("spec.slack.channel", "{slack: {channel: ''}}"),
        ("spec.openai.baseUrl", "{openai: {baseUrl: api.openai.com}}"),
        ("spec.openai.model", "{openai: {model: ''}}"),
        ("spec.anthropic.baseUrl", "{anthropic: {baseUrl: 'https://{host}'}}"),
        ("spec.mcp.url", "{mcp: {}}"),
        ("spec.mcp.header", "{mcp: {url: 'https://m', header: 'a b'}}"),
    ];
    for (field, spec) in cases {
        refused(&manifest("Integration", "faulty", spec), &[field]);
    }
    for spec in [
        "{local: {}}",
        "{googleDrive: {}}",
        "{s3: {}}",
        "{confluence: {baseUrl: 'https://c.example/wiki'}}",
        "{databricks: {host: dbc-1.cloud.databricks.com}}",
        "{mlflow: {url: 'http://mlflow:5000/prefix/'}}",
        "{webhook: {url: 'https://w.example?key=value'}, alerts: {}}",
        "{slack: {username: Slipway, channel: '#alerts'}, alerts: {}}",
        "{openai: {baseUrl: 'http://models:8080/v1', model: m}}",
        "{anthropic: {}}",
        "{mcp: {url: 'https://m/mcp', header: X-Key}}",
    ] {
        accepted(&manifest("Integration", "fine", spec));
    }
}

#[test]
fn skills() {
    let cases = [
        ("spec.name", "{name: Forms}"),
        ("spec.name", "{name: two--hyphens}"),
        ("spec.name", "{name: -forms}"),
        ("spec.description", "{description: ''}"),
        ("spec.instructions", "{instructions: ''}"),
        ("spec.tools[0]", "{tools: [' a']}"),
        ("spec.tools[1]", "{tools: [a, a]}"),
        ("spec.scripts", "{scripts: {a: b}}"),
    ];
    for (field, spec) in cases {
        refused(&manifest("Skill", "faulty", spec), &[field]);
    }
    let mut whole = manifest("Skill", "large", "{}");
    for (length, fits) in [(64 * 1024, true), (64 * 1024 + 1, false)] {
        whole["spec"]["instructions"] = json!("x".repeat(length));
        if fits { accepted(&whole) } else { refused(&whole, &["spec.instructions"]) }
    }
    whole["spec"]["instructions"] = json!("Short.");
    for (count, fits) in [(64, true), (65, false)] {
        whole["spec"]["files"] = (0..count).map(|at| (format!("f{at}"), json!("x"))).collect();
        if fits { accepted(&whole) } else { refused(&whole, &["spec.files"]) }
    }
}

/// The schema bounds each field and their number; the operator counts their bytes together.
#[test]
fn datasets_at_their_edges() {
    let mut whole = manifest("Dataset", "large", "{}");
    let mut check = |cases: Vec<serde_json::Value>, fits| {
        whole["spec"]["cases"] = cases.into();
        if fits { accepted(&whole) } else { refused(&whole, &["spec.cases"]) }
    };
    check(vec![json!({"input": "x".repeat(100)}); 2000], true);
    check(vec![json!({"input": "x"}); 2001], false);
    check(vec![json!({"input": "x".repeat(32_768), "context": "x".repeat(65_536)})], true);
    check(vec![json!({"input": "x".repeat(32_769)})], false);
}

#[test]
fn required_fields() {
    for (kind, field) in [
        ("Agent", "name"),
        ("Agent", "framework"),
        ("Tool", "name"),
        ("Tool", "type"),
        ("Team", "name"),
        ("KnowledgeBase", "name"),
        ("Skill", "name"),
        ("Skill", "description"),
        ("Skill", "instructions"),
        ("EvaluationRun", "agent"),
        ("GuardrailPolicy", "name"),
        ("GuardrailPolicy", "severity"),
        ("GuardrailPolicy", "rules"),
    ] {
        let mut whole = manifest(kind, "faulty", "{}");
        accepted(&whole);
        whole["spec"].as_object_mut().unwrap().remove(field);
        refused(&whole, &[&format!("spec.{field}: Required value")]);
        refused(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": {"name": "faulty"}}), &["spec: Required value"]);
    }
}

/// The largest values that the specification allows.
#[test]
fn edges() {
    for spec in
        ["{replicas: 0}", "{replicas: 10}", "{backgroundModel: ''}", "{backgroundModel: 'openai:gpt-5'}", "{tools: []}", "{envSecrets: []}"]
    {
        accepted(&manifest("Agent", "fine", spec));
    }
    for canary in [
        "{enabled: false, weight: 1}",
        "{enabled: true, weight: 99, replicas: 0, tools: [], overrides: {}, analysis: {}}",
        "{enabled: true, weight: 1, analysis: {steps: [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 100]}}",
        "null",
    ] {
        accepted(&manifest("Agent", "fine", &format!("{{canary: {canary}}}")));
    }
    accepted(&manifest("EvaluationRun", "fine", &format!("{{track: canary, content: {}}}", "0a".repeat(32))));
    for framework in ["custom", "langchain", "crewai", "autogen", "adk"] {
        accepted(&manifest("Agent", "fine", &format!("{{framework: {framework}}}")));
    }
    for provider in ["ollama", "openai", "anthropic", "google-ai", "vertex-ai", "bedrock"] {
        accepted(&manifest("Agent", "fine", &format!("{{modelType: {provider}, modelId: some-model}}")));
    }
    for kind in ["string", "integer", "number", "boolean"] {
        accepted(&manifest("Tool", "fine", &format!("{{parameters: [{{name: a, type: {kind}}}]}}")));
    }
}
