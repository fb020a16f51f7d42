//! `Dataset`: questions with what is expected of the answers, by which agents are evaluated.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{schema, yaml};

/// How many cases a dataset may have, and how many bytes of JSON they may have together in `spec.cases`.
pub const CASES_MAX: usize = 2000;
pub const CASES_BYTES_MAX: usize = 512 * 1024;
/// How many bytes the text in a ConfigMap may have, in which the cases stand instead.
pub const CASES_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// How many bytes an input or an expected output may have, and how many a context.
pub const INPUT_BYTES_MAX: usize = 32 * 1024;
pub const CONTEXT_BYTES_MAX: usize = 64 * 1024;
/// The bound of a YAML text's length times its opening brackets, `[` and `{`. The parser's time grows with the text's length times
/// the depth of its flow collections, which are no deeper than it has brackets.
const FLOW_MAX: usize = 1 << 32;
/// The fields of a case.
const CASE_FIELDS: [&str; 4] = ["input", "expectedOutput", "context", "metadata"];

/// Cases by which agents of the same namespace are evaluated.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Dataset",
    doc = "Cases by which agents of the same namespace are evaluated.",
    plural = "datasets",
    shortname = "ds",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "DatasetStatus",
    selectable = ".spec.agent",
    selectable = ".spec.protected",
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agent"),
    printcolumn(name = "Cases", type_ = "integer", json_path = ".status.cases"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("(has(self.cases) && self.cases.size() > 0) != has(self.casesFrom)")
    .message("cases: either cases or casesFrom is required, and not both"))]
pub struct DatasetSpec {
    /// The one Agent of the same namespace that the dataset is for, by its metadata.name. Left out: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 52), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub agent: Option<String>,

    /// What the cases are about, in a sentence or two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,

    /// Rules that every answer has to keep, for the scorer guidelines. The scorer expectations_guidelines reads those of a case alone, in its metadata.guidelines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1024)))]
    pub guidelines: Vec<String>,

    /// The cases, at most 2,000 and 512 KiB of JSON together. A ConfigMap named in casesFrom holds up to 1 MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2000))]
    pub cases: Vec<Case>,

    /// Where the cases stand instead, as a JSON or YAML list of at most 2,000 and 1 MiB. It is read again every 30 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cases_from: Option<CasesFrom>,

    /// Only those who may update agents/governance may change or delete the dataset, because releases are held to it. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
}

/// A question, and what is expected of the answer.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// What the agent is asked. At most 32 KiB.
    #[schemars(length(min = 1, max = 32_768))]
    pub input: String,
    /// What the answer should say. Scorers that compare with it apply only to cases that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub expected_output: Option<String>,
    /// What the agent should know to answer, given to it before the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub context: Option<String>,
    /// More about the case: guidelines (a list of rules), expected_tool_calls (a list of name and arguments), tool_results (an answer by tool name, for tools that change things), and whatever its author wants to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "metadata")]
    pub metadata: Option<Map<String, Value>>,
}

/// Where the cases of a dataset stand.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CasesFrom {
    /// A ConfigMap of the same namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub config_map: String,
    /// The key in it. Default cases.yaml.
    #[serde(default = "cases_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Whether the dataset can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatasetStatus {
    /// Available or Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DatasetPhase>,
    /// The dataset's id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 70))]
    pub id: Option<String>,
    /// How many cases it has.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cases: Option<i32>,
    /// SHA-256 over guidelines and cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub digest: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, with a reason that names the field at fault.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Whether a dataset can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum DatasetPhase {
    Available,
    Error,
}

impl DatasetSpec {
    /// What is wrong with the dataset as it is written, field first. Cases in a ConfigMap are checked by [`parse_cases`].
    pub fn fault(&self) -> Option<String> {
        match (self.cases.is_empty(), &self.cases_from) {
            (true, None) => return Some("spec.cases: either spec.cases or spec.casesFrom is required".to_owned()),
            (false, Some(_)) => return Some("spec.cases: there is spec.casesFrom as well; only one of them is possible".to_owned()),
            _ => {}
        }
        if let Some(fault) = cases_fault(&self.cases) {
            return Some(format!("spec.cases{fault}"));
        }
        let bytes = serde_json::to_vec(&self.cases).map_or(usize::MAX, |json| json.len());
        (bytes > CASES_BYTES_MAX).then(|| {
            format!(
                "spec.cases: they have {bytes} bytes of JSON together; at most {CASES_BYTES_MAX} are possible. A ConfigMap named in \
                 spec.casesFrom holds up to {CASES_TEXT_BYTES_MAX}"
            )
        })
    }
}

