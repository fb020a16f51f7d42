//! Evaluation: cases per second beside the bare chats of the same runtime, what a judge costs beside asking it directly and beside
//! MLflow on the same cases, and the memory of a run of 1,000 cases.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use slipway_http::token::{CONTROL_LIFE, Signer};
use slipway_peers::mock_llm;

use crate::load::Load;
use crate::numbers::median;
use crate::start::{Process, cores};
use crate::{http, runtime, table};

const AGENT: &str = "ag_bench";
const SIZES: [u32; 2] = [100, 1000];
/// As many as the runtime takes cases at once.
const CONCURRENCY: u32 = 4;
const JUDGED_CASES: u32 = 200;
const DEADLINE: Duration = Duration::from_mins(5);
/// What a run's end is waited for by: each look costs the runtime less than a case does.
const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// The length of an input where memory is measured; the stub answers with as much.
const INPUT_BYTES: usize = 1024;

/// A judge that finds every answer right, at once. Another party's server, that answers MLflow at an address of its own, in the
/// form that MLflow reads.
const JUDGE: &str = r#"
streaming: {chunkSize: 1000, chunkIntervalMs: 1}
rules:
  - path: "/v1/chat/completions"
    match: "@"
    response:
      status: 200
      content: |
        {"id": "1", "object": "chat.completion", "created": 1, "model": "judge",
         "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "{\"verdict\": \"yes\", \"reason\": \"It is right.\"}"}}],
         "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}}
  - path: "/mlflow/v1/chat/completions"
    match: "@"
    response:
      status: 200
      content: |
        {"id": "1", "object": "chat.completion", "created": 1, "model": "judge",
         "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "{\"result\": \"yes\", \"rationale\": \"It is right.\"}"}}],
         "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}}
"#;

pub(crate) fn measure(runs: u32) -> anyhow::Result<()> {
    let (core, other) = cores()?;
    table::part("Evaluation without a database: stub agent, words compared, server on one core");
    let mut growth = Vec::new();
    for size in SIZES {
        let mut rates = Vec::new();
        let (mut idle, mut most) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let agent = Agent::serve(&core, &[])?;
            rates.push(f64::from(size) / agent.run(&questions(size), &["relevance_to_query"], None)?);
            let agent = Agent::serve(&core, &[])?;
            idle.push(agent.process.most_resident()?);
            let long: Vec<String> = questions(size).iter().map(|question| format!("{question:.<INPUT_BYTES$}")).collect();
            agent.run(&long, &["relevance_to_query"], None)?;
            most.push(agent.process.most_resident()?);
        }
        let (measured, floor) = (median(&rates), Agent::serve(&core, &[])?.chats(&other)?);
        table::beside(&format!("{size} cases"), (&table::per_second(measured), measured), (&table::per_second(floor), floor), "");
        let grown = median(&most) - median(&idle);
        let what = format!("{size} cases of {INPUT_BYTES} bytes, most memory above idle");
        table::alone(&what, &table::mebibytes(grown), if size == 1000 { "<= 10 MiB" } else { "" });
        growth.push((size, f64::from(size) / measured));
    }
    table::growth("growth of a run's time", &growth);
    table::remark(&format!(
        "the floor is the same runtime asked by {CONCURRENCY} clients at once; a run is polled for its end every {POLL_INTERVAL:?}"
    ));
    judged(&core, &other)
}

/// What a case costs more than its judge.
fn judged(core: &str, other: &str) -> anyhow::Result<()> {
    let judge = mock_llm(JUDGE);
    let base = format!("{}/v1", judge.url());
    let agent = Agent::serve(core, &[("OPENAI_BASE_URL", &base), ("OPENAI_API_KEY", "none")])?;
    agent.run(&questions(10), &["fluency"], Some("openai:/judge"))?;
    let took = agent.run(&questions(JUDGED_CASES), &["fluency"], Some("openai:/judge"))? / f64::from(JUDGED_CASES);
    let chats = agent.chats(other)?;
    let port = judge.url().rsplit(':').next().and_then(|port| port.parse().ok()).context("the judge's port")?;
    let asked = json!({"model": "judge", "stream": true, "messages": [{"role": "user", "content": "Is it right?"}]}).to_string();
    let load = Load {
        port,
        core,
        connections: CONCURRENCY,
        paths: "/v1/chat/completions",
        body: Some(&asked),
        headers: "authorization: Bearer none",
    };
    let floor = 1.0 / load.run()?.rate;
    table::part("Evaluation with a judge that answers at once, another party's server");
    table::beside("cases a second", (&table::per_second(1.0 / took), 1.0 / took), (&table::per_second(chats), chats), "");
    table::remark("the floor is the bare chats of the same runtime");
    table::beside("a case with one judge call", (&table::milliseconds(took), took), (&table::milliseconds(floor), floor), "");
    table::remark(&format!(
        "the floor is the judge asked by {CONCURRENCY} clients at once; the runtime adds {} a call of the time that all take together, and \
         {} of what one of {CONCURRENCY} waits",
        table::milliseconds(took - floor),
        table::milliseconds((took - floor) * f64::from(CONCURRENCY))
    ));
    let theirs = mlflow(&format!("{}/mlflow/v1", judge.url()))? / f64::from(JUDGED_CASES);
    table::beside("a case beside MLflow", (&table::milliseconds(took), took), (&table::milliseconds(theirs), theirs), "<= 0.05 x");
    table::remark(&format!(
        "the floor is mlflow.genai.evaluate on the same {JUDGED_CASES} cases with the same judge: on all cores, its rate limits lifted, \
         and with an agent that answers at once; it writes traces and scores to SQLite, the runtime keeps its own in memory"
    ));
    Ok(())
}

