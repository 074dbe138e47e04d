// Package xuid is a client of X-UID servers, which issue 64-bit ids that are never issued twice.
//
//	client, err := xuid.Dial(ctx, "ids-1:7654,ids-2:7654")
//	id, err := client.Next(ctx)
//
// One client is for a whole program: any number of goroutines may call it at once, and that is what makes it fast. Their
// requests share one connection and one write; replies come in whatever order they are ready.
//
// # Ids ahead of need
//
// [Client.Prefetch] asks for ids in the background. An id then costs some nanoseconds instead of a round trip.
//
// # Sequences
//
// [Client.Sequence] is a named sequence: 1, 2, 3, ... for each name.
//
// # When a server goes
//
// A request whose reply is lost is an error, which [Retryable] says is worth repeating: its ids are wasted, and no id comes
// twice. With [WithRetryFor] the client repeats it by itself. Of several servers the client uses one at a time, beginning with
// a random one: so many clients spread over all of them. It goes to the next one when its server is lost, leaves (GOAWAY), is
// silent, or refuses with what may take it long, and comes back after some minutes. Servers must be of one cluster; others
// are refused with a [*WrongClusterError].
//
// # Contexts
//
// A context ends the call that it is given to, and nothing else: the connection stays, and other calls go on. What the server
// was asked for is wasted then. A deadline also shortens the wait that the server is told.
package xuid

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/x-uid/xuid-go/internal/fleet"
	"github.com/x-uid/xuid-go/internal/link"
	"github.com/x-uid/xuid-go/internal/wire"
)

// byeTime is how long Close waits for what is in flight.
const byeTime = 2 * time.Second

// Client is a connection to one of the servers of a cluster, for any number of goroutines.
type Client struct {
	fleet *fleet.Fleet

	mu      sync.Mutex
	sources map[*Prefetch]struct{}
	closed  bool
}

// Dial connects to one of several servers of one cluster, "host:port,host:port". All are greeted, and refused together if
// their clusters differ; one that does not answer now is checked when it is first used. The context bounds dialing only.
//
// The error is a [*UsageError] for an address or an option that cannot be, or says why no server could be used: each is
// tried once.
func Dial(ctx context.Context, servers string, opts ...Option) (*Client, error) {
	o := defaults()
	for _, opt := range opts {
		opt(&o)
	}
	if err := check(&o); err != nil {
		return nil, err
	}
	addresses, err := split(servers)
	if err != nil {
		return nil, err
	}
	c := &Client{sources: map[*Prefetch]struct{}{}}
	o.OnStranger = c.void
	if c.fleet, err = fleet.Connect(ctx, addresses, o.Options); err != nil {
		return nil, public(err)
	}
	return c, nil
}

// DialEnv is [Dial] with the servers of the environment variable XUID_SERVER, or 127.0.0.1:7654, and the token of XUID_TOKEN,
// if there is one.
func DialEnv(ctx context.Context, opts ...Option) (*Client, error) {
	servers := os.Getenv("XUID_SERVER")
	if servers == "" {
		servers = "127.0.0.1:7654"
	}
	return Dial(ctx, servers, append([]Option{WithToken(os.Getenv("XUID_TOKEN"))}, opts...)...)
}

// split parts the addresses, each once.
func split(servers string) ([]string, error) {
	var addresses []string
	seen := map[string]bool{}
	for _, server := range strings.Split(servers, ",") {
		server = strings.TrimSpace(server)
		host, port, err := net.SplitHostPort(server)
		if number, wrong := strconv.ParseUint(port, 10, 16); err != nil || host == "" || wrong != nil || number == 0 {
			return nil, usage("%q is no address of a server: host:port is, or several with commas between them", server)
		}
		if !seen[server] {
			seen[server] = true
			addresses = append(addresses, server)
		}
	}
	return addresses, nil
}

// Server is what the server of the last connection said about itself.
func (c *Client) Server() ServerInfo {
	about := c.fleet.About()
	return ServerInfo{
		Server:      about.Server,
		Version:     about.Version,
		Cluster:     about.Cluster,
		Layout:      c.Layout(),
		MaxCount:    about.MaxCount,
		MaxInFlight: about.MaxInFlight,
		Idle:        time.Duration(about.IdleMS) * time.Millisecond,
	}
}

// Layout of the cluster's ids: [Layout.Decode] takes an id apart without a call.
func (c *Client) Layout() Layout {
	about := c.fleet.About()
	return Layout{about.EpochMS, about.TickUS, about.TimeBits, about.WorkerBits, about.SequenceBits, about.Face}
}

// Next is one id, of order [Any] unless another is given. The server decides how long it waits for one.
func (c *Client) Next(ctx context.Context, order ...Order) (uint64, error) {
	r := wire.Request{Op: wire.OpNext}
	for _, o := range order {
		r.Order = uint8(o)
	}
	answer, err := c.call(ctx, &r)
	return answer.ID, err
}

