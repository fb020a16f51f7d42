//! Prices and context windows of models, from the table that the operator uses, too.

use slipway_prices::Tokens;

use crate::answer::Usage;
use crate::provider::Provider;

/// The cost of a call in US dollars; `None` if the price is unknown.
pub fn cost(provider: Provider, id: &str, usage: &Usage) -> Option<f64> {
    let Usage { input_tokens: input, cached_input_tokens: cached, output_tokens: output } = *usage;
    slipway_prices::cost(provider.as_str(), id, Tokens { input, cached, output })
}

/// The model's context window, if the table has it.
pub(crate) fn window(provider: Provider, id: &str) -> Option<u32> {
    slipway_prices::window(provider.as_str(), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_has_a_model_of_known_price() {
        let usage = Usage { input_tokens: 1000, output_tokens: 1000, cached_input_tokens: 0 };
        for (provider, id, is_free) in [
            (Provider::Stub, "stub-echo", true),
            (Provider::Ollama, "llama3.2", true),
            (Provider::OpenAi, "gpt-4o", false),
            (Provider::Anthropic, "claude-sonnet-4", false),
            (Provider::GoogleAi, "gemini-2.5-flash", false),
            (Provider::VertexAi, "gemini-2.5-flash", false),
            (Provider::Bedrock, "amazon.nova-micro-v1:0", false),
        ] {
            let cost = cost(provider, id, &usage).unwrap();
            assert_eq!(cost <= 0.0, is_free, "{provider} {id}: {cost}");
        }
        assert_eq!(cost(Provider::OpenAi, "my-own-model", &usage), None);
    }
}
