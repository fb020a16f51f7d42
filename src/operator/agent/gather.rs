//! First step: read from the caches all that an Agent names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use kube::ResourceExt;
use slipway_api::{Agent, KnowledgeBase, Team, Tool, ids};

use crate::queue::Key;
use crate::team;
use crate::world::references::Kind;
use crate::world::secret::SecretState;
use crate::world::{Guarded, World};

/// What an Agent names, as far as it exists, and what surrounds it.
pub(super) struct Seen {
    pub team: Option<(String, Arc<Guarded<Team>>)>,
    pub tools: Vec<(String, Option<Arc<Guarded<Tool>>>)>,
    pub knowledge_bases: Vec<(String, Option<Arc<Guarded<KnowledgeBase>>>)>,
    pub secrets: BTreeMap<String, Arc<SecretState>>,
    /// False while the namespace's Secrets have not been read yet.
    pub secrets_known: bool,
}

pub(super) fn gather(agent: &Agent, world: &World) -> Seen {
    let namespace = agent.namespace().unwrap_or_default();
    let key = |name: &str| Key::new(&namespace, name);
    let spec = &agent.spec;

    let knowledge_bases: Vec<String> = spec.knowledge_bases.iter().map(|reference| ids::knowledge_base_name(reference)).collect();
    let mut targets: HashSet<(Kind, Key)> = spec.tools.iter().map(|name| (Kind::Tool, key(name))).collect();
    targets.extend(knowledge_bases.iter().map(|name| (Kind::KnowledgeBase, key(name))));
    let mut secrets: BTreeSet<String> = spec.env_secrets.iter().cloned().collect();
    secrets.extend(spec.credential_secret.iter().chain(&spec.database_credentials_secret).cloned());
    secrets.insert(team::RUNTIME_SECRET.to_owned());
    let with_secrets = |targets: &HashSet<(Kind, Key)>, secrets: &BTreeSet<String>| {
        targets.iter().cloned().chain(secrets.iter().map(|name| (Kind::Secret, key(name)))).collect()
    };
    // Named first, read then: a change in between comes back through the queue.
    world.references.set(&Key::of(agent), with_secrets(&targets, &secrets));

    let tools: Vec<_> = spec.tools.iter().map(|name| (name.clone(), world.tools.get(&key(name)))).collect();
    let of_tools = tools.iter().filter_map(|(_, tool)| tool.as_ref()?.0.as_ref().ok()).flat_map(|tool| &tool.spec.headers_from);
    let before = secrets.len();
    secrets.extend(of_tools.map(|header| header.secret.clone()));
    if secrets.len() != before {
        targets = with_secrets(&targets, &secrets);
        world.references.set(&Key::of(agent), targets);
    }

    Seen {
        team: world.team_of(&namespace).and_then(|slug| world.teams.get(&Key::new("", &slug)).map(|team| (slug, team))),
        knowledge_bases: knowledge_bases.into_iter().map(|name| (name.clone(), world.knowledge_bases.get(&key(&name)))).collect(),
        secrets: secrets.into_iter().filter_map(|name| world.secrets.get(&key(&name)).map(|state| (name, state))).collect(),
        secrets_known: world.knows_secrets_of(&namespace),
        tools,
    }
}
