// The AWS SDK for Go, version 2, against SQS. It checks the MD5 of bodies and of message attributes itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"towpath.dev/tests/clients/steps"
)

var (
	prefix   = "go-" + steps.Run
	endpoint = os.Getenv("SQS")
	all      = []types.QueueAttributeName{types.QueueAttributeNameAll}
)

func client(endpoint, key, secret string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint:     aws.String(endpoint),
		Region:           "us-east-1",
		RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}, nil
		}),
	})
}

// cycle is what the steps share. What fails inside of a step panics, and is told by the step.
type cycle struct {
	*sqs.Client
	ctx  context.Context
	main string
}

func must[T any](answer T, err error) T {
	if err != nil {
		panic(err)
	}
	return answer
}

func check(holds bool, format string, values ...any) {
	if !holds {
		panic(fmt.Errorf(format, values...))
	}
}

// until takes what steps.Until says.
func until(err error) {
	check(err == nil, "%v", err)
}

func step(name string, body func() string) {
	steps.Step(name, func() (detail string, err error) {
		defer func() {
			if problem := recover(); problem != nil {
				err = fmt.Errorf("%v", problem)
			}
		}()
		return body(), nil
	})
}

func (c *cycle) queue(name string, attributes map[string]string) string {
	made := must(c.CreateQueue(c.ctx, &sqs.CreateQueueInput{QueueName: aws.String(prefix + "-" + name), Attributes: attributes}))
	return *made.QueueUrl
}

func (c *cycle) attribute(queue string, name types.QueueAttributeName) string {
	answer := must(c.GetQueueAttributes(c.ctx, &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{name}}))
	return answer.Attributes[string(name)]
}

func (c *cycle) send(queue, body string) *sqs.SendMessageOutput {
	return must(c.SendMessage(c.ctx, &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body}))
}

// receive waits for `wait` seconds; the messages are hidden for `visibility` seconds.
func (c *cycle) receive(queue string, wait, visibility int32) []types.Message {
	answer := must(c.ReceiveMessage(c.ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &queue, WaitTimeSeconds: wait, VisibilityTimeout: visibility, MaxNumberOfMessages: 1,
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}))
	return answer.Messages
}

func (c *cycle) one(queue string) types.Message {
	messages := c.receive(queue, 5, 30)
	check(len(messages) == 1, "no message within 5 s")
	return messages[0]
}

func (c *cycle) delete(queue string, message types.Message) {
	must(c.DeleteMessage(c.ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: message.ReceiptHandle}))
}

// refused checks for the SDK's own type of an error, E, and for the name and status that came.
func refused[E error](code string, status int, err error) {
	var typed E
	check(errors.As(err, &typed), "%T, not %T: %v", err, typed, err)
	unmodelled(code, status, err)
}

func unmodelled(code string, status int, err error) {
	check(err != nil, "%s: not refused", code)
	var api smithy.APIError
	var answer *smithyhttp.ResponseError
	check(errors.As(err, &api) && errors.As(err, &answer), "%v", err)
	check(api.ErrorCode() == code && answer.HTTPStatusCode() == status, "not %s with %d: %v", code, status, err)
}

func main() {
	steps.Version("github.com/aws/aws-sdk-go-v2/service/sqs")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	c := &cycle{Client: client(endpoint, "any", "key"), ctx: ctx}
	c.queues()
	c.messages()
	c.times()
	c.fifo()
	c.deadLetters()
	c.ends()
	if signed := os.Getenv("SQS_SIGNED"); signed != "" {
		step("signatures", func() string { return signatures(ctx, signed) })
	}
	steps.Finish()
}

