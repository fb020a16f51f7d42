//! http tools over real sockets: the requests at the server, and the outcomes for the model.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_api::contract::ToolConfig;
use slipway_tools::{Context, ToolOutcome, ToolSettings, Toolbox, TraceContext};
use tokio::sync::watch;

use crate::echo::Echo;

fn config(port: u16, endpoint: &str, mut more: Value) -> ToolConfig {
    let mut config = json!({
        "name": "t", "type": "http", "category": "general", "endpoint": format!("http://127.0.0.1:{port}{endpoint}"), "timeout": 5,
    });
    config.as_object_mut().unwrap().append(more.as_object_mut().unwrap());
    serde_json::from_value(config).unwrap()
}

fn open(config: ToolConfig, limit: usize) -> Toolbox {
    let settings = ToolSettings { allow: vec!["127.0.0.0/8".parse().unwrap()], output_limit: limit, ..ToolSettings::default() };
    let variables = |name: &str| (name == "TOKEN").then(|| "Bearer hunter2".to_owned());
    Toolbox::open(vec![config], Vec::new(), settings, &variables).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn soon() -> Context {
    Context::until(tokio::time::Instant::now() + Duration::from_secs(20))
}

fn parameters(list: &[(&str, &str, bool)]) -> Value {
    list.iter().map(|(name, type_, required)| json!({"name": name, "type": type_, "required": required})).collect()
}

#[tokio::test]
async fn arguments_arrive_in_path_query_or_body() {
    let echo = Echo::start("200 OK\r\nContent-Type: text/plain", b"fine").await;
    let declared = parameters(&[("city", "string", true), ("days", "integer", false), ("note", "string", false)]);
    let given = json!({"city": "a/../b?x=1", "days": "3", "note": "ä&b"});
    for (method, line, body) in [
        ("GET", "GET /w/a%2F..%2Fb%3Fx%3D1?k=1&days=3&note=%C3%A4%26b HTTP/1.1", ""),
        ("DELETE", "DELETE /w/a%2F..%2Fb%3Fx%3D1?k=1&days=3&note=%C3%A4%26b HTTP/1.1", ""),
        ("HEAD", "HEAD /w/a%2F..%2Fb%3Fx%3D1?k=1&days=3&note=%C3%A4%26b HTTP/1.1", ""),
        ("POST", "POST /w/a%2F..%2Fb%3Fx%3D1?k=1 HTTP/1.1", r#"{"days":3,"note":"ä&b"}"#),
        ("PUT", "PUT /w/a%2F..%2Fb%3Fx%3D1?k=1 HTTP/1.1", r#"{"days":3,"note":"ä&b"}"#),
        ("PATCH", "PATCH /w/a%2F..%2Fb%3Fx%3D1?k=1 HTTP/1.1", r#"{"days":3,"note":"ä&b"}"#),
    ] {
        let toolbox = open(config(echo.port, "/w/{city}?k=1", json!({"method": method, "parameters": declared})), 1000);
        let outcome = toolbox.call("t", given.clone(), &soon()).await;
        assert!(!outcome.is_error, "{method}: {outcome:?}");
        let request = echo.last();
        assert_eq!(request.lines().next(), Some(line));
        let sent = request.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(sent, body, "{method}");
        assert_eq!(request.to_lowercase().contains("content-type: application/json"), !body.is_empty(), "{method}");
    }
}

#[tokio::test]
async fn headers_secrets_and_trace_are_sent_and_no_secret_is_told() {
    let echo = Echo::start("200 OK\r\nContent-Type: text/plain", b"fine").await;
    let more = json!({"headers": {"X-Kind": "a"}, "headersFrom": {"Authorization": "TOKEN"}});
    let toolbox = open(config(echo.port, "/", more), 1000);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let outcome = toolbox
        .call("t", Value::Null, &soon().with_trace(TraceContext { parent: Some(trace.into()), state: Some("vendor=1".into()) }))
        .await;
    assert_eq!(outcome, ToolOutcome::ok("fine"));
    let request = echo.last().to_lowercase();
    for header in [
        "x-kind: a",
        "authorization: bearer hunter2",
        &format!("traceparent: {trace}"),
        "tracestate: vendor=1",
        "user-agent: slipway-runtime/",
    ] {
        assert!(request.contains(header), "{header} is not in {request}");
    }
    drop(echo);
    let outcome = toolbox.call("t", Value::Null, &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("could not be reached") && !outcome.content.contains("hunter2"), "{outcome:?}");
}

#[tokio::test]
async fn logins_arrive_as_their_scheme_says_and_are_told_to_nobody() {
    let variables = |name: &str| match name {
        "PASSWORD" => Some("hunter2\n".to_owned()),
        "USER" => Some("ada".to_owned()),
        _ => None,
    };
    for (auth, expected) in [
        (json!({"scheme": "bearer", "secret": "PASSWORD"}), "Bearer hunter2"),
        (json!({"scheme": "basic", "secret": "PASSWORD", "user": "USER"}), "Basic YWRhOmh1bnRlcjI="),
    ] {
        let echo = Echo::start("200 OK\r\nContent-Type: text/plain", b"fine").await;
        let config = config(echo.port, "/", json!({"auth": {"Authorization": auth}}));
        let settings = ToolSettings { allow: vec!["127.0.0.0/8".parse().unwrap()], output_limit: 1000, ..ToolSettings::default() };
        let toolbox = Toolbox::open(vec![config], Vec::new(), settings, &variables).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(toolbox.call("t", Value::Null, &soon()).await, ToolOutcome::ok("fine"));
        let request = echo.last();
        let sent: Vec<_> = request.lines().filter_map(|line| line.split_once(": ")).collect();
        assert!(sent.iter().any(|(name, value)| name.eq_ignore_ascii_case("authorization") && *value == expected), "{request}");
        drop(echo);
        let outcome = toolbox.call("t", Value::Null, &soon()).await;
        assert!(outcome.is_error && outcome.content.contains("could not be reached"), "{outcome:?}");
        assert!(!outcome.content.contains("hunter2") && !outcome.content.contains("YWRh"), "{outcome:?}");
    }
}

#[tokio::test]
async fn what_comes_back_is_told_by_kind_and_status() {
    for (head, body, error, expected) in [
        ("200 OK\r\nContent-Type: application/json", &b"{\"a\":1}"[..], false, "{\"a\":1}"),
        ("200 OK\r\nContent-Type: text/plain; charset=iso-8859-1", b"Z\xfcrich", false, "Zürich"),
        ("200 OK", b"plain", false, "plain"),
        ("200 OK", b"\0\x01\x02", false, "[data of no declared type, 3 bytes: not text, so it is not shown]"),
        ("200 OK\r\nContent-Type: image/png", b"12345", false, "[image/png, 5 bytes: not text, so it is not shown]"),
        (
            "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip",
            b"12345",
            false,
            "[text/plain, 5 bytes: not text, so it is not shown]",
        ),
        ("204 No Content", b"", false, "HTTP 204 No Content, without a body"),
        ("404 Not Found\r\nContent-Type: text/plain", b"no such city", true, "HTTP 404 Not Found\n\nno such city"),
        ("503 Service Unavailable", b"", true, "HTTP 503 Service Unavailable, without a body"),
        ("429 Too Many Requests\r\nContent-Type: application/json", b"{}", true, "HTTP 429 Too Many Requests\n\n{}"),
    ] {
        let echo = Echo::start(head, body).await;
        let outcome = open(config(echo.port, "/", json!({})), 1000).call("t", json!({}), &soon()).await;
        assert_eq!(outcome, ToolOutcome { content: expected.into(), is_error: error, truncated: false }, "{head}");
    }
}

#[tokio::test]
async fn mistakes_of_the_model_do_not_reach_the_server() {
    let echo = Echo::start("200 OK", b"fine").await;
    let toolbox =
        open(config(echo.port, "/u/{id}", json!({"method": "DELETE", "parameters": parameters(&[("id", "string", false)])})), 1000);
    for (arguments, expected) in [
        (json!({}), "t was not called: id: is required (a string)"),
        (json!({"id": ""}), "id: must not be empty"),
        (json!({"id": ".."}), "id: must not be . or .."),
        (json!({"id": "1", "x": 1}), "t was not called: x: there is no such argument; there are: id"),
    ] {
        let outcome = toolbox.call("t", arguments.clone(), &soon()).await;
        assert_eq!(outcome, ToolOutcome::error(expected), "{arguments}");
    }
    assert_eq!(echo.requests(), 0);
    let outcome = toolbox.call("u", json!({}), &soon()).await;
    assert_eq!(outcome, ToolOutcome::error("there is no tool 'u' at the moment; there are: t"));
}

#[tokio::test]
async fn redirects_on_the_same_host_are_followed_with_their_headers() {
    let echo = Echo::start("302 Found\r\nLocation: /there?q=1", b"").await;
    let toolbox = open(config(echo.port, "/here", json!({"headersFrom": {"Authorization": "TOKEN"}})), 1000);
    let outcome = toolbox.call("t", json!({}), &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("redirects more than 3 times"), "{outcome:?}");
    assert_eq!(echo.requests(), 4);
    assert!(echo.last().starts_with("GET /there?q=1 ") && echo.last().to_lowercase().contains("authorization: bearer hunter2"));

    let elsewhere = Echo::start("200 OK", b"secret").await;
    let head = Box::leak(format!("307 Temporary Redirect\r\nLocation: http://127.0.0.1:{}/", elsewhere.port).into_boxed_str());
    let echo = Echo::start(head, b"").await;
    let toolbox = open(config(echo.port, "/", json!({"headersFrom": {"Authorization": "TOKEN"}})), 1000);
    let outcome = toolbox.call("t", json!({}), &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("redirects to another place"), "{outcome:?}");
    assert_eq!(elsewhere.requests(), 0);
}

#[tokio::test]
async fn a_body_without_end_is_cut_and_the_connection_dropped() {
    let echo = Echo::endless("200 OK\r\nContent-Type: text/plain", "ä".as_bytes()).await;
    let started = Instant::now();
    let outcome = open(config(echo.port, "/", json!({})), 1001).call("t", json!({}), &soon()).await;
    assert!(outcome.truncated && !outcome.is_error, "{outcome:?}");
    assert!(
        outcome.content.starts_with(&"ä".repeat(500)) && outcome.content.ends_with("\n[cut here: only the first 1001 bytes were read]")
    );
    assert!(started.elapsed() < Duration::from_secs(4));
    echo.hung_up().await;
}

#[tokio::test]
async fn time_and_patience_have_limits() {
    let echo = Echo::silent().await;
    let toolbox = open(config(echo.port, "/", json!({"timeout": 1})), 1000);
    let started = Instant::now();
    let outcome = toolbox.call("t", json!({}), &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("took longer than its time limit"), "{outcome:?}");
    assert!(started.elapsed() >= Duration::from_secs(1) && started.elapsed() < Duration::from_secs(4));

    let deadline = Context::until(tokio::time::Instant::now() + Duration::from_millis(100));
    let outcome = toolbox.call("t", json!({}), &deadline).await;
    assert!(outcome.is_error && outcome.content.contains("took longer"), "{outcome:?}");

    let (cancel, cancelled) = watch::channel(false);
    let context = soon().with_cancelled(cancelled);
    let (outcome, ()) = tokio::join!(toolbox.call("t", json!({}), &context), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.send(true).unwrap();
    });
    assert_eq!(outcome, ToolOutcome::error("t was cancelled"));
}

#[test]
fn what_cannot_work_is_refused_with_tool_and_field() {
    let settings = ToolSettings::default;
    for (more, expected) in [
        (json!({"endpoint": "https://{host}/"}), "tool t: endpoint: scheme, host and port must hold neither placeholders nor backslashes"),
        (json!({"endpoint": "https://a.example/{x}"}), "tool t: endpoint: the placeholder {x} is not declared in parameters"),
        (json!({"endpoint": null}), "tool t: endpoint: is required for a tool of type http"),
        (json!({"headersFrom": {"Authorization": "MISSING"}}), "tool t: headersFrom: Authorization: the variable MISSING is not set"),
        (json!({"headers": {"Host": "x"}}), "tool t: headers: Host belongs to the connection and cannot be set"),
        (json!({"name": "a b"}), "tool a b: name: must have 1 to 64 letters, digits, - and _"),
        (
            json!({"type": "builtin", "name": "nothing"}),
            "tool nothing: name: no builtin has this name; there are: calculator, datetime, http_fetch, memory, search",
        ),
        (json!({"type": "builtin", "name": "search"}), "tool search: name: needs RUNTIME_SEARCH_URL"),
        (json!({"type": "mcp", "mcpEndpoint": "http://127.0.0.1/mcp"}), "tool t: mcpEndpoint: 127.0.0.1 is not reachable for tools"),
        (json!({"type": "mcp", "mcpEndpoint": "http://me:pw@a.example/"}), "tool t: mcpEndpoint: http://a.example must be"),
        (json!({"type": "mcp"}), "tool t: mcpEndpoint: is not a URL"),
    ] {
        let Err(errors) = Toolbox::open(vec![config(1, "/", more.clone())], Vec::new(), settings(), &|_| None) else {
            panic!("{more} was accepted");
        };
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].to_string().starts_with(expected), "{}", errors[0]);
    }
    let twice = vec![config(1, "/", json!({})), config(2, "/", json!({}))];
    let errors = Toolbox::open(twice, Vec::new(), settings(), &|_| None).err().unwrap();
    assert!(errors[0].to_string().starts_with("tool t: name: is taken by another tool"), "{errors:?}");
}

#[tokio::test]
async fn a_configured_proxy_carries_everything_and_addresses_stay_refused() {
    let proxy = Echo::start("200 OK\r\nContent-Type: text/plain", b"by proxy").await;
    let settings = || ToolSettings { proxy: Some(format!("http://127.0.0.1:{}", proxy.port).parse().unwrap()), ..ToolSettings::default() };
    let to =
        |endpoint: &str| Toolbox::open(vec![config(1, "/", json!({"endpoint": endpoint}))], Vec::new(), settings(), &|_| None).unwrap();
    let outcome = to("http://api.example.com/x?y=1").call("t", json!({}), &soon()).await;
    assert_eq!(outcome, ToolOutcome::ok("by proxy"));
    assert!(proxy.last().starts_with("GET http://api.example.com/x?y=1 "), "{}", proxy.last());
    for endpoint in ["http://127.0.0.1/", "http://169.254.169.254/", "http://metadata.google.internal/"] {
        let outcome = to(endpoint).call("t", json!({}), &soon()).await;
        assert!(outcome.is_error && outcome.content.contains("is not reachable for tools"), "{outcome:?}");
    }
    assert_eq!(proxy.requests(), 1);
}
