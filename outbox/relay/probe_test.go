package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// abortAfter is how many failures in a row these tests allow.
const abortAfter = 10

// cautious is a sender of one call at a time, which aborts jobs.
func cautious(name, medium string, s *script) relay.Sender {
	c := settings(name, medium)
	c.Concurrency, c.AbortAfter = 1, abortAfter
	return relay.Sender{SenderConfig: c, Client: s}
}

// A job of which one sender fails so many messages in a row is aborted, and no medium costs what it
// would have cost for all: what is left is held, other jobs and activities go on, and after a
// resume the rest goes out.
func TestRelay_AbortsAJobThatFails(t *testing.T) {
	t.Parallel()
	const n = 400
	b := setup(t, n)
	failing, other := b.job(t, "default", 1, n, "push"), b.job(t, "default", n-2, n, "push", "sms")
	var corrected atomic.Bool
	answer := func(_ context.Context, d sender.Delivery) sender.Result {
		switch {
		case d.JobID != failing, corrected.Load():
			return sender.Result{Class: sender.Accepted}
		case d.ChannelID%2 == 0:
			return sender.Result{Class: sender.InvalidAddress, Code: "BadDeviceToken"}
		}
		return sender.Result{Class: sender.Permanent, Code: "404"}
	}
	first, log := &script{answer: answer}, new(dbtest.Buffer)
	b.start(t, config("r"), []relay.Sender{cautious("apns", "push", first)}, relay.WithLogger(zerolog.New(log)))
	b.eventually(t, `SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1`, failing)
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages m JOIN belfry.jobs j ON j.id = m.job_id WHERE m.status = 'PROCESSING' OR m.status = 'PENDING' AND j.status <> 'ABORTED')`)
	failed := one[int](t, b, `SELECT count(*) FROM belfry.attempts WHERE job_id = $1 AND medium = 'push'`, failing)
	require.GreaterOrEqual(t, failed, abortAfter+sampled)
	require.Less(t, failed, n/2, "an abort takes one transaction")
	require.Equal(t, n-failed, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE job_id = $1 AND status = 'PENDING'`, failing), "what is left waits")
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, other))
	require.Regexp(t, `^aborted r apns: 10 permanent failures in a row, the last with the code "(404|BadDeviceToken)"$`,
		one[string](t, b, `SELECT concat_ws(' ', kind, actor, reason) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, failing))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "aborted a failing job") }, patience, time.Millisecond, "written after the COMMIT")

	corrected.Store(true)
	b.exec(t, `SELECT belfry.resume($1, 'kim', 'the environment is corrected')`, failing)
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
	require.Equal(t, failed, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status <> 'SENT'`))
}

// sampled is how many messages are tried before a job is aborted.
const sampled = 50

// The sample is of all that is left: a relay that has returned the first addresses, which are gone, and not the others yet,
// once took it of these.
func TestRelay_SampleWaitsForReturnedMessages(t *testing.T) {
	t.Parallel()
	const n, gone = 1000, 300
	b := setupOn(t, dbtest.New(t), n)
	b.exec(t, `CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); RETURN NEW; END'`)
	b.exec(t, `CREATE TRIGGER slow BEFORE UPDATE ON belfry.message_rows
		FOR EACH ROW WHEN (NEW.channel_id = 500 AND NEW.status = 'PENDING') EXECUTE FUNCTION public.slow()`)
	id := b.job(t, "default", 1, n)
	s := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		if d.ChannelID <= gone {
			return sender.Result{Class: sender.InvalidAddress, Code: "UNREGISTERED"}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	fcm := cautious("fcm", "push", s)
	fcm.Breaker.Failures = 0
	b.start(t, config("r"), []relay.Sender{fcm})
	b.eventually(t, `SELECT count(*) FILTER (WHERE status = 'SENT') = $1 OR (SELECT status = 'ABORTED' FROM belfry.jobs) FROM belfry.messages`, n-gone)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, id))
}

