// franz-go against BOOTSTRAP.
package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"towpath.dev/tests/clients/steps"
)

var (
	topic, groupTopic, group = "fgo-" + steps.Run, "fgo-g-" + steps.Run, "fgo-" + steps.Run

	codecs = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
)

func client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(steps.Bootstrap)}, options...)...)
}

func send(topic string, records []steps.Record, options ...kgo.Opt) (string, error) {
	cl, err := client(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond))...)
	if err != nil {
		return "", err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var batch []*kgo.Record
	for _, r := range records {
		k := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Ms)}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		batch = append(batch, k)
	}
	err = cl.ProduceSync(ctx, batch...).FirstErr()
	return fmt.Sprintf("%d records", len(batch)), err
}

// member is a group member with a goroutine that reads and commits.
type member struct {
	cl   *kgo.Client
	done chan struct{}

	mu       sync.Mutex
	assigned map[int32]bool
	values   []string
	err      error
}

func join() (*member, error) {
	m := &member{done: make(chan struct{}), assigned: map[int32]bool{}}
	change := func(on bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range parts[groupTopic] {
				if on {
					m.assigned[p] = true
				} else {
					delete(m.assigned, p)
				}
			}
		}
	}
	cl, err := client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(groupTopic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))
	m.cl = cl
	if err == nil {
		go m.read()
	}
	return m, err
}

func (m *member) read() {
	defer close(m.done)
	for {
		fetches := m.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.mu.Lock()
		fetches.EachError(func(t string, p int32, err error) { m.err = fmt.Errorf("%s-%d: %w", t, p, err) })
		fetches.EachRecord(func(r *kgo.Record) { m.values = append(m.values, string(r.Value)) })
		m.mu.Unlock()
		if err := m.cl.CommitUncommittedOffsets(context.Background()); err != nil {
			// A rebalance may end a generation between poll and commit; the steps count what was committed.
			fmt.Println("commit:", err)
		}
	}
}

func (m *member) got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.values...)
}

func (m *member) parts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.assigned)
}

func (m *member) leave() error {
	m.cl.Close()
	<-m.done
	return m.err
}

func main() {
	steps.Version("github.com/twmb/franz-go")
	ctx := context.Background()
	base, err := client()
	if err != nil {
		panic(err)
	}
	admin := kadm.NewClient(base)
	steps.Step("create", func() (string, error) {
		if _, err := admin.CreateTopic(ctx, steps.Partitions, 1, nil, topic); err != nil {
			return "", err
		}
		if _, err := admin.CreateTopic(ctx, 4, 1, nil, groupTopic); err != nil {
			return "", err
		}
		return "two topics", steps.Until("topics", func() bool {
			list, err := admin.ListTopics(ctx, topic, groupTopic)
			return err == nil && list.Error() == nil && len(list) == 2
		})
	})
	for _, codec := range steps.Codecs {
		steps.Step("publish-"+codec, func() (string, error) {
			return send(topic, steps.Records(codec), kgo.ProducerBatchCompression(codecs[codec]), kgo.DisableIdempotentWrite())
		})
	}
	fmt.Printf("TOPIC %s %s\n", topic, strings.Join(steps.Codecs, ","))
	steps.Step("read", func() (string, error) {
		read, err := readAll(kgo.NewOffset().AtStart(), steps.Partitions*50)
		if err != nil {
			return "", err
		}
		return steps.CheckRead(steps.Codecs, read)
	})
	steps.Step("seek-by-time", func() (string, error) {
		read, err := readAll(kgo.NewOffset().AfterMilli(steps.FirstMs+10_000), 1)
		if err != nil {
			return "", err
		}
		found, err := admin.ListOffsetsAfterMilli(ctx, steps.FirstMs+10_000, topic)
		if err != nil {
			return "", err
		}
		one, _ := found.Lookup(topic, 1)
		for _, r := range read {
			if r.Partition == 1 {
				if string(r.Key) != "none-10" || r.Offset != one.Offset {
					return "", fmt.Errorf("first record is %s at %d, asked for %d", r.Key, r.Offset, one.Offset)
				}
				break
			}
		}
		return fmt.Sprintf("offset %d", one.Offset), one.Err
	})
	steps.Step("idempotent", func() (string, error) { return send(topic, steps.Records("none")) })

	var a, b *member
	steps.Step("queue", func() (string, error) {
		if _, err := admin.CreateTopic(ctx, 1, 1, steps.QueueConfig, steps.QueueTopic); err != nil {
			return "", err
		}
		err := steps.SendToQueue(func(records []steps.Record) error {
			_, err := send(steps.QueueTopic, records)
			return err
		})
		if err != nil {
			return "", err
		}
		read, err := readUntil(func(read []steps.Record) bool { return len(read) >= 24 },
			kgo.ConsumerGroup(steps.QueueTopic), kgo.ConsumeTopics(steps.QueueTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return "", err
		}
		return steps.CheckQueue(read)
	})
	steps.Step("group-of-two", func() (string, error) {
		var err error
		if a, err = join(); err != nil {
			return "", err
		}
		if b, err = join(); err != nil {
			return "", err
		}
		if err := steps.Until("share for both", func() bool { return a.parts() == 2 && b.parts() == 2 }); err != nil {
			return "", err
		}
		if _, err := send(groupTopic, steps.Numbered(0, 40)); err != nil {
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
		if _, err := send(groupTopic, steps.Numbered(40, 60)); err != nil {
			return "", err
		}
		return "the other has all partitions", steps.Until("twenty more", func() bool { return len(a.got())+len(b.got()) >= 60 })
	})
	steps.Step("commit", func() (string, error) {
		var sum int64
		err := steps.Until("60 committed", func() bool {
			offsets, err := admin.FetchOffsets(ctx, group)
			sum = 0
			offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
			return err == nil && sum == 60
		})
		if err != nil {
			return "", fmt.Errorf("%d committed, not 60", sum)
		}
		return "60 committed", a.leave()
	})
	steps.Step("resume", func() (string, error) {
		if _, err := send(groupTopic, steps.Numbered(60, 70)); err != nil {
			return "", err
		}
		c, err := join()
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

// readAll reads all partitions of the topic from an offset until `count` records are there, one of partition 1 among them.
func readAll(from kgo.Offset, count int) ([]steps.Record, error) {
	return readUntil(func(read []steps.Record) bool {
		return len(read) >= count && slices.ContainsFunc(read, func(r steps.Record) bool { return r.Partition == 1 })
	}, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(from))
}

func readUntil(done func([]steps.Record) bool, options ...kgo.Opt) ([]steps.Record, error) {
	cl, err := client(options...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var read []steps.Record
	for !done(read) {
		fetches := cl.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		fetches.EachRecord(func(k *kgo.Record) {
			r := steps.Record{Partition: k.Partition, Offset: k.Offset, Key: k.Key, Value: k.Value, Ms: k.Timestamp.UnixMilli()}
			for _, h := range k.Headers {
				r.Headers = append(r.Headers, steps.Header{Key: h.Key, Value: h.Value})
			}
			read = append(read, r)
		})
	}
	return read, nil
}
