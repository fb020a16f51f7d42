//! The API server: whether it is ready, and has the definitions of this version. An upgrade that left them as they were shows here: what
//! older definitions do not know is dropped as it is written.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::api::Api;
use kube::{Client, ResourceExt};
use tokio::time::timeout;

use super::{Finding, LONG_PROBE_TIMEOUT};

/// How many fields a message names.
const MAX_NAMES: usize = 3;

pub(super) async fn test(client: &Client) -> Finding {
    let asked = async {
        ready(client).await?;
        definitions(client).await
    };
    let late = || Err(format!("the API server does not answer within {} s", LONG_PROBE_TIMEOUT.as_secs()));
    Finding::of(timeout(LONG_PROBE_TIMEOUT, asked).await.unwrap_or_else(|_| late()))
}

async fn ready(client: &Client) -> Result<(), String> {
    let asked = http::Request::get("/readyz").body(Vec::new()).map_err(|_| "the API server cannot be asked".to_owned())?;
    match client.request_text(asked).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(format!("the API server is not ready: {}", status.message)),
        Err(_) => Err("the API server does not answer".to_owned()),
    }
}

async fn definitions(client: &Client) -> Result<String, String> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut lacking = Vec::new();
    for ours in slipway_api::crd::all() {
        match api.get_opt(&ours.name_any()).await {
            Ok(theirs) => lacking.extend(lacks(&ours, theirs.as_ref())),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Ok("the API server is ready; REST may not read its definitions".to_owned());
            }
            Err(_) => return Err("the API server is ready, but does not show its definitions".to_owned()),
        }
    }
    if lacking.is_empty() {
        return Ok("the API server is ready, and has the definitions of this version".to_owned());
    }
    let more = if lacking.len() > MAX_NAMES { format!(" and {} more", lacking.len() - MAX_NAMES) } else { String::new() };
    lacking.truncate(MAX_NAMES);
    Err(format!(
        "the API server is ready, but its definitions are older than this version: they lack {}{more}; run slipway-manager crds apply, or \
         upgrade the chart with crds.upgrade",
        lacking.join(", ")
    ))
}

/// What of a definition is not in the cluster, by kind and path.
fn lacks(ours: &CustomResourceDefinition, theirs: Option<&CustomResourceDefinition>) -> Vec<String> {
    let kind = &ours.spec.names.kind;
    let Some(theirs) = theirs else { return vec![kind.clone()] };
    let mut lacking = Vec::new();
    for version in &ours.spec.versions {
        let there = theirs.spec.versions.iter().find(|there| there.name == version.name && there.served);
        let Some(there) = there else {
            lacking.push(format!("{kind} of version {}", version.name));
            continue;
        };
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let known = there.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        if let (Some(schema), Some(known)) = (schema, known) {
            compare(schema, known, kind, &mut lacking);
        }
    }
    lacking
}

/// Fields of `ours` that `theirs` does not know.
fn compare(ours: &JSONSchemaProps, theirs: &JSONSchemaProps, path: &str, lacking: &mut Vec<String>) {
    for (name, field) in ours.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        match theirs.properties.as_ref().and_then(|fields| fields.get(name)) {
            Some(known) => compare(field, known, &path, lacking),
            None => lacking.push(path),
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(item)), Some(JSONSchemaPropsOrArray::Schema(known))) = (&ours.items, &theirs.items) {
        compare(item, known, path, lacking);
    }
    if let (Some(JSONSchemaPropsOrBool::Schema(value)), Some(JSONSchemaPropsOrBool::Schema(known))) =
        (&ours.additional_properties, &theirs.additional_properties)
    {
        compare(value, known, path, lacking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents() -> CustomResourceDefinition {
        slipway_api::crd::all().into_iter().find(|crd| crd.spec.names.kind == "Agent").unwrap()
    }

    fn spec(crd: &mut CustomResourceDefinition) -> &mut JSONSchemaProps {
        let schema = crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        schema.properties.as_mut().unwrap().get_mut("spec").unwrap()
    }

    #[test]
    fn a_definition_of_an_earlier_version_lacks_what_came_since() {
        let ours = agents();
        assert_eq!(lacks(&ours, Some(&agents())), Vec::<String>::new());
        assert_eq!(lacks(&ours, None), ["Agent"]);
        let mut earlier = agents();
        spec(&mut earlier).properties.as_mut().unwrap().remove("canary");
        assert_eq!(lacks(&ours, Some(&earlier)), ["Agent.spec.canary"]);
        assert_eq!(lacks(&earlier, Some(&ours)), Vec::<String>::new(), "a later one lacks nothing");
        let mut other = agents();
        other.spec.versions[0].served = false;
        assert_eq!(lacks(&ours, Some(&other)), ["Agent of version v1"]);
    }
}
