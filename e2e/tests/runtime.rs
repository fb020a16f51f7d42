//! The whole on the cluster: an Agent with tools, memory and PostgreSQL, asked through its Service.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, condition, poll};

fn get(agent: &Agent, path: &str) -> Value {
    let reply = poll(10, || {
        slipway_e2e::http(&agent.team.namespace, &agent.name, 8000, path, None).map_err(|error| format!("GET {path}: {error}"))
    });
    assert_eq!(reply.status, 200, "GET {path}: {reply:?}");
    reply.json()
}

fn scripted<'a>(team: &'a Team, name: &str) -> Agent<'a> {
    team.tool("calculator", &json!({"type": "builtin"}));
    team.tool("memory", &json!({"type": "builtin"}));
    team.skill("refunds", &json!({"name": "refunds", "instructions": "Ask for the order number."}));
    let agent = team.agent(
        name,
        &json!({
            "modelId": "stub-script", "strategy": "agent-react", "tools": ["calculator", "memory"], "skills": ["refunds"],
            "storage": "postgresql", "governance": {"guards": ["pii-detection"]},
            "suggestionsProvider": "static", "suggestions": "[\"And then?\"]",
        }),
    );
    agent.ready();
    agent
}

#[test]
fn tools_skills_memory_and_guards_work_in_a_pod() {
    let team = Team::new("whole");
    let agent = scripted(&team, "helper");
    assert!(agent.chat("call calculator {\"expression\": \"6*7\"}\n\ntext {results}").contains("42"));
    assert!(agent.chat("call load_skill {\"name\": \"refunds\"}\n\ntext {results}").contains("Ask for the order number."));
    assert_eq!(agent.chat("text write to ada@example.org"), "write to [EMAIL]");
    agent.post("/memory", &json!({"content": "Ada likes green tea", "category": "preference"}));
    let found = agent.post("/memory/search", &json!({"query": "what does she drink?", "top_k": 1})).json();
    assert_eq!(found["results"][0]["content"], "Ada likes green tea", "found by meaning, with the model in the image: {found}");
    assert_eq!(get(&agent, "/suggestions"), json!({"suggestions": ["And then?"]}));
    let completion = agent.post("/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "text hello"}]})).json();
    assert_eq!(completion["choices"][0]["message"]["content"], "hello");
}

/// The pod is killed without warning while it answers.
#[test]
fn a_conversation_outlives_its_pod() {
    let team = Team::new("outlive");
    let agent = scripted(&team, "helper");
    let first = agent.post("/chat", &json!({"message": "text the first answer", "conversation_id": "conv_1"})).json();
    assert_eq!(first["output"], "the first answer");
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| {
            let body = json!({"message": "sleep 100\ntokens 300", "conversation_id": "conv_1"});
            slipway_e2e::http(&team.namespace, "helper", 8000, "/chat/stream", Some(&body))
        });
        poll(20, || {
            let status = get(&agent, "/conversations/conv_1/status");
            let begun = status["generating"] == true && status["partial"].as_str().is_some_and(|text| !text.is_empty());
            if begun { Ok(()) } else { Err(format!("an answer should be under way: {status}")) }
        });
        team.kubectl("delete pod -l agents.slipway.dev/agent=helper --force --grace-period=0").ok();
        // However the stream ends, it does not end well.
        assert!(!matches!(cut.join().unwrap(), Ok(reply) if reply.body.contains("\"type\":\"done\"")));
    });
    agent.ready();
    let kept = get(&agent, "/conversations/conv_1");
    let said: Vec<_> = kept["messages"].as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(&said[..3], ["text the first answer", "the first answer", "sleep 100\ntokens 300"], "{kept:#}");
    // The lease of the answer that nobody finishes runs out, and the conversation goes on.
    poll(60, || {
        let reply = agent.post("/chat", &json!({"message": "text and on", "conversation_id": "conv_1"}));
        if reply.status == 200 { Ok(()) } else { Err(format!("the conversation should go on: {reply:?}")) }
    });
}

/// Two teams, one database: each has a login of its own, which sees its own rows only.
#[test]
fn a_teams_login_is_not_the_platforms() {
    let team = Team::new("login-pod");
    scripted(&team, "helper");
    let template = "go-template={{range .data}}{{. | base64decode}}{{println}}{{end}}";
    let secret = team.kubectl("get secret slipway-runtime -o").arg(template).ok();
    assert!(secret.contains("slipway_team_"), "a role of the team's own");
    assert!(!secret.contains("//postgres:"), "the platform's login is nobody else's");
    let agent = team.kubectl("get agent helper").json();
    assert_eq!(condition(&agent, "Ready")["status"], "True");
}
