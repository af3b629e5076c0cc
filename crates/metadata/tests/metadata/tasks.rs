//! Long work on queues: who may start what, who works on it, and how it ends.

use towpath_metadata::{
    Effect, IN_HAND_MAX, Image, NewTask, Record, Refusal, Reply, Request, TASKS_ACTIVE_MAX,
    TASKS_KEPT, Task, TaskFailure, TaskKind, TaskOrder, TaskProgress, TaskReport, TaskState,
    TopicRef,
};
use towpath_model::{Offset, PartitionIndex, Timestamp, Uuid};

use crate::support::World;

/// A cluster with queues of these names.
fn with_queues(names: &[&str]) -> World {
    let mut world = World::new();
    names.iter().for_each(|name| create_queue(&mut world, name));
    world
}

fn create_queue(world: &mut World, name: &str) {
    let mut topic = world.topic(name);
    topic.configs = vec![("queue.enable".to_owned(), Some("true".to_owned()))];
    world.create(topic).unwrap();
}

/// Asks as another broker does, by bytes.
fn ask(world: &mut World, request: Request) -> Result<Task, Refusal> {
    let sent = postcard::to_allocvec(&request).unwrap();
    let reply = world.ask(postcard::from_bytes(&sent).unwrap());
    let sent = postcard::to_allocvec(&reply).unwrap();
    match postcard::from_bytes(&sent).unwrap() {
        Reply::Task(result) => result.map(|task| *task),
        other => panic!("{other:?}"),
    }
}

fn start_as(
    world: &mut World,
    source: &str,
    to: Option<&str>,
    change: impl FnOnce(&mut NewTask),
) -> Result<Task, Refusal> {
    let mut asked = NewTask {
        candidate_id: world.draw(),
        kind: TaskKind::Redrive,
        source: source.to_owned(),
        destination: to.map(str::to_owned),
        filter: String::new(),
        messages_max: Some(10),
        rate: Some(0),
        redrives_max: 3,
        by: "ada".to_owned(),
    };
    change(&mut asked);
    ask(world, Request::StartTask(asked))
}

fn start(world: &mut World, source: &str, to: Option<&str>) -> Result<Task, Refusal> {
    start_as(world, source, to, |_| {})
}

fn order(world: &mut World, id: Uuid, order: TaskOrder) -> Result<Task, Refusal> {
    ask(world, Request::OrderTask { id, order, by: "eve".to_owned() })
}

fn report(
    world: &mut World,
    task: &Task,
    moved: u64,
    end: Option<TaskState>,
) -> Result<Task, Refusal> {
    let progress = TaskProgress {
        moved,
        ends: vec![Offset(9)],
        at: (PartitionIndex(0), Offset(4)),
        in_hand: vec![Offset(2), Offset(3)],
        ..TaskProgress::default()
    };
    let report = TaskReport { id: task.id, run: task.run, progress, end };
    ask(world, Request::ReportTask(report))
}

fn delete(world: &mut World, name: &str) {
    let topic = TopicRef { name: Some(name.to_owned()), id: None };
    world.ask(Request::DeleteTopics(vec![topic]));
}

fn state(world: &World, task: &Task) -> TaskState {
    world.image().task(task.id).unwrap().state.clone()
}

#[test]
fn a_task_is_a_record_that_survives_the_controller() {
    let mut world = with_queues(&["dead", "orders"]);
    world.now.wall = Timestamp(77);
    let task = start(&mut world, "dead", Some("orders")).unwrap();
    assert_eq!((task.state.clone(), task.run, task.rate), (TaskState::Running, 0, None));
    assert_eq!((task.started_at, task.changed_at), (Timestamp(77), Timestamp(77)));
    let taken = ask(&mut world, Request::TakeTask { id: task.id, run: 0 }).unwrap();
    let told = report(&mut world, &taken, 5, None).unwrap();
    assert_eq!((told.run, told.progress.moved), (1, 5));
    for later in [world.replayed(), world.compacted()] {
        assert_eq!(later.image().task(task.id), Some(&told));
    }
    let mut image = towpath_metadata::Image::new(towpath_model::BrokerId(1), Default::default());
    world.image().to_records().for_each(|record| image.apply(&record));
    assert_eq!(image.task(task.id), Some(&told), "a snapshot has it");
}