/// The seconds that MLflow takes for the same cases.
fn mlflow(judge: &str) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let (request, database) = (folder.path().join("request.json"), folder.path().join("mlflow.db"));
    let case = |case| json!({"inputs": {"question": question(case)}, "outputs": format!("Echo: {}", question(case)), "expectations": {}});
    let cases: Vec<Value> = (0..JUDGED_CASES).map(case).collect();
    fs::write(&request, json!({"scorers": ["fluency"], "guidelines": [], "tools": [], "cases": cases}).to_string())?;
    fs::copy(slipway_peers::root().join("mlflow.db"), &database)?;
    let paths = [&request, &database].map(|path| path.to_string_lossy().into_owned());
    let script = slipway_peers::repository().join("peers/scorers.py");
    let output = slipway_peers::python(&script, &["evaluate", &paths[0], judge, &paths[1]], &[]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match (answer["seconds"].as_f64(), answer["means"]["fluency/mean"].as_f64()) {
        (Some(seconds), Some(mean)) if mean >= 1.0 => Ok(seconds),
        _ => bail!("MLflow did not evaluate: {answer} {}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn questions(count: u32) -> Vec<String> {
    (0..count).map(question).collect()
}

fn question(case: u32) -> String {
    format!("How do I get to station {case}?")
}

/// A runtime with its control port.
struct Agent {
    process: Process,
    port: u16,
    control: u16,
    signer: Signer,
}

impl Agent {
    fn serve(core: &str, variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let key = Signer::generate().context("no randomness")?;
        let signer = Signer::from_pkcs8(&key).context("a key of our own")?;
        let (port, control, public) = (http::free_port()?, http::free_port()?, signer.public_key());
        let control_port = control.to_string();
        let mut all = vec![
            ("RUNTIME_AGENT_ID", AGENT),
            ("RUNTIME_CONTROL_PORT", control_port.as_str()),
            ("RUNTIME_CONTROL_PUBLIC_KEY", public.as_str()),
        ];
        all.extend(variables);
        let process = runtime::serve(port, core, &all)?;
        runtime::first_chat(port, Instant::now())?;
        Ok(Self { process, port, control, signer })
    }

    /// Bare chats a second, by as many clients as a run takes cases at once.
    fn chats(&self, core: &str) -> anyhow::Result<f64> {
        let load = Load { port: self.port, core, connections: CONCURRENCY, paths: "/chat", body: Some(runtime::CHAT), headers: "" };
        Ok(load.run()?.rate)
    }

    /// The seconds that a run takes.
    fn run(&self, questions: &[String], scorers: &[&str], judge: Option<&str>) -> anyhow::Result<f64> {
        let cases: Vec<Value> = questions.iter().map(|question| json!({"input": question})).collect();
        let run = format!("ev_{:026}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos());
        let total = cases.len();
        let mut body =
            json!({"run_id": run, "agent": AGENT, "dataset": {"name": "bench", "cases": cases}, "risk_profile": "low", "scorers": scorers});
        if let Some(judge) = judge {
            body["judge_model"] = json!(judge);
        }
        let begun = Instant::now();
        http::call(self.control, "POST", "/control/evaluate", &self.authorization()?, Some(&body.to_string()), 202)?;
        let path = format!("/control/evaluations/{run}");
        let report = |path: &str| -> anyhow::Result<Value> {
            Ok(serde_json::from_str(&http::call(self.control, "GET", path, &self.authorization()?, None, 200)?)?)
        };
        while begun.elapsed() < DEADLINE {
            if report(&format!("{path}?results=0"))?["status"] != "running" {
                let (took, report) = (begun.elapsed().as_secs_f64(), report(&path)?);
                let scored =
                    report["results"].as_array().into_iter().flatten().filter(|result| result["scores"][0]["state"] == "scored").count();
                if report["status"] != "completed" || scored != total {
                    bail!("of {total} cases {scored} were scored: {} {}", report["status"], report["reason"]);
                }
                return Ok(took);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        bail!("the run does not end")
    }

    fn authorization(&self) -> anyhow::Result<String> {
        let token = self.signer.token(AGENT, CONTROL_LIFE, SystemTime::now()).context("no randomness")?;
        Ok(format!("authorization: Bearer {token}"))
    }
}
