//! The catalog of embedding models with their parameters. A name is `provider:model`; the provider is optional for a known
//! model. `?dimensions=512` requests shorter vectors from models that support it, and declares the length for unknown models.

use super::builtin::Builtin;
use super::checked::{CheckedEmbedder, EmbeddingApi};
use super::ollama::Ollama;
use super::openai::OpenAi;
use super::vertex_ai::VertexAi;
use super::{Embedder, Purpose};
use crate::{FaultKind, ModelFault};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    Builtin,
    Ollama,
    OpenAi,
    VertexAi,
}

/// A known model.
#[derive(Debug, Clone, Copy)]
pub(super) struct CatalogEntry {
    pub(super) provider: Provider,
    pub(super) name: &'static str,
    pub(super) dimensions: usize,
    /// Whether the model supports shorter vectors.
    pub(super) shortens: bool,
    /// The most tokens of a text, with the special ones and the prefix.
    pub(super) window: u32,
    pub(super) tokenizer: Tokenizer,
    /// The prefixes of queries and passages that the model was trained with.
    prefixes: [&'static str; 2],
}

/// The vocabulary of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tokenizer {
    /// That of BERT without case, which the built-in model has in a file.
    Bert,
    Cl100k,
    /// Not published, or not known.
    Unknown,
}

impl Tokenizer {
    /// The special tokens around a text.
    pub(super) fn specials(self) -> u32 {
        match self {
            Self::Bert | Self::Unknown => 2,
            Self::Cl100k => 0,
        }
    }
}

const CATALOG: [CatalogEntry; 11] = [
    bert(Provider::Builtin, "all-minilm-l6-v2", 384, 256),
    // Trained for 2048 tokens. Its makers stretch it to 8192; Ollama does not (github.com/ollama/ollama/issues/11214).
    CatalogEntry { prefixes: ["search_query: ", "search_document: "], ..bert(Provider::Ollama, "nomic-embed-text", 768, 2048) },
    CatalogEntry {
        prefixes: ["Represent this sentence for searching relevant passages: ", ""],
        ..bert(Provider::Ollama, "mxbai-embed-large", 1024, 512)
    },
    bert(Provider::Ollama, "all-minilm", 384, 256),
    CatalogEntry { shortens: true, ..openai("text-embedding-3-small", 1536) },
    CatalogEntry { shortens: true, ..openai("text-embedding-3-large", 3072) },
    openai("text-embedding-ada-002", 1536),
    vertex_ai("textembedding-gecko", 768),
    CatalogEntry { shortens: true, ..vertex_ai("text-embedding-005", 768) },
    CatalogEntry { shortens: true, ..vertex_ai("text-multilingual-embedding-002", 768) },
    CatalogEntry { shortens: true, ..vertex_ai("gemini-embedding-001", 3072) },
];

/// The window of a model that is not in the catalog: the least of those in use.
const UNKNOWN_WINDOW: u32 = 512;

const fn bert(provider: Provider, name: &'static str, dimensions: usize, window: u32) -> CatalogEntry {
    CatalogEntry { window, tokenizer: Tokenizer::Bert, ..known(provider, name, dimensions) }
}

const fn openai(name: &'static str, dimensions: usize) -> CatalogEntry {
    CatalogEntry { window: 8191, tokenizer: Tokenizer::Cl100k, ..known(Provider::OpenAi, name, dimensions) }
}

const fn vertex_ai(name: &'static str, dimensions: usize) -> CatalogEntry {
    CatalogEntry { window: 2048, ..known(Provider::VertexAi, name, dimensions) }
}

const fn known(provider: Provider, name: &'static str, dimensions: usize) -> CatalogEntry {
    CatalogEntry { provider, name, dimensions, shortens: false, window: UNKNOWN_WINDOW, tokenizer: Tokenizer::Unknown, prefixes: ["", ""] }
}

/// The limit of pgvector.
const MAX_DIMENSIONS: usize = 16_000;

/// A resolved name.
#[derive(Debug)]
pub(super) struct ResolvedModel {
    pub(super) provider: Provider,
    /// The provider's name of the model.
    pub(super) model: String,
    pub(super) dimensions: usize,
    /// The length to request, if it differs from the model's default.
    pub(super) shortened: Option<usize>,
    pub(super) known: Option<&'static CatalogEntry>,
}

