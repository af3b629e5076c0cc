//! Starting, ordering and reporting tasks.
//!
//! One task takes from a queue at a time, and no two pass the same messages round: the queues that active
//! tasks name form no circle. A task that names no destination is kept from that by its bound on how often
//! a message comes back.

use towpath_model::{Now, TopicId, Uuid};

use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;
use crate::task::{
    BY_BYTES_MAX, FILTER_BYTES_MAX, IN_HAND_MAX, NewTask, TASKS_ACTIVE_MAX, TASKS_KEPT, Task,
    TaskFailure, TaskKind, TaskOrder, TaskProgress, TaskQueue, TaskReport, TaskState,
};

impl Image {
    pub(crate) fn start_task(&self, now: Now, asked: NewTask) -> Decided {
        match self.new_task(now, asked) {
            Err(refusal) => (Vec::new(), Reply::Task(Err(refusal))),
            Ok(task) => {
                let mut records = self.forgotten_tasks();
                records.push(Record::Task(Box::new(task.clone())));
                (records, Reply::Task(Ok(Box::new(task))))
            }
        }
    }

    fn new_task(&self, now: Now, asked: NewTask) -> Result<Task, Refusal> {
        let is_named = !asked.by.trim().is_empty() && asked.by.len() <= BY_BYTES_MAX;
        if !is_named || FILTER_BYTES_MAX < asked.filter.len() {
            return Err(Refusal::InvalidTask);
        }
        let source = self.queue_of_task(&asked.source)?;
        let destination = asked.destination.as_deref().map(|name| self.queue_of_task(name));
        let destination = destination.transpose()?.filter(|_| asked.kind != TaskKind::Drop);
        if asked.kind == TaskKind::Retire {
            if destination.is_none() {
                return Err(Refusal::InvalidTask);
            }
            // Rather now than when everything has been moved.
            self.delete_by_id(source.id, &mut Vec::new())?;
        }
        if destination.as_ref().is_some_and(|to| to.id == source.id) {
            return Err(Refusal::TaskToItself(source.name.to_string()));
        }
        let active = || self.active_tasks();
        if let Some(task) = active().find(|task| task.source.id == source.id) {
            return Err(Refusal::TaskActive { queue: source.name.to_string(), task: task.id });
        }
        if let Some(task) = destination.as_ref().and_then(|to| self.leads_to(to.id, source.id)) {
            return Err(Refusal::TaskCircle { task: task.id });
        }
        if TASKS_ACTIVE_MAX <= active().count() {
            return Err(Refusal::TooManyTasks(TASKS_ACTIVE_MAX));
        }
        if self.task(asked.candidate_id).is_some() {
            return Err(Refusal::TaskIdTaken);
        }
        Ok(Task {
            id: asked.candidate_id,
            kind: asked.kind,
            source,
            destination,
            filter: asked.filter,
            messages_max: asked.messages_max,
            rate: asked.rate.filter(|rate| *rate != 0),
            redrives_max: asked.redrives_max,
            by: asked.by,
            started_at: now.wall,
            state: TaskState::Running,
            changed_at: now.wall,
            changed_by: String::new(),
            run: 0,
            progress: TaskProgress::default(),
        })
    }

    fn queue_of_task(&self, name: &str) -> Result<TaskQueue, Refusal> {
        let topic = self.topic(name).ok_or_else(|| Refusal::UnknownQueue(name.to_owned()))?;
        if !topic.is_queue() {
            return Err(Refusal::NotAQueue(name.to_owned()));
        }
        Ok(TaskQueue { id: topic.id, name: topic.name.clone() })
    }

    /// The task by which messages of `from` come to `to`, over others maybe. There is one task for each
    /// source, so there is one way.
    fn leads_to(&self, from: TopicId, to: TopicId) -> Option<&Task> {
        let mut from = from;
        for _ in 0..=TASKS_ACTIVE_MAX {
            let task = self.active_tasks().find(|task| task.source.id == from)?;
            from = task.destination.as_ref()?.id;
            if from == to {
                return Some(task);
            }
        }
        None
    }

    /// The oldest of those that are over go, so that there is room for one more.
    fn forgotten_tasks(&self) -> Vec<Record> {
        let mut over: Vec<&Task> = self.tasks().filter(|task| !task.state.is_active()).collect();
        let many = (over.len() + 1).saturating_sub(TASKS_KEPT);
        over.sort_by_key(|task| (task.changed_at, task.id));
        over.into_iter().take(many).map(|task| Record::TaskRemoved { id: task.id }).collect()
    }

