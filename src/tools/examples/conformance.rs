//! A client for `@modelcontextprotocol/conformance`: connects a toolbox to the server whose URL is its last argument and
//! calls each tool that the scenario offers.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_api::contract::ToolConfig;
use slipway_tools::{Context, ToolSettings, Toolbox};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().next_back().unwrap_or_default();
    let config: ToolConfig =
        serde_json::from_value(json!({ "name": "suite", "type": "mcp", "category": "test", "mcpEndpoint": url, "timeout": 20 }))?;
    // The suite's servers listen on the loopback interface.
    let settings =
        ToolSettings { allow: vec!["127.0.0.0/8".parse()?, format!("localhost:{}", port(&url)?).parse()?], ..ToolSettings::default() };
    let toolbox = Toolbox::open(vec![config], Vec::new(), settings, &|_| None).map_err(|errors| format!("{errors:?}"))?;
    let specs = toolbox.specs().await;
    // The stream on which the server may speak is opened meanwhile. A suite's server that hears of it only after a call takes it for
    // the one with which the call is resumed.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for spec in specs {
        let context = Context::until(tokio::time::Instant::now() + Duration::from_secs(20));
        let outcome = toolbox.call(&spec.name, arguments(&spec.schema), &context).await;
        if outcome.is_error {
            return Err(format!("{}: {}", spec.name, outcome.content).into());
        }
    }
    Ok(())
}

fn port(url: &str) -> Result<u16, Box<dyn Error>> {
    url::Url::parse(url)?.port().ok_or_else(|| "the URL has no port".into())
}

/// Something of the right type for each property.
fn arguments(schema: &Value) -> Value {
    let value = |property: &Value| match property["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        _ => json!("text"),
    };
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    properties.iter().map(|(name, property)| (name.clone(), value(property))).collect()
}
