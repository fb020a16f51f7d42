//! The types of integrations as a table: what they are, which keys their Secrets have, and what may name them.
//!
//! `GET /integrations/types`, the operator's check of a Secret's keys and the table in `docs/integrations.md` come from here. The
//! fields of each type come from the schema.

use super::IntegrationType;

/// What is known of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeInfo {
    pub kind: IntegrationType,
    pub label: &'static str,
    pub description: &'static str,
    /// The keys that the Secret may have. Empty: the type has no login.
    pub credentials: &'static [CredentialField],
    /// Sets of keys, one of which must be whole, the preferred one first. An empty set always is.
    pub one_of: &'static [&'static [&'static str]],
    pub uses: &'static [Use],
}

/// A key of the Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialField {
    pub name: &'static str,
    pub required: bool,
    pub description: &'static str,
}

/// What may name an integration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Sources of knowledge bases.
    Knowledge,
    /// Alerts are sent there.
    Alerts,
    /// Tools of type http or mcp.
    Tools,
    /// Models of agents.
    Models,
}

impl Use {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Knowledge => "knowledge",
            Self::Alerts => "alerts",
            Self::Tools => "tools",
            Self::Models => "models",
        }
    }
}

const fn required(name: &'static str, description: &'static str) -> CredentialField {
    CredentialField { name, required: true, description }
}

const fn optional(name: &'static str, description: &'static str) -> CredentialField {
    CredentialField { name, required: false, description }
}

/// One of these is the login of a site of Atlassian's.
const ATLASSIAN: &[CredentialField] = &[
    optional("token", "A personal access token, of a server of one's own"),
    optional("email", "The address of the account, with api_token"),
    optional("api_token", "An API token of the account"),
];
const TOKEN_OR_API_TOKEN: &[&[&str]] = &[&["token"], &["email", "api_token"]];
/// One of these is the login of a server that may have none.
const SERVER: &[CredentialField] = &[
    optional("token", "A token, sent as Authorization: Bearer"),
    optional("username", "The user, with password"),
    optional("password", "The user's password"),
];
const TOKEN_OR_PASSWORD: &[&[&str]] = &[&["token"], &["username", "password"], &[]];
const NO_CHOICE: &[&[&str]] = &[];

