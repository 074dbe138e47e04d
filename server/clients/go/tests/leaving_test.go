package tests

import (
	"context"
	"runtime"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/wire"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

func TestALostReplyIsAnErrorAndTheNextCallReconnects(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake)
	call := next(within(t), c)
	peer.Expect(wire.OpNext)
	peer.Close()
	var lost *xuid.LostError
	if err := fails(t, call, &lost); !xuid.Retryable(err) {
		t.Fatalf("%v is worth repeating", err)
	}
	call = next(within(t), c)
	peer = fake.Greet()
	peer.ServeNext(5)
	gives(t, call, 5)
	call = next(within(t), c)
	peer.ServeNext(6)
	gives(t, call, 6)
}

func TestAllInFlightAreToldWhenTheConnectionEnds(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake)
	var calls []<-chan result
	for i := 0; i < 50; i++ {
		calls = append(calls, next(within(t), c))
	}
	for range calls {
		peer.Expect(wire.OpNext)
	}
	peer.Close()
	for _, call := range calls {
		var lost *xuid.LostError
		fails(t, call, &lost)
	}
}

func TestWithRetriesAllowedALostReplyIsAskedForAgain(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake, xuid.WithRetryFor(15*time.Second))
	call := next(within(t), c)
	peer.Expect(wire.OpNext)
	peer.Close()
	peer = fake.Greet()
	peer.Refuse(peer.Expect(wire.OpNext), 0x8011, 3*time.Millisecond)
	peer.Refuse(peer.Expect(wire.OpNext), 0x8011, 0)
	peer.ServeNext(9)
	gives(t, call, 9)
	call = next(within(t), c)
	peer.Refuse(peer.Expect(wire.OpNext), 0x0008, 0)
	var refused *xuid.RefusedError
	if err := fails(t, call, &refused); xuid.Retryable(err) || refused.Status != xuid.StatusExhausted {
		t.Fatalf("%v will not pass, and is not asked again", err)
	}
}

func TestAPauseBeyondTheTimeForRetriesEndsThem(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake, xuid.WithRetryFor(15*time.Second))
	call := next(within(t), c)
	peer.Refuse(peer.Expect(wire.OpNext), 0x8011, time.Hour)
	var refused *xuid.RefusedError
	fails(t, call, &refused)
	if refused.RetryAfter != time.Hour || refused.Server != fake.Addr || refused.Text != "no" {
		t.Fatalf("%+v", refused)
	}
}

func TestAfterGoAwayWhatIsInFlightIsFinishedAndTheRestGoesElsewhere(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, old := pair(t, fake)
	first := next(within(t), c)
	open := old.Expect(wire.OpNext)
	// Behind GOAWAY, so that the client has read it when the PING is answered.
	ping := begin(func() (uint64, error) { return 0, c.Ping(within(t)) })
	asked := old.Expect(wire.OpPing)
	old.GoAway()
	old.Reply(asked, &asked.Body)
	gives(t, ping, 0)
	second := next(within(t), c)
	peer := fake.Greet()
	peer.ServeNext(2)
	gives(t, second, 2)
	select {
	case r := <-first:
		t.Fatalf("%+v came before its reply", r)
	default:
	}
	old.Reply(open, &wiretest.Body{ID: 1})
	gives(t, first, 1)
	old.ExpectEnd()
}

func TestACloseEndsWhatIsInFlightOnAConnectionThatWasLeft(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, old := pair(t, fake)
	left := begin(func() (uint64, error) {
		_, err := c.Array(context.Background(), 2, xuid.Wait(30*time.Second))
		return 0, err
	})
	old.Expect(wire.OpArray)
	// Behind GOAWAY, so that the client has read it when the PING is answered.
	ping := begin(func() (uint64, error) { return 0, c.Ping(within(t)) })
	asked := old.Expect(wire.OpPing)
	old.GoAway()
	old.Reply(asked, &asked.Body)
	gives(t, ping, 0)
	call := next(within(t), c)
	peer := fake.Greet()
	peer.ServeNext(1)
	gives(t, call, 1)
	go peer.ServeRest(100)
	c.Close()
	if r := soon(t, left); r.err != xuid.ErrClosed {
		t.Fatalf("%v", r.err)
	}
	old.ExpectEnd()
}

func TestAfterGoAwayNeitherAPingNorAByeIsSent(t *testing.T) {
	for _, closes := range []bool{false, true} {
		c, peer := pair(t, faketest.Start(t, 1), xuid.WithTimeout(200*time.Millisecond))
		call := next(within(t), c)
		peer.Expect(wire.OpNext)
		// Behind GOAWAY, so that the client has read it when the PING is answered.
		ping := begin(func() (uint64, error) { return 0, c.Ping(within(t)) })
		asked := peer.Expect(wire.OpPing)
		peer.GoAway()
		peer.Reply(asked, &asked.Body)
		gives(t, ping, 0)
		if closes {
			c.Close()
		}
		peer.ExpectEnd()
		if r := soon(t, call); r.err == nil || closes && r.err != xuid.ErrClosed {
			t.Fatalf("%+v", r)
		}
	}
}

