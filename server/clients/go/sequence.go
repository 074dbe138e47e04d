package xuid

import (
	"context"
	"encoding/json"
	"math"
	"strconv"

	"github.com/x-uid/xuid-go/internal/wire"
)

// Sequence is the numbers of one name: 1, 2, 3, ... Get one with [Client.Sequence].
//
// Numbers of one server ascend. Those of several interleave, except where the sequence was created strict. The server must
// have sequences (its setting --sequences); else calls are refused with [StatusUnknownOp].
type Sequence struct {
	client *Client
	name   string
}

// Sequence is the sequence of that name. It need not exist, and nothing is sent: a name that cannot be one is the error of
// its calls. A name has 1 to 128 bytes of UTF-8 without control characters, no space at either end, and does not begin with @.
func (c *Client) Sequence(name string) *Sequence { return &Sequence{c, name} }

// Name of the sequence.
func (s *Sequence) Name() string { return s.name }

// Next is one number, greater than every ordered number of the sequence that this server answered with before. The server
// decides how long it waits for one. Refusals that stay are [StatusNoSequence], [StatusForbidden] and [StatusExhausted];
// [StatusStoreAway] and [StatusStoreBehind] may pass.
func (s *Sequence) Next(ctx context.Context) (uint64, error) {
	answer, err := s.client.call(ctx, &wire.Request{Op: wire.OpSeqNext, Name: s.name})
	return answer.ID, err
}

// Take is exactly n numbers in one run, or an error and none. Where the server cannot put so many into one run the error has
// [StatusCount], and fewer may succeed.
func (s *Sequence) Take(ctx context.Context, n int, choices ...Choice) (Run, error) {
	r := wire.Request{Op: wire.OpSeqRuns, Name: s.name, Order: wire.OrderOrdered, Contiguous: true}
	runs, err := s.client.runs(ctx, &r, n, choices)
	if err != nil {
		return Run{}, err
	}
	// The link let no other number of runs through.
	return runs[0], nil
}

// Array is exactly n numbers, or an error and none. They are [Ordered] unless [Any] is given, which is the fastest for many.
func (s *Sequence) Array(ctx context.Context, n int, choices ...Choice) ([]uint64, error) {
	r := wire.Request{Op: wire.OpSeqArray, Name: s.name, Order: wire.OrderOrdered}
	return s.client.array(ctx, &r, n, choices)
}

// Runs is exactly n numbers as runs, whose stride is the sequence's increment, or an error and none. They are [Ordered]
// unless [Any] is given.
func (s *Sequence) Runs(ctx context.Context, n int, choices ...Choice) ([]Run, error) {
	r := wire.Request{Op: wire.OpSeqRuns, Name: s.name, Order: wire.OrderOrdered}
	return s.client.runs(ctx, &r, n, choices)
}

// Info is what the server knows of the sequence.
func (s *Sequence) Info(ctx context.Context) (SequenceInfo, error) {
	return s.about(ctx, &wire.Request{Op: wire.OpSeqInfo, Name: s.name})
}

// Create begins the sequence. The same once more succeeds and changes nothing; with other settings the error has
// [StatusExists].
func (s *Sequence) Create(ctx context.Context, settings ...Setting) (SequenceInfo, error) {
	return s.set(ctx, wire.OpSeqCreate, settings)
}

// Alter changes [Step], [Last] or [Description], or ends the sequence with [Retired]. What is not given stays.
func (s *Sequence) Alter(ctx context.Context, settings ...Setting) (SequenceInfo, error) {
	return s.set(ctx, wire.OpSeqAlter, settings)
}

// Sequences are up to limit (1 to 1,000) sequences whose names begin with prefix and are greater than after, by the bytes of
// their names. To read all, ask again after the last name until fewer than limit come.
func (c *Client) Sequences(ctx context.Context, prefix, after string, limit int) ([]SequenceInfo, error) {
	if limit < 0 || uint64(limit) > math.MaxUint32 {
		return nil, usage("%d sequences are asked for, and 1 to 1,000 are allowed", limit)
	}
	text, err := c.json(ctx, &wire.Request{Op: wire.OpSeqList, Count: uint32(limit), Prefix: prefix, After: after})
	if err != nil {
		return nil, err
	}
	var list []SequenceInfo
	return list, c.read(text, &list)
}

