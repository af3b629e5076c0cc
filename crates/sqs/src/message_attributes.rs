//! What a message carries beside its body: attributes that its sender names, and those that the
//! system knows of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, ErrorKind};
use crate::limits::{ATTRIBUTE_NAME_BYTES_MAX, MESSAGE_ATTRIBUTES_MAX};
use crate::wire::Fields;

/// Message attributes by name.
///
/// Invariant: every name, type and value is one that AWS takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageAttributes(BTreeMap<String, MessageAttribute>);

/// An attribute's type and value. Invariant: the value is of the type, and not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageAttribute {
    data_type: DataType,
    value: AttributeValue,
}

/// `String`, `Number` or `Binary`, and perhaps a label after a dot, such as `Number.float`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataType(String);

/// An attribute's value. Numbers are texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Of a String or a Number.
    Text(String),
    /// Of a Binary.
    Binary(Vec<u8>),
}

impl MessageAttributes {
    /// Reads what a SendMessage carries.
    pub(crate) fn read(attributes: Vec<(String, Fields)>) -> Result<MessageAttributes, Error> {
        if MESSAGE_ATTRIBUTES_MAX < attributes.len() {
            return Err(Error::invalid_parameter(format!(
                "Number of message attributes [{}] exceeds the allowed maximum [{}].",
                attributes.len(),
                MESSAGE_ATTRIBUTES_MAX
            )));
        }
        let mut read = BTreeMap::new();
        for (name, fields) in attributes {
            check_name(&name)?;
            let attribute = MessageAttribute::read(&name, fields)?;
            read.insert(name, attribute);
        }
        Ok(MessageAttributes(read))
    }

    /// Adds an attribute that did not come from an SQS client; says whether it is one that such a
    /// client could have sent. If not, nothing is added.
    pub fn insert(&mut self, name: &str, data_type: &str, value: AttributeValue) -> bool {
        let Some(data_type) = DataType::parse(data_type) else { return false };
        let attribute = MessageAttribute { data_type, value };
        let fits = check_name(name).is_ok() && attribute.check(name).is_ok();
        if fits {
            self.0.insert(name.to_owned(), attribute);
        }
        fits
    }

    /// Those that a receiver has asked for.
    #[must_use]
    pub fn selected(mut self, filter: &AttributeFilter) -> MessageAttributes {
        self.0.retain(|name, _| filter.selects(name));
        self
    }

    /// By name, in the order of their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MessageAttribute)> {
        self.0.iter().map(|(name, attribute)| (name.as_str(), attribute))
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&MessageAttribute> {
        self.0.get(name)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they add to a message's size: names, types and values, in bytes.
    pub fn size_bytes(&self) -> usize {
        let sizes = self.0.iter().map(|(name, attribute)| {
            name.len() + attribute.data_type.0.len() + attribute.value.as_bytes().len()
        });
        sizes.sum()
    }
}

impl MessageAttribute {
    /// An attribute with a value that is a text.
    pub(crate) fn text(data_type: &str, text: &str) -> MessageAttribute {
        let value = AttributeValue::Text(text.to_owned());
        MessageAttribute { data_type: DataType(data_type.to_owned()), value }
    }

    /// Its type.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Its value.
    pub fn value(&self) -> &AttributeValue {
        &self.value
    }

    fn read(name: &str, mut fields: Fields) -> Result<MessageAttribute, Error> {
        if fields.has_list("StringListValues", "StringListValue")
            || fields.has_list("BinaryListValues", "BinaryListValue")
        {
            return Err(Error::new(
                ErrorKind::UnsupportedOperation,
                "Message attribute list values in SendMessage operation are not supported.",
            ));
        }
        let given = fields.text("DataType")?.filter(|given| !given.is_empty());
        let Some(given) = given else {
            return Err(Error::invalid_parameter(format!(
                "The message (user) attribute '{name}' must contain a non-empty message attribute \
                 value."
            )));
        };
        if ATTRIBUTE_NAME_BYTES_MAX < given.len() {
            return Err(Error::invalid_parameter(
                "Message (user) attribute type must be shorter than 256 bytes.",
            ));
        }
        let data_type = DataType::parse(&given).ok_or_else(|| {
            Error::invalid_parameter(format!(
                "The type of message (user) attribute '{name}' is invalid. You must use only the \
                 following supported type prefixes: Binary, Number, String."
            ))
        })?;
        let value = if data_type.is_binary() {
            AttributeValue::Binary(fields.bytes("BinaryValue")?.unwrap_or_default())
        } else {
            AttributeValue::Text(fields.text("StringValue")?.unwrap_or_default())
        };
        let attribute = MessageAttribute { data_type, value };
        attribute.check(name)?;
        Ok(attribute)
    }