func TestARequestThatCrossedGoAwayIsAskedElsewhereAtOnceWithoutRetries(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, old := pair(t, fake)
	call := next(within(t), c)
	old.Expect(wire.OpNext)
	old.GoAway()
	old.Close()
	fake.Greet().ServeNext(3)
	gives(t, call, 3)
}

func TestAnErrorToNoRequestEndsTheConnectionWithThatError(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake)
	call := next(within(t), c)
	peer.Expect(wire.OpNext)
	peer.Raw(wiretest.AppendReply(nil, wire.OpHello|wire.ReplyBit, 0x8011, 0, &wiretest.Body{Text: "too many"}))
	var refused *xuid.RefusedError
	if fails(t, call, &refused); refused.Text != "too many" {
		t.Fatalf("%+v", refused)
	}
	peer.ExpectEnd()
}

func TestCloseAnswersWhatIsInFlightAndSaysBye(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake)
	call := next(within(t), c)
	open := peer.Expect(wire.OpNext)
	closing := begin(func() (uint64, error) { return 0, c.Close() })
	bye := peer.Expect(wire.OpBye)
	peer.Reply(open, &wiretest.Body{ID: 4})
	gives(t, call, 4)
	peer.Reply(bye, &wiretest.Body{})
	peer.ExpectEnd()
	gives(t, closing, 0)
	if _, err := c.Next(within(t)); err != xuid.ErrClosed {
		t.Fatalf("%v after Close", err)
	}
	if c.Prefetch().Close(); c.Close() != nil {
		t.Fatal("a second Close does nothing")
	}
}

func TestACloseEndsThePauseBeforeTheNextAttempt(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1), xuid.WithRetryFor(time.Hour))
	call := next(context.Background(), c)
	peer.Refuse(peer.Expect(wire.OpNext), 0x8011, time.Minute)
	go peer.ServeRest(1)
	c.Close()
	if r := soon(t, call); r.err != xuid.ErrClosed {
		t.Fatalf("%+v", r)
	}
}

func TestACloseEndsADialThatIsNotAnswered(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake, xuid.WithConnectTimeout(time.Hour))
	call := next(context.Background(), c)
	peer.Expect(wire.OpNext)
	peer.GoAway()
	peer.Close()
	silent := fake.Accept()
	silent.ReadHello()
	c.Close()
	if r := soon(t, call); r.err != xuid.ErrClosed {
		t.Fatalf("%+v", r)
	}
	silent.ExpectEnd()
}

func TestWhatWaitsAtAServerThatSaidGoAwayAndVanishedIsAskedForElsewhere(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake, xuid.WithTimeout(300*time.Millisecond))
	runs := make(chan error, 1)
	go func() {
		got, err := c.Runs(within(t), 1, xuid.Wait(time.Minute))
		if err == nil && (len(got) != 1 || got[0].First != 7) {
			t.Errorf("%v", got)
		}
		runs <- err
	}()
	peer.Expect(wire.OpRuns)
	call := next(within(t), c)
	peer.Expect(wire.OpNext)
	peer.GoAway()
	other := fake.Greet()
	other.Runs(other.Expect(wire.OpRuns), 7)
	if err := <-runs; err != nil {
		t.Fatal(err)
	}
	var late *xuid.TimeoutError
	fails(t, call, &late)
}

func TestAServerThatSendsEveryCallAwayIsDialedAfterAPause(t *testing.T) {
	fake := faketest.Start(t, 1)
	// A random part of it: less than the patience of this test is once in a million.
	c, peer := pair(t, fake, xuid.WithBackoff(1000*time.Hour, 1000*time.Hour))
	short, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	call := next(short, c)
	for _, again := range []bool{true, false} {
		peer.Expect(wire.OpNext)
		peer.GoAway()
		peer.Close()
		if again {
			peer = fake.Greet()
		}
	}
	third := make(chan *faketest.Peer, 1)
	go func() { third <- fake.Accept() }()
	if r := soon(t, call); r.err != context.DeadlineExceeded {
		t.Fatalf("%+v", r)
	}
	fake.Close()
	if <-third != nil {
		t.Fatal("a third dial")
	}
}

func TestAClosedClientLeavesNoGoroutineBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	fake := faketest.Start(t, 1)
	served := make(chan struct{})
	go func() {
		fake.Greet().ServeRest(1)
		close(served)
	}()
	c, err := xuid.Dial(within(t), fake.Addr)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Prefetch()
	for i := 0; i < 1000; i++ {
		if _, err := p.Next(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	<-served
	until(t, func() bool { return runtime.NumGoroutine() <= before })
}
