//! The embedding models in use, opened once each.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};

use slipway_models::ModelFault;
use slipway_models::embedding::{self, Embedder};

/// The knowledge bases of one team have few models. When there are more, one is opened again.
const EMBEDDERS_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct Embedders(Mutex<HashMap<String, Arc<dyn Embedder>>>);

impl Embedders {
    /// The embedder of a model such as `builtin:all-minilm-l6-v2`. Opening one reads settings and connects to nothing.
    pub(crate) fn open(&self, model: &str) -> Result<Arc<dyn Embedder>, ModelFault> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(model) {
            return Ok(Arc::clone(known));
        }
        let embedder: Arc<dyn Embedder> = embedding::open(model, &variable)?.into();
        if open.len() >= EMBEDDERS_MAX {
            open.clear();
        }
        open.insert(model.to_owned(), Arc::clone(&embedder));
        Ok(embedder)
    }
}

pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
