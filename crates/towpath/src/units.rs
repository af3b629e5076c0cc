//! Sizes, durations and counts as people write and read them.

use std::time::Duration;

/// Reads `500ms`, `10s`, `15m`, `2h`, `7d`, `1w`, and sums of them: `1h30m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration: write 500ms, 10s, 15m, 2h, 7d or 1h30m");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let seconds = match &rest[..letters] {
            "ms" => 0.001,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            _ => return Err(invalid()),
        };
        rest = &rest[letters..];
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        total = total.checked_add(part).ok_or_else(invalid)?;
    }
    Ok(total)
}

/// `12.3 MiB`.
pub(crate) fn bytes_in_words(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while 1024.0 <= amount && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// `1,234,567`.
pub(crate) fn count_in_words(count: i64) -> String {
    let digits = count.unsigned_abs().to_string();
    let mut words = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            words.push(',');
        }
        words.push(digit);
    }
    if count < 0 { format!("-{words}") } else { words }
}

/// `45 s`, `12m 5s`, `3h 20m`, `2d 4h`: the two largest units.
pub(crate) fn seconds_in_words(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let Some(first) = UNITS.iter().position(|(size, _)| *size <= seconds) else {
        return "0s".to_owned();
    };
    let (size, name) = UNITS[first];
    let words = format!("{}{name}", seconds / size);
    let rest = UNITS.get(first + 1).map(|(smaller, name)| (seconds % size / smaller, *name));
    match rest {
        Some((count, name)) if 0 < count => format!("{words} {count}{name}"),
        _ => words,
    }
}

/// `1 record`, `2 records`.
pub(crate) fn plural(count: i64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count_in_words(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5m", 90_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "10 parsecs", "1h30", "-5m"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(bytes_in_words(1023), "1023 B");
        assert_eq!(bytes_in_words(1536), "1.5 KiB");
        assert_eq!(bytes_in_words(5 << 30), "5.0 GiB");
        assert_eq!(count_in_words(1_234_567), "1,234,567");
        assert_eq!(count_in_words(-12), "-12");
        for (seconds, words) in [(0, "0s"), (59, "59s"), (725, "12m 5s"), (12_000, "3h 20m")] {
            assert_eq!(seconds_in_words(seconds), words);
        }
        assert_eq!(seconds_in_words(2 * 86_400 + 59), "2d");
        assert_eq!(plural(1, "record"), "1 record");
        assert_eq!(plural(2000, "record"), "2,000 records");
    }
}
