//! Keys without a fixed prefix, found by their middle part or end.

/// The kind and end of a key that begins at `at`.
pub(super) fn find(text: &[u8], at: usize, reach: usize) -> Option<(&'static str, usize)> {
    let rest = &text[at..reach];
    let kind = match rest[0] {
        b'0'..=b'9' => bot(rest).or_else(|| app(rest)).or_else(|| client(rest)),
        _ => None,
    };
    kind.or_else(|| terraform(rest))
        .or_else(|| azure(rest))
        .or_else(|| mail(rest))
        .or_else(|| pem(rest))
        .map(|(kind, length)| (kind, at + length))
}

type Shape = Option<(&'static str, usize)>;

fn count(text: &[u8], most: usize, is: impl Fn(u8) -> bool) -> usize {
    text.iter().take(most).take_while(|byte| is(**byte)).count()
}

fn url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

fn body(text: &[u8], from: usize, lengths: std::ops::RangeInclusive<usize>, is: impl Fn(u8) -> bool) -> Option<usize> {
    let length = count(text.get(from..)?, lengths.end() + 1, is);
    let digits = text[from..from + length].iter().filter(|byte| byte.is_ascii_digit()).count();
    (lengths.contains(&length) && digits >= 2).then_some(from + length)
}

/// A Telegram bot token: its number, `:A` and 34 characters.
fn bot(text: &[u8]) -> Shape {
    let number = count(text, 17, |byte| byte.is_ascii_digit());
    let sign = text.get(number..number + 2).is_some_and(|sign| sign.eq_ignore_ascii_case(b":a"));
    (number >= 6 && sign).then(|| body(text, number + 2, 34..=34, url)).flatten().map(|end| ("telegram-token", end))
}

/// A Facebook app token: its number, a bar and its secret.
fn app(text: &[u8]) -> Shape {
    let number = count(text, 17, |byte| byte.is_ascii_digit());
    let sign = (15..=16).contains(&number) && matches!(text.get(number), Some(b'|' | b'%'));
    sign.then(|| body(text, number + 1, 26..=40, url)).flatten().map(|end| ("facebook-token", end))
}

/// A Zoho token.
fn client(text: &[u8]) -> Shape {
    let sign = text.starts_with(b"1000.") || text.starts_with(b"1001.");
    let first = sign.then(|| body(text, 5, 32..=32, |byte| byte.is_ascii_hexdigit())).flatten()?;
    (text.get(first) == Some(&b'.'))
        .then(|| body(text, first + 1, 32..=32, |byte| byte.is_ascii_hexdigit()))
        .flatten()
        .map(|end| ("zoho-token", end))
}

/// A Terraform token: 14 characters, `.atlasv1.` and 60 to 70 characters.
fn terraform(text: &[u8]) -> Shape {
    const SIGN: &[u8] = b".atlasv1.";
    let sign = text.get(14..14 + SIGN.len()) == Some(SIGN);
    sign.then(|| body(text, 14 + SIGN.len(), 60..=70, |byte| url(byte) || byte == b'=')).flatten().map(|end| ("hashicorp-token", end))
}

/// An Azure client secret: three characters, a digit, `Q~` and 31 to 34 characters.
fn azure(text: &[u8]) -> Shape {
    let sign = text.get(3).is_some_and(u8::is_ascii_digit) && text.get(4..6) == Some(b"Q~");
    sign.then(|| body(text, 6, 31..=34, |byte| url(byte) || matches!(byte, b'.' | b'~'))).flatten().map(|end| ("azure-secret", end))
}

/// A Mailchimp key: 32 hexadecimal digits and the number of a data centre.
fn mail(text: &[u8]) -> Shape {
    let sign = text.get(32..35) == Some(b"-us") && text.get(35).is_some_and(u8::is_ascii_digit);
    let whole = sign && count(text, 32, |byte| byte.is_ascii_hexdigit()) == 32;
    whole.then(|| ("mailchimp-key", 35 + count(&text[35..], 2, |byte| byte.is_ascii_digit())))
}

/// A private key in base64 without its header, by its first bytes.
fn pem(text: &[u8]) -> Shape {
    let rsa = text.starts_with(b"MII") && matches!(text.get(6..12), Some(b"IBAAKC" | b"IBADAN"));
    let curve = text.starts_with(b"MHcCAQEEI") || text.starts_with(b"MC4CAQAwBQYDK2Vw");
    let length = count(text, 4096, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    ((rsa || curve) && length >= 40).then_some((super::PRIVATE_KEY, length))
}
