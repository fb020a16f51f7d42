//! `SKILL.md`: front matter in YAML between two lines of `---`, and instructions in Markdown below it.
//!
//! The front matter is that of the Agent Skills format: `name` and `description` are required, `license`,
//! `compatibility`, `metadata` and `allowed-tools` are known. What we know beyond that goes into `metadata`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_yaml::Value;
use thiserror::Error;

use super::SkillSpec;
use crate::yaml;

const FENCE: &str = "---";
/// Front matter is a few lines; more than this is something else.
const FRONT_MATTER_MAX: usize = 64 * 1024;

/// Why a text is no `SKILL.md`.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SkillError {
    #[error("SKILL.md must begin with a line {FENCE}, followed by name and description and another line {FENCE}")]
    NoFrontMatter,
    #[error("SKILL.md: the front matter has no end: a line {FENCE} must follow it within its first 64 KiB")]
    Unclosed,
    #[error("SKILL.md: the front matter cannot be read: {0}")]
    Malformed(String),
    #[error("SKILL.md: the front matter has no {0}")]
    Missing(&'static str),
    /// Of a well-formed text that makes no valid skill; names the field.
    #[error("{0}")]
    Invalid(String),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FrontMatter {
    #[serde(default, skip_serializing_if = "Value::is_null")]
    name: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    description: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    license: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    compatibility: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    allowed_tools: Value,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, Value>,
}

impl SkillSpec {
    /// Reads a `SKILL.md` and the files beside it.
    pub fn from_markdown(text: &str, files: BTreeMap<String, String>) -> Result<Self, SkillError> {
        let (front, instructions) = split(text.strip_prefix('\u{feff}').unwrap_or(text))?;
        // The line before it is counted, so that a fault is told with its line in the file.
        let mut front: FrontMatter = yaml::read(&format!("\n{front}")).map_err(|error| SkillError::Malformed(error.to_string()))?;
        let mut known = |name: &str| front.metadata.remove(name).and_then(|value| word(&value));
        let (category, version, author, source) = (known("category"), known("version"), known("author"), known("source"));
        let skill = Self {
            name: word(&front.name).ok_or(SkillError::Missing("name"))?,
            description: word(&front.description).ok_or(SkillError::Missing("description"))?,
            instructions: instructions.to_owned(),
            category: category.unwrap_or_else(super::general),
            version,
            author,
            source,
            license: word(&front.license),
            compatibility: word(&front.compatibility),
            tools: tools(&front.allowed_tools),
            files,
        };
        match skill.fault() {
            None => Ok(skill),
            Some(fault) => Err(SkillError::Invalid(fault)),
        }
    }

    /// Writes the `SKILL.md`, from which [`Self::from_markdown`] reads the same skill.
    pub fn to_markdown(&self) -> String {
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::String);
        let category = Some(self.category.clone()).filter(|category| *category != super::general());
        let metadata = [("author", &self.author), ("category", &category), ("source", &self.source), ("version", &self.version)];
        let joined = self.tools.join(" ");
        let front = FrontMatter {
            name: Value::String(self.name.clone()),
            description: Value::String(self.description.clone()),
            license: text(&self.license),
            compatibility: text(&self.compatibility),
            allowed_tools: match self.tools.as_slice() {
                [] => Value::Null,
                // The format's own form, unless a name has a space where it would be cut.
                _ if cut(&joined) == self.tools => Value::String(joined),
                list => Value::Sequence(list.iter().cloned().map(Value::String).collect()),
            },
            metadata: metadata
                .into_iter()
                .filter(|(_, value)| value.is_some())
                .map(|(name, value)| (name.to_owned(), text(value)))
                .collect(),
        };
        // Strings in maps and lists: there is nothing in them that could fail.
        let front = serde_yaml::to_string(&front).unwrap_or_default();
        format!("{FENCE}\n{front}{FENCE}\n\n{}", self.instructions)
    }
}

/// Front matter and body. Of the body, one empty line at its beginning belongs to the form.
fn split(text: &str) -> Result<(&str, &str), SkillError> {
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    if first.trim_end() != FENCE {
        return Err(SkillError::NoFrontMatter);
    }
    let rest = &text[first.len()..];
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == FENCE && !line.starts_with(char::is_whitespace) {
            let body = &rest[end + line.len()..];
            return Ok((&rest[..end], body.strip_prefix("\r\n").or_else(|| body.strip_prefix('\n')).unwrap_or(body)));
        }
        end += line.len();
        if end > FRONT_MATTER_MAX {
            break;
        }
    }
    Err(SkillError::Unclosed)
}

/// A scalar as text: people write `version: 1.0` without quotes.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(bool) => Some(bool.to_string()),
        _ => None,
    }
}

