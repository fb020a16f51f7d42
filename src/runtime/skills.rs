//! Skills: folders with a SKILL.md and what it refers to. The model is told their names; it reads
//! them with two tools when it needs them.

use std::fs::{self, File};
use std::future::Future;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};
use slipway_tools::{Builtin, Spec, ToolOutcome};

use crate::settings::SkillConfig;

const INSTRUCTIONS: &str = "SKILL.md";
/// The model gets no more of one file.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// How many files of a skill are listed.
const MAX_FILES: usize = 100;

pub(crate) struct Skills(Vec<SkillConfig>);

impl Skills {
    pub(crate) fn new(skills: Vec<SkillConfig>) -> Self {
        Self(skills)
    }

    pub(crate) fn listed(&self) -> &[SkillConfig] {
        &self.0
    }

    fn find(&self, name: &str) -> Result<&SkillConfig, ToolOutcome> {
        self.0.iter().find(|skill| skill.name == name).ok_or_else(|| {
            let known = self.0.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(", ");
            ToolOutcome::error(format!("there is no skill {name:?}; there are: {known}"))
        })
    }

    /// The instructions of a skill, and which files lie beside them.
    fn load(&self, name: &str) -> Result<ToolOutcome, ToolOutcome> {
        let skill = self.find(name)?;
        let folder = Path::new(&skill.path);
        let text = read(&folder.join(INSTRUCTIONS))?;
        let mut files = Vec::new();
        list(folder, Path::new(""), &mut files);
        files.retain(|file| file != INSTRUCTIONS);
        files.sort();
        let more = if files.is_empty() {
            String::new()
        } else {
            format!("\n\nFiles of this skill, to be read with read_skill_file:\n{}", files.join("\n"))
        };
        let truncated = text.truncated;
        Ok(ToolOutcome { content: text.content + &more, is_error: false, truncated })
    }

    fn read_file(&self, name: &str, file: &str) -> Result<ToolOutcome, ToolOutcome> {
        let skill = self.find(name)?;
        let within = !file.is_empty() && Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
        if !within {
            return Err(ToolOutcome::error(format!("{file:?} is not a file of the skill; give a path as load_skill lists it")));
        }
        let path = Path::new(&skill.path).join(file);
        if leaves(Path::new(&skill.path), &path) {
            return Err(ToolOutcome::error(format!("{file:?} leads out of the skill's folder")));
        }
        read(&path)
    }
}

/// Whether a link leads out of the folder. The kubelet's own links stay within.
fn leaves(folder: &Path, path: &Path) -> bool {
    let (Ok(folder), Ok(path)) = (folder.canonicalize(), path.canonicalize()) else { return false };
    !path.starts_with(folder)
}

fn read(path: &Path) -> Result<ToolOutcome, ToolOutcome> {
    let missing = |error: std::io::Error| ToolOutcome::error(format!("the file cannot be read: {}", error.kind()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(missing)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(missing)?;
    let truncated = bytes.len() as u64 > MAX_FILE_BYTES;
    let text = String::from_utf8_lossy(&bytes);
    if !truncated {
        return Ok(ToolOutcome { content: text.into_owned(), is_error: false, truncated });
    }
    let end = text.floor_char_boundary(usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX));
    Ok(ToolOutcome { content: format!("{}\n[cut: the file is longer]", &text[..end]), is_error: false, truncated })
}

fn list(folder: &Path, below: &Path, files: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder.join(below)) else { return };
    for entry in entries.flatten() {
        // `..data` and the like are how the kubelet swaps files.
        let hidden = entry.file_name().to_string_lossy().starts_with("..");
        if hidden || files.len() >= MAX_FILES {
            continue;
        }
        let path: PathBuf = below.join(entry.file_name());
        if folder.join(&path).is_dir() {
            list(folder, &path, files);
        } else {
            files.push(path.to_string_lossy().into_owned());
        }
    }
}

/// The tools through which the model reads skills; none where there are none.
pub(crate) fn tools(skills: &Arc<Skills>) -> Vec<Box<dyn Builtin>> {
    if skills.0.is_empty() {
        return Vec::new();
    }
    vec![Box::new(LoadSkill(Arc::clone(skills))), Box::new(ReadSkillFile(Arc::clone(skills)))]
}

struct LoadSkill(Arc<Skills>);

struct ReadSkillFile(Arc<Skills>);

type Called<'a> = Pin<Box<dyn Future<Output = ToolOutcome> + Send + 'a>>;

impl Builtin for LoadSkill {
    fn spec(&self) -> Spec {
        Spec {
            name: "load_skill".to_owned(),
            description: "Reads the instructions of one of your skills. Do this before you do what the skill is for.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {"name": {"type": "string", "description": "the skill's name"}},
                "required": ["name"],
                "additionalProperties": false,
            }),
        }
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn call(&self, arguments: Value) -> Called<'_> {
        Box::pin(async move { self.0.load(text(&arguments, "name")).unwrap_or_else(|refused| refused) })
    }
}

impl Builtin for ReadSkillFile {
    fn spec(&self) -> Spec {
        Spec {
            name: "read_skill_file".to_owned(),
            description: "Reads a file that belongs to a skill, as load_skill lists it.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "the skill's name"},
                    "file": {"type": "string", "description": "the file's path within the skill"},
                },
                "required": ["name", "file"],
                "additionalProperties": false,
            }),
        }
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn call(&self, arguments: Value) -> Called<'_> {
        Box::pin(async move { self.0.read_file(text(&arguments, "name"), text(&arguments, "file")).unwrap_or_else(|refused| refused) })
    }
}

fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::fs::symlink;
    use std::process;

    use super::*;

    /// A skill as the kubelet mounts it: the files are links through `..data`.
    fn mounted(name: &str) -> (PathBuf, Skills) {
        let folder = env::temp_dir().join(format!("slipway-skill-{}-{name}", process::id()));
        let data = folder.join("..2026");
        fs::create_dir_all(data.join("references")).unwrap();
        fs::write(data.join(INSTRUCTIONS), "# Refunds\nAsk first.").unwrap();
        fs::write(data.join("references/table.md"), "a|b").unwrap();
        symlink("..2026", folder.join("..data")).unwrap();
        symlink("..data/SKILL.md", folder.join(INSTRUCTIONS)).unwrap();
        symlink("..data/references", folder.join("references")).unwrap();
        symlink("/etc/passwd", folder.join("secrets")).unwrap();
        let config =
            SkillConfig { name: "refunds".into(), description: "d".into(), path: folder.to_string_lossy().into_owned(), digest: None };
        (folder, Skills::new(vec![config]))
    }

    #[test]
    fn a_skill_is_read_with_the_list_of_its_files() {
        let (folder, skills) = mounted("load");
        let outcome = skills.load("refunds").unwrap();
        assert!(outcome.content.starts_with("# Refunds\nAsk first.\n\n"), "{}", outcome.content);
        assert!(outcome.content.ends_with("references/table.md\nsecrets"), "{}", outcome.content);
        assert_eq!(skills.read_file("refunds", "references/table.md").unwrap().content, "a|b");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn nothing_outside_of_a_skill_is_read() {
        let (folder, skills) = mounted("attack");
        for file in ["../../etc/passwd", "/etc/passwd", "", ".", "references/../../x", "secrets", "nothing"] {
            let refused = skills.read_file("refunds", file).unwrap_err();
            assert!(refused.is_error && !refused.content.contains("root:"), "{file}: {}", refused.content);
        }
        assert!(skills.load("others").unwrap_err().content.contains("there are: refunds"));
        fs::remove_dir_all(folder).unwrap();
    }
}