/// Opens an embedder by name. A missing key fails the first `embed`, as keys may be added later; an unknown name and invalid
/// settings fail here.
pub fn open(uri: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn Embedder>, ModelFault> {
    let chosen = choose(uri)?;
    let source: Box<dyn EmbeddingApi> = match chosen.provider {
        Provider::Builtin => Box::new(Builtin::open(chosen.dimensions, variables)?),
        Provider::Ollama => Box::new(Ollama::open(&chosen, variables)?),
        Provider::OpenAi => Box::new(OpenAi::open(&chosen, variables)?),
        Provider::VertexAi => Box::new(VertexAi::open(&chosen, variables)?),
    };
    Ok(Box::new(CheckedEmbedder::new(&chosen, source)))
}

/// The most tokens of a text that a model reads at once. An estimate of 512 for models that are not in the catalog.
pub fn window(uri: &str) -> Result<u32, ModelFault> {
    Ok(choose(uri)?.window())
}

pub(super) fn choose(uri: &str) -> Result<ResolvedModel, ModelFault> {
    let wrong = |why: &str| ModelFault::new(FaultKind::UnknownModel, format!("the embedding model `{uri}` {why}"));
    let (name, asked) = match uri.trim().split_once('?') {
        Some((name, query)) => match query.strip_prefix("dimensions=").and_then(|length| length.parse::<usize>().ok()) {
            Some(length) if (1..=MAX_DIMENSIONS).contains(&length) => (name, Some(length)),
            _ => return Err(wrong(&format!("ends in `?{query}`; there goes ?dimensions= and a number from 1 to {MAX_DIMENSIONS}"))),
        },
        None => (uri.trim(), None),
    };
    let named = name.split_once(':').and_then(|(provider, model)| Some((Provider::named(provider)?, model)));
    let (known, provider, model) = match named {
        Some((provider, model)) => (CATALOG.iter().find(|known| known.provider == provider && known.is(model)), provider, model),
        None => match CATALOG.iter().find(|known| known.is(name)) {
            Some(known) => (Some(known), known.provider, name),
            None => return Err(wrong(&format!("is not known; known are {}", listing()))),
        },
    };
    let model = model.to_owned();
    match (known, asked) {
        _ if model.is_empty() => Err(wrong(&format!("names no model behind its provider; known are {}", listing()))),
        (Some(known), None) => Ok(ResolvedModel { provider, model, dimensions: known.dimensions, shortened: None, known: Some(known) }),
        (Some(known), Some(length)) if length == known.dimensions => {
            Ok(ResolvedModel { provider, model, dimensions: length, shortened: None, known: Some(known) })
        }
        (Some(known), Some(length)) if known.shortens && length < known.dimensions => {
            Ok(ResolvedModel { provider, model, dimensions: length, shortened: Some(length), known: Some(known) })
        }
        (Some(known), Some(_)) if known.shortens => Err(wrong(&format!("gives {} dimensions at most", known.dimensions))),
        (Some(known), Some(_)) => Err(wrong(&format!("gives {} dimensions, and cannot give another number", known.dimensions))),
        (None, Some(length)) if provider != Provider::Builtin => {
            Ok(ResolvedModel { provider, model, dimensions: length, shortened: None, known: None })
        }
        (None, _) => Err(wrong(&format!(
            "is not known; known are {}; another model of a provider is written with the length of its vectors, \
             such as ollama:snowflake-arctic-embed?dimensions=1024",
            listing()
        ))),
    }
}

impl Provider {
    const ALL: [Self; 4] = [Self::Builtin, Self::Ollama, Self::OpenAi, Self::VertexAi];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
            Self::VertexAi => "vertex-ai",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == name)
    }
}

impl CatalogEntry {
    /// Names of Ollama may end with a tag, those of Google with a version.
    fn is(&self, model: &str) -> bool {
        let separator = match self.provider {
            Provider::Ollama => ':',
            Provider::VertexAi => '@',
            Provider::Builtin | Provider::OpenAi => return model == self.name,
        };
        model.split(separator).next() == Some(self.name)
    }

    pub(super) fn prefix(&self, purpose: Purpose) -> &'static str {
        match purpose {
            Purpose::Query => self.prefixes[0],
            Purpose::Passage => self.prefixes[1],
        }
    }
}

