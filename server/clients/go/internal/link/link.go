// Package link is one connection: many callers append requests, one goroutine writes them and one reads replies.
//
//	callers --- Call ---> outbox ---> writer: all that lies there, in one write
//	   ^                     |
//	   |                  pending: the requests in flight, by request id
//	   |                     |
//	   +---- reader <--- replies, in whatever order they come
//	                      watcher: ends calls whose time is over, and a link that is silent
//
// Invariants:
//
//   - I1: a caller in pending is told an outcome: by a reply, by the end of its time, or by the end of the link;
//   - I2: callers + places given back = the bound of requests in flight, until the link ends;
//   - I3: after the end, or after GOAWAY, no request is taken; after GOAWAY those in flight are still answered;
//   - I4: a caller that gives up leaves its request in flight, with the place that it takes: the reply, or the end of the
//     link, gives it back. No caller's patience ends the link; a silence does, when it has lasted Options.Timeout
//     beyond the time at which a reply was due, and a PING of the link's own was not answered in the second half of that.
package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/wire"
)

// ErrNotServing says that the link takes no more requests, and that nothing was sent.
var ErrNotServing = errors.New("this link takes no more requests")

type state uint8

const (
	serving state = iota
	leaving
	ended
)

// Answer is a successful reply.
type Answer struct {
	// ID of NEXT and SEQ_NEXT.
	ID uint64
	// Body of all others, checked.
	Body []byte
}

// waiter is where a caller waits. It is used again: who takes it out of pending is the one that tells it.
type waiter struct {
	done   chan struct{}
	answer Answer
	err    error
}

var waiters = sync.Pool{New: func() interface{} { return &waiter{done: make(chan struct{}, 1)} }}

func (w *waiter) tell(answer Answer, err error) {
	w.answer, w.err = answer, err
	w.done <- struct{}{}
}

// free gives the waiter back; nothing refers to it any more.
func (w *waiter) free() {
	w.answer, w.err = Answer{}, nil
	waiters.Put(w)
}

// Link is a greeted connection.
type Link struct {
	about   About
	conn    net.Conn
	timeout time.Duration
	max     int

	mu      sync.Mutex
	state   state
	outbox  []byte
	pending pending
	// callers are the places taken among those in flight, and line those who wait for one (I2).
	callers int
	line    []chan bool
	// heard: when something was received last; answered: when something besides the reply to a PING of the link's own was.
	heard, answered int64
	// asked: when the PING in flight was sent that asks whether anything is there; 0: none.
	asked int64
	// leaveUntil is when a link that leaves ends in any case.
	leaveUntil int64
	sentAway   bool
	// watched: the watcher has a timer running. used: something was asked for since its last look.
	watched, used bool
	// looks are closed when the socket was found empty after they came.
	looks    []chan struct{}
	writeErr error

	wake  chan struct{}
	watch chan struct{}
	done  chan struct{}
}

// start is what the times of links count from.
var start = time.Now()

// Now is a time to compare with those of links.
func Now() int64 { return int64(time.Since(start)) }

// Start begins the life of a greeted connection.
func Start(greeted *Greeted, options *Options) *Link {
	max := int(greeted.About.MaxInFlight)
	if max > options.MaxInFlight {
		max = options.MaxInFlight
	}
	if max < 1 {
		max = 1
	}
	now := Now()
	l := &Link{
		about:    greeted.About,
		conn:     greeted.conn,
		timeout:  options.Timeout,
		max:      max,
		heard:    now,
		answered: now,
		wake:     make(chan struct{}, 1),
		watch:    make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	go l.writeLoop()
	go l.watchLoop()
	go func() { l.End(l.readLoop(greeted.inbox)) }()
	return l
}

// About is what the server said about itself.
func (l *Link) About() *About { return &l.about }

// Serving says whether requests are taken.
func (l *Link) Serving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == serving
}

// Ended says whether nothing more comes of it.
func (l *Link) Ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == ended
}

// SentAway says whether the server said GOAWAY.
func (l *Link) SentAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sentAway
}

