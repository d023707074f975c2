package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/fake"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox/compose"
)

// fromEnviron is a whole number that a variable of the tests may set.
func fromEnviron(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// mixedFaults fail a tenth of the calls, in every way in which providers do.
var mixedFaults = []string{
	"all: latency 1ms-5ms",
	"fcm: status 503 share 0.02", "fcm: status 429 retry-after 1s share 0.01", "fcm: status 502 share 0.01",
	"fcm: reset share 0.02", "fcm: reset accepted no share 0.01", "fcm: garbage share 0.005", "fcm: hang share 0.002",
	"fcm: hang accepted yes share 0.002", "fcm: status 400 share 0.01", "fcm: invalid-address share 0.01",
	"sms: status 500 share 0.04", "sms: reset share 0.03", "sms: status 400 share 0.03",
}

// relayChaos kills relays at random while they deliver.
type relayChaos struct {
	*courierTest

	random  *rand.Rand
	relays  []*process
	kills   int
	environ []string
	total   int64
}

// hire starts the relay of a place. Some keep their name from life to life, some do not.
func (c *relayChaos) hire(place int) {
	c.Helper()
	args := []string{"relay"}
	if place > 0 {
		args = append(args, "--relay-name", "relay-"+strconv.Itoa(place))
	}
	c.relays[place] = start(c.T, c.environ, args...)
}

// finished is how many messages are.
func (c *relayChaos) finished() (n int64) {
	c.Helper()
	require.NoError(c, c.db.Pool.QueryRow(c.Context(), "SELECT count(*) FROM belfry.messages WHERE status IN ('SENT', 'DEAD')").Scan(&n))
	return n
}

// until waits until so many messages are finished.
func (c *relayChaos) until(n int64) {
	c.Helper()
	limit := time.Now().Add(patience + time.Duration(c.total)*5*time.Millisecond)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for have := c.finished(); have < n; have = c.finished() {
		require.True(c, time.Now().Before(limit), "%d of %d messages are finished; %v", have, n, c.statuses())
		<-look.C
	}
}

// rampage kills relays, one at a time, until so many messages are finished.
func (c *relayChaos) rampage(n int64) {
	c.Helper()
	for c.finished() < n {
		pause := time.NewTimer(time.Duration(400+c.random.IntN(1200)) * time.Millisecond)
		<-pause.C
		require.Empty(c, dbtest.Miscounted(c, c.db.Pool))
		c.revive()
		place := c.random.IntN(len(c.relays))
		if c.relays[place].Process.Kill() == nil {
			c.kills++
		}
		<-c.relays[place].ended
		c.hire(place)
	}
	c.revive()
}

// revive does what a service manager does with relays that ended by themselves, because
// PostgreSQL was down when they started.
func (c *relayChaos) revive() {
	c.Helper()
	for place, p := range c.relays {
		select {
		case <-p.ended:
			require.Equal(c, int(codeUnavailable), p.ProcessState.ExitCode(), p.stderr.String())
			c.hire(place)
		default:
		}
	}
}

// I8, I9, I10: relays are killed at random, and PostgreSQL is, while a provider fails a
// tenth of the calls. Every message ends SENT or DEAD, and the provider has accepted no
// message more often than once and once more for each outcome that was unknown.
// BELFRY_TEST_MESSAGES sets how many there are, BELFRY_TEST_SEED repeats a run.
func TestProcess_KilledRelaysLoseNothing(t *testing.T) {
	t.Parallel()
	total := fromEnviron(t, "BELFRY_TEST_MESSAGES", 3_000)
	seed := fromEnviron(t, "BELFRY_TEST_SEED", time.Now().UnixNano())
	t.Logf("BELFRY_TEST_SEED=%d", seed)
	server := dbtest.NewServer(t, true)
	d := deliverable(t, dbtest.NewOn(t, server), int(total), mixedFaults...)
	d.limit["rate_per_second"] = max(total/6, 500)
	d.limit["concurrency"] = 32
	c := &relayChaos{courierTest: d, random: rand.New(rand.NewPCG(uint64(seed), 1)), relays: make([]*process, 3), total: total} //nolint:gosec // a test's randomness, and its seed
	c.environ = d.environ("BELFRY_DELIVERY_BATCH=100", "BELFRY_DELIVERY_MAX_IN_HAND=400", "BELFRY_DELIVERY_MAX_CRASHES=10")
	began := time.Now()
	for place := range c.relays {
		c.hire(place)
	}
	c.rampage(total * 4 / 10)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	require.NoError(t, server.Stop(ctx, pgserver.Immediate))
	require.NoError(t, server.Start(ctx))
	cancel()
	d.db.Pool.Reset()
	c.rampage(total * 8 / 10)
	c.until(total)
	took := time.Since(began)
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM belfry.leases") // of relays that died when all was recorded
	for _, p := range c.relays {
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	}
	c.judge(took)
}

// judge compares what belfry has recorded with what the provider has seen.
func (c *relayChaos) judge(took time.Duration) {
	c.Helper()
	statuses := c.statuses()
	ambiguous := count(c.T, c.db, "belfry.attempts WHERE outcome IN ('unknown', 'crashed')")
	crashed := count(c.T, c.db, "belfry.attempts WHERE outcome = 'crashed'")
	sum := c.fakes.Summary().Total()
	c.Logf("%d messages in %s, %d relays killed, PostgreSQL once: %d SENT, %d DEAD; provider: %d calls, %d accepted, %d duplicates; %d ambiguous outcomes, %d of them crashes",
		c.total, took.Round(time.Millisecond), c.kills, statuses["SENT"], statuses["DEAD"], sum.Calls, sum.Accepted, sum.Duplicates, ambiguous, crashed)
	require.Positive(c, c.kills)
	require.Empty(c, dbtest.Miscounted(c, c.db.Pool))
	require.Equal(c, c.total, statuses["SENT"]+statuses["DEAD"])
	require.Zero(c, count(c.T, c.db, "belfry.leases"))
	require.Zero(c, count(c.T, c.db, "belfry.handovers"))
	require.LessOrEqual(c, sum.Duplicates, ambiguous)
	require.Zero(c, sum.Keyless)
	// An answer that died with its relay has asked for nothing.
	require.LessOrEqual(c, sum.Early, crashed, "before its Retry-After")

	accepted := make(map[string]int64)
	for _, call := range c.fakes.Calls("") {
		if call.Outcome == fake.Accepted {
			accepted[call.Key]++
		}
	}
	c.judgeEach(accepted)
}

// judgeEach wants of every message and medium what the sums want of all.
func (c *relayChaos) judgeEach(accepted map[string]int64) {
	c.Helper()
	var installation [16]byte
	require.NoError(c, c.db.Pool.QueryRow(c.Context(), "SELECT id FROM belfry.installation").Scan(&installation))
	rows, err := c.db.Pool.Query(c.Context(), `SELECT m.job_id, m.channel_id, m.status = 'SENT', k.medium,
		count(a.id) FILTER (WHERE a.outcome IN ('unknown', 'crashed')), bool_or(a.outcome IN ('permanent', 'invalid_address'))
		  FROM belfry.messages m CROSS JOIN (VALUES ('push'), ('sms')) k(medium)
		  LEFT JOIN belfry.attempts a ON a.job_id = m.job_id AND a.channel_id = m.channel_id AND a.medium = k.medium
		 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 4`)
	require.NoError(c, err)
	var jobID, channelID, ambiguous, got int64
	var sent bool
	var refused *bool
	var medium, problem string
	_, err = pgx.ForEachRow(rows, []any{&jobID, &channelID, &sent, &medium, &ambiguous, &refused}, func() error {
		n := accepted[compose.Key(installation, jobID, channelID, medium)]
		if n > 1+ambiguous {
			problem = fmt.Sprintf("message %d/%d by %s: accepted %d times with %d ambiguous outcomes", jobID, channelID, medium, n, ambiguous)
		}
		if medium == "push" {
			got = 0
		}
		if got += n; medium == "sms" && sent && got == 0 {
			problem = fmt.Sprintf("message %d/%d is SENT, and no provider has it", jobID, channelID)
		}
		if medium == "push" && refused == nil && accepted[compose.Key(installation, jobID, channelID, "sms")] > 0 {
			problem = fmt.Sprintf("message %d/%d went by sms without a recorded failure of push", jobID, channelID)
		}
		return nil
	})
	require.NoError(c, err)
	require.Empty(c, problem)
}
