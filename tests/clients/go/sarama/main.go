// sarama against BOOTSTRAP. Its versions follow from Config.Version, not from what the broker offers.
package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"towpath.dev/tests/clients/steps"
)

var (
	topic, groupTopic, group = "sar-" + steps.Run, "sar-g-" + steps.Run, "sar-" + steps.Run

	codecs = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Session.Timeout = 10 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	// A commit goes over the connection on which a fetch may be waiting.
	c.Consumer.MaxWaitTime = 50 * time.Millisecond
	c.Consumer.Return.Errors = true
	return c
}

func send(topic string, records []steps.Record, c *sarama.Config) (string, error) {
	producer, err := sarama.NewSyncProducer([]string{steps.Bootstrap}, c)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	var batch []*sarama.ProducerMessage
	for _, r := range records {
		m := &sarama.ProducerMessage{Topic: topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Ms)}
		if r.Key != nil {
			m.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			m.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		batch = append(batch, m)
	}
	return fmt.Sprintf("%d records", len(batch)), producer.SendMessages(batch)
}

// member is a group member: Setup and Cleanup tell its share, ConsumeClaim reads and marks.
type member struct {
	group  sarama.ConsumerGroup
	topic  string
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	assigned int
	records  []steps.Record
	err      error
}

func join(group, topic string) (*member, error) {
	g, err := sarama.NewConsumerGroup([]string{steps.Bootstrap}, group, config())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{group: g, topic: topic, cancel: cancel, done: make(chan struct{})}
	go func() {
		for err := range g.Errors() {
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
		}
	}()
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
				m.mu.Lock()
				m.err = err
				m.mu.Unlock()
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return m, nil
}

func (m *member) set(assigned int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned = assigned
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.set(len(s.Claims()[m.topic]))
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.set(0)
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			m.mu.Lock()
			m.records = append(m.records, recordOf(message))
			m.mu.Unlock()
			s.MarkMessage(message, "")
			s.Commit()
		case <-s.Context().Done():
			return nil
		}
	}
}

func (m *member) got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var values []string
	for _, r := range m.records {
		values = append(values, string(r.Value))
	}
	return values
}

func (m *member) parts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.assigned
}

func (m *member) leave() error {
	m.cancel()
	<-m.done
	err := m.group.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	return err
}

