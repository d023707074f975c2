package outbox

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

const (
	// ledgerTimeout bounds each call of the ledger in this process, and on the server if it has more than
	// one statement.
	ledgerTimeout = 10 * time.Second
	// orphanAge is the age from which a relay may treat a lease of its own as lost. It is longer than any
	// claim takes.
	orphanAge = ledgerTimeout + 5*time.Second
	// MaxBatch is the maximum number of messages of one call.
	MaxBatch = 1000
)

// NoCarrier is the transport of relays that claim from the database.
const NoCarrier = "postgres"

// Ledger executes all transitions that a relay causes. Each is a conditional UPDATE by the owner of the
// message (I8).
//
//	PENDING ──ClaimJob, ClaimActivities──► PROCESSING, under a lease (the first claim leaves the row as it is)
//	                                          │ HandOver, then Recheck, then the call
//	   SENT, DEAD, PENDING, CANCELLED ◄─Settle─┤
//	   PENDING as it was ◄──Settle(Release)────┤
//	   awaiting a receipt ◄─────────────Settle─┤
//	   by any relay, when the lease expired ◄──┘ Recover
//
// A Ledger has no state except its names, the number of its transactions and the ages of its leases (Holds), and is safe
// for concurrent use.
// Each call ends after ten seconds, or with its context. After job.ErrUnreachable the outcome of a COMMIT is
// unknown; every call can be repeated. Lost finds the messages of a claim whose response was lost.
type Ledger struct {
	pool                  *pgxpool.Pool
	relay                 string
	leaseTime             time.Duration
	claimWait, settleWait time.Duration
	media                 []string     // nil: all
	senders               []string     // nil: all
	transport             string       // of this relay
	place                 string       // of the relay
	readOnly              atomic.Bool  // the role's transactions are read-only by default
	made                  atomic.Int64 // number of transactions, for Beat

	mu     sync.Mutex
	leases map[int64]time.Time // when the statement began that claimed or renewed a lease last
}

// NewLedger returns the ledger of a relay. The name must be different for each process. Messages it claims
// belong to it for leaseTime without Renew.
func NewLedger(pool *pgxpool.Pool, relay string, leaseTime time.Duration) *Ledger {
	return &Ledger{
		pool: pool, relay: relay, leaseTime: leaseTime, claimWait: claimWait, settleWait: settleWait, transport: NoCarrier, leases: make(map[int64]time.Time),
	}
}

// Serve restricts the ledger to the media and senders of this relay: claims take only messages for the
// media, and receipts only messages that the senders accepted. Call it before the first use. By default the
// ledger takes all messages.
func (l *Ledger) Serve(media, senders []string) { l.media, l.senders = media, senders }

// Candidate is a job that may have messages to send.
type Candidate struct {
	JobID    int64
	Lane     string
	Priority int
}

// Candidates lists the jobs that may have messages to send within a minute, most urgent first, then by id. It
// omits ABORTED jobs and jobs that MarkDelivered has marked.
func (l *Ledger) Candidates(ctx context.Context) ([]Candidate, error) {
	return list(ctx, l, "list jobs to deliver", queries.candidateList, nil, func(row pgx.CollectableRow) (c Candidate, err error) {
		err = row.Scan(&c.JobID, &c.Lane, &c.Priority)
		return c, err
	})
}

// MarkDelivered marks a finished job without messages left to send and reports whether it did. It reads the
// job's counts (belfry.job_progress) and no messages. If messages are left it only reads, which costs no
// durable commit. It does nothing, and does not wait, while another session has locked the job.
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

// Abort makes a job ABORTED in the relay's name and reports whether it did. It does nothing if the job is
// ABORTED already, has no message left, does not exist, or was resumed by an operator.
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

// Walk is the progress of the walk that writes a job's messages.
type Walk struct {
	Written   int64
	Continues bool
	Exempt    bool // relays do not abort the job: an operator has resumed it, or it does not exist
}

// Walk returns the progress of a job's walk. With an error the job is exempt.
func (l *Ledger) Walk(ctx context.Context, jobID int64) (Walk, error) {
	found, err := list(ctx, l, fmt.Sprintf("read the walk of job %d", jobID), queries.jobWalk,
		pgx.StrictNamedArgs{"job_id": jobID}, pgx.RowToStructByPos[Walk])
	if err != nil || len(found) == 0 {
		return Walk{Exempt: true}, err
	}
	return found[0], nil
}

// Sample returns up to n unsent messages of a job, distributed over all of them.
func (l *Ledger) Sample(ctx context.Context, jobID int64, n int) ([]Key, error) {
	return list(ctx, l, fmt.Sprintf("sample job %d", jobID), queries.jobSample,
		pgx.StrictNamedArgs{"job_id": jobID, "n": n}, func(row pgx.CollectableRow) (Key, error) {
			k := Key{JobID: jobID}
			err := row.Scan(&k.ChannelID)
			return k, err
		})
}

// Installation returns the UUID of this database. It distinguishes databases that use the same providers.
func (l *Ledger) Installation(ctx context.Context) (id [16]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if err := l.pool.QueryRow(ctx, queries.installationID).Scan(&id); err != nil {
		return id, fmt.Errorf("read the installation's id: %w", mapError(err))
	}
	return id, nil
}

// list runs one statement in a transaction of its own and collects its rows.
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

// take is list for a statement that updates rows in order. It becomes durable with the next durable commit.
func take[T any](ctx context.Context, l *Ledger, what, statement string, args pgx.StrictNamedArgs,
	scan pgx.RowToFunc[T]) (all []T, err error) {
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

// atOnce sends statements as one transaction in one message.
func (l *Ledger) atOnce(ctx context.Context, durable bool, b *pgx.Batch) error {
	return l.within(ctx, durable, ledgerTimeout, b)
}

// within is atOnce, with the time for which it waits for each lock.
func (l *Ledger) within(ctx context.Context, durable bool, locks time.Duration, b *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var all pgx.Batch
	all.Queue(queries.ledgerBegin, beginArgs(durable, locks))
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	return mapError(l.send(ctx, &all))
}

// send sends a batch as one transaction that writes. If the role's transactions are read-only by default,
// the server rejects the first batch as a whole. From then on each transaction begins as READ WRITE, which
// costs more round trips.
func (l *Ledger) send(ctx context.Context, b *pgx.Batch) error {
	l.made.Add(1)
	if !l.readOnly.Load() {
		err := l.pool.SendBatch(ctx, b).Close()
		if db.ClassOf(err) != db.ReadOnly {
			return err
		}
		l.readOnly.Store(true)
		var again pgx.Batch // a sent batch contains its connection's prepared statements
		for _, q := range b.QueuedQueries {
			again.QueuedQueries = append(again.QueuedQueries, &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments, Fn: q.Fn})
		}
		b = &again
	}
	return db.InTx(ctx, l.pool, db.Options{Limit: ledgerTimeout}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.SendBatch(ctx, b).Close()
	})
}

func beginArgs(durable bool, locks time.Duration) pgx.StrictNamedArgs {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return pgx.StrictNamedArgs{"durable": durable, "timeout_ms": ms(ledgerTimeout), "lock_ms": ms(locks)}
}

// keys are the columns of messages, as array parameters.
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

// checkBatch rejects batches that are too large for one statement.
func checkBatch(n int) error {
	if n > MaxBatch {
		return fmt.Errorf("%d messages are not allowed; allowed values: 0 to %d", n, MaxBatch)
	}
	return nil
}
