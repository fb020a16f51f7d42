//! Who calls, for which team, and may they: a token becomes a `Caller`, a header or claim becomes a team, and a
//! SubjectAccessReview decides. What the cluster said is believed for seconds, and no longer.

mod recent;
mod review;
mod token;

use std::time::Duration;

use kube::Client;
use slipway_api::ids;
use slipway_api::names::TeamSlug;
use slipway_cluster::Key;
use slipway_http::{Error, HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::call::Path;
use crate::context::Context;
use crate::right::{MEMBER, Permission, Right};
use recent::Recent;
use review::Question;

/// How long the cluster's word on a token or a right is believed.
const BELIEVED: Duration = Duration::from_secs(5);

const TEAM_ID: HeaderName = HeaderName::from_static("x-team-id");
const TEAM: HeaderName = HeaderName::from_static("x-team");

/// How callers prove who they are.
pub enum Authentication {
    /// They need not: everyone may do everything in the default team.
    Off,
    /// By a bearer token that the cluster knows.
    On,
}

/// Who asks, in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub name: String,
    pub groups: Vec<String>,
    /// The team that the token itself names.
    pub team: Option<String>,
    /// Nobody asked for a proof.
    pub anyone: bool,
}

pub(crate) struct Admitted {
    pub caller: Caller,
    pub team: Option<TeamSlug>,
}

pub(crate) struct Access {
    client: Client,
    authentication: Authentication,
    default_team: String,
    tokens: Recent<[u8; 32], Option<Caller>>,
    verdicts: Recent<Question, bool>,
}

impl Access {
    pub(crate) fn new(client: Client, authentication: Authentication, default_team: String) -> Self {
        Self { client, authentication, default_team, tokens: Recent::new(BELIEVED), verdicts: Recent::new(BELIEVED) }
    }

    /// What Kubernetes calls the person with this address.
    pub(crate) fn user_of(&self, email: &str) -> String {
        email.to_owned()
    }

    /// Who sends these headers.
    async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Error> {
        if matches!(self.authentication, Authentication::Off) {
            return Ok(Caller { name: "anonymous".to_owned(), groups: Vec::new(), team: None, anyone: true });
        }
        let token = bearer(headers)?;
        match self.known(token).await? {
            Some(caller) => Ok(caller),
            None => Err(unauthorized("the token is not valid, or no longer")),
        }
    }

    /// Whether `caller` has `right` in `namespace` (empty: in the whole cluster), on the object `name` if it is known.
    pub(crate) async fn allows(&self, caller: &Caller, right: Right, namespace: &str, name: Option<&str>) -> Result<bool, Error> {
        if caller.anyone {
            return Ok(true);
        }
        self.review(caller, right, namespace, name).await
    }
}

/// Lets a call in, or says why not.
pub(crate) async fn admit(context: &Context, permission: Permission, path: &Path, headers: &HeaderMap) -> Result<Admitted, Error> {
    let access = &context.access;
    if permission == Permission::Open {
        let nobody = Caller { name: String::new(), groups: Vec::new(), team: None, anyone: false };
        return Ok(Admitted { caller: nobody, team: None });
    }
    let caller = access.caller(headers).await?;
    let (team, right, namespace, name) = match permission {
        Permission::Open | Permission::Known => return Ok(Admitted { caller, team: None }),
        Permission::Team(right) => {
            let team = match path.part("team") {
                "" => current_team(context, &caller, headers).await?,
                named => named_team(context, &caller, named).await?,
            };
            let namespace = team.namespace();
            let name = subject(context, path, &namespace);
            (Some(team), right, namespace, name)
        }
        Permission::Cluster(right) => (None, right, String::new(), path.0.first().map(|(_, part)| ids::team_slug(part).to_owned())),
        Permission::Platform(right, name) => (None, right, context.settings.platform_namespace.clone(), Some(name.to_owned())),
    };
    if access.allows(&caller, right, &namespace, name.as_deref()).await? {
        return Ok(Admitted { caller, team });
    }
    let place = team.as_ref().map_or("the cluster".to_owned(), |team| format!("team {team}"));
    Err(Error::new(StatusCode::FORBIDDEN, format!("{} may not {right} in {place}; a role that allows it is needed", caller.name)))
}

/// The name of the object that a path speaks of, as far as it is known: rights can be given by name.
fn subject(context: &Context, path: &Path, namespace: &str) -> Option<String> {
    let (_, part) = path.0.iter().find(|(name, _)| *name != "team")?;
    if part.starts_with("ag_") { context.seen.agents.name_of(namespace, part) } else { Some(ids::skill_name(part)) }
}

/// The team that a call is for: the one that the token names, else the one that a header names, else the only one.
async fn current_team(context: &Context, caller: &Caller, headers: &HeaderMap) -> Result<TeamSlug, Error> {
    if caller.anyone {
        return TeamSlug::new(context.access.default_team.clone()).map_err(Error::internal);
    }
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let asked = header(TEAM_ID).or_else(|| header(TEAM));
    match (caller.team.as_deref(), asked.as_deref()) {
        (Some(claimed), Some(asked)) if ids::team_slug(claimed) != ids::team_slug(asked) => {
            Err(Error::new(StatusCode::FORBIDDEN, "the token is for another team than the header names"))
        }
        (Some(named), _) | (None, Some(named)) => named_team(context, caller, named).await,
        (None, None) => only_team(context, caller).await,
    }
}

/// A team by id or slug, if the caller has a role in it. One that does not exist looks the same to those who have none.
async fn named_team(context: &Context, caller: &Caller, named: &str) -> Result<TeamSlug, Error> {
    let slug = ids::team_slug(named);
    let unknown = || Error::new(StatusCode::FORBIDDEN, format!("you have no role in a team {slug:?}"));
    let team = TeamSlug::new(slug).map_err(|_| unknown())?;
    if !context.access.allows(caller, MEMBER, &team.namespace(), None).await? {
        return Err(unknown());
    }
    if context.seen.teams.get(&Key::new("", slug)).is_none() {
        return Err(Error::not_found(format!("there is no team {slug:?} ({})", ids::team(slug))));
    }
    Ok(team)
}

async fn only_team(context: &Context, caller: &Caller) -> Result<TeamSlug, Error> {
    let mut teams = teams_of(context, caller).await?;
    match (teams.pop(), teams.pop()) {
        (Some(team), None) => Ok(team),
        (None, _) => Err(Error::new(StatusCode::FORBIDDEN, "you have no role in any team; an admin of a team can make you a member")),
        _ => Err(Error::bad_request("you have a role in several teams; say which by the header X-Team (slug) or X-Team-Id (tk_…)")),
    }
}

/// The teams in which the caller has a role.
pub(crate) async fn teams_of(context: &Context, caller: &Caller) -> Result<Vec<TeamSlug>, Error> {
    let all = context.access.allows(caller, MEMBER, "", None).await?;
    let slugs: Vec<String> = if all { context.seen.teams.names("") } else { context.seen.bound_to(caller) };
    let mut teams = Vec::new();
    for slug in slugs {
        let Ok(team) = TeamSlug::new(slug) else { continue };
        if context.access.allows(caller, MEMBER, &team.namespace(), None).await? {
            teams.push(team);
        }
    }
    Ok(teams)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Error> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Err(unauthorized("a token is needed: Authorization: Bearer …"));
    };
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
    });
    token.ok_or_else(|| unauthorized("the header Authorization must be: Bearer, a space, and a token"))
}

fn unauthorized(message: &str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, message).with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}
