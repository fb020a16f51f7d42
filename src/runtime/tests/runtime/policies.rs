//! Guardrail policies at work: before a turn, in its answer and in the middle of a stream; and policies that change while turns run.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::scripted::Model;
use crate::support::{Runtime, binary, eventually, request};

/// A folder like that of a mounted ConfigMap: a change is another folder under the same link.
struct Mounted {
    folder: TempDir,
    version: Mutex<u32>,
}

impl Mounted {
    fn new(file: &Value) -> Self {
        let mounted = Self { folder: tempfile::tempdir().unwrap(), version: Mutex::default() };
        mounted.write(&file.to_string());
        mounted
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("policies.json")
    }

    fn write(&self, text: &str) {
        let mut version = self.version.lock().unwrap();
        *version += 1;
        let (root, data) = (self.folder.path(), format!("..{version}"));
        std::fs::create_dir(root.join(&data)).unwrap();
        std::fs::write(root.join(&data).join("policies.json"), text).unwrap();
        std::os::unix::fs::symlink(&data, root.join("..tmp")).unwrap();
        std::fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
        if *version == 1 {
            std::os::unix::fs::symlink("..data/policies.json", self.path()).unwrap();
        }
    }

    /// Writes, and waits until it is in force.
    fn change(&self, runtime: &Runtime, file: &Value) {
        let before = reloads(runtime, "ok");
        self.write(&file.to_string());
        eventually("new policies", || (reloads(runtime, "ok") > before).then_some(()));
    }
}

