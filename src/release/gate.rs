//! The evaluation gate: the score that a release has to reach, and the run that decides on it.
//!
//! The operator makes the run, and the state role believes no other: both ask here what it is called and what it says. A gate
//! cannot be lowered by the very release that it holds: where the active release asks for more, its demands count. A canary's run asks
//! for as much, so that a release of what it has evaluated need not be evaluated again ([`satisfies`]).

use serde_json::json;
use sha2::{Digest, Sha256};
use slipway_api::EvaluationRunSpec;
use slipway_api::agent::{Governance, RiskProfile};
use slipway_api::evaluation_run::EvaluatedTrack;
use slipway_api::ids;

use crate::{Artifact, Resolved};

/// How often a release is put to an evaluation: a run that ends without scores is repeated.
pub const MAX_ATTEMPTS: i32 = 3;

/// The reason of a run that ended without scores, where another one would end no better: the agent gives no answers. The run of a gate is
/// not repeated then.
pub const NO_ANSWER: &str = "NoAnswer";

/// The field managers that make a release's run, and that write the statuses of runs. An admission policy keeps others from
/// writing under these names.
pub const MAKER: &str = "slipway/agent";
pub const JUDGE: &str = "slipway/evaluation";

/// The field managers of what else is in the status of a run, and decides nothing: that a pod has reported its end, and that
/// MLflow has it.
pub const CALLBACK: &str = "slipway/callback";
pub const DELIVERY: &str = "slipway/delivery";

/// The alphabet of ULIDs, in lower case.
const CROCKFORD: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The score that a release has to reach: the higher one of the active release's and its own. None without a gate.
pub fn score(active: Option<&Artifact>, next: &Artifact) -> Option<i32> {
    let of = |artifact: &Artifact| artifact.governance.min_quality_score;
    Some(active.map_or(0, of).max(of(next))).filter(|score| *score > 0)
}

/// The name of a run, which nobody has to remember: it follows from the release's UID and the attempt, so that a release has one
/// run for each attempt, however often and by any process it is made.
pub fn run_name(release_uid: &str, attempt: i32) -> String {
    let digest = Sha256::digest(format!("{release_uid}/{attempt}"));
    let (head, _) = digest.split_at(16);
    let mut bits = head.iter().fold(0_u128, |bits, byte| (bits << 8) | u128::from(*byte));
    let mut letters = [0_u8; 26];
    for letter in letters.iter_mut().rev() {
        *letter = CROCKFORD[(bits & 31) as usize];
        bits >>= 5;
    }
    format!("ev-{}", letters.iter().copied().map(char::from).collect::<String>())
}

/// What the run of a release says, taken from artifacts alone. `release` is the name of its AgentRelease.
pub fn run_spec(release: &str, active: Option<&Artifact>, pending: &Artifact) -> EvaluationRunSpec {
    let held = active.filter(|active| active.governance.min_quality_score > 0);
    // Another dataset or judge may be an easier one.
    let kept = |of: fn(&Artifact) -> Option<&String>| held.and_then(of).or_else(|| of(pending)).cloned();
    let profile = |artifact: &Artifact| risk_profile(&artifact.governance.risk_profile);
    EvaluationRunSpec {
        agent: pending.metadata.name.clone(),
        dataset: kept(|artifact| artifact.governance.eval_dataset.as_ref()),
        track: EvaluatedTrack::Candidate,
        release: Some(release.to_owned()),
        risk_profile: Some(held.map_or_else(|| profile(pending), |active| stricter(profile(active), profile(pending)))),
        min_quality_score: score(active, pending),
        judge_model: kept(|artifact| artifact.agent.judge_model.as_ref()),
        ..EvaluationRunSpec::default()
    }
}

/// Whether a run says what it should. How long it is kept, and whether somebody ended it, is no part of that.
pub fn is_run_spec(found: &EvaluationRunSpec, wanted: &EvaluationRunSpec) -> bool {
    let found = EvaluationRunSpec { cancel: false, ttl_seconds_after_finished: None, ..found.clone() };
    found == *wanted
}

