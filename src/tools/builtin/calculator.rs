//! `calculator`: arithmetic in 64-bit floating point. Whole numbers up to 2^53 are exact, other results have 15 digits.

use serde_json::{Value, json};

use super::text;
use crate::outcome::{Spec, ToolOutcome};

const MAX_BYTES: usize = 2000;
const MAX_DEPTH: usize = 64;
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

pub(super) fn spec() -> Spec {
    Spec {
        name: "calculator".to_owned(),
        description: "Evaluates an arithmetic expression. Knows + - * / // (whole quotient) % ^ ! ( ), numbers such as 1e-3, \
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

pub(super) fn call(arguments: &Value) -> ToolOutcome {
    match evaluate(text(arguments, "expression")) {
        Ok(value) => ToolOutcome::ok(shown(value)),
        Err(fault) => ToolOutcome::error(format!("expression: {fault}")),
    }
}

fn shown(value: f64) -> String {
    // A float is exact to 15 digits: 0.1 + 0.2 is 0.3.
    let rounded: f64 = format!("{value:.14e}").parse().unwrap_or(value);
    let exact = value.abs() <= MAX_EXACT || (value.abs() < 1e21 && rounded.total_cmp(&value).is_eq());
    if value.fract() == 0.0 && exact {
        format!("{:.0}", value + 0.0)
    } else if (1e-6..1e15).contains(&rounded.abs()) {
        rounded.to_string()
    } else {
        format!("{rounded:e}")
    }
}

fn evaluate(expression: &str) -> Result<f64, String> {
    if expression.len() > MAX_BYTES {
        return Err(format!("must have at most {MAX_BYTES} characters"));
    }
    let plain = expression.replace("**", "^").replace(['×', '·'], "*").replace(['÷', ':'], "/").replace(['−', '–'], "-");
    let mut parser = Parser { text: plain.as_bytes(), at: 0, depth: 0 };
    let value = parser.sum()?;
    if parser.peek().is_none() { Ok(value) } else { Err(parser.fault()) }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<u8> {
        self.skip(u8::is_ascii_whitespace);
        self.text.get(self.at).copied()
    }

    /// Skips and returns the bytes that satisfy `of`.
    fn skip(&mut self, of: fn(&u8) -> bool) -> &[u8] {
        let start = self.at;
        self.at += self.text[start..].iter().take_while(|byte| of(byte)).count();
        &self.text[start..self.at]
    }

    fn take(&mut self, token: &str) -> bool {
        self.peek();
        let found = self.text[self.at..].starts_with(token.as_bytes());
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn fault(&mut self) -> String {
        if self.peek().is_none() {
            return "ends too early".to_owned();
        }
        let rest: String = String::from_utf8_lossy(&self.text[self.at..]).chars().take(20).collect();
        format!("cannot be read from '{rest}' on, at position {}", self.at + 1)
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut left = self.product()?;
        loop {
            left = if self.take("+") {
                finite(left + self.product()?)?
            } else if self.take("-") {
                finite(left - self.product()?)?
            } else {
                return Ok(left);
            };
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut left = self.signed()?;
        loop {
            left = if self.take("*") {
                finite(left * self.signed()?)?
            } else if self.take("//") {
                finite((left / nonzero(self.signed()?)?).floor())?
            } else if self.take("/") {
                finite(left / nonzero(self.signed()?)?)?
            } else if self.take("%") {
                remainder(left, nonzero(self.signed()?)?)
            } else {
                return Ok(left);
            };
        }
    }

    /// A sign binds weaker than a power: -2^2 is -4.
    fn signed(&mut self) -> Result<f64, String> {
        self.nested(|parser| {
            if parser.take("-") {
                return Ok(-parser.signed()?);
            }
            if parser.take("+") {
                return parser.signed();
            }
            let mut base = parser.atom()?;
            while parser.take("!") {
                base = factorial(base)?;
            }
            if !parser.take("^") {
                return Ok(base);
            }
            let exponent = parser.signed()?;
            finite(if exponent < 0.0 { nonzero(base)? } else { base }.powf(exponent))
        })
    }

    fn atom(&mut self) -> Result<f64, String> {
        match self.peek() {
            Some(b'(') => match self.list()?[..] {
                [value] => Ok(value),
                _ => Err("has a comma outside of a function".to_owned()),
            },
            Some(b'0'..=b'9' | b'.') => self.number(),
            Some(b'a'..=b'z' | b'A'..=b'Z') => {
                let name = String::from_utf8_lossy(self.skip(u8::is_ascii_alphanumeric)).to_ascii_lowercase();
                match (name.as_str(), self.peek()) {
                    (name, Some(b'(')) => finite(apply(name, &self.list()?)?),
                    ("pi", _) => Ok(std::f64::consts::PI),
                    ("tau", _) => Ok(std::f64::consts::TAU),
                    ("e", _) => Ok(std::f64::consts::E),
                    (name, _) => Err(format!("'{name}' is not known")),
                }
            }
            _ => Err(self.fault()),
        }
    }

    /// Parses a list of numbers in brackets, at the opening one.
    fn list(&mut self) -> Result<Vec<f64>, String> {
        self.nested(|parser| {
            parser.at += 1;
            let mut values = vec![parser.sum()?];
            while parser.take(",") {
                values.push(parser.sum()?);
            }
            if parser.take(")") { Ok(values) } else { Err(parser.fault()) }
        })
    }

    fn number(&mut self) -> Result<f64, String> {
        let start = self.at;
        let digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
        self.skip(digit);
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.skip(digit);
        }
        if let [b'e' | b'E', b'0'..=b'9', ..] | [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] = self.text[self.at..] {
            self.at += 2;
            self.skip(digit);
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]).replace('_', "");
        text.parse().map_err(|_| format!("'{text}' is not a number")).and_then(finite)
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let outcome = inner(self);
        self.depth -= 1;
        outcome
    }
}

fn finite(value: f64) -> Result<f64, String> {
    match value {
        value if value.is_nan() => Err("has no real result".to_owned()),
        value if value.is_infinite() => Err("is too big".to_owned()),
        value => Ok(value),
    }
}

fn nonzero(value: f64) -> Result<f64, String> {
    if value == 0.0 { Err("divides by zero".to_owned()) } else { Ok(value) }
}

/// The remainder with the sign of the divisor: a = b × (a // b) + a % b.
fn remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

fn factorial(of: f64) -> Result<f64, String> {
    if of.fract() != 0.0 || !(0.0..=170.0).contains(&of) {
        return Err("! needs a whole number from 0 to 170".to_owned());
    }
    Ok((2_u8..=170).map(f64::from).take_while(|next| *next <= of).product())
}

fn apply(name: &str, values: &[f64]) -> Result<f64, String> {
    Ok(match (name, values) {
        ("sqrt", [x]) => x.sqrt(),
        ("cbrt", [x]) => x.cbrt(),
        ("abs", [x]) => x.abs(),
        ("sign", [x]) => f64::from(i8::from(*x > 0.0) - i8::from(*x < 0.0)),
        ("floor", [x]) => x.floor(),
        ("ceil", [x]) => x.ceil(),
        ("trunc", [x]) => x.trunc(),
        ("round", [x]) => x.round(),
        ("round", [x, digits]) => {
            let digits = (0_u8..=15).find(|count| f64::from(*count).total_cmp(digits).is_eq()).ok_or("round takes 0 to 15 digits")?;
            format!("{x:.0$}", usize::from(digits)).parse().unwrap_or(*x)
        }
        ("min", values) => values.iter().copied().fold(f64::INFINITY, f64::min),
        ("max", values) => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ("sum", values) => values.iter().sum(),
        ("mean" | "avg", values) => values.iter().sum::<f64>() / values.iter().map(|_| 1.0).sum::<f64>(),
        ("gcd" | "lcm", values) => divisors(name, values)?,
        ("ln", [x]) => x.ln(),
        ("log2", [x]) => x.log2(),
        ("log" | "log10", [x]) => x.log10(),
        ("log", [x, base]) => x.ln() / base.ln(),
        ("exp", [x]) => x.exp(),
        ("sin", [x]) => x.sin(),
        ("cos", [x]) => x.cos(),
        ("tan", [x]) => x.tan(),
        ("asin", [x]) => x.asin(),
        ("acos", [x]) => x.acos(),
        ("atan", [x]) => x.atan(),
        ("atan2", [y, x]) => y.atan2(*x),
        ("deg", [x]) => x.to_degrees(),
        ("rad", [x]) => x.to_radians(),
        (name, values) => return Err(format!("the function '{name}' is not known, or does not take {} numbers", values.len())),
    })
}

fn divisors(name: &str, values: &[f64]) -> Result<f64, String> {
    if values.iter().any(|value| value.fract() != 0.0 || value.abs() > MAX_EXACT) {
        return Err(format!("{name} takes whole numbers up to 2^53"));
    }
    let both = |a: f64, b: f64| {
        let (mut divisor, mut rest) = (a, b);
        while rest != 0.0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        if name == "gcd" || divisor == 0.0 { divisor } else { a / divisor * b }
    };
    let result = values.iter().map(|value| value.abs()).reduce(both).unwrap_or_default();
    if result > MAX_EXACT { Err("is too big".to_owned()) } else { Ok(result) }
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
            ("123456789012345678901234567890 + 1", "1.23456789012346e29"),
            ("2^53 - 1", "9007199254740991"),
            ("2^126", "8.50705917302346e37"),
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
            let outcome = evaluate(expression).map(shown);
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
        fn whole_numbers_are_exact(a in -(1_i64 << 51)..1 << 51, b in -(1_i64 << 51)..1 << 51, c in -2047_i64..2048) {
            let exact = |expression: String| evaluate(&expression).map(shown);
            prop_assert_eq!(exact(format!("({a}) + ({b})")), Ok((a + b).to_string()));
            prop_assert_eq!(exact(format!("({}) * ({c})", a / 2048)), Ok((a / 2048 * c).to_string()));
            for by in [b, c] {
                if by != 0 {
                    prop_assert_eq!(exact(format!("({by}) * (({a}) // ({by})) + ({a}) % ({by})")), Ok(a.to_string()));
                }
            }
        }
    }
}
