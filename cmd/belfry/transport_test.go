package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/job"
)

// carried is the environment of a relay on a carrier.
func (d *courierTest) carried(transport, url string) []string {
	return append(d.environ(), "BELFRY_DELIVERY_TRANSPORT="+transport, "BELFRY_DELIVERY_REDIS_URL="+url, "BELFRY_DELIVERY_REDIS_TIMEOUT=20s")
}

// relays starts a relay and returns what stops it.
func (d *courierTest) relays(environ []string, args ...string) (stop func()) {
	d.Helper()
	ctx, cancel := context.WithCancel(d.Context())
	ended := make(chan code, 1)
	a := newApp(io.Discard, io.Discard, environ)
	go func() { ended <- a.execute(ctx, append([]string{"relay"}, args...)) }()
	var once bool
	stop = func() {
		if !once {
			once = true
			cancel()
			<-ended
		}
	}
	d.Cleanup(stop)
	return stop
}

// status is `belfry transport status --json`.
func (d *courierTest) status(environ []string, want code) (r delivery.Transport) {
	d.Helper()
	got := command(d.T, environ, "transport", "status", "--json")
	require.Equal(d, want, got.code, got.stderr)
	require.NoError(d, json.Unmarshal([]byte(got.stdout), &r))
	return r
}

// queue makes what is due QUEUED, as a relay that has died since has left it.
func (d *courierTest) queue(transport string) {
	d.Helper()
	d.exec(`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until, last_push)
		SELECT n, $1, 'gone', 'epoch', 1 FROM unnest('{activities,bulk}'::text[]) n ON CONFLICT (name) DO UPDATE SET last_push = belfry.queues.last_push + 1`, transport)
	d.exec(`UPDATE belfry.message_rows SET status = 'QUEUED', lease_id = 0, push = (SELECT last_push FROM belfry.queues WHERE name = 'bulk') WHERE status = 'PENDING'`)
}

// I10: from PostgreSQL to a carrier, to another, and back: each message is delivered once, and
// what each transport has is shown.
func TestLong_TransportSwitchesAndShowsWhatIsInside(t *testing.T) {
	t.Parallel()
	redis := dbtest.StartRedis(t)
	d := deliverable(t, dbtest.New(t), 40)
	for i, transport := range []string{"redislist", "redisstream", "postgres"} {
		environ := d.carried(transport, redis.URL)
		d.queue("gone")
		stop := d.relays(environ, "--relay-name", "r-"+transport)
		require.Eventually(t, func() bool { return d.statuses()["SENT"] == int64(40*(i+1)) }, patience, 20*time.Millisecond)
		r := d.status(environ, codeDone)
		require.Equal(t, transport, r.Transport)
		require.Equal(t, transport, r.Relays[0].Transport)
		if transport == "postgres" {
			require.Nil(t, r.Queues[1].Carrier)
			require.Contains(t, command(t, environ, "transport", "status").stdout, "transport postgres: relays claim from the database, and there is no carrier\n")
		} else {
			require.NotEmpty(t, r.Server)
			require.Equal(t, "r-"+transport, r.Queues[1].Dispatcher)
			require.NotNil(t, r.Queues[1].LeadsUntil)
			require.Equal(t, "r-"+transport, r.Queues[1].Carrier.Workers[0].Name)
			require.NotNil(t, r.Queues[1].Carrier.Workers[0].Seen)
			text := command(t, environ, "transport", "status").stdout
			require.Regexp(t, `(?m)^bulk +0 +0 +\d+ +0 +0 +r-`+transport+` `, text)
			require.Regexp(t, `(?m)^r-`+transport+` +live +`+transport+` `, text)

			refused := command(t, environ, "transport", "drain", "--yes")
			require.Equal(t, codeHeld, refused.code)
			require.Contains(t, refused.stderr, "relays work on a carrier: r-"+transport+" ("+transport+"); stop them first")
		}
		stop()
		if i < 2 {
			d.enqueue()
		}
	}
	require.EqualValues(t, 120, d.fakes.Summary().Of(fake.FCM).Accepted, "each once")
}

