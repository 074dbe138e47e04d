package link

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/wire"
)

// lost fails unless a NEXT ends because its connection did, which is here for the caller to end.
func lost(t *testing.T, l *Link, end func()) (err error) {
	t.Helper()
	over := make(chan error, 1)
	go func() {
		_, err := l.Call(context.Background(), &wire.Request{Op: wire.OpNext}, Now())
		over <- err
	}()
	for l.untouched() {
		time.Sleep(time.Millisecond)
	}
	end()
	select {
	case err = <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("this should have ended by now")
	}
	if !fail.Is(err, fail.Lost) {
		t.Fatalf("%v", err)
	}
	return err
}

// untouched: nothing was asked for yet.
func (l *Link) untouched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == serving && l.pending.isEmpty()
}

func TestALinkThatWasSentAwayEndsInAnyCase(t *testing.T) {
	l := startStopped(newStopped(10), time.Hour)
	lost(t, l, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.retire()
		// Not over yet when the watcher looks first: it must come back in time.
		l.leaveUntil = later(Now(), 50*time.Millisecond)
	})
}

func TestALinkThatAnotherOneEndsWhileItLooksForALateReplyReadsNoMore(t *testing.T) {
	look := make(chan struct{})
	l := &Link{conn: newStopped(1), done: make(chan struct{}), looks: []chan struct{}{look}}
	looks, err := l.afterTimeout(nil)
	if err != nil || len(looks) != 1 {
		t.Fatalf("%v, %v", looks, err)
	}
	l.End(&fail.Error{Kind: fail.Closed})
	if _, err := l.afterTimeout(looks); err == nil {
		t.Fatal("it reads on")
	}
}

func TestALinkThatCannotWriteEndsThoughNothingComes(t *testing.T) {
	conn := newStopped(10)
	conn.broken = errors.New("a test broke it")
	if err := lost(t, startStopped(conn, time.Hour), func() {}); !errors.Is(err, conn.broken) {
		t.Fatalf("%v does not say why", err)
	}
}

func TestAPingHasHalfATimeoutThoughAllOfItWasOverWhenItWasSent(t *testing.T) {
	l := &Link{timeout: 100, heard: 10}
	l.pending.insert(waiting{due: 20, end: far})
	// The last one is of a process that was stopped.
	for _, c := range []struct{ asked, silence int64 }{{0, 70}, {70, 120}, {500, 550}} {
		l.asked = c.asked
		if _, silence := l.deadlines(); silence != c.silence {
			t.Errorf("asked at %d: %d instead of %d", c.asked, silence, c.silence)
		}
	}
}
