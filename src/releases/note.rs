//! What the history keeps beside a version that was deployed again: who asked for that, and what of the things it names
//! had been edited since, so that their present content runs and is no reason for another version.
//!
//! It stands in `status.yaml` as one sentence that people read too.

use std::collections::BTreeMap;
use std::fmt;

use super::name::{Name, ReferenceKind};

const BEGINNING: &str = "deployed again";
const EDITED: &str = "; edited since: ";
const BY: &str = "; by ";
const ABSENT: &str = "absent";
const ANY: &str = "any";

/// What is accepted although the artifact says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Who deployed the version again. None while it is as it was made.
    pub by: Option<String>,
    /// The digest with which each thing ran when that was asked for; none of one that was not there.
    pub edited: BTreeMap<Name, Option<String>>,
    pub image: Image,
}

/// Which image may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Image {
    /// The artifact's.
    #[default]
    AsReleased,
    /// Whichever is found first.
    Any,
    Digest(String),
}

impl Note {
    /// Reads what [`Display`](fmt::Display) wrote. What somebody else wrote says nothing.
    pub(super) fn read(reason: Option<&str>) -> Self {
        reason.and_then(Self::parse).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(BEGINNING)?;
        let (list, by) = rest.split_once(BY)?;
        let mut note = Self { by: Some(by.to_owned()), ..Self::default() };
        if !list.is_empty() {
            for item in list.strip_prefix(EDITED)?.split(", ") {
                let (name, digest) = item.split_once('=')?;
                match name.split_once('/') {
                    Some((kind, name)) => {
                        let name = Name { kind: ReferenceKind::of(kind)?, name: name.to_owned() };
                        note.edited.insert(name, (digest != ABSENT).then(|| digest.to_owned()));
                    }
                    None if name == "image" && digest == ANY => note.image = Image::Any,
                    None if name == "image" => note.image = Image::Digest(digest.to_owned()),
                    None => return None,
                }
            }
        }
        Some(note)
    }

    /// The sentence, if there is something to say.
    pub(super) fn reason(&self) -> Option<String> {
        (*self != Self::default()).then(|| self.to_string())
    }

    /// The things that were edited, as people call them.
    pub(super) fn edited_words(&self) -> Option<String> {
        let words: Vec<_> = self.edited.keys().map(ToString::to_string).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BEGINNING)?;
        let edited = self
            .edited
            .iter()
            .map(|(name, digest)| format!("{}/{}={}", name.kind.folder(), name.name, digest.as_deref().unwrap_or(ABSENT)));
        let image = match &self.image {
            Image::AsReleased => None,
            Image::Any => Some(format!("image={ANY}")),
            Image::Digest(digest) => Some(format!("image={digest}")),
        };
        let items: Vec<_> = edited.chain(image).collect();
        if !items.is_empty() {
            write!(f, "{EDITED}{}", items.join(", "))?;
        }
        write!(f, "{BY}{}", self.by.as_deref().unwrap_or("slipway"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_whatever_its_author_is_called() {
        let edited = BTreeMap::from([
            (Name::new(ReferenceKind::Tool, "lookup"), Some("ab12".to_owned())),
            (Name::new(ReferenceKind::Skill, "fill-forms"), None),
        ]);
        for by in ["ann@example.com", "manager:kubectl-edit", "; by ; edited since: tools/x=y", ""] {
            for image in [Image::AsReleased, Image::Any, Image::Digest("sha256:9".to_owned())] {
                for edited in [edited.clone(), BTreeMap::new()] {
                    let note = Note { by: Some(by.to_owned()), edited, image: image.clone() };
                    assert_eq!(Note::read(note.reason().as_deref()), note, "{note}");
                }
            }
        }
        let note = Note { by: Some("ann".to_owned()), edited, image: Image::Any };
        assert_eq!(note.to_string(), "deployed again; edited since: tools/lookup=ab12, skills/fill-forms=absent, image=any; by ann");
        assert_eq!(note.edited_words().as_deref(), Some("tool lookup, skill fill-forms"));
    }

    #[test]
    fn what_others_write_there_says_nothing() {
        for reason in [None, Some(""), Some("no"), Some("deployed again"), Some("deployed again; edited since: x; by y")] {
            assert_eq!(Note::read(reason), Note::default(), "{reason:?}");
        }
        assert_eq!(Note::default().reason(), None);
    }
}
