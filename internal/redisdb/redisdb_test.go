package redisdb_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/redisdb"
)

const patience = time.Minute

func open(t *testing.T, url string, change func(*redisdb.Config)) *redisdb.DB {
	t.Helper()
	c := with(change)
	c.URL = url
	db, err := redisdb.Open(c, path, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Sentence 3: a command whose answer is lost has been run once. With go-redis' own retries it
// would be two.
func TestDB_SendsACommandOnce(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	proxy := dbtest.StartProxy(t, server.Addr)
	db := open(t, "redis://"+proxy.Addr, nil)
	var seen atomic.Int32
	lose := func(fault dbtest.Fault) {
		proxy.Lose(func(request []byte) dbtest.Fault {
			if bytes.Contains(request, []byte("counter")) && seen.Add(1) == 1 {
				return fault
			}
			return dbtest.Pass
		})
	}
	for client, c := range map[string]redis.UniversalClient{"do": db.Do, "block": db.Block} {
		server.Do(t, "SET", "counter", "0")
		seen.Store(0)
		lose(dbtest.DropReply)
		err := c.Incr(t.Context(), "counter").Err()
		require.Error(t, err, client)
		require.True(t, redisdb.Away(err), "%v", err)
		require.Equal(t, int32(1), seen.Load())
		require.Equal(t, ":2", server.Do(t, "INCR", "counter"), "once by the client")
		seen.Store(0)
		lose(dbtest.Cut)
		require.True(t, redisdb.Away(c.Incr(t.Context(), "counter").Err()))
		require.Equal(t, int32(1), seen.Load())
		require.NoError(t, c.Incr(t.Context(), "counter").Err(), "the next one connects again")
	}
}

// Sentence 20: what a server says while it is not the one to write to.
func TestAway_KnowsItsErrors(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	db := open(t, server.URL, nil)
	ctx := t.Context()
	require.False(t, redisdb.Away(nil))
	require.False(t, redisdb.Away(db.Do.LPush(ctx, "list", 1).Err()))
	require.False(t, redisdb.Away(db.Do.Get(ctx, "list").Err()), "WRONGTYPE is a bug")
	require.False(t, redisdb.Away(redis.Nil))

	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down", "CLUSTERDOWN The cluster is down",
		"NOREPLICAS Not enough good replicas to write.", "UNBLOCKED force unblock from blocking operation", "READONLY You can't write against a read only replica.",
	} {
		err := db.Do.Eval(ctx, `return redis.error_reply(ARGV[1])`, nil, text).Err()
		require.ErrorContains(t, err, text)
		require.True(t, redisdb.Away(err), text)
	}
	require.True(t, redisdb.Full(db.Do.Eval(ctx, `return redis.error_reply('OOM command not allowed')`, nil).Err()))
	says := func(text string) error {
		return db.Do.Eval(ctx, `return redis.error_reply(ARGV[1])`, nil, text).Err()
	}
	const of62 = "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:3: -"
	require.True(t, redisdb.Full(says(of62+"OOM command not allowed when used memory > 'maxmemory'.")))
	require.True(t, redisdb.Away(says(of62+"READONLY You can't write against a read only replica.")))
	require.False(t, redisdb.Full(says(of62+"WRONGTYPE Operation against a key: -OOM")))
	require.False(t, redisdb.Full(says("ERR unknown command 'x: -OOM'")))

	id := make(chan int64, 1)
	go func() {
		for { // until it waits
			clients, err := db.Do.Do(ctx, "CLIENT", "LIST").Text()
			if err != nil {
				return
			}
			for _, line := range strings.Split(clients, "\n") {
				if strings.Contains(line, "cmd=blpop") {
					n, _ := db.Do.Do(ctx, "CLIENT", "UNBLOCK", strings.TrimPrefix(strings.Fields(line)[0], "id="), "ERROR").Int64()
					id <- n
					return
				}
			}
		}
	}()
	require.True(t, redisdb.Away(db.Block.BLPop(ctx, patience, "none").Err()))
	require.Equal(t, int64(1), <-id)

	require.NoError(t, server.Pause())
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.True(t, redisdb.Away(db.Do.Get(short, "x").Err()), "a server that does not answer")
	require.NoError(t, server.Continue())
	require.NoError(t, server.Stop())
	require.True(t, redisdb.Away(db.Do.Get(ctx, "x").Err()), "a server that is gone")
	require.NoError(t, server.Start(ctx))
	require.Eventually(t, func() bool { return db.Do.Set(ctx, "x", 1, 0).Err() == nil }, patience, time.Millisecond)
}

// Sentence 8: a stop ends a call that waits, or its own timeout does, where the user may not.
func TestDB_WaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "bell", "on", ">s3cret", "~*", "+@list")
	blocked := regexp.MustCompile(`flags=b .*cmd=blmove`) // one that is idle has that command as its last, too
	for user, timeout := range map[string]time.Duration{"": 2 * patience, "bell:s3cret@": time.Second} {
		db := open(t, strings.Replace(server.URL, "//", "//"+user, 1), nil)
		ctx, stop := context.WithCancel(t.Context())
		t.Cleanup(stop)
		ended := make(chan error, 1)
		began := time.Now()
		go func() {
			ended <- db.Wait(ctx, func(on redis.Cmdable) error { return on.BLMove(ctx, "a", "b", "LEFT", "LEFT", timeout).Err() })
		}()
		require.Eventually(t, func() bool { // it waits
			text, err := open(t, server.URL, nil).Do.ClientList(t.Context()).Result()
			return err == nil && blocked.MatchString(text) || len(ended) > 0 // its own timeout is over
		}, patience, 10*time.Millisecond)
		stop()
		require.ErrorIs(t, <-ended, redis.Nil)
		require.Less(t, time.Since(began), patience)
	}
}

