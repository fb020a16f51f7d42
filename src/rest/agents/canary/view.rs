//! A canary as REST shows it: what it is, where it stands, what was measured of it, and who sends it its share.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use slipway_api::canary::{self, CanaryPhase, CarrierName, TRACK_VERSION, TrackFigures};
use slipway_api::{Agent, CanaryStatus, ids};
use slipway_http::Error;

use super::super::view::respelled;
use super::config;

/// The canary of an agent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Canary")]
pub(crate) struct View {
    /// Whether there is to be a canary.
    pub enabled: bool,
    /// What is different in it, by the agent's fields, and besides its weight and analysis. Empty without one.
    #[schemars(schema_with = "config::form")]
    pub config: Value,
    /// The version beside which it runs: the author's label, or the release as v and its number. Empty where there is neither.
    pub stable_version: String,
    /// The canary's label, or canary. Empty without one.
    pub canary_version: String,
    /// The percentage of conversations that go to the canary now.
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// The percentage that is wanted.
    #[schemars(range(min = 0, max = 100))]
    pub desired_weight: i32,
    /// Null before the operator has taken it up, and without one.
    pub phase: Option<Phase>,
    /// What it waits for, or why it does not go on.
    pub message: Option<String>,
    pub started_at: Option<String>,
    pub tracks: Tracks,
    /// Who sends the canary its share, and who does not.
    pub traffic: Vec<Carrier>,
    /// The weights that its analysis goes through. Empty without one.
    pub steps: Vec<i32>,
    /// The evaluation that decides on it, where a gate asks for one.
    pub evaluation: Option<String>,
}

/// Where a canary stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CanaryPhase")]
pub(crate) enum Phase {
    Progressing,
    Serving,
    Paused,
    Inconclusive,
    Succeeded,
    Promoting,
    Draining,
    RolledBack,
}

impl From<CanaryPhase> for Phase {
    fn from(phase: CanaryPhase) -> Self {
        match phase {
            CanaryPhase::Progressing => Self::Progressing,
            CanaryPhase::Serving => Self::Serving,
            CanaryPhase::Paused => Self::Paused,
            CanaryPhase::Inconclusive => Self::Inconclusive,
            CanaryPhase::Succeeded => Self::Succeeded,
            CanaryPhase::Promoting => Self::Promoting,
            CanaryPhase::Draining => Self::Draining,
            CanaryPhase::RolledBack => Self::RolledBack,
        }
    }
}

/// What was measured since the canary began.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CanaryTracks")]
pub(crate) struct Tracks {
    pub stable: Track,
    pub canary: Track,
}

/// What was measured of a track. Null is what was not.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "CanaryTrack")]
pub(crate) struct Track {
    pub requests: Option<i64>,
    /// Of the requests that ended, the percentage that failed.
    pub error_rate_pct: Option<f64>,
    pub p95_latency_ms: Option<f64>,
    /// The score of the evaluation of what it runs, 0 to 100.
    pub score: Option<f64>,
}

impl From<&TrackFigures> for Track {
    fn from(figures: &TrackFigures) -> Self {
        let TrackFigures { requests, error_rate_pct, p95_latency_ms, score } = figures;
        Self { requests: Some(*requests), error_rate_pct: *error_rate_pct, p95_latency_ms: *p95_latency_ms, score: *score }
    }
}

/// Something that may send a canary its share.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CanaryCarrier")]
pub(crate) struct Carrier {
    #[serde(rename = "carrier")]
    pub name: CarrierName,
    /// Whether it does.
    pub carries: bool,
    /// Why it does not, or what it leaves out.
    pub message: Option<String>,
}

impl From<&canary::Carrier> for Carrier {
    fn from(found: &canary::Carrier) -> Self {
        let message = Some(found.message.clone()).filter(|message| !message.is_empty());
        Self { name: found.name, carries: found.carries, message }
    }
}

impl View {
    pub(super) fn of(agent: &Agent) -> Result<Self, Error> {
        let asked = agent.canary();
        let of_agent = agent.status.as_ref();
        let status = agent.canary_status();
        let track = |figures: Option<&TrackFigures>| figures.map(Track::from).unwrap_or_default();
        let released = || of_agent.and_then(|status| status.active_release).map(|version| format!("v{version}"));
        let stable_version = status.and_then(|status| status.stable_version.clone()).or_else(|| agent.spec.version.clone());
        let labelled = asked.map(|canary| canary.version.clone()).or_else(|| status.map(|status| status.version.clone()));
        Ok(Self {
            enabled: asked.is_some(),
            config: asked.map(config::told).transpose()?.unwrap_or_else(|| json!({})),
            stable_version: stable_version.or_else(released).unwrap_or_default(),
            canary_version: labelled.map(|version| version.unwrap_or_else(|| TRACK_VERSION.to_owned())).unwrap_or_default(),
            weight: status.map_or(0, |status| i32::from(status.share())),
            desired_weight: desired_weight(agent, status),
            phase: status.map(|status| status.phase.into()),
            message: status.and_then(|status| status.message.as_deref()).map(respelled),
            started_at: status.and_then(|status| status.started_at.as_ref()).map(|time| time.0.to_string()),
            tracks: Tracks {
                stable: track(status.and_then(|status| status.stable.as_ref())),
                canary: track(status.and_then(|status| status.canary.as_ref())),
            },
            traffic: status.map(|status| status.carriers.iter().map(Carrier::from).collect()).unwrap_or_default(),
            steps: asked.filter(|canary| canary.analysis.is_some()).map(slipway_api::Canary::step_weights).unwrap_or_default(),
            evaluation: status.and_then(|status| status.evaluation.as_deref()).map(ids::evaluation_run),
        })
    }
}

