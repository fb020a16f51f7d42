//! `calculator`: arithmetic by a parser of its own. Integers stay exact as long as they fit into 128 bits; beyond, and for
//! everything with fractions, results are 64-bit floating point shown with 15 digits.

use std::fmt;

use serde_json::{Value, json};

use super::text;
use crate::outcome::{Outcome, Spec};

const LENGTH: usize = 2000;
const DEPTH: usize = 64;

pub(super) fn spec() -> Spec {
    Spec {
        name: "calculator".to_owned(),
        description: "Evaluates an arithmetic expression exactly where possible. Knows + - * / // (whole quotient) % ^ ! ( ), numbers such as 1e-3, \
                      pi, e, and the functions sqrt cbrt abs sign floor ceil round(x, digits) min max sum mean gcd lcm ln log(x, base) log2 log10 exp sin \
                      cos tan asin acos atan atan2 (radians) deg rad."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": { "expression": { "type": "string", "description": "For example (17.5 + 3) * 2^10 / 3" } },
            "required": ["expression"],
            "additionalProperties": false,
        }),
    }
}

pub(super) fn call(arguments: &Value) -> Outcome {
    match evaluate(text(arguments, "expression")) {
        Ok(number) => Outcome::ok(number.to_string()),
        Err(fault) => Outcome::error(format!("expression: {fault}")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    Whole(i128),
    Real(f64),
}

use Amount::{Real, Whole};

impl Amount {
    #[expect(clippy::cast_precision_loss, reason = "what does not fit into an integer is a float from here on")]
    fn real(self) -> f64 {
        match self {
            Whole(value) => value as f64,
            Real(value) => value,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whole(value) => write!(f, "{value}"),
            Real(value) => {
                // 15 digits are what a float holds for sure: 0.1 + 0.2 is 0.3.
                let rounded: f64 = format!("{value:.14e}").parse().map_err(|_| fmt::Error)?;
                if rounded != 0.0 && !(1e-6..1e15).contains(&rounded.abs()) {
                    write!(f, "{rounded:e}")
                } else {
                    write!(f, "{}", rounded + 0.0)
                }
            }
        }
    }
}

fn evaluate(expression: &str) -> Result<Amount, String> {
    if expression.len() > LENGTH {
        return Err(format!("must have at most {LENGTH} characters"));
    }
    // People write numbers and operators in many ways.
    let plain = expression.replace("**", "^").replace(['×', '·'], "*").replace(['÷', ':'], "/").replace(['−', '–'], "-");
    let mut parser = Parser { text: plain.as_bytes(), at: 0, depth: 0 };
    let amount = parser.sum()?;
    match parser.peek() {
        None => finite(amount),
        Some(_) => Err(parser.fault()),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, token: &str) -> bool {
        self.peek();
        let found = self.text[self.at..].starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }

    fn fault(&mut self) -> String {
        if self.peek().is_none() {
            return "ends too early".to_owned();
        }
        let rest = String::from_utf8_lossy(&self.text[self.at..]).chars().take(20).collect::<String>();
        format!("cannot be read from '{rest}' on, at position {}", self.at + 1)
    }

    fn sum(&mut self) -> Result<Amount, String> {
        let mut left = self.product()?;
        loop {
            if self.take("+") {
                left = exact(left, self.product()?, i128::checked_add, |a, b| a + b)?;
            } else if self.take("-") {
                left = exact(left, self.product()?, i128::checked_sub, |a, b| a - b)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> Result<Amount, String> {
        let mut left = self.signed()?;
        loop {
            if self.take("*") {
                left = exact(left, self.signed()?, i128::checked_mul, |a, b| a * b)?;
            } else if self.take("//") {
                left = whole_quotient(left, self.signed()?)?;
            } else if self.take("/") {
                left = quotient(left, self.signed()?)?;
            } else if self.take("%") {
                left = remainder(left, self.signed()?)?;
            } else {
                return Ok(left);
            }
        }
    }

    /// Binds weaker than powers: -2^2 is -4.
    fn signed(&mut self) -> Result<Amount, String> {
        self.deeper(|parser| {
            if parser.take("-") {
                return Ok(match parser.signed()? {
                    Whole(value) => value.checked_neg().map_or(Real(-Whole(value).real()), Whole),
                    Real(value) => Real(-value),
                });
            }
            if parser.take("+") {
                return parser.signed();
            }
            let base = parser.factorial()?;
            if parser.take("^") { power(base, parser.signed()?) } else { Ok(base) }
        })
    }

    fn factorial(&mut self) -> Result<Amount, String> {
        let mut value = self.atom()?;
        while self.take("!") {
            let Whole(of @ 0..=170) = value else { return Err("! needs a whole number from 0 to 170".to_owned()) };
            value = (2..=of).try_fold(Whole(1), |product, next| exact(product, Whole(next), i128::checked_mul, |a, b| a * b))?;
        }
        Ok(value)
    }

    fn atom(&mut self) -> Result<Amount, String> {
        match self.peek() {
            Some(b'(') => self.deeper(|parser| {
                parser.at += 1;
                let inner = parser.sum()?;
                if parser.take(")") { Ok(inner) } else { Err(parser.fault()) }
            }),
            Some(b'0'..=b'9' | b'.') => self.number(),
            Some(b'a'..=b'z' | b'A'..=b'Z') => self.named(),
            _ => Err(self.fault()),
        }
    }

    fn number(&mut self) -> Result<Amount, String> {
        let start = self.at;
        let digits = |parser: &mut Self| {
            while parser.text.get(parser.at).is_some_and(|byte| byte.is_ascii_digit() || *byte == b'_') {
                parser.at += 1;
            }
        };
        digits(self);
        let mut whole = true;
        if self.text.get(self.at) == Some(&b'.') {
            whole = false;
            self.at += 1;
            digits(self);
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.text.get(self.at + 1), Some(b'+' | b'-')));
            if self.text.get(self.at + 1 + sign).is_some_and(u8::is_ascii_digit) {
                whole = false;
                self.at += 1 + sign;
                digits(self);
            }
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]).replace('_', "");
        if whole && let Ok(value) = text.parse() {
            return Ok(Whole(value));
        }
        text.parse().map(Real).map_err(|_| format!("'{text}' is not a number")).and_then(finite)
    }

    fn named(&mut self) -> Result<Amount, String> {
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_alphanumeric) {
            self.at += 1;
        }
        let name = String::from_utf8_lossy(&self.text[start..self.at]).to_ascii_lowercase();
        if !self.take("(") {
            return match name.as_str() {
                "pi" => Ok(Real(std::f64::consts::PI)),
                "tau" => Ok(Real(std::f64::consts::TAU)),
                "e" => Ok(Real(std::f64::consts::E)),
                _ => Err(format!("'{name}' is not known")),
            };
        }
        let values = self.deeper(|parser| {
            let mut values = vec![parser.sum()?];
            while parser.take(",") {
                values.push(parser.sum()?);
            }
            if parser.take(")") { Ok(values) } else { Err(parser.fault()) }
        })?;
        finite(apply(&name, &values)?)
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth == DEPTH {
            return Err(format!("is nested more than {DEPTH} deep"));
        }
        self.depth += 1;
        let outcome = inner(self);
        self.depth -= 1;
        outcome
    }
}

fn finite(amount: Amount) -> Result<Amount, String> {
    match amount {
        Real(value) if value.is_nan() => Err("has no real result".to_owned()),
        Real(value) if value.is_infinite() => Err("is too big".to_owned()),
        amount => Ok(amount),
    }
}

fn exact(a: Amount, b: Amount, whole: fn(i128, i128) -> Option<i128>, real: fn(f64, f64) -> f64) -> Result<Amount, String> {
    if let (Whole(a), Whole(b)) = (a, b)
        && let Some(result) = whole(a, b)
    {
        return Ok(Whole(result));
    }
    finite(Real(real(a.real(), b.real())))
}

fn nonzero(b: Amount) -> Result<(), String> {
    if b.real() == 0.0 { Err("divides by zero".to_owned()) } else { Ok(()) }
}

fn quotient(a: Amount, b: Amount) -> Result<Amount, String> {
    nonzero(b)?;
    match (a, b) {
        (Whole(a), Whole(b)) if a.checked_rem(b) == Some(0) => Ok(Whole(a / b)),
        _ => finite(Real(a.real() / b.real())),
    }
}

/// Rounded down, as the remainder takes its divisor's sign: a = b × (a // b) + a % b.
fn whole_quotient(a: Amount, b: Amount) -> Result<Amount, String> {
    nonzero(b)?;
    let down = |a: i128, b: i128| Some(a.checked_div(b)? - i128::from(a.checked_rem(b)? != 0 && (a < 0) != (b < 0)));
    exact(a, b, down, |a, b| (a / b).floor())
}

fn remainder(a: Amount, b: Amount) -> Result<Amount, String> {
    nonzero(b)?;
    let down = |a: i128, b: i128| a.checked_rem(b).map(|rest| if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest });
    exact(a, b, down, |a, b| a - b * (a / b).floor())
}

