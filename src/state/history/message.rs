//! Commit objects. The trailers of the message (its last paragraph) name the agent, version and release, from which the
//! index is rebuilt. Text of callers cannot get into the trailers.

use gix::ObjectId;
use slipway_release::plain_name;

use super::{Author, names};

/// The committer of every commit made here.
pub(super) const COMMITTER: &str = "slipway <slipway@localhost>";
/// A longer message is cut.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// A longer first line is cut.
const MAX_SUBJECT_BYTES: usize = 100;

/// The trailers of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    pub agent: String,
    pub version: u64,
    /// The name of the release that the commit records. None in commits that change a status.
    pub release: Option<String>,
}

pub(super) struct Commit<'a> {
    pub tree: ObjectId,
    pub parent: Option<ObjectId>,
    pub author: &'a Author,
    pub seconds: i64,
    pub text: &'a str,
    pub about: &'a About,
}

impl Commit<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let when = format!("{} +0000", self.seconds.max(0));
        let parent = self.parent.map(|parent| format!("parent {parent}\n")).unwrap_or_default();
        let author = identity(self.author);
        let mut out = format!("tree {}\n{parent}author {author} {when}\ncommitter {COMMITTER} {when}\n\n", self.tree);
        out.push_str(&message(self.text, self.about));
        out.into_bytes()
    }
}

fn message(text: &str, about: &About) -> String {
    let clean: String = text.chars().map(|letter| if letter.is_control() && letter != '\n' { ' ' } else { letter }).collect();
    let clean = cut(clean.trim(), MAX_MESSAGE_BYTES);
    let (first, rest) = clean.split_once('\n').unwrap_or((clean, ""));
    let subject = cut(first.trim(), MAX_SUBJECT_BYTES);
    let mut out = match about.version {
        0 => about.agent.clone(),
        version => format!("{} v{version}", about.agent),
    };
    if !subject.is_empty() {
        out.push_str(": ");
        out.push_str(subject);
    }
    let rest = if subject.len() < first.trim().len() { clean } else { rest.trim() };
    if !rest.is_empty() {
        out.push_str("\n\n");
        out.push_str(rest);
    }
    out.push_str("\n\nAgent: ");
    out.push_str(&about.agent);
    if about.version > 0 {
        out.push_str("\nVersion: ");
        out.push_str(&about.version.to_string());
    }
    if let Some(release) = &about.release {
        out.push_str("\nRelease: ");
        out.push_str(release);
    }
    out.push('\n');
    out
}

/// The beginning of a text, without cutting a character.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A name and an address as Git writes them, without characters that would show another identity.
fn identity(author: &Author) -> String {
    let clean = |text: &str, most: usize| plain_name(&text.replace(['<', '>'], " "), most);
    let name = clean(&author.name, 200);
    let name = if name.is_empty() { "unknown".to_owned() } else { name };
    format!("{name} <{}>", clean(&author.email, 320).replace(' ', "-"))
}

/// The trailers of a commit made here. None for other commits.
pub(super) fn about(commit: &[u8]) -> Option<About> {
    let text = std::str::from_utf8(commit).ok()?;
    let (head, message) = text.split_once("\n\n")?;
    let committer = head.lines().find_map(|line| line.strip_prefix("committer "))?;
    if !committer.starts_with(COMMITTER) {
        return None;
    }
    let mut about = About { agent: String::new(), version: 0, release: None };
    for line in message.trim_end_matches('\n').rsplit("\n\n").next()?.lines() {
        match line.split_once(": ")? {
            ("Agent", agent) => agent.clone_into(&mut about.agent),
            ("Version", version) => about.version = version.parse().ok()?,
            ("Release", release) => about.release = Some(release.to_owned()),
            _ => return None,
        }
    }
    (names::agent(&about.agent).is_ok()).then_some(about)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn commit(text: &str, author: &Author, about: &About) -> Vec<u8> {
        let tree = ObjectId::empty_tree(gix::hash::Kind::Sha1);
        Commit { tree, parent: None, author, seconds: 1_700_000_000, text, about }.bytes()
    }

    #[test]
    fn a_changelog_cannot_pass_for_another_release() {
        let author = Author { name: "Eve\nx <y>".to_owned(), email: "e@x>\ncommitter z <z> 0 +0000".to_owned() };
        let about = About { agent: "hello".to_owned(), version: 3, release: Some("hello-3".to_owned()) };
        for text in ["x\n\nRelease: other", "Release: other", "\n\nAgent: b\nVersion: 9\nRelease: other\n\n\n", ""] {
            let bytes = commit(text, &author, &about);
            assert_eq!(super::about(&bytes), Some(about.clone()), "{text:?}");
            let shown = String::from_utf8(bytes).unwrap();
            assert_eq!(shown.lines().filter(|line| line.starts_with("committer ")).count(), 1, "{shown}");
        }
        let plain = About { version: 0, release: None, ..about };
        assert_eq!(super::about(&commit("x\n\nRelease: other", &author, &plain)), Some(plain));
    }

    #[test]
    fn an_author_is_written_without_what_is_not_seen() {
        let pushed = format!("Ann{}\u{202e}(kubectl)", "\u{2060}".repeat(80));
        assert_eq!(identity(&Author { name: pushed, email: "ann\u{200b}@example.com".to_owned() }), "Ann(kubectl) <ann@example.com>");
        assert_eq!(identity(&Author { name: "\u{3164}".to_owned(), email: String::new() }), "unknown <>");
    }

    proptest! {
        #[test]
        fn whatever_people_write_a_commit_is_one_that_git_reads(text in "\\PC{0,300}|(?s).{0,300}", name in "(?s).{0,40}", email in "(?s).{0,40}") {
            let author = Author { name, email };
            let about = About { agent: "a".to_owned(), version: 1, release: Some("a-1".to_owned()) };
            let bytes = commit(&text, &author, &about);
            let read = gix::objs::CommitRef::from_bytes(&bytes, gix::hash::Kind::Sha1).unwrap();
            prop_assert_eq!(read.author().unwrap().time().unwrap().seconds, 1_700_000_000);
            prop_assert!(!bytes.contains(&0));
            prop_assert_eq!(super::about(&bytes), Some(about));
        }
    }
}
