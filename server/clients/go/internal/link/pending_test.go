package link

import (
	"testing"

	"github.com/x-uid/xuid-go/internal/wire"
)

func TestARequestIDIsAnsweredOnceAndNeverComesAgain(t *testing.T) {
	var p pending
	seen := map[uint64]bool{}
	var open []uint64
	for round := 0; round < 1000; round++ {
		id := p.insert(waiting{expected: expected{op: wire.OpNext}})
		if seen[id] || id>>32 == 0 {
			t.Fatalf("%x in round %d", id, round)
		}
		seen[id] = true
		open = append(open, id)
		if round%3 == 0 {
			continue
		}
		at := round * 7 % len(open)
		id = open[at]
		open = append(open[:at], open[at+1:]...)
		if _, ok := p.take(id); !ok {
			t.Fatalf("%x is in flight", id)
		}
		if _, ok := p.take(id); ok || p.find(id) != nil {
			t.Fatalf("%x twice", id)
		}
	}
	for _, id := range []uint64{0, 1<<64 - 1} {
		if p.find(id) != nil {
			t.Fatalf("%x was never in flight", id)
		}
	}
	count := 0
	p.each(func(*waiting) { count++ })
	if count != len(open) || p.isEmpty() {
		t.Fatalf("%d of %d", count, len(open))
	}
	if p.clear(); !p.isEmpty() || p.find(open[0]) != nil {
		t.Fatal("something is left")
	}
}

func TestTheInboxGrowsWithWhatArrives(t *testing.T) {
	buf, from, to := make([]byte, readRoom), 0, 0
	for round := 0; round < 100; round++ {
		buf, from, to = makeRoom(buf, from, to)
		if len(buf)-to < readRoom/4 || len(buf) > 4*(to-from)+2*readRoom {
			t.Fatalf("%d bytes of room for %d", len(buf), to-from)
		}
		for i := 0; i < readRoom/4; i++ {
			buf[to] = byte(round)
			to++
		}
		if round%2 == 0 {
			from += readRoom / 8
		}
	}
	if buf[to-1] != 99 || buf[from] == 99 {
		t.Fatal("it moved what lay there")
	}
}
