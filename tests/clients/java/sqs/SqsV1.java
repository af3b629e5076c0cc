import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.amazonaws.AmazonServiceException;
import com.amazonaws.ClientConfiguration;
import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.client.builder.AwsClientBuilder.EndpointConfiguration;
import com.amazonaws.services.sqs.AmazonSQS;
import com.amazonaws.services.sqs.AmazonSQSClientBuilder;
import com.amazonaws.services.sqs.model.*;
import com.amazonaws.util.VersionInfoUtils;

/** The AWS SDK for Java 1: it posts to the queue's URL. */
final class SqsV1 implements Sqs {
    private final AmazonSQS sqs;

    public static void main(String[] args) {
        new Cycle("java1", SqsV1::new).run(VersionInfoUtils.getVersion());
    }

    SqsV1(String endpoint, String key, String secret) {
        sqs = AmazonSQSClientBuilder.standard()
                .withEndpointConfiguration(new EndpointConfiguration(endpoint, "us-east-1"))
                .withCredentials(new AWSStaticCredentialsProvider(new BasicAWSCredentials(key, secret)))
                .withClientConfiguration(new ClientConfiguration().withMaxErrorRetry(0))
                .build();
    }

    public String create(String name, Map<String, String> attributes) {
        return sqs.createQueue(new CreateQueueRequest(name).withAttributes(attributes)).getQueueUrl();
    }

    public String url(String name) {
        return sqs.getQueueUrl(name).getQueueUrl();
    }

    public List<String> list(String prefix, int page) {
        List<String> queues = new ArrayList<>();
        ListQueuesRequest request = new ListQueuesRequest(prefix).withMaxResults(page);
        do {
            ListQueuesResult answer = sqs.listQueues(request);
            queues.addAll(answer.getQueueUrls());
            request.setNextToken(answer.getNextToken());
        } while (request.getNextToken() != null);
        return queues;
    }

    public Map<String, String> attributes(String queue) {
        return sqs.getQueueAttributes(queue, List.of("All")).getAttributes();
    }

    public void set(String queue, Map<String, String> attributes) {
        sqs.setQueueAttributes(queue, attributes);
    }

    public void tag(String queue, Map<String, String> tags) {
        sqs.tagQueue(queue, tags);
    }

    public void untag(String queue, List<String> names) {
        sqs.untagQueue(queue, names);
    }

    public Map<String, String> tags(String queue) {
        return sqs.listQueueTags(queue).getTags();
    }

    private static Map<String, MessageAttributeValue> attributesOf(Out message) {
        Map<String, MessageAttributeValue> attributes = new HashMap<>();
        message.attributes().forEach((name, value) -> attributes.put(name, new MessageAttributeValue()
                .withDataType(value.type()).withStringValue(value.text()).withBinaryValue(value.bytes())));
        return attributes;
    }

    public Sent send(String queue, Out message) {
        SendMessageResult sent = sqs.sendMessage(new SendMessageRequest(queue, message.body())
                .withMessageAttributes(attributesOf(message)).withDelaySeconds(message.delay())
                .withMessageGroupId(message.group()).withMessageDeduplicationId(message.dedup()));
        return new Sent(sent.getMessageId(), sent.getSequenceNumber());
    }

    private static Batch batch(List<String> successful, List<BatchResultErrorEntry> failed) {
        Map<String, String> codes = new HashMap<>();
        failed.forEach(entry -> codes.put(entry.getId(), entry.getCode()));
        return new Batch(successful, codes);
    }

    public Batch sendBatch(String queue, List<Out> messages) {
        List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
        for (Out message : messages) {
            entries.add(new SendMessageBatchRequestEntry("" + entries.size(), message.body())
                    .withMessageAttributes(attributesOf(message)).withDelaySeconds(message.delay()));
        }
        SendMessageBatchResult sent = sqs.sendMessageBatch(queue, entries);
        return batch(sent.getSuccessful().stream().map(SendMessageBatchResultEntry::getId).toList(), sent.getFailed());
    }

    public List<In> receive(String queue, int wait, Integer visibility) {
        ReceiveMessageRequest request = new ReceiveMessageRequest(queue).withWaitTimeSeconds(wait).withVisibilityTimeout(visibility)
                .withMessageSystemAttributeNames("All").withMessageAttributeNames("All");
        List<In> messages = new ArrayList<>();
        for (Message message : sqs.receiveMessage(request).getMessages()) {
            Map<String, Attribute> attributes = new HashMap<>();
            message.getMessageAttributes().forEach((name, value) ->
                    attributes.put(name, new Attribute(value.getDataType(), value.getStringValue(), value.getBinaryValue())));
            messages.add(new In(message.getMessageId(), message.getReceiptHandle(), message.getBody(), message.getAttributes(), attributes));
        }
        return messages;
    }

    public void delete(String queue, String handle) {
        sqs.deleteMessage(queue, handle);
    }

    public Batch deleteBatch(String queue, List<String> handles) {
        List<DeleteMessageBatchRequestEntry> entries = new ArrayList<>();
        for (String handle : handles) entries.add(new DeleteMessageBatchRequestEntry("" + entries.size(), handle));
        DeleteMessageBatchResult deleted = sqs.deleteMessageBatch(queue, entries);
        return batch(deleted.getSuccessful().stream().map(DeleteMessageBatchResultEntry::getId).toList(), deleted.getFailed());
    }

    public void changeVisibility(String queue, String handle, int seconds) {
        sqs.changeMessageVisibility(queue, handle, seconds);
    }

    public void purge(String queue) {
        sqs.purgeQueue(new PurgeQueueRequest(queue));
    }

    public void deleteQueue(String queue) {
        sqs.deleteQueue(queue);
    }

    public List<String> sources(String deadLetterQueue) {
        return List.copyOf(sqs.listDeadLetterSourceQueues(new ListDeadLetterSourceQueuesRequest().withQueueUrl(deadLetterQueue)).getQueueUrls());
    }

    public String startMove(String sourceArn, Integer perSecond, String destinationArn) {
        return sqs.startMessageMoveTask(new StartMessageMoveTaskRequest().withSourceArn(sourceArn)
                .withMaxNumberOfMessagesPerSecond(perSecond).withDestinationArn(destinationArn)).getTaskHandle();
    }

    public List<Move> moves(String sourceArn) {
        List<Move> moves = new ArrayList<>();
        for (ListMessageMoveTasksResultEntry task : sqs.listMessageMoveTasks(new ListMessageMoveTasksRequest().withSourceArn(sourceArn)).getResults()) {
            moves.add(new Move(task.getTaskHandle(), task.getStatus(), task.getApproximateNumberOfMessagesMoved()));
        }
        return moves;
    }

    public long cancelMove(String handle) {
        return sqs.cancelMessageMoveTask(new CancelMessageMoveTaskRequest().withTaskHandle(handle)).getApproximateNumberOfMessagesMoved();
    }

    public Refusal refusal(RuntimeException error) {
        if (!(error instanceof AmazonServiceException answered)) throw error;
        return new Refusal(error.getClass().getSimpleName(), answered.getErrorCode(), answered.getStatusCode());
    }
}
