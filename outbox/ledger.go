package outbox

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

const (
	// ledgerTimeout bounds each call of the ledger, here and, where it is more than one
	// statement, on the server.
	ledgerTimeout = 10 * time.Second
	// orphanAge is how long ago a lease was claimed that its relay may call an orphan:
	// longer than any claim is on its way.
	orphanAge = ledgerTimeout + 5*time.Second
	// MaxBatch is how many messages one call of the ledger takes.
	MaxBatch = 1000
)

// NoCarrier is the transport of relays that claim from the database.
const NoCarrier = "postgres"

// Ledger is one relay's way to the messages: every transition that a relay causes is
// one of its statements, each a conditional UPDATE by whoever holds the message (I8).
//
//	PENDING ──ClaimJob, ClaimActivities──► PROCESSING, under a lease
//	                                          │ HandOver, then Look, then the call
//	   SENT, DEAD, PENDING, CANCELLED ◄─Settle─┤
//	   PENDING as it was ◄──Settle(Release)────┤
//	   awaiting a receipt ◄─────────────Settle─┤
//	   by any relay, when the lease expired ◄──┘ Recover
//
// A Ledger keeps no state but its names and how many transactions it has made, and is safe
// for concurrent use. Each call has
// a deadline of ten seconds within its context's. An error that is
// job.ErrUnreachable may be that of a COMMIT, whose outcome is unknown: every call can
// be made again. What a claim took whose answer was lost, Lost finds.
type Ledger struct {
	pool      *pgxpool.Pool
	relay     string
	leaseTime time.Duration
	media     []string     // nil: all
	senders   []string     // nil: all
	transport string       // that the relay gets its messages from
	place     string       // of the relay
	readOnly  atomic.Bool  // transactions are, unless they say otherwise
	made      atomic.Int64 // transactions, for Beat
}

// NewLedger returns the ledger of the relay with that name, which must be different
// for each process. leaseTime is how long what it claims is its own without Renew.
func NewLedger(pool *pgxpool.Pool, relay string, leaseTime time.Duration) *Ledger {
	return &Ledger{pool: pool, relay: relay, leaseTime: leaseTime, transport: NoCarrier}
}

// Serve leaves to other relays what this one has no sender for: claims take messages
// that are to be sent by one of the media, and receipts those that one of the senders has
// accepted. Before the first use; without it the ledger takes them all.
func (l *Ledger) Serve(media, senders []string) { l.media, l.senders = media, senders }

// Candidate is a job that may have messages to send.
type Candidate struct {
	JobID    int64
	Lane     string
	Priority int
}

// Candidates lists the jobs that may have messages to send, most urgent first, then by
// id. ABORTED ones are not among them, nor those that MarkDelivered has marked.
func (l *Ledger) Candidates(ctx context.Context) ([]Candidate, error) {
	return list(ctx, l, "list jobs to deliver", queries.candidateList, nil, func(row pgx.CollectableRow) (c Candidate, err error) {
		err = row.Scan(&c.JobID, &c.Lane, &c.Priority)
		return c, err
	})
}

// MarkDelivered marks a job at rest of which nothing is left to send, and reports
// whether it did: by its counts (belfry.job_progress), without looking at a message. Of a
// job with messages left it only reads, which costs no durable commit.
func (l *Ledger) MarkDelivered(ctx context.Context, jobID int64) (bool, error) {
	args := pgx.StrictNamedArgs{"id": jobID}
	waiting, err := list(ctx, l, fmt.Sprintf("mark job %d delivered", jobID), queries.jobWaiting, args, pgx.RowTo[int64])
	if err != nil || len(waiting) == 0 || waiting[0] != 0 {
		return false, err
	}
	marked := false
	var b pgx.Batch
	b.Queue(queries.jobLockUndelivered, args)
	b.Queue(queries.jobMarkDelivered, args).Exec(func(tag pgconn.CommandTag) error {
		marked = tag.RowsAffected() > 0
		return nil
	})
	if err := l.atOnce(ctx, true, &b); err != nil {
		return false, fmt.Errorf("mark job %d delivered: %w", jobID, err)
	}
	return marked, nil
}

// Abort makes a job ABORTED in the relay's name, as an operator would, and reports whether it
// did: not one that is already, that has no message left, that is no more, or that an operator has
// resumed.
func (l *Ledger) Abort(ctx context.Context, jobID int64, reason string) (done bool, err error) {
	var b pgx.Batch
	b.Queue(queries.jobAbort, pgx.StrictNamedArgs{"id": jobID, "actor": l.relay, "reason": reason}).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&done}, func() error { return nil })
		return err
	})
	if err := l.atOnce(ctx, true, &b); err != nil {
		return false, fmt.Errorf("abort job %d: %w", jobID, err)
	}
	return done, nil
}

