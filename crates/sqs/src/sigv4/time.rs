//! Times as signatures have them: `20150830T123600Z`.

use std::fmt;

/// A time in whole seconds, between the years 1970 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignedAt(u64);

const SECONDS_PER_DAY: u64 = 86_400;
/// The last second of the year 9999.
const SECONDS_MAX: u64 = 253_402_300_799;

impl SignedAt {
    /// Reads one; nothing if there is no such day or time of day.
    pub(super) fn parse(text: &str) -> Option<SignedAt> {
        let is_shaped = text.len() == 16 && text.is_ascii();
        let (date, time) = is_shaped.then(|| text.split_at(8))?;
        let time = time.strip_prefix('T')?.strip_suffix('Z')?;
        let number = |digits: &str| {
            let digits = Some(digits).filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
            digits.parse::<u64>().ok()
        };
        let (year, month, day) = (number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
        let (hour, minute, second) =
            (number(&time[..2])?, number(&time[2..4])?, number(&time[4..])?);
        if year < 1970 || !(1..=12).contains(&month) || day == 0 {
            return None;
        }
        let days = days_before_year(year) + days_before_month(year, month) + day - 1;
        let signed_at = SignedAt(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second);
        // 30 February is 1 March, and so another text.
        (signed_at.to_string() == text).then_some(signed_at)
    }

    /// The time so many seconds after the beginning of 1970.
    pub(super) fn from_seconds(seconds: u64) -> SignedAt {
        SignedAt(seconds.min(SECONDS_MAX))
    }

    /// In seconds since 1970.
    pub(super) fn seconds(self) -> u64 {
        self.0
    }

    /// `20150830`.
    pub(super) fn day(self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl fmt::Display for SignedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0 / SECONDS_PER_DAY, self.0 % SECONDS_PER_DAY);
        // No year is longer than 366 days, so this is the year or one shortly before it.
        let mut year = 1970 + days / 366;
        while days_before_year(year + 1) <= days {
            year += 1;
        }
        let day_of_year = days - days_before_year(year);
        let has_begun = |month: &u64| days_before_month(year, *month) <= day_of_year;
        let month = (1..=12).rev().find(has_begun).expect("January begins every year");
        let day = day_of_year - days_before_month(year, month) + 1;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
    }
}

/// Days from the beginning of 1970.
fn days_before_year(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

fn days_before_month(year: u64, month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    BEFORE[month as usize - 1] + u64::from(is_leap && 2 < month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown() {
        for (text, seconds) in [
            ("19700101T000000Z", 0),
            ("20000229T235959Z", 951_868_799),
            ("20150830T123600Z", 1_440_938_160),
            ("20261130T160000Z", 1_796_054_400),
            ("99991231T235959Z", SECONDS_MAX),
        ] {
            assert_eq!(SignedAt::parse(text), Some(SignedAt(seconds)), "{text}");
            assert_eq!(SignedAt(seconds).to_string(), text);
        }
        assert_eq!(SignedAt::from_seconds(u64::MAX).day(), "99991231");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "20150830T123600",
            "20150830 123600Z",
            "20150230T000000Z",
            "20151301T000000Z",
            "20150100T000000Z",
            "20150830T240000Z",
            "20150830T126000Z",
            "19691231T235959Z",
            "+0150830T123600Z",
            "2015083äT12360Z",
        ] {
            assert_eq!(SignedAt::parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_read_as_they_are_shown() {
        for day in (0..SECONDS_MAX / SECONDS_PER_DAY).step_by(97) {
            let signed_at = SignedAt(day * SECONDS_PER_DAY);
            assert_eq!(SignedAt::parse(&signed_at.to_string()), Some(signed_at));
        }
    }
}
