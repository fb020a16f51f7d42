//! An AgentRelease as the cluster shows it, as far as a decision depends on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use slipway_api::condition;
use slipway_api::release::ReleaseEvaluation;
use slipway_api::{AgentRelease, AgentReleaseStatus, labels};
use slipway_cluster::json::hash;
use slipway_release::Status;

use super::{MANAGER, author};

/// The longest name of an AgentRelease.
pub(super) const MAX_NAME_CHARS: usize = 63;

/// An AgentRelease, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(super) struct Shown {
    pub name: String,
    pub uid: String,
    pub resource_version: u64,
    /// The Agent that it names.
    pub agent: String,
    /// The version that it stands for, as Git has it. None while it was not recorded.
    pub version: Option<u64>,
    /// Whether we made it, as far as it says. Its status may say so, which anybody may have written; or it says nothing, because
    /// the API server throws the book of writers away that it cannot bring up to date.
    pub is_made: bool,
    /// The version in its name, and in its label where the book does not say that we made it.
    pub numbered: Option<u64>,
    /// What its pods were said to run.
    pub run_hash: Option<String>,
    /// What was said of its evaluation.
    pub evaluation: Option<ReleaseEvaluation>,
    /// Of the status, for comparison.
    pub status: u64,
    /// What somebody asks for, or asked for, by it; none of those that we made.
    pub request: Option<ReleaseRequest>,
    pub created: i64,
    pub deleting: bool,
    /// Whether it asked for a release when nothing had changed, and was told so. What Git has recorded is not.
    pub skipped: bool,
    /// Whether GitOps would make it anew if it were deleted.
    pub gitops: bool,
}

/// What somebody asks for by an AgentRelease.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReleaseRequest {
    pub changelog: Option<String>,
    pub author: String,
    pub conditions: Vec<Condition>,
}

impl Shown {
    pub(super) fn of(release: &AgentRelease) -> Self {
        let meta = release.meta();
        let mut status = release.status.clone().unwrap_or_default();
        status.conditions = condition::ours(status.conditions);
        let skipped = status.phase == Some(Status::Skipped);
        let entries = meta.managed_fields.iter().flatten();
        let writers: Vec<_> = entries
            .filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some()))
            .map(|entry| entry.manager.as_deref())
            .collect();
        let is_ours = writers.contains(&Some(MANAGER));
        let number = release.name_any().rsplit_once("-v").and_then(|(_, number)| number.parse().ok());
        let labelled = release.labels().get(labels::RELEASE).and_then(|label| label.parse().ok());
        let request = (!is_ours).then(|| ReleaseRequest {
            changelog: release.spec.changelog.clone(),
            author: author::of_request(meta, release.spec.author.as_deref()),
            conditions: status.conditions.clone(),
        });
        Self {
            name: release.name_any(),
            uid: release.uid().unwrap_or_default(),
            resource_version: release.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0),
            agent: release.spec.agent.clone(),
            version: None,
            is_made: is_ours || writers.is_empty() || (status.version.is_some() && !skipped),
            numbered: number.filter(|_| is_ours || number == labelled),
            run_hash: status.run_hash.clone(),
            evaluation: status.evaluation.clone(),
            status: hash_of(&status),
            request,
            created: release.creation_timestamp().map_or(0, |time| time.0.as_second()),
            deleting: meta.deletion_timestamp.is_some(),
            skipped: skipped && !is_ours,
            gitops: slipway_api::gitops::owner(meta).is_some(),
        }
    }

    /// Whether all was said of it: nothing had changed.
    pub(super) fn is_skipped(&self) -> bool {
        self.skipped && self.version.is_none()
    }

    /// Whether its status says just this.
    pub(super) fn says(&self, status: &AgentReleaseStatus) -> bool {
        hash_of(status) == self.status
    }

    /// The status was written, and this is what the cluster keeps of it.
    pub(super) fn accept(&mut self, status: &AgentReleaseStatus) {
        self.status = hash_of(status);
    }

    /// By which a person's release is known in Git: another one may bear the same name later.
    pub(super) fn key(&self) -> String {
        let uid: String = self.uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        format!("{}-{}", self.name, uid.to_ascii_lowercase())
    }
}

fn hash_of(status: &AgentReleaseStatus) -> u64 {
    hash(&serde_json::to_value(status).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use slipway_api::AgentReleaseSpec;

    use super::*;

    #[test]
    fn what_the_cluster_does_not_keep_is_written_once() {
        let status = |version| AgentReleaseStatus { version: Some(version), ..AgentReleaseStatus::default() };
        let release = AgentRelease { status: Some(status(1)), ..AgentRelease::new("helper-v1", AgentReleaseSpec::default()) };
        let mut shown = Shown::of(&release);
        assert!(shown.says(&status(1)) && !shown.says(&status(2)));
        shown.accept(&status(2));
        assert!(shown.says(&status(2)) && !shown.says(&status(3)), "another one is written");
        assert!(!Shown::of(&release).says(&status(2)), "what a watch tells of it counts anew");
    }
}
