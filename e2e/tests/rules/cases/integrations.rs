//! Rules of Integrations.

use super::Rule;

pub(super) const RULES: &[Rule] = &[
    Rule {
        kind: "Integration",
        field: "spec",
        message: "exactly one of local, googleDrive, s3, confluence, jira, databricks, mlflow, prometheus, webhook, slack, openai, anthropic and mcp is required",
        accepted: "{slack: {}}",
        refused: &["{}", "{slack: {}, local: {}}", "{s3: {}, openai: {}, anthropic: {}}"],
    },
    Rule {
        kind: "Integration",
        field: "credentialsSecret",
        message: "credentialsSecret: local has none",
        accepted: "{local: {path: docs}}",
        refused: &["{local: {}, credentialsSecret: login}"],
    },
    Rule {
        kind: "Integration",
        field: "alerts",
        message: "alerts: are delivered by webhook and slack alone",
        accepted: "{webhook: {url: 'https://w.example/in'}, alerts: {severities: [critical], agents: [helper], metrics: [error_rate_pct], resolved: false}}",
        refused: &["{prometheus: {url: 'https://p'}, alerts: {}}"],
    },
    Rule {
        kind: "Integration",
        field: "spec.local.path",
        message: "must be within the volume: no part of it is ..",
        accepted: "{local: {path: 'a/..b/c..'}}",
        refused: &["{local: {path: ..}}", "{local: {path: a/../../b}}"],
    },
    Rule {
        kind: "Integration",
        field: "spec.webhook.headers",
        message: "must not hold credentials; put the value into the Secret of the integration",
        accepted: "{webhook: {url: 'https://w', headers: {X-Kind: a}}}",
        refused: &["{webhook: {url: 'https://w', headers: {Authorization: a}}}", "{webhook: {url: 'https://w', headers: {cookie: a}}}"],
    },
    Rule {
        kind: "Integration",
        field: "spec.webhook.headers",
        message: "must not hold credentials, and a header of such a name holds one (token, secret, key, password, credential); put the value into the Secret of the integration",
        accepted: "{webhook: {url: 'https://w', headers: {X-Keyboard: a}}}",
        refused: &["{webhook: {url: 'https://w', headers: {X-Auth-Token: a}}}", "{webhook: {url: 'https://w', headers: {X-Api-Key2: a}}}"],
    },
    Rule {
        kind: "Integration",
        field: "spec.webhook.headers",
        message: "a header's name has letters, digits and hyphens, its value no line breaks",
        accepted: "{webhook: {url: 'https://w', headers: {X-1: a b}}}",
        refused: &["{webhook: {url: 'https://w', headers: {'X Y': a}}}"],
    },
];
