//! Headers that a spec holds in plain words: their schema, and the rules that keep credentials out of them.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// A map from header to value.
pub(crate) fn map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 2048 },
    })
}

/// No header that is known to hold credentials.
pub(crate) fn no_known_credentials() -> Rule {
    Rule::new("self.all(k, !(k.lowerAscii() in ['authorization', 'proxy-authorization', 'cookie', 'x-api-key']))")
}

/// No header whose name says that it holds credentials.
pub(crate) fn no_named_credentials() -> Rule {
    Rule::new(
        "self.all(k, !k.lowerAscii().matches('token|secret|(api|access|private|auth|subscription|functions)-?key|passw(or)?d|credential|(^|-)auth$'))",
    )
}

/// Names and values that HTTP can carry.
pub(crate) fn well_formed() -> Rule {
    Rule::new("self.all(k, k.matches('^[A-Za-z0-9-]{1,128}$') && self[k].matches('^[^\\\\r\\\\n]*$'))")
        .message("a header's name has letters, digits and hyphens, its value no line breaks")
}
