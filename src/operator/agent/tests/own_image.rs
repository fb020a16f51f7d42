//! What the platform's own image takes: operator and runtime judge tools, models and guards alike, and some variables are the platform's or
//! the agent's word alone.

use super::*;

/// Every guard that an Agent can name, with and without its limit, is one that the runtime knows by that setting.
#[test]
fn the_runtime_understands_every_guard() {
    let all = "pii-detection, secrets-scanner, prompt-injection, blocked-topics, max-tokens, rate-limit, spend-limit";
    let limits = "limits: {maxTokensPerRequest: 9, requestsPerMinute: 60, dailyCostUsd: '2.50', blockedTopics: [weapons]}";
    for governance in [format!("guards: [{all}]"), format!("guards: [{all}], {limits}")] {
        let plan = plan(&agent(&format!("governance: {{{governance}}}")), &settings(None));
        let text = &plan.variables["RUNTIME_GUARDS"];
        let guards = slipway_guards::Guards::read(text, "[]");
        assert!(guards.is_ok_and(|guards| !guards.is_empty()), "{text}");
    }
    assert!(!plan(&agent("governance: {}"), &settings(None)).variables.contains_key("RUNTIME_GUARDS"));
}

#[test]
fn only_the_platforms_own_image_is_told_of_its_embedding_model() {
    let mut settings = settings(None);
    settings.platform.embedding_model = Some("builtin:m".to_owned());
    let told = |spec: &str| plan(&agent(spec), &settings).variables.contains_key("RUNTIME_EMBEDDING_MODEL");
    assert!(told("replicas: 1") && told("image: 'slipway.dev/slipway-runtime:1'") && !told("image: other"));
}

const SKILL: &str = "---
kind: Skill
metadata: {name: s, generation: 1}
spec: {name: s, description: d, instructions: i}
status: {phase: Available, observedGeneration: 1, digest: d}
";

#[test]
fn what_our_own_image_would_refuse_is_a_fault_and_of_another_nothing_is_known() {
    let (memory, remember) = (tool("m", "name: memory, type: builtin"), tool("r", "name: remember, type: builtin"));
    let server = |url: &str| tool("m", &format!("name: m, type: mcp, mcpEndpoint: '{url}'"));
    let cases = [
        (
            "tools: [clock]",
            tool("clock", "name: clock, type: builtin"),
            "ToolInvalid",
            "spec.tools[0]: Tool clock: spec.name: the runtime has no builtin clock; there are calculator, datetime, http_fetch, memory, search",
        ),
        (
            "tools: [s]",
            tool("s", "name: search, type: builtin"),
            "ToolInvalid",
            "Tool s: spec.name: search needs a search server, and the platform names none (chart value agents.searchUrl)",
        ),
        ("tools: [r]", remember.clone(), "ToolInvalid", "remember comes with the builtin memory"),
        ("tools: [l]", tool("l", "name: load_skill, type: builtin"), "ToolInvalid", "load_skill comes with skills"),
        (
            "tools: [l], skills: [s]",
            tool("l", "name: load_skill, type: http, endpoint: 'https://a.example/'") + SKILL,
            "ToolInvalid",
            "a Tool of type http needs another name",
        ),
        (
            "tools: [a, b]",
            tool("a", "name: t, type: http, endpoint: 'https://a.example/'")
                + &tool("b", "name: t, type: http, endpoint: 'https://b.example/'"),
            "ToolInvalid",
            "spec.tools[1]: Tool b: spec.name: t is the name of another tool",
        ),
        ("tools: [m]", server("http://localhost:8080/mcp"), "ToolInvalid", "spec.mcpEndpoint: localhost is not reachable for tools"),
        ("tools: [m]", server("http://10.1.2.3/mcp"), "ToolInvalid", "the chart value agents.egressAllow"),
        (
            "modelId: gpt-5",
            String::new(),
            "InvalidModel",
            "spec.modelId: the provider stub has no model gpt-5; it has stub-echo and stub-script",
        ),
        ("backgroundModel: 'stub:parrot'", String::new(), "InvalidModel", "spec.backgroundModel"),
        ("evalSampleRate: 1, judgeModel: 'stub:/parrot'", String::new(), "InvalidModel", "spec.judgeModel"),
    ];
    for (spec, others, reason, says) in &cases {
        let found = fault(&format!("{}{others}", agent(spec)), &settings(None));
        assert_eq!(found.reason, *reason, "{}", found.message);
        assert!(found.message.contains(says), "{spec}: {}", found.message);
        plan(&format!("{}{others}", agent(&format!("{spec}, image: other"))), &settings(None));
    }
    let named = "image: 'slipway.dev/slipway-runtime:1'";
    assert_eq!(fault(&agent(&format!("strategy: custom, {named}")), &settings(None)).reason, "InvalidStrategy");
    plan(&agent("strategy: custom, image: other"), &settings(None));

    let mut configured = settings(None);
    configured.platform.search_url = Some("http://searxng:8080/search".to_owned());
    configured.platform.egress_allow = vec!["10.0.0.0/8".to_owned()];
    for (spec, others) in [
        ("tools: [s]", tool("s", "name: search, type: builtin")),
        ("tools: [m]", server("http://10.1.2.3/mcp")),
        ("tools: [m]", server("http://mcp.team-a.svc/mcp")),
        ("tools: [m, r]", memory + &remember),
        ("tools: [l], skills: [s]", tool("l", "name: load_skill, type: builtin") + SKILL),
        ("tools: [l]", tool("l", "name: load_skill, type: http, endpoint: 'https://a.example/'")),
        ("tools: [c]", tool("c", "name: calculator, type: http, endpoint: 'https://a.example/'")),
        ("tools: [c]", tool("c", "name: clock, type: builtin, enabled: false")),
    ] {
        plan(&format!("{}{others}", agent(spec)), &configured);
    }
}