// A list whose first addresses are gone, far more of them than abort_after, is delivered, also where
// other senders take most of it; one whose failures have another medium to go by is as well, and
// so is one that the client refuses by itself.
func TestRelay_DeliversAListWhoseFirstAddressesAreGone(t *testing.T) {
	t.Parallel()
	const n = 1000
	for name, c := range map[string]struct {
		route  []string
		answer sender.Result
		drain  bool
	}{
		"gone":           {[]string{"push"}, sender.Result{Class: sender.InvalidAddress, Code: "UNREGISTERED"}, false},
		"in a drain":     {[]string{"push"}, sender.Result{Class: sender.Permanent, Code: "404"}, true},
		"another medium": {[]string{"push", "sms"}, sender.Result{Class: sender.InvalidAddress, Code: "UNREGISTERED"}, false},
		"deferred":       {[]string{"push"}, sender.Result{Class: sender.InvalidAddress, Code: "UNREGISTERED"}, false},
		"own refusal":    {[]string{"push"}, sender.Result{Class: sender.Permanent, Code: "subscription", Refusal: sender.RefusedAddress}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, n)
			id := b.job(t, "default", 1, n, c.route...)
			gone := int64(300)
			if name == "deferred" { // with more of them, all that is due in the end would be gone
				gone = 60
			}
			s := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
				switch {
				case d.Medium == "push" && d.ChannelID <= gone:
					return c.answer
				case name == "deferred" && d.Attempt == 1 && d.ChannelID%40 == 0: // one of a sample fails, the rest waits
					return c.answer
				case name == "deferred" && d.Attempt == 1:
					return sender.Result{Class: sender.Retryable, Code: "503", RetryAfter: 5 * time.Second}
				}
				return sender.Result{Class: sender.Accepted}
			}}
			senders := []relay.Sender{cautious("fcm", "push", s), cautious("sms", "sms", s)}
			senders[0].Breaker.Failures = 0
			if c.drain {
				b.drain(t, config("r"), senders...)
			} else {
				b.start(t, config("r"), senders)
				b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
			}
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, id))
			want := n - int(gone)
			switch {
			case len(c.route) > 1:
				want = n
			case name == "deferred":
				want -= n/40 - int(gone)/40
			}
			require.Equal(t, want, b.statuses(t)["SENT"])
		})
	}
}

// A drain leaves a held job's messages where they are: the walk may take hours.
func TestRelay_DrainDoesNotWaitForAHeldJob(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := setup(t, n)
	b.running(t, "default", 1, n)
	s := &script{answer: always(sender.Result{Class: sender.Permanent, Code: "404"})}
	b.drain(t, config("r"), cautious("fcm", "push", s))
	got := b.statuses(t)
	require.Equal(t, n, got["PENDING"]+got["DEAD permanent"], got)
	require.GreaterOrEqual(t, got["DEAD permanent"], sampled)
	require.NotZero(t, got["PENDING"])
}

// A job that an operator has resumed is not aborted by a relay again.
func TestRelay_AbortsNoJobAgain(t *testing.T) {
	t.Parallel()
	const n = 400
	b := setup(t, n)
	id := b.job(t, "default", 1, n, "push")
	s := &script{answer: always(sender.Result{Class: sender.Permanent, Code: "404"})}
	b.start(t, config("r"), []relay.Sender{cautious("fcm", "push", s)})
	b.eventually(t, `SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1`, id)
	b.exec(t, `SELECT belfry.resume($1, 'kim', 'they are all gone')`, id)
	b.eventually(t, `SELECT count(*) = $1 FROM belfry.messages WHERE status = 'DEAD'`, n)
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, id))
}

