package fleet

import (
	"context"
	"testing"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/link"
)

func TestAConnectionThatStandsOnlyWhenTheFleetIsClosedIsClosed(t *testing.T) {
	fake := faketest.Start(t, 1)
	f := &Fleet{
		servers: []string{fake.Addr}, cluster: [16]byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, dialed: []int64{0}, away: make(away, 1),
		options: Options{Link: link.Options{ConnectTimeout: faketest.Patience}, Rounds: 1},
		// The dial was over before its life was.
		life: context.Background(), closed: true,
	}
	f.link.Store(&link.Link{})
	search := &dialing{done: make(chan struct{})}
	for _, dial := range []func(){func() { f.redial(search) }, f.comeBack} {
		go dial()
		fake.Greet().ExpectEnd()
	}
	<-search.done
	if !fail.Is(search.err, fail.Closed) || search.link != nil {
		t.Fatalf("%v", search.err)
	}
}
