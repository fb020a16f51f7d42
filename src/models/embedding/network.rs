//! The network of all-MiniLM-L6-v2: BERT's encoder with mean pooling. Texts are batched without padding: their rows share the
//! large products, and attention is per text.
//!
//! The weights of the layers are in one allocation, so that all memory returns to the system when the network is dropped. The
//! embedding table, half of the file, is not loaded: a text needs one row per word.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pulp::Arch;
use serde::Deserialize;

use super::kernels::{Gelu, Left, Norm, Out, PANEL, Product, Rows, Softmax};
use super::safetensors::{Safetensors, TensorLocation};
use super::vocabulary::Vocabulary;
use crate::{FaultKind, ModelFault};

#[derive(Debug, Deserialize)]
struct Shape {
    model_type: String,
    hidden_act: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    max_position_embeddings: usize,
    vocab_size: usize,
    type_vocab_size: usize,
    layer_norm_eps: f32,
}

#[derive(Debug, Deserialize)]
struct Reading {
    max_seq_length: usize,
}

pub(super) struct Network {
    shape: Shape,
    /// The most pieces of a text.
    pieces: usize,
    vocabulary: Vocabulary,
    file: Safetensors,
    words: TensorLocation,
    weights: Vec<f32>,
    /// The position and type embeddings.
    positions: Range<usize>,
    entrance: Scale,
    layers: Vec<Layer>,
    arch: Arch,
    /// The buffers of computations that have ended: as many as there were at once.
    idle: Mutex<Vec<Buffers>>,
}

struct Layer {
    /// Query, key and value side by side.
    attention: Linear,
    mixed: Linear,
    first: Scale,
    inner: Linear,
    outer: Linear,
    second: Scale,
}

struct Linear {
    weight: Range<usize>,
    bias: Range<usize>,
    columns: usize,
}

struct Scale {
    weight: Range<usize>,
    bias: Range<usize>,
}

/// Intermediate results, of all layers and all texts: fresh memory would cost a tenth of the time.
#[derive(Default)]
struct Buffers {
    /// The input of a layer, and its result.
    rows: Vec<f32>,
    attention: Vec<f32>,
    /// Transposed: a column per piece, and some for the rest of the last panel.
    mixed: Vec<f32>,
    added: Vec<f32>,
    inner: Vec<f32>,
    queries: Vec<f32>,
    /// Transposed and in panels: a column per query.
    scores: Vec<f32>,
    tiles: Vec<f32>,
}

