package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/wire"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

func TestACallThatGivesUpEndsAloneAndTheLateReplyGoesToNobody(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1), xuid.WithTimeout(100*time.Millisecond))
	call := next(within(t), c)
	late := peer.Expect(wire.OpNext)
	// The server is there: it answers the PING that asks for that.
	ping := peer.Expect(wire.OpPing)
	peer.Reply(ping, &ping.Body)
	var timeout *xuid.TimeoutError
	if err := fails(t, call, &timeout); !xuid.Retryable(err) || timeout.Limit != 100*time.Millisecond {
		t.Fatalf("%+v", timeout)
	}
	peer.Reply(late, &wiretest.Body{ID: 1})
	call = next(within(t), c)
	peer.ServeNext(2)
	gives(t, call, 2)
}

func TestTheTimeForRetriesBeginsWithTheCallAndNotWithItsFirstFailure(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1), xuid.WithTimeout(600*time.Millisecond), xuid.WithRetryFor(300*time.Millisecond))
	call := next(within(t), c)
	peer.Expect(wire.OpNext)
	// One that were repeated would be answered.
	go peer.ServeRest(7)
	var timeout *xuid.TimeoutError
	fails(t, call, &timeout)
	gives(t, next(within(t), c), 7)
}

func TestTheWaitOfARequestComesOnTopOfItsTimeout(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1), xuid.WithTimeout(50*time.Millisecond))
	begun := time.Now()
	call := begin(func() (uint64, error) {
		ids, err := c.Array(within(t), 1, xuid.Wait(200*time.Millisecond))
		return uint64(len(ids)), err
	})
	if asked := peer.Expect(wire.OpArray); asked.WaitMS != 200 {
		t.Errorf("%d ms were asked for", asked.WaitMS)
	}
	var timeout *xuid.TimeoutError
	fails(t, call, &timeout)
	if took := time.Since(begun); took < 250*time.Millisecond {
		t.Fatalf("given up after %v", took)
	}
}

func TestACallThatStoodInLineIsGivenUpInItsTime(t *testing.T) {
	const limit = 2 * time.Second
	fake := faketest.Start(t, 1)
	fake.Hello.MaxInFlight = 1
	c, peer := pair(t, fake, xuid.WithTimeout(limit))
	// It may take so long that the watcher looks each half a limit only: 1 s, 2 s and 3 s from here.
	first := begin(func() (uint64, error) {
		runs, err := c.Runs(within(t), 1, xuid.Wait(time.Minute))
		return uint64(len(runs)), err
	})
	held := peer.Expect(wire.OpRuns)
	time.Sleep(500 * time.Millisecond)
	begun := time.Now()
	call := next(within(t), c)
	// Its place comes shortly before its end, and behind the look at 2 s.
	time.Sleep(limit - 200*time.Millisecond)
	peer.Runs(held, 1)
	gives(t, first, 1)
	peer.Expect(wire.OpNext)
	var timeout *xuid.TimeoutError
	fails(t, call, &timeout)
	if took := time.Since(begun); took > limit+250*time.Millisecond {
		t.Fatalf("given up after %v", took)
	}
}

func TestASilentServerIsAskedAndThenLeft(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake, xuid.WithTimeout(100*time.Millisecond))
	call := next(within(t), c)
	peer.Expect(wire.OpNext)
	peer.Expect(wire.OpPing)
	peer.ExpectEnd()
	var timeout *xuid.TimeoutError
	fails(t, call, &timeout)
	call = next(within(t), c)
	fake.Greet().ServeNext(3)
	gives(t, call, 3)
}

func TestAServerThatAnswersThePingIsAskedAgain(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1), xuid.WithTimeout(600*time.Millisecond))
	call := next(within(t), c)
	late := peer.Expect(wire.OpNext)
	for times := 0; times < 3; times++ {
		ping := peer.Expect(wire.OpPing)
		peer.Reply(ping, &ping.Body)
	}
	var timeout *xuid.TimeoutError
	fails(t, call, &timeout)
	peer.Reply(late, &wiretest.Body{ID: 1})
	call = next(within(t), c)
	peer.ServeNext(2)
	gives(t, call, 2)
}

