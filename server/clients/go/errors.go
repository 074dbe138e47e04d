package xuid

import (
	"errors"
	"fmt"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
)

// ErrClosed is what calls answer after [Client.Close] or [Prefetch.Close].
var ErrClosed = errors.New("xuid: this client was closed: dial another one")

// Status is the kind of a refusal. A later server may send a number that has no name here; [Status.Retryable] holds for
// that one, too.
type Status uint16

// The statuses of XUID/1.
const (
	StatusBadRequest      Status = 0x0001 // a field out of range, or a frame out of turn
	StatusVersion         Status = 0x0002 // no version in common
	StatusUnknownOp       Status = 0x0003 // the server does not know the op; one without sequences knows none of theirs
	StatusTooLarge        Status = 0x0004 // a frame above the server's limit
	StatusCount           Status = 0x0005 // a count of 0, or above the server's limit
	StatusUnauthenticated Status = 0x0006 // the token is missing or wrong
	StatusWrongCluster    Status = 0x0007 // the server is of another cluster
	StatusExhausted       Status = 0x0008 // the time bits of the layout, or the numbers of a sequence, ran out
	StatusNoSequence      Status = 0x0009 // there is no sequence of that name
	StatusExists          Status = 0x000a // there is a sequence of that name, with other settings
	StatusForbidden       Status = 0x000b // the token may not do this with that name
	StatusNoOrder         Status = 0x000c // ordered ids were asked for, and those of this server are opaque
	StatusNotReady        Status = 0x8010 // the server holds no window of ticks yet
	StatusOverloaded      Status = 0x8011 // too few ids within the wait, or too many connections
	StatusClockBehind     Status = 0x8012 // the server's clock is behind what was issued
	StatusWindowLost      Status = 0x8013 // the window of ticks was lost, and another is being taken
	StatusShuttingDown    Status = 0x8014 // the server is going
	StatusInternal        Status = 0x8015 // the server failed on this request
	StatusStoreAway       Status = 0x8016 // the store of the sequences does not answer, and what was held is used up
	StatusStoreBehind     Status = 0x8017 // the store of the sequences may have gone back, and waits for a fence
	StatusRate            Status = 0x801a // more ids a second than the limit allows
)

var statusNames = map[Status]string{
	StatusBadRequest: "BAD_REQUEST", StatusVersion: "VERSION", StatusUnknownOp: "UNKNOWN_OP", StatusTooLarge: "TOO_LARGE",
	StatusCount: "COUNT", StatusUnauthenticated: "UNAUTHENTICATED", StatusWrongCluster: "WRONG_CLUSTER",
	StatusExhausted: "EXHAUSTED", StatusNoSequence: "NO_SEQUENCE", StatusExists: "EXISTS", StatusForbidden: "FORBIDDEN",
	StatusNoOrder:  "NO_ORDER",
	StatusNotReady: "NOT_READY", StatusOverloaded: "OVERLOADED", StatusClockBehind: "CLOCK_BEHIND",
	StatusWindowLost: "WINDOW_LOST", StatusShuttingDown: "SHUTTING_DOWN", StatusInternal: "INTERNAL",
	StatusStoreAway: "STORE_AWAY", StatusStoreBehind: "STORE_BEHIND", StatusRate: "RATE",
}

// String is the name in the specification, or the number.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("status %04x", uint16(s))
}

// Retryable says whether the same request may be tried again, here later or at another server.
func (s Status) Retryable() bool { return s&0x8000 != 0 }

// RefusedError: the server answered with an error.
type RefusedError struct {
	// Server that refused.
	Server string
	// Status is its kind.
	Status Status
	// RetryAfter is when the server wants to be asked again; 0: it does not say.
	RetryAfter time.Duration
	// Text for people, in one line.
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("xuid: %s refused: %v: %s", e.Server, e.Status, e.Text)
}

// TimeoutError: no reply in time. The connection goes on, and other calls with it.
type TimeoutError struct {
	// Server that did not answer; empty if nothing prefetched came, and no server refused either.
	Server string
	// Limit is how long it had, besides the wait of the request itself.
	Limit time.Duration
}

func (e *TimeoutError) Error() string {
	if e.Server == "" {
		return fmt.Sprintf("xuid: no id came within %v: ask again, or allow more with PrefetchWait", e.Limit)
	}
	return fmt.Sprintf("xuid: %s did not answer within %v: ask again, or allow more with WithTimeout", e.Server, e.Limit)
}

