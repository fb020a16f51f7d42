//! Reading one variable after the other, and keeping every fault until the end.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::DeserializeOwned;

/// A quoted value is cut to this.
const MAX_QUOTE_BYTES: usize = 80;

pub(super) struct Form<L> {
    lookup: L,
    pub(super) faults: Vec<String>,
}

impl<L: Fn(&str) -> Option<OsString>> Form<L> {
    pub(super) fn new(lookup: L) -> Self {
        Self { lookup, faults: Vec::new() }
    }

    pub(super) fn fault(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// The value, if it is there and not empty.
    pub(super) fn value(&mut self, name: &str) -> Option<String> {
        match (self.lookup)(name)?.into_string() {
            Ok(value) if value.is_empty() => None,
            Ok(value) => Some(value),
            Err(_) => {
                self.fault(format!("{name} is not valid UTF-8"));
                None
            }
        }
    }

    /// One of `supported`; the first is the default.
    pub(super) fn choice<'a>(&mut self, name: &str, supported: &[&'a str]) -> &'a str {
        let Some(value) = self.value(name) else { return supported[0] };
        supported.iter().find(|choice| **choice == value).copied().unwrap_or_else(|| {
            self.fault(format!("{name} is {}; supported: {}", quoted(&value), supported.join(", ")));
            supported[0]
        })
    }

    /// A whole number within bounds.
    pub(super) fn number<N>(&mut self, name: &str, default: N, range: RangeInclusive<N>) -> N
    where
        N: FromStr + PartialOrd + Copy + std::fmt::Display,
    {
        let Some(value) = self.value(name) else { return default };
        value.parse().ok().filter(|number| range.contains(number)).unwrap_or_else(|| {
            self.fault(format!("{name} is {}; expected a number, {} to {}", quoted(&value), range.start(), range.end()));
            default
        })
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.choice(name, &["false", "true"]) == "true"
    }

    /// A JSON array of `kind`. An error of serde may quote the value, so ours names only the position.
    pub(super) fn array<T: DeserializeOwned>(&mut self, name: &str, kind: &str) -> Vec<T> {
        let Some(value) = self.value(name) else { return Vec::new() };
        serde_json::from_str(&value).unwrap_or_else(|error| {
            let (line, column) = (error.line(), error.column());
            self.fault(format!("{name} must be a JSON array of {kind}; it goes wrong at line {line} column {column}"));
            Vec::new()
        })
    }
}

pub(super) fn quoted(value: &str) -> String {
    let start = &value[..value.floor_char_boundary(MAX_QUOTE_BYTES)];
    let more = if start.len() < value.len() { "…" } else { "" };
    format!("{start:?}{more}")
}
