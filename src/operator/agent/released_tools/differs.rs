//! How what an agent uses of its release compares with what there is now, as a condition of the Agent and as a fault of a candidate.

use slipway_api::condition::{Finding, TOOLS_AS_RELEASED};

use crate::fault::ConditionFault;

/// What of a release's Tools, Skills and KnowledgeBases, and of the server of its models, is something else now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::agent) struct Differs {
    pub version: u64,
    /// Used as the release has them.
    pub kept: Vec<String>,
    /// Not kept, so that they can only be used as they are now.
    pub lost: Vec<String>,
    /// The integration of its models, where that is what differs, and whether the release's server was kept.
    pub integration: Option<(String, bool)>,
    /// Why they are kept in memory alone.
    pub trouble: Option<String>,
    /// Of the Skills, those that are used as the release has them, and those that were not kept.
    pub kept_skills: Vec<String>,
    pub lost_skills: Vec<String>,
    /// Of the KnowledgeBases the same.
    pub kept_bases: Vec<String>,
    pub lost_bases: Vec<String>,
    /// Why a Skill is not kept.
    pub skills_trouble: Option<String>,
}

impl Differs {
    pub(in crate::agent) fn finding(&self) -> Option<Finding> {
        let (version, kept, lost) = (self.version, self.named(true), self.named(false));
        if !lost.is_empty() {
            let message = format!(
                "{lost}: changed or removed since release v{version}, which did not keep what it was; pods use what is there now, approved or not"
            );
            return Some(Finding::new(TOOLS_AS_RELEASED, false, "NotKept", message));
        }
        if let Some(why) = &self.trouble {
            let message = format!(
                "the Tools and KnowledgeBases of release v{version}, and the server of its models, cannot be kept, so that a change of them reaches pods when the manager is restarted: {why}"
            );
            return Some(Finding::new(TOOLS_AS_RELEASED, false, "CannotBeKept", message));
        }
        if let Some(why) = &self.skills_trouble {
            let message =
                format!("a Skill of release v{version} cannot be kept, so that a change of it reaches pods when it is made: {why}");
            return Some(Finding::new(TOOLS_AS_RELEASED, false, "CannotBeKept", message));
        }
        let reason = match [&self.kept, &self.kept_skills, &self.kept_bases].map(Vec::is_empty) {
            [false, _, _] => "ToolsChanged",
            [true, false, _] => "SkillsChanged",
            [true, true, false] => "KnowledgeBasesChanged",
            [true, true, true] => "IntegrationChanged",
        };
        let message = || format!("{kept}: changed or removed since; pods go on with what release v{version} has");
        (!kept.is_empty()).then(|| Finding::new(TOOLS_AS_RELEASED, true, reason, message()))
    }

    /// Why a candidate is not evaluated, where something was not kept, or is a Skill that cannot be. Otherwise a full quota
    /// would open a way around the gate.
    pub(in crate::agent) fn fault(&self) -> Option<ConditionFault> {
        let (lost, version) = (self.named(false), self.version);
        if let Some(why) = self.skills_trouble.as_ref().filter(|_| lost.is_empty()) {
            let message = format!("release v{version} is evaluated once its Skills can be kept as they are approved: {why}");
            return Some(ConditionFault { reason: "SkillCannotBeKept", message });
        }
        let reason = match [&self.lost, &self.lost_skills, &self.lost_bases].map(Vec::is_empty) {
            [false, _, _] => "ToolChanged",
            [true, false, _] => "SkillChanged",
            [true, true, false] => "KnowledgeBaseChanged",
            [true, true, true] => "IntegrationChanged",
        };
        let message =
            || format!("{lost}: changed since release v{version} was made; a release of what is there now is evaluated in its place");
        (!lost.is_empty()).then(|| ConditionFault { reason, message: message() })
    }

    /// The Tools, the Skills, the KnowledgeBases and the integration that differ, as one says them: those that were kept, or those that were not.
    pub(in crate::agent) fn named(&self, is_kept: bool) -> String {
        let of = |kind: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{kind}{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", ")))
        };
        let [tools, skills, bases] =
            if is_kept { [&self.kept, &self.kept_skills, &self.kept_bases] } else { [&self.lost, &self.lost_skills, &self.lost_bases] };
        let integration = self.integration.as_ref().filter(|(_, kept)| *kept == is_kept);
        let integration = integration.map(|(name, _)| format!("Integration {name}"));
        [of("Tool", tools), of("Skill", skills), of("KnowledgeBase", bases), integration]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" and ")
    }
}
