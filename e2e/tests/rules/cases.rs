//! One entry per rule of `crds/`: what it accepts, what it refuses, and how it says so.

pub(super) struct Rule {
    pub kind: &'static str,
    /// Must be in the refusal: the field at fault.
    pub field: &'static str,
    /// The rule's message, word for word.
    pub message: &'static str,
    /// A spec, as YAML, beside the required fields.
    pub accepted: &'static str,
    pub refused: &'static [&'static str],
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        kind: "Agent",
        field: "modelId",
        message: "modelId: must name a model of the provider in modelType; stub-echo belongs to modelType stub",
        accepted: "{modelType: openai, modelId: gpt-5}",
        refused: &["{modelType: openai}", "{modelType: ollama, modelId: stub-echo}"],
    },
    Rule {
        kind: "Agent",
        field: "image",
        message: "image: is required with strategy custom, because the image brings the strategy",
        accepted: "{strategy: custom, image: example.com/mine:1}",
        refused: &["{strategy: custom}", "{strategy: custom, image: null}"],
    },
    Rule {
        kind: "Agent",
        field: "databaseCredentialsSecret",
        message: "databaseCredentialsSecret: has an effect only together with databaseUrl",
        accepted: "{databaseCredentialsSecret: login, databaseUrl: 'postgres://db/slipway'}",
        refused: &["{databaseCredentialsSecret: login}"],
    },
    Rule {
        kind: "Agent",
        field: "suggestionsProvider",
        message: "suggestionsProvider: is required with suggestions",
        accepted: r#"{suggestions: '["Hello?"]', suggestionsProvider: static}"#,
        refused: &[r#"{suggestions: '["Hello?"]'}"#],
    },
    Rule {
        kind: "Agent",
        field: "spec.databaseUrl",
        message: "must not hold a password; put username and password into a Secret and name it in databaseCredentialsSecret",
        accepted: "{databaseUrl: 'postgresql://reader@db.example.com:5432/slipway?sslmode=require'}",
        refused: &[
            "{databaseUrl: 'postgres://reader:planted@db/slipway'}",
            "{databaseUrl: 'postgres://:planted@db/slipway'}",
            "{databaseUrl: 'postgres://reader:@db/slipway'}",
            "{databaseUrl: 'postgres://reader:pl%40nted@db:5432/slipway'}",
            "{databaseUrl: 'postgres://reader:pl:anted@db/slipway'}",
        ],
    },
    Rule {
        kind: "Agent",
        field: "spec.databaseUrl",
        message: "must not hold a password parameter; put username and password into a Secret and name it in databaseCredentialsSecret",
        accepted: "{databaseUrl: 'postgres://db/slipway?application_name=password'}",
        refused: &[
            "{databaseUrl: 'postgres://db/slipway?password=planted'}",
            "{databaseUrl: 'postgres://db/slipway?sslmode=require&PassWord=planted'}",
        ],
    },
    Rule {
        kind: "Agent",
        field: "spec.podTemplate.annotations",
        message: "must not set annotations under agents.slipway.dev/; Slipway sets these",
        accepted: "{podTemplate: {annotations: {example.com/contact: desk}}}",
        refused: &["{podTemplate: {annotations: {agents.slipway.dev/config-hash: '0'}}}"],
    },
    Rule {
        kind: "Agent",
        field: "spec.podTemplate.labels",
        message: "must not set version, nor labels under agents.slipway.dev/ or app.kubernetes.io/; Slipway sets these",
        accepted: "{podTemplate: {labels: {cost-center: hospitality, example.com/version: '1'}}}",
        refused: &[
            "{podTemplate: {labels: {version: canary}}}",
            "{podTemplate: {labels: {agents.slipway.dev/agent: other}}}",
            "{podTemplate: {labels: {app.kubernetes.io/name: other}}}",
        ],
    },
    Rule {
        kind: "KnowledgeBase",
        field: "chunkOverlap",
        message: "chunkOverlap: must be smaller than chunkSize",
        accepted: "{chunkSize: 100, chunkOverlap: 99}",
        refused: &["{chunkSize: 100, chunkOverlap: 100}", "{chunkSize: 50}"],
    },
    Rule {
        kind: "Tool",
        field: "endpoint",
        message: "endpoint: is required for a tool of type http",
        accepted: "{type: http, endpoint: 'https://api.example.com/now'}",
        refused: &["{type: http}", "{type: http, method: GET}", "{type: http, endpoint: null}"],
    },
    Rule {
        kind: "Tool",
        field: "binary",
        message: "binary: is required for a tool of type cli",
        accepted: "{type: cli, binary: /bin/df, allowedCommands: [-h]}",
        refused: &["{type: cli}", "{type: cli, allowedCommands: [-h]}"],
    },
    Rule {
        kind: "Tool",
        field: "mcpEndpoint",
        message: "mcpEndpoint: is required for a tool of type mcp",
        accepted: "{type: mcp, mcpEndpoint: 'http://mcp.example.com/sse?since=1'}",
        refused: &["{type: mcp}"],
    },
    Rule {
        kind: "Tool",
        field: "endpoint",
        message: "endpoint and method: have an effect only on a tool of type http",
        accepted: "{type: http, endpoint: 'https://api.example.com', method: POST}",
        refused: &["{type: builtin, endpoint: 'https://api.example.com'}", "{type: cli, binary: /bin/df, method: GET}"],
    },
    Rule {
        kind: "Tool",
        field: "binary",
        message: "binary and allowedCommands: have an effect only on a tool of type cli",
        accepted: "{type: cli, binary: /usr/bin/env}",
        refused: &["{binary: /bin/df}", "{type: mcp, mcpEndpoint: 'http://mcp', allowedCommands: [-h]}"],
    },
    Rule {
        kind: "Tool",
        field: "mcpEndpoint",
        message: "mcpEndpoint: has an effect only on a tool of type mcp",
        accepted: "{type: mcp, mcpEndpoint: 'https://mcp.example.com/tickets'}",
        refused: &["{mcpEndpoint: 'https://mcp.example.com'}", "{type: cli, binary: /bin/df, mcpEndpoint: 'https://mcp.example.com'}"],
    },
    Rule {
        kind: "Tool",
        field: "headers",
        message: "headers and headersFrom: have an effect only on tools of type http and mcp",
        accepted: "{type: mcp, mcpEndpoint: 'http://mcp', headersFrom: [{name: Authorization, secret: token, key: value}]}",
        refused: &[
            "{type: builtin, headers: {Accept: text/plain}}",
            "{type: cli, binary: /bin/df, headersFrom: [{name: Authorization, secret: token, key: value}]}",
        ],
    },
    Rule {
        kind: "Tool",
        field: "endpoint",
        message: "endpoint: each placeholder must be declared in parameters under the same name",
        accepted: "{type: http, endpoint: 'https://api.example.com/{city}?in={unit}', parameters: [{name: city, type: string}, {name: unit, type: string}]}",
        refused: &[
            "{type: http, endpoint: 'https://api.example.com/{city}'}",
            "{type: http, endpoint: 'https://api.example.com/{city}', parameters: [{name: town, type: string}]}",
            "{type: http, endpoint: 'https://api.example.com/{}', parameters: [{name: city, type: string}]}",
            "{type: http, endpoint: 'https://api.example.com/{city}/{unit}', parameters: [{name: city, type: string}]}",
        ],
    },
    Rule {
        kind: "Tool",
        field: "spec.endpoint",
        message: "must close every placeholder, as in https://api.example.com/weather/{city}",
        accepted: "{type: http, endpoint: 'https://api.example.com/{a}{b}/x', parameters: [{name: a, type: string}, {name: b, type: integer}]}",
        refused: &[
            "{type: http, endpoint: 'https://api.example.com/{city', parameters: [{name: city, type: string}]}",
            "{type: http, endpoint: 'https://api.example.com/city}', parameters: [{name: city, type: string}]}",
            "{type: http, endpoint: 'https://api.example.com/{{city}}', parameters: [{name: city, type: string}]}",
            "{type: http, endpoint: 'https://api.example.com/}city{', parameters: [{name: city, type: string}]}",
            "{type: http, endpoint: 'https://api.example.com/{city}}', parameters: [{name: city, type: string}]}",
        ],
    },
    Rule {
        kind: "Tool",
        field: "spec.headers",
        message: "must not hold credentials; name a Secret for this header in headersFrom",
        accepted: "{type: http, endpoint: 'https://api.example.com', headers: {Accept: application/json, X-Authorization-Hint: none}}",
        refused: &[
            "{type: http, endpoint: 'https://api.example.com', headers: {Authorization: Bearer planted}}",
            "{type: mcp, mcpEndpoint: 'https://mcp.example.com', headers: {aUTHORIZATION: Bearer planted}}",
            "{type: http, endpoint: 'https://api.example.com', headers: {Proxy-Authorization: Basic planted}}",
            "{type: http, endpoint: 'https://api.example.com', headers: {Cookie: session=planted}}",
            "{type: http, endpoint: 'https://api.example.com', headers: {X-Api-Key: planted}}",
        ],
    },
    Rule {
        kind: "Tool",
        field: "spec.headers",
        message: "a header's name has letters, digits and hyphens, its value no line breaks",
        accepted: "{type: http, endpoint: 'https://api.example.com', headers: {X-Trace: 'a b: c'}}",
        refused: &[
            r#"{type: http, endpoint: 'https://api.example.com', headers: {X-Trace: "a\r\nHost: other"}}"#,
            r#"{type: http, endpoint: 'https://api.example.com', headers: {X-Trace: "a\nHost: other"}}"#,
            "{type: http, endpoint: 'https://api.example.com', headers: {'X Trace': a}}",
            r#"{type: http, endpoint: 'https://api.example.com', headers: {"X-Trace\r\nHost": a}}"#,
            "{type: http, endpoint: 'https://api.example.com', headers: {'': a}}",
        ],
    },
];
