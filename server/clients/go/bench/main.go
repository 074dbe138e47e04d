// Command bench tells how fast the client is, beside what bounds it: go run ./bench [SECONDS], with a server at XUID_SERVER or
// 127.0.0.1:7654, which needs land to spare. Each figure takes so many seconds, 2 by default. server/clients/bench runs those
// of all clients in turn.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	xuid "github.com/x-uid/xuid-go"
)

const (
	inFlight = 100
	// turns between two looks at the clock.
	turns = 100_000
	// warmUp is not counted.
	warmUp = 500 * time.Millisecond
)

func main() {
	seconds := 2.0
	if len(os.Args) > 1 {
		var err error
		seconds, err = strconv.ParseFloat(os.Args[1], 64)
		check(err)
	}
	span := time.Duration(seconds * float64(time.Second))
	ctx := context.Background()
	client, err := xuid.DialEnv(ctx)
	check(err)
	defer client.Close()

	show("a loop over a counter", perSecond(span, counter()))
	ids := client.Prefetch()
	show("prefetched, one by one", perSecond(span, oneByOne(ids.Handle())))
	ids.Close()
	show("a raw echo, 100 in flight", perSecond(span, echo(client.Server().Server)))
	show("NEXT, 100 in flight", nextInFlight(ctx, client, span))
}

// perSecond is how many of what it counts some does a second.
func perSecond(span time.Duration, some func() int) float64 {
	for warm := time.Now(); time.Since(warm) < warmUp; {
		some()
	}
	done, begun := 0, time.Now()
	for time.Since(begun) < span {
		done += some()
	}
	return float64(done) / time.Since(begun).Seconds()
}

type count uint64

// next is a call, as that of a handle is.
//
//go:noinline
func (c *count) next() uint64 {
	*c++
	return uint64(*c)
}

// sum keeps what was drawn in use.
var sum uint64

func counter() func() int {
	c := new(count)
	return func() int {
		for i := 0; i < turns; i++ {
			sum += c.next()
		}
		return turns
	}
}

func oneByOne(ids *xuid.Handle) func() int {
	ctx := context.Background()
	return func() int {
		for i := 0; i < turns; i++ {
			id, err := ids.Next(ctx)
			check(err)
			sum += id
		}
		return turns
	}
}

// frame is one of this op, with this body.
func frame(op byte, body []byte) []byte {
	header := make([]byte, 16, 16+len(body))
	binary.LittleEndian.PutUint32(header, uint32(len(body)))
	header[4] = op
	return append(header, body...)
}

// echo sends frames that come back as they were: a bare connection writes and counts them, and does not look at them. With the
// eight bytes of its body a frame is as long as the reply that brings an id.
func echo(address string) func() int {
	link, err := net.Dial("tcp", address)
	check(err)
	hello := make([]byte, 26)
	hello[0], hello[2] = 1, 1
	_, err = link.Write(append([]byte("\x89XUID\r\n\x1a"), frame(1, hello)...))
	check(err)
	header := make([]byte, 16)
	_, err = io.ReadFull(link, header)
	check(err)
	_, err = io.CopyN(io.Discard, link, int64(binary.LittleEndian.Uint32(header)))
	check(err)

	ping := frame(2, make([]byte, 8))
	var many []byte
	for i := 0; i < inFlight; i++ {
		many = append(many, ping...)
	}
	_, err = link.Write(many)
	check(err)
	part, found := 0, make([]byte, len(many))
	return func() int {
		n, err := link.Read(found)
		check(err)
		part += n
		done := part / len(ping)
		part %= len(ping)
		_, err = link.Write(many[:done*len(ping)])
		check(err)
		return done
	}
}

// nextInFlight has so many goroutines call at once.
func nextInFlight(ctx context.Context, client *xuid.Client, span time.Duration) float64 {
	begin := time.Now().Add(warmUp)
	var done int64
	var open sync.WaitGroup
	for i := 0; i < inFlight; i++ {
		open.Add(1)
		go func() {
			defer open.Done()
			mine := int64(0)
			for {
				now := time.Now()
				if now.Sub(begin) >= span {
					break
				}
				_, err := client.Next(ctx)
				check(err)
				if now.After(begin) {
					mine++
				}
			}
			atomic.AddInt64(&done, mine)
		}()
	}
	open.Wait()
	return float64(done) / time.Since(begin).Seconds()
}

func show(what string, figure float64) {
	fmt.Printf("%-28s%16.0f /s\n", what, figure)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
