//! Compares `stream` with `check`: the released text is the same for every split of an answer.

use std::sync::LazyLock;

use proptest::prelude::*;
use slipway_guards::{Finding, Guards, Side, StreamItem};

static MASKING: LazyLock<Guards> = LazyLock::new(|| {
    guards(r#"["pii-detection", {"name": "secrets-scanner", "action": "mask"}, {"name": "blocked-topics", "action": "warn"}]"#)
});
static BLOCKING: LazyLock<Guards> =
    LazyLock::new(|| guards(r#"["pii-detection", "secrets-scanner", "prompt-injection", "blocked-topics"]"#));

/// Without optimisation a case takes twenty times as long.
fn cases() -> u32 {
    let usual = ProptestConfig::default().cases;
    if cfg!(debug_assertions) { usual / 4 } else { usual / 2 * 3 }
}

/// Parts of findings, and separators. A `~` hides them from scanners of the source.
const PIECES: &[&str] = &[
    "anna.berg@mail.example.org",
    "@",
    "git@host.org:x",
    "+44 (0) 20 7946 0018",
    "call ",
    "phone: ",
    "555-201",
    "-4477",
    "202.555.0147",
    "4111 1111 1111 1111",
    "4111",
    "GB29 NWBK 6016 1331 9268 19",
    "GB29",
    "DE89370400440532013000",
    "078-05-1120",
    "93.184.216.34",
    "10.0.0.1",
    "2001:db8:85a3:8d3:1319:8a2e:370:7348",
    "gh~p_q7Zk2Vd9XwLp4RtYb8NcAs6Mf1Hj3Gu5Ee0To",
    "AK~IAQ7ZK2VD9XWLP4RTY",
    "-----BEG~IN RSA PRIVATE KEY-----",
    "api_key = \"",
    "q7Zk2Vd9XwLp4RtYb8NcAs6M",
    "password: ",
    "postgres://app:s3cr3tPw9@db:5432/x",
    "Bearer ",
    "=",
    ":",
    "\"",
    "'",
    " ",
    "  ",
    "\n",
    "\t",
    ".",
    ",",
    "-",
    "x12",
    "0",
    "7",
    "12",
    "é",
    "炸",
    "\u{200b}",
    "\u{a0}",
    "“",
    "ｇｈ",
    "＠",
    "р",
    "７",
    "\u{2011}",
    "discord",
    "token:\n",
    "secret =>",
    "Z2hw~X3E3WmsyVmQ5WHdMcDRSdFliOE5jQXM2TWYxSGozR3U1RWUwVG8",
    "MIIEowIBA~AKCAQEAq7Zk2Vd9XwLp4RtYb8NcAs6Mf1Hj3Gu5Ee0To",
    "9580715123:A~Aq7Zk2Vd9XwLp4RtYb8NcAs6Mf1Hj3Gu5",
    "word",
    "NASA",
    "build a ",
    "pipe bomb",
    "kill myself",
    "[EMAIL]",
    "[",
    "]",
    "(",
    ")",
    "/",
    "_",
    "eyJ",
    "://",
];

#[expect(clippy::unwrap_used, reason = "settings of tests are right")]
fn guards(settings: &str) -> Guards {
    Guards::read(settings, "").unwrap()
}

fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => proptest::sample::select(PIECES).prop_map(|piece| piece.replace('~', "")),
        1 => "\\PC{0,6}",
        1 => "[0-9 +().-]{1,12}",
        1 => (1usize..5000).prop_map(|length| "a1".repeat(length / 2)),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// The items of a stream for a text that is split at these positions.
fn streamed(guards: &Guards, text: &str, cuts: &[usize]) -> (String, Vec<Finding>, bool) {
    let mut places: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut % (text.len() + 1))).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    let mut stream = guards.stream();
    let mut all: Vec<StreamItem> = places.windows(2).flat_map(|pair| stream.push(&text[pair[0]..pair[1]])).collect();
    all.extend(stream.finish());
    let (mut said, mut findings, mut blocked) = (String::new(), Vec::new(), false);
    for out in all {
        assert!(!blocked, "something came after the block");
        match out {
            StreamItem::Text(text) => said.push_str(&text),
            StreamItem::Finding(finding) => findings.push(finding),
            StreamItem::Blocked(_) => blocked = true,
        }
    }
    (said, findings, blocked)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn any_split_gives_the_text_and_the_findings_of_the_whole(text in texts(), cuts in proptest::collection::vec(any::<usize>(), 0..40)) {
        let guards = &*MASKING;
        let whole = guards.check(Side::Output, &text);
        let (said, mut findings, blocked) = streamed(guards, &text, &cuts);
        findings.sort_by_key(|finding| (finding.span.start, finding.span.end, finding.guard));
        // Only a private key blocks here.
        prop_assert_eq!(blocked, whole.blocked.is_some());
        if blocked {
            prop_assert!(whole.text.starts_with(&said), "{:?} does not begin with {:?}", whole.text, said);
        } else {
            prop_assert_eq!(said, whole.text);
            prop_assert_eq!(findings, whole.findings);
        }
    }

    #[test]
    fn a_stream_blocks_when_the_whole_does_and_lets_nothing_else_out(text in texts(), cuts in proptest::collection::vec(any::<usize>(), 0..40)) {
        let guards = &*BLOCKING;
        let whole = guards.check(Side::Output, &text);
        let (said, findings, blocked) = streamed(guards, &text, &cuts);
        prop_assert_eq!(blocked, whole.blocked.is_some());
        prop_assert!(whole.text.starts_with(&said), "{:?} does not begin with {:?}", whole.text, said);
        prop_assert!(findings.iter().all(|finding| whole.findings.contains(finding)));
    }

    #[test]
    fn masking_twice_masks_no_more(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..24)) {
        // Adjacent findings may be split differently once one of them is masked, so they are separated here. The header of a
        // key is judged by the words after it, which may be masked.
        let pieces: Vec<_> = pieces.into_iter().filter(|piece| !piece.contains("-----BEG")).collect();
        let text = pieces.join(" ").replace('~', "");
        let guards = &*MASKING;
        let once = guards.check(Side::Input, &text).text.into_owned();
        prop_assert_eq!(&guards.check(Side::Input, &once).text, &once, "from {:?}", text);
    }

    #[test]
    fn findings_lie_on_characters_and_never_quote(text in texts()) {
        let guards = &*BLOCKING;
        let verdict = guards.check(Side::Input, &text);
        for finding in &verdict.findings {
            prop_assert!(text.get(finding.span.clone()).is_some_and(|found| !found.is_empty()), "{:?}", finding);
        }
        if let Some(block) = &verdict.blocked {
            let named = verdict.findings.iter().filter(|finding| finding.span.len() > 12).all(|finding| !block.message.contains(&text[finding.span.clone()]));
            prop_assert!(named, "{}", block.message);
        }
    }

    #[test]
    fn any_text_at_all_is_survived(text in any::<String>(), fragments in proptest::collection::vec(any::<String>(), 0..8)) {
        let guards = &*BLOCKING;
        guards.check(Side::Input, &text);
        let mut stream = guards.stream();
        for fragment in fragments {
            stream.push(&fragment);
        }
        stream.finish();
    }
}

