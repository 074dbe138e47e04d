// Package fleet is the servers that a client may use: one link at a time, dialed on demand.
//
// Invariants:
//
//   - I1: every link is of the cluster of the first one;
//   - I2: one dial at a time, whatever the number of callers; those that waited for it share its outcome;
//   - I3: when a server turns out to be of another cluster, what is held of before is void before any caller is told;
//   - I4: a close ends every link that has not ended, also one that was left with calls in flight.
package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/link"
)

// After a refusal a server is left for another one that was not dialed for so long, or for as long as the refusal says to
// wait, up to the most, and that costs no long dial in vain. Else, where all servers refuse, a caller that asks for what none
// of them has would take the others along from server to server, with a dial for nearly each call.
const (
	leastStay = time.Second
	mostStay  = 10 * time.Second
)

// longestAway is what "never" comes to for a client that had to leave its first choice.
const longestAway = 30 * 365 * 24 * time.Hour

// Options of a client, checked already.
type Options struct {
	Link                     link.Options
	Rounds                   int
	FirstPause, LongestPause time.Duration
	RetryFor                 time.Duration
	// ReturnAfter is when a client that had to leave its first choice tries it again, about.
	ReturnAfter time.Duration
	// OnStranger is called when a server turns out to be of another cluster (I3). It must be there before the fleet is.
	OnStranger func()
}

// Fleet is the servers of one cluster.
type Fleet struct {
	// servers, in the order of choice: the first is a random one.
	servers []string
	options Options
	// cluster made ours by the first server that answered (I1), whose name it has.
	cluster [16]byte
	first   string
	// life ends when the fleet is closed.
	life    context.Context
	endLife context.CancelFunc
	// link is the one in use. It may have ended.
	link atomic.Pointer[link.Link]

	mu sync.Mutex
	// next is the index of the server that is dialed next. It moves before each dial, not after it: the next dial must not
	// begin at the same silent server.
	next int
	// dialed: when each server was dialed last, to take the place of another one; 0: never.
	dialed []int64
	// away: which were not there when they were dialed last.
	away    away
	dialing *dialing
	// links that have not ended, and some that have (I4).
	links []*link.Link
	// back is the timer after which the first choice is tried again.
	back   *time.Timer
	closed bool
}

// dialing is one search for a server that answers.
type dialing struct {
	done chan struct{}
	link *link.Link
	err  error
}

// About is what the server of the last link said about itself.
func (f *Fleet) About() *link.About { return f.link.Load().About() }

// Ready returns when a link takes requests.
func (f *Fleet) Ready(ctx context.Context) error {
	current := f.link.Load()
	if current.Serving() {
		return nil
	}
	_, err := f.replace(ctx, current)
	return err
}

// replace returns a link that takes the place of one that does not serve; it dials if there is none.
func (f *Fleet) replace(ctx context.Context, old *link.Link) (*link.Link, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, errClosed()
	}
	if current := f.link.Load(); current != old && current.Serving() {
		f.mu.Unlock()
		return current, nil
	}
	if f.dialing == nil {
		f.dialing = &dialing{done: make(chan struct{})}
		go f.redial(f.dialing)
	}
	search := f.dialing
	f.mu.Unlock()
	select {
	case <-search.done:
		return search.link, search.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.life.Done():
		return nil, errClosed()
	}
}

// redial ends a search, with a link in use or a failure. It belongs to no caller: those that wait may go.
func (f *Fleet) redial(search *dialing) {
	greeted, at, err := f.search()
	f.mu.Lock()
	f.dialing = nil
	switch {
	case f.closed:
		if greeted != nil {
			greeted.Close()
		}
		search.err = errClosed()
	case err != nil:
		search.err = err
	default:
		search.link = f.use(greeted, at)
	}
	f.mu.Unlock()
	close(search.done)
}

// use makes a connection to the server of that index the link in use. The lock is held.
func (f *Fleet) use(greeted *link.Greeted, at int) *link.Link {
	l := link.Start(greeted, &f.options.Link)
	f.link.Store(l)
	open := []*link.Link{l}
	for _, other := range f.links {
		if !other.Ended() {
			open = append(open, other)
		}
	}
	f.links = open
	if at != 0 {
		f.planReturn()
	}
	return l
}

// search tries the servers, each once a round, for as many rounds as allowed.
func (f *Fleet) search() (*link.Greeted, int, error) {
	pauses := newBackoff(&f.options)
	for round := 1; ; round++ {
		var worthWaiting, hopeless error
		for _, at := range f.turn() {
			f.moveTurn(at)
			greeted, err := f.dial(at)
			if err == nil {
				return greeted, at, nil
			}
			if failure := fail.Of(err); failure != nil && failure.Retryable() {
				worthWaiting = err
			} else {
				hopeless = err
			}
		}
		if hopeless != nil && (worthWaiting == nil || round >= f.options.Rounds) {
			return nil, 0, hopeless
		}
		if round >= f.options.Rounds {
			return nil, 0, worthWaiting
		}
		if err := f.sleep(f.life, pauses.pause()); err != nil {
			return nil, 0, err
		}
	}
}

