//! `datetime`: the time in any time zone. The IANA database is part of the binary.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use serde_json::{Value, json};

use super::text;
use crate::clip::line;
use crate::outcome::{Spec, ToolOutcome};

pub(super) fn spec() -> Spec {
    Spec {
        name: "datetime".to_owned(),
        description: "The current date and time, or another moment in another time zone, moved by a duration where one is given."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "timezone": { "type": "string", "description": "An IANA name such as Europe/Berlin. Default UTC." },
                "time": { "type": "string", "description": "Instead of now: an RFC 3339 time such as 2026-03-01T12:00:00Z, or a local time such as 2026-03-01T12:00 or date in the time zone." },
                "add": { "type": "string", "description": "A duration to add, in ISO 8601 (P1DT2H, -P3W) or in words (2 days 3 hours)." },
            },
            "required": [],
            "additionalProperties": false,
        }),
    }
}

pub(super) fn call(arguments: &Value, now: Timestamp) -> ToolOutcome {
    match moment(arguments, now) {
        Ok(moment) => ToolOutcome::ok(describe(&moment)),
        Err(fault) => ToolOutcome::error(fault),
    }
}

fn moment(arguments: &Value, now: Timestamp) -> Result<Zoned, String> {
    let (zone, time, add) = (text(arguments, "timezone").trim(), text(arguments, "time").trim(), text(arguments, "add").trim());
    let zone = match zone {
        "" => TimeZone::UTC,
        name => {
            TimeZone::get(name).map_err(|_| format!("timezone: '{}' is not an IANA time zone such as Europe/Berlin", line(name, 100)))?
        }
    };
    let moment = if time.is_empty() {
        now.to_zoned(zone)
    } else if let Ok(moment) = time.parse::<Timestamp>() {
        moment.to_zoned(zone)
    } else {
        let fault = |_| format!("time: '{}' is not a time such as 2026-03-01T12:00:00Z or 2026-03-01", line(time, 100));
        time.parse::<jiff::civil::DateTime>().and_then(|local| local.to_zoned(zone)).map_err(fault)?
    };
    if add.is_empty() {
        return Ok(moment);
    }
    let span: Span = add.parse().map_err(|_| format!("add: '{}' is not a duration such as P1DT2H or 2 days", line(add, 100)))?;
    moment.checked_add(span).map_err(|_| "add: leads beyond the years that are known".to_owned())
}

fn describe(moment: &Zoned) -> String {
    let weekday = match moment.weekday() {
        Weekday::Monday => "Monday",
        Weekday::Tuesday => "Tuesday",
        Weekday::Wednesday => "Wednesday",
        Weekday::Thursday => "Thursday",
        Weekday::Friday => "Friday",
        Weekday::Saturday => "Saturday",
        Weekday::Sunday => "Sunday",
    };
    let week = moment.date().iso_week_date();
    let zone = moment.time_zone().iana_name().unwrap_or("UTC");
    format!(
        "{}\n{weekday}, ISO week {}-W{:02}, day {} of the year; time zone {zone}; Unix time {}",
        moment.strftime("%Y-%m-%dT%H:%M:%S%:z"),
        week.year(),
        week.week(),
        moment.day_of_year(),
        moment.timestamp().as_second(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_shown_in_any_zone() {
        let now: Timestamp = "2026-11-21T07:30:15.5Z".parse().unwrap();
        for (arguments, expected) in [
            (json!({}), "2026-11-21T07:30:15+00:00\nSaturday, ISO week 2026-W47, day 325 of the year; time zone UTC; Unix time 1795246215"),
            (
                json!({"timezone": "Europe/Berlin"}),
                "2026-11-21T08:30:15+01:00\nSaturday, ISO week 2026-W47, day 325 of the year; time zone Europe/Berlin; Unix time 1795246215",
            ),
            (json!({"timezone": "asia/kolkata"}), "2026-11-21T13:00:15+05:30\nSaturday"),
            (json!({"timezone": "America/New_York", "time": "2026-07-01T12:00:00Z"}), "2026-07-01T08:00:00-04:00\nWednesday"),
            (json!({"timezone": "America/New_York", "time": "2026-07-01T12:00"}), "2026-07-01T12:00:00-04:00\nWednesday"),
            (json!({"time": "2027-01-01"}), "2027-01-01T00:00:00+00:00\nFriday, ISO week 2026-W53"),
            (json!({"add": "P1D"}), "2026-11-22T07:30:15+00:00\nSunday"),
            (json!({"add": "-2 weeks"}), "2026-11-07T07:30:15+00:00\nSaturday"),
            // Clocks in Berlin go back on that night: a day later is the same time of day, 25 hours on.
            (json!({"timezone": "Europe/Berlin", "time": "2026-10-24T12:00", "add": "1 day"}), "2026-10-25T12:00:00+01:00"),
        ] {
            let outcome = call(&arguments, now);
            assert!(!outcome.is_error && outcome.content.starts_with(expected), "{arguments}: {}", outcome.content);
        }
        for (arguments, expected) in [
            (json!({"timezone": "Mars/Olympus"}), "timezone: 'Mars/Olympus' is not"),
            (json!({"time": "tomorrow"}), "time: 'tomorrow' is not"),
            (json!({"add": "soon"}), "add: 'soon' is not"),
            (json!({"add": "19000 years"}), "add: leads beyond"),
        ] {
            let outcome = call(&arguments, now);
            assert!(outcome.is_error && outcome.content.starts_with(expected), "{arguments}: {}", outcome.content);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_an_error(
            zone in "|UTC|Europe/Berlin|\\.\\./[a-z]{0,5}|[A-Z]{3}[+-][0-9]{1,2}|\\PC{0,12}",
            time in "|-?[0-9]{1,6}-[0-9]{1,2}-[0-9]{1,2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?(\\[[A-Za-z/]{0,15}\\])?|\\PC{0,20}",
            add in "|-?P([0-9]{1,20}[YMWD]){0,3}(T([0-9]{1,20}[HMS]){0,3})?|-?[0-9]{1,20} (years|months|weeks|days|hours|s|ns)( ago)?|\\PC{0,20}",
            now in prop_oneof![any::<i64>().prop_map(|second| second % 253_402_207_201), Just(253_402_207_200), Just(-377_705_023_201)],
        ) {
            let outcome = call(&json!({"timezone": zone, "time": time, "add": add}), Timestamp::from_second(now).unwrap_or_default());
            let field = ["timezone: ", "time: ", "add: "].iter().any(|field| outcome.content.starts_with(field));
            prop_assert_eq!(outcome.is_error, field, "{}", outcome.content);
        }
    }
}
