package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// WorkerLease is the lease of workers that die. It is longer than the stalls of test machines.
const WorkerLease = 3 * time.Second

// survivorLease is the lease of a worker that must not lose its messages.
const survivorLease = 30 * time.Second

// workerArg and a Worker as arguments make the test's program run a relay. A child does not inherit the environment.
const workerArg = "relay-of-a-test"

// Worker is a relay in a separate process. Its sender stores its calls in public.calls.
type Worker struct {
	DSN, Name      string
	Server, Prefix string        // location of the carrier, for Equip
	Point          Point         // at which it kills itself; empty to survive
	Lease          time.Duration // 0 means WorkerLease
	Takes          time.Duration // duration of each call
}

// Equip returns the options of a worker's relay: its carrier, through d, or for PostgreSQL, hooks that call d.At.
type Equip func(w Worker, d *Dying) ([]relay.Option, error)

// Main is dbtest.Main, and the main function of workers.
func Main(m *testing.M, equip Equip) {
	if len(os.Args) != 3 || os.Args[1] != workerArg {
		dbtest.Main(m)
		return
	}
	if err := work(os.Args[2], equip); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:revive // it is a main function
	}
}

// work runs a worker until a signal ends it.
func work(text string, equip Equip) error {
	var w Worker
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	at, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return err
	}
	at.ConnConfig.RuntimeParams["application_name"] = w.Name
	pool, err := pgxpool.NewWithConfig(ctx, at)
	if err != nil {
		return err
	}
	defer pool.Close()
	d := &Dying{Point: w.Point}
	options, err := equip(w, d)
	if err != nil {
		return err
	}
	if d.Broker != nil {
		defer func() { _ = d.Broker.Close() }() // the process ends
	}
	who, err := channels.New(channels.DefaultConfig())
	if err != nil {
		return err
	}
	composer, err := compose.New(pool, who, compose.DefaultConfig(), nil)
	if err != nil {
		return err
	}
	c, s := relay.DefaultConfig(), relay.DefaultSenderConfig()
	c.Name, c.Listen, c.PollInterval, c.Batch, c.MaxCrashes = w.Name, false, 20*time.Millisecond, 20, 100
	c.Lease, c.StatementTimeout = w.Lease, w.Lease/3
	s.Name, s.Medium, s.Concurrency, s.Timeout, s.Retry.Initial = "nothing", "push", 10, patience, 50*time.Millisecond
	r, err := relay.New(pool, composer, c, []relay.Sender{{SenderConfig: s, Client: &calls{pool, w, d.At}}}, options...)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// calls is a sender that stores its calls in a table.
type calls struct {
	pool   *pgxpool.Pool
	worker Worker
	at     func(Point)
}

// MaxBatch implements sender.Sender.
func (*calls) MaxBatch() int { return 10 }

// Send implements sender.Sender.
func (c *calls) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	<-time.After(c.worker.Takes)
	jobs, ids, results := make([]int64, len(batch)), make([]int64, len(batch)), make([]sender.Result, len(batch))
	for i, d := range batch {
		jobs[i], ids[i], results[i].Class = d.JobID, d.ChannelID, sender.Accepted
	}
	if _, err := c.pool.Exec(ctx, `INSERT INTO public.calls SELECT *, $3 FROM unnest($1::bigint[], $2::bigint[])`, jobs, ids,
		c.worker.Name); err != nil {
		for i := range results {
			results[i] = sender.Result{Class: sender.Unknown, Code: "no answer"}
		}
	}
	c.at(Called)
	return results
}

// Called creates a table of the workers' calls, public.calls, and a table of the times at which messages became SENT.
func (d *Database) Called(t require.TestingT) {
	d.Exec(t, `CREATE TABLE public.calls (job_id bigint, channel_id bigint, worker text)`)
	d.Exec(t, `CREATE TABLE public.sent (job_id bigint, channel_id bigint)`)
	d.Exec(t, `CREATE FUNCTION public.sent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.sent VALUES (NEW.job_id, NEW.channel_id); RETURN NULL; END $$`)
	d.Exec(t, `CREATE TRIGGER sent AFTER UPDATE ON belfry.message_rows FOR EACH ROW WHEN (NEW.status = 'SENT') EXECUTE FUNCTION public.sent()`)
}

// Accounted requires that each of n messages was called and SENT once, and called more than once only if an attempt with an
// unknown outcome is recorded (I8, I9).
func (d *Database) Accounted(t require.TestingT, n int) {
	require.Equal(t, n, One[int](t, d, `SELECT count(DISTINCT (job_id, channel_id)) FROM public.calls`))
	require.Equal(t, []int{n, n}, One[[]int](t, d, `SELECT array[count(*), count(DISTINCT (job_id, channel_id))] FROM public.sent`),
		"times that a message was SENT")
	require.Zero(t, One[int](t, d, `SELECT count(*) FROM
		(SELECT job_id, channel_id, count(*) AS calls FROM public.calls GROUP BY 1, 2) c
		CROSS JOIN LATERAL (SELECT count(*) AS unknown FROM belfry.attempts a
			WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed')) a
		WHERE c.calls > 1 + a.unknown`), "messages called for without a record")
}

// StartWorker starts a worker on the database. It is killed when the test ends.
func (d *Database) StartWorker(t testing.TB, w Worker) *child.Process {
	t.Helper()
	w.DSN = d.DB.DSN
	if w.Lease == 0 {
		w.Lease = WorkerLease
	}
	text, err := json.Marshal(w)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	var said dbtest.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self, workerArg, string(text))
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		kill(t, p)
		if t.Failed() {
			t.Logf("output of the worker %s:\n%s", w.Name, said.String())
		}
	})
	return p
}

// kill kills a worker with -9.
func kill(t testing.TB, p *child.Process) {
	t.Helper()
	require.NoError(t, p.Stop(child.Step{Signal: syscall.SIGKILL, Wait: patience}))
}
