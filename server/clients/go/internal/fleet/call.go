package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/link"
	"github.com/x-uid/xuid-go/internal/wire"
)

// silentAfter is how long a call must have waited, beyond the wait of its request, so that its end speaks against the
// server: a caller with less patience says nothing about it.
const silentAfter = time.Second

// Call is attempts until one succeeds, fails for good, or the time for retries is over.
func (f *Fleet) Call(ctx context.Context, r *wire.Request) (link.Answer, error) {
	if f.options.RetryFor <= 0 {
		return f.attempt(ctx, r, silentAfter)
	}
	// The first attempt counts: a call may last no longer for having failed late.
	begin := time.Now()
	answer, err := f.attempt(ctx, r, silentAfter)
	if err == nil {
		return answer, nil
	}
	return f.callAgain(ctx, r, begin, err)
}

func (f *Fleet) callAgain(ctx context.Context, r *wire.Request, begin time.Time, err error) (link.Answer, error) {
	retries := f.Retries()
	for {
		if failure := fail.Of(err); failure == nil || !failure.Retryable() {
			return link.Answer{}, err
		}
		pause := f.Pause(retries, err)
		if time.Since(begin)+pause > f.options.RetryFor {
			return link.Answer{}, err
		}
		if ended := f.sleep(ctx, pause); ended != nil {
			return link.Answer{}, ended
		}
		var answer link.Answer
		if answer, err = f.attempt(ctx, r, silentAfter); err == nil {
			return answer, nil
		}
	}
}

// Ahead is one attempt that is given up after patience, beyond the wait of the request. Waiting for a connection comes
// before that, with Ready.
func (f *Fleet) Ahead(ctx context.Context, r *wire.Request, patience time.Duration) (link.Answer, error) {
	limited, cancel := context.WithTimeout(ctx, patience+r.Wait())
	defer cancel()
	answer, err := f.attempt(limited, r, patience)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return answer, &fail.Error{Kind: fail.Timeout, Server: f.About().Server, Limit: patience}
	}
	return answer, err
}

// attempt is one request. It is repeated on another link, at once, if it could not be sent, or if the server said GOAWAY
// and closed without an answer.
func (f *Fleet) attempt(ctx context.Context, r *wire.Request, patience time.Duration) (link.Answer, error) {
	if err := ctx.Err(); err != nil {
		return link.Answer{}, err
	}
	l := f.link.Load()
	pauses := newBackoff(&f.options)
	// A link can end between getting it and using it, but a server that always does so is as good as lost.
	for round := 0; round <= f.options.Rounds; round++ {
		if round > 0 {
			if round > 1 {
				if err := f.sleep(ctx, pauses.pause()); err != nil {
					return link.Answer{}, err
				}
			}
			var err error
			if l, err = f.replace(ctx, l); err != nil {
				return link.Answer{}, err
			}
		}
		begin := link.Now()
		answer, err := l.Call(ctx, r, begin)
		if err == nil {
			return answer, nil
		}
		failure := fail.Of(err)
		wasSentAway := failure != nil && failure.Kind == fail.Lost && l.SentAway()
		if err == link.ErrNotServing || wasSentAway {
			continue
		}
		f.afterFailure(l, err, failure, begin, r.Wait()+patience)
		return link.Answer{}, err
	}
	return link.Answer{}, &fail.Error{Kind: fail.Lost, Server: f.About().Server}
}

// afterFailure leaves a server that another one may stand in for.
func (f *Fleet) afterFailure(l *link.Link, err error, failure *fail.Error, begin int64, patience time.Duration) {
	if failure != nil && failure.LeadsElsewhere() {
		f.leave(l, failure)
		return
	}
	isLate := failure != nil && failure.Kind == fail.Timeout
	if errors.Is(err, context.DeadlineExceeded) && link.Now()-begin >= int64(patience) {
		isLate = true
	}
	// Whether the link was silent for too long it judges for itself. If it was silent since the request, and there are
	// other servers, they are asked from now on, and what is in flight here is still answered. Not where none of them was
	// there a moment ago: all calls would wait for that.
	if isLate && f.otherThere(l) && l.SilentSince(begin) {
		l.Retire()
	}
}
