//! The interface between controllers and the rest: they hear of every change in the caches, name what they make, and are started.
//! The list of them is in `kinds`; neither caches nor watches name a controller.

use std::sync::{Arc, OnceLock};

use kube::ResourceExt;
use serde_json::Value;
use slipway_cluster::controller::Phase;
use slipway_cluster::references::Kind;
use slipway_cluster::{Key, Object};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caches::ChildKind;

/// What has changed in the caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// An object of one of our kinds, or a Secret, is new, different or gone.
    Object(Kind, Key),
    /// Something that an object of this kind made is new, different or gone.
    Child(&'static str, Key),
    /// Of an agent's pods.
    Pods(Key),
    /// A namespace of a team is new, different or gone.
    Namespace(String),
    /// The Secrets of a namespace have been read for the first time.
    SecretsRead(String),
    /// The platform's configuration.
    Platform,
    /// The database was asked to bring its schema up to date, and has done so or not.
    Database { ready: bool },
    /// The same of the database of knowledge bases.
    Knowledge,
    /// Something else came of the policies of this Team.
    TeamPolicies(Key),
    /// Something else was found of how often this policy was broken.
    Violations(Key),
    /// Other alerts are open of this agent.
    Alerting(Key),
    /// Something else was measured of this agent's canary.
    CanaryMeasured(Key),
    /// Alerts get to this integration otherwise than before.
    Delivering(Key),
    /// A kind of others is installed or gone.
    Kinds,
    /// A Team waits until rows of an earlier one have gone.
    RowsInTheWay(Key),
}

impl Change {
    /// The object of this kind that has changed, if it is one.
    pub(crate) fn of<K: 'static>(&self) -> Option<&Key> {
        match self {
            Self::Object(kind, key) if *kind == Kind::of::<K>() => Some(key),
            _ => None,
        }
    }
}

/// What the objects of a kind make, and how that is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Maker {
    pub kind: &'static str,
    /// The label that names the maker, for objects that lost their owner reference.
    pub label: &'static str,
    /// The field manager by which it writes.
    pub manager: &'static str,
    pub children: &'static [ChildKind],
    /// Whether what is made is in the namespace of its maker; else the maker is in none.
    pub is_namespaced: bool,
}

impl Maker {
    fn key(&self, object: &Object, name: String) -> Key {
        Key::new(if self.is_namespaced { object.namespace().unwrap_or_default() } else { String::new() }, name)
    }
}

/// A controller, or another part that hears of changes and works while this process leads.
pub(crate) trait Registered: Send + Sync {
    /// Hears of a change, in every replica, and requests whatever depends on it.
    fn changed(&self, change: &Change);

    /// What it makes, if it makes anything.
    fn maker(&self) -> Option<&'static Maker> {
        None
    }

    /// Hears of every object that one of its objects owns, in every replica.
    fn found(&self, owner: &Key, kind: ChildKind, name: &str) {
        let _ = (owner, kind, name);
    }

    /// What a child should be, if that can be said now. `live` is what it is. Asked in every replica; changes nothing.
    fn desired(&self, owner: &Key, kind: ChildKind, live: &Object) -> Option<Value> {
        let _ = (owner, kind, live);
        None
    }

    /// Begins to work. The tasks end with the phase.
    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>>;

    /// Requests everything once.
    fn request_all(&self) {}
}

/// All of them, in the order in which they hear of changes.
#[derive(Default)]
pub(crate) struct Registry(OnceLock<Vec<Arc<dyn Registered>>>);

impl Registry {
    pub(crate) fn set(&self, all: Vec<Arc<dyn Registered>>) {
        // The first list stands: there is no second.
        drop(self.0.set(all));
    }

    pub(crate) fn all(&self) -> &[Arc<dyn Registered>] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn publish(&self, change: &Change) {
        self.all().iter().for_each(|registered| registered.changed(change));
    }

    /// Who has made an object: its owner, or whom its label names if it lost that.
    pub(crate) fn owner(&self, kind: ChildKind, object: &Object) -> Option<(&dyn Registered, &'static Maker, Key)> {
        let makers = || {
            let with_makers = self.all().iter().filter_map(|registered| Some((&**registered, registered.maker()?)));
            with_makers.filter(|(_, maker)| maker.children.contains(&kind))
        };
        let owned = |maker: &Maker| object.owner_references().iter().find(|owner| owner.kind == maker.kind).map(|owner| owner.name.clone());
        let labelled = |maker: &Maker| object.labels().get(maker.label).cloned();
        let first = makers().find_map(|(registered, maker)| Some((registered, maker, owned(maker)?)));
        let first = first.or_else(|| makers().find_map(|(registered, maker)| Some((registered, maker, labelled(maker)?))));
        first.map(|(registered, maker, name)| (registered, maker, maker.key(object, name)))
    }
}
