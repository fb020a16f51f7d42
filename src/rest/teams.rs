//! Teams: list, get, create and delete.

use std::borrow::Cow;

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use kube::core::PartialObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_api::names::{self, TeamSlug};
use slipway_api::{Agent, Team, TeamSpec, condition, ids};
use slipway_http::{Error, StatusCode};

use crate::access::teams_of;
use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::context::Context;
use crate::fields::NAME;
use crate::list_cache::ListEntry;
use crate::page::{Page, page_of};
use crate::permission::Right;
use crate::route::Parameter;
use crate::{cluster_error, gitops, write};

/// The right to delete a team's agents with it.
const DELETE_AGENT: Right = Right::on("delete", "agents");
/// How often agents that are created during a deletion are deleted, too.
const DELETE_ROUNDS_MAX: usize = 10;
/// How many agents are asked for at once.
const PAGE_SIZE: u32 = 500;

/// A team.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Team")]
pub(crate) struct View {
    pub id: String,
    pub name: String,
    pub slug: String,
    pub description: Option<String>,
    pub namespace: String,
    pub status: Status,
    /// What the team waits for, while it is made or deleted, and what is wrong with it.
    pub message: Option<String>,
    pub member_count: usize,
    pub agent_count: usize,
    pub created_at: String,
}

/// Where a team is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TeamStatus")]
pub(crate) enum Status {
    /// Its namespace is being made.
    Pending,
    Ready,
    /// Its namespace cannot be as it should be.
    Failed,
    /// It is being deleted, with all that is in it.
    Terminating,
}

impl Status {
    fn of(team: &Team) -> Self {
        let conditions = team.status.iter().flat_map(|status| &status.conditions);
        let holds = |kind: &str| conditions.clone().any(|condition| condition.type_ == kind && condition.status == "True");
        match team.metadata.deletion_timestamp.is_some() {
            true => Self::Terminating,
            false if holds(condition::READY) => Self::Ready,
            false if holds(condition::STALLED) => Self::Failed,
            false => Self::Pending,
        }
    }
}

impl View {
    fn of(team: &Team) -> Self {
        let slug = team.name_any();
        let ready = team.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == condition::READY);
        Self {
            status: Status::of(team),
            message: ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            id: ids::team(&slug),
            name: team.spec.name.clone(),
            description: team.spec.description.clone(),
            namespace: format!("team-{slug}"),
            member_count: 0,
            agent_count: 0,
            created_at: crate::agents::time(team.creation_timestamp().map(|time| time.0)),
            slug,
        }
    }

    fn counted(self, context: &Context) -> Self {
        let (members, agents) = (context.caches.members(&self.namespace), context.caches.agents.count(&self.namespace));
        Self { member_count: members, agent_count: agents, ..self }
    }
}

/// The list entry of a team. Members and agents are counted when it is shown.
pub(crate) fn item(team: &Team) -> ListEntry<View> {
    let view = View::of(team);
    ListEntry {
        created: team.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {}", view.name, view.slug, view.description.as_deref().unwrap_or_default()).to_lowercase().into(),
        id: view.id.clone(),
        version: 0,
        // Serialized when it is listed, with its counts.
        json: Box::default(),
        omitted: None,
        data: view,
    }
}

pub(crate) async fn list(call: Call) -> Result<Page<View>, Error> {
    let context = call.context.clone();
    let mine = teams_of(&context, &call.caller).await?;
    let belongs = |name: &str, _: &ListEntry<View>| mine.iter().any(|team| team.as_str() == name);
    let counted = |team: &View| serde_json::to_string(&team.clone().counted(&context)).map_err(Error::internal);
    page_of(call, &context.caches.teams, None, belongs, |item| counted(&item.data).map(Cow::Owned)).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let (team, _) = find(&call).await?;
    Ok(Data::at(View::of(&team).counted(&call.context), team.resource_version()))
}

/// What makes a team.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTeam {
    #[schemars(length(min = 1, max = 128))]
    name: String,
    #[schemars(length(max = 2048))]
    description: Option<String>,
    /// What ids and the namespace are made of. Default: the name in lower case, with hyphens.
    #[schemars(length(max = 58), regex(pattern = NAME))]
    slug: Option<String>,
}

pub(crate) async fn create(call: Call<Json<NewTeam>>) -> Result<Created<View>, Error> {
    let (call, Json(new)) = call.split();
    let (field, slug) = match new.slug {
        Some(slug) => ("slug", TeamSlug::new(slug)),
        None => ("name", names::slugify(&new.name).and_then(TeamSlug::new)),
    };
    let slug = slug.map_err(|error| Error::bad_request(format!("{field}: {error}")))?;
    let team = Team::new(slug.as_str(), TeamSpec { name: new.name, description: new.description, ..TeamSpec::default() });
    let made = write::create(&call, &api(&call), team, &format!("team {slug}")).await?;
    Ok(Created(Data::at(View::of(&made), made.resource_version())))
}

