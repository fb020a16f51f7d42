//! Authentication and authorization: a token becomes a `Caller`, a path, claim or header becomes a team, and a
//! SubjectAccessReview decides. Reviews are cached for seconds.

mod failure_limiter;
mod oidc;
mod review;
mod role;
mod token;
mod ttl_cache;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use sha2::{Digest, Sha256};
use slipway_api::ids;
use slipway_api::names::TeamSlug;
use slipway_cluster::Key;
use slipway_http::gate::CREDENTIAL_BYTES;
use slipway_http::{Error, HeaderMap, HeaderName, HeaderValue, Holder, StatusCode, header};

use crate::call::Path;
use crate::context::Context;
use crate::evaluations;
use crate::permission::{MEMBER, Permission, Right};
use failure_limiter::FailureLimiter;
pub use oidc::{Issuer, Oidc};
use review::{AccessQuestion, Attributes};
use token::TokenIdentity;
use ttl_cache::TtlCache;

/// How long TokenReviews and SubjectAccessReviews are cached.
const REVIEW_TTL: Duration = Duration::from_secs(5);
/// How long a token that was valid is exempt from the failure limit.
const GOOD_TOKEN_TTL: Duration = Duration::from_mins(15);
/// For how long the credential of a gate is not limited after it was valid: rollouts may be days apart, and wrong credentials from
/// everywhere are not to keep them out.
const GOOD_GATE_TTL: Duration = Duration::from_hours(7 * 24);

const TEAM_ID_HEADER: HeaderName = HeaderName::from_static("x-team-id");
const TEAM_HEADER: HeaderName = HeaderName::from_static("x-team");

/// The part of a path that is the credential of a gate.
const GATE_CREDENTIAL: &str = "credential";

/// Longer tokens are refused without a review.
const TOKEN_LEN_MAX: usize = 16 * 1024;

/// How callers are authenticated.
pub enum Authentication {
    /// Not at all: everyone may do everything in the default team.
    Off,
    /// By a bearer token: of this issuer if the token names it, otherwise by TokenReview.
    On(Option<Box<Issuer>>),
}

/// The caller as Kubernetes knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub name: String,
    pub groups: Vec<String>,
    /// Further attributes, which authorizers may use.
    pub uid: Option<String>,
    pub extra: BTreeMap<String, Vec<String>>,
    /// The team that the token is limited to.
    pub team: Option<String>,
    /// Authentication is off.
    pub anyone: bool,
}

impl Caller {
    /// Whether the token is limited to no team, or to the team of the path.
    fn is_free_of_teams(&self, path: &Path) -> bool {
        self.team.as_deref().map(slug).is_none_or(|team| !team.is_empty() && team == slug(path.part("team")))
    }
}

pub(crate) struct Admitted {
    pub caller: Arc<Caller>,
    pub team: Option<TeamSlug>,
    /// Why the call has no team yet: the handler looks whether the caller has the right on what the body names.
    pub refusal: Option<Error>,
}

impl Admitted {
    /// The account for memory that the call holds.
    pub(crate) fn holder(&self, address: IpAddr) -> Holder {
        if self.caller.anyone {
            return Holder::new(address, None);
        }
        Holder::new(&self.caller.name, self.team.as_ref().map(TeamSlug::as_str))
    }
}

pub(crate) struct Access {
    client: Client,
    authentication: Authentication,
    default_team: String,
    tokens: TtlCache<[u8; 32], TokenIdentity>,
    known_good: TtlCache<[u8; 32], ()>,
    failures: FailureLimiter,
    /// Apart, so that wrong callbacks keep no user out.
    callback_failures: FailureLimiter,
    /// Nor do wrong credentials of gates.
    gate_failures: FailureLimiter,
    /// The credentials of gates that were valid. They are verified all the same.
    good_gates: TtlCache<[u8; 32], ()>,
    reviews: TtlCache<AccessQuestion, bool>,
}

