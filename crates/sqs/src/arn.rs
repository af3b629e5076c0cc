//! Names of queues across accounts and regions, as policies and move tasks use them.

use std::fmt;

use crate::queue_name::QueueName;

/// `arn:<partition>:sqs:<region>:<account>:<queue>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueArn {
    /// `aws`, or that of a separated AWS, such as `aws-cn`.
    pub partition: String,
    /// The region; any word.
    pub region: String,
    /// The account's number.
    pub account: String,
    /// The queue's name.
    pub name: QueueName,
}

impl QueueArn {
    /// Reads one; nothing if it is none of a queue.
    pub fn parse(text: &str) -> Option<QueueArn> {
        let mut parts = text.split(':');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let (Some("arn"), Some(partition), Some("sqs")) = (next(), next(), next()) else {
            return None;
        };
        let (region, account, name) = (next()?, next()?, next()?);
        let arn = QueueArn {
            partition: partition.to_owned(),
            region: region.to_owned(),
            account: account.to_owned(),
            name: QueueName::new(name)?,
        };
        parts.next().is_none().then_some(arn)
    }
}

impl fmt::Display for QueueArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueueArn { partition, region, account, name } = self;
        write!(f, "arn:{partition}:sqs:{region}:{account}:{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_of_a_queue_has_six_parts() {
        let text = "arn:aws:sqs:us-east-1:123456789012:jobs.fifo";
        assert_eq!(QueueArn::parse(text).unwrap().to_string(), text);
        for wrong in [
            "",
            "jobs",
            "arn:aws:sns:us-east-1:123456789012:jobs",
            "arn:aws:sqs:us-east-1:123456789012",
            "arn:aws:sqs:us-east-1::jobs",
            "arn:aws:sqs:us-east-1:123456789012:jobs:more",
            "arn:aws:sqs:us-east-1:123456789012:jo bs",
        ] {
            assert_eq!(QueueArn::parse(wrong), None, "{wrong:?}");
        }
    }
}
