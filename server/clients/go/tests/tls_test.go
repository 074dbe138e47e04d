package tests

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/faketest"
)

// A callback of the caller's is a stranger's code: the time to connect holds, and another server is tried.
func TestADialWhoseCallbackStandsEndsInItsTime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	authority := newAuthority(t)
	key, der := authority.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, authority.cert, authority.key)
	certificate := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate}}).Handshake()
		}
	}()
	stands := make(chan struct{})
	defer close(stands)
	config := &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
		<-stands
		return nil
	}}
	done := make(chan error, 1)
	go func() {
		client, err := xuid.Dial(context.Background(), listener.Addr().String(), xuid.WithTLS(config),
			xuid.WithConnectTimeout(200*time.Millisecond))
		if err == nil {
			client.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Fatal("it is connected")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the dial waits for the callback")
	}
}

// authority signs certificates.
type authority struct {
	t      *testing.T
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, folder: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	a.key, der = a.sign(template, template, nil)
	a.cert, _ = x509.ParseCertificate(der)
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, der
}

func (a *authority) write(name, kind string, der []byte) string {
	file := filepath.Join(a.folder, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// issue makes a certificate for a server at 127.0.0.1, and for a client.
func (a *authority) issue(name string) (cert, key string) {
	private, der := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"ids.example"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	bytes, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+"-key.pem", "EC PRIVATE KEY", bytes)
}

// listen is a server that asks clients for a certificate of the authority.
func (a *authority) listen() *faketest.Server {
	pair, err := tls.LoadX509KeyPair(a.issue("server"))
	if err != nil {
		a.t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return faketest.StartOn(a.t, listener, 1)
}

func TestWithinTLSEverythingIsTheSame(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("client")
	config, err := xuid.TLSFiles(filepath.Join(a.folder, "ca.pem"), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c, peer := pair(t, a.listen(), xuid.WithTLS(config), xuid.WithTimeout(100*time.Millisecond))
	call := next(within(t), c)
	peer.ServeNext(1)
	gives(t, call, 1)
	// A look whether the socket is empty ends a read in the middle, and does no harm.
	call = next(within(t), c)
	late := peer.Expect(0x10)
	var timeout *xuid.TimeoutError
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		peer.ServeNext(2)
	}()
	fails(t, call, &timeout)
	call = next(within(t), c)
	<-ended
	gives(t, call, 2)
	peer.Reply(late, &late.Body)
}

func TestWithoutTLSThatFitsNoServerIsUsedAndNothingIsTriedAgain(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	fake := a.listen()
	go func() {
		for {
			peer := fake.Accept()
			if peer == nil {
				return
			}
			go peer.ReadHello()
		}
	}()
	cert, key := a.issue("client")
	for name, files := range map[string][3]string{
		"another CA":     {filepath.Join(stranger.folder, "ca.pem"), cert, key},
		"no certificate": {filepath.Join(a.folder, "ca.pem"), "", ""},
		"another name":   {filepath.Join(a.folder, "ca.pem"), cert, key},
	} {
		config, err := xuid.TLSFiles(files[0], files[1], files[2])
		if err != nil {
			t.Fatal(err)
		}
		if name == "another name" {
			config.ServerName = "other.example"
		}
		_, err = xuid.Dial(within(t), fake.Addr, xuid.WithTLS(config))
		var unreachable *xuid.UnreachableError
		if !errors.As(err, &unreachable) || xuid.Retryable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := faketest.Start(t, 1)
	go func() {
		peer := plain.Accept()
		peer.Raw([]byte("this port speaks XUID/1\n"))
		peer.Close()
	}()
	config, _ := xuid.TLSFiles("", "", "")
	var unreachable *xuid.UnreachableError
	if _, err := xuid.Dial(within(t), plain.Addr, xuid.WithTLS(config)); !errors.As(err, &unreachable) || xuid.Retryable(err) {
		t.Errorf("plain: %v", err)
	}
}
