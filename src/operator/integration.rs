//! The integration controller: says of each Integration whether its server answers, through the team's worker, and whether alerts
//! reach it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::api::DynamicObject;
use serde_json::Value;
use slipway_api::condition::{READY, RECONCILING, STALLED};
use slipway_api::integration::IntegrationPhase;
use slipway_api::{Integration, Team, labels};
use slipway_cluster::cached::Guarded;
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::{Key, write};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caches::ChildKind;
use crate::context::Context;
use crate::control_port::Sign;
use crate::registry::{Change, Maker, Registered};

const MAKER: Maker =
    Maker { kind: "Integration", label: labels::INTEGRATION, manager: MANAGER, children: &[ChildKind::Job], is_namespaced: true };
/// The field manager of everything that this controller writes.
const MANAGER: &str = "slipway/integration";
/// How many are reconciled at once: a test takes a few seconds, and waits for its turn elsewhere.
const CONCURRENCY: usize = 32;

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    /// How a worker is asked; none is, without it.
    #[expect(dead_code, reason = "tests are to be sent with it")]
    sign: Option<Arc<Sign>>,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>, sign: Option<Arc<Sign>>) -> Self {
        Self { context, requests: Requests::default(), sign }
    }

    /// Requests the Integrations of a namespace whose login is in a Secret of such a name.
    fn request_users(&self, namespace: &str, is_meant: impl Fn(&str) -> bool) {
        let names_one = |key: &Key, of: &Guarded<Integration>| {
            of.0.as_ref().is_ok_and(|of| of.spec.secret(&key.name).is_some_and(|secret| is_meant(&secret)))
        };
        let all = self.context.caches.integrations.in_namespace(namespace).into_iter();
        self.requests.add_all(all.filter(|(key, of)| names_one(key, of)).map(|(key, _)| key));
    }

    fn request_namespace(&self, namespace: &str) {
        self.requests.add_all(self.context.caches.integrations.in_namespace(namespace).into_iter().map(|(key, _)| key));
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<Integration>() {
            self.requests.add(key.clone());
        } else if let Some(secret) = change.of::<Secret>() {
            self.request_users(&secret.namespace, |name| name == secret.name);
        } else if let Some(team) = change.of::<Team>() {
            self.request_namespace(&format!("team-{}", team.name));
        }
        match change {
            Change::Child("Integration", key) | Change::Delivering(key) => self.requests.add(key.clone()),
            Change::SecretsRead(namespace) | Change::Namespace(namespace) => self.request_namespace(namespace),
            _ => {}
        }
    }

    fn maker(&self) -> Option<&'static Maker> {
        Some(&MAKER)
    }

    /// What a Job runs cannot be changed, so that there is nothing to compare.
    fn desired(&self, _: &Key, _: ChildKind, _: &DynamicObject) -> Option<Value> {
        None
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<Integration, _>(phase, ("integration", CONCURRENCY, &requests), move |key| {
            let controller = self.clone();
            async move { reconcile(&controller, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.integrations.keys());
    }
}

async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(object) = context.caches.integrations.get(key) else {
        context.untroubled("Integration", key);
        return Ok(None);
    };
    match &object.0 {
        Ok(integration) if integration.meta().deletion_timestamp.is_some() => Ok(None),
        Ok(_) => Ok(Some(RESYNC)),
        Err(invalid) => {
            let conditions = [(READY, false), (RECONCILING, false), (STALLED, true)];
            context.malformed::<Integration>(key, invalid, IntegrationPhase::Error, &conditions).await?;
            Ok(Some(RESYNC))
        }
    }
}
