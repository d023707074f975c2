package dbtest

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy forwards a client's requests to a server and loses requests or replies on request.
//
//	client ── request ──► Fault ──┬─ Pass ──────► server ──► client
//	                              ├─ Cut ───────► both connections are closed: the server gets nothing
//	                              └─ DropReply ─► the server executes it, and the client gets no reply
type Proxy struct {
	Addr string // "127.0.0.1:12345"

	listener net.Listener
	pumps    sync.WaitGroup

	mu     sync.Mutex
	server string
	fault  func(request []byte) Fault
	open   map[net.Conn]struct{}
	down   bool
}

// Fault is the fate of a request.
type Fault int

// The faults.
const (
	Pass      Fault = iota
	Cut             // the server does not get the request
	DropReply       // the server executes the request, and its reply is dropped
)

// StartProxy starts a proxy for the server at addr. It ends with the test.
func StartProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed with the test
	require.NoError(t, err)
	p := &Proxy{Addr: listener.Addr().String(), server: addr, listener: listener, open: make(map[net.Conn]struct{})}
	p.pumps.Go(p.accept)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		p.Down(true)
		p.pumps.Wait()
	})
	return p
}

// Lose sets the function that decides about each piece of a client, from several goroutines. Nil means
// that all pieces pass. A piece is the data of one write, usually one request.
func (p *Proxy) Lose(fault func(request []byte) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// To forwards new connections to another server, and closes the current ones.
func (p *Proxy) To(addr string) {
	p.Down(true)
	p.mu.Lock()
	p.server, p.down = addr, false
	p.mu.Unlock()
}

// Down closes all connections, and new connections at once until it is up again.
func (p *Proxy) Down(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = yes
	if yes {
		for c := range p.open {
			_ = c.Close() // the proxy is down
		}
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.server
		p.mu.Unlock()
		server, err := net.Dial("tcp", to) //nolint:noctx // loopback: at once, or refused
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		var drop sync.Once
		dropped := make(chan struct{})
		p.pumps.Go(func() {
			defer p.forget(client, server)
			p.requests(client, server, func() { drop.Do(func() { close(dropped) }) })
		})
		p.pumps.Go(func() {
			defer p.forget(client, server)
			replies(server, client, dropped)
		})
	}
}

// keep stores both ends, unless the proxy is down.
func (p *Proxy) keep(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range ends {
		if !p.down {
			p.open[c] = struct{}{}
		}
	}
	return !p.down
}

func (p *Proxy) forget(ends ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range ends {
		_ = c.Close()
		delete(p.open, c)
	}
}

func (p *Proxy) requests(client, server net.Conn, drop func()) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		fault := p.fault
		p.mu.Unlock()
		is := Pass
		if fault != nil {
			is = fault(buffer[:n])
		}
		switch is {
		case Cut:
			return
		case DropReply:
			drop()
		case Pass:
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// replies forwards the replies of the server. It drops the reply to a DropReply request.
func replies(server, client net.Conn, dropped <-chan struct{}) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		select {
		case <-dropped:
			return
		default:
		}
		if err != nil {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