fn reloads(runtime: &Runtime, outcome: &str) -> f64 {
    runtime.metric(&format!(r#"policies_reloads_total{{outcome="{outcome}"}}"#)).unwrap_or_default()
}

fn policy(id: &str, severity: &str, rules: &[(&str, &str, &str)]) -> Value {
    let rule = |(kind, operator, value): &(&str, &str, &str)| json!({"type": kind, "operator": operator, "value": value});
    json!({"id": id, "name": id, "severity": severity, "enabled": true, "rules": rules.iter().map(rule).collect::<Vec<_>>(), "rollback": false})
}

fn file(policies: &[Value]) -> Value {
    let ids: Vec<_> = policies.iter().map(|policy| policy["id"].clone()).collect();
    json!({"policies": policies, "default": ids, "required": []})
}

const TOPICS: (&str, &str, &str) = ("blocked_topics", "contains", "purple würfel");

fn agent(model: &Model, more: &[(&str, &str)]) -> Runtime {
    let variables = [
        ("RUNTIME_MODEL_TYPE", "openai"),
        ("RUNTIME_MODEL_ID", "gpt-4o"),
        ("RUNTIME_BACKGROUND_MODEL", "stub:stub-echo"),
        ("OPENAI_BASE_URL", model.url.as_str()),
        ("OPENAI_API_KEY", "none"),
    ];
    Runtime::with(&[&variables, more].concat())
}

fn whole(policies: &[Value]) -> String {
    json!(policies).to_string()
}

fn violations(runtime: &Runtime, policy: &str, rule: &str, stage: &str, blocked: bool) -> Option<f64> {
    let labels = format!(r#"policy_violations_total{{policy="{policy}",rule="{rule}",stage="{stage}",blocked="{blocked}"}}"#);
    runtime.metric(&labels)
}

fn tokens(events: &[Value]) -> String {
    events.iter().filter(|event| event["type"] == "token").map(|event| event["content"].as_str().unwrap()).collect()
}

const LEAD: &str = "Once upon a time MARKER there was ";
const NEEDLE: &str = "a purple  WÜRFEL";
const REST: &str = " that nobody knew.";

#[test]
fn not_a_byte_of_a_blocked_answer_reaches_anybody() {
    let model = Model::start();
    let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy("gp_topics", "critical", &[TOPICS])]))]);
    let text = format!("{LEAD}{NEEDLE}{REST}");
    let (from, to) = (LEAD.len() - 1, LEAD.len() + NEEDLE.len() + 1);
    let cuts: Vec<usize> = (from..=to).filter(|at| text.is_char_boundary(*at)).collect();
    let mut turns = 0;
    for torn in [false, true] {
        model.tears(torn);
        for (turn, cut) in cuts.iter().enumerate() {
            let second = cuts[(turn * 5 + 3) % cuts.len()].max(*cut);
            model.says(&[&text[..*cut], &text[*cut..second], &text[second..]]);
            let conversation = format!("conv_{torn}_{turn}");
            let body = json!({"message": "Tell me a story.", "conversation_id": conversation}).to_string();
            let (_, streamed) = runtime.post("/chat/stream", &body);
            assert!(!streamed.contains("MARKER") && !streamed.contains(r#""token""#), "cut at {cut} and {second}: {streamed}");
            assert!(streamed.contains(r#""stop_reason":"guard""#) && streamed.contains(r#""policy":"gp_topics""#), "{streamed}");
            let kept = &runtime.get(&format!("/conversations/{conversation}"))["messages"][1];
            let content = kept["content"].as_str().unwrap();
            assert!(content.starts_with("refused by blocked-topics (policy gp_topics)") && kept["interrupted"] == true, "{kept}");
            turns += 1;
        }
    }
    model.says(&[&text]);
    let (_, whole) = runtime.post("/chat", r#"{"message": "Tell me a story."}"#);
    assert!(!whole.contains("MARKER") && whole.contains("gp_topics"), "{whole}");
    let asked = json!({"messages": [{"role": "user", "content": "Tell me a story."}], "stream": true}).to_string();
    let (_, completed) = runtime.post("/v1/chat/completions", &asked);
    assert!(!completed.contains("MARKER") && completed.contains("content_filter"), "{completed}");
    let total = f64::from(turns) + 2.0;
    assert_eq!(violations(&runtime, "gp_topics", "blocked_topics", "output", true), Some(total));
    assert_eq!(runtime.metric(r#"turns_total{outcome="blocked"}"#), Some(total));
    assert!(turns > 30, "{turns}");
}

#[test]
fn of_an_answer_under_way_that_may_be_blocked_nothing_is_shown() {
    let model = Model::start();
    model.pauses(300);
    let fragments: Vec<String> = (0..8).map(|part| format!("{part} {LEAD}")).collect();
    let fragments: Vec<&str> = fragments.iter().map(String::as_str).collect();
    for (severity, held, shown) in [("critical", true, false), ("critical", false, true), ("warning", true, true)] {
        model.says(&[&fragments[..], &[NEEDLE, REST]].concat());
        let mut policy = policy("gp_topics", severity, &[TOPICS]);
        policy["hold_answers"] = json!(held);
        let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy]))]);
        thread::scope(|scope| {
            let asked = scope.spawn(|| runtime.stream(&json!({"message": "Tell me a story.", "conversation_id": "conv_1"})));
            let mut partials = String::new();
            while !asked.is_finished() {
                let (_, body) = runtime.send("GET /conversations/conv_1/status", "", "");
                partials.push_str(&body);
                thread::sleep(Duration::from_millis(50));
            }
            let events = asked.join().unwrap();
            assert_eq!(tokens(&events).contains("MARKER"), shown, "{events:?}");
            assert_eq!(partials.contains("MARKER"), shown, "{partials}");
            let said = tokens(&events) + &partials;
            assert_eq!(said.to_lowercase().contains("würfel"), severity == "warning", "{said}");
            let kept = runtime.get("/conversations/conv_1");
            assert_eq!(kept["messages"][1]["content"].as_str().unwrap().contains("MARKER"), severity == "warning", "{kept}");
        });
    }
}

#[test]
fn an_answer_that_is_not_blocked_is_the_same_and_whole() {
    let model = Model::start();
    // Longer than one event holds.
    let long = "A story of little words that goes on. ".repeat(2000);
    model.says(&["Grüße, ", &long, "and that was it"]);
    let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy("gp_topics", "critical", &[TOPICS])]))]);
    let events = runtime.stream(&json!({"message": "Tell me a story.", "conversation_id": "conv_1"}));
    let expected = format!("Grüße, {long}and that was it");
    assert_eq!((tokens(&events).as_str(), events.last().unwrap()["content"].as_str().unwrap()), (&*expected, &*expected));
    assert_eq!(runtime.get("/conversations/conv_1")["messages"][1]["content"], expected);
    let pieces = events.iter().filter(|event| event["type"] == "token").count();
    assert!(
        pieces > 3
            && events.iter().all(|event| event["content"].as_str().is_none_or(|text| text.len() <= 16 * 1024) || event["type"] == "done")
    );
}

