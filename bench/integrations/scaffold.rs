//! A scaffold: a project of each framework, as a zip archive.

use serde_json::json;
use tokio::task::block_in_place;

use crate::http::Connection;
use crate::numbers::percentile;
use crate::rest::Rest;
use crate::table;

const FRAMEWORKS: [&str; 5] = ["custom", "langchain", "crewai", "autogen", "adk"];
const PROJECTS: u32 = 200;
const WARM: u32 = 20;

pub(super) async fn measure(core: &str) -> anyhow::Result<()> {
    let rest = Rest::start(core, 1, None).await?;
    table::part(&format!(
        "Scaffold: POST /scaffold, {PROJECTS} of each framework; one connection, no authentication, no limits, REST on one core"
    ));
    block_in_place(|| {
        let mut connection = Connection::open(rest.port, "accept: */*")?;
        for framework in FRAMEWORKS {
            let body = json!({
                "name": "Weather Helper",
                "description": "Tells people how the weather is.",
                "framework": framework,
                "capabilities": ["streaming", "guardrails", "evaluation", "ci"],
            });
            let mut seconds = Vec::new();
            for nth in 0..WARM + PROJECTS {
                let took = connection.post("/api/v1/scaffold", &body.to_string())?;
                if nth >= WARM {
                    seconds.push(took);
                }
            }
            for (percent, goal) in [(50, ""), (95, "<= 20 ms")] {
                table::alone(&format!("{framework}, p{percent}"), &table::milliseconds(percentile(&seconds, percent)), goal);
            }
        }
        anyhow::Ok(())
    })
}
