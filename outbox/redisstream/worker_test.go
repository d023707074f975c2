package redisstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/outboxtest"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// workerArg and a spec have the test's program be a relay. A child has no environment of ours.
const workerArg = "relay-of-a-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == workerArg {
		if err := work(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dbtest.Main(m)
}

// spec is what a relay in a process of its own works with.
type spec struct {
	DSN, URL, Prefix, Name string
	Point                  outboxtest.Point // at which it kills itself; "": it runs on
}

// leaseTime is that of relays that die; long enough for a machine that stalls.
const leaseTime = 3 * time.Second

// ledger is a sender that writes its calls into a table.
type ledger struct {
	pool *pgxpool.Pool
	name string
	at   func(outboxtest.Point)
}

func (*ledger) MaxBatch() int { return 10 }

func (l *ledger) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		results[i].Class = sender.Accepted
		if _, err := l.pool.Exec(ctx, `INSERT INTO public.calls VALUES ($1, $2, $3)`, d.JobID, d.ChannelID, l.name); err != nil {
			results[i] = sender.Result{Class: sender.Unknown, Code: "no answer"}
		}
	}
	l.at(outboxtest.Called)
	return results
}

// newRelay is a relay on a broker that sends by client: in small batches under leases that are
// soon over, or as a real one.
func newRelay(t require.TestingT, pool *pgxpool.Pool, b relay.Broker, name string, client sender.Sender, small bool) *relay.Relay {
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	composer, err := compose.New(pool, who, compose.DefaultConfig(), nil)
	require.NoError(t, err)
	c, s := relay.DefaultConfig(), relay.DefaultSenderConfig()
	c.Name, c.Listen, c.PollInterval = name, false, 20*time.Millisecond
	s.Name, s.Medium, s.Concurrency = "nothing", "push", 1000
	if small {
		c.Batch, c.Lease, c.StatementTimeout = 20, leaseTime, leaseTime/3
		s.Concurrency = 10
	}
	r, err := relay.New(pool, composer, c, []relay.Sender{{SenderConfig: s, Client: client}}, relay.WithBroker(b, 2*time.Second))
	require.NoError(t, err)
	return r
}

// broker is one whose workers are taken for dead soon.
func broker(url, prefix string) (*redisstream.Broker, error) {
	c := redisdb.DefaultConfig()
	c.URL, c.KeyPrefix = url, prefix
	b, err := redisstream.New(c, redisstream.Options{MaxQueued: 1 << 20, Lease: leaseTime, Log: zerolog.Nop()})
	if err == nil {
		b.Hurry(200*time.Millisecond, time.Second, leaseTime+500*time.Millisecond)
	}
	return b, err
}

// work is the main function of a relay in a process of its own, which ends by a signal.
func work(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, s.DSN)
	if err != nil {
		return err
	}
	b, err := broker(s.URL, s.Prefix)
	if err != nil {
		return err
	}
	d := &outboxtest.Dying{Broker: b, Point: s.Point}
	return newRelay(panics{}, pool, d, s.Name, &ledger{pool, s.Name, d.At}, true).Run(ctx)
}

// panics is a require.TestingT of a process without tests.
type panics struct{}

func (panics) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panics) FailNow()                          { panic("failed") }

// startWorker starts a relay in a process of its own.
func startWorker(t testing.TB, s spec) *child.Process {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	var said dbtest.Buffer
	cmd := exec.Command(self, workerArg, string(text))
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.Stop(child.Step{Signal: syscall.SIGKILL, Wait: patience})
		if t.Failed() {
			t.Logf("the worker %s said:\n%s", s.Name, said.String())
		}
	})
	return p
}
