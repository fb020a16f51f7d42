//! Builtin tools in a toolbox, with those of the runtime.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_api::contract::ToolConfig;
use slipway_tools::{Builtin, Builtins, Context, Spec, ToolOutcome, ToolSettings, Toolbox};

use crate::echo::Echo;

fn config(name: &str, description: Option<&str>) -> ToolConfig {
    serde_json::from_value(json!({"name": name, "type": "builtin", "category": "general", "description": description, "timeout": 1}))
        .unwrap()
}

fn open(configs: Vec<ToolConfig>, builtins: Builtins, settings: ToolSettings) -> Toolbox {
    Toolbox::open(configs, builtins, settings, &|_| None).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn local() -> ToolSettings {
    ToolSettings { allow: vec!["127.0.0.0/8".parse().unwrap()], output_limit: 500, ..ToolSettings::default() }
}

fn soon() -> Context {
    Context::until(tokio::time::Instant::now() + Duration::from_secs(20))
}

struct Memory {
    delay: Duration,
}

impl Builtin for Memory {
    fn spec(&self) -> Spec {
        let schema =
            json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"], "additionalProperties": false});
        Spec { name: "memory".into(), description: "Remembers.".into(), schema }
    }

    fn call<'a>(&'a self, arguments: Value) -> Pin<Box<dyn Future<Output = ToolOutcome> + Send + 'a>> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            ToolOutcome::ok("m".repeat(usize::try_from(arguments["count"].as_u64().unwrap()).unwrap()))
        })
    }
}

#[tokio::test]
async fn the_runtimes_own_are_there_with_and_without_a_tool() {
    let memory = |delay| -> Builtins { vec![Box::new(Memory { delay })] };
    let toolbox = open(Vec::new(), memory(Duration::ZERO), local());
    assert_eq!(toolbox.specs().await[0].description, "Remembers.");
    assert_eq!(toolbox.call("memory", json!({"count": "3"}), &soon()).await, ToolOutcome::ok("mmm"));
    assert_eq!(
        toolbox.call("memory", json!({}), &soon()).await,
        ToolOutcome::error("memory was not called: count: is required (an integer)")
    );
    let cut = toolbox.call("memory", json!({"count": 5000}), &soon()).await;
    assert!(cut.truncated && cut.content.len() < 600, "{cut:?}");

    let http =
        serde_json::from_value(json!({"name": "memory", "type": "http", "category": "x", "endpoint": "https://a.example/", "timeout": 1}));
    let errors = Toolbox::open(vec![http.unwrap()], memory(Duration::ZERO), local(), &|_| None).err().unwrap();
    assert!(errors[0].to_string().starts_with("tool memory: name: belongs to a builtin"), "{errors:?}");

    let toolbox = open(vec![config("memory", Some("Mine."))], memory(Duration::from_secs(9)), local());
    let specs = toolbox.specs().await;
    assert_eq!((specs.len(), specs[0].description.as_str()), (1, "Mine."));
    let late = toolbox.call("memory", json!({"count": 1}), &soon()).await;
    assert!(late.is_error && late.content.contains("took longer than its time limit"), "{late:?}");
}

#[tokio::test]
async fn time_and_arithmetic_need_nothing() {
    let toolbox = open(vec![config("calculator", None), config("datetime", None)], Vec::new(), ToolSettings::default());
    assert_eq!(toolbox.call("calculator", json!({"expression": "2^52 + 1"}), &soon()).await, ToolOutcome::ok("4503599627370497"));
    assert_eq!(toolbox.call("calculator", json!({"expression": "1/0"}), &soon()).await, ToolOutcome::error("expression: divides by zero"));
    let time = toolbox.call("datetime", json!({"timezone": "Europe/Zurich", "time": "2026-01-01T00:00:00Z"}), &soon()).await;
    assert!(time.content.starts_with("2026-01-01T01:00:00+01:00\nThursday"), "{time:?}");
}

#[tokio::test]
async fn pages_are_fetched_as_text_and_only_from_where_tools_may_go() {
    let page = Echo::start(
        "200 OK\r\nContent-Type: text/html; charset=utf-8",
        "<title>T</title><script>x</script><p>Grüezi &amp; hello".as_bytes(),
    )
    .await;
    let url = json!({"url": format!("http://127.0.0.1:{}/a?b=c", page.port)});
    let toolbox = open(vec![config("http_fetch", None)], Vec::new(), local());
    assert_eq!(toolbox.call("http_fetch", url.clone(), &soon()).await, ToolOutcome::ok("T\n\nGrüezi & hello"));
    assert!(page.last().starts_with("GET /a?b=c "), "{}", page.last());

    let strict = open(vec![config("http_fetch", None)], Vec::new(), ToolSettings::default());
    let outcome = strict.call("http_fetch", url, &soon()).await;
    assert!(outcome.is_error && outcome.content.starts_with("url: 127.0.0.1 is not reachable for tools"), "{outcome:?}");
    assert_eq!(page.requests(), 1);
    for url in ["http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "file:///etc/passwd", "nonsense"] {
        let outcome = strict.call("http_fetch", json!({"url": url}), &soon()).await;
        assert!(outcome.is_error && outcome.content.starts_with("url: "), "{url}: {outcome:?}");
    }
    let missing = Echo::start("404 Not Found\r\nContent-Type: text/html", b"<h1>Gone</h1>").await;
    let outcome = toolbox.call("http_fetch", json!({"url": format!("http://127.0.0.1:{}/", missing.port)}), &soon()).await;
    assert_eq!(outcome, ToolOutcome::error("HTTP 404 Not Found\n\n# Gone"));
}

#[tokio::test]
async fn searches_go_to_the_configured_server() {
    // The fields are those of SearXNG's search API with format=json.
    let answer = br#"{"query": "q", "number_of_results": 2, "results": [
        {"title": "One", "url": "https://one.example/", "content": "First\nline", "engine": "x", "score": 1.0},
        {"title": null, "url": "https://two.example/"}]}"#;
    let server = Echo::start("200 OK\r\nContent-Type: application/json", answer).await;
    let search = format!("http://127.0.0.1:{}/search?language=de", server.port);
    // The server is private; its configuration is an egress exception.
    let settings = ToolSettings { search: Some(search.parse().unwrap()), ..ToolSettings::default() };
    let toolbox = open(vec![config("search", None)], Vec::new(), settings);
    let outcome = toolbox.call("search", json!({"query": "a b&c", "page": "2"}), &soon()).await;
    assert_eq!(outcome, ToolOutcome::ok("1. One\n   https://one.example/\n   First line\n2. (no title)\n   https://two.example/"));
    assert!(server.last().starts_with("GET /search?language=de&q=a+b%26c&format=json&pageno=2 "), "{}", server.last());
    drop(server);
    let outcome = toolbox.call("search", json!({"query": "x"}), &soon()).await;
    assert!(outcome.is_error && outcome.content.contains("could not be reached"), "{outcome:?}");

    let server = Echo::start("403 Forbidden", b"").await;
    let settings = ToolSettings { search: Some(format!("http://127.0.0.1:{}/", server.port).parse().unwrap()), ..ToolSettings::default() };
    let outcome = open(vec![config("search", None)], Vec::new(), settings).call("search", json!({"query": "x"}), &soon()).await;
    assert_eq!(outcome, ToolOutcome::error("the search server answered HTTP 403 Forbidden; its settings have to allow the format json"));
}