// What does not abort: fewer failures in a row than it takes, also when there are more in all;
// activities; a sender that may not.
func TestRelay_AbortsNoJobThatSomebodyGets(t *testing.T) {
	t.Parallel()
	const n = 6 * abortAfter
	b := setup(t, n)
	id := b.job(t, "default", 1, n, "push")
	b.job(t, "other", 1, n, "sms")
	for i := range n {
		b.activity(t, i+1)
	}
	s := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		if d.JobID == id && d.ChannelID%abortAfter == 0 {
			return sender.Result{Class: sender.Accepted}
		}
		return sender.Result{Class: sender.Permanent, Code: "404"}
	}}
	never := cautious("sms", "sms", s)
	never.AbortAfter = 0
	log := new(dbtest.Buffer)
	b.start(t, config("r"), []relay.Sender{cautious("fcm", "push", s), never}, relay.WithLogger(zerolog.New(log)))
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.jobs WHERE status = 'ABORTED'`))
	require.NotContains(t, log.String(), "abort")
	require.Equal(t, map[string]int{"SENT": n / abortAfter, "DEAD permanent": 3*n - n/abortAfter}, b.statuses(t))
}

// Receipts are a streak of their own: that the provider takes the messages says nothing of them.
func TestRelay_AbortsAJobWhoseReceiptsFail(t *testing.T) {
	t.Parallel()
	const n = 600 // more than one look for receipts takes
	b := setup(t, n)
	id := b.job(t, "default", 1, n, "push")
	p := &patient{results: func(string) sender.Result { return sender.Result{Class: sender.Permanent, Code: "NotApproved"} }}
	p.answer = func(_ context.Context, d sender.Delivery) sender.Result {
		return sender.Result{Class: sender.Pending, Receipt: fmt.Sprintf("r-%d", d.ChannelID)}
	}
	c := cautious("alimtalk", "push", nil)
	c.Client = p
	b.start(t, config("r"), []relay.Sender{c})
	b.eventually(t, `SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1`, id)
	require.Equal(t, "alimtalk: 10 permanent failures in a row, the last with the code \"NotApproved\"",
		one[string](t, b, `SELECT reason FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted' ORDER BY id LIMIT 1`, id))
}

// A provider may know failures long before successes: a sample's receipts decide.
func TestRelay_DeliversAJobWhoseReceiptsFailFirst(t *testing.T) {
	t.Parallel()
	const n = 600
	b := setup(t, n)
	b.job(t, "default", 1, n, "push")
	var failed atomic.Int64
	p := &patient{results: func(receipt string) sender.Result {
		switch {
		case strings.HasSuffix(receipt, "7"):
			failed.Add(1)
			return sender.Result{Class: sender.Permanent, Code: "3018"}
		case failed.Load() > abortAfter:
			return sender.Result{Class: sender.Accepted}
		}
		return sender.Result{Class: sender.Pending}
	}}
	p.answer = func(_ context.Context, d sender.Delivery) sender.Result {
		return sender.Result{Class: sender.Pending, Receipt: fmt.Sprintf("r-%d", d.ChannelID)}
	}
	c := cautious("alimtalk", "push", nil)
	c.Client = p
	b.start(t, config("r"), []relay.Sender{c})
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
	require.Equal(t, map[string]int{"SENT": n - n/10, "DEAD permanent": n / 10}, b.statuses(t))
}

// A message that no receipt confirms in time is SENT. It is a sign of life also where the provider reports failures alone.
func TestRelay_DeliversAJobWhoseReceiptsReportFailuresOnly(t *testing.T) {
	t.Parallel()
	const n = 400
	b := setup(t, n)
	id := b.job(t, "default", 1, n, "push")
	p := &patient{results: func(receipt string) sender.Result {
		if strings.ContainsAny(receipt[len(receipt)-1:], "147") {
			return sender.Result{Class: sender.Permanent, Code: "3018"}
		}
		return sender.Result{Class: sender.Pending}
	}}
	p.answer = func(_ context.Context, d sender.Delivery) sender.Result {
		return sender.Result{Class: sender.Pending, Receipt: fmt.Sprintf("r-%d", d.ChannelID)}
	}
	c, settings := cautious("alimtalk", "push", nil), config("r")
	c.Client, settings.Receipts.Limit = p, 2*time.Second
	b.start(t, settings, []relay.Sender{c})
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, id))
	require.Equal(t, map[string]int{"SENT": n * 7 / 10, "DEAD permanent": n * 3 / 10}, b.statuses(t))
}

