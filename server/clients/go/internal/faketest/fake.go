// Package faketest is a server in the hands of a test: it accepts, greets, reads and answers when the test says so.
package faketest

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/x-uid/xuid-go/internal/wire"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

// Patience of a test: one that waits longer has failed.
const Patience = 20 * time.Second

// Server is a listener on any free port.
type Server struct {
	t        testing.TB
	listener net.Listener
	// Addr is its address.
	Addr string
	// Hello is what it answers to HELLO.
	Hello wiretest.Body
}

// Start listens, as a server of the cluster whose bytes are all that one.
func Start(t testing.TB, cluster byte) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return StartOn(t, listener, cluster)
}

// StartOn is Start with a listener of the test's own.
func StartOn(t testing.TB, listener net.Listener, cluster byte) *Server {
	t.Cleanup(func() { listener.Close() })
	return &Server{t: t, listener: listener, Addr: listener.Addr().String(), Hello: wiretest.Body{
		Version: 1, Cluster: Cluster(cluster), EpochMS: 1_524_153_600_000, TickUS: 1000, TimeBits: 41, WorkerBits: 10,
		SequenceBits: 12, MaxBody: 4096, MaxCount: 131_072, MaxInFlight: 1024, IdleMS: 300_000, Server: "fake",
	}}
}

// Cluster is the text of the cluster whose bytes are all that one.
func Cluster(b byte) string {
	const digits = "0123456789abcdef"
	return strings.Repeat(string([]byte{digits[b>>4], digits[b&15]}), 16)
}

// Close stops listening: later connections are refused.
func (s *Server) Close() { s.listener.Close() }

// Accept is the next connection, not greeted yet; nil when the server was closed.
func (s *Server) Accept() *Peer {
	conn, err := s.listener.Accept()
	if err != nil {
		return nil
	}
	s.t.Cleanup(func() { conn.Close() })
	return &Peer{t: s.t, conn: conn}
}

// Greet is the next connection, greeted; nil when the server was closed, or the client left before.
func (s *Server) Greet() *Peer {
	p := s.Accept()
	if p == nil {
		return nil
	}
	hello, ok := p.ReadHello()
	if !ok {
		return nil
	}
	p.Reply(hello, &s.Hello)
	return p
}

// Asked is a request.
type Asked struct {
	Op uint8
	ID uint64
	wiretest.Body
}

// Peer is the server's end of a connection.
type Peer struct {
	t       testing.TB
	conn    net.Conn
	inbox   []byte
	greeted bool
}

// ReadHello reads preface and HELLO; false when the client closed before.
func (p *Peer) ReadHello() (Asked, bool) {
	for len(p.inbox) < len(wire.Preface) {
		if !p.fill() {
			return Asked{}, false
		}
	}
	if !bytes.HasPrefix(p.inbox, []byte(wire.Preface)) {
		p.t.Errorf("%x instead of the preface", p.inbox)
		return Asked{}, false
	}
	p.inbox = p.inbox[len(wire.Preface):]
	return p.Ask()
}

// Ask is the next request; false when the client closed.
func (p *Peer) Ask() (Asked, bool) {
	for {
		header, body, consumed, refused := wiretest.ParseRequest(p.inbox, p.greeted)
		if refused != nil {
			p.t.Errorf("a request that no server takes: %+v %+v", header, refused)
			return Asked{}, false
		}
		if consumed > 0 {
			p.inbox = p.inbox[consumed:]
			p.greeted = true
			return Asked{header.Op, header.RequestID, body}, true
		}
		if !p.fill() {
			return Asked{}, false
		}
	}
}

// Expect is the next request, which must be of that op. Where it is not PING, a PING of the link's own, which asks whether
// anything is there, is answered on the way.
func (p *Peer) Expect(op uint8) Asked {
	p.t.Helper()
	asked, ok := p.Ask()
	for ok && op != wire.OpPing && asked.Op == wire.OpPing && asked.Bytes == "" {
		p.Reply(asked, &asked.Body)
		asked, ok = p.Ask()
	}
	if !ok || asked.Op != op {
		p.t.Errorf("%+v instead of op %02x", asked, op)
	}
	return asked
}

// Reply answers a request.
func (p *Peer) Reply(asked Asked, body *wiretest.Body) {
	p.Raw(wiretest.AppendReply(nil, asked.Op|wire.ReplyBit, 0, asked.ID, body))
}

// Refuse answers a request with an error.
func (p *Peer) Refuse(asked Asked, status uint16, retryAfter time.Duration) {
	body := wiretest.Body{RetryAfterMS: uint32(retryAfter.Milliseconds()), Text: "no"}
	p.Raw(wiretest.AppendReply(nil, asked.Op|wire.ReplyBit, status, asked.ID, &body))
}

// ServeNext answers the next request, which must be a NEXT.
func (p *Peer) ServeNext(id uint64) {
	p.t.Helper()
	p.Reply(p.Expect(wire.OpNext), &wiretest.Body{ID: wiretest.Number(id)})
}

// Runs answers a RUNS with consecutive ids from first, in runs of up to a thousand.
func (p *Peer) Runs(asked Asked, first uint64) {
	body := wiretest.Body{Count: asked.Count}
	for at := uint32(0); at < asked.Count; at += 1000 {
		count := asked.Count - at
		if count > 1000 {
			count = 1000
		}
		body.Runs = append(body.Runs, wiretest.RunBody{First: wiretest.Number(first + uint64(at)), Count: count, Stride: 1})
	}
	p.Reply(asked, &body)
}

// ServeRest answers everything as a good server does, until the client closes: ids ascend from first.
func (p *Peer) ServeRest(first uint64) (issued uint64) {
	next := first
	for {
		asked, ok := p.Ask()
		if !ok {
			return next - first
		}
		switch asked.Op {
		case wire.OpNext:
			p.Reply(asked, &wiretest.Body{ID: wiretest.Number(next)})
			next++
		case wire.OpRuns, wire.OpSeqRuns:
			p.Runs(asked, next)
			next += uint64(asked.Count)
		case wire.OpPing:
			p.Reply(asked, &asked.Body)
		default:
			p.Reply(asked, &wiretest.Body{})
		}
	}
}

// GoAway sends the client away.
func (p *Peer) GoAway() {
	p.Raw(wiretest.AppendReply(nil, wire.OpGoAway, 0, 0, &wiretest.Body{}))
}

// Raw sends bytes. A client that closed meanwhile is none of the test's business.
func (p *Peer) Raw(b []byte) {
	p.conn.SetWriteDeadline(time.Now().Add(Patience))
	_, _ = p.conn.Write(b)
}

// Close closes.
func (p *Peer) Close() { p.conn.Close() }

// ExpectEnd waits until the client closed, without another request.
func (p *Peer) ExpectEnd() {
	p.t.Helper()
	if asked, ok := p.Ask(); ok {
		p.t.Errorf("%+v instead of the end", asked)
	}
}

// fill reads something; false at the end, orderly or not.
func (p *Peer) fill() bool {
	p.conn.SetReadDeadline(time.Now().Add(Patience))
	piece := make([]byte, 64*1024)
	n, err := p.conn.Read(piece)
	p.inbox = append(p.inbox, piece[:n]...)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		p.t.Errorf("nothing came within %v", Patience)
	}
	return n > 0
}
