package ahead

import (
	"sync"
	"time"
)

// clock counts the time since it was made, that included in which the machine was suspended: Go's monotonic clock stands
// still then on Linux, and the wall clock does not. It never goes back, and where the two clocks differ it takes the faster
// one: what is held is then thrown away too early, and never handed out too late.
type clock struct {
	mu      sync.Mutex
	last    time.Time
	elapsed time.Duration
}

func newClock() *clock { return &clock{last: time.Now()} }

func (c *clock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now()
	c.elapsed += step(t.Sub(c.last), t.Round(0).Sub(c.last.Round(0)))
	c.last = t
	return c.elapsed
}

// skip moves the clock on by so much at once, and is what it says then.
func (c *clock) skip(by time.Duration) time.Duration {
	c.mu.Lock()
	c.elapsed += by
	c.mu.Unlock()
	return c.now()
}

// step is how much time is over when both clocks have gone on by so much.
func step(monotonic, wall time.Duration) time.Duration {
	if wall > monotonic {
		return wall
	}
	return monotonic
}
