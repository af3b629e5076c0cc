//! What the three batch actions have in common: 1 to 10 entries with distinct ids, each of which is
//! carried out or refused on its own.

use std::collections::BTreeSet;

use crate::error::{Error, ErrorKind};
use crate::limits::{BATCH_ENTRIES_MAX, BATCH_ENTRY_ID_CHARS_MAX};
use crate::queue_name::is_name_byte;
use crate::wire::{Fields, Writer};

/// An entry of a batch: what it asks for, or why that is refused whatever the queue says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchEntry<T> {
    /// What the client calls it, in this request.
    pub id: String,
    /// What it asks for.
    pub asked: Result<T, Error>,
}

/// An entry that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRefusal {
    /// The entry's id.
    pub id: String,
    /// Why.
    pub error: Error,
}

/// Reads the entries. `element` is their name in the Query encoding.
///
/// # Errors
/// None, more than ten, or ids that are invalid or not distinct: the whole request is refused. An
/// error of `read` refuses its entry only.
pub(super) fn read_entries<T>(
    fields: &mut Fields,
    element: &str,
    read: impl Fn(&mut Fields) -> Result<T, Error>,
) -> Result<Vec<BatchEntry<T>>, Error> {
    let entries = fields.structures("Entries", element)?;
    if entries.is_empty() {
        let message = format!("There should be at least one {element} in the request.");
        return Err(Error::new(ErrorKind::EmptyBatchRequest, message));
    }
    if BATCH_ENTRIES_MAX < entries.len() {
        return Err(Error::new(
            ErrorKind::TooManyEntriesInBatchRequest,
            format!(
                "Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {}.",
                entries.len()
            ),
        ));
    }
    let mut ids = BTreeSet::new();
    let mut read_entries = Vec::new();
    for mut entry in entries {
        let id = entry.text("Id")?.unwrap_or_default();
        check_id(&id)?;
        if !ids.insert(id.clone()) {
            let message = format!("Id {id} repeated.");
            return Err(Error::new(ErrorKind::BatchEntryIdsNotDistinct, message));
        }
        let asked = match read(&mut entry) {
            Err(error) if error.kind() == ErrorKind::MalformedInput => return Err(error),
            asked => asked,
        };
        read_entries.push(BatchEntry { id, asked });
    }
    Ok(read_entries)
}

fn check_id(id: &str) -> Result<(), Error> {
    let fits = (1..=BATCH_ENTRY_ID_CHARS_MAX).contains(&id.len());
    if fits && id.bytes().all(is_name_byte) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidBatchEntryId,
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It \
         can be at most 80 letters long.",
    ))
}

pub(super) fn write_ids(writer: &mut Writer, element: &str, ids: &[String]) {
    writer.structures("Successful", element, ids, |writer, id| writer.text("Id", id));
}

pub(super) fn write_failed(writer: &mut Writer, failed: &[BatchRefusal]) {
    writer.structures("Failed", "BatchResultErrorEntry", failed, |writer, refusal| {
        let kind = refusal.error.kind();
        writer.text("Id", &refusal.id);
        writer.flag("SenderFault", kind.is_senders_fault());
        writer.text("Code", &kind.code());
        writer.text("Message", refusal.error.message());
    });
}
