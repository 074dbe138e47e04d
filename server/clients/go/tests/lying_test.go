package tests

import (
	"errors"
	"net"
	"strings"
	"testing"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/wire"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

// lie is what a server answers, to what, and what the error says.
type lie struct {
	name  string
	call  func(*testing.T, *xuid.Client) (uint64, error)
	reply func(asked faketest.Asked) []byte
	says  string
}

func callNext(t *testing.T, c *xuid.Client) (uint64, error) { return c.Next(within(t)) }

func callArray(t *testing.T, c *xuid.Client) (uint64, error) {
	ids, err := c.Array(within(t), 3)
	return uint64(len(ids)), err
}

func callRuns(t *testing.T, c *xuid.Client) (uint64, error) {
	runs, err := c.Runs(within(t), 3)
	return uint64(len(runs)), err
}

func callTake(t *testing.T, c *xuid.Client) (uint64, error) {
	run, err := c.Sequence("orders").Take(within(t), 3)
	return run.First, err
}

func reply(body wiretest.Body) func(faketest.Asked) []byte {
	return func(asked faketest.Asked) []byte {
		return wiretest.AppendReply(nil, asked.Op|wire.ReplyBit, 0, asked.ID, &body)
	}
}

// claim is a header alone.
func claim(length uint32, status uint16) func(faketest.Asked) []byte {
	return func(asked faketest.Asked) []byte {
		header := wire.Header{BodyLen: length, Op: asked.Op | wire.ReplyBit, Status: status, RequestID: asked.ID}
		return header.Append(nil)
	}
}

func runs(count uint32, runs ...wiretest.RunBody) func(faketest.Asked) []byte {
	return reply(wiretest.Body{Count: count, Runs: runs})
}

var lies = []lie{
	{"NEXT longer than an id and its room, by the header alone", callNext, claim(8+wire.ReplyRoom, 0), "claims a body"},
	{"ARRAY of 3 longer than that", callArray, claim(8*3+wire.ReplyRoom+1, 0), "claims a body"},
	{"an error of 4 GiB", callArray, claim(1<<32-1, 0x8011), "claims a body"},
	{"an error to an ARRAY longer than an error", callArray, claim(wire.ReplyRoom+1, 0x8011), "claims a body"},
	{"another op", callNext, func(asked faketest.Asked) []byte {
		return wiretest.AppendReply(nil, wire.OpDecode|wire.ReplyBit, 0, asked.ID, &wiretest.Body{})
	}, "answered with op 20"},
	{"another request", callNext, func(asked faketest.Asked) []byte {
		return wiretest.AppendReply(nil, wire.OpNext|wire.ReplyBit, 0, asked.ID+1, &wiretest.Body{ID: 1})
	}, "not in flight"},
	{"a request of its own", callNext, func(asked faketest.Asked) []byte {
		return wiretest.AppendReply(nil, wire.OpNext, 0, asked.ID, &wiretest.Body{ID: 1})
	}, "is no reply"},
	{"flags", callNext, func(asked faketest.Asked) []byte {
		return wire.Header{Op: wire.OpNext | wire.ReplyBit, Flags: 1, RequestID: asked.ID}.Append(nil)
	}, "is no reply"},
	{"an id of 64 bits", callNext, reply(wiretest.Body{ID: 1 << 63}), "2^63"},
	{"half an id", callNext, func(asked faketest.Asked) []byte {
		return append(wire.Header{BodyLen: 4, Op: wire.OpNext | wire.ReplyBit, RequestID: asked.ID}.Append(nil), 1, 2, 3, 4)
	}, "ends before"},
	{"an ARRAY of fewer", callArray, reply(wiretest.Body{IDs: []wiretest.Number{1, 2}}), "3 ids were asked for, and 2 came"},
	{"an ARRAY of more", callArray, reply(wiretest.Body{IDs: []wiretest.Number{1, 2, 3, 4}}), "and 4 came"},
	{"an ARRAY with an id of 64 bits", callArray, reply(wiretest.Body{IDs: []wiretest.Number{1, 1 << 63, 3}}), "2^63"},
	{"RUNS that do not add up", callRuns, runs(3, wiretest.RunBody{First: 1, Count: 2, Stride: 1}), "do not add up"},
	{"RUNS of fewer", callRuns, runs(2, wiretest.RunBody{First: 1, Count: 2, Stride: 1}), "and 2 came"},
	{"an empty run", callRuns, runs(3, wiretest.RunBody{First: 1, Count: 3, Stride: 1}, wiretest.RunBody{First: 9}), "empty"},
	{"a run that stands still", callRuns, runs(3, wiretest.RunBody{First: 1, Count: 3}), "stride of 0"},
	{"a run that leaves 63 bits", callRuns, runs(3, wiretest.RunBody{First: 1<<63 - 2, Count: 3, Stride: 1}), "63 bits"},
	{"a run that begins beyond 63 bits", callRuns, runs(3, wiretest.RunBody{First: 1 << 63, Count: 3, Stride: 1}), "63 bits"},
	{"two runs for one", callTake,
		runs(3, wiretest.RunBody{First: 1, Count: 2, Stride: 1}, wiretest.RunBody{First: 9, Count: 1, Stride: 1}),
		"more runs than the one"},
}

func TestWhatIsNoAnswerEndsTheConnectionAndGivesNoID(t *testing.T) {
	for _, lie := range lies {
		lie := lie
		t.Run(lie.name, func(t *testing.T) {
			c, peer := pair(t, faketest.Start(t, 1))
			call := begin(func() (uint64, error) { return lie.call(t, c) })
			asked, ok := peer.Ask()
			if !ok {
				t.Fatal("nothing was asked")
			}
			peer.Raw(lie.reply(asked))
			var protocol *xuid.ProtocolError
			if err := fails(t, call, &protocol); !strings.Contains(err.Error(), lie.says) || xuid.Retryable(err) {
				t.Fatalf("%v", err)
			}
			peer.ExpectEnd()
		})
	}
}

func TestWhatStandsBehindALieIsNotBelieved(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	first := next(within(t), c)
	one := peer.Expect(wire.OpNext)
	second := next(within(t), c)
	two := peer.Expect(wire.OpNext)
	both := wiretest.AppendReply(nil, wire.OpNext|wire.ReplyBit, 0, one.ID, &wiretest.Body{ID: 1 << 63})
	peer.Raw(wiretest.AppendReply(both, wire.OpNext|wire.ReplyBit, 0, two.ID, &wiretest.Body{ID: 7}))
	var protocol *xuid.ProtocolError
	fails(t, first, &protocol)
	fails(t, second, &protocol)
}

func TestAReplyThatIsCutIsLostWhereverItIsCut(t *testing.T) {
	for cut := 0; cut < wire.HeaderLen+8; cut++ {
		c, peer := pair(t, faketest.Start(t, 1))
		call := next(within(t), c)
		asked := peer.Expect(wire.OpNext)
		peer.Raw(reply(wiretest.Body{ID: 7})(asked)[:cut])
		peer.Close()
		var lost *xuid.LostError
		fails(t, call, &lost)
	}
}

func TestAReplyMayComeInPieces(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	call := begin(func() (uint64, error) {
		ids, err := c.Array(within(t), 100_000)
		return ids[99_999], err
	})
	asked := peer.Expect(wire.OpArray)
	body := wiretest.Body{}
	for i := uint32(0); i < asked.Count; i++ {
		body.IDs = append(body.IDs, wiretest.Number(i))
	}
	for bytes := reply(body)(asked); len(bytes) > 0; {
		cut := 1 + len(bytes)/3
		peer.Raw(bytes[:cut])
		bytes = bytes[cut:]
	}
	gives(t, call, 99_999)
}

func TestWhatFollowsTheFieldsOfAReplyIsNotLookedAt(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	call := next(within(t), c)
	asked := peer.Expect(wire.OpNext)
	frame := append(reply(wiretest.Body{ID: 7})(asked), 1, 2, 3)
	frame[0] += 3
	peer.Raw(frame)
	gives(t, call, 7)
}

// dialed is a Dial whose server answers with these bytes and closes.
func dialed(t *testing.T, answer []byte, opts ...xuid.Option) error {
	fake := faketest.Start(t, 1)
	go func() {
		if peer := fake.Accept(); peer != nil {
			peer.ReadHello()
			peer.Raw(answer)
			peer.Close()
		}
	}()
	c, err := xuid.Dial(within(t), fake.Addr, opts...)
	if err == nil {
		c.Close()
	}
	return err
}

func TestAServerThatSpeaksSomethingElseIsShown(t *testing.T) {
	for _, c := range []struct{ answer, says string }{
		{"220 mail.example ESMTP ready\r\n", "220 mail.example ESMTP ready"},
		{"no\n", "no"},
		{"\x15\x03\x03\x00\x02\x02\x28", "TLS"},
		{strings.Repeat("\x00", 64), "is no reply"},
	} {
		err := dialed(t, []byte(c.answer))
		var protocol *xuid.ProtocolError
		if !errors.As(err, &protocol) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v does not show %q", err, c.says)
		}
	}
}

