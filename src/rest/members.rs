//! The members of a team. Each is a RoleBinding in the team's namespace; there is no other record.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Preconditions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_api::{ids, labels};
use slipway_http::{Error, StatusCode};

use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::list_cache::parse_version;
use crate::permission::Right;
use crate::write::Expected;
use crate::{cluster_error, write};

const RBAC: &str = "rbac.authorization.k8s.io";
pub(crate) const LIST: Right = Right::on("list", "rolebindings").of_group(RBAC);
pub(crate) const ADD: Right = Right::on("create", "rolebindings").of_group(RBAC);
pub(crate) const REMOVE: Right = Right::on("delete", "rolebindings").of_group(RBAC);

/// A role in a team. platform_admin is one in all of them, and is given by the cluster's administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Viewer,
    Developer,
    Admin,
    PlatformAdmin,
}

impl Role {
    /// The ClusterRole with the role's rights.
    fn cluster_role(self) -> &'static str {
        match self {
            Self::Viewer => "slipway-viewer",
            Self::Developer => "slipway-developer",
            Self::Admin => "slipway-admin",
            Self::PlatformAdmin => "slipway-platform-admin",
        }
    }

    fn of(binding: &RoleBinding) -> Option<Self> {
        [Self::Viewer, Self::Developer, Self::Admin].into_iter().find(|role| role.cluster_role() == binding.role_ref.name)
    }
}

/// A member of a team.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Member")]
pub(crate) struct View {
    pub id: String,
    pub email: String,
    pub role: Role,
    pub team_id: String,
    pub resource_version: Option<String>,
    pub created_at: String,
}

impl View {
    fn of(binding: &RoleBinding) -> Option<Self> {
        Some(Self {
            id: member(binding)?.to_owned(),
            email: binding.annotations().get(labels::EMAIL)?.clone(),
            role: Role::of(binding)?,
            team_id: ids::team(binding.namespace()?.strip_prefix("team-")?),
            resource_version: binding.resource_version(),
            created_at: crate::agents::time(binding.creation_timestamp().map(|time| time.0)),
        })
    }
}

/// The id of the member that a binding belongs to.
pub(crate) fn member(binding: &RoleBinding) -> Option<&str> {
    binding.metadata.labels.as_ref()?.get(labels::MEMBER).map(String::as_str)
}

pub(crate) async fn list(call: Call) -> Result<Data<Vec<View>>, Error> {
    let mut members = members(bindings(&call, None).await?);
    members.sort_by(|one, other| other.created_at.cmp(&one.created_at).then_with(|| one.email.cmp(&other.email)));
    Ok(Data::new(members))
}

/// Each member once. A member with several bindings, as during a change, has the strongest role and the newest version.
fn members(mut bindings: Vec<RoleBinding>) -> Vec<View> {
    bindings.sort_by_key(|binding| Reverse(parse_version(binding.metadata.resource_version.as_deref())));
    let mut members: Vec<View> = Vec::new();
    for view in bindings.iter().filter_map(View::of) {
        match members.iter_mut().find(|known| known.id == view.id) {
            Some(known) => known.role = known.role.max(view.role),
            None => members.push(view),
        }
    }
    members
}

/// Who becomes a member, and as what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMember {
    #[schemars(length(max = 254), regex(pattern = r"^[!#-'*+./0-9=?A-Z^_`a-z{|}~-]+@[!#-'*+./0-9=?A-Z^_`a-z{|}~-]+$"))]
    email: String,
    role: Role,
}

pub(crate) async fn create(call: Call<Json<NewMember>>) -> Result<Created<View>, Error> {
    let (call, Json(new)) = call.split();
    let email = email(new.email)?;
    let user = ids::user(&email);
    may_give(&call, new.role).await?;
    let wanted = binding(&call, &email, new.role);
    if let Some(present) = bindings(&call, Some(&user)).await?.iter().find_map(Role::of) {
        if let Some(made) = write::made_before(&call, &api(&call), &wanted).await? {
            return answer(&made).map(Created);
        }
        let message = format!("{email} is a member already, as {}; PATCH …/members/{user} changes that", word(present));
        return Err(Error::new(StatusCode::CONFLICT, message));
    }
    let made = bind(&call, wanted).await?;
    // After concurrent calls one role remains.
    leave_alone(&call, &made, &bindings(&call, Some(&user)).await?).await?;
    answer(&made).map(Created)
}

/// What a member shall be from now on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRole {
    role: Role,
}