/// Every type, in the order in which they are listed.
pub static TYPES: [TypeInfo; 13] = [
    TypeInfo {
        kind: IntegrationType::Local,
        label: "Local files",
        description: "Files on the volume that the team names in spec.knowledgeVolume",
        credentials: &[],
        one_of: NO_CHOICE,
        uses: &[Use::Knowledge],
    },
    TypeInfo {
        kind: IntegrationType::GoogleDrive,
        label: "Google Drive",
        description: "Folders of Google Drive that a service account may read",
        credentials: &[required("service_account.json", "The key of the service account, as Google gives it")],
        one_of: NO_CHOICE,
        uses: &[Use::Knowledge],
    },
    TypeInfo {
        kind: IntegrationType::S3,
        label: "S3",
        description: "Buckets of Amazon S3, or of a server that speaks its protocol",
        credentials: &[
            required("access_key_id", "The id of the access key"),
            required("secret_access_key", "The access key"),
            optional("session_token", "The token of a session, of temporary credentials"),
        ],
        one_of: NO_CHOICE,
        uses: &[Use::Knowledge],
    },
    TypeInfo {
        kind: IntegrationType::Confluence,
        label: "Confluence",
        description: "Spaces of a site of Confluence",
        credentials: ATLASSIAN,
        one_of: TOKEN_OR_API_TOKEN,
        uses: &[Use::Knowledge, Use::Tools],
    },
    TypeInfo {
        kind: IntegrationType::Jira,
        label: "Jira",
        description: "Issues of a site of Jira",
        credentials: ATLASSIAN,
        one_of: TOKEN_OR_API_TOKEN,
        uses: &[Use::Knowledge, Use::Tools],
    },
    TypeInfo {
        kind: IntegrationType::Databricks,
        label: "Databricks",
        description: "Tables and files of a workspace of Databricks",
        credentials: &[required("token", "A personal access token")],
        one_of: NO_CHOICE,
        uses: &[Use::Knowledge, Use::Tools],
    },
    TypeInfo {
        kind: IntegrationType::Mlflow,
        label: "MLflow",
        description: "An MLflow tracking server",
        credentials: SERVER,
        one_of: TOKEN_OR_PASSWORD,
        uses: &[Use::Tools],
    },
    TypeInfo {
        kind: IntegrationType::Prometheus,
        label: "Prometheus",
        description: "A Prometheus server",
        credentials: SERVER,
        one_of: TOKEN_OR_PASSWORD,
        uses: &[Use::Tools],
    },
    TypeInfo {
        kind: IntegrationType::Webhook,
        label: "Webhook",
        description: "A server that takes signed messages, as Standard Webhooks has them",
        credentials: &[
            required("signing_secret", "What messages are signed with: whsec_ and 24 to 64 bytes in base 64"),
            optional("token", "A token, sent as Authorization: Bearer"),
        ],
        one_of: NO_CHOICE,
        uses: &[Use::Alerts, Use::Tools],
    },
    TypeInfo {
        kind: IntegrationType::Slack,
        label: "Slack",
        description: "An incoming webhook of Slack, or of a server that takes the same messages",
        credentials: &[required("webhook_url", "The URL of the incoming webhook")],
        one_of: NO_CHOICE,
        uses: &[Use::Alerts],
    },
    TypeInfo {
        kind: IntegrationType::Openai,
        label: "OpenAI",
        description: "OpenAI, or a server that speaks its chat completions protocol",
        credentials: &[optional("api_key", "The API key, where the server asks for one")],
        one_of: NO_CHOICE,
        uses: &[Use::Tools, Use::Models],
    },
    TypeInfo {
        kind: IntegrationType::Anthropic,
        label: "Anthropic",
        description: "Anthropic, or a server that speaks its protocol",
        credentials: &[required("api_key", "The API key")],
        one_of: NO_CHOICE,
        uses: &[Use::Tools, Use::Models],
    },
    TypeInfo {
        kind: IntegrationType::Mcp,
        label: "MCP",
        description: "A server that speaks the Model Context Protocol over streamable HTTP",
        credentials: &[optional("token", "A token, sent as Authorization: Bearer, or in the header that the integration names")],
        one_of: NO_CHOICE,
        uses: &[Use::Tools],
    },
];

impl TypeInfo {
    /// Whether one of this type needs a Secret.
    pub fn needs_login(&self) -> bool {
        let is_choice_needed = !self.one_of.is_empty() && self.one_of.iter().all(|set| !set.is_empty());
        is_choice_needed || self.credentials.iter().any(|field| field.required)
    }

    /// The first of the sets of keys that is whole, where there is a choice.
    pub fn choice(&self, keys: &[String]) -> Option<&'static [&'static str]> {
        self.one_of.iter().copied().find(|set| set.iter().all(|name| has(keys, name)))
    }

    /// What a Secret with these keys lacks.
    pub fn missing(&self, keys: &[String]) -> Option<String> {
        if let Some(field) = self.credentials.iter().find(|field| field.required && !has(keys, field.name)) {
            return Some(field.name.to_owned());
        }
        if self.one_of.is_empty() || self.choice(keys).is_some_and(|set| !set.is_empty() || !self.begins_login(keys)) {
            return None;
        }
        let sets = self.one_of.iter().filter(|set| !set.is_empty()).map(|set| set.join(" and "));
        Some(sets.collect::<Vec<_>>().join(", or "))
    }

    /// Whether one of the keys of a login is there, which is not all of it.
    fn begins_login(&self, keys: &[String]) -> bool {
        self.one_of.iter().copied().flatten().any(|name| has(keys, name))
    }
}

fn has(keys: &[String], name: &str) -> bool {
    keys.iter().any(|key| key == name)
}

impl IntegrationType {
    /// What is known of the type.
    pub fn info(self) -> &'static TypeInfo {
        &TYPES[self as usize]
    }

    /// The field of the spec that makes an integration one of this type.
    pub const fn field(self) -> &'static str {
        match self {
            Self::GoogleDrive => "googleDrive",
            other => other.as_str(),
        }
    }
}
