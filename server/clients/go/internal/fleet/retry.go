package fleet

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
)

// longestWord is the longest that a server's word is believed. Asking once more a minute harms no server, and a wrong
// number of milliseconds would stop a client for weeks.
const longestWord = time.Minute

// backoff are the pauses after failures in a row: anything up to a span that doubles, so that no two clients share them.
type backoff struct {
	next, longest time.Duration
}

func newBackoff(o *Options) backoff {
	first := o.FirstPause
	if first > o.LongestPause {
		first = o.LongestPause
	}
	return backoff{first, o.LongestPause}
}

func (b *backoff) pause() time.Duration {
	full := b.next
	if b.next *= 2; b.next > b.longest || b.next < full {
		b.next = b.longest
	}
	return time.Duration(float64(full) * randomShare())
}

// randomShare is somewhere from 0 to 1. Each hash has a random seed of its own.
func randomShare() float64 {
	var hash maphash.Hash
	return float64(hash.Sum64()>>11) / (1 << 53)
}

// Retries are the pauses between the attempts of one caller.
type Retries struct {
	backoff backoff
	// others are the servers besides the one in use; left of them may still be gone to without a pause.
	others, left int
}

// Retries for one caller.
func (f *Fleet) Retries() *Retries {
	others := len(f.servers) - 1
	return &Retries{backoff: newBackoff(&f.options), others: others, left: others}
}

// Pause is how long a caller waits after a failure before the next attempt.
func (f *Fleet) Pause(r *Retries, err error) time.Duration {
	failure := fail.Of(err)
	if failure == nil {
		return r.pause(0, false)
	}
	return r.pause(failure.RetryAfter, failure.LeadsElsewhere() && !f.staysAfter(failure))
}

// pause before the next attempt; moves: at another server. What a server says about itself does not hold for another one,
// so a failure that leads to another server costs no pause until all of them failed.
func (r *Retries) pause(word time.Duration, moves bool) time.Duration {
	if moves && r.left > 0 {
		r.left--
		return 0
	}
	r.left = r.others
	if word > longestWord {
		word = longestWord
	}
	// The server's word, and a random part on top, so that not all clients come back at once.
	return word + r.backoff.pause()
}

// sleep waits for so long, until the context ends, or until the fleet is closed.
func (f *Fleet) sleep(ctx context.Context, pause time.Duration) error {
	if pause <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-f.life.Done():
		return errClosed()
	}
}
