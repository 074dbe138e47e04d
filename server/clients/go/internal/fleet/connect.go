package fleet

import (
	"context"
	"math/rand"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/link"
)

// stragglers is how long the other servers may still take to answer when the first connection stands. A server that is
// later is checked when it is first used.
const stragglers = time.Second

// outcome of greeting one server.
type outcome struct {
	at      int
	greeted *link.Greeted
	err     error
}

// Connect greets all servers, and keeps one of them: of those that answered, the first in an order drawn at random, so that
// many clients with one list spread over it. It is tried once, so that a wrong address is an error at once.
func Connect(ctx context.Context, servers []string, options Options) (*Fleet, error) {
	life, endLife := context.WithCancel(context.Background())
	f := &Fleet{
		servers: shuffled(servers), options: options, life: life, endLife: endLife, dialed: make([]int64, len(servers)),
		away: make(away, len(servers)),
	}
	best, err := f.greetAll(ctx)
	if err != nil {
		endLife()
		return nil, err
	}
	f.cluster, f.first, f.next = best.greeted.About.Cluster, best.greeted.About.Server, best.at+1
	f.mu.Lock()
	f.use(best.greeted, best.at)
	f.mu.Unlock()
	return f, nil
}

func shuffled(servers []string) []string {
	order := rand.New(rand.NewSource(int64(randomShare() * (1 << 53)))).Perm(len(servers))
	drawn := make([]string, len(servers))
	for i, at := range order {
		drawn[i] = servers[at]
	}
	return drawn
}

// greetAll greets every server at once and compares their clusters. It returns the first of the list that answered,
// and notes those that did not in time.
func (f *Fleet) greetAll(ctx context.Context) (best outcome, err error) {
	dials, cancel := context.WithCancel(ctx)
	begin, ended := link.Now(), make(chan outcome, len(f.servers))
	for at, server := range f.servers {
		at, server := at, server
		go func() {
			greeted, err := link.Dial(dials, server, &f.options.Link)
			ended <- outcome{at, greeted, err}
		}()
	}
	open, heard := len(f.servers), make([]bool, len(f.servers))
	defer func() {
		cancel()
		if err != nil && best.greeted != nil {
			best.greeted.Close()
		}
		go closeRest(ended, open)
	}()
	// Each dial ends by itself within the time to connect.
	var enough <-chan time.Time
	for open > 0 {
		var came outcome
		select {
		case came = <-ended:
			open--
			heard[came.at] = true
		case <-enough:
			for at, hasEnded := range heard {
				if !hasEnded {
					f.away.note(at, begin, false)
				}
			}
			return best, nil
		}
		switch {
		case came.err != nil:
			f.away.note(came.at, begin, false)
			// What will not pass by waiting says more than "not reached".
			if failure := fail.Of(err); failure == nil || failure.Retryable() {
				err = came.err
			}
		case best.greeted == nil:
			best, enough = came, time.After(stragglers)
		default:
			first := best
			if came.at < first.at {
				best, came = came, first
			}
			known := best.greeted.About
			differs := sameCluster(known.Server, known.Cluster, &came.greeted.About)
			came.greeted.Close()
			if differs != nil {
				return best, differs
			}
		}
	}
	if best.greeted != nil {
		return best, nil
	}
	return best, err
}

// closeRest closes the connections that nothing waits for any more.
func closeRest(ended <-chan outcome, open int) {
	for ; open > 0; open-- {
		if late := <-ended; late.greeted != nil {
			late.greeted.Close()
		}
	}
}