impl Access {
    pub(crate) fn new(client: Client, authentication: Authentication, default_team: String) -> Self {
        Self {
            client,
            authentication,
            default_team,
            tokens: TtlCache::new(REVIEW_TTL),
            known_good: TtlCache::new(GOOD_TOKEN_TTL),
            failures: FailureLimiter::new(Instant::now()),
            callback_failures: FailureLimiter::new(Instant::now()),
            gate_failures: FailureLimiter::new(Instant::now()),
            good_gates: TtlCache::new(GOOD_GATE_TTL),
            reviews: TtlCache::new(REVIEW_TTL),
        }
    }

    /// The issuer whose tokens are accepted besides the cluster's.
    pub(crate) fn issuer(&self) -> Option<&Issuer> {
        match &self.authentication {
            Authentication::On(issuer) => issuer.as_deref(),
            Authentication::Off => None,
        }
    }

    /// The Kubernetes user name of the person with this e-mail address.
    pub(crate) fn user_of(&self, email: &str) -> String {
        self.issuer().map_or_else(|| email.to_owned(), |issuer| issuer.user(email))
    }

    /// The caller of a request.
    async fn caller(&self, headers: &HeaderMap, address: IpAddr) -> Result<Arc<Caller>, Error> {
        if matches!(self.authentication, Authentication::Off) {
            return Ok(Arc::new(Caller { name: "anonymous".to_owned(), anyone: true, ..Caller::default() }));
        }
        let token = bearer(headers)?;
        // Only hashes of tokens are kept.
        let hash = Sha256::digest(token).into();
        let identity = match self.tokens.get(&hash, Instant::now()).filter(TokenIdentity::is_valid) {
            Some(identity) => identity,
            None => Box::pin(self.authenticate(token, hash, address)).await?,
        };
        identity.caller.ok_or_else(|| invalid("the cluster does not know it, or no longer"))
    }

    /// Notes that the token of a callback was valid, or could not be verified.
    pub(crate) fn callback_succeeded(&self, address: IpAddr) {
        self.callback_failures.succeeded(address);
    }

    /// Takes an attempt with the credential of a gate, unless it was valid lately: Flagger calls for all teams from one address.
    fn attempt_gate(&self, credential: &str, address: IpAddr, now: Instant) -> Result<(), Error> {
        match self.good_gates.get(&gate_hash(credential), now) {
            Some(()) => Ok(()),
            None => self.gate_failures.attempt(address, now),
        }
    }

    /// Notes whether the credential of a gate was valid. None if it could not be verified, which is no fault of the caller.
    pub(crate) fn gate_verified(&self, credential: &str, address: IpAddr, is_valid: Option<bool>, now: Instant) {
        let hash = gate_hash(credential);
        // One that was known has taken nothing that could be returned.
        let has_taken = self.good_gates.get(&hash, now).is_none();
        match is_valid {
            Some(true) => self.good_gates.put(hash, (), now),
            Some(false) => self.good_gates.forget(&hash),
            None => {}
        }
        if has_taken && is_valid != Some(false) {
            self.gate_failures.succeeded(address);
        }
    }

    /// Whether `caller` has `right` in `namespace` (empty: in the whole cluster), on the object `name` if it is known.
    pub(crate) async fn allows(&self, caller: &Arc<Caller>, right: Right, namespace: &str, name: Option<&str>) -> Result<bool, Error> {
        self.may(caller, Attributes::of(right, namespace, name)).await
    }

    /// The same for attributes that come from rules.
    async fn may(&self, caller: &Arc<Caller>, attributes: Attributes) -> Result<bool, Error> {
        if caller.anyone {
            return Ok(true);
        }
        let question = AccessQuestion::new(caller.clone(), attributes);
        match self.reviews.get(&question, Instant::now()) {
            Some(allowed) => Ok(allowed),
            None => Box::pin(self.review(question)).await,
        }
    }
}

