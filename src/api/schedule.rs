//! Schedules as cron writes them: minute, hour, day of the month, month and day of the week, in UTC.

use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use thiserror::Error;

/// February 29th comes again after eight years at most.
const MAX_DAYS: usize = 8 * 366;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// What is wrong with a schedule.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
    #[error("has {0} fields; a schedule has five: minute, hour, day of the month, month and day of the week, for example 0 3 * * *")]
    Fields(usize),
    #[error("{field}: {text:?} is not a number of {least} to {most}, a range such as 1-5, a step such as */15, or a list of these")]
    Malformed { field: &'static str, text: String, least: u8, most: u8 },
    #[error("no day of any year fits it")]
    Never,
}

/// Times of a day and the days on which they hold. Each number is a bit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day has to fit both day fields: one of them begins with `*`. Else one suffices, as cron has it.
    needs_both: bool,
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else { return Err(ScheduleError::Fields(fields.len())) };
        let weekday_bits = bits("day of the week", weekdays, 0, 7, &WEEKDAYS)?;
        let schedule = Self {
            minutes: bits("minute", minutes, 0, 59, &[])?,
            hours: bits("hour", hours, 0, 23, &[])?,
            days: bits("day of the month", days, 1, 31, &[])?,
            months: bits("month", months, 1, 12, &MONTHS)?,
            // Seven is Sunday too.
            weekdays: weekday_bits | ((weekday_bits >> 7) & 1),
            needs_both: days.starts_with('*') || weekdays.starts_with('*'),
        };
        // Any leap year has every day of the month; with days of the week it may take a few years.
        if schedule.next_after(Timestamp::UNIX_EPOCH).is_none() { Err(ScheduleError::Never) } else { Ok(schedule) }
    }
}

impl Schedule {
    /// Whether it holds at the minute that begins then.
    pub fn holds_at(&self, time: Timestamp) -> bool {
        let time = time.to_zoned(TimeZone::UTC).datetime();
        self.holds_on(time.date())
            && has(self.hours, time.hour())
            && has(self.minutes, time.minute())
            && time.second() == 0
            && time.subsec_nanosecond() == 0
    }

    /// The first time after this one.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let from = after.to_zoned(TimeZone::UTC).datetime();
        let mut date = from.date();
        for day in 0..=MAX_DAYS {
            if self.holds_on(date)
                && let Some(time) = self.first_on(date, (day == 0).then(|| from.time()))
            {
                return time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }

    fn holds_on(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        has(self.months, date.month()) && if self.needs_both { day && weekday } else { day || weekday }
    }

    /// The first time of a day that is after `after`.
    fn first_on(&self, date: Date, after: Option<Time>) -> Option<DateTime> {
        for hour in (0..24).filter(|hour| has(self.hours, *hour)) {
            let begins = |minute: i8| Time::new(hour, minute, 0, 0).ok();
            let mut times = (0..60).filter(|minute| has(self.minutes, *minute)).filter_map(begins);
            let found = times.find(|time| after.is_none_or(|after| *time > after));
            if let Some(time) = found {
                return Some(date.to_datetime(time));
            }
        }
        None
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| (bits >> number) & 1 == 1)
}

/// The numbers of a field. The names stand for its numbers in order, the first for the least.
fn bits(field: &'static str, text: &str, least: u8, most: u8, names: &[&str]) -> Result<u64, ScheduleError> {
    let malformed = || ScheduleError::Malformed { field, text: text.to_owned(), least, most };
    let number = |word: &str| {
        let spelled = names.iter().position(|name| word.eq_ignore_ascii_case(name)).and_then(|at| u8::try_from(at).ok());
        let plain = || Some(word).filter(|word| word.bytes().all(|byte| byte.is_ascii_digit())).and_then(|word| word.parse().ok());
        spelled.map(|at| at + least).or_else(plain).filter(|number| (least..=most).contains(number))
    };
    let mut all = 0_u64;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u8>().ok().filter(|step| *step > 0).ok_or_else(malformed)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((from, to)) => (number(from).ok_or_else(malformed)?, number(to).ok_or_else(malformed)?),
            None => {
                let from = number(range).ok_or_else(malformed)?;
                (from, if step.is_some() { most } else { from })
            }
        };
        if from > to {
            return Err(malformed());
        }
        all |= (from..=to).step_by(usize::from(step.unwrap_or(1))).fold(0, |some, number| some | (1 << number));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        schedule.parse::<Schedule>().unwrap().next_after(after.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn the_next_time_is_the_one_that_cron_would_take() {
        for (schedule, after, expected) in [
            ("0 3 * * *", "2026-03-01T02:59:59Z", "2026-03-01T03:00:00Z"),
            ("0 3 * * *", "2026-03-01T03:00:00Z", "2026-03-02T03:00:00Z"),
            ("*/15 * * * *", "2026-03-01T10:15:00.5Z", "2026-03-01T10:30:00Z"),
            ("5/20 8-9 * * *", "2026-03-01T08:45:00Z", "2026-03-01T09:05:00Z"),
            ("0 0 31 * *", "2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"),
            ("0 0 29 feb *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("30 6 * * mon-fri", "2026-03-06T07:00:00Z", "2026-03-09T06:30:00Z"),
            ("0 12 * * 7", "2026-03-01T12:00:00Z", "2026-03-08T12:00:00Z"),
            ("0 12 13 * 5", "2026-03-01T00:00:00Z", "2026-03-06T12:00:00Z"),
            ("0 12 */2 * 5", "2026-03-01T00:00:00Z", "2026-03-13T12:00:00Z"),
            ("59 23 31 12 *", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"),
        ] {
            assert_eq!(next(schedule, after), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn what_is_no_schedule_says_which_field() {
        let error = |text: &str| text.parse::<Schedule>().unwrap_err().to_string();
        for (text, says) in [
            ("0 3 * *", "has 4 fields"),
            ("", "has 0 fields"),
            ("60 * * * *", "minute: \"60\""),
            ("* 24 * * *", "hour: \"24\""),
            ("* * 0 * *", "day of the month"),
            ("* * * 13 *", "month"),
            ("* * * * 8", "day of the week"),
            ("*/0 * * * *", "minute"),
            ("5-1 * * * *", "minute"),
            ("+5 * * * *", "minute"),
            ("a * * * *", "minute"),
            ("0 0 31 2 *", "no day of any year"),
        ] {
            assert!(error(text).contains(says), "{text}: {}", error(text));
        }
    }

    proptest! {
        #[test]
        fn no_time_before_the_next_one_fits(
            minutes in "\\*|[1-5]?[0-9]|\\*/[1-9]|[0-9]-[1-5][0-9]|[0-9],[1-5][0-9]",
            hours in "\\*|1?[0-9]|\\*/[1-9]",
            days in "\\*|1?[1-9]|\\*/[1-9]",
            weekdays in "\\*|[0-7]|[1-3]-[4-6]",
            after in 0_i64..4_000_000_000,
        ) {
            let schedule: Schedule = format!("{minutes} {hours} {days} * {weekdays}").parse().unwrap();
            let after = Timestamp::from_second(after).unwrap();
            let next = schedule.next_after(after).unwrap();
            prop_assert!(next > after && schedule.holds_at(next));
            let first = after.as_second().div_euclid(60) + 1;
            let whole = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
            // A day is enough to find a time that was left out.
            let end = (next.as_second() / 60).min(first + 24 * 60);
            prop_assert_eq!((first..end).map(whole).find(|time| schedule.holds_at(*time)), None);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9*/,a-z -]{0,24}|\\PC{0,24}") {
            let _ = text.parse::<Schedule>();
        }
    }
}
