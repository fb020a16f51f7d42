//! Members of a team: each is a RoleBinding in the team's namespace, so that whoever reads Kubernetes' roles reads
//! all there is to know.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_api::{ids, labels};
use slipway_http::{Error, StatusCode};

use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::{fault, write};

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
    /// The ClusterRole that says what it may do.
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
    pub created_at: String,
}

impl View {
    fn of(binding: &RoleBinding) -> Option<Self> {
        Some(Self {
            id: member(binding)?.to_owned(),
            email: binding.annotations().get(labels::EMAIL)?.clone(),
            role: Role::of(binding)?,
            team_id: ids::team(binding.namespace()?.strip_prefix("team-")?),
            created_at: crate::agents::time(binding.creation_timestamp().map(|time| time.0)),
        })
    }
}

/// Whose membership a binding is.
pub(crate) fn member(binding: &RoleBinding) -> Option<&str> {
    binding.metadata.labels.as_ref()?.get(labels::MEMBER).map(String::as_str)
}

pub(crate) async fn list(call: Call) -> Result<Data<Vec<View>>, Error> {
    let found = bindings(&call, None).await?;
    let mut members: Vec<View> = Vec::new();
    // In the middle of a change somebody has two roles, of which the newer one is meant.
    for view in found.iter().filter_map(View::of) {
        match members.iter_mut().find(|known| known.id == view.id) {
            Some(known) if known.created_at < view.created_at => *known = view,
            Some(_) => {}
            None => members.push(view),
        }
    }
    members.sort_by(|one, other| other.created_at.cmp(&one.created_at).then_with(|| one.email.cmp(&other.email)));
    Ok(Data::new(members))
}

/// Who becomes a member, and as what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMember {
    email: String,
    role: Role,
}

pub(crate) async fn create(call: Call<Json<NewMember>>) -> Result<Created<View>, Error> {
    let (call, Json(new)) = call.split();
    let email = email(&new.email)?;
    let user = ids::user(&email);
    if let Some(present) = bindings(&call, Some(&user)).await?.iter().find_map(Role::of) {
        let message = format!("{email} is a member already, as {}; PATCH …/members/{user} changes that", word(present));
        return Err(Error::new(StatusCode::CONFLICT, message));
    }
    let made = bind(&call, &email, new.role).await?;
    answer(&made).map(Created)
}

/// What a member shall be from now on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRole {
    role: Role,
}

/// Makes the new binding, and only then takes the others away: there is no moment without either.
pub(crate) async fn change(call: Call<Json<NewRole>>) -> Result<Data<View>, Error> {
    let (call, Json(new)) = call.split();
    let present = found(&call).await?;
    let kept = if let Some(same) = present.iter().find(|binding| Role::of(binding) == Some(new.role)) {
        same.clone()
    } else {
        let email = present.iter().find_map(|binding| binding.annotations().get(labels::EMAIL)).cloned();
        bind(&call, &email.ok_or_else(|| Error::internal("a member's binding without its e-mail"))?, new.role).await?
    };
    for binding in present.iter().filter(|binding| binding.name_any() != kept.name_any()) {
        unbind(&call, binding).await?;
    }
    answer(&kept)
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    for binding in found(&call).await? {
        unbind(&call, &binding).await?;
    }
    Ok(Data::new(Deleted { id: call.path.part("user").to_owned(), deleted: true }))
}

fn answer(binding: &RoleBinding) -> Result<Data<View>, Error> {
    let view = View::of(binding).ok_or_else(|| Error::internal("a member's binding is not as it was made"))?;
    Ok(Data::at(view, binding.resource_version()))
}

fn api(call: &Call) -> Api<RoleBinding> {
    Api::namespaced(call.context.client.clone(), &call.namespace())
}

/// The bindings of one member, or of all.
async fn bindings(call: &Call, user: Option<&str>) -> Result<Vec<RoleBinding>, Error> {
    let selector = user.map_or_else(|| labels::MEMBER.to_owned(), |user| format!("{}={user}", labels::MEMBER));
    let listed = api(call).list(&ListParams::default().labels(&selector)).await;
    listed.map(|list| list.items).map_err(|error| fault::of_cluster(error, "members"))
}

/// The bindings of the member that the path names.
async fn found(call: &Call) -> Result<Vec<RoleBinding>, Error> {
    let user = call.path.part("user");
    let unknown = || Error::not_found(format!("there is no member {user}"));
    if !user.strip_prefix("user_").is_some_and(|rest| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return Err(unknown());
    }
    let found = bindings(call, Some(user)).await?;
    if found.is_empty() { Err(unknown()) } else { Ok(found) }
}

async fn bind(call: &Call, email: &str, role: Role) -> Result<RoleBinding, Error> {
    if role == Role::PlatformAdmin {
        let message = format!(
            "role: platform_admin is given by the cluster's administrators: kubectl create clusterrolebinding … --clusterrole={} --user=…",
            role.cluster_role()
        );
        return Err(Error::new(StatusCode::FORBIDDEN, message));
    }
    let user = ids::user(email);
    let binding = RoleBinding {
        metadata: ObjectMeta {
            name: Some(format!("slipway-member-{}-{}", user.trim_start_matches("user_"), word(role))),
            namespace: Some(call.namespace()),
            labels: Some([(labels::MEMBER.to_owned(), user), (labels::PART_OF.to_owned(), labels::PLATFORM.to_owned())].into()),
            annotations: Some([(labels::EMAIL.to_owned(), email.to_owned())].into()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: role.cluster_role().to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "User".to_owned(),
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            name: call.context.access.user_of(email),
            namespace: None,
        }]),
    };
    write::create(call, &api(call), binding, &format!("member {email}")).await
}

async fn unbind(call: &Call, binding: &RoleBinding) -> Result<(), Error> {
    match api(call).delete(&binding.name_any(), &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        // Somebody else did the same.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(fault::of_cluster(error, "member")),
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

/// An address is a person's name to Kubernetes, so that nothing else may pass for one.
fn email(text: &str) -> Result<String, Error> {
    let wrong = || Error::bad_request("email: must be an address such as ada@example.com");
    let (local, domain) = text.split_once('@').ok_or_else(wrong)?;
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && !b"@:,;<>()[]\\\"".contains(&byte));
    if plain(local) && plain(domain) && text.len() <= 254 { Ok(text.to_lowercase()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_is_an_address() {
        assert_eq!(email("Ada@Example.com").unwrap(), "ada@example.com");
        for wrong in ["", "ada", "@example.com", "ada@", "a@b@c", "system:admin@x", "a b@c", "a@b\n", &format!("{}@x", "a".repeat(300))] {
            assert!(email(wrong).is_err(), "{wrong:?}");
        }
    }
}
