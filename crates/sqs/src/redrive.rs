//! Which queue takes a queue's dead letters, and whose dead letters a queue takes.

use serde_json::{Map, Value};

use crate::arn::QueueArn;
use crate::error::{Error, ErrorKind};
use crate::limits::{RECEIVES_BEFORE_DEAD, SOURCE_QUEUES_MAX};

/// The attribute RedrivePolicy: where messages go after too many receives.
#[derive(Debug, Clone)]
pub struct RedrivePolicy {
    /// As it was sent, for GetQueueAttributes.
    text: String,
    target: QueueArn,
    receive_count_max: u32,
}

/// The text does not count: AWS compares what it says.
impl PartialEq for RedrivePolicy {
    fn eq(&self, other: &RedrivePolicy) -> bool {
        (&self.target, self.receive_count_max) == (&other.target, other.receive_count_max)
    }
}

impl Eq for RedrivePolicy {}

impl RedrivePolicy {
    /// Reads `{"deadLetterTargetArn": "arn:…", "maxReceiveCount": 5}`; the number may be a text.
    ///
    /// # Errors
    /// InvalidParameterValue, in AWS's words.
    pub fn parse(text: &str) -> Result<RedrivePolicy, Error> {
        let Ok(Value::Object(policy)) = serde_json::from_str(text) else {
            return Err(Error::invalid_parameter(
                "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a \
                 valid JSON map.",
            ));
        };
        let invalid = |reason: &str| Error::invalid_value(text, "RedrivePolicy", reason);
        let mandatory = |name: &'static str| {
            policy.get(name).ok_or_else(|| {
                invalid(&format!("Redrive policy does not contain mandatory attribute: {name}."))
            })
        };
        let count = mandatory("maxReceiveCount")?;
        let target = mandatory("deadLetterTargetArn")?;
        let receive_count_max = receive_count(count).ok_or_else(|| {
            let shown = count.as_str().map_or_else(|| count.to_string(), ToOwned::to_owned);
            invalid(&format!(
                "Invalid value for maxReceiveCount: {shown}, valid values are from 1 to 1000 both \
                 inclusive."
            ))
        })?;
        let target = target.as_str().and_then(QueueArn::parse);
        let target = target.ok_or_else(|| invalid("Invalid value for deadLetterTargetArn."))?;
        if 2 < policy.len() {
            return Err(invalid(
                "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].",
            ));
        }
        Ok(RedrivePolicy { text: text.to_owned(), target, receive_count_max })
    }

    /// As it was sent.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The dead-letter queue.
    pub fn target(&self) -> &QueueArn {
        &self.target
    }

    /// How often a message is received at most, 1 to 1000; the next receive moves it.
    pub fn receive_count_max(&self) -> u32 {
        self.receive_count_max
    }
}

fn receive_count(value: &Value) -> Option<u32> {
    let count = match value {
        Value::String(text) => text.parse().ok()?,
        number => number.as_u64()?,
    };
    RECEIVES_BEFORE_DEAD.contains(&count).then_some(count as u32)
}

/// The attribute RedriveAllowPolicy of a dead-letter queue: which queues may name it as theirs.
#[derive(Debug, Clone)]
pub struct RedriveAllowPolicy {
    /// As it was sent, for GetQueueAttributes.
    text: String,
    permission: RedrivePermission,
}

/// Who may use a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedrivePermission {
    /// Every queue; also where there is no policy.
    AllowAll,
    /// No queue.
    DenyAll,
    /// These, 1 to 10.
    ByQueue(Vec<String>),
}

impl PartialEq for RedriveAllowPolicy {
    fn eq(&self, other: &RedriveAllowPolicy) -> bool {
        self.permission == other.permission
    }
}

impl Eq for RedriveAllowPolicy {}

impl RedriveAllowPolicy {
    /// Reads `{"redrivePermission": "byQueue", "sourceQueueArns": ["arn:…"]}`.
    ///
    /// # Errors
    /// InvalidAttributeValue or InvalidParameterValue, in AWS's words.
    pub fn parse(text: &str) -> Result<RedriveAllowPolicy, Error> {
        let policy = match serde_json::from_str(text) {
            Ok(Value::Object(policy)) => policy,
            _ => return Err(unsupported_format()),
        };
        let permission = permission(text, &policy)?;
        Ok(RedriveAllowPolicy { text: text.to_owned(), permission })
    }

    /// As it was sent.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the queue `source` may use the queue that has this policy.
    pub fn allows(&self, source: &QueueArn) -> bool {
        match &self.permission {
            RedrivePermission::AllowAll => true,
            RedrivePermission::DenyAll => false,
            RedrivePermission::ByQueue(arns) => arns.contains(&source.to_string()),
        }
    }

    /// Who may.
    pub fn permission(&self) -> &RedrivePermission {
        &self.permission
    }
}

