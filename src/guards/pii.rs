//! Personal data: what has a form that can be told from other text.

/// The kinds that can be named in `kinds`.
pub(crate) const KINDS: [&str; 7] = ["email", "phone", "iban", "credit-card", "us-ssn", "ipv4", "ipv6"];
