//! Trace and span ids, and the W3C headers `traceparent` and `tracestate` that carry them from service to service. A
//! malformed header counts as absent, as the recommendation demands: a new trace begins.

use std::fmt;

use crate::ids;

/// A longer `tracestate` is cut; the recommendation asks for at least this.
const MAX_STATE_BYTES: usize = 512;
const MAX_MEMBERS: usize = 32;
const SAMPLED: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TraceId(pub(super) [u8; 16]);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpanId(pub(super) [u8; 8]);

/// The span of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) sampled: bool,
}

impl TraceId {
    pub(super) fn random() -> Option<Self> {
        random().map(Self)
    }

    /// The 128 bits of an id such as `tr_01ARZ3NDEKTSV4RRFFQ69G5FAV`, so that each id follows from the other. The lower 80 bits of a ULID are random, which is what samplers look at.
    pub(super) fn of_ulid(id: &str) -> Option<Self> {
        let text = id.split_once('_').map_or(id, |(_, ulid)| ulid);
        if text.len() != 26 || text.as_bytes()[0] > b'7' {
            return None;
        }
        let bits = text.bytes().try_fold(0_u128, |bits, byte| {
            let digit = "0123456789ABCDEFGHJKMNPQRSTVWXYZ".find(char::from(byte))?;
            Some(bits << 5 | digit as u128)
        })?;
        (bits != 0).then_some(Self(bits.to_be_bytes()))
    }
}

impl SpanId {
    pub(super) fn random() -> Option<Self> {
        random().map(Self)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// All zero is no valid id.
fn random<const N: usize>() -> Option<[u8; N]> {
    ids::random().ok().filter(|bytes| *bytes != [0; N])
}

/// Reads a `traceparent`. Versions to come are read by the fields they share with version 00.
pub(super) fn parent(header: &str) -> Option<Parent> {
    let header = header.trim_matches([' ', '\t']);
    let mut fields = header.splitn(5, '-');
    let [version] = lower_hex::<1>(fields.next()?)?;
    let trace = lower_hex(fields.next()?)?;
    let span = lower_hex(fields.next()?)?;
    let [flags] = lower_hex::<1>(fields.next()?)?;
    let more = fields.next().is_some();
    if version == 0xff || (version == 0 && more) || trace == [0; 16] || span == [0; 8] {
        return None;
    }
    Some(Parent { trace: TraceId(trace), span: SpanId(span), sampled: flags & SAMPLED != 0 })
}

/// Exactly `N` bytes in lower-case hexadecimal: upper case is malformed here.
fn lower_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

pub(super) fn traceparent(trace: TraceId, span: SpanId, sampled: bool) -> String {
    format!("00-{trace}-{span}-{:02x}", if sampled { SAMPLED } else { 0 })
}

/// A `tracestate` that is worth carrying on: members `key=value`, none twice, within the limits.
pub(super) fn state(header: &str) -> Option<String> {
    let members: Vec<_> = header.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty()).collect();
    let mut keys: Vec<_> =
        members.iter().map(|member| member.split_once('=').filter(|(key, value)| is_key(key) && is_value(value))).collect();
    if members.is_empty() || members.len() > MAX_MEMBERS || keys.contains(&None) {
        return None;
    }
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0].map(|(key, _)| key) == pair[1].map(|(key, _)| key)) {
        return None;
    }
    let state = members.join(",");
    (state.len() <= MAX_STATE_BYTES).then_some(state)
}

fn is_key(key: &str) -> bool {
    let fit = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    (1..=256).contains(&key.len())
        && key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && key.bytes().all(fit)
}