/// The cases in a text, which is a JSON or YAML list of them, or what is wrong with it.
pub fn parse_cases(text: &str) -> Result<Vec<Case>, String> {
    if text.len() > CASES_TEXT_BYTES_MAX {
        return Err(format!("the text has {} bytes; at most {CASES_TEXT_BYTES_MAX} are possible", text.len()));
    }
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err("there are no cases; at least one is needed".to_owned());
    }
    // What begins like a list of JSON is one: YAML in brackets could be nested deeply.
    let values: Vec<Value> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|error| format!("the text is no JSON list: {error}"))?
    } else {
        let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
        if brackets.saturating_mul(text.len()) > FLOW_MAX {
            return Err(format!("the text has {brackets} opening brackets, which are too many for YAML of its length; write it as JSON"));
        }
        yaml::read(text).map_err(|error| format!("the text is no YAML list: {error}"))?
    };
    let cases = values.into_iter().enumerate().map(|(at, value)| case(value).map_err(|fault| format!("cases[{at}]{fault}")));
    let cases = cases.collect::<Result<Vec<Case>, String>>()?;
    if cases.is_empty() {
        return Err("there are no cases; at least one is needed".to_owned());
    }
    match cases_fault(&cases) {
        Some(fault) => Err(format!("cases{fault}")),
        None => Ok(cases),
    }
}

/// SHA-256 over guidelines and cases as JSON with sorted keys: the same for the same content, wherever it stands.
pub fn digest(guidelines: &[String], cases: &[Case]) -> String {
    // Neither has a key that is no string, so that both are values.
    let content = serde_json::json!({"cases": cases, "guidelines": guidelines});
    let mut text = String::new();
    canonical(&content, &mut text);
    hex::encode(Sha256::digest(text))
}