/// What was said last counts, unless analysis has gone on since.
fn desired_weight(agent: &Agent, status: Option<&CanaryStatus>) -> i32 {
    let Some(canary) = agent.canary() else { return 0 };
    let climbed = || canary.analysis.as_ref().and(status).map(|status| status.desired_weight.max(canary.weight));
    agent.canary_weight().or_else(climbed).unwrap_or(canary.weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(version: Option<&str>, canary: &Value, status: &Value) -> Value {
        let agent: Agent = serde_json::from_value(json!({
            "metadata": {"name": "helper", "namespace": "team-a"},
            "spec": {"name": "H", "framework": "custom", "version": version, "canary": canary},
            "status": status,
        }))
        .unwrap();
        serde_json::to_value(View::of(&agent).unwrap()).unwrap()
    }

    #[test]
    fn an_agent_without_a_canary_shows_an_empty_one() {
        let nothing = json!({"requests": null, "error_rate_pct": null, "p95_latency_ms": null, "score": null});
        assert_eq!(
            view(None, &Value::Null, &json!({"activeRelease": 3})),
            json!({
                "enabled": false, "config": {}, "stable_version": "v3", "canary_version": "", "weight": 0, "desired_weight": 0,
                "phase": null, "message": null, "started_at": null, "tracks": {"stable": nothing, "canary": nothing}, "traffic": [],
                "steps": [], "evaluation": null,
            })
        );
        assert_eq!(view(None, &Value::Null, &json!({}))["stable_version"], "");
        assert_eq!(view(Some("2.1"), &json!({"enabled": false, "weight": 5}), &json!({}))["stable_version"], "2.1");
    }

    #[test]
    fn a_canary_shows_what_the_operator_has_written() {
        let canary = json!({"enabled": true, "weight": 5, "modelId": "m", "version": "2", "analysis": {"steps": [25, 50]}});
        let status = json!({"canary": {
            "phase": "Serving", "weight": 25, "desiredWeight": 25, "stableVersion": "1", "startedAt": "2026-01-01T00:00:00Z",
            "stable": {"requests": 90, "errorRatePct": 1.5}, "canary": {"requests": 0, "score": 91.0}, "evaluation": "ev-01abc",
            "carriers": [{"name": "rest", "carries": true}, {"name": "mesh", "carries": false, "message": "no mesh"}],
            "message": "spec.modelId: why",
        }});
        let shown = view(Some("9"), &canary, &status);
        assert_eq!((&shown["enabled"], &shown["config"]["model_id"], &shown["config"]["weight"]), (&json!(true), &json!("m"), &json!(5)));
        assert_eq!((&shown["stable_version"], &shown["canary_version"]), (&json!("1"), &json!("2")));
        assert_eq!((&shown["weight"], &shown["desired_weight"], &shown["steps"]), (&json!(25), &json!(25), &json!([5, 25, 50])));
        assert_eq!((&shown["phase"], &shown["message"]), (&json!("serving"), &json!("model_id: why")));
        assert_eq!((&shown["started_at"], &shown["evaluation"]), (&json!("2026-01-01T00:00:00Z"), &json!("ev_01abc")));
        assert_eq!((&shown["tracks"]["stable"]["requests"], &shown["tracks"]["stable"]["score"]), (&json!(90), &Value::Null));
        assert_eq!((&shown["tracks"]["canary"]["requests"], &shown["tracks"]["canary"]["score"]), (&json!(0), &json!(91.0)));
        let traffic =
            json!([{"carrier": "rest", "carries": true, "message": null}, {"carrier": "mesh", "carries": false, "message": "no mesh"}]);
        assert_eq!(shown["traffic"], traffic);

        let mut ending = status;
        ending["canary"]["phase"] = json!("Draining");
        let shown = view(None, &Value::Null, &ending);
        assert_eq!((&shown["weight"], &shown["phase"], &shown["canary_version"]), (&json!(0), &json!("draining"), &json!("canary")));
    }

    #[test]
    fn what_was_said_last_is_wanted_unless_analysis_has_gone_on() {
        for (annotation, analysis, status, wanted) in [
            (None, Value::Null, Value::Null, 30),
            (None, Value::Null, json!({"desiredWeight": 10}), 30),
            (Some("0"), Value::Null, Value::Null, 0),
            (Some("many"), Value::Null, Value::Null, 30),
            (None, json!({"steps": [50]}), json!({"desiredWeight": 50}), 50),
            (None, json!({"steps": [50]}), json!({"desiredWeight": 10}), 30),
            (Some("5"), json!({"steps": [50]}), json!({"desiredWeight": 50}), 5),
        ] {
            let canary = json!({"enabled": true, "weight": 30, "analysis": analysis});
            let annotations = annotation.map(|weight| json!({slipway_api::labels::CANARY_WEIGHT: weight}));
            let agent: Agent = serde_json::from_value(json!({
                "metadata": {"name": "helper", "annotations": annotations},
                "spec": {"name": "H", "framework": "custom", "canary": canary}, "status": {"canary": status},
            }))
            .unwrap();
            assert_eq!(View::of(&agent).unwrap().desired_weight, wanted, "{annotation:?} {agent:?}");
        }
    }
}
