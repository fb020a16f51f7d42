//! What an agent's names stand for now, and how that compares with what they stood for in a release.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use slipway_api::{AgentSpec, ids};
use slipway_release::{Artifact, Resolved};

use super::name::{Name, ReferenceKind};
use super::note::{Image, Note};

/// All that a spec names.
pub(super) fn names(spec: &AgentSpec) -> BTreeSet<Name> {
    let tools = spec.tools.iter().map(|name| Name::new(ReferenceKind::Tool, name));
    let skills = spec.skills.iter().map(|reference| Name::new(ReferenceKind::Skill, ids::skill_name(reference)));
    let bases = spec.knowledge_bases.iter().map(|reference| Name::new(ReferenceKind::KnowledgeBase, ids::knowledge_base_name(reference)));
    let integrations =
        spec.model_integration.iter().map(|reference| Name::new(ReferenceKind::Integration, ids::integration_name(reference)));
    tools.chain(skills).chain(bases).chain(integrations).collect()
}

/// What became of looking a name up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReferenceState {
    Digest(String),
    /// It is there and switched off, so that it is no part of what runs.
    Off,
    /// It is not there, or cannot be read, or is not worked out yet.
    Missing,
}

/// What was found of an agent's names, and the image that its pods run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct References {
    pub found: BTreeMap<Name, ReferenceState>,
    /// The digest, once it is known.
    pub image: Option<String>,
}

impl References {
    fn get(&self, name: &Name) -> &ReferenceState {
        self.found.get(name).unwrap_or(&ReferenceState::Missing)
    }

    /// What a release of this spec would hold, or the first name that stands for nothing yet.
    pub(super) fn resolved(&self, spec: &AgentSpec) -> Result<Resolved, Name> {
        let mut resolved = Resolved { image: pinned_digest(spec).or_else(|| self.image.clone()), ..Resolved::default() };
        for name in names(spec) {
            match self.get(&name) {
                ReferenceState::Digest(digest) => {
                    let into = match name.kind {
                        ReferenceKind::Tool => &mut resolved.tools,
                        ReferenceKind::Skill => &mut resolved.skills,
                        ReferenceKind::KnowledgeBase => &mut resolved.knowledge_bases,
                        ReferenceKind::Integration => &mut resolved.integrations,
                    };
                    into.insert(name.name, digest.clone());
                }
                ReferenceState::Off => {}
                ReferenceState::Missing => return Err(name),
            }
        }
        Ok(resolved)
    }

    /// The note for a release that is deployed again: what of its names is not what it was.
    pub(super) fn note(&self, artifact: &Artifact, spec: &AgentSpec, by: String) -> Note {
        let before = digests(&artifact.resolved);
        let named = names(spec).into_iter().chain(before.keys().cloned()).collect::<BTreeSet<_>>();
        let present = |name: &Name| match self.get(name) {
            ReferenceState::Digest(digest) => Some(digest.clone()),
            ReferenceState::Off | ReferenceState::Missing => None,
        };
        let edited = named.into_iter().map(|name| (present(&name), name));
        let edited = edited.filter(|(present, name)| before.get(name) != present.as_ref()).map(|(present, name)| (name, present)).collect();
        let image = if pinned_digest(spec).is_some() || artifact.resolved.image.is_none() { Image::AsReleased } else { Image::Any };
        Note { by: Some(by), edited, image }
    }
}

/// What differs between what runs by a release and what would run by another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Differs {
    pub names: Vec<Name>,
    pub image: bool,
}

impl Differs {
    pub(super) fn is_nothing(&self) -> bool {
        self.names.is_empty() && !self.image
    }
}

/// Compares what names stand for now with the active release, and with what was accepted in its place.
pub(super) fn differs(active: &Resolved, note: &Note, now: &Resolved) -> Differs {
    let (before, now_digests) = (digests(active), digests(now));
    let all: BTreeSet<&Name> = before.keys().chain(now_digests.keys()).collect();
    let same = |name: &Name| {
        let present = now_digests.get(name);
        present == before.get(name) || note.edited.get(name).is_some_and(|accepted| accepted.as_ref() == present)
    };
    let image = match (&note.image, &active.image, &now.image) {
        (_, _, None) | (Image::Any, _, _) | (Image::AsReleased, None, _) => false,
        (Image::AsReleased, Some(before), Some(now)) => before != now,
        (Image::Digest(accepted), before, Some(now)) => accepted != now && before.as_ref() != Some(now),
    };
    Differs { names: all.into_iter().filter(|name| !same(name)).cloned().collect(), image }
}

fn digests(resolved: &Resolved) -> BTreeMap<Name, String> {
    let of = |kind: ReferenceKind, map: &BTreeMap<String, String>| {
        map.iter().map(move |(name, digest)| (Name::new(kind, name), digest.clone())).collect::<Vec<_>>()
    };
    let bases = of(ReferenceKind::KnowledgeBase, &resolved.knowledge_bases);
    let integrations = of(ReferenceKind::Integration, &resolved.integrations);
    of(ReferenceKind::Tool, &resolved.tools)
        .into_iter()
        .chain(of(ReferenceKind::Skill, &resolved.skills))
        .chain(bases)
        .chain(integrations)
        .collect()
}

