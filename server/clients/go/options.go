package xuid

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"time"

	"github.com/x-uid/xuid-go/internal/fleet"
	"github.com/x-uid/xuid-go/internal/link"
	"github.com/x-uid/xuid-go/internal/wire"
)

// version of this module, which servers see in the client's name.
const version = "0.1.0"

// Option is a setting of [Dial].
type Option func(*options)

type options struct{ fleet.Options }

func defaults() options {
	return options{fleet.Options{
		Link: link.Options{
			ClientName:     "xuid-go/" + version,
			MaxInFlight:    1024,
			ConnectTimeout: 5 * time.Second,
			Timeout:        10 * time.Second,
		},
		Rounds:       6,
		FirstPause:   20 * time.Millisecond,
		LongestPause: 2 * time.Second,
		ReturnAfter:  3 * time.Minute,
	}}
}

// WithClientName is what this client calls itself in the servers' logs, at most 255 bytes. Defaults to the module's name and
// version.
func WithClientName(name string) Option {
	return func(o *options) { o.Link.ClientName = name }
}

// WithToken is what proves this client's right, at most 255 bytes. Defaults to nothing.
func WithToken(token string) Option {
	return func(o *options) { o.Link.Token = token }
}

// WithCluster is the cluster that the servers must be of. Worth setting wherever it is known: it turns a wrong address into
// an error instead of ids of another namespace. Defaults to the cluster of the first server that answers.
func WithCluster(cluster ClusterID) Option {
	return func(o *options) { o.Link.Cluster = cluster }
}

// WithTLS talks TLS to all servers. Where the configuration has no ServerName, a server is known by the host of its address.
// Defaults to plain TCP. [TLSFiles] makes a configuration of files.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.Link.TLS = config }
}

// WithMaxInFlight is how many requests are in flight at once; further calls wait for their turn. Too few, and the connection
// idles between replies; too many only cost memory. The server's own limit holds too. Defaults to 1,024.
func WithMaxInFlight(requests int) Option {
	return func(o *options) { o.Link.MaxInFlight = requests }
}

// WithConnectTimeout is how long connecting and greeting may take, for each server. Too short, and a busy server is given
// up; too long, and a dead one is waited for. Defaults to 5 s.
func WithConnectTimeout(limit time.Duration) Option {
	return func(o *options) { o.Link.ConnectTimeout = limit }
}

// WithTimeout is how long a reply may take beyond the wait that the request itself allows. A call that gives up ends alone.
// When nothing at all came for so long, though a reply was due, and a PING sent after half of it was not answered either, the
// connection ends. Too short, and a pause of the server ends connections; too long, and a server that is gone without a word
// is waited for. Defaults to 10 s. A context with an earlier deadline ends its own call earlier.
func WithTimeout(limit time.Duration) Option {
	return func(o *options) { o.Link.Timeout = limit }
}

// WithRetryFor is how long a call goes on trying after errors that are worth it, as [Retryable] has it, counted
// from its beginning: one that is given up after a longer [WithTimeout] is not repeated. It never repeats an id. Defaults to
// 0: the caller sees each error.
func WithRetryFor(limit time.Duration) Option {
	return func(o *options) { o.RetryFor = limit }
}

// WithReconnectRounds is how often all servers are tried before a call that needs a connection fails. The next call tries
// again. Only [Dial] tries just once, so that a wrong address is an error at once. Defaults to 6.
func WithReconnectRounds(rounds int) Option {
	return func(o *options) { o.Rounds = rounds }
}

// WithBackoff is the pause after a failure: a random part of first, doubled each time, up to longest. Too short, and a
// thousand clients meet a restarted server at once. Defaults to 20 ms and 2 s.
func WithBackoff(first, longest time.Duration) Option {
	return func(o *options) { o.FirstPause, o.LongestPause = first, longest }
}

// WithReturnAfter is when a client of several servers that had to leave the one it chose first tries that one again: after
// half of this, and a random part of this besides. New requests then go there, and those in flight are finished where they
// are. Too short, and a server that comes and goes is followed; too long, and load stays uneven after a fail-over. Defaults to
// 3 min.
func WithReturnAfter(span time.Duration) Option {
	return func(o *options) { o.ReturnAfter = span }
}

// TLSFiles is a configuration for [WithTLS]: it trusts servers for which the certificates in the file ca vouch, and shows the
// certificate in the file cert, with the private key in the file key, to servers that ask for one. All are PEM. Without ca
// the system's authorities count; without cert and key no certificate is shown.
func TLSFiles(ca, cert, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, usage("the CA cannot be read: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usage("%s has no certificate in PEM", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, usage("certificate %q and key %q cannot be used: %v", cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func check(o *options) error {
	switch {
	case len(o.Link.ClientName) > wire.ShortMax:
		return usage("the client's name has %d bytes, and %d are allowed", len(o.Link.ClientName), wire.ShortMax)
	case len(o.Link.Token) > wire.ShortMax:
		return usage("the token has %d bytes, and %d are allowed", len(o.Link.Token), wire.ShortMax)
	case o.Link.MaxInFlight < 1:
		return usage("WithMaxInFlight is %d, and 1 or more is allowed", o.Link.MaxInFlight)
	case o.Rounds < 1:
		return usage("WithReconnectRounds is %d, and 1 or more is allowed", o.Rounds)
	}
	for _, span := range []struct {
		name  string
		found time.Duration
		least time.Duration
	}{
		{"WithConnectTimeout", o.Link.ConnectTimeout, time.Millisecond},
		{"WithTimeout", o.Link.Timeout, time.Millisecond},
		{"WithReturnAfter", o.ReturnAfter, time.Millisecond},
		{"WithRetryFor", o.RetryFor, 0},
		{"the first pause of WithBackoff", o.FirstPause, 0},
		{"the longest pause of WithBackoff", o.LongestPause, 0},
	} {
		if span.found < span.least {
			return usage("%s is %v, and %v or more is allowed", span.name, span.found, span.least)
		}
	}
	return nil
}
