//! The guards of one agent: built once from its settings, shared by all of its turns.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::finding::{Action, Block, Finding, Name, Side, Verdict};
use crate::injection::Injection;
use crate::limits::{Breach, Budget, Limits, Spent, Turn};
use crate::phrases::Progress;
use crate::runs::Cutter;
use crate::settings::{Price, Settings};
use crate::stream::Stream;
use crate::topics::Topics;
use crate::words::Words;
use crate::{pii, secrets};

/// Cheap to clone; the clones share one state of limits.
#[derive(Debug, Clone, Default)]
pub struct Guards {
    text: Option<Arc<Text>>,
    limits: Option<Arc<Mutex<Limits>>>,
    /// What models cost, as the guard spend-limit was told.
    prices: Option<Arc<BTreeMap<String, Price>>>,
}

/// The guards that read text.
#[derive(Debug)]
pub(crate) struct Text {
    /// The kinds that are looked for; empty: all.
    pii: Option<(Vec<String>, Action)>,
    secrets: Option<Action>,
    injection: Option<(Injection, Action)>,
    pub(crate) topics: Vec<(Topics, Action)>,
}

impl Guards {
    /// `guards_json` is `RUNTIME_GUARDS`, an array of names or of `{"name": …}` with settings; `policies_json` is
    /// `RUNTIME_POLICIES`, an array of policies. Both may be empty. All faults are returned at once.
    pub fn read(guards_json: &str, policies_json: &str) -> Result<Self, Vec<String>> {
        let settings = Settings::read(guards_json, policies_json).map_err(|faults| faults.into_iter().map(named).collect::<Vec<_>>())?;
        let mut faults = Vec::new();
        let mut topics = Vec::new();
        for asked in settings.topics {
            match Topics::new(&asked.topics) {
                Ok(built) => topics.push((built, asked.action)),
                Err(fault) => faults.push(fault),
            }
        }
        let injection = settings.injection.and_then(|asked| match Injection::new(asked.threshold) {
            Ok(built) => Some((built, asked.action)),
            Err(fault) => {
                faults.push(fault);
                None
            }
        });
        if !faults.is_empty() {
            return Err(faults.into_iter().map(named).collect());
        }
        let text = Text { pii: settings.pii.map(|pii| (pii.kinds, pii.action)), secrets: settings.secrets, injection, topics };
        let limits = Limits::new(settings.limits);
        Ok(Self {
            text: (!text.is_empty()).then(|| Arc::new(text)),
            limits: (!limits.is_empty()).then(|| Arc::new(Mutex::new(limits))),
            prices: (!settings.prices.is_empty()).then(|| Arc::new(settings.prices)),
        })
    }

    /// No guard at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether nothing is guarded, so that a turn need not ask.
    pub fn is_empty(&self) -> bool {
        self.text.is_none() && self.limits.is_none()
    }

