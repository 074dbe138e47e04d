package wiretest

import (
	"encoding/binary"
	"encoding/hex"
	"unicode/utf8"

	"github.com/x-uid/xuid-go/internal/wire"
)

// The limits of a server by default.
const (
	maxBody  = 4096
	maxCount = 131_072
	maxList  = 1000
)

// The statuses that a frame alone can lead to.
const (
	badRequest = 0x0001
	unknownOp  = 0x0003
	tooLarge   = 0x0004
	badCount   = 0x0005
)

// Refusal is what a server answers to a frame that it does not take.
type Refusal struct {
	Status uint16
	Closes bool
}

// ParseRequest reads the frame at the front of buf as a server does, in the order of the specification's list. consumed is
// 0 when it is not all there.
func ParseRequest(buf []byte, greeted bool) (header wire.Header, body Body, consumed int, refused *Refusal) {
	header, ok := wire.ParseHeader(buf)
	if !ok {
		return header, body, 0, nil
	}
	if header.BodyLen > maxBody {
		return header, body, wire.HeaderLen, &Refusal{tooLarge, true}
	}
	end := wire.HeaderLen + int(header.BodyLen)
	if len(buf) < end {
		return header, body, 0, nil
	}
	isHello := header.Op == wire.OpHello
	switch {
	case !greeted && !isHello && header.Op != wire.OpPing, greeted && isHello:
		return header, body, end, &Refusal{badRequest, true}
	case header.Flags != 0 || header.Op&wire.ReplyBit != 0:
		return header, body, end, &Refusal{badRequest, isHello}
	case wire.OpName(header.Op) == wire.OpName(0) || header.Op == wire.OpGoAway:
		return header, body, end, &Refusal{unknownOp, false}
	}
	f := fields{rest: buf[wire.HeaderLen:end]}
	body = f.body(header.Op)
	if f.bad || len(f.rest) > 0 {
		return header, body, end, &Refusal{badRequest, isHello}
	}
	if !countFits(header.Op, &body) {
		return header, body, end, &Refusal{badCount, false}
	}
	return header, body, end, nil
}

func countFits(op uint8, body *Body) bool {
	switch op {
	case wire.OpArray, wire.OpRuns, wire.OpSeqArray, wire.OpSeqRuns:
		return body.Count >= 1 && body.Count <= maxCount
	case wire.OpSeqList:
		return body.Limit >= 1 && body.Limit <= maxList
	}
	return true
}

// fields takes one field after the other off a body.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) take(n int) []byte {
	if len(f.rest) < n {
		f.bad, f.rest = true, nil
		return make([]byte, n)
	}
	front := f.rest[:n]
	f.rest = f.rest[n:]
	return front
}

func (f *fields) u8() uint8   { return f.take(1)[0] }
func (f *fields) u16() uint16 { return binary.LittleEndian.Uint16(f.take(2)) }
func (f *fields) u32() uint32 { return binary.LittleEndian.Uint32(f.take(4)) }
func (f *fields) u64() uint64 { return binary.LittleEndian.Uint64(f.take(8)) }

func (f *fields) short() string { return string(f.take(int(f.u8()))) }

func (f *fields) all() string { return string(f.take(len(f.rest))) }

func (f *fields) refuseIf(bad bool) { f.bad = f.bad || bad }

func (f *fields) name() string {
	name := f.short()
	f.refuseIf(wire.CheckName(name) != nil)
	return name
}

func (f *fields) bulk(body *Body) {
	body.Count, body.WaitMS, body.Order = f.u32(), f.u32(), f.u8()
}

// body reads the fields of an op.
func (f *fields) body(op uint8) (body Body) {
	switch op {
	case wire.OpHello:
		body.MinVersion, body.MaxVersion, body.Features = f.u16(), f.u16(), f.u32()
		body.Cluster = hex.EncodeToString(f.take(16))
		body.Token, body.Client = f.short(), f.short()
	case wire.OpPing:
		body.Bytes = f.all()
		f.refuseIf(len(body.Bytes) > wire.PingMax)
	case wire.OpNext:
		if len(f.rest) > 0 {
			body.Order = f.u8()
		}
		f.refuseIf(body.Order > wire.OrderOrdered)
	case wire.OpArray, wire.OpRuns:
		f.bulk(&body)
		f.take(3)
		f.refuseIf(body.Order > wire.OrderOrdered)
	case wire.OpDecode, wire.OpProvenance:
		body.ID = Number(f.u64())
		f.refuseIf(body.ID > wire.LargestID)
	case wire.OpSeqNext, wire.OpSeqInfo:
		body.Name = f.name()
	case wire.OpSeqArray, wire.OpSeqRuns:
		f.bulk(&body)
		contiguous := f.u8()
		f.take(2)
		f.refuseIf(body.Order != wire.OrderAny && body.Order != wire.OrderOrdered)
		if op == wire.OpSeqRuns {
			f.refuseIf(contiguous > 1)
			body.Contiguous = contiguous == 1
		}
		body.Name = f.name()
	case wire.OpSeqList:
		body.Limit, body.Prefix, body.After = f.u32(), f.short(), f.short()
		for _, part := range []string{body.Prefix, body.After} {
			f.refuseIf(len(part) > wire.NameMax || !utf8.ValidString(part))
		}
	case wire.OpSeqCreate, wire.OpSeqAlter:
		body.Name, body.JSON = f.name(), f.all()
		f.refuseIf(!utf8.ValidString(body.JSON))
	}
	return body
}
