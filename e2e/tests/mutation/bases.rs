//! The objects that are mutated: between them they have every field that a kind has, with a value that works. A Tool has
//! different fields for each type, and so has a source of documents.

use serde_json::Value;

pub(super) struct Base {
    pub kind: &'static str,
    pub name: &'static str,
    pub spec: &'static str,
}

impl Base {
    pub(super) fn spec(&self) -> Value {
        serde_yaml::from_str(self.spec).unwrap_or_else(|e| panic!("the base {} {}: {e}", self.kind, self.name))
    }
}

/// What the bases name besides each other.
pub(super) const SECRETS: [&str; 3] = ["login", "cloud", "token"];
/// What each of them has: whatever a base asks of any.
pub(super) const SECRET_KEYS: [&str; 10] = [
    "KEY",
    "username",
    "password",
    "token",
    "api_key",
    "service_account.json",
    "access_key_id",
    "secret_access_key",
    "signing_secret",
    "webhook_url",
];

/// In the order in which they are made. The Team is that of their namespace, whose slug is its name.
pub(super) const BASES: &[Base] = &[
    Base { kind: "Team", name: "", spec: TEAM },
    Base { kind: "Integration", name: "folder", spec: "{name: Folder, description: What all may read., local: {path: a}}" },
    Base {
        kind: "Integration",
        name: "drive",
        spec: "{name: Drive, googleDrive: {endpoint: 'https://private'}, credentialsSecret: token}",
    },
    Base {
        kind: "Integration",
        name: "bucket",
        spec: "{name: Bucket, s3: {endpoint: 'http://s3', region: eu-1, bucket: docs}, credentialsSecret: token}",
    },
    Base { kind: "Integration", name: "wiki", spec: "{name: Wiki, confluence: {baseUrl: 'https://wiki'}, credentialsSecret: token}" },
    Base { kind: "Integration", name: "issues", spec: "{name: Issues, jira: {baseUrl: 'https://jira'}, credentialsSecret: token}" },
    Base {
        kind: "Integration",
        name: "bricks",
        spec: "{name: Bricks, databricks: {host: bricks, warehouseId: w}, credentialsSecret: token}",
    },
    Base { kind: "Integration", name: "runs", spec: "{name: Runs, mlflow: {url: 'https://mlflow.example.com'}}" },
    Base { kind: "Integration", name: "metrics", spec: "{name: Metrics, prometheus: {url: 'https://metrics.example.com'}}" },
    Base {
        kind: "Integration",
        name: "hook",
        spec: "{name: Hook, webhook: {url: 'https://hook.example.com/in', headers: {X-Kind: alert}}, credentialsSecret: token, alerts: {severities: [critical], agents: [full], metrics: [error_rate_pct], resolved: false}}",
    },
    Base {
        kind: "Integration",
        name: "channel",
        spec: "{name: Channel, slack: {username: Slipway, channel: alerts}, credentialsSecret: token}",
    },
    Base { kind: "Integration", name: "llm", spec: "{name: LLM, openai: {baseUrl: 'https://llm.example.com/v1', model: m}}" },
    Base {
        kind: "Integration",
        name: "other-llm",
        spec: "{name: Other LLM, anthropic: {baseUrl: 'https://llm.example.com', model: m}, credentialsSecret: token}",
    },
    Base { kind: "Integration", name: "tickets", spec: "{name: Tickets, mcp: {url: 'https://mcp.example.com/tickets', header: X-Key}}" },
    Base { kind: "KnowledgeBase", name: "docs", spec: KNOWLEDGE_BASE },
    Base {
        kind: "KnowledgeBase",
        name: "bucket",
        spec: "{name: Bucket, sources: [{name: s, s3: {bucket: docs, prefix: a/, endpoint: 'http://s3', region: eu-1}, credentialsSecret: token}]}",
    },
    Base {
        kind: "KnowledgeBase",
        name: "drive",
        spec: "{name: Drive, sources: [{name: s, googleDrive: {folderId: f, endpoint: 'https://private'}, credentialsSecret: token}]}",
    },
    Base {
        kind: "KnowledgeBase",
        name: "wiki",
        spec: "{name: Wiki, sources: [{name: s, confluence: {baseUrl: 'https://wiki', spaceKey: K}, credentialsSecret: token}]}",
    },
    Base {
        kind: "KnowledgeBase",
        name: "project",
        spec: "{name: Project, sources: [{name: s, jira: {baseUrl: 'https://jira', projectKey: P}, credentialsSecret: token}]}",
    },
    Base {
        kind: "KnowledgeBase",
        name: "issues",
        spec: "{name: Issues, sources: [{name: s, jira: {baseUrl: 'https://jira', jql: status = Done}, credentialsSecret: token}]}",
    },
    Base {
        kind: "KnowledgeBase",
        name: "table",
        spec: "{name: Table, sources: [{name: s, databricks: {host: bricks, path: a.b.c, warehouseId: w}, credentialsSecret: token}]}",
    },
    Base {
        kind: "KnowledgeBase",
        name: "integrated",
        spec: "{name: Integrated, sources: [{name: s, s3: {bucket: docs}, integration: bucket}]}",
    },
    Base {
        kind: "GuardrailPolicy",
        name: "limits",
        spec: "{name: Limits, description: What agents may cost., severity: warning, enabled: true, rules: [{type: max_tokens, operator: lt, value: '4096'}]}",
    },
    Base {
        kind: "GuardrailPolicy",
        name: "topics",
        spec: "{name: Topics, severity: critical, rules: [{type: blocked_topics, operator: contains, value: 'violence, self_harm'}], rollback: false}",
    },
    Base { kind: "Skill", name: "forms", spec: SKILL },
    Base { kind: "Dataset", name: "golden", spec: DATASET },
    Base { kind: "Dataset", name: "elsewhere", spec: ELSEWHERE },
    Base { kind: "Tool", name: "http", spec: HTTP },
    Base { kind: "Tool", name: "cli", spec: CLI },
    Base { kind: "Tool", name: "mcp", spec: MCP },
    Base { kind: "Tool", name: "builtin", spec: BUILTIN },
    Base { kind: "Tool", name: "integrated", spec: "{name: query, type: http, endpoint: /api/v1/query, integration: metrics}" },
    Base {
        kind: "Tool",
        name: "login",
        spec: "{name: login, type: http, endpoint: 'https://api.example.com/', headersFrom: [{name: Authorization, secret: login, key: password, scheme: basic, usernameKey: username}]}",
    },
    Base { kind: "Agent", name: "full", spec: AGENT },
    Base { kind: "AgentRelease", name: "past", spec: RELEASE },
    Base { kind: "EvaluationRun", name: "ended", spec: RUN },
    Base {
        kind: "Ingestion",
        name: "files",
        spec: "{knowledgeBase: docs, source: {local: {path: a}}, cancel: true, ttlSecondsAfterFinished: 31536000}",
    },
    Base { kind: "Ingestion", name: "named", spec: "{knowledgeBase: kb_docs, sourceName: files, cancel: true}" },
    Base { kind: "Ingestion", name: "uploaded", spec: "{knowledgeBase: docs, upload: up_1, cancel: true}" },
    Base {
        kind: "Ingestion",
        name: "bucket",
        spec: "{knowledgeBase: docs, source: {s3: {bucket: docs, prefix: a/, endpoint: 'http://s3', region: eu-1}, credentialsSecret: token}, cancel: true}",
    },
    Base {
        kind: "Ingestion",
        name: "drive",
        spec: "{knowledgeBase: docs, source: {googleDrive: {folderId: f, endpoint: 'https://private'}, credentialsSecret: token}, cancel: true}",
    },
    Base {
        kind: "Ingestion",
        name: "wiki",
        spec: "{knowledgeBase: docs, source: {confluence: {baseUrl: 'https://wiki', spaceKey: K}, credentialsSecret: token}, cancel: true}",
    },
    Base {
        kind: "Ingestion",
        name: "project",
        spec: "{knowledgeBase: docs, source: {jira: {baseUrl: 'https://jira', projectKey: P}, credentialsSecret: token}, cancel: true}",
    },
    Base {
        kind: "Ingestion",
        name: "issues",
        spec: "{knowledgeBase: docs, source: {jira: {baseUrl: 'https://jira', jql: status = Done}, credentialsSecret: token}, cancel: true}",
    },
    Base {
        kind: "Ingestion",
        name: "table",
        spec: "{knowledgeBase: docs, source: {databricks: {host: bricks, path: a.b.c, warehouseId: w}, credentialsSecret: token}, cancel: true}",
    },
];