/// Authenticates and authorizes a call.
pub(crate) async fn admit(
    context: &Context,
    permission: Permission,
    path: &Path,
    headers: &HeaderMap,
    address: IpAddr,
) -> Result<Admitted, Error> {
    if permission == Permission::Open {
        return Ok(Admitted { caller: Arc::default(), team: None, refusal: None });
    }
    if permission == Permission::Callback {
        callback_token(headers)?;
        context.access.callback_failures.attempt(address, Instant::now())?;
        return Ok(Admitted { caller: Arc::default(), team: None, refusal: None });
    }
    if permission == Permission::Gate {
        // Without a credential the gate stays shut; nobody else is asked.
        gate_credential(path, headers).map_or(Ok(()), |credential| context.access.attempt_gate(&credential, address, Instant::now()))?;
        return Ok(Admitted { caller: Arc::default(), team: None, refusal: None });
    }
    let caller = context.access.caller(headers, address).await?;
    let (right, namespace, name) = match permission {
        Permission::Open | Permission::Callback | Permission::Gate | Permission::Known => {
            return Ok(Admitted { caller, team: None, refusal: None });
        }
        Permission::Team(right) | Permission::TeamOrAll(right) => {
            let team = team_with(context, &caller, right, path, headers).await?;
            return Ok(Admitted { caller, team: Some(team), refusal: None });
        }
        Permission::TeamOrNamed(right) => {
            return match team_with(context, &caller, right, path, headers).await {
                Ok(team) => Ok(Admitted { caller, team: Some(team), refusal: None }),
                Err(error) if error.status() == StatusCode::FORBIDDEN => Ok(Admitted { caller, team: None, refusal: Some(error) }),
                Err(error) => Err(error),
            };
        }
        Permission::Cluster(_) | Permission::Platform(..) if !caller.is_free_of_teams(path) => {
            let team = caller.team.as_deref().map(slug).unwrap_or_default();
            return Err(forbidden(format!("the token is for the team {team:?} alone, and not for the platform")));
        }
        Permission::Cluster(right) => (right, "", path.0.first().map(|(_, part)| ids::team_slug(part).to_owned())),
        Permission::Platform(right, name) => (right, context.settings.platform_namespace.as_str(), Some(name.to_owned())),
    };
    if context.access.allows(&caller, right, namespace, name.as_deref()).await? {
        return Ok(Admitted { caller, team: None, refusal: None });
    }
    Err(forbidden(format!("{} may not {right} in the cluster; a role that allows it is needed", caller.name)))
}

/// The team of a call, if the caller has the right in it, or on the object of the path.
pub(crate) async fn team_with(
    context: &Context,
    caller: &Arc<Caller>,
    right: Right,
    path: &Path,
    headers: &HeaderMap,
) -> Result<TeamSlug, Error> {
    TeamSelection { context, caller, right, path }.team(headers).await
}

/// How a path names the object that a right is about.
#[derive(Debug, PartialEq, Eq)]
enum Subject<'a> {
    Name(String),
    /// An agent, by id or slug.
    Agent(&'a str),
    /// An evaluation run, by id.
    Run(&'a str),
    /// Not at all, so that a right by name does not do.
    Unnamed,
}

impl<'a> Subject<'a> {
    /// None of a resource that is not known here.
    fn of(resource: &str, path: &'a Path) -> Option<Self> {
        let part = |name: &str| Some(path.part(name)).filter(|part| !part.is_empty());
        let subject = match resource {
            "agents" => part("id").or_else(|| part("agent_id")).map(Self::Agent),
            // Datasets and runs stand below their agent, ingestions below their knowledge base.
            "datasets" => part("name").map(|name| Self::Name(ids::dataset_name(name))),
            "evaluationruns" => part("run_id").map(Self::Run),
            "ingestions" => part("job_id").map(|name| Self::Name(name.to_owned())),
            "guardrailpolicies" => part("id").map(|id| Self::Name(ids::guardrail_policy_name(id))),
            "integrations" => part("id").map(|id| Self::Name(ids::integration_name(id))),
            "knowledgebases" => part("id").map(|id| Self::Name(ids::knowledge_base_name(id))),
            "skills" => part("id").map(|id| Self::Name(ids::skill_name(id))),
            "tools" => part("name").map(|name| Self::Name(name.to_owned())),
            // A path has a release's agent and number, and a member's id, but not the names of their objects.
            "agentreleases" | "rolebindings" => None,
            _ => return None,
        };
        Some(subject.unwrap_or(Self::Unnamed))
    }
}

/// The name of the path's object, if it is known: rights can be granted by name.
fn subject(context: &Context, right: Right, path: &Path, namespace: &str) -> Option<String> {
    match Subject::of(right.resource, path)? {
        Subject::Name(name) => Some(name),
        Subject::Agent(id) if id.starts_with("ag_") => context.caches.agents.name_of(namespace, id),
        Subject::Agent(slug) => Some(slug.to_owned()),
        Subject::Run(id) => context.caches.evaluations.name_of(namespace, id).or_else(|| evaluations::names_of(id).next()),
        Subject::Unnamed => None,
    }
}

/// Selects the team of a call: from the path, the token, a header, or the caller's only team, in this order.
struct TeamSelection<'a> {
    context: &'a Context,
    caller: &'a Arc<Caller>,
    right: Right,
    path: &'a Path,
}

