//! Names of queues, and how requests point at them.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::limits::QUEUE_NAME_CHARS_MAX;
use crate::refusals;

const FIFO_SUFFIX: &str = ".fifo";

/// A queue's name: up to 80 of `A-Za-z0-9_-`, and `.fifo` at the end of those of FIFO queues, which
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(String);

impl QueueName {
    /// The name of a queue that is there or may be asked for.
    pub fn new(name: &str) -> Option<QueueName> {
        let stem = name.strip_suffix(FIFO_SUFFIX).unwrap_or(name);
        let fits = !stem.is_empty() && name.len() <= QUEUE_NAME_CHARS_MAX;
        (fits && stem.bytes().all(is_name_byte)).then(|| QueueName(name.to_owned()))
    }

    /// The name of a queue to be created, a FIFO queue or not.
    ///
    /// # Errors
    /// InvalidParameterValue: it has other characters, is too long, or its end is that of the other
    /// kind of queue.
    pub(crate) fn to_create(name: &str, is_fifo: bool) -> Result<QueueName, Error> {
        let named = QueueName::new(name).filter(|named| named.is_fifo() == is_fifo);
        named.ok_or_else(|| {
            Error::invalid_parameter(if is_fifo {
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or \
                 underscores, must end with .fifo suffix and be 1 to 80 in length"
            } else {
                "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in \
                 length"
            })
        })
    }

    /// Whether it is the name of a FIFO queue.
    pub fn is_fifo(&self) -> bool {
        self.0.ends_with(FIFO_SUFFIX)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What labels and batch entry ids are made of too.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// The queue that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReference {
    /// The account in the queue's URL, where it names one.
    pub account: Option<String>,
    /// Its name.
    pub name: QueueName,
}

impl QueueReference {
    /// Reads a QueueUrl. Only its path counts: the server is known under many names, and the client
    /// has reached it. A mere name is taken too, as AWS does.
    ///
    /// # Errors
    /// InvalidAddress: no path of a queue. QueueDoesNotExist: no queue can have this name.
    pub(crate) fn from_url(url: &str) -> Result<QueueReference, Error> {
        let path = match url.split_once("://") {
            Some((_scheme, rest)) => rest.find('/').map_or("", |slash| &rest[slash..]),
            None => url,
        };
        QueueReference::from_path(path)?.ok_or_else(|| {
            let message = format!("The address {url} is not valid for this endpoint.");
            Error::new(ErrorKind::InvalidAddress, message)
        })
    }

    /// Reads the path of a request: `/<account>/<queue>`, or `/queue/<queue>` (as LocalStack and
    /// ElasticMQ have it). `/` names no queue.
    ///
    /// # Errors
    /// QueueDoesNotExist: no queue can have this name.
    pub(crate) fn from_path(path: &str) -> Result<Option<QueueReference>, Error> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let (account, name) = match (segments.next(), segments.next(), segments.next()) {
            (None, ..) => return Ok(None),
            (Some(name), None, _) => (None, name),
            (Some("queue"), Some(name), None) => (None, name),
            (Some(account), Some(name), None) => (Some(account.to_owned()), name),
            (Some(_), Some(_), Some(_)) => return Ok(None),
        };
        let name = QueueName::new(name).ok_or_else(refusals::queue_does_not_exist)?;
        Ok(Some(QueueReference { account, name }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_of_fifo_queues_counts_and_stands_nowhere_else() {
        let long = |length: usize| "a".repeat(length);
        assert!(QueueName::new(&long(80)).is_some());
        assert!(QueueName::new(&long(81)).is_none());
        assert!(QueueName::new(&(long(75) + ".fifo")).is_some_and(|name| name.is_fifo()));
        assert!(QueueName::new(&(long(76) + ".fifo")).is_none());
        for wrong in ["", ".fifo", "a.b", "a.fifo.fifo", "a/b", "ä", "a b"] {
            assert_eq!(QueueName::new(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn names_to_create_are_refused_in_the_words_of_their_kind() {
        let refusal = |name, is_fifo| QueueName::to_create(name, is_fifo).unwrap_err().to_string();
        assert_eq!(
            refusal("a.fifo", false),
            "InvalidParameterValue: Can only include alphanumeric characters, hyphens, or \
             underscores. 1 to 80 in length"
        );
        assert_eq!(
            refusal("a", true),
            "InvalidParameterValue: The name of a FIFO queue can only include alphanumeric \
             characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in \
             length"
        );
    }

    #[test]
    fn only_the_path_of_a_queue_url_counts() {
        let read = |url| QueueReference::from_url(url).map(|queue| (queue.account, queue.name.0));
        let with_account = Ok((Some("000000000000".to_owned()), "jobs.fifo".to_owned()));
        assert_eq!(read("http://localhost:9324/000000000000/jobs.fifo"), with_account);
        assert_eq!(
            read("https://sqs.eu-west-1.amazonaws.com/000000000000/jobs.fifo"),
            with_account
        );
        assert_eq!(read("/000000000000/jobs.fifo"), with_account);
        assert_eq!(read("http://a/queue/jobs"), Ok((None, "jobs".to_owned())));
        assert_eq!(read("jobs"), Ok((None, "jobs".to_owned())));
        assert_eq!(
            read("http://a:1/").unwrap_err().to_string(),
            "InvalidAddress: The address http://a:1/ is not valid for this endpoint."
        );
        assert_eq!(read("http://a/1/2/3").unwrap_err().kind(), ErrorKind::InvalidAddress);
        assert_eq!(read("http://a/1/b.b").unwrap_err().kind(), ErrorKind::QueueDoesNotExist);
    }
}
