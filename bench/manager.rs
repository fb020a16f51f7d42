//! The manager under measurement, and what it says of itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::time::sleep;

use crate::http;
use crate::start::{Process, command};

const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Manager {
    process: Process,
    port: u16,
}

/// Requests to the API server by verb and resource.
pub(crate) type Requests = BTreeMap<(String, String), f64>;

impl Manager {
    pub(crate) fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    fn start_with(more: &[&str]) -> anyhow::Result<Self> {
        let port = http::free_port()?;
        let listen = format!("127.0.0.1:{port}");
        let mut command = command("slipway-manager")?;
        command.args(["--role", "operator", "--listen", &listen, "--leader-election", "false", "--log", "error"]);
        Ok(Self { process: Process::spawn(command.args(more))?, port })
    }

    /// Started, with its caches filled.
    pub(crate) async fn ready() -> anyhow::Result<Self> {
        Self::ready_with(&[]).await
    }

    /// The same with further arguments.
    pub(crate) async fn ready_with(more: &[&str]) -> anyhow::Result<Self> {
        let mut manager = Self::start_with(more)?;
        let deadline = Instant::now() + TIMEOUT;
        while http::get(manager.port, "/readyz").is_err() {
            manager.process.check()?;
            if Instant::now() > deadline {
                bail!("the manager does not become ready");
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(manager)
    }

    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        self.process.resident()
    }

    /// The seconds that it has computed.
    pub(crate) fn processor_time(&self) -> anyhow::Result<f64> {
        self.process.processor_time()
    }

    fn metrics(&self) -> anyhow::Result<String> {
        http::get(self.port, "/metrics").context("the manager's metrics cannot be read")
    }

    /// Reconciles of agents so far.
    pub(crate) fn reconciles(&self) -> anyhow::Result<f64> {
        let text = self.metrics()?;
        let line = text.lines().find_map(|line| line.strip_prefix("slipway_reconciles_total{controller=\"agent\"} "));
        Ok(line.unwrap_or("0").parse()?)
    }

    /// Requests so far, without those that keep watches and the lease alive.
    pub(crate) fn requests(&self) -> anyhow::Result<Requests> {
        Ok(requests(&self.metrics()?))
    }

    /// Waits until no request was sent for three seconds.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let (mut before, mut changed) = (self.requests()?, Instant::now());
        while changed.elapsed() < Duration::from_secs(3) {
            if Instant::now() > deadline {
                let still = per_agent(&since(&before, &self.requests()?), 1);
                bail!("the manager does not come to rest: {still}");
            }
            sleep(Duration::from_millis(200)).await;
            let now = self.requests()?;
            if now != before {
                (before, changed) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

fn requests(metrics: &str) -> Requests {
    let read = |line: &str| {
        let (labels, count) = line.strip_prefix("slipway_api_requests_total{")?.split_once("} ")?;
        let label = |name: &str| {
            let of = |pair: &str| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"').map(str::to_owned);
            labels.split(',').find_map(of)
        };
        Some(((label("verb")?, label("resource")?), count.parse().ok()?))
    };
    metrics.lines().filter_map(read).filter(|((verb, resource), _)| verb != "WATCH" && resource != "leases").collect()
}

/// What came on top of `before`.
pub(crate) fn since(before: &Requests, now: &Requests) -> Requests {
    let more = |(key, count): (&(String, String), &f64)| {
        let more = count - before.get(key).unwrap_or(&0.0);
        (more > 0.0).then(|| (key.clone(), more))
    };
    now.iter().filter_map(more).collect()
}

/// In words, divided among `agents`.
pub(crate) fn per_agent(requests: &Requests, agents: u32) -> String {
    let one = |((verb, resource), count): (&(String, String), &f64)| format!("{verb} {resource} {:.2}", count / f64::from(agents));
    requests.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_watches_do_not_count() {
        let text = "# TYPE slipway_api_requests counter\n\
            slipway_api_requests_total{verb=\"WATCH\",resource=\"agents\"} 3\n\
            slipway_api_requests_total{verb=\"PATCH\",resource=\"agents/status\"} 10\n\
            slipway_api_requests_total{verb=\"PUT\",resource=\"leases\"} 4\n";
        let found = requests(text);
        assert_eq!(per_agent(&found, 5), "PATCH agents/status 2.00");
        assert!(since(&found, &found).is_empty());
        assert_eq!(since(&Requests::new(), &found), found);
    }
}