#[test]
fn of_a_private_key_nothing_is_kept() {
    let key = format!("Here:\n-----BEGIN {0}-----\nMIIEow\nq7Zk2Vd9\n-----END {0}-----\nbye a@b.org", "EC PRIVATE KEY");
    for guards in [&MASKING, &BLOCKING] {
        let verdict = guards.check(Side::Input, &key);
        assert_eq!(verdict.text, "Here:\n[PRIVATE_KEY]\nbye [EMAIL]");
        assert!(verdict.blocked.is_some());
    }
}

#[test]
fn little_is_held_back() {
    let guards = &*BLOCKING;
    let mut stream = guards.stream();
    let answer = "The quick brown fox jumps over the lazy dog, and then it rests for a while. ".repeat(40);
    let (mut pushed, mut said) = (0, 0);
    for token in answer.split_inclusive(' ') {
        pushed += token.len();
        for out in stream.push(token) {
            let StreamItem::Text(text) = out else { panic!("a finding in harmless text") };
            said += text.len();
        }
        assert!(pushed - said <= 8, "{} bytes are held back", pushed - said);
    }
}

#[test]
fn what_is_held_back_has_a_bound() {
    let guards = &*BLOCKING;
    let mut stream = guards.stream();
    let (mut pushed, mut said) = (0, 0);
    for _ in 0..100_000 {
        pushed += 1;
        for out in stream.push("x") {
            if let StreamItem::Text(text) = out {
                said += text.len();
            }
        }
        assert!(pushed - said <= 4096, "{} bytes are held back", pushed - said);
    }
}

#[test]
fn no_guard_holds_nothing_back_and_copies_nothing() {
    let guards = Guards::none();
    assert!(guards.is_empty());
    assert_eq!(guards.stream().push("api"), [StreamItem::Text("api".to_owned())]);
    assert!(matches!(guards.check(Side::Input, "a@b.org").text, std::borrow::Cow::Borrowed("a@b.org")));
}