fn power(base: Amount, exponent: Amount) -> Result<Amount, String> {
    if let (Whole(base), Whole(exponent)) = (base, exponent)
        && let Ok(exponent) = u32::try_from(exponent)
        && let Some(result) = base.checked_pow(exponent)
    {
        return Ok(Whole(result));
    }
    if base.real() == 0.0 && exponent.real() < 0.0 {
        return Err("divides by zero".to_owned());
    }
    finite(Real(base.real().powf(exponent.real())))
}

fn apply(name: &str, values: &[Amount]) -> Result<Amount, String> {
    let numbers: Vec<f64> = values.iter().map(|value| value.real()).collect();
    let wrong = |count: &str| format!("{name} takes {count}");
    let one = || if let [x] = numbers[..] { Ok(x) } else { Err(wrong("one number")) };
    let round = |how: fn(f64) -> f64| match values {
        [Whole(value)] => Ok(Whole(*value)),
        [Real(value)] => Ok(whole(how(*value))),
        _ => Err(wrong("one number")),
    };
    Ok(match name {
        "sqrt" => root(values).map_or_else(|| one().map(|x| Real(x.sqrt())), |root| Ok(Whole(root)))?,
        "cbrt" => Real(one()?.cbrt()),
        "abs" => match values {
            [Whole(value)] => value.checked_abs().map_or(Real(Whole(*value).real().abs()), Whole),
            _ => Real(one()?.abs()),
        },
        "sign" => Whole(if one()? > 0.0 { 1 } else { -i128::from(one()? < 0.0) }),
        "floor" => round(f64::floor)?,
        "ceil" => round(f64::ceil)?,
        "trunc" => round(f64::trunc)?,
        "round" => match values {
            [value, Whole(digits @ 0..=15)] => {
                let digits = usize::try_from(*digits).map_err(|_| wrong("0 to 15 digits"))?;
                Real(format!("{:.digits$}", value.real()).parse().map_err(|_| wrong("numbers"))?)
            }
            [_, _] => return Err(wrong("a number and 0 to 15 digits")),
            _ => round(f64::round)?,
        },
        "min" => values.iter().copied().min_by(|a, b| a.real().total_cmp(&b.real())).ok_or_else(|| wrong("numbers"))?,
        "max" => values.iter().copied().max_by(|a, b| a.real().total_cmp(&b.real())).ok_or_else(|| wrong("numbers"))?,
        "sum" => total(values)?,
        "mean" | "avg" => quotient(total(values)?, Whole(i128::try_from(values.len()).map_err(|_| wrong("numbers"))?))?,
        "gcd" | "lcm" => divisors(name, values)?,
        "ln" => Real(one()?.ln()),
        "log2" => Real(one()?.log2()),
        "log10" => Real(one()?.log10()),
        "log" => match numbers[..] {
            [x] => Real(x.log10()),
            [x, base] => Real(x.ln() / base.ln()),
            _ => return Err(wrong("a number and a base; without a base it is 10")),
        },
        "exp" => Real(one()?.exp()),
        "sin" => Real(one()?.sin()),
        "cos" => Real(one()?.cos()),
        "tan" => Real(one()?.tan()),
        "asin" => Real(one()?.asin()),
        "acos" => Real(one()?.acos()),
        "atan" => Real(one()?.atan()),
        "atan2" => match numbers[..] {
            [y, x] => Real(y.atan2(x)),
            _ => return Err(wrong("two numbers")),
        },
        "deg" => Real(one()?.to_degrees()),
        "rad" => Real(one()?.to_radians()),
        _ => return Err(format!("the function '{name}' is not known")),
    })
}