func TestCheck_SaysWhatIsUnfit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := dbtest.StartRedis(t)
	db := open(t, server.URL, nil)
	warnings, err := db.Check(ctx)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "maxmemory is not set")

	server.Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	warnings, err = db.Check(ctx)
	require.Empty(t, warnings)
	require.ErrorContains(t, err, "maxmemory-policy allkeys-lru drops keys when memory is full; allowed is noeviction (CONFIG SET maxmemory-policy noeviction")
	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")

	server.Do(t, "CONFIG", "SET", "maxclients", "5")
	_, err = db.Check(ctx)
	require.ErrorContains(t, err, "it takes 5 connections (maxclients), and one belfry may have 18")
	server.Do(t, "CONFIG", "SET", "maxclients", "18")
	warnings, err = db.Check(ctx)
	require.NoError(t, err)
	require.Contains(t, strings.Join(warnings, ""), "connections are free of 18")

	clustered := open(t, server.URL, func(c *redisdb.Config) { c.Cluster = true })
	_, err = clustered.Check(ctx)
	require.Error(t, err)

	host, port, _ := strings.Cut(server.Addr, ":")
	replica := dbtest.StartRedis(t, "--replicaof", host, port)
	_, err = open(t, replica.URL, nil).Check(ctx)
	require.ErrorContains(t, err, "it is a replica, which takes no writes")

	require.NoError(t, server.Stop())
	_, err = db.Check(ctx)
	require.True(t, redisdb.Away(err))
}

// A user with few rights works; what it may not be asked is a warning, without its name.
func TestCheck_OfAUserThatMayNotAsk(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "bell", "on", ">s3cret", "~{belfry:*", "+@list", "+eval", "+evalsha")
	db := open(t, strings.Replace(server.URL, "//", "//bell:s3cret@", 1), nil)
	warnings, err := db.Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "+info")
	require.NotContains(t, warnings[0], "bell")
	require.NoError(t, db.Do.RPush(t.Context(), db.Tag("bulk")+"main", 1).Err())
	require.True(t, redisdb.Denied(db.Do.RPush(t.Context(), "else", 1).Err()))
	wrong := open(t, strings.Replace(server.URL, "//", "//bell:wr0ng@", 1), nil)
	_, err = wrong.Check(t.Context())
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "wr0ng")
}

