package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/internal/db"
)

// poison finds the recipients whose rows cannot be written. A chunk that fails with
// an error that a retry cannot fix is halved, and the part in front of the fault is
// committed, until one recipient is left: it is recorded in job_skips and
// skipped. That costs about log2(keys) + 2 transactions.
//
// After a second fault the chunks start at the distance between the faults and
// double from there, so that a walk full of faults does not search through large
// chunks for each of them.
type poison struct {
	allowed int // recipients of the job that may be skipped

	suspect int   // a fault is among so many keys after the cursor; 0: none is known
	cap     int   // the next chunk's most keys; 0: no cap
	clean   int64 // keys since the last skip, or since the run began
	skips   int   // of this run
	inARow  int   // skips without a recipient between them that went through

	sound *cursor.Position // the recipient that a probe saw go through last; nil: none
	again *cursor.Position // the faulty recipient that went through in a probe last; nil: none
}

// triedAgain reports whether a faulty recipient has had its second try.
func (p *poison) triedAgain(keyset cursor.Keyset, at cursor.Position) bool {
	return p.again != nil && keyset.Compare(*p.again, at) == 0
}

// maxSkipsInARow is where a run stops to believe in faults of single recipients.
const maxSkipsInARow = 100

// limit returns the size of the next chunk: half of the suspected keys, or the governor's size, within the
// cap.
func (p *poison) limit(rows int) int {
	switch {
	case p.suspect > 1:
		return min(rows, (p.suspect+1)/2)
	case p.suspect == 1:
		return 1
	case p.cap > 0:
		return min(rows, p.cap)
	}
	return rows
}

// passed takes a committed chunk into account and reports whether it was an ordinary
// one, fit to learn sizes from.
func (p *poison) passed(s step) (ordinary bool) {
	p.clean += int64(s.read)
	if int64(s.matched) > s.skipped {
		p.inARow = 0
	}
	ordinary = p.suspect == 0 && p.cap == 0
	p.suspect = max(p.suspect-s.read, 0)
	if p.suspect == 0 && p.cap > 0 {
		if p.cap *= 2; p.cap > 1_000_000 {
			p.cap = 0
		}
	}
	return ordinary
}

// failed takes a chunk of so many keys that failed.
func (p *poison) failed(read int) { p.suspect = read }

// skipped takes a recipient that was skipped: suspicion ends with it.
func (p *poison) skipped() {
	if p.skips > 0 {
		p.cap = int(min(max(p.clean, 1), 1_000_000))
	}
	p.suspect, p.clean = 0, 0
	p.skips++
	p.inARow++
}

// forget drops the suspicion, which counts from a cursor that is not the run's any
// more.
func (p *poison) forget() { p.suspect = 0 }

// writingError marks an error of writing one chunk's rows.
type writingError struct{ cause error }

func (e writingError) Error() string { return e.cause.Error() }
func (e writingError) Unwrap() error { return e.cause }

// faultError is the failure of a chunk that one of its recipients causes.
type faultError struct {
	step  step // the rows that the chunk read
	cause error
}

func (e faultError) Error() string { return e.cause.Error() }
func (e faultError) Unwrap() error { return e.cause }

// blame decides whether an error of a chunk is its recipients' fault: one of writing them, or of the
// constraints that are checked at COMMIT, that is a data exception, a constraint violation, an error of a
// user's trigger, or the Writer's own error. No recipient causes missing tables, missing rights and similar
// errors.
func (u *run) blame(s step, err error) error {
	if s.matched == 0 || retryable(err) || errors.As(err, new(contractError)) {
		return err
	}
	var pg *pgconn.PgError
	var own writerError
	writing := errors.As(err, new(writingError))
	switch {
	case errors.As(err, &own): // before pg: an error that a Writer's own error wraps is not the chunk's
	case db.ClassOf(err).OfRows():
	case writing && !errors.As(err, &pg): // a panic
	default:
		return err
	}
	return faultError{s, err}
}

// isolate narrows a fault down, or skips the recipient when it is found. The server has answered and rolled
// the chunk back, so its outcome is known. It returns any other error as it is, a refusedForAllError if the
// rows of all recipients are rejected, and the cause of the fault if no more recipients may be skipped.
func (u *run) isolate(ctx context.Context, err error) error {
	var fault faultError
	if !errors.As(err, &fault) {
		return err
	}
	if fault.step.read > 1 {
		u.poison.failed(fault.step.read)
		return nil
	}
	if over, err := u.refusesAll(ctx, fault); over || err != nil {
		return err
	}
	switch {
	case u.job.Skipped >= int64(u.poison.allowed):
		return u.giveUp(fault, fmt.Sprintf("%d recipients are skipped, max_skips is %d", u.job.Skipped, u.poison.allowed))
	case u.poison.inARow >= maxSkipsInARow:
		return u.giveUp(fault, fmt.Sprintf("%d recipients in a row cannot be written; the fault is not theirs", u.poison.inARow))
	}
	return u.skip(ctx, fault)
}

// giveUp ends the run because of one more recipient. The error is stored in the job and its event, and an erasure blanks only the
// errors of skips: it has the recipient's key and the SQLSTATE, unless no skip tells an operator more.
func (u *run) giveUp(fault faultError, why string) error {
	key := u.kind.keyset.Encode(fault.step.next)
	u.log.Warn().Err(fault.cause).Str("cursor", key).Msg("recipient cannot be written, and not be skipped")
	if u.job.Skipped == 0 {
		return givenUpError{fmt.Errorf("%s: %w", why, fault.cause)}
	}
	return givenUpError{unnamedError{cmp.Or(sqlState(fault.cause), "none"), why, key, fault.cause}}
}