// A server that greylists refuses each good address at first, while the others of the list are gone.
func TestRelay_DeliversAListWhoseGoodAddressesAreGreylisted(t *testing.T) {
	t.Parallel()
	const n, gone = 1000, 600
	b := setup(t, n)
	id := b.job(t, "default", 1, n, "push")
	s := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		switch {
		case d.ChannelID <= gone:
			return sender.Result{Class: sender.InvalidAddress, Code: "550 5.1.1"}
		case d.Attempt == 1:
			return sender.Result{Class: sender.Retryable, Code: "451 4.7.1", AboutAddress: true, RetryAfter: 10 * time.Second}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	mail := cautious("mail", "push", s)
	mail.Breaker.Failures = 0
	b.start(t, config("r"), []relay.Sender{mail})
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING')) OR EXISTS (SELECT FROM belfry.jobs WHERE status = 'ABORTED')`)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, id))
	require.Equal(t, n-gone, b.statuses(t)["SENT"])
}

// A sample during the walk contains the oldest addresses only. A list of which these are gone is held until ten times as
// much of it is written, and delivered. In a wrong environment each factor of ten costs one sample more.
func TestRelay_HoldsAFailingJobDuringItsWalk(t *testing.T) {
	t.Parallel()
	const n, gone, first = 1000, 300, 100
	for name, wrong := range map[string]bool{"first addresses gone": false, "wrong environment": true} {
		for written, name := range map[int]string{first: name, abortAfter: name + ", no message waits"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, n)
				id := b.running(t, "default", 1, written)
				s, log := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
					if wrong || d.ChannelID <= gone {
						return sender.Result{Class: sender.InvalidAddress, Code: "UNREGISTERED"}
					}
					return sender.Result{Class: sender.Accepted}
				}}, new(dbtest.Buffer)
				b.start(t, config("r"), []relay.Sender{cautious("fcm", "push", s)}, relay.WithLogger(zerolog.New(log)))
				held := func(times int) {
					require.Eventually(t, func() bool { return strings.Count(log.String(), "holds a failing job") == times }, patience, time.Millisecond)
					b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status = 'PROCESSING')`)
				}
				held(1)
				calls := func() int { return one[int](t, b, `SELECT count(*) FROM belfry.attempts`) }
				before := calls()
				b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, g, now() FROM generate_series($2::bigint, $3::bigint) g`, id, written+1, n)
				dbtest.Recount(t, b.DB.Pool)
				b.past(t, `UPDATE belfry.jobs SET rows_written = $2 WHERE id = $1`, id, n)
				if wrong {
					held(2)
					require.LessOrEqual(t, before, written)
					b.exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
					b.eventually(t, `SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1`, id)
					require.LessOrEqual(t, calls(), before+2*2*sampled)
					return
				}
				b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
				require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, id))
				require.Equal(t, n-gone, b.statuses(t)["SENT"])
			})
		}
	}
}

// A sender that gets few of a job's messages fails them all: each sample contains few of them, and the next one is added.
func TestRelay_AbortsForASenderOfFewMessages(t *testing.T) {
	t.Parallel()
	const n, share = 8000, 40
	b := setup(t, n)
	b.exec(t, `UPDATE belfry.channels SET platform = CASE WHEN id % $1 = 0 THEN 'ios' ELSE 'android' END`, share)
	id := b.job(t, "default", 1, n, "push")
	wrong := cautious("apns", "push", &script{answer: always(sender.Result{Class: sender.InvalidAddress, Code: "BadDeviceToken"})})
	right := relay.Sender{SenderConfig: settings("fcm", "push"), Client: &script{}}
	wrong.Platforms, right.Platforms = []string{"ios"}, []string{"android"}
	b.start(t, config("r"), []relay.Sender{wrong, right})
	b.eventually(t, `SELECT EXISTS (SELECT FROM belfry.jobs WHERE status = 'ABORTED') OR NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = 'aborted'`, id))
	require.Less(t, one[int](t, b, `SELECT count(*) FROM belfry.attempts WHERE job_id = $1`, id), n/share)
}

// A relay that may not abort says so, and delivers on.
func TestRelay_MayNotAbort(t *testing.T) {
	t.Parallel()
	const n = 30 * abortAfter
	b := setup(t, n)
	b.job(t, "default", 1, n, "push")
	b.exec(t, `CREATE FUNCTION public.forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'permission denied for table jobs' USING ERRCODE = '42501'; END $$`)
	b.exec(t, `CREATE TRIGGER forbid BEFORE UPDATE OF abort_requested ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION public.forbid()`)
	s, log := &script{answer: always(sender.Result{Class: sender.Permanent, Code: "404"})}, new(dbtest.Buffer)
	b.start(t, config("r"), []relay.Sender{cautious("fcm", "push", s)}, relay.WithLogger(zerolog.New(log)))
	b.eventually(t, `SELECT count(*) = $1 FROM belfry.messages WHERE status = 'DEAD'`, n)
	require.Contains(t, log.String(), "cannot abort a failing job")
	require.Contains(t, log.String(), "permission denied for table jobs")
}
