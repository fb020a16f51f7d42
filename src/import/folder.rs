//! Finds the one skill in the files of a repository or an archive.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use slipway_api::SkillSpec;
use slipway_api::skill::{FILES_BYTES_MAX, FILES_MAX, INSTRUCTIONS_MAX, SKILL_FILE};
use slipway_http::Error;

/// Front matter and instructions together.
const SKILL_FILE_BYTES_MAX: u64 = 2 * INSTRUCTIONS_MAX as u64;
/// The number of skills that an error lists.
const LISTED_MAX: usize = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    /// A symbolic link, another repository, a device: a skill holds none of them.
    Other(&'static str),
}

/// A file that is not read yet; `T` locates its bytes.
#[derive(Debug, Clone)]
pub(super) struct FileEntry<T> {
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    pub location: T,
}

/// The files of the only skill in the folder `asked` (empty: anywhere), with paths relative to the skill's own folder.
pub(super) fn choose<T: Clone>(entries: &[FileEntry<T>], asked: &str) -> Result<Vec<FileEntry<T>>, Error> {
    let prefix = |folder: &str| if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let within = prefix(asked);
    let inside: Vec<&FileEntry<T>> = entries.iter().filter(|entry| entry.path.starts_with(&within) && !is_hidden(&entry.path)).collect();
    if inside.is_empty() {
        return Err(Error::bad_request(match asked {
            "" => "there is no file in it".to_owned(),
            asked => format!("path: there is no folder {asked}"),
        }));
    }
    let mut roots: Vec<&str> = inside.iter().filter_map(|entry| root(&entry.path)).collect();
    // A skill may hold others, as examples. These are files of it then.
    if roots.contains(&asked) {
        roots = vec![asked];
    }
    roots.sort_unstable();
    let root = match roots.as_slice() {
        [root] => prefix(root),
        [] => {
            let place = if asked.is_empty() { "anywhere in it".to_owned() } else { format!("in {asked}") };
            return Err(Error::bad_request(format!("there is no {SKILL_FILE} {place}; a skill is a folder with one")));
        }
        several => return Err(Error::bad_request(list(several))),
    };
    let mut chosen = Vec::new();
    for entry in inside {
        let Some(path) = entry.path.strip_prefix(&root) else { continue };
        if let FileKind::Other(what) = entry.kind {
            return Err(Error::bad_request(format!("{} is {what}; a skill holds plain files only", entry.path)));
        }
        chosen.push(FileEntry { path: path.to_owned(), ..entry.clone() });
    }
    check_sizes(&chosen)?;
    Ok(chosen)
}

/// The folder of a path whose last step is `SKILL.md`.
fn root(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((folder, SKILL_FILE)) => Some(folder),
        None if path == SKILL_FILE => Some(""),
        _ => None,
    }
}

/// Files of editors, operating systems and Git.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|step| step.starts_with('.') || step == "__MACOSX")
}

fn list(roots: &[&str]) -> String {
    let mut text = format!("there are {} skills in it; say which by `path`: ", roots.len());
    for (at, root) in roots.iter().take(LISTED_MAX).enumerate() {
        let _ = write!(text, "{}{}", if at > 0 { ", " } else { "" }, if root.is_empty() { "/" } else { root });
    }
    if roots.len() > LISTED_MAX {
        let _ = write!(text, " and {} more", roots.len() - LISTED_MAX);
    }
    text
}

/// Checks the declared sizes, before any file is read.
fn check_sizes<T>(chosen: &[FileEntry<T>]) -> Result<(), Error> {
    let beside: Vec<&FileEntry<T>> = chosen.iter().filter(|entry| entry.path != SKILL_FILE).collect();
    if beside.len() > FILES_MAX {
        return Err(Error::bad_request(format!("files: there are {}; a skill holds at most {FILES_MAX}", beside.len())));
    }
    let bytes = beside.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.size));
    if bytes > FILES_BYTES_MAX as u64 {
        let most = beside.iter().max_by_key(|entry| entry.size).map_or("", |entry| entry.path.as_str());
        let message = format!("files: they have {bytes} bytes together, most of them {most}; a skill holds at most {FILES_BYTES_MAX}");
        return Err(Error::bad_request(message));
    }
    match chosen.iter().find(|entry| entry.path == SKILL_FILE && entry.size > SKILL_FILE_BYTES_MAX) {
        Some(long) => {
            Err(Error::bad_request(format!("{SKILL_FILE}: has {} bytes; at most {SKILL_FILE_BYTES_MAX} are possible", long.size)))
        }
        None => Ok(()),
    }
}

