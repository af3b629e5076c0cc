//! Places in time or in a partition, as people write them: `earliest`, `latest`, `now`,
//! `offset:42`, `-15m`, `2026-11-29`, `2026-11-29T17:00:00+01:00`, `@1700000000000`.
//!
//! And RFC 3339 both ways, in UTC: a calendar library for two functions would be the larger part.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towpath_client::{Bound, Offset, OffsetSpec, Timestamp};

use crate::units::parse_duration;

/// A place, not yet looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Earliest,
    Latest,
    Offset(i64),
    Ago(Duration),
    At(i64),
}

impl When {
    /// The place as a reader wants it.
    pub(crate) fn bound(self) -> Bound {
        match self.spec() {
            Ok(spec) => Bound::Spec(spec),
            Err(offset) => Bound::Offset(offset),
        }
    }

    /// What to look up at the leader; or the offset, where there is nothing to look up.
    pub(crate) fn spec(self) -> Result<OffsetSpec, Offset> {
        match self {
            When::Earliest => Ok(OffsetSpec::Earliest),
            When::Latest => Ok(OffsetSpec::Latest),
            When::Offset(offset) => Err(Offset(offset)),
            When::At(millis) => Ok(OffsetSpec::At(Timestamp(millis))),
            When::Ago(ago) => {
                let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                Ok(OffsetSpec::At(Timestamp(now_millis().saturating_sub(ago))))
            }
        }
    }

    /// In words, for what a command says it will do.
    pub(crate) fn words(self) -> String {
        match self {
            When::Earliest => "the start".to_owned(),
            When::Latest => "the end".to_owned(),
            When::Offset(offset) => format!("offset {offset}"),
            When::At(millis) => format_millis(millis),
            When::Ago(ago) => format!("{ago:?} ago"),
        }
    }
}

/// Reads a place; the errors are for people.
pub(crate) fn parse_when(text: &str) -> Result<When, String> {
    let invalid = || {
        format!(
            "{text:?} is no place: write earliest, latest, offset:42, -15m, \
             2026-11-29T17:00:00Z or @1700000000000 (milliseconds)"
        )
    };
    match text {
        "earliest" | "start" | "beginning" => return Ok(When::Earliest),
        "latest" | "end" => return Ok(When::Latest),
        "now" => return Ok(When::At(now_millis())),
        _ => {}
    }
    if let Some(offset) = text.strip_prefix("offset:") {
        let offset: i64 = offset.parse().map_err(|_| invalid())?;
        return if offset < 0 { Err(invalid()) } else { Ok(When::Offset(offset)) };
    }
    if let Some(millis) = text.strip_prefix('@') {
        return millis.parse().map(When::At).map_err(|_| invalid());
    }
    if let Some(ago) = text.strip_prefix('-') {
        return parse_duration(ago).map(When::Ago).map_err(|_| invalid());
    }
    parse_rfc3339(text).map(When::At).ok_or_else(invalid)
}

pub(crate) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970 of a date, or of a date and time with an offset; without one it is UTC.
fn parse_rfc3339(text: &str) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00:00Z"),
    };
    let [year, month, day] = numbers::<3>(date, '-')?;
    let is_date = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day);
    let (clock, offset_minutes) = split_zone(time)?;
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let whole =
        if whole.matches(':').count() == 1 { format!("{whole}:00") } else { whole.to_owned() };
    let [hour, minute, second] = numbers::<3>(&whole, ':')?;
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !is_date || !is_time || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let millis: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    let seconds = hour * 3600 + minute * 60 + second - offset_minutes * 60;
    Some(days_from_civil(year, month, day) * DAY_MS + seconds * 1000 + millis)
}

fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let [hours, minutes] = numbers::<2>(&time[at + 1..], ':')?;
    let offset = hours * 60 + minutes;
    let sign = if time.as_bytes()[at] == b'-' { -1 } else { 1 };
    (hours < 24 && minutes < 60).then_some((&time[..at], sign * offset))
}

fn numbers<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for number in &mut numbers {
        let part = parts.next().filter(|part| part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01. Years begin in March here, so that the leap day is the last one; a cycle
/// of 400 years has 146,097 days, and 719,468 days lie between its start and 1970.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// RFC 3339 in UTC with milliseconds.
pub(crate) fn format_millis(millis: i64) -> String {
    let (year, month, day) = civil_from_days(millis.div_euclid(DAY_MS));
    let of_day = millis.rem_euclid(DAY_MS);
    let (seconds, millis) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_place_is_read() {
        for (text, expected) in [
            ("earliest", When::Earliest),
            ("latest", When::Latest),
            ("offset:42", When::Offset(42)),
            ("-15m", When::Ago(Duration::from_secs(900))),
            ("@1700000000000", When::At(1_700_000_000_000)),
            ("2023-11-14T22:13:20Z", When::At(1_700_000_000_000)),
            ("2023-11-14 22:13:20.5", When::At(1_700_000_000_500)),
            ("2023-11-15T00:13:20+02:00", When::At(1_700_000_000_000)),
            ("2023-11-14T20:13-02:00", When::At(1_700_000_000_000 - 20_000)),
            ("1970-01-01", When::At(0)),
            ("2024-02-29", When::At(1_709_164_800_000)),
        ] {
            assert_eq!(parse_when(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in [
            "",
            "yesterday",
            "offset:",
            "offset:-1",
            "-15",
            "2023-02-29",
            "2023-13-01",
            "2023-1-1T25:00Z",
            "2023-01-01T00:00+99:00",
            "1-2-3-4",
            "ü",
            "2023-01-01T1:2:3.x",
        ] {
            assert!(parse_when(text).is_err(), "{text}");
        }
    }

    #[test]
    fn days_survive_the_calendar_both_ways() {
        for days in (-800_000..3_000_000).step_by(97) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        assert_eq!(format_millis(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(format_millis(-1), "1969-12-31T23:59:59.999Z");
    }
}