func (c *cycle) queues() {
	step("create", func() string {
		c.main = c.queue("main", map[string]string{"VisibilityTimeout": "30"})
		check(c.queue("main", map[string]string{"VisibilityTimeout": "30"}) == c.main, "the same queue has another URL")
		_, err := c.CreateQueue(c.ctx, &sqs.CreateQueueInput{QueueName: aws.String(prefix + "-main"), Attributes: map[string]string{"VisibilityTimeout": "31"}})
		refused[*types.QueueNameExists]("QueueAlreadyExists", 400, err)
		c.queue("main.fifo", map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"})
		return "standard and FIFO"
	})
	step("list", func() string {
		pages := sqs.NewListQueuesPaginator(c, &sqs.ListQueuesInput{QueueNamePrefix: &prefix, MaxResults: aws.Int32(1)})
		seen := map[string]bool{}
		for pages.HasMorePages() {
			page := must(pages.NextPage(c.ctx))
			check(len(page.QueueUrls) <= 1, "a page of %d", len(page.QueueUrls))
			for _, queue := range page.QueueUrls {
				seen[queue] = true
			}
		}
		check(len(seen) == 2, "%d queues", len(seen))
		found := must(c.GetQueueUrl(c.ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(prefix + "-main")}))
		check(*found.QueueUrl == c.main, "another URL: %s", *found.QueueUrl)
		return "by page, by name"
	})
	step("attributes", func() string {
		set := func(name, value string) error {
			_, err := c.SetQueueAttributes(c.ctx, &sqs.SetQueueAttributesInput{QueueUrl: &c.main, Attributes: map[string]string{name: value}})
			return err
		}
		check(set("VisibilityTimeout", "45") == nil, "not set")
		found := must(c.GetQueueAttributes(c.ctx, &sqs.GetQueueAttributesInput{QueueUrl: &c.main, AttributeNames: all})).Attributes
		check(found["VisibilityTimeout"] == "45" && strings.HasSuffix(found["QueueArn"], ":"+prefix+"-main"), "%v", found)
		refused[*types.InvalidAttributeValue]("InvalidAttributeValue", 400, set("DelaySeconds", "901"))
		return fmt.Sprintf("%d of a standard queue", len(found))
	})
	step("tags", func() string {
		must(c.TagQueue(c.ctx, &sqs.TagQueueInput{QueueUrl: &c.main, Tags: map[string]string{"a": "1", "b": "2"}}))
		must(c.UntagQueue(c.ctx, &sqs.UntagQueueInput{QueueUrl: &c.main, TagKeys: []string{"a"}}))
		tags := must(c.ListQueueTags(c.ctx, &sqs.ListQueueTagsInput{QueueUrl: &c.main})).Tags
		check(reflect.DeepEqual(tags, map[string]string{"b": "2"}), "%v", tags)
		return ""
	})
}

func (c *cycle) messages() {
	step("message", func() string {
		body := "täglich \U0001f6a2 <&>\n"
		attributes := map[string]types.MessageAttributeValue{
			"text":   {DataType: aws.String("String"), StringValue: aws.String("gelb ✓")},
			"number": {DataType: aws.String("Number"), StringValue: aws.String("-12.50")},
			"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 2, 255}},
			"kind":   {DataType: aws.String("String.own"), StringValue: aws.String("x")},
		}
		sent := must(c.SendMessage(c.ctx, &sqs.SendMessageInput{QueueUrl: &c.main, MessageBody: &body, MessageAttributes: attributes}))
		message := c.one(c.main)
		check(*message.MessageId == *sent.MessageId && *message.Body == body, "%s", *message.Body)
		check(reflect.DeepEqual(message.MessageAttributes, attributes), "%v", message.MessageAttributes)
		check(*message.MD5OfMessageAttributes == *sent.MD5OfMessageAttributes, "MD5 %s", *message.MD5OfMessageAttributes)
		check(message.Attributes["ApproximateReceiveCount"] == "1", "%v", message.Attributes)
		c.delete(c.main, message)
		check(len(c.receive(c.main, 0, 0)) == 0, "it is still there")
		return "four types of attributes"
	})
	step("batch", func() string {
		var entries []types.SendMessageBatchRequestEntry
		for i := range 10 {
			entry := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(fmt.Sprint(i))}
			if i == 3 {
				entry.DelaySeconds = 901
			}
			entries = append(entries, entry)
		}
		sent := must(c.SendMessageBatch(c.ctx, &sqs.SendMessageBatchInput{QueueUrl: &c.main, Entries: entries}))
		check(len(sent.Successful) == 9 && *sent.Failed[0].Id == "3" && sent.Failed[0].SenderFault, "%v", sent.Failed)
		var gone []types.DeleteMessageBatchRequestEntry
		for i := range 9 {
			gone = append(gone, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: c.one(c.main).ReceiptHandle})
		}
		gone = append(gone, types.DeleteMessageBatchRequestEntry{Id: aws.String("9"), ReceiptHandle: aws.String("no handle")})
		deleted := must(c.DeleteMessageBatch(c.ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &c.main, Entries: gone}))
		check(len(deleted.Successful) == 9 && *deleted.Failed[0].Code == "ReceiptHandleIsInvalid", "%v", deleted.Failed)
		entries[1].Id = entries[0].Id
		_, err := c.SendMessageBatch(c.ctx, &sqs.SendMessageBatchInput{QueueUrl: &c.main, Entries: entries})
		refused[*types.BatchEntryIdsNotDistinct]("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400, err)
		return "9 of 10 sent, 9 of 10 deleted"
	})
}