impl TeamSelection<'_> {
    async fn team(&self, headers: &HeaderMap) -> Result<TeamSlug, Error> {
        let path = Some(self.path.part("team")).filter(|named| !named.is_empty());
        if self.caller.anyone && path.is_none() {
            return TeamSlug::new(self.context.access.default_team.clone()).map_err(Error::internal);
        }
        let asked = match path {
            Some(named) => Some(slug(named)),
            None => requested_team(headers)?,
        };
        match (self.caller.team.as_deref().map(slug), asked) {
            (Some(claimed), Some(asked)) if claimed != asked => {
                Err(forbidden(format!("the token is for the team {claimed:?} alone, not for {asked:?}")))
            }
            (Some(named), _) | (None, Some(named)) => self.named(&named).await,
            (None, None) => Box::pin(self.only()).await,
        }
    }

    /// Whether the caller has the call's right in this team. That takes no role.
    async fn may(&self, team: &TeamSlug) -> Result<bool, Error> {
        let namespace = team.namespace();
        let name = subject(self.context, self.right, self.path, &namespace);
        self.context.access.allows(self.caller, self.right, &namespace, name.as_deref()).await
    }

    /// The team, if the caller has the right. Without a role, a missing team looks like a foreign one.
    async fn named(&self, slug: &str) -> Result<TeamSlug, Error> {
        let stranger = || forbidden(format!("you have no role in a team {slug:?}"));
        let team = TeamSlug::new(slug).map_err(|_| stranger())?;
        if self.may(&team).await? {
            let known = self.context.caches.teams.get(&Key::new("", slug)).is_some();
            return if known { Ok(team) } else { Err(Error::not_found(format!("there is no team {slug:?} ({})", ids::team(slug)))) };
        }
        if !self.context.access.allows(self.caller, MEMBER, &team.namespace(), None).await? {
            return Err(stranger());
        }
        let (who, right) = (&self.caller.name, self.right);
        Err(forbidden(format!("{who} may not {right} in team {team}; a role that allows it is needed")))
    }

    async fn only(&self) -> Result<TeamSlug, Error> {
        let mut teams = Vec::new();
        for team in candidates(self.context, self.caller).await? {
            if self.context.access.allows(self.caller, MEMBER, &team.namespace(), None).await? || self.may(&team).await? {
                teams.push(team);
            }
        }
        match (teams.pop(), teams.pop()) {
            (Some(team), None) => self.named(team.as_str()).await,
            (None, _) => Err(forbidden("you have no role in any team; an admin of a team can make you a member".to_owned())),
            _ => Err(Error::bad_request("you have a role in several teams; say which by the header X-Team (slug) or X-Team-Id (tk_…)")),
        }
    }
}

/// The teams in which the caller may have a role; a review decides. A token for one team yields no other.
async fn candidates(context: &Context, caller: &Arc<Caller>) -> Result<Vec<TeamSlug>, Error> {
    let all = context.access.allows(caller, MEMBER, "", None).await?;
    let slugs: Vec<String> = if all { context.caches.teams.names("") } else { context.caches.teams_bound_to(caller) };
    let claimed = caller.team.as_deref().map(slug);
    let mine = slugs.into_iter().filter(|slug| claimed.as_ref().is_none_or(|claimed| claimed == slug));
    Ok(mine.filter_map(|slug| TeamSlug::new(slug).ok()).collect())
}

