//! Reading the canonical form, and nothing else of YAML: no anchors, tags, comments, flow collections or folding, so
//! that a stranger's text costs no more time than it has bytes. What is read is written again and compared, so this
//! need not know every rule of the form; it must only never panic and never go deeper than it may.

use serde_json::{Map, Number, Value};

use crate::canonical::yaml;
use crate::fault::shown;
use crate::{ArtifactFault, LONGEST};

/// How deep values may lie in each other.
const DEEPEST: usize = 64;

/// The document in a text that is in canonical form; anything else is refused with the line that is not.
pub fn document(text: &str) -> Result<Value, ArtifactFault> {
    if text.len() > LONGEST {
        return Err(ArtifactFault::TooLong(text.len()));
    }
    let Some(whole) = text.strip_suffix('\n') else {
        return Err(ArtifactFault::Malformed {
            line: text.lines().count().max(1),
            problem: "the text ends without a line break".to_owned(),
        });
    };
    let mut lines = Lines { all: whole.split('\n').collect(), at: 0 };
    let first = lines.all[0];
    let document = if is_entry(first) || is_item(first) { lines.block(0)? } else { lines.value(&format!(" {first}"), 0)? };
    same(text, &yaml(&document))?;
    Ok(document)
}

/// Tells the first line that differs from the canonical form.
pub(crate) fn same(text: &str, expected: &str) -> Result<(), ArtifactFault> {
    if text == expected {
        return Ok(());
    }
    let (mut theirs, mut ours) = (text.split_terminator('\n'), expected.split_terminator('\n'));
    let mut line = 1;
    loop {
        let (found, expected) = (theirs.next(), ours.next());
        if found != expected || found.is_none() {
            let told = |side: Option<&str>| shown(side.unwrap_or("(nothing)"));
            return Err(ArtifactFault::NotCanonical { line, found: told(found), expected: told(expected) });
        }
        line += 1;
    }
}

struct Lines<'a> {
    all: Vec<&'a str>,
    at: usize,
}

impl<'a> Lines<'a> {
    fn malformed(&self, problem: impl Into<String>) -> ArtifactFault {
        ArtifactFault::Malformed { line: self.at + 1, problem: problem.into() }
    }

