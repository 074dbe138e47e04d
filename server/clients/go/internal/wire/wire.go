// Package wire is one codec of XUID/1: values to bytes and back, without sockets and without a clock.
//
// It encodes what a client says and decodes what a server says. The bytes are those of docs/protocol.md.
package wire

import "encoding/binary"

// The ops. A reply carries the op of its request with ReplyBit set; GOAWAY is sent by a server, without that bit.
const (
	OpHello      = 0x01
	OpPing       = 0x02
	OpNext       = 0x10
	OpArray      = 0x11
	OpRuns       = 0x12
	OpDecode     = 0x20
	OpInfo       = 0x21
	OpStats      = 0x22
	OpProvenance = 0x23
	OpSeqNext    = 0x30
	OpSeqArray   = 0x31
	OpSeqRuns    = 0x32
	OpSeqInfo    = 0x38
	OpSeqList    = 0x39
	OpSeqCreate  = 0x3a
	OpSeqAlter   = 0x3b
	OpGoAway     = 0x7e
	OpBye        = 0x7f
	ReplyBit     = 0x80
)

// The orders of ids.
const (
	OrderAny     = 0
	OrderFresh   = 1
	OrderOrdered = 2
)

const (
	// Version is the only one that this codec speaks.
	Version = 1
	// Preface is what a client sends first.
	Preface = "\x89XUID\r\n\x1a"
	// HeaderLen is the length of a frame's header.
	HeaderLen = 16
	// PingMax is the most bytes of a PING.
	PingMax = 1024
	// RequestMax is the longest body of a request that every server takes.
	RequestMax = 4096
	// NameMax is the most bytes of a sequence's name.
	NameMax = 128
	// ShortMax is the most bytes of a token and of a client's name.
	ShortMax = 255
	// WaitCapMS is the longest wait of a request, in milliseconds. A longer one counts as this.
	WaitCapMS = 60_000
	// LargestID is the highest number that is an id.
	LargestID = 1<<63 - 1
	// ReplyRoom is what a client is ready for in a reply beside ids and JSON: the text of an error, 65,535 bytes, and
	// what a later server may add.
	ReplyRoom = 128 * 1024
)

// jsonMax is the longest JSON of a reply.
const jsonMax = 1 << 20

// Header is what each frame begins with.
type Header struct {
	BodyLen   uint32
	Op        uint8
	Flags     uint8
	Status    uint16
	RequestID uint64
}

// ParseHeader reads the header at the front of b; false: it is not all there yet.
func ParseHeader(b []byte) (Header, bool) {
	if len(b) < HeaderLen {
		return Header{}, false
	}
	return Header{
		BodyLen:   binary.LittleEndian.Uint32(b),
		Op:        b[4],
		Flags:     b[5],
		Status:    binary.LittleEndian.Uint16(b[6:]),
		RequestID: binary.LittleEndian.Uint64(b[8:]),
	}, true
}

// Append appends the header's bytes.
func (h Header) Append(out []byte) []byte {
	out = appendU32(out, h.BodyLen)
	out = append(out, h.Op, h.Flags)
	out = appendU16(out, h.Status)
	return appendU64(out, h.RequestID)
}

// IsReply says whether the frame may come from a server of version 1.
func (h Header) IsReply() bool {
	return h.Flags == 0 && (h.Op&ReplyBit != 0 || h.Op == OpGoAway)
}

// ReplyMax is the longest body of a successful reply to a request of op for count ids. A client that refuses a longer
// one by its header never holds more than it asked for, whatever a server claims.
func ReplyMax(op uint8, count uint32) uint64 {
	room := uint64(ReplyRoom)
	switch op {
	case OpArray, OpSeqArray:
		room += 8 * uint64(count)
	case OpRuns, OpSeqRuns:
		room += 16 * uint64(count)
	case OpInfo, OpStats, OpProvenance, OpSeqInfo, OpSeqList, OpSeqCreate, OpSeqAlter:
		room += jsonMax
	}
	return room
}

// OpName is the op's name in the specification.
func OpName(op uint8) string {
	switch op {
	case OpHello:
		return "HELLO"
	case OpPing:
		return "PING"
	case OpNext:
		return "NEXT"
	case OpArray:
		return "ARRAY"
	case OpRuns:
		return "RUNS"
	case OpDecode:
		return "DECODE"
	case OpInfo:
		return "INFO"
	case OpStats:
		return "STATS"
	case OpProvenance:
		return "PROVENANCE"
	case OpSeqNext:
		return "SEQ_NEXT"
	case OpSeqArray:
		return "SEQ_ARRAY"
	case OpSeqRuns:
		return "SEQ_RUNS"
	case OpSeqInfo:
		return "SEQ_INFO"
	case OpSeqList:
		return "SEQ_LIST"
	case OpSeqCreate:
		return "SEQ_CREATE"
	case OpSeqAlter:
		return "SEQ_ALTER"
	case OpGoAway:
		return "GOAWAY"
	case OpBye:
		return "BYE"
	}
	return "an unknown op"
}

func appendU16(out []byte, n uint16) []byte {
	return append(out, byte(n), byte(n>>8))
}

func appendU32(out []byte, n uint32) []byte {
	return append(out, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

func appendU64(out []byte, n uint64) []byte {
	return append(out, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
}
