package ahead

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/fleet"
	"github.com/x-uid/xuid-go/internal/wire"
)

// mill is a server in this process.
type mill struct {
	mu   sync.Mutex
	next uint64
	// refills that it answers before it stops answering; below 0: all.
	refills int
	stride  uint32
	err     error
}

func (m *mill) Ready(context.Context) error { return nil }
func (m *mill) MaxCount() uint32            { return 131_072 }
func (m *mill) Retries() *fleet.Retries     { return nil }

func (m *mill) Pause(*fleet.Retries, error) time.Duration { return time.Millisecond }

func (m *mill) Runs(ctx context.Context, count uint32, _ time.Duration) ([]wire.Run, error) {
	m.mu.Lock()
	if m.err != nil {
		defer m.mu.Unlock()
		return nil, m.err
	}
	if m.refills == 0 {
		m.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer m.mu.Unlock()
	m.refills--
	stride := m.stride
	if stride == 0 {
		stride = 1
	}
	var runs []wire.Run
	for left := count; left > 0; {
		run := wire.Run{First: m.next, Count: clampTo(left, 1000), Stride: stride}
		runs = append(runs, run)
		left -= run.Count
		m.next += uint64(run.Count) * uint64(stride)
	}
	return runs, nil
}

func clampTo(n, most uint32) uint32 { return uint32(clamp(uint64(n), 0, uint64(most))) }

func source(t *testing.T, m *mill, maxAge time.Duration) *Source {
	s := Start(m, Options{Least: 16, Most: 1 << 20, MaxAge: maxAge, Wait: 20 * time.Second})
	t.Cleanup(s.Close)
	return s
}

func TestEachIDComesOutOnceOverManyHandlesAndTheBooksBalance(t *testing.T) {
	m := &mill{refills: -1, stride: 3}
	s := source(t, m, time.Second)
	const handles, each = 8, 20_000
	shared := s.Handle()
	lists := make([][]uint64, handles)
	var open sync.WaitGroup
	for i := range lists {
		i := i
		open.Add(1)
		go func() {
			defer open.Done()
			own := s.Handle()
			for n := 0; n < each; n++ {
				// A handle that several share is as safe as one of a goroutine's own.
				h := own
				if n%3 == 0 {
					h = shared
				}
				id, err := h.Next(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				lists[i] = append(lists[i], id)
			}
			own.Close()
		}()
	}
	open.Wait()
	shared.Close()
	// What it had is settled once.
	if _, ok := shared.TryNext(); ok {
		t.Fatal("a handle that was closed gives ids")
	}
	seen := map[uint64]bool{}
	for _, list := range lists {
		for _, id := range list {
			if seen[id] || id%3 != 0 {
				t.Fatalf("%d", id)
			}
			seen[id] = true
		}
	}
	stats := s.Stats()
	if len(seen) != handles*each || stats.Issued != handles*each {
		t.Fatalf("%d ids, %+v", len(seen), stats)
	}
	if stats.Received != stats.Issued+stats.WastedByAge+stats.WastedAtEnd+stats.Held {
		t.Fatalf("%+v", stats)
	}
}

func TestNothingIsHandedOutAtItsAgeNotEvenTheOpenRestOfAPiece(t *testing.T) {
	const maxAge = 200 * time.Millisecond
	s := source(t, &mill{refills: 1}, maxAge)
	h := s.Handle()
	begun := time.Now()
	if _, err := h.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	// As in a hot loop: everything is open, and no hit looks at a clock.
	h.mu.Lock()
	h.run.openMore(longestPiece)
	h.mu.Unlock()
	for {
		_, ok := h.TryNext()
		if took := time.Since(begun); !ok {
			break
		} else if took > maxAge+20*time.Second {
			t.Fatalf("an id of %v", took)
		}
		h.mu.Lock()
		h.run.open++ // The run never ends.
		h.mu.Unlock()
	}
	if took := time.Since(begun); took < maxAge/2 {
		t.Fatalf("called off after %v already", took)
	}
}

func TestACallerThatTakesItsTimeGetsNothingTooOldThoughTheAgerSleepsOn(t *testing.T) {
	const maxAge = 40 * time.Millisecond
	s := &Source{options: Options{MaxAge: maxAge}, clock: newClock(), wanted: make(chan struct{}, 1)}
	s.pool.asked = 100
	s.pool.put(100, []wire.Run{{First: 1, Count: 100, Stride: 1}}, maxAge, 0)
	h := s.Handle()
	if id, ok := h.TryNext(); !ok || id != 1 {
		t.Fatalf("%d, %v", id, ok)
	}
	for s.clock.now() < maxAge {
		time.Sleep(maxAge / 10)
	}
	if id, ok := h.TryNext(); ok {
		t.Fatalf("id %d", id)
	}
	if stats := s.Stats(); stats.Issued != 1 || stats.WastedByAge != 99 || stats.Held != 0 {
		t.Fatalf("%+v", stats)
	}
}

func TestAClosedSourceGivesNothingAndWakesThoseWhoWait(t *testing.T) {
	s := source(t, &mill{refills: 1}, time.Second)
	h := s.Handle()
	if _, err := h.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() {
		idle := s.Handle()
		for {
			if _, err := idle.Next(context.Background()); err != nil {
				waits <- err
				return
			}
		}
	}()
	for s.Stats().Waits == 0 {
		time.Sleep(time.Millisecond)
	}
	s.Close()
	if err := <-waits; !fail.Is(err, fail.Closed) {
		t.Fatalf("%v", err)
	}
	if _, err := h.Next(context.Background()); !fail.Is(err, fail.Closed) {
		t.Fatalf("%v", err)
	}
}

func TestAFailureThatWillNotPassIsToldAtOnceAndTriedAgainByTheNextCall(t *testing.T) {
	m := &mill{err: &fail.Error{Kind: fail.Refused, Status: 0x000b}}
	s := source(t, m, time.Second)
	h := s.Handle()
	begun := time.Now()
	if _, err := h.Next(context.Background()); !fail.Is(err, fail.Refused) || time.Since(begun) > 10*time.Second {
		t.Fatalf("%v", err)
	}
	m.mu.Lock()
	m.err, m.refills = nil, -1
	m.mu.Unlock()
	if _, err := h.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	empty := source(t, &mill{}, time.Second)
	if _, err := empty.Handle().Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}

func TestWhateverWayARunIsPartedEachIDComesOutOnce(t *testing.T) {
	for part := uint64(0); part < 60; part++ {
		rest := held{next: 100, stride: 4096, closed: 50}
		rest.openMore(3)
		ids := []uint64{rest.take()}
		front := rest.front(part)
		for _, h := range []*held{&front, &rest} {
			for h.openMore(2); h.open > 0; h.openMore(2) {
				ids = append(ids, h.take())
			}
		}
		for i, id := range ids {
			if id != 100+4096*uint64(i) {
				t.Fatalf("%v", ids)
			}
		}
		if len(ids) != 50 {
			t.Fatalf("%d ids", len(ids))
		}
	}
}

func TestTheLevelFollowsTheUseUpWithinADozenRefillsAndDownAgain(t *testing.T) {
	now, taken := time.Duration(0), uint64(0)
	s := newSize(16, 1<<20, time.Second, now)
	use := func(rate float64) uint64 {
		before := s.level
		used := (s.level + 1) / 2
		taken += used
		now += time.Duration(float64(used) / rate * float64(time.Second))
		level := s.look(now, taken)
		if level > growth*before {
			t.Fatalf("from %d to %d", before, level)
		}
		return level
	}
	level := uint64(0)
	for i := 0; i < 12; i++ {
		level = use(50e6)
	}
	if level < 450_000 || level > 550_000 {
		t.Fatalf("%d are not 10 ms of 50 M/s", level)
	}
	for i := 0; i < 3; i++ {
		level = use(1e3)
	}
	if level != 16 {
		t.Fatalf("%d for a quiet user", level)
	}
	s.answered(40 * time.Millisecond)
	s.answered(400 * time.Millisecond)
	for i := 0; i < 12; i++ {
		level = use(1e6)
	}
	if level < 160_000 || level > 190_000 {
		t.Fatalf("%d are not four round trips of 1 M/s", level)
	}
}

func TestNeitherBoundOfTheLevelIsEverLeft(t *testing.T) {
	s := newSize(10, 1000, time.Second, 0)
	if level := s.look(0, 1<<62); level != 40 {
		t.Fatalf("%d: no time at all is not an endless rate", level)
	}
	for i := 1; i < 10; i++ {
		if level := s.look(time.Duration(i), 1<<62); level < 10 || level > 1000 {
			t.Fatalf("%d", level)
		}
		s.wasted()
	}
	if s.failed(500); s.request != 250 {
		t.Fatalf("%d", s.request)
	}
	if s.failed(1); s.request != 10 {
		t.Fatalf("%d", s.request)
	}
}

func TestTimeGoesOnWithTheFasterOfTwoClocks(t *testing.T) {
	for _, c := range []struct{ monotonic, wall, is time.Duration }{{5, 5, 5}, {5, 900, 900}, {5, -900, 5}, {0, 0, 0}} {
		if got := step(c.monotonic, c.wall); got != c.is {
			t.Errorf("%v and %v: %v", c.monotonic, c.wall, got)
		}
	}
}

func TestWhatIsHeldAndOnItsWayIsVoidAndWastedAndWhatIsAskedForAfterIsGood(t *testing.T) {
	const maxAge = time.Hour
	m := &mill{refills: 1}
	s := &Source{
		options: Options{Least: 100, Most: 100, MaxAge: maxAge, Wait: 20 * time.Second}, server: m, clock: newClock(),
		news: make(chan struct{}), wanted: make(chan struct{}, 1),
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	t.Cleanup(s.Close)
	r := newRefiller(s)
	refill := func() refill {
		s.pool.asked += 100
		r.fetch(100, 0)
		return <-r.ended
	}
	r.takeIn(refill())
	one, two := s.Handle(), s.Handle()
	for _, h := range []*Handle{one, two, one} {
		if _, ok := h.TryNext(); !ok {
			t.Fatal("nothing is held")
		}
	}
	// As in a hot loop: everything is open, and no hit looks at a clock.
	one.run.openMore(longestPiece)
	m.refills = 1
	onItsWay, trip := refill(), r.size.roundTrip
	s.Void()
	if s.Stats().Held != 0 {
		t.Fatalf("%+v", s.Stats())
	}
	r.takeIn(onItsWay)
	for _, h := range []*Handle{one, two} {
		if id, ok := h.TryNext(); ok {
			t.Fatalf("id %d", id)
		}
	}
	if stats := s.Stats(); stats.Received != 200 || stats.Issued != 3 || stats.WastedByAge != 197 || stats.Held != 0 {
		t.Fatalf("%+v", stats)
	}
	if r.size.roundTrip != trip {
		t.Fatalf("a round trip of %v", r.size.roundTrip)
	}
	m.refills = 1
	r.takeIn(refill())
	for _, h := range []*Handle{one, two} {
		if id, ok := h.TryNext(); !ok || id < 200 {
			t.Fatalf("%d, %v", id, ok)
		}
	}
}
