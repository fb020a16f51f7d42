//! A place in a list of changes that goes by the time of the last update: a window that ends now. Windows overlap, because clocks
//! differ and searches lag; a document that has not changed since is known by its version.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ChangeCursor;

const OVERLAP_SECONDS: i64 = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Since {
    /// Seconds since 1970.
    from: i64,
    /// When the first page of the window was asked for, and how long the window was then. Further pages keep both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<(i64, i64)>,
}

impl Since {
    pub(crate) fn now() -> Self {
        Self { from: Timestamp::now().as_second(), window: None }
    }

    /// With the window that the pages to come share.
    pub(crate) fn begun(self) -> Self {
        let now = Timestamp::now().as_second();
        let length = (now - self.from).max(0) + OVERLAP_SECONDS;
        Self { window: Some(self.window.unwrap_or((now, length))), ..self }
    }

    /// The window's length.
    pub(crate) fn minutes(self) -> i64 {
        self.window.map_or(OVERLAP_SECONDS, |(_, length)| length).div_euclid(60) + 1
    }

    /// Behind the window.
    pub(crate) fn done(self) -> Self {
        Self { from: self.window.map_or(self.from, |(begun, _)| begun), window: None }
    }

    pub(crate) fn cursor(self) -> ChangeCursor {
        ChangeCursor(json!({"since": self}).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_overlap_and_pages_share_one() {
        let hour_ago = Since { from: Timestamp::now().as_second() - 3600, window: None };
        let begun = hour_ago.begun();
        assert!((65..=67).contains(&begun.minutes()), "{}", begun.minutes());
        assert_eq!(begun.begun(), begun);
        let done = begun.done();
        assert!((6..=7).contains(&done.begun().minutes()), "{}", done.begun().minutes());
    }
}
