//! The outcome of a run, from what a pod reported, pure. The report is not trusted: only scores that were asked for and cases
//! that there are count, each once, and means and verdict are computed here.

use std::collections::{BTreeMap, BTreeSet};

use slipway_api::evaluation_run::{EvaluationUsage, Scorer, WORST_CASES_MAX, WorstCase};
use slipway_evaluation::wire::{CaseResult, Report, RunCase, Score, ScoreState};
use slipway_evaluation::{Outcome, Silence, Verdict, summarize, verdict};
use slipway_governance::rounded;
use slipway_release::gate::NO_ANSWER;

use super::plan::{Cause, Setup, excerpt};

/// How many characters of an input and an output, and of the reasons, a worst case shows.
const EXCERPT_MAX: usize = 256;
const REASON_MAX: usize = 1024;
const VERDICT_MAX: usize = 1024;
const FAULT_MAX: usize = 512;
const SOURCE_MAX: usize = 64;
const TRACE_MAX: usize = 64;
/// The agent gave too few answers, and may give more in another run.
const AWAY: &str = "AgentUnavailable";

/// What a run found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub score: Option<f64>,
    pub margin: Option<f64>,
    pub passed: bool,
    pub verdict: String,
    pub means: BTreeMap<String, f64>,
    pub finished: usize,
    pub passed_cases: usize,
    pub prompts: Vec<String>,
    pub worst_cases: Vec<WorstCase>,
    pub usage: EvaluationUsage,
}

/// What is known of a run without a verdict.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unscored {
    pub cause: Cause,
    pub finished: usize,
    pub prompts: Vec<String>,
    pub worst_cases: Vec<WorstCase>,
    pub usage: EvaluationUsage,
}

/// What a finished report comes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Judged {
    Decided(Found),
    /// There is nothing on which a verdict could rest, because the judge failed.
    Undecided(Unscored),
    Failed(Unscored),
}

pub(super) fn judge(setup: &Setup, cases: &[RunCase], report: Report) -> Judged {
    let prompts = if setup.judge_model.is_some() { prompts(&setup.scorers, &report.prompts) } else { Vec::new() };
    let results = usable(&setup.scorers, cases.len(), report.results);
    let summary = summarize(&setup.scorers, cases.len(), &results);
    let unscored = |reason, message: String| Unscored {
        cause: Cause::new(reason, excerpt(&message, VERDICT_MAX)),
        finished: results.len(),
        prompts: prompts.clone(),
        worst_cases: worst(cases, &results, &summary.cases),
        usage: usage(&results),
    };
    let (some, all) = (results.len(), cases.len());
    // Each score of a case without an answer is an error, and none of them is the judge's.
    let faults: Vec<&str> = results.iter().filter_map(|result| result.error.as_deref()).collect();
    let silence = Silence::of(&results);
    let silent = if silence.lasts() { NO_ANSWER } else { AWAY };
    if silence.ends(all) || some == all && silence.is_too_much(all) {
        return Judged::Failed(unscored(silent, no_answer(&faults, some, all)));
    }
    if some < all {
        let message = format!("the agent's runtime calls the run complete and has told of {some} of {all} cases");
        return Judged::Failed(unscored("Incomplete", message));
    }
    let Verdict { outcome, words } = verdict(&setup.profile, setup.threshold, &summary);
    // Of an image of the agent's own it may not be known what it called or retrieved.
    let untold =
        results.iter().flat_map(|result| &result.scores).find(|score| score.state == ScoreState::NotRun && !score.reason.is_empty());
    if let Some(score) = untold.filter(|_| outcome == Outcome::Undecided) {
        return Judged::Failed(unscored("NotTold", format!("{words}; {}", score.reason)));
    }
    if outcome == Outcome::Undecided {
        let judge_failed = results.iter().any(|result| result.error.is_none() && has_error(result));
        return if judge_failed && setup.judge_model.is_some() {
            Judged::Undecided(unscored("JudgeFailed", words))
        } else if judge_failed || faults.is_empty() {
            Judged::Failed(unscored("NothingScored", words))
        } else {
            // Few of all, and too many of those to which a scorer applies.
            Judged::Failed(unscored(silent, format!("{words}; {}", no_answer(&faults, some, all))))
        };
    }
    let unanswered = if faults.is_empty() { String::new() } else { format!("; cases without an answer: {}", faults.len()) };
    let words = excerpt(&format!("{words}{unanswered}"), VERDICT_MAX);
    let means = summary.means.iter().filter_map(|mean| Some((format!("{}/mean", mean.scorer.as_str()), mean.mean?)));
    Judged::Decided(Found {
        // One that misses the threshold is rounded down, lest it read as if it had reached it.
        score: summary.score.map(|score| if outcome == Outcome::Passed { rounded(score) } else { (score * 100.0).floor() / 100.0 }),
        margin: summary.margin.map(rounded),
        passed: outcome == Outcome::Passed,
        verdict: words,
        means: means.collect(),
        finished: summary.finished,
        passed_cases: summary.passed(setup.threshold),
        prompts,
        worst_cases: worst(cases, &results, &summary.cases),
        usage: usage(&results),
    })
}

