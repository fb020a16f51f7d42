//! Things that an agent names, such as a Tool: their kind and name.

use std::fmt;

/// A kind of thing that agents name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ReferenceKind {
    Tool,
    Skill,
    KnowledgeBase,
    Integration,
}

impl ReferenceKind {
    const ALL: [Self; 4] = [Self::Tool, Self::Skill, Self::KnowledgeBase, Self::Integration];

    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Skill => "skills",
            Self::KnowledgeBase => "knowledge_bases",
            Self::Integration => "integrations",
        }
    }

    pub(super) fn of(folder: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.folder() == folder)
    }
}

/// Something that an agent names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    pub kind: ReferenceKind,
    pub name: String,
}

impl Name {
    pub(super) fn new(kind: ReferenceKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ReferenceKind::Tool => "tool",
            ReferenceKind::Skill => "skill",
            ReferenceKind::KnowledgeBase => "knowledge base",
            ReferenceKind::Integration => "integration",
        };
        write!(f, "{kind} {}", self.name)
    }
}
