//! One property: what it is called, what it takes, and what is said when it is given something else.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest value, in bytes: enough for any list of addresses, and it bounds what is logged.
const VALUE_BYTES_MAX: usize = 4096;
/// And of a list of replicas or a long text: a record of the metadata holds no more.
const LONG_VALUE_BYTES_MAX: usize = 60_000;
/// How much of a refused value is repeated in the refusal.
const SHOWN_CHARS_MAX: usize = 200;

/// The type of a property's value, as Kafka's DescribeConfigs names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Boolean,
    /// Text.
    String,
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 16 bits.
    Short,
    /// A whole number of 64 bits.
    Long,
    /// A number with a fraction.
    Double,
    /// Texts with commas between them.
    List,
}

impl Kind {
    /// Its number in DescribeConfigs' `ConfigType`.
    #[must_use]
    pub fn wire_id(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
        }
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::String => "STRING",
            Kind::Int => "INT",
            Kind::Short => "SHORT",
            Kind::Long => "LONG",
            Kind::Double => "DOUBLE",
            Kind::List => "LIST",
        }
    }
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nothing that has a name, or not a number.
    None,
    /// Thousandths of a second.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
    /// Bytes.
    Bytes,
    /// Things: partitions, replicas, connections.
    Count,
}

/// Which values of its kind a property takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Check {
    /// All of them.
    Any,
    /// Numbers from here on.
    AtLeast(i64),
    /// Numbers from the first to the second, both included.
    Between(i64, i64),
    /// Numbers from the first to the second, both included, or the third.
    BetweenOr(i64, i64, i64),
    /// Fractions from 0 to 1.
    Fraction,
    /// These texts (for a list: any selection of them).
    OneOf(&'static [&'static str]),
    /// `*`, or pairs `partition:broker`.
    Replicas,
    /// All texts, long ones too: what stands in them is for other crates to read.
    LongText,
}

/// Whether a value other than the default has the meaning its name promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honoured {
    /// Yes.
    Yes,
    /// It is accepted, and this happens instead: what was asked for holds already, or more does.
    Otherwise(&'static str),
    /// No: any value but the default is refused, for this reason.
    OnlyDefault(&'static str),
}

/// When a new value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At once.
    Live,
    /// With the next start; it cannot be altered through the protocol.
    Restart,
}

/// A configuration property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Property {
    /// As Kafka's tools write it.
    pub name: &'static str,
    /// What it does, in a sentence or two for an operator.
    pub documentation: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The value where nobody gave one; `None` means that it is derived (see the documentation).
    pub default: Option<&'static str>,
    /// Which values it takes.
    pub check: Check,
    /// What its number counts.
    pub unit: Unit,
    /// When a new value takes effect.
    pub change: Change,
    /// Whether it does what its name says.
    pub honoured: Honoured,
    /// The first version of Towpath that had it.
    pub since: &'static str,
    /// A value somebody might well write.
    pub example: &'static str,
    /// Broker properties that give the default of a topic's or group's property, or stand in for a
    /// broker's; the first one that is set counts.
    pub synonyms: &'static [&'static str],
}

