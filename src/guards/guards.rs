//! The guards of one agent, built once from its settings and shared by its turns.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::finding::{Action, Block, Finding, GuardName, Side, Verdict};
use crate::injection::Injection;
use crate::limits::{Breach, Budget, GuardLimits, Ledger, Spent, TurnCheck};
use crate::phrases::MatchState;
use crate::policy::{Demand, Policy};
use crate::ruled::{Ruled, Rules};
use crate::runs::RunSplitter;
use crate::settings::{GuardConfig, Price};
use crate::share::{Asker, Lease, Wish};
use crate::stream::GuardStream;
use crate::topics::Topics;
use crate::words::Words;
use crate::{pii, secrets};

/// The guards of one agent, with what its policies ask for. Cheap to clone; clones share what was counted.
#[derive(Debug, Clone, Default)]
pub struct Guards {
    text: Option<Arc<TextGuards>>,
    limits: Option<Arc<GuardLimits>>,
    rules: Option<Arc<Rules>>,
    ledger: Ledger,
    /// The prices of models in the settings of spend-limit.
    prices: Option<Arc<BTreeMap<String, Price>>>,
    policies: usize,
}

/// The guards that judge text.
#[derive(Debug)]
pub(crate) struct TextGuards {
    /// The kinds to find; empty: all.
    pii: Option<(Vec<String>, Action)>,
    secrets: Option<Action>,
    injection: Option<(Injection, Action)>,
    pub(crate) topics: Option<Topics>,
}

impl Guards {
    /// `guards_json` is `RUNTIME_GUARDS`, an array of names or of `{"name": …}` with settings; `policies_json` is
    /// `RUNTIME_POLICIES`, an array of policies. Both may be empty. All faults are returned at once.
    pub fn read(guards_json: &str, policies_json: &str) -> Result<Self, Vec<String>> {
        GuardConfig::read(guards_json, policies_json, &[]).and_then(Self::build).map_err(|faults| faults.into_iter().map(named).collect())
    }

    /// The same with policies that were read already. Their faults begin with `policy`.
    pub fn compile(guards_json: &str, policies: &[Policy]) -> Result<Self, Vec<String>> {
        let own = |fault: String| if fault.starts_with("policy ") { fault } else { named(fault) };
        GuardConfig::read(guards_json, "", policies).and_then(Self::build).map_err(|faults| faults.into_iter().map(own).collect())
    }

