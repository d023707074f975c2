package api

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
)

// maxConnections is the maximum number of a server's connections. A lower limit of descriptors lowers it.
const maxConnections = 4096

// connections limits the connections of a server, in all and by address, so that idle connections do not use up the
// descriptors of the process. A new connection over a limit replaces the one that is idle for the longest time; if
// all are active, the new one is closed. Connections of the trusted proxy have no limit by address.
type connections struct {
	most, own int // of all addresses, and of one
	proxies   []netip.Prefix

	mu   sync.Mutex
	all  map[net.Conn]*connection
	by   map[string]int // connections by address
	idle *list.List     // of *connection: without a request in progress, the longest idle first
}

// connection is an open connection.
type connection struct {
	conn    net.Conn
	address string // "" for the proxy's
	idle    *list.Element
}

// newConnections allows at most maxConnections, but no more than a quarter of the descriptors, and in addition the
// expected ones, but no more than half of the descriptors: so the API and the notification centre leave a quarter to the
// rest of their process. It allows a quarter of them for one address.
func newConnections(e Endpoint) *connections {
	l := &connections{most: maxConnections + e.Streams, all: make(map[net.Conn]*connection), by: make(map[string]int), idle: list.New(),
		proxies: e.networks()}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		l.most = share(uint64(files.Cur), l.most, e.Streams > 0) //nolint:unconvert // signed on other systems
	}
	l.own = l.most / 4
	return l
}

// share returns how many connections a listener has of a number of descriptors.
func share(files uint64, most int, streams bool) int {
	part := uint64(4)
	if streams {
		part = 2
	}
	return max(8, int(min(files/part, uint64(most)))) //nolint:gosec // positive
}

// counted is a connection that counts until it is closed, also as a WebSocket, which the server does not know any more.
type counted struct {
	*net.TCPConn

	limit *connections
}

// countedListener is the listener of a server with limited connections.
type countedListener struct {
	*net.TCPListener

	limit *connections
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return &counted{conn, l.limit}, nil
}

func (c *counted) Close() error {
	c.limit.mu.Lock()
	if one := c.limit.all[c]; one != nil {
		c.limit.forget(one)
	}
	c.limit.mu.Unlock()
	return c.TCPConn.Close()
}

// plain returns the connection below TLS.
func plain(conn net.Conn) net.Conn {
	if secure, is := conn.(*tls.Conn); is {
		return secure.NetConn()
	}
	return conn
}

// changed is the ConnState of a server.
func (l *connections) changed(conn net.Conn, state http.ConnState) {
	conn = plain(conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.all[conn]
	if c == nil && state == http.StateNew {
		c = l.add(conn)
	}
	if c == nil {
		return
	}
	l.busy(c)
	if state == http.StateNew || state == http.StateIdle {
		c.idle = l.idle.PushBack(c)
	}
}

// busy removes a connection from the idle ones.
func (l *connections) busy(c *connection) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// add adds a new connection. It returns nil if it closed the connection.
func (l *connections) add(conn net.Conn) *connection {
	c := &connection{conn: conn, address: l.addressOf(conn)}
	full := c.address != "" && l.by[c.address] >= l.own
	if full || len(l.all) >= l.most {
		idle := l.longestIdle(c.address, full)
		if idle == nil {
			end(conn)
			return nil
		}
		l.forget(idle)
		end(idle.conn)
	}
	l.all[conn] = c
	l.by[c.address]++
	return c
}

// longestIdle returns the connection that is idle for the longest time, or nil. With own it is one of the address.
func (l *connections) longestIdle(address string, own bool) *connection {
	for e := l.idle.Front(); e != nil; e = e.Next() {
		if c, _ := e.Value.(*connection); !own || c.address == address {
			return c
		}
	}
	return nil
}

func (l *connections) forget(c *connection) {
	l.busy(c)
	delete(l.all, c.conn)
	if l.by[c.address]--; l.by[c.address] == 0 {
		delete(l.by, c.address)
	}
}

// addressOf returns the key of the peer's address, or "" for the proxy.
func (l *connections) addressOf(conn net.Conn) string {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	address := at.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(l.proxies, func(n netip.Prefix) bool { return n.Contains(address) }) {
		return ""
	}
	return keyOfAddress(address)
}

// end closes a connection that is not among all any more, without the close message of TLS, for which Close may wait.
func end(conn net.Conn) {
	if c, is := conn.(*counted); is {
		conn = c.TCPConn
	}
	_ = conn.Close()
}
