package xuid_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	xuid "github.com/x-uid/xuid-go"
)

// The examples need a server; they are compiled, and not run.
var (
	ctx    = context.Background()
	client *xuid.Client
)

func Example() {
	client, err := xuid.DialEnv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	id, err := client.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id)
}

// One of three servers is used at a time. Calls that fail with what may pass are repeated for two seconds.
func ExampleDial() {
	cluster, err := xuid.ParseClusterID("101112131415161718191a1b1c1d1e1f")
	if err != nil {
		log.Fatal(err)
	}
	client, err := xuid.Dial(ctx, "ids-1:7654,ids-2:7654,ids-3:7654",
		xuid.WithCluster(cluster),
		xuid.WithToken("s3cret"),
		xuid.WithClientName("billing"),
		xuid.WithRetryFor(2*time.Second),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleWithTLS() {
	config, err := xuid.TLSFiles("ca.pem", "client.pem", "client-key.pem")
	if err != nil {
		log.Fatal(err)
	}
	client, err := xuid.Dial(ctx, "ids.example:7654", xuid.WithTLS(config))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleClient_Next() {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	id, err := client.Next(ctx, xuid.Fresh)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id)
}

func ExampleClient_Array() {
	ids, err := client.Array(ctx, 1000, xuid.Ordered, xuid.Wait(200*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids[0], "to", ids[999])
}

func ExampleClient_Runs() {
	runs, err := client.Runs(ctx, 100_000)
	if err != nil {
		log.Fatal(err)
	}
	var ids []uint64
	for _, run := range runs {
		ids = run.AppendTo(ids)
	}
	fmt.Println(len(ids))
}

func ExampleLayout_Decode() {
	layout := xuid.Layout{EpochMS: 1_524_153_600_000, TickUS: 1000, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}
	fields := layout.Decode(1_128_275_363_336_683_521)
	fmt.Println(fields.Time().UTC(), fields.Worker, fields.Sequence)
	// Output: 2026-10-28 02:43:28.962 +0000 UTC 32 1
}

func ExampleRun() {
	run := xuid.Run{First: 10, Count: 3, Stride: 5}
	fmt.Println(run.At(1), run.Last(), run.AppendTo(nil))
	// Output: 15 20 [10 15 20]
}

// Ids ahead of need: most calls take some nanoseconds.
func ExampleClient_Prefetch() {
	ids := client.Prefetch(xuid.PrefetchMaxAge(500 * time.Millisecond))
	defer ids.Close()
	for i := 0; i < 1000; i++ {
		id, err := ids.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(id)
	}
}

// A handle for each goroutine of a hot loop.
func ExamplePrefetch_Handle() {
	ids := client.Prefetch()
	defer ids.Close()
	for worker := 0; worker < 4; worker++ {
		go func() {
			handle := ids.Handle()
			defer handle.Close()
			for {
				if _, err := handle.Next(ctx); err != nil {
					return
				}
			}
		}()
	}
}

func ExampleClient_Sequence() {
	orders := client.Sequence("orders")
	if _, err := orders.Create(ctx, xuid.Start(1_000_000), xuid.Description("orders of the shop")); err != nil {
		log.Fatal(err)
	}
	number, err := orders.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(number)
}

// A hundred neighbours.
func ExampleSequence_Take() {
	block, err := client.Sequence("orders").Take(ctx, 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(block.First, "to", block.Last())
}

func ExampleClient_Sequences() {
	for after := ""; ; {
		page, err := client.Sequences(ctx, "order:", after, 1000)
		if err != nil {
			log.Fatal(err)
		}
		for _, sequence := range page {
			fmt.Println(sequence.Name, sequence.Next)
		}
		if len(page) < 1000 {
			return
		}
		after = page[len(page)-1].Name
	}
}

func ExampleRefusedError() {
	_, err := client.Sequence("orders").Next(ctx)
	var refused *xuid.RefusedError
	if errors.As(err, &refused) && refused.Status == xuid.StatusNoSequence {
		fmt.Println("create it first:", refused.Text)
	}
}

func ExampleRetryable() {
	id, err := client.Next(ctx)
	for xuid.Retryable(err) {
		time.Sleep(10 * time.Millisecond)
		id, err = client.Next(ctx)
	}
	fmt.Println(id, err)
}