    fn check(&self, name: &str) -> Result<(), Error> {
        if self.value.as_bytes().is_empty() {
            return Err(Error::invalid_parameter(format!(
                "Message (user) attribute '{name}' must contain a non-empty value of type '{}'.",
                self.data_type.prefix()
            )));
        }
        match &self.value {
            AttributeValue::Binary(_) if self.data_type.is_binary() => Ok(()),
            AttributeValue::Text(text) if self.data_type.is_number() && !is_number(text) => {
                Err(Error::invalid_parameter(format!(
                    "Can't cast the value of message (user) attribute '{name}' to a number."
                )))
            }
            AttributeValue::Text(text) if !self.data_type.is_binary() => {
                if is_message_text(text) {
                    Ok(())
                } else {
                    Err(Error::invalid_parameter(INVALID_CHARACTERS))
                }
            }
            AttributeValue::Binary(_) | AttributeValue::Text(_) => {
                Err(Error::invalid_parameter(format!(
                    "The message (user) attribute '{name}' has a value that is not of its type."
                )))
            }
        }
    }
}

impl DataType {
    /// Reads one of at most 256 bytes; nothing if it begins otherwise than with a known type.
    pub fn parse(text: &str) -> Option<DataType> {
        let prefix = text.split('.').next().unwrap_or_default();
        let fits = text.len() <= ATTRIBUTE_NAME_BYTES_MAX && is_message_text(text);
        let known = fits && ["String", "Number", "Binary"].contains(&prefix);
        known.then(|| DataType(text.to_owned()))
    }

    /// All of it, with the label.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether values are bytes.
    pub fn is_binary(&self) -> bool {
        self.prefix() == "Binary"
    }

    fn is_number(&self) -> bool {
        self.prefix() == "Number"
    }

    fn prefix(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }
}

impl AttributeValue {
    /// The value as bytes, of a text in UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            AttributeValue::Text(text) => text.as_bytes(),
            AttributeValue::Binary(bytes) => bytes,
        }
    }
}

pub(crate) const INVALID_CHARACTERS: &str = "Invalid characters found. Valid unicode characters \
     are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF";

/// Whether bodies and values of attributes may have this character: XML 1.0 can carry it.
pub(crate) fn is_message_char(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Whether a whole text is of such characters; most are plain ASCII, which is found out at once.
pub(crate) fn is_message_text(text: &str) -> bool {
    let is_plain = text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte));
    is_plain || text.chars().all(is_message_char)
}

fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid_parameter(
            "The request must contain non-empty message (user) attribute names.",
        ));
    }
    if ATTRIBUTE_NAME_BYTES_MAX < name.len() {
        return Err(Error::invalid_parameter(
            "Message (user) attribute name must be shorter than 256 bytes.",
        ));
    }
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !name.bytes().all(is_name_byte) {
        return Err(Error::invalid_parameter(
            "Message (user) attributes name can only contain upper and lower score characters, \
             digits, periods, hyphens and underscores. ",
        ));
    }
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("aws.") || lower.starts_with("amazon.") || has_stray_dot(name) {
        return Err(Error::invalid_parameter(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These \
             strings are reserved for internal use. Additionally, they cannot start or end with \
             '.'.",
        ));
    }
    Ok(())
}

fn has_stray_dot(name: &str) -> bool {
    name.starts_with('.') || name.ends_with('.') || name.contains("..")
}

/// Digits of precision of a Number, and the decimal exponents that it may have.
const NUMBER_DIGITS_MAX: usize = 38;
const NUMBER_EXPONENTS: std::ops::RangeInclusive<i64> = -128..=126;