/// The parameters of a deletion.
pub(crate) const FORCE: &[Parameter] = &[Parameter { name: "force", about: "true deletes the team with all its agents.", kind: "boolean" }];

pub(crate) async fn delete(mut call: Call) -> Result<Data<Deleted>, Error> {
    let force = match call.query.text("force").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Error::bad_request("`force` must be true or false")),
    };
    std::mem::take(&mut call.query).end()?;
    let (team, what) = find(&call).await?;
    let slug = team.name_any();
    let namespace = format!("team-{slug}");
    if force {
        return delete_whole(&call, &team, &what, &namespace).await;
    }
    let agents: Api<Agent> = Api::namespaced(call.context.client.clone(), &namespace);
    let present = agents.list_metadata(&ListParams::default().limit(1)).await.map_err(|error| cluster_error::from_kube(error, "agents"))?;
    if !present.items.is_empty() {
        let message = format!("{what} still has agents; delete these first, or say ?force=true to delete all of them with the team");
        return Err(Error::new(StatusCode::CONFLICT, message));
    }
    let version = write::delete(&call, &api(&call), &team, &what).await?;
    Ok(Data::since(Deleted { id: ids::team(&slug), deleted: true }, version))
}

/// Deletes the team and all its agents. What makes this impossible is checked before anything is deleted; an interrupted
/// deletion is completed by the same call.
async fn delete_whole(call: &Call, team: &Team, what: &str, namespace: &str) -> Result<Data<Deleted>, Error> {
    let context = &call.context;
    if !context.access.allows(&call.caller, DELETE_AGENT, namespace, None).await? {
        let message =
            format!("{} may not {DELETE_AGENT} in {namespace}; who deletes a team with its agents needs that right too", call.caller.name);
        return Err(Error::new(StatusCode::FORBIDDEN, message));
    }
    let agents: Api<Agent> = Api::namespaced(call.client(), namespace);
    let found = present(&agents).await?;
    for agent in &found {
        // GitOps would create it again, in a namespace that is being deleted.
        gitops::refuse(&agent.metadata, &format!("agent {}", agent.name_any()))?;
    }
    let version = write::delete(call, &api(call), team, what).await?;
    let mut left = found;
    for _ in 0..DELETE_ROUNDS_MAX {
        if left.is_empty() {
            break;
        }
        for agent in &left {
            match agents.delete(&agent.name_any(), &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                outcome => drop(outcome.map_err(|error| write::refused(call, error, &format!("agent {}", agent.name_any())))?),
            }
        }
        // New agents may have been created. Those with finalizers are on their way.
        left = present(&agents).await?;
        left.retain(|agent| agent.metadata.deletion_timestamp.is_none());
    }
    if !left.is_empty() {
        let message = format!("{what} is going, but agents are made in it faster than they are deleted; call again once that has ended");
        return Err(Error::new(StatusCode::CONFLICT, message));
    }
    Ok(Data::since(Deleted { id: ids::team(&team.name_any()), deleted: true }, version))
}

/// The agents of a namespace.
async fn present(agents: &Api<Agent>) -> Result<Vec<PartialObjectMeta<Agent>>, Error> {
    let mut found = Vec::new();
    let mut page = ListParams::default().limit(PAGE_SIZE);
    loop {
        let list = agents.list_metadata(&page).await.map_err(|error| cluster_error::from_kube(error, "agents"))?;
        found.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn api(call: &Call) -> Api<Team> {
    Api::all(call.client())
}

/// The team of the path, from the API server, and its name in messages.
async fn find(call: &Call) -> Result<(Team, String), Error> {
    let slug = ids::team_slug(call.path.part("team"));
    let what = format!("team {slug}");
    let unknown = || Error::not_found(format!("there is no {what}"));
    let name = TeamSlug::new(slug).map_err(|_| unknown())?;
    let team = api(call).get(name.as_str()).await.map_err(|error| cluster_error::from_kube(error, &what))?;
    Ok((team, what))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_team_on_its_way_out_is_not_shown_as_whole() {
        let view = |metadata: Value, conditions: &[(&str, &str)]| {
            let condition = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status, "reason": "X", "message": "why", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let conditions: Vec<Value> = conditions.iter().map(condition).collect();
            let team = json!({"metadata": metadata, "spec": {"name": "Blue"}, "status": {"conditions": conditions}});
            let view = View::of(&serde_json::from_value(team).unwrap());
            (view.status, view.message)
        };
        let here = json!({"name": "blue"});
        let leaving = json!({"name": "blue", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let why = || Some("why".to_owned());
        assert_eq!(view(here.clone(), &[]), (Status::Pending, None));
        assert_eq!(view(here.clone(), &[("Ready", "True"), ("Stalled", "False")]), (Status::Ready, None));
        assert_eq!(view(here, &[("Ready", "False"), ("Stalled", "True")]), (Status::Failed, why()));
        assert_eq!(view(leaving.clone(), &[("Ready", "True")]), (Status::Terminating, None));
        assert_eq!(view(leaving, &[("Ready", "False"), ("Stalled", "False")]), (Status::Terminating, why()));
    }
}
