package redishints

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/redisdb"
)

// patience is how long a test waits for a hint.
const patience = time.Minute

func TestMain(m *testing.M) { dbtest.Main(m) }

// open returns a stream that blocks for a time, and its log.
func open(t *testing.T, url string, block time.Duration) (*Stream, *dbtest.Buffer) {
	t.Helper()
	log := new(dbtest.Buffer)
	c := redisdb.DefaultConfig()
	c.URL, c.KeyPrefix = url, "test"
	s, err := New(c, "delivery.redis", zerolog.New(log))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	s.block = block
	return s, log
}

// run runs a stream until stop, and returns the hints that it receives.
func run(t *testing.T, s *Stream) (received <-chan hint, stop func()) {
	t.Helper()
	hints := make(chan hint, 10_000)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, func(kind string, channel int64) { hints <- hint{kind, channel} })
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("Run has not ended")
		}
	})
	t.Cleanup(stop)
	return hints, stop
}

// blocked waits until n streams wait for an entry.
func blocked(t *testing.T, server *dbtest.Redis, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		const script = "return tonumber(string.match(redis.call('info', 'clients'), 'blocked_clients:(%d+)'))"
		return server.Do(t, "EVAL", script, "0") == fmt.Sprint(":", n)
	}, patience, time.Millisecond)
}

func next(t *testing.T, hints <-chan hint) hint {
	t.Helper()
	select {
	case h := <-hints:
		return h
	case <-time.After(patience):
		require.Fail(t, "no hint")
		return hint{}
	}
}

// add adds an entry as another node does.
func add(t *testing.T, server *dbtest.Redis, id string, values ...string) {
	t.Helper()
	require.Equal(t, "$", server.Do(t, append([]string{"XADD", "{test:live}:hints", id}, values...)...)[:1])
}

// Every other node receives a hint, and the sender does not.
func TestStream_ReachesTheOtherNodes(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	var all []<-chan hint
	var streams []*Stream
	for range 3 {
		s, _ := open(t, server.URL, time.Hour)
		hints, _ := run(t, s)
		all, streams = append(all, hints), append(streams, s)
	}
	blocked(t, server, 3)
	streams[0].Send("mark", 7)
	require.Equal(t, hint{"mark", 7}, next(t, all[1]))
	require.Equal(t, hint{"mark", 7}, next(t, all[2]))
	blocked(t, server, 3)
	streams[1].Send("wake", 0)
	require.Equal(t, hint{"wake", 0}, next(t, all[0]), "not its own")
}

// Many marks are few entries, and the stream stays short.
func TestStream_StaysShort(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Hour)
	for i := range 3 * maxPending {
		s.Send("mark", int64(i%(maxPending+10)))
	}
	require.Len(t, s.pending, maxPending)
	require.NoError(t, s.write(t.Context()))
	require.Empty(t, s.pending)
	require.Equal(t, ":1", server.Do(t, "XLEN", s.key))
	for range 2 * maxEntries {
		require.NoError(t, s.add(t.Context(), "wake 0"))
	}
	var length int
	_, err := fmt.Sscanf(server.Do(t, "XLEN", s.key), ":%d", &length)
	require.NoError(t, err)
	require.Less(t, length, maxEntries+200)
}

// A node writes at most one entry in 10 ms, however often it sends.
func TestStream_WritesSeldom(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Hour)
	began := time.Now()
	_, stop := run(t, s)
	for i := range 30 {
		s.Send("mark", int64(i))
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.pending) == 0
		}, patience, 100*time.Microsecond)
	}
	stop()
	var length int
	_, err := fmt.Sscanf(server.Do(t, "XLEN", s.key), ":%d", &length)
	require.NoError(t, err)
	require.LessOrEqual(t, length, int(time.Since(began)/pace)+1)
}

// Entries that no node wrote are ignored, and repeated hints of a batch come once.
func TestStream_IgnoresMalformedEntries(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Hour)
	for _, hints := range []string{
		"", "mark", "mark x,", ",,,", "mark 99999999999999999999", "mark 1 2", " 7x", "mark -", "\x00\xff mark 7", "mark  7",
		strings.Repeat("mark 1,", maxPending+1), "mark 1," + strings.Repeat("x", maxBytes),
	} {
		add(t, server, "*", "node", "x", "hints", hints)
	}
	add(t, server, "*", "else", "1")
	for range 7 {
		add(t, server, "*", "node", "x", "hints", "mark 7,wake 0,mark 8")
	}
	var got []hint
	at, err := s.read(t.Context(), "0-0", func(kind string, channel int64) { got = append(got, hint{kind, channel}) })
	require.NoError(t, err)
	require.NotEqual(t, "0-0", at)
	require.Equal(t, []hint{{"mark", 7}, {"wake", 0}, {"mark", 8}}, got)
}

