//! The tokens that one call of a model has taken: the provider's figures, or an estimate until they come. A call that is cut off
//! has been paid for, too.

use slipway_models::{ModelFault, Piece, Usage, tokens};

pub(crate) struct Tally {
    /// Tokens of the prompt, as far as they are known before the provider counts them.
    prompt: u64,
    /// What came of the answer, in bytes.
    answered: u64,
    told: Option<Usage>,
}

impl Tally {
    pub(crate) fn new(prompt: u64) -> Self {
        Self { prompt, answered: 0, told: None }
    }

    pub(crate) fn hear(&mut self, piece: &Result<Piece, ModelFault>) {
        match piece {
            Ok(Piece::Text(text)) => self.answered += text.len() as u64,
            Ok(Piece::ToolCall(call)) => self.answered += (call.name.len() + call.arguments.to_string().len()) as u64,
            Ok(Piece::Usage(used)) => self.told = Some(*used),
            // Nobody bills a call that was refused.
            Err(_) if self.answered == 0 => self.prompt = 0,
            Ok(Piece::Stopped(_)) | Err(_) => {}
        }
    }

    pub(crate) fn is_estimate(&self) -> bool {
        self.told.is_none()
    }

    pub(crate) fn used(&self) -> Usage {
        let estimate = Usage { input_tokens: self.prompt, output_tokens: tokens::estimate(self.answered), cached_input_tokens: 0 };
        self.told.unwrap_or(estimate)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_models::{FaultKind, ToolCall};

    use super::*;

    #[test]
    fn what_a_call_takes_is_estimated_until_it_is_told() {
        let text = || Ok(Piece::Text("eight by".into()));
        let call = ToolCall { id: "1".into(), name: "four".into(), arguments: json!({"a": 1, "b": 2}), signature: None };
        let told = Usage { input_tokens: 7, output_tokens: 3, cached_input_tokens: 2 };
        let fault = || Err(ModelFault::new(FaultKind::Broken, "cut off"));
        for (what, pieces, expected) in [
            ("nothing has come yet", vec![], (100, 0)),
            ("two fragments", vec![text(), text()], (100, 4)),
            ("a call, by its name and arguments", vec![Ok(Piece::ToolCall(call))], (100, 5)),
            ("the provider has counted", vec![text(), Ok(Piece::Usage(told))], (7, 3)),
            ("cut off on the way", vec![text(), fault()], (100, 2)),
            ("cut off after the count", vec![text(), Ok(Piece::Usage(told)), fault()], (7, 3)),
            ("refused", vec![fault()], (0, 0)),
        ] {
            let mut tally = Tally::new(100);
            for piece in &pieces {
                tally.hear(piece);
            }
            let used = tally.used();
            assert_eq!((used.input_tokens, used.output_tokens), expected, "{what}");
        }
    }
}