func (c *cycle) times() {
	step("delay", func() string {
		begin := time.Now()
		must(c.SendMessage(c.ctx, &sqs.SendMessageInput{QueueUrl: &c.main, MessageBody: aws.String("later"), DelaySeconds: 1}))
		c.delete(c.main, c.one(c.main))
		check(time.Since(begin) > 900*time.Millisecond, "after %v", time.Since(begin))
		return fmt.Sprintf("came after %.1f s", time.Since(begin).Seconds())
	})
	step("visibility", func() string {
		c.send(c.main, "again")
		first := c.receive(c.main, 5, 1)
		second := c.one(c.main)
		check(second.Attributes["ApproximateReceiveCount"] == "2", "%v", second.Attributes)
		c.delete(c.main, first[0])
		held := c.attribute(c.main, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible)
		check(held == "1", "an old handle deleted a newer delivery")
		change := func(message types.Message, seconds int32) error {
			_, err := c.ChangeMessageVisibility(c.ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &c.main, ReceiptHandle: message.ReceiptHandle, VisibilityTimeout: seconds})
			return err
		}
		check(change(second, 0) == nil, "not given back")
		third := c.one(c.main)
		c.delete(c.main, third)
		unmodelled("InvalidParameterValue", 400, change(third, 5))
		return "expires, ends at once, old handle worthless"
	})
	step("long-poll", func() string {
		begin := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { c.send(c.main, "wake") })
		messages := c.receive(c.main, 15, 30)
		check(len(messages) == 1 && time.Since(begin) < 8*time.Second, "%d messages after %v", len(messages), time.Since(begin))
		c.delete(c.main, messages[0])
		return fmt.Sprintf("woke after %.2f s", time.Since(begin).Seconds())
	})
}

func (c *cycle) fifo() {
	step("fifo", func() string {
		queue := c.queue("groups.fifo", map[string]string{"FifoQueue": "true"})
		put := func(body, group, id string) *sqs.SendMessageOutput {
			return must(c.SendMessage(c.ctx, &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: &id}))
		}
		first, again := put("a1", "a", "1"), put("other", "a", "1")
		check(*first.MessageId == *again.MessageId && *first.SequenceNumber == *again.SequenceNumber, "a repeat has another id")
		put("a2", "a", "2")
		put("b1", "b", "3")
		a1, b1 := c.one(queue), c.one(queue)
		check(*a1.Body == "a1" && *b1.Body == "b1", "%s, %s", *a1.Body, *b1.Body)
		check(len(c.receive(queue, 0, 30)) == 0, "both groups are held")
		c.delete(queue, a1)
		a2 := c.one(queue)
		check(*a2.Body == "a2", "%s after a1", *a2.Body)
		return "order, group locks, repeats"
	})
}

