//! The URL of a skill in a Git repository: `https://host/owner/repository//path?ref=v1`.

use percent_encoding::percent_decode_str;
use slipway_http::Error;
use url::Url;

const EXAMPLE: &str = "it should look like https://github.com/owner/repository//path/to/skill?ref=v1";
/// The limit of the field `source` of a skill.
const URL_BYTES_MAX: usize = 2048;

/// A folder of a Git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSource {
    pub(super) repository: Url,
    /// Without slashes at its ends. Empty: the folder of the only skill, wherever it is.
    pub(super) path: String,
    pub(super) reference: Option<String>,
}

impl SkillSource {
    /// `path` and `reference` complete the URL; where it has them too, both must be the same.
    pub fn parse(source: &str, path: Option<&str>, reference: Option<&str>) -> Result<Self, Error> {
        let wrong = |what: &str| Error::bad_request(format!("source: {what}; {EXAMPLE}"));
        if source.len() > URL_BYTES_MAX {
            return Err(wrong("is too long"));
        }
        let mut url = Url::parse(source.trim()).map_err(|_| wrong("is no URL"))?;
        if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("must begin with https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must hold no user and password; only repositories that everybody may read can be imported from"));
        }
        if url.fragment().is_some() {
            return Err(wrong("must have no # in it; a branch, tag or commit stands after ?ref="));
        }
        if let Some(better) = page_to_source(&url) {
            return Err(Error::bad_request(format!("source: is the address of a page; write {better}")));
        }
        let mut url_reference = None;
        for (name, value) in url.query_pairs() {
            if name != "ref" || url_reference.is_some() {
                return Err(wrong("may have the parameter ref, once, and no other"));
            }
            url_reference = Some(value.into_owned());
        }
        let (repository, inner) = match url.path().split_once("//") {
            Some((repository, inner)) => (repository.to_owned(), Some(inner.to_owned())),
            None => (url.path().trim_end_matches('/').to_owned(), None),
        };
        if repository.trim_matches('/').is_empty() {
            return Err(wrong("names no repository"));
        }
        let inner = inner.map(|inner| percent_decode_str(&inner).decode_utf8().map(std::borrow::Cow::into_owned)).transpose();
        let inner = inner.map_err(|_| wrong("has a path that is not UTF-8"))?;
        url.set_query(None);
        url.set_path(&repository);
        let path = merge("path", inner.filter(|inner| !inner.trim_matches('/').is_empty()), path)?;
        let reference = merge("ref", url_reference, reference)?;
        if let Some(reference) = reference.as_deref().filter(|reference| !is_reference(reference)) {
            return Err(Error::bad_request(format!("ref: {reference:?} is no name of a branch, a tag or a commit")));
        }
        let source = Self { repository: url, path: folder(&path.unwrap_or_default())?, reference };
        if source.to_url().len() > URL_BYTES_MAX {
            return Err(wrong("is too long with its path and ref"));
        }
        Ok(source)
    }

    /// The URL that parses to this source.
    pub(super) fn to_url(&self) -> String {
        let mut url = self.repository.clone();
        // Without the two slashes it could be taken for the URL of a page.
        if !self.path.is_empty() || page_to_source(&url).is_some() {
            let path = format!("{}//{}", url.path(), self.path.replace('%', "%25"));
            url.set_path(&path);
        }
        if let Some(reference) = &self.reference {
            url.query_pairs_mut().append_pair("ref", reference);
        }
        url.into()
    }
}

/// A value from the URL or beside it. Both may have it if they agree.
fn merge(name: &str, within: Option<String>, beside: Option<&str>) -> Result<Option<String>, Error> {
    match (within, beside) {
        (Some(within), Some(beside)) if within.trim_matches('/') != beside.trim_matches('/') => {
            Err(Error::bad_request(format!("{name}: is given twice, in the URL and beside it, with different values")))
        }
        (within, beside) => Ok(within.or(beside.map(str::to_owned))),
    }
}

/// A folder's path without slashes at its ends. The path of a `SKILL.md` becomes that of its folder.
pub(super) fn folder(path: &str) -> Result<String, Error> {
    let mut path = path.trim_matches('/');
    while let Some(folder) = path.strip_suffix("SKILL.md").filter(|folder| folder.is_empty() || folder.ends_with('/')) {
        path = folder.trim_end_matches('/');
    }
    let steps_down = |step: &str| !matches!(step, "" | "." | "..") && !step.chars().any(|letter| letter.is_control() || letter == '\\');
    if path.is_empty() || path.split('/').all(steps_down) {
        Ok(path.to_owned())
    } else {
        Err(Error::bad_request(format!("path: {path:?} must be a folder's path such as skills/forms, without .. and double slashes")))
    }
}

/// Whether Git accepts the name and could take it for nothing else, such as a flag or a refspec.
#[expect(clippy::case_sensitive_file_extension_comparisons, reason = "Git compares case")]
fn is_reference(name: &str) -> bool {
    let forbidden = |letter: char| letter.is_control() || letter.is_whitespace() || "~^:?*[\\".contains(letter);
    let step = |step: &str| !step.is_empty() && !step.starts_with('.') && !step.ends_with('.') && !step.ends_with(".lock");
    (1..=255).contains(&name.len())
        && !name.contains(forbidden)
        && !name.starts_with(['-', '+'])
        && !name.contains("..")
        && !name.contains("@{")
        && name.split('/').all(step)
}