impl ResolvedModel {
    /// The most tokens of a text, with the special ones and the prefix.
    pub(super) fn window(&self) -> u32 {
        self.known.map_or(UNKNOWN_WINDOW, |known| known.window)
    }

    pub(super) fn tokenizer(&self) -> Tokenizer {
        self.known.map_or(Tokenizer::Unknown, |known| known.tokenizer)
    }

    pub(super) fn prefix(&self, purpose: Purpose) -> &'static str {
        self.known.map_or("", |known| known.prefix(purpose))
    }

    pub(super) fn id(&self) -> String {
        let own = self.known.is_some() && self.shortened.is_none();
        let length = if own { String::new() } else { format!("?dimensions={}", self.dimensions) };
        format!("{}:{}{length}", self.provider.as_str(), self.model)
    }
}

fn listing() -> String {
    CATALOG.map(|known| format!("{}:{}", known.provider.as_str(), known.name)).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_provider_model_and_length() {
        for (name, id, dimensions, shortened) in [
            ("builtin:all-minilm-l6-v2", "builtin:all-minilm-l6-v2", 384, None),
            (" all-minilm-l6-v2 ", "builtin:all-minilm-l6-v2", 384, None),
            ("nomic-embed-text", "ollama:nomic-embed-text", 768, None),
            ("nomic-embed-text:v1.5", "ollama:nomic-embed-text:v1.5", 768, None),
            ("ollama:nomic-embed-text", "ollama:nomic-embed-text", 768, None),
            ("text-embedding-3-small", "openai:text-embedding-3-small", 1536, None),
            ("openai:text-embedding-3-large", "openai:text-embedding-3-large", 3072, None),
            ("text-embedding-3-small?dimensions=512", "openai:text-embedding-3-small?dimensions=512", 512, Some(512)),
            ("text-embedding-3-small?dimensions=1536", "openai:text-embedding-3-small", 1536, None),
            ("textembedding-gecko", "vertex-ai:textembedding-gecko", 768, None),
            ("vertex-ai:textembedding-gecko@003", "vertex-ai:textembedding-gecko@003", 768, None),
            ("gemini-embedding-001?dimensions=768", "vertex-ai:gemini-embedding-001?dimensions=768", 768, Some(768)),
            ("ollama:mine:33m?dimensions=33", "ollama:mine:33m?dimensions=33", 33, None),
            ("openai:BAAI/bge-m3?dimensions=1024", "openai:BAAI/bge-m3?dimensions=1024", 1024, None),
        ] {
            let chosen = choose(name).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            assert_eq!((chosen.id().as_str(), chosen.dimensions, chosen.shortened), (id, dimensions, shortened), "{name}");
            assert_eq!(choose(&chosen.id()).unwrap().id(), id, "an id opens the same model again");
        }
    }

    #[test]
    fn a_name_that_means_nothing_is_told_what_there_is() {
        for (name, why) in [
            ("", "known are builtin:all-minilm-l6-v2"),
            ("word2vec", "known are builtin:all-minilm-l6-v2"),
            ("cohere:embed-v4", "ollama:nomic-embed-text"),
            ("ollama:", "names no model behind its provider"),
            ("ollama:mine", "is written with the length of its vectors"),
            ("builtin:mine?dimensions=4", "is not known"),
            ("nomic-embed-text?dimensions=256", "cannot give another number"),
            ("text-embedding-3-small?dimensions=4096", "gives 1536 dimensions at most"),
            ("text-embedding-3-small?dimensions=0", "a number from 1 to 16000"),
            ("text-embedding-3-small?dimensions=many", "a number from 1 to 16000"),
            ("text-embedding-3-small?size=4", "?dimensions="),
        ] {
            let fault = choose(name).unwrap_err();
            assert_eq!(*fault.kind(), FaultKind::UnknownModel);
            assert!(fault.message().contains(why), "{name}: {fault}");
        }
    }

    #[test]
    fn every_known_model_opens_by_its_name_alone() {
        for known in CATALOG {
            let chosen = choose(known.name).unwrap();
            assert_eq!((chosen.provider, chosen.dimensions), (known.provider, known.dimensions), "{}", known.name);
        }
    }
}
