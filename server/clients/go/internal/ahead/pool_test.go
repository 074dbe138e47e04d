package ahead

import (
	"testing"
	"time"

	"github.com/x-uid/xuid-go/internal/wire"
)

func TestWhatIsTooOldOrComesAfterTheEndIsWastedAndNotHeld(t *testing.T) {
	for _, c := range []struct {
		closed       bool
		now          time.Duration
		byAge, atEnd uint64
	}{{false, 5, 14, 0}, {true, 4, 0, 14}} {
		p := pool{asked: 10, closed: c.closed}
		p.put(10, []wire.Run{{First: 1, Count: 10, Stride: 1}}, 5, c.now)
		p.giveBack(10, held{next: 7, stride: 1, closed: 4, end: 5}, c.now)
		if p.held != 0 || len(p.runs) != 0 || p.asked != 0 {
			t.Errorf("%+v", p)
		}
		if want := (Stats{Received: 10, Issued: 6, WastedByAge: c.byAge, WastedAtEnd: c.atEnd, Refills: 1}); p.stats != want {
			t.Errorf("%+v instead of %+v", p.stats, want)
		}
	}
}

func TestACallerThatWaitedForTheLockGetsNothingThatBecameVoidMeanwhile(t *testing.T) {
	const maxAge = time.Hour
	s := &Source{options: Options{MaxAge: maxAge}, clock: newClock(), wanted: make(chan struct{}, 1)}
	s.pool.asked = 10
	s.pool.put(10, []wire.Run{{First: 1, Count: 10, Stride: 1}}, maxAge, 0)
	h := s.Handle()
	looked := func() time.Time {
		s.clock.mu.Lock()
		defer s.clock.mu.Unlock()
		return s.clock.last
	}
	before := looked()
	s.mu.Lock()
	took := make(chan bool, 1)
	go func() {
		_, ok := h.TryNext()
		took <- ok
	}()
	// It looks at the clock before it takes the lock.
	for looked() == before {
		time.Sleep(time.Millisecond)
	}
	s.clock.skip(maxAge)
	s.mu.Unlock()
	if <-took {
		t.Fatal("an id that became void before")
	}
}
