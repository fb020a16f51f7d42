//! Integrations: list, get, create, replace, delete and test. Logins are written into Secrets, and none is ever read.
//!
//! `types` lists the types, `request` reads a body, `view` is the form of an integration, `secret` writes its login, `test` has the
//! manager connect to its server.

mod request;
mod secret;
mod test;
mod types;
mod view;

use std::borrow::Cow;

use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};
use slipway_api::integration::{IntegrationType, secret_name};
use slipway_api::{Integration, IntegrationSpec, ids, names};
use slipway_http::{Error, StatusCode};

use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::list_cache::ListEntry;
use crate::page::{Page, page_of};
use crate::permission::Right;
use crate::route::Parameter;
use crate::{cluster_error, fields, gitops, write};

use request::{Credentials, NewIntegration, Replacement, WantedIntegration};
pub(crate) use test::test;
pub(crate) use types::list as types;
use view::{Generated, Status, View, Written};
pub(crate) use view::{IntegrationState, item};

pub(crate) const LIST: Right = Right::on("list", "integrations");
pub(crate) const GET: Right = Right::on("get", "integrations");
pub(crate) const CREATE: Right = Right::on("create", "integrations");
/// Also to test: that is an annotation.
pub(crate) const CHANGE: Right = Right::on("patch", "integrations");
pub(crate) const DELETE: Right = Right::on("delete", "integrations");

/// As every list takes them, and two more.
pub(crate) const LISTED: &[Parameter] = &[
    crate::page::PAGED[0],
    crate::page::PAGED[1],
    crate::page::PAGED[2],
    Parameter { name: "type", about: "Only those of this type.", kind: "integration_type" },
    Parameter { name: "status", about: "Only those that are connected, error or disconnected.", kind: "integration_status" },
];

pub(crate) async fn list(mut call: Call) -> Result<Page<View>, Error> {
    let kind = one_of(&mut call, "type", IntegrationType::ALL, IntegrationType::as_str)?;
    let status = one_of(&mut call, "status", &Status::ALL, Status::as_str)?;
    let (context, namespace) = (call.context.clone(), call.namespace());
    let belongs = |_: &str, item: &ListEntry<IntegrationState>| {
        kind.is_none_or(|kind| item.data.kind == kind) && status.is_none_or(|status| item.data.status == status)
    };
    page_of(call, &context.caches.integrations, Some(&namespace), belongs, |item| Ok(Cow::Borrowed(&*item.json))).await
}

/// The one that a parameter names, if it is there.
fn one_of<T: Copy>(call: &mut Call, name: &str, all: &[T], word: fn(T) -> &'static str) -> Result<Option<T>, Error> {
    let Some(text) = call.query.text(name) else { return Ok(None) };
    let found = all.iter().copied().find(|one| word(*one) == text);
    found.map(Some).ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|one| word(*one)).collect();
        Error::bad_request(format!("`{name}` must be one of {}", words.join(", ")))
    })
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let found = find(&call).await?;
    Ok(Data::at(View::of(&found)?, found.resource_version()))
}

/// Creates the resource, and after it the Secret, which belongs to it. A call that ended in between is finished by the same call with
/// the same Idempotency-Key.
pub(crate) async fn create(call: Call<Json<NewIntegration>>) -> Result<Created<Written>, Error> {
    let (call, Json(body)) = call.split();
    let (name, WantedIntegration { kind, spec, credentials }) = body.read()?;
    let (origin, what) = (spec.origin(), what(&name));
    let mut integration = Integration::new(&name, spec);
    integration.metadata.namespace = Some(call.namespace());
    let made = write::create(&call, &api(&call), integration, &what).await.map_err(|error| of_callers(kind, error))?;
    if made.spec.kind() != Some(kind) || made.spec.origin() != origin {
        let message = format!("{what} was changed since this call made it, and its credentials are left as they are");
        return Err(Error::new(StatusCode::CONFLICT, message));
    }
    written(&call, &made, credentials).await.map(Created)
}