func (c *cycle) deadLetters() {
	var arn, source string
	step("dead-letters", func() string {
		dead := c.queue("dead", nil)
		arn = c.attribute(dead, types.QueueAttributeNameQueueArn)
		policy := must(json.Marshal(map[string]any{"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
		source = c.queue("source", map[string]string{"RedrivePolicy": string(policy)})
		sent := c.send(source, "poison")
		check(len(c.receive(source, 5, 1)) == 1, "nothing received")
		time.Sleep(1100 * time.Millisecond)
		until(steps.Until("message gone", func() bool { return len(c.receive(source, 0, 30)) == 0 }))
		letter := c.one(dead)
		check(*letter.MessageId == *sent.MessageId, "another id: %s", *letter.MessageId)
		check(strings.HasSuffix(letter.Attributes["DeadLetterQueueSourceArn"], "-source"), "%v", letter.Attributes)
		must(c.ChangeMessageVisibility(c.ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &dead, ReceiptHandle: letter.ReceiptHandle}))
		sources := must(c.ListDeadLetterSourceQueues(c.ctx, &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dead})).QueueUrls
		check(reflect.DeepEqual(sources, []string{source}), "%v", sources)
		return "same id, source named"
	})
	step("move-task", func() string {
		must(c.StartMessageMoveTask(c.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &arn}))
		until(steps.Until("completed move", func() bool {
			tasks := must(c.ListMessageMoveTasks(c.ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &arn})).Results
			return len(tasks) == 1 && *tasks[0].Status == "COMPLETED" && tasks[0].ApproximateNumberOfMessagesMoved == 1
		}))
		back := c.one(source)
		check(*back.Body == "poison", "%s is back", *back.Body)
		_, err := c.StartMessageMoveTask(c.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(arn + "-none")})
		refused[*types.ResourceNotFoundException]("ResourceNotFoundException", 404, err)
		return "moved back"
	})
}

func (c *cycle) ends() {
	step("errors", func() string {
		_, err := c.GetQueueUrl(c.ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(prefix + "-none")})
		refused[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue", 400, err)
		_, err = c.DeleteMessage(c.ctx, &sqs.DeleteMessageInput{QueueUrl: &c.main, ReceiptHandle: aws.String("no handle")})
		refused[*types.ReceiptHandleIsInvalid]("ReceiptHandleIsInvalid", 400, err)
		_, err = c.SendMessage(c.ctx, &sqs.SendMessageInput{QueueUrl: &c.main, MessageBody: aws.String("\ufffe")})
		refused[*types.InvalidMessageContents]("InvalidMessageContents", 400, err)
		return "as the SDK types them"
	})
	step("purge", func() string {
		c.send(c.main, "p")
		must(c.PurgeQueue(c.ctx, &sqs.PurgeQueueInput{QueueUrl: &c.main}))
		until(steps.Until("empty queue", func() bool {
			return c.attribute(c.main, types.QueueAttributeNameApproximateNumberOfMessages) == "0"
		}))
		return ""
	})
	step("address", func() string {
		port := must(url.Parse(endpoint)).Port()
		for _, host := range []string{"localhost:" + port, "127.0.0.1:" + port} {
			found := must(client("http://"+host, "any", "key").GetQueueUrl(c.ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(prefix + "-main")}))
			check(must(url.Parse(*found.QueueUrl)).Host == host, "%s", *found.QueueUrl)
		}
		return "by the client's own name of the server"
	})
	step("delete-queue", func() string {
		queues := must(c.ListQueues(c.ctx, &sqs.ListQueuesInput{QueueNamePrefix: &prefix})).QueueUrls
		for _, queue := range queues {
			must(c.DeleteQueue(c.ctx, &sqs.DeleteQueueInput{QueueUrl: &queue}))
		}
		_, err := c.ReceiveMessage(c.ctx, &sqs.ReceiveMessageInput{QueueUrl: &c.main})
		refused[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue", 400, err)
		return fmt.Sprintf("%d queues", len(queues))
	})
}

func signatures(ctx context.Context, endpoint string) string {
	key, secret := os.Getenv("SQS_KEY_ID"), os.Getenv("SQS_SECRET")
	list := func(key, secret string) error {
		_, err := client(endpoint, key, secret).ListQueues(ctx, &sqs.ListQueuesInput{})
		return err
	}
	err := list(key, secret)
	check(err == nil, "the right key is refused: %v", err)
	unmodelled("SignatureDoesNotMatch", 403, list(key, "wrong"))
	unmodelled("InvalidClientTokenId", 403, list("AKIDNOBODY", secret))
	return "the right key only"
}
