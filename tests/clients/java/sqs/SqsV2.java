import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.exception.AwsServiceException;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.core.util.VersionInfo;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.*;

/** The AWS SDK for Java 2. */
final class SqsV2 implements Sqs {
    private final SqsClient sqs;

    public static void main(String[] args) {
        new Cycle("java2", SqsV2::new).run(VersionInfo.SDK_VERSION);
    }

    SqsV2(String endpoint, String key, String secret) {
        sqs = SqsClient.builder()
                .endpointOverride(URI.create(endpoint)).region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create(key, secret)))
                .overrideConfiguration(options -> options.retryStrategy(retry -> retry.maxAttempts(1)))
                .build();
    }

    public String create(String name, Map<String, String> attributes) {
        return sqs.createQueue(r -> r.queueName(name).attributesWithStrings(attributes)).queueUrl();
    }

    public String url(String name) {
        return sqs.getQueueUrl(r -> r.queueName(name)).queueUrl();
    }

    public List<String> list(String prefix, int page) {
        return sqs.listQueuesPaginator(r -> r.queueNamePrefix(prefix).maxResults(page)).queueUrls().stream().toList();
    }

    public Map<String, String> attributes(String queue) {
        return sqs.getQueueAttributes(r -> r.queueUrl(queue).attributeNames(QueueAttributeName.ALL)).attributesAsStrings();
    }

    public void set(String queue, Map<String, String> attributes) {
        sqs.setQueueAttributes(r -> r.queueUrl(queue).attributesWithStrings(attributes));
    }

    public void tag(String queue, Map<String, String> tags) {
        sqs.tagQueue(r -> r.queueUrl(queue).tags(tags));
    }

    public void untag(String queue, List<String> names) {
        sqs.untagQueue(r -> r.queueUrl(queue).tagKeys(names));
    }

    public Map<String, String> tags(String queue) {
        return sqs.listQueueTags(r -> r.queueUrl(queue)).tags();
    }

    private static Map<String, MessageAttributeValue> attributesOf(Out message) {
        Map<String, MessageAttributeValue> attributes = new HashMap<>();
        message.attributes().forEach((name, value) -> attributes.put(name, MessageAttributeValue.builder()
                .dataType(value.type()).stringValue(value.text())
                .binaryValue(value.bytes() == null ? null : SdkBytes.fromByteBuffer(value.bytes())).build()));
        return attributes;
    }

    public Sent send(String queue, Out message) {
        SendMessageResponse sent = sqs.sendMessage(r -> r.queueUrl(queue).messageBody(message.body())
                .messageAttributes(attributesOf(message)).delaySeconds(message.delay())
                .messageGroupId(message.group()).messageDeduplicationId(message.dedup()));
        return new Sent(sent.messageId(), sent.sequenceNumber());
    }

    private static Batch batch(List<String> successful, List<BatchResultErrorEntry> failed) {
        Map<String, String> codes = new HashMap<>();
        failed.forEach(entry -> codes.put(entry.id(), entry.code()));
        return new Batch(successful, codes);
    }

    public Batch sendBatch(String queue, List<Out> messages) {
        List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
        for (Out message : messages) {
            entries.add(SendMessageBatchRequestEntry.builder().id("" + entries.size()).messageBody(message.body())
                    .messageAttributes(attributesOf(message)).delaySeconds(message.delay()).build());
        }
        SendMessageBatchResponse sent = sqs.sendMessageBatch(r -> r.queueUrl(queue).entries(entries));
        return batch(sent.successful().stream().map(SendMessageBatchResultEntry::id).toList(), sent.failed());
    }

    public List<In> receive(String queue, int wait, Integer visibility) {
        List<In> messages = new ArrayList<>();
        ReceiveMessageResponse received = sqs.receiveMessage(r -> r.queueUrl(queue).waitTimeSeconds(wait).visibilityTimeout(visibility)
                .messageSystemAttributeNames(MessageSystemAttributeName.ALL).messageAttributeNames("All"));
        for (Message message : received.messages()) {
            Map<String, Attribute> attributes = new HashMap<>();
            message.messageAttributes().forEach((name, value) -> attributes.put(name, new Attribute(
                    value.dataType(), value.stringValue(), value.binaryValue() == null ? null : value.binaryValue().asByteBuffer())));
            messages.add(new In(message.messageId(), message.receiptHandle(), message.body(), message.attributesAsStrings(), attributes));
        }
        return messages;
    }

    public void delete(String queue, String handle) {
        sqs.deleteMessage(r -> r.queueUrl(queue).receiptHandle(handle));
    }

    public Batch deleteBatch(String queue, List<String> handles) {
        List<DeleteMessageBatchRequestEntry> entries = new ArrayList<>();
        for (String handle : handles) {
            entries.add(DeleteMessageBatchRequestEntry.builder().id("" + entries.size()).receiptHandle(handle).build());
        }
        DeleteMessageBatchResponse deleted = sqs.deleteMessageBatch(r -> r.queueUrl(queue).entries(entries));
        return batch(deleted.successful().stream().map(DeleteMessageBatchResultEntry::id).toList(), deleted.failed());
    }

    public void changeVisibility(String queue, String handle, int seconds) {
        sqs.changeMessageVisibility(r -> r.queueUrl(queue).receiptHandle(handle).visibilityTimeout(seconds));
    }

    public void purge(String queue) {
        sqs.purgeQueue(r -> r.queueUrl(queue));
    }

    public void deleteQueue(String queue) {
        sqs.deleteQueue(r -> r.queueUrl(queue));
    }

    public List<String> sources(String deadLetterQueue) {
        return List.copyOf(sqs.listDeadLetterSourceQueues(r -> r.queueUrl(deadLetterQueue)).queueUrls());
    }

    public String startMove(String sourceArn, Integer perSecond, String destinationArn) {
        return sqs.startMessageMoveTask(r -> r.sourceArn(sourceArn).maxNumberOfMessagesPerSecond(perSecond).destinationArn(destinationArn)).taskHandle();
    }

    public List<Move> moves(String sourceArn) {
        return sqs.listMessageMoveTasks(r -> r.sourceArn(sourceArn)).results().stream()
                .map(task -> new Move(task.taskHandle(), task.status(), task.approximateNumberOfMessagesMoved())).toList();
    }

    public long cancelMove(String handle) {
        return sqs.cancelMessageMoveTask(r -> r.taskHandle(handle)).approximateNumberOfMessagesMoved();
    }

    public Refusal refusal(RuntimeException error) {
        if (!(error instanceof AwsServiceException answered)) throw error;
        return new Refusal(error.getClass().getSimpleName(), answered.awsErrorDetails().errorCode(), answered.statusCode());
    }
}
