//! Our scorers beside MLflow's, on the same cases with the same judge. The judge decides by the case and the scorer: what it
//! says of a case stands in the case's texts, and the model that is asked has the scorer's name. Where the two part is listed
//! with the reason (`differences`): one that is not listed fails the test, and so does one that is listed and does not show.
//! Both are asked in each run.

mod cases;
mod differences;
mod mlflow;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_api::evaluation_run::Scorer;
use slipway_evaluation::summarize;
use slipway_evaluation::wire::{CaseResult, Report, Score, ScoreState};
use slipway_peers::{Server, mock_llm};

use crate::evaluation::{Platform, request};
use crate::library::{Document, Library};
use cases::{PASSAGE, ParityCase, WORDS};
use differences::{Difference, difference};

const SCORERS: [Scorer; 14] = [
    Scorer::Safety,
    Scorer::RelevanceToQuery,
    Scorer::Correctness,
    Scorer::Completeness,
    Scorer::Fluency,
    Scorer::Equivalence,
    Scorer::Summarization,
    Scorer::Guidelines,
    Scorer::ExpectationsGuidelines,
    Scorer::RetrievalRelevance,
    Scorer::RetrievalGroundedness,
    Scorer::RetrievalSufficiency,
    Scorer::ToolCallCorrectness,
    Scorer::ToolCallEfficiency,
];
/// Of the dataset, and so of all cases.
const GUIDELINES: [&str; 2] = ["Answers are brief.", "No prices are named."];
const TOOLS: &str = r#"[
    {"name": "calculator", "type": "builtin", "category": "general", "timeout": 5},
    {"name": "write", "type": "cli", "category": "general", "binary": "/usr/bin/touch", "allowedCommands": ["/nowhere"], "timeout": 5}
]"#;

/// What a scorer says of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// It does not apply.
    Skipped,
    /// It applies, and there is no value: the judge said nothing of use, or the case cannot be read.
    NoValue,
    Value(f64),
}

#[test]
fn our_scorers_and_mlflows_agree_but_for_what_is_listed() {
    let (judge, mut cases) = (judge(), cases::all());
    assert!(cases.len() >= 270);
    let ours = ours(&judge, &mut cases);
    let theirs = mlflow::ask(&judge, &cases);

    let mut seen: BTreeMap<Difference, usize> = BTreeMap::new();
    let (mut values, mut without, mut skipped, mut faults) = (0, 0, 0, Vec::new());
    for (scorer, scores) in SCORERS.into_iter().zip(&ours) {
        for (place, (case, score)) in cases.iter().zip(scores).enumerate() {
            let found = (our_outcome(score), theirs.outcome(scorer, place));
            let tell = |why: String| {
                let (name, said) = (scorer.as_str(), theirs.said(scorer, place));
                let input: String = case.input.chars().take(300).collect();
                format!(
                    "{name} of case {place}: ours {:?}, MLflow's {:?}, {why}\n  ours: {}\n  MLflow's: {said}\n  input: {input}",
                    found.0,
                    found.1,
                    json!(score)
                )
            };
            if let Some((difference, our, their)) = difference(case, scorer) {
                *seen.entry(difference).or_default() += 1;
                if found != (our, their) {
                    faults.push(tell(format!("but {difference:?} has it {our:?} and {their:?}")));
                }
                continue;
            }
            if found.0 != found.1 {
                faults.push(tell("which is not listed".to_owned()));
            }
            match found.0 {
                Outcome::Value(_) => values += 1,
                Outcome::NoValue => without += 1,
                Outcome::Skipped => skipped += 1,
            }
        }
    }
    assert!(faults.is_empty(), "{} differences from MLflow {}:\n{}", faults.len(), theirs.version(), faults.join("\n"));
    for (scorer, scores) in SCORERS.into_iter().zip(&ours) {
        // Each has one: no scorer agrees by saying nothing.
        match (mean(scorer, &cases, scores), theirs.mean(scorer)) {
            (Some(mean), Some(its)) => assert!((mean - its).abs() < 1e-9, "{}: {mean} beside {its}", scorer.as_str()),
            means => panic!("{}: {means:?}", scorer.as_str()),
        }
    }
    eprintln!(
        "both, with MLflow {}: {values} values, {without} times none, {skipped} times not applied; listed: {seen:?}",
        theirs.version()
    );
    // No agreement of two that say nothing.
    assert!(values >= 1000 && without >= 200 && skipped >= 500, "{values} {without} {skipped}");
    for difference in Difference::ALL {
        assert!(seen.contains_key(&difference), "{difference:?} is listed and did not show: {}", difference.reason());
    }
}