func TestAServerThatAnswersAnythingIsNotSilent(t *testing.T) {
	const limit = 300 * time.Millisecond
	c, peer := pair(t, faketest.Start(t, 1), xuid.WithTimeout(limit))
	forgotten := next(within(t), c)
	peer.Expect(wire.OpNext)
	// For three timeouts that one is not answered, nor is a PING, and the others are.
	for begun, id := time.Now(), uint64(1); time.Since(begun) < 3*limit; id++ {
		call := next(within(t), c)
		asked, ok := peer.Ask()
		for ok && asked.Op == wire.OpPing {
			asked, ok = peer.Ask()
		}
		peer.Reply(asked, &wiretest.Body{ID: wiretest.Number(id)})
		gives(t, call, id)
	}
	var timeout *xuid.TimeoutError
	fails(t, forgotten, &timeout)
}

func TestAContextEndsItsCallAloneAndTheConnectionStays(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	ctx, cancel := context.WithCancel(within(t))
	call := next(ctx, c)
	late := peer.Expect(wire.OpNext)
	other := next(within(t), c)
	open := peer.Expect(wire.OpNext)
	cancel()
	if r := soon(t, call); r.err != context.Canceled || xuid.Retryable(r.err) {
		t.Fatalf("%+v", r)
	}
	peer.Reply(late, &wiretest.Body{ID: 1})
	peer.Reply(open, &wiretest.Body{ID: 2})
	gives(t, other, 2)
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	if _, err := c.Next(expired); err != context.DeadlineExceeded {
		t.Fatalf("%v", err)
	}
	call = next(within(t), c)
	peer.ServeNext(3)
	gives(t, call, 3)
}

func TestADeadlineShortensTheWaitThatTheServerIsTold(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	call := begin(func() (uint64, error) {
		ids, err := c.Array(ctx, 1, xuid.Wait(time.Minute))
		return ids[0], err
	})
	asked := peer.Expect(wire.OpArray)
	if asked.WaitMS > 5000 || asked.WaitMS < 1000 {
		t.Errorf("%d ms were asked for", asked.WaitMS)
	}
	peer.Reply(asked, &wiretest.Body{IDs: []wiretest.Number{7}})
	gives(t, call, 7)
}

func TestNoMoreAreInFlightThanClientAndServerAllow(t *testing.T) {
	for _, limits := range []struct{ client, server uint32 }{{2, 1024}, {1024, 2}} {
		fake := faketest.Start(t, 1)
		fake.Hello.MaxInFlight = limits.server
		c, peer := pair(t, fake, xuid.WithMaxInFlight(int(limits.client)))
		answered := make(chan result, 10)
		for i := 0; i < 10; i++ {
			go func() {
				id, err := c.Next(within(t))
				answered <- result{id, err}
			}()
		}
		open := []faketest.Asked{peer.Expect(wire.OpNext), peer.Expect(wire.OpNext)}
		for served := uint64(1); served <= 10; served++ {
			// A PING has to stand in line as well: so nothing else comes before a reply.
			peer.Reply(open[0], &wiretest.Body{ID: wiretest.Number(served)})
			if r := soon(t, answered); r.err != nil || r.id != served {
				t.Fatalf("%+v", r)
			}
			if open = open[1:]; served <= 8 {
				open = append(open, peer.Expect(wire.OpNext))
			}
		}
	}
}

func TestAnAbandonedRequestKeepsItsPlaceUntilItsReply(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1), xuid.WithMaxInFlight(1))
	ctx, cancel := context.WithCancel(within(t))
	call := next(ctx, c)
	late := peer.Expect(wire.OpNext)
	cancel()
	soon(t, call)
	short, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	if r := soon(t, next(short, c)); r.err != context.DeadlineExceeded {
		t.Fatalf("%+v came without a place", r)
	}
	call = next(within(t), c)
	peer.Reply(late, &wiretest.Body{ID: 1})
	// The call that gave up in line left nothing behind: this is the next one's.
	peer.ServeNext(2)
	gives(t, call, 2)
}

func TestDialEndsWithItsContextAndWithItsTimeout(t *testing.T) {
	fake := faketest.Start(t, 1)
	go func() {
		for fake.Accept() != nil {
			// It accepts, and greets nobody.
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := xuid.Dial(ctx, fake.Addr); err != context.DeadlineExceeded {
		t.Fatalf("%v", err)
	}
	_, err := xuid.Dial(within(t), fake.Addr, xuid.WithConnectTimeout(20*time.Millisecond))
	var unreachable *xuid.UnreachableError
	if !errors.As(err, &unreachable) {
		t.Fatalf("%v", err)
	}
}