/// Whether it is a decimal number, perhaps with an exponent, that AWS can keep.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => match exponent.parse::<i32>() {
            Ok(exponent) => (mantissa, i64::from(exponent)),
            Err(_) => return false,
        },
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if digits().next().is_none() || !digits().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let leading_zeros = digits().take_while(|digit| *digit == b'0').count();
    let all = digits().count();
    if leading_zeros == all {
        return true;
    }
    let trailing_zeros =
        fraction.bytes().rev().chain(whole.bytes().rev()).take_while(|digit| *digit == b'0');
    let significant = all - leading_zeros - trailing_zeros.count();
    let magnitude = exponent + whole.len() as i64 - leading_zeros as i64 - 1;
    significant <= NUMBER_DIGITS_MAX && NUMBER_EXPONENTS.contains(&magnitude)
}

/// Which message attributes a receiver wants: `All` or `.*`, `prefix.*`, or a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributeFilter {
    all: bool,
    prefixes: Vec<String>,
    names: BTreeSet<String>,
}

impl AttributeFilter {
    /// What these MessageAttributeNames ask for. Names that no attribute can have select nothing.
    pub fn new(names: Vec<String>) -> AttributeFilter {
        let mut filter = AttributeFilter::default();
        for name in names {
            // AWS takes a lone asterisk too.
            if ["All", ".*", "*"].contains(&name.as_str()) {
                filter.all = true;
            } else if let Some(prefix) = name.strip_suffix(".*") {
                filter.prefixes.push(prefix.to_owned());
            } else {
                filter.names.insert(name);
            }
        }
        filter
    }

    /// Whether it asks for the attribute of this name. A prefix need not end at a dot: AWS gives
    /// `Hello` to those who ask for `Hel.*`.
    pub fn selects(&self, name: &str) -> bool {
        let has_prefix = |prefix: &String| name.starts_with(prefix.as_str());
        self.all || self.names.contains(name) || self.prefixes.iter().any(has_prefix)
    }
}

/// What the system knows of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "AWS's names")]
pub enum SystemAttribute {
    ApproximateFirstReceiveTimestamp,
    ApproximateReceiveCount,
    AWSTraceHeader,
    DeadLetterQueueSourceArn,
    MessageDeduplicationId,
    MessageGroupId,
    SenderId,
    SentTimestamp,
    SequenceNumber,
}

impl SystemAttribute {
    /// All of them.
    pub const ALL: [SystemAttribute; 9] = [
        SystemAttribute::ApproximateFirstReceiveTimestamp,
        SystemAttribute::ApproximateReceiveCount,
        SystemAttribute::AWSTraceHeader,
        SystemAttribute::DeadLetterQueueSourceArn,
        SystemAttribute::MessageDeduplicationId,
        SystemAttribute::MessageGroupId,
        SystemAttribute::SenderId,
        SystemAttribute::SentTimestamp,
        SystemAttribute::SequenceNumber,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            SystemAttribute::ApproximateFirstReceiveTimestamp => "ApproximateFirstReceiveTimestamp",
            SystemAttribute::ApproximateReceiveCount => "ApproximateReceiveCount",
            SystemAttribute::AWSTraceHeader => "AWSTraceHeader",
            SystemAttribute::DeadLetterQueueSourceArn => "DeadLetterQueueSourceArn",
            SystemAttribute::MessageDeduplicationId => "MessageDeduplicationId",
            SystemAttribute::MessageGroupId => "MessageGroupId",
            SystemAttribute::SenderId => "SenderId",
            SystemAttribute::SentTimestamp => "SentTimestamp",
            SystemAttribute::SequenceNumber => "SequenceNumber",
        }
    }
}

/// Which system attributes a receiver wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemAttributeFilter(BTreeSet<SystemAttribute>);

