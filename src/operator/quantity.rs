//! Amounts as the API server writes them: `0.25Gi` comes back from it as `256Mi`, and what we want must not look changed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// With the power of ten that each stands for.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// Anything smaller is rounded up to it.
const SMALLEST: i32 = -9;

pub(crate) fn canonical(amounts: &BTreeMap<String, Quantity>) -> BTreeMap<String, Quantity> {
    let written = |amount: &Quantity| Quantity(rewritten(&amount.0).unwrap_or_else(|| amount.0.clone()));
    amounts.iter().map(|(name, amount)| (name.clone(), written(amount))).collect()
}

/// None for what is no amount, or one beyond all sense: the API server has its own words for it.
fn rewritten(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = -i32::try_from(fraction.len()).ok()?;
    if let Some(power) = BINARY.iter().position(|known| *known == suffix) {
        let divisor = 10_i128.checked_pow(places.unsigned_abs())?;
        let scaled = digits.checked_mul(1024_i128.checked_pow(u32::try_from(power + 1).ok()?)?)?;
        return if scaled.abs() < divisor.checked_mul(1024)? {
            decimal(scaled, places, false)
        } else {
            Some(binary(away(scaled, divisor)))
        };
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse().ok());
    let power = exponent.or_else(|| DECIMAL.iter().find(|(known, _)| *known == suffix).map(|(_, power)| *power))?;
    decimal(digits, places.checked_add(power)?, exponent.is_some())
}

/// Divided, and rounded away from nothing.
fn away(number: i128, divisor: i128) -> i128 {
    number / divisor + (number % divisor).signum()
}

fn binary(mut number: i128) -> String {
    let mut power = 0;
    while number % 1024 == 0 && power < BINARY.len() {
        (number, power) = (number / 1024, power + 1);
    }
    let suffix = power.checked_sub(1).map_or("", |at| BINARY[at]);
    format!("{number}{suffix}")
}

/// `digits` times a power of ten.
fn decimal(mut digits: i128, mut power: i32, as_exponent: bool) -> Option<String> {
    if digits == 0 {
        return Some("0".to_owned());
    }
    // Divided by ten this often, any number is zero but for its sign.
    power = power.max(SMALLEST - 40);
    while power < SMALLEST {
        (digits, power) = (away(digits, 10), power + 1);
    }
    while digits % 10 == 0 {
        (digits, power) = (digits / 10, power + 1);
    }
    while power % 3 != 0 || power > 18 {
        (digits, power) = (digits.checked_mul(10)?, power - 1);
    }
    let (suffix, _) = DECIMAL.iter().find(|(_, known)| *known == power)?;
    Some(match (as_exponent, power) {
        (true, 0) => digits.to_string(),
        (true, _) => format!("{digits}e{power}"),
        (false, _) => format!("{digits}{suffix}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_the_api_server_writes_them() {
        for (given, written) in [
            ("0", "0"),
            ("0.05", "50m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("+1.50", "1500m"),
            ("2.0", "2"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("120k", "120k"),
            ("100000k", "100M"),
            ("0.25Gi", "256Mi"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("10E2", "1e3"),
            ("1.5e1", "15"),
            ("0.1n", "1n"),
            ("-1.5", "-1500m"),
            ("170141183460469231731687303715884105727e-45", "171e-9"),
            ("9e-2147483648", "1e-9"),
        ] {
            assert_eq!(rewritten(given).as_deref(), Some(written), "{given}");
            assert_eq!(rewritten(written).as_deref(), Some(written), "{written}");
        }
        for strange in [
            "",
            "Gi",
            "1Xi",
            "1.2.3",
            "1-2",
            "e3",
            "1e",
            "99999999999999999999999999999999999999Ei",
            "0.0000000000000000000000000000000000001Ki",
        ] {
            assert_eq!(rewritten(strange), None, "{strange}");
        }
    }
}
