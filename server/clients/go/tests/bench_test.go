package tests

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
)

// The benchmarks need the machine alone:
//
//	XUID_BIN=.../xuid go test -run '^$' -bench . ./tests

// report tells ids a second.
func report(b *testing.B, begun time.Time, ids float64) {
	b.ReportMetric(ids/time.Since(begun).Seconds(), "ids/s")
}

func BenchmarkNext(b *testing.B) {
	c := dialReal(b, startReal(b, b.TempDir()).addr)
	for _, width := range []int{1, 16, 100, 1000} {
		b.Run(fmt.Sprintf("%dInFlight", width), func(b *testing.B) {
			begun, left := time.Now(), int64(b.N)
			crowd(width, func() bool {
				if atomic.AddInt64(&left, -1) < 0 {
					return false
				}
				_, err := c.Next(context.Background())
				if err != nil {
					b.Error(err)
				}
				return err == nil
			})
			report(b, begun, float64(b.N))
		})
	}
}

func BenchmarkArrayOf1000(b *testing.B) {
	c := dialReal(b, startReal(b, b.TempDir()).addr)
	begun := time.Now()
	for i := 0; i < b.N; i++ {
		if _, err := c.Array(context.Background(), 1000, xuid.Wait(time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	report(b, begun, 1000*float64(b.N))
}

func BenchmarkPrefetch(b *testing.B) {
	c := dialReal(b, startReal(b, b.TempDir()).addr)
	for _, width := range []int{1, 2} {
		b.Run(fmt.Sprintf("Handle/%dGoroutines", width), func(b *testing.B) {
			p := c.Prefetch()
			defer p.Close()
			draw(b, width, p.Handle)
		})
	}
	b.Run("Shared/2Goroutines", func(b *testing.B) {
		p := c.Prefetch()
		defer p.Close()
		shared := p.Handle()
		draw(b, 2, func() *xuid.Handle { return shared })
	})
}

// draw takes b.N ids in so many goroutines.
func draw(b *testing.B, width int, handle func() *xuid.Handle) {
	begun := time.Now()
	var open sync.WaitGroup
	for i := 0; i < width; i++ {
		open.Add(1)
		go func() {
			defer open.Done()
			h := handle()
			for n := 0; n < b.N/width; n++ {
				if _, err := h.Next(context.Background()); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	open.Wait()
	report(b, begun, float64(b.N))
}