/// One table, two judges: of a Tool by itself, the operator says nothing else than the runtime.
#[test]
fn the_runtime_takes_the_tools_that_the_operator_lets_through_and_no_others() {
    for spec in [
        "name: t, type: http, endpoint: 'https://a.example/x?y=1#z'",
        "name: t, type: http, endpoint: 'https://a.example:99999/'",
        "name: t, type: http, endpoint: 'https://a.example/x/%2e./y'",
        "name: t, type: http, endpoint: 'https://a.example/.x/..y/'",
        "name: t, type: http, endpoint: 'https://a.example/{c}'",
        "name: t, type: http, endpoint: 'https://a b/'",
        "name: t, type: http, endpoint: 'https://a.example/', headers: {host: x}",
        "name: t, type: http, endpoint: 'https://a.example/', headers: {Content-Type: text/plain}",
        "name: t, type: mcp, mcpEndpoint: 'https://a.example/', headers: {Content-Type: text/plain}",
        "name: t, type: mcp, mcpEndpoint: 'https://a.example/', headers: {X-Kind: a}",
        "name: t, type: mcp, mcpEndpoint: 'https://a.example:99999/'",
        "name: t, type: mcp, mcpEndpoint: 'http://169.254.169.254/'",
        "name: t, type: mcp, mcpEndpoint: 'http://[::1]:80/'",
        "name: t, type: mcp, mcpEndpoint: 'http://metadata.google.internal/'",
        "name: clock, type: builtin",
        "name: datetime, type: builtin",
        "name: search, type: builtin",
        "name: t, type: cli, binary: /bin/bash, allowedCommands: [-c]",
        "name: t, type: cli, binary: /proc/../proc/self/exe, allowedCommands: [-c]",
        "name: t, type: cli, binary: /proc/self/exe",
        "name: t, type: cli, binary: /proc/self/exe, allowedCommands: [--help]",
        "name: t, type: cli, binary: /proc/self/exe, protocol: mcp",
    ] {
        let yaml = agent("tools: [t]") + &tool("t", spec);
        let judged = match resolved(&yaml, &settings(None)) {
            Resolved::Plan(_) => Ok(()),
            Resolved::Fault(fault) => Err(fault.message),
            Resolved::Unknown(what) => panic!("{spec}: waits for {what}"),
        };
        // The runtime is given what the operator would give an image that it does not judge.
        let mut config = serde_yaml::from_str::<Value>(&format!("{{{spec}}}")).unwrap();
        let more = serde_json::json!({"category": "general", "timeout": 30, "parameters": []});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config = serde_json::from_value(config).unwrap();
        let opened = slipway_tools::Toolbox::open(vec![config], Vec::new(), slipway_tools::ToolSettings::default(), &|_| None);
        assert_eq!(judged.is_ok(), opened.is_ok(), "{spec}: {judged:?}, {:?}", opened.err());
    }
}

#[test]
fn the_stub_has_the_models_that_the_operator_lets_through() {
    for id in contract::STUB_MODELS {
        assert!(slipway_models::open(slipway_models::Provider::Stub, id, &|_| None).is_ok(), "{id}");
    }
    let refused = slipway_models::open(slipway_models::Provider::Stub, "other", &|_| None).err().unwrap();
    assert!(refused.message().ends_with(&contract::STUB_MODELS.join(" and ")), "what it lists is all it has: {}", refused.message());
}