// unnamedError is an error without its text, which may name a person.
type unnamedError struct {
	state, why, key string
	cause           error
}

func (e unnamedError) Error() string {
	return fmt.Sprintf("%s: recipient %s, SQLSTATE %s; the skipped recipients have such errors", e.why, e.key, e.state)
}
func (e unnamedError) Unwrap() error { return e.cause }

// skip records one recipient in job_skips and moves the cursor past it.
func (u *run) skip(ctx context.Context, fault faultError) error {
	began := time.Now()
	keyset := u.kind.keyset
	s := step{read: 1, matched: 1, skipped: 1, next: fault.step.next}
	if err := u.follows(s); err != nil {
		return err
	}
	key := keyset.Encode(s.next)
	err := u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.skipAdd, pgx.StrictNamedArgs{
			"job_id": u.id, "key": key, "after": keyset.Encode(u.after), "sqlstate": sqlState(fault.cause), "error": errorText(fault.cause),
		})
		if err != nil {
			return fmt.Errorf("skip recipient: %w", err)
		}
		return u.move(ctx, tx, s, key)
	})
	if err != nil {
		return err
	}
	u.moved(s, key, time.Since(began))
	u.poison.skipped()
	u.log.Warn().Err(fault.cause).Str("cursor", key).Int64("rows", u.job.Skipped).Msg("recipient skipped")
	return nil
}

// sqlState is the SQLSTATE of a server's error; empty: a Writer's own.
func sqlState(err error) string {
	var own writerError
	var pg *pgconn.PgError
	if errors.As(err, &own) || !errors.As(err, &pg) {
		return ""
	}
	return pg.Code
}

// retryWanted reports whether skipped recipients of the job are to be tried again.
func (u *run) retryWanted(ctx context.Context, tx pgx.Tx) (bool, error) {
	_, _, found, err := u.nextSkip(ctx, tx)
	return found, err
}

func (u *run) nextSkip(ctx context.Context, tx pgx.Tx) (key, after string, found bool, err error) {
	err = tx.QueryRow(ctx, queries.skipNext, pgx.StrictNamedArgs{"job_id": u.id}).Scan(&key, &after)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, fmt.Errorf("next skipped recipient: %w", err)
	}
	return key, after, true, nil
}

// retrySkip tries the next skipped recipient again, in a transaction of its own.
func (u *run) retrySkip(ctx context.Context) error {
	var s step
	var key string
	var found, booking bool
	err := u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) error {
		var after string
		var err error
		if key, after, found, err = u.nextSkip(ctx, tx); err != nil || !found {
			return err
		}
		if s, err = u.stepAt(ctx, tx, after, key); err != nil {
			return err
		}
		if err := s.agrees(); err != nil {
			return err
		}
		booking = true
		if _, err := tx.Exec(ctx, queries.skipRemove, pgx.StrictNamedArgs{"job_id": u.id, "key": key}); err != nil {
			return fmt.Errorf("remove skip: %w", err)
		}
		// Matched was counted when it was skipped; one that is no recipient any more is
		// taken out again.
		if err := u.book(ctx, tx, s.rows, s.declined(), int64(s.matched)-1, -1); err != nil {
			return err
		}
		booking = false // what COMMIT refuses may be the recipient's
		return nil
	})
	if err == nil && !found {
		u.retrying = false
		return nil
	}
	var fault faultError
	if !booking && errors.As(u.blame(s, err), &fault) { // no recipient causes an error of the job's row
		return u.keepSkip(ctx, key, fault.cause)
	}
	if err == nil {
		u.job.RowsWritten += s.rows
		u.job.Declined += s.declined()
		u.job.ChannelsMatched += int64(s.matched) - 1
		u.job.Skipped--
		u.report("chunk", s.rows, 0)
	}
	return err
}

// stepAt writes the one recipient at key.
func (u *run) stepAt(ctx context.Context, tx pgx.Tx, after, key string) (step, error) {
	keyset := u.kind.keyset
	from, err := keyset.Decode(after)
	if err != nil {
		return step{}, fmt.Errorf("skipped recipient: %w", err)
	}
	at, err := keyset.Decode(key)
	if err != nil {
		return step{}, fmt.Errorf("skipped recipient: %w", err)
	}
	walker, err := u.kind.open(ctx, tx, u.job, from, at)
	if err != nil {
		return step{}, fmt.Errorf("open walk: %w", err)
	}
	return walker.only(ctx, tx, u.job, from, at)
}

// keepSkip records that a skipped recipient failed again.
func (u *run) keepSkip(ctx context.Context, key string, cause error) error {
	return u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.skipKeep, pgx.StrictNamedArgs{
			"job_id": u.id, "key": key, "sqlstate": sqlState(cause), "error": errorText(cause),
		})
		if err != nil {
			return fmt.Errorf("keep skip: %w", err)
		}
		return u.book(ctx, tx, 0, 0, 0, 0)
	})
}

// book changes the job's accounts under the guard of a chunk, and leaves the cursor.
func (u *run) book(ctx context.Context, tx pgx.Tx, rows, declined, matched, skipped int64) error {
	tag, err := tx.Exec(ctx, queries.runBook, pgx.StrictNamedArgs{
		"id": u.id, "fence": u.fence, "before": u.job.Cursor, "rows": rows, "declined": declined, "matched": matched, "skipped": skipped,
	})
	if err != nil {
		return fmt.Errorf("book skip: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return u.refused(rows)
	}
	return nil
}