#[test]
fn an_answer_without_an_end_is_ended_at_a_bound() {
    let model = Model::start();
    let piece = "word ".repeat(20_000);
    model.says(&vec![piece.as_str(); 30]);
    let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy("gp_topics", "critical", &[TOPICS])]))]);
    let answer = runtime.chat(&json!({"message": "Tell me a story."}));
    let length = answer["output"].as_str().unwrap().len();
    assert!(answer["stop_reason"] == "max_tokens" && (1 << 20..(1 << 20) + 200_000).contains(&length), "{length}");
}

#[test]
fn an_answer_that_is_cut_off_is_judged_before_it_is_kept() {
    let model = Model::start();
    model.pauses(400);
    let runtime =
        agent(&model, &[("RUNTIME_TURN_SECONDS", "1"), ("RUNTIME_POLICIES", &whole(&[policy("gp_topics", "critical", &[TOPICS])]))]);
    for (fragments, stop) in [
        (&[LEAD, "something else ", "and more ", "and more", "."][..], "time_budget"),
        // The last word is not known to have ended when the time does.
        (&[LEAD, NEEDLE, "", "", "."][..], "guard"),
    ] {
        model.says(fragments);
        let answer = runtime.chat(&json!({"message": "Tell me a story."}));
        assert_eq!(answer["stop_reason"], stop, "{answer}");
        assert_eq!(answer["output"].as_str().unwrap().contains("MARKER"), stop == "time_budget", "{answer}");
    }
}

#[test]
fn an_answer_that_is_cut_off_while_findings_wait_stays_blocked() {
    let model = Model::start();
    // Of each `w` comes an event of 2 KiB: more than the connection to a client that does not read takes.
    model.says(&[&format!("{LEAD}{}{NEEDLE}{REST}", "w ".repeat(8192))]);
    let topic = json!({"name": "x".repeat(2048), "words": ["w"]});
    let own = json!([{"name": "blocked-topics", "action": "warn", "topics": [topic]}]).to_string();
    let policies = whole(&[policy("gp_topics", "critical", &[TOPICS])]);
    let runtime = agent(&model, &[("RUNTIME_TURN_SECONDS", "2"), ("RUNTIME_GUARDS", &own), ("RUNTIME_POLICIES", &policies)]);
    let mut slow = runtime.connect();
    let body = json!({"message": "Tell me a story.", "conversation_id": "conv_1"}).to_string();
    slow.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    let kept = eventually("an answer that is kept", || {
        let (head, body) = runtime.send("GET /conversations/conv_1", "", "");
        let conversation: Value = head.starts_with("http/1.1 200").then(|| serde_json::from_str(&body).unwrap())?;
        conversation["messages"].get(1).filter(|message| message["content"] != "").cloned()
    });
    assert!(kept["content"].as_str().unwrap().starts_with("refused by blocked-topics (policy gp_topics)"), "{}", kept["content"]);
    let mut told = String::new();
    slow.read_to_string(&mut told).unwrap();
    assert!(!told.contains("MARKER") && told.contains(r#""type":"done""#), "{}", &told[told.len().saturating_sub(500)..]);
    assert_eq!(violations(&runtime, "gp_topics", "blocked_topics", "output", true), Some(1.0));
}

#[test]
fn a_warning_reports_and_changes_nothing() {
    let model = Model::start();
    let text = format!("{LEAD}{NEEDLE}{REST}");
    model.says(&[LEAD, NEEDLE, REST]);
    let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy("gp_topics", "warning", &[TOPICS])]))]);
    let events = runtime.stream(&json!({"message": "Tell me of a purple würfel."}));
    assert_eq!((tokens(&events), events.last().unwrap()["stop_reason"].as_str()), (text, Some("end_turn")));
    let told: Vec<_> = events.iter().filter(|event| event["type"] == "guard").collect();
    let expected = |side: &str| json!({"type": "guard", "guard": "blocked-topics", "action": "warn", "kind": "purple würfel", "side": side, "policy": "gp_topics"});
    assert_eq!(told, [&expected("input"), &expected("output")]);
    for stage in ["input", "output"] {
        assert_eq!(violations(&runtime, "gp_topics", "blocked_topics", stage, false), Some(1.0), "{stage}");
    }
}

