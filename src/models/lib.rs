//! Chat and embedding models: one trait each, one file a provider.
