//! The body that asks for an evaluation: some fields of the resource, and two of REST's own.

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};
use slipway_api::EvaluationRunSpec;
use slipway_http::Error;

use crate::fields::{self, EVALUATION_RUN};

/// The fields that callers set; all others are Slipway's.
const FIELDS: [&str; 6] = ["riskProfile", "minQualityScore", "judgeModel", "scorers", "guidelines", "excludeFeedback"];
/// The digits of a version that fits into the resource's field.
const VERSION_MAX: i64 = 999_999_999_999_999_999;

/// The schema of the body, in the spelling of the resource.
static BODY: LazyLock<Value> = LazyLock::new(|| {
    let properties = &EVALUATION_RUN["properties"];
    let mut body: Map<String, Value> = FIELDS.iter().map(|name| ((*name).to_owned(), properties[*name].clone())).collect();
    let dataset = "The dataset, by name or id (ds_...). Default is the agent's governance.eval_dataset, and without one the oldest dataset that is for this agent alone; an agent that has none gets one of five basic questions.";
    body.insert("datasetName".to_owned(), json!({"type": "string", "minLength": 1, "maxLength": 66, "description": dataset}));
    let version = "The release to evaluate, by its number. Only the one that runs can be; a release that waits for its evaluation has a run of its own.";
    let bounds = json!({"minimum": 1, "maximum": VERSION_MAX, "pattern": "^v?[1-9][0-9]{0,17}$", "description": version});
    body.insert("version".to_owned(), bounds);
    body["version"]["x-kubernetes-int-or-string"] = json!(true);
    json!({"type": "object", "properties": body})
});

/// What to evaluate, and by what measure. Nothing is required.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct NewRun(Map<String, Value>);

impl JsonSchema for NewRun {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewEvaluation".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(fields::form(&BODY)).unwrap_or_default()
    }
}

/// A body that was read. `spec` lacks the agent and the dataset.
#[derive(Debug)]
pub(super) struct WantedRun {
    pub dataset: Option<String>,
    pub version: Option<u64>,
    pub spec: EvaluationRunSpec,
}

impl NewRun {
    pub(super) fn read(self) -> Result<WantedRun, Error> {
        let fields = fields::without_nulls(fields::to_resource(&BODY, Value::Object(self.0))?);
        let Value::Object(mut fields) = fields else { return Err(Error::bad_request("the body must be an object")) };
        let dataset = match fields.remove("datasetName") {
            Some(Value::String(name)) if !name.is_empty() => Some(name),
            Some(_) => return Err(Error::bad_request("dataset_name: must be the name or id of a dataset")),
            None => None,
        };
        let version = fields.remove("version").map(|given| version(&given)).transpose()?;
        // Its own schema requires an agent, which is known by the path.
        fields.insert("agent".to_owned(), json!(""));
        let spec =
            serde_json::from_value(Value::Object(fields)).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))?;
        Ok(WantedRun { dataset, version, spec })
    }
}

/// `3`, `"3"` and `"v3"` are one version.
fn version(given: &Value) -> Result<u64, Error> {
    let number = match given {
        Value::String(text) => {
            let digits = text.strip_prefix('v').unwrap_or(text);
            Some(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit())).and_then(|digits| digits.parse().ok())
        }
        Value::Number(number) => whole(number),
        _ => None,
    };
    let fits = number.filter(|number| (1..=VERSION_MAX.unsigned_abs()).contains(number));
    fits.ok_or_else(|| Error::bad_request("version: must be the number of a release, such as 3 or \"v3\""))
}

/// 3.0 is an integer in JSON Schema.
fn whole(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| format!("{}", number.as_f64()?).parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slipway_api::agent::RiskProfile;
    use slipway_api::evaluation_run::{EvaluatedTrack, Scorer};

    use super::*;

    fn read(body: Value) -> Result<WantedRun, String> {
        serde_json::from_value::<NewRun>(body).unwrap().read().map_err(|error| error.message().to_owned())
    }

    #[test]
    fn both_spellings_are_read() {
        for body in [
            json!({"dataset_name": "hard", "risk_profile": "high", "min_quality_score": 80, "judge_model": "stub:/x", "scorers": ["safety"], "guidelines": ["Be kind."], "exclude_feedback": true}),
            json!({"datasetName": "hard", "riskProfile": "high", "minQualityScore": 80.0, "judgeModel": "stub:/x", "scorers": ["safety"], "guidelines": ["Be kind."], "excludeFeedback": true}),
        ] {
            let WantedRun { dataset, version, spec } = read(body).unwrap();
            assert_eq!((dataset.as_deref(), version), (Some("hard"), None));
            assert_eq!((spec.risk_profile, spec.min_quality_score), (Some(RiskProfile::High), Some(80)));
            assert_eq!((spec.scorers, spec.judge_model.as_deref()), (vec![Scorer::Safety], Some("stub:/x")));
            assert_eq!((spec.track, spec.release, spec.cancel), (EvaluatedTrack::Stable, None, false));
            assert!(spec.exclude_feedback);
        }
        let wanted = read(json!({"version": null, "scorers": null, "dataset_name": null, "exclude_feedback": null})).unwrap();
        assert!(wanted.version.is_none() && !wanted.spec.exclude_feedback);
    }

    #[test]
    fn a_version_is_a_number_however_it_is_written() {
        for (given, expected) in [
            (json!(3), Some(3)),
            (json!(3.0), Some(3)),
            (json!("3"), Some(3)),
            (json!("v3"), Some(3)),
            (json!(0), None),
            (json!(-1), None),
            (json!(1.5), None),
            (json!(1e300), None),
            (json!(u64::MAX), None),
            (json!(""), None),
            (json!("v"), None),
            (json!("+3"), None),
            (json!("three"), None),
            (json!("3\0"), None),
            (json!("99999999999999999999999"), None),
            (json!(true), None),
            (json!([3]), None),
        ] {
            assert_eq!(read(json!({"version": given})).ok().and_then(|wanted| wanted.version), expected, "{given}");
        }
    }

    #[test]
    fn what_is_not_a_callers_is_refused_by_name() {
        for (body, says) in [
            (json!({"track": "candidate"}), "there is no field `track`"),
            (json!({"release": "helper-1"}), "there is no field `release`"),
            (json!({"agent": "other"}), "there is no field `agent`"),
            (json!({"cancel": true}), "there is no field `cancel`"),
            (json!({"dataset": "x"}), "there is no field `dataset`"),
            (json!({"dataset_name": ""}), "dataset_name"),
            (json!({"dataset_name": 5}), "dataset_name"),
            (json!({"version": "three"}), "version: must be the number"),
            (json!({"min_quality_score": "80"}), "min_quality_score: must be of type integer"),
            (json!({"min_quality_score": 1e30}), "the body does not fit"),
            (json!({"scorers": ["charm"]}), "charm"),
            (json!({"scorers": "safety"}), "scorers: must be of type array"),
            (json!({"exclude_feedback": "yes"}), "exclude_feedback: must be of type boolean"),
        ] {
            let told = read(body.clone()).unwrap_err();
            assert!(told.contains(says), "{body}: {told}");
        }
    }

    proptest! {
        #[test]
        fn no_body_brings_it_down(name in "[a-zA-Z_]{0,12}|version|dataset_name|scorers", text in ".{0,12}", number: f64) {
            let _ = read(json!({ name.clone(): text }));
            let _ = read(json!({ name.clone(): number }));
            let _ = read(json!({ name: [text, number] }));
        }
    }
}
