//! The counters of an agent's work, beside those of its HTTP requests: turns, models, tokens, cost,
//! tools, guards and memory. What a scorecard needs is counted here. Labels that come from outside
//! are bounded in length and in number; beyond that they count as `other`.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Further values of a label count as `other`.
const MAX_LABEL_VALUES: usize = 64;
const MAX_LABEL_BYTES: usize = 64;
const OTHER: &str = "other";

/// A judge says yes, partly or no; words are compared more finely.
const SCORES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Model {
    provider: String,
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelOutcome {
    provider: String,
    model: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelTokens {
    provider: String,
    model: String,
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByScorer {
    scorer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tool {
    tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolOutcome {
    tool: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KnowledgeBase {
    knowledge_base: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetrievalOutcome {
    knowledge_base: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Guarded {
    guard: String,
    action: String,
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Violation {
    policy: String,
    rule: &'static str,
    stage: &'static str,
    blocked: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
type Dollars = Counter<f64, AtomicU64>;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Meters(Arc<Families>);

struct Families {
    turns: Family<Outcome, Counter>,
    turn_seconds: Histogram,
    first_token_seconds: Histograms<Model>,
    model_calls: Family<ModelOutcome, Counter>,
    model_call_seconds: Histograms<Model>,
    tokens: Family<ModelTokens, Counter>,
    cost: Family<Model, Dollars>,
    tool_calls: Family<ToolOutcome, Counter>,
    tool_call_seconds: Histograms<Tool>,
    retrievals: Family<RetrievalOutcome, Counter>,
    retrieval_seconds: Histograms<KnowledgeBase>,
    guard_actions: Family<Guarded, Counter>,
    pii_detections: Counter,
    injection_attempts: Counter,
    policy_violations: Family<Violation, Counter>,
    policies: Gauge,
    policies_missing: Gauge,
    policy_reloads: Family<Outcome, Counter>,
    policies_reload_failed: Gauge,
    policies_last_reload: Gauge,
    budget_shared: Gauge,
    budget_leases: Family<Outcome, Counter>,
    memory_extractions: Family<Outcome, Counter>,
    active_conversations: Gauge,
    evaluation_cases: Family<Outcome, Counter>,
    judge_calls: Family<Outcome, Counter>,
    judge_call_seconds: Histogram,
    judge_tokens: Family<Direction, Counter>,
    sampled_turns: Family<Outcome, Counter>,
    sampled_score: Histograms<ByScorer>,
    models: Seen,
    tools: Seen,
    guards: Seen,
    violated: Seen,
}

impl Meters {
    /// Makes all of them known to a registry, whose prefix they get.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let families = Families {
            turns: Family::default(),
            turn_seconds: seconds(),
            first_token_seconds: Histograms::new_with_constructor(seconds),
            model_calls: Family::default(),
            model_call_seconds: Histograms::new_with_constructor(seconds),
            tokens: Family::default(),
            cost: Family::default(),
            tool_calls: Family::default(),
            tool_call_seconds: Histograms::new_with_constructor(seconds),
            retrievals: Family::default(),
            retrieval_seconds: Histograms::new_with_constructor(seconds),
            guard_actions: Family::default(),
            pii_detections: Counter::default(),
            injection_attempts: Counter::default(),
            policy_violations: Family::default(),
            policies: Gauge::default(),
            policies_missing: Gauge::default(),
            policy_reloads: Family::default(),
            policies_reload_failed: Gauge::default(),
            policies_last_reload: Gauge::default(),
            budget_shared: Gauge::default(),
            budget_leases: Family::default(),
            memory_extractions: Family::default(),
            active_conversations: Gauge::default(),
            evaluation_cases: Family::default(),
            judge_calls: Family::default(),
            judge_call_seconds: seconds(),
            judge_tokens: Family::default(),
            sampled_turns: Family::default(),
            sampled_score: Histograms::new_with_constructor(|| Histogram::new(SCORES)),
            models: Seen::default(),
            tools: Seen::default(),
            guards: Seen::default(),
            violated: Seen::default(),
        };
        families.register(registry);
        Self(Arc::new(families))
    }

    /// The counters of one model. Getting them takes a look-up, counting with them does not.
    pub(crate) fn model(&self, provider: &str, model: &str) -> ModelMeter {
        let provider = bounded(provider);
        let model = self.0.models.bounded(model);
        let labels = Model { provider: provider.clone(), model: model.clone() };
        let calls = |outcome| ModelOutcome { provider: provider.clone(), model: model.clone(), outcome };
        let tokens = |direction| ModelTokens { provider: provider.clone(), model: model.clone(), direction };
        let families = &self.0;
        ModelMeter(Arc::new(ModelCounters {
            answered: families.model_calls.get_or_create_owned(&calls("ok")),
            failed: families.model_calls.get_or_create_owned(&calls("error")),
            cancelled: families.model_calls.get_or_create_owned(&calls("cancelled")),
            seconds: families.model_call_seconds.get_or_create_owned(&labels),
            first_token: families.first_token_seconds.get_or_create_owned(&labels),
            input: families.tokens.get_or_create_owned(&tokens("input")),
            output: families.tokens.get_or_create_owned(&tokens("output")),
            cached: families.tokens.get_or_create_owned(&tokens("cached_input")),
            cost: families.cost.get_or_create_owned(&labels),
        }))
    }

    /// A turn has ended: `ok`, `error`, `blocked` or `cancelled`. One that did not begin or was cut off has no time that could be compared.
    pub(crate) fn turn(&self, outcome: &'static str, seconds: Option<f64>) {
        self.0.turns.get_or_create(&Outcome { outcome }).inc();
        if let Some(seconds) = seconds {
            self.0.turn_seconds.observe(seconds);
        }
    }

    pub(crate) fn tool_call(&self, tool: &str, outcome: &'static str, seconds: f64) {
        let tool = self.0.tools.bounded(tool);
        self.0.tool_call_seconds.get_or_create(&Tool { tool: tool.clone() }).observe(seconds);
        self.0.tool_calls.get_or_create(&ToolOutcome { tool, outcome }).inc();
    }

    /// A knowledge base was searched: `ok`, `empty`, `error` or `cancelled`. There are as many as the operator configured.
    pub(crate) fn retrieval(&self, knowledge_base: &str, outcome: &'static str, seconds: f64) {
        let knowledge_base = bounded(knowledge_base);
        self.0.retrieval_seconds.get_or_create(&KnowledgeBase { knowledge_base: knowledge_base.clone() }).observe(seconds);
        self.0.retrievals.get_or_create(&RetrievalOutcome { knowledge_base, outcome }).inc();
    }

    /// A guard found something; what the scorecard asks for is counted apart.
    pub(crate) fn guard(&self, guard: &str, action: &str, kind: &str) {
        match guard {
            "pii-detection" => drop(self.0.pii_detections.inc()),
            "prompt-injection" => drop(self.0.injection_attempts.inc()),
            _ => {}
        }
        let labels = Guarded { guard: bounded(guard), action: bounded(action), kind: self.0.guards.bounded(kind) };
        self.0.guard_actions.get_or_create(&labels).inc();
    }

    /// There are as many rules and stages as the code has.
    pub(crate) fn violation(&self, policy: &str, rule: &'static str, stage: &'static str, blocked: bool) {
        let (policy, blocked) = (self.0.violated.bounded(policy), if blocked { "true" } else { "false" });
        self.0.policy_violations.get_or_create(&Violation { policy, rule, stage, blocked }).inc();
    }

    pub(crate) fn policies(&self, in_force: usize, missing: usize) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.0.policies.set(count(in_force));
        self.0.policies_missing.set(count(missing));
    }

    /// The file of policies had changed and was read, or could not be.
    pub(crate) fn policies_reloaded(&self, is_ok: bool, now: SystemTime) {
        self.0.policy_reloads.get_or_create(&Outcome { outcome: if is_ok { "ok" } else { "error" } }).inc();
        self.0.policies_reload_failed.set(i64::from(!is_ok));
        if is_ok {
            let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            self.0.policies_last_reload.set(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn budget_is_shared(&self, is_shared: bool) {
        self.0.budget_shared.set(i64::from(is_shared));
    }

    pub(crate) fn lease_asked(&self, is_answered: bool) {
        self.0.budget_leases.get_or_create(&Outcome { outcome: if is_answered { "ok" } else { "error" } }).inc();
    }

    pub(crate) fn memory_extraction(&self, outcome: &'static str) {
        self.0.memory_extractions.get_or_create(&Outcome { outcome }).inc();
    }

    /// A case of an evaluation was put to the agent: `ok` or `error`.
    pub(crate) fn evaluation_case(&self, outcome: &'static str) {
        self.0.evaluation_cases.get_or_create(&Outcome { outcome }).inc();
    }

    /// A judge was asked: `ok`, `invalid`, `error`, `timeout`.
    pub(crate) fn judge_call(&self, outcome: &'static str, seconds: f64) {
        self.0.judge_calls.get_or_create(&Outcome { outcome }).inc();
        self.0.judge_call_seconds.observe(seconds);
    }

    pub(crate) fn judge_tokens(&self, input: u64, output: u64) {
        self.0.judge_tokens.get_or_create(&Direction { direction: "input" }).inc_by(input);
        self.0.judge_tokens.get_or_create(&Direction { direction: "output" }).inc_by(output);
    }

    /// A turn was sampled: `scored`, `dropped`, `over_budget` or `failed`.
    pub(crate) fn sampled_turn(&self, outcome: &'static str) {
        self.0.sampled_turns.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn sampled_score(&self, scorer: &'static str, value: f64) {
        self.0.sampled_score.get_or_create(&ByScorer { scorer }).observe(value);
    }

    /// A conversation is active until what this gives is dropped.
    pub(crate) fn conversation(&self) -> Active {
        self.0.active_conversations.inc();
        Active(self.0.active_conversations.clone())
    }
}

impl Families {
    fn register(&self, registry: &mut Registry) {
        let Self {
            turns,
            turn_seconds,
            first_token_seconds,
            model_calls,
            model_call_seconds,
            tokens,
            cost,
            tool_calls,
            tool_call_seconds,
            retrievals,
            retrieval_seconds,
            guard_actions,
            pii_detections,
            injection_attempts,
            policy_violations,
            policies,
            policies_missing,
            policy_reloads,
            policies_reload_failed,
            policies_last_reload,
            budget_shared,
            budget_leases,
            memory_extractions,
            active_conversations,
            evaluation_cases,
            judge_calls,
            judge_call_seconds,
            judge_tokens,
            sampled_turns,
            sampled_score,
            models: _,
            tools: _,
            guards: _,
            violated: _,
        } = self;
        registry.register("turns", "Turns ended, by outcome", turns.clone());
        registry.register_with_unit("turn", "Time a whole turn took", Unit::Seconds, turn_seconds.clone());
        let help = "Time from asking a model to the first piece of its answer";
        registry.register_with_unit("first_token", help, Unit::Seconds, first_token_seconds.clone());
        registry.register("model_calls", "Calls of models, by outcome", model_calls.clone());
        let help = "Time from asking a model to the end of its answer";
        registry.register_with_unit("model_call", help, Unit::Seconds, model_call_seconds.clone());
        registry.register("tokens", "Tokens, by direction; cached_input is part of input", tokens.clone());
        registry.register("cost_usd", "Cost of models' answers by the price table, in US dollars", cost.clone());
        registry.register("tool_calls", "Calls of tools, by outcome", tool_calls.clone());
        registry.register_with_unit("tool_call", "Time a call of a tool took", Unit::Seconds, tool_call_seconds.clone());
        registry.register("retrievals", "Searches of knowledge bases, by outcome", retrievals.clone());
        registry.register_with_unit("retrieval", "Time a search of a knowledge base took", Unit::Seconds, retrieval_seconds.clone());
        registry.register("guard_actions", "What guards did, by what they found", guard_actions.clone());
        registry.register("pii_detections", "Personal data found by guards", pii_detections.clone());
        registry.register("injection_attempts", "Prompt injections found by guards", injection_attempts.clone());
        registry.register("policy_violations", "Violations of guardrail policies, by rule and stage", policy_violations.clone());
        registry.register("policies", "Guardrail policies in force", policies.clone());
        let help = "Guardrail policies that the agent is to be held to and that do not exist";
        registry.register("policies_missing", help, policies_missing.clone());
        registry.register("policies_reloads", "Readings of the changed file of policies, by outcome", policy_reloads.clone());
        let help = "1 while the file of policies cannot be used";
        registry.register("policies_reload_failed", help, policies_reload_failed.clone());
        let help = "When the file of policies was read last, since 1970";
        registry.register_with_unit("policies_last_reload_timestamp", help, Unit::Seconds, policies_last_reload.clone());
        let help = "1 if the budgets of requests and cost are the agent's, 0 if each process has its own";
        registry.register("budget_shared", help, budget_shared.clone());
        registry.register("budget_leases", "Questions for a part of the agent's budgets, by outcome", budget_leases.clone());
        registry.register("memory_extractions", "Attempts to extract memories from a turn, by outcome", memory_extractions.clone());
        let help = "Conversations with a turn under way";
        registry.register("active_conversations", help, active_conversations.clone());
        registry.register("evaluation_cases", "Cases of evaluations put to the agent, by outcome", evaluation_cases.clone());
        registry.register("judge_calls", "Calls of judges of evaluations, by outcome", judge_calls.clone());
        let help = "Time from asking a judge to the end of its answer";
        registry.register_with_unit("judge_call", help, Unit::Seconds, judge_call_seconds.clone());
        registry.register("judge_tokens", "Tokens that judges read and wrote, by direction", judge_tokens.clone());
        registry.register("sampled_turns", "Turns sampled to be scored, by outcome", sampled_turns.clone());
        registry.register("sampled_score", "Scores of sampled turns, 0 to 1, by scorer", sampled_score.clone());
    }
}

/// The counters of one model. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ModelMeter(Arc<ModelCounters>);

struct ModelCounters {
    answered: Counter,
    failed: Counter,
    cancelled: Counter,
    seconds: Histogram,
    first_token: Histogram,
    input: Counter,
    output: Counter,
    cached: Counter,
    cost: Dollars,
}

impl ModelMeter {
    /// A call has ended: `ok`, `error` or `cancelled`.
    pub(crate) fn call(&self, outcome: &str, seconds: f64) {
        match outcome {
            "ok" => self.0.answered.inc(),
            "cancelled" => self.0.cancelled.inc(),
            _ => self.0.failed.inc(),
        };
        self.0.seconds.observe(seconds);
    }

    pub(crate) fn first_token(&self, seconds: f64) {
        self.0.first_token.observe(seconds);
    }

    /// `input` with those that were cached.
    pub(crate) fn tokens(&self, input: u64, output: u64, cached_input: u64) {
        self.0.input.inc_by(input);
        self.0.output.inc_by(output);
        self.0.cached.inc_by(cached_input);
    }

    pub(crate) fn cost(&self, usd: f64) {
        // A counter never falls.
        if usd.is_finite() && usd > 0.0 {
            self.0.cost.inc_by(usd);
        }
    }
}

/// One active conversation.
pub(crate) struct Active(Gauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn bounded(value: &str) -> String {
    value[..value.floor_char_boundary(MAX_LABEL_BYTES)].to_owned()
}

/// The values of one label so far.
#[derive(Default)]
struct Seen(Mutex<HashSet<String>>);

impl Seen {
    fn bounded(&self, value: &str) -> String {
        let value = bounded(value);
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.contains(&value) {
            if seen.len() >= MAX_LABEL_VALUES {
                return OTHER.to_owned();
            }
            seen.insert(value.clone());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn each_thing_is_counted_under_its_name() {
        let mut registry = Registry::with_prefix("slipway_runtime");
        let meters = Meters::new(&mut registry);
        meters.turn("ok", Some(0.2));
        meters.turn("blocked", None);
        let model = meters.model("openai", "gpt-x");
        model.call("ok", 1.5);
        model.call("error", 0.1);
        model.call("cancelled", 0.1);
        model.first_token(0.3);
        model.tokens(100, 20, 40);
        model.tokens(1, 2, 0);
        model.cost(0.25);
        model.cost(f64::NAN);
        model.cost(-1.0);
        // The same model again is the same counters.
        meters.model("openai", "gpt-x").tokens(1, 0, 0);
        meters.tool_call("weather", "ok", 0.01);
        meters.tool_call("weather", "error", 0.01);
        meters.retrieval("kb_docs", "empty", 0.01);
        meters.guard("pii-detection", "mask", "email");
        meters.guard("prompt-injection", "block", "override");
        meters.violation("gp_topics", "blocked_topics", "output", true);
        meters.policies(4, 1);
        meters.policies_reloaded(true, UNIX_EPOCH + std::time::Duration::from_secs(7));
        meters.policies_reloaded(false, SystemTime::now());
        meters.budget_is_shared(true);
        meters.lease_asked(false);
        meters.memory_extraction("ok");
        meters.evaluation_case("ok");
        meters.judge_call("invalid", 0.5);
        meters.judge_tokens(7, 0);
        meters.sampled_turn("over_budget");
        meters.sampled_score("safety", 0.5);
        let active = meters.conversation();
        drop(meters.conversation());
        let text = text(&registry);
        for line in [
            r#"turns_total{outcome="ok"} 1"#,
            r#"turns_total{outcome="blocked"} 1"#,
            "turn_seconds_count 1",
            r#"first_token_seconds_sum{provider="openai",model="gpt-x"} 0.3"#,
            r#"model_calls_total{provider="openai",model="gpt-x",outcome="ok"} 1"#,
            r#"model_calls_total{provider="openai",model="gpt-x",outcome="error"} 1"#,
            r#"model_calls_total{provider="openai",model="gpt-x",outcome="cancelled"} 1"#,
            r#"model_call_seconds_count{provider="openai",model="gpt-x"} 3"#,
            r#"tokens_total{provider="openai",model="gpt-x",direction="input"} 102"#,
            r#"tokens_total{provider="openai",model="gpt-x",direction="output"} 22"#,
            r#"tokens_total{provider="openai",model="gpt-x",direction="cached_input"} 40"#,
            r#"cost_usd_total{provider="openai",model="gpt-x"} 0.25"#,
            r#"tool_calls_total{tool="weather",outcome="ok"} 1"#,
            r#"tool_calls_total{tool="weather",outcome="error"} 1"#,
            r#"tool_call_seconds_count{tool="weather"} 2"#,
            r#"retrievals_total{knowledge_base="kb_docs",outcome="empty"} 1"#,
            r#"retrieval_seconds_count{knowledge_base="kb_docs"} 1"#,
            r#"guard_actions_total{guard="pii-detection",action="mask",kind="email"} 1"#,
            "pii_detections_total 1",
            "injection_attempts_total 1",
            r#"policy_violations_total{policy="gp_topics",rule="blocked_topics",stage="output",blocked="true"} 1"#,
            "policies 4",
            "policies_missing 1",
            r#"policies_reloads_total{outcome="ok"} 1"#,
            r#"policies_reloads_total{outcome="error"} 1"#,
            "policies_last_reload_timestamp_seconds 7",
            "policies_reload_failed 1",
            "budget_shared 1",
            r#"budget_leases_total{outcome="error"} 1"#,
            r#"memory_extractions_total{outcome="ok"} 1"#,
            r#"evaluation_cases_total{outcome="ok"} 1"#,
            r#"judge_calls_total{outcome="invalid"} 1"#,
            "judge_call_seconds_sum 0.5",
            r#"judge_tokens_total{direction="input"} 7"#,
            r#"sampled_turns_total{outcome="over_budget"} 1"#,
            r#"sampled_score_sum{scorer="safety"} 0.5"#,
            "active_conversations 1",
        ] {
            assert!(text.contains(&format!("\nslipway_runtime_{line}\n")), "{line} is not in\n{text}");
        }
        drop(active);
        assert!(super::tests::text(&registry).contains("\nslipway_runtime_active_conversations 0\n"));
    }

    #[test]
    fn labels_from_outside_are_bounded() {
        let mut registry = Registry::with_prefix("slipway_runtime");
        let meters = Meters::new(&mut registry);
        for number in 0..1000 {
            meters.tool_call(&format!("tool-{number}-{}", "é".repeat(100)), "ok", 0.0);
            meters.model("p", &format!("model-{number}")).tokens(1, 0, 0);
            meters.guard("g", "mask", &format!("kind-{number}"));
            meters.violation(&format!("gp_{number}"), "max_tokens", "limit", false);
        }
        let text = text(&registry);
        assert!(text.contains(&format!(r#"tool_calls_total{{tool="other",outcome="ok"}} {}"#, 1000 - MAX_LABEL_VALUES)), "{text}");
        assert!(text.lines().count() < 60 * MAX_LABEL_VALUES, "{} lines", text.lines().count());
        let longest = text.lines().filter_map(|line| line.split('"').nth(1)).map(str::len).max();
        assert!(longest <= Some(MAX_LABEL_BYTES), "{longest:?}");
    }
}
