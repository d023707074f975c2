package main

import (
	"bufio"
	"bytes"
	wire "encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// keeper stands between the commands of one test and PostgreSQL and keeps the sessions
// that ended in order, after DISCARD ALL, for the commands that follow: to begin a session
// takes the server longer than most commands do. A command is told its session's own
// process and parameters, so that to belfry nothing stands between. What is read when a
// session begins, as the defaults of a role are, is as old as the session.
type keeper struct {
	to       *pgconn.Config
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	idle   map[string][]*session // by what their clients asked for when they connected
	open   map[net.Conn]struct{} // nil once the test has ended
	begun  int                   // sessions
	served int                   // clients
}

// session is one of the server's.
type session struct {
	conn    net.Conn
	r       *bufio.Reader
	welcome bytes.Buffer // what the server said from the successful login on
	waiting atomic.Int32 // requests that the server has not said it is ready after
	resets  atomic.Bool  // its client is gone
}

// kept returns a URL at which commands find a test's database, through a keeper.
func kept(t testing.TB, dsn string) string {
	t.Helper()
	through, _ := keep(t, dsn)
	return through
}

// newKept is dbtest.New for commands, through a keeper.
func newKept(t testing.TB) *dbtest.DB {
	t.Helper()
	db := dbtest.New(t)
	db.DSN = kept(t, db.DSN)
	return db
}

func keep(t testing.TB, dsn string) (string, *keeper) {
	t.Helper()
	c, err := pgconn.ParseConfig(dsn)
	require.NoError(t, err)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	if c.TLSConfig != nil || u.Scheme == "" {
		return dsn, nil // what is encrypted, or not a URL, has nobody in between
	}
	dir, err := os.MkdirTemp("", "k") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	k := &keeper{to: c, idle: make(map[string][]*session), open: make(map[net.Conn]struct{})}
	k.listener, err = net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	require.NoError(t, err)
	k.serving.Go(k.accept)
	t.Cleanup(k.close)
	u.Host = ""
	q := u.Query()
	q.Set("host", dir)
	q.Set("port", "5432")
	u.RawQuery = q.Encode()
	return u.String(), k
}

func (k *keeper) accept() {
	for {
		client, err := k.listener.Accept()
		if err != nil {
			return
		}
		if k.note(client) {
			k.serving.Go(func() {
				defer k.drop(client)
				k.serve(client)
			})
		}
	}
}

// note remembers a connection for the end; not after it, when it is closed.
func (k *keeper) note(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open == nil {
		_ = c.Close()
		return false
	}
	k.open[c] = struct{}{}
	return true
}

func (k *keeper) drop(c net.Conn) {
	_ = c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, c)
}

func (k *keeper) close() {
	_ = k.listener.Close()
	k.mu.Lock()
	for c := range k.open {
		_ = c.Close()
	}
	k.open = nil
	k.mu.Unlock()
	k.serving.Wait()
}

// Codes that stand where a client's first message has the protocol's version.
const (
	protocol3     = 3 << 16
	cancelRequest = 80877102
)