    /// Judges a whole text. What tools and documents bring is input, too.
    pub fn check<'a>(&self, side: Side, text: &'a str) -> Verdict<'a> {
        let Some(guards) = &self.text else {
            return Verdict { findings: Vec::new(), text: Cow::Borrowed(text), blocked: None };
        };
        let mut findings = Vec::new();
        if guards.reads_runs() {
            let (mut cutter, mut at) = (Cutter::default(), 0);
            while at < text.len() {
                let end = cutter.end(&text[at..]).map_or(text.len(), |end| at + end);
                guards.run(text, at..end, &mut findings);
                at = end;
            }
        }
        guards.words(side, text, &mut findings);
        findings.sort_by_key(|finding| (finding.span.start, finding.span.end, finding.guard));
        let blocked =
            findings.iter().find(|finding| finding.action == Action::Block).map(|finding| Block::found(finding.guard, &finding.kind));
        let masked = masked(text, 0..text.len(), &findings);
        Verdict { findings, text: masked, blocked }
    }

    /// A judge for one answer that comes in fragments.
    pub fn stream(&self) -> Stream {
        Stream::new(self.text.clone().filter(|text| text.reads_runs() || !text.topics.is_empty()))
    }

    /// Asks before a turn; what is not refused counts as a request.
    pub fn before_turn(&self, budget: &Budget) -> Turn {
        self.with_limits(|limits| limits.before_turn(budget)).unwrap_or_default()
    }

    /// Tells what a turn has taken.
    pub fn after(&self, spent: &Spent) -> Vec<Breach> {
        self.with_limits(|limits| limits.after(spent)).unwrap_or_default()
    }

    /// What a model costs, where that was given by hand.
    pub fn price(&self, model: &str) -> Option<Price> {
        self.prices.as_ref()?.get(model).copied()
    }

    /// Whether what a day costs is limited, so that it matters what was spent before this process began.
    pub fn counts_spending(&self) -> bool {
        self.with_limits(|limits| limits.counts_spending()).unwrap_or_default()
    }

    /// What was spent on the day of `at` beside this process's turns: before it began, or behind the scenes.
    pub fn spent_today(&self, at: SystemTime, usd: f64) {
        self.with_limits(|limits| limits.spent_today(at, usd));
    }

    /// The most tokens that the answer to a prompt of this size may have; none when nothing limits it.
    pub fn tokens_left(&self, tokens_in_prompt: u64) -> Option<u64> {
        self.with_limits(|limits| limits.tokens_left(tokens_in_prompt)).flatten()
    }

    /// A turn that panicked has left numbers, not a broken structure: they stay in force.
    fn with_limits<T>(&self, act: impl FnOnce(&mut Limits) -> T) -> Option<T> {
        let limits = self.limits.as_ref()?;
        Some(act(&mut limits.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Text {
    fn is_empty(&self) -> bool {
        self.pii.is_none() && self.secrets.is_none() && self.injection.is_none() && self.topics.is_empty()
    }

    /// Whether a guard looks for forms, which lie within runs.
    pub(crate) fn reads_runs(&self) -> bool {
        self.pii.is_some() || self.secrets.is_some()
    }

    /// The findings of one run, in order and without overlap: a secret goes before an address within it.
    pub(crate) fn run(&self, text: &str, run: Range<usize>, findings: &mut Vec<Finding>) {
        let first = findings.len();
        let mut found = Vec::new();
        if let Some(action) = self.secrets {
            secrets::find(text, run.clone(), &mut found);
            // A private key has too many lines to be masked while it is being written.
            let action = |kind| if kind == secrets::PRIVATE_KEY && action == Action::Mask { Action::Block } else { action };
            findings.extend(found.drain(..).map(|(kind, span)| finding(Name::SecretsScanner, kind, span, action(kind))));
        }
        if let Some((kinds, action)) = &self.pii {
            pii::find(text, run, &mut found);
            let wanted = |kind: &str| kinds.is_empty() || kinds.iter().any(|one| one == kind);
            found.retain(|(kind, _)| wanted(kind));
            let secrets: Vec<_> = findings[first..].iter().map(|finding| finding.span.clone()).collect();
            for (kind, span) in found {
                findings.extend(outside(span, &secrets).map(|span| finding(Name::PiiDetection, kind, span, *action)));
            }
        }
        findings[first..].sort_by_key(|finding| finding.span.start);
    }

    /// The findings of those who read words, which are parted once for all of them.
    fn words(&self, side: Side, text: &str, findings: &mut Vec<Finding>) {
        let mut injection =
            self.injection.as_ref().filter(|_| side == Side::Input).map(|(injection, action)| (injection.reading(), *action));
        if self.topics.is_empty() && injection.is_none() {
            return;
        }
        let mut topics: Vec<_> = self.topics.iter().map(|(topics, action)| (topics, Progress::default(), *action)).collect();
        let mut each = |word: &[u8], span: Range<usize>| {
            for (topics, progress, action) in &mut topics {
                topics.word(progress, word, &span, |topic, span| findings.push(finding(Name::BlockedTopics, topic, span, *action)));
            }
            if let Some((reading, _)) = &mut injection {
                reading.word(word, &span);
            }
        };
        let mut words = Words::default();
        words.read(text, 0, &mut each);
        words.end(&mut each);
        if let Some((reading, action)) = injection {
            findings.extend(reading.end(text).into_iter().map(|(kind, span)| finding(Name::PromptInjection, &kind, span, action)));
        }
    }
}

/// A fault with the variable it is in.
fn named(fault: String) -> String {
    let variable = if fault.starts_with("policy ") { "RUNTIME_POLICIES" } else { "RUNTIME_GUARDS" };
    if fault.contains("RUNTIME_") { fault } else { format!("{variable}: {fault}") }
}

/// The parts of a span that none of the others has, which are apart and in order: what is left of an address beside a
/// key is still personal.
fn outside(span: Range<usize>, others: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    let first = others.partition_point(|other| other.end <= span.start);
    let within = others[first..].iter().take_while(move |other| other.start < span.end);
    let mut at = span.start;
    let ends = within.cloned().chain(std::iter::once(span.end..span.end));
    ends.map(move |other| std::mem::replace(&mut at, other.end)..other.start).filter(|part| part.start < part.end)
}

pub(crate) fn finding(guard: Name, kind: &str, span: Range<usize>, action: Action) -> Finding {
    Finding { guard, kind: kind.to_owned(), span, action }
}

/// A part of a text with personal data and secrets replaced by their kinds. What blocks is replaced too, because a
/// refused text may be stored; what only warns stays.
pub(crate) fn masked<'a>(text: &'a str, part: Range<usize>, findings: &[Finding]) -> Cow<'a, str> {
    let hides = |finding: &&Finding| matches!(finding.guard, Name::PiiDetection | Name::SecretsScanner) && finding.action != Action::Warn;
    let mut hidden =
        findings.iter().filter(hides).filter(|finding| part.start <= finding.span.start && finding.span.end <= part.end).peekable();
    if hidden.peek().is_none() {
        return Cow::Borrowed(&text[part]);
    }
    let mut out = String::with_capacity(part.len());
    let mut at = part.start;
    for finding in hidden {
        if finding.span.start < at {
            continue;
        }
        out.push_str(&text[at..finding.span.start]);
        out.push('[');
        out.extend(finding.kind.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_uppercase() }));
        out.push(']');
        at = if finding.kind == secrets::PRIVATE_KEY { key_end(text, finding.span.end, part.end) } else { finding.span.end };
    }
    out.push_str(&text[at..part.end]);
    Cow::Owned(out)
}

/// Where a private key ends whose header ends here: after its footer, or with the text.
fn key_end(text: &str, header: usize, end: usize) -> usize {
    let rest = &text[header..end];
    let footer = rest.find("-----END").map(|at| at + "-----END".len());
    footer.and_then(|at| rest[at..].find("-----").map(|dashes| header + at + dashes + 5)).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_is_left_to_them() {
        let others = [0..2, 4..6, 6..7, 10..20];
        for (span, expected) in [
            (2..4, "2..4"),
            (0..2, ""),
            (1..8, "2..4 7..8"),
            (5..12, "7..10"),
            (3..30, "3..4 7..10 20..30"),
            (20..30, "20..30"),
            (12..13, ""),
        ] {
            let left: Vec<_> = outside(span.clone(), &others).map(|part| format!("{part:?}")).collect();
            assert_eq!(left.join(" "), expected, "{span:?}");
        }
    }
}