/// Replaces the settings, and the login if one is given. Missing fields are reset; a missing login stays.
pub(crate) async fn replace(call: Call<Json<Replacement>>) -> Result<Data<Written>, Error> {
    let (call, Json(body)) = call.split();
    let name = named(&call)?;
    let WantedIntegration { kind, spec, credentials } = body.read(&name)?;
    let wanted = serde_json::to_value(&spec).map_err(Error::internal)?;
    let (api, what) = (api(&call), what(&name));
    let changed = write::change(&call, &api, &name, &what, |present: &Integration| {
        gitops::refuse(&present.metadata, &what)?;
        if present.spec.kind() != Some(kind) {
            return Err(Error::bad_request("type: an integration keeps its type; make another one"));
        }
        if credentials.is_none() && sends_own_secret_elsewhere(&name, &present.spec, &spec) {
            let message = "credentials: must be given anew, or as {} for none, as the integration goes to another host, which the present ones are not for";
            return Err(Error::new(StatusCode::CONFLICT, message));
        }
        let mut patch: Value = wanted.clone();
        write::clear(&mut patch, &serde_json::to_value(&present.spec).map_err(Error::internal)?);
        Ok(json!({"spec": patch}))
    });
    let changed = changed.await.map_err(|error| of_callers(kind, error))?;
    written(&call, &changed, credentials).await
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let found = find(&call).await?;
    let what = what(&found.name_any());
    gitops::refuse(&found.metadata, &what)?;
    let version = write::delete(&call, &api(&call), &found, &what).await?;
    Ok(Data::since(Deleted { id: found.id(), deleted: true }, version))
}

/// Whether the login that REST has written would go to another host than before.
fn sends_own_secret_elsewhere(name: &str, before: &IntegrationSpec, after: &IntegrationSpec) -> bool {
    before.origin() != after.origin() && after.secret(name).is_some_and(|secret| secret == secret_name(name))
}

/// Writes the login of what was written, if the body has one.
async fn written(call: &Call, integration: &Integration, credentials: Option<Credentials>) -> Result<Data<Written>, Error> {
    let generated = match credentials {
        None => None,
        Some(Credentials { values, generated }) => {
            secret::store(call, integration, &values).await?;
            generated
        }
    };
    let generated = generated.map(|signing_secret| Generated { signing_secret });
    Ok(Data::at(Written { view: View::of(integration)?, generated }, integration.resource_version()))
}

/// An error of the API server about the part of the type, which callers know as `config`.
fn of_callers(kind: IntegrationType, error: Error) -> Error {
    if error.status() != StatusCode::BAD_REQUEST {
        return error;
    }
    let part = format!("{}.", fields::snake(kind.field()));
    let config = |words: &str| words.strip_prefix(part.as_str()).map_or_else(|| words.to_owned(), |rest| format!("config.{rest}"));
    Error::bad_request(error.message().split("; ").map(config).collect::<Vec<_>>().join("; "))
}

fn api(call: &Call) -> Api<Integration> {
    Api::namespaced(call.client(), &call.namespace())
}

fn what(name: &str) -> String {
    format!("integration {name}")
}

/// The name of the path's integration, if it is one.
fn named<B>(call: &Call<B>) -> Result<String, Error> {
    let given = call.path.part("id");
    let name = ids::integration_name(given);
    if names::is_name(&name) { Ok(name) } else { Err(Error::not_found(format!("there is no {}", what(given)))) }
}

async fn find(call: &Call) -> Result<Integration, Error> {
    let name = named(call)?;
    api(call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_the_cluster_names_what_callers_know() {
        let told = |words: &str| of_callers(IntegrationType::GoogleDrive, Error::bad_request(words)).message().to_owned();
        assert_eq!(told("google_drive.endpoint: is no URL; name: is long"), "config.endpoint: is no URL; name: is long");
        assert_eq!(told("s3.google_drive.x"), "s3.google_drive.x");
        let conflict = of_callers(IntegrationType::S3, Error::new(StatusCode::CONFLICT, "s3.bucket"));
        assert_eq!((conflict.status(), conflict.message()), (StatusCode::CONFLICT, "s3.bucket"));
    }

    #[test]
    fn a_login_stays_with_its_host_however_that_is_spelled() {
        let spec = |part: Value| -> IntegrationSpec {
            let mut spec = json!({"name": "N"});
            spec.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            serde_json::from_value(spec).unwrap()
        };
        let at = |url: &str| spec(json!({"prometheus": {"url": url}}));
        let before = at("https://metrics.example.com");
        for (after, moves) in [
            (at("https://METRICS.example.com:443/api"), false),
            (at("https://metrics.example.com:8443"), true),
            (at("http://metrics.example.com"), true),
            (at("https://evil.example.com"), true),
            (spec(json!({"prometheus": {"url": "https://evil.example.com"}, "credentialsSecret": "shared"})), false),
            (spec(json!({"prometheus": {"url": "https://evil.example.com"}, "credentialsSecret": "in-n"})), true),
        ] {
            assert_eq!(sends_own_secret_elsewhere("n", &before, &after), moves, "{after:?}");
        }
        let local = |path: &str| spec(json!({"local": {"path": path}}));
        assert!(!sends_own_secret_elsewhere("n", &local("a"), &local("b")));
    }
}
