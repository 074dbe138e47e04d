package fleet

import (
	"testing"
	"time"
)

func retries(servers int) *Retries {
	f := &Fleet{servers: make([]string, servers), options: Options{FirstPause: 20 * time.Millisecond, LongestPause: 2 * time.Second}}
	return f.Retries()
}

func TestPausesDoubleUpToTheLongestAndAreAnywhereBelow(t *testing.T) {
	b := newBackoff(&Options{FirstPause: 10 * time.Millisecond, LongestPause: 100 * time.Millisecond})
	for _, full := range []time.Duration{10, 20, 40, 80, 100, 100} {
		if b.next != full*time.Millisecond {
			t.Fatalf("%v instead of %d ms", b.next, full)
		}
		if pause := b.pause(); pause < 0 || pause > full*time.Millisecond {
			t.Fatalf("%v of %d ms", pause, full)
		}
	}
	none := newBackoff(&Options{FirstPause: 10 * time.Millisecond})
	if pause := none.pause(); pause != 0 {
		t.Fatalf("%v", pause)
	}
}

func TestTwoClientsDoNotPauseAlike(t *testing.T) {
	pauses := map[time.Duration]bool{}
	for i := 0; i < 10; i++ {
		b := newBackoff(&Options{FirstPause: time.Hour, LongestPause: time.Hour})
		pauses[b.pause()] = true
	}
	if len(pauses) < 6 {
		t.Fatalf("%v", pauses)
	}
}

func TestEveryOtherServerIsTriedBeforeTheFirstPauseAndAgainAfterIt(t *testing.T) {
	r := retries(3)
	for i := 0; i < 4; i++ {
		if a, b := r.pause(time.Second, true), r.pause(time.Second, true); a != 0 || b != 0 {
			t.Fatalf("%v and %v", a, b)
		}
		if pause := r.pause(time.Second, true); pause < time.Second {
			t.Fatalf("%v", pause)
		}
	}
}

func TestAServerThatIsStayedWithIsNeverAskedAgainWithoutThePauseThatItNames(t *testing.T) {
	alone, several := retries(1), retries(3)
	for i := 0; i < 4; i++ {
		if pause := alone.pause(time.Second, true); pause < time.Second {
			t.Fatalf("%v", pause)
		}
		if pause := several.pause(time.Second, false); pause < time.Second {
			t.Fatalf("%v", pause)
		}
	}
}

func TestAServerThatNamesAPauseOfWeeksIsAskedAgainInAMinute(t *testing.T) {
	if pause := retries(1).pause(1<<32*time.Millisecond, false); pause < longestWord || pause > 2*longestWord {
		t.Fatalf("%v", pause)
	}
}
