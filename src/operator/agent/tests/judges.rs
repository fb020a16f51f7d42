//! Two judges of one Tool: whatever the API server lets through, the operator and the runtime say the same of it. And the
//! runtime is given each secret under a name of its own.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use slipway_tools::Toolbox;

use super::*;

const PARAMETERS: [&str; 5] = ["a", "b", "c-1", "command", "arguments"];

fn words(words: &'static [&'static str], many: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    prop::collection::vec(select(words), many).prop_map(|words| words.concat())
}

fn parameters() -> impl Strategy<Value = Value> {
    let some = prop::sample::subsequence(&PARAMETERS[..], 0..3);
    some.prop_map(|names| names.into_iter().map(|name| json!({"name": name, "type": "string"})).collect())
}

fn headers() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        select(vec!["Host", "TE", "Accept", "Content-Type", "Mcp-Session-Id", "x-a", "-"]).prop_map(str::to_owned),
        "[A-Za-z0-9-]{1,6}",
    ];
    let name = name.prop_filter("refused by a rule", |name| !name.eq_ignore_ascii_case("cookie"));
    prop::collection::btree_map(name, "[ -~\\t]{0,8}|[ -~é\\x00-\\x09\\x7f]{0,3}", 0..3).prop_map(|headers| json!(headers))
}

fn secrets() -> impl Strategy<Value = Value> {
    let names = prop::collection::btree_set("[Xx]-[Aa]|Host|accept|[A-Za-z0-9-]{1,4}", 0..3);
    names.prop_map(|names| names.into_iter().map(|name| json!({"name": name, "secret": "s", "key": "k"})).collect())
}

/// Tools that pass the schema and the rules of the CRD.
fn tools() -> impl Strategy<Value = Value> {
    const HOST: &[&str] = &["a", "example", ".", ":", "8", "99999", "\\", "[::1]", "é", "%", "xn--", "-", "\u{b}", "*", "<", "\u{ad}", "_"];
    const TAIL: &[&str] = &[
        "/", "?", "#", "&", "=", ".", "..", "%2e", "%2", "%", "x", "é", "\\", "\u{b}", "\u{0}", "\u{a0}", "@", ":", "//", "{}", "{}", "'",
        "\"",
    ];
    const WORDS: &[&str] = &[
        "df",
        "-h",
        " ",
        " ",
        "*",
        "...",
        ".",
        "'",
        "\"",
        "`",
        "{a}",
        "{b}",
        "{",
        "}",
        "{}",
        "{c-1}",
        "--x=",
        "\t",
        "é",
        "\u{0}",
        "x x x x x x x x x x x x ",
    ];
    const FIXED: &[&str] = &["true", "-h", " ", " ", ".", "'", "\"", "--x=", "\t", "é", "\u{0}", "x x x x x x x x x x x x "];
    let usual = words(&["a.example"], 1..2);
    let begun = || words(&["/", "?", "#"], 0..2);
    let http = (prop_oneof![usual, words(HOST, 1..4)], begun(), words(TAIL, 0..8), parameters(), headers(), secrets()).prop_map(
        |(host, begun, tail, parameters, headers, secrets)| {
            // A rule of the CRD: each placeholder is declared.
            let first = parameters[0]["name"].as_str().map(|name| format!("{{{name}}}")).unwrap_or_default();
            let tail = if begun.is_empty() { String::new() } else { tail.replace("{}", &first) };
            let endpoint = format!("https://{host}{begun}{tail}");
            json!({"type": "http", "endpoint": endpoint, "parameters": parameters, "headers": headers, "headersFrom": secrets})
        },
    );
    let mcp = (words(HOST, 1..4), begun(), words(&["/", "x", "?", "é", "@", ":", "%", "\\"], 0..4), headers(), secrets()).prop_map(
        |(host, begun, tail, headers, secrets)| {
            let tail = if begun.is_empty() { String::new() } else { tail };
            json!({"type": "mcp", "mcpEndpoint": format!("https://{host}{begun}{tail}"), "headers": headers, "headersFrom": secrets})
        },
    );
    let binary = || select(vec!["/proc/self/exe", "/bin/bash", "/proc/../proc/self/exe", "/proc/./self/exe", "/usr/bin/env"]);
    let named = |entry: &String| !entry.is_empty();
    let cli = (binary(), prop::option::of(prop::collection::vec(words(WORDS, 1..8).prop_filter("", named), 0..4)), parameters()).prop_map(
        |(binary, commands, parameters)| json!({"type": "cli", "binary": binary, "allowedCommands": commands, "parameters": parameters}),
    );
    let server = (binary(), prop::collection::vec(words(FIXED, 1..10).prop_filter("", named), 0..2)).prop_filter_map(
        "* and ...",
        |(binary, commands)| {
            let varies = commands.iter().any(|entry| entry.split_whitespace().any(|word| matches!(word, "*" | "...")));
            (!varies).then(|| json!({"type": "cli", "protocol": "mcp", "binary": binary, "allowedCommands": commands}))
        },
    );
    prop_oneof![3 => http, 1 => mcp, 2 => cli, 1 => server].prop_map(|mut tool| {
        tool["name"] = "t".into();
        // An absent field and an empty one are the same, and rules ask for the former.
        let map = tool.as_object_mut().unwrap();
        map.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
        tool
    })
}