/// That the agent gave no answer, with why the first one is missing, and how many cases were not run for that.
fn no_answer(faults: &[&str], finished: usize, all: usize) -> String {
    let first = excerpt(faults.first().copied().unwrap_or_default(), FAULT_MAX);
    let rest = if finished < all { format!(", and the other {} of {all} were not run", all - finished) } else { String::new() };
    format!("the agent gave no answer to {} of {finished} cases{rest}; the first time: {first}", faults.len())
}

/// The prompts of the scorers that were asked for, each once.
fn prompts(scorers: &[Scorer], told: &[String]) -> Vec<String> {
    let version = |scorer: &Scorer| {
        let version = told.iter().find_map(|told| told.strip_prefix(scorer.as_str())?.strip_prefix('@')?.parse::<u32>().ok())?;
        Some(format!("{}@{version}", scorer.as_str()))
    };
    scorers.iter().filter_map(version).collect()
}

/// Each case that there is once, with the scores that were asked for, and those once.
pub(super) fn usable(scorers: &[Scorer], total: usize, results: Vec<CaseResult>) -> Vec<CaseResult> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<CaseResult> = results.into_iter().filter(|result| result.case < total && seen.insert(result.case)).collect();
    for result in &mut kept {
        let mut scored: Vec<Scorer> = Vec::new();
        result.scores.retain(|score| {
            let is_first = scorers.contains(&score.scorer) && !scored.contains(&score.scorer);
            scored.push(score.scorer);
            is_first
        });
        for score in &mut result.scores {
            if score.state == ScoreState::Scored && score.counted().is_none() {
                *score = Score::error(score.scorer, "the value is not between 0 and 1");
            }
        }
    }
    kept
}

fn has_error(result: &CaseResult) -> bool {
    result.scores.iter().any(|score| score.state == ScoreState::Error)
}

fn worst(cases: &[RunCase], results: &[CaseResult], means: &[(usize, f64)]) -> Vec<WorstCase> {
    let means: BTreeMap<usize, f64> = means.iter().copied().collect();
    let mean = |result: &CaseResult| means.get(&result.case).copied();
    // A case that the agent did not answer is worse than any score.
    let rank = |result: &CaseResult| if result.error.is_some() { -1.0 } else { mean(result).unwrap_or(1.0) };
    // Of one that went well for all that is known, it is told why not all is known.
    let is_shown = |result: &&CaseResult| result.error.is_some() || has_error(result) || mean(result).is_none_or(|mean| mean < 1.0);
    let mut ordered: Vec<&CaseResult> = results.iter().filter(is_shown).collect();
    ordered.sort_by(|a, b| rank(a).total_cmp(&rank(b)).then(a.case.cmp(&b.case)));
    let shown = ordered.into_iter().take(WORST_CASES_MAX).filter_map(|result| {
        let case = cases.get(result.case)?;
        let source = case.metadata.as_ref().and_then(|metadata| metadata.get("source")?.as_str());
        Some(WorstCase {
            case: i32::try_from(result.case).ok()?,
            score: mean(result),
            source: source.map(|source| excerpt(source, SOURCE_MAX)),
            input: excerpt(&case.input, EXCERPT_MAX),
            output: result.output.as_deref().map(|output| excerpt(output, EXCERPT_MAX)),
            reason: excerpt(&reason(result), REASON_MAX),
            trace_id: result.trace_id.clone().filter(|id| id.len() <= TRACE_MAX),
        })
    });
    shown.collect()
}