#[test]
fn a_topic_that_spans_rounds_is_found_in_the_whole() {
    let script = "text It is a purple\ncall datetime {}\n\ntext w\\u00fcrfel";
    let runtime = Runtime::with(&[
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_TOOLS", r#"[{"name": "datetime", "type": "builtin", "category": "general", "timeout": 5}]"#),
        ("RUNTIME_POLICIES", &whole(&[policy("gp_topics", "critical", &[("blocked_topics", "contains", "purple wall")])])),
    ]);
    let script = script.replace("w\\u00fcrfel", "wall");
    let events = runtime.stream(&json!({"message": script}));
    assert!(events.last().unwrap()["stop_reason"] == "guard" && tokens(&events).is_empty(), "{events:?}");
    assert!(events.iter().any(|event| event["type"] == "tool_end"), "what tools do is told meanwhile: {events:?}");
    let events = runtime.stream(&json!({"message": script.replace("wall", "ball")}));
    assert_eq!(tokens(&events), "It is a purple\n\nball", "{events:?}");
}

#[test]
fn each_rule_before_the_model_refuses_when_critical_and_reports_when_warning() {
    let model = Model::start();
    model.says(&["Hello."]);
    for (rule, stage, status) in [
        (("max_tokens", "lt", "3"), "limit", "http/1.1 400"),
        (("allowed_models", "in", "anthropic:*"), "model", "http/1.1 503"),
        (("blocked_topics", "contains", "story"), "input", "http/1.1 200"),
        (("max_requests_per_minute", "lt", "1"), "limit", "http/1.1 429"),
    ] {
        for severity in ["critical", "warning"] {
            let blocked = severity == "critical";
            let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy("gp_a", severity, &[rule])]))]);
            let (head, body) = runtime.post("/chat", r#"{"message": "Tell me a long story, please."}"#);
            assert!(head.starts_with(if blocked { status } else { "http/1.1 200" }), "{rule:?}: {head}{body}");
            assert_eq!(body.contains("Hello."), !blocked, "{rule:?}, {severity}: {body}");
            assert_eq!(body.contains("(policy gp_a)"), blocked, "{body}");
            assert_eq!(violations(&runtime, "gp_a", rule.0, stage, blocked), Some(1.0), "{rule:?}, {severity}");
            let calls = runtime.metric(r#"model_calls_total{provider="openai",model="gpt-4o",outcome="ok"}"#);
            assert_eq!(calls, Some(f64::from(u8::from(!blocked))), "{rule:?}");
        }
    }
}

#[test]
fn what_is_found_after_an_answer_is_reported_whatever_the_severity() {
    let model = Model::start();
    model.says(&["Hello", "."]);
    model.pauses(30);
    let rules = [("max_latency", "lt", "20"), ("max_cost_per_day", "lt", "0.001")];
    for severity in ["critical", "warning"] {
        let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy("gp_a", severity, &rules)]))]);
        assert_eq!(runtime.chat(&json!({"message": "Hi"}))["output"], "Hello.");
        for (rule, ..) in rules {
            assert_eq!(violations(&runtime, "gp_a", rule, "limit", false), Some(1.0), "{rule}, {severity}");
        }
        // What was spent stops the next turn of a critical policy.
        let (head, _) = runtime.post("/chat", r#"{"message": "Hi"}"#);
        assert!(head.starts_with(if severity == "critical" { "http/1.1 429" } else { "http/1.1 200" }), "{severity}: {head}");
        assert_eq!(runtime.metric("budget_shared"), Some(0.0), "without a database a budget is the process's own");
    }
}