proptest! {
    #[test]
    fn of_any_tool_the_operator_says_what_the_runtime_says(tool in tools()) {
        let spec: slipway_api::ToolSpec = serde_json::from_value(tool.clone()).unwrap();
        let judged = crate::tool_rules::fault(&spec).map(|fault| fault.message);
        let mut config = tool;
        let from: BTreeMap<&str, &str> = spec.headers_from.iter().map(|header| (header.name.as_str(), "TOKEN")).collect();
        config["headersFrom"] = json!(from);
        config["category"] = "general".into();
        config["timeout"] = 30.into();
        let configs: Vec<contract::ToolConfig> = serde_json::from_str(&json!([config]).to_string()).unwrap();
        // The operator's platform may allow more than nothing: where servers lie is judged elsewhere.
        let everywhere = ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap()).to_vec();
        let settings = slipway_tools::ToolSettings { allow: everywhere, ..slipway_tools::ToolSettings::default() };
        let opened = Toolbox::open(configs, Vec::new(), settings, &|_| Some("secret".to_owned())).map(drop);
        prop_assert_eq!(judged.is_none(), opened.is_ok(), "{}: {:?}, {:?}", config, judged, opened);
    }

    #[test]
    fn every_secret_of_a_tool_has_a_variable_of_its_own(tools in prop::collection::btree_map("a|a-b|a-x|b", prop::collection::btree_set("[BbXx]|[Bb]-[Xx]|X-B", 0..4), 1..4)) {
        let mut yaml = agent(&format!("tools: [{}]", tools.keys().cloned().collect::<Vec<_>>().join(", ")));
        let mut expected = BTreeSet::new();
        for (name, headers) in &tools {
            let mut distinct = BTreeSet::new();
            let headers: Vec<&String> = headers.iter().filter(|header| distinct.insert(header.to_lowercase())).collect();
            expected.extend(headers.iter().map(|header| (name.clone(), (*header).clone())));
            let from: Vec<String> = headers.iter().map(|header| format!("{{name: {header}, secret: s, key: k-{name}-{header}}}")).collect();
            yaml += &tool(name, &format!("name: {name}, type: http, endpoint: 'https://a.example/', headersFrom: [{}]", from.join(", ")));
        }
        let data: Vec<String> = expected.iter().map(|(name, header)| format!("k-{name}-{header}: eA==")).collect();
        let readable = slipway_api::labels::AGENT_READABLE;
        let data = data.join(", ");
        yaml.extend(["---\nkind: Secret\nmetadata: {name: s, labels: {", readable, ": 'true'}}\ndata: {", &data, "}\n"]);
        let plan = plan(&yaml, &settings(None));
        let mut found = BTreeSet::new();
        let configs: Vec<contract::ToolConfig> = serde_json::from_str(&plan.variables[contract::TOOLS]).unwrap();
        for (config, (header, variable)) in configs.iter().flat_map(|config| config.headers_from.iter().map(move |from| (config, from))) {
            let keys: Vec<&str> = plan.env.iter().filter_map(|known| match known {
                crate::agent::resolve::Variable::Secret { name, key, .. } if name == variable => Some(key.as_str()),
                _ => None,
            }).collect();
            prop_assert_eq!(keys, [&*format!("k-{}-{header}", config.name)], "{}", variable);
            found.insert((config.name.clone(), header.clone()));
        }
        prop_assert_eq!(found, expected);
    }
}
