//! The claims of a verified token: validity, user name, groups and team.

use serde_json::{Map, Value};

use super::Oidc;
use crate::access::Caller;

/// The tolerated clock skew, in seconds.
const CLOCK_SKEW_SECONDS: f64 = 30.0;

/// The claim that limits a token to a team.
const TEAM_CLAIM: &str = "team_id";

/// The group of all authenticated users, which the API server adds as well.
const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// The caller, and the expiry in seconds since 1970. The error completes: the token is not valid: ….
pub(super) fn caller(oidc: &Oidc, claims: &Map<String, Value>, now: f64) -> Result<(Caller, f64), String> {
    if text(claims, "iss")? != Some(&oidc.issuer) {
        return Err("another has issued it".to_owned());
    }
    if !strings(claims, "aud")?.contains(&oidc.audience) {
        return Err(format!("it is not meant for {}", oidc.audience));
    }
    let end = moment(claims, "exp")?.ok_or("it has no exp")? + CLOCK_SKEW_SECONDS;
    if end <= now {
        return Err("it has expired".to_owned());
    }
    for begin in ["nbf", "iat"] {
        if moment(claims, begin)?.is_some_and(|begin| begin - CLOCK_SKEW_SECONDS > now) {
            return Err(format!("it holds from a later moment on ({begin})"));
        }
    }
    let claim = &oidc.username_claim;
    let named = text(claims, claim)?.filter(|name| !name.is_empty()).ok_or_else(|| format!("it has no claim {claim}"))?;
    if claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != Value::Bool(true)) {
        return Err("its e-mail address has not been verified".to_owned());
    }
    let name = own(format!("{}{named}", oidc.prefix()))?;
    let mut groups = Vec::new();
    if let Some(claim) = &oidc.groups_claim {
        for group in strings(claims, claim)? {
            groups.push(own(format!("{}{group}", oidc.groups_prefix))?);
        }
    }
    groups.push(AUTHENTICATED_GROUP.to_owned());
    let team = text(claims, TEAM_CLAIM)?.filter(|team| !team.is_empty()).map(str::to_owned);
    Ok((Caller { name, groups, team, ..Caller::default() }, end))
}

/// Refuses names with the prefix `system:`, which belong to the cluster: `system:masters` may do everything.
fn own(name: String) -> Result<String, String> {
    if name.starts_with("system:") {
        Err(format!("it names {name:?}, but names that begin with system: are the cluster's own"))
    } else {
        Ok(name)
    }
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("its claim {name} is no string")),
    }
}

/// A claim that is a string or a list of strings.
fn strings(claims: &Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("its claim {name} is neither a string nor a list of strings");
    match claims.get(name) {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(many)) => many.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

/// A time, in seconds since 1970.
fn moment(claims: &Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    claims.get(name).map(|moment| moment.as_f64().ok_or_else(|| format!("its claim {name} is no number"))).transpose()
}
