package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/pgserver"
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
	"{for: all, latency: 1ms}", "{for: all, latency: 4ms, share: 0.5}",
	"{for: fcm, status: 503, share: 0.02}", "{for: fcm, status: 429, retry_after: 1s, share: 0.01}", "{for: fcm, status: 502, share: 0.01}",
	"{for: fcm, do: reset, share: 0.02}", "{for: fcm, do: reset, accepted: false, share: 0.01}", "{for: fcm, do: garbage, share: 0.005}", "{for: fcm, do: hang, share: 0.002}",
	"{for: fcm, do: hang, accepted: true, share: 0.002}", "{for: fcm, status: 400, share: 0.01}", "{for: fcm, do: invalid-address, share: 0.01}",
	"{for: sms, status: 500, share: 0.04}", "{for: sms, do: reset, share: 0.03}", "{for: sms, status: 400, share: 0.03}",
}

// relayChaos does things to relays, to PostgreSQL and to jobs at random while relays
// deliver: one after the other, each after so many more messages were finished, whatever
// time that takes.
type relayChaos struct {
	*courierTest

	server  *pgserver.Server
	carrier *chaosCarrier
	random  *rand.Rand
	relays  []*process
	environ []string
	jobs    []*chaosJob
	total   int64
	done    map[string]int // how often what was done
	holds   []hold
	upgrade *upgrade // nil: all are of one version
}

// hire starts the relay of a place. Some keep their name from life to life, some do not.
func (c *relayChaos) hire(place int) {
	c.Helper()
	args := []string{"relay"}
	if place > 0 {
		args = append(args, "--relay-name", "relay-"+strconv.Itoa(place))
	}
	c.relays[place] = c.program(c.environ, args...)
}

// finished is how many messages are.
func (c *relayChaos) finished() (n int64) {
	c.Helper()
	require.NoError(c, c.db.Pool.QueryRow(c.Context(), "SELECT count(*) FROM belfry.messages WHERE status IN ('SENT', 'DEAD')").Scan(&n))
	return n
}

// until waits until so many messages are finished, as long as there is progress.
func (c *relayChaos) until(n int64) {
	c.Helper()
	most, since := int64(-1), time.Now()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for have := c.finished(); have < n; have = c.finished() {
		if have > most {
			most, since = have, time.Now()
		}
		if time.Since(since) > 2*patience {
			require.FailNow(c, "no progress", "%d of %d messages are finished; %v; %v\n%s", have, n, c.statuses(), c.done, c.unfinished())
		}
		<-look.C
		c.revive()
	}
}

// unfinished tells some of the messages that are, with what is known of them.
func (c *relayChaos) unfinished() (text string) {
	c.Helper()
	require.NoError(c, c.db.Pool.QueryRow(c.Context(), `SELECT coalesce(string_agg(t, E'\n'), '')
		FROM (SELECT m::text || ' of ' || j.status || ', now ' || now() AS t FROM belfry.messages m JOIN belfry.jobs j ON j.id = m.job_id
		       WHERE m.status NOT IN ('SENT', 'DEAD') LIMIT 10) s`).Scan(&text))
	return text
}

// deck is what is done: each once before anything is done again, so that a short run has
// all of it.
func (c *relayChaos) deck() []func() {
	deck := []func(){c.kill, c.kill, c.stop, c.crash, c.pauseLane, c.abort, c.abort, c.edit, c.edit}
	if c.carrier != nil {
		deck = append(deck, c.crashCarrier, c.loseCarrier)
	}
	if c.upgrade != nil {
		deck = append(deck, c.expand, c.walk, c.walk)
	}
	c.random.Shuffle(len(deck), func(i, k int) { deck[i], deck[k] = deck[k], deck[i] })
	return deck
}