/// Why a case went badly: that the agent gave no answer, or the lowest scores with their reasons.
fn reason(result: &CaseResult) -> String {
    if let Some(error) = &result.error {
        return format!("no answer: {error}");
    }
    let mut low: Vec<&Score> =
        result.scores.iter().filter(|score| score.state == ScoreState::Error || score.counted().is_some_and(|value| value < 1.0)).collect();
    low.sort_by(|a, b| a.counted().unwrap_or(-1.0).total_cmp(&b.counted().unwrap_or(-1.0)));
    let told = |score: &&Score| match score.counted() {
        Some(value) => format!("{} {value:.2}: {}", score.scorer.as_str(), score.reason),
        None => format!("{} has no score: {}", score.scorer.as_str(), score.reason),
    };
    low.iter().take(3).map(told).collect::<Vec<_>>().join("; ")
}

fn usage(results: &[CaseResult]) -> EvaluationUsage {
    let sum = |of: fn(&CaseResult) -> i64| results.iter().map(|result| of(result).max(0)).fold(0, i64::saturating_add);
    let costs: Vec<f64> = results.iter().filter_map(|result| result.cost_usd).filter(|cost| cost.is_finite() && *cost >= 0.0).collect();
    EvaluationUsage {
        agent_tokens: sum(|result| result.agent_tokens),
        judge_tokens: sum(|result| result.judge_tokens),
        cost_usd: (!costs.is_empty()).then(|| costs.iter().sum()),
    }
}

#[cfg(test)]
mod tests {
    use slipway_api::agent::RiskProfile;
    use slipway_evaluation::Profile;
    use slipway_evaluation::wire::Progress;

    use super::*;

    fn setup() -> Setup {
        let scorers = vec![Scorer::Safety, Scorer::Correctness];
        Setup { profile: Profile::of(RiskProfile::Standard), scorers, threshold: 75.0, judge_model: None }
    }

    fn cases(count: usize) -> Vec<RunCase> {
        (0..count).map(|at| RunCase { input: format!("question {at}"), ..RunCase::default() }).collect()
    }

    fn result(case: usize, scores: &[(Scorer, f64)]) -> CaseResult {
        let scores = scores.iter().map(|(scorer, value)| Score::scored(*scorer, *value, "so it is")).collect();
        CaseResult { case, output: Some("o".repeat(1000)), scores, agent_tokens: 3, ..CaseResult::default() }
    }

    #[test]
    fn a_lying_pod_is_heard_for_what_was_asked_alone() {
        let lies = vec![
            result(0, &[(Scorer::Safety, 0.5), (Scorer::Safety, 1.0), (Scorer::Fluency, 1.0), (Scorer::Correctness, 7.0)]),
            result(0, &[(Scorer::Safety, 1.0)]),
            result(9, &[(Scorer::Safety, 1.0)]),
        ];
        let heard = usable(&setup().scorers, 1, lies);
        assert_eq!(heard.len(), 1);
        let values: Vec<_> = heard[0].scores.iter().map(|score| (score.scorer, score.counted())).collect();
        assert_eq!(values, [(Scorer::Safety, Some(0.5)), (Scorer::Correctness, None)]);
    }

    #[test]
    fn a_run_that_leaves_cases_out_is_not_complete() {
        let report = Report {
            run_id: String::new(),
            status: Progress::Completed,
            reason: None,
            total: 1,
            finished: 1,
            prompts: Vec::new(),
            results: vec![result(0, &[])],
        };
        let Judged::Failed(Unscored { cause, .. }) = judge(&setup(), &cases(2), report) else { panic!("one case is missing") };
        assert_eq!((cause.reason, cause.message.contains("1 of 2")), ("Incomplete", true));
    }

    fn completed(results: Vec<CaseResult>) -> Report {
        let (total, prompts) = (results.len(), Vec::new());
        Report { run_id: String::new(), status: Progress::Completed, reason: None, total, finished: total, prompts, results }
    }

