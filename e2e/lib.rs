//! What the tests against a real cluster share. They speak kubectl's language and read what a user can read.
//!
//! `kubectl` runs the program, `door` saves most of its processes, `watch` waits on what the API server says, `team` gives each test a tenant of its own, `agent`
//! is a handle on one Agent, `http` talks to what runs, `api` runs REST and calls it, `golden` keeps what it answers, `proxy`
//! stands before the API server, `second` is another cluster, `apart` Slipway on one, `git` keeps repositories of manifests,
//! `gitops` runs a controller that applies them, `compare` tells differences, `contract` makes up calls to REST, `fault` is what may happen between a manager
//! and its API server, `attack` is the chart's accounts and policies with processes that run under them, `fence` puts
//! NetworkPolicies in force, `flagger` rolls agents out, `foothold` is the network as a pod sees it, `page` has
//! the steps of a document that is played, `platform` knows the installed manager, `routes` is a Gateway with the kinds that it needs, `scaler` measures for autoscalers, `tracks` tells who
//! is answered by a canary, `turn` says who runs beside whom.

#![expect(clippy::panic, clippy::missing_panics_doc, reason = "this crate is nothing but tests, and a test fails by panicking")]

mod agent;
mod apart;
mod api;
pub mod attack;
mod compare;
mod contract;
mod door;
pub mod fault;
mod fence;
mod flagger;
mod foothold;
mod gate;
mod git;
pub mod gitops;
mod golden;
mod http;
mod kubectl;
pub mod page;
pub mod platform;
mod proxy;
mod routes;
mod scaler;
mod second;
mod team;
mod tracks;
mod turn;
mod watch;

pub use agent::{Agent, condition, fresh};
pub use apart::{Apart, Objects, Place};
pub use api::{Api, Call, Sent, State, Stream};
pub use compare::{assert_holds, essence, settings};
pub use contract::Contract;
pub use fence::{Fence, render};
pub use flagger::Flagger;
pub use foothold::Foothold;
pub use gate::{Gate, When};
pub use git::{Checkout, Repository, git};
pub use golden::Golden;
pub use http::{Headers, Reply, http};
pub use kubectl::{Kubectl, Outcome, kubectl};
pub use proxy::Proxy;
pub use routes::{DataPlane, Kinds};
pub use scaler::MetricsServer;
pub use second::Second;
pub use team::Team;
pub use tracks::{TrackedChat, Tracks};
pub use turn::{Turn, alone, long, longest_unwatched, together, unwatched};
pub use watch::{poll, until};

/// The repository's root, from which tests read `crds/` and `config/samples/`: tests run in the folder of their crate.
pub const ROOT: &str = "..";