    pub(crate) fn order_task(&self, now: Now, id: Uuid, order: TaskOrder, by: String) -> Decided {
        let task = match self.task(id) {
            None => return (Vec::new(), Reply::Task(Err(Refusal::UnknownTask(id)))),
            Some(task) => task,
        };
        if by.trim().is_empty() || BY_BYTES_MAX < by.len() {
            return (Vec::new(), Reply::Task(Err(Refusal::InvalidTask)));
        }
        let state = match (&task.state, order) {
            (TaskState::Running, TaskOrder::Pause) => TaskState::Paused,
            (TaskState::Paused, TaskOrder::Resume) => TaskState::Running,
            (TaskState::Running | TaskState::Paused, TaskOrder::Cancel) => TaskState::Cancelled,
            // It is so already.
            (TaskState::Paused, TaskOrder::Pause)
            | (TaskState::Running, TaskOrder::Resume)
            | (TaskState::Cancelled, TaskOrder::Cancel) => {
                return (Vec::new(), Reply::Task(Ok(Box::new(task.clone()))));
            }
            (state, _) => {
                let refusal = Refusal::TaskOver { task: id, state: state.name().to_owned() };
                return (Vec::new(), Reply::Task(Err(refusal)));
            }
        };
        let changed = Task { state, changed_at: now.wall, changed_by: by, ..task.clone() };
        changed_task(changed)
    }

    /// A broker takes a task on, after it has seen what `run` the task is in.
    pub(crate) fn take_task(&self, id: Uuid, run: u32) -> Decided {
        match self.task_of_run(id, run) {
            Err(refusal) => (Vec::new(), Reply::Task(Err(refusal))),
            Ok(task) if task.state != TaskState::Running => {
                let refusal = Refusal::TaskOver { task: id, state: task.state.name().to_owned() };
                (Vec::new(), Reply::Task(Err(refusal)))
            }
            Ok(task) => changed_task(Task { run: run.wrapping_add(1), ..task.clone() }),
        }
    }

    /// Whoever works on a task may say how far it is even after it was paused or cancelled: what it had in
    /// hand then was moved.
    pub(crate) fn report_task(&self, now: Now, report: TaskReport) -> Decided {
        let task = match self.task_of_run(report.id, report.run) {
            Err(refusal) => return (Vec::new(), Reply::Task(Err(refusal))),
            Ok(task) => task,
        };
        let TaskProgress { in_hand, ends, .. } = &report.progress;
        if IN_HAND_MAX < in_hand.len() || usize::from(u16::MAX) < ends.len() {
            return (Vec::new(), Reply::Task(Err(Refusal::InvalidTask)));
        }
        let mut changed = Task { progress: report.progress, ..task.clone() };
        let end = report.end.filter(|end| !end.is_active() && changed.state.is_active());
        if let Some(end) = end {
            (changed.state, changed.changed_at) = (end, now.wall);
        }
        let mut records = Vec::new();
        let is_retired = changed.kind == TaskKind::Retire && changed.state == TaskState::Done;
        if is_retired
            && task.state.is_active()
            && self.delete_by_id(changed.source.id, &mut records).is_err()
        {
            changed.state = TaskState::Failed(TaskFailure::NotDeletable);
        }
        let (task, reply) = changed_task(changed);
        records.extend(task);
        (records, reply)
    }

    fn delete_by_id(&self, id: TopicId, records: &mut Vec<Record>) -> Result<(), Refusal> {
        let topic = self.topic_by_id(id).ok_or(Refusal::UnknownTopicId)?;
        self.delete(topic, records).map(drop)
    }

    fn task_of_run(&self, id: Uuid, run: u32) -> Result<&Task, Refusal> {
        let task = self.task(id).ok_or(Refusal::UnknownTask(id))?;
        match task.run == run {
            true => Ok(task),
            false => Err(Refusal::TaskTaken { task: id, run: task.run }),
        }
    }

    /// Tasks whose queues go with these records end with them, but for those that end otherwise by them.
    pub(crate) fn tasks_ended_by(&self, now: Now, records: &[Record]) -> Vec<Record> {
        let is_gone = |id: TopicId| {
            let goes = |record: &Record| matches!(record, Record::TopicRemoved { id: gone } if *gone == id);
            records.iter().any(goes)
        };
        let failure = |task: &Task| match &task.destination {
            _ if is_gone(task.source.id) => Some(TaskFailure::SourceDeleted),
            Some(to) if is_gone(to.id) => Some(TaskFailure::DestinationDeleted),
            _ => None,
        };
        let is_told = |id: Uuid| {
            records.iter().any(|record| matches!(record, Record::Task(task) if task.id == id))
        };
        let others = self.active_tasks().filter(|task| !is_told(task.id));
        let ended = others.filter_map(|task| {
            let state = TaskState::Failed(failure(task)?);
            let task = Task { state, changed_at: now.wall, ..task.clone() };
            Some(Record::Task(Box::new(task)))
        });
        ended.collect()
    }
}

fn changed_task(task: Task) -> Decided {
    (vec![Record::Task(Box::new(task.clone()))], Reply::Task(Ok(Box::new(task))))
}
