// Package steps is what the Go client tests share: the steps' printed form, the data, and how read data is checked.
//
// A program prints `VERSION x`, then one line per step, `STEP name ok|fail detail`, and exits 1 if one failed.
package steps

import (
	"fmt"
	"math/rand"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

const (
	Partitions = 3
	perCodec   = 30
)

var (
	Bootstrap = os.Getenv("BOOTSTRAP")
	Run       = fmt.Sprintf("%08x", rand.Uint32())
	// FirstMs is an hour ago; records are one second apart, so that a seek by time has something to find.
	FirstMs = time.Now().UnixMilli() - 3_600_000
	Codecs  = []string{"none", "gzip", "snappy", "lz4", "zstd"}

	failed bool
)

type Header struct {
	Key   string
	Value []byte
}

// Record is one record to send, or one that was read (then with its offset).
type Record struct {
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte // nil is a tombstone
	Headers   []Header
	Ms        int64
}

// Version prints the version of the module that was linked.
func Version(module string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				fmt.Println("VERSION", strings.TrimPrefix(dep.Version, "v"))
			}
		}
	}
}

// Step runs one step and prints its line; a failure does not end the program.
func Step(name string, run func() (string, error)) {
	begin := time.Now()
	detail, err := run()
	if err != nil {
		failed = true
		fmt.Printf("STEP %s fail %s\n", name, strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	fmt.Printf("STEP %s ok %s (%.1f s)\n", name, detail, time.Since(begin).Seconds())
}

// Finish ends the program.
func Finish() {
	if failed {
		os.Exit(1)
	}
	os.Exit(0)
}

// Records are one codec's records, in the order they are sent.
func Records(codec string) []Record {
	var records []Record
	for i := range perCodec {
		r := Record{
			Partition: int32(i % Partitions),
			Key:       []byte(fmt.Sprintf("%s-%d", codec, i)),
			Value:     []byte(strings.Repeat(fmt.Sprintf("%s %d ", codec, i), 20)),
			Headers:   []Header{{"codec", []byte(codec)}, {"n", []byte(fmt.Sprint(i))}, {"n", []byte("again")}},
			Ms:        FirstMs + int64(i)*1000,
		}
		if i%10 == 9 {
			r.Value = nil
		}
		records = append(records, r)
	}
	return records
}

// Numbered are records for the group: their values are numbers, spread over four partitions.
func Numbered(first, last int) []Record {
	var records []Record
	for i := first; i < last; i++ {
		records = append(records, Record{Partition: int32(i % 4), Value: []byte(fmt.Sprint(i)), Ms: FirstMs})
	}
	return records
}

// CheckRead compares what was read, in the order received, with what the codecs' records should be.
func CheckRead(codecs []string, read []Record) (string, error) {
	var count int
	for p := range int32(Partitions) {
		var want, got []Record
		for _, codec := range codecs {
			for _, r := range Records(codec) {
				if r.Partition == p {
					want = append(want, r)
				}
			}
		}
		for _, r := range read {
			if r.Partition == p {
				got = append(got, r)
			}
		}
		if len(got) != len(want) {
			return "", fmt.Errorf("partition %d: %d records, not %d", p, len(got), len(want))
		}
		for i := range got {
			g, w := got[i], want[i]
			if i > 0 && g.Offset <= got[i-1].Offset {
				return "", fmt.Errorf("partition %d out of order at offset %d", p, g.Offset)
			}
			w.Offset = g.Offset
			if show(g) != show(w) {
				return "", fmt.Errorf("got %s, not %s", show(g), show(w))
			}
		}
		count += len(got)
	}
	return fmt.Sprintf("%d records of %d codecs", count, len(codecs)), nil
}

func show(r Record) string {
	return fmt.Sprintf("%d:%d %q=%q %t %q %d", r.Partition, r.Offset, r.Key, r.Value, r.Value == nil, r.Headers, r.Ms)
}

// CheckNumbers says whether the values are exactly first..last, each once.
func CheckNumbers(values []string, first, last int) error {
	seen := map[string]bool{}
	for _, v := range values {
		seen[v] = true
	}
	if len(values) != last-first || len(seen) != len(values) {
		return fmt.Errorf("%d values (%d different), not %d", len(values), len(seen), last-first)
	}
	for i := first; i < last; i++ {
		if !seen[fmt.Sprint(i)] {
			return fmt.Errorf("%d is missing", i)
		}
	}
	return nil
}

// Until polls a condition for at most 20 seconds.
func Until(what string, condition func() bool) error {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if condition() {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("no %s within 20 s", what)
}

// QueueTopic is a log and a queue at the same time, which QueueConfig makes it.
var (
	QueueTopic  = "queue-" + Run
	QueueConfig = map[string]*string{"queue.enable": &yes}

	yes         = "true"
	queueWishes = map[string]Header{
		"urgent": {"towpath-priority", []byte("9")}, "later": {"towpath-deliver-after", []byte("2s")}, "stale": {"towpath-ttl", []byte("100ms")},
	}
)

func queueRecords() []Record {
	var records []Record
	for i := range 24 {
		value := fmt.Sprint(i - 4)
		if i < 4 {
			value = []string{"usual", "urgent", "later", "stale"}[i]
		}
		r := Record{Value: []byte(value), Ms: time.Now().UnixMilli()}
		if wish, ok := queueWishes[value]; ok {
			r.Headers = []Header{wish}
		}
		records = append(records, r)
	}
	return records
}

// SendToQueue sends to QueueTopic; its messages are worked (queue_worker.py) as soon as those are there that say how they
// want to be delivered.
func SendToQueue(send func([]Record) error) error {
	records := queueRecords()
	for first := 0; first < len(records); first += 4 {
		if first == 4 {
			fmt.Println("QUEUE", QueueTopic)
		}
		if err := send(records[first : first+4]); err != nil {
			return err
		}
	}
	return nil
}

// CheckQueue compares with what was sent what a group read from the beginning.
func CheckQueue(read []Record) (string, error) {
	want := queueRecords()
	if len(read) != len(want) {
		return "", fmt.Errorf("%d records, not %d", len(read), len(want))
	}
	for i, w := range want {
		w.Ms, w.Offset = read[i].Ms, read[i].Offset
		if show(read[i]) != show(w) {
			return "", fmt.Errorf("got %s, not %s", show(read[i]), show(w))
		}
	}
	return fmt.Sprintf("%d records read as a log while they are worked", len(read)), nil
}