impl Network {
    /// Reads `config.json`, `sentence_bert_config.json`, `vocab.txt` and `model.safetensors` of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, ModelFault> {
        let shape: Shape = json(&folder.join("config.json"))?;
        shape.check(folder)?;
        let Reading { max_seq_length } = json(&folder.join("sentence_bert_config.json"))?;
        let vocabulary = Vocabulary::read(&folder.join("vocab.txt"))?;
        if vocabulary.len() != shape.vocab_size {
            let why = format!("has {} pieces where config.json announces {}", vocabulary.len(), shape.vocab_size);
            return Err(ModelFault::new(FaultKind::Misconfigured, format!("the vocabulary {} {why}", folder.join("vocab.txt").display())));
        }
        let file = Safetensors::open(&folder.join("model.safetensors"))?;
        let mut reader = Reader { file: &file, shape: &shape, weights: Vec::with_capacity(shape.numbers()) };
        let words = file.find("embeddings.word_embeddings.weight", &[shape.vocab_size, shape.hidden_size])?;
        let positions = reader.positions()?;
        let entrance = reader.scale("embeddings.LayerNorm")?;
        let layers = (0..shape.num_hidden_layers).map(|number| reader.layer(number)).collect::<Result<_, _>>()?;
        let weights = reader.weights;
        let pieces = max_seq_length.clamp(2, shape.max_position_embeddings);
        Ok(Self { pieces, vocabulary, words, positions, entrance, layers, weights, file, shape, arch: Arch::new(), idle: Mutex::default() })
    }

    pub(super) fn dimensions(&self) -> usize {
        self.shape.hidden_size
    }

    /// The vectors of texts in their order, not yet normalised.
    pub(super) fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelFault> {
        let mut buffers = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let mut vectors = Vec::with_capacity(texts.len());
        let mut together: Vec<Vec<u32>> = Vec::new();
        for text in texts {
            let pieces = self.vocabulary.encode(text, self.pieces);
            let rows: usize = together.iter().map(Vec::len).sum();
            if rows + pieces.len() > self.pieces {
                vectors.append(&mut self.encode(&together, &mut buffers)?);
                together.clear();
            }
            together.push(pieces);
        }
        vectors.append(&mut self.encode(&together, &mut buffers)?);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(buffers);
        Ok(vectors)
    }

    fn encode(&self, texts: &[Vec<u32>], buffers: &mut Buffers) -> Result<Vec<Vec<f32>>, ModelFault> {
        let width = self.shape.hidden_size;
        buffers.fit(&self.shape, texts.iter().map(Vec::len).sum());
        self.inputs(texts, &mut buffers.rows)?;
        for layer in &self.layers {
            self.apply(layer, texts, buffers);
        }
        let mut rest = buffers.rows.as_slice();
        let means = texts.iter().map(|pieces| {
            let (own, others) = rest.split_at(pieces.len() * width);
            rest = others;
            let mut sum = vec![0.0; width];
            for row in own.chunks_exact(width) {
                for (sum, x) in sum.iter_mut().zip(row) {
                    *sum += x;
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "a text has a few hundred pieces")]
            let share = 1.0 / pieces.len() as f32;
            for sum in &mut sum {
                *sum *= share;
            }
            sum
        });
        Ok(means.collect())
    }

    /// The input of the first layer: one row per piece, from the piece and its position.
    fn inputs(&self, texts: &[Vec<u32>], rows: &mut [f32]) -> Result<(), ModelFault> {
        let width = self.shape.hidden_size;
        let mut rest = rows;
        for pieces in texts {
            let (own, others) = rest.split_at_mut(pieces.len() * width);
            rest = others;
            for (&piece, row) in pieces.iter().zip(own.chunks_exact_mut(width)) {
                self.file.read_row(self.words, piece as usize, row)?;
            }
            self.normalise(&self.entrance, own, &self.weights[self.positions.clone()]);
        }
        Ok(())
    }

    fn apply(&self, layer: &Layer, texts: &[Vec<u32>], buffers: &mut Buffers) {
        let (width, inner) = (self.shape.hidden_size, self.shape.intermediate_size);
        self.multiply(&layer.attention, by_rows(&buffers.rows, width), &mut buffers.attention, &mut buffers.tiles);
        let mut first = 0;
        for pieces in texts {
            self.attend(first, pieces.len(), buffers);
            first += pieces.len();
        }
        let mixed = Rows { numbers: &buffers.mixed, stride: buffers.mixed.len() / width, count: width, width: first };
        self.multiply(&layer.mixed, Left::Columns(mixed), &mut buffers.added, &mut buffers.tiles);
        self.normalise(&layer.first, &mut buffers.rows, &buffers.added);
        self.multiply(&layer.inner, by_rows(&buffers.rows, width), &mut buffers.inner, &mut buffers.tiles);
        self.arch.dispatch(Gelu(&mut buffers.inner));
        self.multiply(&layer.outer, by_rows(&buffers.inner, inner), &mut buffers.added, &mut buffers.tiles);
        self.normalise(&layer.second, &mut buffers.rows, &buffers.added);
    }

    /// Computes the attention within one text, head by head. Scores and results are transposed: then a softmax goes down the
    /// columns of panels, and scores are multiplied as they lie.
    fn attend(&self, first: usize, count: usize, buffers: &mut Buffers) {
        let width = self.shape.hidden_size;
        let head = width / self.shape.num_attention_heads;
        let (stride, columns) = (3 * width, buffers.mixed.len() / width);
        buffers.scores.resize(count * count.next_multiple_of(PANEL), 0.0);
        #[expect(clippy::cast_precision_loss, reason = "a head is a few dozen numbers wide")]
        let scale = 1.0 / (head as f32).sqrt();
        for at in (0..width).step_by(head) {
            let part = |which: usize| {
                let numbers = &buffers.attention[first * stride + which * width + at..];
                Rows { numbers, stride, count, width: head }
            };
            let (queries, keys, values) = (part(0), part(1), part(2));
            buffers.queries.clear();
            queries.transposed_panels(&mut buffers.queries);
            let out = Out { numbers: &mut buffers.scores, stride: PANEL, step: count * PANEL };
            Product { left: Left::Rows(keys), right: &buffers.queries, bias: None, out }.compute(self.arch, &mut buffers.tiles);
            self.arch.dispatch(Softmax { panels: &mut buffers.scores, count, scale });
            let out = Out { numbers: &mut buffers.mixed[at * columns + first..], stride: columns, step: PANEL };
            Product { left: Left::Columns(values), right: &buffers.scores, bias: None, out }.compute(self.arch, &mut buffers.tiles);
        }
    }

    fn multiply(&self, linear: &Linear, left: Left<'_>, out: &mut [f32], tiles: &mut Vec<f32>) {
        let (right, bias) = (&self.weights[linear.weight.clone()], Some(&self.weights[linear.bias.clone()]));
        let out = Out { numbers: out, stride: linear.columns, step: PANEL };
        Product { left, right, bias, out }.compute(self.arch, tiles);
    }

    fn normalise(&self, scale: &Scale, rows: &mut [f32], added: &[f32]) {
        let (weight, bias) = (&self.weights[scale.weight.clone()], &self.weights[scale.bias.clone()]);
        self.arch.dispatch(Norm { rows, added, weight, bias, epsilon: self.shape.layer_norm_eps });
    }
}

