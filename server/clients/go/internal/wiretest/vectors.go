package wiretest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/x-uid/xuid-go/internal/wire"
)

// vector is one of the golden vectors: bytes, and the values that they stand for.
type vector struct {
	Name   string
	Kind   string
	Phase  string
	Hex    string
	Encode bool
	Frame  struct {
		Op        uint8
		Status    uint16
		RequestID Number `json:"request_id"`
		Body      Body
	}
}

// Counts of vectors that were found right.
type Counts struct {
	Encoded, Decoded, Refused int
}

// CheckVectors encodes and decodes all of the golden vectors, and refuses those that are to be refused. The error names the
// first that failed.
func CheckVectors(text []byte) (Counts, error) {
	var counts Counts
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		return counts, err
	}
	for i := range vectors {
		if err := vectors[i].check(&counts); err != nil {
			return counts, fmt.Errorf("%s %q: %w", vectors[i].Kind, vectors[i].Name, err)
		}
	}
	return counts, nil
}

func (v *vector) check(counts *Counts) error {
	frame, err := hex.DecodeString(v.Hex)
	if err != nil {
		return err
	}
	header, ok := wire.ParseHeader(frame)
	if !ok {
		return errors.New("it is shorter than a header")
	}
	if header.RequestID != uint64(v.Frame.RequestID) || header.Op != v.Frame.Op {
		return fmt.Errorf("its header was read as %+v", header)
	}
	if v.Kind != "refused" && header.Status != v.Frame.Status {
		return fmt.Errorf("its status was read as %#x", header.Status)
	}
	switch v.Kind {
	case "request":
		_, body, consumed, refused := ParseRequest(frame, v.Phase == "serving")
		if refused != nil || consumed != len(frame) {
			return fmt.Errorf("it is refused: %+v, of %d bytes", refused, consumed)
		}
		err = v.compare(counts, body)
		if err == nil && v.Encode {
			var bytes []byte
			if bytes, err = AppendRequest(nil, header.Op, header.RequestID, &v.Frame.Body); err == nil {
				err = v.encoded(counts, frame, bytes)
			}
		}
	case "reply":
		body, wrong := decodeReply(header, frame[wire.HeaderLen:])
		if wrong != nil {
			return wrong
		}
		err = v.compare(counts, body)
		if err == nil && v.Encode {
			err = v.encoded(counts, frame, AppendReply(nil, header.Op, header.Status, header.RequestID, &v.Frame.Body))
		}
	case "refused":
		_, _, _, refused := ParseRequest(frame, v.Phase == "serving")
		wanted := Refusal{v.Frame.Status, v.Frame.Body.Closes}
		if refused == nil || *refused != wanted {
			return fmt.Errorf("%+v is to be the answer, and %+v is", wanted, refused)
		}
		counts.Refused++
	default:
		return fmt.Errorf("its kind is unknown")
	}
	return err
}

func (v *vector) compare(counts *Counts, decoded Body) error {
	if !reflect.DeepEqual(decoded, v.Frame.Body) {
		return fmt.Errorf("it was read as %+v, and is %+v", decoded, v.Frame.Body)
	}
	counts.Decoded++
	return nil
}

func (v *vector) encoded(counts *Counts, frame, encoded []byte) error {
	if !bytes.Equal(encoded, frame) {
		return fmt.Errorf("%x was written", encoded)
	}
	counts.Encoded++
	return nil
}

// decodeReply reads a reply with the client's codec.
func decodeReply(header wire.Header, body []byte) (b Body, err error) {
	if !header.IsReply() || int(header.BodyLen) != len(body) {
		return b, errors.New("it is no reply")
	}
	if header.Status != 0 {
		b.RetryAfterMS, b.Text, err = wire.ParseError(body)
		return b, err
	}
	switch header.Op &^ wire.ReplyBit {
	case wire.OpHello:
		return decodeHello(body)
	case wire.OpPing:
		b.Bytes = string(body)
	case wire.OpNext, wire.OpSeqNext:
		var id uint64
		id, err = wire.ParseID(body)
		b.ID = Number(id)
	case wire.OpArray, wire.OpSeqArray:
		var ids wire.IDs
		ids, err = wire.ParseArray(body)
		for i := 0; i < ids.Len(); i++ {
			b.IDs = append(b.IDs, Number(ids.At(i)))
		}
	case wire.OpRuns, wire.OpSeqRuns:
		var runs wire.Runs
		b.Count, runs, err = wire.ParseRuns(body)
		for i := 0; i < runs.Len(); i++ {
			run := runs.At(i)
			b.Runs = append(b.Runs, RunBody{Number(run.First), run.Count, run.Stride})
		}
	case wire.OpDecode:
		var d wire.Decoded
		d, err = wire.ParseDecoded(body)
		b.UnixMS, b.Worker, b.Sequence = Number(d.UnixMS), d.Worker, d.Sequence
	default:
		b.JSON, err = wire.ParseText(body)
	}
	return b, err
}

func decodeHello(body []byte) (Body, error) {
	h, err := wire.ParseHello(body)
	return Body{
		Version: h.Version, Features: h.Features, Cluster: hex.EncodeToString(h.Cluster[:]), EpochMS: Number(h.EpochMS),
		TickUS: h.TickUS, TimeBits: h.TimeBits, WorkerBits: h.WorkerBits, SequenceBits: h.SequenceBits, Face: h.Face,
		MaxBody: h.MaxBody, MaxCount: h.MaxCount, MaxInFlight: h.MaxInFlight, IdleMS: h.IdleMS, Server: h.Server,
	}, err
}
