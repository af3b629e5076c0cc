//! Record batches of format v2 (KIP-98): the bytes in which Kafka's clients, our log and our own
//! state machines keep records, as borrowed views.
//!
//! This is the one place where bytes of strangers are decompressed. It knows nothing of partitions,
//! offsets to come or who may write; it only says what the bytes are. The surprise: the checksum
//! does not cover the first 21 bytes, so base offset and leader epoch are set in place, for nothing.
//!
//! ```text
//!  0 base offset i64      16 magic i8 = 2           27 base timestamp i64   53 base sequence i32
//!  8 batch length i32     17 CRC-32C u32            35 max timestamp i64    57 record count i32
//! 12 leader epoch i32     21 attributes i16         43 producer id i64      61 records, compressed
//!                         23 last offset delta i32  51 producer epoch i16      as one piece
//! ```

mod batches;
mod builder;
pub mod compression;
pub mod crc;
mod header;
mod invalid_batch;
pub mod partitioner;
mod recompress;
mod record;
mod retain;
mod scratch;
mod validate;
mod varint;

pub use batches::{Batch, Batches, Tail, split_batches};
pub use builder::{BatchBuilder, BuilderRefusal};
pub use compression::{Compression, CompressionError, Decompressor};
pub use crc::CrcMismatch;
pub use header::{
    BatchHeader, HEADER_LEN, HeaderError, LENGTH_PREFIX_LEN, TimestampType, set_base_offset,
    set_leader_epoch, set_log_append_time, set_max_timestamp,
};
pub use invalid_batch::{InvalidBatch, InvalidBatchClass, InvalidRecord, RecordProblem};
pub use recompress::{RecompressError, recompress};
pub use record::{Headers, MalformedRecord, Record, RecordIter, RecordsError, records};
pub use retain::{Fate, Remainder, RetainError, retain, without_records};
pub use scratch::Scratch;
pub use validate::{ProduceRules, Validated, validate_produced};
