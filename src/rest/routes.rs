//! Every route of the API. The least role that each takes stands in `e2e/tests/attack/matrix/roles.txt`, and a good answer of each is
//! kept in `e2e/tests/api_golden`, for tests that compare.

use slipway_http::Method;

use crate::page::PAGED;
use crate::permission::Permission::{Callback, Cluster, Gate, Known, Open, Platform, Team, TeamOrAll, TeamOrNamed};
use crate::permission::{MEMBER, Right};
use crate::route::Route;
use crate::{
    agents, canary_gate, datasets, evaluations, events, feedback, governance, health, integrations, knowledge, members, openapi, page,
    platform, radar, relay, releases, scaffold, skills, sync, teams, tools,
};

const LIST_AGENTS: Right = Right::on("list", "agents");
const GET_AGENT: Right = Right::on("get", "agents");
const CREATE_AGENT: Right = Right::on("create", "agents");
const CHANGE_AGENT: Right = Right::on("patch", "agents");
const DELETE_AGENT: Right = Right::on("delete", "agents");
pub(crate) const CHAT: Right = Right::on("create", "agents").sub("chat");

pub(crate) fn all() -> Vec<Route> {
    let mut all = of_agents_and_teams();
    all.extend(of_knowledge_and_the_platform());
    all
}