// SilentSince says whether no request was answered after that time: a server that is there, and answers nothing else, is
// silent as well. What lies in the socket is read before: a process that was stopped finds its times over and nothing read.
func (l *Link) SilentSince(t int64) bool {
	if l.answeredSince(t) {
		return false
	}
	l.readUp(lastLook)
	return !l.answeredSince(t)
}

func (l *Link) answeredSince(t int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered > t
}

// Call asks, now, and waits for the answer. The context ends the call alone, never the link.
func (l *Link) Call(ctx context.Context, r *wire.Request, now int64) (Answer, error) {
	wait := r.Wait()
	limit := l.timeout + wait
	w := waiters.Get().(*waiter)
	id, err := l.submit(ctx, r, waiting{
		expected: expectedOf(r), due: later(now, wait), end: later(now, limit), waiter: w,
	})
	if err != nil {
		w.free()
		return Answer{}, err
	}
	if done := ctx.Done(); done == nil {
		<-w.done
	} else {
		select {
		case <-w.done:
		case <-done:
			if l.abandon(id) {
				w.free()
				return Answer{}, ctx.Err()
			}
			// The reply came at the same time, and counts.
			<-w.done
		}
	}
	answer, err := w.answer, w.err
	w.free()
	return answer, err
}

// submit appends a request when there is a place for one more in flight.
func (l *Link) submit(ctx context.Context, r *wire.Request, w waiting) (uint64, error) {
	hasStood := false
	l.mu.Lock()
	// With one in line all places are taken: one that is left goes to the next in line (I2).
	if l.state == serving && l.callers >= l.max {
		place := make(chan bool, 1)
		l.line = append(l.line, place)
		l.mu.Unlock()
		if err := l.standInLine(ctx, place, w.end); err != nil {
			return 0, err
		}
		l.mu.Lock()
		// The place was handed over, and is counted already.
		l.callers--
		hasStood = true
	}
	if l.state != serving {
		l.mu.Unlock()
		return 0, ErrNotServing
	}
	l.callers++
	id, wakes := l.append(r, w)
	// Who stood in line may end before the watcher looks again.
	watches := !l.watched || hasStood && w.end < later(Now(), l.timeout/2)
	l.watched, l.used = true, true
	l.mu.Unlock()
	if wakes {
		signal(l.wake)
	}
	if watches {
		signal(l.watch)
	}
	return id, nil
}

// standInLine waits until a place is handed over.
func (l *Link) standInLine(ctx context.Context, place chan bool, end int64) error {
	timer := time.NewTimer(time.Duration(end - Now()))
	defer timer.Stop()
	var err error
	select {
	case granted := <-place:
		if !granted {
			return ErrNotServing
		}
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = l.lateBy(l.timeout)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.line {
		if other == place {
			l.line = append(l.line[:i], l.line[i+1:]...)
			return err
		}
	}
	// It was handed over at the same time.
	if <-place {
		l.leavePlace()
	}
	return err
}

// leavePlace gives a place in flight to the next in line, or back. The lock is held.
func (l *Link) leavePlace() {
	if len(l.line) == 0 {
		l.callers--
		return
	}
	next := l.line[0]
	l.line = l.line[1:]
	next <- true
}

// append puts a request into the outbox; whether that was empty. The lock is held.
func (l *Link) append(r *wire.Request, w waiting) (uint64, bool) {
	id := l.pending.insert(w)
	wasEmpty := len(l.outbox) == 0
	l.outbox = wire.AppendRequest(l.outbox, id, r)
	return id, wasEmpty
}

// abandon leaves a request to itself; false: its waiter is being told.
func (l *Link) abandon(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.pending.find(id)
	if found == nil || found.waiter == nil {
		return false
	}
	found.waiter = nil
	return true
}

func (l *Link) lost(cause error) error {
	return &fail.Error{Kind: fail.Lost, Server: l.about.Server, Err: cause}
}

func (l *Link) lateBy(limit time.Duration) error {
	return &fail.Error{Kind: fail.Timeout, Server: l.about.Server, Limit: limit}
}

// signal wakes the goroutine that reads from the channel, now or at its next look.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// later is so long after t; "for ever" is far away.
func later(t int64, span time.Duration) int64 {
	if sum := t + int64(span); sum >= t {
		return sum
	}
	return 1<<63 - 1
}