#[test]
fn one_task_takes_from_a_queue_at_a_time() {
    let mut world = with_queues(&["dead", "orders", "other"]);
    let task = start(&mut world, "dead", Some("orders")).unwrap();
    let active = Refusal::TaskActive { queue: "dead".to_owned(), task: task.id };
    assert_eq!(start(&mut world, "dead", None), Err(active.clone()));
    order(&mut world, task.id, TaskOrder::Pause).unwrap();
    assert_eq!(start(&mut world, "dead", Some("other")), Err(active));
    order(&mut world, task.id, TaskOrder::Cancel).unwrap();
    start(&mut world, "dead", Some("other")).unwrap();
}

#[test]
fn messages_do_not_go_in_a_circle() {
    let mut world = with_queues(&["a", "b", "c"]);
    assert_eq!(start(&mut world, "a", Some("a")), Err(Refusal::TaskToItself("a".to_owned())));
    let first = start(&mut world, "a", Some("b")).unwrap();
    assert_eq!(start(&mut world, "b", Some("a")), Err(Refusal::TaskCircle { task: first.id }));
    start(&mut world, "b", Some("c")).unwrap();
    assert!(matches!(start(&mut world, "c", Some("a")), Err(Refusal::TaskCircle { .. })));
    order(&mut world, first.id, TaskOrder::Cancel).unwrap();
    start(&mut world, "c", Some("a")).unwrap();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = with_queues(&["dead"]);
    world.create_named("log");
    assert_eq!(start(&mut world, "gone", None), Err(Refusal::UnknownQueue("gone".to_owned())));
    assert_eq!(start(&mut world, "dead", Some("log")), Err(Refusal::NotAQueue("log".to_owned())));
    let nameless = start_as(&mut world, "dead", None, |asked| asked.by = " ".to_owned());
    assert_eq!(nameless, Err(Refusal::InvalidTask));
    let long = start_as(&mut world, "dead", None, |asked| asked.filter = "x".repeat(20_000));
    assert_eq!(long, Err(Refusal::InvalidTask));
    let id = world.draw();
    assert_eq!(order(&mut world, id, TaskOrder::Pause), Err(Refusal::UnknownTask(id)));
    let task = start(&mut world, "dead", None).unwrap();
    let in_hand = vec![Offset(0); IN_HAND_MAX + 1];
    let progress = TaskProgress { in_hand, ..TaskProgress::default() };
    let report = TaskReport { id: task.id, run: 0, progress, end: None };
    assert_eq!(ask(&mut world, Request::ReportTask(report)), Err(Refusal::InvalidTask));
}

#[test]
fn a_task_is_paused_resumed_and_cancelled_and_repeating_it_is_no_error() {
    let mut world = with_queues(&["dead"]);
    let task = start(&mut world, "dead", None).unwrap();
    world.now.wall = Timestamp(5);
    let paused = order(&mut world, task.id, TaskOrder::Pause).unwrap();
    assert_eq!((&paused.state, paused.changed_at), (&TaskState::Paused, Timestamp(5)));
    assert_eq!(paused.changed_by, "eve");
    world.now.wall = Timestamp(6);
    assert_eq!(order(&mut world, task.id, TaskOrder::Pause).unwrap(), paused);
    assert!(ask(&mut world, Request::TakeTask { id: task.id, run: 0 }).is_err());
    let resumed = order(&mut world, task.id, TaskOrder::Resume).unwrap();
    assert_eq!(resumed.state, TaskState::Running);
    let cancelled = order(&mut world, task.id, TaskOrder::Cancel).unwrap();
    assert_eq!(order(&mut world, task.id, TaskOrder::Cancel).unwrap(), cancelled);
    let over = order(&mut world, task.id, TaskOrder::Resume).unwrap_err();
    assert_eq!(over.to_string(), format!("task {} is cancelled", task.id));
    // What was in hand was moved all the same, and it stays cancelled.
    let told = report(&mut world, &task, 3, Some(TaskState::Done)).unwrap();
    assert_eq!((told.state, told.progress.moved), (TaskState::Cancelled, 3));
}

