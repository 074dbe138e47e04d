package link

import (
	"time"

	"github.com/x-uid/xuid-go/internal/wire"
)

// lastLook is how long the watcher may take to look for replies whose time is over.
const lastLook = time.Second

// far is later than everything.
const far = 1<<63 - 1

// watchLoop ends calls whose time is over and a link that is silent. One timer serves all calls: a request that comes while
// it runs is due half a timeout later at the earliest, and the timer never runs for longer than that.
func (l *Link) watchLoop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := l.look()
		if next == 0 {
			select {
			case <-l.watch:
				continue
			case <-l.done:
				return
			}
		}
		if !timer.Stop() {
			select {
			case <-timer.C:
			default:
			}
		}
		timer.Reset(time.Duration(next - Now()))
		select {
		case <-timer.C:
		case <-l.watch:
		case <-l.done:
			return
		}
	}
}

// look does what is due, and returns when to look again; 0: when something is asked for.
func (l *Link) look() int64 {
	l.mu.Lock()
	now := Now()
	if l.state == leaving && now >= l.leaveUntil {
		l.mu.Unlock()
		l.End(l.lost(nil))
		return 0
	}
	if l.pending.isEmpty() && !l.used && l.state == serving {
		l.watched = false
		l.mu.Unlock()
		return 0
	}
	l.used = false
	firstEnd, silence := l.deadlines()
	if now < firstEnd && now < silence {
		next := now + int64(l.timeout/2)
		for _, end := range []int64{firstEnd, silence} {
			if end < next {
				next = end
			}
		}
		if l.state == leaving && l.leaveUntil < next {
			next = l.leaveUntil
		}
		l.mu.Unlock()
		return next
	}
	if now < firstEnd && l.asked == 0 {
		wakes := l.ask(now)
		l.mu.Unlock()
		if wakes {
			signal(l.wake)
		}
		return now + 1
	}
	l.mu.Unlock()
	l.readUp(lastLook)
	l.judge(now)
	return Now() + 1
}

// deadlines are when the first caller gives up, and when the silence has lasted so long that something is to be done if
// it goes on: a PING to be sent, or an end to be made. The lock is held.
func (l *Link) deadlines() (firstEnd, silence int64) {
	firstEnd, firstDue := int64(far), int64(far)
	l.pending.each(func(w *waiting) {
		if w.waiter != nil && w.end < firstEnd {
			firstEnd = w.end
		}
		if w.due < firstDue {
			firstDue = w.due
		}
	})
	if firstDue == far {
		return firstEnd, far
	}
	since, half := firstDue, l.timeout/2
	if l.heard > since {
		since = l.heard
	}
	if l.asked == 0 {
		return firstEnd, later(since, half)
	}
	silence = later(since, l.timeout)
	// A process that was stopped finds its whole timeout over, and nothing asked.
	if asked := later(l.asked, half); asked > silence {
		silence = asked
	}
	return firstEnd, silence
}

// ask sends a PING of the link's own; whether the writer is to be woken. The reply to a PING waits behind no ids, and this
// one takes no place in flight: where the server reads no more requests it is not answered, as if nothing were there.
// The lock is held.
func (l *Link) ask(now int64) bool {
	l.asked = now
	if l.sentAway {
		// After GOAWAY nothing more is sent, and the silence is judged alone.
		return false
	}
	r := wire.Request{Op: wire.OpPing}
	_, wakes := l.append(&r, waiting{expected: expectedOf(&r), own: true, due: now, end: far})
	return wakes
}

// judge ends the calls whose time was over at now, or the whole link if its silence was. All that had come by then is
// delivered.
func (l *Link) judge(now int64) {
	l.mu.Lock()
	if l.state == ended {
		l.mu.Unlock()
		return
	}
	var late []*waiter
	l.pending.each(func(w *waiting) {
		if w.waiter != nil && w.end <= now {
			late = append(late, w.waiter)
			w.waiter = nil
		}
	})
	_, silence := l.deadlines()
	isSilent := l.asked != 0 && now >= silence
	verdict := l.lateBy(l.timeout)
	if l.sentAway {
		// What a server leaves unanswered behind GOAWAY is repeated elsewhere.
		verdict = l.lost(nil)
	}
	l.mu.Unlock()
	for _, w := range late {
		w.tell(Answer{}, l.lateBy(l.timeout))
	}
	if isSilent {
		l.End(verdict)
	}
}
