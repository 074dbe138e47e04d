package ahead

import (
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/fleet"
	"github.com/x-uid/xuid-go/internal/wire"
)

// mostRefills are in flight at once.
const mostRefills = 8

// refill is how one refill ended.
type refill struct {
	count uint64
	// failures is how many there had been when it was asked for.
	failures uint64
	asked    time.Duration
	runs     []wire.Run
	err      error
}

// refiller keeps the pool filled.
type refiller struct {
	*Source
	size    size
	ended   chan refill
	open    int
	retries *fleet.Retries
	// failures in all; those that were in flight together count once.
	failures uint64
	// resume: nothing is asked for before.
	resume <-chan time.Time
}

func newRefiller(s *Source) *refiller {
	return &refiller{
		Source:  s,
		size:    newSize(s.options.Least, s.options.Most, s.options.MaxAge, s.clock.now()),
		ended:   make(chan refill, mostRefills),
		retries: s.server.Retries(),
	}
}

// run goes on until the source is closed.
func (r *refiller) run() {
	for {
		if r.resume == nil {
			r.ask()
		}
		// Each branch only says that something is to be done; what, the next turn finds out.
		select {
		case ended := <-r.ended:
			r.open--
			r.takeIn(ended)
		case <-r.wanted:
		case <-r.resume:
			r.resume = nil
		case <-r.life.Done():
			return
		}
	}
}

// ask asks for as much as is missing, if somebody takes.
func (r *refiller) ask() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pool.grownOld > 0 {
		r.pool.grownOld = 0
		r.size.wasted()
	}
	there, taken, is := r.pool.demanded()
	if !is {
		return
	}
	level := r.size.look(r.clock.now(), taken)
	r.pool.low, r.pool.demand = (level+1)/2, false
	maxCount := clamp(uint64(r.server.MaxCount()), 1, 1<<32-1)
	for there < level && r.open < mostRefills {
		count := clamp(level-there, 1, clamp(r.size.request, 1, maxCount))
		there += count
		r.pool.asked += count
		r.open++
		go r.fetch(count, r.failures)
	}
}

func (r *refiller) fetch(count, failures uint64) {
	end := refill{count: count, failures: failures}
	if end.err = r.server.Ready(r.life); end.err == nil {
		end.asked = r.clock.now()
		// What takes longer than an id may be old is of no use.
		end.runs, end.err = r.server.Runs(r.life, uint32(count), r.options.MaxAge)
	}
	// There is room for as many as are in flight.
	r.ended <- end
}

func (r *refiller) takeIn(ended refill) {
	if ended.err != nil {
		r.fail(ended)
		return
	}
	r.retries = r.server.Retries()
	end := ended.asked + r.options.MaxAge
	r.mu.Lock()
	now := r.clock.now()
	r.pool.put(ended.count, ended.runs, end, now)
	if now < end {
		// Of one that was void on its way the clock does not tell how long it took.
		r.size.answered(now - ended.asked)
		r.keepUntil(end)
	}
	r.tell()
	r.mu.Unlock()
}

func (r *refiller) fail(ended refill) {
	failure := fail.Of(ended.err)
	// Too many for the server that took the place of another: its limit is known by now.
	isCount := failure != nil && failure.IsCount()
	stop := (failure == nil || !failure.Retryable()) && !isCount
	// The others that were in flight with the first failed alike, and are no reason to pause again.
	if ended.failures == r.failures {
		r.failures++
		r.resume = time.After(r.server.Pause(r.retries, ended.err))
	}
	if failure != nil && failure.Kind == fail.Refused {
		r.size.failed(ended.count)
	}
	r.mu.Lock()
	r.pool.fail(ended.count, ended.err, stop)
	r.tell()
	r.mu.Unlock()
}
