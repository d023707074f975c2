package main

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// With a carrier in Redis a mark through one process reaches the person's streams of another one. `belfry doctor` finds
// a user that lacks the rights.
func TestInbox_MarksReachOtherProcesses(t *testing.T) {
	t.Parallel()
	db, redis := readable(t), dbtest.StartRedis(t)
	for _, transport := range []string{"redislist", "redisstream"} {
		environ, tokenOf := centre(t, db.DSN, "BELFRY_DELIVERY_TRANSPORT="+transport, "BELFRY_DELIVERY_REDIS_URL="+redis.URL,
			"BELFRY_DELIVERY_REDIS_KEY_PREFIX="+transport)
		var urls []string
		var processes []*process
		for range 2 {
			p := start(t, environ, "serve", "--listen", "127.0.0.1:0")
			processes, urls = append(processes, p), append(urls, p.centre(t))
		}
		request := func(method, url string) (status int, body io.Reader) {
			req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+tokenOf(4711))
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			t.Cleanup(func() { _ = res.Body.Close() })
			return res.StatusCode, res.Body
		}
		events := make(chan string, 100)
		_, stream := request("GET", urls[1]+"/stream")
		go func() {
			defer close(events)
			for lines := bufio.NewScanner(stream); lines.Scan(); {
				if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
					events <- data
				}
			}
		}()
		require.JSONEq(t, `{"type":"reload"}`, <-events)
		require.Eventually(t, func() bool { // the second process may not follow yet
			status, _ := request("POST", urls[0]+"/inbox/seen")
			require.Equal(t, http.StatusNoContent, status)
			select {
			case e := <-events:
				return e == `{"type":"read"}`
			default:
				return false
			}
		}, patience, 20*time.Millisecond)
		for _, p := range processes {
			p.terminate(t)
			require.Equal(t, codeDone, p.exit(t), p.stderr.String())
			require.NotContains(t, p.stderr.String(), "redis:", "go-redis wrote a line")
		}
	}

	rights := "on >s3cret ~{redislist:* +@list +@hash +@sortedset +eval +evalsha +get +set +del +unlink +scan +time +info"
	require.Equal(t, "+OK", redis.Do(t, append([]string{"ACL", "SETUSER", "few"}, strings.Fields(rights)...)...))
	few := []string{"BELFRY_DELIVERY_TRANSPORT=redislist", "BELFRY_DELIVERY_REDIS_KEY_PREFIX=redislist",
		"BELFRY_DELIVERY_REDIS_URL=" + strings.Replace(redis.URL, "//", "//few:s3cret@", 1)}
	environ, _ := centre(t, db.DSN, few...)
	const lacks = "(ACL SETUSER … ~{redislist:* +xadd +xread +xrevrange)"
	require.Contains(t, command(t, environ, "doctor", "--json").stdout, lacks)
	require.Equal(t, "+OK", redis.Do(t, "ACL", "SETUSER", "few", "+xadd", "+xread", "+xrevrange"))
	require.NotContains(t, command(t, environ, "doctor", "--json").stdout, "SETUSER")
	require.Equal(t, "+OK", redis.Do(t, "ACL", "SETUSER", "few", "-xadd"))
	carrier := append([]string{"BELFRY_DATABASE_URL=" + db.DSN}, few...) // without inbox.listen
	require.NotContains(t, command(t, carrier, "doctor", "--json").stdout, "SETUSER")
}
