//! `slipway-runtime`: what an agent's pod runs. Reads its settings from `RUNTIME_*`, refuses what it
//! cannot do, serves chat on one port, and drains on SIGTERM. `docs/runtime-contract.md` is what it
//! promises to the operator and to those who bring an image of their own.

mod agent;
mod background;
mod budgets;
mod chat;
mod completions;
mod control;
mod conversations;
mod evaluation;
mod failure;
mod ids;
mod knowledge;
mod memory;
mod metrics;
mod policies;
mod record;
mod server;
mod settings;
mod skills;
mod store;
mod suggestions;
mod telemetry;
mod turn;
mod turns;

use std::env;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use slipway_guards::Guards;
use slipway_http::access::Access;
use slipway_http::token::Verifier;
use slipway_http::{log, process, termination};

use crate::agent::Agent;
use crate::control::Control;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::record::Recorder;
use crate::server::Ports;
use crate::settings::{Refusal, Settings};
use crate::telemetry::Telemetry;

/// The environment asks for something that a restart will not make possible.
const REFUSED: u8 = 2;

const HELP: &str = "\
slipway-runtime: one agent, served over HTTP

Usage: slipway-runtime [--help | --version]

All settings are environment variables, with these defaults:
  RUNTIME_CHANNEL=rest          RUNTIME_STRATEGY=simple
  RUNTIME_MODEL_TYPE=stub       RUNTIME_MODEL_ID=stub-echo
  RUNTIME_STORAGE=memory        RUNTIME_PORT=8000
  RUNTIME_LOG_LEVEL=info        RUNTIME_LOG_FORMAT=json
docs/runtime-contract.md describes each of them.
";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(),
        ["--help" | "-h"] => said(&mut stdout(), HELP, ExitCode::SUCCESS),
        ["--version" | "-V"] => said(&mut stdout(), &format!("slipway-runtime {}\n", env!("CARGO_PKG_VERSION")), ExitCode::SUCCESS),
        _ => said(&mut stderr(), HELP, ExitCode::from(REFUSED)),
    }
}

fn run() -> ExitCode {
    if let Err(error) = process::seal() {
        return ended(&format!("slipway-runtime: its environment cannot be kept from the tools' programs: {error}\n"), ExitCode::FAILURE);
    }
    let (settings, refusal) = Settings::read(|name| env::var_os(name));
    log::start(settings.log_level, settings.log_format);
    if refusal.is_empty() {
        settings.announce();
    }
    // The one TLS stack of the process; it can be installed once, and is.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ended(&format!("slipway-runtime: cannot start: {error}\n"), ExitCode::FAILURE),
    };
    match runtime.block_on(serve(settings, refusal)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) => ended(&refusal.to_string(), ExitCode::from(REFUSED)),
            None => ended(&format!("slipway-runtime: {error:#}\n"), ExitCode::FAILURE),
        },
    }
}

/// Every room looks at what is its own before anything is refused.
async fn serve(settings: Settings, mut refusal: Refusal) -> anyhow::Result<()> {
    let key = settings.control.as_ref().and_then(|control| refusal.keep(verifier("RUNTIME_CONTROL_PUBLIC_KEY", &control.public_key)));
    let access_key = settings.access.public_key.as_ref().and_then(|key| refusal.keep(verifier("RUNTIME_ACCESS_PUBLIC_KEY", key)));
    let access = Access::new(settings.identity.agent_id.clone(), access_key, settings.access.platform_only);
    let (port, control_port) = (settings.port, settings.control.as_ref().map(|control| control.port));
    let traced = refusal.keep_all(telemetry::TelemetrySettings::read(settings.identity.traced(), &agent::variable));
    let telemetry = traced.and_then(|traced| refusal.keep(Telemetry::start(traced))).unwrap_or_else(Telemetry::off);
    let metrics = Arc::new(Metrics::new(&telemetry));
    let policies = refusal.keep_all(Policies::open(&settings, &metrics.meters)).unwrap_or_else(|| Policies::fixed(Guards::none()));
    tokio::spawn(Arc::clone(&policies).watch(metrics.meters.clone()));
    let recorder = Recorder::new(telemetry, metrics.meters.clone(), settings.model.clone(), Arc::clone(&policies));
    let agent = Agent::open(settings, policies, recorder, refusal)?;
    let ports = Ports::bind(port, control_port)?;
    let control = key.map(|key| Control::new(Arc::clone(&agent), key));
    server::run(ports, agent, access, control, metrics).await
}

fn verifier(variable: &str, key: &str) -> Result<Verifier, String> {
    Verifier::from_base64(key).ok_or_else(|| format!("{variable} must be an Ed25519 public key, 32 bytes in base64"))
}

/// The last words go where a person looks: the log, and the pod's status.
fn ended(words: &str, code: ExitCode) -> ExitCode {
    termination::write(termination::LOG, words);
    said(&mut stderr(), words, code)
}

fn said(out: &mut impl Write, words: &str, code: ExitCode) -> ExitCode {
    // Nobody is left to tell if this fails.
    let _ = out.write_all(words.as_bytes());
    code
}
