package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/x-uid/xuid-go/internal/fail"
	"github.com/x-uid/xuid-go/internal/wire"
)

var errHungUp = errors.New("it was closed before HELLO was answered")

const (
	// helloID is the request id of HELLO; those of pending are above.
	helloID = 1
	// greetingMax is the most bytes of HELLO's reply: an error's text, and room to grow.
	greetingMax = 128 * 1024
	// lineShown is how much is shown of what is no frame.
	lineShown = 200
)

// statusWrongCluster is what a server refuses HELLO with that names another cluster.
const statusWrongCluster = 0x0007

// Options of each link of a client.
type Options struct {
	ClientName, Token string
	// Cluster that the servers must be of; zeros: any.
	Cluster [16]byte
	// TLS is nil for plain TCP.
	TLS            *tls.Config
	MaxInFlight    int
	ConnectTimeout time.Duration
	Timeout        time.Duration
}

// About is what a server said about itself.
type About struct {
	// Server is its address, as it was given; Version is its version, for people.
	Server, Version string
	wire.HelloReply
}

// Greeted is a connection that said HELLO and was answered.
type Greeted struct {
	About About
	conn  net.Conn
	// inbox is what was received behind the answer.
	inbox []byte
}

// Close gives the connection up.
func (g *Greeted) Close() { g.conn.Close() }

// Dial connects and says HELLO, within the connect timeout.
func Dial(ctx context.Context, server string, options *Options) (*Greeted, error) {
	inner, cancel := context.WithTimeout(ctx, options.ConnectTimeout)
	defer cancel()
	greeted, err := dial(inner, server, options)
	switch {
	case err == nil:
		return greeted, nil
	case over(ctx) != nil:
		return nil, over(ctx)
	case over(inner) != nil:
		late := fmt.Errorf("no connection and no greeting within %v", options.ConnectTimeout)
		return nil, &fail.Error{Kind: fail.Unreachable, Server: server, Err: late}
	}
	return nil, err
}