// A drain takes back what nobody serves, empties the carrier, asks first, and is recorded; a
// carrier that is away keeps nobody from it.
func TestLong_TransportDrainTakesEverythingBack(t *testing.T) {
	t.Parallel()
	redis := dbtest.StartRedis(t)
	d := deliverable(t, dbtest.New(t), 30)
	environ := d.carried("redislist", redis.URL)
	d.queue("redislist")
	require.EqualValues(t, 30, d.status(environ, codeDone).Queues[1].Queued)
	r := command(t, environ, "transport", "drain")
	require.Equal(t, codeUsage, r.code)
	require.Contains(t, r.stderr, "nothing was changed; say --yes if")
	require.EqualValues(t, 30, d.statuses()["QUEUED"])
	r = command(t, environ, "transport", "drain", "--dry-run")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Regexp(t, `(?m)^messages of the queue bulk +taken back +30 *$`, r.stdout)
	require.Regexp(t, `(?m)^ids in the carrier at redis.* +emptied +0 *$`, r.stdout)
	require.Contains(t, r.stdout, "all that is queued: would be taken back: 30 messages\n")
	r = command(t, environ, planned(t, environ, []string{"transport", "drain", "--yes", "--actor", "ann", "--reason", "moving"})...)
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Equal(t, "30 messages taken back; the carrier is empty\n", r.stdout)
	require.EqualValues(t, 30, d.statuses()["PENDING"])
	require.Equal(t, "drained ann moving 30", textOf(t, d.db, `SELECT format('%s %s %s %s', kind, actor, reason, detail ->> 'messages') FROM belfry.events WHERE subject = 'transport' AND kind = 'drained'`))
	events := command(t, environ, "transport", "events").stdout
	require.Regexp(t, `(?s)^AT +TRANSPORT +EVENT +BY +CHANGE +REASON\n[^\n]+ redislist +emptied +ann +moving\n[^\n]+ redislist +drained +ann +30 messages +moving\n$`, events)
	require.Contains(t, command(t, environ, "transport", "events", "jetstream").stdout, "no events of jetstream\n")
	require.Equal(t, codeDone, command(t, environ, "transport", "drain", "--yes").code)
	require.Equal(t, "emptied", textOf(t, d.db, `SELECT kind FROM belfry.events ORDER BY id DESC LIMIT 1`), "an act, though there was nothing to take back")

	require.NotContains(t, command(t, environ, "transport", "status").stdout, "memory lost", "it was to forget")

	d.queue("redislist")
	require.Contains(t, command(t, environ, "transport", "status").stdout, "not pushed, memory lost")
	acts := textOf(t, d.db, `SELECT count(*)::text FROM belfry.events WHERE kind = 'emptied'`)
	away := d.carried("redislist", "redis://127.0.0.1:1")
	r = command(t, away, "transport", "drain", "--yes", "--json")
	require.Equal(t, codeUnavailable, r.code)
	require.Contains(t, r.stderr, "the carrier is not emptied, which loses nothing")
	var done map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &done))
	require.Contains(t, done, "receipt")
	delete(done, "receipt")
	require.Equal(t, map[string]any{"messages": 30.0, "by": "", "emptied": false}, done)
	require.Equal(t, acts, textOf(t, d.db, `SELECT count(*)::text FROM belfry.events WHERE kind = 'emptied'`), "nothing was")
	require.EqualValues(t, 30, d.statuses()["PENDING"])
	require.NotEmpty(t, d.status(away, codeUnavailable).Error, "and what the database knows is shown")

	d.exec(`UPDATE belfry.queues SET leads_until = now() + interval '1 hour'`)
	r = command(t, environ, "transport", "drain", "--yes")
	require.Equal(t, codeHeld, r.code)
	require.Contains(t, r.stderr, "relays work on a carrier: gone (redislist, until ")
	d.queue("redislist")
	r = command(t, away, "transport", "drain", "--dry-run")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Regexp(t, `(?m)^messages of the queue bulk +left +30  relays work on a carrier: gone `, r.stdout)
	require.Regexp(t, `(?m)^ids in the carrier at redis.* +left +\?  `, r.stdout)
	require.Contains(t, r.stdout, "would be taken back: 0 messages\n")
	require.EqualValues(t, 30, d.statuses()["QUEUED"])
}

// A rebuild does what its plan says, and to another number nothing.
func TestTransport_RebuildIsAsPlanned(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 20)
	d.queue("redislist")
	environ, before := d.environ(), d.status(d.environ(), codeDone).Queues[1].Epoch
	r := command(t, environ, "transport", "rebuild", "--dry-run")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Regexp(t, `(?m)^messages of the queue bulk +pushed again +20  by the next relay that works on a carrier$`, r.stdout)
	require.Contains(t, r.stdout, "all that is queued: would be pushed again: 20 messages\n")
	r = command(t, environ, planned(t, environ, []string{"transport", "rebuild", "--yes"})...)
	require.Equal(t, codeDone, r.code, r.stderr)
	require.NotEqual(t, before, d.status(environ, codeDone).Queues[1].Epoch)
}

