//! Property tests of `RUNTIME_TOOLS` with arbitrary values in the fields of Tools.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

use super::*;

const SECRET: &str = "hunter2";

/// One valid tool of each type.
fn samples() -> Vec<Value> {
    let parameters = json!([{"name": "city", "type": "string", "required": true}, {"name": "days", "type": "integer"}]);
    vec![
        json!({"name": "weather", "type": "http", "category": "general", "endpoint": "https://api.example.com/w/{city}?d={days}",
            "method": "POST", "headers": {"X-Kind": "a"}, "headersFrom": {"Authorization": "TOKEN"}, "parameters": parameters, "timeout": 30}),
        json!({"name": "disk", "type": "cli", "category": "general", "binary": "/bin/true", "allowedCommands": ["-h {city} {days}", "true"],
            "parameters": parameters, "timeout": 30}),
        json!({"name": "wiki", "type": "mcp", "category": "general", "mcpEndpoint": "https://mcp.example.com/mcp", "timeout": 30,
            "headersFrom": {"Authorization": "TOKEN"}, "toolsDigest": format!("sha256:{}", "0".repeat(64))}),
        json!({"name": "server", "type": "cli", "protocol": "mcp", "category": "general", "binary": "/bin/true", "allowedCommands": ["serve"], "timeout": 30}),
        json!({"name": "calculator", "type": "builtin", "category": "general", "timeout": 30}),
    ]
}

/// Valid and invalid values of a field.
fn field_values() -> impl Strategy<Value = Value> {
    let words = vec![
        "",
        " ",
        "x",
        "a b",
        "..",
        "/bin/../bin/true",
        "/bin/sh",
        "true *",
        "...",
        "* x",
        "{",
        "}",
        "{}",
        "{city}",
        "{city",
        "'q'",
        "https://",
        "http://me:pw@a.example/",
        "https://{city}.example/",
        "https://a.example/{city}{days}",
        "https://a.example\\{city}",
        "https://a.example/%2e%2e/",
        "ftp://a/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "https://a.example:99999/",
        "Host",
        "x-a",
        "é",
        "a\r\nb: c",
        "\u{0}",
        "TOKEN",
        "BROKEN",
        "weather",
        "calculator",
        "mcp",
        "arguments",
        "command",
        "HEAD",
        "sha256:",
    ];
    prop_oneof![
        6 => select(words).prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
        1 => select(vec![json!(null), json!(0), json!(-1), json!(i32::MAX), json!(true), json!([]), json!({}), json!("x".repeat(70))]),
        1 => prop::collection::vec("[a-z{}* .-]{0,8}", 0..3).prop_map(|list| json!(list)),
        1 => prop::collection::btree_map("[A-Za-z-]{0,6}|Host|Accept", "[ -~]{0,5}|TOKEN|\\PC", 0..3).prop_map(|map| json!(map)),
    ]
}

proptest! {
    #[test]
    fn any_tools_are_opened_or_refused_with_their_names(
        picked in prop::collection::vec(any::<Index>(), 1..4),
        edits in prop::collection::vec((any::<Index>(), select(vec![
            "name", "type", "endpoint", "method", "headers", "headersFrom", "parameters", "binary", "allowedCommands", "protocol", "mcpEndpoint", "toolsDigest",
            "timeout", "description",
        ]), field_values()), 0..4),
    ) {
        let samples = samples();
        let mut tools: Vec<Value> = picked.iter().map(|index| index.get(&samples).clone()).collect();
        for (tool, field, value) in edits {
            let at = tool.index(tools.len());
            tools[at][field] = value;
        }
        let Ok(configs) = serde_json::from_str::<Vec<ToolConfig>>(&Value::from(tools).to_string()) else { return Ok(()) };
        let names: Vec<String> = configs.iter().map(|config| config.name.clone()).collect();
        let variables = |name: &str| match name {
            "TOKEN" => Some(format!("Bearer {SECRET}\n")),
            "BROKEN" => Some(format!("{SECRET}\n{SECRET}")),
            _ => None,
        };
        match Toolbox::open(configs, Builtins::new(), ToolSettings::default(), &variables) {
            Ok(toolbox) => {
                prop_assert_eq!(toolbox.tools.len() + toolbox.servers.len(), names.len());
                for tool in toolbox.tools.values() {
                    prop_assert!(tool.spec.schema["type"] == "object" && tool.spec.schema["properties"].is_object(), "{}", tool.spec.schema);
                    prop_assert!((1..=64).contains(&tool.spec.name.len()) && tool.timeout <= Duration::from_hours(1));
                }
            }
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for refusal in errors {
                    prop_assert!(names.contains(&refusal.tool), "{}", refusal);
                    prop_assert!(!refusal.to_string().contains(SECRET), "{}", refusal);
                }
            }
        }
    }
}

#[test]
fn a_call_may_belong_to_the_servers_whose_name_it_begins_with() {
    let server =
        |name: &str| json!({"name": name, "type": "mcp", "category": "general", "mcpEndpoint": "https://mcp.example.com/", "timeout": 5});
    let own =
        json!({"name": "git_log", "type": "cli", "category": "general", "binary": "/bin/true", "allowedCommands": ["true"], "timeout": 5});
    let configs = serde_json::from_value(json!([server("git"), server("git_hub"), own])).unwrap();
    let toolbox = Toolbox::open(configs, Vec::new(), ToolSettings::default(), &|_| None).unwrap_or_else(|errors| panic!("{errors:?}"));
    let long = "x".repeat(64);
    for (call, servers) in [
        ("git_push", &["git"][..]),
        ("git_hub_list", &["git", "git_hub"]),
        ("git_log", &[]),
        ("git", &[]),
        ("github_list", &[]),
        // Names that were cut may have lost the end of their server's.
        (long.as_str(), &["git", "git_hub"]),
    ] {
        assert_eq!(toolbox.possible_servers(call), servers, "{call}");
    }
}

#[tokio::test]
async fn http_tools_only_read_by_their_method_and_programs_never() {
    let http = |name: &str, method: Value| json!({"name": name, "type": "http", "category": "general", "endpoint": "https://api.example.com/", "method": method, "timeout": 5});
    let tools = json!([
        http("unsaid", Value::Null),
        http("get", json!("GET")),
        http("head", json!("HEAD")),
        http("post", json!("POST")),
        http("delete", json!("DELETE")),
        {"name": "disk", "type": "cli", "category": "general", "binary": "/bin/true", "allowedCommands": ["true"], "timeout": 5},
        {"name": "calculator", "type": "builtin", "category": "general", "timeout": 5},
        {"name": "http_fetch", "type": "builtin", "category": "general", "timeout": 5},
    ]);
    let configs = serde_json::from_value(tools).unwrap();
    let toolbox = Toolbox::open(configs, Vec::new(), ToolSettings::default(), &|_| None).unwrap_or_else(|errors| panic!("{errors:?}"));
    for (tool, reads) in [
        ("unsaid", Some(true)),
        ("get", Some(true)),
        ("head", Some(true)),
        ("post", Some(false)),
        ("delete", Some(false)),
        ("disk", Some(false)),
        ("calculator", Some(true)),
        ("http_fetch", Some(true)),
        ("nothing", None),
    ] {
        assert_eq!(toolbox.only_reads(tool).await, reads, "{tool}");
    }
}