/// The teams in which the caller has a role.
pub(crate) async fn teams_of(context: &Context, caller: &Arc<Caller>) -> Result<Vec<TeamSlug>, Error> {
    let mut teams = Vec::new();
    for team in candidates(context, caller).await? {
        if context.access.allows(caller, MEMBER, &team.namespace(), None).await? {
            teams.push(team);
        }
    }
    Ok(teams)
}

/// The slug in an id or slug, in the spelling of namespaces.
fn slug(named: &str) -> String {
    ids::team_slug(named.trim()).to_lowercase()
}

/// The team that the headers name. Two different teams are an error.
fn requested_team(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let mut asked: Option<String> = None;
    let ids = headers.get_all(TEAM_ID_HEADER).iter().map(|value| (true, value));
    for (is_id, value) in ids.chain(headers.get_all(TEAM_HEADER).iter().map(|value| (false, value))) {
        // An empty id stands for the default team, like tk_ without a slug.
        let default = |named: &str| is_id && named.trim().is_empty();
        let named = value.to_str().ok().map(|named| if default(named) { ids::DEFAULT_TEAM.to_owned() } else { slug(named) });
        let named = named.filter(|slug| !slug.is_empty());
        let named =
            named.ok_or_else(|| Error::bad_request("the headers X-Team and X-Team-Id must name a team: its slug, or tk_ and its slug"))?;
        if asked.as_ref().is_some_and(|other| *other != named) {
            return Err(Error::bad_request("the headers X-Team and X-Team-Id name different teams; one of them is enough"));
        }
        asked = Some(named);
    }
    Ok(asked)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Error> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (given.next(), given.next()) {
        (Some(value), None) => value,
        (None, _) => return Err(unauthorized("a token is needed: Authorization: Bearer …", "Bearer")),
        _ => return Err(unauthorized("there is more than one header Authorization", "Bearer")),
    };
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
    });
    match token {
        Some(token) if token.len() > TOKEN_LEN_MAX => Err(invalid(&format!("it is longer than {TOKEN_LEN_MAX} bytes"))),
        Some(token) => Ok(token),
        None => Err(unauthorized("the header Authorization must be: Bearer, a space, and a token", "Bearer")),
    }
}

/// The token of a callback.
pub(crate) fn callback_token(headers: &HeaderMap) -> Result<&str, Error> {
    bearer(headers)
}

/// The credential of a gate: a part of the path, or the password of Basic, as which user information in a URL is sent.
pub(crate) fn gate_credential(path: &Path, headers: &HeaderMap) -> Option<String> {
    let given = Some(path.part(GATE_CREDENTIAL)).filter(|part| !part.is_empty()).map(str::to_owned);
    given.or_else(|| password(headers)).filter(|credential| credential.len() == CREDENTIAL_BYTES)
}

/// Only hashes are kept.
fn gate_hash(credential: &str) -> [u8; 32] {
    Sha256::digest(credential).into()
}

/// The password of Authorization: Basic, empty if it cannot be read. None without such a header.
pub(crate) fn password(headers: &HeaderMap) -> Option<String> {
    let (scheme, encoded) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let read = || Some(String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?.split_once(':')?.1.to_owned());
    scheme.eq_ignore_ascii_case("basic").then(|| read().unwrap_or_default())
}

/// 401 for a callback: whatever is wrong, and whether there is such a run or agent, sounds alike.
pub(crate) fn invalid_callback() -> Error {
    unauthorized("the token is not valid for this callback, or no longer", "Bearer error=\"invalid_token\"")
}

/// 401 for an invalid token.
fn invalid(problem: &str) -> Error {
    unauthorized(&format!("the token is not valid: {problem}"), "Bearer error=\"invalid_token\"")
}

