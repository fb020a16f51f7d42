//! mcp tools with third-party servers: the reference server over all three transports, a server in Python, and servers that
//! stop, restart, or change.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_api::contract::ToolConfig;
use slipway_tools::{Context, Program, ToolOutcome, ToolSettings, Toolbox};

use crate::echo::Echo;

fn config(name: &str, url: &str, timeout: u64) -> ToolConfig {
    serde_json::from_value(json!({
        "name": name, "type": "mcp", "category": "general", "mcpEndpoint": url, "timeout": timeout,
        "headers": {"X-Kind": "a"}, "headersFrom": {"Authorization": "TOKEN"},
    }))
    .unwrap()
}

fn program(name: &str, argv: &[String]) -> Program {
    Program { name: name.into(), binary: PathBuf::from(&argv[0]), arguments: argv[1..].to_vec(), timeout: Duration::from_mins(1) }
}

fn open(configs: Vec<ToolConfig>, programs: Vec<Program>) -> Toolbox {
    open_approved(configs, programs, None)
}

fn open_approved(configs: Vec<ToolConfig>, programs: Vec<Program>, approved: Option<BTreeMap<String, String>>) -> Toolbox {
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    let settings = ToolSettings { allow, output_limit: 4000, approved, ..ToolSettings::default() };
    let variables = |name: &str| (name == "TOKEN").then(|| "Bearer hunter2".to_owned());
    Toolbox::open_with_programs(configs, programs, Vec::new(), settings, &variables).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn soon() -> Context {
    Context::until(tokio::time::Instant::now() + Duration::from_mins(1))
}

async fn names(toolbox: &Toolbox) -> Vec<String> {
    toolbox.specs().await.into_iter().map(|spec| spec.name).collect()
}

/// The tools and answers of the reference server, over any transport.
async fn holds_for_everything(toolbox: &Toolbox) {
    let specs: BTreeMap<String, Value> = toolbox.specs().await.into_iter().map(|spec| (spec.name, spec.schema)).collect();
    assert_eq!(specs["ev_get-sum"]["type"], "object", "{specs:?}");
    for (tool, arguments, expected) in [
        ("ev_echo", json!({"message": "grüezi"}), ToolOutcome::ok("Echo: grüezi")),
        ("ev_get-sum", json!({"a": 2, "b": 40}), ToolOutcome::ok("The sum of 2 and 40 is 42.")),
        // A number in quotes, as some models send it; the server itself would refuse it.
        ("ev_get-sum", json!({"a": "2", "b": 40.0}), ToolOutcome::ok("The sum of 2 and 40 is 42.")),
        (
            "ev_get-structured-content",
            json!({"location": "Chicago"}),
            ToolOutcome::ok(r#"{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}"#),
        ),
        (
            "ev_get-structured-content",
            json!({"location": "Bern"}),
            ToolOutcome::error(
                "ev_get-structured-content was not called: location: must be one of \"New York\", \"Chicago\", \"Los Angeles\"",
            ),
        ),
        ("ev_echo", json!({}), ToolOutcome::error("ev_echo was not called: message: is required (a string)")),
    ] {
        assert_eq!(toolbox.call(tool, arguments.clone(), &soon()).await, expected, "{tool} {arguments}");
    }
    let image = toolbox.call("ev_get-tiny-image", json!({}), &soon()).await;
    assert!(image.content.contains("[image, image/png, ") && !image.content.contains("iVBOR"), "{image:?}");
    let resource = toolbox.call("ev_get-resource-reference", json!({"resourceType": "Text", "resourceId": 1}), &soon()).await;
    assert!(resource.content.contains("[resource demo://resource/dynamic/text/1]\n"), "{resource:?}");
    let links = toolbox.call("ev_get-resource-links", json!({"count": 2}), &soon()).await;
    assert!(links.content.contains("[link to the resource demo://"), "{links:?}");
    let digests = toolbox.digests();
    assert!(digests["ev"].starts_with("sha256:"), "{digests:?}");
}

#[tokio::test]
async fn the_reference_server_over_streamable_http() {
    let server = slipway_peers::everything();
    let toolbox = open(vec![config("ev", server.url(), 60)], Vec::new());
    assert_eq!(toolbox.digests(), BTreeMap::new());
    holds_for_everything(&toolbox).await;
}

#[tokio::test]
async fn a_server_of_the_2024_transport_is_left_out() {
    let server = slipway_peers::everything_sse();
    let toolbox = open(vec![config("ev", server.url(), 60)], Vec::new());
    assert_eq!(names(&toolbox).await, [""; 0]);
    let outcome = toolbox.call("ev_echo", json!({"message": "x"}), &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("there is no tool 'ev_echo' at the moment"), "{outcome:?}");
}

#[tokio::test]
async fn the_reference_server_as_a_program() {
    let toolbox = open(Vec::new(), vec![program("ev", &slipway_peers::everything_stdio())]);
    holds_for_everything(&toolbox).await;
    // The program sees nothing of our environment.
    let environment = toolbox.call("ev_get-env", json!({}), &soon()).await;
    let environment: BTreeMap<String, String> = serde_json::from_str(&environment.content).unwrap();
    assert!(!environment.contains_key("CARGO_PKG_NAME") && environment["PATH"] == "/usr/bin:/bin", "{environment:?}");
}

#[tokio::test]
async fn all_transports_of_one_server_have_one_digest() {
    let http = slipway_peers::everything();
    let programs = vec![program("stdio", &slipway_peers::everything_stdio())];
    let toolbox = open(vec![config("http", http.url(), 60)], programs);
    toolbox.specs().await;
    let digests = toolbox.digests();
    assert_eq!(digests.len(), 2, "{digests:?}");
    assert_eq!(digests["http"], digests["stdio"]);
}

#[tokio::test]
async fn the_time_server_as_a_program() {
    let toolbox = open(Vec::new(), vec![program("time", &slipway_peers::mcp_time())]);
    assert_eq!(names(&toolbox).await, ["time_convert_time", "time_get_current_time"]);
    let arguments = json!({"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Kolkata"});
    let outcome = toolbox.call("time_convert_time", arguments, &soon()).await;
    assert!(!outcome.is_error && outcome.content.contains("Asia/Kolkata"), "{outcome:?}");
    let outcome = toolbox.call("time_get_current_time", json!({"timezone": "Mars/Olympus"}), &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("Mars/Olympus"), "{outcome:?}");
}

fn spoken(binary: &str, commands: &Value, more: &Value) -> ToolConfig {
    let mut config = json!({
        "name": "time", "type": "cli", "category": "general", "binary": binary, "allowedCommands": commands, "protocol": "mcp", "timeout": 60,
    });
    config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    serde_json::from_value(config).unwrap()
}

#[tokio::test]
async fn a_cli_tool_that_speaks_mcp_is_a_server() {
    let argv = slipway_peers::mcp_time();
    let command = [&argv[1..], &["--local-timezone=Pacific/Chatham".to_owned()]].concat().join(" ");
    let toolbox = open(vec![spoken(&argv[0], &json!([command]), &json!({}))], Vec::new());
    assert_eq!(names(&toolbox).await, ["time_convert_time", "time_get_current_time"]);
    let specs = toolbox.specs().await;
    assert!(specs[1].schema.to_string().contains("Pacific/Chatham"), "the arguments should have reached it: {specs:?}");
    let arguments = json!({"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Kolkata"});
    let outcome = toolbox.call("time_convert_time", arguments, &soon()).await;
    assert!(!outcome.is_error && outcome.content.contains("Asia/Kolkata"), "{outcome:?}");
    assert!(toolbox.digests()["time"].starts_with("sha256:"));
}

#[test]
fn a_program_that_speaks_mcp_is_started_one_way_only() {
    let text = json!([{"name": "zone", "type": "string"}]);
    for (binary, commands, more, expected) in [
        ("/nowhere/server", json!([]), json!({}), "tool time: binary: '/nowhere/server' is not there"),
        ("/bin/sh", json!(["-c server"]), json!({}), "tool time: binary: '/bin/sh' runs whatever it is told"),
        ("/usr/bin/true", json!(["a", "b"]), json!({}), "tool time: allowedCommands: has 2 entries"),
        ("/usr/bin/true", json!(["serve *"]), json!({}), "tool time: allowedCommands: 'serve *': a program that speaks mcp"),
        ("/usr/bin/true", json!(["serve ..."]), json!({}), "tool time: allowedCommands: 'serve ...': a program that speaks mcp"),
        ("/usr/bin/true", json!(["serve {zone}"]), json!({}), "tool time: allowedCommands: 'serve {zone}': a program that speaks mcp"),
        ("/usr/bin/true", json!(["serve {"]), json!({}), "tool time: allowedCommands: 'serve {': a placeholder is not closed"),
        ("/usr/bin/true", json!([]), json!({"parameters": text}), "tool time: parameters: a program that speaks mcp"),
    ] {
        let errors = Toolbox::open(vec![spoken(binary, &commands, &more)], Vec::new(), ToolSettings::default(), &|_| None).err().unwrap();
        assert!(errors.len() == 1 && errors[0].to_string().starts_with(expected), "{errors:?}");
    }
    for commands in [json!([]), json!(["true --serve"]), json!(null)] {
        assert!(
            Toolbox::open(vec![spoken("/usr/bin/true", &commands, &json!({}))], Vec::new(), ToolSettings::default(), &|_| None).is_ok()
        );
    }
}

#[tokio::test]
async fn a_changed_list_is_shown_and_changes_the_digest() {
    let toolbox = open(Vec::new(), vec![program("ch", &slipway_peers::changing_server())]);
    assert_eq!(names(&toolbox).await, ["ch_learn", "ch_leave", "ch_shout", "ch_surroundings"]);
    let before = toolbox.digests();
    assert_eq!(toolbox.call("ch_learn", json!({"name": "trick"}), &soon()).await.content, "learnt");
    let started = Instant::now();
    while !names(&toolbox).await.contains(&"ch_trick".to_owned()) {
        assert!(started.elapsed() < Duration::from_secs(10), "the new tool never showed up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_ne!(toolbox.digests(), before);
    assert_eq!(toolbox.call("ch_trick", json!({}), &soon()).await, ToolOutcome::ok("this is trick"));

    let much = toolbox.call("ch_shout", json!({"count": 100_000}), &soon()).await;
    assert!(much.truncated && much.content.len() < 4100, "{} bytes", much.content.len());
    // A line without end is not buffered, and the call ends.
    let context = Context::until(tokio::time::Instant::now() + Duration::from_secs(5));
    let outcome = toolbox.call("ch_shout", json!({"count": 10_000_000}), &context).await;
    assert!(outcome.is_error, "{} bytes", outcome.content.len());

    let outcome = toolbox.call("ch_leave", json!({}), &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("whether the call was carried out is not known"), "{outcome:?}");
    assert_eq!(toolbox.call("ch_shout", json!({"count": 3}), &soon()).await, ToolOutcome::ok("xxx"));
    assert!(!names(&toolbox).await.contains(&"ch_trick".to_owned()), "a new process has the old list");
}

/// One server and several toolboxes, like several processes of an agent.
#[tokio::test]
async fn where_lists_are_approved_a_changed_one_is_withheld() {
    let address = SocketAddr::from(([127, 0, 0, 1], slipway_peers::free_port()));
    let url = format!("http://{address}/mcp");
    let _server = slipway_peers::changing_server_at(address);
    let open = |pinned: Option<&String>, approved: Option<&String>| {
        let tools_digest = pinned.cloned();
        let approved = approved.map(|digest| ("ch".to_owned(), digest.clone())).into_iter().collect();
        open_approved(vec![ToolConfig { tools_digest, ..config("ch", &url, 60) }], Vec::new(), Some(approved))
    };
    let old = ["ch_learn", "ch_leave", "ch_shout", "ch_surroundings"];

    let first = open(None, None);
    assert_eq!((names(&first).await, first.changes()), (old.map(str::to_owned).into(), BTreeMap::new()));
    let before = first.digests()["ch"].clone();
    assert_eq!(first.call("ch_learn", json!({"name": "trick"}), &soon()).await.content, "learnt");
    let started = Instant::now();
    while first.digests()["ch"] == before {
        assert!(started.elapsed() < Duration::from_secs(10), "the new list was never heard of");
        assert_eq!(names(&first).await, old, "a tool that nobody approved is not shown");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let after = first.digests()["ch"].clone();
    assert_eq!(names(&first).await, old);
    assert_eq!(first.changes()["ch"].added, ["trick"]);
    assert!(first.call("ch_trick", json!({}), &soon()).await.is_error, "nor is it called");
    assert_eq!(first.call("ch_shout", json!({"count": 2}), &soon()).await, ToolOutcome::ok("xx"), "what is unchanged goes on");

    // Processes that start after the change.
    for (pinned, approved, expected) in [
        (None, Some(&before), 0),
        (Some(&before), Some(&after), 0),
        (Some(&after), Some(&before), 5),
        (None, Some(&after), 5),
        (None, None, 5),
    ] {
        let toolbox = open(pinned, approved);
        assert_eq!(names(&toolbox).await.len(), expected, "{pinned:?} {approved:?}");
        assert_eq!((toolbox.digests()["ch"].as_str(), toolbox.changes().is_empty()), (after.as_str(), expected == 5));
    }
    let approved = open(Some(&after), None);
    assert_eq!(approved.call("ch_trick", json!({}), &soon()).await, ToolOutcome::ok("this is trick"));
}

fn everything_on(port: u16) -> slipway_peers::Server {
    let argv = slipway_peers::everything_stdio();
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..argv.len() - 1]).arg("streamableHttp").env("PORT", port.to_string());
    slipway_peers::Server::start(command, &format!("http://127.0.0.1:{port}/mcp"))
}

// Starting a server blocks a thread; another one has to notice meanwhile that the old server has closed the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_is_left_out_and_comes_back() {
    let port = slipway_peers::free_port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let steady: ToolConfig =
        serde_json::from_value(json!({"name": "calculator", "type": "builtin", "category": "general", "timeout": 5})).unwrap();
    let toolbox = open(vec![config("ev", &url, 60), steady], Vec::new());
    let echo = async || toolbox.call("ev_echo", json!({"message": "x"}), &soon()).await;

    assert_eq!(names(&toolbox).await, ["calculator"]);
    let outcome = echo().await;
    assert!(outcome.is_error && outcome.content.contains("there is no tool 'ev_echo' at the moment"), "{outcome:?}");
    assert_eq!(toolbox.call("calculator", json!({"expression": "6*7"}), &soon()).await, ToolOutcome::ok("42"));

    let server = everything_on(port);
    let started = Instant::now();
    while !names(&toolbox).await.contains(&"ev_echo".to_owned()) {
        assert!(started.elapsed() < Duration::from_secs(20), "the server was not asked again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(echo().await, ToolOutcome::ok("Echo: x"));

    // A restart between two calls loses the session: the next call starts a new one.
    drop(server);
    let server = everything_on(port);
    assert_eq!(echo().await, ToolOutcome::ok("Echo: x"));

    drop(server);
    // The closed connection is noticed.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let outcome = echo().await;
    assert!(outcome.is_error && outcome.content.starts_with("the server of ev is not available"), "{outcome:?}");
}

#[tokio::test]
async fn a_long_call_ends_at_its_limit_and_the_connection_lives_on() {
    let server = slipway_peers::everything();
    let toolbox = open(vec![config("ev", server.url(), 60)], Vec::new());
    assert!(!toolbox.call("ev_echo", json!({"message": "x"}), &soon()).await.is_error);
    let context = Context::until(tokio::time::Instant::now() + Duration::from_millis(500));
    let started = Instant::now();
    let outcome = toolbox.call("ev_trigger-long-running-operation", json!({"duration": 30, "steps": 1}), &context).await;
    assert!(outcome.is_error && outcome.content.contains("took longer than its time limit"), "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(toolbox.call("ev_echo", json!({"message": "y"}), &soon()).await, ToolOutcome::ok("Echo: y"));
}

#[tokio::test]
async fn headers_are_sent_and_what_is_no_mcp_server_is_left_out() {
    for head in [
        "404 Not Found",
        "401 Unauthorized\r\nWWW-Authenticate: Bearer",
        "500 Oops",
        "200 OK\r\nContent-Type: text/html",
        "302 Found\r\nLocation: http://example.com/",
    ] {
        let echo = Echo::start(head, b"<html>").await;
        let toolbox = open(vec![config("no", &format!("http://127.0.0.1:{}/mcp?key=hunter3", echo.port), 5)], Vec::new());
        assert_eq!(names(&toolbox).await, [""; 0], "{head}");
        let request = echo.last().to_lowercase();
        assert!(request.contains("authorization: bearer hunter2") && request.contains("x-kind: a"), "{head}: {request}");
        let outcome = toolbox.call("no_x", json!({}), &soon()).await;
        assert!(outcome.is_error && !outcome.content.contains("hunter"), "{head}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_costs_no_more_than_its_timeout() {
    let echo = Echo::silent().await;
    let toolbox = open(vec![config("no", &format!("http://127.0.0.1:{}/mcp", echo.port), 1)], Vec::new());
    let started = Instant::now();
    assert_eq!(names(&toolbox).await, [""; 0]);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    // During the backoff, calls fail at once: asking it again would take a wait for a second.
    let started = Instant::now();
    names(&toolbox).await;
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
}

#[test]
fn the_protocols_own_conformance_suite_is_content() {
    // Cargo builds examples along with the tests, beside them.
    let client = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/conformance");
    assert!(client.exists(), "{} is not there: build the example", client.display());
    for scenario in ["initialize", "tools_call", "sse-retry"] {
        let argv = slipway_peers::conformance();
        let content = (0..3).any(|_| {
            let folder = tempfile::TempDir::new().unwrap();
            let mut suite = Command::new(&argv[0]);
            suite.args(&argv[1..]).args(["client", "--scenario", scenario, "--command"]).arg(&client).current_dir(folder.path());
            let output = suite.output().unwrap();
            let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            // On a busy machine a client may reconnect later than the 200 ms that the suite allows.
            assert!(output.status.success() || said.contains(" late ("), "{scenario}: {said}");
            output.status.success()
        });
        assert!(content, "{scenario}: it was late each time");
    }
}