/// The source that is meant by the URL of a Git host's web page.
fn page_to_source(url: &Url) -> Option<String> {
    if url.path().contains("//") {
        return None;
    }
    let (repository, shown) = ["/-/tree/", "/-/blob/", "/tree/", "/blob/"].iter().find_map(|mark| url.path().split_once(mark))?;
    let (reference, path) = shown.split_once('/').unwrap_or((shown, ""));
    let mut better = url.clone();
    better.set_query(None);
    better.set_path(&if path.is_empty() { repository.to_owned() } else { format!("{repository}//{path}") });
    better.query_pairs_mut().append_pair("ref", reference);
    Some(better.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(source: &str, path: Option<&str>, reference: Option<&str>) -> Result<SkillSource, String> {
        SkillSource::parse(source, path, reference).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_source_equals_its_parsed_url() {
        for source in [
            "https://host/o/r",
            "https://host/o/r//a%20b?ref=feature%2Fx",
            "https://host/o/r//100%25/a",
            "https://host/o/r//%252e%252e/a",
            "https://host/o/r//a/SKILL.md/SKILL.md",
            "https://host/o/tree/x//",
        ] {
            let found = read(source, None, None).unwrap();
            assert_eq!(read(&found.to_url(), None, None), Ok(found), "{source}");
        }
    }

    #[test]
    fn a_source_names_repository_folder_and_reference() {
        for (source, path, reference, expected) in [
            ("https://host/o/r//skills/a?ref=v1", None, None, ("https://host/o/r", "skills/a", Some("v1"))),
            ("https://host/o/r.git", None, None, ("https://host/o/r.git", "", None)),
            ("https://host/o/r/", Some("/skills/a/"), Some("feature/x"), ("https://host/o/r", "skills/a", Some("feature/x"))),
            ("https://host/o/r//skills/a?ref=v1", Some("skills/a"), Some("v1"), ("https://host/o/r", "skills/a", Some("v1"))),
            ("https://host:8443/r//a%20b/SKILL.md", None, None, ("https://host:8443/r", "a b", None)),
            ("https://host/r//SKILL.md", None, None, ("https://host/r", "", None)),
            ("https://host/r//", Some("a"), None, ("https://host/r", "a", None)),
        ] {
            let found = read(source, path, reference).unwrap();
            assert_eq!((found.repository.as_str(), found.path.as_str(), found.reference.as_deref()), expected, "{source}");
        }
    }

    #[test]
    fn an_invalid_source_is_refused_with_an_example() {
        for (source, path, reference, says) in [
            ("skills", None, None, "is no URL"),
            ("git@github.com:o/r.git", None, None, "is no URL"),
            ("file:///etc", None, None, "must begin with https://"),
            ("ssh://git@host/r", None, None, "must begin with https://"),
            ("ext::sh -c id", None, None, "must begin with https://"),
            ("git+https://host/r", None, None, "must begin with https://"),
            ("https://me:hunter2@host/r", None, None, "no user and password"),
            ("https://host", None, None, "names no repository"),
            ("https://host//a", None, None, "names no repository"),
            ("https://host/r#main", None, None, "?ref="),
            ("https://host/r?branch=x", None, None, "the parameter ref"),
            ("https://host/r?ref=a&ref=b", None, None, "once"),
            ("https://host/r//a", Some("b"), None, "path: is given twice"),
            ("https://host/r?ref=a", None, Some("b"), "ref: is given twice"),
            ("https://host/r", Some("../etc"), None, "path: "),
            ("https://host/r//a/b%5C..%5Cc", None, None, "path: "),
            ("https://host/r//a/..%2f..%2fb", None, None, "path: "),
            ("https://host/r", Some("a//b"), None, "path: "),
            ("https://host/r", None, Some("--upload-pack=x"), "ref: "),
            ("https://host/r", None, Some("a:b"), "ref: "),
            ("https://host/r", None, Some("refs/*"), "ref: "),
            ("https://host/r", None, Some("a..b"), "ref: "),
            ("https://host/r", None, Some(""), "ref: "),
            ("https://github.com/o/r/tree/main/skills/pdf", None, None, "write https://github.com/o/r//skills/pdf?ref=main"),
            ("https://gitlab.com/o/r/-/blob/v1/a/SKILL.md", None, None, "write https://gitlab.com/o/r//a/SKILL.md?ref=v1"),
        ] {
            let message = read(source, path, reference).unwrap_err();
            assert!(message.contains(says) && !message.contains("hunter2"), "{source}: {message}");
        }
    }

    #[test]
    fn a_url_parses_to_the_source_that_wrote_it() {
        for source in ["https://host/o/r//skills/a?ref=v1", "https://host/o/r", "https://host/r//a%20b?ref=feature%2Fx"] {
            let first = read(source, None, None).unwrap();
            assert_eq!(read(&first.to_url(), None, None).as_ref(), Ok(&first), "{source} became {}", first.to_url());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_source_or_an_error(source in "\\PC{0,60}|(o|r|/|//|a|%|25|%2f|%20|%3F|#|\\?|ref=|v1|&|\\+|SKILL\\.md|tree|blob|\\.\\.| |é|@|:){0,10}", path in proptest::option::of("[a-z./%\\\\#? é+]{0,20}"), reference in proptest::option::of("\\PC{0,20}")) {
            for source in [source.clone(), format!("https://host/{source}")] {
                if let Ok(found) = read(&source, path.as_deref(), reference.as_deref()) {
                    prop_assert!(found.path.split('/').all(|step| step != ".."));
                    // The URL is stored with the skill, and parsed again when the skill is updated.
                    let url = found.to_url();
                    prop_assert_eq!(read(&url, None, None), Ok(found), "{}", url);
                }
            }
        }
    }
}
