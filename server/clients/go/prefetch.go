package xuid

import (
	"context"
	"time"

	"github.com/x-uid/xuid-go/internal/ahead"
	"github.com/x-uid/xuid-go/internal/fleet"
	"github.com/x-uid/xuid-go/internal/wire"
)

// refillWait is how long the server may wait for the ids of a refill: a server that lives on what its clock brings has the
// largest one together in 32 ms.
const refillWait = 50

// Prefetch is ids that are there before they are asked for. Get one with [Client.Prefetch] or [Sequence.Prefetch], and
// close it when it is not needed any more; [Client.Close] does that too.
//
// How many are held follows the use: 16 at first, up to a million in a hot loop. A source that nothing is taken from is not
// refilled once what it held grew old. So a quiet user wastes few ids, and its first id after a pause takes a round trip.
//
// The ids are of order [Any]: an id that was fetched ahead is not fresh when it is handed out, and two handles that hold
// different runs cannot keep an order.
//
// When a server turns out to be of another cluster, all that is held and on its way is dropped before any caller is told.
//
// A virtual machine that is resumed twice from one snapshot of its memory gives out the ids that it held in both copies:
// close the source before the snapshot is made.
type Prefetch struct {
	client *Client
	source *ahead.Source
	own    *ahead.Handle
	err    error
}

// PrefetchOption is a setting of [Client.Prefetch].
type PrefetchOption func(*prefetchOptions)

type prefetchOptions struct{ ahead.Options }

// PrefetchAhead is how many ids are held ahead: at least the first number, and up to the second as use demands. Too small a
// least, and the first calls after a pause wait; too large, and a quiet user wastes as many. Too small a most, and a hot loop
// waits for round trips. Defaults to 16 and 1,048,576.
func PrefetchAhead(least, most uint32) PrefetchOption {
	return func(o *prefetchOptions) { o.Least, o.Most = uint64(least), uint64(most) }
}

// PrefetchMaxAge is how long after it was asked for an id may still be handed out, besides the age that it has at the server.
// Older ones are wasted. A handle looks at the clock once in up to 1,024 ids in a hot loop, and at each id where they are taken
// 50 us apart and more; beside that a goroutine ends what grows old. What this does not cover is a time in which the process
// is stopped between a look and the ids that follow it. Too short, and much is wasted; too long, and ids look older than the
// rows they name. 1 ms to 2 s; defaults to 1 s.
func PrefetchMaxAge(limit time.Duration) PrefetchOption {
	return func(o *prefetchOptions) { o.MaxAge = limit }
}

// PrefetchWait is how long a call may wait when nothing is held; its context may end it earlier. Too short, and a fail-over
// shows as an error; too long, and callers hang when all servers are away. Defaults to 1 s.
func PrefetchWait(limit time.Duration) PrefetchOption {
	return func(o *prefetchOptions) { o.Wait = limit }
}

// Prefetch begins to fetch ids ahead of need. An option out of range, and a server that does not answer, are errors of the
// calls that take ids.
func (c *Client) Prefetch(opts ...PrefetchOption) *Prefetch {
	return c.prefetch(wire.Request{Op: wire.OpRuns, WaitMS: refillWait}, opts)
}

// Prefetch begins to fetch numbers of the sequence ahead of need, in no particular order. What is held and not used leaves
// gaps.
func (s *Sequence) Prefetch(opts ...PrefetchOption) *Prefetch {
	return s.client.prefetch(wire.Request{Op: wire.OpSeqRuns, Name: s.name, WaitMS: refillWait}, opts)
}