func main() {
	steps.Version("github.com/IBM/sarama")
	admin, err := sarama.NewClusterAdmin([]string{steps.Bootstrap}, config())
	if err != nil {
		steps.Step("connect", func() (string, error) { return "", err })
		steps.Finish()
	}
	cl, err := sarama.NewClient([]string{steps.Bootstrap}, config())
	if err != nil {
		steps.Step("connect", func() (string, error) { return "", err })
		steps.Finish()
	}
	steps.Step("create", func() (string, error) {
		if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: steps.Partitions, ReplicationFactor: 1}, false); err != nil {
			return "", err
		}
		if err := admin.CreateTopic(groupTopic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, false); err != nil {
			return "", err
		}
		return "two topics", steps.Until("topics", func() bool {
			list, err := admin.ListTopics()
			return err == nil && list[topic].NumPartitions == steps.Partitions && list[groupTopic].NumPartitions == 4
		})
	})
	for _, codec := range steps.Codecs {
		steps.Step("publish-"+codec, func() (string, error) {
			c := config()
			c.Producer.Compression = codecs[codec]
			return send(topic, steps.Records(codec), c)
		})
	}
	fmt.Printf("TOPIC %s %s\n", topic, strings.Join(steps.Codecs, ","))
	steps.Step("read", func() (string, error) {
		var read []steps.Record
		for p := range int32(steps.Partitions) {
			records, err := readFrom(cl, p, sarama.OffsetOldest, 50)
			if err != nil {
				return "", err
			}
			read = append(read, records...)
		}
		return steps.CheckRead(steps.Codecs, read)
	})
	steps.Step("seek-by-time", func() (string, error) {
		offset, err := cl.GetOffset(topic, 1, steps.FirstMs+10_000)
		if err != nil {
			return "", err
		}
		records, err := readFrom(cl, 1, offset, 1)
		if err != nil {
			return "", err
		}
		if key := string(records[0].Key); key != "none-10" {
			return "", fmt.Errorf("first record is %s", key)
		}
		return fmt.Sprintf("offset %d", offset), nil
	})
	steps.Step("idempotent", func() (string, error) {
		c := config()
		c.Producer.Idempotent = true
		c.Net.MaxOpenRequests = 1
		return send(topic, steps.Records("none"), c)
	})

	var a, b *member
	steps.Step("queue", func() (string, error) {
		if err := admin.CreateTopic(steps.QueueTopic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: steps.QueueConfig}, false); err != nil {
			return "", err
		}
		reader, err := join(steps.QueueTopic, steps.QueueTopic)
		if err != nil {
			return "", err
		}
		err = steps.SendToQueue(func(records []steps.Record) error {
			_, err := send(steps.QueueTopic, records, config())
			return err
		})
		if err != nil {
			return "", err
		}
		if err := steps.Until("24 records", func() bool { return len(reader.got()) >= 24 }); err != nil {
			return "", err
		}
		if err := reader.leave(); err != nil {
			return "", err
		}
		return steps.CheckQueue(reader.records)
	})
	steps.Step("group-of-two", func() (string, error) {
		var err error
		if a, err = join(group, groupTopic); err != nil {
			return "", err
		}
		if b, err = join(group, groupTopic); err != nil {
			return "", err
		}
		if err := steps.Until("share for both", func() bool { return a.parts() == 2 && b.parts() == 2 }); err != nil {
			return "", err
		}
		if _, err := send(groupTopic, steps.Numbered(0, 40), config()); err != nil {
			return "", err
		}
		if err := steps.Until("forty records", func() bool { return len(a.got())+len(b.got()) >= 40 }); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d+%d records", len(a.got()), len(b.got())), steps.CheckNumbers(append(a.got(), b.got()...), 0, 40)
	})
	steps.Step("one-leaves", func() (string, error) {
		if err := b.leave(); err != nil {
			return "", err
		}
		if err := steps.Until("take-over", func() bool { return a.parts() == 4 }); err != nil {
			return "", err
		}
		if _, err := send(groupTopic, steps.Numbered(40, 60), config()); err != nil {
			return "", err
		}
		return "the other has all partitions", steps.Until("twenty more", func() bool { return len(a.got())+len(b.got()) >= 60 })
	})
	steps.Step("commit", func() (string, error) {
		var sum int64
		err := steps.Until("60 committed", func() bool {
			answer, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{groupTopic: {0, 1, 2, 3}})
			if err != nil {
				return false
			}
			sum = 0
			for _, block := range answer.Blocks[groupTopic] {
				sum += block.Offset
			}
			return sum == 60
		})
		if err != nil {
			return "", fmt.Errorf("%d committed, not 60", sum)
		}
		return "60 committed", a.leave()
	})
	steps.Step("resume", func() (string, error) {
		if _, err := send(groupTopic, steps.Numbered(60, 70), config()); err != nil {
			return "", err
		}
		c, err := join(group, groupTopic)
		if err != nil {
			return "", err
		}
		if err := steps.Until("ten more", func() bool { return len(c.got()) >= 10 }); err != nil {
			return "", err
		}
		if err := c.leave(); err != nil {
			return "", err
		}
		return "only the new ones", steps.CheckNumbers(c.got(), 60, 70)
	})
	steps.Finish()
}

// readFrom reads `count` records of one partition.
func readFrom(cl sarama.Client, partition int32, offset int64, count int) ([]steps.Record, error) {
	consumer, err := sarama.NewConsumerFromClient(cl)
	if err != nil {
		return nil, err
	}
	part, err := consumer.ConsumePartition(topic, partition, offset)
	if err != nil {
		return nil, err
	}
	defer part.AsyncClose()
	var read []steps.Record
	deadline := time.After(20 * time.Second)
	for len(read) < count {
		select {
		case m := <-part.Messages():
			read = append(read, recordOf(m))
		case err := <-part.Errors():
			return nil, err
		case <-deadline:
			return nil, fmt.Errorf("partition %d: %d records within 20 s, not %d", partition, len(read), count)
		}
	}
	return read, nil
}

func recordOf(m *sarama.ConsumerMessage) steps.Record {
	r := steps.Record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value, Ms: m.Timestamp.UnixMilli()}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, steps.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}