fn permission(text: &str, policy: &Map<String, Value>) -> Result<RedrivePermission, Error> {
    let known = |key: &String| key == "redrivePermission" || key == "sourceQueueArns";
    let permission = policy.get("redrivePermission").and_then(Value::as_str);
    let permission = permission.filter(|_| policy.keys().all(known));
    let arns = match policy.get("sourceQueueArns") {
        None => None,
        Some(Value::Array(arns)) => {
            let arns = arns.iter().map(|arn| arn.as_str().map(ToOwned::to_owned));
            Some(arns.collect::<Option<Vec<String>>>().ok_or_else(unsupported_format)?)
        }
        Some(_) => return Err(unsupported_format()),
    };
    match (permission, arns) {
        (Some("allowAll"), None) => Ok(RedrivePermission::AllowAll),
        (Some("denyAll"), None) => Ok(RedrivePermission::DenyAll),
        (Some("allowAll" | "denyAll"), Some(_)) => Err(cannot_create(
            text,
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        )),
        (Some("byQueue"), Some(arns)) if SOURCE_QUEUES_MAX < arns.len() => Err(cannot_create(
            text,
            "The maximum number of source queue ARNs you can specify is 10.",
        )),
        (Some("byQueue"), Some(arns)) if !arns.is_empty() => Ok(RedrivePermission::ByQueue(arns)),
        (Some("byQueue"), _) => Err(cannot_create(
            text,
            "When you specify the byQueue permission type, you must also specify one or more \
             sourceQueueArns values.",
        )),
        _ => Err(unsupported_format()),
    }
}

fn cannot_create(text: &str, why: &str) -> Error {
    let reason = format!("Amazon SQS can't create the redrive allow policy. {why}");
    Error::invalid_value(text, "RedriveAllowPolicy", &reason)
}

fn unsupported_format() -> Error {
    Error::new(
        ErrorKind::InvalidAttributeValue,
        "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the \
         redrive allow policy, as it’s in an unsupported format.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:sqs:us-east-1:123456789012:dead";

    #[test]
    fn the_count_is_a_number_or_a_text() {
        let parse = |count: &str| {
            let text = format!(r#"{{"deadLetterTargetArn":"{ARN}","maxReceiveCount":{count}}}"#);
            RedrivePolicy::parse(&text).map(|policy| policy.receive_count_max())
        };
        assert_eq!(parse("3"), Ok(3));
        assert_eq!(parse("\"3\""), Ok(3));
        assert_eq!(parse("1000"), Ok(1000));
        for wrong in ["0", "1001", "-1", "1.5", "\"x\"", "null", "99999999999999999999"] {
            let message = parse(wrong).unwrap_err().message().to_owned();
            assert!(
                message.ends_with("valid values are from 1 to 1000 both inclusive."),
                "{wrong}"
            );
        }
    }

    #[test]
    fn policies_are_refused_in_words_that_clients_know() {
        let refusal = |text: &str| RedrivePolicy::parse(text).unwrap_err().message().to_owned();
        assert_eq!(
            refusal(r#"{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}"#),
            r#"Value {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42} for parameter RedrivePolicy is invalid. Reason: Invalid value for deadLetterTargetArn."#
        );
        assert_eq!(
            refusal("{}"),
            "Value {} for parameter RedrivePolicy is invalid. Reason: Redrive policy does not \
             contain mandatory attribute: maxReceiveCount."
        );
        assert_eq!(
            refusal("[]"),
            "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid \
             JSON map."
        );
        let more = format!(r#"{{"deadLetterTargetArn":"{ARN}","maxReceiveCount":1,"x":1}}"#);
        assert!(refusal(&more).contains("Only following attributes are supported"));
    }

    #[test]
    fn policies_are_equal_when_they_say_the_same() {
        let number = format!(r#"{{"deadLetterTargetArn":"{ARN}","maxReceiveCount":3}}"#);
        let text = format!(r#"{{ "maxReceiveCount":"3", "deadLetterTargetArn":"{ARN}" }}"#);
        let parse = |text: &str| RedrivePolicy::parse(text).unwrap();
        assert_eq!(parse(&number), parse(&text));
        assert_eq!(parse(&text).as_str(), text);
    }

    #[test]
    fn a_dead_letter_queue_says_whose_it_is() {
        let arn = QueueArn::parse(ARN).unwrap();
        let allows = |text: &str| RedriveAllowPolicy::parse(text).map(|policy| policy.allows(&arn));
        assert_eq!(allows(r#"{"redrivePermission":"allowAll"}"#), Ok(true));
        assert_eq!(allows(r#"{"redrivePermission":"denyAll"}"#), Ok(false));
        let by = |arns: &str| {
            allows(&format!(r#"{{"redrivePermission":"byQueue","sourceQueueArns":[{arns}]}}"#))
        };
        assert_eq!(by(&format!("\"{ARN}\"")), Ok(true));
        assert_eq!(by("\"arn:aws:sqs:us-east-1:123456789012:other\""), Ok(false));
        let ten = ["\"a\""; 10].join(",");
        assert_eq!(by(&ten), Ok(false));
        let refusal = |refused: Result<bool, Error>| refused.unwrap_err().message().to_owned();
        assert!(refusal(by(&(ten + ",\"a\""))).ends_with("you can specify is 10."));
        assert!(refusal(by("")).ends_with("one or more sourceQueueArns values."));
        assert!(
            refusal(allows(r#"{"redrivePermission":"denyAll","sourceQueueArns":["a"]}"#))
                .ends_with("you must set redrivePermission to byQueue.")
        );
        for wrong in ["", "{}", "[]", r#"{"redrivePermission":"x"}"#, r#"{"redrivePermission":1}"#]
        {
            assert!(refusal(allows(wrong)).ends_with("unsupported format."), "{wrong}");
        }
    }
}
