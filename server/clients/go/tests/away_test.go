package tests

import (
	"net"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/wire"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

// stays fails unless the next call is answered by that peer, behind refills that are not.
func stays(t *testing.T, c *xuid.Client, peer *faketest.Peer, id uint64) {
	t.Helper()
	call := next(within(t), c)
	asked, ok := peer.Ask()
	for ; ok && asked.Op != wire.OpNext; asked, ok = peer.Ask() {
		if asked.Op == wire.OpPing {
			peer.Reply(asked, &asked.Body)
		}
	}
	if !ok {
		t.Fatal("the server was left")
	}
	peer.Reply(asked, &wiretest.Body{ID: wiretest.Number(id)})
	gives(t, call, id)
}

// refuses fails unless the next call is refused, by that peer.
func refuses(t *testing.T, c *xuid.Client, peer *faketest.Peer, status uint16) {
	t.Helper()
	call := next(within(t), c)
	peer.Refuse(peer.Expect(wire.OpNext), status, time.Second)
	var refused *xuid.RefusedError
	fails(t, call, &refused)
}

// refillsInVain has a prefetch give up, twice where no other server answers it.
func refillsInVain(t *testing.T, c *xuid.Client) {
	t.Helper()
	p := c.Prefetch(xuid.PrefetchAhead(16, 16), xuid.PrefetchMaxAge(50*time.Millisecond))
	defer p.Close()
	ctx := within(t)
	for p.Stats().FailedRefills < 2 {
		if _, ok := p.TryNext(); ok {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no refill was given up: %+v", p.Stats())
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAServerThatDidNotAnswerAtTheConnectIsGoneToForNoSilenceAndNoRefusal(t *testing.T) {
	one, silent := faketest.Start(t, 1), faketest.Start(t, 1)
	peers := make(chan *faketest.Peer, 1)
	go func() { peers <- one.Greet() }()
	// The other one takes the connection, and says nothing.
	c, err := dialAll(t, []xuid.Option{xuid.WithTimeout(time.Minute)}, one, silent)
	if err != nil {
		t.Fatal(err)
	}
	peer := <-peers
	refuses(t, c, peer, 0x8010)
	stays(t, c, peer, 1)
	refillsInVain(t, c)
	stays(t, c, peer, 2)
}

// A store that is away for long would have all callers wait for a connection each time that one asks for a number.
func TestNoRefusalLeadsAgainSoonToAServerThatWasSilentForLong(t *testing.T) {
	c, first, _, peer := pairOf(t, xuid.WithConnectTimeout(time.Second))
	refuses(t, c, peer, 0x8016)
	peer.ExpectEnd()
	// The other one greets nobody any more.
	call := next(within(t), c)
	peer = first.Greet()
	peer.ServeNext(1)
	gives(t, call, 1)
	refuses(t, c, peer, 0x8016)
	stays(t, c, peer, 2)
}

// cameBack is a client that lost its server, and found nobody at the other one when it looked for it.
func cameBack(t *testing.T) (c *xuid.Client, first, other *faketest.Server, peer *faketest.Peer) {
	t.Helper()
	c, first, other, peer = pairOf(t, xuid.WithRetryFor(10*time.Second))
	other.Close()
	peer.Close()
	call := next(within(t), c)
	peer = first.Greet()
	peer.ServeNext(1)
	gives(t, call, 1)
	return c, first, other, peer
}

func TestAServerThatWasAwayIsLeftForAgainOnceItWasThere(t *testing.T) {
	c, first, other, peer := cameBack(t)
	listener, err := net.Listen("tcp", other.Addr)
	if err != nil {
		t.Fatal(err)
	}
	other = faketest.StartOn(t, listener, 1)
	// And is, when it looks again: later than six times as long as that dial took, or the other one's turn would come last.
	time.Sleep(time.Second)
	peer.Close()
	call := next(within(t), c)
	peer = other.Greet()
	peer.ServeNext(2)
	gives(t, call, 2)
	peer.Close()
	call = next(within(t), c)
	peer = first.Greet()
	peer.ServeNext(3)
	gives(t, call, 3)
	go serve(other, 4)
	refillsInVain(t, c)
	if r := soon(t, next(within(t), c)); r.err != nil || c.Server().Server != other.Addr {
		t.Fatalf("%v at %s", r.err, c.Server().Server)
	}
}

func TestAPrefetchThatGivesUpLeavesNoServerForOneThatWasNotThere(t *testing.T) {
	c, _, _, peer := cameBack(t)
	refillsInVain(t, c)
	stays(t, c, peer, 2)
}
