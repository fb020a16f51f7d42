//! A team of more agents than a page has.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Team, until};

const AGENTS: usize = 120;

#[test]
fn more_than_a_hundred_agents_are_listed_page_by_page() {
    let kinds = ["agents.agents.slipway.dev", "configmaps", "services", "deployments.apps"];
    let quota: Value = kinds.iter().map(|kind| (format!("count/{kind}"), json!("500"))).collect();
    let team = Team::with("api-hundred", &json!({"quota": quota}));
    let mut names: Vec<String> = (0..AGENTS).map(|at| format!("helper-{at}")).collect();
    let manifest = |name: &String| Agent { team: &team, name: name.clone() }.manifest(&json!({"suspend": true, "storage": "memory"}));
    let items: Vec<Value> = names.iter().map(manifest).collect();
    team.kubectl("create -f -").input(json!({"apiVersion": "v1", "kind": "List", "items": items})).ok();
    let version = until(&format!("agents -n {}", team.namespace), 120, |agents| {
        let seen = agents.iter().filter(|agent| agent["status"]["phase"] == "Terminated").count();
        let versions = agents.iter().filter_map(|agent| agent["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok());
        versions.max().filter(|_| seen == AGENTS).ok_or(format!("{seen} of {AGENTS} agents have been looked at"))
    });

    let api = Api::start(&[]);
    let token = team.token("viewer");
    let page = |query: &str| {
        let call = api.call("GET", &format!("/agents{query}")).token(&token).header("X-Resource-Version", version.to_string());
        let page = call.expect(200);
        (page["data"].as_array().unwrap().clone(), page["next_cursor"].as_str().map(str::to_owned))
    };
    names.sort();
    let whole = |agents: &[Value]| {
        let mut listed: Vec<&str> = agents.iter().filter_map(|agent| agent["slug"].as_str()).collect();
        let made: Vec<&str> = agents.iter().filter_map(|agent| agent["created_at"].as_str()).collect();
        assert!(made.is_sorted_by(|one, next| one >= next), "the newest come first: {made:?}");
        listed.sort_unstable();
        assert_eq!(listed, names, "each once");
    };
    let (all, next) = page("?limit=500");
    whole(&all);
    assert_eq!(next, None);
    for (query, sizes) in [("?", vec![100, 20]), ("?limit=50", vec![50, 50, 20]), ("?limit=60", vec![60, 60])] {
        let (mut agents, mut found, mut cursor) = (Vec::new(), Vec::new(), String::new());
        loop {
            let (data, next) = page(&format!("{query}{cursor}"));
            found.push(data.len());
            agents.extend(data);
            let Some(next) = next else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, sizes, "{query}");
        assert_eq!(agents, all, "{query}");
    }
    let (found, _) = page("?search=helper-119");
    assert_eq!(found.iter().map(|agent| &agent["slug"]).collect::<Vec<_>>(), ["helper-119"]);
}
