//! The query parameters of a request. Each is taken by name; parameters that were not taken are refused, so that a misspelt
//! one is not silently ignored.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::error::Error;

#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Error> {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        decoded.collect::<Result<_, _>>().map(Self)
    }

    /// The value of `name`, if it is present and not empty.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.take(name).filter(|value| !value.is_empty())
    }

    /// A number within `range`, or `default` if the parameter is absent.
    pub fn number<N>(&mut self, name: &str, default: N, range: RangeInclusive<N>) -> Result<N, Error>
    where
        N: FromStr + PartialOrd + Display,
    {
        let Some(value) = self.take(name) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| Error::bad_request(format!("`{name}` must be a number, {} to {}", range.start(), range.end())))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Refuses parameters that were not taken.
    pub fn end(self) -> Result<(), Error> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name = &name[..name.floor_char_boundary(64)];
                Err(Error::bad_request(format!("there is no parameter `{name}` here, or it was given twice")))
            }
        }
    }
}

fn decode(text: &str) -> Result<String, Error> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Into::into).map_err(|_| Error::bad_request("the query is not percent-encoded UTF-8"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_decoded_and_checked() {
        let mut query = Query::parse(Some("limit=5&search=a+b%20%C3%A9&empty=&cursor")).unwrap();
        assert_eq!(query.number("limit", 100, 1..=500).unwrap(), 5);
        assert_eq!(query.text("search").as_deref(), Some("a b é"));
        assert_eq!((query.text("empty"), query.text("cursor"), query.text("other")), (None, None, None));
        query.end().unwrap();
        assert_eq!(Query::parse(None).unwrap().number("limit", 100, 1..=500).unwrap(), 100);
    }

    #[test]
    fn errors_name_the_parameter() {
        for (text, word) in [
            ("limit=0", "`limit`"),
            ("limit=x", "1 to 500"),
            ("limit=", "1 to 500"),
            ("limit=1&limit=2", "`limit`"),
            ("limti=1", "`limti`"),
        ] {
            let mut query = Query::parse(Some(text)).unwrap();
            let error = query.number("limit", 100, 1..=500).and_then(|_| query.end()).unwrap_err();
            assert!(error.message().contains(word), "{text}: {}", error.message());
        }
        assert!(Query::parse(Some("a=%ff")).is_err());
    }

    proptest! {
        #[test]
        fn a_query_is_read_as_the_url_standard_says(text in "([a-c=&+%;é/?]|%[0-9a-fA-F]{2}|%C3%A9){0,30}|\\PC{0,30}") {
            let expected: Vec<_> = url::form_urlencoded::parse(text.as_bytes()).into_owned().collect();
            if let Ok(Query(pairs)) = Query::parse(Some(&text)) {
                prop_assert_eq!(pairs, expected);
            } else {
                // The standard inserts replacement characters where this parser refuses.
                let replaced = |text: &String| text.contains(char::REPLACEMENT_CHARACTER);
                prop_assert!(expected.iter().any(|(name, value)| replaced(name) || replaced(value)));
            }
        }

        #[test]
        fn each_parameter_is_decoded_and_taken_once(pairs in prop::collection::btree_map("\\PC{1,5}", "\\PC{0,5}", 0..5)) {
            let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&pairs).finish();
            let mut query = Query::parse(Some(&text)).unwrap();
            for (name, value) in &pairs {
                prop_assert_eq!(query.text(name), Some(value.clone()).filter(|value| !value.is_empty()));
                prop_assert_eq!(query.text(name), None);
            }
            prop_assert!(query.end().is_ok());
        }

        #[test]
        fn a_number_is_within_its_bounds_or_refused(text in "[+-]?[0-9]{0,25}|\\PC{0,5}", least in 0_u64..10, size in 0_u64..1000) {
            let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("n", &text).finish();
            let range = least..=least + size;
            match Query::parse(Some(&query)).unwrap().number("n", least, range.clone()) {
                Ok(number) => prop_assert!(range.contains(&number) && text.parse() == Ok(number)),
                Err(error) => prop_assert!(error.message().contains("`n`") && text.parse().map_or(true, |number: u64| !range.contains(&number))),
            }
        }
    }
}
