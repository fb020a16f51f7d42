//! What Slipway promises, shown on a real cluster. `hack/test cluster` runs this; `cargo test -p slipway-e2e rules` runs a part.
//!
//! Tests run in parallel, each in a team of its own; those that need the cluster for themselves take a turn alone.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod alerts;
mod api_access;
mod api_agents;
mod api_chat;
mod api_contract;
mod api_evaluations;
mod api_events;
mod api_feedback;
mod api_golden;
mod api_governance;
mod api_installed;
mod api_platform;
mod api_releases;
mod api_skills;
mod autoscaling;
mod canary;
mod candidates;
mod children;
mod commands;
mod datasets;
mod drift;
mod evaluations;
mod faults;
mod gitops;
mod governance;
mod guards;
mod integrations;
mod knowledge;
mod manager;
mod mutation;
mod network;
mod pods;
mod policies;
mod releases;
mod rest;
mod rollout;
mod rows;
mod rules;
mod runtime;
mod samples;
mod scaffold;
mod secrets;
mod skills;
mod teams;
mod tools;
mod upgrade;
