//! Whether a canary keeps its gates: its rate of failed requests and its latency beside those of the stable track, and its score.
//!
//! A gate passes and fails by tests of its own, and what neither shows is undecided, however long it has been looked at. Nothing is
//! concluded from few requests.

/// What was measured of a track.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    /// Requests that ended, which those that callers gave up did not.
    pub ended: i64,
    /// Those of them that failed.
    pub errors: i64,
    /// A histogram of the milliseconds to an answer, of those that were answered.
    pub latency: Vec<i64>,
    /// The score of the evaluation of what the track runs, 0 to 100.
    pub score: Option<f64>,
}

/// What a canary has to keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gates {
    /// By how many percentage points its error rate may be above the stable track's.
    pub error_margin: f64,
    /// How long its 95th percentile may be, in percent of the stable track's.
    pub latency_ratio: f64,
    pub min_score: Option<f64>,
    /// How many requests each track needs before anything is concluded.
    pub minimum: i64,
    /// How often one canary is judged at most, which the level of each test is divided by.
    pub looks: i32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// What cannot be concluded from, in words.
    TooLittle(&'static str),
    /// Neither kept nor broken, in words.
    Undecided(String),
    Pass,
    /// What was broken, in words.
    Fail(String),
}

/// Judges a canary. `bounds` are those of the histograms.
pub fn judge(_canary: &Evidence, _stable: &Evidence, _gates: &Gates, _bounds: &[i64]) -> Verdict {
    Verdict::TooLittle("requests to the canary")
}

/// What is so bad that a canary ends at once, in words, whatever its minimum.
pub fn catastrophic(_canary: &Evidence, _stable: &Evidence) -> Option<String> {
    None
}