/// JSON with sorted keys, whatever the order in which a map was built.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (at, value) in list.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                canonical(value, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// A case of a text, whose fields no schema has checked.
fn case(value: Value) -> Result<Case, String> {
    let Value::Object(fields) = &value else {
        return Err(format!(": must be an object with the field input, and not {}", kind(&value)));
    };
    if let Some(field) = fields.keys().find(|field| !CASE_FIELDS.contains(&field.as_str())) {
        let field: String = field.chars().take(64).collect();
        return Err(format!(": the field {field:?} is not known; there are {}", CASE_FIELDS.join(", ")));
    }
    serde_json::from_value(value).map_err(|error| format!(": {error}"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// What is wrong with the first case at fault, with its place.
fn cases_fault(cases: &[Case]) -> Option<String> {
    if cases.len() > CASES_MAX {
        return Some(format!(": there are {}; at most {CASES_MAX} are possible", cases.len()));
    }
    cases.iter().enumerate().find_map(|(at, case)| Some(format!("[{at}].{}", case.fault()?)))
}

impl Case {
    /// What is wrong with the case, field first.
    fn fault(&self) -> Option<String> {
        if self.input.trim().is_empty() {
            return Some("input: is empty; it is what the agent is asked".to_owned());
        }
        let texts = [
            ("input", Some(&self.input), INPUT_BYTES_MAX),
            ("expectedOutput", self.expected_output.as_ref(), INPUT_BYTES_MAX),
            ("context", self.context.as_ref(), CONTEXT_BYTES_MAX),
        ];
        for (field, text, most) in texts {
            let bytes = text.map_or(0, String::len);
            if bytes > most {
                return Some(format!("{field}: has {bytes} bytes; at most {most} are possible"));
            }
        }
        self.metadata.as_ref().and_then(metadata_fault).map(|fault| format!("metadata.{fault}"))
    }
}

/// Keys that scorers read have the form that they read; all others are their author's.
fn metadata_fault(metadata: &Map<String, Value>) -> Option<String> {
    let is_text = Value::is_string;
    if let Some(rules) = metadata.get("guidelines")
        && !(is_text(rules) || rules.as_array().is_some_and(|rules| rules.iter().all(is_text)))
    {
        return Some("guidelines: must be a list of texts, each a rule that the answer has to keep".to_owned());
    }
    if let Some(calls) = metadata.get("expected_tool_calls") {
        let is_call = |call: &Value| call.get("name").is_some_and(is_text) && call.get("arguments").is_none_or(Value::is_object);
        if !calls.as_array().is_some_and(|calls| calls.iter().all(is_call)) {
            return Some(
                "expected_tool_calls: must be a list of objects with a name and, if they matter, arguments as an object".to_owned(),
            );
        }
    }
    if metadata.get("tool_results").is_some_and(|results| !results.is_object()) {
        return Some("tool_results: must be an object with an answer by the name of a tool".to_owned());
    }
    None
}

fn cases_key() -> String {
    "cases.yaml".to_owned()
}

fn metadata(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(input: &str) -> Case {
        Case { input: input.to_owned(), ..Case::default() }
    }

    fn of(cases: Vec<Case>) -> DatasetSpec {
        DatasetSpec { cases, ..DatasetSpec::default() }
    }

    fn with(metadata: Value) -> Case {
        Case { metadata: serde_json::from_value(metadata).unwrap(), ..asked("a") }
    }

    #[test]
    fn faults_name_the_field() {
        let from = Some(CasesFrom { config_map: "cases".to_owned(), key: cases_key() });
        let cases = [
            (of(vec![asked("a")]), None),
            (DatasetSpec { cases_from: from.clone(), ..DatasetSpec::default() }, None),
            (DatasetSpec::default(), Some("spec.cases: either")),
            (DatasetSpec { cases_from: from, ..of(vec![asked("a")]) }, Some("spec.cases: there is spec.casesFrom")),
            (of(vec![asked("a"), asked("\n ")]), Some("spec.cases[1].input: is empty")),
            (of(vec![asked(&"é".repeat(INPUT_BYTES_MAX / 2 + 1))]), Some("spec.cases[0].input: has 32770 bytes")),
            (of(vec![Case { context: Some("x".repeat(CONTEXT_BYTES_MAX + 1)), ..asked("a") }]), Some("spec.cases[0].context: has")),
            (of(vec![asked("a"); CASES_MAX + 1]), Some("spec.cases: there are 2001")),
            (of(vec![asked(&"x".repeat(30_000)); 18]), Some("spec.cases: they have")),
            (of(vec![with(json!({"guidelines": ["a"], "expected_tool_calls": [{"name": "t"}], "mine": 1}))]), None),
            (of(vec![with(json!({"guidelines": [1]}))]), Some("spec.cases[0].metadata.guidelines: must be a list")),
            (of(vec![with(json!({"expected_tool_calls": ["t"]}))]), Some("spec.cases[0].metadata.expected_tool_calls: must")),
            (of(vec![with(json!({"tool_results": []}))]), Some("spec.cases[0].metadata.tool_results: must")),
        ];
        for (spec, expected) in cases {
            let found = spec.fault();
            match expected {
                Some(words) => assert!(found.as_deref().is_some_and(|fault| fault.starts_with(words)), "{words}: {found:?}"),
                None => assert_eq!(found, None),
            }
        }
    }

    #[test]
    fn cases_are_read_from_json_and_yaml() {
        let wanted = vec![Case { expected_output: Some("4".to_owned()), ..asked("2 + 2?") }, asked("R&D *now*")];
        let json = serde_json::to_string(&wanted).unwrap();
        let yaml = "# Sums.\n- input: 2 + 2?\n  expectedOutput: '4'\n- {input: R&D *now*}\n";
        for text in [json.as_str(), yaml, &format!("\u{feff}\n {json}\n")] {
            assert_eq!(parse_cases(text).as_ref(), Ok(&wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_of_cases_says_why() {
        let long = format!("- input: {}", "x".repeat(INPUT_BYTES_MAX + 1));
        let (many, large) = ("- input: a\n".repeat(CASES_MAX + 1), " ".repeat(CASES_TEXT_BYTES_MAX + 1));
        for (text, words) in [
            ("", "there are no cases"),
            ("[]", "there are no cases"),
            ("[{", "no JSON list"),
            ("input: a", "no YAML list"),
            ("- &a {input: x}\n- *a", "an anchor or alias at line 1"),
            ("- a", "cases[0]: must be an object with the field input, and not a text"),
            ("- input: a\n- inputs: b", "cases[1]: the field \"inputs\" is not known; there are input, expectedOutput"),
            ("- context: b", "cases[0]: missing field `input`"),
            ("- input: 1", "cases[0]: invalid type"),
            ("- input: ''", "cases[0].input: is empty"),
            (long.as_str(), "cases[0].input: has 32769 bytes"),
            (many.as_str(), "cases: there are 2001; at most 2000"),
            (large.as_str(), "the text has 1048577 bytes"),
        ] {
            let found = parse_cases(text).unwrap_err();
            assert!(found.contains(words), "{text:.40}: {found}");
        }
    }

    /// The parser's time grows with length times depth.
    #[test]
    fn deep_brackets_are_refused_at_once() {
        for text in ["- {a: ".repeat(100_000), "[".repeat(CASES_TEXT_BYTES_MAX), format!("- {}", "[".repeat(500_000))] {
            assert!(parse_cases(&text).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn the_digest_is_of_the_content() {
        let cases = |text: &str| parse_cases(text).unwrap();
        let rules = ["Be kind.".to_owned()];
        let one = digest(&rules, &cases("- input: a\n  metadata: {b: 1, a: [{d: 1, c: x}]}\n"));
        assert_eq!(one, digest(&rules, &cases(r#"[{"metadata": {"a": [{"c": "x", "d": 1}], "b": 1}, "input": "a"}]"#)));
        assert_ne!(one, digest(&[], &cases("- input: a\n  metadata: {b: 1, a: [{d: 1, c: x}]}\n")));
        assert_ne!(digest(&[], &cases("- input: a\n- input: b")), digest(&[], &cases("- input: b\n- input: a")));
        let text = r#"{"cases":[{"input":"a"}],"guidelines":[]}"#;
        assert_eq!(digest(&[], &[asked("a")]), hex::encode(Sha256::digest(text)));
    }
}
