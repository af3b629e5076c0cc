//! Writes families of samples as OpenMetrics text. For what is read off at the moment of a scrape
//! and has many labels: a registry would build a map of handles only to drop it again.

use std::fmt::Write as _;

/// What a family's samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up, from the start of the process.
    Counter,
    /// How many were how large; see [`Family::histogram`].
    Histogram,
}

/// Text with families, without its end mark.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// A number of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(i64),
    Fraction(f64),
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number::Whole(value)
    }
}

impl From<i32> for Number {
    fn from(value: i32) -> Number {
        Number::Whole(value.into())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        (value as u64).into()
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Number {
        Number::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Fraction(value)
    }
}

impl Exposition {
    /// Text that a registry has written, to be gone on with.
    pub(super) fn after(mut text: String) -> Exposition {
        let end = text.trim_end().strip_suffix("# EOF").map_or(text.len(), str::len);
        text.truncate(end);
        Exposition { text }
    }

    /// Begins a family; its samples follow at once.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let (kind_name, suffix) = match kind {
            Kind::Gauge => ("gauge", ""),
            Kind::Counter => ("counter", "_total"),
            Kind::Histogram => ("histogram", ""),
        };
        let text = &mut self.text;
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} {kind_name}\n");
        Family { text, name, suffix }
    }

    /// A family with one sample without labels.
    pub(super) fn single(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &str,
        value: impl Into<Number>,
    ) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// The text with its end mark.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

/// A family under way.
pub(super) struct Family<'e> {
    text: &'e mut String,
    name: &'static str,
    suffix: &'static str,
}

impl Family<'_> {
    /// One sample. A family must not have two with the same labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Number>) {
        self.text.push_str(self.name);
        self.text.push_str(self.suffix);
        for (nth, (name, value)) in labels.iter().enumerate() {
            self.text.push(if nth == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            push_escaped(self.text, value);
            self.text.push('"');
        }
        self.text.push_str(if labels.is_empty() { " " } else { "} " });
        let _ = match value.into() {
            Number::Whole(value) => writeln!(self.text, "{value}"),
            Number::Fraction(value) if value.is_finite() => writeln!(self.text, "{value:?}"),
            Number::Fraction(value) if value.is_nan() => writeln!(self.text, "NaN"),
            Number::Fraction(value) => {
                writeln!(self.text, "{}", if 0.0 < value { "+Inf" } else { "-Inf" })
            }
        };
    }
}

/// How many were how large.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sizes {
    /// Upper bounds, as labels, and how many are not above them; the last one has no bound: `+Inf`.
    pub(super) up_to: Vec<(String, u64)>,
    pub(super) sum: f64,
}

impl Family<'_> {
    /// The samples of one histogram.
    pub(super) fn histogram(&mut self, labels: &[(&str, &str)], sizes: &Sizes) {
        self.suffix = "_bucket";
        for (bound, count) in &sizes.up_to {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&labels, *count);
        }
        self.suffix = "_sum";
        self.sample(labels, sizes.sum);
        self.suffix = "_count";
        self.sample(labels, sizes.up_to.last().map_or(0, |(_, all)| *all));
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_open_metrics_wants_them() {
        let mut out = Exposition::after("# TYPE a gauge\na 1\n# EOF\n".to_owned());
        let mut lag = out.family("lag", Kind::Gauge, "Records behind");
        lag.sample(&[("group", "a\"b\\c\nd"), ("partition", "0")], 5_i64);
        lag.sample(&[("group", "e"), ("partition", "1")], 0.5);
        out.single("lost_records", Kind::Counter, "Lost", 7_u64);
        let up_to = vec![("0.5".to_owned(), 1), ("+Inf".to_owned(), 3)];
        let sizes = Sizes { up_to, sum: 2.5 };
        out.family("took", Kind::Histogram, "Took").histogram(&[("a", "b")], &sizes);
        assert_eq!(
            out.finish(),
            "# TYPE a gauge\na 1\n\
             # HELP lag Records behind.\n# TYPE lag gauge\n\
             lag{group=\"a\\\"b\\\\c\\nd\",partition=\"0\"} 5\n\
             lag{group=\"e\",partition=\"1\"} 0.5\n\
             # HELP lost_records Lost.\n# TYPE lost_records counter\nlost_records_total 7\n\
             # HELP took Took.\n# TYPE took histogram\n\
             took_bucket{a=\"b\",le=\"0.5\"} 1\ntook_bucket{a=\"b\",le=\"+Inf\"} 3\n\
             took_sum{a=\"b\"} 2.5\ntook_count{a=\"b\"} 3\n\
             # EOF\n"
        );
    }
}
