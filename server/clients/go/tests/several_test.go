package tests

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/wire"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

// serve answers whatever connects, with ids from first.
func serve(fake *faketest.Server, first uint64) {
	for {
		peer := fake.Accept()
		if peer == nil {
			return
		}
		go func() {
			if hello, ok := peer.ReadHello(); ok {
				peer.Reply(hello, &fake.Hello)
				peer.ServeRest(first)
			}
		}()
	}
}

func dialAll(t *testing.T, opts []xuid.Option, fakes ...*faketest.Server) (*xuid.Client, error) {
	var list []string
	for _, fake := range fakes {
		list = append(list, fake.Addr)
	}
	c, err := xuid.Dial(within(t), strings.Join(list, ","), quick(opts...)...)
	if err == nil {
		t.Cleanup(func() { go c.Close() })
	}
	return c, err
}

func TestClientsOfOneListBeginAtDifferentServers(t *testing.T) {
	one, two := faketest.Start(t, 1), faketest.Start(t, 1)
	go serve(one, 1)
	go serve(two, 1)
	begun := map[string]int{}
	// Forty at one server by chance: once in 2^39.
	for i := 0; i < 40; i++ {
		c, err := dialAll(t, nil, one, two)
		if err != nil {
			t.Fatal(err)
		}
		begun[c.Server().Server]++
		c.Close()
	}
	if len(begun) != 2 {
		t.Fatalf("%v", begun)
	}
}

func TestServersOfTwoClustersAreRefusedWithBothIDs(t *testing.T) {
	one, two := faketest.Start(t, 1), faketest.Start(t, 2)
	go serve(one, 1)
	go serve(two, 1)
	_, err := dialAll(t, nil, one, two)
	var wrong *xuid.WrongClusterError
	if !errors.As(err, &wrong) || xuid.Retryable(err) {
		t.Fatalf("%v", err)
	}
	for _, shown := range []string{faketest.Cluster(1), faketest.Cluster(2), one.Addr, two.Addr} {
		if !strings.Contains(err.Error(), shown) {
			t.Errorf("%v does not show %s", err, shown)
		}
	}
}

func TestAPinnedClusterIsSaidAndChecked(t *testing.T) {
	pinned, err := xuid.ParseClusterID(faketest.Cluster(2))
	if err != nil {
		t.Fatal(err)
	}
	fake := faketest.Start(t, 1)
	go func() {
		// One that does not look at what HELLO says, and one that does.
		for _, refuses := range []bool{false, true} {
			peer := fake.Accept()
			hello, _ := peer.ReadHello()
			if hello.Cluster != faketest.Cluster(2) {
				t.Errorf("HELLO says %s", hello.Cluster)
			}
			if refuses {
				peer.Refuse(hello, 7, 0)
			} else {
				peer.Reply(hello, &fake.Hello)
			}
		}
	}()
	var wrong *xuid.WrongClusterError
	_, err = xuid.Dial(within(t), fake.Addr, xuid.WithCluster(pinned))
	if !errors.As(err, &wrong) || wrong.Found.String() != faketest.Cluster(1) || wrong.Expected != pinned {
		t.Fatalf("%v", err)
	}
	var refused *xuid.RefusedError
	_, err = xuid.Dial(within(t), fake.Addr, xuid.WithCluster(pinned))
	if !errors.As(err, &wrong) || !errors.As(err, &refused) || refused.Status != xuid.StatusWrongCluster {
		t.Fatalf("%v", err)
	}
}

func TestAServerThatComesBackAsAnotherClusterIsRefused(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake, xuid.WithReconnectRounds(1))
	peer.Close()
	fake.Hello.Cluster = faketest.Cluster(2)
	go serve(fake, 1)
	var wrong *xuid.WrongClusterError
	// The first call may still meet the connection that ends.
	for !errors.As(soon(t, next(within(t), c)).err, &wrong) {
		if t.Failed() || within(t).Err() != nil {
			t.Fatal("another cluster's ids were taken")
		}
	}
}

