//! Pages of `docs/` that are played: a block marked `sh` is run, and one marked `json` or `text` that follows is what its output holds.
//! Fields that are not shown may be there too, and `…` stands for anything.

use serde_json::Value;

/// A block of commands, and what comes of it.
pub struct PageStep {
    /// In the page, from 1.
    pub line: usize,
    /// The heading that it stands under.
    pub heading: String,
    pub commands: String,
    /// The mark of the block with the output, and that.
    shown: Option<(String, String)>,
}

/// The steps of a page of this name.
#[track_caller]
pub fn steps(name: &str, page: &str) -> Vec<PageStep> {
    let mut steps: Vec<PageStep> = Vec::new();
    let mut heading = String::new();
    let mut block: Option<(usize, String, String)> = None;
    for (at, line) in page.lines().enumerate() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(mark)) => block = Some((at + 1, mark.to_owned(), String::new())),
            (None, None) if line.starts_with('#') => line.trim_start_matches('#').trim().clone_into(&mut heading),
            (None, None) => {}
            (Some((_, _, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (Some(_), Some(_)) => {
                let Some((line, mark, text)) = block.take() else { continue };
                match mark.as_str() {
                    "sh" => steps.push(PageStep { line, heading: heading.clone(), commands: text, shown: None }),
                    "json" | "text" => {
                        let step = steps.last_mut().unwrap_or_else(|| panic!("{name}:{line} shows what nobody asked for"));
                        step.shown = Some((mark, text));
                    }
                    _ => {}
                }
            }
        }
    }
    steps
}

impl PageStep {
    /// Whether what came is what is shown, if something is.
    pub fn check(&self, came: &str) -> Result<(), String> {
        self.shown.as_ref().map_or(Ok(()), |(mark, shown)| compare(mark, shown, came))
    }
}

fn compare(mark: &str, shown: &str, came: &str) -> Result<(), String> {
    let different = || format!("should say\n{shown}and says\n{came}");
    if mark == "json" {
        let shown: Value = serde_json::from_str(shown).map_err(|e| format!("what is shown is not JSON: {e}"))?;
        let came: Value = serde_json::from_str(came).map_err(|_| different())?;
        return if holds(&shown, &came) { Ok(()) } else { Err(different()) };
    }
    let (shown, came): (Vec<&str>, Vec<&str>) = (shown.trim().lines().collect(), came.trim().lines().collect());
    let same = shown.len() == came.len() && shown.iter().zip(&came).all(|(shown, came)| fits(shown, came));
    if same { Ok(()) } else { Err(different()) }
}

fn holds(shown: &Value, came: &Value) -> bool {
    match (shown, came) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().all(|(name, value)| came.get(name).is_some_and(|came| holds(value, came)))
        }
        (Value::Array(shown), Value::Array(came)) => {
            shown.len() == came.len() && shown.iter().zip(came).all(|(shown, came)| holds(shown, came))
        }
        (Value::String(shown), Value::String(came)) => fits(shown, came),
        _ => shown == came,
    }
}

/// Whether `came` is `shown`, in which `…` stands for anything.
fn fits(shown: &str, came: &str) -> bool {
    let Some((before, after)) = shown.split_once('…') else { return shown == came };
    let Some(rest) = came.strip_prefix(before) else { return false };
    if after.is_empty() {
        return true;
    }
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| fits(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_compared() {
        for (mark, shown, came, same) in [
            ("json", r#"{"a": "x…z", "b": [1]}"#, r#"{"a": "xyz", "b": [1], "c": 2}"#, true),
            ("json", r#"{"a": 1}"#, r#"{"b": 1}"#, false),
            ("json", r#"{"a": [1]}"#, r#"{"a": [1, 2]}"#, false),
            ("text", "one …\ntwo\n", "one 1\ntwo\n", true),
            ("text", "one\n", "one\ntwo\n", false),
            ("text", "a…b…c", "a1b2c", true),
            ("text", "a…b…c", "a1b2", false),
        ] {
            assert_eq!(compare(mark, shown, came).is_ok(), same, "{shown} and {came}");
        }
    }

    #[test]
    fn a_step_knows_its_heading_and_what_comes_of_it() {
        let page = "# A page\n\n    indented\n\n## One\n```sh\n# a comment\necho 1\n```\n```text\n1\n```\n### Two\n```sh\ntrue\n```\n";
        let steps = steps("page.md", page);
        let found: Vec<_> = steps.iter().map(|step| (step.line, step.heading.as_str(), step.check("1\n").is_ok())).collect();
        assert_eq!(found, [(6, "One", true), (14, "Two", true)]);
        assert!(steps[0].check("2").is_err() && steps[1].check("anything").is_ok());
    }
}