// What a node sends at most is received.
func TestStream_ReceivesTheLargestEntry(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Hour)
	for i := range maxPending {
		s.Send("mark", math.MinInt64+int64(i))
	}
	require.NoError(t, s.write(t.Context()))
	other, _ := open(t, server.URL, time.Hour)
	got := 0
	_, err := other.read(t.Context(), "0-0", func(string, int64) { got++ })
	require.NoError(t, err)
	require.Equal(t, maxPending, got)
}

// Entries of 3 MiB took a node's memory: 7.4 million hints in one batch.
func TestStream_ReadsAFloodInBatches(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Hour)
	for i := range 2 * maxRead {
		add(t, server, fmt.Sprint("1-", i+1), "node", "x", "hints", strings.Repeat("mark 7,", 450_000))
	}
	add(t, server, "*", "node", "x", "hints", "mark 8")
	at, reads := "0-0", 0
	var got []hint
	for ; len(got) == 0; reads++ {
		var err error
		at, err = s.read(t.Context(), at, func(kind string, channel int64) { got = append(got, hint{kind, channel}) })
		require.NoError(t, err)
	}
	require.Equal(t, []hint{{"mark", 8}}, got)
	require.Equal(t, 3, reads)
}

// No entry follows the greatest id: the error has what to delete.
func TestStream_SaysWhatEndsTheGreatestID(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Hour)
	add(t, server, "18446744073709551615-18446744073709551615", "node", "x", "hints", "mark 7")
	require.ErrorContains(t, s.Check(t.Context()), "(somebody has added the greatest id; DEL {test:live}:hints)")
	require.Equal(t, ":1", server.Do(t, "DEL", "{test:live}:hints"))
	require.NoError(t, s.Check(t.Context()))
}

// While the server is away hints wait, and it is logged once. A server without memory of the stream is followed, too.
func TestStream_SurvivesAnOutage(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	one, log := open(t, server.URL, time.Hour)
	two, _ := open(t, server.URL, time.Hour)
	_, _ = run(t, one)
	hints, _ := run(t, two)
	blocked(t, server, 2)
	require.NoError(t, server.Stop())
	require.Eventually(t, func() bool {
		one.Send("mark", 7)
		return strings.Count(log.String(), "no hints pass ") == 2
	}, patience, time.Millisecond)
	require.NoError(t, server.Start(t.Context()))
	blocked(t, server, 2)
	one.Send("mark", 8)
	for h := (hint{}); h.channel != 8; h = next(t, hints) { // 7 is sent before both nodes follow, or after it
		require.Contains(t, []int64{0, 7}, h.channel)
	}
	require.Eventually(t, func() bool { return strings.Count(log.String(), "nodes again") == 2 }, patience, time.Millisecond)
	require.Equal(t, 4, strings.Count(log.String(), "\n"), log.String())
}

// An outage is logged once, a single error is not, and attempts become rare.
func TestStream_LogsAnOutageOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &Stream{log: zerolog.New(&log)}
		ctx, cancel := context.WithCancel(t.Context())
		calls, last, longest := 0, time.Now(), time.Duration(0)
		s.repeat(ctx, "send", func(context.Context) error {
			longest, last = max(longest, time.Since(last)), time.Now()
			switch calls++; {
			case calls == 1, calls > 2 && calls < 20:
				return io.EOF
			case calls == 21:
				cancel()
			}
			return nil
		})
		require.Equal(t, 21, calls)
		require.Equal(t, longestPause, longest)
		require.Equal(t, 1, strings.Count(log.String(), `"level":"warn"`))
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	})
}

// Hints that were not sent are sent later.
func TestStream_SendsAgain(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Hour)
	require.NoError(t, server.Stop())
	s.Send("mark", 7)
	require.True(t, redisdb.Away(s.write(t.Context())))
	require.NoError(t, server.Start(t.Context()))
	require.NoError(t, s.write(t.Context()))
	other, _ := open(t, server.URL, time.Hour)
	_, err := other.read(t.Context(), "0-0", func(kind string, channel int64) { require.Equal(t, hint{"mark", 7}, hint{kind, channel}) })
	require.NoError(t, err)
}

