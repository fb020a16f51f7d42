//! The right that an endpoint requires: exactly the Kubernetes verb and resource that it comes down to, so that REST allows
//! what kubectl allows.

use serde_json::{Value, json};

/// A verb on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Right {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: Option<&'static str>,
}

impl Right {
    /// A right on one of our own kinds.
    pub(crate) const fn on(verb: &'static str, resource: &'static str) -> Self {
        Self { verb, group: slipway_api::GROUP, resource, subresource: None }
    }

    pub(crate) const fn of_group(self, group: &'static str) -> Self {
        Self { group, ..self }
    }

    pub(crate) const fn sub(self, subresource: &'static str) -> Self {
        Self { subresource: Some(subresource), ..self }
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        self.subresource.map_or(Ok(()), |subresource| write!(f, "/{subresource}"))
    }
}

/// The callers that an endpoint admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Everyone.
    Open,
    /// Runtimes with the token of a callback, which the state role verifies.
    Callback,
    /// Progressive-delivery controllers with the credential of a namespace, which the state role verifies.
    Gate,
    /// Every authenticated caller.
    Known,
    /// Callers with this right in the call's team.
    Team(Right),
    /// The same, or with this right on the one object that the body names. The handler asks for that.
    TeamOrNamed(Right),
    /// Callers with this right in the call's team, or in the whole cluster if the call has `scope=all`.
    TeamOrAll(Right),
    /// Callers with this right in the whole cluster.
    Cluster(Right),
    /// Callers with this right on the platform's own object of that name.
    Platform(Right, &'static str),
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open => write!(f, "none"),
            Self::Callback => write!(f, "the token that the runtime was given for this call"),
            Self::Gate => write!(f, "the credential of the namespace, in the path or as the password of Basic"),
            Self::Known => write!(f, "a valid token"),
            Self::Team(right) | Self::TeamOrNamed(right) => write!(f, "{right} in the team"),
            Self::TeamOrAll(right) => write!(f, "{right} in the team, or in the cluster for scope=all"),
            Self::Cluster(right) => write!(f, "{right} in the cluster"),
            Self::Platform(right, name) => write!(f, "{right} {name} in the platform's namespace"),
        }
    }
}

impl Permission {
    /// Whether callers are authenticated before their bodies are read.
    pub(crate) const fn authenticates(self) -> bool {
        !matches!(self, Self::Open | Self::Callback | Self::Gate)
    }

    /// What a call takes that asks for all teams, or for its own.
    pub(crate) const fn within(self, all: bool) -> Self {
        match self {
            Self::TeamOrAll(right) if all => Self::Cluster(right),
            Self::TeamOrAll(right) => Self::Team(right),
            other => other,
        }
    }

    /// The permission in the OpenAPI document.
    pub(crate) fn form(&self) -> Value {
        let scope = match self {
            Self::Open => "open",
            Self::Callback => "callback",
            Self::Gate => "gate",
            Self::Known => "known",
            Self::Team(_) | Self::TeamOrNamed(_) | Self::TeamOrAll(_) => "team",
            Self::Cluster(_) => "cluster",
            Self::Platform(..) => "platform",
        };
        match self {
            Self::Open | Self::Callback | Self::Gate | Self::Known => json!({"scope": scope}),
            Self::Team(right) | Self::TeamOrNamed(right) | Self::TeamOrAll(right) | Self::Cluster(right) | Self::Platform(right, _) => {
                json!({
                    "scope": scope, "verb": right.verb, "group": right.group, "resource": right.resource, "subresource": right.subresource,
                })
            }
        }
    }
}

/// The right to decide what releases are held to.
pub(crate) const GOVERN: Right = Right::on("update", "agents").sub("governance");

/// The right that marks a member of a team: every role has it.
pub(crate) const MEMBER: Right = Right::on("list", "agents");
