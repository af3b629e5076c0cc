//! What a client can ask for.

/// The name of one of SQS's 23 actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "their names say what they are")]
pub enum Action {
    AddPermission,
    CancelMessageMoveTask,
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    CreateQueue,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ListDeadLetterSourceQueues,
    ListMessageMoveTasks,
    ListQueueTags,
    ListQueues,
    PurgeQueue,
    ReceiveMessage,
    RemovePermission,
    SendMessage,
    SendMessageBatch,
    SetQueueAttributes,
    StartMessageMoveTask,
    TagQueue,
    UntagQueue,
}

impl Action {
    /// All of them, by name.
    pub const ALL: [Action; 23] = [
        Action::AddPermission,
        Action::CancelMessageMoveTask,
        Action::ChangeMessageVisibility,
        Action::ChangeMessageVisibilityBatch,
        Action::CreateQueue,
        Action::DeleteMessage,
        Action::DeleteMessageBatch,
        Action::DeleteQueue,
        Action::GetQueueAttributes,
        Action::GetQueueUrl,
        Action::ListDeadLetterSourceQueues,
        Action::ListMessageMoveTasks,
        Action::ListQueueTags,
        Action::ListQueues,
        Action::PurgeQueue,
        Action::ReceiveMessage,
        Action::RemovePermission,
        Action::SendMessage,
        Action::SendMessageBatch,
        Action::SetQueueAttributes,
        Action::StartMessageMoveTask,
        Action::TagQueue,
        Action::UntagQueue,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Action::AddPermission => "AddPermission",
            Action::CancelMessageMoveTask => "CancelMessageMoveTask",
            Action::ChangeMessageVisibility => "ChangeMessageVisibility",
            Action::ChangeMessageVisibilityBatch => "ChangeMessageVisibilityBatch",
            Action::CreateQueue => "CreateQueue",
            Action::DeleteMessage => "DeleteMessage",
            Action::DeleteMessageBatch => "DeleteMessageBatch",
            Action::DeleteQueue => "DeleteQueue",
            Action::GetQueueAttributes => "GetQueueAttributes",
            Action::GetQueueUrl => "GetQueueUrl",
            Action::ListDeadLetterSourceQueues => "ListDeadLetterSourceQueues",
            Action::ListMessageMoveTasks => "ListMessageMoveTasks",
            Action::ListQueueTags => "ListQueueTags",
            Action::ListQueues => "ListQueues",
            Action::PurgeQueue => "PurgeQueue",
            Action::ReceiveMessage => "ReceiveMessage",
            Action::RemovePermission => "RemovePermission",
            Action::SendMessage => "SendMessage",
            Action::SendMessageBatch => "SendMessageBatch",
            Action::SetQueueAttributes => "SetQueueAttributes",
            Action::StartMessageMoveTask => "StartMessageMoveTask",
            Action::TagQueue => "TagQueue",
            Action::UntagQueue => "UntagQueue",
        }
    }

    /// The action with this name on the wire; names have one spelling.
    pub fn by_name(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }
}