/// A judge that answers by the word that stands for the model's scorer in what it is shown, and `no` where none does. Both ask the
/// same server, each at an address where answers have the form that it reads.
fn judge() -> Server {
    let mut rules = Vec::new();
    for (path, verdict, reason) in [("^/v1/", "verdict", "reason"), ("^/mlflow/v1/", "result", "rationale")] {
        let mut rule = |condition: String, says: String| {
            let message = json!({"role": "assistant", "content": says});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
            let whole = json!({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage});
            rules.push(json!({"path": path, "match": condition, "response": {"status": 200, "content": whole.to_string()}}));
        };
        let says = |word: &str| json!({verdict: word, reason: "So it is."}).to_string();
        rule("@".to_owned(), says("no"));
        for word in WORDS {
            let answer = match word {
                "half" => format!("{{\"{verdict}\": \"ye"),
                "nothing" => String::new(),
                word => says(word),
            };
            rule(format!("contains(to_string(body.messages), join('', ['(', body.model, ' {word})']))"), answer);
        }
    }
    // JSON is YAML, too.
    mock_llm(&json!({"streaming": {"chunkSize": 1000, "chunkIntervalMs": 1}, "rules": rules}).to_string())
}

/// The scores of each scorer, by case. Notes what agents answered that say what they were told.
fn ours(judge: &Server, cases: &mut [ParityCase]) -> Vec<Vec<Score>> {
    let base = format!("{}/v1", judge.url());
    let variables = [("OPENAI_BASE_URL", base.as_str()), ("OPENAI_API_KEY", "none")];
    let scripted = [("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_STRATEGY", "agent-react"), ("RUNTIME_TOOLS", TOOLS)];
    let library = Library::start();
    library.add("red", "notes", &[Document { filename: "notes.txt", page: None, section: "", text: PASSAGE }]);
    let bases = library.bases("red", &["notes"]);
    let searching = [&scripted[..], &library.variables(), &[("RUNTIME_KNOWLEDGE_BASES", bases.as_str())]].concat();
    let first = |is_of_it: fn(&ParityCase) -> bool| cases.iter().position(is_of_it).unwrap();
    let (echoes, searches) = (first(|case| case.context.is_some()), first(|case| !case.passages.is_empty()));
    let agents = [(&scripted[..], 0..echoes), (&[], echoes..searches), (&searching[..], searches..cases.len())];
    let mut scores = vec![Vec::new(); SCORERS.len()];
    for (own, range) in agents {
        let platform = Platform::agent(&[&variables, own].concat());
        let cases = &mut cases[range];
        let sent: Value = cases.iter().map(ParityCase::ours).collect();
        for ((number, scorer), scores) in (0..).zip(SCORERS).zip(&mut scores) {
            let mut body = request(number, &json!([scorer]), &sent);
            body["dataset"]["guidelines"] = json!(GUIDELINES);
            body["judge_model"] = json!(format!("openai:/{}", scorer.as_str()));
            let report: Report = serde_json::from_value(platform.run(&body)).unwrap();
            assert_eq!(report.results.len(), cases.len(), "{report:?}");
            for (case, result) in cases.iter_mut().zip(&report.results) {
                let said = result.output.as_deref().unwrap_or_else(|| panic!("no answer to {}: {result:?}", case.input));
                let answer = case.answer.get_or_insert_with(|| said.to_owned());
                // A long one is cut.
                let same = *answer == said || said.strip_suffix('…').is_some_and(|start| answer.starts_with(start));
                assert!(same, "{answer:?} beside {said:?}");
            }
            scores.extend(report.results.into_iter().map(|mut result| result.scores.remove(0)));
        }
    }
    scores
}

fn our_outcome(score: &Score) -> Outcome {
    match (score.state, score.value) {
        (ScoreState::Scored, Some(value)) => Outcome::Value(value),
        (ScoreState::Skipped, None) => Outcome::Skipped,
        (ScoreState::Error, None) => Outcome::NoValue,
        _ => panic!("{score:?}"),
    }
}

/// Our mean of a scorer over what is not listed as a difference.
fn mean(scorer: Scorer, cases: &[ParityCase], found: &[Score]) -> Option<f64> {
    let results: Vec<CaseResult> = (0..cases.len())
        .filter(|case| difference(&cases[*case], scorer).is_none())
        .map(|case| CaseResult { case, scores: vec![found[case].clone()], ..CaseResult::default() })
        .collect();
    summarize(&[scorer], cases.len(), &results).means[0].mean
}