// Timeout is true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// LostError: the connection ended with the request in flight. If ids were on their way, they are wasted and come to nobody.
type LostError struct {
	// Server whose connection it was.
	Server string
	// Err is how it ended, or nil if the server closed it.
	Err error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("xuid: the connection to %s ended before its reply: ask again%s", e.Server, because(e.Err))
}

// Unwrap is the cause.
func (e *LostError) Unwrap() error { return e.Err }

// UnreachableError: a server could not be connected to.
type UnreachableError struct {
	// Server that was tried last.
	Server string
	// Err is why not.
	Err error

	permanent bool
}

func (e *UnreachableError) Error() string {
	if e.permanent {
		return fmt.Sprintf("xuid: no TLS with %s: check that it speaks TLS, which CA vouches for it under that name, and what "+
			"it asks of clients%s", e.Server, because(e.Err))
	}
	return fmt.Sprintf("xuid: %s cannot be reached: check the address, and that the server runs%s", e.Server, because(e.Err))
}

// Unwrap is the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// ProtocolError: the server does not speak XUID/1 as it should. No id of such a reply is handed out, and the connection
// ends.
type ProtocolError struct {
	// Server that did it.
	Server string
	// Text says how.
	Text string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("xuid: %s does not speak XUID/1 as it should: %s: check the address and the versions", e.Server, e.Text)
}

// WrongClusterError: the server is of another cluster. Two clusters can issue the same id, so its ids are refused.
type WrongClusterError struct {
	// Server that is refused.
	Server string
	// Found is its cluster; zeros if it refused by itself: then Text names it, and Unwrap is the [*RefusedError].
	Found ClusterID
	// Expected is the cluster of Other; with an empty Other, that of [WithCluster].
	Expected ClusterID
	// Other is the server that this client was connected to.
	Other string
	// Text is what the server said, if it refused by itself.
	Text string

	refused error
}

func (e *WrongClusterError) Error() string {
	switch {
	case e.Text != "":
		return fmt.Sprintf("xuid: %s is not of cluster %v, which WithCluster asks for: %s", e.Server, e.Expected, e.Text)
	case e.Other == "":
		return fmt.Sprintf("xuid: %s is of cluster %v, and WithCluster asks for %v: check the address",
			e.Server, e.Found, e.Expected)
	}
	return fmt.Sprintf("xuid: %s is of cluster %v, and %s of %v: two clusters can issue the same id, so give only servers of "+
		"one", e.Server, e.Found, e.Other, e.Expected)
}

// Unwrap is the server's own refusal, if there was one.
func (e *WrongClusterError) Unwrap() error { return e.refused }

// UsageError: an option, or an argument, that no server would take.
type UsageError struct {
	// Text says what was found, and what is allowed.
	Text string
}

func (e *UsageError) Error() string { return "xuid: " + e.Text }

// Retryable says whether the call that failed with err may succeed if it is repeated: later, or at another server. Repeating
// it never brings an id twice. What a context ended is not retryable.
func Retryable(err error) bool {
	var refused *RefusedError
	var timeout *TimeoutError
	var lost *LostError
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &refused):
		return refused.Status.Retryable()
	case errors.As(err, &timeout), errors.As(err, &lost):
		return true
	case errors.As(err, &unreachable):
		return !unreachable.permanent
	}
	return false
}

// public is the error that callers see of a failure. The error of a context stays as it is.
func public(err error) error {
	e := fail.Of(err)
	if e == nil {
		return err
	}
	switch e.Kind {
	case fail.Refused:
		return &RefusedError{e.Server, Status(e.Status), e.RetryAfter, e.Text}
	case fail.Timeout:
		return &TimeoutError{e.Server, e.Limit}
	case fail.Lost:
		return &LostError{e.Server, e.Err}
	case fail.Unreachable:
		return &UnreachableError{e.Server, e.Err, e.Permanent}
	case fail.Protocol:
		return &ProtocolError{e.Server, e.Text}
	case fail.WrongCluster:
		wrong := &WrongClusterError{Server: e.Server, Found: e.Found, Expected: e.Expected, Other: e.Other, Text: e.Text}
		if e.Err != nil {
			wrong.refused = public(e.Err)
		}
		return wrong
	case fail.Usage:
		return &UsageError{e.Text}
	}
	return ErrClosed
}

func usage(format string, args ...interface{}) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