// Sentence 3: in a Cluster MOVED is followed, and nothing else is sent twice.
func TestCluster_FollowsAKeyThatMoves(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := dbtest.StartRedis(t, "--cluster-enabled", "yes")
	b := dbtest.StartRedis(t, "--cluster-enabled", "yes")
	one, two := open(t, a.URL, nil), open(t, b.URL, nil)
	_, err := one.Check(ctx)
	require.ErrorContains(t, err, "it is a node of a Cluster; set cluster: true")
	require.NoError(t, one.Do.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	host, port, _ := strings.Cut(b.Addr, ":")
	require.NoError(t, one.Do.ClusterMeet(ctx, host, port).Err())
	db := open(t, a.URL, func(c *redisdb.Config) { c.Cluster = true })
	key := db.Tag("bulk") + "main"
	require.Eventually(t, func() bool { return db.Do.RPush(ctx, key, "x").Err() == nil }, patience, 10*time.Millisecond)
	_, err = db.Check(ctx)
	require.NoError(t, err)
	node, err := db.Master(ctx, key)
	require.NoError(t, err)
	_, port, _ = strings.Cut(node.Options().Addr, ":")
	require.Equal(t, a.Addr, "127.0.0.1:"+port)

	require.NoError(t, db.Do.Del(ctx, key).Err())
	owner := two.Do.Do(ctx, "CLUSTER", "MYID").String()
	owner = owner[strings.LastIndex(owner, " ")+1:]
	slot := one.Do.ClusterKeySlot(ctx, key).Val()
	require.Eventually(t, func() bool {
		return two.Do.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", owner).Err() == nil && one.Do.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", owner).Err() == nil
	}, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		err := db.Do.RPush(ctx, key, "y").Err()
		require.True(t, err == nil || redisdb.Away(err) && !redisdb.HasCode(err, "MOVED"), "%v", err)
		return err == nil
	}, patience, 10*time.Millisecond)
	require.Equal(t, ":1", b.Do(t, "LLEN", key))
}

// Sentence 3: what a Cluster's client calls redirects are repetitions after a lost answer as well.
func TestCluster_SendsACommandOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	proxy := dbtest.StartProxy(t, "")
	_, port, _ := strings.Cut(proxy.Addr, ":")
	server := dbtest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-announce-port", port) // clients come by the proxy
	proxy.To(server.Addr)
	one := open(t, server.URL, nil)
	require.NoError(t, one.Do.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool { return one.Do.Set(ctx, "counter", 0, 0).Err() == nil }, patience, 10*time.Millisecond)
	db := open(t, "redis://"+proxy.Addr, func(c *redisdb.Config) { c.Cluster = true })
	require.NoError(t, db.Do.Get(ctx, "counter").Err())
	var seen atomic.Int32
	proxy.Lose(func(request []byte) dbtest.Fault {
		if bytes.Contains(request, []byte("counter")) && seen.Add(1) == 1 {
			return dbtest.DropReply
		}
		return dbtest.Pass
	})
	require.True(t, redisdb.Away(db.Do.Incr(ctx, "counter").Err()))
	require.Equal(t, int32(1), seen.Load())
	require.Equal(t, "1", one.Do.Get(ctx, "counter").Val())
}

func TestSentinel_NamesTheMaster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	master := dbtest.StartRedis(t)
	host, port, _ := strings.Cut(master.Addr, ":")
	replica := dbtest.StartRedis(t, "--replicaof", host, port)
	sentinel := dbtest.StartSentinel(t, "belfry", master)
	db := open(t, sentinel.URL, func(c *redisdb.Config) { c.Sentinel, c.Timeout = "belfry", 2*time.Second })
	require.Eventually(t, func() bool { return db.Do.Set(ctx, "x", 1, 0).Err() == nil }, patience, 10*time.Millisecond)
	_, err := db.Check(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.HasPrefix(replica.Do(t, "GET", "x"), "$1") }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return sentinel.Do(t, "SENTINEL", "REPLICAS", "belfry") == "*1" }, patience, 100*time.Millisecond)
	require.NoError(t, master.Stop())
	require.Eventually(t, func() bool {
		err := db.Do.Set(ctx, "x", 2, 0).Err()
		require.True(t, err == nil || redisdb.Away(err), "%v", err)
		return err == nil
	}, patience, 50*time.Millisecond)
	require.Equal(t, "$1", replica.Do(t, "GET", "x"))
}

