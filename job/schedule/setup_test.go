package schedule_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bundle is one test's database and a clock that stands still until the test moves it.
type bundle struct {
	db    *dbtest.DB
	store *schedule.Store
	jobs  *job.Store
	now   time.Time
}

// at reads a moment of the tests, 2026 in UTC.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse("2006-01-02 15:04:05", "2026-"+text)
	require.NoError(t, err)
	return v
}

func setup(t *testing.T) *bundle {
	t.Helper()
	db := dbtest.Reused(t, 10)
	return &bundle{db: db, store: schedule.NewStore(db.Pool), jobs: job.NewStore(db.Pool)}
}

// inOrder is t.Run for subtests that share the database, one after the other: each finds no
// schedule, job or event.
func (b *bundle) inOrder(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	b.exec(t, `TRUNCATE belfry.schedules, belfry.jobs, belfry.events CASCADE`)
	t.Run(name, test)
}

func (b *bundle) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := b.db.Pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// one reads a single value.
func one[T any](t testing.TB, b *bundle, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, b.db.Pool.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

var operator = job.Act{Actor: "kim", Reason: "test"}

// popular is a definition that fires at nine, UTC.
func popular() schedule.Definition {
	return schedule.Definition{
		Name: "popular", Cron: "0 9 * * *",
		Template: schedule.Template{Type: "inbox", Category: "popular_content", Title: "Today"},
	}
}

// put stores a definition as if it had been made at created, the test's present.
func (b *bundle) put(t testing.TB, d schedule.Definition, created string) {
	t.Helper()
	change, err := b.store.Put(context.Background(), d, schedule.FromDatabase, operator)
	require.NoError(t, err)
	require.Equal(t, schedule.Created, change)
	b.now = at(t, created)
	b.exec(t, `UPDATE belfry.schedules SET created_at = $2, armed_at = $2 WHERE name = $1`, d.Name, b.now)
}

func (b *bundle) firer(options ...schedule.Option) *schedule.Firer {
	return schedule.NewFirer(b.db.Pool, append([]schedule.Option{schedule.WithClock(func() time.Time { return b.now })}, options...)...)
}

// fire is a tick at a moment.
func (b *bundle) fire(t testing.TB, moment string) schedule.Fired {
	t.Helper()
	b.now = at(t, moment)
	fired, err := b.firer().FireDue(context.Background())
	require.NoError(t, err)
	return fired
}

// occurrences are the moments of what fired.
func occurrences(f schedule.Fired) []string {
	list := []string{}
	for _, o := range f.Occurrences {
		list = append(list, o.At.UTC().Format("01-02 15:04:05"))
	}
	return list
}

func (b *bundle) get(t testing.TB, name string) schedule.Schedule {
	t.Helper()
	s, err := b.store.Get(context.Background(), name)
	require.NoError(t, err)
	return s
}

// kinds are the kinds of a schedule's events in order.
func (b *bundle) kinds(t testing.TB, name string) []string {
	t.Helper()
	return one[[]string](t, b, `SELECT coalesce(array_agg(kind ORDER BY id), '{}') FROM belfry.events WHERE subject = 'schedule' AND name = $1`, name)
}

// keys are the idempotency keys of all jobs, in order.
func (b *bundle) keys(t testing.TB) []string {
	t.Helper()
	return one[[]string](t, b, `SELECT coalesce(array_agg(idempotency_key ORDER BY id), '{}') FROM belfry.jobs`)
}