    fn build(settings: GuardConfig) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let mut topics = None;
        if !settings.topics.is_empty() {
            match Topics::new(&settings.topics) {
                Ok(built) => topics = Some(built),
                Err(more) => faults.extend(more),
            }
        }
        let injection = settings.injection.and_then(|wanted| match Injection::new(wanted.threshold) {
            Ok(built) => Some((built, wanted.action)),
            Err(fault) => {
                faults.push(fault);
                None
            }
        });
        if !faults.is_empty() {
            return Err(faults);
        }
        let text = TextGuards { pii: settings.pii.map(|pii| (pii.kinds, pii.action)), secrets: settings.secrets, injection, topics };
        let rules = Rules { denied_tools: settings.denied_tools, allowed_models: settings.allowed_models, lacking: settings.lacking };
        Ok(Self {
            text: (!text.is_empty()).then(|| Arc::new(text)),
            limits: (!settings.limits.is_empty()).then(|| Arc::new(GuardLimits(settings.limits))),
            rules: (!rules.is_empty()).then(|| Arc::new(rules)),
            ledger: Ledger::default(),
            prices: (!settings.prices.is_empty()).then(|| Arc::new(settings.prices)),
            policies: settings.policies,
        })
    }

    /// Without any guard.
    pub fn none() -> Self {
        Self::default()
    }

    /// These guards go on with what the former ones have counted: a policy that changes restores no budget.
    #[must_use]
    pub fn continuing(self, former: &Self) -> Self {
        Self { ledger: former.ledger.clone(), ..self }
    }

    /// The same guards without the limits: what is judged is neither counted nor refused for its amount.
    #[must_use]
    pub fn without_limits(&self) -> Self {
        Self { limits: None, ledger: Ledger::default(), ..self.clone() }
    }

    /// Whether there are no guards.
    pub fn is_empty(&self) -> bool {
        self.text.is_none() && self.limits.is_none() && self.rules.is_none()
    }

    /// How many policies are in force.
    pub fn policies(&self) -> usize {
        self.policies
    }

    /// Whether a policy may block an answer and lets nothing of it out before all of it was judged.
    pub fn hold_answers(&self) -> bool {
        self.text.as_ref().and_then(|text| text.topics.as_ref()).is_some_and(Topics::hold_answers)
    }

    /// Whether policies deny tools.
    pub fn denies_tools(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| !rules.denied_tools.is_empty())
    }

    /// What policies say about a call of a tool. `origin` is the Tool that it belongs to, such as its MCP server.
    pub fn tool(&self, name: &str, origin: &str) -> Vec<Ruled> {
        self.rules.as_ref().map(|rules| rules.tool(name, origin)).unwrap_or_default()
    }

    /// What policies say about asking a model.
    pub fn model(&self, provider: &str, model: &str) -> Vec<Ruled> {
        self.rules.as_ref().map(|rules| rules.model(provider, model)).unwrap_or_default()
    }

    /// The guards that policies miss, where they only warn.
    pub fn lacking(&self) -> Vec<Ruled> {
        self.rules.as_ref().map(|rules| rules.lacking()).unwrap_or_default()
    }

    /// Judges a whole text. Results of tools and documents are input, too.
    pub fn check<'a>(&self, side: Side, text: &'a str) -> Verdict<'a> {
        let Some(guards) = &self.text else {
            return Verdict { findings: Vec::new(), text: Cow::Borrowed(text), blocked: None };
        };
        let mut findings = Vec::new();
        if guards.reads_runs() {
            let (mut splitter, mut at) = (RunSplitter::default(), 0);
            while at < text.len() {
                let end = splitter.end(&text[at..]).map_or(text.len(), |end| at + end);
                guards.run(text, at..end, &mut findings);
                at = end;
            }
        }
        guards.words(side, text, &mut findings);
        findings.sort_by_key(|finding| (finding.span.start, finding.span.end, finding.guard));
        let blocked = findings.iter().find(|finding| finding.action == Action::Block).map(Block::of);
        let masked = masked(text, 0..text.len(), &findings);
        Verdict { findings, text: masked, blocked }
    }

    /// A guard for one answer that arrives in fragments.
    pub fn stream(&self) -> GuardStream {
        GuardStream::new(self.text.clone().filter(|text| text.reads_runs() || text.topics.is_some()))
    }

    /// Checks the limits before a turn; a turn that is not refused counts as a request.
    pub fn before_turn(&self, budget: &Budget) -> TurnCheck {
        self.limits().before_turn(&self.ledger, budget)
    }

    /// Records the usage of a turn, and returns the limits that it exceeded.
    pub fn after(&self, spent: &Spent) -> Vec<Breach> {
        self.limits().after(&self.ledger, spent)
    }

    /// The configured price of a model.
    pub fn price(&self, model: &str) -> Option<Price> {
        self.prices.as_ref()?.get(model).copied()
    }

    /// Whether requests or the cost of a day are limited.
    pub fn has_budgets(&self) -> bool {
        self.limits().has_budgets()
    }

    /// Whether the cost of a day is limited.
    pub fn counts_spending(&self) -> bool {
        self.limits().counts_spending()
    }

    /// Adds cost of the day of `at` from before the start of this process.
    pub fn spent_today(&self, at: SystemTime, usd: f64) {
        self.ledger.spent_today(at, usd);
    }

    /// Adds cost of this process outside of turns.
    pub fn spent_aside(&self, at: SystemTime, usd: f64) {
        self.ledger.spent_aside(at, usd);
    }

    /// From now on the day's cost and the requests that policies limit are the agent's, and this replica has leases of them.
    pub fn share(&self) {
        self.ledger.share();
    }

    /// What to ask of the agent's budgets; nothing where no limit needs it.
    pub fn wish(&self, asker: Asker, now: Instant) -> Option<Wish> {
        self.limits().wish(&self.ledger, asker, now)
    }

    pub fn leased(&self, wish: &Wish, lease: &Lease) {
        self.ledger.leased(wish, lease);
    }

    /// Whether something was spent that the other replicas do not know of, or may be by turns under way.
    pub fn has_news(&self) -> bool {
        self.counts_spending() && self.ledger.is_stirred()
    }

    /// The most tokens of an answer to a prompt of this size; `None` without a limit.
    pub fn tokens_left(&self, tokens_in_prompt: u64) -> Option<u64> {
        self.limits().tokens_left(tokens_in_prompt)
    }

    fn limits(&self) -> &GuardLimits {
        static NONE: GuardLimits = GuardLimits(Vec::new());
        self.limits.as_deref().unwrap_or(&NONE)
    }
}

impl TextGuards {
    fn is_empty(&self) -> bool {
        self.pii.is_none() && self.secrets.is_none() && self.injection.is_none() && self.topics.is_none()
    }