const TEAM: &str = "
name: Guests
description: All who stay here.
quota: {pods: '20', requests.cpu: '4'}
containerLimits: {default: {memory: 256Mi}, defaultRequest: {memory: 64Mi}, max: {memory: 1Gi}}
gcpServiceAccounts: [hello@project.example]
knowledgeVolume: files
requiredPolicies: [limits]
allowedPodSettings:
  priorityClassNames: [important]
  runtimeClassNames: [sandboxed]
  annotations: [example.com/*]
  labels: [example.com/*]
  tolerations: [gpu]
";

const KNOWLEDGE_BASE: &str = "
name: Docs
description: What guests ask about.
embeddingModel: nomic-embed-text
chunkSize: 256
chunkOverlap: 32
sources: [{name: files, schedule: 0 0 1 1 *, local: {path: a}}]
";

const SKILL: &str = "
name: fill-forms
description: How forms are filled in.
instructions: Read the form first.
category: office
version: '1'
author: ada
license: MIT
compatibility: Any model.
source: https://git.example.com/forms
tools: [lookup, 'Bash(git:*)']
files: {references/a.md: One., scripts/run.py: pass}
";

const HTTP: &str = "
name: weather
type: http
description: The weather of a city.
category: travel
endpoint: https://api.example.com/weather/{city}
method: GET
headers: {Accept: application/json}
headersFrom: [{name: Authorization, secret: token, key: KEY, scheme: bearer}]
parameters: [{name: city, type: string, description: Which one., required: true}]
timeout: 20
enabled: true
";

const CLI: &str = "
name: disk
type: cli
binary: /bin/df
allowedCommands: ['-h {place}']
protocol: arguments
parameters: [{name: place, type: string}]
";

const MCP: &str = "
name: tickets
type: mcp
mcpEndpoint: https://mcp.example.com/tickets
headers: {X-Team: guests}
toolsDigest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
";

const BUILTIN: &str = "{name: datetime, type: builtin}";

const DATASET: &str = "
agent: full
description: What guests ask.
guidelines: [Answer in the language of the question.]
protected: true
cases:
- input: When is breakfast?
  expectedOutput: From seven.
  context: Breakfast is from seven to ten.
  metadata: {guidelines: [Name a time.], mine: 1}
";

const ELSEWHERE: &str = "
casesFrom: {configMap: cases, key: golden.yaml}
";

/// It has ended, so that its status stands still.
const RUN: &str = "
agent: full
dataset: golden
track: candidate
release: past
content: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
riskProfile: low
minQualityScore: 60
judgeModel: 'stub:/echo'
scorers: [fluency]
guidelines: [Be kind.]
excludeFeedback: true
cancel: true
ttlSecondsAfterFinished: 31536000
";

const RELEASE: &str = "{agent: full, author: ada, changelog: First.}";

/// It stands still, so that a mutation rolls nothing. Its image is its own, so that nothing is judged by what ours can do.
const AGENT: &str = "
name: Concierge
description: Helps guests.
framework: langchain
version: '1.2'
environment: staging
strategy: agent-react
channel: rest
modelType: openai
modelId: gpt-5
modelIntegration: llm
backgroundModel: openai:gpt-5-mini
systemPrompt: Be kind.
image: example.com/concierge:1
replicas: 0
suspend: true
storage: memory
databaseUrl: postgres://db.example.com/agents
databaseCredentialsSecret: login
credentialSecret: cloud
envSecrets: [token, agent-env]
gcpServiceAccount: hello@project.example
access: platform
tools: [http, cli, mcp, builtin]
skills: [forms]
knowledgeBases: []
suggestionsProvider: static
suggestions: '[\"What can you do?\"]'
judgeModel: 'stub:/echo'
evalSampleRate: 5
resources: {requests: {cpu: 10m}, limits: {memory: 64Mi}}
governance: &governance
  riskProfile: high
  guards: [pii-detection, secrets-scanner, blocked-topics, max-tokens, rate-limit, spend-limit]
  limits: {blockedTopics: [weapons], dailyCostUsd: '2.50', maxTokensPerRequest: 4000, requestsPerMinute: 60, prices: [{model: gpt-mine, inputUsd: 3, outputUsd: '0.25'}]}
  evalDataset: guests
  minQualityScore: 0
  policies: [default, topics]
podTemplate: &pods
  labels: {cost-center: hospitality}
  annotations: {example.com/contact: desk}
  nodeSelector: {disk: fast}
  tolerations: [{key: gpu, operator: Equal, value: big, effect: NoExecute, tolerationSeconds: 60}]
  priorityClassName: important
  runtimeClassName: sandboxed
  imagePullSecrets: [{name: registry}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [&node {
        matchExpressions: [{key: disk, operator: In, values: [fast]}],
        matchFields: [{key: metadata.name, operator: In, values: [one]}]}]}
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 10, preference: *node}]
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [&pod {
        topologyKey: zone, namespaces: [other], matchLabelKeys: [tier], mismatchLabelKeys: [side],
        labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]},
        namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}}]
      preferredDuringSchedulingIgnoredDuringExecution: &preferred [{weight: 10, podAffinityTerm: *pod}]
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [*pod]
      preferredDuringSchedulingIgnoredDuringExecution: *preferred
canary:
  enabled: true
  weight: 10
  image: example.com/concierge:2
  modelType: openai
  modelId: gpt-6
  systemPrompt: Be brief.
  skills: [forms]
  tools: [http]
  version: canary
  replicas: 0
  overrides:
    name: Next concierge
    description: Helps guests in fewer words.
    framework: langchain
    strategy: agent-react
    channel: rest
    modelIntegration: llm
    backgroundModel: openai:gpt-6-mini
    storage: memory
    databaseUrl: postgres://db.example.com/next
    databaseCredentialsSecret: login
    knowledgeBases: []
    governance: *governance
    environment: staging
    envSecrets: [token, agent-env]
    credentialSecret: cloud
    gcpServiceAccount: hello@project.example
    access: platform
    suggestionsProvider: static
    suggestions: '[\"What else can you do?\"]'
    judgeModel: 'stub:/echo'
    evalSampleRate: 10
    resources: {requests: {cpu: 10m}, limits: {memory: 64Mi}}
    podTemplate: *pods
  analysis:
    steps: [25]
    intervalSeconds: 120
    minimumRequests: 100
    timeoutSeconds: 1200
    promotion: manual
    paused: true
    gates: {score: 60, errorRateIncrease: 2, latencyRatio: 150}
";