// A rebuild has what is QUEUED pushed again, while the relay works.
func TestLong_TransportRebuildPushesAgain(t *testing.T) {
	t.Parallel()
	redis := dbtest.StartRedis(t)
	d := deliverable(t, dbtest.New(t), 20)
	environ := d.carried("redislist", redis.URL)
	r := command(t, environ, "transport", "rebuild", "--yes")
	require.Equal(t, "0 messages to be pushed again, by the next relay that works on a carrier\n", r.stdout)
	d.relays(environ, "--relay-name", "r1")
	require.Eventually(t, func() bool { return d.statuses()["SENT"] == 20 }, patience, 20*time.Millisecond)
	before := d.status(environ, codeDone).Queues[1]
	d.enqueue()
	d.queue("redislist") // by a push that the carrier was never told
	r = command(t, environ, "transport", "rebuild", "--yes", "--json")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"by": "r1"`)
	require.Contains(t, r.stdout, `"in_force_since"`)
	require.Eventually(t, func() bool { return d.statuses()["SENT"] == 40 }, patience, 20*time.Millisecond)
	after := d.status(environ, codeDone).Queues[1]
	require.NotEqual(t, before.Epoch, after.Epoch)
	require.EqualValues(t, 40, d.fakes.Summary().Of(fake.FCM).Accepted)
	require.Regexp(t, `(?m) redislist +rebuilt .* \d+ messages?$`, command(t, environ, "transport", "events").stdout)
}

// Who operates may rebuild and drain, who monitors may look.
func TestTransport_RightsAreThoseOfOperators(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	d := deliverable(t, db, 5)
	d.queue("redislist")
	for kind, want := range map[string]code{"monitor": codeFailure, "operate": codeDone} {
		d.db = withProfiles(t, db, "", kind)
		require.Equal(t, codeDone, command(t, d.environ(), "transport", "status").code, kind)
		for _, act := range []string{"rebuild", "drain"} {
			r := command(t, d.environ(), "transport", act, "--yes")
			require.Equal(t, want, r.code, "%s %s: %s", kind, act, r.stderr)
		}
	}
}

// The doctor sees what is QUEUED for nobody, two carriers at once, and a server that is away or
// unfit.
func TestLong_TransportDoctorLooksAtCarriers(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 5)
	find := func(environ []string) string {
		var lines []string
		for line := range strings.Lines(command(t, environ, "doctor").stdout) {
			if _, rest, _ := strings.Cut(line, " "); strings.HasPrefix(strings.TrimLeft(rest, " "), "transport ") && line[0] != ' ' {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	require.Equal(t, "ok       transport      postgres; 0 messages QUEUED\n", find(d.environ()))
	d.queue("redislist")
	require.Equal(t, "warning  transport      5 messages of the queue bulk are QUEUED for redislist, and no relay pushes\n", find(d.environ()))
	d.exec(`UPDATE belfry.message_rows SET status = 'PENDING'`)
	d.exec(`INSERT INTO belfry.relays (name, transport, heartbeat_at) VALUES ('a', 'redislist', now() + interval '50 seconds'), ('b', 'postgres', now() + interval '50 seconds')`)
	require.Contains(t, find(d.environ()), "warning  transport      live relays use redislist, but delivery.transport is postgres here\n")
	d.exec(`INSERT INTO belfry.relays (name, transport, heartbeat_at) VALUES ('c', 'jetstream', now() + interval '50 seconds')`)
	require.Contains(t, find(d.environ()), "warning  transport      live relays use jetstream and redislist: ")
	bounded := append(d.environ(), "BELFRY_DELIVERY_TRANSPORT=jetstream", "BELFRY_DELIVERY_NATS_MAX_ACK_PENDING=29999", "BELFRY_DELIVERY_NATS_URLS=nats://127.0.0.1:1", "BELFRY_DELIVERY_NATS_TIMEOUT=100ms")
	require.Contains(t, find(bounded), "warning  transport      3 live relays have up to 5000 ids of a queue in flight each, but delivery.nats.max_ack_pending is 29999: at this limit all relays wait\n")
	require.NotContains(t, find(append(bounded, "BELFRY_DELIVERY_NATS_MAX_ACK_PENDING=30000")), "max_ack_pending")
	d.exec(`DELETE FROM belfry.relays`)

	require.Contains(t, find(d.carried("redislist", "redis://:secret@127.0.0.1:1")), "failed   transport      redislist at redis://127.0.0.1:1: ")
	evicts := dbtest.StartRedis(t, "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
	require.Regexp(t, `failed   transport      redislist at .*maxmemory-policy`, find(d.carried("redislist", evicts.URL)))
}

// What is QUEUED for another carrier goes to JetStream when relays do, and as many ids as may be out
// at once are shown.
func TestLong_TransportSwitchesToJetStream(t *testing.T) {
	t.Parallel()
	nats := dbtest.StartNATS(t, 1)[0]
	d := deliverable(t, dbtest.New(t), 40)
	environ := append(d.environ(), "BELFRY_DELIVERY_TRANSPORT=jetstream", "BELFRY_DELIVERY_NATS_REPLICAS=1", "BELFRY_DELIVERY_NATS_URLS="+nats.URL)
	d.queue("redislist")
	d.relays(environ, "--relay-name", "r1")
	require.Eventually(t, func() bool { return d.statuses()["SENT"] == 40 }, patience, 20*time.Millisecond)
	require.EqualValues(t, 40, d.fakes.Summary().Of(fake.FCM).Accepted, "each once")
	r := d.status(environ, codeDone)
	require.Equal(t, "jetstream", r.Queues[1].Transport)
	require.EqualValues(t, 100_000, r.Queues[1].Carrier.Most)
	text := command(t, environ, "transport", "status").stdout
	require.Regexp(t, `(?m)^QUEUE +READY +LATER +TAKEN +AT MOST +DEAD `, text)
	require.Regexp(t, `(?m)^bulk +0 +0 +\d+ +100,000 +0 +0 +r1 .* ok$`, text)
}

// Jobs are walked while the carrier is away, and `run --deliver` sends what is due without it: none
// of it depends on a carrier.
func TestTransport_GenerationGoesWithoutTheCarrier(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 20)
	away := d.carried("redislist", "redis://127.0.0.1:1")
	_, err := job.NewStore(d.db.Pool).Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: "Hello", Route: []string{"push"}})
	require.NoError(t, err)
	r := command(t, away, "run", "--quiet")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.EqualValues(t, 40, d.statuses()["PENDING"])
	r = command(t, away, "run", "--deliver", "--quiet")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.EqualValues(t, 40, d.statuses()["SENT"])
}

// A relay that starts beside a carrier that is away says so once, waits for it, and delivers when
// it comes; one whose carrier is unfit ends with 78.
func TestLong_TransportRelayWaitsForItsCarrier(t *testing.T) {
	t.Parallel()
	redis := dbtest.StartRedis(t)
	d := deliverable(t, dbtest.New(t), 20)
	for _, transport := range []string{"redislist", "redisstream"} {
		environ := d.carried(transport, redis.URL)
		require.NoError(t, redis.Stop())
		ctx, stop := context.WithCancel(t.Context())
		log := &dbtest.Buffer{}
		ended := make(chan code, 1)
		a := newApp(io.Discard, log, environ)
		go func() { ended <- a.execute(ctx, []string{"relay"}) }()
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "messages are not handed to the carrier") }, patience, 10*time.Millisecond)
		require.NoError(t, redis.Start(t.Context()))
		require.Eventually(t, func() bool { return d.statuses()["PENDING"]+d.statuses()["QUEUED"]+d.statuses()["PROCESSING"] == 0 }, patience, 20*time.Millisecond)
		stop()
		require.Equal(t, codeDone, <-ended)
		require.Equal(t, 1, strings.Count(log.String(), "the carrier's server is waited for"))
		require.Equal(t, 1, strings.Count(log.String(), "messages are not handed to the carrier"))

		redis.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		r := command(t, environ, "relay")
		require.Equal(t, codeConfiguration, r.code, r.stderr)
		require.Contains(t, r.stderr, "the carrier's server is unfit: ")
		require.Contains(t, r.stderr, "maxmemory-policy allkeys-lru drops keys")
		redis.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		d.enqueue()
	}
	require.EqualValues(t, 40, d.fakes.Summary().Of(fake.FCM).Accepted)
}