fn total(values: &[Amount]) -> Result<Amount, String> {
    values.iter().try_fold(Whole(0), |sum, value| exact(sum, *value, i128::checked_add, |a, b| a + b))
}

/// A float without fraction becomes an integer where that is exact.
fn whole(value: f64) -> Amount {
    #[expect(clippy::cast_possible_truncation, reason = "within 2^53")]
    if value.abs() <= 9_007_199_254_740_992.0 { Whole(value as i128) } else { Real(value) }
}

fn root(values: &[Amount]) -> Option<i128> {
    let [Whole(value @ 0..)] = values else { return None };
    let root = value.isqrt();
    (root * root == *value).then_some(root)
}

fn divisors(name: &str, values: &[Amount]) -> Result<Amount, String> {
    let mut result: Option<i128> = None;
    for value in values {
        let Whole(next) = value else { return Err(format!("{name} takes whole numbers")) };
        let next = next.checked_abs().ok_or("is too big")?;
        result = Some(match result {
            None => next,
            Some(so_far) => {
                let (mut a, mut b) = (so_far, next);
                while b != 0 {
                    (a, b) = (b, a % b);
                }
                if name == "gcd" {
                    a
                } else if a == 0 {
                    0
                } else {
                    (so_far / a).checked_mul(next).ok_or("is too big")?
                }
            }
        });
    }
    result.map(Whole).ok_or_else(|| format!("{name} takes whole numbers"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arithmetic_is_right() {
        for (expression, expected) in [
            ("1+2*3", "7"),
            ("(1+2)*3", "9"),
            ("-2^2", "-4"),
            ("2^-1", "0.5"),
            ("2^3^2", "512"),
            ("2**10", "1024"),
            ("0.1 + 0.2", "0.3"),
            ("7/2", "3.5"),
            ("6/2", "3"),
            ("-7//2", "-4"),
            ("-7%3", "2"),
            ("7.5 % 2", "1.5"),
            ("1/3", "0.333333333333333"),
            ("1e3", "1000"),
            ("1.5e-7*2", "3e-7"),
            ("2e", "Err"),
            ("123456789012345678901234567890 + 1", "123456789012345678901234567891"),
            ("2^126", "85070591730234615865843651857942052864"),
            ("2^128", "3.40282366920938e38"),
            ("20!", "2432902008176640000"),
            ("170!", "7.25741561530799e306"),
            ("171!", "Err"),
            ("sqrt(144)", "12"),
            ("sqrt(2)", "1.4142135623731"),
            ("sqrt(-1)", "Err"),
            ("round(2.345, 2)", "2.35"),
            ("round(2.5)", "3"),
            ("floor(-2.5)", "-3"),
            ("max(3, 10, 2)", "10"),
            ("mean(1, 2, 3, 4)", "2.5"),
            ("gcd(12, 18) + lcm(4, 6)", "18"),
            ("log(1000)", "3"),
            ("log(8, 2)", "3"),
            ("sin(pi/6)", "0.5"),
            ("deg(pi)", "180"),
            ("3 × 4 ÷ 2 − 1", "5"),
            ("1_000_000 * 3", "3000000"),
            ("1/0", "Err"),
            ("1 // 0", "Err"),
            ("5 % 0", "Err"),
            ("0^-1", "Err"),
            ("10^400", "Err"),
            ("", "Err"),
            ("1 +", "Err"),
            ("(1", "Err"),
            ("1)", "Err"),
            ("1 2", "Err"),
            ("__import__('os')", "Err"),
            ("system(1)", "Err"),
        ] {
            let outcome = evaluate(expression).map(|amount| amount.to_string());
            match expected {
                "Err" => assert!(outcome.is_err(), "{expression}: {outcome:?}"),
                _ => assert_eq!(outcome.as_deref(), Ok(expected), "{expression}"),
            }
        }
    }

    #[test]
    fn depth_and_length_are_limited() {
        let deep = |count: usize| format!("{}1{}", "(".repeat(count), ")".repeat(count));
        assert!(evaluate(&deep(20)).is_ok());
        assert!(evaluate(&deep(900)).unwrap_err().contains("deep"));
        assert!(evaluate(&"-".repeat(1500)).unwrap_err().contains("deep"));
        assert!(evaluate(&"1+".repeat(2000)).unwrap_err().contains("characters"));
        assert!(evaluate(&format!("2{}", "^2".repeat(900))).is_err());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(expression in any::<String>()) {
            let _ = evaluate(&expression);
        }

        #[test]
        fn nothing_that_looks_like_arithmetic_makes_it_panic(expression in "([0-9]{1,40}|[-+*/%^!(),. e]|//|sqrt|gcd|lcm|round|mean|abs|sign){0,40}") {
            let _ = evaluate(&expression);
        }

        #[test]
        fn whole_numbers_are_exact(a in any::<i64>(), b in any::<i64>()) {
            let (a, b) = (i128::from(a), i128::from(b));
            prop_assert_eq!(evaluate(&format!("({a}) + ({b})")), Ok(Whole(a + b)));
            prop_assert_eq!(evaluate(&format!("({a}) * ({b})")), Ok(Whole(a * b)));
            if b != 0 {
                prop_assert_eq!(evaluate(&format!("({b}) * (({a}) // ({b})) + ({a}) % ({b})")), Ok(Whole(a)));
            }
        }
    }
}
