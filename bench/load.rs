//! Load by wrk, from one core, and what came of it.

use std::process::Command;

use anyhow::Context;

pub(crate) const SECONDS: u32 = 5;

/// What wrk asks, and how it tells what came of it.
const SCRIPT: &str = r#"
local function lines(name) return (os.getenv(name) or ""):gmatch("[^\n]+") end
for header in lines("HEADERS") do
  local name, value = header:match("^(.-): (.*)$")
  wrk.headers[name] = value
end
if os.getenv("SENT") then
  wrk.method, wrk.body = "POST", os.getenv("SENT")
  wrk.headers["content-type"] = "application/json"
end
wrk.path = lines("ASKED")()
function init()
  local all, at = {}, 0
  for path in lines("ASKED") do all[#all + 1] = wrk.format(nil, path) end
  if #all > 1 then
    function request()
      at = at % #all + 1
      return all[at]
    end
  end
end
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("RESULT %d %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), failed))
end
"#;

/// What is asked of a server on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub port: u16,
    /// The core that the load comes from.
    pub core: &'a str,
    pub connections: u32,
    /// One a line; they are asked in turn.
    pub paths: &'a str,
    /// JSON, sent by POST.
    pub body: Option<&'a str>,
    /// `name: value`, one a line.
    pub headers: &'a str,
}

/// Requests per second, and latencies in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub rate: f64,
    pub p50: f64,
    pub p99: f64,
}

impl Load<'_> {
    pub(crate) fn run(&self) -> anyhow::Result<Answered> {
        let script = std::env::temp_dir().join(format!("slipway-bench-{}.lua", std::process::id()));
        std::fs::write(&script, SCRIPT)?;
        let mut command = Command::new("taskset");
        command.args(["-c", self.core, "wrk", "--threads", "1", "--latency"]);
        command.args(["--connections", &self.connections.to_string(), "--duration", &format!("{SECONDS}s"), "--script"]);
        command.arg(&script).arg(format!("http://127.0.0.1:{}", self.port));
        command.env("ASKED", self.paths).env("HEADERS", self.headers);
        match self.body {
            Some(body) => command.env("SENT", body),
            None => command.env_remove("SENT"),
        };
        let output = command.output().context("taskset or wrk cannot be started")?;
        std::fs::remove_file(&script)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        result(&text).with_context(|| format!("wrk did not say what came of it: {text}"))?
    }
}

/// Reads the line that the script writes.
fn result(text: &str) -> Option<anyhow::Result<Answered>> {
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "))?;
    let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [requests, micros, p50, p99, failed] = numbers[..] else { return None };
    if failed > 0.0 {
        return Some(Err(anyhow::anyhow!("{failed} of {requests} requests failed")));
    }
    Some(Ok(Answered { rate: requests / micros * 1e6, p50: p50 / 1e6, p99: p99 / 1e6 }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_result_with_failures_is_none() {
        let good = super::result("x\nRESULT 2000 2000000 700 1500 0\n").unwrap().unwrap();
        assert!((good.rate - 1000.0).abs() < 1e-6 && (good.p50 - 0.0007).abs() < 1e-9 && (good.p99 - 0.0015).abs() < 1e-9);
        assert!(super::result("RESULT 2000 2000000 700 1500 3").unwrap().is_err());
        assert!(super::result("nothing").is_none());
    }
}
