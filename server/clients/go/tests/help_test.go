package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
)

// result of a call.
type result struct {
	id  uint64
	err error
}

// within fails a test instead of letting it hang.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), faketest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// quick are options that do not pause for long.
func quick(opts ...xuid.Option) []xuid.Option {
	return append([]xuid.Option{xuid.WithBackoff(time.Millisecond, 20*time.Millisecond)}, opts...)
}

// pair is a client of the server, and the other end.
func pair(t *testing.T, fake *faketest.Server, opts ...xuid.Option) (*xuid.Client, *faketest.Peer) {
	t.Helper()
	greeted := make(chan *faketest.Peer, 1)
	go func() { greeted <- fake.Greet() }()
	c, err := xuid.Dial(within(t), fake.Addr, quick(opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { go c.Close() })
	return c, <-greeted
}

// begin begins a call.
func begin(f func() (uint64, error)) <-chan result {
	ended := make(chan result, 1)
	go func() {
		id, err := f()
		ended <- result{id, err}
	}()
	return ended
}

// next begins a NEXT.
func next(ctx context.Context, c *xuid.Client) <-chan result {
	return begin(func() (uint64, error) { return c.Next(ctx) })
}

// soon is the result of a call that ends now.
func soon(t *testing.T, ended <-chan result) result {
	t.Helper()
	select {
	case r := <-ended:
		return r
	case <-time.After(faketest.Patience):
		t.Fatal("this should have happened by now")
		return result{}
	}
}

// gives fails unless the call gives that id.
func gives(t *testing.T, ended <-chan result, id uint64) {
	t.Helper()
	if r := soon(t, ended); r.err != nil || r.id != id {
		t.Fatalf("%d, %v instead of %d", r.id, r.err, id)
	}
}

// fails fails unless the call fails with an error of the type that target points to.
func fails(t *testing.T, ended <-chan result, target interface{}) error {
	t.Helper()
	r := soon(t, ended)
	if r.err == nil || !errors.As(r.err, target) {
		t.Fatalf("%d, %v instead of a %T", r.id, r.err, target)
	}
	if r.id != 0 {
		t.Fatalf("id %d beside %v", r.id, r.err)
	}
	return r.err
}
