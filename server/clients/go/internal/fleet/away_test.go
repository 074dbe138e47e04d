package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/x-uid/xuid-go/internal/link"
)

const second = int64(time.Second)

func TestAServerIsAwayUntilItIsThereOrNobodyLookedForLong(t *testing.T) {
	a, now := make(away, 2), link.Now()
	if a.is(1, now) || a.costs(1, now) {
		t.Fatal("away before any dial")
	}
	a.note(1, now, false)
	if soon := now + 29*second; !a.is(1, soon) || a.is(0, soon) {
		t.Fatalf("%+v", a)
	}
	if late := link.Now() + 30*second; a.is(1, late) {
		t.Fatal("away for ever")
	}
	a.note(1, now, true)
	if a.is(1, now) || a.costs(1, now) {
		t.Fatal("away though it was there")
	}
}

func TestOneThatIsSilentIsDialedLessOftenThanOneThatRefusesAtOnce(t *testing.T) {
	a, now := make(away, 2), link.Now()
	a.note(0, now, false)
	a.note(1, now-5*second, false)
	if a.costs(0, now+10*second) || !a.costs(1, now+29*second) || a.costs(1, now+40*second) {
		t.Fatalf("%+v", a)
	}
}

func TestServersThatCostALongDialAreTheLastOfARound(t *testing.T) {
	f := &Fleet{servers: make([]string, 4), next: 5, away: make(away, 4)}
	f.away.note(1, link.Now()-60*second, false)
	f.away.note(3, link.Now()-60*second, false)
	if turn := fmt.Sprint(f.turn()); turn != "[2 0 1 3]" {
		t.Fatal(turn)
	}
}