func (c *Client) prefetch(r wire.Request, opts []PrefetchOption) *Prefetch {
	o := prefetchOptions{ahead.Options{Least: 16, Most: 1 << 20, MaxAge: time.Second, Wait: time.Second}}
	for _, opt := range opts {
		opt(&o)
	}
	if err := checkAhead(&r, &o.Options); err != nil {
		return &Prefetch{client: c, err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &Prefetch{client: c, err: ErrClosed}
	}
	source := ahead.Start(refills{c.fleet, r}, o.Options)
	p := &Prefetch{client: c, source: source, own: source.Handle()}
	c.sources[p] = struct{}{}
	return p
}

func checkAhead(r *wire.Request, o *ahead.Options) error {
	if err := r.Check(); err != nil {
		return &UsageError{err.Error()}
	}
	switch {
	case o.Least == 0 || o.Most < o.Least:
		return usage("PrefetchAhead is %d to %d, and 1 or more, up to as many or more, is allowed", o.Least, o.Most)
	case o.MaxAge < time.Millisecond || o.MaxAge > 2*time.Second:
		return usage("PrefetchMaxAge is %v, and 1 ms to 2 s is allowed", o.MaxAge)
	case o.Wait < 0:
		return usage("PrefetchWait is %v, and 0 or more is allowed", o.Wait)
	}
	return nil
}

// Next is an id, for any goroutine. If none is held it waits for one; its error is then what the last refill failed with, or a
// [*TimeoutError]. Goroutines in a hot loop take a [Prefetch.Handle] each, which is faster: those that call Next wait for
// each other. The context is looked at only when nothing is held.
func (p *Prefetch) Next(ctx context.Context) (uint64, error) {
	if p.err != nil {
		return 0, p.err
	}
	id, err := p.own.Next(ctx)
	if err != nil {
		return 0, public(err)
	}
	return id, nil
}

// TryNext is an id if one is held, without waiting. false asks for more in the background.
func (p *Prefetch) TryNext() (uint64, bool) {
	if p.err != nil {
		return 0, false
	}
	return p.own.TryNext()
}

// Handle is a share of the ids for one goroutine. Any number may be made; they share what is held. Close it when its
// goroutine ends.
func (p *Prefetch) Handle() *Handle {
	if p.err != nil {
		return &Handle{err: p.err}
	}
	return &Handle{handle: p.source.Handle()}
}

// Close ends the fetching, and all handles: calls answer [ErrClosed]. What is held is wasted.
func (p *Prefetch) Close() {
	if p.source == nil {
		return
	}
	p.client.mu.Lock()
	delete(p.client.sources, p)
	p.client.mu.Unlock()
	p.source.Close()
}

// PrefetchStats are counters of a [Prefetch]. A handle settles what it issued when it is done with a run, so Issued lags by
// what is in handles. When all handles are closed, Received = Issued + WastedByAge + WastedAtEnd + Held.
type PrefetchStats struct {
	// Received ids came from servers.
	Received uint64
	// Issued ids were handed out.
	Issued uint64
	// WastedByAge ids grew too old before they were wanted, or were dropped with their cluster; WastedAtEnd ids were held when the source was closed.
	WastedByAge, WastedAtEnd uint64
	// Held ids are there now, without those in handles.
	Held uint64
	// Refills brought ids; FailedRefills did not.
	Refills, FailedRefills uint64
	// Waits are calls that found nothing.
	Waits uint64
}

// Stats is what was counted so far.
func (p *Prefetch) Stats() PrefetchStats {
	if p.source == nil {
		return PrefetchStats{}
	}
	return PrefetchStats(p.source.Stats())
}

// Handle is one goroutine's share of a [Prefetch]. It is safe for several, which then wait for each other; it is fast for one.
type Handle struct {
	handle *ahead.Handle
	err    error
}

// Next is as [Prefetch.Next].
func (h *Handle) Next(ctx context.Context) (uint64, error) {
	if h.err != nil {
		return 0, h.err
	}
	id, err := h.handle.Next(ctx)
	if err != nil {
		return 0, public(err)
	}
	return id, nil
}

// TryNext is as [Prefetch.TryNext].
func (h *Handle) TryNext() (uint64, bool) {
	if h.err != nil {
		return 0, false
	}
	return h.handle.TryNext()
}

// Close gives what the handle holds to the others. Its calls answer [ErrClosed] from then on.
func (h *Handle) Close() {
	if h.handle != nil {
		h.handle.Close()
	}
}

// refills is where a source gets its ids from.
type refills struct {
	*fleet.Fleet
	request wire.Request
}

func (r refills) MaxCount() uint32 { return r.About().MaxCount }

func (r refills) Runs(ctx context.Context, count uint32, patience time.Duration) ([]wire.Run, error) {
	r.request.Count = count
	answer, err := r.Ahead(ctx, &r.request, patience)
	if err != nil {
		return nil, err
	}
	// The link has checked it.
	_, came, _ := wire.ParseRuns(answer.Body)
	runs := make([]wire.Run, came.Len())
	for i := range runs {
		runs[i] = came.At(i)
	}
	return runs, nil
}