#[rustfmt::skip]
fn of_agents_and_teams() -> Vec<Route> {
    let (get, post, put, patch, delete) = (Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    vec![
        Route::new(get.clone(), "/openapi.json", Open, "This description, for programs.", openapi::json),
        Route::new(get.clone(), "/docs", Open, "This description, for people.", openapi::docs),
        Route::new(get.clone(), "/health", Known, "How the API is, and what it depends on.", health::get),

        Route::new(get.clone(), "/agents", Team(LIST_AGENTS), "The team's agents, newest first.", agents::list).with(PAGED),
        Route::new(post.clone(), "/agents", Team(CREATE_AGENT), "Makes an agent. It does not run until it is deployed.", agents::create),
        Route::new(get.clone(), "/agents/{id}", Team(GET_AGENT), "One agent, by id or slug.", agents::get),
        Route::new(delete.clone(), "/agents/{id}", Team(DELETE_AGENT), "Deletes an agent, with its conversations and memories.", agents::delete),
        Route::new(patch.clone(), "/agents/{id}/config", Team(CHANGE_AGENT), "Changes the fields that are given, and no others; null clears a field, lists replace lists.", agents::change::config),
        Route::new(put.clone(), "/agents/{id}/skills", Team(CHANGE_AGENT), "Replaces the agent's skills, by name or id.", agents::change::skills),
        Route::new(patch.clone(), "/agents/{id}/status", Team(CHANGE_AGENT), "Archives an agent, which takes away its pods and nothing else, or takes it back.", agents::change::status),
        Route::new(post.clone(), "/agents/{id}/deploy", Team(CHANGE_AGENT), "Lets the agent run.", agents::run::deploy),
        Route::new(post.clone(), "/agents/{id}/stop", Team(CHANGE_AGENT), "Takes the agent's pods away until it is deployed again.", agents::run::stop),
        Route::new(post.clone(), "/agents/{id}/restart", Team(CHANGE_AGENT), "Replaces the agent's pods, one after the other.", agents::run::restart),
        Route::new(get.clone(), "/agents/{id}/canary", Team(GET_AGENT), "The agent's canary: what is different in it, its weight, and how it stands.", agents::canary::get),
        Route::new(post.clone(), "/agents/{id}/canary", Team(CHANGE_AGENT), "Starts a canary: another configuration that serves a share of the conversations.", agents::canary::start),
        Route::new(patch.clone(), "/agents/{id}/canary", Team(CHANGE_AGENT), "Gives the canary another share.", agents::canary::weigh),
        Route::new(post.clone(), "/agents/{id}/canary/promote", Team(CHANGE_AGENT), "Makes the canary's configuration the agent's, and ends the canary.", agents::canary::promote),
        Route::new(post.clone(), "/agents/{id}/canary/rollback", Team(CHANGE_AGENT), "Ends the canary. The agent stays as it is.", agents::canary::rollback),
        Route::new(get.clone(), "/admin/agents", Cluster(LIST_AGENTS), "The agents of all teams, team by team, newest first.", agents::all).with(PAGED),

        Route::new(get.clone(), "/agents/{id}/versions", Team(releases::LIST), "The configurations that the agent had, newest first.", releases::versions::list).with(PAGED),
        Route::new(get.clone(), "/agents/{id}/releases", Team(releases::LIST), "The agent's releases, newest first, without what they hold.", releases::list).with(PAGED),
        Route::new(post.clone(), "/agents/{id}/releases", Team(releases::CREATE), "Makes a release of the agent as it stands; answers with the one that stands when nothing changed.", releases::create),
        Route::new(get.clone(), "/agents/{id}/releases/diff", Team(releases::GET), "How two releases differ, value by value.", releases::diff).with(releases::BETWEEN),
        Route::new(get.clone(), "/agents/{id}/releases/{version}", Team(releases::GET), "One release, with all that it holds.", releases::get),
        Route::new(post.clone(), "/agents/{id}/releases/{version}/deploy", Team(CHANGE_AGENT), "Brings a release back: the agent runs what it held.", releases::deploy),
        Route::new(post.clone(), "/agents/{id}/releases/{version}/eval-result", Callback, "Reports that the evaluation of a release that waits for it has ended. Called by the agent's runtime; the platform computes scores and verdict itself.", evaluations::callback::of_release),

        Route::new(get.clone(), "/agents/{id}/evaluations", Team(evaluations::LIST), "The agent's evaluations, newest first, without their worst cases.", evaluations::list).with(evaluations::LISTED),
        Route::new(post.clone(), "/agents/{id}/evaluations", Team(evaluations::CREATE), "Puts the cases of a dataset to the agent, and scores its answers.", evaluations::create),
        Route::new(get.clone(), "/agents/{id}/evaluations/compare", Team(evaluations::GET), "Two completed evaluations side by side, metric by metric.", evaluations::compare).with(evaluations::BOTH),
        Route::new(get.clone(), "/agents/{id}/evaluations/{run_id}", Team(evaluations::GET), "One evaluation, with the cases that went worst.", evaluations::get),
        Route::new(post.clone(), "/agents/{id}/evaluations/{run_id}/cancel", Team(evaluations::CHANGE), "Ends an evaluation that is under way.", evaluations::cancel),
        Route::new(post.clone(), "/agents/{id}/evaluations/{run_id}/result", Callback, "The same of an evaluation that belongs to no release.", evaluations::callback::of_run),
        Route::new(delete.clone(), "/agents/{id}/evaluations/{run_id}", Team(evaluations::DELETE), "Deletes an evaluation; one that is under way ends.", evaluations::delete),

        Route::new(get.clone(), "/agents/{id}/datasets", Team(datasets::LIST), "The datasets for this agent or for any, newest first, without their cases.", datasets::list).with(PAGED),
        Route::new(post.clone(), "/agents/{id}/datasets", Team(datasets::CREATE), "Makes a dataset for the agent.", datasets::create),
        Route::new(get.clone(), "/agents/{id}/datasets/{name}", Team(datasets::GET), "One dataset, by id or name, with its cases.", datasets::get),
        Route::new(put.clone(), "/agents/{id}/datasets/{name}", Team(datasets::CHANGE), "Replaces a dataset.", datasets::replace),
        Route::new(delete.clone(), "/agents/{id}/datasets/{name}", Team(datasets::DELETE), "Deletes a dataset.", datasets::delete),
        Route::new(get.clone(), "/risk-profiles", Known, "The risk profiles, from the least to the most that is asked of an agent.", evaluations::profiles::list),

        Route::new(get.clone(), "/agents/{id}/events", Team(GET_AGENT), "What happens to the agent: its last events, then each as it comes.", events::events),

        Route::new(post.clone(), "/agents/{id}/chat", Team(CHAT), "Says something to the agent and waits for its answer.", relay::chat),
        Route::new(post.clone(), "/agents/{id}/chat/stream", Team(CHAT), "Says something to the agent, whose answer comes as it is made.", relay::stream),
        Route::new(get.clone(), "/agents/{id}/conversations", Team(CHAT), "The agent's conversations, newest first.", relay::conversations).with(PAGED),
        Route::new(get.clone(), "/agents/{id}/conversations/{cid}", Team(CHAT), "One conversation, with what was said.", relay::conversation),
        Route::new(delete.clone(), "/agents/{id}/conversations/{cid}", Team(CHAT), "Deletes a conversation.", relay::delete_conversation),
        Route::new(get.clone(), "/agents/{id}/conversations/{cid}/status", Team(CHAT), "Whether an answer is being made, and what there is of it.", relay::conversation_status),
        Route::new(get.clone(), "/agents/{id}/suggestions", Team(CHAT), "What could be said next.", relay::suggestions).with(relay::SUGGESTED),
        Route::new(get.clone(), "/agents/{id}/memory", Team(CHAT), "What the agent remembers, newest first.", relay::memories).with(relay::LISTED),
        Route::new(post.clone(), "/agents/{id}/memory", Team(CHAT), "Has the agent remember something.", relay::remember),
        Route::new(get.clone(), "/agents/{id}/memory/status", Team(CHAT), "How the agent remembers.", relay::memory_status),
        Route::new(post.clone(), "/agents/{id}/memory/search", Team(CHAT), "Finds memories, by meaning or by words.", relay::search_memory),
        Route::new(delete.clone(), "/agents/{id}/memory/{mid}", Team(CHAT), "Has the agent forget something.", relay::forget),

        Route::new(post.clone(), "/feedback", TeamOrNamed(CHAT), "Marks an answer of an agent. What was asked for an answer that is marked badly becomes a case of the agent's evaluations.", feedback::create),

        Route::new(get.clone(), "/teams", Known, "The teams in which the caller has a role, newest first.", teams::list).with(PAGED),
        Route::new(post.clone(), "/teams", Cluster(Right::on("create", "teams")), "Makes a team, with a namespace of its own.", teams::create),
        Route::new(get.clone(), "/teams/{team}", Team(MEMBER), "One team, by id or slug.", teams::get),
        Route::new(delete.clone(), "/teams/{team}", Cluster(Right::on("delete", "teams")), "Deletes a team that has no agents.", teams::delete).with(teams::FORCE),
        Route::new(get.clone(), "/teams/{team}/members", Team(members::LIST), "The team's members, newest first.", members::list),
        Route::new(post.clone(), "/teams/{team}/members", Team(members::ADD), "Makes somebody a member.", members::create),
        Route::new(patch.clone(), "/teams/{team}/members/{user}", Team(members::ADD), "Gives a member another role.", members::change),
        Route::new(delete.clone(), "/teams/{team}/members/{user}", Team(members::REMOVE), "Takes a member's role away.", members::delete),

        Route::new(get.clone(), "/tools", Team(Right::on("list", "tools")), "The team's tools, newest first.", tools::list).with(PAGED),
        Route::new(post.clone(), "/tools", Team(Right::on("create", "tools")), "Makes a tool.", tools::create),
        Route::new(get.clone(), "/tools/{name}", Team(Right::on("get", "tools")), "One tool.", tools::get),
        Route::new(put.clone(), "/tools/{name}", Team(Right::on("patch", "tools")), "Replaces a tool.", tools::replace),
        Route::new(delete.clone(), "/tools/{name}", Team(Right::on("delete", "tools")), "Deletes a tool.", tools::delete),

        Route::new(get.clone(), "/skills", Team(Right::on("list", "skills")), "The team's skills, newest first, without their instructions and files.", skills::list).with(PAGED),
        Route::new(post.clone(), "/skills", Team(Right::on("create", "skills")), "Makes a skill.", skills::create),
        Route::new(post.clone(), "/skills/import", Team(Right::on("create", "skills")), "Makes a skill of a folder with a SKILL.md, in a Git repository or a zip archive.", skills::import).with(skills::IMPORT),
        Route::new(get.clone(), "/skills/{id}", Team(Right::on("get", "skills")), "One skill, by id or name.", skills::get),
        Route::new(put.clone(), "/skills/{id}", Team(Right::on("patch", "skills")), "Replaces a skill.", skills::replace),
        Route::new(delete.clone(), "/skills/{id}", Team(Right::on("delete", "skills")), "Deletes a skill.", skills::delete),
    ]
}

#[rustfmt::skip]
fn of_knowledge_and_the_platform() -> Vec<Route> {
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    vec![
        Route::new(get.clone(), "/knowledge-bases", Team(knowledge::LIST), "The team's knowledge bases, newest first.", knowledge::list).with(PAGED),
        Route::new(post.clone(), "/knowledge-bases", Team(knowledge::CREATE), "Makes a knowledge base, without documents.", knowledge::create),
        Route::new(get.clone(), "/knowledge-bases/{id}", Team(knowledge::GET), "One knowledge base, by id or slug.", knowledge::get),
        Route::new(put.clone(), "/knowledge-bases/{id}", Team(knowledge::CHANGE), "Replaces the settings of a knowledge base, and leaves its documents.", knowledge::replace),
        Route::new(delete.clone(), "/knowledge-bases/{id}", Team(knowledge::DELETE), "Deletes a knowledge base, with its documents.", knowledge::delete),
        Route::new(get.clone(), "/knowledge-bases/{id}/documents", Team(knowledge::GET), "The documents of a knowledge base, newest first.", knowledge::content::documents).with(knowledge::content::LISTED),
        Route::new(delete.clone(), "/knowledge-bases/{id}/documents", Team(knowledge::CHANGE), "Deletes all documents of a source, which an ingestion of it brings back.", knowledge::content::delete_source).with(knowledge::content::SOURCE),
        Route::new(delete.clone(), "/knowledge-bases/{id}/documents/{doc}", Team(knowledge::CHANGE), "Deletes a document, which an ingestion of its source brings back.", knowledge::content::delete_document),
        Route::new(post.clone(), "/knowledge-bases/{id}/ingest", Team(knowledge::INGEST), "Reads a source, or an uploaded file, into the knowledge base.", knowledge::ingest::ingest),
        Route::new(get.clone(), "/knowledge-bases/{id}/jobs", Team(knowledge::LIST_JOBS), "The ingestions into a knowledge base, newest first, without their errors.", knowledge::jobs::list).with(knowledge::jobs::LISTED),
        Route::new(get.clone(), "/knowledge-bases/{id}/jobs/{job_id}", Team(knowledge::GET_JOB), "How far an ingestion is, and which documents could not be read.", knowledge::jobs::get),
        Route::new(post.clone(), "/knowledge-bases/{id}/jobs/{job_id}/cancel", Team(knowledge::CHANGE_JOB), "Ends an ingestion. Documents that it has read stay.", knowledge::jobs::cancel),
        Route::new(post.clone(), "/knowledge-bases/{id}/search", Team(knowledge::GET), "Finds the pieces of documents that fit a question.", knowledge::content::search),

        Route::new(get.clone(), "/integrations/types", Known, "The types of integrations: what each takes, and what may name one.", integrations::types),
        Route::new(get.clone(), "/integrations", Team(integrations::LIST), "The team's integrations, newest first.", integrations::list).with(integrations::LISTED),
        Route::new(post.clone(), "/integrations", Team(integrations::CREATE), "Makes an integration, and stores its login, which nobody is shown.", integrations::create),
        Route::new(get.clone(), "/integrations/{id}", Team(integrations::GET), "One integration, by id or slug.", integrations::get),
        Route::new(put.clone(), "/integrations/{id}", Team(integrations::CHANGE), "Replaces an integration. A login that is left out stays, unless the integration goes to another host.", integrations::replace),
        Route::new(delete.clone(), "/integrations/{id}", Team(integrations::DELETE), "Deletes an integration, with its login.", integrations::delete),
        Route::new(post.clone(), "/integrations/{id}/test", Team(integrations::CHANGE), "Connects to the server from the team's worker, and says how that went.", integrations::test),

        Route::new(post.clone(), "/scaffold", Team(CREATE_AGENT), "Makes a project for an agent, with its program, tests, image and manifests. It makes nothing in the cluster.", scaffold::create),

        Route::new(get.clone(), "/governance/policies", Team(governance::LIST), "The team's guardrail policies, newest first, without those who broke them.", governance::list).with(PAGED),
        Route::new(post.clone(), "/governance/policies", Team(governance::CREATE), "Makes a guardrail policy. Agents follow it within about a minute, without a restart.", governance::create),
        Route::new(get.clone(), "/governance/policies/{id}", Team(governance::GET), "One guardrail policy, by id or slug, and who broke it in the last day.", governance::get),
        Route::new(put.clone(), "/governance/policies/{id}", Team(governance::CHANGE), "Replaces a guardrail policy.", governance::replace),
        Route::new(delete.clone(), "/governance/policies/{id}", Team(governance::DELETE), "Deletes a guardrail policy. A default one is not made again.", governance::delete),

        Route::new(get.clone(), "/governance/scorecards", TeamOrAll(LIST_AGENTS), "The scorecards of the team's agents, or of all teams', newest agents first.", governance::scorecards::list).with(page::SCOPED),
        Route::new(get.clone(), "/governance/scorecards/{agent_id}", Team(GET_AGENT), "What one agent has reached within the last day.", governance::scorecards::get),

        Route::new(get.clone(), "/radar", TeamOrAll(LIST_AGENTS), "How the team's agents are, or all teams', and what they did within the last day.", radar::overview).with(page::SCOPED),
        Route::new(get.clone(), "/radar/alerts", TeamOrAll(LIST_AGENTS), "What is wrong now with the team's agents, or with all teams', newest first.", radar::open).with(radar::SCOPED),
        Route::new(get.clone(), "/radar/{agent_id}", Team(GET_AGENT), "How one agent is, and what it did within the last day, by track, too.", radar::get),
        Route::new(get.clone(), "/radar/{agent_id}/alerts", Team(GET_AGENT), "What is wrong now with one agent, newest first.", radar::of_agent).with(radar::PAGED),

        Route::new(get.clone(), "/platform/config", Platform(platform::READ, platform::NAME), "The platform's configuration.", platform::get),
        Route::new(put.clone(), "/platform/config", Platform(platform::CHANGE, platform::NAME), "Changes the fields that are given, and no others; null clears a field.", platform::change),
        Route::new(post.clone(), "/platform/sync", Cluster(CREATE_AGENT), "Brings the cluster and the state repositories to the same.", sync::sync),
        Route::new(post.clone(), "/platform/config/test", Platform(platform::CHANGE, platform::NAME), "Connects to what the platform is configured for, or would be with the fields that are given, and says how that went. It stores nothing.", platform::test),

        Route::new(post.clone(), "/webhooks/canary-gate", Gate, "Tells a progressive-delivery controller whether a rollout goes on: 200, or 412 if it does not.", canary_gate::answer),
        Route::new(post.clone(), "/webhooks/canary-gate/{credential}", Gate, "The same, with the credential in the path.", canary_gate::answer),
    ]
}
