//! Calls of tools: those that were made, beside those that a case expects in `metadata.expected_tool_calls`.

use std::collections::HashSet;

use serde_json::{Map, Value};
use slipway_api::evaluation_run::Scorer;

use crate::matching::same_json;
use crate::summary::ratio;
use crate::turn::{CaseTurn, ToolCall};
use crate::wire::{RunCase, Score};

/// A call that a case expects; without arguments, any will do.
struct ExpectedCall<'a> {
    name: &'a str,
    arguments: Option<&'a Value>,
}

/// Why calls say nothing in this case, if they do not.
pub(crate) fn hindrance(scorer: Scorer, case: &RunCase, turn: &CaseTurn) -> Option<&'static str> {
    let Some(calls) = &turn.tool_calls else { return Some("the agent has no tools") };
    if turn.unanswered_tool.is_some() {
        return Some("a tool that changes things was called, and the case's metadata.tool_results has no result for it");
    }
    match scorer {
        Scorer::ToolCallCorrectness if calls.is_empty() && matches!(expected(case), Ok(None)) => {
            Some("no tool was called, and the case expects no particular call")
        }
        Scorer::ToolCallEfficiency if calls.is_empty() => Some("no tool was called"),
        _ => None,
    }
}

/// The score, where the case says what to call, or a call was repeated for nothing.
pub(crate) fn score(scorer: Scorer, case: &RunCase, turn: &CaseTurn) -> Option<Score> {
    let calls = turn.tool_calls.as_deref()?;
    let expected = match expected(case) {
        Ok(expected) => expected,
        Err(fault) => return Some(Score::error(scorer, fault)),
    };
    match scorer {
        Scorer::ToolCallCorrectness => expected.map(|expected| correctness(scorer, &expected, calls)),
        Scorer::ToolCallEfficiency => efficiency(scorer, expected.as_deref(), calls),
        _ => None,
    }
}