fn unauthorized(message: &str, challenge: &'static str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, message).with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

fn forbidden(message: String) -> Error {
    Error::new(StatusCode::FORBIDDEN, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn every_route_of_a_team_knows_what_its_right_is_about() {
        // Of these some routes are about a list, or about an object that the path does not name.
        const UNNAMED: [&str; 5] = ["agentreleases", "datasets", "evaluationruns", "ingestions", "rolebindings"];
        for route in routes::all() {
            let (Permission::Team(right) | Permission::TeamOrAll(right) | Permission::TeamOrNamed(right)) = route.permission else {
                continue;
            };
            let parts = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            let path = Path(parts.filter(|name| *name != "team").map(|name| (name, format!("the-{name}"))).collect());
            let (method, place, resource) = (&route.method, route.path, right.resource);
            let subject = Subject::of(resource, &path).unwrap_or_else(|| panic!("{method} {place}: Subject::of does not know {resource}"));
            let may_be_unnamed = path.0.is_empty() || UNNAMED.contains(&resource);
            assert!(subject != Subject::Unnamed || may_be_unnamed, "{method} {place}: the right on {resource} is asked for without a name");
        }
    }

    #[test]
    fn a_right_is_about_the_object_of_its_kind_in_the_path() {
        let name = |name: &str| Subject::Name(name.to_owned());
        for (resource, parts, expected) in [
            ("agents", &[("id", "ag_1")][..], Subject::Agent("ag_1")),
            ("agents", &[("id", "hello"), ("cid", "c")], Subject::Agent("hello")),
            ("agents", &[("agent_id", "hello")], Subject::Agent("hello")),
            ("agents", &[], Subject::Unnamed),
            ("agentreleases", &[("id", "hello"), ("version", "3")], Subject::Unnamed),
            ("datasets", &[("id", "hello")], Subject::Unnamed),
            ("datasets", &[("id", "hello"), ("name", "ds_my_cases")], name("my-cases")),
            ("evaluationruns", &[("id", "hello")], Subject::Unnamed),
            ("evaluationruns", &[("id", "hello"), ("run_id", "ev_1")], Subject::Run("ev_1")),
            ("guardrailpolicies", &[("id", "gp_no_secrets")], name("no-secrets")),
            ("ingestions", &[("id", "docs")], Subject::Unnamed),
            ("ingestions", &[("id", "docs"), ("job_id", "nightly")], name("nightly")),
            ("integrations", &[("id", "in_our_jira")], name("our-jira")),
            ("knowledgebases", &[("id", "kb_our_docs")], name("our-docs")),
            ("knowledgebases", &[("id", "our-docs"), ("doc", "d")], name("our-docs")),
            ("rolebindings", &[("team", "blue"), ("user", "user_1")], Subject::Unnamed),
            ("skills", &[("id", "sk_fold_paper")], name("fold-paper")),
            ("tools", &[("name", "weather")], name("weather")),
        ] {
            let path = Path(parts.iter().map(|(part, value)| (*part, (*value).to_owned())).collect());
            assert_eq!(Subject::of(resource, &path), Some(expected), "{resource} {parts:?}");
        }
    }

    #[test]
    fn a_token_is_one_word_after_bearer() {
        for (given, token) in [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("BEARER a.b.c", "a.b.c")] {
            assert_eq!(bearer(&headers(&[("authorization", given)])).unwrap(), token, "{given}");
        }
        let long = format!("Bearer {}", "x".repeat(TOKEN_LEN_MAX + 1));
        for wrong in ["Bearer", "Bearer ", "Basic abc", "abc", "", &long] {
            let error = bearer(&headers(&[("authorization", wrong)])).unwrap_err();
            assert_eq!(error.status(), StatusCode::UNAUTHORIZED, "{wrong:.40}");
            assert!(error.message().len() < 200, "{}", error.message());
        }
        bearer(&HeaderMap::new()).unwrap_err();
        let mut two = headers(&[("authorization", "Bearer abc")]);
        two.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer def"));
        bearer(&two).unwrap_err();
    }

    #[test]
    fn a_gates_credential_stands_in_the_path_or_is_a_password() {
        let (one, other) = ("a".repeat(CREDENTIAL_BYTES), "b".repeat(CREDENTIAL_BYTES));
        let path = |credential: &str| Path(vec![(GATE_CREDENTIAL, credential.to_owned())]);
        let basic = |text: &str| headers(&[("authorization", &format!("Basic {}", STANDARD.encode(text)))]);
        for (what, path, headers, expected) in [
            ("in the path", path(&one), HeaderMap::new(), Some(&one)),
            ("as a password, of any user", Path::default(), basic(&format!("flagger:{other}")), Some(&other)),
            ("without a user", Path::default(), basic(&format!(":{other}")), Some(&other)),
            ("both", path(&one), basic(&format!("flagger:{other}")), Some(&one)),
            ("neither", Path::default(), HeaderMap::new(), None),
            ("too short", path("a"), HeaderMap::new(), None),
            ("too long", path(&format!("{one}a")), HeaderMap::new(), None),
            ("as a token", Path::default(), headers(&[("authorization", &format!("Bearer {one}"))]), None),
            ("no pair", Path::default(), basic(&one), None),
            ("no base 64", Path::default(), headers(&[("authorization", "Basic ?")]), None),
        ] {
            assert_eq!(gate_credential(&path, &headers).as_ref(), expected, "{what}");
        }
    }

    #[tokio::test]
    async fn a_right_credential_of_a_gate_gives_a_wrong_one_nothing() {
        let away = |_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is asked"))
        };
        let access = Access::new(Client::new(tower::service_fn(away), "default"), Authentication::Off, "a".to_owned());
        let (address, begun) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        let ask = |credential: &str, is_valid: bool, now: Instant| {
            let taken = access.attempt_gate(credential, address, now);
            if taken.is_ok() {
                access.gate_verified(credential, address, Some(is_valid), now);
            }
            taken.is_ok()
        };
        assert!(ask("right", true, begun));
        for days in [0, 6, 12] {
            let now = begun + Duration::from_hours(24 * days);
            while ask("wrong", false, now) {}
            assert!(ask("right", true, now), "it was right within a week");
            assert!(!ask("wrong", false, now), "and has nothing to give");
        }
        let later = begun + Duration::from_hours(24 * 20);
        while ask("wrong", false, later) {}
        assert!(!ask("right", true, later), "it is forgotten");
    }

    #[test]
    fn a_token_for_one_team_is_for_no_route_of_the_platform() {
        let of = |claim: Option<&str>| Caller { team: claim.map(str::to_owned), ..Caller::default() };
        let path = |team: &str| Path(vec![("team", team.to_owned())]);
        for (claim, path, is_free) in [
            (None, Path::default(), true),
            (None, path("red"), true),
            (Some("tk_blue"), Path::default(), false),
            (Some("tk_blue"), path("tk_red"), false),
            (Some("tk_blue"), path("blue"), true),
            (Some("blue"), path("tk_Blue"), true),
            (Some("tk_"), Path::default(), false),
        ] {
            assert_eq!(of(claim).is_free_of_teams(&path), is_free, "{claim:?} {path:?}");
        }
    }

    #[test]
    fn headers_name_one_team_or_none() {
        for (given, team) in [
            (&[][..], None),
            (&[("x-team", "blue")], Some("blue")),
            (&[("x-team-id", "tk_blue")], Some("blue")),
            (&[("x-team-id", "tk_Blue"), ("x-team", "blue")], Some("blue")),
            (&[("x-team-id", "tk_")], Some("default")),
            (&[("x-team-id", "")], Some("default")),
            (&[("x-team-id", ""), ("x-team", "default")], Some("default")),
        ] {
            assert_eq!(requested_team(&headers(given)).unwrap().as_deref(), team, "{given:?}");
        }
        for wrong in [&[("x-team", "")][..], &[("x-team", "blue"), ("x-team-id", "tk_red")], &[("x-team", " ")]] {
            assert_eq!(requested_team(&headers(wrong)).unwrap_err().status(), StatusCode::BAD_REQUEST, "{wrong:?}");
        }
        let unreadable: HeaderMap = [(TEAM_HEADER, HeaderValue::from_bytes(b"bl\xffe").unwrap())].into_iter().collect();
        assert_eq!(requested_team(&unreadable).unwrap_err().status(), StatusCode::BAD_REQUEST);
    }
}