fn tools(value: &Value) -> Vec<String> {
    let mut all = match value {
        Value::String(text) => cut(text),
        Value::Sequence(list) => list.iter().filter_map(word).collect(),
        _ => Vec::new(),
    };
    let mut seen = std::collections::HashSet::new();
    all.retain(|tool| seen.insert(tool.clone()));
    all
}

/// Cuts at spaces and commas, but not within brackets: `Bash(git add:*) Read` are two.
fn cut(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let pieces = text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c.is_whitespace() || c == ',')
    });
    pieces.filter(|piece| !piece.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<SkillSpec, SkillError> {
        SkillSpec::from_markdown(text, BTreeMap::new())
    }

    #[test]
    fn a_skill_as_people_write_it() {
        let text = "---\r\nname: pdf-forms\r\ndescription: >-\r\n  Fills PDF forms.\r\n  Use it for forms.\r\nlicense: Apache-2.0\r\nallowed-tools: Bash(git add:*) Read, Write Read\r\nmetadata:\r\n  version: 1.0\r\n  author: acme\r\n  team: x\r\nsomething: else\r\n---\r\n\r\n# Forms\r\n\r\n---\r\n";
        let skill = read(text).unwrap();
        assert_eq!((skill.name.as_str(), skill.description.as_str()), ("pdf-forms", "Fills PDF forms. Use it for forms."));
        assert_eq!(skill.tools, ["Bash(git add:*)", "Read", "Write"]);
        assert_eq!((skill.version.as_deref(), skill.author.as_deref()), (Some("1.0"), Some("acme")));
        assert_eq!((skill.license.as_deref(), skill.category.as_str()), (Some("Apache-2.0"), "general"));
        assert_eq!(skill.instructions, "# Forms\r\n\r\n---\r\n");
        assert!(skill.to_markdown().contains("allowed-tools: Bash(git add:*) Read Write\n"), "{}", skill.to_markdown());
    }

    #[test]
    fn what_is_no_skill_says_why() {
        let endless = format!("---\nname: {}\n", "x".repeat(2 * FRONT_MATTER_MAX));
        let cases = [
            ("# Forms\n", "must begin with a line ---"),
            ("", "must begin with a line ---"),
            ("---\nname: a\ndescription: b\n", "no end"),
            (&endless, "no end"),
            ("---\nname: [\n---\n", "cannot be read"),
            ("---\nname: a\ndescription: b: c\n---\n", "line 3"),
            ("---\n- a\n---\n", "cannot be read"),
            ("---\ndescription: b\n---\nx", "no name"),
            ("---\nname: a\n---\nx", "no description"),
            ("---\nname: A B\ndescription: b\n---\nx", "spec.name"),
            ("---\nname: a\ndescription: &x b\n---\nx", "an anchor or alias at line 3 column 14"),
            ("---\nname: a\ndescription: b\nmetadata: {c: *x}\n---\nx", "an anchor or alias at line 4"),
        ];
        for (text, says) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:.40}: {error}");
        }
        let files = BTreeMap::from([("../x".to_owned(), String::new())]);
        let error = SkillSpec::from_markdown("---\nname: a\ndescription: b\n---\nx", files).unwrap_err();
        assert!(error.to_string().starts_with("spec.files"), "{error}");
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[a-z0-9 :#'\"{}\\[\\]\n\r\t|>&*!%@`-]{0,60}", Just("---\n---\n".to_owned())]
    }

    fn some() -> impl Strategy<Value = Option<String>> {
        proptest::option::of(text().prop_filter("empty means unset", |text| !text.is_empty()))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            name in "[a-z0-9]{1,20}(-[a-z0-9]{1,10}){0,3}",
            description in text().prop_filter("it needs words", |text| (1..=1024).contains(&text.trim().chars().count())),
            instructions in text(),
            (version, author, source, license, compatibility) in (some(), some(), some(), some(), some()),
            category in "[a-z]{1,10}",
            tools in proptest::collection::btree_set("[A-Za-z][A-Za-z0-9():* ]{0,10}[a-z]", 0..4),
        ) {
            let skill = SkillSpec {
                name, description, instructions, category, version, author, source, license, compatibility,
                tools: tools.into_iter().collect(), files: BTreeMap::new(),
            };
            prop_assert_eq!(read(&skill.to_markdown()), Ok(skill));
        }

        #[test]
        fn strangers_bytes_are_an_answer(text in any::<String>(), front in "[a-z:&*\\[\\]{}#|>'\"\n -]{0,200}") {
            let _ = read(&text);
            let _ = read(&format!("---\n{front}\n---\n{text}"));
        }
    }
}