impl Property {
    const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        documentation: &'static str,
    ) -> Property {
        Property {
            name,
            documentation,
            kind,
            default,
            check: Check::Any,
            unit: Unit::None,
            change: Change::Live,
            honoured: Honoured::Yes,
            since: "0.1",
            example: match default {
                Some(default) => default,
                None => "",
            },
            synonyms: &[],
        }
    }

    pub(super) const fn boolean(
        name: &'static str,
        default: &'static str,
        documentation: &'static str,
    ) -> Property {
        Property::new(name, Kind::Boolean, Some(default), documentation)
    }

    pub(super) const fn string(
        name: &'static str,
        default: &'static str,
        documentation: &'static str,
    ) -> Property {
        Property::new(name, Kind::String, Some(default), documentation)
    }

    pub(super) const fn list(
        name: &'static str,
        default: &'static str,
        documentation: &'static str,
    ) -> Property {
        Property::new(name, Kind::List, Some(default), documentation)
    }

    pub(super) const fn int(
        name: &'static str,
        default: &'static str,
        check: Check,
        unit: Unit,
        documentation: &'static str,
    ) -> Property {
        let mut property = Property::new(name, Kind::Int, Some(default), documentation);
        property.check = check;
        property.unit = unit;
        property
    }

    pub(super) const fn long(
        name: &'static str,
        default: &'static str,
        check: Check,
        unit: Unit,
        documentation: &'static str,
    ) -> Property {
        let mut property = Property::int(name, default, check, unit, documentation);
        property.kind = Kind::Long;
        property
    }

    pub(super) const fn double(
        name: &'static str,
        default: &'static str,
        check: Check,
        documentation: &'static str,
    ) -> Property {
        let mut property = Property::new(name, Kind::Double, Some(default), documentation);
        property.check = check;
        property
    }

    pub(super) const fn one_of(mut self, values: &'static [&'static str]) -> Property {
        self.check = Check::OneOf(values);
        self
    }

    pub(super) const fn replicas(mut self) -> Property {
        self.check = Check::Replicas;
        self
    }

    pub(super) const fn long_text(mut self) -> Property {
        self.check = Check::LongText;
        self
    }

    pub(super) const fn without_default(mut self) -> Property {
        self.default = None;
        self
    }

    pub(super) const fn synonyms(mut self, names: &'static [&'static str]) -> Property {
        self.synonyms = names;
        self
    }

    pub(super) const fn example(mut self, value: &'static str) -> Property {
        self.example = value;
        self
    }

    pub(super) const fn restart(mut self) -> Property {
        self.change = Change::Restart;
        self
    }

    pub(super) const fn otherwise(mut self, what: &'static str) -> Property {
        self.honoured = Honoured::Otherwise(what);
        self
    }

    pub(super) const fn only_default(mut self, reason: &'static str) -> Property {
        self.honoured = Honoured::OnlyDefault(reason);
        self
    }

    /// The documentation together with what is special about it here.
    #[must_use]
    pub fn described(&self) -> Cow<'static, str> {
        match self.honoured {
            Honoured::Yes => Cow::Borrowed(self.documentation),
            Honoured::Otherwise(instead) => Cow::Owned(format!("{} {instead}", self.documentation)),
            Honoured::OnlyDefault(reason) => {
                Cow::Owned(format!("{} Not served yet: {reason}.", self.documentation))
            }
        }
    }

    /// Whether the property can be given this value. Spaces around it do not count.
    pub fn check(&self, value: &str) -> Result<(), InvalidValue> {
        let value = value.trim();
        let refuse = |allowed: String| {
            let value = value.chars().take(SHOWN_CHARS_MAX).collect();
            Err(InvalidValue { property: self.name.to_owned(), value, allowed })
        };
        let most = match self.check {
            Check::Replicas | Check::LongText => LONG_VALUE_BYTES_MAX,
            _ => VALUE_BYTES_MAX,
        };
        if most < value.len() {
            return refuse(format!("Value must be no longer than {most} bytes"));
        }
        if let Err(allowed) = self.parse(value) {
            return refuse(allowed);
        }
        match self.honoured {
            Honoured::OnlyDefault(reason) if !self.is_default(value) => refuse(format!(
                "not served yet, the only value is {:?}: {reason}",
                self.default.unwrap_or_default()
            )),
            _ => Ok(()),
        }
    }

    fn is_default(&self, value: &str) -> bool {
        let default = self.default.unwrap_or_default();
        if self.kind == Kind::Boolean {
            default.eq_ignore_ascii_case(value)
        } else {
            default == value
        }
    }

    fn parse(&self, value: &str) -> Result<(), String> {
        let not_a_number = || format!("Not a number of type {}", self.kind.name());
        match self.kind {
            Kind::Boolean => match value.to_ascii_lowercase().as_str() {
                "true" | "false" => Ok(()),
                _ => Err("Expected value to be either true or false".to_owned()),
            },
            Kind::String => self.check.text(value),
            Kind::List => self.check.list(value),
            Kind::Short => {
                self.check.number(i64::from(value.parse::<i16>().map_err(|_| not_a_number())?))
            }
            Kind::Int => {
                self.check.number(i64::from(value.parse::<i32>().map_err(|_| not_a_number())?))
            }
            Kind::Long => self.check.number(value.parse::<i64>().map_err(|_| not_a_number())?),
            Kind::Double => {
                let number = value.parse::<f64>().map_err(|_| not_a_number())?;
                if number.is_nan() { Err(not_a_number()) } else { self.check.fraction(number) }
            }
        }
    }
}

impl Check {
    fn number(self, value: i64) -> Result<(), String> {
        match self {
            Check::AtLeast(least) | Check::Between(least, _) if value < least => {
                Err(format!("Value must be at least {least}"))
            }
            Check::Between(_, most) if value > most => {
                Err(format!("Value must be no more than {most}"))
            }
            Check::BetweenOr(least, most, other)
                if value != other && !(least..=most).contains(&value) =>
            {
                Err(format!("Value must be between {least} and {most} or equal to {other}"))
            }
            _ => Ok(()),
        }
    }

    fn fraction(self, value: f64) -> Result<(), String> {
        match self {
            Check::Fraction if value < 0.0 => Err("Value must be at least 0".to_owned()),
            Check::Fraction if value > 1.0 => Err("Value must be no more than 1".to_owned()),
            _ => Ok(()),
        }
    }

    fn text(self, value: &str) -> Result<(), String> {
        match self {
            Check::OneOf(values) if !values.contains(&value) => {
                Err(format!("String must be one of: {}", values.join(", ")))
            }
            _ => Ok(()),
        }
    }

    fn list(self, value: &str) -> Result<(), String> {
        match self {
            Check::OneOf(_) => elements(value).try_for_each(|element| self.text(element)),
            Check::Replicas if value != "*" && !elements(value).all(is_replica) => {
                Err("must be '*' or a list of replicas written [partition]:[broker],…".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The elements of a list's value.
pub fn elements(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|element| !element.is_empty())
}

fn is_replica(element: &str) -> bool {
    element.split_once(':').is_some_and(|(partition, broker)| {
        partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok()
    })
}

/// A value that a property does not take. The text is the one that Kafka's users know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidValue {
    /// The property.
    pub property: String,
    /// The value it was given.
    pub value: String,
    /// What it takes.
    pub allowed: String,
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidValue { property, value, allowed } = self;
        write!(f, "Invalid value {value} for configuration {property}: {allowed}")
    }
}

impl std::error::Error for InvalidValue {}
