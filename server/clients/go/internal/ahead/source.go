// Package ahead holds ids that were asked for ahead of need.
//
//	server --- RUNS, several in flight ---> refiller: dates what came, sizes the next refill
//	                                           |
//	                                         pool: runs, about oldest first, behind a lock   <--- ager: drops what grew old
//	                                           |  a run is taken: one lock                          here and in handles
//	                                         Handle: the rest of a run, opened a piece at a time: one look at the clock
//	                                           |  a hit: the handle's own lock, one load, two comparisons
//	                                         caller
//
// Invariants:
//
//   - P1: an id is in one place: in flight, in the pool, in one handle, issued or wasted;
//   - P2: nothing is taken from the pool, and no piece of a run is opened, at MaxAge or later after it was asked for. What is
//     open in a handle then is refused by the coarse clock, which the ager moves, and which aims a little earlier;
//   - P3: received = issued + wasted by age + wasted at the end + held by pool and handles.
package ahead

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/fleet"
	"github.com/x-uid/xuid-go/internal/wire"
)

// grain is how often in a MaxAge the ager looks.
const grain = 32

// Server is where refills come from.
type Server interface {
	// Ready returns when there is a connection.
	Ready(ctx context.Context) error
	// Runs asks for so many ids, and gives up after patience.
	Runs(ctx context.Context, count uint32, patience time.Duration) ([]wire.Run, error)
	// MaxCount is the most ids of one request.
	MaxCount() uint32
	// Retries and Pause are the pauses between attempts.
	Retries() *fleet.Retries
	Pause(*fleet.Retries, error) time.Duration
}

// Options of a source, checked already.
type Options struct {
	Least, Most  uint64
	MaxAge, Wait time.Duration
}

// Source is ids that are there before they are asked for.
type Source struct {
	options Options
	server  Server
	clock   *clock
	// coarse is the clock at the ager's last look. On a line of its own: handles read it at every id. It never goes back, and
	// it stands at its end when the source is closed.
	_      [64]byte
	coarse atomic.Int64
	_      [64]byte

	mu   sync.Mutex
	pool pool
	// news is closed when it is worth looking again for those who wait.
	news chan struct{}
	// youngest is the latest end of what was ever held; the ager runs until then.
	youngest time.Duration
	aging    bool

	// wanted wakes the refiller.
	wanted  chan struct{}
	life    context.Context
	endLife context.CancelFunc
}

// Start begins to fetch.
func Start(server Server, options Options) *Source {
	s := &Source{
		options: options,
		server:  server,
		clock:   newClock(),
		pool:    pool{low: 1, demand: true},
		news:    make(chan struct{}),
		wanted:  make(chan struct{}, 1),
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	go newRefiller(s).run()
	return s
}

// Close ends the source: nothing is held, nothing comes, and no handle goes on with what it has.
func (s *Source) Close() {
	s.raise(1<<63 - 1)
	s.mu.Lock()
	s.pool.close()
	s.tell()
	s.mu.Unlock()
	s.endLife()
}

// Void drops what is held, by handles too, and what is on its way; it goes on with what is asked for from then on.
func (s *Source) Void() {
	// All that was asked for until now is too old then, for every check there is. The clock goes first: what is put in or
	// given back behind its back is found below, under the lock.
	now := s.clock.skip(s.options.MaxAge)
	s.raise(int64(now))
	s.mu.Lock()
	s.pool.dropOld(now)
	s.mu.Unlock()
}

// Stats are what was counted so far.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.pool.stats
	stats.Held = s.pool.held
	return stats
}

// tell wakes all who wait. The lock is held.
func (s *Source) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

// period is how often the ager looks, and how much earlier than at its MaxAge an open id is refused.
func (s *Source) period() time.Duration { return s.options.MaxAge / grain }

// raise moves the coarse clock on.
func (s *Source) raise(now int64) {
	for {
		old := s.coarse.Load()
		if old >= now || s.coarse.CompareAndSwap(old, now) {
			return
		}
	}
}

// keepUntil has the ager run until then. The lock is held.
func (s *Source) keepUntil(end time.Duration) {
	if end > s.youngest {
		s.youngest = end
	}
	if !s.aging && !s.pool.closed {
		s.aging = true
		go s.age()
	}
}

// age moves the coarse clock and drops what grew old in the pool, until nothing that was ever held can be good.
func (s *Source) age() {
	ticker := time.NewTicker(s.period())
	defer ticker.Stop()
	for {
		now := s.clock.now()
		// Handles first: they hand out ids at this moment.
		s.raise(int64(now))
		s.mu.Lock()
		s.pool.dropOld(now)
		if now >= s.youngest || s.pool.closed {
			s.aging = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		select {
		case <-ticker.C:
		case <-s.life.Done():
		}
	}
}

// nothingCame is what a caller is told after its whole wait.
func (s *Source) nothingCame() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool.failure != nil {
		return s.pool.failure
	}
	return &fail.Error{Kind: fail.Timeout, Limit: s.options.Wait, Text: "nothing prefetched came"}
}