#[test]
fn a_tool_that_is_denied_is_neither_offered_nor_called() {
    let tools = r#"[{"name": "datetime", "type": "builtin", "category": "general", "timeout": 5},
                    {"name": "memory", "type": "builtin", "category": "general", "timeout": 5}]"#;
    let scripted = |severity: &str| {
        Runtime::with(&[
            ("RUNTIME_MODEL_ID", "stub-script"),
            ("RUNTIME_STRATEGY", "agent-react"),
            ("RUNTIME_TOOLS", tools),
            ("RUNTIME_POLICIES", &whole(&[policy("gp_a", severity, &[("denied_tools", "contains", "datetime, memory")])])),
        ])
    };
    let (denying, warning) = (scripted("critical"), scripted("warning"));
    for (call, tool) in [("datetime {}", "datetime"), (r#"remember {"content": "Ada likes tea."}"#, "remember")] {
        let script = json!({"message": format!("call {call}\n\ntext {{results}}")});
        let events = denying.stream(&script);
        let content = events.last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(content.starts_with("The call was withheld: refused by denied-tools (policy gp_a)"), "{tool}: {events:?}");
        assert!(events.iter().all(|event| event["type"] != "tool_start"), "{events:?}");
        let events = warning.stream(&script);
        assert!(events.iter().any(|event| event["type"] == "tool_end" && event["is_error"] == false), "{tool}: {events:?}");
        assert!(
            events.iter().any(|event| event["guard"] == "denied-tools" && event["kind"] == tool && event["policy"] == "gp_a"),
            "{events:?}"
        );
    }
    assert_eq!(violations(&denying, "gp_a", "denied_tools", "tool", true), Some(2.0));
    assert_eq!(violations(&warning, "gp_a", "denied_tools", "tool", false), Some(2.0));
    assert_eq!((denying.get("/memory/status")["count"].clone(), warning.get("/memory/status")["count"].clone()), (json!(0), json!(1)));
}

#[test]
fn a_tool_of_a_denied_server_is_withheld_while_the_server_is_down() {
    let tools = r#"[{"name": "github", "type": "mcp", "category": "general", "mcpEndpoint": "http://127.0.0.1:9/mcp", "timeout": 5}]"#;
    let runtime = Runtime::with(&[
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_TOOLS", tools),
        ("RUNTIME_EGRESS_ALLOW", "127.0.0.0/8"),
        ("RUNTIME_POLICIES", &whole(&[policy("gp_a", "critical", &[("denied_tools", "contains", "github")])])),
    ]);
    let events = runtime.stream(&json!({"message": "call github_list {}\n\ntext {results}"}));
    let content = events.last().unwrap()["content"].as_str().unwrap();
    assert!(content.starts_with("The call was withheld: refused by denied-tools (policy gp_a)"), "{events:?}");
    assert!(events.iter().any(|event| event["guard"] == "denied-tools" && event["kind"] == "github"), "{events:?}");
    assert!(events.iter().all(|event| event["type"] != "tool_start"), "{events:?}");
}

