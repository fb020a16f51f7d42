//! Names: each kind's own rules, at their edges.

use super::{accepted, manifest, refused};

const LENGTH: &str = "metadata.name: an agent's name has at most 52 characters";
const AGENT: &str =
    "metadata.name: must begin with a lower-case letter and have only lower-case letters, digits and hyphens; a Service is named after it";
const TRACKS: &str = "metadata.name: must not end with -canary, -candidate or -primary; other tracks of an agent use these";
const LABEL: &str = "metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens";
const INGESTION: &str = "metadata.name: must begin with a lower-case letter and have at most 56 lower-case letters, digits and hyphens; the Job is named after it";
const INTEGRATION: &str = "metadata.name: must begin with a lower-case letter and have at most 60 lower-case letters, digits and hyphens; its Secret is named in-<name>";
const RESERVED: &str = "metadata.name: default stands for the four policies that every team begins with; choose another name";
const SLUG: &str = "metadata.name: must begin with a lower-case letter and have at most 58 lower-case letters, digits and hyphens; the namespace is named after it";

/// The rules that this file tries.
pub(super) const RULES: [(&str, &str); 14] = [
    ("Agent", LENGTH),
    ("Agent", AGENT),
    ("Agent", TRACKS),
    ("AgentRelease", LABEL),
    ("Dataset", LABEL),
    ("EvaluationRun", LABEL),
    ("GuardrailPolicy", LABEL),
    ("GuardrailPolicy", RESERVED),
    ("Ingestion", INGESTION),
    ("Integration", INTEGRATION),
    ("KnowledgeBase", LABEL),
    ("Skill", LABEL),
    ("Tool", LABEL),
    ("Team", SLUG),
];

#[test]
fn agents() {
    for name in [&"a".repeat(52), "a", "h-1", "canary", "primary-school", "a-canary-b"] {
        accepted(&manifest("Agent", name, "{}"));
    }
    refused(&manifest("Agent", &"a".repeat(53), "{}"), &[LENGTH]);
    for name in ["1st", "a.b", "a.b-canary"] {
        refused(&manifest("Agent", name, "{}"), &[AGENT]);
    }
    for name in ["x-canary", "x-candidate", "x-primary"] {
        refused(&manifest("Agent", name, "{}"), &[TRACKS]);
    }
}

#[test]
fn all_other_kinds_in_namespaces() {
    for kind in ["Tool", "Skill", "KnowledgeBase", "AgentRelease", "Dataset", "EvaluationRun", "GuardrailPolicy"] {
        accepted(&manifest(kind, &"a".repeat(63), "{}"));
        for name in [&"a".repeat(64), "1st", "a.b"] {
            refused(&manifest(kind, name, "{}"), &[LABEL]);
        }
    }
}

#[test]
fn ingestions() {
    accepted(&manifest("Ingestion", &"a".repeat(56), "{upload: up_1}"));
    for name in [&"a".repeat(57), "1st", "a.b"] {
        refused(&manifest("Ingestion", name, "{upload: up_1}"), &[INGESTION]);
    }
}

#[test]
fn integrations() {
    accepted(&manifest("Integration", &"a".repeat(60), "{slack: {}}"));
    for name in [&"a".repeat(61), "1st", "a.b"] {
        refused(&manifest("Integration", name, "{slack: {}}"), &[INTEGRATION]);
    }
}

#[test]
fn guardrail_policies() {
    for name in ["default-tokens", "defaults", "a"] {
        accepted(&manifest("GuardrailPolicy", name, "{}"));
    }
    refused(&manifest("GuardrailPolicy", "default", "{}"), &[RESERVED]);
}

#[test]
fn teams() {
    accepted(&manifest("Team", &"a".repeat(58), "{}"));
    for name in [&"a".repeat(59), "1st", "a.b"] {
        refused(&manifest("Team", name, "{}"), &[SLUG]);
    }
}

/// What the API server refuses of any kind.
#[test]
fn nobodys_name() {
    let in_namespaces = [
        "Agent",
        "Tool",
        "Skill",
        "KnowledgeBase",
        "AgentRelease",
        "Dataset",
        "EvaluationRun",
        "GuardrailPolicy",
        "Ingestion",
        "Integration",
    ];
    for kind in in_namespaces.into_iter().chain(["Team"]) {
        for name in ["A", "a_b", "-a", "a-", "a/../b", "ä"] {
            refused(&manifest(kind, name, "{}"), &[]);
        }
    }
}
