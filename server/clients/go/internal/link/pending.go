package link

import "github.com/x-uid/xuid-go/internal/wire"

// expected is what the reply to a request must be.
type expected struct {
	op         uint8
	contiguous bool
	count      uint32
}

func expectedOf(r *wire.Request) expected {
	e := expected{op: r.Op}
	switch r.Op {
	case wire.OpArray, wire.OpRuns, wire.OpSeqArray, wire.OpSeqRuns:
		e.count = r.Count
		e.contiguous = r.Contiguous && r.Op == wire.OpSeqRuns
	}
	return e
}

// waiting is one request in flight.
type waiting struct {
	expected
	// own: the link itself asked, so that no caller's place among those in flight is taken.
	own bool
	// due: the server may take its time until then, because the request says so.
	due int64
	// end: the caller waits until then.
	end int64
	// waiter is nil when the caller gave up.
	waiter *waiter
}

// pending is a slab of the requests in flight.
//
// A request id is a slot's index below its serial number, which grows with each use, so a request id is never used twice
// on one connection and a late reply meets no other request. Serials begin at 1, so that ids below 2^32 are free for HELLO
// and GOAWAY. 2^32 uses of one slot take longer than any connection lives.
type pending struct {
	slots []slot
	free  []uint32
}

type slot struct {
	serial uint32
	used   bool
	waiting
}

func (p *pending) insert(w waiting) uint64 {
	var index uint32
	if last := len(p.free) - 1; last >= 0 {
		index = p.free[last]
		p.free = p.free[:last]
	} else {
		index = uint32(len(p.slots))
		p.slots = append(p.slots, slot{})
	}
	s := &p.slots[index]
	s.serial++
	if s.serial == 0 {
		s.serial = 1
	}
	s.used, s.waiting = true, w
	return uint64(s.serial)<<32 | uint64(index)
}

// find is the request of that id while it is in flight, else nil. The pointer is good until the next insert.
func (p *pending) find(requestID uint64) *waiting {
	index := uint32(requestID)
	if uint64(index) >= uint64(len(p.slots)) {
		return nil
	}
	s := &p.slots[index]
	if !s.used || uint64(s.serial) != requestID>>32 {
		return nil
	}
	return &s.waiting
}

// take removes the request of that id; false: it is not in flight.
func (p *pending) take(requestID uint64) (waiting, bool) {
	found := p.find(requestID)
	if found == nil {
		return waiting{}, false
	}
	w := *found
	s := &p.slots[uint32(requestID)]
	s.used, s.waiting = false, waiting{}
	p.free = append(p.free, uint32(requestID))
	return w, true
}

func (p *pending) isEmpty() bool { return len(p.free) == len(p.slots) }

// each calls f for every request in flight, which it may change.
func (p *pending) each(f func(*waiting)) {
	for i := range p.slots {
		if s := &p.slots[i]; s.used {
			f(&s.waiting)
		}
	}
}

// clear forgets all of them.
func (p *pending) clear() {
	p.slots, p.free = nil, nil
}
