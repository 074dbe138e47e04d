package link

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/wire"
)

// stopped is a connection as a process that was stopped finds it: what came meanwhile lies in the socket, and nothing has
// told the reader. Only a deadline ends its wait.
type stopped struct {
	net.Conn
	mu      sync.Mutex
	changed *sync.Cond
	lies    []byte
	// hurried: there is a deadline.
	hurried, closed bool
	// replies has each NEXT answered at once with id 7, unheard.
	replies bool
	// broken is what a write fails with.
	broken  error
	written chan []byte
}

func newStopped(room int) *stopped {
	s := &stopped{written: make(chan []byte, room)}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stopped) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.hurried && !s.closed {
		s.changed.Wait()
	}
	if s.closed {
		return 0, net.ErrClosed
	}
	if len(s.lies) > 0 {
		n := copy(b, s.lies)
		s.lies = s.lies[n:]
		return n, nil
	}
	return 0, os.ErrDeadlineExceeded
}

func (s *stopped) Write(b []byte) (int, error) {
	if s.broken != nil {
		return 0, s.broken
	}
	if header, _ := wire.ParseHeader(b); s.replies && header.Op == wire.OpNext {
		s.mu.Lock()
		s.lies = wire.Header{BodyLen: 8, Op: wire.OpNext | wire.ReplyBit, RequestID: header.RequestID}.Append(s.lies)
		s.lies = append(s.lies, 7, 0, 0, 0, 0, 0, 0, 0)
		s.mu.Unlock()
	}
	s.written <- append([]byte(nil), b...)
	return len(b), nil
}

func (s *stopped) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = !t.IsZero()
	s.changed.Broadcast()
	return nil
}

func (s *stopped) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	return nil
}

func startStopped(conn *stopped, timeout time.Duration) *Link {
	return Start(&Greeted{About: About{Server: "s", HelloReply: wire.HelloReply{MaxInFlight: 10}}, conn: conn},
		&Options{MaxInFlight: 10, Timeout: timeout})
}

func TestAReplyThatLiesInTheSocketWhenItsTimeIsOverCounts(t *testing.T) {
	conn := newStopped(10)
	conn.replies = true
	l := startStopped(conn, 500*time.Millisecond)
	defer l.End(&fail.Error{Kind: fail.Closed})
	answer, err := l.Call(context.Background(), &wire.Request{Op: wire.OpNext}, Now())
	if err != nil || answer.ID != 7 {
		t.Fatalf("%+v, %v", answer, err)
	}
}

func TestAServerWhoseReplyLiesInTheSocketWhenAContextEndsWasNotSilent(t *testing.T) {
	conn := newStopped(10)
	conn.replies = true
	l := startStopped(conn, time.Hour)
	defer l.End(&fail.Error{Kind: fail.Closed})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	begin := Now()
	_, err := l.Call(ctx, &wire.Request{Op: wire.OpNext}, begin)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	if l.SilentSince(begin) {
		t.Fatal("it was silent")
	}
}

func TestAServerThatAnsweredOthersIsNoneThatMustBeLookedAt(t *testing.T) {
	// Nobody reads: a look would last for all of its time.
	l := &Link{conn: newStopped(1), answered: 10, done: make(chan struct{})}
	begin := time.Now()
	if l.SilentSince(5) || time.Since(begin) > lastLook/2 {
		t.Fatalf("after %v", time.Since(begin))
	}
}

func TestACallWithNothingInTheSocketEndsAtItsTime(t *testing.T) {
	l := startStopped(newStopped(10), 20*time.Millisecond)
	defer l.End(&fail.Error{Kind: fail.Closed})
	_, err := l.Call(context.Background(), &wire.Request{Op: wire.OpNext}, Now())
	if !fail.Is(err, fail.Timeout) {
		t.Fatalf("%v", err)
	}
}

func TestRequestsOfConcurrentCallersAreGatheredIntoOneWrite(t *testing.T) {
	const callers = 100
	conn := newStopped(0)
	l := Start(&Greeted{About: About{HelloReply: wire.HelloReply{MaxInFlight: callers}}, conn: conn},
		&Options{MaxInFlight: callers, Timeout: time.Minute})
	var open sync.WaitGroup
	call := func() {
		defer open.Done()
		_, _ = l.Call(context.Background(), &wire.Request{Op: wire.OpNext}, Now())
	}
	// until so many are in flight, and, of those, so many bytes wait for the writer.
	until := func(inFlight, bytes int) {
		for is := false; !is; time.Sleep(time.Millisecond) {
			l.mu.Lock()
			is = l.callers == inFlight && len(l.outbox) == bytes
			l.mu.Unlock()
		}
	}
	open.Add(callers)
	go call()
	// The first one is being written.
	until(1, 0)
	for i := 1; i < callers; i++ {
		go call()
	}
	until(callers, (callers-1)*wire.HeaderLen)
	if first, second := len(<-conn.written), len(<-conn.written); first != wire.HeaderLen || second != 99*wire.HeaderLen {
		t.Fatalf("%d and %d bytes", first, second)
	}
	l.End(&fail.Error{Kind: fail.Closed})
	open.Wait()
}