fn is_value(value: &str) -> bool {
    value.len() <= 256 && !value.is_empty() && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_traceparent_is_read_or_counts_as_absent() {
        for (header, sampled) in [
            (format!("00-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-00"), Some(false)),
            // Only the lowest flag means "sampled"; the others may be anything.
            (format!("00-{TRACE}-{SPAN}-03"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-fe"), Some(false)),
            (format!(" 00-{TRACE}-{SPAN}-01\t"), Some(true)),
            // Versions to come may append fields, version 00 may not, version ff is none.
            (format!("cc-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("cc-{TRACE}-{SPAN}-01-what-comes"), Some(true)),
            (format!("cc-{TRACE}-{SPAN}-01.what"), None),
            (format!("00-{TRACE}-{SPAN}-01-"), None),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{TRACE}-{}-01", SPAN.to_uppercase()), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", &TRACE[1..]), None),
            (format!("00-{TRACE}0-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("00-{TRACE}-{SPAN}-0x"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("0-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-é0f067aa0ba902b-01"), None),
            (format!("00_{TRACE}_{SPAN}_01"), None),
            ("-".repeat(55), None),
            (String::new(), None),
        ] {
            assert_eq!(parent(&header).map(|parent| parent.sampled), sampled, "{header:?}");
        }
        let read = parent(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!((read.trace.to_string().as_str(), read.span.to_string().as_str()), (TRACE, SPAN));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for sampled in [true, false] {
            let (trace, span) = (TraceId::random().unwrap(), SpanId::random().unwrap());
            assert_eq!(parent(&traceparent(trace, span, sampled)), Some(Parent { trace, span, sampled }));
        }
    }

    #[test]
    fn a_tracestate_is_carried_on_only_when_it_is_well_formed() {
        let many = |count: usize| (0..count).map(|number| format!("k{number}=v")).collect::<Vec<_>>().join(",");
        for (header, carried) in [
            ("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7", Some("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7")),
            ("a=1 , b=2,\t,c=3", Some("a=1,b=2,c=3")),
            ("tenant@system=x/y z", Some("tenant@system=x/y z")),
            ("1a=b", Some("1a=b")),
            ("", None),
            (",,", None),
            ("a", None),
            ("a=", None),
            ("=b", None),
            ("A=b", None),
            ("a=b=c", None),
            ("a=é", None),
            ("a=1,a=2", None),
            ("a=1\r\nx: y", None),
            (&many(32), Some(&many(32))),
            (&many(33), None),
            (&format!("a={},b={0},c={0}", "x".repeat(200)), None),
        ] {
            assert_eq!(state(header).as_deref(), carried, "{header:?}");
        }
    }

    #[test]
    fn ids_do_not_repeat() {
        let mut spans: Vec<_> = (0..1000).map(|_| SpanId::random().unwrap().0).collect();
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), 1000);
    }

    #[test]
    fn a_ulid_and_a_trace_id_are_the_same_bits() {
        // The bits are those that the `ulid` packages of other languages print for this text.
        let known = TraceId::of_ulid("tr_01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
        assert_eq!(known.to_string(), "01563e3ab5d3d6764c61efb99302bd5b");
        for other in ["tr_", "tr_81ARZ3NDEKTSV4RRFFQ69G5FAV", "tr_01ARZ3NDEKTSV4RRFFQ69G5FAU", "tr_00000000000000000000000000", "é"] {
            assert_eq!(TraceId::of_ulid(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_traceparent_that_is_read_is_as_the_recommendation_writes_it(
            trace: u128, span: u64, flags: u8, version: u8, tail in "(-[a-z0-9]{0,3})?", edit in prop::option::of((any::<prop::sample::Index>(), "[0-9a-fA-FgG -]|é")),
        ) {
            let mut header = format!("{version:02x}-{trace:032x}-{span:016x}-{flags:02x}{tail}");
            if let Some((at, letter)) = &edit {
                let at = at.index(header.len());
                header.replace_range(at..=at, letter);
            }
            // By place, not by taking apart.
            let bytes = header.trim_matches([' ', '\t']).as_bytes();
            let field = |from: usize, to: usize| bytes.get(from..to).filter(|hex| hex.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
            let dashes = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-')) && matches!(bytes.get(55), None | Some(b'-'));
            let fields = [field(0, 2), field(3, 35), field(36, 52), field(53, 55)];
            let zero = |field: Option<&[u8]>| field.is_some_and(|hex| hex.iter().all(|byte| *byte == b'0'));
            let good = dashes && fields.iter().all(Option::is_some) && !zero(fields[1]) && !zero(fields[2])
                && fields[0] != Some(b"ff") && (fields[0] != Some(b"00") || bytes.len() == 55);
            let read = parent(&header);
            prop_assert_eq!(read.is_some(), good, "{:?}", header);
            if let Some(Parent { trace, span, sampled }) = read {
                let (told, within) = (trace.to_string(), span.to_string());
                prop_assert_eq!((Some(told.as_bytes()), Some(within.as_bytes())), (fields[1], fields[2]));
                prop_assert_eq!(parent(&traceparent(trace, span, sampled)), read);
            }
        }

        #[test]
        fn a_tracestate_that_is_carried_on_is_one_header_and_its_own(text in "([a-z0-9_@*/-]{1,4}=[ -~]{0,4},? ?){0,6}|\\PC{0,30}|[ -~\r\n\t]{0,30}") {
            if let Some(carried) = state(&text) {
                prop_assert!(carried.len() <= MAX_STATE_BYTES && carried.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{:?}", carried);
                prop_assert_eq!(state(&carried), Some(carried.clone()));
            }
        }

        #[test]
        fn a_ulid_is_read_as_its_library_writes_it(milliseconds in 0_u64..1 << 48, random: u128, odd in "(tr_)?\\PC{0,30}") {
            let ulid = slipway_http::ulid(std::time::UNIX_EPOCH + std::time::Duration::from_millis(milliseconds), random);
            let expected = (ulid.0 != 0).then_some(TraceId(ulid.0.to_be_bytes()));
            prop_assert_eq!(TraceId::of_ulid(&format!("tr_{ulid}")), expected);
            let _ = TraceId::of_ulid(&odd);
        }
    }
}