impl Buffers {
    fn fit(&mut self, shape: &Shape, rows: usize) {
        let width = shape.hidden_size;
        self.rows.resize(rows * width, 0.0);
        self.attention.resize(rows * 3 * width, 0.0);
        self.mixed.resize((rows + PANEL - 1) * width, 0.0);
        self.added.resize(rows * width, 0.0);
        self.inner.resize(rows * shape.intermediate_size, 0.0);
    }
}

impl Shape {
    fn check(&self, folder: &Path) -> Result<(), ModelFault> {
        let heads = self.num_attention_heads;
        let why = if self.model_type != "bert" || self.hidden_act != "gelu" {
            format!("is a {} with {}; only bert with gelu can be computed", self.model_type, self.hidden_act)
        } else if heads == 0 || !self.hidden_size.is_multiple_of(heads * PANEL) || !self.intermediate_size.is_multiple_of(PANEL) {
            format!("has widths that are no multiples of {PANEL}")
        } else if [self.hidden_size, self.intermediate_size, self.max_position_embeddings, self.vocab_size]
            .iter()
            .any(|&size| size > 1 << 20)
            || self.num_hidden_layers > 1 << 10
            || self.type_vocab_size == 0
        {
            "has sizes that cannot be meant".to_owned()
        } else {
            return Ok(());
        };
        Err(ModelFault::new(FaultKind::Misconfigured, format!("the model in {} {why}", folder.display())))
    }

    /// The number of weights in memory.
    fn numbers(&self) -> usize {
        let (width, inner) = (self.hidden_size, self.intermediate_size);
        let layer = 4 * width * (width + 1) + 2 * width * inner + inner + width + 4 * width;
        self.max_position_embeddings * width + 2 * width + self.num_hidden_layers * layer
    }
}

/// A matrix without gaps as the left side of a product.
fn by_rows(numbers: &[f32], width: usize) -> Left<'_> {
    Left::Rows(Rows { numbers, stride: width, count: numbers.len() / width, width })
}

struct Reader<'a> {
    file: &'a Safetensors,
    shape: &'a Shape,
    weights: Vec<f32>,
}

