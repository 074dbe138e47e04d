// Package wiretest is the other half of the codec: what a server reads and writes. Tests and the conformance program use
// it; the client does not.
package wiretest

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"github.com/x-uid/xuid-go/internal/wire"
)

// Number is a 64-bit number, which stands in a string in JSON.
type Number uint64

// MarshalJSON writes the string.
func (n Number) MarshalJSON() ([]byte, error) {
	return []byte(strconv.Quote(strconv.FormatUint(uint64(n), 10))), nil
}

// UnmarshalJSON reads the string.
func (n *Number) UnmarshalJSON(text []byte) error {
	unquoted, err := strconv.Unquote(string(text))
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(unquoted, 10, 64)
	*n = Number(number)
	return err
}

// RunBody is one run of a reply.
type RunBody struct {
	First  Number `json:"first"`
	Count  uint32 `json:"count"`
	Stride uint32 `json:"stride"`
}

// Body is the values of any frame's body, with the names of the specification's tables. Which count depends on the op.
type Body struct {
	Bytes        string    `json:"bytes"`
	Order        uint8     `json:"order"`
	Count        uint32    `json:"count"`
	WaitMS       uint32    `json:"wait_ms"`
	ID           Number    `json:"id"`
	Name         string    `json:"name"`
	Contiguous   bool      `json:"contiguous"`
	Limit        uint32    `json:"limit"`
	Prefix       string    `json:"prefix"`
	After        string    `json:"after"`
	JSON         string    `json:"json"`
	MinVersion   uint16    `json:"min_version"`
	MaxVersion   uint16    `json:"max_version"`
	Features     uint32    `json:"features"`
	Cluster      string    `json:"cluster"`
	Token        string    `json:"token"`
	Client       string    `json:"client"`
	Version      uint16    `json:"version"`
	EpochMS      Number    `json:"epoch_ms"`
	TickUS       uint32    `json:"tick_us"`
	TimeBits     uint8     `json:"time_bits"`
	WorkerBits   uint8     `json:"worker_bits"`
	SequenceBits uint8     `json:"sequence_bits"`
	Face         uint8     `json:"face"`
	MaxBody      uint32    `json:"max_body"`
	MaxCount     uint32    `json:"max_count"`
	MaxInFlight  uint32    `json:"max_in_flight"`
	IdleMS       uint32    `json:"idle_ms"`
	Server       string    `json:"server"`
	IDs          []Number  `json:"ids"`
	Runs         []RunBody `json:"runs"`
	UnixMS       Number    `json:"unix_ms"`
	Worker       uint32    `json:"worker"`
	Sequence     uint32    `json:"sequence"`
	RetryAfterMS uint32    `json:"retry_after_ms"`
	Text         string    `json:"text"`
	Closes       bool      `json:"closes"`
}

// AppendRequest appends what the client's encoder makes of a request's values.
func AppendRequest(out []byte, op uint8, requestID uint64, body *Body) ([]byte, error) {
	if op == wire.OpHello {
		hello := wire.Hello{
			MinVersion: body.MinVersion, MaxVersion: body.MaxVersion, Features: body.Features, Token: body.Token,
			Client: body.Client,
		}
		if _, err := hex.Decode(hello.Cluster[:], []byte(body.Cluster)); err != nil {
			return nil, err
		}
		return wire.AppendHello(out, requestID, &hello), nil
	}
	r := wire.Request{
		Op: op, Order: body.Order, Contiguous: body.Contiguous, Count: body.Count, WaitMS: body.WaitMS, ID: uint64(body.ID),
		Name: body.Name, Prefix: body.Prefix, After: body.After, Text: body.JSON + body.Bytes,
	}
	if op == wire.OpSeqList {
		r.Count = body.Limit
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return wire.AppendRequest(out, requestID, &r), nil
}

// AppendReply appends a reply as a server writes it. The op has its reply bit, if it has one.
func AppendReply(out []byte, op uint8, status uint16, requestID uint64, body *Body) []byte {
	begin := len(out)
	out = wire.Header{Op: op, Status: status, RequestID: requestID}.Append(out)
	if status != 0 {
		out = appendU32(out, body.RetryAfterMS)
		out = append(out, byte(len(body.Text)), byte(len(body.Text)>>8))
		out = append(out, body.Text...)
	} else {
		out = appendBody(out, op&^wire.ReplyBit, body)
	}
	binary.LittleEndian.PutUint32(out[begin:], uint32(len(out)-begin-wire.HeaderLen))
	return out
}

func appendBody(out []byte, op uint8, body *Body) []byte {
	switch op {
	case wire.OpHello:
		return appendHello(out, body)
	case wire.OpNext, wire.OpSeqNext:
		return appendU64(out, uint64(body.ID))
	case wire.OpArray, wire.OpSeqArray:
		out = appendU32(appendU32(out, uint32(len(body.IDs))), 0)
		for _, id := range body.IDs {
			out = appendU64(out, uint64(id))
		}
		return out
	case wire.OpRuns, wire.OpSeqRuns:
		out = appendU32(appendU32(out, body.Count), uint32(len(body.Runs)))
		for _, run := range body.Runs {
			out = appendU32(appendU32(appendU64(out, uint64(run.First)), run.Count), run.Stride)
		}
		return out
	case wire.OpDecode:
		return appendU32(appendU32(appendU64(out, uint64(body.UnixMS)), body.Worker), body.Sequence)
	case wire.OpPing:
		return append(out, body.Bytes...)
	}
	return append(out, body.JSON...)
}

func appendHello(out []byte, body *Body) []byte {
	out = append(out, byte(body.Version), byte(body.Version>>8), 0, 0)
	out = appendU32(out, body.Features)
	cluster, _ := hex.DecodeString(body.Cluster)
	out = append(out, cluster...)
	out = appendU64(out, uint64(body.EpochMS))
	out = appendU32(out, body.TickUS)
	out = append(out, body.TimeBits, body.WorkerBits, body.SequenceBits, body.Face)
	for _, limit := range []uint32{body.MaxBody, body.MaxCount, body.MaxInFlight, body.IdleMS} {
		out = appendU32(out, limit)
	}
	return append(append(out, byte(len(body.Server))), body.Server...)
}

func appendU32(out []byte, n uint32) []byte {
	return append(out, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

func appendU64(out []byte, n uint64) []byte {
	return appendU32(appendU32(out, uint32(n)), uint32(n>>32))
}
