//! Who calls REST in an installation: an account of the cluster, and a person of an OpenID Connect issuer. Both have a
//! developer's rights in the team by a RoleBinding, which the API server is asked about.

use std::io::Write;

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use slipway_api::contract::ACCESS_PUBLIC_KEY;
use slipway_peers::Issuer;
use tempfile::NamedTempFile;

use crate::cluster::{Cluster, OPERATED, TEAM};

const NAME: &str = "caller";
const PERSON: &str = "ada@example.com";
const AUDIENCE: &str = "slipway";
/// Longer than anything here takes.
const TOKEN_SECONDS: i64 = 12 * 3600;
/// What REST lets through is counted as in an installation, and more is let through than anybody asks for.
const LIMITS: &str = r#"{"team":{"atOnce":1024,"perSecond":1000000,"burst":1000000},"agent":{"atOnce":256,"perSecond":1000000,"burst":1000000},"listeners":4096}"#;

pub(crate) struct Callers {
    issuer: Issuer,
    /// The headers of a call by the account.
    pub account: String,
    /// The headers of a call by the person.
    pub person: String,
    /// By which agents know what REST passes on; REST has it in a file.
    relay_key: NamedTempFile,
    /// Its public half, as agents have it.
    pub public_key: String,
}

impl Callers {
    /// Once the operator has made an agent's objects.
    pub(crate) async fn prepare(cluster: &Cluster) -> anyhow::Result<Self> {
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), OPERATED);
        cluster.apply_one(&accounts, NAME, &object("v1", "ServiceAccount", &json!({}))).await?;
        let agents = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["agents.slipway.dev"], "resources": [resource], "verbs": verbs});
        let rules = [agents("agents", &["get", "list", "watch", "create", "update", "patch"]), agents("agents/chat", &["create"])];
        let role = object("rbac.authorization.k8s.io/v1", "Role", &json!({"rules": rules}));
        cluster.apply_one(&Api::<Role>::namespaced(cluster.client(), OPERATED), NAME, &role).await?;
        let bound = json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
            "subjects": [
                {"kind": "ServiceAccount", "namespace": OPERATED, "name": NAME},
                {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": PERSON},
            ],
        });
        let binding = object("rbac.authorization.k8s.io/v1", "RoleBinding", &bound);
        cluster.apply_one(&Api::<RoleBinding>::namespaced(cluster.client(), OPERATED), NAME, &binding).await?;

        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let made = accounts.create_token_request(NAME, &PostParams::default(), &TokenRequest { spec, ..TokenRequest::default() }).await?;
        let account = made.status.context("a token of the account")?.token;
        let issuer = Issuer::start();
        let claims = json!({"aud": AUDIENCE, "email": PERSON, "email_verified": true, "groups": ["engineers", "research"]});
        let person = issuer.token(&claims.to_string());
        let headers = |token: &str| format!("authorization: Bearer {token}\nx-team: {TEAM}");

        let secrets: Api<Secret> = Api::namespaced(cluster.client(), "slipway-system");
        let key = secrets.get("slipway-relay").await?.data.and_then(|mut data| data.remove("key")).context("the operator's relay key")?;
        let mut relay_key = NamedTempFile::new()?;
        relay_key.write_all(&key.0)?;
        let deployments = Api::<Deployment>::namespaced(cluster.client(), OPERATED).list(&ListParams::default().limit(1)).await?;
        let variables =
            deployments.items.into_iter().filter_map(|deployment| deployment.spec?.template.spec?.containers.into_iter().next()?.env);
        let public_key = variables.flatten().find(|variable| variable.name == ACCESS_PUBLIC_KEY).and_then(|variable| variable.value);
        Ok(Self {
            issuer,
            account: headers(&account),
            person: headers(&person),
            relay_key,
            public_key: public_key.context("no agent was told the platform's key")?,
        })
    }

    /// How REST is started to take them, with reviews and limits.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let key = self.relay_key.path().display().to_string();
        let pairs = [
            ("--oidc-issuer", self.issuer.url()),
            ("--oidc-audience", AUDIENCE),
            ("--oidc-username-claim", "email"),
            ("--oidc-groups-claim", "groups"),
            ("--limits", LIMITS),
            ("--relay-key-file", &key),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
    }
}

fn object(version: &str, kind: &str, content: &Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}});
    if let (Some(object), Some(content)) = (object.as_object_mut(), content.as_object()) {
        object.extend(content.clone());
    }
    object
}
