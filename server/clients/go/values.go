package xuid

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/x-uid/xuid-go/internal/wire"
)

// LargestID is the highest number that is an id: ids have 63 bits, and fit a signed 64-bit column.
const LargestID uint64 = wire.LargestID

// Choice is what a call may choose besides its count: an [Order], or a [Wait].
type Choice interface{ isChoice() }

// Order is which ids a call gets.
type Order uint8

// The orders.
const (
	// Any ids may come from the server's reserve, up to an hour old; at light load they are two seconds old at most. The
	// fastest. Of a sequence: numbers in no particular order.
	Any Order = wire.OrderAny
	// Fresh ids are of a tick of now. Sequences have no such order.
	Fresh Order = wire.OrderFresh
	// Ordered ids are greater than every ordered id that the server answered with before; of a sequence, than every ordered
	// number of that name. The ids of one reply ascend. Order holds among the ids of one server within one life of its
	// process; only a sequence that was created strict ascends over all servers.
	Ordered Order = wire.OrderOrdered
)

func (Order) isChoice() {}

// String is the order's name.
func (o Order) String() string {
	switch o {
	case Any:
		return "any"
	case Fresh:
		return "fresh"
	case Ordered:
		return "ordered"
	}
	return fmt.Sprintf("order %d", uint8(o))
}

// Wait is how long the server may take to bring many ids together, up to a minute; then it refuses with [StatusOverloaded].
// A context with an earlier deadline shortens it. Where a call says nothing it is [DefaultWait].
type Wait time.Duration

// DefaultWait is how long the server may take to bring many ids together where the call does not say.
const DefaultWait = Wait(50 * time.Millisecond)

func (Wait) isChoice() {}

// Run is Count ids: First, First + Stride, First + 2 x Stride, ... No id is in two runs.
type Run struct {
	// First of its ids.
	First uint64
	// Count of its ids, at least 1.
	Count uint32
	// Stride is the distance of its ids; 1: they are consecutive.
	Stride uint32
}

// At is the id of that index, which must be below Count.
func (r Run) At(i uint32) uint64 {
	if i >= r.Count {
		panic(fmt.Sprintf("xuid: index %d of a run of %d ids", i, r.Count))
	}
	return r.First + uint64(i)*uint64(r.Stride)
}

// Last is the highest of its ids.
func (r Run) Last() uint64 { return r.At(r.Count - 1) }

// AppendTo appends all of its ids to ids.
func (r Run) AppendTo(ids []uint64) []uint64 {
	for i := uint32(0); i < r.Count; i++ {
		ids = append(ids, r.At(i))
	}
	return ids
}

// Decoded are the fields of an id.
type Decoded struct {
	// UnixMS is the beginning of its tick, in milliseconds since the Unix epoch.
	UnixMS uint64
	// Worker that minted it.
	Worker uint32
	// Sequence is its place within the tick.
	Sequence uint32
}

// Time is the beginning of the id's tick.
func (d Decoded) Time() time.Time {
	if d.UnixMS > math.MaxInt64 {
		return time.UnixMilli(math.MaxInt64)
	}
	return time.UnixMilli(int64(d.UnixMS))
}

// Layout is how the ids of a cluster are made: from the highest bit down a tick, and below it a worker and a sequence.
type Layout struct {
	// EpochMS is tick 0, in milliseconds since the Unix epoch.
	EpochMS uint64
	// TickUS is the length of a tick, in microseconds.
	TickUS uint32
	// TimeBits, WorkerBits and SequenceBits add up to 63 at most.
	TimeBits, WorkerBits, SequenceBits uint8
	// Face is 0 where the sequence lies lowest, 1 where the worker does, and 2 where ids are opaque.
	Face uint8
}

// IsOpaque says whether only the server can take an id apart, since it has the key: ask it, by [Client.Decode].
func (l Layout) IsOpaque() bool { return l.Face == opaqueFace }

const opaqueFace = 2

// Decode takes an id apart, without a call. It is arithmetic, and says nothing about whether the id was ever issued. The
// bits above the 63 of an id are not looked at. Of an opaque layout it panics with a [*UsageError]: see [Layout.IsOpaque].
func (l Layout) Decode(id uint64) Decoded {
	if l.IsOpaque() {
		panic(usage("the ids of this cluster are opaque, and only their server has the key: take them apart by Client.Decode"))
	}
	id &= LargestID
	below := l.WorkerBits + l.SequenceBits
	high, low := bits.Mul64(id>>below, uint64(l.TickUS))
	unixMS := uint64(math.MaxUint64)
	if high < 1000 {
		ms, _ := bits.Div64(high, low, 1000)
		if sum, carry := bits.Add64(ms, l.EpochMS, 0); carry == 0 {
			unixMS = sum
		}
	}
	workerAt, sequenceAt := l.SequenceBits, uint8(0)
	if l.Face != 0 {
		workerAt, sequenceAt = 0, l.WorkerBits
	}
	return Decoded{
		UnixMS:   unixMS,
		Worker:   uint32(id >> workerAt & (1<<l.WorkerBits - 1)),
		Sequence: uint32(id >> sequenceAt & (1<<l.SequenceBits - 1)),
	}
}

// ClusterID names a cluster: the servers whose ids never meet.
type ClusterID [16]byte

// ParseClusterID reads the 32 hexadecimal digits of a cluster. The error is a [*UsageError].
func ParseClusterID(text string) (ClusterID, error) {
	var id ClusterID
	if len(text) != 2*len(id) {
		return id, usage("a cluster has 32 hexadecimal digits, and this one has %d", len(text))
	}
	if _, err := hex.Decode(id[:], []byte(text)); err != nil {
		return ClusterID{}, usage("a cluster has 32 hexadecimal digits: %v", err)
	}
	return id, nil
}

// String is its 32 hexadecimal digits.
func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// ServerInfo is what a server said about itself when the client connected.
type ServerInfo struct {
	// Server is its address, as it was given to [Dial]; Version is for people.
	Server, Version string
	// Cluster that it is of.
	Cluster ClusterID
	// Layout of its ids.
	Layout Layout
	// MaxCount is the most ids of one call.
	MaxCount uint32
	// MaxInFlight is how many requests it answers at a time.
	MaxInFlight uint32
	// Idle is how long a connection may be without a byte.
	Idle time.Duration
}
