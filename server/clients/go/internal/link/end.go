package link

import (
	"context"
	"runtime"
	"time"

	"github.com/x-uid/xuid-go/internal/wire"
)

// lastWords is how long the reader may go on when writing failed: the server may have said why before it closed.
const lastWords = time.Second

// leavingMax is how long a link may live after GOAWAY, besides the timeout of its calls: the longest wait of a request,
// and some.
const leavingMax = 65 * time.Second

// Retire takes no more requests, as after GOAWAY; those in flight are still answered.
func (l *Link) Retire() {
	l.mu.Lock()
	isIdle := l.retire()
	l.mu.Unlock()
	if isIdle {
		// No reply will come that could show the reader that it was the last one.
		l.End(l.lost(nil))
	}
}

// retire says whether nothing is in flight. The lock is held.
func (l *Link) retire() bool {
	if l.state != serving {
		return false
	}
	l.state = leaving
	l.leaveUntil = later(Now(), leavingMax+l.timeout)
	l.dismissLine()
	l.watched = true
	signal(l.watch)
	return l.pending.isEmpty()
}

// dismissLine sends those who wait for a place to another link. The lock is held.
func (l *Link) dismissLine() {
	for _, place := range l.line {
		place <- false
	}
	l.line = nil
}

// Bye says that the client leaves, and waits until the server has answered what is in flight and closes, or until the
// context ends.
func (l *Link) Bye(ctx context.Context) {
	w := waiters.Get().(*waiter)
	now := Now()
	l.mu.Lock()
	if l.state == ended || l.sentAway {
		l.mu.Unlock()
		w.free()
		return
	}
	r := wire.Request{Op: wire.OpBye}
	l.retire()
	id, wakes := l.append(&r, waiting{
		expected: expectedOf(&r), own: true, due: now, end: later(now, l.timeout), waiter: w,
	})
	l.mu.Unlock()
	if wakes {
		signal(l.wake)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if !l.abandon(id) {
			<-w.done
		}
	}
	w.free()
}

// End ends the link: whatever waits is told err. The first end counts.
func (l *Link) End(err error) {
	l.mu.Lock()
	if l.state == ended {
		l.mu.Unlock()
		return
	}
	l.state = ended
	var told []*waiter
	l.pending.each(func(w *waiting) {
		if w.waiter != nil {
			told = append(told, w.waiter)
		}
	})
	l.pending.clear()
	l.dismissLine()
	l.looks = nil
	l.mu.Unlock()
	close(l.done)
	for _, w := range told {
		w.tell(Answer{}, err)
	}
	// Last: within TLS it may take its time to say so to the server.
	l.conn.Close()
}

// writeLoop writes the outbox whenever there is something in it.
func (l *Link) writeLoop() {
	var batch []byte
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		// One read wakes many callers. Those that are about to ask again do it now, and share the write.
		runtime.Gosched()
		for {
			l.mu.Lock()
			batch, l.outbox = l.outbox, batch[:0]
			l.mu.Unlock()
			if len(batch) == 0 {
				break
			}
			if _, err := l.conn.Write(batch); err != nil {
				l.mu.Lock()
				l.writeErr = err
				l.conn.SetReadDeadline(time.Now().Add(lastWords))
				l.mu.Unlock()
				return
			}
		}
	}
}