// rampage acts until nine tenths of the messages are finished.
func (c *relayChaos) rampage() {
	c.Helper()
	deck := c.deck()
	acts := max(int64(len(deck)), min(c.total/300, 200))
	for n := range acts {
		c.until(c.total * 9 * n / (10 * acts))
		if len(deck) == 0 {
			deck = c.deck()
		}
		deck[0]()
		deck = deck[1:]
		require.Empty(c, dbtest.Miscounted(c, c.db.Pool), "%v", c.done)
	}
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

// listen waits until each relay has started, those as well that are hired anew for it: a signal
// in its first moments ends a process as if nobody listened.
func (c *relayChaos) listen() {
	c.Helper()
	require.Eventually(c, func() bool {
		c.revive()
		return !slices.ContainsFunc(c.relays, func(p *process) bool { return !strings.Contains(p.stderr.String(), "relay started") })
	}, patience, 20*time.Millisecond)
}

// rest lets a random part of the run pass; it waits for nothing.
func (c *relayChaos) rest(most time.Duration) {
	timer := time.NewTimer(time.Duration(c.random.Int64N(int64(most))))
	defer timer.Stop()
	<-timer.C
}

func (c *relayChaos) kill() {
	c.Helper()
	c.done["kill"]++
	place := c.random.IntN(len(c.relays))
	_ = c.relays[place].Process.Kill() // it may have ended by itself
	<-c.relays[place].ended
	c.hire(place)
}

func (c *relayChaos) signal(place int, s syscall.Signal) {
	_ = c.relays[place].Process.Signal(s) // it may have ended by itself
}

// stop stops a relay for a moment, or until its leases have run out.
func (c *relayChaos) stop() {
	c.Helper()
	c.done["stop"]++
	place := c.random.IntN(len(c.relays))
	c.signal(place, syscall.SIGSTOP)
	defer c.signal(place, syscall.SIGCONT)
	if c.random.IntN(2) == 0 {
		c.rest(300 * time.Millisecond)
		return
	}
	waitUntil(c.T, c.db.Pool, "SELECT coalesce(bool_or(expires_at < clock_timestamp()), true) FROM belfry.leases")
}

func (c *relayChaos) crash() {
	c.Helper()
	c.done["crash"]++
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	require.NoError(c, c.server.Stop(ctx, pgserver.Immediate))
	require.NoError(c, c.server.Start(ctx))
	c.db.Pool.Reset()
}

// chaosCarrier is the server of a carrier that relays work on.
type chaosCarrier struct {
	server interface {
		Stop() error // a crash
		Start(ctx context.Context) error
	}
	environ []string // what a relay is told of it
	files   string   // the pattern of what it keeps
}

func (c *relayChaos) crashCarrier() {
	c.Helper()
	c.done["carrier crash"]++
	require.NoError(c, c.carrier.server.Stop())
	c.rest(300 * time.Millisecond)
	require.NoError(c, c.carrier.server.Start(c.Context()))
}

// loseCarrier is a crash that takes the disk with it.
func (c *relayChaos) loseCarrier() {
	c.Helper()
	c.done["carrier lost"]++
	require.NoError(c, c.carrier.server.Stop())
	files, err := filepath.Glob(c.carrier.files)
	require.NoError(c, err)
	require.NotEmpty(c, files)
	for _, file := range files {
		require.NoError(c, os.RemoveAll(file))
	}
	require.NoError(c, c.carrier.server.Start(c.Context()))
}

// chaosTransports are what relays receive their messages from, each made by one function; nil:
// PostgreSQL itself.
func chaosTransports() map[string]func(t *testing.T) *chaosCarrier {
	redis := func(t *testing.T) *chaosCarrier {
		t.Helper()
		s := dbtest.StartRedis(t, "--appendonly", "yes")
		return &chaosCarrier{s, []string{"BELFRY_DELIVERY_REDIS_URL=" + s.URL, "BELFRY_DELIVERY_REDIS_TIMEOUT=500ms"}, filepath.Join(s.Dir(), "appendonly*")}
	}
	return map[string]func(t *testing.T) *chaosCarrier{
		"postgres": nil, "redislist": redis, "redisstream": redis,
		"jetstream": func(t *testing.T) *chaosCarrier {
			t.Helper()
			s := dbtest.StartNATS(t, 1)[0]
			return &chaosCarrier{s, []string{"BELFRY_DELIVERY_NATS_URLS=" + s.URL, "BELFRY_DELIVERY_NATS_REPLICAS=1", "BELFRY_DELIVERY_NATS_TIMEOUT=500ms"}, filepath.Join(s.Store, "*")}
		},
	}
}

// I6, I8, I9, I10 on a stock server and on each transport: relays are killed and stopped at
// random, PostgreSQL and the carrier are crashed, the carrier once loses all that it has, jobs
// are aborted, corrected and resumed and lanes paused in mid-delivery, while a provider fails a
// tenth of the calls. Every message ends SENT or DEAD; the
// provider has accepted no message more often than once and once more for each outcome
// that was unknown; nothing was handed over to it that was held at the time, and nothing
// with a text that was corrected before. BELFRY_TEST_MESSAGES sets how many messages there
// are, BELFRY_TEST_SEED repeats a run.
func TestProcess_KilledRelaysLoseNothing(t *testing.T) { //nolint:tparallel // one transport after the other: each has servers and relays of its own
	t.Parallel()
	total := fromEnviron(t, "BELFRY_TEST_MESSAGES", 2_000)
	seed := fromEnviron(t, "BELFRY_TEST_SEED", time.Now().UnixNano())
	t.Logf("BELFRY_TEST_SEED=%d", seed)
	for transport, carrier := range chaosTransports() {
		t.Run(transport, func(t *testing.T) { testKilledRelays(t, transport, carrier, total, seed, nil) })
	}
}

func testKilledRelays(t *testing.T, transport string, carrier func(t *testing.T) *chaosCarrier, total, seed int64, upgrade *upgrade) {
	t.Helper()
	server := dbtest.NewServer(t, true)
	db := dbtest.NewOn(t, server)
	dbtest.RequireStock(t, db.Pool)
	_, err := db.Pool.Exec(t.Context(), handedSQL)
	require.NoError(t, err)
	d := deliverable(t, db, int(total/2), mixedFaults...)
	d.limit["rate_per_second"] = max(total/6, 500)
	d.limit["concurrency"] = 32
	d.limit["timeout"] = "1s" // for calls that hang
	c := &relayChaos{
		courierTest: d, server: server, random: rand.New(rand.NewPCG(uint64(seed), 1)), relays: make([]*process, 3), total: total / 2 * 2, done: map[string]int{},
		upgrade: upgrade,
	}
	d.enqueueIn("other")
	c.jobs = []*chaosJob{{id: 1, lane: "default"}, {id: 2, lane: "other"}}
	c.environ = d.environ("BELFRY_DELIVERY_BATCH=100", "BELFRY_DELIVERY_MAX_IN_FLIGHT=400", "BELFRY_DELIVERY_MAX_CRASHES=10",
		"BELFRY_DELIVERY_LEASE=3s", "BELFRY_DELIVERY_STATEMENT_TIMEOUT=1s", "BELFRY_DELIVERY_TRANSPORT="+transport) // what the dead leave is taken up soon
	if carrier != nil {
		c.carrier = carrier(t)
		c.environ = append(c.environ, c.carrier.environ...)
	}
	began := time.Now()
	for place := range c.relays {
		c.hire(place)
	}
	c.rampage()
	c.until(c.total)
	took := time.Since(began)
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM belfry.leases") // of relays that died when all was recorded
	c.emptied()
	c.listen()
	for _, p := range c.relays {
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	}
	c.judge(took)
}

// emptied waits until the carrier has no copy of anything.
func (c *relayChaos) emptied() {
	c.Helper()
	if c.carrier == nil {
		return
	}
	var r delivery.Transport
	require.Eventually(c, func() bool {
		got := command(c.T, c.environ, "transport", "status", "--json")
		r = delivery.Transport{}
		if got.code != codeDone || json.Unmarshal([]byte(got.stdout), &r) != nil {
			return false
		}
		for _, q := range r.Queues {
			if q.Carrier == nil || q.Carrier.Ready+q.Carrier.Later+q.Carrier.Taken > 0 {
				return false
			}
		}
		return len(r.Queues) == 2
	}, 4*patience, 200*time.Millisecond, "copies are left: %+v", &r) // a list returns what a dead relay had after half a minute
}

// judge compares what belfry has recorded with what the provider has seen.
func (c *relayChaos) judge(took time.Duration) {
	c.Helper()
	statuses := c.statuses()
	ambiguous := count(c.T, c.db, "belfry.attempts WHERE outcome IN ('unknown', 'crashed')")
	crashed := count(c.T, c.db, "belfry.attempts WHERE outcome = 'crashed'")
	sum := c.fakes.Summary().Total()
	c.Logf("%d messages in %s, %v: %d SENT, %d DEAD; provider: %d calls, %d accepted, %d duplicates; %d ambiguous outcomes, %d of them crashes",
		c.total, took.Round(time.Millisecond), c.done, statuses["SENT"], statuses["DEAD"], sum.Calls, sum.Accepted, sum.Duplicates, ambiguous, crashed)
	require.Empty(c, dbtest.Miscounted(c, c.db.Pool))
	require.Equal(c, c.total, statuses["SENT"]+statuses["DEAD"])
	require.Zero(c, count(c.T, c.db, "belfry.leases"))
	require.Zero(c, count(c.T, c.db, "belfry.handovers"))
	require.LessOrEqual(c, sum.Duplicates, ambiguous)
	require.Zero(c, sum.Keyless)
	// An answer that died with its relay has asked for nothing.
	require.LessOrEqual(c, sum.Early, crashed, "before its Retry-After")

	calls := make(map[string][]fake.Call)
	for _, call := range c.fakes.Calls("") {
		calls[call.Key] = append(calls[call.Key], call)
	}
	c.judgeEach(calls)
	c.judgeHolds(calls)
}

// accepted is how many of the calls were.
func accepted(calls []fake.Call) (n int64) {
	for _, call := range calls {
		if call.Outcome == fake.Accepted {
			n++
		}
	}
	return n
}

// judgeEach wants of every message and medium what the sums want of all, and that the
// text which messages.revision names was accepted.
func (c *relayChaos) judgeEach(calls map[string][]fake.Call) {
	c.Helper()
	rows, err := c.db.Pool.Query(c.Context(), `SELECT m.job_id, m.channel_id, m.status = 'SENT', coalesce(m.revision, 0), k.medium,
		count(a.id) FILTER (WHERE a.outcome IN ('unknown', 'crashed')), count(a.id) > 0, count(a.id) FILTER (WHERE a.outcome = 'refused')
		  FROM belfry.messages m CROSS JOIN (VALUES ('push'), ('sms')) k(medium)
		  LEFT JOIN belfry.attempts a ON a.job_id = m.job_id AND a.channel_id = m.channel_id AND a.medium = k.medium
		 GROUP BY m.job_id, m.channel_id, m.status, m.revision, k.medium ORDER BY m.job_id, m.channel_id, k.medium`)
	require.NoError(c, err)
	keyOf := c.keys()
	var jobID, channelID, ambiguous, bypassed, got int64
	var revision int
	var sent, refused bool
	var medium, problem string
	var told []int
	_, err = pgx.ForEachRow(rows, []any{&jobID, &channelID, &sent, &revision, &medium, &ambiguous, &refused, &bypassed}, func() error {
		own := calls[keyOf(jobID, channelID, medium)]
		n := accepted(own)
		if n > 1+ambiguous {
			problem = fmt.Sprintf("message %d/%d by %s: accepted %d times with %d ambiguous outcomes", jobID, channelID, medium, n, ambiguous)
		}
		if medium == "push" {
			got, told = 0, nil
		}
		for _, call := range own {
			if call.Outcome == fake.Accepted {
				told = append(told, revisionOf(c.T, call))
			}
		}
		if got += n; medium == "sms" && sent && got == 0 {
			problem = fmt.Sprintf("message %d/%d is SENT, and no provider has it", jobID, channelID)
		}
		if medium == "sms" && sent && !slices.Contains(told, revision) {
			problem = fmt.Sprintf("message %d/%d is SENT with revision %d, and providers accepted %d", jobID, channelID, revision, told)
		}
		if medium == "push" && !refused && accepted(calls[keyOf(jobID, channelID, "sms")]) > 0 {
			problem = fmt.Sprintf("message %d/%d went by sms without a recorded failure of push", jobID, channelID)
		}
		if bypassed > 1 {
			problem = fmt.Sprintf("message %d/%d has the refusal of %s %d times", jobID, channelID, medium, bypassed)
		}
		return nil
	})
	require.NoError(c, err)
	require.Empty(c, problem)
}

// keys makes the idempotency keys of messages.
func (c *relayChaos) keys() func(jobID, channelID int64, medium string) string {
	c.Helper()
	var installation [16]byte
	require.NoError(c, c.db.Pool.QueryRow(c.Context(), "SELECT id FROM belfry.installation").Scan(&installation))
	rows, err := c.db.Pool.Query(c.Context(), "SELECT id, created_at FROM belfry.jobs UNION ALL SELECT id, created_at FROM belfry.activities")
	require.NoError(c, err)
	created := make(map[int64]time.Time)
	var id int64
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		created[id] = at
		return nil
	})
	require.NoError(c, err)
	return func(jobID, channelID int64, medium string) string {
		return compose.Key(installation, jobID, created[jobID], channelID, medium)
	}
}