// Over TLS the server is who the authority says, and so is this client.
func TestOpen_SpeaksTLS(t *testing.T) {
	t.Parallel()
	server, files := dbtest.StartRedis(t), dbtest.NewCertificates(t)
	for _, setting := range [][2]string{{"tls-cert-file", files.Cert}, {"tls-key-file", files.Key}, {"tls-ca-cert-file", files.CA}, {"tls-auth-clients", "yes"}} {
		require.Equal(t, "+OK", server.Do(t, "CONFIG", "SET", setting[0], setting[1]))
	}
	var port string
	require.Eventually(t, func() bool { // a port may be somebody else's
		port = strconv.Itoa(10000 + rand.IntN(20000))
		return server.Do(t, "CONFIG", "SET", "tls-port", port) == "+OK"
	}, patience, time.Millisecond)
	url := "rediss://127.0.0.1:" + port
	trusts := func(c *redisdb.Config) { c.CAFile = files.CA }
	known := func(c *redisdb.Config) { trusts(c); c.CertFile, c.KeyFile = files.Cert, files.Key }
	db := open(t, url, known)
	require.NoError(t, db.Do.Set(t.Context(), "k", "v", 0).Err())
	_, err := db.Check(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, open(t, url, nil).Do.Get(t.Context(), "k").Err(), "certificate signed by unknown authority")
	require.Error(t, open(t, url, trusts).Do.Get(t.Context(), "k").Err(), "without a certificate of its own")
	require.Error(t, open(t, server.URL[:len("redis")]+"s"+server.URL[len("redis"):], known).Do.Get(t.Context(), "k").Err(), "a server without TLS")
}

// Sentence 9: what waits has connections of its own. All of them may, and no command waits for one.
func TestDB_CommandsDoNotWaitForWhatBlocks(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	db := open(t, server.URL, func(c *redisdb.Config) { c.Timeout = 20 * time.Second })
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	for range 2 * db.Connections() { // more than there are connections of either kind
		waiting.Go(func() {
			_ = db.Wait(ctx, func(on redis.Cmdable) error { return on.BLPop(ctx, patience, "none").Err() })
		})
	}
	require.Eventually(t, func() bool { return strings.Contains(db.Do.Info(ctx, "clients").Val(), "blocked_clients:2") }, patience, time.Millisecond)
	for range 100 {
		require.NoError(t, db.Do.Set(ctx, "heartbeat", 1, 0).Err())
	}
}

// Redis before 6.2 lacks what carriers work with; Valkey says that it is Redis 7.2, and which it is.
func TestCheck_RefusesOldServers(t *testing.T) {
	t.Parallel()
	for info, unfit := range map[string]bool{
		"redis_version:6.0.16": true, "redis_version:5.0.7": true, "redis_version:6.2.0": false, "redis_version:10.0.0": false,
		"redis_version:2.8.0\r\nserver_name:valkey": false,
	} {
		_, err := open(t, "redis://"+says(t, info), nil).Check(t.Context())
		if !unfit {
			require.NoError(t, err, info)
			continue
		}
		require.ErrorContains(t, err, "is too old; allowed are Redis 6.2 and later, and Valkey", info)
	}
}

// says is the address of a server that answers by a text.
func says(t *testing.T, text string) string {
	t.Helper()
	return dbtest.Serve(t, func(conn net.Conn) {
		for request := make([]byte, 4096); ; {
			n, err := conn.Read(request) // each command comes in one piece
			if err != nil {
				return
			}
			answer := fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
			if bytes.Contains(bytes.ToLower(request[:n]), []byte("hello")) {
				answer = "-ERR unknown command 'hello'\r\n"
			}
			_, _ = conn.Write([]byte(answer))
		}
	})
}
