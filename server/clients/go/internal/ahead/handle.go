package ahead

import (
	"context"
	"sync"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
)

const (
	// longestPiece is the most ids between two looks at the clock. A look takes some 50 ns: 0.05 ns an id.
	longestPiece = 1024
	// quick: a piece that lasted longer is followed by one of a single id, so that a caller that takes its time has each id
	// looked after.
	quick = 50 * time.Microsecond
)

// Handle is a share of what is held. Several goroutines may use one, and then wait for each other; a goroutine with a handle
// of its own waits for none.
type Handle struct {
	mu     sync.Mutex
	source *Source
	run    held
	// openEnd is the coarse time from which what is open is refused.
	openEnd int64
	// had is how many ids the run was taken with.
	had uint64
	// piece is how many ids were opened last, at the time begun.
	piece  uint64
	begun  time.Duration
	closed bool
	// Handles that lie side by side must not share a line.
	_ [64]byte
}

// Handle is a new one.
func (s *Source) Handle() *Handle {
	s.mu.Lock()
	s.pool.handles++
	s.mu.Unlock()
	return &Handle{source: s}
}

// Next is an id. If none is held it waits for one, up to the source's wait.
func (h *Handle) Next(ctx context.Context) (uint64, error) {
	h.mu.Lock()
	if h.run.open > 0 && h.source.coarse.Load() < h.openEnd {
		id := h.run.take()
		h.mu.Unlock()
		return id, nil
	}
	h.mu.Unlock()
	return h.wait(ctx)
}

// TryNext is an id if one is held, and false if not; more is then asked for in the background.
func (h *Handle) TryNext() (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run.open > 0 && h.source.coarse.Load() < h.openEnd {
		return h.run.take(), true
	}
	id, err := h.refresh()
	return id, err == nil
}

// Close gives the rest of the run back. The handle answers as if its source were closed from then on.
func (h *Handle) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	rest := h.run.front(h.run.left())
	s := h.source
	s.mu.Lock()
	// After the lock: what is void is old by then, or is still to be dropped.
	s.pool.giveBack(h.had, rest, s.clock.now())
	s.pool.handles--
	s.mu.Unlock()
	h.had = 0
}

// errNothing: nothing is held now.
var errNothing = &fail.Error{Kind: fail.Timeout}

// refresh is an id from the next piece of the run in hand, or of another run. The handle's lock is held.
func (h *Handle) refresh() (uint64, error) {
	s := h.source
	now := s.clock.now()
	if h.run.left() > 0 && now < h.run.end && s.coarse.Load() < 1<<63-1 {
		h.open(now)
		return h.run.take(), nil
	}
	rest := h.run.front(h.run.left())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool.settle(h.had, rest.left())
	h.had = 0
	if s.pool.closed || h.closed {
		return 0, &fail.Error{Kind: fail.Closed}
	}
	// After the lock: what is young enough is so now.
	run, ok := s.pool.take(s.clock.now())
	if s.pool.raiseDemand() {
		s.wake()
	}
	if !ok {
		return 0, errNothing
	}
	h.run, h.had = run, run.left()
	h.open(now)
	return h.run.take(), nil
}

// open opens the next piece of the run: twice as many ids as the last one if that was used up quickly.
func (h *Handle) open(now time.Duration) {
	if now-h.begun <= quick {
		h.piece = clamp(2*h.piece, 1, longestPiece)
	} else {
		h.piece = 1
	}
	h.begun = now
	h.run.openMore(h.piece)
	h.openEnd = int64(h.run.end - h.source.period())
}

// wake has the refiller look.
func (s *Source) wake() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// wait takes an id as soon as there is one.
func (h *Handle) wait(ctx context.Context) (uint64, error) {
	s := h.source
	var timer *time.Timer
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		h.mu.Lock()
		id, err := h.refresh()
		h.mu.Unlock()
		if err != errNothing {
			return id, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		s.mu.Lock()
		if timer == nil {
			s.pool.beginWait()
			s.wake()
		} else if final := s.pool.finalWord(); final != nil {
			s.mu.Unlock()
			return 0, final
		}
		s.mu.Unlock()
		if timer == nil {
			timer = time.NewTimer(s.options.Wait)
			defer timer.Stop()
		}
		select {
		case <-news:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-timer.C:
			return 0, s.nothingCame()
		}
	}
}
