package fleet

import (
	"time"

	"github.com/x-uid/xuid-go/internal/link"
)

// awayFor is so long behind a dial that failed: the server may be back since, and nobody looked.
const awayFor = int64(30 * time.Second)

// costTimes: a server is dialed again before others, or for want of better, when so many times as long as its dial took have
// passed. What callers wait for one that is silent is a small part of the time. Never later than it counts as away: this process
// itself may have been stopped while it dialed.
const costTimes = 6

// away is which servers were not there when they were dialed last, by their indices.
type away []found

// found is a dial that failed; the zero value is none.
type found struct {
	failed      bool
	ended, took int64
}

// note notes how a dial that began then has ended now.
func (a away) note(at int, begin int64, isThere bool) {
	now := link.Now()
	a[at] = found{!isThere, now, now - begin}
}

// is says whether the server was not there a moment ago.
func (a away) is(at int, now int64) bool { return a[at].failed && now-a[at].ended < awayFor }

// costs says whether it took long to find that out, and that was not long ago compared with it.
func (a away) costs(at int, now int64) bool {
	return a.is(at, now) && now-a[at].ended < costTimes*a[at].took
}