/// What an artifact says and what it names, as a hash, by which a canary's run is found again. The image is left out, as only pods
/// know it.
pub fn content_key(artifact: &Artifact) -> String {
    let Resolved { image: _, tools, skills, knowledge_bases, integrations, further: _ } = &artifact.resolved;
    let mut parts = vec![json!(artifact.content_hash()), json!(tools), json!(skills), json!(knowledge_bases)];
    // Agents that name none have the key that they had before there were any.
    parts.extend((!integrations.is_empty()).then(|| json!(integrations)));
    hex::encode(Sha256::digest(crate::yaml(&parts.into())))
}

/// The name of a canary's run, which follows from the Agent's UID, the content and the attempt.
pub fn canary_run_name(agent_uid: &str, content_key: &str, attempt: i32) -> String {
    run_name(&format!("{agent_uid}/canary/{content_key}"), attempt)
}

/// The name of a run that a progressive-delivery controller's question begins, which follows from the Agent's UID, from what runs, and
/// from the attempt, so that asking again begins no second one.
pub fn webhook_run_name(agent_uid: &str, run_hash: &str, attempt: i32) -> String {
    run_name(&format!("{agent_uid}/webhook/{run_hash}"), attempt)
}

/// What the run of a canary says. `score` is the least that is asked for besides the gate's.
pub fn canary_run_spec(active: Option<&Artifact>, canary: &Artifact, score: Option<i32>) -> EvaluationRunSpec {
    let gated = run_spec("", active, canary);
    EvaluationRunSpec {
        track: EvaluatedTrack::Canary,
        release: None,
        content: Some(content_key(canary)),
        min_quality_score: gated.min_quality_score.max(score),
        ..gated
    }
}

/// Whether a canary's run asks for all that the run of this release would.
pub fn satisfies(found: &EvaluationRunSpec, active: Option<&Artifact>, pending: &Artifact) -> bool {
    let wanted = canary_run_spec(active, pending, None);
    let as_strict = EvaluationRunSpec { min_quality_score: wanted.min_quality_score, ..found.clone() };
    is_run_spec(&as_strict, &wanted) && found.min_quality_score >= wanted.min_quality_score
}

/// The field of an Agent's spec by which a change asks for less than before, if it does while there is a gate: a smaller score, a
/// lower profile, another or no dataset or judge. The first one named is another one too: it takes the place of the default, which may
/// be a protected Dataset, or of a comparison of words. Each is given as the governance block and the judge's model.
pub fn lowers(before: (Option<&Governance>, Option<&str>), after: (Option<&Governance>, Option<&str>)) -> Option<&'static str> {
    let score = |governance: Option<&Governance>| governance.and_then(|governance| governance.min_quality_score).unwrap_or(0);
    let profile = |governance: Option<&Governance>| governance.and_then(|governance| governance.risk_profile).unwrap_or_default();
    let dataset =
        |governance: Option<&'_ Governance>| governance.and_then(|governance| governance.eval_dataset.as_deref()).map(ids::dataset_name);
    let fields = [
        (score(after.0) < score(before.0), "governance.minQualityScore"),
        (rank(profile(after.0)) < rank(profile(before.0)), "governance.riskProfile"),
        (dataset(after.0) != dataset(before.0), "governance.evalDataset"),
        (after.1 != before.1, "judgeModel"),
    ];
    if score(before.0) == 0 {
        return None;
    }
    fields.into_iter().find(|(lowers, _)| *lowers).map(|(_, field)| field)
}

/// A word that is not known may be the strictest.
fn risk_profile(word: &str) -> RiskProfile {
    match word {
        "low" => RiskProfile::Low,
        "standard" | "medium" => RiskProfile::Standard,
        _ => RiskProfile::High,
    }
}

/// The profile that asks for more.
pub fn stricter(one: RiskProfile, other: RiskProfile) -> RiskProfile {
    if rank(one) >= rank(other) { one } else { other }
}

