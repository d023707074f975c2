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

// newConnections allows as many connections as half of the descriptors, at most maxConnections, and a quarter of
// them for one address.
func newConnections(e Endpoint) *connections {
	l := &connections{most: maxConnections + e.Streams, all: make(map[net.Conn]*connection), by: make(map[string]int), idle: list.New(),
		proxies: e.networks()}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		l.most = max(8, int(min(uint64(files.Cur)/2, uint64(l.most)))) //nolint:gosec,unconvert // positive; signed on other systems
	}
	l.own = l.most / 4
	return l
}

// changed is the ConnState of a server.
func (l *connections) changed(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.all[conn]
	if c == nil && state == http.StateNew {
		c = l.add(conn)
	}
	if c == nil {
		return
	}
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.idle = l.idle.PushBack(c)
	case http.StateClosed, http.StateHijacked:
		l.remove(c)
	case http.StateActive:
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
		l.idle.Remove(idle.idle)
		l.remove(idle)
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

func (l *connections) remove(c *connection) {
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

// end closes a connection without the close message of TLS, for which Close may wait.
func end(conn net.Conn) {
	if secure, is := conn.(*tls.Conn); is {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}
