//! A strict reader of OpenMetrics text (openmetrics.io, version 1.0): what it does not allow is an
//! error, also where Prometheus would let it pass.

use std::collections::{BTreeMap, BTreeSet};

/// A metric family.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
    has_help: bool,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) suffix: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// What the samples of a kind end in.
pub(crate) fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "gauge" => &[""],
        "counter" => &["_total", "_created"],
        "histogram" => &["_bucket", "_sum", "_count", "_created"],
        "info" => &["_info"],
        _ => &[],
    }
}

/// Reads everything, or says which line is wrong.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in body.split_terminator('\n') {
        let wrong = |what: &str| format!("{what}: {line}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (word, name, rest) = (words.next(), words.next(), words.next());
            let (Some(word), Some(name), Some(rest)) = (word, name, rest) else {
                return Err(wrong("a comment that says nothing"));
            };
            let is_new = current.as_deref() != Some(name);
            if is_new && families.contains_key(name) {
                return Err(wrong("a family comes twice"));
            }
            current = Some(name.to_owned());
            let family = families.entry(name.to_owned()).or_default();
            if !family.samples.is_empty() {
                return Err(wrong("a description after samples"));
            }
            match word {
                "TYPE" if family.kind.is_empty() && !suffixes(rest).is_empty() => {
                    family.kind = rest.to_owned();
                }
                "HELP" if !family.has_help => family.has_help = true,
                "UNIT" => {}
                _ => return Err(wrong("a comment that is not allowed")),
            }
            continue;
        }
        let name = current.as_ref().ok_or_else(|| wrong("a sample without a family"))?;
        let family = families.get_mut(name).ok_or_else(|| wrong("a sample without a family"))?;
        let sample = sample(line, name, &family.kind).map_err(|what| wrong(&what))?;
        let is_twin =
            |other: &Sample| other.suffix == sample.suffix && other.labels == sample.labels;
        // Twins of large families are looked for at the end.
        if family.samples.last().is_some_and(is_twin) {
            return Err(wrong("a sample twice"));
        }
        family.samples.push(sample);
    }
    for (name, family) in &families {
        let keys = family.samples.iter().map(|sample| (&sample.suffix, &sample.labels));
        let distinct: BTreeSet<_> = keys.collect();
        if distinct.len() != family.samples.len() {
            return Err(format!("{name} has a sample twice"));
        }
        if family.kind.is_empty() || !family.has_help {
            return Err(format!("{name} has no type or no help"));
        }
    }
    Ok(families)
}

fn sample(line: &str, family: &str, kind: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(is_first) || !name.chars().all(|c| is_first(c) || c.is_ascii_digit()) {
        return Err("not a name".to_owned());
    }
    let suffix = name.strip_prefix(family).ok_or("a sample of another family")?;
    if !suffixes(kind).contains(&suffix) {
        return Err(format!("a {kind} has no {suffix}"));
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = self::labels(inside, &mut labels)?;
    }
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    let value: f64 = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number if number.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            number.parse().map_err(|_| "not a number")?
        }
        _ => return Err("not a number".to_owned()),
    };
    if kind == "counter" && !(0.0..f64::INFINITY).contains(&value) {
        return Err("a counter below zero".to_owned());
    }
    Ok(Sample { suffix: suffix.to_owned(), labels, value })
}

/// Reads labels up to the brace that ends them; returns what follows.
fn labels<'t>(mut rest: &'t str, out: &mut BTreeMap<String, String>) -> Result<&'t str, String> {
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("not a label: {name}"));
        }
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().ok_or("a label without an end")? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, c @ ('\\' | '"'))) => c,
                    _ => return Err("an escape that is not allowed".to_owned()),
                }),
                (_, c) => value.push(c),
            }
        };
        if out.insert(name.to_owned(), value).is_some() {
            return Err(format!("label {name} twice"));
        }
        rest = &after[end..];
        match rest.split_at_checked(1) {
            Some((",", more)) => rest = more,
            Some(("}", more)) => return Ok(more),
            _ => return Err("labels without an end".to_owned()),
        }
    }
}

#[test]
fn what_is_not_allowed_is_an_error() {
    let head = "# HELP a A.\n# TYPE a gauge\n";
    assert!(parse(&format!("{head}a{{b=\"c\\\"\"}} 1\na 2\n# EOF\n")).is_ok());
    for lines in [
        "a 1\na 1\n",
        "b 1\n",
        "a{b=\"c\" 1\n",
        "a{b=\"c\",b=\"d\"} 1\n",
        "a{b=\"\\x\"} 1\n",
        "a_total 1\n",
        "a\t1\n",
        "a 1 \n",
        "a inf\n",
        "# HELP a A.\n",
        "a 1\n# TYPE a gauge\n",
    ] {
        assert!(parse(&format!("{head}{lines}# EOF\n")).is_err(), "{lines}");
    }
    assert!(parse(&format!("{head}a 1\n")).is_err(), "no end");
    assert!(parse("# TYPE a counter\n# HELP a A.\na_total -1\n# EOF\n").is_err());
}