// serve has one client speak to a session of the server.
func (k *keeper) serve(client net.Conn) {
	r := bufio.NewReader(client)
	size, err := r.Peek(8)
	if err != nil {
		return
	}
	first := make([]byte, min(wire.BigEndian.Uint32(size), 10_000))
	if _, err := io.ReadFull(r, first); err != nil {
		return
	}
	var s *session
	switch wire.BigEndian.Uint32(first[4:]) {
	case cancelRequest:
		k.pass(first)
	case protocol3:
		s = k.session(first, r, client)
	}
	if s == nil {
		return
	}
	answered := make(chan bool, 1)
	k.serving.Go(func() { answered <- s.answer(client) })
	if s.ask(r) && s.waiting.Load() == 0 {
		s.reset()
	} else {
		_ = s.conn.Close()
	}
	if !<-answered {
		k.drop(s.conn)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.idle[asked(first)] = append(k.idle[asked(first)], s)
}

// asked is a client's first message with its parameters in order: pgx has them in none.
func asked(first []byte) string {
	parts := strings.Split(strings.TrimRight(string(first[8:]), "\x00"), "\x00")
	var pairs []string
	for pair := range slices.Chunk(parts, 2) {
		pairs = append(pairs, strings.Join(pair, "="))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\x00")
}

// dial connects to the server; nil: it cannot, or the test is over.
func (k *keeper) dial() net.Conn {
	network, address := pgconn.NetworkAddress(k.to.Host, k.to.Port)
	c, err := net.Dial(network, address)
	if err != nil || !k.note(c) {
		return nil
	}
	return c
}

// pass hands a request to cancel on.
func (k *keeper) pass(request []byte) {
	if c := k.dial(); c != nil {
		defer k.drop(c)
		if _, err := c.Write(request); err == nil {
			_, _ = c.Read(make([]byte, 1)) // the server closes when it is done
		}
	}
}

// session returns one that was kept, or a new one once the client has logged in.
func (k *keeper) session(first []byte, r *bufio.Reader, client net.Conn) *session {
	k.mu.Lock()
	k.served++
	if list := k.idle[asked(first)]; len(list) > 0 {
		s := list[len(list)-1]
		k.idle[asked(first)] = list[:len(list)-1]
		k.mu.Unlock()
		_, _ = client.Write(s.welcome.Bytes()) // if the client has gone, ask finds out
		return s
	}
	k.begun++
	k.mu.Unlock()
	c := k.dial()
	if c == nil {
		return nil
	}
	s := &session{conn: c, r: bufio.NewReader(c)}
	if _, err := c.Write(first); err == nil && s.login(r, client) == nil {
		return s
	}
	k.drop(c)
	return nil
}

// login goes on until the server is ready.
func (s *session) login(r *bufio.Reader, client net.Conn) error {
	for in := false; ; {
		m, err := message(s.r)
		if err != nil {
			return err
		}
		if _, err := client.Write(m); err != nil {
			return err
		}
		switch m[0] {
		case 'E':
			return errors.New("refused")
		case 'R':
			switch wire.BigEndian.Uint32(m[5:]) {
			case 0:
				in = true
			case 12: // the end of SASL, which nobody answers
			default:
				m, err := message(r)
				if err != nil {
					return err
				}
				if _, err := s.conn.Write(m); err != nil {
					return err
				}
			}
		}
		if in {
			s.welcome.Write(m)
		}
		if m[0] == 'Z' {
			return nil
		}
	}
}

// message reads one.
func message(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(5)
	if err != nil {
		return nil, err
	}
	m := make([]byte, 1+wire.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(r, m)
	return m, err
}

// ask passes on what the client says, and reports whether it said that this is the end.
func (s *session) ask(r *bufio.Reader) bool {
	for {
		m, err := message(r)
		if err != nil || m[0] == 'X' {
			return err == nil
		}
		switch m[0] {
		case 'Q', 'S', 'F':
			s.waiting.Add(1)
		}
		if _, err := s.conn.Write(m); err != nil {
			return false
		}
	}
}

// reset makes the session as it was in the beginning; within a transaction it is refused.
func (s *session) reset() {
	const all = "DISCARD ALL\x00"
	s.waiting.Add(1)
	s.resets.Store(true)
	m := wire.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(all)))
	_, _ = s.conn.Write(append(m, all...)) // answer sees when that failed
}

// answer passes on what the server says, and reports whether the session can be used again.
func (s *session) answer(client net.Conn) bool {
	for {
		m, err := message(s.r)
		if err != nil {
			_ = client.Close()
			return false
		}
		ready := m[0] == 'Z'
		if ready {
			s.waiting.Add(-1)
		}
		switch {
		case !s.resets.Load():
			_, _ = client.Write(m) // if the client has gone, ask finds out
		case m[0] == 'E':
			return false
		case ready:
			s.resets.Store(false)
			return true
		}
	}
}

// What a command leaves in its session, or does not end, is not the next one's.
func TestKeeper_GivesEachClientAFreshSession(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	dsn, k := keep(t, db.DSN)
	if k == nil {
		t.Skip("the server of the tests wants its connections encrypted")
	}
	client := func(do func(*pgx.Conn)) {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(t.Context())) }()
		var pid uint32
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
		require.Equal(t, conn.PgConn().PID(), pid)
		var zone, locks string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('timezone'), count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&zone, &locks))
		require.NotEqual(t, "Asia/Kolkata", zone)
		require.Equal(t, "0", locks)
		do(conn)
	}
	run := func(sql ...string) func(*pgx.Conn) {
		return func(conn *pgx.Conn) {
			for _, s := range sql {
				_, err := conn.Exec(t.Context(), s)
				require.NoError(t, err)
			}
		}
	}
	client(run("SET timezone = 'Asia/Kolkata'", "SELECT pg_advisory_lock(1)", "PREPARE p AS SELECT 1"))
	require.Eventually(t, k.rests, patience, time.Millisecond)
	client(run("PREPARE p AS SELECT 1"))
	require.Eventually(t, k.rests, patience, time.Millisecond)
	require.Equal(t, []int{1, 2}, []int{k.begun, k.served})
	client(run("BEGIN", "SELECT pg_advisory_xact_lock(1)"))
	require.NoError(t, until(t.Context(), db.Pool, "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"))
	client(func(*pgx.Conn) {})
	require.Equal(t, []int{2, 4}, []int{k.begun, k.served}, "what was left in a transaction has ended")
}

// rests reports whether nobody uses a session.
func (k *keeper) rests() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, list := range k.idle {
		return len(list) > 0
	}
	return false
}