impl SystemAttributeFilter {
    /// What these names ask for; `All` is all. Others are passed over, as AWS does: the older list
    /// of the two, AttributeNames, was for names of queue attributes too.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a String>) -> SystemAttributeFilter {
        let mut selected = BTreeSet::new();
        for name in names {
            let named = |attribute: &SystemAttribute| name == "All" || attribute.name() == name;
            selected.extend(SystemAttribute::ALL.into_iter().filter(named));
        }
        SystemAttributeFilter(selected)
    }

    /// Whether it asks for this one.
    pub fn selects(&self, attribute: SystemAttribute) -> bool {
        self.0.contains(&attribute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> AttributeValue {
        AttributeValue::Text(value.to_owned())
    }

    #[test]
    fn names_follow_aws_rules() {
        for name in ["a", "A_b-c.d", "AWSx", "amazon", &"a".repeat(256)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let refusal = |name: &str| check_name(name).unwrap_err().message().to_owned();
        let reserved = refusal("AWS.x");
        assert!(
            reserved.starts_with("You can't use message attribute names beginning with 'AWS.'")
        );
        for name in ["aws.x", "Amazon.x", "AMAZON.", ".a", "a.", "a..b"] {
            assert_eq!(refusal(name), reserved, "{name}");
        }
        assert_eq!(
            refusal("ä"),
            "Message (user) attributes name can only contain upper and lower score characters, \
             digits, periods, hyphens and underscores. "
        );
        assert_eq!(
            refusal(&"a".repeat(257)),
            "Message (user) attribute name must be shorter than 256 bytes."
        );
        assert_eq!(
            refusal(""),
            "The request must contain non-empty message (user) attribute names."
        );
    }

    #[test]
    fn numbers_are_decimal_and_have_at_most_38_digits() {
        let digits = |count: usize| "9".repeat(count);
        for number in ["0", "-1", "+1.5", ".5", "5.", "1e5", "1.5E-128", "1e126", "000", "0e999999"]
        {
            assert!(is_number(number), "{number}");
        }
        assert!(is_number(&digits(38)) && is_number(&(digits(38) + "000")));
        assert!(is_number(&format!("0.{}{}", "0".repeat(100), digits(10))));
        for text in
            ["", "a", "1a", "1e", "e1", ".", "-", "1e127", "1e-129", "1 ", "١", "1e99999999999"]
        {
            assert!(!is_number(text), "{text:?}");
        }
        assert!(!is_number(&digits(39)));
    }

    #[test]
    fn values_are_of_their_type_and_not_empty() {
        let mut attributes = MessageAttributes::default();
        assert!(attributes.insert("a", "String.label", text("x")));
        assert!(attributes.insert("b", "Number", text("1")));
        assert!(attributes.insert("c", "Binary", AttributeValue::Binary(vec![0])));
        assert!(!attributes.insert("d", "Number", text("x")));
        assert!(!attributes.insert("d", "String", text("")));
        assert!(!attributes.insert("d", "String", text("\u{1}")));
        assert!(!attributes.insert("d", "String", AttributeValue::Binary(vec![0])));
        assert!(!attributes.insert("d", "Text", text("x")));
        assert_eq!(attributes.len(), 3);
        assert_eq!(attributes.size_bytes(), 3 + 12 + 6 + 6 + 3);
    }

    #[test]
    fn filters_select_all_by_prefix_or_by_name() {
        let selects = |filter: &[&str], name| {
            AttributeFilter::new(filter.iter().map(ToString::to_string).collect()).selects(name)
        };
        for all in ["All", ".*", "*"] {
            assert!(selects(&[all], "Hello"));
        }
        assert!(selects(&["Hel.*"], "Hello") && selects(&["Hel.*"], "Help.Me"));
        assert!(!selects(&["Hel.*"], "General") && !selects(&[], "Hello"));
        assert!(selects(&["other", "Hello"], "Hello") && !selects(&["hello"], "Hello"));
    }

    #[test]
    fn unknown_system_attributes_are_passed_over() {
        let filter = SystemAttributeFilter::new(&["SenderId".to_owned(), "Policy".to_owned()]);
        let selected = SystemAttribute::ALL.into_iter().filter(|one| filter.selects(*one));
        assert_eq!(selected.collect::<Vec<_>>(), [SystemAttribute::SenderId]);
        let all = SystemAttributeFilter::new(&["All".to_owned()]);
        assert!(SystemAttribute::ALL.into_iter().all(|one| all.selects(one)));
    }
}