/// Creates the new binding before the others are deleted, so that the member always has one.
///
/// Bindings are never changed, so that versions order them. Of concurrent changes each deletes the bindings older than its
/// own, and the newest remains. A change with `If-Match` succeeds only if no binding came between the known one and its
/// own, and if it deleted the known one itself.
pub(crate) async fn change(call: Call<Json<NewRole>>) -> Result<Data<View>, Error> {
    let (call, Json(new)) = call.split();
    let expected = Expected::of(&call)?;
    // The route checks the right to create bindings.
    if !has(&call, REMOVE).await? {
        let message = format!("{} may not {REMOVE} in this team, which changing a role takes", call.caller.name);
        return Err(Error::new(StatusCode::FORBIDDEN, message));
    }
    let present = found(&call).await?;
    let known = newest(&present)?;
    expected.check(&known.resource_version().unwrap_or_default(), &named(known))?;
    if Role::of(known) == Some(new.role) {
        leave_alone(&call, known, &present).await?;
        return answer(known);
    }
    may_give(&call, new.role).await?;
    // The leftover of an earlier change has the name of the new binding.
    for leftover in present.iter().filter(|binding| Role::of(binding) == Some(new.role)) {
        unbind(&call, leftover).await?;
    }
    let email = known.annotations().get(labels::EMAIL).ok_or_else(|| Error::internal("a member's binding without its e-mail"))?;
    let mine = bind(&call, binding(&call, email, new.role)).await?;
    let now = bindings(&call, Some(call.path.part("user"))).await?;
    if expected.is_one() {
        let overtaken = now.iter().any(|other| is_newer(other, known) && is_newer(&mine, other));
        if overtaken || !unbind(&call, known).await? {
            unbind(&call, &mine).await?;
            return Err(overtook(known));
        }
    }
    leave_alone(&call, &mine, &now).await?;
    answer(&mine)
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let expected = Expected::of(&call)?;
    let present = found(&call).await?;
    let known = newest(&present)?;
    expected.check(&known.resource_version().unwrap_or_default(), &named(known))?;
    if !unbind(&call, known).await? && expected.is_one() {
        return Err(overtook(known));
    }
    leave_alone(&call, known, &present).await?;
    Ok(Data::new(Deleted { id: call.path.part("user").to_owned(), deleted: true }))
}

/// Deletes those of the bindings that are older than this one.
async fn leave_alone(call: &Call, binding: &RoleBinding, all: &[RoleBinding]) -> Result<(), Error> {
    for older in all.iter().filter(|other| is_newer(binding, other)) {
        unbind(call, older).await?;
    }
    Ok(())
}

fn is_newer(one: &RoleBinding, other: &RoleBinding) -> bool {
    parse_version(one.metadata.resource_version.as_deref()) > parse_version(other.metadata.resource_version.as_deref())
}

fn newest(bindings: &[RoleBinding]) -> Result<&RoleBinding, Error> {
    let newest = bindings.iter().max_by_key(|binding| parse_version(binding.metadata.resource_version.as_deref()));
    newest.ok_or_else(|| Error::internal("a member without a binding"))
}

fn named(binding: &RoleBinding) -> String {
    format!("member {}", binding.annotations().get(labels::EMAIL).map_or_else(|| binding.name_any(), Clone::clone))
}

fn overtook(known: &RoleBinding) -> Error {
    let message = format!("{} was changed by somebody else at the same time; read it again", named(known));
    Error::new(StatusCode::CONFLICT, message)
}

fn answer(binding: &RoleBinding) -> Result<Data<View>, Error> {
    let view = View::of(binding).ok_or_else(|| Error::internal("a member's binding is not as it was made"))?;
    Ok(Data::at(view, binding.resource_version()))
}

fn api(call: &Call) -> Api<RoleBinding> {
    Api::namespaced(call.client(), &call.namespace())
}

/// The bindings of one member, or of all members.
async fn bindings(call: &Call, user: Option<&str>) -> Result<Vec<RoleBinding>, Error> {
    let selector = user.map_or_else(|| labels::MEMBER.to_owned(), |user| format!("{}={user}", labels::MEMBER));
    let listed = api(call).list(&ListParams::default().labels(&selector)).await;
    listed.map(|list| list.items).map_err(|error| cluster_error::from_kube(error, "members"))
}

/// The bindings of the path's member.
async fn found(call: &Call) -> Result<Vec<RoleBinding>, Error> {
    let user = call.path.part("user");
    let unknown = || Error::not_found(format!("there is no member {user}"));
    if !user.strip_prefix("user_").is_some_and(|rest| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return Err(unknown());
    }
    let found = bindings(call, Some(user)).await?;
    if found.is_empty() { Err(unknown()) } else { Ok(found) }
}

async fn has(call: &Call, right: Right) -> Result<bool, Error> {
    call.context.access.allows(&call.caller, right, &call.namespace(), None).await
}