    /// The present line without its indentation, if it has just that of `depth`.
    fn line(&self, depth: usize) -> Option<&'a str> {
        let line = *self.all.get(self.at)?;
        let content = line.trim_start_matches(' ');
        (line.len() - content.len() == 2 * depth && !content.is_empty()).then_some(content)
    }

    /// A map or a list whose entries stand at `depth`.
    fn block(&mut self, depth: usize) -> Result<Value, ArtifactFault> {
        if depth > DEEPEST {
            return Err(self.malformed("values lie too deep in each other"));
        }
        let Some(first) = self.line(depth) else { return Err(self.malformed(format!("a value should begin after {} spaces", 2 * depth))) };
        if is_item(first) { self.list(depth) } else { self.map(first, depth) }
    }

    fn list(&mut self, depth: usize) -> Result<Value, ArtifactFault> {
        let mut list = Vec::new();
        while let Some(rest) = self.line(depth).filter(|line| is_item(line)).map(|line| &line[1..]) {
            let item = match rest.strip_prefix(' ') {
                Some(entry) if is_entry(entry) => {
                    if depth >= DEEPEST {
                        return Err(self.malformed("values lie too deep in each other"));
                    }
                    self.map(entry, depth + 1)?
                }
                _ => self.value(rest, depth)?,
            };
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    /// A map whose first entry has been cut out of its line already.
    fn map(&mut self, first: &'a str, depth: usize) -> Result<Value, ArtifactFault> {
        let mut map = Map::new();
        let mut entry = Some(first);
        while let Some(line) = entry {
            let (key, rest) = self.key(line, depth)?;
            let value = self.value(rest, depth)?;
            map.insert(key, value);
            entry = self.line(depth).filter(|line| !is_item(line));
        }
        Ok(Value::Object(map))
    }

    /// A key, and what follows its colon.
    fn key(&mut self, line: &'a str, depth: usize) -> Result<(String, &'a str), ArtifactFault> {
        if let Some(long) = line.strip_prefix("? ") {
            let key = scalar(long).map_err(|problem| self.malformed(problem))?;
            self.at += 1;
            let rest = self.line(depth).and_then(|line| line.strip_prefix(':'));
            return match (key, rest) {
                (Value::String(key), Some(rest)) => Ok((key, rest)),
                _ => Err(self.malformed("a key of its own line needs a line with a colon after it")),
            };
        }
        let Some(end) = key_end(line) else { return Err(self.malformed("a key and a colon should stand here")) };
        match scalar(&line[..end]) {
            Ok(Value::String(key)) => Ok((key, &line[end + 1..])),
            Ok(other) => Err(self.malformed(format!("the key {other} should be a string"))),
            Err(problem) => Err(self.malformed(problem)),
        }
    }

    /// What stands after a colon or a hyphen, on the same line or on the next ones.
    fn value(&mut self, rest: &str, depth: usize) -> Result<Value, ArtifactFault> {
        let line = self.at;
        self.at += 1;
        match rest {
            "" => self.block(depth + 1),
            " |" | " |-" | " |+" => Ok(Value::String(self.literal(depth + 1, !rest.ends_with('-')))),
            _ => {
                let told = |problem| ArtifactFault::Malformed { line: line + 1, problem };
                let text = rest.strip_prefix(' ').ok_or_else(|| told("a space is missing".to_owned()))?;
                scalar(text).map_err(told)
            }
        }
    }

    fn literal(&mut self, depth: usize, ends: bool) -> String {
        let indent = "  ".repeat(depth);
        let mut text = String::new();
        let start = self.at;
        while let Some(line) = self.all.get(self.at).and_then(|line| if line.is_empty() { Some(*line) } else { line.strip_prefix(&indent) })
        {
            if self.at > start {
                text.push('\n');
            }
            text.push_str(line);
            self.at += 1;
        }
        if ends {
            text.push('\n');
        }
        text
    }
}

fn is_item(line: &str) -> bool {
    line == "-" || line.starts_with("- ")
}

/// Whether a map begins with the line.
fn is_entry(line: &str) -> bool {
    line.starts_with("? ") || key_end(line).is_some()
}

/// Where the colon after a key is.
fn key_end(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let ends = |at: usize| bytes.get(at) == Some(&b':') && matches!(bytes.get(at + 1), None | Some(b' '));
    if line.starts_with('"') {
        return quote_end(bytes).filter(|end| ends(*end));
    }
    (0..bytes.len()).find(|at| ends(*at))
}

/// Where the text after a quoted string begins.
fn quote_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    None
}

fn scalar(text: &str) -> Result<Value, String> {
    let number = |text: &str| {
        if text.contains('.') {
            text.parse().ok().and_then(Number::from_f64)
        } else {
            text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok()
        }
    };
    Ok(match text {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "[]" => Value::Array(Vec::new()),
        "{}" => Value::Object(Map::new()),
        "''" => Value::String(String::new()),
        _ if text.starts_with('"') => Value::String(unquoted(text)?),
        _ => number(text).map_or_else(|| Value::from(text), Value::Number),
    })
}

