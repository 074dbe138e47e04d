package tests

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
)

// process is a real server.
type process struct {
	t      testing.TB
	addr   string
	folder string
	cmd    *exec.Cmd
}

// startReal starts the server that XUID_BIN names, at any free port. Two of one folder are of one cluster.
func startReal(t testing.TB, folder string) *process {
	if os.Getenv("XUID_BIN") == "" {
		t.Skip("XUID_BIN names no server: not tried")
	}
	p := &process{t: t, addr: "127.0.0.1:0", folder: folder}
	p.start()
	t.Cleanup(func() { p.end(os.Kill) })
	return p
}

func (p *process) start() {
	p.cmd = exec.Command(os.Getenv("XUID_BIN"), "serve", "--listen", p.addr, "--admin", "off", "--data-dir", p.folder,
		"--sequences", "registry")
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
	for i, word := range words {
		if word == "on" && i+1 < len(words) {
			p.addr = strings.TrimSuffix(words[i+1], ".")
			return
		}
	}
	p.t.Fatalf("the server says %q, %v", line, err)
}

func (p *process) end(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	_ = p.cmd.Wait()
}

// ledger is all ids that came.
type ledger struct {
	mu   sync.Mutex
	seen map[uint64]struct{}
}

func (l *ledger) add(t *testing.T, ids ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if _, twice := l.seen[id]; twice {
			t.Errorf("%d twice", id)
		}
		l.seen[id] = struct{}{}
	}
}

// crowd calls f in so many goroutines until it says that it is enough.
func crowd(width int, f func() bool) {
	var open sync.WaitGroup
	for i := 0; i < width; i++ {
		open.Add(1)
		go func() {
			defer open.Done()
			for f() {
			}
		}()
	}
	open.Wait()
}

func dialReal(t testing.TB, servers string, opts ...xuid.Option) *xuid.Client {
	c, err := xuid.Dial(within(t), servers, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestIDsOfARealServerComeOnceByEveryWayToAskInEachOrder(t *testing.T) {
	c := dialReal(t, startReal(t, t.TempDir()).addr)
	all := &ledger{seen: map[uint64]struct{}{}}
	ctx := context.Background()
	for _, order := range []xuid.Order{xuid.Any, xuid.Fresh, xuid.Ordered} {
		last := uint64(0)
		for i := 0; i < 20; i++ {
			ids, err := c.Array(ctx, 1000, order, xuid.Wait(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if order == xuid.Ordered && id <= last {
					t.Fatalf("%d after %d", id, last)
				}
				last = id
			}
			all.add(t, ids...)
			runs, err := c.Runs(ctx, 1000, order, xuid.Wait(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range runs {
				all.add(t, run.AppendTo(nil)...)
				last = run.Last()
			}
		}
		left := int64(20_000)
		crowd(100, func() bool {
			if atomic.AddInt64(&left, -1) < 0 {
				return false
			}
			id, err := c.Next(ctx, order)
			if err != nil {
				t.Error(err)
				return false
			}
			all.add(t, id)
			return true
		})
	}
	p := c.Prefetch()
	h := p.Handle()
	for i := 0; i < 100_000; i++ {
		id, err := h.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all.add(t, id)
	}
	for id := range all.seen {
		called, err := c.Decode(ctx, id)
		if err != nil || called != c.Layout().Decode(id) {
			t.Fatalf("%+v, %v", called, err)
		}
		break
	}
	if c.Ping(ctx) != nil || len(all.seen) != 3*(20*2000+20_000)+100_000 {
		t.Fatalf("%d ids", len(all.seen))
	}
}

func TestASequenceOfARealServerBeginsCountsAndEnds(t *testing.T) {
	c := dialReal(t, startReal(t, t.TempDir()).addr)
	ctx := within(t)
	s := c.Sequence("orders")
	var refused *xuid.RefusedError
	if _, err := s.Next(ctx); !errors.As(err, &refused) || refused.Status != xuid.StatusNoSequence {
		t.Fatalf("%v", err)
	}
	for i := 0; i < 2; i++ {
		if info, err := s.Create(ctx, xuid.Start(10), xuid.Step(50)); err != nil || info.Step != 50 || info.Name != "orders" {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if _, err := s.Create(ctx, xuid.Start(11)); !errors.As(err, &refused) || refused.Status != xuid.StatusExists {
		t.Fatalf("%v", err)
	}
	if n, err := s.Next(ctx); err != nil || n != 10 {
		t.Fatalf("%d, %v", n, err)
	}
	run, err := s.Take(ctx, 20)
	if err != nil || run != (xuid.Run{First: 11, Count: 20, Stride: 1}) {
		t.Fatalf("%+v, %v", run, err)
	}
	if ids, err := s.Array(ctx, 3); err != nil || ids[0] != 31 || ids[2] != 33 {
		t.Fatalf("%v, %v", ids, err)
	}
	if list, err := c.Sequences(ctx, "ord", "", 10); err != nil || len(list) != 1 || list[0].Issued != 24 {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := c.Sequence("odd").Create(ctx, xuid.Increment(2), xuid.Remainder(1)); err != nil {
		t.Fatal(err)
	}
	if run, err := c.Sequence("odd").Take(ctx, 5); err != nil || run.AppendTo(nil)[4] != 9 {
		t.Fatalf("%+v, %v", run, err)
	}
	if info, err := s.Alter(ctx, xuid.Retired()); err != nil || info.Last >= 1<<62 {
		t.Fatalf("%+v, %v", info, err)
	}
	for err = nil; err == nil; {
		_, err = s.Next(ctx)
	}
	if !errors.As(err, &refused) || refused.Status != xuid.StatusExhausted || xuid.Retryable(err) {
		t.Fatalf("%v", err)
	}
}

func TestCallsGoOnOverServersThatAreKilledAndStoppedAndNothingComesTwice(t *testing.T) {
	folder := t.TempDir()
	one, two := startReal(t, folder), startReal(t, folder)
	c := dialReal(t, one.addr+","+two.addr, xuid.WithRetryFor(faketest.Patience), xuid.WithReturnAfter(200*time.Millisecond))
	p := c.Prefetch(xuid.PrefetchWait(faketest.Patience))
	all := &ledger{seen: map[uint64]struct{}{}}
	over := make(chan struct{})
	more := func(id uint64, err error) bool {
		if err != nil {
			t.Error(err)
			return false
		}
		all.add(t, id)
		select {
		case <-over:
			return false
		case <-time.After(time.Millisecond):
			return true
		}
	}
	var open sync.WaitGroup
	open.Add(2)
	go func() {
		defer open.Done()
		crowd(20, func() bool { return more(c.Next(context.Background())) })
	}()
	go func() {
		defer open.Done()
		h := p.Handle()
		crowd(1, func() bool { return more(h.Next(context.Background())) })
	}()
	for round, signal := range []os.Signal{os.Kill, syscall.SIGTERM, os.Kill, syscall.SIGTERM} {
		leaves, stays := one, two
		if round%2 == 1 {
			leaves, stays = two, one
		}
		leaves.end(signal)
		until(t, func() bool { return c.Server().Server == stays.addr })
		leaves.start()
		all.mu.Lock()
		before := len(all.seen)
		all.mu.Unlock()
		until(t, func() bool {
			all.mu.Lock()
			defer all.mu.Unlock()
			return len(all.seen) > before+1000
		})
	}
	close(over)
	open.Wait()
}

// until waits for a condition.
func until(t *testing.T, is func() bool) {
	t.Helper()
	for ctx := within(t); !is(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("this should have happened by now")
		}
	}
}
