//! The commands that a cli tool may run, as `allowedCommands` has them: tokens between spaces, `{name}` for a parameter's
//! value, and an ending `*` or `...` for further arguments. `docs/tools.md` has the rules for users.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::placeholder::{Part, names, parts};
use crate::tool::Parameter;

/// By this argument the model says which command is meant.
pub const COMMAND: &str = "command";
/// By this one it gives further arguments.
pub const ARGUMENTS: &str = "arguments";

const ARGUMENTS_MAX: usize = 64;
const ARGUMENT_BYTES: usize = 8 * 1024;
/// Of an argument that is refused a message shows so much.
const SHOWN: usize = 100;

/// A field of a Tool, and what is wrong with it.
pub type Wrong = (&'static str, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Further {
    None,
    /// `*`: arguments that do not begin with `-`.
    Operands,
    /// `...`: whatever the model likes, options too.
    Anything,
}

/// The commands of a tool that runs its program anew for each call. `program` is the binary's own name.
pub fn commands(entries: &[String], program: &str, parameters: &[Parameter]) -> Result<Vec<Command>, Vec<Wrong>> {
    const FIELD: &str = "allowedCommands";
    let mut wrong = Vec::new();
    if entries.is_empty() {
        wrong.push((FIELD, format!("must name what may be run, for example [\"{program} --version\"]; an empty list allows nothing")));
    }
    let mut commands: Vec<Command> = Vec::new();
    for entry in entries {
        match Command::parse(entry, program) {
            Ok(command) if commands.iter().any(|other| other.name == command.name) => {
                wrong.push((FIELD, format!("'{entry}' is there twice")));
            }
            Ok(command) => commands.push(command),
            Err(fault) => wrong.push((FIELD, fault)),
        }
    }
    let used: BTreeSet<&str> = commands.iter().flat_map(Command::placeholders).collect();
    for name in &used {
        if !parameters.iter().any(|parameter| parameter.name == *name) {
            wrong.push((FIELD, format!("the placeholder {{{name}}} is not declared in parameters")));
        }
    }
    for parameter in parameters {
        if matches!(parameter.name.as_str(), COMMAND | ARGUMENTS) {
            wrong.push(("parameters", format!("'{}' is taken: by it the model says what to run", parameter.name)));
        } else if !used.contains(parameter.name.as_str()) {
            wrong.push(("parameters", format!("'{0}' is used by no command; write {{{0}}} where it belongs", parameter.name)));
        }
    }
    if wrong.is_empty() { Ok(commands) } else { Err(wrong) }
}

/// What a program is started with that speaks mcp: the one allowed command, or nothing.
pub fn fixed(entries: &[String], program: &str, parameters: &[Parameter]) -> Result<Vec<String>, Vec<Wrong>> {
    const FIELD: &str = "allowedCommands";
    let mut wrong = Vec::new();
    if !parameters.is_empty() {
        wrong.push(("parameters", "a program that speaks mcp names the parameters of its tools itself".to_owned()));
    }
    let mut arguments = Vec::new();
    match entries {
        [] => {}
        [entry] => match Command::parse(entry, program).map(Command::fixed) {
            Ok(Some(Ok(fixed))) => arguments = fixed,
            Ok(Some(Err(fault))) => wrong.push((FIELD, format!("'{entry}': {fault}"))),
            Ok(None) => wrong
                .push((FIELD, format!("'{entry}': a program that speaks mcp is started with fixed arguments, without {{…}}, * and ..."))),
            Err(fault) => wrong.push((FIELD, fault)),
        },
        more => wrong.push((FIELD, format!("has {} entries; a program that speaks mcp is started once, with one", more.len()))),
    }
    if wrong.is_empty() { Ok(arguments) } else { Err(wrong) }
}

#[derive(Debug, Clone)]
pub struct Command {
    /// As the operator wrote it: the name by which the model chooses it.
    pub name: String,
    tokens: Vec<Vec<Part>>,
    further: Further,
}

impl Command {
    /// `program` is the binary's own name: an entry may begin with it, as one would type it.
    pub fn parse(entry: &str, program: &str) -> Result<Self, String> {
        let mut words: Vec<&str> = entry.split_whitespace().collect();
        if words.is_empty() {
            return Err("must not be empty; to run the program without arguments, give its name".to_owned());
        }
        if words[0] == program {
            words.remove(0);
        }
        let further = match words.last() {
            Some(&"*") => Further::Operands,
            Some(&"...") => Further::Anything,
            _ => Further::None,
        };
        if further != Further::None {
            words.pop();
        }
        if words.iter().any(|word| matches!(*word, "*" | "...")) {
            return Err(format!("'{entry}': * and ... can only be the last"));
        }
        if words.iter().any(|word| word.contains(['"', '\'', '`'])) {
            return Err(format!("'{entry}': quotes have no meaning here; tokens are split at spaces and no shell is involved"));
        }
        let tokens =
            words.into_iter().map(parts).collect::<Option<_>>().ok_or_else(|| format!("'{entry}': a placeholder is not closed"))?;
        Ok(Self { name: entry.to_owned(), tokens, further })
    }

    pub fn placeholders(&self) -> BTreeSet<&str> {
        names(&self.tokens)
    }

    /// The arguments, if they are the same every time.
    fn fixed(self) -> Option<Result<Vec<String>, String>> {
        let varies = self.takes_further() || !self.placeholders().is_empty();
        (!varies).then(|| self.fill(&Map::new(), &[]))
    }

    pub fn takes_further(&self) -> bool {
        self.further != Further::None
    }

