package wire

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What follows the fields of a reply is not looked at: a later server may say more.
var (
	errShort = errors.New("it ends before its fields do")
	errNoID  = errors.New("it holds a number of 2^63 or more, which is no id")
	errText  = errors.New("it is not UTF-8")
)

// HelloReply is what a server says of itself.
type HelloReply struct {
	Version                                uint16
	Features                               uint32
	Cluster                                [16]byte
	EpochMS                                uint64
	TickUS                                 uint32
	TimeBits, WorkerBits, SequenceBits     uint8
	Face                                   uint8
	MaxBody, MaxCount, MaxInFlight, IdleMS uint32
	Server                                 string
}

// ParseHello reads the reply to HELLO.
func ParseHello(body []byte) (HelloReply, error) {
	if len(body) < 57 || len(body) < 57+int(body[56]) {
		return HelloReply{}, errShort
	}
	hello := HelloReply{
		Version:      binary.LittleEndian.Uint16(body),
		Features:     binary.LittleEndian.Uint32(body[4:]),
		EpochMS:      binary.LittleEndian.Uint64(body[24:]),
		TickUS:       binary.LittleEndian.Uint32(body[32:]),
		TimeBits:     body[36],
		WorkerBits:   body[37],
		SequenceBits: body[38],
		Face:         body[39],
		MaxBody:      binary.LittleEndian.Uint32(body[40:]),
		MaxCount:     binary.LittleEndian.Uint32(body[44:]),
		MaxInFlight:  binary.LittleEndian.Uint32(body[48:]),
		IdleMS:       binary.LittleEndian.Uint32(body[52:]),
		Server:       strings.ToValidUTF8(string(body[57:57+int(body[56])]), "?"),
	}
	copy(hello.Cluster[:], body[8:])
	bits := int(hello.TimeBits) + int(hello.WorkerBits) + int(hello.SequenceBits)
	if bits < 40 || bits > 63 {
		return HelloReply{}, errors.New("the bits of its layout do not add up to 40 to 63")
	}
	if hello.Face > 2 {
		return HelloReply{}, errors.New("its layout has a face that this client does not know")
	}
	return hello, nil
}

// ParseError reads the body of a reply whose status is not 0: when to come back, in milliseconds, and a text.
func ParseError(body []byte) (retryAfterMS uint32, text string, err error) {
	if len(body) < 6 {
		return 0, "", errShort
	}
	length := int(binary.LittleEndian.Uint16(body[4:]))
	if len(body) < 6+length {
		return 0, "", errShort
	}
	return binary.LittleEndian.Uint32(body), strings.ToValidUTF8(string(body[6:6+length]), "\uFFFD"), nil
}

// Printable is the text in one line, without control characters.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// ParseID reads the reply to NEXT and SEQ_NEXT.
func ParseID(body []byte) (uint64, error) {
	if len(body) < 8 {
		return 0, errShort
	}
	id := binary.LittleEndian.Uint64(body)
	if id > LargestID {
		return 0, errNoID
	}
	return id, nil
}

// IDs are the ids of a reply to ARRAY, each below 2^63, in the bytes that they came in.
type IDs []byte

// Len is their number.
func (ids IDs) Len() int { return len(ids) / 8 }

// At is one of them.
func (ids IDs) At(i int) uint64 { return binary.LittleEndian.Uint64(ids[8*i:]) }

// ParseArray reads the reply to ARRAY and SEQ_ARRAY.
func ParseArray(body []byte) (IDs, error) {
	if len(body) < 8 {
		return nil, errShort
	}
	count := uint64(binary.LittleEndian.Uint32(body))
	if uint64(len(body)-8) < 8*count {
		return nil, errShort
	}
	ids := IDs(body[8 : 8+8*count])
	bits := uint64(0)
	for i := 0; i < ids.Len(); i++ {
		bits |= ids.At(i)
	}
	if bits > LargestID {
		return nil, errNoID
	}
	return ids, nil
}

// Run is first, first + stride, .. : count ids.
type Run struct {
	First         uint64
	Count, Stride uint32
}

// Runs are the runs of a reply to RUNS, in the bytes that they came in. Their counts add up to what the reply says, none is
// empty, and all of their ids are below 2^63.
type Runs []byte

// Len is their number.
func (runs Runs) Len() int { return len(runs) / 16 }

// At is one of them.
func (runs Runs) At(i int) Run {
	b := runs[16*i : 16*i+16]
	return Run{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])}
}

// ParseRuns reads the reply to RUNS and SEQ_RUNS: the number of ids, and the runs that hold them.
func ParseRuns(body []byte) (uint32, Runs, error) {
	if len(body) < 8 {
		return 0, nil, errShort
	}
	total, count := binary.LittleEndian.Uint32(body), uint64(binary.LittleEndian.Uint32(body[4:]))
	if uint64(len(body)-8) < 16*count {
		return 0, nil, errShort
	}
	runs := Runs(body[8 : 8+16*count])
	sum := uint64(0)
	for i := 0; i < runs.Len(); i++ {
		run := runs.At(i)
		if run.Count == 0 || run.First > LargestID {
			return 0, nil, errors.New("a run is empty, or leaves the 63 bits of an id")
		}
		// Below 2^64: both factors are below 2^32.
		if uint64(run.Count-1)*uint64(run.Stride) > LargestID-run.First {
			return 0, nil, errors.New("a run is empty, or leaves the 63 bits of an id")
		}
		// Else one id would come as often as the run counts.
		if run.Stride == 0 && run.Count > 1 {
			return 0, nil, errors.New("a run of more than one id has a stride of 0")
		}
		sum += uint64(run.Count)
	}
	if sum != uint64(total) {
		return 0, nil, errors.New("its runs do not add up to its count")
	}
	return total, runs, nil
}

// Decoded are the fields of an id.
type Decoded struct {
	UnixMS           uint64
	Worker, Sequence uint32
}

// ParseDecoded reads the reply to DECODE.
func ParseDecoded(body []byte) (Decoded, error) {
	if len(body) < 16 {
		return Decoded{}, errShort
	}
	return Decoded{
		UnixMS:   binary.LittleEndian.Uint64(body),
		Worker:   binary.LittleEndian.Uint32(body[8:]),
		Sequence: binary.LittleEndian.Uint32(body[12:]),
	}, nil
}

// ParseText reads the replies that are JSON.
func ParseText(body []byte) (string, error) {
	if !utf8.Valid(body) {
		return "", errText
	}
	return string(body), nil
}