#[test]
fn only_the_last_broker_that_took_a_task_reports() {
    let mut world = with_queues(&["dead"]);
    let task = start(&mut world, "dead", None).unwrap();
    let first = ask(&mut world, Request::TakeTask { id: task.id, run: 0 }).unwrap();
    let second = ask(&mut world, Request::TakeTask { id: task.id, run: 1 }).unwrap();
    let taken = Refusal::TaskTaken { task: task.id, run: 2 };
    assert_eq!(ask(&mut world, Request::TakeTask { id: task.id, run: 1 }), Err(taken.clone()));
    assert_eq!(report(&mut world, &first, 1, None), Err(taken));
    report(&mut world, &second, 1, Some(TaskState::Done)).unwrap();
    assert_eq!(state(&world, &task), TaskState::Done);
}

#[test]
fn a_task_ends_with_its_queues() {
    let mut world = with_queues(&["dead", "dead2", "orders"]);
    let from = start(&mut world, "dead", None).unwrap();
    let to = start(&mut world, "dead2", Some("orders")).unwrap();
    world.now.wall = Timestamp(9);
    delete(&mut world, "orders");
    assert_eq!(state(&world, &to), TaskState::Failed(TaskFailure::DestinationDeleted));
    assert_eq!(state(&world, &from), TaskState::Running);
    delete(&mut world, "dead");
    assert_eq!(state(&world, &from), TaskState::Failed(TaskFailure::SourceDeleted));
    assert_eq!(world.image().task(from.id).unwrap().changed_at, Timestamp(9));
    // What ended stays as it ended.
    delete(&mut world, "dead2");
    assert_eq!(state(&world, &to), TaskState::Failed(TaskFailure::DestinationDeleted));
}

#[test]
fn a_queue_is_deleted_in_the_moment_in_which_its_task_has_emptied_it() {
    let mut world = with_queues(&["orders", "dead", "dead2"]);
    let retire = |asked: &mut NewTask| asked.kind = TaskKind::Retire;
    assert_eq!(start_as(&mut world, "orders", None, retire), Err(Refusal::InvalidTask));
    let other = start(&mut world, "dead2", Some("orders")).unwrap();
    let task = start_as(&mut world, "orders", Some("dead"), retire).unwrap();
    report(&mut world, &task, 3, None).unwrap();
    assert!(world.image().topic("orders").is_some());
    report(&mut world, &task, 4, Some(TaskState::Done)).unwrap();
    assert!(world.image().topic("orders").is_none());
    assert_eq!(state(&world, &task), TaskState::Done);
    assert_eq!(state(&world, &other), TaskState::Failed(TaskFailure::DestinationDeleted));
    assert!(world.image().topic("dead").is_some());
    // Once is enough: a queue of that name is another one now.
    create_queue(&mut world, "orders");
    report(&mut world, &task, 4, Some(TaskState::Done)).unwrap();
    assert!(world.image().topic("orders").is_some());

    // Deleted by somebody else, it has not been emptied.
    let task = start_as(&mut world, "orders", Some("dead"), retire).unwrap();
    delete(&mut world, "orders");
    assert_eq!(state(&world, &task), TaskState::Failed(TaskFailure::SourceDeleted));
}