    /// The arguments for the program. Each token becomes exactly one, whatever its values hold.
    pub fn fill(&self, values: &Map<String, Value>, further: &[String]) -> Result<Vec<String>, String> {
        let mut filled = Vec::with_capacity(self.tokens.len() + further.len());
        for token in &self.tokens {
            let mut argument = String::new();
            for part in token {
                match part {
                    Part::Text(text) => argument.push_str(text),
                    Part::Placeholder(name) => {
                        let value = values.get(name).ok_or_else(|| format!("{name}: is required by the command '{}'", self.name))?;
                        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                        // With nothing before it, such a value would be taken for an option.
                        if argument.is_empty() && value.starts_with('-') {
                            return Err(format!("{name}: must not begin with '-'"));
                        }
                        argument.push_str(&value);
                    }
                }
            }
            filled.push(argument);
        }
        match self.further {
            Further::None if !further.is_empty() => {
                return Err(format!("arguments: the command '{}' takes no further arguments", self.name));
            }
            Further::Operands => {
                if let Some(option) = further.iter().find(|argument| argument.starts_with('-')) {
                    let option: String = option.chars().take(SHOWN).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
                    return Err(format!("arguments: '{option}' begins with '-', which the command '{}' does not allow", self.name));
                }
            }
            Further::None | Further::Anything => {}
        }
        filled.extend_from_slice(further);
        if filled.len() > ARGUMENTS_MAX {
            return Err(format!("arguments: there are {} and at most {ARGUMENTS_MAX} are allowed", filled.len()));
        }
        match filled.iter().find(|argument| argument.len() > ARGUMENT_BYTES || argument.contains('\0')) {
            Some(argument) if argument.contains('\0') => Err("arguments: must not hold NUL characters".to_owned()),
            Some(_) => Err(format!("arguments: each must have at most {ARGUMENT_BYTES} bytes")),
            None => Ok(filled),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn run(entry: &str, values: &Value, further: &[&str]) -> Result<Vec<String>, String> {
        let further: Vec<String> = further.iter().map(|argument| (*argument).to_owned()).collect();
        Command::parse(entry, "git")?.fill(values.as_object().unwrap(), &further)
    }

    #[test]
    fn only_what_an_entry_says_is_run() {
        for (entry, values, further, expected) in [
            ("git status", json!({}), &[][..], Ok(&["status"][..])),
            ("status --short", json!({}), &[], Ok(&["status", "--short"])),
            ("git", json!({}), &[], Ok(&[])),
            ("git git", json!({}), &[], Ok(&["git"])),
            ("log --author={who}", json!({"who": "a b; rm -rf /"}), &[], Ok(&["log", "--author=a b; rm -rf /"])),
            ("log --author={who}", json!({"who": "-x"}), &[], Ok(&["log", "--author=-x"])),
            ("log -n {n} {a}..{b}", json!({"n": 3, "a": "x", "b": "y"}), &[], Ok(&["log", "-n", "3", "x..y"])),
            ("show *", json!({}), &["a", "$(b)"], Ok(&["show", "a", "$(b)"])),
            ("show *", json!({}), &[], Ok(&["show"])),
            ("show ...", json!({}), &["--stat", "a"], Ok(&["show", "--stat", "a"])),
            ("show -- {file}", json!({"file": "{file}"}), &[], Ok(&["show", "--", "{file}"])),
            ("status", json!({}), &["--short"], Err("arguments: the command 'status' takes no further arguments")),
            ("show *", json!({}), &["a", "--output=/x"], Err("arguments: '--output=/x' begins with '-'")),
            ("show {file}", json!({"file": "--output=/x"}), &[], Err("file: must not begin with '-'")),
            ("log -n {n}", json!({"n": -3}), &[], Err("n: must not begin with '-'")),
            ("show {a}{b}", json!({"a": "", "b": "-x"}), &[], Err("b: must not begin with '-'")),
            ("show {file}", json!({}), &[], Err("file: is required by the command 'show {file}'")),
            ("show {file}", json!({"file": "a\0b"}), &[], Err("arguments: must not hold NUL")),
            ("a * b", json!({}), &[], Err("'a * b': * and ... can only be the last")),
            ("log '{who}'", json!({}), &[], Err("'log '{who}'': quotes have no meaning")),
            ("log {who", json!({}), &[], Err("'log {who': a placeholder is not closed")),
            ("  ", json!({}), &[], Err("must not be empty")),
        ] {
            let outcome = run(entry, &values, further);
            match expected {
                Ok(expected) => {
                    assert_eq!(outcome.as_deref(), Ok(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..]), "{entry}");
                }
                Err(expected) => assert!(outcome.as_ref().is_err_and(|fault| fault.starts_with(expected)), "{entry}: {outcome:?}"),
            }
        }
        let many = vec!["x"; 65];
        assert!(run("show *", &json!({}), &many).unwrap_err().contains("at most 64"));
        assert!(run("show *", &json!({}), &["x".repeat(9000).as_str()]).unwrap_err().contains("8192 bytes"));
    }

    proptest! {
        #[test]
        fn no_value_becomes_more_than_one_argument(value in any::<String>()) {
            let values = json!({ "v": value });
            if let Ok(arguments) = run("show --x={v} {v}", &values, &[]) {
                prop_assert_eq!(arguments, ["show".to_owned(), format!("--x={value}"), value]);
            } else {
                prop_assert!(value.starts_with('-') || value.contains('\0'));
            }
        }

        #[test]
        fn no_entry_makes_it_panic(entry in any::<String>(), value in any::<String>()) {
            let _ = run(&entry, &json!({ "v": value.clone() }), &[&value]);
        }
    }
}