fn unquoted(text: &str) -> Result<String, String> {
    if quote_end(text.as_bytes()) != Some(text.len()) {
        return Err(format!("{} is no string in double quotes", shown(text)));
    }
    let mut out = String::with_capacity(text.len());
    let mut letters = text[1..text.len() - 1].chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        let escape = letters.next();
        let digits = match escape {
            Some('x') => 2,
            Some('u') => 4,
            _ => 0,
        };
        let mut code = 0;
        for _ in 0..digits {
            code = code * 16 + letters.next().and_then(|digit| digit.to_digit(16)).ok_or("an escape ends too early")?;
        }
        out.push(match escape {
            Some('"' | '\\') => escape.unwrap_or_default(),
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('x' | 'u') => char::from_u32(code).ok_or_else(|| format!("{code:X} is no character"))?,
            _ => return Err(format!("\\{} is no escape", escape.map(String::from).unwrap_or_default())),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::strange;

    #[test]
    fn what_is_not_canonical_is_refused_by_its_line() {
        let cases = [
            ("", "line 1: the text ends without a line break"),
            ("a: 1", "line 1: the text ends without a line break"),
            ("\n", "line 1 is not as Slipway writes it: \"\" should be"),
            ("a: 1\n\n", "line 2"),
            ("b: 1\na: 1\n", "line 1 is not as Slipway writes it: \"b: 1\" should be \"a: 1\""),
            ("a: 1\na: 1\n", "line 2"),
            ("a: 'x'\n", "line 1"),
            ("a: \"x\"\n", "line 1 is not as Slipway writes it: \"a: \\\"x\\\"\" should be \"a: x\""),
            ("a: 1 # one\n", "line 1"),
            ("a: &x 1\n", "line 1"),
            ("a: [1]\n", "line 1"),
            ("a: >\n  b\n", "line 1"),
            ("a:\n   b: 1\n", "line 2: a value should begin after 2 spaces"),
            ("a:\n- b\n", "line 2: a value should begin after 2 spaces"),
            ("a:\n", "line 2: a value should begin after 2 spaces"),
            ("a: 1\n  b: 2\n", "line 2"),
            ("a: |\n  b\n\nc: 1\n", "line 1"),
            ("a: |2\n  b\n", "line 1"),
            ("a: \"\\q\"\n", "line 1: \\q is no escape"),
            ("a: \"\\x4\"\n", "line 1: an escape ends too early"),
            ("a: \"\\uD800\"\n", "line 1: D800 is no character"),
            ("a: \"b\n", "line 1: \"b is no string in double quotes"),
            ("1: a\n", "line 1: the key 1 should be a string"),
            ("? a\n: b\n", "line 1"),
            ("? a\nb: c\n", "line 2: a key of its own line needs"),
            ("a: 1\nb\n", "line 2: a key and a colon should stand here"),
            ("a: 01\n", "line 1"),
            ("a: 1\r\n", "line 1"),
            ("\u{feff}a: 1\n", "line 1"),
            ("---\na: 1\n", "line 1 is not as Slipway writes it: \"---\" should be"),
        ];
        for (text, expected) in cases {
            let fault = document(text).expect_err(text).to_string();
            assert!(fault.contains(expected), "{text:?} should say {expected:?}: {fault}");
        }
        assert_eq!(document("a: 1\n"), Ok(json!({"a": 1})));
        assert_eq!(document("[]\n"), Ok(json!([])));
    }

    /// What costs other readers of YAML minutes: references to references, and brackets in brackets.
    #[test]
    fn what_grows_while_it_is_read_is_refused_at_once() {
        let level = |at: usize| format!("a{at}: &a{at} [{}]\n", vec![format!("*a{}", at - 1); 10].join(", "));
        let bomb = "a0: &a0 [x, x, x]\n".to_owned() + &(1..12).map(level).collect::<String>();
        let deep = (0..500).fold(String::new(), |text, depth| text + &"  ".repeat(depth) + "a:\n");
        for text in [bomb, "[".repeat(LONGEST - 1), "{a: ".repeat(LONGEST / 5), "- ".repeat(LONGEST / 3), "? ".repeat(LONGEST / 3), deep] {
            let started = std::time::Instant::now();
            assert!(document(&(text + "\n")).is_err());
            assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.saturating_mul(8)))]
        #[test]
        fn what_is_written_is_read_again(value in strange::value()) {
            let text = yaml(&value);
            prop_assert_eq!(document(&text), Ok(value), "{}", text);
        }

        #[test]
        fn no_text_upsets_the_reader(text in any::<String>(), lines in prop::collection::vec("( {0,6})(- |- -|-|\\? |a: |a:|\"a\": |\"|:)?([a-c\" |:'{}\\\\x-]{0,6})", 0..12)) {
            let _ = document(&text);
            let text = lines.join("\n") + "\n";
            if let Ok(read) = document(&text) {
                prop_assert_eq!(yaml(&read), text);
            }
        }
    }
}
