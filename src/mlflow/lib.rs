//! A client of MLflow's tracking server (3.17 and newer): experiments, runs, datasets, assessments and marks of people over its REST
//! API. Whatever is written can be written again: what is there is found by its name, or by an id that the caller gives, and is not
//! made twice.

mod client;
mod datasets;
mod experiments;
mod fault;
mod login;
mod marks;
mod probe;
mod runs;
mod server;
mod traces;

pub use client::Mlflow;
pub use fault::Fault;
pub use login::Login;
pub use marks::Mark;
pub use runs::{Facts, Input, RunStatus, Scored};
pub use server::{LastFailure, Servers};
pub use traces::{Assessment, Found, Source, trace_id};