#[test]
fn a_queue_that_is_given_up_takes_nothing_as_long_as_its_task_is_active() {
    let mut world = with_queues(&["orders", "dead"]);
    let given_up = |world: &World, name: &str| {
        let config =
            |image: &Image| image.effective_config(image.topic(name).unwrap()).queue.given_up;
        let replayed = [world.replayed(), world.compacted()].map(|it| config(it.image()));
        assert_eq!(replayed, [config(world.image()); 2], "it is in the log");
        config(world.image())
    };
    let redrive = start(&mut world, "dead", Some("orders")).unwrap();
    assert!(!given_up(&world, "dead") && !given_up(&world, "orders"));
    order(&mut world, redrive.id, TaskOrder::Cancel).unwrap();
    let retire = |asked: &mut NewTask| asked.kind = TaskKind::Retire;
    let task = start_as(&mut world, "orders", Some("dead"), retire).unwrap();
    assert!(given_up(&world, "orders") && !given_up(&world, "dead"));
    let told = Record::Task(Box::new(task.clone()));
    assert_eq!(towpath_metadata::effect(&told), Effect::TopicConfigChanged(task.source.id));
    order(&mut world, task.id, TaskOrder::Pause).unwrap();
    assert!(given_up(&world, "orders"));
    order(&mut world, task.id, TaskOrder::Cancel).unwrap();
    assert!(!given_up(&world, "orders"));
    let task = start_as(&mut world, "orders", Some("dead"), retire).unwrap();
    delete(&mut world, "dead");
    assert_eq!(state(&world, &task), TaskState::Failed(TaskFailure::DestinationDeleted));
    assert!(!given_up(&world, "orders"));
}

#[test]
fn a_task_that_may_not_delete_its_queue_any_more_has_failed() {
    let mut world = with_queues(&["orders", "dead"]);
    let retire = |asked: &mut NewTask| asked.kind = TaskKind::Retire;
    let task = start_as(&mut world, "orders", Some("dead"), retire).unwrap();
    world.fail_over_to(&[("delete.topic.enable", "false")]);
    let told = report(&mut world, &task, 4, Some(TaskState::Done)).unwrap();
    assert_eq!(told.state, TaskState::Failed(TaskFailure::NotDeletable));
    assert!(TaskFailure::NotDeletable.text().contains("delete.topic.enable"));
    assert!(world.image().topic("orders").is_some());
    assert_eq!(world.compacted().image().task(task.id), Some(&told));
    let again = start_as(&mut world, "orders", Some("dead"), retire);
    assert_eq!(again, Err(Refusal::TopicDeletionDisabled));
}

#[test]
fn tasks_are_bounded_and_the_newest_that_are_over_are_kept() {
    let mut world = World::new();
    for at in 0..=TASKS_ACTIVE_MAX {
        create_queue(&mut world, &format!("q{at}"));
    }
    let started = |world: &mut World, at: usize| start(world, &format!("q{at}"), None);
    (0..TASKS_ACTIVE_MAX).for_each(|at| drop(started(&mut world, at).unwrap()));
    let refused = started(&mut world, TASKS_ACTIVE_MAX);
    assert_eq!(refused, Err(Refusal::TooManyTasks(TASKS_ACTIVE_MAX)));
    let active: Vec<Uuid> = world.image().tasks().map(|task| task.id).collect();
    active.iter().for_each(|id| drop(order(&mut world, *id, TaskOrder::Cancel).unwrap()));
    let mut last = Vec::new();
    for at in 0..TASKS_KEPT {
        world.now.wall = Timestamp(i64::try_from(at).unwrap() + 1);
        let task = started(&mut world, 0).unwrap();
        order(&mut world, task.id, TaskOrder::Cancel).unwrap();
        last.push(task.id);
    }
    assert_eq!(world.image().tasks().count(), TASKS_KEPT);
    assert!(last.iter().all(|id| world.image().task(*id).is_some()));
    assert!(world.compacted().image().tasks().eq(world.image().tasks()));
}