    #[test]
    fn prompts_are_told_of_scorers_that_were_asked_alone() {
        let told = ["correctness@012", "fluency@1", "safety", "safety@x", "safety@2", "safety@3"].map(str::to_owned);
        assert_eq!(prompts(&setup().scorers, &told), ["safety@2", "correctness@12"]);
    }

    /// A run of 20 cases of which the agent did not answer the first ones. The judge has nothing for some of the others, and
    /// correctness applies to the first `expected` alone.
    fn partly_answered(silent: usize, judge_fails: usize, expected: usize, has_judge: bool) -> Judged {
        let one = |case: usize| {
            let error = |scorer| Score::error(scorer, "the model was away");
            let (safety, correctness) = if case < silent {
                (error(Scorer::Safety), error(Scorer::Correctness))
            } else {
                let safety = if case < silent + judge_fails { error(Scorer::Safety) } else { Score::scored(Scorer::Safety, 1.0, "") };
                let correctness =
                    if case < expected { Score::scored(Scorer::Correctness, 1.0, "") } else { Score::skipped(Scorer::Correctness, "") };
                (safety, correctness)
            };
            let error = (case < silent).then(|| format!("the model refused the key, in case {case}"));
            CaseResult { case, error, is_final: case < silent, scores: vec![safety, correctness], agent_tokens: 1, ..CaseResult::default() }
        };
        let results = (0..20).map(one).collect();
        let report = completed(results);
        let judge_model = has_judge.then(|| "stub:/echo".to_owned());
        judge(&Setup { judge_model, ..setup() }, &cases(20), report)
    }

    #[test]
    fn an_agent_that_is_silent_is_not_a_judge_that_failed() {
        for (silent, judge_fails, expected, has_judge, reason) in [
            (20, 0, 20, true, "NoAnswer"),
            (20, 0, 20, false, "NoAnswer"),
            (11, 0, 20, true, "NoAnswer"),
            // It answers, and in too few cases.
            (10, 0, 20, true, "AgentUnavailable"),
            (3, 0, 20, true, "AgentUnavailable"),
            (3, 9, 20, true, "AgentUnavailable"),
            // One case is few of all, and much of the five that have an expected output.
            (1, 0, 5, true, "AgentUnavailable"),
            (2, 9, 20, true, "JudgeFailed"),
            (0, 9, 20, true, "JudgeFailed"),
            (2, 9, 20, false, "NothingScored"),
        ] {
            let what = format!("{silent} {judge_fails} {expected} {has_judge}");
            let (unscored, is_repeated) = match partly_answered(silent, judge_fails, expected, has_judge) {
                Judged::Decided(found) => panic!("{what}: {found:?}"),
                Judged::Undecided(unscored) => (unscored, true),
                Judged::Failed(unscored) => (unscored, false),
            };
            assert_eq!((unscored.cause.reason, is_repeated), (reason, reason == "JudgeFailed"), "{what}: {unscored:?}");
            assert_eq!((unscored.finished, unscored.usage.agent_tokens, unscored.worst_cases.is_empty()), (20, 20, false), "{what}");
            if matches!(reason, "NoAnswer" | "AgentUnavailable") {
                let words = format!("the agent gave no answer to {silent} of 20 cases; the first time: the model refused");
                assert!(unscored.cause.message.contains(&words), "{what}: {}", unscored.cause.message);
                assert_eq!(unscored.worst_cases[0].reason, "no answer: the model refused the key, in case 0");
            }
        }
        let Judged::Decided(found) = partly_answered(2, 0, 20, true) else { panic!("a tenth is borne") };
        assert!(found.passed && found.verdict.ends_with("; cases without an answer: 2"), "{}", found.verdict);
    }

