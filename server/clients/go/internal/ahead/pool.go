package ahead

import (
	"time"

	"github.com/x-uid/xuid-go/internal/wire"
)

// leastTaken is what a handle takes at least, if it is there: a lock each is enough for the slowest of users.
const leastTaken = 8

// held is a run on its way from a reply to a caller. What leaves it has left it: each id comes out once. Its front is open:
// ids come out of it one by one, without a look at the clock.
type held struct {
	next, stride uint64
	open, closed uint64
	// end is when it is too old.
	end time.Duration
}

func (h *held) left() uint64 { return h.open + h.closed }

// take is the next id; one is open.
func (h *held) take() uint64 {
	id := h.next
	h.next += h.stride
	h.open--
	return id
}

// openMore opens so many more, or all if there are fewer.
func (h *held) openMore(count uint64) {
	if count > h.closed {
		count = h.closed
	}
	h.open += count
	h.closed -= count
}

// front moves the first ids out, or all if there are fewer. Neither part is open then.
func (h *held) front(count uint64) held {
	left := h.left()
	if count > left {
		count = left
	}
	front := held{next: h.next, stride: h.stride, closed: count, end: h.end}
	h.next += count * h.stride
	h.open, h.closed = 0, left-count
	return front
}

// Stats are what a source counted. A handle settles what it issued when it is done with a run.
type Stats struct {
	Received, Issued, WastedByAge, WastedAtEnd, Held, Refills, FailedRefills, Waits uint64
}

// pool is what is held for all handles, and what is to be said to those who find nothing. Behind the source's lock; knows
// no clock.
type pool struct {
	// runs, about oldest first.
	runs []held
	// held ids are in runs; asked ids were asked for and not answered yet; taken ids left the pool, ever.
	held, asked, taken uint64
	// low: with fewer held and asked for, a taker demands more.
	low uint64
	// demand: somebody took, and so little is left that it is time for more. An idle source has none, and is not refilled.
	demand  bool
	handles uint64
	failure error
	// stopped: refilling ended until a caller asks again, for the failure will not pass by itself.
	stopped bool
	closed  bool
	// grownOld ids did so here, and the refiller was not told.
	grownOld uint64
	stats    Stats
}

// take moves a run to a handle: whole, or as much as leaves something for the other handles. false: nothing is left that is
// young enough.
func (p *pool) take(now time.Duration) (held, bool) {
	for len(p.runs) > 0 && now >= p.runs[0].end {
		p.waste(&p.runs[0])
		p.runs = p.runs[1:]
	}
	if len(p.runs) == 0 {
		return held{}, false
	}
	share := p.held / (2 * clamp(p.handles, 1, p.handles+1))
	if share < leastTaken {
		share = leastTaken
	}
	front := p.runs[0].front(share)
	if p.runs[0].left() == 0 {
		p.runs = p.runs[1:]
	}
	p.held -= front.left()
	p.taken += front.left()
	return front, true
}

// dropOld drops what grew too old. Replies may come in another order than they were asked for in, so it looks at all.
func (p *pool) dropOld(now time.Duration) {
	kept := p.runs[:0]
	for _, run := range p.runs {
		if now < run.end {
			kept = append(kept, run)
		} else {
			p.waste(&run)
		}
	}
	p.runs = kept
}

// waste counts a run that grew too old.
func (p *pool) waste(run *held) {
	p.held -= run.left()
	p.grownOld += run.left()
	p.stats.WastedByAge += run.left()
}

// raiseDemand says whether a taker should wake the refiller now.
func (p *pool) raiseDemand() bool {
	isNew := !p.demand && !p.stopped && p.held+p.asked < p.low
	p.demand = p.demand || isNew
	return isNew
}

// settle takes back what a handle is done with: it was given had ids, and left some of them.
func (p *pool) settle(had, left uint64) {
	p.stats.Issued += had - left
	if p.closed {
		p.stats.WastedAtEnd += left
	} else {
		p.stats.WastedByAge += left
	}
}

// giveBack takes back the rest of a handle that ends. The rest is held again, if it is good.
func (p *pool) giveBack(had uint64, rest held, now time.Duration) {
	left := rest.left()
	if p.closed || left == 0 || now >= rest.end {
		p.settle(had, left)
		return
	}
	p.stats.Issued += had - left
	p.held += left
	p.runs = append(p.runs, held{})
	copy(p.runs[1:], p.runs)
	p.runs[0] = rest
}

// demanded is what the refiller must know to decide: ids held or under way, and ids ever taken. false: nothing to do.
func (p *pool) demanded() (there, taken uint64, is bool) {
	return p.held + p.asked, p.taken, p.demand && !p.stopped && !p.closed
}

// put takes in a refill that was asked for with count, and is good until end. One that comes too late, or was void on its
// way, is wasted.
func (p *pool) put(count uint64, runs []wire.Run, end, now time.Duration) {
	p.asked -= count
	p.failure, p.stopped = nil, false
	p.stats.Refills++
	for _, run := range runs {
		p.stats.Received += uint64(run.Count)
		if p.closed {
			p.stats.WastedAtEnd += uint64(run.Count)
			continue
		}
		if now >= end {
			p.stats.WastedByAge += uint64(run.Count)
			continue
		}
		p.held += uint64(run.Count)
		p.runs = append(p.runs, held{
			next: run.First, stride: uint64(run.Stride), closed: uint64(run.Count), end: end,
		})
	}
}

// fail notes that a refill failed. stop: it will not get better by trying.
func (p *pool) fail(count uint64, err error, stop bool) {
	p.asked -= count
	p.failure = err
	p.stopped = p.stopped || stop
	p.demand = true
	p.stats.FailedRefills++
}

// beginWait: a caller found nothing and begins to wait. What was given up is tried again.
func (p *pool) beginWait() {
	p.stats.Waits++
	p.stopped = false
	p.demand = p.demand || p.held+p.asked < p.low
}

// finalWord is what a caller that waited and found nothing must be told at once.
func (p *pool) finalWord() error {
	if p.stopped {
		return p.failure
	}
	return nil
}

func (p *pool) close() {
	p.closed = true
	p.stats.WastedAtEnd += p.held
	p.held, p.runs = 0, nil
}
