//! Storage, and the database of knowledge bases beside it. Passwords reach pods from Secrets, never by the ConfigMap.

use std::collections::BTreeMap;

use slipway_api::agent::RUNTIME_SECRET;
use slipway_api::agent::{AgentSpec, Storage};
use slipway_api::contract::{self, EmbeddingConfig, KnowledgeBaseConfig};
use slipway_api::{KnowledgeBaseSpec, ids};

use super::{Stop, Variable, fault, json};
use crate::agent::gather::Seen;
use crate::database::DatabaseUrl;
use crate::worker::{escaped, knowledge_url};

/// Storage, and the URL of the database: without its password here, complete from the team's Secret.
pub(super) fn database(
    spec: &AgentSpec,
    platform: Option<&DatabaseUrl>,
    suffix: &str,
    variables: &mut BTreeMap<&'static str, String>,
    env: &mut Vec<Variable>,
) -> Result<Storage, Stop> {
    let storage = spec.storage.unwrap_or(if platform.is_some() { Storage::Postgresql } else { Storage::Memory });
    variables.insert(contract::STORAGE, storage.as_str().to_owned());
    if let Some(text) = &spec.database_url {
        let url = DatabaseUrl::parse(text).map_err(|error| fault("InvalidDatabaseUrl", format!("spec.databaseUrl: {error}")))?;
        variables.insert(contract::DATABASE_URL, url.qualified(suffix).public());
        // The platform does not hold this login, so that nobody but the runtime can bring its schema up to date.
        if storage == Storage::Postgresql {
            variables.insert(contract::DATABASE_MIGRATE, "true".to_owned());
        }
    } else if let Some(url) = platform {
        // Whose login it is, the team's Secret knows.
        variables.insert(contract::DATABASE_URL, url.anonymous());
        env.push(Variable::secret(contract::DATABASE_URL, RUNTIME_SECRET, contract::DATABASE_URL));
    } else if storage == Storage::Postgresql {
        let message =
            "spec.storage: postgresql needs a database, and neither spec.databaseUrl nor the platform (chart value database) names one";
        return Err(fault("DatabaseRequired", message));
    }
    Ok(storage)
}

pub(super) fn knowledge_bases(
    seen: &Seen,
    platform: Option<&DatabaseUrl>,
    model: &str,
    variables: &mut BTreeMap<&'static str, String>,
    env: &mut Vec<Variable>,
) -> Result<(), Stop> {
    if seen.knowledge_bases.is_empty() {
        return Ok(());
    }
    let mut found = Vec::new();
    for (at, (name, knowledge_base)) in seen.knowledge_bases.iter().enumerate() {
        let field = format!("spec.knowledgeBases[{at}]");
        let Some(object) = knowledge_base else {
            return Err(fault("KnowledgeBaseNotFound", format!("{field}: there is no KnowledgeBase {name} in this namespace")));
        };
        let object = object
            .0
            .as_ref()
            .map_err(|invalid| fault("KnowledgeBaseInvalid", format!("{field}: KnowledgeBase {name} cannot be read: {}", invalid.error)))?;
        found.push((name, &object.spec));
    }
    let Some(database) = platform else {
        let message =
            "spec.knowledgeBases: the chunks of knowledge bases lie in the platform's database, and it has none (chart value database)";
        return Err(fault("DatabaseRequired", message));
    };
    // In a variable's value the kubelet replaces `$(NAME)`; `$$` is a plain dollar.
    let text = |connection_url: &str, plain: fn(&str) -> String| {
        let config = |(name, spec): &(&String, &KnowledgeBaseSpec)| KnowledgeBaseConfig {
            kb_id: ids::knowledge_base(name),
            name: plain(&spec.name),
            description: spec.description.as_deref().map(plain),
            store: "pgvector".to_owned(),
            connection_url: connection_url.to_owned(),
            embedding: EmbeddingConfig {
                model: plain(spec.embedding_model.as_deref().unwrap_or(model)),
                chunk_size: spec.chunk_size,
                chunk_overlap: spec.chunk_overlap,
            },
        };
        json(&found.iter().map(config).collect::<Vec<_>>())
    };
    variables.insert(contract::KNOWLEDGE_BASES, text(&database.knowledge(), str::to_owned));
    if let Some(mode) = database.sslmode() {
        variables.insert(contract::PGSSLMODE, mode);
    }
    for variable in [contract::DATABASE_USER, contract::DATABASE_PASSWORD] {
        env.push(Variable::secret(variable, RUNTIME_SECRET, variable));
    }
    env.push(Variable::Plain { name: contract::KNOWLEDGE_BASES.to_owned(), value: text(&knowledge_url(database), escaped) });
    Ok(())
}
