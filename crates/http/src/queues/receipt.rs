//! Receipts as text: which delivery of which message, of which subscription, in which partition of which
//! queue. A queue that was deleted and created again does not know the receipts of the one before.
//!
//! ```text
//! base64url of: version (1 byte) │ topic id (16) │ partition (4) │ subscription (4) │ offset (8) │ lease (8)
//! ```

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use towpath_model::{Offset, PartitionIndex, TopicId, TopicPartition, Uuid};
use towpath_queue::Receipt;

use crate::api_error::{ApiError, Code};

const VERSION: u8 = 1;
const BYTES: usize = 1 + 16 + 4 + 4 + 8 + 8;
const TEXT_BYTES: usize = (BYTES * 4).div_ceil(3);

/// Proof of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueReceipt {
    pub(crate) topic: TopicId,
    pub(crate) partition: PartitionIndex,
    pub(crate) subscription: u32,
    pub(crate) receipt: Receipt,
}

impl QueueReceipt {
    pub(crate) fn place(&self) -> TopicPartition {
        TopicPartition { topic: self.topic, partition: self.partition }
    }
}

impl fmt::Display for QueueReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend(self.topic.0);
        bytes.extend(self.partition.0.to_be_bytes());
        bytes.extend(self.subscription.to_be_bytes());
        bytes.extend(self.receipt.offset.0.to_be_bytes());
        bytes.extend(self.receipt.lease.to_be_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for QueueReceipt {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<QueueReceipt, ApiError> {
        let read = (text.len() == TEXT_BYTES).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten();
        let receipt = read.and_then(|bytes| parse(&bytes));
        receipt.ok_or_else(|| {
            ApiError::new(Code::InvalidReceipt, "this is no receipt")
                .with_help("give back the `receipt` of a received message as it is")
        })
    }
}

fn parse(bytes: &[u8]) -> Option<QueueReceipt> {
    let (version, rest) = bytes.split_first()?;
    let (topic, rest) = rest.split_first_chunk::<16>()?;
    let (partition, rest) = rest.split_first_chunk()?;
    let (subscription, rest) = rest.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let lease = rest.try_into().ok()?;
    let receipt =
        Receipt { offset: Offset(i64::from_be_bytes(*offset)), lease: u64::from_be_bytes(lease) };
    let partition = PartitionIndex(i32::from_be_bytes(*partition));
    let subscription = u32::from_be_bytes(*subscription);
    let is_possible = *version == VERSION && 0 <= partition.0 && Offset::ZERO <= receipt.offset;
    is_possible.then_some(QueueReceipt { topic: Uuid(*topic), partition, subscription, receipt })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> QueueReceipt {
        QueueReceipt {
            topic: Uuid([7; 16]),
            partition: PartitionIndex(3),
            subscription: 2,
            receipt: Receipt { offset: Offset(1 << 40), lease: u64::MAX },
        }
    }

    #[test]
    fn a_receipt_survives_its_text() {
        let text = receipt().to_string();
        assert_eq!(text.parse::<QueueReceipt>().unwrap(), receipt());
    }

    #[test]
    fn what_is_no_receipt_is_refused() {
        let text = receipt().to_string();
        let negative = QueueReceipt { partition: PartitionIndex(-1), ..receipt() }.to_string();
        let other = format!("B{}", &text[1..]);
        for text in ["", "x", &text[1..], &format!("{text}A"), &negative, &other, "ü"] {
            let refused = text.parse::<QueueReceipt>().unwrap_err();
            assert_eq!(refused.code, Code::InvalidReceipt, "{text}");
        }
    }
}
