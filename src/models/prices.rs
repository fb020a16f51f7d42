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
        for provider in Provider::ALL {
            let (id, is_free) = match provider {
                Provider::Stub => ("stub-echo", true),
                Provider::Ollama => ("llama3.2", true),
                Provider::OpenAi => ("gpt-4o", false),
                Provider::Anthropic => ("claude-sonnet-4", false),
                Provider::GoogleAi | Provider::VertexAi => ("gemini-2.5-flash", false),
                Provider::Bedrock => ("amazon.nova-micro-v1:0", false),
            };
            let cost = cost(provider, id, &usage).unwrap();
            assert_eq!(cost <= 0.0, is_free, "{provider} {id}: {cost}");
        }
        assert_eq!(cost(Provider::OpenAi, "my-own-model", &usage), None);
    }

    #[test]
    fn every_row_of_the_table_is_found_by_a_provider() {
        let table: serde_json::Value = serde_json::from_str(include_str!("../prices/prices.json")).unwrap();
        for row in table["models"].as_array().unwrap() {
            let (family, id) = (row["provider"].as_str().unwrap(), row["id"].as_str().unwrap());
            let is_its = |provider: &Provider| {
                table["families"].get(provider.as_str()).map_or(provider.as_str(), |of| of.as_str().unwrap()) == family
            };
            let provider = Provider::ALL.into_iter().find(is_its).unwrap_or_else(|| panic!("{family} {id} belongs to no provider"));
            assert_eq!(window(provider, id).map(u64::from), row["window"].as_u64(), "{provider} {id}");
        }
    }
}