const fn rank(profile: RiskProfile) -> u8 {
    match profile {
        RiskProfile::Low => 0,
        RiskProfile::Standard | RiskProfile::Medium => 1,
        RiskProfile::High => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::samples::artifact;

    #[test]
    fn a_run_is_named_after_release_and_attempt_as_ulids_look() {
        let name = run_name("6b1f0a52-8c1e-4a53-9d0e-0c8f7c3f9a11", 1);
        assert_eq!(name, run_name("6b1f0a52-8c1e-4a53-9d0e-0c8f7c3f9a11", 1));
        let names: HashSet<String> = ["u", "v"].iter().flat_map(|uid| (1..=3).map(move |attempt| run_name(uid, attempt))).collect();
        assert_eq!(names.len(), 6);
        for name in names {
            let letters = name.strip_prefix("ev-").unwrap();
            assert_eq!(letters.len(), 26, "{name}");
            assert!(letters.bytes().all(|letter| CROCKFORD.contains(&letter)), "{name}");
            assert!(letters.as_bytes()[0] <= b'7', "a ULID has 128 bits: {name}");
        }
    }

    #[test]
    fn the_higher_gate_is_in_force() {
        for (active, next, expected) in [
            (None, "", None),
            (None, "governance: {minQualityScore: 75}", Some(75)),
            (Some(""), "", None),
            (Some(""), "governance: {minQualityScore: 75}", Some(75)),
            (Some("governance: {minQualityScore: 90}"), "governance: {minQualityScore: 75}", Some(90)),
            (Some("governance: {minQualityScore: 75}"), "", Some(75)),
        ] {
            assert_eq!(score(active.map(artifact).as_ref(), &artifact(next)), expected, "{active:?} {next}");
        }
    }

    #[test]
    fn what_a_gated_release_asks_for_is_not_lowered_by_the_next() {
        let held = "judgeModel: 'openai:/a', governance: {minQualityScore: 80, riskProfile: high, evalDataset: hard}";
        let of = |active: Option<&str>, pending: &str| {
            let spec = run_spec("helper-v2", active.map(artifact).as_ref(), &artifact(pending));
            (spec.dataset, spec.risk_profile, spec.min_quality_score, spec.judge_model)
        };
        let strict = (Some("hard".to_owned()), Some(RiskProfile::High), Some(80), Some("openai:/a".to_owned()));
        assert_eq!(of(Some(held), held), strict);
        assert_eq!(of(Some(held), ""), strict);
        assert_eq!(of(Some(held), "judgeModel: 'stub:/b', governance: {minQualityScore: 1, riskProfile: low, evalDataset: easy}"), strict);
        let (dataset, profile, score, judge) = of(
            Some("governance: {riskProfile: high, evalDataset: hard}"),
            "judgeModel: 'stub:/b', governance: {minQualityScore: 60, riskProfile: low, evalDataset: easy}",
        );
        assert_eq!(
            (dataset.as_deref(), profile, score, judge.as_deref()),
            (Some("easy"), Some(RiskProfile::Low), Some(60), Some("stub:/b"))
        );
        let (dataset, profile, score, _) =
            of(Some("governance: {minQualityScore: 50}"), "governance: {minQualityScore: 60, riskProfile: high, evalDataset: d}");
        assert_eq!((dataset.as_deref(), profile, score), (Some("d"), Some(RiskProfile::High), Some(60)), "asking for more is heeded");
    }

    #[test]
    fn asking_for_less_than_before_is_lowering() {
        let gated = "judgeModel: 'openai:/a', governance: {minQualityScore: 75, riskProfile: high, evalDataset: d}";
        let score = Some("governance.minQualityScore");
        for (before, after, expected) in [
            (gated, gated, None),
            (gated, "", score),
            (gated, "judgeModel: 'openai:/a', governance: {minQualityScore: 74, riskProfile: high, evalDataset: d}", score),
            (gated, "judgeModel: 'openai:/a', governance: {minQualityScore: 90, evalDataset: d}", Some("governance.riskProfile")),
            (gated, "judgeModel: 'openai:/a', governance: {minQualityScore: 75, riskProfile: high}", Some("governance.evalDataset")),
            (gated, "judgeModel: 'openai:/b', governance: {minQualityScore: 75, riskProfile: high, evalDataset: d}", Some("judgeModel")),
            ("governance: {minQualityScore: 75, riskProfile: medium}", "governance: {minQualityScore: 75}", None),
            ("governance: {minQualityScore: 75}", "governance: {minQualityScore: 90, evalDataset: d}", Some("governance.evalDataset")),
            ("governance: {minQualityScore: 75}", "judgeModel: 'openai:/a', governance: {minQualityScore: 75}", Some("judgeModel")),
            ("governance: {minQualityScore: 75}", "governance: {minQualityScore: 90, riskProfile: high}", None),
            ("", gated, None),
            ("governance: {riskProfile: high, evalDataset: d}", "", None),
            ("governance: {evalDataset: d}", gated, None),
        ] {
            let (before, after) = (crate::samples::agent(before).spec, crate::samples::agent(after).spec);
            let of = |spec: &slipway_api::AgentSpec| (spec.governance.clone(), spec.judge_model.clone());
            let ((before, judge_before), (after, judge_after)) = (of(&before), of(&after));
            let found = lowers((before.as_ref(), judge_before.as_deref()), (after.as_ref(), judge_after.as_deref()));
            assert_eq!(found, expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_run_that_says_something_else_is_another_one() {
        let wanted = run_spec("r", None, &artifact("governance: {minQualityScore: 60}"));
        assert!(is_run_spec(&wanted, &wanted));
        assert!(is_run_spec(&EvaluationRunSpec { cancel: true, ttl_seconds_after_finished: Some(1), ..wanted.clone() }, &wanted));
        assert!(!is_run_spec(&EvaluationRunSpec { min_quality_score: Some(1), ..wanted.clone() }, &wanted));
        assert!(!is_run_spec(&EvaluationRunSpec { guidelines: vec!["be".to_owned()], ..wanted.clone() }, &wanted));
        assert!(!is_run_spec(&EvaluationRunSpec { track: EvaluatedTrack::Stable, ..wanted.clone() }, &wanted));
    }

    #[test]
    fn a_canarys_run_satisfies_a_gate_of_the_same_content_that_asks_for_no_more() {
        let active = artifact("governance: {minQualityScore: 70, evalDataset: hard}, judgeModel: 'openai:/a'");
        let canary = artifact("systemPrompt: new, governance: {minQualityScore: 60, evalDataset: easy}");
        let run = canary_run_spec(Some(&active), &canary, Some(80));
        assert_eq!((run.track, run.release.as_deref(), run.min_quality_score), (EvaluatedTrack::Canary, None, Some(80)));
        assert_eq!((run.dataset.as_deref(), run.judge_model.as_deref()), (Some("hard"), Some("openai:/a")), "those of what serves");
        assert_eq!(run.content.as_ref().map(String::len), Some(64));
        let other = artifact("systemPrompt: other, governance: {minQualityScore: 60, evalDataset: easy}");
        for (what, found, pending, satisfied) in [
            ("asks for more", run.clone(), &canary, true),
            ("asks for as much", canary_run_spec(Some(&active), &canary, None), &canary, true),
            ("asks for less", EvaluationRunSpec { min_quality_score: Some(69), ..run.clone() }, &canary, false),
            ("asks for nothing", EvaluationRunSpec { min_quality_score: None, ..run.clone() }, &canary, false),
            ("of another content", run.clone(), &other, false),
            ("of no content", EvaluationRunSpec { content: None, ..run.clone() }, &canary, false),
            ("with another dataset", EvaluationRunSpec { dataset: Some("easy".to_owned()), ..run.clone() }, &canary, false),
            ("with another judge", EvaluationRunSpec { judge_model: None, ..run.clone() }, &canary, false),
            ("of another agent", EvaluationRunSpec { agent: "other".to_owned(), ..run.clone() }, &canary, false),
            ("of another track", EvaluationRunSpec { track: EvaluatedTrack::Stable, ..run.clone() }, &canary, false),
            ("cancelled", EvaluationRunSpec { cancel: true, ..run.clone() }, &canary, true),
        ] {
            assert_eq!(satisfies(&found, Some(&active), pending), satisfied, "{what}");
        }
    }

    #[test]
    fn a_canarys_content_is_what_it_says_and_names_without_the_image() {
        let one = artifact("tools: [a]");
        let with = |change: &dyn Fn(&mut Resolved)| {
            let mut other = one.clone();
            change(&mut other.resolved);
            content_key(&other)
        };
        assert_eq!(content_key(&one), with(&|resolved| resolved.image = Some("sha256:00".to_owned())));
        assert_ne!(content_key(&one), with(&|resolved| drop(resolved.tools.insert("a".to_owned(), "00".to_owned()))));
        assert_ne!(content_key(&one), content_key(&artifact("tools: [b]")));
        let names: HashSet<String> = ["u", "v"].iter().map(|uid| canary_run_name(uid, &content_key(&one), 1)).collect();
        assert_eq!(names.len(), 2);
        assert!(!names.contains(&webhook_run_name("u", &content_key(&one), 1)));
    }
}
