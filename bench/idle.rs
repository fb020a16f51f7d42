//! An operator at rest: it looks at every agent again and again, and says nothing to the API server.

use std::time::Duration;

use tokio::time::sleep;

use crate::manager::{Manager, per_agent, since};
use crate::table;

/// Requests and reconciles per agent, over some time.
pub(crate) async fn measure(manager: &Manager, size: u32, seconds: u64) -> anyhow::Result<()> {
    let (requests, reconciles) = (manager.requests()?, manager.reconciles()?);
    sleep(Duration::from_secs(seconds)).await;
    let requests = since(&requests, &manager.requests()?);
    let reconciles = (manager.reconciles()? - reconciles) / f64::from(size);
    let count = requests.values().fold(0.0, |sum, count| sum + count);
    table::alone(&format!("{size} agents, requests in {seconds} s"), &format!("{count:.0}"), "0, but for watches and the lease");
    if !requests.is_empty() {
        table::remark(&format!("per agent: {}", per_agent(&requests, size)));
    }
    table::alone(&format!("{size} agents, reconciles each"), &format!("{reconciles:.2}"), ">= 3");
    Ok(())
}
