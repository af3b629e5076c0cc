//! The value of a task's record.

use towpath_model::{FoldError, Offset, PartitionIndex, Timestamp, TopicName, Uuid};

use super::bytes::{Reader, Writer};
use crate::task::{Task, TaskFailure, TaskKind, TaskProgress, TaskQueue, TaskState};

/// Where there is no bound.
const NONE: i64 = -1;

pub(super) fn write_task<'w>(out: &'w mut Writer, task: &Task) -> &'w mut Writer {
    let (state, why) = match task.state {
        TaskState::Running => (0, 0),
        TaskState::Paused => (1, 0),
        TaskState::Cancelled => (2, 0),
        TaskState::Done => (3, 0),
        TaskState::Failed(TaskFailure::SourceDeleted) => (4, 0),
        TaskState::Failed(TaskFailure::DestinationDeleted) => (4, 1),
        TaskState::Failed(TaskFailure::Unreadable) => (4, 2),
        TaskState::Failed(TaskFailure::NotDeletable) => (4, 3),
        TaskState::Failed(TaskFailure::NotTaken) => (4, 4),
        TaskState::Failed(TaskFailure::Subscribed) => (4, 5),
    };
    out.u8(match task.kind {
        TaskKind::Redrive => 0,
        TaskKind::Drop => 1,
        TaskKind::Retire => 2,
    });
    write_queue(out, &task.source);
    let destinations: Vec<&TaskQueue> = task.destination.iter().collect();
    out.list(&destinations, |out, queue| write_queue(out, queue))
        .text(&task.filter)
        .i64(task.messages_max.map_or(NONE, number))
        .i64(task.rate.map_or(NONE, i64::from))
        .i64(i64::from(task.redrives_max))
        .text(&task.by)
        .i64(task.started_at.0)
        .u8(state)
        .u8(why)
        .i64(task.changed_at.0)
        .text(&task.changed_by)
        .i64(i64::from(task.run));
    let TaskProgress { to_look_at, looked_at, moved, passed_over, guarded, stranded, .. } =
        task.progress;
    for count in [to_look_at, looked_at, moved, passed_over, guarded, stranded] {
        out.i64(number(count));
    }
    let (partition, offset) = task.progress.at;
    out.list(&task.progress.ends, |out, end| out.i64(end.0))
        .i32(partition.0)
        .i64(offset.0)
        .list(&task.progress.in_hand, |out, offset| out.i64(offset.0))
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn write_queue<'w>(out: &'w mut Writer, queue: &TaskQueue) -> &'w mut Writer {
    out.uuid(queue.id).text(queue.name.as_str())
}

pub(super) fn read_task(id: Uuid, reader: &mut Reader<'_>) -> Result<Task, FoldError> {
    let kind = match reader.u8()? {
        0 => TaskKind::Redrive,
        1 => TaskKind::Drop,
        2 => TaskKind::Retire,
        other => return Err(FoldError(format!("task kind {other}"))),
    };
    Ok(Task {
        id,
        kind,
        source: read_queue(reader)?,
        destination: reader.list(read_queue)?.pop(),
        filter: reader.text()?,
        messages_max: u64::try_from(reader.i64()?).ok(),
        rate: u32::try_from(reader.i64()?).ok(),
        redrives_max: small(reader)?,
        by: reader.text()?,
        started_at: Timestamp(reader.i64()?),
        state: read_state(reader)?,
        changed_at: Timestamp(reader.i64()?),
        changed_by: reader.text()?,
        run: small(reader)?,
        progress: TaskProgress {
            to_look_at: count(reader)?,
            looked_at: count(reader)?,
            moved: count(reader)?,
            passed_over: count(reader)?,
            guarded: count(reader)?,
            stranded: count(reader)?,
            ends: reader.list(|reader| Ok(Offset(reader.i64()?)))?,
            at: (PartitionIndex(reader.i32()?), Offset(reader.i64()?)),
            in_hand: reader.list(|reader| Ok(Offset(reader.i64()?)))?,
        },
    })
}

fn read_state(reader: &mut Reader<'_>) -> Result<TaskState, FoldError> {
    Ok(match (reader.u8()?, reader.u8()?) {
        (0, 0) => TaskState::Running,
        (1, 0) => TaskState::Paused,
        (2, 0) => TaskState::Cancelled,
        (3, 0) => TaskState::Done,
        (4, 0) => TaskState::Failed(TaskFailure::SourceDeleted),
        (4, 1) => TaskState::Failed(TaskFailure::DestinationDeleted),
        (4, 2) => TaskState::Failed(TaskFailure::Unreadable),
        (4, 3) => TaskState::Failed(TaskFailure::NotDeletable),
        (4, 4) => TaskState::Failed(TaskFailure::NotTaken),
        (4, 5) => TaskState::Failed(TaskFailure::Subscribed),
        other => return Err(FoldError(format!("task state {other:?}"))),
    })
}

fn read_queue(reader: &mut Reader<'_>) -> Result<TaskQueue, FoldError> {
    let (id, name) = (reader.uuid()?, reader.text()?);
    let name = TopicName::new(&name).map_err(|refusal| FoldError(refusal.to_string()))?;
    Ok(TaskQueue { id, name })
}

fn count(reader: &mut Reader<'_>) -> Result<u64, FoldError> {
    let value = reader.i64()?;
    u64::try_from(value).map_err(|_| FoldError(format!("the count {value}")))
}

fn small(reader: &mut Reader<'_>) -> Result<u32, FoldError> {
    let value = reader.i64()?;
    u32::try_from(value).map_err(|_| FoldError(format!("the number {value}")))
}