    /// Whether a guard matches patterns, which lie within runs.
    pub(crate) fn reads_runs(&self) -> bool {
        self.pii.is_some() || self.secrets.is_some()
    }

    /// The findings of one run, in order and without overlap: a secret takes precedence over personal data within it.
    pub(crate) fn run(&self, text: &str, run: Range<usize>, findings: &mut Vec<Finding>) {
        let first = findings.len();
        let mut found = Vec::new();
        if let Some(action) = self.secrets {
            secrets::find(text, run.clone(), &mut found);
            // A private key has too many lines to be masked in a stream.
            let action = |kind| if kind == secrets::PRIVATE_KEY && action == Action::Mask { Action::Block } else { action };
            findings.extend(found.drain(..).map(|(kind, span)| finding(GuardName::SecretsScanner, kind, span, action(kind))));
        }
        if let Some((kinds, action)) = &self.pii {
            pii::find(text, run, &mut found);
            let wanted = |kind: &str| kinds.is_empty() || kinds.iter().any(|one| one == kind);
            found.retain(|(kind, _)| wanted(kind));
            let secrets: Vec<_> = findings[first..].iter().map(|finding| finding.span.clone()).collect();
            for (kind, span) in found {
                findings.extend(outside(span, &secrets).map(|span| finding(GuardName::PiiDetection, kind, span, *action)));
            }
        }
        findings[first..].sort_by_key(|finding| finding.span.start);
    }

    /// The findings of the guards that read words. The text is split once for all of them.
    fn words(&self, side: Side, text: &str, findings: &mut Vec<Finding>) {
        let mut injection =
            self.injection.as_ref().filter(|_| side == Side::Input).map(|(injection, action)| (injection.reading(), *action));
        if self.topics.is_none() && injection.is_none() {
            return;
        }
        let mut topics = self.topics.as_ref().map(|topics| (topics, MatchState::default()));
        let mut each = |word: &[u8], span: Range<usize>| {
            if let Some((topics, progress)) = &mut topics {
                topics.word(progress, word, &span, |topic, span, demand| findings.push(demanded(topic, span, demand)));
            }
            if let Some((reading, _)) = &mut injection {
                reading.word(word, &span);
            }
        };
        let mut words = Words::default();
        words.read(text, 0, &mut each);
        words.end(&mut each);
        if let Some((reading, action)) = injection {
            findings.extend(reading.end(text).into_iter().map(|(kind, span)| finding(GuardName::PromptInjection, &kind, span, action)));
        }
    }
}

/// A fault with the name of its variable.
fn named(fault: String) -> String {
    let variable = if fault.starts_with("policy ") { "RUNTIME_POLICIES" } else { "RUNTIME_GUARDS" };
    if fault.contains("RUNTIME_") { fault } else { format!("{variable}: {fault}") }
}

/// The parts of a span outside of the others, which are disjoint and sorted: the rest of an address beside a key is still
/// personal data.
fn outside(span: Range<usize>, others: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    let first = others.partition_point(|other| other.end <= span.start);
    let within = others[first..].iter().take_while(move |other| other.start < span.end);
    let mut at = span.start;
    let ends = within.cloned().chain(std::iter::once(span.end..span.end));
    ends.map(move |other| std::mem::replace(&mut at, other.end)..other.start).filter(|part| part.start < part.end)
}

fn finding(guard: GuardName, kind: &str, span: Range<usize>, action: Action) -> Finding {
    Finding { guard, kind: kind.to_owned(), span, action, policy: None }
}

/// A topic, for one who asked for it.
pub(crate) fn demanded(topic: &str, span: Range<usize>, demand: &Demand) -> Finding {
    let Demand { action, policy, .. } = demand.clone();
    Finding { guard: GuardName::BlockedTopics, kind: topic.to_owned(), span, action, policy }
}

/// A part of a text with personal data and secrets replaced by their kinds. Findings that block are replaced too, because a
/// refused text may be stored; findings that only warn stay.
pub(crate) fn masked<'a>(text: &'a str, part: Range<usize>, findings: &[Finding]) -> Cow<'a, str> {
    let hides =
        |finding: &&Finding| matches!(finding.guard, GuardName::PiiDetection | GuardName::SecretsScanner) && finding.action != Action::Warn;
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

/// The end of a private key whose header ends at `header`: after its footer, or the end of the text.
fn key_end(text: &str, header: usize, end: usize) -> usize {
    let rest = &text[header..end];
    let footer = rest.find("-----END").map(|at| at + "-----END".len());
    footer.and_then(|at| rest[at..].find("-----").map(|dashes| header + at + dashes + 5)).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_split_around_others() {
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
