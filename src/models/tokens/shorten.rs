//! Shortens a tool's result by leaving out its middle. A mark says how much is missing, so that the model requests a smaller
//! part.

const MARK_START: &str = "\n[cut here: ";
const MARK_END: &str = " bytes left out, for want of room; ask for a smaller part]\n";

/// `text` in at most `most` tokens, or the mark alone if that is longer. The mark includes earlier omissions.
pub(super) fn shorten(text: &str, most: u64, count: impl Fn(&str) -> u64) -> String {
    let (head, gone, tail) = parts(text);
    let whole = head.len() + tail.len();
    // Starts with a proportional number of bytes, and shrinks it if that is too much.
    let share = u128::from(most) * text.len() as u128 / u128::from(count(text).max(1));
    let mut kept = usize::try_from(share).unwrap_or(usize::MAX).min(whole);
    loop {
        let first = &head[..head.floor_char_boundary(kept - kept / 3)];
        let rest = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(kept / 3))..];
        let left_out = gone.saturating_add(whole - first.len() - rest.len());
        let short = format!("{first}{MARK_START}{left_out}{MARK_END}{rest}");
        if kept == 0 || count(&short) <= most {
            return short;
        }
        kept = kept * 7 / 8;
    }
}

/// The text before and after an earlier mark, and the bytes in the mark; without one, two thirds and the rest.
fn parts(text: &str) -> (&str, usize, &str) {
    let marked = text.split_once(MARK_START).and_then(|(head, after)| {
        let (number, tail) = after.split_once(MARK_END)?;
        Some((head, number.parse().ok()?, tail))
    });
    marked.unwrap_or_else(|| {
        let (head, tail) = text.split_at(text.floor_char_boundary(text.len() - text.len() / 3));
        (head, 0, tail)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> u64 {
        text.split(' ').count() as u64
    }

    #[test]
    fn beginning_and_end_stay_and_what_is_missing_is_said() {
        let text: String = (0..1000).flat_map(|number| [number.to_string(), " ".to_owned()]).collect();
        let short = shorten(&text, 100, words);
        assert!(short.starts_with("0 1 2 ") && short.ends_with(" 998 999 "), "{short}");
        assert!((80..=100).contains(&words(&short)), "{short}");
        let (head, gone, tail) = parts(&short);
        assert_eq!(head.len() + gone + tail.len(), text.len());
        assert!(text.starts_with(head) && text.ends_with(tail));
    }

    proptest! {
        #[test]
        fn cut_again_the_mark_tells_of_all_that_is_missing(text in "\\PC{100,600}", first in 40_u64..90, second in 20_u64..40) {
            let characters = |text: &str| text.chars().count() as u64 / 2;
            let once = shorten(&text, first + 30, characters);
            let twice = shorten(&once, second + 30, characters);
            prop_assert_eq!(twice.matches(MARK_START).count(), 1);
            let (head, gone, tail) = parts(&twice);
            prop_assert_eq!(head.len() + gone + tail.len(), text.len());
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            prop_assert!(characters(&twice) <= second + 30 || (head.is_empty() && tail.is_empty()));
        }
    }
}
