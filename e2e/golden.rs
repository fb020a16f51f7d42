//! What endpoints answered, written down beside the tests: each call with its status and body, in the order of the calls,
//! without what differs from run to run. `UPDATE_GOLDEN=1` writes the files anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::api::Sent;
use crate::http::Reply;

/// Fields that never hold the same twice. That they hold something is kept.
const NEVER_THE_SAME: [&str; 6] = ["resource_version", "created_at", "updated_at", "deployed_at", "timestamp", "trace_id"];
const SOME: &str = "<some>";
const SOME_OR_NONE: &str = "<some or none>";
/// How many characters the random part of an id has.
const RANDOM: usize = 26;

/// The calls of one test.
pub struct Golden {
    path: PathBuf,
    hidden: Vec<&'static str>,
    uncertain: Vec<&'static str>,
    named: Vec<(String, &'static str)>,
    answers: Map<String, Value>,
}

impl Golden {
    /// Those of a file below `e2e/tests`.
    #[must_use]
    pub fn of(file: &str) -> Self {
        let path = folder().join(file);
        Self { path, hidden: NEVER_THE_SAME.to_vec(), uncertain: Vec::new(), named: Vec::new(), answers: Map::new() }
    }

    /// More fields that hold something else each time.
    #[must_use]
    pub fn hiding(mut self, fields: &[&'static str]) -> Self {
        self.hidden.extend(fields);
        self
    }

    /// Fields that another process fills, a moment later or never.
    #[must_use]
    pub fn uncertain(mut self, fields: &[&'static str]) -> Self {
        self.uncertain.extend(fields);
        self
    }

    /// From now on this text, wherever it stands, is written down as that.
    pub fn name(&mut self, text: impl Into<String>, name: &'static str) {
        self.named.push((text.into(), name));
    }

    /// Keeps an answer, whose body is JSON or nothing. `call` is method and path as the API's description has them, and,
    /// where a call is made more than once, what is special about this one.
    #[track_caller]
    pub fn keep(&mut self, call: &str, reply: &Reply) {
        self.keep_but(call, reply, &[]);
    }

    /// The same of an answer in which more is uncertain than in others.
    #[track_caller]
    pub fn keep_but(&mut self, call: &str, reply: &Reply, uncertain: &[&str]) {
        let body = if reply.body.is_empty() { Value::Null } else { self.stable(reply.json(), uncertain) };
        self.note(call, json!({"status": reply.status, "body": body}));
    }

    /// Keeps an answer of which `body` says enough.
    pub fn keep_as(&mut self, call: &str, reply: &Reply, body: &Value) {
        self.note(call, json!({"status": reply.status, "type": reply.header("content-type"), "body": body}));
    }

    /// Keeps an answer that was a stream of events.
    #[track_caller]
    pub fn keep_events(&mut self, call: &str, status: u16, events: &[Sent]) {
        let events: Vec<Value> = events.iter().map(|sent| self.event(sent)).collect();
        self.note(call, json!({"status": status, "events": events}));
    }

    /// Compares with the file, or writes it.
    #[track_caller]
    pub fn compare(self) {
        let text = serde_json::to_string_pretty(&self.answers).unwrap_or_default() + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&self.path, &text).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        }
        let expected = fs::read_to_string(&self.path).unwrap_or_default();
        if text != expected {
            let known: Map<String, Value> = serde_json::from_str(&expected).unwrap_or_default();
            let calls = known.keys().chain(self.answers.keys().filter(|call| !known.contains_key(*call)));
            let other: Vec<String> = calls
                .filter(|call| known.get(*call) != self.answers.get(*call))
                .map(|call| format!("{call}\nis written down as {:#}\nand answered as {:#}", at(&known, call), at(&self.answers, call)))
                .collect();
            panic!("{} differs; see with UPDATE_GOLDEN=1 and git diff\n{}", self.path.display(), other.join("\n"));
        }
    }

    /// Every operation (`GET /agents/{id}`) in any of the files, and whether one of its answers was a good one.
    #[track_caller]
    pub fn operations() -> BTreeMap<String, bool> {
        let mut operations = BTreeMap::new();
        for path in files() {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let answers: Map<String, Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            for (call, answer) in answers {
                // Number, method, path, and perhaps what is special about it.
                let words: Vec<&str> = call.split(' ').collect();
                let [_, method, target, ..] = words[..] else { panic!("{}: {call:?} is no call", path.display()) };
                let target = target.split('?').next().unwrap_or_default();
                let good = answer["status"].as_u64().is_some_and(|status| (200..300).contains(&status));
                *operations.entry(format!("{method} {target}")).or_default() |= good;
            }
        }
        operations
    }

    fn note(&mut self, call: &str, answer: Value) {
        self.answers.insert(format!("{:02} {call}", self.answers.len() + 1), answer);
    }

    #[track_caller]
    fn event(&self, sent: &Sent) -> Value {
        let data = serde_json::from_str(&sent.data).unwrap_or_else(|e| panic!("expected JSON ({e}), got {sent:?}"));
        let mut event = json!({"data": self.stable(data, &[])});
        if !sent.event.is_empty() {
            event["event"] = json!(sent.event);
        }
        if !sent.id.is_empty() {
            event["id"] = json!(SOME);
        }
        event
    }

    fn stable(&self, value: Value, uncertain: &[&str]) -> Value {
        match value {
            Value::Object(object) => {
                let stable = |(name, inner): (String, Value)| {
                    let is = |fields: &[&str]| fields.contains(&name.as_str());
                    let inner = if is(&self.uncertain) || is(uncertain) {
                        json!(SOME_OR_NONE)
                    } else if is(&self.hidden) && !inner.is_null() && inner != "" {
                        json!(SOME)
                    } else {
                        self.stable(inner, uncertain)
                    };
                    (name, inner)
                };
                Value::Object(object.into_iter().map(stable).collect())
            }
            Value::Array(list) => list.into_iter().map(|inner| self.stable(inner, uncertain)).collect(),
            Value::String(text) => match random(&text) {
                Some(kind) => json!(format!("<{kind}>")),
                None => json!(self.named.iter().fold(text, |text, (known, name)| text.replace(known, name))),
            },
            other => other,
        }
    }
}

/// What an id is of, if it is one that was thought up: `conv` of `conv_01HF7YAT000000000000000001`.
fn random(text: &str) -> Option<&str> {
    let (kind, rest) = text.split_once('_')?;
    let is_digit = |is_letter: fn(&u8) -> bool| rest.bytes().all(|byte| byte.is_ascii_digit() || is_letter(&byte));
    let is_id = rest.len() == RANDOM && (is_digit(u8::is_ascii_uppercase) || is_digit(u8::is_ascii_lowercase));
    (is_id && kind.bytes().all(|byte| byte.is_ascii_lowercase())).then_some(kind)
}

fn at<'a>(answers: &'a Map<String, Value>, call: &str) -> &'a Value {
    answers.get(call).unwrap_or(&Value::Null)
}

fn folder() -> PathBuf {
    Path::new(crate::ROOT).join("e2e/tests")
}

/// All JSON files in the tests' folders are golden.
#[track_caller]
fn files() -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let folders = entries(&folder()).into_iter().filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| entries(&folder)).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    files
}