/// The digest that an image is named by, if it is.
pub(super) fn pinned_digest(spec: &AgentSpec) -> Option<String> {
    spec.image.as_deref().and_then(digest_of)
}

/// The digest in a reference or in what a kubelet reports.
pub(super) fn digest_of(reference: &str) -> Option<String> {
    let digest = reference.rsplit_once('@').map_or(reference, |(_, digest)| digest);
    let hex = digest.strip_prefix("sha256:")?;
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| digest.to_owned())
}

/// The digest of a spec.
pub(super) fn digest(spec: &impl Serialize) -> String {
    slipway_release::digest(&serde_json::to_value(spec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn resolved(image: Option<&str>, tools: &[(&str, &str)]) -> Resolved {
        let tools = tools.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
        Resolved { image: image.map(str::to_owned), tools, ..Resolved::default() }
    }

    #[test]
    fn an_image_that_is_not_known_equals_any() {
        let of = |image| resolved(image, &[]);
        let none = Note::default();
        for (before, now, expected) in
            [(None, None, false), (None, Some(A), false), (Some(A), None, false), (Some(A), Some(A), false), (Some(A), Some(B), true)]
        {
            assert_eq!(differs(&of(before), &none, &of(now)).image, expected, "{before:?} {now:?}");
        }
        let noted = |image| Note { image, ..Note::default() };
        assert!(!differs(&of(Some(A)), &noted(Image::Any), &of(Some(B))).image);
        assert!(!differs(&of(Some(A)), &noted(Image::Digest(B.to_owned())), &of(Some(B))).image);
        assert!(differs(&of(None), &noted(Image::Digest(B.to_owned())), &of(Some(A))).image);
    }

    #[test]
    fn what_was_accepted_is_no_difference_until_it_changes_again() {
        let (before, edited, again) = (resolved(None, &[("t", "1")]), resolved(None, &[("t", "2")]), resolved(None, &[("t", "3")]));
        let tool = Name::new(ReferenceKind::Tool, "t");
        let only = std::slice::from_ref(&tool);
        assert_eq!(differs(&before, &Note::default(), &edited).names, only);
        let note = Note { edited: [(tool.clone(), Some("2".to_owned()))].into(), ..Note::default() };
        assert!(differs(&before, &note, &edited).is_nothing());
        assert!(differs(&before, &note, &before).is_nothing(), "what was edited back is as released");
        assert_eq!(differs(&before, &note, &again).names, only);
        assert_eq!(differs(&before, &note, &resolved(None, &[])).names, only, "it was switched off");
        let absent = Note { edited: [(tool.clone(), None)].into(), ..Note::default() };
        assert!(differs(&before, &absent, &resolved(None, &[])).is_nothing());
        assert_eq!(differs(&before, &absent, &edited).names, only);
    }

    #[test]
    fn names_stand_for_digests_or_for_nothing_yet() {
        let spec: AgentSpec =
            serde_yaml::from_str("{name: A, framework: custom, tools: [on, off], skills: [sk_fill_forms], knowledgeBases: [kb_docs]}")
                .unwrap();
        let mut references = References { image: Some(A.to_owned()), ..References::default() };
        references.found.insert(Name::new(ReferenceKind::Tool, "on"), ReferenceState::Digest("1".to_owned()));
        references.found.insert(Name::new(ReferenceKind::Tool, "off"), ReferenceState::Off);
        references.found.insert(Name::new(ReferenceKind::Skill, "fill-forms"), ReferenceState::Digest("2".to_owned()));
        assert_eq!(references.resolved(&spec).unwrap_err(), Name::new(ReferenceKind::KnowledgeBase, "docs"));
        references.found.insert(Name::new(ReferenceKind::KnowledgeBase, "docs"), ReferenceState::Digest("3".to_owned()));
        let resolved = references.resolved(&spec).unwrap();
        assert_eq!(resolved.tools.keys().collect::<Vec<_>>(), ["on"]);
        assert_eq!((resolved.skills["fill-forms"].as_str(), resolved.knowledge_bases["docs"].as_str()), ("2", "3"));
        assert_eq!(resolved.image.as_deref(), Some(A));
        let pinned = AgentSpec { image: Some(format!("example.com/x@{B}")), ..spec };
        assert_eq!(references.resolved(&pinned).unwrap().image.as_deref(), Some(B), "the spec says which");
    }

    #[test]
    fn digests_are_found_in_what_kubelets_report() {
        for (reference, expected) in
            [(A, Some(A)), ("docker.io/library/x@sha256:00", None), ("x:latest", None), (&*format!("docker-pullable://r/x@{B}"), Some(B))]
        {
            assert_eq!(digest_of(reference).as_deref(), expected, "{reference}");
        }
    }
}
