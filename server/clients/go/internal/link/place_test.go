package link

import (
	"context"
	"testing"
	"time"
)

func TestAPlaceThatComesAsItsCallerGivesUpIsGivenBack(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l := &Link{max: 1, timeout: time.Minute}
	// Which of the two it meets first is random: a hundred times the same is never.
	for i := 0; i < 100; i++ {
		l.callers = 1
		place := make(chan bool, 1)
		place <- true
		if err := l.standInLine(ctx, place, later(Now(), time.Minute)); err == nil {
			l.leavePlace()
		}
		if l.callers != 0 {
			t.Fatalf("%d places are taken, and nobody has one", l.callers)
		}
	}
}
