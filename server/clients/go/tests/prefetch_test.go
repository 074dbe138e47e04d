package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/wire"
)

func TestPrefetchedIDsComeWithoutARoundTripEach(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake)
	go peer.ServeRest(1000)
	p := c.Prefetch()
	seen := map[uint64]bool{}
	for i := 0; i < 100_000; i++ {
		id, err := p.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if seen[id] || id < 1000 {
			t.Fatalf("%d", id)
		}
		seen[id] = true
	}
	stats := p.Stats()
	if stats.Refills == 0 || stats.Refills > 5000 || stats.Received < 100_000 {
		t.Fatalf("%+v", stats)
	}
	p.Close()
	if _, err := p.Next(within(t)); err != xuid.ErrClosed {
		t.Fatalf("%v", err)
	}
}

func TestASequenceIsFetchedAheadWhereThatIsAskedFor(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	p := c.Sequence("orders").Prefetch()
	call := begin(func() (uint64, error) { return p.Next(within(t)) })
	asked := peer.Expect(wire.OpSeqRuns)
	if asked.Name != "orders" || asked.Order != wire.OrderAny || asked.Contiguous || asked.Count != 16 {
		t.Errorf("%+v", asked)
	}
	peer.Runs(asked, 5)
	gives(t, call, 5)
}

func TestAPrefetchThatFindsNothingTellsWhyAfterItsWait(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	p := c.Prefetch(xuid.PrefetchWait(50 * time.Millisecond))
	call := begin(func() (uint64, error) { return p.Next(within(t)) })
	open := peer.Expect(wire.OpRuns)
	var timeout *xuid.TimeoutError
	fails(t, call, &timeout)
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := p.Next(ctx); err != context.Canceled {
		t.Fatalf("%v", err)
	}
	peer.Refuse(open, 0x8011, time.Minute)
	var refused *xuid.RefusedError
	for {
		if err := soon(t, begin(func() (uint64, error) { return p.Next(within(t)) })).err; errors.As(err, &refused) {
			return
		}
	}
}

func TestPrefetchGoesOnOverALostServer(t *testing.T) {
	one, two := faketest.Start(t, 1), faketest.Start(t, 1)
	// Either issues ids of its own.
	first, second := make(chan *faketest.Peer, 1), make(chan *faketest.Peer, 1)
	go func() { first <- one.Greet() }()
	go func() { second <- two.Greet() }()
	c, err := dialAll(t, nil, one, two)
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]*faketest.Peer{one.Addr: <-first, two.Addr: <-second}
	begun, other := home(c, one, two)
	peer := peers[begun.Addr]
	go peer.ServeRest(1)
	go serve(other, 1<<40)
	begun.Close()
	p := c.Prefetch(xuid.PrefetchWait(faketest.Patience))
	seen := map[uint64]bool{}
	for i := 0; ; i++ {
		id, err := p.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if seen[id] {
			t.Fatalf("%d twice", id)
		}
		seen[id] = true
		if i == 1000 {
			peer.Close()
		}
		if id >= 1<<40 {
			return
		}
	}
}

func TestPrefetchAsksForFewerWhereTheServerHasNotSoMany(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	p := c.Prefetch(xuid.PrefetchAhead(1000, 1000), xuid.PrefetchWait(faketest.Patience))
	call := begin(func() (uint64, error) { return p.Next(within(t)) })
	asked := peer.Expect(wire.OpRuns)
	if asked.Count != 1000 {
		t.Errorf("%+v", asked)
	}
	peer.Refuse(asked, 0x8011, 0)
	peer.Runs(peer.Expect(wire.OpRuns), 77)
	gives(t, call, 77)
}

func TestAServerOfAnotherClusterMakesVoidWhatIsHeldBeforeACallerIsTold(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		fake := faketest.Start(t, 1)
		c, peer := pair(t, fake, xuid.WithReconnectRounds(1))
		p := c.Prefetch(xuid.PrefetchAhead(1000, 1000), xuid.PrefetchMaxAge(2*time.Second))
		h := p.Handle()
		call := begin(func() (uint64, error) { return p.Next(within(t)) })
		peer.Runs(peer.Expect(wire.OpRuns), 1)
		gives(t, call, 1)
		for i := 0; i < 5; i++ {
			if _, ok := h.TryNext(); !ok {
				t.Fatal("nothing is held")
			}
		}
		fake.Hello.Cluster = faketest.Cluster(2)
		go func() {
			for next := fake.Accept(); next != nil; next = fake.Accept() {
				hello, ok := next.ReadHello()
				switch {
				case ok && refuses:
					next.Refuse(hello, 7, 0)
				case ok:
					next.Reply(hello, &fake.Hello)
				}
			}
		}()
		peer.Close()
		var wrong *xuid.WrongClusterError
		// The first call may still meet the connection that ends.
		for !errors.As(soon(t, next(within(t), c)).err, &wrong) {
		}
		for _, take := range []func() (uint64, bool){p.TryNext, h.TryNext} {
			if id, ok := take(); ok {
				t.Fatalf("id %d of a cluster that was lost; refused: %v", id, refuses)
			}
		}
		h.Close()
		if stats := p.Stats(); stats.Received != 1000 || stats.Issued != 6 || stats.WastedByAge != 994 || stats.Held != 0 {
			t.Fatalf("%+v", stats)
		}
		fake.Close()
	}
}
