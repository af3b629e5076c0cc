//! Times in requests: milliseconds since 1970, or RFC 3339.

use towpath_model::Timestamp;

/// Reads `2026-11-29T17:41:35.250Z` (offset and fraction as RFC 3339 has them; `t`, `z` and a
/// space are taken too). `None`: it is not such a time.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let (date, rest) = bytes.split_at_checked(10)?;
    let (&separator, rest) = rest.split_first()?;
    if !matches!(separator, b'T' | b't' | b' ') {
        return None;
    }
    let (time, rest) = rest.split_at_checked(8)?;
    let [y1, y2, y3, y4, b'-', mo1, mo2, b'-', d1, d2] = *date else { return None };
    let [h1, h2, b':', mi1, mi2, b':', s1, s2] = *time else { return None };
    let year = number(&[y1, y2, y3, y4])?;
    let (month, day) = (number(&[mo1, mo2])?, number(&[d1, d2])?);
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[mi1, mi2])?, number(&[s1, s2])?);
    let is_valid = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 60;
    if !is_valid {
        return None;
    }
    let (millis, rest) = fraction(rest)?;
    let offset_minutes = offset(rest)?;
    let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
    Some(Timestamp((minutes * 60 + second) * 1000 + millis))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    })
}

/// Milliseconds of `.250…`, and what follows them.
fn fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    let Some((b'.', digits)) = rest.split_first() else { return Some((0, rest)) };
    let count = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
    if count == 0 || 9 < count {
        return None;
    }
    let mut millis = [b'0'; 3];
    millis.iter_mut().zip(&digits[..count]).for_each(|(to, from)| *to = *from);
    Some((number(&millis)?, &digits[count..]))
}

/// Minutes that local time is ahead of UTC.
fn offset(rest: &[u8]) -> Option<i64> {
    match *rest {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
            let ahead = hours * 60 + minutes;
            (hours <= 23 && minutes <= 59).then_some(if sign == b'-' { -ahead } else { ahead })
        }
        _ => None,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// By counting whole years and months: the inputs are four digits at most.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let leap_days = |year: i64| {
        let before = year - 1;
        before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400)
    };
    let years = (year - 1970) * 365 + leap_days(year) - leap_days(1970);
    let months: i64 = (1..month).map(|month| days_in(year, month)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(parse_rfc3339(text).map(|time| time.0), expected, "{text}");
    }

    #[test]
    fn rfc3339_times_become_milliseconds() {
        check("1970-01-01T00:00:00Z", Some(0));
        check("2026-11-29T17:41:35.25Z", Some(1_795_974_095_250));
        check("2026-11-29t18:41:35.250999999+01:00", Some(1_795_974_095_250));
        check("2000-02-29 00:00:00z", Some(951_782_400_000));
        check("1969-12-31T23:59:59.999Z", Some(-1));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        check("2026-02-29T00:00:00Z", None);
        check("2026-11-29T24:00:00Z", None);
        check("2026-11-29T17:41:35", None);
        check("2026-11-29", None);
        check("2026-11-29T17:41:35.Z", None);
        check("yesterday", None);
        check("2026-11-29T17:41:35+99:00", None);
        check("2026–11-29T17:41:35Z", None);
    }
}
