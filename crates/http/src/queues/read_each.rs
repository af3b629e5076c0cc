//! Reads messages of a partition such that one that is damaged keeps no other from being read.

use std::collections::{BTreeMap, BTreeSet};

use towpath_driver::FetchRefusal;
use towpath_model::{Offset, TopicPartition};
use towpath_server::{NotRead, ReadMessages, StoredMessage};

use crate::app::App;

/// What could be read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) found: BTreeMap<Offset, StoredMessage>,
    /// They cannot be read, here at least.
    pub(crate) damaged: BTreeSet<Offset>,
    /// They are not there any more.
    pub(crate) gone: BTreeSet<Offset>,
    /// The first one that was not tried, because there was enough already.
    pub(crate) cut: Option<Offset>,
}

/// Reads messages in ascending order, until there are `bytes_max` bytes of them.
///
/// # Errors
/// When the partition cannot be read at all.
pub(crate) async fn read_each(
    app: &App,
    id: TopicPartition,
    offsets: &[Offset],
    bytes_max: usize,
) -> Result<Read, NotRead> {
    match app.node.read_messages(id, offsets, bytes_max).await {
        Ok(ReadMessages { found, gone }) => {
            let bytes: usize = found.values().map(StoredMessage::bytes).sum();
            let last = found.keys().next_back().copied().filter(|_| bytes_max <= bytes);
            let cut = last.and_then(|last| offsets.iter().copied().filter(|at| last < *at).min());
            return Ok(Read { found, gone, damaged: BTreeSet::new(), cut });
        }
        Err(NotRead::Fetch(FetchRefusal::Corrupt(_))) => {}
        Err(error) => return Err(error),
    }
    let (mut read, mut bytes) = (Read::default(), 0);
    for offset in offsets.iter().copied().collect::<BTreeSet<Offset>>() {
        if bytes_max <= bytes {
            read.cut = Some(offset);
            break;
        }
        match app.node.read_messages(id, &[offset], bytes_max).await {
            Ok(ReadMessages { found, mut gone }) => {
                read.gone.append(&mut gone);
                bytes += found.values().map(StoredMessage::bytes).sum::<usize>();
                read.found.extend(found);
            }
            Err(NotRead::Fetch(FetchRefusal::Corrupt(_))) => {
                read.damaged.insert(offset);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