// Sample returns up to n messages of a job that are not sent, spread over them. abortable is false
// if an operator has resumed the job, which a relay does not abort then.
func (l *Ledger) Sample(ctx context.Context, jobID int64, n int) (keys []Key, abortable bool, err error) {
	resumed, err := list(ctx, l, fmt.Sprintf("read the acts on job %d", jobID), queries.jobResumed, pgx.StrictNamedArgs{"job_id": jobID}, pgx.RowTo[bool])
	if err != nil || len(resumed) != 1 || resumed[0] {
		return nil, false, err
	}
	keys, err = list(ctx, l, fmt.Sprintf("sample job %d", jobID), queries.jobSample, pgx.StrictNamedArgs{"job_id": jobID, "n": n}, func(row pgx.CollectableRow) (Key, error) {
		k := Key{JobID: jobID}
		err := row.Scan(&k.ChannelID)
		return k, err
	})
	return keys, true, err
}

// Installation returns the name of this database among others that use the same
// providers, a UUID.
func (l *Ledger) Installation(ctx context.Context) (id [16]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if err := l.pool.QueryRow(ctx, queries.installationID).Scan(&id); err != nil {
		return id, fmt.Errorf("read the installation's id: %w", mapError(err))
	}
	return id, nil
}

// list runs one statement that reads or, in a transaction of its own, writes, and
// collects its rows.
func list[T any](ctx context.Context, l *Ledger, what, statement string, args pgx.StrictNamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var all []T
	var b pgx.Batch
	b.Queue(statement, args).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err := l.send(ctx, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", what, mapError(err))
	}
	return all, nil
}

// take is list for a statement that takes rows in their order. It is not durable before
// the next commit that is.
func take[T any](ctx context.Context, l *Ledger, what, statement string, args pgx.StrictNamedArgs, scan pgx.RowToFunc[T]) (all []T, err error) {
	var b pgx.Batch
	b.Queue(statement, args).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err := l.atOnce(ctx, false, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}

// atOnce runs statements as one transaction that is sent in one piece.
func (l *Ledger) atOnce(ctx context.Context, durable bool, b *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var all pgx.Batch
	all.Queue(queries.ledgerBegin, beginArgs(durable))
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	return mapError(l.send(ctx, &all))
}

// send sends a batch as one transaction that writes. Where the role's transactions are
// read-only by default the server refuses the first that does, and executes nothing of it:
// from then on each is begun as one that writes, which costs round trips more.
func (l *Ledger) send(ctx context.Context, b *pgx.Batch) error {
	l.made.Add(1)
	if !l.readOnly.Load() {
		err := l.pool.SendBatch(ctx, b).Close()
		if db.ClassOf(err) != db.ReadOnly {
			return err
		}
		l.readOnly.Store(true)
		var again pgx.Batch // what was sent knows how its connection has prepared it
		for _, q := range b.QueuedQueries {
			again.QueuedQueries = append(again.QueuedQueries, &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments, Fn: q.Fn})
		}
		b = &again
	}
	return db.InTx(ctx, l.pool, db.Options{Limit: ledgerTimeout}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.SendBatch(ctx, b).Close()
	})
}

func beginArgs(durable bool) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{"durable": durable, "timeout_ms": strconv.FormatInt(ledgerTimeout.Milliseconds(), 10)}
}

// keys are messages in columns, as statements take them.
type keys struct {
	leases, jobs, channels []int64
	tids                   []pgtype.TID
}

func newKeys(n int) keys {
	ids := make([]int64, 3*n)
	return keys{ids[:n:n], ids[n : 2*n : 2*n], ids[2*n:], make([]pgtype.TID, n)}
}

func (k keys) set(i int, c *Claimed) {
	k.leases[i], k.jobs[i], k.channels[i], k.tids[i] = c.LeaseID, c.JobID, c.ChannelID, c.tid
}

func keysOf(messages []Claimed) keys {
	k := newKeys(len(messages))
	for i := range messages {
		k.set(i, &messages[i])
	}
	return k
}

// checkBatch refuses what would be too much for one statement.
func checkBatch(n int) error {
	if n > MaxBatch {
		return fmt.Errorf("%d messages are not allowed; allowed are 0 to %d", n, MaxBatch)
	}
	return nil
}
