package link

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/wire"
)

const (
	// readRoom is made for each read: a few hundred replies to NEXT, and few reads for a large ARRAY.
	readRoom = 64 * 1024
	// inboxKept is the largest inbox that is kept when it is empty.
	inboxKept = 1 << 20
	// batchMost is how many replies are taken out of pending under one lock.
	batchMost = 256
	// lookTime is how long a read may take that finds out whether the socket is empty.
	lookTime = time.Millisecond
)

// delivery is one whole reply on its way to its caller.
type delivery struct {
	waiting
	header wire.Header
	body   []byte
}

// readLoop reads and delivers until the connection ends, or nothing is left to wait for after GOAWAY. It returns how the
// link ended.
func (l *Link) readLoop(inbox []byte) error {
	buf := make([]byte, readRoom)
	if len(inbox) > len(buf) {
		buf = make([]byte, len(inbox))
	}
	from, to := 0, copy(buf, inbox)
	batch := make([]delivery, 0, batchMost)
	var looks []chan struct{}
	for {
		consumed, err := l.deliver(buf[from:to], batch)
		if err != nil {
			return err
		}
		if from += consumed; from == to {
			from, to = 0, 0
			if len(buf) > inboxKept {
				buf = make([]byte, readRoom)
			}
		}
		if l.hasLeft() {
			return l.lost(nil)
		}
		buf, from, to = makeRoom(buf, from, to)
		if len(looks) > 0 {
			l.conn.SetReadDeadline(time.Now().Add(lookTime))
		}
		n, err := l.conn.Read(buf[to:])
		to += n
		if n > 0 {
			l.mu.Lock()
			l.heard = Now()
			l.mu.Unlock()
			continue
		}
		if err == nil {
			continue
		}
		if !isTimeout(err) {
			return l.lost(orderly(err))
		}
		if looks, err = l.afterTimeout(looks); err != nil {
			return err
		}
	}
}

// makeRoom leaves space for a read behind what lies in buf[from:to]. The buffer grows with what arrived, and not with what
// a header claims.
func makeRoom(buf []byte, from, to int) ([]byte, int, int) {
	if len(buf)-to >= readRoom/4 {
		return buf, from, to
	}
	if from > 0 && to-from <= len(buf)/2 {
		return buf, 0, copy(buf, buf[from:to])
	}
	larger := make([]byte, 2*len(buf))
	return larger, 0, copy(larger, buf[from:to])
}

// afterTimeout answers those who wanted to know that everything was read: a read that ended for want of bytes says so.
// It returns those for whom the reader has yet to find that out.
func (l *Link) afterTimeout(looks []chan struct{}) ([]chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == ended {
		// Another one ended it, and has told all of them.
		return nil, l.lost(nil)
	}
	if len(looks) > 0 {
		for _, look := range looks {
			close(look)
		}
		l.looks = l.looks[len(looks):]
	}
	if len(l.looks) > 0 {
		// A copy: others may be appended meanwhile.
		return append([]chan struct{}(nil), l.looks...), nil
	}
	if l.writeErr != nil && len(looks) == 0 {
		return nil, l.lost(l.writeErr)
	}
	deadline := time.Time{}
	if l.writeErr != nil {
		deadline = time.Now().Add(lastWords)
	}
	l.conn.SetReadDeadline(deadline)
	return nil, nil
}

// readUp returns when everything is delivered that lay in the socket at the call, when the link is over, or after limit.
// A process that was stopped wakes with replies in its socket, and they count.
func (l *Link) readUp(limit time.Duration) {
	look := make(chan struct{})
	l.mu.Lock()
	if l.state == ended {
		l.mu.Unlock()
		return
	}
	l.looks = append(l.looks, look)
	// Ends the read that waits. Under the lock, so that the reader does not take the deadline away unseen.
	l.conn.SetReadDeadline(time.Unix(1, 0))
	l.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-look:
	case <-l.done:
	case <-timer.C:
	}
}

// deliver hands out every whole reply in buf, and returns their length. An error ends the link.
func (l *Link) deliver(buf []byte, batch []delivery) (int, error) {
	at := 0
	for {
		taken, consumed, err := l.takeBatch(buf[at:], batch[:0])
		at += consumed
		if breach := l.tell(taken); breach != nil {
			err = breach
		}
		if err != nil || consumed == 0 {
			return at, err
		}
	}
}

// tell tells the callers their answers. Those behind a reply that breaks the protocol are told of that alone: what such a
// server says is not believed.
func (l *Link) tell(taken []delivery) (breach error) {
	for i := range taken {
		d := &taken[i]
		var answer Answer
		var refused error
		if breach == nil {
			answer, refused, breach = check(d, &l.about)
		}
		switch {
		case d.waiter == nil:
			// The caller gave up, or it was a PING of the link's own: what came is wasted.
		case breach != nil:
			d.waiter.tell(Answer{}, breach)
		default:
			d.waiter.tell(answer, refused)
		}
	}
	return breach
}

// takeBatch takes the requests out of pending to which whole replies lie at the front of buf. What it took is to be told
// even when it also returns an error.
func (l *Link) takeBatch(buf []byte, batch []delivery) (taken []delivery, at int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(batch) < batchMost {
		header, ok := wire.ParseHeader(buf[at:])
		if !ok {
			break
		}
		if err := l.checkHeader(header); err != nil {
			return batch, at, err
		}
		end := at + wire.HeaderLen + int(header.BodyLen)
		if len(buf) < end {
			break
		}
		body := buf[at+wire.HeaderLen : end]
		at = end
		if header.Op == wire.OpGoAway {
			l.sentAway = true
			l.retire()
			continue
		}
		w, ok := l.pending.take(header.RequestID)
		if !ok {
			return batch, at, l.stray(header, body)
		}
		if w.own {
			l.asked = 0
		} else {
			l.answered = l.heard
			l.leavePlace()
		}
		batch = append(batch, delivery{w, header, body})
	}
	if at < len(buf) {
		// The beginning of another reply is an answer as well.
		l.answered = l.heard
	}
	return batch, at, nil
}

// checkHeader refuses a frame before its body is there: what is no reply, and what is longer than what its request asked
// for. The lock is held.
func (l *Link) checkHeader(header wire.Header) error {
	if !header.IsReply() {
		return l.breach("a frame of op %02x and flags %02x is no reply of version 1", header.Op, header.Flags)
	}
	limit := uint64(wire.ReplyRoom)
	if found := l.pending.find(header.RequestID); found != nil && header.Status == 0 {
		limit = wire.ReplyMax(found.op, found.count)
	}
	if uint64(header.BodyLen) > limit {
		return l.breach("a reply claims a body of %d bytes, and %d are the most that was asked for", header.BodyLen, limit)
	}
	return nil
}

// stray is what a reply to no request in flight means.
func (l *Link) stray(header wire.Header, body []byte) error {
	if header.Status == 0 {
		return l.breach("a reply to request %016x, which is not in flight", header.RequestID)
	}
	// An error about the connection as a whole.
	refused, err := refusal(header, body, &l.about)
	if err != nil {
		return err
	}
	return refused
}

func (l *Link) hasLeft() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == leaving && l.pending.isEmpty()
}

func (l *Link) breach(format string, args ...interface{}) error {
	return breachOf(l.about.Server, format, args...)
}

func breachOf(server, format string, args ...interface{}) error {
	return &fail.Error{Kind: fail.Protocol, Server: server, Text: fmt.Sprintf(format, args...)}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