/// Parses the files of a skill.
pub(super) fn skill(files: Vec<(String, Vec<u8>)>) -> Result<SkillSpec, Error> {
    let mut texts = BTreeMap::new();
    for (path, bytes) in files {
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(Error::bad_request(format!("{path}: is not UTF-8 text; a skill holds text files only")));
        };
        if let Some(twice) = texts.insert(path.clone(), text) {
            drop(twice);
            return Err(Error::bad_request(format!("{path}: is there twice")));
        }
    }
    let text = texts.remove(SKILL_FILE).unwrap_or_default();
    SkillSpec::from_markdown(&text, texts).map_err(|error| {
        let message = error.to_string();
        // Callers never see a `spec`.
        Error::bad_request(message.strip_prefix("spec.").unwrap_or(&message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> Vec<FileEntry<()>> {
        paths.iter().map(|path| FileEntry { path: (*path).to_owned(), kind: FileKind::File, size: 10, location: () }).collect()
    }

    fn chosen(entries: &[FileEntry<()>], asked: &str) -> Result<Vec<String>, String> {
        let paths = |entries: Vec<FileEntry<()>>| entries.into_iter().map(|entry| entry.path).collect();
        choose(entries, asked).map(paths).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_only_skill_is_found_in_any_folder() {
        for (paths, asked, expected) in [
            (&["SKILL.md", "a/b.md"][..], "", &["SKILL.md", "a/b.md"][..]),
            (&["top/SKILL.md", "top/x.md", "other.md"], "", &["SKILL.md", "x.md"]),
            (&["s/a/SKILL.md", "s/a/x", "s/b/SKILL.md"], "s/a", &["SKILL.md", "x"]),
            (&["s/a/SKILL.md", "sx/a/SKILL.md"], "s", &["SKILL.md"]),
            (&["SKILL.md", "examples/a/SKILL.md"], "", &["SKILL.md", "examples/a/SKILL.md"]),
            (&["a/SKILL.md", "a/.git/x", "__MACOSX/a/._SKILL.md", "a/.DS_Store"], "", &["SKILL.md"]),
        ] {
            assert_eq!(chosen(&tree(paths), asked).unwrap(), expected, "{paths:?} {asked}");
        }
    }

    #[test]
    fn several_skills_are_listed_and_none_is_an_error() {
        for (paths, asked, says) in [
            (&["s/a/SKILL.md", "s/b/SKILL.md"][..], "", "there are 2 skills in it; say which by `path`: s/a, s/b"),
            (&["README.md"], "", "no SKILL.md anywhere"),
            (&["s/README.md"], "s", "no SKILL.md in s"),
            (&["s/SKILL.md"], "t", "path: there is no folder t"),
            (&["xSKILL.md", "a/skill.md"], "", "no SKILL.md"),
            (&[], "", "no file"),
        ] {
            let message = chosen(&tree(paths), asked).unwrap_err();
            assert!(message.contains(says), "{message}");
        }
        let many: Vec<String> = (0..40).map(|at| format!("s{at}/SKILL.md")).collect();
        let message = chosen(&tree(&many.iter().map(String::as_str).collect::<Vec<_>>()), "").unwrap_err();
        assert!(message.ends_with("and 10 more"), "{message}");
    }

    #[test]
    fn invalid_files_are_refused_before_they_are_read() {
        let mut link = tree(&["a/SKILL.md", "a/x", "b/y"]);
        link[1].kind = FileKind::Other("a symbolic link");
        assert_eq!(chosen(&link, "").unwrap_err(), "a/x is a symbolic link; a skill holds plain files only");
        (link[1].kind, link[2].kind) = (FileKind::File, FileKind::Other("a symbolic link"));
        assert!(chosen(&link, "").is_ok(), "files outside of the skill's folder do not matter");

        let mut large = tree(&["SKILL.md", "x"]);
        large[1].size = u64::MAX;
        assert!(chosen(&large, "").unwrap_err().contains("most of them x"));
        (large[0].size, large[1].size) = (SKILL_FILE_BYTES_MAX + 1, 1);
        assert!(chosen(&large, "").unwrap_err().starts_with("SKILL.md: has"));
        let many: Vec<String> = (0..70).map(|at| format!("f{at}")).chain(["SKILL.md".to_owned()]).collect();
        assert!(chosen(&tree(&many.iter().map(String::as_str).collect::<Vec<_>>()), "").unwrap_err().contains("there are 70"));
    }

    #[test]
    fn files_become_a_skill_or_a_message() {
        let files = |text: &str, more: &[(&str, &[u8])]| {
            let more = more.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()));
            [("SKILL.md".to_owned(), text.as_bytes().to_vec())].into_iter().chain(more).collect::<Vec<_>>()
        };
        let good = skill(files("---\nname: forms\ndescription: d\n---\n\nRead.", &[("a/b.md", b"x")])).unwrap();
        assert_eq!((good.name.as_str(), good.instructions.as_str(), good.files["a/b.md"].as_str()), ("forms", "Read.", "x"));
        for (found, says) in [
            (files("# Forms", &[]), "must begin with a line ---"),
            (files("---\nname: forms\ndescription: [\n---\nx", &[]), "line 4"),
            (files("---\nname: forms\ndescription: a: b\n---\nx", &[]), "line 3"),
            (files("---\nname: A B\ndescription: d\n---\nx", &[]), "name: "),
            (files("---\nname: a\ndescription: d\n---\nx", &[("logo.png", b"\x89PNG\xff")]), "logo.png: is not UTF-8 text"),
            (files("---\nname: a\ndescription: d\n---\nx", &[("a b", b"")]), "files: \"a b\" is no path"),
            (files("---\nname: a\ndescription: d\n---\nx", &[("a", b""), ("a", b"")]), "a: is there twice"),
        ] {
            let error = skill(found).unwrap_err();
            assert!(error.message().contains(says) && !error.message().contains("spec."), "{says}: {}", error.message());
        }
    }
}