impl Reader<'_> {
    /// All texts are of the first type, whose embedding is added to each position.
    fn positions(&mut self) -> Result<Range<usize>, ModelFault> {
        let width = self.shape.hidden_size;
        let kinds = self.tensor("embeddings.token_type_embeddings.weight", &[self.shape.type_vocab_size, width])?;
        let positions = self.tensor("embeddings.position_embeddings.weight", &[self.shape.max_position_embeddings, width])?;
        Ok(self.keep(|weights| {
            for position in positions.chunks_exact(width) {
                weights.extend(position.iter().zip(&kinds).map(|(position, kind)| position + kind));
            }
        }))
    }

    fn layer(&mut self, number: usize) -> Result<Layer, ModelFault> {
        let (width, inner) = (self.shape.hidden_size, self.shape.intermediate_size);
        let own = |part: &str| format!("encoder.layer.{number}.{part}");
        let looks = ["query", "key", "value"].map(|part| own(&format!("attention.self.{part}")));
        Ok(Layer {
            attention: self.linear(&looks, width, width)?,
            mixed: self.linear(&[own("attention.output.dense")], width, width)?,
            first: self.scale(&own("attention.output.LayerNorm"))?,
            inner: self.linear(&[own("intermediate.dense")], width, inner)?,
            outer: self.linear(&[own("output.dense")], inner, width)?,
            second: self.scale(&own("output.LayerNorm"))?,
        })
    }

    /// Joins several matrices with the same input. In the file the inputs of an output are contiguous.
    fn linear(&mut self, names: &[String], inputs: usize, outputs: usize) -> Result<Linear, ModelFault> {
        let (start, mut biases) = (self.weights.len(), Vec::new());
        for name in names {
            let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
            let rows = Rows { numbers: &weight, stride: inputs, count: outputs, width: inputs };
            rows.transposed_panels(&mut self.weights);
            biases.extend(self.tensor(&format!("{name}.bias"), &[outputs])?);
        }
        let weight = start..self.weights.len();
        Ok(Linear { weight, bias: self.keep(|weights| weights.extend(biases)), columns: outputs * names.len() })
    }

    fn scale(&mut self, name: &str) -> Result<Scale, ModelFault> {
        let shape = [self.shape.hidden_size];
        let (weight, bias) = (self.tensor(&format!("{name}.weight"), &shape)?, self.tensor(&format!("{name}.bias"), &shape)?);
        Ok(Scale { weight: self.keep(|weights| weights.extend(weight)), bias: self.keep(|weights| weights.extend(bias)) })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelFault> {
        self.file.read(self.file.find(name, shape)?)
    }

    fn keep(&mut self, add: impl FnOnce(&mut Vec<f32>)) -> Range<usize> {
        let start = self.weights.len();
        add(&mut self.weights);
        start..self.weights.len()
    }
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ModelFault> {
    let wrong = |why: String| ModelFault::new(FaultKind::Misconfigured, format!("{} {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|cause| wrong(format!("cannot be read: {cause}")))?;
    serde_json::from_str(&text).map_err(|cause| wrong(format!("is not what was expected: {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        text: String,
        pieces: Vec<u32>,
        vector: Vec<f32>,
    }

    #[test]
    fn texts_fall_into_the_pieces_of_the_reference() {
        let vocabulary = Vocabulary::read(&slipway_peers::minilm().join("vocab.txt")).unwrap();
        let cases: Vec<Case> = serde_json::from_str(include_str!("../testdata/embedding/minilm.json")).unwrap();
        for case in cases {
            assert_eq!(vocabulary.encode(&case.text, 256), case.pieces, "{:?}", case.text);
        }
    }

    #[test]
    fn even_an_empty_text_has_the_vector_of_the_reference() {
        let network = Network::read(&slipway_peers::minilm()).unwrap();
        let cases: Vec<Case> = serde_json::from_str(include_str!("../testdata/embedding/minilm.json")).unwrap();
        let case = cases.into_iter().find(|case| case.text.is_empty()).unwrap();
        let found = network.embed(&[String::new()]).unwrap().remove(0);
        let length = found.iter().map(|x| x * x).sum::<f32>().sqrt();
        let worst = found.iter().zip(&case.vector).map(|(a, b)| (a / length - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-6, "a number is {worst:e} off");
    }

    #[test]
    fn memory_is_asked_for_once() {
        let network = Network::read(&slipway_peers::minilm()).unwrap();
        assert_eq!((network.weights.len(), network.weights.capacity()), (network.shape.numbers(), network.shape.numbers()));
    }
}
