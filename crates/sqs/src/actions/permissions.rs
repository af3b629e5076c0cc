//! Statements of a queue's access policy: AddPermission, RemovePermission.

use serde_json::{Map, Value, json};

use crate::arn::QueueArn;
use crate::error::{Error, ErrorKind};
use crate::limits::{LABEL_CHARS_MAX, PERMISSION_ACTIONS_MAX};
use crate::queue_name::{QueueReference, is_name_byte};
use crate::refusals;
use crate::wire::Fields;

/// The actions that owners may let others carry out. `*` stands for all of them.
const GRANTABLE: [&str; 9] = [
    "*",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
];

/// Lets accounts carry out actions on a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddPermission {
    /// The queue.
    pub queue: QueueReference,
    /// What the permission is called: up to 80 of `A-Za-z0-9_-`.
    pub label: String,
    /// The accounts' numbers.
    pub accounts: Vec<String>,
    /// Names of actions, 1 to 7.
    pub actions: Vec<String>,
}

impl AddPermission {
    pub(super) fn read(fields: &mut Fields) -> Result<AddPermission, Error> {
        let queue = fields.queue()?;
        let label = label(fields)?;
        let accounts = fields.texts("AWSAccountIds", "AWSAccountId")?;
        let actions = fields.texts("Actions", "ActionName")?;
        if actions.is_empty() {
            return Err(Error::missing("Actions"));
        }
        if PERMISSION_ACTIONS_MAX < actions.len() {
            let found = actions.len();
            return Err(Error::new(
                ErrorKind::OverLimit,
                format!("{found} Actions were found, maximum allowed is {PERMISSION_ACTIONS_MAX}."),
            ));
        }
        if let Some(other) = actions.iter().find(|action| !GRANTABLE.contains(&action.as_str())) {
            return Err(Error::invalid_value(
                format!("SQS:{other}"),
                "ActionName",
                "Please refer to the appropriate WSDL for a list of valid actions. ",
            ));
        }
        let is_account = |account: &String| {
            !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit())
        };
        if accounts.is_empty() || !accounts.iter().all(is_account) {
            let shown = format!("[{}]", accounts.join(", "));
            return Err(Error::invalid_value(shown, "PrincipalId", "Unable to verify."));
        }
        Ok(AddPermission { queue, label, accounts, actions })
    }

    /// The policy of the queue `arn` with this permission: what to keep in place of `policy`.
    ///
    /// # Errors
    /// InvalidParameterValue: the policy has the label already.
    pub fn added_to(&self, policy: Option<&str>, arn: &QueueArn) -> Result<String, Error> {
        let mut policy = read(policy).unwrap_or_else(|| empty(arn));
        let statements = statements(&mut policy);
        if statements.iter().any(|statement| has_label(statement, &self.label)) {
            return Err(refusals::label_exists(&self.label));
        }
        let principal = |account| format!("arn:aws:iam::{account}:root");
        let principals = self.accounts.iter().map(principal).collect();
        let action = |name| format!("SQS:{name}");
        statements.push(json!({
            "Sid": self.label,
            "Effect": "Allow",
            "Principal": { "AWS": one_or_list(principals) },
            "Action": one_or_list(self.actions.iter().map(action).collect()),
            "Resource": arn.to_string(),
        }));
        Ok(Value::Object(policy).to_string())
    }
}

/// Takes a permission back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovePermission {
    /// The queue.
    pub queue: QueueReference,
    /// What the permission is called.
    pub label: String,
}

impl RemovePermission {
    pub(super) fn read(fields: &mut Fields) -> Result<RemovePermission, Error> {
        Ok(RemovePermission { queue: fields.queue()?, label: label(fields)? })
    }

    /// What to keep in place of `policy`: nothing, once no statement is left.
    ///
    /// # Errors
    /// InvalidParameterValue: the policy lacks the label.
    pub fn taken_from(&self, policy: Option<&str>) -> Result<Option<String>, Error> {
        let lacks = || refusals::label_does_not_exist(&self.label);
        let mut policy = read(policy).ok_or_else(lacks)?;
        let statements = statements(&mut policy);
        let before = statements.len();
        statements.retain(|statement| !has_label(statement, &self.label));
        if statements.len() == before {
            return Err(lacks());
        }
        let is_empty = statements.is_empty();
        Ok((!is_empty).then(|| Value::Object(policy).to_string()))
    }
}

fn label(fields: &mut Fields) -> Result<String, Error> {
    let label = fields.required("Label")?;
    if LABEL_CHARS_MAX < label.len() || !label.bytes().all(is_name_byte) {
        return Err(Error::invalid_value(
            &label,
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        ));
    }
    Ok(label)
}

fn read(policy: Option<&str>) -> Option<Map<String, Value>> {
    match serde_json::from_str(policy?) {
        Ok(Value::Object(policy)) => Some(policy),
        _ => None,
    }
}

fn empty(arn: &QueueArn) -> Map<String, Value> {
    let mut policy = Map::new();
    policy.insert("Version".to_owned(), json!("2008-10-17"));
    policy.insert("Id".to_owned(), json!(format!("{arn}/SQSDefaultPolicy")));
    policy
}

/// A policy with one statement may have it outside a list.
fn statements(policy: &mut Map<String, Value>) -> &mut Vec<Value> {
    let statement = policy.entry("Statement").or_insert_with(|| json!([]));
    if !statement.is_array() {
        *statement = json!([statement.take()]);
    }
    statement.as_array_mut().expect("made one just now")
}

fn has_label(statement: &Value, label: &str) -> bool {
    statement.get("Sid").and_then(Value::as_str) == Some(label)
}

fn one_or_list(mut texts: Vec<String>) -> Value {
    if texts.len() == 1 { json!(texts.remove(0)) } else { json!(texts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(label: &str) -> AddPermission {
        AddPermission {
            queue: QueueReference::from_url("jobs").unwrap(),
            label: label.to_owned(),
            accounts: vec!["111111111111".to_owned()],
            actions: vec!["ReceiveMessage".to_owned()],
        }
    }

    #[test]
    fn a_permission_is_a_statement_as_recorded_from_aws() {
        let arn = QueueArn::parse("arn:aws:sqs:us-east-1:123456789012:jobs").unwrap();
        let policy = permission("a").added_to(None, &arn).unwrap();
        let expected = json!({
            "Version": "2008-10-17",
            "Id": "arn:aws:sqs:us-east-1:123456789012:jobs/SQSDefaultPolicy",
            "Statement": [{
                "Sid": "a",
                "Effect": "Allow",
                "Principal": { "AWS": "arn:aws:iam::111111111111:root" },
                "Action": "SQS:ReceiveMessage",
                "Resource": "arn:aws:sqs:us-east-1:123456789012:jobs",
            }],
        });
        assert_eq!(serde_json::from_str::<Value>(&policy).unwrap(), expected);
        let again = permission("a").added_to(Some(&policy), &arn).unwrap_err();
        assert_eq!(
            again.message(),
            "Value a for parameter Label is invalid. Reason: Already exists."
        );
        let two = permission("b").added_to(Some(&policy), &arn).unwrap();
        let remove = |label: &str, policy: &str| {
            let queue = QueueReference::from_url("jobs").unwrap();
            RemovePermission { queue, label: label.to_owned() }.taken_from(Some(policy))
        };
        assert_eq!(remove("b", &two), Ok(Some(policy.clone())));
        assert_eq!(remove("a", &policy), Ok(None));
        assert_eq!(
            remove("c", &policy).unwrap_err().message(),
            "Value c for parameter Label is invalid. Reason: can't find label."
        );
    }
}