// over is the error of a context that is over. One whose deadline has passed is, though its timer be late: the connection
// has a timer of its own.
func over(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

func dial(ctx context.Context, server string, options *Options) (*Greeted, error) {
	var dialer net.Dialer
	// Go sets TCP_NODELAY by itself.
	conn, err := dialer.DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, unreachable(server, err)
	}
	greeted, err := withinContext(ctx, conn, func() (*Greeted, error) {
		outer := conn
		if options.TLS != nil {
			// Its own: who dials may have left by the time at which a callback returns.
			var err error
			if outer, err = shakeHands(ctx, server, conn, options.TLS); err != nil {
				return nil, unreachable(server, err)
			}
		}
		return greet(server, outer, options)
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return greeted, nil
}

// callbackGrace is how long what waits for a connection may take to find out that its context has ended.
const callbackGrace = 100 * time.Millisecond

// withinContext calls f, which waits for the connection, and ends that when the context ends. A callback of the caller's
// tls.Config that does not return is left behind: nobody waits for it.
func withinContext(ctx context.Context, conn net.Conn, f func() (*Greeted, error)) (*Greeted, error) {
	type result struct {
		greeted *Greeted
		err     error
	}
	done := make(chan result, 1)
	go func() {
		greeted, err := f()
		done <- result{greeted, err}
	}()
	end := func(r result) (*Greeted, error) {
		if r.err == nil {
			r.err = ctx.Err()
		}
		return r.greeted, r.err
	}
	select {
	case r := <-done:
		return end(r)
	case <-ctx.Done():
		conn.SetDeadline(time.Unix(1, 0))
	}
	select {
	case r := <-done:
		return end(r)
	case <-time.After(callbackGrace):
		return nil, ctx.Err()
	}
}

func shakeHands(ctx context.Context, server string, conn net.Conn, config *tls.Config) (net.Conn, error) {
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	outer := tls.Client(conn, config)
	return outer, outer.HandshakeContext(ctx)
}

func greet(server string, conn net.Conn, options *Options) (*Greeted, error) {
	lost := func(err error) error {
		if isVerdict(err) {
			// A server that refuses the client's certificate says so behind the handshake.
			return unreachable(server, err)
		}
		return &fail.Error{Kind: fail.Lost, Server: server, Err: orderly(err)}
	}
	hello := wire.Hello{
		MinVersion: wire.Version, MaxVersion: wire.Version,
		Cluster: options.Cluster, Token: options.Token, Client: options.ClientName,
	}
	if _, err := conn.Write(wire.AppendHello([]byte(wire.Preface), helloID, &hello)); err != nil {
		return nil, lost(err)
	}
	inbox, piece := []byte(nil), make([]byte, 4096)
	for {
		about, consumed, err := readGreeting(server, inbox)
		if err != nil {
			return nil, withExpected(err, options.Cluster)
		}
		if consumed > 0 {
			if options.Cluster != [16]byte{} && about.Cluster != options.Cluster {
				return nil, &fail.Error{
					Kind: fail.WrongCluster, Server: server, Found: about.Cluster, Expected: options.Cluster,
				}
			}
			return &Greeted{About: about, conn: conn, inbox: inbox[consumed:]}, nil
		}
		n, err := conn.Read(piece)
		inbox = append(inbox, piece[:n]...)
		if n == 0 && err != nil {
			if text := asLine(inbox); text != "" {
				return nil, breachOf(server, "it answered: %s", text)
			}
			if errors.Is(err, io.EOF) {
				return nil, &fail.Error{Kind: fail.Lost, Server: server, Err: errHungUp}
			}
			return nil, lost(err)
		}
	}
}

// readGreeting reads the answer to HELLO and its length; 0: there is more to come.
func readGreeting(server string, inbox []byte) (about About, consumed int, err error) {
	header, ok := wire.ParseHeader(inbox)
	if !ok {
		return about, 0, nil
	}
	if !header.IsReply() {
		if asLine(inbox) != "" {
			// A text: the rest of its line is still to come, and is shown when the server closes.
			if len(inbox) < lineShown {
				return about, 0, nil
			}
			return about, 0, breachOf(server, "it answered: %s", asLine(inbox))
		}
		return about, 0, breachOf(server, "a frame of op %02x and flags %02x is no reply of version 1", header.Op, header.Flags)
	}
	if header.BodyLen > greetingMax {
		return about, 0, breachOf(server, "a greeting claims a body of %d bytes", header.BodyLen)
	}
	end := wire.HeaderLen + int(header.BodyLen)
	if len(inbox) < end {
		return about, 0, nil
	}
	body := inbox[wire.HeaderLen:end]
	switch {
	case header.Op == wire.OpGoAway:
		// It leaves before this client came.
		return about, 0, &fail.Error{Kind: fail.Lost, Server: server}
	case header.Status != 0:
		refused, breach := refusal(header, body, &About{Server: server})
		if breach != nil {
			return about, 0, breach
		}
		return about, 0, refused
	case header.Op != wire.OpHello|wire.ReplyBit || header.RequestID != helloID:
		return about, 0, breachOf(server, "HELLO was answered with op %02x to request %016x", header.Op, header.RequestID)
	}
	hello, err := wire.ParseHello(body)
	if err != nil {
		return about, 0, breachOf(server, "the reply to HELLO is malformed: %v", err)
	}
	if hello.Version != wire.Version {
		return about, 0, breachOf(server, "version %d was picked, and only version 1 was offered", hello.Version)
	}
	return About{Server: server, Version: hello.Server, HelloReply: hello}, end, nil
}

// withExpected makes the refusal of a cluster the error that a client of its own makes of it. What the server's cluster is
// stands in its text.
func withExpected(err error, expected [16]byte) error {
	failure := fail.Of(err)
	if failure == nil || failure.Kind != fail.Refused || failure.Status != statusWrongCluster {
		return err
	}
	return &fail.Error{Kind: fail.WrongCluster, Server: failure.Server, Expected: expected, Text: failure.Text, Err: failure}
}

func unreachable(server string, err error) error {
	return &fail.Error{Kind: fail.Unreachable, Server: server, Err: err, Permanent: isVerdict(err)}
}

// isVerdict says whether TLS failed in a way that trying again does not change.
func isVerdict(err error) bool {
	var noTLS tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	if errors.As(err, &noTLS) || errors.As(err, &authority) || errors.As(err, &invalid) || errors.As(err, &name) {
		return true
	}
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

// asLine is the first line of what a server sent that speaks something else, or "" if that is no text.
func asLine(inbox []byte) string {
	if len(inbox) > 2 && inbox[0] == 0x15 && inbox[1] == 3 {
		return "(an alert of TLS: it speaks TLS, and this client does not yet)"
	}
	text := string(inbox)
	if len(text) > lineShown {
		text = text[:lineShown]
	}
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		text = text[:i]
	}
	for _, r := range text {
		if r < ' ' || r > '~' {
			return ""
		}
	}
	return text
}