fn correctness(scorer: Scorer, expected: &[ExpectedCall<'_>], calls: &[ToolCall]) -> Score {
    let most = expected.len().max(calls.len());
    if most == 0 {
        return Score::scored(scorer, 1.0, "No call was expected, and none was made.");
    }
    let met = met(expected, calls);
    Score::scored(scorer, ratio(met, most), format!("{met} of {} expected calls were made, among {} calls.", expected.len(), calls.len()))
}

fn efficiency(scorer: Scorer, expected: Option<&[ExpectedCall<'_>]>, calls: &[ToolCall]) -> Option<Score> {
    if let Some(expected) = expected.filter(|expected| met(expected, calls) == expected.len()) {
        let reason = format!("{} calls were made where {} are expected.", calls.len(), expected.len());
        return Some(Score::scored(scorer, ratio(expected.len(), calls.len()), reason));
    }
    // A repeated call with another result is a retry, or looks at what changes; a judge may say.
    let distinct: HashSet<(&str, String, &str)> =
        calls.iter().map(|call| (call.name.as_str(), arguments(&call.arguments).to_string(), call.result.as_str())).collect();
    (distinct.len() < calls.len()).then(|| {
        let repeated = calls.len() - distinct.len();
        Score::scored(
            scorer,
            ratio(distinct.len(), calls.len()),
            format!("{repeated} of {} calls repeat another with the same arguments and the same result.", calls.len()),
        )
    })
}

/// How many expected calls were made; each call counts once.
fn met(expected: &[ExpectedCall<'_>], calls: &[ToolCall]) -> usize {
    let mut free: Vec<&ToolCall> = calls.iter().collect();
    // Those with arguments choose first, as a call that any arguments satisfy can take what they leave.
    let (exact, any): (Vec<_>, Vec<_>) = expected.iter().partition(|call| call.arguments.is_some());
    exact.into_iter().chain(any).filter(|expected| take(&mut free, expected)).count()
}

fn take(free: &mut Vec<&ToolCall>, expected: &ExpectedCall<'_>) -> bool {
    let fits = |call: &&ToolCall| {
        call.name.trim() == expected.name
            && expected.arguments.is_none_or(|wanted| same_json(&arguments(wanted), &arguments(&call.arguments)))
    };
    free.iter().position(fits).map(|place| free.swap_remove(place)).is_some()
}

/// Arguments as an object: they may come as JSON in a string, and none are as good as an empty object.
fn arguments(value: &Value) -> Value {
    match value {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        _ => value.clone(),
    }
}

/// What a case expects, if it says.
fn expected(case: &RunCase) -> Result<Option<Vec<ExpectedCall<'_>>>, &'static str> {
    const FAULT: &str = "metadata.expected_tool_calls: must be a list of objects with a name and, if they matter, arguments";
    let listed = case.metadata.as_ref().and_then(|metadata| metadata.get("expected_tool_calls"));
    let listed = match listed {
        None | Some(Value::Null) => return Ok(None),
        Some(listed) => listed.as_array().ok_or(FAULT)?,
    };
    let calls = listed.iter().map(|value| {
        let name = value.as_str().or_else(|| value.get("name")?.as_str()).ok_or(FAULT)?.trim();
        Ok(ExpectedCall { name, arguments: value.get("arguments").filter(|arguments| !arguments.is_null()) })
    });
    calls.collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(expected: Value) -> RunCase {
        RunCase { metadata: Some(Map::from_iter([("expected_tool_calls".to_owned(), expected)])), ..RunCase::default() }
    }

    fn turn(calls: &[(&str, Value, &str)]) -> CaseTurn {
        let call = |(name, arguments, result): &(&str, Value, &str)| ToolCall {
            name: (*name).to_owned(),
            arguments: arguments.clone(),
            result: (*result).to_owned(),
        };
        CaseTurn { tool_calls: Some(calls.iter().map(call).collect()), ..CaseTurn::default() }
    }

    #[test]
    fn expected_calls_are_compared_by_name_and_arguments() {
        let weather = |city: &str| ("weather", json!({"city": city}), "sunny");
        for (expected, calls, value) in [
            (json!([{"name": "weather", "arguments": {"city": "Rome"}}]), vec![weather("Rome")], 1.0),
            (json!([{"name": "weather", "arguments": {"city": "Rome"}}]), vec![weather("Oslo")], 0.0),
            (json!([{"name": "weather"}]), vec![weather("Oslo")], 1.0),
            (json!(["weather"]), vec![weather("Oslo")], 1.0),
            (json!([{"name": "weather"}]), vec![], 0.0),
            (json!([]), vec![], 1.0),
            (json!([]), vec![weather("Oslo")], 0.0),
            (json!([{"name": "weather"}, {"name": "weather", "arguments": {"city": "Rome"}}]), vec![weather("Rome"), weather("Oslo")], 1.0),
            (json!([{"name": "weather"}]), vec![weather("Rome"), weather("Oslo")], 0.5),
            (json!([{"name": "add", "arguments": {"a": 1}}]), vec![("add", json!("{\"a\": 1.0}"), "")], 1.0),
            (json!([{"name": "now", "arguments": {}}]), vec![("now", Value::Null, "")], 1.0),
        ] {
            let score = score(Scorer::ToolCallCorrectness, &case(expected.clone()), &turn(&calls)).unwrap();
            assert_eq!(score.value, Some(value), "{expected} beside {calls:?}");
        }
    }

    #[test]
    fn a_repeated_call_with_the_same_result_is_wasted() {
        let none = RunCase::default();
        let call = ("read", json!({"x": 1}), "one");
        let other = ("read", json!({"x": 1}), "two");
        let of = |case: &RunCase, calls: &[_]| score(Scorer::ToolCallEfficiency, case, &turn(calls)).and_then(|score| score.value);
        assert_eq!(of(&none, &[call.clone(), call.clone()]), Some(0.5));
        assert_eq!(of(&none, &[call.clone(), other.clone()]), None, "a retry is for a judge");
        assert_eq!(of(&none, std::slice::from_ref(&call)), None);
        assert_eq!(of(&case(json!(["read"])), &[call.clone(), other]), Some(0.5));
        assert_eq!(of(&case(json!(["read"])), &[call]), Some(1.0));
    }

    #[test]
    fn expectations_that_cannot_be_read_are_an_error() {
        for strange in [json!("weather"), json!([1]), json!([{"arguments": {}}]), json!({"name": "weather"})] {
            let score = score(Scorer::ToolCallCorrectness, &case(strange.clone()), &turn(&[])).unwrap();
            assert_eq!(score.value, None, "{strange}");
            assert!(score.reason.starts_with("metadata.expected_tool_calls: "), "{}", score.reason);
        }
    }
}