// turn is the indices of the servers, from the one after the last tried. Those that cost a long dial in vain come last.
func (f *Fleet) turn() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := link.Now()
	var turn, last []int
	for i := range f.servers {
		at := (f.next + i) % len(f.servers)
		if f.away.costs(at, now) {
			last = append(last, at)
		} else {
			turn = append(turn, at)
		}
	}
	return append(turn, last...)
}

// moveTurn notes that this one is dialed.
func (f *Fleet) moveTurn(at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = at + 1
	f.dialed[at] = link.Now()
}

// dial greets a server. One of another cluster is refused (I1), and voids what is held (I3): nothing tells which of the two
// clusters is the one that ids are meant to be of. It notes whether the server was there, which a stranger is not.
func (f *Fleet) dial(at int) (*link.Greeted, error) {
	begin := link.Now()
	greeted, err := link.Dial(f.life, f.servers[at], &f.options.Link)
	if err == nil {
		if err = sameCluster(f.first, f.cluster, &greeted.About); err != nil {
			greeted.Close()
		}
	}
	f.mu.Lock()
	f.away.note(at, begin, err == nil)
	f.mu.Unlock()
	if err != nil {
		if f.options.OnStranger != nil && fail.Is(err, fail.WrongCluster) {
			f.options.OnStranger()
		}
		return nil, err
	}
	return greeted, nil
}

// planReturn has the first choice tried again after some time, at random, so that the clients of a server that was away do
// not all come back at once. The lock is held.
func (f *Fleet) planReturn() {
	span := f.options.ReturnAfter
	if span > longestAway {
		span = longestAway
	}
	if f.back != nil {
		f.back.Stop()
	}
	f.back = time.AfterFunc(span/2+time.Duration(float64(span)*randomShare()), f.comeBack)
}

// comeBack moves new requests to the first choice, if it answers. Those in flight are finished where they are.
func (f *Fleet) comeBack() {
	greeted, err := f.dial(0)
	f.mu.Lock()
	old := f.link.Load()
	switch {
	case f.closed || f.dialing != nil || old.About().Server == f.servers[0]:
		if greeted != nil {
			greeted.Close()
		}
		if !f.closed && f.dialing != nil {
			f.planReturn()
		}
		f.mu.Unlock()
	case err != nil:
		f.planReturn()
		f.mu.Unlock()
	default:
		f.dialed[0] = link.Now()
		f.next = 1
		f.use(greeted, 0)
		f.mu.Unlock()
		old.Retire()
	}
}

// leave leaves the server of a link after a refusal with what may take it long, if there is another server that was not
// dialed of late, and costs no long dial in vain. What is in flight is still answered.
func (f *Fleet) leave(l *link.Link, failure *fail.Error) {
	pause := failure.RetryAfter
	if pause < leastStay {
		pause = leastStay
	}
	if pause > mostStay {
		pause = mostStay
	}
	now, goes := link.Now(), false
	f.mu.Lock()
	for at, server := range f.servers {
		isDue := f.dialed[at] == 0 || now-f.dialed[at] >= int64(pause)
		goes = goes || (server != l.About().Server && isDue && !f.away.costs(at, now))
	}
	f.mu.Unlock()
	if goes {
		l.Retire()
	}
}

// otherThere says whether there is another server than that of the link, and one that was not away a moment ago.
func (f *Fleet) otherThere(l *link.Link) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := link.Now()
	for at, server := range f.servers {
		if server != l.About().Server && !f.away.is(at, now) {
			return true
		}
	}
	return false
}

// staysAfter says whether the server that refused is still the one in use.
func (f *Fleet) staysAfter(failure *fail.Error) bool {
	current := f.link.Load()
	return failure.Kind == fail.Refused && current.About().Server == failure.Server && current.Serving()
}

// Close says BYE, waits until the server has answered what is in flight, or the context ends, and closes. What still waits
// then is told that the client is closed; what pauses between two attempts, or waits for a dial, is told so at once.
func (f *Fleet) Close(ctx context.Context) {
	f.mu.Lock()
	wasClosed := f.closed
	f.closed = true
	if f.back != nil {
		f.back.Stop()
	}
	links := f.links
	f.mu.Unlock()
	if wasClosed {
		return
	}
	f.endLife()
	f.link.Load().Bye(ctx)
	for _, l := range links {
		l.End(errClosed())
	}
}

func errClosed() error {
	return &fail.Error{Kind: fail.Closed}
}

func sameCluster(first string, cluster [16]byte, about *link.About) error {
	if about.Cluster == cluster {
		return nil
	}
	return &fail.Error{Kind: fail.WrongCluster, Server: about.Server, Found: about.Cluster, Other: first, Expected: cluster}
}