/// As with kubectl, callers grant no more than they have, unless they may bind the role.
async fn may_give(call: &Call, role: Role) -> Result<(), Error> {
    let forbidden = |message: String| Err(Error::new(StatusCode::FORBIDDEN, message));
    if role == Role::PlatformAdmin {
        return forbidden(format!(
            "role: platform_admin is given by the cluster's administrators: kubectl create clusterrolebinding … --clusterrole={} --user=…",
            role.cluster_role()
        ));
    }
    let Some(right) = call.context.access.lacks(&call.caller, role.cluster_role(), &call.namespace()).await? else { return Ok(()) };
    let (who, role) = (&call.caller.name, word(role));
    forbidden(format!("role: {who} may not {right} in this team, as the role {role} may; nobody gives more than they have"))
}

async fn bind(call: &Call, binding: RoleBinding) -> Result<RoleBinding, Error> {
    let what = named(&binding);
    write::create(call, &api(call), binding, &what).await
}

fn binding(call: &Call, email: &str, role: Role) -> RoleBinding {
    let user = ids::user(email);
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(format!("slipway-member-{}-{}", user.trim_start_matches("user_"), word(role))),
            namespace: Some(call.namespace()),
            labels: Some([(labels::MEMBER.to_owned(), user), (labels::PART_OF.to_owned(), labels::PLATFORM.to_owned())].into()),
            annotations: Some([(labels::EMAIL.to_owned(), email.to_owned())].into()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef { api_group: RBAC.to_owned(), kind: "ClusterRole".to_owned(), name: role.cluster_role().to_owned() },
        subjects: Some(spellings(email).into_iter().map(|email| person(call.context.access.user_of(&email))).collect()),
    }
}

fn person(name: String) -> Subject {
    Subject { kind: "User".to_owned(), api_group: Some(RBAC.to_owned()), name, namespace: None }
}

/// The spellings that an issuer may use: as given, and in lower case. Kubernetes takes them for two users.
fn spellings(email: &str) -> BTreeSet<String> {
    [email.to_owned(), email.to_lowercase()].into()
}

/// Deletes this binding by UID; `false` if it is gone already.
async fn unbind(call: &Call, binding: &RoleBinding) -> Result<bool, Error> {
    let preconditions = Preconditions { uid: binding.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api(call).delete(&binding.name_any(), &parameters).await {
        Ok(_) => Ok(true),
        // It is gone, or replaced by another of its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(write::refused(call, error, "member")),
    }
}

fn word(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Developer => "developer",
        Role::Admin => "admin",
        Role::PlatformAdmin => "platform_admin",
    }
}

/// The address becomes a user name, so that nothing else may pass for one.
fn email(text: String) -> Result<String, Error> {
    let wrong = || Error::bad_request("email: must be an address such as ada@example.com");
    let (local, domain) = text.split_once('@').ok_or_else(wrong)?;
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && !b"@:,;<>()[]\\\"".contains(&byte));
    if plain(local) && plain(domain) && text.len() <= 254 { Ok(text) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_with_several_bindings_has_the_strongest_role_and_the_newest_version() {
        let binding = |version: &str, email: &str, role: Role| -> RoleBinding {
            let labels = json!({labels::MEMBER: ids::user(email)});
            let metadata = json!({
                "name": "x", "namespace": "team-a", "resourceVersion": version, "labels": labels, "annotations": {labels::EMAIL: email},
            });
            serde_json::from_value(
                json!({"metadata": metadata, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role.cluster_role()}}),
            )
            .unwrap()
        };
        let (ada, eve) = ("ada@example.com", "eve@example.com");
        for (of_ada, role, version) in [
            (&[("9", Role::Viewer)][..], Role::Viewer, "9"),
            // Interrupted changes.
            (&[("9", Role::Admin), ("10", Role::Viewer)], Role::Admin, "10"),
            (&[("9", Role::Viewer), ("10", Role::Developer)], Role::Developer, "10"),
            (&[("11", Role::Developer), ("9", Role::Viewer), ("10", Role::Admin)], Role::Admin, "11"),
        ] {
            let mut bindings: Vec<_> = of_ada.iter().map(|(version, role)| binding(version, ada, *role)).collect();
            bindings.push(binding("12", eve, Role::Viewer));
            let members = members(bindings);
            let shown: Vec<_> = members.iter().map(|one| (one.email.as_str(), one.role, one.resource_version.as_deref())).collect();
            assert_eq!(shown, [(eve, Role::Viewer, Some("12")), (ada, role, Some(version))]);
        }
    }

    #[test]
    fn only_an_address_is_an_address() {
        assert_eq!(email("Ada@Example.com".to_owned()).unwrap(), "Ada@Example.com");
        for wrong in ["", "ada", "@example.com", "ada@", "a@b@c", "system:admin@x", "a b@c", "a@b\n", &format!("{}@x", "a".repeat(300))] {
            assert!(email(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }
}