/// A Secret of the team comes first, and the ConfigMap or the container itself decides, also where there is nothing to allow.
#[test]
fn ways_out_are_the_platforms_word_alone_and_an_empty_one_restarts_nobody() {
    let ways = ["RUNTIME_EGRESS_ALLOW", "RUNTIME_EGRESS_PROXY", "RUNTIME_SEARCH_URL"];
    let mut settings = settings(None);
    let told = |settings: &Settings| {
        let plan = plan(&agent("replicas: 1"), settings);
        let container = build::build(&plan).deployment.spec.unwrap().template.spec.unwrap().containers.remove(0);
        let explicit = |name: &str| {
            container.env.iter().flatten().find(|variable| variable.name == name).map(|variable| variable.value.clone().unwrap_or_default())
        };
        ways.map(|name| plan.variables.get(name).cloned().or_else(|| explicit(name)).unwrap())
    };
    let hash = |settings: &Settings| {
        let template = build::build(&plan(&agent("replicas: 1"), settings)).deployment.spec.unwrap().template;
        template.metadata.unwrap().annotations.unwrap().remove("agents.slipway.dev/config-hash")
    };
    assert_eq!(told(&settings), ["", "", ""]);
    let before = hash(&settings);
    settings.platform.egress_proxy = Some("http://proxy:3128".to_owned());
    let proxied = hash(&settings);
    settings.platform.search_url = Some("https://search.example.com/search".to_owned());
    assert_eq!(told(&settings), ["", "http://proxy.slipway-system.svc.cluster.local:3128", "https://search.example.com/search"]);
    assert!(before != proxied && proxied != hash(&settings), "what is configured reaches pods that run");
}

/// A Secret of the team may hold any name, and gives an evaluator each that its container does not set.
#[test]
fn an_evaluator_has_no_variable_of_the_contract_from_a_secret() {
    // The worker's, which the runtime does not read, and the file of a judge's login.
    let others = [contract::KNOWLEDGE_URL, contract::INGESTION, contract::PROBE, contract::GOOGLE_APPLICATION_CREDENTIALS];
    let settings = everything();
    let plan = plan(&agent("image: other"), &settings);
    let container = build::evaluator_pod(&plan, &settings, None, true).containers.remove(0);
    let set: Vec<&str> = container.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    for name in contract::ALL {
        let times = set.iter().filter(|set| *set == name).count();
        assert_eq!(times, usize::from(!others.contains(name)), "{name} is in one list of the contract, or has a value of its own");
    }
}

/// What an Agent does not name, a Secret of the team cannot give it.
#[test]
fn guards_and_policies_are_the_agents_own_word_alone() {
    for (spec, guards, policies) in [
        ("replicas: 1", Some(""), Some("")),
        ("governance: {guards: [pii-detection]}", None, Some("")),
        ("governance: {riskProfile: high}", Some(""), Some("")),
    ] {
        let plan = plan(&agent(spec), &settings(None));
        let container = build::build(&plan).deployment.spec.unwrap().template.spec.unwrap().containers.remove(0);
        let explicit = |name: &str| {
            container.env.iter().flatten().find(|variable| variable.name == name).map(|variable| variable.value.clone().unwrap_or_default())
        };
        for (name, expected) in [("RUNTIME_GUARDS", guards), ("RUNTIME_POLICIES", policies)] {
            assert_eq!(explicit(name).as_deref(), expected, "{name}: {spec}");
            assert_eq!(plan.variables.contains_key(name), expected.is_none(), "{name}: {spec}");
        }
    }
}

#[test]
fn sampling_is_told_where_answers_are_stored_and_a_judge_alone_restarts_nobody() {
    let names = ["RUNTIME_EVAL_SAMPLE_RATE", "RUNTIME_EVAL_SAMPLES_PER_DAY", "RUNTIME_RISK_PROFILE", "RUNTIME_JUDGE_MODEL"];
    let (memory, stored) = (settings(None), everything());
    let sampled = |profile, judge| [Some("5"), Some("500"), Some(profile), judge];
    for (spec, settings, expected) in [
        ("evalSampleRate: 5", &stored, sampled("standard", None)),
        ("evalSampleRate: 5, governance: {riskProfile: medium}", &stored, sampled("standard", None)),
        (
            "evalSampleRate: 5, judgeModel: 'stub:/stub-echo', governance: {riskProfile: high}",
            &stored,
            sampled("high", Some("stub:/stub-echo")),
        ),
        ("evalSampleRate: 5, judgeModel: 'stub:/stub-echo'", &memory, [None; 4]),
        ("evalSampleRate: 5, storage: memory", &stored, [None; 4]),
        ("evalSampleRate: 0, judgeModel: 'stub:/stub-echo'", &stored, [None; 4]),
        ("judgeModel: 'stub:/stub-echo', governance: {riskProfile: high}", &stored, [None; 4]),
    ] {
        let plan = plan(&agent(spec), settings);
        assert_eq!(names.map(|name| plan.variables.get(name).map(String::as_str)), expected, "{spec}");
    }
}
