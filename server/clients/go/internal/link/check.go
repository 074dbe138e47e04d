package link

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/wire"
)

// check compares a reply with its request: what the caller gets, or what it was refused with. A breach ends the link.
func check(d *delivery, about *About) (answer Answer, refused error, breach error) {
	if op := d.header.Op &^ wire.ReplyBit; op != d.op {
		return answer, nil, breachOf(about.Server, "a request of %s was answered with op %02x", wire.OpName(d.op), op)
	}
	if d.header.Status != 0 {
		refused, breach = refusal(d.header, d.body, about)
		return answer, refused, breach
	}
	answer, err := parse(d)
	if err != nil {
		return Answer{}, nil, breachOf(about.Server, "the reply to a %s is malformed in a body of %d bytes: %v",
			wire.OpName(d.op), len(d.body), err)
	}
	return answer, nil, nil
}

// parse looks through the whole body, so that nothing in it can surprise the caller.
func parse(d *delivery) (Answer, error) {
	var err error
	switch d.op {
	case wire.OpNext, wire.OpSeqNext:
		id, err := wire.ParseID(d.body)
		return Answer{ID: id}, err
	case wire.OpArray, wire.OpSeqArray:
		var ids wire.IDs
		if ids, err = wire.ParseArray(d.body); err == nil && uint64(ids.Len()) != uint64(d.count) {
			err = countOf(d.count, ids.Len())
		}
	case wire.OpRuns, wire.OpSeqRuns:
		var total uint32
		var runs wire.Runs
		if total, runs, err = wire.ParseRuns(d.body); err != nil {
			break
		}
		if total != d.count {
			err = countOf(d.count, int(total))
		} else if d.contiguous && runs.Len() != 1 {
			err = errors.New("more runs than the one that was asked for")
		}
	case wire.OpDecode:
		_, err = wire.ParseDecoded(d.body)
	case wire.OpPing, wire.OpBye:
	default:
		_, err = wire.ParseText(d.body)
	}
	if err != nil || d.waiter == nil {
		return Answer{}, err
	}
	// The inbox is used again.
	return Answer{Body: append([]byte(nil), d.body...)}, nil
}

func countOf(asked uint32, came int) error {
	return fmt.Errorf("%d ids were asked for, and %d came: it is all or nothing", asked, came)
}

// refusal is the error that a server answered with.
func refusal(header wire.Header, body []byte, about *About) (refused error, breach error) {
	retryAfterMS, text, err := wire.ParseError(body)
	if err != nil {
		return nil, breachOf(about.Server, "an error reply is malformed in a body of %d bytes: %v", len(body), err)
	}
	return &fail.Error{
		Kind:       fail.Refused,
		Server:     about.Server,
		Status:     header.Status,
		RetryAfter: time.Duration(retryAfterMS) * time.Millisecond,
		Text:       wire.Printable(text),
	}, nil
}

// orderly is the cause of a lost connection, or nil if the server just closed it.
func orderly(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