// home is the server that a client of both begins at, and the other one.
func home(c *xuid.Client, one, two *faketest.Server) (first, other *faketest.Server) {
	if c.Server().Server == one.Addr {
		return one, two
	}
	return two, one
}

// pairOf is a client of two servers, and the peers of both greetings.
func pairOf(t *testing.T, opts ...xuid.Option) (c *xuid.Client, first, other *faketest.Server, peer *faketest.Peer) {
	one, two := faketest.Start(t, 1), faketest.Start(t, 1)
	peers := make(chan [2]*faketest.Peer, 1)
	go func() { peers <- [2]*faketest.Peer{one.Greet(), two.Greet()} }()
	c, err := dialAll(t, opts, one, two)
	if err != nil {
		t.Fatal(err)
	}
	both := <-peers
	first, other = home(c, one, two)
	if first == two {
		return c, first, other, both[1]
	}
	return c, first, other, both[0]
}

func TestAConnectionToAServerThatIsNotUsedIsClosedAlsoALateOne(t *testing.T) {
	fakes := []*faketest.Server{faketest.Start(t, 1), faketest.Start(t, 1), faketest.Start(t, 1)}
	peers := make(chan []*faketest.Peer, 1)
	go func() { peers <- []*faketest.Peer{fakes[0].Greet(), fakes[1].Greet(), fakes[2].Accept()} }()
	c, err := dialAll(t, []xuid.Option{xuid.WithConnectTimeout(time.Hour)}, fakes...)
	if err != nil {
		t.Fatal(err)
	}
	greeted := <-peers
	if hello, ok := greeted[2].ReadHello(); ok {
		greeted[2].Reply(hello, &fakes[2].Hello)
	}
	for i, fake := range fakes {
		if fake.Addr != c.Server().Server {
			greeted[i].ExpectEnd()
		}
	}
}

func TestAClientThatHadToLeaveGoesBackToItsFirstChoice(t *testing.T) {
	c, first, other, peer := pairOf(t, xuid.WithRetryFor(10*time.Second), xuid.WithReturnAfter(100*time.Millisecond))
	call := next(within(t), c)
	peer.Expect(wire.OpNext)
	peer.Close()
	stand := other.Greet()
	stand.ServeNext(1)
	gives(t, call, 1)
	open := next(within(t), c)
	asked := stand.Expect(wire.OpNext)
	// It opens a link to its first choice by itself, and moves there.
	back := first.Greet()
	for c.Server().Server != first.Addr {
		if within(t).Err() != nil {
			t.Fatal("it stays away")
		}
	}
	call = next(within(t), c)
	back.ServeNext(2)
	gives(t, call, 2)
	stand.Reply(asked, &wiretest.Body{ID: 3})
	gives(t, open, 3)
	stand.ExpectEnd()
}

func TestARefusalThatMayTakeLongLeadsToTheOtherServerAtOnce(t *testing.T) {
	c, _, other, peer := pairOf(t, xuid.WithRetryFor(10*time.Second))
	begun := time.Now()
	call := next(within(t), c)
	peer.Refuse(peer.Expect(wire.OpNext), 0x8010, 5*time.Second)
	other.Greet().ServeNext(4)
	gives(t, call, 4)
	if took := time.Since(begun); took >= 5*time.Second {
		t.Fatalf("it waited for what the first server said: %v", took)
	}
	peer.ExpectEnd()
}

func TestAServerThatRefusesIsStayedWithWhereNoOtherIsThatWasNotDialedOfLate(t *testing.T) {
	refuse := func(c *xuid.Client, peer *faketest.Peer) {
		call := next(within(t), c)
		peer.Refuse(peer.Expect(wire.OpNext), 0x8010, 10*time.Second)
		var refused *xuid.RefusedError
		fails(t, call, &refused)
	}
	stays := func(c *xuid.Client, peer *faketest.Peer) {
		refuse(c, peer)
		call := next(within(t), c)
		peer.ServeNext(5)
		gives(t, call, 5)
	}
	stays(pair(t, faketest.Start(t, 1)))
	c, first, other, peer := pairOf(t)
	refuse(c, peer)
	// Both are dialed now for the first time behind the greeting.
	for _, fake := range []*faketest.Server{other, first} {
		call := next(within(t), c)
		peer = fake.Greet()
		peer.ServeNext(4)
		gives(t, call, 4)
		if fake == other {
			refuse(c, peer)
		}
	}
	stays(c, peer)
}