func TestAGreetingThatCannotBeIsRefused(t *testing.T) {
	good := faketest.Start(t, 1).Hello
	for _, c := range []struct {
		change func(*wiretest.Body)
		says   string
	}{
		{func(b *wiretest.Body) { b.Version = 2 }, "version 2"},
		{func(b *wiretest.Body) { b.TimeBits = 42 }, "63"},
		{func(b *wiretest.Body) { b.TimeBits = 17 }, "40 to 63"},
		{func(b *wiretest.Body) { b.Face = 3 }, "face"},
	} {
		body := good
		c.change(&body)
		err := dialed(t, wiretest.AppendReply(nil, wire.OpHello|wire.ReplyBit, 0, 1, &body))
		var protocol *xuid.ProtocolError
		if !errors.As(err, &protocol) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v does not say %q", err, c.says)
		}
	}
	refusal := wiretest.AppendReply(nil, wire.OpHello|wire.ReplyBit, 6, 1, &wiretest.Body{Text: "the\ntoken"})
	var refused *xuid.RefusedError
	if err := dialed(t, refusal); !errors.As(err, &refused) || refused.Status != xuid.StatusUnauthenticated ||
		refused.Text != "the token" {
		t.Errorf("%v", err)
	}
}

func TestAnAddressWithoutAServerIsUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	_, err = xuid.Dial(within(t), listener.Addr().String())
	var unreachable *xuid.UnreachableError
	if !errors.As(err, &unreachable) || !xuid.Retryable(err) {
		t.Fatalf("%v", err)
	}
}