// Array is exactly n ids, or an error and none. The server's limit on n is in [ServerInfo].
func (c *Client) Array(ctx context.Context, n int, choices ...Choice) ([]uint64, error) {
	r := wire.Request{Op: wire.OpArray}
	return c.array(ctx, &r, n, choices)
}

// Runs is exactly n ids as runs, or an error and none. The fastest for many ids: a run of thousands is 16 bytes.
func (c *Client) Runs(ctx context.Context, n int, choices ...Choice) ([]Run, error) {
	r := wire.Request{Op: wire.OpRuns}
	return c.runs(ctx, &r, n, choices)
}

// Decode asks the server for the fields of an id. [Layout.Decode] says the same without a call.
func (c *Client) Decode(ctx context.Context, id uint64) (Decoded, error) {
	answer, err := c.call(ctx, &wire.Request{Op: wire.OpDecode, ID: id})
	if err != nil {
		return Decoded{}, err
	}
	// The link has checked it.
	d, _ := wire.ParseDecoded(answer.Body)
	return Decoded(d), nil
}

// Info is what the server is: a JSON object, in which ids are strings.
func (c *Client) Info(ctx context.Context) (json.RawMessage, error) {
	return c.json(ctx, &wire.Request{Op: wire.OpInfo})
}

// Stats is what the server counted: a JSON object with the names of its metrics.
func (c *Client) Stats(ctx context.Context) (json.RawMessage, error) {
	return c.json(ctx, &wire.Request{Op: wire.OpStats})
}

// Provenance is what the server knows of where an id came from, and whether it may have been issued: a JSON object. A
// server of before this request refuses it as an op that it does not know.
func (c *Client) Provenance(ctx context.Context, id uint64) (json.RawMessage, error) {
	return c.json(ctx, &wire.Request{Op: wire.OpProvenance, ID: id})
}

// Ping goes there and back, ahead of all that waits for ids. A quiet client that wants to keep its connection pings more
// often than [ServerInfo.Idle]; another one connects again by itself.
func (c *Client) Ping(ctx context.Context) error {
	const word = "xuid-go"
	answer, err := c.call(ctx, &wire.Request{Op: wire.OpPing, Text: word})
	if err == nil && string(answer.Body) != word {
		return &ProtocolError{c.fleet.About().Server, "a PING came back with other bytes"}
	}
	return err
}

// Close ends the client and all its prefetching. What is in flight is answered, within two seconds; later calls answer
// [ErrClosed]. It returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	sources := c.sources
	c.sources = nil
	c.mu.Unlock()
	for p := range sources {
		p.source.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), byeTime)
	defer cancel()
	c.fleet.Close(ctx)
	return nil
}

// void drops what is held ahead of need: a server turned out to be of another cluster.
func (c *Client) void() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.sources {
		p.source.Void()
	}
}

func (c *Client) call(ctx context.Context, r *wire.Request) (link.Answer, error) {
	if err := r.Check(); err != nil {
		return link.Answer{}, &UsageError{err.Error()}
	}
	answer, err := c.fleet.Call(ctx, r)
	if err != nil {
		return answer, public(err)
	}
	return answer, nil
}

func (c *Client) json(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	answer, err := c.call(ctx, r)
	return json.RawMessage(answer.Body), err
}

func (c *Client) array(ctx context.Context, r *wire.Request, n int, choices []Choice) ([]uint64, error) {
	if err := choose(ctx, r, n, choices); err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, r)
	if err != nil {
		return nil, err
	}
	// The link has checked it.
	came, _ := wire.ParseArray(answer.Body)
	ids := make([]uint64, came.Len())
	for i := range ids {
		ids[i] = came.At(i)
	}
	return ids, nil
}

func (c *Client) runs(ctx context.Context, r *wire.Request, n int, choices []Choice) ([]Run, error) {
	if err := choose(ctx, r, n, choices); err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, r)
	if err != nil {
		return nil, err
	}
	// The link has checked it.
	_, came, _ := wire.ParseRuns(answer.Body)
	runs := make([]Run, came.Len())
	for i := range runs {
		runs[i] = Run(came.At(i))
	}
	return runs, nil
}

// choose fills a request for n ids. The server is told no longer wait than the context has left.
func choose(ctx context.Context, r *wire.Request, n int, choices []Choice) error {
	if n < 0 || uint64(n) > math.MaxUint32 {
		return usage("%d ids are asked for, and 1 to the server's limit are allowed", n)
	}
	r.Count = uint32(n)
	wait := time.Duration(DefaultWait)
	for _, choice := range choices {
		switch choice := choice.(type) {
		case Order:
			r.Order = uint8(choice)
		case Wait:
			wait = time.Duration(choice)
		}
	}
	if wait < 0 {
		return usage("a wait is %v, and 0 or more is allowed", wait)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left < wait {
			wait = left
		}
	}
	if wait > wire.WaitCapMS*time.Millisecond {
		wait = wire.WaitCapMS * time.Millisecond
	}
	if wait > 0 {
		r.WaitMS = uint32(wait / time.Millisecond)
	}
	return nil
}
