package tests

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
	"github.com/x-uid/xuid-go/internal/wire"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

func TestTheGoldenVectorsAreWrittenReadAndRefused(t *testing.T) {
	text, err := os.ReadFile("../../../protocol/golden/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	counts, err := wiretest.CheckVectors(text)
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if counts.Decoded+counts.Refused != len(all) || counts.Encoded+1 != counts.Decoded {
		t.Fatalf("%+v of %d", counts, len(all))
	}
}

func TestWhatNoServerTakesIsNotSent(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	ctx := within(t)
	name := strings.Repeat("x", 129)
	errs := map[string]func() error{
		"order 3":           func() error { _, err := c.Next(ctx, xuid.Order(3)); return err },
		"array of -1":       func() error { _, err := c.Array(ctx, -1); return err },
		"wait of -1":        func() error { _, err := c.Array(ctx, 1, xuid.Wait(-1)); return err },
		"id of 64 bits":     func() error { _, err := c.Decode(ctx, 1<<63); return err },
		"no name":           func() error { _, err := c.Sequence("").Next(ctx); return err },
		"long name":         func() error { _, err := c.Sequence(name).Next(ctx); return err },
		"reserved name":     func() error { _, err := c.Sequence("@any").Next(ctx); return err },
		"space":             func() error { _, err := c.Sequence("orders\u3000").Next(ctx); return err },
		"control character": func() error { _, err := c.Sequence("or\u0085ders").Next(ctx); return err },
		"not UTF-8":         func() error { _, err := c.Sequence("orders\xff").Next(ctx); return err },
		"fresh sequence":    func() error { _, err := c.Sequence("orders").Array(ctx, 1, xuid.Fresh); return err },
		"long prefix":       func() error { _, err := c.Sequences(ctx, name, "", 1); return err },
		"negative limit":    func() error { _, err := c.Sequences(ctx, "", "", -1); return err },
		"prefetch":          func() error { _, err := c.Prefetch(xuid.PrefetchAhead(0, 1)).Next(ctx); return err },
		"prefetch age": func() error {
			_, err := c.Prefetch(xuid.PrefetchMaxAge(3 * time.Second)).Handle().Next(ctx)
			return err
		},
		"address":   func() error { _, err := xuid.Dial(ctx, "localhost"); return err },
		"port":      func() error { _, err := xuid.Dial(ctx, "h:65536"); return err },
		"no server": func() error { _, err := xuid.Dial(ctx, ""); return err },
		"token":     func() error { _, err := xuid.Dial(ctx, "h:1", xuid.WithToken(strings.Repeat("x", 256))); return err },
		"in flight": func() error { _, err := xuid.Dial(ctx, "h:1", xuid.WithMaxInFlight(0)); return err },
		"timeout":   func() error { _, err := xuid.Dial(ctx, "h:1", xuid.WithTimeout(0)); return err },
		"cluster":   func() error { _, err := xuid.ParseClusterID("00"); return err },
		"files":     func() error { _, err := xuid.TLSFiles("/nowhere.pem", "", ""); return err },
	}
	for what, call := range errs {
		var usage *xuid.UsageError
		if err := call(); !errors.As(err, &usage) || xuid.Retryable(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	call := next(ctx, c)
	peer.ServeNext(1)
	gives(t, call, 1)
}

func TestTheFieldsOfAnIDAreToldWithoutACall(t *testing.T) {
	fake := faketest.Start(t, 1)
	c, peer := pair(t, fake)
	const id = 1_128_275_363_336_683_521
	d := c.Layout().Decode(id)
	if (d != xuid.Decoded{UnixMS: 1_793_155_408_962, Worker: 32, Sequence: 1}) {
		t.Fatalf("%+v", d)
	}
	if at := d.Time().UTC().Format(time.RFC3339Nano); at != "2026-10-28T02:43:28.962Z" {
		t.Fatal(at)
	}
	call := begin(func() (uint64, error) {
		d, err := c.Decode(within(t), id)
		return uint64(d.Worker), err
	})
	asked := peer.Expect(wire.OpDecode)
	peer.Reply(asked, &wiretest.Body{UnixMS: 1, Worker: 32, Sequence: 3})
	gives(t, call, 32)
	lowest := xuid.Layout{TickUS: 10_000, TimeBits: 39, WorkerBits: 16, SequenceBits: 8, Face: 1}
	if d := lowest.Decode(7<<24 | 5<<16 | 3); (d != xuid.Decoded{UnixMS: 70, Worker: 3, Sequence: 5}) {
		t.Fatalf("%+v", d)
	}
	opaque := xuid.Layout{TickUS: 1_000, TimeBits: 41, WorkerBits: 10, SequenceBits: 12, Face: 2}
	func() {
		defer func() {
			var wrong *xuid.UsageError
			if err, ok := recover().(error); !ok || !errors.As(err, &wrong) || !strings.Contains(err.Error(), "Client.Decode") {
				t.Errorf("%v", err)
			}
		}()
		opaque.Decode(7)
	}()
	far := xuid.Layout{EpochMS: 1<<64 - 1, TickUS: 1<<32 - 1, TimeBits: 60, WorkerBits: 2, SequenceBits: 1}
	if d := far.Decode(xuid.LargestID); d.UnixMS != 1<<64-1 || d.Worker != 3 || d.Sequence != 1 {
		t.Fatalf("%+v", d)
	}
}

func TestAStrideIsHonoured(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	call := begin(func() (uint64, error) {
		run, err := c.Sequence("orders").Take(within(t), 4)
		ids := run.AppendTo(nil)
		if len(ids) == 4 && (ids[0] != 1 || ids[1] != 4 || run.Last() != ids[3]) {
			t.Errorf("%v of %+v", ids, run)
		}
		return run.At(3), err
	})
	asked := peer.Expect(wire.OpSeqRuns)
	if asked.Name != "orders" || asked.Order != wire.OrderOrdered || !asked.Contiguous || asked.Count != 4 {
		t.Errorf("%+v", asked)
	}
	peer.Raw(runs(4, wiretest.RunBody{First: 1, Count: 4, Stride: 3})(asked))
	gives(t, call, 10)
}

func TestSettingsAndWhatAServerKnowsOfASequenceAreJSONWithNumbersInStrings(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	info := make(chan xuid.SequenceInfo, 1)
	call := begin(func() (uint64, error) {
		i, err := c.Sequence("orders").Create(within(t), xuid.Start(1<<63-1), xuid.Increment(3), xuid.Remainder(1),
			xuid.Strict(), xuid.Description("a \"b\""))
		info <- i
		return i.Next, err
	})
	asked := peer.Expect(wire.OpSeqCreate)
	var said map[string]interface{}
	if err := json.Unmarshal([]byte(asked.JSON), &said); err != nil {
		t.Fatal(err)
	}
	if said["start"] != "9223372036854775807" || said["increment"] != "3" || said["strict"] != true ||
		said["description"] != "a \"b\"" || len(said) != 5 {
		t.Fatalf("%v", said)
	}
	peer.Reply(asked, &wiretest.Body{JSON: `{"name":"orders","next":"7","last":9,"description":null,"rate":"0.5","hold_ms":"",` +
		`"state":"ready","new":1}`})
	gives(t, call, 7)
	if i := <-info; i.Name != "orders" || i.Last != 9 || i.State != "ready" || !strings.Contains(string(i.JSON), `"new":1`) {
		t.Fatalf("%+v", i)
	}
	call = begin(func() (uint64, error) {
		list, err := c.Sequences(within(t), "o", "", 10)
		return uint64(len(list)), err
	})
	peer.Reply(peer.Expect(wire.OpSeqList), &wiretest.Body{JSON: `[{"name":"o"},{"name":"oo"}]`})
	gives(t, call, 2)
	call = begin(func() (uint64, error) {
		i, err := c.Sequence("orders").Alter(within(t), xuid.Retired())
		return i.Next, err
	})
	asked = peer.Expect(wire.OpSeqAlter)
	if asked.JSON != `{"last":"retired"}` {
		t.Errorf("%s", asked.JSON)
	}
	peer.Reply(asked, &wiretest.Body{JSON: `{"next":"x"}`})
	var protocol *xuid.ProtocolError
	if r := soon(t, call); !errors.As(r.err, &protocol) {
		t.Fatalf("%+v", r)
	}
}

// A server closes after a request that is longer than it takes, whatever else waits there.
func TestSettingsThatNoServerTakesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	c, peer := pair(t, faketest.Start(t, 1))
	var usage *xuid.UsageError
	long := xuid.Description(strings.Repeat("x", 4_096))
	if _, err := c.Sequence("orders").Create(within(t), long); !errors.As(err, &usage) {
		t.Fatal(err)
	}
	if _, err := c.Sequence("orders").Alter(within(t), long); !errors.As(err, &usage) {
		t.Fatal(err)
	}
	call := begin(func() (uint64, error) {
		i, err := c.Sequence("orders").Create(within(t), xuid.Description(strings.Repeat("x", 4_071)))
		return i.Next, err
	})
	peer.Reply(peer.Expect(wire.OpSeqCreate), &wiretest.Body{JSON: `{"next":"7"}`})
	gives(t, call, 7)
}

func TestDialEnvReadsServerAndToken(t *testing.T) {
	fake := faketest.Start(t, 1)
	t.Setenv("XUID_SERVER", fake.Addr)
	t.Setenv("XUID_TOKEN", "s3cret")
	said := make(chan faketest.Asked, 1)
	go func() {
		peer := fake.Accept()
		hello, _ := peer.ReadHello()
		peer.Reply(hello, &fake.Hello)
		said <- hello
	}()
	c, err := xuid.DialEnv(within(t))
	if err != nil {
		t.Fatal(err)
	}
	go c.Close()
	if hello := <-said; hello.Token != "s3cret" || !strings.HasPrefix(hello.Client, "xuid-go/") {
		t.Fatalf("%+v", hello)
	}
}
