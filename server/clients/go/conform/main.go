// The conformance program: it reads one JSON object a line and writes one a line. Requests overlap; answers come in the
// order in which they are done, each with the id of its request. 64-bit numbers are strings. At the end of its input it
// closes and exits.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	xuid "github.com/x-uid/xuid-go"
)

// request is any line of the input. Which fields count depends on Do.
type request struct {
	ID json.Number
	Do string

	Servers       []string
	Token         string
	Cluster       string
	TimeoutMS     *int64 `json:"timeout_ms"`
	ConnectMS     *int64 `json:"connect_timeout_ms"`
	RetryForMS    *int64 `json:"retry_for_ms"`
	ReturnAfterMS *int64 `json:"return_after_ms"`
	MaxInFlight   *int   `json:"max_in_flight"`
	TLS           *files
	Times         int
	InFlight      int `json:"in_flight"`
	Order         string
	Count         int
	WaitMS        *int64 `json:"wait_ms"`
	Name          string
	Contiguous    bool
	Settings      map[string]json.RawMessage
	Prefix, After string
	Limit         *int
	Number        number
	Seconds       float64
	Of            json.Number
	File          string
}

type files struct {
	CA, Cert, Key string
	ServerName    string `json:"server_name"`
}

// number is a 64-bit number in a string, or without one.
type number uint64

func (n *number) UnmarshalJSON(text []byte) error {
	if len(text) > 1 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	parsed, err := strconv.ParseUint(string(text), 10, 64)
	*n = number(parsed)
	return err
}

type object map[string]interface{}

// program is what the requests share.
type program struct {
	mu       sync.Mutex
	client   *xuid.Client
	prefetch *xuid.Prefetch
	running  map[json.Number]context.CancelFunc
	out      *json.Encoder
}

func main() {
	p := &program{running: map[json.Number]context.CancelFunc{}, out: json.NewEncoder(os.Stdout)}
	lines := bufio.NewReader(os.Stdin)
	var open sync.WaitGroup
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			p.begin(line, &open)
		}
		if err != nil {
			break
		}
	}
	open.Wait()
	if p.client != nil {
		p.client.Close()
	}
}

// begin begins a request; its answer comes when it is done.
func (p *program) begin(line []byte, open *sync.WaitGroup) {
	r := &request{}
	if err := json.Unmarshal(line, r); err != nil {
		p.answer(r.ID, nil, &xuid.UsageError{Text: err.Error()})
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	p.running[r.ID] = cancel
	p.mu.Unlock()
	open.Add(1)
	go func() {
		defer open.Done()
		answer, err := p.do(ctx, r)
		p.mu.Lock()
		delete(p.running, r.ID)
		p.mu.Unlock()
		cancel()
		p.answer(r.ID, answer, err)
	}()
}

func (p *program) answer(id json.Number, answer object, err error) {
	if answer == nil {
		answer = object{}
	}
	if err != nil {
		answer = object{"error": describe(err)}
	}
	answer["id"] = id
	p.mu.Lock()
	defer p.mu.Unlock()
	// A reader that is gone has no use for more.
	_ = p.out.Encode(answer)
}

var (
	errUnsupported = errors.New("this client has no such thing")
	errOpaque      = errors.New("the ids of this cluster are opaque")
)

// vectorsError names the first vector that failed.
type vectorsError struct{ err error }

func (e *vectorsError) Error() string { return e.err.Error() }

func (p *program) do(ctx context.Context, r *request) (object, error) {
	switch r.Do {
	case "connect":
		return p.connect(ctx, r)
	case "cancel":
		p.mu.Lock()
		defer p.mu.Unlock()
		if cancel := p.running[r.Of]; cancel != nil {
			cancel()
		}
		return nil, nil
	case "vectors":
		return vectors(r.File)
	case "fork":
		return nil, errUnsupported
	}
	p.mu.Lock()
	c := p.client
	p.mu.Unlock()
	if c == nil {
		return nil, &xuid.UsageError{Text: "connect first"}
	}
	switch r.Do {
	case "prefetch":
		return p.draw(ctx, c, r)
	case "prefetch_rate":
		return p.rate(ctx, c, r)
	case "close":
		return nil, c.Close()
	}
	if len(r.Do) > 4 && r.Do[:4] == "seq_" {
		return sequence(ctx, c, r)
	}
	return ids(ctx, c, r)
}

func (p *program) connect(ctx context.Context, r *request) (object, error) {
	opts, err := options(r)
	if err != nil {
		return nil, err
	}
	list := ""
	for i, server := range r.Servers {
		if i > 0 {
			list += ","
		}
		list += server
	}
	c, err := xuid.Dial(ctx, list, opts...)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	old := p.client
	p.client, p.prefetch = c, nil
	p.mu.Unlock()
	if old != nil {
		old.Close()
	}
	about, layout := c.Server(), c.Layout()
	return object{"cluster": about.Cluster.String(), "server": about.Server, "layout": object{
		"epoch_ms": text(layout.EpochMS), "tick_us": layout.TickUS, "time_bits": layout.TimeBits,
		"worker_bits": layout.WorkerBits, "sequence_bits": layout.SequenceBits,
	}}, nil
}

func options(r *request) ([]xuid.Option, error) {
	opts := []xuid.Option{xuid.WithToken(r.Token)}
	if r.Cluster != "" {
		cluster, err := xuid.ParseClusterID(r.Cluster)
		if err != nil {
			return nil, err
		}
		opts = append(opts, xuid.WithCluster(cluster))
	}
	for _, span := range []struct {
		ms   *int64
		with func(time.Duration) xuid.Option
	}{
		{r.TimeoutMS, xuid.WithTimeout},
		{r.ConnectMS, xuid.WithConnectTimeout},
		{r.RetryForMS, xuid.WithRetryFor},
		{r.ReturnAfterMS, xuid.WithReturnAfter},
	} {
		if span.ms != nil {
			opts = append(opts, span.with(time.Duration(*span.ms)*time.Millisecond))
		}
	}
	if r.MaxInFlight != nil {
		opts = append(opts, xuid.WithMaxInFlight(*r.MaxInFlight))
	}
	if r.TLS != nil {
		config, err := xuid.TLSFiles(r.TLS.CA, r.TLS.Cert, r.TLS.Key)
		if err != nil {
			return nil, err
		}
		config.ServerName = r.TLS.ServerName
		opts = append(opts, xuid.WithTLS(config))
	}
	return opts, nil
}
