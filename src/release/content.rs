//! What of an artifact counts when it is asked whether anything changed: the blocks, without `metadata`, which tells of
//! the release and not of the agent, without `resolved`, which is found and not asked for, and without `replicas`.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::artifact::{Artifact, Runtime};
use crate::canonical::yaml;

impl Artifact {
    /// The blocks that make up the content, and nothing else.
    pub fn content(&self) -> Value {
        let runtime = Runtime { replicas: None, ..self.runtime.clone() };
        json!({ "runtime": runtime, "agent": self.agent, "governance": self.governance, "deployment": self.deployment })
    }

    /// Whether a release of the one would say the same as a release of the other.
    pub fn same_content(&self, other: &Self) -> bool {
        let runtime = Runtime { replicas: other.runtime.replicas, ..self.runtime.clone() };
        runtime == other.runtime && self.agent == other.agent && self.governance == other.governance && self.deployment == other.deployment
    }

    /// SHA-256 of the content's canonical form, in lower-case hex.
    pub fn content_hash(&self) -> String {
        hex::encode(Sha256::digest(yaml(&self.content())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::{self, artifact};
    use crate::{Resolved, Status};

    #[test]
    fn what_says_the_same_is_the_same() {
        let cases = [
            ("", "replicas: 7", true),
            ("", "suspend: true", true),
            ("", "description: Other.", true),
            ("", "governance: {}", true),
            ("", "governance: {riskProfile: medium, minQualityScore: 0, limits: {}}", true),
            ("", "podTemplate: {}", true),
            ("", "envSecrets: [agent-env]", true),
            ("", "modelId: stub-echo", true),
            ("governance: {limits: {dailyCostUsd: 5}}", "governance: {limits: {dailyCostUsd: '5'}}", true),
            ("", "governance: {riskProfile: low}", false),
            ("", "envSecrets: []", false),
            ("", "version: two", false),
            ("", "resources: {}", false),
            ("", "environment: staging", false),
            ("tools: [a, b]", "tools: [b, a]", false),
            ("systemPrompt: a", "systemPrompt: 'a '", false),
        ];
        for (one, other, same) in cases {
            let (one, other) = (artifact(one), artifact(other));
            assert_eq!(one.same_content(&other), same, "{one:?}\n{other:?}");
            assert_eq!(one.content_hash() == other.content_hash(), same, "{one:?}\n{other:?}");
        }
    }

    #[test]
    fn what_tells_of_the_release_is_no_content() {
        let one = artifact("");
        let mut other = one.clone();
        other.metadata.version = 9;
        other.metadata.status = Status::Rejected;
        other.resolved = Resolved { image: Some("sha256:00".to_owned()), ..Resolved::default() };
        assert!(one.same_content(&other));
        assert_eq!(one.content_hash(), other.content_hash());
    }

    /// A hash is kept in an Agent's status while a release is pinned: an upgrade must find the same one.
    #[test]
    fn a_hash_stays() {
        assert_eq!(artifact("").content_hash(), "1064305709fa9638303b8e9d024f1ff67cd8d9bb7a9ad28cf930f15d63b0cead");
        assert_eq!(samples::full().content_hash(), "36a8ecf162dfb30a630993cee109d2e031ac71fe0c40728fc97fe266aac5baee");
    }

    proptest! {
        #[test]
        fn hashes_are_equal_where_contents_are(one in samples::spec(), other in samples::spec()) {
            let of = |spec| Artifact::of_spec(spec, "team-a", Resolved::default(), samples::metadata());
            let (one, other) = (of(&one), of(&other));
            prop_assert_eq!(one.content_hash() == other.content_hash(), one.same_content(&other));
            prop_assert_eq!(one.content_hash(), one.clone().content_hash());
        }
    }
}