func (s *Sequence) set(ctx context.Context, op uint8, settings []Setting) (SequenceInfo, error) {
	object := map[string]interface{}{}
	for _, setting := range settings {
		object[setting.Key] = setting.Value
	}
	text, err := json.Marshal(object)
	if err != nil {
		return SequenceInfo{}, usage("the settings cannot be said in JSON: %v", err)
	}
	return s.about(ctx, &wire.Request{Op: op, Name: s.name, Text: string(text)})
}

func (s *Sequence) about(ctx context.Context, r *wire.Request) (SequenceInfo, error) {
	text, err := s.client.json(ctx, r)
	if err != nil {
		return SequenceInfo{}, err
	}
	var info SequenceInfo
	return info, s.client.read(text, &info)
}

// read reads the JSON of a reply. One that is none is the server's fault.
func (c *Client) read(text json.RawMessage, into interface{}) error {
	if err := json.Unmarshal(text, into); err != nil {
		return &ProtocolError{c.fleet.About().Server, "a reply is not the JSON that it should be: " + err.Error()}
	}
	return nil
}

// Setting is one setting of a sequence, for [Sequence.Create] and [Sequence.Alter].
type Setting struct {
	// Key of the field; Value as encoding/json takes it.
	Key   string
	Value interface{}
}

// Start is the number that none is below. Defaults to 1.
func Start(n uint64) Setting { return number("start", n) }

// Step is the least that a server is granted at once. Too small, and its store is asked often; too large, and a crash leaves
// a wider gap. Defaults to the server's, which is 1,000 unless it was set.
func Step(n uint64) Setting { return number("step", n) }

// Increment has only every n-th number issued: those that leave [Remainder] when they are divided by n. Defaults to 1.
func Increment(n uint32) Setting { return number("increment", uint64(n)) }

// Remainder is what is left when a number is divided by [Increment]. Defaults to 0.
func Remainder(n uint32) Setting { return number("remainder", uint64(n)) }

// Last is the number that none is above. Altered, it rises. Defaults to 2^63 - 1.
func Last(n uint64) Setting { return number("last", n) }

// Retired ends a sequence at the number that it is at. For [Sequence.Alter] only.
func Retired() Setting { return Setting{"last", "retired"} }

// Strict has the numbers ascend over all servers, at the cost of a change of the store for each batch of requests.
func Strict() Setting { return Setting{"strict", true} }

// Description is for people, up to 256 bytes.
func Description(text string) Setting { return Setting{"description", text} }

// number is a string: many readers of JSON keep numbers in 53 bits.
func number(key string, n uint64) Setting { return Setting{key, strconv.FormatUint(n, 10)} }

// SequenceInfo is what a server knows of a sequence.
type SequenceInfo struct {
	// Name of the sequence.
	Name string
	// Next is the lowest number that the store has granted to no server, and Last the highest that may be issued.
	Next, Last uint64
	// Step is the least that a server is granted at once.
	Step uint64
	// Increment and Remainder: issued are numbers that leave the remainder when they are divided by the increment.
	Increment, Remainder uint64
	// Strict: the numbers ascend over all servers.
	Strict bool
	// Description is for people.
	Description string
	// Held numbers were granted to this server and not issued yet; Issued and Wasted count since it started.
	Held, Issued, Wasted uint64
	// Store is where the sequences are kept.
	Store string
	// State is unused (this server was not asked for it), ready, away (the store does not answer), behind (the store may have
	// gone back), exhausted or absent.
	State string
	// JSON is the whole object as the server sent it, which may have more fields.
	JSON json.RawMessage
}

// UnmarshalJSON reads the object of a server.
func (i *SequenceInfo) UnmarshalJSON(text []byte) error {
	var fields struct {
		Name                 string
		Next, Last, Step     quoted
		Increment, Remainder quoted
		Strict               bool
		Description          string
		Held, Issued, Wasted quoted
		Store, State         string
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*i = SequenceInfo{
		Name: fields.Name, Next: uint64(fields.Next), Last: uint64(fields.Last), Step: uint64(fields.Step),
		Increment: uint64(fields.Increment), Remainder: uint64(fields.Remainder), Strict: fields.Strict,
		Description: fields.Description, Held: uint64(fields.Held), Issued: uint64(fields.Issued),
		Wasted: uint64(fields.Wasted), Store: fields.Store, State: fields.State,
		JSON: append(json.RawMessage(nil), text...),
	}
	return nil
}

// quoted is a number in a string, or without one.
type quoted uint64

func (q *quoted) UnmarshalJSON(text []byte) error {
	if len(text) >= 2 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	*q = quoted(n)
	return err
}
