// Package fail says how a call ended that brought no ids. The public package gives each kind a type of its own.
package fail

import (
	"errors"
	"fmt"
	"time"
)

// Kind of a failure.
type Kind uint8

// The kinds.
const (
	// Refused: the server answered with an error.
	Refused Kind = iota + 1
	// Timeout: no reply in time.
	Timeout
	// Lost: the connection ended with the request in flight.
	Lost
	// Unreachable: a server could not be connected to.
	Unreachable
	// Protocol: the server is not what it should be.
	Protocol
	// WrongCluster: the server is of another cluster.
	WrongCluster
	// Closed: the client was closed.
	Closed
	// Usage: an option, or an argument, that no server would take.
	Usage
)

// The statuses after which another server may do better, and for long: the client moves on.
const (
	statusCount       = 0x0005
	statusNotReady    = 0x8010
	statusClockBehind = 0x8012
	statusWindowLost  = 0x8013
	statusShutting    = 0x8014
	statusInternal    = 0x8015
	statusStoreAway   = 0x8016
	statusStoreBehind = 0x8017
)

// clockPatience is what a clock may be behind and is still waited for; ticks last a millisecond.
const clockPatience = 100 * time.Millisecond

// Error is a failure. Which fields count depends on Kind.
type Error struct {
	Kind   Kind
	Server string
	// Status of a refusal, and when the server wants to be asked again.
	Status     uint16
	RetryAfter time.Duration
	// Text is what the server says, how it broke the protocol, or what is wrong with an argument.
	Text string
	// Limit that was exceeded.
	Limit time.Duration
	// Err is the cause, if there is one.
	Err error
	// Permanent: a connection that will fail in the same way again.
	Permanent bool
	// Found is the cluster of Server. Expected is that of Other, or the one that was asked for if Other is empty.
	Found, Expected [16]byte
	Other           string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("kind %d, server %s: %s", e.Kind, e.Server, e.Text)
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of is the failure in err, or nil.
func Of(err error) *Error {
	var failure *Error
	if errors.As(err, &failure) {
		return failure
	}
	return nil
}

// Is says whether err is a failure of that kind.
func Is(err error, kind Kind) bool {
	failure := Of(err)
	return failure != nil && failure.Kind == kind
}

// Retryable says whether the same call may succeed later, or at another server. Repeating it never brings an id twice.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case Refused:
		return e.Status&0x8000 != 0
	case Lost, Timeout:
		return true
	case Unreachable:
		return !e.Permanent
	}
	return false
}

// IsCount says whether the server refused the number of ids.
func (e *Error) IsCount() bool { return e.Kind == Refused && e.Status == statusCount }

// LeadsElsewhere says whether another server, if there is one, is the next to be asked: the connection is gone, or what the
// server lacks is its own and may take long. A server that is merely busy, or waits for its clock, is stayed with: all its
// clients moving on would only carry the load to the next one.
func (e *Error) LeadsElsewhere() bool {
	if e.Kind == Lost {
		return true
	}
	if e.Kind != Refused {
		return false
	}
	switch e.Status {
	case statusNotReady, statusWindowLost, statusShutting, statusInternal, statusStoreAway, statusStoreBehind:
		return true
	case statusClockBehind:
		return e.RetryAfter > clockPatience
	}
	return false
}
