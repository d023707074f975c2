package bench

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/inbox"
	"github.com/belfryhq/belfry/outbox/retention"
)

// walks is the number of jobs of each type in a comparison.
const walks = 10

var historyRows = flag.Int64("history", 0, "compare with a history of `N` notifications and N messages in History (default 100,000,000; 40,000 with -short)")

// BenchmarkHistory compares a database that has a long history with an empty one, with the same channels and on the
// same server. In the history, each channel has one notification and one sent message of each of many jobs.
func BenchmarkHistory(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(gcRelay))
	empty := open(b, cmp.Or(*channelCount, size[int64](1_000_000, 4000)), true)
	old := *empty
	old.fill()
	jobs := max(1, cmp.Or(*historyRows, size[int64](100_000_000, 40_000))/old.active)
	old.writeNotifications(jobs)
	for range jobs {
		old.writeSent(0)
	}
	old.do("VACUUM (ANALYZE)")
	old.keeps = true
	compare := func(name string, measure func(empty, old *env)) {
		empty.run(name, func(e *env) {
			beside := old
			beside.B = e.B
			measure(e, &beside)
		})
	}
	compare("page", comparePages)
	compare("delivery", compareDelivery)
	compare("walk=inbox", func(empty, old *env) { compareWalks(empty, old, outbox.TypeInbox) })
	compare("walk=push", func(empty, old *env) { compareWalks(empty, old, outbox.TypePush) }) // after delivery: nobody sends its messages
	compare("prune", comparePrunes)
}

// toEmpty measures the same on both databases and reports the ratio of what they cost.
func toEmpty(empty, old *env, unit string, cost func(e *env) float64) {
	costs := sideBySide(func() float64 { return cost(empty) }, func() float64 { return cost(old) })
	empty.report(costs[0], unit)
	empty.report(costs[1]/costs[0], unit+"-to-empty", atMost(1.1))
}

// comparePages compares the first page of random channels, which it reads in both databases in turns. Each channel has
// got 20 notifications just before, which fill the page.
func comparePages(empty, old *env) {
	empty.clear()
	empty.do(queries.jobsEmpty)
	took := make(map[*env][]float64)
	stores := make(map[*env]*inbox.Store)
	for _, e := range []*env{empty, old} {
		e.writeNotifications(size[int64](20, 2))
		stores[e] = inbox.NewStore(e.pool)
	}
	for range 4000 {
		channel := 1 + rand.Int64N(empty.size)
		read := func(e *env) func() float64 {
			return func() float64 {
				began := time.Now()
				_, _, err := stores[e].Page(e.Context(), channel, inbox.Page{Limit: 20})
				require.NoError(e, err)
				took[e] = append(took[e], milliseconds(time.Since(began)))
				return 0
			}
		}
		sideBySide(read(empty), read(old))
	}
	for _, p := range []float64{50, 95} {
		unit := fmt.Sprintf("page-p%g-ms", p)
		empty.report(percentile(took[empty], p), unit)
		empty.report(percentile(took[old], p)/percentile(took[empty], p), unit+"-to-empty", atMost(1.1))
	}
}

// compareDelivery compares the relay's time for a message, and the claims of it.
func compareDelivery(empty, old *env) {
	claims := make(map[*env]float64)
	toEmpty(empty, old, "µs/message", func(e *env) float64 {
		speed, ms := e.deliver(1, func() {})
		claims[e] = percentile(ms, 50)
		return 1e6 / speed
	})
	empty.report(claims[old]/claims[empty], "claim-p50-to-empty", atMost(1.1))
}

// compareWalks compares the time for a row of several jobs: how many index pages a job changes depends on how full the
// newest partition is.
func compareWalks(empty, old *env, kind string) {
	took := make(map[*env]float64)
	walk := func(e *env) func() float64 {
		return func() float64 {
			took[e] += 1e6 / e.runEveryone(kind, job.DefaultConfig()).speed() / walks
			return 0
		}
	}
	for range walks {
		sideBySide(walk(empty), walk(old))
	}
	empty.report(took[empty], "µs/row")
	empty.report(took[old]/took[empty], "µs/row-to-empty", atMost(1.1))
}

// comparePrunes compares the time for a deleted row: of the messages of one job, and of the notifications in the oldest
// partition, which are those of one job without a history.
func comparePrunes(empty, old *env) {
	const age = 48 * time.Hour
	empty.clear()
	empty.do(queries.jobsEmpty)
	empty.runEveryone(outbox.TypeInbox, job.DefaultConfig())
	prune := func(e *env, kept outbox.Retention) (pruned retention.Pruned, took time.Duration) {
		kept.StepRows, kept.Interval = outbox.DefaultRetention().StepRows, outbox.DefaultRetention().Interval
		e.checkpoint()
		began := time.Now()
		pruned, err := retention.Prune(e.Context(), e.pool, kept, retention.Options{Act: job.Act{Actor: application}})
		require.NoError(e, err)
		return pruned, time.Since(began)
	}
	toEmpty(empty, old, "µs/message", func(e *env) float64 {
		e.writeSent(age)
		e.do(queries.messagesVacuum)
		pruned, took := prune(e, outbox.Retention{Messages: age / 2})
		require.Equal(e, e.active, pruned.Messages)
		return 1e6 / perSecond(pruned.Messages, took)
	})
	toEmpty(empty, old, "µs/notification", func(e *env) float64 {
		e.unguarded(queries.oldestAge, pgx.StrictNamedArgs{"age": age.Seconds()})
		pruned, took := prune(e, outbox.Retention{Notifications: age / 2})
		require.GreaterOrEqual(e, pruned.Notifications, e.active)
		return 1e6 / perSecond(pruned.Notifications, took)
	})
}

// writeNotifications runs inbox jobs to everyone.
func (e *env) writeNotifications(jobs int64) {
	for range jobs {
		e.enqueue(everyone(outbox.TypeInbox))
	}
	e.runDue(e.Context(), ungoverned())
	e.do("VACUUM (ANALYZE)")
	e.checkpoint()
}

// writeSent writes a push job to everyone that was delivered at the given age.
func (e *env) writeSent(age time.Duration) {
	e.unguarded(queries.sentInsert, pgx.StrictNamedArgs{"age": age.Seconds(), "messages": e.active})
}

// unguarded runs a statement without triggers, as a superuser.
func (e *env) unguarded(sql string, args pgx.StrictNamedArgs) {
	require.NoError(e, pgx.BeginFunc(e.Context(), e.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(e.Context(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		_, err := tx.Exec(e.Context(), sql, args)
		return err
	}))
}
