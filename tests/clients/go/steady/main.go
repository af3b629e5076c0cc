// franz-go with default settings, with a record of every partition of TOPIC on its way all the time:
// prints each partition that has acknowledged one, until its standard input ends.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// Between two records of a partition.
	pace = 5 * time.Millisecond
	// How long the last records may take.
	patience = time.Minute
)

func main() {
	partitions, err := strconv.Atoi(os.Getenv("PARTITIONS"))
	if err != nil {
		fail(err)
	}
	topic := os.Getenv("TOPIC")
	seeds := kgo.SeedBrokers(strings.Split(os.Getenv("BOOTSTRAP"), ",")...)
	cl, err := kgo.NewClient(seeds, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		fail(err)
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex
	acked := func(r *kgo.Record, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			fail(err)
		}
		fmt.Fprintln(out, r.Partition)
		out.Flush()
	}
	for tick := time.NewTicker(pace); ; {
		select {
		case <-ended:
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := cl.Flush(ctx); err != nil {
				fail(err)
			}
			return
		case <-tick.C:
			for p := range partitions {
				record := &kgo.Record{Topic: topic, Partition: int32(p), Value: make([]byte, 100)}
				cl.Produce(context.Background(), record, acked)
			}
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