func TestABusyServerIsStayedWith(t *testing.T) {
	c, _, _, peer := pairOf(t, xuid.WithRetryFor(10*time.Second))
	call := next(within(t), c)
	peer.Refuse(peer.Expect(wire.OpNext), 0x8011, time.Millisecond)
	peer.ServeNext(5)
	gives(t, call, 5)
}

func TestACallThatGivesUpLeavesNoServerThatAnswersOthersOrWasNotGivenItsTime(t *testing.T) {
	c, _, _, peer := pairOf(t, xuid.WithTimeout(time.Second))
	slow := next(within(t), c)
	peer.Expect(wire.OpNext)
	other := next(within(t), c)
	peer.ServeNext(1)
	gives(t, other, 1)
	short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	hasty := next(short, c)
	peer.Expect(wire.OpNext)
	if r := soon(t, hasty); r.err != context.DeadlineExceeded {
		t.Fatalf("%+v", r)
	}
	call := next(within(t), c)
	peer.ServeNext(2)
	gives(t, call, 2)
	ping := peer.Expect(wire.OpPing)
	peer.Reply(ping, &ping.Body)
	var timeout *xuid.TimeoutError
	fails(t, slow, &timeout)
	call = next(within(t), c)
	peer.ServeNext(3)
	gives(t, call, 3)
}

func TestACallThatMeetsASilentServerLeadsTheNextOnesElsewhere(t *testing.T) {
	c, _, other, peer := pairOf(t, xuid.WithTimeout(200*time.Millisecond))
	call := next(within(t), c)
	asked := peer.Expect(wire.OpNext)
	go func() {
		// It is there, and answers nothing else.
		for {
			ping, ok := peer.Ask()
			if !ok {
				return
			}
			peer.Reply(ping, &ping.Body)
		}
	}()
	var timeout *xuid.TimeoutError
	fails(t, call, &timeout)
	call = next(within(t), c)
	other.Greet().ServeNext(6)
	gives(t, call, 6)
	peer.Reply(asked, &wiretest.Body{ID: 1})
}

// Its calls would wait for a connection to the other one, for as long as that may take.
func TestAServerThatIsSilentForAMomentIsNotLeftForOneThatWasNotThere(t *testing.T) {
	c, first, other, peer := pairOf(t, xuid.WithBackoff(time.Millisecond, 20*time.Millisecond),
		xuid.WithRetryFor(10*time.Second))
	// Nobody is there when it loses its server, and looks for another one.
	other.Close()
	peer.Close()
	call := next(within(t), c)
	peer = first.Greet()
	peer.ServeNext(4)
	gives(t, call, 4)
	ctx, cancel := context.WithTimeout(context.Background(), 1200*time.Millisecond)
	defer cancel()
	call = next(ctx, c)
	peer.Expect(wire.OpNext)
	if r := soon(t, call); !errors.Is(r.err, context.DeadlineExceeded) {
		t.Fatalf("a call that was not answered: %v", r.err)
	}
	call = next(within(t), c)
	peer.ServeNext(6)
	gives(t, call, 6)
}

func TestCallersOfAClientWithoutAConnectionShareOneDial(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake)
	ping := begin(func() (uint64, error) { return 0, c.Ping(within(t)) })
	asked := peer.Expect(wire.OpPing)
	peer.GoAway()
	peer.Reply(asked, &asked.Body)
	gives(t, ping, 0)
	var calls []<-chan result
	for i := 0; i < 20; i++ {
		calls = append(calls, next(within(t), c))
	}
	greeted := fake.Greet()
	go func() {
		if fake.Accept() != nil && !t.Failed() {
			t.Error("a second dial")
		}
	}()
	for range calls {
		greeted.ServeNext(1)
	}
	for _, call := range calls {
		gives(t, call, 1)
	}
	fake.Close()
}