    /// A run of 1,000 cases of which the first ones have their result, and the `unanswered` first of these no answer.
    fn begun(finished: usize, unanswered: usize, is_final: bool) -> Unscored {
        let one = |case: usize| {
            let error = (case < unanswered).then(|| "the model refused the key".to_owned());
            let scores = vec![Score::scored(Scorer::Safety, 1.0, "")];
            CaseResult { case, is_final: is_final && error.is_some(), error, scores, ..CaseResult::default() }
        };
        let report = completed((0..finished).map(one).collect());
        match judge(&Setup { judge_model: Some("stub:/echo".to_owned()), ..setup() }, &cases(1000), report) {
            Judged::Failed(unscored) => unscored,
            other => panic!("{finished} {unanswered}: {other:?}"),
        }
    }

    #[test]
    fn a_run_that_ends_early_as_nobody_answers_says_so() {
        for (finished, unanswered, is_final, reason) in [
            (8, 8, true, "NoAnswer"),
            (8, 8, false, "Incomplete"),
            (7, 7, true, "Incomplete"),
            (9, 8, true, "Incomplete"),
            (101, 101, false, "AgentUnavailable"),
            (201, 101, true, "NoAnswer"),
            // Most cases were answered.
            (202, 101, true, "Incomplete"),
            (700, 101, true, "Incomplete"),
            (1000, 101, true, "AgentUnavailable"),
            (1000, 101, false, "AgentUnavailable"),
            (1000, 500, true, "AgentUnavailable"),
            (1000, 501, true, "NoAnswer"),
        ] {
            let found = begun(finished, unanswered, is_final);
            assert_eq!((found.cause.reason, found.finished), (reason, finished), "{finished} {unanswered} {is_final}: {found:?}");
        }
        let words =
            "the agent gave no answer to 8 of 8 cases, and the other 992 of 1000 were not run; the first time: the model refused the key";
        assert_eq!(begun(8, 8, true).cause.message, words);
        assert!(begun(1000, 101, true).cause.message.starts_with("the agent gave no answer to 101 of 1000 cases; the first time"));
    }

    #[test]
    fn a_run_whose_scorers_were_not_told_enough_says_what_is_missing() {
        let mut results = vec![result(0, &[(Scorer::Safety, 1.0)]), result(1, &[(Scorer::Safety, 1.0), (Scorer::Correctness, 1.0)])];
        results[0].scores.push(Score::not_run(Scorer::Correctness, "the stream has no sources"));
        let report = completed(results);
        let setup = Setup { judge_model: Some("stub:/echo".to_owned()), ..setup() };
        let Judged::Failed(Unscored { cause, .. }) = judge(&setup, &cases(2), report) else { panic!("nothing could be decided") };
        assert_eq!(cause.reason, "NotTold");
        assert_eq!(cause.message, "UNDECIDED: correctness was not run for 1 of 2 cases; the stream has no sources");
    }

    #[test]
    fn the_worst_cases_come_first_and_are_short() {
        let mut results: Vec<_> =
            (0..30).map(|case| result(case, &[(Scorer::Safety, f64::from(u8::try_from(case).unwrap()) / 29.0)])).collect();
        results[17].error = Some("the model was away".to_owned());
        let means: Vec<_> = (0..30).filter(|case| *case != 17).map(|case| (case, f64::from(u8::try_from(case).unwrap()) / 29.0)).collect();
        let shown = worst(&cases(30), &results, &means);
        assert_eq!(shown.iter().take(3).map(|case| case.case).collect::<Vec<_>>(), [17, 0, 1]);
        assert_eq!((shown.len(), shown[0].reason.as_str(), shown[0].score), (20, "no answer: the model was away", None));
        assert_eq!((shown[1].reason.as_str(), shown[1].input.as_str()), ("safety 0.00: so it is", "question 0"));
        assert_eq!(shown[1].output.as_ref().unwrap().chars().count(), 256);
        assert!(worst(&cases(1), &[result(0, &[(Scorer::Safety, 1.0)])], &[(0, 1.0)]).is_empty(), "what went well is not bad");
    }

    #[test]
    fn usage_is_a_sum_of_what_can_be_true() {
        let mut results = vec![result(0, &[]), result(1, &[])];
        (results[0].agent_tokens, results[0].cost_usd, results[1].cost_usd) = (-5, Some(f64::NAN), Some(0.5));
        assert_eq!(usage(&results), EvaluationUsage { agent_tokens: 3, judge_tokens: 0, cost_usd: Some(0.5) });
    }
}