#[test]
fn what_is_denied_is_not_shown_to_the_model() {
    let (url, questions) = crate::support::recorded_model("Done.");
    let tools = r#"[{"name": "datetime", "type": "builtin", "category": "general", "timeout": 5},
                    {"name": "calculator", "type": "builtin", "category": "general", "timeout": 5}]"#;
    let runtime = Runtime::with(&[
        ("RUNTIME_MODEL_TYPE", "openai"),
        ("RUNTIME_MODEL_ID", "gpt-4o"),
        ("RUNTIME_BACKGROUND_MODEL", "stub:stub-echo"),
        ("OPENAI_BASE_URL", &url),
        ("OPENAI_API_KEY", "none"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_TOOLS", tools),
        (
            "RUNTIME_POLICIES",
            &whole(&[policy("gp_a", "critical", &[("denied_tools", "contains", "datetime"), ("max_tokens", "lt", "500")])]),
        ),
    ]);
    runtime.chat(&json!({"message": "What time is it?"}));
    let asked = questions.recv().unwrap();
    let offered: Vec<_> = asked["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(offered, ["calculator"]);
    let most = asked["max_completion_tokens"].as_u64().or_else(|| asked["max_tokens"].as_u64()).unwrap();
    assert!((480..500).contains(&most), "the answer has what the prompt leaves: {asked}");
}

#[test]
fn a_background_model_that_is_not_allowed_is_not_asked() {
    let model = Model::start();
    model.says(&["[]"]);
    for (severity, blocked) in [("critical", true), ("warning", false)] {
        let base = [
            ("RUNTIME_MODEL_ID", "stub-script"),
            ("RUNTIME_BACKGROUND_MODEL", "openai:gpt-4o"),
            ("OPENAI_BASE_URL", model.url.as_str()),
            ("OPENAI_API_KEY", "none"),
        ];
        let policies = whole(&[policy("gp_a", severity, &[("allowed_models", "in", "stub:*")])]);
        let runtime = Runtime::with(&[&base[..], &[("RUNTIME_POLICIES", &policies)]].concat());
        runtime.chat(&json!({"message": "text Hello."}));
        eventually("a violation", || violations(&runtime, "gp_a", "allowed_models", "model", blocked));
        let tokens = || runtime.metric(r#"tokens_total{provider="openai",model="gpt-4o",direction="input"}"#);
        if blocked {
            eventually("its end", || runtime.metric(r#"memory_extractions_total{outcome="failed"}"#));
            assert_eq!(tokens(), None);
        } else {
            eventually("a call", tokens);
        }
    }
}

#[test]
fn a_guard_that_is_required_guards_and_one_that_is_missed_is_reported() {
    let message = json!({"message": "Write to ada.lovelace@example.org please"});
    for severity in ["critical", "warning"] {
        let policies = whole(&[policy("gp_a", severity, &[("required_guards", "contains", "pii-detection")])]);
        let runtime = Runtime::with(&[("RUNTIME_POLICIES", &policies)]);
        let answer = runtime.chat(&message);
        assert_eq!(answer["output"].as_str().unwrap().contains("[EMAIL]"), severity == "critical", "{answer}");
        let missed = violations(&runtime, "gp_a", "required_guards", "input", false);
        assert_eq!(missed, (severity == "warning").then_some(1.0));
    }
}

#[test]
fn policies_change_while_turns_run_and_each_keeps_what_it_began_with() {
    let model = Model::start();
    let blocking = file(&[policy("gp_topics", "critical", &[TOPICS])]);
    let mounted = Mounted::new(&blocking);
    let runtime = agent(&model, &[("RUNTIME_POLICIES_FILE", mounted.path().to_str().unwrap())]);
    model.says(&[LEAD, NEEDLE, REST, "", "", "", "", "", "", ""]);
    let ask = || runtime.chat(&json!({"message": "Tell me a story."}));
    assert_eq!(ask()["stop_reason"], "guard");
    assert_eq!(runtime.metric("policies"), Some(1.0));
    let mut disabled = blocking.clone();
    disabled["policies"][0]["enabled"] = json!(false);
    let deleted = json!({"policies": [], "default": [], "required": []});
    let mut warning = blocking.clone();
    warning["policies"][0]["severity"] = json!("warning");
    for (what, changed) in [("disabled", disabled), ("deleted", deleted), ("a warning", warning)] {
        model.pauses(600);
        thread::scope(|scope| {
            let began = scope.spawn(|| {
                let mut stream = runtime.connect();
                let body = json!({"message": "Tell me a story."}).to_string();
                stream.write_all(request("POST /chat", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                answer
            });
            eventually("a turn", || runtime.metric("active_conversations").filter(|count| *count > 0.0));
            mounted.change(&runtime, &changed);
            let answer = began.join().unwrap();
            assert!(answer.contains(r#""stop_reason":"guard""#) && !answer.contains("MARKER"), "{what}: {answer}");
        });
        model.pauses(0);
        let answer = ask();
        assert!(answer["stop_reason"] == "end_turn" && answer["output"].as_str().unwrap().contains("MARKER"), "{what}: {answer}");
        mounted.change(&runtime, &blocking);
        assert_eq!(ask()["stop_reason"], "guard", "after {what}");
    }
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let model = Model::start();
    model.says(&[LEAD, NEEDLE, REST]);
    let good = file(&[policy("gp_topics", "critical", &[TOPICS])]);
    let mounted = Mounted::new(&good);
    let runtime = agent(&model, &[("RUNTIME_POLICIES_FILE", mounted.path().to_str().unwrap())]);
    let huge = format!(r#"{{"policies": [], "x": "{}"}}"#, "x".repeat(512 * 1024));
    let nested = "[".repeat(100_000);
    let faulty = file(&[policy("gp_topics", "critical", &[("blocked_topics", "in", "x")])]).to_string();
    for (what, text) in [
        ("nothing", ""),
        ("no JSON", "{\"policies\": ["),
        ("another thing", "[]"),
        ("too much", huge.as_str()),
        ("too deep", nested.as_str()),
        ("a policy that cannot be read", faulty.as_str()),
    ] {
        let before = reloads(&runtime, "error");
        mounted.write(text);
        eventually(what, || (reloads(&runtime, "error") > before).then_some(()));
        assert_eq!(runtime.chat(&json!({"message": "Tell me a story."}))["stop_reason"], "guard", "{what}");
    }
    // A pipe that nobody writes into, and nothing at all.
    for fifo in [true, false] {
        let before = reloads(&runtime, "error");
        std::fs::remove_file(mounted.path()).unwrap();
        if fifo {
            assert!(std::process::Command::new("mkfifo").arg(mounted.path()).status().unwrap().success());
        }
        eventually("a look", || (reloads(&runtime, "error") > before).then_some(()));
        assert_eq!(runtime.chat(&json!({"message": "Tell me a story."}))["stop_reason"], "guard");
    }
    assert!(runtime.send("GET /readyz", "", "").0.starts_with("http/1.1 200"));
    std::fs::write(mounted.path(), json!({"policies": [], "default": []}).to_string()).unwrap();
    eventually("the end of the policy", || {
        (runtime.chat(&json!({"message": "Tell me a story."}))["stop_reason"] == "end_turn").then_some(())
    });
}

#[test]
fn an_agent_answers_nothing_before_its_policies_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.json");
    let runtime = Runtime::with(&[("RUNTIME_POLICIES_FILE", path.to_str().unwrap()), ("RUNTIME_POLICIES", r#"["gp_a"]"#)]);
    let refused = |why: &str| {
        for line in ["GET /readyz", "POST /chat", "POST /chat/stream", "POST /v1/chat/completions"] {
            let body = r#"{"message": "hello"}"#.replace(
                "message\": \"hello\"",
                if line.contains("v1") { "messages\": [{\"role\": \"user\", \"content\": \"hello\"}]" } else { "message\": \"hello\"" },
            );
            let (head, body) = runtime.send(line, "content-type: application/json\r\n", &body);
            assert!(head.starts_with("http/1.1 503") && body.contains(why), "{line}: {head}{body}");
        }
        assert!(runtime.send("GET /healthz", "", "").0.starts_with("http/1.1 200"));
    };
    refused("cannot be read yet");
    write(&path, &file(&[policy("gp_b", "critical", &[("max_tokens", "lt", "1")])]));
    eventually("a look", || runtime.post("/chat", r#"{"message": "hello"}"#).1.contains("it has no policy `gp_a`").then_some(()));
    refused("it has no policy `gp_a`");
    write(&path, &file(&[policy("gp_a", "warning", &[("max_tokens", "lt", "1")])]));
    eventually("readiness", || runtime.send("GET /readyz", "", "").0.starts_with("http/1.1 200").then_some(()));
    assert_eq!(runtime.chat(&json!({"message": "hello"}))["output"], "Echo: hello");
    // A policy that was there and is deleted holds no longer.
    write(&path, &json!({"policies": [], "default": []}));
    eventually("its end", || (runtime.metric("policies") == Some(0.0)).then_some(()));
    assert_eq!(runtime.metric("policies_missing"), Some(1.0));
    assert_eq!(runtime.chat(&json!({"message": "hello"}))["output"], "Echo: hello");
}

fn write(path: &Path, file: &Value) {
    let other = path.with_extension("new");
    std::fs::write(&other, file.to_string()).unwrap();
    std::fs::rename(other, path).unwrap();
}

#[test]
fn what_is_named_holds_and_what_is_required_always() {
    let rule = |topic: &'static str| [("blocked_topics", "contains", topic)];
    let policies = [
        policy("gp_one", "critical", &rule("apples")),
        policy("gp_two", "critical", &rule("pears")),
        policy("gp_three", "critical", &rule("plums")),
    ];
    let mounted = Mounted::new(&json!({"policies": policies, "default": ["gp_one"], "required": ["gp_three", "gp_gone"]}));
    let own = json!([policy("gp_own", "critical", &rule("cherries"))]).to_string();
    for (named, held) in [
        ("", &["apples", "plums"][..]),
        (r#"["gp_two"]"#, &["pears", "plums"]),
        (r#"["gp_two", "default"]"#, &["apples", "pears", "plums"]),
        (own.as_str(), &["plums", "cherries"]),
    ] {
        let runtime = Runtime::with(&[("RUNTIME_POLICIES_FILE", mounted.path().to_str().unwrap()), ("RUNTIME_POLICIES", named)]);
        for topic in ["apples", "pears", "plums", "cherries"] {
            let answer = runtime.chat(&json!({"message": format!("some {topic}")}));
            assert_eq!(answer["stop_reason"] == "guard", held.contains(&topic), "{named}: {answer}");
        }
    }
}

#[test]
fn what_cannot_be_read_of_the_variables_is_refused_at_start() {
    for (policies, expected) in [
        (r#"["gp_a"]"#, "RUNTIME_POLICIES names the policy `gp_a`, and RUNTIME_POLICIES_FILE is not set"),
        ("{}", "RUNTIME_POLICIES is not a JSON array"),
        (
            r#"[{"id": "gp_a", "severity": "critical", "rules": [{"type": "max_tokens", "operator": "in", "value": "1"}]}]"#,
            "it takes lt or lte",
        ),
    ] {
        let ended =
            binary().env("RUNTIME_POLICIES", policies).env("RUNTIME_GUARDS", r#"["pii"]"#).env("RUNTIME_PORT", "0").output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(2) && said.contains(expected) && said.contains("unknown guard `pii`"), "{said}");
    }
}

/// `cargo test --release -p slipway-runtime --test runtime -- --ignored --nocapture first_byte`.
#[test]
#[ignore = "measures time"]
fn what_holding_back_does_to_the_first_byte() {
    let model = Model::start();
    let fragments = vec!["some words of an answer "; 100];
    model.says(&fragments);
    model.pauses(10);
    for severity in ["warning", "critical"] {
        let runtime = agent(&model, &[("RUNTIME_POLICIES", &whole(&[policy("gp_topics", severity, &[TOPICS])]))]);
        let mut times: Vec<(Duration, Duration)> = (0..9)
            .map(|_| {
                let mut stream = runtime.connect();
                let body = json!({"message": "Tell me a story."}).to_string();
                let began = Instant::now();
                stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
                let (mut seen, mut first, mut bytes) = (String::new(), None, [0; 4096]);
                loop {
                    let count = stream.read(&mut bytes).unwrap();
                    if count == 0 {
                        return (first.unwrap(), began.elapsed());
                    }
                    seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
                    if first.is_none() && seen.contains(r#""token""#) {
                        first = Some(began.elapsed());
                    }
                }
            })
            .collect();
        times.sort_unstable();
        eprintln!("{severity}: first token after {:?}, the whole answer after {:?}", times[4].0, times[4].1);
    }
}
