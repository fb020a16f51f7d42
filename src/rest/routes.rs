//! Every route of the API.

use slipway_http::Method;

use crate::agents;
use crate::page::PAGED;
use crate::right::Permission::{Cluster, Open, Team};
use crate::right::Right;
use crate::route::Route;

const LIST_AGENTS: Right = Right::on("list", "agents");
const GET_AGENT: Right = Right::on("get", "agents");
const CREATE_AGENT: Right = Right::on("create", "agents");
const CHANGE_AGENT: Right = Right::on("patch", "agents");
const DELETE_AGENT: Right = Right::on("delete", "agents");

#[rustfmt::skip]
pub(crate) fn all() -> Vec<Route> {
    let (get, post, put, patch, delete) = (Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    let _ = (&put, &patch, CHANGE_AGENT, Cluster(LIST_AGENTS), Open);
    vec![
        Route::new(get.clone(), "/agents", Team(LIST_AGENTS), "The team's agents, newest first.", agents::list).with(PAGED),
        Route::new(post.clone(), "/agents", Team(CREATE_AGENT), "Makes an agent. It does not run until it is deployed.", agents::create),
        Route::new(get.clone(), "/agents/{id}", Team(GET_AGENT), "One agent, by id or slug.", agents::get),
        Route::new(delete.clone(), "/agents/{id}", Team(DELETE_AGENT), "Deletes an agent, with its conversations and memories.", agents::delete),
    ]
}
