//! The whole page of metrics, against what rules, dashboards and REST's radar ask for.

use super::telemetry;
use crate::metrics::Metrics;

#[tokio::test]
async fn what_rules_and_dashboards_ask_for_is_on_the_page() {
    let metrics = Metrics::new(&telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")]));
    metrics.watch("/chat").answered(200);
    let meters = &metrics.meters;
    let model = meters.model("openai", "gpt-x");
    model.call("error", 1.0);
    model.first_token(0.1);
    meters.turn("error", Some(1.0));
    meters.tool_call("weather", "error", 0.1);
    meters.retrieval("kb_docs", "error", 0.1);
    meters.guard("pii-detection", "mask", "email");
    meters.violation("gp_topics", "blocked_topics", "output", true);
    meters.memory_extraction("ok");
    meters.evaluation_case("ok");
    meters.judge_call("ok", 0.1);
    meters.lease_asked(false);
    meters.sampled_turn("scored");
    meters.sampled_score("safety", 1.0);
    slipway_peers::has_metrics("slipway_runtime_", &metrics.text().unwrap());
}