// A node that has read an entry of the future, or of a server that was ahead, follows lower ids later.
func TestStream_FollowsLowerIDs(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Millisecond)
	var got []int64
	at := "0-0"
	read := func() {
		var err error
		at, err = s.read(t.Context(), at, func(_ string, channel int64) { got = append(got, channel) })
		require.NoError(t, err)
	}
	add(t, server, "99999999999999-0", "node", "x", "hints", "mark 7")
	read()
	require.Equal(t, ":1", server.Do(t, "DEL", s.key))
	read()
	add(t, server, "*", "node", "x", "hints", "mark 8")
	read()
	read()
	require.Equal(t, []int64{7, 8}, got)
}

// Between two reads, and during an outage, no entry is missed.
func TestStream_ContinuesAfterTheLastEntry(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, _ := open(t, server.URL, time.Millisecond)
	var got []int64
	record := func(_ string, channel int64) { got = append(got, channel) }
	add(t, server, "*", "node", "x", "hints", "mark 6")
	at, err := s.read(t.Context(), "", record)
	require.NoError(t, err)
	require.Empty(t, got, "it begins after the newest entry")
	add(t, server, "*", "node", "x", "hints", "mark 7")
	at, err = s.read(t.Context(), at, record)
	require.NoError(t, err)
	at, err = s.read(t.Context(), at, record) // none
	require.NoError(t, err)
	add(t, server, "*", "node", "x", "hints", "mark 8")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	at, err = s.read(ended, at, record)
	require.Error(t, err)
	_, err = s.read(t.Context(), at, record)
	require.NoError(t, err)
	require.Equal(t, []int64{7, 8}, got)
}

// A stop ends a read that blocks, and calls of a server that does not answer.
func TestStream_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	s, log := open(t, server.URL, time.Hour)
	_, stop := run(t, s)
	blocked(t, server, 1)
	stop()
	other, _ := open(t, server.URL, time.Hour)
	other.timeout = time.Hour
	_, stop = run(t, other)
	blocked(t, server, 1)
	require.NoError(t, server.Pause())
	other.Send("mark", 7)
	require.Eventually(t, func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		return len(other.pending) == 0
	}, patience, time.Millisecond, "it is being sent")
	stop()
	require.NoError(t, server.Continue())
	require.Empty(t, log.String())
}

// A user needs three commands on the key, and the error names them.
func TestStream_Rights(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	url := func(user string) string { return strings.Replace(server.URL, "//", "//"+user+":s3cret@", 1) }
	grant := func(user string, rights ...string) {
		require.Equal(t, "+OK", server.Do(t, append([]string{"ACL", "SETUSER", user, "on", ">s3cret", "~{test:*"}, rights...)...))
	}
	grant("few", "+xadd", "+xread", "+xrevrange")
	few, _ := open(t, url("few"), time.Hour)
	require.NoError(t, few.Check(t.Context()))
	require.Equal(t, "+OK", server.Do(t, "CONFIG", "SET", "maxmemory", "1"))
	require.NoError(t, few.Check(t.Context()), "a full server drains")
	require.Equal(t, "+OK", server.Do(t, "CONFIG", "SET", "maxmemory", "0"))
	hints, _ := run(t, few)
	blocked(t, server, 1)
	add(t, server, "*", "node", "x", "hints", "mark 7")
	require.Equal(t, hint{"mark", 7}, next(t, hints))
	for i, rights := range [][]string{{"+xread", "+xrevrange"}, {"+xadd", "+xrevrange"}, {"+xadd", "+xread"}} {
		user := fmt.Sprint("lacks-", i)
		grant(user, rights...)
		s, log := open(t, url(user), time.Hour)
		require.ErrorContains(t, s.Check(t.Context()), "(ACL SETUSER … ~{test:* +xadd +xread +xrevrange)")
		_, stop := run(t, s)
		s.Send("mark", 7)
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "+xadd +xread +xrevrange") }, patience, time.Millisecond)
		stop()
	}
}

// Each node of a Cluster redirects the key, and the hints arrive.
func TestStream_OnACluster(t *testing.T) {
	t.Parallel()
	url, _ := dbtest.StartCluster(t)
	c := redisdb.DefaultConfig()
	c.URL, c.Cluster = url, true
	var streams [2]*Stream
	var hints <-chan hint
	for i := range streams {
		s, err := New(c, "delivery.redis", zerolog.Nop())
		require.NoError(t, err)
		s.block = 50 * time.Millisecond
		require.NoError(t, s.Check(t.Context()))
		streams[i] = s
		hints, _ = run(t, s)
	}
	require.Eventually(t, func() bool {
		streams[0].Send("mark", 7)
		return len(hints) > 0
	}, patience, time.Millisecond)
	require.Equal(t, hint{"mark", 7}, next(t, hints))
}
